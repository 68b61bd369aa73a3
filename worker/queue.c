/* SPDX-License-Identifier: MIT */

/*
 * The life of a job, here:
 *
 *	            no worker may make it, or it can't be told to be tried
 *	   listed ------------------------------------------------> skipped
 *	     | try written down                                     (stays)
 *	     v
 *	   tried ----> made ----> published ----> removed, done
 *	     |  |
 *	     |  +-> failed, or the child died or was too slow, twice
 *	     |      or its key is another now -----------------> removed, failed
 *	     +----> worker told to end: child killed, try struck out (stays)
 *
 * The try is written down before it is begun, so that a job which takes the
 * worker or the machine with it is not tried for ever.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>

#include "base/hash.h"
#include "front/opencl/capture.h"
#include "front/opencl/kept.h"
#include "worker.h"

#define TRIES_MAX	  2
#define TIME_LIMIT_MIN_NS ((uint64_t)300 * 1000000000)
#define TIME_LIMIT_MAX_NS ((uint64_t)24 * 3600 * 1000000000)
#define NS_PER_MS	  ((uint64_t)1000000)
/* How often we look: whether programs build, whether another worker is gone,
   whether a busy store is free. */
#define LOOK_NS		  (100 * NS_PER_MS)
#define PUBLISH_TRIES_MAX 20
/* How long a job's program is given to launch what it built. */
#define WRITER_SECONDS_MAX 60
#define LOCK_NAME	   "worker.lock"
#define DIGITS		   (2 * KILN_DIGEST_BYTES)

/* ---- Progress ---------------------------------------------------------- */

static void report_left(struct ki_worker *worker, uint64_t n_left)
{
	struct ki_event event = { .event = "jobs",
				  .number_names = { "jobs" },
				  .numbers = { n_left } };

	if (worker->has_reported && worker->n_left == n_left)
		return;
	worker->has_reported = 1;
	worker->n_left = n_left;
	ki_progress_emit(&worker->progress, &event);
}

static void report_wait(struct ki_worker *worker, const char *reason,
			uint64_t n)
{
	struct ki_event event = { .event = "wait",
				  .reason = reason,
				  .number_names = { reason },
				  .numbers = { n } };

	ki_progress_emit(&worker->progress, &event);
}

static void report(struct ki_worker *worker, const char *what, const char *name,
		   const char *reason, const char *text)
{
	struct ki_event event = {
		.event = what, .name = name, .reason = reason, .text = text
	};

	ki_progress_emit(&worker->progress, &event);
}

static void report_begin(struct ki_worker *worker, const char *name,
			 const struct ki_cl_job *job)
{
	struct ki_event event = { .event = "begin",
				  .name = name,
				  .number_names = { "try" },
				  .numbers = { job->tries + 1 },
				  .text = job->application };

	ki_progress_emit(&worker->progress, &event);
}

/* ---- Names that are left alone ----------------------------------------- */

static uintptr_t hash_of(const char *text)
{
	return (uintptr_t)ki_xxh3_64(text, strlen(text)) | 1;
}

static int is_in(const struct ki_map *map, const char *text)
{
	return ki_map_get(map, hash_of(text)) != NULL;
}

/* -ENOMEM means that a job is looked at once more: at worst for nothing. */
static void add_to(struct ki_map *map, const char *text)
{
	(void)ki_map_put(map, hash_of(text), map);
}

/* ---- One job ----------------------------------------------------------- */

struct taken {
	struct ki_worker *worker;
	const char *path;
	char name[DIGITS + 1];
	const struct ki_cl_job *job;
	uint64_t began_ns;
};

static void skip(struct taken *taken, const char *reason, const char *text)
{
	struct ki_worker *worker = taken->worker;
	const char *platform = taken->job ? taken->job->platform_name : "";
	char *line = NULL;

	add_to(&worker->skipped, taken->name);
	worker->n_skipped++;
	if (asprintf(&line, "%s%s%s", platform, *platform ? ": " : "", text) <
	    0)
		line = NULL;
	report(worker, "skipped", taken->name, reason, line ? line : text);
	free(line);
}

static void drop(struct taken *taken)
{
	/* One that cannot be removed must not be made again and again. */
	if (ki_sys_posix.unlink(&ki_sys_posix, taken->path))
		add_to(&taken->worker->skipped, taken->name);
}

static void fail(struct taken *taken, const char *reason, const char *text)
{
	struct ki_worker *worker = taken->worker;

	drop(taken);
	worker->n_failed++;
	kiln_count(worker->kiln, KILN_COUNT_JOBS_FAILED, 1);
	report(worker, "failed", taken->name, reason, text);
}

static void fail_or_retry(struct taken *taken, const char *reason,
			  const char *text)
{
	if (taken->job->tries + 1 >= TRIES_MAX)
		fail(taken, reason, text);
	else
		report(taken->worker, "retry", taken->name, reason, text);
}

static void succeed(struct taken *taken, uint64_t bytes)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_worker *worker = taken->worker;
	struct ki_event event = {
		.event = "done",
		.name = taken->name,
		.number_names = { "ms", "bytes" },
		.numbers = { (sys->monotonic_ns(sys) - taken->began_ns) /
				     NS_PER_MS,
			     bytes },
	};

	drop(taken);
	worker->n_done++;
	kiln_count(worker->kiln, KILN_COUNT_JOBS_DONE, 1);
	ki_progress_emit(&worker->progress, &event);
}

/* A try that was not one, through no fault of the job. */
static void strike_out_try(struct taken *taken)
{
	(void)ki_cl_job_set_tries(taken->path, taken->job, taken->job->tries);
}

/* ---- Publishing -------------------------------------------------------- */

static enum kiln_status put_answer(struct ki_worker *worker,
				   const struct kiln_key *key,
				   const struct ki_answer *answer,
				   const struct ki_cl_job *job)
{
	struct kiln_metadata *metadata;
	enum kiln_status status;

	status = kiln_metadata_from_bytes(answer->metadata,
					  answer->metadata_size, &metadata);
	if (status)
		return status;
	ki_cl_keep_sources(worker->kiln, job->recipe, answer->record,
			   answer->record_size, job->directory, metadata);
	status = ki_cl_publish(
		worker->kiln, key, answer->value, answer->value_size, metadata,
		job->stage ? KI_CL_STAGE_FULL : KI_CL_STAGE_EARLY);
	kiln_metadata_free(metadata);
	return status;
}

enum kiln_status ki_worker_publish(struct ki_worker *worker,
				   const struct ki_answer *answer,
				   const struct ki_cl_job *job)
{
	struct kiln_key *key;
	enum kiln_status status;
	int tries = 0;

	status =
		kiln_key_from_record(answer->record, answer->record_size, &key);
	if (status)
		return status;
	do {
		status = put_answer(worker, key, answer, job);
	} while (status == KILN_E_TIMEOUT && ++tries < PUBLISH_TRIES_MAX &&
		 !ki_waiter_pause(&worker->waiter, LOOK_NS));
	kiln_key_free(key);
	return status;
}

static enum kiln_status publish(struct taken *taken,
				const struct ki_answer *answer)
{
	const struct ki_cl_job *job = taken->job;

	if (answer->record_size != job->record_size ||
	    memcmp(answer->record, job->record, answer->record_size))
		return KILN_E_INVALID;
	return ki_worker_publish(taken->worker, answer, job);
}

/* KILN_OK to go on with other jobs. */
static enum kiln_status finish_made(struct taken *taken,
				    const struct ki_answer *answer)
{
	enum kiln_status status = publish(taken, answer);

	switch (status) {
	case KILN_OK:
	case KILN_EXISTS:
		succeed(taken, answer->value_size);
		return KILN_OK;
	case KILN_E_FULL:
	case KILN_E_TOO_LARGE:
		fail(taken, "store", kiln_status_name(status));
		return KILN_OK;
	case KILN_E_INVALID:
	case KILN_E_FORMAT:
		fail_or_retry(taken, "worker", kiln_status_name(status));
		return KILN_OK;
	default:
		/* The store's fault, not the job's: nothing is lost. */
		strike_out_try(taken);
		return taken->worker->waiter.ended_by ? KILN_END : status;
	}
}

/* ---- A try and what comes of it ---------------------------------------- */

static enum kiln_status finish_answered(struct taken *taken,
					const struct ki_answer *answer)
{
	const char *word = ki_verdict_word(answer->verdict);

	switch (answer->verdict) {
	case KI_VERDICT_MADE:
		return finish_made(taken, answer);
	case KI_VERDICT_DRIVER:
		add_to(&taken->worker->refused_drivers, taken->job->driver);
		strike_out_try(taken);
		skip(taken, word, answer->text);
		break;
	case KI_VERDICT_DEVICE:
	case KI_VERDICT_ABSENT:
		strike_out_try(taken);
		skip(taken, word, answer->text);
		break;
	case KI_VERDICT_CHANGED:
		fail(taken, word, answer->text);
		break;
	default:
		fail_or_retry(taken, word, answer->text);
	}
	return KILN_OK;
}

uint64_t ki_worker_time_limit(const struct ki_worker *worker,
			      const struct ki_cl_job *job)
{
	uint64_t limit_ns;

	if (worker->time_limit_ns)
		return worker->time_limit_ns;
	limit_ns = job->build_ns < TIME_LIMIT_MAX_NS / 10 ? job->build_ns * 10
							  : TIME_LIMIT_MAX_NS;
	return limit_ns < TIME_LIMIT_MIN_NS ? TIME_LIMIT_MIN_NS : limit_ns;
}

static enum kiln_status try_job(struct taken *taken)
{
	struct ki_worker *worker = taken->worker;
	struct ki_try try = {
		.path = taken->path,
		.job = taken->job,
		.time_limit_ns = ki_worker_time_limit(worker, taken->job),
		.memory_bytes_max = worker->memory_bytes_max,
	};
	struct ki_answer answer;
	void *bytes = NULL;
	enum kiln_status status = KILN_OK;
	int number = 0;

	switch (ki_worker_try(&try, &worker->waiter, &answer, &bytes,
			      &number)) {
	case KI_TRY_ANSWERED:
		status = finish_answered(taken, &answer);
		break;
	case KI_TRY_SIGNALLED:
		fail_or_retry(taken, "crash", strsignal(number));
		break;
	case KI_TRY_TOO_LONG:
		fail_or_retry(taken, "time", "it took too long");
		break;
	case KI_TRY_NO_ANSWER:
		fail_or_retry(taken, "worker", "no answer");
		break;
	case KI_TRY_NOT_STARTED:
		strike_out_try(taken);
		status = KILN_E_NO_MEMORY;
		break;
	case KI_TRY_INTERRUPTED:
		strike_out_try(taken);
		status = KILN_END;
		break;
	}
	free(bytes);
	return status;
}

static int is_name_of(const char *name, const struct ki_cl_job *job)
{
	uint8_t digest[KILN_DIGEST_BYTES];
	char digits[DIGITS + 1];

	ki_xxh3_128(job->record, job->record_size, digest);
	ki_hex(digest, sizeof(digest), digits);
	return !strcmp(name, digits);
}

/* Either way: a clock that jumped makes a job old, not immortal. */
static uint64_t age_s(const struct ki_cl_job *job)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint64_t now = sys->realtime_ns(sys) / 1000000000;

	return now > job->created ? now - job->created : job->created - now;
}

/*
 * What a program launches is specialised by the driver, in the driver's own
 * cache, and a build made after that has it.
 */
static int is_early(const struct ki_cl_job *job)
{
	return age_s(job) < WRITER_SECONDS_MAX &&
	       ki_process_alive((int)job->writer_pid, job->writer_start);
}

/* The program may have fetched the binary after all, or another worker where
   there are no locks. */
static int is_made_already(struct taken *taken)
{
	const struct ki_cl_job *job = taken->job;
	struct kiln_blob *value = NULL, *metadata = NULL;
	struct kiln_key *key = NULL;
	int made = 0;

	if (kiln_key_from_record(job->record, job->record_size, &key))
		return 0;
	if (!kiln_get_entry(taken->worker->view, key, &value, &metadata))
		made = ki_cl_stage_of(metadata) >= job->stage;
	if (made)
		succeed(taken, kiln_blob_size(value));
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	return made;
}

/* KILN_EXISTS if its program is there still. */
static enum kiln_status take_read(struct taken *taken)
{
	struct ki_worker *worker = taken->worker;
	const struct ki_cl_job *job = taken->job;
	enum kiln_status status;

	if (!is_name_of(taken->name, job)) {
		fail(taken, "damaged", "the name is another key's");
		return KILN_OK;
	}
	/* Its file is younger if a try was written down in it. */
	if (age_s(job) > KI_CL_JOB_SECONDS_MAX) {
		drop(taken);
		return KILN_OK;
	}
	if (is_in(&worker->refused_drivers, job->driver)) {
		skip(taken, "driver", "no worker builds with this driver");
		return KILN_OK;
	}
	if (job->tries >= TRIES_MAX) {
		fail(taken, "worker", "it ended the worker each time");
		return KILN_OK;
	}
	if (is_made_already(taken))
		return KILN_OK;
	if (is_early(job))
		return KILN_EXISTS;
	status = ki_cl_job_set_tries(taken->path, job, job->tries + 1);
	if (status == KILN_MISS)
		return KILN_OK;
	if (status) {
		skip(taken, "spool", kiln_status_name(status));
		return KILN_OK;
	}
	report_begin(worker, taken->name, job);
	return try_job(taken);
}

/* KILN_OK to go on, KILN_EXISTS if it is too early, else why not to. */
static enum kiln_status take(struct ki_worker *worker, const char *path)
{
	struct taken taken = {
		.worker = worker,
		.path = path,
		.began_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix),
	};
	struct ki_cl_job_file *file = NULL;
	enum kiln_status status = ki_cl_job_read(path, &file);

	snprintf(taken.name, sizeof(taken.name), "%.*s", DIGITS,
		 strrchr(path, '/') + 1);
	switch (status) {
	case KILN_OK:
		taken.job = ki_cl_job(file);
		status = take_read(&taken);
		break;
	case KILN_MISS:
		status = KILN_OK;
		break;
	case KILN_E_FORMAT:
		fail(&taken, "damaged", "its file does not verify");
		status = KILN_OK;
		break;
	case KILN_E_UNSUPPORTED:
		skip(&taken, "newer", "written by a newer kiln");
		status = KILN_OK;
		break;
	default:
		skip(&taken, "spool", kiln_status_name(status));
		status = KILN_OK;
	}
	ki_cl_job_free(file);
	return status;
}

/* ---- All jobs ---------------------------------------------------------- */

/*
 * Programs of this user that build come first.  Looking is the only way to
 * learn that they are done: they say so in the store, to nobody.
 */
static enum kiln_status wait_for_builds(struct ki_worker *worker)
{
	unsigned n, last = 0;

	while ((n = kiln_builds_now(worker->kiln)) > 0) {
		if (n != last)
			report_wait(worker, "builds", n);
		last = n;
		if (ki_waiter_pause(&worker->waiter, LOOK_NS))
			return KILN_END;
	}
	return worker->waiter.ended_by ? KILN_END : KILN_OK;
}

static enum kiln_status wait_for_writers(struct ki_worker *worker, uint64_t n)
{
	if (worker->n_early != n)
		report_wait(worker, "writers", n);
	worker->n_early = n;
	return ki_waiter_pause(&worker->waiter, LOOK_NS) ? KILN_END : KILN_OK;
}

static void free_paths(char **paths, size_t n_paths)
{
	while (n_paths)
		free(paths[--n_paths]);
	free(paths);
}

/* The jobs that are not to be left alone, oldest first. */
static enum kiln_status list(struct ki_worker *worker, char ***out_paths,
			     size_t *out_n_paths)
{
	char name[DIGITS + 1];
	size_t n_all, n = 0, i;
	char **paths;
	enum kiln_status status = ki_cl_jobs(worker->spool, &paths, &n_all);

	if (status)
		return status;
	for (i = 0; i < n_all; i++) {
		snprintf(name, sizeof(name), "%.*s", DIGITS,
			 strrchr(paths[i], '/') + 1);
		if (is_in(&worker->skipped, name))
			free(paths[i]);
		else
			paths[n++] = paths[i];
	}
	*out_paths = paths;
	*out_n_paths = n;
	return KILN_OK;
}

/* Once through what is there now; KILN_MISS if there is nothing. */
static enum kiln_status make_listed(struct ki_worker *worker)
{
	char **paths;
	size_t n_paths, n_early = 0, i;
	enum kiln_status status = list(worker, &paths, &n_paths);

	if (status)
		return status;
	report_left(worker, n_paths);
	status = n_paths ? KILN_OK : KILN_MISS;
	for (i = 0; i < n_paths && status == KILN_OK; i++) {
		status = wait_for_builds(worker);
		if (status == KILN_OK)
			status = take(worker, paths[i]);
		if (status == KILN_EXISTS) {
			status = KILN_OK;
			n_early++;
		}
		if (status == KILN_OK)
			report_left(worker, n_paths - (i + 1) + n_early);
	}
	free_paths(paths, n_paths);
	if (status == KILN_OK && n_early == n_paths)
		status = wait_for_writers(worker, n_early);
	return status;
}

enum kiln_status ki_worker_run(struct ki_worker *worker)
{
	enum kiln_status status;

	do {
		status = make_listed(worker);
	} while (status == KILN_OK);
	return status == KILN_MISS ? KILN_OK : status;
}

int ki_worker_has_jobs(struct ki_worker *worker)
{
	char **paths;
	size_t n_paths;

	if (list(worker, &paths, &n_paths))
		return 0;
	free_paths(paths, n_paths);
	return n_paths > 0;
}

void ki_worker_report_end(struct ki_worker *worker)
{
	struct ki_event event = {
		.event = "end",
		.number_names = { "done", "failed", "skipped",
				  worker->is_rebuilding ? "current" : NULL },
		.numbers = { worker->n_done, worker->n_failed,
			     worker->n_skipped, worker->n_current },
	};

	ki_progress_emit(&worker->progress, &event);
}

/* ---- One worker for a spool -------------------------------------------- */

static enum kiln_status open_lock(const char *spool, int *out_fd)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char path[KI_PATH_MAX];
	int fd = ki_path_join(path, spool, LOCK_NAME);

	if (!fd)
		fd = sys->open(sys, path,
			       KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE |
				       KI_OPEN_NOFOLLOW,
			       0600);
	if (fd < 0)
		return fd == -ENOENT ? KILN_MISS : KILN_E_IO;
	*out_fd = fd;
	return KILN_OK;
}

static enum kiln_status wait_for_worker(struct ki_worker *worker, int fd)
{
	const struct ki_sys *sys = &ki_sys_posix;

	report(worker, "wait", NULL, "worker", NULL);
	while (sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1) == -EAGAIN) {
		char **paths;
		size_t n_paths;

		if (!list(worker, &paths, &n_paths)) {
			free_paths(paths, n_paths);
			report_left(worker, n_paths);
		}
		if (ki_waiter_pause(&worker->waiter, LOOK_NS))
			return KILN_END;
	}
	return KILN_OK;
}

enum kiln_status ki_worker_lock(struct ki_worker *worker)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char **paths;
	size_t n_paths;
	enum kiln_status status;
	int fd;

	/* Also the check that the spool is one to trust. */
	status = ki_cl_jobs(worker->spool, &paths, &n_paths);
	if (status)
		return status;
	free_paths(paths, n_paths);
	status = open_lock(worker->spool, &fd);
	if (status)
		return status;
	/* Where there are no locks two workers may do the same work: each job
	   is published once all the same. */
	if (sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1) == -EAGAIN)
		status = worker->waits ? wait_for_worker(worker, fd)
				       : KILN_EXISTS;
	if (status) {
		(void)sys->close(sys, fd);
		return status;
	}
	ki_fork_close_add(&worker->lock, fd);
	return KILN_OK;
}

void ki_worker_lock_rebuild(struct ki_worker *worker)
{
	(void)ki_sys_posix.try_lock(&ki_sys_posix, worker->lock.fd,
				    KI_LOCK_EXCLUSIVE, 1, 1);
}

void ki_worker_unlock(struct ki_worker *worker)
{
	ki_fork_close_remove(&worker->lock);
	(void)ki_sys_posix.close(&ki_sys_posix, worker->lock.fd);
}
