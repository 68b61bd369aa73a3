/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_INCLUDE_H
#define KI_FRONT_OPENCL_INCLUDE_H

/*
 * The include closure of a source, as fields of a key.
 *
 * Drivers search in different orders (PoCL 3.1: its own temporary folder, the
 * working directory, then -I).  So not only the first file found counts but
 * every place where any of them might look: a file that is there is a digest
 * field, one that is not is an absent field, and whichever a driver opens is
 * among them.  Labels are paths as they are spelled, so the working directory
 * is not in the key, only what is found from there.
 */

#include <kiln/kiln.h>

#include "front/opencl/options.h"
#include "sys/sys.h"

/* A program beyond these is not cached. */
#define KI_CL_INCLUDE_DEPTH_MAX	     200
#define KI_CL_INCLUDE_FILES_MAX	     2048 /* places looked at, there or not */
#define KI_CL_INCLUDE_BYTES_MAX	     ((uint64_t)64 << 20) /* in all */
#define KI_CL_INCLUDE_FILE_BYTES_MAX ((size_t)16 << 20)	  /* in one */

/* Scans of at most so many files are remembered. */
#define KI_CL_REMEMBERED_MAX 4096
/*
 * A file that changed less than this before it was read is read again next
 * time: another change within the clock's tick would leave its times alone.
 * Two seconds are the coarsest clock of the file systems in use (FAT).
 */
#define KI_CL_SETTLE_NS 2500000000

/* Files read so far in this process.  May be used from any thread. */
struct ki_cl_includes;

struct ki_cl_includes *ki_cl_includes_new(const struct ki_sys *sys);
void ki_cl_includes_free(struct ki_cl_includes *includes);

struct ki_cl_search {
	const struct ki_cl_options *options;
	/* Folders that the driver adds by itself, besides the working
	   directory: they count where they have the file. */
	const char *const *driver_folders;
	size_t n_driver_folders;
	/* Whether the driver makes a folder within one of these for header
	   programs, and looks there too: a name may not lead out of it. */
	int has_header_files;
	/* Headers that the driver puts before every source: what they define
	   is not to be relied on in computed includes. */
	const char *const *driver_headers;
	size_t n_driver_headers;
	/* NULL, or where a number for the files that were found goes: another
	   if one was written to or replaced in between, even by the same. */
	uint64_t *out_stamp;
};

struct ki_cl_text {
	const char *text;
	size_t size;
};

/*
 * Add the fields "include PATH" of all texts of one program: its source, and
 * header programs, which have no place and are looked for like all others.
 * They count as one, since what one defines is there in the next.  KILN_OK;
 * KILN_E_UNSUPPORTED with *out_reason, the counter that tells why such a program
 * is not cached; KILN_E_NO_MEMORY.
 */
enum kiln_status ki_cl_includes_add_texts(struct ki_cl_includes *includes,
					  const struct ki_cl_search *search,
					  const struct ki_cl_text *texts,
					  size_t n_texts, struct kiln_key *key,
					  enum kiln_counter *out_reason);

/* The same for a source alone. */
enum kiln_status ki_cl_includes_add(struct ki_cl_includes *includes,
				    const struct ki_cl_search *search,
				    const char *source, size_t size,
				    struct kiln_key *key,
				    enum kiln_counter *out_reason);

/* How many files are remembered, and were read, so far: for tests. */
size_t ki_cl_includes_remembered(struct ki_cl_includes *includes);
uint64_t ki_cl_includes_read(struct ki_cl_includes *includes);

#endif /* KI_FRONT_OPENCL_INCLUDE_H */
