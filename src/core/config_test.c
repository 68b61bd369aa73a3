/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/config.h"
#include "sys/sys.h"

#define LINES_MAX 8

/* A config from these, with files in a directory of the test's own. */
static enum kiln_status load(const char *const *environment,
			     const char *system_text, const char *user_text,
			     struct kiln_config **out_config, char message[512])
{
	char *directory = harness_directory();
	char *system_file = harness_path(directory, "system.conf");
	char *folder = harness_path(directory, "kiln");
	char *user_file = harness_path(directory, "kiln/kiln.conf");
	const char *all[LINES_MAX + 2] = { NULL };
	const struct ki_config_sources sources = {
		.environment = all,
		.system_file = system_file,
	};
	char *home = NULL;
	enum kiln_status status;
	size_t n = 0;

	while (environment && environment[n] && n < LINES_MAX) {
		all[n] = environment[n];
		n++;
	}
	if (user_text) {
		if (mkdir(folder, 0700) ||
		    asprintf(&home, "XDG_CONFIG_HOME=%s", directory) < 0)
			abort();
		all[n] = home;
		harness_write(user_file, user_text, strlen(user_text));
	}
	if (system_text)
		harness_write(system_file, system_text, strlen(system_text));
	message[0] = '\0';
	status = ki_config_load(&sources, out_config, message, 512);
	free(home);
	free(user_file);
	free(folder);
	free(system_file);
	free(directory);
	return status;
}

static void the_strongest_place_wins(void **state)
{
	static const struct {
		const char *name;
		const char *environment[2];
		const char *user;
		const char *system;
		const char *value;
		const char *origin_end;
	} rows[] = {
		{ "default", { NULL }, NULL, NULL, "64M", "default" },
		{ "system",
		  { NULL },
		  NULL,
		  "memory = 1M\n",
		  "1M",
		  "system.conf:1" },
		{ "user",
		  { NULL },
		  "\n# x\nmemory = 2M",
		  "memory = 1M\n",
		  "2M",
		  "kiln.conf:3" },
		{ "environment",
		  { "KILN_MEMORY=3M" },
		  "memory = 2M\n",
		  "memory = 1M\n",
		  "3M",
		  "environment" },
		{ "empty is unset",
		  { "KILN_MEMORY=" },
		  "memory = 2M\n",
		  NULL,
		  "2M",
		  "kiln.conf:1" },
		{ "the last line",
		  { NULL },
		  "memory = 2M\nmemory=4M\r\n",
		  NULL,
		  "4M",
		  "kiln.conf:2" },
		{ "a comment behind",
		  { NULL },
		  "memory = 2M # less\n",
		  NULL,
		  "2M",
		  "kiln.conf:1" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_config *config;
		char message[512];
		const char *origin;

		assert_int_equal(load(rows[i].environment, rows[i].system,
				      rows[i].user, &config, message),
				 KILN_OK);
		assert_string_equal(kiln_config_value(config, KILN_SET_MEMORY),
				    rows[i].value);
		origin = kiln_config_origin(config, KILN_SET_MEMORY);
		assert_string_equal(origin + strlen(origin) -
					    strlen(rows[i].origin_end),
				    rows[i].origin_end);
		assert_null(kiln_config_warning(config, 0));
		kiln_config_free(config);
	}
}

static void wrong_values_are_named_and_not_used(void **state)
{
	static const struct {
		const char *environment[2];
		const char *user;
		const char *place;
		const char *right;
	} rows[] = {
		{ { "KILN_DISABLE=yes" },
		  NULL,
		  "KILN_DISABLE: \"yes\"",
		  "true" },
		{ { "KILN_READONLY=2" }, NULL, "KILN_READONLY: \"2\"", "off" },
		{ { "KILN_MAX_SIZE=1X" },
		  NULL,
		  "KILN_MAX_SIZE: \"1X\"",
		  "K, M, G or T" },
		{ { "KILN_MAX_SIZE=-1" },
		  NULL,
		  "KILN_MAX_SIZE: \"-1\"",
		  "size" },
		{ { "KILN_MAX_SIZE=99999999999T" },
		  NULL,
		  "KILN_MAX_SIZE",
		  "size" },
		{ { "KILN_MEMORY=lots" }, NULL, "KILN_MEMORY", "size" },
		{ { "KILN_LOCK_TIMEOUT=1K" },
		  NULL,
		  "KILN_LOCK_TIMEOUT",
		  "milliseconds" },
		{ { "KILN_LOCK_TIMEOUT=9999999999" },
		  NULL,
		  "KILN_LOCK_TIMEOUT",
		  "milliseconds" },
		{ { "KILN_DIR=cache" },
		  NULL,
		  "KILN_DIR: \"cache\"",
		  "from the root" },
		{ { "KILN_STORE=/cache" },
		  NULL,
		  "KILN_STORE: \"/cache\"",
		  "log:DIR" },
		{ { "KILN_STORE=log:cache" }, NULL, "KILN_STORE", "log:DIR" },
		{ { "KILN_STORE=log:" }, NULL, "KILN_STORE", "log:DIR" },
		{ { "KILN_STORE=pack:x" }, NULL, "KILN_STORE", "pack:FILE" },
		{ { "KILN_PACKS=a.pack" },
		  NULL,
		  "KILN_PACKS: pack 1, \"a.pack\": ",
		  "from the root" },
		{ { "KILN_SIGNING_KEY=../a" },
		  NULL,
		  "KILN_SIGNING_KEY: \"../a\"",
		  "name of a key" },
		{ { "KILN_PACKS=/a,b" },
		  NULL,
		  "KILN_PACKS: pack 2, \"b\": ",
		  "from the root" },
		{ { "KILN_PACKS=/a,,/b" },
		  NULL,
		  "KILN_PACKS: pack 2: ",
		  "empty; a comma" },
		{ { "KILN_PACKS=https://h/a https://h/b" },
		  NULL,
		  "KILN_PACKS: pack 1, \"https://h/a https://h/b\": ",
		  "blank in a URL; a comma separates" },
		{ { "KILN_PACKS=/p,s3://bucket/a\thttp://h/b" },
		  NULL,
		  "KILN_PACKS: pack 2, ",
		  "blank in a URL; a comma separates" },
		{ { "KILN_PACKS=/a b.pack http://h/b" },
		  NULL,
		  "KILN_PACKS: pack 1, ",
		  "behind a blank; a comma separates" },
		{ { "KILN_PACKS=/a, /b" },
		  NULL,
		  "KILN_PACKS: pack 2, \" /b\": ",
		  "without a blank" },
		{ { "KILN_PACKS=https://h:port/a" },
		  NULL,
		  "KILN_PACKS: pack 1, \"https://h:port/a\": https://h: ",
		  "from 1 to 65535" },
		{ { "KILN_PACKS=https://h/a#timeout=soon" },
		  NULL,
		  "KILN_PACKS: pack 1, \"https://h/a#timeout=soon\": ",
		  "timeout=MS" },
		{ { "KILN_PACKS=https://h/a#read-only" },
		  NULL,
		  "KILN_PACKS: pack 1, \"https://h/a#read-only\": ",
		  "timeout=MS" },
		{ { "KILN_PACKS=https://h/a#timeout=5#ca=/f" },
		  NULL,
		  "KILN_PACKS: pack 1, \"https://h/a#timeout=5#ca=/f\": ",
		  "timeout=MS" },
		{ { "KILN_PACKS=https://h/a#ca=/f,no-lease" },
		  NULL,
		  "KILN_PACKS: pack 2, \"no-lease\": ",
		  "from the root" },
		{ { "KILN_PACKS=a\033[2J\nb\177" },
		  NULL,
		  "KILN_PACKS: pack 1, \"a?[2J?b?\": ",
		  "from the root" },
		{ { "KILN_MAX_SIZE=a\033[2J\nb" },
		  NULL,
		  "KILN_MAX_SIZE: \"a?[2J?b\" ",
		  "is not a size" },
		{ { "KILN_STORE=neo:/d", "NEO_CACHE_PERSISTENT=a\033[2J" },
		  NULL,
		  "NEO_CACHE_PERSISTENT: \"a?[2J\" ",
		  "use 1 or 0" },
		{ { "KILN_PACKS=/1,/2,/3,/4,/5,/6,/7,/8,/9,/10,/11,/12,/13,/14,"
		    "/15,/16,/17" },
		  NULL,
		  "KILN_PACKS",
		  "more than 16" },
		{ { "KILN_PACKS=https://u:secret@h/p" },
		  NULL,
		  "KILN_PACKS: pack 1: https://...: ",
		  "KILN_REMOTE_CREDENTIALS" },
		{ { "KILN_PACKS=/p,https://h/p?sig=secret" },
		  NULL,
		  "KILN_PACKS: pack 2: ",
		  "KILN_REMOTE_CREDENTIALS" },
		{ { "KILN_PACKS=/a,https://h/p#tll=7d" },
		  NULL,
		  "KILN_PACKS: pack 2, \"https://h/p#tll=7d\": ",
		  "timeout=MS" },
		{ { "KILN_REMOTE=unix:/a?db=1 http://h/p?sig=secret" },
		  NULL,
		  "KILN_REMOTE: level 2: http://h: ",
		  "nothing may follow" },
		{ { "KILN_REMOTE=redis://u:secret@h" },
		  NULL,
		  "KILN_REMOTE: level 1: ",
		  "KILN_REMOTE_CREDENTIALS" },
		{ { "KILN_REMOTE=redis://a http://secret@b#ttl=7d" },
		  NULL,
		  "KILN_REMOTE: level 2: ",
		  "KILN_REMOTE_CREDENTIALS" },
		{ { "KILN_REMOTE=rediss://secret" },
		  NULL,
		  "KILN_REMOTE",
		  "stunnel" },
		{ { "KILN_REMOTE=secret" },
		  NULL,
		  "KILN_REMOTE",
		  "begins with redis://" },
		{ { "KILN_REMOTE=redis://a,,redis://b" },
		  NULL,
		  "KILN_REMOTE",
		  "begins with redis://" },
		{ { "KILN_REMOTE=redis://a#read-only redis://b#tll=7d" },
		  NULL,
		  "KILN_REMOTE: level 2: #tll= is not known",
		  "ttl=" },
		{ { "KILN_REMOTE=redis://a#ttl=soon" },
		  NULL,
		  "KILN_REMOTE: level 1: #ttl= is an age",
		  "7d" },
		{ { NULL },
		  "remote = https://h/p#zstd=20\n",
		  "remote: level 1: #zstd= is",
		  "0 (not compressed) to 19" },
		{ { "KILN_REMOTE_TRUST=yes" },
		  NULL,
		  "KILN_REMOTE_TRUST: \"yes\"",
		  "neither signed nor transport" },
		{ { "KILN_REMOTE_CREDENTIALS=x" },
		  NULL,
		  "KILN_REMOTE_CREDENTIALS",
		  "from the root" },
		{ { NULL },
		  "packs = a.pack\n",
		  "kiln.conf:1: packs: pack 1, \"a.pack\": ",
		  "from the root" },
		{ { "KILN_CONFIG=/nonexistent/x" },
		  NULL,
		  "KILN_CONFIG",
		  "cannot be read" },
		{ { "KILN_CONFIG=x" }, NULL, "KILN_CONFIG", "from the root" },
		{ { NULL },
		  "memory = lots\n",
		  "kiln.conf:1: memory: \"lots\"",
		  "size" },
		{ { NULL }, "\n\nmemory\n", "kiln.conf:3", "key = value" },
		{ { NULL },
		  "config = /etc/x\n",
		  "kiln.conf:1: config",
		  "environment" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_config *config = NULL;
		char message[512];

		assert_int_equal(load(rows[i].environment, NULL, rows[i].user,
				      &config, message),
				 KILN_E_INVALID);
		assert_non_null(strstr(message, rows[i].place));
		assert_non_null(strstr(message, rows[i].right));
		assert_null(strstr(message, "secret"));
		/* Written all the same, with the weaker values. */
		assert_non_null(config);
		assert_string_equal(
			kiln_config_value(config, KILN_SET_MAX_SIZE), "1G");
		assert_int_equal(kiln_config_number(config, KILN_SET_DISABLE),
				 0);
		kiln_config_free(config);
	}
}

static void numbers_are_parsed(void **state)
{
	static const struct {
		const char *text;
		enum kiln_setting setting;
		uint64_t number;
	} rows[] = {
		{ "KILN_DISABLE=1", KILN_SET_DISABLE, 1 },
		{ "KILN_DISABLE=true", KILN_SET_DISABLE, 1 },
		{ "KILN_DISABLE=on", KILN_SET_DISABLE, 1 },
		{ "KILN_SPOOL=0", KILN_SET_SPOOL, 0 },
		{ "KILN_SPOOL=false", KILN_SET_SPOOL, 0 },
		{ "KILN_SPOOL=off", KILN_SET_SPOOL, 0 },
		{ "KILN_MAX_SIZE=0", KILN_SET_MAX_SIZE, 0 },
		{ "KILN_MAX_SIZE=10k", KILN_SET_MAX_SIZE, 10240 },
		{ "KILN_MAX_SIZE=2T", KILN_SET_MAX_SIZE, (uint64_t)2 << 40 },
		{ "KILN_LOCK_TIMEOUT=250", KILN_SET_LOCK_TIMEOUT, 250 },
		{ "KILN_DIR=/x", KILN_SET_DIR, 0 },
		{ "HOME=/x", KILN_SET_KEEP_SOURCES, 1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *environment[2] = { rows[i].text };
		struct kiln_config *config;
		char message[512];

		assert_int_equal(
			load(environment, NULL, NULL, &config, message),
			KILN_OK);
		assert_int_equal(kiln_config_number(config, rows[i].setting),
				 rows[i].number);
		kiln_config_free(config);
	}
}

/* S28 */
static void the_directory_is_where_people_expect_it(void **state)
{
	static char long_home[5000] = "HOME=/",
		    long_cache[5000] = "XDG_CACHE_HOME=/";
	static const struct {
		const char *name;
		const char *environment[4];
		const char *directory;
		const char *url;
		const char *why;
	} rows[] = {
		{ "nothing set", { NULL }, NULL, NULL, "not set" },
		{ "HOME",
		  { "HOME=/home/u" },
		  "/home/u/.cache/kiln",
		  "log:/home/u/.cache/kiln",
		  "$HOME/.cache" },
		{ "XDG",
		  { "HOME=/home/u", "XDG_CACHE_HOME=/c" },
		  "/c/kiln",
		  "log:/c/kiln",
		  "$XDG_CACHE_HOME" },
		{ "relative XDG",
		  { "HOME=/home/u", "XDG_CACHE_HOME=c" },
		  "/home/u/.cache/kiln",
		  "log:/home/u/.cache/kiln",
		  "$HOME/.cache" },
		{ "relative XDG alone",
		  { "XDG_CACHE_HOME=c" },
		  NULL,
		  NULL,
		  "no directory" },
		{ "relative HOME", { "HOME=u" }, NULL, NULL, "no directory" },
		{ "HOME=/", { "HOME=/" }, NULL, NULL, "no directory" },
		{ "HOME=//", { "HOME=//" }, NULL, NULL, "no directory" },
		{ "long HOME", { long_home }, NULL, NULL, "no directory" },
		{ "long XDG",
		  { long_cache, "HOME=/h" },
		  "/h/.cache/kiln",
		  "log:/h/.cache/kiln",
		  "$HOME/.cache" },
		{ "not UTF-8",
		  { "HOME=/h\xff\x01" },
		  "/h\xff\x01/.cache/kiln",
		  "log:/h\xff\x01/.cache/kiln",
		  "$HOME/.cache" },
		{ "DIR",
		  { "HOME=/h", "KILN_DIR=/d" },
		  "/d",
		  "log:/d",
		  "KILN_DIR" },
		{ "DIR with #",
		  { "KILN_DIR=/d#1" },
		  "/d#1",
		  "log:/d#1/",
		  "KILN_DIR" },
		{ "STORE",
		  { "KILN_DIR=/d", "KILN_STORE=log:/s#name" },
		  "/s",
		  "log:/s#name",
		  "KILN_STORE" },
		{ "STORE of files",
		  { "KILN_STORE=file:/s#1" },
		  "/s#1",
		  "file:/s#1",
		  "KILN_STORE" },
		{ "STORE with # in the path",
		  { "KILN_STORE=log:/s#1/t" },
		  "/s#1/t",
		  "log:/s#1/t",
		  "KILN_STORE" },
	};

	memset(long_home + 6, 'h', sizeof(long_home) - 7);
	memset(long_cache + 16, 'c', sizeof(long_cache) - 17);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options;
		struct kiln_config *config;
		const char *why, *directory;
		char message[512];

		assert_int_equal(
			load(rows[i].environment, NULL, NULL, &config, message),
			KILN_OK);
		directory = kiln_config_directory(config, &why);
		assert_non_null(strstr(why, rows[i].why));
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		if (rows[i].directory) {
			char *spool = harness_path(directory, "spool");

			assert_string_equal(directory, rows[i].directory);
			assert_string_equal(options.store_url, rows[i].url);
			assert_string_equal(kiln_config_spool(config), spool);
			free(spool);
		} else {
			assert_null(directory);
			assert_null(options.store_url);
			assert_null(kiln_config_spool(config));
		}
		kiln_config_free(config);
	}
}

static void a_pack_as_the_store_has_no_spool(void **state)
{
	static const char *const environment[] = { "KILN_STORE=pack:/p/a#b",
						   "KILN_DISABLE=0", NULL };
	struct kiln_options options;
	struct kiln_config *config;
	char message[512];

	assert_int_equal(load(environment, NULL, NULL, &config, message),
			 KILN_OK);
	kiln_options_init(&options);
	kiln_config_options(config, &options);
	assert_string_equal(options.store_url, "pack:/p/a#b");
	assert_string_equal(kiln_config_directory(config, NULL), "/p/a#b");
	assert_null(kiln_config_spool(config));
	kiln_config_free(config);
}

static void unknown_names_are_warnings(void **state)
{
	static const char *const environment[] = { "KILN_MAXSIZE=1G", "KILN=1",
						   "XDG_CACHE_HOME=c",
						   "HOME=/h", NULL };
	struct kiln_config *config;
	char message[512];

	assert_int_equal(
		load(environment, "colour = red\n", NULL, &config, message),
		KILN_OK);
	assert_non_null(strstr(kiln_config_warning(config, 0),
			       "system.conf:1: colour"));
	assert_non_null(strstr(kiln_config_warning(config, 1), "KILN_MAXSIZE"));
	assert_non_null(
		strstr(kiln_config_warning(config, 2), "XDG_CACHE_HOME"));
	assert_null(kiln_config_warning(config, 3));
	kiln_config_free(config);
}

static void settings_become_options(void **state)
{
	static const char *const environment[] = {
		"KILN_MAX_SIZE=5G",
		"KILN_MEMORY=7M",
		"KILN_LOCK_TIMEOUT=11",
		"KILN_NAMESPACE=team",
		"KILN_READONLY=1",
		"KILN_SPOOL=0",
		"KILN_PACKS=/a b.pack,/c",
		"HOME=/h",
		NULL,
	};
	struct kiln_options options;
	struct kiln_config *config;
	char message[512];

	assert_int_equal(load(environment, NULL, NULL, &config, message),
			 KILN_OK);
	kiln_options_init(&options);
	kiln_config_options(config, &options);
	assert_int_equal(options.store_bytes_max, (uint64_t)5 << 30);
	assert_int_equal(options.memory_bytes_max, 7 << 20);
	assert_int_equal(options.lock_timeout_ms, 11);
	assert_string_equal(options.name_space, "team");
	assert_string_equal(options.packs, "/a b.pack,/c");
	assert_int_equal(options.flags, KILN_OPEN_READONLY);
	kiln_options_init(&options);
	options.flags = KILN_OPEN_GUEST;
	kiln_config_options(config, &options);
	assert_int_equal(options.flags, KILN_OPEN_GUEST | KILN_OPEN_ORDER |
						KILN_OPEN_READONLY);
	assert_null(kiln_config_spool(config));
	kiln_config_free(config);
}

static void a_directory_is_shared_only_if_it_is_named(void **state)
{
	static const struct {
		const char *environment[4];
		int is_shared;
		const char *spool; /* with the user's number behind it */
	} rows[] = {
		{ { "KILN_DIR=/d", "KILN_SHARED=1" }, 1, "/d/spool/" },
		{ { "KILN_STORE=file:/d", "KILN_SHARED=on" }, 1, "/d/spool/" },
		{ { "KILN_STORE=neo:/d", "KILN_SHARED=on" }, 1, "/d/spool/" },
		{ { "HOME=/h", "KILN_SHARED=1" }, 0, "/h/.cache/kiln/spool" },
		{ { "KILN_STORE=pack:/p", "KILN_SHARED=1" }, 0, NULL },
		{ { "KILN_DIR=/d", "KILN_SHARED=0" }, 0, "/d/spool" },
		{ { "KILN_DIR=/d" }, 0, "/d/spool" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct kiln_options options;
		struct kiln_config *config;
		char message[512], spool[64];

		assert_int_equal(
			load(rows[i].environment, NULL, NULL, &config, message),
			KILN_OK);
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		assert_int_equal(!!(options.flags & KILN_OPEN_SHARED),
				 rows[i].is_shared);
		if (rows[i].spool) {
			snprintf(spool, sizeof(spool), "%s", rows[i].spool);
			if (rows[i].is_shared)
				snprintf(spool, sizeof(spool), "%s%u",
					 rows[i].spool, ki_user_id());
			assert_string_equal(kiln_config_spool(config), spool);
		} else {
			assert_null(kiln_config_spool(config));
		}
		kiln_config_free(config);
	}
}

#define PUBLIC_A "a:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
#define PUBLIC_B "b:PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw="

/* In a file below `directory`, which is made. */
static void write_key(const char *directory, const char *folder,
		      const char *name, const char *text, unsigned mode)
{
	char *parent = harness_path(directory, folder);
	char *path = harness_path(parent, name);

	(void)mkdir(parent, 0700);
	harness_write(path, text, strlen(text));
	assert_int_equal(chmod(path, mode), 0);
	free(path);
	free(parent);
}

static struct kiln_config *load_keys(const char *user, const char *system,
				     const char *variable)
{
	char *home = NULL;
	struct kiln_config *config = NULL;
	char message[512] = "";

	if (asprintf(&home, "XDG_CONFIG_HOME=%s", user) < 0)
		abort();
	{
		const char *const environment[] = { home, variable, NULL };
		const struct ki_config_sources sources = {
			.environment = environment,
			.system_file = "/nonexistent",
			.system_directory = system,
		};

		assert_int_equal(ki_config_load(&sources, &config, message,
						sizeof(message)),
				 KILN_OK);
	}
	free(home);
	return config;
}

static void keys_are_found_and_a_secret_is_only_named(void **state)
{
	char *user = harness_directory(), *system = harness_directory();
	char *kiln = harness_path(user, "kiln");
	char *path = harness_path(kiln, "keys/default.secret");
	struct kiln_options options;
	struct kiln_config *config;

	assert_int_equal(mkdir(kiln, 0700), 0);
	kiln_options_init(&options);
	config = load_keys(user, system, NULL);
	kiln_config_options(config, &options);
	assert_int_equal(options.n_trusted_keys, 0);
	assert_null(options.signing_key);
	assert_string_equal(kiln_config_user_directory(config), kiln);
	kiln_config_free(config);

	write_key(kiln, "trusted-keys", "a.public", PUBLIC_A "\n", 0644);
	write_key(system, "trusted-keys", "b.public",
		  PUBLIC_B "\n" PUBLIC_A "\n", 0644);
	/* Whatever is in it: nobody reads it before it is needed. */
	write_key(kiln, "keys", "default.secret", "x", 0644);
	config = load_keys(user, system, NULL);
	kiln_config_options(config, &options);
	assert_int_equal(options.n_trusted_keys, 2);
	assert_string_equal(options.trusted_keys[0], PUBLIC_A);
	assert_string_equal(options.trusted_keys[1], PUBLIC_B);
	assert_string_equal(options.signing_key, path);
	assert_null(kiln_config_warning(config, 0));
	kiln_config_free(config);

	config = load_keys(user, NULL, "KILN_SIGNING_KEY=ci");
	kiln_config_options(config, &options);
	assert_int_equal(options.n_trusted_keys, 1);
	assert_non_null(strstr(options.signing_key, "/keys/ci.secret"));
	kiln_config_free(config);
	free(path);
	free(kiln);
	free(system);
	free(user);
}

static void keys_that_others_could_have_written_are_warnings(void **state)
{
	char *user = harness_directory(), *kiln = harness_path(user, "kiln");
	struct kiln_options options;
	struct kiln_config *config;

	assert_int_equal(mkdir(kiln, 0700), 0);
	write_key(kiln, "trusted-keys", "a.public", PUBLIC_A "\n", 0644);
	write_key(kiln, "trusted-keys", "b.public", PUBLIC_B "\n", 0666);
	config = load_keys(user, NULL, NULL);
	kiln_options_init(&options);
	kiln_config_options(config, &options);
	assert_int_equal(options.n_trusted_keys, 1);
	assert_non_null(strstr(kiln_config_warning(config, 0),
			       "b.public: can be written by everyone"));
	assert_null(kiln_config_warning(config, 1));
	kiln_config_free(config);
	free(kiln);
	free(user);
}

/* S51: else whoever can spoil the keys is rid of the signatures. */
static void keys_that_cannot_be_had_still_require_signatures(void **state)
{
	static const struct {
		const char *text;
		mode_t file_mode, folder_mode;
		int requires;
	} rows[] = {
		{ PUBLIC_A "\n", 0644, 0755, 0 }, /* its key does */
		{ "# none yet\n", 0644, 0755, 0 },
		{ PUBLIC_A "\n", 0666, 0755, 1 },
		{ PUBLIC_A "\n", 0644, 0777, 1 },
		{ "a:damaged\n", 0644, 0755, 1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *user = harness_directory();
		char *kiln = harness_path(user, "kiln");
		char *folder = harness_path(kiln, "trusted-keys");
		struct kiln_options options;
		struct kiln_config *config;

		assert_int_equal(mkdir(kiln, 0700), 0);
		write_key(kiln, "trusted-keys", "a.public", rows[i].text,
			  rows[i].file_mode);
		assert_int_equal(chmod(folder, rows[i].folder_mode), 0);
		config = load_keys(user, NULL, NULL);
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		assert_int_equal(!!(options.flags & KILN_OPEN_SIGNED),
				 rows[i].requires);
		assert_int_equal(options.n_trusted_keys, i == 0);
		kiln_config_free(config);
		free(folder);
		free(kiln);
		free(user);
	}
}

/* A store that is not there leaves the servers; one that nobody wants does not. */
static void what_is_switched_off_has_no_servers(void **state)
{
	static const struct {
		const char *environment[5];
		int has_servers;
	} rows[] = {
		{ { "KILN_REMOTE=redis://h" }, 1 },
		{ { "KILN_REMOTE=redis://h", "KILN_DISABLE=1" }, 0 },
		{ { "KILN_REMOTE=redis://h", "KILN_STORE=neo:" }, 1 },
		{ { "KILN_REMOTE=redis://h",
		    "KILN_STORE=neo:", "NEO_CACHE_PERSISTENT=0" },
		  0 },
		{ { "KILN_REMOTE=redis://h", "KILN_STORE=neo:/s",
		    "NEO_CACHE_PERSISTENT=0" },
		  1 },
		{ { "KILN_REMOTE=redis://h", "KILN_STORE=log:/s",
		    "NEO_CACHE_PERSISTENT=0" },
		  1 },
		{ { "KILN_REMOTE=redis://h",
		    "KILN_STORE=sycl:", "SYCL_CACHE_PERSISTENT=0" },
		  1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options;
		struct kiln_config *config;
		char message[512];

		assert_int_equal(
			load(rows[i].environment, NULL, NULL, &config, message),
			KILN_OK);
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		if (!!options.remote != rows[i].has_servers)
			fail_msg("row %zu", i);
		kiln_config_free(config);
	}
}

/* S38 */
static void secure_programs_have_everything_off(void **state)
{
	static const char *const environment[] = { "HOME=/h", "KILN_DIR=/d",
						   "KILN_DISABLE=0",
						   "KILN_PACKS=/p", NULL };
	const struct ki_config_sources sources = {
		.environment = environment,
		.system_file = "/nonexistent",
		.is_secure = 1,
	};
	struct kiln_options options;
	struct kiln_config *config;
	char message[512];
	const char *why;

	assert_int_equal(
		ki_config_load(&sources, &config, message, sizeof(message)),
		KILN_OK);
	assert_int_equal(kiln_config_number(config, KILN_SET_DISABLE), 1);
	assert_null(kiln_config_directory(config, &why));
	assert_non_null(strstr(why, "set-uid"));
	assert_null(kiln_config_spool(config));
	kiln_options_init(&options);
	kiln_config_options(config, &options);
	assert_null(options.store_url);
	assert_null(options.packs);
	kiln_config_free(config);
}

static void odd_files_do_no_harm(void **state)
{
	static const struct {
		const char *name;
		const char *text;
		size_t size;
		enum kiln_status status;
		size_t n_warnings;
	} rows[] = {
		{ "empty", "", 0, KILN_OK, 0 },
		{ "no newline", "memory=1M", 9, KILN_OK, 0 },
		{ "only blanks", " \t\n\n \r\n", 7, KILN_OK, 0 },
		{ "only =", "=\n", 2, KILN_OK, 1 },
		{ "value without key", " = 3\n", 5, KILN_OK, 1 },
		{ "no value", "memory =\n", 9, KILN_OK, 0 },
		{ "zeros", "a\0b", 3, KILN_E_INVALID, 0 },
	};
	char *directory = harness_directory();
	char *path = harness_path(directory, "file.conf");
	char *variable;

	assert_true(asprintf(&variable, "KILN_CONFIG=%s", path) > 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *environment[] = { variable, NULL };
		struct kiln_config *config;
		char message[512];
		size_t n = 0;

		harness_write(path, rows[i].text, rows[i].size);
		assert_int_equal(
			load(environment, NULL, NULL, &config, message),
			rows[i].status);
		while (kiln_config_warning(config, n))
			n++;
		assert_int_equal(n, rows[i].n_warnings);
		kiln_config_free(config);
	}
	free(variable);
	free(path);
	free(directory);
}

static void the_process_has_a_config(void **state)
{
	struct kiln_config *config;
	char message[512];

	assert_int_equal(setenv("KILN_DIR", "/somewhere", 1), 0);
	assert_int_equal(kiln_config_load(&config, message, sizeof(message)),
			 KILN_OK);
	assert_string_equal(kiln_config_directory(config, NULL), "/somewhere");
	assert_string_equal(kiln_config_origin(config, KILN_SET_PACKS),
			    "unset");
	kiln_config_free(config);
	kiln_config_free(NULL);
	unsetenv("KILN_DIR");
}

/* ---- The environment of Intel's driver ---------------------------------------- */

static size_t count_warnings(const struct kiln_config *config)
{
	size_t n = 0;

	while (kiln_config_warning(config, n))
		n++;
	return n;
}

static void a_neo_store_obeys_the_variables_of_its_driver(void **state)
{
	static const struct {
		const char *environment[5];
		enum kiln_status status;
		const char *directory;
		const char *url;
		uint64_t bytes_max;
		size_t n_warnings;
	} rows[] = {
		{ { "KILN_STORE=neo:", "HOME=/h" },
		  KILN_OK,
		  "/h/.cache/neo_compiler_cache",
		  "neo:/h/.cache/neo_compiler_cache",
		  1 << 30,
		  0 },
		{ { "KILN_STORE=neo:#tree", "NEO_CACHE_DIR=/n" },
		  KILN_OK,
		  "/n",
		  "neo:/n#tree",
		  1 << 30,
		  0 },
		{ { "KILN_STORE=neo:", "NEO_CACHE_DIR=/n#1" },
		  KILN_OK,
		  "/n#1",
		  "neo:/n#1/",
		  1 << 30,
		  0 },
		{ { "KILN_STORE=neo:", "HOME=/h", "NEO_CACHE_PERSISTENT=0" },
		  KILN_OK,
		  NULL,
		  NULL,
		  1 << 30,
		  0 },
		{ { "KILN_STORE=neo:", "NEO_CACHE_DIR=/n",
		    "NEO_CACHE_MAX_SIZE=5000" },
		  KILN_OK,
		  "/n",
		  "neo:/n",
		  5000,
		  0 },
		{ { "KILN_STORE=neo:", "NEO_CACHE_DIR=/n",
		    "NEO_CACHE_MAX_SIZE=1G", "NEO_CACHE_PERSISTENT=true" },
		  KILN_OK,
		  "/n",
		  "neo:/n",
		  1 << 30,
		  2 },
		{ { "KILN_STORE=neo:", "NEO_CACHE_DIR=/n",
		    "NEO_CACHE_MAX_SIZE=1GB" },
		  KILN_E_INVALID,
		  NULL,
		  NULL,
		  1 << 30,
		  0 },
		/* A directory that is named is used whatever they say, with their
		   limit, unless there is one of kiln's. */
		{ { "KILN_STORE=neo:/s#flat", "NEO_CACHE_DIR=/n",
		    "NEO_CACHE_MAX_SIZE=5000", "NEO_CACHE_PERSISTENT=0" },
		  KILN_OK,
		  "/s",
		  "neo:/s#flat",
		  5000,
		  0 },
		{ { "KILN_STORE=neo:/s", "KILN_MAX_SIZE=7000",
		    "NEO_CACHE_MAX_SIZE=5000" },
		  KILN_OK,
		  "/s",
		  "neo:/s",
		  7000,
		  0 },
		{ { "KILN_STORE=log:/s", "NEO_CACHE_MAX_SIZE=1GB",
		    "NEO_CACHE_PERSISTENT=true" },
		  KILN_OK,
		  "/s",
		  "log:/s",
		  1 << 30,
		  0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options;
		struct kiln_config *config;
		const char *directory;
		char message[512];

		assert_int_equal(
			load(rows[i].environment, NULL, NULL, &config, message),
			rows[i].status);
		if (rows[i].status)
			assert_non_null(strstr(message, "Intel's driver"));
		directory = kiln_config_directory(config, NULL);
		assert_int_equal(!directory, !rows[i].directory);
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		assert_int_equal(!options.store_url, !rows[i].url);
		if (rows[i].url) {
			assert_string_equal(directory, rows[i].directory);
			assert_string_equal(options.store_url, rows[i].url);
		}
		assert_int_equal(options.store_bytes_max, rows[i].bytes_max);
		assert_int_equal(count_warnings(config), rows[i].n_warnings);
		kiln_config_free(config);
	}
}

/* A limit of SYCL's, by its dialect. */
static void a_sycl_store_obeys_the_variables_of_sycl(void **state)
{
	static const struct {
		const char *environment[5];
		int looks;
		enum kiln_status status;
		const char *url;
		uint64_t bytes_max, age_max_s;
		size_t n_warnings;
	} rows[] = {
		{ { "KILN_STORE=sycl:", "HOME=/h" },
		  0,
		  KILN_OK,
		  "sycl:/h/.cache/libsycl_cache",
		  (uint64_t)8192 << 20,
		  7 * 86400,
		  0 },
		{ { "KILN_STORE=sycl:", "XDG_CACHE_HOME=/c", "HOME=/h" },
		  0,
		  KILN_OK,
		  "sycl:/c/libsycl_cache",
		  (uint64_t)8192 << 20,
		  7 * 86400,
		  0 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n#1",
		    "SYCL_CACHE_MAX_SIZE=5", "SYCL_CACHE_THRESHOLD=2" },
		  0,
		  KILN_OK,
		  "sycl:/n#1",
		  5 << 20,
		  2 * 86400,
		  1 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_MAX_SIZE=5000", "SYCL_CACHE_DIALECT=dpcpp" },
		  0,
		  KILN_OK,
		  "sycl:/n",
		  5000,
		  0,
		  0 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_EVICTION_DISABLE=1" },
		  0,
		  KILN_OK,
		  "sycl:/n",
		  0,
		  0,
		  0 },
		{ { "KILN_STORE=sycl:" }, 0, KILN_OK, NULL, 0, 0, 0 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_MAX_SIZE=1K" },
		  0,
		  KILN_E_INVALID,
		  NULL,
		  0,
		  0,
		  0 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_MAX_SIZE=10000000000000",
		    "SYCL_CACHE_DIALECT=dpcpp" },
		  0,
		  KILN_OK,
		  "sycl:/n",
		  10000000000000,
		  0,
		  0 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_MAX_SIZE=10000000000000",
		    "SYCL_CACHE_DIALECT=seed" },
		  0,
		  KILN_E_INVALID,
		  NULL,
		  0,
		  0,
		  0 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_MAX_SIZE=99999999999999999999",
		    "SYCL_CACHE_DIALECT=dpcpp" },
		  0,
		  KILN_E_INVALID,
		  NULL,
		  0,
		  0,
		  0 },
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_MAX_SIZE=1K" },
		  1,
		  KILN_OK,
		  "sycl:/n",
		  (uint64_t)8192 << 20,
		  7 * 86400,
		  1 },
		/* Where nobody knows where, nobody looks. */
		{ { "KILN_STORE=sycl:", "SYCL_CACHE_DIR=here" },
		  1,
		  KILN_E_INVALID,
		  NULL,
		  0,
		  0,
		  0 },
		/* A directory that is named has their limit, unless there is one of
		   kiln's. */
		{ { "KILN_STORE=sycl:/s", "SYCL_CACHE_DIR=/n",
		    "SYCL_CACHE_MAX_SIZE=5000", "SYCL_CACHE_DIALECT=dpcpp" },
		  0,
		  KILN_OK,
		  "sycl:/s",
		  5000,
		  0,
		  0 },
		{ { "KILN_STORE=sycl:/s", "SYCL_CACHE_MAX_SIZE=5000",
		    "SYCL_CACHE_DIALECT=seed", "KILN_MAX_SIZE=7000" },
		  0,
		  KILN_OK,
		  "sycl:/s",
		  7000,
		  0,
		  0 },
		{ { "KILN_STORE=log:/s", "SYCL_CACHE_MAX_SIZE=1K" },
		  0,
		  KILN_OK,
		  "log:/s",
		  1 << 30,
		  0,
		  0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options;
		struct kiln_config *config;
		char message[512] = "";
		const struct ki_config_sources sources = {
			.environment = rows[i].environment,
			.system_file = "/nowhere/kiln.conf",
			.is_looking = rows[i].looks,
		};

		assert_int_equal(ki_config_load(&sources, &config, message,
						sizeof(message)),
				 rows[i].status);
		if (rows[i].status)
			assert_memory_equal(message, "SYCL_CACHE_", 11);
		if (rows[i].status && rows[i].environment[3])
			assert_non_null(strstr(message, "too large"));
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		assert_int_equal(!options.store_url, !rows[i].url);
		if (rows[i].url) {
			assert_string_equal(options.store_url, rows[i].url);
			assert_int_equal(options.store_bytes_max,
					 rows[i].bytes_max);
			assert_int_equal(options.store_age_max_s,
					 rows[i].age_max_s);
		}
		assert_int_equal(count_warnings(config), rows[i].n_warnings);
		kiln_config_free(config);
	}
}

/* Of DPC++'s own directory, that of the store: its limit is in bytes. */
static void where_dpcpp_keeps_its_sum_its_dialect_holds(void **state)
{
	char *directory = harness_directory(), store[400];
	char *size = harness_path(directory, "cache_size.txt");
	const char *const environment[] = { store, "SYCL_CACHE_DIR=/n",
					    "SYCL_CACHE_MAX_SIZE=5000", NULL };
	const char *name, *value, *origin = "";
	struct kiln_options options;
	struct kiln_config *config;
	char message[512];

	harness_write(size, "0", 1);
	snprintf(store, sizeof(store), "KILN_STORE=sycl:%s", directory);
	assert_int_equal(load(environment, NULL, NULL, &config, message),
			 KILN_OK);
	for (size_t i = 0;
	     (name = kiln_config_foreign(config, i, &value, &origin)); i++)
		if (!strcmp(name, "SYCL_CACHE_DIALECT"))
			break;
	assert_string_equal(value, "dpcpp");
	assert_non_null(strstr(origin, "cache_size.txt"));
	kiln_options_init(&options);
	kiln_config_options(config, &options);
	assert_int_equal(options.store_bytes_max, 5000);
	assert_int_equal(count_warnings(config), 0);
	kiln_config_free(config);
	free(size);
	free(directory);
}

static void variables_of_others_are_shown_with_their_origin(void **state)
{
	static const struct {
		const char *name;
		const char *value;
		const char *origin;
	} rows[] = {
		{ "NEO_CACHE_PERSISTENT", "1", "default" },
		{ "NEO_CACHE_DIR", "/c/neo_compiler_cache", "$XDG_CACHE_HOME" },
		{ "NEO_CACHE_MAX_SIZE", "5000", "environment" },
		{ "NEO_CACHE_STATS", "0", "default" },
		{ "BinaryCacheTrace", "1", "environment" },
		{ "PrintDebugMessages", "0", "default" },
		{ "NEOReadDebugKeys", "1", "default" },
		{ "SYCL_CACHE_DIALECT", "seed", "default" },
		{ "SYCL_CACHE_PERSISTENT", "0", "default" },
		{ "SYCL_CACHE_IN_MEM", "0", "environment" },
		{ "SYCL_CACHE_DIR", "/c/libsycl_cache", "$XDG_CACHE_HOME" },
		{ "SYCL_CACHE_MAX_SIZE", "8192", "default" },
		{ "SYCL_CACHE_THRESHOLD", "7", "default" },
		{ "SYCL_CACHE_EVICTION_DISABLE", NULL, "unset" },
		{ "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD", "0", "default" },
		{ "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", "0", "default" },
		{ "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE", "1073741824", "default" },
		{ "SYCL_CACHE_TRACE", "3", "environment" },
	};
	const char *const environment[] = {
		"XDG_CACHE_HOME=/c",  "NEO_CACHE_MAX_SIZE=5000",
		"BinaryCacheTrace=1", "SYCL_CACHE_IN_MEM=0",
		"SYCL_CACHE_TRACE=3", NULL
	};
	struct kiln_config *config;
	char message[512];

	assert_int_equal(load(environment, NULL, NULL, &config, message),
			 KILN_OK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *value, *origin;

		assert_string_equal(
			kiln_config_foreign(config, i, &value, &origin),
			rows[i].name);
		assert_true(!value == !rows[i].value);
		if (value)
			assert_string_equal(value, rows[i].value);
		assert_string_equal(origin, rows[i].origin);
	}
	assert_null(kiln_config_foreign(config, 1000, NULL, NULL));
	kiln_config_free(config);
}

static void a_store_that_is_named_wins(void **state)
{
	static const struct {
		const char *url;
		enum kiln_status status;
		const char *directory;
		const char *store_url;
	} rows[] = {
		{ "log:/a#b", KILN_OK, "/a", "log:/a#b" },
		{ "file:/a#b", KILN_OK, "/a#b", "file:/a#b" },
		{ "neo:/a#tree", KILN_OK, "/a", "neo:/a#tree" },
		{ "neo:#tree", KILN_OK, "/n", "neo:/n#tree" },
		{ "sycl:/a#b", KILN_OK, "/a#b", "sycl:/a#b" },
		{ "sycl:", KILN_OK, "/s", "sycl:/s" },
		{ "log:", KILN_E_INVALID, NULL, NULL },
		{ "other:/a", KILN_E_INVALID, NULL, NULL },
		{ "/a", KILN_E_INVALID, NULL, NULL },
	};
	const char *const environment[] = { "KILN_DISABLE=1", "KILN_DIR=/d",
					    "NEO_CACHE_DIR=/n",
					    "SYCL_CACHE_DIR=/s", NULL };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options;
		struct kiln_config *config;
		char message[512];

		assert_int_equal(
			load(environment, NULL, NULL, &config, message),
			KILN_OK);
		assert_int_equal(kiln_config_use_store(config, rows[i].url,
						       message,
						       sizeof(message)),
				 rows[i].status);
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		if (rows[i].status) {
			assert_null(options.store_url);
			assert_string_equal(kiln_config_directory(config, NULL),
					    "/d");
		} else {
			assert_string_equal(options.store_url,
					    rows[i].store_url);
			assert_string_equal(kiln_config_directory(config, NULL),
					    rows[i].directory);
			assert_string_equal(
				kiln_config_origin(config, KILN_SET_STORE),
				"command line");
		}
		kiln_config_free(config);
	}
}

static void a_relative_store_begins_at_the_working_directory(void **state)
{
	struct kiln_config *config;
	const char *directory;
	char message[512];

	assert_int_equal(load(NULL, NULL, NULL, &config, message), KILN_OK);
	assert_int_equal(kiln_config_use_store(config, "log:some/where#name",
					       message, sizeof(message)),
			 KILN_OK);
	directory = kiln_config_directory(config, NULL);
	assert_int_equal(*directory, '/');
	assert_string_equal(directory + strlen(directory) - 11, "/some/where");
	kiln_config_free(config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_strongest_place_wins),
		cmocka_unit_test(wrong_values_are_named_and_not_used),
		cmocka_unit_test(numbers_are_parsed),
		cmocka_unit_test(the_directory_is_where_people_expect_it),
		cmocka_unit_test(a_pack_as_the_store_has_no_spool),
		cmocka_unit_test(unknown_names_are_warnings),
		cmocka_unit_test(settings_become_options),
		cmocka_unit_test(a_directory_is_shared_only_if_it_is_named),
		cmocka_unit_test(keys_are_found_and_a_secret_is_only_named),
		cmocka_unit_test(
			keys_that_others_could_have_written_are_warnings),
		cmocka_unit_test(
			keys_that_cannot_be_had_still_require_signatures),
		cmocka_unit_test(what_is_switched_off_has_no_servers),
		cmocka_unit_test(secure_programs_have_everything_off),
		cmocka_unit_test(odd_files_do_no_harm),
		cmocka_unit_test(the_process_has_a_config),
		cmocka_unit_test(a_neo_store_obeys_the_variables_of_its_driver),
		cmocka_unit_test(a_sycl_store_obeys_the_variables_of_sycl),
		cmocka_unit_test(where_dpcpp_keeps_its_sum_its_dialect_holds),
		cmocka_unit_test(
			variables_of_others_are_shown_with_their_origin),
		cmocka_unit_test(a_store_that_is_named_wins),
		cmocka_unit_test(
			a_relative_store_begins_at_the_working_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
