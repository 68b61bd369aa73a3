/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_SCAN_H
#define KI_FRONT_OPENCL_SCAN_H

/*
 * What a source text may include, and what else in it decides a build.
 *
 * The text goes through translation phases 1 to 3 (trigraphs, line splices,
 * comments) and every directive counts, whatever conditionals stand around
 * it.  Where compilers disagree (whether trigraphs are on, whether blanks may
 * stand between a backslash and the end of its line) the text is scanned in
 * each way and all findings are kept.  Pure: no file is touched.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "front/opencl/options.h"

/* Bits of ki_cl_scan.flags. */
#define KI_CL_SCAN_TIME 1u /* __DATE__, __TIME__, __TIMESTAMP__ */
#define KI_CL_SCAN_DIRECTIVE                                                   \
	2u			  /* #import, #include_next, __has_include,
				      #embed and the like */
#define KI_CL_SCAN_UNCLEAR     4u /* cannot be told without the compiler */
#define KI_CL_SCAN_MACRO_STACK 8u /* push_macro: definitions come and go */
/* An assembler reads files too, .incbin and .include.  In one closure these two
   are as bad as UNCLEAR. */
#define KI_CL_SCAN_ASM	     16u
#define KI_CL_SCAN_ASM_READS 32u /* might be such a directive, if assembled */

/* Bits, so that most names that are not defined are told at once. */
#define KI_CL_SCAN_MARKS 4096

struct ki_cl_scan {
	/* A mark and a name: "\"x.h", "<x.h", or '=' and what is to be
	   expanded. */
	struct ki_cl_words includes;
	/* Names that the text defines or undefines, a NUL after each. */
	struct ki_bytes defines;
	uint64_t marks[KI_CL_SCAN_MARKS / 64]; /* of these names */
	unsigned flags;
	int failed; /* 0, -ENOMEM, -E2BIG */
};

void ki_cl_scan_init(struct ki_cl_scan *scan);
void ki_cl_scan_fini(struct ki_cl_scan *scan);
void ki_cl_scan_text(struct ki_cl_scan *scan, const char *text, size_t size);

/* Whether the text (re)defines this name. */
int ki_cl_scan_defines(const struct ki_cl_scan *scan, const char *name,
		       size_t size);

/* The flags that identifiers in build options raise. */
unsigned ki_cl_scan_words(const char *text);

#endif /* KI_FRONT_OPENCL_SCAN_H */
