/* SPDX-License-Identifier: MIT */

/*
 * Hits in tables of a thousand and of a million entries: read only, with one
 * put (which replaces) after each 99 hits, and by Zipf's law.
 *
 * The tables are filled in another order than the one in which they are asked,
 * and all are open at once; their turns are interleaved, and each is read from
 * end to end before each of its turns.  Two threads walk the same items half
 * the way apart.  A ratio is of one round; the medians count.  The best peer is
 * the one whose median is lowest.  The last row of each kind is no peer's but
 * the floor: a compare of whole records, as the rules ask for, and nothing else.
 */

#include "memory_tables.h"

#include <math.h>
#include <stdio.h>

#include <kiln/kiln.h>

#include "tables.h"
#include "together.h"

#define ROUNDS_MAX    25
#define HITS_TO_A_PUT 99
#define ZIPF_POWER    0.99
#define VALUE_MAX     4096
#define FRAME_BYTES   18 /* of a key record around one field */

struct size {
	const char *name;
	size_t n_entries;
	size_t record_bytes;
	size_t value_bytes;
	size_t n_ops; /* of a thread in a turn */
	size_t n_rounds;
};

struct items {
	struct table_item *items; /* in the order of asking */
	size_t n;
};

struct side {
	const struct table *table;
	void *open;
	double turns[ROUNDS_MAX];
};

struct turn {
	const struct side *side;
	const struct size *size;
	const struct items *items;
	unsigned n_threads;
	int puts;
};

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
	random_state =
		random_state * 6364136223846793005u + 1442695040888963407u;
	return random_state >> 33;
}

/* ---- Items --------------------------------------------------------------- */

static struct kiln_key *make_key(uint64_t number, size_t record_bytes)
{
	struct kiln_key *key = kiln_key_new();
	char text[512];
	size_t size;

	memset(text, 'k', sizeof(text));
	memcpy(text, &number, sizeof(number));
	kiln_key_add(key, "source", text, record_bytes - FRAME_BYTES);
	if (kiln_key_finish(key))
		bench_fail("no key");
	kiln_key_record(key, &size);
	if (size != record_bytes)
		bench_fail("a record of %zu bytes", size);
	return key;
}

static struct items items_of(size_t n)
{
	struct items items = { calloc(n, sizeof(struct table_item)), n };

	if (!items.items)
		bench_fail("no memory");
	return items;
}

static struct items make_items(const struct size *size)
{
	struct items items = items_of(size->n_entries);

	for (size_t i = 0; i < items.n; i++) {
		struct kiln_key *key = make_key(i, size->record_bytes);

		memcpy(items.items[i].digest, kiln_key_digest(key), 16);
		items.items[i].key = key;
	}
	return items;
}

static void free_items(struct items *items)
{
	for (size_t i = 0; i < items->n; i++)
		kiln_key_free((struct kiln_key *)items->items[i].key);
	free(items->items);
}

/* As many draws from `items` as there are: the k-th is asked for as often as
   1 / k^ZIPF_POWER. */
static struct items draw_by_zipf(const struct items *items)
{
	struct items drawn = items_of(items->n);
	double *sums = calloc(items->n, sizeof(*sums)), sum = 0;

	if (!sums)
		bench_fail("no memory");
	for (size_t i = 0; i < items->n; i++)
		sums[i] = sum += pow((double)(i + 1), -ZIPF_POWER);
	for (size_t i = 0; i < items->n; i++) {
		double at = sum * (double)next_random() / 2147483648.0;
		size_t low = 0, high = items->n - 1;

		while (low < high) {
			size_t middle = (low + high) / 2;

			if (sums[middle] < at)
				low = middle + 1;
			else
				high = middle;
		}
		drawn.items[i] = items->items[low];
	}
	free(sums);
	return drawn;
}

/* ---- Tables -------------------------------------------------------------- */

/* A value that tells whose it is. */
static void put(const struct side *side, const struct items *items,
		const struct size *size, size_t i)
{
	unsigned char value[VALUE_MAX] = { 0 };

	memcpy(value, items->items[i].digest, 8);
	side->table->put(side->open, &items->items[i], value,
			 size->value_bytes);
}

static void enter(void *arg)
{
	const struct turn *turn = arg;

	if (turn->side->table->enter)
		turn->side->table->enter();
	/* A thread's first hit is dearer. */
	turn->side->table->hits(turn->side->open, turn->items->items, 1);
}

static void leave(void *arg)
{
	const struct turn *turn = arg;

	if (turn->side->table->leave)
		turn->side->table->leave();
}

static void check_in_thread(unsigned thread, void *arg)
{
	const struct turn *turn = arg;
	const struct table *table = turn->side->table;

	for (size_t i = 0; i < turn->items->n; i++) {
		const struct table_item *item = &turn->items->items[i];
		uint64_t first = table->look(turn->side->open, item);

		if (memcmp(&first, item->digest, sizeof(first)))
			bench_fail("%s: a wrong value", table->name);
	}
}

static void fill_in_thread(unsigned thread, void *arg)
{
	const struct turn *turn = arg;
	size_t n = turn->items->n, *order = calloc(n, sizeof(*order));

	if (!order)
		bench_fail("no memory");
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t i = n; i-- > 0;) {
		size_t j = next_random() % (i + 1), other = order[j];

		order[j] = order[i];
		put(turn->side, turn->items, turn->size, other);
	}
	free(order);
}

static void in_a_thread(struct turn *turn, void (*body)(unsigned, void *),
			int is_empty)
{
	(void)together_run(&(struct together){ .begin = is_empty ? NULL : enter,
					       .body = body,
					       .end = is_empty ? NULL : leave,
					       .arg = turn },
			   1);
}

/* ---- Turns --------------------------------------------------------------- */

/* n hits (and puts) from a place on, around and around. */
static void walk(unsigned thread, void *arg)
{
	const struct turn *turn = arg;
	const struct table *table = turn->side->table;
	const struct items *items = turn->items;
	size_t place = items->n / turn->n_threads * thread;
	size_t left = turn->size->n_ops;

	while (left) {
		size_t n = items->n - place < left ? items->n - place : left;

		if (turn->puts && n > HITS_TO_A_PUT)
			n = HITS_TO_A_PUT;
		table->hits(turn->side->open, &items->items[place], n);
		place = place + n == items->n ? 0 : place + n;
		left -= n;
		if (turn->puts && left) {
			put(turn->side, items, turn->size, place);
			left--;
		}
	}
}

static void read_all(unsigned thread, void *arg)
{
	const struct turn *turn = arg;

	turn->side->table->hits(turn->side->open, turn->items->items,
				turn->items->n);
}

/* Wall time for one operation, over all threads. */
static double take_turn(const struct side *side, const struct size *size,
			const struct items *all, const struct items *items,
			unsigned n_threads, int puts)
{
	struct turn turn = { .side = side,
			     .size = size,
			     .items = all,
			     .n_threads = n_threads,
			     .puts = puts };

	in_a_thread(&turn, read_all, 0);
	turn.items = items;
	return together_run(&(struct together){ .begin = enter,
						.body = walk,
						.end = leave,
						.arg = &turn },
			    n_threads) /
	       (double)(size->n_ops * n_threads);
}

static void rows(struct bench *bench, const char *name,
		 const struct side *sides, size_t n_sides, size_t n_rounds,
		 double bar)
{
	double medians[8], ratios[ROUNDS_MAX];
	size_t best = 1, i, r;
	char text[128];

	for (i = 0; i < n_sides; i++) {
		double turns[ROUNDS_MAX];

		memcpy(turns, sides[i].turns, sizeof(turns));
		medians[i] = bench_median(turns, n_rounds);
		snprintf(text, sizeof(text), "%s, %s", name,
			 sides[i].table->name);
		bench_row(bench, text, medians[i], "ns");
		if (i && i < n_sides - 1 && medians[i] < medians[best])
			best = i;
	}
	for (r = 0; r < n_rounds; r++)
		ratios[r] = sides[0].turns[r] / sides[best].turns[r];
	snprintf(text, sizeof(text), "a bare compare : best peer, %s", name);
	bench_row(bench, text, medians[n_sides - 1] / medians[best], "");
	snprintf(text, sizeof(text), "memory hit : best peer, %s", name);
	if (bar > 0)
		bench_row_bar(bench, text, bench_median(ratios, n_rounds), "",
			      bar, BENCH_LOWER);
	else
		bench_row(bench, text, bench_median(ratios, n_rounds), "");
}

static void group(struct bench *bench, struct size size, int has_zipf)
{
	struct side sides[] = {
		{ .table = &table_kiln },  { .table = &table_map },
		{ .table = &table_khash }, { .table = &table_lfht },
		{ .table = &table_tbb },   { .table = &table_cuckoo },
		{ .table = &table_bare }
	};
	static const struct {
		const char *name;
		unsigned n_threads;
		int puts;
		int is_zipf;
		double bar;
	} kinds[] = {
		{ "1 thread", 1, 0, 0, 0 },
		{ "2 threads", 2, 0, 0, 0.5 },
		{ "2 threads, 99/1", 2, 1, 0, 0 },
		{ "1 thread, zipf", 1, 0, 1, 0 },
		{ "2 threads, zipf", 2, 0, 1, 0 },
	};
	size_t n_sides = sizeof(sides) / sizeof(*sides), i, r;
	struct items all, zipf;
	char name[80];

	if (bench->quick) {
		size.n_entries = size.n_entries > 10000 ? 10000 : 1000;
		size.n_ops /= 100;
		size.n_rounds = 1;
	}
	all = make_items(&size);
	zipf = draw_by_zipf(&all);
	for (i = 0; i < n_sides; i++) {
		struct turn turn = { .side = &sides[i],
				     .size = &size,
				     .items = &all };

		sides[i].open = sides[i].table->open(size.n_entries);
		in_a_thread(&turn, fill_in_thread, 1);
		in_a_thread(&turn, check_in_thread, 0);
	}
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		if (kinds[k].is_zipf && !has_zipf)
			continue;
		for (r = 0; r < size.n_rounds; r++)
			for (i = 0; i < n_sides; i++)
				sides[i].turns[r] = take_turn(
					&sides[i], &size, &all,
					kinds[k].is_zipf ? &zipf : &all,
					kinds[k].n_threads, kinds[k].puts);
		snprintf(name, sizeof(name), "%s, %s", size.name,
			 kinds[k].name);
		rows(bench, name, sides, n_sides, size.n_rounds, kinds[k].bar);
	}
	for (i = 0; i < n_sides; i++)
		sides[i].table->close(sides[i].open);
	free(zipf.items);
	free_items(&all);
}

void memory_tables_1k(struct bench *bench)
{
	group(bench,
	      (struct size){ .name = "1k entries",
			     .n_entries = 1000,
			     .record_bytes = 200,
			     .value_bytes = 4096,
			     .n_ops = 2000000,
			     .n_rounds = 9 },
	      0);
}

void memory_tables_1m(struct bench *bench)
{
	group(bench,
	      (struct size){ .name = "1M entries",
			     .n_entries = 1000000,
			     .record_bytes = 128,
			     .value_bytes = 256,
			     .n_ops = 200000,
			     .n_rounds = 7 },
	      1);
}
