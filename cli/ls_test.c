/* SPDX-License-Identifier: MIT */

/* kiln ls: filters, order and columns, over every kind of store of kiln's own; and
   that verbs which look change nothing. */

#include "testing.h"
#include "harness/harness.h"

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

/* ---- Around it ------------------------------------------------------------------ */

#define ARGUMENTS_MAX 8

static struct ended ask(const char *store, const char *const *arguments)
{
	struct spawn spawn = { .program = program };
	char setting[600];
	int n = 1;

	snprintf(setting, sizeof(setting), "KILN_STORE=%s", store);
	spawn.arguments[0] = "ls";
	for (int i = 0; i < ARGUMENTS_MAX && arguments[i]; i++)
		spawn.arguments[n++] = arguments[i];
	spawn.variables[0] = setting;
	spawn.variables[1] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[2] = "KILN_PACKS";
	spawn.variables[3] = "COLUMNS";
	return spawn_run(&spawn);
}

#define LS(store, ...)                                                         \
	ask(store, (const char *const[ARGUMENTS_MAX + 1]){ __VA_ARGS__ })

/* ---- Entries -------------------------------------------------------------------- */

#define DAY_S 86400

static const struct made {
	const char *application, *device, *name_space;
	unsigned age_days;
	unsigned build_ms;
	size_t bytes;
} table[] = {
	{ "/usr/bin/blas", "AMD Radeon", "", 1, 30, 100 },
	{ "/usr/bin/blas", "pthread-Xeon", "nightly", 9, 10, 5000 },
	{ "/opt/bin/crack", "AMD Radeon", "", 2, 50, 70000 },
	{ "/opt/bin/crack", "", "nightly", 30, 20, 300 },
};
#define N_MADE (sizeof(table) / sizeof(table[0]))

static struct kiln *open_store(const char *store, uint32_t flags,
			       const char *application)
{
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = store;
	options.flags = flags;
	options.application = application;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	return kiln;
}

static struct kiln_key *key_of(size_t i)
{
	struct kiln_key *key = kiln_key_new();
	uint32_t number = (uint32_t)i;

	kiln_key_add(key, "number", &number, sizeof(number));
	if (*table[i].device)
		kiln_key_add_string(key, "device 0 name", table[i].device);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

static struct kiln_metadata *metadata_of(size_t i)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	char options[16];

	snprintf(options, sizeof(options), "-DI=%zu", i);
	kiln_metadata_add_u64(metadata, KILN_META_CREATED,
			      (uint64_t)time(NULL) - table[i].age_days * DAY_S);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME,
			      table[i].build_ms * UINT64_C(1000000));
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 table[i].application);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS, options);
	if (*table[i].name_space)
		kiln_metadata_add_string(metadata, KILN_META_NAMESPACE,
					 table[i].name_space);
	return metadata;
}

static void put_all(const char *store)
{
	struct kiln *kiln = open_store(store, 0, NULL);

	for (size_t i = 0; i < N_MADE; i++) {
		struct kiln_metadata *metadata = metadata_of(i);
		struct kiln_key *key = key_of(i);
		char *value = calloc(1, table[i].bytes);

		assert_int_equal(
			kiln_put(kiln, key, value, table[i].bytes, metadata, 0),
			KILN_OK);
		free(value);
		kiln_metadata_free(metadata);
		kiln_key_free(key);
	}
	kiln_close(kiln);
}

/* blas is seen to use what crack made, too. */
static void use_as_blas(const char *store)
{
	struct kiln *kiln = open_store(store, KILN_OPEN_ORDER, "/usr/bin/blas");
	struct kiln_key *key = key_of(3);
	struct kiln_blob *blob;

	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	kiln_blob_unref(blob);
	kiln_key_free(key);
	kiln_close(kiln);
}

static const char *const kinds[] = { "log", "file" };
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* A store with them. */
static char *filled(const char *kind)
{
	char *directory = harness_directory(), *store;

	assert_true(asprintf(&store, "%s:%s", kind, directory) > 0);
	put_all(store);
	use_as_blas(store);
	free(directory);
	return store;
}

/* Their numbers in the order of the answer, "021". */
static void order_of(const json_t *json, char out[N_MADE + 1])
{
	const json_t *entry, *list = json_object_get(json, "entries");
	size_t i;

	assert_true(json_array_size(list) <= N_MADE);
	json_array_foreach(list, i, entry) out[i] =
		json_string_value(json_object_get(entry, "options"))[4];
	out[i] = '\0';
}

/* The same where the order does not count. */
static unsigned which(const json_t *json)
{
	char order[N_MADE + 1];
	unsigned set = 0;

	order_of(json, order);
	for (const char *c = order; *c; c++)
		set |= 1u << (*c - '0');
	return set;
}

static json_t *parse(const struct ended *ended)
{
	json_t *json = json_loads(ended->out, 0, NULL);

	assert_int_equal(status_of(ended), 0);
	assert_non_null(json);
	assert_int_equal(json_integer_value(json_object_get(json, "schema")),
			 1);
	return json;
}

/* ---- Filters -------------------------------------------------------------------- */

static void filters_take_what_fits_all_of_them(void **state)
{
	static const struct {
		const char *options[3];
		unsigned which;
		unsigned left_unknown;
		const char *words;
	} rows[] = {
		{ { NULL }, 0xf, 0, "" },
		{ { "--application=crack" }, 0xc, 0, "" },
		{ { "--application=/opt/bin/crack" }, 0xc, 0, "" },
		/* With what it was seen to use. */
		{ { "--application=blas" }, 0xb, 0, "" },
		{ { "--application=nobody" }, 0, 0, "" },
		{ { "--device=radeon" },
		  0x5,
		  1,
		  "kiln: 1 entry does not say its device: left out\n" },
		{ { "--namespace=nightly" }, 0xa, 0, "" },
		/* By the program's name, where nobody chose one. */
		{ { "--namespace=crack" }, 0x4, 0, "" },
		{ { "--older-than=5d" }, 0xa, 0, "" },
		{ { "--newer-than=5d" }, 0x5, 0, "" },
		{ { "--newer-than=20d", "--older-than=5d" }, 0x2, 0, "" },
		{ { "--larger-than=4K" }, 0x6, 0, "" },
		{ { "--smaller-than=5000" }, 0x9, 0, "" },
		{ { "--larger-than=300", "--smaller-than=1M" }, 0x6, 0, "" },
		{ { "--application=blas", "--namespace=nightly",
		    "--larger-than=1K" },
		  0x2,
		  0,
		  "" },
	};

	for (size_t k = 0; k < N_KINDS; k++) {
		char *store = filled(kinds[k]);

		for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
			const char *const *o = rows[i].options;
			struct ended ended =
				LS(store, "--json", o[0], o[0] ? o[1] : NULL,
				   o[0] && o[1] ? o[2] : NULL);
			json_t *json = parse(&ended);

			assert_int_equal(which(json), rows[i].which);
			assert_int_equal(json_integer_value(json_object_get(
						 json, "left_unknown")),
					 rows[i].left_unknown);
			assert_string_equal(ended.err, rows[i].words);
			json_decref(json);
			ended_free(&ended);
		}
		free(store);
	}
}

/* Packs do not say where their entries ran. */
static void what_a_pack_cannot_say_is_told(void **state)
{
	char *store = filled("log"), *directory = harness_directory();
	char *pack = harness_path(directory, "a.pack"), *url;
	struct spawn export = {
		.program = program,
		.arguments = { "export", store, pack },
		.variables = { "XDG_CONFIG_HOME=/nowhere", "HOME=/nowhere" },
	};
	struct ended ended = spawn_run(&export);

	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	assert_true(asprintf(&url, "pack:%s", pack) > 0);
	ended = LS(url, "--application=blas");
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "");
	assert_string_equal(ended.err, "kiln: 4 entries do not say whose they "
				       "are: left out\n");
	ended_free(&ended);
	free(url);
	free(pack);
	free(directory);
	free(store);
}

static void values_that_are_none_are_refused(void **state)
{
	static const char *const rows[] = {
		"--older-than=x",   "--newer-than=0", "--larger-than=big",
		"--smaller-than=0", "--sort=colour",  "--sort=",
	};
	char *directory = harness_directory(), *store;

	assert_true(asprintf(&store, "log:%s", directory) > 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended = LS(store, rows[i]);

		assert_int_equal(status_of(&ended), 2);
		assert_string_equal(ended.out, "");
		assert_memory_equal(ended.err, "kiln: --", 8);
		ended_free(&ended);
	}
	free(store);
	free(directory);
}

/* ---- Order ---------------------------------------------------------------------- */

static void what_is_asked_for_comes_first(void **state)
{
	static const struct {
		const char *option;
		const char *order;
	} rows[] = {
		{ "--sort=made", "0213" },  { "--sort=size", "2130" },
		{ "--sort=build", "2031" }, { "--sort=application", "0123" },
		{ "--sort=used", "0213" },
	};

	for (size_t k = 0; k < N_KINDS; k++) {
		char *store = filled(kinds[k]), order[N_MADE + 1];

		for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
			struct ended ended =
				LS(store, "--json", rows[i].option);
			json_t *json = parse(&ended);

			order_of(json, order);
			assert_string_equal(order, rows[i].order);
			assert_int_equal(
				*ended.err != '\0',
				!strcmp(rows[i].option, "--sort=used"));
			json_decref(json);
			ended_free(&ended);
		}
		free(store);
	}
}

static void a_table_has_the_same_order(void **state)
{
	char *store = filled("log"), *at;
	struct ended ended = LS(store, "--sort", "size");

	assert_int_equal(status_of(&ended), 0);
	at = ended.out;
	for (const char *c = "2130"; *c; c++) {
		char wanted[8];

		snprintf(wanted, sizeof(wanted), "-DI=%c", *c);
		at = strstr(at, wanted);
		assert_non_null(at);
	}
	ended_free(&ended);
	free(store);
}

/* ---- Columns -------------------------------------------------------------------- */

/* S61 */
static void long_rows_are_whole_and_fit(void **state)
{
	static const char *const widths[] = { "COLUMNS=40", "COLUMNS=100",
					      "COLUMNS" };
	char *store = filled("log");

	for (size_t i = 0; i < 3; i++) {
		struct spawn spawn = {
			.program = program,
			.arguments = { "ls", store, "--long" },
			.variables = { "XDG_CONFIG_HOME=/nowhere", widths[i] },
		};
		struct ended ended = spawn_run(&spawn);
		const size_t width = (size_t)atoi(widths[i] + 7 + (i < 2));

		assert_int_equal(status_of(&ended), 0);
		for (char *line = strtok(ended.out, "\n"); line;
		     line = strtok(NULL, "\n")) {
			assert_true(!width || strlen(line) <= width);
			assert_true(strncmp(line, "KEY", 3) == 0 ||
				    strspn(line, "0123456789abcdef") == 32);
			if (!width && strncmp(line, "KEY", 3))
				assert_true(strstr(line, "/usr/bin/blas") ||
					    strstr(line, "/opt/bin/crack"));
		}
		ended_free(&ended);
	}
	free(store);
}

/* ---- Where nobody may write --------------------------------------------------------------- */

struct looking {
	const char *store;
	char key[2 * KILN_DIGEST_BYTES + 1];
};

static struct looking looking_at(const char *store)
{
	struct kiln_key *key = key_of(0);
	struct looking looking = { .store = store };

	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, looking.key);
	kiln_key_free(key);
	return looking;
}

/* Every verb that is about entries; whether all went well. */
static int look_with_all(const struct looking *looking)
{
	const char *const rows[][4] = {
		{ "ls", "--json", "--sort=size", "--larger-than=1" },
		{ "show", "--json", looking->key },
		{ "extract", "--output=-", looking->key },
		{ "why", "--json" },
		{ "why", "--json", looking->key },
	};
	int are_right = 1;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = {
			.program = program,
			.arguments = { rows[i][0], looking->store, rows[i][1],
				       rows[i][2], rows[i][3] },
			.variables = { "XDG_CONFIG_HOME=/nowhere",
				       "HOME=/nowhere", "KILN_PACKS" },
		};
		struct ended ended = spawn_run(&spawn);
		json_t *json = json_loads(ended.out, 0, NULL);

		are_right &= status_of(&ended) == 0 && !*ended.err;
		are_right &= (json != NULL) == (i != 2);
		json_decref(json);
		ended_free(&ended);
	}
	return are_right;
}

/* S30 */
static void looking_changes_nothing(void **state)
{
	for (size_t k = 0; k < N_KINDS; k++) {
		char *store = filled(kinds[k]);
		struct looking looking = looking_at(store);
		const char *directory = strchr(store, ':') + 1;
		struct stat before, after;

		assert_int_equal(chmod(directory, 0500), 0);
		assert_int_equal(stat(directory, &before), 0);
		assert_true(look_with_all(&looking));
		assert_int_equal(stat(directory, &after), 0);
		assert_memory_equal(&before.st_mtim, &after.st_mtim,
				    sizeof(before.st_mtim));
		assert_int_equal(chmod(directory, 0700), 0);
		free(store);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters_take_what_fits_all_of_them),
		cmocka_unit_test(what_a_pack_cannot_say_is_told),
		cmocka_unit_test(values_that_are_none_are_refused),
		cmocka_unit_test(what_is_asked_for_comes_first),
		cmocka_unit_test(a_table_has_the_same_order),
		cmocka_unit_test(long_rows_are_whole_and_fit),
		cmocka_unit_test(looking_changes_nothing),
	};

	if (argc < 2)
		return 1;
	program = argv[1];
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
