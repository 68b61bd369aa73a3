/* SPDX-License-Identifier: MIT */

/*
 * A directory shared by kiln and an original: processes that store by the
 * driver's own protocol (original.h), beside kiln's.  After every step, under
 * the lock, the sum in config.file is that of the files, and not above the limit.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "conform/kinds.h"
#include "original.h"

#define LIMIT	((uint64_t)120000)
#define N_STEPS 60

/* 0 if the sum is true and within the limit. */
static int account_is_wrong(const char *directory)
{
	uint64_t total, sum;
	int fd = original_lock(directory, &total);

	if (fd < 0)
		return 1;
	sum = original_sum(directory);
	original_unlock(fd);
	return total != sum || sum > LIMIT;
}

static int take_steps(unsigned index, void *arg)
{
	const char *directory = arg;
	const struct ki_store_options options = { .sys = &ki_sys_posix,
						  .directory = directory,
						  .bytes_max = LIMIT };
	static char data[16384];
	uint64_t random = index + 1;
	struct kiln_tier *tier;
	char name[32];

	if (ki_store_neo_open(&options, &tier))
		return 1;
	for (unsigned i = 0; i < N_STEPS; i++) {
		const size_t size = 8 + harness_random(&random) % 12000;
		const unsigned n = index * 1000 + i;
		int status;

		if (index % 2) {
			snprintf(name, sizeof(name), "%016x.cl_cache", n);
			(void)original_store(directory, LIMIT, name, data,
					     size);
		} else {
			status = put_numbered(tier, n, size, 0);
			if (status && status != KILN_E_TIMEOUT)
				return 2;
			status = get_numbered(tier, n);
			if (status != KILN_OK && status != KILN_MISS)
				return 3;
		}
		if (account_is_wrong(directory))
			return 4;
	}
	tier->ops->close(tier);
	return 0;
}

static void kiln_and_originals_keep_one_account(void **state)
{
	char *directory = harness_directory();
	const struct ki_store_options options = { .sys = &ki_sys_posix,
						  .directory = directory };
	struct kiln_tier *tier;

	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	assert_int_equal(put_numbered(tier, 99999, 100, 0), KILN_OK);
	tier->ops->close(tier);
	assert_int_equal(
		harness_processes(4, take_steps, directory, HARNESS_HANG_S), 0);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kiln_and_originals_keep_one_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
