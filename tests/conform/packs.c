/* SPDX-License-Identifier: MIT */

/*
 * S59.  What any store holds goes through a pack into any other: entries of a
 * store of each kind are packed as they are listed, and the pack is put into an
 * empty store of each kind, and into one that has some of the entries already,
 * of which none is replaced.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/pack.h>

#include "conform/kinds.h"
#include "harness/harness.h"

#define N_ENTRIES 20
#define N_OVERLAP 5
#define BOUND	  ((uint64_t)8 << 20)

static size_t size_of(unsigned n)
{
	return 16 + n * 131;
}

/* Metadata in canonical bytes, of which a pack takes one field and not the
   other. */
static struct kiln_metadata *metadata_of(unsigned n)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_STAGE, n);
	kiln_metadata_add_string(metadata, KILN_META_DIRECTORY, "/home/me");
	return metadata;
}

static struct kiln_tier *open_store(const struct kind *kind,
				    const char *directory)
{
	const struct ki_store_options options = { .sys = &ki_sys_posix,
						  .directory = directory,
						  .bytes_max = BOUND };
	struct kiln_tier *tier = NULL;

	assert_int_equal(kind->open(&options, &tier), KILN_OK);
	return tier;
}

/* Entry n with the value of entry `of`. */
static void put(struct kiln_tier *tier, unsigned n, unsigned of)
{
	struct kiln_metadata *metadata = metadata_of(n);
	struct kiln_key *key = numbered_key(n);
	char *value = malloc(size_of(n));
	const void *bytes;
	size_t size;

	assert_non_null(value);
	fill_value(of, value, size_of(n));
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	assert_int_equal(
		tier->ops->put(tier, key, bytes, size, value, size_of(n), 0),
		KILN_OK);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
	free(value);
}

/* Call `each` for what is listed, with its value. */
typedef void each_fn(const struct kiln_key *key,
		     const struct kiln_blob *metadata,
		     const struct kiln_blob *value, void *arg);
static void for_each(struct kiln_tier *tier, each_fn *each, void *arg)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;

	while (!tier->ops->list(tier, &cursor, &entry)) {
		struct kiln_blob *value, *metadata;
		struct kiln_key *key;

		assert_int_equal(kiln_key_from_record(
					 kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key),
				 KILN_OK);
		assert_int_equal(tier->ops->get(tier, key, &value, &metadata),
				 KILN_OK);
		each(key, metadata, value, arg);
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
		kiln_key_free(key);
		kiln_entry_fini(&entry);
	}
}

static void pack_one(const struct kiln_key *key,
		     const struct kiln_blob *metadata,
		     const struct kiln_blob *value, void *arg)
{
	assert_int_equal(kiln_pack_add(arg, key, kiln_blob_data(metadata),
				       kiln_blob_size(metadata),
				       kiln_blob_data(value),
				       kiln_blob_size(value)),
			 KILN_OK);
}

struct merge {
	struct kiln_tier *into;
	unsigned n_new;
	unsigned n_there;
};

static void put_one(const struct kiln_key *key,
		    const struct kiln_blob *metadata,
		    const struct kiln_blob *value, void *arg)
{
	struct merge *merge = arg;
	enum kiln_status status = merge->into->ops->put(
		merge->into, key, kiln_blob_data(metadata),
		kiln_blob_size(metadata), kiln_blob_data(value),
		kiln_blob_size(value), 0);

	assert_true(!status || status == KILN_EXISTS);
	merge->n_new += !status;
	merge->n_there += status == KILN_EXISTS;
}

/* All entries are there; the first `n_kept` as they were. */
static void check(struct kiln_tier *tier, unsigned n_kept)
{
	for (unsigned n = 0; n < N_ENTRIES; n++) {
		struct kiln_key *key = numbered_key(n);
		struct kiln_blob *value, *metadata;
		const void *data;
		uint64_t stage;
		size_t size;

		assert_int_equal(tier->ops->get(tier, key, &value, &metadata),
				 KILN_OK);
		assert_int_equal(kiln_blob_size(value), size_of(n));
		assert_true(is_value_of(n < n_kept ? n + 100 : n,
					kiln_blob_data(value), size_of(n)));
		assert_int_equal(
			kiln_metadata_find_u64(kiln_blob_data(metadata),
					       kiln_blob_size(metadata),
					       KILN_META_STAGE, &stage),
			KILN_OK);
		assert_int_equal(stage, n);
		assert_int_equal(kiln_metadata_find(kiln_blob_data(metadata),
						    kiln_blob_size(metadata),
						    KILN_META_DIRECTORY, &data,
						    &size),
				 n < n_kept ? KILN_OK : KILN_MISS);
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
		kiln_key_free(key);
	}
}

static void export(const struct kind *kind, const char *path)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_store(kind, directory);
	struct kiln_pack_writer *writer;
	struct kiln_pack_report report;

	for (unsigned n = 0; n < N_ENTRIES; n++)
		put(tier, n, n);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	for_each(tier, pack_one, writer);
	assert_int_equal(kiln_pack_finish(writer, &report), KILN_OK);
	assert_int_equal(report.n_entries, N_ENTRIES);
	tier->ops->close(tier);
	harness_remove(directory);
	free(directory);
}

static void import(struct kiln_tier *pack, const struct kind *kind,
		   unsigned n_there)
{
	char *directory = harness_directory();
	struct merge merge = { .into = open_store(kind, directory) };

	for (unsigned n = 0; n < n_there; n++)
		put(merge.into, n, n + 100);
	for_each(pack, put_one, &merge);
	assert_int_equal(merge.n_there, n_there);
	assert_int_equal(merge.n_new, N_ENTRIES - n_there);
	check(merge.into, n_there);
	merge.into->ops->close(merge.into);
	harness_remove(directory);
	free(directory);
}

static void what_any_store_holds_goes_into_any_other(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "between.pack");
	const struct kind *from, *to;

	for (from = kinds; from->name; from++) {
		struct kiln_tier *pack;

		export(from, path);
		assert_int_equal(kiln_pack_open(path, NULL, &pack), KILN_OK);
		check(pack, 0);
		for (to = kinds; to->name; to++)
			import(pack, to, to == from ? N_OVERLAP : 0);
		pack->ops->close(pack);
		assert_int_equal(remove(path), 0);
	}
	harness_remove(directory);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_any_store_holds_goes_into_any_other),
	};

	return cmocka_run_group_tests_name("conform packs", tests, NULL, NULL);
}
