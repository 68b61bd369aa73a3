/* SPDX-License-Identifier: MIT */

/*
 * kiln why, without a key: what the last run missed, and why.
 *
 * The store counts the misses of the run that began last, by reason, and knows the
 * program and when it began, to the second.  What of the misses is stored by now are
 * entries of that program that were made since then: of more than it missed, those
 * that were made last, of one second those that were stored last where the store
 * knows (a run may be over in a second, and the next begin in it).  Each is compared
 * with what was stored before.  Misses that nobody stored (refused, not to be cached, or
 * jobs that wait) stay numbers, with what the run spent on building beyond the others.
 */

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "counts.h"
#include "entry.h"
#include "explain.h"
#include "jobs.h"
#include "nearest.h"
#include "out.h"
#include "store.h"
#include "sys/sys.h"
#include "verbs.h"

#define TOLD_MAX 64 /* misses; each costs a comparison with every entry */

struct miss {
	struct kiln_entry entry;
	uint64_t created;
	uint64_t build_ns; /* 0: nobody said */
	struct ki_nearest nearest;
};

struct misses {
	struct kiln_store_counters counters;
	const struct kiln_program_counters *run; /* NULL: none was counted */
	uint64_t n_missed;
	size_t n_jobs;
	struct miss *misses; /* oldest first */
	size_t n;
	size_t n_told;
	size_t capacity;
};

static void misses_free(struct misses *misses)
{
	if (!misses)
		return;
	for (size_t i = 0; i < misses->n; i++) {
		kiln_entry_fini(&misses->misses[i].entry);
		ki_nearest_fini(&misses->misses[i].nearest);
	}
	free(misses->misses);
	free(misses);
}

/* ---- What was missed --------------------------------------------------------------- */

static int look_at_counters(struct kiln *kiln, struct misses *misses)
{
	enum kiln_status status =
		kiln ? kiln_store_counters(kiln, &misses->counters) : KILN_OK;

	if (status == KILN_E_UNSUPPORTED) {
		ki_complain("this kind of store does not count what programs "
			    "do: give a KEY");
		return KI_EXIT_UNAVAILABLE;
	}
	if (status)
		return ki_store_failed(status, "cannot read the counters");
	if (misses->counters.last_run.last) {
		misses->run = &misses->counters.last_run;
		misses->n_missed = misses->run->total[KILN_COUNT_MISSES];
	}
	return KI_EXIT_OK;
}

/* The counters have the end of a long path. */
static int is_of_program(const char *path, const char *name)
{
	const size_t size = strlen(path);

	return !strcmp(size < KILN_PROGRAM_BYTES
			       ? path
			       : path + size - (KILN_PROGRAM_BYTES - 1),
		       name);
}

static int is_of_run(const struct kiln_program_counters *run,
		     const struct ki_entry_view *view)
{
	return !view->is_hidden && !view->is_foreign &&
	       view->created >= run->first &&
	       is_of_program(view->application, run->name);
}

/* 1: it is kept. */
static int keep(struct misses *misses, const struct kiln_entry *entry,
		const struct ki_entry_view *view)
{
	if (misses->n == misses->capacity) {
		size_t more = misses->capacity ? misses->capacity * 2 : 64;
		struct miss *grown =
			realloc(misses->misses, more * sizeof(*grown));

		if (!grown)
			return -1;
		misses->misses = grown;
		misses->capacity = more;
	}
	misses->misses[misses->n++] =
		(struct miss){ .entry = *entry,
			       .created = view->created,
			       .build_ns = view->build_ns };
	return 1;
}

static int newest_first(const void *a, const void *b)
{
	const struct miss *left = a, *right = b;

	if (left->created != right->created)
		return left->created < right->created ? 1 : -1;
	if (left->entry.order != right->entry.order)
		return left->entry.order < right->entry.order ? 1 : -1;
	return memcmp(left->entry.digest, right->entry.digest,
		      KILN_DIGEST_BYTES);
}

/* No more than were missed, and in the order in which they were made. */
static void put_in_order(struct misses *misses)
{
	if (misses->n)
		qsort(misses->misses, misses->n, sizeof(*misses->misses),
		      newest_first);
	while (misses->n > misses->n_missed)
		kiln_entry_fini(&misses->misses[--misses->n].entry);
	for (size_t i = 0; i < misses->n / 2; i++) {
		struct miss *early = &misses->misses[i];
		struct miss *late = &misses->misses[misses->n - 1 - i];
		const struct miss miss = *early;

		*early = *late;
		*late = miss;
	}
	misses->n_told = misses->n < TOLD_MAX ? misses->n : TOLD_MAX;
}

static int collect(struct kiln *kiln, struct misses *misses)
{
	struct kiln_cursor cursor = { { 0 } };
	enum kiln_status status = KILN_END;
	struct kiln_entry entry;
	int kept = 0;

	while (kept >= 0 && !(status = kiln_list(kiln, &cursor, &entry))) {
		struct ki_entry_view view;

		kept = ki_entry_view_init(&view, &entry) ? -1 : 0;
		if (!kept && is_of_run(misses->run, &view))
			kept = keep(misses, &entry, &view);
		ki_entry_view_fini(&view);
		if (kept <= 0)
			kiln_entry_fini(&entry);
	}
	if (kept < 0)
		return ki_store_failed(KILN_E_NO_MEMORY, "cannot list");
	if (status != KILN_END)
		return ki_store_failed(status, "cannot list");
	put_in_order(misses);
	return KI_EXIT_OK;
}

/* ---- What was there before ------------------------------------------------------------ */

static int is_missed(const struct misses *misses,
		     const struct kiln_entry *entry)
{
	for (size_t i = 0; i < misses->n; i++)
		if (!memcmp(misses->misses[i].entry.digest, entry->digest,
			    KILN_DIGEST_BYTES))
			return 1;
	return 0;
}

static int find_nearest(struct kiln *kiln, const struct ki_settings *settings,
			struct misses *misses)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry candidate;
	enum kiln_status status;

	while (!(status = kiln_list(kiln, &cursor, &candidate))) {
		if (!is_missed(misses, &candidate) &&
		    ki_nearest_is_known(settings, &candidate))
			for (size_t i = 0; i < misses->n_told; i++)
				ki_nearest_offer(&misses->misses[i].nearest,
						 &misses->misses[i].entry,
						 &candidate);
		kiln_entry_fini(&candidate);
	}
	return status == KILN_END ? KI_EXIT_OK
				  : ki_store_failed(status, "cannot list");
}

static int look(struct kiln *kiln, const struct ki_settings *settings,
		struct misses *misses)
{
	int status = look_at_counters(kiln, misses);

	if (status || !misses->n_missed)
		return status;
	misses->n_jobs = ki_jobs_pending(settings->spool);
	status = collect(kiln, misses);
	if (!status && misses->n)
		status = find_nearest(kiln, settings, misses);
	return status;
}

/* ---- The answer ---------------------------------------------------------------------- */

static const struct kiln_entry *other_of(const struct miss *miss)
{
	return miss->nearest.is_found ? &miss->nearest.entry : NULL;
}

/* What the misses that are not stored took to build; 0 if that is not known. */
static int find_lost(const struct misses *misses, uint64_t *out_ns)
{
	uint64_t ns = misses->run->total[KILN_COUNT_BUILD_NS];

	if (misses->n_missed <= misses->n) {
		*out_ns = 0;
		return 1;
	}
	for (size_t i = 0; i < misses->n; i++) {
		const uint64_t build_ns = misses->misses[i].build_ns;

		if (!build_ns || build_ns > ns)
			return 0;
		ns -= build_ns;
	}
	*out_ns = ns;
	return ns != 0;
}

static void run_json(struct ki_json *json, const struct misses *misses)
{
	const struct kiln_program_counters *run = misses->run;
	uint64_t lost_ns;

	ki_json_object(json, "run");
	ki_json_string(json, "application", run->name);
	ki_json_number(json, "began", run->first);
	ki_json_number(json, "hits", ki_counts_hits(run->total));
	ki_json_number(json, "misses", misses->n_missed);
	ki_json_number(json, "build_ns", run->total[KILN_COUNT_BUILD_NS]);
	if (find_lost(misses, &lost_ns))
		ki_json_number(json, "not_stored_build_ns", lost_ns);
	ki_json_object(json, "reasons");
	for (unsigned n = 0, c; (c = ki_counts_reason(n)) < KILN_N_COUNTERS;
	     n++)
		ki_json_number(json, kiln_counter_name(c), run->total[c]);
	ki_json_end(json);
	ki_json_end(json);
}

static void print_json(struct ki_bytes *out, struct kiln *kiln,
		       const struct misses *misses)
{
	struct ki_json json;

	ki_out_json(out, &json);
	if (misses->run)
		run_json(&json, misses);
	else
		ki_json_null(&json, "run");
	ki_json_number(&json, "stored", misses->n);
	ki_json_number(&json, "jobs", misses->n_jobs);
	ki_json_array(&json, "misses");
	for (size_t i = 0; i < misses->n_told; i++) {
		ki_json_object(&json, NULL);
		ki_explain_json(&json, kiln, &misses->misses[i].entry,
				other_of(&misses->misses[i]));
		ki_json_end(&json);
	}
	ki_json_end(&json);
	ki_json_end(&json);
}

static void print_run(struct ki_bytes *out, const struct misses *misses)
{
	const struct ki_sys *sys = &ki_sys_posix;
	const uint64_t now = sys->realtime_ns(sys) / 1000000000;
	const struct kiln_program_counters *run = misses->run;
	char age[32];

	ki_bytes_add_string(out, "last run of ");
	ki_out_safe(out, run->name, 0);
	ki_bytes_printf(out, ", began %s: %llu miss%s, %llu hit%s\n",
			ki_format_age(run->first < now ? now - run->first : 0,
				      age, sizeof(age)),
			(unsigned long long)misses->n_missed,
			misses->n_missed == 1 ? "" : "es",
			(unsigned long long)ki_counts_hits(run->total),
			ki_counts_hits(run->total) == 1 ? "" : "s");
	for (unsigned n = 0, c; (c = ki_counts_reason(n)) < KILN_N_COUNTERS;
	     n++)
		if (run->total[c])
			ki_bytes_printf(out, "  %s: %llu\n",
					kiln_counter_words(c),
					(unsigned long long)run->total[c]);
}

static void print_lost(struct ki_bytes *out, const struct misses *misses)
{
	const uint64_t n = misses->n_missed - misses->n;
	uint64_t ns;
	char time[32];

	ki_bytes_printf(out, "\n%llu of them %s not stored",
			(unsigned long long)n, n == 1 ? "is" : "are");
	if (find_lost(misses, &ns))
		ki_bytes_printf(out, ": %s of building",
				ki_format_duration(ns, time, sizeof(time)));
	ki_bytes_add_u8(out, '\n');
}

static void print_rest(struct ki_bytes *out, const struct misses *misses)
{
	if (misses->n > misses->n_told)
		ki_bytes_printf(out,
				"\n%zu more are stored: 'kiln ls' has "
				"them, 'kiln why KEY' explains\n",
				misses->n - misses->n_told);
	if (misses->n_missed > misses->n)
		print_lost(out, misses);
	if (misses->n_jobs)
		ki_bytes_printf(out, "\n%zu job%s: see 'kiln wait'\n",
				misses->n_jobs,
				misses->n_jobs == 1 ? " waits" : "s wait");
}

static void print_text(struct ki_bytes *out, struct kiln *kiln,
		       const struct misses *misses)
{
	if (!misses->run) {
		ki_bytes_add_string(out, "no run was counted here\n");
		return;
	}
	print_run(out, misses);
	for (size_t i = 0; i < misses->n_told; i++) {
		ki_bytes_add_u8(out, '\n');
		ki_explain_text(out, kiln, &misses->misses[i].entry,
				other_of(&misses->misses[i]));
	}
	print_rest(out, misses);
}

static int print(const struct ki_command *command, struct kiln *kiln,
		 const struct misses *misses)
{
	struct ki_bytes out;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, kiln, misses);
	else
		print_text(&out, kiln, misses);
	return ki_out_write(&out, KI_EXIT_OK);
}

int ki_why_run(const struct ki_command *command)
{
	struct misses *misses = calloc(1, sizeof(*misses));
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	int status = ki_settings_load(&settings, command, KI_STORE_LOOK);

	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status && !misses)
		status = ki_store_failed(KILN_E_NO_MEMORY, "cannot look");
	if (!status)
		status = look(kiln, &settings, misses);
	if (!status)
		status = print(command, kiln, misses);
	misses_free(misses);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
