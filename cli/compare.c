/* SPDX-License-Identifier: MIT */

/*
 * Two key records are walked once each.  Labels are few (hundreds), so that
 * pairing by search is cheap; fields of both mostly stand in the same order,
 * and the search begins where the last one ended.
 */

#include "compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "field.h"
#include "out.h"

/* ---- Pairing -------------------------------------------------------------- */

static int read_fields(const struct kiln_blob *record,
		       struct kiln_field **out_fields, size_t *out_n)
{
	const void *bytes = kiln_blob_data(record);
	size_t size = kiln_blob_size(record), position = 0, n = 0;
	struct kiln_field field;
	enum kiln_status status;

	while (!(status = kiln_record_next(bytes, size, &position, &field)))
		n++;
	if (status != KILN_END)
		return -EINVAL;
	*out_fields = calloc(n + 1, sizeof(**out_fields));
	if (!*out_fields)
		return -ENOMEM;
	position = 0;
	while (!kiln_record_next(bytes, size, &position,
				 &(*out_fields)[*out_n]))
		++*out_n;
	return 0;
}

static int has_label(const struct kiln_field *field, const char *label)
{
	return field->label_size == strlen(label) &&
	       !memcmp(field->label, label, field->label_size);
}

static int same_label(const struct kiln_field *a, const struct kiln_field *b)
{
	return a->label_size == b->label_size &&
	       !memcmp(a->label, b->label, a->label_size);
}

static int same_value(const struct kiln_field *a, const struct kiln_field *b)
{
	return a->kind == b->kind && a->size == b->size &&
	       a->original_size == b->original_size &&
	       (!a->size || !memcmp(a->data, b->data, a->size));
}

/* The first field from `start` on, round the end, that is not taken. */
static size_t find_label(const struct kiln_field *fields, const char *taken,
			 size_t n, size_t start, const struct kiln_field *like)
{
	size_t i, at;

	for (i = 0; i < n; i++) {
		at = (start + i) % n;
		if (!taken[at] && same_label(&fields[at], like))
			return at;
	}
	return n;
}

static void add(struct ki_comparison *comparison,
		const struct kiln_field *before, const struct kiln_field *after)
{
	static const char *const of_source[] = { "source", "il", "sycl.image" };
	const struct kiln_field *field = after ? after : before;
	size_t i;

	comparison->differences[comparison->n_differences++] =
		(struct ki_difference){ before, after };
	if (has_label(field, "kind"))
		comparison->is_other_kind = 1;
	for (i = 0; i < sizeof(of_source) / sizeof(*of_source); i++)
		if (has_label(field, of_source[i]))
			comparison->is_other_source = 1;
}

static void pair(struct ki_comparison *comparison, char *taken)
{
	const struct kiln_field *before = comparison->before;
	size_t n = comparison->n_before, start = 0, i, at;

	for (i = 0; i < comparison->n_after; i++) {
		const struct kiln_field *after = &comparison->after[i];

		at = find_label(before, taken, n, start, after);
		if (at == n) {
			add(comparison, NULL, after);
			continue;
		}
		taken[at] = 1;
		start = at + 1;
		if (!same_value(&before[at], after))
			add(comparison, &before[at], after);
	}
	for (i = 0; i < n; i++)
		if (!taken[i])
			add(comparison, &before[i], NULL);
}

int ki_compare(struct ki_comparison *comparison, const struct kiln_blob *before,
	       const struct kiln_blob *after)
{
	char *taken;
	int err;

	memset(comparison, 0, sizeof(*comparison));
	err = read_fields(before, &comparison->before, &comparison->n_before);
	if (!err)
		err = read_fields(after, &comparison->after,
				  &comparison->n_after);
	if (err)
		return err;
	taken = calloc(comparison->n_before + 1, 1);
	comparison->differences =
		calloc(comparison->n_before + comparison->n_after + 1,
		       sizeof(*comparison->differences));
	if (taken && comparison->differences)
		pair(comparison, taken);
	else
		err = -ENOMEM;
	free(taken);
	return err;
}

void ki_comparison_fini(struct ki_comparison *comparison)
{
	free(comparison->before);
	free(comparison->after);
	free(comparison->differences);
}

/* ---- Words ------------------------------------------------------------------ */

#define BLANKS " \t\n"

/* The next word of a text; 0 at its end. */
static size_t next_word(const char **text, const char *end)
{
	size_t size = 0;

	while (*text < end && strchr(BLANKS, **text))
		++*text;
	while (*text + size < end && !strchr(BLANKS, (*text)[size]))
		size++;
	return size;
}

static int has_word(const struct kiln_field *field, const char *word,
		    size_t word_size)
{
	const char *at = field->data, *end = at + field->size;
	size_t size;

	for (; (size = next_word(&at, end)); at += size)
		if (size == word_size && !memcmp(at, word, size))
			return 1;
	return 0;
}

/* Words of `field` that `other` does not have; how many. */
static size_t words_alone(struct ki_bytes *out, const struct kiln_field *field,
			  const struct kiln_field *other)
{
	const char *at = field->data, *end = at + field->size;
	size_t size, n = 0;

	for (; (size = next_word(&at, end)); at += size) {
		char *word;

		if (has_word(other, at, size))
			continue;
		word = strndup(at, size);
		if (n++)
			ki_bytes_add_u8(out, ' ');
		ki_out_safe(out, word ? word : "", 0);
		free(word);
	}
	return n;
}

/* "-DTILE=8 -> -DTILE=16"; 0 if only order or blanks differ. */
static int words_that_differ(struct ki_bytes *out,
			     const struct kiln_field *before,
			     const struct kiln_field *after)
{
	struct ki_bytes gone, come;
	size_t n_gone, n_come;

	ki_bytes_init(&gone);
	ki_bytes_init(&come);
	n_gone = words_alone(&gone, before, after);
	n_come = words_alone(&come, after, before);
	ki_bytes_add(out, n_gone ? (const void *)gone.data : "(none)",
		     n_gone   ? gone.size
		     : n_come ? 6
			      : 0);
	if (n_gone || n_come)
		ki_bytes_add_string(out, " -> ");
	ki_bytes_add(out, n_come ? (const void *)come.data : "(none)",
		     n_come   ? come.size
		     : n_gone ? 6
			      : 0);
	if (gone.failed || come.failed)
		out->failed = -ENOMEM;
	ki_bytes_fini(&gone);
	ki_bytes_fini(&come);
	return n_gone || n_come;
}

static int is_list(const struct kiln_field *field)
{
	return ki_field_is_text(field) && field->size &&
	       memchr(field->data, ' ', field->size);
}

static void value_or_none(struct ki_bytes *out, const struct kiln_field *field)
{
	if (!field)
		ki_bytes_add_string(out, "(none)");
	else if (ki_field_is_text(field) && !field->size)
		ki_bytes_add_string(out, "\"\"");
	else
		ki_field_value(out, field);
}

/* Words for contents: digests, and files that may be absent. */
static void words_of_content(struct ki_bytes *out,
			     const struct kiln_field *before,
			     const struct kiln_field *after)
{
	int was = before && before->kind == KILN_FIELD_DIGEST;
	int is = after && after->kind == KILN_FIELD_DIGEST;

	if (was && is)
		ki_bytes_printf(out, " changed (%llu -> %llu bytes)",
				(unsigned long long)before->original_size,
				(unsigned long long)after->original_size);
	else if (is)
		ki_bytes_add_string(out,
				    before ? " is there now" : " is used now");
	else if (was)
		ki_bytes_add_string(out, after ? " is not there any more"
					       : " is not used any more");
	else
		ki_bytes_add_string(out, after ? " is looked for now"
					       : " is not looked for any more");
}

static int is_content(const struct kiln_field *field)
{
	return field && field->kind != KILN_FIELD_BYTES;
}

void ki_difference_words(struct ki_bytes *out,
			 const struct ki_difference *difference)
{
	const struct kiln_field *before = difference->before;
	const struct kiln_field *after = difference->after;

	ki_field_label(out, after ? after : before);
	if ((!before || is_content(before)) && (!after || is_content(after))) {
		words_of_content(out, before, after);
		return;
	}
	ki_bytes_add_string(out, ": ");
	if (before && after && (is_list(before) || is_list(after)) &&
	    ki_field_is_text(before) && ki_field_is_text(after)) {
		if (!words_that_differ(out, before, after))
			ki_bytes_add_string(out, "the order of its words");
		return;
	}
	value_or_none(out, before);
	ki_bytes_add_string(out, " -> ");
	value_or_none(out, after);
}
