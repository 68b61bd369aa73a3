/* SPDX-License-Identifier: MIT */

/*
 * A key says of each source how long it is and what its BLAKE2b-256 is, so that
 * nothing that is read here need be believed: included files are read anew, and
 * kept if they are what the key says; what the store hands out has its digest.
 *
 * Of strings that were put together only the whole is kept.  Where the pieces
 * could matter, with a NUL in them, their lengths stand behind a digest of their
 * own.
 */

#include "front/opencl/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>

#include "front/opencl/include.h"
#include "front/opencl/key.h"
#include "sys/sys.h"

#define PIECES_MAX 8192

/* ---- Keeping ------------------------------------------------------------- */

struct keeping {
	struct kiln_kept *kept; /* what they point to is from malloc() */
	size_t n;
	size_t n_max;
	int failed;
};

/* Takes the bytes, from malloc(), which may be NULL if there are none. */
static void add(struct keeping *keeping, void *data, size_t size)
{
	size_t n_max = keeping->n_max ? keeping->n_max * 2 : 8;
	struct kiln_kept *more;

	if (keeping->n == keeping->n_max && keeping->n < PIECES_MAX) {
		more = realloc(keeping->kept, n_max * sizeof(*more));
		if (more) {
			keeping->kept = more;
			keeping->n_max = n_max;
		}
	}
	if (keeping->n == keeping->n_max || (size && !data)) {
		keeping->failed = 1;
		free(data);
		return;
	}
	keeping->kept[keeping->n++] =
		(struct kiln_kept){ .data = data, .size = size };
}

static void add_bytes(struct keeping *keeping, struct ki_bytes *bytes)
{
	if (bytes->failed)
		keeping->failed = 1;
	else
		add(keeping, bytes->data, bytes->size);
	if (bytes->failed)
		ki_bytes_fini(bytes);
}

static void add_source(struct keeping *keeping,
		       const struct ki_cl_source *source)
{
	struct ki_bytes text, lengths;
	cl_uint i;

	ki_bytes_init(&text);
	if (source->il) {
		ki_bytes_add(&text, source->il, source->il_size);
		add_bytes(keeping, &text);
		return;
	}
	ki_bytes_init(&lengths);
	for (i = 0; i < source->n_strings; i++) {
		ki_bytes_add(&text, source->strings[i], source->lengths[i]);
		ki_bytes_add_u64(&lengths, source->lengths[i]);
	}
	if (text.size && memchr(text.data, 0, text.size))
		add_bytes(keeping, &lengths);
	else
		ki_bytes_fini(&lengths);
	add_bytes(keeping, &text);
}

static void add_recipe(struct keeping *keeping,
		       const struct ki_cl_recipe *recipe)
{
	struct ki_bytes bytes;
	cl_uint i;

	if (recipe->kind == KI_CL_LINK) {
		ki_bytes_init(&bytes);
		ki_cl_recipe_write(recipe, &bytes);
		add_bytes(keeping, &bytes);
		return;
	}
	add_source(keeping, recipe->source);
	for (i = 0; i < recipe->n_headers; i++)
		add_source(keeping, recipe->headers[i].source);
}

/* "include PATH": the place is as it was spelled. */
static int include_path(const struct kiln_field *field, const char *directory,
			char out[KI_PATH_MAX])
{
	static const char prefix[] = "include ";
	const size_t n = sizeof(prefix) - 1;
	char place[KILN_LABEL_BYTES_MAX + 1];

	if (field->kind != KILN_FIELD_DIGEST || field->label_size <= n ||
	    memcmp(field->label, prefix, n))
		return 0;
	memcpy(place, field->label + n, field->label_size - n);
	place[field->label_size - n] = '\0';
	if (*place == '/')
		return snprintf(out, KI_PATH_MAX, "%s", place) < KI_PATH_MAX;
	return !ki_path_join(out, directory, place);
}

static void add_include(struct keeping *keeping, const struct kiln_field *field,
			const char *path)
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	void *data;
	size_t size;

	if (ki_read_file(&ki_sys_posix, path, KI_CL_INCLUDE_FILE_BYTES_MAX,
			 &data, &size))
		return;
	ki_blake2b(data, size, digest);
	if (size == field->original_size &&
	    !memcmp(digest, field->data, sizeof(digest)))
		add(keeping, data, size);
	else
		free(data);
}

static void add_includes(struct keeping *keeping, const void *record,
			 size_t size, const char *directory)
{
	char path[KI_PATH_MAX];
	struct kiln_field field;
	size_t position = 0;

	while (!kiln_record_next(record, size, &position, &field))
		if (include_path(&field, directory, path))
			add_include(keeping, &field, path);
}

static void add_metadata(const struct keeping *keeping,
			 struct kiln_metadata *metadata)
{
	struct ki_bytes digests;
	size_t i;

	ki_bytes_init(&digests);
	for (i = 0; i < keeping->n; i++)
		if (keeping->kept[i].is_kept)
			ki_bytes_add(&digests, keeping->kept[i].digest,
				     KILN_SOURCE_DIGEST_BYTES);
	if (digests.size && !digests.failed)
		kiln_metadata_add(metadata, KILN_META_SOURCES, digests.data,
				  digests.size);
	ki_bytes_fini(&digests);
}

void ki_cl_keep_sources(struct kiln *kiln, const struct ki_cl_recipe *recipe,
			const void *record, size_t size, const char *directory,
			struct kiln_metadata *metadata)
{
	struct keeping keeping = { .kept = NULL };
	size_t i;

	if (!ki_cl_recipe_is_whole(recipe))
		return;
	add_recipe(&keeping, recipe);
	if (!keeping.failed)
		add_includes(&keeping, record, size, directory);
	if (!keeping.failed && keeping.n) {
		(void)kiln_keep_sources(kiln, keeping.kept, keeping.n);
		add_metadata(&keeping, metadata);
	}
	for (i = 0; i < keeping.n; i++)
		free((void *)(uintptr_t)keeping.kept[i].data);
	free(keeping.kept);
}

/* ---- The way back -------------------------------------------------------- */

struct recall {
	struct kiln *kiln;
	const void *record;
	size_t size;
	char *options; /* NULL: none were given */
	struct ki_cl_constant *constants;
	cl_uint n_constants;
	struct ki_cl_header *headers;
	char **names;
	cl_uint n_headers;
	struct ki_cl_source *source;
};

static enum kiln_status find_field(const struct recall *recall,
				   const char *label, enum kiln_field_kind kind,
				   struct kiln_field *out_field)
{
	enum kiln_status status = kiln_record_find(recall->record, recall->size,
						   label, out_field);

	return !status && out_field->kind != kind ? KILN_E_FORMAT : status;
}

static enum kiln_status find_kept(const struct recall *recall,
				  const struct kiln_field *field,
				  struct kiln_blob **out_blob)
{
	struct kiln_blob *blob;
	enum kiln_status status =
		kiln_find_source(recall->kiln, field->data, &blob);

	if (!status && kiln_blob_size(blob) != field->original_size) {
		kiln_blob_unref(blob);
		return KILN_E_FORMAT;
	}
	if (!status)
		*out_blob = blob;
	return status;
}

/* A text with its NUL, from malloc(). */
static enum kiln_status text_of(const struct kiln_field *field, char **out_text)
{
	char *text;

	if (field->size && memchr(field->data, 0, field->size))
		return KILN_E_FORMAT;
	text = malloc(field->size + 1);
	if (!text)
		return KILN_E_NO_MEMORY;
	if (field->size)
		memcpy(text, field->data, field->size);
	text[field->size] = '\0';
	*out_text = text;
	return KILN_OK;
}

static enum kiln_status source_new(cl_uint n, const char *const *strings,
				   const size_t *lengths,
				   struct ki_cl_source **out_source)
{
	*out_source = ki_cl_source_new(n, strings, lengths);
	return *out_source ? KILN_OK : KILN_E_NO_MEMORY;
}

/* The pieces of a text; one of length 0 would go as far as its NUL. */
static enum kiln_status cut(const struct kiln_blob *text,
			    const struct kiln_blob *lengths,
			    struct ki_cl_source **out_source)
{
	size_t n = kiln_blob_size(lengths) / 8, rest = kiln_blob_size(text), i;
	const char *at = kiln_blob_data(text);
	const uint8_t *numbers = kiln_blob_data(lengths);
	const char **strings = calloc(n + 1, sizeof(*strings));
	size_t *sizes = calloc(n + 1, sizeof(*sizes));
	enum kiln_status status = strings && sizes ? KILN_OK : KILN_E_NO_MEMORY;

	for (i = 0; i < n && !status; i++) {
		uint64_t size = ki_get_u64(numbers + i * 8);

		if (size > rest) {
			status = KILN_E_FORMAT;
			break;
		}
		strings[i] = size ? at : "";
		sizes[i] = (size_t)size;
		at += size;
		rest -= (size_t)size;
	}
	if (!status && (rest || !n || n > UINT32_MAX))
		status = KILN_E_FORMAT;
	if (!status)
		status = source_new((cl_uint)n, strings, sizes, out_source);
	free(strings);
	free(sizes);
	return status;
}

/* The text of `label`, cut as "LABEL lengths" says. */
static enum kiln_status recall_text(const struct recall *recall,
				    const char *label,
				    struct ki_cl_source **out_source)
{
	char lengths_label[64];
	struct kiln_blob *text = NULL, *lengths = NULL;
	struct kiln_field field;
	enum kiln_status status =
		find_field(recall, label, KILN_FIELD_DIGEST, &field);
	const char *string;
	size_t size;

	if (!status)
		status = find_kept(recall, &field, &text);
	if (status)
		return status;
	snprintf(lengths_label, sizeof(lengths_label), "%s lengths", label);
	status = find_field(recall, lengths_label, KILN_FIELD_DIGEST, &field);
	if (!status)
		status = find_kept(recall, &field, &lengths);
	else if (status == KILN_MISS)
		status = KILN_OK;
	size = kiln_blob_size(text);
	string = size ? kiln_blob_data(text) : "";
	if (!status)
		status = lengths ? cut(text, lengths, out_source)
				 : source_new(1, &string, &size, out_source);
	kiln_blob_unref(text);
	kiln_blob_unref(lengths);
	return status;
}

static enum kiln_status recall_il(struct recall *recall,
				  const struct kiln_field *field)
{
	struct kiln_blob *il;
	enum kiln_status status = find_kept(recall, field, &il);

	if (status)
		return status;
	recall->source =
		ki_cl_source_new_il(kiln_blob_data(il), kiln_blob_size(il));
	kiln_blob_unref(il);
	return recall->source ? KILN_OK : KILN_E_NO_MEMORY;
}

/* "constant ID" */
static int is_constant(const struct kiln_field *field, cl_uint *out_id)
{
	static const char prefix[] = "constant ";
	const size_t n = sizeof(prefix) - 1;
	uint64_t id = 0;
	size_t i;

	if (field->kind != KILN_FIELD_BYTES || field->label_size <= n ||
	    field->label_size > n + 10 || memcmp(field->label, prefix, n))
		return 0;
	for (i = n; i < field->label_size; i++) {
		if (field->label[i] < '0' || field->label[i] > '9')
			return 0;
		id = id * 10 + (uint64_t)(field->label[i] - '0');
	}
	*out_id = (cl_uint)id;
	return id <= UINT32_MAX;
}

/* They point into the record. */
static enum kiln_status recall_constants(struct recall *recall)
{
	struct kiln_field field;
	size_t position = 0;
	cl_uint id;

	recall->constants =
		calloc(KI_CL_CONSTANTS_MAX, sizeof(*recall->constants));
	if (!recall->constants)
		return KILN_E_NO_MEMORY;
	while (!kiln_record_next(recall->record, recall->size, &position,
				 &field)) {
		if (!is_constant(&field, &id))
			continue;
		if (recall->n_constants == KI_CL_CONSTANTS_MAX)
			return KILN_E_FORMAT;
		recall->constants[recall->n_constants++] =
			(struct ki_cl_constant){ .id = id,
						 .size = field.size,
						 .value = field.data };
	}
	return KILN_OK;
}

static enum kiln_status recall_header(struct recall *recall,
				      const struct kiln_field *name)
{
	cl_uint n = recall->n_headers;
	struct ki_cl_source *source;
	char label[32];
	enum kiln_status status = text_of(name, &recall->names[n]);

	if (status)
		return status;
	recall->n_headers++;
	snprintf(label, sizeof(label), "header %u", n);
	status = recall_text(recall, label, &source);
	if (!status)
		recall->headers[n] =
			(struct ki_cl_header){ .name = recall->names[n],
					       .source = source };
	return status;
}

static enum kiln_status recall_headers(struct recall *recall)
{
	struct kiln_field field;
	char label[32];
	enum kiln_status status = KILN_OK;

	recall->headers =
		calloc(KI_CL_RECIPE_HEADERS_MAX, sizeof(*recall->headers));
	recall->names =
		calloc(KI_CL_RECIPE_HEADERS_MAX, sizeof(*recall->names));
	if (!recall->headers || !recall->names)
		return KILN_E_NO_MEMORY;
	while (!status && recall->n_headers < KI_CL_RECIPE_HEADERS_MAX) {
		snprintf(label, sizeof(label), "header %u name",
			 recall->n_headers);
		status = find_field(recall, label, KILN_FIELD_BYTES, &field);
		if (status == KILN_MISS)
			return KILN_OK;
		if (!status)
			status = recall_header(recall, &field);
	}
	return status;
}

static void recall_fini(struct recall *recall)
{
	cl_uint i;

	for (i = 0; i < recall->n_headers; i++) {
		ki_cl_source_unref(recall->headers[i].source);
		free(recall->names[i]);
	}
	ki_cl_source_unref(recall->source);
	free(recall->headers);
	free(recall->names);
	free(recall->constants);
	free(recall->options);
}

static enum kiln_status recall_options(struct recall *recall)
{
	struct kiln_field field;
	enum kiln_status status = kiln_record_find(recall->record, recall->size,
						   "options", &field);

	if (status)
		return KILN_E_FORMAT;
	return field.kind == KILN_FIELD_BYTES
		       ? text_of(&field, &recall->options)
		       : KILN_OK;
}

static enum kiln_status recall_source(struct recall *recall)
{
	struct kiln_field il;
	enum kiln_status status =
		find_field(recall, "il", KILN_FIELD_DIGEST, &il);

	if (!status)
		status = recall_il(recall, &il);
	else if (status == KILN_MISS)
		return recall_text(recall, "source", &recall->source);
	return status ? status : recall_constants(recall);
}

static enum kiln_status recall_build(struct recall *recall,
				     enum ki_cl_recipe_kind kind,
				     struct ki_cl_recipe **out_recipe)
{
	struct ki_cl_recipe *recipe = NULL;
	enum kiln_status status = recall_options(recall);

	if (!status)
		status = recall_source(recall);
	if (!status && kind == KI_CL_COMPILE)
		status = recall_headers(recall);
	if (status)
		return status;
	recipe = kind == KI_CL_BUILD
			 ? ki_cl_recipe_build(recall->source, recall->constants,
					      recall->n_constants,
					      recall->options)
			 : ki_cl_recipe_compile(
				   recall->source, recall->constants,
				   recall->n_constants, recall->headers,
				   recall->n_headers, recall->options);
	if (!recipe)
		return KILN_E_NO_MEMORY;
	*out_recipe = recipe;
	return KILN_OK;
}

static enum kiln_status recall_link(const struct recall *recall,
				    const void *metadata, size_t size,
				    struct ki_cl_recipe **out_recipe)
{
	struct ki_cl_recipe *recipe;
	struct kiln_blob *blob;
	const void *digests;
	size_t digests_size;
	enum kiln_status status = kiln_metadata_find(
		metadata, size, KILN_META_SOURCES, &digests, &digests_size);

	if (status)
		return status;
	if (digests_size < KILN_SOURCE_DIGEST_BYTES)
		return KILN_E_FORMAT;
	status = kiln_find_source(recall->kiln, digests, &blob);
	if (status)
		return status;
	status = ki_cl_recipe_read(kiln_blob_data(blob), kiln_blob_size(blob),
				   &recipe);
	kiln_blob_unref(blob);
	/* The first that is kept may be an include. */
	if (!status && recipe->kind != KI_CL_LINK) {
		ki_cl_recipe_unref(recipe);
		status = KILN_E_FORMAT;
	}
	if (!status)
		*out_recipe = recipe;
	return status == KILN_E_FORMAT ? KILN_MISS : status;
}

enum kiln_status ki_cl_recall(struct kiln *kiln, const void *record,
			      size_t size, const void *metadata,
			      size_t metadata_size,
			      struct ki_cl_recipe **out_recipe)
{
	struct recall recall = { .kiln = kiln, .record = record, .size = size };
	enum ki_cl_recipe_kind kind = ki_cl_key_kind(record, size);
	enum kiln_status status;

	switch ((int)kind) {
	case KI_CL_BUILD:
	case KI_CL_COMPILE:
		status = recall_build(&recall, kind, out_recipe);
		break;
	case KI_CL_LINK:
		status = recall_link(&recall, metadata, metadata_size,
				     out_recipe);
		break;
	default:
		status = KILN_E_FORMAT;
	}
	recall_fini(&recall);
	return status;
}
