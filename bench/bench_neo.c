/* SPDX-License-Identifier: MIT */

/*
 * kiln in a directory of Intel's compiler cache against the original, whose
 * protocol is taken literally (tests/neo/original.h), and the proxy of Level Zero
 * against compiling.
 *
 * Every entry has 4096 bytes and, with kiln, a key record of 512 that is compared
 * at each hit and kept in kiln.records.  Both sides lie in one folder, neither
 * calls fsync; turns are interleaved, what a turn is about is read from end to
 * end before it, ratios are of one round, medians count.  Groups by name: stores
 * lookups worst levelzero.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "bench.h"
#include "original.h"
#include "peers.h"

#define RECORD_BYTES 512
#define VALUE_BYTES  4096
#define ROUNDS_MAX   9
#define PATH_BYTES   512

static struct bench bench;
static char top[256]; /* the folder of everything */
static uint8_t value[VALUE_BYTES];
static uint8_t buffer[(size_t)1 << 20];

/* ---- Both sides ---------------------------------------------------------------- */

struct side {
	void *kiln; /* NULL: the original */
	char directory[300];
	uint64_t bytes_max;
	double turns[ROUNDS_MAX];
};

static void make_item(struct item *item, uint64_t number)
{
	char text[RECORD_BYTES];

	memset(text, 'k', sizeof(text));
	memcpy(text, &number, sizeof(number));
	item->key = kiln_key_new();
	kiln_key_add(item->key, "source", text, RECORD_BYTES - 18);
	if (kiln_key_finish(item->key))
		bench_fail("no key");
	item->digest = kiln_key_digest(item->key);
	item->record = kiln_key_record(item->key, &item->record_size);
	item->place = (size_t)number;
}

static struct item *make_items(size_t n)
{
	struct item *items = calloc(n, sizeof(*items));

	if (!items)
		bench_fail("no memory");
	for (size_t i = 0; i < n; i++)
		make_item(&items[i], i);
	return items;
}

static void free_items(struct item *items, size_t n)
{
	while (n)
		kiln_key_free(items[--n].key);
	free(items);
}

/* Limited if bytes_max is not 0. */
static void *open_kiln(const struct side *side, unsigned flags)
{
	return peer_kiln_neo.open(side->directory, side->bytes_max,
				  side->bytes_max ? flags | STORE_EVICTS
						  : flags);
}

static void side_open(struct side *side, int is_kiln, uint64_t bytes_max)
{
	static unsigned number;

	snprintf(side->directory, sizeof(side->directory), "%s/%u", top,
		 number++);
	if (mkdir(side->directory, 0700))
		bench_fail("%s: %s", side->directory, strerror(errno));
	side->bytes_max = bytes_max;
	side->kiln = is_kiln ? open_kiln(side, 0) : NULL;
}

static void side_close(struct side *side)
{
	if (side->kiln)
		peer_kiln_neo.close(side->kiln);
	bench_remove_tree(side->directory);
}

static void store(struct side *side, const struct item *item)
{
	struct original original;
	char name[32];

	memcpy(value, &item->place, sizeof(item->place));
	if (side->kiln) {
		peer_kiln_neo.put(side->kiln, item, value, VALUE_BYTES);
		return;
	}
	/* Spread as a hash spreads. */
	snprintf(name, sizeof(name), "%016llx.cl_cache",
		 (unsigned long long)(item->place + 1) * 0x9e3779b97f4a7c15u);
	original = (struct original){
		.directory = side->directory,
		.bytes_max = side->bytes_max ? side->bytes_max : UINT64_MAX,
	};
	if (original_store(&original, name, value, VALUE_BYTES))
		bench_fail("the original did not store");
}

/* How long some stores took, and the worst of them, in ns. */
static double timed_stores(struct side *side, const struct item *items,
			   size_t from, size_t to, double *out_worst)
{
	uint64_t begin, took, worst = 0, sum = 0;

	for (size_t i = from; i < to; i++) {
		if (i % 256 == 0)
			bench_progress(side->kiln ? "kiln stores"
						  : "the original stores",
				       i - from, to - from);
		begin = bench_now_ns();
		store(side, &items[i]);
		took = bench_now_ns() - begin;
		sum += took;
		if (took > worst)
			worst = took;
	}
	bench_progress("", to, to);
	if (out_worst)
		*out_worst = (double)worst;
	return (double)sum;
}

/* How many are there, none of them wrong. */
static size_t check(struct side *side, const struct item *items, size_t n)
{
	size_t found = 0, told, size;

	for (size_t i = 0; i < n; i++) {
		size = peer_kiln_neo.get(side->kiln, &items[i], buffer,
					 VALUE_BYTES);
		memcpy(&told, buffer, sizeof(told));
		if (size && (told != i || size != VALUE_BYTES))
			bench_fail("kiln: a wrong value");
		found += size != 0;
	}
	return found;
}

/* Read every file to its end. */
static void warm(const struct side *side)
{
	DIR *dir = opendir(side->directory);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		int fd =
			openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);

		while (fd >= 0 && read(fd, buffer, sizeof(buffer)) > 0)
			;
		if (fd >= 0)
			close(fd);
	}
	if (dir)
		closedir(dir);
}

static void ratio_row(const char *name, const double *a, const double *b,
		      size_t n_rounds, double bar)
{
	double ratios[ROUNDS_MAX];

	for (size_t r = 0; r < n_rounds; r++)
		ratios[r] = a[r] / b[r];
	bench_row_bar(&bench, name, bench_median(ratios, n_rounds), "", bar,
		      BENCH_LOWER);
}

static void median_row(const char *name, const double *turns, size_t n_rounds,
		       double per, const char *unit)
{
	double copy[ROUNDS_MAX];

	memcpy(copy, turns, n_rounds * sizeof(*turns));
	bench_row(&bench, name, bench_median(copy, n_rounds) / per, unit);
}

/* ---- Stores ------------------------------------------------------------------------ */

/*
 * Into stores that have some, a few by turns.  A round is the median of these: the
 * file system writes its journal when it likes, for both.
 */
static void store_group(void)
{
	enum { BEFORE = 1000, STEP = 50, STEPS_MAX = 40 };
	const size_t n_steps = bench.quick ? 4 : STEPS_MAX;
	const size_t n_all = BEFORE + n_steps * STEP;
	const size_t n_rounds = bench.quick ? 1 : 9;
	struct item *items = make_items(n_all);
	struct side kiln = { 0 }, original = { 0 };
	double ours[STEPS_MAX], theirs[STEPS_MAX];

	for (size_t r = 0; r < n_rounds; r++) {
		side_open(&kiln, 1, 0);
		side_open(&original, 0, 0);
		(void)timed_stores(&kiln, items, 0, BEFORE, NULL);
		(void)timed_stores(&original, items, 0, BEFORE, NULL);
		for (size_t i = 0; i < n_steps; i++) {
			const size_t from = BEFORE + i * STEP, to = from + STEP;

			warm(&kiln);
			ours[i] = timed_stores(&kiln, items, from, to, NULL);
			warm(&original);
			theirs[i] =
				timed_stores(&original, items, from, to, NULL);
		}
		kiln.turns[r] = bench_median(ours, n_steps);
		original.turns[r] = bench_median(theirs, n_steps);
		if (check(&kiln, items, n_all) != n_all ||
		    original_sum(original.directory, ORIGINAL_FLAT) !=
			    n_all * VALUE_BYTES)
			bench_fail("not all are there");
		side_close(&kiln);
		side_close(&original);
	}
	median_row("store of 4 KB, kiln", kiln.turns, n_rounds, 1e3 * STEP,
		   "us");
	median_row("store of 4 KB, the original", original.turns, n_rounds,
		   1e3 * STEP, "us");
	ratio_row("store of 4 KB : the original", kiln.turns, original.turns,
		  n_rounds, 1.1);
	free_items(items, n_all);
}

/* ---- Look-ups ------------------------------------------------------------------------ */

#define AT_A_TIME 16

static size_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(*state >> 33);
}

/* Who looks up a key has just made it. */
static void bring(const void *data, size_t size)
{
	for (size_t at = 0; at < size; at += 64)
		(void)*((const volatile uint8_t *)data + at);
}

struct target {
	const struct item *item;
	char path[PATH_BYTES]; /* of some entry's file */
};

static void by_view(void *kiln, const struct target *target)
{
	if (peer_kiln_neo.view(kiln, target->item) < 0)
		bench_fail("kiln: no hit");
}

/* As the layer of OpenCL and the driver of Level Zero ask. */
static void by_front(void *kiln, const struct target *target)
{
	struct kiln_blob *blob, *metadata;
	enum kiln_counter outcome;

	if (kiln_find_entry(kiln, target->item->key, &blob, &metadata,
			    &outcome))
		bench_fail("kiln: no hit");
	kiln_count_lookup(kiln, outcome, blob, metadata);
	bench_use((void *)(uintptr_t)peer_touch(kiln_blob_data(blob),
						kiln_blob_size(blob)));
	kiln_blob_unref(metadata);
	kiln_blob_unref(blob);
}

static void by_reading(void *kiln, const struct target *target)
{
	int fd = open(target->path, O_RDONLY | O_CLOEXEC);

	(void)kiln;
	if (fd < 0 || read(fd, buffer, VALUE_BYTES) != VALUE_BYTES)
		bench_fail("%s: %s", target->path, strerror(errno));
	close(fd);
	bench_use((void *)(uintptr_t)peer_touch(buffer, VALUE_BYTES));
}

static struct way {
	const char *name;
	void (*look_up)(void *kiln, const struct target *target);
	unsigned flags;
	void *kiln;
	double turns[ROUNDS_MAX];
} ways[] = {
	{ "open + read + close of the file", by_reading, 0, NULL, { 0 } },
	{ "lookup, verified", by_view, 0, NULL, { 0 } },
	{ "lookup, verified, by a guest", by_view, STORE_GUEST, NULL, { 0 } },
	{ "lookup, verified, by a front", by_front, STORE_GUEST, NULL, { 0 } },
};
#define N_WAYS (sizeof(ways) / sizeof(*ways))

/* ns of a look-up, as the median of some at a time. */
static double timed_lookups(const struct way *way, const struct target *targets,
			    size_t n, size_t n_times)
{
	uint64_t state = 7, start;
	size_t chosen[AT_A_TIME], i;
	double *ns = calloc(n_times, sizeof(*ns)), result;

	if (!ns)
		bench_fail("no memory");
	for (size_t time = 0; time < n_times; time++) {
		for (i = 0; i < AT_A_TIME; i++) {
			const struct target *target;

			chosen[i] = next_random(&state) % n;
			target = &targets[chosen[i]];
			bring(target, strlen(target->path));
			bring(target->item, sizeof(*target->item));
			bring(target->item->key, 64);
			bring(target->item->record, target->item->record_size);
		}
		start = bench_now_ns();
		for (i = 0; i < AT_A_TIME; i++)
			way->look_up(way->kiln, &targets[chosen[i]]);
		ns[time] = (double)(bench_now_ns() - start) / AT_A_TIME;
	}
	result = bench_median(ns, n_times);
	free(ns);
	return result;
}

/* The files of the entries are in whatever order. */
static struct target *make_targets(const struct side *side,
				   const struct item *items, size_t n)
{
	struct target *targets = calloc(n, sizeof(*targets));
	DIR *dir = opendir(side->directory);
	struct dirent *entry;
	size_t i = 0;

	while (targets && dir && i < n && (entry = readdir(dir))) {
		if (!strstr(entry->d_name, ".cl_cache"))
			continue;
		snprintf(targets[i].path, sizeof(targets[i].path), "%s/%.40s",
			 side->directory, entry->d_name);
		targets[i].item = &items[i];
		i++;
	}
	if (i != n)
		bench_fail("not all are there");
	closedir(dir);
	return targets;
}

/* The first of these ways is what the others are measured by. */
static void lookup_rows(size_t n_rounds)
{
	for (size_t w = 0; w < N_WAYS; w++) {
		char name[96];

		median_row(ways[w].name, ways[w].turns, n_rounds, 1, "ns");
		snprintf(name, sizeof(name), "%s : open + read + close",
			 ways[w].name);
		if (w)
			ratio_row(name, ways[w].turns, ways[0].turns, n_rounds,
				  1.25);
	}
}

static void lookup_group(void)
{
	const size_t n = bench.quick ? 500 : 10000;
	const size_t n_times = bench.quick ? 100 : 1000;
	const size_t n_rounds = bench.quick ? 1 : 9;
	struct item *items = make_items(n);
	struct target *targets;
	struct side side = { 0 };

	side_open(&side, 1, 0);
	(void)timed_stores(&side, items, 0, n, NULL);
	if (check(&side, items, n) != n)
		bench_fail("not all are there");
	targets = make_targets(&side, items, n);
	for (size_t w = 1; w < N_WAYS; w++)
		ways[w].kiln = open_kiln(&side, ways[w].flags);
	for (size_t r = 0; r < n_rounds; r++) {
		for (size_t w = 0; w < N_WAYS; w++) {
			warm(&side);
			ways[w].turns[r] =
				timed_lookups(&ways[w], targets, n, n_times);
		}
	}
	lookup_rows(n_rounds);
	for (size_t w = 1; w < N_WAYS; w++)
		peer_kiln_neo.close(ways[w].kiln);
	free(targets);
	free_items(items, n);
	side_close(&side);
}

/* ---- The worst single store ------------------------------------------------------------ */

/*
 * All are full at 100k entries and get a third as much again, so that each has one
 * eviction.  Kiln's worst store of all these to the one in which the original
 * evicts: alone, where kiln.records has the names, and beside an entry of a
 * driver's, where the directory must be read.
 */
static void fill(struct side *side, const struct item *items, size_t n)
{
	(void)timed_stores(side, items, 0, n, NULL);
	if (side->kiln && check(side, items, n) < n - 2)
		bench_fail("kiln: not all are there");
}

/* As a driver leaves one, in kiln's directory. */
static void store_beside(const struct side *side, const struct item *item)
{
	struct side driver = *side;

	driver.kiln = NULL;
	store(&driver, item);
}

static void worst_of(struct side *side, const struct item *items, size_t from,
		     size_t to)
{
	warm(side);
	(void)timed_stores(side, items, from, to, &side->turns[0]);
	if (side->kiln ? check(side, items, to) < from / 2
		       : original_sum(side->directory, ORIGINAL_FLAT) >
				 side->bytes_max)
		bench_fail("too few are there, or too many");
}

static void worst_group(void)
{
	const size_t n = bench.quick ? 6000 : 100000;
	const size_t n_all = n + n / 3 + 2;
	const uint64_t record_bytes = (96 + 25 + RECORD_BYTES + 7) & ~7u;
	/* Room for the records is kept twice. */
	const uint64_t room = n * (VALUE_BYTES + 2 * record_bytes) + 448;
	struct item *items = make_items(n_all);
	struct side alone = { 0 }, beside = { 0 }, original = { 0 };

	side_open(&alone, 1, room);
	side_open(&beside, 1, room);
	side_open(&original, 0, n * VALUE_BYTES);
	store_beside(&beside, &items[n_all - 1]);
	fill(&alone, items, n);
	fill(&beside, items, n - 1);
	fill(&original, items, n);
	worst_of(&alone, items, n, n_all);
	worst_of(&beside, items, n, n_all);
	worst_of(&original, items, n, n_all);
	median_row("worst store at 100k entries, kiln", alone.turns, 1, 1e6,
		   "ms");
	median_row("worst store beside a driver's entry, kiln", beside.turns, 1,
		   1e6, "ms");
	median_row("evicting store at 100k entries, the original",
		   original.turns, 1, 1e6, "ms");
	ratio_row("worst store at 100k entries : the original's evicting one",
		  alone.turns, original.turns, 1, 0.1);
	ratio_row("the same beside a driver's entry", beside.turns,
		  original.turns, 1, 0.1);
	side_close(&alone);
	side_close(&beside);
	side_close(&original);
	free_items(items, n_all);
}

/* ---- Level Zero -------------------------------------------------------------------------- */

#ifdef BENCH_ZE_CALLS

/*
 * A program that nobody changed makes modules over the stand-in driver, which
 * compiles with ocloc: natively, cold and warm, in turns.  What counts is how long
 * zeModuleCreate takes, the median of a process; the first module of each is left
 * out by it, because the compiler loads itself there.
 */
#define MODULES "5"

extern char **environ;

static void run_calls(const char *const arguments[])
{
	posix_spawn_file_actions_t actions;
	char *argv[8] = { BENCH_ZE_CALLS };
	pid_t child;
	int status;

	for (size_t i = 0; arguments[i]; i++)
		argv[i + 1] = (char *)(uintptr_t)arguments[i];
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&child, argv[0], &actions, NULL, argv, environ) ||
	    waitpid(child, &status, 0) < 0 || status)
		bench_fail("%s %s failed", argv[0], argv[1]);
	posix_spawn_file_actions_destroy(&actions);
}

/* The median of a process's creations, in ns. */
static double create_modules(const char *driver, const char *store_url,
			     const char *spirv)
{
	char out[PATH_BYTES];
	const char *const arguments[] = { "time", out, spirv, MODULES, NULL };
	double ns[16];
	size_t n = 0;
	FILE *file;

	snprintf(out, sizeof(out), "%s/out", top);
	setenv("ZE_ENABLE_ALT_DRIVERS", driver, 1);
	setenv("KILN_STORE", store_url, 1);
	run_calls(arguments);
	file = fopen(out, "r");
	while (file && n < 16 && fscanf(file, "%lf", &ns[n]) == 1)
		n++;
	if (!n)
		bench_fail("no module was made");
	fclose(file);
	return bench_median(ns, n);
}

static void levelzero_group(void)
{
	const size_t n_rounds = bench.quick ? 1 : 3;
	struct side native = { 0 }, cold = { 0 }, warmed = { 0 };
	char spirv[PATH_BYTES], url[PATH_BYTES];
	const char *const arguments[] = { "spirv", spirv, NULL };

	setenv("HOME", top, 1);
	setenv("KILN_ZE_DRIVER", BENCH_ZE_STANDIN, 1);
	unsetenv("KILN_DISABLE");
	unsetenv("KILN_TEST_ZE_QUICK");
	unsetenv("XDG_CONFIG_HOME");
	snprintf(spirv, sizeof(spirv), "%s/add.spv", top);
	run_calls(arguments);
	for (size_t r = 0; r < n_rounds; r++) {
		snprintf(url, sizeof(url), "neo:%s/ze%zu", top, r);
		native.turns[r] = create_modules(BENCH_ZE_STANDIN, url, spirv);
		cold.turns[r] = create_modules(BENCH_ZE_PROXY, url, spirv);
		warmed.turns[r] = create_modules(BENCH_ZE_PROXY, url, spirv);
	}
	median_row("Level Zero module, warm", warmed.turns, n_rounds, 1e3,
		   "us");
	median_row("Level Zero module, cold", cold.turns, n_rounds, 1e3, "us");
	median_row("Level Zero module, native", native.turns, n_rounds, 1e3,
		   "us");
	ratio_row("Level Zero module, warm : cold", warmed.turns, cold.turns,
		  n_rounds, 0.05);
}

#else

static void levelzero_group(void)
{
	fprintf(stderr, "neo: no loader of Level Zero\n");
}

#endif

/* ---- All of it ------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	void (*run)(void);
} groups[] = {
	{ "stores", store_group },
	{ "lookups", lookup_group },
	{ "worst", worst_group },
	{ "levelzero", levelzero_group },
};

int main(int argc, char **argv)
{
	int status;

	memset(value, 'v', sizeof(value));
	bench_begin(&bench, argc, argv, "neo");
	snprintf(top, sizeof(top), "%s/kiln-bench-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
	if (!mkdtemp(top))
		bench_fail("%s: %s", top, strerror(errno));
	bench.directory = top;
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (bench_wants(&bench, groups[i].name))
			groups[i].run();
	status = bench_end(&bench);
	bench_remove_tree(top);
	return status;
}
