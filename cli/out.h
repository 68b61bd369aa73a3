/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_OUT_H
#define KI_CLI_OUT_H

/*
 * What the tool says.  Results are put together in memory and go to standard
 * output at the end, in one piece; talk and errors go to standard error.
 * Everything that comes from files, arguments or the environment is shown with
 * control characters replaced: it must not be able to speak to the terminal.
 */

#include <stddef.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/json.h"

/* "kiln: MESSAGE" made harmless and a newline, to standard error. */
void ki_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Write the text and free it; returns `status`, or KI_EXIT_FAILED if that was
 * not possible.  A reader that has gone away is no failure.
 */
int ki_out_write(struct ki_bytes *text, int status);

/*
 * Write a file that nobody finds half written under its name; one that is there
 * is replaced, a device or the like refused.  An exit status.
 */
int ki_out_file(const char *path, const void *data, size_t size);

/* Begin what --json says: an object, with the number of its schema.  The caller
   ends it. */
void ki_out_json(struct ki_bytes *out, struct ki_json *out_json);

/* Columns of the terminal (COLUMNS goes first); 0: no limit. */
int ki_out_columns(void);
/* Whether to use colours on this descriptor: NO_COLOR, TERM, a terminal. */
int ki_out_is_colourful(int fd);
/* Whether progress may be drawn on standard error. */
int ki_out_has_progress(void);

/* Bytes of the UTF-8 character at `text`; 0 if it is none, or controls. */
size_t ki_out_character(const char *text);

/* Append `text` made harmless, cut to `width` columns (0: whole).  Returns the
   columns used. */
int ki_out_safe(struct ki_bytes *out, const char *text, int width);

/* Append words broken at `width` columns (0: never), each line after the first
   indented by `indent`; the first one already has `column` columns. */
void ki_out_wrap(struct ki_bytes *out, const char *text, int column, int indent,
		 int width);

/* ---- Tables -------------------------------------------------------------- */

struct ki_column {
	const char *title;
	int is_right; /* aligned to the right */
	int rank;     /* where there is no room, the highest go first;
				   0 stays */
};

#define KI_COLUMNS_MAX 10

/* `cells`: n_rows x n_columns strings.  The last column takes what is left. */
void ki_out_table(struct ki_bytes *out, const struct ki_column *columns,
		  int n_columns, const char *const *cells, size_t n_rows,
		  int width, int is_colourful);

#endif /* KI_CLI_OUT_H */
