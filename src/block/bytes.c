/* SPDX-License-Identifier: MIT */

/*
 * Reading and writing.  A hit that nobody disturbs stays in read_hits(); what
 * ends it (a miss, or a change meanwhile) is done once more with locks.
 */

#include "block/inside.h"

#include <assert.h>
#include <limits.h>

/* How often to look around: at each 4096th hit in the common place, and at each
   64th miss. */
#define COMMON_HITS_SHIFT 12
#define MISSES_SHIFT	  6

/* A thread's own place to count, or N_STRIPES if all are taken. */
static size_t find_stripe(struct stripes *hits, size_t first, uintptr_t self)
{
	size_t i, at;

	/* A try to take one is a write, also in vain: only if it is free. */
	for (i = 0; i < N_STRIPES; i++) {
		uintptr_t owner;

		at = (first + i) % N_STRIPES;
		owner = load(&hits->owners[at]);
		if (!owner && __atomic_compare_exchange_n(
				      &hits->owners[at], &owner, self, 0,
				      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			owner = self;
		if (owner == self)
			return at;
	}
	return N_STRIPES;
}

static inline void count_at(struct stripe *stripe, uint64_t n)
{
	store(&stripe->hits, load(&stripe->hits) + n);
}

/* In the common place it takes its time, and time to see who is gone. */
static __attribute__((noinline)) void count_elsewhere(struct kiln_block *b,
						      size_t first,
						      uintptr_t self,
						      uint64_t n)
{
	size_t at = find_stripe(b->hits, first, self);
	uint64_t before;

	if (at < N_STRIPES) {
		count_at(&b->hits->stripes[at], n);
		return;
	}
	before = add(&b->hits->common.hits, n);
	if ((before ^ (before + n)) >> COMMON_HITS_SHIFT)
		ki_block_look_around(b);
}

static inline void count_hits(struct kiln_block *b, uintptr_t self, uint64_t n)
{
	size_t first = (uint64_t)self * UINT64_C(0x9e3779b97f4a7c15) >> 61;
	size_t at = first;

	/* Where it looks first another thread may have been before. */
	if (load(&b->hits->owners[at]) != self)
		at = (at + 1) % N_STRIPES;
	if (load(&b->hits->owners[at]) == self)
		count_at(&b->hits->stripes[at], n);
	else
		count_elsewhere(b, first, self, n);
}

/* How many blocks from this one on lie in sets that follow each other within
   one shard. */
static inline size_t run_of(const struct kiln_block *b, uint64_t block,
			    size_t index)
{
	size_t shard = (size_t)1 << SETS_PER_SHARD_SHIFT, n, run;

	n = shard - (index & (shard - 1));
	if (n > b->n_sets - index)
		n = b->n_sets - index;
	if (b->hash_shift >= 0) {
		run = (size_t)1 << b->hash_shift;
		run -= block & (run - 1);
		if (n > run)
			n = run;
	}
	return n;
}

/*
 * Copy lines of one such run, as many as are there.  How many bytes.  Ways and
 * the size of a line are the cache's, where the compiler may know them.
 */
static inline __attribute__((always_inline)) size_t read_run(
	struct kiln_block *b, uint64_t block, size_t index, size_t offset,
	uint8_t *buffer, size_t count, size_t n_ways, size_t line_bytes,
	enum touching how, uint64_t *n_hits)
{
	const struct shard *shard = shard_at(b, index);
	uint32_t sequence = look_begin(shard);
	const uint8_t *data = data_at(b, index * n_ways);
	size_t set_bytes = n_ways == 4 ? 64 : b->set_bytes;
	uint8_t *at = b->sets + index * set_bytes;
	size_t run = 1, way, n = line_bytes - offset, done = 0;
	uint64_t first = block;

	if (n < count)
		run = run_of(b, block, index);
	else
		n = count;
	for (;;) {
		struct set *set = (struct set *)(void *)at;

		way = find_of(set, n_ways, block);
		if (way == n_ways)
			break;
		touch_as(how, set, n_ways, way);
		if (n == line_bytes)
			copy_out(buffer + done, data + way * line_bytes,
				 line_bytes);
		else
			copy_out(buffer + done,
				 data + way * line_bytes + offset, n);
		done += n;
		block++;
		if (done == count || block - first == run)
			break;
		offset = 0;
		n = count - done < line_bytes ? count - done : line_bytes;
		at += set_bytes;
		data += n_ways * line_bytes;
	}
	if (!look_ends_well(shard, sequence))
		return 0;
	*n_hits += block - first;
	return done;
}

static __attribute__((noinline)) size_t read_run_4_64(
	struct kiln_block *b, uint64_t block, size_t index, size_t offset,
	uint8_t *buffer, size_t count, enum touching how, uint64_t *n_hits)
{
	return read_run(b, block, index, offset, buffer, count, 4, 64, how,
			n_hits);
}

static __attribute__((noinline)) size_t read_run_any(
	struct kiln_block *b, uint64_t block, size_t index, size_t offset,
	uint8_t *buffer, size_t count, enum touching how, uint64_t *n_hits)
{
	return read_run(b, block, index, offset, buffer, count, b->n_ways,
			b->line_bytes, how, n_hits);
}

/* Within one line.  Whether it was there and undisturbed. */
static inline int read_inside(struct kiln_block *b, uint64_t block,
			      size_t offset, void *buffer, size_t count,
			      enum touching how)
{
	size_t index = set_of(b, block), way;
	struct set *set = set_at(b, index);
	const struct shard *shard = shard_at(b, index);
	uint32_t sequence = look_begin(shard);

	way = b->n_ways == 4 ? find_of(set, 4, block) : find(b, set, block);
	if (way == b->n_ways)
		return 0;
	touch_as(how, set, b->n_ways, way);
	copy_out(buffer, data_at(b, index * b->n_ways + way) + offset, count);
	return look_ends_well(shard, sequence);
}

static size_t read_hits(struct kiln_block *b, uint64_t address, uint8_t *buffer,
			size_t count, uintptr_t self, enum touching how)
{
	int is_small = b->n_ways == 4 && b->line_bytes == 64;
	size_t done = 0, n, index, offset;
	uint64_t hits = 0, block;

	do {
		block = block_of(b, address + done);
		index = set_of(b, block);
		offset = (size_t)(address + done - block * b->line_bytes);
		if (is_small)
			n = read_run_4_64(b, block, index, offset,
					  buffer + done, count - done, how,
					  &hits);
		else
			n = read_run_any(b, block, index, offset, buffer + done,
					 count - done, how, &hits);
		done += n;
	} while (n && done < count);
	if (hits)
		count_hits(b, self, hits);
	return done;
}

/* 1 and the bytes, if the line is there. */
static int read_locked(struct kiln_block *b, uint64_t block, size_t offset,
		       void *buffer, size_t count)
{
	size_t index = set_of(b, block), way;
	struct shard *shard = shard_at(b, index);
	struct set *set = set_at(b, index);

	ki_mutex_lock(&shard->mutex);
	way = find(b, set, block);
	if (way != b->n_ways) {
		if (buffer)
			memcpy(buffer,
			       data_at(b, index * b->n_ways + way) + offset,
			       count);
		touch(b, set, way);
	}
	ki_mutex_unlock(&shard->mutex);
	return way != b->n_ways;
}

static int is_there(struct kiln_block *b, uint64_t block)
{
	size_t index = set_of(b, block), way;
	struct shard *shard = shard_at(b, index);

	ki_mutex_lock(&shard->mutex);
	way = find(b, set_at(b, index), block);
	ki_mutex_unlock(&shard->mutex);
	return way != b->n_ways;
}

/* Where a read that begins with a miss of `block` should end. */
static uint64_t fetch_end(struct kiln_block *b, uint64_t block, uint64_t wanted)
{
	uint64_t end = wanted;

	if (b->ahead_lines && load(&b->next_block) == block)
		end += b->ahead_lines;
	if (end > block + b->call_lines)
		end = block + b->call_lines;
	return end < b->n_blocks ? end : b->n_blocks;
}

static void count_misses(struct kiln_block *b, uint64_t n)
{
	uint64_t before = add(&b->stats.misses, n);

	if ((before ^ (before + n)) >> MISSES_SHIFT)
		ki_block_look_around(b);
}

static int read_blocks(struct kiln_block *b, struct call *call, uint64_t block,
		       uint64_t end)
{
	return ki_block_device_read(b, block * b->line_bytes, call->buffer,
				    (size_t)(end - block - 1) * b->line_bytes +
					    line_length(b, end - 1));
}

/* Put what was read where it belongs.  Those behind the first are there to be
   copied even if they find no place. */
static int insert_blocks(struct kiln_block *b, struct call *call,
			 uint64_t block, uint64_t end)
{
	int first = ki_block_insert(b, &call, block, call->buffer, 0, 0), err;
	uint64_t i;

	err = first;
	for (i = block + 1; i < end && err >= 0; i++)
		err = ki_block_insert(
			b, &call, i, call->buffer + (i - block) * b->line_bytes,
			0, 0);
	return first < 0 ? first : 0;
}

ssize_t ki_block_fetch(struct kiln_block *b, uint64_t address, void *buffer,
		       size_t count)
{
	uint64_t block = block_of(b, address), i;
	uint64_t wanted = block_of(b, address + count - 1) + 1;
	uint64_t end = fetch_end(b, block, wanted);
	size_t offset = (size_t)(address - block * b->line_bytes);
	size_t first = b->line_bytes - offset, n;
	struct call *call = NULL;
	struct claim claim;
	ssize_t result;
	int err;

	if (first > count)
		first = count;
	/* Those behind are welcome, but not worth waiting for. */
	err = ki_block_claim(b, &claim, block, end, 0);
	if (err) {
		end = block + 1;
		err = ki_block_claim(b, &claim, block, end, 1);
	}
	if (err)
		return err;
	result = (ssize_t)first;
	if (read_locked(b, block, offset, buffer, first))
		goto out;
	for (i = block + 1; i < end && !is_there(b, i); i++)
		;
	if (i < end)
		ki_block_claim_less(b, &claim, end = i);
	result = ki_block_call(b, &call);
	if (result)
		goto out;
	result = read_blocks(b, call, block, end);
	if (result && end > block + 1) {
		/* It may be one of those behind that cannot be read. */
		ki_block_claim_less(b, &claim, end = block + 1);
		result = read_blocks(b, call, block, end);
	}
	count_misses(b, (end < wanted ? end : wanted) - block);
	store(&b->next_block, end);
	if (!result)
		result = insert_blocks(b, call, block, end);
	if (result)
		goto out;
	n = (size_t)(end - block) * b->line_bytes - offset;
	if (n > count)
		n = count;
	if (buffer)
		memcpy(buffer, call->buffer + offset, n);
	result = (ssize_t)n;
out:
	ki_block_uncall(b, call);
	ki_block_unclaim(b, &claim);
	return result;
}

/* How much of it is on the device; -EINVAL if it begins behind. */
static ssize_t clamp(const struct kiln_block *b, uint64_t address, size_t count)
{
	if (address > b->device_bytes)
		return -EINVAL;
	if (count > b->device_bytes - address)
		count = (size_t)(b->device_bytes - address);
	return count > SSIZE_MAX ? SSIZE_MAX : (ssize_t)count;
}

/* What a hit could not do: it was disturbed, or the line is missing. */
static ssize_t read_one(struct kiln_block *b, uint64_t address, void *buffer,
			size_t count)
{
	uint64_t block = block_of(b, address);
	size_t offset = (size_t)(address - block * b->line_bytes);
	size_t first = b->line_bytes - offset;

	if (first > count)
		first = count;
	if (!read_locked(b, block, offset, buffer, first))
		return ki_block_fetch(b, address, buffer, count);
	count_hits(b, this_thread(), 1);
	return (ssize_t)first;
}

static __attribute__((noinline)) ssize_t read_rest(struct kiln_block *b,
						   uint64_t address,
						   uint8_t *buffer,
						   size_t count)
{
	uintptr_t self = this_thread();
	enum touching how = how_to_touch(b, self);
	size_t done = 0;
	ssize_t n;

	do {
		done += read_hits(b, address + done, buffer + done,
				  count - done, self, how);
		if (done == count)
			break;
		n = read_one(b, address + done, buffer + done, count - done);
		if (n < 0)
			return n;
		done += (size_t)n;
	} while (done < count);
	return (ssize_t)count;
}

ssize_t kiln_block_read(struct kiln_block *b, uint64_t address, void *buffer,
			size_t count)
{
	ssize_t size = b && buffer ? clamp(b, address, count) : -EINVAL;
	uintptr_t self = this_thread();
	enum touching how;
	uint64_t block;
	size_t offset;

	if (size <= 0)
		return size;
	count = (size_t)size;
	how = how_to_touch(b, self);
	block = block_of(b, address);
	offset = (size_t)(address - block * b->line_bytes);
	if (count > b->line_bytes - offset ||
	    !read_inside(b, block, offset, buffer, count, how))
		return read_rest(b, address, buffer, count);
	count_hits(b, self, 1);
	return size;
}

int kiln_block_prefetch(struct kiln_block *b, uint64_t address, uint64_t count)
{
	uint64_t end, at, room;
	ssize_t n;

	if (!b || address > b->device_bytes)
		return -EINVAL;
	end = count < b->device_bytes - address ? address + count
						: b->device_bytes;
	/* What is behind would take the place of what was just brought in. */
	room = b->n_lines * b->line_bytes - address % b->line_bytes;
	if (end - address > room)
		end = address + room;
	for (at = address; at < end; at += (uint64_t)n) {
		uint64_t left = end - at;

		n = ki_block_fetch(b, at, NULL,
				   left > SSIZE_MAX ? SSIZE_MAX : (size_t)left);
		if (n < 0)
			return (int)n;
	}
	return 0;
}

/* ---- Writing ------------------------------------------------------------ */

/* 1: done; 0: the line is not there; -EBUSY. */
static int write_locked(struct kiln_block *b, uint64_t block, size_t offset,
			const void *data, size_t size)
{
	size_t index = set_of(b, block), way;
	struct shard *shard = shard_at(b, index);
	struct set *set = set_at(b, index);
	struct line *line;
	int result = 0;

	ki_mutex_lock(&shard->mutex);
	way = find(b, set, block);
	if (way == b->n_ways)
		goto out;
	line = &b->lines[index * b->n_ways + way];
	result = -EBUSY;
	if (line->n_held)
		goto out;
	change_begin(shard);
	copy_in(data_at(b, index * b->n_ways + way) + offset, data, size);
	change_end(shard);
	ki_block_mark_dirty(b, line, offset, offset + size);
	touch(b, set, way);
	result = 1;
out:
	ki_mutex_unlock(&shard->mutex);
	return result;
}

/* Lines of one shard that follow each other, as many as are there.  How many
   bytes. */
static size_t write_run(struct kiln_block *b, uint64_t block, size_t offset,
			const uint8_t *data, size_t count)
{
	size_t index = set_of(b, block), end, way, n, done = 0;
	struct shard *shard = shard_at(b, index);
	enum touching how = how_to_touch(b, this_thread());
	uint64_t hits = 0;

	end = index + run_of(b, block, index);
	ki_mutex_lock(&shard->mutex);
	change_begin(shard);
	for (; index < end && done < count; index++, offset = 0) {
		struct set *set = set_at(b, index);
		struct line *line;

		way = find(b, set, block + hits);
		line = &b->lines[index * b->n_ways + way];
		if (way == b->n_ways || line->n_held)
			break;
		n = b->line_bytes - offset;
		if (n > count - done)
			n = count - done;
		copy_in(data_at(b, index * b->n_ways + way) + offset,
			data + done, n);
		ki_block_mark_dirty(b, line, offset, offset + n);
		touch_as(how, set, b->n_ways, way);
		done += n;
		hits++;
	}
	change_end(shard);
	ki_mutex_unlock(&shard->mutex);
	if (hits)
		count_hits(b, this_thread(), hits);
	return done;
}

/* Write to a claimed block that is not there. */
static int write_new(struct kiln_block *b, struct call **call, uint64_t block,
		     size_t offset, const void *data, size_t size)
{
	size_t length = line_length(b, block);
	uint64_t place = block * b->line_bytes;
	const void *whole = data;
	int err;

	count_misses(b, 1);
	if (size < length) {
		err = ki_block_call(b, call);
		if (!err)
			err = ki_block_device_read(b, place, (*call)->buffer,
						   length);
		if (err)
			return err;
		memcpy((*call)->buffer + offset, data, size);
		whole = (*call)->buffer;
	}
	err = ki_block_insert(b, call, block, whole, offset, offset + size);
	if (err <= 0)
		return err;
	/* It has no place in the cache. */
	err = *call ? 0 : ki_block_call(b, call);
	return err ? err : ki_block_device_write(b, place, whole, length);
}

static int write_line(struct kiln_block *b, uint64_t block, size_t offset,
		      const void *data, size_t size)
{
	int err = write_locked(b, block, offset, data, size);
	struct call *call = NULL;
	struct claim claim;

	if (err) {
		if (err > 0)
			count_hits(b, this_thread(), 1);
		return err > 0 ? 0 : err;
	}
	err = ki_block_claim(b, &claim, block, block + 1, 1);
	if (err)
		return err;
	err = write_locked(b, block, offset, data, size);
	if (!err)
		err = write_new(b, &call, block, offset, data, size);
	ki_block_uncall(b, call);
	ki_block_unclaim(b, &claim);
	return err > 0 ? 0 : err;
}

static int write_through(struct kiln_block *b, uint64_t block, uint64_t end)
{
	uint64_t next;
	int err = 0;

	for (; block < end && !err; block = next)
		err = ki_block_flush_at(b, block, end, 0, &next);
	return err;
}

ssize_t kiln_block_write(struct kiln_block *b, uint64_t address,
			 const void *buffer, size_t count,
			 enum kiln_block_write_mode mode)
{
	ssize_t size = -EINVAL;
	uint64_t block, unwritten;
	size_t done, n, offset;
	int err;

	if (b && buffer && (unsigned)mode <= KILN_BLOCK_WRITE_THROUGH)
		size = clamp(b, address, count);
	if (size <= 0)
		return size;
	if (!b->device.write)
		return -EROFS;
	count = (size_t)size;
	unwritten = block_of(b, address);
	for (done = 0; done < count; done += n) {
		block = block_of(b, address + done);
		offset = (size_t)(address + done - block * b->line_bytes);
		n = 0;
		if (mode == KILN_BLOCK_WRITE_BACK)
			n = write_run(b, block, offset,
				      (const uint8_t *)buffer + done,
				      count - done);
		if (n)
			continue;
		n = b->line_bytes - offset;
		if (n > count - done)
			n = count - done;
		err = write_line(b, block, offset,
				 (const uint8_t *)buffer + done, n);
		if (err)
			return err;
		if (mode == KILN_BLOCK_WRITE_BACK ||
		    (block + 1 - unwritten < b->call_lines && done + n < count))
			continue;
		err = write_through(b, unwritten, block + 1);
		if (err)
			return err;
		unwritten = block + 1;
	}
	return size;
}

/* ---- Lines that stay ---------------------------------------------------- */

/* Hold or pin a line that is there: 1; 0: it is not; -EBUSY: too often. */
static int keep(struct kiln_block *b, uint64_t block, int holds,
		size_t *out_line)
{
	size_t index = set_of(b, block), way;
	struct shard *shard = shard_at(b, index);
	uint16_t *n;
	int result = 0;

	ki_mutex_lock(&shard->mutex);
	way = find(b, set_at(b, index), block);
	if (way == b->n_ways)
		goto out;
	*out_line = index * b->n_ways + way;
	n = holds ? &b->lines[*out_line].n_held : &b->lines[*out_line].n_pinned;
	result = -EBUSY;
	if (*n == UINT16_MAX)
		goto out;
	++*n;
	touch(b, set_at(b, index), way);
	result = 1;
out:
	ki_mutex_unlock(&shard->mutex);
	return result;
}

static int bring_and_keep(struct kiln_block *b, uint64_t block, int holds,
			  size_t *out_line)
{
	ssize_t n;
	int result, tries;

	for (tries = 0; tries < 16; tries++) {
		result = keep(b, block, holds, out_line);
		if (result > 0 && !tries)
			count_hits(b, this_thread(), 1);
		if (result)
			return result > 0 ? 0 : result;
		n = ki_block_fetch(b, block * b->line_bytes, NULL, 1);
		if (n < 0)
			return (int)n;
	}
	return -ENOSPC;
}

int kiln_block_get(struct kiln_block *b, uint64_t address,
		   const void **out_data, size_t *out_size)
{
	uint64_t block;
	size_t line = 0, offset;
	int err;

	if (!b || !out_data || !out_size || address >= b->device_bytes)
		return -EINVAL;
	block = block_of(b, address);
	err = bring_and_keep(b, block, 1, &line);
	if (err)
		return err;
	offset = (size_t)(address - block * b->line_bytes);
	*out_data = data_at(b, line) + offset;
	*out_size = line_length(b, block) - offset;
	return 0;
}

void kiln_block_release(struct kiln_block *b, const void *data)
{
	size_t line, index;

	if (!b || !data)
		return;
	line = (size_t)((const uint8_t *)data - b->data) / b->line_bytes;
	assert(line < b->n_lines);
	index = line / b->n_ways;
	ki_mutex_lock(&shard_at(b, index)->mutex);
	assert(b->lines[line].n_held);
	b->lines[line].n_held--;
	ki_mutex_unlock(&shard_at(b, index)->mutex);
}

static int unpin_block(struct kiln_block *b, uint64_t block)
{
	size_t index = set_of(b, block), way;
	struct shard *shard = shard_at(b, index);
	struct line *line;
	int err = -EINVAL;

	ki_mutex_lock(&shard->mutex);
	way = find(b, set_at(b, index), block);
	if (way == b->n_ways)
		goto out;
	line = &b->lines[index * b->n_ways + way];
	if (!line->n_pinned)
		goto out;
	line->n_pinned--;
	err = 0;
out:
	ki_mutex_unlock(&shard->mutex);
	return err;
}

static int unpin_blocks(struct kiln_block *b, uint64_t first, uint64_t end)
{
	int err = 0;

	for (; first < end; first++)
		if (unpin_block(b, first))
			err = -EINVAL;
	return err;
}

int kiln_block_pin(struct kiln_block *b, uint64_t address, size_t count)
{
	ssize_t size = b ? clamp(b, address, count) : -EINVAL;
	uint64_t first, block, end;
	size_t line;
	int err = 0;

	if (size <= 0)
		return (int)size;
	first = block_of(b, address);
	end = block_of(b, address + (uint64_t)size - 1) + 1;
	for (block = first; block < end && !err; block++)
		err = bring_and_keep(b, block, 0, &line);
	if (err)
		(void)unpin_blocks(b, first, block - 1);
	return err;
}

int kiln_block_unpin(struct kiln_block *b, uint64_t address, size_t count)
{
	ssize_t size = b ? clamp(b, address, count) : -EINVAL;

	if (size <= 0)
		return (int)size;
	return unpin_blocks(b, block_of(b, address),
			    block_of(b, address + (uint64_t)size - 1) + 1);
}
