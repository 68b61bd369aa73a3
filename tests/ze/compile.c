/* SPDX-License-Identifier: MIT */

/*
 * NEO's offline compiler, as a library, with everything in memory.  It is one
 * thread's at a time, and never asked to cache: its cache hands out the binary
 * of another kernel.
 */

#include "standin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int invoke_fn(unsigned n, const char **arguments, uint32_t n_sources,
		      const uint8_t **sources, const uint64_t *sizes,
		      const char **names, uint32_t n_headers,
		      const uint8_t **headers, const uint64_t *header_sizes,
		      const char **header_names, uint32_t *n_outputs,
		      uint8_t ***outputs, uint64_t **output_sizes,
		      char ***output_names);
typedef int release_fn(uint32_t *n_outputs, uint8_t ***outputs,
		       uint64_t **output_sizes, char ***output_names);

static invoke_fn *invoke;
static release_fn *release;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void find(void)
{
	void *library = dlopen("libocloc.so", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return;
	invoke = (invoke_fn *)dlsym(library, "oclocInvoke");
	release = (release_fn *)dlsym(library, "oclocFreeOutput");
}

static int ends_with(const char *name, const char *end)
{
	size_t size = strlen(name), n = strlen(end);

	return size >= n && !strcmp(name + size - n, end);
}

int ocloc(const char *const *arguments, unsigned n, const void *source,
	  size_t size, const char *name, const char *suffix, struct bytes *out,
	  struct bytes *log)
{
	const uint8_t *bytes = source;
	const uint64_t source_size = size;
	uint32_t n_outputs = 0, i;
	uint64_t *sizes = NULL;
	uint8_t **outputs = NULL;
	char **names = NULL;
	int failed;

	pthread_once(&once, find);
	if (!invoke || !release)
		return -1;
	pthread_mutex_lock(&mutex);
	failed = invoke(n, (const char **)(uintptr_t)arguments, 1, &bytes,
			&source_size, &name, 0, NULL, NULL, NULL, &n_outputs,
			&outputs, &sizes, &names);
	for (i = 0; i < n_outputs; i++) {
		if (ends_with(names[i], "stdout.log"))
			bytes_add(log, outputs[i],
				  strnlen((char *)outputs[i], sizes[i]));
		else if (ends_with(names[i], suffix))
			bytes_add(out, outputs[i], sizes[i]);
	}
	release(&n_outputs, &outputs, &sizes, &names);
	pthread_mutex_unlock(&mutex);
	return failed || !out->size ? -1 : 0;
}

/* Instead of the compiler: what it is given is what comes out, if it begins as
   SPIR-V does. */
static int copy(const void *il, size_t size, const char *flags,
		const char *target, struct bytes *binary, struct bytes *log)
{
	static const uint8_t magic[] = { 0x03, 0x02, 0x23, 0x07 };
	int is_good = size > 20 && !memcmp(il, magic, sizeof(magic));
	char line[256];

	snprintf(line, sizeof(line), "%s for %s, options '%s'\n",
		 is_good ? "copied" : "garbage", target, flags ? flags : "");
	bytes_add(log, line, strlen(line));
	if (!is_good)
		return -1;
	bytes_add(binary, il, size);
	bytes_add(binary, line, strlen(line));
	return 0;
}

int compile(const void *il, size_t size, const char *flags, const char *target,
	    struct bytes *binary, struct bytes *log)
{
	const char *const arguments[] = {
		"ocloc",      "compile",      "-file",
		"module.spv", "-spirv_input", "-device",
		target,	      "-options",     flags ? flags : "",
	};

	if (getenv("KILN_TEST_ZE_QUICK"))
		return copy(il, size, flags, target, binary, log);
	return ocloc(arguments, sizeof(arguments) / sizeof(arguments[0]), il,
		     size, "module.spv", ".bin", binary, log);
}
