/* SPDX-License-Identifier: MIT */

/*
 * An author's program outside this tree, in C and in C++: builds once, is served
 * twice, and says so.
 */

#include <kiln/inspect.h>
#include <kiln/kiln.h>
#include <kiln/program.h>
#include <kiln/tier.h>

#include <stdio.h>
#include <string.h>

static int n_builds;

static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *out_result)
{
	const char *code = (const char *)arg;

	(void)key;
	n_builds++;
	if (kiln_blob_copy(code, strlen(code), &out_result->blob))
		out_result->kind = KILN_BUILD_RESOURCES;
}

static int ask(struct kiln *kiln, char *code)
{
	struct kiln_build_result result;
	struct kiln_key *key = kiln_key_new();
	int is_right = 0;

	kiln_build_result_init(&result);
	kiln_key_add_string(key, "source", "kernel void noop(void) {}");
	if (!kiln_key_finish(key) &&
	    !kiln_get_or_build(kiln, key, build, code, &result))
		is_right = !memcmp(kiln_blob_data(result.blob), code,
				   kiln_blob_size(result.blob));
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return is_right;
}

int main(void)
{
	struct kiln_options options;
	struct kiln *kiln;
	char code[] = "code";
	int n_right;

	kiln_options_init(&options);
	if (kiln_open(&options, &kiln))
		return 1;
	n_right = ask(kiln, code) + ask(kiln, code);
	kiln_close(kiln);
	printf("asked 2, right %d, built %d, library %s\n", n_right, n_builds,
	       kiln_version() == KILN_VERSION_HEX ? "as header" : "other");
	return 0;
}
