/* SPDX-License-Identifier: MIT */

#include "explain.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "compare.h"
#include "entry.h"
#include "field.h"
#include "find.h"
#include "lines.h"
#include "out.h"

/* ---- Differences ------------------------------------------------------------------- */

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

/* "0123456789ab (an-application, made 3 min ago)" */
static void add_name(struct ki_bytes *out, const struct ki_entry_view *view)
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

/* ---- Two entries ------------------------------------------------------------------ */

struct pair {
	struct ki_entry_view view, other;
	struct ki_comparison comparison;
	int has_other;
};

/* 0, -EINVAL, -ENOMEM; fini in any case. */
static int pair_init(struct pair *pair, const struct kiln_entry *entry,
		     const struct kiln_entry *other)
{
	int err = ki_entry_view_init(&pair->view, entry);

	pair->comparison = (struct ki_comparison){ .n_differences = 0 };
	pair->has_other = other != NULL;
	if (other && ki_entry_view_init(&pair->other, other))
		err = -ENOMEM;
	if (other && !err)
		err = ki_compare(&pair->comparison, other->record,
				 entry->record);
	return err;
}

static void pair_fini(struct pair *pair)
{
	ki_comparison_fini(&pair->comparison);
	if (pair->has_other)
		ki_entry_view_fini(&pair->other);
	ki_entry_view_fini(&pair->view);
}

static void add_pair(struct ki_bytes *out, struct kiln *kiln,
		     const struct pair *pair)
{
	add_name(out, &pair->view);
	if (!pair->has_other) {
		ki_bytes_add_string(out, ": nothing else of its kind is "
					 "stored\n");
		return;
	}
	ki_bytes_add_string(out, " is another than ");
	add_name(out, &pair->other);
	ki_bytes_add_string(out, ":\n");
	differences_text(out, kiln, &pair->comparison, 0);
	if (!pair->comparison.n_differences)
		ki_bytes_add_string(out, strcmp(pair->view.key, pair->other.key)
						 ? "  the order of the fields\n"
						 : "  nothing: it is the same "
						   "entry\n");
}

void ki_explain_text(struct ki_bytes *out, struct kiln *kiln,
		     const struct kiln_entry *entry,
		     const struct kiln_entry *other)
{
	struct pair pair;
	int err = pair_init(&pair, entry, other);

	if (err)
		out->failed = err;
	else
		add_pair(out, kiln, &pair);
	pair_fini(&pair);
}

void ki_explain_json(struct ki_json *json, struct kiln *kiln,
		     const struct kiln_entry *entry,
		     const struct kiln_entry *other)
{
	struct pair pair;
	int err = pair_init(&pair, entry, other);

	if (err) {
		json->bytes->failed = err;
	} else {
		ki_entry_json(json, "entry", &pair.view);
		if (other)
			ki_entry_json(json, "other", &pair.other);
		else
			ki_json_null(json, "other");
		differences_json(json, kiln, &pair.comparison, 0);
	}
	pair_fini(&pair);
}
