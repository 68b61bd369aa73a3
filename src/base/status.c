/* SPDX-License-Identifier: MIT */

#include "base/status.h"

#include <errno.h>

/* clang-format off */
#define STATUSES(X) \
	X(KILN_OK) X(KILN_MISS) X(KILN_EXISTS) X(KILN_END) \
	X(KILN_E_NO_MEMORY) X(KILN_E_INVALID) X(KILN_E_IO) X(KILN_E_FORMAT) \
	X(KILN_E_COLLISION) X(KILN_E_FULL) X(KILN_E_BUILD) \
	X(KILN_E_TOO_LARGE) X(KILN_E_OWNER) X(KILN_E_FORKED) \
	X(KILN_E_TIMEOUT) X(KILN_E_UNSUPPORTED) X(KILN_E_READONLY)
/* clang-format on */

const char *kiln_status_name(enum kiln_status status)
{
	switch (status) {
#define NAME(name)                                                             \
	case name:                                                             \
		return #name;
		STATUSES(NAME)
#undef NAME
	}
	return "unknown status";
}

unsigned kiln_version(void)
{
	return KILN_VERSION_HEX;
}

enum kiln_status ki_status_from_errno(int err)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return KILN_OK;
	case ENOMEM:
		return KILN_E_NO_MEMORY;
	case EROFS:
		return KILN_E_READONLY;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return KILN_E_FULL;
	case ETIMEDOUT:
		return KILN_E_TIMEOUT;
	default:
		return KILN_E_IO;
	}
}
