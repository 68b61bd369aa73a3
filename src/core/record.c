/* SPDX-License-Identifier: MIT */

/*
 * Keeping the order of first use (order.c) in the store, once, at the end.
 *
 *	close, exit -> the order kept so far -> merge -> unchanged: nothing
 *						      -> a replacing put
 *
 * The put is the store's own and counts as none: that nobody asked for it should
 * not show in what is counted.  It may fail; the order is then as it was.  At
 * exit() it allocates, which counting does not: a handler that calls exit() over
 * malloc() is undone by the drivers' own destructors first.
 */

#include "core/cache.h"

#include <stdlib.h>
#include <string.h>

int ki_kiln_may_record(const struct kiln *kiln, const char *store_url)
{
	const uint32_t others =
		KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER | KILN_OPEN_SESSION;

	return kiln->has_store && (kiln->flags & KILN_OPEN_ORDER) &&
	       !(kiln->flags & others) &&
	       (!strncmp(store_url, "log:", 4) ||
		!strncmp(store_url, "file:", 5));
}

struct kiln_metadata *ki_kiln_describe_order(const char *application)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_FLAGS, KILN_ENTRY_HIDDEN);
	kiln_metadata_add_u64(metadata, KILN_META_CREATED,
			      sys->realtime_ns(sys) / 1000000000u);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION, application);
	return metadata;
}

static void keep(struct kiln *kiln, const struct kiln_key *key,
		 const char *application, const void *value, size_t value_size)
{
	struct kiln_metadata *metadata = ki_kiln_describe_order(application);
	const void *bytes;
	size_t size;

	if (!kiln_metadata_bytes(metadata, &bytes, &size))
		(void)ki_kiln_put_in_store(kiln, key, bytes, size, value,
					   value_size);
	kiln_metadata_free(metadata);
}

static void record(struct kiln *kiln, const struct kiln_key *key,
		   const char *application)
{
	struct kiln_blob *kept = NULL;
	size_t size;
	void *bytes;

	if (ki_kiln_get_from_store(kiln, key, &kept))
		kept = NULL;
	if (!ki_order_merge(kiln->order, kept ? kiln_blob_data(kept) : NULL,
			    kept ? kiln_blob_size(kept) : 0, &bytes, &size)) {
		keep(kiln, key, application, bytes, size);
		ki_kiln_send_order(kiln, key, bytes, size);
		free(bytes);
	} else if (kept && atomic_load(&kiln->has_sent)) {
		/* Who brings entries to a remote brings their order. */
		ki_kiln_send_order(kiln, key, kiln_blob_data(kept),
				   kiln_blob_size(kept));
	}
	kiln_blob_unref(kept);
}

void ki_kiln_record(struct kiln *kiln)
{
	char path[KI_PATH_MAX];
	const char *application;
	struct kiln_key *key;

	if (!kiln->order || !ki_order_has_any(kiln->order))
		return;
	application = ki_kiln_application(kiln, path);
	if (!application || kiln_order_key(application, &key))
		return;
	record(kiln, key, application);
	kiln_key_free(key);
}
