/* SPDX-License-Identifier: MIT */

/*
 * IGC has some hundred variables, other ones in each release.  Those that are
 * known to change code are in the key by name; any other beginning with IGC_
 * ends caching, as in Intel's own releases from 25.31 to 26.31.  NEO has many
 * more, which it reads under NEOReadDebugKeys alone, and a few that it always
 * reads: those of them that change code are in the key, too.
 */

#include "front/neo.h"

#include <string.h>
#include <unistd.h>

const struct ki_part ki_neo_parts[KI_NEO_PARTS] = {
	{ KI_PART_LIBRARY,
	  { "@/..", "@", "/usr/lib/x86_64-linux-gnu" },
	  "libigc.so.",
	  "",
	  1 },
	{ KI_PART_LIBRARY,
	  { "@/..", "@", "/usr/lib/x86_64-linux-gnu" },
	  "libigdfcl.so.",
	  "",
	  1 },
	{ KI_PART_LIBRARY,
	  { "@/..", "@", "/usr/lib/x86_64-linux-gnu" },
	  "libopencl-clang.so.",
	  "",
	  0 },
	{ KI_PART_LIBRARY,
	  { "@/..", "@", "/usr/lib/x86_64-linux-gnu" },
	  "libiga64.so.",
	  "",
	  0 },
};
const char *const ki_neo_code_variables[] = { "IGC_VISAOptions",
					      "IGC_VCOptions",
					      "IGC_VCApiOptions",
					      "IGC_EnableZEBinary",
					      "IGC_ForceOCLSIMDWidth",
					      "IGC_OCLSIMD16SelectionMask",
					      "IGC_DisableOCLSIMD16",
					      "IGC_TotalGRFNum",
					      "IGC_ForceFastestSIMD",
					      "FORCE_OPENCL_VERSION",
					      "ForceOCLVersion",
					      "OverrideGpuAddressSpace",
					      "OverrideDefaultFP64Settings",
					      "NEO_FP64_EMULATION",
					      "ONEAPI_PVC_SEND_WAR_WA",
					      NULL };
const char *const ki_neo_refused_variables[] = { "NEOReadDebugKeys",
						 "IGC_ShaderDumpEnable",
						 "IGC_ShaderOverride", NULL };

/* Whether NAME, of "NAME=VALUE", is in the key. */
static int is_in_key(const char *variable)
{
	size_t size = strcspn(variable, "="), i;

	for (i = 0; ki_neo_code_variables[i]; i++)
		if (!strncmp(variable, ki_neo_code_variables[i], size) &&
		    !ki_neo_code_variables[i][size])
			return 1;
	return 0;
}

int ki_neo_is_unknown_set(void)
{
	char **variable;

	for (variable = environ; variable && *variable; variable++)
		if (!strncmp(*variable, "IGC_", 4) && !is_in_key(*variable))
			return 1;
	return 0;
}
