/* SPDX-License-Identifier: MIT */

/*
 * Programs and kernels.  They are blobs whose data nobody reads: memory counts
 * their references as it counts those of values, and release() is their end.
 * A kernel has its program, a program the home, and the home the runtime's
 * table, which so outlives the cache.
 */

#include <stdlib.h>

#include "program/program.h"

struct ki_home *ki_home_ref(struct ki_home *home)
{
	atomic_fetch_add(&home->refs, 1);
	return home;
}

void ki_home_unref(struct ki_home *home)
{
	if (home && atomic_fetch_sub(&home->refs, 1) == 1)
		free(home);
}

static void init_blob(struct kiln_blob *blob, kiln_release_fn *release,
		      void *arg)
{
	*blob = (struct kiln_blob){ .release = release,
				    .arg = arg,
				    .place = KI_BLOB_NOWHERE };
	atomic_init(&blob->refs, 1);
}

/* ---- Programs -------------------------------------------------------------- */

/* Whoever drops the blob frees its memory, which is the program's. */
static void end_program(void *arg)
{
	struct kiln_program *program = arg;
	const struct kiln_program_runtime *runtime = &program->home->runtime;

	if (!ki_home_is_inherited(program->home))
		runtime->release_program(runtime->context, program->handle);
	ki_home_unref(program->home);
	kiln_key_free(program->key);
	kiln_key_free(program->base);
	free(program->units);
	free(program->told);
}

/*
 * Asked only where there is a bound and it is to be kept: some drivers finish
 * all kernels to tell the size of a binary.  What the runtime cannot say is taken
 * for the image's size: nothing may be kept for nothing.  Sums never wrap.
 */
static uint64_t bytes_of(const struct kiln_program_key *key, void *handle)
{
	const struct kiln_program_runtime *runtime =
		&key->programs->home->runtime;
	const uint64_t most = INT64_MAX;
	uint64_t bytes = 0;

	if (!key->programs->bytes_max || !key->is_cacheable ||
	    (key->programs->flags & KILN_PROGRAMS_NO_MEMORY))
		return 0;
	for (size_t i = 0; i < key->n_devices && runtime->binary_size; i++) {
		uint64_t size = runtime->binary_size(runtime->context, handle,
						     key->handles[i]);

		bytes = size < most - bytes ? bytes + size : most;
	}
	if (!bytes)
		bytes = sizeof(struct kiln_program) + key->image.data_size;
	return bytes;
}

struct kiln_program *ki_program_new(struct kiln_programs *programs,
				    const struct kiln_program_key *key,
				    void *handle)
{
	const struct kiln_program_runtime *runtime = &programs->home->runtime;
	struct kiln_program *program =
		aligned_alloc(_Alignof(struct kiln_program), sizeof(*program));
	uint32_t *units = calloc(key->n_devices, sizeof(*units));

	if (!program || !units) {
		free(program);
		free(units);
		runtime->release_program(runtime->context, handle);
		return NULL;
	}
	memset(program, 0, sizeof(*program));
	init_blob(&program->blob, end_program, program);
	program->home = ki_home_ref(programs->home);
	program->handle = handle;
	program->number = atomic_fetch_add(&programs->next_number, 1);
	program->bytes = bytes_of(key, handle);
	program->key = kiln_key_ref(key->key);
	program->base = kiln_key_ref(key->base);
	program->units = units;
	program->n_units = key->n_devices;
	memcpy(units, key->units, key->n_devices * sizeof(*units));
	memcpy(program->image, key->image_name, sizeof(program->image));
	if (ki_programs_are_traced(programs))
		program->told = ki_trace_key(key);
	ki_list_init(&program->all);
	ki_list_init(&program->links);
	ki_list_init(&program->failed);
	ki_list_init(&program->hints);
	return program;
}

void *kiln_program_handle(const struct kiln_program *program)
{
	return program->handle;
}

void *kiln_program_retain(struct kiln_program *program)
{
	const struct kiln_program_runtime *runtime = &program->home->runtime;

	if (!runtime->retain_program || ki_home_is_inherited(program->home))
		return NULL;
	runtime->retain_program(runtime->context, program->handle);
	return program->handle;
}

struct kiln_program *kiln_program_ref(struct kiln_program *program)
{
	return (struct kiln_program *)kiln_blob_ref(
		(struct kiln_blob *)program);
}

void kiln_program_unref(struct kiln_program *program)
{
	kiln_blob_unref((struct kiln_blob *)program);
}

/* ---- Kernels --------------------------------------------------------------- */

static void end_kernel(void *arg)
{
	struct kiln_kernel *kernel = arg;
	const struct kiln_program_runtime *runtime =
		&kernel->program->home->runtime;

	if (!ki_home_is_inherited(kernel->program->home))
		runtime->release_kernel(runtime->context, kernel->handle);
	kiln_program_unref(kernel->program);
}

/* Takes the handle, also without memory. */
struct kiln_kernel *ki_kernel_new(struct kiln_program *program, void *handle)
{
	const struct kiln_program_runtime *runtime = &program->home->runtime;
	struct kiln_kernel *kernel =
		aligned_alloc(64, (sizeof(*kernel) + 63) / 64 * 64);

	if (!kernel) {
		runtime->release_kernel(runtime->context, handle);
		return NULL;
	}
	init_blob(&kernel->blob, end_kernel, kernel);
	kernel->program = kiln_program_ref(program);
	kernel->handle = handle;
	ki_list_init(&kernel->givers);
	return kernel;
}

void *kiln_kernel_handle(const struct kiln_kernel *kernel)
{
	return kernel->handle;
}

void *kiln_kernel_retain(struct kiln_kernel *kernel)
{
	const struct kiln_program_runtime *runtime =
		&kernel->program->home->runtime;

	if (!runtime->retain_kernel ||
	    ki_home_is_inherited(kernel->program->home))
		return NULL;
	runtime->retain_kernel(runtime->context, kernel->handle);
	return kernel->handle;
}

struct kiln_program *kiln_kernel_program(const struct kiln_kernel *kernel)
{
	return kernel->program;
}

struct kiln_kernel *kiln_kernel_ref(struct kiln_kernel *kernel)
{
	return (struct kiln_kernel *)kiln_blob_ref((struct kiln_blob *)kernel);
}

void kiln_kernel_unref(struct kiln_kernel *kernel)
{
	kiln_blob_unref((struct kiln_blob *)kernel);
}
