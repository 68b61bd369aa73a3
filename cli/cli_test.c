/* SPDX-License-Identifier: MIT */

/* The verbs that look into a store, as a shell sees them. */

#include "testing.h"
#include "harness/harness.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>

static const char *program;
static const char *settings_document;

/* ---- Around it ----------------------------------------------------------------- */

static struct spawn tool(const char *directory, const char *name,
			 const char *option)
{
	static char setting[600];
	struct spawn spawn = { .program = program };

	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	spawn.arguments[0] = name;
	spawn.arguments[1] = option;
	spawn.variables[0] = setting;
	spawn.variables[1] = "OPENCL_LAYERS";
	spawn.variables[2] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[3] = "COLUMNS";
	return spawn;
}

static struct ended ask(const char *directory, const char *name,
			const char *option)
{
	struct spawn spawn = tool(directory, name, option);

	return spawn_run(&spawn);
}

/* Run `kiln NAME --json`, which must end so, and parse it. */
static json_t *ask_json(const char *directory, const char *name, int status)
{
	struct ended ended = ask(directory, name, "--json");
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_int_equal(status_of(&ended), status);
	assert_non_null(json);
	assert_int_equal(json_integer_value(json_object_get(json, "schema")),
			 1);
	ended_free(&ended);
	return json;
}

static int number_of(const json_t *json, const char *name)
{
	return (int)json_integer_value(json_object_get(json, name));
}

static struct kiln_metadata *metadata_of(unsigned i)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, 1000000 + i);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 5000000);
	kiln_metadata_add_u64(metadata, KILN_META_STAGE, 1);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, "opencl");
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 "/usr/bin/an-application");
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 "-DX=\033[31m1 -cl-fast-relaxed-math -DY=2");
	if (i == 2)
		kiln_metadata_add_u64(metadata, KILN_META_FLAGS,
				      KILN_ENTRY_HIDDEN);
	return metadata;
}

/* Two entries and a hidden one. */
static void fill(const char *directory)
{
	struct kiln_options options;
	struct kiln *kiln;
	char *url;
	unsigned i;

	assert_true(asprintf(&url, "log:%s", directory) > 0);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	for (i = 0; i < 3; i++) {
		struct kiln_metadata *metadata = metadata_of(i);
		struct kiln_key *key = kiln_key_new();

		kiln_key_add(key, "number", &i, sizeof(i));
		kiln_key_add_digest(key, "source", "source", 6);
		kiln_key_add_absent(key, "include a.h");
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		assert_int_equal(kiln_put(kiln, key, "value", 5, metadata, 0),
				 KILN_OK);
		kiln_key_free(key);
		kiln_metadata_free(metadata);
	}
	kiln_count(kiln, KILN_COUNT_MISS_INCLUDE, 3);
	kiln_count(kiln, KILN_COUNT_HITS_STORE, 5);
	kiln_close(kiln);
	free(url);
}

static char *filled(void)
{
	char *directory = harness_directory();

	fill(directory);
	return directory;
}

static int has_escape(const char *text)
{
	return strchr(text, '\033') != NULL;
}

static size_t longest_line(const char *text)
{
	size_t longest = 0;

	while (*text) {
		size_t length = strcspn(text, "\n");

		if (length > longest)
			longest = length;
		text += length + (text[length] == '\n');
	}
	return longest;
}

/* ---- The command line ------------------------------------------------------------ */

static void usage_errors_have_status_2_and_one_line(void **state)
{
	static const char *const rows[][2] = {
		{ NULL },
		{ "lss" },
		{ "ls", "--nope" },
		{ "ls", "too-much" },
		{ "ls", "--store" },
		{ "show" },
		{ "extract" },
		{ "ls", "--json=1" },
		{ "help", "nope" },
		{ "show", "xyz" },
		{ "why", "xyz" },
		{ "ls", "--store=x" },
		{ "ls", "--store=tape:/x" },
		{ "ls", "--store=log:" },
	};
	char *directory = harness_directory();
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended = ask(directory, rows[i][0], rows[i][1]);

		assert_int_equal(status_of(&ended), 2);
		assert_string_equal(ended.out, "");
		assert_memory_equal(ended.err, "kiln: ", 6);
		assert_ptr_equal(strchr(ended.err, '\n') + 1,
				 ended.err + strlen(ended.err));
		ended_free(&ended);
	}
	free(directory);
}

static void errors_name_the_thing_and_the_remedy(void **state)
{
	static const struct {
		const char *arguments[4];
		int status;
		const char *words;
	} rows[] = {
		{ { "ls", "-lx" }, 2, "no option '-x'; see 'kiln ls --help'" },
		{ { "ls", "--lon" }, 2, "no option '--lon'" },
		{ { "ls", "--all=1" }, 2, "--all takes no argument" },
		{ { "extract", "123456", "-o" }, 2, "--output needs FILE" },
		{ { "ls", "--store=foo" }, 2, "or pack:FILE" },
		{ { "ls", "/a/b" }, 2, "as a store it is 'log:/a/b'" },
		{ { "ls", "log:/a", "log:/b" }, 2, "'log:/b' is too much" },
		{ { "show", "12345" }, 2, "6 to 32 hexadecimal digits" },
		{ { "show", "ffffff" }, 3, "no entry begins with 'ffffff'" },
		{ { "key" }, 2, "new|ls|show|trust|distrust|rotate" },
		{ { "key", "new" }, 2, "needs NAME" },
		{ { "key", "ls", "all" }, 2, "'all' is too much" },
		{ { "import", "/no/pack" }, 3, "there is no pack /no/pack" },
		{ { "export", "/no/pack" }, 1, "no such directory" },
		{ { "verify", "pack:/no" }, 3, "there is no pack /no" },
	};
	char *directory = filled();

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = tool(directory, NULL, NULL);
		struct ended ended;

		memcpy(spawn.arguments, rows[i].arguments,
		       sizeof(rows[i].arguments));
		ended = spawn_run(&spawn);
		if (status_of(&ended) != rows[i].status ||
		    !strstr(ended.err, rows[i].words))
			fail_msg("%s: %d, %s", rows[i].words, status_of(&ended),
				 ended.err);
		ended_free(&ended);
	}
	free(directory);
}

/* As everywhere: letters together, and what the last one takes behind it. */
static void letters_may_stand_together(void **state)
{
	char *directory = filled(), *file = harness_path(directory, "out");
	struct spawn spawn = tool(directory, "ls", "-al");
	struct ended ended = spawn_run(&spawn);
	char key[13], upper[13], *option, *value;
	size_t size;

	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "BUILT IN"));
	snprintf(key, sizeof(key), "%s", strchr(ended.out, '\n') + 1);
	ended_free(&ended);
	for (size_t i = 0; i < sizeof(key); i++)
		upper[i] = (char)toupper((unsigned char)key[i]);
	assert_true(asprintf(&option, "-o%s", file) > 0);
	spawn = tool(directory, "extract", option);
	spawn.arguments[2] = upper;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	value = harness_read(file, &size);
	assert_int_equal(size, 5);
	assert_memory_equal(value, "value", 5);
	ended_free(&ended);
	free(value);
	free(option);
	free(file);
	free(directory);
}

static void the_version_is_told(void **state)
{
	struct ended ended = ask("/", "--version", NULL);
	char wanted[32];

	snprintf(wanted, sizeof(wanted), "kiln %d.%d.%d\n", KILN_VERSION_MAJOR,
		 KILN_VERSION_MINOR, KILN_VERSION_PATCH);
	assert_int_equal(status_of(&ended), 0);
	assert_memory_equal(ended.out, wanted, strlen(wanted));
	assert_non_null(strstr(ended.out, "\nstores: log "));
	ended_free(&ended);
}

static void every_setting_is_documented(void **state)
{
	static const char *const names[] = {
#define NAME(id, env, conf) "`" env "`",
		KILN_SETTINGS(NAME)
#undef NAME
	};
	char *text = harness_read(settings_document, NULL);
	size_t i;

	assert_non_null(text);
	for (i = 0; i < KILN_N_SETTINGS; i++)
		assert_non_null(strstr(text, names[i]));
	free(text);
}

/* ---- Listing ---------------------------------------------------------------------- */

static void ls_shows_entries_and_hides_bookkeeping(void **state)
{
	char *directory = filled();
	json_t *json = ask_json(directory, "ls", 0), *entries, *entry;
	struct spawn spawn = tool(directory, "ls", "--json");
	struct ended ended;

	entries = json_object_get(json, "entries");
	assert_int_equal(json_array_size(entries), 2);
	entry = json_array_get(entries, 0);
	assert_int_equal(number_of(entry, "bytes"), 5);
	assert_int_equal(number_of(entry, "stage"), 1);
	assert_int_equal(number_of(entry, "build_ns"), 5000000);
	assert_string_equal(json_string_value(json_object_get(entry, "front")),
			    "opencl");
	assert_int_equal(
		strlen(json_string_value(json_object_get(entry, "key"))), 32);
	json_decref(json);

	spawn.arguments[2] = "--all";
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(json, "entries")), 3);
	json_decref(json);
	ended_free(&ended);
	free(directory);
}

/* S61 */
static void tables_fit_and_carry_no_escapes(void **state)
{
	static const char *const widths[] = { "COLUMNS=40", "COLUMNS=80",
					      "COLUMNS=200", "COLUMNS" };
	static const char *const verbs[] = { "ls", "config", "stats" };
	char *directory = filled();
	size_t i, j;

	for (i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
		for (j = 0; j < sizeof(verbs) / sizeof(*verbs); j++) {
			struct spawn spawn = tool(directory, verbs[j], NULL);
			struct ended ended;
			int width = atoi(widths[i] + 7 + !!widths[i][7]);

			spawn.variables[3] = widths[i];
			ended = spawn_run(&spawn);
			assert_int_equal(status_of(&ended), 0);
			assert_false(has_escape(ended.out));
			if (width && j < 1)
				assert_true(longest_line(ended.out) <=
					    (size_t)width);
			ended_free(&ended);
		}
	}
	free(directory);
}

static void use_terminal(void *arg)
{
	if (dup2(*(int *)arg, 1) != 1)
		_exit(99);
}

/* S61: on a terminal, and an entry that tries to speak to it. */
static void colours_are_for_terminals_that_want_them(void **state)
{
	static const struct {
		const char *variables[3];
		int is_colourful;
	} rows[] = {
		{ { "TERM=xterm", "NO_COLOR" }, 1 },
		{ { "TERM=xterm", "NO_COLOR=1" }, 0 },
		{ { "TERM=dumb", "NO_COLOR" }, 0 },
		{ { "TERM", "NO_COLOR" }, 0 },
	};
	char *directory = filled();
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = tool(directory, "ls", NULL);
		struct ended ended;
		int master, terminal;
		char *text;

		assert_int_equal(openpty(&master, &terminal, NULL, NULL, NULL),
				 0);
		spawn.variables[4] = rows[i].variables[0];
		spawn.variables[5] = rows[i].variables[1];
		spawn.before = use_terminal;
		spawn.arg = &terminal;
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 0);
		close(terminal);
		text = read_to_end(master);
		assert_non_null(strstr(text, "an-application"));
		assert_int_equal(has_escape(text), rows[i].is_colourful);
		assert_null(strstr(text, "\033[31m"));
		free(text);
		ended_free(&ended);
	}
	free(directory);
}

/* Nor do settings, arguments and names speak to it; and a complaint is one
   line. */
static void what_is_repeated_is_harmless(void **state)
{
	static const struct {
		const char *verb;
		const char *argument;
		const char *variable;
	} rows[] = {
		{ "stats", NULL, "KILN_DIR=/nowhere/a\033[2Jb" },
		{ "config", NULL, "KILN_DIR=/nowhere/a\033[2Jb" },
		{ "doctor", NULL, "KILN_DIR=/nowhere/a\033[2Jb" },
		{ "ls", NULL, "KILN_MAX_SIZE=a\033[2J\nkiln: all is well" },
		{ "ls", NULL, "KILN_CONFIG=/nowhere/a\033[2J\nb" },
		{ "ls", NULL, "KILN_STORE=log:/nowhere/\302\2332J\n#\033" },
		{ "config", NULL, "KILN_A\033[2J\nB=1" },
		{ "a\033[2J\nb", NULL, "KILN_DIR=/nowhere" },
		{ "ls", "--a\033[2J\nb", "KILN_DIR=/nowhere" },
		{ "show", "a\033[2J\nb", "KILN_DIR=/nowhere" },
		{ "why", "a\033[2J\nb", "KILN_DIR=/nowhere" },
		{ "run", "a\033[2J\nb", "KILN_DIR=/nowhere" },
	};
	char *directory = filled();
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn =
			tool(directory, rows[i].verb, rows[i].argument);
		struct ended ended;
		const char *line;

		spawn.variables[3] = rows[i].variable;
		ended = spawn_run(&spawn);
		assert_false(has_escape(ended.out));
		assert_false(has_escape(ended.err));
		assert_null(strstr(ended.err, "\302\233"));
		for (line = ended.err; *line; line = strchr(line, '\n') + 1) {
			assert_int_equal(strncmp(line, "kiln: ", 6), 0);
			assert_int_not_equal(strncmp(line, "kiln: all", 9), 0);
		}
		ended_free(&ended);
	}
	free(directory);
}

static void show_finds_an_entry_by_its_beginning(void **state)
{
	char *directory = filled(), key[33];
	json_t *json = ask_json(directory, "ls", 0), *fields;
	struct spawn spawn;
	struct ended ended;

	snprintf(key, sizeof(key), "%.8s",
		 json_string_value(json_object_get(
			 json_array_get(json_object_get(json, "entries"), 0),
			 "key")));
	json_decref(json);

	spawn = tool(directory, "show", key);
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "an-application"));
	assert_non_null(strstr(ended.out, "include a.h"));
	assert_false(has_escape(ended.out));
	ended_free(&ended);

	spawn.arguments[2] = "--json";
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	fields = json_object_get(json_object_get(json, "entry"), "fields");
	assert_int_equal(json_array_size(fields), 3);
	json_decref(json);
	ended_free(&ended);

	spawn = tool(directory, "show", "0123456789");
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 3);
	ended_free(&ended);
	free(directory);
}

/* ---- Counting ---------------------------------------------------------------------- */

static void stats_have_every_counter(void **state)
{
	char *directory = filled();
	json_t *json = ask_json(directory, "stats", 0), *counters;
	struct ended ended;
	unsigned i;

	counters = json_object_get(json, "counters");
	for (i = 0; i < KILN_N_COUNTERS; i++)
		assert_non_null(
			json_object_get(counters, kiln_counter_name(i)));
	assert_int_equal(number_of(counters, "miss_include"), 3);
	assert_int_equal(number_of(counters, "hits_store"), 5);
	assert_int_equal(number_of(counters, "puts"), 3);
	assert_int_equal(number_of(json, "jobs_pending"), 0);
	json_decref(json);

	ended = ask(directory, "stats", NULL);
	assert_non_null(strstr(ended.out, "changed include"));
	ended_free(&ended);
	ended = ask(directory, "stats", "--zero");
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	json = ask_json(directory, "stats", 0);
	assert_int_equal(number_of(json_object_get(json, "counters"), "puts"),
			 0);
	json_decref(json);
	free(directory);
}

static void put_file(const char *directory, const char *name)
{
	char *path = harness_path(directory, name);

	harness_write(path, "", 0);
	free(path);
}

static void clear_says_what_went(void **state)
{
	char *directory = filled();
	char *spool = harness_path(directory, "spool");
	json_t *json;

	assert_int_equal(mkdir(spool, 0700), 0);
	put_file(spool, "00112233445566778899aabbccddeeff.job");
	put_file(spool, "not-a-job");
	json = ask_json(directory, "clear", 0);
	assert_int_equal(number_of(json, "entries_removed"), 2);
	assert_int_equal(number_of(json, "hidden_removed"), 1);
	assert_int_equal(number_of(json, "jobs_removed"), 1);
	json_decref(json);
	json = ask_json(directory, "ls", 0);
	assert_int_equal(json_array_size(json_object_get(json, "entries")), 0);
	json_decref(json);
	json = ask_json(directory, "clear", 0);
	assert_int_equal(number_of(json, "entries_removed"), 0);
	assert_int_equal(number_of(json, "jobs_removed"), 0);
	json_decref(json);
	free(spool);
	free(directory);
}

static void verify_counts_entries(void **state)
{
	char *directory = filled();
	json_t *json = ask_json(directory, "verify", 0);

	assert_int_equal(number_of(json, "entries"), 3);
	assert_int_equal(number_of(json, "damaged"), 0);
	json_decref(json);
	free(directory);
}

/* Turn one bit of the first entry's value. */
static void damage(const char *directory)
{
	char *pattern = harness_path(directory, "kiln.*.val"), *path;
	glob_t found;
	size_t size;
	char *data, *value;

	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	path = found.gl_pathv[0];
	data = harness_read(path, &size);
	value = memmem(data, size, "value", 5);
	assert_non_null(value);
	value[2] ^= 4;
	harness_write(path, data, size);
	free(data);
	globfree(&found);
	free(pattern);
}

/* S13 */
static void verify_finds_damage_and_puts_it_aside(void **state)
{
	char *directory = filled();
	struct ended ended;
	json_t *json, *named;
	const char *key;

	damage(directory);
	json = ask_json(directory, "verify", 4);
	assert_int_equal(number_of(json, "damaged"), 1);
	assert_int_equal(number_of(json, "repaired"), 0);
	named = json_array_get(json_object_get(json, "damaged_entries"), 0);
	key = json_string_value(json_object_get(named, "key"));
	assert_int_equal(strlen(key), 32);
	ended = ask(directory, "verify", "--repair");
	assert_int_equal(status_of(&ended), 4);
	assert_non_null(strstr(ended.out, key));
	assert_non_null(strstr(ended.out, "1 put aside"));
	json_decref(json);
	ended_free(&ended);
	json = ask_json(directory, "verify", 0);
	assert_int_equal(number_of(json, "entries"), 2);
	json_decref(json);
	free(directory);
}

/* S49 */
static void verify_can_count_without_reading(void **state)
{
	char *directory = filled();
	struct spawn spawn = tool(directory, "verify", "--json");
	struct ended ended;
	json_t *json;

	damage(directory);
	spawn.arguments[2] = "--accounting";
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(number_of(json, "entries"), 0);
	assert_int_equal(number_of(json, "entries_noted"), 3);
	assert_int_equal(number_of(json, "entries_counted"), 3);
	assert_int_equal(number_of(json, "bytes_noted"),
			 number_of(json, "bytes_counted"));
	json_decref(json);
	ended_free(&ended);
	free(directory);
}

/* An index beyond repair is a finding; writing makes it anew. */
static void verify_finds_a_damaged_index(void **state)
{
	char *directory = filled(), *path = harness_path(directory, "kiln.idx");
	struct ended ended;
	size_t size;
	char *data = harness_read(path, &size);
	json_t *json;

	memset(data, 0x55, 4096);
	harness_write(path, data, size);
	json = ask_json(directory, "verify", 4);
	assert_int_equal(number_of(json, "entries"), 0);
	assert_int_equal(number_of(json, "damaged"), 1);
	json_decref(json);
	ended = ask(directory, "verify", "--repair");
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	json = ask_json(directory, "verify", 0);
	assert_int_equal(number_of(json, "entries"), 3);
	json_decref(json);
	free(data);
	free(path);
	free(directory);
}

static void talk_to_terminal(void *arg)
{
	if (dup2(*(int *)arg, 2) != 2)
		_exit(99);
}

/* S61 */
static void progress_is_for_terminals_and_leaves_nothing(void **state)
{
	static const struct {
		const char *term;
		int is_shown;
	} rows[] = { { "TERM=xterm", 1 }, { "TERM=dumb", 0 } };
	char *directory = filled();
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = tool(directory, "verify", NULL);
		int master, terminal;
		struct ended ended;
		char *text;

		assert_int_equal(openpty(&master, &terminal, NULL, NULL, NULL),
				 0);
		spawn.variables[4] = rows[i].term;
		spawn.before = talk_to_terminal;
		spawn.arg = &terminal;
		ended = spawn_run(&spawn);
		close(terminal);
		text = read_to_end(master);
		assert_int_equal(status_of(&ended), 0);
		assert_memory_equal(ended.out, "3 entries whole", 15);
		if (rows[i].is_shown) {
			assert_non_null(strstr(text, " %"));
			assert_non_null(strstr(text, "\r\033[K"));
			assert_string_equal(text + strlen(text) - 4,
					    "\r\033[K");
		} else {
			assert_string_equal(text, "");
		}
		free(text);
		ended_free(&ended);
	}
	free(directory);
}

/* ---- Cleaning up ---------------------------------------------------------------------- */

static void gc_says_what_it_did(void **state)
{
	char *directory = filled();
	char *left = harness_path(directory, "kiln.tmp.4000000.1");
	json_t *json;
	struct ended ended;

	harness_write(left, "unfinished", 10);
	json = ask_json(directory, "gc", 0);
	assert_int_equal(number_of(json, "unfinished"), 1);
	assert_int_equal(number_of(json, "evicted"), 0);
	assert_int_equal(number_of(json, "bytes_freed"),
			 number_of(json, "bytes_before") -
				 number_of(json, "bytes_after"));
	assert_true(number_of(json, "bytes_freed") >= 10);
	json_decref(json);
	ended = ask(directory, "gc", NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_memory_equal(ended.out, "freed 0 bytes, ", 15);
	ended_free(&ended);
	json = ask_json(directory, "verify", 0);
	assert_int_equal(number_of(json, "entries"), 3);
	json_decref(json);
	free(left);
	free(directory);
}

static void gc_takes_damaged_entries_on_request_only(void **state)
{
	char *directory = filled();
	struct spawn spawn = tool(directory, "gc", "--json");
	struct ended ended;
	json_t *json;

	damage(directory);
	ended = ask(directory, "verify", "--repair");
	ended_free(&ended);
	json = ask_json(directory, "gc", 0);
	assert_int_equal(number_of(json, "quarantined"), 0);
	json_decref(json);
	spawn.arguments[2] = "--quarantine";
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(number_of(json, "quarantined"), 1);
	json_decref(json);
	ended_free(&ended);
	free(directory);
}

static void gc_refuses_sizes_and_ages_that_are_none(void **state)
{
	static const struct {
		const char *option;
		int status;
	} rows[] = {
		{ "--max-size=much", 2 },      { "--max-size=0", 2 },
		{ "--max-size", 2 },	       { "--max-size=1000", 1 },
		{ "--max-size=100000000", 0 }, { "--older-than=old", 2 },
		{ "--older-than=0", 2 },       { "--older-than=1h", 0 },
	};
	char *directory = filled();
	json_t *json;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended = ask(directory, "gc", rows[i].option);

		assert_int_equal(status_of(&ended), rows[i].status);
		if (rows[i].status)
			assert_memory_equal(ended.err, "kiln: ", 6);
		ended_free(&ended);
	}
	json = ask_json(directory, "verify", 0);
	assert_int_equal(number_of(json, "entries"), 3);
	json_decref(json);
	free(directory);
}

/* ---- A store's own limit --------------------------------------------------------------- */

/* S47 */
static void a_stores_limit_is_shown_and_changed(void **state)
{
	static const struct {
		const char *option;
		int status;
		json_int_t limit; /* after it */
	} rows[] = {
		{ "--limit=100M", 0, 100 << 20 },
		{ "--limit=much", 2, 100 << 20 },
		{ "--limit", 2, 100 << 20 },
		{ "--limit=1000", 1, 100 << 20 },
		{ "--limit=0", 0, 0 },
		{ "--limit=50M", 0, 50 << 20 },
	};
	char *directory = filled(),
	     *elsewhere = harness_path(directory, "none");
	struct spawn spawn;
	struct ended ended;
	json_t *json;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ended = ask(directory, "config", rows[i].option);
		assert_int_equal(status_of(&ended), rows[i].status);
		if (rows[i].status)
			assert_memory_equal(ended.err, "kiln: ", 6);
		else
			assert_non_null(strstr(ended.out, "limit"));
		ended_free(&ended);
		json = ask_json(directory, "stats", 0);
		assert_int_equal(number_of(json, "bytes_max"), rows[i].limit);
		json_decref(json);
	}
	json = ask_json(directory, "verify", 0);
	assert_int_equal(number_of(json, "entries"), 3);
	json_decref(json);
	spawn = tool(directory, "config", "--limit=12M");
	spawn.arguments[2] = "--json";
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(number_of(json, "bytes_max"), 12 << 20);
	json_decref(json);
	ended_free(&ended);
	ended = ask(elsewhere, "config", "--limit=1G");
	assert_int_equal(status_of(&ended), 3);
	ended_free(&ended);
	free(elsewhere);
	free(directory);
}

/* S47 */
static void a_stores_eviction_is_shown_and_changed(void **state)
{
	static const struct {
		const char *option;
		int status;
		const char *is; /* after it */
	} rows[] = {
		{ "--eviction=cost", 0, "cost" },
		{ "--limit=100M", 0, "cost" },
		{ "--eviction=luck", 2, "cost" },
		{ "--eviction", 2, "cost" },
		{ "--eviction=recency", 0, "recency" },
	};
	char *directory = filled();
	struct spawn spawn;
	struct ended ended;
	json_t *json;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ended = ask(directory, "config", rows[i].option);
		assert_int_equal(status_of(&ended), rows[i].status);
		ended_free(&ended);
		spawn = tool(directory, "config", "--limit=100M");
		spawn.arguments[2] = "--json";
		ended = spawn_run(&spawn);
		json = json_loads(ended.out, 0, NULL);
		assert_string_equal(
			json_string_value(json_object_get(json, "eviction")),
			rows[i].is);
		json_decref(json);
		ended_free(&ended);
	}
	free(directory);
}

/* ---- Circumstances -------------------------------------------------------------------- */

/* A verb, and its exit status where there never was a cache. */
static const struct {
	const char *name;
	int status;
} readers[] = { { "ls", 0 },   { "stats", 0 },	{ "verify", 0 },
		{ "wait", 0 }, { "report", 0 }, { "clear", 0 },
		{ "gc", 0 },   { "why", 0 },	{ "config", 0 } };
#define N_READERS (sizeof(readers) / sizeof(*readers))

/* S61: the reader is gone before anything is written. */
static void a_closed_pipe_is_no_failure(void **state)
{
	char *directory = filled();
	size_t i;

	for (i = 0; i < N_READERS; i++) {
		struct spawn spawn = tool(directory, readers[i].name, "--json");
		struct spawned spawned;
		int ends[2];

		assert_int_equal(pipe(ends), 0);
		close(ends[0]);
		spawn.before = use_terminal;
		spawn.arg = &ends[1];
		spawned = spawn_start(&spawn);
		close(ends[1]);
		{
			struct ended ended = spawn_finish(&spawned);
			assert_int_equal(status_of(&ended), 0);
			assert_string_equal(ended.err, "");
			ended_free(&ended);
		}
	}
	free(directory);
}

static void closed_and_full_outputs_are_failures(void **state)
{
	char *directory = filled();
	struct spawn spawn = tool(directory, "ls", NULL);
	int full = open("/dev/full", O_WRONLY);
	struct ended ended;

	spawn.before = use_terminal;
	spawn.arg = &full;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 1);
	assert_non_null(strstr(ended.err, "cannot write"));
	ended_free(&ended);

	spawn = tool(directory, "ls", NULL);
	spawn.closed = 7;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 1);
	ended_free(&ended);
	close(full);
	free(directory);
}

static void nothing_is_made_by_looking(void **state)
{
	char *parent = harness_directory();
	char *directory = harness_path(parent, "none");
	size_t i;

	for (i = 0; i < N_READERS; i++) {
		struct ended ended = ask(directory, readers[i].name, NULL);

		assert_int_equal(status_of(&ended), readers[i].status);
		assert_string_equal(ended.err, "");
		ended_free(&ended);
		assert_int_equal(access(directory, F_OK), -1);
	}
	free(directory);
	free(parent);
}

/* A directory that holds jobs and nothing else. */
static void no_store_is_made_by_looking(void **state)
{
	char *directory = harness_directory();
	char *index = harness_path(directory, "kiln.idx");
	size_t i;

	for (i = 0; i < N_READERS; i++) {
		struct ended ended = ask(directory, readers[i].name, NULL);

		assert_int_equal(status_of(&ended), readers[i].status);
		assert_string_equal(ended.err, "");
		ended_free(&ended);
		assert_int_equal(access(index, F_OK), -1);
	}
	free(index);
	free(directory);
}

static void wrong_values_are_named(void **state)
{
	static const char *const rows[][2] = {
		{ "KILN_DISABLE=perhaps", "KILN_DISABLE" },
		{ "KILN_MAX_SIZE=12 parsecs", "KILN_MAX_SIZE" },
		{ "KILN_LOCK_TIMEOUT=soon", "KILN_LOCK_TIMEOUT" },
	};
	char *directory = harness_directory();
	size_t i, j;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (j = 0; j < N_READERS; j++) {
			struct spawn spawn =
				tool(directory, readers[j].name, NULL);
			struct ended ended;

			spawn.variables[4] = rows[i][0];
			ended = spawn_run(&spawn);
			assert_int_equal(status_of(&ended), 2);
			assert_non_null(strstr(ended.err, rows[i][1]));
			ended_free(&ended);
		}
	}
	free(directory);
}

/* S28: each says which variable it is. */
static void without_a_store_looking_is_unavailable(void **state)
{
	static const struct {
		const char *variables[3];
		const char *word;
	} rows[] = {
		{ { "KILN_DIR", "HOME", "XDG_CACHE_HOME" }, "HOME" },
		{ { "KILN_DIR", "HOME=/", "XDG_CACHE_HOME=x" }, "HOME" },
		{ { "KILN_DISABLE=1" }, "KILN_DISABLE" },
		{ { "KILN_DIR=/dev/null" }, "/dev/null" },
	};
	char *directory = harness_directory();
	size_t i, j;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		/* The last one needs no store. */
		for (j = 0; j + 1 < N_READERS; j++) {
			struct spawn spawn =
				tool(directory, readers[j].name, NULL);
			struct ended ended;

			memcpy(&spawn.variables[4], rows[i].variables,
			       sizeof(rows[i].variables));
			ended = spawn_run(&spawn);
			if (strcmp(readers[j].name, "wait") || i != 3) {
				assert_int_equal(status_of(&ended), 5);
				assert_non_null(
					strstr(ended.err, rows[i].word));
			}
			ended_free(&ended);
		}
	}
	free(directory);
}

/* S30, S37: looking is allowed where loading is not. */
static void unsafe_directories_can_be_read(void **state)
{
	static const mode_t modes[] = { 0777, 0500 };
	char *directory = filled();
	size_t i;

	for (i = 0; i < 2; i++) {
		json_t *json;

		assert_int_equal(chmod(directory, modes[i]), 0);
		json = ask_json(directory, "ls", 0);
		assert_int_equal(
			json_array_size(json_object_get(json, "entries")), 2);
		json_decref(json);
		json = ask_json(directory, "stats", 0);
		json_decref(json);
	}
	chmod(directory, 0700);
	free(directory);
}

/* ---- Doctor --------------------------------------------------------------------------- */

static int finds(const json_t *json, const char *name, const char *result,
		 const char *word)
{
	const json_t *checks = json_object_get(json, "checks");
	size_t i;

	for (i = 0; i < json_array_size(checks); i++) {
		const json_t *check = json_array_get(checks, i);
		const char *texts[3] = {
			json_string_value(json_object_get(check, "name")),
			json_string_value(json_object_get(check, "result")),
			json_string_value(json_object_get(check, "words")),
		};

		if (!strcmp(texts[0], name) && !strcmp(texts[1], result) &&
		    strstr(texts[2], word))
			return 1;
	}
	return 0;
}

/* What is wrong is found, whatever else is right or wrong here. */
static void doctor_finds_what_is_wrong(void **state)
{
	static const struct {
		const char *variables[3];
		mode_t mode;
		const char *name;
		const char *word;
	} rows[] = {
		{ { "KILN_DISABLE=1" }, 0700, "settings", "KILN_DISABLE" },
		{ { "KILN_DISABLE=2" }, 0700, "settings", "KILN_DISABLE" },
		{ { NULL }, 0777, "directory", "everybody" },
		{ { "KILN_DIR", "HOME", "XDG_CACHE_HOME" },
		  0700,
		  "directory",
		  "HOME" },
		{ { "OCL_ICD_VENDORS=/nowhere" }, 0700, "drivers", "/nowhere" },
		{ { "KILN_DIR=/proc/1/nothing" }, 0700, "directory", "/proc" },
	};
	char *directory = harness_directory();
	size_t i, j;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = tool(directory, "doctor", "--json");
		struct ended ended;
		json_t *json;

		for (j = 0; j < 3; j++)
			spawn.variables[4 + j] = rows[i].variables[j];
		assert_int_equal(chmod(directory, rows[i].mode), 0);
		ended = spawn_run(&spawn);
		json = json_loads(ended.out, 0, NULL);
		assert_int_equal(status_of(&ended), 5);
		assert_true(finds(json, rows[i].name, "bad", rows[i].word));
		assert_false(json_is_true(json_object_get(json, "works")));
		json_decref(json);
		ended_free(&ended);
	}
	free(directory);
}

/* Of this build, as the tool names it; NULL if it was not built. */
static char *built_layer(void)
{
	char *folder = realpath(program, NULL), *path, *found;

	assert_non_null(folder);
	*strrchr(folder, '/') = '\0';
	assert_true(asprintf(&path, "%s/../src/front/opencl/libkiln-opencl.so",
			     folder) > 0);
	found = realpath(path, NULL);
	free(path);
	free(folder);
	return found;
}

/* What the system's file for layers does here, whatever loader there is. */
static void doctor_says_what_loaders_make_of_the_layers_file(void **state)
{
	char *directory, *variable, *file, *layer = built_layer();
	struct spawn spawn;
	struct ended ended;
	json_t *json;
	FILE *out;

	if (!layer)
		HARNESS_LEAVE_OUT("the layer is not built here");
	directory = harness_directory();
	spawn = tool(directory, "doctor", "--json");
	assert_true(asprintf(&file, "%s/kiln.lay", directory) > 0);
	assert_true(asprintf(&variable, "OPENCL_LAYER_PATH=%s", directory) > 0);
	spawn.variables[4] = variable;
	for (int is_ours = 0; is_ours < 2; is_ours++) {
		out = fopen(file, "w");
		assert_non_null(out);
		fprintf(out, "%s\n", is_ours ? layer : "/of/another.so");
		fclose(out);
		ended = spawn_run(&spawn);
		json = json_loads(ended.out, 0, NULL);
		assert_int_equal(finds(json, "loader", "note", "it ignores ") +
					 finds(json, "loader", "ok",
					       "every OpenCL program"),
				 is_ours && !finds(json, "loader", "bad", ""));
		json_decref(json);
		ended_free(&ended);
	}
	free(layer);
	free(variable);
	free(file);
	free(directory);
}

static void doctor_fits_and_says_the_verdict(void **state)
{
	char *directory = harness_directory();
	struct spawn spawn = tool(directory, "doctor", NULL);
	struct ended ended;
	int works;

	spawn.variables[3] = "COLUMNS=40";
	ended = spawn_run(&spawn);
	works = status_of(&ended) == 0;
	assert_true(works || status_of(&ended) == 5);
	assert_int_equal(strstr(ended.out, "Caching works here.") != NULL,
			 works);
	assert_false(has_escape(ended.out));
	ended_free(&ended);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(usage_errors_have_status_2_and_one_line),
		cmocka_unit_test(errors_name_the_thing_and_the_remedy),
		cmocka_unit_test(letters_may_stand_together),
		cmocka_unit_test(the_version_is_told),
		cmocka_unit_test(every_setting_is_documented),
		cmocka_unit_test(ls_shows_entries_and_hides_bookkeeping),
		cmocka_unit_test(tables_fit_and_carry_no_escapes),
		cmocka_unit_test(colours_are_for_terminals_that_want_them),
		cmocka_unit_test(what_is_repeated_is_harmless),
		cmocka_unit_test(show_finds_an_entry_by_its_beginning),
		cmocka_unit_test(stats_have_every_counter),
		cmocka_unit_test(clear_says_what_went),
		cmocka_unit_test(verify_counts_entries),
		cmocka_unit_test(verify_finds_damage_and_puts_it_aside),
		cmocka_unit_test(verify_can_count_without_reading),
		cmocka_unit_test(verify_finds_a_damaged_index),
		cmocka_unit_test(progress_is_for_terminals_and_leaves_nothing),
		cmocka_unit_test(gc_says_what_it_did),
		cmocka_unit_test(gc_takes_damaged_entries_on_request_only),
		cmocka_unit_test(gc_refuses_sizes_and_ages_that_are_none),
		cmocka_unit_test(a_stores_limit_is_shown_and_changed),
		cmocka_unit_test(a_stores_eviction_is_shown_and_changed),
		cmocka_unit_test(a_closed_pipe_is_no_failure),
		cmocka_unit_test(closed_and_full_outputs_are_failures),
		cmocka_unit_test(nothing_is_made_by_looking),
		cmocka_unit_test(no_store_is_made_by_looking),
		cmocka_unit_test(wrong_values_are_named),
		cmocka_unit_test(without_a_store_looking_is_unavailable),
		cmocka_unit_test(unsafe_directories_can_be_read),
		cmocka_unit_test(doctor_finds_what_is_wrong),
		cmocka_unit_test(
			doctor_says_what_loaders_make_of_the_layers_file),
		cmocka_unit_test(doctor_fits_and_says_the_verdict),
	};

	program = argv[1];
	settings_document = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
