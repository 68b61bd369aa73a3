/* SPDX-License-Identifier: MIT */

/*
 * Reserve, write, publish.
 *
 *	tail  --CAS-->  my bytes of the segment  --pwritev-->  a whole record
 *	      --CAS-->  a word in the index: from here on it can be found
 *
 * Until the last step nobody knows of the record; a writer that dies leaves a
 * hole that goes with its segment.  After the last step the writer looks
 * again: at `retired` (a larger index may have missed the word: publish it
 * there), at min_live (the segment may be gone: take the word back), and at
 * both buckets (a word of the same key elsewhere: exactly one stays).
 *
 * Which one: the older place, or with a replacing put the newer.  Everyone who
 * sees two of them clears the loser, so it does not matter who comes last.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>

struct put {
	const struct kiln_key *key;
	const void *metadata;
	size_t metadata_size;
	const void *value;
	size_t value_size;
	int replaces;
	struct log_record record;

	/* Set once the record is written. */
	int written;
	uint32_t epoch; /* of the index it was written under */
	uint32_t number;
	uint64_t word;
};

/* ---- Writing --------------------------------------------------------- */

enum kiln_status ki_log_reserve(struct log_index *index, uint32_t number,
				uint64_t size, uint64_t bytes,
				uint32_t *out_units)
{
	uint64_t capacity = size / LOG_UNIT, tail = index->header->tail;
	uint64_t n_units = bytes / LOG_UNIT;

	if (capacity > LOG_UNITS_MAX)
		capacity = LOG_UNITS_MAX;
	do {
		uint64_t units = log_tail_units(tail);

		if (!log_tail_is_sound(tail) ||
		    log_tail_segment(tail) != number ||
		    units + n_units > capacity)
			return KILN_MISS;
		*out_units = (uint32_t)units;
	} while (!atomic_compare_exchange_weak(
		&index->header->tail, &tail,
		log_tail_word(number, *out_units + (uint32_t)n_units)));
	return KILN_OK;
}

static enum kiln_status write_record(struct ki_log *log, struct put *put,
				     int fd, uint32_t number, uint32_t units)
{
	static const uint8_t zeros[8];
	struct log_record *record = &put->record;
	struct ki_piece pieces[] = {
		{ record, sizeof(*record) },
		{ put->key->record.data, put->key->record.size },
		{ put->metadata, put->metadata_size },
		{ zeros, (size_t)(log_value_offset(record) - sizeof(*record) -
				  record->key_size - record->metadata_size) },
		{ put->value, put->value_size },
	};

	ki_log_record_seal(record, number);
	return ki_log_status(ki_pwritev_all(log->sys, fd, pieces, 5,
					    (uint64_t)units * LOG_UNIT));
}

/* The tail lies where something is: it was lost and found again too low. */
static int is_used_already(struct ki_log *log, int fd, uint32_t units)
{
	uint64_t start;

	return ki_pread_all(log->sys, fd, &start, sizeof(start),
			    (uint64_t)units * LOG_UNIT) ||
	       start;
}

/* Not for those who do not know it (without /proc): they would roll in turn
   with those who do. */
static int is_other_boot(const struct ki_log *log,
			 const struct log_index *index)
{
	if (!log->boot_id[0] && !log->boot_id[1])
		return 0;
	return index->header->boot_id[0] != log->boot_id[0] ||
	       index->header->boot_id[1] != log->boot_id[1];
}

static void note_written(struct put *put, const struct log_index *index,
			 uint32_t number, uint32_t units)
{
	put->written = 1;
	put->epoch = index->epoch;
	put->number = number;
	put->word = log_word(ki_log_tag_of(put->key->digest_low),
			     log_class_of(log_record_bytes(&put->record)),
			     number, units);
}

/* Once into the tail's segment.  LOG_AGAIN: it needs a roll. */
static enum kiln_status write_to_tail(struct ki_log *log,
				      struct log_index *index, struct put *put,
				      uint64_t tail, int *out_force)
{
	uint32_t number = log_tail_segment(tail), units;
	uint64_t size;
	enum kiln_status status;
	int fd;

	*out_force = 1;
	if (!log_tail_is_sound(tail) || is_other_boot(log, index))
		return LOG_AGAIN;
	status = ki_log_target_open(log, index, number, &fd, &size);
	if (status)
		return status == KILN_MISS ? LOG_AGAIN : status;
	status = ki_log_reserve(index, number, size,
				log_record_bytes(&put->record), &units);
	if (status) {
		*out_force = 0;
		status = LOG_AGAIN;
	} else if (is_used_already(log, fd, units)) {
		status = LOG_AGAIN;
	} else {
		status = write_record(log, put, fd, number, units);
		if (!status)
			note_written(put, index, number, units);
	}
	ki_log_target_close(log, fd);
	return status;
}

static enum kiln_status write_small(struct ki_log *log, struct log_index *index,
				    struct put *put)
{
	enum kiln_status status = LOG_AGAIN;
	int tries, force;

	for (tries = 0; tries < LOG_TRIES && status == LOG_AGAIN; tries++) {
		uint64_t tail = index->header->tail;

		status = write_to_tail(log, index, put, tail, &force);
		if (status != LOG_AGAIN)
			return status;
		status = ki_log_roll(log, index, tail,
				     log_record_bytes(&put->record), force);
		if (!status)
			status = LOG_AGAIN;
		else
			return status;
	}
	return KILN_E_TIMEOUT;
}

static void unlink_own_file(struct ki_log *log, struct log_index *index,
			    uint32_t number)
{
	char path[KI_PATH_MAX];

	if (!ki_log_segment_path(log, number, path))
		(void)log->sys->unlink(log->sys, path);
	if (!log->guest)
		ki_log_segment_forget(log, index, number);
}

static enum kiln_status write_large(struct ki_log *log, struct log_index *index,
				    struct put *put)
{
	uint32_t number;
	enum kiln_status status;
	int fd;

	put->record.flags |= LOG_OWN_FILE;
	status = ki_log_large_make(log, index, log_record_bytes(&put->record),
				   &number, &fd);
	if (status)
		return status;
	status = write_record(log, put, fd, number, 0);
	(void)log->sys->close(log->sys, fd);
	if (!status)
		note_written(put, index, number, 0);
	else
		unlink_own_file(log, index, number);
	return status;
}

/* Whether it gets a file of its own. */
static int is_large(struct ki_log *log, struct log_index *index,
		    const struct put *put)
{
	struct log_limit_values limits;
	uint64_t segment_bytes, bytes = log_record_bytes(&put->record);

	ki_log_limits_get(log, index, &limits);
	segment_bytes = limits.segment_bytes ? limits.segment_bytes
					     : LOG_SEGMENT_BYTES_FIRST;
	if (put->value_size > LOG_LARGE_BYTES &&
	    put->value_size > segment_bytes / 16)
		return 1;
	return bytes > segment_bytes / 2;
}

/* ---- Publishing ------------------------------------------------------ */

/* Where to put a word when no word of the key is there: a free or dead slot,
   else the one that will be missed least. */
static enum kiln_status choose_slot(struct ki_log *log, struct log_index *index,
				    const uint64_t slots[2], int refuse,
				    uint64_t *out_slot, uint64_t *out_word)
{
	uint32_t min_live = ki_log_min_live(index);
	uint64_t free_slot[2], n_free[2] = { 0, 0 };
	int found = 0, found_unmarked = 0;
	unsigned bucket, i;

	for (bucket = 0; bucket < 2; bucket++)
		for (i = 0; i < LOG_WORDS; i++) {
			uint64_t slot = slots[bucket] + i;
			uint64_t word = index->words[slot];
			int unmarked = !index->marks[slot];

			if (!log_word_is_live(word, min_live)) {
				free_slot[bucket] = slot;
				n_free[bucket]++;
			} else if (!found || unmarked > found_unmarked ||
				   (unmarked == found_unmarked &&
				    log_is_before(
					    log_word_segment(word, min_live),
					    log_word_segment(*out_word,
							     min_live)))) {
				found = 1;
				found_unmarked = unmarked;
				*out_slot = slot;
				*out_word = word;
			}
		}
	if (n_free[0] || n_free[1]) {
		*out_slot = free_slot[n_free[1] > n_free[0]];
		*out_word = index->words[*out_slot];
		return log_word_is_live(*out_word, min_live) ? LOG_AGAIN
							     : KILN_OK;
	}
	if (refuse)
		return KILN_E_FULL;
	if (!found_unmarked)
		for (i = 0; i < 2 * LOG_WORDS; i++)
			index->marks[slots[i / LOG_WORDS] + i % LOG_WORDS] = 0;
	atomic_fetch_add(&index->header->n_crowded_out, 1);
	return KILN_OK;
}

/* Whether another word of the same key beats ours. */
static int other_wins(const struct put *put, uint64_t other, uint32_t min_live)
{
	uint32_t theirs = log_word_segment(other, min_live);
	int other_is_older =
		theirs != put->number
			? log_is_before(theirs, put->number)
			: log_word_units(other) < log_word_units(put->word);

	return put->replaces ? !other_is_older : other_is_older;
}

/* After the word is out: clear the losers among words of the same key. */
static enum kiln_status settle(struct ki_log *log, struct log_index *index,
			       const struct put *put, const uint64_t slots[2],
			       uint64_t own_slot)
{
	unsigned i;

	for (i = 0; i < 2 * LOG_WORDS; i++) {
		uint64_t slot = slots[i / LOG_WORDS] + i % LOG_WORDS;
		uint64_t word = index->words[slot];
		struct log_view view;
		int same;

		if (slot == own_slot || !word || word == put->word ||
		    log_word_tag(word) != log_word_tag(put->word) ||
		    ki_log_view_open(log, index, word, &view))
			continue;
		same = ki_log_view_is_of(&view, put->key);
		ki_log_view_close(&view);
		if (!same)
			continue;
		if (!other_wins(put, word, ki_log_min_live(index))) {
			(void)ki_log_word_swap(index, slot, word, 0);
			continue;
		}
		(void)ki_log_word_swap(index, own_slot, put->word, 0);
		return put->replaces ? KILN_OK : KILN_EXISTS;
	}
	return KILN_OK;
}

static int number_is_live(const struct log_index *index, uint32_t number)
{
	return !log_is_before(number, ki_log_min_live(index));
}

/* One attempt.  LOG_AGAIN: the buckets changed meanwhile. */
static enum kiln_status publish_once(struct ki_log *log,
				     struct log_index *index,
				     const struct put *put, int refuse,
				     uint64_t *out_slot)
{
	struct log_found found;
	uint64_t slots[2], slot = 0, word = 0;
	uint32_t own_file = 0;
	int replaces_own_file = 0;
	int is_own = 0; /* a word from 2^18 segments ago meets our record */
	enum kiln_status status = ki_log_find(log, index, put->key, &found);

	if (status == KILN_E_NO_MEMORY || status == KILN_E_IO)
		return status;
	if (!status) {
		slot = found.slot;
		word = found.word;
		own_file = found.view.number;
		replaces_own_file = found.view.record.flags & LOG_OWN_FILE;
		ki_log_view_close(&found.view);
		if (word == put->word) {
			*out_slot = slot;
			return KILN_OK;
		}
		is_own = found.view.number == put->number &&
			 found.view.units == log_word_units(put->word);
		if (!put->replaces && !is_own)
			return KILN_EXISTS;
	} else {
		ki_log_slots_of(index, put->key->digest_low,
				put->key->digest_high, slots);
		status = choose_slot(log, index, slots, refuse, &slot, &word);
		if (status)
			return status;
	}
	if (!ki_log_word_swap(index, slot, word, put->word))
		return LOG_AGAIN;
	index->marks[slot] = 0;
	if (replaces_own_file && !is_own)
		unlink_own_file(log, index, own_file);
	*out_slot = slot;
	return KILN_OK;
}

/*
 * LOG_AGAIN: the index was retired, publish in the next one.  KILN_E_TIMEOUT:
 * the record's segment was evicted before anyone could find it.
 */
static enum kiln_status publish(struct ki_log *log, struct log_index *index,
				const struct put *put, int refuse)
{
	enum kiln_status status = LOG_AGAIN;
	uint64_t slots[2], slot = 0;
	int tries;

	if (!number_is_live(index, put->number))
		return KILN_E_TIMEOUT;
	for (tries = 0; tries < LOG_TRIES && status == LOG_AGAIN; tries++)
		status = publish_once(log, index, put, refuse, &slot);
	if (status)
		return status == LOG_AGAIN ? KILN_E_TIMEOUT : status;
	if (ki_log_is_retired(index))
		return LOG_AGAIN;
	if (!number_is_live(index, put->number)) {
		(void)ki_log_word_swap(index, slot, put->word, 0);
		return KILN_E_TIMEOUT;
	}
	ki_log_slots_of(index, put->key->digest_low, put->key->digest_high,
			slots);
	return settle(log, index, put, slots, slot);
}

/* ---- The operation --------------------------------------------------- */

static enum kiln_status check_limits(struct ki_log *log,
				     struct log_index *index,
				     const struct put *put, int *out_refuse)
{
	struct log_limit_values limits;
	uint64_t n_slots = index->n_buckets * LOG_WORDS;

	ki_log_limits_get(log, index, &limits);
	*out_refuse = (limits.policy & LOG_REFUSE_FULL) ||
		      (log->flags & KILN_OPEN_REFUSE_FULL);
	if (limits.quota_bytes &&
	    index->header->bytes_live + log_record_bytes(&put->record) >
		    limits.quota_bytes)
		return KILN_E_FULL;
	if (index->header->n_entries <= n_slots / 4 * 3 ||
	    (log->grow_pause && --log->grow_pause))
		return KILN_OK;
	if (!ki_log_grow(log, index))
		return LOG_AGAIN;
	log->grow_pause = 1024;
	return KILN_OK;
}

/* Whether the key is there with a body that is sound. */
static enum kiln_status look(struct ki_log *log, struct log_index *index,
			     const struct put *put)
{
	struct log_found found;
	enum kiln_status status = ki_log_find(log, index, put->key, &found);
	int sound;

	if (status)
		return status == KILN_E_FORMAT || status == KILN_E_COLLISION
			       ? KILN_MISS
			       : status;
	sound = ki_log_view_check(log, &found.view);
	ki_log_view_close(&found.view);
	if (sound && found.word != put->word)
		return KILN_EXISTS;
	if (!sound)
		(void)ki_log_word_swap(index, found.slot, found.word, 0);
	return KILN_MISS;
}

static enum kiln_status put_once(struct ki_log *log, struct put *put)
{
	struct log_index *index;
	enum kiln_status status = ki_log_current(log, LOG_WRITE, &index);
	int refuse;

	if (status)
		return status;
	ki_log_segments_sweep(log, index);
	if (!index->writable)
		return KILN_E_READONLY;
	if (!put->replaces) {
		status = look(log, index, put);
		if (status != KILN_MISS)
			return status;
	}
	status = check_limits(log, index, put, &refuse);
	if (status)
		return status;
	if (put->written && put->epoch != index->epoch)
		put->written = 0;
	if (!put->written) {
		put->record.flags &= ~LOG_OWN_FILE;
		status = is_large(log, index, put)
				 ? write_large(log, index, put)
				 : write_small(log, index, put);
		if (status)
			return status;
	}
	status = publish(log, index, put, refuse);
	if (status && status != LOG_AGAIN) {
		put->written = 0;
		if (put->record.flags & LOG_OWN_FILE)
			unlink_own_file(log, index, put->number);
		if (!number_is_live(index, put->number))
			status = LOG_AGAIN;
	}
	return status;
}

static void sum_body(struct put *put)
{
	struct ki_piece pieces[] = {
		{ put->key->record.data, put->key->record.size },
		{ put->metadata, put->metadata_size },
		{ put->value, put->value_size },
	};

	put->record.body_sum = ki_xxh3_64_pieces(pieces, 3);
}

enum kiln_status ki_log_put(struct kiln_tier *tier, const struct kiln_key *key,
			    const void *metadata, size_t metadata_size,
			    const void *value, size_t value_size,
			    unsigned flags)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct put put = { .key = key,
			   .metadata = metadata,
			   .metadata_size = metadata_size,
			   .value = value,
			   .value_size = value_size,
			   .replaces = !!(flags & KILN_PUT_REPLACE) };
	struct log_publication publication;
	_Atomic uint64_t *stripe;
	enum kiln_status status;
	int tries, locked = 0;

	if (log->readonly)
		return KILN_E_READONLY;
	if (metadata_size > KILN_METADATA_BYTES_MAX ||
	    value_size > (uint64_t)1 << 62)
		return KILN_E_TOO_LARGE;
	ki_log_record_init(&put.record, key, metadata_size, value_size,
			   put.replaces ? LOG_REPLACES : 0,
			   log->sys->realtime_ns(log->sys) / 1000000000);
	sum_body(&put);

	stripe = ki_log_enter(log);
	ki_log_trust_unplaced(&log->unplaced);
	status = ki_log_publication_begin(log, key, &publication);
	locked = !status;
	/* A replacing put goes on without: two of them settle it. */
	if (!status || put.replaces) {
		status = LOG_AGAIN;
		for (tries = 0; tries < LOG_TRIES && status == LOG_AGAIN;
		     tries++)
			status = put_once(log, &put);
	}
	if (locked)
		ki_log_publication_end(log, &publication);
	ki_log_leave(log, stripe);
	return status == LOG_AGAIN ? KILN_E_TIMEOUT : status;
}

/* ---- Remove ---------------------------------------------------------- */

/* So that an index made anew from the records does not find it again.  Where
   there is no room without a roll, it goes without. */
static void write_tombstone(struct ki_log *log, struct log_index *index,
			    const struct kiln_key *key)
{
	struct put put = { .key = key };
	int force;

	ki_log_record_init(&put.record, key, 0, 0, LOG_TOMBSTONE,
			   log->sys->realtime_ns(log->sys) / 1000000000);
	sum_body(&put);
	(void)write_to_tail(log, index, &put, index->header->tail, &force);
}

/* Clear every word of the key.  LOG_AGAIN: the index was retired. */
static enum kiln_status clear_words(struct ki_log *log, struct log_index *index,
				    const struct kiln_key *key, int *removed)
{
	struct log_found found;
	enum kiln_status status;
	int tries;

	for (tries = 0; tries < 4 * LOG_TRIES; tries++) {
		status = ki_log_find(log, index, key, &found);
		if (status == KILN_E_FORMAT)
			continue;
		if (status == KILN_E_COLLISION)
			status = KILN_MISS;
		if (status)
			break;
		if (found.view.record.flags & LOG_OWN_FILE)
			unlink_own_file(log, index, found.view.number);
		if (ki_log_word_swap(index, found.slot, found.word, 0))
			*removed = 1;
		ki_log_view_close(&found.view);
	}
	if (status != KILN_MISS)
		return status < 0 ? status : KILN_E_TIMEOUT;
	return ki_log_is_retired(index) ? LOG_AGAIN : KILN_OK;
}

enum kiln_status ki_log_remove(struct kiln_tier *tier,
			       const struct kiln_key *key)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe;
	struct log_index *index;
	enum kiln_status status = LOG_AGAIN;
	int tries, removed = 0;

	if (log->readonly)
		return KILN_E_READONLY;
	stripe = ki_log_enter(log);
	for (tries = 0; tries < LOG_TRIES && status == LOG_AGAIN; tries++) {
		status = ki_log_current(log, LOG_CHANGE, &index);
		if (status)
			break;
		ki_log_segments_sweep(log, index);
		status = index->writable
				 ? clear_words(log, index, key, &removed)
				 : KILN_E_READONLY;
		if (!status && removed)
			write_tombstone(log, index, key);
	}
	ki_log_leave(log, stripe);
	if (status == LOG_AGAIN)
		return KILN_E_TIMEOUT;
	return status ? status : removed ? KILN_OK : KILN_MISS;
}
