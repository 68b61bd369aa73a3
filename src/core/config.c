/* SPDX-License-Identifier: MIT */

/*
 * Settings: one table of what there is, four places that are read from the
 * weakest to the strongest, and one function that every value passes.
 *
 *	defaults < /etc/kiln.conf < $XDG_CONFIG_HOME/kiln/kiln.conf < environment
 *
 * A wrong value is an error that names its place; the value from the weaker
 * place stays, for tools that show the rest.  A name that does not exist is a
 * warning: it may come from a newer version.
 *
 * A file has lines of `key = value`.  # begins a comment at the start of a line
 * or after a blank, so that log:DIR#NAME is a value.
 */

#include "core/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "core/cache.h"
#include "core/sycl.h"
#include "sign/files.h"
#include "store/neo/environment.h"
#include "sys/sys.h"

#define WHY_BYTES      768 /* of what is wrong with a list */
#define SYSTEM_FILE    "/etc/kiln.conf"
#define FILE_BYTES_MAX ((size_t)64 << 10)
#define WARNINGS_MAX   64
/* Room below a directory for the names that kiln makes in it. */
#define DIRECTORY_BYTES_MAX (KI_PATH_MAX - 128)

extern char **environ;

enum type {
	TEXT,
	BOOL,
	SIZE,
	MILLISECONDS,
	ROOTED,
	LIBRARY,
	KEY_NAME,
	STORE,
	PACKS,
	SERVERS,
	TRUST
};

static const struct {
	enum type type;
	const char *fallback;
} settings[KILN_N_SETTINGS] = {
#define SETTING(id, of_type, value) [KILN_SET_##id] = { of_type, value }
	SETTING(DISABLE, BOOL, "0"),
	SETTING(DIR, ROOTED, NULL),
	SETTING(STORE, STORE, NULL),
	SETTING(MAX_SIZE, SIZE, "1G"),
	SETTING(MEMORY, SIZE, "64M"),
	SETTING(READONLY, BOOL, "0"),
	SETTING(PACKS, PACKS, NULL),
	SETTING(REMOTE, SERVERS, NULL),
	SETTING(NAMESPACE, TEXT, NULL),
	SETTING(LOG, ROOTED, NULL),
	SETTING(TRACE, BOOL, "0"),
	SETTING(CONFIG, ROOTED, NULL),
	SETTING(SPOOL, BOOL, "1"),
	SETTING(KEEP_SOURCES, BOOL, "1"),
	SETTING(LOCK_TIMEOUT, MILLISECONDS, "60000"),
	SETTING(REMOTE_CREDENTIALS, ROOTED, NULL),
	SETTING(D3D12_DEVELOPER, BOOL, "0"),
	SETTING(ZE_DRIVER, LIBRARY, NULL),
	SETTING(SIGNING_KEY, KEY_NAME, NULL),
	SETTING(REMOTE_TRUST, TRUST, "signed"),
	SETTING(SHARED, BOOL, "0"),
#undef SETTING
};

static const struct {
	const char *variable; /* in the environment */
	const char *key;      /* in files */
} names[KILN_N_SETTINGS] = {
#define NAMES(id, env, conf) [KILN_SET_##id] = { env, conf },
	KILN_SETTINGS(NAMES)
#undef NAMES
};

struct value {
	char *text; /* or NULL */
	char *origin;
	uint64_t number;
};

/* A variable of another program that some kinds of store obey. */
struct foreign {
	const char *name;
	char *text;
	const char *origin;
};

/* Those of Intel's driver, then those of SYCL. */
#define N_FOREIGN (KI_NEO_N_VARIABLES + KI_SYCL_N_VARIABLES)

struct kiln_config {
	struct value values[KILN_N_SETTINGS];
	char *warnings[WARNINGS_MAX];
	size_t n_warnings;
	char *directory; /* or NULL */
	char *why;
	char *url;	      /* of the store, or NULL */
	char *spool;	      /* or NULL */
	char *user_directory; /* or NULL */
	char *signing_key;    /* the path of its file, or NULL */
	char **trusted;	      /* texts of public keys */
	size_t n_trusted;
	int misses_keys; /* some that are meant to be trusted cannot be had */
	struct foreign foreign[N_FOREIGN];
	struct ki_neo_environment neo;
	struct ki_sycl_environment sycl;
	int is_looking;
	int no_memory;
};

/* What is being read: where to complain, and which line it is. */
struct reading {
	struct kiln_config *config;
	char *message; /* of the first error */
	size_t message_size;
	int failed;
};

/* ---- Complaining ----------------------------------------------------------- */

static char *format(struct kiln_config *config, const char *words, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, words);
	if (vasprintf(&text, words, args) < 0) {
		text = NULL;
		config->no_memory = 1;
	}
	va_end(args);
	return text;
}

static int is_warned(const struct kiln_config *config, const char *line)
{
	for (size_t i = 0; i < config->n_warnings; i++)
		if (!strcmp(config->warnings[i], line))
			return 1;
	return 0;
}

static void warn_line(struct kiln_config *config, const char *line)
{
	char *tame = format(config, "%s", line);

	if (!tame)
		return;
	(void)ki_tame_text(tame);
	if (config->n_warnings == WARNINGS_MAX || is_warned(config, tame))
		free(tame);
	else
		config->warnings[config->n_warnings++] = tame;
}

static void warn(struct kiln_config *config, const char *place,
		 const char *what)
{
	char *line = format(config, "%s: %s", place, what);

	if (line)
		warn_line(config, line);
	free(line);
}

/* The first error is the one that is told. */
static void complain_line(struct reading *reading, const char *line)
{
	if (!reading->failed && reading->message_size) {
		snprintf(reading->message, reading->message_size, "%s", line);
		(void)ki_tame_text(reading->message);
	}
	reading->failed = 1;
}

static void complain(struct reading *reading, const char *place,
		     const char *text, const char *right)
{
	char *line =
		format(reading->config, "%s: \"%s\" %s", place, text, right);

	complain_line(reading, line ? line : "out of memory");
	free(line);
}

/* Which says itself what of the value may be shown. */
static void complain_of_list(struct reading *reading, const char *place,
			     const char *fault)
{
	char *line = format(reading->config, "%s: %s", place, fault);

	complain_line(reading, line ? line : "out of memory");
	free(line);
}

/* ---- One value ------------------------------------------------------------- */

static int is_rooted(const char *path)
{
	return *path == '/' && strlen(path) < DIRECTORY_BYTES_MAX;
}

static int is_neo(const char *url)
{
	return url && !strncmp(url, "neo:", 4);
}

static int is_sycl(const char *url)
{
	return url && !strncmp(url, "sycl:", 5);
}

static int is_pack(const char *url)
{
	return url && !strncmp(url, "pack:", 5);
}

/* "neo:", "sycl:": the environment of Intel's driver, or SYCL's, says where. */
static int names_no_directory(const char *url)
{
	return (is_neo(url) && (!url[4] || url[4] == '#')) ||
	       (is_sycl(url) && !url[5]);
}

static int is_store(const char *text)
{
	const char *directory = strchr(text, ':');

	return (!strncmp(text, "log:", 4) || !strncmp(text, "file:", 5) ||
		is_sycl(text) || is_neo(text) || is_pack(text)) &&
	       (is_rooted(directory + 1) || names_no_directory(text));
}

/* NULL, or what is wrong and what would be right; of all but lists. */
static const char *check(enum type type, const char *text, uint64_t *out_number)
{
	int truth = 0;

	*out_number = 0;
	switch (type) {
	case TEXT:
		return NULL;
	case BOOL:
		if (ki_parse_bool(text, &truth))
			return "is not a yes or no; use 1, true, on or 0, "
			       "false, off";
		*out_number = (uint64_t)truth;
		return NULL;
	case SIZE:
		if (ki_parse_size(text, out_number))
			return "is not a size; use a number, with K, M, G or "
			       "T behind it or nothing";
		return NULL;
	case MILLISECONDS:
		if (text[strspn(text, "0123456789")] ||
		    ki_parse_size(text, out_number) || *out_number > UINT32_MAX)
			return "is not a number of milliseconds";
		return NULL;
	case ROOTED:
		return is_rooted(text) ? NULL
				       : "is not a path from the root, "
					 "like /var/cache/kiln, or is too long";
	case LIBRARY:
		return (*text && !strchr(text, '/')) || is_rooted(text)
			       ? NULL
			       : "is neither the name of a library nor a path "
				 "from the root";
	case KEY_NAME:
		return ki_sign_name_is_good(text, strlen(text))
			       ? NULL
			       : "is not the name of a key, 1 to 64 letters, "
				 "digits, dots, dashes or underscores";
	case STORE:
		return is_store(text) ? NULL
				      : "is not a store; use log:DIR, "
					"log:DIR#NAME, file:DIR, neo:DIR, "
					"sycl:DIR or pack:FILE, with DIR or "
					"FILE from the root, or neo: or sycl:";
	case TRUST:
		return ki_remote_trust_fault(text);
	case PACKS:
	case SERVERS:
		return NULL;
	}
	return NULL;
}

static void set_value(struct kiln_config *config, size_t i, const char *text,
		      const char *origin, uint64_t number)
{
	struct value value = { strdup(text), strdup(origin), number };

	if (!value.text || !value.origin) {
		config->no_memory = 1;
		free(value.text);
		free(value.origin);
		return;
	}
	free(config->values[i].text);
	free(config->values[i].origin);
	config->values[i] = value;
}

static void take_list(struct reading *reading, size_t i, const char *text,
		      const char *place, const char *origin)
{
	char why[WHY_BYTES];
	enum kiln_status status =
		settings[i].type == PACKS
			? ki_packs_check(text, why, sizeof(why))
			: ki_remote_check(text, why, sizeof(why));

	if (status == KILN_E_NO_MEMORY)
		reading->config->no_memory = 1;
	else if (status)
		complain_of_list(reading, place, why);
	else
		set_value(reading->config, i, text, origin, 0);
}

/* `place` is how an error names it, `origin` how kiln config does. */
static void take(struct reading *reading, size_t i, const char *text,
		 const char *place, const char *origin)
{
	uint64_t number;
	const char *fault;

	if (settings[i].type == PACKS || settings[i].type == SERVERS) {
		take_list(reading, i, text, place, origin);
		return;
	}
	fault = check(settings[i].type, text, &number);
	if (fault)
		complain(reading, place, text, fault);
	else
		set_value(reading->config, i, text, origin, number);
}

/* ---- Files ----------------------------------------------------------------- */

static char *trim(char *text)
{
	char *end;

	text += strspn(text, " \t\r");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r", end[-1]))
		end--;
	*end = '\0';
	return text;
}

static void cut_comment(char *line)
{
	for (char *c = line; *c; c++)
		if (*c == '#' && (c == line || c[-1] == ' ' || c[-1] == '\t')) {
			*c = '\0';
			return;
		}
}

static size_t find_name(const char *name)
{
	size_t i = 0;

	while (i < KILN_N_SETTINGS && strcmp(name, names[i].key))
		i++;
	return i;
}

static void read_line(struct reading *reading, char *line, const char *origin)
{
	char *name, *value, *place;
	size_t i;

	cut_comment(line);
	name = trim(line);
	if (!*name)
		return;
	value = strchr(name, '=');
	if (!value) {
		complain(reading, origin, name,
			 "is not of the form key = value");
		return;
	}
	*value++ = '\0';
	name = trim(name);
	value = trim(value);
	i = find_name(name);
	place = format(reading->config, "%s: %s", origin, name);
	if (!place)
		return;
	if (i == KILN_N_SETTINGS)
		warn(reading->config, place, "there is no such setting");
	else if (i == KILN_SET_CONFIG)
		complain(reading, place, value,
			 "can only be set in the environment");
	else if (*value)
		take(reading, i, value, place, origin);
	free(place);
}

static void read_lines(struct reading *reading, char *text, const char *path)
{
	unsigned number = 1;

	while (text) {
		char *next = strchr(text, '\n');
		char *origin = format(reading->config, "%s:%u", path, number);

		if (next)
			*next++ = '\0';
		if (origin)
			read_line(reading, text, origin);
		free(origin);
		text = next;
		number++;
	}
}

/* A file that is not there is none; one that was asked for must be. */
static void read_file(struct reading *reading, const char *path, int must)
{
	void *data;
	size_t size;
	int err =
		ki_read_file(&ki_sys_posix, path, FILE_BYTES_MAX, &data, &size);

	if (err == -ENOMEM) {
		reading->config->no_memory = 1;
	} else if (err && must) {
		complain(reading, "KILN_CONFIG", path, "cannot be read");
	} else if (err && err != -ENOENT && err != -ENOTDIR) {
		warn(reading->config, path, "cannot be read");
	} else if (!err) {
		if (memchr(data, '\0', size))
			complain(reading, path, "", "is not text");
		else
			read_lines(reading, data, path);
		free(data);
	}
}

/* ---- Environment ----------------------------------------------------------- */

/* NULL if unset or empty. */
static const char *lookup(const char *const *environment, const char *name)
{
	const char *value = ki_find_variable(environment, name);

	return value && *value ? value : NULL;
}

static int is_variable(const char *text)
{
	size_t size = strcspn(text, "=");

	for (size_t i = 0; i < KILN_N_SETTINGS; i++)
		if (strlen(names[i].variable) == size &&
		    !strncmp(names[i].variable, text, size))
			return 1;
	return 0;
}

static void read_environment(struct reading *reading,
			     const char *const *environment)
{
	for (size_t i = 0; i < KILN_N_SETTINGS; i++) {
		const char *text = lookup(environment, names[i].variable);

		if (text)
			take(reading, i, text, names[i].variable,
			     "environment");
	}
	for (; environment && *environment; environment++) {
		char *name;

		if (strncmp(*environment, "KILN_", 5) ||
		    is_variable(*environment))
			continue;
		name = strndup(*environment, strcspn(*environment, "="));
		if (name)
			warn(reading->config, name, "there is no such setting");
		free(name);
	}
}

static void find_user_directory(struct kiln_config *config,
				const char *const *environment)
{
	const char *home = lookup(environment, "XDG_CONFIG_HOME");

	if (home && is_rooted(home)) {
		config->user_directory = format(config, "%s/kiln", home);
		return;
	}
	home = lookup(environment, "HOME");
	if (home && is_rooted(home))
		config->user_directory =
			format(config, "%s/.config/kiln", home);
}

/* The user's file: $KILN_CONFIG, or where XDG puts it. */
static void read_user_file(struct reading *reading,
			   const char *const *environment)
{
	const char *chosen = lookup(environment, "KILN_CONFIG");
	const char *directory = reading->config->user_directory;
	char *path;

	if (chosen) {
		/* If it is no path, read_environment() says so. */
		if (is_rooted(chosen))
			read_file(reading, chosen, 1);
		return;
	}
	if (!directory)
		return;
	path = format(reading->config, "%s/kiln.conf", directory);
	if (path)
		read_file(reading, path, 0);
	free(path);
}

/* ---- Keys ------------------------------------------------------------------ */

/* Who has put keys there wants signatures, whatever became of the keys. */
static void complain_of_key(void *arg, const char *path, const char *why)
{
	struct kiln_config *config = arg;

	warn(config, path, why);
	config->misses_keys = 1;
}

static void trust_below(struct kiln_config *config, const char *directory,
			struct ki_sign_trust *trust)
{
	char *path =
		directory ? format(config, "%s/%s", directory, KI_SIGN_TRUSTED)
			  : NULL;

	if (path && ki_sign_read_trusted(&ki_sys_posix, path, trust,
					 complain_of_key, config))
		config->no_memory = 1;
	free(path);
}

static void keep_trusted(struct kiln_config *config,
			 const struct ki_sign_trust *trust)
{
	char text[KI_SIGN_TEXT_BYTES];

	if (!trust->n_keys)
		return;
	config->trusted = calloc(trust->n_keys, sizeof(*config->trusted));
	if (!config->trusted) {
		config->no_memory = 1;
		return;
	}
	for (size_t i = 0; i < trust->n_keys; i++) {
		ki_sign_public_print(&trust->keys[i], text);
		config->trusted[i] = format(config, "%s", text);
		config->n_trusted++;
	}
}

/*
 * The path alone: who signs reads the secret then, and no longer than it takes.
 * A key named "default" need not be asked for.
 */
static void find_signing_key(struct kiln_config *config)
{
	const char *name = config->values[KILN_SET_SIGNING_KEY].text;
	struct ki_file_info info;
	char *path;

	if (!config->user_directory)
		return;
	path = format(config, "%s/%s/%s%s", config->user_directory,
		      KI_SIGN_KEYS, name ? name : KI_SIGN_DEFAULT,
		      KI_SIGN_SECRET);
	if (path && !name && ki_sys_posix.lstat(&ki_sys_posix, path, &info)) {
		free(path);
		path = NULL;
	}
	config->signing_key = path;
}

static void find_keys(struct kiln_config *config, const char *system_directory)
{
	struct ki_sign_trust trust = { 0 };

	trust_below(config, config->user_directory, &trust);
	trust_below(config, system_directory, &trust);
	keep_trusted(config, &trust);
	ki_sign_trust_fini(&trust);
	find_signing_key(config);
}

/* ---- The environment of Intel's driver ------------------------------------- */

static void note_foreign(struct kiln_config *config, size_t i, const char *name,
			 const char *text, const char *origin)
{
	struct foreign *foreign = &config->foreign[i];

	free(foreign->text);
	foreign->name = name;
	foreign->text = *text ? strdup(text) : NULL;
	foreign->origin = origin;
	if (*text && !foreign->text)
		config->no_memory = 1;
}

static void read_neo(struct kiln_config *config, const char *const *environment)
{
	struct ki_neo_environment *neo = &config->neo;

	ki_neo_environment_read(environment, neo);
	for (enum ki_neo_variable i = 0; i < KI_NEO_N_VARIABLES; i++) {
		const char *name = ki_neo_variable_name(i);

		if (neo->text[i])
			note_foreign(config, i, name, neo->text[i],
				     "environment");
		else if (i == KI_NEO_DIR)
			note_foreign(config, i, name, neo->directory, neo->why);
		else
			note_foreign(config, i, name,
				     ki_neo_variable_default(i), "default");
		/* The environment may change after this. */
		neo->text[i] = NULL;
	}
}

/* Who only looks reads on, as long as it is known where. */
static void tell_wrong(struct reading *reading, const char *wrong,
		       const char *directory)
{
	struct kiln_config *config = reading->config;

	if (config->is_looking &&
	    (*directory ||
	     !names_no_directory(config->values[KILN_SET_STORE].text)))
		warn_line(config, wrong);
	else
		complain_line(reading, wrong);
}

static void use_neo(struct reading *reading)
{
	struct kiln_config *config = reading->config;
	const struct ki_neo_environment *neo = &config->neo;

	for (size_t i = 0; i < neo->n_lines; i++)
		warn_line(config, neo->lines[i]);
	if (neo->is_wrong)
		tell_wrong(reading, neo->wrong, neo->directory);
}

/* ---- The environment of SYCL ----------------------------------------------- */

static void note_sycl(struct kiln_config *config)
{
	const struct ki_sycl_environment *sycl = &config->sycl;

	for (int i = 0; i < KI_SYCL_N_VARIABLES; i++) {
		const enum ki_sycl_variable variable = (enum ki_sycl_variable)i;
		const char *text = sycl->text[i], *origin = "environment";

		if (!text) {
			text = ki_sycl_variable_default(sycl, variable);
			origin = i == KI_SYCL_DIALECT ? sycl->dialect_why
				 : i == KI_SYCL_DIR   ? sycl->why
				 : *text	      ? "default"
						      : "unset";
		}
		if (!sycl->text[i] && i == KI_SYCL_DIR)
			text = sycl->directory;
		if (sycl->text[i] && *text && !sycl->is_given[i])
			origin = "environment, not understood";
		note_foreign(config, KI_NEO_N_VARIABLES + (size_t)i,
			     ki_sycl_variable_name(variable), text, origin);
	}
}

/* The dialect is that of the directory, if it is SYCL's. */
static void read_sycl(struct kiln_config *config,
		      const char *const *environment)
{
	const char *url = config->values[KILN_SET_STORE].text;
	struct ki_sycl_environment *sycl = &config->sycl;

	ki_sycl_environment_read(environment, sycl);
	if (is_sycl(url) && !names_no_directory(url))
		ki_sycl_environment_choose(sycl, url + 5);
	note_sycl(config);
	/* The environment may change after this. */
	memset(sycl->text, 0, sizeof(sycl->text));
}

static void use_sycl(struct reading *reading)
{
	struct kiln_config *config = reading->config;
	const char *url = config->values[KILN_SET_STORE].text;
	const struct ki_sycl_environment *sycl = &config->sycl;

	if (names_no_directory(url))
		for (size_t i = 0; i < sycl->n_lines; i++)
			warn_line(config, sycl->lines[i]);
	else
		ki_sycl_environment_choose(&config->sycl, url + 5);
	if (sycl->is_given[KI_SYCL_MAX_SIZE] && sycl->bytes_max &&
	    !sycl->is_dpcpp && !sycl->is_given[KI_SYCL_DIALECT])
		warn(config, "SYCL_CACHE_MAX_SIZE",
		     "in megabytes here, as SYCL's documents have it; DPC++ "
		     "reads bytes; SYCL_CACHE_DIALECT=seed or dpcpp says "
		     "which");
	if (sycl->is_wrong)
		tell_wrong(reading, sycl->wrong, sycl->directory);
}

/* What is wrong with variables matters to who obeys them. */
static void use_foreign(struct reading *reading)
{
	const char *url = reading->config->values[KILN_SET_STORE].text;

	if (is_neo(url))
		use_neo(reading);
	if (is_sycl(url))
		use_sycl(reading);
}

/* ---- The directory --------------------------------------------------------- */

/* A name like one in `settings`, as people find it. */
static char *say_origin(struct kiln_config *config, enum kiln_setting setting)
{
	const char *origin = config->values[setting].origin;

	if (!strcmp(origin, "environment"))
		return format(config, "%s", names[setting].variable);
	return format(config, "%s, %s", names[setting].key, origin);
}

/* A slash at the end keeps a # in the last name from starting a store's. */
static const char *slash_for(const char *directory)
{
	const char *last = strrchr(directory, '/');

	return last && strchr(last, '#') ? "/" : "";
}

/* "neo:" or "neo:#NAME", by the environment of Intel's driver. */
static void choose_from_neo(struct kiln_config *config)
{
	const struct ki_neo_environment *neo = &config->neo;

	config->why = format(config, "%s", neo->why);
	if (!*neo->directory || (neo->is_wrong && !config->is_looking))
		return;
	config->directory = format(config, "%s", neo->directory);
	config->url = format(config, "neo:%s%s%s", neo->directory,
			     slash_for(neo->directory),
			     config->values[KILN_SET_STORE].text + 4);
}

/* "sycl:", by the environment of SYCL. */
static void choose_from_sycl(struct kiln_config *config)
{
	const struct ki_sycl_environment *sycl = &config->sycl;

	config->why = format(config, "%s", sycl->why);
	if (!*sycl->directory || (sycl->is_wrong && !config->is_looking))
		return;
	config->directory = format(config, "%s", sycl->directory);
	config->url = format(config, "sycl:%s", sycl->directory);
}

/* From log:DIR#NAME; a # with a slash behind it is part of the directory. */
static void choose_from_url(struct kiln_config *config)
{
	const char *url = config->values[KILN_SET_STORE].text;
	const char *directory = strchr(url, ':') + 1;
	const int has_name =
		strncmp(url, "file:", 5) != 0 && !is_sycl(url) && !is_pack(url);
	const char *name = has_name ? strrchr(directory, '#') : NULL;

	if (name && strchr(name, '/'))
		name = NULL;
	config->directory =
		format(config, "%.*s",
		       name ? (int)(name - directory) : (int)strlen(directory),
		       directory);
	config->url = format(config, "%s", url);
	config->why = say_origin(config, KILN_SET_STORE);
}

static void choose(struct kiln_config *config, char *directory, char *why)
{
	config->directory = directory;
	config->why = why;
	if (directory)
		config->url = format(config, "log:%s%s", directory,
				     slash_for(directory));
}

static void choose_by_home(struct kiln_config *config,
			   const char *const *environment)
{
	const char *cache = lookup(environment, "XDG_CACHE_HOME");
	const char *home = lookup(environment, "HOME");

	if (cache && *cache != '/')
		warn(config, "XDG_CACHE_HOME",
		     "not a path from the root, so it is not used");
	if (cache && is_rooted(cache))
		choose(config, format(config, "%s/kiln", cache),
		       format(config, "$XDG_CACHE_HOME"));
	else if (home && is_rooted(home) && home[strspn(home, "/")])
		choose(config, format(config, "%s/.cache/kiln", home),
		       format(config, "$HOME/.cache"));
	else if (!home && !cache)
		config->why = format(config, "none: KILN_DIR, XDG_CACHE_HOME "
					     "and HOME are not set");
	else
		config->why = format(config, "none: KILN_DIR is not set, and "
					     "XDG_CACHE_HOME and HOME name no "
					     "directory that can be used");
}

/* Only a directory that somebody has named: no other is a group's by intent. */
static int is_shared(const struct kiln_config *config)
{
	const char *url = config->values[KILN_SET_STORE].text;

	return config->values[KILN_SET_SHARED].number &&
	       (url ? !names_no_directory(url) && !is_pack(url)
		    : config->values[KILN_SET_DIR].text != NULL);
}

static void choose_spool(struct kiln_config *config)
{
	if (is_shared(config))
		config->spool = format(config, "%s/spool/%u", config->directory,
				       ki_user_id());
	else
		config->spool = format(config, "%s/spool", config->directory);
}

static void choose_directory(struct kiln_config *config,
			     const char *const *environment)
{
	const char *text = config->values[KILN_SET_DIR].text;
	const char *url = config->values[KILN_SET_STORE].text;

	if (names_no_directory(url) && is_sycl(url))
		choose_from_sycl(config);
	else if (names_no_directory(url))
		choose_from_neo(config);
	else if (url)
		choose_from_url(config);
	else if (text)
		choose(config, format(config, "%s", text),
		       say_origin(config, KILN_SET_DIR));
	else
		choose_by_home(config, environment);
	/* A pack is a file, and nothing is ever added to it. */
	if (config->directory && config->values[KILN_SET_SPOOL].number &&
	    !is_pack(url))
		choose_spool(config);
}

static void forget_directory(struct kiln_config *config)
{
	free(config->directory);
	free(config->why);
	free(config->url);
	free(config->spool);
	config->directory = config->why = config->url = config->spool = NULL;
}

/* ---- Loading --------------------------------------------------------------- */

static void turn_off(struct kiln_config *config)
{
	set_value(config, KILN_SET_DISABLE, "1", "set-uid program", 1);
	set_value(config, KILN_SET_SPOOL, "0", "set-uid program", 0);
	config->why = format(config, "none: a set-uid program uses no cache");
}

enum kiln_status ki_config_load(const struct ki_config_sources *sources,
				struct kiln_config **out_config, char *message,
				size_t message_size)
{
	struct kiln_config *config = calloc(1, sizeof(*config));
	struct reading reading = { config, message, message_size, 0 };

	if (!config)
		return KILN_E_NO_MEMORY;
	config->is_looking = sources->is_looking;
	for (size_t i = 0; i < KILN_N_SETTINGS; i++)
		if (settings[i].fallback)
			take(&reading, i, settings[i].fallback, "default",
			     "default");
	read_neo(config, sources->is_secure ? NULL : sources->environment);
	if (sources->is_secure) {
		turn_off(config);
	} else {
		find_user_directory(config, sources->environment);
		read_file(&reading, sources->system_file, 0);
		read_user_file(&reading, sources->environment);
		read_environment(&reading, sources->environment);
	}
	read_sycl(config, sources->is_secure ? NULL : sources->environment);
	if (!sources->is_secure) {
		use_foreign(&reading);
		choose_directory(config, sources->environment);
		find_keys(config, sources->system_directory);
	}
	if (config->no_memory) {
		kiln_config_free(config);
		return KILN_E_NO_MEMORY;
	}
	*out_config = config;
	return reading.failed ? KILN_E_INVALID : KILN_OK;
}

static enum kiln_status load(int is_looking, struct kiln_config **out_config,
			     char *message, size_t message_size)
{
	const struct ki_config_sources sources = {
		.environment = (const char *const *)environ,
		.system_file = SYSTEM_FILE,
		.system_directory = KI_SIGN_SYSTEM,
		.is_secure = ki_process_is_secure(),
		.is_looking = is_looking,
	};

	return ki_config_load(&sources, out_config, message, message_size);
}

enum kiln_status kiln_config_load(struct kiln_config **out_config,
				  char *message, size_t message_size)
{
	return load(0, out_config, message, message_size);
}

enum kiln_status kiln_config_load_to_look(struct kiln_config **out_config,
					  char *message, size_t message_size)
{
	return load(1, out_config, message, message_size);
}

void kiln_config_free(struct kiln_config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < KILN_N_SETTINGS; i++) {
		free(config->values[i].text);
		free(config->values[i].origin);
	}
	for (size_t i = 0; i < config->n_warnings; i++)
		free(config->warnings[i]);
	for (size_t i = 0; i < N_FOREIGN; i++)
		free(config->foreign[i].text);
	for (size_t i = 0; i < config->n_trusted; i++)
		free(config->trusted[i]);
	free(config->trusted);
	free(config->signing_key);
	free(config->user_directory);
	forget_directory(config);
	free(config);
}

/* "log:DIR#NAME" with DIR from the root, from malloc(); NULL: it is no store, or
   there is no memory. */
static char *absolute_url(struct kiln_config *config, const char *url)
{
	const char *directory = strchr(url, ':');
	char path[KI_PATH_MAX];

	if (!directory++)
		return NULL;
	if (*directory == '/' || !*directory || *directory == '#')
		return format(config, "%s", url);
	if (ki_absolute_path(path, directory))
		return NULL;
	return format(config, "%.*s%s", (int)(directory - url), url, path);
}

enum kiln_status kiln_config_use_store(struct kiln_config *config,
				       const char *url, char *message,
				       size_t message_size)
{
	struct reading reading = { config, message, message_size, 0 };
	char *absolute = absolute_url(config, url);

	if (config->no_memory) {
		free(absolute);
		return KILN_E_NO_MEMORY;
	}
	if (!absolute || !is_store(absolute)) {
		free(absolute);
		complain_line(&reading, "it is not a store");
		return KILN_E_INVALID;
	}
	set_value(config, KILN_SET_STORE, absolute, "command line", 0);
	set_value(config, KILN_SET_DISABLE, "0", "command line", 0);
	free(absolute);
	forget_directory(config);
	use_foreign(&reading);
	choose_directory(config, NULL);
	if (config->no_memory)
		return KILN_E_NO_MEMORY;
	return reading.failed ? KILN_E_INVALID : KILN_OK;
}

/* ---- Asking ---------------------------------------------------------------- */

const char *kiln_config_value(const struct kiln_config *config,
			      enum kiln_setting setting)
{
	return (unsigned)setting < KILN_N_SETTINGS
		       ? config->values[setting].text
		       : NULL;
}

const char *kiln_config_origin(const struct kiln_config *config,
			       enum kiln_setting setting)
{
	if ((unsigned)setting >= KILN_N_SETTINGS ||
	    !config->values[setting].origin)
		return "unset";
	return config->values[setting].origin;
}

uint64_t kiln_config_number(const struct kiln_config *config,
			    enum kiln_setting setting)
{
	return (unsigned)setting < KILN_N_SETTINGS
		       ? config->values[setting].number
		       : 0;
}

const char *kiln_config_warning(const struct kiln_config *config, size_t n)
{
	return n < config->n_warnings ? config->warnings[n] : NULL;
}

const char *kiln_config_foreign(const struct kiln_config *config, size_t n,
				const char **out_value, const char **out_origin)
{
	if (n >= N_FOREIGN)
		return NULL;
	*out_value = config->foreign[n].text;
	*out_origin = config->foreign[n].origin;
	return config->foreign[n].name;
}

const char *kiln_config_directory(const struct kiln_config *config,
				  const char **out_why)
{
	if (out_why)
		*out_why = config->why;
	return config->directory;
}

const char *kiln_config_spool(const struct kiln_config *config)
{
	return config->spool;
}

const char *kiln_config_user_directory(const struct kiln_config *config)
{
	return config->user_directory;
}

/* By KILN_DISABLE, or by the driver's own variable where its store is the one. */
static int is_off(const struct kiln_config *config)
{
	const char *url = config->values[KILN_SET_STORE].text;

	return kiln_config_number(config, KILN_SET_DISABLE) ||
	       (is_neo(url) && names_no_directory(url) && !config->neo.is_on);
}

/* A directory shared with others has the limit that they obey. */
static uint64_t bytes_max(const struct kiln_config *config)
{
	const char *url = config->values[KILN_SET_STORE].text;
	const int is_default = !strcmp(
		kiln_config_origin(config, KILN_SET_MAX_SIZE), "default");

	if (is_default && is_neo(url))
		return config->neo.bytes_max;
	if (is_default && is_sycl(url))
		return config->sycl.bytes_max;
	return kiln_config_number(config, KILN_SET_MAX_SIZE);
}

void kiln_config_options(const struct kiln_config *config,
			 struct kiln_options *options)
{
	if (!kiln_config_number(config, KILN_SET_DISABLE))
		options->store_url = config->url;
	options->store_bytes_max = bytes_max(config);
	if (names_no_directory(config->values[KILN_SET_STORE].text) &&
	    is_sycl(config->values[KILN_SET_STORE].text))
		options->store_age_max_s = config->sycl.age_max_s;
	options->memory_bytes_max = kiln_config_number(config, KILN_SET_MEMORY);
	options->lock_timeout_ms =
		(uint32_t)kiln_config_number(config, KILN_SET_LOCK_TIMEOUT);
	options->name_space = kiln_config_value(config, KILN_SET_NAMESPACE);
	if (!kiln_config_number(config, KILN_SET_DISABLE))
		options->packs = kiln_config_value(config, KILN_SET_PACKS);
	/* Who has none on purpose has no servers in its place. */
	if (!is_off(config)) {
		options->remote = kiln_config_value(config, KILN_SET_REMOTE);
		options->remote_credentials =
			kiln_config_value(config, KILN_SET_REMOTE_CREDENTIALS);
		options->remote_trust =
			kiln_config_value(config, KILN_SET_REMOTE_TRUST);
	}
	options->trusted_keys = (const char *const *)config->trusted;
	options->n_trusted_keys = config->n_trusted;
	options->signing_key = config->signing_key;
	if (config->misses_keys)
		options->flags |= KILN_OPEN_SIGNED;
	if (kiln_config_number(config, KILN_SET_READONLY))
		options->flags |= KILN_OPEN_READONLY;
	if (is_shared(config))
		options->flags |= KILN_OPEN_SHARED;
	if (!kiln_config_number(config, KILN_SET_KEEP_SOURCES))
		options->flags |= KILN_OPEN_NO_SOURCES;
	if (options->flags & KILN_OPEN_GUEST)
		options->flags |= KILN_OPEN_ORDER;
}
