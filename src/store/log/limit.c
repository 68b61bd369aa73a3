/* SPDX-License-Identifier: MIT */

/*
 * Another bound.  A lower one may be less than a segment of before:
 *
 *	[ 41 ][ 42 ][ 43 ][ 44 ][ 45 ]             bound of before, old size
 *	   |     |     \__ newest __/ stay as they are, if they fit
 *	   |     \__ of these the newest: as much as there is room for
 *	   \__ what was used, up to half a new segment
 *	                              [46][47]     new size
 *
 * The new segments are there before an old one goes, under the bound of before,
 * which holds until the new one is reached.  Killed on the way, the store has
 * that bound and segments of two sizes.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>

struct lowering {
	struct ki_log *log;
	struct log_index *index;
	struct log_census *census;
	struct log_limit_values before;
	struct log_limit_values after;
	uint64_t room;	   /* below the new bound, beside what stays */
	uint64_t reserved; /* of that, for the newest that have no place yet */
	unsigned n_begun;  /* tails, besides the first */
};

/* ---- What stays ------------------------------------------------------ */

/* All but segments. */
static uint64_t other_bytes(const struct log_census *census)
{
	uint64_t bytes = census->bytes;
	size_t i, j;

	for (i = 0; i < census->n_files; i++) {
		const struct log_file *file = &census->files[i];

		for (j = 0; j < i && file->inode; j++)
			if (census->files[j].inode == file->inode)
				break;
		if (!file->inode || j == i)
			bytes -= file->bytes;
	}
	return bytes;
}

/* The newest that fit stay whole: all from this number on. */
static uint32_t first_that_stays(struct lowering *lowering)
{
	const struct log_census *census = lowering->census;
	uint64_t others = other_bytes(census) + LOG_SLACK_BYTES;
	uint64_t room = lowering->after.bytes_max;
	size_t i = census->n_files;

	room = others < room ? room - others : 0;
	while (i && census->files[i - 1].bytes <= room)
		room -= census->files[--i].bytes;
	lowering->room = room;
	return i < census->n_files
		       ? census->files[i].number
		       : ki_log_next_number(lowering->index->header, census);
}

/* ---- The newest of what goes ----------------------------------------- */

struct entry {
	uint32_t number; /* of its segment */
	uint32_t units;
	uint64_t slot;
	uint64_t word;
};

struct entries {
	struct entry *list; /* oldest first; from malloc() */
	size_t n;
	size_t n_max;
};

static int older_first(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->number != y->number)
		return log_is_before(x->number, y->number) ? -1 : 1;
	return x->units < y->units ? -1 : x->units > y->units;
}

/* Those below a number that a segment of the new size has room for. */
static enum kiln_status list_entries(const struct lowering *lowering,
				     uint32_t below, struct entries *entries)
{
	const struct log_index *index = lowering->index;
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint32_t min_live = ki_log_min_live(index);

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = index->words[slot];
		size_t n_max = entries->n_max ? 2 * entries->n_max : 1024;
		struct entry *list;

		if (!log_word_is_live(word, min_live) ||
		    !log_is_before(log_word_segment(word, min_live), below) ||
		    log_word_is_tentative(word) ||
		    log_word_bytes(word) > lowering->after.segment_bytes)
			continue;
		if (entries->n == entries->n_max) {
			list = realloc(entries->list, n_max * sizeof(*list));
			if (!list)
				return KILN_E_NO_MEMORY;
			entries->list = list;
			entries->n_max = n_max;
		}
		entries->list[entries->n++] =
			(struct entry){ log_word_segment(word, min_live),
					log_word_units(word), slot, word };
	}
	if (entries->n)
		qsort(entries->list, entries->n, sizeof(*entries->list),
		      older_first);
	return KILN_OK;
}

/* Less what is for those that were used. */
static uint64_t tail_room(const struct lowering *lowering)
{
	const struct log_census *census = lowering->census;
	uint64_t tail = lowering->index->header->tail;
	uint64_t end = (uint64_t)log_tail_units(tail) * LOG_UNIT +
		       census->copy_bytes_left;
	size_t i;

	for (i = census->n_files; log_tail_is_sound(tail) && i-- > 0;)
		if (census->files[i].number == log_tail_segment(tail) &&
		    end < census->files[i].size)
			return census->files[i].size - end;
	return 0;
}

/* What new segments for the newest, from one on, take of the bound. */
static uint64_t bytes_for(const struct lowering *lowering,
			  const struct entries *entries, size_t from)
{
	uint64_t segment_bytes = lowering->after.segment_bytes;
	uint64_t room = tail_room(lowering), n_tails = 0;
	size_t i;

	for (i = from; i < entries->n; i++) {
		uint64_t bytes = log_word_bytes(entries->list[i].word);

		if (bytes > room) {
			n_tails++;
			room = segment_bytes;
		}
		room -= bytes;
	}
	return n_tails * segment_bytes;
}

/* Let go of the oldest, until there is room for those that are left, and keep
   that room. */
static size_t n_without_place(struct lowering *lowering,
			      const struct entries *entries)
{
	size_t low = 0, high = entries->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (bytes_for(lowering, entries, middle) <= lowering->room)
			high = middle;
		else
			low = middle + 1;
	}
	lowering->reserved = bytes_for(lowering, entries, low);
	return low;
}

/* One more of the new size, if neither bound is passed by that. */
static int begin_tail(struct lowering *lowering)
{
	uint64_t segment_bytes = lowering->after.segment_bytes;

	if (lowering->room < segment_bytes ||
	    ki_log_is_over(lowering->index, lowering->census, segment_bytes,
			   lowering->before.bytes_max) ||
	    ki_log_new_tail(lowering->log, lowering->index, lowering->census))
		return 0;
	lowering->room -= segment_bytes;
	lowering->n_begun++;
	return 1;
}

/* Bring entries of one segment to the tail, and to what follows it. */
static void carry_all(struct lowering *lowering, int fd,
		      const struct entry *list, size_t n)
{
	struct log_census *census = lowering->census;
	uint64_t copy_bytes_left = census->copy_bytes_left;
	size_t i;

	for (i = 0; i < n;) {
		census->copy_bytes_left = UINT64_MAX;
		if (!ki_log_copy_entry(lowering->log, lowering->index, census,
				       fd, list[i].number, list[i].slot,
				       list[i].word) &&
		    !census->copy_bytes_left) {
			if (!begin_tail(lowering))
				break;
			continue;
		}
		i++;
	}
	census->copy_bytes_left = copy_bytes_left;
}

/* Of what is older, those that were used: before the tail is full. */
static void carry_used(struct lowering *lowering, int fd,
		       const struct entry *list, size_t n)
{
	const struct log_index *index = lowering->index;
	size_t i;

	for (i = 0; i < n && lowering->census->copy_bytes_left; i++)
		if (ki_log_was_used(index, list[i].slot))
			(void)ki_log_copy_entry(lowering->log, lowering->index,
						lowering->census, fd,
						list[i].number, list[i].slot,
						list[i].word);
}

/* The entries of one segment, of which `n_older` have no place. */
static enum kiln_status carry(struct lowering *lowering,
			      const struct entry *list, size_t n,
			      size_t n_older)
{
	struct ki_log *log = lowering->log;
	char path[KI_PATH_MAX];
	int fd = ki_log_segment_path(log, list->number, path)
			 ? -ENAMETOOLONG
			 : log->sys->open(log->sys, path,
					  KI_OPEN_READ | ki_log_open_flags(log),
					  0);

	if (fd < 0)
		return fd == -ENOENT ? KILN_OK : ki_log_status(fd);
	carry_used(lowering, fd, list, n_older);
	carry_all(lowering, fd, list + n_older, n - n_older);
	(void)log->sys->close(log->sys, fd);
	return KILN_OK;
}

/* ---- All of it ------------------------------------------------------- */

static enum kiln_status evict_one(struct lowering *lowering,
				  uint64_t move_bytes)
{
	struct log_census *census = lowering->census;
	enum kiln_status status;

	census->move_bytes_left = move_bytes;
	status = ki_log_evict_before_tail(lowering->log, lowering->index,
					  census);
	lowering->room -= move_bytes - census->move_bytes_left;
	return status;
}

/* What others may take. */
static uint64_t spare_room(const struct lowering *lowering)
{
	return lowering->reserved < lowering->room
		       ? lowering->room - lowering->reserved
		       : 0;
}

/* Passing over those of segments below `number`. */
static size_t n_below(const struct entries *entries, size_t i, uint32_t number)
{
	while (i < entries->n && log_is_before(entries->list[i].number, number))
		i++;
	return i;
}

/* Segments below `number` go, the oldest first; the newest of their entries are
   carried over, and of the others what was used. */
static enum kiln_status evict_below(struct lowering *lowering, uint32_t number)
{
	struct log_census *census = lowering->census;
	struct entries entries = { .n = 0 };
	enum kiln_status status = list_entries(lowering, number, &entries);
	size_t first = n_without_place(lowering, &entries), begin = 0, end;
	unsigned n_begun;

	while (!status && census->n_files &&
	       log_is_before(census->files[0].number, number)) {
		uint32_t oldest = census->files[0].number;

		begin = n_below(&entries, begin, oldest);
		end = n_below(&entries, begin, oldest + 1);
		n_begun = lowering->n_begun;
		if (end > first)
			status = carry(lowering, entries.list + begin,
				       end - begin,
				       first > begin ? first - begin : 0);
		begin = end;
		/* Others put meanwhile: what they left of a tail counts. */
		if (begin == entries.n || lowering->n_begun != n_begun)
			lowering->reserved =
				bytes_for(lowering, &entries,
					  first > begin ? first : begin);
		if (!status)
			status = evict_one(lowering, spare_room(lowering));
	}
	free(entries.list);
	return status;
}

static enum kiln_status lower(struct lowering *lowering)
{
	struct log_census *census = lowering->census;
	struct log_index *index = lowering->index;
	struct log_limit_values between = lowering->before;
	enum kiln_status status;

	between.segment_bytes = lowering->after.segment_bytes;
	ki_log_limits_set(index->header, &between);
	census->copy_bytes_left = between.segment_bytes / 2;
	status = ki_log_new_tail(lowering->log, index, census);
	if (!status)
		status = evict_below(lowering, first_that_stays(lowering));
	while (!status &&
	       ki_log_is_over(index, census, 0, lowering->after.bytes_max))
		status = evict_one(lowering, 0);
	return status;
}

static int may_evict(const struct ki_log *log,
		     const struct log_limit_values *limits)
{
	return !(limits->policy & LOG_REFUSE_FULL) &&
	       !(log->flags & KILN_OPEN_REFUSE_FULL);
}

/* What is worth less than any entry goes first, if that is worth it. */
static enum kiln_status drop_others(struct lowering *lowering)
{
	struct log_census *census = lowering->census;
	uint64_t bytes = census->bytes - census->quarantine_bytes -
			 ki_log_source_bytes(census) -
			 (census->has_spare ? census->spare_bytes : 0);
	uint64_t n;

	if (bytes + LOG_SLACK_BYTES > lowering->after.bytes_max &&
	    !may_evict(lowering->log, &lowering->before))
		return KILN_E_FULL;
	while (ki_log_is_over(lowering->index, census, 0,
			      lowering->after.bytes_max) &&
	       ki_log_drop_source(lowering->log, census))
		;
	if (census->quarantine_bytes)
		census->bytes -=
			ki_log_quarantine_drop(lowering->log, INT64_MAX, &n);
	census->quarantine_bytes = 0;
	return ki_log_status(ki_log_drop_spare(lowering->log, census));
}

static enum kiln_status come_under(struct lowering *lowering)
{
	struct log_index *index = lowering->index;
	enum kiln_status status = KILN_OK;

	if (ki_log_is_over(index, lowering->census, 0,
			   lowering->after.bytes_max))
		status = drop_others(lowering);
	if (!status && ki_log_is_over(index, lowering->census, 0,
				      lowering->after.bytes_max))
		status = may_evict(lowering->log, &lowering->before)
				 ? lower(lowering)
				 : KILN_E_FULL;
	ki_log_limits_set(index->header,
			  status ? &lowering->before : &lowering->after);
	return status;
}

struct limit {
	uint64_t bytes_max;
	uint64_t n_evicted;
};

static enum kiln_status limit_locked(struct ki_log *log,
				     struct log_index *index, void *arg)
{
	struct limit *limit = arg;
	struct log_census census;
	struct lowering lowering = { .log = log,
				     .index = index,
				     .census = &census };
	uint64_t bytes_max = limit->bytes_max;
	enum kiln_status status = ki_log_index_bring(index, NULL);

	if (status)
		return status;
	ki_log_limits_get(log, index, &lowering.before);
	lowering.after = lowering.before;
	lowering.after.bytes_max = bytes_max;
	lowering.after.segment_bytes =
		ki_log_segment_bytes_for(bytes_max, lowering.after.policy);
	if (bytes_max && index->size + 2 * lowering.after.segment_bytes +
					 ki_log_other_bytes() >
				 bytes_max)
		return KILN_E_FULL;
	status = ki_log_census_take(log, 1, &census);
	if (status)
		return status;
	ki_log_repair_numbers(index, &census);
	status = come_under(&lowering);
	limit->n_evicted += census.n_evicted;
	ki_log_census_fini(&census);
	return status;
}

enum kiln_status ki_log_set_limit(struct kiln_tier *tier, uint64_t bytes_max)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct limit limit = { .bytes_max = bytes_max };
	enum kiln_status status =
		ki_log_change_locked(log, LOG_WRITE, limit_locked, &limit);

	ki_log_count_evicted(log, limit.n_evicted);
	return status;
}

/* ---- What goes first ------------------------------------------------- */

/* Marks of before say when something was used, or that it was: their other bits
   are not what weigh.c would read. */
static void clear_marks(struct log_index *index)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;

	for (slot = 0; slot < n_slots; slot++)
		index->marks[slot] &= LOG_MARK_USED;
}

static enum kiln_status eviction_locked(struct ki_log *log,
					struct log_index *index, void *arg)
{
	const int is_by_cost =
		*(const enum kiln_eviction *)arg == KILN_EVICT_BY_COST;
	struct log_limit_values limits;
	enum kiln_status status = ki_log_index_bring(index, NULL);

	if (status)
		return status;
	ki_log_limits_get(log, index, &limits);
	if (is_by_cost == !!(limits.policy & LOG_BY_COST))
		return KILN_OK;
	if (!limits.age_max_s)
		clear_marks(index);
	limits.policy ^= LOG_BY_COST;
	if (limits.bytes_max)
		limits.segment_bytes = ki_log_segment_bytes_for(
			limits.bytes_max, limits.policy);
	ki_log_limits_set(index->header, &limits);
	return KILN_OK;
}

enum kiln_status ki_log_set_eviction(struct kiln_tier *tier,
				     enum kiln_eviction eviction)
{
	return ki_log_change_locked((struct ki_log *)tier, LOG_WRITE,
				    eviction_locked, &eviction);
}
