/* SPDX-License-Identifier: MIT */

/*
 * kiln in a directory of DPC++'s persistent cache against the original, whose
 * protocol is taken literally (tests/sycl/original.h), with eviction on: both
 * write times of access and cache_size.txt.
 *
 * Every entry has a binary of 4096 bytes, an image of 16384 that nobody else has,
 * and so three directories of its own; kiln keeps its key in kiln.records besides, but
 * for the image.  Keys are finished beforehand, by which kiln knows their digest; the
 * hashes of the directories are everybody's own affair.  So the time of a put leaves
 * out the digest of kiln's key, which there is once for look-up and store; that of
 * "with its key" has it.  Both sides lie in one
 * folder, of a file system in memory: ext4 spends nearly all the time on making
 * files, the more so where some were removed a moment ago.  Neither calls fsync; turns are interleaved, ratios are of one round,
 * medians count.  Groups by name: puts worst.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <kiln/kiln.h>

#include "bench.h"
#include "original.h"

#define VALUE_BYTES 4096
#define IMAGE_BYTES 16384
#define ROUNDS_MAX  7
/* What .bin and .src have beside their contents, and a time of access. */
#define BIN_HEADER 16
#define SRC_HEADER 32
#define USE_BYTES  19

static const char device[] =
	"Intel(R) oneAPI Unified Runtime over Level-Zero/Intel(R) Arc(TM) A770 "
	"Graphics/1.3/1.3.29735";
static const char options[] = "-cl-fast-relaxed-math";

static struct bench bench;
static char top[BENCH_FOLDER_BYTES]; /* the folder of everything */
static uint8_t value[VALUE_BYTES], image[IMAGE_BYTES];

/* ---- Both sides ---------------------------------------------------------------- */

enum who { KILN, KILN_ALONE, ORIGINAL, KILN_KEYED };

static const char *const names[] = {
	[KILN] = "kiln",
	[KILN_ALONE] = "kiln, where DPC++ does not look",
	[ORIGINAL] = "the original",
	[KILN_KEYED] = "kiln, with its key",
};

struct side {
	enum who who;
	struct kiln *kiln;
	char directory[300];
	uint64_t bytes_max;
	double turns[ROUNDS_MAX];
};

static void side_open(struct side *side, enum who who, uint64_t bytes_max)
{
	static unsigned number;
	struct kiln_options open_options;
	char url[320];

	side->who = who;
	side->kiln = NULL;
	side->bytes_max = bytes_max;
	snprintf(side->directory, sizeof(side->directory), "%s/%u", top,
		 number++);
	if (mkdir(side->directory, 0700))
		bench_fail("%s: %s", side->directory, strerror(errno));
	if (who == ORIGINAL)
		return;
	snprintf(url, sizeof(url), "sycl:%s", side->directory);
	kiln_options_init(&open_options);
	open_options.store_url = url;
	open_options.store_bytes_max = bytes_max;
	open_options.flags |= KILN_OPEN_NO_MEMORY;
	if (kiln_open(&open_options, &side->kiln) ||
	    kiln_store_status(side->kiln))
		bench_fail("kiln: no store");
}

/* Its files go with all others in the end. */
static void side_close(struct side *side)
{
	kiln_close(side->kiln);
	side->kiln = NULL;
}

/* What there is to number n. */
static void make_contents(uint64_t n)
{
	memcpy(value, &n, sizeof(n));
	memcpy(image, &n, sizeof(n));
}

static struct kiln_key *make_key(enum who who)
{
	struct kiln_key *key = kiln_key_new();

	if (who == KILN || who == KILN_KEYED) {
		kiln_key_add(key, "sycl.device", device, sizeof(device) - 1);
		kiln_key_add(key, "sycl.options", options, sizeof(options) - 1);
		kiln_key_add(key, "sycl.spec", "", 0);
		kiln_key_add(key, "sycl.image", image, sizeof(image));
	} else {
		kiln_key_add(key, "source", image, sizeof(image));
	}
	if (kiln_key_finish(key))
		bench_fail("no key");
	return key;
}

static struct original_key original_key_of(void)
{
	return (struct original_key){
		.device = { device, sizeof(device) - 1 },
		.options = { options, sizeof(options) - 1 },
		.spec = { "", 0 },
		.image = { image, sizeof(image) },
	};
}

static struct original original_of(const struct side *side)
{
	return (struct original){ .directory = side->directory,
				  .bytes_max = side->bytes_max };
}

static void put_by_kiln(struct side *side, const struct kiln_key *key)
{
	enum kiln_status status =
		kiln_put(side->kiln, key, value, sizeof(value), NULL, 0);

	if (status)
		bench_fail("kiln: put: %s", kiln_status_name(status));
}

/* In ns. */
static double timed_put(struct side *side, uint64_t n)
{
	const struct original_key original_key = original_key_of();
	const struct original original = original_of(side);
	struct kiln_key *key = NULL;
	uint64_t begin;
	double ns;

	make_contents(n);
	if (side->kiln && side->who != KILN_KEYED)
		key = make_key(side->who);
	begin = bench_now_ns();
	if (side->who == KILN_KEYED)
		key = make_key(side->who);
	if (side->kiln)
		put_by_kiln(side, key);
	else if (original_put(&original, &original_key, value, sizeof(value)))
		bench_fail("the original did not store");
	ns = (double)(bench_now_ns() - begin);
	kiln_key_free(key);
	return ns;
}

/* The sum; the worst of them too. */
static double timed_puts(struct side *side, size_t from, size_t to,
			 double *out_worst)
{
	double all = 0, worst = 0;

	for (size_t i = from; i < to; i++) {
		const double ns = timed_put(side, i);

		all += ns;
		if (ns > worst)
			worst = ns;
	}
	if (out_worst)
		*out_worst = worst;
	return all;
}

/* ---- Checking ------------------------------------------------------------------ */

static int is_found(const struct side *side, uint64_t n)
{
	const struct original_key original_key = original_key_of();
	const struct original original = { .directory = side->directory };
	struct kiln_blob *blob = NULL;
	struct kiln_key *key;
	void *bytes = NULL;
	size_t size = 0;
	int found, same;

	make_contents(n);
	if (side->kiln) {
		key = make_key(side->who);
		found = !kiln_get(side->kiln, key, &blob);
		kiln_key_free(key);
		size = found ? kiln_blob_size(blob) : 0;
	} else {
		bytes = original_get(&original, &original_key, &size);
		found = bytes != NULL;
	}
	same = found && size == sizeof(value) &&
	       !memcmp(blob ? kiln_blob_data(blob) : bytes, value, size);
	if (found && !same)
		bench_fail("%s: a wrong value", names[side->who]);
	kiln_blob_unref(blob);
	free(bytes);
	return found;
}

/* How many are there, none of them wrong. */
static size_t check(const struct side *side, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		found += (size_t)is_found(side, i);
	return found;
}

/* ---- Rows ------------------------------------------------------------------------ */

/* A bar of 0: none. */
static void ratio_row(const char *name, const double *a, const double *b,
		      size_t n_rounds, double bar)
{
	double ratios[ROUNDS_MAX], ratio;

	for (size_t r = 0; r < n_rounds; r++)
		ratios[r] = a[r] / b[r];
	ratio = bench_median(ratios, n_rounds);
	if (bar)
		bench_row_bar(&bench, name, ratio, "", bar, BENCH_LOWER);
	else
		bench_row(&bench, name, ratio, "");
}

static void median_row(const char *what, const struct side *side,
		       size_t n_rounds, double per, const char *unit)
{
	double copy[ROUNDS_MAX];
	char name[96];

	memcpy(copy, side->turns, n_rounds * sizeof(*copy));
	snprintf(name, sizeof(name), "%s, %s", what, names[side->who]);
	bench_row(&bench, name, bench_median(copy, n_rounds) / per, unit);
}

static void tell(size_t r, size_t n_rounds)
{
	fprintf(stderr, "sycl: round %zu of %zu\n", r + 1, n_rounds);
}

/* ---- Puts ---------------------------------------------------------------------------- */

/*
 * Into stores that have some, a few by turns, with a limit that is far away.  A
 * round is the median of these: the file system writes its journal when it likes,
 * for everybody.
 */
static void put_group(void)
{
	enum { STEP = 20, STEPS_MAX = 20, SIDES = 4 };
	const size_t before = bench.quick ? 20 : 100;
	const size_t n_steps = bench.quick ? 3 : STEPS_MAX;
	const size_t n_all = before + n_steps * STEP;
	const size_t n_rounds = bench.quick ? 1 : ROUNDS_MAX;
	static double turns[SIDES][STEPS_MAX];
	struct side sides[SIDES] = { 0 };
	size_t r, i, s;

	for (r = 0; r < n_rounds; r++) {
		tell(r, n_rounds);
		for (s = 0; s < SIDES; s++) {
			side_open(&sides[s], (enum who)s, (uint64_t)1 << 40);
			(void)timed_puts(&sides[s], 0, before, NULL);
		}
		for (i = 0; i < n_steps; i++)
			for (s = 0; s < SIDES; s++)
				turns[s][i] = timed_puts(
					&sides[s], before + i * STEP,
					before + (i + 1) * STEP, NULL);
		for (s = 0; s < SIDES; s++) {
			sides[s].turns[r] = bench_median(turns[s], n_steps);
			if (check(&sides[s], n_all) != n_all)
				bench_fail("not all are there");
			side_close(&sides[s]);
		}
	}
	for (s = 0; s < SIDES; s++)
		median_row("put of 4 KB", &sides[s], n_rounds, 1e3 * STEP,
			   "us");
	ratio_row("put of 4 KB : the original", sides[KILN].turns,
		  sides[ORIGINAL].turns, n_rounds, 1.1);
	ratio_row("put of 4 KB with its key : the original",
		  sides[KILN_KEYED].turns, sides[ORIGINAL].turns, n_rounds, 0);
}

/* ---- The worst single put ------------------------------------------------------------ */

/*
 * Both stores are full at 10k entries and get half as much again in each round, so
 * that each round has one eviction.  Kiln's worst put of all these to the one in
 * which the original evicts.  A store that is full to its limit for kiln, with its
 * records, may have evicted a few of the first n: 2 in 100 of them may be missing,
 * of the original's none.
 */
static void worst_group(void)
{
	const size_t n = bench.quick ? 300 : 10000;
	const size_t n_rounds = bench.quick ? 1 : 3, step = n / 2 + 2;
	const uint64_t entry_bytes = BIN_HEADER + VALUE_BYTES + SRC_HEADER +
				     sizeof(device) - 1 + sizeof(options) - 1 +
				     IMAGE_BYTES;
	struct side kiln = { 0 }, original = { 0 };
	struct kiln_key *key;
	size_t record_size, r;

	make_contents(0);
	key = make_key(KILN);
	(void)kiln_key_record(key, &record_size);
	kiln_key_free(key);
	/* With a name, and a gap where .src has the image. */
	record_size = 96 + 100 + record_size - IMAGE_BYTES + 8;
	record_size = (record_size + 7) & ~(size_t)7;
	/* Room for the records is kept twice. */
	side_open(&kiln, KILN, n * (entry_bytes + USE_BYTES + 2 * record_size));
	side_open(&original, ORIGINAL, n * entry_bytes);
	(void)timed_puts(&kiln, 0, n, NULL);
	(void)timed_puts(&original, 0, n, NULL);
	if (check(&kiln, n) < n - n / 50 || check(&original, n) != n)
		bench_fail("not all are there");
	for (r = 0; r < n_rounds; r++) {
		const size_t from = n + r * step;

		tell(r, n_rounds);
		(void)timed_puts(&kiln, from, from + step, &kiln.turns[r]);
		(void)timed_puts(&original, from, from + step,
				 &original.turns[r]);
		if (original_sum(original.directory) > original.bytes_max)
			bench_fail("the original is over its limit");
		if (original_sum(kiln.directory) > kiln.bytes_max)
			bench_fail("kiln is over its limit");
	}
	if (check(&kiln, n + n_rounds * step) < n / 3)
		bench_fail("kiln: too few are there");
	median_row("worst put at 10k entries", &kiln, n_rounds, 1e6, "ms");
	median_row("evicting put at 10k entries", &original, n_rounds, 1e6,
		   "ms");
	ratio_row("worst put at 10k entries : the original's evicting one",
		  kiln.turns, original.turns, n_rounds, 0.1);
	side_close(&kiln);
	side_close(&original);
}

int main(int argc, char **argv)
{
	int status;

	memset(value, 'v', sizeof(value));
	memset(image, 'i', sizeof(image));
	bench_begin(&bench, argc, argv, "sycl");
	bench_make_folder(top, (uint64_t)2 << 30);
	bench.directory = top;
	if (bench_wants(&bench, "puts"))
		put_group();
	if (bench_wants(&bench, "worst"))
		worst_group();
	status = bench_end(&bench);
	bench_remove_tree(top);
	return status;
}
