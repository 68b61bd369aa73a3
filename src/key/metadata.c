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

void kiln_metadata_add(struct kiln_metadata *metadata,
		       enum kiln_metadata_field field, const void *data,
		       size_t size)
{
	if (!metadata)
		return;
	if (size > KILN_METADATA_BYTES_MAX) {
		metadata->bytes.failed = -EFBIG;
		return;
	}
	ki_bytes_add_u16(&metadata->bytes, (uint16_t)field);
	ki_bytes_add_u16(&metadata->bytes, 0);
	ki_bytes_add_u32(&metadata->bytes, (uint32_t)size);
	ki_bytes_add(&metadata->bytes, data, size);
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
