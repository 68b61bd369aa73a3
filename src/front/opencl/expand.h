/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_EXPAND_H
#define KI_FRONT_OPENCL_EXPAND_H

/*
 * Names of computed includes, #include M2S(FOLDER/x.h), made with the macros
 * that the options define.  A small preprocessor, and a timid one: whatever
 * it might get wrong is refused.
 */

#include "front/opencl/options.h"

#define KI_CL_EXPAND_DEPTH_MAX	32
#define KI_CL_EXPAND_TOKENS_MAX ((size_t)4096)

/*
 * Expand what stands behind #include.  *out_name (free() it) is a mark, '"' or
 * '<', and the name.  Each identifier that was met is added to `words`: the
 * result holds only if no text defines any of them.  0, -ENOMEM, or -EINVAL
 * if this cannot be told.
 */
int ki_cl_expand(const struct ki_cl_options *options, const char *text,
		 struct ki_cl_words *words, char **out_name);

#endif /* KI_FRONT_OPENCL_EXPAND_H */
