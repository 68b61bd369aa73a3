/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_TABLE_H
#define KI_MEMORY_TABLE_H

/*
 * The values of a memory tier: read without locks, written under one mutex,
 * bounded, the least useful evicted first.  What a hit does is inline here;
 * table.c explains it.
 */

#include <string.h>

#include "base/list.h"
#include "key/key.h"
#include "memory/arena.h"
#include "memory/memory.h"
#include "memory/slots.h"
#include "sys/sys.h"

#define KI_BUCKET_ENTRIES 6

struct ki_bucket {
	/* A byte for each entry, the lowest for the first: 0 where it is free,
	   whatever is left behind it, else ki_key_tag(). */
	_Alignas(64) _Atomic uint64_t tags;
	struct ki_table_entry *_Atomic entries[KI_BUCKET_ENTRIES];
	struct ki_bucket *_Atomic next; /* when six are not enough */
};

struct ki_table_garbage {
	struct ki_table_garbage *next;
	uint64_t tag;
	struct ki_table_entry *entry; /* or NULL */
	struct ki_table_slots *slots; /* or NULL */
};

struct ki_table_slots {
	uint64_t mask; /* of the bytes of all buckets */
	size_t n_buckets;
	int is_mapped; /* by ki_pages_new() */
	struct ki_table_garbage garbage;
	struct ki_bucket buckets[];
};

/* An entry with none of these, its usual state, takes the quick way. */
#define KI_ENTRY_UNCOUNTED ((uint32_t)KI_SLOT_COUNTS) /* by threads for us */
#define KI_ENTRY_IDLE	   (KI_ENTRY_UNCOUNTED << 1) /* since the hand was here */
#define KI_ENTRY_STALE	   (KI_ENTRY_UNCOUNTED << 2) /* not hit since a sweep */
#define KI_ENTRY_PLACE	   (KI_ENTRY_UNCOUNTED - 1)

/* The second line is what a hit reads, the record follows at once. */
struct ki_table_entry {
	/* Under mutex. */
	_Alignas(64) uint64_t bytes;
	struct ki_list ring;
	struct ki_table_garbage garbage;
	/* Fixed. */
	int is_in_arena;
	_Alignas(64) uint64_t low;
	uint64_t high;
	struct kiln_blob *blob;
	uint32_t record_size;
	/* Atomic: KI_ENTRY_ bits and the place of its count in slots. */
	_Atomic uint32_t state;
	/* Fixed. */
	uint8_t record[];
};

#define KI_TABLE_CROWDED 1u /* too much garbage: nothing new is kept */
#define KI_TABLE_EXACT	 2u /* each hit changes the order */

struct ki_table {
	/* Fixed after init. */
	uint64_t bytes_max;   /* 0: no bound */
	uint64_t entries_max; /* 0: no bound */
	uint64_t garbage_max;
	enum ki_memory_order order;
	/* Atomic. */
	struct ki_table_slots *_Atomic slots;
	_Atomic unsigned by_lock;   /* KI_TABLE_ bits; 0: look-ups go by pins */
	_Atomic uint64_t n_entries; /* changes under mutex */
	struct ki_arena arena;
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_list ring;  /* entries, oldest first */
	struct ki_list *hand; /* where eviction goes on */
	uint64_t bytes;
	uint64_t changes; /* removals and replacements */
	/* Out of reach, to be let go together. */
	struct ki_table_garbage *waiting;
	unsigned n_waiting;
	/* Let go, until no reader sees it; oldest first. */
	struct ki_table_garbage *garbage;
	struct ki_table_garbage **garbage_end;
	uint64_t garbage_bytes; /* of both */
	/* Atomic: what of these, and of what is being freed, will lie idle in
	   the arena, where chunks stay. */
	_Atomic uint64_t garbage_places;
};

/* KILN_E_NO_MEMORY. */
enum kiln_status ki_table_init(struct ki_table *table,
			       enum ki_memory_order order, uint64_t bytes_max,
			       uint64_t entries_max);
/* Nobody uses it any more.  In a forked child it may have been caught in the
   middle of a change: then its memory is left alone. */
void ki_table_fini(struct ki_table *table);

/* ---- Looking --------------------------------------------------------------- */

#if defined(KI_TABLE_WIDE) && defined(__x86_64__)
/* vzeroupper ends the upper halves of all, of which a compiler that was told of
   AVX may have made use. */
#if defined(__AVX__)
#define KI_TABLE_CLOBBERS                                                      \
	"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",        \
		"xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",   \
		"xmm15", "memory"
#else
#define KI_TABLE_CLOBBERS "xmm0", "xmm1", "memory"
#endif

/*
 * memcmp() without a call, which would cost a hit its registers; b is aligned.
 * For processors with AVX2, in a file that is compiled for any: a compiler
 * that is told of wider words lays out a wider stack for them.
 */
static inline int ki_table_is_equal(const uint8_t *a, const uint8_t *b,
				    size_t size)
{
	size_t last = size - 32, i = 32;
	int is_equal;

	if (__builtin_expect(size < 32, 0)) {
		for (i = 0; i < size && a[i] == b[i]; i++)
			;
		return i == size;
	}
	__asm__("vmovdqu (%[a]), %%ymm0\n\t"
		"vpxor (%[b]), %%ymm0, %%ymm0\n\t"
		"cmp %[last], %[i]\n\t"
		"jae 2f\n"
		"1:\n\t"
		"vmovdqu (%[a],%[i]), %%ymm1\n\t"
		"vpxor (%[b],%[i]), %%ymm1, %%ymm1\n\t"
		"vpor %%ymm1, %%ymm0, %%ymm0\n\t"
		"add $32, %[i]\n\t"
		"cmp %[last], %[i]\n\t"
		"jb 1b\n"
		"2:\n\t"
		"vmovdqu (%[a],%[last]), %%ymm1\n\t"
		"vpxor (%[b],%[last]), %%ymm1, %%ymm1\n\t"
		"vpor %%ymm1, %%ymm0, %%ymm0\n\t"
		"vptest %%ymm0, %%ymm0\n\t"
		"vzeroupper"
		: "=@ccz"(is_equal), [i] "+&r"(i)
		: [a] "r"(a), [b] "r"(b), [last] "r"(last)
		: KI_TABLE_CLOBBERS);
	return is_equal;
}
#else
/* 16 bytes at any address, and where such a thing lies by right. */
typedef uint64_t ki_two_words
	__attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t ki_two_words_aligned
	__attribute__((vector_size(16), may_alias));

/* memcmp() without a call, which would cost a hit its registers; b is
   aligned. */
static inline int ki_table_is_equal(const uint8_t *a, const uint8_t *b,
				    size_t size)
{
	ki_two_words difference = { 0, 0 };
	uint8_t rest = 0;
	size_t i;

	if (__builtin_expect(size < 16, 0)) {
		for (i = 0; i < size; i++)
			rest |= a[i] ^ b[i];
		return !rest;
	}
	for (i = 0; i + 64 <= size; i += 64) {
		const ki_two_words *x = (const ki_two_words *)(a + i);
		const ki_two_words_aligned *y =
			(const ki_two_words_aligned *)(b + i);

		difference |= (x[0] ^ y[0]) | (x[1] ^ y[1]);
		difference |= (x[2] ^ y[2]) | (x[3] ^ y[3]);
	}
	for (; i + 16 <= size; i += 16)
		difference |= *(const ki_two_words *)(a + i) ^
			      *(const ki_two_words_aligned *)(b + i);
	difference |= *(const ki_two_words *)(a + size - 16) ^
		      *(const ki_two_words *)(b + size - 16);
	return !(difference[0] | difference[1]);
}
#endif

static inline int ki_table_has_record(const struct ki_table_entry *entry,
				      const struct kiln_key *key)
{
	return entry->record_size == key->record.size &&
	       ki_table_is_equal(key->record.data, entry->record,
				 entry->record_size);
}

static inline struct ki_bucket *ki_table_bucket(struct ki_table_slots *slots,
						uint64_t digest_low)
{
	return (struct ki_bucket *)((char *)slots->buckets +
				    (digest_low & slots->mask));
}

/* A bit at the top of each byte that is zero and of no other: a free place may
   lead nowhere. */
static inline uint64_t ki_table_zero_bytes(uint64_t bytes)
{
	const uint64_t rest = 0x7f7f7f7f7f7f7f7fu;

	return ~(((bytes & rest) + rest) | bytes | rest);
}

/*
 * The entries of a bucket that may have the key, as a set of bits, of which
 * ki_table_first() is the first.  No branch depends on which of the six it is:
 * nothing that a processor could guess.
 */
#if defined(__SSE2__)
typedef char ki_tags __attribute__((vector_size(16)));
typedef uint32_t ki_tags_by_four __attribute__((vector_size(16)));
typedef uint64_t ki_tags_by_eight __attribute__((vector_size(16)));

static inline uint32_t ki_table_candidates(struct ki_bucket *bucket,
					   const struct kiln_key *key)
{
	ki_tags has = (ki_tags)(ki_tags_by_eight){ atomic_load(&bucket->tags) };
	ki_tags wants = (ki_tags)(ki_tags_by_four){ key->tags, key->tags,
						    key->tags, key->tags };

	return (uint32_t)__builtin_ia32_pmovmskb128((ki_tags)(has == wants)) &
	       ((1u << KI_BUCKET_ENTRIES) - 1);
}

static inline size_t ki_table_first(uint32_t candidates)
{
	return (size_t)(unsigned)__builtin_ctz(candidates);
}
#else
static inline uint64_t ki_table_candidates(struct ki_bucket *bucket,
					   const struct kiln_key *key)
{
	uint64_t wants = (uint64_t)key->tags << 32 | key->tags;

	return ki_table_zero_bytes(atomic_load(&bucket->tags) ^ wants) &
	       0x0000808080808080u;
}

static inline size_t ki_table_first(uint64_t candidates)
{
	return (size_t)__builtin_ctzll(candidates) / 8;
}
#endif

/* The place that holds the key, or NULL. */
static inline struct ki_table_entry *_Atomic *ki_table_find(
	struct ki_table_slots *slots, const struct kiln_key *key,
	struct ki_table_entry **out_entry)
{
	struct ki_bucket *bucket = ki_table_bucket(slots, key->digest_low);

	do {
		__auto_type found = ki_table_candidates(bucket, key);

		for (; found; found &= found - 1) {
			struct ki_table_entry *_Atomic *place =
				&bucket->entries[ki_table_first(found)];
			struct ki_table_entry *entry = atomic_load(place);

			/* It may be another one by now. */
			if (entry->low != key->digest_low ||
			    !ki_table_has_record(entry, key))
				continue;
			*out_entry = entry;
			return place;
		}
		bucket = atomic_load(&bucket->next);
	} while (bucket);
	return NULL;
}

/*
 * In a pin, the quick way: 1 with a reference to the value, nearly always if
 * there is one; else 0.
 */
static inline int ki_table_glance(struct ki_table_slots *slots,
				  const struct kiln_key *key,
				  struct ki_slot *slot,
				  struct kiln_blob **out_blob)
{
	struct ki_bucket *bucket = ki_table_bucket(slots, key->digest_low);
	__auto_type found = ki_table_candidates(bucket, key);
	struct ki_table_entry *entry;
	uint32_t state;

	if (__builtin_expect(!found, 0))
		return 0;
	entry = atomic_load(&bucket->entries[ki_table_first(found)]);
	if (__builtin_expect(!ki_table_has_record(entry, key), 0))
		return 0;
	state = atomic_load_explicit(&entry->state, memory_order_relaxed);
	/* Whatever ends the counting waits for our pin. */
	if (__builtin_expect(state >= KI_ENTRY_UNCOUNTED ||
				     !ki_slot_take(slot, state, entry->blob),
			     0))
		return 0;
	*out_blob = entry->blob;
	return 1;
}

/* Whether a look-up takes the lock. */
static inline int ki_table_is_by_lock(struct ki_table *table)
{
	return atomic_load_explicit(&table->by_lock, memory_order_relaxed) != 0;
}

/*
 * `slot` is entered by the caller, or NULL: then a lock is taken.  *out_stale:
 * it is the entry's first hit since a sweep spared it.
 */
enum kiln_status ki_table_get(struct ki_table *table,
			      const struct kiln_key *key, struct ki_slot *slot,
			      struct kiln_blob **out_blob, int *out_stale);

/* ---- Changing -------------------------------------------------------------- */

enum ki_table_how {
	KI_TABLE_REPLACE, /* whatever is there */
	KI_TABLE_FILL,	  /* if nothing is there */
};

/*
 * Keep a value, if that can be.  With `changes` (from ki_table_changes(),
 * before the value was looked for) it is kept only if nothing was removed or
 * replaced since.  KILN_EXISTS: there was one, and how is KI_TABLE_FILL;
 * KILN_MISS: it is not kept.
 */
enum kiln_status ki_table_put(struct ki_table *table,
			      const struct kiln_key *key,
			      struct kiln_blob *blob, enum ki_table_how how,
			      const uint64_t *changes);
uint64_t ki_table_changes(struct ki_table *table);

enum kiln_status ki_table_remove(struct ki_table *table,
				 const struct kiln_key *key);
/* Remove a value if it is this blob, to be let go with others: 1 or 0. */
int ki_table_discard(struct ki_table *table, const struct kiln_key *key,
		     const struct kiln_blob *blob);
void ki_table_let_go(struct ki_table *table);
void ki_table_wipe(struct ki_table *table);
void ki_table_trim(struct ki_table *table, uint64_t bytes);

void ki_table_sweep(struct ki_table *table, ki_memory_keep_fn *keep, void *arg);

void ki_table_size(struct ki_table *table, uint64_t *out_bytes,
		   uint64_t *out_entries);

#endif /* KI_MEMORY_TABLE_H */
