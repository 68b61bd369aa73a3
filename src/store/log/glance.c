/* SPDX-License-Identifier: MIT */

/*
 * A look-up that waits for nothing: what find.c does, for a record that this
 * process has checked before, and for a key that is not there.
 *
 *	digest -> two buckets -> words with its tag -> record -> whole key?
 *
 * No lock, no system call, no call of anything that loops; written to is an
 * entry's mark if it has none.  The caller's pin keeps what is looked at, in
 * place of the guard.  All else is find.c's: what is not open yet, not checked
 * yet, damaged, of a limited age, of another key with the same digest, or due
 * for a look at the path.
 *
 * The checksums were right when the bit in `checked` was set, and what was
 * written there is never written again; the key record is compared each time.
 */

#include "store/log/log.h"

#include <stdlib.h>
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#define READS_PAIRS
#include <emmintrin.h>
#endif

/*
 * Of a record: its key record and the beginning of its value are on their way
 * while its header is, and the beginning of the page that follows, where the
 * processor's own fetching ahead stops.  More of it makes copies faster and
 * views slower.
 */
#define AHEAD_BYTES 1024
#define PAGE_BYTES  4096

static inline void fetch_ahead(const uint8_t *bytes, uint64_t size)
{
	const uint8_t *page =
		bytes + (PAGE_BYTES - (uintptr_t)bytes % PAGE_BYTES);
	unsigned i;

	for (i = LOG_UNIT; i <= AHEAD_BYTES; i += LOG_UNIT)
		__builtin_prefetch(bytes + i);
	if (page < bytes + size) {
		__builtin_prefetch(page);
		__builtin_prefetch(page + LOG_UNIT);
	}
}

/* A bit for each word of a bucket that has the tag, which is its upper quarter;
   no branch, as there is nothing to foretell.  Words are read two at a time,
   each of them at once; whoever looks for races cannot know that. */
static inline unsigned words_with(const struct log_index *index, uint64_t slot,
				  uint16_t tag)
{
	const void *words = (const void *)&index->words[slot];
	unsigned found = 0, i;

#ifdef READS_PAIRS
	const __m128i *pairs = words;
	__m128i tags = _mm_set1_epi16((short)tag);

	for (i = 0; i < LOG_WORDS / 2; i++) {
		__m128i same = _mm_cmpeq_epi16(_mm_load_si128(&pairs[i]), tags);

		found |= (unsigned)_mm_movemask_pd(_mm_castsi128_pd(same))
			 << 2 * i;
	}
#else
	const _Atomic uint64_t *each = words;

	for (i = 0; i < LOG_WORDS; i++)
		found |= (unsigned)(atomic_load_explicit(
					    &each[i], memory_order_relaxed) >>
					    48 ==
				    tag)
			 << i;
#endif
	return found;
}

/* The bytes at a word's place, if they are mapped and were checked; or NULL. */
static inline const uint8_t *bytes_at(const struct ki_log *log,
				      const struct log_index *index,
				      uint64_t word, uint32_t min_live,
				      struct log_segment **out_segment)
{
	uint32_t number = log_word_segment(word, min_live);
	uint64_t units = log_word_units(word);
	struct log_segment *segment = atomic_load_explicit(
		&index->segments->slots[ki_log_segment_place(log, number)],
		memory_order_acquire);
	const uint8_t *bytes;

	if (!segment || segment->number != number || !segment->data ||
	    (units + 1) * LOG_UNIT > segment->size)
		return NULL;
	bytes = segment->data + units * LOG_UNIT;
	fetch_ahead(bytes, log_word_bytes(word));
	*out_segment = segment;
	return ki_log_was_checked(segment, (uint32_t)units) ? bytes : NULL;
}

/* A page of a file may come back from the medium other than it was: what says
   where the value ends is looked at each time. */
static inline int can_hand_out(const struct log_record *record,
			       const struct log_segment *segment,
			       uint32_t units)
{
	return ki_log_record_is_sound(record, segment->number, units) &&
	       !(record->flags & LOG_TOMBSTONE) &&
	       log_record_bytes(record) <=
		       segment->size - (uint64_t)units * LOG_UNIT;
}

/* By the numbers that the key keeps where a look-up looks first. */
static inline int is_digest_of(const struct log_record *record,
			       const struct kiln_key *key)
{
	uint64_t halves[2];

	memcpy(halves, record->digest, sizeof(halves));
	return __builtin_bswap64(halves[0]) == key->digest_low &&
	       __builtin_bswap64(halves[1]) == key->digest_high;
}

/* KILN_MISS: another key's. */
static inline enum kiln_status glance_at(struct ki_log *log,
					 struct log_index *index,
					 const struct kiln_key *key,
					 uint64_t slot, uint16_t tag,
					 struct kiln_glance *out_found)
{
	uint64_t word =
		atomic_load_explicit(&index->words[slot], memory_order_acquire);
	uint32_t min_live = ki_log_min_live(index);
	struct log_segment *segment;
	struct log_record record;
	const uint8_t *bytes;

	/* It may be another by now: a tentative one has its bit in the tag. */
	if (word >> 48 != tag || !log_word_is_live(word, min_live))
		return KILN_E_TIMEOUT;
	bytes = bytes_at(log, index, word, min_live, &segment);
	if (!bytes)
		return KILN_E_TIMEOUT;
	record = *(const struct log_record *)(const void *)bytes;
	if (!can_hand_out(&record, segment, log_word_units(word)))
		return KILN_E_TIMEOUT;
	if (!is_digest_of(&record, key))
		return KILN_MISS;
	if (record.key_size != key->record.size ||
	    memcmp(bytes + sizeof(record), key->record.data, key->record.size))
		return KILN_E_TIMEOUT;
	if (!(index->marks[slot] & LOG_MARK_USED))
		ki_log_mark(log, index, slot, 0);
	*out_found = (struct kiln_glance){
		.value = bytes + log_value_offset(&record),
		.value_size = (size_t)record.value_size,
		.metadata = bytes + sizeof(record) + record.key_size,
		.metadata_size = record.metadata_size,
		.holder = segment->holder,
	};
	return KILN_OK;
}

static inline int can_glance(const struct ki_log *log,
			     const struct log_index *index)
{
	return index && log->glances && ki_log_is_mapped(index) &&
	       !ki_log_is_retired(index) && !index->header->limits.age_max_s &&
	       log_number_is_sound(index->header->min_live) &&
	       log->min_live_seen == index->header->min_live &&
	       !ki_log_is_due(log);
}

enum kiln_status ki_log_glance(struct kiln_tier *tier,
			       const struct kiln_key *key,
			       struct kiln_glance *out_found)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct log_index *index = log->index;
	uint16_t tag = ki_log_tag_of(key->digest_low);
	uint64_t slots[2];
	unsigned found;

	if (!can_glance(log, index))
		return KILN_E_TIMEOUT;
	/* Both buckets at once: which of them has it, nothing foretells. */
	ki_log_slots_of(index, key->digest_low, key->digest_high, slots);
	found = words_with(index, slots[0], tag) |
		words_with(index, slots[1], tag) << LOG_WORDS;
	for (; found; found &= found - 1) {
		unsigned i = (unsigned)__builtin_ctz(found);
		enum kiln_status status = glance_at(
			log, index, key, slots[i / LOG_WORDS] + i % LOG_WORDS,
			tag, out_found);

		if (status != KILN_MISS)
			return status;
	}
	return KILN_MISS;
}
