/* SPDX-License-Identifier: MIT */

/*
 * Sources and build options, which any program may hand us.  The input is
 * options, a NUL, and a source; without a NUL it is a source alone.  What must
 * hold besides surviving: names are found only in the text, and a text behind
 * a line of its own has at least what it had before.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "front/opencl/expand.h"
#include "front/opencl/options.h"
#include "front/opencl/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expand_all(const struct ki_cl_options *options,
		       const struct ki_cl_scan *scan)
{
	size_t i;

	for (i = 0; i < scan->includes.n; i++) {
		struct ki_cl_words words = { 0 };
		char *name = NULL;

		if (scan->includes.words[i][0] == '=' &&
		    !ki_cl_expand(options, scan->includes.words[i] + 1, &words,
				  &name) &&
		    (strlen(name) < 2 || !strchr("\"<", *name)))
			abort();
		free(name);
		ki_cl_words_fini(&words);
	}
}

/* A declaration in front, on a line of its own, hides nothing. */
static void check_behind_a_line(const struct ki_cl_scan *scan, const char *text,
				size_t size)
{
	static const char LINE[] = "int first;\n";
	char *longer = malloc(sizeof(LINE) - 1 + size);
	struct ki_cl_scan again;
	size_t i;

	if (!longer)
		return;
	memcpy(longer, LINE, sizeof(LINE) - 1);
	memcpy(longer + sizeof(LINE) - 1, text, size);
	ki_cl_scan_init(&again);
	ki_cl_scan_text(&again, longer, sizeof(LINE) - 1 + size);
	for (i = 0; i < scan->includes.n; i++)
		if (!ki_cl_words_have(&again.includes, scan->includes.words[i],
				      strlen(scan->includes.words[i])))
			abort();
	if (scan->flags & ~again.flags)
		abort();
	ki_cl_scan_fini(&again);
	free(longer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
	size_t options_size = nul ? (size_t)(nul - data) + 1 : 0;
	const char *source = (const char *)data + options_size;
	struct ki_cl_options options;
	struct ki_cl_scan scan;

	ki_cl_options_init(&options);
	if (nul) {
		ki_cl_options_read(&options, (const char *)data);
		(void)ki_cl_scan_words((const char *)data);
	}
	ki_cl_scan_init(&scan);
	if (size > options_size) {
		ki_cl_scan_text(&scan, source, size - options_size);
		/* A mark at the very start of a file is no text. */
		if (*source != '\xef')
			check_behind_a_line(&scan, source, size - options_size);
	}
	expand_all(&options, &scan);
	ki_cl_scan_fini(&scan);
	ki_cl_options_fini(&options);
	return 0;
}
