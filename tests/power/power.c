/* SPDX-License-Identifier: MIT */

/*
 * S12.  power KIND [--seeds N] [--seed S]
 *
 * A store lives on a disk whose power fails (power/disk.h), and again on what
 * is left of it, and once more.  After each loss: it opens, every key is a
 * miss, damaged, or has a value that was put for it before the power went;
 * every put succeeds and is found; the bound holds after the next rolls, and a
 * repair leaves nothing damaged.
 *
 * A case follows from its seed alone.  One that crashes, or hangs for a
 * minute, says its seed.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"
#include "power/disk.h"

#define BOUND	  ((uint64_t)2 << 20)
#define N_KEYS	  40
#define N_CHANGES 90
#define N_LOSSES  3 /* of the first life; one of each later */
#define N_LIVES	  3
#define HANG_S	  60

static const struct kind *kind;
static unsigned n_seeds = 16;
static uint64_t first_seed = 1;
static uint64_t seed; /* of this case */
static unsigned life;

/* ---- What was put ------------------------------------------------------------ */

struct put {
	unsigned time;
	unsigned n;
	size_t size;
};

struct history {
	struct put puts[N_LIVES * (N_CHANGES + N_KEYS)];
	unsigned n;
};

static void remember(struct history *history, unsigned time, unsigned n,
		     size_t size)
{
	if (history->n == sizeof(history->puts) / sizeof(history->puts[0]))
		abort();
	history->puts[history->n++] = (struct put){ time, n, size };
}

static int was_put(const struct history *history, unsigned n, size_t size)
{
	for (unsigned i = 0; i < history->n; i++)
		if (history->puts[i].n == n && history->puts[i].size == size)
			return 1;
	return 0;
}

/* What began after the power went never was. */
static struct history until(const struct history *history, unsigned time)
{
	struct history result = { .n = 0 };

	for (unsigned i = 0; i < history->n; i++)
		if (history->puts[i].time < time)
			remember(&result, 0, history->puts[i].n,
				 history->puts[i].size);
	return result;
}

/* ---- A life ------------------------------------------------------------------ */

static void complain(const char *what, unsigned n, int status)
{
	fail_msg("seed %llu, life %u: %s: entry %u, status %s (%d)",
		 (unsigned long long)seed, life, what, n,
		 kiln_status_name((enum kiln_status)status), status);
}

static struct kiln_tier *open_on(struct disk *disk)
{
	struct ki_store_options options = { .sys = &disk->sys,
					    .directory = disk->root,
					    .bytes_max = BOUND };
	struct kiln_tier *tier = NULL;
	enum kiln_status status = kind->open(&options, &tier);

	if (status)
		complain("does not open", 0, status);
	return tier;
}

/* The size of what was found, or 0. */
static size_t look(struct kiln_tier *tier, const struct history *history,
		   unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	struct kiln_blob *blob = NULL;
	enum kiln_status status = tier->ops->get(tier, key, &blob, NULL);
	size_t size = 0;

	kiln_key_free(key);
	if (status == KILN_MISS || status == KILN_E_FORMAT)
		return 0;
	if (status)
		complain("neither a hit nor a miss", n, status);
	size = kiln_blob_size(blob);
	if (!is_value_of(n, kiln_blob_data(blob), size))
		complain("wrong bytes", n, status);
	if (!was_put(history, n, size))
		complain("a value from nowhere", n, status);
	kiln_blob_unref(blob);
	return size;
}

static void look_at_all(struct kiln_tier *tier, const struct history *history)
{
	for (unsigned n = 0; n < N_KEYS; n++)
		(void)look(tier, history, n);
}

static void put(struct disk *disk, struct kiln_tier *tier,
		struct history *history, unsigned n, size_t size, int replaces)
{
	int status;

	remember(history, disk_now(disk), n, size);
	status = put_numbered(tier, n, size, replaces ? KILN_PUT_REPLACE : 0);
	if (status == KILN_E_COLLISION && kind->may_collide &&
	    life + 1 < N_LIVES)
		return;
	if (status && (replaces || status != KILN_EXISTS))
		complain("cannot be put", n, status);
	if (look(tier, history, n) != size && !status)
		complain("put, and not there", n, status);
}

static void erase(struct kiln_tier *tier, const struct history *history,
		  unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	enum kiln_status status = tier->ops->remove(tier, key);

	kiln_key_free(key);
	if (status && status != KILN_MISS)
		complain("cannot be removed", n, status);
	if (look(tier, history, n))
		complain("removed, and still there", n, status);
}

static size_t draw_size(uint64_t *random)
{
	static const size_t most[] = { 60, 600, 3000, 9000, 9000, 70000 };
	size_t i = harness_random(random) % (sizeof(most) / sizeof(most[0]));

	return 8 + (size_t)(harness_random(random) % most[i]);
}

static struct kiln_tier *change(struct disk *disk, struct kiln_tier *tier,
				struct history *history, uint64_t *random)
{
	unsigned n = (unsigned)(harness_random(random) % N_KEYS);
	enum kiln_status status;

	switch (harness_random(random) % 32) {
	case 0:
		tier->ops->close(tier);
		return open_on(disk);
	case 1:
		status = tier->ops->wipe(tier);
		if (status)
			complain("cannot be wiped", 0, status);
		return tier;
	case 2:
	case 3:
	case 4:
	case 5:
		erase(tier, history, n);
		return tier;
	case 6:
	case 7:
	case 8:
		(void)look(tier, history, n);
		return tier;
	default:
		put(disk, tier, history, n, draw_size(random),
		    harness_random(random) % 3 == 0);
		return tier;
	}
}

/* Of what is left some may have no record, but a name. */
static void evict_all(struct kiln_tier *tier)
{
	const struct kiln_gc_options options = { .bytes_max = 1 };
	struct kiln_gc_report report;
	enum kiln_status status =
		tier->ops->gc(tier, &options, NULL, NULL, &report);

	if (status)
		complain("cannot be evicted", 0, status);
}

/* The store does all that it did before. */
static void prove(struct disk *disk, struct kiln_tier *tier,
		  struct history *history)
{
	struct kiln_verify_report report;
	struct kiln_store_info info;
	enum kiln_status status = tier->ops->verify(tier, KILN_VERIFY_REPAIR,
						    NULL, NULL, &report);

	if (status || report.n_repaired != report.n_damaged)
		complain("cannot be repaired", 0, status);
	status = tier->ops->verify(tier, 0, NULL, NULL, &report);
	if (status || report.n_damaged)
		complain("damaged after its repair", 0, status);
	if (kind->may_collide)
		evict_all(tier);
	for (unsigned n = 0; n < N_KEYS; n++)
		put(disk, tier, history, n, 60000 - n, 1);
	status = tier->ops->info(tier, &info);
	if (status || info.bytes > BOUND)
		complain("passes its bound", 0, status);
	if (look(tier, history, N_KEYS - 1) != 60000 - (N_KEYS - 1))
		complain("the newest is gone", N_KEYS - 1, 0);
}

static void live(char *directory, const struct history *before,
		 uint64_t *random)
{
	struct history history = *before;
	unsigned n_losses = life ? 1 : N_LOSSES;
	struct kiln_tier *tier;
	struct disk disk;

	alarm(HANG_S);
	disk_begin(&disk, directory, life, harness_random(random));
	tier = open_on(&disk);
	look_at_all(tier, &history);
	if (life + 1 == N_LIVES) {
		prove(&disk, tier, &history);
		n_losses = 0;
	}
	for (unsigned i = 0; n_losses && i < N_CHANGES; i++)
		tier = change(&disk, tier, &history, random);
	look_at_all(tier, &history);
	for (unsigned i = 0; i < n_losses; i++) {
		struct history left;
		char *rest;

		assert_true(asprintf(&rest, "%s.%u", directory, i) > 0);
		left = until(&history, disk_power_off(&disk, random, rest));
		life++;
		live(rest, &left, random);
		life--;
		free(rest);
	}
	tier->ops->close(tier);
	disk_end(&disk);
	harness_remove(directory);
}

/* ---- Begin ------------------------------------------------------------------- */

static void name_the_case(int number)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "# seed %llu: signal %d\n",
			 (unsigned long long)seed, number);

	(void)!write(STDOUT_FILENO, text, (size_t)n);
	signal(number, SIG_DFL);
	raise(number);
}

static void what_is_left_is_right_and_in_use(void **state)
{
	const struct history nothing = { .n = 0 };
	char *place = harness_directory();
	char *directory = harness_path(place, "store");

	for (seed = first_seed; seed < first_seed + n_seeds; seed++) {
		uint64_t random = seed;

		harness_progress("seeds", seed - first_seed, n_seeds);
		assert_int_equal(mkdir(directory, 0700), 0);
		live(directory, &nothing, &random);
	}
	harness_progress_end();
	alarm(0);
	free(directory);
	free(place);
}

static int read_arguments(int argc, char **argv)
{
	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	for (int i = 2; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seeds"))
			n_seeds = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--seed"))
			first_seed = strtoull(argv[i + 1], NULL, 10);
		else
			return 0;
	}
	return kind && kind->persists;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_left_is_right_and_in_use),
	};
	static const int signals[] = { SIGALRM, SIGBUS, SIGABRT };

	if (!read_arguments(argc, argv)) {
		fprintf(stderr, "usage: power KIND [--seeds N] [--seed S]\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], name_the_case);
	return _cmocka_run_group_tests(kind->name, tests, 1, NULL, NULL);
}
