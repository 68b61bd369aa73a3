/* SPDX-License-Identifier: MIT */

/* kiln why, as a shell sees it. */

#include "testing.h"
#include "harness/harness.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/hash.h"

static const char *program;

/* ---- Stores with a few entries --------------------------------------------- */

enum what {
	END,
	TEXT,	 /* bytes */
	CONTENT, /* digest */
	ABSENT,
	NUMBER, /* 4 bytes, little-endian, of a decimal text */
};

struct field {
	enum what what;
	const char *label;
	const char *value;
};

#define FIELDS_MAX 5

static struct kiln *open_store(const char *directory)
{
	struct kiln_options options;
	struct kiln *kiln;
	char *url;

	assert_true(asprintf(&url, "log:%s", directory) > 0);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	free(url);
	return kiln;
}

static void add_field(struct kiln_key *key, const struct field *field)
{
	unsigned char number[4] = { 0 };

	switch (field->what) {
	case TEXT:
		kiln_key_add_string(key, field->label, field->value);
		break;
	case CONTENT:
		kiln_key_add_digest(key, field->label, field->value,
				    strlen(field->value));
		break;
	case ABSENT:
		kiln_key_add_absent(key, field->label);
		break;
	case NUMBER:
		number[0] = (unsigned char)atoi(field->value);
		kiln_key_add(key, field->label, number, sizeof(number));
		break;
	case END:
		break;
	}
}

static struct kiln_key *make_key(const struct field *fields)
{
	struct kiln_key *key = kiln_key_new();
	size_t i;

	for (i = 0; i < FIELDS_MAX && fields[i].what != END; i++)
		add_field(key, &fields[i]);
	return key;
}

/* Put an entry and free its key, which goes to `out` in hexadecimal. */
static void put_key(const char *directory, struct kiln_key *key,
		    uint64_t created, uint64_t flags,
		    char out[2 * KILN_DIGEST_BYTES + 1])
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln *kiln = open_store(directory);

	assert_int_equal(kiln_key_finish(key), KILN_OK);
	kiln_metadata_add_u64(metadata, KILN_META_CREATED, created);
	kiln_metadata_add_u64(metadata, KILN_META_FLAGS, flags);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 "/usr/bin/an-application");
	assert_int_equal(kiln_put(kiln, key, "value", 5, metadata, 0), KILN_OK);
	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, out);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
	kiln_close(kiln);
}

static void put(const char *directory, const struct field *fields,
		uint64_t created, uint64_t flags,
		char out[2 * KILN_DIGEST_BYTES + 1])
{
	put_key(directory, make_key(fields), created, flags, out);
}

static struct ended why(const char *directory, const char *key,
			const char *second, const char *option)
{
	static char setting[600];
	struct spawn spawn = { .program = program };
	size_t n = 0;

	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	spawn.arguments[n++] = "why";
	spawn.arguments[n++] = key;
	if (second)
		spawn.arguments[n++] = second;
	if (option)
		spawn.arguments[n++] = option;
	spawn.variables[0] = setting;
	spawn.variables[1] = "OPENCL_LAYERS";
	spawn.variables[2] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[3] = "COLUMNS";
	return spawn_run(&spawn);
}

/* ---- Words ------------------------------------------------------------------- */

static void differences_are_told_in_words(void **state)
{
	static const struct {
		struct field before[FIELDS_MAX];
		struct field after[FIELDS_MAX];
		const char *words; /* the lines behind the first */
	} rows[] = {
		{ { { TEXT, "options", "-DTILE=8 -w" } },
		  { { TEXT, "options", "-DTILE=16 -w" } },
		  "  options: -DTILE=8 -> -DTILE=16\n" },
		{ { { TEXT, "options", "" } },
		  { { TEXT, "options", "-w" } },
		  "  options: \"\" -> -w\n" },
		{ { { TEXT, "options", "-w" } },
		  { { TEXT, "options", "-w -g" } },
		  "  options: (none) -> -g\n" },
		{ { { TEXT, "options", "-w -g" } },
		  { { TEXT, "options", "-g -w" } },
		  "  options: the order of its words\n" },
		{ { { CONTENT, "include foo.h", "old" } },
		  { { CONTENT, "include foo.h", "newer" } },
		  "  include foo.h changed (3 -> 5 bytes)\n" },
		{ { { ABSENT, "include foo.h", NULL } },
		  { { CONTENT, "include foo.h", "new" } },
		  "  include foo.h is there now\n" },
		{ { { CONTENT, "include foo.h", "old" } },
		  { { ABSENT, "include foo.h", NULL } },
		  "  include foo.h is not there any more\n" },
		{ { { TEXT, "kind", "k" } },
		  { { TEXT, "kind", "k" }, { CONTENT, "include a", "x" } },
		  "  include a is used now\n" },
		{ { { TEXT, "kind", "k" }, { ABSENT, "include a", NULL } },
		  { { TEXT, "kind", "k" } },
		  "  include a is not looked for any more\n" },
		{ { { TEXT, "platform version", "22.3.5" } },
		  { { TEXT, "platform version", "22.3.6" } },
		  "  platform version: 22.3.5 -> 22.3.6\n" },
		{ { { TEXT, "device 0 extensions", "cl_a cl_b cl_c" } },
		  { { TEXT, "device 0 extensions", "cl_a cl_c cl_d" } },
		  "  device 0 extensions: cl_b -> cl_d\n" },
		{ { { NUMBER, "device 0 address bits", "32" } },
		  { { NUMBER, "device 0 address bits", "64" } },
		  "  device 0 address bits: 32 -> 64\n" },
		{ { { TEXT, "kind", "k" } },
		  { { TEXT, "kind", "k" },
		    { TEXT, "environment POCL_X", "1" } },
		  "  environment POCL_X: (none) -> 1\n" },
		/* Equal labels pair by their order. */
		{ { { TEXT, "a", "1" }, { TEXT, "a", "2" } },
		  { { TEXT, "a", "1" }, { TEXT, "a", "3" } },
		  "  a: 2 -> 3\n" },
		/* Another order is another key. */
		{ { { TEXT, "a", "1" }, { TEXT, "b", "2" } },
		  { { TEXT, "b", "2" }, { TEXT, "a", "1" } },
		  "  the order of the fields\n" },
		/* It does not speak to the terminal. */
		{ { { TEXT, "a\033[2J", "1\033[2J" } },
		  { { TEXT, "a\033[2J", "2\033[2J" } },
		  NULL },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *directory = harness_directory();
		char before[33], after[33];
		struct ended ended;

		put(directory, rows[i].before, 1000, 0, before);
		put(directory, rows[i].after, 1001, 0, after);
		ended = why(directory, before, after, NULL);
		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(ended.err, "");
		assert_null(strchr(ended.out, '\033'));
		assert_memory_equal(ended.out, after, 12);
		if (rows[i].words)
			assert_string_equal(strchr(ended.out, '\n') + 1,
					    rows[i].words);
		ended_free(&ended);
		free(directory);
	}
}

static void keep(const char *directory, const char *text)
{
	struct kiln_kept source = { .data = text, .size = strlen(text) };
	struct kiln *kiln = open_store(directory);

	assert_int_equal(kiln_keep_sources(kiln, &source, 1), KILN_OK);
	kiln_close(kiln);
}

static void lines_of_kept_sources_that_differ_are_shown(void **state)
{
	static const struct {
		const char *before, *after;
		const char *lines; /* behind the first two */
	} rows[] = {
		{ "a\nb\nc\n", "a\nB\nc\n", "      - 2: b\n      + 2: B\n" },
		{ "a\nb\nc\n", "a\nc\n", "      - 2: b\n" },
		{ "a\nc\n", "a\nb\nc\n", "      + 2: b\n" },
		{ "x\n", "new\nx\n", "      + 1: new\n" },
		{ "a", "a\n", "      - 1: a\n      + 1: a\n" },
		{ "a\nb", "a\nc", "      - 2: b\n      + 2: c\n" },
		{ "a\n\033[2J\n", "a\nc\n", "      - 2: ?[2J\n      + 2: c\n" },
		{ "1\n2\n3\n4\n5\n", "x\n",
		  "      - 1: 1\n      - 2: 2\n      - 3: 3\n"
		  "      + 1: x\n      (5 -> 1 lines)\n" },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct field before[FIELDS_MAX] = { { CONTENT, "source",
							    rows[i].before } };
		const struct field after[FIELDS_MAX] = { { CONTENT, "source",
							   rows[i].after } };
		char *directory = harness_directory();
		char first[33], second[33];
		struct ended ended;
		const char *line;

		put(directory, before, 1000, 0, first);
		put(directory, after, 1001, 0, second);
		keep(directory, rows[i].before);
		ended = why(directory, first, second, NULL);
		assert_null(strstr(ended.out, " 1: "));
		ended_free(&ended);
		keep(directory, rows[i].after);
		ended = why(directory, first, second, NULL);
		assert_int_equal(status_of(&ended), 0);
		line = strchr(strchr(ended.out, '\n') + 1, '\n') + 1;
		assert_string_equal(line, rows[i].lines);
		ended_free(&ended);
		free(directory);
	}
}

/* A link's key has the digest of each input's: a library here, of one object. */
static void put_linked(const char *directory, const struct field *object,
		       int object_is_stored, char out[33])
{
	struct kiln_key *input = make_key(object), *key;
	const void *record;
	size_t size;
	int i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(kiln_key_finish(input), KILN_OK);
		record = kiln_key_record(input, &size);
		key = kiln_key_new();
		kiln_key_add_string(key, "kind", "opencl link 1");
		kiln_key_add_string(key, "options", i ? "" : "-create-library");
		kiln_key_add_digest(key, "input 0", record, size);
		if (i || object_is_stored)
			put_key(directory, input, 1000, 0, out);
		else
			kiln_key_free(input);
		input = key;
	}
	put_key(directory, key, 1000, 0, out);
}

static void what_makes_an_input_another_is_told_if_it_is_stored(void **state)
{
	static const struct field before[FIELDS_MAX] = {
		{ TEXT, "kind", "opencl compile 1" },
		{ CONTENT, "include foo.h", "old" },
	};
	static const struct field after[FIELDS_MAX] = {
		{ TEXT, "kind", "opencl compile 1" },
		{ CONTENT, "include foo.h", "newer" },
	};
	static const char *const words[] = {
		"  input 0 changed (114 -> 114 bytes)\n"
		"    input 0 changed (93 -> 93 bytes)\n",
		"  input 0 changed (114 -> 114 bytes)\n"
		"    input 0 changed (93 -> 93 bytes)\n"
		"      include foo.h changed (3 -> 5 bytes)\n",
	};
	int stored;

	for (stored = 0; stored < 2; stored++) {
		char *directory = harness_directory();
		char first[33], second[33];
		struct ended ended;
		json_t *json, *inner;

		put_linked(directory, before, stored, first);
		put_linked(directory, after, stored, second);
		ended = why(directory, first, second, NULL);
		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(strchr(ended.out, '\n') + 1, words[stored]);
		ended_free(&ended);
		ended = why(directory, first, second, "--json");
		json = json_loads(ended.out, 0, NULL);
		inner = json_array_get(json_object_get(json, "differences"), 0);
		inner = json_array_get(json_object_get(inner, "differences"),
				       0);
		assert_non_null(inner);
		assert_int_equal(
			json_array_size(json_object_get(inner, "differences")),
			stored);
		json_decref(json);
		ended_free(&ended);
		free(directory);
	}
}

/* ---- The nearest -------------------------------------------------------------- */

static void one_key_is_compared_with_the_nearest(void **state)
{
	static const struct field fields[][FIELDS_MAX] = {
		{ { TEXT, "kind", "k" },
		  { TEXT, "options", "-DT=8" },
		  { CONTENT, "source", "one" } },
		/* One difference, but another source. */
		{ { TEXT, "kind", "k" },
		  { TEXT, "options", "-DT=8" },
		  { CONTENT, "source", "two" } },
		/* Two differences. */
		{ { TEXT, "kind", "k" },
		  { TEXT, "options", "-DT=9" },
		  { CONTENT, "source", "one" },
		  { TEXT, "more", "1" } },
		/* One; older, then newer. */
		{ { TEXT, "kind", "k" },
		  { TEXT, "options", "-DT=10" },
		  { CONTENT, "source", "one" } },
		{ { TEXT, "kind", "k" },
		  { TEXT, "options", "-DT=11" },
		  { CONTENT, "source", "one" } },
		/* Of another kind. */
		{ { TEXT, "kind", "other" },
		  { TEXT, "options", "-DT=8" },
		  { CONTENT, "source", "one" } },
		/* Hidden. */
		{ { TEXT, "kind", "k" },
		  { TEXT, "options", "-DT=12" },
		  { CONTENT, "source", "one" } },
	};
	char *directory = harness_directory(), key[33], nearest[33], other[33];
	struct ended ended;
	json_t *json, *list;

	put(directory, fields[0], 1000, 0, key);
	ended = why(directory, key, NULL, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "nothing else"));
	ended_free(&ended);

	put(directory, fields[1], 1001, 0, other);
	ended = why(directory, key, NULL, NULL);
	assert_non_null(strstr(ended.out, "  source changed (3 -> 3 bytes)\n"));
	ended_free(&ended);

	put(directory, fields[2], 1002, 0, other);
	put(directory, fields[3], 1003, 0, other);
	put(directory, fields[4], 1004, 0, nearest);
	put(directory, fields[5], 1005, 0, other);
	put(directory, fields[6], 1006, KILN_ENTRY_HIDDEN, other);
	ended = why(directory, key, NULL, "--json");
	assert_int_equal(status_of(&ended), 0);
	json = json_loads(ended.out, 0, NULL);
	assert_non_null(json);
	assert_int_equal(json_integer_value(json_object_get(json, "schema")),
			 1);
	assert_string_equal(json_string_value(json_object_get(
				    json_object_get(json, "other"), "key")),
			    nearest);
	list = json_object_get(json, "differences");
	assert_int_equal(json_array_size(list), 1);
	assert_string_equal(json_string_value(json_object_get(
				    json_array_get(list, 0), "words")),
			    "options: -DT=11 -> -DT=8");
	assert_string_equal(json_string_value(json_object_get(
				    json_array_get(list, 0), "change")),
			    "changed");
	json_decref(json);
	ended_free(&ended);
	free(directory);
}

static void what_cannot_be_explained_is_said(void **state)
{
	static const struct field fields[] = { { TEXT, "kind", "k" },
					       { END, NULL, NULL } };
	char *directory = harness_directory(), key[33], *path;
	struct ended ended;
	int fd;

	/* Nothing was ever cached. */
	ended = why(directory, "0123456789", NULL, NULL);
	assert_int_equal(status_of(&ended), 3);
	ended_free(&ended);

	put(directory, fields, 1000, 0, key);
	ended = why(directory, key, "0123456789", NULL);
	assert_int_equal(status_of(&ended), 3);
	assert_non_null(strstr(ended.err, "no entry begins with '0123456789'"));
	ended_free(&ended);
	ended = why(directory, key, "xyz", NULL);
	assert_int_equal(status_of(&ended), 2);
	ended_free(&ended);
	ended = why(directory, key, key, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "the same entry"));
	ended_free(&ended);

	/* One that a worker has still to make. */
	assert_true(asprintf(&path, "%s/spool", directory) > 0);
	assert_int_equal(mkdir(path, 0700), 0);
	free(path);
	assert_true(asprintf(&path,
			     "%s/spool/0123456789abcdef0123456789abcdef.job",
			     directory) > 0);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	free(path);
	ended = why(directory, "0123456789", NULL, NULL);
	assert_int_equal(status_of(&ended), 3);
	assert_non_null(strstr(ended.err, "kiln wait"));
	ended_free(&ended);
	free(directory);
}

/* ---- The last run -------------------------------------------------------------- */

#define BUILDS_MAX 4

/* What a process builds: of these sources, with these options. */
struct run {
	const char *store;
	const char *application;
	struct {
		const char *source, *options;
		int fails;
	} builds[BUILDS_MAX];
};

static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *out)
{
	const int *fails = arg;

	out->kind = *fails ? KILN_BUILD_FAILED : KILN_BUILD_OK;
	if (!*fails && kiln_blob_copy("value", 5, &out->blob))
		out->kind = KILN_BUILD_FAILED;
}

static int build_all(unsigned index, void *arg)
{
	struct run *run = arg;
	struct kiln_options options;
	struct kiln *kiln;
	int err;

	kiln_options_init(&options);
	options.store_url = run->store;
	options.application = run->application;
	err = kiln_open(&options, &kiln);
	for (size_t i = 0; !err && i < BUILDS_MAX && run->builds[i].source;
	     i++) {
		struct kiln_build_result result;
		struct kiln_key *key = kiln_key_new();

		kiln_key_add_string(key, "kind", "k");
		kiln_key_add_string(key, "options", run->builds[i].options);
		kiln_key_add_digest(key, "source", run->builds[i].source,
				    strlen(run->builds[i].source));
		err = kiln_key_finish(key);
		kiln_build_result_init(&result);
		if (!err)
			err = kiln_get_or_build(kiln, key, build,
						&run->builds[i].fails, &result);
		if (err == KILN_E_BUILD && run->builds[i].fails)
			err = 0;
		kiln_build_result_fini(&result);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	return err;
}

static void run_it(const char *store, const struct run *run)
{
	struct run here = *run;

	here.store = store;
	assert_int_equal(harness_processes(1, build_all, &here, HARNESS_HANG_S),
			 0);
}

static struct ended why_last(const char *store, const char *option)
{
	struct spawn spawn = {
		.program = program,
		.arguments = { "why", store, option },
		.variables = { "XDG_CONFIG_HOME=/nowhere", "HOME=/nowhere",
			       "COLUMNS" },
	};

	return spawn_run(&spawn);
}

static long number_in(const json_t *json, const char *object, const char *name)
{
	return (long)json_integer_value(
		json_object_get(json_object_get(json, object), name));
}

static json_t *why_last_json(const char *store)
{
	struct ended ended = why_last(store, "--json");
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.err, "");
	assert_non_null(json);
	ended_free(&ended);
	return json;
}

static const struct run first_run = {
	.application = "/usr/bin/an-application",
	.builds = { { "one", "-DT=8", 0 }, { "two", "", 0 } },
};
static const struct run second_run = {
	.application = "/usr/bin/an-application",
	.builds = { { "one", "-DT=16", 0 },
		    { "two", "", 0 },
		    { "three", "-DT=16", 1 } },
};

/* An entry of the same program, and its key. */
static void put_made(const char *store, const char *source, const char *options,
		     uint64_t created, char out[2 * KILN_DIGEST_BYTES + 1])
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = kiln_key_new();
	struct kiln_options opening;
	struct kiln *kiln;

	kiln_options_init(&opening);
	opening.store_url = store;
	assert_int_equal(kiln_open(&opening, &kiln), KILN_OK);
	kiln_key_add_string(key, "kind", "k");
	kiln_key_add_string(key, "options", options);
	kiln_key_add_digest(key, "source", source, strlen(source));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	kiln_metadata_add_u64(metadata, KILN_META_CREATED, created);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 "/usr/bin/an-application");
	assert_int_equal(kiln_put(kiln, key, "value", 5, metadata, 0), KILN_OK);
	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, out);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
	kiln_close(kiln);
}

/* Long before. */
static void put_early(const char *store, const char *source,
		      const char *options)
{
	char key[2 * KILN_DIGEST_BYTES + 1];

	put_made(store, source, options, 1000, key);
}

static const json_t *lost_in(const json_t *json)
{
	return json_object_get(json_object_get(json, "run"),
			       "not_stored_build_ns");
}

/* Of what is stored, an entry may not say how long it took. */
static void what_is_not_stored_took_nothing_or_so_long_or_nobody_knows(
	void **state)
{
	static const struct run run = {
		.application = "/usr/bin/an-application",
		.builds = { { "one", "-DT=16", 0 },
			    { "three", "-DT=16", 1 },
			    { "four", "-DT=16", 1 } },
	};
	char *directory = harness_directory(), *store, *other;
	char key[2 * KILN_DIGEST_BYTES + 1];
	struct ended ended;
	json_t *json;

	assert_true(asprintf(&store, "log:%s", directory) > 0);
	assert_true(asprintf(&other, "log:%s#other", directory) > 0);
	run_it(other, &first_run);
	json = why_last_json(other);
	assert_true(json_is_integer(lost_in(json)));
	assert_int_equal(json_integer_value(lost_in(json)), 0);
	json_decref(json);
	run_it(store, &run);
	json = why_last_json(store);
	assert_true(json_integer_value(lost_in(json)) > 0);
	json_decref(json);
	put_made(store, "five", "-DT=16", (uint64_t)time(NULL), key);
	json = why_last_json(store);
	assert_int_equal(number_in(json, "run", "misses"), 3);
	assert_int_equal(json_integer_value(json_object_get(json, "stored")),
			 2);
	assert_null(lost_in(json));
	json_decref(json);
	ended = why_last(store, NULL);
	assert_non_null(strstr(ended.out, "\n1 of them is not stored\n"));
	ended_free(&ended);
	free(other);
	free(store);
	free(directory);
}

/* S62 */
static void what_the_last_run_missed_is_explained(void **state)
{
	static const char *const kinds[] = { "log", "file", "neo", "sycl" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		char *directory = harness_directory(), *store;
		const json_t *miss, *difference;
		struct ended ended;
		json_t *json;

		assert_true(asprintf(&store, "%s:%s", kinds[i], directory) > 0);
		put_early(store, "one", "-DT=8");
		put_early(store, "two", "");
		/* Of two misses one is stored: the other build failed. */
		run_it(store, &second_run);
		json = why_last_json(store);
		assert_int_equal(number_in(json, "run", "misses"), 2);
		assert_int_equal(number_in(json, "run", "hits"), 1);
		assert_in_range(number_in(json, "run", "not_stored_build_ns"),
				1, number_in(json, "run", "build_ns") - 1);
		assert_int_equal(
			json_integer_value(json_object_get(json, "stored")), 1);
		miss = json_array_get(json_object_get(json, "misses"), 0);
		difference =
			json_array_get(json_object_get(miss, "differences"), 0);
		assert_string_equal(
			json_string_value(json_object_get(difference, "words")),
			"options: -DT=8 -> -DT=16");
		json_decref(json);
		ended = why_last(store, NULL);
		assert_int_equal(status_of(&ended), 0);
		assert_memory_equal(
			ended.out, "last run of /usr/bin/an-application, ", 37);
		assert_non_null(strstr(ended.out, ": 2 misses, 1 hit\n"));
		assert_non_null(
			strstr(ended.out, "\n  options: -DT=8 -> -DT=16\n"));
		assert_non_null(
			strstr(ended.out, "\n1 of them is not stored: "));
		assert_non_null(strstr(ended.out, " of building\n"));
		ended_free(&ended);
		free(store);
		free(directory);
	}
}

/* All of one second, as of two runs one right after the other. */
static void of_one_second_what_was_stored_last_was_missed(void **state)
{
	static const char *const kinds[] = { "log", "neo", "sycl" };
	static const struct run run = {
		.application = "/usr/bin/an-application",
		.builds = { { "lost", "", 1 }, { "lost", "-w", 1 } },
	};
	const uint64_t then = (uint64_t)1 << 32;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		char *directory = harness_directory(), *store, options[16];
		char keys[8][2 * KILN_DIGEST_BYTES + 1];
		json_t *json, *misses;

		assert_true(asprintf(&store, "%s:%s", kinds[i], directory) > 0);
		for (unsigned n = 0; n < 8; n++) {
			if (n == 6)
				run_it(store, &run);
			snprintf(options, sizeof(options), "-DN=%u", n);
			put_made(store, "one", options, then, keys[n]);
		}
		json = why_last_json(store);
		misses = json_object_get(json, "misses");
		assert_int_equal(json_array_size(misses), 2);
		for (unsigned n = 0; n < 2; n++) {
			const json_t *entry = json_object_get(
				json_array_get(misses, n), "entry");

			assert_string_equal(json_string_value(json_object_get(
						    entry, "key")),
					    keys[6 + n]);
		}
		json_decref(json);
		free(store);
		free(directory);
	}
}

static void a_run_of_hits_alone_has_nothing_to_explain(void **state)
{
	char *directory = harness_directory(), *store;
	struct ended ended;

	assert_true(asprintf(&store, "log:%s", directory) > 0);
	run_it(store, &first_run);
	run_it(store, &first_run);
	ended = why_last(store, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, ": 0 misses, 2 hits\n"));
	assert_null(strstr(ended.out, "another than"));
	ended_free(&ended);
	free(store);
	free(directory);
}

/* What another program made at the same time is not this one's. */
static void others_builds_are_not_taken_for_misses(void **state)
{
	static const struct run other = {
		.application = "/usr/bin/another\033[2J",
		.builds = { { "one", "-DT=9", 0 } },
	};
	char *directory = harness_directory(), *store;
	struct ended ended;
	json_t *json;

	assert_true(asprintf(&store, "log:%s", directory) > 0);
	run_it(store, &first_run);
	run_it(store, &other);
	json = why_last_json(store);
	assert_int_equal(json_array_size(json_object_get(json, "misses")), 1);
	json_decref(json);
	ended = why_last(store, NULL);
	assert_null(strchr(ended.out, '\033'));
	assert_non_null(strstr(ended.out, "\n  options: -DT=8 -> -DT=9\n"));
	ended_free(&ended);
	free(store);
	free(directory);
}

static void where_no_run_is_known_it_says_so(void **state)
{
	char *directory = harness_directory(), *store, *pack, key[33];
	static const struct field fields[] = { { TEXT, "kind", "k" },
					       { END, NULL, NULL } };
	struct spawn export = { .program = program,
				.variables = { "XDG_CONFIG_HOME=/nowhere",
					       "HOME=/nowhere" } };
	struct ended ended;

	assert_true(asprintf(&store, "log:%s", directory) > 0);
	put(directory, fields, 1000, 0, key);
	ended = why_last(store, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "no run was counted here\n");
	ended_free(&ended);

	pack = harness_path(directory, "a.pack");
	export.arguments[0] = "export";
	export.arguments[1] = store;
	export.arguments[2] = pack;
	ended = spawn_run(&export);
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	free(store);
	assert_true(asprintf(&store, "pack:%s", pack) > 0);
	ended = why_last(store, NULL);
	assert_int_equal(status_of(&ended), 5);
	assert_non_null(strstr(ended.err, "give a KEY"));
	ended_free(&ended);
	free(pack);
	free(store);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(differences_are_told_in_words),
		cmocka_unit_test(lines_of_kept_sources_that_differ_are_shown),
		cmocka_unit_test(
			what_makes_an_input_another_is_told_if_it_is_stored),
		cmocka_unit_test(one_key_is_compared_with_the_nearest),
		cmocka_unit_test(what_cannot_be_explained_is_said),
		cmocka_unit_test(what_the_last_run_missed_is_explained),
		cmocka_unit_test(
			what_is_not_stored_took_nothing_or_so_long_or_nobody_knows),
		cmocka_unit_test(of_one_second_what_was_stored_last_was_missed),
		cmocka_unit_test(a_run_of_hits_alone_has_nothing_to_explain),
		cmocka_unit_test(others_builds_are_not_taken_for_misses),
		cmocka_unit_test(where_no_run_is_known_it_says_so),
	};

	if (argc < 2)
		return 1;
	program = argv[1];
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
