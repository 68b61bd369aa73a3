/* SPDX-License-Identifier: MIT */

/*
 * A directory shared by kiln and originals: processes that store and look up by
 * the driver's own protocol (original.h), flat, as a tree or both, beside kiln's.
 * After every step, under the lock, the sum in config.file is that of the files,
 * and not above the limit.  Where kiln is alone, kiln.records counts too, and at
 * every moment.
 */

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "conform/kinds.h"
#include "original.h"

#define LIMIT	((uint64_t)120000)
#define N_STEPS 40

static uint64_t bytes_found;

static int add_file(const char *path, const struct stat *info, int kind,
		    struct FTW *place)
{
	const char *name = path + place->base;

	if (kind == FTW_F &&
	    (strstr(name, "cl_cache") || strstr(name, "kiln.records")))
		bytes_found += (uint64_t)info->st_size;
	return 0;
}

/* Of entries, kiln.records, and all that is being written. */
static uint64_t all_bytes(const char *directory)
{
	bytes_found = 0;
	(void)nftw(directory, add_file, 8, FTW_PHYS);
	return bytes_found;
}

/* What is not yet stored comes and goes without the lock: a walk that such a file
   was taken from is of no use. */
static uint64_t sum_of_all(const char *directory)
{
	uint64_t sum;
	int n_tries = 0;

	do
		sum = original_sum(directory, ORIGINAL_TREE);
	while (sum == UINT64_MAX && ++n_tries < 1000);
	return sum;
}

/* 0 if the sum is true and within the limit; where no original fills that, which
   does not count them, with `records`. */
static int account_is_wrong(const char *directory, int records)
{
	uint64_t total, sum, bytes;
	int fd = original_lock(directory, ORIGINAL_TREE, &total);

	if (fd < 0)
		return 1;
	sum = sum_of_all(directory);
	bytes = records ? all_bytes(directory) : sum;
	original_unlock(fd);
	return total != sum || bytes > LIMIT;
}

/* ---- With originals ------------------------------------------------------------ */

#define ORIGINAL_BYTE 'i'

static int take_original_step(const struct original *original, unsigned n,
			      const void *data, size_t size, unsigned *n_stored)
{
	char name[32], *bytes;
	size_t found = 0;
	int status = 0;

	/* Spread as a hash spreads. */
	snprintf(name, sizeof(name), "%016llx.%s",
		 (unsigned long long)(n + 1) * 0x9e3779b97f4a7c15u,
		 n % 3 ? "cl_cache" : "l0_cache");
	if (original_store(original, name, data, size))
		return 0;
	(*n_stored)++;
	bytes = original_look_up(original, name, &found);
	/* Another may have evicted it by now. */
	if (bytes && (found != size || bytes[size - 1] != ORIGINAL_BYTE))
		status = 6;
	free(bytes);
	return status;
}

static int take_kiln_turn(struct kiln_tier *tier, unsigned n, size_t size)
{
	int status = put_numbered(tier, n, size, 0);

	if (status && status != KILN_E_TIMEOUT)
		return 2;
	status = get_numbered(tier, n);
	return status == KILN_OK || status == KILN_MISS ? 0 : 3;
}

struct company {
	const char *name;
	const char *wish;		/* of kiln's */
	enum original_layout layout[2]; /* of the originals */
	unsigned n_least;		/* stores of each that succeed */
};

struct meeting {
	const struct company *company;
	const char *directory;
};

static int take_steps(unsigned index, void *arg)
{
	const struct meeting *meeting = arg;
	const struct original original = {
		.directory = meeting->directory,
		.layout = meeting->company->layout[index / 2],
		.bytes_max = LIMIT
	};
	const struct ki_store_options options = {
		.sys = &ki_sys_posix,
		.directory = meeting->directory,
		.name = meeting->company->wish,
		.bytes_max = LIMIT
	};
	static char data[16384];
	uint64_t random = index + 1;
	unsigned n_stored = 0;
	struct kiln_tier *tier;
	int status = 0;

	memset(data, ORIGINAL_BYTE, sizeof(data));
	if (ki_store_neo_open(&options, &tier))
		return 1;
	for (unsigned i = 0; i < N_STEPS && !status; i++) {
		const size_t size = 8 + harness_random(&random) % 12000;
		const unsigned n = index * 1000 + i;

		status = index % 2 ? take_original_step(&original, n, data,
							size, &n_stored)
				   : take_kiln_turn(tier, n, size);
		if (!status && account_is_wrong(meeting->directory, 0))
			status = 4;
	}
	tier->ops->close(tier);
	/* A flat one has little to evict where the others make a tree. */
	if (!status && index % 2 && n_stored < meeting->company->n_least)
		status = 5;
	return status;
}

/*
 * Where a flat original makes the file and one of a tree has its lock first, the
 * flat one's count, which sees no tree, goes over what the other has added: a
 * defect of theirs, in which kiln has no part.
 */
static void make_config(const char *directory)
{
	static const uint8_t none[8];
	char *path = harness_path(directory, "config.file");

	harness_write(path, none, sizeof(none));
	free(path);
}

/* Kiln opens an empty directory: which it will be it sees later. */
static void kiln_and_originals_keep_one_account(void **state)
{
	static const struct company companies[] = {
		{ "flat", NULL, { ORIGINAL_FLAT, ORIGINAL_FLAT }, N_STEPS / 2 },
		{ "tree", NULL, { ORIGINAL_TREE, ORIGINAL_TREE }, N_STEPS / 2 },
		{ "both", NULL, { ORIGINAL_FLAT, ORIGINAL_TREE }, 1 },
		{ "tree, kiln flat",
		  "flat",
		  { ORIGINAL_TREE, ORIGINAL_TREE },
		  N_STEPS / 2 },
		{ "flat, kiln tree",
		  "tree",
		  { ORIGINAL_FLAT, ORIGINAL_FLAT },
		  1 },
	};

	for (size_t i = 0; i < sizeof(companies) / sizeof(*companies); i++) {
		char *directory = harness_directory();
		struct meeting meeting = { &companies[i], directory };
		unsigned n_failed;

		if (companies[i].layout[0] != companies[i].layout[1])
			make_config(directory);
		n_failed = harness_processes(4, take_steps, &meeting,
					     HARNESS_HANG_S);
		if (n_failed)
			fail_msg("%s: %u failed", companies[i].name, n_failed);
		if (companies[i].layout[1] == ORIGINAL_TREE) {
			char *stats = harness_path(directory, "stats"), *bytes;
			size_t size;

			bytes = harness_read(stats, &size);
			assert_non_null(bytes);
			assert_int_equal(size, 24);
			free(bytes);
			free(stats);
		}
		free(directory);
	}
}

/* ---- Kiln alone -------------------------------------------------------------- */

static enum kiln_status take_kiln_step(struct kiln_tier *tier, unsigned i,
				       uint64_t *random)
{
	const size_t most = i / 50 % 2 ? 60 : 6000;
	const size_t size = 8 + harness_random(random) % most;
	const unsigned n = (unsigned)(harness_random(random) % 400);
	enum kiln_status status =
		put_numbered(tier, n, size, i % 2 ? KILN_PUT_REPLACE : 0);

	return status == KILN_EXISTS ? KILN_OK : status;
}

static int take_kiln_steps(unsigned index, void *arg)
{
	const struct meeting *meeting = arg;
	const struct ki_store_options options = {
		.sys = &ki_sys_posix,
		.directory = meeting->directory,
		.name = meeting->company->wish,
		.bytes_max = LIMIT
	};
	uint64_t random = index + 1;
	struct kiln_tier *tier;

	if (ki_store_neo_open(&options, &tier))
		return 1;
	for (unsigned i = 0; i < 2 * N_STEPS; i++) {
		enum kiln_status status = take_kiln_step(tier, i, &random);

		if (status && status != KILN_E_TIMEOUT)
			return 2;
		if (account_is_wrong(meeting->directory, 1))
			return 4;
	}
	tier->ops->close(tier);
	return 0;
}

static void kilns_keep_records_and_all_within_the_limit(void **state)
{
	static const struct company alone[] = { { .wish = "flat" },
						{ .wish = "tree" } };

	for (unsigned i = 0; i < 2; i++) {
		char *directory = harness_directory();
		struct meeting meeting = { &alone[i], directory };

		assert_int_equal(harness_processes(4, take_kiln_steps, &meeting,
						   HARNESS_HANG_S),
				 0);
		free(directory);
	}
}

static const char *watched;
static uint64_t most_bytes;

static ssize_t watch_pwritev(const struct ki_sys *sys, int fd,
			     const struct ki_piece *pieces, int n_pieces,
			     uint64_t offset)
{
	ssize_t n = real->pwritev(real, fd, pieces, n_pieces, offset);
	uint64_t bytes = all_bytes(watched);

	if (bytes > most_bytes)
		most_bytes = bytes;
	return n;
}

static void between_two_calls_nothing_passes_the_limit(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	const struct ki_store_options options = { .sys = &sys,
						  .directory = directory,
						  .bytes_max = LIMIT };
	struct kiln_tier *tier;
	uint64_t random = 1;

	watched = directory;
	INTERPOSE(&sys, watch, pwritev);
	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	for (unsigned i = 0; i < 600; i++)
		assert_int_equal(take_kiln_step(tier, i, &random), KILN_OK);
	assert_in_range(most_bytes, LIMIT / 2, LIMIT);
	tier->ops->close(tier);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kilns_keep_records_and_all_within_the_limit),
		cmocka_unit_test(between_two_calls_nothing_passes_the_limit),
		cmocka_unit_test(kiln_and_originals_keep_one_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
