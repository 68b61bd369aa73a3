/* SPDX-License-Identifier: MIT */

/*
 * A platform's identity is taken once: its strings, the libraries that its
 * driver links, down to libc, by build-id, and the files of the driver's row.
 * A device's identity is a handful of queries, and for processors what CPUID
 * says.  Nothing that tells two equal cards apart is asked for.
 *
 * The driver's library is where its clIcdGetPlatformIDsKHR is: never reached
 * through a handle, whose first word newer loaders keep for themselves.
 *
 * What was taken must stay true: each look-up looks at the files again, and,
 * if a library was loaded since, at the loaded ones.  The first difference
 * ends caching for this platform in this process.
 */

#include "front/opencl/identity.h"

#include <CL/cl_ext.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "front/opencl/image.h"
#include "front/opencl/layers.h"
#include "front/opencl/parts.h"

#define INFO_BYTES_MAX ((size_t)1 << 20) /* of one answer */

/* ---- Fields to be added to keys -------------------------------------- */

struct field {
	char *label;
	void *data;
	size_t size;
};

struct fields {
	struct field *fields;
	size_t n;
	int failed; /* 0 or -ENOMEM */
};

static void fields_fini(struct fields *fields)
{
	size_t i;

	for (i = 0; i < fields->n; i++) {
		free(fields->fields[i].label);
		free(fields->fields[i].data);
	}
	free(fields->fields);
	*fields = (struct fields){ 0 };
}

static void fields_add(struct fields *fields, const char *group,
		       const char *name, const void *data, size_t size)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	struct field *grown;

	if (fields->failed)
		return;
	snprintf(label, sizeof(label), "%s %s", group, name);
	grown = realloc(fields->fields, (fields->n + 1) * sizeof(*grown));
	if (!grown) {
		fields->failed = -ENOMEM;
		return;
	}
	fields->fields = grown;
	grown += fields->n;
	grown->label = strdup(label);
	grown->data = malloc(size + 1);
	grown->size = size;
	fields->n++;
	if (!grown->label || !grown->data)
		fields->failed = -ENOMEM;
	else
		memcpy(grown->data, data, size);
}

static void fields_add_string(struct fields *fields, const char *group,
			      const char *name, const char *text)
{
	fields_add(fields, group, name, text, strlen(text));
}

static void fields_to_key(const struct fields *fields, const char *prefix,
			  struct kiln_key *key)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	size_t i;

	for (i = 0; i < fields->n; i++) {
		snprintf(label, sizeof(label), "%s%s", prefix,
			 fields->fields[i].label);
		kiln_key_add(key, label, fields->fields[i].data,
			     fields->fields[i].size);
	}
}

/* ---- Structures ------------------------------------------------------ */

struct platform {
	/* Fixed once made. */
	const struct ki_cl_driver_row *row;
	struct fields fields; /* "platform ...", "compiler ..." */
	struct fields layers;
	const char **headers;
	size_t n_headers;
	/* Under identities->mutex: `identity` of files, `why`, `loaded`. */
	struct ki_cl_part_files files;
	const char *why; /* NULL: may be cached */
	int is_layered;	 /* `why` is an unknown layer */
	uint64_t loaded;
};

struct ki_cl_identities {
	/* Fixed once made. */
	const cl_icd_dispatch *calls;
	const struct ki_sys *sys;
	struct ki_cl_includes *includes;
	char cpu[KI_CL_CPU_BYTES];
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_map platforms; /* cl_platform_id -> struct platform */
	struct ki_map devices;	 /* cl_device_id -> struct fields */
};

struct ki_cl_identities *ki_cl_identities_new(const cl_icd_dispatch *calls)
{
	struct ki_cl_identities *identities = calloc(1, sizeof(*identities));

	if (!identities)
		return NULL;
	identities->calls = calls;
	identities->sys = &ki_sys_posix;
	identities->includes = ki_cl_includes_new(&ki_sys_posix);
	if (!identities->includes) {
		free(identities);
		return NULL;
	}
	ki_cl_cpu_identity(identities->cpu);
	ki_mutex_init(&identities->mutex, KI_RANK_KEY);
	ki_map_init(&identities->platforms);
	ki_map_init(&identities->devices);
	return identities;
}

static void platform_free(struct platform *platform)
{
	if (!platform)
		return;
	fields_fini(&platform->fields);
	fields_fini(&platform->layers);
	ki_cl_parts_fini(&platform->files);
	free(platform->headers);
	free(platform);
}

void ki_cl_identities_free(struct ki_cl_identities *identities)
{
	struct fields *device;
	void *platform;
	size_t position;

	if (!identities)
		return;
	for (position = 0;
	     (platform = ki_map_next(&identities->platforms, &position));)
		platform_free(platform);
	for (position = 0;
	     (device = ki_map_next(&identities->devices, &position));) {
		fields_fini(device);
		free(device);
	}
	ki_map_fini(&identities->platforms);
	ki_map_fini(&identities->devices);
	ki_cl_includes_free(identities->includes);
	ki_mutex_fini(&identities->mutex);
	free(identities);
}

struct ki_cl_includes *ki_cl_identities_includes(
	struct ki_cl_identities *identities)
{
	return identities->includes;
}

/* ---- Platforms ------------------------------------------------------- */

typedef cl_int info_fn(const void *handle, const cl_icd_dispatch *calls,
		       cl_uint what, size_t size, void *data, size_t *out_size);

static cl_int platform_info(const void *handle, const cl_icd_dispatch *calls,
			    cl_uint what, size_t size, void *data,
			    size_t *out_size)
{
	return calls->clGetPlatformInfo((cl_platform_id)(uintptr_t)handle, what,
					size, data, out_size);
}

static cl_int device_info(const void *handle, const cl_icd_dispatch *calls,
			  cl_uint what, size_t size, void *data,
			  size_t *out_size)
{
	return calls->clGetDeviceInfo((cl_device_id)(uintptr_t)handle, what,
				      size, data, out_size);
}

/* An answer with a NUL behind it, from malloc(); NULL if there is none. */
static char *ask(info_fn *info, const void *handle,
		 const cl_icd_dispatch *calls, cl_uint what, size_t *out_size)
{
	size_t size = 0;
	char *data;

	if (info(handle, calls, what, 0, NULL, &size) != CL_SUCCESS ||
	    size > INFO_BYTES_MAX)
		return NULL;
	data = calloc(1, size + 1);
	if (data && info(handle, calls, what, size, data, NULL) != CL_SUCCESS) {
		free(data);
		return NULL;
	}
	*out_size = size;
	return data;
}

struct question {
	cl_uint what;
	const char *name;
	const char *extension; /* asked only with this one; NULL: always */
};

/* Strings lose their NUL, numbers stay as they are. */
static void ask_all(struct fields *fields, const char *group, info_fn *info,
		    const void *handle, const cl_icd_dispatch *calls,
		    const struct question *questions, const char *extensions)
{
	size_t size;
	char *data;

	for (; questions->name; questions++) {
		if (questions->extension &&
		    !(extensions && strstr(extensions, questions->extension)))
			continue;
		data = ask(info, handle, calls, questions->what, &size);
		if (!data)
			continue;
		if (size > 1 && strlen(data) == size - 1)
			size--;
		fields_add(fields, group, questions->name, data, size);
		free(data);
	}
}

static const struct question PLATFORM_QUESTIONS[] = {
	{ CL_PLATFORM_NAME, "name", NULL },
	{ CL_PLATFORM_VENDOR, "vendor", NULL },
	{ CL_PLATFORM_VERSION, "version", NULL },
	{ CL_PLATFORM_PROFILE, "profile", NULL },
	{ CL_PLATFORM_EXTENSIONS, "extensions", NULL },
	{ 0, NULL, NULL },
};

/* The image of the driver, or NULL if this cannot be told. */
static const struct ki_cl_image *find_driver(const cl_icd_dispatch *calls,
					     cl_platform_id platform,
					     const struct ki_cl_images *images)
{
	const struct ki_cl_image *image = NULL;
	const struct ki_cl_driver_row *row;
	size_t size;
	void *entry = NULL;
	char *name;

	if (calls->clGetExtensionFunctionAddressForPlatform)
		entry = calls->clGetExtensionFunctionAddressForPlatform(
			platform, "clIcdGetPlatformIDsKHR");
	if (entry)
		image = ki_cl_image_at(images, entry);
	if (image && strncmp(image->name, "libOpenCL.so", 12))
		return image;
	name = ask(platform_info, platform, calls, CL_PLATFORM_NAME, &size);
	row = name ? ki_cl_driver_of_platform(name) : NULL;
	free(name);
	return row ? ki_cl_image_named(images, row->library) : NULL;
}

/* Identify a loaded library: memory knows, else the file. */
static int identify_image(const struct ki_sys *sys,
			  const struct ki_cl_image *image,
			  char out[KI_CL_IDENTITY_BYTES])
{
	if (!*image->build_id)
		return ki_cl_library_identity(sys, image->path, out);
	strcpy(out, image->build_id);
	return 0;
}

static int by_image_name(const void *a, const void *b)
{
	return strcmp((*(const struct ki_cl_image *const *)a)->name,
		      (*(const struct ki_cl_image *const *)b)->name);
}

/* The driver's library and all that it links, as fields in order of names. */
static int add_closure(const struct ki_sys *sys,
		       const struct ki_cl_images *images,
		       const struct ki_cl_image *driver, struct fields *fields)
{
	const struct ki_cl_image **closure, *next;
	char identity[KI_CL_IDENTITY_BYTES];
	size_t i, j, k, n = 0;
	int err = 0;

	closure = calloc(images->n + 1, sizeof(*closure));
	if (!closure)
		return -ENOMEM;
	closure[n++] = driver;
	for (i = 0; i < n; i++)
		for (j = 0; closure[i]->needed[j]; j++) {
			next = ki_cl_image_named(images, closure[i]->needed[j]);
			for (k = 0; k < n && closure[k] != next; k++)
				;
			if (next && k == n)
				closure[n++] = next;
		}
	qsort(closure, n, sizeof(*closure), by_image_name);
	for (i = 0; i < n && !err; i++) {
		err = identify_image(sys, closure[i], identity);
		if (!err)
			fields_add_string(fields, "compiler library",
					  closure[i]->name, identity);
	}
	free(closure);
	return err ? err : fields->failed;
}

static int add_files(struct platform *platform)
{
	struct ki_cl_part_file *file;
	size_t i;

	platform->headers =
		calloc(platform->files.n + 1, sizeof(*platform->headers));
	if (!platform->headers)
		return -ENOMEM;
	for (i = 0; i < platform->files.n; i++) {
		file = &platform->files.files[i];
		if (file->part->kind == KI_CL_PART_HEADER)
			platform->headers[platform->n_headers++] = file->path;
		if (*file->identity)
			fields_add_string(&platform->fields, "compiler file",
					  file->name, file->identity);
	}
	return platform->fields.failed;
}

static int is_refused(const struct ki_cl_driver_row *row)
{
	const char *value;
	size_t i;

	for (i = 0; row->refused_variables[i]; i++) {
		value = ki_environment(row->refused_variables[i]);
		if (value && *value && strcmp(value, "0"))
			return 1;
	}
	return 0;
}

/* "layer N": name and identity of each layer below us. */
static int add_layers(const struct ki_sys *sys,
		      const struct ki_cl_images *images,
		      struct platform *platform)
{
	const struct ki_cl_image *own = ki_cl_image_at(
		images, (const void *)(uintptr_t)ki_cl_identities_new);
	char identity[KI_CL_IDENTITY_BYTES], text[KI_PATH_MAX], name[32];
	struct ki_cl_words paths = { 0 };
	size_t i;
	int err;

	if (own && !*own->path)
		own = NULL;
	err = ki_cl_layers_below(sys, images, own, &paths);
	for (i = 0; i < paths.n && !err; i++) {
		if (!ki_cl_layer_is_known(paths.words[i])) {
			platform->is_layered = 1;
			platform->why = "an unknown OpenCL layer is below kiln";
			break;
		}
		err = ki_cl_library_identity(sys, paths.words[i], identity);
		snprintf(name, sizeof(name), "%zu", i);
		snprintf(text, sizeof(text), "%.200s %s",
			 ki_cl_last_part(paths.words[i]), identity);
		if (!err)
			fields_add_string(&platform->layers, "layer", name,
					  text);
	}
	ki_cl_words_fini(&paths);
	return err ? err : platform->layers.failed;
}

/* Fill a platform; `why` is set where it may not be cached.  0 or -ENOMEM. */
static int platform_fill(struct platform *platform,
			 struct ki_cl_identities *identities, cl_platform_id id,
			 const struct ki_cl_images *images)
{
	const struct ki_sys *sys = identities->sys;
	const struct ki_cl_image *driver;
	int err;

	ask_all(&platform->fields, "platform", platform_info, id,
		identities->calls, PLATFORM_QUESTIONS, NULL);
	driver = find_driver(identities->calls, id, images);
	if (!driver) {
		platform->row = ki_cl_driver_of_library("");
		platform->why = "the driver's library was not found";
		return platform->fields.failed;
	}
	platform->row = ki_cl_driver_of_library(ki_cl_last_part(driver->path));
	if (!ki_cl_driver_is_known(platform->row))
		platform->row = ki_cl_driver_of_library(driver->name);
	if (!ki_cl_driver_is_known(platform->row)) {
		platform->why = "the driver is not one that kiln knows";
		return platform->fields.failed;
	}
	err = add_closure(sys, images, driver, &platform->fields);
	if (!err)
		err = ki_cl_parts_find(sys, platform->row, driver->path,
				       &platform->files);
	if (!err)
		err = add_files(platform);
	if (!err && ki_cl_parts_loaded_otherwise(sys, platform->row,
						 &platform->files, images))
		err = -EAGAIN;
	if (err && err != -ENOMEM) {
		platform->why = "the driver's files could not be identified";
		return 0;
	}
	if (!err && is_refused(platform->row))
		platform->why = "a variable switches the driver to a mode that "
				"kiln does not know";
	return err ? err : add_layers(sys, images, platform);
}

static struct platform *platform_new(struct ki_cl_identities *identities,
				     cl_platform_id id)
{
	struct platform *platform = calloc(1, sizeof(*platform));
	struct ki_cl_images images;
	int err;

	if (!platform)
		return NULL;
	platform->loaded = ki_cl_images_loaded();
	ki_cl_images_take(&images);
	err = images.failed;
	if (!err)
		err = platform_fill(platform, identities, id, &images);
	ki_cl_images_fini(&images);
	if (err && err != -ENOMEM) {
		platform->why = "the layers below kiln could not be read";
		err = 0;
	}
	if (err) {
		platform_free(platform);
		return NULL;
	}
	return platform;
}

/* The platform's identity, made at the first call; NULL without memory. */
static struct platform *platform_of(struct ki_cl_identities *identities,
				    cl_platform_id id)
{
	struct platform *platform, *made;

	ki_mutex_lock(&identities->mutex);
	platform = ki_map_get(&identities->platforms, (uintptr_t)id);
	ki_mutex_unlock(&identities->mutex);
	if (platform || !id)
		return platform;
	made = platform_new(identities, id);
	if (!made)
		return NULL;
	ki_mutex_lock(&identities->mutex);
	platform = ki_map_get(&identities->platforms, (uintptr_t)id);
	if (!platform &&
	    !ki_map_put(&identities->platforms, (uintptr_t)id, made)) {
		platform = made;
		made = NULL;
	}
	ki_mutex_unlock(&identities->mutex);
	platform_free(made);
	return platform;
}

/* Look whether what was identified is still so. */
static void recheck(struct ki_cl_identities *identities,
		    struct platform *platform)
{
	uint64_t loaded = ki_cl_images_loaded(), before;
	struct ki_cl_images images;
	const char *why = NULL;

	ki_mutex_lock(&identities->mutex);
	before = platform->loaded;
	why = platform->why;
	ki_mutex_unlock(&identities->mutex);
	if (why)
		return;
	if (ki_cl_parts_changed(identities->sys, &platform->files))
		why = "the driver's files changed while the program ran";
	if (!why && loaded != before) {
		ki_cl_images_take(&images);
		if (images.failed ||
		    ki_cl_parts_loaded_otherwise(identities->sys, platform->row,
						 &platform->files, &images))
			why = "a library of the compiler is not the one that "
			      "was there at first";
		ki_cl_images_fini(&images);
	}
	ki_mutex_lock(&identities->mutex);
	platform->loaded = loaded;
	if (why)
		platform->why = why;
	ki_mutex_unlock(&identities->mutex);
}

enum kiln_status ki_cl_platform_status(struct ki_cl_identities *identities,
				       cl_platform_id id, const char **out_why)
{
	struct platform *platform = platform_of(identities, id);
	const char *why;

	if (!platform) {
		*out_why = id ? "there is no memory"
			      : "the program named no platform";
		return id ? KILN_E_NO_MEMORY : KILN_E_UNSUPPORTED;
	}
	recheck(identities, platform);
	ki_mutex_lock(&identities->mutex);
	why = platform->why;
	ki_mutex_unlock(&identities->mutex);
	if (why)
		*out_why = why;
	return why ? KILN_E_UNSUPPORTED : KILN_OK;
}

const struct ki_cl_driver_row *ki_cl_identities_row(
	struct ki_cl_identities *identities, cl_platform_id id)
{
	const struct platform *platform = platform_of(identities, id);

	return platform ? platform->row : ki_cl_driver_of_library("");
}

const struct ki_cl_driver *ki_cl_driver(struct ki_cl_identities *identities,
					cl_platform_id id)
{
	return &ki_cl_identities_row(identities, id)->driver;
}

size_t ki_cl_identities_headers(struct ki_cl_identities *identities,
				cl_platform_id id,
				const char *const **out_paths)
{
	const struct platform *platform = platform_of(identities, id);

	*out_paths = platform ? platform->headers : NULL;
	return platform ? platform->n_headers : 0;
}

/* ---- Devices --------------------------------------------------------- */

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

static const struct question DEVICE_QUESTIONS[] = {
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

static void device_fill(struct ki_cl_identities *identities, cl_device_id id,
			struct fields *fields)
{
	const cl_icd_dispatch *calls = identities->calls;
	cl_device_type type = 0;
	size_t size;
	char *extensions =
		ask(device_info, id, calls, CL_DEVICE_EXTENSIONS, &size);

	ask_all(fields, "", device_info, id, calls, DEVICE_QUESTIONS,
		extensions);
	free(extensions);
	if (device_info(id, calls, CL_DEVICE_TYPE, sizeof(type), &type, NULL) ||
	    (type & CL_DEVICE_TYPE_CPU))
		fields_add_string(fields, "", "processor", identities->cpu);
}

/* A handle of a sub-device comes and goes, and may be another's later. */
static int is_sub_device(struct ki_cl_identities *identities, cl_device_id id)
{
	cl_device_id parent = NULL;

	return device_info(id, identities->calls, CL_DEVICE_PARENT_DEVICE,
			   sizeof(parent), &parent, NULL) == CL_SUCCESS &&
	       parent;
}

/* Keep a device's fields for the next time; returns whether they were. */
static int device_keep(struct ki_cl_identities *identities, cl_device_id id,
		       const struct fields *fields)
{
	struct fields *kept = malloc(sizeof(*kept));
	int is_kept = 0;

	if (!kept)
		return 0;
	*kept = *fields;
	ki_mutex_lock(&identities->mutex);
	if (!ki_map_get(&identities->devices, (uintptr_t)id))
		is_kept =
			!ki_map_put(&identities->devices, (uintptr_t)id, kept);
	ki_mutex_unlock(&identities->mutex);
	if (!is_kept)
		free(kept);
	return is_kept;
}

static enum kiln_status device_to_key(struct ki_cl_identities *identities,
				      cl_device_id id, cl_uint index,
				      struct kiln_key *key)
{
	struct fields fields = { 0 };
	const struct fields *kept;
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "device %u", index);
	ki_mutex_lock(&identities->mutex);
	kept = ki_map_get(&identities->devices, (uintptr_t)id);
	ki_mutex_unlock(&identities->mutex);
	if (kept) {
		fields_to_key(kept, prefix, key);
		return KILN_OK;
	}
	device_fill(identities, id, &fields);
	if (fields.failed) {
		fields_fini(&fields);
		return KILN_E_NO_MEMORY;
	}
	fields_to_key(&fields, prefix, key);
	if (is_sub_device(identities, id) ||
	    !device_keep(identities, id, &fields))
		fields_fini(&fields);
	return KILN_OK;
}

/* ---- What devices use of the compiler's files ------------------------ */

static int any_device_uses(struct ki_cl_identities *identities,
			   const struct ki_cl_build *build,
			   const struct ki_cl_part_file *file)
{
	size_t size;
	cl_uint i;
	char *name;
	int uses = 0;

	if (ki_environment("POCL_KERNELLIB_NAME") ||
	    ki_environment("POCL_LLVM_CPU_NAME"))
		return 1;
	for (i = 0; i < build->n_devices && !uses; i++) {
		name = ask(device_info, build->devices[i], identities->calls,
			   CL_DEVICE_NAME, &size);
		uses = name ? ki_cl_driver_uses(file->part, file->name, name)
			    : -1;
		free(name);
	}
	return uses != 0;
}

/* The identity of a builtin library, taken when the first device needs it. */
static int identity_of_file(struct ki_cl_identities *identities,
			    struct ki_cl_part_file *file,
			    char out[KI_CL_IDENTITY_BYTES])
{
	int err;

	ki_mutex_lock(&identities->mutex);
	strcpy(out, file->identity);
	ki_mutex_unlock(&identities->mutex);
	if (*out)
		return 0;
	err = ki_cl_part_identify(identities->sys, file, out);
	if (err)
		return err;
	ki_mutex_lock(&identities->mutex);
	strcpy(file->identity, out);
	ki_mutex_unlock(&identities->mutex);
	return 0;
}

static int device_files_to_key(struct ki_cl_identities *identities,
			       const struct ki_cl_build *build,
			       struct platform *platform, struct kiln_key *key)
{
	char identity[KI_CL_IDENTITY_BYTES];
	char label[KILN_LABEL_BYTES_MAX + 1];
	struct ki_cl_part_file *file;
	size_t i;
	int err = 0;

	for (i = 0; i < platform->files.n && !err; i++) {
		file = &platform->files.files[i];
		if (file->part->kind != KI_CL_PART_PER_DEVICE ||
		    !any_device_uses(identities, build, file))
			continue;
		err = identity_of_file(identities, file, identity);
		snprintf(label, sizeof(label), "compiler file %s", file->name);
		if (!err)
			kiln_key_add_string(key, label, identity);
	}
	return err;
}

/* ---- The whole ------------------------------------------------------- */

static void environment_to_key(const struct ki_cl_driver_row *row,
			       struct kiln_key *key)
{
	const char *const *name;
	const char *value;
	char label[KILN_LABEL_BYTES_MAX + 1];

	for (name = row->driver.code_variables; *name; name++) {
		value = ki_environment(*name);
		if (!value)
			continue;
		snprintf(label, sizeof(label), "environment %s", *name);
		kiln_key_add_string(key, label, value);
	}
}

enum kiln_status ki_cl_identity_add(struct ki_cl_identities *identities,
				    const struct ki_cl_build *build,
				    struct kiln_key *key,
				    enum kiln_counter *out_reason)
{
	enum kiln_status status;
	struct platform *platform;
	const char *why;
	cl_uint i;
	int err;

	status = ki_cl_platform_status(identities, build->platform, &why);
	platform = platform_of(identities, build->platform);
	if (status) {
		*out_reason = platform && platform->is_layered
				      ? KILN_COUNT_MISS_UNKNOWN_LAYER
				      : KILN_COUNT_MISS_UNSUPPORTED;
		return status;
	}
	fields_to_key(&platform->fields, "", key);
	err = device_files_to_key(identities, build, platform, key);
	if (err) {
		*out_reason = KILN_COUNT_MISS_UNSUPPORTED;
		return err == -ENOMEM ? KILN_E_NO_MEMORY : KILN_E_UNSUPPORTED;
	}
	for (i = 0; i < build->n_devices && !status; i++)
		status = device_to_key(identities, build->devices[i], i, key);
	environment_to_key(platform->row, key);
	fields_to_key(&platform->layers, "", key);
	return status;
}
