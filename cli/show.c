/* SPDX-License-Identifier: MIT */

/* kiln show: one entry, with its key field by field. */

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "entry.h"
#include "field.h"
#include "find.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

static void print_json(struct ki_bytes *out, const struct kiln_entry *entry,
		       const struct ki_entry_view *view)
{
	struct kiln_field field;
	struct ki_json json;
	size_t position = 0;

	ki_out_json(out, &json);
	ki_entry_json_open(&json, "entry", view);
	ki_json_array(&json, "fields");
	while (kiln_record_next(kiln_blob_data(entry->record),
				kiln_blob_size(entry->record), &position,
				&field) == KILN_OK)
		ki_field_json(&json, NULL, &field);
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
	ki_bytes_add_string(out, "  ");
	ki_field_label(out, field);
	ki_bytes_add_string(out, " = ");
	ki_field_value(out, field);
	ki_bytes_add_string(out, field->local ? "  [local]\n" : "\n");
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
	struct ki_settings settings;
	struct kiln_entry entry;
	struct kiln *kiln = NULL;
	int status;

	status = ki_settings_load(&settings, command);
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status)
		status = ki_find_entry(kiln, &settings, command->arguments[0],
				       &entry);
	if (!status) {
		status = show(command, &entry);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
