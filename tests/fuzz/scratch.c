/* SPDX-License-Identifier: MIT */

#include "fuzz/scratch.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[4096];

static int remove_below(const char *path, const struct stat *st, int type,
			struct FTW *where)
{
	return where->level ? remove(path) : 0;
}

static void remove_all(void)
{
	scratch_empty(directory);
	rmdir(directory);
}

const char *scratch_directory(void)
{
	const char *base = getenv("TMPDIR");

	if (*directory)
		return directory;
	snprintf(directory, sizeof(directory), "%s/kiln-fuzz.XXXXXX",
		 base ? base : "/tmp");
	if (!mkdtemp(directory))
		abort();
	atexit(remove_all);
	return directory;
}

void scratch_write(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
		abort();
	close(fd);
}

void scratch_empty(const char *path)
{
	nftw(path, remove_below, 16, FTW_DEPTH | FTW_PHYS);
}
