/* SPDX-License-Identifier: MIT */
#ifndef KILN_NEO_H
#define KILN_NEO_H

/*
 * Names in the cache directory of Intel's compute runtime ("NEO"): for tools
 * that want to know which file a driver would look for.  A store neo:DIR does
 * not need them: its own entries are named by the same hash over kiln's key
 * record, and found by kiln.records, never by a guessed name.
 *
 * The hash has 64 bits and frames nothing: different builds may have one name.
 * docs/formats/neo.md says so in detail.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/api.h>
#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The hash -------------------------------------------------------------- */

struct kiln_neo_state {
	uint32_t a;
	uint32_t high;
	uint32_t low;
};

/* Begin a hash, add pieces, and have it. */
KILN_API void kiln_neo_begin(struct kiln_neo_state *state);
/* The same for one piece: its last 1 to 3 bytes are hashed by themselves, so
   pieces are not the same as their concatenation.  NULL is passed over. */
KILN_API void kiln_neo_add(struct kiln_neo_state *state, const void *data,
			   size_t size);
KILN_API uint64_t kiln_neo_end(const struct kiln_neo_state *state);

/* ---- What a driver hashes ---------------------------------------------------- */

/* The order of the fields changed with these releases. */
enum kiln_neo_release {
	KILN_NEO_22_43 = 0, /* up to 23.34: no compiler, no constants */
	KILN_NEO_24_13 = 1, /* from 23.35: compiler and constants */
	KILN_NEO_24_26 = 2, /* and the version of the hardware's IP */
	KILN_NEO_26_32 = 3, /* and the compiler's registry keys */
};

/* As the driver's structure lies in memory, without padding. */
struct kiln_neo_platform {
	uint32_t product;
	uint32_t pch_product;
	uint32_t display_core;
	uint32_t render_core;
	uint32_t platform_type;
	uint16_t device_id;
	uint16_t revision_id;
	uint16_t pch_device_id;
	uint16_t pch_revision_id;
	uint32_t gt_type;
};

struct kiln_neo_fields {
	size_t size; /* sizeof(struct kiln_neo_fields) */
	enum kiln_neo_release release;
	const char *igc_revision;
	size_t igc_revision_size;
	uint64_t igc_library_size;
	int64_t igc_library_mtime; /* seconds */
	const void *igc_registry_keys;
	size_t igc_registry_keys_size;
	const void *input;
	size_t input_size;
	const char *options;
	size_t options_size;
	const char *internal_options;
	size_t internal_options_size;
	const uint32_t *constant_ids;
	const uint64_t *constant_values;
	size_t n_constants;
	struct kiln_neo_platform platform;
	uint64_t feature_hash; /* of the feature table */
	uint64_t workaround_hash;
	uint32_t ip_version;
	/* The tables themselves, which are not hashed: for kiln_neo_trace().
	   May be NULL. */
	const void *feature_table;
	size_t feature_table_size;
	const void *workaround_table;
	size_t workaround_table_size;
};

/* The hash of a build; 0 if `size` is not of this structure. */
KILN_API uint64_t kiln_neo_hash(const struct kiln_neo_fields *fields);

/*
 * What the driver leaves in its directory for a build with BinaryCacheTrace=1:
 * <16 digits>.trace, a section of text for each field that is hashed, and
 * <16 digits>.input, the input.  INVALID, IO, READONLY, FULL, NO_MEMORY.
 */
KILN_API enum kiln_status kiln_neo_trace(const struct kiln_neo_fields *fields,
					 const char *directory);

/* ---- Names ------------------------------------------------------------------- */

#define KILN_NEO_OPENCL	    ".cl_cache"
#define KILN_NEO_LEVEL_ZERO ".l0_cache"
#define KILN_NEO_OCLOC	    ".ocloc_cache"

enum kiln_neo_layout {
	KILN_NEO_DETECT = 0, /* by what is there; an empty one is flat */
	KILN_NEO_FLAT = 1,   /* releases 23.22 to 26.04 */
	KILN_NEO_TREE = 2,   /* from 26.05: two levels of directories */
};

#define KILN_NEO_NAME_BYTES 40

/* The name of an entry: "0123456789abcdef.cl_cache", in the tree
   "0/1/0123456789abcdef.cl_cache".  Returns `out`; NULL if it does not fit. */
KILN_API const char *kiln_neo_name(uint64_t hash, const char *extension,
				   enum kiln_neo_layout layout,
				   char out[KILN_NEO_NAME_BYTES]);

/* ---- What a file is ---------------------------------------------------------- */

enum kiln_neo_form {
	KILN_NEO_OTHER = 0,
	KILN_NEO_EMPTY = 1,
	KILN_NEO_SPIRV = 2,
	KILN_NEO_BITCODE = 3,	 /* LLVM's */
	KILN_NEO_OPENCL_ELF = 4, /* parts of a program, as packed by a driver */
	KILN_NEO_ZEBIN = 5,	 /* a device binary: ELF */
	KILN_NEO_PATCH_TOKENS = 6, /* a device binary before zebin */
	KILN_NEO_ARCHIVE = 7,	   /* of device binaries */
	KILN_NEO_OTHER_ELF = 8,
};

struct kiln_neo_description {
	enum kiln_neo_form form;
	unsigned elf_type; /* 0 if it is no ELF */
	int has_il;	   /* SPIR-V, in it or all of it */
	int is_cut;	   /* it ends before its own tables say */
	char device[48];   /* as the binary names it: "Tiger Lake"; "" */
	unsigned n_kernels;
	char kernels[512]; /* the first names, a space between two */
};

/*
 * What can be told of a binary by looking at it.  Never trusts what it reads.
 * A file: KILN_OK, KILN_MISS (no file, or no regular one; links are not
 * followed), KILN_E_IO.
 */
KILN_API void kiln_neo_describe_bytes(
	const void *data, size_t size,
	struct kiln_neo_description *out_description);
KILN_API enum kiln_status kiln_neo_describe_file(
	const char *path, struct kiln_neo_description *out_description);

/* The name of a form, as "zebin"; never NULL. */
KILN_API const char *kiln_neo_form_name(enum kiln_neo_form form);
/* Of an ELF in these formats, "ET_OPENCL_EXECUTABLE"; "" if it is none. */
KILN_API const char *kiln_neo_elf_type_name(unsigned elf_type);

#ifdef __cplusplus
}
#endif
#endif /* KILN_NEO_H */
