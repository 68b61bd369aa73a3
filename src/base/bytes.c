/* SPDX-License-Identifier: MIT */

#include "base/bytes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CAPACITY_MIN 256

void ki_bytes_init(struct ki_bytes *bytes)
{
	*bytes = (struct ki_bytes){ 0 };
}

void ki_bytes_fini(struct ki_bytes *bytes)
{
	free(bytes->data);
	ki_bytes_init(bytes);
}

void ki_bytes_clear(struct ki_bytes *bytes)
{
	bytes->size = 0;
	bytes->failed = 0;
}

static int reserve(struct ki_bytes *bytes, size_t size)
{
	size_t capacity = bytes->capacity;
	uint8_t *data;

	if (bytes->failed)
		return bytes->failed;
	if (size > SIZE_MAX / 2 - bytes->size ||
	    (bytes->limit && bytes->size + size > bytes->limit))
		return bytes->failed = -EFBIG;
	if (bytes->size + size <= capacity)
		return 0;
	if (capacity < CAPACITY_MIN)
		capacity = CAPACITY_MIN;
	while (capacity < bytes->size + size)
		capacity *= 2;
	data = realloc(bytes->data, capacity);
	if (!data)
		return bytes->failed = -ENOMEM;
	bytes->data = data;
	bytes->capacity = capacity;
	return 0;
}

void *ki_bytes_grow(struct ki_bytes *bytes, size_t size)
{
	void *place;

	if (reserve(bytes, size))
		return NULL;
	place = bytes->data + bytes->size;
	bytes->size += size;
	return place;
}

void ki_bytes_add(struct ki_bytes *bytes, const void *data, size_t size)
{
	void *place;

	if (!size)
		return;
	place = ki_bytes_grow(bytes, size);
	if (place)
		memcpy(place, data, size);
}

void ki_bytes_add_string(struct ki_bytes *bytes, const char *string)
{
	ki_bytes_add(bytes, string, strlen(string));
}

void ki_bytes_add_u8(struct ki_bytes *bytes, uint8_t value)
{
	ki_bytes_add(bytes, &value, 1);
}

void ki_bytes_add_u16(struct ki_bytes *bytes, uint16_t value)
{
	uint8_t place[2];

	ki_put_u16(place, value);
	ki_bytes_add(bytes, place, sizeof(place));
}

void ki_bytes_add_u32(struct ki_bytes *bytes, uint32_t value)
{
	uint8_t place[4];

	ki_put_u32(place, value);
	ki_bytes_add(bytes, place, sizeof(place));
}

void ki_bytes_add_u64(struct ki_bytes *bytes, uint64_t value)
{
	uint8_t place[8];

	ki_put_u64(place, value);
	ki_bytes_add(bytes, place, sizeof(place));
}

void ki_bytes_printf(struct ki_bytes *bytes, const char *format, ...)
{
	va_list args;
	int size;

	va_start(args, format);
	size = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (size < 0 || reserve(bytes, (size_t)size + 1))
		return;
	va_start(args, format);
	vsnprintf((char *)bytes->data + bytes->size, (size_t)size + 1, format,
		  args);
	va_end(args);
	bytes->size += (size_t)size;
}

uint8_t *ki_bytes_take(struct ki_bytes *bytes, size_t *out_size)
{
	uint8_t *data = bytes->data;

	if (bytes->failed) {
		ki_bytes_fini(bytes);
		return NULL;
	}
	*out_size = bytes->size;
	ki_bytes_init(bytes);
	return data;
}

const void *ki_read(struct ki_reader *reader, size_t size)
{
	const uint8_t *data = reader->data;

	if (reader->failed || size > reader->size) {
		reader->failed = 1;
		return NULL;
	}
	reader->data += size;
	reader->size -= size;
	return data;
}

uint8_t ki_read_u8(struct ki_reader *reader)
{
	const uint8_t *p = ki_read(reader, 1);

	return p ? *p : 0;
}

uint16_t ki_read_u16(struct ki_reader *reader)
{
	const void *p = ki_read(reader, 2);

	return p ? ki_get_u16(p) : 0;
}

uint32_t ki_read_u32(struct ki_reader *reader)
{
	const void *p = ki_read(reader, 4);

	return p ? ki_get_u32(p) : 0;
}

uint64_t ki_read_u64(struct ki_reader *reader)
{
	const void *p = ki_read(reader, 8);

	return p ? ki_get_u64(p) : 0;
}
