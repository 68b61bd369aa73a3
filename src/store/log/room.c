/* SPDX-License-Identifier: MIT */

/*
 * Room under the bound: what goes for new bytes, and in which order, under
 * byte 0.
 *
 * First what no look-up would miss: the oldest kept sources, and the bytes of
 * damaged records that were put aside.  Who refuses rather than evicts stops
 * there.  Then, where namespaces have quotas, segments of which little is alive
 * (compact.c).  Then segments go, the oldest first (evict.c).
 *
 * The tail, which is written to, is the last of them, and how it goes depends
 * on what the room is for.  Room for the next tail: the one of before goes like
 * any other, for its successor is as good as there; the spare, whose place the
 * new one takes, is given up after it.  Room for anything else, a large file,
 * a larger index, a spare: puts still need a tail, so that another has to follow
 * before this one may go.  The spare is the next tail if there is one of the
 * right size, and of no more use if it is of another.  Without a spare there
 * may still be large files: they alone never roll, so that a tail from long ago
 * can be older than all of them.  Then a tail is made, for which the old one
 * and the oldest large files may go.
 *
 * Whatever goes is taken off the census, and the question asked anew.
 */

#include "store/log/log.h"

int ki_log_is_over(const struct log_index *index,
		   const struct log_census *census, uint64_t bytes,
		   uint64_t bytes_max)
{
	uint32_t next = ki_log_next_number(index->header, census);

	if (census->n_files &&
	    next - census->files[0].number >= LOG_SPAN_MAX - 2)
		return 1;
	return bytes_max &&
	       (census->bytes + bytes + LOG_SLACK_BYTES > bytes_max ||
		census->n_files + 1 >= LOG_FILES_MAX);
}

struct room {
	struct ki_log *log;
	struct log_index *index;
	struct log_census *census;
	struct log_limit_values limits;
	uint64_t bytes; /* to make room for */
};

static struct room room_for(struct ki_log *log, struct log_index *index,
			    struct log_census *census, uint64_t bytes)
{
	struct room room = {
		.log = log, .index = index, .census = census, .bytes = bytes
	};

	ki_log_limits_get(log, index, &room.limits);
	return room;
}

static int is_over(const struct room *room)
{
	return ki_log_is_over(room->index, room->census, room->bytes,
			      room->limits.bytes_max);
}

/* Whether nothing but index and tail would leave room enough. */
static int can_be_had(const struct room *room, uint64_t tail_bytes)
{
	return !room->limits.bytes_max || room->bytes + room->index->size +
							  ki_log_other_bytes() +
							  tail_bytes <=
						  room->limits.bytes_max;
}

static int refuses(const struct room *room)
{
	return (room->limits.policy & LOG_REFUSE_FULL) ||
	       (room->log->flags & KILN_OPEN_REFUSE_FULL);
}

/* ---- What no look-up would miss -------------------------------------- */

static void drop_quarantine(struct room *room)
{
	struct log_census *census = room->census;
	uint64_t n;

	if (!census->quarantine_bytes)
		return;
	census->bytes -= ki_log_quarantine_drop(room->log, INT64_MAX, &n);
	census->quarantine_bytes = 0;
}

/* KILN_E_FULL: that was not enough, and no more may go. */
static enum kiln_status drop_others(struct room *room)
{
	while (is_over(room) && ki_log_drop_source(room->log, room->census))
		;
	if (is_over(room))
		drop_quarantine(room);
	return is_over(room) && refuses(room) ? KILN_E_FULL : KILN_OK;
}

/* ---- Segments -------------------------------------------------------- */

/* Whether there was one. */
static int drop_spare(struct room *room)
{
	return room->census->has_spare &&
	       !ki_log_drop_spare(room->log, room->census);
}

static void weigh_if_over(const struct room *room, enum kiln_status status)
{
	if (status || !is_over(room))
		return;
	ki_log_weigh(room->log, room->index, room->census, room->bytes,
		     room->limits.bytes_max);
	ki_log_evict_cheap(room->log, room->index, room->census, room->bytes,
			   room->limits.bytes_max);
	ki_log_compact(room->log, room->index, room->census, room->bytes,
		       room->limits.bytes_max);
}

/* Only the tail is left.  Whether more can go now. */
static int let_tail_go(struct room *room)
{
	struct log_census *census = room->census;

	if (census->n_files &&
	    !ki_log_use_spare(room->log, room->index, census))
		return 1;
	if (census->has_spare)
		return drop_spare(room);
	return census->n_files > 1 &&
	       !ki_log_make_tail(room->log, room->index, census);
}

enum kiln_status ki_log_make_room(struct ki_log *log, struct log_index *index,
				  struct log_census *census, uint64_t bytes)
{
	struct room room = room_for(log, index, census, bytes);
	enum kiln_status status;

	if (!can_be_had(&room, room.limits.segment_bytes))
		return KILN_E_TOO_LARGE;
	status = drop_others(&room);
	weigh_if_over(&room, status);
	while (!status && is_over(&room))
		if (ki_log_evict_before_tail(log, index, census) &&
		    !let_tail_go(&room))
			status = KILN_E_FULL;
	return status;
}

enum kiln_status ki_log_make_room_for_tail(struct ki_log *log,
					   struct log_index *index,
					   struct log_census *census,
					   uint64_t bytes)
{
	struct room room = room_for(log, index, census, bytes);
	enum kiln_status status;

	if (!can_be_had(&room, 0))
		return KILN_E_TOO_LARGE;
	status = drop_others(&room);
	weigh_if_over(&room, status);
	while (!status && is_over(&room))
		if (ki_log_evict_oldest(log, index, census) &&
		    !drop_spare(&room))
			status = KILN_E_FULL;
	return status;
}
