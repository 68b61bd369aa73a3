/* SPDX-License-Identifier: MIT */

/*
 * Looking at every entry: the index is walked slot by slot, while it changes.
 * A cursor is a slot and the number of slots it was counted in; when the index
 * grows it is scaled like the buckets are, so it stays about where it was.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define QUARANTINE_BYTES_MAX ((uint64_t)1 << 24) /* of one entry */

/* ---- List ------------------------------------------------------------ */

static enum kiln_status fill_entry(struct log_index *index, uint64_t slot,
				   const struct log_view *view,
				   struct kiln_entry *out_entry)
{
	struct kiln_entry entry = { 0 };
	enum kiln_status status;

	status = kiln_blob_copy(ki_log_view_key(view), view->record.key_size,
				&entry.record);
	if (status)
		return status;
	status = kiln_blob_copy(ki_log_view_metadata(view),
				view->record.metadata_size, &entry.metadata);
	if (status) {
		kiln_blob_unref(entry.record);
		return status;
	}
	memcpy(entry.digest, view->record.digest, sizeof(entry.digest));
	entry.value_size = view->record.value_size;
	entry.stored_size = log_record_bytes(&view->record);
	entry.referenced = !!index->marks[slot];
	*out_entry = entry;
	return KILN_OK;
}

static enum kiln_status list(struct ki_log *log, struct log_index *index,
			     struct kiln_cursor *cursor,
			     struct kiln_entry *out_entry)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS;
	uint64_t slot = cursor->place[0], counted_in = cursor->place[1];
	enum kiln_status status = KILN_END;

	if (counted_in && counted_in != n_slots)
		slot = (uint64_t)((unsigned __int128)slot * n_slots /
				  counted_in);
	cursor->place[1] = n_slots;
	for (; slot < n_slots && status == KILN_END; slot++) {
		uint64_t word = index->words[slot];
		struct log_view view;

		if (!word || ki_log_view_open(log, index, word, &view))
			continue;
		if (ki_log_view_check(log, &view))
			status = fill_entry(index, slot, &view, out_entry);
		ki_log_view_close(&view);
	}
	cursor->place[0] = slot;
	return status;
}

enum kiln_status ki_log_list(struct kiln_tier *tier, struct kiln_cursor *cursor,
			     struct kiln_entry *out_entry)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct log_index *index;
	enum kiln_status status = ki_log_current(log, LOG_READ, &index);

	if (!status)
		status = ki_log_index_bring(index, NULL);
	if (!status)
		status = list(log, index, cursor, out_entry);
	else if (status == KILN_MISS)
		status = KILN_END;
	ki_log_leave(log, stripe);
	return status;
}

/* ---- Verify ---------------------------------------------------------- */

static enum kiln_status keep_bytes(struct ki_log *log, const char *from,
				   uint64_t offset, uint64_t bytes,
				   const char *to)
{
	const struct ki_sys *sys = log->sys;
	char path[KI_PATH_MAX];
	uint8_t *data = malloc((size_t)bytes);
	uint64_t done = 0;
	int in = -1, out = -1, err = -ENOMEM;

	if (!data)
		return KILN_E_NO_MEMORY;
	err = in = sys->open(sys, from, KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	while (in >= 0 && done < bytes) {
		ssize_t n = sys->pread(sys, in, data + done,
				       (size_t)(bytes - done), offset + done);
		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	if (in >= 0)
		(void)sys->close(sys, in);
	if (done)
		err = ki_log_temporary(log, done, path, &out);
	if (out >= 0) {
		err = ki_pwrite_all(sys, out, data, (size_t)done, 0);
		(void)sys->close(sys, out);
		if (!err)
			err = sys->rename(sys, path, to);
		if (err)
			(void)sys->unlink(sys, path);
	}
	free(data);
	return err < 0 ? ki_log_status(err) : KILN_OK;
}

/*
 * Put a damaged record's bytes aside, for people to look at: if they fit the
 * bound without anything having to go, at most a 64th of it in all.
 */
static void quarantine(struct ki_log *log, struct log_index *index,
		       uint64_t word)
{
	const struct ki_sys *sys = log->sys;
	uint32_t min_live = ki_log_min_live(index);
	uint32_t number = log_word_segment(word, min_live);
	uint64_t bytes = log_word_bytes(word);
	char from[KI_PATH_MAX], directory[KI_PATH_MAX], to[KI_PATH_MAX];
	struct log_limit_values limits;
	struct log_census census;
	struct log_lock lock;
	int n;

	if (bytes > QUARANTINE_BYTES_MAX ||
	    ki_log_structure_begin(log, &lock, LOG_CHANGE_TIMEOUT_MS))
		return;
	if (!ki_log_is_current_locked(log, index) ||
	    ki_log_census_take(log, 1, &census))
		goto out;
	ki_log_limits_get(log, index, &limits);
	if (limits.bytes_max &&
	    (bytes > limits.bytes_max / 64 ||
	     census.bytes + bytes + 3 * 4096 > limits.bytes_max))
		goto fini;
	n = snprintf(directory, sizeof(directory), "%s/%s.quarantine",
		     log->directory, log->name);
	if (n < 0 || n >= KI_PATH_MAX)
		goto fini;
	n = snprintf(to, sizeof(to), "%s/%s.quarantine/%08x.%u", log->directory,
		     log->name, number, log_word_units(word));
	if (n < 0 || n >= KI_PATH_MAX || ki_log_segment_path(log, number, from))
		goto fini;
	(void)sys->mkdir(sys, directory, 0700);
	(void)keep_bytes(log, from, (uint64_t)log_word_units(word) * LOG_UNIT,
			 bytes, to);
fini:
	ki_log_census_fini(&census);
out:
	ki_log_structure_end(log, &lock);
}

/*
 * Whether one word's record is whole; adds it to the account if it can be read.
 * KILN_OK, KILN_E_FORMAT, KILN_MISS (its file is gone); others: not readable
 * now, which says nothing about the record.
 */
static enum kiln_status verify_word(struct ki_log *log, struct log_index *index,
				    uint64_t word,
				    struct kiln_verify_report *report)
{
	struct log_view view;
	enum kiln_status status =
		ki_log_view_open_alone(log, index, word, &view);

	if (status)
		return status;
	if (log_word_tag(word) !=
		    ki_log_tag_of(ki_digest_low(view.record.digest)) ||
	    !ki_log_view_check(log, &view))
		status = KILN_E_FORMAT;
	report->bytes += log_record_bytes(&view.record);
	ki_log_view_close(&view);
	return status;
}

static enum kiln_status verify(struct ki_log *log, struct log_index *index,
			       int repair, kiln_progress_fn *progress,
			       void *arg, struct kiln_verify_report *report)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint64_t bytes_live = 0, n_entries = 0;

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = index->words[slot];
		enum kiln_status status;

		if (progress && !(slot % (n_slots / 256 + 1)))
			progress(arg, slot, n_slots);
		if (!log_word_is_live(word, ki_log_min_live(index)))
			continue;
		status = verify_word(log, index, word, report);
		if (!status) {
			report->n_entries++;
		} else if (index->words[slot] == word &&
			   log_word_is_live(word, ki_log_min_live(index))) {
			report->n_damaged++;
			if (!repair ||
			    (status != KILN_E_FORMAT && status != KILN_MISS))
				continue;
			quarantine(log, index, word);
			report->n_repaired += (uint64_t)ki_log_word_swap(
				index, slot, word, 0);
		}
	}
	for (slot = 0; repair && slot < n_slots; slot++) {
		uint64_t word = index->words[slot];

		n_entries += !!word;
		bytes_live += word ? log_word_bytes(word) : 0;
	}
	if (repair) {
		index->header->n_entries = n_entries;
		index->header->bytes_live = bytes_live;
	}
	if (progress)
		progress(arg, n_slots, n_slots);
	return KILN_OK;
}

enum kiln_status ki_log_verify(struct kiln_tier *tier, unsigned flags,
			       kiln_progress_fn *progress, void *arg,
			       struct kiln_verify_report *out_report)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct kiln_verify_report report = { 0 };
	int repair = !!(flags & KILN_VERIFY_REPAIR);
	_Atomic uint64_t *stripe;
	struct log_index *index;
	enum kiln_status status;

	if (repair && log->readonly)
		return KILN_E_READONLY;
	stripe = ki_log_enter(log);
	status = ki_log_current(log, LOG_READ, &index);
	if (!status && repair && !index->writable)
		status = KILN_E_READONLY;
	if (!status)
		status = ki_log_index_bring(index, NULL);
	if (!status)
		status = verify(log, index, repair, progress, arg, &report);
	else if (status == KILN_MISS)
		status = KILN_OK;
	if (!status)
		*out_report = report;
	ki_log_leave(log, stripe);
	return status;
}

/* ---- Info ------------------------------------------------------------ */

enum kiln_status ki_log_info(struct kiln_tier *tier,
			     struct kiln_store_info *out_info)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct log_limit_values limits;
	const struct log_fixed *fixed;
	struct log_census census;
	struct log_index *index;
	enum kiln_status status = ki_log_current(log, LOG_READ, &index);

	if (!status)
		status = ki_log_census_take(log, 0, &census);
	if (!status) {
		ki_log_limits_get(log, index, &limits);
		fixed = ki_log_fixed(index->header);
		*out_info = (struct kiln_store_info){
			.kind = "log",
			.format_version = LOG_VERSION,
			.user_version = fixed ? fixed->user_version : 0,
			.n_entries = index->header->n_entries,
			.bytes = census.bytes,
			.bytes_max = limits.bytes_max,
			.bytes_live = index->header->bytes_live,
			.generation = index->header->generation,
		};
		ki_log_census_fini(&census);
	}
	ki_log_leave(log, stripe);
	return status;
}
