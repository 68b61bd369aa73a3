/* SPDX-License-Identifier: MIT */
#ifndef KILN_BLOCK_H
#define KILN_BLOCK_H

/*
 * A block cache: lines of a device of bytes, kept in memory.
 *
 * The device is two functions.  The cache is `n_lines` lines in sets of
 * `n_ways`; a block (a line's worth of the device) has one set where it may be.
 *
 *	struct kiln_block_options options = kiln_block_options_default();
 *
 *	options.device_bytes = size;
 *	options.line_bytes = 4096;
 *	options.n_lines = 1024;
 *	err = kiln_block_open(&options, &device, &block);
 *
 * Threads    Everything, at any time, except what says that it is to be alone.
 *            A hit takes no lock.  No lock is held while a function of the
 *            device runs: whoever wants just that block waits, others go on, as
 *            far as `n_calls` lets them reach the device.
 *
 * Re-entry   A function of the device may use the cache that called it, as far
 *            as it need not wait: what would wait fails with -EDEADLK.  It may
 *            not be left by longjmp or by the end of its thread.
 *
 * fork()     A child may abandon the copy it inherits, whatever the threads of
 *            its parent were doing, and nothing else: a lock may be held for
 *            ever by one that it does not have, and what is dirty is for the
 *            parent to write.
 *
 * Errors     Negative errno.  -EINVAL: a NULL, an address past the end, a range
 *            that ends before it begins.  -EIO: the device failed;
 *            kiln_block_device_error() knows its own number.  -EROFS: it has no
 *            write.  -EBUSY: a line is held (kiln_block_get), or the cache is
 *            in use.  -ENOMEM.
 *
 * Ownership  The caller's, until kiln_block_close() returns 0.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kiln/api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kiln_block;

/*
 * Move up to `count` bytes at `offset`, and return how many: fewer, and the
 * rest is asked for; 0, less, or more than `count`, and it has failed.
 */
typedef ssize_t kiln_block_read_fn(uint64_t offset, void *buffer, size_t count,
				   void *context);
typedef ssize_t kiln_block_write_fn(uint64_t offset, const void *buffer,
				    size_t count, void *context);

struct kiln_block_device {
	kiln_block_read_fn *read;
	kiln_block_write_fn *write; /* NULL: a device that is only read */
	void *context;
};

/* allocate returns memory for any purpose (as malloc does), or NULL. */
struct kiln_block_allocator {
	void *(*allocate)(size_t size, void *context);
	void (*release)(void *memory, void *context); /* never of NULL */
	void *context;
};

enum kiln_block_policy {
	KILN_BLOCK_LRU = 0,
	/* What is read once goes before what was read again. */
	KILN_BLOCK_SCAN_RESISTANT = 1,
};

enum kiln_block_index {
	KILN_BLOCK_MODULO = 0, /* neighbours in neighbouring sets */
	/* The same for runs of neighbours, each of which lies anywhere. */
	KILN_BLOCK_HASHED = 1,
};

struct kiln_block_options {
	size_t size; /* of this structure */
	uint64_t device_bytes;
	size_t line_bytes; /* any, also not a power of two */
	size_t n_lines;	   /* a multiple of n_ways */
	size_t n_ways;
	enum kiln_block_policy policy;
	enum kiln_block_index index;
	/* How many functions of the device may run at once; 1: one by one. */
	unsigned n_calls;
	/* The most that one call moves; no less than a line.  0: a line. */
	size_t call_bytes_max;
	/* How much to read on behind a miss that follows the one before. */
	size_t read_ahead_bytes;
	/* Write in multiples of this; a power of two.  0: whole lines. */
	size_t flush_granularity;
	struct kiln_block_allocator allocator; /* NULLs: malloc and free */
};

/* 1024 lines of 4096 bytes in 4 ways, LRU, one call at a time of one line.
   The size of the device is missing. */
static inline struct kiln_block_options kiln_block_options_default(void)
{
	struct kiln_block_options options = { sizeof(struct kiln_block_options),
					      0,
					      4096,
					      1024,
					      4,
					      KILN_BLOCK_LRU,
					      KILN_BLOCK_MODULO,
					      1,
					      0,
					      0,
					      0,
					      { NULL, NULL, NULL } };

	return options;
}

/* ---- Life --------------------------------------------------------------- */

/* Open a cache over a device; both structures are copied.  -EINVAL, -ENOMEM. */
KILN_API int kiln_block_open(const struct kiln_block_options *options,
			     const struct kiln_block_device *device,
			     struct kiln_block **out_block);
/*
 * Alone: nobody else is in a call, nor will begin one.  Write what is dirty and
 * free everything.  When that fails nothing is freed, what could not be written
 * stays, and this may be called again.  -EBUSY: it is not alone, as far as that
 * can be seen (hits leave no trace), or a line is held or pinned.
 */
KILN_API int kiln_block_close(struct kiln_block *block);
/* Free everything and write nothing: what is dirty is lost.  Alone.  Accepts
   NULL. */
KILN_API void kiln_block_abandon(struct kiln_block *block);
/*
 * Change the number of lines, a multiple of n_ways.  Alone.  Dirty lines are
 * written first; then the lines that find room stay.  After an error it is as
 * large as before.  -EBUSY while a line is held or pinned.
 */
KILN_API int kiln_block_resize(struct kiln_block *block, size_t n_lines);

/* ---- Bytes -------------------------------------------------------------- */

enum kiln_block_write_mode {
	KILN_BLOCK_WRITE_BACK = 0,
	KILN_BLOCK_WRITE_THROUGH = 1,
};

/*
 * Read bytes.  The result is how many: fewer than `count` where the device ends,
 * 0 at its end.  An error if one line failed, whatever the lines before it did.
 */
KILN_API ssize_t kiln_block_read(struct kiln_block *block, uint64_t address,
				 void *buffer, size_t count);
/* Write bytes, with the same results.  What cannot be written through stays,
   dirty. */
KILN_API ssize_t kiln_block_write(struct kiln_block *block, uint64_t address,
				  const void *buffer, size_t count,
				  enum kiln_block_write_mode mode);
/* Bring lines in, but no more than the cache has. */
KILN_API int kiln_block_prefetch(struct kiln_block *block, uint64_t address,
				 uint64_t count);

/* ---- Ranges ------------------------------------------------------------- */

/*
 * Lines with a byte in [begin, end), the line of `begin` from its first byte
 * on; `end` may be past the device's.  The work is by the blocks of the range
 * or by the lines of the cache, whichever are fewer.
 *
 * flush writes dirty lines, in the order of their addresses; the first that
 * fails ends it and stays dirty.  clean drops each line once it is written: one
 * that is written to meanwhile is written to the device again.  invalidate
 * drops them, and what was not written is lost.
 *
 * discard says that the bytes of the range matter no more: lines wholly inside
 * are dropped, bytes outside are never lost.
 *
 * -EBUSY: all was done except that lines that are held or pinned were not
 * dropped.
 */
KILN_API int kiln_block_flush(struct kiln_block *block, uint64_t begin,
			      uint64_t end);
KILN_API int kiln_block_clean(struct kiln_block *block, uint64_t begin,
			      uint64_t end);
KILN_API int kiln_block_invalidate(struct kiln_block *block, uint64_t begin,
				   uint64_t end);
KILN_API int kiln_block_discard(struct kiln_block *block, uint64_t begin,
				uint64_t end);

/* ---- Lines that stay ---------------------------------------------------- */

/*
 * Hold a line, to look at its bytes from `address` on without copying: valid and
 * unchanged until the release of the same pointer.  Lines of 64 bytes or more
 * begin at a multiple of the greatest power of two that divides their size, up
 * to 4096.  Writing to the line fails with -EBUSY meanwhile.  -ENOSPC: all
 * lines of the set are held, pinned, or on their way to the device.
 */
KILN_API int kiln_block_get(struct kiln_block *block, uint64_t address,
			    const void **out_data, size_t *out_size);
KILN_API void kiln_block_release(struct kiln_block *block, const void *data);

/*
 * Bring in the lines of a range and keep them until as many calls of unpin.
 * All or none.  -ENOSPC: a set has no room for them.
 */
KILN_API int kiln_block_pin(struct kiln_block *block, uint64_t address,
			    size_t count);
/* Let them go.  -EINVAL: one of them is not pinned (the others are let go). */
KILN_API int kiln_block_unpin(struct kiln_block *block, uint64_t address,
			      size_t count);

/* ---- Looking at it ------------------------------------------------------ */

struct kiln_block_stats {
	size_t size;	 /* set by the caller: of this structure */
	uint64_t hits;	 /* lines; near enough as threads come and go */
	uint64_t misses; /* lines */
	uint64_t evictions;
	uint64_t read_calls; /* of the device */
	uint64_t read_bytes;
	uint64_t write_calls;
	uint64_t write_bytes;
	uint64_t errors; /* calls of the device that failed */
	uint64_t n_lines;
	uint64_t n_valid; /* lines now */
	uint64_t n_dirty;
	uint64_t metadata_bytes; /* all memory but the lines and buffers */
};
/* What was counted so far, and what there is now. */
KILN_API int kiln_block_stats(struct kiln_block *block,
			      struct kiln_block_stats *out_stats);

/* What the device's function returned when it last failed (<= 0, or more than
   it was asked for); 0: it never did. */
KILN_API ssize_t kiln_block_device_error(struct kiln_block *block);

/* As the option. */
KILN_API int kiln_block_set_flush_granularity(struct kiln_block *block,
					      size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* KILN_BLOCK_H */
