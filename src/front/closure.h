/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_CLOSURE_H
#define KI_FRONT_CLOSURE_H

/* A library and all that it links, down to libc. */

#include "front/fields.h"
#include "front/image.h"
#include "sys/sys.h"

/* Add "compiler library NAME" with its identity for each, in order of names.
   0 or -errno. */
int ki_closure_add(const struct ki_sys *sys, const struct ki_images *images,
		   const struct ki_image *driver, struct ki_fields *fields);

#endif /* KI_FRONT_CLOSURE_H */
