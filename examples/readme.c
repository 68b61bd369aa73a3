/* SPDX-License-Identifier: MIT */

/* README.md shows what stands between the marks; a test compares the two and
   runs this twice. */

/* README begin */
#include <kiln/kiln.h>
#include <stdio.h>

static void compile(const struct kiln_key *key, void *source,
		    struct kiln_build_result *result)
{
	printf("compiling: %s\n", (char *)source); /* your compiler, once */
	kiln_blob_copy("\x90\xc3", 2, &result->blob);
}

int main(int argc, char **argv)
{
	char source[] = "kernel void noop(void) {}";
	struct kiln_options options;
	struct kiln_build_result result;
	struct kiln_key *key = kiln_key_new();
	struct kiln *kiln;

	kiln_options_init(&options);
	kiln_build_result_init(&result);
	options.store_url = argv[1]; /* "log:/home/me/.cache/app" */
	kiln_key_add_string(key, "compiler", "cc 1.2");
	kiln_key_add_digest(key, "source", source, sizeof(source));
	if (kiln_key_finish(key) || kiln_open(&options, &kiln) ||
	    kiln_get_or_build(kiln, key, compile, source, &result))
		return 1;
	printf("%zu bytes of code\n", kiln_blob_size(result.blob));
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	kiln_close(kiln);
	return 0;
}
/* README end */
