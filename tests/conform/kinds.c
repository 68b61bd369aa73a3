/* SPDX-License-Identifier: MIT */

#include "conform/kinds.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "store/log/log.h"

static uint64_t log_rolls(struct kiln_tier *tier)
{
	return ((struct ki_log *)tier)->index->header->n_rolls;
}

static uint64_t log_grown(struct kiln_tier *tier)
{
	return ((struct ki_log *)tier)->index->header->n_grown;
}

const struct kind kinds[] = {
	{ "log", ki_store_log_open, 1, log_rolls, log_grown },
	{ "file", ki_store_file_open, 1, NULL, NULL },
	{ "double", double_open, 0, NULL, NULL },
	{ NULL, NULL, 0, NULL, NULL },
};

const struct kind *kind_find(const char *name)
{
	const struct kind *kind;

	for (kind = kinds; kind->name; kind++)
		if (!strcmp(kind->name, name))
			return kind;
	return NULL;
}

struct kiln_key *numbered_key(unsigned n)
{
	struct kiln_key *key = kiln_key_new();
	char number[4];

	ki_put_u32(number, n);
	kiln_key_add_string(key, "family", "numbered");
	kiln_key_add(key, "number", number, sizeof(number));
	if (kiln_key_finish(key))
		abort();
	return key;
}

void fill_value(unsigned n, void *data, size_t size)
{
	uint8_t *bytes = data;
	uint32_t state = n * 2654435761u + 1;

	for (size_t i = 0; i < size; i++) {
		state = state * 1664525u + 1013904223u;
		bytes[i] = (uint8_t)(state >> 24);
	}
	ki_put_u32(bytes, n);
	ki_put_u32(bytes + 4, (uint32_t)size);
}

int is_value_of(unsigned n, const void *data, size_t size)
{
	uint8_t *expected;
	int result;

	if (size < 8)
		return 0;
	expected = malloc(size);
	if (!expected)
		abort();
	fill_value(n, expected, size);
	result = !memcmp(expected, data, size);
	free(expected);
	return result;
}

enum kiln_status put_numbered(struct kiln_tier *tier, unsigned n, size_t size,
			      unsigned flags)
{
	struct kiln_key *key = numbered_key(n);
	enum kiln_status status;
	void *value = malloc(size);

	if (!value)
		abort();
	fill_value(n, value, size);
	status = tier->ops->put(tier, key, "metadata", 8, value, size, flags);
	free(value);
	kiln_key_free(key);
	return status;
}

int get_numbered(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	struct kiln_blob *blob = NULL, *metadata = NULL;
	int result = tier->ops->get(tier, key, &blob, &metadata);

	if (!result &&
	    (!is_value_of(n, kiln_blob_data(blob), kiln_blob_size(blob)) ||
	     kiln_blob_size(metadata) != 8 ||
	     memcmp(kiln_blob_data(metadata), "metadata", 8) != 0))
		result = WRONG_BYTES;
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	return result;
}
