/* SPDX-License-Identifier: MIT */

/*
 * The system below ki_sys_posix, by --wrap: what it asks libc for fails at the
 * n-th call, EINTR included, which the table never hands on.  As in fault.c, a
 * close that fails has closed, and a write may have written half.
 *
 * Nobody else is at work in these tests, so whoever sleeps has slept at once: the
 * clock is as much ahead from then on.  A lock that cannot be had is waited for
 * by the second, thousands of times.
 */

#include "fault/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static struct fault *failing;

void fault_arm_system(struct fault *fault)
{
	fault_arm(fault);
	failing = fault;
}

void fault_disarm_system(struct fault *fault)
{
	failing = NULL;
	fault_disarm(fault);
}

/* Whether this call fails; errno is set. */
static int fails(const char *name)
{
	int err = 0;

	if (failing && failing->err < 0 && failing->err != -ENOMEM)
		err = fault_strike(failing, name);
	if (err)
		errno = -err;
	return err != 0;
}

static int is_short(const char *name)
{
	return failing && failing->err == FAULT_SHORT &&
	       fault_strike(failing, name);
}

#define WRAP(type, failed, name, parameters, arguments)                        \
	type __real_##name parameters;                                         \
	type __wrap_##name parameters;                                         \
	type __wrap_##name parameters                                          \
	{                                                                      \
		return fails(#name) ? failed : __real_##name arguments;        \
	}

WRAP(int, -1, fallocate64, (int fd, int mode, off_t offset, off_t size),
     (fd, mode, offset, size))
WRAP(int, -1, fstat64, (int fd, struct stat *st), (fd, st))
WRAP(int, -1, stat64, (const char *path, struct stat *st), (path, st))
WRAP(int, -1, lstat64, (const char *path, struct stat *st), (path, st))
WRAP(int, -1, statx,
     (int fd, const char *path, int flags, unsigned mask, struct statx *stx),
     (fd, path, flags, mask, stx))
WRAP(int, -1, fstatat64, (int fd, const char *path, struct stat *st, int flags),
     (fd, path, st, flags))
WRAP(int, -1, link, (const char *from, const char *to), (from, to))
WRAP(int, -1, rename, (const char *from, const char *to), (from, to))
WRAP(int, -1, renameat2,
     (int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
     (from_fd, from, to_fd, to, flags))
WRAP(int, -1, unlink, (const char *path), (path))
WRAP(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, -1, rmdir, (const char *path), (path))
WRAP(int, -1, chmod, (const char *path, mode_t mode), (path, mode))
WRAP(int, -1, utimensat,
     (int fd, const char *path, const struct timespec times[2], int flags),
     (fd, path, times, flags))
WRAP(DIR *, NULL, fdopendir, (int fd), (fd))
WRAP(struct dirent *, NULL, readdir64, (DIR * dir), (dir))
WRAP(void *, MAP_FAILED, mmap64,
     (void *place, size_t size, int protection, int flags, int fd,
      off_t offset),
     (place, size, protection, flags, fd, offset))
WRAP(int, -1, madvise, (void *data, size_t size, int advice),
     (data, size, advice))
WRAP(int, -1, statfs64, (const char *path, struct statfs *out), (path, out))
WRAP(ssize_t, -1, getrandom, (void *data, size_t size, unsigned flags),
     (data, size, flags))

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __real_close(int fd);
int __wrap_close(int fd);
ssize_t __real_pread64(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset);
ssize_t __real_pwritev64(int fd, const struct iovec *pieces, int n_pieces,
			 off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *pieces, int n_pieces,
			 off_t offset);

int __wrap_open64(const char *path, int flags, ...)
{
	va_list arguments;
	unsigned mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, unsigned) : 0;
	va_end(arguments);
	return fails("open64") ? -1 : __real_open64(path, flags, mode);
}

/* All of them take a pointer or something smaller. */
int __wrap_fcntl64(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	return fails("fcntl64") ? -1 : __real_fcntl64(fd, command, argument);
}

int __wrap_close(int fd)
{
	int failed = fails("close"), err = errno;
	int result = __real_close(fd);

	if (!failed)
		return result;
	errno = err;
	return -1;
}

ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset)
{
	if (fails("pread64"))
		return -1;
	if (size > 1 && is_short("pread64"))
		size = 1;
	return __real_pread64(fd, data, size, offset);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *pieces, int n_pieces,
			 off_t offset)
{
	struct iovec part = pieces[0];

	if (fails("pwritev64")) {
		int err = errno;

		part.iov_len /= 2;
		(void)__real_pwritev64(fd, &part, 1, offset);
		errno = err;
		return -1;
	}
	if (part.iov_len > 1 && is_short("pwritev64")) {
		part.iov_len = 1;
		return __real_pwritev64(fd, &part, 1, offset);
	}
	return __real_pwritev64(fd, pieces, n_pieces, offset);
}

/* ---- Time -------------------------------------------------------------------- */

#define SECOND 1000000000

static _Atomic int64_t slept_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *out_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out_time);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *out_rest);
int __real_pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  clockid_t clock,
				  const struct timespec *deadline);
int __wrap_pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  clockid_t clock,
				  const struct timespec *deadline);

static struct timespec shift(struct timespec time, int64_t by)
{
	const int64_t ns = time.tv_sec * (int64_t)SECOND + time.tv_nsec + by;

	return (struct timespec){ ns / SECOND, ns % SECOND };
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out_time)
{
	const int status = __real_clock_gettime(clock, out_time);

	if (!status &&
	    (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE))
		*out_time = shift(*out_time, atomic_load(&slept_ns));
	return status;
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *out_rest)
{
	(void)out_rest;
	atomic_fetch_add(&slept_ns,
			 wanted->tv_sec * (int64_t)SECOND + wanted->tv_nsec);
	return 0;
}

int __wrap_pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				  clockid_t clock,
				  const struct timespec *deadline)
{
	const struct timespec real = shift(*deadline, -atomic_load(&slept_ns));

	return __real_pthread_cond_clockwait(cond, mutex, clock, &real);
}
