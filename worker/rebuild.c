/* SPDX-License-Identifier: MIT */

/*
 * What the store knows of, made again for the drivers that are here now.
 *
 *	entries   listed once: digest, place, what they are of
 *	   |      the same but for compiler, devices' versions and included files
 *	   v
 *	items     the newest entry of each, the longest builds first
 *	   |      recipe from the kept sources, the rest from the metadata
 *	   v
 *	children  several at once, one for each item, with limits; each computes
 *	   |      the key: is it there? did it end badly before? else it builds
 *	   v
 *	entries   under that key; those of the driver before stay, until they are
 *	          evicted
 *
 * Of an entry nothing is kept in memory but what finds it again, so that the list
 * may be long.  A key that a child answers must be of the same sources and options
 * as its item: a driver that writes wild could otherwise put a binary under
 * another's.
 *
 * Whoever is told to end kills the children; what was published stays, and the
 * rest is found again by the next.
 */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/hash.h"
#include "front/opencl/capture.h"
#include "front/opencl/driver.h"
#include "front/opencl/kept.h"
#include "worker.h"

#define DIGITS		(2 * KILN_DIGEST_BYTES)
#define AT_ONCE_MAX	256
#define CHILD_BYTES_MIN ((uint64_t)512 << 20) /* else fewer at once */
#define LOOK_AT_SIGNALS 256		      /* entries */
#define VARIABLES_MAX	256
#define NS_PER_MS	((uint64_t)1000000)
#define FOR_EVER_NS	((uint64_t)3600 * 1000000000)

/* An entry of the store. */
struct known {
	uint8_t digest[KILN_DIGEST_BYTES];
	uint8_t item[KILN_DIGEST_BYTES]; /* equal: of one item */
	struct kiln_cursor place;
	uint64_t created;
	uint64_t build_ns;
};

/* What one child is at work on. */
struct slot {
	int is_used;
	struct ki_trial trial;
	char name[DIGITS + 1];
	uint64_t began_ns;
	/* What the job points to. */
	struct kiln_entry entry;
	struct ki_cl_recipe *recipe;
	char *texts[4]; /* platform, directory, application, namespace */
	const char *environment[VARIABLES_MAX];
	struct ki_cl_job job;
};

struct rebuild {
	struct ki_worker *worker;
	const struct ki_rebuild_options *options;
	struct known *known; /* by item, the newest of each first */
	size_t n_known;
	size_t n_known_max;
	size_t *items; /* the first of each, longest builds first */
	size_t n_items;
	size_t next;
	uint8_t *digests; /* of all entries, also those made now */
	size_t n_digests;
	struct ki_denied denied;
	uint8_t (*denied_digests)[KILN_DIGEST_BYTES];
	struct slot *slots;
	unsigned n_slots;
	unsigned n_running;
	uint64_t child_bytes_max;
};

/* ---- Reporting --------------------------------------------------------- */

static void report_left(struct rebuild *rebuild)
{
	struct ki_event event = { .event = "jobs",
				  .number_names = { "jobs" },
				  .numbers = { rebuild->n_items -
					       rebuild->next +
					       rebuild->n_running } };

	ki_progress_emit(&rebuild->worker->progress, &event);
}

static void report(struct rebuild *rebuild, const char *what, const char *name,
		   const char *reason, const char *text)
{
	struct ki_event event = {
		.event = what, .name = name, .reason = reason, .text = text
	};

	ki_progress_emit(&rebuild->worker->progress, &event);
}

static void skip(struct rebuild *rebuild, const struct slot *slot,
		 const char *reason, const char *text)
{
	rebuild->worker->n_skipped++;
	report(rebuild, "skipped", slot->name, reason, text);
}

static void fail(struct rebuild *rebuild, const struct slot *slot,
		 const char *reason, const char *text)
{
	rebuild->worker->n_failed++;
	report(rebuild, "failed", slot->name, reason, text);
}

static void report_begin(struct rebuild *rebuild, const struct slot *slot)
{
	struct ki_event event = { .event = "begin",
				  .name = slot->name,
				  .number_names = { "try" },
				  .numbers = { 1 },
				  .text = slot->job.application };

	ki_progress_emit(&rebuild->worker->progress, &event);
}

static void succeed(struct rebuild *rebuild, const struct slot *slot,
		    uint64_t bytes)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_event event = {
		.event = "done",
		.name = slot->name,
		.number_names = { "ms", "bytes" },
		.numbers = { (sys->monotonic_ns(sys) - slot->began_ns) /
				     NS_PER_MS,
			     bytes },
	};

	rebuild->worker->n_done++;
	ki_progress_emit(&rebuild->worker->progress, &event);
}

/* ---- What an entry is of ----------------------------------------------- */

static int begins(const struct kiln_field *field, const char *prefix)
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
		if (begins(field, prefixes[i]))
			return 1;
	/* The whole key of a link's input; "input 0 binary 0" stays. */
	return begins(field, "input ") &&
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

static int is_of_device(const struct kiln_field *field, const char *what)
{
	size_t n = strlen(what);

	return begins(field, "device ") && field->label_size > n &&
	       !memcmp(field->label + field->label_size - n, what, n);
}

/* For which devices of which platform. */
static int add_devices(struct ki_bytes *bytes, const void *record, size_t size)
{
	struct kiln_field field;
	size_t position = 0;
	int has_includes = 0;

	while (!kiln_record_next(record, size, &position, &field)) {
		has_includes |= begins(&field, "include ");
		if (is_of_device(&field, " name") ||
		    is_of_device(&field, " type") ||
		    begins(&field, "platform name"))
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
static int is_same_what(const void *a, size_t a_size, const void *b,
			size_t b_size)
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
		if (!is_of_device(&field, " name"))
			continue;
		for (i = 0; i + n <= field.size; i++)
			if (!strncasecmp((const char *)field.data + i, wanted,
					 n))
				return 1;
	}
	return 0;
}

/* ---- The list ---------------------------------------------------------- */

static uint64_t number_of(const struct kiln_entry *entry,
			  enum kiln_metadata_field field)
{
	uint64_t number = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
				     kiln_blob_size(entry->metadata), field,
				     &number);
	return number;
}

static enum kiln_status add_known(struct rebuild *rebuild,
				  const struct kiln_entry *entry,
				  const struct kiln_cursor *place)
{
	size_t n_max = rebuild->n_known_max ? rebuild->n_known_max * 2 : 256;
	struct known *known = rebuild->known;

	if (rebuild->n_known == rebuild->n_known_max) {
		known = realloc(known, n_max * sizeof(*known));
		if (!known)
			return KILN_E_NO_MEMORY;
		rebuild->known = known;
		rebuild->n_known_max = n_max;
	}
	known += rebuild->n_known;
	memcpy(known->digest, entry->digest, sizeof(known->digest));
	if (!digest_item(entry, known->item))
		return KILN_E_NO_MEMORY;
	known->place = *place;
	known->created = number_of(entry, KILN_META_CREATED);
	known->build_ns = number_of(entry, KILN_META_BUILD_TIME);
	rebuild->n_known++;
	return KILN_OK;
}

static int is_wanted(const struct rebuild *rebuild,
		     const struct kiln_entry *entry)
{
	return (int)ki_cl_key_kind(kiln_blob_data(entry->record),
				   kiln_blob_size(entry->record)) &&
	       (!rebuild->options->device ||
		is_for_device(entry, rebuild->options->device));
}

static enum kiln_status list(struct rebuild *rebuild)
{
	struct ki_waiter *waiter = &rebuild->worker->waiter;
	struct kiln_cursor cursor = { { 0 } }, place;
	struct kiln_entry entry;
	enum kiln_status status;
	size_t n = 0;

	for (;;) {
		place = cursor;
		status = kiln_list(rebuild->worker->view, &cursor, &entry);
		if (status)
			break;
		if (is_wanted(rebuild, &entry))
			status = add_known(rebuild, &entry, &place);
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
	const struct known *x = a, *y = b;
	int order = memcmp(x->item, y->item, sizeof(x->item));

	if (order)
		return order;
	return (x->created < y->created) - (x->created > y->created);
}

static int longest_first(const void *a, const void *b, void *arg)
{
	const struct known *known = arg;
	uint64_t x = known[*(const size_t *)a].build_ns;
	uint64_t y = known[*(const size_t *)b].build_ns;

	return (x < y) - (x > y);
}

/* One item for all entries of one digest. */
static enum kiln_status make_items(struct rebuild *rebuild)
{
	struct known *known = rebuild->known;
	size_t n = rebuild->n_known, i;

	rebuild->items = calloc(n + 1, sizeof(*rebuild->items));
	/* Each item makes one more. */
	rebuild->digests = calloc(2 * n + 1, KILN_DIGEST_BYTES);
	if (!rebuild->items || !rebuild->digests)
		return KILN_E_NO_MEMORY;
	if (n)
		qsort(known, n, sizeof(*known), by_item);
	for (i = 0; i < n; i++) {
		memcpy(rebuild->digests + i * KILN_DIGEST_BYTES,
		       known[i].digest, KILN_DIGEST_BYTES);
		if (!i || memcmp(known[i].item, known[i - 1].item,
				 sizeof(known->item)))
			rebuild->items[rebuild->n_items++] = i;
	}
	rebuild->n_digests = n;
	if (rebuild->n_items)
		qsort_r(rebuild->items, rebuild->n_items,
			sizeof(*rebuild->items), longest_first, known);
	return KILN_OK;
}

/* ---- An entry as a job ------------------------------------------------- */

static int is_digest(const struct kiln_entry *entry, const struct known *known)
{
	return !memcmp(entry->digest, known->digest, sizeof(known->digest));
}

static int by_digest(const void *a, const void *b)
{
	const struct known *const *x = a, *const *y = b;

	return memcmp((*x)->digest, (*y)->digest, sizeof((*x)->digest));
}

static int is_at(const void *digest, const void *b)
{
	const struct known *const *known = b;

	return memcmp(digest, (*known)->digest, sizeof((*known)->digest));
}

/* The index has grown, and all places are others. */
static enum kiln_status place_all_again(struct rebuild *rebuild)
{
	struct known **sorted = calloc(rebuild->n_known, sizeof(*sorted));
	struct kiln_cursor cursor = { { 0 } }, place = cursor;
	struct known **found;
	struct kiln_entry entry;
	enum kiln_status status;
	size_t i;

	if (!sorted)
		return KILN_E_NO_MEMORY;
	for (i = 0; i < rebuild->n_known; i++)
		sorted[i] = &rebuild->known[i];
	qsort(sorted, rebuild->n_known, sizeof(struct known *), by_digest);
	while (!(status = kiln_list(rebuild->worker->view, &cursor, &entry))) {
		found = bsearch(entry.digest, sorted, rebuild->n_known,
				sizeof(struct known *), is_at);
		if (found)
			(*found)->place = place;
		kiln_entry_fini(&entry);
		place = cursor;
	}
	free(sorted);
	return status == KILN_END ? KILN_OK : status;
}

/* KILN_MISS: not at its place. */
static enum kiln_status look_at(struct rebuild *rebuild,
				const struct known *known,
				struct kiln_entry *out_entry)
{
	struct kiln_cursor cursor = known->place;

	if (kiln_list(rebuild->worker->view, &cursor, out_entry))
		return KILN_MISS;
	if (is_digest(out_entry, known))
		return KILN_OK;
	kiln_entry_fini(out_entry);
	return KILN_MISS;
}

static enum kiln_status find_entry(struct rebuild *rebuild,
				   const struct known *known,
				   struct kiln_entry *out_entry)
{
	enum kiln_status status = look_at(rebuild, known, out_entry);

	if (!status)
		return status;
	status = place_all_again(rebuild);
	return status ? status : look_at(rebuild, known, out_entry);
}

/* NULL: it is not there, or without memory. */
static char *text_of(const void *data, size_t size)
{
	return memchr(data, 0, size) ? NULL : strndup(data, size);
}

static char *metadata_text(const struct kiln_entry *entry,
			   enum kiln_metadata_field field)
{
	const void *data;
	size_t size;

	if (kiln_metadata_find(kiln_blob_data(entry->metadata),
			       kiln_blob_size(entry->metadata), field, &data,
			       &size))
		return NULL;
	return size ? text_of(data, size) : strdup("");
}

static char *platform_of(const struct kiln_entry *entry)
{
	struct kiln_field field;

	if (kiln_record_find(kiln_blob_data(entry->record),
			     kiln_blob_size(entry->record), "platform name",
			     &field) ||
	    !field.size)
		return NULL;
	return text_of(field.data, field.size);
}

/* By the library that it was, else by its platform. */
static const struct ki_cl_driver *driver_of(const struct kiln_entry *entry,
					    const char *platform)
{
	static const char prefix[] = "compiler library ";
	const size_t n = sizeof(prefix) - 1;
	const struct ki_cl_driver_row *row;
	char name[KILN_LABEL_BYTES_MAX + 1];
	struct kiln_field field;
	size_t position = 0;

	while (!kiln_record_next(kiln_blob_data(entry->record),
				 kiln_blob_size(entry->record), &position,
				 &field)) {
		if (!begins(&field, prefix))
			continue;
		memcpy(name, field.label + n, field.label_size - n);
		name[field.label_size - n] = '\0';
		row = ki_cl_driver_of_library(name);
		if (ki_cl_driver_is_known(row))
			return &row->driver;
	}
	row = ki_cl_driver_of_platform(platform);
	return row ? &row->driver : NULL;
}

static uint32_t count_devices(const struct kiln_entry *entry)
{
	struct kiln_field field;
	size_t position = 0;
	uint32_t n = 0;

	while (!kiln_record_next(kiln_blob_data(entry->record),
				 kiln_blob_size(entry->record), &position,
				 &field))
		n += (uint32_t)is_of_device(&field, " type");
	return n;
}

/* They end with a NUL each, or are none. */
static uint32_t take_environment(const struct kiln_entry *entry,
				 const char **out_variables)
{
	const char *at;
	const void *data;
	size_t size;
	uint32_t n = 0;

	if (kiln_metadata_find(kiln_blob_data(entry->metadata),
			       kiln_blob_size(entry->metadata),
			       KILN_META_ENVIRONMENT, &data, &size) ||
	    !size || ((const char *)data)[size - 1])
		return 0;
	for (at = data; at < (const char *)data + size && n < VARIABLES_MAX;
	     at += strlen(at) + 1)
		if (*at != '=' && strchr(at, '='))
			out_variables[n++] = at;
	return n;
}

static void empty(struct slot *slot)
{
	size_t i;

	kiln_entry_fini(&slot->entry);
	ki_cl_recipe_unref(slot->recipe);
	for (i = 0; i < sizeof(slot->texts) / sizeof(slot->texts[0]); i++)
		free(slot->texts[i]);
	memset(slot, 0, sizeof(*slot));
}

/* Why it cannot be made again: reason and text, by skip(). */
static int take_job(struct rebuild *rebuild, struct slot *slot)
{
	const struct kiln_entry *entry = &slot->entry;
	const struct ki_sys *sys = &ki_sys_posix;
	const struct ki_cl_driver *driver;
	enum kiln_status status;

	slot->texts[0] = platform_of(entry);
	slot->texts[1] = metadata_text(entry, KILN_META_DIRECTORY);
	slot->texts[2] = metadata_text(entry, KILN_META_APPLICATION);
	slot->texts[3] = metadata_text(entry, KILN_META_NAMESPACE);
	driver = slot->texts[0] ? driver_of(entry, slot->texts[0]) : NULL;
	if (!driver || !driver->worker_may_build) {
		skip(rebuild, slot, "driver",
		     slot->texts[0] ? slot->texts[0] : "no known driver");
		return 0;
	}
	if (!slot->texts[1] || !*slot->texts[1]) {
		skip(rebuild, slot, "directory", "where it ran is not known");
		return 0;
	}
	status = ki_cl_recall(
		rebuild->worker->view, kiln_blob_data(entry->record),
		kiln_blob_size(entry->record), kiln_blob_data(entry->metadata),
		kiln_blob_size(entry->metadata), &slot->recipe);
	if (status) {
		skip(rebuild, slot, "source",
		     status == KILN_MISS ? "its source is not kept"
					 : kiln_status_name(status));
		return 0;
	}
	slot->job = (struct ki_cl_job){
		.record = kiln_blob_data(entry->record),
		.record_size = kiln_blob_size(entry->record),
		.platform_name = slot->texts[0],
		.driver = driver->name,
		.n_devices = count_devices(entry),
		.recipe = slot->recipe,
		.directory = slot->texts[1],
		.environment = slot->environment,
		.n_environment = take_environment(entry, slot->environment),
		.application = slot->texts[2] ? slot->texts[2] : "",
		.name_space = slot->texts[3] ? slot->texts[3] : "",
		.created = sys->realtime_ns(sys) / 1000000000,
		.build_ns = number_of(entry, KILN_META_BUILD_TIME),
		.stage = KI_CL_STAGE_EARLY,
	};
	return 1;
}

/* ---- Children ---------------------------------------------------------- */

static int begin_child(struct rebuild *rebuild, struct slot *slot)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_worker *worker = rebuild->worker;
	struct ki_item item = {
		.job = &slot->job,
		.known = rebuild->digests,
		.n_known = rebuild->n_digests,
		.denied = rebuild->denied_digests[0],
		.n_denied = rebuild->options->retries ? 0 : rebuild->denied.n,
	};
	struct ki_try try = {
		.item_fd = ki_item_write(&item),
		.job = &slot->job,
		.time_limit_ns = ki_worker_time_limit(worker, &slot->job),
		.memory_bytes_max = rebuild->child_bytes_max,
	};
	int err = try.item_fd;

	if (err >= 0) {
		err = ki_trial_begin(&try, &worker->waiter, &slot->trial);
		(void)close(try.item_fd);
	}
	slot->began_ns = sys->monotonic_ns(sys);
	return err;
}

/* KILN_OK also if it cannot be made again, and is told of. */
static enum kiln_status begin(struct rebuild *rebuild, struct slot *slot,
			      struct known *known)
{
	enum kiln_status status;
	int err = 0;

	status = find_entry(rebuild, known, &slot->entry);
	if (status) /* evicted meanwhile; or why the store cannot be used */
		return status == KILN_MISS ? KILN_OK : status;
	ki_hex(known->digest, KILN_DIGEST_BYTES, slot->name);
	if (take_job(rebuild, slot)) {
		err = begin_child(rebuild, slot);
		if (!err) {
			slot->is_used = 1;
			rebuild->n_running++;
			report_begin(rebuild, slot);
			return KILN_OK;
		}
		fail(rebuild, slot, "worker", strerror(-err));
	}
	empty(slot);
	return KILN_OK;
}

static void copy_denied(struct rebuild *rebuild)
{
	size_t i;

	for (i = 0; i < rebuild->denied.n; i++)
		memcpy(rebuild->denied_digests[i],
		       rebuild->denied.rows[i].digest, KILN_DIGEST_BYTES);
}

/* What it was building, if it had come so far. */
static void deny(struct rebuild *rebuild, const struct slot *slot,
		 const struct ki_answer *answer, const char *reason)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_denied_row row = { .when = sys->realtime_ns(sys) /
					     1000000000 };

	ki_xxh3_128(answer->record, answer->record_size, row.digest);
	snprintf(row.reason, sizeof(row.reason), "%s", reason);
	snprintf(row.text, sizeof(row.text), "%s", slot->job.application);
	ki_denied_add(&rebuild->denied, &row);
	(void)ki_denied_write(&rebuild->denied, rebuild->worker->spool);
	copy_denied(rebuild);
}

static void forgive(struct rebuild *rebuild, const struct ki_answer *answer)
{
	uint8_t digest[KILN_DIGEST_BYTES];

	ki_xxh3_128(answer->record, answer->record_size, digest);
	if (!ki_denied_find(&rebuild->denied, digest))
		return;
	ki_denied_remove(&rebuild->denied, digest);
	(void)ki_denied_write(&rebuild->denied, rebuild->worker->spool);
	copy_denied(rebuild);
}

static void note_made(struct rebuild *rebuild, const struct ki_answer *answer)
{
	if (rebuild->n_digests < 2 * rebuild->n_known)
		ki_xxh3_128(answer->record, answer->record_size,
			    rebuild->digests +
				    rebuild->n_digests++ * KILN_DIGEST_BYTES);
}

static void finish_made(struct rebuild *rebuild, const struct slot *slot,
			const struct ki_answer *answer)
{
	enum kiln_status status = KILN_E_INVALID;

	if (is_same_what(answer->record, answer->record_size, slot->job.record,
			 slot->job.record_size))
		status = ki_worker_publish(rebuild->worker, answer, &slot->job);
	switch (status) {
	case KILN_OK:
	case KILN_EXISTS:
		note_made(rebuild, answer);
		forgive(rebuild, answer);
		succeed(rebuild, slot, answer->value_size);
		break;
	case KILN_E_INVALID:
	case KILN_E_FORMAT:
		fail(rebuild, slot, "worker", kiln_status_name(status));
		break;
	default:
		fail(rebuild, slot, "store", kiln_status_name(status));
	}
}

static void tell_denied(struct rebuild *rebuild, const struct slot *slot,
			const struct ki_answer *answer)
{
	uint8_t digest[KILN_DIGEST_BYTES];
	const struct ki_denied_row *row;
	char text[64 + KI_DENIED_TEXT_BYTES];

	ki_xxh3_128(answer->record, answer->record_size, digest);
	row = ki_denied_find(&rebuild->denied, digest);
	snprintf(text, sizeof(text), "%s before: %s",
		 row && !strcmp(row->reason, "time") ? "it took too long"
						     : "it crashed",
		 slot->job.application);
	skip(rebuild, slot, "denied", text);
}

static void finish_answered(struct rebuild *rebuild, const struct slot *slot,
			    const struct ki_answer *answer)
{
	const char *word = ki_verdict_word(answer->verdict);

	switch (answer->verdict) {
	case KI_VERDICT_MADE:
		finish_made(rebuild, slot, answer);
		break;
	case KI_VERDICT_CURRENT:
		rebuild->worker->n_current++;
		report(rebuild, "current", slot->name, NULL, NULL);
		break;
	case KI_VERDICT_DENIED:
		tell_denied(rebuild, slot, answer);
		break;
	case KI_VERDICT_DRIVER:
	case KI_VERDICT_DEVICE:
	case KI_VERDICT_ABSENT:
		skip(rebuild, slot, word, answer->text);
		break;
	case KI_VERDICT_BUILDING:
		deny(rebuild, slot, answer, word);
		fail(rebuild, slot, word, answer->text);
		break;
	default:
		fail(rebuild, slot, word, answer->text);
	}
}

static void finish(struct rebuild *rebuild, struct slot *slot)
{
	struct ki_answer answer = { .record = NULL };
	void *bytes = NULL;
	int number = 0;

	switch (ki_trial_finish(&slot->trial, &answer, &bytes, &number)) {
	case KI_TRY_ANSWERED:
		finish_answered(rebuild, slot, &answer);
		break;
	case KI_TRY_SIGNALLED:
		if (bytes)
			deny(rebuild, slot, &answer, "crash");
		fail(rebuild, slot, "crash", strsignal(number));
		break;
	case KI_TRY_TOO_LONG:
		if (bytes)
			deny(rebuild, slot, &answer, "time");
		fail(rebuild, slot, "time", "it took too long");
		break;
	case KI_TRY_NO_ANSWER:
		if (bytes)
			deny(rebuild, slot, &answer, "crash");
		fail(rebuild, slot, "worker", "no answer");
		break;
	default:
		fail(rebuild, slot, "worker", "it could not be started");
	}
	free(bytes);
	empty(slot);
	rebuild->n_running--;
}

static void kill_all(struct rebuild *rebuild)
{
	struct ki_answer answer;
	void *bytes;
	unsigned i;
	int number;

	for (i = 0; i < rebuild->n_slots; i++) {
		struct slot *slot = &rebuild->slots[i];

		if (!slot->is_used)
			continue;
		(void)ki_trial_finish(&slot->trial, &answer, &bytes, &number);
		free(bytes);
		empty(slot);
	}
	rebuild->n_running = 0;
}

/* ---- The loop ---------------------------------------------------------- */

static enum kiln_status fill(struct rebuild *rebuild)
{
	enum kiln_status status = KILN_OK;
	unsigned i;

	for (i = 0; i < rebuild->n_slots && !status; i++)
		while (!rebuild->slots[i].is_used &&
		       rebuild->next < rebuild->n_items && !status) {
			size_t first = rebuild->items[rebuild->next++];

			status = begin(rebuild, &rebuild->slots[i],
				       &rebuild->known[first]);
			if (!rebuild->slots[i].is_used)
				report_left(rebuild);
			ki_waiter_wait(&rebuild->worker->waiter, 0);
			if (rebuild->worker->waiter.ended_by)
				status = KILN_END;
		}
	return status;
}

/* How many there were. */
static unsigned finish_ended(struct rebuild *rebuild)
{
	const struct ki_sys *sys = &ki_sys_posix;
	unsigned n = 0, i;

	for (i = 0; i < rebuild->n_slots; i++) {
		struct slot *slot = &rebuild->slots[i];

		if (!slot->is_used ||
		    (!ki_trial_has_ended(&slot->trial) &&
		     sys->monotonic_ns(sys) < slot->trial.deadline_ns))
			continue;
		finish(rebuild, slot);
		report_left(rebuild);
		n++;
	}
	return n;
}

static uint64_t next_deadline(const struct rebuild *rebuild)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint64_t deadline_ns = sys->monotonic_ns(sys) + FOR_EVER_NS;
	unsigned i;

	for (i = 0; i < rebuild->n_slots; i++)
		if (rebuild->slots[i].is_used &&
		    rebuild->slots[i].trial.deadline_ns < deadline_ns)
			deadline_ns = rebuild->slots[i].trial.deadline_ns;
	return deadline_ns;
}

static enum kiln_status run(struct rebuild *rebuild)
{
	struct ki_waiter *waiter = &rebuild->worker->waiter;
	enum kiln_status status = fill(rebuild);

	/* A look before each wait: the signal of one that has ended may have
	   come while others were begun. */
	while (!status && rebuild->n_running) {
		if (!finish_ended(rebuild))
			ki_waiter_wait(waiter, next_deadline(rebuild));
		status = waiter->ended_by ? KILN_END : fill(rebuild);
	}
	kill_all(rebuild);
	return status;
}

/* ---- How many at once -------------------------------------------------- */

static unsigned n_processors(void)
{
	cpu_set_t set;
	int n = 1;

	if (!sched_getaffinity(0, sizeof(set), &set))
		n = CPU_COUNT(&set);
	return n > 0 ? (unsigned)n : 1;
}

/* No more than memory is for; each has an equal part of it. */
static void share_memory(struct rebuild *rebuild)
{
	uint64_t bytes_max = rebuild->worker->memory_bytes_max;
	unsigned n = rebuild->options->n_at_once ? rebuild->options->n_at_once
						 : n_processors();

	if (n > AT_ONCE_MAX)
		n = AT_ONCE_MAX;
	if (n > rebuild->n_items)
		n = rebuild->n_items ? (unsigned)rebuild->n_items : 1;
	if (bytes_max && n > bytes_max / CHILD_BYTES_MIN)
		n = (unsigned)(bytes_max / CHILD_BYTES_MIN);
	rebuild->n_slots = n ? n : 1;
	rebuild->child_bytes_max = bytes_max / rebuild->n_slots;
}

static enum kiln_status prepare(struct rebuild *rebuild)
{
	enum kiln_status status = list(rebuild);

	if (!status)
		status = make_items(rebuild);
	if (status)
		return status;
	share_memory(rebuild);
	rebuild->slots = calloc(rebuild->n_slots, sizeof(*rebuild->slots));
	rebuild->denied_digests =
		calloc(KI_DENIED_MAX, sizeof(*rebuild->denied_digests));
	if (!rebuild->slots || !rebuild->denied_digests)
		return KILN_E_NO_MEMORY;
	ki_denied_read(&rebuild->denied, rebuild->worker->spool);
	copy_denied(rebuild);
	return KILN_OK;
}

enum kiln_status ki_worker_rebuild(struct ki_worker *worker,
				   const struct ki_rebuild_options *options)
{
	struct rebuild *rebuild = calloc(1, sizeof(*rebuild));
	enum kiln_status status = KILN_E_NO_MEMORY;

	if (!rebuild)
		return status;
	worker->is_rebuilding = 1;
	rebuild->worker = worker;
	rebuild->options = options;
	status = prepare(rebuild);
	if (!status) {
		report_left(rebuild);
		status = run(rebuild);
	}
	free(rebuild->slots);
	free(rebuild->denied_digests);
	free(rebuild->digests);
	free(rebuild->items);
	free(rebuild->known);
	free(rebuild);
	return status;
}
