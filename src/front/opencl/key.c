/* SPDX-License-Identifier: MIT */

/*
 * A key's fields, in order: what is built, how, from what, by whom, for what.
 * The source is one digest over the strings put together, as compilers see
 * them; with a NUL in a string, where a driver might stop reading, the lengths
 * count too.
 */

#include "front/opencl/key.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "front/opencl/identity.h"
#include "front/opencl/options.h"
#include "front/opencl/scan.h"

#define KIND_BUILD  "opencl build 1"
#define KIND_FAMILY "opencl family 1"

#define SOURCE_BYTES_MAX ((size_t)1 << 30)

/* ---- The source ------------------------------------------------------ */

/* The strings as one text.  `out_text` borrows where there is one string. */
static enum kiln_status join(const struct ki_cl_source *source,
			     struct ki_bytes *bytes, const char **out_text,
			     size_t *out_size)
{
	cl_uint i;

	if (source->n_strings == 1) {
		*out_text = source->strings[0];
		*out_size = source->lengths[0];
		return KILN_OK;
	}
	bytes->limit = SOURCE_BYTES_MAX;
	for (i = 0; i < source->n_strings; i++)
		ki_bytes_add(bytes, source->strings[i], source->lengths[i]);
	if (bytes->failed)
		return KILN_E_NO_MEMORY;
	*out_text = bytes->data ? (const char *)bytes->data : "";
	*out_size = bytes->size;
	return KILN_OK;
}

static void source_to_key(const struct ki_cl_source *source, const char *text,
			  size_t size, struct kiln_key *key)
{
	struct ki_bytes lengths;
	cl_uint i;

	kiln_key_add_digest(key, "source", text, size);
	if (!size || !memchr(text, 0, size))
		return;
	ki_bytes_init(&lengths);
	for (i = 0; i < source->n_strings; i++)
		ki_bytes_add_u64(&lengths, source->lengths[i]);
	kiln_key_add_digest(key, "source lengths", lengths.data, lengths.size);
	ki_bytes_fini(&lengths);
}

/* ---- Options --------------------------------------------------------- */

static enum kiln_status refuse(enum kiln_counter reason,
			       enum kiln_counter *out_reason)
{
	*out_reason = reason;
	return KILN_E_UNSUPPORTED;
}

/* One text of options, from the program or from a variable. */
static enum kiln_status read_options(struct ki_cl_options *options,
				     const char *text,
				     enum kiln_counter *out_reason)
{
	unsigned flags = ki_cl_scan_words(text);

	ki_cl_options_read(options, text);
	if (flags & KI_CL_SCAN_DIRECTIVE)
		return refuse(KILN_COUNT_MISS_DIRECTIVE, out_reason);
	if (flags & KI_CL_SCAN_TIME)
		return refuse(KILN_COUNT_MISS_TIME_MACRO, out_reason);
	if (options->writes)
		return refuse(KILN_COUNT_MISS_UNSUPPORTED, out_reason);
	return KILN_OK;
}

static enum kiln_status read_all_options(const struct ki_cl_driver_row *row,
					 const struct ki_cl_build *build,
					 struct ki_cl_options *options,
					 enum kiln_counter *out_reason)
{
	enum kiln_status status;
	const char *text;
	size_t i;

	status = read_options(options, build->recipe->options, out_reason);
	for (i = 0; row->option_variables[i] && !status; i++) {
		text = ki_environment(row->option_variables[i]);
		if (text)
			status = read_options(options, text, out_reason);
	}
	return status;
}

static enum kiln_status includes_to_key(struct ki_cl_identities *identities,
					const struct ki_cl_build *build,
					const struct ki_cl_options *options,
					const char *text, size_t size,
					struct kiln_key *key,
					enum kiln_counter *out_reason)
{
	char folders[KI_CL_DRIVER_FOLDERS_MAX][KI_PATH_MAX];
	const char *folder_list[KI_CL_DRIVER_FOLDERS_MAX] = { folders[0],
							      folders[1] };
	struct ki_cl_search search = { .options = options,
				       .driver_folders = folder_list,
				       .out_stamp = build->out_stamp };

	search.n_driver_folders = ki_cl_driver_folders(
		ki_cl_identities_row(identities, build->platform), folders);
	search.n_driver_headers = ki_cl_identities_headers(
		identities, build->platform, &search.driver_headers);
	return ki_cl_includes_add(ki_cl_identities_includes(identities),
				  &search, text, size, key, out_reason);
}

/* ---- The key --------------------------------------------------------- */

static enum kiln_status fill(struct ki_cl_identities *identities,
			     const struct ki_cl_build *build,
			     struct kiln_key *key,
			     enum kiln_counter *out_reason)
{
	struct ki_cl_options options;
	struct ki_bytes joined;
	enum kiln_status status;
	const char *text;
	size_t size;

	ki_cl_options_init(&options);
	ki_bytes_init(&joined);
	kiln_key_add_string(key, "kind", KIND_BUILD);
	kiln_key_add_string(key, "options", build->recipe->options);
	status = join(build->recipe->source, &joined, &text, &size);
	if (status)
		goto out;
	source_to_key(build->recipe->source, text, size, key);
	status = read_all_options(
		ki_cl_identities_row(identities, build->platform), build,
		&options, out_reason);
	if (!status)
		status = includes_to_key(identities, build, &options, text,
					 size, key, out_reason);
	if (!status)
		status = ki_cl_identity_add(identities, build, key, out_reason);
out:
	ki_cl_options_fini(&options);
	ki_bytes_fini(&joined);
	return status;
}

enum kiln_status ki_cl_key(struct ki_cl_identities *identities,
			   const struct ki_cl_build *build,
			   struct kiln_key **out_key,
			   enum kiln_counter *out_reason)
{
	struct kiln_key *key = kiln_key_new();
	enum kiln_status status;

	status = key ? fill(identities, build, key, out_reason)
		     : KILN_E_NO_MEMORY;
	if (!status)
		status = kiln_key_finish(key);
	if (status == KILN_E_TOO_LARGE || status == KILN_E_INVALID)
		status = refuse(KILN_COUNT_MISS_UNSUPPORTED, out_reason);
	if (status)
		kiln_key_free(key);
	else
		*out_key = key;
	return status;
}

/* ---- Why it missed --------------------------------------------------- */

/* Groups of fields by the beginning of their labels, in the order in which
   they are blamed. */
static const struct group {
	const char *prefixes[3];
	enum kiln_counter counter;
} GROUPS[] = {
	{ { "platform ", "compiler " }, KILN_COUNT_MISS_COMPILER },
	{ { "device " }, KILN_COUNT_MISS_DEVICE },
	{ { "options" }, KILN_COUNT_MISS_OPTIONS },
	{ { "include " }, KILN_COUNT_MISS_INCLUDE },
	{ { "environment ", "layer " }, KILN_COUNT_MISS_ENVIRONMENT },
};

static int is_in(const struct group *group, const struct kiln_field *field)
{
	size_t i, size;

	for (i = 0; group->prefixes[i]; i++) {
		size = strlen(group->prefixes[i]);
		if (field->label_size >= size &&
		    !memcmp(field->label, group->prefixes[i], size))
			return 1;
	}
	return 0;
}

/* One number for all fields of a group, in their order. */
static uint64_t hash_of(const struct group *group, const void *record,
			size_t size)
{
	struct kiln_field field;
	size_t position = 0;
	uint64_t hash = 0;

	while (!kiln_record_next(record, size, &position, &field)) {
		uint64_t frame[] = { hash, field.kind, field.original_size };
		struct ki_piece pieces[] = {
			{ frame, sizeof(frame) },
			{ &field.label_size, sizeof(field.label_size) },
			{ field.label, field.label_size },
			{ field.data, field.size },
		};

		if (is_in(group, &field))
			hash = ki_xxh3_64_pieces(pieces, 4);
	}
	return hash;
}

enum kiln_counter ki_cl_miss_reason(const struct kiln_key *key,
				    const void *record, size_t size)
{
	size_t i, own_size;
	const void *own = kiln_key_record(key, &own_size);

	for (i = 0; i < sizeof(GROUPS) / sizeof(GROUPS[0]); i++)
		if (hash_of(&GROUPS[i], own, own_size) !=
		    hash_of(&GROUPS[i], record, size))
			return GROUPS[i].counter;
	return KILN_COUNT_MISS_NEW;
}

enum kiln_status ki_cl_family_key(const struct kiln_key *key,
				  struct kiln_key **out_family)
{
	struct kiln_key *family;
	struct kiln_field source;
	enum kiln_status status;
	size_t size;
	const void *record = kiln_key_record(key, &size);

	status = kiln_record_find(record, size, "source", &source);
	if (status || source.kind != KILN_FIELD_DIGEST)
		return KILN_E_INVALID;
	family = kiln_key_new();
	kiln_key_add_string(family, "kind", KIND_FAMILY);
	kiln_key_add_known_digest(family, "source", source.original_size,
				  source.data);
	status = kiln_key_finish(family);
	if (status)
		kiln_key_free(family);
	else
		*out_family = family;
	return status;
}
