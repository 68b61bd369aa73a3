/* SPDX-License-Identifier: MIT */

/*
 * KILN_REMOTE and the file of credentials: the input is each of them.  What must
 * hold besides surviving: a message whenever it is refused; of what passes each
 * URL passes alone, and has nothing in it that could be a password.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz/scratch.h"
#include "remote-helper/credentials.h"
#include "remote/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_url(const struct credentials *credentials, const char *text)
{
	const struct credential *found;
	struct url url;
	char why[256];

	if (ki_url_parse(text, &url, why, sizeof(why)))
		abort();
	if (strcmp(url.shown, text) != 0 || strchr(text, '@'))
		abort();
	if (!ki_url_is_below(&url, &url))
		abort();
	found = credentials_find(credentials, &url);
	if (found && found->secret && !*found->secret)
		abort();
	ki_url_fini(&url);
}

static void check_levels(const struct credentials *credentials,
			 const char *text)
{
	struct levels levels;
	char why[256] = "";

	if (ki_levels_parse(text, &levels, why, sizeof(why))) {
		if (!*why)
			abort();
		return;
	}
	for (size_t i = 0; i < levels.n_levels; i++)
		for (size_t j = 0; j < levels.levels[i].n_urls; j++)
			check_url(credentials, levels.levels[i].urls[j]);
	ki_levels_fini(&levels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct credentials *credentials = NULL;
	char path[4200], why[256] = "", *text = strndup((char *)data, size);

	(void)snprintf(path, sizeof(path), "%s/credentials",
		       scratch_directory());
	scratch_write(path, data, size);
	(void)chmod(path, 0600);
	if (credentials_load(&ki_sys_posix, path, NULL, &credentials, why,
			     sizeof(why)) &&
	    !*why)
		abort();
	if (text)
		check_levels(credentials, text);
	credentials_free(credentials);
	free(text);
	return 0;
}
