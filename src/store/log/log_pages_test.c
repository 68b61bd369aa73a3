/* SPDX-License-Identifier: MIT */

/*
 * Where pages are larger than 4 KB: every mapping goes, in whole pages and once.
 * The system of these tests says that its pages have 64 KB.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define PAGE_BYTES 65536u
#define N_MAPPINGS 256

static struct mapping {
	uint8_t *begin; /* NULL: free */
	size_t size;
	size_t n_pages_left;
} mappings[N_MAPPINGS];

static unsigned n_wrong;

static size_t large_pages(const struct ki_sys *sys)
{
	return PAGE_BYTES;
}

static int noted_map(const struct ki_sys *sys, int fd, uint64_t offset,
		     size_t size, unsigned flags, void **out_data)
{
	int err = ki_sys_posix.map(&ki_sys_posix, fd, offset, size, flags,
				   out_data);
	unsigned i;

	for (i = 0; !err && i < N_MAPPINGS; i++) {
		if (mappings[i].begin)
			continue;
		mappings[i] = (struct mapping){ *out_data, size,
						ki_in_pages(size, PAGE_BYTES) /
							PAGE_BYTES };
		return 0;
	}
	return err ? err : -ENOMEM;
}

static struct mapping *mapping_at(const uint8_t *data)
{
	unsigned i;

	for (i = 0; i < N_MAPPINGS; i++)
		if (mappings[i].begin && data >= mappings[i].begin &&
		    data < mappings[i].begin + mappings[i].size)
			return &mappings[i];
	return NULL;
}

/* As a system with such pages does: none that begins within one, and a page
   goes that is begun. */
static void noted_unmap(const struct ki_sys *sys, void *data, size_t size)
{
	struct mapping *mapping = mapping_at(data);
	size_t n_pages = ki_in_pages(size, PAGE_BYTES) / PAGE_BYTES, offset;

	if (!mapping) {
		n_wrong++;
		return;
	}
	offset = (size_t)((uint8_t *)data - mapping->begin);
	if (offset % PAGE_BYTES || n_pages > mapping->n_pages_left) {
		n_wrong++;
		return;
	}
	if (size > mapping->size - offset)
		size = mapping->size - offset;
	ki_sys_posix.unmap(&ki_sys_posix, data, size);
	mapping->n_pages_left -= n_pages;
	if (!mapping->n_pages_left)
		mapping->begin = NULL;
}

static size_t count_pages(void)
{
	size_t n = 0;
	unsigned i;

	for (i = 0; i < N_MAPPINGS; i++)
		n += mappings[i].begin ? mappings[i].n_pages_left : 0;
	return n;
}

/* The index of the first is smaller than a page. */
static void every_mapping_goes_in_whole_pages(void **state)
{
	static const uint64_t bounds[] = { 1 << 20, 64 << 20 };
	size_t i;

	for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		struct store store = store_new(bounds[i], 0);
		struct ki_sys sys = ki_sys_posix;
		unsigned n;

		store_close(&store);
		sys.page_bytes = large_pages;
		sys.map = noted_map;
		sys.unmap = noted_unmap;
		store.options.sys = &sys;
		store_open(&store);
		for (n = 0; n < 100; n++) {
			assert_int_equal(store_put(&store, n, 3000, 0),
					 KILN_OK);
			assert_int_equal(store_get(&store, n, 3000), KILN_OK);
			if (n % 30)
				continue;
			assert_int_equal(store.tier->ops->wipe(store.tier),
					 KILN_OK);
			assert_int_equal(store_get(&store, n, 3000), KILN_MISS);
		}
		assert_true(count_pages() > 0);
		store_close(&store);
		assert_int_equal(count_pages(), 0);
		assert_int_equal(n_wrong, 0);
		store_free(&store);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_mapping_goes_in_whole_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
