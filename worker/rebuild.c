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
 * What the items are is plan.c's.  A key that a child answers must be of the same
 * sources and options as its item: a driver that writes wild could otherwise put a
 * binary under another's.
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
#include "plan.h"
#include "worker.h"

#define DIGITS		(2 * KILN_DIGEST_BYTES)
#define AT_ONCE_MAX	256
#define CHILD_BYTES_MIN ((uint64_t)512 << 20) /* else fewer at once */
#define VARIABLES_MAX	256
#define NS_PER_MS	((uint64_t)1000000)
#define FOR_EVER_NS	((uint64_t)3600 * 1000000000)

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
	struct ki_plan plan;
	size_t next; /* item */
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
				  .numbers = { rebuild->plan.n_items -
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

/* It is there, whoever made it. */
static void be_current(struct rebuild *rebuild, const struct slot *slot)
{
	rebuild->worker->n_current++;
	report(rebuild, "current", slot->name, NULL, NULL);
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

/* ---- An entry as a job ------------------------------------------------- */

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
		if (!ki_field_begins(&field, prefix))
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
		n += (uint32_t)ki_field_is_of_device(&field, " type");
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
		.build_ns = ki_entry_number(entry, KILN_META_BUILD_TIME),
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
		.denied = rebuild->denied_digests[0],
		.n_denied = rebuild->options->retries ? 0 : rebuild->denied.n,
	};
	struct ki_try try = {
		.job = &slot->job,
		.time_limit_ns = ki_worker_time_limit(worker, &slot->job),
		.memory_bytes_max = rebuild->child_bytes_max,
		.is_awaited = 1,
	};
	uint8_t *known = NULL;
	int err = -ENOMEM;

	if (!ki_plan_there(&rebuild->plan, slot->job.record,
			   slot->job.record_size, &known, &item.n_known)) {
		item.known = known;
		err = try.item_fd = ki_item_write(&item);
	}
	free(known);
	if (err >= 0) {
		err = ki_trial_begin(&try, &worker->waiter, &slot->trial);
		(void)close(try.item_fd);
	}
	slot->began_ns = sys->monotonic_ns(sys);
	return err;
}

/* KILN_OK also if it cannot be made again, and is told of. */
static enum kiln_status begin(struct rebuild *rebuild, struct slot *slot,
			      size_t n)
{
	enum kiln_status status;
	int err = 0;

	status = ki_plan_find(&rebuild->plan, n, &slot->entry);
	if (status) /* evicted meanwhile; or why the store cannot be used */
		return status == KILN_MISS ? KILN_OK : status;
	ki_hex(slot->entry.digest, KILN_DIGEST_BYTES, slot->name);
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

static void finish_made(struct rebuild *rebuild, const struct slot *slot,
			const struct ki_answer *answer)
{
	enum kiln_status status = KILN_E_INVALID;

	if (ki_plan_is_same(answer->record, answer->record_size,
			    slot->job.record, slot->job.record_size))
		status = ki_worker_publish(rebuild->worker, answer, &slot->job);
	if (status == KILN_OK || status == KILN_EXISTS) {
		ki_plan_note(&rebuild->plan, answer->record,
			     answer->record_size);
		forgive(rebuild, answer);
	}
	switch (status) {
	case KILN_OK:
		succeed(rebuild, slot, answer->value_size);
		break;
	case KILN_EXISTS:
		be_current(rebuild, slot);
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
		be_current(rebuild, slot);
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

/* A crash is what is remembered: of what had said what it builds. */
static void fail_ended(struct rebuild *rebuild, const struct slot *slot,
		       const struct ki_answer *answer, const char *how)
{
	if (answer)
		deny(rebuild, slot, answer, "crash");
	fail(rebuild, slot, answer ? "crash" : "worker", how);
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
		fail_ended(rebuild, slot, bytes ? &answer : NULL,
			   strsignal(number));
		break;
	case KI_TRY_TOO_LONG:
		if (bytes)
			deny(rebuild, slot, &answer, "time");
		fail(rebuild, slot, "time", "it took too long");
		break;
	case KI_TRY_NO_ANSWER:
		fail_ended(rebuild, slot, bytes ? &answer : NULL, "no answer");
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
		       rebuild->next < rebuild->plan.n_items && !status) {
			status = begin(rebuild, &rebuild->slots[i],
				       rebuild->next++);
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
	if (n > rebuild->plan.n_items)
		n = rebuild->plan.n_items ? (unsigned)rebuild->plan.n_items : 1;
	if (bytes_max && n > bytes_max / CHILD_BYTES_MIN)
		n = (unsigned)(bytes_max / CHILD_BYTES_MIN);
	rebuild->n_slots = n ? n : 1;
	rebuild->child_bytes_max = bytes_max / rebuild->n_slots;
}

static enum kiln_status prepare(struct rebuild *rebuild)
{
	enum kiln_status status = ki_plan_make(&rebuild->plan);

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
	rebuild->plan.view = worker->view;
	rebuild->plan.waiter = &worker->waiter;
	rebuild->plan.device = options->device;
	status = prepare(rebuild);
	if (!status) {
		report_left(rebuild);
		status = run(rebuild);
	}
	free(rebuild->slots);
	free(rebuild->denied_digests);
	ki_plan_fini(&rebuild->plan);
	free(rebuild);
	return status;
}
