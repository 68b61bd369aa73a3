/* SPDX-License-Identifier: MIT */

/*
 * A block cache's life, and looking at it.
 */

#include "block/inside.h"

#include <stdlib.h>

#define CALLS_MAX 1024

static void *plain_allocate(size_t size, void *context)
{
	return malloc(size);
}

static void plain_release(void *memory, void *context)
{
	free(memory);
}

static void *get_memory(struct kiln_block *b, size_t size)
{
	return b->allocator.allocate(size, b->allocator.context);
}

static void give_back(struct kiln_block *b, void *memory)
{
	if (memory)
		b->allocator.release(memory, b->allocator.context);
}

/* ---- The table ---------------------------------------------------------- */

static size_t set_bytes(size_t n_ways)
{
	size_t bytes = sizeof(struct set) + n_ways * (8 + 4 + 1);

	return bytes > 32 && bytes <= 64 ? 64 : (bytes + 7) & ~(size_t)7;
}

/* Hashed: so many neighbours lie in neighbouring sets. */
static int run_shift(size_t n_sets)
{
	int shift = 0;

	while (shift < SETS_PER_SHARD_SHIFT && (size_t)2 << shift <= n_sets)
		shift++;
	return shift;
}

/* The sizes; -EINVAL: it would be larger than memory can be. */
static int plan(struct kiln_block *b, size_t n_lines)
{
	size_t size;

	if (!n_lines || n_lines % b->n_ways ||
	    __builtin_mul_overflow(n_lines, b->line_bytes, &size) ||
	    size > SIZE_MAX / 2 || n_lines > SIZE_MAX / 128)
		return -EINVAL;
	b->n_lines = n_lines;
	b->n_sets = n_lines / b->n_ways;
	b->set_mask = b->n_sets & (b->n_sets - 1) ? 0 : b->n_sets - 1;
	b->n_shards = (b->n_sets >> SETS_PER_SHARD_SHIFT) + 1;
	if (b->hash_shift >= 0)
		b->hash_shift = run_shift(b->n_sets);
	return 0;
}

/* To the processor's cache line. */
#define ALIGNMENT 64
#define PAGE	  4096

static uint8_t *align(void *memory, size_t alignment)
{
	return (uint8_t *)(((uintptr_t)memory + alignment - 1) &
			   ~(uintptr_t)(alignment - 1));
}

/* A line that fits into a page lies in one, not in two, and a larger one begins
   with a page: a hit of 4096 bytes takes 2 % less time. */
static size_t data_alignment(const struct kiln_block *b)
{
	size_t lowest_bit = b->line_bytes & -b->line_bytes;

	if (lowest_bit < ALIGNMENT)
		return ALIGNMENT;
	return lowest_bit < PAGE ? lowest_bit : PAGE;
}

static int make_table(struct kiln_block *b)
{
	size_t shards = b->n_shards * sizeof(struct shard);
	size_t sets = b->n_sets * b->set_bytes;
	size_t stripes = sizeof(struct stripes);
	size_t ghosts = b->policy == KILN_BLOCK_SCAN_RESISTANT
				? b->n_lines * sizeof(*b->ghosts)
				: 0;
	size_t lines = b->n_lines * sizeof(*b->lines);
	size_t size = ALIGNMENT + shards + stripes + sets + ghosts + lines, i;
	uint8_t *at;

	b->memory = get_memory(b, size);
	b->data_memory =
		get_memory(b, data_alignment(b) + b->n_lines * b->line_bytes);
	if (!b->memory || !b->data_memory) {
		give_back(b, b->memory);
		give_back(b, b->data_memory);
		return -ENOMEM;
	}
	b->data = align(b->data_memory, data_alignment(b));
	memset(b->memory, 0, size);
	at = align(b->memory, ALIGNMENT);
	b->shards = (struct shard *)(void *)at;
	b->hits = (struct stripes *)(void *)(at += shards);
	b->sets = at += stripes;
	b->ghosts = (uint32_t *)(void *)(at += sets);
	b->lines = (struct line *)(void *)(at + ghosts);
	for (i = 0; i < b->n_shards; i++)
		ki_mutex_init(&b->shards[i].mutex, KI_RANK_BLOCK);
	b->metadata_bytes = size + sizeof(*b);
	return 0;
}

static void free_table(struct kiln_block *b)
{
	size_t i;

	for (i = 0; i < b->n_shards; i++)
		ki_mutex_fini(&b->shards[i].mutex);
	give_back(b, b->memory);
	give_back(b, b->data_memory);
}

static int make_calls(struct kiln_block *b)
{
	size_t size, i, each;

	if (__builtin_mul_overflow(2 * b->call_lines, b->line_bytes, &each) ||
	    __builtin_mul_overflow(b->n_calls, each + sizeof(*b->calls), &size))
		return -EINVAL;
	b->calls = get_memory(b, size);
	if (!b->calls)
		return -ENOMEM;
	memset(b->calls, 0, b->n_calls * sizeof(*b->calls));
	for (i = 0; i < b->n_calls; i++)
		b->calls[i].buffer =
			(uint8_t *)(b->calls + b->n_calls) + i * each;
	return 0;
}

/* ---- Opening and closing ------------------------------------------------ */

static int is_power_of_two(size_t n)
{
	return n && !(n & (n - 1));
}

static int are_sound(const struct kiln_block_options *o)
{
	return o->device_bytes && o->line_bytes && o->n_lines && o->n_ways &&
	       o->n_calls && o->n_calls <= CALLS_MAX &&
	       (unsigned)o->policy <= KILN_BLOCK_SCAN_RESISTANT &&
	       (unsigned)o->index <= KILN_BLOCK_HASHED &&
	       o->line_bytes <= SIZE_MAX / 4 &&
	       (!o->call_bytes_max || o->call_bytes_max >= o->line_bytes) &&
	       o->call_bytes_max <= SIZE_MAX / 4 &&
	       (!o->flush_granularity ||
		(is_power_of_two(o->flush_granularity) &&
		 o->flush_granularity <= o->line_bytes)) &&
	       !o->allocator.allocate == !o->allocator.release;
}

static void configure(struct kiln_block *b, const struct kiln_block_options *o,
		      const struct kiln_block_device *device)
{
	b->device = *device;
	b->device_bytes = o->device_bytes;
	b->line_bytes = o->line_bytes;
	b->line_shift = is_power_of_two(o->line_bytes)
				? __builtin_ctzll(o->line_bytes)
				: -1;
	b->n_blocks = (o->device_bytes - 1) / o->line_bytes + 1;
	b->n_ways = o->n_ways;
	b->set_bytes = set_bytes(o->n_ways);
	b->hash_shift = o->index == KILN_BLOCK_HASHED ? 0 : -1;
	b->policy = o->policy;
	b->n_calls = o->n_calls;
	b->call_lines =
		o->call_bytes_max ? o->call_bytes_max / o->line_bytes : 1;
	if (b->call_lines > b->n_blocks)
		b->call_lines = (size_t)b->n_blocks;
	b->ahead_lines = o->read_ahead_bytes / o->line_bytes;
	b->granularity = o->flush_granularity;
	b->unit = (o->line_bytes - 1) / UINT16_MAX + 1;
	b->next_block = UINT64_MAX;
}

int kiln_block_open(const struct kiln_block_options *options,
		    const struct kiln_block_device *device,
		    struct kiln_block **out_block)
{
	struct kiln_block_options o = kiln_block_options_default();
	struct kiln_block_allocator allocator = { plain_allocate, plain_release,
						  NULL };
	struct kiln_block *b;
	int err;

	if (!options || !device || !device->read || !out_block ||
	    options->size < sizeof(o.size))
		return -EINVAL;
	memcpy(&o, options,
	       options->size < sizeof(o) ? options->size : sizeof(o));
	if (!are_sound(&o))
		return -EINVAL;
	if (o.allocator.allocate)
		allocator = o.allocator;
	b = allocator.allocate(sizeof(*b), allocator.context);
	if (!b)
		return -ENOMEM;
	memset(b, 0, sizeof(*b));
	b->allocator = allocator;
	configure(b, &o, device);
	err = plan(b, o.n_lines);
	if (!err)
		err = make_calls(b);
	if (!err)
		err = make_table(b);
	if (err) {
		give_back(b, b->calls);
		give_back(b, b);
		return err;
	}
	ki_mutex_init(&b->mutex, KI_RANK_BLOCK);
	ki_cond_init(&b->changed);
	*out_block = b;
	return 0;
}

void kiln_block_abandon(struct kiln_block *b)
{
	if (!b)
		return;
	free_table(b);
	/* In a forked child those who waited stay for ever, and this would wait
	   for them. */
	if (!b->n_waiting)
		ki_cond_fini(&b->changed);
	ki_mutex_fini(&b->mutex);
	give_back(b, b->calls);
	give_back(b, b);
}

int kiln_block_close(struct kiln_block *b)
{
	int err;

	if (!b)
		return -EINVAL;
	if (ki_block_is_busy(b))
		return -EBUSY;
	err = kiln_block_clean(b, 0, b->device_bytes);
	if (!err)
		kiln_block_abandon(b);
	return err;
}

static int is_kept(const struct kiln_block *b)
{
	size_t i;

	for (i = 0; i < b->n_lines; i++)
		if (b->lines[i].n_held || b->lines[i].n_pinned)
			return 1;
	return 0;
}

/* The lines of a set of a former table, none of them dirty: those used last come
   last, so that they stay if there is less room. */
static void move_set(struct kiln_block *b, struct kiln_block *old, size_t index)
{
	struct set *set = set_at(old, index);
	struct call *call = NULL;
	size_t way;

	while ((way = ki_block_oldest(old, index)) != old->n_ways) {
		(void)ki_block_insert(b, &call, set->tags[way] - 1,
				      data_at(old, index * old->n_ways + way),
				      0, 0);
		set->tags[way] = 0;
	}
}

int kiln_block_resize(struct kiln_block *b, size_t n_lines)
{
	struct kiln_block old;
	size_t set;
	int err;

	if (!b)
		return -EINVAL;
	if (ki_block_is_busy(b) || is_kept(b))
		return -EBUSY;
	err = kiln_block_flush(b, 0, b->device_bytes);
	if (err)
		return err;
	old = *b;
	err = plan(b, n_lines);
	if (!err)
		err = make_table(b);
	if (err) {
		*b = old;
		return err;
	}
	*b->hits = *old.hits;
	b->n_valid = 0;
	for (set = 0; set < old.n_sets; set++)
		move_set(b, &old, set);
	free_table(&old);
	return 0;
}

/* ---- Looking at it ------------------------------------------------------ */

int kiln_block_stats(struct kiln_block *b, struct kiln_block_stats *out_stats)
{
	struct kiln_block_stats s = { .size = sizeof(s) };
	size_t i;

	if (!b || !out_stats || out_stats->size < sizeof(s.size))
		return -EINVAL;
	s.hits = load(&b->hits->common.hits);
	for (i = 0; i < N_STRIPES; i++)
		s.hits += load(&b->hits->stripes[i].hits);
	s.misses = load(&b->stats.misses);
	s.evictions = load(&b->stats.evictions);
	s.read_calls = load(&b->stats.read_calls);
	s.read_bytes = load(&b->stats.read_bytes);
	s.write_calls = load(&b->stats.write_calls);
	s.write_bytes = load(&b->stats.write_bytes);
	s.errors = load(&b->stats.errors);
	s.n_lines = b->n_lines;
	s.n_valid = load(&b->n_valid);
	s.n_dirty = load(&b->n_dirty);
	s.metadata_bytes = b->metadata_bytes + b->n_calls * sizeof(*b->calls);
	if (out_stats->size < s.size)
		s.size = out_stats->size;
	memcpy(out_stats, &s, s.size);
	return 0;
}

ssize_t kiln_block_device_error(struct kiln_block *b)
{
	return b ? load(&b->device_error) : -EINVAL;
}

int kiln_block_set_flush_granularity(struct kiln_block *b, size_t bytes)
{
	if (!b || (bytes && (!is_power_of_two(bytes) || bytes > b->line_bytes)))
		return -EINVAL;
	store(&b->granularity, bytes);
	return 0;
}
