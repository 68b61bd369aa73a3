/* SPDX-License-Identifier: MIT */

/*
 * A line's life:
 *
 *	free -> clean <-> dirty -> writing (clean) -> clean
 *	                  dirty <- writing (dirty again, or it failed)
 *
 * Only who claimed a block brings it in, writes it back, or drops it while it
 * is dirty; a clean line may be evicted by anyone.  Whoever finds it may write
 * to it at any time: what is on its way to the device was copied before.
 */

#include "block/inside.h"

int ki_block_is_dirty(const struct line *line)
{
	return line->dirty_end || line->writing;
}

void ki_block_mark_dirty(struct kiln_block *b, struct line *line, size_t begin,
			 size_t end)
{
	size_t first = begin / b->unit, last = (end + b->unit - 1) / b->unit;

	if (!ki_block_is_dirty(line))
		add(&b->n_dirty, 1);
	if (!line->dirty_end || first < line->dirty_begin)
		line->dirty_begin = (uint16_t)first;
	if (last > line->dirty_end)
		line->dirty_end = (uint16_t)last;
}

void ki_block_drop(struct kiln_block *b, size_t index, size_t way)
{
	struct set *set = set_at(b, index);
	struct line *line = &b->lines[index * b->n_ways + way];
	struct shard *shard = shard_at(b, index);

	if (ki_block_is_dirty(line))
		subtract(&b->n_dirty, 1);
	subtract(&b->n_valid, 1);
	change_begin(shard);
	store(&set->tags[way], 0);
	change_end(shard);
	*line = (struct line){ 0 };
}

/* What of a dirty line goes to the device, from its first byte on. */
static void dirty_range(struct kiln_block *b, const struct line *line,
			uint64_t block, size_t *out_begin, size_t *out_end)
{
	size_t length = line_length(b, block), gran = load(&b->granularity);
	size_t begin = line->dirty_begin * b->unit;
	size_t end = line->dirty_end * b->unit;

	if (!gran) {
		begin = 0;
		end = length;
	} else {
		begin -= begin % gran;
		end += (gran - end % gran) % gran;
	}
	*out_begin = begin;
	*out_end = end < length ? end : length;
}

/* Take one line into a run of `size` bytes that began at `start`.  Whether the
   run may go on behind it. */
static int gather(struct kiln_block *b, uint8_t *buffer, uint64_t block,
		  uint64_t *start, size_t *size, uint64_t *n)
{
	size_t index = set_of(b, block), way, begin, end;
	struct shard *shard = shard_at(b, index);
	uint64_t place = block * b->line_bytes;
	struct line *line;
	int goes_on = 0;

	ki_mutex_lock(&shard->mutex);
	way = find(b, set_at(b, index), block);
	if (way == b->n_ways)
		goto out;
	line = &b->lines[index * b->n_ways + way];
	if (!line->dirty_end)
		goto out;
	dirty_range(b, line, block, &begin, &end);
	if (*n && begin)
		goto out;
	if (!*n)
		*start = place + begin;
	memcpy(buffer + *size, data_at(b, index * b->n_ways + way) + begin,
	       end - begin);
	*size += end - begin;
	++*n;
	line->dirty_begin = line->dirty_end = 0;
	line->writing = 1;
	goes_on = end == b->line_bytes;
out:
	ki_mutex_unlock(&shard->mutex);
	return goes_on;
}

static void settle(struct kiln_block *b, uint64_t block, uint64_t start,
		   uint64_t end, int err)
{
	size_t index = set_of(b, block);
	struct shard *shard = shard_at(b, index);
	uint64_t place = block * b->line_bytes;
	struct line *line;
	size_t from, to;

	ki_mutex_lock(&shard->mutex);
	line = &b->lines[index * b->n_ways + find(b, set_at(b, index), block)];
	if (err) {
		from = start > place ? (size_t)(start - place) : 0;
		to = end - place < b->line_bytes ? (size_t)(end - place)
						 : b->line_bytes;
		ki_block_mark_dirty(b, line, from, to);
	}
	line->writing = 0;
	if (!line->dirty_end)
		subtract(&b->n_dirty, 1);
	ki_mutex_unlock(&shard->mutex);
}

int ki_block_write_run(struct kiln_block *b, uint8_t *buffer, uint64_t first,
		       uint64_t end, uint64_t *out_n)
{
	uint64_t n = 0, i, start = 0;
	size_t size = 0;
	int err;

	while (first + n < end &&
	       gather(b, buffer, first + n, &start, &size, &n))
		;
	*out_n = n;
	if (!n)
		return 0;
	err = ki_block_device_write(b, start, buffer, size);
	for (i = 0; i < n; i++)
		settle(b, first + i, start, start + size, err);
	return err;
}

/* Under the shard's mutex: the way is free, or its line clean. */
static void replace(struct kiln_block *b, size_t index, size_t way,
		    uint64_t block, const void *data)
{
	struct set *set = set_at(b, index);
	size_t i = index * b->n_ways + way;
	struct shard *shard = shard_at(b, index);

	if (load(&set->tags[way])) {
		ki_block_note_evicted(b, index, way);
		add(&b->stats.evictions, 1);
	} else {
		add(&b->n_valid, 1);
	}
	b->lines[i] = (struct line){ 0 };
	change_begin(shard);
	store(&set->tags[way], block + 1);
	copy_in(data_at(b, i), data, line_length(b, block));
	change_end(shard);
	ki_block_note_new(b, index, way, block);
}

/* Make a dirty line clean, so that it can go, and with the same call those that
   follow it, if nobody is at them. */
static int write_victim(struct kiln_block *b, struct call **call,
			uint64_t victim)
{
	uint64_t end = victim + b->call_lines, n;
	struct claim claim;
	uint8_t *buffer;
	int err = 0;

	if (!*call)
		err = ki_block_call(b, call);
	if (err)
		return err;
	err = ki_block_claim(b, &claim, victim, end, 0);
	if (err) {
		end = victim + 1;
		err = ki_block_claim(b, &claim, victim, end, 0);
	}
	if (err)
		return err;
	buffer = (*call)->buffer + b->call_lines * b->line_bytes;
	err = ki_block_write_run(b, buffer, victim, end, &n);
	if (err && n > 1)
		err = ki_block_write_run(b, buffer, victim, victim + 1, &n);
	ki_block_unclaim(b, &claim);
	return err;
}

static void note_stuck(struct kiln_block *b, size_t index, uint64_t block,
		       size_t *n_stuck)
{
	size_t way = find(b, set_at(b, index), block);

	++*n_stuck;
	if (way != b->n_ways)
		ki_block_note_stuck(b, index, way);
}

/* Clean lines first once a dirty one could not be written, then the others. */
int ki_block_insert(struct kiln_block *b, struct call **call, uint64_t block,
		    const void *data, size_t begin, size_t end)
{
	size_t index = set_of(b, block), way, n_stuck = 0;
	struct shard *shard = shard_at(b, index);
	struct line *line;
	uint64_t victim = 0;
	int err = 0;

	for (;;) {
		ki_mutex_lock(&shard->mutex);
		if (err)
			note_stuck(b, index, victim, &n_stuck);
		way = ki_block_choose(b, index, err);
		if (way == b->n_ways && err != -EDEADLK && n_stuck < b->n_ways)
			way = ki_block_choose(b, index, 0);
		if (way == b->n_ways) {
			ki_mutex_unlock(&shard->mutex);
			return err == -EIO || err == -EDEADLK ? err : 1;
		}
		line = &b->lines[index * b->n_ways + way];
		if (!line->dirty_end) {
			replace(b, index, way, block, data);
			if (end)
				ki_block_mark_dirty(b, line, begin, end);
			ki_mutex_unlock(&shard->mutex);
			return 0;
		}
		victim = load(&set_at(b, index)->tags[way]) - 1;
		ki_mutex_unlock(&shard->mutex);
		err = write_victim(b, call, victim);
	}
}
