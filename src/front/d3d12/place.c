/* SPDX-License-Identifier: MIT */

/*
 * Where a disk cache lies:
 *
 *	<caches>/d3d12/<program>/<guid>[-<adapter>-<driver>]
 *
 * <caches> is $KILN_DIR, else $XDG_CACHE_HOME/kiln, else $HOME/.cache/kiln.  A
 * program is its executable: the file's name, for people, and a digest of its
 * path, so a new version at the old path finds its caches and says by
 * D3D12_SHADER_CACHE_SESSION_DESC.Version whether it wants them.  Programs may
 * share under a name of their own.
 */

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kiln/inspect.h>

#include "base/hash.h"
#include "front/d3d12/d3d12.h"

#define PROGRAM_BYTES 80
#define LEGIBLE_MAX   40 /* of the executable's name */
#define GONE	      " (deleted)"

/* ---- The program -------------------------------------------------------------- */

static char *shared_name; /* Under ki_d3d12_lock. */

HRESULT kiln_d3d12_share_caches(const char *name)
{
	char *copy = name ? strdup(name) : NULL, *old;

	if (name && !copy)
		return E_OUTOFMEMORY;
	ki_mutex_lock(&ki_d3d12_lock);
	old = shared_name;
	shared_name = copy;
	ki_mutex_unlock(&ki_d3d12_lock);
	free(old);
	return S_OK;
}

/* "NAME-0123456789abcdef": legible, and told apart by all of `text`. */
static void identify(const char *name, const char *text,
		     char out[PROGRAM_BYTES])
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	size_t n = 0;

	for (; name[n] && n < LEGIBLE_MAX; n++) {
		unsigned char c = (unsigned char)name[n];

		out[n] = isascii(c) && (isalnum(c) || c == '_' || c == '.')
				 ? (char)c
				 : '_';
	}
	if (out[0] == '.')
		out[0] = '_';
	out[n++] = '-';
	ki_blake2b(text, strlen(text), digest);
	ki_hex(digest, 8, out + n);
}

/* 0: it cannot be known. */
static int identify_executable(char out[PROGRAM_BYTES])
{
	char path[KI_PATH_MAX];
	const char *slash;
	size_t size;

	if (ki_executable(path))
		return 0;
	/* One that was replaced while it runs is still the same program. */
	size = strlen(path);
	if (size > strlen(GONE) && !strcmp(path + size - strlen(GONE), GONE))
		path[size - strlen(GONE)] = '\0';
	slash = strrchr(path, '/');
	identify(slash ? slash + 1 : path, path, out);
	return 1;
}

static int identify_program(char out[PROGRAM_BYTES])
{
	int is_shared;

	ki_mutex_lock(&ki_d3d12_lock);
	is_shared = !!shared_name;
	if (is_shared)
		identify("shared", shared_name, out);
	ki_mutex_unlock(&ki_d3d12_lock);
	return is_shared || identify_executable(out);
}

/* ---- Directories ----------------------------------------------------------------- */

static int is_written(int n)
{
	return n > 0 && n < KI_PATH_MAX;
}

static int set_caches(const char *dir, char out[KI_PATH_MAX])
{
	const char *cache = ki_environment("XDG_CACHE_HOME");
	const char *home = ki_environment("HOME");

	if (dir)
		return is_written(snprintf(out, KI_PATH_MAX, "%s", dir));
	if (cache && *cache == '/')
		return is_written(snprintf(out, KI_PATH_MAX, "%s/kiln", cache));
	if (home && *home == '/' && home[1])
		return is_written(
			snprintf(out, KI_PATH_MAX, "%s/.cache/kiln", home));
	return 0;
}

/* NULL: settings forbid to keep anything. */
static struct kiln_config *load_settings(void)
{
	struct kiln_config *config = NULL;
	char message[256];

	if (!kiln_config_load(&config, message, sizeof(message)) &&
	    !kiln_config_number(config, KILN_SET_DISABLE) &&
	    !kiln_config_number(config, KILN_SET_READONLY))
		return config;
	kiln_config_free(config);
	return NULL;
}

int ki_d3d12_place(char out[KI_PATH_MAX])
{
	struct kiln_config *config = load_settings();
	char caches[KI_PATH_MAX], program[PROGRAM_BYTES];
	int is_found =
		config &&
		set_caches(kiln_config_value(config, KILN_SET_DIR), caches) &&
		identify_program(program);

	kiln_config_free(config);
	return is_found && is_written(snprintf(out, KI_PATH_MAX, "%s/d3d12/%s",
					       caches, program));
}

int ki_d3d12_working_place(char out[KI_PATH_MAX])
{
	struct kiln_config *config = load_settings();
	size_t size;

	if (!config)
		return 0;
	kiln_config_free(config);
	if (ki_absolute_path(out, "."))
		return 0;
	size = strlen(out);
	out[size > 2 ? size - 2 : 1] = '\0'; /* without "/." */
	return 1;
}

/* ---- Names ------------------------------------------------------------------------- */

void ki_d3d12_name(const struct ki_d3d12_namespace *space,
		   char out[KI_D3D12_NAME_BYTES])
{
	const GUID *id = &space->identifier;
	int n = snprintf(out, KI_D3D12_NAME_BYTES,
			 "%08" PRIx32 "-%04x-%04x-%02x%02x-"
			 "%02x%02x%02x%02x%02x%02x",
			 id->Data1, id->Data2, id->Data3, id->Data4[0],
			 id->Data4[1], id->Data4[2], id->Data4[3], id->Data4[4],
			 id->Data4[5], id->Data4[6], id->Data4[7]);

	if (space->is_versioned)
		snprintf(out + n, KI_D3D12_NAME_BYTES - (size_t)n,
			 "-%08" PRIx32 "%08" PRIx32 "-%016" PRIx64,
			 (uint32_t)space->adapter.HighPart,
			 space->adapter.LowPart, space->driver_version);
}

/* Digits of base 16 from here on. */
static size_t n_digits(const char *text)
{
	return strspn(text, "0123456789abcdef");
}

int ki_d3d12_is_index(const char *file, char out[KI_D3D12_NAME_BYTES])
{
	static const size_t parts[] = { 8, 4, 4, 4, 12, 16, 16 };
	const char *end = file;
	size_t n = 0;

	for (; n < sizeof(parts) / sizeof(*parts); n++) {
		if (n_digits(end) != parts[n])
			return 0;
		end += parts[n];
		if (*end != '-')
			break;
		end++;
	}
	if ((n != 4 && n != 6) || strcmp(end, ".idx"))
		return 0;
	memcpy(out, file, (size_t)(end - file));
	out[end - file] = '\0';
	return 1;
}
