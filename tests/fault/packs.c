/* SPDX-License-Identifier: MIT */

/*
 * S29, S39.  Packs, with every system call and every allocation of writing and
 * of reading failed in turn, once and for good.  A pack is there whole or not at
 * all; an entry that could not be added can be added again; a value is right or
 * an error; nothing is leaked.
 */

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/pack.h>

#include "conform/kinds.h"
#include "fault/fault.h"
#include "harness/harness.h"

#define N_ENTRIES 50 /* two pages */
#define SIZE	  40

static const int errors[] = { -EIO,    -ENOSPC, -EROFS, -ENOMEM,
			      -EACCES, -EMFILE, -EFBIG, FAULT_SHORT };
#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

static unsigned n_names(const char *directory)
{
	DIR *dir = opendir(directory);
	unsigned n = 0;

	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

static void empty(const char *directory)
{
	DIR *dir = opendir(directory);

	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		if (entry->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0),
					 0);
	closedir(dir);
}

static struct kiln_key *keys[N_ENTRIES];
static char values[N_ENTRIES][SIZE];

static int make_entries(void **state)
{
	for (unsigned n = 0; n < N_ENTRIES; n++) {
		keys[n] = numbered_key(n);
		fill_value(n, values[n], SIZE);
	}
	return 0;
}

static int free_entries(void **state)
{
	for (unsigned n = 0; n < N_ENTRIES; n++)
		kiln_key_free(keys[n]);
	return 0;
}

/* As a tool would that takes no for an answer only twice. */
static enum kiln_status write_pack(const struct ki_sys *sys, const char *path)
{
	struct kiln_pack_writer *writer;
	enum kiln_status status = ki_pack_create(sys, path, NULL, &writer);

	for (unsigned n = 0; !status && n < N_ENTRIES; n++) {
		status = kiln_pack_add(writer, keys[n], NULL, 0, values[n],
				       SIZE);
		if (status)
			status = kiln_pack_add(writer, keys[n], NULL, 0,
					       values[n], SIZE);
		if (status)
			kiln_pack_abandon(writer);
	}
	return status ? status : kiln_pack_finish(writer, NULL);
}

/* How many are found; every value is looked at. */
static unsigned read_pack(struct kiln_tier *tier)
{
	unsigned n, n_hits = 0;

	for (n = 0; n < N_ENTRIES; n++) {
		struct kiln_blob *blob;

		if (tier->ops->get(tier, keys[n], &blob, NULL))
			continue;
		assert_int_equal(kiln_blob_size(blob), SIZE);
		assert_memory_equal(kiln_blob_data(blob), values[n], SIZE);
		kiln_blob_unref(blob);
		n_hits++;
	}
	return n_hits;
}

static void assert_whole(const char *path)
{
	struct kiln_tier *tier;

	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	assert_int_equal(read_pack(tier), N_ENTRIES);
	tier->ops->close(tier);
}

static void a_pack_is_written_whole_or_not_at_all(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");

	for (size_t i = 0; i < N_ERRORS; i++) {
		struct fault fault;

		for (fault_begin(&fault, errors[i]); fault_next(&fault);) {
			unsigned n_open = harness_n_descriptors();
			long n_blocks = fault_n_blocks();
			enum kiln_status status;

			fault_arm(&fault);
			status = write_pack(&fault.sys, path);
			fault_disarm(&fault);
			assert_true(status <= 0);
			if (!fault.n_fired)
				assert_int_equal(status, KILN_OK);
			if (!status)
				assert_whole(path);
			/* A temporary stays only if it could not go. */
			if (!fault.fired || strcmp(fault.fired, "unlink") != 0)
				if (!fault.lasting)
					assert_int_equal(n_names(directory),
							 !status);
			assert_int_equal(harness_n_descriptors(), n_open);
			assert_int_equal(fault_n_blocks(), n_blocks);
			empty(directory);
		}
	}
	harness_remove(directory);
	free(path);
	free(directory);
}

static void use(struct kiln_tier *tier)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_verify_report report;
	struct kiln_entry entry;

	(void)read_pack(tier);
	while (!tier->ops->list(tier, &cursor, &entry))
		kiln_entry_fini(&entry);
	tier->ops->prefetch(tier, (const struct kiln_key *const *)keys,
			    N_ENTRIES);
	(void)tier->ops->verify(tier, 0, NULL, NULL, &report);
}

static void a_value_is_right_or_an_error(void **state)
{
	static const uint32_t flags[] = { 0, KILN_PACK_GUEST,
					  KILN_PACK_SALVAGE };
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");

	assert_int_equal(write_pack(&ki_sys_posix, path), KILN_OK);
	for (size_t i = 0; i < N_ERRORS * 3; i++) {
		const struct kiln_pack_options options = {
			.size = sizeof(options),
			.flags = flags[i % 3],
		};
		struct fault fault;

		fault_begin(&fault, errors[i / 3]);
		fault.stride = 8;
		fault.n_all = 12;
		while (fault_next(&fault)) {
			unsigned n_open = harness_n_descriptors();
			long n_blocks = fault_n_blocks();
			struct kiln_tier *tier = NULL;
			enum kiln_status status;

			fault_arm(&fault);
			status =
				ki_pack_open(&fault.sys, path, &options, &tier);
			if (!status)
				use(tier);
			fault_disarm(&fault);
			assert_true(status <= 0);
			/* It goes on as if nothing had been. */
			if (!status) {
				assert_int_equal(read_pack(tier), N_ENTRIES);
				tier->ops->close(tier);
			}
			if (!fault.n_fired)
				assert_int_equal(status, KILN_OK);
			assert_int_equal(harness_n_descriptors(), n_open);
			assert_int_equal(fault_n_blocks(), n_blocks);
		}
	}
	harness_remove(directory);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pack_is_written_whole_or_not_at_all),
		cmocka_unit_test(a_value_is_right_or_an_error),
	};

	return cmocka_run_group_tests_name("fault packs", tests, make_entries,
					   free_entries);
}
