/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_LINES_H
#define KI_CLI_LINES_H

/* In which lines two kept sources differ. */

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "compare.h"

#define KI_LINES_SHOWN 3 /* of each */

/* From the first line that differs to the last, in each. */
struct ki_lines {
	struct kiln_blob *before;
	struct kiln_blob *after;
	size_t first; /* its number, from 1 */
	const char *before_lines;
	size_t before_size;
	size_t n_before;
	const char *after_lines;
	size_t after_size;
	size_t n_after;
};

/* Whether both are kept and text; fini in that case. */
int ki_lines_init(struct ki_lines *lines, struct kiln *kiln,
		  const struct ki_difference *difference);
void ki_lines_fini(struct ki_lines *lines);

/* A few of them, each in a line of its own behind `indent` spaces. */
void ki_lines_text(struct ki_bytes *out, const struct ki_lines *lines,
		   int indent);

#endif /* KI_CLI_LINES_H */
