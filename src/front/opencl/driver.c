/* SPDX-License-Identifier: MIT */

/*
 * PoCL's row comes from watching 3.1 of Debian 12 with strace: it loads
 * pocl/libpocl-devices-*.so when devices are asked for, reads the headers of
 * share/pocl/include and one of the kernel-*.bc (10 MB) at each build, and
 * runs the first ld of PATH at the first launch.  Its libraries name the
 * variables.
 *
 * Variables stand here by name, not by prefix: one that only prints or places
 * must not cost every entry.
 */

#include "front/opencl/driver.h"

#include <stdio.h>
#include <string.h>

#include "front/neo.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char *const NONE[] = { NULL };

/* ---- PoCL ------------------------------------------------------------ */

static const struct ki_part POCL_PARTS[] = {
	{ KI_PART_LIBRARY, { "@/pocl" }, "libpocl-devices-", ".so", 0 },
	{ KI_PART_LIBRARY, { "@/pocl" }, "libllvmopencl", ".so", 0 },
	{ KI_PART_LIBRARY, { "@" }, "libllvmopencl.so", NULL, 0 },
	{ KI_PART_HEADER,
	  { "@/../../share/pocl/include", "@/../share/pocl/include",
	    "/usr/share/pocl/include" },
	  "",
	  ".h",
	  1 },
	{ KI_PART_PER_DEVICE,
	  { "@/../../share/pocl", "@/../share/pocl", "/usr/share/pocl" },
	  "kernel-",
	  ".bc",
	  1 },
	{ KI_PART_LIBRARY, { "$PATH", "/usr/bin" }, "ld", NULL, 0 },
};

static const char *const POCL_CODE[] = { "POCL_WORK_GROUP_METHOD",
					 "POCL_FULL_REPLICATION_THRESHOLD",
					 "POCL_WILOOPS_MAX_UNROLL_COUNT",
					 "POCL_FORCE_PARALLEL_OUTER_LOOP",
					 "POCL_WORK_GROUP_SPECIALIZATION",
					 "POCL_BINARY_SPECIALIZE_WG",
					 "POCL_MAX_WORK_GROUP_SIZE",
					 "POCL_EXTRA_BUILD_FLAGS",
					 "POCL_KERNELLIB_NAME",
					 "POCL_LLVM_CPU_NAME",
					 "POCL_OFFLINE_COMPILE",
					 "POCL_VECTORIZER_REMARKS",
					 "POCL_DEBUG_LLVM_PASSES",
					 "POCL_KERNEL_COMPILER_OPT_SWITCH",
					 "POCL_BBVECTORIZE",
					 "POCL_BITCODE_FINALIZER",
					 "POCL_LLVM_VERIFY",
					 "POCL_STACK_SIZE",
					 "POCL_CPU_LOCAL_MEM_SIZE",
					 "POCL_MAX_COMPUTE_UNITS",
					 "POCL_ARGS_CLANG",
					 "LIBRARY_PATH",
					 NULL };
static const char *const POCL_PLACE[] = {
	"POCL_CACHE_DIR",
	"POCL_KERNEL_CACHE",
	"POCL_DEBUG",
	"POCL_DEVICES",
	"POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES",
	"POCL_MEMORY_LIMIT",
	"POCL_AFFINITY",
	"POCL_MAX_PTHREAD_COUNT",
	"POCL_PTHREAD_MIN_THREADS",
	"POCL_ENABLE_UNINIT",
	"POCL_SIGFPE_HANDLER",
	"POCL_SIGUSR2_HANDLER",
	"POCL_TRACING",
	"POCL_TRACING_OPT",
	"POCL_TRACING_FILTER",
	"PATH",
	"XDG_CACHE_HOME",
	"HOME",
	NULL
};
static const char *const POCL_OPTIONS[] = { "POCL_EXTRA_BUILD_FLAGS", NULL };
/* Programs from elsewhere, which no part above identifies, and another tree. */
static const char *const POCL_REFUSED[] = {
	"POCL_BUILDING",      "COMPILER_PATH",	      "CCC_OVERRIDE_OPTIONS",
	"POCL_PATH_CLANG",    "POCL_PATH_LLVM_LINK",  "POCL_PATH_LLVM_OPT",
	"POCL_PATH_LLVM_LLC", "POCL_PATH_LLVM_SPIRV", NULL
};

/* ---- Mesa ------------------------------------------------------------ */

/* Names as the strings of Debian's 22.3.6 have them. */
static const struct ki_part RUSTICL_PARTS[] = {
	{ KI_PART_LIBRARY, { "@/gallium-pipe" }, "pipe_", ".so", 0 },
	{ KI_PART_DATA,
	  { "/usr/lib/clc", "/usr/share/clc" },
	  "spirv",
	  ".spv",
	  0 },
	{ KI_PART_HEADER,
	  { "/usr/lib/llvm-15/lib/clang/15.0.6/include" },
	  "opencl-c",
	  ".h",
	  0 },
};
static const struct ki_part CLOVER_PARTS[] = {
	{ KI_PART_LIBRARY, { "@/gallium-pipe" }, "pipe_", ".so", 0 },
	{ KI_PART_DATA,
	  { "/usr/lib/clc", "/usr/share/clc" },
	  "spirv",
	  ".spv",
	  0 },
	{ KI_PART_PER_DEVICE, { "/usr/lib/clc" }, "", ".bc", 0 },
	{ KI_PART_HEADER,
	  { "/usr/lib/llvm-15/lib/clang/15.0.6/include" },
	  "opencl-c",
	  ".h",
	  0 },
};

static const char *const RUSTICL_CODE[] = { "RUSTICL_FEATURES",
					    "RUSTICL_DEBUG",
					    "RUSTICL_CL_VERSION",
					    "CLC_DEBUG",
					    "MESA_SPIRV_DEBUG",
					    "NIR_DEBUG",
					    "NIR_SKIP",
					    "GALLIVM_DEBUG",
					    "GALLIVM_PERF",
					    "LP_DEBUG",
					    "LP_PERF",
					    "LP_NATIVE_VECTOR_WIDTH",
					    "LP_CL",
					    "GALLIUM_OVERRIDE_CPU_CAPS",
					    "AMD_DEBUG",
					    "R600_DEBUG",
					    "RADEON_DEBUG",
					    "INTEL_DEBUG",
					    "INTEL_SIMD_DEBUG",
					    "NV50_PROG_OPTIMIZE",
					    "NV50_PROG_DEBUG",
					    "FD_MESA_DEBUG",
					    "IR3_SHADER_DEBUG",
					    "PAN_MESA_DEBUG",
					    "BIFROST_MESA_DEBUG",
					    NULL };
static const char *const RUSTICL_PLACE[] = { "RUSTICL_ENABLE",
					     "RUSTICL_DEVICE_TYPE",
					     "MESA_SHADER_CACHE_DIR",
					     "MESA_SHADER_CACHE_DISABLE",
					     "MESA_SHADER_CACHE_MAX_SIZE",
					     "MESA_GLSL_CACHE_DIR",
					     "MESA_GLSL_CACHE_DISABLE",
					     "MESA_LOADER_DRIVER_OVERRIDE",
					     "LIBGL_ALWAYS_SOFTWARE",
					     "GALLIUM_DRIVER",
					     "LP_NUM_THREADS",
					     "XDG_CACHE_HOME",
					     "HOME",
					     NULL };
static const char *const CLOVER_CODE[] = { "CLOVER_EXTRA_BUILD_OPTIONS",
					   "CLOVER_EXTRA_COMPILE_OPTIONS",
					   "CLOVER_EXTRA_LINK_OPTIONS",
					   "CLOVER_DEVICE_TYPE",
					   "CLOVER_DEVICE_VERSION_OVERRIDE",
					   "CLOVER_DEVICE_CLC_VERSION_OVERRIDE",
					   "CLOVER_PLATFORM_VERSION_OVERRIDE",
					   "CLOVER_DEBUG",
					   "AMD_DEBUG",
					   "R600_DEBUG",
					   "RADEON_DEBUG",
					   "NV50_PROG_OPTIMIZE",
					   "NV50_PROG_DEBUG",
					   "GALLIVM_DEBUG",
					   "NIR_DEBUG",
					   NULL };
static const char *const CLOVER_OPTIONS[] = { "CLOVER_EXTRA_BUILD_OPTIONS",
					      "CLOVER_EXTRA_COMPILE_OPTIONS",
					      "CLOVER_EXTRA_LINK_OPTIONS",
					      NULL };
static const char *const CLOVER_PLACE[] = { "CLOVER_DEBUG_FILE",
					    "MESA_SHADER_CACHE_DIR",
					    "MESA_SHADER_CACHE_DISABLE",
					    "MESA_LOADER_DRIVER_OVERRIDE",
					    "XDG_CACHE_HOME",
					    "HOME",
					    NULL };

/* ---- Oclgrind -------------------------------------------------------- */

static const struct ki_part OCLGRIND_PARTS[] = {
	{ KI_PART_DATA,
	  { "/usr/lib/x86_64-linux-gnu/oclgrind/21.10", "@/../oclgrind/21.10" },
	  "opencl-c",
	  "",
	  0 },
};
static const char *const OCLGRIND_CODE[] = { "OCLGRIND_BUILD_OPTIONS",
					     "OCLGRIND_DISABLE_PCH",
					     "OCLGRIND_UNINITIALIZED", NULL };
/* Also what prints at builds, or calls that the program did not make. */
static const char *const OCLGRIND_REFUSED[] = {
	"OCLGRIND_PCH_DIR",   "OCLGRIND_PLUGINS",     "OCLGRIND_DUMP_SPIR",
	"OCLGRIND_CHECK_API", "OCLGRIND_INTERACTIVE", NULL
};
static const char *const OCLGRIND_OPTIONS[] = { "OCLGRIND_BUILD_OPTIONS",
						NULL };
static const char *const OCLGRIND_PLACE[] = { "OCLGRIND_LOG",
					      "OCLGRIND_QUICK",
					      "OCLGRIND_NUM_THREADS",
					      "OCLGRIND_MAX_ERRORS",
					      "OCLGRIND_DATA_RACES",
					      "OCLGRIND_INST_COUNTS",
					      "OCLGRIND_UNIFORM_WRITES",
					      NULL };
/* Its reports quote the line of the source that is at fault, which is not in a
   binary, and it is there for its reports: with this it makes none. */
#define OCLGRIND_NEEDED "OCLGRIND_MAX_ERRORS=0"

/* ---- Intel's NEO ----------------------------------------------------- */

static const char *const NEO_PLACE[] = {
	"NEO_CACHE_PERSISTENT", "NEO_CACHE_DIR",
	"NEO_CACHE_MAX_SIZE",	"cl_cache_dir",
	"XDG_CACHE_HOME",	"HOME",
	"ZE_AFFINITY_MASK",	NULL
};

/* ---- The stand-in of the tests --------------------------------------- */

/* None that it loads: what tests put there stands for a compiler. */
static const struct ki_part TEST_PARTS[] = {
	{ KI_PART_LIBRARY, { "@/late" }, "libkiln-test-late", ".so", 0 },
	{ KI_PART_DATA, { "@/late" }, "builtins", ".bc", 0 },
	{ KI_PART_LIBRARY, { "$PATH" }, "kiln-test-linker", NULL, 0 },
};
static const char *const TEST_CODE[] = { "KILN_TEST_ICD_CODE",
					 "KILN_TEST_ICD_BUILD_OPTIONS", NULL };
static const char *const TEST_OPTIONS[] = { "KILN_TEST_ICD_BUILD_OPTIONS",
					    NULL };
static const char *const TEST_PLACE[] = { "KILN_TEST_ICD_ASYNC",
					  "KILN_TEST_ICD_HIDE_KERNEL",
					  "KILN_TEST_ICD_CACHE_DIR",
					  "KILN_TEST_ICD_CALLS",
					  "KILN_TEST_ICD_CRASH_BUILDS",
					  "KILN_TEST_ICD_DAMAGED",
					  "KILN_TEST_ICD_DEVICES",
					  "KILN_TEST_ICD_DRIVER_VERSION",
					  "KILN_TEST_ICD_EXTENSION_FUNCTIONS",
					  "KILN_TEST_ICD_FAIL_BINARY_BUILDS",
					  "KILN_TEST_ICD_FAIL_BUILDS",
					  "KILN_TEST_ICD_IL",
					  "KILN_TEST_ICD_KEEP_FIRST_FETCH",
					  "KILN_TEST_ICD_NAMES",
					  "KILN_TEST_ICD_PLATFORMS",
					  "KILN_TEST_ICD_POOR_BINARIES",
					  "KILN_TEST_ICD_REFUSE_BINARIES",
					  "KILN_TEST_ICD_SORT_DEVICES",
					  "KILN_TEST_ICD_SPECIALISE",
					  "KILN_TEST_ICD_TYPE",
					  "KILN_TEST_ICD_UNITS",
					  "KILN_TEST_ICD_WAIT_WHILE",
					  "KILN_TEST_ICD_WARN",
					  NULL };

/* ---- The table ------------------------------------------------------- */

static const struct ki_cl_driver_row ROWS[] = {
	{ { "pocl", 0, 1, 1, POCL_CODE, POCL_PLACE },
	  "libpocl.so",
	  "Portable Computing Language",
	  POCL_PARTS,
	  LENGTH(POCL_PARTS),
	  POCL_OPTIONS,
	  POCL_REFUSED,
	  NULL,
	  NULL },
	{ { "rusticl", 1, 0, 1, RUSTICL_CODE, RUSTICL_PLACE },
	  "libRusticlOpenCL.so",
	  "rusticl",
	  RUSTICL_PARTS,
	  LENGTH(RUSTICL_PARTS),
	  NONE,
	  NONE,
	  "$TMPDIR/openclon12",
	  NULL },
	{ { "clover", 1, 0, 0, CLOVER_CODE, CLOVER_PLACE },
	  "libMesaOpenCL.so",
	  "Clover",
	  CLOVER_PARTS,
	  LENGTH(CLOVER_PARTS),
	  CLOVER_OPTIONS,
	  NONE,
	  "/tmp/clover",
	  NULL },
	{ { "oclgrind", 0, 1, 1, OCLGRIND_CODE, OCLGRIND_PLACE },
	  "liboclgrind-rt-icd.so",
	  "Oclgrind",
	  OCLGRIND_PARTS,
	  LENGTH(OCLGRIND_PARTS),
	  OCLGRIND_OPTIONS,
	  OCLGRIND_REFUSED,
	  "/remapped",
	  OCLGRIND_NEEDED },
	{ { "neo", 1, 0, 0, ki_neo_code_variables, NEO_PLACE },
	  "libigdrcl.so",
	  "Intel(R) OpenCL HD Graphics",
	  ki_neo_parts,
	  KI_NEO_PARTS,
	  NONE,
	  ki_neo_refused_variables,
	  NULL,
	  NULL },
	{ { "kiln-test", 1, 1, 0, TEST_CODE, TEST_PLACE },
	  "libkiln-test-icd.so",
	  NULL,
	  TEST_PARTS,
	  LENGTH(TEST_PARTS),
	  TEST_OPTIONS,
	  NONE,
	  "$TMPDIR/kiln-test-headers",
	  NULL },
	/* Told apart for tests: this one is to be run with POOR_BINARIES=0. */
	{ { "kiln-test", 1, 1, 1, TEST_CODE, TEST_PLACE },
	  "libkiln-test-icd-twin.so",
	  NULL,
	  TEST_PARTS,
	  LENGTH(TEST_PARTS),
	  TEST_OPTIONS,
	  NONE,
	  "$TMPDIR/kiln-test-headers",
	  NULL },
};

static const struct ki_cl_driver_row UNKNOWN = {
	{ "unknown", 0, 0, 0, NONE, NONE },
	"",
	NULL,
	NULL,
	0,
	NONE,
	NONE,
	NULL,
	NULL
};

const struct ki_cl_driver_row *ki_cl_driver_of_library(const char *name)
{
	size_t i, size;

	for (i = 0; i < LENGTH(ROWS); i++) {
		size = strlen(ROWS[i].library);
		if (!strncmp(name, ROWS[i].library, size) &&
		    (!name[size] || name[size] == '.'))
			return &ROWS[i];
	}
	return &UNKNOWN;
}

const struct ki_cl_driver_row *ki_cl_driver_of_platform(const char *name)
{
	size_t i;

	for (i = 0; i < LENGTH(ROWS); i++)
		if (ROWS[i].platform && !strcmp(name, ROWS[i].platform))
			return &ROWS[i];
	return NULL;
}

int ki_cl_driver_is_known(const struct ki_cl_driver_row *row)
{
	return row != &UNKNOWN;
}

/* Whether `word` stands in `text` between '-' or the ends. */
static int has_word(const char *text, const char *word)
{
	size_t size = strlen(word);
	const char *at = text;

	for (; (at = strstr(at, word)); at++)
		if ((at == text || at[-1] == '-') &&
		    (!at[size] || at[size] == '-'))
			return 1;
	return 0;
}

/*
 * PoCL names a device after the processor that it compiles for, as in
 * "pthread-skylake-avx512-AMD EPYC"; a distribution's builtin libraries are
 * named after what that processor has: kernel-x86_64-pc-linux-gnu-avx512.bc.
 */
int ki_cl_driver_uses(const struct ki_part *part, const char *file,
		      const char *device_name)
{
	static const struct {
		const char *processor;
		const char *library;
	} NAMES[] = {
		{ "athlon64", "sse2" },	     { "core2", "ssse3" },
		{ "penryn", "sse41" },	     { "sandybridge", "avx" },
		{ "ivybridge", "avx_f16c" }, { "bdver1", "avx_fma4" },
		{ "haswell", "avx2" },	     { "skylake-avx512", "avx512" },
	};
	char library[64];
	const char *dash = strrchr(file, '-');
	size_t i, size;

	if (strcmp(part->prefix, "kernel-") || !part->suffix || !dash)
		return -1;
	size = strlen(dash + 1) - strlen(part->suffix);
	snprintf(library, sizeof(library), "%.*s", (int)size, dash + 1);
	for (i = 0; i < LENGTH(NAMES); i++)
		if (has_word(device_name, NAMES[i].processor))
			return !strcmp(library, NAMES[i].library);
	return -1;
}

size_t ki_cl_driver_folders(const struct ki_cl_driver_row *row,
			    char out[KI_CL_DRIVER_FOLDERS_MAX][KI_PATH_MAX])
{
	const char *folder = ki_environment("POCL_CACHE_DIR");
	int n;

	if (strcmp(row->driver.name, "pocl"))
		return 0;
	if (folder)
		n = snprintf(out[0], KI_PATH_MAX, "%s", folder);
	else if ((folder = ki_environment("XDG_CACHE_HOME")))
		n = snprintf(out[0], KI_PATH_MAX, "%s/pocl/kcache", folder);
	else if ((folder = ki_environment("HOME")))
		n = snprintf(out[0], KI_PATH_MAX, "%s/.cache/pocl/kcache",
			     folder);
	else
		n = snprintf(out[0], KI_PATH_MAX, "/tmp/pocl/kcache");
	if (n < 0 || n >= KI_PATH_MAX)
		return 0;
	if (ki_path_join(out[1], out[0], "_UNCACHED"))
		return 1;
	return 2;
}

/* As LLVM finds it. */
static const char *temporary_folder(void)
{
	static const char *const variables[] = { "TMPDIR", "TMP", "TEMP",
						 "TEMPDIR" };
	const char *folder = NULL;
	size_t i;

	for (i = 0; i < LENGTH(variables) && !folder; i++)
		folder = ki_environment(variables[i]);
	if (!folder)
		return "/tmp";
	return *folder ? folder : ".";
}

int ki_cl_driver_header_folder(const struct ki_cl_driver_row *row,
			       char out[KI_PATH_MAX])
{
	static const char temporary[] = "$TMPDIR";
	size_t size = sizeof(temporary) - 1;
	int n;

	if (!row->header_folder)
		return 0;
	if (strncmp(row->header_folder, temporary, size) != 0)
		n = snprintf(out, KI_PATH_MAX, "%s", row->header_folder);
	else
		n = snprintf(out, KI_PATH_MAX, "%s%s", temporary_folder(),
			     row->header_folder + size);
	return n > 0 && n < KI_PATH_MAX;
}
