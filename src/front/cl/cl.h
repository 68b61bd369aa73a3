/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_CL_CL_H
#define KI_FRONT_CL_CL_H

/* The inside of <kiln/front/opencl.h>, for the files of this folder. */

#include <stdatomic.h>

#include <kiln/front/opencl.h>
#include <kiln/inspect.h>

#include "front/opencl/capture.h"
#include "front/opencl/key.h"
#include "sys/sys.h"

struct kiln_cl {
	/* Fixed after opening. */
	uint64_t generation; /* of forks */
	cl_context context;
	cl_platform_id platform;
	cl_device_id *devices; /* of the context */
	cl_uint n_devices;
	cl_icd_dispatch calls;
	struct ki_cl_identities *identities;
	struct kiln *kiln; /* whose store is used, or NULL */
	struct kiln *own;  /* opened here, or NULL */
	struct kiln_config *config;
	const char *spool; /* of the user's own store, or NULL */
	int closes_at_once;
	kiln_log_fn *log;
	void *log_arg;
	struct kiln_programs *programs;
	/* Atomic. */
	_Atomic uint64_t n_found;
	_Atomic int has_told; /* why nothing is kept */
	_Atomic int no_puts;  /* the store takes nothing */
	/* Under mutex: built, and not yet kept; the last first. */
	struct ki_mutex mutex;
	struct ki_cl_built *built;
};

/*
 * One call's build: what the runtime's functions have by the image's `user`.
 * The key is that of docs/formats/opencl-key.md, or one for this process alone;
 * NULL where there can be none.
 */
struct ki_cl_order {
	struct kiln_cl *cl;
	struct kiln_cl_build build;
	cl_device_id *devices; /* in the context's order, each once */
	cl_uint n_devices;
	struct ki_cl_recipe *recipe; /* NULL: of a binary */
	struct kiln_key *key;
	enum kiln_counter reason; /* why the key is no store's */
	uint64_t stamp;		  /* of the files that it includes */
	int is_stored;		  /* the key may be asked for in a store */
	int is_kept;		  /* what comes of it may be another's */
	int is_overtaken;	  /* files changed while the driver read them */
	int is_refused;		  /* what was found, by the driver */
};

/* Whether this is a child of who opened it. */
int ki_cl_is_forked(const struct kiln_cl *cl);

/* ---- order.c --------------------------------------------------------------- */

/* KILN_OK, also without a key; INVALID, NO_MEMORY. */
enum kiln_status ki_cl_order_init(struct ki_cl_order *order, struct kiln_cl *cl,
				  const struct kiln_cl_build *build);
void ki_cl_order_fini(struct ki_cl_order *order);
/* Whether a store's key would be the same now. */
int ki_cl_is_current(const struct kiln_cl *cl,
		     const struct ki_cl_recipe *recipe,
		     const cl_device_id *devices, cl_uint n_devices,
		     const struct kiln_key *key, uint64_t stamp);

/* ---- store.c --------------------------------------------------------------- */

/* From the store, built; NULL: not there, or of no use. */
cl_program ki_cl_order_find(struct ki_cl_order *order);
/* This program was built for the order: to be kept later. */
void ki_cl_order_built(const struct ki_cl_order *order, cl_program program,
		       uint64_t build_ns);
/* What waits: by fetching it, or by leaving it to kiln-worker. */
enum ki_cl_keeping { KI_CL_KEEP_NOW, KI_CL_KEEP_LATER };
void ki_cl_keep(struct kiln_cl *cl, enum ki_cl_keeping how);

/* ---- jobs.c ---------------------------------------------------------------- */

/* One that waits to be kept. */
struct ki_cl_built {
	struct ki_cl_built *next;
	cl_program program; /* one reference */
	struct kiln_key *key;
	uint64_t stamp;
	struct ki_cl_recipe *recipe;
	cl_device_id *devices;
	cl_uint n_devices;
	uint64_t created, build_ns;
	int is_refused; /* a pack may have an entry: it is no use */
	char *directory;
	struct ki_bytes environment;
};

/* Ask for its entry, in the spool. */
void ki_cl_built_job(const struct kiln_cl *cl, const struct ki_cl_built *built);

/* ---- runtime.c ------------------------------------------------------------- */

/* OpenCL as the program cache wants it. */
void ki_cl_runtime(struct kiln_cl *cl, struct kiln_program_runtime *out);
/* Of a call that failed. */
enum kiln_build_kind ki_cl_kind(cl_int code);

#endif /* KI_FRONT_CL_CL_H */
