/* SPDX-License-Identifier: MIT */

/*
 * Scripts of the unchanged program about what belongs to a device or a vendor:
 * variables of programs, functions by name.
 */

#include "opencl/calls.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char counting_source[] = "__global int counter = 5;\n"
				      "__global int spare = 1;\n"
				      "__kernel void count(__global int *out)\n"
				      "{ counter += 1; out[0] = counter; }\n"
				      "__kernel void look(__global int *out)\n"
				      "{ out[0] = counter * 100 + spare; }\n";

static int run_one(cl_kernel kernel)
{
	int out = -1;
	size_t global = 1;
	cl_mem to = clCreateBuffer(context, 0, sizeof(out), NULL, NULL);

	clSetKernelArg(kernel, 0, sizeof(to), &to);
	say("launch", clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global,
					     NULL, 0, NULL, NULL));
	say("read", clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof(out),
					&out, 0, NULL, NULL));
	clReleaseMemObject(to);
	say("out", out);
	return out;
}

/* ---- Functions of vendors ------------------------------------------------ */

typedef cl_int(CL_API_CALL *pointer_fn)(cl_device_id device, cl_program program,
					const char *name, size_t *size,
					void **pointer);
typedef cl_int(CL_API_CALL *function_fn)(cl_device_id device,
					 cl_program program, const char *name,
					 cl_ulong *pointer);
typedef cl_int(CL_API_CALL *read_fn)(cl_command_queue on, cl_program program,
				     const char *name, cl_bool blocking,
				     size_t size, size_t offset, void *data,
				     cl_uint n_waits, const cl_event *waits,
				     cl_event *event);
typedef cl_int(CL_API_CALL *write_fn)(cl_command_queue on, cl_program program,
				      const char *name, cl_bool blocking,
				      size_t size, size_t offset,
				      const void *data, cl_uint n_waits,
				      const cl_event *waits, cl_event *event);
typedef cl_int(CL_API_CALL *read_pipe_fn)(cl_command_queue on,
					  cl_program program, const char *name,
					  cl_bool blocking, void *data,
					  size_t size, cl_uint n_waits,
					  const cl_event *waits,
					  cl_event *event);
typedef cl_int(CL_API_CALL *write_pipe_fn)(cl_command_queue on,
					   cl_program program, const char *name,
					   cl_bool blocking, const void *data,
					   size_t size, cl_uint n_waits,
					   const cl_event *waits,
					   cl_event *event);
typedef cl_int(CL_API_CALL *profile_fn)(cl_device_id device, cl_program program,
					cl_bool enqueued, cl_bool automatic,
					cl_bool clear, size_t size, void *value,
					size_t *told, cl_int *errcode_ret);

static void *function(const char *name)
{
	void *address =
		clGetExtensionFunctionAddressForPlatform(platform, name);

	printf("%s: %s\n", name, address ? "offered" : "none");
	return address;
}

static void use_variables(cl_program program)
{
	pointer_fn point =
		(pointer_fn)function("clGetDeviceGlobalVariablePointerINTEL");
	read_fn read = (read_fn)function("clEnqueueReadGlobalVariableINTEL");
	write_fn write =
		(write_fn)function("clEnqueueWriteGlobalVariableINTEL");
	cl_event event = NULL;
	int value = 0, forty = 40, *place = NULL;
	size_t size = 0;

	say("point",
	    point(devices[0], program, "counter", &size, (void **)&place));
	say("  size", (long long)size);
	say("  value", place ? *place : -1);
	say("unknown",
	    point(devices[0], program, "nothing", &size, (void **)&place));
	say("no device",
	    point(NULL, program, "counter", &size, (void **)&place));
	say("no program",
	    point(devices[0], NULL, "counter", &size, (void **)&place));
	say("read", read(queue, program, "counter", CL_TRUE, sizeof(value), 0,
			 &value, 0, NULL, &event));
	say("  value", value);
	say("  event", event && !clReleaseEvent(event));
	say("write", write(queue, program, "counter", CL_TRUE, sizeof(forty), 0,
			   &forty, 0, NULL, NULL));
	say("no queue", read(NULL, program, "counter", CL_TRUE, sizeof(value),
			     0, &value, 0, NULL, NULL));
	say("too much", read(queue, program, "counter", CL_TRUE, sizeof(value),
			     1, &value, 0, NULL, NULL));
}

static void use_the_rest(cl_program program)
{
	function_fn find =
		(function_fn)function("clGetDeviceFunctionPointerINTEL");
	read_pipe_fn read =
		(read_pipe_fn)function("clEnqueueReadHostPipeINTEL");
	write_pipe_fn write =
		(write_pipe_fn)function("clEnqueueWriteHostPipeINTEL");
	profile_fn profile =
		(profile_fn)function("clGetProfileDataDeviceIntelFPGA");
	cl_ulong address = 0;
	cl_int code = 1;
	cl_uint n = 77;
	int value = 3;
	size_t told = 0;

	say("find", find(devices[0], program, "count", &address));
	say("  there", address != 0);
	say("unknown", find(devices[0], program, "nothing", &address));
	say("write pipe", write(queue, program, "spare", CL_TRUE, &value,
				sizeof(value), 0, NULL, NULL));
	value = 0;
	say("read pipe", read(queue, program, "spare", CL_TRUE, &value,
			      sizeof(value), 0, NULL, NULL));
	say("  value", value);
	say("profile", profile(devices[0], program, CL_TRUE, CL_TRUE, CL_FALSE,
			       sizeof(n), &n, &told, &code));
	say("  kernels", n);
	say("  told", (long long)told);
	say("  code", code);
}

/* Functions that are given a program meet the variables that kernels use. */
void vendors(void)
{
	cl_program program = make(counting_source);
	cl_kernel count, look;

	use_variables(program);
	build(program, options);
	use_variables(program);
	count = make_kernel(program, "count");
	look = make_kernel(program, "look");
	run_one(count);
	use_the_rest(program);
	run_one(look);
	clReleaseKernel(count);
	clReleaseKernel(look);
	build(program, options);
	run_one(make_kernel(program, "look"));
}

/* What one of them left in a variable stays when nobody can know the next. */
void vendors_late(void)
{
	cl_program program = make(counting_source);
	write_fn write =
		(write_fn)function("clEnqueueWriteGlobalVariableINTEL");
	int forty = 40;

	build(program, options);
	say("write", write(queue, program, "counter", CL_TRUE, sizeof(forty), 0,
			   &forty, 0, NULL, NULL));
	function("clCountProgramKernelsKILN");
	run_one(make_kernel(program, "count"));
}

/* A function that nobody can know is handed out while kernels live, or after
   they have; what they left in variables stays. */
void unknown_late(void)
{
	cl_program living = make(counting_source);
	cl_program past = make(counting_source);
	cl_program fresh = make(counting_source);
	cl_kernel count, other;

	build(living, options);
	build(past, options);
	build(fresh, options);
	count = make_kernel(living, "count");
	run_one(count);
	other = make_kernel(past, "count");
	run_one(other);
	clReleaseKernel(other);
	function("clCountProgramKernelsKILN");
	function("clCountProgramKernelsKILN");
	other = make_kernel(living, "count");
	run_one(other);
	run_one(count);
	clReleaseKernel(count);
	clReleaseKernel(other);
	other = make_kernel(living, "look");
	run_one(other);
	show_references(living);
	say("build", clBuildProgram(living, 0, NULL, options, NULL, NULL));
	clReleaseKernel(other);
	run_one(make_kernel(past, "count"));
	run_one(make_kernel(fresh, "count"));
	build(living, options);
	run_one(make_kernel(living, "look"));
	show_program(living);
}

/* ---- Some of the devices -------------------------------------------------- */

static void run_on(cl_device_id device, cl_kernel kernel)
{
	cl_uint before = context_references();
	cl_command_queue first = queue;

	queue = clCreateCommandQueue(context, device, 0, NULL);
	run_scale(kernel);
	clReleaseCommandQueue(queue);
	queue = first;
	settle(before);
}

/* Which of the numbers were written, and how many there should be. */
static void show_sizes(cl_program program)
{
	size_t sizes[DEVICES_MAX], told = 0;
	unsigned char *places[DEVICES_MAX] = { NULL };
	cl_uint i;

	for (i = 0; i < DEVICES_MAX; i++)
		sizes[i] = 1 << 20;
	say("BINARY_SIZES", clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
					     sizeof(sizes), sizes, &told));
	say("  told", (long long)told);
	for (i = 0; i < DEVICES_MAX; i++) {
		say("  kind", sizes[i] == 1 << 20 ? 2 : sizes[i] != 0);
		places[i] = calloc(1, 1 << 20);
	}
	say("BINARIES", clGetProgramInfo(program, CL_PROGRAM_BINARIES,
					 sizeof(places), places, &told));
	say("  told", (long long)told);
	for (i = 0; i < DEVICES_MAX; i++) {
		say("  written", places[i][0] != 0);
		free(places[i]);
	}
	say("for one", clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
					sizeof(*sizes), sizes, &told));
}

static void show_everywhere(cl_kernel kernel, cl_program program)
{
	cl_uint i;

	show_kernel(kernel, program);
	for (i = 0; i < n_devices; i++)
		ASK(clGetKernelWorkGroupInfo, CL_KERNEL_WORK_GROUP_SIZE, kernel,
		    devices[i]);
	ASK(clGetKernelWorkGroupInfo, CL_KERNEL_WORK_GROUP_SIZE, kernel, NULL);
	ASK(clGetKernelWorkGroupInfo, CL_KERNEL_PRIVATE_MEM_SIZE, kernel,
	    devices[0]);
}

/* Everything that a build may have changed. */
static void show_build(cl_program program, cl_device_id device)
{
	cl_kernel kernel, all[4] = { NULL };
	cl_uint n = 0, i;

	show_program(program);
	show_sizes(program);
	say("kernels", clCreateKernelsInProgram(program, 4, all, &n));
	for (i = 0; i < n && all[i]; i++)
		clReleaseKernel(all[i]);
	kernel = make_kernel(program, "scale");
	if (!kernel)
		return;
	show_everywhere(kernel, program);
	if (device)
		run_on(device, kernel);
	clReleaseKernel(kernel);
}

/* One after the other, together, in another order, twice, wrongly. */
void some_devices(void)
{
	cl_device_id turned[2] = { devices[1], devices[0] };
	cl_device_id twice[2] = { devices[1], devices[1] };
	cl_device_id thrice[3] = { devices[0], devices[1], devices[0] };
	cl_program program = make(source);
	cl_kernel kernel;

	build_for(program, 1, devices + 1, options);
	show_build(program, devices[1]);
	build_for(program, 1, devices, "-DK=6");
	show_build(program, devices[0]);
	build_for(program, 0, NULL, "-DK=7");
	show_build(program, devices[1]);
	build_for(program, 1, devices, "-DK=8");
	show_build(program, devices[0]);
	build_for(program, 2, turned, "-DK=9");
	show_build(program, devices[0]);
	kernel = make_kernel(program, "scale");
	build_for(program, 1, devices + 1, options);
	build_for(program, 0, NULL, options);
	run_on(devices[1], kernel);
	show_build(program, devices[0]);
	clReleaseKernel(kernel);
	build_for(program, 2, twice, "-DK=11");
	show_build(program, devices[1]);
	build_for(program, 3, thrice, "-DK=12");
	show_build(program, devices[1]);
	build_for(program, 1, devices + 1, "--no-such-option");
	show_build(program, NULL);
	build_for(program, 1, devices + 1, "-DK=13");
	show_build(program, devices[1]);
	say("release", clReleaseProgram(program));
	end();
}

/* One text with no options and with empty ones, which to PoCL are two things. */
void no_options(void)
{
	static const char *const given[] = { NULL, "", "", NULL };
	size_t i;

	for (i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
		cl_program program = make(source);
		cl_kernel kernel;

		build(program, given[i]);
		kernel = make_kernel(program, "scale");
		show_kernel(kernel, program);
		clReleaseKernel(kernel);
		say("release", clReleaseProgram(program));
	}
	end();
}

/* What fails leaves the others alone, or does not. */
void some_fail(void)
{
	cl_program program = make(source);

	build_for(program, 1, devices, "-DK=nowhere");
	show_build(program, NULL);
	build_for(program, 1, devices + 1, "-DK=5");
	show_build(program, devices[1]);
	build_for(program, 2, devices, options);
	show_build(program, devices[0]);
	build_for(program, 1, devices + 1, "-DK=nowhere");
	show_build(program, NULL);
	say("release", clReleaseProgram(program));
	end();
}

static void write_header(const char *text)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/k.h", options + strlen("-I"));
	file = fopen(path, "w");
	say("written", file && fputs(text, file) >= 0 && !fclose(file));
}

/* One device has what stood in the file before, the other what stands there. */
void header_changed_between(void)
{
	cl_program program =
		make("#include \"k.h\"\n"
		     "__kernel void scale(__global int *out,"
		     " __global const int *in, int d)\n"
		     "{ int i = get_global_id(0); out[i] = in[i] * K + d; }\n");
	cl_kernel kernel;

	write_header("#define K 4\n");
	build_for(program, 1, devices, options);
	write_header("#define K 5\n");
	build_for(program, 1, devices + 1, options);
	kernel = make_kernel(program, "scale");
	run_on(devices[0], kernel);
	run_on(devices[1], kernel);
	clReleaseKernel(kernel);
	say("release", clReleaseProgram(program));
	end();
}

/* What most programs do with one of several devices: all of it about that. */
void one_of_two(void)
{
	cl_program program = make(source);
	cl_device_id device = devices[1];
	cl_kernel kernel;

	clSetProgramReleaseCallback(program, on_release, "program");
	build_for(program, 1, &device, options);
	ASK(clGetProgramBuildInfo, CL_PROGRAM_BUILD_STATUS, program, device);
	ASK(clGetProgramBuildInfo, CL_PROGRAM_BUILD_LOG, program, device);
	ASK(clGetProgramBuildInfo, CL_PROGRAM_BUILD_OPTIONS, program, device);
	ASK(clGetProgramInfo, CL_PROGRAM_NUM_DEVICES, program);
	ASK(clGetProgramInfo, CL_PROGRAM_KERNEL_NAMES, program);
	kernel = make_kernel(program, "scale");
	ASK(clGetKernelWorkGroupInfo, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, kernel,
	    device);
	ASK(clGetKernelWorkGroupInfo, CL_KERNEL_WORK_GROUP_SIZE, kernel,
	    device);
	run_on(device, kernel);
	clReleaseKernel(kernel);
	build_for(program, 1, &device, "-DK=21");
	kernel = make_kernel(program, "scale");
	run_on(device, kernel);
	clReleaseKernel(kernel);
	build_for(program, 2, devices, "-DK=22");
	kernel = make_kernel(program, "scale");
	run_on(devices[0], kernel);
	show_references(program);
	say("release", clReleaseProgram(program));
	say("release kernel", clReleaseKernel(kernel));
	end();
}

static void CL_CALLBACK build_the_other(cl_program program, void *arg)
{
	say("notified", arg == &devices[1]);
	build_for(program, 1, &devices[1], options);
}

/* A build of one device is not over when that of the other begins: by the
   first's notification. */
void built_within(void)
{
	cl_program other = make(source), program = make(source);
	cl_kernel kernel;

	build_for(other, 1, &devices[1], options);
	say("release", clReleaseProgram(other));
	say("build", clBuildProgram(program, 1, devices, "-DK=41",
				    build_the_other, &devices[1]));
	kernel = make_kernel(program, "scale");
	run_on(devices[0], kernel);
	run_on(devices[1], kernel);
	clReleaseKernel(kernel);
	say("release", clReleaseProgram(program));
	end();
}

/* ---- Parts of a device ----------------------------------------------------- */

static void show_device(const char *what, cl_device_id device)
{
	cl_uint n = 0;

	printf("%s: ", what);
	say("device references",
	    clGetDeviceInfo(device, CL_DEVICE_REFERENCE_COUNT, sizeof(n), &n,
			    NULL)
		    ? -1
		    : (long long)n);
}

/* Two parts of the first device in a context of their own, in which all goes
   on from then; 0 where devices can't be split. */
static int split(const cl_device_partition_property *how, cl_uint n)
{
	cl_device_id parts[16], whole = devices[0];
	cl_uint n_parts = 0, i;
	cl_int code = clCreateSubDevices(whole, how, 16, parts, &n_parts);

	say("split", code);
	say("  parts", n_parts);
	if (code || n_parts < n)
		return 0;
	while (n_parts > n)
		clReleaseDevice(parts[--n_parts]);
	clReleaseCommandQueue(queue);
	clReleaseContext(context);
	for (i = 0; i < n; i++)
		devices[i] = parts[i];
	n_devices = n;
	context = clCreateContext(NULL, n, parts, NULL, NULL, &code);
	say("context", code);
	queue = clCreateCommandQueue(context, devices[0], 0, &code);
	say("queue", code);
	return 1;
}

static void use_parts(void)
{
	cl_program program = make(source), other = make(source);
	cl_kernel kernel, other_kernel;
	cl_uint i;

	clSetContextDestructorCallback(context, on_context_release, "parts");
	clSetProgramReleaseCallback(program, on_release, "program");
	show_device("made", devices[0]);
	build(program, options);
	show_device("built", devices[0]);
	show_program(program);
	kernel = make_kernel(program, "scale");
	show_device("kernel", devices[0]);
	show_kernel(kernel, program);
	run_scale(kernel);
	build_for(other, 1, devices + n_devices - 1, options);
	show_device("other", devices[n_devices - 1]);
	other_kernel = make_kernel(other, "scale");
	run_on(devices[n_devices - 1], other_kernel);
	say("release kernel", clReleaseKernel(other_kernel));
	say("release", clReleaseProgram(program));
	show_device("program gone", devices[0]);
	say("release kernel", clReleaseKernel(kernel));
	show_device("kernel gone", devices[0]);
	show_references(other);
	end();
	show_device("context gone", devices[0]);
	say("release", clReleaseProgram(other));
	/* Not all drivers keep the devices of a context. */
	for (i = 0; i < n_devices; i++)
		say("release device", clReleaseDevice(devices[i]));
}

/* Two equal parts. */
void equal_parts(void)
{
	static const cl_device_partition_property how[] = {
		CL_DEVICE_PARTITION_EQUALLY, 1, 0
	};

	if (split(how, 2))
		use_parts();
}

/* One part of two that were counted. */
void counted_part(void)
{
	static const cl_device_partition_property how[] = {
		CL_DEVICE_PARTITION_BY_COUNTS, 1, 1, 0, 0
	};

	if (split(how, 1))
		use_parts();
}

/* ---- Contexts --------------------------------------------------------------- */

/* Many contexts with one source, released before what is in them. */
void many_contexts(void)
{
	static const char *const names[] = { "first", "second", "third" };
	cl_program programs[3];
	cl_kernel kernels[3];
	int i;

	clReleaseCommandQueue(queue);
	clReleaseContext(context);
	for (i = 0; i < 3; i++) {
		cl_int code = 1;

		context = clCreateContext(NULL, n_devices, devices, NULL, NULL,
					  &code);
		say("context", code);
		clSetContextDestructorCallback(context, on_context_release,
					       (void *)(uintptr_t)names[i]);
		queue = clCreateCommandQueue(context, devices[0], 0, NULL);
		programs[i] = make(source);
		clSetProgramReleaseCallback(programs[i], on_release,
					    (void *)(uintptr_t)names[i]);
		build(programs[i], options);
		kernels[i] = make_kernel(programs[i], "scale");
		run_scale(kernels[i]);
		show_references(programs[i]);
		end();
	}
	say("release program", clReleaseProgram(programs[1]));
	say("release kernel", clReleaseKernel(kernels[2]));
	say("release kernel", clReleaseKernel(kernels[1]));
	say("release program", clReleaseProgram(programs[2]));
	say("release kernel", clReleaseKernel(kernels[0]));
	build(programs[0], "-DK=4");
	say("kernel", make_kernel(programs[0], "zero") != NULL);
	say("release program", clReleaseProgram(programs[0]));
}
