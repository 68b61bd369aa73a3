/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_COMPARE_H
#define KI_CLI_COMPARE_H

/* What differs between two key records, field by field and in words. */

#include <kiln/inspect.h>

#include "base/bytes.h"

struct ki_difference {
	/* NULL: that record has no such field.  Into the records. */
	const struct kiln_field *before;
	const struct kiln_field *after;
};

struct ki_comparison {
	struct kiln_field *before; /* all fields of each record */
	struct kiln_field *after;
	size_t n_before;
	size_t n_after;
	struct ki_difference *differences; /* in the order of `after` */
	size_t n_differences;
	int is_other_kind; /* not made by the same front end's kind of build */
	int is_other_source; /* what is built differs, not only how */
};

/*
 * Compare; fields pair by label, equal labels by their order.  The records must
 * outlive it.  0, -EINVAL (no record), or -ENOMEM; free it in every case.
 */
int ki_compare(struct ki_comparison *comparison, const struct kiln_blob *before,
	       const struct kiln_blob *after);
void ki_comparison_fini(struct ki_comparison *comparison);

/* Append one difference as a phrase: "include foo.h changed (12 -> 14 bytes)".
   Nothing that could speak to a terminal comes through. */
void ki_difference_words(struct ki_bytes *out,
			 const struct ki_difference *difference);

#endif /* KI_CLI_COMPARE_H */
