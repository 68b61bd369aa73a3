/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_PARTS_H
#define KI_FRONT_PARTS_H

/* The files that belong to a compiler besides the libraries it links. */

#include "front/image.h"
#include "sys/sys.h"

#define KI_PART_FILES_MAX 512

enum ki_part_kind {
	KI_PART_LIBRARY, /* loaded late, or run: by build-id */
	KI_PART_DATA,	 /* read while compiling: by content */
	KI_PART_HEADER,	 /* the same, put before every source */
	/* A library of builtins, of which a device uses one. */
	KI_PART_PER_DEVICE,
};

/* Files DIRECTORY/PREFIX*SUFFIX that belong to a compiler; without a suffix,
   the file DIRECTORY/PREFIX. */
struct ki_part {
	enum ki_part_kind kind;
	/* Where: the first of these that exists; "@" is the folder of the
	   driver's library, "$PATH" where programs are looked for.
	   NULL-ended. */
	const char *directories[4];
	const char *prefix;
	const char *suffix;
	int is_needed; /* without one the driver is not cached */
};

struct ki_part_file {
	const struct ki_part *part;
	char *path;
	const char *name; /* its last part */
	struct ki_file_info info;
	/* "" until it is asked for, when the part is PER_DEVICE. */
	char identity[KI_IDENTITY_BYTES];
};

struct ki_part_files {
	struct ki_part_file *files; /* by part, then by name */
	size_t n;
};

/*
 * Find and identify the files of a driver whose library is `library`.  0;
 * -ENOENT if one that it needs is not there; other errors.
 */
int ki_parts_find(const struct ki_sys *sys, const struct ki_part *parts,
		  size_t n_parts, const char *library,
		  struct ki_part_files *out_files);
void ki_parts_fini(struct ki_part_files *files);

/* A number for the variables by which this driver's programs are found. */
uint64_t ki_parts_variables(const struct ki_part *parts, size_t n_parts);

int ki_part_identify(const struct ki_sys *sys, const struct ki_part_file *file,
		     char out[KI_IDENTITY_BYTES]);

/* Whether LD_LIBRARY_PATH leads to another library of the name of one of these:
   the driver would load that. */
int ki_parts_hidden(const struct ki_sys *sys,
		    const struct ki_part_files *files);

/* Whether a file is no longer the one that was identified.  Looks only. */
int ki_parts_changed(const struct ki_sys *sys,
		     const struct ki_part_files *files);

/*
 * Whether a library was loaded that was not identified on disk: one whose name
 * fits a part, with another identity than all files.
 */
int ki_parts_loaded_otherwise(const struct ki_sys *sys,
			      const struct ki_part *parts, size_t n_parts,
			      const struct ki_part_files *files,
			      const struct ki_images *images);

#endif /* KI_FRONT_PARTS_H */
