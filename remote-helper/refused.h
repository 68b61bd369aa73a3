/* SPDX-License-Identifier: MIT */
#ifndef KIR_REFUSED_H
#define KIR_REFUSED_H

/*
 * Of which names a program has refused what a level had: that level is not asked
 * for them again, and the next upload replaces what lies there.  The latest
 * REFUSED_MAX names are remembered.
 */

#include "base/list.h"
#include "names.h"

#define REFUSED_MAX 4096

struct refused {
	struct names names;
	struct ki_list order; /* the oldest first */
};

void refused_init(struct refused *refused);
void refused_fini(struct refused *refused);
void refused_add(struct refused *refused,
		 const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level);
int refused_has(const struct refused *refused,
		const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level);
/* What lies there now is another. */
void refused_forget(struct refused *refused,
		    const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level);

#endif /* KIR_REFUSED_H */
