/* SPDX-License-Identifier: MIT */

/*
 * Coming under all limits now, while others use the store.
 *
 *	1  without a lock: clear the words of expired entries, and those that
 *	   lead nowhere
 *	2  under byte 0: what dead writers left, old damaged bytes, the oldest
 *	   segments if nothing lives there, large files that no word leads to
 *	3  under byte 0, taken anew for each segment so that no put waits for all
 *	   of it: kept sources go, the spare, then the oldest, until the limit
 *	   holds
 *
 * A segment between the living stays, whatever no word leads to: with it would
 * go what says that older records, in segments before, do not count.
 */

#include "store/log/log.h"

#define SECOND_NS ((int64_t)1000000000)
#define ASIDE_NS  (KILN_GC_QUARANTINE_DAYS * 24 * 3600 * SECOND_NS)

struct cleaning {
	struct ki_log *log;
	struct log_index *index;
	const struct kiln_gc_options *options;
	kiln_progress_fn *progress;
	void *arg;
	struct log_limit_values limits;
	uint64_t bytes_max; /* to come under; 0: no bound */
	int may_evict;
	int has_rolled;
	uint64_t copy_bytes_left;
	struct kiln_gc_report report;
};

/* The lower of two limits of which 0 is none. */
static uint64_t lower(uint64_t a, uint64_t b)
{
	if (!a || !b)
		return a ? a : b;
	return a < b ? a : b;
}

/* ---- Under byte 0 ---------------------------------------------------- */

typedef enum kiln_status step_fn(struct cleaning *cleaning,
				 struct log_census *census);

/* One step with a census of its own; LOG_AGAIN: the index was replaced. */
static enum kiln_status under_lock(struct cleaning *cleaning, step_fn *step)
{
	struct ki_log *log = cleaning->log;
	struct log_census census;
	struct ki_lock lock;
	enum kiln_status status =
		ki_log_structure_begin(log, &lock, LOG_CHANGE_TIMEOUT_MS);

	if (status)
		return status;
	status = LOG_AGAIN;
	if (ki_log_is_current_locked(log, cleaning->index))
		status = ki_log_census_take(log, 1, &census);
	if (!status) {
		census.copy_bytes_left = cleaning->copy_bytes_left;
		status = step(cleaning, &census);
		cleaning->copy_bytes_left = census.copy_bytes_left;
		cleaning->report.n_evicted += census.n_evicted;
		cleaning->report.n_temporaries += census.n_cleaned;
		ki_log_census_fini(&census);
	}
	ki_log_structure_end(log, &lock);
	return status;
}

static enum kiln_status tidy(struct cleaning *cleaning,
			     struct log_census *census)
{
	struct ki_log *log = cleaning->log;
	int64_t now_ns = (int64_t)log->sys->realtime_ns(log->sys);
	int all = !!(cleaning->options->flags & KILN_GC_QUARANTINE);
	size_t n_files = census->n_files;

	(void)ki_log_quarantine_drop(log, all ? INT64_MAX : now_ns - ASIDE_NS,
				     &cleaning->report.n_quarantined);
	ki_log_drop_empty(log, cleaning->index, census);
	(void)ki_log_drop_orphans(log, cleaning->index, census);
	cleaning->report.n_segments += n_files - census->n_files;
	return KILN_OK;
}

static int is_under(const struct cleaning *cleaning,
		    const struct log_census *census)
{
	return !cleaning->bytes_max || !cleaning->may_evict ||
	       census->bytes + LOG_SLACK_BYTES <= cleaning->bytes_max;
}

/* What is used of the oldest needs a place to go to: mostly the spare, which
   counts already.  0: there is one, from before. */
static int begin_tail(struct cleaning *cleaning, struct log_census *census)
{
	if (cleaning->has_rolled)
		return 0;
	cleaning->has_rolled = 1;
	(void)ki_log_new_tail(cleaning->log, cleaning->index, census);
	return 1;
}

/* KILN_END: the limit holds, or nothing may go any more. */
static enum kiln_status evict_one(struct cleaning *cleaning,
				  struct log_census *census)
{
	struct ki_log *log = cleaning->log;
	struct log_index *index = cleaning->index;
	uint64_t before = cleaning->report.bytes_before, n;

	cleaning->report.bytes_after = census->bytes;
	if (is_under(cleaning, census))
		return KILN_END;
	if (cleaning->progress && census->bytes < before)
		cleaning->progress(cleaning->arg, before - census->bytes,
				   before - cleaning->bytes_max);
	if (ki_log_drop_source(log, census))
		return KILN_OK;
	if (census->quarantine_bytes) {
		(void)ki_log_quarantine_drop(log, INT64_MAX, &n);
		cleaning->report.n_quarantined += n;
		return n ? KILN_OK : KILN_END;
	}
	if (ki_log_tail_is_nearly_full(index, census) &&
	    begin_tail(cleaning, census))
		return KILN_OK;
	if (census->has_spare && !ki_log_drop_spare(log, census))
		return KILN_OK;
	ki_log_weigh(log, index, census, 0, cleaning->bytes_max);
	if (!ki_log_evict_before_tail(log, index, census))
		return KILN_OK;
	/* Large files alone do not roll: the tail is the oldest. */
	return begin_tail(cleaning, census) ? KILN_OK : KILN_END;
}

/* ---- All of it ------------------------------------------------------- */

static enum kiln_status begin(struct cleaning *cleaning)
{
	const struct kiln_gc_options *options = cleaning->options;
	struct log_limit_values *limits = &cleaning->limits;
	uint64_t segment_bytes;
	struct log_census census;
	enum kiln_status status;

	ki_log_limits_get(cleaning->log, cleaning->index, limits);
	segment_bytes =
		ki_log_next_segment_bytes(limits, &(struct log_census){ 0 });
	if (options->bytes_max &&
	    cleaning->index->size + 2 * segment_bytes + ki_log_other_bytes() >
		    options->bytes_max)
		return KILN_E_FULL;
	cleaning->bytes_max = lower(limits->bytes_max, options->bytes_max);
	cleaning->copy_bytes_left = segment_bytes / 2;
	cleaning->may_evict = options->bytes_max ||
			      !((limits->policy & LOG_REFUSE_FULL) ||
				(cleaning->log->flags & KILN_OPEN_REFUSE_FULL));
	status = ki_log_census_take(cleaning->log, 0, &census);
	if (status)
		return status;
	cleaning->report.bytes_before = census.bytes;
	ki_log_census_fini(&census);
	return KILN_OK;
}

static enum kiln_status clean(struct ki_log *log, struct log_index *index,
			      void *arg)
{
	struct cleaning *cleaning = arg;
	const struct kiln_gc_options *options = cleaning->options;
	struct log_limit_values *limits = &cleaning->limits;
	struct kiln_verify_report account = { 0 };
	enum kiln_status status = ki_log_index_bring(index, NULL);
	uint64_t age_s;

	cleaning->index = index;
	if (!status)
		status = begin(cleaning);
	if (status)
		return status;
	age_s = lower(limits->age_max_s, options->age_max_s);
	if (age_s)
		cleaning->report.n_expired +=
			ki_log_sweep(log, index, limits->age_max_s, age_s);
	ki_log_count_anew(log, index, &account);
	status = under_lock(cleaning, tidy);
	while (!status)
		status = under_lock(cleaning, evict_one);
	return status == KILN_END ? KILN_OK : status;
}

enum kiln_status ki_log_gc(struct kiln_tier *tier,
			   const struct kiln_gc_options *options,
			   kiln_progress_fn *progress, void *arg,
			   struct kiln_gc_report *out_report)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct cleaning cleaning = {
		.log = log, .options = options, .progress = progress, .arg = arg
	};
	enum kiln_status status =
		ki_log_change(log, LOG_CHANGE, clean, &cleaning);

	ki_log_count_evicted(log, cleaning.report.n_evicted +
					  cleaning.report.n_expired);
	if (status == KILN_MISS) /* there is no store */
		status = KILN_OK;
	if (!status)
		*out_report = cleaning.report;
	return status;
}
