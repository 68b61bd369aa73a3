/* SPDX-License-Identifier: MIT */

/*
 * Sessions: handles of which all processes know that they are there.
 *
 * Each holds a byte of NAME.lock shared, from opening to closing, on a
 * descriptor of its own, so that two of one process count as two and one that
 * is killed counts no more.  Who comes and who goes does so under byte 0 and
 * tries for the same byte alone:
 *
 *	comes, alone      first: what the store is to be is for it to say: wiped
 *	                  if it is of another version or was to be removed, its
 *	                  quota.  Then the byte turns shared, in one step.
 *	comes, not alone  the store is as it is, or KILN_EXISTS
 *	goes, alone       last: the files go, if any session ever asked for it
 *	goes, not alone   nothing
 *
 * The wish stands in the index's header, for whoever is last, and in the
 * handle, for whatever store it has when it closes.  Killed on the way out, the
 * header says it to the next one who is first.
 */

#include "store/log/log.h"

#include <errno.h>

/* As long as nobody else is, whatever comes of it. */
static enum kiln_status begin_first(struct ki_log *log, struct log_index *index)
{
	struct log_header *header = index->header;
	struct log_limit_values limits;

	if (header->removes || ki_log_is_other_version(log, index)) {
		header->removes = 0;
		return ki_log_wipe_locked(log, index, log->user_version, NULL);
	}
	ki_log_limits_get(log, index, &limits);
	ki_log_quota_forget(header, !!limits.quota_bytes);
	if (limits.quota_bytes != log->quota_bytes) {
		limits.quota_bytes = log->quota_bytes;
		ki_log_limits_set(header, &limits);
	}
	return KILN_OK;
}

static enum kiln_status begin_locked(struct ki_log *log, int is_first)
{
	struct log_index *index = NULL;
	int damaged;
	enum kiln_status status = ki_log_index_open(log, 1, &index, &damaged);

	int is_there = !status;

	if (is_there && !index->writable)
		status = KILN_E_READONLY;
	else if (is_there && is_first)
		status = begin_first(log, index);
	else if (is_there && ki_log_is_other_version(log, index))
		status = KILN_EXISTS;
	else if (status == KILN_MISS || damaged)
		status = KILN_OK;
	if (!status && is_there && !ki_log_needs_care(index))
		goto out;
	ki_log_index_close(index);
	index = NULL;
	if (!status)
		status = ki_log_make_locked(log);
out:
	ki_log_index_close(index);
	return status;
}

/* 1: nobody else is; 0; or why there are no locks. */
static int take_byte(struct ki_log *log)
{
	int err =
		ki_lock_byte(&log->locks, LOG_LOCK_SESSIONS, 0, &log->session);

	if (err != -ETIMEDOUT)
		return err ? err : 1;
	return ki_lock_shared(&log->locks, LOG_LOCK_SESSIONS, 0, &log->session);
}

enum kiln_status ki_log_session_begin(struct ki_log *log)
{
	struct ki_lock lock;
	enum kiln_status status =
		ki_log_structure_begin(log, &lock, ki_log_patience_ms(log));
	int is_first, err = 0;

	if (status)
		return status;
	is_first = take_byte(log);
	status = is_first < 0 ? ki_log_status(is_first)
			      : begin_locked(log, is_first);
	if (!status && is_first)
		err = ki_lock_turn(&log->locks, KI_LOCK_SHARED,
				   LOG_LOCK_SESSIONS, &log->session);
	if (err)
		status = ki_log_status(err);
	if (status)
		ki_unlock(log->sys, &log->session);
	ki_log_structure_end(log, &lock);
	return status;
}

int ki_log_has_sessions(struct ki_log *log)
{
	struct ki_lock lock;
	int err = ki_lock_byte(&log->locks, LOG_LOCK_SESSIONS, 0, &lock);

	if (!err)
		ki_unlock(log->sys, &lock);
	return err == -ETIMEDOUT;
}

#define LOOK_EVERY_NS 1000000000u

static int is_due(struct ki_log *log)
{
	uint64_t now_ns = log->sys->coarse_ns(log->sys);

	if (!log->has_lost_session && now_ns - log->session_ns < LOOK_EVERY_NS)
		return 0;
	log->session_ns = now_ns;
	return 1;
}

/* The byte of the lock file that is there by now: on the one of before nobody
   meets us any more.  If somebody is about to come or to go there, the next call
   tries again. */
void ki_log_session_renew(struct ki_log *log)
{
	if (!is_due(log))
		return;
	ki_mutex_lock(&log->mutex);
	log->has_lost_session = 0;
	if (log->session.fd < 0 ||
	    !ki_lock_is_current(&log->locks, &log->session)) {
		ki_unlock(log->sys, &log->session);
		if (ki_lock_shared(&log->locks, LOG_LOCK_SESSIONS, 0,
				   &log->session)) {
			log->session.fd = -1;
			log->has_lost_session = 1;
		}
	}
	ki_mutex_unlock(&log->mutex);
}

/* ---- The end ----------------------------------------------------------- */

static int is_to_go(struct ki_log *log)
{
	struct log_index *index = NULL;
	int damaged, removes = log->removes;

	if (!removes && !ki_log_index_open(log, 0, &index, &damaged))
		removes = !!index->header->removes;
	ki_log_index_close(index);
	return removes;
}

static void remove_locked(struct ki_log *log)
{
	struct log_index *index = NULL;
	int damaged;

	if (!ki_lock_is_current(&log->locks, &log->session) ||
	    ki_lock_turn(&log->locks, KI_LOCK_EXCLUSIVE, LOG_LOCK_SESSIONS,
			 &log->session))
		return;
	(void)ki_log_index_open(log, 1, &index, &damaged);
	ki_log_unlink_locked(log, index);
	ki_log_index_close(index);
}

void ki_log_session_end(struct ki_log *log)
{
	struct ki_lock lock;

	if (log->is_session && log->is_open) {
		log->has_lost_session = 1;
		ki_log_session_renew(log);
	}
	if (log->session.fd < 0)
		return;
	if (log->is_open && is_to_go(log) &&
	    !ki_log_structure_begin(log, &lock, LOG_CHANGE_TIMEOUT_MS)) {
		remove_locked(log);
		ki_unlock(log->sys, &log->session);
		ki_log_structure_end(log, &lock);
	}
	ki_unlock(log->sys, &log->session);
}

static enum kiln_status mark(struct ki_log *log, struct log_index *index,
			     void *arg)
{
	index->header->removes = 1;
	return KILN_OK;
}

enum kiln_status ki_log_remove_at_close(struct kiln_tier *tier)
{
	struct ki_log *log = (struct ki_log *)tier;

	if (!log->is_session)
		return KILN_E_INVALID;
	log->removes = 1;
	return ki_log_change_locked(log, LOG_WRITE, mark, NULL);
}
