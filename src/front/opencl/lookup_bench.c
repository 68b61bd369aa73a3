/* SPDX-License-Identifier: MIT */

/*
 * What the first key of a program costs in a process, when all its includes are
 * read and scanned, and what it costs again.  The platform's identity is known
 * before, by the key of a program without includes: it is not what is measured.
 *
 *	opencl_lookup FILE OPTIONS [N]
 *
 * prints nanoseconds: the first key's, and the median of N more (default 101;
 * with 0, of none: for counting instructions).
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/opencl/key.h"
#include "front/opencl/recipe.h"
#include "sys/sys.h"

#define TIMES_MAX 1001

static cl_platform_id platform;
static cl_device_id device;
static struct ki_cl_identities *identities;

static void fail(const char *what)
{
	fprintf(stderr, "opencl_lookup: %s\n", what);
	exit(EXIT_FAILURE);
}

/* The time of one key, in nanoseconds. */
static uint64_t time_of_key(const char *text, size_t size, const char *options)
{
	struct ki_cl_source *source = ki_cl_source_new(1, &text, &size);
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_build(source, NULL, 0, options);
	struct ki_cl_build build = {
		.platform = platform,
		.devices = &device,
		.n_devices = 1,
		.recipe = recipe,
	};
	struct kiln_key *key;
	enum kiln_counter reason;
	uint64_t start, end;

	if (!recipe)
		fail("no memory");
	start = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	if (ki_cl_key(identities, &build, &key, &reason))
		fail("no key");
	end = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	kiln_key_free(key);
	ki_cl_recipe_unref(recipe);
	ki_cl_source_unref(source);
	return end - start;
}

static char *read_source(const char *path, size_t *out_size)
{
	size_t capacity = (size_t)1 << 20;
	FILE *file = fopen(path, "rb");
	char *text = malloc(capacity);

	if (!file || !text)
		fail(path);
	*out_size = fread(text, 1, capacity, file);
	if (*out_size == capacity)
		fail("too large");
	fclose(file);
	return text;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const cl_icd_dispatch calls = {
		.clGetPlatformInfo = clGetPlatformInfo,
		.clGetDeviceInfo = clGetDeviceInfo,
		.clGetExtensionFunctionAddressForPlatform =
			clGetExtensionFunctionAddressForPlatform,
	};
	size_t i, n = argc > 3 ? strtoul(argv[3], NULL, 10) : 101, size;
	uint64_t first, again[TIMES_MAX] = { 0 };
	char *source;

	if (argc < 3 || n > TIMES_MAX)
		fail("FILE OPTIONS [N]");
	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
		fail("no device");
	source = read_source(argv[1], &size);
	identities = ki_cl_identities_new(&calls);
	if (!identities)
		fail("no memory");
	time_of_key("", 0, "");
	first = time_of_key(source, size, argv[2]);
	for (i = 0; i < n; i++)
		again[i] = time_of_key(source, size, argv[2]);
	qsort(again, n, sizeof(again[0]), compare);
	printf("%llu %llu\n", (unsigned long long)first,
	       (unsigned long long)again[n / 2]);
	ki_cl_identities_free(identities);
	free(source);
	return EXIT_SUCCESS;
}
