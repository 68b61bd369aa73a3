/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_LIBCACHE_DEVICE_H
#define KI_TESTS_LIBCACHE_DEVICE_H

/*
 * A device in memory that tests look into and make fail.  It is strict: what
 * goes beyond its end fails and is remembered.  Calls that overlap are
 * remembered too, since users' callbacks rely on being alone.
 */

#include <stdatomic.h>

#include <cache.h>

enum device_call { DEVICE_READ, DEVICE_WRITE };

/* As an answer: no byte, and no error. */
#define DEVICE_NOTHING ((ssize_t)1)

/* Asked before each call: 0, or what the callback returns instead. */
typedef ssize_t device_hook_fn(cache_devCtx_t *device, enum device_call call,
			       uint64_t offset, size_t count);

struct cache_devCtx_s {
	uint8_t *bytes;
	size_t size;
	/* Faults; for the test to set while no call runs. */
	ssize_t read_answer, write_answer; /* not 0: instead of bytes */
	size_t bytes_max;		   /* of one transfer; 0: all */
	size_t too_much;		   /* added to what is returned */
	device_hook_fn *hook;
	void *hook_arg;
	/* What was asked for. */
	atomic_uint n_reads, n_writes;
	atomic_size_t bytes_read, bytes_written;
	_Atomic uint64_t last_offset;
	atomic_size_t last_count;
	/* What never may be. */
	atomic_uint n_running, n_overlaps, n_outside;
};

/* Bytes that tell their place; free(device->bytes) undoes it. */
void device_init(cache_devCtx_t *device, size_t size);

/* What it holds at `offset` in the beginning. */
uint8_t device_byte(uint64_t offset);

cache_ops_t device_ops(cache_devCtx_t *device);

/* Forget what was counted. */
void device_reset(cache_devCtx_t *device);

#endif /* KI_TESTS_LIBCACHE_DEVICE_H */
