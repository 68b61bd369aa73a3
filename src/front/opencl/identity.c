/* SPDX-License-Identifier: MIT */

/*
 * A platform's identity is taken once: its strings, the libraries that its
 * driver links, down to libc, by build-id, and the files of the driver's row.
 *
 * The driver's library is where its clIcdGetPlatformIDsKHR is: never reached
 * through a handle, whose first word newer loaders keep for themselves.
 *
 * What was taken must stay true: each look-up looks at the files again, and,
 * if a library was loaded since, at the loaded ones.  The first difference
 * ends caching for this platform in this process.
 */

#include "front/opencl/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "front/closure.h"
#include "front/image.h"
#include "front/neo.h"
#include "front/opencl/device.h"
#include "front/opencl/fields.h"
#include "front/opencl/layers.h"
#include "front/parts.h"

/* ---- Structures ------------------------------------------------------ */

struct platform {
	/* Fixed once made. */
	const struct ki_cl_driver_row *row;
	struct ki_fields fields; /* "platform ...", "compiler ..." */
	struct ki_fields layers;
	const char **headers;
	size_t n_headers;
	uint64_t variables; /* by which programs were found */
	/* Under identities->mutex: `identity` of files, `why`, `loaded`. */
	struct ki_part_files files;
	const char *why; /* NULL: may be cached */
	int is_layered;	 /* `why` is an unknown layer */
	uint64_t loaded;
};

struct ki_cl_identities {
	/* Fixed once made. */
	const cl_icd_dispatch *calls;
	const struct ki_sys *sys;
	struct ki_cl_includes *includes;
	struct ki_cl_devices *devices;
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_map platforms; /* cl_platform_id -> struct platform */
};

struct ki_cl_identities *ki_cl_identities_new(const cl_icd_dispatch *calls)
{
	struct ki_cl_identities *identities = calloc(1, sizeof(*identities));

	if (!identities)
		return NULL;
	identities->calls = calls;
	identities->sys = &ki_sys_posix;
	identities->includes = ki_cl_includes_new(&ki_sys_posix);
	identities->devices = ki_cl_devices_new(calls);
	if (!identities->includes || !identities->devices) {
		ki_cl_includes_free(identities->includes);
		ki_cl_devices_free(identities->devices);
		free(identities);
		return NULL;
	}
	ki_mutex_init(&identities->mutex, KI_RANK_KEY);
	ki_map_init(&identities->platforms);
	return identities;
}

static void platform_free(struct platform *platform)
{
	if (!platform)
		return;
	ki_fields_fini(&platform->fields);
	ki_fields_fini(&platform->layers);
	ki_parts_fini(&platform->files);
	free(platform->headers);
	free(platform);
}

void ki_cl_identities_free(struct ki_cl_identities *identities)
{
	void *platform;
	size_t position;

	if (!identities)
		return;
	for (position = 0;
	     (platform = ki_map_next(&identities->platforms, &position));)
		platform_free(platform);
	ki_map_fini(&identities->platforms);
	ki_cl_devices_free(identities->devices);
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

static const struct ki_cl_question PLATFORM_QUESTIONS[] = {
	{ CL_PLATFORM_NAME, "name", NULL },
	{ CL_PLATFORM_VENDOR, "vendor", NULL },
	{ CL_PLATFORM_VERSION, "version", NULL },
	{ CL_PLATFORM_PROFILE, "profile", NULL },
	{ CL_PLATFORM_EXTENSIONS, "extensions", NULL },
	{ 0, NULL, NULL },
};

/* The image of the driver, or NULL if this cannot be told. */
static const struct ki_image *find_driver(const cl_icd_dispatch *calls,
					  cl_platform_id platform,
					  const struct ki_images *images)
{
	const struct ki_image *image = NULL;
	const struct ki_cl_driver_row *row;
	size_t size;
	void *entry = NULL;
	char *name;

	if (calls->clGetExtensionFunctionAddressForPlatform)
		entry = calls->clGetExtensionFunctionAddressForPlatform(
			platform, "clIcdGetPlatformIDsKHR");
	if (entry)
		image = ki_image_at(images, entry);
	if (image && strncmp(image->name, "libOpenCL.so", 12))
		return image;
	name = ki_cl_ask(ki_cl_platform_info, platform, calls, CL_PLATFORM_NAME,
			 &size);
	row = name ? ki_cl_driver_of_platform(name) : NULL;
	free(name);
	return row ? ki_image_named(images, row->library) : NULL;
}

static int add_files(struct platform *platform)
{
	struct ki_part_file *file;
	size_t i;

	platform->headers =
		calloc(platform->files.n + 1, sizeof(*platform->headers));
	if (!platform->headers)
		return -ENOMEM;
	for (i = 0; i < platform->files.n; i++) {
		file = &platform->files.files[i];
		if (file->part->kind == KI_PART_HEADER)
			platform->headers[platform->n_headers++] = file->path;
		if (*file->identity)
			ki_fields_add_string(&platform->fields, "compiler file",
					     file->name, file->identity);
	}
	return platform->fields.failed;
}

/* "NAME=VALUE" is how the environment has it. */
static int is_so(const char *variable)
{
	const char *equals = strchr(variable, '=');
	const char *value;
	char name[64];

	snprintf(name, sizeof(name), "%.*s", (int)(equals - variable),
		 variable);
	value = ki_environment(name);
	return value && !strcmp(value, equals + 1);
}

/* Why the environment ends caching, or NULL. */
static const char *refusal(const struct ki_cl_driver_row *row)
{
	const char *value;
	size_t i;

	for (i = 0; row->refused_variables[i]; i++) {
		value = ki_environment(row->refused_variables[i]);
		if (value && *value && strcmp(value, "0"))
			return "a variable switches the driver to a mode that "
			       "kiln does not know";
	}
	if (row->parts == ki_neo_parts && ki_neo_is_unknown_set())
		return "a variable of the compiler is set that kiln does not "
		       "know";
	if (row->needed_variable && !is_so(row->needed_variable))
		return "the driver reports faults by lines of the source, "
		       "which it has only of what it builds itself";
	return NULL;
}

/* A layer that changes no program.  None is known but this very build of ours
   (a copy of it); anybody can take its name. */
static int is_known_layer(const struct ki_image *own, const char *identity)
{
	return own && *own->build_id && !strcmp(own->build_id, identity);
}

/* "layer N": name and identity of each layer below us. */
static int add_layers(const struct ki_sys *sys, const struct ki_images *images,
		      struct platform *platform)
{
	const struct ki_image *us = ki_image_at(
		images, (const void *)(uintptr_t)ki_cl_identities_new);
	/* A program is no layer. */
	const struct ki_image *own = us && *us->path ? us : NULL;
	char identity[KI_IDENTITY_BYTES], text[KI_PATH_MAX], name[32];
	struct ki_cl_words paths = { 0 };
	size_t i;
	int err;

	err = ki_cl_layers_below(sys, images, own, &paths);
	for (i = 0; i < paths.n && !err; i++) {
		if (ki_library_identity(sys, paths.words[i], identity) ||
		    !is_known_layer(us, identity)) {
			platform->is_layered = 1;
			platform->why = "an unknown OpenCL layer is below kiln";
			break;
		}
		snprintf(name, sizeof(name), "%zu", i);
		snprintf(text, sizeof(text), "%.200s %s",
			 ki_last_part(paths.words[i]), identity);
		ki_fields_add_string(&platform->layers, "layer", name, text);
	}
	ki_cl_words_fini(&paths);
	return err ? err : platform->layers.failed;
}

/* Fill a platform; `why` is set where it may not be cached.  0 or -ENOMEM. */
static int platform_fill(struct platform *platform,
			 struct ki_cl_identities *identities, cl_platform_id id,
			 const struct ki_images *images)
{
	const struct ki_sys *sys = identities->sys;
	const struct ki_image *driver;
	int err;

	ki_cl_ask_all(&platform->fields, "platform", ki_cl_platform_info, id,
		      identities->calls, PLATFORM_QUESTIONS, NULL);
	driver = find_driver(identities->calls, id, images);
	if (!driver) {
		platform->row = ki_cl_driver_of_library("");
		platform->why = "the driver's library was not found";
		return platform->fields.failed;
	}
	platform->row = ki_cl_driver_of_library(ki_last_part(driver->path));
	if (!ki_cl_driver_is_known(platform->row))
		platform->row = ki_cl_driver_of_library(driver->name);
	if (!ki_cl_driver_is_known(platform->row)) {
		platform->why = "the driver is not one that kiln knows";
		return platform->fields.failed;
	}
	platform->variables = ki_parts_variables(platform->row->parts,
						 platform->row->n_parts);
	err = ki_closure_add(sys, images, driver, &platform->fields);
	if (!err)
		err = ki_parts_find(sys, platform->row->parts,
				    platform->row->n_parts, driver->path,
				    &platform->files);
	if (!err)
		err = add_files(platform);
	if (!err && ki_parts_loaded_otherwise(sys, platform->row->parts,
					      platform->row->n_parts,
					      &platform->files, images))
		err = -EAGAIN;
	if (err && err != -ENOMEM) {
		platform->why = "the driver's files could not be identified";
		return 0;
	}
	if (!err)
		platform->why = refusal(platform->row);
	if (!err && !platform->why && ki_parts_hidden(sys, &platform->files))
		platform->why = "LD_LIBRARY_PATH leads to another compiler";
	return err ? err : add_layers(sys, images, platform);
}

static struct platform *platform_new(struct ki_cl_identities *identities,
				     cl_platform_id id)
{
	struct platform *platform = calloc(1, sizeof(*platform));
	struct ki_images images;
	int err;

	if (!platform)
		return NULL;
	platform->loaded = ki_images_loaded();
	ki_images_take(&images);
	err = images.failed;
	if (!err)
		err = platform_fill(platform, identities, id, &images);
	ki_images_fini(&images);
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
	uint64_t loaded = ki_images_loaded(), before;
	struct ki_images images;
	const char *why = NULL;

	ki_mutex_lock(&identities->mutex);
	before = platform->loaded;
	why = platform->why;
	ki_mutex_unlock(&identities->mutex);
	if (why)
		return;
	if (ki_parts_changed(identities->sys, &platform->files))
		why = "the driver's files changed while the program ran";
	if (!why &&
	    (refusal(platform->row) ||
	     ki_parts_variables(platform->row->parts, platform->row->n_parts) !=
		     platform->variables))
		why = "a variable that leads to other compilers changed while "
		      "the program ran";
	if (!why && loaded != before) {
		ki_images_take(&images);
		if (images.failed ||
		    ki_parts_loaded_otherwise(
			    identities->sys, platform->row->parts,
			    platform->row->n_parts, &platform->files, &images))
			why = "a library of the compiler is not the one that "
			      "was there at first";
		ki_images_fini(&images);
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

/* ---- What devices use of the compiler's files ------------------------ */

static int any_device_uses(struct ki_cl_identities *identities,
			   const struct ki_cl_build *build,
			   const struct ki_part_file *file)
{
	size_t size;
	cl_uint i;
	char *name;
	int uses = 0;

	if (ki_environment("POCL_KERNELLIB_NAME") ||
	    ki_environment("POCL_LLVM_CPU_NAME"))
		return 1;
	for (i = 0; i < build->n_devices && !uses; i++) {
		name = ki_cl_ask(ki_cl_device_info, build->devices[i],
				 identities->calls, CL_DEVICE_NAME, &size);
		uses = name ? ki_cl_driver_uses(file->part, file->name, name)
			    : -1;
		free(name);
	}
	return uses != 0;
}

/* The identity of a builtin library, taken when the first device needs it. */
static int identity_of_file(struct ki_cl_identities *identities,
			    struct ki_part_file *file,
			    char out[KI_IDENTITY_BYTES])
{
	int err;

	ki_mutex_lock(&identities->mutex);
	strcpy(out, file->identity);
	ki_mutex_unlock(&identities->mutex);
	if (*out)
		return 0;
	err = ki_part_identify(identities->sys, file, out);
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
	char identity[KI_IDENTITY_BYTES];
	char label[KILN_LABEL_BYTES_MAX + 1];
	struct ki_part_file *file;
	size_t i;
	int err = 0;

	for (i = 0; i < platform->files.n && !err; i++) {
		file = &platform->files.files[i];
		if (file->part->kind != KI_PART_PER_DEVICE ||
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
	ki_fields_to_key(&platform->fields, "", key);
	err = device_files_to_key(identities, build, platform, key);
	if (err) {
		*out_reason = KILN_COUNT_MISS_UNSUPPORTED;
		return err == -ENOMEM ? KILN_E_NO_MEMORY : KILN_E_UNSUPPORTED;
	}
	for (i = 0; i < build->n_devices && !status; i++)
		status = ki_cl_device_to_key(identities->devices,
					     build->devices[i], i, key);
	environment_to_key(platform->row, key);
	ki_fields_to_key(&platform->layers, "", key);
	return status;
}
