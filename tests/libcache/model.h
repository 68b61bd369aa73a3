/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_LIBCACHE_MODEL_H
#define KI_TESTS_LIBCACHE_MODEL_H

/*
 * A cache against a plain array.  Actors choose operations, from a random
 * number or from a fuzzer's bytes, on a device that fails now and then, and
 * whatever a cache answers is compared with what the array says:
 *
 * - a read returns the bytes last written;
 * - a write that failed has changed each of its bytes or has not;
 * - what was written through, flushed or cleaned is on the device, and what was
 *   cleaned is read from there again;
 * - what was invalidated is what the device has, and a line that was known to
 *   be on the device is not changed by it;
 * - once a cache is closed the device has it all.
 *
 * Of several actors, each in a thread, every one owns pieces of lines that it
 * shares with the others; it writes and compares only those.
 */

#include "device.h"

struct model;
struct model_actor;

/* ---- What is tested ------------------------------------------------------- */

struct model_shape {
	size_t size, line, n_lines, n_ways;
	unsigned n_actors;
	unsigned fault_rate; /* calls of the device of 256 that fail */
	/* Only for who has them. */
	unsigned n_calls;
	size_t call_bytes_max, read_ahead, granularity;
	int scan_resistant, hashed;
};

/* The functions of a cache; those after clean may be NULL. */
struct model_subject {
	const char *name;
	void *(*open)(const struct model_shape *shape, cache_devCtx_t *device);
	int (*close)(void *cache);
	void (*discard_all)(void *cache);
	ssize_t (*read)(void *cache, uint64_t addr, void *buffer, size_t count);
	ssize_t (*write)(void *cache, uint64_t addr, const void *buffer,
			 size_t count, int through);
	int (*flush)(void *cache, uint64_t begin, uint64_t end);
	int (*invalidate)(void *cache, uint64_t begin, uint64_t end);
	int (*clean)(void *cache, uint64_t begin, uint64_t end);
	int (*granularity)(void *cache, size_t bytes);
	int (*discard)(void *cache, uint64_t begin, uint64_t end);
	int (*prefetch)(void *cache, uint64_t begin, uint64_t count);
	int (*get)(void *cache, uint64_t addr, const void **out_data,
		   size_t *out_size);
	void (*release)(void *cache, const void *data);
	int (*pin)(void *cache, uint64_t addr, size_t count);
	int (*unpin)(void *cache, uint64_t addr, size_t count);
	int (*resize)(void *cache, size_t n_lines);
};

extern const struct model_subject model_libcache; /* of WAYS */
extern const struct model_subject model_block;

/* ---- Choices ---------------------------------------------------------------- */

/* Numbers from a generator; or from bytes, until they end. */
struct model_choices {
	uint64_t seed;
	const uint8_t *bytes; /* NULL: the seed */
	size_t n_bytes;
};

uint32_t model_choose(struct model_choices *choices, uint32_t below);
int model_is_out(const struct model_choices *choices);

/* Any that the subject may have. */
struct model_shape model_choose_shape(struct model_choices *choices,
				      const struct model_subject *subject,
				      size_t ways, unsigned n_actors);

/* ---- Runs --------------------------------------------------------------------- */

/*
 * Up to n_steps of each actor.  0: all was right; else `message` says what was
 * not.  -1: such a shape is refused.
 */
struct model_result {
	int wrong;
	char message[200];
};
struct model_result model_run(const struct model_subject *subject,
			      const struct model_shape *shape,
			      const struct model_choices *choices,
			      unsigned n_steps);

#endif /* KI_TESTS_LIBCACHE_MODEL_H */
