/* SPDX-License-Identifier: MIT */

/*
 * Programs, from the quick way to the slow one:
 *
 *	kiln_program_get (entry.c)
 *	  glance ------------- where the key led before, by pin: no lock, no call
 *	  look --------------- in the table, without a lock
 *	  find_wider --------- one for more devices
 *	  ki_memory_begin ---- join a flight, or lead one (memory/memory.h)
 *	    ki_program_fetch - from disk, else built (persist.c)
 *	    relieve ---------- short of resources: drop what is kept, once more
 *	    ki_registry_keep - for others, within the bound (registry.c)
 *	  ki_memory_finish --- wake those who waited
 *
 * What is not to be kept goes by build_alone(): a flight that nobody follows
 * says who is building what, so that a build() which asks for itself is told.
 */

#include <stdlib.h>

#include "program/program.h"

struct kiln_blob *ki_programs_look(struct kiln_programs *programs,
				   const struct kiln_key *key,
				   enum ki_programs_count which)
{
	struct kiln_blob *blob;

	if (ki_memory_get(programs->memory, key, &blob))
		return NULL;
	ki_programs_count_hit(programs, ki_slot_get(), which);
	return blob;
}

int ki_programs_relieve(struct kiln_programs *programs, unsigned n,
			struct kiln_program *spared)
{
	int by_halves = !!(programs->flags & KILN_PROGRAMS_COLD_HALF);

	if (n > (unsigned)by_halves)
		return 0;
	if (by_halves && !n) {
		ki_registry_drop(programs, KI_DROP_COLD_HALF, spared);
	} else {
		ki_registry_drop(programs, KI_DROP_ALL, spared);
		ki_programs_count(programs, KI_COUNT_RESETS);
	}
	return 1;
}

/* ---- Building -------------------------------------------------------------- */

/* KILN_OK, KILN_E_BUILD with *failure, or KILN_E_NO_MEMORY. */
static enum kiln_status make(struct kiln_programs *programs,
			     const struct kiln_program_key *key,
			     struct ki_flight *flight,
			     struct kiln_program **out_program,
			     struct kiln_program_failure *failure)
{
	enum kiln_build_kind kind;
	unsigned n = 0;
	void *handle;

	do {
		kiln_program_failure_fini(failure);
		kind = ki_program_fetch(programs, key, flight, &handle,
					failure);
		failure->kind = kind;
	} while (kind == KILN_BUILD_RESOURCES &&
		 ki_programs_relieve(programs, n++, NULL));
	if (kind) {
		ki_programs_count(programs, KI_COUNT_BUILD_FAILURES);
		return KILN_E_BUILD;
	}
	*out_program = ki_program_new(programs, key, handle);
	return *out_program ? KILN_OK : KILN_E_NO_MEMORY;
}

static enum kiln_status lead(struct kiln_programs *programs,
			     const struct kiln_program_key *key,
			     struct ki_flight *flight,
			     struct kiln_program **out_program,
			     struct kiln_program_failure *failure)
{
	struct kiln_build_result result;
	enum kiln_status status =
		make(programs, key, flight, out_program, failure);

	kiln_build_result_init(&result);
	if (!status) {
		ki_registry_keep(programs, *out_program);
		result.blob = &(*out_program)->blob;
	} else {
		ki_result_from_failure(&result, failure);
	}
	if (ki_memory_finish(programs->memory, flight,
			     status == KILN_E_BUILD ? KILN_OK : status,
			     &result))
		ki_registry_note_failure(programs, key, failure);
	return status;
}

static enum kiln_status build_alone(struct kiln_programs *programs,
				    const struct kiln_program_key *key,
				    struct kiln_program **out_program,
				    struct kiln_program_failure *failure)
{
	struct kiln_build_result nothing;
	struct ki_flight *flight;
	enum kiln_status status =
		ki_memory_begin_alone(programs->memory, key->key, &flight);

	if (status != KILN_MISS)
		return status;
	kiln_build_result_init(&nothing);
	nothing.kind = KILN_BUILD_RESOURCES; /* is never kept */
	status = make(programs, key, flight, out_program, failure);
	ki_memory_finish(programs->memory, flight, KILN_OK, &nothing);
	return status;
}

/* ---- Getting --------------------------------------------------------------- */

static void note_fetched(struct kiln_programs *programs,
			 struct kiln_program *program)
{
	ki_program_touch(programs, program);
	if (!ki_programs_are_traced(programs))
		return;
	ki_trace_program(program, "Program fetched.");
	if (programs->keeps_time)
		ki_trace_program(program,
				 "Program moved to the end of eviction list.");
}

static enum kiln_status join(struct kiln_programs *programs,
			     const struct kiln_program_key *key,
			     struct kiln_program **out_program,
			     struct kiln_program_failure *failure)
{
	struct kiln_build_result result;
	struct ki_flight *flight;
	enum kiln_status status;

	kiln_build_result_init(&result);
	status = ki_memory_begin(programs->memory, key->key, &result, &flight);
	if (status == KILN_MISS)
		return lead(programs, key, flight, out_program, failure);
	if (status)
		return status;
	if (result.kind != KILN_BUILD_OK) {
		ki_failure_from_result(failure, &result);
		return KILN_E_BUILD;
	}
	*out_program = (struct kiln_program *)result.blob;
	note_fetched(programs, *out_program);
	return KILN_OK;
}

static struct kiln_program *find_wider(struct kiln_programs *programs,
				       const struct kiln_program_key *key)
{
	struct kiln_program *program = ki_registry_find_wider(programs, key);

	if (!program)
		return NULL;
	note_fetched(programs, program);
	ki_programs_count_hit(programs, ki_slot_get(), KI_COUNT_PROGRAM_HITS);
	/* From now on by the quick way. */
	if (!ki_memory_add(programs->memory, key->key, &program->blob))
		ki_registry_keep_link(programs, program, key->key, NULL,
				      &program->blob);
	return program;
}

static enum kiln_status get_slowly(struct kiln_programs *programs,
				   const struct kiln_program_key *key,
				   struct kiln_program **out_program,
				   struct kiln_program_failure *failure)
{
	struct kiln_program_failure why;
	enum kiln_status status;
	struct kiln_blob *blob;

	kiln_program_failure_init(&why);
	if (!key->is_cacheable || (programs->flags & KILN_PROGRAMS_NO_MEMORY)) {
		status = build_alone(programs, key, out_program, &why);
		goto out;
	}
	blob = ki_programs_look(programs, key->key, KI_COUNT_PROGRAM_HITS);
	if (blob) {
		*out_program = (struct kiln_program *)blob;
		note_fetched(programs, *out_program);
		return KILN_OK;
	}
	*out_program = find_wider(programs, key);
	if (*out_program)
		return KILN_OK;
	status = join(programs, key, out_program, &why);
out:
	if (status == KILN_E_BUILD)
		ki_failure_give(failure, &why);
	else
		kiln_program_failure_fini(&why);
	return status;
}

enum kiln_status ki_program_get(struct kiln_programs *programs,
				const struct kiln_program_key *key,
				struct kiln_program **out_program,
				struct kiln_program_failure *failure,
				struct ki_slot *slot)
{
	struct kiln_program *program = NULL;
	struct kiln_blob *blob;
	enum kiln_status status;

	if (__builtin_expect(!programs || !key || !out_program, 0))
		return KILN_E_INVALID;
	if (__builtin_expect(ki_programs_are_forked(programs), 0))
		return KILN_E_FORKED;
	if (key->programs != programs)
		return KILN_E_INVALID;
	blob = slot ? ki_programs_glance(programs, &key->hint, slot,
					 KI_COUNT_PROGRAM_HITS)
		    : NULL;
	if (__builtin_expect(blob != NULL, 1)) {
		*out_program = (struct kiln_program *)blob;
		ki_program_touch(programs, *out_program);
		return KILN_OK;
	}
	status = get_slowly(programs, key, &program, failure);
	if (status)
		return status;
	ki_registry_set_hint(programs, program, key->key, &key->hint,
			     &program->blob);
	*out_program = program;
	return KILN_OK;
}

/* ---- Dropping -------------------------------------------------------------- */

enum kiln_status kiln_programs_wipe(struct kiln_programs *programs)
{
	if (!programs)
		return KILN_E_INVALID;
	if (ki_programs_are_forked(programs))
		return KILN_E_FORKED;
	ki_registry_drop(programs, KI_DROP_ALL, NULL);
	return KILN_OK;
}

enum kiln_status kiln_programs_forget_image(
	struct kiln_programs *programs, const struct kiln_program_image *image)
{
	uint8_t name[KI_BLAKE2B_BYTES];

	if (!programs || !image)
		return KILN_E_INVALID;
	if (ki_programs_are_forked(programs))
		return KILN_E_FORKED;
	ki_image_name(image, name);
	ki_registry_drop_image(programs, name);
	return KILN_OK;
}

/* ---- Statistics ------------------------------------------------------------ */

static uint64_t hits(struct kiln_programs *programs,
		     enum ki_programs_count which)
{
	uint64_t sum = which == KI_COUNT_FAST_HITS
			       ? ki_slots_hits(programs->owner)
			       : ki_slots_looks(programs->owner,
						(enum ki_look)(which - 1));

	for (size_t i = 0; i < KI_PROGRAM_STRIPES; i++)
		sum += atomic_load(&programs->stripes[i].hits[which]);
	return sum;
}

enum kiln_status kiln_programs_stats(struct kiln_programs *programs,
				     struct kiln_programs_stats *out)
{
	struct kiln_programs_stats stats;

	if (!programs || !out || out->size < sizeof(size_t))
		return KILN_E_INVALID;
	if (ki_programs_are_forked(programs))
		return KILN_E_FORKED;
	kiln_programs_stats_init(&stats);
	if (out->size < stats.size)
		stats.size = out->size;
	ki_mutex_lock(&programs->mutex);
	stats.n_programs = programs->n_programs;
	stats.n_kernels = programs->n_kernels;
	stats.bytes = programs->bytes;
	ki_mutex_unlock(&programs->mutex);
	stats.fast_hits = hits(programs, KI_COUNT_FAST_HITS);
	stats.kernel_hits = hits(programs, KI_COUNT_KERNEL_HITS);
	stats.program_hits = hits(programs, KI_COUNT_PROGRAM_HITS);
	stats.builds = atomic_load(&programs->counts[KI_COUNT_BUILDS]);
	stats.from_store = atomic_load(&programs->counts[KI_COUNT_FROM_STORE]);
	stats.build_failures =
		atomic_load(&programs->counts[KI_COUNT_BUILD_FAILURES]);
	stats.evicted = atomic_load(&programs->counts[KI_COUNT_EVICTED]);
	stats.resets = atomic_load(&programs->counts[KI_COUNT_RESETS]);
	memcpy(out, &stats, stats.size);
	return KILN_OK;
}

/* ---- Life ------------------------------------------------------------------ */

static int is_complete(const struct kiln_program_runtime *runtime)
{
	return runtime && runtime->size >= sizeof(*runtime) &&
	       runtime->create_from_image && runtime->build &&
	       runtime->release_program && runtime->create_kernel &&
	       runtime->release_kernel;
}

static struct ki_home *new_home(const struct kiln_program_runtime *runtime,
				struct kiln_programs *programs)
{
	struct ki_home *home = calloc(1, sizeof(*home));

	if (!home)
		return NULL;
	home->runtime = *runtime;
	home->fork_counter = programs->fork_counter;
	atomic_init(&home->refs, 1);
	atomic_init(&home->programs, programs);
	return home;
}

static char *copy(const char *text, int *no_memory)
{
	char *copied = text ? strdup(text) : NULL;

	if (text && !copied)
		*no_memory = 1;
	return copied;
}

static void discard(struct kiln_programs *programs)
{
	ki_registry_fini(programs);
	ki_devices_fini(programs);
	ki_slots_owner_free(programs->owner);
	ki_home_unref(programs->home);
	free(programs->compile_override);
	free(programs->link_override);
	free(programs->compile_append);
	free(programs->link_append);
	free(programs);
}

static enum kiln_status fill(struct kiln_programs *programs,
			     const struct kiln_programs_options *options)
{
	const struct ki_memory_options of_memory = {
		.order = KI_MEMORY_APPROXIMATE,
		.failure_policy = KILN_FAILURE_KEEP,
		.keep_all_failures = 1,
		.no_column = 1,
	};
	int no_memory = 0;

	programs->kiln = options->kiln;
	programs->bytes_max = options->bytes_max;
	programs->image_bytes_min = options->image_bytes_min;
	programs->image_bytes_max = options->image_bytes_max;
	programs->flags = options->flags;
	programs->keeps_time = options->bytes_max ||
			       (options->flags & KILN_PROGRAMS_COLD_HALF);
	programs->compile_override =
		copy(options->compile_options_override, &no_memory);
	programs->link_override =
		copy(options->link_options_override, &no_memory);
	programs->compile_append =
		copy(options->compile_options_append, &no_memory);
	programs->link_append = copy(options->link_options_append, &no_memory);
	programs->home = new_home(options->runtime, programs);
	if (no_memory || !programs->home)
		return KILN_E_NO_MEMORY;
	return ki_memory_new(&of_memory, &programs->memory);
}

enum kiln_status kiln_programs_new(const struct kiln_programs_options *options,
				   struct kiln_programs **out_programs)
{
	const uint32_t flags = KILN_PROGRAMS_NO_MEMORY |
			       KILN_PROGRAMS_NO_STORE |
			       KILN_PROGRAMS_COLD_HALF |
			       KILN_PROGRAMS_WHOLE_IMAGES | KILN_PROGRAMS_TRACE;
	struct kiln_programs *programs;
	enum kiln_status status;

	if (!options || options->size < sizeof(*options) || !out_programs ||
	    !is_complete(options->runtime) || (options->flags & ~flags))
		return KILN_E_INVALID;
	programs = aligned_alloc(_Alignof(struct kiln_programs),
				 sizeof(*programs));
	if (!programs)
		return KILN_E_NO_MEMORY;
	memset(programs, 0, sizeof(*programs));
	programs->fork_counter = ki_fork_generation();
	ki_slots_prepare();
	programs->owner = ki_slots_owner_new();
	ki_registry_init(programs);
	status = fill(programs, options);
	if (status)
		discard(programs);
	else
		*out_programs = programs;
	return status;
}

/* In a forked child nothing of the runtime's may be touched, and locks may be
   held by threads that are not there: everything is left as it is. */
void kiln_programs_free(struct kiln_programs *programs)
{
	if (!programs || ki_programs_are_forked(programs))
		return;
	atomic_store(&programs->home->programs, NULL);
	ki_registry_drop(programs, KI_DROP_ALL, NULL);
	ki_memory_free(programs->memory);
	discard(programs);
}
