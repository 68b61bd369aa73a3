/* SPDX-License-Identifier: MIT */

/*
 * One set of programs (calls.c asks everything of them), natively, cold, and
 * warm: all must print the same.  A driver that does not print the same twice
 * natively is run once more, and the lines on which it differs from itself do
 * not count.
 *
 *	test DRIVER
 *
 * with a name of the table below.  KILN_TEST_LONG: all cases, not only those
 * that are quick.
 */

#include "harness/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>

#define VARIABLES_MAX 32
#define TIMEOUT_S     1800
#define ROWS_MAX      512
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- What is compared ----------------------------------------------------- */

struct driver {
	const char *name;
	const char *vendors; /* NULL: the stand-in */
	const char *file;    /* must be there */
	const char *variables[4];
	int is_small; /* knows the stand-in's language only */
	int is_long;
};

static const struct driver DRIVERS[] = {
	{ "stand-in", NULL, "/", { NULL }, 1 },
	{ "stand-in-async",
	  NULL,
	  "/",
	  { "KILN_TEST_ICD_ASYNC=1", "KILN_TEST_ICD_DEVICES=2", NULL },
	  1 },
	{ "pocl", "pocl.icd", "/etc/OpenCL/vendors/pocl.icd", { NULL }, 0 },
	{ "pocl-two",
	  "pocl.icd",
	  "/etc/OpenCL/vendors/pocl.icd",
	  { "POCL_DEVICES=pthread basic", NULL },
	  0,
	  1 },
	{ "rusticl",
	  "rusticl.icd",
	  "/etc/OpenCL/vendors/rusticl.icd",
	  { "RUSTICL_ENABLE=llvmpipe", NULL },
	  0 },
	{ "oclgrind",
	  "/usr/lib/oclgrind/liboclgrind-rt-icd.so",
	  "/usr/lib/oclgrind/liboclgrind-rt-icd.so",
	  { NULL },
	  0 },
};

#define HASHCAT                                                                \
	"-D KERNEL_STATIC -D INCLUDE_PATH=/usr/share/hashcat/OpenCL "          \
	"-D XM2S(x)=#x -D M2S(x)=XM2S(x) -D VENDOR_ID=64 -D CUDA_ARCH=0 "      \
	"-D HAS_ADD=0 -D VECT_SIZE=4 -D DEVICE_TYPE=2 -D DGST_R0=0 "           \
	"-D DGST_R1=3 -D DGST_R2=2 -D DGST_R3=1 -D DGST_ELEM=4 "               \
	"-D KERN_TYPE=0 -D ATTACK_EXEC=11 -D ATTACK_KERN=3 -cl-std=CL1.2 -w"

/* Files are beside this one, if their names begin with no '/'. */
static const struct row {
	const char *name;
	const char *files[3];
	const char *options;
	const char *headers[2]; /* or "" for a link without */
	int is_small, is_long, is_launched, is_notified;
} ROWS[] = {
	{ "numbers", { "numbers.cl" }, "", { 0 }, 1, 0, 0, 0 },
	{ "numbers, launched",
	  { "numbers.cl" },
	  "-cl-kernel-arg-info -DK=9",
	  { 0 },
	  1,
	  0,
	  1,
	  0 },
	{ "numbers, notified",
	  { "numbers.cl" },
	  "-cl-kernel-arg-info -D K=5",
	  { 0 },
	  1,
	  0,
	  1,
	  1 },
	{ "included", { "included.cl" }, "-I @", { 0 }, 1, 0, 1, 0 },
	{ "included, twice",
	  { "included.cl" },
	  "-I@ -DTWICE -cl-kernel-arg-info",
	  { 0 },
	  1,
	  0,
	  1,
	  1 },
	{ "options with blanks around",
	  { "numbers.cl" },
	  "  -DK=4  -cl-kernel-arg-info ",
	  { 0 },
	  1,
	  0,
	  0,
	  0 },
	{ "parts with blanks around",
	  { "part_one.cl", "part_two.cl" },
	  "  -w ",
	  { "shared.h" },
	  1,
	  0,
	  0,
	  0 },
	{ "broken", { "broken.cl" }, "", { 0 }, 1, 0, 0, 0 },
	{ "broken, notified", { "broken.cl" }, "-w", { 0 }, 1, 0, 0, 1 },
	{ "an option that nobody knows",
	  { "numbers.cl" },
	  "--no-such-option",
	  { 0 },
	  1,
	  0,
	  0,
	  0 },
	{ "two parts",
	  { "part_one.cl", "part_two.cl" },
	  "-cl-kernel-arg-info",
	  { "shared.h" },
	  1,
	  0,
	  1,
	  0 },
	{ "one part", { "part_one.cl" }, "-I @", { "" }, 1, 0, 0, 0 },
	{ "types", { "types.cl" }, "", { 0 }, 0, 0, 1, 0 },
	{ "types, notified",
	  { "types.cl" },
	  "-cl-kernel-arg-info -cl-fast-relaxed-math",
	  { 0 },
	  0,
	  0,
	  1,
	  1 },
	{ "types, linked",
	  { "types.cl" },
	  "-cl-kernel-arg-info",
	  { "" },
	  0,
	  0,
	  1,
	  0 },
	{ "hashcat, MD5 of masks",
	  { "/usr/share/hashcat/OpenCL/m00000_a3-optimized.cl" },
	  HASHCAT,
	  { 0 },
	  0,
	  1,
	  0,
	  0 },
	{ "hashcat, SHA1 of words",
	  { "/usr/share/hashcat/OpenCL/m00100_a0-pure.cl" },
	  HASHCAT,
	  { 0 },
	  0,
	  1,
	  0,
	  1 },
	{ "hashcat, markov",
	  { "/usr/share/hashcat/OpenCL/markov_le.cl" },
	  HASHCAT,
	  { 0 },
	  0,
	  1,
	  0,
	  0 },
};

/* ---- A place -------------------------------------------------------------- */

static const struct driver *driver;
static struct {
	char *directory, *list, *store, *caches;
	char *variables[VARIABLES_MAX];
	size_t n;
	char *native, *again, *cold, *worker, *warm;
	uint64_t n_hits;
	/* The wanted ones of the table, and the corpus. */
	struct row rows[ROWS_MAX];
	size_t n_rows;
} all;

static void set(const char *name, const char *value)
{
	size_t i, size = strlen(name);
	char *variable;

	if (asprintf(&variable, "%s=%s", name, value) < 0)
		abort();
	for (i = 0; i < all.n; i++)
		if (!strncmp(all.variables[i], variable, size + 1)) {
			free(all.variables[i]);
			all.variables[i] = variable;
			return;
		}
	all.variables[all.n++] = variable;
}

static void set_up_variables(void)
{
	size_t i;

	set("OCL_ICD_VENDORS",
	    driver->vendors ? driver->vendors : getenv("KILN_TEST_ICD"));
	set("KILN_DIR", all.store);
	set("HOME", all.directory);
	set("XDG_CACHE_HOME", all.caches);
	set("POCL_CACHE_DIR", all.caches);
	set("MESA_SHADER_CACHE_DIR", all.caches);
	set("PATH", "/usr/bin:/bin");
	set("ASAN_OPTIONS", "detect_leaks=0");
	if (getenv("LD_PRELOAD"))
		set("LD_PRELOAD", getenv("LD_PRELOAD"));
	for (i = 0; i < LENGTH(driver->variables) && driver->variables[i]; i++)
		all.variables[all.n++] = strdup(driver->variables[i]);
}

/* ---- The list ------------------------------------------------------------- */

/* "@" becomes the folder of the sources. */
static void write_options(FILE *out, const char *options)
{
	for (; *options; options++)
		if (*options == '@')
			fputs(getenv("KILN_TEST_SOURCES"), out);
		else
			putc(*options, out);
}

static void write_path(FILE *out, const char *file)
{
	if (*file != '/')
		fprintf(out, "%s/", getenv("KILN_TEST_SOURCES"));
	fprintf(out, "%s\n", file);
}

static int is_wanted(const struct row *row)
{
	if (driver->is_small && !row->is_small)
		return 0;
	if (row->is_long && !getenv("KILN_TEST_LONG"))
		return 0;
	return *row->files[0] != '/' || !access(row->files[0], R_OK);
}

static void add_row(const char *folder, const char *name, const char *more,
		    const char *path, const char *options)
{
	struct row row = { .files = { path }, .is_launched = 1 };
	char *title, *all_options;

	if (all.n_rows == ROWS_MAX ||
	    asprintf(&title, "%s %s%s", strrchr(folder, '/') + 1, name,
		     *more ? ", told" : "") < 0 ||
	    asprintf(&all_options, "%s%s", options, more) < 0)
		abort();
	row.name = title;
	row.options = all_options;
	all.rows[all.n_rows++] = row;
}

/*
 * A recorded source, with the options that it was built with, and with one
 * more: drivers such as PoCL tell of arguments only then, and what is not told
 * cannot be launched.
 */
static void add_recorded(const char *folder, const char *name)
{
	size_t size = strlen(name);
	char *path, *options_path, *options;

	if (size < 4 || strcmp(name + size - 3, ".cl"))
		return;
	if (asprintf(&path, "%s/%s", folder, name) < 0 ||
	    asprintf(&options_path, "%s/%.*s.options", folder, (int)size - 3,
		     name) < 0)
		abort();
	options = harness_read(options_path, NULL);
	add_row(folder, name, "", path, options ? options : "");
	add_row(folder, name, " -cl-kernel-arg-info", path,
		options ? options : "");
	free(options);
	free(options_path);
}

/* The folders that tools/corpus has made. */
static void add_corpus(const char *directory)
{
	struct dirent **folders, **names;
	int n_folders = scandir(directory, &folders, NULL, alphasort);
	int n_names, i, j;
	char *path;

	for (i = 0; i < n_folders; i++) {
		if (*folders[i]->d_name == '.')
			continue;
		path = harness_path(directory, folders[i]->d_name);
		n_names = scandir(path, &names, NULL, alphasort);
		for (j = 0; j < n_names; j++)
			add_recorded(path, names[j]->d_name);
	}
}

static void gather(void)
{
	size_t i;

	for (i = 0; i < LENGTH(ROWS); i++)
		if (is_wanted(&ROWS[i]))
			all.rows[all.n_rows++] = ROWS[i];
	if (!driver->is_small && getenv("KILN_TEST_LONG") &&
	    getenv("KILN_TEST_CORPUS"))
		add_corpus(getenv("KILN_TEST_CORPUS"));
}

static void write_row(FILE *out, const struct row *row)
{
	size_t i;

	fprintf(out, "case %s\n", row->name);
	for (i = 0; i < LENGTH(row->files) && row->files[i]; i++) {
		fputs("source ", out);
		write_path(out, row->files[i]);
	}
	fputs("options ", out);
	write_options(out, row->options);
	putc('\n', out);
	for (i = 0; i < LENGTH(row->headers) && row->headers[i]; i++)
		if (*row->headers[i]) {
			fprintf(out, "header %s ", row->headers[i]);
			write_path(out, row->headers[i]);
		} else {
			fputs("link\n", out);
		}
	if (row->is_launched)
		fputs("launch\n", out);
	if (row->is_notified)
		fputs("notify\n", out);
	fputs("end\n", out);
}

/* ---- Running -------------------------------------------------------------- */

static char *spawn(const char *program, const char *argument)
{
	const char *argv[] = { program, argument, NULL };
	char *path = harness_path(all.directory, "out"), *text;
	int status, fd;
	pid_t pid;

	all.variables[all.n] = NULL;
	pid = fork();
	if (!pid) {
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (fd < 0 || dup2(fd, 1) < 0 ||
		    (!getenv("KILN_TEST_VERBOSE") && dup2(fd, 2) < 0))
			_exit(120);
		alarm(TIMEOUT_S);
		execve(program, (char *const *)(uintptr_t)argv, all.variables);
		_exit(121);
	}
	while (pid < 0 || waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			abort();
	text = harness_read(path, NULL);
	free(path);
	return text ? text : strdup("");
}

/* Neither the driver's own caches nor Mesa's may help. */
static char *run(int has_layer)
{
	harness_remove(all.caches);
	(void)mkdir(all.caches, 0700);
	set("OPENCL_LAYERS", has_layer ? getenv("KILN_TEST_LAYER") : "");
	return spawn(getenv("KILN_TEST_CALLS_PROGRAM"), all.list);
}

static uint64_t n_hits(void)
{
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	struct kiln_options options;
	struct kiln *kiln;
	uint64_t n = 0;
	char *url;

	if (!counters || asprintf(&url, "log:%s", all.store) < 0)
		abort();
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = KILN_OPEN_READONLY;
	if (!kiln_open(&options, &kiln)) {
		if (!kiln_store_counters(kiln, counters))
			n = counters->total[KILN_COUNT_HITS_STORE];
		kiln_close(kiln);
	}
	free(counters);
	free(url);
	return n;
}

/* The long form takes minutes. */
static void say(const char *what)
{
	if (getenv("KILN_TEST_LONG"))
		fprintf(stderr, "differential on %s, %u cases: %s\n",
			driver->name, (unsigned)all.n_rows, what);
}

static int set_up(void **state)
{
	FILE *out;
	size_t i;

	(void)state;
	all.directory = harness_directory();
	all.list = harness_path(all.directory, "list");
	all.store = harness_path(all.directory, "store");
	all.caches = harness_path(all.directory, "caches");
	set_up_variables();
	out = fopen(all.list, "w");
	if (!out)
		return -1;
	for (i = 0; i < all.n_rows; i++)
		write_row(out, &all.rows[i]);
	if (fclose(out))
		return -1;
	say("natively");
	all.native = run(0);
	say("cold");
	all.cold = run(1);
	say("kiln-worker");
	set("OPENCL_LAYERS", "");
	all.worker = spawn(getenv("KILN_TEST_KILN"), "wait");
	all.n_hits = n_hits();
	say("warm");
	all.warm = run(1);
	all.n_hits = n_hits() - all.n_hits;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	harness_remove(all.directory);
	return 0;
}

/* ---- Comparing ------------------------------------------------------------ */

/* What one case printed, from malloc(). */
static char *part_of(const char *text, const char *name)
{
	char *heading;
	const char *from, *to;

	if (asprintf(&heading, "case %s\n", name) < 0)
		abort();
	from = strstr(text, heading);
	if (from) {
		to = strstr(from + 1, "\ncase ");
		from = strndup(from, to ? (size_t)(to - from) : strlen(from));
	}
	free(heading);
	return from ? (char *)(uintptr_t)from : strdup("");
}

static char *line_of(char **at)
{
	return *at ? strsep(at, "\n") : NULL;
}

static int is_same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/*
 * A kernel that crashes does so in a thread of the driver's, before or after
 * its launch has returned: what is printed last is a matter of chance.
 */
static int is_crash(const char *a, const char *b)
{
	return a && b && !strcmp(a, "ends 139") &&
	       !strncmp(b, "  launch: ", strlen("  launch: "));
}

/* Lines that differ natively and are no different without us. */
static unsigned differences(const char *name, const char *when,
			    const char *native, const char *again,
			    const char *text)
{
	char *one = part_of(native, name), *two = part_of(again, name);
	char *three = part_of(text, name);
	char *at_one = one, *at_two = two, *at_three = three;
	char *a, *b, *c;
	const char *before = "";
	unsigned n = 0;

	for (;;) {
		a = line_of(&at_one);
		b = line_of(&at_two);
		c = line_of(&at_three);
		if ((!a && !c) || is_crash(a, c) || is_crash(c, a))
			break;
		if (is_same(a, b) && !is_same(a, c) && n++ < 5)
			print_error("%s, after: %s\n  natively: %s\n"
				    "  but:      %s\n",
				    when, before, a ? a : "(end)",
				    c ? c : "(end)");
		if (a && *a != ' ')
			before = a;
	}
	free(three);
	free(two);
	free(one);
	return n;
}

static int is_same_part(const char *name, const char *text)
{
	char *one = part_of(all.native, name), *two = part_of(text, name);
	int same = !strcmp(one, two);

	free(two);
	free(one);
	return same;
}

/* S56 */
static void no_answer_tells_whether_there_is_a_cache(void **state)
{
	const struct row *row = *state;
	unsigned n;

	if (is_same_part(row->name, all.cold) &&
	    is_same_part(row->name, all.warm))
		return;
	if (!all.again)
		all.again = run(0);
	n = differences(row->name, "cold", all.native, all.again, all.cold);
	n += differences(row->name, "warm", all.native, all.again, all.warm);
	assert_int_equal(n, 0);
}

static unsigned count(const char *text, const char *line)
{
	unsigned n = 0;

	for (; (text = strstr(text, line)); text++)
		n++;
	return n;
}

/* Builds, compilations and links that came to kernels (one with a callback may
   fail after it has returned). */
static unsigned n_made(void)
{
	unsigned n = 0;
	size_t i;

	for (i = 0; i < all.n_rows; i++) {
		char *part = part_of(all.native, all.rows[i].name);

		if (strstr(part, "\ncount: 0\n"))
			n += count(part, "\nbuild: 0\n") +
			     count(part, "\ncompile: 0\n") +
			     count(part, "\nlink: 0\n");
		free(part);
	}
	return n;
}

/* What was not found compares nothing. */
static void what_was_warm_was_found(void **state)
{
	unsigned n = n_made();

	(void)state;
	print_message(
		"# %u cases, %u made, %llu hits, %u launches, %zu lines\n",
		(unsigned)all.n_rows, n, (unsigned long long)all.n_hits,
		count(all.native, "\n  launch: 0\n"),
		(size_t)count(all.native, "\n"));
	if (all.n_hits < n)
		print_error("worker: %s\n", all.worker);
	assert_true(n > 0);
	assert_true(all.n_hits >= n);
}

/* ---- The tests ------------------------------------------------------------ */

int main(int argc, char **argv)
{
	static struct CMUnitTest tests[ROWS_MAX + 1];
	size_t i, n = 0;

	for (i = 0; i < LENGTH(DRIVERS); i++)
		if (argc == 2 && !strcmp(argv[1], DRIVERS[i].name))
			driver = &DRIVERS[i];
	if (!driver) {
		fprintf(stderr, "usage: test DRIVER\n");
		return 1;
	}
	if (access(driver->file, R_OK)) {
		printf("1..0 # SKIP no %s\n", driver->name);
		return 0;
	}
	if (driver->is_long && !getenv("KILN_TEST_LONG")) {
		printf("1..0 # SKIP only in ./dev test differential\n");
		return 0;
	}
	gather();
	for (i = 0; i < all.n_rows; i++)
		tests[n++] = (struct CMUnitTest){
			.name = all.rows[i].name,
			.test_func = no_answer_tells_whether_there_is_a_cache,
			.initial_state = &all.rows[i],
		};
	tests[n++] = (struct CMUnitTest){
		.name = "what_was_warm_was_found",
		.test_func = what_was_warm_was_found,
	};
	return _cmocka_run_group_tests("differential", tests, n, set_up,
				       tear_down);
}
