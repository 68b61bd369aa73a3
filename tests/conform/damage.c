/* SPDX-License-Identifier: MIT */

/* Damage to files: never wrong bytes, and an account that becomes right. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conform/conform.h"

struct damage {
	uint64_t random;
	unsigned n_changes;
	int how;
};

/* As a bad disk does it: the times stay as they are. */
static void damage_file(const char *path, const struct stat *st, void *arg)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	struct damage *damage = arg;
	int fd;

	if (!S_ISREG(st->st_mode) || !st->st_size)
		return;
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	for (unsigned i = 0; i < damage->n_changes; i++) {
		off_t place = (off_t)(harness_random(&damage->random) %
				      (uint64_t)st->st_size);
		unsigned char byte;

		if (damage->how == 1) {
			assert_int_equal(ftruncate(fd, place), 0);
			break;
		}
		if (damage->how == 2) {
			char junk[512];

			memset(junk, (int)place, sizeof(junk));
			assert_true(pwrite(fd, junk, sizeof(junk), place) > 0);
			continue;
		}
		assert_int_equal(pread(fd, &byte, 1, place), 1);
		byte ^= (unsigned char)(1
					<< harness_random(&damage->random) % 8);
		assert_int_equal(pwrite(fd, &byte, 1, place), 1);
	}
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

/* S13: flips, cuts and overwritten stretches, in every file of the store. */
static void damage_never_yields_wrong_bytes(void **state)
{
	for (unsigned round = 0; round < 36; round++) {
		struct damage damage = { .random = round,
					 .n_changes = 1 + round % 4 * 8,
					 .how = (int)(round % 3) };
		char *directory = harness_directory();
		struct ki_store_options options = options_of(directory);
		struct kiln_tier *tier;
		enum kiln_status status;
		struct kiln_verify_report report;

		options.bytes_max = BOUND;
		options.flags = KILN_OPEN_VERIFY_ALWAYS | KILN_OPEN_COPY;
		tier = open_with(&options);
		for (unsigned n = 0; n < 40; n++)
			assert_int_equal(put_numbered(tier, n, 100 + 50 * n, 0),
					 KILN_OK);
		tier->ops->close(tier);
		each_file(directory, damage_file, &damage);

		status = kind->open(&options, &tier);
		if (status) {
			/* The version itself may have been hit. */
			assert_int_equal(status, KILN_E_FORMAT);
			harness_remove(directory);
			free(directory);
			continue;
		}
		for (unsigned n = 0; n < 40; n++)
			assert_int_not_equal(get_numbered(tier, n),
					     WRONG_BYTES);
		if (tier->ops->verify)
			(void)tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL,
						NULL, &report);
		for (unsigned n = 0; n < 40; n++) {
			(void)put_numbered(tier, n, 100 + 50 * n,
					   KILN_PUT_REPLACE);
			assert_int_not_equal(get_numbered(tier, n),
					     WRONG_BYTES);
		}
		tier->ops->close(tier);
		harness_remove(directory);
		free(directory);
	}
}

static void only_the_entry_that_is_hit_is_lost(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_verify_report report;
	struct damage damage = { .random = 1, .n_changes = 1 };
	unsigned n_lost = 0;

	/* Large enough for files of their own, wherever that is done. */
	for (unsigned n = 0; n < 4; n++)
		assert_int_equal(put_numbered(tier, n, 3000000, 0), KILN_OK);
	tier->ops->close(tier);
	{
		struct stat st;
		char *largest = NULL;
		char command[KI_PATH_MAX];
		FILE *found;

		snprintf(command, sizeof(command),
			 "find '%s' -type f -size +2900k -size -4M | sort | "
			 "head -1",
			 directory);
		found = popen(command, "r");
		assert_non_null(found);
		largest = fgets(command, sizeof(command), found);
		pclose(found);
		largest[strcspn(largest, "\n")] = '\0';
		assert_int_equal(lstat(largest, &st), 0);
		damage_file(largest, &st, &damage);
	}
	tier = open_in(directory);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 1);
	assert_int_equal(report.n_repaired, 0);
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &report),
			 KILN_OK);
	assert_int_equal(report.n_repaired, 1);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	for (unsigned n = 0; n < 4; n++)
		n_lost += get_numbered(tier, n) != KILN_OK;
	assert_int_equal(n_lost, 1);
	tier->ops->close(tier);
	free(directory);
}

struct spoiling {
	unsigned n;
	int punches; /* holes, instead of removing files */
};

/* Every other file that holds values. */
static void spoil_file(const char *path, const struct stat *st, void *arg)
{
	struct spoiling *spoiling = arg;
	int fd;

	if (!S_ISREG(st->st_mode) || st->st_size < 8192 ||
	    strstr(path, "kiln.idx") || strstr(path, "kiln.stats") ||
	    strstr(path, "kiln.lock") || spoiling->n++ % 2)
		return;
	if (!spoiling->punches) {
		assert_int_equal(unlink(path), 0);
		return;
	}
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(fallocate(fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   0, st->st_size),
			 0);
	close(fd);
}

static unsigned count_right(struct kiln_tier *tier, unsigned from, unsigned to)
{
	unsigned n_right = 0;

	for (; from < to; from++) {
		int status = get_numbered(tier, from);

		assert_int_not_equal(status, WRONG_BYTES);
		n_right += status == KILN_OK;
	}
	return n_right;
}

/* S49: nobody walks through it, and after as much as it holds was put once more
   the account is right again, and the store as full as ever. */
static void an_account_that_is_wrong_becomes_right(void **state)
{
	for (int punches = 0; punches < 2; punches++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
		struct spoiling spoiling = { .punches = punches };
		unsigned n, n_full, swing;
		uint64_t bytes;

		for (n = 0; n < 600; n++)
			assert_int_equal(put_numbered(tier, n, 9000, 0),
					 KILN_OK);
		n_full = count_right(tier, 0, n);
		each_file(directory, spoil_file, &spoiling);
		assert_true(spoiling.n > 2);
		/* What is mapped stays, until it is closed. */
		(void)count_right(tier, 0, n);
		tier->ops->close(tier);
		tier = open_bounded(directory, BOUND, 0);
		assert_true(count_right(tier, 0, n) < n_full);
		for (; n < 1200; n++) {
			assert_int_equal(put_numbered(tier, n, 9000, 0),
					 KILN_OK);
			if (n % 16)
				continue;
			assert_true(disk_bytes(directory) <= BOUND);
		}
		/* Of one that evicts much at a time, how full it is depends. */
		swing = n_full / (kind->evicts ? kind->evicts - 1 : 8);
		assert_in_range(count_right(tier, 0, n), n_full - swing,
				n_full + swing);
		bytes = disk_bytes(directory);
		assert_in_range(bytes_of(tier), bytes - bytes / 16,
				bytes + bytes / 16);
		tier->ops->close(tier);
		free(directory);
	}
}

const struct row damage_rows[] = {
	ROW(damage_never_yields_wrong_bytes, DISK),
	ROW(only_the_entry_that_is_hit_is_lost, DISK | VERIFY),
	ROW(an_account_that_is_wrong_becomes_right, DISK),
	ROWS_END,
};
