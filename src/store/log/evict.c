/* SPDX-License-Identifier: MIT */

/*
 * The oldest segment goes, under byte 0.
 *
 * Whoever used an entry since its segment's last turn (by cost, weigh.c: if it is
 * worth more than what has to go) finds it once more: its
 * record is copied to the tail, as one that was just written, and its mark is
 * taken off, so that it has to be used again to stay the next time.  All else
 * of the segment is let go.  A large value is a file of its own and is not
 * copied: the file gets the next number.
 *
 * Three steps, in this order:
 *	1  each word that leads into the segment is swung from exactly the old to
 *	   the new place, or to none
 *	2  min_live is raised: whatever still leads there is dead; if it is the
 *	   tail, there is none before that
 *	3  the file is unlinked
 * Killed between any two, the next one finds a smaller job of the same kind.
 * A word that somebody else changed meanwhile is left as it is, and the copy
 * made for it is void: no index made from the records shall find it.
 *
 * What may be copied is bounded by copy_bytes_left of the census, so that a
 * roll never takes longer than the bytes of half a segment, and by the room of
 * the tail.  What does not fit is let go.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>

void ki_log_allow_copies(const struct ki_log *log,
			 const struct log_index *index,
			 struct log_census *census)
{
	struct log_limit_values limits;

	ki_log_limits_get(log, index, &limits);
	census->copy_bytes_left =
		ki_log_next_segment_bytes(&limits, census) / 2;
}

/* ---- One record ------------------------------------------------------ */

/* The record at `offset`, whole, into malloc()ed memory; NULL if it is not
   sound or not worth it. */
static uint8_t *read_record(struct ki_log *log, int fd, uint32_t number,
			    uint32_t units, uint64_t bytes_max)
{
	const struct ki_sys *sys = log->sys;
	uint64_t offset = (uint64_t)units * LOG_UNIT, bytes;
	struct log_record record;
	uint8_t *data;

	if (ki_pread_all(sys, fd, &record, sizeof(record), offset) ||
	    !ki_log_record_is_sound(&record, number, units))
		return NULL;
	bytes = log_record_bytes(&record);
	if (bytes > bytes_max)
		return NULL;
	data = malloc((size_t)bytes);
	if (data && ki_pread_all(sys, fd, data, (size_t)bytes, offset)) {
		free(data);
		data = NULL;
	}
	return data;
}

/* 0: there is no room, or the word is another by now. */
static int place_copy(struct ki_log *log, struct log_index *index,
		      struct log_census *census, uint64_t slot, uint64_t word,
		      struct log_record *record)
{
	uint64_t bytes = log_record_bytes(record);
	struct log_target target;
	uint32_t to, units;
	int placed = 0;

	if (ki_log_take_room(log, index, bytes, &target, &to, &units)) {
		census->copy_bytes_left = 0;
		return 0;
	}
	record->flags |= LOG_COPY;
	ki_log_record_seal(record, to);
	if (!ki_pwrite_all(log->sys, target.fd, record, (size_t)bytes,
			   (uint64_t)units * LOG_UNIT)) {
		census->copy_bytes_left -= bytes;
		placed = ki_log_word_swap(index, slot, word,
					  log_word(log_word_tag(word),
						   log_class_of(bytes), to,
						   units));
		/* Replaced meanwhile, by what may lie before the copy. */
		if (!placed)
			ki_log_record_void(log, target.fd, record, to, units);
	}
	ki_log_target_close(log, &target);
	return placed;
}

/* It has to be used again to stay the next time; by cost that is seen to when all
   are aged. */
static void note_kept(struct log_index *index, const struct log_census *census,
		      uint64_t slot)
{
	if (census->weighs)
		return;
	if (ki_log_goes_by_cost(index))
		index->marks[slot] &= (uint8_t)~LOG_MARK_USED;
	else
		index->marks[slot] = 0;
}

/* Bring one used entry to the tail.  0 if it was not possible. */
int ki_log_copy_entry(struct ki_log *log, struct log_index *index,
		      struct log_census *census, int fd, uint32_t number,
		      uint64_t slot, uint64_t word)
{
	struct log_limit_values limits;
	struct log_record *record;
	uint64_t used_s;
	uint8_t *data;
	int copied = 0;

	data = read_record(log, fd, number, log_word_units(word),
			   census->copy_bytes_left);
	if (!data)
		return 0;
	record = (struct log_record *)(void *)data;
	ki_log_limits_get(log, index, &limits);
	if (log_tail_segment(index->header->tail) == number ||
	    ki_log_is_expired(log, index, slot, record->used_s,
			      limits.age_max_s, &used_s) ||
	    !ki_log_belongs(index, slot, word, record->digest) ||
	    !ki_log_body_is_sound(record, data))
		goto out;
	record->used_s = (uint32_t)used_s;
	copied = place_copy(log, index, census, slot, word, record);
	if (copied) {
		note_kept(index, census, slot);
		index->header->n_copied++;
		index->header->bytes_copied += log_record_bytes(record);
	}
out:
	free(data);
	return copied;
}

/* ---- One segment's words --------------------------------------------- */

/* One segment on its way out. */
struct emptying {
	struct ki_log *log;
	struct log_index *index;
	struct log_census *census;
	struct log_file file;
	uint32_t min_live; /* of before */
	int fd;		   /* negative: it cannot be read */
	int is_large;
	int has_moved;	     /* the large file lives on under another name */
	unsigned goes_up_to; /* by cost */
};

static int is_of_segment(uint64_t word, uint32_t number, uint32_t min_live)
{
	return log_word_is_live(word, min_live) &&
	       log_word_segment(word, min_live) == number;
}

/* The same of eight at once, and some that are not. */
static int bucket_may_have(const struct log_index *index, uint64_t slot,
			   uint32_t number)
{
	const uint64_t mask = (uint64_t)LOG_SEGMENT_MASK << LOG_OFFSET_BITS;
	const uint64_t bits = (uint64_t)number << LOG_OFFSET_BITS & mask;
	uint64_t below_zero = 0;
	unsigned i;

	for (i = 0; i < LOG_WORDS; i++) {
		uint64_t word = atomic_load_explicit(&index->words[slot + i],
						     memory_order_relaxed);

		below_zero |= ((word & mask) ^ bits) - 1;
	}
	return below_zero >> 63;
}

/* A used large file gets a new number; its bytes stay where they are. */
static int move_large(struct emptying *emptying, uint64_t slot, uint64_t word)
{
	const struct log_file *file = &emptying->file;
	struct log_census *census = emptying->census;
	struct log_index *index = emptying->index;
	struct ki_log *log = emptying->log;
	const struct ki_sys *sys = log->sys;
	char from[KI_PATH_MAX], to[KI_PATH_MAX];
	uint32_t number;

	if (file->bytes > census->move_bytes_left ||
	    ki_log_segment_path(log, file->number, from) ||
	    ki_log_take_number(log, index, census, &number, to) ||
	    sys->link(sys, from, to))
		return 0;
	if (!ki_log_word_swap(index, slot, word,
			      log_word(log_word_tag(word),
				       (uint8_t)(word >> 40), number, 0)) ||
	    ki_log_census_add(census, number, file->size, file->bytes,
			      file->inode)) {
		(void)sys->unlink(sys, to);
		return 0;
	}
	census->move_bytes_left -= file->bytes;
	note_kept(index, census, slot);
	emptying->has_moved = 1;
	return 1;
}

int ki_log_is_shortage(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM ||
	       err == -EINTR;
}

static int is_own_file(struct ki_log *log, int fd, uint32_t number)
{
	struct log_record record;

	return !ki_pread_all(log->sys, fd, &record, sizeof(record), 0) &&
	       ki_log_record_is_sound(&record, number, 0) &&
	       (record.flags & LOG_OWN_FILE);
}

/* An error only where another time may do better: a segment that is not there
   any more, or cannot be read, is emptied all the same. */
static int emptying_begin(struct emptying *emptying)
{
	struct ki_log *log = emptying->log;
	uint32_t number = emptying->file.number;
	char path[KI_PATH_MAX];

	emptying->fd =
		ki_log_segment_path(log, number, path)
			? -ENAMETOOLONG
			: log->sys->open(log->sys, path,
					 KI_OPEN_READ | ki_log_open_flags(log),
					 0);
	if (ki_log_is_shortage(emptying->fd))
		return emptying->fd;
	emptying->is_large =
		emptying->fd >= 0 && is_own_file(log, emptying->fd, number);
	return 0;
}

static void emptying_finish(struct emptying *emptying)
{
	if (emptying->fd >= 0)
		(void)emptying->log->sys->close(emptying->log->sys,
						emptying->fd);
}

static int is_worth_it(const struct emptying *emptying, uint64_t slot)
{
	if (!emptying->census->weighs)
		return ki_log_was_used(emptying->index, slot);
	return ki_log_worth(emptying->index, slot) > emptying->goes_up_to;
}

/* 0: what the word leads to was not used, or cannot be kept. */
static int keep_used(struct emptying *emptying, uint64_t slot, uint64_t word)
{
	if (!is_worth_it(emptying, slot) || emptying->fd < 0 ||
	    log_word_is_tentative(word))
		return 0;
	if (emptying->is_large)
		return !emptying->has_moved && move_large(emptying, slot, word);
	return emptying->census->copy_bytes_left &&
	       ki_log_copy_entry(emptying->log, emptying->index,
				 emptying->census, emptying->fd,
				 emptying->file.number, slot, word);
}

static void empty_slot(struct emptying *emptying, uint64_t slot)
{
	struct log_index *index = emptying->index;
	uint64_t word =
		atomic_load_explicit(&index->words[slot], memory_order_relaxed);

	if (is_of_segment(word, emptying->file.number, emptying->min_live) &&
	    !keep_used(emptying, slot, word) &&
	    ki_log_word_swap(index, slot, word, 0))
		emptying->census->n_evicted++;
}

/* Carry over what was used of a segment, drop the rest. */
static void empty_words(struct emptying *emptying)
{
	const struct log_index *index = emptying->index;
	uint64_t bucket, i;

	for (bucket = 0; bucket < index->n_buckets; bucket++) {
		uint64_t slot = bucket * LOG_WORDS;

		if (!bucket_may_have(index, slot, emptying->file.number))
			continue;
		for (i = 0; i < LOG_WORDS; i++)
			empty_slot(emptying, slot + i);
	}
}

/* Once around, and nothing has to stay: there is an end to it whatever else is
   in the way. */
static int pass_one(struct log_census *census)
{
	return census->n_to_pass && census->n_to_pass--;
}

/* Not at all if it cannot be opened just now. */
static int empty_oldest(struct ki_log *log, struct log_index *index,
			struct log_census *census)
{
	struct emptying emptying = {
		.log = log,
		.index = index,
		.census = census,
		.file = census->files[0],
		.min_live = ki_log_min_live(index),
	};
	int err = emptying_begin(&emptying);

	if (err)
		return err;
	if (census->weighs && !pass_one(census))
		census->goes_up_to = LOG_WORTHS;
	emptying.goes_up_to =
		census->weighs && !emptying.is_large
			? ki_log_level_of_segment(index, census,
						  emptying.file.number)
			: census->goes_up_to;
	empty_words(&emptying);
	emptying_finish(&emptying);
	/* What moved counts under its new name, also if the old one stays. */
	if (emptying.has_moved)
		census->files[0].bytes = 0;
	return 0;
}

/* ---- The segment ----------------------------------------------------- */

static void scrub_dead_words(struct log_index *index, uint32_t min_live)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = index->words[slot];

		if (word && !log_word_is_live(word, min_live))
			(void)ki_log_word_swap(index, slot, word, 0);
	}
}

static void raise_min_live(struct log_index *index, uint32_t to)
{
	uint32_t from = ki_log_min_live(index);

	if (from / LOG_SPAN_MAX != to / LOG_SPAN_MAX)
		scrub_dead_words(index, from);
	index->header->min_live = log_number_word(to);
	index->header->generation++;
}

static int is_tail(const struct log_index *index, uint32_t number)
{
	uint64_t tail = index->header->tail;

	return log_tail_is_sound(tail) && log_tail_segment(tail) == number;
}

/* The lowest number that is left: of a file, or of a tail that has none. */
static uint32_t lowest_without_oldest(const struct log_index *index,
				      const struct log_census *census)
{
	uint32_t oldest = census->files[0].number;
	uint32_t next =
		census->n_files > 1 ? census->files[1].number : oldest + 1;
	uint64_t tail = index->header->tail;

	if (log_tail_is_sound(tail) &&
	    log_is_before(oldest, log_tail_segment(tail)) &&
	    log_is_before(log_tail_segment(tail), next))
		next = log_tail_segment(tail);
	return next;
}

enum kiln_status ki_log_evict_oldest(struct ki_log *log,
				     struct log_index *index,
				     struct log_census *census)
{
	char path[KI_PATH_MAX];
	uint32_t oldest, next;
	int err;

	if (!census->n_files)
		return KILN_E_FULL;
	oldest = census->files[0].number;
	err = empty_oldest(log, index, census);
	if (err)
		return ki_log_status(err);
	/* Nothing that a put writes there from now on would be found, and no
	   other tail may come. */
	if (is_tail(index, oldest))
		index->header->tail = 0;
	next = lowest_without_oldest(index, census);
	if (log_is_before(ki_log_min_live(index), next) ||
	    !log_number_is_sound(index->header->min_live))
		raise_min_live(index, next);

	err = ki_log_segment_path(log, oldest, path);
	if (!err)
		err = log->sys->unlink(log->sys, path);
	if (err && err != -ENOENT)
		return ki_log_status(err);
	ki_log_census_remove(census, 0);
	return KILN_OK;
}

enum kiln_status ki_log_evict_before_tail(struct ki_log *log,
					  struct log_index *index,
					  struct log_census *census)
{
	if (!census->n_files || is_tail(index, census->files[0].number))
		return KILN_E_FULL;
	return ki_log_evict_oldest(log, index, census);
}

void ki_log_drop_empty(struct ki_log *log, struct log_index *index,
		       struct log_census *census)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint32_t min_live = ki_log_min_live(index);
	uint32_t oldest = log_tail_segment(index->header->tail);

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = index->words[slot];

		if (log_word_is_live(word, min_live) &&
		    log_is_before(log_word_segment(word, min_live), oldest))
			oldest = log_word_segment(word, min_live);
	}
	while (census->n_files &&
	       log_is_before(census->files[0].number, oldest) &&
	       !ki_log_evict_before_tail(log, index, census))
		;
}

void ki_log_count_evicted(struct ki_log *log, uint64_t n)
{
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	if (!n || log->readonly)
		return;
	deltas[KILN_COUNT_EVICTED] = n;
	(void)ki_counters_add(log->sys, log->stats_path, log->flags, NULL,
			      deltas);
}
