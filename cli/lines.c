/* SPDX-License-Identifier: MIT */

/*
 * What is between the lines that two texts begin with alike and those that they
 * end with alike.  That is no diff of more than one change, and enough to see
 * what somebody edited.
 */

#include "lines.h"

#include <string.h>

#include "out.h"

#define COLUMNS_SHOWN 72

static int is_text(const struct kiln_blob *blob)
{
	return !memchr(kiln_blob_data(blob), 0, kiln_blob_size(blob));
}

static int is_digest(const struct kiln_field *field)
{
	return field && field->kind == KILN_FIELD_DIGEST &&
	       field->size == KILN_SOURCE_DIGEST_BYTES;
}

static size_t count_lines(const char *text, size_t size)
{
	size_t n = size && text[size - 1] != '\n', i;

	for (i = 0; i < size; i++)
		n += text[i] == '\n';
	return n;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The bytes of whole lines that both begin with. */
static size_t same_begin(const char *a, size_t a_size, const char *b,
			 size_t b_size)
{
	size_t n = smaller(a_size, b_size), i, begin = 0;

	for (i = 0; i < n && a[i] == b[i]; i++)
		if (a[i] == '\n')
			begin = i + 1;
	return i == a_size && i == b_size ? i : begin;
}

/* Whether a line begins so many bytes before the end. */
static int is_line(const char *text, size_t size, size_t i)
{
	return i == size || text[size - i - 1] == '\n';
}

/* The same of what both end with. */
static size_t same_end(const char *a, size_t a_size, const char *b,
		       size_t b_size)
{
	size_t n = smaller(a_size, b_size), i, end = 0;

	for (i = 1; i <= n && a[a_size - i] == b[b_size - i]; i++)
		if (is_line(a, a_size, i) && is_line(b, b_size, i))
			end = i;
	return end;
}

static void trim(struct ki_lines *lines)
{
	const char *a = kiln_blob_data(lines->before);
	const char *b = kiln_blob_data(lines->after);
	size_t a_size = kiln_blob_size(lines->before);
	size_t b_size = kiln_blob_size(lines->after);
	size_t begin = same_begin(a, a_size, b, b_size);
	size_t end =
		same_end(a + begin, a_size - begin, b + begin, b_size - begin);

	lines->first = count_lines(a, begin) + 1;
	lines->before_lines = a + begin;
	lines->before_size = a_size - begin - end;
	lines->n_before = count_lines(a + begin, lines->before_size);
	lines->after_lines = b + begin;
	lines->after_size = b_size - begin - end;
	lines->n_after = count_lines(b + begin, lines->after_size);
}

int ki_lines_init(struct ki_lines *lines, struct kiln *kiln,
		  const struct ki_difference *difference)
{
	const struct kiln_field *before = difference->before;
	const struct kiln_field *after = difference->after;

	memset(lines, 0, sizeof(*lines));
	if (is_digest(before) && is_digest(after) &&
	    !kiln_find_source(kiln, before->data, &lines->before) &&
	    !kiln_find_source(kiln, after->data, &lines->after) &&
	    kiln_blob_size(lines->before) && kiln_blob_size(lines->after) &&
	    is_text(lines->before) && is_text(lines->after)) {
		trim(lines);
		return 1;
	}
	ki_lines_fini(lines);
	return 0;
}

void ki_lines_fini(struct ki_lines *lines)
{
	kiln_blob_unref(lines->before);
	kiln_blob_unref(lines->after);
	lines->before = lines->after = NULL;
}

static void add_lines(struct ki_bytes *out, const char *text, size_t size,
		      size_t first, char sign, int indent)
{
	char line[4 * COLUMNS_SHOWN + 1];
	size_t n;

	for (n = 0; size && n < KI_LINES_SHOWN; n++) {
		const char *end = memchr(text, '\n', size);
		size_t length = end ? (size_t)(end - text) : size;
		size_t shown = smaller(length, sizeof(line) - 1);

		memcpy(line, text, shown);
		line[shown] = '\0';
		ki_bytes_printf(out, "%*s%c %zu: ", indent, "", sign,
				first + n);
		ki_out_safe(out, line, COLUMNS_SHOWN);
		ki_bytes_add_u8(out, '\n');
		length += end != NULL;
		text += length;
		size -= length;
	}
}

void ki_lines_text(struct ki_bytes *out, const struct ki_lines *lines,
		   int indent)
{
	size_t n = lines->n_before > lines->n_after ? lines->n_before
						    : lines->n_after;

	add_lines(out, lines->before_lines, lines->before_size, lines->first,
		  '-', indent);
	add_lines(out, lines->after_lines, lines->after_size, lines->first, '+',
		  indent);
	if (n > KI_LINES_SHOWN)
		ki_bytes_printf(out, "%*s(%zu -> %zu lines)\n", indent, "",
				lines->n_before, lines->n_after);
}
