/* SPDX-License-Identifier: MIT */

/*
 * Records do not say what their bytes are.  Front ends put texts and
 * little-endian numbers of 4 or 8 bytes there; a number whose bytes all happen
 * to be printable would be shown as text, but those are beyond 500 million.
 */

#include "field.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "out.h"

static const char *const kinds[] = {
	[KILN_FIELD_BYTES] = "bytes",
	[KILN_FIELD_DIGEST] = "digest",
	[KILN_FIELD_ABSENT] = "absent",
};

int ki_field_is_text(const struct kiln_field *field)
{
	const unsigned char *data = field->data;
	size_t i;

	for (i = 0; i < field->size; i++)
		if (data[i] < 0x20 && data[i] != '\n' && data[i] != '\t')
			return 0;
	return field->kind == KILN_FIELD_BYTES;
}

static int is_number(const struct kiln_field *field)
{
	return field->kind == KILN_FIELD_BYTES && !ki_field_is_text(field) &&
	       (field->size == 4 || field->size == 8);
}

static unsigned long long number_of(const struct kiln_field *field)
{
	return field->size == 4 ? ki_get_u32(field->data)
				: ki_get_u64(field->data);
}

/* A copy to free(); NULL without memory. */
static char *text_of(const struct kiln_field *field)
{
	char *text;

	if (field->kind == KILN_FIELD_ABSENT)
		return strdup("");
	if (ki_field_is_text(field))
		return strndup(field->data, field->size);
	text = malloc(2 * field->size + 1);
	if (text)
		ki_hex(field->data, field->size, text);
	return text;
}

void ki_field_label(struct ki_bytes *out, const struct kiln_field *field)
{
	char label[KILN_LABEL_BYTES_MAX + 1];

	memcpy(label, field->label, field->label_size);
	label[field->label_size] = '\0';
	ki_out_safe(out, label, 0);
}

void ki_field_value(struct ki_bytes *out, const struct kiln_field *field)
{
	char *text;

	if (field->kind == KILN_FIELD_ABSENT) {
		ki_bytes_add_string(out, "(not there)");
		return;
	}
	if (is_number(field)) {
		ki_bytes_printf(out, "%llu", number_of(field));
		return;
	}
	if (field->kind == KILN_FIELD_DIGEST)
		ki_bytes_printf(out, "(%llu bytes) ",
				(unsigned long long)field->original_size);
	else if (!ki_field_is_text(field))
		ki_bytes_add_string(out, "0x");
	text = text_of(field);
	ki_out_safe(out, text ? text : "", 0);
	free(text);
}

void ki_field_json(struct ki_json *json, const char *name,
		   const struct kiln_field *field)
{
	char *text = text_of(field);

	ki_json_object(json, name);
	ki_json_string_n(json, "label", field->label, field->label_size);
	ki_json_string(json, "kind", kinds[field->kind]);
	ki_json_bool(json, "local", field->local);
	ki_json_string(json, ki_field_is_text(field) ? "value" : "hex",
		       text ? text : "");
	if (is_number(field))
		ki_json_number(json, "number", number_of(field));
	if (field->kind == KILN_FIELD_DIGEST)
		ki_json_number(json, "size", field->original_size);
	ki_json_end(json);
	free(text);
}
