/* SPDX-License-Identifier: MIT */

/* The driver stand-in, asked through the system's loader. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include "harness/harness.h"

static cl_platform_id platform;
static cl_device_id devices[2];
static cl_context context;
static cl_command_queue queue;
static char *calls;

static const char source[] =
	"/* a kernel */\n"
	"#ifndef K\n"
	"#define K 3\n"
	"#endif\n"
	"#define TWICE(x) ((x) * 2)\n"
	"__attribute__((reqd_work_group_size(4, 1, 1))) __kernel\n"
	"void scale(__global int *out, const __global int *in, int d) {\n"
	"	int i = get_global_id(0);\n"
	"	out[i] = in[i] * K + TWICE(d);\n"
	"}\n"
	"__kernel void zero(__global int *out)\n"
	"{ out[get_global_id(0)] = 0; }\n";

/* How many lines of the calls file begin with this. */
static unsigned count(const char *what)
{
	char *text = harness_read(calls, NULL), *save = text, *line;
	unsigned n = 0;

	while (text && (line = strsep(&save, "\n")))
		n += !strncmp(line, what, strlen(what));
	free(text);
	return n;
}

static void set(const char *name, const char *value)
{
	char variable[80];

	snprintf(variable, sizeof(variable), "KILN_TEST_ICD_%s", name);
	if (value)
		setenv(variable, value, 1);
	else
		unsetenv(variable);
}

static cl_program from_source(const char *text)
{
	cl_int status;
	cl_program program =
		clCreateProgramWithSource(context, 1, &text, NULL, &status);

	assert_int_equal(status, CL_SUCCESS);
	return program;
}

static cl_program built(const char *text, const char *options)
{
	cl_program program = from_source(text);

	assert_int_equal(clBuildProgram(program, 0, NULL, options, NULL, NULL),
			 CL_SUCCESS);
	return program;
}

/* out[2] of `scale` for in[2] == 10 and d == 4. */
static int run_scale(cl_program program)
{
	int in[8] = { 0, 0, 10 }, out[8] = { 0 }, d = 4;
	size_t global = 8;
	cl_int status;
	cl_kernel kernel = clCreateKernel(program, "scale", &status);
	cl_mem from, to;

	assert_int_equal(status, CL_SUCCESS);
	from = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(in), in,
			      NULL);
	to = clCreateBuffer(context, 0, sizeof(out), NULL, NULL);
	assert_int_equal(clSetKernelArg(kernel, 0, sizeof(to), &to), 0);
	assert_int_equal(clSetKernelArg(kernel, 1, sizeof(from), &from), 0);
	assert_int_equal(clSetKernelArg(kernel, 2, sizeof(d), &d), 0);
	assert_int_equal(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global,
						NULL, 0, NULL, NULL),
			 CL_SUCCESS);
	assert_int_equal(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof(out),
					     out, 0, NULL, NULL),
			 CL_SUCCESS);
	clReleaseMemObject(from);
	clReleaseMemObject(to);
	clReleaseKernel(kernel);
	return out[2];
}

/* The binary for the first device; the caller's to free. */
static unsigned char *fetch(cl_program program, size_t *out_size)
{
	size_t sizes[2] = { 0 };
	unsigned char *list[2] = { NULL, NULL };

	assert_int_equal(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
					  sizeof(sizes), sizes, NULL),
			 CL_SUCCESS);
	assert_true(sizes[0] > 0);
	list[0] = malloc(sizes[0]);
	assert_int_equal(clGetProgramInfo(program, CL_PROGRAM_BINARIES,
					  sizeof(list), list, NULL),
			 CL_SUCCESS);
	*out_size = sizes[0];
	return list[0];
}

static cl_program from_binary(const unsigned char *bytes, size_t size,
			      cl_int *out_status)
{
	cl_int each;
	cl_program program = clCreateProgramWithBinary(
		context, 1, devices, &size, &bytes, &each, out_status);

	assert_int_equal(each, *out_status);
	return program;
}

/* ---- Tests -------------------------------------------------------------- */

static void a_built_kernel_computes_what_its_source_says(void **state)
{
	cl_program program = built(source, NULL);

	assert_int_equal(run_scale(program), 38);
	clReleaseProgram(program);
	program = built(source, "-D K=5 -cl-fast-relaxed-math");
	assert_int_equal(run_scale(program), 58);
	clReleaseProgram(program);
}

static void includes_are_found_beside_and_through_options(void **state)
{
	char *directory = harness_directory();
	char *first = harness_path(directory, "first.h");
	char *second = harness_path(directory, "second.h");
	char options[4096], text[512];
	cl_program program;

	harness_write(first, "#include \"second.h\"\n", 20);
	harness_write(second, "#define K 7\n", 12);
	snprintf(text, sizeof(text), "#include NAME(first.h)\n%s", source);
	snprintf(options, sizeof(options),
		 "-I \"%s\" -DNAME(x)=TEXT(x) -DTEXT(x)=#x", directory);
	program = built(text, options);
	assert_int_equal(run_scale(program), 78);
	clReleaseProgram(program);
	free(first);
	free(second);
	free(directory);
}

static void a_failed_build_has_a_log(void **state)
{
	static const struct {
		const char *text;
		const char *log;
	} rows[] = {
		{ "#error no\n", "program:1: error: no\n" },
		{ "#include \"nowhere.h\"\n", "include file not found" },
		{ "__kernel void f() { x = 1; }", "error" },
		{ "__kernel void f(int a) { int b = a + ; }", "error" },
		{ "__kernel void f() {", "not closed" },
		{ "int x;", "expected a kernel" },
		{ "#if 1\n", "#if without #endif" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cl_program program = from_source(rows[i].text);
		cl_build_status status;
		char log[512];
		assert_int_equal(
			clBuildProgram(program, 0, NULL, "", NULL, NULL),
			CL_BUILD_PROGRAM_FAILURE);
		clGetProgramBuildInfo(program, devices[0],
				      CL_PROGRAM_BUILD_STATUS, sizeof(status),
				      &status, NULL);
		assert_int_equal(status, CL_BUILD_ERROR);
		clGetProgramBuildInfo(program, devices[0], CL_PROGRAM_BUILD_LOG,
				      sizeof(log), log, NULL);
		assert_non_null(strstr(log, rows[i].log));
		clReleaseProgram(program);
	}
}

static void a_binary_computes_the_same_in_another_program(void **state)
{
	cl_program program = built(source, "-DK=6");
	size_t size;
	unsigned char *bytes = fetch(program, &size);
	cl_int status;

	clReleaseProgram(program);
	program = from_binary(bytes, size, &status);
	assert_int_equal(status, CL_SUCCESS);
	assert_int_equal(clBuildProgram(program, 0, NULL, "", NULL, NULL), 0);
	assert_int_equal(run_scale(program), 68);
	clReleaseProgram(program);
	bytes[size / 2] ^= 4;
	assert_null(from_binary(bytes, size, &status));
	assert_int_equal(status, CL_INVALID_BINARY);
	assert_null(from_binary(bytes, size / 2, &status));
	free(bytes);
}

static void a_good_binary_can_be_refused_twice_over(void **state)
{
	cl_program program = built(source, NULL);
	size_t size;
	unsigned char *bytes = fetch(program, &size);
	cl_int status;

	clReleaseProgram(program);
	set("REFUSE_BINARIES", "1");
	assert_null(from_binary(bytes, size, &status));
	assert_int_equal(status, CL_INVALID_BINARY);
	set("REFUSE_BINARIES", NULL);
	set("FAIL_BINARY_BUILDS", "1");
	program = from_binary(bytes, size, &status);
	assert_int_equal(clBuildProgram(program, 0, NULL, "", NULL, NULL),
			 CL_BUILD_PROGRAM_FAILURE);
	set("FAIL_BINARY_BUILDS", NULL);
	clReleaseProgram(program);
	free(bytes);
}

static void a_launch_specialises_the_binary(void **state)
{
	cl_program program = built(source, NULL);
	size_t early_size, late_size;
	unsigned char *early = fetch(program, &early_size), *late;

	set("SPECIALISE", "1");
	run_scale(program);
	late = fetch(program, &late_size);
	assert_true(late_size > early_size);
	assert_int_equal(count("specialise"), 1);
	run_scale(program);
	assert_int_equal(count("specialise"), 1);
	clReleaseProgram(program);
	program = built(source, NULL);
	free(early);
	early = fetch(program, &early_size);
	set("KEEP_FIRST_FETCH", "1");
	run_scale(program);
	free(late);
	late = fetch(program, &late_size);
	assert_int_equal(late_size, early_size);
	set("KEEP_FIRST_FETCH", NULL);
	set("SPECIALISE", NULL);
	clReleaseProgram(program);
	free(early);
	free(late);
}

static void the_disk_cache_passes_specialisations_on(void **state)
{
	char *directory = harness_directory();
	cl_program program;
	size_t size, plain_size;
	unsigned char *bytes;

	program = built(source, NULL);
	bytes = fetch(program, &plain_size);
	free(bytes);
	clReleaseProgram(program);
	set("SPECIALISE", "1");
	set("CACHE_DIR", directory);
	program = built(source, NULL);
	run_scale(program);
	clReleaseProgram(program);
	program = built(source, NULL);
	bytes = fetch(program, &size);
	assert_true(size > plain_size);
	set("CACHE_DIR", NULL);
	set("SPECIALISE", NULL);
	free(bytes);
	clReleaseProgram(program);
	free(directory);
}

static void a_program_with_kernels_is_not_built_again(void **state)
{
	cl_program program = built(source, NULL);
	cl_kernel kernel = clCreateKernel(program, "zero", NULL);
	cl_kernel clone = clCloneKernel(kernel, NULL);
	cl_uint refs;

	clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof(refs),
			 &refs, NULL);
	assert_int_equal(refs, 3);
	assert_int_equal(clBuildProgram(program, 0, NULL, "", NULL, NULL),
			 CL_INVALID_OPERATION);
	clReleaseKernel(kernel);
	clReleaseKernel(clone);
	assert_int_equal(clBuildProgram(program, 0, NULL, "", NULL, NULL),
			 CL_SUCCESS);
	assert_null(clCreateKernel(program, "none", NULL));
	clReleaseProgram(program);
}

static void binaries_keep_quiet_about_their_kernels(void **state)
{
	cl_program program = built(source, "-cl-kernel-arg-info");
	cl_kernel kernel = clCreateKernel(program, "scale", NULL);
	size_t size, group[3];
	unsigned char *bytes;
	char text[128];
	cl_int status;

	clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof(text), text, NULL);
	assert_string_equal(text, "reqd_work_group_size(4, 1, 1)");
	clGetKernelWorkGroupInfo(kernel, devices[0],
				 CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
				 sizeof(group), group, NULL);
	assert_int_equal(group[0], 4);
	assert_int_equal(clGetKernelArgInfo(kernel, 1, CL_KERNEL_ARG_TYPE_NAME,
					    sizeof(text), text, NULL),
			 CL_SUCCESS);
	assert_string_equal(text, "int*");
	clReleaseKernel(kernel);
	bytes = fetch(program, &size);
	clReleaseProgram(program);
	program = from_binary(bytes, size, &status);
	clBuildProgram(program, 0, NULL, "", NULL, NULL);
	kernel = clCreateKernel(program, "scale", NULL);
	assert_int_equal(clGetKernelArgInfo(kernel, 1, CL_KERNEL_ARG_TYPE_NAME,
					    sizeof(text), text, NULL),
			 CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
	clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof(text), text, NULL);
	assert_string_equal(text, "");
	clReleaseKernel(kernel);
	clReleaseProgram(program);
	free(bytes);
}

static void compiled_objects_link_into_a_program(void **state)
{
	cl_program header = from_source("#define K 9\n"), object, library, all;
	const char *name = "k.h";
	char text[1024];
	cl_int status;

	snprintf(text, sizeof(text), "#include <k.h>\n%s", source);
	object = from_source(text);
	assert_int_equal(clCompileProgram(object, 0, NULL, "", 1, &header,
					  &name, NULL, NULL),
			 CL_SUCCESS);
	assert_null(clCreateKernel(object, "scale", &status));
	assert_int_equal(status, CL_INVALID_PROGRAM_EXECUTABLE);
	library = clLinkProgram(context, 0, NULL, "-create-library", 1, &object,
				NULL, NULL, &status);
	assert_int_equal(status, CL_SUCCESS);
	all = clLinkProgram(context, 0, NULL, "", 1, &library, NULL, NULL,
			    &status);
	assert_int_equal(status, CL_SUCCESS);
	assert_int_equal(run_scale(all), 98);
	clReleaseProgram(header);
	clReleaseProgram(object);
	clReleaseProgram(library);
	clReleaseProgram(all);
}

static void il_takes_specialisation_constants(void **state)
{
	static const char text[] =
		"#ifndef SPEC_2\n#define SPEC_2 1\n#endif\n#define K SPEC_2\n";
	unsigned char il[20 + sizeof(text) - 1 + sizeof(source) - 1] = {
		0x03, 0x02, 0x23, 0x07
	};
	cl_program program;
	cl_int status, value = 12;

	memcpy(il + 20, text, sizeof(text) - 1);
	memcpy(il + 20 + sizeof(text) - 1, source, sizeof(source) - 1);
	program = clCreateProgramWithIL(context, il, sizeof(il), &status);
	assert_int_equal(status, CL_SUCCESS);
	assert_int_equal(clSetProgramSpecializationConstant(
				 program, 2, sizeof(value), &value),
			 CL_SUCCESS);
	assert_int_equal(clSetProgramSpecializationConstant(
				 program, 3, sizeof(value), &value),
			 CL_INVALID_SPEC_ID);
	assert_int_equal(clBuildProgram(program, 0, NULL, "", NULL, NULL), 0);
	assert_int_equal(run_scale(program), 128);
	clReleaseProgram(program);
	set("IL", "0");
	assert_null(clCreateProgramWithIL(context, il, sizeof(il), &status));
	set("IL", NULL);
}

static void CL_CALLBACK tell(cl_program program, void *arg)
{
	if (write(*(int *)arg, "", 1) != 1)
		abort();
}

static void asynchronous_builds_call_back_once(void **state)
{
	cl_program program = from_source(source);
	int pipes[2];
	char bytes[2];

	assert_int_equal(pipe(pipes), 0);
	set("ASYNC", "1");
	set("BUILD_MS", "20");
	assert_int_equal(clBuildProgram(program, 0, NULL, "", tell, &pipes[1]),
			 CL_SUCCESS);
	assert_int_equal(read(pipes[0], bytes, 2), 1);
	set("BUILD_MS", NULL);
	set("ASYNC", NULL);
	assert_int_equal(run_scale(program), 38);
	clReleaseProgram(program);
	close(pipes[0]);
	close(pipes[1]);
}

static void CL_CALLBACK add(cl_program program, void *arg)
{
	*(int *)arg = *(int *)arg * 10 + 1;
}

static void CL_CALLBACK add_two(cl_program program, void *arg)
{
	*(int *)arg = *(int *)arg * 10 + 2;
}

static void release_callbacks_run_newest_first(void **state)
{
	cl_program program = from_source(source);
	int order = 0;

	clSetProgramReleaseCallback(program, add, &order);
	clSetProgramReleaseCallback(program, add_two, &order);
	clRetainProgram(program);
	clReleaseProgram(program);
	assert_int_equal(order, 0);
	clReleaseProgram(program);
	assert_int_equal(order, 21);
}

static void devices_split_and_extensions_are_offered(void **state)
{
	cl_device_partition_property how[] = { CL_DEVICE_PARTITION_BY_COUNTS, 1,
					       3, 0, 0 };
	cl_device_id parts[2], parent;
	cl_uint n;

	assert_int_equal(clCreateSubDevices(devices[0], how, 2, parts, &n), 0);
	assert_int_equal(n, 2);
	clGetDeviceInfo(parts[1], CL_DEVICE_PARENT_DEVICE, sizeof(parent),
			&parent, NULL);
	assert_ptr_equal(parent, devices[0]);
	clReleaseDevice(parts[0]);
	clReleaseDevice(parts[1]);
	assert_non_null(clGetExtensionFunctionAddressForPlatform(
		platform, "clCountProgramKernelsKILN"));
	assert_null(clGetExtensionFunctionAddressForPlatform(platform,
							     "clNothingKILN"));
}

static int build_and_release(unsigned index, void *arg)
{
	const char *text = source;
	int failed = 0;

	for (int i = 0; i < 20; i++) {
		cl_program program = clCreateProgramWithSource(
			context, 1, &text, NULL, NULL);
		failed |= clBuildProgram(program, 0, NULL, "", NULL, NULL);
		cl_kernel kernel = clCreateKernel(program, "zero", NULL);
		failed |= clReleaseProgram(program);
		failed |= clReleaseKernel(kernel);
	}
	return failed != 0;
}

static void threads_may_build_at_once(void **state)
{
	unsigned before = count("destroy-program");

	assert_int_equal(harness_threads(4, build_and_release, NULL), 0);
	assert_int_equal(count("destroy-program") - before, 80);
}

static int begin(void **state)
{
	char *directory = harness_directory();
	cl_int status;

	calls = harness_path(directory, "calls");
	free(directory);
	set("CALLS", calls);
	set("DEVICES", "2");
	set("NAMES", "one,two");
	assert_int_equal(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
	assert_int_equal(
		clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 2, devices, NULL),
		CL_SUCCESS);
	context = clCreateContext(NULL, 2, devices, NULL, NULL, &status);
	assert_int_equal(status, CL_SUCCESS);
	queue = clCreateCommandQueueWithProperties(context, devices[0], NULL,
						   &status);
	return status;
}

static int end(void **state)
{
	free(calls);
	clReleaseCommandQueue(queue);
	return clReleaseContext(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_built_kernel_computes_what_its_source_says),
		cmocka_unit_test(includes_are_found_beside_and_through_options),
		cmocka_unit_test(a_failed_build_has_a_log),
		cmocka_unit_test(a_binary_computes_the_same_in_another_program),
		cmocka_unit_test(a_good_binary_can_be_refused_twice_over),
		cmocka_unit_test(a_launch_specialises_the_binary),
		cmocka_unit_test(the_disk_cache_passes_specialisations_on),
		cmocka_unit_test(a_program_with_kernels_is_not_built_again),
		cmocka_unit_test(binaries_keep_quiet_about_their_kernels),
		cmocka_unit_test(compiled_objects_link_into_a_program),
		cmocka_unit_test(il_takes_specialisation_constants),
		cmocka_unit_test(threads_may_build_at_once),
		cmocka_unit_test(asynchronous_builds_call_back_once),
		cmocka_unit_test(release_callbacks_run_newest_first),
		cmocka_unit_test(devices_split_and_extensions_are_offered),
	};

	return cmocka_run_group_tests_name("icd", tests, begin, end);
}
