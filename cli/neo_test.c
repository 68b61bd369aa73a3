/* SPDX-License-Identifier: MIT */

/* The verbs in a directory of Intel's compute runtime, as a shell sees them:
   one put together here, in both layouts, and those that drivers wrote. */

#include "testing.h"
#include "harness/harness.h"

#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/bytes.h"

static const char *program;

static const char *const layouts[] = { "flat", "tree" };

/* ---- Around it ------------------------------------------------------------------ */

/* Run `kiln VERB neo:DIRECTORY A B`. */
static struct ended ask(const char *verb, const char *directory, const char *a,
			const char *b)
{
	struct spawn spawn = { .program = program };
	struct ended ended;
	char *url;

	assert_true(asprintf(&url, "neo:%s", directory) > 0);
	spawn.arguments[0] = verb;
	spawn.arguments[1] = url;
	spawn.arguments[2] = a;
	spawn.arguments[3] = a ? b : NULL;
	spawn.variables[0] = "KILN_DIR=/nowhere";
	spawn.variables[1] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[2] = "COLUMNS";
	ended = spawn_run(&spawn);
	free(url);
	return ended;
}

static json_t *ask_json(const char *verb, const char *directory, const char *a,
			int status)
{
	struct ended ended =
		ask(verb, directory, a ? a : "--json", a ? "--json" : NULL);
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_int_equal(status_of(&ended), status);
	assert_non_null(json);
	ended_free(&ended);
	return json;
}

static int number_of(const json_t *json, const char *name)
{
	return (int)json_integer_value(json_object_get(json, name));
}

static const char *text_of(const json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

/* The entry of that file in what `ls --json` says. */
static json_t *entry_of(const json_t *list, const char *base)
{
	json_t *entries = json_object_get(list, "entries"), *entry;
	size_t i;

	json_array_foreach(entries, i, entry)
	{
		const char *file = text_of(entry, "file");

		if (strstr(file, base))
			return entry;
	}
	return NULL;
}

static void set_age(const char *path, int hours)
{
	struct timespec times[2];

	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= 3600 * hours;
	times[1] = times[0];
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* SPIR-V of one kernel, named `name` (7 letters), and zeros. */
static void plant(const char *directory, int is_tree, const char *base,
		  const char *name, size_t size, int hours)
{
	uint8_t *bytes = calloc(1, size);
	char path[600];
	static const uint32_t words[] = { 0x07230203, 0x10000,	     0, 7,
					  0,	      5u << 16 | 15, 6, 1 };

	for (size_t i = 0; i < 8; i++)
		ki_put_u32(bytes + 4 * i, words[i]);
	memcpy(bytes + 32, name, 7);
	if (is_tree) {
		snprintf(path, sizeof(path), "%s/%c", directory, base[0]);
		(void)mkdir(path, 0775);
		snprintf(path, sizeof(path), "%s/%c/%c", directory, base[0],
			 base[1]);
		(void)mkdir(path, 0775);
		snprintf(path, sizeof(path), "%s/%c/%c/%s", directory, base[0],
			 base[1], base);
	} else {
		snprintf(path, sizeof(path), "%s/%s", directory, base);
	}
	harness_write(path, bytes, size);
	set_age(path, hours);
	free(bytes);
}

#define OLDEST	"0123456789abcdef.cl_cache"
#define YOUNGER "fedcba9876543210.l0_cache"

/* One entry of kiln's, used just now, and two of a driver's. */
static char *filled(int is_tree)
{
	char *directory = harness_directory(), *url;
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = kiln_key_new();
	struct kiln_options options;
	struct kiln *kiln;
	uint64_t total;

	plant(directory, is_tree, OLDEST, "vectors", 3000, 90);
	plant(directory, is_tree, YOUNGER, "scalars", 2000, 50);
	assert_true(asprintf(&url, "neo:%s#%s", directory, layouts[is_tree]) >
		    0);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	kiln_key_add_string(key, "source", "kernel");
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, "opencl");
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 "/usr/bin/an-application");
	assert_int_equal(kiln_put(kiln, key, "value", 5, metadata, 0), KILN_OK);
	kiln_close(kiln);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
	total = harness_disk_bytes(directory);
	assert_true(total > 5005);
	free(url);
	return directory;
}

static uint64_t sum_of(const char *directory)
{
	char *path = harness_path(directory, "config.file"), *bytes;
	uint64_t sum = UINT64_MAX;
	size_t size;

	bytes = harness_read(path, &size);
	if (bytes && size == 8)
		sum = ki_get_u64(bytes);
	free(bytes);
	free(path);
	return sum;
}

/* ---- What is there ----------------------------------------------------------------- */

static void ls_tells_whose_a_file_is_and_what(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = filled(i);
		json_t *json = ask_json("ls", directory, NULL, 0);
		json_t *entry = entry_of(json, OLDEST), *what;
		struct ended ended;

		assert_int_equal(
			json_array_size(json_object_get(json, "entries")), 3);
		assert_true(json_is_true(json_object_get(entry, "foreign")));
		assert_int_equal(number_of(entry, "turn"), 1);
		assert_int_equal(number_of(entry, "bytes"), 3000);
		assert_string_equal(text_of(entry, "front"), "opencl");
		what = json_object_get(entry, "what");
		assert_string_equal(text_of(what, "form"), "SPIR-V");
		assert_string_equal(
			json_string_value(json_array_get(
				json_object_get(what, "kernels"), 0)),
			"vectors");
		entry = entry_of(json, YOUNGER);
		assert_int_equal(number_of(entry, "turn"), 2);
		assert_string_equal(text_of(entry, "front"), "levelzero");
		json_decref(json);

		ended = ask("ls", directory, NULL, NULL);
		assert_non_null(strstr(ended.out, "SPIR-V: vectors"));
		assert_non_null(strstr(ended.out, "an-application"));
		assert_non_null(strstr(ended.out, "3 days ago"));
		ended_free(&ended);
		free(directory);
	}
}

static void ls_sorts_and_filters_what_is_a_drivers(void **state)
{
	static const struct {
		const char *option;
		int n;
		int has_oldest;
		int n_unknown;
	} rows[] = {
		{ "--larger-than=2500", 1, 1, 0 },
		{ "--older-than=60h", 1, 1, 1 },
		{ "--smaller-than=2500", 2, 0, 0 },
		/* SPIR-V is for any. */
		{ "--device=arc", 0, 0, 3 },
		{ "--application=an-application", 1, 0, 2 },
	};
	char *directory = filled(1);
	json_t *json = ask_json("ls", directory, "--sort=used", 0);
	const json_t *entries = json_object_get(json, "entries");

	assert_string_equal(text_of(json_array_get(entries, 0), "application"),
			    "/usr/bin/an-application");
	assert_non_null(
		strstr(text_of(json_array_get(entries, 1), "file"), YOUNGER));
	assert_non_null(
		strstr(text_of(json_array_get(entries, 2), "file"), OLDEST));
	json_decref(json);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		json = ask_json("ls", directory, rows[i].option, 0);
		entries = json_object_get(json, "entries");
		assert_int_equal(json_array_size(entries), rows[i].n);
		assert_int_equal(entry_of(json, OLDEST) != NULL,
				 rows[i].has_oldest);
		assert_int_equal(number_of(json, "left_unknown"),
				 rows[i].n_unknown);
		json_decref(json);
	}
	free(directory);
}

static void show_finds_a_drivers_entry_by_its_beginning(void **state)
{
	char *directory = filled(0), prefix[9];
	json_t *json = ask_json("ls", directory, NULL, 0), *shown, *entry;
	struct ended ended;

	snprintf(prefix, sizeof(prefix), "%.8s",
		 text_of(entry_of(json, YOUNGER), "key"));
	ended = ask("show", directory, prefix, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "scalars"));
	assert_non_null(strstr(ended.out, "a driver's own"));
	assert_non_null(strstr(ended.out, "neo.file = " YOUNGER));
	ended_free(&ended);
	shown = ask_json("show", directory, prefix, 0);
	entry = json_object_get(shown, "entry");
	assert_string_equal(text_of(json_object_get(entry, "what"), "form"),
			    "SPIR-V");
	json_decref(shown);
	ended = ask("why", directory, prefix, NULL);
	assert_int_equal(status_of(&ended), 3);
	assert_non_null(strstr(ended.err, "nobody knows of which build"));
	ended_free(&ended);
	json_decref(json);
	free(directory);
}

static void stats_tell_who_is_next_to_go(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = filled(i);
		json_t *json = ask_json("stats", directory, NULL, 0);
		struct ended ended = ask("stats", directory, NULL, NULL);

		assert_int_equal(number_of(json, "entries"), 3);
		assert_int_equal(number_of(json, "entries_foreign"), 2);
		assert_non_null(strstr(
			text_of(json_object_get(json, "next_to_go"), "file"),
			OLDEST));
		assert_non_null(strstr(ended.out, "next to go"));
		ended_free(&ended);
		json_decref(json);
		free(directory);
	}
}

/* ---- What is done about it ----------------------------------------------------------- */

static void verify_has_a_reason_for_what_it_calls_damaged(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = filled(i);
		json_t *json = ask_json("verify", directory, NULL, 0);

		assert_int_equal(number_of(json, "entries"), 1);
		assert_int_equal(number_of(json, "foreign"), 2);
		assert_int_equal(number_of(json, "damaged"), 0);
		json_decref(json);
		plant(directory, i, "00000000000000aa.cl_cache", "nothing", 64,
		      3);
		{
			char path[600];

			snprintf(path, sizeof(path), "%s/%s%s", directory,
				 i ? "0/0/" : "", "00000000000000aa.cl_cache");
			harness_write(path, "\177ELF\2\1\1", 7);
		}
		json = ask_json("verify", directory, NULL, 4);
		assert_int_equal(number_of(json, "damaged"), 1);
		json_decref(json);
		json = ask_json("verify", directory, "--repair", 4);
		assert_int_equal(number_of(json, "repaired"), 1);
		json_decref(json);
		json = ask_json("verify", directory, NULL, 0);
		assert_int_equal(number_of(json, "foreign"), 2);
		json_decref(json);
		assert_int_equal(sum_of(directory), 5005);
		free(directory);
	}
}

static void gc_takes_them_in_their_turn(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = filled(i);
		struct ended ended = ask("gc", directory, "--max-size", "2900");
		json_t *json = ask_json("ls", directory, NULL, 0);

		assert_int_equal(status_of(&ended), 0);
		assert_non_null(strstr(ended.out, "1 entry evicted"));
		assert_null(entry_of(json, OLDEST));
		assert_int_equal(number_of(entry_of(json, YOUNGER), "turn"), 1);
		assert_int_equal(sum_of(directory), 2005);
		ended_free(&ended);
		json_decref(json);
		ended = ask("gc", directory, "--older-than", "2d");
		assert_non_null(strstr(ended.out, "1 entry expired"));
		ended_free(&ended);
		assert_int_equal(sum_of(directory), 5);
		free(directory);
	}
}

static void rm_removes_what_is_named_and_all_or_nothing(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = filled(i), first[13], second[13];
		json_t *json = ask_json("ls", directory, NULL, 0);
		struct ended ended;

		snprintf(first, sizeof(first), "%s",
			 text_of(entry_of(json, OLDEST), "key"));
		snprintf(second, sizeof(second), "%s",
			 text_of(entry_of(json, YOUNGER), "key"));
		json_decref(json);
		ended = ask("rm", directory, first, "00000000");
		assert_int_equal(status_of(&ended), 3);
		ended_free(&ended);
		assert_int_equal(sum_of(directory), 5005);
		ended = ask("rm", directory, first, second);
		assert_int_equal(status_of(&ended), 0);
		assert_non_null(strstr(ended.out, "removed 2 entries"));
		ended_free(&ended);
		assert_int_equal(sum_of(directory), 5);
		ended = ask("rm", directory, first, NULL);
		assert_int_equal(status_of(&ended), 3);
		ended_free(&ended);
		free(directory);
	}
}

static void clear_says_how_many_were_a_drivers(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = filled(i);
		struct ended ended = ask("clear", directory, NULL, NULL);
		json_t *json;

		assert_int_equal(status_of(&ended), 0);
		assert_non_null(strstr(ended.out, "removed 3 entries ("));
		assert_non_null(strstr(ended.out, "2 of them a driver's own"));
		ended_free(&ended);
		assert_int_equal(sum_of(directory), 0);
		json = ask_json("ls", directory, NULL, 0);
		assert_int_equal(
			json_array_size(json_object_get(json, "entries")), 0);
		json_decref(json);
		free(directory);
	}
}

/* ---- Looking leaves no trace ----------------------------------------------------------- */

static uint64_t traces;

static int add_trace(const char *path, const struct stat *st, int type,
		     struct FTW *place)
{
	const int is_entry = strstr(path + place->base, "_cache") != NULL;
	const uint64_t numbers[] = {
		(uint64_t)st->st_ino,
		(uint64_t)st->st_size,
		(uint64_t)st->st_mtim.tv_sec,
		(uint64_t)st->st_mtim.tv_nsec,
		(uint64_t)st->st_ctim.tv_sec,
		(uint64_t)st->st_ctim.tv_nsec,
		is_entry ? (uint64_t)st->st_atim.tv_sec : 0,
		is_entry ? (uint64_t)st->st_atim.tv_nsec : 0,
	};

	for (size_t i = 0; i < 8; i++)
		traces = (traces ^ numbers[i]) * 0x9e3779b97f4a7c15u;
	return 0;
}

/* Of everything there sizes and times, of entries those of last access too. */
static uint64_t trace_of(const char *directory)
{
	traces = 0;
	assert_int_equal(nftw(directory, add_trace, 8, FTW_PHYS), 0);
	return traces;
}

static void look_at(const char *directory, size_t n_expected)
{
	static const char *const verbs[] = { "ls", "stats", "verify" };
	const uint64_t before = trace_of(directory);
	json_t *json, *entry;
	size_t i;

	for (i = 0; i < 3; i++)
		json_decref(ask_json(verbs[i], directory, NULL, 0));
	json = ask_json("ls", directory, NULL, 0);
	assert_int_equal(json_array_size(json_object_get(json, "entries")),
			 n_expected);
	json_array_foreach(json_object_get(json, "entries"), i, entry)
		json_decref(
			ask_json("show", directory, text_of(entry, "key"), 0));
	json_decref(json);
	assert_true(trace_of(directory) == before);
}

static void looking_leaves_no_trace(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = filled(i);

		look_at(directory, 3);
		free(directory);
	}
}

static void what_drivers_wrote_is_listed_and_left_alone(void **state)
{
	static const struct {
		const char *name;
		size_t n;
	} reals[] = { { "neo_25.05_flat", 2 },
		      { "neo_head_2026-08_tree", 2 },
		      { "ocloc_22.43_debian12", 3 } };
	const char *root = getenv("KILN_TEST_NEO_DATA");

	if (!root || access(root, R_OK)) {
		print_message("# not tried: no real directories here "
			      "(KILN_TEST_NEO_DATA)\n");
		return;
	}
	for (size_t i = 0; i < sizeof(reals) / sizeof(*reals); i++) {
		char *directory = harness_path(root, reals[i].name);

		look_at(directory, reals[i].n);
		free(directory);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ls_tells_whose_a_file_is_and_what),
		cmocka_unit_test(ls_sorts_and_filters_what_is_a_drivers),
		cmocka_unit_test(show_finds_a_drivers_entry_by_its_beginning),
		cmocka_unit_test(stats_tell_who_is_next_to_go),
		cmocka_unit_test(verify_has_a_reason_for_what_it_calls_damaged),
		cmocka_unit_test(gc_takes_them_in_their_turn),
		cmocka_unit_test(rm_removes_what_is_named_and_all_or_nothing),
		cmocka_unit_test(clear_says_how_many_were_a_drivers),
		cmocka_unit_test(looking_leaves_no_trace),
		cmocka_unit_test(what_drivers_wrote_is_listed_and_left_alone),
	};

	if (argc != 2)
		return 99;
	program = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
