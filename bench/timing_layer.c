/* SPDX-License-Identifier: MIT */

/*
 * A layer that measures clBuildProgram: listed last, thus nearest to the
 * application, with kiln's below it or without.  For each call it adds
 * "NANOSECONDS\n" to the file that BENCH_BUILD_TIMES names.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>

#define PUBLIC __attribute__((visibility("default")))

static cl_icd_dispatch next, table;

PUBLIC cl_int CL_API_CALL clInitLayerWithProperties(
	cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
	cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret,
	const void *properties);

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static cl_int CL_API_CALL build(cl_program program, cl_uint num_devices,
				const cl_device_id *device_list,
				const char *options,
				void(CL_CALLBACK *notify)(cl_program, void *),
				void *user_data)
{
	const char *path = getenv("BENCH_BUILD_TIMES");
	uint64_t began = now_ns();
	cl_int result = next.clBuildProgram(program, num_devices, device_list,
					    options, notify, user_data);
	uint64_t took = now_ns() - began;
	FILE *file = path ? fopen(path, "a") : NULL;

	if (file) {
		fprintf(file, "%llu\n", (unsigned long long)took);
		(void)fclose(file);
	}
	return result;
}

PUBLIC cl_int CL_API_CALL clGetLayerInfo(cl_layer_info param_name,
					 size_t param_value_size,
					 void *param_value,
					 size_t *param_value_size_ret)
{
	cl_layer_api_version version = CL_LAYER_API_VERSION_100;

	if (param_name != CL_LAYER_API_VERSION ||
	    (param_value && param_value_size < sizeof(version)))
		return CL_INVALID_VALUE;
	if (param_value)
		memcpy(param_value, &version, sizeof(version));
	if (param_value_size_ret)
		*param_value_size_ret = sizeof(version);
	return CL_SUCCESS;
}

PUBLIC cl_int CL_API_CALL clInitLayer(
	cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
	cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret)
{
	cl_uint n = sizeof(table) / sizeof(void *);

	if (n > num_entries)
		n = num_entries;
	memcpy(&next, target_dispatch, n * sizeof(void *));
	table.clBuildProgram = build;
	*num_entries_ret = n;
	*layer_dispatch_ret = &table;
	return CL_SUCCESS;
}

PUBLIC cl_int CL_API_CALL clInitLayerWithProperties(
	cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
	cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret,
	const void *properties)
{
	return clInitLayer(num_entries, target_dispatch, num_entries_ret,
			   layer_dispatch_ret);
}
