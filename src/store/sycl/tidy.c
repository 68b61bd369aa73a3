/* SPDX-License-Identifier: MIT */

/*
 * What goes over everything and changes it: gc, limits, counting.  Others store
 * meanwhile, so the turn is held for moments only:
 *
 *	look at all lock files; wait for all of them together	-
 *	remove those that have stood all the while		turn
 *	note what there is					turn
 *	look at all entries					-
 *	records of none go, the sum is put right		turn
 *	a few entries go, then a pause as long as that took	turn, again and again
 *
 * An entry that was used, or changed, since it was looked at stays.  The sum is
 * put right only if nobody has stored or removed anything meanwhile, or if it
 * cannot be true: then all is counted once more, with the turn.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define BATCH	     32 /* entries that go in one turn */
#define PAUSE_MIN_NS ((uint64_t)1000000)
#define PAUSE_MAX_NS ((uint64_t)50 * 1000000)

/* ---- Lock files that were left behind ------------------------------------------------ */

/* Somebody else's. */
struct standing {
	char *lock_path;
	uint64_t inode;
	int64_t ctime_ns; /* inode numbers come again */
};

struct watching {
	const struct ki_sycl *sycl;
	struct standing *of;
	size_t n, capacity;
};

static int add_standing(struct watching *watching, const char *lock_path,
			const struct ki_file_info *info)
{
	struct standing *of = watching->of;

	if (watching->n == watching->capacity) {
		const size_t capacity =
			watching->capacity ? watching->capacity * 2 : 16;

		of = realloc(of, capacity * sizeof(*of));
		if (!of)
			return -ENOMEM;
		watching->of = of;
		watching->capacity = capacity;
	}
	of[watching->n] = (struct standing){ strdup(lock_path), info->inode,
					     info->ctime_ns };
	return of[watching->n].lock_path ? (watching->n++, 0) : -ENOMEM;
}

/* PATH + SUFFIX, if it is there and no kiln's. */
static int watch(struct watching *watching, const char *path,
		 const char *suffix)
{
	const struct ki_sys *sys = watching->sycl->sys;
	struct ki_file_info info, held;
	char lock_path[KI_PATH_MAX];

	if (snprintf(lock_path, sizeof(lock_path), "%s%s", path, suffix) >=
		    (int)sizeof(lock_path) ||
	    sys->lstat(sys, lock_path, &info))
		return 0;
	if (!sys->lstat(sys, watching->sycl->held_path, &held) &&
	    held.inode == info.inode && held.device == info.device)
		return 0;
	return add_standing(watching, lock_path, &info);
}

static int watch_entry(void *arg, const char *stem, unsigned has)
{
	struct watching *watching = arg;
	char path[KI_PATH_MAX];
	int err = 0;

	if (!(has & (KI_SYCL_LOCK | KI_SYCL_USE_LOCK)) ||
	    ki_sycl_path(watching->sycl, stem, path))
		return 0;
	if (has & KI_SYCL_LOCK)
		err = watch(watching, path, ".lock");
	if (!err && (has & KI_SYCL_USE_LOCK))
		err = watch(watching, path, "_access_time.txt.lock");
	return err;
}

static void watch_all(struct watching *watching)
{
	const struct ki_sycl *sycl = watching->sycl;

	(void)watch(watching, sycl->size_path, ".lock");
	(void)watch(watching, sycl->evict_path, ".lock");
	(void)watch(watching, sycl->evict_other, ".lock");
	(void)ki_sycl_walk(sycl, watch_entry, watching);
}

static int is_standing(const struct ki_sys *sys,
		       const struct standing *standing)
{
	struct ki_file_info info;

	return !sys->lstat(sys, standing->lock_path, &info) &&
	       info.inode == standing->inode &&
	       info.ctime_ns == standing->ctime_ns;
}

/* Forget those that have gone. */
static void look_again(struct watching *watching)
{
	size_t n = 0;

	for (size_t i = 0; i < watching->n; i++) {
		if (is_standing(watching->sycl->sys, &watching->of[i]))
			watching->of[n++] = watching->of[i];
		else
			free(watching->of[i].lock_path);
	}
	watching->n = n;
}

static void watch_for_long(struct watching *watching)
{
	const struct ki_sycl *sycl = watching->sycl;
	const struct ki_sys *sys = sycl->sys;
	const uint64_t until_ns = sys->monotonic_ns(sys) + sycl->stale_ns;
	uint64_t pause_ns = PAUSE_MIN_NS;

	while (watching->n && sys->monotonic_ns(sys) < until_ns) {
		sys->sleep_ns(sys, pause_ns);
		pause_ns = pause_ns * 2 < PAUSE_MAX_NS ? pause_ns * 2
						       : PAUSE_MAX_NS;
		look_again(watching);
	}
}

void ki_sycl_free_left(struct ki_sycl *sycl)
{
	struct watching watching = { .sycl = sycl };
	struct ki_sycl_turn turn;

	watch_all(&watching);
	watch_for_long(&watching);
	if (watching.n && !ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn)) {
		for (size_t i = 0; i < watching.n; i++)
			if (is_standing(sycl->sys, &watching.of[i]))
				(void)ki_sycl_take_away(
					sycl, watching.of[i].lock_path,
					watching.of[i].inode);
		(void)ki_sycl_turn_end(sycl, &turn);
	}
	for (size_t i = 0; i < watching.n; i++)
		free(watching.of[i].lock_path);
	free(watching.of);
}

void ki_sycl_name_left(const struct ki_sycl *sycl)
{
	struct watching watching = { .sycl = sycl };
	const int64_t now_ns = (int64_t)sycl->sys->realtime_ns(sycl->sys);

	watch_all(&watching);
	for (size_t i = 0; i < watching.n; i++) {
		if (now_ns - watching.of[i].ctime_ns >= (int64_t)sycl->stale_ns)
			ki_sycl_say(sycl, KILN_LOG_WARNING,
				    watching.of[i].lock_path,
				    "has stood for long; gc removes it if "
				    "nobody does");
		free(watching.of[i].lock_path);
	}
	free(watching.of);
}

/* ---- Looking ---------------------------------------------------------------------- */

/* All entries, and what there was before they were looked at. */
struct look {
	struct ki_sycl_plan plan;
	uint64_t n_changes, noted;
};

static enum kiln_status look_at_all(struct ki_sycl *sycl,
				    struct look *out_look) KI_NO_ANALYSIS
{
	struct ki_sycl_turn turn;
	enum kiln_status status;

	*out_look = (struct look){ .n_changes = 0 };
	ki_sycl_free_left(sycl);
	status = ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);
	if (status)
		return status;
	out_look->n_changes = ki_records_n_changes(sycl->records);
	(void)ki_sycl_turn_end(sycl, &turn);
	out_look->noted = turn.noted;
	return ki_status_from_errno(ki_sycl_plan_all(sycl, &out_look->plan));
}

/* Look, then take the turn in which use_look() judges what was seen. */
static enum kiln_status look_then_begin(struct ki_sycl *sycl,
					struct look *out_look,
					struct ki_sycl_turn *turn)
	KI_TRY_ACQUIRE(0, sycl->writer) KI_NO_ANALYSIS
{
	enum kiln_status status = look_at_all(sycl, out_look);

	if (!status)
		status = ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, turn);
	if (status)
		ki_sycl_plan_end(&out_look->plan);
	return status;
}

/* Whether what was found is all that there is. */
static int is_still(const struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		    const struct look *look)
{
	return turn->noted == look->noted &&
	       ki_records_n_changes(sycl->records) == look->n_changes &&
	       !ki_sycl_is_other_evicting(sycl);
}

/* In a turn; the plan becomes sycl->plan. */
static enum kiln_status use_look(struct ki_sycl *sycl,
				 struct ki_sycl_turn *turn, struct look *look,
				 struct ki_sycl_report *report)
{
	const int still = is_still(sycl, turn, look);

	if (!still && turn->has_size && !turn->is_sure) {
		ki_sycl_plan_end(&look->plan);
		return ki_sycl_count(sycl, turn, report);
	}
	return ki_sycl_use_plan(sycl, turn, &look->plan, still, report);
}

enum kiln_status ki_sycl_count_anew(struct ki_sycl *sycl,
				    struct kiln_verify_report *report)
{
	struct ki_sycl_report counted = { 0 };
	struct ki_sycl_turn turn;
	struct look look;
	enum kiln_status status = look_then_begin(sycl, &look, &turn);

	if (status)
		return status;
	report->n_noted = ki_records_totals(sycl->records).n_living;
	report->bytes_noted = turn.noted == UINT64_MAX ? 0 : turn.noted;
	status = use_look(sycl, &turn, &look, &counted);
	ki_sycl_plan_end(&sycl->plan);
	report->n_counted = ki_records_totals(sycl->records).n_living;
	report->bytes_counted = turn.total;
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}

/* ---- Removing --------------------------------------------------------------------- */

struct cleaning {
	struct ki_sycl *sycl;
	struct ki_sycl_goal goal;
	struct ki_sycl_plan plan; /* between turns */
	struct ki_sycl_report report;
	uint64_t total; /* of the directory, where no sum is kept */
	uint64_t until_ns;
};

static void lay_aside(struct cleaning *cleaning,
		      const struct ki_sycl_turn *turn)
{
	struct ki_sycl *sycl = cleaning->sycl;

	cleaning->plan = sycl->plan;
	sycl->plan = (struct ki_sycl_plan){ .n = 0 };
	cleaning->total = turn->total;
}

/* One turn: KILN_OK, KILN_END when nothing more has to go. */
static enum kiln_status clean_some(struct cleaning *cleaning) KI_NO_ANALYSIS
{
	struct ki_sycl *sycl = cleaning->sycl;
	struct ki_sycl_turn turn;
	enum kiln_status status =
		ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);

	if (status)
		return status;
	if (turn.noted == UINT64_MAX)
		ki_sycl_recount(sycl, &turn, cleaning->total);
	ki_sycl_plan_end(&sycl->plan);
	sycl->plan = cleaning->plan;
	status = ki_sycl_clean_some(sycl, &turn, &cleaning->goal, BATCH,
				    &cleaning->report);
	lay_aside(cleaning, &turn);
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}

/* Who waits for the turn asks now and then: he has it as long as we had. */
static enum kiln_status clean(struct cleaning *cleaning)
{
	const struct ki_sys *sys = cleaning->sycl->sys;
	enum kiln_status status = KILN_OK;

	cleaning->until_ns = sys->monotonic_ns(sys) + cleaning->sycl->stale_ns +
			     PAUSE_MAX_NS;
	while (!status) {
		const uint64_t begun_ns = sys->monotonic_ns(sys);
		uint64_t took_ns;

		status = clean_some(cleaning);
		took_ns = sys->monotonic_ns(sys) - begun_ns;
		/* Somebody else evicts. */
		if (status == KILN_E_TIMEOUT &&
		    sys->monotonic_ns(sys) < cleaning->until_ns) {
			took_ns = PAUSE_MAX_NS;
			status = KILN_OK;
		}
		if (!status)
			sys->sleep_ns(sys, took_ns < PAUSE_MIN_NS ? PAUSE_MIN_NS
					   : took_ns > PAUSE_MAX_NS
						   ? PAUSE_MAX_NS
						   : took_ns);
	}
	ki_sycl_plan_end(&cleaning->plan);
	return status == KILN_END ? KILN_OK : status;
}

/* ---- Limits ----------------------------------------------------------------------- */

static uint64_t records_bytes(struct ki_sycl *sycl)
{
	return ki_records_totals(sycl->records).bytes;
}

static void set_goal(struct ki_sycl *sycl,
		     const struct kiln_gc_options *options,
		     struct ki_sycl_goal *goal)
{
	const uint64_t limit = ki_sycl_limit(sycl);

	goal->bytes_max = options->bytes_max;
	goal->age_max_s = options->age_max_s;
	if (limit && (!goal->bytes_max || limit < goal->bytes_max))
		goal->bytes_max = limit;
	if (sycl->age_max_s &&
	    (!goal->age_max_s || sycl->age_max_s < goal->age_max_s))
		goal->age_max_s = sycl->age_max_s;
}

enum kiln_status ki_sycl_gc(struct kiln_tier *tier,
			    const struct kiln_gc_options *options,
			    kiln_progress_fn *progress, void *arg,
			    struct kiln_gc_report *out_report)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	struct cleaning cleaning = { .sycl = sycl };
	struct kiln_gc_report result = { 0 };
	struct ki_sycl_turn turn;
	struct look look;
	enum kiln_status status;

	if (ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	status = look_then_begin(sycl, &look, &turn);
	if (status)
		return status;
	set_goal(sycl, options, &cleaning.goal);
	status = use_look(sycl, &turn, &look, &cleaning.report);
	lay_aside(&cleaning, &turn);
	result.bytes_before = cleaning.total + records_bytes(sycl);
	(void)ki_sycl_turn_end(sycl, &turn);
	if (!status)
		status = clean(&cleaning);
	ki_sycl_plan_end(&cleaning.plan);
	ki_sycl_count_evicted(sycl, &cleaning.report);
	result.bytes_after = cleaning.total + records_bytes(sycl);
	result.n_evicted = cleaning.report.n_evicted;
	result.n_expired = cleaning.report.n_expired;
	result.n_temporaries = cleaning.report.n_temporaries;
	if (!status && progress)
		progress(arg, result.bytes_after, result.bytes_after);
	if (!status)
		*out_report = result;
	return status;
}

/* The directory's own limit, which every kiln obeys; DPC++ has its own. */
static enum kiln_status note_limit(struct ki_sycl *sycl, uint64_t bytes_max)
{
	struct ki_records_settings settings =
		ki_records_settings(sycl->records);

	if (settings.bytes_max == bytes_max)
		return KILN_OK;
	settings.bytes_max = bytes_max;
	return ki_records_rewrite(sycl->records, &settings);
}

static enum kiln_status begin_limit(struct cleaning *cleaning,
				    struct ki_sycl_turn *turn,
				    struct look *look)
{
	struct ki_sycl *sycl = cleaning->sycl;
	const uint64_t bytes_max = cleaning->goal.bytes_max;
	enum kiln_status status;

	turn->has_size |= bytes_max != 0;
	status = use_look(sycl, turn, look, &cleaning->report);
	if (!status && (sycl->flags & KILN_OPEN_REFUSE_FULL) &&
	    !ki_sycl_would_fit(sycl, turn, bytes_max))
		status = KILN_E_FULL;
	if (!status)
		status = note_limit(sycl, bytes_max);
	if (!status)
		__atomic_store_n(&sycl->bytes_max, bytes_max, __ATOMIC_RELEASE);
	lay_aside(cleaning, turn);
	return status;
}

enum kiln_status ki_sycl_set_limit(struct kiln_tier *tier, uint64_t bytes_max)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	struct cleaning cleaning = { .sycl = sycl,
				     .goal = { .bytes_max = bytes_max } };
	struct ki_sycl_turn turn;
	struct look look;
	enum kiln_status status;

	if (ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	status = look_then_begin(sycl, &look, &turn);
	if (status)
		return status;
	status = begin_limit(&cleaning, &turn, &look);
	(void)ki_sycl_turn_end(sycl, &turn);
	if (!status)
		status = clean(&cleaning);
	ki_sycl_plan_end(&cleaning.plan);
	ki_sycl_count_evicted(sycl, &cleaning.report);
	/* It holds for what was looked at. */
	return !status && bytes_max && cleaning.report.is_partial ? KILN_E_IO
								  : status;
}

static enum kiln_status note_eviction(struct ki_sycl *sycl, int by_cost)
{
	struct ki_records_settings settings =
		ki_records_settings(sycl->records);

	if (settings.by_cost == by_cost)
		return KILN_OK;
	settings.by_cost = by_cost;
	return ki_records_rewrite(sycl->records, &settings);
}

enum kiln_status ki_sycl_set_eviction(struct kiln_tier *tier,
				      enum kiln_eviction eviction)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	struct ki_sycl_turn turn;
	enum kiln_status status, end_status;

	if (ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	status = ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);
	if (status)
		return status;
	ki_sycl_plan_end(&sycl->plan);
	status = note_eviction(sycl, eviction == KILN_EVICT_BY_COST);
	end_status = ki_sycl_turn_end(sycl, &turn);
	return status ? status : end_status;
}
