/* SPDX-License-Identifier: MIT */

#include "base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

void ki_json_begin(struct ki_json *json, struct ki_bytes *bytes)
{
	*json = (struct ki_json){ .bytes = bytes };
}

/* The length of the UTF-8 sequence at `text`, or 0 if it is not one. */
static size_t sequence(const uint8_t *text, size_t size)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t code;
	size_t length, i;

	if (text[0] < 0x80)
		return 1;
	if (text[0] >= 0xf8 || text[0] < 0xc0)
		return 0;
	length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
	if (length > size)
		return 0;
	code = text[0] & (0xffu >> (length + 1));
	for (i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (code < least[length] || code > 0x10ffff ||
	    (code >= 0xd800 && code < 0xe000))
		return 0;
	return length;
}

static void quote(struct ki_bytes *bytes, const char *string, size_t size)
{
	const uint8_t *text = (const uint8_t *)string;

	ki_bytes_add_u8(bytes, '"');
	while (size) {
		size_t length = sequence(text, size);

		if (!length) {
			ki_bytes_add_string(bytes, "\xef\xbf\xbd");
			length = 1;
		} else if (*text == '"' || *text == '\\') {
			ki_bytes_add_u8(bytes, '\\');
			ki_bytes_add_u8(bytes, *text);
		} else if (*text == '\n') {
			ki_bytes_add_string(bytes, "\\n");
		} else if (*text < 0x20 || *text == 0x7f) {
			ki_bytes_printf(bytes, "\\u%04x", *text);
		} else {
			ki_bytes_add(bytes, text, length);
		}
		text += length;
		size -= length;
	}
	ki_bytes_add_u8(bytes, '"');
}

static void member(struct ki_json *json, const char *name)
{
	if (json->depth) {
		int *has_members = &json->has_members[json->depth - 1];
		if (*has_members)
			ki_bytes_add_u8(json->bytes, ',');
		*has_members = 1;
		ki_bytes_add_u8(json->bytes, '\n');
		for (int i = 0; i < json->depth; i++)
			ki_bytes_add_u8(json->bytes, '\t');
	}
	if (name) {
		quote(json->bytes, name, strlen(name));
		ki_bytes_add_string(json->bytes, ": ");
	}
}

static void open_level(struct ki_json *json, const char *name, char opener,
		       char closer)
{
	assert(json->depth < KI_JSON_DEPTH_MAX);
	member(json, name);
	ki_bytes_add_u8(json->bytes, (uint8_t)opener);
	json->closers[json->depth] = closer;
	json->has_members[json->depth] = 0;
	json->depth++;
}

void ki_json_object(struct ki_json *json, const char *name)
{
	open_level(json, name, '{', '}');
}

void ki_json_array(struct ki_json *json, const char *name)
{
	open_level(json, name, '[', ']');
}

void ki_json_end(struct ki_json *json)
{
	assert(json->depth > 0);
	json->depth--;
	if (json->has_members[json->depth]) {
		ki_bytes_add_u8(json->bytes, '\n');
		for (int i = 0; i < json->depth; i++)
			ki_bytes_add_u8(json->bytes, '\t');
	}
	ki_bytes_add_u8(json->bytes, (uint8_t)json->closers[json->depth]);
	if (!json->depth)
		ki_bytes_add_u8(json->bytes, '\n');
}

void ki_json_string(struct ki_json *json, const char *name, const char *value)
{
	if (value)
		ki_json_string_n(json, name, value, strlen(value));
	else
		ki_json_null(json, name);
}

void ki_json_string_n(struct ki_json *json, const char *name, const char *value,
		      size_t size)
{
	member(json, name);
	quote(json->bytes, value, size);
}

void ki_json_number(struct ki_json *json, const char *name, uint64_t value)
{
	member(json, name);
	ki_bytes_printf(json->bytes, "%" PRIu64, value);
}

void ki_json_double(struct ki_json *json, const char *name, double value)
{
	member(json, name);
	if (isfinite(value))
		ki_bytes_printf(json->bytes, "%.6g", value);
	else
		ki_bytes_add_string(json->bytes, "null");
}

void ki_json_bool(struct ki_json *json, const char *name, int value)
{
	member(json, name);
	ki_bytes_add_string(json->bytes, value ? "true" : "false");
}

void ki_json_null(struct ki_json *json, const char *name)
{
	member(json, name);
	ki_bytes_add_string(json->bytes, "null");
}

void ki_json_ready(struct ki_json *json, const char *name, const char *value)
{
	member(json, name);
	ki_bytes_add_string(json->bytes, value);
}
