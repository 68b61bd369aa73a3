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
#include "what.h"

#define KEPT_MAX 256 /* sources that are looked for */

/* Of what the digests stand for, how much is kept beside. */
struct kept {
	uint64_t n;
	uint64_t of;
};

static struct kept count_kept(struct kiln *kiln, const struct kiln_entry *entry)
{
	struct kept kept = { 0, 0 };
	struct kiln_field field;
	struct kiln_blob *source;
	size_t position = 0;

	while (kiln_record_next(kiln_blob_data(entry->record),
				kiln_blob_size(entry->record), &position,
				&field) == KILN_OK &&
	       kept.of < KEPT_MAX) {
		if (field.kind != KILN_FIELD_DIGEST)
			continue;
		kept.of++;
		if (kiln_find_source(kiln, field.data, &source))
			continue;
		kept.n++;
		kiln_blob_unref(source);
	}
	return kept;
}

static void print_json(struct ki_bytes *out, const struct kiln_entry *entry,
		       const struct ki_entry_view *view,
		       const struct ki_what *what, const struct kept *kept)
{
	struct kiln_field field;
	struct ki_json json;
	size_t position = 0;

	ki_out_json(out, &json);
	ki_entry_json_open(&json, "entry", view);
	if (*view->file)
		ki_what_json(what, &json);
	ki_json_object(&json, "sources");
	ki_json_number(&json, "kept", kept->n);
	ki_json_number(&json, "of", kept->of);
	ki_json_end(&json);
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

static void number(struct ki_bytes *out, const char *words, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	line(out, words, value ? text : "");
}

static void print_sycl(struct ki_bytes *out, const struct ki_sycl_parts *parts)
{
	if (parts->has_src && !parts->is_damaged)
		line(out, "image form", kiln_neo_form_name(parts->image_form));
	if (parts->binary.n > 1)
		number(out, "binaries", parts->binary.n);
	if (parts->is_kernel_compiler)
		line(out, "source",
		     "kernel_compiler's: what it is of, the files do not say");
	if (!parts->has_bin)
		line(out, "damage", "there is no .bin");
	else if (!parts->has_src && !parts->is_kernel_compiler)
		line(out, "source", "there is no .src");
	if (parts->is_damaged)
		line(out, "damage", "sizes in it are not those of its files");
}

static const char *whose(const struct ki_entry_view *view,
			 const struct ki_what *what)
{
	if (!view->is_foreign)
		return "kiln's";
	return what->is_sycl ? "DPC++'s own"
			     : "a driver's own: of which build, nobody knows";
}

/* Where entries are files. */
static void print_file(struct ki_bytes *out, const struct ki_entry_view *view,
		       const struct ki_what *what)
{
	const struct kiln_neo_description *form = &what->form;
	char text[32];

	line(out, "file", view->file);
	line(out, "whose", whose(view, what));
	if (what->is_sycl)
		print_sycl(out, &what->sycl);
	line(out, "form", kiln_neo_form_name(form->form));
	line(out, "ELF type", kiln_neo_elf_type_name(form->elf_type));
	line(out, "device", form->device);
	number(out, "kernels", form->n_kernels);
	if (form->n_kernels)
		line(out, "", form->kernels);
	if (form->is_cut)
		line(out, "damage", "it ends before its own tables say");
	if (view->used)
		line(out, "last use",
		     ki_format_age(view->used_age_s, text, sizeof(text)));
	number(out, "turn to go", view->turn);
}

/* How often an entry was found no store counts. */
static void print_saved(struct ki_bytes *out, const struct ki_entry_view *view)
{
	char text[32], words[64];

	if (!view->build_ns)
		return;
	snprintf(words, sizeof(words), "%s each time it is found",
		 ki_format_duration(view->build_ns, text, sizeof(text)));
	line(out, "saves", words);
	if (view->is_referenced)
		line(out, "found", "since the store last looked for room");
}

static void print_text(struct ki_bytes *out, const struct kiln_entry *entry,
		       const struct ki_entry_view *view,
		       const struct ki_what *what, const struct kept *kept,
		       int is_told)
{
	struct kiln_field field;
	size_t position = 0;
	char text[48];

	line(out, "key", view->key);
	line(out, "front", view->front);
	line(out, "application", view->application);
	line(out, "directory", view->directory);
	if (!what->is_sycl || !what->sycl.has_src)
		line(out, "options", view->options);
	line(out, "namespace", view->name_space);
	if (view->created)
		line(out, "made",
		     ki_format_age(view->age_s, text, sizeof(text)));
	if (view->build_ns || !view->is_foreign)
		line(out, "build time",
		     ki_format_duration(view->build_ns, text, sizeof(text)));
	print_saved(out, view);
	line(out, "size", ki_format_size(view->value_size, text, sizeof(text)));
	line(out, "in the store",
	     ki_format_size(view->stored_size, text, sizeof(text)));
	snprintf(text, sizeof(text), "%llu", (unsigned long long)view->stage);
	if (!view->is_foreign)
		line(out, "stage", text);
	snprintf(text, sizeof(text), "%llu of %llu",
		 (unsigned long long)kept->n, (unsigned long long)kept->of);
	line(out, "sources kept", kept->n ? text : "");
	if (*view->file)
		print_file(out, view, what);
	/* Of what has no .src, the record has the file's name alone. */
	if (view->is_foreign && what->is_sycl && !is_told)
		return;
	ki_bytes_add_string(out, "fields of the key:\n");
	while (kiln_record_next(kiln_blob_data(entry->record),
				kiln_blob_size(entry->record), &position,
				&field) == KILN_OK)
		field_text(out, &field);
}

static int show(const struct ki_command *command,
		const struct ki_settings *settings, struct kiln *kiln,
		struct kiln_entry *entry)
{
	const struct kept kept = count_kept(kiln, entry);
	struct ki_what what;
	struct ki_entry_view view;
	struct ki_bytes out;
	int is_told = 0;

	ki_bytes_init(&out);
	ki_what_look(settings, entry, &what);
	if (what.is_sycl && entry->is_foreign)
		is_told = ki_sycl_tell_key(settings->directory, entry);
	if (ki_entry_view_init(&view, entry))
		out.failed = -1;
	else if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, entry, &view, &what, &kept);
	else
		print_text(&out, entry, &view, &what, &kept, is_told);
	ki_entry_view_fini(&view);
	return ki_out_write(&out, KI_EXIT_OK);
}

int ki_verb_show(const struct ki_command *command)
{
	struct ki_settings settings;
	struct kiln_entry entry;
	struct kiln *kiln = NULL;
	int status;

	status = ki_settings_load(&settings, command, KI_STORE_LOOK);
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status)
		status = ki_find_entry(kiln, &settings, command->arguments[0],
				       &entry);
	if (!status) {
		status = show(command, &settings, kiln, &entry);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
