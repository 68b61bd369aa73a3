/* SPDX-License-Identifier: MIT */

/*
 * A hit: no lock, no write to shared memory but an entry's first mark, and no
 * system call once the segment is open.  The first look-up of a handle goes the
 * same way by pread (docs/decisions/0007-the-cost-of-opening.md).
 *
 *	digest -> two buckets -> words with its tag -> record -> whole key?
 *
 * Whatever is not right on the way is passed over; a word whose record is
 * damaged is cleared, if it still is the same word and still live, so that the
 * damage costs one look-up.
 */

#include "store/log/log.h"

#include <stdlib.h>

/* Whether the word is still there and still means something. */
static int still_stands(const struct log_index *index, uint64_t slot,
			uint64_t word)
{
	return ki_log_word_read(index, slot) == word &&
	       log_word_is_live(word, ki_log_min_live(index)) &&
	       !ki_log_is_retired(index);
}

static void clear_word(struct log_index *index, uint64_t slot, uint64_t word)
{
	if (index->writable && ki_log_is_mapped(index))
		(void)ki_log_word_swap(index, slot, word, 0);
}

/*
 * One word with the right tag.  KILN_OK: it is the key's; KILN_MISS: it is
 * not, or is no more.
 */
static enum kiln_status try_word(struct ki_log *log, struct log_index *index,
				 const struct kiln_key *key, uint64_t slot,
				 uint64_t word, struct log_found *out_found)
{
	struct log_view *view = &out_found->view;
	enum kiln_status status = ki_log_view_open(log, index, word, view);

	if (status == KILN_E_FORMAT) {
		if (!still_stands(index, slot, word))
			return KILN_MISS;
		clear_word(index, slot, word);
		return KILN_E_FORMAT;
	}
	if (status)
		return status;
	if (memcmp(view->record.digest, key->digest, sizeof(key->digest)))
		status = KILN_MISS;
	else if (!ki_log_view_is_of(view, key))
		status = KILN_E_COLLISION;
	if (status) {
		/* The same digest, but the key's bytes changed on the disk? */
		if (status == KILN_E_COLLISION &&
		    !ki_log_view_check(log, view)) {
			clear_word(index, slot, word);
			status = KILN_E_FORMAT;
		}
		ki_log_view_close(view);
		return status;
	}
	out_found->slot = slot;
	out_found->word = word;
	return KILN_OK;
}

/*
 * One slot and the word that stood there; the bits `ignored` of it do not
 * count.  Eviction may swing its word to another place of the same record and
 * unlink the old one while we look: a word that led nowhere and is not the same
 * any more is not passed over, or a remove would leave the entry behind.
 */
static enum kiln_status try_slot(struct ki_log *log, struct log_index *index,
				 const struct kiln_key *key, uint64_t slot,
				 uint64_t word, uint64_t ignored,
				 struct log_found *out_found)
{
	uint64_t tag = ki_log_tag_of(key->digest_low), before;
	enum kiln_status status = KILN_MISS;
	int tries = 0;

	do {
		if (!word || (word & ~ignored) >> 48 != tag)
			return KILN_MISS;
		before = word;
		status = try_word(log, index, key, slot, word, out_found);
		if (status != KILN_MISS)
			return status;
		word = ki_log_word_read(index, slot);
	} while (word != before && ++tries < LOG_TRIES);
	return status;
}

enum kiln_status ki_log_find_in(struct ki_log *log, struct log_index *index,
				const struct kiln_key *key, uint64_t slot,
				struct log_found *out_found)
{
	return try_slot(log, index, key, slot, ki_log_word_read(index, slot),
			LOG_TENTATIVE, out_found);
}

enum kiln_status ki_log_find(struct ki_log *log, struct log_index *index,
			     const struct kiln_key *key,
			     struct log_found *out_found)
{
	enum kiln_status answer = KILN_MISS;
	uint64_t slots[2], words[LOG_WORDS];
	unsigned bucket, i;

	ki_log_slots_of(index, key->digest_low, key->digest_high, slots);
	if (ki_log_index_bring(index, slots))
		return KILN_E_IO;
	for (bucket = 0; bucket < 2; bucket++) {
		if (ki_log_bucket_read(index, slots[bucket], words))
			return KILN_E_IO;
		for (i = 0; i < LOG_WORDS; i++) {
			enum kiln_status status =
				try_slot(log, index, key, slots[bucket] + i,
					 words[i], 0, out_found);

			if (status == KILN_OK)
				return status;
			if (status != KILN_MISS)
				answer = status;
		}
	}
	return answer;
}

static enum kiln_status get(struct ki_log *log, struct log_index *index,
			    const struct kiln_key *key,
			    struct kiln_blob **out_value,
			    struct kiln_blob **out_metadata)
{
	struct log_limit_values limits = { 0 };
	struct kiln_blob *metadata = NULL;
	struct log_found found;
	enum kiln_status status;

	if (index->header->limits.age_max_s)
		ki_log_limits_get(log, index, &limits);
	ki_log_sweep_if_due(log, index, limits.age_max_s, LOG_SWEEP_BY_HIT);
	status = ki_log_find(log, index, key, &found);
	if (status)
		return status;
	if (ki_log_is_expired(log, index, found.slot, found.view.record.used_s,
			      limits.age_max_s, NULL)) {
		clear_word(index, found.slot, found.word);
		status = KILN_MISS;
		goto out;
	}
	if (!ki_log_view_check(log, &found.view)) {
		clear_word(index, found.slot, found.word);
		status = KILN_E_FORMAT;
		goto out;
	}
	if (out_metadata) {
		status = kiln_blob_copy(ki_log_view_metadata(&found.view),
					found.view.record.metadata_size,
					&metadata);
		if (status)
			goto out;
	}
	status = ki_log_view_value(log, index, &found.view, out_value);
	if (status)
		goto out;
	ki_log_mark(log, index, found.slot, limits.age_max_s);
	if (out_metadata)
		*out_metadata = metadata;
	metadata = NULL;
out:
	kiln_blob_unref(metadata);
	ki_log_view_close(&found.view);
	return status;
}

static void tell_damage(struct ki_log *log, const struct kiln_key *key)
{
	char hex[2 * KILN_DIGEST_BYTES + 1];

	ki_hex(key->digest, KILN_DIGEST_BYTES, hex);
	ki_log_say(log, KILN_LOG_ERROR, "entry %s is damaged and not used",
		   hex);
}

static enum kiln_status get_now(struct ki_log *log, enum log_purpose purpose,
				const struct kiln_key *key,
				struct log_index **out_index,
				struct kiln_blob **out_value,
				struct kiln_blob **out_metadata)
{
	enum kiln_status status = ki_log_current(log, purpose, out_index);

	if (status)
		return status;
	ki_log_segments_sweep(log, *out_index);
	return get(log, *out_index, key, out_value, out_metadata);
}

enum kiln_status ki_log_get(struct kiln_tier *tier, const struct kiln_key *key,
			    struct kiln_blob **out_value,
			    struct kiln_blob **out_metadata)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct log_index *index = NULL;
	enum kiln_status status =
		get_now(log, LOG_LOOK, key, &index, out_value, out_metadata);
	int is_damaged;

	/* What is damaged is cleared, and what is large seen, by mapping. */
	if (index && !ki_log_is_mapped(index) &&
	    (status == KILN_E_FORMAT || status == LOG_AGAIN))
		status = get_now(log, LOG_READ, key, &index, out_value,
				 out_metadata);
	/* One that cannot be dropped is met again: once is enough. */
	is_damaged =
		status == KILN_E_FORMAT && index &&
		(index->writable || !atomic_exchange(&log->has_told_damage, 1));
	ki_log_trust_unplaced(&log->unplaced);
	ki_log_leave(log, stripe);
	if (is_damaged)
		tell_damage(log, key);
	else if (status)
		ki_log_tell_left(log);
	return status;
}

/* Checking a record reads it, and saves its first hit the work. */
void ki_log_prefetch(struct kiln_tier *tier, const struct kiln_key *const *keys,
		     size_t n_keys)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct log_index *index;
	struct log_found found;
	size_t i;

	if (!ki_log_current(log, LOG_READ, &index))
		for (i = 0; i < n_keys; i++)
			if (!ki_log_find(log, index, keys[i], &found)) {
				(void)ki_log_view_check(log, &found.view);
				ki_log_view_close(&found.view);
			}
	ki_log_leave(log, stripe);
}
