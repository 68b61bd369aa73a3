/* SPDX-License-Identifier: MIT */

/* The verbs in a directory of DPC++'s persistent cache, as a shell sees them: one
   that an original filled, with what kernel_compiler keeps, and an entry of
   kiln's. */

#include "testing.h"
#include "harness/harness.h"

#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "original.h"

static const char *program;

/* ---- The directory -------------------------------------------------------------- */

#define DEVICE                                                                 \
	"Intel(R) oneAPI Unified Runtime over Level-Zero/Arc "                 \
	"A770/1.3/1.3.29735"
#define PLACE                                                                  \
	"1044156885828193918/16574976699107597140/6142509188972423790/"        \
	"15346329282916004953"
#define IR "ext_kernel_compiler/0123abcd"
#define EXT                                                                    \
	"ext_kernel_compiler/1044156885828193918/6142509188972423790/"         \
	"3663726644998027833"

#define LITERAL(text)                                                          \
	{                                                                      \
		text, sizeof(text) - 1                                         \
	}

static const struct original_key oldest_key = {
	.device = LITERAL(DEVICE),
	.options = LITERAL("-cl-fast"),
	.image = { "\0\1\2\3\4\5\6\7\10\11", 10 },
};

/* SPIR-V of one kernel, "scalars", in its image; and so in its binary. */
static const uint32_t spirv[] = { 0x07230203, 0x10000,	     0, 7,
				  0,	      5u << 16 | 15, 6, 1,
				  0x6c616373, 0x00737261 };

static const struct original_key younger_key = {
	.device = LITERAL(DEVICE),
	.options = LITERAL("-O2"),
	.spec = { "1\0"
		  "34\0",
		  5 },
	.image = { spirv, sizeof(spirv) },
};

static char *put_together(const char *directory, const char *place,
			  const char *base)
{
	char *path;

	assert_true(asprintf(&path, "%s/%s/%s", directory, place, base) > 0);
	for (char *c = path + strlen(directory) + 1; (c = strchr(c, '/'));
	     c++) {
		*c = '\0';
		(void)mkdir(path, 0777);
		*c = '/';
	}
	return path;
}

static void write_file(const char *directory, const char *place,
		       const char *base, const void *bytes, size_t size)
{
	char *path = put_together(directory, place, base);

	harness_write(path, bytes, size);
	free(path);
}

static void set_use(const char *directory, const char *place, const char *base,
		    int hours)
{
	struct timespec now;
	char text[32];

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(text, sizeof(text), "%lld000000000",
		 (long long)now.tv_sec - 3600 * hours);
	write_file(directory, place, base, text, strlen(text));
}

static void write_bin(const char *directory, const char *place,
		      const char *base, const void *binary, size_t size)
{
	uint8_t bytes[256] = { 0 };

	ki_put_u64(bytes, 1);
	ki_put_u64(bytes + 8, size);
	memcpy(bytes + 16, binary, size);
	write_file(directory, place, base, bytes, 16 + size);
}

static const char *place_of(const char *directory,
			    const struct original_key *key,
			    char out[ORIGINAL_PATH_BYTES])
{
	const struct original original = { .directory = directory };

	original_place(&original, key, out);
	memmove(out, out + strlen(directory) + 1,
		strlen(out) - strlen(directory));
	return out;
}

static struct kiln *open_sycl(const char *directory)
{
	struct kiln_options options;
	struct kiln *kiln;
	char *url;

	assert_true(asprintf(&url, "sycl:%s", directory) > 0);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	free(url);
	return kiln;
}

static void put_own(const char *directory)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = kiln_key_new();
	struct kiln *kiln = open_sycl(directory);

	kiln_key_add_string(key, "source", "kernel");
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 "/usr/bin/an-application");
	assert_int_equal(kiln_put(kiln, key, "value", 5, metadata, 0), KILN_OK);
	kiln_close(kiln);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
}

/* As DPC++ would find it. */
static void put_shared(const char *directory, const struct original_key *of,
		       const char *options, char out[13])
{
	struct kiln_key *key = kiln_key_new();
	struct kiln *kiln = open_sycl(directory);
	char digest[2 * KILN_DIGEST_BYTES + 1];

	kiln_key_add(key, "sycl.device", of->device.data, of->device.size);
	kiln_key_add_string(key, "sycl.options", options);
	kiln_key_add(key, "sycl.spec", of->spec.data, of->spec.size);
	kiln_key_add(key, "sycl.image", of->image.data, of->image.size);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	assert_int_equal(kiln_put(kiln, key, "value", 5, NULL, 0), KILN_OK);
	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, digest);
	snprintf(out, 13, "%.12s", digest);
	kiln_close(kiln);
	kiln_key_free(key);
}

/* Two entries of DPC++'s, two of kernel_compiler's. */
static char *originals(void)
{
	char *directory = harness_directory(), place[ORIGINAL_PATH_BYTES];
	const struct original original = { .directory = directory,
					   .bytes_max = 1000000 };

	assert_int_equal(original_put(&original, &oldest_key, "\177ELF\2\1", 6),
			 0);
	assert_int_equal(
		original_put(&original, &younger_key, spirv, sizeof(spirv)), 0);
	place_of(directory, &oldest_key, place);
	assert_string_equal(place, PLACE);
	set_use(directory, place, "0_access_time.txt", 90);
	set_use(directory, place_of(directory, &younger_key, place),
		"0_access_time.txt", 50);
	write_bin(directory, EXT, "0.bin", "SPIR", 4);
	set_use(directory, EXT, "0_access_time.txt", 30);
	write_bin(directory, IR, "ir.bin", "BC\xc0\xde", 4);
	set_use(directory, IR, "ir_access_time.txt", 20);
	return directory;
}

/* And one of kiln's. */
static char *filled(void)
{
	char *directory = originals();

	put_own(directory);
	return directory;
}

/* ---- Around it ------------------------------------------------------------------ */

static struct ended ask(const char *verb, const char *directory, const char *a,
			const char *b)
{
	struct spawn spawn = { .program = program };
	struct ended ended;
	char *url;

	assert_true(asprintf(&url, "sycl:%s", directory) > 0);
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

/* The entry of that file in what `ls --json` says; NULL. */
static json_t *entry_of(const json_t *list, const char *part)
{
	json_t *entries = json_object_get(list, "entries"), *entry;
	size_t i;

	json_array_foreach(entries, i, entry)
	{
		if (strstr(text_of(entry, "file"), part))
			return entry;
	}
	return NULL;
}

static size_t n_entries(const char *directory)
{
	json_t *json = ask_json("ls", directory, NULL, 0);
	const size_t n = json_array_size(json_object_get(json, "entries"));

	json_decref(json);
	return n;
}

/* ---- What is there ----------------------------------------------------------------- */

static void ls_tells_what_each_entry_is(void **state)
{
	char *directory = filled(), place[ORIGINAL_PATH_BYTES];
	json_t *json = ask_json("ls", directory, NULL, 0), *entry, *what;
	struct ended ended;

	assert_int_equal(json_array_size(json_object_get(json, "entries")), 5);
	entry = entry_of(json, PLACE);
	assert_true(json_is_true(json_object_get(entry, "foreign")));
	assert_int_equal(number_of(entry, "turn"), 1);
	assert_int_equal(number_of(entry, "bytes"), 6);
	what = json_object_get(entry, "what");
	assert_string_equal(text_of(what, "form"), "other ELF");
	what = json_object_get(what, "sycl");
	assert_string_equal(text_of(what, "device"), DEVICE);
	assert_string_equal(text_of(what, "options"), "-cl-fast");
	assert_int_equal(number_of(what, "bin_bytes"), 22);
	assert_int_equal(number_of(what, "src_bytes"), 120);
	assert_int_equal(number_of(what, "binary_bytes"), 6);
	assert_int_equal(number_of(what, "image_bytes"), 10);
	assert_string_equal(text_of(what, "image_form"), "unknown");

	entry = entry_of(json, place_of(directory, &younger_key, place));
	assert_int_equal(number_of(entry, "turn"), 2);
	what = json_object_get(entry, "what");
	assert_string_equal(text_of(what, "form"), "SPIR-V");
	what = json_object_get(what, "sycl");
	assert_string_equal(text_of(what, "options"), "-O2");
	assert_string_equal(text_of(what, "image_form"), "SPIR-V");
	assert_int_equal(number_of(what, "spec_bytes"), 5);

	entry = entry_of(json, EXT);
	assert_string_equal(text_of(entry, "front"), "kernel_compiler");
	what = json_object_get(json_object_get(entry, "what"), "sycl");
	assert_true(json_is_true(json_object_get(what, "kernel_compiler")));
	entry = entry_of(json, IR "/ir.bin");
	assert_int_equal(number_of(entry, "turn"), 4);
	assert_string_equal(text_of(json_object_get(entry, "what"), "form"),
			    "LLVM bitcode");
	json_decref(json);

	ended = ask("ls", directory, NULL, NULL);
	assert_non_null(strstr(ended.out, "Arc A770 "));
	assert_non_null(strstr(ended.out, "-cl-fast"));
	assert_non_null(strstr(ended.out, "SPIR-V: scalars"));
	assert_non_null(strstr(ended.out, "kernel_compiler, LLVM bitcode"));
	assert_non_null(strstr(ended.out, "3 days ago"));
	assert_non_null(strstr(ended.out, "DPC++"));
	ended_free(&ended);
	free(directory);
}

static void says_once(const char *text, const char *words)
{
	const char *first = strstr(text, words);

	assert_non_null(first);
	assert_null(strstr(first + 1, words));
}

static void show_finds_an_entry_of_dpcpps_by_its_beginning(void **state)
{
	char *directory = filled(), prefix[13];
	json_t *json = ask_json("ls", directory, NULL, 0), *shown;
	struct ended ended;

	snprintf(prefix, sizeof(prefix), "%s",
		 text_of(entry_of(json, PLACE), "key"));
	ended = ask("show", directory, prefix, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "DPC++'s own"));
	assert_non_null(strstr(ended.out, DEVICE));
	assert_non_null(strstr(ended.out, "-cl-fast"));
	assert_non_null(strstr(ended.out, PLACE "/0.bin"));
	says_once(ended.out, PLACE);
	says_once(ended.out, DEVICE);
	says_once(ended.out, "-cl-fast");
	says_once(ended.out, "  sycl.image = ");
	ended_free(&ended);
	shown = ask_json("show", directory, prefix, 0);
	assert_non_null(json_object_get(
		json_object_get(json_object_get(shown, "entry"), "what"),
		"sycl"));
	json_decref(shown);
	snprintf(prefix, sizeof(prefix), "%s",
		 text_of(entry_of(json, EXT), "key"));
	ended = ask("show", directory, prefix, NULL);
	assert_non_null(strstr(ended.out, "the files do not say"));
	says_once(ended.out, EXT);
	ended_free(&ended);
	json_decref(json);
	free(directory);
}

/* S62: of DPC++'s own too, as far as files say. */
static void why_names_the_field_that_differs(void **state)
{
	static const struct original_key other_key = {
		.device = LITERAL(DEVICE),
		.options = LITERAL("-O3"),
		.spec = { "1\0"
			  "34\0",
			  5 },
		.image = { spirv, sizeof(spirv) },
	};
	char *directory = filled(), place[ORIGINAL_PATH_BYTES];
	const struct original original = { .directory = directory };
	char first[13], second[13], third[13];
	struct ended ended;
	json_t *json;

	assert_int_equal(original_put(&original, &other_key, "x", 1), 0);
	json = ask_json("ls", directory, NULL, 0);
	snprintf(first, sizeof(first), "%s",
		 text_of(entry_of(json,
				  place_of(directory, &younger_key, place)),
			 "key"));
	snprintf(second, sizeof(second), "%s",
		 text_of(entry_of(json, place_of(directory, &other_key, place)),
			 "key"));
	snprintf(third, sizeof(third), "%s",
		 text_of(entry_of(json, EXT), "key"));
	json_decref(json);
	ended = ask("why", directory, first, second);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, ":\n  sycl.options: -O2 -> -O3\n"));
	ended_free(&ended);
	/* Alone, against the nearest. */
	ended = ask("why", directory, second, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, first));
	assert_non_null(strstr(ended.out, ":\n  sycl.options: -O2 -> -O3\n"));
	ended_free(&ended);
	/* One of kiln's, against one of DPC++'s. */
	put_shared(directory, &younger_key, "-O1", second);
	ended = ask("why", directory, first, second);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, ":\n  sycl.options: -O2 -> -O1\n"));
	assert_null(strstr(ended.out, "sycl.image"));
	ended_free(&ended);
	ended = ask("why", directory, third, NULL);
	assert_int_equal(status_of(&ended), 3);
	assert_non_null(strstr(ended.err, "is DPC++'s own: nobody knows"));
	ended_free(&ended);
	free(directory);
}

static void stats_tell_who_is_next_to_go(void **state)
{
	char *directory = filled();
	json_t *json = ask_json("stats", directory, NULL, 0);
	struct ended ended = ask("stats", directory, NULL, NULL);

	assert_int_equal(number_of(json, "entries"), 5);
	assert_int_equal(number_of(json, "entries_foreign"), 4);
	assert_non_null(strstr(
		text_of(json_object_get(json, "next_to_go"), "file"), PLACE));
	assert_non_null(strstr(ended.out, "next to go"));
	assert_non_null(strstr(ended.out, "of them DPC++'s own"));
	ended_free(&ended);
	json_decref(json);
	free(directory);
}

/* ---- What is done about it ----------------------------------------------------------- */

static void verify_has_a_reason_for_what_it_calls_damaged(void **state)
{
	char *directory = filled();
	json_t *json = ask_json("verify", directory, NULL, 0);

	assert_int_equal(number_of(json, "entries"), 1);
	assert_int_equal(number_of(json, "foreign"), 4);
	assert_int_equal(number_of(json, "damaged"), 0);
	json_decref(json);
	write_file(directory, PLACE, "1.bin", "\1\0\0\0\0\0\0\0\7", 9);
	write_file(directory, PLACE, "1.src", "\xff\xff\xff\xff\xff\xff\xff",
		   7);
	json = ask_json("ls", directory, NULL, 0);
	assert_true(json_is_true(json_object_get(
		json_object_get(
			json_object_get(entry_of(json, "/1.bin"), "what"),
			"sycl"),
		"damaged")));
	json_decref(json);
	json = ask_json("verify", directory, NULL, 4);
	assert_int_equal(number_of(json, "damaged"), 1);
	json_decref(json);
	json = ask_json("verify", directory, "--repair", 4);
	assert_int_equal(number_of(json, "repaired"), 1);
	json_decref(json);
	json = ask_json("verify", directory, NULL, 0);
	assert_int_equal(number_of(json, "foreign"), 4);
	json_decref(json);
	free(directory);
}

static void gc_takes_them_in_their_turn(void **state)
{
	char *directory = filled();
	struct ended ended = ask("gc", directory, "--older-than", "3d");
	json_t *json = ask_json("ls", directory, NULL, 0);

	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "1 entry expired"));
	assert_null(entry_of(json, PLACE));
	assert_int_equal(json_array_size(json_object_get(json, "entries")), 4);
	ended_free(&ended);
	json_decref(json);
	ended = ask("gc", directory, "--older-than", "1d");
	assert_non_null(strstr(ended.out, "2 entries expired"));
	ended_free(&ended);
	assert_int_equal(n_entries(directory), 2);
	free(directory);
}

/* Without kiln.records, for which there must be room twice. */
static void gc_makes_room_by_the_longest_unused(void **state)
{
	char *directory = originals(), size[24];
	json_t *json = ask_json("gc", directory, NULL, 0);
	struct ended ended;

	snprintf(size, sizeof(size), "%d", number_of(json, "bytes_after") - 1);
	json_decref(json);
	ended = ask("gc", directory, "--max-size", size);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "1 entry evicted"));
	ended_free(&ended);
	json = ask_json("ls", directory, NULL, 0);
	assert_null(entry_of(json, PLACE));
	assert_int_equal(json_array_size(json_object_get(json, "entries")), 3);
	json_decref(json);
	free(directory);
}

static void rm_removes_what_is_named_and_all_or_nothing(void **state)
{
	char *directory = filled(), first[13], second[13];
	json_t *json = ask_json("ls", directory, NULL, 0);
	struct ended ended;

	snprintf(first, sizeof(first), "%s",
		 text_of(entry_of(json, PLACE), "key"));
	snprintf(second, sizeof(second), "%s",
		 text_of(entry_of(json, IR), "key"));
	json_decref(json);
	ended = ask("rm", directory, first, "00000000");
	assert_int_equal(status_of(&ended), 3);
	ended_free(&ended);
	assert_int_equal(n_entries(directory), 5);
	ended = ask("rm", directory, first, second);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "removed 2 entries"));
	ended_free(&ended);
	assert_int_equal(n_entries(directory), 3);
	free(directory);
}

static void clear_says_how_many_were_dpcpps(void **state)
{
	char *directory = filled();
	struct ended ended = ask("clear", directory, NULL, NULL);

	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "removed 5 entries ("));
	assert_non_null(strstr(ended.out, "4 of them DPC++'s own"));
	ended_free(&ended);
	assert_int_equal(n_entries(directory), 0);
	assert_int_equal(original_sum(directory), 0);
	free(directory);
}

/* ---- Looking leaves no trace ----------------------------------------------------------- */

static uint64_t traces;

static int add_trace(const char *path, const struct stat *st, int type,
		     struct FTW *place)
{
	const int is_file = S_ISREG(st->st_mode) &&
			    strncmp(path + place->base, "kiln.", 5) != 0;
	const uint64_t numbers[] = {
		(uint64_t)st->st_ino,
		(uint64_t)st->st_size,
		(uint64_t)st->st_mtim.tv_sec,
		(uint64_t)st->st_mtim.tv_nsec,
		(uint64_t)st->st_ctim.tv_sec,
		(uint64_t)st->st_ctim.tv_nsec,
		is_file ? (uint64_t)st->st_atim.tv_sec : 0,
		is_file ? (uint64_t)st->st_atim.tv_nsec : 0,
	};

	for (size_t i = 0; i < 8; i++)
		traces = (traces ^ numbers[i]) * 0x9e3779b97f4a7c15u;
	return 0;
}

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
	{
		struct ended ended;

		json_decref(
			ask_json("show", directory, text_of(entry, "key"), 0));
		ended = ask("why", directory, text_of(entry, "key"), NULL);
		ended_free(&ended);
	}
	json_decref(json);
	assert_true(trace_of(directory) == before);
}

static void looking_leaves_no_trace(void **state)
{
	char *directory = originals();

	look_at(directory, 4);
	put_own(directory);
	look_at(directory, 5);
	free(directory);
}

/* ---- The environment --------------------------------------------------------------------- */

static struct ended ask_about(const char *home, const char *variable,
			      const char *verb, const char *argument)
{
	struct spawn spawn = { .program = program };
	struct ended ended;
	char *set;

	assert_true(asprintf(&set, "HOME=%s", home) > 0);
	spawn.arguments[0] = verb;
	spawn.arguments[1] = argument;
	spawn.variables[0] = set;
	spawn.variables[1] = "XDG_CACHE_HOME";
	spawn.variables[2] = "XDG_CONFIG_HOME";
	spawn.variables[3] = "SYCL_CACHE_DIR";
	spawn.variables[4] = "SYCL_CACHE_MAX_SIZE";
	spawn.variables[5] = "SYCL_CACHE_DIALECT";
	spawn.variables[6] = "KILN_STORE";
	spawn.variables[7] = "COLUMNS";
	spawn.variables[8] = variable;
	ended = spawn_run(&spawn);
	free(set);
	return ended;
}

/* A home whose cache an original filled. */
static char *home(void)
{
	char *home = harness_directory(), *cache, *path, *from = originals();

	cache = harness_path(home, ".cache");
	path = harness_path(cache, "libsycl_cache");
	assert_int_equal(mkdir(cache, 0700), 0);
	assert_int_equal(rename(from, path), 0);
	free(cache);
	free(path);
	free(from);
	return home;
}

static void a_store_without_directory_is_the_environments(void **state)
{
	char *where = home();
	struct ended ended = ask_about(where, NULL, "ls", "sycl:");

	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "SPIR-V: scalars"));
	ended_free(&ended);
	ended = ask_about(where, "KILN_STORE=sycl:", "stats", NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "/.cache/libsycl_cache"));
	ended_free(&ended);
	free(where);
}

static void config_says_the_dialect_and_why(void **state)
{
	static const struct {
		const char *variable;
		const char *lines[2];
	} rows[] = {
		{ NULL,
		  { "SYCL_CACHE_DIALECT dpcpp cache_size.txt of DPC++'s in the "
		    "directory",
		    "SYCL_CACHE_MAX_SIZE 0 default" } },
		{ "SYCL_CACHE_DIALECT=seed",
		  { "SYCL_CACHE_DIALECT seed environment",
		    "SYCL_CACHE_MAX_SIZE 8192 default" } },
		{ "SYCL_CACHE_MAX_SIZE=1K",
		  { "SYCL_CACHE_DIALECT dpcpp ",
		    "SYCL_CACHE_MAX_SIZE 1K environment, not understood" } },
		{ "SYCL_CACHE_DIR=/nowhere",
		  { "SYCL_CACHE_DIALECT seed default",
		    "SYCL_CACHE_DIR /nowhere environment" } },
	};
	char *where = home();

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended =
			ask_about(where, rows[i].variable, "config", NULL);
		size_t n = 0;

		/* With one blank where the table has many. */
		for (const char *c = ended.out; *c; c++)
			if (*c != ' ' || c[1] != ' ')
				ended.out[n++] = *c;
		ended.out[n] = '\0';
		assert_int_equal(status_of(&ended), 0);
		for (size_t j = 0; j < 2; j++)
			assert_non_null(strstr(ended.out, rows[i].lines[j]));
		ended_free(&ended);
	}
	free(where);
}

/* Who only looks is told and looks; who changes a store must not guess. */
static void what_is_wrong_with_variables_is_said(void **state)
{
	static const struct {
		const char *variable;
		int look, change;
		const char *words;
	} rows[] = {
		{ "SYCL_CACHE_MAX_SIZE=1K", 0, 2,
		  "SYCL_CACHE_MAX_SIZE: \"1K\" is not a whole number, "
		  "without a unit\n" },
		{ "SYCL_CACHE_DIALECT=intel", 0, 2,
		  "SYCL_CACHE_DIALECT: \"intel\" is not seed or "
		  "dpcpp\n" },
		{ "SYCL_CACHE_DIR=here", 2, 2,
		  "SYCL_CACHE_DIR: \"here\" is not a path from the root\n" },
	};
	char *where = home();

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended =
			ask_about(where, rows[i].variable, "ls", "sycl:");

		assert_int_equal(status_of(&ended), rows[i].look);
		assert_non_null(strstr(ended.err, rows[i].words));
		assert_ptr_equal(strchr(ended.err, '\n'),
				 strrchr(ended.err, '\n'));
		ended_free(&ended);
		ended = ask_about(where, rows[i].variable, "gc", "sycl:");
		assert_int_equal(status_of(&ended), rows[i].change);
		assert_non_null(strstr(ended.err, rows[i].words));
		ended_free(&ended);
		/* Nobody asked for a store of SYCL's. */
		ended = ask_about(where, rows[i].variable, "ls", NULL);
		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(ended.err, "");
		ended_free(&ended);
	}
	free(where);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ls_tells_what_each_entry_is),
		cmocka_unit_test(
			show_finds_an_entry_of_dpcpps_by_its_beginning),
		cmocka_unit_test(why_names_the_field_that_differs),
		cmocka_unit_test(stats_tell_who_is_next_to_go),
		cmocka_unit_test(verify_has_a_reason_for_what_it_calls_damaged),
		cmocka_unit_test(gc_takes_them_in_their_turn),
		cmocka_unit_test(gc_makes_room_by_the_longest_unused),
		cmocka_unit_test(rm_removes_what_is_named_and_all_or_nothing),
		cmocka_unit_test(clear_says_how_many_were_dpcpps),
		cmocka_unit_test(looking_leaves_no_trace),
		cmocka_unit_test(a_store_without_directory_is_the_environments),
		cmocka_unit_test(config_says_the_dialect_and_why),
		cmocka_unit_test(what_is_wrong_with_variables_is_said),
	};

	if (argc != 2)
		return 99;
	program = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
