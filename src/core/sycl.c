/* SPDX-License-Identifier: MIT */

/*
 * DPC++ reads numbers by std::stoll() and its like, so "1K" is 1, and throws out
 * of whichever call comes first.  Here a number is digits and nothing else, and
 * what is wrong is said once, by who reads the variables.
 */

#include "core/sycl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/store.h"

#define DIRECTORY_BYTES_MAX (KI_PATH_MAX - 128)
#define DAY_S		    86400
#define MEGABYTES_MAX	    ((uint64_t)INT64_MAX >> 20)

extern char **environ;

static const struct {
	const char *name;
	enum ki_sycl_type type;
	uint64_t max; /* of a number */
	const char *seed, *dpcpp;
} table[KI_SYCL_N_VARIABLES] = {
#define ROW(id, name, type, max, seed, dpcpp)                                  \
	[KI_SYCL_##id] = { name, KI_SYCL_##type, max, seed, dpcpp },
	KI_SYCL_VARIABLES(ROW)
#undef ROW
};

/* Where the cache is if SYCL_CACHE_DIR does not say so. */
static const struct {
	const char *variable;
	const char *below;
	const char *why;
} places[] = {
	{ "XDG_CACHE_HOME", "/libsycl_cache", "$XDG_CACHE_HOME" },
	{ "HOME", "/.cache/libsycl_cache", "$HOME/.cache" },
};

const char *ki_sycl_variable_name(enum ki_sycl_variable variable)
{
	return table[variable].name;
}

const char *ki_sycl_variable_default(
	const struct ki_sycl_environment *environment,
	enum ki_sycl_variable variable)
{
	return environment->is_dpcpp ? table[variable].dpcpp
				     : table[variable].seed;
}

/* ---- Telling ------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void tell(
	struct ki_sycl_environment *environment, const char *words, ...)
{
	va_list args;

	if (environment->n_lines == KI_SYCL_LINES_MAX)
		return;
	va_start(args, words);
	(void)vsnprintf(environment->lines[environment->n_lines++],
			KI_SYCL_LINE_MAX, words, args);
	va_end(args);
}

/* The first one is told. */
static void complain(struct ki_sycl_environment *environment,
		     enum ki_sycl_variable variable, const char *right)
{
	if (!environment->is_wrong)
		(void)snprintf(environment->wrong, sizeof(environment->wrong),
			       "%s: \"%.80s\" is not %s", table[variable].name,
			       environment->text[variable], right);
	environment->is_wrong = 1;
}

/* ---- Values ------------------------------------------------------------------- */

/* NULL if it is not set. */
static int is_rooted(const char *path)
{
	return *path == '/' && strlen(path) < DIRECTORY_BYTES_MAX;
}

static int has_digits(const char *text)
{
	return *text && !text[strspn(text, "0123456789")];
}

static int is_number(const char *text, uint64_t max, uint64_t *out_number)
{
	return has_digits(text) && !ki_parse_size(text, out_number) &&
	       *out_number <= max;
}

static const char too_large[] = "a number of that kind: it is too large";

/* NULL, or what would be right. */
static const char *check(enum ki_sycl_variable variable, const char *text,
			 uint64_t *out_number)
{
	switch (table[variable].type) {
	case KI_SYCL_TEXT:
		return NULL;
	case KI_SYCL_FLAG:
		return is_number(text, 1, out_number) && !text[1] ? NULL
								  : "0 or 1";
	case KI_SYCL_NUMBER:
		if (is_number(text, table[variable].max, out_number))
			return NULL;
		return has_digits(text) ? too_large
					: "a whole number, without a unit";
	case KI_SYCL_ROOTED:
		return is_rooted(text) ? NULL : "a path from the root";
	case KI_SYCL_CHOICE:
		*out_number = !strcmp(text, "dpcpp");
		return !strcmp(text, "seed") || *out_number ? NULL
							    : "seed or dpcpp";
	case KI_SYCL_MASK:
		*out_number = ki_sycl_trace_mask(text);
		return NULL;
	}
	return NULL;
}

/* Options may be set to nothing; of others that means that they are not set. */
static void read_value(struct ki_sycl_environment *environment,
		       enum ki_sycl_variable variable)
{
	const char *text = environment->text[variable];
	uint64_t number = 0;
	const char *right;

	if (!text || (!*text && table[variable].type != KI_SYCL_TEXT))
		return;
	right = check(variable, text, &number);
	if (right) {
		complain(environment, variable, right);
		return;
	}
	environment->is_given[variable] = 1;
	environment->number[variable] = number;
}

/* ---- The directory -------------------------------------------------------------- */

static void set_directory(struct ki_sycl_environment *environment,
			  const char *directory, const char *below,
			  const char *why)
{
	(void)snprintf(environment->directory, sizeof(environment->directory),
		       "%s%s", directory, below);
	environment->why = why;
}

static void read_directory(struct ki_sycl_environment *environment,
			   const char *const *list)
{
	environment->why =
		"none: SYCL_CACHE_DIR is not set, and XDG_CACHE_HOME "
		"and HOME name no directory that can be used";
	if (environment->is_given[KI_SYCL_DIR]) {
		set_directory(environment, environment->text[KI_SYCL_DIR], "",
			      "SYCL_CACHE_DIR");
		return;
	}
	if (environment->text[KI_SYCL_DIR] && *environment->text[KI_SYCL_DIR]) {
		environment->why = "none: SYCL_CACHE_DIR is not a path from "
				   "the root";
		return;
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *text = ki_find_variable(list, places[i].variable);

		if (!text || !*text)
			continue;
		if (is_rooted(text) && text[strspn(text, "/")]) {
			set_directory(environment, text, places[i].below,
				      places[i].why);
			return;
		}
		tell(environment,
		     "%s: \"%.80s\" is not a path that can be used, and is "
		     "passed over here",
		     places[i].variable, text);
	}
}

/* ---- The dialect ------------------------------------------------------------------ */

/* A kiln with a limit keeps the sum too, and ends it by a newline as long as it is
   alone. */
static int is_dpcpps(const char *directory)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char path[KI_PATH_MAX], text[64];
	ssize_t n;
	int fd;

	if (!*directory || ki_path_join(path, directory, "cache_size.txt"))
		return 0;
	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NO_ATIME, 0);
	/* What cannot be read is not kiln's either. */
	if (fd < 0)
		return fd != -ENOENT && fd != -ENOTDIR;
	n = sys->pread(sys, fd, text, sizeof(text), 0);
	(void)sys->close(sys, fd);
	return n <= 0 || text[n - 1] != '\n';
}

static uint64_t bytes_of(uint64_t max_size, int is_dpcpp)
{
	if (is_dpcpp)
		return max_size;
	return max_size > MEGABYTES_MAX ? INT64_MAX : max_size << 20;
}

void ki_sycl_environment_choose(struct ki_sycl_environment *environment,
				const char *directory)
{
	const int is_chosen = environment->is_given[KI_SYCL_DIALECT];
	int evicts;

	/* It was of another directory. */
	if (environment->is_too_large)
		environment->is_too_large = environment->is_wrong = 0;
	environment->is_dpcpp =
		is_chosen ? environment->number[KI_SYCL_DIALECT] != 0
			  : is_dpcpps(directory);
	environment->dialect_why =
		is_chosen ? "environment"
		: environment->is_dpcpp
			? "cache_size.txt of DPC++'s in the directory"
			: "default";
	for (int i = 0; i < KI_SYCL_N_VARIABLES; i++)
		if (!environment->is_given[i])
			environment->number[i] = strtoull(
				ki_sycl_variable_default(
					environment, (enum ki_sycl_variable)i),
				NULL, 10);
	if (!environment->is_dpcpp && !environment->is_wrong &&
	    environment->number[KI_SYCL_MAX_SIZE] > MEGABYTES_MAX) {
		complain(environment, KI_SYCL_MAX_SIZE,
			 "a number of megabytes: it is too large");
		environment->is_too_large = 1;
	}
	evicts = environment->is_dpcpp ||
		 !environment->is_given[KI_SYCL_EVICTION_DISABLE];
	environment->bytes_max =
		evicts ? bytes_of(environment->number[KI_SYCL_MAX_SIZE],
				  environment->is_dpcpp)
		       : 0;
	environment->age_max_s =
		evicts ? environment->number[KI_SYCL_THRESHOLD] * DAY_S : 0;
	if (environment->is_dpcpp)
		environment->age_max_s = 0;
}

/* ---- Reading ---------------------------------------------------------------------- */

void ki_sycl_environment_read(const char *const *list,
			      struct ki_sycl_environment *out)
{
	memset(out, 0, sizeof(*out));
	for (int i = 0; i < KI_SYCL_N_VARIABLES; i++) {
		out->text[i] = ki_find_variable(list, table[i].name);
		read_value(out, (enum ki_sycl_variable)i);
	}
	read_directory(out, list);
	ki_sycl_environment_choose(out, out->directory);
}

void ki_sycl_environment(struct ki_sycl_environment *out)
{
	ki_sycl_environment_read(
		ki_process_is_secure() ? NULL : (const char *const *)environ,
		out);
}
