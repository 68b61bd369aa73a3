/* SPDX-License-Identifier: MIT */

/*
 * One try, seen from the worker: a process of its own, out of everybody's way
 * and with limits, watched until it answers, dies or takes too long.
 *
 * The child is this program again, because the key is computed from the
 * process's environment, /proc/self/environ included: it must be the job's
 * from the start.  It is in a session of its own: all it starts can be killed
 * at once, and the scheduler's grouping of sessions ("autogroup", which would
 * give even an idle task half of a processor) can be told for it alone.
 *
 * Only the child is idle.  The worker itself waits nearly always; when it
 * publishes it holds the store's lock for a moment, and must not be kept from
 * the processor then.  A rebuild's children are nice instead: on a busy machine
 * an idle one gets nothing for minutes, while a person waits for it and its time
 * runs out.
 *
 * The memory limit is on data (RLIMIT_DATA), not on addresses: drivers and
 * LLVM reserve far more addresses than they touch.  A child that is stopped
 * in the middle could hold a lock of the driver's own cache for which a
 * program waits, so a child that has begun goes on, and only the next one
 * waits while programs build.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker.h"

#define ANSWER_FD 3
#define ITEM_FD	  4
/* Exit status; ki_worker_make() has others. */
#define NOT_STARTED 126
/* linux/ioprio.h is not in every libc. */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE	   (3 << 13)
#define IOPRIO_LAST	   (2 << 13 | 7) /* of those that are not idle */
#define POLITE		   10		 /* niceness, also of the autogroup */

/*
 * Of the worker's own environment: what a driver needs to work at all.  The
 * job's variables come before these.
 */
static const char *const base_variables[] = { "PATH", "HOME", "TMPDIR", NULL };

/* ---- Environment ------------------------------------------------------- */

static int is_set(const struct ki_cl_job *job, const char *name)
{
	size_t size = strlen(name);
	uint32_t i;

	for (i = 0; i < job->n_environment; i++) {
		if (!strncmp(job->environment[i], name, size) &&
		    job->environment[i][size] == '=')
			return 1;
	}
	return 0;
}

/* No layer may come between the driver and a build that is to be cached. */
static int is_layer_variable(const char *variable)
{
	return !strncmp(variable, "OPENCL_LAYER", strlen("OPENCL_LAYER")) ||
	       !strncmp(variable, "LD_PRELOAD=", strlen("LD_PRELOAD="));
}

static void free_environment(char **environment)
{
	size_t i;

	for (i = 0; environment && environment[i]; i++)
		free(environment[i]);
	free(environment);
}

static char *join_variable(const char *name, const char *value)
{
	char *variable;

	return asprintf(&variable, "%s=%s", name, value) < 0 ? NULL : variable;
}

static char **environment_of(const struct ki_cl_job *job)
{
	size_t n_base = sizeof(base_variables) / sizeof(base_variables[0]);
	char **environment =
		calloc(job->n_environment + n_base + 2, sizeof(*environment));
	size_t n = 0, i;

	if (!environment)
		return NULL;
	/* Our own layer may be loaded without being asked for. */
	environment[n] = strdup("KILN_DISABLE=1");
	if (!environment[n++])
		goto failed;
	for (i = 0; i < job->n_environment; i++) {
		if (is_layer_variable(job->environment[i]))
			continue;
		environment[n] = strdup(job->environment[i]);
		if (!environment[n++])
			goto failed;
	}
	for (i = 0; base_variables[i]; i++) {
		const char *value = getenv(base_variables[i]);

		if (!value || is_set(job, base_variables[i]))
			continue;
		environment[n] = join_variable(base_variables[i], value);
		if (!environment[n++])
			goto failed;
	}
	return environment;
failed:
	free_environment(environment);
	return NULL;
}

/* ---- In the child, before it is a program of its own ------------------- */

/* Only what may be called between fork() and exec(). */
static void write_word(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, word, strlen(word)) < 0)
		errno = 0;
	(void)close(fd);
}

static void get_out_of_the_way(int is_awaited)
{
	struct sched_param none = { 0 };

	if (is_awaited) {
		(void)!nice(POLITE);
	} else {
		(void)sched_setscheduler(0, SCHED_IDLE, &none);
	}
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		      is_awaited ? IOPRIO_LAST : IOPRIO_IDLE);
	write_word("/proc/self/autogroup", is_awaited ? "10" : "19");
	write_word("/proc/self/oom_score_adj", "1000");
}

static void set_limits(uint64_t memory_bytes_max)
{
	struct rlimit none = { 0, 0 };
	struct rlimit memory = { memory_bytes_max, memory_bytes_max };

	(void)setrlimit(RLIMIT_CORE, &none);
	if (memory_bytes_max && !KI_WORKER_SANITIZED)
		(void)setrlimit(RLIMIT_DATA, &memory);
}

/* Out of the way of the numbers that it is to have. */
static int move_up(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, ITEM_FD + 1);
}

/* Three that lead nowhere, the answer, an item if there is one, and no other. */
static void connect_descriptors(int answer_fd, int item_fd)
{
	int null = open("/dev/null", O_RDWR);

	answer_fd = move_up(answer_fd);
	if (item_fd >= 0)
		item_fd = move_up(item_fd);
	if (null < 0 || dup2(answer_fd, ANSWER_FD) < 0)
		_exit(NOT_STARTED);
	(void)dup2(null, 0);
	(void)dup2(null, 1);
	(void)dup2(null, 2);
	if (item_fd < 0)
		(void)close_range(ITEM_FD, UINT_MAX, 0);
	else if (dup2(item_fd, ITEM_FD) < 0)
		_exit(NOT_STARTED);
	else
		(void)close_range(ITEM_FD + 1, UINT_MAX, 0);
}

static void become(const struct ki_try *try, int answer_fd, pid_t parent,
		   const struct ki_waiter *waiter, char *const *arguments,
		   char *const *environment)
{
	(void)setsid();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(NOT_STARTED);
	signal(SIGPIPE, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &waiter->old_mask, NULL);
	connect_descriptors(answer_fd, try->path ? -1 : try->item_fd);
	get_out_of_the_way(try->is_awaited);
	set_limits(try->memory_bytes_max);
	(void)execve("/proc/self/exe", arguments, environment);
	_exit(NOT_STARTED);
}

static pid_t start(const struct ki_try *try, struct ki_waiter *waiter,
		   int answer_fd)
{
	char number[16], item[16];
	char *arguments[] = { (char *)"kiln-worker",
			      (char *)(try->path ? "--make" : "--make-again"),
			      try->path ? (char *)(uintptr_t)try->path : item,
			      (char *)"--answer",
			      number,
			      NULL };
	char **environment = environment_of(try->job);
	pid_t parent = getpid(), child = -1;

	if (!environment)
		return -1;
	snprintf(number, sizeof(number), "%d", ANSWER_FD);
	snprintf(item, sizeof(item), "%d", ITEM_FD);
	child = fork();
	if (!child)
		become(try, answer_fd, parent, waiter, arguments, environment);
	free_environment(environment);
	return child;
}

/* ---- Watching ---------------------------------------------------------- */

int ki_trial_has_ended(const struct ki_trial *trial)
{
	siginfo_t info = { 0 };

	return !waitid(P_PID, (id_t)trial->child, &info,
		       WEXITED | WNOHANG | WNOWAIT) &&
	       info.si_pid == trial->child;
}

/* With all that it started; its number is not free before it is reaped. */
static int end(pid_t child)
{
	int status = 0;

	(void)kill(child, SIGKILL); /* it may not have a session yet */
	(void)kill(-child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

int ki_trial_begin(const struct ki_try *try, struct ki_waiter *waiter,
		   struct ki_trial *out_trial)
{
	const struct ki_sys *sys = &ki_sys_posix;
	int fd = memfd_create("kiln-answer", MFD_CLOEXEC);
	pid_t child;

	if (fd < 0)
		return -errno;
	child = start(try, waiter, fd);
	if (child < 0) {
		(void)close(fd);
		return -EAGAIN;
	}
	*out_trial = (struct ki_trial){
		.child = child,
		.fd = fd,
		.deadline_ns = sys->monotonic_ns(sys) + try->time_limit_ns,
	};
	return 0;
}

static enum ki_try_end how_it_ended(int has_ended, int status, int *out_signal)
{
	if (!has_ended)
		return KI_TRY_TOO_LONG;
	if (WIFSIGNALED(status)) {
		*out_signal = WTERMSIG(status);
		return KI_TRY_SIGNALLED;
	}
	if (WEXITSTATUS(status) == NOT_STARTED)
		return KI_TRY_NOT_STARTED;
	return WEXITSTATUS(status) ? KI_TRY_NO_ANSWER : KI_TRY_ANSWERED;
}

enum ki_try_end ki_trial_finish(struct ki_trial *trial,
				struct ki_answer *out_answer, void **out_bytes,
				int *out_signal)
{
	int has_ended = ki_trial_has_ended(trial);
	enum ki_try_end how =
		how_it_ended(has_ended, end(trial->child), out_signal);

	*out_bytes = NULL;
	if (ki_answer_read(trial->fd, out_answer, out_bytes) &&
	    how == KI_TRY_ANSWERED)
		how = KI_TRY_NO_ANSWER;
	(void)close(trial->fd);
	trial->fd = -1;
	return how;
}

/* ---- One alone --------------------------------------------------------- */

enum ki_try_end ki_worker_try(const struct ki_try *try,
			      struct ki_waiter *waiter,
			      struct ki_answer *out_answer, void **out_bytes,
			      int *out_signal)
{
	const struct ki_sys *sys = &ki_sys_posix;
	enum ki_try_end how;
	struct ki_trial trial;

	if (ki_trial_begin(try, waiter, &trial))
		return KI_TRY_NOT_STARTED;
	while (!ki_trial_has_ended(&trial) && !waiter->ended_by &&
	       sys->monotonic_ns(sys) < trial.deadline_ns)
		ki_waiter_wait(waiter, trial.deadline_ns);
	how = ki_trial_finish(&trial, out_answer, out_bytes, out_signal);
	return how == KI_TRY_TOO_LONG && waiter->ended_by ? KI_TRY_INTERRUPTED
							  : how;
}
