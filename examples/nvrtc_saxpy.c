/* SPDX-License-Identifier: MIT */

/*
 * NVIDIA's run-time compiler behind kiln_get_or_build(): CUDA C++ to PTX, once.
 * No GPU is needed to compile.  Where no CUDA toolkit is installed this is a
 * program that says so.
 *
 *	nvrtc_saxpy log:DIR
 */

#include <stdio.h>

#ifndef HAVE_NVRTC
int main(void)
{
	puts("nvrtc_saxpy: left out: no CUDA toolkit was there when this was "
	     "built");
	return 0;
}
#else

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include <nvrtc.h>

#include <kiln/kiln.h>

static const char source[] =
	"extern \"C\" __global__ void saxpy(float *y, const float *x, float "
	"a)\n"
	"{\n"
	"	int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
	"	y[i] = a * x[i] + y[i];\n"
	"}\n";
static const char *const options[] = { "--gpu-architecture=compute_80",
				       "--use_fast_math" };
#define N_OPTIONS ((int)(sizeof(options) / sizeof(options[0])))

/* The compiler's log, when it has refused. */
static char *log_of(nvrtcProgram program)
{
	size_t size = 0;
	char *log;

	if (nvrtcGetProgramLogSize(program, &size) || !size)
		return NULL;
	log = calloc(1, size + 1);
	if (log && nvrtcGetProgramLog(program, log)) {
		free(log);
		return NULL;
	}
	return log;
}

static void take_ptx(nvrtcProgram program, struct kiln_build_result *result)
{
	size_t size = 0;
	char *ptx = NULL;

	if (!nvrtcGetPTXSize(program, &size))
		ptx = malloc(size);
	if (!ptx || nvrtcGetPTX(program, ptx) ||
	    kiln_blob_copy(ptx, size, &result->blob))
		result->kind = KILN_BUILD_RESOURCES;
	free(ptx);
}

static void compile(const struct kiln_key *key, void *arg,
		    struct kiln_build_result *result)
{
	nvrtcProgram program;
	nvrtcResult status =
		nvrtcCreateProgram(&program, source, "saxpy.cu", 0, NULL, NULL);

	if (status == NVRTC_SUCCESS) {
		status = nvrtcCompileProgram(program, N_OPTIONS, options);
		if (status == NVRTC_SUCCESS)
			take_ptx(program, result);
		else
			result->message = log_of(program);
		nvrtcDestroyProgram(&program);
	}
	if (status == NVRTC_SUCCESS)
		return;
	result->code = (int)status;
	result->kind = status == NVRTC_ERROR_OUT_OF_MEMORY
			       ? KILN_BUILD_RESOURCES
			       : KILN_BUILD_FAILED;
}

/*
 * The compiler is known by its build-id, which the linker wrote into it: all
 * updates of a toolkit have one version between them, nvrtcVersion()'s.
 */
static int add_build_id(struct dl_phdr_info *image, size_t size, void *arg)
{
	static const char owner[] = "GNU";

	if (!strstr(image->dlpi_name, "/libnvrtc.so"))
		return 0;
	for (int i = 0; i < image->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &image->dlpi_phdr[i];
		const char *at = (const char *)image->dlpi_addr + part->p_vaddr;
		const char *end = at + part->p_memsz;

		while (part->p_type == PT_NOTE &&
		       at + sizeof(ElfW(Nhdr)) < end) {
			const ElfW(Nhdr) *note = (const void *)at;
			const char *name = at + sizeof(*note);
			const char *id = name + ((note->n_namesz + 3) & ~3u);

			if (note->n_type == NT_GNU_BUILD_ID &&
			    note->n_namesz == sizeof(owner) &&
			    !memcmp(name, owner, sizeof(owner))) {
				kiln_key_add(arg, "compiler nvrtc", id,
					     note->n_descsz);
				return 1;
			}
			at = id + ((note->n_descsz + 3) & ~3u);
		}
	}
	return 0;
}

/* All that the PTX depends on: compiler, source, options.  NULL: unknown. */
static struct kiln_key *make_key(void)
{
	struct kiln_key *key = kiln_key_new();
	int is_known = dl_iterate_phdr(add_build_id, key);

	kiln_key_add_digest(key, "source", source, sizeof(source) - 1);
	for (int i = 0; i < N_OPTIONS; i++)
		kiln_key_add_string(key, "option", options[i]);
	if (is_known && !kiln_key_finish(key))
		return key;
	kiln_key_free(key);
	return NULL;
}

int main(int argc, char **argv)
{
	struct kiln_options kiln_options;
	struct kiln_build_result result;
	struct kiln_key *key = make_key();
	struct kiln *kiln;
	int is_built = 0;

	kiln_options_init(&kiln_options);
	kiln_options.store_url = argc > 1 ? argv[1] : NULL;
	kiln_build_result_init(&result);
	if (!key || kiln_open(&kiln_options, &kiln)) {
		fputs("nvrtc_saxpy: no compiler, or no cache\n", stderr);
		kiln_key_free(key);
		return EXIT_FAILURE;
	}
	if (kiln_get_or_build(kiln, key, compile, NULL, &result)) {
		fprintf(stderr, "nvrtc_saxpy: %d: %s\n", result.code,
			result.message ? result.message : "no log");
	} else {
		is_built = 1;
		printf("%zu bytes of PTX, %s\n", kiln_blob_size(result.blob),
		       result.source == KILN_FROM_BUILD ? "compiled"
							: "from the cache");
	}
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	kiln_close(kiln);
	return is_built ? EXIT_SUCCESS : EXIT_FAILURE;
}
#endif
