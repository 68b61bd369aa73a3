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
 * there) and at min_live (the segment may be gone: take the word back).
 *
 * A create-only put's word is tentative at first, and settled by whoever puts
 * the key and sees that it is alone, so that exactly one ever is, without a
 * lock: docs/decisions/0005-create-only-without-a-lock.md.  A replacing put's
 * is settled at once; of two of them the one that took its room later stays, in
 * whatever turn they come here: an index made anew from the records has only
 * their order to go by.
 *
 * The system calls that are left, and why:
 *	stat		the index may have been replaced or removed: what is put
 *			into one that nobody opens any more is lost
 *	statx		the program may have closed our descriptor and another
 *			file may have its number
 *	prlimit64	a write past RLIMIT_FSIZE ends the program; it may lower
 *			the limit at any moment, so what was read before says
 *			nothing
 *	pread64		where it is to write must be empty: a tail that went
 *			back would have it overwrite what others have verified;
 *			not where this handle has zeroed the file itself a
 *			moment ago and can look through its mapping
 *	pwritev
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct put {
	const struct kiln_key *key;
	const void *metadata;
	size_t metadata_size;
	const void *value;
	size_t value_size;
	int replaces;
	int is_summed;
	uint64_t order; /* of what it stands for; 0: that of its place */
	struct log_record record;
	struct log_claim claim; /* while it is published */
	int lacks_room;		/* by the quota, at that moment */

	/* Set once the record is written. */
	int written;
	uint32_t epoch; /* of the index it was written under */
	uint32_t number;
	uint64_t word;	      /* not tentative */
	uint64_t n_removed;   /* as the index had it before its word was out */
	uint64_t n_compacted; /* before it took its room */
	const struct log_index *out_in; /* the last where it was; NULL: none */
	int is_out;			/* when last looked at */
	int is_over; /* and is gone: replaced or removed since */
};

/* ---- Writing --------------------------------------------------------- */

#define HEAD_BYTES 2048

/* KILN_MISS: no room, or another segment is the tail. */
static enum kiln_status reserve(struct log_index *index, uint32_t number,
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

/* Not before it is known that there is room: a value that never fits costs
   nothing, however large. */
static void sum_body(struct put *put)
{
	struct ki_piece pieces[] = {
		{ put->key->record.data, put->key->record.size },
		{ put->metadata, put->metadata_size },
		{ put->value, put->value_size },
	};

	if (!put->is_summed)
		put->record.body_sum = ki_xxh3_64_pieces(pieces, 3);
	put->is_summed = 1;
}

static enum kiln_status write_record(struct ki_log *log, struct put *put,
				     int fd, uint32_t number, uint32_t units)
{
	static const uint8_t zeros[8];
	struct log_record *record = &put->record;
	size_t head_size = (size_t)log_value_offset(record);
	uint8_t head[HEAD_BYTES];
	struct ki_piece pieces[] = {
		{ record, sizeof(*record) },
		{ put->key->record.data, put->key->record.size },
		{ put->metadata, put->metadata_size },
		{ zeros, head_size - sizeof(*record) - record->key_size -
				 record->metadata_size },
		{ put->value, put->value_size },
	};
	int i, n = 5;

	ki_log_record_seal(record, number);
	if (head_size <= sizeof(head)) {
		/* Each piece costs the system more than copying it here. */
		for (head_size = 0, i = 0; i < 4; i++) {
			if (pieces[i].size)
				memcpy(head + head_size, pieces[i].data,
				       pieces[i].size);
			head_size += pieces[i].size;
		}
		pieces[0] = (struct ki_piece){ head, head_size };
		pieces[1] = pieces[4];
		n = 2;
	}
	return ki_log_status(ki_pwritev_all(log->sys, fd, pieces, n,
					    (uint64_t)units * LOG_UNIT));
}

/*
 * The tail lies where something is: it was lost and found again too low.  This
 * handle may have seen it higher, over what a killed writer left empty.
 *
 * A page that is not in memory is brought in by pread for less than by looking
 * at it, and what the medium cannot give is no signal.  Those that were filled
 * with zeros a moment ago are there, which saves a small put 0.3 us; whoever
 * cuts the file short meanwhile ends the program, as for all that is mapped.
 */
static int is_used_already(struct ki_log *log, const struct log_target *target,
			   uint32_t units_before, uint32_t units)
{
	const struct log_segment *segment = target->segment;
	uint64_t start, offset = (uint64_t)units * LOG_UNIT;

	if (units < units_before)
		return 1;
	if (segment && offset < segment->zeroed &&
	    log->sys->coarse_ns(log->sys) - segment->zeroed_ns < LOG_ZEROED_NS)
		return *(const volatile uint64_t
				 *)(const void *)(segment->data + offset) != 0;
	return ki_pread_all(log->sys, target->fd, &start, sizeof(start),
			    offset) ||
	       start;
}

static void note_reserved(struct log_segment *segment, uint32_t units)
{
	uint32_t before = segment->units_reserved;

	while (before < units &&
	       !atomic_compare_exchange_weak(&segment->units_reserved, &before,
					     units))
		;
}

int ki_log_is_other_boot(struct ki_log *log, const struct log_index *index)
{
	uint64_t boot_id[2];

	ki_log_boot_id(log, boot_id);
	if (!boot_id[0] && !boot_id[1])
		return 0;
	return index->header->boot_id[0] != boot_id[0] ||
	       index->header->boot_id[1] != boot_id[1];
}

static void note_written(struct put *put, const struct log_index *index,
			 uint32_t number, uint32_t units)
{
	put->written = 1;
	put->out_in = NULL;
	put->n_removed = index->header->n_removed;
	put->epoch = index->epoch;
	put->number = number;
	put->word = log_word(ki_log_tag_of(put->key->digest_low),
			     log_class_of(log_record_bytes(&put->record)),
			     number, units);
}

/* LOG_AGAIN: it needs a roll. */
static enum kiln_status take_room(struct ki_log *log, struct log_index *index,
				  uint64_t tail, uint64_t bytes,
				  struct log_target *out_target,
				  uint32_t *out_units, int *out_force)
{
	uint32_t number = log_tail_segment(tail), before = 0;
	enum kiln_status status;

	*out_force = 1;
	if (!log_tail_is_sound(tail) || ki_log_is_other_boot(log, index))
		return LOG_AGAIN;
	status = ki_log_target_open(log, index, number, out_target);
	if (status)
		return status == KILN_MISS ? LOG_AGAIN : status;
	if (out_target->segment)
		before = out_target->segment->units_reserved;
	if (reserve(index, number, out_target->size, bytes, out_units)) {
		*out_force = 0;
		status = LOG_AGAIN;
	} else if (is_used_already(log, out_target, before, *out_units)) {
		status = LOG_AGAIN;
	} else if (out_target->segment) {
		note_reserved(out_target->segment,
			      *out_units + (uint32_t)(bytes / LOG_UNIT));
	}
	if (status)
		ki_log_target_close(log, out_target);
	return status;
}

enum kiln_status ki_log_take_room(struct ki_log *log, struct log_index *index,
				  uint64_t bytes, struct log_target *out_target,
				  uint32_t *out_number, uint32_t *out_units)
{
	uint64_t tail = index->header->tail;
	int force;

	*out_number = log_tail_segment(tail);
	return take_room(log, index, tail, bytes, out_target, out_units, &force)
		       ? KILN_MISS
		       : KILN_OK;
}

/* Once into the tail's segment.  LOG_AGAIN: it needs a roll. */
static enum kiln_status write_to_tail(struct ki_log *log,
				      struct log_index *index, struct put *put,
				      uint64_t tail, int *out_force)
{
	uint32_t number = log_tail_segment(tail), units;
	struct log_target target;
	enum kiln_status status =
		take_room(log, index, tail, log_record_bytes(&put->record),
			  &target, &units, out_force);

	if (status)
		return status;
	put->record.order = put->order ? put->order : log_order(number, units);
	status = write_record(log, put, target.fd, number, units);
	if (!status)
		note_written(put, index, number, units);
	ki_log_target_close(log, &target);
	return status;
}

static enum kiln_status write_small(struct ki_log *log, struct log_index *index,
				    struct put *put)
{
	enum kiln_status status = LOG_AGAIN;
	int tries, force;

	sum_body(put);
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

enum kiln_status ki_log_write_tombstone(struct ki_log *log,
					struct log_index *index,
					const struct kiln_key *key,
					uint64_t order)
{
	struct put put = { .key = key, .order = order };
	enum kiln_status status;
	int force;

	ki_log_record_init(&put.record, key, 0, 0, LOG_TOMBSTONE,
			   log->sys->realtime_ns(log->sys) / 1000000000);
	if (!order)
		return write_small(log, index, &put);
	sum_body(&put);
	status = write_to_tail(log, index, &put, index->header->tail, &force);
	return status == LOG_AGAIN ? KILN_MISS : status;
}

static enum kiln_status write_large(struct ki_log *log, struct log_index *index,
				    struct put *put)
{
	uint32_t number;
	uint64_t order;
	enum kiln_status status;
	int fd;

	put->record.flags |= LOG_OWN_FILE;
	status = ki_log_large_make(log, index, log_record_bytes(&put->record),
				   &number, &order, &fd);
	if (status)
		return status;
	put->record.order = order;
	sum_body(put);
	status = write_record(log, put, fd, number, 0);
	(void)log->sys->close(log->sys, fd);
	if (!status)
		note_written(put, index, number, 0);
	else
		ki_log_segment_unlink(log, index, number);
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
   else the one that will be missed least, but none that may be the key's. */
static enum kiln_status choose_slot(struct ki_log *log, struct log_index *index,
				    const struct put *put,
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
			int unmarked = !ki_log_was_used(index, slot);

			if (!log_word_is_live(word, min_live)) {
				free_slot[bucket] = slot;
				n_free[bucket]++;
			} else if (log_word_tag(word) !=
					   log_word_tag(put->word) &&
				   (!found || unmarked > found_unmarked ||
				    (unmarked == found_unmarked &&
				     log_is_before(
					     log_word_segment(word, min_live),
					     log_word_segment(*out_word,
							      min_live))))) {
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
	if (!found)
		return LOG_AGAIN;
	if (!found_unmarked)
		for (i = 0; i < 2 * LOG_WORDS; i++)
			index->marks[slots[i / LOG_WORDS] + i % LOG_WORDS] = 0;
	atomic_fetch_add(&index->header->n_crowded_out, 1);
	return KILN_OK;
}

static uint64_t quota_bytes(const struct put *put)
{
	return put->key->data_size + put->value_size;
}

static enum kiln_status take_quota(struct log_index *index, struct put *put)
{
	put->lacks_room = ki_log_quota_take(index, quota_bytes(put),
					    &put->claim) != KILN_OK;
	return put->lacks_room ? KILN_E_FULL : KILN_OK;
}

/* Our word into a slot of its own; `tentative` is that bit or 0.  LOG_AGAIN:
   the buckets changed meanwhile. */
static enum kiln_status publish_new(struct ki_log *log, struct log_index *index,
				    struct put *put, uint64_t tentative,
				    int refuse, uint64_t *out_slot)
{
	uint64_t slots[2], slot = 0, word = 0;
	enum kiln_status status;

	ki_log_slots_of(index, put->key->digest_low, put->key->digest_high,
			slots);
	status = choose_slot(log, index, put, slots, refuse, &slot, &word);
	if (!status)
		status = take_quota(index, put);
	if (status)
		return status;
	if (!ki_log_word_swap(index, slot, word, put->word | tentative)) {
		ki_log_quota_return(index, &put->claim);
		return LOG_AGAIN;
	}
	index->marks[slot] = 0;
	put->out_in = index;
	put->is_out = 1;
	*out_slot = slot;
	return KILN_OK;
}

/* A word of the key; word 0: there is none. */
struct mate {
	uint64_t slot;
	uint64_t word;
	uint32_t number;
	uint32_t flags; /* of its record, as the next */
	uint64_t order;
};

/* What one look at both buckets found. */
struct look {
	struct mate own;     /* wherever an eviction may have brought it */
	struct mate settled; /* another's */
	struct mate newer;   /* another's that was put later, if we replace */
	struct mate lowest;  /* of the tentative ones, ours among them */
	struct mate higher;  /* a tentative one besides */
};

static void note_mate(const struct put *put, const struct mate *mate,
		      struct look *look)
{
	int is_own = mate->order == put->record.order;

	if (is_own)
		look->own = *mate;
	if (!log_word_is_tentative(mate->word)) {
		if (is_own)
			return;
		if (put->replaces &&
		    log_is_earlier(put->record.order, mate->order))
			look->newer = *mate;
		else
			look->settled = *mate;
	} else if (!look->lowest.word) {
		look->lowest = *mate;
	} else if (log_is_earlier(mate->order, look->lowest.order)) {
		look->higher = look->lowest;
		look->lowest = *mate;
	} else {
		look->higher = *mate;
	}
}

/* Whether a slot's word leads to our own record, which need not be read. */
static int is_own_word(const struct log_index *index, const struct put *put,
		       uint64_t word)
{
	return (word & ~LOG_TENTATIVE) == put->word &&
	       log_word_is_live(word, ki_log_min_live(index));
}

static enum kiln_status look_around(struct ki_log *log, struct log_index *index,
				    struct put *put, struct look *out_look)
{
	uint64_t slots[2];
	unsigned i;

	*out_look = (struct look){ 0 };
	ki_log_slots_of(index, put->key->digest_low, put->key->digest_high,
			slots);
	if (ki_log_index_bring(index, slots))
		return KILN_E_IO;
	for (i = 0; i < 2 * LOG_WORDS; i++) {
		uint64_t slot = slots[i / LOG_WORDS] + i % LOG_WORDS;
		struct mate mate = { .slot = slot,
				     .word = index->words[slot],
				     .number = put->number,
				     .flags = put->record.flags,
				     .order = put->record.order };
		struct log_found found;
		enum kiln_status status;

		if (!is_own_word(index, put, mate.word)) {
			status = ki_log_find_in(log, index, put->key, slot,
						&found);
			if (status == KILN_MISS || status == KILN_E_FORMAT ||
			    status == KILN_E_COLLISION)
				continue;
			if (status)
				return status;
			mate.word = found.word;
			mate.number = found.view.number;
			mate.flags = found.view.record.flags;
			mate.order = found.view.record.order;
			ki_log_view_close(&found.view);
		}
		note_mate(put, &mate, out_look);
	}
	put->is_out = !!out_look->own.word;
	if (put->is_out)
		put->out_in = index;
	return KILN_OK;
}

/* Whether a word was removed, perhaps ours, since before ours was out.  A remove
   counts it before it does so. */
static int may_be_removed(const struct log_index *index, const struct put *put)
{
	return index->header->n_removed != put->n_removed;
}

static int clear(struct log_index *index, const struct mate *mate)
{
	return ki_log_word_swap(index, mate->slot, mate->word, 0);
}

/* A tentative word that was seen before this look and is the only one: decide
   for it.  Another's was perhaps left by a dead one and torn since. */
static enum kiln_status settle(struct ki_log *log, struct log_index *index,
			       const struct put *put, const struct look *look)
{
	const struct mate *mate = &look->lowest;
	int is_own = !!look->own.word;
	struct log_found found;

	if (!is_own) {
		int sound;

		if (ki_log_find_in(log, index, put->key, mate->slot, &found))
			return LOG_AGAIN;
		sound = ki_log_view_check(log, &found.view);
		ki_log_view_close(&found.view);
		if (found.word != mate->word)
			return LOG_AGAIN;
		if (!sound) {
			(void)clear(index, mate);
			return LOG_AGAIN;
		}
	}
	if (!ki_log_word_swap(index, mate->slot, mate->word,
			      mate->word & ~LOG_TENTATIVE))
		return LOG_AGAIN;
	return is_own ? KILN_OK : KILN_EXISTS;
}

/* An index made anew from the records would find it.  A remove that had no room
   has perhaps made it a tombstone, which says more. */
static void void_record(struct ki_log *log, struct log_index *index,
			const struct put *put)
{
	uint32_t units = log_word_units(put->word);
	struct log_record record;
	struct log_target target;

	if (ki_log_target_open(log, index, put->number, &target))
		return;
	if (!ki_pread_all(log->sys, target.fd, &record, sizeof(record),
			  (uint64_t)units * LOG_UNIT) &&
	    !(record.flags & LOG_TOMBSTONE)) {
		record = put->record;
		ki_log_record_void(log, target.fd, &record, put->number, units);
	}
	ki_log_target_close(log, &target);
}

/* What is written is of no use.  If no word leads to it, none ever will. */
static void forget_record(struct ki_log *log, struct log_index *index,
			  struct put *put)
{
	if (!put->written)
		return;
	put->written = put->is_over = 0;
	put->out_in = NULL;
	if (put->is_out)
		return;
	if (put->record.flags & LOG_OWN_FILE)
		ki_log_segment_unlink(log, index, put->number);
	else
		void_record(log, index, put);
}

/*
 * Our word was out in an index that has grown, and is not in the one that
 * followed.  It came too late to be carried over, or was, and taken out there:
 * nobody knows, and it is not brought back.
 */
static enum kiln_status give_up(struct put *put)
{
	put->written = 0;
	put->is_over = 1;
	return KILN_E_TIMEOUT;
}

/* Our word from where we put it, if it still is there, be it dead. */
static int take_back(struct log_index *index, struct put *put,
		     uint64_t tentative)
{
	int found = 0;
	uint64_t slots[2];
	unsigned i;

	ki_log_slots_of(index, put->key->digest_low, put->key->digest_high,
			slots);
	for (i = 0; i < 2 * LOG_WORDS; i++) {
		uint64_t slot = slots[i / LOG_WORDS] + i % LOG_WORDS;

		if (index->words[slot] == (put->word | tentative) &&
		    ki_log_word_swap(index, slot, put->word | tentative, 0))
			found = 1;
	}
	if (found)
		put->is_out = 0;
	return found;
}

/* One step of create().  LOG_AGAIN: look again. */
static enum kiln_status create_step(struct ki_log *log, struct log_index *index,
				    struct put *put, int refuse,
				    struct mate *seen)
{
	struct look look;
	uint64_t slot;
	enum kiln_status status = look_around(log, index, put, &look);

	if (status)
		return status;
	if (look.own.word && !log_word_is_tentative(look.own.word))
		return KILN_OK;
	if (look.settled.word && !look.own.word)
		return KILN_EXISTS;
	if (look.settled.word) {
		if (!clear(index, &look.own))
			return LOG_AGAIN;
		put->is_out = 0;
		return KILN_EXISTS;
	}
	if (look.higher.word) {
		(void)clear(index, &look.higher);
		return LOG_AGAIN;
	}
	if (look.lowest.word) {
		if (seen->word == look.lowest.word &&
		    seen->slot == look.lowest.slot)
			return settle(log, index, put, &look);
		*seen = look.lowest;
		return LOG_AGAIN;
	}
	if (put->out_in && may_be_removed(index, put)) {
		if (put->out_in != index)
			return give_up(put);
		put->is_over = 1;
		return KILN_OK;
	}
	if (put->out_in) {
		forget_record(log, index, put);
		return LOG_AGAIN;
	}
	status = publish_new(log, index, put, LOG_TENTATIVE, refuse, &slot);
	if (!status)
		*seen = (struct mate){ .slot = slot,
				       .word = put->word | LOG_TENTATIVE };
	return status ? status : LOG_AGAIN;
}

/* LOG_AGAIN: write anew. */
static enum kiln_status create(struct ki_log *log, struct log_index *index,
			       struct put *put, int refuse)
{
	struct mate seen = { 0 };
	enum kiln_status status = LOG_AGAIN;
	int tries;

	for (tries = 0; tries < LOG_LOOKS && status == LOG_AGAIN; tries++) {
		status = create_step(log, index, put, refuse, &seen);
		if (!put->written)
			return status;
	}
	if (status == KILN_OK || status == KILN_EXISTS)
		return status;
	if (put->is_out)
		(void)take_back(index, put, LOG_TENTATIVE);
	return status == LOG_AGAIN ? KILN_E_TIMEOUT : status;
}

/*
 * Another was put after ours took its place in the order.  If it replaces, ours
 * is replaced, whether or not it was ever out.  If not, it says that it found
 * nothing: ours came later and has to be written anew.
 */
static enum kiln_status give_way(struct ki_log *log, struct log_index *index,
				 struct put *put, const struct look *look)
{
	if (look->own.word && !clear(index, &look->own))
		return LOG_AGAIN;
	put->is_out = 0;
	forget_record(log, index, put);
	return look->newer.flags & LOG_REPLACES ? KILN_OK : LOG_AGAIN;
}

/* What is replaced was carried over to behind ours while we were held up, and
   would be found again by an index made anew when ours is gone.  A file of its
   own goes at once. */
static int would_go_first(const struct put *put, const struct mate *other)
{
	return !(other->flags & LOG_OWN_FILE) &&
	       log_is_before(put->number, other->number);
}

/* Ours was out in the index before, and may have been removed.  So may what it
   had replaced there, which was perhaps carried over to this one. */
static enum kiln_status clear_older(struct ki_log *log, struct log_index *index,
				    const struct put *put,
				    const struct mate *other)
{
	if (log_is_earlier(put->record.order, other->order))
		return KILN_OK;
	if (clear(index, other) && (other->flags & LOG_OWN_FILE))
		ki_log_segment_unlink(log, index, other->number);
	return LOG_AGAIN;
}

/* One step of replace(). */
static enum kiln_status replace_step(struct ki_log *log,
				     struct log_index *index, struct put *put,
				     int refuse)
{
	struct look look;
	const struct mate *other;
	uint64_t slot;
	enum kiln_status status = look_around(log, index, put, &look);

	if (status)
		return status;
	if (!look.own.word && put->out_in == index) {
		put->is_over = 1;
		return KILN_OK;
	}
	if (!look.own.word && put->out_in && !put->is_over &&
	    may_be_removed(index, put))
		return give_up(put);
	other = look.settled.word ? &look.settled : &look.lowest;
	if (!look.own.word && put->is_over) {
		if (look.newer.word || !other->word)
			return KILN_OK;
		if (may_be_removed(index, put))
			return clear_older(log, index, put, other);
	}
	if (look.newer.word)
		return give_way(log, index, put, &look);
	if (!other->word) {
		if (look.own.word)
			return KILN_OK;
		status = publish_new(log, index, put, 0, refuse, &slot);
		return status ? status : LOG_AGAIN;
	}
	if (would_go_first(put, other)) {
		forget_record(log, index, put);
		return LOG_AGAIN;
	}
	if (!look.own.word) {
		status = take_quota(index, put);
		if (status)
			return status;
	}
	if (!ki_log_word_swap(index, other->slot, other->word,
			      look.own.word ? 0 : put->word)) {
		if (!look.own.word)
			ki_log_quota_return(index, &put->claim);
		return LOG_AGAIN;
	}
	if (!look.own.word) {
		index->marks[other->slot] = 0;
		put->out_in = index;
		put->is_out = 1;
		put->is_over = 0;
	}
	if (other->flags & LOG_OWN_FILE)
		ki_log_segment_unlink(log, index, other->number);
	return LOG_AGAIN;
}

static enum kiln_status replace(struct ki_log *log, struct log_index *index,
				struct put *put, int refuse)
{
	enum kiln_status status = LOG_AGAIN;
	int tries;

	for (tries = 0; tries < LOG_LOOKS && status == LOG_AGAIN; tries++) {
		status = replace_step(log, index, put, refuse);
		if (!put->written)
			return status;
	}
	return status == LOG_AGAIN ? KILN_E_TIMEOUT : status;
}

static int number_is_live(const struct log_index *index, uint32_t number)
{
	return !log_is_before(number, ki_log_min_live(index));
}

static int is_gone(struct ki_log *log, struct log_index *index, struct put *put)
{
	struct look look;

	return !look_around(log, index, put, &look) && !look.own.word;
}

/* A segment of many goes before its time where it is compacted. */
static int has_file(struct ki_log *log, const struct log_index *index,
		    const struct put *put)
{
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	return (!(put->record.flags & LOG_OWN_FILE) &&
		index->header->n_compacted == put->n_compacted) ||
	       ki_log_segment_path(log, put->number, path) ||
	       log->sys->lstat(log->sys, path, &info) != -ENOENT;
}

/* Or carried over, wherever that is now. */
static int is_live(struct ki_log *log, struct log_index *index, struct put *put)
{
	struct look look;

	if (number_is_live(index, put->number) && has_file(log, index, put))
		return 1;
	return look_around(log, index, put, &look) ||
	       (look.own.word && look.own.word != put->word);
}

/*
 * LOG_AGAIN: the index was retired, publish in the next one (if the word has
 * gone from this one, only where something older is); or what was written is
 * of no use, write anew: its segment was evicted, or taken for one that was
 * left behind.  KILN_E_TIMEOUT: others never let us be.
 */
static enum kiln_status publish(struct ki_log *log, struct log_index *index,
				struct put *put, int refuse)
{
	enum kiln_status status;

	if (!put->out_in && !number_is_live(index, put->number))
		return KILN_E_TIMEOUT;
	status = put->replaces ? replace(log, index, put, refuse)
			       : create(log, index, put, refuse);
	if ((status == KILN_OK || status == KILN_EXISTS) &&
	    ki_log_is_retired(index)) {
		put->is_over |=
			!status && put->written && is_gone(log, index, put);
		return put->is_over && !put->replaces ? KILN_OK : LOG_AGAIN;
	}
	if (!put->written || put->is_over)
		return status;
	/* Gone with its segment, or taken out before that. */
	if (status == KILN_OK && !is_live(log, index, put) &&
	    take_back(index, put, 0)) {
		forget_record(log, index, put);
		return LOG_AGAIN;
	}
	return status;
}

/* ---- The operation --------------------------------------------------- */

static enum kiln_status check_limits(struct ki_log *log,
				     struct log_index *index, int *out_refuse)
{
	struct log_limit_values limits;
	uint64_t n_slots = index->n_buckets * LOG_WORDS;

	ki_log_limits_get(log, index, &limits);
	*out_refuse = (limits.policy & LOG_REFUSE_FULL) ||
		      (log->flags & KILN_OPEN_REFUSE_FULL);
	if (index->header->n_entries <= n_slots / 20 * 13 ||
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

	if (status == KILN_E_COLLISION && log->is_session)
		return status;
	if (status)
		return status == KILN_E_FORMAT || status == KILN_E_COLLISION
			       ? KILN_MISS
			       : status;
	sound = ki_log_view_check(log, &found.view);
	ki_log_view_close(&found.view);
	if (sound)
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

	/* Wiped a moment ago: there will be another. */
	if (status)
		return status == KILN_MISS ? LOG_AGAIN : status;
	ki_log_segments_sweep(log, index);
	if (!index->writable)
		return KILN_E_READONLY;
	if (!put->replaces && !put->out_in) {
		status = look(log, index, put);
		if (status != KILN_MISS)
			return status;
	}
	status = check_limits(log, index, &refuse);
	if (status)
		return status;
	if (index->header->limits.quota_bytes && !put->out_in) {
		status = ki_log_quota_check(log, index, quota_bytes(put));
		if (status && status != LOG_AGAIN)
			forget_record(log, index, put);
		if (status)
			return status;
	}
	if (put->written && put->epoch != index->epoch) {
		if (put->is_over)
			return KILN_OK;
		put->written = 0;
		put->out_in = NULL;
	}
	if (!put->written) {
		put->record.flags &= ~LOG_OWN_FILE;
		put->n_compacted = index->header->n_compacted;
		status = is_large(log, index, put)
				 ? write_large(log, index, put)
				 : write_small(log, index, put);
		if (status)
			return status;
	}
	put->lacks_room = 0;
	status = ki_log_quota_begin(log, index, &put->claim);
	if (!status)
		status = publish(log, index, put, refuse);
	ki_log_quota_end(&put->claim);
	if (status == KILN_E_FULL && put->lacks_room)
		status = LOG_AGAIN;
	if (status && status != LOG_AGAIN) {
		forget_record(log, index, put);
		if (!put->is_over && !number_is_live(index, put->number))
			status = LOG_AGAIN;
	}
	return status;
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
	_Atomic uint64_t *stripe;
	enum kiln_status status = LOG_AGAIN;
	int tries;

	if (log->readonly)
		return KILN_E_READONLY;
	if (metadata_size > KILN_METADATA_BYTES_MAX ||
	    value_size > LOG_VALUE_BYTES_MAX)
		return KILN_E_TOO_LARGE;
	ki_log_record_init(&put.record, key, metadata_size, value_size,
			   put.replaces ? LOG_REPLACES : 0,
			   log->sys->realtime_ns(log->sys) / 1000000000);

	stripe = ki_log_enter(log);
	ki_log_trust_unplaced(&log->unplaced);
	for (tries = 0; tries < LOG_TRIES && status == LOG_AGAIN; tries++)
		status = put_once(log, &put);
	ki_log_leave(log, stripe);
	return status == LOG_AGAIN ? KILN_E_TIMEOUT : status;
}
