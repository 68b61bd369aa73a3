/* SPDX-License-Identifier: MIT */

/* Where things lie, <kiln/sycl.h> tells; here they are read, as little of them as is
   needed. */

#include "sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys/sys.h"

#define EXT "ext_kernel_compiler/"
/* Of a binary or an image: as much is looked at. */
#define BINARY_MAX ((uint64_t)16 << 20)
#define IMAGES_MAX ((uint64_t)4096)

/* The bytes from malloc(), and one more; NULL. */
static uint8_t *read_span(const char *path, const struct kiln_sycl_span *span,
			  uint64_t size)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint8_t *bytes = NULL;
	int fd = sys->open(sys, path,
			   KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME,
			   0);

	if (fd < 0)
		return NULL;
	bytes = malloc((size_t)size + 1);
	if (bytes && ki_pread_all(sys, fd, bytes, (size_t)size, span->offset)) {
		free(bytes);
		bytes = NULL;
	}
	(void)sys->close(sys, fd);
	return bytes;
}

static void describe(const char *path, const struct kiln_sycl_span *span,
		     uint64_t size_max, struct kiln_neo_description *out)
{
	const uint64_t size = span->size < size_max ? span->size : size_max;
	uint8_t *bytes = read_span(path, span, size);

	if (!bytes)
		return;
	kiln_neo_describe_bytes(bytes, (size_t)size, out);
	if (size < span->size)
		out->is_cut = 0; /* it was cut here */
	free(bytes);
}

static void look_at_src(const char *path, struct ki_sycl_parts *parts)
{
	struct kiln_neo_description image = { .form = KILN_NEO_OTHER };
	const enum kiln_status status =
		kiln_sycl_describe_source(path, &parts->source);

	parts->has_src = !status || status == KILN_E_FORMAT;
	if (status == KILN_E_FORMAT)
		parts->is_damaged = 1;
	if (status)
		return;
	describe(path, &parts->source.images, IMAGES_MAX, &image);
	parts->image_form = image.form;
}

static void look_at_bin(const char *path, struct ki_sycl_parts *parts,
			struct kiln_neo_description *form)
{
	const enum kiln_status status =
		kiln_sycl_describe_binary(path, &parts->binary);

	parts->has_bin = !status || status == KILN_E_FORMAT;
	if (status == KILN_E_FORMAT)
		parts->is_damaged = 1;
	if (!status)
		describe(path, &parts->binary.first, BINARY_MAX, form);
}

void ki_sycl_parts_look(const char *directory, const char *file,
			struct ki_sycl_parts *out_parts,
			struct kiln_neo_description *out_form)
{
	const size_t size = strlen(file);
	char path[KI_PATH_MAX];

	memset(out_parts, 0, sizeof(*out_parts));
	memset(out_form, 0, sizeof(*out_form));
	if (size < 4 || ki_path_join(path, directory, file))
		return;
	out_parts->is_kernel_compiler = !strncmp(file, EXT, sizeof(EXT) - 1);
	memcpy(path + strlen(path) - 4, ".bin", 4);
	look_at_bin(path, out_parts, out_form);
	memcpy(path + strlen(path) - 4, ".src", 4);
	look_at_src(path, out_parts);
}

/* ---- Keys -------------------------------------------------------------------- */

static const char image_label[] = "sycl.image";
/* An image is read whole for its digest. */
#define IMAGE_MAX ((uint64_t)1 << 30)

static int add_span(struct kiln_key *key, const char *label, const char *path,
		    const struct kiln_sycl_span *span)
{
	uint8_t *bytes = span->size <= IMAGE_MAX
				 ? read_span(path, span, span->size)
				 : NULL;

	if (!bytes)
		return -1;
	if (label == image_label)
		kiln_key_add_digest(key, label, bytes, (size_t)span->size);
	else
		kiln_key_add(key, label, bytes, (size_t)span->size);
	free(bytes);
	return 0;
}

/* From a .src. */
static int add_fields(struct kiln_key *key, const char *path)
{
	struct kiln_sycl_source is;

	if (kiln_sycl_describe_source(path, &is))
		return -1;
	return add_span(key, "sycl.device", path, &is.device) ||
	       add_span(key, "sycl.options", path, &is.options) ||
	       add_span(key, "sycl.spec", path, &is.constants) ||
	       add_span(key, image_label, path, &is.images);
}

/* From a record of kiln's; fields that are not bytes stay away, which none of the
   four is. */
static int copy_fields(struct kiln_key *key, const struct kiln_entry *entry)
{
	struct kiln_field field;
	char label[KILN_LABEL_BYTES_MAX + 1];
	size_t position = 0;
	int has_image = 0;

	while (!kiln_record_next(kiln_blob_data(entry->record),
				 kiln_blob_size(entry->record), &position,
				 &field)) {
		memcpy(label, field.label, field.label_size);
		label[field.label_size] = '\0';
		if (field.kind != KILN_FIELD_BYTES || field.local)
			return -1;
		if (strcmp(label, image_label)) {
			kiln_key_add(key, label, field.data, field.size);
		} else {
			kiln_key_add_digest(key, label, field.data, field.size);
			has_image = 1;
		}
	}
	return has_image ? 0 : -1;
}

int ki_sycl_tell_key(const char *directory, struct kiln_entry *entry)
{
	struct kiln_key *key = kiln_key_new();
	struct kiln_blob *record = NULL;
	const size_t length = strlen(entry->file);
	char path[KI_PATH_MAX];
	const void *bytes;
	size_t size;
	int err = -1;

	if (!entry->is_foreign) {
		err = copy_fields(key, entry);
	} else if (length > 4 && !ki_path_join(path, directory, entry->file)) {
		memcpy(path + strlen(path) - 4, ".src", 4);
		err = add_fields(key, path);
	}
	if (!err && !kiln_key_finish(key)) {
		bytes = kiln_key_record(key, &size);
		(void)kiln_blob_copy(bytes, size, &record);
	}
	kiln_key_free(key);
	if (!record)
		return 0;
	kiln_blob_unref(entry->record);
	entry->record = record;
	return 1;
}

/* ---- Words ------------------------------------------------------------------- */

/* The last '/' before `end`; NULL. */
static const char *slash_before(const char *text, const char *end)
{
	while (end && end-- > text)
		if (*end == '/')
			return end;
	return NULL;
}

void ki_sycl_device_name(const char *device, char out[KI_SYCL_TEXT_BYTES])
{
	/* A platform may have a slash, the other three hardly. */
	const char *driver = slash_before(device, device + strlen(device));
	const char *version = slash_before(device, driver);
	const char *name = slash_before(device, version);

	if (name)
		snprintf(out, KI_SYCL_TEXT_BYTES, "%.*s",
			 (int)(version - name - 1), name + 1);
	else
		snprintf(out, KI_SYCL_TEXT_BYTES, "%s", device);
}
