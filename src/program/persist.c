/* SPDX-License-Identifier: MIT */

/*
 * A program's handle, from what is behind memory: the caller's kiln has one
 * entry for each class of devices, all of which are needed.
 *
 *	for each class: kiln_get_or_build
 *	  found ------- its binary
 *	  not found --- build the program, unless that is done; its binary is
 *	                the entry
 *	built? ------- that is it
 *	all found ---- a program of the binaries; refused: they are removed, and
 *	               all this once more
 *
 * The kiln's flights and locks make that one build among all contexts and
 * processes.  For that the program's own flight is open while the kiln looks,
 * and closed while the runtime builds (memory/memory.h).
 *
 * A kiln's trouble is never the caller's: then the program is just built.
 *
 * An entry's key has the four things that DPC++ tells entries apart by.  It joins
 * compile and link options without a mark, so "-a", "b" and "-ab", "" are one;
 * a fifth field tells them apart.
 */

#include <stdio.h>
#include <stdlib.h>

#include "program/program.h"

/* Of images kept byte by byte in keys. */
#define WHOLE_IMAGE_MAX ((size_t)8 << 20)

/* ---- Building -------------------------------------------------------------- */

static enum kiln_build_kind build(struct kiln_programs *programs,
				  const struct kiln_program_key *key,
				  void *handle,
				  struct kiln_program_failure *failure)
{
	const struct kiln_program_runtime *runtime = &programs->home->runtime;
	enum kiln_build_kind kind = runtime->build(
		runtime->context, handle, key->handles, key->n_devices,
		key->compile_options, key->link_options, failure);

	if (kind)
		runtime->release_program(runtime->context, handle);
	return kind;
}

static enum kiln_build_kind build_image(struct kiln_programs *programs,
					const struct kiln_program_key *key,
					void **out_handle,
					struct kiln_program_failure *failure)
{
	const struct kiln_program_runtime *runtime = &programs->home->runtime;
	enum kiln_build_kind kind = runtime->create_from_image(
		runtime->context, &key->image, key->constants,
		key->constants_size, key->handles, key->n_devices, out_handle,
		failure);

	if (kind)
		return kind;
	ki_programs_count(programs, KI_COUNT_BUILDS);
	return build(programs, key, *out_handle, failure);
}

/* ---- Entries --------------------------------------------------------------- */

struct search {
	struct kiln_programs *programs;
	const struct kiln_program_key *key;
	struct ki_flight *flight;
	struct kiln_program_failure *failure;
	enum kiln_build_kind kind; /* of our own build */
	void *handle;		   /* what it made, or NULL */
	void *device;		   /* whose binary is wanted */
	char *options;		   /* compile and link, joined */
	size_t n_entries;	   /* one for each class */
	struct entry {
		uint32_t class;
		void *device;
		struct kiln_key *key;
		struct kiln_blob *binary;
	} * entries;
};

static int is_persistent(const struct kiln_programs *programs,
			 const struct kiln_program_key *key)
{
	const struct kiln_program_runtime *runtime = &programs->home->runtime;
	const struct kiln_program_image *image = &key->image;

	return programs->kiln && !(programs->flags & KILN_PROGRAMS_NO_STORE) &&
	       key->is_cacheable && image->format != KILN_IMAGE_OTHER &&
	       image->data && image->data_size >= programs->image_bytes_min &&
	       (!programs->image_bytes_max ||
		image->data_size <= programs->image_bytes_max) &&
	       runtime->create_from_binary && runtime->binary_size &&
	       runtime->binary;
}

static struct kiln_key *entry_key(const struct search *search,
				  const char *identity,
				  const uint8_t digest[KI_BLAKE2B_BYTES])
{
	const struct kiln_program_key *of = search->key;
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "sycl.device", identity);
	kiln_key_add_string(key, "sycl.options", search->options);
	kiln_key_add_string(key, "sycl.compile", of->compile_options);
	kiln_key_add(key, "sycl.spec", of->constants, of->constants_size);
	if (digest)
		kiln_key_add_known_digest(key, "sycl.image",
					  of->image.data_size, digest);
	else
		kiln_key_add(key, "sycl.image", of->image.data,
			     of->image.data_size);
	if (!kiln_key_finish(key))
		return key;
	kiln_key_free(key);
	return NULL;
}

static struct entry *find_entry(struct search *search, uint32_t class)
{
	for (size_t i = 0; i < search->n_entries; i++)
		if (search->entries[i].class == class)
			return &search->entries[i];
	return NULL;
}

/* 0: there can be no entries. */
static int begin(struct search *search)
{
	const struct kiln_program_key *key = search->key;
	const struct kiln_program_image *image = &key->image;
	int is_whole = (search->programs->flags & KILN_PROGRAMS_WHOLE_IMAGES) &&
		       image->data_size <= WHOLE_IMAGE_MAX;
	uint8_t digest[KI_BLAKE2B_BYTES];

	search->entries = calloc(key->n_devices, sizeof(*search->entries));
	if (asprintf(&search->options, "%s%s", key->compile_options,
		     key->link_options) < 0)
		search->options = NULL;
	if (!search->entries || !search->options)
		return 0;
	if (!is_whole)
		ki_blake2b(image->data, image->data_size, digest);
	for (size_t i = 0; i < key->n_devices; i++) {
		const struct ki_device *device = &key->devices[i];
		const char *identity =
			ki_device_identity(search->programs, device->class);
		struct entry *entry = &search->entries[search->n_entries];

		if (!identity)
			return 0;
		if (find_entry(search, device->class))
			continue;
		*entry = (struct entry){
			.class = device->class,
			.device = device->handle,
			.key = entry_key(search, identity,
					 is_whole ? NULL : digest),
		};
		search->n_entries++;
		if (!entry->key)
			return 0;
	}
	return 1;
}

static void drop_binaries(struct search *search)
{
	for (size_t i = 0; i < search->n_entries; i++) {
		kiln_blob_unref(search->entries[i].binary);
		search->entries[i].binary = NULL;
	}
}

static void end(struct search *search)
{
	drop_binaries(search);
	for (size_t i = 0; i < search->n_entries; i++)
		kiln_key_free(search->entries[i].key);
	free(search->entries);
	free(search->options);
}

/* ---- Looking, or else building --------------------------------------------- */

static struct kiln_blob *binary_of(const struct search *search)
{
	const struct kiln_program_runtime *runtime =
		&search->programs->home->runtime;
	size_t size = runtime->binary_size(runtime->context, search->handle,
					   search->device);
	struct kiln_blob *blob = NULL;
	void *data;

	if (size)
		blob = ki_blob_new(size, &data);
	if (blob && !runtime->binary(runtime->context, search->handle,
				     search->device, data, size)) {
		kiln_blob_unref(blob);
		blob = NULL;
	}
	return blob;
}

static struct kiln_metadata *metadata_of(const struct search *search)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_string(metadata, KILN_META_FRONT, "sycl");
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 search->key->compile_options);
	return metadata;
}

/* For kiln_get_or_build(). */
static void make_entry(const struct kiln_key *key, void *arg,
		       struct kiln_build_result *result)
{
	struct search *search = arg;

	ki_flight_set_open(search->flight, 0);
	if (!search->handle) {
		search->kind = build_image(search->programs, search->key,
					   &search->handle, search->failure);
		if (search->kind) {
			search->handle = NULL;
			result->kind = search->kind;
			result->code = search->failure->code;
			result->message =
				search->failure->message
					? strdup(search->failure->message)
					: NULL;
			return;
		}
	}
	result->blob = binary_of(search);
	/* Who waits for it in another context finds out for itself. */
	result->kind = result->blob ? KILN_BUILD_OK : KILN_BUILD_SPURIOUS;
	if (result->blob)
		result->metadata = metadata_of(search);
}

enum outcome {
	FOUND,	/* all binaries */
	BUILT,	/* search->handle */
	FAILED, /* search->kind */
	NEITHER /* no answer: build */
};

static enum outcome look(struct search *search)
{
	for (size_t i = 0; i < search->n_entries; i++) {
		struct entry *entry = &search->entries[i];
		struct kiln_build_result result;
		enum kiln_status status;

		kiln_build_result_init(&result);
		search->device = entry->device;
		ki_flight_set_open(search->flight, 1);
		status = kiln_get_or_build(search->programs->kiln, entry->key,
					   make_entry, search, &result);
		ki_flight_set_open(search->flight, 0);
		if (!status) {
			entry->binary = kiln_blob_ref(result.blob);
		} else if (status == KILN_E_BUILD && !search->handle &&
			   !search->kind && result.kind == KILN_BUILD_FAILED) {
			/* Another context has tried. */
			search->kind = result.kind;
			ki_failure_from_result(search->failure, &result);
			result.message = NULL;
		}
		kiln_build_result_fini(&result);
		if (search->kind)
			return FAILED;
		if (status && !search->handle)
			return NEITHER;
	}
	return search->handle ? BUILT : FOUND;
}

/* ---- Binaries -------------------------------------------------------------- */

static enum kiln_build_kind create_of_binaries(
	struct search *search, const void **binaries, size_t *sizes,
	struct kiln_program_failure *failure)
{
	const struct kiln_program_runtime *runtime =
		&search->programs->home->runtime;
	const struct kiln_program_key *key = search->key;
	enum kiln_build_kind kind;

	for (size_t i = 0; i < key->n_devices; i++) {
		const struct kiln_blob *binary =
			find_entry(search, key->devices[i].class)->binary;

		binaries[i] = kiln_blob_data(binary);
		sizes[i] = kiln_blob_size(binary);
	}
	kind = runtime->create_from_binary(runtime->context, key->handles,
					   key->n_devices, binaries, sizes,
					   &search->handle, failure);
	if (!kind)
		kind = build(search->programs, key, search->handle, failure);
	if (kind)
		search->handle = NULL;
	return kind;
}

/* KILN_BUILD_OK with search->handle. */
static enum kiln_build_kind load(struct search *search)
{
	size_t n = search->key->n_devices;
	const void **binaries = calloc(n, sizeof(*binaries));
	size_t *sizes = calloc(n, sizeof(*sizes));
	enum kiln_build_kind kind = KILN_BUILD_SPURIOUS;

	kiln_program_failure_fini(search->failure);
	if (binaries && sizes)
		kind = create_of_binaries(search, binaries, sizes,
					  search->failure);
	free(binaries);
	free(sizes);
	if (!kind)
		ki_programs_count(search->programs, KI_COUNT_FROM_STORE);
	return kind;
}

/* What was refused is of no use to anybody. */
static void remove_entries(struct search *search)
{
	struct kiln *kiln = search->programs->kiln;

	drop_binaries(search);
	kiln_count(kiln, KILN_COUNT_MISS_REFUSED, 1);
	for (size_t i = 0; i < search->n_entries; i++)
		(void)kiln_remove(kiln, search->entries[i].key);
}

/* ---- All of it ------------------------------------------------------------- */

/* KILN_BUILD_OK, or a failure to be told; else *out_undecided. */
static enum kiln_build_kind search_and_load(struct search *search,
					    int *out_undecided)
{
	enum outcome outcome = look(search);
	enum kiln_build_kind kind;

	if (outcome == FOUND) {
		kind = load(search);
		/* A lack of memory says nothing of the binary. */
		if (kind == KILN_BUILD_OK || kind == KILN_BUILD_RESOURCES)
			return kind;
		if (kind == KILN_BUILD_FAILED) {
			remove_entries(search);
			outcome = look(search);
		} else {
			outcome = NEITHER;
		}
	}
	drop_binaries(search);
	*out_undecided = outcome == NEITHER || outcome == FOUND;
	return outcome == FAILED ? search->kind : KILN_BUILD_OK;
}

enum kiln_build_kind ki_program_fetch(struct kiln_programs *programs,
				      const struct kiln_program_key *key,
				      struct ki_flight *flight,
				      void **out_handle,
				      struct kiln_program_failure *failure)
{
	struct search search = { .programs = programs,
				 .key = key,
				 .flight = flight,
				 .failure = failure };
	enum kiln_build_kind kind = KILN_BUILD_OK;
	int is_undecided = 1;

	if (!is_persistent(programs, key))
		return build_image(programs, key, out_handle, failure);
	if (begin(&search)) {
		is_undecided = 0;
		kind = search_and_load(&search, &is_undecided);
	}
	end(&search);
	if (is_undecided) {
		kiln_program_failure_fini(failure);
		return build_image(programs, key, out_handle, failure);
	}
	*out_handle = search.handle;
	return kind;
}
