/* SPDX-License-Identifier: MIT */

/*
 * Scripts of the unchanged program about programs that are compiled and linked
 * or made from IL and binaries.  The options of the command line are the
 * compiler's.
 */

#include "opencl/calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char scale_source[] =
	"#include \"factor.h\"\n"
	"#include \"parts/offset.h\"\n"
	"__attribute__((reqd_work_group_size(4, 1, 1))) __kernel\n"
	"void scale(__global int *out, __global const int *in, int d)\n"
	"{ int i = get_global_id(0); out[i] = in[i] * FACTOR + d + OFFSET; }\n";
static const char zero_source[] = "#ifndef K\n"
				  "#define K 3\n"
				  "#endif\n"
				  "__kernel void zero(__global int *out)\n"
				  "{ out[get_global_id(0)] = K - K; }\n";
static const char broken_source[] = "__kernel void broken(__global int *out)\n"
				    "{ out[get_global_id(0)] = nowhere; }\n";
static const char factor[] = "#define FACTOR 5\n";
static const char other_factor[] = "#define FACTOR 6\n";
static const char offset[] = "#define OFFSET 100\n";

static const char *const header_names[] = { "factor.h", "parts/offset.h" };

/* ---- Doing --------------------------------------------------------------- */

static const char *capture_what(void)
{
	const char *value = getenv("KILN_TEST_CAPTURE");

	return value ? value : "";
}

/* With KILN_TEST_CAPTURE, fetch the binaries; with "objects", not those of what
   is linked. */
static void capture(cl_program program)
{
	size_t sizes[DEVICES_MAX] = { 0 };
	unsigned char *binaries[DEVICES_MAX] = { NULL };
	cl_uint i;

	if (!program || !wants_capture() ||
	    clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
			     n_devices * sizeof(sizes[0]), sizes, NULL))
		return;
	for (i = 0; i < n_devices; i++)
		binaries[i] = calloc(1, sizes[i] + 1);
	clGetProgramInfo(program, CL_PROGRAM_BINARIES,
			 n_devices * sizeof(binaries[0]), binaries, NULL);
	for (i = 0; i < n_devices; i++)
		free(binaries[i]);
}

static void compile(cl_program program, const char *with, cl_uint n,
		    const cl_program *headers)
{
	cl_int result = clCompileProgram(program, 0, NULL, with, n, headers,
					 n ? (const char **)header_names : NULL,
					 NULL, NULL);

	if (!result)
		capture(program);
	say("compile", result);
}

static cl_program link_some(const char *with, cl_uint n, const cl_program *list)
{
	cl_int result = 1;
	cl_program program = clLinkProgram(context, 0, NULL, with, n, list,
					   NULL, NULL, &result);

	if (!result && strcmp(capture_what(), "objects") != 0)
		capture(program);
	say("link", result);
	say("  made", program != NULL);
	return program;
}

/* Two objects, the first with header programs that are gone afterwards. */
static void make_objects(cl_program out[2], const char *with)
{
	cl_program headers[2] = { make(factor), make(offset) };

	out[0] = make(scale_source);
	out[1] = make(zero_source);
	compile(out[0], with, 2, headers);
	compile(out[1], NULL, 0, NULL);
	clReleaseProgram(headers[0]);
	clReleaseProgram(headers[1]);
}

static void release(cl_program program)
{
	say("release", clReleaseProgram(program));
}

static void use(cl_program linked)
{
	cl_kernel kernel = make_kernel(linked, "scale");

	if (!kernel)
		return;
	run_scale(kernel);
	say("release kernel", clReleaseKernel(kernel));
}

/* ---- Compiled and linked ------------------------------------------------- */

/* What hashcat does. */
void separate(void)
{
	cl_program parts[2], linked;

	make_objects(parts, options);
	linked = link_some(NULL, 2, parts);
	release(parts[0]);
	release(parts[1]);
	use(linked);
	say("zero too", make_kernel(linked, "zero") != NULL);
	release(linked);
	end();
}

/* The kernel is asked, the objects are not. */
void separate_kernel(void)
{
	cl_program parts[2], linked;
	cl_kernel kernel;

	make_objects(parts, options);
	linked = link_some(NULL, 2, parts);
	kernel = make_kernel(linked, "scale");
	show_kernel(kernel, linked);
	run_scale(kernel);
	say("release kernel", clReleaseKernel(kernel));
	end();
}

/* The same with everything asked of everything. */
void separate_asked(void)
{
	cl_program parts[2], linked, of = NULL;
	cl_kernel kernel, copy, all[4] = { NULL };
	cl_int result = 1;
	cl_uint n = 0;

	make_objects(parts, options);
	clSetProgramReleaseCallback(parts[0], on_release, "object");
	show_program(parts[0]);
	show_program(parts[1]);
	say("no kernel", make_kernel(parts[0], "scale") == NULL);
	linked = link_some("", 2, parts);
	clSetProgramReleaseCallback(linked, on_release, "linked");
	show_program(linked);
	say("retain", clRetainProgram(linked));
	show_references(linked);
	release(linked);
	say("none", make_kernel(linked, "nothing") == NULL);
	kernel = make_kernel(linked, "scale");
	show_references(linked);
	show_kernel(kernel, linked);
	run_scale(kernel);
	say("kernels", clCreateKernelsInProgram(linked, 4, all, &n));
	say("  n", n);
	show_references(linked);
	show_kernel(all[1], linked);
	clReleaseKernel(all[0]);
	clReleaseKernel(all[1]);
	copy = clCloneKernel(kernel, &result);
	say("kernel's clone", result);
	if (copy) {
		show_kernel(copy, linked);
		clReleaseKernel(copy);
	}
	release(parts[1]);
	release(parts[0]);
	release(linked);
	clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(of), &of, NULL);
	say("still there", of == linked);
	show_program(linked);
	run_scale(kernel);
	say("release kernel", clReleaseKernel(kernel));
	end();
}

/* Binaries of objects and of what is linked. */
void separate_binaries(void)
{
	cl_program parts[2], linked;

	make_objects(parts, options);
	show_binaries(parts[0], 0);
	show_binaries(parts[1], 0);
	linked = link_some(NULL, 2, parts);
	show_binaries(linked, 0);
	use(linked);
	end();
}

/* The context goes first, then the parts, then the program, then the kernel. */
void separate_context_first(void)
{
	cl_program parts[2], linked;
	cl_kernel kernel;

	clSetContextDestructorCallback(context, on_context_release, "context");
	make_objects(parts, options);
	linked = link_some(NULL, 2, parts);
	clSetProgramReleaseCallback(linked, on_release, "linked");
	clSetProgramReleaseCallback(parts[0], on_release, "object");
	kernel = make_kernel(linked, "scale");
	run_scale(kernel);
	end();
	release(parts[0]);
	release(parts[1]);
	printf("no parts now\n");
	release(linked);
	printf("only the kernel now\n");
	say("release kernel", clReleaseKernel(kernel));
	printf("nothing now\n");
}

/* One object is another, the others stay. */
void relinked(void)
{
	cl_program parts[2], headers[2], linked;

	make_objects(parts, options);
	linked = link_some(NULL, 2, parts);
	use(linked);
	release(linked);
	headers[0] = make(other_factor);
	headers[1] = make(offset);
	compile(parts[0], options, 2, headers);
	linked = link_some(NULL, 2, parts);
	use(linked);
	release(linked);
	linked = link_some(NULL, 1, parts);
	use(linked);
	say("no zero", make_kernel(linked, "zero") == NULL);
	release(linked);
	end();
}

/* Whether the driver was called, by its own account. */
static int was_called(const char *what)
{
	const char *path = getenv("KILN_TEST_ICD_CALLS");
	FILE *file = path ? fopen(path, "r") : NULL;
	char line[64];
	int was = 0;

	while (file && fgets(line, sizeof(line), file))
		was |= !strncmp(line, what, strlen(what));
	if (file)
		fclose(file);
	return was;
}

static void *link_thread(void *object)
{
	return clLinkProgram(context, 0, NULL, NULL, 1, object, NULL, NULL,
			     NULL);
}

/* An object is compiled anew once the driver has been told to link it, but
   before it looks. */
void linked_meanwhile(void)
{
	cl_program headers[2] = { make(factor), make(offset) };
	cl_program object = make(scale_source), linked;
	pthread_t thread;
	void *result;

	compile(object, options, 2, headers);
	pthread_create(&thread, NULL, link_thread, &object);
	while (!was_called("link"))
		sched_yield();
	headers[0] = make(other_factor);
	compile(object, options, 2, headers);
	pthread_join(thread, &result);
	linked = result;
	capture(linked);
	use(linked);
	release(linked);
	headers[0] = make(factor);
	compile(object, options, 2, headers);
	linked = link_some(NULL, 1, &object);
	use(linked);
	release(linked);
	end();
}

/* Built, compiled and built again: only the last counts. */
void rebuilt(void)
{
	cl_program program = make(zero_source), linked;
	cl_kernel kernel;

	build(program, options);
	kernel = make_kernel(program, "zero");
	say("compile", clCompileProgram(program, 0, NULL, NULL, 0, NULL, NULL,
					NULL, NULL));
	say("wrong device", clCompileProgram(program, 1, NULL, NULL, 0, NULL,
					     NULL, NULL, NULL));
	say("release kernel", clReleaseKernel(kernel));
	compile(program, options, 0, NULL);
	say("no kernel", make_kernel(program, "zero") == NULL);
	show_program(program);
	build(program, options);
	show_program(program);
	compile(program, "--no-such-option", 0, NULL);
	show_program(program);
	compile(program, options, 0, NULL);
	linked = link_some(NULL, 1, &program);
	kernel = make_kernel(linked, "zero");
	build(linked, options);
	say("compile",
	    clCompileProgram(linked, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
	say("release kernel", clReleaseKernel(kernel));
	release(linked);
	release(program);
	end();
}

/* What is linked is built and compiled: drivers differ. */
void linked_built(void)
{
	cl_program parts[2], linked;

	make_objects(parts, options);
	linked = link_some(NULL, 2, parts);
	build(linked, options);
	show_program(linked);
	say("compile", clCompileProgram(linked, 0, NULL, options, 0, NULL, NULL,
					NULL, NULL));
	show_program(linked);
	use(linked);
	release(linked);
	end();
}

static const char counting_source[] = "__global int counter = 5;\n"
				      "__kernel void count(__global int *out)\n"
				      "{ counter += 1; out[0] = counter; }\n";

static void count(cl_kernel kernel)
{
	int out = -1;
	size_t global = 1;
	cl_mem to = clCreateBuffer(context, 0, sizeof(out), NULL, NULL);

	clSetKernelArg(kernel, 0, sizeof(to), &to);
	clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL,
			       NULL);
	clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof(out), &out, 0, NULL,
			    NULL);
	clReleaseMemObject(to);
	say("counted", out);
}

/* Kernels of what was linked share its variables, also those made after it
   could not be built. */
void linked_counting(void)
{
	cl_program part = make(counting_source), linked;
	cl_kernel first, second;

	compile(part, options, 0, NULL);
	linked = link_some(NULL, 1, &part);
	first = make_kernel(linked, "count");
	count(first);
	build(linked, options);
	second = make_kernel(linked, "count");
	count(second);
	count(first);
	show_references(linked);
	say("release kernel", clReleaseKernel(first));
	say("release kernel", clReleaseKernel(second));
	build(linked, options);
	first = make_kernel(linked, "count");
	count(first);
	say("release kernel", clReleaseKernel(first));
	release(linked);
	release(part);
	end();
}

/* ---- Libraries ----------------------------------------------------------- */

void library(void)
{
	cl_program parts[2], linked;

	make_objects(parts, options);
	linked = link_some("-create-library", 1, parts + 1);
	release(parts[1]);
	parts[1] = linked;
	linked = link_some(NULL, 2, parts);
	release(parts[0]);
	release(parts[1]);
	use(linked);
	say("zero too", make_kernel(linked, "zero") != NULL);
	release(linked);
	end();
}

void library_asked(void)
{
	cl_program parts[2], both, linked;

	make_objects(parts, options);
	both = link_some("-create-library", 2, parts);
	clSetProgramReleaseCallback(both, on_release, "library");
	show_program(both);
	say("no kernel", make_kernel(both, "scale") == NULL);
	linked = link_some(NULL, 1, &both);
	show_program(linked);
	use(linked);
	show_program(both);
	release(linked);
	release(both);
	end();
}

/* ---- What drivers refuse ------------------------------------------------- */

void link_errors(void)
{
	cl_program parts[2], headers[2] = { make(factor), NULL }, wrong;
	int ours = 0;
	cl_int code = 1;

	make_objects(parts, options);
	wrong = make(broken_source);
	compile(wrong, options, 0, NULL);
	show_program(wrong);
	compile(wrong, "--no-such-option", 0, NULL);
	show_program(wrong);
	say("no list",
	    clCompileProgram(wrong, 1, NULL, NULL, 0, NULL, NULL, NULL, NULL));
	say("data only",
	    clCompileProgram(wrong, 0, NULL, NULL, 0, NULL, NULL, NULL, &ours));
	say("no names", clCompileProgram(wrong, 0, NULL, NULL, 1, headers, NULL,
					 NULL, NULL));
	say("no headers",
	    clCompileProgram(wrong, 0, NULL, NULL, 0, NULL,
			     (const char **)header_names, NULL, NULL));
	say("no program",
	    clCompileProgram(NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
	say("nothing",
	    !clLinkProgram(context, 0, NULL, NULL, 0, NULL, NULL, NULL, &code));
	say("  code", code);
	say("no context",
	    !clLinkProgram(NULL, 0, NULL, NULL, 2, parts, NULL, NULL, &code));
	say("  code", code);
	say("no list", !clLinkProgram(context, 1, NULL, NULL, 2, parts, NULL,
				      NULL, &code));
	say("  code", code);
	say("data only", !clLinkProgram(context, 0, NULL, NULL, 2, parts, NULL,
					&ours, &code));
	say("  code", code);
	wrong = clLinkProgram(context, 0, NULL, "--no-such-option", 2, parts,
			      NULL, NULL, &code);
	say("wrong options", code);
	wrong = clLinkProgram(context, 0, NULL, NULL, 2, parts, NULL, NULL,
			      NULL);
	say("without a code", wrong != NULL);
	use(wrong);
	show_program(parts[0]);
	end();
}

/* Inputs that were not compiled: not for drivers that trust theirs. */
void link_failures(void)
{
	cl_program parts[2], linked;

	parts[0] = make(scale_source);
	parts[1] = make(zero_source);
	linked = link_some(NULL, 2, parts);
	compile(parts[1], options, 0, NULL);
	linked = link_some(NULL, 2, parts);
	say("no program", linked == NULL);
	build(parts[1], options);
	linked = link_some(NULL, 1, parts + 1);
	say("no program", linked == NULL);
	end();
}

/* ---- Notifications ------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int n_notified;
static cl_program notified_program;
static cl_build_status notified_status;

static void CL_CALLBACK on_notified(cl_program program, void *arg)
{
	cl_build_status status = CL_BUILD_NONE;

	clGetProgramBuildInfo(program, devices[0], CL_PROGRAM_BUILD_STATUS,
			      sizeof(status), &status, NULL);
	pthread_mutex_lock(&mutex);
	n_notified += *(int *)arg;
	notified_program = program;
	notified_status = status;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
}

static void await(cl_program program)
{
	cl_uint references = 2;

	pthread_mutex_lock(&mutex);
	while (!n_notified)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	/* A driver's thread may hold the program a little longer. */
	while (program && references > 1 &&
	       !clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT,
				 sizeof(references), &references, NULL))
		sched_yield();
	say("with the program", notified_program == program);
	say("status then", notified_status);
	say("notified", n_notified);
	n_notified = 0;
}

static void compile_notified(cl_program program, cl_uint n,
			     const cl_program *headers)
{
	static int one = 1;
	cl_int result = clCompileProgram(program, 0, NULL, options, n, headers,
					 n ? (const char **)header_names : NULL,
					 on_notified, &one);

	say("compile", result == CL_SUCCESS);
	await(program);
	capture(program);
}

static cl_program link_notified(cl_uint n, const cl_program *list)
{
	static int one = 1;
	cl_int result = 1;
	cl_program program = clLinkProgram(context, 0, NULL, NULL, n, list,
					   on_notified, &one, &result);

	say("link", result);
	await(program);
	if (strcmp(capture_what(), "objects") != 0)
		capture(program);
	return program;
}

void separate_notified(void)
{
	cl_program headers[2] = { make(factor), make(offset) };
	cl_program parts[2] = { make(scale_source), make(zero_source) };
	cl_program broken = make(broken_source), linked;

	compile_notified(parts[0], 2, headers);
	compile_notified(parts[1], 0, NULL);
	compile_notified(broken, 0, NULL);
	linked = link_notified(2, parts);
	use(linked);
	show_program(parts[0]);
	show_program(linked);
	release(linked);
	say("notified", n_notified);
	end();
}

/* ---- IL ------------------------------------------------------------------ */

static cl_program make_il(const char *text)
{
	static const cl_uint magic = 0x07230203u;
	unsigned char il[1024] = { 0 };
	cl_program program;
	cl_int code = 1;

	memcpy(il, &magic, sizeof(magic));
	memcpy(il + 20, text, strlen(text));
	program = clCreateProgramWithIL(context, il, 20 + strlen(text), &code);
	say("IL", code);
	return program;
}

static const char il_source[] =
	"__kernel void scale(__global int *out, __global const int *in, int "
	"d)\n"
	"{ int i = get_global_id(0); out[i] = in[i] * SPEC_1 + SPEC_2; }\n";

static void set_constant(cl_program program, cl_uint id, int value)
{
	say("constant", clSetProgramSpecializationConstant(
				program, id, sizeof(value), &value));
}

/* Built, with other constants built again. */
void il(void)
{
	cl_program program = make_il(il_source);

	set_constant(program, 1, 7);
	set_constant(program, 2, 8);
	set_constant(program, 3, 9);
	build(program, options);
	ASK(clGetProgramInfo, CL_PROGRAM_IL, program);
	show_program(program);
	use(program);
	set_constant(program, 2, 10);
	set_constant(program, 1, 11);
	show_program(program);
	use(program);
	build(program, options);
	use(program);
	release(program);
	end();
}

static const char il_free_source[] =
	"#ifndef SPEC_2\n"
	"#define SPEC_2 1\n"
	"#endif\n"
	"__kernel void scale(__global int *out, __global const int *in, int "
	"d)\n"
	"{ int i = get_global_id(0); out[i] = in[i] + SPEC_2; }\n";

/* A constant is set after the build, and then the driver is asked for what
   nobody knows. */
void il_set_later(void)
{
	cl_program program = make_il(il_free_source);

	build(program, options);
	set_constant(program, 2, 10);
	say("unknown", clGetExtensionFunctionAddressForPlatform(
			       platform, "clCountProgramKernelsKILN") != NULL);
	use(program);
	build(program, options);
	use(program);
	release(program);
	end();
}

/* A constant is set once the driver has been told to build, but before it looks:
   what comes of that is no program with the constant of before. */
void il_set_meanwhile(void)
{
	static int one = 1;
	cl_program programs[2];
	int i;

	for (i = 0; i < 2; i++) {
		programs[i] = make_il(il_source);
		set_constant(programs[i], 1, 7);
		set_constant(programs[i], 2, 8);
	}
	say("build",
	    clBuildProgram(programs[0], 0, NULL, options, on_notified, &one));
	set_constant(programs[0], 1, 11);
	await(programs[0]);
	capture(programs[0]);
	use(programs[0]);
	build(programs[1], options);
	use(programs[1]);
	release(programs[0]);
	release(programs[1]);
	end();
}

/* The same handed out by name, and compiled and linked. */
void il_linked(void)
{
	clCreateProgramWithILKHR_fn create = (clCreateProgramWithILKHR_fn)
		clGetExtensionFunctionAddressForPlatform(
			platform, "clCreateProgramWithILKHR");
	cl_program parts[2], linked;
	unsigned char bytes[1024] = { 3, 2, 0x23, 7 };
	cl_int code = 1;

	say("offered", create != NULL);
	if (!create)
		return;
	memcpy(bytes + 20, il_source, strlen(il_source));
	parts[0] = create(context, bytes, 20 + strlen(il_source), &code);
	say("IL", code);
	parts[1] = make(zero_source);
	set_constant(parts[0], 1, 7);
	set_constant(parts[0], 2, 8);
	compile(parts[0], options, 0, NULL);
	compile(parts[1], NULL, 0, NULL);
	linked = link_some(NULL, 2, parts);
	use(linked);
	release(linked);
	release(parts[0]);
	parts[0] = create(context, bytes, 3, &code);
	say("IL", code);
	say("none", parts[0] == NULL);
	end();
}

/* ---- Objects from binaries ----------------------------------------------- */

static cl_program from_binary(cl_program program)
{
	size_t sizes[DEVICES_MAX] = { 0 };
	unsigned char *binaries[DEVICES_MAX] = { NULL };
	cl_int code = 1;
	cl_program made;
	cl_uint i;

	clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
			 n_devices * sizeof(sizes[0]), sizes, NULL);
	for (i = 0; i < n_devices; i++)
		binaries[i] = calloc(1, sizes[i] + 1);
	clGetProgramInfo(program, CL_PROGRAM_BINARIES,
			 n_devices * sizeof(binaries[0]), binaries, NULL);
	made = clCreateProgramWithBinary(context, n_devices, devices, sizes,
					 (const unsigned char **)binaries, NULL,
					 &code);
	say("binary", code);
	for (i = 0; i < n_devices; i++)
		free(binaries[i]);
	return made;
}

/* The first object's binary for one device, the second's for the other. */
static cl_program from_two(cl_program const parts[2], int is_turned)
{
	unsigned char *binaries[DEVICES_MAX];
	const unsigned char *given[2];
	size_t sizes[DEVICES_MAX], given_sizes[2];
	cl_device_id turned[2] = { devices[is_turned], devices[!is_turned] };
	cl_program made;
	cl_int code = 1;
	cl_uint i, j;

	for (i = 0; i < 2; i++) {
		clGetProgramInfo(parts[i], CL_PROGRAM_BINARY_SIZES,
				 sizeof(sizes), sizes, NULL);
		for (j = 0; j < n_devices; j++)
			binaries[j] = calloc(1, sizes[j] + 1);
		clGetProgramInfo(parts[i], CL_PROGRAM_BINARIES,
				 sizeof(binaries), binaries, NULL);
		given_sizes[i] = sizes[0];
		given[i] = binaries[0];
		for (j = 1; j < n_devices; j++)
			free(binaries[j]);
	}
	made = clCreateProgramWithBinary(context, 2, turned, given_sizes, given,
					 NULL, &code);
	say("binary", code);
	free((void *)(uintptr_t)given[0]);
	free((void *)(uintptr_t)given[1]);
	return made;
}

/* The same binaries, for the devices in either order. */
void objects_turned(void)
{
	cl_program parts[2], headers[2], made, linked;
	int i;

	for (i = 0; i < 2; i++) {
		headers[0] = make(i ? other_factor : factor);
		headers[1] = make(offset);
		parts[i] = make(scale_source);
		compile(parts[i], options, 2, headers);
	}
	for (i = 0; i < 2; i++) {
		made = from_two(parts, i);
		linked = link_some(NULL, 1, &made);
		use(linked);
		show_binaries(linked, 0);
		release(linked);
		release(made);
	}
	end();
}

void objects(void)
{
	cl_program parts[2], made[2], linked;

	make_objects(parts, options);
	made[0] = from_binary(parts[0]);
	made[1] = from_binary(parts[1]);
	show_references(made[0]);
	linked = link_some(NULL, 2, made);
	use(linked);
	release(linked);
	parts[1] = made[1];
	linked = link_some(NULL, 2, parts);
	use(linked);
	release(linked);
	linked = link_some("-create-library", 2, made);
	parts[0] = from_binary(linked);
	release(linked);
	linked = link_some(NULL, 1, parts);
	use(linked);
	release(linked);
	end();
}

/* ---- What is included ---------------------------------------------------- */

static cl_program make_including(void)
{
	return make("#include \"k.h\"\n"
		    "__kernel void one(__global int *out)\n"
		    "{ out[get_global_id(0)] = K; }\n");
}

/* The options are the folder of what is included. */
void linked_including(void)
{
	cl_program program = make_including(), linked;

	compile(program, options, 0, NULL);
	linked = link_some(NULL, 1, &program);
	show_binaries(linked, 0);
	end();
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	say("written", file && fputs(text, file) >= 0 && !fclose(file));
}

/* The same, while somebody writes something else there, and thinks better of
   it, between compiling and linking. */
void linked_in_doubt(void)
{
	cl_program program = make_including(), linked;
	char path[4096];

	snprintf(path, sizeof(path), "%s/k.h", options + strlen("-I"));
	compile(program, options, 0, NULL);
	write_file(path, "#define K 5\n");
	write_file(path, "#define K 4\n");
	linked = link_some(NULL, 1, &program);
	show_binaries(linked, 0);
	end();
}

/* Another file by the time that, for an extension that nobody knows, the driver
   has to have all that was built. */
void header_changed(void)
{
	static const char text[] =
		"#include \"k.h\"\n"
		"__kernel void scale(__global int *out, __global const int *in,"
		" int d)\n"
		"{ int i = get_global_id(0); out[i] = in[i] * K + d; }\n";
	cl_program built = make(text), object = make(text), linked;
	char path[4096];

	snprintf(path, sizeof(path), "%s/k.h", options + strlen("-I"));
	write_file(path, "#define K 4\n");
	build(built, options);
	compile(object, options, 0, NULL);
	write_file(path, "#define K 5\n");
	say("extension",
	    clGetExtensionFunctionAddressForPlatform(
		    platform, "clCountProgramKernelsKILN") != NULL);
	use(built);
	linked = link_some(NULL, 1, &object);
	use(linked);
	release(linked);
	release(object);
	release(built);
	end();
}

/* ---- Others -------------------------------------------------------------- */

/* The compiler may go between any two calls. */
void unloaded(void)
{
	cl_program parts[2], linked;

	say("unload", clUnloadPlatformCompiler(platform));
	make_objects(parts, options);
	say("unload", clUnloadPlatformCompiler(platform));
	linked = link_some(NULL, 2, parts);
	say("unload", clUnloadPlatformCompiler(platform));
	use(linked);
	say("unload", clUnloadPlatformCompiler(NULL));
	end();
}

/* A kernel and its clone have arguments of their own. */
void cloned(void)
{
	cl_program program = make(source);
	cl_kernel kernel, copy;
	cl_int code = 1;

	build(program, options);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	copy = clCloneKernel(kernel, &code);
	say("clone", code);
	show_references(program);
	if (copy) {
		show_kernel(copy, program);
		run_scale(copy);
		say("release kernel", clReleaseKernel(kernel));
		build(program, options);
		show_kernel(copy, program);
		say("release kernel", clReleaseKernel(copy));
	}
	build(program, options);
	say("clone", clCloneKernel(NULL, &code) == NULL);
	say("  code", code);
	release(program);
	end();
}
