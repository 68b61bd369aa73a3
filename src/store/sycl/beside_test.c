/* SPDX-License-Identifier: MIT */

/* Beside others: what tools, backups and left lock files do to those who store. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "key/key.h"
#include "store/sycl/helpers_test.h"

#define VALUE 100 /* bytes */

static struct kiln_tier *open_by(const struct ki_sys *sys,
				 const char *directory, uint64_t bytes_max)
{
	const struct ki_store_options options = { .sys = sys,
						  .directory = directory,
						  .bytes_max = bytes_max };
	struct kiln_tier *tier;

	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	return tier;
}

/* ---- While somebody walks ------------------------------------------------------ */

static struct kiln_tier *other; /* who stores whenever a directory is opened */
static unsigned n_puts, n_refused, n_opened;

static int storing_opendir(const struct ki_sys *sys, const char *path,
			   struct ki_dir **out_dir)
{
	n_opened++;
	if (other && n_puts < 20)
		n_refused += put(other, 100 + n_puts++, VALUE) != KILN_OK;
	return real->opendir(real, path, out_dir);
}

static void look_at_all(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_int_equal(info.n_foreign, 10);
	assert_in_range(info.n_entries, 10, 30);
}

static void others_store_while_one_looks_at_all(void **state)
{
	static void (*const looks[])(struct kiln_tier *) = { look_at_all };

	for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
		char *directory = harness_directory();
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier *tier, *writer = open_at(directory, 0);

		INTERPOSE(&sys, storing, opendir);
		tier = open_by(&sys, directory, 0);
		for (unsigned n = 0; n < 10; n++)
			plant(directory, n, 0, VALUE, 5);
		n_puts = n_refused = 0;
		other = writer;
		looks[i](tier);
		other = NULL;
		assert_in_range(n_puts, 10, 20);
		assert_int_equal(n_refused, 0);
		tier->ops->close(tier);
		writer->ops->close(writer);
		free(directory);
	}
}

/* ---- Backups that link --------------------------------------------------------- */

/* A second name of kiln.held is not always that of a lock file. */
static void a_link_elsewhere_to_what_kiln_holds_costs_one_search(void **state)
{
	char *directory = harness_directory(), *backup = harness_directory();
	char *held = harness_path(directory, "kiln.held");
	char *copy = harness_path(backup, "kiln.held");
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;
	unsigned before;

	INTERPOSE(&sys, storing, opendir);
	tier = open_by(&sys, directory, 0);
	for (unsigned n = 0; n < 10; n++)
		assert_int_equal(put(tier, n, VALUE), KILN_OK);
	assert_int_equal(link(held, copy), 0);
	assert_int_equal(put(tier, 10, VALUE), KILN_OK);
	before = n_opened;
	for (unsigned n = 11; n < 15; n++)
		assert_int_equal(put(tier, n, VALUE), KILN_OK);
	/* Each looks into the place of its own key, twice. */
	assert_in_range(n_opened - before, 0, 8);
	assert_int_equal(access(copy, F_OK), 0);
	assert_int_equal(access(held, F_OK), 0);
	assert_int_equal(n_names(directory, ".lock"), 1);
	tier->ops->close(tier);
	free(held);
	free(copy);
	free(directory);
	free(backup);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_store_while_one_looks_at_all),
		cmocka_unit_test(
			a_link_elsewhere_to_what_kiln_holds_costs_one_search),
	};

	return cmocka_run_group_tests_name("sycl beside", tests, NULL, NULL);
}
