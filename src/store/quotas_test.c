/* SPDX-License-Identifier: MIT */

#include "store/quotas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

static struct ki_quotas *open_quotas(const char *path, enum ki_quotas_mode mode)
{
	struct ki_quotas *quotas = NULL;

	assert_int_equal(
		ki_quotas_open(&ki_sys_posix, path, 0, mode, 0, &quotas), 0);
	return quotas;
}

static void add(const char *path, const char *name, uint64_t bytes_max)
{
	struct ki_quotas *quotas = open_quotas(path, KI_QUOTAS_MAKE);
	struct ki_quota *row = ki_quotas_add(quotas, name);

	assert_non_null(row);
	row->bytes_max = bytes_max;
	assert_int_equal(ki_quotas_write(quotas, row), 0);
	ki_quotas_close(quotas);
}

static void what_is_written_is_read(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.quotas");
	struct ki_quotas *quotas;
	struct ki_quota *row;

	assert_int_equal(ki_quotas_open(&ki_sys_posix, path, 0, KI_QUOTAS_LOOK,
					0, &quotas),
			 -ENOENT);
	assert_int_equal(ki_quotas_open(&ki_sys_posix, path, 0,
					KI_QUOTAS_CHANGE, 0, &quotas),
			 -ENOENT);
	add(path, "a", 1000);
	add(path, KILN_NAMESPACE_OTHERS, 500);
	add(path, "b", 0);
	quotas = open_quotas(path, KI_QUOTAS_CHANGE);
	assert_int_equal(quotas->n, 3);
	row = ki_quotas_find(quotas, "a");
	row->bytes = 10;
	row->turn = 20;
	row->n_evicted = 30;
	row->n_refused = 40;
	assert_int_equal(ki_quotas_write(quotas, row), 0);
	ki_quotas_close(quotas);

	quotas = open_quotas(path, KI_QUOTAS_LOOK);
	row = ki_quotas_find(quotas, "a");
	assert_int_equal(ki_quotas_limit(quotas, row), 1000);
	assert_int_equal(row->bytes, 10);
	assert_int_equal(row->turn, 20);
	assert_int_equal(row->n_evicted, 30);
	assert_int_equal(row->n_refused, 40);
	row = ki_quotas_find(quotas, "b");
	assert_int_equal(ki_quotas_limit(quotas, row), 500);
	assert_null(ki_quotas_find(quotas, "c"));
	ki_quotas_close(quotas);
	free(path);
	free(directory);
}

/* Who has no quota of his own makes way; his account is counted if he comes back. */
static void a_full_table_has_room_for_another_quota(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.quotas");
	struct ki_quotas *quotas;
	struct ki_quota *row;
	char name[16];
	unsigned i;

	for (i = 0; i < KILN_NAMESPACES_MAX; i++) {
		snprintf(name, sizeof(name), "%u", i);
		add(path, name, i == 5 ? 0 : 1000);
	}
	add(path, "last", 1000);
	quotas = open_quotas(path, KI_QUOTAS_CHANGE);
	assert_int_equal(quotas->n, KILN_NAMESPACES_MAX);
	assert_null(ki_quotas_find(quotas, "5"));
	assert_non_null(ki_quotas_find(quotas, "last"));
	assert_false(quotas->is_complete);
	assert_null(ki_quotas_add(quotas, "one more"));
	row = ki_quotas_find(quotas, "7");
	row->bytes_max = 0;
	row = ki_quotas_add(quotas, "one more");
	assert_non_null(row);
	assert_true(row->bytes == KILN_NAMESPACE_UNCOUNTED);
	ki_quotas_close(quotas);
	free(path);
	free(directory);
}

/* Each bit of what is there costs its own row at most, or the head. */
static void damage_costs_a_row_or_its_account(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.quotas");
	struct ki_quotas *quotas;
	size_t size, at;
	char *good;

	add(path, "a", 1000);
	add(path, "b", 2000);
	good = harness_read(path, &size);
	assert_int_equal(size, 64 + 2 * 192);
	for (at = 0; at < size; at++) {
		struct ki_quota *a, *b;
		int err;

		good[at] ^= 0x10;
		harness_write(path, good, size);
		good[at] ^= 0x10;
		err = ki_quotas_open(&ki_sys_posix, path, 0, KI_QUOTAS_CHANGE,
				     0, &quotas);
		if (at < 64) {
			assert_int_equal(err, -EBADMSG);
			continue;
		}
		assert_int_equal(err, 0);
		a = ki_quotas_find(quotas, "a");
		b = ki_quotas_find(quotas, "b");
		assert_true(a || b);
		if (at < 64 + 192)
			assert_true(
				b->bytes_max == 2000 &&
				(!a || (a->bytes_max == 1000 &&
					a->bytes == KILN_NAMESPACE_UNCOUNTED)));
		else
			assert_true(
				a->bytes_max == 1000 &&
				(!b || (b->bytes_max == 2000 &&
					b->bytes == KILN_NAMESPACE_UNCOUNTED)));
		ki_quotas_close(quotas);
	}
	/* Cut off anywhere. */
	for (at = 0; at < size; at++) {
		harness_write(path, good, at);
		quotas = open_quotas(path, KI_QUOTAS_MAKE);
		assert_int_equal(quotas->n, at < 256 ? 0 : 1);
		ki_quotas_close(quotas);
	}
	free(good);
	free(path);
	free(directory);
}

static void a_newer_version_is_left_alone(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.quotas");
	struct ki_quotas *quotas;
	uint64_t head[8] = { 0x5341544f5551494b, 2 };
	char *before, *after;
	size_t size;

	head[7] = ki_xxh3_64(head, 56);
	harness_write(path, head, sizeof(head));
	before = harness_read(path, &size);
	for (int mode = KI_QUOTAS_LOOK; mode <= KI_QUOTAS_MAKE; mode++)
		assert_int_equal(ki_quotas_open(&ki_sys_posix, path, 0,
						(enum ki_quotas_mode)mode, 0,
						&quotas),
				 -EINVAL);
	after = harness_read(path, &size);
	assert_int_equal(size, sizeof(head));
	assert_memory_equal(before, after, size);
	free(before);
	free(after);
	free(path);
	free(directory);
}

/* Whoever is stopped while he has it holds nobody up. */
static void a_lock_that_is_not_to_be_had_is_not_waited_for(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.quotas");
	struct ki_quotas *mine, *other;

	add(path, "a", 1000);
	mine = open_quotas(path, KI_QUOTAS_CHANGE);
	assert_int_equal(ki_quotas_open(&ki_sys_posix, path, 0,
					KI_QUOTAS_CHANGE, 0, &other),
			 -ETIMEDOUT);
	ki_quotas_close(mine);
	ki_quotas_close(open_quotas(path, KI_QUOTAS_CHANGE));
	free(path);
	free(directory);
}

/* ---- Trouble ------------------------------------------------------------------- */

static int fails_in;

static int fails(void)
{
	return fails_in && !--fails_in;
}

static int failing_open(const struct ki_sys *sys, const char *path,
			unsigned flags, unsigned mode)
{
	return fails() ? -EMFILE : ki_sys_posix.open(sys, path, flags, mode);
}

static ssize_t failing_pread(const struct ki_sys *sys, int fd, void *data,
			     size_t size, uint64_t offset)
{
	return fails() ? -EIO : ki_sys_posix.pread(sys, fd, data, size, offset);
}

static ssize_t failing_pwritev(const struct ki_sys *sys, int fd,
			       const struct ki_piece *pieces, int n_pieces,
			       uint64_t offset)
{
	return fails() ? -ENOSPC
		       : ki_sys_posix.pwritev(sys, fd, pieces, n_pieces,
					      offset);
}

static int failing_fstat(const struct ki_sys *sys, int fd,
			 struct ki_file_info *out_info)
{
	return fails() ? -EIO : ki_sys_posix.fstat(sys, fd, out_info);
}

static void a_call_that_fails_spoils_no_other_row(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.quotas");
	struct ki_sys sys = ki_sys_posix;
	struct ki_quotas *quotas;
	int n, err = 1;

	sys.open = failing_open;
	sys.pread = failing_pread;
	sys.pwritev = failing_pwritev;
	sys.fstat = failing_fstat;
	add(path, "a", 1000);
	for (n = 1; err; n++) {
		fails_in = n;
		err = ki_quotas_open(&sys, path, 0, KI_QUOTAS_MAKE, 0, &quotas);
		if (!err) {
			struct ki_quota *row = ki_quotas_add(quotas, "b");

			assert_non_null(row);
			row->bytes_max = 2000;
			err = ki_quotas_write(quotas, row);
			ki_quotas_close(quotas);
		}
		fails_in = 0;
		quotas = open_quotas(path, KI_QUOTAS_LOOK);
		assert_int_equal(ki_quotas_find(quotas, "a")->bytes_max, 1000);
		ki_quotas_close(quotas);
	}
	assert_true(n > 4);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(a_full_table_has_room_for_another_quota),
		cmocka_unit_test(damage_costs_a_row_or_its_account),
		cmocka_unit_test(a_newer_version_is_left_alone),
		cmocka_unit_test(
			a_lock_that_is_not_to_be_had_is_not_waited_for),
		cmocka_unit_test(a_call_that_fails_spoils_no_other_row),
	};

	return cmocka_run_group_tests_name("quotas", tests, NULL, NULL);
}
