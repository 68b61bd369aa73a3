/* SPDX-License-Identifier: MIT */
#ifndef KI_BLOCK_INSIDE_H
#define KI_BLOCK_INSIDE_H

/*
 * What the files of the block cache share.
 *
 * A set, all that a hit looks at, in one line of the processor's cache as long
 * as there are four ways:
 *
 *	clock 4 | ghost 4 | tags 8 x ways | stamps 4 x ways | marks 1 x ways
 *
 * A tag is the number of a block plus one; 0: free.  64 neighbouring sets are
 * a shard: a mutex for who changes anything in them, and a sequence that is odd
 * while it is changed.  A hit reads the sequence, copies, and reads it again.
 *
 * A claim on a range of blocks is the right to bring them in, to write them
 * back, to drop them.  Whoever waits for a claim holds none, and whoever holds
 * one waits for a call (a buffer, and the right to call the device), and who
 * has that waits for nothing: a claim on what is to be evicted is only tried.
 *
 *	claim -> call -> the device        shard: never across any of these
 */

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <kiln/block.h>

#include "sys/sys.h"

#if defined(__SANITIZE_THREAD__)
#define KI_BLOCK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KI_BLOCK_TSAN 1
#endif
#endif

#define SETS_PER_SHARD_SHIFT 6
#define N_STRIPES	     8

#define load(p)		   __atomic_load_n((p), __ATOMIC_RELAXED)
#define store(p, value)	   __atomic_store_n((p), (value), __ATOMIC_RELAXED)
#define add(p, value)	   __atomic_fetch_add((p), (value), __ATOMIC_RELAXED)
#define subtract(p, value) __atomic_fetch_sub((p), (value), __ATOMIC_RELAXED)

struct shard {
	struct ki_mutex mutex;
	uint32_t sequence; /* Atomic. */
} __attribute__((aligned(64)));

/* What hits do not need of a line.  Under the shard's mutex. */
struct line {
	uint16_t dirty_begin; /* in units; clean: 0, 0 */
	uint16_t dirty_end;
	uint16_t n_held;
	uint16_t n_pinned;
	uint16_t writing; /* under a claim; what is dirty then is so anew */
};

struct set {
	uint32_t clock;
	uint32_t ghost; /* where the next one goes */
	uint64_t tags[];
};

struct claim {
	struct claim *next;
	uint64_t first;
	uint64_t end;
};

struct call {
	uint8_t *buffer; /* of call_lines lines, and as many to be evicted */
	pthread_t thread;
	int is_used;
};

/* Hits counted by one thread, whose name is not beside them: it is read by
   those who look for a place. */
struct stripe {
	/* Atomic. */
	uint64_t hits; /* by halves: near enough */
	uint64_t seen; /* when the cache looked last */
} __attribute__((aligned(64)));

struct stripes {
	struct stripe stripes[N_STRIPES];
	struct stripe common;	     /* of threads that found no place */
	uintptr_t owners[N_STRIPES]; /* Atomic. */
} __attribute__((aligned(64)));

struct kiln_block {
	/* Fixed after open, but for a resize. */
	size_t n_sets;
	size_t set_mask; /* or 0: n_sets is no power of two */
	size_t n_ways;
	size_t set_bytes;
	size_t line_bytes;
	int line_shift; /* or -1 */
	int hash_shift; /* or -1: no hash */
	uint64_t device_bytes;
	uint64_t n_blocks;
	uint8_t *sets;
	uint8_t *data;
	struct shard *shards;
	struct line *lines;
	uint32_t *ghosts;
	size_t unit; /* of what is dirty */
	size_t n_lines;
	size_t n_shards;
	size_t call_lines;
	uint64_t ahead_lines;
	size_t n_calls;
	enum kiln_block_policy policy;
	struct kiln_block_allocator allocator;
	struct kiln_block_device device;
	struct stripes *hits;
	void *memory; /* sets, shards, lines, ghosts */
	void *data_memory;
	size_t metadata_bytes;

	/* Atomic, and seldom written. */
	uintptr_t owner; /* the one thread that has hits, as far as known */
	int is_shared;	 /* there were two */

	/* Hits read what is above, misses write what is below: not to the same
	   line of the processor's cache, wherever it begins. */
	char apart[64];

	/* Atomic. */
	uint64_t next_block;
	uint64_t n_valid;
	uint64_t n_dirty;
	size_t granularity;
	ssize_t device_error;
	struct kiln_block_stats stats;

	struct ki_mutex mutex;
	struct ki_cond changed;
	/* Under mutex. */
	struct claim *claims;
	struct call *calls;
	size_t n_waiting; /* for `changed` */
};

/* ---- Where things are --------------------------------------------------- */

static inline uint64_t block_of(const struct kiln_block *b, uint64_t address)
{
	return b->line_shift >= 0 ? address >> b->line_shift
				  : address / b->line_bytes;
}

static inline size_t line_length(const struct kiln_block *b, uint64_t block)
{
	uint64_t left = b->device_bytes - block * b->line_bytes;

	return left < b->line_bytes ? (size_t)left : b->line_bytes;
}

static inline uint64_t mix(uint64_t x)
{
	x *= UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 32;
}

static inline size_t set_of(const struct kiln_block *b, uint64_t block)
{
	if (b->hash_shift >= 0)
		block += mix(block >> b->hash_shift);
	return b->set_mask ? block & b->set_mask : block % b->n_sets;
}

static inline struct set *set_at(const struct kiln_block *b, size_t set)
{
	return (struct set *)(void *)(b->sets + set * b->set_bytes);
}

static inline uint32_t *stamps_of(const struct kiln_block *b, struct set *set)
{
	return (uint32_t *)(void *)(set->tags + b->n_ways);
}

static inline uint8_t *marks_of(const struct kiln_block *b, struct set *set)
{
	return (uint8_t *)(stamps_of(b, set) + b->n_ways);
}

static inline struct shard *shard_at(const struct kiln_block *b, size_t set)
{
	return &b->shards[set >> SETS_PER_SHARD_SHIFT];
}

static inline uint8_t *data_at(const struct kiln_block *b, size_t line)
{
	return b->data + line * b->line_bytes;
}

/*
 * Which of four is it?  4 x the way is the number of the lowest bit.  Vectors,
 * because a jump that depends on the way could not be foretold.
 */
static inline unsigned match_four(const uint64_t *tags, uint64_t tag)
{
#if defined(__SSE2__) && !defined(KI_BLOCK_TSAN)
	__m128i wanted = _mm_set1_epi64x((long long)tag);
	__m128i a = _mm_loadu_si128((const __m128i *)(const void *)tags);
	__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(tags + 2));
	unsigned halves;

	a = _mm_cmpeq_epi32(a, wanted);
	c = _mm_cmpeq_epi32(c, wanted);
	halves = (unsigned)_mm_movemask_epi8(_mm_packs_epi32(a, c));
	return halves & halves >> 2 & 0x1111;
#else
	return (unsigned)(load(&tags[0]) == tag) |
	       (unsigned)(load(&tags[1]) == tag) << 4 |
	       (unsigned)(load(&tags[2]) == tag) << 8 |
	       (unsigned)(load(&tags[3]) == tag) << 12;
#endif
}

/* The way, or n_ways. */
static inline size_t find_of(const struct set *set, size_t n_ways,
			     uint64_t block)
{
	const uint64_t *tags = set->tags;
	unsigned match;
	size_t way;

	for (way = 0; way + 4 <= n_ways; way += 4) {
		match = match_four(tags + way, block + 1);
		if (match)
			return way + ((unsigned)__builtin_ctz(match) >> 2);
	}
	for (; way < n_ways; way++)
		if (load(&tags[way]) == block + 1)
			break;
	return way;
}

static inline size_t find(const struct kiln_block *b, const struct set *set,
			  uint64_t block)
{
	return find_of(set, b->n_ways, block);
}

/* ---- Changing what others may be copying -------------------------------- */

/*
 * A copy by a hit may run beside a change; the sequence says so afterwards, and
 * what was copied is thrown away.  The thread sanitizer is shown relaxed atomic
 * bytes instead, which is what is meant.
 */
static inline void copy_out(void *to, const void *from, size_t size)
{
#ifdef KI_BLOCK_TSAN
	for (size_t i = 0; i < size; i++)
		((uint8_t *)to)[i] = load((const uint8_t *)from + i);
#else
	if (size == 8)
		memcpy(to, from, 8);
	else if (size == 64)
		memcpy(to, from, 64);
	else
		memcpy(to, from, size);
#endif
}

static inline void copy_in(void *to, const void *from, size_t size)
{
#ifdef KI_BLOCK_TSAN
	for (size_t i = 0; i < size; i++)
		store((uint8_t *)to + i, ((const uint8_t *)from)[i]);
#else
	memcpy(to, from, size);
#endif
}

static inline void change_begin(struct shard *shard)
{
#ifdef KI_BLOCK_TSAN
	__atomic_fetch_add(&shard->sequence, 1, __ATOMIC_ACQ_REL);
#else
	store(&shard->sequence, shard->sequence + 1);
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

static inline void change_end(struct shard *shard)
{
	__atomic_store_n(&shard->sequence, load(&shard->sequence) + 1,
			 __ATOMIC_RELEASE);
}

static inline uint32_t look_begin(const struct shard *shard)
{
	return __atomic_load_n(&shard->sequence, __ATOMIC_ACQUIRE);
}

static inline int look_ends_well(const struct shard *shard, uint32_t sequence)
{
#ifndef KI_BLOCK_TSAN
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
	return !(sequence & 1) && load(&shard->sequence) == sequence;
}

/* ---- policy.c ----------------------------------------------------------- */

#define MARK_MAIN 0x80u /* else it is on trial */
#define MARK_HITS 0x03u

/* Not 0, and of no other living thread. */
static inline uintptr_t this_thread(void)
{
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 11
	return (uintptr_t)__builtin_thread_pointer();
#else
	return (uintptr_t)pthread_self();
#endif
}

enum touching { TOUCH_EXACTLY, TOUCH_ROUGHLY, TOUCH_MARK };

/*
 * How to note that a line was used.  One thread alone keeps the exact order.
 * Of several, whoever finds the line used since the last miss of its set leaves
 * it at that: they would take the set from each other at each hit.
 */
static inline enum touching how_to_touch(struct kiln_block *b, uintptr_t self)
{
	if (b->policy == KILN_BLOCK_SCAN_RESISTANT)
		return TOUCH_MARK;
	if (load(&b->is_shared))
		return TOUCH_ROUGHLY;
	if (load(&b->owner) == self)
		return TOUCH_EXACTLY;
	if (!load(&b->owner)) {
		store(&b->owner, self);
		return TOUCH_EXACTLY;
	}
	store(&b->is_shared, 1);
	return TOUCH_ROUGHLY;
}

static inline void touch_as(enum touching how, struct set *set, size_t n_ways,
			    size_t way)
{
	uint32_t *stamps = (uint32_t *)(void *)(set->tags + n_ways), clock;
	uint8_t *mark = (uint8_t *)(stamps + n_ways) + way;

	if (how == TOUCH_MARK) {
		if ((load(mark) & MARK_HITS) != MARK_HITS)
			store(mark, (uint8_t)(load(mark) + 1));
		return;
	}
	clock = load(&set->clock);
	if (how == TOUCH_EXACTLY) {
		/* No jump: nobody could foretell it. */
		clock += load(&stamps[way]) != clock;
		store(&set->clock, clock);
		store(&stamps[way], clock);
	} else if (load(&stamps[way]) != clock) {
		store(&stamps[way], clock);
	}
}

static inline void touch(struct kiln_block *b, struct set *set, size_t way)
{
	touch_as(how_to_touch(b, this_thread()), set, b->n_ways, way);
}

/* Every so often: who has had no hits since gives up the place to count them,
   and if it was one thread alone, it keeps the exact order again. */
void ki_block_look_around(struct kiln_block *b);

/* All with the shard locked. */
/* A free way, or one that may go; n_ways: none. */
size_t ki_block_choose(struct kiln_block *b, size_t set, int only_clean);
/* Of those that are there; n_ways: none is. */
size_t ki_block_oldest(struct kiln_block *b, size_t set);
/* The line in a way is another now (block), or none (it left for good). */
void ki_block_note_new(struct kiln_block *b, size_t set, size_t way,
		       uint64_t block);
void ki_block_note_evicted(struct kiln_block *b, size_t set, size_t way);
/* It should go and cannot: it is the last that will be asked to again. */
void ki_block_note_stuck(struct kiln_block *b, size_t set, size_t way);

/* ---- claims.c ----------------------------------------------------------- */

/* 0; -EDEADLK: would wait for itself; -EAGAIN: someone has it (only if not
   `waits`). */
int ki_block_claim(struct kiln_block *b, struct claim *claim, uint64_t first,
		   uint64_t end, int waits);
void ki_block_unclaim(struct kiln_block *b, struct claim *claim);
/* Gives up what is claimed from `end` on. */
void ki_block_claim_less(struct kiln_block *b, struct claim *claim,
			 uint64_t end);
/* Whether anyone is under way in there, the caller included. */
int ki_block_is_busy(struct kiln_block *b);
/* Waits for a call; -EDEADLK. */
int ki_block_call(struct kiln_block *b, struct call **out_call);
void ki_block_uncall(struct kiln_block *b, struct call *call);

/* 0 or -EIO, by as many calls of the device as it takes. */
int ki_block_device_read(struct kiln_block *b, uint64_t offset, void *buffer,
			 size_t count);
int ki_block_device_write(struct kiln_block *b, uint64_t offset,
			  const void *buffer, size_t count);

/* ---- lines.c ------------------------------------------------------------ */

int ki_block_is_dirty(const struct line *line);
/* With the shard locked, by the claim's holder unless the line is clean. */
void ki_block_drop(struct kiln_block *b, size_t set, size_t way);
void ki_block_mark_dirty(struct kiln_block *b, struct line *line, size_t begin,
			 size_t end);
/*
 * Write the dirty lines that follow each other from `first` on, which the
 * caller has claimed up to `end`, through `buffer`.  *out_n: how many they are.
 */
int ki_block_write_run(struct kiln_block *b, uint8_t *buffer, uint64_t first,
		       uint64_t end, uint64_t *out_n);
/*
 * Put a claimed block that is not there into the cache, dirty from `begin` to
 * `end`.  *call may be NULL: one is got when needed.  0; 1: its set has no
 * room; -EIO: it has none because what is dirty cannot be written; -EDEADLK.
 */
int ki_block_insert(struct kiln_block *b, struct call **call, uint64_t block,
		    const void *data, size_t begin, size_t end);

/* ---- bytes.c ------------------------------------------------------------ */

/* Bring in blocks from `block` on, as far as `end`, at least one, and copy what
   was asked for.  How many bytes were copied, or if `buffer` is NULL, would
   have been. */
ssize_t ki_block_fetch(struct kiln_block *b, uint64_t address, void *buffer,
		       size_t count);

/* ---- range.c ------------------------------------------------------------ */

/* Write dirty lines from `block` on, as many as one call can, and drop lines
   if asked to.  *out_next: where to go on. */
int ki_block_flush_at(struct kiln_block *b, uint64_t block, uint64_t end,
		      int drops, uint64_t *out_next);

#endif /* KI_BLOCK_INSIDE_H */
