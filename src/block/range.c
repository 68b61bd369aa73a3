/* SPDX-License-Identifier: MIT */

/*
 * Flush, clean, invalidate, discard.  A range of fewer blocks than the cache
 * has lines is looked up block by block, else the lines are gone through and
 * what they hold is sorted.
 */

#include "block/inside.h"

#include <stdlib.h>

enum what { FLUSH, CLEAN, INVALIDATE };

/* 1: there and dirty; 0: there; -ENOENT. */
static int look(struct kiln_block *b, uint64_t block)
{
	size_t index = set_of(b, block), way;
	struct shard *shard = shard_at(b, index);
	int result = -ENOENT;

	ki_mutex_lock(&shard->mutex);
	way = find(b, set_at(b, index), block);
	if (way != b->n_ways)
		result = ki_block_is_dirty(&b->lines[index * b->n_ways + way]);
	ki_mutex_unlock(&shard->mutex);
	return result;
}

/* 0: it is not there any more; 1: it is dirty, and stays unless forced;
   -EBUSY. */
static int drop_block(struct kiln_block *b, uint64_t block, int forced)
{
	size_t index = set_of(b, block), way;
	struct shard *shard = shard_at(b, index);
	struct line *line;
	int result = 0;

	ki_mutex_lock(&shard->mutex);
	way = find(b, set_at(b, index), block);
	if (way == b->n_ways)
		goto out;
	line = &b->lines[index * b->n_ways + way];
	if (ki_block_is_dirty(line) && !forced)
		result = 1;
	else if (line->n_held || line->n_pinned)
		result = -EBUSY;
	else
		ki_block_drop(b, index, way);
out:
	ki_mutex_unlock(&shard->mutex);
	return result;
}

int ki_block_flush_at(struct kiln_block *b, uint64_t block, uint64_t end,
		      int drops, uint64_t *out_next)
{
	struct call *call = NULL;
	struct claim claim;
	uint64_t n = 0, i, again;
	int err, state;

	*out_next = block + 1;
	if (end > block + b->call_lines)
		end = block + b->call_lines;
	err = ki_block_claim(b, &claim, block, end, 1);
	if (err)
		return err;
	if (look(b, block) > 0) {
		err = ki_block_call(b, &call);
		if (!err)
			err = ki_block_write_run(b, call->buffer, block, end,
						 &n);
	}
	if (err)
		goto out;
	if (n)
		*out_next = block + n;
	for (i = block; drops && i < *out_next; i++) {
		while ((state = drop_block(b, i, 0)) > 0 && call) {
			err = ki_block_write_run(b, call->buffer, i, i + 1,
						 &again);
			if (err)
				goto out;
		}
		/* Dirty since it was looked at: from the start. */
		if (state > 0) {
			*out_next = i;
			break;
		}
		if (state < 0)
			err = state;
	}
out:
	ki_block_uncall(b, call);
	ki_block_unclaim(b, &claim);
	return err;
}

/* What is to be done with one block, and perhaps those behind it.  -EBUSY is
   no reason to stop. */
static int treat(struct kiln_block *b, enum what what, uint64_t block,
		 uint64_t end, uint64_t *out_next)
{
	int state = look(b, block);

	*out_next = block + 1;
	if (state < 0 || (!state && what == FLUSH))
		return 0;
	if (what == INVALIDATE)
		return drop_block(b, block, 1);
	return ki_block_flush_at(b, block, end, what == CLEAN, out_next);
}

static int treat_range(struct kiln_block *b, enum what what, uint64_t first,
		       uint64_t end)
{
	int err = 0, busy = 0;
	uint64_t next;

	for (; first < end && !err; first = next) {
		err = treat(b, what, first, end, &next);
		if (err == -EBUSY) {
			busy = -EBUSY;
			err = 0;
		}
	}
	return err ? err : busy;
}

/* The blocks of the set's lines that are in the range. */
static size_t collect_set(struct kiln_block *b, size_t index, uint64_t first,
			  uint64_t end, int only_dirty, uint64_t *blocks)
{
	struct shard *shard = shard_at(b, index);
	struct set *set = set_at(b, index);
	uint64_t block;
	size_t way, n = 0;

	ki_mutex_lock(&shard->mutex);
	for (way = 0; way < b->n_ways; way++) {
		block = load(&set->tags[way]) - 1;
		if (block < first || block >= end)
			continue;
		if (only_dirty &&
		    !ki_block_is_dirty(&b->lines[index * b->n_ways + way]))
			continue;
		blocks[n++] = block;
	}
	ki_mutex_unlock(&shard->mutex);
	return n;
}

/* Without memory for a list: in the order of the sets. */
static int treat_unsorted(struct kiln_block *b, enum what what, uint64_t first,
			  uint64_t end)
{
	int err = 0, busy = 0;
	size_t line;

	for (line = 0; line < b->n_lines && !err; line++) {
		size_t index = line / b->n_ways;
		uint64_t block;

		block = load(&set_at(b, index)->tags[line % b->n_ways]) - 1;
		if (block < first || block >= end)
			continue;
		err = treat_range(b, what, block, block + 1);
		if (err == -EBUSY) {
			busy = -EBUSY;
			err = 0;
		}
	}
	return err ? err : busy;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int treat_lines(struct kiln_block *b, enum what what, uint64_t first,
		       uint64_t end)
{
	struct kiln_block_allocator *allocator = &b->allocator;
	uint64_t *blocks, next = 0;
	size_t set, i, n = 0;
	int err = 0, busy = 0;

	blocks = allocator->allocate(b->n_lines * sizeof(*blocks),
				     allocator->context);
	if (!blocks)
		return treat_unsorted(b, what, first, end);
	for (set = 0; set < b->n_sets; set++)
		n += collect_set(b, set, first, end, what == FLUSH, blocks + n);
	qsort(blocks, n, sizeof(*blocks), compare);
	for (i = 0; i < n && !err; i++) {
		if (blocks[i] < next)
			continue;
		do {
			err = treat(b, what, blocks[i], end, &next);
		} while (!err && next == blocks[i]);
		if (err == -EBUSY) {
			busy = -EBUSY;
			err = 0;
		}
	}
	allocator->release(blocks, allocator->context);
	return err ? err : busy;
}

static int treat_blocks(struct kiln_block *b, enum what what, uint64_t first,
			uint64_t end)
{
	struct claim claim;
	int err;

	if (first >= end)
		return 0;
	/* What is under way ends first; what is dropped must be ours. */
	err = ki_block_claim(b, &claim, first, end, 1);
	if (err)
		return err;
	if (what != INVALIDATE)
		ki_block_unclaim(b, &claim);
	if (what == FLUSH && !load(&b->n_dirty))
		return 0;
	if (end - first <= b->n_lines)
		err = treat_range(b, what, first, end);
	else
		err = treat_lines(b, what, first, end);
	if (what == INVALIDATE)
		ki_block_unclaim(b, &claim);
	return err;
}

static int treat_bytes(struct kiln_block *b, enum what what, uint64_t begin,
		       uint64_t end)
{
	uint64_t last;

	if (!b || begin > end || begin > b->device_bytes)
		return -EINVAL;
	if (end > b->device_bytes)
		end = b->device_bytes;
	last = end ? block_of(b, end - 1) + 1 : 0;
	return treat_blocks(b, what, block_of(b, begin), last);
}

int kiln_block_flush(struct kiln_block *b, uint64_t begin, uint64_t end)
{
	return treat_bytes(b, FLUSH, begin, end);
}

int kiln_block_clean(struct kiln_block *b, uint64_t begin, uint64_t end)
{
	return treat_bytes(b, CLEAN, begin, end);
}

int kiln_block_invalidate(struct kiln_block *b, uint64_t begin, uint64_t end)
{
	return treat_bytes(b, INVALIDATE, begin, end);
}

int kiln_block_discard(struct kiln_block *b, uint64_t begin, uint64_t end)
{
	uint64_t first, last;

	if (!b || begin > end || begin > b->device_bytes)
		return -EINVAL;
	first = block_of(b, begin) + (begin % b->line_bytes != 0);
	last = end >= b->device_bytes ? b->n_blocks : block_of(b, end);
	return treat_blocks(b, INVALIDATE, first, last);
}
