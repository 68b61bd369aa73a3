/* SPDX-License-Identifier: MIT */

/*
 * kiln's native store against others (peers.h): hits, puts, evicting puts,
 * many processes, opening, space.
 *
 * Every entry has a key record of 512 bytes that is compared at each hit, so
 * "4 KB" is 4096 + 512.  Turns of the stores are interleaved, each store is
 * read from end to end before each of its turns (page cache that idles goes),
 * ratios are of one round, and medians count.  A name as argument runs only
 * the groups that begin with it: hits puts evicting many crowd follow open
 * million space.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "bench.h"
#include "peers.h"

#define RECORD_BYTES	   512
#define SMALL_RECORD_BYTES 128
#define VALUE_BYTES_MAX	   ((size_t)1 << 20)
#define ROUNDS_MAX	   9
#define PEERS_MAX	   9
#define PROCESSES_MAX	   8

static struct bench bench;
static char top[256]; /* the folder of all stores */
static uint8_t *values;
static uint8_t *buffer;

/* ---- Items ------------------------------------------------------------------ */

struct items {
	struct item *items;
	size_t n;
};

static struct kiln_key *make_key(uint64_t number, size_t record_size)
{
	struct kiln_key *key = kiln_key_new();
	char text[RECORD_BYTES];
	size_t size;

	memset(text, 'k', sizeof(text));
	memcpy(text, &number, sizeof(number));
	kiln_key_add(key, "source", text, record_size - 18);
	if (kiln_key_finish(key))
		bench_fail("no key");
	kiln_key_record(key, &size);
	if (size != record_size)
		bench_fail("a record of %zu bytes", size);
	return key;
}

/* Items of the numbers first, first + 1, ... */
static struct items items_new(uint64_t first, size_t n, size_t record_size)
{
	struct items items = { calloc(n, sizeof(struct item)), n };
	size_t i;

	if (!items.items)
		bench_fail("no memory");
	for (i = 0; i < n; i++) {
		struct kiln_key *key = make_key(first + i, record_size);
		struct item *item = &items.items[i];

		item->key = key;
		item->digest = kiln_key_digest(key);
		item->record = kiln_key_record(key, &item->record_size);
		item->place = i;
	}
	return items;
}

static void items_free(struct items *items)
{
	size_t i;

	for (i = 0; i < items->n; i++)
		kiln_key_free(items->items[i].key);
	free(items->items);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* A value that tells which item's it is. */
static const void *value_of(size_t i)
{
	memcpy(values, &i, sizeof(i));
	return values;
}

/* Log-uniform from 1 to 500 KB. */
static size_t mixed_size(size_t i)
{
	uint64_t state = i + 1;
	unsigned doublings;
	size_t size;

	(void)next_random(&state);
	doublings = (unsigned)(next_random(&state) % 9);
	size = (size_t)1024 << doublings;
	size += next_random(&state) % size;
	return size > 500 * 1024 ? 500 * 1024 : size;
}

static size_t size_of(size_t i, size_t value_size)
{
	return value_size ? value_size : mixed_size(i);
}

/* ---- Folders ------------------------------------------------------------------ */

/* Read what there is of a file; LMDB's is as long as its map and mostly hole. */
static void read_through(int fd)
{
	off_t at = 0, end;

	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		while (at < end) {
			size_t part = end - at < (off_t)VALUE_BYTES_MAX
					      ? (size_t)(end - at)
					      : VALUE_BYTES_MAX;
			ssize_t n = pread(fd, buffer, part, at);

			if (n <= 0)
				return;
			at += n;
		}
	}
}

/* Read every file to its end. */
static void warm(const char *path)
{
	struct dirent *entry;
	char below[512];
	DIR *dir = opendir(path);
	int fd;

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		if (entry->d_type == DT_DIR) {
			warm(below);
			continue;
		}
		fd = open(below, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		read_through(fd);
		close(fd);
	}
	if (dir)
		closedir(dir);
}

/* ---- Stores ------------------------------------------------------------------- */

struct side {
	const struct peer *peer;
	unsigned flags;
	void *store;
	char directory[300];
	double turns[ROUNDS_MAX];
	double worst[ROUNDS_MAX];
};

static void side_open(struct side *side, uint64_t bytes_max, unsigned flags)
{
	static unsigned number;

	snprintf(side->directory, sizeof(side->directory), "%s/%u", top,
		 number++);
	if (mkdir(side->directory, 0700))
		bench_fail("%s: %s", side->directory, strerror(errno));
	side->store = side->peer->open(side->directory, bytes_max,
				       side->flags | flags);
}

/* As a new process would find it. */
static void side_reopen(struct side *side)
{
	side->peer->close(side->store);
	side->store = side->peer->open(side->directory, 0, side->flags);
}

static void side_close(struct side *side)
{
	side->peer->close(side->store);
	bench_remove_tree(side->directory);
}

static void fill(struct side *side, const struct items *items, size_t from,
		 size_t to, size_t value_size)
{
	size_t i;

	for (i = from; i < to; i++)
		side->peer->put(side->store, &items->items[i], value_of(i),
				size_of(i, value_size));
}

/* Whether what is there is right, and that all (`n_min`) is there. */
static void check(struct side *side, const struct items *items, size_t n,
		  size_t n_min, size_t value_size)
{
	size_t i, found = 0, told;

	for (i = 0; i < n; i++) {
		size_t size = side->peer->get(side->store, &items->items[i],
					      buffer, VALUE_BYTES_MAX);

		if (!size)
			continue;
		memcpy(&told, buffer, sizeof(told));
		if (size != size_of(i, value_size) || told != i)
			bench_fail("%s: a wrong value", side->peer->name);
		found++;
	}
	if (found < n_min)
		bench_fail("%s: %zu of %zu are there", side->peer->name, found,
			   n);
}

/* ---- Rows ------------------------------------------------------------------- */

static const char *label(const struct side *side)
{
	if (side->flags & STORE_MEMORY)
		return "kiln behind its memory";
	return side->flags & STORE_READS ? "kiln by pread" : side->peer->name;
}

static void rows_of(const char *what, struct side *sides, size_t n_sides,
		    size_t n_rounds, const char *unit)
{
	char name[128];
	size_t i;

	for (i = 0; i < n_sides; i++) {
		double copy[ROUNDS_MAX];

		memcpy(copy, sides[i].turns, sizeof(copy));
		snprintf(name, sizeof(name), "%s, %s", what, label(&sides[i]));
		bench_row(&bench, name, bench_median(copy, n_rounds), unit);
	}
}

/* kiln (the first side) to a peer. */
static void ratio(const char *what, struct side *sides, size_t n_sides,
		  size_t n_rounds, const struct peer *peer, double bar,
		  enum bench_better better)
{
	double ratios[ROUNDS_MAX];
	char name[128];
	size_t i, r;

	for (i = 0; i < n_sides && sides[i].peer != peer; i++)
		;
	if (i == n_sides)
		return;
	for (r = 0; r < n_rounds; r++)
		ratios[r] = sides[0].turns[r] / sides[i].turns[r];
	snprintf(name, sizeof(name), "%s : %s", what, peer->name);
	bench_row_bar(&bench, name, bench_median(ratios, n_rounds), "", bar,
		      better);
}

/* ---- Hits ------------------------------------------------------------------- */

enum hit { COPY, VIEW, MISS };

/*
 * Who looks up a key has just made it: its bytes are in the processor's caches.
 * So some keys at a time are read before the clock runs.
 */
#define AT_A_TIME 16

static void bring_key(const struct item *item)
{
	size_t at;

	(void)*(const volatile uint8_t *)item->digest;
	(void)*(const volatile uint8_t *)item->key;
	for (at = 0; at < item->record_size; at += 64)
		(void)*(const volatile uint8_t *)&item->record[at];
}

static void choose(const struct items *of, uint64_t *state,
		   const struct item *chosen[AT_A_TIME])
{
	size_t i;

	for (i = 0; i < AT_A_TIME; i++) {
		chosen[i] = &of->items[next_random(state) % of->n];
		bring_key(chosen[i]);
	}
}

static void hit(struct side *side, const struct item *item, enum hit what)
{
	if (what == VIEW) {
		if (side->peer->view(side->store, item) < 0)
			bench_fail("%s: no hit", side->peer->name);
	} else if (!side->peer->get(side->store, item, buffer,
				    VALUE_BYTES_MAX) != (what == MISS)) {
		bench_fail("%s: hit and miss", side->peer->name);
	}
}

static double hits(struct side *side, const struct items *items,
		   const struct items *absent, enum hit what, size_t n_ops)
{
	const struct items *of = what == MISS ? absent : items;
	const struct item *chosen[AT_A_TIME];
	uint64_t state = 7, start, ns = 0;
	size_t done, i;

	warm(side->directory);
	for (done = 0; done < n_ops; done += AT_A_TIME) {
		choose(of, &state, chosen);
		start = bench_now_ns();
		for (i = 0; i < AT_A_TIME; i++)
			hit(side, chosen[i], what);
		ns += bench_now_ns() - start;
	}
	return (double)ns / (double)done;
}

/* A copy of each item once, in an order that no processor guesses. */
static double each_once(struct side *side, const struct items *items)
{
	enum { STEP = 7919 }; /* a prime: every item's turn comes */
	const struct item *chosen[AT_A_TIME];
	uint64_t start, ns = 0;
	size_t done, i, n;

	warm(side->directory);
	for (done = 0; done < items->n; done += n) {
		n = items->n - done < AT_A_TIME ? items->n - done : AT_A_TIME;
		for (i = 0; i < n; i++) {
			chosen[i] = &items->items[(done + i) * STEP % items->n];
			bring_key(chosen[i]);
		}
		start = bench_now_ns();
		for (i = 0; i < n; i++)
			hit(side, chosen[i], COPY);
		ns += bench_now_ns() - start;
	}
	return (double)ns / (double)items->n;
}

/* Every record's checksum is verified at its first hit: not to be timed. */
static void hit_all(struct side *side, const struct items *items)
{
	size_t i;

	for (i = 0; i < items->n; i++)
		(void)side->peer->get(side->store, &items->items[i], buffer,
				      VALUE_BYTES_MAX);
}

/* How far down the ratio to LMDB could go at all. */
static void to_bare(const char *what, struct side *sides, size_t n_sides,
		    size_t n_rounds)
{
	const struct side *lmdb = NULL, *bare = NULL;
	double ratios[ROUNDS_MAX];
	char name[128];
	size_t i;

	for (i = 0; i < n_sides; i++) {
		lmdb = sides[i].peer == &peer_lmdb ? &sides[i] : lmdb;
		bare = sides[i].peer == &peer_bare ? &sides[i] : bare;
	}
	if (!lmdb || !bare)
		return;
	for (i = 0; i < n_rounds; i++)
		ratios[i] = bare->turns[i] / lmdb->turns[i];
	snprintf(name, sizeof(name), "%s, %s : LMDB", what, bare->peer->name);
	bench_row(&bench, name, bench_median(ratios, n_rounds), "");
}

static void hit_group(size_t value_size, size_t n, size_t n_ops)
{
	static const struct {
		enum hit what;
		const char *name;
	} whats[] = { { COPY, "hit, copy" },
		      { VIEW, "hit, view" },
		      { MISS, "miss" } };
	struct side sides[] = {
		{ .peer = &peer_kiln },	   { .peer = &peer_lmdb },
		{ .peer = &peer_neo },	   { .peer = &peer_plain },
		{ .peer = &peer_sycl },	   { .peer = &peer_sqlite },
		{ .peer = &peer_rocksdb }, { .peer = &peer_tkrzw },
		{ .peer = &peer_bare },
	};
	size_t n_sides = sizeof(sides) / sizeof(*sides), i, r, w;
	size_t n_rounds = bench.quick ? 1 : 7;
	struct items items = items_new(0, n, RECORD_BYTES);
	struct items absent = items_new(1 << 30, n, RECORD_BYTES);
	int is_small = value_size == 4096;
	char name[64];

	for (i = 0; i < n_sides; i++) {
		side_open(&sides[i], 0, 0);
		fill(&sides[i], &items, 0, n, value_size);
		check(&sides[i], &items, n, n, value_size);
	}
	for (w = 0; w < 3; w++) {
		struct side *some[PEERS_MAX], kept[PEERS_MAX];
		size_t n_some = 0;

		for (i = 0; i < n_sides; i++)
			if ((whats[w].what != VIEW || sides[i].peer->view) &&
			    (whats[w].what != MISS ||
			     sides[i].peer != &peer_bare))
				some[n_some++] = &sides[i];
		for (r = 0; r < n_rounds; r++)
			for (i = 0; i < n_some; i++) {
				hit_all(some[i], &items);
				/* The quick ones for long enough, too. */
				some[i]->turns[r] = hits(
					some[i], &items, &absent, whats[w].what,
					some[i]->peer->view ? 10 * n_ops
							    : n_ops);
			}
		for (i = 0; i < n_some; i++)
			kept[i] = *some[i];
		snprintf(name, sizeof(name), "%zu KB %s", value_size / 1024,
			 whats[w].name);
		rows_of(name, kept, n_some, n_rounds, "ns");
		if (whats[w].what == COPY) {
			ratio(name, kept, n_some, n_rounds, &peer_lmdb,
			      is_small ? 0.60 : 0.90, BENCH_LOWER);
			to_bare(name, kept, n_some, n_rounds);
			if (is_small)
				ratio(name, kept, n_some, n_rounds, &peer_neo,
				      0.12, BENCH_LOWER);
		} else if (whats[w].what == VIEW) {
			ratio(name, kept, n_some, n_rounds, &peer_lmdb, 0.40,
			      BENCH_LOWER);
			to_bare(name, kept, n_some, n_rounds);
		} else if (is_small) {
			ratio(name, kept, n_some, n_rounds, &peer_lmdb, 0.20,
			      BENCH_LOWER);
		}
	}
	for (i = 0; i < n_sides; i++)
		side_close(&sides[i]);
	items_free(&items);
	items_free(&absent);
}

/*
 * What a program that has just begun meets: the first hit of each key, which
 * verifies its checksum and leaves it in memory, and what is left of a look-up
 * once it is there.
 */
static void first_group(void)
{
	enum { N = 10000 };
	struct side sides[] = {
		{ .peer = &peer_kiln, .flags = STORE_MEMORY },
		{ .peer = &peer_kiln },
		{ .peer = &peer_lmdb },
	};
	size_t n_sides = sizeof(sides) / sizeof(*sides), i, r;
	size_t n_rounds = bench.quick ? 1 : 7;
	struct items items = items_new(0, N, RECORD_BYTES);
	double ratios[ROUNDS_MAX], again[ROUNDS_MAX];

	for (i = 0; i < n_sides; i++) {
		side_open(&sides[i], 0, 0);
		fill(&sides[i], &items, 0, N, 4096);
		check(&sides[i], &items, N, N, 4096);
	}
	for (r = 0; r < n_rounds; r++) {
		for (i = 0; i < n_sides; i++) {
			side_reopen(&sides[i]);
			sides[i].turns[r] = each_once(&sides[i], &items);
		}
		again[r] = each_once(&sides[0], &items);
		ratios[r] = sides[0].turns[r] / sides[2].turns[r];
	}
	rows_of("4 KB first hit, copy", sides, n_sides, n_rounds, "ns");
	bench_row(&bench, "4 KB first hit, copy : LMDB",
		  bench_median(ratios, n_rounds), "");
	bench_row(&bench, "4 KB second hit, copy, kiln behind its memory",
		  bench_median(again, n_rounds), "ns");
	for (i = 0; i < n_sides; i++)
		side_close(&sides[i]);
	items_free(&items);
}

/* kiln by pread against pread itself: the same bytes of one cached file. */
static void pread_group(void)
{
	enum { N = 10000, WHOLE = 4096 + RECORD_BYTES };
	struct side side = { .peer = &peer_kiln, .flags = STORE_READS };
	size_t n_rounds = bench.quick ? 1 : 7, n_ops = 20000, r, i;
	struct items items = items_new(0, N, RECORD_BYTES);
	double raw[ROUNDS_MAX], ratios[ROUNDS_MAX];
	char path[300];
	int fd;

	side_open(&side, 0, 0);
	fill(&side, &items, 0, N, 4096);
	check(&side, &items, N, N, 4096);
	snprintf(path, sizeof(path), "%s/raw", top);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (i = 0; i < N; i++)
		if (pwrite(fd, values, WHOLE, (off_t)(i * WHOLE)) != WHOLE)
			bench_fail("raw file");
	for (r = 0; r < n_rounds; r++) {
		uint64_t state = 7, start;

		hit_all(&side, &items);
		side.turns[r] = hits(&side, &items, NULL, COPY, n_ops);
		for (i = 0; i < N; i++)
			if (pread(fd, buffer, WHOLE, (off_t)(i * WHOLE)) < 0)
				bench_fail("raw file");
		start = bench_now_ns();
		for (i = 0; i < n_ops; i++) {
			off_t at = (off_t)(next_random(&state) % N * WHOLE);

			if (pread(fd, buffer, WHOLE, at) != WHOLE)
				bench_fail("raw file");
		}
		raw[r] = (double)(bench_now_ns() - start) / (double)n_ops;
		ratios[r] = side.turns[r] / raw[r];
	}
	close(fd);
	unlink(path);
	rows_of("4 KB hit, copy", &side, 1, n_rounds, "ns");
	bench_row(&bench, "raw pread of 4.5 KB", bench_median(raw, n_rounds),
		  "ns");
	bench_row_bar(&bench, "4 KB hit by pread : raw pread",
		      bench_median(ratios, n_rounds), "", 1.5, BENCH_LOWER);
	side_close(&side);
	items_free(&items);
}

/* ---- Puts -------------------------------------------------------------------- */

static double timed_fill(struct side *side, const struct items *items,
			 size_t from, size_t to, size_t value_size,
			 double *out_worst)
{
	uint64_t begin = bench_now_ns(), last = begin, now, worst = 0;
	size_t i;

	for (i = from; i < to; i++) {
		side->peer->put(side->store, &items->items[i], value_of(i),
				size_of(i, value_size));
		now = bench_now_ns();
		if (now - last > worst)
			worst = now - last;
		last = now;
	}
	if (out_worst)
		*out_worst = (double)worst / 1e6;
	return (double)(last - begin) / 1e3 / (double)(to - from);
}

static void put_group(const char *name, size_t value_size, size_t n,
		      double lmdb_bar, double neo_bar)
{
	struct side sides[] = {
		{ .peer = &peer_kiln },	   { .peer = &peer_lmdb },
		{ .peer = &peer_neo },	   { .peer = &peer_plain },
		{ .peer = &peer_sycl },	   { .peer = &peer_sqlite },
		{ .peer = &peer_rocksdb }, { .peer = &peer_tkrzw },
	};
	size_t n_sides = sizeof(sides) / sizeof(*sides), i, r;
	size_t n_rounds = bench.quick ? 1 : 5;
	struct items items = items_new(0, n, RECORD_BYTES);

	for (r = 0; r < n_rounds; r++)
		for (i = 0; i < n_sides; i++) {
			side_open(&sides[i], 0, 0);
			sides[i].turns[r] = timed_fill(&sides[i], &items, 0, n,
						       value_size, NULL);
			if (!r)
				check(&sides[i], &items, n, n, value_size);
			side_close(&sides[i]);
		}
	rows_of(name, sides, n_sides, n_rounds, "us");
	if (lmdb_bar > 0)
		ratio(name, sides, n_sides, n_rounds, &peer_lmdb, lmdb_bar,
		      BENCH_LOWER);
	if (neo_bar > 0)
		ratio(name, sides, n_sides, n_rounds, &peer_neo, neo_bar,
		      BENCH_LOWER);
	items_free(&items);
}

/* ---- Evicting puts -------------------------------------------------------------- */

/* A store that is full and then gets as much again. */
static void evicting_group(const char *name, size_t value_size, size_t n,
			   size_t n_rounds, int has_worst)
{
	struct side sides[] = { { .peer = &peer_kiln },
				{ .peer = &peer_lmdb },
				{ .peer = &peer_neo } };
	/* NEO's scans take minutes where there is much. */
	size_t n_sides = n > 20000 ? 2 : 3, i, r;
	struct items items = items_new(0, 2 * n, RECORD_BYTES);
	uint64_t bytes_max = 0;
	char text[128];

	if (bench.quick)
		n_rounds = 1;
	for (i = 0; i < n; i++)
		bytes_max += size_of(i, value_size) + RECORD_BYTES;
	for (r = 0; r < n_rounds; r++)
		for (i = 0; i < n_sides; i++) {
			side_open(&sides[i], bytes_max, STORE_EVICTS);
			fill(&sides[i], &items, 0, n, value_size);
			warm(sides[i].directory);
			sides[i].turns[r] =
				timed_fill(&sides[i], &items, n, 2 * n,
					   value_size, &sides[i].worst[r]);
			check(&sides[i], &items, 2 * n, n / 3, value_size);
			side_close(&sides[i]);
		}
	rows_of(name, sides, n_sides, n_rounds, "us");
	ratio(name, sides, n_sides, n_rounds, &peer_lmdb, 1.0, BENCH_LOWER);
	if (has_worst) {
		snprintf(text, sizeof(text), "%s, worst single", name);
		bench_row_bar(&bench, text,
			      bench_median(sides[0].worst, n_rounds), "ms", 5,
			      BENCH_LOWER);
		snprintf(text, sizeof(text), "%s, worst single, LMDB", name);
		bench_row(&bench, text, bench_median(sides[1].worst, n_rounds),
			  "ms");
	}
	items_free(&items);
}

/* ---- Many processes -------------------------------------------------------------- */

#define MANY_OPS   40000
#define MANY_ITEMS 10000

struct start {
	_Atomic int n_ready;
	_Atomic int go;
};

/* In a process of its own: 19 gets, one put of its own, and so on. */
static void take_part(struct side *side, const struct items *items,
		      unsigned process, struct start *start)
{
	size_t n_puts = MANY_OPS / 20, i, n_missed = 0;
	struct items own =
		items_new(((uint64_t)process + 1) << 32, n_puts, RECORD_BYTES);
	uint64_t state = process + 1;
	void *store = side->peer->open(side->directory, 0, side->flags);

	for (i = 0; i < items->n; i++)
		(void)side->peer->get(store, &items->items[i], buffer,
				      VALUE_BYTES_MAX);
	start->n_ready++;
	while (!start->go)
		;
	for (i = 0; i < MANY_OPS; i++) {
		if (i % 20)
			n_missed += !side->peer->get(
				store,
				&items->items[next_random(&state) % items->n],
				buffer, VALUE_BYTES_MAX);
		else
			side->peer->put(store, &own.items[i / 20], values,
					4096);
	}
	if (n_missed)
		bench_fail("%s: %zu misses", side->peer->name, n_missed);
	_exit(0);
}

/* Operations per second of all together. */
static double together(struct side *side, const struct items *items,
		       unsigned n_processes)
{
	struct start *start = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[PROCESSES_MAX];
	uint64_t begin;
	unsigned i;
	int status;

	if (start == MAP_FAILED)
		bench_fail("no memory");
	warm(side->directory);
	for (i = 0; i < n_processes; i++) {
		children[i] = fork();
		if (children[i] < 0)
			bench_fail("no process");
		if (!children[i])
			take_part(side, items, i, start);
	}
	while (start->n_ready < (int)n_processes)
		usleep(1000);
	begin = bench_now_ns();
	start->go = 1;
	for (i = 0; i < n_processes; i++)
		if (waitpid(children[i], &status, 0) < 0 || status)
			bench_fail("%s: a process failed", side->peer->name);
	munmap(start, 4096);
	return (double)n_processes * MANY_OPS * 1e9 /
	       (double)(bench_now_ns() - begin);
}

static void many_group(unsigned n_processes, double bar)
{
	struct side sides[] = { { .peer = &peer_kiln },
				{ .peer = &peer_lmdb },
				{ .peer = &peer_neo } };
	size_t n_rounds = bench.quick ? 1 : 5, i, r;
	struct items items = items_new(0, MANY_ITEMS, RECORD_BYTES);
	char name[64];

	for (r = 0; r < n_rounds; r++)
		for (i = 0; i < 3; i++) {
			side_open(&sides[i], 0, 0);
			fill(&sides[i], &items, 0, MANY_ITEMS, 4096);
			/* LMDB must not be open across fork(). */
			sides[i].peer->close(sides[i].store);
			sides[i].turns[r] =
				together(&sides[i], &items, n_processes);
			bench_remove_tree(sides[i].directory);
		}
	snprintf(name, sizeof(name), "95/5, %u processes", n_processes);
	rows_of(name, sides, 3, n_rounds, "/s");
	ratio(name, sides, 3, n_rounds, &peer_lmdb, bar, BENCH_HIGHER);
	items_free(&items);
}

/* ---- Gets in a crowd ------------------------------------------------------------- */

/* S27: what a get lasts while as many as can be put into a full store. */
#define CROWD_PROCESSES 8
#define CROWD_GETS	20000
#define CROWD_ITEMS	2000

struct crowd {
	struct start start;
	unsigned n_gets; /* of each process */
	double ns[];	 /* of all gets */
};

static void get_in_crowd(struct side *side, const struct items *items,
			 unsigned process, int puts_too, struct crowd *crowd)
{
	struct items own = items_new(((uint64_t)process + 1) << 32,
				     crowd->n_gets / 4, RECORD_BYTES);
	double *ns = crowd->ns + (size_t)process * crowd->n_gets;
	void *store = side->peer->open(side->directory, 0, side->flags);
	uint64_t state = process + 1, begin;
	size_t i;

	crowd->start.n_ready++;
	while (!crowd->start.go)
		;
	for (i = 0; i < crowd->n_gets; i++) {
		if (puts_too && i % 4 == 0)
			side->peer->put(store, &own.items[i / 4], values, 4096);
		begin = bench_now_ns();
		(void)side->peer->get(
			store, &items->items[next_random(&state) % items->n],
			buffer, VALUE_BYTES_MAX);
		ns[i] = (double)(bench_now_ns() - begin);
	}
	_exit(0);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The 99th of 100 gets, in us. */
static double slow_get(struct side *side, const struct items *items,
		       int puts_too)
{
	unsigned n_gets = bench.quick ? 1000 : CROWD_GETS, i;
	size_t n = (size_t)CROWD_PROCESSES * n_gets;
	size_t size = sizeof(struct crowd) + n * sizeof(double);
	struct crowd *crowd = mmap(NULL, size, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[CROWD_PROCESSES];
	double p99;
	int status;

	if (crowd == MAP_FAILED)
		bench_fail("no memory");
	crowd->n_gets = n_gets;
	for (i = 0; i < CROWD_PROCESSES; i++) {
		children[i] = fork();
		if (children[i] < 0)
			bench_fail("no process");
		if (!children[i])
			get_in_crowd(side, items, i, puts_too, crowd);
	}
	while (crowd->start.n_ready < CROWD_PROCESSES)
		usleep(1000);
	crowd->start.go = 1;
	for (i = 0; i < CROWD_PROCESSES; i++)
		if (waitpid(children[i], &status, 0) < 0 || status)
			bench_fail("a process failed");
	qsort(crowd->ns, n, sizeof(double), by_value);
	p99 = crowd->ns[n / 100 * 99];
	munmap(crowd, size);
	return p99 / 1e3;
}

static void crowd_group(void)
{
	struct items items = items_new(0, CROWD_ITEMS, RECORD_BYTES);
	double alone[ROUNDS_MAX], evicting[ROUNDS_MAX], ratios[ROUNDS_MAX];
	size_t n_rounds = bench.quick ? 1 : 5, r;
	struct side side = { .peer = &peer_kiln };

	for (r = 0; r < n_rounds; r++) {
		side_open(&side, (uint64_t)CROWD_ITEMS * 5000, STORE_EVICTS);
		fill(&side, &items, 0, CROWD_ITEMS, 4096);
		side.peer->close(side.store);
		warm(side.directory);
		alone[r] = slow_get(&side, &items, 0);
		evicting[r] = slow_get(&side, &items, 1);
		ratios[r] = evicting[r] / alone[r];
		bench_remove_tree(side.directory);
	}
	bench_row(&bench, "get, p99, 8 processes that get",
		  bench_median(alone, n_rounds), "us");
	bench_row(&bench, "get, p99, 8 processes that get, put and evict",
		  bench_median(evicting, n_rounds), "us");
	bench_row(&bench, "get, p99, with puts and evictions : without",
		  bench_median(ratios, n_rounds), "");
	items_free(&items);
}

/* ---- Following a builder ----------------------------------------------------------- */

/* S20: from the death of a process that builds to another's build. */
struct build {
	_Atomic int is_building; /* the one that is killed */
	_Atomic uint64_t follower_ns;
};

static void build_for_ever(const struct kiln_key *key, void *arg,
			   struct kiln_build_result *result)
{
	struct build *build = arg;

	(void)key;
	(void)result;
	build->is_building = 1;
	for (;;)
		pause();
}

static void build_next(const struct kiln_key *key, void *arg,
		       struct kiln_build_result *result)
{
	struct build *build = arg;

	(void)key;
	build->follower_ns = bench_now_ns();
	if (kiln_blob_copy(values, 4096, &result->blob))
		_exit(1);
}

static pid_t start_build(const char *directory, const struct item *item,
			 kiln_build_fn *body, struct build *build)
{
	struct kiln_build_result result;
	pid_t pid = fork();
	void *store;

	if (pid < 0)
		bench_fail("no process");
	if (pid)
		return pid;
	store = peer_kiln.open(directory, 0, 0);
	kiln_build_result_init(&result);
	_exit(kiln_get_or_build(store, item->key, body, build, &result) !=
	      KILN_OK);
}

/* In ms. */
static double follow(const char *directory, const struct item *item)
{
	struct build *build = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t builder, follower;
	uint64_t killed_ns;
	double ms;
	int status;

	if (build == MAP_FAILED)
		bench_fail("no memory");
	builder = start_build(directory, item, build_for_ever, build);
	while (!build->is_building)
		usleep(1000);
	follower = start_build(directory, item, build_next, build);
	/* It waits by then, at whatever pace waiting has come to. */
	usleep(300000);
	if (build->follower_ns)
		bench_fail("two build at once");
	killed_ns = bench_now_ns();
	kill(builder, SIGKILL);
	if (waitpid(follower, &status, 0) < 0 || status)
		bench_fail("nobody followed");
	(void)waitpid(builder, &status, 0);
	ms = (double)(build->follower_ns - killed_ns) / 1e6;
	munmap(build, 4096);
	return ms;
}

static void follow_group(void)
{
	size_t n_rounds = bench.quick ? 1 : 9, r;
	struct items items = items_new(0, n_rounds, RECORD_BYTES);
	struct side side = { .peer = &peer_kiln };
	double ms[ROUNDS_MAX], worst = 0;

	side_open(&side, 0, 0);
	peer_kiln.close(side.store);
	for (r = 0; r < n_rounds; r++) {
		ms[r] = follow(side.directory, &items.items[r]);
		worst = ms[r] > worst ? ms[r] : worst;
	}
	bench_row(&bench, "a killed builder is followed, median",
		  bench_median(ms, n_rounds), "ms");
	bench_row_bar(&bench, "a killed builder is followed, worst", worst,
		      "ms", 1000, BENCH_LOWER);
	bench_remove_tree(side.directory);
	items_free(&items);
}

/* ---- Opening ------------------------------------------------------------------ */

/* In a new process: print how many ns open and first get take. */
static int first_get(const char *name, const char *directory, size_t number,
		     size_t record_size)
{
	static const struct peer *const peers[] = { &peer_kiln, &peer_lmdb,
						    &peer_plain };
	struct items items = items_new(number, 1, record_size);
	const struct peer *peer = NULL;
	uint64_t start, end;
	void *store;
	size_t i;

	for (i = 0; i < 3; i++)
		if (!strcmp(peers[i]->name, name))
			peer = peers[i];
	if (!peer)
		return 2;
	start = bench_now_ns();
	store = peer->open(directory, 0, 0);
	if (!peer->get(store, items.items, buffer, VALUE_BYTES_MAX))
		return 1;
	end = bench_now_ns();
	printf("%llu\n", (unsigned long long)(end - start));
	return 0;
}

static double first_get_elsewhere(const struct side *side, size_t number,
				  size_t record_size)
{
	char command[1024], self[300];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	double ns = 0;
	FILE *answer;

	self[n > 0 ? n : 0] = '\0';
	snprintf(command, sizeof(command), "'%s' --first-get '%s' '%s' %zu %zu",
		 self, side->peer->name, side->directory, number, record_size);
	answer = popen(command, "r");
	if (!answer || fscanf(answer, "%lf", &ns) != 1 || pclose(answer))
		bench_fail("%s: no first get", side->peer->name);
	return ns / 1e3;
}

static void open_rows(const char *name, struct side *sides, size_t n,
		      size_t record_size)
{
	size_t n_rounds = bench.quick ? 1 : 9, i, r;
	uint64_t state = 3;

	for (r = 0; r < n_rounds; r++) {
		size_t number = next_random(&state) % n;

		for (i = 0; i < 3; i++) {
			warm(sides[i].directory);
			sides[i].turns[r] = first_get_elsewhere(
				&sides[i],
				sides[i].peer == &peer_plain ? 0 : number,
				record_size);
		}
	}
	rows_of(name, sides, 3, n_rounds, "us");
	ratio(name, sides, 3, n_rounds, &peer_plain, 2.0, BENCH_LOWER);
}

static void open_group(void)
{
	struct side sides[] = { { .peer = &peer_kiln },
				{ .peer = &peer_lmdb },
				{ .peer = &peer_plain } };
	size_t n = bench.quick ? 1000 : 100000, i;
	struct items items = items_new(0, n, RECORD_BYTES);

	for (i = 0; i < 3; i++) {
		side_open(&sides[i], 0, 0);
		/* The peer is one file, wherever it lies. */
		fill(&sides[i], &items, 0, i == 2 ? 1 : n, 4096);
		sides[i].peer->close(sides[i].store);
	}
	open_rows("open + first get, 100k entries", sides, n, RECORD_BYTES);
	for (i = 0; i < 3; i++)
		bench_remove_tree(sides[i].directory);
	items_free(&items);
}

/* ---- A million ------------------------------------------------------------------ */

#define MILLION_VALUE 256

/* The mean of the last puts into a store that has had `n`. */
static double put_at(struct side *side, const struct items *items, size_t n,
		     size_t n_more)
{
	side_open(side, 0, 0);
	fill(side, items, 0, n, MILLION_VALUE);
	return timed_fill(side, items, n, n + n_more, MILLION_VALUE, NULL);
}

static void million_group(void)
{
	struct side sides[] = { { .peer = &peer_kiln },
				{ .peer = &peer_lmdb },
				{ .peer = &peer_plain } };
	size_t n = bench.quick ? 10000 : 1000000, n_more = 20000, i;
	struct items items = items_new(0, n + n_more, SMALL_RECORD_BYTES);
	double small, large;

	small = put_at(&sides[0], &items, bench.quick ? 1000 : 10000, n_more);
	side_close(&sides[0]);
	large = put_at(&sides[0], &items, n, n_more);
	bench_row(&bench, "256 B put at 10k entries, kiln", small, "us");
	bench_row(&bench, "256 B put at 1M entries, kiln", large, "us");
	bench_row_bar(&bench, "mean put at 1M entries : at 10k", large / small,
		      "", 1.5, BENCH_LOWER);
	check(&sides[0], &items, n, n, MILLION_VALUE);
	sides[0].peer->close(sides[0].store);
	for (i = 1; i < 3; i++) {
		side_open(&sides[i], 0, 0);
		fill(&sides[i], &items, 0, i == 2 ? 1 : n, MILLION_VALUE);
		sides[i].peer->close(sides[i].store);
	}
	open_rows("open + first get, 1M entries", sides, n, SMALL_RECORD_BYTES);
	for (i = 0; i < 3; i++)
		bench_remove_tree(sides[i].directory);
	items_free(&items);
}

/* ---- Space --------------------------------------------------------------------- */

/* How much of a file is written: to its last byte that is not zero. */
static uint64_t written_bytes(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t end = 0, at = 0;
	ssize_t n, i;

	while (fd >= 0 && (n = read(fd, buffer, VALUE_BYTES_MAX)) > 0) {
		for (i = n; i && !buffer[i - 1]; i--)
			;
		if (i)
			end = at + (uint64_t)i;
		at += (uint64_t)n;
	}
	if (fd >= 0)
		close(fd);
	return end;
}

/*
 * What the records take on the disk: every segment whole, with whatever is
 * lost at its end, but the last one as far as it is written.
 */
static uint64_t segments_bytes(const char *directory)
{
	char path[600], last[600] = "";
	uint64_t bytes = 0, last_bytes = 0;
	struct dirent *entry;
	struct stat info;
	DIR *dir = opendir(directory);

	while (dir && (entry = readdir(dir))) {
		size_t size = strlen(entry->d_name);

		if (size < 4 || strcmp(entry->d_name + size - 4, ".val"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		if (stat(path, &info))
			bench_fail("%s: %s", path, strerror(errno));
		bytes += (uint64_t)info.st_size;
		/* Eight digits, which do not turn over within one row. */
		if (strcmp(path, last) > 0) {
			strcpy(last, path);
			last_bytes = (uint64_t)info.st_size;
		}
	}
	if (dir)
		closedir(dir);
	return bytes - last_bytes + written_bytes(last);
}

static void space_group(void)
{
	struct side side = { .peer = &peer_kiln };
	size_t n = bench.quick ? 1000 : 20000, i;
	struct items items = items_new(0, n, RECORD_BYTES);
	struct kiln_store_info info;
	double payload = 0;

	side_open(&side, 0, 0);
	fill(&side, &items, 0, n, 4096);
	if (kiln_store_info(side.store, &info))
		bench_fail("no store");
	for (i = 0; i < n; i++)
		payload += 4096 + RECORD_BYTES;
	bench_row(&bench, "disk, with index and spare : payload + key records",
		  (double)info.bytes / payload, "");
	bench_row_bar(&bench, "disk without the index : payload + key records",
		      (double)segments_bytes(side.directory) / payload, "",
		      1.03, BENCH_LOWER);
	bench_row(&bench,
		  "bytes of entries by size class : payload + key records",
		  (double)info.bytes_live / payload, "");
	side_close(&side);
	items_free(&items);
}

/* ---- All of it ----------------------------------------------------------------- */

static void run_hits(void)
{
	hit_group(4096, 10000, 20000);
	hit_group(65536, 1000, 3000);
	first_group();
	pread_group();
}

static void run_puts(void)
{
	put_group("4 KB put", 4096, 4000, 0.90, 0.10);
	put_group("64 KB put", 65536, 800, 0.60, 0);
	put_group("1 MB put", (size_t)1 << 20, 64, 0, 0.75);
}

static void run_evicting(void)
{
	evicting_group("evicting put, 10k x 4 KB", 4096, 10000, 5, 0);
	evicting_group("evicting put, 100k x 4 KB", 4096,
		       bench.quick ? 20000 : 100000, 3, 1);
	evicting_group("evicting put, 1-500 KB mix", 0,
		       bench.quick ? 500 : 3000, 3, 0);
}

static void run_many(void)
{
	many_group(2, 2.0);
	many_group(8, 2.5);
}

static const struct {
	const char *name;
	void (*run)(void);
} groups[] = {
	{ "hits", run_hits },	      { "puts", run_puts },
	{ "evicting", run_evicting }, { "many", run_many },
	{ "crowd", crowd_group },     { "follow", follow_group },
	{ "open", open_group },	      { "million", million_group },
	{ "space", space_group },
};

int main(int argc, char **argv)
{
	size_t i;

	values = malloc(VALUE_BYTES_MAX);
	buffer = malloc(VALUE_BYTES_MAX);
	if (!values || !buffer)
		bench_fail("no memory");
	memset(values, 'v', VALUE_BYTES_MAX);
	if (argc == 6 && !strcmp(argv[1], "--first-get"))
		return first_get(argv[2], argv[3], strtoull(argv[4], NULL, 10),
				 strtoull(argv[5], NULL, 10));

	bench_begin(&bench, argc, argv, "store");
	snprintf(top, sizeof(top), "%s/kiln-bench-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
	if (!mkdtemp(top))
		bench_fail("%s: %s", top, strerror(errno));
	bench.directory = top;
	for (i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (bench_wants(&bench, groups[i].name))
			groups[i].run();
	i = (size_t)bench_end(&bench);
	bench_remove_tree(top);
	return (int)i;
}
