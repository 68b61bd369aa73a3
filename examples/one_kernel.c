/* SPDX-License-Identifier: MIT */

/* A small OpenCL program with one kernel: build it, run it, check it. */

#include <stdio.h>
#include <stdlib.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#define N 4096

static const char *source =
	"__kernel void saxpy(__global float *y, __global const float *x,\n"
	"		    float a)\n"
	"{\n"
	"	size_t i = get_global_id(0);\n"
	"	y[i] = a * x[i] + y[i];\n"
	"}\n";

static float x[N], y[N];

static void check(cl_int status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "one_kernel: %s: %d\n", what, status);
	exit(EXIT_FAILURE);
}

int main(void)
{
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_command_queue queue;
	cl_program program;
	cl_kernel kernel;
	cl_mem mx, my;
	cl_int status;
	size_t global = N, local = 64;
	float a = 3;

	check(clGetPlatformIDs(1, &platform, NULL), "no platform");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
	      "no device");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	check(status, "context");
	queue = clCreateCommandQueue(context, device, 0, &status);
	check(status, "queue");
	program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
	check(status, "program");
	check(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
	kernel = clCreateKernel(program, "saxpy", &status);
	check(status, "kernel");
	for (int i = 0; i < N; i++) {
		x[i] = (float)i;
		y[i] = 1;
	}
	mx = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(x), x, NULL);
	my = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(y), y, NULL);
	clSetKernelArg(kernel, 0, sizeof(my), &my);
	clSetKernelArg(kernel, 1, sizeof(mx), &mx);
	clSetKernelArg(kernel, 2, sizeof(a), &a);
	check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0,
				     NULL, NULL),
	      "launch");
	check(clEnqueueReadBuffer(queue, my, CL_TRUE, 0, sizeof(y), y, 0, NULL,
				  NULL),
	      "read");
	for (int i = 0; i < N; i++)
		check(y[i] != 3 * (float)i + 1, "wrong result");
	clReleaseMemObject(mx);
	clReleaseMemObject(my);
	clReleaseKernel(kernel);
	clReleaseProgram(program);
	clReleaseCommandQueue(queue);
	clReleaseContext(context);
	puts("ok");
	return EXIT_SUCCESS;
}
