/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_IMAGE_H
#define KI_FRONT_IMAGE_H

/*
 * The libraries that are loaded in this process, and what identifies a library
 * or a file: its build-id, else its content; never its times or its path.
 */

#include <stddef.h>
#include <stdint.h>

#include "sys/sys.h"

#define KI_IDENTITY_BYTES 160 /* of a text, with its NUL */
#define KI_NEEDED_MAX	  128
#define KI_IMAGES_MAX	  4096

struct ki_image {
	char *path;	 /* as it was loaded; "" is the program */
	char *name;	 /* SONAME, else the path's last part */
	uintptr_t start; /* of its first loaded segment */
	uintptr_t end;
	char build_id[KI_IDENTITY_BYTES]; /* "build-id HEX", or "" */
	char *needed[KI_NEEDED_MAX];	  /* NULL-ended */
};

struct ki_images {
	struct ki_image *images;
	size_t n;
	size_t capacity;
	int failed; /* 0 or -ENOMEM */
};

/* A picture of now. */
void ki_images_take(struct ki_images *images);
void ki_images_fini(struct ki_images *images);

/* How many libraries were ever loaded: unchanged means the same picture, but
   for unloading. */
uint64_t ki_images_loaded(void);

/* NULL if there is none. */
const struct ki_image *ki_image_at(const struct ki_images *images,
				   const void *address);
/* By SONAME or last part of the path. */
const struct ki_image *ki_image_named(const struct ki_images *images,
				      const char *name);

/* The last part of a path. */
const char *ki_last_part(const char *path);

/*
 * The identity of a file as text: for an ELF file its "build-id HEX", without
 * one "blake2b HEX" of the content.  -errno.
 */
int ki_library_identity(const struct ki_sys *sys, const char *path,
			char out[KI_IDENTITY_BYTES]);

/* "xxh3 HEX SIZE" of a file's content, for data that is too large for BLAKE2b
   to be read in every process.  -errno. */
int ki_data_identity(const struct ki_sys *sys, const char *path,
		     char out[KI_IDENTITY_BYTES]);

#endif /* KI_FRONT_IMAGE_H */
