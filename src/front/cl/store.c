/* SPDX-License-Identifier: MIT */

/*
 * The store: entries are the OpenCL layer's own (docs/formats/opencl-entry.md),
 * by its keys, so what either keeps the other finds.
 *
 *	built --- kept in a list, with one reference
 *	later --- by kiln_cl_keep() or kiln_cl_close(): fetched, tried, put
 *	next ---- found, made, compared with what the entry tells of its kernels
 *
 * A fetch makes PoCL compile every kernel (8 small ones: 0.7 s, as long as they
 * take to run), and gives the poorer binary if they have not run yet (190 kB
 * against 334 kB); hence later.
 *
 * Servers, if their helper is there and they take anything, are given it whatever
 * becomes of the store; where neither takes it, nothing is fetched.  Helpers come and
 * go: each is asked for when something was built, and when it is to be fetched.
 *
 * An entry is tried before it is put: a driver that will not load what it gave,
 * or then tells less of the kernels, would cost every start to come a try.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/remote.h>

#include "front/cl/cl.h"
#include "front/family.h"
#include "front/opencl/capture.h"
#include "front/opencl/job.h"
#include "front/opencl/kept.h"

/* ---- From an entry ----------------------------------------------------------- */

static cl_program load(const struct kiln_cl *cl, const cl_device_id *devices,
		       cl_uint n_devices, const char *options,
		       const void *value, size_t size, cl_int *out_err)
{
	const unsigned char **binaries = calloc(n_devices, sizeof(*binaries));
	size_t *sizes = calloc(n_devices, sizeof(*sizes));
	cl_program program = NULL;

	*out_err = CL_OUT_OF_HOST_MEMORY;
	if (binaries && sizes) {
		*out_err = CL_INVALID_BINARY;
		if (!ki_cl_unpack(value, size, n_devices, binaries, sizes))
			program = clCreateProgramWithBinary(
				cl->context, n_devices, devices, sizes,
				binaries, NULL, out_err);
	}
	if (program && !*out_err)
		*out_err = clBuildProgram(program, n_devices, devices, options,
					  NULL, NULL);
	if (program && *out_err) {
		clReleaseProgram(program);
		program = NULL;
	}
	free(binaries);
	free(sizes);
	return program;
}

static int find_kernels(const void *metadata, size_t size, const void **out,
			size_t *out_size)
{
	return !kiln_metadata_find(metadata, size, KILN_META_KERNELS, out,
				   out_size);
}

/* Whether its kernels tell what those tell that were built from source.  More
   does no harm. */
static int tells_all(const struct kiln_cl *cl, cl_program program,
		     const cl_device_id *devices, cl_uint n_devices,
		     const void *wanted, size_t wanted_size)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	const void *bytes, *told;
	size_t size, told_size;
	int tells;

	tells = metadata &&
		!ki_cl_describe(&cl->calls, program, devices, n_devices,
				metadata) &&
		!kiln_metadata_bytes(metadata, &bytes, &size) &&
		find_kernels(bytes, size, &told, &told_size) &&
		ki_cl_described_covers(wanted, wanted_size, told, told_size);
	kiln_metadata_free(metadata);
	return tells;
}

/* As good as built; NULL with an error, or with CL_SUCCESS if it tells less. */
static cl_program make(const struct kiln_cl *cl, const cl_device_id *devices,
		       cl_uint n_devices, const char *options,
		       const void *value, size_t size, const void *metadata,
		       size_t metadata_size, cl_int *out_err)
{
	const void *kernels;
	size_t kernels_size;
	cl_program program;

	*out_err = CL_SUCCESS;
	if (!find_kernels(metadata, metadata_size, &kernels, &kernels_size))
		return NULL;
	program = load(cl, devices, n_devices, options, value, size, out_err);
	if (program && !tells_all(cl, program, devices, n_devices, kernels,
				  kernels_size)) {
		clReleaseProgram(program);
		program = NULL;
	}
	return program;
}

/* ---- What was built ------------------------------------------------------------ */

static void built_free(struct ki_cl_built *built)
{
	if (built->program)
		clReleaseProgram(built->program);
	kiln_key_free(built->key);
	ki_cl_recipe_unref(built->recipe);
	free(built->devices);
	free(built->directory);
	ki_bytes_fini(&built->environment);
	free(built);
}

/* What surrounds the build is taken while it is so; NULL without memory. */
static struct ki_cl_built *built_new(const struct ki_cl_order *order,
				     uint64_t build_ns)
{
	struct ki_cl_built *built = calloc(1, sizeof(*built));
	char directory[KI_PATH_MAX];

	if (!built)
		return NULL;
	ki_bytes_init(&built->environment);
	built->key = kiln_key_ref(order->key);
	built->stamp = order->stamp;
	built->recipe = ki_cl_recipe_ref(order->recipe);
	built->n_devices = order->n_devices;
	built->created = ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000u;
	built->build_ns = build_ns;
	built->is_refused = order->is_refused;
	built->devices = calloc(order->n_devices, sizeof(*built->devices));
	built->directory =
		strdup(getcwd(directory, sizeof(directory)) ? directory : "");
	ki_cl_job_environment(
		ki_cl_driver(order->cl->identities, order->cl->platform),
		&built->environment);
	if (!built->devices || !built->directory || built->environment.failed) {
		built_free(built);
		return NULL;
	}
	memcpy(built->devices, order->devices,
	       order->n_devices * sizeof(*built->devices));
	return built;
}

/* A look at a socket is nothing beside a build. */
static int is_taken(const struct kiln_cl *cl)
{
	return !atomic_load(&cl->no_puts) || kiln_remote_takes(cl->kiln);
}

void ki_cl_order_built(const struct ki_cl_order *order, cl_program program,
		       uint64_t build_ns)
{
	struct kiln_cl *cl = order->cl;
	struct ki_cl_built *built;

	if (!cl->kiln || !order->is_stored || !is_taken(cl))
		return;
	built = built_new(order, build_ns);
	if (!built)
		return;
	if (clRetainProgram(program)) {
		built_free(built);
		return;
	}
	built->program = program;
	ki_mutex_lock(&cl->mutex);
	built->next = cl->built;
	cl->built = built;
	ki_mutex_unlock(&cl->mutex);
}

/* ---- Finding ----------------------------------------------------------------- */

static enum kiln_counter why_new(struct kiln *kiln, const struct kiln_key *key)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	struct kiln_key *family = NULL;

	if (!ki_cl_family_key(key, &family))
		reason = ki_family_reason(kiln, key, family);
	kiln_key_free(family);
	return reason;
}

/* Once: what the layer keeps, or nobody does. */
static void tell_why(const struct ki_cl_order *order)
{
	struct kiln_cl *cl = order->cl;
	const char *why = NULL;

	if (!cl->log || atomic_load(&cl->has_told) ||
	    !ki_cl_platform_status(cl->identities, cl->platform, &why) ||
	    atomic_exchange(&cl->has_told, 1))
		return;
	cl->log(cl->log_arg, KILN_LOG_NOTE, why);
}

/* A rebuild's, which has seen no launch: the worker makes it again once these
   kernels have run.  Asked for once. */
static void look_at_stage(const struct ki_cl_order *order,
			  const struct kiln_blob *metadata)
{
	struct kiln_cl *cl = order->cl;
	uint64_t build_ns = 0;
	struct ki_cl_built *built;

	if (ki_cl_stage_of(metadata) >= KI_CL_STAGE_FULL || !cl->spool ||
	    !ki_cl_driver_gains(ki_cl_driver(cl->identities, cl->platform)) ||
	    ki_cl_job_was_written(cl->spool, kiln_key_digest(order->key)))
		return;
	(void)kiln_metadata_find_u64(kiln_blob_data(metadata),
				     kiln_blob_size(metadata),
				     KILN_META_BUILD_TIME, &build_ns);
	built = built_new(order, build_ns);
	if (!built)
		return;
	ki_cl_built_job(cl, built);
	built_free(built);
}

cl_program ki_cl_order_find(struct ki_cl_order *order)
{
	struct kiln_cl *cl = order->cl;
	struct kiln_blob *value = NULL, *metadata = NULL;
	enum kiln_counter outcome;
	cl_program program = NULL;
	cl_int err = CL_SUCCESS;

	if (!order->is_stored) {
		tell_why(order);
		/* Below a layer it may be that layer's to count. */
		if (order->reason != KILN_COUNT_MISS_UNKNOWN_LAYER)
			kiln_count(cl->kiln, order->reason, 1);
		return NULL;
	}
	if (kiln_find_entry(cl->kiln, order->key, &value, &metadata,
			    &outcome)) {
		if (outcome == KILN_COUNT_MISS_NEW)
			outcome = why_new(cl->kiln, order->key);
	} else {
		program = make(cl, order->devices, order->n_devices,
			       order->build.options, kiln_blob_data(value),
			       kiln_blob_size(value), kiln_blob_data(metadata),
			       kiln_blob_size(metadata), &err);
		if (!program)
			outcome = err ? KILN_COUNT_MISS_REFUSED
				      : KILN_COUNT_MISS_UNSUPPORTED;
		order->is_refused = err && ki_cl_kind(err) == KILN_BUILD_FAILED;
		if (order->is_refused)
			(void)kiln_remove(cl->kiln, order->key);
	}
	kiln_count_lookup(cl->kiln, outcome, value, metadata);
	if (program)
		look_at_stage(order, metadata);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	if (program)
		atomic_fetch_add(&cl->n_found, 1);
	return program;
}

/* ---- Keeping ------------------------------------------------------------------- */

static struct kiln_metadata *metadata_of(const struct ki_cl_built *built)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, built->created);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, built->build_ns);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 built->recipe->options);
	kiln_metadata_add_string(metadata, KILN_META_DIRECTORY,
				 built->directory);
	kiln_metadata_add(metadata, KILN_META_ENVIRONMENT,
			  built->environment.data, built->environment.size);
	return metadata;
}

/* Whether the driver takes it back, and it is as good. */
static int is_good(const struct kiln_cl *cl, const struct ki_cl_built *built,
		   const struct ki_bytes *value,
		   const struct kiln_metadata *metadata)
{
	const void *bytes;
	cl_program program;
	cl_int unused;
	size_t size;

	if (kiln_metadata_bytes(metadata, &bytes, &size))
		return 0;
	program = make(cl, built->devices, built->n_devices,
		       ki_cl_recipe_options(built->recipe), value->data,
		       value->size, bytes, size, &unused);
	if (program)
		clReleaseProgram(program);
	return program != NULL;
}

/* Another process, or thread, may have been first. */
static int is_there(const struct kiln_cl *cl, const struct ki_cl_built *built)
{
	struct kiln_blob *value = NULL, *metadata = NULL;
	int is_found = !built->is_refused &&
		       !kiln_peek(cl->kiln, built->key, &value, &metadata);

	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return is_found;
}

static void keep_sources(struct kiln_cl *cl, const struct ki_cl_built *built,
			 struct kiln_metadata *metadata)
{
	size_t size;
	const void *record = kiln_key_record(built->key, &size);

	ki_cl_keep_sources(cl->kiln, built->recipe, record, size,
			   built->directory, metadata);
}

static void keep(struct kiln_cl *cl, const struct ki_cl_built *built)
{
	struct kiln_metadata *metadata;
	struct ki_bytes value;

	/* To fetch is dear. */
	if (!is_taken(cl) || is_there(cl, built) ||
	    ki_cl_fetch(&cl->calls, built->program, built->devices,
			built->n_devices, &value))
		return;
	metadata = metadata_of(built);
	if (metadata)
		keep_sources(cl, built, metadata);
	/* The key last: whatever was asked must have been of the build. */
	if (metadata &&
	    !ki_cl_describe(&cl->calls, built->program, built->devices,
			    built->n_devices, metadata) &&
	    is_good(cl, built, &value, metadata) &&
	    ki_cl_is_current(cl, built->recipe, built->devices,
			     built->n_devices, built->key, built->stamp) &&
	    ki_cl_publish(cl->kiln, built->key, value.data, value.size,
			  metadata, KI_CL_STAGE_FULL) == KILN_E_READONLY)
		atomic_store(&cl->no_puts, 1);
	kiln_metadata_free(metadata);
	ki_bytes_fini(&value);
}

/* All that waits; the first first. */
static struct ki_cl_built *take_all(struct kiln_cl *cl)
{
	struct ki_cl_built *taken, *turned = NULL;

	ki_mutex_lock(&cl->mutex);
	taken = cl->built;
	cl->built = NULL;
	ki_mutex_unlock(&cl->mutex);
	while (taken) {
		struct ki_cl_built *next = taken->next;

		taken->next = turned;
		turned = taken;
		taken = next;
	}
	return turned;
}

void ki_cl_keep(struct kiln_cl *cl, enum ki_cl_keeping how)
{
	struct ki_cl_built *built = take_all(cl);

	while (built) {
		struct ki_cl_built *next = built->next;

		if (how == KI_CL_KEEP_NOW)
			keep(cl, built);
		else if (cl->spool && !is_there(cl, built))
			ki_cl_built_job(cl, built);
		built_free(built);
		built = next;
	}
}
