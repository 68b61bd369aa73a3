/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_SYCL_H
#define KI_CLI_SYCL_H

/* What the files of an entry say in a directory of DPC++'s persistent cache;
   docs/formats/sycl.md has the bytes. */

#include <kiln/inspect.h>
#include <kiln/neo.h>
#include <kiln/sycl.h>

#define KI_SYCL_TEXT_BYTES 256

struct ki_sycl_parts {
	int has_bin, has_src;
	int is_kernel_compiler; /* no .src by design: below its own directory */
	int is_damaged;		/* sizes in a file are not those of the file */
	struct kiln_sycl_source source;
	struct kiln_sycl_binary binary;
	enum kiln_neo_form image_form; /* of the first image */
};

/* FILE is a name in the directory, of the .bin or the .src.  All zero of what
   cannot be read; `out_form` tells what the binary is. */
void ki_sycl_parts_look(const char *directory, const char *file,
			struct ki_sycl_parts *out_parts,
			struct kiln_neo_description *out_form);

/*
 * Have an entry's record say the four fields of its key, the images by their digest,
 * so that it compares with any other: of DPC++'s own as .src has them.  Whether it
 * does; else it is as it was.
 */
int ki_sycl_tell_key(const char *directory, struct kiln_entry *entry);

/* "PLATFORM/NAME/VERSION/DRIVER": the name into `out`; all if it is not of this
   form. */
void ki_sycl_device_name(const char *device, char out[KI_SYCL_TEXT_BYTES]);

#endif /* KI_CLI_SYCL_H */
