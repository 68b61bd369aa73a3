/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_LIBCACHE_RIG_H
#define KI_TESTS_LIBCACHE_RIG_H

/* A cache on a device, as most tests want one, and short words for it. */

#define LIBCACHE_EXTENSIONS
#include "device.h"

#include "harness/harness.h"

/* Not a multiple of a page, and of more blocks than there are lines. */
#define SIZE	10240
#define LINE	64
#define N_LINES 32
/* Blocks so far apart are in one set. */
#define APART ((uint64_t)LINE * (N_LINES / WAYS))

#define WB LIBCACHE_WRITE_BACK
#define WT LIBCACHE_WRITE_THROUGH

struct rig {
	cache_devCtx_t device;
	cachectx_t *cache;
};

void rig_open_as(struct rig *rig, size_t size, size_t line, size_t n_lines);
void rig_open(struct rig *rig); /* of SIZE, LINE, N_LINES */

/* The device must have been kept in its bounds, and called by one at a time. */
void rig_check(struct rig *rig);

/* Undo; deinit must succeed. */
void rig_close(struct rig *rig);

/* Where deinit was called already. */
void rig_free(struct rig *rig);

/* `count` bytes of one value are written, or must be read. */
void rig_fill(struct rig *rig, uint64_t addr, size_t count, int value,
	      int policy);
void rig_expect(struct rig *rig, uint64_t addr, size_t count, int value);

/* What the device was made with is read. */
void rig_expect_first(struct rig *rig, uint64_t addr, size_t count);

/* The device itself holds it. */
int rig_holds(const struct rig *rig, uint64_t addr, size_t count, int value);
int rig_holds_first(const struct rig *rig, uint64_t addr, size_t count);

/* Whether a read asks the device. */
int rig_misses(struct rig *rig, uint64_t addr);

#endif /* KI_TESTS_LIBCACHE_RIG_H */
