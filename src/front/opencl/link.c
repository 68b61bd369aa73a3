/* SPDX-License-Identifier: MIT */

/* Compiling and linking, which are not cached: what a shadow answers for is
   put aside, or built by the driver first. */

#include "front/opencl/layer.h"

/* kiln-worker stays out of the way for the length of the call. */
static const struct ki_cl_guest *begin(void)
{
	const struct ki_cl_guest *guest = ki_cl_guest();

	if (guest) {
		ki_cl_pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED, NULL);
		kiln_note_build(guest->kiln, 1);
	}
	return guest;
}

static void end(const struct ki_cl_guest *guest)
{
	if (guest)
		kiln_note_build(guest->kiln, 0);
}

cl_int CL_API_CALL ki_clCompileProgram(
	cl_program handle, cl_uint num_devices, const cl_device_id *device_list,
	const char *options, cl_uint num_input_headers,
	const cl_program *input_headers, const char **header_include_names,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	struct ki_cl_aside aside = { 0 };
	struct ki_cl_shadow *shadow = NULL;
	const struct ki_cl_guest *guest = begin();
	cl_int result = CL_INVALID_OPERATION;

	if (program && ki_cl_is_in_use(program, &shadow) && shadow)
		goto out;
	if (program) {
		ki_cl_program_await(program);
		ki_cl_program_capture(program, NULL);
		aside = ki_cl_put_aside(program);
	}
	result = ki_cl_next.clCompileProgram(
		handle, num_devices, device_list, options, num_input_headers,
		input_headers, header_include_names, pfn_notify, user_data);
	ki_cl_put_back(&aside, result);
out:
	end(guest);
	ki_cl_shadow_unref(shadow);
	ki_cl_program_unref(program);
	return result;
}

cl_program CL_API_CALL ki_clLinkProgram(
	cl_context context, cl_uint num_devices,
	const cl_device_id *device_list, const char *options,
	cl_uint num_input_programs, const cl_program *input_programs,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data, cl_int *errcode_ret)
{
	const struct ki_cl_guest *guest = begin();
	cl_program linked;
	cl_uint i;

	for (i = 0; input_programs && i < num_input_programs; i++) {
		struct ki_cl_program *program =
			ki_cl_program_get(input_programs[i]);

		if (program)
			(void)ki_cl_go_native(program);
		ki_cl_program_unref(program);
	}
	linked = ki_cl_next.clLinkProgram(
		context, num_devices, device_list, options, num_input_programs,
		input_programs, pfn_notify, user_data, errcode_ret);
	end(guest);
	ki_cl_program_forget(linked);
	return linked;
}
