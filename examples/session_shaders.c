/* SPDX-License-Identifier: MIT */

/*
 * session_shaders [DRIVER]: shaders that are made at run time, kept in a shader
 * cache session of Direct3D 12 as OpenCLOn12 keeps its own: asked for their size
 * first, then for their bytes; what fails is compiled, and stored without looking at
 * the answer.  When the driver (a number here) says that what it is given was made
 * for another, the cache is deleted and made anew from its own description.
 *
 * The compiler is glslc or glslangValidator.
 */

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COBJMACROS
#include <kiln/front/d3d12.h>

extern char **environ;

/* The same kernel, once for each kind of image. */
static const char *const kinds[] = { "r8",    "r16f",  "r32f",	  "rg8",
				     "rg16f", "rgba8", "rgba16f", "rgba32f" };
#define N_SHADERS (sizeof(kinds) / sizeof(*kinds))

static const char source[] =
	"#version 450\n"
	"layout(local_size_x = 8, local_size_y = 8) in;\n"
	"layout(binding = 0, KIND) uniform readonly image2D source;\n"
	"layout(binding = 1, KIND) uniform writeonly image2D target;\n"
	"void main()\n"
	"{\n"
	"	ivec2 at = ivec2(gl_GlobalInvocationID.xy);\n"
	"	vec4 sum = vec4(0);\n"
	"	for (int i = -4; i <= 4; i++)\n"
	"		sum += imageLoad(source, at + ivec2(i, 0)) *\n"
	"		       exp(-float(i * i) / 8.0);\n"
	"	imageStore(target, at, sum);\n"
	"}\n";

static void fail(const char *what)
{
	fprintf(stderr, "session_shaders: %s\n", what);
	exit(EXIT_FAILURE);
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---- The compiler ------------------------------------------------------------ */

struct compiler {
	char path[4096];
	int is_glslc;
	UINT64 version; /* of its file: another one has other caches */
};

static int find_in_path(const char *name, struct compiler *compiler)
{
	const char *path = getenv("PATH");
	struct stat info;

	while (path && *path) {
		const int size = (int)strcspn(path, ":");

		snprintf(compiler->path, sizeof(compiler->path), "%.*s/%s",
			 size, path, name);
		if (!stat(compiler->path, &info) &&
		    !access(compiler->path, X_OK)) {
			compiler->version = (UINT64)info.st_size << 32 ^
					    (UINT64)info.st_mtime;
			return 1;
		}
		path += size + (path[size] == ':');
	}
	return 0;
}

static int find_compiler(struct compiler *compiler)
{
	compiler->is_glslc = find_in_path("glslc", compiler);
	return compiler->is_glslc || find_in_path("glslangValidator", compiler);
}

static void run(const struct compiler *compiler, const char *define,
		const char *in, const char *out)
{
	const char *const glslc[] = { "glslc", "-O", "-fshader-stage=compute",
				      define,  "-o", out,
				      in,      NULL };
	const char *const validator[] = { "glslangValidator",
					  "-V",
					  "-S",
					  "comp",
					  define,
					  "-o",
					  out,
					  in,
					  NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&pid, compiler->path, &actions, NULL,
			(char *const *)(compiler->is_glslc ? glslc : validator),
			environ))
		fail(compiler->path);
	posix_spawn_file_actions_destroy(&actions);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail("the compiler failed");
}

/* A driver's code for a shader: whose it is, then SPIR-V. */
struct code {
	UINT64 driver;
	unsigned char *bytes;
	UINT size;
};

static void read_code(const char *path, struct code *code)
{
	FILE *file = fopen(path, "rb");
	struct stat info;

	if (!file || fstat(fileno(file), &info))
		fail(path);
	code->size = (UINT)info.st_size;
	code->bytes = malloc(code->size + 1);
	if (!code->bytes ||
	    fread(code->bytes, 1, code->size, file) != code->size)
		fail(path);
	fclose(file);
}

static void compile(const struct compiler *compiler, const char *kind,
		    struct code *code)
{
	char folder[] = "/tmp/shader-XXXXXX", in[64], out[64], define[32];
	FILE *file;

	if (!mkdtemp(folder))
		fail(folder);
	snprintf(in, sizeof(in), "%s/in.comp", folder);
	snprintf(out, sizeof(out), "%s/out.spv", folder);
	snprintf(define, sizeof(define), "-DKIND=%s", kind);
	file = fopen(in, "w");
	if (!file || fputs(source, file) < 0 || fclose(file))
		fail(in);
	run(compiler, define, in, out);
	read_code(out, code);
	unlink(in);
	unlink(out);
	rmdir(folder);
}

/* ---- The cache ----------------------------------------------------------------- */

static ID3D12ShaderCacheSession *create(
	ID3D12Device9 *device, const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	void *session;

	if (FAILED(ID3D12Device9_CreateShaderCacheSession(
		    device, desc, &IID_ID3D12ShaderCacheSession, &session)))
		fail("no session");
	return session;
}

static ID3D12ShaderCacheSession *open_cache(ID3D12Device9 *device,
					    UINT64 version)
{
	/* All limits are defaults. */
	const D3D12_SHADER_CACHE_SESSION_DESC desc = {
		.Identifier = { 0x9a6f1c20,
				0x0b5e,
				0x4f6b,
				{ 0x8d, 0x52, 0x6c, 0x1e, 0xd3, 0x0f, 0x7a,
				  0x41 } },
		.Mode = D3D12_SHADER_CACHE_MODE_DISK,
		.Version = version,
	};

	return create(device, &desc);
}

/* Everything that the code depends on; the compiler is in the version. */
static UINT make_key(const char *kind, char key[sizeof(source) + 32])
{
	return (UINT)snprintf(key, sizeof(source) + 32, "%s\n%s", kind, source);
}

static int find(ID3D12ShaderCacheSession *cache, const char *kind,
		struct code *code)
{
	char key[sizeof(source) + 32];
	const UINT key_size = make_key(kind, key);
	unsigned char *value;
	UINT size = 0;

	if (FAILED(ID3D12ShaderCacheSession_FindValue(cache, key, key_size,
						      NULL, &size)) ||
	    size < sizeof(code->driver))
		return 0;
	value = malloc(size);
	if (!value || FAILED(ID3D12ShaderCacheSession_FindValue(
			      cache, key, key_size, value, &size))) {
		free(value);
		return 0;
	}
	memcpy(&code->driver, value, sizeof(code->driver));
	code->size = size - (UINT)sizeof(code->driver);
	memmove(value, value + sizeof(code->driver), code->size);
	code->bytes = value;
	return 1;
}

static void store(ID3D12ShaderCacheSession *cache, const char *kind,
		  const struct code *code)
{
	char key[sizeof(source) + 32];
	const UINT key_size = make_key(kind, key);
	unsigned char *value = malloc(sizeof(code->driver) + code->size);

	if (!value)
		return;
	memcpy(value, &code->driver, sizeof(code->driver));
	memcpy(value + sizeof(code->driver), code->bytes, code->size);
	(void)ID3D12ShaderCacheSession_StoreValue(cache, key, key_size, value,
						  (UINT)sizeof(code->driver) +
							  code->size);
	free(value);
}

/* What is in it is of no use any more. */
static void clear(ID3D12ShaderCacheSession **cache)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc;
	void *device;

	ID3D12ShaderCacheSession_SetDeleteOnDestroy(*cache);
	if (FAILED(ID3D12ShaderCacheSession_GetDevice(
		    *cache, &IID_ID3D12Device9, &device)))
		fail("no device");
	desc = ID3D12ShaderCacheSession_GetDesc(*cache);
	ID3D12ShaderCacheSession_Release(*cache);
	*cache = create(device, &desc);
	ID3D12Device9_Release((ID3D12Device9 *)device);
}

/* ---- The program ----------------------------------------------------------------- */

struct counts {
	unsigned n_compiled, n_cleared;
};

/* As a driver that is given code: SPIR-V, and made for it. */
static int is_mine(const struct code *code, UINT64 driver)
{
	static const unsigned char magic[] = { 0x03, 0x02, 0x23, 0x07 };

	if (code->size < sizeof(magic) ||
	    memcmp(code->bytes, magic, sizeof(magic)))
		fail("this is no SPIR-V");
	return code->driver == driver;
}

static void get_shader(ID3D12ShaderCacheSession **cache,
		       const struct compiler *compiler, UINT64 driver,
		       const char *kind, struct counts *counts)
{
	struct code code = { .driver = driver };

	if (find(*cache, kind, &code)) {
		const int is_good = is_mine(&code, driver);

		free(code.bytes);
		if (is_good)
			return;
		clear(cache);
		counts->n_cleared++;
		code.driver = driver;
	}
	compile(compiler, kind, &code);
	if (!is_mine(&code, driver))
		fail("another driver's");
	store(*cache, kind, &code);
	counts->n_compiled++;
	free(code.bytes);
}

static void start(const char *which, ID3D12Device9 *device,
		  const struct compiler *compiler, UINT64 driver)
{
	const double begin = now_ms();
	struct counts counts = { 0 };
	ID3D12ShaderCacheSession *cache = open_cache(device, compiler->version);

	for (size_t i = 0; i < N_SHADERS; i++)
		get_shader(&cache, compiler, driver, kinds[i], &counts);
	ID3D12ShaderCacheSession_Release(cache);
	printf("%s: %zu shaders in %.2f ms, %u compiled%s\n", which, N_SHADERS,
	       now_ms() - begin, counts.n_compiled,
	       counts.n_cleared ? ", the cache was another driver's" : "");
}

int main(int argc, char **argv)
{
	const UINT64 driver = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	struct compiler compiler;
	ID3D12Device9 *device;

	if (!find_compiler(&compiler)) {
		printf("left out: there is no glslc and no glslangValidator\n");
		return EXIT_SUCCESS;
	}
	if (FAILED(kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
					    (void **)&device)))
		fail("no device");
	start("first", device, &compiler, driver);
	start("again", device, &compiler, driver);
	ID3D12Device9_Release(device);
	return EXIT_SUCCESS;
}
