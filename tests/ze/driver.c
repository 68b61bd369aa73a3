/* SPDX-License-Identifier: MIT */

#include "standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "front/levelzero/names.h"

#define PUBLIC	   __attribute__((visibility("default")))
#define IP_VERSION "ZE_extension_device_ip_version"

struct _ze_driver_handle_t {
	int unused;
};
struct _ze_context_handle_t {
	int unused;
};

static struct _ze_driver_handle_t driver;
static struct _ze_device_handle_t devices[] = {
	{ "Stand-in A", "tgllp", 0x9a49, 0x03000000 },
	{ "Stand-in B", "skl", 0x1912, 0x02400009 },
	/* As A in all but its UUID. */
	{ "Stand-in A", "tgllp", 0x9a49, 0x03000000 },
	/* A part of B, and a part of that. */
	{ "Stand-in B", "skl", 0x1912, 0x02400009 },
	{ "Stand-in B", "skl", 0x1912, 0x02400009 },
};
#define N_DEVICES 3
#define N_ALL	  (sizeof(devices) / sizeof(devices[0]))

void note(const char *what, size_t size)
{
	const char *path = getenv("KILN_TEST_ZE_CALLS");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
			     0600)
		      : -1;

	if (fd < 0)
		return;
	dprintf(fd, "%s %zu\n", what, size);
	close(fd);
}

const struct _ze_device_handle_t *device_of(ze_device_handle_t device)
{
	return device >= devices && device < devices + N_ALL ? device : NULL;
}

/* ---- The driver -------------------------------------------------------------- */

static ze_result_t init(ze_init_flags_t flags)
{
	return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_get(uint32_t *n, ze_driver_handle_t *drivers)
{
	if (drivers && *n)
		drivers[0] = &driver;
	*n = 1;
	return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_version(ze_driver_handle_t handle,
				  ze_api_version_t *version)
{
	*version = ZE_API_VERSION_1_3;
	return ZE_RESULT_SUCCESS;
}

/* NEO's UUID holds the time when the process began. */
static ze_result_t driver_properties(ze_driver_handle_t handle,
				     ze_driver_properties_t *properties)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	memcpy(properties->uuid.id, &now, sizeof(properties->uuid.id));
	properties->driverVersion = 0x01030000;
	return ZE_RESULT_SUCCESS;
}

static ze_result_t driver_extensions(ze_driver_handle_t handle, uint32_t *n,
				     ze_driver_extension_properties_t *found)
{
	if (found && *n) {
		snprintf(found->name, sizeof(found->name), "%s", IP_VERSION);
		found->version = ZE_MAKE_VERSION(1, 0);
	}
	*n = 1;
	return ZE_RESULT_SUCCESS;
}

/* ---- Devices ----------------------------------------------------------------- */

static ze_result_t device_get(ze_driver_handle_t handle, uint32_t *n,
			      ze_device_handle_t *found)
{
	uint32_t i;

	for (i = 0; found && i < *n && i < N_DEVICES; i++)
		found[i] = &devices[i];
	if (!found || *n > N_DEVICES)
		*n = N_DEVICES;
	return ZE_RESULT_SUCCESS;
}

static ze_result_t device_parts(ze_device_handle_t handle, uint32_t *n,
				ze_device_handle_t *found)
{
	struct _ze_device_handle_t *part = handle == &devices[1]   ? &devices[3]
					   : handle == &devices[3] ? &devices[4]
								   : NULL;

	if (found && part && *n)
		found[0] = part;
	*n = part != NULL;
	return ZE_RESULT_SUCCESS;
}

static ze_result_t device_properties(ze_device_handle_t handle,
				     ze_device_properties_t *properties)
{
	struct {
		uint32_t stype;
		void *next;
		uint32_t version;
	} *ip = properties->pNext;

	properties->type = ZE_DEVICE_TYPE_GPU;
	properties->vendorId = 0x8086;
	properties->deviceId = handle->id;
	properties->numSlices = 1;
	properties->uuid.id[15] = (uint8_t)(handle - devices);
	snprintf(properties->name, sizeof(properties->name), "%s",
		 handle->name);
	if (ip && ip->stype == 0x1000f)
		ip->version = handle->ip_version;
	return ZE_RESULT_SUCCESS;
}

static ze_result_t device_compute(ze_device_handle_t handle,
				  ze_device_compute_properties_t *properties)
{
	properties->maxTotalGroupSize = 256;
	properties->maxSharedLocalMemory = 65536;
	properties->numSubGroupSizes = 2;
	properties->subGroupSizes[0] = 8;
	properties->subGroupSizes[1] = 16;
	return ZE_RESULT_SUCCESS;
}

static ze_result_t device_modules(ze_device_handle_t handle,
				  ze_device_module_properties_t *properties)
{
	properties->spirvVersionSupported = ZE_MAKE_VERSION(1, 2);
	properties->flags = ZE_DEVICE_MODULE_FLAG_FP16;
	properties->maxArgumentsSize = 2048;
	return ZE_RESULT_SUCCESS;
}

/* ---- Contexts ---------------------------------------------------------------- */

static ze_result_t context_create(ze_driver_handle_t handle,
				  const ze_context_desc_t *desc,
				  ze_context_handle_t *context)
{
	*context = calloc(1, sizeof(**context));
	return *context ? ZE_RESULT_SUCCESS
			: ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static ze_result_t context_destroy(ze_context_handle_t context)
{
	free(context);
	return ZE_RESULT_SUCCESS;
}

/* ---- Tables ------------------------------------------------------------------ */

static void fill_global(ze_global_dditable_t *table)
{
	table->pfnInit = init;
}

static void fill_driver(ze_driver_dditable_t *table)
{
	table->pfnGet = driver_get;
	table->pfnGetApiVersion = driver_version;
	table->pfnGetProperties = driver_properties;
	table->pfnGetExtensionProperties = driver_extensions;
}

static void fill_device(ze_device_dditable_t *table)
{
	table->pfnGet = device_get;
	table->pfnGetSubDevices = device_parts;
	table->pfnGetProperties = device_properties;
	table->pfnGetComputeProperties = device_compute;
	table->pfnGetModuleProperties = device_modules;
}

static void fill_context(ze_context_dditable_t *table)
{
	table->pfnCreate = context_create;
	table->pfnDestroy = context_destroy;
}

/* Tables of which nothing is needed stay empty. */
static void fill(const char *name, void *table)
{
	if (!strcmp(name, "zeGetGlobalProcAddrTable"))
		fill_global(table);
	else if (!strcmp(name, "zeGetDriverProcAddrTable"))
		fill_driver(table);
	else if (!strcmp(name, "zeGetDeviceProcAddrTable"))
		fill_device(table);
	else if (!strcmp(name, "zeGetContextProcAddrTable"))
		fill_context(table);
	else if (!strcmp(name, "zeGetModuleProcAddrTable"))
		fill_modules(table);
	else if (!strcmp(name, "zeGetModuleBuildLogProcAddrTable"))
		fill_logs(table);
}

/* What is newer has more pointers in a table, past those that are known. */
static ze_result_t answer(const char *name, ze_api_version_t version,
			  void *table)
{
	if (version < ZE_API_VERSION_1_0)
		return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
	fill(name, table);
#ifdef KILN_TEST_ZE_NEWER
	if (version > ZE_API_VERSION_CURRENT &&
	    !strcmp(name, "zeGetModuleProcAddrTable"))
		memcpy((ze_module_dditable_t *)table + 1, &name, sizeof(name));
#endif
	return ZE_RESULT_SUCCESS;
}

#define NAME(name)                                                             \
	PUBLIC ze_result_t entry_##name(ze_api_version_t version,              \
					void *table) __asm__(#name);           \
	ze_result_t entry_##name(ze_api_version_t version, void *table)        \
	{                                                                      \
		return answer(#name, version, table);                          \
	}
KI_ZE_NAMES(NAME)
#ifdef KILN_TEST_ZE_NEWER
KI_ZE_NEWER_NAMES(NAME)
#endif
#undef NAME
