/* SPDX-License-Identifier: MIT */

/*
 * Runs a fuzz target over the files of a corpus, as a test: without a fuzzer,
 * with any compiler.
 *
 *	replay DIRECTORY
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys/sys.h"

#define INPUT_BYTES_MAX ((size_t)16 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input in memory of its own exact size, so that a read past it shows. */
static int replay(const char *path)
{
	void *data, *exact;
	size_t size;
	int err;

	err = ki_read_file(&ki_sys_posix, path, INPUT_BYTES_MAX, &data, &size);
	if (err)
		return err;
	exact = malloc(size ? size : 1);
	if (exact) {
		memcpy(exact, data, size);
		(void)LLVMFuzzerTestOneInput(exact, size);
	}
	free(exact);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;
	unsigned n = 0;

	if (argc != 2 || sys->opendir(sys, argv[1], &dir)) {
		fprintf(stderr, "usage: replay DIRECTORY\n");
		return 2;
	}
	while (sys->readdir(sys, dir, &name) > 0)
		if (!ki_path_join(path, argv[1], name) && !replay(path))
			n++;
	sys->closedir(sys, dir);
	printf("1..1\n%s 1 - %u inputs\n", n ? "ok" : "not ok", n);
	return n ? 0 : 1;
}
