/* SPDX-License-Identifier: MIT */

/* kiln show: one entry, with its key field by field. */

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "entry.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

/* ---- Finding ------------------------------------------------------------------ */

static int is_prefix(const char *prefix)
{
	size_t length = strlen(prefix);

	return length >= KI_KEY_MIN && length <= 2 * KILN_DIGEST_BYTES &&
	       strspn(prefix, "0123456789abcdef") == length;
}

static int matches(const struct kiln_entry *entry, const char *prefix)
{
	char key[2 * KILN_DIGEST_BYTES + 1];

	ki_hex(entry->digest, KILN_DIGEST_BYTES, key);
	return !strncmp(key, prefix, strlen(prefix));
}

/* The entry that begins so, if it is the only one. */
static int find(struct kiln *kiln, const char *prefix,
		struct kiln_entry *out_entry)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry, found = { .record = NULL };
	enum kiln_status status;
	size_t n = 0;

	while ((status = kiln_list(kiln, &cursor, &entry)) == KILN_OK) {
		int is_same = n && !memcmp(entry.digest, found.digest,
					   KILN_DIGEST_BYTES);

		if (!matches(&entry, prefix) || is_same || n++)
			kiln_entry_fini(&entry);
		else
			found = entry;
	}
	if (status == KILN_END && n == 1) {
		*out_entry = found;
		return KI_EXIT_OK;
	}
	if (n)
		kiln_entry_fini(&found);
	if (status != KILN_END)
		return ki_store_failed(status, "cannot list");
	if (!n) {
		ki_complain("no entry begins with '%s'", prefix);
		return KI_EXIT_NOT_FOUND;
	}
	ki_complain("%zu entries begin with '%s': give more digits", n, prefix);
	return KI_EXIT_USAGE;
}

/* ---- Showing ------------------------------------------------------------------ */

static const char *const kinds[] = {
	[KILN_FIELD_BYTES] = "bytes",
	[KILN_FIELD_DIGEST] = "digest",
	[KILN_FIELD_ABSENT] = "absent",
};

static int is_text(const struct kiln_field *field)
{
	const unsigned char *data = field->data;
	size_t i;

	for (i = 0; i < field->size; i++)
		if (data[i] < 0x20 && data[i] != '\n' && data[i] != '\t')
			return 0;
	return field->kind == KILN_FIELD_BYTES;
}

/* The value as it is, or its bytes in hexadecimal. */
static char *text_of(const struct kiln_field *field)
{
	char *text;

	if (field->kind == KILN_FIELD_ABSENT)
		return strdup("");
	if (is_text(field))
		return strndup(field->data, field->size);
	text = malloc(2 * field->size + 1);
	if (text)
		ki_hex(field->data, field->size, text);
	return text;
}

static void field_json(struct ki_json *json, const struct kiln_field *field)
{
	char *text = text_of(field);

	ki_json_object(json, NULL);
	ki_json_string_n(json, "label", field->label, field->label_size);
	ki_json_string(json, "kind", kinds[field->kind]);
	ki_json_bool(json, "local", field->local);
	ki_json_string(json, is_text(field) ? "value" : "hex",
		       text ? text : "");
	if (field->kind == KILN_FIELD_DIGEST)
		ki_json_number(json, "size", field->original_size);
	ki_json_end(json);
	free(text);
}

static void print_json(struct ki_bytes *out, const struct kiln_entry *entry,
		       const struct ki_entry_view *view)
{
	struct kiln_field field;
	struct ki_json json;
	size_t position = 0;

	ki_json_begin(&json, out);
	ki_json_object(&json, NULL);
	ki_json_number(&json, "schema", 1);
	ki_entry_json_open(&json, "entry", view);
	ki_json_array(&json, "fields");
	while (kiln_record_next(kiln_blob_data(entry->record),
				kiln_blob_size(entry->record), &position,
				&field) == KILN_OK)
		field_json(&json, &field);
	ki_json_end(&json);
	ki_json_end(&json);
	ki_json_end(&json);
}

static void line(struct ki_bytes *out, const char *words, const char *value)
{
	if (!*value)
		return;
	ki_bytes_printf(out, "%-14s", words);
	ki_out_safe(out, value, 0);
	ki_bytes_add_u8(out, '\n');
}

static void field_text(struct ki_bytes *out, const struct kiln_field *field)
{
	char *text = text_of(field);
	char label[KILN_LABEL_BYTES_MAX + 1];

	snprintf(label, sizeof(label), "%.*s", (int)field->label_size,
		 field->label);
	ki_bytes_add_string(out, "  ");
	ki_out_safe(out, label, 0);
	ki_bytes_add_string(out, " = ");
	if (field->kind == KILN_FIELD_ABSENT)
		ki_bytes_add_string(out, "(not there)");
	else if (field->kind == KILN_FIELD_DIGEST)
		ki_bytes_printf(out, "(%llu bytes) ",
				(unsigned long long)field->original_size);
	else if (!is_text(field))
		ki_bytes_add_string(out, "0x");
	ki_out_safe(out, text ? text : "", 0);
	ki_bytes_add_string(out, field->local ? "  [local]\n" : "\n");
	free(text);
}

static void print_text(struct ki_bytes *out, const struct kiln_entry *entry,
		       const struct ki_entry_view *view)
{
	struct kiln_field field;
	size_t position = 0;
	char text[32];

	line(out, "key", view->key);
	line(out, "front", view->front);
	line(out, "application", view->application);
	line(out, "directory", view->directory);
	line(out, "options", view->options);
	line(out, "namespace", view->name_space);
	if (view->created)
		line(out, "made",
		     ki_format_age(view->age_s, text, sizeof(text)));
	line(out, "build time",
	     ki_format_duration(view->build_ns, text, sizeof(text)));
	line(out, "size", ki_format_size(view->value_size, text, sizeof(text)));
	snprintf(text, sizeof(text), "%llu", (unsigned long long)view->stage);
	line(out, "stage", text);
	ki_bytes_add_string(out, "fields of the key:\n");
	while (kiln_record_next(kiln_blob_data(entry->record),
				kiln_blob_size(entry->record), &position,
				&field) == KILN_OK)
		field_text(out, &field);
}

static int show(const struct ki_command *command,
		const struct kiln_entry *entry)
{
	struct ki_entry_view view;
	struct ki_bytes out;

	ki_bytes_init(&out);
	if (ki_entry_view_init(&view, entry))
		out.failed = -1;
	else if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, entry, &view);
	else
		print_text(&out, entry, &view);
	ki_entry_view_fini(&view);
	return ki_out_write(&out, KI_EXIT_OK);
}

int ki_verb_show(const struct ki_command *command)
{
	const char *prefix = command->arguments[0];
	struct ki_settings settings;
	struct kiln_entry entry;
	struct kiln *kiln = NULL;
	int status;

	if (!is_prefix(prefix)) {
		ki_complain("'%s' is no key: %d to %d hexadecimal digits",
			    prefix, KI_KEY_MIN, 2 * KILN_DIGEST_BYTES);
		return KI_EXIT_USAGE;
	}
	status = ki_settings_load(&settings, command);
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status && !kiln) {
		ki_complain("no entry begins with '%s'", prefix);
		status = KI_EXIT_NOT_FOUND;
	}
	if (!status)
		status = find(kiln, prefix, &entry);
	if (!status) {
		status = show(command, &entry);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
