/* SPDX-License-Identifier: MIT */

/*
 * kiln gc --d3d12: the shader caches of programs, which lie where
 * src/front/d3d12/place.c has put them:
 *
 *	<caches>/d3d12/<program>/<guid>[-<adapter>-<driver>].*
 *
 * A cache that nobody has open goes with its files: it is joined as a session of a
 * version that no program has, so that it is known to be nobody else's, and has
 * itself removed when that session closes.  One that is open is emptied, and its
 * programs go on.  Caches in working directories are the programs' own affair and
 * not found here.
 */

#include "d3d12.h"

#include <kiln/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/text.h"
#include "out.h"
#include "store.h"
#include "sys/sys.h"

#define NAME_BYTES    80
#define PROGRAM_BYTES 256
#define GUID_SIZE     36
#define OUR_VERSION   UINT64_C(0xd15cc1ea9e12d3d1)

struct cache {
	char program[PROGRAM_BYTES];
	char name[NAME_BYTES];
	uint64_t n_entries, bytes;
	int is_open; /* by a program */
};

struct caches {
	char directory[KI_PATH_MAX];
	struct cache *caches;
	size_t n, capacity;
	int failed; /* no memory */
};

static const struct ki_sys *const sys = &ki_sys_posix;

/* ---- Finding them ---------------------------------------------------------------- */

static int is_path(int n)
{
	return n > 0 && n < KI_PATH_MAX;
}

/* 0: there is no place for caches. */
static int set_directory(const struct kiln_config *config,
			 char out[KI_PATH_MAX])
{
	const char *dir = kiln_config_value(config, KILN_SET_DIR);
	const char *cache = ki_environment("XDG_CACHE_HOME");
	const char *home = ki_environment("HOME");

	if (dir)
		return is_path(snprintf(out, KI_PATH_MAX, "%s/d3d12", dir));
	if (cache && *cache == '/')
		return is_path(
			snprintf(out, KI_PATH_MAX, "%s/kiln/d3d12", cache));
	return home && *home == '/' && home[1] &&
	       is_path(snprintf(out, KI_PATH_MAX, "%s/.cache/kiln/d3d12",
				home));
}

static int path_of(const struct caches *caches, const struct cache *cache,
		   const char *file, char out[KI_PATH_MAX])
{
	return is_path(snprintf(out, KI_PATH_MAX, "%s/%s%s%s",
				caches->directory, cache->program,
				*file ? "/" : "", file));
}

/* The part of a file's name that is a cache's; 0: it is none. */
static int name_of(const char *file, char out[NAME_BYTES])
{
	const size_t size = strcspn(file, ".");

	if (size < GUID_SIZE || size >= NAME_BYTES || !file[size] ||
	    strspn(file, "0123456789abcdef-") != size)
		return 0;
	memcpy(out, file, size);
	out[size] = '\0';
	return 1;
}

static int is_known(const struct caches *caches, const struct cache *wanted)
{
	/* Those of one program were found one after the other. */
	for (size_t i = caches->n; i--;) {
		const struct cache *cache = &caches->caches[i];

		if (strcmp(cache->program, wanted->program) != 0)
			return 0;
		if (!strcmp(cache->name, wanted->name))
			return 1;
	}
	return 0;
}

static void add(struct caches *caches, const struct cache *cache)
{
	if (caches->n == caches->capacity) {
		const size_t capacity = 2 * caches->capacity + 16;
		struct cache *grown =
			realloc(caches->caches, capacity * sizeof(*grown));

		if (!grown) {
			caches->failed = 1;
			return;
		}
		caches->caches = grown;
		caches->capacity = capacity;
	}
	caches->caches[caches->n++] = *cache;
}

static void find_of_program(struct caches *caches, const char *program)
{
	struct cache cache = { 0 };
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *file;

	if (strlen(program) >= sizeof(cache.program))
		return;
	strcpy(cache.program, program);
	if (!path_of(caches, &cache, "", path) || sys->opendir(sys, path, &dir))
		return;
	while (sys->readdir(sys, dir, &file) > 0)
		if (name_of(file, cache.name) && !is_known(caches, &cache))
			add(caches, &cache);
	sys->closedir(sys, dir);
}

static void find(struct caches *caches)
{
	struct ki_file_info info;
	struct ki_dir *dir;
	const char *program;

	if (sys->opendir(sys, caches->directory, &dir))
		return;
	while (sys->readdir(sys, dir, &program) > 0)
		if (!sys->lstat_in(sys, dir, program, &info) &&
		    S_ISDIR(info.mode))
			find_of_program(caches, program);
	sys->closedir(sys, dir);
}

static int by_name(const void *a, const void *b)
{
	const struct cache *left = a, *right = b;
	const int order = strcmp(left->program, right->program);

	return order ? order : strcmp(left->name, right->name);
}

/* ---- One cache ------------------------------------------------------------------- */

typedef void file_fn(const char *path, const struct ki_file_info *info,
		     void *arg);

static void for_its_files(const struct caches *caches,
			  const struct cache *cache, file_fn *call, void *arg)
{
	char path[KI_PATH_MAX], name[NAME_BYTES];
	struct ki_file_info info;
	struct ki_dir *dir;
	const char *file;

	if (!path_of(caches, cache, "", path) || sys->opendir(sys, path, &dir))
		return;
	while (sys->readdir(sys, dir, &file) > 0)
		if (name_of(file, name) && !strcmp(name, cache->name) &&
		    path_of(caches, cache, file, path) &&
		    !sys->lstat(sys, path, &info))
			call(path, &info, arg);
	sys->closedir(sys, dir);
}

static void add_bytes(const char *path, const struct ki_file_info *info,
		      void *arg)
{
	uint64_t *bytes = arg;

	(void)path;
	*bytes += info->blocks_bytes;
}

static void remove_file(const char *path, const struct ki_file_info *info,
			void *arg)
{
	(void)info;
	(void)arg;
	(void)sys->unlink(sys, path);
}

static enum kiln_status open_cache(const struct caches *caches,
				   const struct cache *cache, uint32_t flags,
				   struct kiln **out_kiln)
{
	char path[KI_PATH_MAX], url[KI_PATH_MAX + NAME_BYTES + 8];
	struct kiln_options options;
	enum kiln_status status;

	if (!path_of(caches, cache, "", path))
		return KILN_E_INVALID;
	snprintf(url, sizeof(url), "log:%s#%s", path, cache->name);
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = flags | KILN_OPEN_NO_MEMORY | KILN_OPEN_NO_BUILD_LOCK;
	if (flags & KILN_OPEN_SESSION)
		options.user_version = OUR_VERSION;
	status = kiln_open(&options, out_kiln);
	if (status)
		return status;
	status = kiln_store_status(*out_kiln);
	if (status)
		kiln_close(*out_kiln);
	return status;
}

static void measure(const struct caches *caches, struct cache *cache)
{
	struct kiln_store_info info;
	struct kiln *kiln;

	for_its_files(caches, cache, add_bytes, &cache->bytes);
	if (open_cache(caches, cache, KI_STORE_LOOK, &kiln))
		return;
	if (!kiln_store_info(kiln, &info))
		cache->n_entries = info.n_entries;
	kiln_close(kiln);
}

static enum kiln_status empty_open(const struct caches *caches,
				   struct cache *cache)
{
	struct kiln *kiln;
	enum kiln_status status = open_cache(caches, cache, 0, &kiln);

	if (status)
		return status;
	cache->is_open = 1;
	status = kiln_wipe(kiln);
	kiln_close(kiln);
	return status;
}

static enum kiln_status clear(const struct caches *caches, struct cache *cache)
{
	struct kiln *kiln;
	enum kiln_status status =
		open_cache(caches, cache, KILN_OPEN_SESSION, &kiln);

	if (status == KILN_EXISTS)
		return empty_open(caches, cache);
	if (status == KILN_E_FORMAT) {
		for_its_files(caches, cache, remove_file, NULL);
		return KILN_OK;
	}
	if (status)
		return status;
	status = kiln_remove_at_close(kiln);
	kiln_close(kiln);
	return status;
}

/* ---- All of them ------------------------------------------------------------------- */

struct sums {
	uint64_t n_caches, n_entries, bytes;
};

static int clear_all(struct caches *caches, struct sums *sums)
{
	int status = KI_EXIT_OK;

	for (size_t i = 0; i < caches->n; i++) {
		struct cache *cache = &caches->caches[i];
		enum kiln_status cleared = clear(caches, cache);
		uint64_t left = 0;
		char path[KI_PATH_MAX];

		if (cleared)
			status = ki_store_failed(cleared, cache->name);
		for_its_files(caches, cache, add_bytes, &left);
		sums->bytes += cache->bytes > left ? cache->bytes - left : 0;
		sums->n_caches += !cleared;
		sums->n_entries += cleared ? 0 : cache->n_entries;
		/* When it was the last one of its program. */
		if (path_of(caches, cache, "", path))
			(void)sys->rmdir(sys, path);
	}
	return status;
}

static void count_all(const struct caches *caches, struct sums *sums)
{
	for (size_t i = 0; i < caches->n; i++) {
		sums->n_caches++;
		sums->n_entries += caches->caches[i].n_entries;
		sums->bytes += caches->caches[i].bytes;
	}
}

/* ---- Telling ----------------------------------------------------------------------- */

static void print_json(struct ki_bytes *out, const struct caches *caches,
		       const struct sums *sums, int is_dry)
{
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_bool(&json, "dry_run", is_dry);
	ki_json_array(&json, "caches");
	for (size_t i = 0; i < caches->n; i++) {
		const struct cache *cache = &caches->caches[i];

		ki_json_object(&json, NULL);
		ki_json_string(&json, "program", cache->program);
		ki_json_string(&json, "name", cache->name);
		ki_json_number(&json, "entries", cache->n_entries);
		ki_json_number(&json, "bytes", cache->bytes);
		if (!is_dry)
			ki_json_bool(&json, "in_use", cache->is_open);
		ki_json_end(&json);
	}
	ki_json_end(&json);
	ki_json_number(&json, "caches_cleared", sums->n_caches);
	ki_json_number(&json, "entries_removed", sums->n_entries);
	ki_json_number(&json, "bytes_freed", sums->bytes);
	ki_json_end(&json);
}

static void print_table(struct ki_bytes *out, const struct caches *caches)
{
	static const struct ki_column columns[] = {
		{ .title = "ENTRIES", .is_right = 1 },
		{ .title = "SIZE", .is_right = 1 },
		{ .title = "CACHE", .rank = 1 },
		{ .title = "PROGRAM" },
	};
	enum { N = sizeof(columns) / sizeof(*columns) };
	const char **cells = calloc(caches->n * N, sizeof(*cells));
	char(*numbers)[2][32] = calloc(caches->n, sizeof(*numbers));

	for (size_t i = 0; cells && numbers && i < caches->n; i++) {
		const struct cache *cache = &caches->caches[i];

		snprintf(numbers[i][0], sizeof(numbers[i][0]), "%llu",
			 (unsigned long long)cache->n_entries);
		cells[i * N] = numbers[i][0];
		cells[i * N + 1] = ki_format_size(cache->bytes, numbers[i][1],
						  sizeof(numbers[i][1]));
		cells[i * N + 2] = cache->name;
		cells[i * N + 3] = cache->program;
	}
	if (cells && numbers)
		ki_out_table(out, columns, N, cells, caches->n,
			     ki_out_columns(), ki_out_is_colourful(1));
	else
		out->failed = -1;
	free(cells);
	free(numbers);
}

static void print_text(struct ki_bytes *out, const struct caches *caches,
		       const struct sums *sums, int is_dry)
{
	char size[32];

	if (caches->n)
		print_table(out, caches);
	ki_bytes_printf(out, "%s%llu cache%s, %llu entr%s (%s)\n",
			is_dry ? "to be cleared: " : "cleared ",
			(unsigned long long)sums->n_caches,
			sums->n_caches == 1 ? "" : "s",
			(unsigned long long)sums->n_entries,
			sums->n_entries == 1 ? "y" : "ies",
			ki_format_size(sums->bytes, size, sizeof(size)));
}

static int work(struct caches *caches, const struct ki_command *command)
{
	const int is_dry = ki_given(command, KI_OPTION_DRY_RUN);
	struct sums sums = { 0 };
	struct ki_bytes out;
	int status = KI_EXIT_OK;

	find(caches);
	if (caches->failed)
		return ki_store_failed(KILN_E_NO_MEMORY, "d3d12");
	if (caches->n)
		qsort(caches->caches, caches->n, sizeof(*caches->caches),
		      by_name);
	for (size_t i = 0; i < caches->n; i++)
		measure(caches, &caches->caches[i]);
	if (is_dry)
		count_all(caches, &sums);
	else
		status = clear_all(caches, &sums);
	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, caches, &sums, is_dry);
	else
		print_text(&out, caches, &sums, is_dry);
	return ki_out_write(&out, status);
}

/* Options of stores mean nothing here. */
static int is_alone(const struct ki_command *command)
{
	static const enum ki_option others[] = { KI_OPTION_STORE,
						 KI_OPTION_MAX_SIZE,
						 KI_OPTION_OLDER_THAN,
						 KI_OPTION_QUARANTINE };

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (ki_given(command, others[i]))
			return 0;
	return 1;
}

/* 0: settings forbid to write. */
static int may_write(const struct kiln_config *config)
{
	static const struct {
		enum kiln_setting setting;
		const char *name;
	} rows[] = { { KILN_SET_DISABLE, "KILN_DISABLE" },
		     { KILN_SET_READONLY, "KILN_READONLY" } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (kiln_config_number(config, rows[i].setting)) {
			ki_complain(
				"%s forbids to clear (from: %s)", rows[i].name,
				kiln_config_origin(config, rows[i].setting));
			return 0;
		}
	return 1;
}

int ki_d3d12_gc(const struct ki_command *command)
{
	struct caches caches = { 0 };
	struct kiln_config *config = NULL;
	char message[1024] = "out of memory";
	int status;

	if (!is_alone(command)) {
		ki_complain("--d3d12 goes with --dry-run and --json alone: "
			    "these caches have limits of their own");
		return KI_EXIT_USAGE;
	}
	if (kiln_config_load(&config, message, sizeof(message))) {
		ki_complain("%s", message);
		return KI_EXIT_USAGE;
	}
	ki_store_warn(config);
	if (!ki_given(command, KI_OPTION_DRY_RUN) && !may_write(config)) {
		status = KI_EXIT_UNAVAILABLE;
	} else if (set_directory(config, caches.directory)) {
		status = work(&caches, command);
	} else {
		ki_complain("d3d12: there is no place for caches: KILN_DIR, "
			    "XDG_CACHE_HOME and HOME are not set");
		status = KI_EXIT_UNAVAILABLE;
	}
	free(caches.caches);
	kiln_config_free(config);
	return status;
}
