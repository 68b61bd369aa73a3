/* SPDX-License-Identifier: MIT */

/*
 * opencl_builds FIRST N: builds N programs of one kernel each, the FIRST-th and
 * those that follow, and asks for their binaries, as a program with a cache of its
 * own does.  bench_cli lets the tool build them again.
 */

#include <stdio.h>
#include <stdlib.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

static void check(cl_int status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "opencl_builds: %s: %d\n", what, status);
	exit(EXIT_FAILURE);
}

static void write_source(char *source, size_t size, long n)
{
	snprintf(source, size,
		 "kernel void blur_%ld(global const float4 *in,\n"
		 "		global float4 *out, int width)\n"
		 "{\n"
		 "	int x = get_global_id(0), y = get_global_id(1), i;\n"
		 "	float4 sum = 0, weight = 0;\n"
		 "	for (i = -RADIUS; i <= RADIUS; i++) {\n"
		 "		float4 w = exp(-(float4)(i * i) / %ld.5f);\n"
		 "		int at = clamp(x + i, 0, width - 1);\n"
		 "		sum += w * in[y * width + at];\n"
		 "		weight += w;\n"
		 "	}\n"
		 "	out[y * width + x] = sqrt(sum / weight);\n"
		 "}\n",
		 n, n);
}

static void build(cl_context context, cl_device_id device, long n)
{
	char source[1024];
	const char *string = source;
	unsigned char *binary;
	cl_program program;
	cl_int status;
	size_t size;

	write_source(source, sizeof(source), n);
	program = clCreateProgramWithSource(context, 1, &string, NULL, &status);
	check(status, "program");
	check(clBuildProgram(program, 1, &device, "-DRADIUS=4", NULL, NULL),
	      "build");
	check(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size),
			       &size, NULL),
	      "sizes");
	binary = malloc(size);
	check(!binary, "memory");
	check(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary),
			       &binary, NULL),
	      "binaries");
	free(binary);
	check(clReleaseProgram(program), "release");
}

int main(int argc, char **argv)
{
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	long first, n, i;
	cl_int status;

	if (argc != 3) {
		fputs("usage: opencl_builds FIRST N\n", stderr);
		return 2;
	}
	first = strtol(argv[1], NULL, 10);
	n = strtol(argv[2], NULL, 10);
	check(clGetPlatformIDs(1, &platform, NULL), "platform");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
	      "device");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	check(status, "context");
	for (i = first; i < first + n; i++)
		build(context, device, i);
	check(clReleaseContext(context), "release");
	return EXIT_SUCCESS;
}
