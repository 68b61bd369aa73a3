/* SPDX-License-Identifier: MIT */
#ifndef KIR_TELL_H
#define KIR_TELL_H

/*
 * What the helper has counted, and how its sources are, as one JSON object
 * (README.md).  Of a server there is no more in it than its URL, which has no user
 * and no password.
 */

#include "base/bytes.h"

struct helper;

/* No more than fits an answer. */
void tell(const struct helper *helper, struct ki_bytes *bytes);

#endif /* KIR_TELL_H */
