/* SPDX-License-Identifier: MIT */
#ifndef KI_WORKER_WORKER_H
#define KI_WORKER_WORKER_H

/*
 * The parts of kiln-worker (README.md has what it does).  Two kinds of
 * process: the worker, which takes jobs, watches and publishes, and never
 * loads a driver; and a child for each try, which loads the driver, builds and
 * answers through a file in memory.  A driver that crashes, hangs or writes
 * wild can hurt only the child, which has no store open.
 */

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/kiln.h>

#include "base/bytes.h"
#include "base/map.h"
#include "front/opencl/job.h"
#include "sys/sys.h"

/* How the worker ends (README.md). */
enum ki_worker_exit {
	KI_WORKER_DONE = 0,
	KI_WORKER_SOME_FAILED = 1,
	KI_WORKER_USAGE = 2,
	KI_WORKER_UNAVAILABLE = 5,
	KI_WORKER_BUSY = 6,
};

/* A sanitizer's shadow counts as data, and is larger than any machine. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KI_WORKER_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KI_WORKER_SANITIZED 1
#endif
#ifndef KI_WORKER_SANITIZED
#define KI_WORKER_SANITIZED 0
#endif

/* ---- Progress: progress.c ---------------------------------------------- */

struct ki_progress {
	int fd; /* -1: nobody listens */
	int json;
};

#define KI_EVENT_NUMBERS 4

/* Written in this order; what is NULL is left out. */
struct ki_event {
	const char *event;
	const char *name;
	const char *reason;
	const char *number_names[KI_EVENT_NUMBERS];
	uint64_t numbers[KI_EVENT_NUMBERS];
	const char *text;
};

void ki_progress_emit(struct ki_progress *progress,
		      const struct ki_event *event);

/* ---- Waiting: wait.c --------------------------------------------------- */

/*
 * Signals come through a descriptor, so that every wait has a deadline and
 * none loses a signal.
 */
struct ki_waiter {
	int fd; /* signalfd */
	sigset_t old_mask;
	int ended_by; /* SIGTERM, SIGINT or SIGHUP once it came */
};

int ki_waiter_init(struct ki_waiter *waiter);
/* Until a signal or the deadline (monotonic_ns), whichever is first. */
void ki_waiter_wait(struct ki_waiter *waiter, uint64_t deadline_ns);
/* The same for a length of time; 1 if the worker is to end. */
int ki_waiter_pause(struct ki_waiter *waiter, uint64_t ns);
/* Die by the signal that ended the worker, if one did. */
void ki_waiter_finish(struct ki_waiter *waiter);

/* ---- What a child answers: answer.c ------------------------------------ */

#define KI_VERDICTS(X)                                                         \
	X(MADE, "made")                                                        \
	X(BUILD, "build")                                                      \
	X(FETCH, "fetch")                                                      \
	X(CHANGED, "changed")                                                  \
	X(DIRECTORY, "directory")                                              \
	X(DRIVER, "driver")                                                    \
	X(DEVICE, "device")                                                    \
	X(ABSENT, "absent")                                                    \
	X(WORKER, "worker")                                                    \
	X(CURRENT, "current") /* of a rebuild: it is there */                  \
	X(DENIED, "denied")   /* it crashed, or took too long, before */       \
	X(BUILDING, "crash")  /* it builds: nothing came after that */

enum ki_verdict {
#define KI_VERDICT_ENUM(name, word) KI_VERDICT_##name,
	KI_VERDICTS(KI_VERDICT_ENUM)
#undef KI_VERDICT_ENUM
		KI_N_VERDICTS
};

const char *ki_verdict_word(enum ki_verdict verdict);

struct ki_answer {
	enum ki_verdict verdict;
	char text[400];
	/* When MADE: what was built, by the key record that the child computed
	   itself. */
	const void *record;
	size_t record_size;
	const void *metadata;
	size_t metadata_size;
	const void *value;
	size_t value_size;
};

/* 0 or a negative errno. */
int ki_answer_write(int fd, const struct ki_answer *answer);

/* The answer's pointers go into *out_bytes, from malloc().  -EBADMSG if there
   is no whole answer. */
int ki_answer_read(int fd, struct ki_answer *out_answer, void **out_bytes);

/* ---- A try: child.c, and in the child make.c --------------------------- */

struct ki_try {
	const char *path; /* of the job; or NULL: */
	int item_fd;	  /* a file in memory with what is to be rebuilt */
	const struct ki_cl_job *job;
	uint64_t time_limit_ns;
	uint64_t memory_bytes_max; /* 0: none */
	int is_awaited;		   /* by a person: nice, not idle */
};

enum ki_try_end {
	KI_TRY_ANSWERED,  /* *out_answer is written */
	KI_TRY_SIGNALLED, /* by *out_signal */
	KI_TRY_TOO_LONG,
	KI_TRY_NO_ANSWER,   /* it ended without */
	KI_TRY_NOT_STARTED, /* no fault of the job */
	KI_TRY_INTERRUPTED, /* the worker is to end: the child was killed */
};

enum ki_try_end ki_worker_try(const struct ki_try *try,
			      struct ki_waiter *waiter,
			      struct ki_answer *out_answer, void **out_bytes,
			      int *out_signal);

/* The same in pieces, for several at once: begin (0, or a negative errno), wait
   until it has ended or its deadline is over, finish in any case. */
struct ki_trial {
	pid_t child;
	int fd; /* of the answer */
	uint64_t deadline_ns;
};

int ki_trial_begin(const struct ki_try *try, struct ki_waiter *waiter,
		   struct ki_trial *out_trial);
int ki_trial_has_ended(const struct ki_trial *trial);
/* What it was building when it ended, KI_TRY_SIGNALLED, _TOO_LONG or _NO_ANSWER,
   is answered too if it had come so far: the key alone; else *out_bytes is NULL. */
enum ki_try_end ki_trial_finish(struct ki_trial *trial,
				struct ki_answer *out_answer, void **out_bytes,
				int *out_signal);

/* The child's main: builds the job and answers through `fd`; its exit
   status. */
int ki_worker_make(const char *path, int fd);
/* The same of an item: whatever key this driver gives it. */
int ki_worker_make_again(int item_fd, int fd);

/* ---- What is to be rebuilt: item.c ------------------------------------- */

/*
 * A job, whose record is that of an entry which another driver made, and the
 * digests of keys that need not be built: entries of its sources and options that
 * are there, and what did not end well before.
 */
struct ki_item {
	const struct ki_cl_job *job;
	const uint8_t *known; /* digests, one behind the other */
	size_t n_known;
	const uint8_t *denied;
	size_t n_denied;
};

/* Into a new file in memory: a descriptor or a negative errno. */
int ki_item_write(const struct ki_item *item);
/* What it points to lives until the process ends.  0 or a negative errno. */
int ki_item_read(int fd, struct ki_item *out_item);

/* ---- What is not built again: denied.c --------------------------------- */

#define KI_DENIED_MAX	     256 /* the oldest go */
#define KI_DENIED_TEXT_BYTES 160

struct ki_denied_row {
	uint8_t digest[KILN_DIGEST_BYTES]; /* of the key it would have had */
	uint64_t when;			   /* seconds since 1970 */
	char reason[16];		   /* "crash", "time" */
	char text[KI_DENIED_TEXT_BYTES];   /* the application */
};

struct ki_denied {
	size_t n;
	struct ki_denied_row rows[KI_DENIED_MAX]; /* oldest first */
};

/* A list that is damaged, or not there, is empty. */
void ki_denied_read(struct ki_denied *denied, const char *spool);
const struct ki_denied_row *ki_denied_find(
	const struct ki_denied *denied,
	const uint8_t digest[KILN_DIGEST_BYTES]);
/* In memory; one of the same digest goes. */
void ki_denied_add(struct ki_denied *denied, const struct ki_denied_row *row);
void ki_denied_remove(struct ki_denied *denied,
		      const uint8_t digest[KILN_DIGEST_BYTES]);
/* 0 or a negative errno; under the spool's lock. */
int ki_denied_write(const struct ki_denied *denied, const char *spool);

/* ---- The loop: queue.c ------------------------------------------------- */

struct ki_worker {
	const char *spool;
	int waits;		/* for another worker */
	uint64_t time_limit_ns; /* 0: by the job */
	uint64_t memory_bytes_max;
	struct kiln *kiln;
	/* The same store, read only: what the worker itself looks up is not
	   counted among the programs' hits and misses. */
	struct kiln *view;
	struct ki_progress progress;
	struct ki_waiter waiter;
	struct ki_fork_close lock;
	/* Jobs that stay (by hash of their name) and drivers that may not run
	   here (by hash of theirs). */
	struct ki_map skipped;
	struct ki_map refused_drivers;
	int has_reported;
	uint64_t n_left; /* as it was reported */
	uint64_t n_early;
	uint64_t n_done;
	uint64_t n_failed;
	uint64_t n_skipped;
	int is_rebuilding;
	uint64_t n_current; /* of a rebuild: are there already */
};

/*
 * The lock that makes this the spool's only worker.  KILN_OK; KILN_EXISTS if
 * another has it (never when `waits`); KILN_MISS if there is no spool;
 * KILN_END if the worker is to end; else why it cannot be had.
 */
enum kiln_status ki_worker_lock(struct ki_worker *worker);
void ki_worker_unlock(struct ki_worker *worker);
/* Until the unlocking: what is made now are no jobs, and `kiln wait` waits for none of
   it.  Where there are no locks it does. */
void ki_worker_lock_rebuild(struct ki_worker *worker);

/* Make what can be made.  KILN_OK, KILN_END if the worker is to end, or why
   the spool or the store cannot be used. */
enum kiln_status ki_worker_run(struct ki_worker *worker);

/* Put what a child made of a job under the key that it says, waiting a little for
   a store that is busy.  As ki_cl_publish(). */
enum kiln_status ki_worker_publish(struct ki_worker *worker,
				   const struct ki_answer *answer,
				   const struct ki_cl_job *job);
/* Of one try. */
uint64_t ki_worker_time_limit(const struct ki_worker *worker,
			      const struct ki_cl_job *job);

/* Whether there are jobs that have not been skipped: a program may have
   written one between the last look and the lock's end. */
int ki_worker_has_jobs(struct ki_worker *worker);

void ki_worker_report_end(struct ki_worker *worker);

/* ---- Rebuilding: rebuild.c --------------------------------------------- */

struct ki_rebuild_options {
	const char *device; /* part of a device's name; NULL: all */
	unsigned n_at_once; /* 0: as many as there are processors */
	int retries;	    /* what is denied, too */
};

/*
 * Make again what the store knows of, for the drivers that are here now.
 * Statuses as ki_worker_run(); counts in `worker`.
 */
enum kiln_status ki_worker_rebuild(struct ki_worker *worker,
				   const struct ki_rebuild_options *options);

#endif /* KI_WORKER_WORKER_H */
