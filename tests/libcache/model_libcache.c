/* SPDX-License-Identifier: MIT */

#define LIBCACHE_EXTENSIONS
#include "model.h"

static void *open_libcache(const struct model_shape *shape,
			   cache_devCtx_t *device)
{
	const cache_ops_t ops = device_ops(device);

	return cache_init(shape->size, shape->line, shape->n_lines, &ops);
}

static int close_libcache(void *cache)
{
	return cache_deinit(cache);
}

static void discard_libcache(void *cache)
{
	(void)cache_discard(cache);
}

static ssize_t read_libcache(void *cache, uint64_t addr, void *buffer,
			     size_t count)
{
	return cache_read(cache, addr, buffer, count);
}

static ssize_t write_libcache(void *cache, uint64_t addr, const void *buffer,
			      size_t count, int through)
{
	return cache_write(cache, addr, buffer, count,
			   through ? LIBCACHE_WRITE_THROUGH
				   : LIBCACHE_WRITE_BACK);
}

static int flush_libcache(void *cache, uint64_t begin, uint64_t end)
{
	return cache_flush(cache, begin, end);
}

static int invalidate_libcache(void *cache, uint64_t begin, uint64_t end)
{
	return cache_invalidate(cache, begin, end);
}

static int clean_libcache(void *cache, uint64_t begin, uint64_t end)
{
	return cache_clean(cache, begin, end);
}

static int set_granularity(void *cache, size_t bytes)
{
	return cache_setFlushGranularity(cache, bytes);
}

const struct model_subject model_libcache = {
	.name = "libcache",
	.open = open_libcache,
	.close = close_libcache,
	.discard_all = discard_libcache,
	.read = read_libcache,
	.write = write_libcache,
	.flush = flush_libcache,
	.invalidate = invalidate_libcache,
	.clean = clean_libcache,
	.granularity = set_granularity,
};
