/* SPDX-License-Identifier: MIT */

/*
 * clBuildProgram.
 *
 *	key -> kiln_find_entry -> program from binary -> built: it answers for H
 *	 |          | no               | no, any reason
 *	 |          |                  +-> entry dropped
 *	 |          v                  v
 *	 +------> the driver builds H; a job asks kiln-worker for the binary
 *	no key
 *
 * A build that is not cached (another subset of devices, an include that
 * cannot be resolved, ...) is the driver's alone, and its reason is counted.
 * The driver's own checks stay in force: a call with arguments that it would
 * refuse is passed on, so that it does.
 */

#include "front/opencl/layer.h"

#include <string.h>

/* ---- Counting and tracing ------------------------------------------------ */

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

static void trace(const struct ki_cl_guest *guest, const char *what,
		  const struct kiln_key *key, uint64_t began_ns)
{
	char hex[2 * KILN_DIGEST_BYTES + 1] = "-";

	if (!guest->trace)
		return;
	if (key)
		ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, hex);
	ki_cl_log(guest, "opencl: %s %s %llu us", hex, what,
		  (unsigned long long)(now_ns() - began_ns) / 1000);
}

/* Count and trace a build that is the driver's alone. */
void ki_cl_pass_over(const struct ki_cl_guest *guest, enum kiln_counter reason,
		     const char *why)
{
	kiln_count(guest->kiln, reason, 1);
	trace(guest, why ? why : kiln_counter_words(reason), NULL, now_ns());
}

/* Why there is no entry for a new key: the first thing that differs from the
   latest build of the same source. */
static enum kiln_counter why_new(struct kiln *kiln, const struct kiln_key *key)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	struct kiln_blob *record = NULL, *metadata = NULL;
	struct kiln_key *family = NULL;

	if (!ki_cl_family_key(key, &family) &&
	    !kiln_peek(kiln, family, &record, &metadata))
		reason = ki_cl_miss_reason(key, kiln_blob_data(record),
					   kiln_blob_size(record));
	kiln_blob_unref(record);
	kiln_blob_unref(metadata);
	kiln_key_free(family);
	return reason;
}

/* ---- Keys and entries ---------------------------------------------------- */

enum kiln_status ki_cl_build_key(const struct ki_cl_guest *guest,
				 const struct ki_cl_program *program,
				 const char *options, struct kiln_key **out_key,
				 uint64_t *out_stamp,
				 enum kiln_counter *out_reason)
{
	const struct ki_cl_build build = {
		.platform = program->platform,
		.devices = program->devices,
		.n_devices = program->n_devices,
		.strings = program->strings,
		.lengths = program->lengths,
		.n_strings = program->n_strings,
		.options = options ? options : "",
		.out_stamp = out_stamp,
	};

	return ki_cl_key(guest->identities, &build, out_key, out_reason);
}

/* The key, or NULL after having counted why there is none. */
static struct kiln_key *key_of(const struct ki_cl_guest *guest,
			       const struct ki_cl_program *program,
			       const struct ki_cl_request *request,
			       uint64_t *out_stamp)
{
	enum kiln_counter reason = KILN_COUNT_MISS_UNSUPPORTED;
	struct kiln_key *key = NULL;
	const char *why = NULL;

	if (ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS) {
		ki_cl_pass_over(guest, reason,
				"an unknown extension is in use");
		return NULL;
	}
	if (ki_cl_build_key(guest, program, request->options, &key, out_stamp,
			    &reason)) {
		(void)ki_cl_platform_status(guest->identities,
					    program->platform, &why);
		ki_cl_pass_over(guest, reason, why);
		return NULL;
	}
	return key;
}

/* Whether an entry tells what a build with these options may be asked. */
static int tells_enough(const struct ki_cl_request *request,
			const struct kiln_blob *metadata)
{
	const void *kernels;
	size_t size;

	return !ki_cl_wants_kernels(request->options) ||
	       !kiln_metadata_find(kiln_blob_data(metadata),
				   kiln_blob_size(metadata), KILN_META_KERNELS,
				   &kernels, &size);
}

/* Look the key up and let what is found answer: CL_SUCCESS, or -1.  A hit is
   counted when it answers, no sooner. */
static int build_from_entry(const struct ki_cl_guest *guest,
			    struct ki_cl_program *program,
			    const struct ki_cl_request *request,
			    struct kiln_key *key, uint64_t began_ns)
{
	struct kiln_blob *value = NULL, *metadata = NULL;
	struct ki_cl_shadow *shadow = NULL;
	enum kiln_counter outcome;
	const char *what = NULL;

	if (kiln_find_entry(guest->kiln, key, &value, &metadata, &outcome)) {
		if (outcome == KILN_COUNT_MISS_NEW)
			outcome = why_new(guest->kiln, key);
	} else if (!tells_enough(request, metadata)) {
		outcome = KILN_COUNT_MISS_UNSUPPORTED;
		what = "entry without kernels";
	} else {
		shadow = ki_cl_shadow_new(program, key, request->options, value,
					  metadata);
		if (!shadow) {
			(void)kiln_remove(guest->kiln, key);
			outcome = KILN_COUNT_MISS_REFUSED;
		}
	}
	kiln_count_lookup(guest->kiln, outcome, value, metadata);
	if (shadow) {
		ki_cl_program_capture(program, NULL);
		ki_cl_program_shadow(program, shadow);
		if (ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS)
			(void)ki_cl_go_native(program);
		what = "hit";
	}
	trace(guest, what ? what : kiln_counter_words(outcome), key, began_ns);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return shadow ? CL_SUCCESS : -1;
}

/* ---- The call ------------------------------------------------------------ */

/* Arguments that any driver takes; the others are its to refuse. */
static int is_plain(const struct ki_cl_request *request)
{
	return !request->n_devices == !request->devices &&
	       (request->notify || !request->user_data);
}

enum coverage { ALL_DEVICES, SOME_DEVICES, FOREIGN_DEVICES };

static enum coverage coverage_of(const struct ki_cl_program *program,
				 const struct ki_cl_request *request)
{
	cl_uint i, j, n_found = 0;

	if (!request->n_devices)
		return ALL_DEVICES;
	for (i = 0; i < request->n_devices; i++) {
		for (j = 0; j < program->n_devices; j++)
			if (program->devices[j] == request->devices[i])
				break;
		if (j == program->n_devices)
			return FOREIGN_DEVICES;
	}
	for (j = 0; j < program->n_devices; j++)
		for (i = 0; i < request->n_devices; i++)
			if (program->devices[j] == request->devices[i]) {
				n_found++;
				break;
			}
	return n_found == program->n_devices ? ALL_DEVICES : SOME_DEVICES;
}

int ki_cl_is_in_use(struct ki_cl_program *program,
		    struct ki_cl_shadow **out_shadow)
{
	int found;

	ki_mutex_lock(&ki_cl_lock);
	found = program->n_kernels || program->n_runs;
	*out_shadow = program->of_kernels;
	if (*out_shadow)
		(*out_shadow)->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return found;
}

/* The driver refuses to build what has kernels, and it knows best in which
   order it looks at what else may be wrong: S has them. */
static cl_int refuse(struct ki_cl_shadow *shadow,
		     const struct ki_cl_request *request)
{
	cl_int result = ki_cl_next.clBuildProgram(
		shadow->program, request->n_devices, request->devices,
		request->options, NULL, NULL);

	ki_cl_shadow_unref(shadow);
	return result ? result : CL_INVALID_OPERATION;
}

/* A subset of its devices: the rest keeps what it has, so the driver must have
   built it all. */
static cl_int build_subset(const struct ki_cl_guest *guest,
			   struct ki_cl_program *program,
			   const struct ki_cl_request *request)
{
	(void)ki_cl_go_native(program);
	ki_mutex_lock(&ki_cl_lock);
	program->native = 1;
	ki_mutex_unlock(&ki_cl_lock);
	return ki_cl_build_natively(guest, program, request, NULL);
}

static cl_int build_known(const struct ki_cl_guest *guest,
			  struct ki_cl_program *program,
			  const struct ki_cl_request *request)
{
	uint64_t began_ns = now_ns(), stamp = 0;
	enum coverage coverage;
	struct kiln_key *key;
	cl_int result;
	struct ki_cl_shadow *shadow;
	int is_native;

	if (!is_plain(request) || ki_cl_program_devices(program))
		return ki_cl_build_natively(guest, program, request, NULL);
	coverage = coverage_of(program, request);
	if (coverage == FOREIGN_DEVICES)
		return ki_cl_build_natively(guest, program, request, NULL);
	if (ki_cl_is_in_use(program, &shadow))
		return shadow ? refuse(shadow, request)
			      : ki_cl_build_natively(guest, program, request,
						     NULL);
	ki_mutex_lock(&ki_cl_lock);
	is_native = program->native;
	ki_mutex_unlock(&ki_cl_lock);
	if (coverage == SOME_DEVICES || is_native) {
		ki_cl_pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED,
				"some of the devices");
		return build_subset(guest, program, request);
	}

	key = key_of(guest, program, request, &stamp);
	if (!key)
		return ki_cl_build_natively(guest, program, request, NULL);
	result = build_from_entry(guest, program, request, key, began_ns);
	if (result)
		result = ki_cl_build_natively(
			guest, program, request,
			ki_cl_capture_new(guest, program, key, stamp,
					  request->options));
	else if (request->notify)
		request->notify(request->handle, request->user_data);
	kiln_key_free(key);
	return result;
}

cl_int CL_API_CALL ki_clBuildProgram(
	cl_program handle, cl_uint num_devices, const cl_device_id *device_list,
	const char *options,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	const struct ki_cl_request request = {
		.handle = handle,
		.n_devices = num_devices,
		.devices = device_list,
		.options = options,
		.notify = pfn_notify,
		.user_data = user_data,
	};
	struct ki_cl_program *program = ki_cl_program_get(handle);
	const struct ki_cl_guest *guest = ki_cl_guest();
	cl_int result;

	if (program && guest) {
		result = build_known(guest, program, &request);
	} else {
		if (guest)
			ki_cl_pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED,
					NULL);
		result = ki_cl_build_natively(guest, program, &request, NULL);
	}
	ki_cl_program_unref(program);
	return result;
}
