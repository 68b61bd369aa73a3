/* SPDX-License-Identifier: MIT */

/*
 * S14.  huge KIND: values around 2^31 bytes, where sizes stop fitting an int
 * and a single write.  They are zeros but for a few marks, so only the store
 * takes room.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define GIB	((uint64_t)1 << 30)
#define AROUND	((size_t)1 << 31)
#define MAPPING (AROUND + 4096)

static const struct kind *kind;
static char *directory;
static char *value; /* MAPPING bytes */

static struct kiln_tier *open_as(uint32_t flags)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .flags = flags };
	struct kiln_tier *tier = NULL;

	assert_int_equal(kind->open(&options, &tier), KILN_OK);
	return tier;
}

static void mark(size_t size, char with)
{
	value[0] = value[size / 2] = value[size - 1] = with;
}

static void is_found(uint32_t flags, const struct kiln_key *key, size_t size)
{
	struct kiln_tier *tier = open_as(flags);
	struct kiln_blob *blob;

	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	assert_int_equal(kiln_blob_size(blob), size);
	assert_false(memcmp(kiln_blob_data(blob), value, size));
	kiln_blob_unref(blob);
	tier->ops->close(tier);
}

static void comes_back(size_t size, uint32_t flags)
{
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier *tier = open_as(0);

	mark(size, 'm');
	assert_int_equal(
		tier->ops->put(tier, key, "metadata", 8, value, size, 0),
		KILN_OK);
	tier->ops->close(tier);
	is_found(flags, key, size);
	tier = open_as(0);
	assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
	tier->ops->close(tier);
	mark(size, 0);
	kiln_key_free(key);
}

static void one_less_than_two_gibibytes_comes_back(void **state)
{
	comes_back(AROUND - 1, 0);
}

static void one_more_than_two_gibibytes_comes_back(void **state)
{
	comes_back(AROUND + 1, KILN_OPEN_GUEST);
}

static uint64_t available_memory(void)
{
	unsigned long long kib = 0;
	size_t size;
	char *text = harness_read("/proc/meminfo", &size);
	const char *line = text ? strstr(text, "MemAvailable:") : NULL;

	if (line)
		(void)sscanf(line, "MemAvailable: %llu", &kib);
	free(text);
	return kib << 10;
}

/* NULL, or what there is too little of. */
static const char *what_is_missing(void)
{
	struct statvfs st;

	if (statvfs(directory, &st) || st.f_bavail * st.f_frsize < 6 * GIB)
		return "6 GiB of disk";
	return available_memory() < 5 * GIB ? "5 GiB of memory" : NULL;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_less_than_two_gibibytes_comes_back),
		cmocka_unit_test(one_more_than_two_gibibytes_comes_back),
	};
	const char *missing;
	int failed;

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind || !kind->persists) {
		fprintf(stderr, "usage: huge KIND\n");
		return 2;
	}
	directory = harness_directory();
	missing = what_is_missing();
	if (missing) {
		printf("1..0 # SKIP needs %s\n", missing);
		return 0;
	}
	value = mmap(NULL, MAPPING, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (value == MAP_FAILED)
		abort();
	failed = _cmocka_run_group_tests(kind->name, tests,
					 sizeof(tests) / sizeof(tests[0]), NULL,
					 NULL);
	munmap(value, MAPPING);
	free(directory);
	return failed;
}
