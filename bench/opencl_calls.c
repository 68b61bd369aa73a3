/* SPDX-License-Identifier: MIT */

/*
 * Calls an OpenCL entry point that kiln's layer leaves alone, as often as
 * told: tools/bench_opencl counts its instructions with and without the layer,
 * on the driver stand-in, and takes those of 0 calls off.
 *
 *	opencl_calls N
 */

#include <stdio.h>
#include <stdlib.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

static void check(cl_int status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "opencl_calls: %s: %d\n", what, status);
	exit(EXIT_FAILURE);
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_program program;
	cl_kernel kernel;
	cl_int status, value = 7;

	check(clGetPlatformIDs(1, &platform, NULL), "no platform");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
	      "no device");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	check(status, "context");
	/* Not a build: what the layer does there is not what is counted. */
	program = clCreateProgramWithBuiltInKernels(context, 1, &device,
						    "kiln_fill", &status);
	check(status, "program");
	kernel = clCreateKernel(program, "kiln_fill", &status);
	check(status, "kernel");
	for (long i = 0; i < n; i++)
		status |= clSetKernelArg(kernel, 1, sizeof(value), &value);
	check(status, "argument");
	clReleaseKernel(kernel);
	clReleaseProgram(program);
	clReleaseContext(context);
	puts("ok");
	return EXIT_SUCCESS;
}
