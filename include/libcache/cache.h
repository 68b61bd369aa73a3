/* SPDX-License-Identifier: MIT */
#ifndef _CACHE_H
#define _CACHE_H

/*
 * libcache - a cache of lines between a program and a device of bytes.
 *
 * Source-compatible with the <cache.h> of Phoenix-RTOS, so a program written
 * for that one is compiled anew and linked with -lcache.  The device is two
 * callbacks; struct cache_devCtx_s is defined by the program, and never looked
 * into here.
 *
 * Callbacks  One at a time for each cache, each for one line: `count` is the
 *            size of a line, less for a line that the device's end cuts off and
 *            where a transfer that came back short goes on.  They return how
 *            many bytes they moved; 0, a negative number, or more than they
 *            were asked for is a failure.  No lock is held while they run.  A
 *            callback may use its cache as long as it need not wait for itself:
 *            what is in the cache is served, else it gets -EDEADLK.
 *
 * Errors     Negative errno, as results; errno itself is left alone.  -EINVAL:
 *            a NULL, a policy that does not exist, an address past the end, a
 *            range that ends before it begins.  -EIO: the device failed.
 *
 * Eviction   Of a set's lines the one used least recently goes.  While several
 *            threads use the cache that is known less exactly: lines used since
 *            the last miss of their set count as used at the same time.
 *
 * Threads    Any, at any time, except around cache_deinit and cache_discard.
 *            cache_deinit gives -EBUSY where it can see that it is not alone,
 *            in a callback above all.
 *
 * fork()     A child leaves the cache it inherits alone, or discards it
 *            (cache_discard): all else may wait for a thread that the child
 *            does not have, and what is dirty is for the parent to write.
 */

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIBCACHE_WRITE_BACK    0
#define LIBCACHE_WRITE_THROUGH 1

typedef struct cachectx_s cachectx_t;

/* The program's. */
typedef struct cache_devCtx_s cache_devCtx_t;

typedef ssize_t (*cache_readCb_t)(uint64_t offset, void *buffer, size_t count,
				  cache_devCtx_t *ctx);
typedef ssize_t (*cache_writeCb_t)(uint64_t offset, const void *buffer,
				   size_t count, cache_devCtx_t *ctx);

typedef struct {
	cache_readCb_t readCb;
	cache_writeCb_t writeCb;
	cache_devCtx_t *ctx;
} cache_ops_t;

/*
 * Make a cache over a device of `srcMemSize` bytes.  `ops` is copied.
 * `linesCnt` is a multiple of the number of ways (4, unless the library was
 * built with another).  Neither it nor `lineSize` need be a power of two.
 * NULL: a size that cannot be, or no memory.
 */
cachectx_t *cache_init(size_t srcMemSize, size_t lineSize, size_t linesCnt,
		       const cache_ops_t *ops);

/*
 * Write what is dirty, then free everything.  When the device fails, what
 * could not be written stays, nothing is freed, and this may be called again.
 */
int cache_deinit(cachectx_t *cache);

/*
 * Read bytes.  The result is how many: fewer than `count` where the device ends,
 * 0 at its very end.  When one line fails the result is an error, whatever the lines
 * before it did.
 */
ssize_t cache_read(cachectx_t *cache, uint64_t addr, void *buffer,
		   size_t count);
/*
 * Write bytes, as `policy` says.  What could not be written through is kept
 * in the cache as if written back.
 */
ssize_t cache_write(cachectx_t *cache, uint64_t addr, const void *buffer,
		    size_t count, int policy);

/*
 * Write or drop all lines with a byte in [begAddr, endAddr), the line of `begAddr` from its
 * first byte on.  An end past the device's is the device's.
 *
 * flush writes dirty lines.  invalidate drops lines, and with them what was not
 * written.  clean writes and drops; a write that comes between is not lost.
 * The first line that fails ends flush and clean, and stays, dirty.
 */
int cache_flush(cachectx_t *cache, const uint64_t begAddr,
		const uint64_t endAddr);
int cache_invalidate(cachectx_t *cache, const uint64_t begAddr,
		     const uint64_t endAddr);
int cache_clean(cachectx_t *cache, const uint64_t begAddr,
		const uint64_t endAddr);

#ifdef LIBCACHE_EXTENSIONS

/*
 * cache_deinit for a device that is gone: nothing is written, what was dirty
 * is lost, and everything is freed.  -EINVAL for NULL, else 0.
 */
int cache_discard(cachectx_t *cache);

/*
 * Write only what is dirty of a line, in multiples of `gran` bytes at
 * multiples of `gran`.  -EINVAL unless it is a power of two and at most a line.
 */
int cache_setFlushGranularity(cachectx_t *cache, size_t gran);

#endif

#ifdef __cplusplus
}
#endif

#endif /* _CACHE_H */
