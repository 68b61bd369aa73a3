/* SPDX-License-Identifier: MIT */

/*
 * What is wrong in the original and must not be here: one test for each, named
 * after what holds instead.  The stand-in in original.c fails most of them.
 */

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rig.h"

/* ---- Lines that were lost ------------------------------------------------------- */

/* Each line of a set is dirty, with a value of its own. */
static void fill_set(struct rig *rig, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		rig_fill(rig, i * APART, LINE, 'a' + (int)i, WB);
}

static void expect_set(struct rig *rig, unsigned n, unsigned except)
{
	for (unsigned i = 0; i < n; i++) {
		if (i != except)
			rig_expect(rig, i * APART, LINE, 'a' + (int)i);
	}
}

/* One goes; whichever of the others is read first is right, then all are. */
static void others_stay(int (*call)(cachectx_t *, const uint64_t,
				    const uint64_t),
			unsigned gone, unsigned first)
{
	struct rig rig;

	rig_open(&rig);
	fill_set(&rig, WAYS);
	assert_int_equal(call(rig.cache, gone * APART, gone * APART + LINE), 0);
	if (first != gone)
		rig_expect(&rig, first * APART, LINE, 'a' + (int)first);
	expect_set(&rig, WAYS, gone);
	if (call == cache_clean)
		rig_expect(&rig, gone * APART, LINE, 'a' + (int)gone);
	else
		rig_expect_first(&rig, gone * APART, LINE);
	rig_close(&rig);
}

static void the_others_of_a_set_stay_when_one_is_cleaned(void **state)
{
	for (unsigned i = 0; i < WAYS * WAYS; i++)
		others_stay(cache_clean, i / WAYS, i % WAYS);
}

static void the_others_of_a_set_stay_when_one_is_invalidated(void **state)
{
	for (unsigned i = 0; i < WAYS * WAYS; i++)
		others_stay(cache_invalidate, i / WAYS, i % WAYS);
}

/* The read would take the place of the line used least recently. */
static void others_stay_when_a_read_fails(unsigned oldest, unsigned first)
{
	struct rig rig;
	uint8_t byte;

	rig_open(&rig);
	fill_set(&rig, WAYS);
	expect_set(&rig, WAYS, oldest);
	rig.device.read_answer = -EIO;
	assert_int_equal(cache_read(rig.cache, WAYS * APART, &byte, 1), -EIO);
	rig.device.read_answer = 0;
	rig_expect(&rig, first * APART, LINE, 'a' + (int)first);
	expect_set(&rig, WAYS, WAYS);
	rig_expect_first(&rig, WAYS * APART, LINE);
	expect_set(&rig, WAYS, WAYS);
	rig_close(&rig);
}

static void the_others_of_a_set_stay_when_a_read_fails(void **state)
{
	for (unsigned i = 0; i < WAYS * WAYS; i++)
		others_stay_when_a_read_fails(i / WAYS, i % WAYS);
}

/* A set that has a place free again, whichever it is, takes as many as before. */
static void a_place_is_given_to_one_line_only(void **state)
{
	for (unsigned gone = 0; gone + 1 < WAYS; gone++) {
		struct rig rig;

		rig_open(&rig);
		fill_set(&rig, WAYS - 1);
		assert_int_equal(cache_invalidate(rig.cache, gone * APART,
						  gone * APART + LINE),
				 0);
		rig_expect_first(&rig, WAYS * APART, LINE);
		rig_fill(&rig, (WAYS + 1) * APART, LINE, 'n', WB);
		expect_set(&rig, WAYS - 1, gone);
		rig_expect(&rig, (WAYS + 1) * APART, LINE, 'n');
		assert_int_equal(rig_misses(&rig, WAYS * APART), 0);
		rig_close(&rig);
	}
}

/* ---- The end of the device ----------------------------------------------------------- */

static void there_is_nothing_at_the_very_end(void **state)
{
	struct rig rig;
	uint8_t buffer[4] = "abc";

	rig_open(&rig);
	assert_int_equal(cache_read(rig.cache, SIZE, buffer, 4), 0);
	assert_int_equal(cache_write(rig.cache, SIZE, buffer, 4, WB), 0);
	assert_int_equal(cache_write(rig.cache, SIZE, buffer, 4, WT), 0);
	assert_string_equal(buffer, "abc");
	assert_int_equal(rig.device.n_reads + rig.device.n_writes, 0);
	rig_close(&rig);
}

static void counts_that_wrap_end_at_the_end_of_the_device(void **state)
{
	static const uint64_t distances[] = { 0, 1, LINE - 1, LINE, 100 };
	volatile size_t most = SIZE_MAX;
	uint8_t *buffer = malloc(SIZE);

	assert_non_null(buffer);
	for (size_t i = 0; i < sizeof(distances) / sizeof(*distances); i++) {
		const size_t left = SIZE - LINE;
		struct rig rig;

		rig_open(&rig);
		assert_int_equal(cache_read(rig.cache, LINE, buffer,
					    most - distances[i]),
				 left);
		assert_memory_equal(buffer, rig.device.bytes + LINE, left);
		memset(buffer, 'w', left);
		assert_int_equal(cache_write(rig.cache, LINE, buffer,
					     most - distances[i], WB),
				 left);
		rig_close(&rig);
	}
	free(buffer);
}

static void the_last_line_is_as_short_as_the_device_says(void **state)
{
	const size_t size = 1000; /* 15 lines and 40 bytes */
	struct rig rig;

	rig_open_as(&rig, size, LINE, N_LINES);
	rig_expect_first(&rig, size - 60, 60);
	assert_int_equal(rig.device.last_offset, 960);
	assert_int_equal(rig.device.last_count, 40);
	rig_fill(&rig, size - 3, 3, 't', WT);
	assert_int_equal(rig.device.last_count, 40);
	assert_true(rig_holds(&rig, size - 3, 3, 't'));
	/* All of it: nothing is fetched. */
	assert_int_equal(cache_invalidate(rig.cache, 0, size), 0);
	device_reset(&rig.device);
	rig_fill(&rig, 960, 40, 'u', WB);
	assert_int_equal(rig.device.n_reads, 0);
	assert_int_equal(cache_clean(rig.cache, 0, UINT64_MAX), 0);
	rig_expect(&rig, 960, 40, 'u');
	rig_close(&rig);
}

/* ---- Geometry -------------------------------------------------------------------------- */

/* Random bytes through a cache of any geometry are right, or it is refused. */
static void check_geometry(size_t size, size_t line, size_t n_lines)
{
	struct rig rig;
	cache_ops_t ops;
	uint64_t seed = line * 1000 + n_lines;
	uint8_t *model = malloc(size), *buffer = malloc(size);

	assert_true(model && buffer);
	device_init(&rig.device, size);
	memcpy(model, rig.device.bytes, size);
	ops = device_ops(&rig.device);
	rig.cache = cache_init(size, line, n_lines, &ops);
	for (unsigned turn = 0; turn < 500 && rig.cache; turn++) {
		const uint64_t addr = harness_random(&seed) % size;
		const size_t count = harness_random(&seed) % (size - addr) + 1;

		if (harness_random(&seed) % 2) {
			memset(buffer, (int)turn, count);
			memset(model + addr, (int)turn, count);
			assert_int_equal(cache_write(rig.cache, addr, buffer,
						     count, turn & 1),
					 count);
		} else {
			assert_int_equal(
				cache_read(rig.cache, addr, buffer, count),
				count);
			assert_memory_equal(buffer, model + addr, count);
		}
	}
	if (rig.cache)
		assert_int_equal(cache_deinit(rig.cache), 0);
	if (rig.cache)
		assert_memory_equal(rig.device.bytes, model, size);
	rig_free(&rig);
	free(model);
	free(buffer);
}

static void geometry_that_is_no_power_of_two_is_right_or_refused(void **state)
{
	static const size_t lines[] = { 1, 2, 3, 7, 60, 64, 100, 513 };
	static const size_t sets[] = { 1, 2, 3, 5, 6, 7, 12 };

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		for (size_t j = 0; j < sizeof(sets) / sizeof(*sets); j++) {
			check_geometry(777, lines[i], sets[j] * WAYS);
			check_geometry(64 * lines[i], lines[i], sets[j] * WAYS);
		}
	}
}

static void all_lines_are_used_whatever_their_number(void **state)
{
	const unsigned n_lines = 3 * WAYS;
	struct rig rig;
	cache_ops_t ops;

	device_init(&rig.device, SIZE);
	ops = device_ops(&rig.device);
	rig.cache = cache_init(SIZE, LINE, n_lines, &ops);
	if (!rig.cache) {
		rig_free(&rig);
		return;
	}
	for (unsigned i = 0; i < n_lines; i++)
		assert_int_equal(rig_misses(&rig, i * LINE), 1);
	for (unsigned i = 0; i < n_lines; i++)
		assert_int_equal(rig_misses(&rig, i * LINE), 0);
	rig_close(&rig);
}

static void sizes_that_overflow_are_refused(void **state)
{
	static const struct {
		size_t line, n_lines;
	} rows[] = {
		{ SIZE_MAX, N_LINES },
		{ (size_t)1 << 63, N_LINES },
		{ LINE, SIZE_MAX - SIZE_MAX % 8 },
		{ (size_t)1 << 40, (size_t)1 << 40 },
	};
	cache_devCtx_t device;
	cache_ops_t ops;

	device_init(&device, SIZE);
	ops = device_ops(&device);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_null(
			cache_init(SIZE, rows[i].line, rows[i].n_lines, &ops));
	free(device.bytes);
}

/* ---- Ranges ------------------------------------------------------------------------------ */

static ssize_t read_vast(uint64_t offset, void *buffer, size_t count,
			 cache_devCtx_t *device)
{
	memset(buffer, 0, count);
	return (ssize_t)count;
}

static ssize_t write_vast(uint64_t offset, const void *buffer, size_t count,
			  cache_devCtx_t *device)
{
	return (ssize_t)count;
}

/* An exabyte, line by line, would take centuries. */
static void ranges_cost_no_more_than_there_are_lines(void **state)
{
	const cache_ops_t ops = { .readCb = read_vast, .writeCb = write_vast };
	const size_t size = (size_t)1 << 60;
	cachectx_t *cache = cache_init(size, LINE, N_LINES, &ops);

	assert_non_null(cache);
	assert_int_equal(cache_write(cache, size / 2, "abc", 3, WB), 3);
	assert_int_equal(cache_flush(cache, 0, size), 0);
	assert_int_equal(cache_flush(cache, 1, size - 1), 0);
	assert_int_equal(cache_invalidate(cache, LINE, UINT64_MAX), 0);
	assert_int_equal(cache_clean(cache, 0, UINT64_MAX), 0);
	assert_int_equal(cache_flush(cache, size, UINT64_MAX), 0);
	assert_int_equal(cache_invalidate(cache, size, UINT64_MAX), 0);
	assert_int_equal(cache_clean(cache, size, UINT64_MAX), 0);
	assert_int_equal(cache_deinit(cache), 0);
}

/* ---- Callbacks ---------------------------------------------------------------------------- */

static void a_callback_that_returns_too_much_has_failed(void **state)
{
	static const size_t much[] = { 1, LINE, SSIZE_MAX - LINE };

	for (size_t i = 0; i < sizeof(much) / sizeof(*much); i++) {
		struct rig rig;
		uint8_t buffer[LINE];

		rig_open(&rig);
		memset(buffer, 'm', LINE);
		rig.device.too_much = much[i];
		assert_int_equal(cache_read(rig.cache, 0, buffer, 10), -EIO);
		assert_int_equal(cache_write(rig.cache, LINE, buffer, LINE, WT),
				 -EIO);
		rig.device.too_much = 0;
		rig_expect_first(&rig, 0, LINE);
		rig_expect(&rig, LINE, LINE, 'm');
		rig_close(&rig);
	}
}

static void an_eviction_that_fails_is_an_error_of_the_device(void **state)
{
	struct rig rig;
	uint8_t byte = 'x';

	rig_open(&rig);
	fill_set(&rig, WAYS);
	rig.device.write_answer = -ENOSPC;
	assert_int_equal(cache_read(rig.cache, WAYS * APART, &byte, 1), -EIO);
	assert_int_equal(cache_write(rig.cache, WAYS * APART, &byte, 1, WB),
			 -EIO);
	rig.device.write_answer = 0;
	expect_set(&rig, WAYS, WAYS);
	rig_expect_first(&rig, WAYS * APART, LINE);
	expect_set(&rig, WAYS, WAYS);
	rig_close(&rig);
}

/* The least recently used line is dirty and stays so. */
static void a_dirty_line_leaves_its_set_to_the_clean_ones(void **state)
{
	struct rig rig;

	if (WAYS == 1)
		return;
	rig_open(&rig);
	rig_fill(&rig, 0, LINE, 'd', WB);
	for (unsigned i = 1; i < WAYS; i++)
		rig_expect_first(&rig, i * APART, LINE);
	rig.device.write_answer = -EIO;
	for (unsigned i = WAYS; i < WAYS + 5; i++)
		rig_expect_first(&rig, i * APART, LINE);
	assert_int_equal(rig_misses(&rig, 0), 0);
	rig.device.write_answer = 0;
	rig_expect(&rig, 0, LINE, 'd');
	assert_int_equal(cache_deinit(rig.cache), 0);
	assert_true(rig_holds(&rig, 0, LINE, 'd'));
	rig_free(&rig);
}

static void nulls_are_refused(void **state)
{
	cache_devCtx_t device;
	cache_ops_t ops, no_read, no_write;
	uint8_t byte = 0;

	device_init(&device, SIZE);
	no_read = no_write = ops = device_ops(&device);
	no_read.readCb = NULL;
	no_write.writeCb = NULL;
	assert_null(cache_init(SIZE, LINE, N_LINES, NULL));
	assert_null(cache_init(SIZE, LINE, N_LINES, &no_read));
	assert_null(cache_init(SIZE, LINE, N_LINES, &no_write));
	assert_int_equal(cache_read(NULL, 0, &byte, 1), -EINVAL);
	assert_int_equal(cache_write(NULL, 0, &byte, 1, WB), -EINVAL);
	assert_int_equal(cache_flush(NULL, 0, 1), -EINVAL);
	assert_int_equal(cache_invalidate(NULL, 0, 1), -EINVAL);
	assert_int_equal(cache_clean(NULL, 0, 1), -EINVAL);
	assert_int_equal(cache_deinit(NULL), -EINVAL);
	assert_int_equal(cache_discard(NULL), -EINVAL);
	assert_int_equal(cache_setFlushGranularity(NULL, 8), -EINVAL);
	free(device.bytes);
}

/* ---- Callbacks that use their cache ---------------------------------------------------- */

struct inner {
	struct rig *rig;
	int enabled;
	ssize_t hit, same, miss;
	int flush, clean;
};

static ssize_t use_the_cache(cache_devCtx_t *device, enum device_call call,
			     uint64_t offset, size_t count)
{
	struct inner *inner = device->hook_arg;
	cachectx_t *cache = inner->rig->cache;
	uint8_t byte;

	if (!inner->enabled)
		return 0;
	inner->enabled = 0;
	inner->hit = cache_read(cache, LINE, &byte, 1);
	inner->same = cache_read(cache, 0, &byte, 1);
	inner->miss = cache_read(cache, 40 * LINE, &byte, 1);
	inner->flush = cache_flush(cache, 0, SIZE);
	inner->clean = cache_clean(cache, 0, LINE);
	return 0;
}

static int ends_well(ssize_t result)
{
	return result >= 0 || result == -EDEADLK;
}

static void a_callback_may_use_its_cache(void **state)
{
	struct rig rig;
	struct inner inner = { .rig = &rig };

	rig_open(&rig);
	rig_fill(&rig, LINE, LINE, 'i', WB);
	rig.device.hook = use_the_cache;
	rig.device.hook_arg = &inner;
	inner.enabled = 1;
	rig_expect_first(&rig, 0, LINE);
	assert_int_equal(inner.enabled, 0);
	assert_int_equal(inner.hit, 1);
	assert_int_equal(inner.same, -EDEADLK);
	assert_true(ends_well(inner.miss));
	assert_true(ends_well(inner.flush));
	assert_true(ends_well(inner.clean));
	rig.device.n_overlaps = 0; /* its own */
	rig_fill(&rig, 0, LINE, 'i', WB);
	inner.enabled = 1;
	assert_int_equal(cache_flush(rig.cache, 0, LINE), 0);
	assert_int_equal(inner.enabled, 0);
	assert_int_equal(inner.hit, 1);
	assert_true(ends_well(inner.miss));
	assert_true(ends_well(inner.flush));
	assert_true(ends_well(inner.clean));
	rig.device.hook = NULL;
	rig.device.n_overlaps = 0;
	rig_expect(&rig, LINE, LINE, 'i');
	rig_expect(&rig, 0, LINE, 'i');
	rig_close(&rig);
}

/* ---- Two threads -------------------------------------------------------------------------- */

struct gate {
	struct rig *rig;
	sem_t inside, go_on;
	int armed, hung;
};

static int wait_for(sem_t *sem)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += HARNESS_HANG_S / 4;
	return sem_timedwait(sem, &until);
}

static ssize_t stop_at_the_gate(cache_devCtx_t *device, enum device_call call,
				uint64_t offset, size_t count)
{
	struct gate *gate = device->hook_arg;

	if (!gate->armed)
		return 0;
	gate->armed = 0;
	sem_post(&gate->inside);
	gate->hung = wait_for(&gate->go_on) != 0;
	return 0;
}

static void gate_init(struct gate *gate, struct rig *rig)
{
	*gate = (struct gate){ .rig = rig };
	sem_init(&gate->inside, 0, 0);
	sem_init(&gate->go_on, 0, 0);
	rig->device.hook = stop_at_the_gate;
	rig->device.hook_arg = gate;
}

static int miss_or_hit(unsigned index, void *arg)
{
	struct gate *gate = arg;
	cachectx_t *cache = gate->rig->cache;
	uint8_t byte;
	int wrong;

	if (!index)
		return cache_read(cache, 9 * LINE, &byte, 1) != 1;
	wrong = wait_for(&gate->inside) != 0;
	wrong |= cache_read(cache, 0, &byte, 1) != 1 || byte != 'h';
	wrong |= cache_write(cache, 0, "k", 1, WB) != 1;
	wrong |= cache_read(cache, 0, &byte, 1) != 1 || byte != 'k';
	sem_post(&gate->go_on);
	return wrong;
}

static void a_hit_does_not_wait_for_a_miss(void **state)
{
	struct rig rig;
	struct gate gate;

	rig_open(&rig);
	rig_fill(&rig, 0, LINE, 'h', WB);
	gate_init(&gate, &rig);
	gate.armed = 1;
	assert_int_equal(harness_threads(2, miss_or_hit, &gate), 0);
	assert_false(gate.hung);
	rig_close(&rig);
}

static int miss_together(unsigned index, void *arg)
{
	struct rig *rig = arg;
	uint8_t byte;
	int wrong = 0;

	for (uint64_t i = 0; i < SIZE / LINE; i++) {
		const uint64_t addr = (i * 7 + index * 3) * LINE % SIZE;

		wrong |= cache_read(rig->cache, addr, &byte, 1) != 1 ||
			 byte != device_byte(addr);
	}
	return wrong;
}

static void callbacks_are_called_one_at_a_time(void **state)
{
	struct rig rig;

	rig_open(&rig);
	for (int turn = 0; turn < 10; turn++)
		assert_int_equal(harness_threads(4, miss_together, &rig), 0);
	rig_close(&rig);
}

/*
 * A line is written while its write-back runs.  Whether the writer waits or not
 * is the cache's business: the callback gives it time, and goes on.
 */
struct clean {
	struct rig *rig;
	sem_t inside;
	atomic_int written;
	int fails;
	int value;
};

static ssize_t give_time(cache_devCtx_t *device, enum device_call call,
			 uint64_t offset, size_t count)
{
	struct clean *clean = device->hook_arg;

	if (call == DEVICE_READ)
		return 0;
	sem_post(&clean->inside);
	for (int i = 0; i < 50 && !atomic_load(&clean->written); i++)
		sched_yield();
	return clean->fails ? -EIO : 0;
}

static int clean_or_write(unsigned index, void *arg)
{
	struct clean *clean = arg;
	cachectx_t *cache = clean->rig->cache;
	uint8_t value = (uint8_t)clean->value;
	int wrong;

	if (!index)
		return cache_clean(cache, 0, LINE) != (clean->fails ? -EIO : 0);
	wrong = wait_for(&clean->inside) != 0;
	wrong |= cache_write(cache, 5, &value, 1, WB) != 1;
	atomic_store(&clean->written, 1);
	return wrong;
}

static void clean_loses_nothing(int fails)
{
	struct rig rig;

	rig_open(&rig);
	for (int turn = 0; turn < 100; turn++) {
		struct clean clean = { .rig = &rig,
				       .fails = fails,
				       .value = turn };

		rig_fill(&rig, 0, LINE, 'A', WB);
		sem_init(&clean.inside, 0, 0);
		rig.device.hook = give_time;
		rig.device.hook_arg = &clean;
		assert_int_equal(harness_threads(2, clean_or_write, &clean), 0);
		rig.device.hook = NULL;
		rig_expect(&rig, 5, 1, turn);
		rig_expect(&rig, 0, 5, 'A');
		assert_int_equal(cache_clean(rig.cache, 0, LINE), 0);
		assert_true(rig_holds(&rig, 5, 1, turn));
	}
	rig_close(&rig);
}

static void a_write_during_a_clean_is_not_lost(void **state)
{
	clean_loses_nothing(0);
}

static void a_write_during_a_clean_that_fails_is_not_lost(void **state)
{
	clean_loses_nothing(1);
}

/* ---- Ending anyhow, and writing less ------------------------------------------------------- */

static void a_cache_of_a_device_that_is_gone_can_be_discarded(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 0, 3 * LINE, 'g', WB);
	rig.device.write_answer = rig.device.read_answer = -ENODEV;
	assert_int_equal(cache_deinit(rig.cache), -EIO);
	device_reset(&rig.device);
	assert_int_equal(cache_discard(rig.cache), 0);
	assert_int_equal(rig.device.n_reads + rig.device.n_writes, 0);
	rig_free(&rig);
}

static void granularity_is_a_power_of_two_up_to_a_line(void **state)
{
	static const struct {
		size_t granularity;
		int result;
	} rows[] = {
		{ 0, -EINVAL },
		{ 3, -EINVAL },
		{ 128, -EINVAL },
		{ 48, -EINVAL },
		{ SIZE_MAX, -EINVAL },
		{ 1, 0 },
		{ 8, 0 },
		{ 64, 0 },
	};
	struct rig rig;

	rig_open(&rig);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_int_equal(cache_setFlushGranularity(rig.cache,
							   rows[i].granularity),
				 rows[i].result);
	rig_close(&rig);
}

static void only_what_is_dirty_of_a_line_is_written(void **state)
{
	static const struct {
		uint64_t addr;
		size_t count, granularity;
		uint64_t offset;
		size_t written;
	} rows[] = {
		{ 4096 + 1000, 8, 64, 4096 + 960, 64 },
		{ 4096 + 1020, 8, 64, 4096 + 960, 128 },
		{ 4096, 8, 64, 4096, 64 },
		{ 8184, 8, 64, 8128, 64 },
		{ 4096 + 1000, 8, 1, 4096 + 1000, 8 },
		{ 4096 + 1000, 8, 4096, 4096, 4096 },
		{ 4096, 4096, 64, 4096, 4096 },
		/* The end of the device cuts one off. */
		{ 9999, 1, 64, 9984, 16 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (int policy = WB; policy <= WT; policy++) {
			struct rig rig;

			rig_open_as(&rig, 10000, 4096, N_LINES);
			assert_int_equal(
				cache_setFlushGranularity(rig.cache,
							  rows[i].granularity),
				0);
			rig_fill(&rig, rows[i].addr, rows[i].count, 'p',
				 policy);
			assert_int_equal(cache_flush(rig.cache, 0, 10000), 0);
			assert_int_equal(rig.device.bytes_written,
					 rows[i].written);
			assert_int_equal(rig.device.last_offset,
					 rows[i].offset);
			assert_true(rig_holds(&rig, rows[i].addr, rows[i].count,
					      'p'));
			rig_close(&rig);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_others_of_a_set_stay_when_one_is_cleaned),
		cmocka_unit_test(
			the_others_of_a_set_stay_when_one_is_invalidated),
		cmocka_unit_test(the_others_of_a_set_stay_when_a_read_fails),
		cmocka_unit_test(a_place_is_given_to_one_line_only),
		cmocka_unit_test(there_is_nothing_at_the_very_end),
		cmocka_unit_test(counts_that_wrap_end_at_the_end_of_the_device),
		cmocka_unit_test(the_last_line_is_as_short_as_the_device_says),
		cmocka_unit_test(
			geometry_that_is_no_power_of_two_is_right_or_refused),
		cmocka_unit_test(all_lines_are_used_whatever_their_number),
		cmocka_unit_test(sizes_that_overflow_are_refused),
		cmocka_unit_test(ranges_cost_no_more_than_there_are_lines),
		cmocka_unit_test(a_callback_that_returns_too_much_has_failed),
		cmocka_unit_test(
			an_eviction_that_fails_is_an_error_of_the_device),
		cmocka_unit_test(a_dirty_line_leaves_its_set_to_the_clean_ones),
		cmocka_unit_test(nulls_are_refused),
		cmocka_unit_test(a_callback_may_use_its_cache),
		cmocka_unit_test(a_hit_does_not_wait_for_a_miss),
		cmocka_unit_test(callbacks_are_called_one_at_a_time),
		cmocka_unit_test(a_write_during_a_clean_is_not_lost),
		cmocka_unit_test(a_write_during_a_clean_that_fails_is_not_lost),
		cmocka_unit_test(
			a_cache_of_a_device_that_is_gone_can_be_discarded),
		cmocka_unit_test(granularity_is_a_power_of_two_up_to_a_line),
		cmocka_unit_test(only_what_is_dirty_of_a_line_is_written),
	};

	return cmocka_run_group_tests_name("libcache defects", tests, NULL,
					   NULL);
}
