/* SPDX-License-Identifier: MIT */

#include "fault/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static const struct ki_sys *const real = &ki_sys_posix;

/* Allocations have no context. */
static struct fault *failing_memory;

/* The error of this call, or 0. */
static int strike(struct fault *fault, const char *name)
{
	if (!fault->armed)
		return 0;
	fault->n_calls++;
	if (fault->lasting ? fault->n_calls < fault->n
			   : fault->n_calls != fault->n)
		return 0;
	if (fault->err == FAULT_DIE && !fault->dies_later)
		kill(getpid(), SIGKILL);
	if (!fault->n_fired++)
		fault->fired = name;
	return fault->err;
}

static int strike_call(const struct ki_sys *sys, const char *name)
{
	struct fault *fault = (struct fault *)(uintptr_t)sys;

	if (fault->err == -ENOMEM || fault->err == FAULT_SHORT)
		return 0;
	return strike(fault, name);
}

static int is_short(const struct ki_sys *sys, const char *name)
{
	struct fault *fault = (struct fault *)(uintptr_t)sys;

	return fault->err == FAULT_SHORT && strike(fault, name);
}

static int fault_open(const struct ki_sys *sys, const char *path,
		      unsigned flags, unsigned mode)
{
	int err = strike_call(sys, "open");

	return err ? err : real->open(real, path, flags, mode);
}

static int fault_close(const struct ki_sys *sys, int fd)
{
	int err = strike_call(sys, "close");
	int result = real->close(real, fd);

	return err ? err : result;
}

static ssize_t fault_pread(const struct ki_sys *sys, int fd, void *data,
			   size_t size, uint64_t offset)
{
	int err = strike_call(sys, "pread");

	if (err)
		return err;
	if (size > 1 && is_short(sys, "pread"))
		size = 1;
	return real->pread(real, fd, data, size, offset);
}

static ssize_t fault_pwritev(const struct ki_sys *sys, int fd,
			     const struct ki_piece *pieces, int n_pieces,
			     uint64_t offset)
{
	struct fault *fault = (struct fault *)(uintptr_t)sys;
	struct ki_piece half = { pieces[0].data, pieces[0].size / 2 };
	struct ki_piece one = { pieces[0].data, 1 };
	int err;

	fault->dies_later = 1;
	err = strike_call(sys, "pwritev");
	fault->dies_later = 0;
	if (err) {
		(void)real->pwritev(real, fd, &half, 1, offset);
		if (err == FAULT_DIE)
			kill(getpid(), SIGKILL);
		return err;
	}
	if (pieces[0].size > 1 && is_short(sys, "pwritev"))
		return real->pwritev(real, fd, &one, 1, offset);
	return real->pwritev(real, fd, pieces, n_pieces, offset);
}

#define FORWARD(name, parameters, arguments)                                   \
	static int fault_##name parameters                                     \
	{                                                                      \
		int err = strike_call(sys, #name);                             \
                                                                               \
		return err ? err : real->name arguments;                       \
	}

FORWARD(fallocate,
	(const struct ki_sys *sys, int fd, uint64_t offset, uint64_t size),
	(real, fd, offset, size))
FORWARD(punch_hole,
	(const struct ki_sys *sys, int fd, uint64_t offset, uint64_t size),
	(real, fd, offset, size))
FORWARD(fsync, (const struct ki_sys *sys, int fd), (real, fd))
FORWARD(fstat,
	(const struct ki_sys *sys, int fd, struct ki_file_info *out_info),
	(real, fd, out_info))
FORWARD(stat,
	(const struct ki_sys *sys, const char *path,
	 struct ki_file_info *out_info),
	(real, path, out_info))
FORWARD(lstat,
	(const struct ki_sys *sys, const char *path,
	 struct ki_file_info *out_info),
	(real, path, out_info))
FORWARD(link, (const struct ki_sys *sys, const char *from, const char *to),
	(real, from, to))
FORWARD(rename, (const struct ki_sys *sys, const char *from, const char *to),
	(real, from, to))
FORWARD(unlink, (const struct ki_sys *sys, const char *path), (real, path))
FORWARD(mkdir, (const struct ki_sys *sys, const char *path, unsigned mode),
	(real, path, mode))
FORWARD(rmdir, (const struct ki_sys *sys, const char *path), (real, path))
FORWARD(chmod, (const struct ki_sys *sys, const char *path, unsigned mode),
	(real, path, mode))
FORWARD(touch, (const struct ki_sys *sys, const char *path), (real, path))
FORWARD(opendir,
	(const struct ki_sys *sys, const char *path, struct ki_dir **out_dir),
	(real, path, out_dir))
FORWARD(readdir,
	(const struct ki_sys *sys, struct ki_dir *dir, const char **out_name),
	(real, dir, out_name))
FORWARD(map,
	(const struct ki_sys *sys, int fd, uint64_t offset, size_t size,
	 unsigned flags, void **out_data),
	(real, fd, offset, size, flags, out_data))
FORWARD(populate, (const struct ki_sys *sys, const void *data, size_t size),
	(real, data, size))
FORWARD(try_lock,
	(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
	 uint64_t offset, uint64_t size),
	(real, fd, kind, offset, size))
FORWARD(unlock,
	(const struct ki_sys *sys, int fd, uint64_t offset, uint64_t size),
	(real, fd, offset, size))
FORWARD(file_system,
	(const struct ki_sys *sys, const char *path,
	 enum ki_file_system *out_kind),
	(real, path, out_kind))
FORWARD(random, (const struct ki_sys *sys, void *data, size_t size),
	(real, data, size))

/* ---- Allocations ------------------------------------------------------------- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *data, size_t size);
char *__real_strdup(const char *string);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *data, size_t size);
char *__wrap_strdup(const char *string);

static int memory_fails(const char *name)
{
	return failing_memory && strike(failing_memory, name);
}

void *__wrap_malloc(size_t size)
{
	return memory_fails("malloc") ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return memory_fails("calloc") ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *data, size_t size)
{
	return memory_fails("realloc") ? NULL : __real_realloc(data, size);
}

char *__wrap_strdup(const char *string)
{
	return memory_fails("strdup") ? NULL : __real_strdup(string);
}

/* ---- Rounds ------------------------------------------------------------------- */

void fault_begin(struct fault *fault, int err)
{
	*fault = (struct fault){ .sys = *real, .err = err };
#define REPLACE(name) fault->sys.name = fault_##name
	REPLACE(open);
	REPLACE(close);
	REPLACE(pread);
	REPLACE(pwritev);
	REPLACE(fallocate);
	REPLACE(punch_hole);
	REPLACE(fsync);
	REPLACE(fstat);
	REPLACE(stat);
	REPLACE(lstat);
	REPLACE(link);
	REPLACE(rename);
	REPLACE(unlink);
	REPLACE(mkdir);
	REPLACE(rmdir);
	REPLACE(chmod);
	REPLACE(touch);
	REPLACE(opendir);
	REPLACE(readdir);
	REPLACE(map);
	REPLACE(populate);
	REPLACE(try_lock);
	REPLACE(unlock);
	REPLACE(file_system);
	REPLACE(random);
#undef REPLACE
}

int fault_next(struct fault *fault)
{
	if (fault->n && !fault->n_fired) {
		if (fault->lasting)
			return 0;
		fault->lasting = 1;
		fault->n = 0;
	}
	fault->n += 1 + (fault->n > 32 ? fault->n * fault->stride / 32 : 0);
	fault->n_calls = 0;
	fault->n_fired = 0;
	fault->fired = "nothing";
	return 1;
}

void fault_arm(struct fault *fault)
{
	fault->armed = 1;
	if (fault->err == -ENOMEM)
		failing_memory = fault;
}

void fault_disarm(struct fault *fault)
{
	fault->armed = 0;
	failing_memory = NULL;
}
