/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_ZE_STANDIN_H
#define KI_TESTS_ZE_STANDIN_H

/*
 * A Level Zero driver without a device: modules are really compiled, by NEO's
 * offline compiler, and nothing can be run.  README.md has its settings.
 */

#include <stddef.h>
#include <stdint.h>

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

struct bytes {
	uint8_t *data;
	size_t size;
};

void bytes_add(struct bytes *bytes, const void *data, size_t size);
void bytes_add_u32(struct bytes *bytes, uint32_t value);

/* ---- Devices (driver.c) ---- */

struct _ze_device_handle_t {
	const char *name;
	const char *target; /* of the compiler */
	uint32_t id;
	uint32_t ip_version;
};

/* NULL unless it is one of ours. */
const struct _ze_device_handle_t *device_of(ze_device_handle_t device);

/* A line "WHAT SIZE" at the end of the file KILN_TEST_ZE_CALLS. */
void note(const char *what, size_t size);

/* ---- Compiling (compile.c) ---- */

/* What it makes that ends with `suffix`, added to `out`, and what it says.
   0, or -1. */
int ocloc(const char *const *arguments, unsigned n, const void *source,
	  size_t size, const char *name, const char *suffix, struct bytes *out,
	  struct bytes *log);

/* SPIR-V into a device binary; what the compiler said goes to `log` in both
   cases.  0, or -1. */
int compile(const void *il, size_t size, const char *flags, const char *target,
	    struct bytes *binary, struct bytes *log);

/* ---- Modules (module.c) ---- */

void fill_modules(ze_module_dditable_t *table);
void fill_logs(ze_module_build_log_dditable_t *table);

#endif /* KI_TESTS_ZE_STANDIN_H */
