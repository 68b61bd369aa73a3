/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_NEO_H
#define KI_FRONT_NEO_H

/* Intel's NEO: one compiler behind its OpenCL driver and its Level Zero driver.
   It loads IGC late, and IGC reads variables of its own. */

#include "front/parts.h"

#define KI_NEO_PARTS 4

extern const struct ki_part ki_neo_parts[KI_NEO_PARTS];
extern const char *const ki_neo_code_variables[];    /* NULL-ended */
extern const char *const ki_neo_refused_variables[]; /* NULL-ended */

/* Whether a variable of IGC is set that is in neither list. */
int ki_neo_is_unknown_set(void);

#endif /* KI_FRONT_NEO_H */
