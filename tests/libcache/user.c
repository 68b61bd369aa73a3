/* SPDX-License-Identifier: MIT */

/*
 * A program of somebody else's: it has <cache.h> and the library as installed,
 * nothing of this tree, and is C and C++ alike.
 */

#define LIBCACHE_EXTENSIONS
#include <cache.h>
#include <string.h>

struct cache_devCtx_s {
	unsigned char bytes[1000];
};

static ssize_t read_device(uint64_t offset, void *buffer, size_t count,
			   cache_devCtx_t *device)
{
	memcpy(buffer, device->bytes + offset, count);
	return (ssize_t)count;
}

static ssize_t write_device(uint64_t offset, const void *buffer, size_t count,
			    cache_devCtx_t *device)
{
	memcpy(device->bytes + offset, buffer, count);
	return (ssize_t)count;
}

static int use(cachectx_t *cache, const cache_devCtx_t *device)
{
	char bytes[5] = "";

	return cache_setFlushGranularity(cache, 8) ||
	       cache_write(cache, 62, "abcd", 4, LIBCACHE_WRITE_BACK) != 4 ||
	       cache_read(cache, 62, bytes, 4) != 4 ||
	       memcmp(bytes, "abcd", 4) != 0 || device->bytes[62] ||
	       cache_flush(cache, 0, 1000) ||
	       memcmp(device->bytes + 62, "abcd", 4) != 0 ||
	       cache_write(cache, 0, "e", 1, LIBCACHE_WRITE_THROUGH) != 1 ||
	       device->bytes[0] != 'e' || cache_clean(cache, 0, 1000) ||
	       cache_invalidate(cache, 0, 1000) || cache_discard(cache);
}

int main(void)
{
	static cache_devCtx_t device;
	const cache_ops_t ops = { read_device, write_device, &device };
	cachectx_t *cache = cache_init(sizeof(device.bytes), 64, 8, &ops);

	if (!cache || cache_deinit(cache))
		return 1;
	cache = cache_init(sizeof(device.bytes), 64, 8, &ops);
	return !cache || use(cache, &device);
}
