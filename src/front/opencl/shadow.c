/* SPDX-License-Identifier: MIT */

/* A program made from an entry: S, built and described. */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/capture.h"

/* Whether the options ask for what only the source can tell. */
int ki_cl_wants_kernels(const char *options)
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

/* S, made from the entry's binaries; NULL if the driver will not. */
static cl_program load_binaries(const struct ki_cl_program *program,
				const void *value, size_t size)
{
	const unsigned char **binaries =
		calloc(program->n_devices, sizeof(*binaries));
	size_t *sizes = calloc(program->n_devices, sizeof(*sizes));
	cl_program loaded = NULL;
	cl_int result = CL_SUCCESS;

	if (!binaries || !sizes ||
	    ki_cl_unpack(value, size, program->n_devices, binaries, sizes))
		goto out;
	loaded = ki_cl_next.clCreateProgramWithBinary(
		program->context, program->n_devices, program->devices, sizes,
		binaries, NULL, &result);
	if (loaded && result) {
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

/* A built shadow with one reference; NULL if it cannot be had.  The options
   are copied first: nothing may fail once the driver has built. */
struct ki_cl_shadow *ki_cl_shadow_new(const struct ki_cl_program *program,
				      struct kiln_key *key, const char *options,
				      struct kiln_blob *value,
				      struct kiln_blob *metadata)
{
	struct ki_cl_shadow *shadow = calloc(1, sizeof(*shadow));
	size_t size = program->n_devices * sizeof(*shadow->devices);

	if (!shadow)
		return NULL;
	shadow->context = program->context;
	shadow->devices = malloc(size);
	shadow->options = options ? strdup(options) : NULL;
	if (!shadow->devices || (options && !shadow->options))
		goto failed;
	memcpy(shadow->devices, program->devices, size);
	shadow->n_devices = program->n_devices;
	shadow->program = load_binaries(program, kiln_blob_data(value),
					kiln_blob_size(value));
	if (!shadow->program)
		goto failed;
	if (ki_cl_next.clBuildProgram(shadow->program, shadow->n_devices,
				      shadow->devices, options, NULL, NULL)) {
		(void)ki_cl_next.clReleaseProgram(shadow->program);
		goto failed;
	}
	describe_shadow(shadow, metadata);
	shadow->key = kiln_key_ref(key);
	ki_cl_shadow_add(shadow);
	return shadow;
failed:
	free(shadow->options);
	free(shadow->devices);
	free(shadow);
	return NULL;
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

	if (guest && binaries && sizes &&
	    !kiln_peek(guest->kiln, shadow->key, &value, &metadata) &&
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
