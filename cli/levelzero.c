/* SPDX-License-Identifier: MIT */

/*
 * A list of the user's is kept as it is but for the one driver.  Without one,
 * ours has all drivers that loaders look for by themselves and that the system
 * can find: their names in /etc/ld.so.cache, or files in LD_LIBRARY_PATH.  The
 * cache is only searched for the name: a loader passes over a driver that is
 * named and not there.
 */

#include "levelzero.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "out.h"
#include "place.h"
#include "sys/sys.h"

#define CACHE		"/etc/ld.so.cache"
#define CACHE_BYTES_MAX ((uint64_t)64 << 20)

/* In the order of the loaders; the proxy knows the first two. */
static const char *const drivers[] = { "libze_intel_gpu.so.1",
				       "libze_intel_gpu_legacy1.so.1",
				       "libze_intel_vpu.so.1",
				       "libze_intel_npu.so.1", NULL };
#define N_KNOWN 2

/* ---- What the system can find ------------------------------------------------- */

static int is_in_folders(const char *folders, const char *name)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char folder[KI_PATH_MAX], path[KI_PATH_MAX];
	struct ki_file_info info;
	size_t size;

	while (folders && *folders) {
		size = strcspn(folders, ":");
		if (size && size < sizeof(folder)) {
			memcpy(folder, folders, size);
			folder[size] = '\0';
			if (!ki_path_join(path, folder, name) &&
			    !sys->stat(sys, path, &info))
				return 1;
		}
		folders += size + (folders[size] == ':');
	}
	return 0;
}

static void read_cache(struct ki_bytes *out)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_file_info info;
	void *room;
	int fd = sys->open(sys, CACHE, KI_OPEN_READ, 0);

	if (fd < 0)
		return;
	if (!sys->fstat(sys, fd, &info) && info.size &&
	    info.size < CACHE_BYTES_MAX) {
		room = ki_bytes_grow(out, (size_t)info.size);
		if (room && ki_pread_all(sys, fd, room, (size_t)info.size, 0))
			ki_bytes_clear(out);
	}
	(void)sys->close(sys, fd);
}

static int can_be_found(const struct ki_bytes *cache, const char *name)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_file_info info;

	if (strchr(name, '/'))
		return !sys->stat(sys, name, &info);
	return is_in_folders(getenv("LD_LIBRARY_PATH"), name) ||
	       (cache->size &&
		memmem(cache->data, cache->size, name, strlen(name) + 1)) ||
	       is_in_folders("/lib64:/usr/lib64:/lib:/usr/lib", name);
}

/* ---- Lists --------------------------------------------------------------------- */

static int is_part(const char *part, size_t size, const char *name)
{
	return strlen(name) == size && !memcmp(part, name, size);
}

int ki_levelzero_knows(const char *part, size_t size)
{
	size_t i, n;

	/* What changes with the folder names no driver for later. */
	if (memchr(part, '/', size) && *part != '/')
		return 0;
	while (memchr(part, '/', size)) {
		n = (size_t)((const char *)memchr(part, '/', size) - part) + 1;
		part += n;
		size -= n;
	}
	for (i = 0; i < N_KNOWN; i++) {
		n = strlen(drivers[i]) - 2;
		if (size >= n && !memcmp(part, drivers[i], n) &&
		    (size == n || part[n] == '.'))
			return 1;
	}
	return 0;
}

char *ki_levelzero_with(const char *list, const char *proxy, const char *wanted,
			char **out_driver)
{
	const char *part, *found = NULL;
	size_t size, found_size = 0;
	char *driver, *with;

	for (part = list; *part; part += size + (part[size] == ',')) {
		size = strcspn(part, ",");
		if (is_part(part, size, proxy))
			return NULL;
		if (!found && (wanted ? is_part(part, size, wanted)
				      : ki_levelzero_knows(part, size))) {
			found = part;
			found_size = size;
		}
	}
	driver = found ? strndup(found, found_size) : NULL;
	if (!driver)
		return NULL;
	if (asprintf(&with, "%.*s%s%s", (int)(found - list), list, proxy,
		     found + found_size) < 0) {
		free(driver);
		return NULL;
	}
	*out_driver = driver;
	return with;
}

/* What a loader would load by itself, with `wanted` for the first. */
static char *default_list(const char *wanted)
{
	struct ki_bytes cache, list;
	const char *name;
	size_t i, size;

	ki_bytes_init(&cache);
	ki_bytes_init(&list);
	read_cache(&cache);
	for (i = 0; drivers[i]; i++) {
		name = !i && wanted ? wanted : drivers[i];
		if (can_be_found(&cache, name))
			ki_bytes_printf(&list, "%s%s", list.size ? "," : "",
					name);
		else if (!i && wanted)
			break;
	}
	ki_bytes_fini(&cache);
	ki_bytes_add_u8(&list, '\0');
	return (char *)ki_bytes_take(&list, &size);
}

/* ---- The environment ------------------------------------------------------------ */

int ki_levelzero_find(const struct kiln_config *config, const char *proxy,
		      char **out_list, char **out_driver)
{
	const char *wanted = kiln_config_value(config, KILN_SET_ZE_DRIVER);
	const char *given = getenv(KI_ZE_LIST);
	char *list = given ? NULL : default_list(wanted);

	*out_list = NULL;
	if (given || list)
		*out_list = ki_levelzero_with(given ? given : list, proxy,
					      wanted, out_driver);
	free(list);
	return *out_list ? 0 : -1;
}

/* A loader that stands between programs and drivers. */
static int is_between(const char *list)
{
	const char *intercept = getenv("ZE_ENABLE_LOADER_INTERCEPT");

	return strchr(list, ',') || (intercept && *intercept);
}

int ki_levelzero_keep(const char *list)
{
	return is_between(list) ? setenv(KI_ZE_HANDLES, "0", 0) : 0;
}

int ki_levelzero_is_bypassed(const char *list)
{
	const char *value = getenv(KI_ZE_HANDLES);

	return is_between(list) && value && strcmp(value, "0") != 0 &&
	       strcmp(value, "false") != 0;
}

int ki_levelzero_set(const struct kiln_config *config)
{
	char proxy[KI_PATH_MAX], *driver, *list;
	int failed;

	if (ki_place_levelzero(proxy))
		return 0; /* built without it */
	if (ki_levelzero_find(config, proxy, &list, &driver))
		return 0;
	failed = strchr(proxy, ',') != NULL;
	if (failed)
		ki_complain("running Level Zero without cache: the loader "
			    "cannot be told of a driver with ',' in its path, "
			    "%s",
			    proxy);
	else if (setenv(KI_ZE_DRIVER, driver, 1) ||
		 setenv(KI_ZE_LIST, list, 1) || ki_levelzero_keep(list))
		failed = 1;
	free(driver);
	free(list);
	return failed ? -1 : 0;
}
