/* SPDX-License-Identifier: MIT */

#include "place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* From the folder of the executable; the build tree first. */
static const char *const layers[] = { "../" KI_LAYER_BUILT, KI_LAYER_INSTALLED,
				      NULL };
static const char *const levelzero[] = { "../" KI_LEVELZERO_BUILT,
					 KI_LEVELZERO_INSTALLED, NULL };
static const char *const workers[] = { "../worker/kiln-worker",
				       KI_WORKER_INSTALLED, NULL };
static const char *const remotes[] = { "../remote-helper/kiln-remote",
				       KI_REMOTE_FROM_PROGRAM, NULL };

/* Without "..", so that a name once in OPENCL_LAYERS is known again. */
static void tidy(char *path)
{
	char *up, *before;

	while ((up = strstr(path, "/../")) && up != path) {
		*up = '\0';
		before = strrchr(path, '/');
		*up = '/';
		if (!before)
			return;
		memmove(before, up + 3, strlen(up + 3) + 1);
	}
}

static int find(const char *const *candidates, char out[KI_PATH_MAX])
{
	const struct ki_sys *sys = &ki_sys_posix;
	char directory[KI_PATH_MAX], *slash;
	struct ki_file_info info;
	int err;

	err = ki_executable(directory);
	if (err)
		return err;
	slash = strrchr(directory, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	for (; *candidates; candidates++) {
		err = ki_path_join(out, directory, *candidates);
		if (err)
			return err;
		tidy(out);
		if (!sys->stat(sys, out, &info))
			return 0;
	}
	return -ENOENT;
}

int ki_place_layer(char out[KI_PATH_MAX])
{
	return find(layers, out);
}

int ki_place_levelzero(char out[KI_PATH_MAX])
{
	return find(levelzero, out);
}

int ki_place_worker(char out[KI_PATH_MAX])
{
	return find(workers, out);
}

int ki_place_remote(char out[KI_PATH_MAX])
{
	return find(remotes, out);
}
