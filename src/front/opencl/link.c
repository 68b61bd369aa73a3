/* SPDX-License-Identifier: MIT */

/*
 * clLinkProgram.  What is found is a program made from its binary, and that is
 * the application's handle: nobody else has to answer for it.
 *
 * What is not found is linked by the driver from what it compiled itself and,
 * where it loses nothing that way, from objects whose binaries are in the store.
 * If it will not have those, they are compiled, and it links again: only then is
 * the application's callback the driver's to call.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/capture.h"

/* The programs that are linked, as far as they are known. */
struct inputs {
	cl_uint n;
	struct ki_cl_program **programs; /* one reference each, or NULL */
	struct ki_cl_made **made;	 /* the same */
	unsigned *changes;		 /* of what they are, before that */
	struct ki_cl_shadow **shadows;	 /* of those that the driver is given */
	cl_program *handles;		 /* what the driver is given */
	char *from_entry;		 /* whether that is an entry's */
	int any_from_entry;
};

static void inputs_fini(struct inputs *inputs)
{
	cl_uint i;

	for (i = 0; i < inputs->n; i++) {
		ki_cl_program_unref(inputs->programs[i]);
		ki_cl_made_unref(inputs->made[i]);
		ki_cl_shadow_unref(inputs->shadows[i]);
	}
	free(inputs->programs);
	free(inputs->made);
	free(inputs->changes);
	free(inputs->shadows);
	free(inputs->handles);
	free(inputs->from_entry);
}

static int inputs_init(struct inputs *inputs,
		       const struct ki_cl_request *request)
{
	cl_uint n = request->programs ? request->n_programs : 0, i;

	memset(inputs, 0, sizeof(*inputs));
	inputs->programs = calloc((size_t)n + 1, sizeof(*inputs->programs));
	inputs->made = calloc((size_t)n + 1, sizeof(*inputs->made));
	inputs->changes = calloc((size_t)n + 1, sizeof(*inputs->changes));
	inputs->shadows = calloc((size_t)n + 1, sizeof(*inputs->shadows));
	inputs->handles = calloc((size_t)n + 1, sizeof(*inputs->handles));
	inputs->from_entry = calloc((size_t)n + 1, 1);
	if (!inputs->programs || !inputs->made || !inputs->changes ||
	    !inputs->shadows || !inputs->handles || !inputs->from_entry) {
		inputs_fini(inputs);
		return -1;
	}
	inputs->n = n;
	for (i = 0; i < n; i++) {
		inputs->handles[i] = request->programs[i];
		inputs->programs[i] = ki_cl_program_get(request->programs[i]);
		if (inputs->programs[i])
			inputs->made[i] = ki_cl_made_of(inputs->programs[i],
							&inputs->changes[i]);
	}
	return 0;
}

/* ---- What it makes ------------------------------------------------------- */

/* The link's devices, from malloc(): all of the context's, unless some are
   named. */
static cl_device_id *devices_of(const struct ki_cl_request *request,
				cl_uint *out_n)
{
	size_t size = request->n_devices * sizeof(cl_device_id);
	cl_device_id *devices;

	if (!request->n_devices &&
	    ki_cl_next.clGetContextInfo(request->context, CL_CONTEXT_DEVICES, 0,
					NULL, &size))
		return NULL;
	if (!size || size > KI_CL_DEVICES_MAX * sizeof(*devices))
		return NULL;
	devices = malloc(size);
	if (devices && request->n_devices)
		memcpy(devices, request->devices, size);
	else if (devices && ki_cl_next.clGetContextInfo(request->context,
							CL_CONTEXT_DEVICES,
							size, devices, NULL)) {
		free(devices);
		devices = NULL;
	}
	*out_n = (cl_uint)(size / sizeof(*devices));
	return devices;
}

/* A program that has no handle yet; NULL without memory, or if the driver does
   not know the devices. */
static struct ki_cl_program *program_of(const struct ki_cl_request *request)
{
	struct ki_cl_program *program =
		ki_cl_program_new(request->context, NULL);

	if (!program)
		return NULL;
	program->is_linked = 1;
	program->devices = devices_of(request, &program->n_devices);
	if (program->devices &&
	    !ki_cl_next.clGetDeviceInfo(program->devices[0], CL_DEVICE_PLATFORM,
					sizeof(program->platform),
					&program->platform, NULL))
		return program;
	ki_cl_program_unref(program);
	return NULL;
}

static int is_input(const struct ki_cl_recipe *recipe)
{
	return recipe->kind == KI_CL_COMPILE || recipe->kind == KI_CL_BINARY ||
	       (recipe->kind == KI_CL_LINK &&
		!ki_cl_recipe_has_kernels(recipe));
}

/* Whether an input is what it is for exactly these devices, in this order. */
static int covers(struct ki_cl_program *input,
		  const struct ki_cl_program *program)
{
	return !ki_cl_program_devices(input) &&
	       input->n_devices == program->n_devices &&
	       !memcmp(input->devices, program->devices,
		       program->n_devices * sizeof(*program->devices));
}

/* NULL if not all inputs are known to be of that kind. */
static const struct ki_cl_recipe *recipe_of(const struct inputs *inputs,
					    const struct ki_cl_program *program,
					    const char *options)
{
	struct ki_cl_input *parts =
		calloc((size_t)inputs->n + 1, sizeof(*parts));
	const struct ki_cl_recipe *recipe = NULL;
	cl_uint i;

	for (i = 0; parts && i < inputs->n; i++) {
		const struct ki_cl_made *made = inputs->made[i];

		if (!made || !is_input(made->recipe) ||
		    (made->targets && made->targets->is_partial) ||
		    !covers(inputs->programs[i], program))
			break;
		parts[i].recipe = made->recipe;
		parts[i].key = made->key;
		parts[i].stamp = made->stamp;
	}
	if (parts && inputs->n && i == inputs->n)
		recipe = ki_cl_recipe_link(parts, inputs->n, options);
	free(parts);
	return recipe;
}

/* Arguments that any driver takes; the others are its to refuse. */
static int is_plain(const struct ki_cl_request *request)
{
	return request->context && request->n_programs && request->programs &&
	       !request->n_devices == !request->devices &&
	       (request->notify || !request->user_data);
}

/* ---- The driver's link --------------------------------------------------- */

/* Whether an object's binary is in an entry. */
static int is_object(const struct ki_cl_shadow *shadow)
{
	return shadow->made && shadow->made->recipe->kind == KI_CL_COMPILE &&
	       ki_cl_is_usual(shadow);
}

/* Whether that is as good as the object. */
static int is_as_good(const struct ki_cl_guest *guest,
		      const struct ki_cl_program *program)
{
	return guest && ki_cl_driver(guest->identities, program->platform)
				->objects_tell_all;
}

/* What the driver is given for an input that something else answers for. */
static void choose(const struct ki_cl_guest *guest, struct inputs *inputs,
		   cl_uint i)
{
	struct ki_cl_program *program = inputs->programs[i];
	struct ki_cl_shadow *shadow = program ? ki_cl_shadow_of(program) : NULL;
	cl_program loaded = NULL;

	if (!shadow)
		return;
	if (shadow->is_own || !shadow->made)
		loaded = shadow->program;
	else if (is_object(shadow) &&
		 (is_as_good(guest, program) || ki_cl_go_native(program)))
		loaded = ki_cl_shadow_load(shadow);
	if (loaded) {
		inputs->handles[i] = loaded;
		inputs->shadows[i] = shadow;
		inputs->from_entry[i] = shadow->made != NULL;
		inputs->any_from_entry |= inputs->from_entry[i];
		return;
	}
	(void)ki_cl_go_native(program);
	ki_cl_shadow_unref(shadow);
}

/* The driver would not have what came from entries: it makes them itself. */
static void choose_own(struct inputs *inputs, cl_uint i,
		       const struct ki_cl_request *request)
{
	struct ki_cl_shadow *shadow = inputs->shadows[i];

	if (!shadow)
		return;
	inputs->shadows[i] = NULL;
	inputs->handles[i] = request->programs[i];
	if (shadow->is_own) {
		(void)ki_cl_make_twin(inputs->programs[i]);
		inputs->handles[i] = ki_cl_answerer(inputs->programs[i],
						    &inputs->shadows[i]);
	} else if (!shadow->made) {
		inputs->handles[i] = shadow->program;
		inputs->shadows[i] = shadow;
		return;
	} else {
		(void)ki_cl_go_native(inputs->programs[i]);
	}
	ki_cl_shadow_unref(shadow);
}

/* What cannot be linked is of no use. */
static void drop_entries(const struct ki_cl_guest *guest,
			 const struct inputs *inputs)
{
	cl_uint i;

	for (i = 0; guest && i < inputs->n; i++)
		if (inputs->from_entry[i] && inputs->made[i])
			(void)kiln_remove(guest->kiln, inputs->made[i]->key);
}

/* Without a notification; what fails leaves nothing behind. */
static cl_int try_link(const struct ki_cl_guest *guest,
		       struct ki_cl_program *program,
		       const struct ki_cl_request *request,
		       struct ki_cl_made *made, cl_program *out_linked)
{
	struct ki_cl_request quiet = *request;
	cl_int result;

	quiet.notify = NULL;
	quiet.user_data = NULL;
	result = ki_cl_run(guest, program, &quiet, made, out_linked);
	if (result && program)
		ki_cl_program_unlist(program);
	if (result && *out_linked) {
		(void)ki_cl_next.clReleaseProgram(*out_linked);
		*out_linked = NULL;
	}
	return result;
}

static cl_int run(const struct ki_cl_guest *guest,
		  struct ki_cl_program *program,
		  const struct ki_cl_request *request, struct ki_cl_made *made,
		  cl_program *out_linked)
{
	cl_int result = ki_cl_run(guest, program, request, made, out_linked);

	if (program && !*out_linked)
		ki_cl_program_unlist(program);
	return result;
}

/* `program` (new, or NULL) and `made` (or NULL) are what becomes known. */
static cl_int link_natively(const struct ki_cl_guest *guest,
			    struct ki_cl_program *program,
			    const struct ki_cl_request *request,
			    struct inputs *inputs, struct ki_cl_made *made,
			    cl_program *out_linked)
{
	struct ki_cl_request given = *request;
	struct ki_cl_program *again;
	cl_int result;
	cl_uint i;

	for (i = 0; i < inputs->n; i++)
		choose(guest, inputs, i);
	if (inputs->n)
		given.programs = inputs->handles;
	if (made) {
		given.inputs = inputs->programs;
		given.changes = inputs->changes;
	}
	if (!inputs->any_from_entry)
		return run(guest, program, &given, made, out_linked);
	result = try_link(guest, program, &given, made, out_linked);
	if (!result) {
		if (request->notify)
			request->notify(*out_linked, request->user_data);
		return result;
	}
	for (i = 0; i < inputs->n; i++)
		choose_own(inputs, i, request);
	again = program ? program_of(request) : NULL;
	result = run(guest, again, &given, made, out_linked);
	if (!result)
		drop_entries(guest, inputs);
	ki_cl_program_unref(again);
	return result;
}

/* Without memory for the inputs: the driver makes all of them itself, and
   nothing is known of what it links. */
static cl_int link_as_given(const struct ki_cl_request *request,
			    cl_program *out_linked)
{
	int err = 0;
	cl_uint i;

	for (i = 0; request->programs && i < request->n_programs; i++) {
		struct ki_cl_program *program =
			ki_cl_program_get(request->programs[i]);

		if (program)
			err |= ki_cl_go_native(program);
		ki_cl_program_unref(program);
	}
	if (err)
		return CL_OUT_OF_HOST_MEMORY;
	return run(NULL, NULL, request, NULL, out_linked);
}

/* ---- The call ------------------------------------------------------------ */

static cl_int link_known(const struct ki_cl_guest *guest,
			 struct ki_cl_program *program,
			 const struct ki_cl_request *request,
			 struct inputs *inputs, cl_program *out_linked)
{
	uint64_t began_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	struct ki_cl_made *made =
		ki_cl_plan(guest, program, NULL,
			   recipe_of(inputs, program, request->options));
	struct ki_cl_shadow *shadow =
		made ? ki_cl_find(guest, program, made, request->options,
				  began_ns)
		     : NULL;
	cl_int result = CL_SUCCESS;

	/* What cannot be remembered is of no use. */
	if (shadow && !ki_cl_program_list(program, shadow->program)) {
		(void)ki_cl_next.clReleaseProgram(shadow->program);
		ki_cl_shadow_unref(shadow);
		shadow = NULL;
	}
	if (shadow) {
		*out_linked = shadow->program;
		ki_cl_answer_with(program, shadow);
		if (request->notify)
			request->notify(*out_linked, request->user_data);
	} else {
		result = link_natively(guest, program, request, inputs, made,
				       out_linked);
	}
	ki_cl_made_unref(made);
	return result;
}

cl_program CL_API_CALL ki_clLinkProgram(
	cl_context context, cl_uint num_devices,
	const cl_device_id *device_list, const char *options,
	cl_uint num_input_programs, const cl_program *input_programs,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data, cl_int *errcode_ret)
{
	const struct ki_cl_request request = {
		.kind = KI_CL_LINK,
		.context = context,
		.n_devices = num_devices,
		.devices = device_list,
		.options = options,
		.n_programs = num_input_programs,
		.programs = input_programs,
		.notify = pfn_notify,
		.user_data = user_data,
	};
	const struct ki_cl_guest *guest = ki_cl_guest();
	struct ki_cl_program *program = NULL;
	cl_program linked = NULL;
	struct inputs inputs;
	cl_int result;

	if (inputs_init(&inputs, &request)) {
		result = link_as_given(&request, &linked);
		goto out;
	}
	if (guest && is_plain(&request))
		program = program_of(&request);
	if (program)
		result = link_known(guest, program, &request, &inputs, &linked);
	else
		result = link_natively(guest, NULL, &request, &inputs, NULL,
				       &linked);
	ki_cl_program_unref(program);
	inputs_fini(&inputs);
out:
	if (errcode_ret)
		*errcode_ret = result;
	return linked;
}
