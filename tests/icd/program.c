/* SPDX-License-Identifier: MIT */

/*
 * Programs: made from source, IL, binaries, built-in kernels or by linking;
 * retained, released, asked about.  build.c compiles them.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "icd/icd.h"

#define SPIRV_MAGIC  0x07230203u
#define SPIRV_HEADER 20

static cl_program refuse(cl_int *errcode_ret, cl_int status)
{
	if (errcode_ret)
		*errcode_ret = status;
	return NULL;
}

static cl_program program_new(cl_context context, enum icd_origin origin)
{
	cl_program program = icd_new(ICD_PROGRAM, sizeof(*program));

	if (!program)
		return NULL;
	program->context = context;
	program->origin = origin;
	program->n_devices = context->n_devices;
	memcpy(program->devices, context->devices, sizeof(context->devices));
	for (cl_uint i = 0; i < ICD_DEVICES_MAX; i++)
		program->builds[i].status = CL_BUILD_NONE;
	clRetainContext(context);
	return program;
}

static void build_fini(struct icd_build *build)
{
	icd_unit_unref(build->given);
	icd_unit_unref(build->unit);
	free(build->options);
	free(build->log);
	free(build->kept);
	free(build->specialised);
}

void icd_program_hold_devices(cl_program program)
{
	program->holds_devices = icd_flag("HOLD_DEVICES", false);
	for (cl_uint i = 0; program->holds_devices && i < program->n_devices;
	     i++)
		clRetainDevice(program->devices[i]);
}

void icd_program_unref(cl_program program)
{
	if (!icd_unref(program))
		return;
	icd_callbacks_run(program->callbacks, program);
	icd_count("destroy-program");
	for (cl_uint i = 0; i < program->n_devices; i++)
		build_fini(&program->builds[i]);
	for (cl_uint i = 0; program->holds_devices && i < program->n_devices;
	     i++)
		clReleaseDevice(program->devices[i]);
	while (program->constants) {
		struct icd_constant *constant = program->constants;
		program->constants = constant->next;
		free(constant);
	}
	icd_context_unref(program->context);
	free(program->source);
	free(program->il);
	free(program);
}

/* ---- Making ------------------------------------------------------------- */

cl_program CL_API_CALL clCreateProgramWithSource(cl_context context,
						 cl_uint count,
						 const char **strings,
						 const size_t *lengths,
						 cl_int *errcode_ret)
{
	struct icd_text source = { 0 };
	cl_program program;

	if (!icd_is(context, ICD_CONTEXT))
		return refuse(errcode_ret, CL_INVALID_CONTEXT);
	if (!count || !strings)
		return refuse(errcode_ret, CL_INVALID_VALUE);
	for (cl_uint i = 0; i < count; i++)
		if (!strings[i])
			return refuse(errcode_ret, CL_INVALID_VALUE);
	icd_text_puts(&source, "");
	for (cl_uint i = 0; i < count; i++)
		icd_text_add(&source, strings[i],
			     lengths && lengths[i] ? lengths[i]
						   : strlen(strings[i]));
	program = source.failed ? NULL : program_new(context, ICD_SOURCE);
	if (!program) {
		free(source.data);
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	}
	program->source = source.data;
	icd_program_hold_devices(program);
	icd_count("create-source");
	refuse(errcode_ret, CL_SUCCESS);
	return program;
}

cl_program CL_API_CALL clCreateProgramWithIL(cl_context context, const void *il,
					     size_t length, cl_int *errcode_ret)
{
	uint32_t word = 0;
	cl_program program;

	if (!icd_is(context, ICD_CONTEXT))
		return refuse(errcode_ret, CL_INVALID_CONTEXT);
	if (!icd_flag("IL", true))
		return refuse(errcode_ret, CL_INVALID_OPERATION);
	if (il && length >= SPIRV_HEADER)
		memcpy(&word, il, sizeof(word));
	if (word != SPIRV_MAGIC)
		return refuse(errcode_ret, CL_INVALID_VALUE);
	program = program_new(context, ICD_IL);
	if (!program)
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	program->il = malloc(length);
	program->source =
		strndup((const char *)il + SPIRV_HEADER, length - SPIRV_HEADER);
	program->il_size = length;
	if (!program->il || !program->source) {
		icd_program_unref(program);
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	}
	memcpy(program->il, il, length);
	icd_program_hold_devices(program);
	icd_count("create-il");
	refuse(errcode_ret, CL_SUCCESS);
	return program;
}

static cl_int check_devices(cl_context context, cl_uint n,
			    const cl_device_id *devices)
{
	if (!n || !devices || n > ICD_DEVICES_MAX)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < n; i++)
		if (!icd_is(devices[i], ICD_DEVICE) ||
		    icd_context_find(context, devices[i]) < 0)
			return CL_INVALID_DEVICE;
	return CL_SUCCESS;
}

void icd_program_take_devices(cl_program program, cl_uint n,
			      const cl_device_id *devices,
			      cl_uint places[ICD_DEVICES_MAX])
{
	bool sorts = icd_flag("SORT_DEVICES", false);

	program->n_devices = n;
	for (cl_uint i = 0; i < n; i++) {
		cl_uint at = i;
		for (; sorts && at &&
		       icd_context_find(program->context, devices[i]) <
			       icd_context_find(program->context,
						program->devices[at - 1]);
		     at--) {
			program->devices[at] = program->devices[at - 1];
			places[at] = places[at - 1];
		}
		program->devices[at] = devices[i];
		places[at] = i;
	}
}

/* Each device gets its status; the first failure is the call's. */
static cl_int read_binaries(cl_program program, const cl_uint *places,
			    const size_t *lengths,
			    const unsigned char **binaries,
			    cl_int *binary_status)
{
	cl_int all = CL_SUCCESS;

	for (cl_uint i = 0; i < program->n_devices; i++) {
		cl_int status = CL_SUCCESS;
		cl_uint from = places[i];
		if (!binaries[from] || !lengths[from])
			status = CL_INVALID_VALUE;
		else if (!icd_flag("REFUSE_BINARIES", false))
			program->builds[i].given =
				icd_unit_read(binaries[from], lengths[from],
					      program->devices[i]);
		if (!status && !program->builds[i].given)
			status = CL_INVALID_BINARY;
		if (binary_status)
			binary_status[from] = status;
		if (!all)
			all = status;
	}
	return all;
}

cl_program CL_API_CALL clCreateProgramWithBinary(
	cl_context context, cl_uint n_devices, const cl_device_id *devices,
	const size_t *lengths, const unsigned char **binaries,
	cl_int *binary_status, cl_int *errcode_ret)
{
	cl_uint places[ICD_DEVICES_MAX];
	cl_program program;
	cl_int status;

	if (!icd_is(context, ICD_CONTEXT))
		return refuse(errcode_ret, CL_INVALID_CONTEXT);
	status = check_devices(context, n_devices, devices);
	if (!status && (!lengths || !binaries))
		status = CL_INVALID_VALUE;
	if (!status && icd_flag("SHORT_OF_MEMORY", false))
		status = CL_OUT_OF_HOST_MEMORY;
	if (status)
		return refuse(errcode_ret, status);
	program = program_new(context, ICD_BINARY);
	if (!program)
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	icd_program_take_devices(program, n_devices, devices, places);
	icd_program_hold_devices(program);
	status = read_binaries(program, places, lengths, binaries,
			       binary_status);
	icd_count("%s", status ? "create-binary-refused" : "create-binary");
	if (status) {
		icd_program_unref(program);
		return refuse(errcode_ret, status);
	}
	refuse(errcode_ret, CL_SUCCESS);
	return program;
}

/* The text of built-in kernels, NULL if a name is not known. */
static const char *built_in(const char *name, size_t length)
{
	if (length == 9 && !memcmp(name, "kiln_fill", 9))
		return "__kernel void kiln_fill(__global int *out, int value)\n"
		       "{ out[get_global_id(0)] = value; }\n";
	if (length == 9 && !memcmp(name, "kiln_copy", 9))
		return "__kernel void kiln_copy(__global int *out,\n"
		       "__global const int *in)\n"
		       "{ out[get_global_id(0)] = in[get_global_id(0)]; }\n";
	return NULL;
}

cl_program CL_API_CALL clCreateProgramWithBuiltInKernels(
	cl_context context, cl_uint n_devices, const cl_device_id *devices,
	const char *names, cl_int *errcode_ret)
{
	struct icd_text source = { 0 }, log = { 0 };
	cl_program program;
	cl_int status;

	if (!icd_is(context, ICD_CONTEXT))
		return refuse(errcode_ret, CL_INVALID_CONTEXT);
	status = check_devices(context, n_devices, devices);
	if (!status && !names)
		status = CL_INVALID_VALUE;
	while (!status && *names) {
		const char *end = strchrnul(names, ';');
		const char *text = built_in(names, (size_t)(end - names));
		if (text)
			icd_text_puts(&source, text);
		else
			status = CL_INVALID_VALUE;
		names = *end ? end + 1 : end;
	}
	program = status ? NULL : program_new(context, ICD_BUILT_IN);
	if (!status && (!program || !source.data))
		status = CL_OUT_OF_HOST_MEMORY;
	if (!status) {
		program->n_devices = n_devices;
		memcpy(program->devices, devices,
		       n_devices * sizeof(devices[0]));
		icd_program_hold_devices(program);
	}
	for (cl_uint i = 0; !status && i < n_devices; i++) {
		program->builds[i].unit = icd_parse(
			source.data, CL_PROGRAM_BINARY_TYPE_EXECUTABLE, &log);
		if (!program->builds[i].unit)
			status = CL_OUT_OF_HOST_MEMORY;
		program->builds[i].status = CL_BUILD_SUCCESS;
	}
	if (status && program)
		icd_program_unref(program);
	free(source.data);
	free(log.data);
	icd_count("create-built-in");
	refuse(errcode_ret, status);
	return status ? NULL : program;
}

/* ---- Lives -------------------------------------------------------------- */

cl_int CL_API_CALL clRetainProgram(cl_program program)
{
	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	icd_ref(program);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clReleaseProgram(cl_program program)
{
	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	icd_program_unref(program);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clSetProgramReleaseCallback(
	cl_program program,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	return icd_callback_add(&program->callbacks, (void *)pfn_notify,
				user_data);
}

cl_int CL_API_CALL clSetProgramSpecializationConstant(cl_program program,
						      cl_uint id, size_t size,
						      const void *value)
{
	struct icd_constant *constant;
	char name[24];

	if (!icd_is(program, ICD_PROGRAM) || program->origin != ICD_IL)
		return CL_INVALID_PROGRAM;
	snprintf(name, sizeof(name), "SPEC_%u", id);
	if (!strstr(program->source, name))
		return CL_INVALID_SPEC_ID;
	if (!value || !size || size > sizeof(constant->value))
		return CL_INVALID_VALUE;
	constant = calloc(1, sizeof(*constant));
	if (!constant)
		return CL_OUT_OF_HOST_MEMORY;
	constant->id = id;
	memcpy(&constant->value, value, size);
	pthread_mutex_lock(&icd_mutex);
	constant->next = program->constants;
	program->constants = constant;
	pthread_mutex_unlock(&icd_mutex);
	icd_count("constant");
	return CL_SUCCESS;
}

/* ---- Binaries ----------------------------------------------------------- */

void icd_program_specialise(cl_program program, cl_device_id device,
			    const char *kernel, const struct icd_range *range)
{
	struct icd_text lines = { 0 };
	struct icd_build *build = NULL;
	char line[128];
	bool known = false;

	snprintf(line, sizeof(line), "%s %zu %zu %zu\n", kernel,
		 range->local[0], range->local[1], range->local[2]);
	pthread_mutex_lock(&icd_mutex);
	for (cl_uint i = 0; i < program->n_devices; i++)
		if (program->devices[i] == device)
			build = &program->builds[i];
	if (build && build->specialised)
		known = strstr(build->specialised, line) != NULL;
	if (build && build->unit && build->unit->specialised)
		known |= strstr(build->unit->specialised, line) != NULL;
	if (build && build->unit && !known)
		known = icd_cache_knows(build->unit, line);
	if (build && !known) {
		icd_text_puts(&lines,
			      build->specialised ? build->specialised : "");
		icd_text_puts(&lines, line);
		free(build->specialised);
		build->specialised = lines.data;
	}
	if (build && build->unit && !known)
		icd_cache_add(build->unit, line);
	pthread_mutex_unlock(&icd_mutex);
	if (known)
		return;
	icd_count("specialise");
	icd_delay("SPECIALISE_MS");
}

/* The binary of one device as it is now: into the build, under the mutex. */
static void fetch_locked(cl_program program, cl_uint i)
{
	struct icd_build *build = &program->builds[i];
	struct icd_text bytes = { 0 }, lines = { 0 };
	const struct icd_unit *unit = build->unit ? build->unit : build->given;

	if (!unit || program->origin == ICD_BUILT_IN)
		return;
	if (build->kept && icd_flag("KEEP_FIRST_FETCH", false))
		return;
	icd_text_puts(&lines, unit->specialised ? unit->specialised : "");
	if (icd_string("CACHE_DIR", NULL))
		icd_cache_lines(unit, &lines);
	else if (build->specialised)
		icd_text_puts(&lines, build->specialised);
	if (icd_unit_write(unit, program->devices[i], lines.data, &bytes)) {
		free(build->kept);
		build->kept = bytes.data;
		build->kept_size = bytes.size;
	} else {
		free(bytes.data);
	}
	free(lines.data);
}

struct icd_build *icd_program_build(cl_program program, cl_uint index)
{
	if (!icd_flag("WHOLE_BUILDS", false) || !program->n_last)
		return &program->builds[index];
	for (cl_uint i = 0; i < program->n_last; i++)
		if (program->last[i] == index)
			return &program->builds[index];
	return &program->builds[program->last[0]];
}

/* The devices that there are binaries for, in their order. */
static cl_uint fetched_locked(cl_program program,
			      cl_uint indices[ICD_DEVICES_MAX])
{
	cl_uint n = program->n_devices;

	for (cl_uint i = 0; i < n; i++)
		indices[i] = i;
	if (icd_flag("WHOLE_BUILDS", false) && program->n_last) {
		n = program->n_last;
		memcpy(indices, program->last, n * sizeof(indices[0]));
	}
	return n;
}

static cl_int binary_sizes(cl_program program, size_t size, void *value,
			   size_t *out_size)
{
	size_t sizes[ICD_DEVICES_MAX];
	cl_uint indices[ICD_DEVICES_MAX], n;

	icd_count("fetch");
	icd_delay("FETCH_MS");
	pthread_mutex_lock(&icd_mutex);
	n = fetched_locked(program, indices);
	for (cl_uint i = 0; i < n; i++) {
		fetch_locked(program, indices[i]);
		sizes[i] = program->builds[indices[i]].kept_size;
	}
	pthread_mutex_unlock(&icd_mutex);
	return icd_answer(sizes, n * sizeof(sizes[0]), size, value, out_size);
}

static cl_int binaries(cl_program program, size_t size, void *value,
		       size_t *out_size)
{
	unsigned char **to = value;
	cl_uint indices[ICD_DEVICES_MAX], n;

	pthread_mutex_lock(&icd_mutex);
	n = fetched_locked(program, indices);
	pthread_mutex_unlock(&icd_mutex);
	if (to && size < n * sizeof(*to))
		return icd_answer(NULL, n * sizeof(*to), size, to, out_size);
	if (out_size)
		*out_size = n * sizeof(*to);
	icd_count("binaries");
	pthread_mutex_lock(&icd_mutex);
	for (cl_uint i = 0; to && i < n; i++) {
		struct icd_build *build = &program->builds[indices[i]];
		if (!build->kept)
			fetch_locked(program, indices[i]);
		if (to[i] && build->kept)
			memcpy(to[i], build->kept, build->kept_size);
	}
	pthread_mutex_unlock(&icd_mutex);
	return CL_SUCCESS;
}

/* ---- Questions ---------------------------------------------------------- */

/* A unit of any device that has one; counted. */
static struct icd_unit *some_unit(cl_program program)
{
	struct icd_unit *unit = NULL;

	pthread_mutex_lock(&icd_mutex);
	for (cl_uint i = 0; i < program->n_devices && !unit; i++) {
		struct icd_build *build = icd_program_build(program, i);
		if (build->status == CL_BUILD_SUCCESS && build->unit &&
		    build->unit->type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
			unit = icd_unit_ref(build->unit);
	}
	pthread_mutex_unlock(&icd_mutex);
	return unit;
}

static cl_int kernel_names(cl_program program, cl_program_info what,
			   size_t size, void *value, size_t *out_size)
{
	struct icd_unit *unit = some_unit(program);
	struct icd_text names = { 0 };
	cl_int status;

	if (!unit)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	for (unsigned i = 0; i < unit->n_codes; i++)
		icd_text_printf(&names, "%s%s", i ? ";" : "",
				unit->codes[i].name);
	if (what == CL_PROGRAM_NUM_KERNELS)
		status = icd_answer_size(unit->n_codes, size, value, out_size);
	else
		status = icd_answer_string(names.data, size, value, out_size);
	free(names.data);
	icd_unit_unref(unit);
	return status;
}

cl_int CL_API_CALL clGetProgramInfo(cl_program program, cl_program_info what,
				    size_t size, void *value, size_t *out_size)
{
	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	switch (what) {
	case CL_PROGRAM_REFERENCE_COUNT:
		return icd_answer_uint(atomic_load(&program->head.refs), size,
				       value, out_size);
	case CL_PROGRAM_CONTEXT:
		return icd_answer_pointer(program->context, size, value,
					  out_size);
	case CL_PROGRAM_NUM_DEVICES:
		return icd_answer_uint(program->n_devices, size, value,
				       out_size);
	case CL_PROGRAM_DEVICES:
		return icd_answer(program->devices,
				  program->n_devices *
					  sizeof(program->devices[0]),
				  size, value, out_size);
	case CL_PROGRAM_SOURCE:
		return icd_answer_string(
			program->origin == ICD_SOURCE ? program->source : "",
			size, value, out_size);
	case CL_PROGRAM_IL:
		return icd_answer(program->il, program->il_size, size, value,
				  out_size);
	case CL_PROGRAM_BINARY_SIZES:
		return binary_sizes(program, size, value, out_size);
	case CL_PROGRAM_BINARIES:
		return binaries(program, size, value, out_size);
	case CL_PROGRAM_NUM_KERNELS:
	case CL_PROGRAM_KERNEL_NAMES:
		return kernel_names(program, what, size, value, out_size);
	case CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT:
	case CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT:
		return icd_answer_uint(CL_FALSE, size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

static size_t variables_size(const struct icd_unit *unit)
{
	size_t size = 0;

	for (unsigned i = 0; unit && i < unit->n_variables; i++)
		size += unit->variables[i].type.element;
	return size;
}

cl_int CL_API_CALL clGetProgramBuildInfo(cl_program program,
					 cl_device_id device,
					 cl_program_build_info what,
					 size_t size, void *value,
					 size_t *out_size)
{
	struct icd_build *build;
	cl_uint index;
	cl_int status = CL_INVALID_VALUE;

	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	index = program->n_devices;
	for (cl_uint i = 0; i < program->n_devices; i++)
		if (program->devices[i] == device)
			index = i;
	if (index == program->n_devices)
		return CL_INVALID_DEVICE;
	pthread_mutex_lock(&icd_mutex);
	build = icd_program_build(program, index);
	if (what == CL_PROGRAM_BUILD_STATUS)
		status = icd_answer(&build->status, sizeof(build->status), size,
				    value, out_size);
	else if (what == CL_PROGRAM_BUILD_OPTIONS)
		status = icd_answer_string(build->options, size, value,
					   out_size);
	else if (what == CL_PROGRAM_BUILD_LOG)
		status = icd_answer_string(build->log, size, value, out_size);
	else if (what == CL_PROGRAM_BINARY_TYPE)
		status = icd_answer_uint(build->unit ? build->unit->type
					 : build->given
						 ? build->given->type
						 : CL_PROGRAM_BINARY_TYPE_NONE,
					 size, value, out_size);
	else if (what == CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE)
		status = icd_answer_size(variables_size(build->unit), size,
					 value, out_size);
	pthread_mutex_unlock(&icd_mutex);
	return status;
}
