/* SPDX-License-Identifier: MIT */

/*
 * Starting a process that is nobody's child: a child is forked that forks again
 * and goes, so there is nobody to be waited for.  Between fork() and execve()
 * only system calls are made, for the caller may have threads.
 */

#include "sys/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 8
#define FIRST	3
#define HEAR_NS ((uint64_t)1000000000)

struct launch {
	const char *path;
	char *const *arguments;
	char *const *environment;
	int fds[FDS_MAX + 1]; /* the last tells of a failure */
	int n_fds;
};

static void close_from(int first)
{
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, (unsigned)first, ~0u, 0))
		return;
#endif
	for (int fd = first, n = (int)sysconf(_SC_OPEN_MAX); fd < n; fd++)
		close(fd);
}

/* Up and out of the way first: one may have the number that another will get. */
static int place_descriptors(struct launch *launch)
{
	int above[FDS_MAX + 1], null, n = launch->n_fds + 1;

	for (int i = 0; i < n; i++) {
		above[i] = fcntl(launch->fds[i], F_DUPFD, FIRST + n);
		if (above[i] < 0)
			return -errno;
	}
	launch->fds[n - 1] = above[n - 1];
	null = open("/dev/null", O_RDWR);
	if (null < 0)
		return -errno;
	for (int i = 0; i < FIRST; i++)
		if (dup2(null, i) < 0)
			return -errno;
	for (int i = 0; i < n; i++)
		if (dup2(above[i], FIRST + i) < 0)
			return -errno;
	launch->fds[n - 1] = FIRST + n - 1;
	close_from(FIRST + n);
	return fcntl(FIRST + n - 1, F_SETFD, FD_CLOEXEC) ? -errno : 0;
}

static void reset_signals(void)
{
	const struct sigaction as_default = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		(void)sigaction(i, &as_default, NULL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void tell(const struct launch *launch, int err)
{
	while (write(launch->fds[launch->n_fds], &err, sizeof(err)) < 0 &&
	       errno == EINTR)
		;
}

static _Noreturn void become(struct launch *launch)
{
	int err = place_descriptors(launch);

	reset_signals();
	if (!err && chdir("/"))
		err = -errno;
	if (!err) {
		execve(launch->path, launch->arguments, launch->environment);
		err = -errno;
	}
	tell(launch, err);
	_exit(127);
}

static _Noreturn void fork_again(struct launch *launch)
{
	pid_t child = setsid() < 0 ? -1 : fork();

	if (!child)
		become(launch);
	if (child < 0)
		tell(launch, -errno);
	_exit(0);
}

/*
 * What the child has to say: its error, or nothing, when it has become another.
 * To the end: then it is gone, and what it held is free.  A process that another
 * thread has forked meanwhile has that end, too, and may keep it for good: who has
 * said nothing by then has begun, as far as can be told.
 */
static int hear(int fd)
{
	const struct ki_sys *sys = &ki_sys_posix;
	const uint64_t deadline_ns = sys->monotonic_ns(sys) + HEAR_NS;
	int err = 0, said;
	ssize_t n;

	do {
		if (sys->wait(sys, fd, 0, deadline_ns))
			break;
		n = read(fd, &said, sizeof(said));
		if (n == (ssize_t)sizeof(said))
			err = said;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return err;
}

/* A program may wait for any child: then it has had this one already. */
static void reap(pid_t child)
{
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
}

int ki_process_launch(const char *path, char *const *arguments,
		      char *const *environment, const int *fds, int n_fds)
{
	struct launch launch = { .path = path,
				 .arguments = arguments,
				 .environment = environment,
				 .n_fds = n_fds };
	sigset_t all, before;
	int ends[2], err;
	pid_t child;

	if (n_fds > FDS_MAX)
		return -EINVAL;
	memcpy(launch.fds, fds, (size_t)n_fds * sizeof(*fds));
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	launch.fds[n_fds] = ends[1];
	sigfillset(&all);
	/* No handler of the program's runs in the child. */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	child = fork();
	if (!child)
		fork_again(&launch);
	err = child < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	close(ends[1]);
	if (!err) {
		reap(child);
		err = hear(ends[0]);
	}
	close(ends[0]);
	return err;
}
