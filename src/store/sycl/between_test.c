/* SPDX-License-Identifier: MIT */

/* What others do between two steps of ours. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "key/key.h"
#include "store/sycl/helpers_test.h"

#define VALUE 100 /* bytes */

/* Once, before the call. */
static void (*meanwhile)(void);
static char *directory;
static struct kiln_tier *other;

static void happen(void)
{
	void (*what)(void) = meanwhile;

	meanwhile = NULL;
	if (what)
		what();
}

static struct kiln_tier *open_between(struct ki_sys *sys)
{
	struct ki_store_options options = { .sys = sys,
					    .directory = directory };
	struct kiln_tier *tier = NULL;

	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	return tier;
}

static void begin(void)
{
	directory = harness_directory();
	other = open_at(directory, 0);
}

static void end(struct kiln_tier *tier)
{
	tier->ops->close(tier);
	other->ops->close(other);
	free(directory);
}

/* ---- An entry of another kiln's is not taken for DPC++'s ------------------------- */

static int late_opendir(const struct ki_sys *sys, const char *path,
			struct ki_dir **out_dir)
{
	happen();
	return real->opendir(real, path, out_dir);
}

static void store_with_metadata(void)
{
	struct kiln_key *key = key_of(1);

	if (other->ops->put(other, key, "meta", 4, "value", 5, 0))
		abort();
	kiln_key_free(key);
}

/* Stored between the look at the records and that at the place. */
static void what_a_kiln_stores_meanwhile_is_found_by_its_record(void **state)
{
	struct kiln_blob *value = NULL, *metadata = NULL;
	struct kiln_key *key = key_of(1);
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	begin();
	INTERPOSE(&sys, late, opendir);
	tier = open_between(&sys);
	meanwhile = store_with_metadata;
	assert_int_equal(tier->ops->get(tier, key, &value, &metadata),
			 KILN_OK);
	assert_null(meanwhile);
	/* That of .src alone has none. */
	assert_int_equal(kiln_blob_size(metadata), 4);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	end(tier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			what_a_kiln_stores_meanwhile_is_found_by_its_record),
	};

	return cmocka_run_group_tests_name("sycl_between", tests, NULL, NULL);
}
