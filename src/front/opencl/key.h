/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_KEY_H
#define KI_FRONT_OPENCL_KEY_H

/*
 * What decides the outcome of an OpenCL build, as a key.  The layer computes
 * it inside the program and kiln-worker computes it again in its own process:
 * both call this, with the driver's functions as they have them, and a worker
 * publishes only if the two records are equal.
 *
 * Nothing here calls the loader; `calls` is the driver's table, in a layer the
 * one that was handed to it at initialisation.
 */

#include <stddef.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>

#include <kiln/kiln.h>

#include "front/opencl/recipe.h"

/* ---- Compiler, devices, environment: taken once ---------------------------- */

/*
 * Identities of the platforms and devices of this process, filled as they are
 * asked for.  May be used from any thread.
 */
struct ki_cl_identities;

struct ki_cl_identities *ki_cl_identities_new(const cl_icd_dispatch *calls);
void ki_cl_identities_free(struct ki_cl_identities *identities);

/*
 * Whether programs of this platform may be cached now: KILN_OK, or
 * KILN_E_UNSUPPORTED with a sentence in *out_why (static): a driver that
 * cannot be identified, a lazily loaded compiler library that turned out
 * different, an unknown layer below ours.
 */
enum kiln_status ki_cl_platform_status(struct ki_cl_identities *identities,
				       cl_platform_id platform,
				       const char **out_why);

/* How a known driver behaves; from one table in driver.c. */
struct ki_cl_driver {
	const char *name;     /* "pocl", "rusticl", ...; never NULL */
	int fetch_is_cheap;   /* binaries may be fetched in passing */
	int worker_may_build; /* kiln-worker may run it */
	/* What is linked from objects' binaries tells of its kernels what it
	   would tell if they had just been compiled. */
	int objects_tell_all;
	/* Environment: names that change code, and names that only place
	   caches and logs (they travel in jobs); both NULL-ended. */
	const char *const *code_variables;
	const char *const *place_variables;
};
const struct ki_cl_driver *ki_cl_driver(struct ki_cl_identities *identities,
					cl_platform_id platform);
/* Whether kiln-worker makes a better entry of one that was fetched early: where
   fetching is cheap, binaries are as good whenever that is done. */
static inline int ki_cl_driver_gains(const struct ki_cl_driver *driver)
{
	return driver->worker_may_build && !driver->fetch_is_cheap;
}

/* ---- A build ---------------------------------------------------------------- */

struct ki_cl_build {
	cl_platform_id platform;
	const cl_device_id *devices; /* of this build, in its order */
	cl_uint n_devices;
	const struct ki_cl_recipe *recipe;
	/*
	 * NULL, or where a number for the include files goes.  A file may
	 * change after the key was computed, be read by the driver, and be the
	 * old one again: then the keys before and after are equal, but the
	 * numbers are not.
	 */
	uint64_t *out_stamp;
};

/*
 * The key of any recipe but a BINARY (which only has a place in a link).  An
 * input of a link counts with the key that the recipe has for it, else its key
 * is computed too.  KILN_OK; else out_reason says which counter tells why this
 * program is not cached (KILN_COUNT_MISS_UNRESOLVED, _TIME_MACRO, _DIRECTIVE,
 * _UNKNOWN_LAYER, _UNSUPPORTED) and the status is KILN_E_UNSUPPORTED, or
 * NO_MEMORY.
 *
 * The fields: docs/formats/opencl-key.md.
 */
enum kiln_status ki_cl_key(struct ki_cl_identities *identities,
			   const struct ki_cl_build *build,
			   struct kiln_key **out_key,
			   enum kiln_counter *out_reason);

/*
 * A key for telling builds apart within this process and its context alone,
 * where ki_cl_key() refuses for want of a compiler's identity: without compiler
 * and devices, with all of the environment.  Where nobody knows how the driver
 * looks for include files there is none for what has some: UNSUPPORTED.
 */
enum kiln_status ki_cl_passing_key(struct ki_cl_identities *identities,
				   const struct ki_cl_build *build,
				   struct kiln_key **out_key);

/* What a key record of OpenCL's is for, by its `kind`; 0: it is none of this
   version's. */
enum ki_cl_recipe_kind ki_cl_key_kind(const void *record, size_t size);

/*
 * The key under which the record of the latest build of this source is kept,
 * as a hidden entry, for ki_family_reason().
 */
enum kiln_status ki_cl_family_key(const struct kiln_key *key,
				  struct kiln_key **out_family);

#endif /* KI_FRONT_OPENCL_KEY_H */
