/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_RECIPE_H
#define KI_FRONT_OPENCL_RECIPE_H

/*
 * A recipe is everything the driver was told to make a program, without any of
 * its handles: what a key is made of, and what a job carries so that the
 * program can be made once more elsewhere.
 *
 *	BUILD    source or IL, constants, options
 *	COMPILE  the same, and headers: an object
 *	LINK     objects, libraries, binaries: a program or a library
 *	BINARY   what clCreateProgramWithBinary was given
 *
 * Sources and recipes are immutable, counted (the count is atomic) and deep:
 * each holds what it was made of.  The builders copy texts and numbers and take
 * references of their own on sources, recipes and keys.  They return NULL
 * without memory, or where a limit below is passed.
 *
 * The devices are not here: all of a tree are those of the outermost build.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include <kiln/kiln.h>

#include "base/bytes.h"
#include "base/hash.h"

/* What is beyond these is not cached. */
#define KI_CL_RECIPE_DEPTH_MAX	 16   /* links within links */
#define KI_CL_RECIPE_NODES_MAX	 4096 /* each as often as it is used */
#define KI_CL_RECIPE_HEADERS_MAX 4096
#define KI_CL_CONSTANTS_MAX	 1024
#define KI_CL_CONSTANT_BYTES_MAX 4096 /* of one */

/* ---- Sources --------------------------------------------------------------- */

/* What a program was created from: strings, or IL (n_strings is 0). */
struct ki_cl_source {
	_Atomic unsigned refs;
	const char *const *strings; /* each with a NUL behind it */
	const size_t *lengths;
	cl_uint n_strings;
	const void *il; /* NULL: strings */
	size_t il_size;
};

/* As clCreateProgramWithSource has them: without lengths, or where one is 0, a
   string ends at its NUL. */
struct ki_cl_source *ki_cl_source_new(cl_uint n_strings,
				      const char *const *strings,
				      const size_t *lengths);
struct ki_cl_source *ki_cl_source_new_il(const void *il, size_t size);

/* Both take NULL. */
struct ki_cl_source *ki_cl_source_ref(const struct ki_cl_source *source);
void ki_cl_source_unref(const struct ki_cl_source *source);

/* ---- Recipes --------------------------------------------------------------- */

enum ki_cl_recipe_kind {
	KI_CL_BUILD = 1,
	KI_CL_COMPILE = 2,
	KI_CL_LINK = 3,
	KI_CL_BINARY = 4,
};

/* clSetProgramSpecializationConstant */
struct ki_cl_constant {
	cl_uint id;
	size_t size;
	const uint8_t *value;
};

struct ki_cl_header {
	const char *name; /* as #include has it */
	const struct ki_cl_source *source;
};

/*
 * What goes into a link.  `key` and `stamp` are those of the input when *it*
 * was made: files that it includes may be others by the time of the link.
 * Without a key it is computed where it is needed.
 */
struct ki_cl_input {
	const struct ki_cl_recipe *recipe;
	struct kiln_key *key; /* or NULL */
	uint64_t stamp;
};

/* One for each device, in the order of the outermost build's devices. */
struct ki_cl_binary {
	size_t size;
	uint8_t digest[KI_BLAKE2B_BYTES];
	const uint8_t *bytes; /* NULL: not kept, so there can be no job */
};

struct ki_cl_recipe {
	_Atomic unsigned refs;
	enum ki_cl_recipe_kind kind;
	unsigned depth;	     /* 1: no inputs */
	unsigned n_nodes;    /* of the tree */
	const char *options; /* "" if none; BINARY: of its build, if any */
	int has_options;     /* 0: NULL, which to PoCL is not "" */
	/* BUILD, COMPILE */
	const struct ki_cl_source *source;
	const struct ki_cl_constant *constants; /* of IL, sorted by id */
	cl_uint n_constants;
	/* COMPILE, in the call's order */
	const struct ki_cl_header *headers;
	cl_uint n_headers;
	/* LINK, in the call's order */
	const struct ki_cl_input *inputs;
	cl_uint n_inputs;
	/* BINARY */
	const struct ki_cl_binary *binaries;
	cl_uint n_binaries;
};

/* `options` may be NULL.  Of constants with one id the last counts. */
struct ki_cl_recipe *ki_cl_recipe_build(const struct ki_cl_source *source,
					const struct ki_cl_constant *constants,
					cl_uint n_constants,
					const char *options);
struct ki_cl_recipe *ki_cl_recipe_compile(
	const struct ki_cl_source *source,
	const struct ki_cl_constant *constants, cl_uint n_constants,
	const struct ki_cl_header *headers, cl_uint n_headers,
	const char *options);
/* Inputs are COMPILE, LINK or BINARY. */
struct ki_cl_recipe *ki_cl_recipe_link(const struct ki_cl_input *inputs,
				       cl_uint n_inputs, const char *options);
/* With `keeps`, the bytes are copied; without, only their digests are. */
struct ki_cl_recipe *ki_cl_recipe_binary(const unsigned char *const *binaries,
					 const size_t *sizes,
					 cl_uint n_binaries, int keeps,
					 const char *options);

/* Both take NULL. */
struct ki_cl_recipe *ki_cl_recipe_ref(const struct ki_cl_recipe *recipe);
void ki_cl_recipe_unref(const struct ki_cl_recipe *recipe);

/* As they were given: or NULL. */
static inline const char *ki_cl_recipe_options(
	const struct ki_cl_recipe *recipe)
{
	return recipe->has_options ? recipe->options : NULL;
}

/* Whether a job can carry it: all bytes are there. */
int ki_cl_recipe_is_whole(const struct ki_cl_recipe *recipe);

/* Whether a program has kernels once it is made like this: not an object, and
   not a library (-create-library). */
int ki_cl_recipe_has_kernels(const struct ki_cl_recipe *recipe);

/* ---- As bytes (recipe_bytes.c, docs/formats/job.md) ------------------------- */

/* A whole one, as fields behind what is there. */
void ki_cl_recipe_write(const struct ki_cl_recipe *recipe,
			struct ki_bytes *bytes);
/* KILN_OK; KILN_E_FORMAT; KILN_E_UNSUPPORTED if a newer kiln wrote it;
   KILN_E_NO_MEMORY. */
enum kiln_status ki_cl_recipe_read(const void *data, size_t size,
				   struct ki_cl_recipe **out_recipe);

#endif /* KI_FRONT_OPENCL_RECIPE_H */
