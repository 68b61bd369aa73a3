/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_KEPT_H
#define KI_FRONT_OPENCL_KEPT_H

/*
 * What an entry was made of, beside it: everything that the digests of its key
 * stand for is handed to kiln_keep_sources(), and a recipe comes back from that.
 *
 *	a build, a compilation   source, IL, header programs, the lengths of
 *	                         strings with a NUL; included files
 *	a link                   its recipe, as bytes (docs/formats/job.md)
 */

#include <kiln/kiln.h>

#include "front/opencl/recipe.h"

/*
 * Keep them; `directory` is where the build ran (included files that are not
 * any more what the key says are left out).  Those that are kept are named in
 * KILN_META_SOURCES, a link's recipe first.  Reads files and waits for a lock
 * for 20 ms at most; what cannot be kept is not.
 */
void ki_cl_keep_sources(struct kiln *kiln, const struct ki_cl_recipe *recipe,
			const void *record, size_t size, const char *directory,
			struct kiln_metadata *metadata);

/*
 * The way back, from an entry's key record and metadata: KILN_OK; KILN_MISS if
 * something is not kept (any more); KILN_E_FORMAT if this is no entry of
 * OpenCL's; KILN_E_UNSUPPORTED if a newer kiln made it; NO_MEMORY, why the
 * store is not used.
 */
enum kiln_status ki_cl_recall(struct kiln *kiln, const void *record,
			      size_t size, const void *metadata,
			      size_t metadata_size,
			      struct ki_cl_recipe **out_recipe);

#endif /* KI_FRONT_OPENCL_KEPT_H */
