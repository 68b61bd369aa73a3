/* SPDX-License-Identifier: MIT */

/*
 * Recipes in jobs (docs/formats/job.md): fields in fields.
 *
 * A job's file may be anybody's: depth and number of recipes are limited here
 * before anything is allocated for them, and what a recipe allocates is in
 * proportion to the bytes that it was read from.
 */

#include "front/opencl/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/tags.h"

/* Tags of a recipe's fields; numbers are never used again. */
enum {
	TAG_KIND = 1,
	TAG_OPTIONS = 2,
	TAG_STRING = 3,	  /* repeated, in order */
	TAG_IL = 4,	  /* instead of strings */
	TAG_CONSTANT = 5, /* repeated: id (4), value */
	TAG_HEADER = 6,	  /* repeated: fields NAME, STRING... */
	TAG_NAME = 7,	  /* in a header */
	TAG_INPUT = 8,	  /* repeated: a recipe */
	TAG_BINARY = 9,	  /* repeated, in order */
	N_TAGS = 10,
};

/* ---- Writing ------------------------------------------------------------- */

static void write_source(struct ki_bytes *bytes,
			 const struct ki_cl_source *source)
{
	cl_uint i;

	if (source->il)
		ki_cl_tag_add(bytes, TAG_IL, source->il, source->il_size);
	for (i = 0; i < source->n_strings; i++)
		ki_cl_tag_add(bytes, TAG_STRING, source->strings[i],
			      source->lengths[i]);
}

static void write_constant(struct ki_bytes *bytes,
			   const struct ki_cl_constant *constant)
{
	size_t place = ki_cl_tag_begin(bytes, TAG_CONSTANT);

	ki_bytes_add_u32(bytes, constant->id);
	ki_bytes_add(bytes, constant->value, constant->size);
	ki_cl_tag_finish(bytes, place);
}

static void write_header(struct ki_bytes *bytes,
			 const struct ki_cl_header *header)
{
	size_t place = ki_cl_tag_begin(bytes, TAG_HEADER);

	ki_cl_tag_add_text(bytes, TAG_NAME, header->name);
	write_source(bytes, header->source);
	ki_cl_tag_finish(bytes, place);
}

void ki_cl_recipe_write(const struct ki_cl_recipe *recipe,
			struct ki_bytes *bytes)
{
	cl_uint i;

	ki_cl_tag_add_number(bytes, TAG_KIND, recipe->kind);
	if (recipe->has_options)
		ki_cl_tag_add_text(bytes, TAG_OPTIONS, recipe->options);
	if (recipe->source)
		write_source(bytes, recipe->source);
	for (i = 0; i < recipe->n_constants; i++)
		write_constant(bytes, &recipe->constants[i]);
	for (i = 0; i < recipe->n_headers; i++)
		write_header(bytes, &recipe->headers[i]);
	for (i = 0; i < recipe->n_inputs; i++) {
		size_t place = ki_cl_tag_begin(bytes, TAG_INPUT);

		ki_cl_recipe_write(recipe->inputs[i].recipe, bytes);
		ki_cl_tag_finish(bytes, place);
	}
	for (i = 0; i < recipe->n_binaries; i++)
		ki_cl_tag_add(bytes, TAG_BINARY, recipe->binaries[i].bytes,
			      recipe->binaries[i].size);
}

/* ---- Reading ------------------------------------------------------------- */

/* What a recipe is made of, as it is collected. */
struct parts {
	uint64_t kind;
	const char *options; /* NULL: none were given */
	const char *name;
	cl_uint counts[N_TAGS];
	const char **strings;
	size_t *lengths;
	const void *il;
	size_t il_size;
	struct ki_cl_constant *constants;
	struct ki_cl_header *headers;
	struct ki_cl_input *inputs;
	const unsigned char **binaries;
	size_t *sizes;
	/* Of the whole tree. */
	unsigned depth;
	unsigned *n_left;
};

static void parts_fini(struct parts *parts)
{
	cl_uint i;

	for (i = 0; parts->headers && i < parts->counts[TAG_HEADER]; i++)
		ki_cl_source_unref(parts->headers[i].source);
	for (i = 0; parts->inputs && i < parts->counts[TAG_INPUT]; i++)
		ki_cl_recipe_unref(parts->inputs[i].recipe);
	free(parts->strings);
	free(parts->lengths);
	free(parts->constants);
	free(parts->headers);
	free(parts->inputs);
	free(parts->binaries);
	free(parts->sizes);
}

static enum kiln_status count(struct parts *parts, struct ki_reader reader)
{
	struct ki_cl_tag tag;

	while (reader.size) {
		if (!ki_cl_tag_next(&reader, &tag))
			return KILN_E_FORMAT;
		if (tag.tag >= N_TAGS)
			return KILN_E_UNSUPPORTED;
		parts->counts[tag.tag]++;
	}
	return KILN_OK;
}

/* Whether fields of these tags are there and no others. */
static int has_only(const struct parts *parts, unsigned tags)
{
	unsigned tag;

	for (tag = 1; tag < N_TAGS; tag++)
		if (parts->counts[tag] && !(tags & 1u << tag))
			return 0;
	return 1;
}

/* One more of each, so that none is an array of nothing. */
static enum kiln_status make_room(struct parts *parts)
{
	const cl_uint *n = parts->counts;

	parts->strings = calloc((size_t)n[TAG_STRING] + 1, sizeof(char *));
	parts->lengths = calloc((size_t)n[TAG_STRING] + 1, sizeof(size_t));
	parts->constants =
		calloc((size_t)n[TAG_CONSTANT] + 1, sizeof(*parts->constants));
	parts->headers =
		calloc((size_t)n[TAG_HEADER] + 1, sizeof(*parts->headers));
	parts->inputs =
		calloc((size_t)n[TAG_INPUT] + 1, sizeof(*parts->inputs));
	parts->binaries =
		calloc((size_t)n[TAG_BINARY] + 1, sizeof(*parts->binaries));
	parts->sizes = calloc((size_t)n[TAG_BINARY] + 1, sizeof(size_t));
	return parts->strings && parts->lengths && parts->constants &&
			       parts->headers && parts->inputs &&
			       parts->binaries && parts->sizes
		       ? KILN_OK
		       : KILN_E_NO_MEMORY;
}

static enum kiln_status read_constant(const struct ki_cl_tag *tag,
				      struct ki_cl_constant *out_constant)
{
	if (tag->size < 5 || tag->size - 4 > KI_CL_CONSTANT_BYTES_MAX)
		return KILN_E_FORMAT;
	out_constant->id = ki_get_u32(tag->data);
	out_constant->size = tag->size - 4;
	out_constant->value = (const uint8_t *)tag->data + 4;
	return KILN_OK;
}

static enum kiln_status read_header(const struct ki_cl_tag *tag,
				    struct ki_cl_header *out_header);
static enum kiln_status read_recipe(const void *data, size_t size,
				    unsigned depth, unsigned *n_left,
				    struct ki_cl_recipe **out_recipe);

static enum kiln_status read_input(const struct parts *parts,
				   const struct ki_cl_tag *tag,
				   struct ki_cl_input *out_input)
{
	struct ki_cl_recipe *recipe;
	enum kiln_status status = read_recipe(
		tag->data, tag->size, parts->depth + 1, parts->n_left, &recipe);

	if (!status)
		out_input->recipe = recipe;
	return status;
}

/* `n` is how many there were of this tag. */
static enum kiln_status take(struct parts *parts, const struct ki_cl_tag *tag,
			     cl_uint n)
{
	switch (tag->tag) {
	case TAG_KIND:
		return !n && ki_cl_tag_number(tag, &parts->kind)
			       ? KILN_OK
			       : KILN_E_FORMAT;
	case TAG_OPTIONS:
		return !n && ki_cl_tag_text(tag, &parts->options)
			       ? KILN_OK
			       : KILN_E_FORMAT;
	case TAG_NAME:
		return !n && ki_cl_tag_text(tag, &parts->name) ? KILN_OK
							       : KILN_E_FORMAT;
	case TAG_IL:
		parts->il = tag->data;
		parts->il_size = tag->size;
		return n ? KILN_E_FORMAT : KILN_OK;
	case TAG_STRING:
		/* A length of 0 would mean that a NUL ends it. */
		parts->strings[n] = tag->size ? tag->data : "";
		parts->lengths[n] = tag->size;
		return KILN_OK;
	case TAG_CONSTANT:
		return read_constant(tag, &parts->constants[n]);
	case TAG_HEADER:
		return read_header(tag, &parts->headers[n]);
	case TAG_INPUT:
		return read_input(parts, tag, &parts->inputs[n]);
	default:
		parts->binaries[n] = tag->data;
		parts->sizes[n] = tag->size;
		return KILN_OK;
	}
}

/* Fields of other tags than those allowed are not even looked into: headers in
   headers would have no end. */
static enum kiln_status read_parts(struct parts *parts, unsigned tags,
				   struct ki_reader reader)
{
	enum kiln_status status = count(parts, reader);
	cl_uint n[N_TAGS] = { 0 };
	struct ki_cl_tag tag;

	if (!status && !has_only(parts, tags))
		status = KILN_E_FORMAT;
	if (!status)
		status = make_room(parts);
	while (reader.size && !status) {
		if (!ki_cl_tag_next(&reader, &tag))
			return KILN_E_FORMAT;
		status = take(parts, &tag, n[tag.tag]++);
	}
	return status;
}

static int is_source(const struct parts *parts)
{
	return !parts->counts[TAG_IL] != !parts->counts[TAG_STRING];
}

static enum kiln_status make_source(const struct parts *parts,
				    struct ki_cl_source **out_source)
{
	struct ki_cl_source *source =
		parts->counts[TAG_IL]
			? ki_cl_source_new_il(parts->il, parts->il_size)
			: ki_cl_source_new(parts->counts[TAG_STRING],
					   parts->strings, parts->lengths);

	if (!source)
		return KILN_E_NO_MEMORY;
	*out_source = source;
	return KILN_OK;
}

static enum kiln_status read_header(const struct ki_cl_tag *tag,
				    struct ki_cl_header *out_header)
{
	struct parts parts = { 0 };
	struct ki_cl_source *source = NULL;
	enum kiln_status status;

	status = read_parts(&parts, 1u << TAG_NAME | 1u << TAG_STRING,
			    ki_reader(tag->data, tag->size));
	if (!status && (!parts.name || !parts.counts[TAG_STRING]))
		status = KILN_E_FORMAT;
	if (!status)
		status = make_source(&parts, &source);
	if (!status) {
		out_header->name = parts.name;
		out_header->source = source;
	}
	parts_fini(&parts);
	return status;
}

#define TAGS_OF_ALL    (1u << TAG_KIND | 1u << TAG_OPTIONS)
#define TAGS_OF_SOURCE (1u << TAG_STRING | 1u << TAG_IL | 1u << TAG_CONSTANT)

static int fits(const struct parts *parts)
{
	const cl_uint *n = parts->counts;

	switch (parts->kind) {
	case KI_CL_BUILD:
	case KI_CL_COMPILE:
		return is_source(parts) &&
		       has_only(parts, TAGS_OF_ALL | TAGS_OF_SOURCE |
					       (parts->kind == KI_CL_COMPILE
							? 1u << TAG_HEADER
							: 0)) &&
		       (n[TAG_IL] || !n[TAG_CONSTANT]) &&
		       n[TAG_CONSTANT] <= KI_CL_CONSTANTS_MAX &&
		       n[TAG_HEADER] <= KI_CL_RECIPE_HEADERS_MAX;
	case KI_CL_LINK:
		return n[TAG_INPUT] &&
		       has_only(parts, TAGS_OF_ALL | 1u << TAG_INPUT);
	default:
		return n[TAG_BINARY] &&
		       has_only(parts, TAGS_OF_ALL | 1u << TAG_BINARY);
	}
}

static int inputs_fit(const struct parts *parts)
{
	cl_uint i;

	for (i = 0; i < parts->counts[TAG_INPUT]; i++)
		if (parts->inputs[i].recipe->kind == KI_CL_BUILD)
			return 0;
	return 1;
}

static struct ki_cl_recipe *make_from_source(const struct parts *parts)
{
	struct ki_cl_source *source;
	struct ki_cl_recipe *recipe;

	if (make_source(parts, &source))
		return NULL;
	if (parts->kind == KI_CL_BUILD)
		recipe = ki_cl_recipe_build(source, parts->constants,
					    parts->counts[TAG_CONSTANT],
					    parts->options);
	else
		recipe = ki_cl_recipe_compile(
			source, parts->constants, parts->counts[TAG_CONSTANT],
			parts->headers, parts->counts[TAG_HEADER],
			parts->options);
	ki_cl_source_unref(source);
	return recipe;
}

static struct ki_cl_recipe *make_recipe(const struct parts *parts)
{
	switch (parts->kind) {
	case KI_CL_LINK:
		return ki_cl_recipe_link(parts->inputs,
					 parts->counts[TAG_INPUT],
					 parts->options);
	case KI_CL_BINARY:
		return ki_cl_recipe_binary(parts->binaries, parts->sizes,
					   parts->counts[TAG_BINARY], 1,
					   parts->options);
	default:
		return make_from_source(parts);
	}
}

static enum kiln_status read_recipe(const void *data, size_t size,
				    unsigned depth, unsigned *n_left,
				    struct ki_cl_recipe **out_recipe)
{
	struct parts parts = { .depth = depth, .n_left = n_left };
	struct ki_cl_recipe *recipe;
	enum kiln_status status;

	if (depth > KI_CL_RECIPE_DEPTH_MAX || !*n_left)
		return KILN_E_FORMAT;
	--*n_left;
	status = read_parts(&parts, ~(1u << TAG_NAME), ki_reader(data, size));
	if (!status && parts.kind > KI_CL_BINARY)
		status = KILN_E_UNSUPPORTED;
	if (!status && (!parts.kind || !fits(&parts) || !inputs_fit(&parts)))
		status = KILN_E_FORMAT;
	if (!status) {
		recipe = make_recipe(&parts);
		status = recipe ? KILN_OK : KILN_E_NO_MEMORY;
	}
	if (!status)
		*out_recipe = recipe;
	parts_fini(&parts);
	return status;
}

enum kiln_status ki_cl_recipe_read(const void *data, size_t size,
				   struct ki_cl_recipe **out_recipe)
{
	unsigned n_left = KI_CL_RECIPE_NODES_MAX;

	return read_recipe(data, size, 1, &n_left, out_recipe);
}
