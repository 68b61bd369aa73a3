/* SPDX-License-Identifier: MIT */

/*
 * The block cache against a device in memory that counts, fails and runs short.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "block/inside.h"
#include "harness/harness.h"

#define DEVICE_BYTES 8000

struct device {
	uint8_t bytes[DEVICE_BYTES];
	int reads;
	int writes;
	int reads_fail;
	int writes_fail;
	uint64_t bad_from; /* transfers that touch it from here on fail */
	uint64_t bad_end;
	size_t written;
	/* Called from within. */
	void (*read_hook)(struct device *device);
	void (*write_hook)(struct device *device);
	struct kiln_block *block;
	ssize_t answer;
	pthread_barrier_t *barrier;
	sem_t inside, go_on;
};

static int is_bad(const struct device *device, uint64_t offset, size_t count)
{
	return offset < device->bad_end && offset + count > device->bad_from;
}

static ssize_t device_read(uint64_t offset, void *buffer, size_t count,
			   void *context)
{
	struct device *device = context;

	device->reads++;
	if (device->read_hook)
		device->read_hook(device);
	if (device->reads_fail || is_bad(device, offset, count))
		return -ENXIO;
	memcpy(buffer, device->bytes + offset, count);
	return (ssize_t)count;
}

static ssize_t device_write(uint64_t offset, const void *buffer, size_t count,
			    void *context)
{
	struct device *device = context;

	device->writes++;
	if (device->write_hook)
		device->write_hook(device);
	if (device->writes_fail || is_bad(device, offset, count))
		return -ENXIO;
	device->written += count;
	memcpy(device->bytes + offset, buffer, count);
	return (ssize_t)count;
}

static struct kiln_block_options small(size_t line_bytes, size_t n_lines)
{
	struct kiln_block_options options = kiln_block_options_default();

	options.device_bytes = DEVICE_BYTES;
	options.line_bytes = line_bytes;
	options.n_lines = n_lines;
	return options;
}

static struct kiln_block *open_on(struct device *device,
				  const struct kiln_block_options *options)
{
	struct kiln_block_device functions = { device_read, device_write,
					       device };
	size_t i;

	for (i = 0; i < DEVICE_BYTES; i++)
		device->bytes[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(kiln_block_open(options, &functions, &device->block),
			 0);
	return device->block;
}

/* ---- What does not disturb ---------------------------------------------- */

static void a_neighbour_is_one_call_with_coalescing(void **state)
{
	struct kiln_block_options options = small(64, 64);
	struct device device = { .reads = 0 };
	struct kiln_block *block;
	uint8_t bytes[2048];

	options.call_bytes_max = 2048;
	block = open_on(&device, &options);
	assert_int_equal(kiln_block_read(block, 0, bytes, 2048), 2048);
	assert_memory_equal(bytes, device.bytes, 2048);
	assert_int_equal(device.reads, 1);
	memset(bytes, 9, sizeof(bytes));
	assert_int_equal(
		kiln_block_write(block, 64, bytes, 1920, KILN_BLOCK_WRITE_BACK),
		1920);
	assert_int_equal(kiln_block_flush(block, 0, UINT64_MAX), 0);
	assert_int_equal(device.writes, 1);
	assert_memory_equal(device.bytes + 64, bytes, 1920);
	assert_int_equal(kiln_block_close(block), 0);
}

static void an_eviction_writes_what_follows_too(void **state)
{
	struct kiln_block_options options = small(64, 64);
	struct kiln_block_stats stats = { .size = sizeof(stats) };
	struct device device = { .reads = 0 };
	uint8_t bytes[4096] = { 1 };
	struct kiln_block *block;

	options.call_bytes_max = 1024;
	block = open_on(&device, &options);
	assert_int_equal(kiln_block_write(block, 0, bytes, sizeof(bytes),
					  KILN_BLOCK_WRITE_BACK),
			 sizeof(bytes));
	assert_int_equal(kiln_block_read(block, 4096, bytes + 1, 1), 1);
	assert_int_equal(device.writes, 1);
	assert_int_equal(device.bytes[0], 1);
	assert_int_equal(kiln_block_stats(block, &stats), 0);
	assert_int_equal(stats.n_dirty, 48);
	assert_int_equal(kiln_block_close(block), 0);
}

static void reading_on_fetches_ahead(void **state)
{
	struct kiln_block_options options = small(64, 64);
	struct device device = { .reads = 0 };
	struct kiln_block *block;
	uint8_t byte;
	uint64_t at;

	options.call_bytes_max = 1024;
	options.read_ahead_bytes = 960;
	block = open_on(&device, &options);
	for (at = 0; at < 64 + 1024; at += 64)
		assert_int_equal(kiln_block_read(block, at, &byte, 1), 1);
	assert_int_equal(device.reads, 2);
	assert_int_equal(kiln_block_close(block), 0);
}

static void a_small_write_through_is_small(void **state)
{
	struct kiln_block_options options = small(4096, 4);
	struct device device = { .reads = 0 };
	struct kiln_block *block;

	options.flush_granularity = 64;
	block = open_on(&device, &options);
	assert_int_equal(kiln_block_write(block, 1000, "12345678", 8,
					  KILN_BLOCK_WRITE_THROUGH),
			 8);
	assert_int_equal(device.written, 64);
	assert_memory_equal(device.bytes + 1000, "12345678", 8);
	assert_int_equal(kiln_block_close(block), 0);
	assert_int_equal(device.written, 64);
}

/* ---- Failures ----------------------------------------------------------- */

static void a_dirty_line_that_cannot_go_lets_clean_ones_go(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .bad_from = 0, .bad_end = 0 };
	struct kiln_block *block = open_on(&device, &options);
	uint8_t byte = 1;
	uint64_t at;

	assert_int_equal(
		kiln_block_write(block, 3, &byte, 1, KILN_BLOCK_WRITE_BACK), 1);
	device.bad_end = 64;
	for (at = 64; at < 64 * 20; at += 64) {
		assert_int_equal(kiln_block_read(block, at, &byte, 1), 1);
		assert_int_equal(byte, device.bytes[at]);
	}
	assert_int_equal(kiln_block_device_error(block), -ENXIO);
	assert_int_equal(kiln_block_close(block), -EIO);
	device.bad_end = 0;
	assert_int_equal(kiln_block_close(block), 0);
	assert_int_equal(device.bytes[3], 1);
}

/* All lines of the only set are dirty, and one cannot be written. */
static void a_bad_line_does_not_keep_dirty_ones_from_going(void **state)
{
	for (size_t i = 0; i < 8; i++) {
		struct kiln_block_options options = small(64, 4);
		struct device device = { .reads = 0 };
		struct kiln_block *block;
		uint8_t bytes[256];

		options.policy =
			i % 2 ? KILN_BLOCK_SCAN_RESISTANT : KILN_BLOCK_LRU;
		block = open_on(&device, &options);
		memset(bytes, 5, sizeof(bytes));
		assert_int_equal(kiln_block_write(block, 0, bytes, 256,
						  KILN_BLOCK_WRITE_BACK),
				 256);
		device.bad_from = i / 2 * 64;
		device.bad_end = device.bad_from + 64;
		assert_int_equal(kiln_block_read(block, 512, bytes, 8), 8);
		assert_memory_equal(bytes, device.bytes + 512, 8);
		assert_int_equal(kiln_block_write(block, 1024, bytes, 64,
						  KILN_BLOCK_WRITE_BACK),
				 64);
		device.bad_end = 0;
		assert_int_equal(kiln_block_close(block), 0);
		for (size_t at = 0; at < 256; at++)
			assert_int_equal(device.bytes[at], 5);
	}
}

static void blocks_behind_that_cannot_be_read_cost_only_themselves(void **state)
{
	struct kiln_block_options options = small(64, 64);
	struct device device = { .bad_from = 300, .bad_end = 301 };
	struct kiln_block *block;
	uint8_t bytes[512];

	options.call_bytes_max = 1024;
	options.read_ahead_bytes = 1024;
	block = open_on(&device, &options);
	for (uint64_t at = 0; at < 256; at += 8) {
		assert_int_equal(kiln_block_read(block, at, bytes, 8), 8);
		assert_memory_equal(bytes, device.bytes + at, 8);
	}
	assert_int_equal(kiln_block_invalidate(block, 0, UINT64_MAX), 0);
	assert_int_equal(kiln_block_read(block, 0, bytes, 256), 256);
	assert_int_equal(kiln_block_read(block, 256, bytes, 8), -EIO);
	assert_int_equal(kiln_block_read(block, 320, bytes, 8), 8);
	assert_int_equal(kiln_block_close(block), 0);
}

static void a_failed_read_costs_no_line(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);
	uint8_t bytes[256];

	memset(bytes, 5, sizeof(bytes));
	assert_int_equal(
		kiln_block_write(block, 0, bytes, 256, KILN_BLOCK_WRITE_BACK),
		256);
	device.reads_fail = 1;
	assert_int_equal(kiln_block_read(block, 512, bytes, 8), -EIO);
	assert_int_equal(kiln_block_read(block, 0, bytes, 256), 256);
	assert_int_equal(bytes[255], 5);
	assert_int_equal(device.writes, 0);
	assert_int_equal(kiln_block_close(block), 0);
}

/* ---- Lines that stay ---------------------------------------------------- */

static void a_held_line_neither_goes_nor_changes(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);
	const void *data;
	uint8_t byte;
	uint64_t at;
	size_t size;

	assert_int_equal(kiln_block_get(block, 10, &data, &size), 0);
	assert_int_equal(size, 54);
	assert_int_equal(
		kiln_block_write(block, 0, "x", 1, KILN_BLOCK_WRITE_BACK),
		-EBUSY);
	for (at = 64; at < 64 * 20; at += 64)
		assert_int_equal(kiln_block_read(block, at, &byte, 1), 1);
	assert_int_equal(kiln_block_invalidate(block, 0, UINT64_MAX), -EBUSY);
	assert_int_equal(kiln_block_close(block), -EBUSY);
	assert_memory_equal(data, device.bytes + 10, 54);
	kiln_block_release(block, data);
	assert_int_equal(kiln_block_close(block), 0);
}

static void lines_of_a_power_of_two_bytes_are_aligned_to_it(void **state)
{
	static const struct {
		size_t line_bytes, alignment;
	} rows[] = {
		{ 64, 64 },	{ 128, 128 },	{ 512, 512 },
		{ 4096, 4096 }, { 8192, 4096 }, { 192, 64 },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_block_options options =
			small(rows[i].line_bytes, 8);
		struct device device = { .reads = 0 };
		struct kiln_block *block = open_on(&device, &options);
		const void *data;
		uint64_t at;
		size_t size;

		for (at = 0; at < DEVICE_BYTES; at += rows[i].line_bytes) {
			assert_int_equal(
				kiln_block_get(block, at, &data, &size), 0);
			assert_int_equal((uintptr_t)data % rows[i].alignment,
					 0);
			kiln_block_release(block, data);
		}
		assert_int_equal(kiln_block_close(block), 0);
	}
}

static void a_set_full_of_pinned_lines_still_reads_and_writes(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);
	uint8_t byte;

	assert_int_equal(kiln_block_pin(block, 0, 256), 0);
	assert_int_equal(kiln_block_pin(block, 300, 1), -ENOSPC);
	assert_int_equal(kiln_block_read(block, 300, &byte, 1), 1);
	assert_int_equal(byte, device.bytes[300]);
	assert_int_equal(
		kiln_block_write(block, 300, "y", 1, KILN_BLOCK_WRITE_BACK), 1);
	assert_int_equal(device.bytes[300], 'y');
	assert_int_equal(kiln_block_unpin(block, 0, 256), 0);
	assert_int_equal(kiln_block_unpin(block, 0, 1), -EINVAL);
	assert_int_equal(kiln_block_close(block), 0);
}

static void a_prefetch_brings_in_what_there_is_room_for(void **state)
{
	static const uint64_t places[] = { 0, 30, 64 };
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct kiln_block_options options = small(64, 8);
		struct kiln_block_stats stats = { .size = sizeof(stats) };
		struct device device = { .reads = 0 };
		struct kiln_block *block = open_on(&device, &options);
		uint8_t bytes[512];

		assert_int_equal(
			kiln_block_prefetch(block, places[i], UINT64_MAX), 0);
		assert_int_equal(device.reads, 8);
		assert_int_equal(kiln_block_read(block, places[i], bytes, 448),
				 448);
		assert_memory_equal(bytes, device.bytes + places[i], 448);
		assert_int_equal(device.reads, 8);
		assert_int_equal(kiln_block_stats(block, &stats), 0);
		assert_int_equal(stats.evictions, 0);
		assert_int_equal(kiln_block_close(block), 0);
	}
}

/* ---- Callbacks that come back ------------------------------------------- */

static void read_again(struct device *device)
{
	uint8_t byte;

	device->read_hook = NULL;
	device->answer = kiln_block_read(device->block, 0, &byte, 1);
	if (device->answer == 1)
		device->answer = kiln_block_read(device->block, 4000, &byte, 1);
}

static void a_callback_is_served_or_told_of_the_deadlock(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);
	uint8_t byte;

	assert_int_equal(kiln_block_read(block, 0, &byte, 1), 1);
	device.read_hook = read_again;
	assert_int_equal(kiln_block_read(block, 64, &byte, 1), 1);
	assert_int_equal(device.answer, -EDEADLK);
	assert_int_equal(kiln_block_close(block), 0);
}

static void end_it(struct device *device)
{
	device->read_hook = NULL;
	device->answer = kiln_block_close(device->block);
	if (device->answer == -EBUSY)
		device->answer = kiln_block_resize(device->block, 8);
}

static void a_callback_cannot_end_its_cache_nor_resize_it(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .read_hook = end_it };
	struct kiln_block *block = open_on(&device, &options);
	uint8_t byte;

	assert_int_equal(kiln_block_read(block, 64, &byte, 1), 1);
	assert_int_equal(device.answer, -EBUSY);
	assert_int_equal(byte, device.bytes[64]);
	assert_int_equal(kiln_block_close(block), 0);
}

static void write_meanwhile(struct device *device)
{
	device->write_hook = NULL;
	device->answer = kiln_block_write(device->block, 1, "b", 1,
					  KILN_BLOCK_WRITE_BACK);
}

static void what_is_written_while_it_is_cleaned_is_written_again(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);

	assert_int_equal(
		kiln_block_write(block, 0, "a", 1, KILN_BLOCK_WRITE_BACK), 1);
	device.write_hook = write_meanwhile;
	assert_int_equal(kiln_block_clean(block, 0, 64), 0);
	assert_int_equal(device.answer, 1);
	assert_int_equal(device.writes, 2);
	assert_memory_equal(device.bytes, "ab", 2);
	assert_int_equal(kiln_block_close(block), 0);
}

/* A miss of the same set, and then the write fails. */
static void miss_meanwhile(struct device *device)
{
	uint8_t byte;

	device->write_hook = NULL;
	device->answer = kiln_block_read(device->block, 512, &byte, 1);
	device->writes_fail = 1;
}

static void a_line_on_its_way_to_the_device_does_not_go(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .write_hook = miss_meanwhile };
	struct kiln_block *block;
	uint8_t byte;
	uint64_t at;

	options.n_calls = 2;
	block = open_on(&device, &options);
	assert_int_equal(
		kiln_block_write(block, 0, "a", 1, KILN_BLOCK_WRITE_BACK), 1);
	for (at = 64; at < 256; at += 64)
		assert_int_equal(kiln_block_read(block, at, &byte, 1), 1);
	assert_int_equal(kiln_block_flush(block, 0, 64), -EIO);
	assert_int_equal(device.answer, 1);
	device.writes_fail = 0;
	assert_int_equal(kiln_block_read(block, 0, &byte, 1), 1);
	assert_int_equal(byte, 'a');
	assert_int_equal(kiln_block_close(block), 0);
	assert_int_equal(device.bytes[0], 'a');
}

/* ---- Threads ------------------------------------------------------------ */

static int hit_once(unsigned index, void *arg)
{
	struct device *device = arg;
	uint8_t byte;
	int wrong = kiln_block_read(device->block, 0, &byte, 1) != 1;

	pthread_barrier_wait(device->barrier);
	return wrong;
}

static int has_a_place(const struct kiln_block *block)
{
	size_t i;

	for (i = 0; i < N_STRIPES; i++)
		if (load(&block->hits->owners[i]) == this_thread())
			return 1;
	return 0;
}

/* More of them, and all at once, than there are places to count hits. */
static void threads_that_are_gone_leave_their_places(void **state)
{
	struct kiln_block_options options = small(64, 64);
	struct kiln_block_stats stats = { .size = sizeof(stats) };
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);
	pthread_barrier_t barrier;
	const uint64_t n = 20000;
	uint8_t byte;
	uint64_t i;

	device.barrier = &barrier;
	pthread_barrier_init(&barrier, NULL, 2 * N_STRIPES);
	assert_int_equal(kiln_block_read(block, 0, &byte, 1), 1);
	assert_int_equal(harness_threads(2 * N_STRIPES, hit_once, &device), 0);
	for (i = 0; i < n; i++)
		assert_int_equal(kiln_block_read(block, 0, &byte, 1), 1);
	assert_true(has_a_place(block));
	assert_int_equal(kiln_block_stats(block, &stats), 0);
	assert_true(stats.hits >= n);
	pthread_barrier_destroy(&barrier);
	assert_int_equal(kiln_block_close(block), 0);
}

static void stay_inside(struct device *device)
{
	sem_post(&device->inside);
	sem_wait(&device->go_on);
}

static int read_the_same(unsigned index, void *arg)
{
	struct device *device = arg;
	uint8_t byte;

	return kiln_block_read(device->block, 0, &byte, 1) != 1;
}

static int is_waited_for(struct kiln_block *block)
{
	int result;

	ki_mutex_lock(&block->mutex);
	result = block->n_waiting != 0;
	ki_mutex_unlock(&block->mutex);
	return result;
}

static void *two_readers(void *arg)
{
	return (void *)(uintptr_t)harness_threads(2, read_the_same, arg);
}

/* Forked while one thread is with the device and another waits for it. */
static void a_forked_child_may_abandon_its_copy(void **state)
{
	struct kiln_block_options options = small(64, 4);
	struct device device = { .read_hook = stay_inside };
	struct kiln_block *block;
	pthread_t thread;
	void *wrong;
	int status;
	pid_t child;

	if (!HARNESS_FORKS_AMONG_THREADS)
		HARNESS_LEAVE_OUT("no forks among threads");
	block = open_on(&device, &options);
	sem_init(&device.inside, 0, 0);
	sem_init(&device.go_on, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, two_readers, &device),
			 0);
	sem_wait(&device.inside);
	while (!is_waited_for(block))
		sched_yield();
	child = fork();
	if (!child) {
		alarm(HARNESS_HANG_S);
		kiln_block_abandon(block);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	device.read_hook = NULL;
	sem_post(&device.go_on);
	assert_int_equal(pthread_join(thread, &wrong), 0);
	assert_null(wrong);
	assert_int_equal(status, 0);
	assert_int_equal(kiln_block_close(block), 0);
}

/* ---- Size --------------------------------------------------------------- */

static void a_resize_keeps_what_was_written(void **state)
{
	struct kiln_block_options options = small(100, 8);
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);
	static const size_t sizes[] = { 40, 4, 24 };
	uint8_t bytes[DEVICE_BYTES];
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(kiln_block_write(block, i * 1000, "kept", 4,
						  KILN_BLOCK_WRITE_BACK),
				 4);
		assert_int_equal(kiln_block_resize(block, sizes[i]), 0);
		assert_int_equal(kiln_block_read(block, 0, bytes, DEVICE_BYTES),
				 DEVICE_BYTES);
		assert_memory_equal(bytes, device.bytes, DEVICE_BYTES);
		assert_memory_equal(bytes + i * 1000, "kept", 4);
	}
	assert_int_equal(kiln_block_resize(block, 7), -EINVAL);
	assert_int_equal(kiln_block_close(block), 0);
}

/* One set of four lines becomes two, or part of one. */
static void a_resize_keeps_the_order_of_use(void **state)
{
	static const uint64_t uses[] = { 2, 0, 6, 4 };
	struct kiln_block_options options = small(64, 4);
	struct device device = { .reads = 0 };
	struct kiln_block *block = open_on(&device, &options);
	uint8_t byte;
	uint64_t i;

	for (i = 0; i < 8; i += 2)
		assert_int_equal(kiln_block_read(block, i * 64, &byte, 1), 1);
	for (i = 0; i < 4; i++)
		assert_int_equal(kiln_block_read(block, uses[i] * 64, &byte, 1),
				 1);
	assert_int_equal(kiln_block_resize(block, 8), 0);
	/* Each new one of the same set takes the place of the next in turn. */
	for (i = 0; i < 4; i++) {
		assert_int_equal(
			kiln_block_read(block, (8 + 2 * i) * 64, &byte, 1), 1);
		device.reads = 0;
		for (size_t left = i + 1; left < 4; left++)
			assert_int_equal(kiln_block_read(block, uses[left] * 64,
							 &byte, 1),
					 1);
		assert_int_equal(device.reads, 0);
	}
	assert_int_equal(kiln_block_close(block), 0);
}

static void a_line_costs_at_most_32_bytes_more(void **state)
{
	struct kiln_block_options options = small(64, 1024);
	struct kiln_block_stats stats = { .size = sizeof(stats) };
	struct device device = { .reads = 0 };
	struct kiln_block *block;

	options.policy = KILN_BLOCK_SCAN_RESISTANT;
	block = open_on(&device, &options);
	assert_int_equal(kiln_block_stats(block, &stats), 0);
	assert_true(stats.metadata_bytes <= 32 * 1024);
	assert_int_equal(kiln_block_close(block), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_neighbour_is_one_call_with_coalescing),
		cmocka_unit_test(an_eviction_writes_what_follows_too),
		cmocka_unit_test(reading_on_fetches_ahead),
		cmocka_unit_test(a_small_write_through_is_small),
		cmocka_unit_test(
			a_dirty_line_that_cannot_go_lets_clean_ones_go),
		cmocka_unit_test(
			a_bad_line_does_not_keep_dirty_ones_from_going),
		cmocka_unit_test(
			blocks_behind_that_cannot_be_read_cost_only_themselves),
		cmocka_unit_test(a_failed_read_costs_no_line),
		cmocka_unit_test(a_held_line_neither_goes_nor_changes),
		cmocka_unit_test(
			lines_of_a_power_of_two_bytes_are_aligned_to_it),
		cmocka_unit_test(
			a_set_full_of_pinned_lines_still_reads_and_writes),
		cmocka_unit_test(a_prefetch_brings_in_what_there_is_room_for),
		cmocka_unit_test(a_callback_is_served_or_told_of_the_deadlock),
		cmocka_unit_test(a_callback_cannot_end_its_cache_nor_resize_it),
		cmocka_unit_test(
			what_is_written_while_it_is_cleaned_is_written_again),
		cmocka_unit_test(a_line_on_its_way_to_the_device_does_not_go),
		cmocka_unit_test(threads_that_are_gone_leave_their_places),
		cmocka_unit_test(a_forked_child_may_abandon_its_copy),
		cmocka_unit_test(a_resize_keeps_what_was_written),
		cmocka_unit_test(a_resize_keeps_the_order_of_use),
		cmocka_unit_test(a_line_costs_at_most_32_bytes_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
