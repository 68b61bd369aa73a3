/* SPDX-License-Identifier: MIT */

/*
 * Each source and each recipe is one block: the struct, its arrays, its texts.
 * A program that builds a thousand kernels keeps a thousand of them, so what
 * stands beside the texts is kept small.
 *
 * A link may use one input many times, and so on down: the tree that a small
 * graph stands for can be huge.  So depth and number of nodes are known for
 * every recipe, and the builders refuse what passes the limits; whoever walks
 * one may recurse.
 */

#include "front/opencl/recipe.h"

#include <stdlib.h>
#include <string.h>

/* ---- One block ----------------------------------------------------------- */

static size_t aligned(size_t size)
{
	return (size + 7) & ~(size_t)7;
}

/* The next `size` bytes of a block. */
static void *carve(char **at, size_t size)
{
	void *start = *at;

	*at += aligned(size);
	return start;
}

static void *carve_copy(char **at, const void *data, size_t size)
{
	void *start = carve(at, size);

	if (size)
		memcpy(start, data, size);
	return start;
}

/* ---- Sources ------------------------------------------------------------- */

static size_t length_of(const char *const *strings, const size_t *lengths,
			cl_uint i)
{
	return lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
}

struct ki_cl_source *ki_cl_source_new(cl_uint n_strings,
				      const char *const *strings,
				      const size_t *lengths)
{
	size_t size = sizeof(struct ki_cl_source);
	struct ki_cl_source *source;
	const char **own_strings;
	size_t *own_lengths;
	char *at;
	cl_uint i;

	size += n_strings * (sizeof(*own_strings) + sizeof(*own_lengths));
	for (i = 0; i < n_strings; i++)
		size += length_of(strings, lengths, i) + 1;
	source = malloc(size);
	if (!source)
		return NULL;
	at = (char *)(source + 1);
	own_strings = carve(&at, n_strings * sizeof(*own_strings));
	own_lengths = carve(&at, n_strings * sizeof(*own_lengths));
	for (i = 0; i < n_strings; i++) {
		own_lengths[i] = length_of(strings, lengths, i);
		own_strings[i] = at;
		memcpy(at, strings[i], own_lengths[i]);
		at[own_lengths[i]] = '\0';
		at += own_lengths[i] + 1;
	}
	*source = (struct ki_cl_source){ .refs = 1,
					 .strings = own_strings,
					 .lengths = own_lengths,
					 .n_strings = n_strings };
	return source;
}

struct ki_cl_source *ki_cl_source_new_il(const void *il, size_t size)
{
	struct ki_cl_source *source = malloc(sizeof(*source) + size);

	if (!source)
		return NULL;
	if (size)
		memcpy(source + 1, il, size);
	*source = (struct ki_cl_source){ .refs = 1,
					 .il = source + 1,
					 .il_size = size };
	return source;
}

/* Constant to everybody, but for the count. */
static struct ki_cl_source *mutable_source(const struct ki_cl_source *source)
{
	return (struct ki_cl_source *)(uintptr_t)source;
}

struct ki_cl_source *ki_cl_source_ref(const struct ki_cl_source *source)
{
	struct ki_cl_source *own = mutable_source(source);

	if (own)
		atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
	return own;
}

void ki_cl_source_unref(const struct ki_cl_source *source)
{
	struct ki_cl_source *own = mutable_source(source);

	if (own &&
	    atomic_fetch_sub_explicit(&own->refs, 1, memory_order_acq_rel) == 1)
		free(own);
}

/* ---- Recipes ------------------------------------------------------------- */

static struct ki_cl_recipe *mutable_recipe(const struct ki_cl_recipe *recipe)
{
	return (struct ki_cl_recipe *)(uintptr_t)recipe;
}

/* An empty recipe in a block with `size` bytes behind it. */
static struct ki_cl_recipe *recipe_new(enum ki_cl_recipe_kind kind, size_t size,
				       const char *options, char **out_at)
{
	size_t options_size = options ? strlen(options) + 1 : 1;
	struct ki_cl_recipe *recipe =
		calloc(1, sizeof(*recipe) + size + aligned(options_size));

	if (!recipe)
		return NULL;
	*out_at = (char *)(recipe + 1);
	recipe->refs = 1;
	recipe->kind = kind;
	recipe->depth = 1;
	recipe->n_nodes = 1;
	recipe->has_options = options != NULL;
	recipe->options =
		carve_copy(out_at, options ? options : "", options_size);
	return recipe;
}

static size_t constants_size(const struct ki_cl_constant *constants, cl_uint n)
{
	size_t size = aligned(n * sizeof(*constants));
	cl_uint i;

	for (i = 0; i < n; i++)
		size += aligned(constants[i].size);
	return size;
}

static int by_id(const void *a, const void *b)
{
	const struct ki_cl_constant *left = a, *right = b;

	return (left->id > right->id) - (left->id < right->id);
}

static int is_set_again(const struct ki_cl_constant *constants, cl_uint n,
			cl_uint i)
{
	cl_uint j;

	for (j = i + 1; j < n; j++)
		if (constants[j].id == constants[i].id)
			return 1;
	return 0;
}

static void take_constants(struct ki_cl_recipe *recipe,
			   const struct ki_cl_constant *constants, cl_uint n,
			   char **at)
{
	struct ki_cl_constant *own = carve(at, n * sizeof(*own));
	cl_uint i, n_own = 0;

	for (i = 0; i < n; i++) {
		if (is_set_again(constants, n, i))
			continue;
		own[n_own] = constants[i];
		own[n_own++].value =
			carve_copy(at, constants[i].value, constants[i].size);
	}
	if (n_own)
		qsort(own, n_own, sizeof(*own), by_id);
	recipe->constants = own;
	recipe->n_constants = n_own;
}

static int constants_fit(const struct ki_cl_source *source,
			 const struct ki_cl_constant *constants, cl_uint n)
{
	cl_uint i;

	if (n > KI_CL_CONSTANTS_MAX || (n && !source->il))
		return 0;
	for (i = 0; i < n; i++)
		if (!constants[i].size ||
		    constants[i].size > KI_CL_CONSTANT_BYTES_MAX)
			return 0;
	return 1;
}

struct ki_cl_recipe *ki_cl_recipe_build(const struct ki_cl_source *source,
					const struct ki_cl_constant *constants,
					cl_uint n_constants,
					const char *options)
{
	struct ki_cl_recipe *recipe = ki_cl_recipe_compile(
		source, constants, n_constants, NULL, 0, options);

	if (recipe)
		recipe->kind = KI_CL_BUILD;
	return recipe;
}

static size_t headers_size(const struct ki_cl_header *headers, cl_uint n)
{
	size_t size = aligned(n * sizeof(*headers));
	cl_uint i;

	for (i = 0; i < n; i++)
		size += aligned(strlen(headers[i].name) + 1);
	return size;
}

struct ki_cl_recipe *ki_cl_recipe_compile(
	const struct ki_cl_source *source,
	const struct ki_cl_constant *constants, cl_uint n_constants,
	const struct ki_cl_header *headers, cl_uint n_headers,
	const char *options)
{
	struct ki_cl_recipe *recipe;
	struct ki_cl_header *own;
	char *at;
	cl_uint i;

	if (n_headers > KI_CL_RECIPE_HEADERS_MAX ||
	    !constants_fit(source, constants, n_constants))
		return NULL;
	recipe = recipe_new(KI_CL_COMPILE,
			    constants_size(constants, n_constants) +
				    headers_size(headers, n_headers),
			    options, &at);
	if (!recipe)
		return NULL;
	recipe->source = ki_cl_source_ref(source);
	take_constants(recipe, constants, n_constants, &at);
	own = carve(&at, n_headers * sizeof(*own));
	for (i = 0; i < n_headers; i++) {
		own[i].name = carve_copy(&at, headers[i].name,
					 strlen(headers[i].name) + 1);
		own[i].source = ki_cl_source_ref(headers[i].source);
	}
	recipe->headers = own;
	recipe->n_headers = n_headers;
	return recipe;
}

/* Depth and nodes of a link of these inputs; whether they are allowed. */
static int measure(const struct ki_cl_input *inputs, cl_uint n_inputs,
		   unsigned *out_depth, unsigned *out_n_nodes)
{
	cl_uint i;

	*out_depth = *out_n_nodes = 1;
	for (i = 0; i < n_inputs; i++) {
		const struct ki_cl_recipe *input = inputs[i].recipe;

		if (input->kind == KI_CL_BUILD)
			return 0;
		if (input->depth >= *out_depth)
			*out_depth = input->depth + 1;
		*out_n_nodes += input->n_nodes;
		if (*out_depth > KI_CL_RECIPE_DEPTH_MAX ||
		    *out_n_nodes > KI_CL_RECIPE_NODES_MAX)
			return 0;
	}
	return n_inputs > 0;
}

struct ki_cl_recipe *ki_cl_recipe_link(const struct ki_cl_input *inputs,
				       cl_uint n_inputs, const char *options)
{
	struct ki_cl_recipe *recipe;
	struct ki_cl_input *own;
	unsigned depth, n_nodes;
	char *at;
	cl_uint i;

	if (!measure(inputs, n_inputs, &depth, &n_nodes))
		return NULL;
	recipe = recipe_new(KI_CL_LINK, n_inputs * sizeof(*own), options, &at);
	if (!recipe)
		return NULL;
	own = carve_copy(&at, inputs, n_inputs * sizeof(*own));
	for (i = 0; i < n_inputs; i++) {
		own[i].recipe = ki_cl_recipe_ref(inputs[i].recipe);
		own[i].key = kiln_key_ref(inputs[i].key);
	}
	recipe->inputs = own;
	recipe->n_inputs = n_inputs;
	recipe->depth = depth;
	recipe->n_nodes = n_nodes;
	return recipe;
}

struct ki_cl_recipe *ki_cl_recipe_binary(const unsigned char *const *binaries,
					 const size_t *sizes,
					 cl_uint n_binaries, int keeps,
					 const char *options)
{
	size_t size = n_binaries * sizeof(struct ki_cl_binary);
	struct ki_cl_recipe *recipe;
	struct ki_cl_binary *own;
	char *at;
	cl_uint i;

	for (i = 0; i < n_binaries && keeps; i++)
		size += aligned(sizes[i]);
	recipe = recipe_new(KI_CL_BINARY, size, options, &at);
	if (!recipe)
		return NULL;
	own = carve(&at, n_binaries * sizeof(*own));
	for (i = 0; i < n_binaries; i++) {
		own[i].size = sizes[i];
		ki_blake2b(binaries[i], sizes[i], own[i].digest);
		if (keeps)
			own[i].bytes = carve_copy(&at, binaries[i], sizes[i]);
	}
	recipe->binaries = own;
	recipe->n_binaries = n_binaries;
	return recipe;
}

struct ki_cl_recipe *ki_cl_recipe_ref(const struct ki_cl_recipe *recipe)
{
	struct ki_cl_recipe *own = mutable_recipe(recipe);

	if (own)
		atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
	return own;
}

void ki_cl_recipe_unref(const struct ki_cl_recipe *recipe)
{
	struct ki_cl_recipe *own = mutable_recipe(recipe);
	cl_uint i;

	if (!own ||
	    atomic_fetch_sub_explicit(&own->refs, 1, memory_order_acq_rel) != 1)
		return;
	ki_cl_source_unref(own->source);
	for (i = 0; i < own->n_headers; i++)
		ki_cl_source_unref(own->headers[i].source);
	for (i = 0; i < own->n_inputs; i++) {
		ki_cl_recipe_unref(own->inputs[i].recipe);
		kiln_key_free(own->inputs[i].key);
	}
	free(own);
}

/* ---- Questions ----------------------------------------------------------- */

int ki_cl_recipe_is_whole(const struct ki_cl_recipe *recipe)
{
	cl_uint i;

	for (i = 0; i < recipe->n_binaries; i++)
		if (!recipe->binaries[i].bytes)
			return 0;
	for (i = 0; i < recipe->n_inputs; i++)
		if (!ki_cl_recipe_is_whole(recipe->inputs[i].recipe))
			return 0;
	return 1;
}

static int has_word(const char *options, const char *word)
{
	static const char blanks[] = " \t\n\r\f\v";
	size_t size = strlen(word), n;

	for (; *options; options += n) {
		options += strspn(options, blanks);
		n = strcspn(options, blanks);
		if (n == size && !memcmp(options, word, size))
			return 1;
	}
	return 0;
}

int ki_cl_recipe_has_kernels(const struct ki_cl_recipe *recipe)
{
	switch (recipe->kind) {
	case KI_CL_COMPILE:
		return 0;
	case KI_CL_LINK:
		return !has_word(recipe->options, "-create-library");
	default:
		return 1;
	}
}
