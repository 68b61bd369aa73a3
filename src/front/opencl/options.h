/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_OPTIONS_H
#define KI_FRONT_OPENCL_OPTIONS_H

/*
 * What build options say about files and macros.  The options themselves are
 * in the key byte for byte; here we only need to know where a compiler may
 * look for includes, and what it defines.
 *
 * OpenCL does not say how options are split and quoted, and drivers differ:
 * PoCL 3.1 makes blanks of double quotes, others read them as a shell would.
 * So a text with quotes or backslashes is read in every known way, and what
 * any reading yields is kept: a directory too many costs a look into it, one
 * too few could cost a wrong binary.
 */

#include <stddef.h>

#include <kiln/kiln.h>

#define KI_CL_OPTIONS_BYTES_MAX ((size_t)1 << 20)
#define KI_CL_WORDS_MAX		((size_t)4096)

/* Strings, each from malloc(), without doubles, in the order of adding. */
struct ki_cl_words {
	char **words;
	size_t n;
	size_t capacity;
};

void ki_cl_words_fini(struct ki_cl_words *words);
int ki_cl_words_have(const struct ki_cl_words *words, const char *word,
		     size_t size);
/* 0, -ENOMEM, -E2BIG. */
int ki_cl_words_add(struct ki_cl_words *words, const char *word, size_t size);

struct ki_cl_options {
	/* Include directories of the usual reading (a shell's). */
	struct ki_cl_words directories;
	/* Those that only other readings see: they count where they exist. */
	struct ki_cl_words doubtful_directories;
	/* Macros, NAME or NAME=BODY or NAME(PARAMETERS)=BODY, of all readings:
	   a name with two definitions is not to be relied on. */
	struct ki_cl_words macros;
	/* Names taken away with -U. */
	struct ki_cl_words undefined;
	/* Files included before the source. */
	struct ki_cl_words files;
	/* An option reads files in a way that is not followed. */
	int opaque;
	/* An option that asks for files to be written. */
	int writes;
	int failed; /* 0, -ENOMEM, -E2BIG */
};

void ki_cl_options_init(struct ki_cl_options *options);
void ki_cl_options_fini(struct ki_cl_options *options);

/* Read one text; more may follow (what drivers take from the environment).
   What goes wrong is remembered in `failed`. */
void ki_cl_options_read(struct ki_cl_options *options, const char *text);

#endif /* KI_FRONT_OPENCL_OPTIONS_H */
