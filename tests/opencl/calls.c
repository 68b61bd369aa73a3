/* SPDX-License-Identifier: MIT */

/*
 * A program that nobody changed: it makes OpenCL calls by a script from below
 * and prints what each answers.  Run natively, cold and warm, it must print
 * the same.
 *
 *	calls SCRIPT [OPTIONS [SEED]]
 *
 * Handles and addresses are never printed, only whether they are the expected
 * ones; of binaries only that there are some, unless by the script `binaries`.
 */

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opencl/calls.h"

cl_platform_id platform;
cl_device_id devices[DEVICES_MAX];
cl_uint n_devices;
cl_context context;
cl_command_queue queue;
const char *options;
static unsigned first_seed = 1; /* of whatever() */

const char source[] =
	"#ifndef K\n"
	"#define K 3\n"
	"#endif\n"
	"__attribute__((reqd_work_group_size(4, 1, 1))) __kernel\n"
	"void scale(__global int *out, __global const int *in, int d)\n"
	"{ int i = get_global_id(0); out[i] = in[i] * K + d; }\n"
	"__kernel void zero(__global int *out)\n"
	"{ out[get_global_id(0)] = 0; }\n";

static const char other_source[] = "__kernel void one(__global int *out)\n"
				   "{ out[get_global_id(0)] = 1; }\n";

static const char broken_source[] = "__kernel void broken(__global int *out)\n"
				    "{ out[get_global_id(0)] = nowhere; }\n";

void say(const char *what, long long value)
{
	printf("%s: %lld\n", what, value);
}

void say_bytes(const char *what, cl_int result, const void *data, size_t size,
	       size_t told)
{
	const unsigned char *bytes = data;
	size_t i;

	printf("%s: %d, %zu bytes:", what, result, told);
	for (i = 0; !result && i < size && i < told; i++)
		if (bytes[i] >= 32 && bytes[i] < 127)
			putchar(bytes[i]);
		else
			printf("\\%02x", bytes[i]);
	putchar('\n');
}

/* ---- Asking everything --------------------------------------------------------- */

void show_binaries(cl_program program, int with_sizes)
{
	size_t sizes[DEVICES_MAX] = { 0 }, told = 0;
	unsigned char *binaries[DEVICES_MAX] = { NULL };
	cl_uint i;

	say("BINARY_SIZES", clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
					     sizeof(sizes), sizes, &told));
	say("  told", (long long)told);
	for (i = 0; i < n_devices; i++) {
		if (with_sizes)
			say("  size", (long long)sizes[i]);
		else
			say("  some", sizes[i] > 0);
		binaries[i] = calloc(1, sizes[i] + 1);
	}
	say("BINARIES",
	    clGetProgramInfo(program, CL_PROGRAM_BINARIES,
			     n_devices * sizeof(binaries[0]), binaries, &told));
	say("  told", (long long)told);
	told = 7777;
	say("  too small",
	    clGetProgramInfo(program, CL_PROGRAM_BINARIES, 1, binaries, &told));
	say("  told", (long long)told);
	told = 7777;
	say("BINARY_SIZES, too small",
	    clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, 1, sizes,
			     &told));
	say("  told", (long long)told);
	for (i = 0; i < n_devices; i++)
		free(binaries[i]);
}

void show_references(cl_program program)
{
	cl_uint n = 0;

	say("program references",
	    clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof(n), &n,
			     NULL)
		    ? -1
		    : (long long)n);
	n = 0;
	say("context references",
	    clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(n), &n,
			     NULL)
		    ? -1
		    : (long long)n);
}

void show_program(cl_program program)
{
	cl_device_id list[DEVICES_MAX] = { NULL };
	cl_context of = NULL;
	cl_uint i;

	show_references(program);
	say("CONTEXT", clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof(of),
					&of, NULL));
	say("  is ours", of == context);
	ASK(clGetProgramInfo, CL_PROGRAM_NUM_DEVICES, program);
	say("DEVICES", clGetProgramInfo(program, CL_PROGRAM_DEVICES,
					sizeof(list), list, NULL));
	say("  are ours", !memcmp(list, devices, n_devices * sizeof(*list)));
	ASK(clGetProgramInfo, CL_PROGRAM_SOURCE, program);
	ASK(clGetProgramInfo, CL_PROGRAM_NUM_KERNELS, program);
	ASK(clGetProgramInfo, CL_PROGRAM_KERNEL_NAMES, program);
	ASK(clGetProgramInfo, 0x4242, program);
	for (i = 0; i < n_devices; i++) {
		ASK(clGetProgramBuildInfo, CL_PROGRAM_BUILD_STATUS, program,
		    devices[i]);
		ASK(clGetProgramBuildInfo, CL_PROGRAM_BUILD_OPTIONS, program,
		    devices[i]);
		ASK(clGetProgramBuildInfo, CL_PROGRAM_BUILD_LOG, program,
		    devices[i]);
		ASK(clGetProgramBuildInfo, CL_PROGRAM_BINARY_TYPE, program,
		    devices[i]);
		ASK(clGetProgramBuildInfo,
		    CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, program,
		    devices[i]);
	}
	ASK(clGetProgramBuildInfo, CL_PROGRAM_BUILD_STATUS, program, NULL);
}

void show_kernel(cl_kernel kernel, cl_program program)
{
	cl_program of = NULL;
	cl_uint arg, i;

	ASK(clGetKernelInfo, CL_KERNEL_FUNCTION_NAME, kernel);
	ASK(clGetKernelInfo, CL_KERNEL_NUM_ARGS, kernel);
	ASK(clGetKernelInfo, CL_KERNEL_REFERENCE_COUNT, kernel);
	ASK(clGetKernelInfo, CL_KERNEL_ATTRIBUTES, kernel);
	say("KERNEL_PROGRAM",
	    clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(of), &of, NULL));
	say("  is ours", of == program);
	say("  too small",
	    clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, 1, &of, NULL));
	for (i = 0; i < n_devices; i++)
		ASK(clGetKernelWorkGroupInfo, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
		    kernel, devices[i]);
	ASK(clGetKernelWorkGroupInfo, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, kernel,
	    NULL);
	for (arg = 0; arg < 4; arg++) {
		ASK(clGetKernelArgInfo, CL_KERNEL_ARG_ADDRESS_QUALIFIER, kernel,
		    arg);
		ASK(clGetKernelArgInfo, CL_KERNEL_ARG_ACCESS_QUALIFIER, kernel,
		    arg);
		ASK(clGetKernelArgInfo, CL_KERNEL_ARG_TYPE_NAME, kernel, arg);
		ASK(clGetKernelArgInfo, CL_KERNEL_ARG_TYPE_QUALIFIER, kernel,
		    arg);
		ASK(clGetKernelArgInfo, CL_KERNEL_ARG_NAME, kernel, arg);
		ASK(clGetKernelArgInfo, 0x4242, kernel, arg);
	}
}

/* ---- Doing ----------------------------------------------------------------------- */

cl_program make(const char *text)
{
	cl_int result = 1;
	cl_program program =
		clCreateProgramWithSource(context, 1, &text, NULL, &result);

	say("create", result);
	return program;
}

cl_kernel make_kernel(cl_program program, const char *name)
{
	cl_int result = 1;
	cl_kernel kernel = clCreateKernel(program, name, &result);

	printf("kernel %s: %d\n", name, result);
	return kernel;
}

/* The binaries of a build, for whoever watches; nothing of it is said. */
static void fetch(cl_program program)
{
	size_t sizes[DEVICES_MAX] = { 0 };
	unsigned char *binaries[DEVICES_MAX] = { NULL };
	cl_uint i;

	clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(sizes), sizes,
			 NULL);
	for (i = 0; i < DEVICES_MAX; i++)
		binaries[i] = calloc(1, sizes[i] + 1);
	clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binaries),
			 binaries, NULL);
	for (i = 0; i < DEVICES_MAX; i++)
		free(binaries[i]);
}

int wants_capture(void)
{
	const char *value = getenv("KILN_TEST_CAPTURE");

	return value && *value;
}

cl_int build_for(cl_program program, cl_uint n, const cl_device_id *list,
		 const char *with)
{
	cl_int result = clBuildProgram(program, n, list, with, NULL, NULL);

	if (!result && wants_capture())
		fetch(program);
	say("build", result);
	return result;
}

void build(cl_program program, const char *with)
{
	(void)build_for(program, 0, NULL, with);
}

cl_uint context_references(void)
{
	cl_uint n = 0;

	clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(n), &n,
			 NULL);
	return n;
}

void settle(cl_uint references)
{
	int i;

	for (i = 0; i < 60000 && context_references() > references; i++)
		poll(NULL, 0, 1);
}

void run_scale(cl_kernel kernel)
{
	cl_uint before = context_references();
	int in[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out[8] = { 0 }, d = 4, i;
	size_t global = 8, local = 4;
	cl_mem from = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(in),
				     in, NULL);
	cl_mem to = clCreateBuffer(context, 0, sizeof(out), NULL, NULL);

	clSetKernelArg(kernel, 0, sizeof(to), &to);
	clSetKernelArg(kernel, 1, sizeof(from), &from);
	clSetKernelArg(kernel, 2, sizeof(d), &d);
	say("launch", clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global,
					     &local, 0, NULL, NULL));
	say("read", clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof(out), out,
					0, NULL, NULL));
	for (i = 0; i < 8; i++)
		say("out", out[i]);
	clReleaseMemObject(from);
	clReleaseMemObject(to);
	settle(before);
}

void CL_CALLBACK on_release(cl_program program, void *arg)
{
	printf("gone: %s\n", (const char *)arg);
}

void CL_CALLBACK on_context_release(cl_context of, void *arg)
{
	printf("context gone: %s\n", (const char *)arg);
}

/* What a guest must leave alone: open files, signals, threads' masks. */
static void show_process(void)
{
	struct sigaction action;
	sigset_t mask;
	int i, n_files = 0, n_handlers = 0, n_blocked = 0;

	for (i = 0; i < 256; i++)
		n_files += fcntl(i, F_GETFD) >= 0;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (i = 1; i < 32; i++) {
		sigaction(i, NULL, &action);
		n_handlers += action.sa_handler != SIG_DFL;
		n_blocked += sigismember(&mask, i) == 1;
	}
	say("files", n_files);
	say("handlers", n_handlers);
	say("blocked", n_blocked);
}

void end(void)
{
	cl_uint before = context_references();

	show_process();
	clReleaseCommandQueue(queue);
	settle(before - 1);
	say("release context", clReleaseContext(context));
}

/* ---- Scripts ------------------------------------------------------------------------ */

/* Everything about one program, from its making to its end. */
static void everything(void)
{
	cl_program program = make(source), of = NULL;
	cl_kernel kernel, again[4] = { NULL };
	cl_uint n = 0;

	clSetProgramReleaseCallback(program, on_release, "program");
	show_program(program);
	build(program, options);
	show_program(program);
	say("unknown", make_kernel(program, "nothing") == NULL);
	kernel = make_kernel(program, "scale");
	show_references(program);
	show_kernel(kernel, program);
	run_scale(kernel);
	build(program, options);
	say("compile", clCompileProgram(program, 0, NULL, NULL, 0, NULL, NULL,
					NULL, NULL));
	show_program(program);
	say("kernels", clCreateKernelsInProgram(program, 4, again, &n));
	say("  n", n);
	say("  too few", clCreateKernelsInProgram(program, 1, again + 3, NULL));
	show_references(program);
	show_kernel(again[1], program);
	say("release kernel", clReleaseKernel(again[0]));
	say("release kernel", clReleaseKernel(again[1]));
	say("retain kernel", clRetainKernel(kernel));
	say("release kernel", clReleaseKernel(kernel));
	show_references(program);
	say("retain", clRetainProgram(program));
	show_references(program);
	say("release", clReleaseProgram(program));
	say("release", clReleaseProgram(program));
	clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(of), &of, NULL);
	say("still there", of == program);
	show_program(program);
	run_scale(kernel);
	say("release kernel", clReleaseKernel(kernel));
	end();
}

/* Built again with other options, kernels gone, and failing in between. */
static void again(void)
{
	cl_program program = make(source);
	cl_kernel kernel;

	build(program, options);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	clReleaseKernel(kernel);
	build(program, "-DK=7");
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	clReleaseKernel(kernel);
	build(program, "-DK=nowhere");
	show_program(program);
	say("none", make_kernel(program, "scale") == NULL);
	build(program, "--no-such-option");
	show_program(program);
	build(program, options);
	show_program(program);
	say("compile", clCompileProgram(program, 0, NULL, NULL, 0, NULL, NULL,
					NULL, NULL));
	show_program(program);
	build(program, options);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	clReleaseKernel(kernel);
	say("release", clReleaseProgram(program));
	end();
}

static void CL_CALLBACK on_context_error(const char *words, const void *data,
					 size_t size, void *arg)
{
}

/* Calls that any driver refuses. */
static void errors(void)
{
	cl_program program = make(source), broken = make(broken_source);
	int ours = 0;

	build(program, options);
	say("no list", clBuildProgram(program, 1, NULL, NULL, NULL, NULL));
	say("no count", clBuildProgram(program, 0, devices, NULL, NULL, NULL));
	say("data only", clBuildProgram(program, 0, NULL, NULL, NULL, &ours));
	say("no program", clBuildProgram(NULL, 0, NULL, NULL, NULL, NULL));
	say("still built", make_kernel(program, "zero") != NULL);
	show_program(program);
	build(broken, options);
	show_program(broken);
	say("none", make_kernel(broken, "broken") == NULL);
	say("release", clReleaseProgram(broken));
	say("release", clReleaseProgram(NULL));
	say("retain", clRetainProgram(NULL));
	say("release", clReleaseKernel(NULL));
	say("info",
	    clGetProgramInfo(NULL, CL_PROGRAM_NUM_DEVICES, 0, NULL, NULL));
}

/* All that is wrong with a compilation, and it has kernels. */
static void in_use(void)
{
	static const char *const names[] = { "h.h" };
	cl_program program = make(source), header = make(other_source), none;
	cl_kernel kernel;
	int ours = 0;

	none = clCreateProgramWithBuiltInKernels(context, 1, devices,
						 "kiln_fill", NULL);
	build(program, options);
	kernel = make_kernel(program, "scale");
	say("plainly", clCompileProgram(program, 0, NULL, options, 0, NULL,
					NULL, NULL, NULL));
	say("with a header",
	    clCompileProgram(program, 0, NULL, NULL, 1, &header,
			     (const char **)names, NULL, NULL));
	say("of no source", clCompileProgram(program, 0, NULL, NULL, 1, &none,
					     (const char **)names, NULL, NULL));
	say("no names", clCompileProgram(program, 0, NULL, NULL, 1, &header,
					 NULL, NULL, NULL));
	say("wrong options", clCompileProgram(program, 0, NULL, "--wrong", 0,
					      NULL, NULL, NULL, NULL));
	say("data only", clCompileProgram(program, 0, NULL, NULL, 0, NULL, NULL,
					  NULL, &ours));
	show_program(program);
	run_scale(kernel);
	say("release kernel", clReleaseKernel(kernel));
	say("compile", clCompileProgram(program, 0, NULL, options, 0, NULL,
					NULL, NULL, NULL));
	show_program(program);
}

static pthread_mutex_t notified_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t notified_cond = PTHREAD_COND_INITIALIZER;
static int n_notified;
static cl_program notified_program;
static cl_build_status notified_status;

static void CL_CALLBACK on_built(cl_program program, void *arg)
{
	pthread_mutex_lock(&notified_mutex);
	n_notified += *(int *)arg;
	notified_program = program;
	clGetProgramBuildInfo(program, devices[0], CL_PROGRAM_BUILD_STATUS,
			      sizeof(notified_status), &notified_status, NULL);
	pthread_cond_signal(&notified_cond);
	pthread_mutex_unlock(&notified_mutex);
}

static void build_notified(const char *text)
{
	cl_program program = make(text);
	cl_uint references = 0;
	int one = 1;
	cl_kernel kernel;

	n_notified = 0;
	say("build", clBuildProgram(program, 0, NULL, options, on_built,
				    &one) == CL_SUCCESS);
	pthread_mutex_lock(&notified_mutex);
	while (!n_notified)
		pthread_cond_wait(&notified_cond, &notified_mutex);
	pthread_mutex_unlock(&notified_mutex);
	/* A driver's thread may hold the program a little longer. */
	while (!clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT,
				 sizeof(references), &references, NULL) &&
	       references > 1)
		sched_yield();
	say("with the program", notified_program == program);
	say("status then", notified_status);
	show_program(program);
	kernel = make_kernel(program, "scale");
	if (kernel) {
		run_scale(kernel);
		clReleaseKernel(kernel);
	}
	say("release", clReleaseProgram(program));
	say("notified", n_notified);
}

/* Callbacks of builds: once, and late enough. */
static void notify(void)
{
	build_notified(source);
	end();
}

/* Only the first of the kernels that are made together is asked anything. */
static void made_together(void)
{
	cl_program program = make(source);
	cl_kernel kernels[4] = { NULL };
	cl_uint n = 0, i;

	build(program, options);
	say("kernels", clCreateKernelsInProgram(program, 4, kernels, &n));
	say("  n", n);
	show_kernel(kernels[0], program);
	for (i = 0; i < n; i++)
		say("release kernel", clReleaseKernel(kernels[i]));
	say("release", clReleaseProgram(program));
	end();
}

/* The context goes first, then the program, then the kernel. */
static void context_first(void)
{
	cl_program program = make(source);
	cl_kernel kernel;

	clSetContextDestructorCallback(context, on_context_release, "context");
	clSetProgramReleaseCallback(program, on_release, "program");
	build(program, options);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	end();
	show_program(program);
	say("release", clReleaseProgram(program));
	printf("only the kernel now\n");
	say("release kernel", clReleaseKernel(kernel));
	printf("nothing now\n");
}

/* Several devices: all, then one, then the other way round. */
static void subsets(void)
{
	cl_device_id turned[2] = { devices[1], devices[0] };
	cl_program program = make(source);

	build(program, options);
	show_program(program);
	say("turned", clBuildProgram(program, 2, turned, options, NULL, NULL));
	show_program(program);
	say("one",
	    clBuildProgram(program, 1, devices + 1, "-DK=5", NULL, NULL));
	show_program(program);
	show_binaries(program, 0);
	say("release", clReleaseProgram(program));
	end();
}

/* A program that is built is linked all the same. */
static void linked(void)
{
	cl_program program = make(source), more = make(other_source), both[2];
	cl_program result;
	cl_int code = 1;

	build(program, options);
	say("compile",
	    clCompileProgram(more, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
	both[0] = program;
	both[1] = more;
	result = clLinkProgram(context, 0, NULL, NULL, 2, both, NULL, NULL,
			       &code);
	say("link", code);
	show_program(program);
	if (result)
		clReleaseProgram(result);
	say("compile", clCompileProgram(program, 0, NULL, options, 0, NULL,
					NULL, NULL, NULL));
	show_program(program);
	both[0] = program;
	result = clLinkProgram(context, 0, NULL, NULL, 2, both, NULL, NULL,
			       &code);
	say("link", code);
	if (result) {
		show_program(result);
		run_scale(make_kernel(result, "scale"));
	}
}

typedef cl_int count_kernels_fn(cl_program program, cl_uint *out_count);

/* A function that the layer cannot know is given a program. */
static void extension(void)
{
	cl_program program = make(source), later;
	count_kernels_fn *count;
	cl_kernel kernel;
	cl_uint n = 0;

	build(program, options);
	say("safe", clGetExtensionFunctionAddressForPlatform(
			    platform, "clGetPlatformInfo") != NULL);
	say("none", clGetExtensionFunctionAddressForPlatform(
			    platform, "clNoSuchFunctionKILN") == NULL);
	count = (count_kernels_fn *)clGetExtensionFunctionAddressForPlatform(
		platform, "clCountProgramKernelsKILN");
	say("unknown", count != NULL);
	if (count)
		say("  counts", count(program, &n) ? -1 : (int)n);
	show_program(program);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	later = make(source);
	build(later, options);
	if (count)
		say("  counts", count(later, &n) ? -1 : (int)n);
}

/* A child goes on with what there is. */
static void forked(void)
{
	cl_program program = make(source), later;
	cl_kernel kernel;
	pid_t child;
	int status;

	build(program, options);
	kernel = make_kernel(program, "scale");
	fflush(stdout);
	child = fork();
	if (!child) {
		run_scale(kernel);
		run_scale(make_kernel(program, "scale"));
		show_program(program);
		later = make(source);
		build(later, options);
		run_scale(make_kernel(later, "scale"));
		fflush(stdout);
		_exit(0);
	}
	say("child", waitpid(child, &status, 0) == child && !status);
	run_scale(kernel);
	clReleaseKernel(kernel);
	say("release", clReleaseProgram(program));
	end();
}

/* Many threads, each with programs of its own and one that is everybody's. */
static cl_program shared_program;

static void *one_thread(void *arg)
{
	const char *text = source;
	int i, d = 1;

	for (i = 0; i < 20; i++) {
		cl_program program = clCreateProgramWithSource(
			context, 1, &text, NULL, NULL);
		cl_kernel kernel, shared;

		if (clBuildProgram(program, 0, NULL, options, NULL, NULL))
			return "build";
		kernel = clCreateKernel(program, "scale", NULL);
		shared = clCreateKernel(shared_program, "scale", NULL);
		if (!kernel || !shared)
			return "kernel";
		clRetainProgram(shared_program);
		clReleaseProgram(program);
		if (clSetKernelArg(kernel, 2, sizeof(d), &d) ||
		    clSetKernelArg(shared, 2, sizeof(d), &d))
			return "argument";
		clReleaseKernel(shared);
		clReleaseProgram(shared_program);
		clReleaseKernel(kernel);
	}
	return "well";
}

static void threads(void)
{
	pthread_t ids[4];
	void *result;
	int i;

	shared_program = make(source);
	build(shared_program, options);
	for (i = 0; i < 4; i++)
		pthread_create(&ids[i], NULL, one_thread, NULL);
	for (i = 0; i < 4; i++) {
		pthread_join(ids[i], &result);
		printf("thread: %s\n", (const char *)result);
	}
	show_references(shared_program);
	say("release", clReleaseProgram(shared_program));
	end();
}

/* What an application with a cache of its own does: this captures. */
static void binaries(void)
{
	cl_program program = make(source);

	build(program, options);
	show_binaries(program, 0);
	say("release", clReleaseProgram(program));
	program = make(source);
	build(program, "-DK=7");
	show_binaries(program, 0);
	say("release", clReleaseProgram(program));
	end();
}

/* The driver refuses a build between the first one and the fetch. */
static void refused_then_fetched(void)
{
	cl_program program = make(source);
	cl_kernel kernel;

	build(program, options);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	say("again", clBuildProgram(program, 0, NULL, "-DK=8", NULL, NULL));
	show_binaries(program, 0);
	say("release kernel", clReleaseKernel(kernel));
	say("release", clReleaseProgram(program));
	end();
}

/* Whether the stand-in has had a call. */
static int was_called(const char *what)
{
	const char *path = getenv("KILN_TEST_ICD_CALLS");
	FILE *file = path ? fopen(path, "r") : NULL;
	char line[256];
	int found = 0;

	while (file && !found && fgets(line, sizeof(line), file))
		found = !strcmp(line, what);
	if (file)
		fclose(file);
	return found;
}

#define LOOKS_MAX 1000 /* 20 a second; who fetches waits two seconds first */

/* One build and one kernel, then nothing until somebody fetches. */
static void idle(void)
{
	cl_program program = make(source);
	cl_kernel kernel;
	int i;

	build(program, options);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
	for (i = 0; i < LOOKS_MAX && !was_called("binaries\n"); i++)
		poll(NULL, 0, 50);
	clReleaseKernel(kernel);
	say("release", clReleaseProgram(program));
	end();
}

static void on_alarm(int number)
{
}

/* Calls are interrupted all the time. */
static void alarms(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval often = { { 0, 500 }, { 0, 500 } };
	struct itimerval never = { { 0, 0 }, { 0, 0 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	again();
	setitimer(ITIMER_REAL, &never, NULL);
}

/* Two builds at once, then nothing until somebody fetches and half a second
   more. */
static void idle_twice(void)
{
	cl_program one = make(source), two = make(source);
	int i, n_left = 10;

	build(one, options);
	build(two, "-DK=8");
	for (i = 0; i < LOOKS_MAX && n_left; i++) {
		n_left -= was_called("binaries\n");
		poll(NULL, 0, 50);
	}
}

/* It ends while somebody fetches. */
static void hurried(void)
{
	cl_program program = make(source);
	int i;

	build(program, options);
	for (i = 0; i < LOOKS_MAX && !was_called("fetch\n"); i++)
		poll(NULL, 0, 50);
}

static void await_call(const char *what)
{
	int i;

	for (i = 0; i < LOOKS_MAX && !was_called(what); i++)
		poll(NULL, 0, 50);
}

/* It is built otherwise while somebody fetches, who has half a second to come
   to an end. */
static void overtaken(void)
{
	cl_program program = make(source);

	build(program, options);
	await_call("fetch\n");
	build(program, "-DK=9");
	await_call("binaries\n");
	poll(NULL, 0, 500);
}

static void *fetch_binaries(void *arg)
{
	show_binaries(arg, 0);
	return NULL;
}

/* The same while another of its threads fetches. */
static void overtaken_in_a_thread(void)
{
	cl_program program = make(source);
	pthread_t thread;

	build(program, options);
	pthread_create(&thread, NULL, fetch_binaries, program);
	await_call("binaries\n");
	build(program, "-DK=9");
	pthread_join(thread, NULL);
}

static cl_program make_including(void)
{
	return make("#include \"k.h\"\n"
		    "__kernel void one(__global int *out)\n"
		    "{ out[get_global_id(0)] = K; }\n");
}

/* The options are the folder of what is included. */
static void included(void)
{
	cl_program program = make_including();

	build(program, options);
	show_binaries(program, 0);
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	say("written", file && fputs(text, file) >= 0 && !fclose(file));
}

/* The same, while somebody writes something else there and thinks better of
   it. */
static void included_in_doubt(void)
{
	cl_program program = make_including();
	char path[4096];

	snprintf(path, sizeof(path), "%s/k.h", options + strlen("-I"));
	build(program, options);
	write_file(path, "#define K 5\n");
	write_file(path, "#define K 4\n");
	show_binaries(program, 0);
}

/* The same, but the program ends at once. */
static void brief(void)
{
	cl_program program = make(source);
	cl_kernel kernel;

	build(program, options);
	kernel = make_kernel(program, "scale");
	run_scale(kernel);
}

/* Programs that are not made from source. */
static void natives(void)
{
	static const char text[] = "....................\n"
				   "__kernel void il(__global int *out)\n"
				   "{ out[get_global_id(0)] = SPEC_1; }\n";
	static const cl_uint magic = 0x07230203u;
	unsigned char il[sizeof(text) - 1], *binary;
	const unsigned char *bytes;
	cl_program program = make(source), made;
	cl_int code = 1, value = 7;
	size_t size = 0;

	memcpy(il, text, sizeof(il));
	memcpy(il, &magic, sizeof(magic));
	made = clCreateProgramWithIL(context, il, sizeof(il), &code);
	say("IL", code);
	say("constant",
	    clSetProgramSpecializationConstant(made, 1, sizeof(value), &value));
	build(made, options);
	show_program(made);
	show_kernel(make_kernel(made, "il"), made);

	build(program, options);
	clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size,
			 NULL);
	bytes = binary = calloc(1, size);
	clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary,
			 NULL);
	say("constant", clSetProgramSpecializationConstant(
				program, 1, sizeof(value), &value));
	made = clCreateProgramWithBinary(context, 1, devices, &size, &bytes,
					 NULL, &code);
	say("binary", code);
	build(made, options);
	show_program(made);
	run_scale(make_kernel(made, "scale"));
	made = clCreateProgramWithBuiltInKernels(context, 1, devices,
						 "kiln_fill", &code);
	say("built in", code);
	show_kernel(make_kernel(made, "kiln_fill"), made);
	free(binary);
}

/* ---- Whatever comes ------------------------------------------------------- */

#define PROGRAMS_MAX 3
#define KERNELS_MAX  5

static struct {
	cl_program handle;
	int n_refs;
} some_programs[PROGRAMS_MAX];
static struct {
	cl_kernel handle;
	cl_program program;
	int n_refs;
} some_kernels[KERNELS_MAX];
static uint64_t dice;

static unsigned roll(unsigned n)
{
	dice = dice * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(dice >> 33) % n;
}

static void show_some(cl_program program)
{
	cl_program_build_info what[] = { CL_PROGRAM_BUILD_STATUS,
					 CL_PROGRAM_BUILD_OPTIONS,
					 CL_PROGRAM_BUILD_LOG,
					 CL_PROGRAM_BINARY_TYPE };

	show_references(program);
	ASK(clGetProgramInfo, CL_PROGRAM_NUM_KERNELS, program);
	ASK(clGetProgramBuildInfo, what[roll(4)], program, devices[0]);
}

static void act_on_program(unsigned i)
{
	static const char *const all[] = { "-DK=7", "-DK=nowhere", "-DK=9",
					   "--wrong" };
	cl_program program = some_programs[i].handle;

	if (!some_programs[i].n_refs) {
		some_programs[i].handle = make(roll(4) ? source : other_source);
		some_programs[i].n_refs = 1;
		return;
	}
	switch (roll(8)) {
	case 0:
		say("retain", clRetainProgram(program));
		some_programs[i].n_refs++;
		break;
	case 1:
		say("release", clReleaseProgram(program));
		some_programs[i].n_refs--;
		break;
	case 2:
		say("compile", clCompileProgram(program, 0, NULL, options, 0,
						NULL, NULL, NULL, NULL));
		break;
	case 3:
		build(program, all[roll(4)]);
		break;
	case 4:
		show_some(program);
		break;
	default:
		build(program, options);
		break;
	}
}

static void act_on_kernel(unsigned i)
{
	cl_kernel kernel = some_kernels[i].handle;
	unsigned j = roll(PROGRAMS_MAX);
	cl_program of = NULL;

	if (!some_kernels[i].n_refs) {
		if (!some_programs[j].n_refs)
			return;
		kernel = make_kernel(some_programs[j].handle,
				     roll(3) ? "scale" : "zero");
		some_kernels[i].handle = kernel;
		some_kernels[i].program = some_programs[j].handle;
		some_kernels[i].n_refs = kernel != NULL;
		return;
	}
	switch (roll(5)) {
	case 0:
		say("retain kernel", clRetainKernel(kernel));
		some_kernels[i].n_refs++;
		break;
	case 1:
	case 2:
		say("release kernel", clReleaseKernel(kernel));
		some_kernels[i].n_refs--;
		break;
	case 3:
		clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(of), &of,
				NULL);
		say("of its program", of == some_kernels[i].program);
		show_some(of);
		break;
	default:
		ASK(clGetKernelInfo, CL_KERNEL_ATTRIBUTES, kernel);
		ASK(clGetKernelArgInfo, CL_KERNEL_ARG_NAME, kernel, 0);
		break;
	}
}

/* Thirty lives of a few programs and kernels, by dice. */
static void whatever(void)
{
	unsigned seed, i;

	for (seed = first_seed; seed < first_seed + 30; seed++) {
		printf("seed %u\n", seed);
		dice = seed;
		for (i = 0; i < 80; i++)
			if (roll(2))
				act_on_program(roll(PROGRAMS_MAX));
			else
				act_on_kernel(roll(KERNELS_MAX));
		for (i = 0; i < KERNELS_MAX; i++)
			for (; some_kernels[i].n_refs; some_kernels[i].n_refs--)
				say("release kernel",
				    clReleaseKernel(some_kernels[i].handle));
		for (i = 0; i < PROGRAMS_MAX; i++)
			for (; some_programs[i].n_refs;
			     some_programs[i].n_refs--)
				say("release",
				    clReleaseProgram(some_programs[i].handle));
		say("context", context_references());
	}
	end();
}

/* Threads that get in each other's way: only the end is certain. */
static cl_program stormed[2];

static void *storm_thread(void *arg)
{
	unsigned i, state = *(unsigned *)arg;
	cl_uint n;

	for (i = 0; i < 150; i++) {
		cl_program program = stormed[(state >> 8) % 2], of = NULL;
		cl_kernel kernel;

		state = state * 1103515245u + 12345u;
		clRetainProgram(program);
		if ((state >> 16) % 4 == 0)
			clBuildProgram(program, 0, NULL,
				       (state >> 20) % 2 ? options : "-DK=7",
				       NULL, NULL);
		clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof(n),
				 &n, NULL);
		clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof(n), &n,
				 NULL);
		kernel = clCreateKernel(program, "scale", NULL);
		if (kernel) {
			clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(of),
					&of, NULL);
			if (of != program)
				return "another program";
			clReleaseKernel(kernel);
		}
		clReleaseProgram(program);
	}
	return "well";
}

static void storm(void)
{
	unsigned seeds[4] = { 1, 20, 300, 4000 };
	pthread_t ids[4];
	void *result;
	int i;

	for (i = 0; i < 2; i++) {
		stormed[i] = make(source);
		clSetProgramReleaseCallback(stormed[i], on_release, "program");
		build(stormed[i], options);
	}
	for (i = 0; i < 4; i++)
		pthread_create(&ids[i], NULL, storm_thread, &seeds[i]);
	for (i = 0; i < 4; i++) {
		pthread_join(ids[i], &result);
		printf("thread: %s\n", (const char *)result);
	}
	for (i = 0; i < 2; i++) {
		show_references(stormed[i]);
		say("release", clReleaseProgram(stormed[i]));
	}
	end();
}

/* One build of the text in the file that $KILN_TEST_SOURCE names; its binaries
   are fetched, which captures it. */
static void from_file(void)
{
	static char text[4096];
	cl_program program;
	FILE *file = fopen(getenv("KILN_TEST_SOURCE"), "r");
	size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file)
		fclose(file);
	say("some source", size > 0);
	program = make(text);
	build(program, options);
	show_binaries(program, 0);
}

static const struct script {
	const char *name;
	void (*run)(void);
} scripts[] = {
	{ "everything", everything },
	{ "again", again },
	{ "errors", errors },
	{ "in-use", in_use },
	{ "notify", notify },
	{ "made-together", made_together },
	{ "context-first", context_first },
	{ "subsets", subsets },
	{ "linked", linked },
	{ "extension", extension },
	{ "forked", forked },
	{ "threads", threads },
	{ "binaries", binaries },
	{ "refused-then-fetched", refused_then_fetched },
	{ "idle", idle },
	{ "brief", brief },
	{ "from-file", from_file },
	{ "alarms", alarms },
	{ "hurried", hurried },
	{ "idle-twice", idle_twice },
	{ "natives", natives },
	{ "included", included },
	{ "included-in-doubt", included_in_doubt },
	{ "overtaken", overtaken },
	{ "overtaken-in-a-thread", overtaken_in_a_thread },
	{ "separate", separate },
	{ "separate-asked", separate_asked },
	{ "separate-binaries", separate_binaries },
	{ "separate-kernel", separate_kernel },
	{ "separate-context-first", separate_context_first },
	{ "separate-notified", separate_notified },
	{ "relinked", relinked },
	{ "rebuilt", rebuilt },
	{ "linked-built", linked_built },
	{ "linked-counting", linked_counting },
	{ "library", library },
	{ "library-asked", library_asked },
	{ "link-errors", link_errors },
	{ "link-failures", link_failures },
	{ "il", il },
	{ "il-set-later", il_set_later },
	{ "il-linked", il_linked },
	{ "objects", objects },
	{ "objects-turned", objects_turned },
	{ "il-set-meanwhile", il_set_meanwhile },
	{ "linked-meanwhile", linked_meanwhile },
	{ "linked-including", linked_including },
	{ "linked-in-doubt", linked_in_doubt },
	{ "unloaded", unloaded },
	{ "cloned", cloned },
	{ "whatever", whatever },
	{ "storm", storm },
	{ "vendors", vendors },
	{ "vendors-late", vendors_late },
	{ "unknown-late", unknown_late },
	{ "some-devices", some_devices },
	{ "no-options", no_options },
	{ "some-fail", some_fail },
	{ "header-changed", header_changed },
	{ "header-changed-between", header_changed_between },
	{ "one-of-two", one_of_two },
	{ "built-within", built_within },
	{ "equal-parts", equal_parts },
	{ "counted-part", counted_part },
	{ "many-contexts", many_contexts },
};

static int set_up(void)
{
	cl_int result;

	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices,
			   &n_devices))
		return -1;
	if (n_devices > DEVICES_MAX)
		n_devices = DEVICES_MAX;
	context = clCreateContext(NULL, n_devices, devices, on_context_error,
				  NULL, &result);
	queue = clCreateCommandQueue(context, devices[0], 0, &result);
	return queue ? 0 : -1;
}

int main(int argc, char **argv)
{
	size_t i;

	/* What it printed last is where it died. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2 || set_up()) {
		fprintf(stderr, "calls: no script, or no OpenCL\n");
		return 2;
	}
	options = argc > 2 ? argv[2] : NULL;
	if (argc > 3)
		first_seed = (unsigned)atoi(argv[3]);
	for (i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (!strcmp(scripts[i].name, argv[1])) {
			scripts[i].run();
			return 0;
		}
	fprintf(stderr, "calls: no script named %s\n", argv[1]);
	return 2;
}
