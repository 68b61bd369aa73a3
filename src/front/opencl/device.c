/* SPDX-License-Identifier: MIT */

/*
 * A device's identity is a handful of queries, and for processors what CPUID
 * says.  Nothing that tells two equal cards apart is asked for.
 */

#include "front/opencl/device.h"

#include <CL/cl_ext.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "front/opencl/fields.h"
#include "sys/sys.h"

struct ki_cl_devices {
	/* Fixed once made. */
	const cl_icd_dispatch *calls;
	char cpu[KI_CL_CPU_BYTES];
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_map map; /* cl_device_id -> struct ki_fields */
};

struct ki_cl_devices *ki_cl_devices_new(const cl_icd_dispatch *calls)
{
	struct ki_cl_devices *devices = calloc(1, sizeof(*devices));

	if (!devices)
		return NULL;
	devices->calls = calls;
	ki_cl_cpu_identity(devices->cpu);
	ki_mutex_init(&devices->mutex, KI_RANK_KEY);
	ki_map_init(&devices->map);
	return devices;
}

void ki_cl_devices_free(struct ki_cl_devices *devices)
{
	struct ki_fields *device;
	size_t position = 0;

	if (!devices)
		return;
	while ((device = ki_map_next(&devices->map, &position))) {
		ki_fields_fini(device);
		free(device);
	}
	ki_map_fini(&devices->map);
	ki_mutex_fini(&devices->mutex);
	free(devices);
}

/* ---- Questions ------------------------------------------------------- */

/* Numbers of extensions, which not all headers have. */
#define DRIVER_UUID	 0x106B
#define INTEL_IP_VERSION 0x4250
#define INTEL_ID	 0x4251
#define NV_MAJOR	 0x4000
#define NV_MINOR	 0x4001
#define AMD_PCIE_ID	 0x4034
#define AMD_BOARD_NAME	 0x4038
#define AMD_GFXIP_MAJOR	 0x404A
#define AMD_GFXIP_MINOR	 0x404B

static const struct ki_cl_question DEVICE_QUESTIONS[] = {
	{ CL_DEVICE_NAME, "name", NULL },
	{ CL_DEVICE_TYPE, "type", NULL },
	{ CL_DEVICE_VENDOR, "vendor", NULL },
	{ CL_DEVICE_VENDOR_ID, "vendor id", NULL },
	{ CL_DEVICE_VERSION, "version", NULL },
	{ CL_DRIVER_VERSION, "driver version", NULL },
	{ CL_DEVICE_OPENCL_C_VERSION, "language", NULL },
	{ CL_DEVICE_ADDRESS_BITS, "address bits", NULL },
	{ CL_DEVICE_ENDIAN_LITTLE, "little endian", NULL },
	{ CL_DEVICE_PROFILE, "profile", NULL },
	{ CL_DEVICE_EXTENSIONS, "extensions", NULL },
	{ CL_DEVICE_DOUBLE_FP_CONFIG, "double", NULL },
	{ CL_DEVICE_MAX_WORK_GROUP_SIZE, "work-group size", NULL },
	{ CL_DEVICE_LOCAL_MEM_SIZE, "local memory", NULL },
	{ DRIVER_UUID, "driver uuid", "cl_khr_device_uuid" },
	{ INTEL_IP_VERSION, "ip version", "cl_intel_device_attribute_query" },
	{ INTEL_ID, "id", "cl_intel_device_attribute_query" },
	{ NV_MAJOR, "capability major", "cl_nv_device_attribute_query" },
	{ NV_MINOR, "capability minor", "cl_nv_device_attribute_query" },
	{ AMD_PCIE_ID, "id", "cl_amd_device_attribute_query" },
	{ AMD_BOARD_NAME, "board", "cl_amd_device_attribute_query" },
	{ AMD_GFXIP_MAJOR, "ip major", "cl_amd_device_attribute_query" },
	{ AMD_GFXIP_MINOR, "ip minor", "cl_amd_device_attribute_query" },
	{ 0, NULL, NULL },
};

static void device_fill(struct ki_cl_devices *devices, cl_device_id id,
			struct ki_fields *fields)
{
	const cl_icd_dispatch *calls = devices->calls;
	cl_device_type type = 0;
	size_t size;
	char *extensions = ki_cl_ask(ki_cl_device_info, id, calls,
				     CL_DEVICE_EXTENSIONS, &size);

	ki_cl_ask_all(fields, "", ki_cl_device_info, id, calls,
		      DEVICE_QUESTIONS, extensions);
	free(extensions);
	if (ki_cl_device_info(id, calls, CL_DEVICE_TYPE, sizeof(type), &type,
			      NULL) ||
	    (type & CL_DEVICE_TYPE_CPU))
		ki_fields_add_string(fields, "", "processor", devices->cpu);
}

/* A handle of a sub-device comes and goes, and may be another's later. */
static int is_sub_device(struct ki_cl_devices *devices, cl_device_id id)
{
	cl_device_id parent = NULL;

	return ki_cl_device_info(id, devices->calls, CL_DEVICE_PARENT_DEVICE,
				 sizeof(parent), &parent, NULL) == CL_SUCCESS &&
	       parent;
}

/* Keep a device's fields for the next time; returns whether they were. */
static int device_keep(struct ki_cl_devices *devices, cl_device_id id,
		       const struct ki_fields *fields)
{
	struct ki_fields *kept = malloc(sizeof(*kept));
	int is_kept = 0;

	if (!kept)
		return 0;
	*kept = *fields;
	ki_mutex_lock(&devices->mutex);
	if (!ki_map_get(&devices->map, (uintptr_t)id))
		is_kept = !ki_map_put(&devices->map, (uintptr_t)id, kept);
	ki_mutex_unlock(&devices->mutex);
	if (!is_kept)
		free(kept);
	return is_kept;
}

enum kiln_status ki_cl_device_to_key(struct ki_cl_devices *devices,
				     cl_device_id id, cl_uint index,
				     struct kiln_key *key)
{
	struct ki_fields fields = { 0 };
	const struct ki_fields *kept;
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "device %u", index);
	ki_mutex_lock(&devices->mutex);
	kept = ki_map_get(&devices->map, (uintptr_t)id);
	ki_mutex_unlock(&devices->mutex);
	if (kept) {
		ki_fields_to_key(kept, prefix, key);
		return KILN_OK;
	}
	device_fill(devices, id, &fields);
	if (fields.failed) {
		ki_fields_fini(&fields);
		return KILN_E_NO_MEMORY;
	}
	ki_fields_to_key(&fields, prefix, key);
	if (is_sub_device(devices, id) || !device_keep(devices, id, &fields))
		ki_fields_fini(&fields);
	return KILN_OK;
}
