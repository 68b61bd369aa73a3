/* SPDX-License-Identifier: MIT */

/*
 * Files in a cache directory of Intel's compute runtime, as `kiln ls` looks at
 * them.  What must hold besides surviving: texts end, hold nothing that a
 * terminal would obey, and name no more kernels than are counted.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/neo.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned n_words(const char *text)
{
	unsigned n = *text != '\0';

	for (; *text; text++) {
		if (*text < ' ' || *text > '~')
			abort();
		n += *text == ' ';
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kiln_neo_description found;

	memset(&found, 0xff, sizeof(found));
	kiln_neo_describe_bytes(data, size, &found);
	if (!memchr(found.kernels, '\0', sizeof(found.kernels)) ||
	    !memchr(found.device, '\0', sizeof(found.device)))
		abort();
	(void)n_words(found.device);
	if (n_words(found.kernels) > found.n_kernels)
		abort();
	if ((found.form == KILN_NEO_EMPTY) != !size ||
	    !*kiln_neo_form_name(found.form) ||
	    !kiln_neo_elf_type_name(found.elf_type))
		abort();
	return 0;
}
