/* SPDX-License-Identifier: MIT */

/*
 * What others do to the directory and to kiln.records while a handle is open:
 * moved away, emptied, cut off, made by a newer kiln, evicted from.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "store/neo/helpers_test.h"

#define LIMIT 100000

/* Seconds pass as soon as they are asked for. */
static uint64_t passed_ns;

static uint64_t later_ns(const struct ki_sys *sys)
{
	return ki_sys_posix.coarse_ns(&ki_sys_posix) + passed_ns;
}

static struct kiln_tier *open_version(const struct ki_sys *sys,
				      const char *directory, uint32_t flags,
				      uint64_t user_version)
{
	struct ki_store_options options = { .sys = sys,
					    .directory = directory,
					    .bytes_max = LIMIT,
					    .flags = flags,
					    .user_version = user_version };
	struct kiln_tier *tier = NULL;

	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	return tier;
}

static struct kiln_store_info info_of(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info;
}

/* A directory with two entries, which is moved away under its handle. */
struct move {
	struct ki_sys sys;
	char *top, *here, *there;
	struct kiln_tier *tier;
	uint64_t user_version;
};

static void move_away(struct move *move, uint32_t flags, uint64_t user_version)
{
	passed_ns = 0;
	move->sys = ki_sys_posix;
	move->sys.coarse_ns = later_ns;
	move->top = harness_directory();
	move->here = harness_path(move->top, "here");
	move->there = harness_path(move->top, "there");
	move->user_version = user_version;
	move->tier = open_version(&move->sys, move->here, flags, user_version);
	assert_int_equal(put(move->tier, 1, 1000), KILN_OK);
	assert_int_equal(put(move->tier, 2, 1000), KILN_OK);
	/* So that it is read by the short way next time. */
	assert_int_equal(get(move->tier, 1), KILN_OK);
	assert_int_equal(get(move->tier, 1), KILN_OK);
	assert_int_equal(rename(move->here, move->there), 0);
	assert_int_equal(mkdir(move->here, 0700), 0);
}

static void move_end(struct move *move)
{
	move->tier->ops->close(move->tier);
	free(move->there);
	free(move->here);
	free(move->top);
}

static const struct {
	uint32_t flags;
	uint64_t user_version;
} handles[] = {
	{ 0, 0 },
	{ KILN_OPEN_GUEST, 0 },
	{ 0, 7 },
	{ KILN_OPEN_GUEST, 7 },
};
#define N_HANDLES 4

/* S16 */
static void what_is_stored_after_a_move_is_all_in_the_new_place(void **state)
{
	for (unsigned i = 0; i < N_HANDLES; i++) {
		struct kiln_tier *other;
		struct move move;

		move_away(&move, handles[i].flags, handles[i].user_version);
		for (unsigned n = 10; n < 15; n++)
			assert_int_equal(put(move.tier, n, 1000), KILN_OK);
		for (unsigned n = 10; n < 15; n++)
			assert_int_equal(get(move.tier, n), KILN_OK);
		assert_int_equal(get(move.tier, 1), KILN_MISS);
		other = open_version(&ki_sys_posix, move.here, 0,
				     handles[i].user_version);
		for (unsigned n = 10; n < 15; n++)
			assert_int_equal(get(other, n), KILN_OK);
		assert_int_equal(get(other, 2), KILN_MISS);
		assert_int_equal(sum_of(move.here), 5000);
		other->ops->close(other);
		other = open_version(&ki_sys_posix, move.there,
				     KILN_OPEN_READONLY,
				     handles[i].user_version);
		assert_int_equal(get(other, 1), KILN_OK);
		assert_int_equal(get(other, 2), KILN_OK);
		assert_int_equal(info_of(other).n_entries, 2);
		assert_int_equal(sum_of(move.there), 2000);
		other->ops->close(other);
		move_end(&move);
	}
}

/* S16: and the other entry of the same name. */
static void who_only_reads_notices_within_a_second(void **state)
{
	for (unsigned i = 0; i < N_HANDLES; i++) {
		const uint64_t second_ns = 1100000000;
		struct kiln_tier *other;
		struct move move;

		move_away(&move, handles[i].flags, handles[i].user_version);
		passed_ns += second_ns;
		assert_int_equal(get(move.tier, 1), KILN_MISS);
		assert_int_equal(get(move.tier, 2), KILN_MISS);
		assert_true(neo_of(move.tier)->place_fd < 0 ||
			    neo_of(move.tier)->place_is_other);
		other = open_version(&ki_sys_posix, move.here, 0,
				     handles[i].user_version);
		assert_int_equal(put(other, 1, 3000), KILN_OK);
		other->ops->close(other);
		passed_ns += second_ns;
		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(get(move.tier, 1), KILN_OK);
		move_end(&move);
	}
}

/* S16: nobody's version is in it, so it is this handle's. */
static void a_wiped_directory_is_adopted_again(void **state)
{
	char *directory = harness_directory();
	char *store = harness_path(directory, "store");
	struct kiln_tier *tier = open_version(&ki_sys_posix, store, 0, 7);
	uint64_t first, second;

	assert_int_equal(put(tier, 1, 1000), KILN_OK);
	first = info_of(tier).generation;
	harness_remove(store);
	assert_int_equal(put(tier, 1, 1000), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	second = info_of(tier).generation;
	assert_int_equal(info_of(tier).user_version, 7);
	assert_true(first != second);
	harness_remove(store);
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
	assert_int_equal(info_of(tier).user_version, 7);
	assert_true(info_of(tier).generation != second);
	tier->ops->close(tier);
	free(store);
	free(directory);
}

static void another_version_that_came_meanwhile_stays(void **state)
{
	struct kiln_tier *other;
	struct move move;

	move_away(&move, 0, 7);
	other = open_version(&ki_sys_posix, move.here, 0, 8);
	assert_int_equal(put(other, 1, 1000), KILN_OK);
	assert_int_equal(put(move.tier, 2, 1000), KILN_E_FORMAT);
	assert_int_equal(get(move.tier, 1), KILN_MISS);
	assert_int_equal(move.tier->ops->wipe(move.tier), KILN_E_FORMAT);
	assert_int_equal(get(other, 1), KILN_OK);
	other->ops->close(other);
	move_end(&move);
}

/* ---- kiln.records ------------------------------------------------------------------- */

/* A byte of it is not what it was. */
static void spoil_header(const char *directory, off_t offset)
{
	char *path = harness_path(directory, "kiln.records");
	int fd = open(path, O_RDWR);
	char byte;

	assert_int_equal(pread(fd, &byte, 1, offset), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
	close(fd);
	free(path);
}

/* S17: it says whose the entries are. */
static void a_damaged_header_neither_loses_nor_mixes_versions(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier =
			open_version(&ki_sys_posix, directory, 0, 7);
		struct kiln_tier *other;

		assert_int_equal(put(tier, 1, 1000), KILN_OK);
		if (i % 2) {
			tier->ops->close(tier);
			tier = NULL;
		}
		spoil_header(directory, i / 2 ? 32 : 60);
		if (!tier)
			tier = open_version(&ki_sys_posix, directory, 0, 7);
		assert_int_equal(put(tier, 2, 1000), KILN_OK);
		assert_int_equal(get(tier, 1), KILN_OK);
		tier->ops->close(tier);
		spoil_header(directory, i / 2 ? 32 : 60);
		other = open_version(&ki_sys_posix, directory, 0, 0);
		assert_int_equal(get(other, 1), KILN_OK);
		assert_int_equal(put(other, 3, 1000), KILN_OK);
		assert_int_equal(info_of(other).user_version, 7);
		other->ops->close(other);
		spoil_header(directory, i / 2 ? 32 : 60);
		other = open_version(&ki_sys_posix, directory, 0, 8);
		for (unsigned n = 1; n <= 3; n++)
			assert_int_equal(get(other, n), KILN_MISS);
		assert_int_equal(info_of(other).user_version, 8);
		other->ops->close(other);
		free(directory);
	}
}

/* Nobody knows any more whose they are: they are no version's. */
static void without_header_and_copy_no_version_gets_entries(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_version(&ki_sys_posix, directory, 0, 7);

	assert_int_equal(put(tier, 1, 1000), KILN_OK);
	tier->ops->close(tier);
	spoil_header(directory, 60);
	spoil_header(directory, 170);
	tier = open_version(&ki_sys_posix, directory, KILN_OPEN_GUEST, 0);
	assert_int_equal(get(tier, 1), KILN_OK);
	tier->ops->close(tier);
	tier = open_version(&ki_sys_posix, directory, 0, 8);
	assert_int_equal(get(tier, 1), KILN_MISS);
	tier->ops->close(tier);
	free(directory);
}

static void records_cut_off_under_a_handle_cost_no_more_than_hits(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		struct kiln_tier *tier =
			open_version(&ki_sys_posix, directory,
				     i % 2 ? KILN_OPEN_GUEST : 0, 0);

		for (unsigned n = 0; n < 20; n++)
			assert_int_equal(put(tier, n, 1000), KILN_OK);
		assert_int_equal(get(tier, 19), KILN_OK);
		assert_int_equal(truncate(path, i / 2 * 500), 0);
		for (unsigned n = 0; n < 20; n++) {
			enum kiln_status status = get(tier, n);

			assert_true(status == KILN_OK || status == KILN_MISS);
		}
		for (unsigned n = 0; n < 25; n++) {
			enum kiln_status status = put(tier, n, 1000);

			assert_true(status == KILN_OK || status == KILN_EXISTS);
		}
		for (unsigned n = 0; n < 25; n++)
			assert_int_equal(get(tier, n), KILN_OK);
		assert_int_equal(info_of(tier).n_entries, 25);
		assert_int_equal(sum_of(directory), 25000);
		tier->ops->close(tier);
		free(path);
		free(directory);
	}
}

/* S17 */
static void nothing_goes_for_what_a_newer_kiln_would_not_let_in(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct kiln_tier *tier = open_version(&ki_sys_posix, directory, 0, 0);
	struct kiln_gc_options gc = { .bytes_max = 2000 };
	struct kiln_verify_report verified;
	struct kiln_gc_report report;
	char *bytes;
	size_t size;

	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(put(tier, n, 4000), KILN_OK);
	bytes = harness_read(path, &size);
	ki_put_u32(bytes + 8, 2);
	ki_put_u64(bytes + 56, ki_xxh3_64(bytes, 56));
	replace_file(path, bytes, size);
	for (unsigned n = 20; n < 40; n++)
		assert_int_equal(put(tier, n, 4000), KILN_E_FORMAT);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(tier->ops->gc(tier, &gc, NULL, NULL, &report),
			 KILN_E_FORMAT);
	assert_int_equal(tier->ops->wipe(tier), KILN_E_FORMAT);
	assert_int_equal(tier->ops->set_limit(tier, 2000), KILN_E_FORMAT);
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &verified),
			 KILN_E_FORMAT);
	assert_int_equal(n_names(directory, "[.]cl_cache"), 20);
	assert_int_equal(n_names(directory, "^cl_cache"), 0);
	tier->ops->close(tier);
	free(bytes);
	free(path);
	free(directory);
}

/* ---- What is there -------------------------------------------------------------------- */

/* A driver evicts, and knows nothing of records. */
static void what_a_driver_evicted_is_not_counted(void **state)
{
	for (unsigned is_readonly = 0; is_readonly < 2; is_readonly++) {
		char *directory = harness_directory(), *theirs, *path;
		struct kiln_tier *tier =
			open_version(&ki_sys_posix, directory, 0, 0);
		struct kiln_store_info before, after;

		for (unsigned n = 0; n < 10; n++)
			assert_int_equal(put(tier, n, 1000), KILN_OK);
		theirs = plant(directory, "00112233445566aa.cl_cache", 500, 1);
		before = info_of(tier);
		assert_int_equal(before.n_entries, 11);
		assert_int_equal(before.n_foreign, 1);
		for (unsigned n = 0; n < 4; n++) {
			path = path_of(tier, n);
			assert_int_equal(unlink(path), 0);
			/* Of one the name is a driver's by now. */
			if (!n)
				replace_file(path, "theirs", 6);
			free(path);
		}
		if (is_readonly) {
			tier->ops->close(tier);
			tier = open_version(&ki_sys_posix, directory,
					    KILN_OPEN_READONLY, 0);
		}
		after = info_of(tier);
		assert_int_equal(after.n_entries, 8);
		assert_int_equal(after.n_foreign, 2);
		assert_true(after.bytes_live < before.bytes_live);
		tier->ops->close(tier);
		free(theirs);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			what_is_stored_after_a_move_is_all_in_the_new_place),
		cmocka_unit_test(who_only_reads_notices_within_a_second),
		cmocka_unit_test(a_wiped_directory_is_adopted_again),
		cmocka_unit_test(another_version_that_came_meanwhile_stays),
		cmocka_unit_test(
			a_damaged_header_neither_loses_nor_mixes_versions),
		cmocka_unit_test(
			without_header_and_copy_no_version_gets_entries),
		cmocka_unit_test(
			records_cut_off_under_a_handle_cost_no_more_than_hits),
		cmocka_unit_test(
			nothing_goes_for_what_a_newer_kiln_would_not_let_in),
		cmocka_unit_test(what_a_driver_evicted_is_not_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
