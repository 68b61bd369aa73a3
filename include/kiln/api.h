/* SPDX-License-Identifier: MIT */
#ifndef KILN_API_H
#define KILN_API_H

/* How public functions are marked, and which version this is. */

#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0
#define KILN_VERSION_HEX                                                       \
	((KILN_VERSION_MAJOR << 16) | (KILN_VERSION_MINOR << 8) |              \
	 KILN_VERSION_PATCH)

/*
 * The interface has a version of its own, for libkiln and for the libraries
 * beside it: MAJOR changes when a program has to be compiled anew, and is the
 * number in libkiln.so.MAJOR and in the version of each symbol; MINOR when
 * something was added.
 */
#define KILN_API_VERSION_MAJOR 0
#define KILN_API_VERSION_MINOR 1

#if defined(_WIN32)
#define KILN_API
#else
#define KILN_API __attribute__((visibility("default")))
#endif

#endif /* KILN_API_H */
