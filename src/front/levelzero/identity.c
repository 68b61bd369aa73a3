/* SPDX-License-Identifier: MIT */

/*
 * The driver is identified once, at the first look-up: its library and all that
 * it links, by build-id, and the compiler that it loads late, on disk.  Each
 * look-up sees whether those files are still the same; a build, whether the
 * compiler that was loaded is the one that was identified.  The first difference
 * ends caching for this process.
 *
 * Variables are as they were when the driver was loaded, because nobody tells
 * when it reads them: a program that sets one later is not cached.
 *
 * A device is identified by what makes code differ.  Not by its UUID, which
 * holds its place on the bus, nor by the driver's, which holds the time when
 * the process began.
 */

#include "front/levelzero/ze.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "front/closure.h"
#include "front/image.h"

/* Newer headers have it: ze_device_ip_version_ext_t. */
#define IP_VERSION_EXTENSION "ZE_extension_device_ip_version"
#define IP_VERSION_STYPE     0x1000f
struct ip_version {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t version;
};

#define HANDLES_MAX 4096 /* of drivers, devices, extensions */

/* A newer driver's table may be longer than the one that is known here. */
union driver_table {
	ze_driver_dditable_t calls;
	char room[4096];
};
union device_table {
	ze_device_dditable_t calls;
	char room[4096];
};

/* Under mutex; tables and row are fixed before the first look-up, `fields` once
   `is_taken`. */
static struct ki_mutex mutex = KI_MUTEX_INIT(KEY);
static struct ki_map devices; /* ze_device_handle_t -> struct ki_fields */
static struct {
	const struct ki_ze_driver *row;
	struct ki_fields fields;
	struct ki_part_files files;
	union driver_table driver;
	union device_table device;
	const char *why; /* NULL: may be cached */
	uint64_t loaded; /* number of libraries that were */
	int is_taken;
} own;
static uint64_t variables; /* fixed once the driver is loaded */

/* ---- The compiler ------------------------------------------------------------ */

static const struct ki_image *find_driver(const struct ki_images *images)
{
	void *entry = ki_ze_symbol("zeGetModuleProcAddrTable");

	return entry ? ki_image_at(images, entry) : NULL;
}

static const struct ki_ze_driver *row_of(const struct ki_image *image)
{
	const struct ki_ze_driver *row =
		ki_ze_driver_of_library(ki_last_part(image->path));

	return row ? row : ki_ze_driver_of_library(image->name);
}

void ki_ze_identity_init(void)
{
	const struct ki_image *image;
	struct ki_images images;

	ki_images_take(&images);
	image = images.failed ? NULL : find_driver(&images);
	own.row = image ? row_of(image) : NULL;
	ki_images_fini(&images);
	if (own.row)
		variables = ki_ze_variables(own.row);
}

void ki_ze_identity_tables(void)
{
	ze_pfnGetDriverProcAddrTable_t get_driver =
		(ze_pfnGetDriverProcAddrTable_t)ki_ze_symbol(
			"zeGetDriverProcAddrTable");
	ze_pfnGetDeviceProcAddrTable_t get_device =
		(ze_pfnGetDeviceProcAddrTable_t)ki_ze_symbol(
			"zeGetDeviceProcAddrTable");

	if (get_driver)
		(void)get_driver(ki_ze_next.version, &own.driver.calls);
	if (get_device)
		(void)get_device(ki_ze_next.version, &own.device.calls);
}

static int has_tables(void)
{
	return own.driver.calls.pfnGet && own.driver.calls.pfnGetApiVersion &&
	       own.driver.calls.pfnGetProperties &&
	       own.driver.calls.pfnGetExtensionProperties &&
	       own.device.calls.pfnGet && own.device.calls.pfnGetSubDevices &&
	       own.device.calls.pfnGetProperties &&
	       own.device.calls.pfnGetComputeProperties &&
	       own.device.calls.pfnGetModuleProperties;
}

static int add_files(void)
{
	const struct ki_part_file *file;
	size_t i;

	for (i = 0; i < own.files.n; i++) {
		file = &own.files.files[i];
		ki_fields_add_string(&own.fields, "compiler file", file->name,
				     file->identity);
	}
	return own.fields.failed;
}

static void take_locked(void) KI_REQUIRES(&mutex)
{
	const struct ki_sys *sys = &ki_sys_posix;
	const struct ki_image *image;
	struct ki_images images;
	int err;

	own.is_taken = 1;
	if (!own.row) {
		own.why = "the driver is not one that kiln knows";
		return;
	}
	own.loaded = ki_images_loaded();
	ki_images_take(&images);
	image = images.failed ? NULL : find_driver(&images);
	err = image ? ki_closure_add(sys, &images, image, &own.fields)
		    : -ENOENT;
	if (!err)
		err = ki_parts_find(sys, own.row->parts, own.row->n_parts,
				    image->path, &own.files);
	if (!err)
		err = add_files();
	if (!err &&
	    ki_parts_loaded_otherwise(sys, own.row->parts, own.row->n_parts,
				      &own.files, &images))
		err = -EAGAIN;
	ki_images_fini(&images);
	if (!err && !has_tables())
		err = -ENOSYS;
	if (err)
		own.why = "the driver's files could not be identified";
	else if (ki_parts_hidden(sys, &own.files))
		own.why = "LD_LIBRARY_PATH leads to another compiler";
}

/* Whether what was identified is still so. */
static const char *recheck_locked(void) KI_REQUIRES(&mutex)
{
	uint64_t loaded = ki_images_loaded();
	struct ki_images images;
	int is_other;

	if (ki_parts_changed(&ki_sys_posix, &own.files))
		return "the driver's files changed while the program ran";
	if (ki_ze_variables(own.row) != variables)
		return "a variable of the compiler changed while the program "
		       "ran";
	if (loaded == own.loaded)
		return NULL;
	ki_images_take(&images);
	is_other = images.failed ||
		   ki_parts_loaded_otherwise(&ki_sys_posix, own.row->parts,
					     own.row->n_parts, &own.files,
					     &images);
	ki_images_fini(&images);
	own.loaded = loaded;
	return is_other ? "a library of the compiler is not the one that was "
			  "there at first"
			: NULL;
}

/* The driver as it is now, or why there is no caching. */
static const char *examine(void)
{
	const char *why;

	ki_mutex_lock(&mutex);
	if (!own.is_taken)
		take_locked();
	if (!own.why)
		own.why = recheck_locked();
	why = own.why;
	ki_mutex_unlock(&mutex);
	return why ? why : ki_ze_refusal(own.row);
}

int ki_ze_identity_holds(void)
{
	return !examine();
}

void ki_ze_environment(struct ki_bytes *out)
{
	const char *const *name;
	const char *value;

	for (name = own.row->code_variables; *name; name++) {
		value = ki_environment(*name);
		if (value)
			ki_bytes_printf(out, "%s=%s%c", *name, value, '\0');
	}
}

/* ---- Which driver a device belongs to -------------------------------------- */

static int is_below(ze_device_handle_t root, ze_device_handle_t device)
{
	ze_device_handle_t *found = NULL;
	uint32_t n = 0, i;
	int is_found = 0;

	if (own.device.calls.pfnGetSubDevices(root, &n, NULL) || !n ||
	    n > HANDLES_MAX)
		return 0;
	found = calloc(n, sizeof(*found));
	if (found && !own.device.calls.pfnGetSubDevices(root, &n, found))
		for (i = 0; i < n && !is_found; i++)
			is_found = found[i] == device ||
				   is_below(found[i], device);
	free(found);
	return is_found;
}

static int has_device(ze_driver_handle_t driver, ze_device_handle_t device)
{
	ze_device_handle_t *found = NULL;
	uint32_t n = 0, i;
	int is_found = 0;

	if (own.device.calls.pfnGet(driver, &n, NULL) || !n || n > HANDLES_MAX)
		return 0;
	found = calloc(n, sizeof(*found));
	if (found && !own.device.calls.pfnGet(driver, &n, found)) {
		for (i = 0; i < n && !is_found; i++)
			is_found = found[i] == device;
		for (i = 0; i < n && !is_found; i++)
			is_found = is_below(found[i], device);
	}
	free(found);
	return is_found;
}

static ze_driver_handle_t driver_of(ze_device_handle_t device)
{
	ze_driver_handle_t *found, driver = NULL;
	uint32_t n = 0, i;

	if (own.driver.calls.pfnGet(&n, NULL) || !n || n > HANDLES_MAX)
		return NULL;
	found = calloc(n, sizeof(*found));
	if (found && !own.driver.calls.pfnGet(&n, found))
		for (i = 0; i < n && !driver; i++)
			if (has_device(found[i], device))
				driver = found[i];
	free(found);
	return driver;
}

static int has_extension(ze_driver_handle_t driver, const char *name)
{
	ze_driver_extension_properties_t *found = NULL;
	uint32_t n = 0, i;
	int has = 0;

	if (own.driver.calls.pfnGetExtensionProperties(driver, &n, NULL) ||
	    !n || n > HANDLES_MAX)
		return 0;
	found = calloc(n, sizeof(*found));
	if (found &&
	    !own.driver.calls.pfnGetExtensionProperties(driver, &n, found))
		for (i = 0; i < n && !has; i++)
			has = !strncmp(found[i].name, name,
				       sizeof(found[i].name));
	free(found);
	return has;
}

/* ---- The device ------------------------------------------------------------- */

static void add_number(struct ki_fields *fields, const char *group,
		       const char *name, uint64_t value)
{
	uint8_t bytes[8];

	ki_put_u64(bytes, value);
	ki_fields_add(fields, group, name, bytes, sizeof(bytes));
}

static int add_driver(ze_driver_handle_t driver, struct ki_fields *fields)
{
	ze_driver_properties_t properties = {
		.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES,
	};
	ze_api_version_t version = 0;

	if (own.driver.calls.pfnGetApiVersion(driver, &version) ||
	    own.driver.calls.pfnGetProperties(driver, &properties))
		return -ENOSYS;
	add_number(fields, "platform", "api version", version);
	add_number(fields, "platform", "driver version",
		   properties.driverVersion);
	return 0;
}

static int add_properties(ze_device_handle_t device, int has_ip_version,
			  struct ki_fields *fields)
{
	struct ip_version ip = {
		.stype = (ze_structure_type_t)IP_VERSION_STYPE
	};
	ze_device_properties_t all = {
		.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES,
		.pNext = has_ip_version ? &ip : NULL,
	};

	if (own.device.calls.pfnGetProperties(device, &all))
		return -ENOSYS;
	ki_fields_add(fields, "device 0", "name", all.name,
		      strnlen(all.name, sizeof(all.name)));
	add_number(fields, "device 0", "type", all.type);
	add_number(fields, "device 0", "vendor id", all.vendorId);
	add_number(fields, "device 0", "id", all.deviceId);
	add_number(fields, "device 0", "flags", all.flags);
	if (has_ip_version)
		add_number(fields, "device 0", "ip version", ip.version);
	add_number(fields, "device 0", "slices", all.numSlices);
	add_number(fields, "device 0", "subslices", all.numSubslicesPerSlice);
	add_number(fields, "device 0", "units", all.numEUsPerSubslice);
	add_number(fields, "device 0", "threads", all.numThreadsPerEU);
	add_number(fields, "device 0", "simd width", all.physicalEUSimdWidth);
	return 0;
}

static int add_compute(ze_device_handle_t device, struct ki_fields *fields)
{
	ze_device_compute_properties_t all = {
		.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES,
	};
	uint32_t i, n;

	if (own.device.calls.pfnGetComputeProperties(device, &all))
		return -ENOSYS;
	add_number(fields, "device 0", "work-group size",
		   all.maxTotalGroupSize);
	add_number(fields, "device 0", "local memory",
		   all.maxSharedLocalMemory);
	n = all.numSubGroupSizes < ZE_SUBGROUPSIZE_COUNT
		    ? all.numSubGroupSizes
		    : ZE_SUBGROUPSIZE_COUNT;
	for (i = 0; i < n; i++)
		add_number(fields, "device 0", "sub-group size",
			   all.subGroupSizes[i]);
	return 0;
}

static int add_module(ze_device_handle_t device, struct ki_fields *fields)
{
	ze_device_module_properties_t all = {
		.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES,
	};

	if (own.device.calls.pfnGetModuleProperties(device, &all))
		return -ENOSYS;
	add_number(fields, "device 0", "spir-v", all.spirvVersionSupported);
	add_number(fields, "device 0", "module flags", all.flags);
	add_number(fields, "device 0", "half", all.fp16flags);
	add_number(fields, "device 0", "single", all.fp32flags);
	add_number(fields, "device 0", "double", all.fp64flags);
	add_number(fields, "device 0", "arguments", all.maxArgumentsSize);
	add_number(fields, "device 0", "printf buffer", all.printfBufferSize);
	ki_fields_add(fields, "device 0", "native format",
		      all.nativeKernelSupported.id,
		      sizeof(all.nativeKernelSupported.id));
	return 0;
}

/* 0, -ENOMEM, or -ENOSYS if the driver does not tell. */
static int fill(ze_device_handle_t device, struct ki_fields *fields)
{
	ze_driver_handle_t driver = driver_of(device);
	int err;

	if (!driver)
		return -ENOSYS;
	err = add_driver(driver, fields);
	if (!err)
		err = add_properties(
			device, has_extension(driver, IP_VERSION_EXTENSION),
			fields);
	if (!err)
		err = add_compute(device, fields);
	if (!err)
		err = add_module(device, fields);
	return err ? err : fields->failed;
}

static struct ki_fields *device_new(ze_device_handle_t device, int *out_err)
{
	struct ki_fields *fields = calloc(1, sizeof(*fields));

	*out_err = fields ? fill(device, fields) : -ENOMEM;
	if (!*out_err)
		return fields;
	if (fields)
		ki_fields_fini(fields);
	free(fields);
	return NULL;
}

/* Made at the first call; devices stay as long as their driver. */
static const struct ki_fields *device_of(ze_device_handle_t device,
					 int *out_err)
{
	struct ki_fields *found, *made;

	ki_mutex_lock(&mutex);
	found = ki_map_get(&devices, (uintptr_t)device);
	ki_mutex_unlock(&mutex);
	if (found)
		return found;
	made = device_new(device, out_err);
	if (!made)
		return NULL;
	ki_mutex_lock(&mutex);
	found = ki_map_get(&devices, (uintptr_t)device);
	if (!found && !ki_map_put(&devices, (uintptr_t)device, made)) {
		found = made;
		made = NULL;
	}
	ki_mutex_unlock(&mutex);
	if (made) {
		ki_fields_fini(made);
		free(made);
	}
	*out_err = found ? 0 : -ENOMEM;
	return found;
}

/* ---- The whole ------------------------------------------------------------- */

static void environment_to_key(struct kiln_key *key)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	const char *const *name;
	const char *value;

	for (name = own.row->code_variables; *name; name++) {
		value = ki_environment(*name);
		if (!value)
			continue;
		snprintf(label, sizeof(label), "environment %s", *name);
		kiln_key_add_string(key, label, value);
	}
}

enum kiln_status ki_ze_identity_add(ze_device_handle_t device,
				    struct kiln_key *key, const char **out_why)
{
	const struct ki_fields *fields;
	const char *why = examine();
	int err = 0;

	if (why) {
		*out_why = why;
		return KILN_E_UNSUPPORTED;
	}
	fields = device_of(device, &err);
	if (!fields) {
		*out_why = "the driver does not tell what device this is";
		return err == -ENOMEM ? KILN_E_NO_MEMORY : KILN_E_UNSUPPORTED;
	}
	ki_fields_to_key(&own.fields, "", key);
	ki_fields_to_key(fields, "", key);
	environment_to_key(key);
	return KILN_OK;
}
