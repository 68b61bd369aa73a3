/* SPDX-License-Identifier: MIT */

#include "model.h"

#include <kiln/block.h>

static ssize_t read_device(uint64_t offset, void *buffer, size_t count,
			   void *context)
{
	cache_devCtx_t *device = context;

	return device_ops(device).readCb(offset, buffer, count, device);
}

static ssize_t write_device(uint64_t offset, const void *buffer, size_t count,
			    void *context)
{
	cache_devCtx_t *device = context;

	return device_ops(device).writeCb(offset, buffer, count, device);
}

static void *open_block(const struct model_shape *shape, cache_devCtx_t *device)
{
	const struct kiln_block_device on = { .read = read_device,
					      .write = write_device,
					      .context = device };
	struct kiln_block_options options = kiln_block_options_default();
	struct kiln_block *block;

	options.device_bytes = shape->size;
	options.line_bytes = shape->line;
	options.n_lines = shape->n_lines;
	options.n_ways = shape->n_ways;
	options.policy = shape->scan_resistant ? KILN_BLOCK_SCAN_RESISTANT
					       : KILN_BLOCK_LRU;
	options.index = shape->hashed ? KILN_BLOCK_HASHED : KILN_BLOCK_MODULO;
	options.n_calls = shape->n_calls;
	options.call_bytes_max = shape->call_bytes_max;
	options.read_ahead_bytes = shape->read_ahead;
	options.flush_granularity = shape->granularity;
	return kiln_block_open(&options, &on, &block) ? NULL : block;
}

static int close_block(void *cache)
{
	return kiln_block_close(cache);
}

static void abandon_block(void *cache)
{
	kiln_block_abandon(cache);
}

static ssize_t read_block(void *cache, uint64_t addr, void *buffer,
			  size_t count)
{
	return kiln_block_read(cache, addr, buffer, count);
}

static ssize_t write_block(void *cache, uint64_t addr, const void *buffer,
			   size_t count, int through)
{
	return kiln_block_write(cache, addr, buffer, count,
				through ? KILN_BLOCK_WRITE_THROUGH
					: KILN_BLOCK_WRITE_BACK);
}

static int flush_block(void *cache, uint64_t begin, uint64_t end)
{
	return kiln_block_flush(cache, begin, end);
}

static int invalidate_block(void *cache, uint64_t begin, uint64_t end)
{
	return kiln_block_invalidate(cache, begin, end);
}

static int clean_block(void *cache, uint64_t begin, uint64_t end)
{
	return kiln_block_clean(cache, begin, end);
}

static int set_granularity(void *cache, size_t bytes)
{
	return kiln_block_set_flush_granularity(cache, bytes);
}

static int discard_block(void *cache, uint64_t begin, uint64_t end)
{
	return kiln_block_discard(cache, begin, end);
}

static int prefetch_block(void *cache, uint64_t begin, uint64_t count)
{
	return kiln_block_prefetch(cache, begin, count);
}

static int get_block(void *cache, uint64_t addr, const void **out_data,
		     size_t *out_size)
{
	return kiln_block_get(cache, addr, out_data, out_size);
}

static void release_block(void *cache, const void *data)
{
	kiln_block_release(cache, data);
}

static int pin_block(void *cache, uint64_t addr, size_t count)
{
	return kiln_block_pin(cache, addr, count);
}

static int unpin_block(void *cache, uint64_t addr, size_t count)
{
	return kiln_block_unpin(cache, addr, count);
}

static int resize_block(void *cache, size_t n_lines)
{
	return kiln_block_resize(cache, n_lines);
}

const struct model_subject model_block = {
	.name = "block",
	.open = open_block,
	.close = close_block,
	.discard_all = abandon_block,
	.read = read_block,
	.write = write_block,
	.flush = flush_block,
	.invalidate = invalidate_block,
	.clean = clean_block,
	.granularity = set_granularity,
	.discard = discard_block,
	.prefetch = prefetch_block,
	.get = get_block,
	.release = release_block,
	.pin = pin_block,
	.unpin = unpin_block,
	.resize = resize_block,
};
