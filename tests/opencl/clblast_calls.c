/* SPDX-License-Identifier: MIT */

/*
 * One call of each kind of routine that CLBlast has a source of its own for, on
 * small vectors and matrices: tools/corpus records what it builds.
 */

#include <stdio.h>
#include <stdlib.h>

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <clblast_c.h>

#define N     32
#define SIZE  (N * N)
#define TWICE CLBlastTransposeYes
#define ONCE  CLBlastTransposeNo
#define ROWS  CLBlastLayoutRowMajor

static float numbers[SIZE];

static cl_mem make(cl_context context)
{
	return clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(numbers),
			      numbers, NULL);
}

/* The first that fails, counted from 1; 0 if none does. */
static int call_all(cl_mem a, cl_mem b, cl_mem c, cl_command_queue *queue)
{
	const CLBlastStatusCode results[] = {
		CLBlastSaxpy(N, 2, a, 0, 1, b, 0, 1, queue, NULL),
		CLBlastSdot(N, c, 0, a, 0, 1, b, 0, 1, queue, NULL),
		CLBlastiSamax(N, c, 0, a, 0, 1, queue, NULL),
		CLBlastSnrm2(N, c, 0, a, 0, 1, queue, NULL),
		CLBlastSgemv(ROWS, ONCE, N, N, 1, a, 0, N, b, 0, 1, 0, c, 0, 1,
			     queue, NULL),
		CLBlastSger(ROWS, N, N, 1, a, 0, 1, b, 0, 1, c, 0, N, queue,
			    NULL),
		CLBlastSomatcopy(ROWS, TWICE, N, N, 2, a, 0, N, c, 0, N, queue,
				 NULL),
		CLBlastShad(N, 1, a, 0, 1, b, 0, 1, 0, c, 0, 1, queue, NULL),
		CLBlastSim2col(CLBlastKernelModeCrossCorrelation, 1, 8, 8, 3, 3,
			       0, 0, 1, 1, 1, 1, a, 0, c, 0, queue, NULL),
		CLBlastSgemm(ROWS, ONCE, ONCE, N, N, N, 1, a, 0, N, b, 0, N, 0,
			     c, 0, N, queue, NULL),
	};
	size_t i;

	for (i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i])
			return (int)i + 1;
	return 0;
}

int main(void)
{
	cl_platform_id platform;
	cl_device_id device;
	cl_command_queue queue;
	cl_context context;
	int i, failed;

	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
		return EXIT_FAILURE;
	for (i = 0; i < SIZE; i++)
		numbers[i] = (float)(i % 7);
	context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
	queue = clCreateCommandQueue(context, device, 0, NULL);
	failed = call_all(make(context), make(context), make(context), &queue);
	if (failed || clFinish(queue)) {
		printf("call %d failed\n", failed);
		return EXIT_FAILURE;
	}
	puts("ok");
	return EXIT_SUCCESS;
}
