/* SPDX-License-Identifier: MIT */

/*
 * No store: one mapped file with the items one behind another, found by their
 * place.  What is left of a hit is comparing the record and reading the value:
 * what no look-up can be faster than.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "peers.h"

#define MAPPED_BYTES ((size_t)1 << 30)

struct store {
	int fd;
	const uint8_t *bytes;
	size_t value_size; /* of all */
};

static void *open_bare(const char *directory, uint64_t bytes_max,
		       unsigned flags)
{
	struct store *store = calloc(1, sizeof(*store));
	char path[512];
	void *bytes;

	(void)bytes_max;
	(void)flags;
	if (!store)
		bench_fail("no memory");
	snprintf(path, sizeof(path), "%s/bare", directory);
	store->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (store->fd < 0)
		bench_fail("%s: %s", path, strerror(errno));
	bytes = mmap(NULL, MAPPED_BYTES, PROT_READ, MAP_SHARED, store->fd, 0);
	if (bytes == MAP_FAILED)
		bench_fail("%s: %s", path, strerror(errno));
	store->bytes = bytes;
	return store;
}

static void close_bare(void *arg)
{
	struct store *store = arg;

	munmap((void *)(uintptr_t)store->bytes, MAPPED_BYTES);
	close(store->fd);
	free(store);
}

static size_t offset_of(const struct store *store, const struct item *item)
{
	return item->place * (item->record_size + store->value_size);
}

static void put(void *arg, const struct item *item, const void *value,
		size_t size)
{
	struct store *store = arg;
	size_t offset;

	store->value_size = size;
	offset = offset_of(store, item);
	if (pwrite(store->fd, item->record, item->record_size, (off_t)offset) !=
		    (ssize_t)item->record_size ||
	    pwrite(store->fd, value, size,
		   (off_t)(offset + item->record_size)) != (ssize_t)size)
		bench_fail("bare: %s", strerror(errno));
}

/* The value, or NULL. */
static const uint8_t *find(const struct store *store, const struct item *item)
{
	const uint8_t *bytes = store->bytes + offset_of(store, item);

	return memcmp(bytes, item->record, item->record_size)
		       ? NULL
		       : bytes + item->record_size;
}

static size_t get(void *arg, const struct item *item, void *buffer,
		  size_t capacity)
{
	struct store *store = arg;
	const uint8_t *value = find(store, item);

	if (!value || store->value_size > capacity)
		return 0;
	memcpy(buffer, value, store->value_size);
	return store->value_size;
}

static int64_t view(void *arg, const struct item *item)
{
	struct store *store = arg;
	const uint8_t *value = find(store, item);

	return value ? peer_touch(value, store->value_size) : -1;
}

const struct peer peer_bare = {
	"a bare mapping", 0, open_bare, close_bare, put, get, view
};
