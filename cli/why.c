/* SPDX-License-Identifier: MIT */

/*
 * kiln why: what made this entry another than the one before it.
 *
 * With one key it is compared with the nearest entry: of the same kind and, if
 * there is one, of the same source; then the one of which the fewest fields
 * differ; then the newest.
 */

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "compare.h"
#include "entry.h"
#include "field.h"
#include "find.h"
#include "lines.h"
#include "out.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

/* ---- The nearest entry -------------------------------------------------------- */

struct distance {
	int is_other_source;
	size_t n_differences;
	uint64_t created; /* seconds since 1970; more is nearer */
};

static int is_nearer(const struct distance *a, const struct distance *b)
{
	if (a->is_other_source != b->is_other_source)
		return a->is_other_source < b->is_other_source;
	if (a->n_differences != b->n_differences)
		return a->n_differences < b->n_differences;
	return a->created > b->created;
}

static uint64_t metadata_number(const struct kiln_entry *entry,
				enum kiln_metadata_field field)
{
	uint64_t value = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
				     kiln_blob_size(entry->metadata), field,
				     &value);
	return value;
}

static int is_hidden(const struct kiln_entry *entry)
{
	return (metadata_number(entry, KILN_META_FLAGS) & KILN_ENTRY_HIDDEN) !=
	       0;
}

/* 0, -EINVAL if the two cannot be compared, -ENOMEM. */
static int measure(const struct kiln_entry *candidate,
		   const struct kiln_entry *entry,
		   struct distance *out_distance)
{
	struct ki_comparison comparison;
	int err = ki_compare(&comparison, candidate->record, entry->record);

	if (!err && comparison.is_other_kind)
		err = -EINVAL;
	*out_distance = (struct distance){
		comparison.is_other_source,
		comparison.n_differences,
		metadata_number(candidate, KILN_META_CREATED),
	};
	ki_comparison_fini(&comparison);
	return err;
}

/* Whether its record says of what it is, or can be made to. */
static int is_known(const struct ki_settings *settings,
		    struct kiln_entry *entry)
{
	const int is_told = ki_what_is_sycl(settings) &&
			    ki_sycl_tell_key(settings->directory, entry);

	return is_told || !entry->is_foreign;
}

/* An exit status; without any *out_found is 0. */
static int find_nearest(struct kiln *kiln, const struct ki_settings *settings,
			const struct kiln_entry *entry,
			struct kiln_entry *out_nearest, int *out_found)
{
	struct kiln_cursor cursor = { { 0 } };
	struct distance distance, shortest = { 0 };
	struct kiln_entry candidate;
	enum kiln_status status;

	*out_found = 0;
	while ((status = kiln_list(kiln, &cursor, &candidate)) == KILN_OK) {
		if (!memcmp(candidate.digest, entry->digest,
			    KILN_DIGEST_BYTES) ||
		    is_hidden(&candidate) || !is_known(settings, &candidate) ||
		    measure(&candidate, entry, &distance) ||
		    (*out_found && !is_nearer(&distance, &shortest))) {
			kiln_entry_fini(&candidate);
			continue;
		}
		if (*out_found)
			kiln_entry_fini(out_nearest);
		*out_nearest = candidate;
		*out_found = 1;
		shortest = distance;
	}
	if (status == KILN_END)
		return KI_EXIT_OK;
	if (*out_found)
		kiln_entry_fini(out_nearest);
	return ki_store_failed(status, "cannot list");
}

/* ---- Telling -------------------------------------------------------------------- */

static const char *change_of(const struct ki_difference *difference)
{
	return !difference->before  ? "added"
	       : !difference->after ? "removed"
				    : "changed";
}

/* Libraries are linked of libraries. */
#define DEPTH_MAX 4

/* The inputs of two links that differ, as far as they are stored. */
struct inputs {
	struct kiln_entry before, after;
	struct ki_comparison comparison;
};

static int is_of_input(const struct ki_difference *difference)
{
	static const char prefix[] = "input ";
	const struct kiln_field *before = difference->before;
	const struct kiln_field *after = difference->after;

	return before && after && before->kind == KILN_FIELD_DIGEST &&
	       after->kind == KILN_FIELD_DIGEST &&
	       after->label_size >= sizeof(prefix) - 1 &&
	       !memcmp(after->label, prefix, sizeof(prefix) - 1);
}

/* 1, to be ended with inputs_fini(), or 0. */
static int inputs_init(struct inputs *inputs, struct kiln *kiln,
		       const struct ki_difference *difference, unsigned depth)
{
	if (depth == DEPTH_MAX || !is_of_input(difference) ||
	    !ki_find_record(kiln, difference->before, &inputs->before))
		return 0;
	if (ki_find_record(kiln, difference->after, &inputs->after)) {
		if (!ki_compare(&inputs->comparison, inputs->before.record,
				inputs->after.record))
			return 1;
		ki_comparison_fini(&inputs->comparison);
		kiln_entry_fini(&inputs->after);
	}
	kiln_entry_fini(&inputs->before);
	return 0;
}

static void inputs_fini(struct inputs *inputs)
{
	ki_comparison_fini(&inputs->comparison);
	kiln_entry_fini(&inputs->after);
	kiln_entry_fini(&inputs->before);
}

static void differences_json(struct ki_json *json, struct kiln *kiln,
			     const struct ki_comparison *comparison,
			     unsigned depth);

static void difference_json(struct ki_json *json, struct kiln *kiln,
			    const struct ki_difference *difference,
			    unsigned depth)
{
	const struct kiln_field *field =
		difference->after ? difference->after : difference->before;
	struct inputs inputs;
	struct ki_lines lines;
	struct ki_bytes words;

	ki_bytes_init(&words);
	ki_difference_words(&words, difference);
	ki_json_object(json, NULL);
	ki_json_string_n(json, "label", field->label, field->label_size);
	ki_json_string(json, "change", change_of(difference));
	ki_json_string_n(json, "words",
			 words.data ? (const char *)words.data : "",
			 words.size);
	if (difference->before)
		ki_field_json(json, "before", difference->before);
	if (difference->after)
		ki_field_json(json, "after", difference->after);
	if (ki_lines_init(&lines, kiln, difference)) {
		ki_json_object(json, "lines");
		ki_json_number(json, "first", lines.first);
		ki_json_number(json, "before", lines.n_before);
		ki_json_number(json, "after", lines.n_after);
		ki_json_end(json);
		ki_lines_fini(&lines);
	}
	if (inputs_init(&inputs, kiln, difference, depth)) {
		differences_json(json, kiln, &inputs.comparison, depth + 1);
		inputs_fini(&inputs);
	}
	ki_json_end(json);
	ki_bytes_fini(&words);
}

static void differences_json(struct ki_json *json, struct kiln *kiln,
			     const struct ki_comparison *comparison,
			     unsigned depth)
{
	size_t i;

	ki_json_array(json, "differences");
	for (i = 0; i < comparison->n_differences; i++)
		difference_json(json, kiln, &comparison->differences[i], depth);
	ki_json_end(json);
}

static void tell_json(struct ki_bytes *out, struct kiln *kiln,
		      const struct ki_entry_view *view,
		      const struct ki_entry_view *other,
		      const struct ki_comparison *comparison)
{
	struct ki_json json;

	ki_out_json(out, &json);
	ki_entry_json(&json, "entry", view);
	if (other)
		ki_entry_json(&json, "other", other);
	else
		ki_json_null(&json, "other");
	differences_json(&json, kiln, comparison, 0);
	ki_json_end(&json);
}

/* "0123456789ab (an-application, made 3 min ago)" */
static void name(struct ki_bytes *out, const struct ki_entry_view *view)
{
	char age[32];

	ki_bytes_add_string(out, view->short_key);
	if (!*view->application && !view->created)
		return;
	ki_bytes_add_string(out, " (");
	ki_out_safe(out, ki_last_name(view->application), 0);
	if (*view->application && view->created)
		ki_bytes_add_string(out, ", ");
	if (view->created)
		ki_bytes_printf(out, "made %s",
				ki_format_age(view->age_s, age, sizeof(age)));
	ki_bytes_add_u8(out, ')');
}

static void differences_text(struct ki_bytes *out, struct kiln *kiln,
			     const struct ki_comparison *comparison,
			     unsigned depth)
{
	struct inputs inputs;
	struct ki_lines lines;
	size_t i;

	for (i = 0; i < comparison->n_differences; i++) {
		const struct ki_difference *difference =
			&comparison->differences[i];

		ki_bytes_printf(out, "%*s", 2 * (int)depth + 2, "");
		ki_difference_words(out, difference);
		ki_bytes_add_u8(out, '\n');
		if (ki_lines_init(&lines, kiln, difference)) {
			ki_lines_text(out, &lines, 2 * (int)depth + 6);
			ki_lines_fini(&lines);
		}
		if (inputs_init(&inputs, kiln, difference, depth)) {
			differences_text(out, kiln, &inputs.comparison,
					 depth + 1);
			inputs_fini(&inputs);
		}
	}
}

static void tell_text(struct ki_bytes *out, struct kiln *kiln,
		      const struct ki_entry_view *view,
		      const struct ki_entry_view *other,
		      const struct ki_comparison *comparison)
{
	name(out, view);
	if (!other) {
		ki_bytes_add_string(out, ": nothing else of its kind is "
					 "stored\n");
		return;
	}
	ki_bytes_add_string(out, " is another than ");
	name(out, other);
	ki_bytes_add_string(out, ":\n");
	differences_text(out, kiln, comparison, 0);
	if (!comparison->n_differences)
		ki_bytes_add_string(out, strcmp(view->key, other->key)
						 ? "  the order of the fields\n"
						 : "  nothing: it is the same "
						   "entry\n");
}

/* `other` may be NULL. */
static int tell(const struct ki_command *command, struct kiln *kiln,
		const struct kiln_entry *entry, const struct kiln_entry *other)
{
	struct ki_comparison comparison = { .n_differences = 0 };
	struct ki_entry_view view, other_view;
	struct ki_bytes out;
	int err;

	ki_bytes_init(&out);
	err = ki_entry_view_init(&view, entry);
	if (other && ki_entry_view_init(&other_view, other))
		err = -ENOMEM;
	if (other && !err)
		err = ki_compare(&comparison, other->record, entry->record);
	if (err)
		out.failed = err;
	else if (ki_given(command, KI_OPTION_JSON))
		tell_json(&out, kiln, &view, other ? &other_view : NULL,
			  &comparison);
	else
		tell_text(&out, kiln, &view, other ? &other_view : NULL,
			  &comparison);
	ki_comparison_fini(&comparison);
	if (other)
		ki_entry_view_fini(&other_view);
	ki_entry_view_fini(&view);
	return ki_out_write(&out, KI_EXIT_OK);
}

/* ---- The verb ------------------------------------------------------------------- */

static int complain_of_foreign(const struct ki_settings *settings,
			       const struct kiln_entry *entry)
{
	ki_complain("%s is %s: nobody knows of which build it is", entry->file,
		    ki_what_owner(settings));
	return KI_EXIT_NOT_FOUND;
}

/* Of two keys the second is the one to be explained. */
static int explain(const struct ki_command *command, struct kiln *kiln,
		   const struct ki_settings *settings, struct kiln_entry *first)
{
	struct kiln_entry other;
	int found = 1, status;

	if (!is_known(settings, first))
		return complain_of_foreign(settings, first);
	if (command->n_arguments > 1)
		status = ki_find_entry(kiln, settings, command->arguments[1],
				       &other);
	else
		status = find_nearest(kiln, settings, first, &other, &found);
	if (status)
		return status;
	if (command->n_arguments > 1 && !is_known(settings, &other))
		status = complain_of_foreign(settings, &other);
	else if (command->n_arguments > 1)
		status = tell(command, kiln, &other, first);
	else
		status = tell(command, kiln, first, found ? &other : NULL);
	if (found)
		kiln_entry_fini(&other);
	return status;
}

int ki_verb_why(const struct ki_command *command)
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
		status = explain(command, kiln, &settings, &entry);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
