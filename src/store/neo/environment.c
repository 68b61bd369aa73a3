/* SPDX-License-Identifier: MIT */

/*
 * Intel's driver reads its variables by atoll(): what does not begin with digits
 * is 0, what follows them is not seen.  "true" turns its cache off, "1GB" bounds
 * it to one byte, "abc" to nothing.  Here such a value is an error, and one that
 * means something else there is said so: the two share a directory, and its limit.
 */

#include "store/neo/environment.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Room below a directory for the names that are made in it. */
#define DIRECTORY_BYTES_MAX (KI_PATH_MAX - 128)
#define SHOWN_MAX	    "%.80s"

#ifdef _WIN32
#define HERE(value, windows) windows
#else
#define HERE(value, windows) value
#endif

extern char **environ;

static const struct {
	const char *name;
	const char *fallback;
} variables[KI_NEO_N_VARIABLES] = {
#define VARIABLE(id, of_name, value, windows)                                  \
	[KI_NEO_##id] = { of_name, HERE(value, windows) },
	KI_NEO_VARIABLES(VARIABLE)
#undef VARIABLE
};

const char *ki_neo_variable_name(enum ki_neo_variable variable)
{
	return variables[variable].name;
}

const char *ki_neo_variable_default(enum ki_neo_variable variable)
{
	return variables[variable].fallback;
}

/* Where the cache is if NEO_CACHE_DIR does not say so. */
static const struct {
	const char *variable;
	const char *below;
	const char *why;
} places[] = {
#ifdef _WIN32
	{ "LocalAppData", "\\NEO\\neo_compiler_cache", "%LocalAppData%" },
#else
	{ "XDG_CACHE_HOME", "/neo_compiler_cache", "$XDG_CACHE_HOME" },
	{ "HOME", "/.cache/neo_compiler_cache", "$HOME/.cache" },
#endif
};

/* ---- Telling ------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void tell(
	struct ki_neo_environment *environment, const char *words, ...)
{
	va_list args;

	if (environment->n_lines == KI_NEO_LINES_MAX)
		return;
	va_start(args, words);
	(void)vsnprintf(environment->lines[environment->n_lines++],
			KI_NEO_LINE_MAX, words, args);
	va_end(args);
}

/* The first one is told. */
__attribute__((format(printf, 2, 3))) static void complain(
	struct ki_neo_environment *environment, const char *words, ...)
{
	va_list args;

	if (!environment->is_wrong) {
		va_start(args, words);
		(void)vsnprintf(environment->wrong, sizeof(environment->wrong),
				words, args);
		va_end(args);
	}
	environment->is_wrong = 1;
}

/* ---- Values ------------------------------------------------------------------- */

/* NULL if it is not set. */
/* As the driver does. */
static long long read_as_driver(const char *text)
{
	return strtoll(text, NULL, 10);
}

static const char *words_of_switch(const char *text)
{
	return read_as_driver(text) ? "and caches" : "and caches nothing";
}

static void read_persistent(struct ki_neo_environment *environment)
{
	const char *text = environment->text[KI_NEO_PERSISTENT];
	int value = 1;

	environment->is_on = 1;
	if (!text)
		return;
	if (!*text) {
		tell(environment,
		     "NEO_CACHE_PERSISTENT: \"\" counts as unset here; Intel's "
		     "driver reads 0 and caches nothing");
		return;
	}
	if (ki_parse_bool(text, &value)) {
		complain(environment,
			 "NEO_CACHE_PERSISTENT: \"" SHOWN_MAX
			 "\" is not a yes or no, and nothing is cached here; "
			 "use 1 or 0 (Intel's driver reads %lld %s)",
			 text, read_as_driver(text), words_of_switch(text));
		return;
	}
	environment->is_on = value;
	if (value != !!read_as_driver(text))
		tell(environment,
		     "NEO_CACHE_PERSISTENT: \"%s\" turns the cache %s here; "
		     "Intel's driver reads %lld %s; use 1 or 0",
		     text, value ? "on" : "off", read_as_driver(text),
		     words_of_switch(text));
}

/* "1 byte", "no limit". */
static const char *words_of_limit(const char *text, char out[48])
{
	const long long value = read_as_driver(text);

	if (value <= 0)
		snprintf(out, 48, "no limit");
	else
		snprintf(out, 48, "%lld byte%s", value, value == 1 ? "" : "s");
	return out;
}

static void read_max_size(struct ki_neo_environment *environment)
{
	const char *text = environment->text[KI_NEO_MAX_SIZE];
	char theirs[48], ours[48];
	uint64_t value;

	(void)ki_parse_size(ki_neo_variable_default(KI_NEO_MAX_SIZE),
			    &environment->bytes_max);
	if (!text)
		return;
	if (!*text) {
		tell(environment,
		     "NEO_CACHE_MAX_SIZE: \"\" counts as unset here, which is "
		     "%s; Intel's driver reads 0, no limit",
		     ki_neo_variable_default(KI_NEO_MAX_SIZE));
		return;
	}
	words_of_limit(text, theirs);
	if (ki_parse_size(text, &value)) {
		complain(environment,
			 "NEO_CACHE_MAX_SIZE: \"" SHOWN_MAX
			 "\" is not a size, and nothing is cached here; use a "
			 "number of bytes (Intel's driver reads %s)",
			 text, theirs);
		return;
	}
	environment->bytes_max = value;
	if (value > INT64_MAX || (int64_t)value != read_as_driver(text))
		tell(environment,
		     "NEO_CACHE_MAX_SIZE: \"%s\" is %s here; Intel's driver "
		     "reads %s; use a number of bytes",
		     text, ki_format_size(value, ours, sizeof(ours)), theirs);
}

/* Of a debug key: no reason to cache nothing. */
static int read_switch(struct ki_neo_environment *environment,
		       enum ki_neo_variable variable, int fallback)
{
	const char *text = environment->text[variable];
	int value = fallback;

	if (text && *text && ki_parse_bool(text, &value)) {
		tell(environment,
		     "%s: \"" SHOWN_MAX
		     "\" is not a yes or no, and counts as unset "
		     "here; use 1 or 0",
		     ki_neo_variable_name(variable), text);
		value = fallback;
	}
	return value;
}

/* ---- The directory -------------------------------------------------------------- */

static int is_rooted(const char *path)
{
	return *path == '/' && strlen(path) < DIRECTORY_BYTES_MAX;
}

static void set_directory(struct ki_neo_environment *environment,
			  const char *directory, const char *below,
			  const char *why)
{
	size_t size = strlen(directory);

	while (size > 1 && directory[size - 1] == '/')
		size--;
	(void)snprintf(environment->directory, sizeof(environment->directory),
		       "%.*s%s", (int)size, directory, below);
	environment->why = why;
}

static void read_directory(struct ki_neo_environment *environment,
			   const char *const *list)
{
	const char *text = environment->text[KI_NEO_DIR];

	if (text && *text) {
		if (is_rooted(text))
			set_directory(environment, text, "", "NEO_CACHE_DIR");
		else
			complain(environment,
				 "NEO_CACHE_DIR: \"" SHOWN_MAX
				 "\" %s, and nothing is cached here; use a "
				 "path like /var/cache/neo (Intel's driver %s)",
				 text,
				 *text == '/' ? "is too long"
					      : "does not begin at the root",
				 *text == '/'
					 ? "ignores what has 4096 bytes"
					 : "begins at the working directory");
		return;
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		text = ki_find_variable(list, places[i].variable);
		if (!text || !*text)
			continue;
		if (is_rooted(text) && text[strspn(text, "/")]) {
			set_directory(environment, text, places[i].below,
				      places[i].why);
			return;
		}
		tell(environment,
		     "%s: \"" SHOWN_MAX "\" is not a path that can be used, "
		     "and is passed over here",
		     places[i].variable, text);
	}
	environment->why = "none: NEO_CACHE_DIR is not set, and XDG_CACHE_HOME "
			   "and HOME name no directory that can be used";
}

/* ---- Reading ---------------------------------------------------------------------- */

void ki_neo_environment_read(const char *const *list,
			     struct ki_neo_environment *out)
{
	int reads_keys;

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < KI_NEO_N_VARIABLES; i++)
		out->text[i] = ki_find_variable(list, variables[i].name);
	read_persistent(out);
	read_max_size(out);
	read_directory(out, list);
	out->keeps_stats = read_switch(out, KI_NEO_STATS, 0);
	reads_keys = read_switch(out, KI_NEO_READ_KEYS, 1);
	out->traces = read_switch(out, KI_NEO_TRACE, 0) && reads_keys;
	out->messages = read_switch(out, KI_NEO_MESSAGES, 0) && reads_keys;
	if (!out->is_on) {
		out->directory[0] = '\0';
		out->why = "none: NEO_CACHE_PERSISTENT turns the cache off";
	}
}

void ki_neo_environment(struct ki_neo_environment *out)
{
	ki_neo_environment_read(
		ki_process_is_secure() ? NULL : (const char *const *)environ,
		out);
}
