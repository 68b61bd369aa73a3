/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_LEVELZERO_H
#define KI_CLI_LEVELZERO_H

/*
 * ZE_ENABLE_ALT_DRIVERS: drivers with ',' between them, instead of those that
 * the loader knows itself.  Our proxy stands in the place of one of them, which
 * KILN_ZE_DRIVER then names; the others stay, so that a program finds what it
 * would find without us.
 */

#include <kiln/inspect.h>

#define KI_ZE_LIST    "ZE_ENABLE_ALT_DRIVERS"
#define KI_ZE_DRIVER  "KILN_ZE_DRIVER"
#define KI_ZE_HANDLES "ZE_ENABLE_LOADER_DRIVER_DDI_PATH"

/* Set both, if there is a driver to stand for.  0; -1 if there is one and this
   cannot be done (said). */
int ki_levelzero_set(const struct kiln_config *config);

/*
 * Loaders of 2025 and later that have more than one driver call each through its
 * own handles, past the proxy, unless KI_ZE_HANDLES is 0.  Set that for such a
 * list, where it is not set yet (0, or -1); whether it is set, to something else.
 */
int ki_levelzero_keep(const char *list);
int ki_levelzero_is_bypassed(const char *list);

/* What is set: 0, with both from malloc(); -1 if nothing is to be. */
int ki_levelzero_find(const struct kiln_config *config, const char *proxy,
		      char **out_list, char **out_driver);

/* Whether the proxy caches for this driver: by the last part of its path, and
   whatever its version. */
int ki_levelzero_knows(const char *driver, size_t size);

/*
 * The list with `proxy` in place of a driver, which goes to *out_driver, both
 * from malloc(): `wanted` if it is not NULL, else the first that the proxy knows.
 * NULL if nothing is to be changed: neither is in the list, the proxy is
 * already, or there is no memory.
 */
char *ki_levelzero_with(const char *list, const char *proxy, const char *wanted,
			char **out_driver);

#endif /* KI_CLI_LEVELZERO_H */
