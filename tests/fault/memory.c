/* SPDX-License-Identifier: MIT */

/*
 * S44, in the memory tier alone, where tables grow and buckets overflow: every
 * allocation fails in turn, once and for good.  What is found is right, what
 * was not kept is a miss and leaves no older value, the bounds hold, and
 * nothing is left behind.
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fault/fault.h"
#include "harness/harness.h"
#include "key/key.h"
#include "memory/memory.h"

/* More than a new table holds before it grows. */
#define N_KEYS	    220
#define ENTRIES_MAX 210

struct scene {
	struct fault fault;
	const struct ki_memory_options *options;
	struct kiln_key *keys[N_KEYS];
	struct kiln_blob *old[N_KEYS], *new[N_KEYS];
	struct ki_memory *memory;
	const char *wrong; /* what went wrong, or NULL */
};

static struct kiln_key *key_of(unsigned number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "number", &number, sizeof(number));
	if (kiln_key_finish(key))
		abort();
	/* The last are too many for one bucket. */
	if (number >= N_KEYS - 20)
		key->digest_low = 7;
	return key;
}

static struct kiln_blob *blob_of(unsigned number)
{
	struct kiln_blob *blob;

	if (kiln_blob_copy(&number, sizeof(number), &blob))
		abort();
	return blob;
}

/* The value is the old one, the new one, or (if it may) not there. */
static void look(struct scene *scene, unsigned i, int may_be_old)
{
	struct kiln_blob *blob;

	if (ki_memory_get(scene->memory, scene->keys[i], &blob))
		return;
	if (blob != scene->new[i] && (blob != scene->old[i] || !may_be_old))
		scene->wrong = "a wrong value";
	kiln_blob_unref(blob);
}

static void build_one(struct scene *scene, unsigned i)
{
	struct kiln_build_result result;
	struct ki_flight *flight;
	enum kiln_status status;

	kiln_build_result_init(&result);
	status = ki_memory_begin(scene->memory, scene->keys[i], &result,
				 &flight);
	if (status == KILN_MISS) {
		result.kind = KILN_BUILD_FAILED;
		result.code = 7;
		ki_memory_finish(scene->memory, flight, KILN_OK, &result);
	} else if (!status && result.kind == KILN_BUILD_OK &&
		   result.blob != scene->new[i]) {
		scene->wrong = "a wrong value of a flight";
	} else if (status && status != KILN_E_NO_MEMORY) {
		scene->wrong = "not a status for this";
	}
	kiln_build_result_fini(&result);
}

static void check_bound(struct scene *scene)
{
	uint64_t bytes, n_entries;

	ki_memory_size(scene->memory, &bytes, &n_entries);
	if (n_entries > ENTRIES_MAX)
		scene->wrong = "the bound is passed";
}

/* All of a tier's life, in a thread that is new to it. */
static void *live(void *arg)
{
	struct scene *scene = arg;
	enum kiln_status status;
	unsigned i;

	scene->memory = NULL;
	fault_arm(&scene->fault);
	status = ki_memory_new(scene->options, &scene->memory);
	if (status) {
		if (status != KILN_E_NO_MEMORY || !scene->fault.n_fired)
			scene->wrong = "the tier cannot be made";
		fault_disarm(&scene->fault);
		return NULL;
	}
	for (i = 0; i < N_KEYS; i++) {
		ki_memory_fill(scene->memory, scene->keys[i], scene->old[i],
			       ki_memory_changes(scene->memory));
		check_bound(scene);
	}
	for (i = 0; i < N_KEYS; i++)
		look(scene, i, 1);
	for (i = 0; i < N_KEYS; i += 2) {
		ki_memory_put(scene->memory, scene->keys[i], scene->new[i]);
		look(scene, i, 0);
		check_bound(scene);
	}
	for (i = 0; i < N_KEYS; i += 10)
		build_one(scene, i);
	if (ki_memory_remove(scene->memory, scene->keys[2]) < 0)
		scene->wrong = "a removal fails";
	ki_memory_trim(scene->memory, 10000);
	for (i = 0; i < N_KEYS; i++)
		look(scene, i, i % 2);
	fault_disarm(&scene->fault);
	/* The shortage is over: it is as good as ever. */
	ki_memory_put(scene->memory, scene->keys[0], scene->new[0]);
	look(scene, 0, 0);
	ki_memory_free(scene->memory);
	return NULL;
}

static void run(struct scene *scene)
{
	pthread_t thread;

	scene->wrong = NULL;
	if (pthread_create(&thread, NULL, live, scene))
		abort();
	pthread_join(thread, NULL);
}

static void every_allocation_of_the_tier_may_fail(void **state)
{
	static const struct ki_memory_options rows[] = {
		{ .entries_max = ENTRIES_MAX },
		{ .entries_max = ENTRIES_MAX, .order = KI_MEMORY_LRU },
		{ .entries_max = ENTRIES_MAX, .order = KI_MEMORY_INSERTION },
		{ .hold_nothing = 1 },
	};
	struct scene scene;
	unsigned i;

	for (i = 0; i < N_KEYS; i++) {
		scene.keys[i] = key_of(i);
		scene.old[i] = blob_of(i);
		scene.new[i] = blob_of(i + 1000);
	}
	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
		scene.options = &rows[r];
		/* What is made once for a thread stays. */
		fault_begin(&scene.fault, 0);
		run(&scene);
		for (fault_begin(&scene.fault, -ENOMEM);
		     fault_next(&scene.fault);) {
			const long n_blocks = fault_n_blocks();

			run(&scene);
			if (scene.wrong)
				fail_msg("row %zu, call %u (%s): %s", r,
					 scene.fault.n, scene.fault.fired,
					 scene.wrong);
			if (fault_n_blocks() != n_blocks)
				fail_msg("row %zu, call %u (%s): %ld left", r,
					 scene.fault.n, scene.fault.fired,
					 fault_n_blocks() - n_blocks);
		}
	}
	for (i = 0; i < N_KEYS; i++) {
		kiln_key_free(scene.keys[i]);
		kiln_blob_unref(scene.old[i]);
		kiln_blob_unref(scene.new[i]);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_of_the_tier_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
