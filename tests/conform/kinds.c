/* SPDX-License-Identifier: MIT */

#include "conform/kinds.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "store/log/log.h"

static uint64_t neo_bytes; /* of a walk */

static uint64_t log_rolls(struct kiln_tier *tier)
{
	return ((struct ki_log *)tier)->index->header->n_rolls;
}

static uint64_t log_grown(struct kiln_tier *tier)
{
	return ((struct ki_log *)tier)->index->header->n_grown;
}

/* Sizes, not blocks, of entries and records: of the file format that it is. */
static int add_size(const char *path, const struct stat *st, int type,
		    struct FTW *place)
{
	const char *base = path + place->base, *dot = strrchr(base, '.');

	if (type == FTW_F && dot &&
	    (!strcmp(dot, ".cl_cache") || !strcmp(dot, ".l0_cache") ||
	     !strcmp(dot, ".ocloc_cache") || !strcmp(base, "kiln.records")))
		neo_bytes += (uint64_t)st->st_size;
	return 0;
}

static uint64_t neo_disk_bytes(const char *directory)
{
	neo_bytes = 0;
	if (nftw(directory, add_size, 8, FTW_PHYS))
		abort();
	return neo_bytes;
}

static enum kiln_status open_tree(const struct ki_store_options *options,
				  struct kiln_tier **out_tier)
{
	struct ki_store_options tree = *options;

	tree.name = "tree";
	return ki_store_neo_open(&tree, out_tier);
}

const struct kind kinds[] = {
	{ .name = "log",
	  .open = ki_store_log_open,
	  .persists = 1,
	  .n_rolls = log_rolls,
	  .n_grown = log_grown },
	{ .name = "file", .open = ki_store_file_open, .persists = 1 },
	{ .name = "neo",
	  .open = ki_store_neo_open,
	  .persists = 1,
	  .disk_bytes = neo_disk_bytes,
	  .is_alone = 1,
	  .evicts = 3,
	  .names_inodes = 1 },
	{ .name = "neo-tree",
	  .open = open_tree,
	  .persists = 1,
	  .disk_bytes = neo_disk_bytes,
	  .is_alone = 1,
	  .evicts = 3,
	  .names_inodes = 1 },
	{ .name = "double", .open = double_open },
	{ .name = NULL },
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
