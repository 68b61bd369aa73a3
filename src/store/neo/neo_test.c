/* SPDX-License-Identifier: MIT */

/* Names and layouts: what tests/conform does not ask of every store. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/neo/helpers_test.h"

/* ---- Names and files ----------------------------------------------------------------- */

static void an_entry_is_the_bare_value_under_a_hashed_name(void **state)
{
	static const char *const layouts[] = { "flat", "tree" };

	for (unsigned i = 0; i < 2; i++) {
		char *directory = harness_directory(), *path, *bytes;
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);
		struct stat st;
		size_t size;

		assert_int_equal(put(tier, 7, 3000), KILN_OK);
		path = path_of(tier, 7);
		bytes = harness_read(path, &size);
		assert_non_null(bytes);
		assert_int_equal(size, 3000);
		assert_int_equal(bytes[2999], 8);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
		assert_int_equal(sum_of(directory), 3000);
		assert_int_equal(put(tier, 8, 2000), KILN_OK);
		assert_int_equal(sum_of(directory), 5000);
		tier->ops->close(tier);
		free(bytes);
		free(path);
		free(directory);
	}
}

static void the_front_names_the_extension(void **state)
{
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier = open_at(directory, 0);
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = key_of(1);
	char name[KILN_NEO_NAME_BYTES];
	struct kiln_blob *blob;
	const void *bytes;
	size_t size;

	kiln_metadata_add_string(metadata, KILN_META_FRONT, "levelzero");
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	ki_neo_name_key(neo_of(tier), key, bytes, size, name);
	assert_string_equal(strchr(name, '.'), ".l0_cache");
	assert_int_equal(tier->ops->put(tier, key, bytes, size, "value", 5, 0),
			 KILN_OK);
	path = harness_path(directory, name);
	assert_true(exists(path));
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	kiln_blob_unref(blob);
	tier->ops->close(tier);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
	free(path);
	free(directory);
}

static void a_drivers_entry_is_no_ones_hit_and_not_overwritten(void **state)
{
	char *directory = harness_directory(), *path, *bytes;
	struct kiln_tier *tier = open_at(directory, 0);
	size_t size;

	path = path_of(tier, 1);
	harness_write(path, "intel", 5);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 1, 100), KILN_E_COLLISION);
	assert_int_equal(put_flags(tier, 1, 100, KILN_PUT_REPLACE),
			 KILN_E_COLLISION);
	assert_int_equal(get(tier, 1), KILN_MISS);
	/* And where one comes in the place of ours. */
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	free(path);
	path = path_of(tier, 2);
	replace_file(path, "intel", 5);
	assert_int_equal(get(tier, 2), KILN_MISS);
	assert_int_equal(put_flags(tier, 2, 100, KILN_PUT_REPLACE),
			 KILN_E_COLLISION);
	bytes = harness_read(path, &size);
	assert_string_equal(bytes, "intel");
	tier->ops->close(tier);
	free(bytes);
	free(path);
	free(directory);
}

static uint64_t n_records(struct kiln_tier *tier)
{
	return ki_records_totals(neo_of(tier)->records).n_living;
}

/* With kiln's own inode: inodes are used again, and anybody may write into a
   file.  Both by the next look-up and by whoever counts. */
static void what_others_wrote_into_is_forgotten_and_not_touched(void **state)
{
	static const char *const texts[] = { "theirs, same size",
					     "theirs, and longer than ours",
					     "" };
	struct kiln_verify_report report;

	for (unsigned i = 0; i < 6; i++) {
		const char *text = texts[i % 3];
		char *directory = harness_directory(), *path, *bytes;
		struct kiln_tier *tier = open_at(directory, 0);
		struct timespec later[2] = { { .tv_nsec = UTIME_OMIT },
					     { .tv_sec = 77777 } };
		size_t size;

		assert_int_equal(put(tier, 1, strlen(texts[0])), KILN_OK);
		path = path_of(tier, 1);
		harness_write(path, text, strlen(text));
		assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_gone, 1);
		assert_int_equal(report.n_foreign, *text != '\0');
		if (i < 3)
			assert_int_equal(get(tier, 1), KILN_MISS);
		else
			assert_int_equal(
				tier->ops->verify(tier, KILN_VERIFY_ACCOUNTING,
						  NULL, NULL, &report),
				KILN_OK);
		assert_int_equal(n_records(tier), 0);
		bytes = harness_read(path, &size);
		assert_non_null(bytes);
		assert_string_equal(bytes, text);
		assert_int_equal(get(tier, 1), KILN_MISS);
		assert_int_equal(put(tier, 1, 100),
				 *text ? KILN_E_COLLISION : KILN_OK);
		tier->ops->close(tier);
		free(bytes);
		free(path);
		free(directory);
	}
}

static void what_lost_its_record_is_taken_over_by_the_same_bytes(void **state)
{
	char *directory = harness_directory();
	char *records = harness_path(directory, "kiln.records");
	struct kiln_tier *tier = open_at(directory, 0);

	assert_int_equal(put(tier, 1, 100000), KILN_OK);
	assert_int_equal(unlink(records), 0);
	tier->ops->close(tier);
	tier = open_at(directory, 0);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 1, 99999), KILN_E_COLLISION);
	assert_int_equal(put(tier, 1, 100000), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(sum_of(directory), 100000);
	tier->ops->close(tier);
	free(records);
	free(directory);
}

/* S02: the hash cut to 8 bits. */
static void names_that_meet_never_give_a_wrong_value(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	unsigned n_stored = 0, n_collisions = 0;

	neo_of(tier)->name_mask = 0xff;
	for (unsigned n = 0; n < 1000; n++) {
		enum kiln_status status = put(tier, n, 100 + n);

		assert_true(status == KILN_OK || status == KILN_E_COLLISION);
		n_stored += status == KILN_OK;
		n_collisions += status == KILN_E_COLLISION;
	}
	assert_in_range(n_stored, 200, 256);
	assert_true(n_collisions > 0);
	for (unsigned n = 0; n < 1000; n++) {
		enum kiln_status status = get(tier, n);

		assert_true(status == KILN_OK || status == KILN_MISS);
		n_stored -= status == KILN_OK;
	}
	assert_int_equal(n_stored, 0);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Layouts -------------------------------------------------------------------------- */

static void a_layout_is_told_by_what_is_there(void **state)
{
	char *directory = harness_directory();
	char *fan = harness_path(directory, "a");
	char *file = harness_path(directory, "b");
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .name = "round" };
	struct kiln_tier *tier = open_at(directory, 0);

	assert_int_equal(neo_of(tier)->layout, KILN_NEO_FLAT);
	tier->ops->close(tier);
	harness_write(file, "no directory", 12);
	tier = open_at(directory, 0);
	assert_int_equal(neo_of(tier)->layout, KILN_NEO_FLAT);
	tier->ops->close(tier);
	assert_int_equal(mkdir(fan, 0700), 0);
	tier = open_at(directory, 0);
	assert_int_equal(neo_of(tier)->layout, KILN_NEO_TREE);
	tier->ops->close(tier);
	tier = open_with(&ki_sys_posix, directory, 0, 0, "flat");
	assert_int_equal(neo_of(tier)->layout, KILN_NEO_FLAT);
	tier->ops->close(tier);
	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_E_INVALID);
	free(file);
	free(fan);
	free(directory);
}

/* S17 */
static void a_tree_reads_and_first_evicts_what_a_flat_one_left(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);

	for (unsigned n = 0; n < 10; n++)
		assert_int_equal(put(tier, n, 10000), KILN_OK);
	tier->ops->close(tier);
	tier = open_with(&ki_sys_posix, directory, 220000, 0, "tree");
	for (unsigned n = 0; n < 10; n++)
		assert_int_equal(get(tier, n), KILN_OK);
	for (unsigned n = 10; n < 20; n++)
		assert_int_equal(put(tier, n, 10000), KILN_OK);
	assert_int_equal(sum_of(directory), 200000);
	/* Those of the tree were used longest ago. */
	for (unsigned n = 10; n < 20; n++)
		set_use_of(tier, n, 100);
	assert_int_equal(put(tier, 20, 20000), KILN_OK);
	for (unsigned n = 10; n <= 20; n++)
		assert_int_equal(get(tier, n), KILN_OK);
	assert_true(sum_of(directory) <= 220000 / 3 * 2 + 20000);
	tier->ops->close(tier);
	free(directory);
}

/* As one of 26.05 does: the file, and the sum by as much more. */
static void store_as_a_tree_driver(const char *directory, size_t size)
{
	char *fan = harness_path(directory, "a");
	char *below = harness_path(directory, "a/b");
	uint8_t bytes[8];

	(void)mkdir(fan, 0775);
	(void)mkdir(below, 0775);
	free(plant(directory, "a/b/ab00000000000000.cl_cache", size, 0));
	ki_put_u64(bytes, sum_of(directory) + size);
	write_sum(directory, bytes, sizeof(bytes));
	free(below);
	free(fan);
}

static void a_tree_that_comes_later_is_counted_too(void **state)
{
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier = open_at(directory, 100000);

	assert_int_equal(put(tier, 0, 4096), KILN_OK);
	store_as_a_tree_driver(directory, 60000);
	for (unsigned n = 1; n < 30; n++) {
		assert_int_equal(put(tier, n, 4096), KILN_OK);
		assert_int_equal(sum_of(directory), sum_there(directory));
		assert_true(bytes_of(tier) <= 100000);
		assert_int_equal(get(tier, n), KILN_OK);
	}
	/* What is stored since is stored as the driver does. */
	assert_int_equal(neo_of(tier)->layout, KILN_NEO_TREE);
	path = path_of(tier, 29);
	assert_true(exists(path));
	assert_int_equal(path[strlen(directory) + 2], '/');
	tier->ops->close(tier);
	free(path);
	free(directory);
}

/* One handle has seen the tree, the other has not yet, or was told otherwise. */
static void entries_of_the_other_layout_keep_their_records(void **state)
{
	static const char *const layouts[] = { NULL, "flat" };

	for (unsigned i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *fan = harness_path(directory, "a");
		struct kiln_tier *flat = open_with(&ki_sys_posix, directory,
						   60000, 0, layouts[i]);
		struct kiln_tier *tree;
		unsigned n_found = 0;

		assert_int_equal(mkdir(fan, 0700), 0);
		tree = open_at(directory, 60000);
		for (unsigned n = 0; n < 6; n++) {
			assert_int_equal(put(tree, n, 4096), KILN_OK);
			set_use_of(tree, n, -1);
		}
		for (unsigned n = 10; n < 24; n++) {
			assert_int_equal(put(flat, n, 4096), KILN_OK);
			assert_int_equal(sum_of(directory),
					 sum_there(directory));
			assert_true(bytes_of(flat) <= 60000);
		}
		for (unsigned n = 0; n < 6; n++)
			n_found += get(tree, n) == KILN_OK;
		assert_int_equal(n_found, 6);
		flat->ops->close(flat);
		tree->ops->close(tree);
		free(fan);
		free(directory);
	}
}

static void a_wipe_leaves_nothing_in_either_layout(void **state)
{
	static const char *const layouts[] = { NULL, "flat", "tree" };

	for (unsigned i = 0; i < 3; i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);

		assert_int_equal(put(tier, 1, 100), KILN_OK);
		store_as_a_tree_driver(directory, 60000);
		free(plant(directory, "0123456789abcdef.l0_cache", 70, 0));
		assert_int_equal(tier->ops->wipe(tier), KILN_OK);
		assert_int_equal(sum_there(directory), 0);
		assert_int_equal(sum_of(directory), 0);
		tier->ops->close(tier);
		free(directory);
	}
}

/* A hit does not ask again which file it is for a while; its bytes it does. */
static void a_file_that_was_replaced_after_a_hit_is_a_miss(void **state)
{
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier = open_at(directory, 0);

	assert_int_equal(put(tier, 1, 8), KILN_OK);
	path = path_of(tier, 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(get(tier, 1), KILN_OK);
	replace_file(path, "strange!", 8);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_true(exists(path));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(get(tier, 1), KILN_MISS);
	tier->ops->close(tier);
	free(path);
	free(directory);
}

/* By its path, that is: the handle keeps a descriptor of the other one. */
static void a_directory_that_was_moved_and_made_anew_is_read(void **state)
{
	char *top = harness_directory(), *from, *to;
	char *directory = harness_path(top, "new");
	char *moved = harness_path(top, "old");
	struct kiln_tier *tier = open_at(directory, 0);

	assert_int_equal(put(tier, 1, 8), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	from = path_of(tier, 1);
	to = harness_path(moved, from + strlen(directory) + 1);
	assert_int_equal(rename(directory, moved), 0);
	assert_int_equal(mkdir(directory, 0700), 0);
	assert_int_equal(rename(to, from), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(get(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(to);
	free(from);
	free(moved);
	free(directory);
	free(top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			an_entry_is_the_bare_value_under_a_hashed_name),
		cmocka_unit_test(the_front_names_the_extension),
		cmocka_unit_test(
			a_drivers_entry_is_no_ones_hit_and_not_overwritten),
		cmocka_unit_test(
			what_others_wrote_into_is_forgotten_and_not_touched),
		cmocka_unit_test(
			what_lost_its_record_is_taken_over_by_the_same_bytes),
		cmocka_unit_test(names_that_meet_never_give_a_wrong_value),
		cmocka_unit_test(a_layout_is_told_by_what_is_there),
		cmocka_unit_test(
			a_tree_reads_and_first_evicts_what_a_flat_one_left),
		cmocka_unit_test(a_tree_that_comes_later_is_counted_too),
		cmocka_unit_test(
			entries_of_the_other_layout_keep_their_records),
		cmocka_unit_test(a_wipe_leaves_nothing_in_either_layout),
		cmocka_unit_test(
			a_file_that_was_replaced_after_a_hit_is_a_miss),
		cmocka_unit_test(
			a_directory_that_was_moved_and_made_anew_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
