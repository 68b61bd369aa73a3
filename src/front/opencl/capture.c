/* SPDX-License-Identifier: MIT */

/*
 * Binaries of a program, packed into the value of an entry:
 *
 *	"KCLB" version:u32 n_devices:u32 zero:u32
 *	size:u64 for each device
 *	the binaries, each at a multiple of 8
 *
 * little-endian.  A driver is trusted with nothing here: PoCL answers for
 * fewer devices than the program has when it was built for fewer, and leaves
 * the rest of the arrays as they were.
 */

#include "front/opencl/capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC		 0x424c434bu /* "KCLB" */
#define VERSION		 1
#define HEADER_BYTES	 16
#define BINARY_BYTES_MAX ((size_t)1 << 31)

static size_t aligned(size_t size)
{
	return (size + 7) & ~(size_t)7;
}

enum kiln_status ki_cl_pack(const unsigned char *const *binaries,
			    const size_t *sizes, cl_uint n_devices,
			    struct ki_bytes *out_value)
{
	static const uint8_t zeros[8];
	cl_uint i;

	if (!n_devices || n_devices > KI_CL_DEVICES_MAX)
		return KILN_E_UNSUPPORTED;
	for (i = 0; i < n_devices; i++)
		if (!sizes[i] || sizes[i] > BINARY_BYTES_MAX || !binaries[i])
			return KILN_E_UNSUPPORTED;

	ki_bytes_init(out_value);
	ki_bytes_add_u32(out_value, MAGIC);
	ki_bytes_add_u32(out_value, VERSION);
	ki_bytes_add_u32(out_value, n_devices);
	ki_bytes_add_u32(out_value, 0);
	for (i = 0; i < n_devices; i++)
		ki_bytes_add_u64(out_value, sizes[i]);
	for (i = 0; i < n_devices; i++) {
		ki_bytes_add(out_value, binaries[i], sizes[i]);
		ki_bytes_add(out_value, zeros, aligned(sizes[i]) - sizes[i]);
	}
	if (out_value->failed) {
		ki_bytes_fini(out_value);
		return KILN_E_NO_MEMORY;
	}
	return KILN_OK;
}

enum kiln_status ki_cl_unpack(const void *value, size_t size, cl_uint n_devices,
			      const unsigned char **out_binaries,
			      size_t *out_sizes)
{
	struct ki_reader reader = ki_reader(value, size);
	uint32_t magic = ki_read_u32(&reader);
	uint32_t version = ki_read_u32(&reader);
	uint32_t n = ki_read_u32(&reader);
	const uint8_t *lengths;
	cl_uint i;

	(void)ki_read_u32(&reader);
	if (reader.failed || magic != MAGIC || version != VERSION ||
	    n != n_devices || n > KI_CL_DEVICES_MAX)
		return KILN_E_FORMAT;
	lengths = ki_read(&reader, (size_t)n * 8);
	if (reader.failed)
		return KILN_E_FORMAT;
	for (i = 0; i < n; i++) {
		uint64_t length = ki_get_u64(lengths + (size_t)i * 8);

		if (!length || length > BINARY_BYTES_MAX)
			return KILN_E_FORMAT;
		out_sizes[i] = (size_t)length;
		out_binaries[i] = ki_read(&reader, aligned((size_t)length));
		if (reader.failed)
			return KILN_E_FORMAT;
	}
	return reader.size ? KILN_E_FORMAT : KILN_OK;
}

/* Where in the program's own list of devices each of ours stands. */
static enum kiln_status find_places(const cl_icd_dispatch *calls,
				    cl_program program,
				    const cl_device_id *devices,
				    cl_uint n_devices, cl_uint *out_n,
				    cl_uint *out_places)
{
	enum kiln_status status = KILN_E_UNSUPPORTED;
	cl_device_id *all = NULL;
	cl_uint n = 0, i, j;

	if (calls->clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof(n),
				    &n, NULL) ||
	    n < n_devices || n > KI_CL_DEVICES_MAX)
		goto out;
	all = calloc(n, sizeof(*all));
	if (!all) {
		status = KILN_E_NO_MEMORY;
		goto out;
	}
	if (calls->clGetProgramInfo(program, CL_PROGRAM_DEVICES,
				    n * sizeof(*all), all, NULL))
		goto out;
	for (i = 0; i < n_devices; i++) {
		for (j = 0; j < n && all[j] != devices[i]; j++)
			;
		if (j == n)
			goto out;
		out_places[i] = j;
	}
	*out_n = n;
	status = KILN_OK;
out:
	free(all);
	return status;
}

/* Drivers answer for all devices of the program, or for those of its last
   build: then each of ours stands where it stands among them. */
static enum kiln_status find_answers(const cl_icd_dispatch *calls,
				     cl_program program,
				     const cl_device_id *devices,
				     cl_uint n_devices, cl_uint n,
				     cl_uint *out_places)
{
	enum kiln_status status;
	cl_uint n_all = 0, i;

	if (!n_devices || n_devices > KI_CL_DEVICES_MAX)
		return KILN_E_UNSUPPORTED;
	status = find_places(calls, program, devices, n_devices, &n_all,
			     out_places);
	if (status || n == n_all)
		return status;
	for (i = 0; i < n_devices; i++)
		out_places[i] = i;
	return n == n_devices ? KILN_OK : KILN_E_UNSUPPORTED;
}

enum kiln_status ki_cl_pack_fetched(const cl_icd_dispatch *calls,
				    cl_program program,
				    const cl_device_id *devices,
				    cl_uint n_devices,
				    const unsigned char *const *binaries,
				    const size_t *sizes, cl_uint n,
				    struct ki_bytes *out_value)
{
	cl_uint places[KI_CL_DEVICES_MAX], i;
	const unsigned char *wanted[KI_CL_DEVICES_MAX];
	size_t wanted_sizes[KI_CL_DEVICES_MAX];
	enum kiln_status status =
		find_answers(calls, program, devices, n_devices, n, places);

	if (status)
		return status;
	for (i = 0; i < n_devices; i++) {
		wanted[i] = binaries[places[i]];
		wanted_sizes[i] = sizes[places[i]];
	}
	return ki_cl_pack(wanted, wanted_sizes, n_devices, out_value);
}

/* How many there are: 0 if the driver would not say, or says too much. */
static cl_uint fetch_sizes(const cl_icd_dispatch *calls, cl_program program,
			   size_t *out_sizes)
{
	size_t answered = 0, i;

	if (calls->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
				    KI_CL_DEVICES_MAX * sizeof(*out_sizes),
				    out_sizes, &answered) ||
	    answered > KI_CL_DEVICES_MAX * sizeof(*out_sizes) ||
	    answered % sizeof(*out_sizes))
		return 0;
	for (i = 0; i < answered / sizeof(*out_sizes); i++)
		if (out_sizes[i] > BINARY_BYTES_MAX)
			return 0;
	return (cl_uint)(answered / sizeof(*out_sizes));
}

static enum kiln_status fetch_binaries(const cl_icd_dispatch *calls,
				       cl_program program, cl_uint n,
				       const size_t *sizes,
				       unsigned char **binaries)
{
	cl_uint i;

	for (i = 0; i < n; i++) {
		/* One byte at least: a NULL would be skipped. */
		binaries[i] = calloc(1, sizes[i] + 1);
		if (!binaries[i])
			return KILN_E_NO_MEMORY;
	}
	return calls->clGetProgramInfo(program, CL_PROGRAM_BINARIES,
				       n * sizeof(*binaries), binaries, NULL)
		       ? KILN_E_UNSUPPORTED
		       : KILN_OK;
}

enum kiln_status ki_cl_fetch(const cl_icd_dispatch *calls, cl_program program,
			     const cl_device_id *devices, cl_uint n_devices,
			     struct ki_bytes *out_value)
{
	size_t *sizes = calloc(KI_CL_DEVICES_MAX, sizeof(*sizes));
	unsigned char **all = NULL;
	enum kiln_status status = KILN_E_NO_MEMORY;
	cl_uint n = 0, i;

	if (!sizes)
		goto out;
	n = fetch_sizes(calls, program, sizes);
	status = KILN_E_UNSUPPORTED;
	if (!n)
		goto out;
	all = calloc(n, sizeof(*all));
	status = KILN_E_NO_MEMORY;
	if (!all)
		goto out;
	status = fetch_binaries(calls, program, n, sizes, all);
	if (status == KILN_OK)
		status = ki_cl_pack_fetched(calls, program, devices, n_devices,
					    (const unsigned char *const *)all,
					    sizes, n, out_value);
out:
	for (i = 0; all && i < n; i++)
		free(all[i]);
	free(all);
	free(sizes);
	return status;
}
