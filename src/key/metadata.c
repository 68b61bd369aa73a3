/* SPDX-License-Identifier: MIT */

/*
 * Metadata: fields of tag:u16 zero:u16 size:u32 data, little-endian, one after
 * another (docs/formats/key.md).  A reader skips tags that it does not know.
 */

#include "key/key.h"

#include <errno.h>
#include <stdlib.h>

struct kiln_metadata {
	struct ki_bytes bytes;
};

struct kiln_metadata *kiln_metadata_new(void)
{
	struct kiln_metadata *metadata = calloc(1, sizeof(*metadata));

	if (metadata) {
		ki_bytes_init(&metadata->bytes);
		metadata->bytes.limit = KILN_METADATA_BYTES_MAX;
	}
	return metadata;
}

static void add_field(struct ki_bytes *bytes, enum kiln_metadata_field field,
		      const void *data, size_t size)
{
	ki_bytes_add_u16(bytes, (uint16_t)field);
	ki_bytes_add_u16(bytes, 0);
	ki_bytes_add_u32(bytes, (uint32_t)size);
	ki_bytes_add(bytes, data, size);
}

void kiln_metadata_add(struct kiln_metadata *metadata,
		       enum kiln_metadata_field field, const void *data,
		       size_t size)
{
	if (!metadata)
		return;
	if (size > KILN_METADATA_BYTES_MAX)
		metadata->bytes.failed = -EFBIG;
	else
		add_field(&metadata->bytes, field, data, size);
}

void kiln_metadata_add_u64(struct kiln_metadata *metadata,
			   enum kiln_metadata_field field, uint64_t value)
{
	uint8_t bytes[8];

	ki_put_u64(bytes, value);
	kiln_metadata_add(metadata, field, bytes, sizeof(bytes));
}

void kiln_metadata_add_string(struct kiln_metadata *metadata,
			      enum kiln_metadata_field field,
			      const char *string)
{
	kiln_metadata_add(metadata, field, string, strlen(string));
}

void kiln_metadata_free(struct kiln_metadata *metadata)
{
	if (!metadata)
		return;
	ki_bytes_fini(&metadata->bytes);
	free(metadata);
}

enum kiln_status ki_metadata_bytes(const struct kiln_metadata *metadata,
				   const void **out_bytes, size_t *out_size)
{
	*out_bytes = NULL;
	*out_size = 0;
	if (!metadata)
		return KILN_OK;
	if (metadata->bytes.failed)
		return metadata->bytes.failed == -ENOMEM ? KILN_E_NO_MEMORY
							 : KILN_E_TOO_LARGE;
	*out_bytes = metadata->bytes.data;
	*out_size = metadata->bytes.size;
	return KILN_OK;
}

enum kiln_status kiln_metadata_bytes(const struct kiln_metadata *metadata,
				     const void **out_bytes, size_t *out_size)
{
	const void *bytes;
	size_t size;
	enum kiln_status status = ki_metadata_bytes(metadata, &bytes, &size);

	if (status)
		return status;
	*out_bytes = bytes;
	*out_size = size;
	return KILN_OK;
}

static enum kiln_status check_bytes(const void *bytes, size_t size)
{
	struct ki_reader reader = ki_reader(bytes, size);

	while (reader.size) {
		(void)ki_read_u32(&reader);
		(void)ki_read(&reader, ki_read_u32(&reader));
		if (reader.failed)
			return KILN_E_FORMAT;
	}
	return KILN_OK;
}

enum kiln_status kiln_metadata_from_bytes(const void *bytes, size_t size,
					  struct kiln_metadata **out_metadata)
{
	struct kiln_metadata *metadata;
	enum kiln_status status;

	if (size > KILN_METADATA_BYTES_MAX)
		return KILN_E_TOO_LARGE;
	status = check_bytes(bytes, size);
	if (status)
		return status;
	metadata = kiln_metadata_new();
	if (!metadata)
		return KILN_E_NO_MEMORY;
	ki_bytes_add(&metadata->bytes, bytes, size);
	if (metadata->bytes.failed) {
		kiln_metadata_free(metadata);
		return KILN_E_NO_MEMORY;
	}
	*out_metadata = metadata;
	return KILN_OK;
}

enum kiln_status kiln_metadata_find(const void *bytes, size_t size,
				    enum kiln_metadata_field field,
				    const void **out_data, size_t *out_size)
{
	struct ki_reader reader = ki_reader(bytes, size);

	while (reader.size) {
		uint16_t tag = ki_read_u16(&reader);
		size_t data_size;
		const void *data;

		(void)ki_read_u16(&reader);
		data_size = ki_read_u32(&reader);
		data = ki_read(&reader, data_size);
		if (reader.failed)
			return KILN_E_FORMAT;
		if (tag == (uint16_t)field) {
			*out_data = data;
			*out_size = data_size;
			return KILN_OK;
		}
	}
	return KILN_MISS;
}

enum kiln_status kiln_metadata_find_u64(const void *bytes, size_t size,
					enum kiln_metadata_field field,
					uint64_t *out_value)
{
	const void *data;
	size_t data_size;
	enum kiln_status status =
		kiln_metadata_find(bytes, size, field, &data, &data_size);

	if (status)
		return status;
	if (data_size != 8)
		return KILN_E_FORMAT;
	*out_value = ki_get_u64(data);
	return KILN_OK;
}

/* ---- What leaves the machine ------------------------------------------------ */

static const enum kiln_metadata_field portable_fields[] = {
	KILN_META_CREATED, KILN_META_BUILD_TIME, KILN_META_STAGE,
	KILN_META_OPTIONS, KILN_META_NAMESPACE,	 KILN_META_BUILD_LOG,
	KILN_META_KERNELS, KILN_META_FRONT,	 KILN_META_FLAGS,
};

enum kiln_status ki_metadata_portable(const void *bytes, size_t size,
				      struct ki_bytes *out)
{
	for (size_t i = 0;
	     i < sizeof(portable_fields) / sizeof(portable_fields[0]); i++) {
		const void *data;
		size_t data_size;
		enum kiln_status status = kiln_metadata_find(
			bytes, size, portable_fields[i], &data, &data_size);

		if (status < 0)
			return status;
		if (!status)
			add_field(out, portable_fields[i], data, data_size);
	}
	if (out->failed)
		return out->failed == -ENOMEM ? KILN_E_NO_MEMORY
					      : KILN_E_TOO_LARGE;
	return KILN_OK;
}

int ki_metadata_is_hidden(const void *bytes, size_t size)
{
	uint64_t flags;

	return !kiln_metadata_find_u64(bytes, size, KILN_META_FLAGS, &flags) &&
	       flags & KILN_ENTRY_HIDDEN;
}
