/* SPDX-License-Identifier: MIT */

/* kiln extract, and what show says besides, as a shell sees them. */

#include "testing.h"
#include "harness/harness.h"

#include <fcntl.h>
#include <jansson.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "base/hash.h"

static const char *program;

/* ---- Around it ------------------------------------------------------------------ */

static struct spawn tool(const char *verb, const char *store, const char *key)
{
	return (struct spawn){
		.program = program,
		.arguments = { verb, store, key },
		.variables = { "XDG_CONFIG_HOME=/nowhere", "HOME=/nowhere",
			       "KILN_PACKS", "COLUMNS" },
	};
}

static struct ended extract(const char *store, const char *key, const char *a,
			    const char *b)
{
	struct spawn spawn = tool("extract", store, key);

	spawn.arguments[3] = a;
	spawn.arguments[4] = a ? b : NULL;
	return spawn_run(&spawn);
}

static void assert_refused(struct ended ended, int status, const char *words)
{
	assert_int_equal(status_of(&ended), status);
	assert_string_equal(ended.out, "");
	assert_memory_equal(ended.err, "kiln: ", 6);
	assert_ptr_equal(strchr(ended.err, '\n') + 1,
			 ended.err + strlen(ended.err));
	assert_non_null(strstr(ended.err, words));
	ended_free(&ended);
}

/* ---- Entries -------------------------------------------------------------------- */

#define KEY_BYTES (2 * KILN_DIGEST_BYTES + 1)

static void put(const char *store, const char *name, const void *value,
		size_t size, char out_key[KEY_BYTES])
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = kiln_key_new();
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = store;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	kiln_key_add_string(key, "name", name);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 4200000000);
	assert_int_equal(kiln_put(kiln, key, value, size, metadata, 0),
			 KILN_OK);
	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, out_key);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
	kiln_close(kiln);
}

/* A value of the OpenCL layer's, of two devices: "abc" and "0123456789". */
static void add_binaries(struct ki_bytes *bytes)
{
	ki_bytes_add_string(bytes, "KCLB");
	ki_bytes_add_u32(bytes, 1);
	ki_bytes_add_u32(bytes, 2);
	ki_bytes_add_u32(bytes, 0);
	ki_bytes_add_u64(bytes, 3);
	ki_bytes_add_u64(bytes, 10);
	ki_bytes_add(bytes, "abc\0\0\0\0\0", 8);
	ki_bytes_add(bytes, "0123456789\0\0\0\0\0\0", 16);
}

static char *url_of(const char *kind)
{
	char *directory = harness_directory(), *url;

	assert_true(asprintf(&url, "%s:%s", kind, directory) > 0);
	free(directory);
	return url;
}

/* ---- Values --------------------------------------------------------------------- */

static void a_value_comes_as_it_was_put(void **state)
{
	static const char *const kinds[] = { "log", "file", "neo", "sycl" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		char *store = url_of(kinds[i]), key[KEY_BYTES];
		char *directory = harness_directory(), *got;
		char *path = harness_path(directory, "value");
		struct ended ended;
		json_t *json;
		size_t size;

		put(store, "one", "va\0ue", 5, key);
		ended = extract(store, key, "--json", "--output=/dev/full");
		assert_refused(ended, 1, "/dev/full");
		for (int again = 0; again < 2; again++) {
			struct spawn spawn = tool("extract", store, key);

			spawn.arguments[3] = "-o";
			spawn.arguments[4] = path;
			spawn.arguments[5] = "--json";
			ended = spawn_run(&spawn);
			assert_int_equal(status_of(&ended), 0);
			json = json_loads(ended.out, 0, NULL);
			assert_int_equal(json_integer_value(json_object_get(
						 json, "schema")),
					 1);
			assert_int_equal(json_integer_value(json_object_get(
						 json, "bytes")),
					 5);
			json_decref(json);
			ended_free(&ended);
			got = harness_read(path, &size);
			assert_int_equal(size, 5);
			assert_memory_equal(got, "va\0ue", 5);
			free(got);
		}
		ended = extract(store, key, NULL, NULL);
		assert_int_equal(status_of(&ended), 0);
		assert_memory_equal(ended.out, "va\0ue", 5);
		ended_free(&ended);
		free(path);
		free(directory);
		free(store);
	}
}

static void of_an_opencl_program_one_binary_can_be_had(void **state)
{
	char *store = url_of("log"), key[KEY_BYTES], other[KEY_BYTES];
	struct ki_bytes value;
	struct ended ended;

	ki_bytes_init(&value);
	add_binaries(&value);
	put(store, "one", value.data, value.size, key);
	put(store, "two", "value", 5, other);
	ended = extract(store, key, "--device=0", NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "abc");
	ended_free(&ended);
	ended = extract(store, key, "--device", "1");
	assert_string_equal(ended.out, "0123456789");
	ended_free(&ended);
	assert_refused(extract(store, key, "--device=2", NULL), 3,
		       "of 2 devices");
	assert_refused(extract(store, key, "--device=-1", NULL), 2, "--device");
	assert_refused(extract(store, key, "--device=0x", NULL), 2, "--device");
	assert_refused(extract(store, other, "--device=0", NULL), 3,
		       "not of an OpenCL program");
	ki_bytes_fini(&value);
	free(store);
}

/* What only looks like the layer's has no binaries. */
static void a_wrong_length_is_no_binary(void **state)
{
	static const struct {
		size_t offset;
		uint8_t byte;
		size_t cut;
	} rows[] = {
		{ 0, 'X', 0 },	 { 4, 2, 0 },	{ 8, 0, 0 },	{ 8, 3, 0 },
		{ 11, 0xff, 0 }, { 16, 0, 0 },	{ 16, 9, 0 },	{ 23, 0xff, 0 },
		{ 20, 0x80, 0 }, { 0, 'K', 1 }, { 0, 'K', 40 }, { 0, 'K', 50 },
	};
	char *store = url_of("log"), key[KEY_BYTES], name[24];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ki_bytes value;

		ki_bytes_init(&value);
		add_binaries(&value);
		value.data[rows[i].offset] = rows[i].byte;
		snprintf(name, sizeof(name), "%zu", i);
		put(store, name, value.data, value.size - rows[i].cut, key);
		assert_refused(extract(store, key, "--device=0", NULL), 3,
			       "not of an OpenCL program");
		ki_bytes_fini(&value);
	}
	free(store);
}

static void what_is_a_drivers_comes_as_its_file(void **state)
{
	char *directory = harness_directory(), *store, *path, key[KEY_BYTES];
	struct spawn spawn;
	struct ended ended;
	json_t *json;

	path = harness_path(directory, "0123456789abcdef.cl_cache");
	harness_write(path, "a driver's", 10);
	assert_true(asprintf(&store, "neo:%s", directory) > 0);
	spawn = tool("ls", store, "--json");
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	snprintf(key, sizeof(key), "%s",
		 json_string_value(json_object_get(
			 json_array_get(json_object_get(json, "entries"), 0),
			 "key")));
	json_decref(json);
	ended_free(&ended);
	ended = extract(store, key, "-o", "-");
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "a driver's");
	ended_free(&ended);
	free(store);
	free(path);
	free(directory);
}

/* ---- Where it goes ---------------------------------------------------------------- */

static void use_terminal(void *arg)
{
	if (dup2(*(int *)arg, 1) != 1)
		_exit(99);
}

/* S61 */
static void a_terminal_gets_a_value_only_if_it_is_meant(void **state)
{
	char *store = url_of("log"), key[KEY_BYTES], *text;

	put(store, "one", "value", 5, key);
	for (int is_meant = 0; is_meant < 2; is_meant++) {
		struct spawn spawn = tool("extract", store, key);
		int master, terminal;
		struct ended ended;

		assert_int_equal(openpty(&master, &terminal, NULL, NULL, NULL),
				 0);
		spawn.arguments[3] = is_meant ? "-o" : NULL;
		spawn.arguments[4] = is_meant ? "-" : NULL;
		spawn.before = use_terminal;
		spawn.arg = &terminal;
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), is_meant ? 0 : 2);
		close(terminal);
		text = read_to_end(master);
		assert_string_equal(text, is_meant ? "value" : "");
		free(text);
		ended_free(&ended);
	}
	free(store);
}

static void close_pipe(void *arg)
{
	int ends[2];

	if (pipe(ends) || close(ends[0]) || dup2(ends[1], 1) != 1)
		_exit(99);
}

static void fill_disk(void *arg)
{
	int fd = open("/dev/full", O_WRONLY);

	if (fd < 0 || dup2(fd, 1) != 1)
		_exit(99);
}

/* S61 */
static void gone_and_full_outputs_are_as_elsewhere(void **state)
{
	char *store = url_of("log"), *empty = harness_directory();
	char key[KEY_BYTES], *missing = harness_path(empty, "none/value");
	struct spawn spawn;
	struct ended ended;

	put(store, "one", "value", 5, key);
	spawn = tool("extract", store, key);
	spawn.before = close_pipe;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.err, "");
	ended_free(&ended);
	spawn.before = fill_disk;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 1);
	ended_free(&ended);
	assert_refused(extract(store, key, "-o", missing), 1, missing);
	assert_refused(extract(store, key, "--json", NULL), 2, "--output");
	assert_refused(extract(store, key, "--json", "--output=-"), 2,
		       "--output");
	assert_refused(extract(store, "0123456789", NULL, NULL), 3, "no entry");
	free(missing);
	free(empty);
	free(store);
}

/* ---- What it saves ------------------------------------------------------------------ */

static void show_tells_what_an_entry_saves(void **state)
{
	char *store = url_of("file"), key[KEY_BYTES];
	struct spawn spawn;
	struct ended ended;

	put(store, "one", "value", 5, key);
	spawn = tool("show", store, key);
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out,
			       "\nsaves         4.2 s each time it is found"));
	assert_non_null(strstr(ended.out, "\nsize          5 bytes\n"));
	assert_non_null(strstr(ended.out, "\nin the store  "));
	ended_free(&ended);
	free(store);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_value_comes_as_it_was_put),
		cmocka_unit_test(of_an_opencl_program_one_binary_can_be_had),
		cmocka_unit_test(a_wrong_length_is_no_binary),
		cmocka_unit_test(what_is_a_drivers_comes_as_its_file),
		cmocka_unit_test(a_terminal_gets_a_value_only_if_it_is_meant),
		cmocka_unit_test(gone_and_full_outputs_are_as_elsewhere),
		cmocka_unit_test(show_tells_what_an_entry_saves),
	};

	if (argc < 2)
		return 1;
	program = argv[1];
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
