/* SPDX-License-Identifier: MIT */

/*
 * A layer that keeps what programs build from source: for each clBuildProgram
 * it writes NUMBER.cl and NUMBER.options into the directory that
 * KILN_TEST_RECORD names, the number being a hash of both.  tools/corpus runs
 * real programs under it.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>

#define PUBLIC __attribute__((visibility("default")))

static cl_icd_dispatch next, table;

PUBLIC cl_int CL_API_CALL clInitLayerWithProperties(
	cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
	cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret,
	const void *properties);

/* FNV-1a: names that differ where the texts do. */
static uint64_t hash(uint64_t so_far, const char *text)
{
	for (; *text; text++)
		so_far = (so_far ^ (unsigned char)*text) * 1099511628211u;
	return so_far;
}

static void write_text(uint64_t number, const char *ending, const char *text)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%016llx.%s",
		 getenv("KILN_TEST_RECORD"), (unsigned long long)number,
		 ending);
	file = fopen(path, "w");
	if (!file)
		return;
	fputs(text, file);
	(void)fclose(file);
}

static void record(cl_program program, const char *options)
{
	uint64_t number = 14695981039346656037u;
	size_t size = 0;
	char *source;

	if (next.clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &size) ||
	    size < 2)
		return;
	source = calloc(1, size + 1);
	if (source && !next.clGetProgramInfo(program, CL_PROGRAM_SOURCE, size,
					     source, NULL)) {
		number = hash(hash(number, source), options);
		write_text(number, "cl", source);
		write_text(number, "options", options);
	}
	free(source);
}

static cl_int CL_API_CALL build(cl_program program, cl_uint num_devices,
				const cl_device_id *device_list,
				const char *options,
				void(CL_CALLBACK *notify)(cl_program, void *),
				void *user_data)
{
	if (getenv("KILN_TEST_RECORD"))
		record(program, options ? options : "");
	return next.clBuildProgram(program, num_devices, device_list, options,
				   notify, user_data);
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
