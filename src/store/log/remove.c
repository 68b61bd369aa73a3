/* SPDX-License-Identifier: MIT */

/*
 * Clear every word of the key, then make that last.
 *
 * The words go first, so that the tombstone's order is later than that of all
 * that was led to.  Where there is no room for one, what was led to is made a
 * tombstone where it lies: it came after all that it had replaced.  A file of
 * its own is unlinked once something else says that it is over.
 *
 * Each word is counted before it goes, for puts of the key that are on their way
 * and find theirs no more: docs/decisions/0005-create-only-without-a-lock.md.
 */

#include "store/log/log.h"

#include <errno.h>

struct removal {
	const struct kiln_key *key;
	struct {
		struct log_record record;
		uint32_t number;
		uint32_t units;
	} led_to[2 * LOG_WORDS];
	unsigned n;
	int removed;
};

/* KILN_OK also where its segment has gone. */
static enum kiln_status make_tombstone(struct ki_log *log,
				       struct log_record *record,
				       uint32_t number, uint32_t units)
{
	const struct ki_sys *sys = log->sys;
	struct ki_file_info info;
	int err, fd = ki_log_segment_open_to_write(log, number, &info);

	if (fd < 0)
		return fd == -ENOENT ? KILN_OK : ki_log_status(fd);
	record->flags |= LOG_TOMBSTONE;
	ki_log_record_seal(record, number);
	err = ki_pwrite_all(sys, fd, record, sizeof(*record),
			    (uint64_t)units * LOG_UNIT);
	(void)sys->close(sys, fd);
	return ki_log_status(err);
}

static enum kiln_status make_tombstones(struct ki_log *log,
					struct removal *removal)
{
	enum kiln_status status = KILN_OK;
	unsigned i;

	for (i = 0; i < removal->n && !status; i++)
		status = make_tombstone(log, &removal->led_to[i].record,
					removal->led_to[i].number,
					removal->led_to[i].units);
	removal->n = 0;
	return status;
}

static enum kiln_status make_lasting(struct ki_log *log,
				     struct log_index *index,
				     struct removal *removal)
{
	unsigned i;

	if (!removal->n)
		return KILN_OK;
	if (ki_log_write_tombstone(log, index, removal->key, 0))
		return make_tombstones(log, removal);
	for (i = 0; i < removal->n; i++)
		if (removal->led_to[i].record.flags & LOG_OWN_FILE)
			ki_log_segment_unlink(log, index,
					      removal->led_to[i].number);
	removal->n = 0;
	return KILN_OK;
}

/* One slot.  KILN_MISS: nothing of the key is there (any more). */
static enum kiln_status clear_slot(struct ki_log *log, struct log_index *index,
				   uint64_t slot, struct removal *removal)
{
	enum kiln_status status = KILN_OK;
	struct log_found found;
	int tries;

	for (tries = 0; tries < LOG_TRIES; tries++) {
		status = ki_log_find_in(log, index, removal->key, slot, &found);
		if (status == KILN_E_FORMAT)
			continue;
		if (status == KILN_E_COLLISION)
			status = KILN_MISS;
		if (status)
			return status;
		if (removal->n == 2 * LOG_WORDS)
			status = make_tombstones(log, removal);
		atomic_fetch_add(&index->header->n_removed, 1);
		if (!status && ki_log_word_swap(index, slot, found.word, 0)) {
			removal->led_to[removal->n].record = found.view.record;
			removal->led_to[removal->n].number = found.view.number;
			removal->led_to[removal->n++].units = found.view.units;
			removal->removed = 1;
		}
		ki_log_view_close(&found.view);
		if (status)
			return status;
	}
	return KILN_E_TIMEOUT;
}

/* Clear every word of the key, tentative ones too, or one that is dead would
   be settled later.  LOG_AGAIN: the index was retired. */
static enum kiln_status clear_words(struct ki_log *log, struct log_index *index,
				    struct removal *removal)
{
	const struct kiln_key *key = removal->key;
	enum kiln_status status;
	uint64_t slots[2];
	unsigned i;

	ki_log_slots_of(index, key->digest_low, key->digest_high, slots);
	if (ki_log_index_bring(index, slots))
		return KILN_E_IO;
	for (i = 0; i < 2 * LOG_WORDS; i++) {
		status = clear_slot(log, index,
				    slots[i / LOG_WORDS] + i % LOG_WORDS,
				    removal);
		if (status != KILN_MISS)
			return status;
	}
	return ki_log_is_retired(index) ? LOG_AGAIN : KILN_OK;
}

static enum kiln_status remove_from(struct ki_log *log, struct log_index *index,
				    void *arg)
{
	struct removal *removal = arg;
	enum kiln_status status;

	ki_log_segments_sweep(log, index);
	status = clear_words(log, index, removal);
	if (!status)
		status = make_lasting(log, index, removal);
	/* Made anew before that was there? */
	return !status && ki_log_is_retired(index) ? LOG_AGAIN : status;
}

enum kiln_status ki_log_remove(struct kiln_tier *tier,
			       const struct kiln_key *key)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct removal removal = { .key = key };
	enum kiln_status status =
		ki_log_change(log, LOG_CHANGE, remove_from, &removal);

	if (status)
		(void)make_tombstones(log, &removal);
	else if (!removal.removed)
		status = KILN_MISS;
	return status;
}
