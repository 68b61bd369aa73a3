/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_PACK_PACK_TEST_H
#define KI_STORE_PACK_PACK_TEST_H

/*
 * What the tests of packs share: packs of numbered entries, and devices that
 * have a pack's bytes in memory, count what they are asked for and fail where
 * they are told to.
 */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "key/key.h"
#include "store/pack/pack.h"

/* ---- Numbered entries -------------------------------------------------------- */

static inline struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "n", &n, sizeof(n));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

/* Of which a prefix is the value of entry `n`. */
#define VALUE_BYTES_MAX 70000
static inline size_t value_of(unsigned n, size_t size, uint8_t *out)
{
	uint64_t seed = n;

	for (size_t i = 0; i < size; i++)
		out[i] = (uint8_t)(i % 8 ? out[i - 1] * 31 + n
					 : harness_random(&seed));
	return size;
}

/* Sizes that differ, some 0, some no multiple of 8. */
static inline size_t size_of(unsigned n)
{
	return n % 7 ? (n * 97) % 1009 : 0;
}

static inline enum kiln_status add(struct kiln_pack_writer *writer, unsigned n,
				   size_t size)
{
	static uint8_t value[VALUE_BYTES_MAX];
	struct kiln_key *key = key_of(n);
	enum kiln_status status = kiln_pack_add(writer, key, NULL, 0, value,
						value_of(n, size, value));

	kiln_key_free(key);
	return status;
}

static inline void write_pack_as(const char *path, unsigned n_entries,
				 const struct kiln_pack_writer_options *options)
{
	struct kiln_pack_writer *writer = NULL;
	struct kiln_pack_report report;

	assert_int_equal(kiln_pack_create(path, options, &writer), KILN_OK);
	for (unsigned n = 0; n < n_entries; n++)
		assert_int_equal(add(writer, n, size_of(n)), KILN_OK);
	assert_int_equal(kiln_pack_finish(writer, &report), KILN_OK);
	assert_int_equal(report.n_entries, n_entries);
}

/* A new one of entries 0 to n_entries - 1; the path is the caller's to free(). */
static inline char *write_pack(const char *directory, unsigned n_entries)
{
	char *path = harness_path(directory, "test.pack");

	write_pack_as(path, n_entries, NULL);
	return path;
}

/* What a look-up of entry n answers; a value that is not n's is as bad as a
   crash. */
static inline enum kiln_status get(struct kiln_tier *tier, unsigned n)
{
	static uint8_t value[VALUE_BYTES_MAX];
	struct kiln_key *key = key_of(n);
	struct kiln_blob *blob = NULL;
	enum kiln_status status = tier->ops->get(tier, key, &blob, NULL);

	if (!status) {
		size_t size = value_of(n, size_of(n), value);

		assert_int_equal(kiln_blob_size(blob), size);
		assert_memory_equal(kiln_blob_data(blob), value, size);
	}
	kiln_blob_unref(blob);
	kiln_key_free(key);
	return status;
}

static inline unsigned count_hits(struct kiln_tier *tier, unsigned n_entries)
{
	unsigned n_hits = 0;

	for (unsigned n = 0; n < n_entries; n++)
		n_hits += get(tier, n) == KILN_OK;
	return n_hits;
}

/* How many are listed, each of them one of ours, in recorded order. */
static inline unsigned count_listed(struct kiln_tier *tier)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	unsigned n_listed = 0;
	enum kiln_status status;

	while (!(status = tier->ops->list(tier, &cursor, &entry))) {
		n_listed++;
		kiln_entry_fini(&entry);
	}
	assert_int_equal(status, KILN_END);
	return n_listed;
}

/* ---- Devices ------------------------------------------------------------------ */

struct medium {
	uint8_t *bytes;
	size_t size;
	size_t short_bytes;  /* the most that a call moves; 0: any */
	ssize_t failure;     /* what a call that fails answers */
	int64_t size_answer; /* instead of the size; 0: the size */
	uint64_t bad_begin;  /* calls with a byte in here fail */
	uint64_t bad_end;
	/* Atomic. */
	atomic_int n_until_failure; /* calls that work; -1: they all do */
	atomic_uint n_calls;
	atomic_ulong n_bytes;
	atomic_uint n_releases;
};

static inline int64_t medium_bytes(void *context)
{
	struct medium *medium = context;

	return medium->size_answer ? medium->size_answer
				   : (int64_t)medium->size;
}

static inline ssize_t medium_read(uint64_t offset, void *buffer, size_t count,
				  void *context)
{
	struct medium *medium = context;
	int left = atomic_load(&medium->n_until_failure);

	atomic_fetch_add(&medium->n_calls, 1);
	if (!left ||
	    (offset < medium->bad_end && offset + count > medium->bad_begin))
		return medium->failure;
	if (left > 0)
		atomic_store(&medium->n_until_failure, left - 1);
	if (offset >= medium->size)
		return 0;
	if (count > medium->size - offset)
		count = medium->size - (size_t)offset;
	if (medium->short_bytes && count > medium->short_bytes)
		count = medium->short_bytes;
	memcpy(buffer, medium->bytes + offset, count);
	atomic_fetch_add(&medium->n_bytes, count);
	return (ssize_t)count;
}

static inline void medium_release(void *context)
{
	struct medium *medium = context;

	atomic_fetch_add(&medium->n_releases, 1);
}

/* With the bytes of a file, or of its beginning. */
static inline void medium_init(struct medium *medium, const char *path)
{
	memset(medium, 0, sizeof(*medium));
	medium->bytes = (uint8_t *)harness_read(path, &medium->size);
	assert_non_null(medium->bytes);
	medium->failure = -EIO;
	atomic_init(&medium->n_until_failure, -1);
}

static inline void medium_fini(struct medium *medium)
{
	free(medium->bytes);
}

static inline struct kiln_pack_device device_of(struct medium *medium)
{
	struct kiln_pack_device device;

	kiln_pack_device_init(&device);
	device.n_calls = 4;
	device.bytes = medium_bytes;
	device.read = medium_read;
	device.release = medium_release;
	device.context = medium;
	return device;
}

static inline enum kiln_status open_medium(
	struct medium *medium, const struct kiln_pack_options *options,
	struct kiln_tier **out_tier)
{
	struct kiln_pack_device device = device_of(medium);

	return kiln_pack_open_device(&device, options, out_tier);
}

#endif /* KI_STORE_PACK_PACK_TEST_H */
