/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_LAYERS_H
#define KI_CLI_LAYERS_H

/* OPENCL_LAYERS: paths with ':' between them. */

/*
 * The list with ours in it, from malloc(); NULL if there is no memory.  Ours
 * goes first: ocl-icd 2.3.1 cuts the variable at its first ':', and the
 * program's children see what is left.
 */
char *ki_layers_with(const char *others, const char *layer);

/* Whether the loader can be told of this path at all. */
int ki_layers_can_name(const char *layer);

#endif /* KI_CLI_LAYERS_H */
