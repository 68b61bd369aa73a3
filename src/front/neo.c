/* SPDX-License-Identifier: MIT */

#include "front/neo.h"

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
					      NULL };
const char *const ki_neo_refused_variables[] = { "NEOReadDebugKeys",
						 "IGC_ShaderDumpEnable",
						 "IGC_ShaderOverride", NULL };
