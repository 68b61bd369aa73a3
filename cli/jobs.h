/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_JOBS_H
#define KI_CLI_JOBS_H

/*
 * The jobs that programs leave in the spool, and kiln-worker, which makes
 * them.  worker/README.md has the lines that it reports.
 */

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Jobs in this spool, makeable or not; 0 for NULL or no folder. */
size_t ki_jobs_pending(const char *spool);

/* Whether there is one for a key that begins so. */
int ki_jobs_has(const char *spool, const char *prefix);

/* Remove them; how many went. */
size_t ki_jobs_remove(const char *spool);

/* Start the worker behind us.  0 or a negative errno. */
int ki_jobs_start(const char *spool, const char *store_url);

struct ki_jobs_report {
	uint64_t n_done;
	uint64_t n_failed;
	uint64_t n_skipped;	 /* no worker may make them here */
	struct ki_bytes failed;	 /* "NAME (TEXT), NAME (TEXT)" */
	struct ki_bytes skipped; /* each "TEXT" once, "TEXT, TEXT" */
	int wait_status;	 /* of the worker */
};

/*
 * Run the worker and show how it gets on, until nothing is left that can be
 * made here.  Detached, it goes on if we are stopped; else signals that end us
 * end it first.  0 or a negative errno.  Free the report in both cases.
 */
int ki_jobs_wait(const char *spool, const char *store_url, int is_detached,
		 struct ki_jobs_report *out_report);
void ki_jobs_report_fini(struct ki_jobs_report *report);

/*
 * Run a worker with these arguments (behind its name, NULL-ended) and hand on each
 * line that it reports, without its end, to be changed at will.  As ki_jobs_wait();
 * *out_wait_status is the worker's.
 */
typedef void ki_jobs_line_fn(void *arg, char *line);
int ki_jobs_follow(const char *const *arguments, int is_detached,
		   ki_jobs_line_fn *take_line, void *arg, int *out_wait_status);

/* Say on standard error what was not made: at most one line for each kind. */
void ki_jobs_complain(const struct ki_jobs_report *report);

#endif /* KI_CLI_JOBS_H */
