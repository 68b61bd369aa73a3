/* SPDX-License-Identifier: MIT */

/*
 * Build an OpenCL program from a file, with options as clBuildProgram() takes
 * them, and say how many kernels it has:
 *
 *	build_file FILE.cl [OPTIONS]
 */

#include <stdio.h>
#include <stdlib.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

static void check(cl_int status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "build_file: %s: %d\n", what, status);
	exit(EXIT_FAILURE);
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	char *text = calloc(1, (size_t)4 << 20);

	check(!file || !text, path);
	fread(text, 1, ((size_t)4 << 20) - 1, file);
	check(ferror(file), path);
	fclose(file);
	return text;
}

static void print_log(cl_program program, cl_device_id device)
{
	static char log[1 << 16];

	clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG,
			      sizeof(log) - 1, log, NULL);
	fputs(log, stderr);
}

int main(int argc, char **argv)
{
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_program program;
	cl_kernel kernels[256];
	cl_uint n_kernels;
	cl_int status;
	char *text;

	if (argc < 2 || argc > 3) {
		fputs("usage: build_file FILE.cl [OPTIONS]\n", stderr);
		return 2;
	}
	text = read_file(argv[1]);
	check(clGetPlatformIDs(1, &platform, NULL), "no platform");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
	      "no device");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	check(status, "context");
	program = clCreateProgramWithSource(context, 1, (const char **)&text,
					    NULL, &status);
	check(status, "program");
	status = clBuildProgram(program, 1, &device, argc > 2 ? argv[2] : "",
				NULL, NULL);
	if (status)
		print_log(program, device);
	check(status, "build");
	check(clCreateKernelsInProgram(program, 256, kernels, &n_kernels),
	      "kernels");
	for (cl_uint i = 0; i < n_kernels; i++)
		clReleaseKernel(kernels[i]);
	clReleaseProgram(program);
	clReleaseContext(context);
	free(text);
	printf("ok, %u kernels\n", n_kernels);
	return EXIT_SUCCESS;
}
