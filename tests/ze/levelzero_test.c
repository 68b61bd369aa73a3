/* SPDX-License-Identifier: MIT */

/*
 * The proxy driver in a program that nobody changed (calls.c), through the
 * system's loader, over the stand-in.  What counts is that the program is told
 * the same natively, cold and warm; what the driver was asked tells that warm
 * was warm.
 */

#include "harness/harness.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "sys/sys.h"

#define ARGUMENTS_MAX 32
#ifdef __SANITIZE_THREAD__
#define SANITIZER_HAS_A_THREAD 1 /* once there is another */
#else
#define SANITIZER_HAS_A_THREAD 0
#endif
#define WAIT_NS ((uint64_t)HARNESS_HANG_S * 1000 * 1000 * 1000)

static const char *calls, *ours, *stand_in, *tool; /* paths */
static char *spirv; /* NULL: there is no compiler */

/* ---- Running ------------------------------------------------------------------ */

struct place {
	char *directory; /* of one test */
	char *output;
	char *asked;
	char *log;
	char *store; /* its URL */
};

struct asked {
	unsigned n_spirv;
	unsigned n_native;
	unsigned n_fetch;
	unsigned n_chain; /* structures of extensions */
	unsigned n_flags; /* modules that have some */
};

static struct place place_in(const char *scheme)
{
	struct place place = { .directory = harness_directory() };

	place.output = harness_path(place.directory, "output");
	place.asked = harness_path(place.directory, "asked");
	place.log = harness_path(place.directory, "log");
	assert_true(asprintf(&place.store, "%s%s/store", scheme,
			     place.directory) > 0);
	return place;
}

static struct place place_new(void)
{
	return place_in("log:");
}

static void place_free(struct place *place)
{
	harness_remove(place->directory);
	free(place->output);
	free(place->asked);
	free(place->log);
	free(place->store);
	free(place->directory);
}

/* "NAME=VALUE NAME=VALUE". */
static void set_all(const char *settings)
{
	char *copy = strdup(settings ? settings : ""), *each, *rest = copy;

	while ((each = strsep(&rest, " ")))
		if (strchr(each, '='))
			putenv(strdup(each));
	free(copy);
}

static void set_up(const struct place *place, const char *driver,
		   const char *settings)
{
	setenv("HOME", place->directory, 1);
	unsetenv("XDG_CACHE_HOME");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("KILN_DISABLE");
	setenv("KILN_STORE", place->store, 1);
	setenv("KILN_LOG", place->log, 1);
	setenv("KILN_TRACE", "1", 1);
	setenv("KILN_ZE_DRIVER", stand_in, 1);
	setenv("ZE_ENABLE_ALT_DRIVERS", driver, 1);
	setenv("KILN_TEST_ZE_CALLS", place->asked, 1);
	setenv("KILN_TEST_ZE_QUICK", "1", 1);
	set_all(settings);
	if (getenv("REALLY"))
		unsetenv("KILN_TEST_ZE_QUICK");
}

/* [kiln run --] calls run OUTPUT SPIRV SCRIPT... */
static void become(const struct place *place, const char *scripts)
{
	char *arguments[ARGUMENTS_MAX] = { (char *)(uintptr_t)tool,
					   "run",
					   "--",
					   (char *)(uintptr_t)calls,
					   "run",
					   place->output,
					   "-" };
	char *rest = strdup(scripts);
	int n = 7;

	if (getenv("REALLY"))
		arguments[6] = spirv;

	while (n + 1 < ARGUMENTS_MAX && (arguments[n] = strsep(&rest, " ")))
		n++;
	if (getenv("UNDER_KILN"))
		execv(tool, arguments);
	else
		execv(calls, arguments + 3);
	_exit(127);
}

/* What is kept to tell why look-ups miss is no module. */
static int is_module(const struct kiln_entry *entry)
{
	uint64_t flags = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
				     kiln_blob_size(entry->metadata),
				     KILN_META_FLAGS, &flags);
	return !(flags & KILN_ENTRY_HIDDEN);
}

/* How many modules the store has. */
static unsigned count_entries(const struct place *place)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_options options;
	struct kiln_entry entry;
	struct kiln *kiln;
	unsigned n = 0;

	kiln_options_init(&options);
	options.store_url = place->store;
	options.flags = KILN_OPEN_READONLY;
	if (!kiln_open(&options, &kiln)) {
		while (!kiln_list(kiln, &cursor, &entry)) {
			n += (unsigned)is_module(&entry);
			kiln_entry_fini(&entry);
		}
		kiln_close(kiln);
	}
	return n;
}

/* The program holds still meanwhile: entries come beside it. */
static void wait_for_entries(const struct place *place, unsigned n)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint64_t end = sys->monotonic_ns(sys) + WAIT_NS;

	while (count_entries(place) < n && sys->monotonic_ns(sys) < end)
		ki_thread_yield();
}

static void drain(int fd)
{
	char bytes[4096];

	while (read(fd, bytes, sizeof(bytes)) > 0)
		;
}

/* Run the program to its end, held until there are n entries.  What it wrote,
   from malloc(); what the driver was asked. */
static char *run(const struct place *place, const char *driver,
		 const char *settings, const char *scripts, unsigned n_entries,
		 struct asked *out_asked)
{
	int in[2], out[2], status = -1;
	char *text, *line, *rest;
	pid_t child;

	unlink(place->output);
	unlink(place->asked);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		set_up(place, driver, settings);
		become(place, scripts);
	}
	close(in[0]);
	close(out[1]);
	drain(out[0]);
	if (n_entries)
		wait_for_entries(place, n_entries);
	close(in[1]);
	waitpid(child, &status, 0);
	close(out[0]);
	assert_int_equal(status, 0);

	*out_asked = (struct asked){ 0 };
	rest = text = harness_read(place->asked, NULL);
	while (rest && (line = strsep(&rest, "\n"))) {
		out_asked->n_spirv += !strncmp(line, "spirv", 5);
		out_asked->n_native += !strncmp(line, "native", 6);
		out_asked->n_fetch += !strncmp(line, "fetch", 5);
		out_asked->n_chain += !strncmp(line, "chain", 5);
		out_asked->n_flags += !strncmp(line, "flags", 5);
	}
	free(text);
	return harness_read(place->output, NULL);
}

/* ---- Cold and warm are alike ---------------------------------------------------- */

struct row {
	const char *name;
	const char *scripts;
	unsigned n_entries; /* after the cold run */
	unsigned n_spirv;   /* that the driver compiles when warm */
	unsigned n_native;  /* that it is given, when warm */
	const char *settings;
};

static const struct row rows[] = {
	{ "one module", "one", 1, 0, 1, NULL },
	{ "flags, and empty flags", "flags", 2, 0, 2, NULL },
	{ "constants, one of which is none", "constants", 3, 1, 3, NULL },
	{ "several modules at once", "program", 3, 0, 3, NULL },
	{ "a module that does not compile", "garbage", 0, 1, 0, NULL },
	{ "what is no SPIR-V", "native", 1, 0, 3, NULL },
	{ "an extension that nobody knows", "unknown", 0, 3, 0, NULL },
	{ "names, properties, and what is linked", "ask", 2, 0, 2, NULL },
	{ "three devices, two of them alike", "each-device", 2, 0, 3, NULL },
	{ "a part of a device", "part", 1, 0, 2, NULL },
	{ "a driver that hands out no binary", "one one", 0, 2, 0,
	  "KILN_TEST_ZE_NO_BINARY=1" },
	{ "wrong arguments", "wrong", 0, 0, 0, NULL },
	{ "with and without a log", "without-log", 1, 0, 2, NULL },
	{ "destroyed at once", "destroy-at-once", 1, 0, 1, NULL },
	{ "destroyed with its context", "destroy-context", 1, 0, 1, NULL },
	{ "several threads", "threads", 4, 0, 4, NULL },
	{ "a forked child", "forked", 1, 1, 1, NULL },
	/* What it does not keep at first it keeps by the next run. */
	{ "a driver that takes long to hand one out",
	  "one flags part each-device", 3, 1, 7, "KILN_TEST_ZE_SLOW=1" },
	{ "all in one program",
	  "one flags constants garbage native unknown each-device wrong "
	  "without-log threads ask part program",
	  11, 5, 25, NULL },
	{ "compiled in earnest", "one constants program", 7, 1, 7, "REALLY=1" },
};

static void check_row(const struct row *row, const char *scheme)
{
	struct place place = place_in(scheme);
	char *native, *cold, *warm;
	struct asked asked, natively;

	native = run(&place, stand_in, row->settings, row->scripts, 0,
		     &natively);
	cold = run(&place, ours, row->settings, row->scripts, row->n_entries,
		   &asked);
	assert_int_equal(asked.n_chain, natively.n_chain);
	assert_int_equal(asked.n_flags, natively.n_flags);
	assert_int_equal(count_entries(&place), row->n_entries);
	warm = run(&place, ours, row->settings, row->scripts, 0, &asked);
	assert_non_null(native);
	assert_string_equal(cold, native);
	assert_string_equal(warm, native);
	assert_int_equal(asked.n_spirv, row->n_spirv);
	assert_int_equal(asked.n_native, row->n_native);
	/* A binary of several modules has the flags of all. */
	assert_true(asked.n_flags >= natively.n_flags);
	free(native);
	free(cold);
	free(warm);
	place_free(&place);
}

static int is_skipped(const struct row *row)
{
	return row->settings && !strcmp(row->settings, "REALLY=1") && !spirv;
}

static void a_program_is_told_the_same_cold_and_warm(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("# %s%s\n", rows[i].name,
			      is_skipped(&rows[i]) ? ": no compiler" : "");
		if (!is_skipped(&rows[i]))
			check_row(&rows[i], "log:");
	}
}

/* Where Intel's driver keeps its own: the row with everything in it. */
static void the_same_is_true_in_a_directory_of_neo(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].name, "all in one program"))
			check_row(&rows[i], "neo:");
}

/* Nobody waits for what is kept: how much that is is by chance too. */
static void so_is_a_program_of_random_calls(void **state)
{
	static const char *const scripts[] = {
		"one",	       "flags",	 "constants",	    "program",
		"garbage",     "native", "unknown",	    "ask",
		"each-device", "part",	 "threads",	    "same",
		"without-log", "forked", "destroy-at-once",
	};
	const size_t n_scripts = sizeof(scripts) / sizeof(scripts[0]);
	uint64_t random, seed;
	struct ki_bytes line;
	struct place place;
	struct asked asked;
	char *native, *text;
	int i;

	for (seed = 1; seed <= 4; seed++) {
		random = seed;
		place = place_in(seed % 2 ? "log:" : "neo:");
		ki_bytes_init(&line);
		for (i = 0; i < 8; i++)
			ki_bytes_printf(
				&line, "%s%s", i ? " " : "",
				scripts[harness_random(&random) % n_scripts]);
		ki_bytes_add_u8(&line, '\0');
		print_message("# %s\n", (char *)line.data);
		native = run(&place, stand_in, NULL, (char *)line.data, 0,
			     &asked);
		for (i = 0; i < 3; i++) {
			text = run(&place, ours, NULL, (char *)line.data, 0,
				   &asked);
			assert_string_equal(text, native);
			free(text);
		}
		free(native);
		ki_bytes_fini(&line);
		place_free(&place);
	}
}

/* ---- What the store has is not always good --------------------------------------- */

static void a_refused_binary_is_built_again_and_replaced(void **state)
{
	struct place place = place_new();
	char *native, *text;
	struct asked asked;

	native = run(&place, stand_in, NULL, "one", 0, &asked);
	free(run(&place, ours, NULL, "one", 1, &asked));
	text = run(&place, ours, "KILN_TEST_ZE_REFUSE=1", "one", 1, &asked);
	assert_string_equal(text, native);
	assert_int_equal(asked.n_native, 1);
	assert_int_equal(asked.n_spirv, 1);
	free(text);
	text = run(&place, ours, NULL, "one", 0, &asked);
	assert_string_equal(text, native);
	assert_int_equal(asked.n_spirv, 0);
	free(text);
	free(native);
	place_free(&place);
}

/* ---- What must lead to another entry, or to none ---------------------------------- */

struct other {
	const char *name;
	const char *settings;
	unsigned n_entries; /* after a run with them, over one without */
};

static const struct other others[] = {
	{ "a variable that changes code", "KILN_TEST_ZE_CODE=x", 2 },
	{ "a variable of the compiler that nobody knows", "IGC_Surprise=1", 1 },
	{ "a variable that switches on a tool", "KILN_TEST_ZE_TOOL=1", 1 },
	{ "caching is off", "KILN_DISABLE=1", 1 },
	{ "other code, and a store that is only read",
	  "KILN_READONLY=1 KILN_TEST_ZE_CODE=y", 1 },
	{ "a wrong setting", "KILN_MEMORY=much", 1 },
};

static void what_may_change_code_is_no_hit(void **state)
{
	struct place place = place_new();
	char *native, *text;
	struct asked asked;
	size_t i;

	free(run(&place, ours, NULL, "one", 1, &asked));
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		print_message("# %s\n", others[i].name);
		native = run(&place, stand_in, others[i].settings, "one", 0,
			     &asked);
		text = run(&place, ours, others[i].settings, "one",
			   others[i].n_entries, &asked);
		assert_string_equal(text, native);
		assert_int_equal(asked.n_spirv, 1);
		assert_int_equal(asked.n_native, 0);
		free(native);
		free(text);
	}
	assert_int_equal(count_entries(&place), 2);
	place_free(&place);
}

static void another_compiler_by_the_library_path_is_no_hit(void **state)
{
	struct place place = place_new();
	char *folder = harness_path(place.directory, "lib"), *library, *text;
	char *settings;
	struct asked asked;

	free(run(&place, ours, NULL, "one", 1, &asked));
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_true(asprintf(&settings, "LD_LIBRARY_PATH=%s", folder) > 0);
	text = run(&place, ours, settings, "one", 0, &asked);
	assert_int_equal(asked.n_native, 1);
	free(text);

	library = harness_path(folder, "libocloc.so");
	harness_write(library, "", 0);
	text = run(&place, ours, settings, "one", 0, &asked);
	assert_int_equal(asked.n_native, 0);
	assert_int_equal(asked.n_spirv, 1);
	free(text);
	free(library);
	free(settings);
	free(folder);
	place_free(&place);
}

/* ---- Why it missed --------------------------------------------------------------------- */

static uint64_t count_of(const struct place *place, enum kiln_counter counter)
{
	struct kiln_store_counters counters = { 0 };
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = place->store;
	options.flags = KILN_OPEN_READONLY;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_counters(kiln, &counters), KILN_OK);
	kiln_close(kiln);
	return counters.total[counter];
}

struct miss {
	const char *settings;
	const char *scripts;
	unsigned n_entries; /* after it */
	enum kiln_counter reason;
};

static const struct miss misses[] = {
	{ NULL, "one", 1, KILN_COUNT_MISS_NEW },
	{ "KILN_TEST_ZE_CODE=x", "one", 2, KILN_COUNT_MISS_ENVIRONMENT },
	{ NULL, "flags", 4, KILN_COUNT_MISS_OPTIONS },
	{ NULL, "program", 7, KILN_COUNT_MISS_OPTIONS },
	{ NULL, "part", 8, KILN_COUNT_MISS_DEVICE },
};

static void a_miss_is_counted_by_its_reason(void **state)
{
	struct place place = place_new();
	struct asked asked;
	uint64_t before;
	size_t i;

	for (i = 0; i < sizeof(misses) / sizeof(misses[0]); i++) {
		print_message("# %s: %s\n", misses[i].scripts,
			      kiln_counter_words(misses[i].reason));
		before = i ? count_of(&place, misses[i].reason) : 0;
		free(run(&place, ours, misses[i].settings, misses[i].scripts,
			 misses[i].n_entries, &asked));
		assert_true(count_of(&place, misses[i].reason) > before);
	}
	assert_int_equal(count_of(&place, KILN_COUNT_MISS_NEW), 1);
	place_free(&place);
}

/* ---- One build for all threads ------------------------------------------------------- */

struct crowd {
	const char *name;
	const char *script;
	const char *settings;
	unsigned n_entries;
	unsigned n_spirv; /* that the driver compiles for 8 threads */
};

static const struct crowd crowds[] = {
	{ "one builds, the others get that", "same", NULL, 1, 1 },
	{ "what fails is each thread's own", "same-garbage", NULL, 0, 8 },
	{ "nothing is kept", "same", "KILN_READONLY=1", 0, 8 },
	{ "the driver hands out no binary", "same", "KILN_TEST_ZE_NO_BINARY=1",
	  0, 8 },
};

/* S18 */
static void threads_that_want_the_same_have_it_built_once(void **state)
{
	struct place place;
	struct asked asked;
	char *native, *text;
	size_t i;

	for (i = 0; i < sizeof(crowds) / sizeof(crowds[0]); i++) {
		print_message("# %s\n", crowds[i].name);
		place = place_new();
		native = run(&place, stand_in, crowds[i].settings,
			     crowds[i].script, 0, &asked);
		assert_int_equal(asked.n_spirv, 8);
		text = run(&place, ours, crowds[i].settings, crowds[i].script,
			   crowds[i].n_entries, &asked);
		assert_string_equal(text, native);
		assert_int_equal(asked.n_spirv, crowds[i].n_spirv);
		assert_int_equal(asked.n_native, 8 - crowds[i].n_spirv);
		assert_int_equal(count_entries(&place), crowds[i].n_entries);
		free(native);
		free(text);
		place_free(&place);
	}
}

/* The binary takes 15 ms to come. */
static void nobody_waits_longer_than_is_set(void **state)
{
	static const char settings[] = "KILN_TEST_ZE_SLOW=1 "
				       "KILN_LOCK_TIMEOUT=1";
	struct place place = place_new();
	struct asked asked;
	char *native, *text;

	native = run(&place, stand_in, settings, "same", 0, &asked);
	text = run(&place, ours, settings, "same", 1, &asked);
	assert_string_equal(text, native);
	assert_true(asked.n_spirv > 1);
	assert_int_equal(count_entries(&place), 1);
	free(native);
	free(text);
	place_free(&place);
}

/* ---- What is left behind ------------------------------------------------------------- */

/* S41, and threads and signals. */
static void no_descriptor_thread_or_signal_is_left(void **state)
{
	struct place place;
	char *native, *text;
	struct asked asked;

	if (SANITIZER_HAS_A_THREAD)
		HARNESS_LEAVE_OUT("the sanitizer has a thread");
	place = place_new();
	native = run(&place, stand_in, NULL, "one state-late flags state-late",
		     0, &asked);
	text = run(&place, ours, NULL, "one state-late flags state-late", 3,
		   &asked);
	assert_string_equal(text, native);
	free(native);
	free(text);
	native = run(&place, stand_in, NULL, "one state", 0, &asked);
	text = run(&place, ours, NULL, "one state", 0, &asked);
	assert_int_equal(asked.n_native, 1);
	assert_string_equal(text, native);
	free(native);
	free(text);
	place_free(&place);
}

/* ---- Entries ------------------------------------------------------------------------ */

static void an_entry_is_the_drivers_binary_with_its_log(void **state)
{
	struct place place = place_new();
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_options options;
	struct kiln_field kind;
	struct kiln_entry entry;
	struct asked asked;
	struct kiln *kiln;
	const void *data;
	size_t size;

	free(run(&place, ours, NULL, "one", 1, &asked));
	assert_int_equal(asked.n_fetch, 2); /* the program's, and ours */
	kiln_options_init(&options);
	options.store_url = place.store;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_list(kiln, &cursor, &entry), KILN_OK);
	while (!is_module(&entry)) {
		kiln_entry_fini(&entry);
		assert_int_equal(kiln_list(kiln, &cursor, &entry), KILN_OK);
	}
	assert_int_equal(kiln_record_find(kiln_blob_data(entry.record),
					  kiln_blob_size(entry.record), "kind",
					  &kind),
			 KILN_OK);
	assert_memory_equal(kind.data, "levelzero module 1", kind.size);
	assert_int_equal(kiln_metadata_find(kiln_blob_data(entry.metadata),
					    kiln_blob_size(entry.metadata),
					    KILN_META_FRONT, &data, &size),
			 KILN_OK);
	assert_int_equal(size, 9);
	assert_memory_equal(data, "levelzero", 9);
	assert_int_equal(kiln_metadata_find(kiln_blob_data(entry.metadata),
					    kiln_blob_size(entry.metadata),
					    KILN_META_BUILD_LOG, &data, &size),
			 KILN_OK);
	assert_string_equal(data, "copied for tgllp, options ''\n");
	kiln_entry_fini(&entry);
	kiln_close(kiln);
	place_free(&place);
}

/* ---- kiln run ------------------------------------------------------------------------- */

static void kiln_run_puts_the_proxy_in_the_drivers_place(void **state)
{
	struct place place = place_new();
	char *native, *cold, *warm;
	struct asked asked;

	/* Without jobs to be made kiln becomes the program, which closes its
	   output. */
	native = run(&place, stand_in, NULL, "one flags", 0, &asked);
	cold = run(&place, stand_in, "UNDER_KILN=1 KILN_SPOOL=0", "one flags",
		   3, &asked);
	assert_int_equal(asked.n_spirv, 3);
	warm = run(&place, stand_in, "UNDER_KILN=1 KILN_SPOOL=0", "one flags",
		   0, &asked);
	assert_int_equal(asked.n_spirv, 0);
	assert_int_equal(asked.n_native, 3);
	assert_string_equal(cold, native);
	assert_string_equal(warm, native);
	free(native);
	free(cold);
	free(warm);
	place_free(&place);
}

/* ---- kiln doctor ---------------------------------------------------------------------- */

struct complaint {
	const char *name;
	const char *settings; /* "@" is the stand-in, "#" the proxy */
	const char *check;
	const char *result;
	const char *words;
};

static const struct complaint complaints[] = {
	{ "the loader can be given drivers", "KILN_ZE_DRIVER=@", "ze loader",
	  "ok", "libze_loader.so.1, version 1." },
	{ "the driver that is set, and by whom", "KILN_ZE_DRIVER=@",
	  "ze driver", "note", "libkiln-test-ze.so (from: environment)" },
	{ "a program gets the proxy", "KILN_ZE_DRIVER=@", "ze program", "ok",
	  "devices: 3 (Stand-in A)" },
	{ "it is in a list already", "KILN_ZE_DRIVER=@ ZE_ENABLE_ALT_DRIVERS=#",
	  "ze program", "ok", "devices: 3 (Stand-in A)" },
	{ "a driver that is not there", "KILN_ZE_DRIVER=libnothing.so",
	  "ze driver", "bad", "libnothing.so, which is not to be found" },
	{ "a driver that is not in the list",
	  "KILN_ZE_DRIVER=@ ZE_ENABLE_ALT_DRIVERS=libm.so.6", "ze driver",
	  "bad", "not in ZE_ENABLE_ALT_DRIVERS" },
	{ "a list without one that is known", "ZE_ENABLE_ALT_DRIVERS=libm.so.6",
	  "ze driver", "note", "none of these" },
	{ "what is no driver", "KILN_ZE_DRIVER=libm.so.6", "ze program", "note",
	  "finds no device" },
};

static char *with_paths(const char *settings)
{
	struct ki_bytes text;
	size_t size;

	ki_bytes_init(&text);
	for (; *settings; settings++) {
		if (*settings == '@')
			ki_bytes_add_string(&text, stand_in);
		else if (*settings == '#')
			ki_bytes_add_string(&text, ours);
		else
			ki_bytes_add_u8(&text, (uint8_t)*settings);
	}
	ki_bytes_add_u8(&text, '\0');
	return (char *)ki_bytes_take(&text, &size);
}

static json_t *ask_doctor(const char *directory, const char *settings)
{
	char *set = with_paths(settings), *command;
	json_t *json;
	FILE *pipe;

	assert_true(
		asprintf(&command,
			 "env -u ZE_ENABLE_ALT_DRIVERS -u KILN_ZE_DRIVER "
			 "OCL_ICD_VENDORS=/nowhere KILN_DIR=%s %s %s doctor "
			 "--json",
			 directory, set, tool) > 0);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	json = json_loadf(pipe, 0, NULL);
	pclose(pipe);
	free(command);
	free(set);
	return json;
}

static const char *text_of(const json_t *check, const char *name)
{
	return json_string_value(json_object_get(check, name));
}

static void kiln_doctor_says_what_programs_get(void **state)
{
	char *directory = harness_directory();
	const struct complaint *row;
	json_t *json, *check;
	size_t i, j;
	int found;

	for (i = 0; i < sizeof(complaints) / sizeof(complaints[0]); i++) {
		row = &complaints[i];
		print_message("# %s\n", row->name);
		json = ask_doctor(directory, row->settings);
		assert_non_null(json);
		found = 0;
		json_array_foreach(json_object_get(json, "checks"), j, check)
			found |=
			!strcmp(text_of(check, "name"), row->check) &&
			!strcmp(text_of(check, "result"), row->result) &&
			strstr(text_of(check, "words"), row->words);
		assert_true(found);
		json_decref(json);
	}
	harness_remove(directory);
	free(directory);
}

/* ---- Without a driver --------------------------------------------------------------- */

static void a_driver_that_is_not_there_is_as_if_it_were_not_named(void **state)
{
	struct place place = place_new();
	static const char *const drivers[] = { "libnothing.so", NULL };
	int statuses[2], i;
	pid_t child;

	for (i = 0; i < 2; i++) {
		child = fork();
		if (!child) {
			set_up(&place, drivers[i] ? drivers[i] : ours,
			       "KILN_ZE_DRIVER=libnothing.so");
			become(&place, "one");
		}
		waitpid(child, &statuses[i], 0);
	}
	assert_int_equal(WEXITSTATUS(statuses[0]), 3);
	assert_int_equal(statuses[1], statuses[0]);
	place_free(&place);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_is_told_the_same_cold_and_warm),
		cmocka_unit_test(the_same_is_true_in_a_directory_of_neo),
		cmocka_unit_test(so_is_a_program_of_random_calls),
		cmocka_unit_test(a_refused_binary_is_built_again_and_replaced),
		cmocka_unit_test(what_may_change_code_is_no_hit),
		cmocka_unit_test(
			another_compiler_by_the_library_path_is_no_hit),
		cmocka_unit_test(a_miss_is_counted_by_its_reason),
		cmocka_unit_test(threads_that_want_the_same_have_it_built_once),
		cmocka_unit_test(nobody_waits_longer_than_is_set),
		cmocka_unit_test(no_descriptor_thread_or_signal_is_left),
		cmocka_unit_test(an_entry_is_the_drivers_binary_with_its_log),
		cmocka_unit_test(kiln_run_puts_the_proxy_in_the_drivers_place),
		cmocka_unit_test(kiln_doctor_says_what_programs_get),
		cmocka_unit_test(
			a_driver_that_is_not_there_is_as_if_it_were_not_named),
	};
	char *directory, *command, *path;
	int status;

	assert_int_equal(argc, 5);
	calls = argv[1];
	ours = argv[2];
	stand_in = argv[3];
	tool = argv[4];
	directory = harness_directory();
	spirv = path = harness_path(directory, "add.spv");
	assert_true(asprintf(&command, "%s spirv %s >/dev/null 2>&1", calls,
			     spirv) > 0);
	/* Sanitizers forbid the way in which it loads libraries. */
	if (system(command))
		spirv = NULL;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	harness_remove(directory);
	free(directory);
	free(command);
	free(path);
	return status;
}
