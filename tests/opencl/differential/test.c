/* SPDX-License-Identifier: MIT */

/*
 * One set of programs (calls.c asks everything of them), natively, cold, and
 * warm: all must print the same, and all that was built must have been found
 * when warm.  Where something differs the case is run natively once more, over
 * other leavings in memory, and the lines on which the driver differs from
 * itself do not count.
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
#define TIMEOUT_S     1800 /* kiln-worker only has what others leave */
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
	int is_few;	 /* of real programs' sources every third is enough */
	int is_uncached; /* nothing may be found */
	int has_no_il;	 /* hangs when it is given some */
};

static const char OCLGRIND[] = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";
static const char POCL[] = "/etc/OpenCL/vendors/pocl.icd";

/* One thread of Oclgrind's reports in the same order each time. */
static const struct driver DRIVERS[] = {
	{ .name = "stand-in", .file = "/", .is_small = 1 },
	{ .name = "stand-in-async",
	  .file = "/",
	  .variables = { "KILN_TEST_ICD_ASYNC=1", "KILN_TEST_ICD_DEVICES=2" },
	  .is_small = 1 },
	{ .name = "pocl", .vendors = "pocl.icd", .file = POCL },
	{ .name = "pocl-two",
	  .vendors = "pocl.icd",
	  .file = POCL,
	  .variables = { "POCL_DEVICES=pthread basic" },
	  .is_long = 1,
	  .is_few = 1 },
	{ .name = "rusticl",
	  .vendors = "rusticl.icd",
	  .file = "/etc/OpenCL/vendors/rusticl.icd",
	  .variables = { "RUSTICL_ENABLE=llvmpipe" } },
	{ .name = "oclgrind",
	  .vendors = OCLGRIND,
	  .file = OCLGRIND,
	  .variables = { "OCLGRIND_MAX_ERRORS=0", "OCLGRIND_NUM_THREADS=1" },
	  .has_no_il = 1 },
	{ .name = "oclgrind-reports",
	  .vendors = OCLGRIND,
	  .file = OCLGRIND,
	  .variables = { "OCLGRIND_NUM_THREADS=1" },
	  .is_long = 1,
	  .is_few = 1,
	  .is_uncached = 1,
	  .has_no_il = 1 },
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
	const char *headers[2];	  /* or "" for a link without */
	const char *constants[3]; /* of IL: "ID VALUE" */
	int is_il;
	int is_small, is_long, is_launched, is_notified;
} ROWS[] = {
	{ "numbers", { "numbers.cl" }, "", .is_small = 1 },
	{ "numbers, launched",
	  { "numbers.cl" },
	  "-cl-kernel-arg-info -DK=9",
	  .is_small = 1,
	  .is_launched = 1 },
	{ "numbers, notified",
	  { "numbers.cl" },
	  "-cl-kernel-arg-info -D K=5",
	  .is_small = 1,
	  .is_launched = 1,
	  .is_notified = 1 },
	{ "included",
	  { "included.cl" },
	  "-I @",
	  .is_small = 1,
	  .is_launched = 1 },
	{ "included, twice",
	  { "included.cl" },
	  "-I@ -DTWICE -cl-kernel-arg-info",
	  .is_small = 1,
	  .is_launched = 1,
	  .is_notified = 1 },
	{ "options with blanks around",
	  { "numbers.cl" },
	  "  -DK=4  -cl-kernel-arg-info ",
	  .is_small = 1 },
	{ "parts with blanks around",
	  { "part_one.cl", "part_two.cl" },
	  "  -w ",
	  { "shared.h" },
	  .is_small = 1 },
	{ "broken", { "broken.cl" }, "", .is_small = 1 },
	{ "broken, notified",
	  { "broken.cl" },
	  "-w",
	  .is_small = 1,
	  .is_notified = 1 },
	{ "an option that nobody knows",
	  { "numbers.cl" },
	  "--no-such-option",
	  .is_small = 1 },
	{ "two parts",
	  { "part_one.cl", "part_two.cl" },
	  "-cl-kernel-arg-info",
	  { "shared.h" },
	  .is_small = 1,
	  .is_launched = 1 },
	{ "two parts, notified",
	  { "part_one.cl", "part_two.cl" },
	  "-cl-kernel-arg-info -DK=2",
	  { "shared.h" },
	  .is_small = 1,
	  .is_launched = 1,
	  .is_notified = 1 },
	{ "one part", { "part_one.cl" }, "-I @", { "" }, .is_small = 1 },
	{ "intermediate language",
	  { "special.cl" },
	  "-cl-kernel-arg-info",
	  .is_il = 1,
	  .is_small = 1,
	  .is_launched = 1 },
	{ "intermediate language, specialised and notified",
	  { "special.cl" },
	  "-cl-kernel-arg-info -cl-mad-enable",
	  .constants = { "0 11", "1 -4" },
	  .is_il = 1,
	  .is_small = 1,
	  .is_launched = 1,
	  .is_notified = 1 },
	{ "types", { "types.cl" }, "", .is_launched = 1 },
	{ "types, notified",
	  { "types.cl" },
	  "-cl-kernel-arg-info -cl-fast-relaxed-math",
	  .is_launched = 1,
	  .is_notified = 1 },
	{ "types, linked",
	  { "types.cl" },
	  "-cl-kernel-arg-info",
	  { "" },
	  .is_launched = 1 },
	{ "images", { "images.cl" }, "-cl-kernel-arg-info", .is_launched = 1 },
	{ "hashcat, MD5 of masks",
	  { "/usr/share/hashcat/OpenCL/m00000_a3-optimized.cl" },
	  HASHCAT,
	  .is_long = 1 },
	{ "hashcat, SHA1 of words",
	  { "/usr/share/hashcat/OpenCL/m00100_a0-pure.cl" },
	  HASHCAT,
	  .is_long = 1,
	  .is_notified = 1 },
	{ "hashcat, markov",
	  { "/usr/share/hashcat/OpenCL/markov_le.cl" },
	  HASHCAT " -cl-kernel-arg-info",
	  .is_long = 1,
	  .is_launched = 1 },
	{ "hashcat, rules",
	  { "/usr/share/hashcat/OpenCL/amp_a3.cl" },
	  HASHCAT " -cl-kernel-arg-info",
	  .is_long = 1,
	  .is_launched = 1 },
};

/* ---- A place -------------------------------------------------------------- */

static const struct driver *driver;
static struct {
	char *directory, *list, *store, *caches;
	char *variables[VARIABLES_MAX];
	size_t n;
	char *worker;
	/* The wanted ones of the table, and the corpus. */
	struct row rows[ROWS_MAX];
	struct answers {
		char *native, *cold, *warm;
		uint64_t n_hits; /* when warm */
	} answers[ROWS_MAX];
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
	if (driver->has_no_il && row->is_il)
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
 * A recorded source, with the options that it was built with and one more:
 * drivers such as PoCL tell of arguments only then, and what is not told cannot
 * be launched.  The first of each folder without that too.
 */
static void add_recorded(const char *folder, const char *name, int is_first)
{
	size_t size = strlen(name);
	char *path, *options_path, *options;

	if (asprintf(&path, "%s/%s", folder, name) < 0 ||
	    asprintf(&options_path, "%s/%.*s.options", folder, (int)size - 3,
		     name) < 0)
		abort();
	options = harness_read(options_path, NULL);
	if (is_first)
		add_row(folder, name, "", path, options ? options : "");
	add_row(folder, name, " -cl-kernel-arg-info", path,
		options ? options : "");
	free(options);
	free(options_path);
}

static int is_source(const struct dirent *entry)
{
	size_t size = strlen(entry->d_name);

	return size > 3 && !strcmp(entry->d_name + size - 3, ".cl");
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
		n_names = scandir(path, &names, is_source, alphasort);
		for (j = 0; j < n_names; j += driver->is_few ? 3 : 1)
			add_recorded(path, names[j]->d_name, !j);
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

static void write_row(const struct row *row)
{
	FILE *out = fopen(all.list, "w");
	size_t i;

	if (!out)
		abort();
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
	if (row->is_il)
		fputs("il\n", out);
	for (i = 0; i < LENGTH(row->constants) && row->constants[i]; i++)
		fprintf(out, "constant %s\n", row->constants[i]);
	if (row->is_launched)
		fputs("launch\n", out);
	if (row->is_notified)
		fputs("notify\n", out);
	fputs("end\n", out);
	if (fclose(out))
		abort();
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

static char *run(const struct row *row, int has_layer)
{
	write_row(row);
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

/* Neither the driver's own caches nor Mesa's may help. */
static void begin(const char *what)
{
	say(what);
	harness_remove(all.caches);
	(void)mkdir(all.caches, 0700);
}

static void run_warm(void)
{
	uint64_t before = n_hits(), after;
	size_t i;

	for (i = 0; i < all.n_rows; i++) {
		all.answers[i].warm = run(&all.rows[i], 1);
		after = n_hits();
		all.answers[i].n_hits = after - before;
		before = after;
	}
}

static int set_up(void **state)
{
	size_t i;

	(void)state;
	all.directory = harness_directory();
	all.list = harness_path(all.directory, "list");
	all.store = harness_path(all.directory, "store");
	all.caches = harness_path(all.directory, "caches");
	set_up_variables();
	begin("natively");
	for (i = 0; i < all.n_rows; i++)
		all.answers[i].native = run(&all.rows[i], 0);
	begin("cold");
	for (i = 0; i < all.n_rows; i++)
		all.answers[i].cold = run(&all.rows[i], 1);
	say("kiln-worker");
	set("OPENCL_LAYERS", "");
	all.worker = spawn(getenv("KILN_TEST_KILN"), "wait");
	begin("warm");
	run_warm();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	harness_remove(all.directory);
	return 0;
}

/* ---- Comparing ------------------------------------------------------------ */

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

/*
 * Natively, once more.  Oclgrind tells the binary type of what was never built
 * from memory that it has not written to: that must not look like an answer.
 */
static char *run_again(const struct row *row)
{
	char *text;

	begin(row->name);
	set("MALLOC_PERTURB_", "85");
	text = run(row, 0);
	set("MALLOC_PERTURB_", "0");
	return text;
}

/* Lines that differ from native ones on which the driver is of one mind. */
static unsigned differences(const char *when, const char *native,
			    const char *again, const char *text)
{
	char *one = strdup(native), *two = strdup(again), *three = strdup(text);
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

static unsigned count(const char *text, const char *line)
{
	unsigned n = 0;

	for (; (text = strstr(text, line)); text++)
		n++;
	return n;
}

/* Builds, compilations and links that came to kernels (one with a callback may
   fail after it has returned). */
static unsigned n_made(const struct answers *answers)
{
	const char *text = answers->native;

	return strstr(text, "\ncount: 0\n")
		       ? count(text, "\nbuild: 0\n") +
				 count(text, "\ncompile: 0\n") +
				 count(text, "\nlink: 0\n")
		       : 0;
}

/* What was not found compares nothing. */
static int is_found(const struct answers *answers)
{
	return driver->is_uncached ? !answers->n_hits
				   : answers->n_hits >= n_made(answers);
}

/* S56 */
static void no_answer_tells_whether_there_is_a_cache(void **state)
{
	const struct row *row = *state;
	const struct answers *answers = &all.answers[row - all.rows];
	unsigned n = 0;
	char *again;

	if (!is_found(answers))
		print_error("%u were made, and %llu found; worker: %s\n",
			    n_made(answers),
			    (unsigned long long)answers->n_hits, all.worker);
	if (strcmp(answers->native, answers->cold) ||
	    strcmp(answers->native, answers->warm)) {
		again = run_again(row);
		n = differences("cold", answers->native, again, answers->cold);
		n += differences("warm", answers->native, again, answers->warm);
		free(again);
	}
	assert_int_equal(n, 0);
	assert_true(is_found(answers));
}

static void something_was_made(void **state)
{
	unsigned made = 0, launches = 0, lines = 0;
	uint64_t hits = 0;
	size_t i;

	(void)state;
	for (i = 0; i < all.n_rows; i++) {
		made += n_made(&all.answers[i]);
		hits += all.answers[i].n_hits;
		launches += count(all.answers[i].native, "\n  launch: 0\n");
		lines += count(all.answers[i].native, "\n");
	}
	print_message("# %u cases, %u made, %llu hits, %u launches, %u lines\n",
		      (unsigned)all.n_rows, made, (unsigned long long)hits,
		      launches, lines);
	assert_true(made > 0);
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
		.name = "something_was_made",
		.test_func = something_was_made,
	};
	return _cmocka_run_group_tests("differential", tests, n, set_up,
				       tear_down);
}
