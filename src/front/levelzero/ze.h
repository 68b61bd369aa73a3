/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_LEVELZERO_ZE_H
#define KI_FRONT_LEVELZERO_ZE_H

/*
 * The inside of the proxy driver: what its files share (README.md has the
 * picture).  `ki_ze_next` is the real driver.  Handles are its own and go
 * through untouched; here they are numbers.
 */

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "base/bytes.h"
#include "base/list.h"
#include "front/family.h"
#include "front/guest.h"
#include "front/parts.h"
#include "sys/sys.h"

/* ---- The driver (tables.c) ------------------------------------------------ */

/* Those of the driver's functions that are called from here; NULL until the
   loader has asked for their table. */
struct ki_ze_next {
	ze_api_version_t version; /* that the loader asks for */
	ze_pfnModuleCreate_t module_create;
	ze_pfnModuleDestroy_t module_destroy;
	ze_pfnModuleDynamicLink_t module_link;
	ze_pfnModuleGetNativeBinary_t module_binary;
	ze_pfnModuleBuildLogDestroy_t log_destroy;
	ze_pfnModuleBuildLogGetString_t log_string;
	ze_pfnContextDestroy_t context_destroy;
};
extern struct ki_ze_next ki_ze_next;

/* The address of a function that the real driver exports, or NULL. */
void *ki_ze_symbol(const char *name);

/* Whether this process is a forked child of the one that loaded the driver. */
int ki_ze_is_child(void);

/* Taken last, never while the driver or the kiln is called. */
extern struct ki_mutex ki_ze_lock;

/* ---- What is known of drivers (driver.c) ---------------------------------- */

struct ki_ze_driver {
	const char *library; /* "libNAME.so" */
	const struct ki_part *parts;
	size_t n_parts;
	const char *const *code_variables; /* change code: in the key */
	/* Set, they end caching: nobody knows what they do, or they show a
	   program how it came by its modules. */
	const char *const *refused_variables;
};

/* By a library's last path part; NULL: not known, not cached. */
const struct ki_ze_driver *ki_ze_driver_of_library(const char *name);

/* Why the environment ends caching, or NULL. */
const char *ki_ze_refusal(const struct ki_ze_driver *driver);

/* A number for all variables that are in the key. */
uint64_t ki_ze_variables(const struct ki_ze_driver *driver);

/* ---- Compiler and device (identity.c) ------------------------------------- */

/* What is taken when the driver is loaded: before it reads its variables. */
void ki_ze_identity_init(void);

/* The functions by which devices are asked: once the loader's version is
   known. */
void ki_ze_identity_tables(void);

/*
 * Add "compiler ...", "platform ...", "device 0 ..." and "environment ...".
 * KILN_OK; KILN_E_UNSUPPORTED with a reason; KILN_E_NO_MEMORY.
 */
enum kiln_status ki_ze_identity_add(ze_device_handle_t device,
				    struct kiln_key *key, const char **out_why);

/* Whether a build that has just been made was by what the key says: 1 or 0. */
int ki_ze_identity_holds(void);

/* The variables of the key that are set: NAME=VALUE, a NUL after each. */
void ki_ze_environment(struct ki_bytes *out);

/* ---- Keys (key.c, spirv.c) ------------------------------------------------- */

/* Size of the value of a specialization constant, by what the module says of
   its type; 0 if that cannot be told. */
size_t ki_spirv_constant_bytes(const void *il, size_t size, uint32_t id);

/* What a descriptor asks for, its pointers borrowed. */
struct ki_ze_module {
	const uint8_t *il;
	size_t size;
	const char *flags; /* or NULL */
	const ze_module_constants_t *constants;
};

#define KI_ZE_MODULES_MAX   4096
#define KI_ZE_CONSTANTS_MAX 4096

struct ki_ze_recipe {
	struct ki_ze_module one;
	struct ki_ze_module *modules; /* `one`, or from malloc() */
	size_t n;
	int is_program; /* by ze_module_program_exp_desc_t */
};

/* KILN_OK; KILN_E_UNSUPPORTED with a reason; KILN_E_NO_MEMORY. */
enum kiln_status ki_ze_recipe(const ze_module_desc_t *desc,
			      struct ki_ze_recipe *out_recipe,
			      const char **out_why);
void ki_ze_recipe_fini(struct ki_ze_recipe *recipe);

/* All modules' flags, a blank between; from malloc(), NULL without memory. */
char *ki_ze_recipe_flags(const struct ki_ze_recipe *recipe);

enum kiln_status ki_ze_key(const struct ki_ze_recipe *recipe,
			   ze_device_handle_t device, struct kiln_key **out_key,
			   const char **out_why);

/* For ../family.h: the latest of the same (first) SPIR-V. */
enum kiln_status ki_ze_family_key(const struct kiln_key *key,
				  struct kiln_key **out_family);

/* ---- Modules (module.c) ----------------------------------------------------- */

ze_result_t ZE_APICALL ki_ze_module_create(
	ze_context_handle_t context, ze_device_handle_t device,
	const ze_module_desc_t *desc, ze_module_handle_t *out_module,
	ze_module_build_log_handle_t *out_log);

/* ---- Build logs (log.c) ------------------------------------------------------ */

/* The driver's text, from malloc(), with `size` as the driver tells it; NULL
   and 0 if there is none. */
char *ki_ze_log_text(ze_module_build_log_handle_t log, size_t *out_size);

/* From now on this handle says this.  0, or -1 without memory. */
int ki_ze_log_set(ze_module_build_log_handle_t log, const void *text,
		  size_t size);

ze_result_t ZE_APICALL ki_ze_log_destroy(ze_module_build_log_handle_t log);
ze_result_t ZE_APICALL ki_ze_log_string(ze_module_build_log_handle_t log,
					size_t *size, char *text);

/* ---- One build at a time (flight.c) ------------------------------------------ */

struct ki_ze_flight;

/* Before the look-up: the flight of whoever does it first, once those that came
   before are over; NULL for the others, who look once and then build. */
struct ki_ze_flight *ki_ze_flight_begin(const struct ki_guest *guest,
					const struct kiln_key *key);
/* NULL is fine. */
void ki_ze_flight_end(struct ki_ze_flight *flight);

/* From now on nobody waits. */
void ki_ze_flights_close_locked(void) KI_REQUIRES(&ki_ze_lock);

void ki_ze_flights_init(void);

/* ---- Capturing (capture.c) --------------------------------------------------- */

/* Whether anything is kept at all. */
int ki_ze_captures(const struct ki_guest *guest);

/*
 * A module that the driver has just built: its binary is fetched and put soon,
 * before it is linked or destroyed.  Keeps a reference to the key; takes the metadata, and
 * the flight, which is over once the entry is there or cannot be.
 */
void ki_ze_capture(const struct ki_guest *guest, ze_context_handle_t context,
		   ze_module_handle_t module, struct kiln_key *key,
		   struct kiln_metadata *metadata, struct ki_ze_flight *flight);

ze_result_t ZE_APICALL ki_ze_module_destroy(ze_module_handle_t module);
ze_result_t ZE_APICALL ki_ze_module_link(uint32_t n,
					 ze_module_handle_t *modules,
					 ze_module_build_log_handle_t *out_log);
ze_result_t ZE_APICALL ki_ze_context_destroy(ze_context_handle_t context);

void ki_ze_capture_init(void);
/* In a forked child, with the lock held. */
void ki_ze_capture_forget_locked(void) KI_NO_ANALYSIS;

#endif /* KI_FRONT_LEVELZERO_ZE_H */
