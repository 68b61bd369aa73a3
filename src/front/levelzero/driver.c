/* SPDX-License-Identifier: MIT */

#include "front/levelzero/ze.h"

#include <string.h>

#include "base/hash.h"
#include "front/neo.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Beside NEO's own: what has a debugger, an instrumenting tool or a tracer see
   how modules are made, or changes what they hold. */
static const char *const NEO_REFUSED[] = { "ZET_ENABLE_PROGRAM_DEBUGGING",
					   "ZET_ENABLE_PROGRAM_INSTRUMENTATION",
					   "ZET_ENABLE_API_TRACING_EXP", NULL };

/* The stand-in of the tests, which compiles with NEO's offline compiler. */
static const struct ki_part TEST_PARTS[] = {
	{ KI_PART_LIBRARY,
	  { "/usr/lib/x86_64-linux-gnu" },
	  "libocloc.so",
	  NULL,
	  0 },
	{ KI_PART_LIBRARY,
	  { "/usr/lib/x86_64-linux-gnu" },
	  "libigc.so.",
	  "",
	  0 },
	{ KI_PART_LIBRARY,
	  { "/usr/lib/x86_64-linux-gnu" },
	  "libigdfcl.so.",
	  "",
	  0 },
};
static const char *const TEST_CODE[] = { "KILN_TEST_ZE_CODE", NULL };
static const char *const TEST_REFUSED[] = { "KILN_TEST_ZE_TOOL", NULL };

static const struct ki_ze_driver DRIVERS[] = {
	{ "libze_intel_gpu.so", ki_neo_parts, KI_NEO_PARTS,
	  ki_neo_code_variables, NEO_REFUSED },
	{ "libze_intel_gpu_legacy1.so", ki_neo_parts, KI_NEO_PARTS,
	  ki_neo_code_variables, NEO_REFUSED },
	{ "libkiln-test-ze.so", TEST_PARTS, LENGTH(TEST_PARTS), TEST_CODE,
	  TEST_REFUSED },
};

const struct ki_ze_driver *ki_ze_driver_of_library(const char *name)
{
	size_t i, size;

	for (i = 0; i < LENGTH(DRIVERS); i++) {
		size = strlen(DRIVERS[i].library);
		if (!strncmp(name, DRIVERS[i].library, size) &&
		    (!name[size] || name[size] == '.'))
			return &DRIVERS[i];
	}
	return NULL;
}

static int is_set(const char *const *names)
{
	const char *value;

	for (; *names; names++) {
		value = ki_environment(*names);
		if (value && *value && strcmp(value, "0") != 0)
			return 1;
	}
	return 0;
}

const char *ki_ze_refusal(const struct ki_ze_driver *row)
{
	if (is_set(row->refused_variables) ||
	    (row->parts == ki_neo_parts && is_set(ki_neo_refused_variables)))
		return "a variable switches the driver to a mode that kiln "
		       "does not know";
	if (ki_neo_is_unknown_set())
		return "a variable of the compiler is set that kiln does not "
		       "know";
	return NULL;
}

uint64_t ki_ze_variables(const struct ki_ze_driver *row)
{
	const char *const *name;
	const char *value;
	uint64_t sum = 0;

	for (name = row->code_variables; *name; name++) {
		value = ki_environment(*name);
		sum = sum * 31 +
		      (value ? ki_xxh3_64(value, strlen(value)) | 1 : 0);
	}
	return sum;
}
