/* SPDX-License-Identifier: MIT */

/*
 * Random calls (calls.c), natively, cold, after the worker, and warm: all must
 * print the same.  Everything about a run comes from its seed: the number of
 * threads, the driver's switches, the calls.
 *
 *	test				some seeds on the stand-in, as a test
 *	test pocl|oclgrind|rusticl ...	on another driver: `test pocl seed 3`
 *	test campaign SECONDS [SEED]	seeds that nobody has tried yet, or from
 *					this one on
 *	test seed SEED [STEPS [THREADS [ONLY [STEP,STEP,...]]]]
 *
 * The last two say what differs, and how to see it in as few steps as will
 * do; the last one shows them.
 */

#include "harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kiln/inspect.h>

#define VARIABLES_MAX 40
#define TIMEOUT_S     120
#define MANY	      60 /* builds, of which some must be hits */

struct run {
	uint64_t seed;
	unsigned n_steps, n_threads;
	int only;    /* one of the threads, or -1 */
	char *steps; /* "1,5,12": of this thread, or NULL */
	const char *vendors;
	int is_real;
};

/* Where one seed keeps its things, and the environment of its programs. */
struct place {
	char *directory;
	char *work; /* their working directory, with their headers */
	char *store;
	char *calls;
	char *pocl;
	char *variables[VARIABLES_MAX];
	size_t n_variables;
	char switches[400];
	int may_hit;	 /* the driver takes binaries, the worker jobs */
	char said[1000]; /* what is wrong */
};

__attribute__((format(printf, 3, 4))) static void set(struct place *place,
						      const char *name,
						      const char *format, ...)
{
	char value[4096], *variable;
	size_t i, size = strlen(name);
	va_list args;

	va_start(args, format);
	vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	if (asprintf(&variable, "%s=%s", name, value) < 0)
		abort();
	for (i = 0; i < place->n_variables; i++)
		if (!strncmp(place->variables[i], variable, size + 1)) {
			free(place->variables[i]);
			place->variables[i] = variable;
			return;
		}
	place->variables[place->n_variables++] = variable;
	place->variables[place->n_variables] = NULL;
}

static void pass_on(struct place *place, const char *name)
{
	if (getenv(name))
		set(place, name, "%s", getenv(name));
}

/* ---- What a seed decides -------------------------------------------------- */

/* The stand-in's switches: each with its chance of one in so many. */
static void set_switches(struct place *place, uint64_t seed)
{
	static const struct {
		const char *name, *value;
		unsigned one_in;
		int is_in_the_way; /* of hits */
	} rows[] = {
		{ "ASYNC", "1", 2 },
		{ "DEVICES", "2", 3 },
		{ "DEVICES", "3", 3 },
		{ "DEVICES", "4", 8 },
		{ "NAMES", "first,second", 3 },
		{ "WARN", "1", 6 },
		{ "POOR_BINARIES", "0", 4 },
		{ "SPECIALISE", "1", 4 },
		{ "KEEP_FIRST_FETCH", "1", 4 },
		{ "IL", "0", 8 },
		{ "REFUSE_BINARIES", "1", 20, 1 },
		{ "FAIL_BINARY_BUILDS", "1", 20, 1 },
		{ "FETCH_MS", "1", 20 },
		{ "TYPE", "gpu", 10, 1 },
	};
	uint64_t dice = seed * 77 + 5;
	size_t i, at;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char name[64];

		snprintf(name, sizeof(name), "KILN_TEST_ICD_%s", rows[i].name);
		if (harness_random(&dice) % rows[i].one_in ||
		    strstr(place->switches, rows[i].name))
			continue;
		set(place, name, "%s", rows[i].value);
		at = strlen(place->switches);
		snprintf(place->switches + at, sizeof(place->switches) - at,
			 " %s=%s", rows[i].name, rows[i].value);
		if (rows[i].is_in_the_way)
			place->may_hit = 0;
	}
}

/* One whose objects' binaries are as good as the objects, as others' are. */
static void use_twin(struct place *place, uint64_t seed)
{
	uint64_t dice = seed * 55 + 3;
	size_t at = strlen(place->switches);

	if (harness_random(&dice) % 3)
		return;
	set(place, "OCL_ICD_VENDORS", "%s", getenv("KILN_TEST_ICD_TWIN"));
	set(place, "KILN_TEST_ICD_POOR_BINARIES", "0");
	snprintf(place->switches + at, sizeof(place->switches) - at, " twin");
}

static struct run run_of(uint64_t seed, const char *vendors)
{
	uint64_t dice = seed * 99 + 1;
	int is_real = strcmp(vendors, getenv("KILN_TEST_ICD")) != 0;
	struct run run = {
		.seed = seed,
		.n_steps = 100 + (unsigned)(harness_random(&dice) % 300),
		.n_threads = 1 + (unsigned)(harness_random(&dice) % 4),
		.only = -1,
		.vendors = vendors,
		.is_real = is_real,
	};

	if (is_real) {
		run.n_steps /= 8;
		/* Others' compilers are not safe for threads. */
		run.n_threads =
			strstr(vendors, "pocl") ? 1 + run.n_threads % 2 : 1;
	}
	return run;
}

static void place_init(struct place *place, const struct run *run)
{
	static char *all; /* one for the life of the test */

	if (!all)
		all = harness_directory();
	memset(place, 0, sizeof(*place));
	place->directory = harness_path(all, "seed");
	(void)mkdir(place->directory, 0700);
	place->work = harness_path(place->directory, "work");
	place->store = harness_path(place->directory, "store");
	place->calls = harness_path(place->directory, "calls");
	place->pocl = harness_path(place->directory, "pocl");
	(void)mkdir(place->work, 0700);
	place->may_hit = 1;
	set(place, "OCL_ICD_VENDORS", "%s", run->vendors);
	set(place, "KILN_DIR", "%s", place->store);
	set(place, "KILN_LOG", "%s/log", place->directory);
	set(place, "HOME", "%s", place->directory);
	set(place, "XDG_CONFIG_HOME", "%s", place->directory);
	set(place, "XDG_CACHE_HOME", "%s", place->directory);
	set(place, "PATH", "/usr/bin:/bin");
	set(place, "ASAN_OPTIONS", "detect_leaks=0");
	pass_on(place, "LD_PRELOAD");
	set(place, "TSAN_OPTIONS", "suppressions=%s",
	    getenv("KILN_TEST_TSAN_SUPPRESSIONS"));
	pass_on(place, "UBSAN_OPTIONS");
	if (run->is_real) {
		set(place, "POCL_CACHE_DIR", "%s", place->pocl);
		set(place, "RUSTICL_ENABLE", "llvmpipe");
		set(place, "OCLGRIND_MAX_ERRORS", "0");
		if (run->seed % 2)
			set(place, "POCL_DEVICES", "pthread basic");
	} else {
		set(place, "KILN_TEST_ICD_CALLS", "%s", place->calls);
		set_switches(place, run->seed);
		use_twin(place, run->seed);
	}
}

static void place_fini(struct place *place)
{
	harness_remove(place->directory);
	while (place->n_variables)
		free(place->variables[--place->n_variables]);
	free(place->pocl);
	free(place->calls);
	free(place->store);
	free(place->work);
	free(place->directory);
}

/* ---- Running -------------------------------------------------------------- */

/* A file in the place of a descriptor, in the child. */
static int redirect(const char *path, int fd)
{
	int from = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	return from < 0 || dup2(from, fd) < 0 ? -1 : 0;
}

/* What it printed, with "exit N" at the end; what it complained of, in an order
   that depends on luck, only if it ended badly. */
static char *spawn(struct place *place, const char *const *argv)
{
	char *out = harness_path(place->directory, "out");
	char *err = harness_path(place->directory, "err");
	char *said, *complained, *all;
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (redirect(out, 1) || redirect(err, 2) || chdir(place->work))
			_exit(120);
		alarm(TIMEOUT_S);
		execve(argv[0], (char *const *)(uintptr_t)argv,
		       place->variables);
		_exit(121);
	}
	while (pid < 0 || waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			abort();
	said = harness_read(out, NULL);
	complained = harness_read(err, NULL);
	if (asprintf(&all, "%s%sexit %d\n", said ? said : "",
		     status && complained ? complained : "",
		     WIFEXITED(status) ? WEXITSTATUS(status)
				       : 128 + WTERMSIG(status)) < 0)
		abort();
	free(complained);
	free(said);
	free(err);
	free(out);
	return all;
}

static char *run_calls(struct place *place, const struct run *run,
		       const char *layer)
{
	char seed[24], steps[24], threads[24], only[24];
	const char *argv[7] = { getenv("KILN_TEST_RANDOM_CALLS"), seed, steps,
				threads };

	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)run->seed);
	snprintf(steps, sizeof(steps), "%u", run->n_steps);
	snprintf(threads, sizeof(threads), "%u", run->n_threads);
	snprintf(only, sizeof(only), "%d", run->only);
	if (run->only >= 0) {
		argv[4] = only;
		argv[5] = run->steps;
	}
	unlink(place->calls);
	harness_remove(place->pocl);
	(void)mkdir(place->pocl, 0700);
	set(place, "OPENCL_LAYERS", "%s", layer ? layer : "");
	return spawn(place, argv);
}

/* `kiln wait`: the jobs become entries. */
static char *run_worker(struct place *place)
{
	const char *argv[] = { getenv("KILN_TEST_KILN"), "wait", NULL };

	set(place, "OPENCL_LAYERS", "%s", "");
	return spawn(place, argv);
}

/* How many builds from source the driver of the last run had. */
static unsigned n_builds(const struct place *place)
{
	static const char *const names[] = { "build-source\n", "build-il\n",
					     "compile\n", "link\n" };
	char *text = harness_read(place->calls, NULL), *at;
	unsigned n = 0;
	size_t i;

	for (i = 0; text && i < 4; i++)
		for (at = text; (at = strstr(at, names[i])); at++)
			n++;
	free(text);
	return n;
}

static uint64_t n_hits(const struct place *place)
{
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	struct kiln_options options;
	struct kiln *kiln;
	uint64_t n = 0;
	char *url;

	if (!counters || asprintf(&url, "log:%s", place->store) < 0)
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

/* ---- Comparing ------------------------------------------------------------ */

/* 1 and words about the first difference, or 0. */
static int is_other(struct place *place, const char *when, const char *native,
		    const char *text)
{
	size_t i = 0, start, thread;

	while (native[i] && native[i] == text[i])
		i++;
	if (native[i] == text[i])
		return 0;
	for (start = i; start && native[start - 1] != '\n'; start--)
		;
	for (thread = start; thread && strncmp(native + thread, "thread ", 7);
	     thread--)
		;
	snprintf(place->said, sizeof(place->said),
		 "%.*s, %s\n  natively: %.*s\n  but:      %.*s\n",
		 (int)strcspn(native + thread, "\n"), native + thread, when,
		 (int)strcspn(native + start, "\n"), native + start,
		 (int)strcspn(text + start, "\n"), text + start);
	return 1;
}

struct result {
	int skipped;		   /* no driver */
	unsigned n_native, n_warm; /* builds */
	uint64_t n_hits;	   /* when warm */
	char said[1000];
	char switches[400];
	char *native; /* from malloc() */
};

/* 1 if something differs. */
static int try(const struct run *run, struct result *result)
{
	const char *layer = getenv("KILN_TEST_LAYER");
	char *native, *cold = NULL, *worker = NULL, *warm = NULL;
	struct place place;
	uint64_t before;
	int differs = 0;

	memset(result, 0, sizeof(*result));
	place_init(&place, run);
	native = run_calls(&place, run, NULL);
	result->n_native = n_builds(&place);
	/* What a real driver does not survive by itself is not for us. */
	if (strstr(native, "exit 2\n") ||
	    (run->is_real && !strstr(native, "exit 0\n"))) {
		result->skipped = 1;
		goto out;
	}
	if (!strstr(native, "exit 0\n")) {
		snprintf(place.said, sizeof(place.said), "natively: %.900s",
			 native + (strlen(native) > 400 ? strlen(native) - 400
							: 0));
		differs = 1;
		goto out;
	}
	cold = run_calls(&place, run, layer);
	differs = is_other(&place, "cold", native, cold);
	if (differs)
		goto out;
	worker = run_worker(&place);
	before = n_hits(&place);
	warm = run_calls(&place, run, layer);
	result->n_warm = n_builds(&place);
	result->n_hits = n_hits(&place) - before;
	differs = is_other(&place, "warm", native, warm);
	/* What ends shadows, or no worker can make. */
	if (!differs && place.may_hit && !result->n_hits &&
	    !strstr(native, "unknown functions\n") &&
	    !strstr(worker, "not made") && result->n_native > MANY) {
		snprintf(place.said, sizeof(place.said),
			 "not one hit when warm: %s\n", worker);
		differs = 1;
	}
out:
	memcpy(result->said, place.said, sizeof(place.said));
	memcpy(result->switches, place.switches, sizeof(place.switches));
	result->native = native;
	free(cold);
	free(worker);
	free(warm);
	place_fini(&place);
	return differs;
}

/* ---- Shrinking ------------------------------------------------------------ */

/* A driver that crashes natively is no less interesting. */
static int fails(const struct run *run, struct result *out_result)
{
	struct result result;

	if (!try(run, &result)) {
		free(result.native);
		return 0;
	}
	free(out_result->native);
	*out_result = result;
	return 1;
}

/* The steps that are left of the first `n`, as a list. */
static char *steps_of(const char *is_left, unsigned n)
{
	size_t size = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);
	unsigned i;

	for (i = 0; i < n; i++)
		if (is_left[i])
			fprintf(out, "%s%u", ftell(out) ? "," : "", i);
	fclose(out);
	return text;
}

/* Leave out as many steps as can be, large pieces first. */
static void thin_out(struct run *run, struct result *result)
{
	unsigned n = run->n_steps, piece, i, j;
	char *is_left = malloc(n), *before = malloc(n);

	memset(is_left, 1, n);
	for (piece = (n + 1) / 2; piece; piece /= 2)
		for (i = 0; i < n; i += piece) {
			struct run less = *run;

			memcpy(before, is_left, n);
			for (j = i; j < n && j < i + piece; j++)
				is_left[j] = 0;
			if (!memcmp(before, is_left, n))
				continue;
			less.steps = steps_of(is_left, n);
			if (fails(&less, result)) {
				free(run->steps);
				run->steps = less.steps;
			} else {
				free(less.steps);
				memcpy(is_left, before, n);
			}
		}
	free(is_left);
	free(before);
}

/* One thread if that will do, and then the fewest steps. */
static void shrink(struct run *run, struct result *result)
{
	unsigned low = 0, high = run->n_steps;
	struct run less = *run;
	int i;

	for (i = 0; i < (int)run->n_threads && run->only < 0; i++) {
		less.only = i;
		if (fails(&less, result))
			*run = less;
	}
	while (low < high) {
		less = *run;
		less.n_steps = (low + high) / 2;
		if (fails(&less, result))
			high = less.n_steps;
		else
			low = less.n_steps + 1;
	}
	run->n_steps = high;
	if (run->only >= 0 && !run->steps)
		thin_out(run, result);
}

static void print_run(const struct run *run, const struct result *result)
{
	printf("seed %llu %u %u", (unsigned long long)run->seed, run->n_steps,
	       run->n_threads);
	if (run->only >= 0)
		printf(" %d%s%s", run->only, run->steps ? " " : "",
		       run->steps ? run->steps : "");
	printf(" (with%s): %s", result->switches, result->said);
	fflush(stdout);
}

/* ---- The test ------------------------------------------------------------- */

static void no_call_tells_whether_there_is_a_cache(void **state)
{
	const struct run *run = *state;
	struct result result;

	if (try(run, &result)) {
		print_run(run, &result);
		free(result.native);
		fail();
	}
	free(result.native);
	if (result.skipped)
		HARNESS_LEAVE_OUT("no such driver here");
}

static int test(const char *vendors, uint64_t first, unsigned n)
{
	struct CMUnitTest tests[64];
	struct run runs[64];
	char names[64][32];
	unsigned i;

	for (i = 0; i < n; i++) {
		runs[i] = run_of(first + i, vendors);
		snprintf(names[i], sizeof(names[i]), "seed %llu",
			 (unsigned long long)(first + i));
		tests[i] = (struct CMUnitTest){
			.name = names[i],
			.test_func = no_call_tells_whether_there_is_a_cache,
			.initial_state = &runs[i],
		};
	}
	return _cmocka_run_group_tests("opencl-random", tests, n, NULL, NULL);
}

/* ---- The campaign --------------------------------------------------------- */

static uint64_t new_seed(void)
{
	return (uint64_t)time(NULL) % 100000000 * 100;
}

static int campaign(const char *vendors, unsigned seconds, uint64_t seed)
{
	time_t end = time(NULL) + seconds;
	unsigned n = 0, n_failed = 0;
	unsigned long n_native = 0, n_warm = 0, n_found = 0;

	for (; time(NULL) < end; seed++, n++) {
		struct run run = run_of(seed, vendors);
		struct result result;

		if (try(&run, &result)) {
			n_failed++;
			print_run(&run, &result);
			shrink(&run, &result);
			print_run(&run, &result);
			free(run.steps);
		}
		free(result.native);
		n_native += result.n_native;
		n_warm += result.n_warm;
		n_found += result.n_hits;
	}
	printf("%u seeds, %u failed; %lu builds, warm %lu and %lu hits\n", n,
	       n_failed, n_native, n_warm, n_found);
	return n_failed || !n;
}

static int one_seed(const char *vendors, int argc, char **argv)
{
	struct run run = run_of(strtoull(argv[0], NULL, 10), vendors);
	struct result result;

	if (argc > 1)
		run.n_steps = (unsigned)atoi(argv[1]);
	if (argc > 2)
		run.n_threads = (unsigned)atoi(argv[2]);
	if (argc > 3)
		run.only = atoi(argv[3]);
	if (argc > 4)
		run.steps = argv[4];
	if (!try(&run, &result)) {
		printf("no difference; %u builds, warm %u, %llu hits\n",
		       result.n_native, result.n_warm,
		       (unsigned long long)result.n_hits);
		return 0;
	}
	print_run(&run, &result);
	shrink(&run, &result);
	printf("%s", result.native);
	print_run(&run, &result);
	return 1;
}

static const struct {
	const char *name, *vendors;
} drivers[] = {
	{ "pocl", "pocl.icd" },
	{ "oclgrind", "/usr/lib/oclgrind/liboclgrind-rt-icd.so" },
	{ "rusticl", "rusticl.icd" },
};

int main(int argc, char **argv)
{
	const char *vendors = getenv("KILN_TEST_ICD");
	size_t i;

	for (i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		if (argc > 1 && !strcmp(argv[1], drivers[i].name)) {
			vendors = drivers[i].vendors;
			argc--;
			argv++;
			break;
		}
	if (argc > 2 && !strcmp(argv[1], "campaign"))
		return campaign(vendors, (unsigned)atoi(argv[2]),
				argc > 3 ? strtoull(argv[3], NULL, 10)
					 : new_seed());
	if (argc > 2 && !strcmp(argv[1], "seed"))
		return one_seed(vendors, argc - 2, argv + 2);
	return vendors == getenv("KILN_TEST_ICD") ? test(vendors, 1, 16)
						  : test(vendors, 1, 2);
}
