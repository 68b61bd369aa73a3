/* SPDX-License-Identifier: MIT */

/*
 * clBuildProgram and clCompileProgram.
 *
 *	key -> kiln_find_entry -> program from binary -> built: it answers for H
 *	 |          | no               | no, any reason  (of an early entry a job
 *	 |          |                  |                  asks for a better one)
 *	 |          |                  +-> entry dropped
 *	 |          v                  v
 *	 +------> the driver builds H; a job asks kiln-worker for the binary
 *	no key
 *
 * A compiled object is not even made from its binary: few programs ask more
 * of it than an entry can tell, and a link that is found needs no inputs.
 *
 * A build that is not cached (for some devices after others, an include that
 * cannot be resolved, ...) is the driver's alone, and its reason is counted.
 * The driver's own checks stay in force: a call with arguments that it would
 * refuse is passed on, so that it does.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

#include "front/family.h"
#include "front/opencl/capture.h"
#include "front/opencl/job.h"

/* ---- Counting and tracing ------------------------------------------------ */

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

/* Count and trace a build that is the driver's alone. */
void ki_cl_pass_over(const struct ki_cl_guest *guest, enum kiln_counter reason,
		     const char *why)
{
	kiln_count(guest->kiln, reason, 1);
	ki_guest_trace(guest->base, "opencl", NULL,
		       why ? why : kiln_counter_words(reason), now_ns(), NULL,
		       NULL);
}

/* Why there is no entry for a new key: the first thing that differs from the
   latest build of the same source. */
static enum kiln_counter why_new(struct kiln *kiln, const struct kiln_key *key)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	struct kiln_key *family = NULL;

	if (!ki_cl_family_key(key, &family))
		reason = ki_family_reason(kiln, key, family);
	kiln_key_free(family);
	return reason;
}

/* ---- Keys and entries ---------------------------------------------------- */

enum kiln_status ki_cl_recipe_key(const struct ki_cl_guest *guest,
				  const struct ki_cl_program *program,
				  const struct ki_cl_targets *targets,
				  const struct ki_cl_recipe *recipe,
				  struct kiln_key **out_key,
				  uint64_t *out_stamp,
				  enum kiln_counter *out_reason)
{
	struct ki_cl_build build = {
		.platform = program->platform,
		.recipe = recipe,
		.out_stamp = out_stamp,
	};

	build.devices = ki_cl_devices_of(program, targets, &build.n_devices);
	return ki_cl_key(guest->identities, &build, out_key, out_reason);
}

/* Whether what is read and set is still what it was for this recipe. */
static int is_unchanged(const struct ki_cl_guest *guest,
			const struct ki_cl_program *program,
			const struct ki_cl_targets *targets,
			const struct ki_cl_recipe *recipe,
			const struct kiln_key *key, uint64_t stamp)
{
	enum kiln_counter reason;
	struct kiln_key *now;
	uint64_t stamp_now = 0;
	cl_uint i;
	int same;

	if (ki_cl_recipe_key(guest, program, targets, recipe, &now, &stamp_now,
			     &reason))
		return 0;
	same = stamp_now == stamp &&
	       !memcmp(kiln_key_digest(now), kiln_key_digest(key),
		       KILN_DIGEST_BYTES);
	kiln_key_free(now);
	/* A link's key has those that its inputs had when they were made. */
	for (i = 0; i < recipe->n_inputs && same; i++)
		if (recipe->inputs[i].key)
			same = is_unchanged(guest, program, targets,
					    recipe->inputs[i].recipe,
					    recipe->inputs[i].key,
					    recipe->inputs[i].stamp);
	return same;
}

int ki_cl_is_unchanged(const struct ki_cl_guest *guest,
		       const struct ki_cl_program *program,
		       const struct ki_cl_made *made)
{
	return is_unchanged(guest, program, made->targets, made->recipe,
			    made->key, made->stamp);
}

struct ki_cl_made *ki_cl_plan(const struct ki_cl_guest *guest,
			      const struct ki_cl_program *program,
			      struct ki_cl_targets *targets,
			      const struct ki_cl_recipe *recipe)
{
	enum kiln_counter reason = KILN_COUNT_MISS_UNSUPPORTED;
	struct ki_cl_made *made = NULL;
	struct kiln_key *key = NULL;
	const char *why = NULL;
	uint64_t stamp = 0;

	if (ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS) {
		ki_cl_pass_over(guest, reason,
				"an unknown extension is in use");
	} else if (!recipe) {
		ki_cl_pass_over(guest, reason, "a program is not known");
	} else if (ki_cl_recipe_key(guest, program, targets, recipe, &key,
				    &stamp, &reason)) {
		(void)ki_cl_platform_status(guest->identities,
					    program->platform, &why);
		ki_cl_pass_over(guest, reason, why);
	} else if (targets && targets->is_partial && stamp) {
		/* By the time that the others are built, which the driver does
		   for all, the files may be others. */
		ki_cl_pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED,
				"files are included for some of its devices");
	} else {
		made = ki_cl_made_new(recipe, key, stamp, targets);
	}
	kiln_key_free(key);
	ki_cl_recipe_unref(recipe);
	return made;
}

/* Whether an entry tells what a program of this recipe may be asked. */
static int tells_enough(const struct ki_cl_recipe *recipe,
			const struct kiln_blob *metadata)
{
	const void *kernels;
	size_t size;

	return !ki_cl_wants_kernels(recipe) ||
	       !kiln_metadata_find(kiln_blob_data(metadata),
				   kiln_blob_size(metadata), KILN_META_KERNELS,
				   &kernels, &size);
}

/* What a rebuild made has seen no launch: what this program launches gets into the
   driver's own cache, and from there into a better entry.  Objects have none. */
static void look_at_stage(const struct ki_cl_guest *guest,
			  const struct ki_cl_program *program,
			  struct ki_cl_made *made,
			  const struct kiln_blob *metadata)
{
	uint64_t build_ns = 0;

	if (!guest->spool || ki_cl_stage_of(metadata) >= KI_CL_STAGE_FULL ||
	    !ki_cl_recipe_has_kernels(made->recipe) ||
	    !ki_cl_driver_gains(
		    ki_cl_driver(guest->identities, program->platform)) ||
	    ki_cl_job_was_written(guest->spool, kiln_key_digest(made->key)))
		return;
	(void)kiln_metadata_find_u64(kiln_blob_data(metadata),
				     kiln_blob_size(metadata),
				     KILN_META_BUILD_TIME, &build_ns);
	ki_cl_ask_for_better(guest, program, made, build_ns);
}

struct ki_cl_shadow *ki_cl_find(const struct ki_cl_guest *guest,
				const struct ki_cl_program *program,
				struct ki_cl_made *made, const char *options,
				uint64_t began_ns)
{
	struct kiln_blob *value = NULL, *metadata = NULL;
	struct ki_cl_shadow *shadow = NULL;
	enum kiln_counter outcome;
	const char *what = NULL;
	int is_refused;

	if (kiln_find_entry(guest->kiln, made->key, &value, &metadata,
			    &outcome)) {
		if (outcome == KILN_COUNT_MISS_NEW)
			outcome = why_new(guest->kiln, made->key);
	} else if (!tells_enough(made->recipe, metadata)) {
		outcome = KILN_COUNT_MISS_UNSUPPORTED;
		what = "entry without kernels";
	} else {
		shadow = ki_cl_shadow_new(program, made, options, value,
					  metadata, &is_refused);
		if (!shadow)
			outcome = KILN_COUNT_MISS_REFUSED;
		if (!shadow && is_refused)
			(void)kiln_remove(guest->kiln, made->key);
	}
	kiln_count_lookup(guest->kiln, outcome, value, metadata);
	if (shadow)
		what = "hit";
	ki_guest_trace(guest->base, "opencl", made->key,
		       what ? what : kiln_counter_words(outcome), began_ns,
		       shadow ? value : NULL, metadata);
	if (shadow)
		look_at_stage(guest, program, made, metadata);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return shadow;
}

void ki_cl_answer_with(struct ki_cl_program *program,
		       struct ki_cl_shadow *shadow)
{
	unsigned change = ki_cl_program_change(program);

	const struct ki_cl_targets *targets = shadow->made->targets;

	ki_cl_program_become(program, change, shadow->made);
	ki_cl_mark_built(program, targets ? targets->n : 0,
			 targets ? targets->devices : NULL);
	ki_cl_program_shadow(program, shadow);
	if (ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS)
		(void)ki_cl_go_native(program);
}

/* ---- Recipes ------------------------------------------------------------- */

/* The sources of header programs, with a reference each; -1 if one is not
   known. */
static int take_headers(const struct ki_cl_request *request,
			struct ki_cl_header *headers)
{
	cl_uint i;

	for (i = 0; i < request->n_programs; i++) {
		struct ki_cl_program *header =
			ki_cl_program_get(request->programs[i]);

		if (header)
			headers[i].source = ki_cl_program_source(header);
		headers[i].name = request->names[i];
		ki_cl_program_unref(header);
		if (!headers[i].source || headers[i].source->il ||
		    !headers[i].name)
			return -1;
	}
	return 0;
}

/* What the request makes of the program; NULL if that is not known. */
static const struct ki_cl_recipe *recipe_of(struct ki_cl_program *program,
					    const struct ki_cl_request *request)
{
	struct ki_cl_header *headers =
		calloc((size_t)request->n_programs + 1, sizeof(*headers));
	const struct ki_cl_recipe *recipe = NULL;
	cl_uint i;

	if (headers && !take_headers(request, headers))
		recipe = ki_cl_program_recipe(program, request->kind, headers,
					      request->n_programs,
					      request->options);
	for (i = 0; headers && i < request->n_programs; i++)
		ki_cl_source_unref(headers[i].source);
	free(headers);
	return recipe;
}

/* ---- The call ------------------------------------------------------------ */

/* Arguments that any driver takes; the others are its to refuse. */
static int is_plain(const struct ki_cl_request *request)
{
	return !request->n_devices == !request->devices &&
	       !request->n_programs == !request->programs &&
	       !request->n_programs == !request->names &&
	       (request->notify || !request->user_data);
}

int ki_cl_is_in_use(struct ki_cl_program *program,
		    struct ki_cl_shadow **out_shadow)
{
	int found;

	ki_mutex_lock(&ki_cl_lock);
	found = program->n_kernels || program->n_runs;
	*out_shadow = program->n_kernels == program->n_shadow_kernels
			      ? program->of_kernels
			      : NULL;
	if (*out_shadow)
		(*out_shadow)->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return found;
}

/*
 * Not all drivers refuse to build what has kernels: S is asked once, which has
 * some.  The same once more is all that it can become.
 */
static int may_have_kernels(const struct ki_cl_program *program,
			    const struct ki_cl_shadow *shadow)
{
	unsigned bits = ki_cl_platform_bits(program->platform);

	if (!(bits & (KI_CL_KERNELS_FORBID | KI_CL_KERNELS_ALLOW))) {
		bits = ki_cl_next.clBuildProgram(
			       shadow->program, shadow->n_devices,
			       shadow->devices, shadow->options, NULL, NULL)
			       ? KI_CL_KERNELS_FORBID
			       : KI_CL_KERNELS_ALLOW;
		ki_cl_platform_set(program->platform, bits);
	}
	return !!(bits & KI_CL_KERNELS_ALLOW);
}

/* Whether kernels of a shadow stand in the way (one reference, else NULL). */
static struct ki_cl_shadow *in_the_way(struct ki_cl_program *program,
				       int *out_is_in_use)
{
	struct ki_cl_shadow *shadow = NULL;

	*out_is_in_use = ki_cl_is_in_use(program, &shadow);
	if (shadow && may_have_kernels(program, shadow)) {
		ki_cl_shadow_unref(shadow);
		shadow = NULL;
		*out_is_in_use = 0;
	}
	return shadow;
}

/*
 * The driver refuses to build what has kernels, and it knows best in which
 * order it looks at what else may be wrong, and whom it tells.
 */
static cl_int refuse_by(cl_program twin, const struct ki_cl_request *request)
{
	struct ki_cl_request of_twin = *request;

	of_twin.twin = twin;
	return ki_cl_run(NULL, NULL, &of_twin, NULL, NULL);
}

/* One that has kernels only as long as this takes. */
static cl_int refuse_by_another(cl_program other,
				const struct ki_cl_request *request)
{
	cl_int result = CL_INVALID_OPERATION;
	cl_kernel *kernels = NULL;
	cl_uint n = 0, i;

	(void)ki_cl_next.clCreateKernelsInProgram(other, 0, NULL, &n);
	kernels = calloc((size_t)n + 1, sizeof(*kernels));
	if (kernels && n &&
	    !ki_cl_next.clCreateKernelsInProgram(other, n, kernels, NULL)) {
		result = refuse_by(other, request);
		for (i = 0; i < n; i++)
			if (kernels[i])
				(void)ki_cl_next.clReleaseKernel(kernels[i]);
	}
	free(kernels);
	return result;
}

/* Whether there is nothing to find fault with but the kernels. */
static int is_faultless(const struct ki_cl_shadow *shadow,
			const struct ki_cl_request *request)
{
	return !request->notify && !request->n_programs &&
	       (!request->options || !*request->options ||
		(shadow->options &&
		 !strcmp(request->options, shadow->options)));
}

/* Let the driver build H as S was: S answers as before. */
static int make_alike(struct ki_cl_program *program,
		      const struct ki_cl_shadow *shadow)
{
	cl_int result;

	if (ki_cl_program_claim(program))
		return -1;
	result = ki_cl_make_again(program, shadow->made->recipe,
				  shadow->options, shadow->made->targets);
	ki_cl_program_rest(program);
	return result ? -1 : 0;
}

/* The driver refuses that of one that it linked itself.  What has the kernels
   goes on answering: they share its variables with those to come. */
static cl_int refuse_linked(const struct ki_cl_program *program,
			    const struct ki_cl_shadow *shadow,
			    const struct ki_cl_request *request)
{
	struct ki_cl_shadow *twin = ki_cl_twin_new(program, shadow);
	cl_int result = CL_INVALID_OPERATION;

	if (twin)
		result = refuse_by_another(twin->program, request);
	ki_cl_shadow_unref(twin);
	return result;
}

/* To build S, which has the kernels, is refused as it would be of H.  To compile
   it is wrong for other reasons, and to build what was linked. */
static cl_int refuse(struct ki_cl_program *program, struct ki_cl_shadow *shadow,
		     const struct ki_cl_request *request)
{
	cl_int result = CL_INVALID_OPERATION;
	struct ki_cl_request of_all = *request;

	/* Its devices, which may be others than those of S, are known to be
	   right. */
	if (!ki_cl_is_usual(shadow)) {
		of_all.n_devices = 0;
		of_all.devices = NULL;
		request = &of_all;
	}
	if (shadow->is_own) {
		result = refuse_linked(program, shadow, request);
	} else if (request->kind == KI_CL_BUILD || !shadow->made) {
		/* Its kernels may go meanwhile, but nobody is told of that. */
		result = request->notify
				 ? refuse_by_another(shadow->program, request)
				 : refuse_by(shadow->program, request);
	} else if (!is_faultless(shadow, request) &&
		   !make_alike(program, shadow)) {
		result = refuse_by_another(program->handle, request);
	}
	ki_cl_shadow_unref(shadow);
	return result ? result : CL_INVALID_OPERATION;
}

/* The driver's alone, who first has what the shadow stands for; what it makes
   may be of use to a program that begins with these devices. */
static cl_int build_besides(const struct ki_cl_guest *guest,
			    struct ki_cl_program *program,
			    struct ki_cl_targets *targets,
			    const struct ki_cl_request *request)
{
	const struct ki_cl_recipe *recipe = NULL;
	struct ki_cl_made *made = NULL;
	struct kiln_key *key = NULL;
	enum kiln_counter unused;
	uint64_t stamp = 0;
	cl_int result;

	ki_cl_pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED,
			"others of its devices have been built");
	(void)ki_cl_go_native(program);
	if (!(ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS))
		recipe = recipe_of(program, request);
	if (recipe && !ki_cl_recipe_key(guest, program, targets, recipe, &key,
					&stamp, &unused))
		made = ki_cl_made_new(recipe, key, stamp, targets);
	result = ki_cl_run(guest, program, request, made, NULL);
	ki_cl_made_unref(made);
	kiln_key_free(key);
	ki_cl_recipe_unref(recipe);
	return result;
}

/* Built is what the driver linked itself, and that answers if it was a build.
   If not, what answered before does still: its variables are good. */
static cl_int build_twin(const struct ki_cl_guest *guest,
			 struct ki_cl_program *program,
			 struct ki_cl_shadow *twin,
			 const struct ki_cl_request *request)
{
	struct ki_cl_request of_twin = *request;
	struct ki_cl_shadow *now;
	cl_int result;

	of_twin.twin = twin->program;
	result = ki_cl_run(guest, program, &of_twin, NULL, NULL);
	now = ki_cl_shadow_of(program);
	if (now)
		ki_cl_shadow_unref(twin);
	else
		ki_cl_program_shadow(program, twin);
	ki_cl_shadow_unref(now);
	return result;
}

/* What was linked is no program that the driver linked; if that matters, there
   must be one. */
static cl_int build_linked(const struct ki_cl_guest *guest,
			   struct ki_cl_program *program,
			   const struct ki_cl_request *request)
{
	struct ki_cl_request of_twin = *request;
	struct ki_cl_shadow *shadow = ki_cl_shadow_of(program), *twin;
	cl_int result = CL_INVALID_OPERATION; /* as most drivers say */

	if (shadow && shadow->is_own &&
	    ki_cl_recipe_has_kernels(shadow->made->recipe)) {
		twin = ki_cl_twin_new(program, shadow);
		if (twin)
			result = build_twin(guest, program, twin, request);
		ki_cl_shadow_unref(shadow);
		return result;
	}
	ki_cl_shadow_unref(shadow);
	of_twin.twin = ki_cl_answerer(program, &shadow);
	result = ki_cl_run(guest, program, &of_twin, NULL, NULL);
	ki_cl_shadow_unref(shadow);
	return result;
}

static cl_int build_alone(const struct ki_cl_guest *guest,
			  struct ki_cl_program *program,
			  struct ki_cl_targets *targets,
			  const struct ki_cl_request *request,
			  uint64_t began_ns)
{
	struct ki_cl_made *made = ki_cl_plan(guest, program, targets,
					     recipe_of(program, request));
	struct ki_cl_shadow *shadow =
		made ? ki_cl_find(guest, program, made, request->options,
				  began_ns)
		     : NULL;
	cl_int result = CL_SUCCESS;

	if (!shadow) {
		result = ki_cl_run(guest, program, request, made, NULL);
	} else {
		ki_cl_answer_with(program, shadow);
		ki_cl_program_lend_source(program);
		if (request->notify)
			request->notify(request->handle, request->user_data);
	}
	ki_cl_made_unref(made);
	return result;
}

/* There are no kernels in the way. */
static cl_int build_free(const struct ki_cl_guest *guest,
			 struct ki_cl_program *program,
			 const struct ki_cl_request *request, uint64_t began_ns)
{
	struct ki_cl_targets *targets = ki_cl_targets_new(
		program, request->n_devices, request->devices);
	cl_int result;

	if (!targets) {
		(void)ki_cl_go_native(program);
		return ki_cl_run(guest, program, request, NULL, NULL);
	}
	result = ki_cl_covers(program, targets)
			 ? build_alone(guest, program, targets, request,
				       began_ns)
			 : build_besides(guest, program, targets, request);
	ki_cl_targets_unref(targets);
	return result;
}

static cl_int build_known(const struct ki_cl_guest *guest,
			  struct ki_cl_program *program,
			  const struct ki_cl_request *request)
{
	uint64_t began_ns = now_ns();
	struct ki_cl_shadow *shadow;
	int is_native, is_in_use;

	if (!program->has_source) {
		shadow = in_the_way(program, &is_in_use);
		return shadow ? refuse(program, shadow, request)
			      : build_linked(guest, program, request);
	}
	if (!is_plain(request) || ki_cl_program_devices(program) ||
	    !ki_cl_has_devices(program, request->n_devices, request->devices))
		return ki_cl_run(guest, program, request, NULL, NULL);
	shadow = in_the_way(program, &is_in_use);
	if (shadow)
		return refuse(program, shadow, request);
	ki_mutex_lock(&ki_cl_lock);
	is_native = program->native;
	ki_mutex_unlock(&ki_cl_lock);
	if (is_in_use || is_native)
		return ki_cl_run(guest, program, request, NULL, NULL);
	return build_free(guest, program, request, began_ns);
}

static cl_int build(const struct ki_cl_request *request)
{
	struct ki_cl_program *program = ki_cl_program_get(request->handle);
	const struct ki_cl_guest *guest = ki_cl_guest();
	cl_int result;

	/* Built-in kernels and what the application keeps itself are not known:
	   there is nothing to look up. */
	result = program && guest
			 ? build_known(guest, program, request)
			 : ki_cl_run(guest, program, request, NULL, NULL);
	ki_cl_program_unref(program);
	return result;
}

cl_int CL_API_CALL ki_clBuildProgram(
	cl_program handle, cl_uint num_devices, const cl_device_id *device_list,
	const char *options,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	const struct ki_cl_request request = {
		.kind = KI_CL_BUILD,
		.handle = handle,
		.n_devices = num_devices,
		.devices = device_list,
		.options = options,
		.notify = pfn_notify,
		.user_data = user_data,
	};

	return build(&request);
}

cl_int CL_API_CALL ki_clCompileProgram(
	cl_program handle, cl_uint num_devices, const cl_device_id *device_list,
	const char *options, cl_uint num_input_headers,
	const cl_program *input_headers, const char **header_include_names,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	const struct ki_cl_request request = {
		.kind = KI_CL_COMPILE,
		.handle = handle,
		.n_devices = num_devices,
		.devices = device_list,
		.options = options,
		.n_programs = num_input_headers,
		.programs = input_headers,
		.names = header_include_names,
		.notify = pfn_notify,
		.user_data = user_data,
	};

	return build(&request);
}
