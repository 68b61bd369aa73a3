/* SPDX-License-Identifier: MIT */

/*
 * Of an entry nothing is kept in memory but what finds it again, so that the list
 * may be long.  Its place is a cursor, which holds as long as the index does; once
 * an entry is not at its place, all are looked for anew.
 */

#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "front/opencl/driver.h"
#include "front/opencl/kept.h"

#define LOOK_AT_SIGNALS 256 /* entries */

/* ---- What an entry is of ----------------------------------------------- */

int ki_field_begins(const struct kiln_field *field, const char *prefix)
{
	size_t n = strlen(prefix);

	return field->label_size >= n && !memcmp(field->label, prefix, n);
}

/* Whether another driver, or time, would give another value. */
static int is_passing(const struct kiln_field *field)
{
	static const char *const prefixes[] = { "platform ", "compiler ",
						"device ", "layer ",
						"include " };
	size_t i;

	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (ki_field_begins(field, prefixes[i]))
			return 1;
	/* The whole key of a link's input; "input 0 binary 0" stays. */
	return ki_field_begins(field, "input ") &&
	       !memmem(field->label, field->label_size, " binary ", 8);
}

static void add_field(struct ki_bytes *bytes, const struct kiln_field *field)
{
	ki_bytes_add_u64(bytes, (uint64_t)field->kind);
	ki_bytes_add_u64(bytes, field->label_size);
	ki_bytes_add(bytes, field->label, field->label_size);
	ki_bytes_add_u64(bytes, field->original_size);
	ki_bytes_add_u64(bytes, field->size);
	ki_bytes_add(bytes, field->data, field->size);
}

/* Sources, options, variables: what does not come from the driver. */
static void add_what(struct ki_bytes *bytes, const void *record, size_t size)
{
	struct kiln_field field;
	size_t position = 0;

	while (!kiln_record_next(record, size, &position, &field))
		if (!is_passing(&field))
			add_field(bytes, &field);
}

int ki_field_is_of_device(const struct kiln_field *field, const char *what)
{
	size_t n = strlen(what);

	return ki_field_begins(field, "device ") && field->label_size > n &&
	       !memcmp(field->label + field->label_size - n, what, n);
}

/* For which devices of which platform. */
static int add_devices(struct ki_bytes *bytes, const void *record, size_t size)
{
	struct kiln_field field;
	size_t position = 0;
	int has_includes = 0;

	while (!kiln_record_next(record, size, &position, &field)) {
		has_includes |= ki_field_begins(&field, "include ");
		if (ki_field_is_of_device(&field, " name") ||
		    ki_field_is_of_device(&field, " type") ||
		    ki_field_begins(&field, "platform name"))
			add_field(bytes, &field);
	}
	return has_includes;
}

static int is_variable(const char *variable, size_t size, const char *name)
{
	size_t n = strlen(name);

	return size > n && !memcmp(variable, name, n) && variable[n] == '=';
}

/* Those by which drivers and what they run are found. */
static void add_places(struct ki_bytes *bytes, const char *variables,
		       size_t size)
{
	while (size) {
		size_t n = strnlen(variables, size), i;

		if (is_variable(variables, n, "PATH"))
			ki_bytes_add(bytes, variables, n + (n < size));
		for (i = 0; ki_cl_loader_variables[i]; i++)
			if (is_variable(variables, n,
					ki_cl_loader_variables[i]))
				ki_bytes_add(bytes, variables, n + (n < size));
		n += n < size;
		variables += n;
		size -= n;
	}
}

/* Entries that give the same digest are made again as one. */
static int digest_item(const struct kiln_entry *entry,
		       uint8_t out[KILN_DIGEST_BYTES])
{
	const void *record = kiln_blob_data(entry->record), *data;
	size_t size = kiln_blob_size(entry->record), data_size;
	const void *metadata = kiln_blob_data(entry->metadata);
	size_t metadata_size = kiln_blob_size(entry->metadata);
	struct ki_bytes bytes;
	int failed;

	ki_bytes_init(&bytes);
	add_what(&bytes, record, size);
	if (add_devices(&bytes, record, size) &&
	    !kiln_metadata_find(metadata, metadata_size, KILN_META_DIRECTORY,
				&data, &data_size))
		ki_bytes_add(&bytes, data, data_size);
	if (!kiln_metadata_find(metadata, metadata_size, KILN_META_ENVIRONMENT,
				&data, &data_size))
		add_places(&bytes, data, data_size);
	ki_xxh3_128(bytes.data, bytes.size, out);
	failed = bytes.failed;
	ki_bytes_fini(&bytes);
	return !failed;
}

/* Whether a record is of the same sources and options as another. */
int ki_plan_is_same(const void *a, size_t a_size, const void *b, size_t b_size)
{
	struct ki_bytes x, y;
	int is_same;

	ki_bytes_init(&x);
	ki_bytes_init(&y);
	add_what(&x, a, a_size);
	add_what(&y, b, b_size);
	is_same = !x.failed && !y.failed && x.size == y.size &&
		  !memcmp(x.data, y.data, x.size);
	ki_bytes_fini(&x);
	ki_bytes_fini(&y);
	return is_same;
}

static int is_for_device(const struct kiln_entry *entry, const char *wanted)
{
	struct kiln_field field;
	size_t position = 0, n = strlen(wanted), i;

	while (!kiln_record_next(kiln_blob_data(entry->record),
				 kiln_blob_size(entry->record), &position,
				 &field)) {
		if (!ki_field_is_of_device(&field, " name"))
			continue;
		for (i = 0; i + n <= field.size; i++)
			if (!strncasecmp((const char *)field.data + i, wanted,
					 n))
				return 1;
	}
	return 0;
}

/* ---- The list ---------------------------------------------------------- */

uint64_t ki_entry_number(const struct kiln_entry *entry,
			 enum kiln_metadata_field field)
{
	uint64_t number = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
				     kiln_blob_size(entry->metadata), field,
				     &number);
	return number;
}

/* What two records of the same sources and options have in common. */
static enum kiln_status hash_what(const void *record, size_t size,
				  uintptr_t *out_what)
{
	struct ki_bytes bytes;
	int failed;

	ki_bytes_init(&bytes);
	add_what(&bytes, record, size);
	*out_what = (uintptr_t)ki_xxh3_64(bytes.data, bytes.size) | 1;
	failed = bytes.failed;
	ki_bytes_fini(&bytes);
	return failed ? KILN_E_NO_MEMORY : KILN_OK;
}

static size_t last_of(const struct ki_plan *plan, uintptr_t what)
{
	return (size_t)(uintptr_t)ki_map_get(&plan->last, what);
}

static enum kiln_status add_there(struct ki_plan *plan,
				  const uint8_t digest[KILN_DIGEST_BYTES],
				  const void *record, size_t size)
{
	size_t n_max = plan->n_there_max ? plan->n_there_max * 2 : 256;
	struct ki_there *there = plan->there;
	uintptr_t what;

	if (plan->n_there == plan->n_there_max) {
		there = realloc(there, n_max * sizeof(*there));
		if (!there)
			return KILN_E_NO_MEMORY;
		plan->there = there;
		plan->n_there_max = n_max;
	}
	there += plan->n_there;
	if (hash_what(record, size, &what))
		return KILN_E_NO_MEMORY;
	memcpy(there->digest, digest, sizeof(there->digest));
	there->before = last_of(plan, what);
	if (ki_map_put(&plan->last, what,
		       (void *)(uintptr_t)(plan->n_there + 1)))
		return KILN_E_NO_MEMORY;
	plan->n_there++;
	return KILN_OK;
}

enum kiln_status ki_plan_there(const struct ki_plan *plan, const void *record,
			       size_t size, uint8_t **out_digests,
			       size_t *out_n)
{
	size_t n = 0, at, first;
	uint8_t *digests;
	uintptr_t what;

	if (hash_what(record, size, &what))
		return KILN_E_NO_MEMORY;
	first = last_of(plan, what);
	for (at = first; at; at = plan->there[at - 1].before)
		n++;
	digests = malloc(n * KILN_DIGEST_BYTES + 1);
	if (!digests)
		return KILN_E_NO_MEMORY;
	*out_digests = digests;
	*out_n = n;
	for (at = first; at; at = plan->there[at - 1].before) {
		memcpy(digests, plan->there[at - 1].digest, KILN_DIGEST_BYTES);
		digests += KILN_DIGEST_BYTES;
	}
	return KILN_OK;
}

static enum kiln_status add_known(struct ki_plan *plan,
				  const struct kiln_entry *entry,
				  const struct kiln_cursor *place)
{
	size_t n_max = plan->n_known_max ? plan->n_known_max * 2 : 256;
	struct ki_known *known = plan->known;

	if (plan->n_known == plan->n_known_max) {
		known = realloc(known, n_max * sizeof(*known));
		if (!known)
			return KILN_E_NO_MEMORY;
		plan->known = known;
		plan->n_known_max = n_max;
	}
	known += plan->n_known;
	memcpy(known->digest, entry->digest, sizeof(known->digest));
	if (!digest_item(entry, known->item))
		return KILN_E_NO_MEMORY;
	known->place = *place;
	known->created = ki_entry_number(entry, KILN_META_CREATED);
	known->build_ns = ki_entry_number(entry, KILN_META_BUILD_TIME);
	plan->n_known++;
	return KILN_OK;
}

/* Of devices that are not wanted no more than that it is there: another driver may name the
   wanted one so, and what it was rebuilt to is there. */
static enum kiln_status add(struct ki_plan *plan,
			    const struct kiln_entry *entry,
			    const struct kiln_cursor *place)
{
	const void *record = kiln_blob_data(entry->record);
	const size_t size = kiln_blob_size(entry->record);
	enum kiln_status status;

	if (!(int)ki_cl_key_kind(record, size))
		return KILN_OK;
	status = add_there(plan, entry->digest, record, size);
	if (!status && (!plan->device || is_for_device(entry, plan->device)))
		status = add_known(plan, entry, place);
	return status;
}

static enum kiln_status list(struct ki_plan *plan)
{
	struct ki_waiter *waiter = plan->waiter;
	struct kiln_cursor cursor = { { 0 } }, place;
	struct kiln_entry entry;
	enum kiln_status status;
	size_t n = 0;

	for (;;) {
		place = cursor;
		status = kiln_list(plan->view, &cursor, &entry);
		if (status)
			break;
		status = add(plan, &entry, &place);
		kiln_entry_fini(&entry);
		if (++n % LOOK_AT_SIGNALS == 0)
			ki_waiter_wait(waiter, 0);
		if (status || waiter->ended_by)
			break;
	}
	return status == KILN_END ? KILN_OK
	       : waiter->ended_by ? KILN_END
				  : status;
}

static int by_item(const void *a, const void *b)
{
	const struct ki_known *x = a, *y = b;
	int order = memcmp(x->item, y->item, sizeof(x->item));

	if (order)
		return order;
	return (x->created < y->created) - (x->created > y->created);
}

static int longest_first(const void *a, const void *b, void *arg)
{
	const struct ki_known *known = arg;
	uint64_t x = known[*(const size_t *)a].build_ns;
	uint64_t y = known[*(const size_t *)b].build_ns;

	return (x < y) - (x > y);
}

/* One item for all entries of one digest. */
static enum kiln_status make_items(struct ki_plan *plan)
{
	struct ki_known *known = plan->known;
	size_t n = plan->n_known, i;

	plan->items = calloc(n + 1, sizeof(*plan->items));
	if (!plan->items)
		return KILN_E_NO_MEMORY;
	if (n)
		qsort(known, n, sizeof(*known), by_item);
	for (i = 0; i < n; i++)
		if (!i || memcmp(known[i].item, known[i - 1].item,
				 sizeof(known->item)))
			plan->items[plan->n_items++] = i;
	if (plan->n_items)
		qsort_r(plan->items, plan->n_items, sizeof(*plan->items),
			longest_first, known);
	return KILN_OK;
}

/* ---- An entry again ----------------------------------------------------- */

static int is_digest(const struct kiln_entry *entry,
		     const struct ki_known *known)
{
	return !memcmp(entry->digest, known->digest, sizeof(known->digest));
}

static int by_digest(const void *a, const void *b)
{
	const struct ki_known *const *x = a, *const *y = b;

	return memcmp((*x)->digest, (*y)->digest, sizeof((*x)->digest));
}

static int is_at(const void *digest, const void *b)
{
	const struct ki_known *const *known = b;

	return memcmp(digest, (*known)->digest, sizeof((*known)->digest));
}

/* The index has grown, and all places are others. */
static enum kiln_status place_all_again(struct ki_plan *plan)
{
	struct ki_known **sorted = calloc(plan->n_known, sizeof(*sorted));
	struct kiln_cursor cursor = { { 0 } }, place = cursor;
	struct ki_known **found;
	struct kiln_entry entry;
	enum kiln_status status;
	size_t i;

	if (!sorted)
		return KILN_E_NO_MEMORY;
	for (i = 0; i < plan->n_known; i++)
		sorted[i] = &plan->known[i];
	qsort(sorted, plan->n_known, sizeof(struct ki_known *), by_digest);
	while (!(status = kiln_list(plan->view, &cursor, &entry))) {
		found = bsearch(entry.digest, sorted, plan->n_known,
				sizeof(struct ki_known *), is_at);
		if (found)
			(*found)->place = place;
		kiln_entry_fini(&entry);
		place = cursor;
	}
	free(sorted);
	return status == KILN_END ? KILN_OK : status;
}

/* KILN_MISS: not at its place. */
static enum kiln_status look_at(struct ki_plan *plan,
				const struct ki_known *known,
				struct kiln_entry *out_entry)
{
	struct kiln_cursor cursor = known->place;

	if (kiln_list(plan->view, &cursor, out_entry))
		return KILN_MISS;
	if (is_digest(out_entry, known))
		return KILN_OK;
	kiln_entry_fini(out_entry);
	return KILN_MISS;
}

enum kiln_status ki_plan_find(struct ki_plan *plan, size_t item,
			      struct kiln_entry *out_entry)
{
	const struct ki_known *known = &plan->known[plan->items[item]];
	enum kiln_status status = look_at(plan, known, out_entry);

	if (!status)
		return status;
	status = place_all_again(plan);
	return status ? status : look_at(plan, known, out_entry);
}

/* ---- All of it ----------------------------------------------------------- */

enum kiln_status ki_plan_make(struct ki_plan *plan)
{
	enum kiln_status status = list(plan);

	return status ? status : make_items(plan);
}

void ki_plan_note(struct ki_plan *plan, const void *record, size_t size)
{
	uint8_t digest[KILN_DIGEST_BYTES];

	ki_xxh3_128(record, size, digest);
	(void)add_there(plan, digest, record, size);
}

void ki_plan_fini(struct ki_plan *plan)
{
	free(plan->there);
	ki_map_fini(&plan->last);
	free(plan->items);
	free(plan->known);
}
