/* SPDX-License-Identifier: MIT */

/*
 * Looking at every entry: the index is walked slot by slot, while it changes.
 * A cursor is a slot and the number of slots it was counted in; when the index
 * grows it is scaled like the buckets are, so it stays about where it was.
 */

#include "store/log/log.h"

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
	entry.order = view->record.order;
	entry.referenced = !!ki_log_was_used(index, slot);
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

		if (!word || log_word_is_tentative(word) ||
		    ki_log_view_open(log, index, word, &view))
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
			.bytes_sources = ki_log_source_bytes(&census),
			.generation = index->header->generation,
			.quota_bytes = limits.quota_bytes,
			.quota_used =
				index->header->quota.used & ~LOG_QUOTA_CLOSED,
			.eviction = limits.policy & LOG_BY_COST
					    ? KILN_EVICT_BY_COST
					    : KILN_EVICT_BY_USE,
		};
		ki_log_census_fini(&census);
	}
	if (status == KILN_MISS && ki_log_is_damaged(log))
		status = KILN_E_FORMAT;
	ki_log_leave(log, stripe);
	return status;
}
