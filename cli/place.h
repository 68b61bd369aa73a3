/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PLACE_H
#define KI_CLI_PLACE_H

/*
 * Where the other parts of kiln are: beside this program, in the build tree
 * or as installed.  Never where the environment says.
 */

#include "sys/sys.h"

/* 0; -ENOENT, and `out` is where it was looked for last. */
int ki_place_layer(char out[KI_PATH_MAX]);
int ki_place_levelzero(char out[KI_PATH_MAX]);
int ki_place_worker(char out[KI_PATH_MAX]);
int ki_place_remote(char out[KI_PATH_MAX]);

#endif /* KI_CLI_PLACE_H */
