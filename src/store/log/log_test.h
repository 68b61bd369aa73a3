/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_LOG_LOG_TEST_H
#define KI_STORE_LOG_LOG_TEST_H

/*
 * What the tests of this store share: keys by number, values that follow from
 * key and size, and a store in a directory of its own.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/log/log.h"

struct store {
	struct ki_store_options options;
	struct kiln_tier *tier;
	char *directory; /* NULL: another's */
};

static inline struct kiln_key *test_key(unsigned number)
{
	struct kiln_key *key = kiln_key_new();
	char filler[100];

	memset(filler, (int)(number & 0x7f), sizeof(filler));
	kiln_key_add(key, "number", &number, sizeof(number));
	kiln_key_add(key, "filler", filler, sizeof(filler));
	if (kiln_key_finish(key))
		abort();
	return key;
}

static inline unsigned test_key_number(const struct kiln_blob *record)
{
	struct kiln_field field;
	unsigned number;

	if (kiln_record_find(kiln_blob_data(record), kiln_blob_size(record),
			     "number", &field) ||
	    field.size != sizeof(number))
		return UINT32_MAX;
	memcpy(&number, field.data, sizeof(number));
	return number;
}

static inline uint8_t test_byte(unsigned number, size_t size, size_t i)
{
	return (uint8_t)((number * 2654435761u + size) >> (i % 4 * 8)) ^
	       (uint8_t)(i / 4);
}

static inline uint8_t *test_value(unsigned number, size_t size)
{
	uint8_t *value = malloc(size ? size : 1);
	size_t i;

	for (i = 0; i < size; i++)
		value[i] = test_byte(number, size, i);
	return value;
}

/* Whether bytes are the value of this key, of whatever size they have. */
static inline int test_value_is(const struct kiln_blob *blob, unsigned number)
{
	const uint8_t *data = kiln_blob_data(blob);
	size_t size = kiln_blob_size(blob), i;

	for (i = 0; i < size; i++)
		if (data[i] != test_byte(number, size, i))
			return 0;
	return 1;
}

static inline void store_open(struct store *store)
{
	enum kiln_status status =
		ki_store_log_open(&store->options, &store->tier);

	if (status) {
		fprintf(stderr, "open: %s\n", kiln_status_name(status));
		abort();
	}
}

/* The index, mapped. */
static inline struct log_index *store_index(const struct store *store)
{
	struct ki_log *log = (struct ki_log *)store->tier;
	struct log_index *index;

	if (log->index && !ki_log_is_mapped(log->index))
		(void)ki_log_current(log, LOG_READ, &index);
	return log->index;
}

/* Whose index a test may look into; those that are opened later map it at their
   second look-up. */
static inline struct store store_new(uint64_t bytes_max, uint32_t flags)
{
	struct store store = { .directory = harness_directory() };

	store.options = (struct ki_store_options){
		.sys = &ki_sys_posix,
		.directory = store.directory,
		.bytes_max = bytes_max,
		.flags = flags,
	};
	store_open(&store);
	(void)store_index(&store);
	return store;
}

static inline struct store store_beside(const struct store *other,
					uint32_t flags)
{
	struct store store = { .options = other->options };

	store.options.flags = flags;
	store_open(&store);
	return store;
}

static inline void store_close(struct store *store)
{
	if (store->tier)
		store->tier->ops->close(store->tier);
	store->tier = NULL;
}

static inline void store_reopen(struct store *store)
{
	store_close(store);
	store_open(store);
}

static inline void store_free(struct store *store)
{
	store_close(store);
	free(store->directory);
}

static inline enum kiln_status store_put(struct store *store, unsigned number,
					 size_t size, unsigned flags)
{
	struct kiln_key *key = test_key(number);
	uint8_t *value = test_value(number, size);
	enum kiln_status status = store->tier->ops->put(
		store->tier, key, "meta", 4, value, size, flags);

	free(value);
	kiln_key_free(key);
	return status;
}

/* Until it is done: others may be held up for longer than a put waits. */
static inline enum kiln_status store_put_patiently(struct store *store,
						   unsigned number, size_t size)
{
	enum kiln_status status;

	do {
		status = store_put(store, number, size, 0);
	} while (status == KILN_E_TIMEOUT);
	return status;
}

/* Whatever size the value has; wrong bytes abort. */
static inline enum kiln_status store_get_any(struct store *store,
					     unsigned number, size_t *out_size)
{
	struct kiln_key *key = test_key(number);
	struct kiln_blob *blob;
	enum kiln_status status =
		store->tier->ops->get(store->tier, key, &blob, NULL);

	if (!status) {
		if (!test_value_is(blob, number)) {
			fprintf(stderr, "wrong bytes for key %u\n", number);
			abort();
		}
		*out_size = kiln_blob_size(blob);
		kiln_blob_unref(blob);
	}
	kiln_key_free(key);
	return status;
}

/* KILN_E_COLLISION stands for a value of another size. */
static inline enum kiln_status store_get(struct store *store, unsigned number,
					 size_t size)
{
	size_t found = 0;
	enum kiln_status status = store_get_any(store, number, &found);

	return !status && found != size ? KILN_E_COLLISION : status;
}

static inline enum kiln_status store_remove(struct store *store,
					    unsigned number)
{
	struct kiln_key *key = test_key(number);
	enum kiln_status status = store->tier->ops->remove(store->tier, key);

	kiln_key_free(key);
	return status;
}

#endif /* KI_STORE_LOG_LOG_TEST_H */
