/* SPDX-License-Identifier: MIT */

/*
 * How much memory kiln's layer takes for programs that are cached:
 * tools/bench_opencl runs this twice under `kiln run`, on the driver stand-in.
 *
 *	opencl_programs N BYTES fill	build them and ask for their binaries,
 *					so that all are cached
 *	opencl_programs N BYTES		build them, keep them, and print what
 *					the layer allocated and mapped
 *
 * Each program has BYTES of source of its own, with four kernels of four
 * arguments.  One kernel of each is made and asked for its arguments.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include "own_memory.h"

#define LAYER	     "libkiln-opencl.so"
#define OPTIONS	     "-cl-kernel-arg-info -DSCALE=3"
#define KERNELS	     4
#define PROGRAMS_MAX 100000
#define BYTES_MAX    (1 << 20)

static void check(cl_int status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "opencl_programs: %s: %d\n", what, status);
	exit(EXIT_FAILURE);
}

static long number(const char *text, long max)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*end || value < 1 || value > max) {
		fprintf(stderr, "opencl_programs: %s: 1 to %ld\n", text, max);
		exit(2);
	}
	return value;
}

/* Exactly `size` bytes, the last of them a filling comment. */
static void write_source(char *source, size_t size, long n)
{
	unsigned long random = (unsigned long)n;
	size_t used = 0;
	int i;

	for (i = 0; i < KERNELS; i++)
		used += (size_t)sprintf(
			source + used,
			"__kernel void step_%d(__global int *out, "
			"__global const int *in, int factor, float unused)\n"
			"{\n\tint i = get_global_id(0);\n"
			"\tout[i] = in[i] * factor * SCALE + %ld;\n}\n",
			i, n);
	used += (size_t)sprintf(source + used, "/* ");
	while (used < size - 3) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		source[used++] = (char)('a' + (random >> 33) % 26);
	}
	memcpy(source + used, "*/\n", 4);
}

static void fetch(cl_program program)
{
	unsigned char *binary;
	size_t size;

	check(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size),
			       &size, NULL),
	      "sizes");
	binary = malloc(size);
	check(!binary, "memory");
	check(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary),
			       &binary, NULL),
	      "binaries");
	free(binary);
}

static void ask(cl_program program)
{
	cl_kernel kernel;
	char name[16] = "";
	cl_int status;

	kernel = clCreateKernel(program, "step_2", &status);
	check(status, "kernel");
	check(clGetKernelArgInfo(kernel, 2, CL_KERNEL_ARG_NAME, sizeof(name),
				 name, NULL),
	      "argument");
	check(strcmp(name, "factor"), "its name");
	check(clReleaseKernel(kernel), "release");
}

int main(int argc, char **argv)
{
	int fill = argc == 4 && !strcmp(argv[3], "fill");
	long n, size, i;
	struct own_memory memory;
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_program *programs;
	cl_int status;
	char *source;

	if (argc != 3 && !fill) {
		fputs("usage: opencl_programs N BYTES [fill]\n", stderr);
		return 2;
	}
	n = number(argv[1], PROGRAMS_MAX);
	size = number(argv[2], BYTES_MAX);
	programs = calloc((size_t)n, sizeof(cl_program));
	source = malloc((size_t)size + 1024);
	check(!programs || !source, "memory");
	own_memory_begin(LAYER);

	check(clGetPlatformIDs(1, &platform, NULL), "platform");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
	      "device");
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	check(status, "context");
	for (i = 0; i < n; i++) {
		const char *string = source;

		write_source(source, (size_t)size, i);
		programs[i] = clCreateProgramWithSource(context, 1, &string,
							NULL, &status);
		check(status, "program");
		check(clBuildProgram(programs[i], 1, &device, OPTIONS, NULL,
				     NULL),
		      "build");
		if (fill)
			fetch(programs[i]);
		ask(programs[i]);
	}
	own_memory_read(&memory);
	printf("ok blocks %zu mapped %zu stacks %zu peak %zu\n", memory.blocks,
	       memory.mapped, memory.stacks, memory.peak);
	if (getenv("BENCH_SITES"))
		own_memory_print_sites();
	for (i = 0; i < n; i++)
		check(clReleaseProgram(programs[i]), "release");
	check(clReleaseContext(context), "release");
	own_memory_read(&memory);
	fprintf(stderr, "opencl_programs: %zu bytes of blocks afterwards\n",
		memory.blocks);
	free(source);
	free(programs);
	return EXIT_SUCCESS;
}
