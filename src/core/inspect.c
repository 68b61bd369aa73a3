/* SPDX-License-Identifier: MIT */

/* What is asked of the store as a whole: each call is the store's own. */

#include "core/cache.h"

#include <stdlib.h>

#include "base/hash.h"

void kiln_entry_fini(struct kiln_entry *entry)
{
	kiln_blob_unref(entry->record);
	entry->record = NULL;
	kiln_blob_unref(entry->metadata);
	entry->metadata = NULL;
}

/*
 * Enter, with the store; the reason where there is none: why it is not in use,
 * or that none was given.
 */
static enum kiln_status enter(struct kiln *kiln, struct kiln_tier **out_store)
{
	enum kiln_status status = ki_kiln_enter(kiln);

	if (status)
		return status;
	*out_store = ki_kiln_store(kiln);
	if (*out_store)
		return KILN_OK;
	status = kiln->store_status < 0 ? kiln->store_status
					: KILN_E_UNSUPPORTED;
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_list(struct kiln *kiln, struct kiln_cursor *cursor,
			   struct kiln_entry *out_entry)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	*out_entry = (struct kiln_entry){ { 0 } }; /* a tier's may be older */
	status = store->ops->list ? store->ops->list(store, cursor, out_entry)
				  : KILN_E_UNSUPPORTED;
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_verify(struct kiln *kiln, unsigned flags,
			     kiln_progress_fn *progress, void *arg,
			     struct kiln_verify_report *out_report)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	if (flags & ~(KILN_VERIFY_REPAIR | KILN_VERIFY_ACCOUNTING))
		status = KILN_E_INVALID;
	else if (flags && !ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	else if (!store->ops->verify)
		status = KILN_E_UNSUPPORTED;
	else
		status = store->ops->verify(store, flags, progress, arg,
					    out_report);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_gc(struct kiln *kiln,
			 const struct kiln_gc_options *options,
			 kiln_progress_fn *progress, void *arg,
			 struct kiln_gc_report *out_report)
{
	static const struct kiln_gc_options none;
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	if (!options)
		options = &none;
	if (options->flags & ~KILN_GC_QUARANTINE)
		status = KILN_E_INVALID;
	else if (!ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	else if (!store->ops->gc)
		status = KILN_E_UNSUPPORTED;
	else
		status = store->ops->gc(store, options, progress, arg,
					out_report);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_store_info(struct kiln *kiln,
				 struct kiln_store_info *out_info)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	status = store->ops->info ? store->ops->info(store, out_info)
				  : KILN_E_UNSUPPORTED;
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_remove_at_close(struct kiln *kiln)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	if (!(kiln->flags & KILN_OPEN_SESSION))
		status = KILN_E_INVALID;
	else if (!store->ops->remove_at_close)
		status = KILN_E_UNSUPPORTED;
	else
		status = store->ops->remove_at_close(store);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_keep_sources(struct kiln *kiln, struct kiln_kept *sources,
				   size_t n_sources)
{
	struct kiln_tier *store;
	enum kiln_status status;
	size_t i;

	for (i = 0; i < n_sources; i++) {
		ki_blake2b(sources[i].data, sources[i].size, sources[i].digest);
		sources[i].is_kept = 0;
	}
	status = enter(kiln, &store);
	if (status)
		return status;
	if (kiln->flags & KILN_OPEN_NO_SOURCES || !store->ops->keep_sources)
		status = KILN_E_UNSUPPORTED;
	else if (!ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	else
		status = store->ops->keep_sources(store, sources, n_sources);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_find_source(
	struct kiln *kiln, const uint8_t digest[KILN_SOURCE_DIGEST_BYTES],
	struct kiln_blob **out_source)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	status = store->ops->find_source
			 ? store->ops->find_source(store, digest, out_source)
			 : KILN_E_UNSUPPORTED;
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_set_limit(struct kiln *kiln, uint64_t store_bytes_max)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	if (!ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	else if (!store->ops->set_limit)
		status = KILN_E_UNSUPPORTED;
	else
		status = store->ops->set_limit(store, store_bytes_max);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_set_eviction(struct kiln *kiln,
				   enum kiln_eviction eviction)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	if (eviction != KILN_EVICT_BY_USE && eviction != KILN_EVICT_BY_COST)
		status = KILN_E_INVALID;
	else if (!ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	else if (!store->ops->set_eviction)
		status = KILN_E_UNSUPPORTED;
	else
		status = store->ops->set_eviction(store, eviction);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_store_counters(struct kiln *kiln,
				     struct kiln_store_counters *out_counters)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	ki_kiln_flush(kiln);
	status = store->ops->counters
			 ? store->ops->counters(store, out_counters)
			 : KILN_E_UNSUPPORTED;
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_store_counters_zero(struct kiln *kiln)
{
	struct kiln_tier *store;
	enum kiln_status status = enter(kiln, &store);

	if (status)
		return status;
	ki_kiln_flush(kiln); /* what came before goes with the rest */
	if (!ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	else
		status = store->ops->zero_counters
				 ? store->ops->zero_counters(store)
				 : KILN_E_UNSUPPORTED;
	ki_kiln_leave(kiln);
	return status;
}

void kiln_note_build(struct kiln *kiln, int begins)
{
	struct kiln_tier *store;

	if (enter(kiln, &store))
		return;
	if (store->ops->note_build && ki_kiln_writes(kiln))
		store->ops->note_build(store, begins);
	ki_kiln_leave(kiln);
}

unsigned kiln_builds_now(struct kiln *kiln)
{
	struct kiln_tier *store;
	unsigned n;

	if (enter(kiln, &store))
		return 0;
	n = store->ops->builds_now ? store->ops->builds_now(store) : 0;
	ki_kiln_leave(kiln);
	return n;
}
