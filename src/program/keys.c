/* SPDX-License-Identifier: MIT */

/*
 * Requests to keys.  What a program's key in memory is made of:
 *
 *	image.id or image	the caller's name for it, or a digest
 *	image.kind		origin and format
 *	constants
 *	compile, link		options, composed
 *	units			what it is made for: devices, or classes of them
 *
 * without the last it is the base, by which programs for more devices are
 * found.  A kernel's key has the program's by digest.
 */

#include <stdlib.h>

#include "program/program.h"

#define CONSTANTS_WHOLE_MAX 256 /* longer ones by digest */

int kiln_program_is_cacheable(const struct kiln_program_request *request)
{
	if (!request || request->size < sizeof(*request) || !request->image ||
	    request->image->size < sizeof(*request->image))
		return 0;
	switch (request->image->origin) {
	case KILN_PROGRAM_IMAGE:
		return 1;
	case KILN_PROGRAM_SOURCE:
	case KILN_PROGRAM_LINKED:
		return !!(request->flags & KILN_PROGRAM_KEEP);
	case KILN_PROGRAM_INTEROP:
		break;
	}
	return 0;
}

void ki_image_name(const struct kiln_program_image *image,
		   uint8_t out[KI_BLAKE2B_BYTES])
{
	const uint8_t has_id = image->id != NULL;
	const struct ki_piece pieces[] = {
		{ &has_id, 1 },
		{ has_id ? image->id : image->data,
		  has_id ? image->id_size : image->data_size },
	};

	ki_blake2b_pieces(pieces, 2, out);
}

static void add_bytes(struct kiln_key *key, const char *label, const void *data,
		      size_t size)
{
	if (size <= CONSTANTS_WHOLE_MAX)
		kiln_key_add(key, label, data, size);
	else
		kiln_key_add_digest(key, label, data, size);
}

static struct kiln_key *begin(const struct kiln_program_key *of)
{
	const struct kiln_program_image *image = &of->image;
	const uint8_t kind[] = { (uint8_t)image->origin,
				 (uint8_t)image->format };
	struct kiln_key *key = kiln_key_new();

	if (image->id)
		add_bytes(key, "image.id", image->id, image->id_size);
	else
		kiln_key_add_known_digest(key, "image", image->data_size,
					  of->image_name);
	kiln_key_add(key, "image.kind", kind, sizeof(kind));
	add_bytes(key, "constants", of->constants, of->constants_size);
	kiln_key_add_string(key, "compile", of->compile_options);
	kiln_key_add_string(key, "link", of->link_options);
	return key;
}

static int by_unit(const void *a, const void *b)
{
	const struct ki_device *x = a, *y = b;

	return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Each unit once, sorted. */
static enum kiln_status find_devices(struct kiln_program_key *key,
				     const struct kiln_program_request *request)
{
	size_t n = request->n_devices, i;
	enum kiln_status status;

	key->devices = calloc(n, sizeof(*key->devices));
	key->handles = calloc(n, sizeof(*key->handles));
	key->units = calloc(n, sizeof(*key->units));
	if (!key->devices || !key->handles || !key->units)
		return KILN_E_NO_MEMORY;
	for (i = 0; i < n; i++) {
		status = ki_device_find(key->programs, request->devices[i],
					&key->devices[i]);
		if (status)
			return status;
	}
	qsort(key->devices, n, sizeof(*key->devices), by_unit);
	for (i = 0; i < n; i++) {
		size_t last = key->n_devices;

		if (last && key->units[last - 1] == key->devices[i].unit)
			continue;
		key->devices[last] = key->devices[i];
		key->handles[last] = key->devices[i].handle;
		key->units[last] = key->devices[i].unit;
		key->n_devices++;
	}
	return KILN_OK;
}

/* Seed 001: the environment's in the place of the image's, then the API's,
   then those that the environment appends. */
static void compose(struct kiln_program_key *key,
		    const struct kiln_program_request *request)
{
	const struct kiln_programs *programs = key->programs;
	const struct kiln_program_image *image = request->image;
	const char *const compile[] = {
		programs->compile_override ? programs->compile_override
					   : image->compile_options,
		request->compile_options,
		programs->compile_append,
	};
	const char *const link[] = {
		programs->link_override ? programs->link_override
					: image->link_options,
		request->link_options,
		programs->link_append,
	};

	key->compile_options = ki_options_join(compile, 3);
	key->link_options = ki_options_join(link, 3);
}

static enum kiln_status fill(struct kiln_program_key *key,
			     const struct kiln_program_request *request)
{
	enum kiln_status status;

	key->constants = malloc(request->constants_size + 1);
	compose(key, request);
	if (!key->constants || !key->compile_options || !key->link_options)
		return KILN_E_NO_MEMORY;
	if (request->constants_size)
		memcpy(key->constants, request->constants,
		       request->constants_size);
	key->constants_size = request->constants_size;
	status = find_devices(key, request);
	if (status)
		return status;
	ki_image_name(&key->image, key->image_name);
	key->base = begin(key);
	key->key = begin(key);
	kiln_key_add(key->key, "units", key->units,
		     key->n_devices * sizeof(*key->units));
	status = kiln_key_finish(key->base);
	return status ? status : kiln_key_finish(key->key);
}

static int is_sound(const struct kiln_program_request *request)
{
	const struct kiln_program_image *image = request->image;

	return request->size >= sizeof(*request) && image &&
	       image->size >= sizeof(*image) && request->devices &&
	       request->n_devices &&
	       (request->constants || !request->constants_size) &&
	       (image->data || !image->data_size) &&
	       (image->id || !image->id_size) &&
	       (unsigned)image->origin <= KILN_PROGRAM_INTEROP &&
	       (unsigned)image->format <= KILN_IMAGE_OTHER &&
	       !(request->flags & ~KILN_PROGRAM_KEEP);
}

enum kiln_status kiln_program_key_new(
	struct kiln_programs *programs,
	const struct kiln_program_request *request,
	struct kiln_program_key **out_key)
{
	struct kiln_program_key *key;
	enum kiln_status status;

	if (!programs || !request || !out_key || !is_sound(request))
		return KILN_E_INVALID;
	if (ki_programs_are_forked(programs))
		return KILN_E_FORKED;
	key = calloc(1, sizeof(*key));
	if (!key)
		return KILN_E_NO_MEMORY;
	key->programs = programs;
	ki_list_init(&key->hint.link);
	key->image = *request->image;
	key->image.compile_options = key->image.link_options = NULL;
	key->is_cacheable = kiln_program_is_cacheable(request);
	status = fill(key, request);
	if (status)
		kiln_program_key_free(key);
	else
		*out_key = key;
	return status;
}

void kiln_program_key_free(struct kiln_program_key *key)
{
	if (!key)
		return;
	if (!ki_programs_are_forked(key->programs))
		ki_registry_end_hint(key->programs, &key->hint);
	kiln_key_free(key->key);
	kiln_key_free(key->base);
	free(key->constants);
	free(key->compile_options);
	free(key->link_options);
	free(key->devices);
	free(key->handles);
	free(key->units);
	free(key);
}

/* ---- Kernels --------------------------------------------------------------- */

static enum kiln_status fast_key(const struct kiln_program_key *program_key,
				 uint32_t unit, const char *name,
				 struct kiln_key **out_key)
{
	const struct kiln_key *of = program_key->key;
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "fast", name);
	kiln_key_add(key, "unit", &unit, sizeof(unit));
	add_bytes(key, "program", of->record.data, of->record.size);
	*out_key = key;
	return kiln_key_finish(key);
}

/* Whether a device is one of those the program is for. */
static int has_unit(const struct kiln_program_key *key, uint32_t unit)
{
	for (size_t i = 0; i < key->n_devices; i++)
		if (key->units[i] == unit)
			return 1;
	return 0;
}

enum kiln_status kiln_kernel_key_new(const struct kiln_program_key *program_key,
				     void *device, const char *name,
				     struct kiln_kernel_key **out_key)
{
	struct kiln_kernel_key *key;
	struct ki_device found;
	enum kiln_status status;

	if (!program_key || !name || !out_key)
		return KILN_E_INVALID;
	if (ki_programs_are_forked(program_key->programs))
		return KILN_E_FORKED;
	status = ki_device_find(program_key->programs, device, &found);
	if (status)
		return status;
	if (!has_unit(program_key, found.unit))
		return KILN_E_INVALID;
	key = calloc(1, sizeof(*key));
	if (!key)
		return KILN_E_NO_MEMORY;
	key->programs = program_key->programs;
	ki_list_init(&key->hint.link);
	key->program_key = program_key;
	key->name = strdup(name);
	key->unit = found.unit;
	status = fast_key(program_key, found.unit, name, &key->key);
	if (!key->name)
		status = KILN_E_NO_MEMORY;
	if (status)
		kiln_kernel_key_free(key);
	else
		*out_key = key;
	return status;
}

void kiln_kernel_key_free(struct kiln_kernel_key *key)
{
	if (!key)
		return;
	if (!ki_programs_are_forked(key->programs))
		ki_registry_end_hint(key->programs, &key->hint);
	kiln_key_free(key->key);
	free(key->name);
	free(key);
}
