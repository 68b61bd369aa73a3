/* SPDX-License-Identifier: MIT */

/* Programs made from an entry, and what the entry tells of them. */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/capture.h"

/* Whether options ask for what only the source can tell. */
static int want_kernels(const char *options)
{
	static const char *const flags[] = { "-cl-kernel-arg-info", "-g" };
	size_t i, size;

	while (options && *options) {
		options += strspn(options, " \t\n\r\v\f");
		size = strcspn(options, " \t\n\r\v\f");
		for (i = 0; i < 2; i++)
			if (size == strlen(flags[i]) &&
			    !memcmp(options, flags[i], size))
				return 1;
		options += size;
	}
	return 0;
}

static int any_wants_kernels(const struct ki_cl_recipe *recipe)
{
	int wants = want_kernels(recipe->options);
	cl_uint i;

	for (i = 0; i < recipe->n_inputs && !wants; i++)
		wants = any_wants_kernels(recipe->inputs[i].recipe);
	return wants;
}

int ki_cl_wants_kernels(const struct ki_cl_recipe *recipe)
{
	return ki_cl_recipe_has_kernels(recipe) && any_wants_kernels(recipe);
}

/* A program from an entry's value; NULL if the driver will not, or without
   memory. */
static cl_program load_binaries(cl_context context, cl_uint n_devices,
				const cl_device_id *devices,
				const struct kiln_blob *value,
				cl_int *out_result)
{
	const unsigned char **binaries = calloc(n_devices, sizeof(*binaries));
	size_t *sizes = calloc(n_devices, sizeof(*sizes));
	cl_program loaded = NULL;

	*out_result = CL_OUT_OF_HOST_MEMORY;
	if (!binaries || !sizes)
		goto out;
	*out_result = CL_INVALID_BINARY;
	if (ki_cl_unpack(kiln_blob_data(value), kiln_blob_size(value),
			 n_devices, binaries, sizes))
		goto out;
	loaded = ki_cl_next.clCreateProgramWithBinary(
		context, n_devices, devices, sizes, binaries, NULL, out_result);
	if (loaded && *out_result) {
		(void)ki_cl_next.clReleaseProgram(loaded);
		loaded = NULL;
	}
out:
	free(binaries);
	free(sizes);
	return loaded;
}

static void describe_shadow(struct ki_cl_shadow *shadow,
			    struct kiln_blob *metadata)
{
	const void *bytes = kiln_blob_data(metadata);
	size_t size = kiln_blob_size(metadata);

	shadow->metadata = kiln_blob_ref(metadata);
	(void)kiln_metadata_find(bytes, size, KILN_META_BUILD_LOG,
				 &shadow->logs, &shadow->logs_size);
	(void)kiln_metadata_find(bytes, size, KILN_META_KERNELS,
				 &shadow->kernels, &shadow->kernels_size);
}

/* Everything but the program: nothing may fail once the driver has built. */
static struct ki_cl_shadow *prepare(const struct ki_cl_program *program,
				    const struct ki_cl_targets *targets,
				    const char *options)
{
	struct ki_cl_shadow *shadow = calloc(1, sizeof(*shadow));
	const cl_device_id *devices;

	if (!shadow)
		return NULL;
	shadow->context = program->context;
	devices = ki_cl_devices_of(program, targets, &shadow->n_devices);
	shadow->devices = malloc(shadow->n_devices * sizeof(*devices));
	shadow->options = options ? strdup(options) : NULL;
	if (!shadow->devices || (options && !shadow->options)) {
		free(shadow->options);
		free(shadow->devices);
		free(shadow);
		return NULL;
	}
	memcpy(shadow->devices, devices, shadow->n_devices * sizeof(*devices));
	return shadow;
}

static void drop(struct ki_cl_shadow *shadow)
{
	free(shadow->options);
	free(shadow->devices);
	free(shadow);
}

/* From the entry's binaries; built, if it is a program that can run. */
static cl_program make_program(const struct ki_cl_shadow *shadow,
			       int is_executable, const struct kiln_blob *value,
			       cl_int *out_result)
{
	cl_program program = load_binaries(shadow->context, shadow->n_devices,
					   shadow->devices, value, out_result);

	if (program && is_executable)
		*out_result = ki_cl_next.clBuildProgram(
			program, shadow->n_devices, shadow->devices,
			shadow->options, NULL, NULL);
	if (program && *out_result) {
		(void)ki_cl_next.clReleaseProgram(program);
		program = NULL;
	}
	return program;
}

/* Another time the driver may well have it. */
static int is_shortage(cl_int result)
{
	return result == CL_OUT_OF_HOST_MEMORY ||
	       result == CL_OUT_OF_RESOURCES ||
	       result == CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

/* Whoever builds a program again has its source: it is not kept for that. */
static struct ki_cl_made *without_source(struct ki_cl_made *made)
{
	static const char *const nothing = "";
	const struct ki_cl_recipe *recipe = NULL;
	struct ki_cl_source *source = NULL;
	struct ki_cl_made *slim = NULL;

	if (made->recipe->kind == KI_CL_BUILD && !made->recipe->source->il)
		source = ki_cl_source_new(1, &nothing, NULL);
	if (source)
		recipe = ki_cl_recipe_build(source, NULL, 0,
					    ki_cl_recipe_options(made->recipe));
	if (recipe)
		slim = ki_cl_made_new(recipe, made->key, made->stamp,
				      made->targets);
	ki_cl_recipe_unref(recipe);
	ki_cl_source_unref(source);
	return slim ? slim : ki_cl_made_ref(made);
}

struct ki_cl_made *ki_cl_shadow_made(struct ki_cl_program *program,
				     const struct ki_cl_shadow *shadow)
{
	struct ki_cl_made *slim = shadow->made, *made = NULL;
	const struct ki_cl_recipe *recipe = NULL;
	struct ki_cl_source *source;

	if (slim->recipe->kind != KI_CL_BUILD || slim->recipe->source->il)
		return ki_cl_made_ref(slim);
	source = ki_cl_program_source(program);
	if (source)
		recipe = ki_cl_recipe_build(source, NULL, 0,
					    ki_cl_recipe_options(slim->recipe));
	if (recipe)
		made = ki_cl_made_new(recipe, slim->key, slim->stamp,
				      slim->targets);
	ki_cl_recipe_unref(recipe);
	ki_cl_source_unref(source);
	return made;
}

struct ki_cl_shadow *ki_cl_shadow_new(const struct ki_cl_program *program,
				      struct ki_cl_made *made,
				      const char *options,
				      struct kiln_blob *value,
				      struct kiln_blob *metadata,
				      int *out_is_refused)
{
	struct ki_cl_shadow *shadow = prepare(program, made->targets, options);
	cl_int result;

	*out_is_refused = 0;
	if (!shadow)
		return NULL;
	if (made->recipe->kind != KI_CL_COMPILE) {
		shadow->program = make_program(
			shadow, ki_cl_recipe_has_kernels(made->recipe), value,
			&result);
		if (!shadow->program) {
			*out_is_refused = !is_shortage(result);
			drop(shadow);
			return NULL;
		}
	}
	shadow->is_own = program->is_linked;
	shadow->made = without_source(made);
	describe_shadow(shadow, metadata);
	ki_cl_shadow_add(shadow);
	return shadow;
}

/* ---- Where an entry is not enough ---------------------------------------- */

cl_program ki_cl_shadow_load(struct ki_cl_shadow *shadow)
{
	const struct kiln_blob *value;
	cl_program program, loaded = NULL;
	const struct ki_cl_guest *guest;
	cl_int result = CL_OUT_OF_HOST_MEMORY;

	ki_mutex_lock(&ki_cl_lock);
	program = shadow->program;
	ki_mutex_unlock(&ki_cl_lock);
	if (program)
		return program;
	value = ki_cl_shadow_binaries(shadow);
	if (value)
		loaded = make_program(shadow, 0, value, &result);
	if (!loaded) {
		guest = ki_cl_guest();
		if (guest && !is_shortage(result))
			(void)kiln_remove(guest->kiln, shadow->made->key);
		return NULL;
	}
	ki_mutex_lock(&ki_cl_lock);
	program = shadow->program;
	if (!program) {
		program = shadow->program = loaded;
		loaded = NULL;
	}
	ki_mutex_unlock(&ki_cl_lock);
	if (loaded)
		(void)ki_cl_next.clReleaseProgram(loaded);
	return program;
}

/* By the driver again what was linked; NULL if that would not be the same. */
static cl_program link_again(const struct ki_cl_program *program,
			     const struct ki_cl_made *made)
{
	const struct ki_cl_guest *guest = ki_cl_guest();
	cl_program linked = NULL;

	if (!guest || ki_cl_is_unchanged(guest, program, made))
		linked = ki_cl_remake(program->platform, made->recipe,
				      program->context, program->n_devices,
				      program->devices);
	if (!linked || !guest || ki_cl_is_unchanged(guest, program, made))
		return linked;
	(void)ki_cl_next.clReleaseProgram(linked);
	return NULL;
}

struct ki_cl_shadow *ki_cl_twin_new(const struct ki_cl_program *program,
				    const struct ki_cl_shadow *shadow)
{
	struct ki_cl_shadow *twin = prepare(program, NULL, NULL);

	if (!twin)
		return NULL;
	twin->program = link_again(program, shadow->made);
	if (!twin->program) {
		drop(twin);
		return NULL;
	}
	ki_cl_shadow_add(twin);
	return twin;
}

int ki_cl_make_twin(struct ki_cl_program *program)
{
	struct ki_cl_shadow *shadow = ki_cl_shadow_of(program), *twin;

	if (!shadow || !shadow->is_own) {
		ki_cl_shadow_unref(shadow);
		return 0;
	}
	twin = ki_cl_twin_new(program, shadow);
	ki_cl_shadow_unref(shadow);
	if (!twin)
		return -1;
	ki_cl_program_shadow(program, twin);
	return 0;
}

static int is_made_too(const struct ki_cl_shadow *shadow)
{
	int is_made;

	ki_mutex_lock(&ki_cl_lock);
	is_made = shadow->is_made_too;
	ki_mutex_unlock(&ki_cl_lock);
	return is_made;
}

cl_program ki_cl_answerer(struct ki_cl_program *program,
			  struct ki_cl_shadow **out_shadow)
{
	struct ki_cl_shadow *shadow = ki_cl_shadow_of(program);

	if (shadow && shadow->made &&
	    !ki_cl_recipe_has_kernels(shadow->made->recipe)) {
		if (shadow->is_own)
			(void)ki_cl_make_twin(program);
		else
			(void)ki_cl_go_native(program);
		ki_cl_shadow_unref(shadow);
		shadow = ki_cl_shadow_of(program);
	}
	/* An object that the driver cannot make any more is the entry's. */
	if (shadow && !shadow->is_own && shadow->made &&
	    shadow->made->recipe->kind == KI_CL_COMPILE &&
	    (is_made_too(shadow) || !ki_cl_shadow_load(shadow))) {
		ki_cl_shadow_unref(shadow);
		shadow = NULL;
	}
	*out_shadow = shadow;
	return shadow ? shadow->program : program->handle;
}

/* ---- Its binaries -------------------------------------------------------- */

/* The entry's value, read again and sound for the shadow's devices. */
static struct kiln_blob *read_binaries(const struct ki_cl_shadow *shadow)
{
	const struct ki_cl_guest *guest = ki_cl_guest();
	const unsigned char **binaries =
		calloc(shadow->n_devices, sizeof(*binaries));
	size_t *sizes = calloc(shadow->n_devices, sizeof(*sizes));
	struct kiln_blob *value = NULL, *metadata = NULL;

	if (guest && shadow->made && binaries && sizes &&
	    !kiln_peek(guest->kiln, shadow->made->key, &value, &metadata) &&
	    ki_cl_unpack(kiln_blob_data(value), kiln_blob_size(value),
			 shadow->n_devices, binaries, sizes)) {
		kiln_blob_unref(value);
		value = NULL;
	}
	kiln_blob_unref(metadata);
	free(binaries);
	free(sizes);
	return value;
}

/*
 * Programs ask for sizes first and then for as many bytes, so whoever answered
 * once answers always, and what it answered from stays.  The driver would keep
 * its own copy as long; asked for it, PoCL first loads every kernel.
 */
const struct kiln_blob *ki_cl_shadow_binaries(struct ki_cl_shadow *shadow)
{
	struct kiln_blob *fresh = NULL, *answer;
	int is_settled;

	ki_mutex_lock(&ki_cl_lock);
	is_settled = shadow->binaries || shadow->driver_has_told;
	ki_mutex_unlock(&ki_cl_lock);
	if (!is_settled)
		fresh = read_binaries(shadow);
	ki_mutex_lock(&ki_cl_lock);
	if (!shadow->binaries && !shadow->driver_has_told) {
		shadow->binaries = fresh;
		shadow->driver_has_told = !fresh;
		fresh = NULL;
	}
	answer = shadow->binaries;
	ki_mutex_unlock(&ki_cl_lock);
	kiln_blob_unref(fresh);
	return answer;
}
