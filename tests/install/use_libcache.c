/* SPDX-License-Identifier: MIT */

/* The same for libcache: a device of 64 bytes, written through a cache. */

#include <cache.h>

#include <stdio.h>
#include <string.h>

struct cache_devCtx_s {
	char bytes[64];
};

static ssize_t read_device(uint64_t offset, void *buffer, size_t count,
			   cache_devCtx_t *ctx)
{
	memcpy(buffer, ctx->bytes + offset, count);
	return (ssize_t)count;
}

static ssize_t write_device(uint64_t offset, const void *buffer, size_t count,
			    cache_devCtx_t *ctx)
{
	memcpy(ctx->bytes + offset, buffer, count);
	return (ssize_t)count;
}

int main(void)
{
	struct cache_devCtx_s device = { { 0 } };
	cache_ops_t ops = { read_device, write_device, &device };
	cachectx_t *cache = cache_init(sizeof(device.bytes), 8, 4, &ops);
	char read[6] = "";

	if (!cache ||
	    cache_write(cache, 5, "bytes", 5, LIBCACHE_WRITE_BACK) != 5)
		return 1;
	if (cache_read(cache, 5, read, 5) != 5 || cache_deinit(cache))
		return 1;
	printf("%s, and %.5s in the device\n", read, device.bytes + 5);
	return 0;
}
