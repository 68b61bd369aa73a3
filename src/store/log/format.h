/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_LOG_FORMAT_H
#define KI_STORE_LOG_FORMAT_H

/*
 * The bytes of the native store (docs/formats/log.md has them as tables).
 *
 *	NAME.idx            header | buckets of eight words | a mark per word
 *	NAME.0000002a.val   record record record ... zeros to the end
 *	NAME.0000002b.val   one large record
 *	NAME.src.00000001.val  kept sources
 *	NAME.spare          the next segment, empty
 *	NAME.tmp.*          something not finished; made and removed under byte 0
 *	NAME.lock           a table of holders; its locks lie far behind it
 *
 * Words of the index are hints.  What decides is the record, which names its
 * own segment, its digest and its sums, and holds the whole key.
 *
 * Numbers are little-endian; the index is shared memory, used in place, so the
 * machine has to agree.
 */

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

#define LOG_VERSION	 1
#define LOG_UNIT	 64u /* records start at multiples of this */
#define LOG_HEADER_BYTES 4096u
#define LOG_HEAD_BYTES	 512u /* of the header: all but who is building */
#define LOG_WORDS	 8u   /* of a bucket */

#define LOG_SEGMENT_BYTES_MAX	((uint64_t)1 << 28)
#define LOG_SEGMENT_BYTES_SMALL ((uint64_t)8 << 20)  /* a 32nd below that */
#define LOG_SEGMENT_BYTES_LEAST ((uint64_t)32 << 10) /* by cost: a 256th */
#define LOG_SEGMENT_BYTES_FIRST ((uint64_t)1 << 24)  /* without a bound */
#define LOG_SEGMENT_BYTES_QUOTA ((uint64_t)1 << 18)  /* with a quota alone */
#define LOG_LARGE_BYTES		((uint64_t)1 << 20)
#define LOG_FILES_MAX		512 /* segment files of a bounded store */
#define LOG_SPAN_MAX		((uint32_t)1 << 17) /* of live segment numbers */
#define LOG_SLOTS_UNBOUNDED	65536
#define LOG_SLOTS_QUOTA		512 /* at least, with a quota alone */
#define LOG_BUILDERS		64

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	      "the index is used in place");

/* ---- The index's header ---------------------------------------------- */

#define LOG_INDEX_MAGIC 0x5844494e4c494bull /* "KILNIDX\0" */

/* Fixed when the file is made; a second copy ends the header. */
struct log_fixed {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes;
	uint64_t n_buckets;
	uint64_t user_version;
	uint64_t created_s;
	uint8_t id[16]; /* by chance; kept when the index grows */
	uint64_t flags; /* unknown ones: a newer version */
	uint64_t reserved[7];
	uint64_t sum; /* XXH3-64 of what stands before */
};

/* Values of `retired`; anything else that is not 0 is damage and means 0. */
#define LOG_RETIRED_GROWN 0x4e574f52474e4c4bull
#define LOG_RETIRED_WIPED 0x4445504957444c4bull

/* Bits of `policy`. */
#define LOG_REFUSE_FULL ((uint64_t)1)
#define LOG_BY_COST	((uint64_t)2) /* cheap and large entries go first */

/* Of a mark without an age limit; the other bits are weigh.c's. */
#define LOG_MARK_USED 1u

struct log_limits {
	_Atomic uint64_t bytes_max;	/* 0: no bound */
	_Atomic uint64_t age_max_s;	/* 0: none */
	_Atomic uint64_t segment_bytes; /* of the next one; 0: by number
					   and quota */
	_Atomic uint64_t policy;
	_Atomic uint64_t quota_bytes; /* of keys' fields and values; 0: none */
	_Atomic uint64_t reserved[2];
	_Atomic uint64_t sum;
};

struct log_builder {
	_Atomic uint64_t process;  /* as in struct ki_process; 0: free */
	_Atomic uint64_t start;	   /* clock ticks since boot */
	_Atomic uint64_t begun_ns; /* monotonic; 0: builds nothing now */
	_Atomic uint64_t handle;   /* tells those of a process apart */
};

/* Of `used`, besides the bytes: nobody adds to it now. */
#define LOG_QUOTA_CLOSED ((uint64_t)1 << 63)

struct log_quota {
	_Atomic uint64_t used;	    /* bytes, at least those of all entries */
	_Atomic uint64_t n_cleared; /* rises when they may have become fewer */
	_Atomic uint64_t n_counted; /* n_cleared, when all were added up */
	uint64_t reserved[5];
};

#define LOG_CLAIMS 40
#define LOG_CLAIM_UNNAMED                                                      \
	((uint64_t)1) /* a process that cannot tell its name */

/* A put that has added to `used` and is not done. */
struct log_claim_slot {
	_Atomic uint64_t process; /* as in struct ki_process; 0: free */
	_Atomic uint64_t start;	  /* clock ticks since boot */
	_Atomic uint64_t bytes;	  /* 0: has not added yet */
	uint64_t reserved;
};

struct log_header {
	struct log_fixed fixed; /* 0 */

	_Atomic uint64_t retired; /* 128: read by every call */
	_Atomic uint64_t generation;
	_Atomic uint64_t min_live;    /* number 32, check 32 */
	_Atomic uint64_t next_number; /* the same */
	_Atomic uint64_t n_compacted; /* rises before a segment goes early */
	uint64_t reserved_1[3];

	_Atomic uint64_t tail; /* 192: alone on its line */
	uint64_t reserved_2[7];

	struct log_limits limits; /* 256 */

	_Atomic uint64_t boot_id[2]; /* 320 */
	_Atomic uint64_t aged_s;     /* begin of the last sweep by age */
	_Atomic uint64_t n_swept;    /* slots, over all sweeps */
	_Atomic uint64_t n_to_sweep; /* how far the last one goes */
	uint64_t reserved_3[3];

	_Atomic uint64_t n_entries; /* 384: estimates */
	_Atomic uint64_t bytes_live;
	_Atomic uint64_t n_removed;	/* words; counted before they go */
	_Atomic uint64_t removes;	/* 1: by the last session to close */
	_Atomic uint64_t bytes_weighed; /* see weigh.c */
	uint64_t reserved_4[3];

	_Atomic uint64_t n_rolls; /* 448: for people */
	_Atomic uint64_t n_evicted;
	_Atomic uint64_t n_crowded_out; /* buckets that were full */
	_Atomic uint64_t n_copied;
	_Atomic uint64_t bytes_copied;
	_Atomic uint64_t n_grown;
	uint64_t reserved_5[2];

	struct log_builder builders[LOG_BUILDERS]; /* 512 */
	struct log_quota quota;			   /* 2560: alone on its line */
	struct log_claim_slot claims[LOG_CLAIMS];
	uint64_t reserved_6[8];

	struct log_fixed fixed_again; /* 3968 */
};

static_assert(sizeof(struct log_fixed) == 128, "format");
static_assert(offsetof(struct log_header, retired) == 128, "format");
static_assert(offsetof(struct log_header, tail) == 192, "format");
static_assert(offsetof(struct log_header, limits) == 256, "format");
static_assert(offsetof(struct log_header, boot_id) == 320, "format");
static_assert(offsetof(struct log_header, aged_s) == 336, "format");
static_assert(offsetof(struct log_header, n_entries) == 384, "format");
static_assert(offsetof(struct log_header, builders) == LOG_HEAD_BYTES,
	      "format");
static_assert(offsetof(struct log_header, quota) == 2560, "format");
static_assert(offsetof(struct log_header, claims) == 2624, "format");
static_assert(offsetof(struct log_header, fixed_again) == 3968, "format");
static_assert(sizeof(struct log_header) == LOG_HEADER_BYTES, "format");

/* ---- Words with check bits ------------------------------------------- */

/* min_live and next_number. */
static inline uint64_t log_number_word(uint32_t number)
{
	uint64_t check = ((uint64_t)number + 1) * 0x9e3779b97f4a7c15ull >> 32;

	return check << 32 | number;
}

static inline int log_number_is_sound(uint64_t word)
{
	return word == log_number_word((uint32_t)word);
}

/* tail: segment 32 | offset in units 22 | check 10. */
#define LOG_OFFSET_BITS 22
#define LOG_UNITS_MAX	(((uint32_t)1 << LOG_OFFSET_BITS) - 1)

static inline uint64_t log_tail_word(uint32_t segment, uint32_t units)
{
	uint64_t place = (uint64_t)segment << LOG_OFFSET_BITS | units;
	uint64_t check = (place + 1) * 0x9e3779b97f4a7c15ull >> 54;

	return place << 10 | check;
}

static inline uint32_t log_tail_segment(uint64_t tail)
{
	return (uint32_t)(tail >> 32);
}

static inline uint32_t log_tail_units(uint64_t tail)
{
	return (uint32_t)(tail >> 10) & LOG_UNITS_MAX;
}

/* 0 is not: it stands in a tail that was closed for good. */
static inline int log_tail_is_sound(uint64_t tail)
{
	return tail ==
	       log_tail_word(log_tail_segment(tail), log_tail_units(tail));
}

/* ---- Words of the index ---------------------------------------------- */

/* tentative 1 | tag 15 | size class 8 | segment mod 2^18 | offset in units 22;
   0: free.  A tentative word is a create-only put's that is not decided yet:
   for those who look something up it is not there. */
#define LOG_TENTATIVE	 ((uint64_t)1 << 63)
#define LOG_TAG_MASK	 0x7fffu
#define LOG_SEGMENT_BITS 18
#define LOG_SEGMENT_MASK (((uint32_t)1 << LOG_SEGMENT_BITS) - 1)

/*
 * A float of three bits behind the leading one, rounded up, in units: 1 to 15
 * as they are, then 16, 18, 20 ... 30, 32, 36 ...  Never 0, so that no used
 * word is 0.
 */
static inline uint8_t log_class_of(uint64_t bytes)
{
	uint64_t units = (bytes + LOG_UNIT - 1) / LOG_UNIT;
	unsigned shift;

	if (units < 16)
		return (uint8_t)(units ? units : 1);
	shift = 60 - (unsigned)__builtin_clzll(units);
	units = (units + ((uint64_t)1 << shift) - 1) >> shift;
	return (uint8_t)((shift << 3) + units);
}

/* Not less than the bytes of any record of the class. */
static inline uint64_t log_class_bytes(uint8_t size_class)
{
	if (size_class < 16)
		return size_class * (uint64_t)LOG_UNIT;
	return (uint64_t)((size_class & 7) + 8) * LOG_UNIT
	       << ((size_class >> 3) - 1);
}

static inline uint64_t log_word(uint16_t tag, uint8_t size_class,
				uint32_t segment, uint32_t units)
{
	return (uint64_t)(tag & LOG_TAG_MASK) << 48 |
	       (uint64_t)size_class << 40 |
	       (uint64_t)(segment & LOG_SEGMENT_MASK) << LOG_OFFSET_BITS |
	       units;
}

static inline uint16_t log_word_tag(uint64_t word)
{
	return (uint16_t)(word >> 48) & LOG_TAG_MASK;
}

static inline int log_word_is_tentative(uint64_t word)
{
	return !!(word & LOG_TENTATIVE);
}

static inline uint64_t log_word_bytes(uint64_t word)
{
	return log_class_bytes((uint8_t)(word >> 40));
}

static inline uint32_t log_word_units(uint64_t word)
{
	return (uint32_t)word & LOG_UNITS_MAX;
}

/* Live segments lie in [min_live, min_live + 2^17), modulo 2^32. */
static inline int log_word_is_live(uint64_t word, uint32_t min_live)
{
	uint32_t low = (uint32_t)(word >> LOG_OFFSET_BITS) & LOG_SEGMENT_MASK;

	return word && ((low - min_live) & LOG_SEGMENT_MASK) < LOG_SPAN_MAX;
}

static inline uint32_t log_word_segment(uint64_t word, uint32_t min_live)
{
	uint32_t low = (uint32_t)(word >> LOG_OFFSET_BITS) & LOG_SEGMENT_MASK;

	return min_live + ((low - min_live) & LOG_SEGMENT_MASK);
}

/* Whether segment a is older than b. */
static inline int log_is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* ---- Records --------------------------------------------------------- */

#define LOG_RECORD_MAGIC    0x31524c4bu /* "KLR1" */
#define LOG_VALUE_BYTES_MAX (((uint64_t)1 << 48) - 1)

/* Flags of a record.  A reader that does not know one of the lower 8 takes
   the record as not there; the upper 8 may be passed over. */
#define LOG_OWN_FILE	0x0001u /* `segment` is 0: the file's name says it */
#define LOG_COMPRESSED	0x0002u /* value: size as u64, then a zstd frame */
#define LOG_TOMBSTONE	0x0004u /* the key was removed here; no value */
#define LOG_VOID	0x0008u /* a put took it back: to nobody an entry */
#define LOG_KNOWN_FLAGS (LOG_OWN_FILE | LOG_TOMBSTONE)
#define LOG_MUST_KNOW	0x00ffu
#define LOG_SIGNED	0x0100u /* metadata has a signature */
#define LOG_REPLACES	0x0200u /* put to replace what was there */
#define LOG_COPY	0x0400u /* carried over by an eviction */

/*
 * Then the key record, the metadata and zeros up to a multiple of 8, the
 * value, zeros up to a multiple of LOG_UNIT.
 *
 * The order says which of two records is later.  It is taken once, from the
 * tail, and goes with the record wherever it is copied or moved to; no two
 * puts or removes have the same.
 */
struct log_record {
	uint32_t magic;
	uint32_t segment;
	uint8_t digest[16];
	uint32_t key_size;
	uint32_t metadata_size;
	uint64_t value_size : 48; /* as stored */
	uint64_t flags : 16;
	uint64_t order;	     /* log_order() of where it was first written */
	uint64_t body_sum;   /* XXH3-64 of key record, metadata, value */
	uint32_t used_s;     /* last use known when written; since 1970 */
	uint32_t header_sum; /* of what stands before: half of its XXH3-64 */
};

static_assert(sizeof(struct log_record) == LOG_UNIT, "format");
static_assert(offsetof(struct log_record, order) == 40, "format");

/* segment 32 | offset in units 22 | 0 */
static inline uint64_t log_order(uint32_t segment, uint32_t units)
{
	return (uint64_t)segment << 32 | (uint64_t)units << 10;
}

static inline int log_is_earlier(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) < 0;
}

static inline uint64_t log_value_offset(const struct log_record *record)
{
	return (sizeof(*record) + (uint64_t)record->key_size +
		record->metadata_size + 7) &
	       ~(uint64_t)7;
}

static inline uint64_t log_record_bytes(const struct log_record *record)
{
	return (log_value_offset(record) + record->value_size + LOG_UNIT - 1) &
	       ~(uint64_t)(LOG_UNIT - 1);
}

/* ---- Kept sources ---------------------------------------------------- */

#define LOG_SOURCE_MAGIC 0x314352534e4c494bull /* "KILNSRC1" */

#define LOG_SOURCE_BYTES_MAX	  ((uint64_t)64 << 20) /* of one, plain */
#define LOG_SOURCE_FILES_MAX	  16
#define LOG_SOURCE_FILE_BYTES_MIN ((uint64_t)64 << 10)
#define LOG_SOURCE_FILE_BYTES_MAX ((uint64_t)4 << 20)

/* Then a zstd frame, and zeros up to a multiple of LOG_UNIT. */
struct log_source {
	uint64_t magic;
	uint32_t file;	      /* number in the file's name */
	uint32_t flags;	      /* 0; with others it is a newer version's */
	uint64_t plain_size;  /* of the source */
	uint64_t stored_size; /* of the frame */
	uint8_t digest[KI_BLAKE2B_BYTES]; /* of the source */
	uint64_t body_sum;		  /* XXH3-64 of the frame */
	uint64_t header_sum;		  /* XXH3-64 of what stands before */
};

static_assert(sizeof(struct log_source) == 80, "format");

static inline uint64_t log_source_bytes(const struct log_source *source)
{
	return (sizeof(*source) + source->stored_size + LOG_UNIT - 1) &
	       ~(uint64_t)(LOG_UNIT - 1);
}

/* ---- Locks ----------------------------------------------------------- */

#define LOG_LOCK_STRUCTURE 0u
#define LOG_LOCK_SESSIONS  ((uint64_t)INT64_MAX - 1) /* 2^63 - 2 */

#endif /* KI_STORE_LOG_FORMAT_H */
