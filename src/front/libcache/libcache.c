/* SPDX-License-Identifier: MIT */

/*
 * libcache on the block cache: its callbacks one by one, for one line each, by
 * LRU, under its names.
 */

#include <errno.h>
#include <stdlib.h>

#define LIBCACHE_EXTENSIONS
#pragma GCC visibility push(default)
#include <libcache/cache.h>
#pragma GCC visibility pop

#include <kiln/block.h>

struct cachectx_s {
	struct kiln_block *block;
	cache_ops_t ops;
};

static kiln_block_read_fn read_line;
static kiln_block_write_fn write_line;

static ssize_t read_line(uint64_t offset, void *buffer, size_t count,
			 void *context)
{
	const cachectx_t *cache = context;

	return cache->ops.readCb(offset, buffer, count, cache->ops.ctx);
}

static ssize_t write_line(uint64_t offset, const void *buffer, size_t count,
			  void *context)
{
	const cachectx_t *cache = context;

	return cache->ops.writeCb(offset, buffer, count, cache->ops.ctx);
}

cachectx_t *cache_init(size_t srcMemSize, size_t lineSize, size_t linesCnt,
		       const cache_ops_t *ops)
{
	struct kiln_block_options options = kiln_block_options_default();
	cachectx_t *cache;

	if (!ops || !ops->readCb || !ops->writeCb)
		return NULL;
	cache = malloc(sizeof(*cache));
	if (!cache)
		return NULL;
	cache->ops = *ops;
	options.device_bytes = srcMemSize;
	options.line_bytes = lineSize;
	options.n_lines = linesCnt;
	options.n_ways = LIBCACHE_WAYS;
	if (kiln_block_open(
		    &options,
		    &(struct kiln_block_device){ read_line, write_line, cache },
		    &cache->block)) {
		free(cache);
		return NULL;
	}
	return cache;
}

int cache_deinit(cachectx_t *cache)
{
	int err = cache ? kiln_block_close(cache->block) : -EINVAL;

	if (!err)
		free(cache);
	return err;
}

int cache_discard(cachectx_t *cache)
{
	if (!cache)
		return -EINVAL;
	kiln_block_abandon(cache->block);
	free(cache);
	return 0;
}

ssize_t cache_read(cachectx_t *cache, uint64_t addr, void *buffer, size_t count)
{
	return cache ? kiln_block_read(cache->block, addr, buffer, count)
		     : -EINVAL;
}

ssize_t cache_write(cachectx_t *cache, uint64_t addr, const void *buffer,
		    size_t count, int policy)
{
	enum kiln_block_write_mode mode;

	switch (policy) {
	case LIBCACHE_WRITE_BACK:
		mode = KILN_BLOCK_WRITE_BACK;
		break;
	case LIBCACHE_WRITE_THROUGH:
		mode = KILN_BLOCK_WRITE_THROUGH;
		break;
	default:
		return -EINVAL;
	}
	if (!cache)
		return -EINVAL;
	return kiln_block_write(cache->block, addr, buffer, count, mode);
}

int cache_flush(cachectx_t *cache, const uint64_t begAddr,
		const uint64_t endAddr)
{
	return cache ? kiln_block_flush(cache->block, begAddr, endAddr)
		     : -EINVAL;
}

int cache_invalidate(cachectx_t *cache, const uint64_t begAddr,
		     const uint64_t endAddr)
{
	return cache ? kiln_block_invalidate(cache->block, begAddr, endAddr)
		     : -EINVAL;
}

int cache_clean(cachectx_t *cache, const uint64_t begAddr,
		const uint64_t endAddr)
{
	return cache ? kiln_block_clean(cache->block, begAddr, endAddr)
		     : -EINVAL;
}

int cache_setFlushGranularity(cachectx_t *cache, size_t gran)
{
	if (!cache || !gran)
		return -EINVAL;
	return kiln_block_set_flush_granularity(cache->block, gran);
}
