/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_STATUS_H
#define KI_BASE_STATUS_H

#include <kiln/kiln.h>

/* What a negative errno from sys/ means to a caller of kiln. */
enum kiln_status ki_status_from_errno(int err);

#endif /* KI_BASE_STATUS_H */
