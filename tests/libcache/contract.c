/* SPDX-License-Identifier: MIT */

/*
 * What every user of <cache.h> relies on, as the original keeps it: all that
 * its own functional suite asserts, and how it treats edges that no document
 * speaks of.  Where the original is wrong, defects.c has the test.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

/* ---- Making and ending ------------------------------------------------------- */

static void sizes_that_cannot_be_are_refused(void **state)
{
	static const struct {
		size_t size, line, n_lines;
		int may_be;
	} rows[] = {
		{ 0, LINE, N_LINES, 0 },
		{ SIZE, 0, N_LINES, 0 },
		{ SIZE, LINE, 0, 0 },
		{ SIZE, LINE, 19, WAYS == 1 },
		{ SIZE, LINE, N_LINES + 1, WAYS == 1 },
		{ SIZE, LINE, WAYS, 1 },
		{ SIZE, LINE, N_LINES, 1 },
	};
	cache_devCtx_t device;
	cache_ops_t ops;

	device_init(&device, SIZE);
	ops = device_ops(&device);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		cachectx_t *cache = cache_init(rows[i].size, rows[i].line,
					       rows[i].n_lines, &ops);

		assert_int_equal(cache != NULL, rows[i].may_be);
		if (cache)
			assert_int_equal(cache_deinit(cache), 0);
	}
	free(device.bytes);
}

static void an_unused_cache_ends_without_a_word_to_the_device(void **state)
{
	struct rig rig;

	rig_open(&rig);
	assert_int_equal(cache_deinit(rig.cache), 0);
	assert_int_equal(rig.device.n_reads + rig.device.n_writes, 0);
	rig_free(&rig);
}

static void operations_are_copied(void **state)
{
	cache_devCtx_t device;
	cache_ops_t ops;
	cachectx_t *cache;
	uint8_t byte = 0;

	device_init(&device, SIZE);
	ops = device_ops(&device);
	cache = cache_init(SIZE, LINE, N_LINES, &ops);
	assert_non_null(cache);
	memset(&ops, 0, sizeof(ops));
	assert_int_equal(cache_read(cache, 9, &byte, 1), 1);
	assert_int_equal(byte, device_byte(9));
	assert_int_equal(cache_deinit(cache), 0);
	free(device.bytes);
}

/* ---- Arguments ------------------------------------------------------------------ */

enum { NO_POLICY = -2, OTHER_POLICY = 7 };

static void arguments_are_looked_at_before_anything_else(void **state)
{
	static const struct {
		uint64_t addr;
		size_t count;
		int no_buffer, policy;
		ssize_t read, write;
	} rows[] = {
		/* A buffer and a policy must be there even for nothing. */
		{ 100, 10, 1, WB, -EINVAL, -EINVAL },
		{ 100, 0, 1, WB, -EINVAL, -EINVAL },
		{ 100, 10, 0, NO_POLICY, 10, -EINVAL },
		{ 100, 10, 0, OTHER_POLICY, 10, -EINVAL },
		{ 100, 0, 0, NO_POLICY, 0, -EINVAL },
		{ 100, 0, 0, WB, 0, 0 },
		{ 100, 0, 0, WT, 0, 0 },
		/* Past the end. */
		{ SIZE + 10, 16, 0, WB, -EINVAL, -EINVAL },
		{ SIZE + 10, 0, 0, WB, -EINVAL, -EINVAL },
		{ SIZE + 1, 1, 0, WT, -EINVAL, -EINVAL },
		{ UINT64_MAX, 1, 0, WT, -EINVAL, -EINVAL },
		/* Over it. */
		{ SIZE - 10, 16, 0, WB, 10, 10 },
		{ SIZE - 10, 16, 0, WT, 10, 10 },
		{ SIZE - 5, 16, 0, WB, 5, 5 },
		{ SIZE - 1, 2, 0, WB, 1, 1 },
		/* Across a line's end. */
		{ LINE - 5, 10, 0, WT, 10, 10 },
	};
	uint8_t buffer[16];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rig rig;

		rig_open(&rig);
		memset(buffer, 'b', sizeof(buffer));
		errno = 0;
		assert_int_equal(cache_write(rig.cache, rows[i].addr,
					     rows[i].no_buffer ? NULL : buffer,
					     rows[i].count, rows[i].policy),
				 rows[i].write);
		assert_int_equal(cache_read(rig.cache, rows[i].addr,
					    rows[i].no_buffer ? NULL : buffer,
					    rows[i].count),
				 rows[i].read);
		assert_int_equal(errno, 0);
		rig_close(&rig);
	}
}

static void nothing_read_leaves_the_buffer_alone(void **state)
{
	struct rig rig;
	uint8_t buffer[4] = { 1, 2, 3, 4 };

	rig_open(&rig);
	assert_int_equal(cache_read(rig.cache, 30, buffer, 0), 0);
	assert_memory_equal(buffer, ((uint8_t[]){ 1, 2, 3, 4 }), 4);
	assert_int_equal(rig.device.n_reads, 0);
	rig_close(&rig);
}

static void what_is_over_the_end_is_neither_written_nor_read(void **state)
{
	struct rig rig;
	uint8_t buffer[16];

	rig_open(&rig);
	memset(buffer, 'w', sizeof(buffer));
	assert_int_equal(cache_write(rig.cache, SIZE - 10, buffer, 16, WB), 10);
	memset(buffer, '-', sizeof(buffer));
	assert_int_equal(cache_read(rig.cache, SIZE - 5, buffer, 16), 5);
	assert_memory_equal(buffer, "wwwww-----------", 16);
	rig_close(&rig);
}

static int flush(cachectx_t *cache, uint64_t begin, uint64_t end)
{
	return cache_flush(cache, begin, end);
}

static int invalidate(cachectx_t *cache, uint64_t begin, uint64_t end)
{
	return cache_invalidate(cache, begin, end);
}

static int clean(cachectx_t *cache, uint64_t begin, uint64_t end)
{
	return cache_clean(cache, begin, end);
}

static int (*const range_calls[])(cachectx_t *, uint64_t,
				  uint64_t) = { flush, invalidate, clean };

static void ranges_are_looked_at_by_flush_invalidate_and_clean(void **state)
{
	static const struct {
		uint64_t begin, end;
		int result;
	} rows[] = {
		{ 200, 100, -EINVAL },
		{ SIZE + 10, SIZE + 20, -EINVAL },
		{ SIZE + 1, SIZE + 1, -EINVAL },
		{ UINT64_MAX, UINT64_MAX, -EINVAL },
		{ SIZE - 10, SIZE + 30, 0 },
		{ 0, UINT64_MAX, 0 },
		{ SIZE, SIZE, 0 },
		{ 77, 77, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (size_t call = 0; call < 3; call++) {
			struct rig rig;

			rig_open(&rig);
			rig_fill(&rig, SIZE - 10, 10, 'd', WB);
			assert_int_equal(range_calls[call](rig.cache,
							   rows[i].begin,
							   rows[i].end),
					 rows[i].result);
			rig_close(&rig);
		}
	}
}

/* Ends are exclusive, and a beginning counts from the first byte of its line. */
static void ranges_are_of_whole_lines(void **state)
{
	static const struct {
		uint64_t begin, end;
		int first, second; /* whether lines 0 and 1 are in it */
	} rows[] = {
		{ 0, 0, 0, 0 },	    { 64, 64, 0, 0 }, { 65, 65, 0, 1 },
		{ 0, 64, 1, 0 },    { 0, 65, 1, 1 },  { 63, 64, 1, 0 },
		{ 63, 63, 1, 0 },   { 64, 65, 0, 1 }, { 127, 128, 0, 1 },
		{ 128, 200, 0, 0 }, { 1, 128, 1, 1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct rig rig;

		rig_open(&rig);
		rig_fill(&rig, 0, 128, 'r', WB);
		assert_int_equal(
			cache_flush(rig.cache, rows[i].begin, rows[i].end), 0);
		assert_int_equal(rig_holds(&rig, 0, 64, 'r'), rows[i].first);
		assert_int_equal(rig_holds(&rig, 64, 64, 'r'), rows[i].second);
		assert_int_equal(rig.device.n_writes,
				 rows[i].first + rows[i].second);
		rig_close(&rig);
	}
}

/* ---- Bytes ----------------------------------------------------------------------- */

static void bytes_written_through_are_on_the_device_at_once(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 10 * LINE + 57, 127, 't', WT);
	assert_true(rig_holds(&rig, 10 * LINE + 57, 127, 't'));
	assert_true(rig_holds_first(&rig, 10 * LINE, 57));
	assert_true(rig_holds_first(&rig, 12 * LINE + 56, 8));
	rig_expect(&rig, 10 * LINE + 57, 127, 't');
	rig_close(&rig);
}

static void bytes_written_back_are_on_the_device_in_the_end(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 10 * LINE + 57, 127, 'b', WB);
	assert_int_equal(rig.device.n_writes, 0);
	assert_true(rig_holds_first(&rig, 10 * LINE, 3 * LINE));
	rig_expect(&rig, 10 * LINE + 57, 127, 'b');
	assert_int_equal(cache_deinit(rig.cache), 0);
	assert_true(rig_holds(&rig, 10 * LINE + 57, 127, 'b'));
	assert_true(rig_holds_first(&rig, 10 * LINE, 57));
	assert_true(rig_holds_first(&rig, 12 * LINE + 56, 8));
	rig_free(&rig);
}

/* No two neighbours are alike, and those around stay what they were. */
static void each_byte_written_has_its_own_place(void **state)
{
	const uint64_t addr = 10 * LINE + 57;

	for (int policy = WB; policy <= WT; policy++) {
		uint8_t bytes[127], found[127], expected[SIZE];
		uint64_t seed = 57;
		struct rig rig;

		rig_open(&rig);
		memcpy(expected, rig.device.bytes, SIZE);
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)harness_random(&seed);
		memcpy(expected + addr, bytes, sizeof(bytes));
		assert_int_equal(cache_write(rig.cache, addr, bytes,
					     sizeof(bytes), policy),
				 sizeof(bytes));
		if (policy == WT)
			assert_memory_equal(rig.device.bytes, expected, SIZE);
		assert_int_equal(
			cache_read(rig.cache, addr, found, sizeof(found)),
			sizeof(found));
		assert_memory_equal(found, bytes, sizeof(found));
		assert_int_equal(cache_deinit(rig.cache), 0);
		assert_memory_equal(rig.device.bytes, expected, SIZE);
		rig_free(&rig);
	}
}

static void integers_are_read_as_they_are_on_the_device(void **state)
{
	struct rig rig;
	uint32_t numbers[37];

	rig_open(&rig);
	for (uint32_t i = 0; i < 37; i++)
		memcpy(rig.device.bytes + 1000 + 4 * i, &i, sizeof(i));
	assert_int_equal(cache_read(rig.cache, 1000, numbers, sizeof(numbers)),
			 sizeof(numbers));
	for (uint32_t i = 0; i < 37; i++)
		assert_int_equal(numbers[i], i);
	rig_close(&rig);
}

static void integers_come_back_as_written(void **state)
{
	struct rig rig;
	uint32_t numbers[47], found[47];

	rig_open(&rig);
	for (uint32_t i = 0; i < 47; i++)
		numbers[i] = i * 0x01010101u;
	assert_int_equal(
		cache_write(rig.cache, 333, numbers, sizeof(numbers), WB),
		sizeof(numbers));
	assert_int_equal(cache_read(rig.cache, 333, found, sizeof(found)),
			 sizeof(found));
	assert_memory_equal(found, numbers, sizeof(numbers));
	rig_close(&rig);
}

static void a_flush_writes_all_lines_that_two_writes_touched(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 0x23b9, 213, 'x', WB);
	rig_fill(&rig, 0x23b9 + 300, 57, 'y', WB);
	assert_int_equal(cache_flush(rig.cache, 0x23b9, 0x23b9 + 364), 0);
	assert_true(rig_holds(&rig, 0x23b9, 213, 'x'));
	assert_true(rig_holds_first(&rig, 0x23b9 + 213, 87));
	assert_true(rig_holds(&rig, 0x23b9 + 300, 57, 'y'));
	/* They are still there, and no longer dirty. */
	device_reset(&rig.device);
	rig_expect(&rig, 0x23b9, 213, 'x');
	assert_int_equal(rig.device.n_reads, 0);
	assert_int_equal(cache_flush(rig.cache, 0, SIZE), 0);
	assert_int_equal(rig.device.n_writes, 0);
	rig_close(&rig);
}

static void what_was_invalidated_is_read_anew(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_expect_first(&rig, 700, 128);
	memset(rig.device.bytes + 700, 'n', 128);
	rig_expect_first(&rig, 700, 128);
	assert_int_equal(cache_invalidate(rig.cache, 700, 828), 0);
	rig_expect(&rig, 700, 128, 'n');
	rig_close(&rig);
}

static void what_was_cleaned_is_written_and_read_anew(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 640, 100, 'c', WB);
	assert_int_equal(cache_clean(rig.cache, 640, 740), 0);
	assert_true(rig_holds(&rig, 640, 100, 'c'));
	memset(rig.device.bytes + 640, 'o', 100);
	rig_expect(&rig, 640, 100, 'o');
	rig_close(&rig);
}

/* Bytes outside the range included, and dirty ones too. */
static void a_line_is_invalidated_as_a_whole(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 0, LINE, 'i', WB);
	assert_int_equal(cache_invalidate(rig.cache, 8, 16), 0);
	rig_expect_first(&rig, 0, LINE);
	assert_int_equal(cache_deinit(rig.cache), 0);
	assert_int_equal(rig.device.n_writes, 0);
	rig_free(&rig);
}

static void only_a_line_written_in_part_is_fetched(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 2 * LINE, LINE, 'f', WB);
	assert_int_equal(rig.device.n_reads, 0);
	rig_fill(&rig, 4 * LINE, LINE - 1, 'f', WB);
	assert_int_equal(rig.device.n_reads, 1);
	rig_expect_first(&rig, 5 * LINE - 1, 1);
	rig_close(&rig);
}

static void the_same_bytes_again_make_a_line_dirty(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 0, LINE, 's', WT);
	device_reset(&rig.device);
	rig_fill(&rig, 0, LINE, 's', WB);
	assert_int_equal(cache_flush(rig.cache, 0, SIZE), 0);
	assert_int_equal(rig.device.n_writes, 1);
	rig_close(&rig);
}

static void writing_through_moves_whole_lines(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 3 * LINE + 8, 8, 'w', WT);
	assert_int_equal(rig.device.bytes_written, LINE);
	assert_int_equal(rig.device.last_offset, 3 * LINE);
	assert_int_equal(rig.device.last_count, LINE);
	rig_close(&rig);
}

static void callbacks_are_asked_for_one_line_at_a_time(void **state)
{
	struct rig rig;
	uint8_t *bytes = malloc(N_LINES * LINE);

	assert_non_null(bytes);
	rig_open(&rig);
	assert_int_equal(cache_read(rig.cache, 0, bytes, N_LINES * LINE),
			 N_LINES * LINE);
	assert_int_equal(rig.device.n_reads, N_LINES);
	assert_int_equal(cache_write(rig.cache, 0, bytes, N_LINES * LINE, WB),
			 N_LINES * LINE);
	assert_int_equal(cache_flush(rig.cache, 0, SIZE), 0);
	assert_int_equal(rig.device.n_writes, N_LINES);
	assert_int_equal(rig.device.last_count, LINE);
	rig_close(&rig);
	free(bytes);
}

/* With its bytes written. */
static void the_line_used_least_recently_gives_way(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 0, LINE, 'v', WB);
	for (unsigned i = 1; i < WAYS; i++)
		(void)rig_misses(&rig, i * APART);
	assert_int_equal(rig_misses(&rig, 0), 0);
	assert_int_equal(rig_misses(&rig, WAYS * APART), 1);
	if (WAYS > 2) {
		assert_int_equal(rig_misses(&rig, 0), 0);
		assert_int_equal(rig_misses(&rig, APART), 1);
	}
	rig_expect(&rig, 0, LINE, 'v');
	rig_close(&rig);
}

/* Blocks of one set, the one used last first. */
struct order {
	uint64_t addrs[WAYS];
	unsigned n;
};

/* Whether it was not there. */
static int order_use(struct order *order, uint64_t addr)
{
	unsigned i;
	int is_new;

	for (i = 0; i < order->n && order->addrs[i] != addr; i++)
		;
	is_new = i == order->n;
	if (is_new && order->n < WAYS)
		order->n++;
	if (i == WAYS)
		i--;
	memmove(order->addrs + 1, order->addrs, i * sizeof(addr));
	order->addrs[0] = addr;
	return is_new;
}

static void check_order(struct rig *rig)
{
	struct order order = { .n = 0 };
	uint64_t seed = WAYS;

	assert_int_equal(cache_invalidate(rig->cache, 0, SIZE), 0);
	for (int i = 0; i < 5000; i++) {
		const uint64_t addr =
			harness_random(&seed) % (WAYS + 2) * APART;
		const unsigned before = rig->device.n_reads;

		if (harness_random(&seed) % 4)
			(void)rig_misses(rig, addr);
		else
			rig_fill(rig, addr, 1, i, WB);
		assert_int_equal(rig->device.n_reads - before,
				 order_use(&order, addr));
	}
}

static void lines_go_in_the_order_of_their_use(void **state)
{
	struct rig rig;

	rig_open_as(&rig, (WAYS + 2) * APART, LINE, N_LINES);
	check_order(&rig);
	rig_close(&rig);
}

static int use_it_too(unsigned index, void *arg)
{
	struct rig *rig = arg;
	uint8_t byte;

	return cache_read(rig->cache, 0, &byte, 1) != 1 ||
	       cache_read(rig->cache, 0, &byte, 1) != 1;
}

/* While two threads use a cache the order is not quite that. */
static void the_order_is_kept_again_once_other_threads_are_gone(void **state)
{
	struct rig rig;

	rig_open_as(&rig, (WAYS + 2) * APART, LINE, N_LINES);
	(void)rig_misses(&rig, 0);
	(void)rig_misses(&rig, 0);
	assert_int_equal(harness_threads(1, use_it_too, &rig), 0);
	for (uint64_t i = 0; i < 200; i++) {
		const uint64_t addr = i % (WAYS + 2) * APART;

		(void)rig_misses(&rig, addr);
		(void)rig_misses(&rig, addr);
	}
	check_order(&rig);
	rig_close(&rig);
}

/* ---- Devices that fail --------------------------------------------------------------- */

/* Whatever the callback says, users get -EIO. */
static const ssize_t answers[] = { -EIO, -EBADMSG, -1, DEVICE_NOTHING };

static void a_write_through_that_fails_leaves_the_line_dirty(void **state)
{
	struct rig rig;
	uint8_t buffer[LINE];

	rig_open(&rig);
	memset(buffer, 'd', LINE);
	rig.device.write_answer = -EIO;
	assert_int_equal(cache_write(rig.cache, 10, buffer, 20, WT), -EIO);
	rig_expect(&rig, 10, 20, 'd');
	assert_int_equal(cache_deinit(rig.cache), -EIO);
	/* Healed, it may be tried again. */
	rig.device.write_answer = 0;
	rig_expect(&rig, 10, 20, 'd');
	assert_int_equal(cache_deinit(rig.cache), 0);
	assert_true(rig_holds(&rig, 10, 20, 'd'));
	rig_free(&rig);
}

static void a_fetch_that_fails_leaves_nothing(void **state)
{
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		struct rig rig;
		uint8_t buffer[20] = { 0 };

		rig_open(&rig);
		rig.device.read_answer = answers[i];
		errno = 0;
		assert_int_equal(cache_write(rig.cache, 10, buffer, 20, WB),
				 -EIO);
		assert_int_equal(cache_read(rig.cache, 10, buffer, 20), -EIO);
		assert_int_equal(errno, 0);
		assert_int_equal(cache_deinit(rig.cache), 0);
		assert_int_equal(rig.device.n_writes, 0);
		rig_free(&rig);
	}
}

static void flush_and_clean_tell_that_the_device_failed(void **state)
{
	for (size_t call = 0; call < 3; call += 2) {
		struct rig rig;

		rig_open(&rig);
		rig_fill(&rig, 500, 213, 'e', WB);
		rig.device.write_answer = -EBADMSG;
		assert_int_equal(range_calls[call](rig.cache, 500, 713), -EIO);
		assert_int_equal(cache_deinit(rig.cache), -EIO);
		rig.device.write_answer = 0;
		rig_expect(&rig, 500, 213, 'e');
		rig_close(&rig);
	}
}

static void transfers_that_come_back_short_go_on(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig.device.bytes_max = 10;
	rig_expect_first(&rig, 0, LINE);
	assert_int_equal(rig.device.n_reads, 7);
	assert_int_equal(rig.device.last_offset, 60);
	assert_int_equal(rig.device.last_count, 4);
	rig_fill(&rig, 0, LINE, 'h', WT);
	assert_int_equal(rig.device.n_writes, 7);
	assert_int_equal(rig.device.last_count, 4);
	assert_true(rig_holds(&rig, 0, LINE, 'h'));
	rig_close(&rig);
}

static ssize_t fail_after_some(cache_devCtx_t *device, enum device_call call,
			       uint64_t offset, size_t count)
{
	unsigned *n_left = device->hook_arg;

	if (!*n_left)
		return -EIO;
	--*n_left;
	return 0;
}

/* The third of four lines fails. */
static void a_write_through_that_fails_midway_has_written_the_first(
	void **state)
{
	struct rig rig;
	uint8_t buffer[4 * LINE];
	unsigned n_left = 2;

	rig_open(&rig);
	memset(buffer, 'm', sizeof(buffer));
	rig.device.hook = fail_after_some;
	rig.device.hook_arg = &n_left;
	assert_int_equal(cache_write(rig.cache, 0, buffer, sizeof(buffer), WT),
			 -EIO);
	assert_true(rig_holds(&rig, 0, 2 * LINE, 'm'));
	assert_true(rig_holds_first(&rig, 2 * LINE, 2 * LINE));
	rig.device.hook = NULL;
	rig_expect(&rig, 0, 3 * LINE, 'm');
	rig_close(&rig);
}

static void a_flush_ends_at_the_first_line_that_fails(void **state)
{
	struct rig rig;
	unsigned n_left = 1;

	rig_open(&rig);
	rig_fill(&rig, 0, 4 * LINE, 'k', WB);
	rig.device.hook = fail_after_some;
	rig.device.hook_arg = &n_left;
	assert_int_equal(cache_flush(rig.cache, 0, 4 * LINE), -EIO);
	assert_int_equal(rig.device.n_writes, 2);
	assert_true(rig_holds(&rig, 0, LINE, 'k'));
	rig.device.hook = NULL;
	device_reset(&rig.device);
	assert_int_equal(cache_flush(rig.cache, 0, 4 * LINE), 0);
	assert_int_equal(rig.device.n_writes, 3);
	assert_true(rig_holds(&rig, 0, 4 * LINE, 'k'));
	rig_close(&rig);
}

static void a_clean_keeps_the_line_that_fails_and_those_after_it(void **state)
{
	struct rig rig;
	unsigned n_left = 1;

	rig_open(&rig);
	rig_fill(&rig, 0, 4 * LINE, 'k', WB);
	rig.device.hook = fail_after_some;
	rig.device.hook_arg = &n_left;
	assert_int_equal(cache_clean(rig.cache, 0, 4 * LINE), -EIO);
	rig.device.hook = NULL;
	assert_int_equal(rig_misses(&rig, 0), 1);
	assert_int_equal(rig_misses(&rig, LINE), 0);
	assert_int_equal(rig_misses(&rig, 3 * LINE), 0);
	rig_expect(&rig, 0, 4 * LINE, 'k');
	assert_int_equal(cache_deinit(rig.cache), 0);
	assert_true(rig_holds(&rig, 0, 4 * LINE, 'k'));
	rig_free(&rig);
}

static void a_cache_that_could_not_end_is_still_one(void **state)
{
	struct rig rig;

	rig_open(&rig);
	rig_fill(&rig, 0, 2 * LINE, 'z', WB);
	rig.device.write_answer = -EIO;
	assert_int_equal(cache_deinit(rig.cache), -EIO);
	assert_int_equal(cache_deinit(rig.cache), -EIO);
	rig.device.write_answer = 0;
	rig_expect(&rig, 0, 2 * LINE, 'z');
	rig_fill(&rig, 5 * LINE, 7, 'z', WB);
	assert_int_equal(cache_deinit(rig.cache), 0);
	assert_true(rig_holds(&rig, 0, 2 * LINE, 'z'));
	assert_true(rig_holds(&rig, 5 * LINE, 7, 'z'));
	rig_free(&rig);
}

/* ---- Threads --------------------------------------------------------------------------- */

static const struct {
	uint64_t addr;
	size_t count;
} parts[] = { { 25, 127 }, { 652, 144 }, { 2000, 154 }, { 7003, 138 } };

static int write_a_part(unsigned index, void *arg)
{
	struct rig *rig = arg;
	uint8_t buffer[160];

	memset(buffer, 'A' + (int)index, sizeof(buffer));
	return cache_write(rig->cache, parts[index].addr, buffer,
			   parts[index].count,
			   WT) != (ssize_t)parts[index].count;
}

static void four_threads_write_through_one_cache(void **state)
{
	struct rig rig;

	rig_open(&rig);
	assert_int_equal(harness_threads(4, write_a_part, &rig), 0);
	for (int i = 0; i < 4; i++) {
		rig_expect(&rig, parts[i].addr, parts[i].count, 'A' + i);
		assert_true(rig_holds(&rig, parts[i].addr, parts[i].count,
				      'A' + i));
		assert_true(rig_holds_first(
			&rig, parts[i].addr + parts[i].count, 100));
	}
	rig_close(&rig);
}

static int read_a_part(unsigned index, void *arg)
{
	struct rig *rig = arg;
	const size_t count = index ? 10 : 164;
	uint8_t buffer[164];
	int wrong = 0;

	for (unsigned turn = 0; turn < 100; turn++) {
		const uint64_t addr = turn * 61 + index;

		wrong |= cache_read(rig->cache, addr, buffer, count) !=
			 (ssize_t)count;
		for (size_t i = 0; i < count; i++)
			wrong |= buffer[i] != device_byte(addr + i);
	}
	return wrong;
}

static void two_threads_read_one_cache(void **state)
{
	struct rig rig;

	rig_open(&rig);
	assert_int_equal(harness_threads(2, read_a_part, &rig), 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_that_cannot_be_are_refused),
		cmocka_unit_test(
			an_unused_cache_ends_without_a_word_to_the_device),
		cmocka_unit_test(operations_are_copied),
		cmocka_unit_test(arguments_are_looked_at_before_anything_else),
		cmocka_unit_test(nothing_read_leaves_the_buffer_alone),
		cmocka_unit_test(
			what_is_over_the_end_is_neither_written_nor_read),
		cmocka_unit_test(
			ranges_are_looked_at_by_flush_invalidate_and_clean),
		cmocka_unit_test(ranges_are_of_whole_lines),
		cmocka_unit_test(
			bytes_written_through_are_on_the_device_at_once),
		cmocka_unit_test(
			bytes_written_back_are_on_the_device_in_the_end),
		cmocka_unit_test(each_byte_written_has_its_own_place),
		cmocka_unit_test(integers_are_read_as_they_are_on_the_device),
		cmocka_unit_test(integers_come_back_as_written),
		cmocka_unit_test(
			a_flush_writes_all_lines_that_two_writes_touched),
		cmocka_unit_test(what_was_invalidated_is_read_anew),
		cmocka_unit_test(what_was_cleaned_is_written_and_read_anew),
		cmocka_unit_test(a_line_is_invalidated_as_a_whole),
		cmocka_unit_test(only_a_line_written_in_part_is_fetched),
		cmocka_unit_test(the_same_bytes_again_make_a_line_dirty),
		cmocka_unit_test(writing_through_moves_whole_lines),
		cmocka_unit_test(callbacks_are_asked_for_one_line_at_a_time),
		cmocka_unit_test(the_line_used_least_recently_gives_way),
		cmocka_unit_test(lines_go_in_the_order_of_their_use),
		cmocka_unit_test(
			the_order_is_kept_again_once_other_threads_are_gone),
		cmocka_unit_test(
			a_write_through_that_fails_leaves_the_line_dirty),
		cmocka_unit_test(a_fetch_that_fails_leaves_nothing),
		cmocka_unit_test(flush_and_clean_tell_that_the_device_failed),
		cmocka_unit_test(transfers_that_come_back_short_go_on),
		cmocka_unit_test(
			a_write_through_that_fails_midway_has_written_the_first),
		cmocka_unit_test(a_flush_ends_at_the_first_line_that_fails),
		cmocka_unit_test(
			a_clean_keeps_the_line_that_fails_and_those_after_it),
		cmocka_unit_test(a_cache_that_could_not_end_is_still_one),
		cmocka_unit_test(four_threads_write_through_one_cache),
		cmocka_unit_test(two_threads_read_one_cache),
	};

	return cmocka_run_group_tests_name("libcache contract", tests, NULL,
					   NULL);
}
