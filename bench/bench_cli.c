/* SPDX-License-Identifier: MIT */

/*
 * The tool, as a shell starts it, against what a shell has for the same.
 *
 *	stats	`kiln stats` on a store of a million entries, and on one of a
 *		thousand: it must not look at entries
 *	ls	`kiln ls --json` of 100000 entries, and `find -printf` over as
 *		many files
 *	verify	`kiln verify`, and the same files read by `cat`
 *	rebuild	`kiln rebuild` of 200 kernels on PoCL after another linker came,
 *		and the same builds one after another, each in a process of
 *		its own; on two processors, PoCL's own cache empty before each
 *	wrap	`kiln wrap -- ocloc` that finds its result, and ocloc alone, which is
 *		what a run has to wait for that does not; glslc and nvcc the same,
 *		without a bar
 *
 * A run is from fork() to the end of the child, its output to /dev/null.  Runs are
 * interleaved, and ratios are of one round, of which medians count.  Before that
 * each is run once, which brings the files into memory, and what it says is looked
 * at.  Stores and files are in memory if there is room.
 */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "bench.h"
#include "eviction_cells.h"

#define ROUNDS_MAX  15
#define PATH_BYTES  (BENCH_FOLDER_BYTES + 64)
#define OUTPUT_MAX  ((size_t)1 << 30)
#define FOLDER_MANY 1000 /* files in one folder */

static struct bench bench;
static char top[BENCH_FOLDER_BYTES]; /* the folder of everything */

/* ---- Programs --------------------------------------------------------------- */

static pid_t start(char *const *arguments, int out)
{
	pid_t child = fork();

	if (child < 0)
		bench_fail("fork: %s", strerror(errno));
	if (child)
		return child;
	dup2(out, STDOUT_FILENO);
	execvp(arguments[0], arguments);
	_exit(127);
}

static void finish(pid_t child, const char *name)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			bench_fail("waitpid: %s", strerror(errno));
	if (status)
		bench_fail("%s: ended with %d", name, status);
}

static double run_ns(char *const *arguments)
{
	int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	uint64_t begun = bench_now_ns();

	finish(start(arguments, out), arguments[0]);
	close(out);
	return (double)(bench_now_ns() - begun);
}

/* What it says; free() it. */
static char *listen_to(char *const *arguments)
{
	size_t size = 0, room = 1 << 16;
	char *text = malloc(room);
	int ends[2];
	ssize_t n;
	pid_t child;

	if (!text || pipe2(ends, O_CLOEXEC))
		bench_fail("no pipe, or no memory");
	child = start(arguments, ends[1]);
	close(ends[1]);
	while ((n = read(ends[0], text + size, room - size - 1)) > 0) {
		size += (size_t)n;
		if (size + 1 < room)
			continue;
		room *= 2;
		text = room > OUTPUT_MAX ? NULL : realloc(text, room);
		if (!text)
			bench_fail("%s says too much", arguments[0]);
	}
	close(ends[0]);
	finish(child, arguments[0]);
	text[size] = '\0';
	return text;
}

static size_t occurrences(const char *text, const char *part)
{
	size_t n = 0;

	for (; (text = strstr(text, part)); text += strlen(part))
		n++;
	return n;
}

static void expect(char *const *arguments, const char *part, size_t n)
{
	char *text = listen_to(arguments);
	size_t found = occurrences(text, part);

	free(text);
	if (found != n)
		bench_fail("%s %s says \"%s\" %zu times, not %zu", arguments[0],
			   arguments[1], part, found, n);
}

/* The first and the second, and their ratio; without a bar where it is 0. */
static void compare(const char *name, char *const *first, char *const *second,
		    const char *peer, double bar)
{
	size_t n = bench.quick ? 1 : ROUNDS_MAX;
	double a[ROUNDS_MAX], b[ROUNDS_MAX], ratios[ROUNDS_MAX];
	char row[200];

	for (size_t i = 0; i < n; i++) {
		a[i] = run_ns(first);
		b[i] = run_ns(second);
		ratios[i] = a[i] / b[i];
		bench_progress(name, i + 1, n);
	}
	bench_row(&bench, name, bench_median(a, n) / 1e6, "ms");
	bench_row(&bench, peer, bench_median(b, n) / 1e6, "ms");
	snprintf(row, sizeof(row), "%s : %s", name, peer);
	if (bar == 0)
		bench_row(&bench, row, bench_median(ratios, n), "");
	else
		bench_row_bar(&bench, row, bench_median(ratios, n), "", bar,
			      BENCH_LOWER);
}

/* ---- Stores ------------------------------------------------------------------ */

static struct kiln *open_store(const char *url)
{
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = url;
	options.store_bytes_max = (uint64_t)16 << 30;
	options.flags = KILN_OPEN_NO_MEMORY;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		bench_fail("%s: no store", url);
	return kiln;
}

/* As a front end of OpenCL says it. */
static struct kiln_metadata *describe(void)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, 1700000000);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 5000000);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, "opencl");
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 "/usr/bin/an-application");
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 "-cl-std=CL1.2 -DTILE=16");
	return metadata;
}

static void put(struct kiln *kiln, uint64_t number, const void *value,
		size_t size, const struct kiln_metadata *metadata)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "number", &number, sizeof(number));
	kiln_key_add_string(key, "device 0 name", "a device");
	if (kiln_key_finish(key) ||
	    kiln_put(kiln, key, value, size, metadata, 0))
		bench_fail("entry %llu", (unsigned long long)number);
	kiln_key_free(key);
}

/* "log:TOP/NAME" */
static void make_store(char url[PATH_BYTES], const char *name, size_t n,
		       size_t size)
{
	struct kiln_metadata *metadata = describe();
	unsigned char *value = malloc(size);
	struct kiln *kiln;

	if (!value || !metadata)
		bench_fail("out of memory");
	memset(value, 'v', size);
	snprintf(url, PATH_BYTES, "log:%s/%s", top, name);
	kiln = open_store(url);
	for (size_t i = 0; i < n; i++) {
		put(kiln, i, value, size, metadata);
		bench_progress(name, i + 1, n);
	}
	kiln_close(kiln);
	kiln_metadata_free(metadata);
	free(value);
}

static void forget_store(const char *url)
{
	bench_remove_tree(strchr(url, ':') + 1);
}

/* ---- stats ------------------------------------------------------------------- */

static void measure_stats(void)
{
	size_t n = bench.quick ? 10000 : 1000000;
	char large[PATH_BYTES], small[PATH_BYTES];
	char *of_large[] = { BENCH_KILN, "stats", "--store", large, NULL };
	char *of_small[] = { BENCH_KILN, "stats", "--store", small, NULL };

	make_store(small, "small", 1000, 64);
	make_store(large, "large", n, 64);
	expect(of_large, "entries stored", 1);
	expect(of_small, "entries stored            1000\n", 1);
	compare("kiln stats, 1M entries", of_large, of_small,
		"kiln stats, 1k entries", 2.0);
	forget_store(large);
	forget_store(small);
}

/* ---- ls ---------------------------------------------------------------------- */

static void make_files(const char *directory, size_t n)
{
	char path[PATH_BYTES + 64];

	if (mkdir(directory, 0700))
		bench_fail("%s: %s", directory, strerror(errno));
	for (size_t i = 0; i < n; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%zu", directory,
			 i / FOLDER_MANY);
		if (!(i % FOLDER_MANY) && mkdir(path, 0700))
			bench_fail("%s: %s", path, strerror(errno));
		snprintf(path, sizeof(path), "%s/%zu/%032zx", directory,
			 i / FOLDER_MANY, i);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (fd < 0 || write(fd, "value", 5) != 5)
			bench_fail("%s: %s", path, strerror(errno));
		close(fd);
	}
}

static void measure_ls(void)
{
	size_t n = bench.quick ? 1000 : 100000;
	char url[PATH_BYTES], files[PATH_BYTES];
	char *list[] = { BENCH_KILN, "ls", "--json", "--store", url, NULL };
	char *find[] = { "find",    files,	   "-type", "f",
			 "-printf", "%p %s %T@\n", NULL };

	make_store(url, "listed", n, 1000);
	snprintf(files, sizeof(files), "%s/files", top);
	make_files(files, n);
	expect(list, "\"key\":", n);
	expect(find, "\n", n);
	compare("kiln ls --json, 100k entries", list, find,
		"find -printf, 100k files", 3.0);
	forget_store(url);
	bench_remove_tree(files);
}

/* ---- verify ------------------------------------------------------------------- */

static void measure_verify(void)
{
	size_t n = bench.quick ? 1000 : 20000;
	char url[PATH_BYTES], command[PATH_BYTES + 16], entries[64];
	char *verify[] = {
		BENCH_KILN, "verify", "--json", "--store", url, NULL
	};
	char *cat[] = { "sh", "-c", command, NULL };

	make_store(url, "verified", n, 32768);
	snprintf(command, sizeof(command), "exec cat %s/verified/kiln.*", top);
	snprintf(entries, sizeof(entries), "\"entries\": %zu", n);
	expect(verify, entries, 1);
	compare("kiln verify", verify, cat, "cat of the same files", 1.5);
	forget_store(url);
}

/* ---- rebuild ------------------------------------------------------------------ */

#ifdef BENCH_BUILDS
#define LINKER "/usr/bin/ld"

/* PoCL alone, the first linker in PATH ours, no cache of PoCL's that is not. */
static void set_place(const char *directory)
{
	char path[4 * PATH_BYTES];

	snprintf(path, sizeof(path), "%s/bin:%s", directory, getenv("PATH"));
	setenv("PATH", path, 1);
	snprintf(path, sizeof(path), "%s/pocl", directory);
	setenv("POCL_CACHE_DIR", path, 1);
	setenv("OCL_ICD_VENDORS", "pocl.icd", 1);
	snprintf(path, sizeof(path), "log:%s/store", directory);
	setenv("KILN_STORE", path, 1);
}

/* Two processors, and of those that run here. */
static void use_two_processors(void)
{
	cpu_set_t all, two;
	int i;

	CPU_ZERO(&two);
	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < 2; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &two);
	(void)sched_setaffinity(0, sizeof(two), &two);
}

static void empty_pocl_cache(const char *directory)
{
	char path[2 * PATH_BYTES];

	snprintf(path, sizeof(path), "%s/pocl", directory);
	bench_remove_tree(path);
}

static void run_shell(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

static void run_shell(const char *format, ...)
{
	char command[4 * PATH_BYTES];
	char *arguments[] = { "sh", "-c", command, NULL };
	va_list list;

	va_start(list, format);
	vsnprintf(command, sizeof(command), format, list);
	va_end(list);
	(void)run_ns(arguments);
}

/* The entries of the linker of before, with their sources: a program that fetches
   its binaries leaves no jobs for anything else. */
static void fill_store(const char *directory, const char *n)
{
	char *fill[] = { BENCH_KILN,   "run",	    "--",
			 BENCH_BUILDS, (char *)"0", (char *)(uintptr_t)n,
			 NULL };

	run_shell("mkdir -p %s/bin && cp -L " LINKER " %s/bin/ld", directory,
		  directory);
	setenv("KILN_SPOOL", "0", 1);
	(void)run_ns(fill);
	unsetenv("KILN_SPOOL");
	/* Another file, with another identity, that links as the first. */
	run_shell("cd %s/bin && objcopy --remove-section .note.gnu.build-id "
		  "ld new && mv new ld",
		  directory);
}

static double one_after_another_ns(size_t n)
{
	char number[24];
	char *build[] = { BENCH_BUILDS, number, (char *)"1", NULL };
	double ns = 0;

	for (size_t i = 0; i < n; i++) {
		snprintf(number, sizeof(number), "%zu", i);
		ns += run_ns(build);
		bench_progress("one after another", i + 1, n);
	}
	return ns;
}

static void measure_rebuild(void)
{
	size_t n = bench.quick ? 2 : 200;
	char directory[PATH_BYTES], number[24], rebuilt[64];
	char *rebuild[] = { BENCH_KILN, (char *)"rebuild", (char *)"--json",
			    NULL };
	double together_ns, alone_ns;
	uint64_t begun_ns;
	char *text;

	if (access("/etc/OpenCL/vendors/pocl.icd", F_OK) ||
	    access(LINKER, X_OK)) {
		fprintf(stderr, "rebuild: no PoCL, or no linker\n");
		return;
	}
	snprintf(directory, sizeof(directory), "%s/rebuild", top);
	snprintf(number, sizeof(number), "%zu", n);
	set_place(directory);
	use_two_processors();
	fill_store(directory, number);
	empty_pocl_cache(directory);
	alone_ns = one_after_another_ns(n);
	empty_pocl_cache(directory);
	begun_ns = bench_now_ns();
	text = listen_to(rebuild);
	together_ns = (double)(bench_now_ns() - begun_ns);
	snprintf(rebuilt, sizeof(rebuilt), "\"rebuilt\": %zu,", n);
	if (!strstr(text, rebuilt))
		bench_fail("not all were rebuilt: %s", text);
	free(text);
	bench_row(&bench, "kiln rebuild, 200 kernels", together_ns / 1e9, "s");
	bench_row(&bench, "one after another", alone_ns / 1e9, "s");
	bench_row_bar(&bench, "kiln rebuild : one after another",
		      together_ns / alone_ns, "", 0.6, BENCH_LOWER);
	bench_remove_tree(directory);
}
#else
static void measure_rebuild(void)
{
	fprintf(stderr, "rebuild: built without OpenCL\n");
}
#endif

/* ---- wrap --------------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (!file || fputs(text, file) < 0 || fclose(file))
		bench_fail("%s: %s", path, strerror(errno));
}

/* A compiler's command line, without and with kiln before it. */
static void measure_wrapped(const char *name, char *const *alone, double bar)
{
	char url[PATH_BYTES], warm_row[64], alone_row[64];
	char *warm[24] = { BENCH_KILN, (char *)"wrap", (char *)"--store", url,
			   (char *)"--" };
	char *check[28] = { (char *)"sh", (char *)"-c",
			    (char *)"exec \"$0\" \"$@\" 2>&1" };
	size_t n = 5, i;

	snprintf(url, sizeof(url), "log:%s/wrapped", top);
	for (i = 0; alone[i]; i++)
		warm[n++] = alone[i];
	check[3] = warm[0];
	check[4] = warm[1];
	check[5] = (char *)"-v";
	for (i = 2; i < n; i++)
		check[i + 4] = warm[i];
	expect(check, "compiled and kept", 1);
	expect(check, "from the store", 1);
	snprintf(warm_row, sizeof(warm_row), "kiln wrap -- %s, warm", name);
	snprintf(alone_row, sizeof(alone_row), "%s, cold", name);
	compare(warm_row, warm, alone, alone_row, bar);
	forget_store(url);
}

static void measure_wrap(void)
{
	static const char cuda[] = "/usr/local/cuda/bin/nvcc";
	char kernel[PATH_BYTES], shader[PATH_BYTES], output[PATH_BYTES];
	char source[PATH_BYTES];
	char *ocloc[] = { "ocloc",   "compile", "-q",	    "-file", kernel,
			  "-device", "tgllp",	"-out_dir", top,     NULL };
	char *glslc[] = { "glslc", "-O", shader, "-o", output, NULL };
	char *nvcc[] = { (char *)cuda, "-cubin", "-arch=sm_80", source,
			 "-o",	       output,	 NULL };

	snprintf(kernel, sizeof(kernel), "%s/kernel.cl", top);
	snprintf(shader, sizeof(shader), "%s/shader.comp", top);
	snprintf(output, sizeof(output), "%s/shader.spv", top);
	snprintf(source, sizeof(source), "%s/kernel.cu", top);
	write_text(kernel, "__kernel void scale(__global float *x, float f)\n"
			   "{\n\tx[get_global_id(0)] *= f;\n}\n");
	write_text(shader,
		   "#version 450\n"
		   "layout(local_size_x = 64) in;\n"
		   "layout(std430, binding = 0) buffer B { float x[]; };\n"
		   "void main() { x[gl_GlobalInvocationID.x] *= 2.0; }\n");
	write_text(source, "__global__ void scale(float *x, float f)\n"
			   "{\n\tx[threadIdx.x] *= f;\n}\n");
	if (access("/usr/bin/ocloc", X_OK))
		fprintf(stderr, "wrap: no ocloc\n");
	else
		measure_wrapped("ocloc", ocloc, 0.05);
	if (access("/usr/bin/glslc", X_OK))
		fprintf(stderr, "wrap: no glslc\n");
	else
		measure_wrapped("glslc", glslc, 0);
	if (access(cuda, X_OK))
		fprintf(stderr, "wrap: no nvcc\n");
	else
		measure_wrapped("nvcc", nvcc, 0);
}

int main(int argc, char **argv)
{
	bench_begin(&bench, argc, argv, "cli");
	bench_make_folder(top, (uint64_t)3 << 30);
	bench.directory = top;
	if (bench_wants(&bench, "stats"))
		measure_stats();
	if (bench_wants(&bench, "ls"))
		measure_ls();
	if (bench_wants(&bench, "verify"))
		measure_verify();
	if (bench_wants(&bench, "rebuild"))
		measure_rebuild();
	if (bench_wants(&bench, "wrap"))
		measure_wrap();
	if (bench_wants(&bench, "eviction"))
		eviction_replay_all(&bench, 0);
	bench_remove_tree(top);
	return bench_end(&bench);
}
