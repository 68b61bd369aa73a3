/* SPDX-License-Identifier: MIT */

#include "rig.h"

#include <stdlib.h>
#include <string.h>

void rig_open_as(struct rig *rig, size_t size, size_t line, size_t n_lines)
{
	cache_ops_t ops;

	device_init(&rig->device, size);
	ops = device_ops(&rig->device);
	rig->cache = cache_init(size, line, n_lines, &ops);
	assert_non_null(rig->cache);
}

void rig_open(struct rig *rig)
{
	rig_open_as(rig, SIZE, LINE, N_LINES);
}

void rig_check(struct rig *rig)
{
	assert_int_equal(rig->device.n_outside, 0);
	assert_int_equal(rig->device.n_overlaps, 0);
}

void rig_free(struct rig *rig)
{
	rig_check(rig);
	free(rig->device.bytes);
}

void rig_close(struct rig *rig)
{
	assert_int_equal(cache_deinit(rig->cache), 0);
	rig_free(rig);
}

void rig_fill(struct rig *rig, uint64_t addr, size_t count, int value,
	      int policy)
{
	uint8_t *bytes = malloc(count);

	assert_non_null(bytes);
	memset(bytes, value, count);
	assert_int_equal(cache_write(rig->cache, addr, bytes, count, policy),
			 count);
	free(bytes);
}

void rig_expect(struct rig *rig, uint64_t addr, size_t count, int value)
{
	uint8_t *bytes = calloc(1, count);

	assert_non_null(bytes);
	assert_int_equal(cache_read(rig->cache, addr, bytes, count), count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(bytes[i], value);
	free(bytes);
}

void rig_expect_first(struct rig *rig, uint64_t addr, size_t count)
{
	uint8_t *bytes = calloc(1, count);

	assert_non_null(bytes);
	assert_int_equal(cache_read(rig->cache, addr, bytes, count), count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(bytes[i], device_byte(addr + i));
	free(bytes);
}

int rig_holds(const struct rig *rig, uint64_t addr, size_t count, int value)
{
	for (size_t i = 0; i < count; i++) {
		if (rig->device.bytes[addr + i] != value)
			return 0;
	}
	return 1;
}

int rig_holds_first(const struct rig *rig, uint64_t addr, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (rig->device.bytes[addr + i] != device_byte(addr + i))
			return 0;
	}
	return 1;
}

int rig_misses(struct rig *rig, uint64_t addr)
{
	const unsigned before = rig->device.n_reads;
	uint8_t byte;

	assert_int_equal(cache_read(rig->cache, addr, &byte, 1), 1);
	return rig->device.n_reads != before;
}
