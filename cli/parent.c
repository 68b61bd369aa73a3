/* SPDX-License-Identifier: MIT */

/*
 * `kiln run` is the parent of the program: it is in the way of signals and of
 * job control, and must not be felt.
 *
 * All signals are blocked and taken one by one with sigwaitinfo(), so no
 * disposition is changed and nothing is lost: Linux queues a blocked signal
 * even if it is ignored.  The one exception is SIGCHLD: inherited as ignored
 * it would make the kernel reap the program unseen, so it gets its default
 * here and is given back before exec.
 *
 *	what arrives			what is done
 *	SIGCHLD				look whether the program ended or stopped
 *	from the terminal (SI_KERNEL)	nothing: our process group is the program's
 *					and the program got it as well
 *	anything else			sent on; with its value if it has one
 *
 * When the program stops, we stop by the same signal, so that the shell takes
 * the terminal back; on being continued SIGCONT arrives here like any other
 * signal and is sent on.  Between the two there is a race (`fg` may come
 * before we have stopped): the stop signal is made pending first, then we look
 * once more whether the program still stands.
 *
 * Who has stopped cannot see the program go on, or end, when that is continued
 * or killed by its own process id.  A child of ours, the watcher, looks at both
 * for as long as we stand, every WATCH_MS, as no event tells a process of another
 * that is not its child; where only the program runs, it continues us.  It is out
 * of our process group, so that it is not stopped with it.
 *
 * A signal sent to the process group by kill(-pgid) reaches the program twice,
 * as nothing tells it from one sent to us alone.
 */

#include "parent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WATCH_MS 20

/* As this process was started with them. */
struct signals {
	sigset_t mask;
	struct sigaction child;
};

static void block_all(sigset_t *out_before)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, out_before);
}

static void default_action(int signal_number, struct sigaction *out_before)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_DFL;
	sigaction(signal_number, &action, out_before);
}

static void unblock(int signal_number)
{
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, signal_number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
}

/* ---- Starting -------------------------------------------------------------- */

/* The standard descriptors may be closed and must stay so in the program. */
int ki_parent_pipe(int out_ends[2])
{
	int low[2], i;

	if (pipe2(low, O_CLOEXEC))
		return -errno;
	for (i = 0; i < 2; i++)
		out_ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 3);
	i = errno;
	close(low[0]);
	close(low[1]);
	if (out_ends[0] >= 0 && out_ends[1] >= 0)
		return 0;
	if (out_ends[0] >= 0)
		close(out_ends[0]);
	return -i;
}

static void become(char *const *argv, char *const *environment,
		   const struct signals *signals, int report)
{
	ssize_t n;
	int err;

	sigaction(SIGCHLD, &signals->child, NULL);
	sigprocmask(SIG_SETMASK, &signals->mask, NULL);
	execvpe(argv[0], argv, environment);
	err = errno;
	do {
		n = write(report, &err, sizeof(err));
	} while (n < 0 && errno == EINTR);
	_exit(127);
}

static int start(char *const *argv, char *const *environment,
		 const struct signals *signals, pid_t *out_child,
		 int *out_is_exec)
{
	int ends[2], err, exec_error = 0;
	ssize_t n;
	pid_t child;

	err = ki_parent_pipe(ends);
	if (err)
		return err;
	child = fork();
	if (child < 0) {
		err = -errno;
		close(ends[0]);
		close(ends[1]);
		return err;
	}
	if (!child)
		become(argv, environment, signals, ends[1]);
	close(ends[1]);
	n = read(ends[0], &exec_error, sizeof(exec_error));
	close(ends[0]);
	if (n == (ssize_t)sizeof(exec_error)) {
		waitpid(child, NULL, 0);
		*out_is_exec = 1;
		return -exec_error;
	}
	*out_child = child;
	return 0;
}

/* ---- Standing in ----------------------------------------------------------- */

static int was_continued(pid_t child)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	return !waitid(P_PID, (id_t)child, &info,
		       WCONTINUED | WNOHANG | WNOWAIT) &&
	       info.si_pid;
}

/* Whether it stands; -1: that cannot be seen. */
static int is_stopped(pid_t process)
{
	char path[32], text[512];
	const char *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* "42 (name) T ": the name may have anything in it. */
	state = strrchr(text, ')');
	return state && state[1] ? state[2] == 'T' || state[2] == 't' : -1;
}

static void watch(pid_t child, pid_t parent)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == parent) {
		if (!is_stopped(child) && is_stopped(parent) == 1)
			kill(parent, SIGCONT);
		poll(NULL, 0, WATCH_MS);
	}
	_exit(0);
}

/* -1: there is none, and we stand until somebody continues us. */
static pid_t begin_watch(pid_t child)
{
	pid_t parent = getpid(), watcher = fork();

	if (!watcher)
		watch(child, parent);
	return watcher;
}

static void end_watch(pid_t watcher)
{
	if (watcher < 0)
		return;
	kill(watcher, SIGKILL);
	waitpid(watcher, NULL, 0);
}

static void stop_with(pid_t child, int signal_number)
{
	struct timespec none = { 0, 0 };
	sigset_t one;

	if (signal_number == SIGSTOP || getpgid(child) != getpgrp()) {
		if (!was_continued(child))
			raise(SIGSTOP);
		return;
	}
	sigemptyset(&one);
	sigaddset(&one, signal_number);
	default_action(signal_number, NULL);
	raise(signal_number);
	if (was_continued(child))
		sigtimedwait(&one, NULL, &none);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	sigprocmask(SIG_BLOCK, &one, NULL);
}

/* Whether the program has ended. */
static int look_after(pid_t child, int *out_wait_status, pid_t *out_watcher)
{
	int status;

	while (waitpid(child, &status, WNOHANG | WUNTRACED) == child) {
		if (!WIFSTOPPED(status)) {
			*out_wait_status = status;
			return 1;
		}
		*out_watcher = begin_watch(child);
		stop_with(child, WSTOPSIG(status));
		end_watch(*out_watcher);
	}
	return 0;
}

/* Timers that were set before exec come from the kernel as well. */
static int is_from_terminal(const siginfo_t *info)
{
	static const int signals[] = { SIGINT,	SIGQUIT, SIGHUP,  SIGTSTP,
				       SIGTTIN, SIGTTOU, SIGCONT, SIGWINCH };
	size_t i;

	if (info->si_code != SI_KERNEL)
		return 0;
	for (i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (info->si_signo == signals[i])
			return 1;
	return 0;
}

static void send_on(pid_t child, const siginfo_t *info)
{
	if (info->si_code == SI_QUEUE)
		sigqueue(child, info->si_signo, info->si_value);
	else
		kill(child, info->si_signo);
}

int ki_parent_run(char *const *argv, char *const *environment,
		  sigset_t *out_mask, int *out_wait_status, int *out_is_exec)
{
	struct signals signals;
	siginfo_t info;
	sigset_t all;
	pid_t child = 0, watcher = -1;
	int err;

	*out_is_exec = 0;
	sigfillset(&all);
	block_all(&signals.mask);
	*out_mask = signals.mask;
	default_action(SIGCHLD, &signals.child);
	err = start(argv, environment, &signals, &child, out_is_exec);
	if (err)
		return err;
	for (;;) {
		int got = sigwaitinfo(&all, &info);

		if (got == SIGCHLD) {
			if (look_after(child, out_wait_status, &watcher))
				return 0;
		} else if (got > 0 && !is_from_terminal(&info) &&
			   !(got == SIGCONT && info.si_pid == watcher)) {
			send_on(child, &info);
		}
	}
}

/* ---- Ending ---------------------------------------------------------------- */

void ki_parent_end(int wait_status)
{
	struct rlimit none = { 0, 0 };
	int signal_number;

	if (WIFEXITED(wait_status))
		exit(WEXITSTATUS(wait_status));
	signal_number = WTERMSIG(wait_status);
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0); /* where cores go to a pipe */
	if (signal_number != SIGKILL)
		default_action(signal_number, NULL);
	raise(signal_number);
	unblock(signal_number);
	exit(128 + signal_number);
}

/* ---- The worker ------------------------------------------------------------- */

static void reset_signals(void)
{
	sigset_t none;
	int i;

	for (i = 1; i < NSIG; i++)
		if (i != SIGKILL && i != SIGSTOP)
			default_action(i, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void close_between(unsigned first, unsigned last)
{
	unsigned limit = (unsigned)sysconf(_SC_OPEN_MAX);

	if (!close_range(first, last, 0))
		return;
	for (; first <= last && first < limit; first++)
		close((int)first);
}

/* Whatever the shell gave us besides goes as well, pipes above all. */
static void close_all_but(int keep)
{
	if (keep > 0)
		close_between(0, (unsigned)keep - 1);
	close_between((unsigned)(keep + 1), ~0u);
}

static int leave_descriptors(int keep)
{
	int fd, i;

	close_all_but(keep);
	fd = open("/dev/null", O_RDWR);
	for (i = 1; i <= 2; i++)
		if (fd != 0 || dup2(fd, i) != i)
			return -EBADF;
	return keep < 0 || !fcntl(keep, F_SETFD, 0) ? 0 : -errno;
}

pid_t ki_parent_detach(const char *path, char *const *argv,
		       char *const *environment, int keep)
{
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child)
		return child;
	reset_signals();
	if (setsid() < 0 || chdir("/") || leave_descriptors(keep))
		_exit(127);
	execve(path, argv, environment);
	_exit(127);
}

/* ---- A worker that is waited for --------------------------------------------- */

static volatile sig_atomic_t forwarded_to;

static void forward(int signal_number)
{
	int before = errno;

	kill((pid_t)forwarded_to, signal_number);
	errno = before;
}

static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
#define N_ENDS (sizeof(ends) / sizeof(*ends))

static void forward_ends_to(pid_t child)
{
	struct sigaction action, before;
	size_t i;

	forwarded_to = child;
	memset(&action, 0, sizeof(action));
	action.sa_handler = forward;
	action.sa_flags = SA_RESTART;
	for (i = 0; i < N_ENDS; i++)
		if (!sigaction(ends[i], NULL, &before) &&
		    before.sa_handler != SIG_IGN)
			sigaction(ends[i], &action, NULL);
}

pid_t ki_parent_attach(const char *path, char *const *argv,
		       char *const *environment, int keep)
{
	sigset_t blocked, before;
	pid_t child;
	size_t i;

	sigemptyset(&blocked);
	for (i = 0; i < N_ENDS; i++)
		sigaddset(&blocked, ends[i]);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	default_action(SIGCHLD, NULL);
	child = fork();
	if (!child) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		if (!fcntl(keep, F_SETFD, 0))
			execve(path, argv, environment);
		_exit(127);
	}
	if (child < 0)
		child = -errno;
	else
		forward_ends_to(child);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return child;
}
