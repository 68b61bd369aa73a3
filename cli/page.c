/* SPDX-License-Identifier: MIT */

/*
 * Drawings have no size of their own in width: positions across are in percent,
 * and texts keep theirs, so that they can be read at 360 pixels as well as on
 * paper.  Colours are the page's, by classes.
 */

#include "page.h"

#include <string.h>

#include "out.h"

#define LABEL_COLUMNS 32 /* of a name above its bar */
#define BAR_HEIGHT    36
#define PLOT_HEIGHT   150

static const char style[] =
	":root{color-scheme:light dark;--ground:#fff;--ink:#1b1e22;"
	"--soft:#545b63;--line:#c9ced4;--track:#dde2e8;--bar:#1f5fa8}\n"
	"@media (prefers-color-scheme:dark){:root{--ground:#16181b;"
	"--ink:#e7e9ec;--soft:#aab1b9;--line:#444b53;--track:#363d45;"
	"--bar:#7db4ef}}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0 auto;max-width:62rem;padding:1rem;background:"
	"var(--ground);color:var(--ink);font:1rem/1.5 system-ui,sans-serif}\n"
	"h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}\n"
	"h2{font-size:1.2rem;line-height:1.3;margin:0 0 .25rem}\n"
	"p{margin:.25rem 0}\n"
	".about,.scale,.ends,dt,caption{color:var(--soft);font-size:.875rem}\n"
	"a{color:var(--bar)}\n"
	"a:focus-visible,summary:focus-visible,div:focus-visible{outline:3px "
	"solid var(--bar);outline-offset:2px}\n"
	"nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;list-style:none;"
	"margin:.75rem 0;padding:0}\n"
	"section{border-top:1px solid var(--line);margin:1.5rem 0 0;padding:"
	"1rem 0 0}\n"
	"dl.facts{display:grid;gap:.75rem;grid-template-columns:repeat("
	"auto-fill,minmax(9.5rem,1fr));margin:1rem 0}\n"
	"dl.facts div{border:1px solid var(--line);border-radius:.375rem;"
	"padding:.5rem .75rem}\n"
	"dd{font-size:1.25rem;margin:0;overflow-wrap:anywhere}\n"
	"figure{margin:.75rem 0}\n"
	"svg{display:block;font-size:.875rem;overflow:visible}\n"
	"svg text{fill:var(--ink)}\n"
	".bar{fill:var(--bar)}.track{fill:var(--track)}\n"
	".base{stroke:var(--soft)}\n"
	".ends{display:flex;justify-content:space-between}\n"
	"summary{cursor:pointer;font-size:.875rem;width:fit-content}\n"
	".wide{overflow-x:auto}\n"
	"table{border-collapse:collapse;font-size:.875rem;"
	"font-variant-numeric:tabular-nums;margin:.5rem 0}\n"
	"caption{text-align:left}\n"
	"th,td{border-bottom:1px solid var(--line);padding:.25rem .75rem "
	".25rem 0;text-align:left;vertical-align:top}\n"
	"tbody th{font-weight:normal;min-width:8rem;overflow-wrap:anywhere}\n"
	"td{white-space:nowrap}\n"
	"td:last-child{min-width:9rem;overflow-wrap:anywhere;white-space:"
	"normal}\n"
	"@media print{:root{--ground:#fff;--ink:#000;--soft:#333;--line:#999;"
	"--track:#ddd;--bar:#444}body{max-width:none;padding:0}nav{display:"
	"none}h2,figure,tr{break-inside:avoid}td{white-space:normal}details::"
	"details-content{"
	"content-visibility:visible;height:auto}}\n";

/* ---- Text -------------------------------------------------------------------- */

/* U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069. */
static int turns_direction(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	if (c[0] != 0xe2 || !c[1])
		return 0;
	return (c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f ||
				 (c[2] >= 0xaa && c[2] <= 0xae))) ||
	       (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9);
}

static void escaped(struct ki_bytes *out, char c)
{
	switch (c) {
	case '&':
		ki_bytes_add_string(out, "&amp;");
		return;
	case '<':
		ki_bytes_add_string(out, "&lt;");
		return;
	case '>':
		ki_bytes_add_string(out, "&gt;");
		return;
	case '"':
		ki_bytes_add_string(out, "&quot;");
		return;
	case '\'':
		ki_bytes_add_string(out, "&#39;");
		return;
	}
	ki_bytes_add_u8(out, (uint8_t)c);
}

void ki_page_text(struct ki_bytes *out, const char *text)
{
	while (*text) {
		size_t size = ki_out_character(text);

		if (!size || turns_direction(text))
			ki_bytes_add_string(out, "\xef\xbf\xbd");
		else if (size == 1)
			escaped(out, *text);
		else
			ki_bytes_add(out, text, size);
		text += size ? size : 1;
	}
}

static void cut_text(struct ki_bytes *out, const char *text, int columns)
{
	struct ki_bytes cut;

	ki_bytes_init(&cut);
	ki_out_safe(&cut, text, columns);
	ki_bytes_add_u8(&cut, 0);
	if (!cut.failed)
		ki_page_text(out, (const char *)cut.data);
	ki_bytes_fini(&cut);
}

/* ---- The page ---------------------------------------------------------------- */

void ki_page_begin(struct ki_bytes *out, const char *title)
{
	ki_bytes_add_string(
		out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
		     "<meta charset=\"utf-8\">\n"
		     "<meta http-equiv=\"Content-Security-Policy\" content=\""
		     "default-src 'none'; style-src 'unsafe-inline'\">\n"
		     "<meta name=\"viewport\" content=\"width=device-width, "
		     "initial-scale=1\">\n"
		     "<meta name=\"color-scheme\" content=\"light dark\">\n"
		     "<title>");
	ki_page_text(out, title);
	ki_bytes_add_string(out, "</title>\n<style>\n");
	ki_bytes_add_string(out, style);
	ki_bytes_add_string(out, "</style>\n</head>\n<body>\n");
}

void ki_page_end(struct ki_bytes *out)
{
	ki_bytes_add_string(out, "</body>\n</html>\n");
}

void ki_page_section(struct ki_bytes *out, const char *id, const char *title,
		     const char *about)
{
	ki_bytes_printf(out,
			"<section id=\"%s\" aria-labelledby=\"%s-h\">\n"
			"<h2 id=\"%s-h\">",
			id, id, id);
	ki_page_text(out, title);
	ki_bytes_add_string(out, "</h2>\n<p class=\"about\">");
	ki_page_text(out, about);
	ki_bytes_add_string(out, "</p>\n");
}

void ki_page_section_end(struct ki_bytes *out)
{
	ki_bytes_add_string(out, "</section>\n");
}

/* ---- Rows -------------------------------------------------------------------- */

void ki_chart_init(struct ki_chart *chart, const char *id, const char *title,
		   const char *const *heads)
{
	memset(chart, 0, sizeof(*chart));
	chart->id = id;
	chart->title = title;
	chart->heads = heads;
	ki_bytes_init(&chart->cells);
}

void ki_chart_fini(struct ki_chart *chart)
{
	ki_bytes_fini(&chart->cells);
}

int ki_chart_row(struct ki_chart *chart, double value)
{
	if (chart->n_rows == KI_CHART_ROWS_MAX)
		return 0;
	chart->values[chart->n_rows++] = value;
	return 1;
}

void ki_chart_cell(struct ki_chart *chart, const char *text)
{
	ki_bytes_add(&chart->cells, text, strlen(text) + 1);
}

static const char *next_cell(const char *cell)
{
	return cell + strlen(cell) + 1;
}

static unsigned n_heads(const struct ki_chart *chart)
{
	unsigned n = 0;

	while (chart->heads[n])
		n++;
	return n;
}

static const char *next_row(const struct ki_chart *chart, const char *cell)
{
	for (unsigned i = n_heads(chart); i--;)
		cell = next_cell(cell);
	return cell;
}

/* Memory ran short, or there is nothing. */
static int is_empty(struct ki_bytes *out, const struct ki_chart *chart)
{
	if (chart->cells.failed)
		out->failed = chart->cells.failed;
	else if (!chart->n_rows)
		ki_bytes_add_string(out, "<p>Nothing yet.</p>\n");
	return chart->cells.failed || !chart->n_rows;
}

static void table(struct ki_bytes *out, const struct ki_chart *chart)
{
	const char *cell = (const char *)chart->cells.data;
	unsigned n = n_heads(chart);

	ki_bytes_add_string(out, "<div class=\"wide\" role=\"region\" "
				 "tabindex=\"0\" aria-label=\"");
	ki_page_text(out, chart->title);
	ki_bytes_add_string(out, "\">\n<table>\n<caption>");
	ki_page_text(out, chart->title);
	ki_bytes_add_string(out, "</caption>\n<thead><tr>");
	for (unsigned i = 0; i < n; i++) {
		ki_bytes_add_string(out, "<th scope=\"col\">");
		ki_page_text(out, chart->heads[i]);
		ki_bytes_add_string(out, "</th>");
	}
	ki_bytes_add_string(out, "</tr></thead>\n<tbody>\n");
	for (size_t row = 0; row < chart->n_rows; row++) {
		ki_bytes_add_string(out, "<tr>");
		for (unsigned i = 0; i < n; i++, cell = next_cell(cell)) {
			ki_bytes_add_string(out,
					    i ? "<td>" : "<th scope=\"row\">");
			ki_page_text(out, cell);
			ki_bytes_add_string(out, i ? "</td>" : "</th>");
		}
		ki_bytes_add_string(out, "</tr>\n");
	}
	ki_bytes_add_string(out, "</tbody>\n</table>\n</div>\n");
}

void ki_page_table(struct ki_bytes *out, const struct ki_chart *chart)
{
	if (!is_empty(out, chart))
		table(out, chart);
}

/* ---- Drawings ---------------------------------------------------------------- */

static double largest(const struct ki_chart *chart)
{
	double most = 0;

	if (chart->full > 0)
		return chart->full;
	for (size_t i = 0; i < chart->n_rows; i++)
		if (chart->values[i] > most)
			most = chart->values[i];
	return most > 0 ? most : 1;
}

/* "12 bars, the longest one: NAME, VALUE." */
static void describe(struct ki_bytes *out, const struct ki_chart *chart,
		     const char *shapes)
{
	const char *cell = (const char *)chart->cells.data, *most = cell;
	double value = -1;

	for (size_t i = 0; i < chart->n_rows; i++) {
		if (chart->values[i] > value) {
			value = chart->values[i];
			most = cell;
		}
		cell = next_row(chart, cell);
	}
	ki_bytes_printf(out, "%zu %s, the longest: ", chart->n_rows, shapes);
	ki_page_text(out, most);
	ki_bytes_add_string(out, ", ");
	ki_page_text(out, next_cell(most));
	ki_bytes_add_string(out, ". The numbers are in the table below.");
}

static void drawing(struct ki_bytes *out, const struct ki_chart *chart,
		    const char *shapes, size_t height)
{
	ki_bytes_printf(out,
			"<svg role=\"img\" aria-labelledby=\"%s-t %s-d\" "
			"width=\"100%%\" height=\"%zu\">\n<title id=\"%s-t\">",
			chart->id, chart->id, height, chart->id);
	ki_page_text(out, chart->title);
	ki_bytes_printf(out, "</title>\n<desc id=\"%s-d\">", chart->id);
	describe(out, chart, shapes);
	ki_bytes_add_string(out, "</desc>\n");
}

/* The name and value of a row, for who points at it. */
static void hint(struct ki_bytes *out, const char *row)
{
	ki_bytes_add_string(out, "<title>");
	ki_page_text(out, row);
	ki_bytes_add_string(out, ": ");
	ki_page_text(out, next_cell(row));
	ki_bytes_add_string(out, "</title>");
}

static void numbers(struct ki_bytes *out, const struct ki_chart *chart)
{
	ki_bytes_add_string(out, "<details><summary>Numbers: ");
	ki_page_text(out, chart->title);
	ki_bytes_add_string(out, "</summary>\n");
	table(out, chart);
	ki_bytes_add_string(out, "</details>\n");
}

static void bar(struct ki_bytes *out, const char *row, size_t y, double percent)
{
	ki_bytes_printf(out, "<text x=\"0\" y=\"%zu\">", y + 15);
	cut_text(out, row, LABEL_COLUMNS);
	ki_bytes_printf(out,
			"</text><text x=\"100%%\" y=\"%zu\" "
			"text-anchor=\"end\">",
			y + 15);
	ki_page_text(out, next_cell(row));
	ki_bytes_printf(out,
			"</text><rect class=\"track\" y=\"%zu\" width=\"100%%\""
			" height=\"8\" rx=\"2\"/><rect class=\"bar\" y=\"%zu\" "
			"width=\"%.2f%%\" height=\"8\" rx=\"2\">",
			y + 21, y + 21, percent);
	hint(out, row);
	ki_bytes_add_string(out, "</rect>\n");
}

void ki_page_bars(struct ki_bytes *out, const struct ki_chart *chart)
{
	const char *row = (const char *)chart->cells.data;
	double most = largest(chart);

	if (is_empty(out, chart))
		return;
	ki_bytes_add_string(out, "<figure>\n");
	drawing(out, chart, "bars", chart->n_rows * BAR_HEIGHT);
	for (size_t i = 0; i < chart->n_rows; i++) {
		double value = chart->values[i] > 0 ? chart->values[i] : 0;

		bar(out, row, i * BAR_HEIGHT, 100 * value / most);
		row = next_row(chart, row);
	}
	ki_bytes_add_string(out, "</svg>\n</figure>\n");
	numbers(out, chart);
}

static void column(struct ki_bytes *out, const struct ki_chart *chart,
		   const char *row, size_t i, double most)
{
	double step = 100.0 / (double)chart->n_rows;
	double left = step * (double)i, width = step * 0.8;
	double height = PLOT_HEIGHT * chart->values[i] / most;

	if (chart->values[i] < 0)
		return;
	/* Counters may be anything, and their sums run over. */
	if (height > PLOT_HEIGHT)
		height = PLOT_HEIGHT;
	if (chart->full > 0)
		ki_bytes_printf(out,
				"<rect class=\"track\" x=\"%.3f%%\" y=\"0\" "
				"width=\"%.3f%%\" height=\"%d\"/>",
				left, width, PLOT_HEIGHT);
	ki_bytes_printf(out,
			"<rect class=\"bar\" x=\"%.3f%%\" y=\"%.2f\" "
			"width=\"%.3f%%\" height=\"%.2f\">",
			left, PLOT_HEIGHT - height, width, height);
	hint(out, row);
	ki_bytes_add_string(out, "</rect>\n");
}

/* Under the columns: the first and the last name. */
static void ends(struct ki_bytes *out, const struct ki_chart *chart)
{
	const char *last = (const char *)chart->cells.data;

	for (size_t i = 1; i < chart->n_rows; i++)
		last = next_row(chart, last);
	ki_bytes_add_string(out, "<div class=\"ends\" aria-hidden=\"true\">"
				 "<span>");
	ki_page_text(out, (const char *)chart->cells.data);
	ki_bytes_add_string(out, "</span><span>");
	ki_page_text(out, last);
	ki_bytes_add_string(out, "</span></div>\n");
}

void ki_page_columns(struct ki_bytes *out, const struct ki_chart *chart)
{
	const char *row = (const char *)chart->cells.data;
	double most = largest(chart);

	if (is_empty(out, chart))
		return;
	ki_bytes_add_string(out, "<figure>\n<div class=\"scale\" "
				 "aria-hidden=\"true\">");
	ki_page_text(out, chart->scale);
	ki_bytes_add_string(out, "</div>\n");
	drawing(out, chart, "columns", PLOT_HEIGHT + 1);
	for (size_t i = 0; i < chart->n_rows; i++) {
		column(out, chart, row, i, most);
		row = next_row(chart, row);
	}
	ki_bytes_printf(out,
			"<line class=\"base\" x1=\"0\" x2=\"100%%\" y1=\"%d\" "
			"y2=\"%d\"/>\n</svg>\n",
			PLOT_HEIGHT, PLOT_HEIGHT);
	ends(out, chart);
	ki_bytes_add_string(out, "</figure>\n");
	numbers(out, chart);
}
