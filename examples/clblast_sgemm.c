/* SPDX-License-Identifier: MIT */

/* One matrix product by CLBlast, which builds its OpenCL kernels at the first
   call of every process; it keeps them in memory only. */

#include <stdio.h>
#include <stdlib.h>

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <clblast_c.h>

#define N 256

static float a[N * N], b[N * N], c[N * N], bv[N];

int main(void)
{
	cl_platform_id platform;
	cl_device_id device;

	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
		return EXIT_FAILURE;
	for (int i = 0; i < N * N; i++) {
		a[i] = (float)(i % 7);
		b[i] = (float)(i % 5);
	}
	cl_context context = clCreateContext(NULL, 1, &device, 0, 0, NULL);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, NULL);
	cl_mem_flags copy = CL_MEM_COPY_HOST_PTR;
	cl_mem ma = clCreateBuffer(context, copy, sizeof(a), a, NULL);
	cl_mem mb = clCreateBuffer(context, copy, sizeof(b), b, NULL);
	cl_mem mc = clCreateBuffer(context, copy, sizeof(c), c, NULL);
	CLBlastStatusCode status = CLBlastSgemm(
		CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeNo,
		N, N, N, 1, ma, 0, N, mb, 0, N, 0, mc, 0, N, &queue, NULL);
	if (status ||
	    clEnqueueReadBuffer(queue, mc, CL_TRUE, 0, sizeof(c), c, 0, 0, 0))
		return EXIT_FAILURE;
	/* A(Bv) is (AB)v, exactly: all sums are small whole numbers. */
	for (int row = 0; row < N; row++)
		for (int k = 0; k < N; k++)
			bv[row] += b[row * N + k] * (float)(k % 3 + 1);
	for (int row = 0; row < N; row++) {
		float expected = 0, sum = 0;
		for (int k = 0; k < N; k++) {
			expected += a[row * N + k] * bv[k];
			sum += c[row * N + k] * (float)(k % 3 + 1);
		}
		if (sum != expected)
			return EXIT_FAILURE;
	}
	puts("ok");
	return EXIT_SUCCESS;
}
