/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PAGE_H
#define KI_CLI_PAGE_H

/*
 * An HTML page that needs nothing besides itself: no script, no network (its own
 * policy forbids both), style and drawings inside.  Each chart is a drawing with
 * a title and a description, and the numbers behind it as a table that opens.
 * All texts are escaped here; whoever calls gives them as they are.
 */

#include "base/bytes.h"

void ki_page_begin(struct ki_bytes *out, const char *title);
void ki_page_end(struct ki_bytes *out);

/*
 * Append a text so that it is nothing but text, in an element or a quoted
 * attribute: what is no UTF-8, a control or a mark that turns the direction of
 * writing comes out as U+FFFD.
 */
void ki_page_text(struct ki_bytes *out, const char *text);

/* A section with a heading and a sentence or two; `id` is a word, and the place
   that links lead to. */
void ki_page_section(struct ki_bytes *out, const char *id, const char *title,
		     const char *about);
void ki_page_section_end(struct ki_bytes *out);

/* ---- Charts and tables --------------------------------------------------- */

#define KI_CHART_ROWS_MAX 64

/* Rows of cells, and of each a value to be drawn.  Rows past the last place are
   left out. */
struct ki_chart {
	const char *id; /* as of a section, and its own */
	const char *title;
	const char *const *heads; /* ends with NULL; the first cell is a name */
	const char *scale;	  /* what the full height stands for; "100 %" */
	double full;		  /* and its value; 0: the largest there is */
	struct ki_bytes cells;	  /* NUL-ended, row by row */
	double values[KI_CHART_ROWS_MAX]; /* below 0: nothing to draw */
	size_t n_rows;
};

void ki_chart_init(struct ki_chart *chart, const char *id, const char *title,
		   const char *const *heads);
void ki_chart_fini(struct ki_chart *chart);
/* The next row: its value, then by ki_chart_cell() as many cells as heads.  0:
   there is no place left. */
int ki_chart_row(struct ki_chart *chart, double value);
void ki_chart_cell(struct ki_chart *chart, const char *text);

/* A bar for each row, the first cell above it and the second at its end. */
void ki_page_bars(struct ki_bytes *out, const struct ki_chart *chart);
/* A column for each row, side by side. */
void ki_page_columns(struct ki_bytes *out, const struct ki_chart *chart);
/* The cells alone. */
void ki_page_table(struct ki_bytes *out, const struct ki_chart *chart);

#endif /* KI_CLI_PAGE_H */
