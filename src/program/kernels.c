/* SPDX-License-Identifier: MIT */

/*
 * Kernels of programs.
 *
 *	kiln_kernel_get (entry.c)
 *	  glance -------------- where the key led before: no lock, no call; marks
 *	  |                     the program as used, so that a hot kernel is not
 *	  |                     the first to go
 *	  look ---------------- fast map, without a lock
 *	  kiln_program_get ---- the program, then of it
 *	  kiln_program_kernel - by (program, name), created in a flight
 *	  keep_fast ----------- for the next time
 *
 * The program is got before the kernel's flight begins: a thread that leads a
 * flight does not wait for another.
 */

#include <stdlib.h>

#include "program/program.h"

/* To be freed in any case. */
static enum kiln_status kernel_key(const struct kiln_program *program,
				   const char *name, struct kiln_key **out_key)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "kernel of", &program->number,
		     sizeof(program->number));
	kiln_key_add_string(key, "name", name);
	*out_key = key;
	return kiln_key_finish(key);
}

/* ---- Creating -------------------------------------------------------------- */

/* KILN_OK, KILN_E_BUILD with *failure, or KILN_E_NO_MEMORY.  The program is in
   use: it would free nothing if it were dropped. */
static enum kiln_status make(struct kiln_programs *programs,
			     struct kiln_program *program, const char *name,
			     struct kiln_kernel **out_kernel,
			     struct kiln_program_failure *failure)
{
	const struct kiln_program_runtime *runtime = &program->home->runtime;
	enum kiln_build_kind kind;
	unsigned n = 0;
	void *handle;

	do {
		kiln_program_failure_fini(failure);
		kind = runtime->create_kernel(runtime->context, program->handle,
					      name, &handle, failure);
		failure->kind = kind;
	} while (kind == KILN_BUILD_RESOURCES && programs &&
		 ki_programs_relieve(programs, n++, program));
	if (kind)
		return KILN_E_BUILD;
	*out_kernel = ki_kernel_new(program, handle);
	return *out_kernel ? KILN_OK : KILN_E_NO_MEMORY;
}

static enum kiln_status lead(struct kiln_programs *programs,
			     const struct kiln_key *key,
			     struct ki_flight *flight,
			     struct kiln_program *program, const char *name,
			     struct kiln_kernel **out_kernel,
			     struct kiln_program_failure *failure)
{
	struct kiln_build_result result;
	enum kiln_status status =
		make(programs, program, name, out_kernel, failure);

	kiln_build_result_init(&result);
	if (!status) {
		result.blob = &(*out_kernel)->blob;
		if (!ki_memory_add(programs->memory, key, result.blob))
			ki_registry_keep_link(programs, program, key, NULL,
					      result.blob);
	} else {
		ki_result_from_failure(&result, failure);
	}
	if (ki_memory_finish(programs->memory, flight,
			     status == KILN_E_BUILD ? KILN_OK : status,
			     &result))
		ki_registry_note_kernel(programs, program, key, failure);
	return status;
}

static enum kiln_status join(struct kiln_programs *programs,
			     const struct kiln_key *key,
			     struct kiln_program *program, const char *name,
			     struct kiln_kernel **out_kernel,
			     struct kiln_program_failure *failure)
{
	struct kiln_build_result result;
	struct ki_flight *flight;
	enum kiln_status status;

	kiln_build_result_init(&result);
	status = ki_memory_begin(programs->memory, key, &result, &flight);
	if (status == KILN_MISS)
		return lead(programs, key, flight, program, name, out_kernel,
			    failure);
	if (status)
		return status;
	if (result.kind != KILN_BUILD_OK) {
		ki_failure_from_result(failure, &result);
		return KILN_E_BUILD;
	}
	*out_kernel = (struct kiln_kernel *)result.blob;
	return KILN_OK;
}

static enum kiln_status find_or_make(struct kiln_programs *programs,
				     struct kiln_program *program,
				     const char *name,
				     struct kiln_kernel **out_kernel,
				     struct kiln_program_failure *failure)
{
	struct kiln_key *key;
	struct kiln_blob *blob;
	enum kiln_status status;

	if (!programs || !atomic_load(&program->is_kept))
		return make(programs, program, name, out_kernel, failure);
	status = kernel_key(program, name, &key);
	if (status)
		goto out;
	ki_program_touch(programs, program);
	blob = ki_programs_look(programs, key, KI_COUNT_KERNEL_HITS);
	if (blob) {
		*out_kernel = (struct kiln_kernel *)blob;
		ki_trace_kernel(program, key, "Kernel fetched.");
	} else
		status =
			join(programs, key, program, name, out_kernel, failure);
out:
	kiln_key_free(key);
	return status;
}

enum kiln_status kiln_program_kernel(struct kiln_program *program,
				     const char *name,
				     struct kiln_kernel **out_kernel,
				     struct kiln_program_failure *failure)
{
	struct kiln_programs *programs;
	struct kiln_program_failure why;
	struct kiln_kernel *kernel;
	enum kiln_status status;

	if (!program || !name || !out_kernel)
		return KILN_E_INVALID;
	if (ki_home_is_inherited(program->home))
		return KILN_E_FORKED;
	programs = atomic_load(&program->home->programs);
	kiln_program_failure_init(&why);
	status = find_or_make(programs, program, name, &kernel, &why);
	if (status == KILN_E_BUILD)
		ki_failure_give(failure, &why);
	else
		kiln_program_failure_fini(&why);
	if (!status)
		*out_kernel = kernel;
	return status;
}

/* ---- The fast map ---------------------------------------------------------- */

static void keep_fast(struct kiln_programs *programs,
		      const struct kiln_kernel_key *key,
		      struct kiln_kernel *kernel)
{
	const struct kiln_program_key *of = key->program_key;
	struct ki_seed_key seed;

	if (!atomic_load(&kernel->program->is_kept))
		return;
	ki_seed_key_init(&seed, of->constants, of->constants_size, key->unit,
			 key->name);
	if (!ki_memory_add(programs->memory, key->key, &kernel->blob))
		ki_registry_keep_link(programs, kernel->program, key->key,
				      &seed, &kernel->blob);
}

static enum kiln_status get_slowly(struct kiln_programs *programs,
				   const struct kiln_kernel_key *key,
				   struct kiln_kernel **out_kernel,
				   struct kiln_program_failure *failure)
{
	struct kiln_blob *blob =
		ki_programs_look(programs, key->key, KI_COUNT_FAST_HITS);
	struct kiln_program *program;
	enum kiln_status status;

	if (blob) {
		*out_kernel = (struct kiln_kernel *)blob;
		ki_program_touch(programs, (*out_kernel)->program);
		ki_trace_kernel((*out_kernel)->program, key->key,
				"Kernel fetched.");
		return KILN_OK;
	}
	status =
		kiln_program_get(programs, key->program_key, &program, failure);
	if (status)
		return status;
	status = kiln_program_kernel(program, key->name, out_kernel, failure);
	if (!status)
		keep_fast(programs, key, *out_kernel);
	kiln_program_unref(program);
	return status;
}

enum kiln_status ki_kernel_get(struct kiln_programs *programs,
			       const struct kiln_kernel_key *key,
			       struct kiln_kernel **out_kernel,
			       struct kiln_program_failure *failure,
			       struct ki_slot *slot)
{
	struct kiln_kernel *kernel;
	struct kiln_blob *blob;
	enum kiln_status status;

	if (__builtin_expect(!programs || !key || !out_kernel ||
				     key->programs != programs,
			     0))
		return KILN_E_INVALID;
	if (__builtin_expect(ki_programs_are_forked(programs), 0))
		return KILN_E_FORKED;
	blob = slot ? ki_programs_glance(programs, &key->hint, slot,
					 KI_COUNT_FAST_HITS)
		    : NULL;
	if (__builtin_expect(blob != NULL, 1)) {
		*out_kernel = (struct kiln_kernel *)blob;
		if (programs->keeps_time)
			ki_lru_touch(&programs->lru,
				     &(*out_kernel)->program->lru);
		return KILN_OK;
	}
	status = get_slowly(programs, key, &kernel, failure);
	if (status)
		return status;
	ki_registry_set_hint(programs, kernel->program, key->key, &key->hint,
			     &kernel->blob);
	*out_kernel = kernel;
	return KILN_OK;
}

/* ---- By the seed's key ----------------------------------------------------- */

/* KILN_OK, KILN_MISS, or KILN_E_TIMEOUT: ask by lock. */
static enum kiln_status find_by_pin(struct kiln_programs *programs,
				    const struct ki_seed_key *seed,
				    struct ki_slot *slot,
				    struct kiln_kernel **out_kernel)
{
	enum kiln_status status = KILN_E_TIMEOUT;
	struct kiln_kernel *kernel;

	ki_slot_pin(slot);
	kernel = ki_seeds_find(&programs->seeds, seed);
	if (!kernel) {
		status = KILN_MISS;
	} else if (atomic_load(&kernel->blob.counter) &&
		   ki_slot_take(slot, ki_slot_place(&kernel->blob),
				&kernel->blob)) {
		ki_programs_count_hit(programs, slot, KI_COUNT_FAST_HITS);
		*out_kernel = kernel;
		status = KILN_OK;
	}
	ki_slot_leave(slot);
	return status;
}

static void trace_found(const struct kiln_kernel *kernel, const char *name)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "fast", name);
	if (!kiln_key_finish(key))
		ki_trace_kernel(kernel->program, key, "Kernel fetched.");
	kiln_key_free(key);
}

enum kiln_status ki_kernel_find(struct kiln_programs *programs,
				const void *constants, size_t constants_size,
				void *device, const char *name,
				struct kiln_kernel **out_kernel,
				struct ki_slot *slot)
{
	enum kiln_status status = KILN_E_TIMEOUT;
	struct kiln_kernel *kernel = NULL;
	struct ki_device found;
	struct ki_seed_key seed;

	if (__builtin_expect(!programs || !name || !out_kernel ||
				     (!constants && constants_size),
			     0))
		return KILN_E_INVALID;
	if (__builtin_expect(ki_programs_are_forked(programs), 0))
		return KILN_E_FORKED;
	/* A device that nobody has asked for has no kernels. */
	if (!ki_device_look(programs, device, &found))
		return KILN_MISS;
	ki_seed_key_init(&seed, constants, constants_size, found.unit, name);
	if (__builtin_expect(slot != NULL, 1))
		status = find_by_pin(programs, &seed, slot, &kernel);
	if (__builtin_expect(status == KILN_E_TIMEOUT, 0)) {
		kernel = ki_registry_find_seed(programs, &seed);
		if (kernel)
			ki_programs_count_hit(programs, ki_slot_get(),
					      KI_COUNT_FAST_HITS);
	}
	if (!kernel)
		return KILN_MISS;
	if (programs->keeps_time)
		ki_lru_touch(&programs->lru, &kernel->program->lru);
	if (ki_programs_are_traced(programs))
		trace_found(kernel, name);
	*out_kernel = kernel;
	return KILN_OK;
}
