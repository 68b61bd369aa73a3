/* SPDX-License-Identifier: MIT */

/*
 * A key's fields, in order: what is made, how, from what, by whom, for what.
 * A source is one digest over its strings put together, as compilers see them;
 * with a NUL in a string, where a driver might stop reading, the lengths count
 * too.
 *
 * An input of a link stands for all that its own key holds: one digest over
 * that key's record.  What such a digest hides but is asked for when a look-up
 * misses, sources and options, has fields beside it.
 */

#include "front/opencl/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "front/family.h"
#include "front/opencl/identity.h"
#include "front/opencl/options.h"
#include "front/opencl/scan.h"

#define KIND_BUILD   "opencl build 1"
#define KIND_COMPILE "opencl compile 1"
#define KIND_LINK    "opencl link 1"
#define KIND_FAMILY  "opencl family 1"

#define SOURCE_BYTES_MAX ((size_t)1 << 30)

/* ---- Sources --------------------------------------------------------- */

/* The strings as one text.  `out_text` borrows where there is one string. */
static enum kiln_status join(const struct ki_cl_source *source,
			     struct ki_bytes *bytes,
			     struct ki_cl_text *out_text)
{
	cl_uint i;

	if (source->n_strings == 1) {
		out_text->text = source->strings[0];
		out_text->size = source->lengths[0];
		return KILN_OK;
	}
	bytes->limit = SOURCE_BYTES_MAX;
	for (i = 0; i < source->n_strings; i++)
		ki_bytes_add(bytes, source->strings[i], source->lengths[i]);
	if (bytes->failed)
		return KILN_E_NO_MEMORY;
	out_text->text = bytes->data ? (const char *)bytes->data : "";
	out_text->size = bytes->size;
	return KILN_OK;
}

static void text_to_key(const struct ki_cl_source *source,
			const struct ki_cl_text *text, const char *label,
			struct kiln_key *key)
{
	char lengths_label[KILN_LABEL_BYTES_MAX + 1];
	struct ki_bytes lengths;
	cl_uint i;

	kiln_key_add_digest(key, label, text->text, text->size);
	if (!text->size || !memchr(text->text, 0, text->size))
		return;
	ki_bytes_init(&lengths);
	for (i = 0; i < source->n_strings; i++)
		ki_bytes_add_u64(&lengths, source->lengths[i]);
	snprintf(lengths_label, sizeof(lengths_label), "%s lengths", label);
	kiln_key_add_digest(key, lengths_label, lengths.data, lengths.size);
	ki_bytes_fini(&lengths);
}

static void il_to_key(const struct ki_cl_recipe *recipe, struct kiln_key *key)
{
	char label[32];
	cl_uint i;

	kiln_key_add_digest(key, "il", recipe->source->il,
			    recipe->source->il_size);
	for (i = 0; i < recipe->n_constants; i++) {
		snprintf(label, sizeof(label), "constant %u",
			 recipe->constants[i].id);
		kiln_key_add(key, label, recipe->constants[i].value,
			     recipe->constants[i].size);
	}
}

/*
 * A source and its headers: `texts` has room for one more than there are
 * headers, as `joined` has, and the latter holds what the former point to.
 */
static enum kiln_status texts_to_key(const struct ki_cl_recipe *recipe,
				     struct ki_bytes *joined,
				     struct ki_cl_text *texts,
				     struct kiln_key *key)
{
	enum kiln_status status;
	char label[32];
	cl_uint i;

	status = join(recipe->source, &joined[0], &texts[0]);
	if (status)
		return status;
	text_to_key(recipe->source, &texts[0], "source", key);
	for (i = 0; i < recipe->n_headers && !status; i++) {
		const struct ki_cl_header *header = &recipe->headers[i];

		status = join(header->source, &joined[i + 1], &texts[i + 1]);
		if (status)
			return status;
		snprintf(label, sizeof(label), "header %u name", i);
		kiln_key_add_string(key, label, header->name);
		snprintf(label, sizeof(label), "header %u", i);
		text_to_key(header->source, &texts[i + 1], label, key);
	}
	return status;
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
					const struct ki_cl_text *texts,
					size_t n_texts, struct kiln_key *key,
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
	search.has_header_files =
		search.n_driver_folders && build->recipe->n_headers;
	search.n_driver_headers = ki_cl_identities_headers(
		identities, build->platform, &search.driver_headers);
	return ki_cl_includes_add_texts(ki_cl_identities_includes(identities),
					&search, texts, n_texts, key,
					out_reason);
}

/* Options and what they and the texts include. */
static enum kiln_status files_to_key(struct ki_cl_identities *identities,
				     const struct ki_cl_build *build,
				     const struct ki_cl_text *texts,
				     size_t n_texts, struct kiln_key *key,
				     enum kiln_counter *out_reason)
{
	struct ki_cl_options options;
	enum kiln_status status;

	ki_cl_options_init(&options);
	status = read_all_options(
		ki_cl_identities_row(identities, build->platform), build,
		&options, out_reason);
	if (!status)
		status = includes_to_key(identities, build, &options, texts,
					 n_texts, key, out_reason);
	ki_cl_options_fini(&options);
	return status;
}

/* ---- Builds and compilations ----------------------------------------- */

static enum kiln_status fill_from_texts(struct ki_cl_identities *identities,
					const struct ki_cl_build *build,
					struct kiln_key *key,
					enum kiln_counter *out_reason)
{
	size_t n_texts = (size_t)build->recipe->n_headers + 1, i;
	struct ki_cl_text *texts = calloc(n_texts, sizeof(*texts));
	struct ki_bytes *joined = calloc(n_texts, sizeof(*joined));
	enum kiln_status status = KILN_E_NO_MEMORY;

	for (i = 0; i < n_texts && joined; i++)
		ki_bytes_init(&joined[i]);
	if (texts && joined)
		status = texts_to_key(build->recipe, joined, texts, key);
	if (!status)
		status = files_to_key(identities, build, texts, n_texts, key,
				      out_reason);
	for (i = 0; i < n_texts && joined; i++)
		ki_bytes_fini(&joined[i]);
	free(joined);
	free(texts);
	return status;
}

static int has_headers_of_il(const struct ki_cl_recipe *recipe)
{
	cl_uint i;

	for (i = 0; i < recipe->n_headers; i++)
		if (recipe->headers[i].source->il)
			return 1;
	return 0;
}

/* What is there comes before what the walk would find, and may be included
   from anywhere: nobody has such a folder. */
static int has_real_headers(struct ki_cl_identities *identities,
			    const struct ki_cl_build *build)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char folder[KI_PATH_MAX];
	struct ki_file_info info;

	return build->recipe->n_headers &&
	       ki_cl_driver_header_folder(
		       ki_cl_identities_row(identities, build->platform),
		       folder) &&
	       sys->lstat(sys, folder, &info) != -ENOENT;
}

/* IL includes nothing, and nobody knows what it would do with headers. */
static enum kiln_status fill_from_source(struct ki_cl_identities *identities,
					 const struct ki_cl_build *build,
					 struct kiln_key *key,
					 enum kiln_counter *out_reason)
{
	const struct ki_cl_recipe *recipe = build->recipe;

	if (has_headers_of_il(recipe) ||
	    (recipe->source->il && recipe->n_headers))
		return refuse(KILN_COUNT_MISS_UNSUPPORTED, out_reason);
	if (has_real_headers(identities, build))
		return refuse(KILN_COUNT_MISS_UNRESOLVED, out_reason);
	if (!recipe->source->il)
		return fill_from_texts(identities, build, key, out_reason);
	il_to_key(recipe, key);
	return files_to_key(identities, build, NULL, 0, key, out_reason);
}

/* ---- Links ----------------------------------------------------------- */

static void add_stamp(const struct ki_cl_build *build, uint64_t stamp)
{
	const uint64_t both[] = { build->out_stamp ? *build->out_stamp : 0,
				  stamp };

	if (build->out_stamp)
		*build->out_stamp = ki_xxh3_64(both, sizeof(both));
}

static enum kiln_status find_source(const void *record, size_t size,
				    struct kiln_field *out_field)
{
	enum kiln_status status =
		kiln_record_find(record, size, "source", out_field);

	return status ? kiln_record_find(record, size, "il", out_field)
		      : status;
}

/* No options are a field too: to PoCL they are not empty ones. */
static void options_to_key(const struct ki_cl_recipe *recipe, const char *label,
			   struct kiln_key *key)
{
	if (recipe->has_options)
		kiln_key_add_string(key, label, recipe->options);
	else
		kiln_key_add_absent(key, label);
}

static void input_key_to_key(const struct kiln_key *input, cl_uint n,
			     struct kiln_key *key, struct ki_bytes *sources)
{
	struct kiln_field field;
	char label[32];
	size_t size;
	const void *record = kiln_key_record(input, &size);

	if (!find_source(record, size, &field))
		ki_bytes_add(sources, field.data, field.size);
	snprintf(label, sizeof(label), "options of input %u", n);
	if (!kiln_record_find(record, size, "options", &field)) {
		if (field.kind == KILN_FIELD_ABSENT)
			kiln_key_add_absent(key, label);
		else
			kiln_key_add(key, label, field.data, field.size);
	}
	snprintf(label, sizeof(label), "input %u", n);
	kiln_key_add_digest(key, label, record, size);
}

static void binary_to_key(const struct ki_cl_recipe *input, cl_uint n,
			  struct kiln_key *key, struct ki_bytes *sources)
{
	char label[64];
	cl_uint i;

	snprintf(label, sizeof(label), "options of input %u", n);
	options_to_key(input, label, key);
	for (i = 0; i < input->n_binaries; i++) {
		const struct ki_cl_binary *binary = &input->binaries[i];

		ki_bytes_add(sources, binary->digest, sizeof(binary->digest));
		snprintf(label, sizeof(label), "input %u binary %u", n, i);
		kiln_key_add_known_digest(key, label, binary->size,
					  binary->digest);
	}
}

static enum kiln_status input_to_key(struct ki_cl_identities *identities,
				     const struct ki_cl_build *build, cl_uint n,
				     struct kiln_key *key,
				     struct ki_bytes *sources,
				     enum kiln_counter *out_reason)
{
	const struct ki_cl_input *input = &build->recipe->inputs[n];
	struct ki_cl_build inner = *build;
	uint64_t stamp = input->stamp;
	enum kiln_status status;
	struct kiln_key *inner_key;

	if (input->recipe->kind == KI_CL_BINARY) {
		binary_to_key(input->recipe, n, key, sources);
		return KILN_OK;
	}
	if (input->key) {
		input_key_to_key(input->key, n, key, sources);
		add_stamp(build, stamp);
		return KILN_OK;
	}
	inner.recipe = input->recipe;
	inner.out_stamp = &stamp;
	status = ki_cl_key(identities, &inner, &inner_key, out_reason);
	if (status)
		return status;
	input_key_to_key(inner_key, n, key, sources);
	add_stamp(build, stamp);
	kiln_key_free(inner_key);
	return KILN_OK;
}

static enum kiln_status fill_from_inputs(struct ki_cl_identities *identities,
					 const struct ki_cl_build *build,
					 struct kiln_key *key,
					 enum kiln_counter *out_reason)
{
	struct ki_bytes sources;
	enum kiln_status status;
	cl_uint i;

	ki_bytes_init(&sources);
	status = files_to_key(identities, build, NULL, 0, key, out_reason);
	for (i = 0; i < build->recipe->n_inputs && !status; i++)
		status = input_to_key(identities, build, i, key, &sources,
				      out_reason);
	if (!status && sources.failed)
		status = KILN_E_NO_MEMORY;
	if (!status)
		kiln_key_add_digest(key, "source", sources.data, sources.size);
	ki_bytes_fini(&sources);
	return status;
}

/* ---- The key --------------------------------------------------------- */

static const char *const kinds[] = {
	[KI_CL_BUILD] = KIND_BUILD,
	[KI_CL_COMPILE] = KIND_COMPILE,
	[KI_CL_LINK] = KIND_LINK,
};

enum ki_cl_recipe_kind ki_cl_key_kind(const void *record, size_t size)
{
	struct kiln_field field;
	int kind;

	if (kiln_record_find(record, size, "kind", &field) ||
	    field.kind != KILN_FIELD_BYTES)
		return (enum ki_cl_recipe_kind)0;
	for (kind = KI_CL_LINK; kind; kind--)
		if (field.size == strlen(kinds[kind]) &&
		    !memcmp(field.data, kinds[kind], field.size))
			break;
	return (enum ki_cl_recipe_kind)kind;
}

/* What is made, how, and from what. */
static enum kiln_status fill(struct ki_cl_identities *identities,
			     const struct ki_cl_build *build,
			     struct kiln_key *key,
			     enum kiln_counter *out_reason)
{
	const struct ki_cl_recipe *recipe = build->recipe;

	if (recipe->kind == KI_CL_BINARY)
		return refuse(KILN_COUNT_MISS_UNSUPPORTED, out_reason);
	kiln_key_add_string(key, "kind", kinds[recipe->kind]);
	options_to_key(recipe, "options", key);
	return (recipe->kind == KI_CL_LINK
			? fill_from_inputs
			: fill_from_source)(identities, build, key, out_reason);
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
		status = ki_cl_identity_add(identities, build, key, out_reason);
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

/* ---- For this process alone ------------------------------------------ */

static void all_variables_to_key(struct kiln_key *key)
{
	struct ki_bytes bytes;
	size_t i;

	ki_bytes_init(&bytes);
	for (i = 0; environ && environ[i]; i++)
		ki_bytes_add(&bytes, environ[i], strlen(environ[i]) + 1);
	if (bytes.failed)
		kiln_key_add(key, "", NULL, 0); /* refused by finishing */
	else
		kiln_key_add_digest(key, "environment", bytes.data, bytes.size);
	ki_bytes_fini(&bytes);
}

static int has_includes(const struct kiln_key *key)
{
	static const char prefix[] = "include ";
	struct kiln_field field;
	size_t size, position = 0;
	const void *record = kiln_key_record(key, &size);

	while (!kiln_record_next(record, size, &position, &field))
		if (field.label_size >= sizeof(prefix) - 1 &&
		    !memcmp(field.label, prefix, sizeof(prefix) - 1))
			return 1;
	return 0;
}

enum kiln_status ki_cl_passing_key(struct ki_cl_identities *identities,
				   const struct ki_cl_build *build,
				   struct kiln_key **out_key)
{
	struct kiln_key *key = kiln_key_new();
	enum kiln_counter unused;
	enum kiln_status status =
		key ? fill(identities, build, key, &unused) : KILN_E_NO_MEMORY;

	if (!status) {
		all_variables_to_key(key);
		status = kiln_key_finish(key);
	}
	if (!status && has_includes(key) &&
	    !ki_cl_driver_is_known(
		    ki_cl_identities_row(identities, build->platform)))
		status = KILN_E_UNSUPPORTED;
	if (status)
		kiln_key_free(key);
	else
		*out_key = key;
	return status;
}

/* ---- Why it missed --------------------------------------------------- */

enum kiln_status ki_cl_family_key(const struct kiln_key *key,
				  struct kiln_key **out_family)
{
	struct kiln_field source;
	enum kiln_status status;
	size_t size;
	const void *record = kiln_key_record(key, &size);

	status = find_source(record, size, &source);
	return status ? KILN_E_INVALID
		      : ki_family_key(key, KIND_FAMILY, &source, out_family);
}
