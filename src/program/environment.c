/* SPDX-License-Identifier: MIT */

/*
 * The variables of SYCL's caches, as seed 001 documents them, or as DPC++ reads
 * them:
 *
 *				seed		dpcpp
 *	MAX_SIZE		megabytes, 8192	bytes, 0: no bound
 *	THRESHOLD		days, 7		not read
 *	EVICTION_DISABLE	any		not read
 *
 * The dialect is SYCL_CACHE_DIALECT; if that is not set, dpcpp where DPC++ keeps
 * its sum of sizes in the directory, whose limit the two then share, else seed.
 *
 * DPC++ reads numbers by std::stoll() and its like, so "1K" is 1, and throws out
 * of whichever call comes first.  Here a number is digits and nothing else, and
 * what is wrong is said once, here.
 */

#include "program/environment.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "sys/sys.h"

#define DIRECTORY_BYTES_MAX (KI_PATH_MAX - 128)
#define DAY_S		    86400

extern char **environ;

enum variable {
	DIALECT,
	PERSISTENT,
	IN_MEM,
	DIR,
	MAX_SIZE,
	THRESHOLD,
	EVICTION_DISABLE,
	IN_MEM_THRESHOLD,
	IMAGE_MIN,
	IMAGE_MAX,
	COMPILE,
	LINK,
	APPEND_COMPILE,
	APPEND_LINK,
	N_VARIABLES
};

enum dialect { SEED, DPCPP };

enum type { TEXT, FLAG, NUMBER, ROOTED, CHOICE };

static const struct {
	const char *name;
	enum type type;
	uint64_t max; /* of a number */
} table[N_VARIABLES] = {
	[DIALECT] = { "SYCL_CACHE_DIALECT", CHOICE, 0 },
	[PERSISTENT] = { "SYCL_CACHE_PERSISTENT", FLAG, 0 },
	[IN_MEM] = { "SYCL_CACHE_IN_MEM", FLAG, 0 },
	[DIR] = { "SYCL_CACHE_DIR", ROOTED, 0 },
	[MAX_SIZE] = { "SYCL_CACHE_MAX_SIZE", NUMBER, INT64_MAX >> 20 },
	[THRESHOLD] = { "SYCL_CACHE_THRESHOLD", NUMBER, 36500 },
	[EVICTION_DISABLE] = { "SYCL_CACHE_EVICTION_DISABLE", TEXT, 0 },
	[IN_MEM_THRESHOLD] = { "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD", NUMBER,
			       INT64_MAX },
	[IMAGE_MIN] = { "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", NUMBER, INT64_MAX },
	[IMAGE_MAX] = { "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE", NUMBER, INT64_MAX },
	[COMPILE] = { "SYCL_PROGRAM_COMPILE_OPTIONS", TEXT, 0 },
	[LINK] = { "SYCL_PROGRAM_LINK_OPTIONS", TEXT, 0 },
	[APPEND_COMPILE] = { "SYCL_PROGRAM_APPEND_COMPILE_OPTIONS", TEXT, 0 },
	[APPEND_LINK] = { "SYCL_PROGRAM_APPEND_LINK_OPTIONS", TEXT, 0 },
};

struct kiln_sycl_config {
	char *texts[N_VARIABLES]; /* NULL: not set */
	uint64_t numbers[N_VARIABLES];
	enum dialect dialect;
	char *url; /* NULL: there is no place */
};

/* Where the cache is if SYCL_CACHE_DIR does not say so. */
static const struct {
	const char *variable;
	const char *below;
} places[] = {
	{ "XDG_CACHE_HOME", "/libsycl_cache" },
	{ "HOME", "/.cache/libsycl_cache" },
};

static const char *find(const char *const *variables, const char *name)
{
	size_t size = strlen(name);

	for (; variables && *variables; variables++)
		if (!strncmp(*variables, name, size) &&
		    (*variables)[size] == '=')
			return *variables + size + 1;
	return NULL;
}

static int is_rooted(const char *path)
{
	return *path == '/' && strlen(path) < DIRECTORY_BYTES_MAX;
}

/* ---- Values ---------------------------------------------------------------- */

static int is_number(const char *text, uint64_t max, uint64_t *out_number)
{
	return !text[strspn(text, "0123456789")] &&
	       !ki_parse_size(text, out_number) && *out_number <= max;
}

/* NULL, or what would be right. */
static const char *check(enum variable variable, const char *text,
			 uint64_t *out_number)
{
	switch (table[variable].type) {
	case TEXT:
		return NULL;
	case FLAG:
		return is_number(text, 1, out_number) && !text[1] ? NULL
								  : "0 or 1";
	case NUMBER:
		return is_number(text, table[variable].max, out_number)
			       ? NULL
			       : "a whole number, without a unit";
	case ROOTED:
		return is_rooted(text) ? NULL : "a path from the root";
	case CHOICE:
		*out_number = strcmp(text, "seed") ? DPCPP : SEED;
		return !strcmp(text, "seed") || !strcmp(text, "dpcpp")
			       ? NULL
			       : "seed or dpcpp";
	}
	return NULL;
}

/* Options may be set to nothing; of others that means that they are not set. */
static int is_set(enum variable variable, const char *text)
{
	return text && (*text || table[variable].type == TEXT);
}

static enum kiln_status take(struct kiln_sycl_config *config,
			     enum variable variable, const char *text,
			     char **out_message)
{
	const char *right;

	if (!is_set(variable, text))
		return KILN_OK;
	right = check(variable, text, &config->numbers[variable]);
	if (right) {
		if (out_message &&
		    asprintf(out_message, "%s: \"%.80s\" is not %s",
			     table[variable].name, text, right) < 0)
			*out_message = NULL;
		return KILN_E_INVALID;
	}
	config->texts[variable] = strdup(text);
	return config->texts[variable] ? KILN_OK : KILN_E_NO_MEMORY;
}

/* ---- Places ---------------------------------------------------------------- */

static enum kiln_status find_place(struct kiln_sycl_config *config,
				   const char *const *variables)
{
	const char *directory = config->texts[DIR], *below = "";

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *text = find(variables, places[i].variable);

		if (directory || !text || !is_rooted(text) || !text[1])
			continue;
		directory = text;
		below = places[i].below;
	}
	if (directory &&
	    asprintf(&config->url, "sycl:%s%s", directory, below) < 0) {
		config->url = NULL;
		return KILN_E_NO_MEMORY;
	}
	return KILN_OK;
}

static int is_dpcpps(const struct kiln_sycl_config *config)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	return config->url &&
	       !ki_path_join(path, config->url + strlen("sycl:"),
			     "cache_size.txt") &&
	       !sys->stat(sys, path, &info);
}

/* ---- All ------------------------------------------------------------------- */

static void set_defaults(struct kiln_sycl_config *config)
{
	if (!config->texts[DIALECT] && is_dpcpps(config))
		config->dialect = DPCPP;
	else
		config->dialect = (enum dialect)config->numbers[DIALECT];
	if (!config->texts[IN_MEM])
		config->numbers[IN_MEM] = 1;
	if (!config->texts[IMAGE_MAX])
		config->numbers[IMAGE_MAX] = (uint64_t)1 << 30;
	if (!config->texts[MAX_SIZE])
		config->numbers[MAX_SIZE] = config->dialect == SEED ? 8192 : 0;
	if (!config->texts[THRESHOLD])
		config->numbers[THRESHOLD] = 7;
}

enum kiln_status ki_sycl_config_read(const char *const *variables,
				     struct kiln_sycl_config **out,
				     char **out_message)
{
	struct kiln_sycl_config *config = calloc(1, sizeof(*config));
	enum kiln_status status = config ? KILN_OK : KILN_E_NO_MEMORY;

	for (int i = 0; i < N_VARIABLES && !status; i++)
		status = take(config, (enum variable)i,
			      find(variables, table[i].name), out_message);
	if (!status)
		status = find_place(config, variables);
	if (status) {
		kiln_sycl_config_free(config);
		return status;
	}
	set_defaults(config);
	*out = config;
	return KILN_OK;
}

/* Programs with more rights than their user are told nothing. */
enum kiln_status kiln_sycl_config_read(struct kiln_sycl_config **out,
				       char **out_message)
{
	if (!out)
		return KILN_E_INVALID;
	if (out_message)
		*out_message = NULL;
	return ki_sycl_config_read(
		ki_process_is_secure() ? NULL : (const char *const *)environ,
		out, out_message);
}

void kiln_sycl_config_free(struct kiln_sycl_config *config)
{
	if (!config)
		return;
	for (int i = 0; i < N_VARIABLES; i++)
		free(config->texts[i]);
	free(config->url);
	free(config);
}

int kiln_sycl_config_is_persistent(const struct kiln_sycl_config *config)
{
	return config->numbers[PERSISTENT] && config->url;
}

void kiln_sycl_config_programs(const struct kiln_sycl_config *config,
			       struct kiln_programs_options *options)
{
	options->bytes_max = config->numbers[IN_MEM_THRESHOLD];
	options->image_bytes_min = config->numbers[IMAGE_MIN];
	options->image_bytes_max = config->numbers[IMAGE_MAX];
	options->compile_options_override = config->texts[COMPILE];
	options->link_options_override = config->texts[LINK];
	options->compile_options_append = config->texts[APPEND_COMPILE];
	options->link_options_append = config->texts[APPEND_LINK];
	if (!config->numbers[IN_MEM])
		options->flags |= KILN_PROGRAMS_NO_MEMORY;
	if (!kiln_sycl_config_is_persistent(config))
		options->flags |= KILN_PROGRAMS_NO_STORE;
	/* So that both find each other's entries. */
	options->flags |= KILN_PROGRAMS_WHOLE_IMAGES;
}

void kiln_sycl_config_kiln(const struct kiln_sycl_config *config,
			   struct kiln_options *options)
{
	int is_seed = config->dialect == SEED;
	int evicts = !is_seed || !config->texts[EVICTION_DISABLE];

	options->store_url =
		kiln_sycl_config_is_persistent(config) ? config->url : NULL;
	options->store_bytes_max =
		evicts ? config->numbers[MAX_SIZE] << (is_seed ? 20 : 0) : 0;
	options->store_age_max_s =
		is_seed && evicts ? config->numbers[THRESHOLD] * DAY_S : 0;
	/* Programs have it in memory. */
	options->flags |= KILN_OPEN_NO_MEMORY;
}
