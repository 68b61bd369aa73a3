/* SPDX-License-Identifier: MIT */

/*
 * An OpenCL program with libkiln-cl: what else takes a hash of the source,
 * file names, clGetProgramInfo() twice, a check whether the binary still fits
 * driver and device, and a fall-back.  Its second start loads the binary.
 */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kiln/front/opencl.h>

#define N 4096

static const char *source =
	"__kernel void saxpy(__global float *y, __global const float *x,\n"
	"		    float a)\n"
	"{\n"
	"	size_t i = get_global_id(0);\n"
	"	y[i] = a * x[i] + y[i];\n"
	"}\n";

static float x[N], y[N];

static void check(long status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "cached_saxpy: %s: %ld\n", what, status);
	exit(EXIT_FAILURE);
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void run(cl_context context, cl_device_id device, cl_kernel kernel)
{
	size_t global = N;
	cl_command_queue queue;
	cl_mem mx, my;
	cl_int status;
	float a = 3;

	for (int i = 0; i < N; i++) {
		x[i] = (float)i;
		y[i] = 1;
	}
	queue = clCreateCommandQueueWithProperties(context, device, NULL,
						   &status);
	check(status, "queue");
	mx = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(x), x, NULL);
	my = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(y), y, NULL);
	clSetKernelArg(kernel, 0, sizeof(cl_mem), (const void *)&my);
	clSetKernelArg(kernel, 1, sizeof(cl_mem), (const void *)&mx);
	clSetKernelArg(kernel, 2, sizeof(a), &a);
	check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0,
				     NULL, NULL),
	      "launch");
	check(clEnqueueReadBuffer(queue, my, CL_TRUE, 0, sizeof(y), y, 0, NULL,
				  NULL),
	      "read");
	for (int i = 0; i < N; i++)
		check(y[i] != 3 * (float)i + 1, "a wrong result");
	clReleaseMemObject(mx);
	clReleaseMemObject(my);
	clReleaseCommandQueue(queue);
}

int main(void)
{
	struct kiln_program_failure failure;
	struct kiln_programs_stats stats;
	struct kiln_cl_build build;
	struct kiln_cl *cl;
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_kernel kernel;
	cl_int status;
	double start;

	check(clGetPlatformIDs(1, &platform, NULL), "no platform");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
	      "no device");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	check(status, "context");

	start = now_ms();
	check(kiln_cl_open(context, NULL, &cl), "kiln_cl_open");
	kiln_cl_build_init(&build);
	build.source = source;
	build.options = "-cl-fast-relaxed-math";
	kiln_program_failure_init(&failure);
	if (kiln_cl_kernel(cl, &build, "saxpy", &kernel, &failure)) {
		fprintf(stderr, "cached_saxpy: %d: %s\n", failure.code,
			failure.message ? failure.message : "no log");
		return EXIT_FAILURE;
	}
	kiln_programs_stats_init(&stats);
	kiln_cl_stats(cl, &stats);
	printf("kernel after %.1f ms, %s\n", now_ms() - start,
	       stats.from_store ? "from the cache" : "built");

	run(context, device, kernel);
	clReleaseKernel(kernel);
	kiln_cl_close(cl);
	clReleaseContext(context);
	return EXIT_SUCCESS;
}
