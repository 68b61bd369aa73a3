/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include <kiln/inspect.h>

#include "front/opencl/kept.h"

static struct kiln *open_kiln(const char *directory, uint32_t flags)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[4200];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = flags;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	return kiln;
}

/* ---- Keys as docs/formats/opencl-key.md has them -------------------------- */

static void add_text(struct kiln_key *key, const char *label,
		     const struct ki_cl_source *source)
{
	struct ki_bytes text, lengths;
	char lengths_label[64];
	cl_uint i;

	ki_bytes_init(&text);
	ki_bytes_init(&lengths);
	for (i = 0; i < source->n_strings; i++) {
		ki_bytes_add(&text, source->strings[i], source->lengths[i]);
		ki_bytes_add_u64(&lengths, source->lengths[i]);
	}
	kiln_key_add_digest(key, label, text.data, text.size);
	snprintf(lengths_label, sizeof(lengths_label), "%s lengths", label);
	if (text.size && memchr(text.data, 0, text.size))
		kiln_key_add_digest(key, lengths_label, lengths.data,
				    lengths.size);
	ki_bytes_fini(&text);
	ki_bytes_fini(&lengths);
}

static void add_il(struct kiln_key *key, const struct ki_cl_recipe *recipe)
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

static void add_headers(struct kiln_key *key, const struct ki_cl_recipe *recipe)
{
	char label[32];
	cl_uint i;

	for (i = 0; i < recipe->n_headers; i++) {
		snprintf(label, sizeof(label), "header %u name", i);
		kiln_key_add_string(key, label, recipe->headers[i].name);
		snprintf(label, sizeof(label), "header %u", i);
		add_text(key, label, recipe->headers[i].source);
	}
}

static struct kiln_key *key_of(const struct ki_cl_recipe *recipe)
{
	static const char *const kinds[] = { "", "opencl build 1",
					     "opencl compile 1",
					     "opencl link 1" };
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "kind", kinds[recipe->kind]);
	if (recipe->has_options)
		kiln_key_add_string(key, "options", recipe->options);
	else
		kiln_key_add_absent(key, "options");
	if (recipe->kind == KI_CL_LINK)
		kiln_key_add_digest(key, "source", "x", 1);
	else if (recipe->source->il)
		add_il(key, recipe);
	else
		add_text(key, "source", recipe->source);
	add_headers(key, recipe);
	return key;
}

/* ---- Recipes --------------------------------------------------------------- */

static const char *const plain[] = { "kernel void k(", "global int *p) {}" };
static const char *const with_nul[] = { "kernel\0 void", "", "k() {}" };
static const size_t with_nul_lengths[] = { 12, 0, 6 };

static struct ki_cl_recipe *build_of(cl_uint n, const char *const *strings,
				     const size_t *lengths, const char *options)
{
	struct ki_cl_source *source = ki_cl_source_new(n, strings, lengths);
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_build(source, NULL, 0, options);

	ki_cl_source_unref(source);
	return recipe;
}

static struct ki_cl_recipe *plain_build(void)
{
	return build_of(1, plain, NULL, "-DX=1");
}

static struct ki_cl_recipe *build_without_options(void)
{
	return build_of(1, plain, NULL, NULL);
}

static struct ki_cl_recipe *build_with_a_nul(void)
{
	return build_of(3, with_nul, with_nul_lengths, "");
}

static struct ki_cl_recipe *empty_build(void)
{
	return build_of(1, with_nul + 1, NULL, "");
}

static struct ki_cl_recipe *build_of_il(void)
{
	static const struct ki_cl_constant constants[] = {
		{ 7, 2, (const uint8_t *)"ab" },
		{ 3, 1, (const uint8_t *)"" },
	};
	struct ki_cl_source *source = ki_cl_source_new_il("\3\2\0il", 5);
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_build(source, constants, 2, "-DIL");

	ki_cl_source_unref(source);
	return recipe;
}

static struct ki_cl_recipe *compilation(void)
{
	struct ki_cl_source *source = ki_cl_source_new(1, plain, NULL);
	struct ki_cl_header headers[] = {
		{ "k.h", ki_cl_source_new(1, plain + 1, NULL) },
		{ "n/k.h", ki_cl_source_new(3, with_nul, with_nul_lengths) },
	};
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_compile(source, NULL, 0, headers, 2, "-w");

	ki_cl_source_unref(headers[0].source);
	ki_cl_source_unref(headers[1].source);
	ki_cl_source_unref(source);
	return recipe;
}

static struct ki_cl_recipe *link_of_objects(void)
{
	struct ki_cl_recipe *object = compilation(), *recipe;
	const struct ki_cl_input inputs[] = { { .recipe = object },
					      { .recipe = object } };

	recipe = ki_cl_recipe_link(inputs, 2, NULL);
	ki_cl_recipe_unref(object);
	return recipe;
}

typedef struct ki_cl_recipe *recipe_fn(void);

static const struct row {
	const char *name;
	recipe_fn *make;
} rows[] = {
	{ "a build", plain_build },
	{ "without options", build_without_options },
	{ "strings with a NUL", build_with_a_nul },
	{ "an empty source", empty_build },
	{ "IL with constants", build_of_il },
	{ "a compilation with headers", compilation },
	{ "a link", link_of_objects },
};

static void assert_same(const struct ki_cl_recipe *a,
			const struct ki_cl_recipe *b)
{
	struct ki_bytes x, y;

	ki_bytes_init(&x);
	ki_bytes_init(&y);
	ki_cl_recipe_write(a, &x);
	ki_cl_recipe_write(b, &y);
	assert_int_equal(x.size, y.size);
	assert_memory_equal(x.data, y.data, x.size);
	ki_bytes_fini(&x);
	ki_bytes_fini(&y);
}

/* Keep, and hand out what stands for the entry. */
static struct kiln_metadata *keep(struct kiln *kiln,
				  const struct ki_cl_recipe *recipe,
				  struct kiln_key *key, const char *directory)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	const void *record;
	size_t size;

	assert_int_equal(kiln_key_finish(key), KILN_OK);
	record = kiln_key_record(key, &size);
	ki_cl_keep_sources(kiln, recipe, record, size, directory, metadata);
	return metadata;
}

static enum kiln_status recall(struct kiln *kiln, const struct kiln_key *key,
			       const struct kiln_metadata *metadata,
			       struct ki_cl_recipe **out_recipe)
{
	const void *record, *bytes;
	size_t size, bytes_size;

	record = kiln_key_record(key, &size);
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &bytes_size),
			 KILN_OK);
	return ki_cl_recall(kiln, record, size, bytes, bytes_size, out_recipe);
}

static void what_was_kept_makes_the_same_recipe(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_kiln(directory, 0);
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_cl_recipe *recipe = rows[i].make(), *again;
		struct kiln_key *key = key_of(recipe);
		struct kiln_metadata *metadata =
			keep(kiln, recipe, key, directory);

		print_message("# %s\n", rows[i].name);
		assert_int_equal(recall(kiln, key, metadata, &again), KILN_OK);
		assert_same(recipe, again);
		ki_cl_recipe_unref(again);
		ki_cl_recipe_unref(recipe);
		kiln_metadata_free(metadata);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	free(directory);
}

static void strings_without_a_nul_come_back_as_one(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_kiln(directory, 0);
	struct ki_cl_recipe *recipe = build_of(2, plain, NULL, "-w"), *again;
	struct kiln_key *key = key_of(recipe);
	struct kiln_metadata *metadata = keep(kiln, recipe, key, directory);

	assert_int_equal(recall(kiln, key, metadata, &again), KILN_OK);
	assert_int_equal(again->source->n_strings, 1);
	assert_string_equal(again->source->strings[0],
			    "kernel void k(global int *p) {}");
	ki_cl_recipe_unref(again);
	ki_cl_recipe_unref(recipe);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
	kiln_close(kiln);
	free(directory);
}

/* Each source in turn was never kept. */
static void what_was_not_kept_is_missed(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_kiln(directory, KILN_OPEN_NO_SOURCES);
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_cl_recipe *recipe = rows[i].make(), *again;
		struct kiln_key *key = key_of(recipe);
		struct kiln_metadata *metadata =
			keep(kiln, recipe, key, directory);

		print_message("# %s\n", rows[i].name);
		assert_int_equal(recall(kiln, key, metadata, &again),
				 KILN_MISS);
		ki_cl_recipe_unref(recipe);
		kiln_metadata_free(metadata);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	free(directory);
}

static void records_of_others_are_refused(void **state)
{
	static const struct {
		const char *name, *kind, *label;
	} bad[] = {
		{ "another front's", "levelzero module 1", "source" },
		{ "a newer one", "opencl build 2", "source" },
		{ "without options", "opencl build 1", "source" },
		{ "of a family", "opencl family 1", "source" },
	};
	char *directory = harness_directory();
	struct kiln *kiln = open_kiln(directory, 0);
	struct ki_cl_recipe *recipe;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kiln_metadata *metadata = kiln_metadata_new();
		struct kiln_key *key = kiln_key_new();

		print_message("# %s\n", bad[i].name);
		kiln_key_add_string(key, "kind", bad[i].kind);
		kiln_key_add_digest(key, bad[i].label, "x", 1);
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		assert_int_equal(recall(kiln, key, metadata, &recipe),
				 KILN_E_FORMAT);
		kiln_metadata_free(metadata);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	free(directory);
}

/* ---- Included files --------------------------------------------------------- */

static int is_kept(struct kiln *kiln, const char *text)
{
	struct kiln_kept source = { .data = text, .size = strlen(text) };
	struct kiln_blob *blob;

	/* Asks for the digest alone. */
	assert_int_not_equal(kiln_keep_sources(NULL, &source, 1), KILN_OK);
	if (kiln_find_source(kiln, source.digest, &blob))
		return 0;
	kiln_blob_unref(blob);
	return 1;
}

static void included_files_are_kept_as_the_key_has_them(void **state)
{
	static const struct {
		const char *name, *label, *text;
		int is_kept;
	} files[] = {
		{ "a.h", "include a.h", "int a;", 1 },
		{ "b.h", "include ./b.h", "int b;", 1 },
		{ "c.h", "include c.h", "int other;", 0 }, /* has changed */
		{ NULL, "include (driver)/d.h", "int d;", 0 },
		{ NULL, "include gone.h", "int gone;", 0 },
	};
	char *directory = harness_directory(), *path;
	struct kiln *kiln = open_kiln(directory, 0);
	struct ki_cl_recipe *recipe = plain_build();
	struct kiln_key *key = key_of(recipe);
	struct kiln_metadata *metadata;
	const void *bytes, *digests;
	size_t size, i;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		kiln_key_add_digest(key, files[i].label, files[i].text,
				    strlen(files[i].text));
		if (!files[i].name)
			continue;
		path = harness_path(directory, files[i].name);
		harness_write(path, files[i].is_kept ? files[i].text : "new",
			      files[i].is_kept ? strlen(files[i].text) : 3);
		free(path);
	}
	metadata = keep(kiln, recipe, key, directory);
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		assert_int_equal(is_kept(kiln, files[i].text),
				 files[i].is_kept);
	assert_false(is_kept(kiln, "new"));
	/* The source, a.h, b.h. */
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	assert_int_equal(kiln_metadata_find(bytes, size, KILN_META_SOURCES,
					    &digests, &size),
			 KILN_OK);
	assert_int_equal(size, 3 * KILN_SOURCE_DIGEST_BYTES);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
	ki_cl_recipe_unref(recipe);
	kiln_close(kiln);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_kept_makes_the_same_recipe),
		cmocka_unit_test(strings_without_a_nul_come_back_as_one),
		cmocka_unit_test(what_was_not_kept_is_missed),
		cmocka_unit_test(records_of_others_are_refused),
		cmocka_unit_test(included_files_are_kept_as_the_key_has_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
