/* SPDX-License-Identifier: MIT */

/* Lines over the number of nodes, as SVG: one picture above the other. */

#include "fleet.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

#define LEFT	70
#define RIGHT	300 /* where names stand */
#define WIDTH	760
#define PICTURE 300
#define TOP	40
#define BOTTOM	40

static const char *const colours[] = { "#3a7d44", "#b3392f", "#2f5fb3",
				       "#b37a2f", "#6b2fb3", "#2fa3b3",
				       "#555555", "#b32f83", "#8a8a1f" };
#define N_COLOURS (sizeof(colours) / sizeof(*colours))

struct axis {
	double low, high; /* powers of ten */
	double from, to;  /* where they are drawn */
};

static double place(const struct axis *axis, double value)
{
	return axis->from + (log10(value) - axis->low) /
				    (axis->high - axis->low) *
				    (axis->to - axis->from);
}

static struct axis span(const struct fleet_line *lines, size_t n_lines,
			size_t n_nodes)
{
	struct axis axis = { .low = INFINITY, .high = -INFINITY };

	for (size_t i = 0; i < n_lines; i++)
		for (size_t j = 0; j < n_nodes; j++)
			if (lines[i].values[j] > 0) {
				double power = log10(lines[i].values[j]);

				axis.low = fmin(axis.low, floor(power));
				axis.high = fmax(axis.high, ceil(power));
			}
	if (!(axis.high > axis.low))
		axis.high = axis.low + 1;
	return axis;
}

static void draw_grid(FILE *file, const struct axis *x, const struct axis *y,
		      const unsigned *nodes, size_t n_nodes)
{
	for (double power = y->low; power <= y->high; power++) {
		double at = place(y, pow(10, power));

		fprintf(file,
			"<line x1='%g' x2='%g' y1='%g' y2='%g' stroke='#ddd'/>"
			"<text x='%d' y='%g' text-anchor='end'>%g</text>\n",
			x->from, x->to, at, at, LEFT - 8, at + 4,
			pow(10, power));
	}
	for (size_t i = 0; i < n_nodes; i++)
		fprintf(file,
			"<text x='%g' y='%g' text-anchor='middle'>%u</text>\n",
			place(x, nodes[i]), y->from + 16, nodes[i]);
}

static void draw_line(FILE *file, const struct axis *x, const struct axis *y,
		      const unsigned *nodes, size_t n_nodes,
		      const struct fleet_line *line, size_t number)
{
	const char *colour = colours[number % N_COLOURS];

	fprintf(file,
		"<polyline fill='none' stroke-width='2' stroke='%s' %s "
		"points='",
		colour, number >= N_COLOURS ? "stroke-dasharray='5'" : "");
	for (size_t i = 0; i < n_nodes; i++)
		if (line->values[i] > 0)
			fprintf(file, "%.1f,%.1f ", place(x, nodes[i]),
				place(y, line->values[i]));
	fprintf(file, "'/>\n<text x='%d' y='%g' fill='%s'>%s</text>\n",
		WIDTH - RIGHT + 20, y->to + 4 + 18 * (double)number, colour,
		line->name);
}

void fleet_draw(const char *path, const char *const *titles,
		const unsigned *nodes, size_t n_nodes,
		const struct fleet_line *const *lines, size_t n_lines,
		size_t n_pictures)
{
	const struct axis x = { log10(nodes[0]), log10(nodes[n_nodes - 1]),
				LEFT, WIDTH - RIGHT };
	FILE *file = fopen(path, "w");

	if (!file)
		bench_fail("%s: %s", path, strerror(errno));
	fprintf(file,
		"<svg xmlns='http://www.w3.org/2000/svg' width='%d' "
		"height='%zu' "
		"font-family='sans-serif' font-size='12'>\n"
		"<rect width='100%%' height='100%%' fill='white'/>\n",
		WIDTH, n_pictures * PICTURE);
	for (size_t i = 0; i < n_pictures; i++) {
		const double top = (double)i * PICTURE;
		struct axis y = span(lines[i], n_lines, n_nodes);

		y.from = top + PICTURE - BOTTOM;
		y.to = top + TOP;
		fprintf(file,
			"<text x='%d' y='%g' font-weight='bold'>%s</text>\n",
			LEFT, top + 22, titles[i]);
		draw_grid(file, &x, &y, nodes, n_nodes);
		for (size_t j = 0; j < n_lines; j++)
			draw_line(file, &x, &y, nodes, n_nodes, &lines[i][j],
				  j);
	}
	fputs("</svg>\n", file);
	if (fclose(file))
		bench_fail("%s: %s", path, strerror(errno));
}
