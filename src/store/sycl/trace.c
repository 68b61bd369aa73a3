/* SPDX-License-Identifier: MIT */

/*
 * SYCL_CACHE_TRACE, a mask: 1 what is done in the directory, here; 2 what is done
 * in memory, in program/trace.c; 4 what DPC++ does for kernel_compiler, whose
 * entries kiln never looks up.  What is no number up to 7 means 1, as with DPC++.  Lines go to the standard error, in
 * DPC++'s words, so that what reads its traces reads ours.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DISK	 1u
#define MASK_MAX 7

unsigned ki_sycl_trace_mask(const char *text)
{
	if (!text || !*text)
		return 0;
	return !text[1] && *text >= '0' && *text <= '0' + MASK_MAX
		       ? (unsigned)(*text - '0')
		       : DISK;
}

void ki_sycl_trace_begin(struct ki_sycl *sycl)
{
	sycl->traces = ki_process_is_secure()
			       ? 0
			       : ki_sycl_trace_mask(getenv("SYCL_CACHE_TRACE"));
	ki_sycl_trace(sycl, "enabled");
}

void ki_sycl_trace(const struct ki_sycl *sycl, const char *what)
{
	char line[KI_PATH_MAX + 128];

	if (!(sycl->traces & DISK))
		return;
	snprintf(line, sizeof(line), "[Persistent Cache]: %s\n", what);
	(void)fputs(line, stderr);
}

void ki_sycl_trace_file(const struct ki_sycl *sycl, const char *what,
			const char *stem, const char *suffix)
{
	char text[KI_PATH_MAX + 100];

	if (!(sycl->traces & DISK))
		return;
	snprintf(text, sizeof(text), "%s%s/%s%s", what, sycl->directory, stem,
		 suffix);
	ki_sycl_trace(sycl, text);
}
