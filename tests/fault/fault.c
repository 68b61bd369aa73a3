/* SPDX-License-Identifier: MIT */

#include "fault/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/interpose.h"

/* Allocations have no context. */
static struct fault *failing_memory;

int fault_strike(struct fault *fault, const char *name)
{
	if (!fault->armed || (fault->only && strcmp(fault->only, name) != 0))
		return 0;
	fault->n_calls++;
	if (fault->lasting ? fault->n_calls < fault->n
			   : fault->n_calls != fault->n)
		return 0;
	if (!fault->n_fired++)
		fault->fired = name;
	if (!strcmp(name, "fidentify"))
		fault->n_unknown++;
	return fault->err;
}

/* Dead, or stopped and in time continued: 1. */
static int is_held(int err)
{
	if (err != FAULT_DIE && err != FAULT_STOP)
		return 0;
	kill(getpid(), err == FAULT_DIE ? SIGKILL : SIGSTOP);
	return 1;
}

static int strike_call(const struct ki_sys *sys, const char *name)
{
	struct fault *fault = (struct fault *)(uintptr_t)sys;
	int err;

	if (fault->err == -ENOMEM || fault->err == FAULT_SHORT)
		return 0;
	err = fault_strike(fault, name);
	return is_held(err) ? 0 : err;
}

static int is_short(const struct ki_sys *sys, const char *name)
{
	struct fault *fault = (struct fault *)(uintptr_t)sys;

	return fault->err == FAULT_SHORT && fault_strike(fault, name);
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

/* One number is written or is not. */
static size_t half_of(size_t size)
{
	return size > sizeof(uint64_t) ? size / 2 : 0;
}

static ssize_t fault_pwritev(const struct ki_sys *sys, int fd,
			     const struct ki_piece *pieces, int n_pieces,
			     uint64_t offset)
{
	struct fault *fault = (struct fault *)(uintptr_t)sys;
	struct ki_piece half = { pieces[0].data, half_of(pieces[0].size) };
	struct ki_piece one = { pieces[0].data, 1 };
	ssize_t n;
	int err = 0;

	if (pieces[0].size > 1 && is_short(sys, "pwritev"))
		return real->pwritev(real, fd, &one, 1, offset);
	if (fault->err != -ENOMEM && fault->err != FAULT_SHORT)
		err = fault_strike(fault, "pwritev");
	if (!err)
		return real->pwritev(real, fd, pieces, n_pieces, offset);
	n = half.size ? real->pwritev(real, fd, &half, 1, offset) : 0;
	return is_held(err) ? n : err;
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
FORWARD(open_in,
	(const struct ki_sys *sys, int directory, const char *name,
	 unsigned flags, unsigned mode),
	(real, directory, name, flags, mode))
FORWARD(fmeasure,
	(const struct ki_sys *sys, int fd, struct ki_file_info *out_info),
	(real, fd, out_info))
FORWARD(measure,
	(const struct ki_sys *sys, const char *path,
	 struct ki_file_info *out_info),
	(real, path, out_info))
FORWARD(fidentify,
	(const struct ki_sys *sys, int fd, uint64_t *out_device,
	 uint64_t *out_inode),
	(real, fd, out_device, out_inode))
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
FORWARD(rename_new,
	(const struct ki_sys *sys, const char *from, const char *to),
	(real, from, to))
FORWARD(unlink, (const struct ki_sys *sys, const char *path), (real, path))
INTERPOSED_PATH_CALLS(FORWARD)
FORWARD(opendir,
	(const struct ki_sys *sys, const char *path, struct ki_dir **out_dir),
	(real, path, out_dir))
FORWARD(readdir,
	(const struct ki_sys *sys, struct ki_dir *dir, const char **out_name),
	(real, dir, out_name))
FORWARD(lstat_in,
	(const struct ki_sys *sys, struct ki_dir *dir, const char *name,
	 struct ki_file_info *out_info),
	(real, dir, name, out_info))
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
FORWARD(try_flock, (const struct ki_sys *sys, int fd, enum ki_lock_kind kind),
	(real, fd, kind))
FORWARD(set_access_time, (const struct ki_sys *sys, int fd, int64_t ns),
	(real, fd, ns))
FORWARD(unlock,
	(const struct ki_sys *sys, int fd, uint64_t offset, uint64_t size),
	(real, fd, offset, size))
FORWARD(file_system,
	(const struct ki_sys *sys, const char *path,
	 enum ki_file_system *out_kind),
	(real, path, out_kind))
FORWARD(random, (const struct ki_sys *sys, void *data, size_t size),
	(real, data, size))

FORWARD(connect,
	(const struct ki_sys *sys, const char *path, uint32_t *out_uid),
	(real, path, out_uid))
FORWARD(listen, (const struct ki_sys *sys, const char *path), (real, path))
FORWARD(wait,
	(const struct ki_sys *sys, int fd, int for_room, uint64_t deadline_ns),
	(real, fd, for_room, deadline_ns))
FORWARD(sealed_memory,
	(const struct ki_sys *sys, const struct ki_piece *pieces, int n_pieces),
	(real, pieces, n_pieces))

static ssize_t fault_send(const struct ki_sys *sys, int fd, const void *data,
			  size_t size, int fd_along)
{
	int err = strike_call(sys, "send");

	if (err)
		return err;
	if (size > 1 && is_short(sys, "send"))
		size = 1;
	return real->send(real, fd, data, size, fd_along);
}

static ssize_t fault_recv(const struct ki_sys *sys, int fd, void *data,
			  size_t size)
{
	int err = strike_call(sys, "recv");

	if (err)
		return err;
	if (size > 1 && is_short(sys, "recv"))
		size = 1;
	return real->recv(real, fd, data, size);
}

/* ---- Allocations ------------------------------------------------------------- */

/* What is allocated and not freed, in all threads. */
static _Atomic long n_blocks;

static int memory_fails(const char *name)
{
	return failing_memory && fault_strike(failing_memory, name);
}

static void *counted(void *block)
{
	n_blocks += block != NULL;
	return block;
}

#define ALLOCATE(type, name, parameters, arguments)                            \
	type __real_##name parameters;                                         \
	type __wrap_##name parameters;                                         \
	type __wrap_##name parameters                                          \
	{                                                                      \
		return memory_fails(#name) ? NULL                              \
					   : counted(__real_##name arguments); \
	}

ALLOCATE(void *, malloc, (size_t size), (size))
ALLOCATE(void *, calloc, (size_t n, size_t size), (n, size))
ALLOCATE(void *, aligned_alloc, (size_t alignment, size_t size),
	 (alignment, size))
ALLOCATE(char *, strdup, (const char *string), (string))
ALLOCATE(char *, strndup, (const char *string, size_t size), (string, size))

void *__real_realloc(void *data, size_t size);
void *__wrap_realloc(void *data, size_t size);
int __real_vasprintf(char **out, const char *format, va_list arguments);
int __wrap_vasprintf(char **out, const char *format, va_list arguments);
int __wrap_asprintf(char **out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void __real_free(void *data);
void __wrap_free(void *data);

void *__wrap_realloc(void *data, size_t size)
{
	void *moved =
		memory_fails("realloc") ? NULL : __real_realloc(data, size);

	return data ? moved : counted(moved);
}

int __wrap_vasprintf(char **out, const char *format, va_list arguments)
{
	int n = memory_fails("vasprintf")
			? -1
			: __real_vasprintf(out, format, arguments);

	n_blocks += n >= 0;
	return n;
}

int __wrap_asprintf(char **out, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = __wrap_vasprintf(out, format, arguments);
	va_end(arguments);
	return n;
}

void __wrap_free(void *data)
{
	n_blocks -= data != NULL;
	__real_free(data);
}

long fault_n_blocks(void)
{
	return n_blocks;
}

/* ---- Rounds ------------------------------------------------------------------- */

void fault_begin(struct fault *fault, int err)
{
	*fault = (struct fault){ .sys = *real, .err = err, .n_all = 32 };
	INTERPOSE_CHANGES(&fault->sys, fault);
	INTERPOSE(&fault->sys, fault, pread);
	INTERPOSE(&fault->sys, fault, rename_new);
	INTERPOSE(&fault->sys, fault, punch_hole);
	INTERPOSE(&fault->sys, fault, fsync);
	INTERPOSE(&fault->sys, fault, fstat);
	INTERPOSE(&fault->sys, fault, open_in);
	INTERPOSE(&fault->sys, fault, fmeasure);
	INTERPOSE(&fault->sys, fault, measure);
	INTERPOSE(&fault->sys, fault, fidentify);
	INTERPOSE(&fault->sys, fault, stat);
	INTERPOSE(&fault->sys, fault, lstat);
	INTERPOSE(&fault->sys, fault, chmod);
	INTERPOSE(&fault->sys, fault, touch);
	INTERPOSE(&fault->sys, fault, opendir);
	INTERPOSE(&fault->sys, fault, readdir);
	INTERPOSE(&fault->sys, fault, lstat_in);
	INTERPOSE(&fault->sys, fault, populate);
	INTERPOSE(&fault->sys, fault, try_lock);
	INTERPOSE(&fault->sys, fault, unlock);
	INTERPOSE(&fault->sys, fault, try_flock);
	INTERPOSE(&fault->sys, fault, set_access_time);
	INTERPOSE(&fault->sys, fault, file_system);
	INTERPOSE(&fault->sys, fault, random);
	INTERPOSE(&fault->sys, fault, connect);
	INTERPOSE(&fault->sys, fault, listen);
	INTERPOSE(&fault->sys, fault, send);
	INTERPOSE(&fault->sys, fault, recv);
	INTERPOSE(&fault->sys, fault, wait);
	INTERPOSE(&fault->sys, fault, sealed_memory);
}

int fault_next(struct fault *fault)
{
	if (fault->n && !fault->n_fired) {
		if (fault->lasting)
			return 0;
		fault->lasting = 1;
		fault->n = 0;
	}
	fault->n += 1 + (fault->n > fault->n_all ? fault->n * fault->stride / 32
						 : 0);
	fault->n_calls = 0;
	fault->n_fired = 0;
	fault->n_unknown = 0;
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
