/* SPDX-License-Identifier: MIT */

/*
 * Files that anybody wrote: each size is held against what the file still has.
 * Nothing is written, no link followed, and no time of access left behind.
 */

#include "sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "sys/sys.h"

#define EXT "ext_kernel_compiler/"
/* Of a binary or an image: as much is looked at. */
#define LOOK_MAX     ((uint64_t)16 << 20)
#define BINARIES_MAX 4096

struct file {
	const struct ki_sys *sys;
	int fd;
	uint64_t size;
	uint64_t position;
};

struct span {
	uint64_t offset, size;
};

/* 0, or it is not there. */
static int open_file(struct file *file, const char *path)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_file_info info;

	*file = (struct file){ .sys = sys };
	file->fd = sys->open(sys, path,
			     KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME,
			     0);
	if (file->fd < 0)
		return -1;
	if (sys->fstat(sys, file->fd, &info) || !S_ISREG(info.mode)) {
		(void)sys->close(sys, file->fd);
		return -1;
	}
	file->size = info.size;
	return 0;
}

static void close_file(struct file *file)
{
	(void)file->sys->close(file->sys, file->fd);
}

static int read_number(struct file *file, uint64_t *out_number)
{
	uint8_t bytes[8];

	if (file->size - file->position < 8 ||
	    ki_pread_all(file->sys, file->fd, bytes, 8, file->position))
		return -1;
	file->position += 8;
	*out_number = ki_get_u64(bytes);
	return 0;
}

/* A size and as many bytes, which are stepped over. */
static int read_span(struct file *file, struct span *out_span)
{
	if (read_number(file, &out_span->size) ||
	    out_span->size > file->size - file->position)
		return -1;
	out_span->offset = file->position;
	file->position += out_span->size;
	return 0;
}

static void read_text(const struct file *file, const struct span *span,
		      char out[KI_SYCL_TEXT_BYTES])
{
	const size_t size = span->size < KI_SYCL_TEXT_BYTES
				    ? (size_t)span->size
				    : KI_SYCL_TEXT_BYTES - 1;

	if (ki_pread_all(file->sys, file->fd, out, size, span->offset))
		out[0] = '\0';
	else
		out[size] = '\0';
}

static void describe(const struct file *file, const struct span *span,
		     uint64_t size_max, struct kiln_neo_description *out)
{
	const size_t size =
		(size_t)(span->size < size_max ? span->size : size_max);
	uint8_t *bytes = malloc(size + 1);

	if (bytes &&
	    !ki_pread_all(file->sys, file->fd, bytes, size, span->offset)) {
		kiln_neo_describe_bytes(bytes, size, out);
		if (size < span->size)
			out->is_cut = 0; /* it was cut here */
	}
	free(bytes);
}

/* ---- .src -------------------------------------------------------------------- */

static void look_at_src(const char *path, struct ki_sycl_parts *parts)
{
	struct kiln_neo_description image = { .form = KILN_NEO_OTHER };
	struct span device, options, spec, images;
	struct file file;

	if (open_file(&file, path))
		return;
	parts->has_src = 1;
	parts->src_size = file.size;
	if (read_span(&file, &device) || read_span(&file, &options) ||
	    read_span(&file, &spec) || read_span(&file, &images) ||
	    file.position != file.size) {
		parts->is_damaged = 1;
	} else {
		read_text(&file, &device, parts->device);
		read_text(&file, &options, parts->options);
		parts->spec_size = spec.size;
		parts->image_size = images.size;
		describe(&file, &images, 4096, &image);
		parts->image_form = image.form;
	}
	close_file(&file);
}

/* ---- .bin -------------------------------------------------------------------- */

/* In one of the three forms: the first binary, and how many there are. */
static int find_binary(struct file *file, struct span *out_first,
		       uint64_t *out_n)
{
	struct span span;
	uint64_t n;

	file->position = 0;
	if (!read_span(file, out_first) && file->position == file->size &&
	    file->size > 8) {
		*out_n = 1;
		return 0;
	}
	file->position = 0;
	if (read_number(file, &n) || !n || n > BINARIES_MAX)
		return -1;
	for (uint64_t i = 0; i < n; i++) {
		if (read_span(file, &span))
			return -1;
		if (!i)
			*out_first = span;
	}
	*out_n = n;
	return file->position == file->size ? 0 : -1;
}

static void look_at_bin(const char *path, struct ki_sycl_parts *parts,
			struct kiln_neo_description *form)
{
	struct span first = { 0, 0 };
	struct file file;

	if (open_file(&file, path))
		return;
	parts->has_bin = 1;
	parts->bin_size = file.size;
	if (!find_binary(&file, &first, &parts->n_binaries)) {
		parts->binary_size = first.size;
		describe(&file, &first, LOOK_MAX, form);
	} else {
		parts->n_binaries = 0;
		parts->is_damaged = 1;
	}
	close_file(&file);
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

static int add_span(struct kiln_key *key, const char *label,
		    const struct file *file, const struct span *span)
{
	uint8_t *bytes =
		span->size <= IMAGE_MAX ? malloc(span->size + 1) : NULL;
	int err = !bytes || ki_pread_all(file->sys, file->fd, bytes, span->size,
					 span->offset);

	if (!err && label == image_label)
		kiln_key_add_digest(key, label, bytes, span->size);
	else if (!err)
		kiln_key_add(key, label, bytes, span->size);
	free(bytes);
	return err;
}

/* From a .src. */
static int add_fields(struct kiln_key *key, const char *path)
{
	static const char *const labels[] = { "sycl.device", "sycl.options",
					      "sycl.spec", image_label };
	struct file file;
	struct span span;
	int err = open_file(&file, path);

	if (err)
		return err;
	for (size_t i = 0; i < 4 && !err; i++)
		err = read_span(&file, &span) ||
		      add_span(key, labels[i], &file, &span);
	err = err || file.position != file.size;
	close_file(&file);
	return err;
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
