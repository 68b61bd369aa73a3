/* SPDX-License-Identifier: MIT */

/*
 * Namespaces: whose an entry is, and counting the entries of one.
 *
 * The store is asked for its entries one by one, whatever its kind, which may take
 * longer than a put may: a count goes on where it was left.  It keeps those of the
 * namespace with what tells which of them the store would evict first:
 *
 *	what the store itself says of turns, else
 *	what was not used since the last eviction, then
 *	    by use     what was used or made longest ago
 *	    by cost    what was built fastest for its size
 *
 * Of what is kept, only what goes first is needed: where it becomes too much, the
 * half that would go last is let go.
 */

#include "core/cache.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_BYTES_MAX ((size_t)16 << 20)
#define LOOKS_AT_ONCE  16 /* between two looks at the clock */

struct kept {
	struct kiln_blob *record;
	uint64_t bytes;
	int was_used;
	uint64_t rank; /* the lower goes first */
	uint64_t used; /* or made; 0: unknown */
};

struct ki_count {
	char name_space[KILN_NAMESPACE_BYTES];
	struct ki_quota_turn turn;
	struct kiln_cursor cursor;
	uint64_t bytes;
	uint64_t looked_at; /* bytes of all entries */
	int goes_by_cost;
	int is_begun;
	struct kept *kept;
	size_t n, capacity;
	size_t n_tried;	   /* of them, from the first: to be removed */
	size_t kept_bytes; /* of records */
	int is_partial;	   /* some were let go */
};

/* ---- Names ----------------------------------------------------------------- */

static int take_name(const char *name, size_t size,
		     char out[KILN_NAMESPACE_BYTES])
{
	size = strnlen(name, size);
	if (!size)
		return 0;
	if (size >= KILN_NAMESPACE_BYTES)
		size = KILN_NAMESPACE_BYTES - 1;
	memcpy(out, name, size);
	out[size] = '\0';
	return 1;
}

/* What stands behind the last '/'. */
static int take_last_name(const char *path, size_t size,
			  char out[KILN_NAMESPACE_BYTES])
{
	const char *slash;

	size = strnlen(path, size);
	slash = memrchr(path, '/', size);
	if (slash)
		size -= (size_t)(slash + 1 - path);
	return take_name(slash ? slash + 1 : path, size, out);
}

int ki_namespace_is_good(const char *name)
{
	return name && *name && strlen(name) < KILN_NAMESPACE_BYTES &&
	       strcmp(name, KILN_NAMESPACE_OTHERS) != 0;
}

enum kiln_status kiln_namespace_of(const void *metadata, size_t size,
				   char out[KILN_NAMESPACE_BYTES])
{
	const void *data;
	size_t data_size;

	if (!kiln_metadata_find(metadata, size, KILN_META_NAMESPACE, &data,
				&data_size) &&
	    take_name(data, data_size, out))
		return KILN_OK;
	if (!kiln_metadata_find(metadata, size, KILN_META_APPLICATION, &data,
				&data_size) &&
	    take_last_name(data, data_size, out))
		return KILN_OK;
	return KILN_MISS;
}

/* ---- Counting -------------------------------------------------------------- */

struct ki_count *ki_count_new(const char *name_space)
{
	struct ki_count *count = calloc(1, sizeof(*count));

	if (count)
		strcpy(count->name_space, name_space);
	return count;
}

static void let_go(struct ki_count *count, size_t n)
{
	while (count->n > n) {
		struct kept *kept = &count->kept[--count->n];

		count->kept_bytes -= kiln_blob_size(kept->record);
		kiln_blob_unref(kept->record);
	}
}

void ki_count_free(struct ki_count *count)
{
	if (!count)
		return;
	let_go(count, 0);
	free(count->kept);
	free(count);
}

const char *ki_count_name(const struct ki_count *count)
{
	return count->name_space;
}

uint64_t ki_count_bytes(const struct ki_count *count)
{
	return count->bytes;
}

static int first_to_go_first(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	if (x->was_used != y->was_used)
		return x->was_used ? 1 : -1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->used < y->used ? -1 : x->used > y->used;
}

static void sort(struct ki_count *count)
{
	if (count->n)
		qsort(count->kept, count->n, sizeof(*count->kept),
		      first_to_go_first);
}

static uint64_t number_of(const struct kiln_entry *entry,
			  enum kiln_metadata_field field)
{
	uint64_t number = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
				     kiln_blob_size(entry->metadata), field,
				     &number);
	return number;
}

static int keep(struct ki_count *count, const struct kiln_entry *entry,
		uint64_t bytes)
{
	const uint64_t build_ns = number_of(entry, KILN_META_BUILD_TIME);
	struct kept *kept;

	if (count->n == count->capacity) {
		size_t capacity = count->capacity ? count->capacity * 2 : 64;
		void *more =
			realloc(count->kept, capacity * sizeof(*count->kept));

		if (!more)
			return 0;
		count->kept = more;
		count->capacity = capacity;
	}
	kept = &count->kept[count->n++];
	*kept = (struct kept){ .record = kiln_blob_ref(entry->record),
			       .bytes = bytes };
	kept->used =
		entry->used ? entry->used : number_of(entry, KILN_META_CREATED);
	if (entry->turn) {
		kept->rank = entry->turn;
	} else {
		kept->was_used = entry->referenced;
		kept->rank = count->goes_by_cost ? build_ns / (bytes + 1)
						 : kept->used;
	}
	count->kept_bytes += kiln_blob_size(entry->record);
	if (count->kept_bytes > KEPT_BYTES_MAX && count->n > 1) {
		sort(count);
		let_go(count, count->n / 2);
		count->is_partial = 1;
	}
	return 1;
}

static enum kiln_status look_at(struct ki_count *count,
				const struct kiln_entry *entry)
{
	const uint64_t bytes = kiln_blob_size(entry->record) +
			       kiln_blob_size(entry->metadata) +
			       entry->value_size;
	char name[KILN_NAMESPACE_BYTES];

	count->looked_at += bytes;
	if (entry->is_foreign ||
	    kiln_namespace_of(kiln_blob_data(entry->metadata),
			      kiln_blob_size(entry->metadata), name) ||
	    strcmp(name, count->name_space) != 0)
		return KILN_OK;
	count->bytes += bytes;
	return keep(count, entry, bytes) ? KILN_OK : KILN_E_NO_MEMORY;
}

static enum kiln_status begin(struct kiln *kiln, struct ki_count *count)
{
	struct kiln_tier *store = kiln->tiers[0];
	struct kiln_store_info info = { 0 };

	if (!store->ops->list || !store->ops->remove)
		return KILN_E_UNSUPPORTED;
	if (store->ops->info && !store->ops->info(store, &info))
		count->goes_by_cost = info.eviction == KILN_EVICT_BY_COST;
	ki_quota_begin_turn(kiln, count->name_space, &count->turn);
	count->is_begun = 1;
	return KILN_OK;
}

void ki_count_end(struct kiln *kiln, const struct ki_count *count,
		  uint64_t n_evicted)
{
	ki_quota_end_turn(kiln, &count->turn, count->bytes, n_evicted);
}

static int is_late(uint64_t deadline_ns)
{
	return deadline_ns &&
	       ki_sys_posix.monotonic_ns(&ki_sys_posix) >= deadline_ns;
}

enum kiln_status ki_count_step(struct kiln *kiln, struct ki_count *count,
			       uint64_t deadline_ns, kiln_progress_fn *progress,
			       void *arg)
{
	struct kiln_tier *store = kiln->tiers[0];
	enum kiln_status status =
		count->is_begun ? KILN_OK : begin(kiln, count);
	struct kiln_entry entry;

	for (unsigned n = 1; !status; n++) {
		entry = (struct kiln_entry){ { 0 } };
		status = store->ops->list(store, &count->cursor, &entry);
		if (status)
			break;
		status = look_at(count, &entry);
		kiln_entry_fini(&entry);
		if (progress)
			progress(arg, count->looked_at, 0);
		if (!status && n % LOOKS_AT_ONCE == 0 && is_late(deadline_ns))
			return KILN_E_TIMEOUT;
	}
	if (status != KILN_END)
		return status;
	sort(count);
	return KILN_OK;
}

/* ---- Removing -------------------------------------------------------------- */

/* 0: it stays. */
static int remove_kept(struct kiln *kiln, struct ki_count *count,
		       const struct kept *kept)
{
	struct kiln_tier *store = kiln->tiers[0];
	enum kiln_status status;
	struct kiln_key *key;

	if (kiln_key_from_record(kiln_blob_data(kept->record),
				 kiln_blob_size(kept->record), &key))
		return 0;
	status = store->ops->remove(store, key);
	kiln_key_free(key);
	/* Somebody else's removal is as good. */
	if (status < 0)
		return 0;
	count->bytes -= kept->bytes;
	return status == KILN_OK;
}

uint64_t ki_count_evict(struct kiln *kiln, struct ki_count *count,
			uint64_t bytes_max, uint64_t deadline_ns)
{
	uint64_t n = 0;

	while (count->n_tried < count->n && count->bytes > bytes_max &&
	       !is_late(deadline_ns))
		n += (uint64_t)remove_kept(kiln, count,
					   &count->kept[count->n_tried++]);
	ki_kiln_count(kiln, KILN_COUNT_EVICTED, n);
	return n;
}

/* What was used or made before a time, and not seen in use since. */
static uint64_t expire(struct kiln *kiln, struct ki_count *count,
		       uint64_t before)
{
	size_t left = 0;
	uint64_t n = 0;

	for (size_t i = 0; i < count->n; i++) {
		struct kept *kept = &count->kept[i];

		if (kept->was_used || !kept->used || kept->used >= before) {
			count->kept[left++] = *kept;
			continue;
		}
		n += (uint64_t)remove_kept(kiln, count, kept);
		kiln_blob_unref(kept->record);
	}
	count->n = left;
	ki_kiln_count(kiln, KILN_COUNT_EVICTED, n);
	return n;
}

/* ---- Cleaning up ----------------------------------------------------------- */

/* Count, remove; *out_again: some were not looked at for want of memory. */
static enum kiln_status clean_once(struct kiln *kiln, const char *name_space,
				   const struct kiln_gc_options *options,
				   uint64_t quota, kiln_progress_fn *progress,
				   void *arg, struct kiln_gc_report *report,
				   int *out_again)
{
	struct ki_count *count = ki_count_new(name_space);
	uint64_t bytes_max = options->bytes_max, n_expired = 0, n_evicted = 0;
	enum kiln_status status;

	*out_again = 0;
	if (!count)
		return KILN_E_NO_MEMORY;
	if (quota && (!bytes_max || quota < bytes_max))
		bytes_max = quota;
	status = ki_count_step(kiln, count, 0, progress, arg);
	if (!status) {
		const uint64_t now =
			ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000u;
		const uint64_t age = options->age_max_s;

		if (!report->bytes_before)
			report->bytes_before = count->bytes;
		if (age && age < now)
			n_expired = expire(kiln, count, now - age);
		if (bytes_max)
			n_evicted = ki_count_evict(kiln, count, bytes_max, 0);
		report->n_expired += n_expired;
		report->n_evicted += n_evicted;
		report->bytes_after = count->bytes;
		ki_count_end(kiln, count, n_evicted);
		*out_again = count->is_partial && n_expired + n_evicted;
	}
	ki_count_free(count);
	return status;
}

enum kiln_status ki_kiln_clean_namespace(struct kiln *kiln,
					 const char *name_space,
					 const struct kiln_gc_options *options,
					 kiln_progress_fn *progress, void *arg,
					 struct kiln_gc_report *out_report)
{
	const uint64_t quota = ki_quota_of(kiln, name_space);
	struct kiln_gc_report report = { 0 };
	enum kiln_status status;
	int again;

	do {
		status = clean_once(kiln, name_space, options, quota, progress,
				    arg, &report, &again);
	} while (!status && again);
	if (report.n_evicted || report.n_expired)
		ki_memory_wipe(kiln->memory);
	if (!status)
		*out_report = report;
	return status;
}

enum kiln_status kiln_gc_namespace(struct kiln *kiln, const char *name_space,
				   const struct kiln_gc_options *options,
				   kiln_progress_fn *progress, void *arg,
				   struct kiln_gc_report *out_report)
{
	static const struct kiln_gc_options none;
	enum kiln_status status;

	if (!options)
		options = &none;
	if (!ki_namespace_is_good(name_space) || options->flags)
		return KILN_E_INVALID;
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	if (!kiln->has_store)
		status = kiln->store_status < 0 ? kiln->store_status
						: KILN_E_UNSUPPORTED;
	else if (!ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	else
		status = ki_kiln_clean_namespace(kiln, name_space, options,
						 progress, arg, out_report);
	ki_kiln_leave(kiln);
	return status;
}
