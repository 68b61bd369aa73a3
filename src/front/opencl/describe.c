/* SPDX-License-Identifier: MIT */

/*
 * What only a program built from source can tell, kept as the driver told it:
 * an answer is result:i32 size:u32 data, with the driver's own error where it
 * refused, so that a warm program refuses alike.
 *
 *	KILN_META_BUILD_LOG	version:u32 n_devices:u32 answer...
 *	KILN_META_KERNELS	version:u32 n_devices:u32
 *				answer (names) n_kernels:u32
 *	for each kernel		size:u32 (of what follows) name:u32+bytes
 *				n_args:u32 answer (attributes)
 *				answer for each device (work-group size, 3 x u64)
 *				5 answers for each argument, CL_KERNEL_ARG_*
 *				in the order of their numbers
 */

#include "front/opencl/capture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION		 1
#define KERNELS_MAX	 65536
#define ARGS_MAX	 4096
#define ANSWER_BYTES_MAX ((size_t)1 << 22)

static const cl_kernel_arg_info arg_questions[] = {
	CL_KERNEL_ARG_ADDRESS_QUALIFIER,
	CL_KERNEL_ARG_ACCESS_QUALIFIER,
	CL_KERNEL_ARG_TYPE_NAME,
	CL_KERNEL_ARG_TYPE_QUALIFIER,
	CL_KERNEL_ARG_NAME,
};
#define N_ARG_QUESTIONS (sizeof(arg_questions) / sizeof(arg_questions[0]))

/* ---- Asking -------------------------------------------------------------- */

static void add_answer(struct ki_bytes *bytes, cl_int result, const void *data,
		       size_t size)
{
	ki_bytes_add_u32(bytes, (uint32_t)result);
	ki_bytes_add_u32(bytes, (uint32_t)(result ? 0 : size));
	if (!result)
		ki_bytes_add(bytes, data, size);
}

/* A question to the driver: which function, about what. */
struct question {
	const cl_icd_dispatch *calls;
	cl_program program;
	cl_device_id device;
	cl_kernel kernel;
	cl_uint arg;
	cl_uint what;
};
typedef cl_int ask_fn(const struct question *question, size_t size, void *data,
		      size_t *out_size);

static cl_int ask_program(const struct question *q, size_t size, void *data,
			  size_t *out_size)
{
	return q->calls->clGetProgramInfo(q->program, q->what, size, data,
					  out_size);
}

static cl_int ask_build(const struct question *q, size_t size, void *data,
			size_t *out_size)
{
	return q->calls->clGetProgramBuildInfo(q->program, q->device, q->what,
					       size, data, out_size);
}

static cl_int ask_kernel(const struct question *q, size_t size, void *data,
			 size_t *out_size)
{
	return q->calls->clGetKernelInfo(q->kernel, q->what, size, data,
					 out_size);
}

static cl_int ask_arg(const struct question *q, size_t size, void *data,
		      size_t *out_size)
{
	return q->calls->clGetKernelArgInfo(q->kernel, q->arg, q->what, size,
					    data, out_size);
}

/* Ask for the size, then for the bytes. */
static void add_question(struct ki_bytes *bytes, ask_fn *ask,
			 const struct question *question)
{
	size_t size = 0;
	void *data;
	cl_int result = ask(question, 0, NULL, &size);

	if (!result && size > ANSWER_BYTES_MAX)
		result = CL_OUT_OF_HOST_MEMORY;
	if (result || !size) {
		add_answer(bytes, result, NULL, 0);
		return;
	}
	data = calloc(1, size);
	if (!data) {
		bytes->failed = bytes->failed ? bytes->failed : -ENOMEM;
		return;
	}
	result = ask(question, size, data, NULL);
	add_answer(bytes, result, data, size);
	free(data);
}

static void add_work_group(struct ki_bytes *bytes, const cl_icd_dispatch *calls,
			   cl_kernel kernel, cl_device_id device)
{
	size_t sizes[3] = { 0 };
	uint8_t numbers[24];
	cl_int result = calls->clGetKernelWorkGroupInfo(
		kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
		sizeof(sizes), sizes, NULL);
	int i;

	for (i = 0; i < 3; i++)
		ki_put_u64(numbers + 8 * i, sizes[i]);
	add_answer(bytes, result, numbers, sizeof(numbers));
}

/* Kernel information, as far as this layer keeps it, is OpenCL 1.2. */
static int tells_kernels(const cl_icd_dispatch *calls, cl_device_id device)
{
	char version[1024] = "";
	unsigned major = 0, minor = 0;

	if (!calls->clGetKernelArgInfo ||
	    calls->clGetDeviceInfo(device, CL_DEVICE_VERSION,
				   sizeof(version) - 1, version, NULL) ||
	    sscanf(version, "OpenCL %u.%u", &major, &minor) != 2)
		return 0;
	return major > 1 || minor >= 2;
}

static void add_args(struct ki_bytes *bytes, struct question *question,
		     cl_uint n_args)
{
	size_t i;

	for (question->arg = 0; question->arg < n_args; question->arg++)
		for (i = 0; i < N_ARG_QUESTIONS; i++) {
			question->what = arg_questions[i];
			add_question(bytes, ask_arg, question);
		}
}

static enum kiln_status add_kernel(struct ki_bytes *all,
				   const cl_icd_dispatch *calls,
				   cl_kernel kernel,
				   const cl_device_id *devices,
				   cl_uint n_devices)
{
	struct question question = { .calls = calls, .kernel = kernel };
	enum kiln_status status = KILN_E_UNSUPPORTED;
	struct ki_bytes bytes;
	size_t name_size = 0;
	char *name = NULL;
	cl_uint n_args = 0, i;

	ki_bytes_init(&bytes);
	if (calls->clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, NULL,
				   &name_size) ||
	    !name_size || name_size > ANSWER_BYTES_MAX)
		goto out;
	name = calloc(1, name_size + 1);
	if (!name) {
		status = KILN_E_NO_MEMORY;
		goto out;
	}
	if (calls->clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, name_size,
				   name, NULL) ||
	    calls->clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(n_args),
				   &n_args, NULL) ||
	    n_args > ARGS_MAX)
		goto out;

	ki_bytes_add_u32(&bytes, (uint32_t)strlen(name));
	ki_bytes_add(&bytes, name, strlen(name));
	ki_bytes_add_u32(&bytes, n_args);
	question.what = CL_KERNEL_ATTRIBUTES;
	add_question(&bytes, ask_kernel, &question);
	for (i = 0; i < n_devices; i++)
		add_work_group(&bytes, calls, kernel, devices[i]);
	add_args(&bytes, &question, n_args);
	if (bytes.failed) {
		status = KILN_E_NO_MEMORY;
		goto out;
	}
	ki_bytes_add_u32(all, (uint32_t)bytes.size);
	ki_bytes_add(all, bytes.data, bytes.size);
	status = KILN_OK;
out:
	ki_bytes_fini(&bytes);
	free(name);
	return status;
}

static char *kernel_names(const cl_icd_dispatch *calls, cl_program program)
{
	size_t size = 0;
	char *names;

	if (calls->clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, NULL,
				    &size) ||
	    size > ANSWER_BYTES_MAX)
		return NULL;
	names = calloc(1, size + 1);
	if (names && calls->clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES,
					     size, names, NULL)) {
		free(names);
		names = NULL;
	}
	return names;
}

static enum kiln_status add_kernel_of_name(struct ki_bytes *all,
					   const cl_icd_dispatch *calls,
					   cl_program program, const char *name,
					   const cl_device_id *devices,
					   cl_uint n_devices, uint32_t *n)
{
	cl_int result = CL_SUCCESS;
	cl_kernel kernel = calls->clCreateKernel(program, name, &result);
	enum kiln_status status;

	if (!kernel)
		return result == CL_INVALID_KERNEL_NAME ? KILN_OK
							: KILN_E_UNSUPPORTED;
	status = add_kernel(all, calls, kernel, devices, n_devices);
	(void)calls->clReleaseKernel(kernel);
	return ++*n > KERNELS_MAX ? KILN_E_UNSUPPORTED : status;
}

/*
 * One by one: of kernels that it cannot run Oclgrind's clCreateKernelsInProgram
 * gives handles that crash when asked, and says that all is well.  What cannot
 * be made by name is not described: no program has it either.
 */
static enum kiln_status add_kernels(struct ki_bytes *bytes,
				    const cl_icd_dispatch *calls,
				    cl_program program,
				    const cl_device_id *devices,
				    cl_uint n_devices)
{
	char *names = kernel_names(calls, program), *rest = NULL, *name;
	enum kiln_status status = names ? KILN_OK : KILN_E_UNSUPPORTED;
	struct ki_bytes all;
	uint32_t n = 0;

	ki_bytes_init(&all);
	name = names ? strtok_r(names, ";", &rest) : NULL;
	for (; name && !status; name = strtok_r(NULL, ";", &rest))
		status = add_kernel_of_name(&all, calls, program, name, devices,
					    n_devices, &n);
	ki_bytes_add_u32(bytes, n);
	ki_bytes_add(bytes, all.data, all.size);
	if (!status && all.failed)
		status = KILN_E_NO_MEMORY;
	ki_bytes_fini(&all);
	free(names);
	return status;
}

/* Objects and libraries have none; older devices do not know the question. */
static int has_kernels(const cl_icd_dispatch *calls, cl_program program,
		       cl_device_id device)
{
	cl_program_binary_type type = CL_PROGRAM_BINARY_TYPE_NONE;

	return calls->clGetProgramBuildInfo(program, device,
					    CL_PROGRAM_BINARY_TYPE,
					    sizeof(type), &type, NULL) ||
	       (type != CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT &&
		type != CL_PROGRAM_BINARY_TYPE_LIBRARY);
}

enum kiln_status ki_cl_describe(const cl_icd_dispatch *calls,
				cl_program program, const cl_device_id *devices,
				cl_uint n_devices,
				struct kiln_metadata *metadata)
{
	struct question question = { .calls = calls, .program = program };
	enum kiln_status status = KILN_OK;
	struct ki_bytes bytes;
	cl_uint i;

	ki_bytes_init(&bytes);
	ki_bytes_add_u32(&bytes, VERSION);
	ki_bytes_add_u32(&bytes, n_devices);
	question.what = CL_PROGRAM_BUILD_LOG;
	for (i = 0; i < n_devices; i++) {
		question.device = devices[i];
		add_question(&bytes, ask_build, &question);
	}
	if (bytes.failed) {
		status = KILN_E_NO_MEMORY;
		goto out;
	}
	kiln_metadata_add(metadata, KILN_META_BUILD_LOG, bytes.data,
			  bytes.size);

	for (i = 0; i < n_devices; i++)
		if (!tells_kernels(calls, devices[i]) ||
		    !has_kernels(calls, program, devices[i]))
			goto out;
	ki_bytes_clear(&bytes);
	ki_bytes_add_u32(&bytes, VERSION);
	ki_bytes_add_u32(&bytes, n_devices);
	question.what = CL_PROGRAM_KERNEL_NAMES;
	add_question(&bytes, ask_program, &question);
	status = add_kernels(&bytes, calls, program, devices, n_devices);
	if (!status && bytes.failed)
		status = KILN_E_NO_MEMORY;
	if (!status)
		kiln_metadata_add(metadata, KILN_META_KERNELS, bytes.data,
				  bytes.size);
out:
	ki_bytes_fini(&bytes);
	return status;
}

/* ---- Reading ------------------------------------------------------------- */

static void read_answer(struct ki_reader *reader,
			struct ki_cl_answer *out_answer)
{
	out_answer->result = (cl_int)ki_read_u32(reader);
	out_answer->size = ki_read_u32(reader);
	out_answer->data = ki_read(reader, out_answer->size);
}

static void skip_answers(struct ki_reader *reader, size_t n)
{
	struct ki_cl_answer answer;

	while (n-- && !reader->failed)
		read_answer(reader, &answer);
}

/* Past the header: the number of devices, 0 if it is not one of ours. */
static cl_uint read_header(struct ki_reader *reader)
{
	uint32_t version = ki_read_u32(reader);
	uint32_t n_devices = ki_read_u32(reader);

	return reader->failed || version != VERSION ? 0 : n_devices;
}

enum kiln_status ki_cl_described_log(const void *logs, size_t size,
				     cl_uint device,
				     struct ki_cl_answer *out_answer)
{
	struct ki_reader reader = ki_reader(logs, size);
	struct ki_cl_answer answer;

	if (device >= read_header(&reader))
		return KILN_E_FORMAT;
	skip_answers(&reader, device);
	read_answer(&reader, &answer);
	if (reader.failed)
		return KILN_E_FORMAT;
	*out_answer = answer;
	return KILN_OK;
}

enum kiln_status ki_cl_described_names(const void *kernels, size_t size,
				       struct ki_cl_answer *out_answer)
{
	struct ki_reader reader = ki_reader(kernels, size);
	struct ki_cl_answer answer;

	if (!read_header(&reader))
		return KILN_E_FORMAT;
	read_answer(&reader, &answer);
	if (reader.failed)
		return KILN_E_FORMAT;
	*out_answer = answer;
	return KILN_OK;
}

/* Step to a kernel: the reader then stands at its attributes. */
static enum kiln_status find_kernel(struct ki_reader *reader,
				    const void *kernel, size_t kernel_size,
				    cl_uint *out_n_devices, cl_uint *out_n_args)
{
	cl_uint n_devices = read_header(reader);
	uint32_t n_kernels;

	if (!n_devices)
		return KILN_E_FORMAT;
	skip_answers(reader, 1);
	n_kernels = ki_read_u32(reader);
	while (n_kernels-- && !reader->failed) {
		size_t size = ki_read_u32(reader);
		const void *data = ki_read(reader, size);
		struct ki_reader block = ki_reader(data, data ? size : 0);
		size_t name_size = ki_read_u32(&block);
		const void *name = ki_read(&block, name_size);
		uint32_t n_args = ki_read_u32(&block);

		if (reader->failed || block.failed)
			break;
		if (name_size == kernel_size &&
		    !memcmp(name, kernel, name_size)) {
			*reader = block;
			*out_n_devices = n_devices;
			*out_n_args = n_args;
			return KILN_OK;
		}
	}
	return reader->failed ? KILN_E_FORMAT : KILN_MISS;
}

static enum kiln_status nth_answer(struct ki_reader *reader, size_t n,
				   struct ki_cl_answer *out_answer)
{
	struct ki_cl_answer answer;

	skip_answers(reader, n);
	read_answer(reader, &answer);
	if (reader->failed)
		return KILN_E_FORMAT;
	*out_answer = answer;
	return KILN_OK;
}

enum kiln_status ki_cl_described_attributes(const void *kernels, size_t size,
					    const char *kernel,
					    struct ki_cl_answer *out_answer)
{
	struct ki_reader reader = ki_reader(kernels, size);
	cl_uint n_devices, n_args;
	enum kiln_status status = find_kernel(&reader, kernel, strlen(kernel),
					      &n_devices, &n_args);

	return status ? status : nth_answer(&reader, 0, out_answer);
}

enum kiln_status ki_cl_described_work_group(const void *kernels, size_t size,
					    const char *kernel, cl_uint device,
					    struct ki_cl_answer *out_answer)
{
	struct ki_reader reader = ki_reader(kernels, size);
	cl_uint n_devices, n_args;
	enum kiln_status status = find_kernel(&reader, kernel, strlen(kernel),
					      &n_devices, &n_args);

	if (status)
		return status;
	if (device >= n_devices)
		return KILN_MISS;
	return nth_answer(&reader, 1 + (size_t)device, out_answer);
}

enum kiln_status ki_cl_described_arg(const void *kernels, size_t size,
				     const char *kernel, cl_uint arg,
				     cl_kernel_arg_info what,
				     struct ki_cl_answer *out_answer)
{
	struct ki_reader reader = ki_reader(kernels, size);
	cl_uint n_devices, n_args;
	enum kiln_status status = find_kernel(&reader, kernel, strlen(kernel),
					      &n_devices, &n_args);
	size_t i;

	if (status)
		return status;
	for (i = 0; i < N_ARG_QUESTIONS && arg_questions[i] != what; i++)
		;
	if (arg >= n_args || i == N_ARG_QUESTIONS)
		return KILN_MISS;
	return nth_answer(&reader,
			  1 + (size_t)n_devices + arg * N_ARG_QUESTIONS + i,
			  out_answer);
}

/* ---- Comparing ----------------------------------------------------------- */

static int answers_cover(struct ki_reader *wanted, struct ki_reader *told,
			 size_t n)
{
	struct ki_cl_answer a, b;

	while (n--) {
		read_answer(wanted, &a);
		read_answer(told, &b);
		if (wanted->failed || told->failed)
			return 0;
		if (!a.result &&
		    (b.result || a.size != b.size ||
		     (a.size && memcmp(a.data, b.data, a.size) != 0)))
			return 0;
	}
	return 1;
}

/* The wanted kernel at which the reader stands. */
static int kernel_covers(struct ki_reader *wanted, cl_uint n_devices,
			 struct ki_reader told)
{
	size_t size = ki_read_u32(wanted);
	const void *data = ki_read(wanted, size);
	struct ki_reader block = ki_reader(data, data ? size : 0);
	size_t name_size = ki_read_u32(&block);
	const void *name = ki_read(&block, name_size);
	uint32_t n_args = ki_read_u32(&block);
	cl_uint n_told_devices, n_told_args;

	return !wanted->failed && !block.failed &&
	       !find_kernel(&told, name, name_size, &n_told_devices,
			    &n_told_args) &&
	       n_told_devices == n_devices && n_told_args == n_args &&
	       answers_cover(&block, &told,
			     1 + (size_t)n_devices +
				     (size_t)n_args * N_ARG_QUESTIONS);
}

int ki_cl_described_covers(const void *wanted, size_t wanted_size,
			   const void *told, size_t told_size)
{
	struct ki_reader reader = ki_reader(wanted, wanted_size);
	cl_uint n_devices = read_header(&reader);
	uint32_t n_kernels;
	int covers = n_devices != 0;

	skip_answers(&reader, 1);
	n_kernels = ki_read_u32(&reader);
	covers = covers && !reader.failed;
	while (covers && n_kernels--)
		covers = kernel_covers(&reader, n_devices,
				       ki_reader(told, told_size));
	return covers;
}
