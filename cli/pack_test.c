/* SPDX-License-Identifier: MIT */

/* Packs, as a shell has them: export, import, and the verbs that look. */

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
#include <kiln/pack.h>

#include "sign/files.h"
#include "tier/envelope.h"

static const char *program;
static const char *config_home; /* NULL: nobody has keys */

/* ---- Around it ------------------------------------------------------------------ */

#define ARGUMENTS_MAX 8

/* `kiln ARGUMENTS`, with its store in a directory. */
static struct ended ask(const char *directory, const char *const *arguments)
{
	struct spawn spawn = { .program = program };
	char setting[600], home[600];

	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	snprintf(home, sizeof(home), "XDG_CONFIG_HOME=%s",
		 config_home ? config_home : "/nowhere");
	for (int i = 0; i < ARGUMENTS_MAX && arguments[i]; i++)
		spawn.arguments[i] = arguments[i];
	spawn.variables[0] = setting;
	spawn.variables[1] = home;
	spawn.variables[2] = "KILN_PACKS";
	return spawn_run(&spawn);
}

#define ASK(directory, ...)                                                    \
	ask(directory, (const char *const[ARGUMENTS_MAX + 1]){ __VA_ARGS__ })

/* The same, which must end so and say JSON. */
static json_t *ask_json(const char *directory, int status,
			const char *const *arguments)
{
	struct ended ended = ask(directory, arguments);
	json_t *json = json_loads(ended.out, 0, NULL);

	if (status_of(&ended) != status)
		print_message("# %s", ended.err);
	assert_int_equal(status_of(&ended), status);
	assert_non_null(json);
	assert_int_equal(json_integer_value(json_object_get(json, "schema")),
			 1);
	ended_free(&ended);
	return json;
}

#define ASK_JSON(directory, status, ...)                                       \
	ask_json(directory, status,                                            \
		 (const char *const[ARGUMENTS_MAX + 1]){ __VA_ARGS__,          \
							 "--json" })

static int number_of(const json_t *json, const char *name)
{
	assert_true(json_is_integer(json_object_get(json, name)));
	return (int)json_integer_value(json_object_get(json, name));
}

/* It ends so, says one line that has these words, and no result. */
static void assert_refused(struct ended ended, int status, const char *words)
{
	if (status_of(&ended) != status || !strstr(ended.err, words))
		print_message("# %d: %s", status_of(&ended), ended.err);
	assert_int_equal(status_of(&ended), status);
	assert_string_equal(ended.out, "");
	assert_memory_equal(ended.err, "kiln: ", 6);
	assert_ptr_equal(strchr(ended.err, '\n') + 1,
			 ended.err + strlen(ended.err));
	assert_non_null(strstr(ended.err, words));
	ended_free(&ended);
}

/* ---- Entries --------------------------------------------------------------------- */

#define DAY_S 86400

static const struct made {
	const char *application, *device;
	unsigned age_days;
	int is_local;
} table[] = {
	{ "/usr/bin/blas", "AMD Radeon", 1, 0 },
	{ "/usr/bin/blas", "pthread-Xeon", 9, 0 },
	{ "/opt/bin/crack", "AMD Radeon", 2, 0 },
	{ "/opt/bin/crack", "AMD Radeon", 30, 0 },
	{ "/opt/lib/blas", "Intel Arc", 3, 0 },
	{ "/opt/lib/own", "Intel Arc", 3, 1 },
};
#define N_MADE	   (sizeof(table) / sizeof(table[0]))
#define N_PORTABLE (N_MADE - 1)

static struct kiln_key *key_of(size_t i)
{
	struct kiln_key *key = kiln_key_new();
	uint32_t number = (uint32_t)i;

	kiln_key_add(key, "number", &number, sizeof(number));
	kiln_key_add_string(key, "device 0 name", table[i].device);
	if (table[i].is_local)
		kiln_key_add_local(key, "card", "0000:03", 7);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

static const char *value_of(size_t i, char out[32])
{
	snprintf(out, 32, "the value of %zu", i);
	return out;
}

static struct kiln *open_store(const char *directory, uint32_t flags,
			       const char *application)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[600];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = flags;
	options.application = application;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	return kiln;
}

static void put_all(struct kiln *kiln)
{
	uint64_t now = (uint64_t)time(NULL);

	for (size_t i = 0; i < N_MADE; i++) {
		struct kiln_metadata *metadata = kiln_metadata_new();
		struct kiln_key *key = key_of(i);
		char value[32];

		kiln_metadata_add_u64(metadata, KILN_META_CREATED,
				      now - table[i].age_days * DAY_S);
		kiln_metadata_add_string(metadata, KILN_META_FRONT, "opencl");
		kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
					 table[i].application);
		kiln_metadata_add_string(metadata, KILN_META_DIRECTORY,
					 "/home/somebody");
		value_of(i, value);
		assert_int_equal(kiln_put(kiln, key, value, strlen(value) + 1,
					  metadata, 0),
				 KILN_OK);
		kiln_metadata_free(metadata);
		kiln_key_free(key);
	}
}

/* A store with them, and a hidden entry of two orders. */
static char *filled(void)
{
	static const struct {
		const char *application;
		size_t asked[4];
		size_t n;
	} runs[] = { { "/usr/bin/blas", { 1, 4, 0 }, 3 },
		     { "/opt/bin/crack", { 3, 2 }, 2 } };
	char *directory = harness_directory();
	struct kiln *kiln = open_store(directory, 0, NULL);

	put_all(kiln);
	kiln_close(kiln);
	for (size_t i = 0; i < 2; i++) {
		kiln = open_store(directory, KILN_OPEN_ORDER,
				  runs[i].application);
		for (size_t n = 0; n < runs[i].n; n++) {
			struct kiln_key *key = key_of(runs[i].asked[n]);
			struct kiln_blob *value;

			assert_int_equal(kiln_get(kiln, key, &value), KILN_OK);
			kiln_blob_unref(value);
			kiln_key_free(key);
		}
		kiln_close(kiln);
	}
	return directory;
}

/* Which of them a store has, with the right value: 1 << i. */
static unsigned which(const char *directory)
{
	struct kiln *kiln = open_store(directory, KILN_OPEN_READONLY, NULL);
	unsigned found = 0;

	for (size_t i = 0; i < N_MADE; i++) {
		struct kiln_key *key = key_of(i);
		struct kiln_blob *blob;
		char value[32];

		if (!kiln_get(kiln, key, &blob)) {
			assert_string_equal(kiln_blob_data(blob),
					    value_of(i, value));
			kiln_blob_unref(blob);
			found |= 1u << i;
		}
		kiln_key_free(key);
	}
	kiln_close(kiln);
	return found;
}

/* The entries of a pack as digits, in its order. */
static const char *digits(const char *pack, char out[32])
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_options options;
	struct kiln_entry entry;
	struct kiln *kiln;
	char url[600];
	size_t n = 0;

	snprintf(url, sizeof(url), "pack:%s", pack);
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = KILN_OPEN_READONLY;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	while (!kiln_list(kiln, &cursor, &entry)) {
		struct kiln_field field;

		assert_int_equal(kiln_record_find(kiln_blob_data(entry.record),
						  kiln_blob_size(entry.record),
						  "number", &field),
				 KILN_OK);
		out[n++] = (char)('0' + *(const uint8_t *)field.data);
		kiln_entry_fini(&entry);
	}
	out[n] = '\0';
	kiln_close(kiln);
	return out;
}

static char *exported(const char *directory)
{
	char *pack = harness_path(directory, "all.pack");
	struct ended ended = ASK(directory, "export", pack);

	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	return pack;
}

/* ---- Export ------------------------------------------------------------------------ */

/* What applications used first, the latest application first; the rest by age. */
static void export_takes_what_is_meant_in_the_order_of_use(void **state)
{
	static const struct {
		const char *arguments[5];
		const char *digits;
	} rows[] = {
		{ { NULL }, NULL },
		{ { "--application", "/usr/bin/blas" }, "140" },
		{ { "--application", "blas" }, "140" },
		{ { "--application=crack" }, "32" },
		{ { "--device", "radeon" }, NULL },
		{ { "--device=arc" }, "4" },
		{ { "--device", "Xeon" }, "1" },
		{ { "--newer-than", "5d" }, NULL },
		{ { "--older-than", "5d", "--application", "blas" }, "1" },
		{ { "--older-than=5d", "--newer-than=20d" }, "1" },
		{ { "--newer-than", "5d", "--device=radeon",
		    "--application=crack" },
		  "2" },
	};
	char *directory = filled();
	char *pack = harness_path(directory, "some.pack"), text[32];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *arguments[ARGUMENTS_MAX + 1] = { "export",
							     "--replace",
							     pack };
		struct ended ended;

		for (size_t n = 0; n < 5 && rows[i].arguments[n]; n++)
			arguments[3 + n] = rows[i].arguments[n];
		ended = ask(directory, arguments);
		assert_int_equal(status_of(&ended), 0);
		ended_free(&ended);
		digits(pack, text);
		print_message("# %s: %s\n",
			      rows[i].arguments[0] ? rows[i].arguments[0]
						   : "all",
			      text);
		if (rows[i].digits)
			assert_string_equal(text, rows[i].digits);
	}
	free(pack);
	free(directory);
}

/* Both orders were recorded in one second, in whichever turn they stand. */
static void in_a_pack_of_all_each_order_is_kept(void **state)
{
	char *directory = filled(), *pack = exported(directory), text[32];

	digits(pack, text);
	assert_true(!strcmp(text, "14032") || !strcmp(text, "32140"));
	free(pack);
	free(directory);
}

static void export_says_what_it_left_out(void **state)
{
	char *directory = filled(), *pack = harness_path(directory, "a.pack");
	json_t *json = ASK_JSON(directory, 0, "export", pack);
	struct ended ended;
	struct stat status;

	assert_int_equal(stat(pack, &status), 0);
	assert_string_equal(json_string_value(json_object_get(json, "file")),
			    pack);
	assert_int_equal(number_of(json, "entries"), N_PORTABLE);
	assert_int_equal(number_of(json, "bytes"), status.st_size);
	assert_int_equal(number_of(json, "ordered"), 5);
	assert_int_equal(number_of(json, "left_local"), 1);
	assert_int_equal(number_of(json, "left_foreign"), 0);
	assert_int_equal(number_of(json, "signatures"), 0);
	json_decref(json);
	ended = ASK(directory, "export", pack, "--replace");
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "5 entries in "));
	assert_non_null(strstr(ended.out, "not signed"));
	assert_non_null(strstr(ended.out, "1 left out: "));
	assert_string_equal(ended.err, "");
	ended_free(&ended);
	free(pack);
	free(directory);
}

static void export_refuses_with_a_remedy_and_leaves_no_file(void **state)
{
	char *directory = filled(), *pack = harness_path(directory, "a.pack");
	char *empty = harness_directory();
	char *missing = harness_path(empty, "none/a.pack");

	assert_refused(ASK(directory, "export", "--application=nobody", pack),
		       3, "kiln ls");
	assert_refused(ASK(directory, "export", "--application=own", pack), 3,
		       "of this machine alone");
	assert_refused(ASK(empty, "export", pack), 3, "nothing to export");
	assert_refused(ASK(directory, "export", "--newer-than=x", pack), 2,
		       "--newer-than: 'x'");
	assert_refused(ASK(directory, "export", "--older-than=0", pack), 2,
		       "--older-than: '0'");
	assert_refused(ASK(directory, "export"), 2, "FILE");
	assert_refused(ASK(directory, "export", missing), 1, missing);
	assert_int_equal(access(pack, F_OK), -1);
	free(exported(directory));
	free(pack);
	pack = harness_path(directory, "all.pack");
	assert_refused(ASK(directory, "export", pack), 1, "--replace");
	free(missing);
	free(empty);
	free(pack);
	free(directory);
}

/* ---- Import ------------------------------------------------------------------------ */

#define TRUST "--trust-unsigned"
#define ALL   ((1u << N_PORTABLE) - 1)

static void import_brings_what_is_not_there_yet(void **state)
{
	char *directory = filled(), *other = harness_directory();
	char *pack = exported(directory);
	char *part = harness_path(directory, "part.pack");
	struct ended ended = ASK(directory, "export", part, "--device=radeon");
	json_t *json;

	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	json = ASK_JSON(other, 0, "import", TRUST, part);
	assert_int_equal(number_of(json, "imported"), 3);
	assert_int_equal(number_of(json, "present"), 0);
	json_decref(json);
	assert_int_equal(which(other), 0xd);
	json = ASK_JSON(other, 0, "import", TRUST, pack);
	assert_int_equal(number_of(json, "imported"), 2);
	assert_int_equal(number_of(json, "present"), 3);
	assert_int_equal(number_of(json, "damaged"), 0);
	json_decref(json);
	assert_int_equal(which(other), ALL);
	ended = ASK(other, "import", pack, TRUST);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "0 new entries (0 bytes), 5 were there "
				       "already\n");
	ended_free(&ended);
	/* Where they came from is nobody's business. */
	ended = ASK(other, "ls", "--json");
	assert_null(strstr(ended.out, "somebody"));
	assert_null(strstr(ended.out, "blas"));
	ended_free(&ended);
	free(part);
	free(pack);
	free(other);
	free(directory);
}

/* What the store has stays, whatever a pack says. */
static void import_replaces_nothing(void **state)
{
	char *directory = filled(), *other = harness_directory();
	char *pack = exported(directory);
	struct kiln *kiln = open_store(other, 0, NULL);
	struct kiln_key *key = key_of(0);
	struct kiln_blob *blob;
	json_t *json;

	assert_int_equal(kiln_put(kiln, key, "mine", 5, NULL, 0), KILN_OK);
	kiln_close(kiln);
	json = ASK_JSON(other, 0, "import", TRUST, pack);
	assert_int_equal(number_of(json, "imported"), 4);
	assert_int_equal(number_of(json, "present"), 1);
	json_decref(json);
	kiln = open_store(other, 0, NULL);
	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	assert_string_equal(kiln_blob_data(blob), "mine");
	kiln_blob_unref(blob);
	kiln_close(kiln);
	kiln_key_free(key);
	free(pack);
	free(other);
	free(directory);
}

/* S37, S51. */
static void import_takes_only_what_can_be_trusted(void **state)
{
	char *directory = filled(), *other = harness_directory();
	char *pack = exported(directory), *store = harness_path(other, "store");
	char *missing = harness_path(other, "missing.pack");

	assert_refused(ASK(store, "import", pack), 5, TRUST);
	assert_refused(ASK(store, "import", pack), 5, pack);
	assert_refused(ASK(store, "import", TRUST, missing), 3, missing);
	assert_refused(ASK(store, "import", TRUST, other), 5, "is not a file");
	assert_int_equal(chmod(pack, 0666), 0);
	assert_refused(ASK(store, "import", TRUST, pack), 5,
		       "can be written by everyone");
	assert_int_equal(access(store, F_OK), -1);
	free(missing);
	free(store);
	free(pack);
	free(other);
	free(directory);
}

/* Such as no writer of packs makes. */
static void import_leaves_the_bookkeeping_of_others(void **state)
{
	char *other = harness_directory(), *pack = harness_path(other, "p");
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = key_of(0);
	struct ki_envelope envelope = { .value = "x", .value_size = 1 };
	struct ki_piece pieces[KI_ENVELOPE_PIECES];
	uint8_t header[KI_ENVELOPE_HEADER_BYTES], bytes[4096] = { 0 };
	size_t size = 1024;
	json_t *json;

	kiln_metadata_add_u64(metadata, KILN_META_FLAGS, KILN_ENTRY_HIDDEN);
	assert_int_equal(kiln_metadata_bytes(metadata, &envelope.metadata,
					     &envelope.metadata_size),
			 KILN_OK);
	envelope.record = kiln_key_record(key, &envelope.record_size);
	memcpy(envelope.digest, kiln_key_digest(key), KILN_DIGEST_BYTES);
	ki_envelope_seal(&envelope, header, pieces);
	for (size_t i = 0; i < KI_ENVELOPE_PIECES; i++) {
		assert_true(size + pieces[i].size <= sizeof(bytes));
		if (pieces[i].size)
			memcpy(bytes + size, pieces[i].data, pieces[i].size);
		size += pieces[i].size;
	}
	harness_write(pack, bytes, size);
	json = ASK_JSON(other, 4, "import", TRUST, pack);
	assert_int_equal(number_of(json, "imported"), 0);
	assert_int_equal(number_of(json, "refused"), 1);
	assert_int_equal(which(other), 0);
	json_decref(json);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
	free(pack);
	free(other);
}

/* Of a program that has versions. */
static struct kiln *open_version(const char *directory, const char *packs,
				 uint64_t version)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[600];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.packs = packs;
	options.user_version = version;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	return kiln;
}

static void put_version(const char *directory, uint64_t version)
{
	struct kiln *kiln = open_version(directory, NULL, version);
	struct kiln_key *key = key_of(0);

	assert_int_equal(kiln_put(kiln, key, "of it", 6, NULL, 0), KILN_OK);
	kiln_key_free(key);
	kiln_close(kiln);
}

static enum kiln_status get_version(const char *directory, const char *packs,
				    uint64_t version)
{
	struct kiln *kiln = open_version(directory, packs, version);
	struct kiln_key *key = key_of(0);
	struct kiln_blob *value = NULL;
	enum kiln_status status = kiln_get(kiln, key, &value);

	if (!status)
		kiln_blob_unref(value);
	kiln_key_free(key);
	kiln_close(kiln);
	return status;
}

/* S59: the program whose store it was finds its entries in it, and no other. */
static void a_pack_is_of_its_stores_version(void **state)
{
	static const struct {
		uint64_t version; /* of the store that imports */
		int status;
		enum kiln_status found;
	} rows[] = { { 7, 0, KILN_OK },
		     { 0, 0, KILN_OK },
		     { 8, 5, KILN_MISS } };
	char *directory = harness_directory(), *pack;

	put_version(directory, 7);
	pack = exported(directory);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *other = harness_directory();
		struct ended ended;

		assert_int_equal(get_version(other, pack, rows[i].version),
				 rows[i].found);
		ended = ASK(other, "import", TRUST, pack);
		assert_int_equal(status_of(&ended), rows[i].status);
		ended_free(&ended);
		assert_int_equal(get_version(other, NULL, rows[i].version),
				 rows[i].found);
		free(other);
	}
	free(pack);
	free(directory);
}

static void a_store_that_import_makes_is_of_the_packs_version(void **state)
{
	char *directory = harness_directory(), *place = harness_directory();
	char *other = harness_path(place, "store"), *pack;
	struct ended ended;

	put_version(directory, 7);
	pack = exported(directory);
	ended = ASK(other, "import", TRUST, pack);
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	assert_int_equal(get_version(other, NULL, 7), KILN_OK);
	assert_int_equal(get_version(other, NULL, 8), KILN_MISS);
	free(pack);
	free(other);
	free(place);
	free(directory);
}

static void cut_short_a_pack_gives_what_is_left(void **state)
{
	char *directory = filled(), *other = harness_directory();
	char *pack = exported(directory), *bytes;
	json_t *json;
	size_t size;

	bytes = harness_read(pack, &size);
	/* Behind the root, a whole entry or two. */
	harness_write(pack, bytes, 1024 + 512);
	assert_refused(ASK(other, "import", pack), 5, TRUST);
	json = ASK_JSON(other, 4, "import", TRUST, pack);
	assert_true(json_is_true(json_object_get(json, "salvaged")));
	assert_in_range(number_of(json, "imported"), 1, N_PORTABLE - 1);
	assert_int_equal(__builtin_popcount(which(other)),
			 number_of(json, "imported"));
	json_decref(json);
	free(bytes);
	free(pack);
	free(other);
	free(directory);
}

/* S13: wherever a byte is another, what is imported is right, and at most one
   entry is lost. */
static void a_flipped_byte_loses_one_entry_at_most(void **state)
{
	enum { STEP = 797 };
	char *directory = filled(), *pack = exported(directory), *bytes;
	size_t size;

	bytes = harness_read(pack, &size);
	for (size_t at = 5; at < size; at += STEP) {
		char *other = harness_directory();
		struct ended ended;
		int status;

		bytes[at] ^= 0x20;
		harness_write(pack, bytes, size);
		bytes[at] ^= 0x20;
		ended = ASK(other, "import", TRUST, pack);
		status = status_of(&ended);
		assert_true(status == 0 || status == 4);
		assert_in_range(__builtin_popcount(which(other)),
				N_PORTABLE - (status == 4), N_PORTABLE);
		ended_free(&ended);
		free(other);
	}
	free(bytes);
	free(pack);
	free(directory);
}

/* ---- Signatures --------------------------------------------------------------------- */

/* A home of a configuration with a key `name`, whose pair is `number`: the secret,
   or that it is trusted. */
static char *home_of(const char *name, uint8_t number, int is_trusted)
{
	char *home = harness_directory(), path[KI_PATH_MAX];
	uint8_t seed[KI_SIGN_SEED_BYTES] = { number };
	char *directory = harness_path(home, "kiln");
	char text[KI_SIGN_TEXT_BYTES];
	struct ki_sign_secret secret;

	assert_int_equal(ki_sign_secret_new(name, seed, &secret), KILN_OK);
	if (is_trusted)
		ki_sign_public_print(&secret.public, text);
	else
		ki_sign_secret_print(&secret, text);
	assert_int_equal(
		ki_sign_path(path, directory,
			     is_trusted ? KI_SIGN_TRUSTED : KI_SIGN_KEYS, name,
			     is_trusted ? KI_SIGN_PUBLIC : KI_SIGN_SECRET),
		0);
	assert_int_equal(ki_sign_write(&ki_sys_posix, path, text,
				       is_trusted ? 0644 : 0600, 0),
			 KILN_OK);
	free(directory);
	return home;
}

/* S51. */
static void a_pack_is_imported_where_its_key_is_trusted(void **state)
{
	static const struct {
		const char *key, *trusted;
		uint8_t number, trusted_number;
		int status;
	} rows[] = {
		{ "default", "default", 1, 1, 0 },
		{ "ci", "ci", 1, 1, 0 },
		/* A name says nothing. */
		{ "ci", "other", 1, 1, 0 },
		{ "ci", "ci", 1, 2, 5 },
	};
	char *directory = filled();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *other = harness_directory();
		char *store = harness_path(other, "store");
		char *pack = harness_path(other, "a.pack"), *url;
		char *signer = home_of(rows[i].key, rows[i].number, 0);
		char *reader =
			home_of(rows[i].trusted, rows[i].trusted_number, 1);
		json_t *json;

		assert_true(asprintf(&url, "pack:%s", pack) > 0);
		config_home = signer;
		json = ASK_JSON(directory, 0, "export", pack,
				strcmp(rows[i].key, "default") ? "--key=ci"
							       : "--replace");
		assert_int_equal(number_of(json, "signatures"), 1);
		json_decref(json);
		/* Who signs does not trust for that. */
		assert_refused(ASK(store, "import", pack), 5, "kiln key trust");
		config_home = reader;
		/* Signed, it may come by anybody's hand. */
		assert_int_equal(chmod(pack, 0666), 0);
		json = ASK_JSON(store, 0, "verify", url);
		assert_int_equal(json_is_true(json_object_get(json, "trusted")),
				 !rows[i].status);
		json_decref(json);
		if (rows[i].status) {
			assert_refused(ASK(store, "import", pack), 5, pack);
		} else {
			json = ASK_JSON(store, 0, "import", pack);
			assert_int_equal(number_of(json, "imported"),
					 N_PORTABLE);
			json_decref(json);
			assert_int_equal(which(store), ALL);
		}
		config_home = NULL;
		free(url);
		free(reader);
		free(signer);
		free(pack);
		free(store);
		free(other);
	}
	free(directory);
}

static void a_key_that_is_not_there_signs_nothing(void **state)
{
	char *directory = filled(), *pack = harness_path(directory, "a.pack");
	char *home = home_of("ci", 1, 0), *path;
	struct ended ended;

	config_home = home;
	assert_refused(ASK(directory, "export", pack, "--key=other"), 3,
		       "kiln key new other");
	assert_refused(ASK(directory, "export", pack, "--key=../ci"), 2,
		       "'../ci'");
	path = harness_path(home, "kiln/keys/ci.secret");
	assert_int_equal(chmod(path, 0644), 0);
	assert_refused(ASK(directory, "export", pack, "--key=ci"), 5,
		       "ci.secret");
	assert_int_equal(access(pack, F_OK), -1);
	ended = ASK(directory, "export", pack);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "not signed"));
	ended_free(&ended);
	config_home = NULL;
	free(path);
	free(home);
	free(pack);
	free(directory);
}

/* Where any key is trusted, what nobody signed is no pack to run over. */
static void run_takes_no_unsigned_pack_where_a_key_is_trusted(void **state)
{
	char *directory = filled(), *pack = exported(directory);
	char *home = home_of("ci", 1, 1);
	struct ended ended = ASK(directory, "run", "--pack", pack, "true");

	assert_int_equal(status_of(&ended), 0);
	assert_null(strstr(ended.err, pack));
	ended_free(&ended);
	config_home = home;
	ended = ASK(directory, "run", "--pack", pack, "true");
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.err, pack));
	assert_non_null(strstr(ended.err, "running without it"));
	ended_free(&ended);
	config_home = NULL;
	free(home);
	free(pack);
	free(directory);
}

/* ---- Looking ------------------------------------------------------------------------ */

static void the_verbs_that_look_know_packs(void **state)
{
	char *directory = filled(), *pack = exported(directory), *url;
	json_t *json, *entries;
	struct ended ended;
	const char *key;

	assert_true(asprintf(&url, "pack:%s", pack) > 0);
	json = ASK_JSON("/nowhere", 0, "ls", url);
	entries = json_object_get(json, "entries");
	assert_int_equal(json_array_size(entries), N_PORTABLE);
	key = json_string_value(
		json_object_get(json_array_get(entries, 0), "key"));
	ended = ASK("/nowhere", "show", url, key);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "device 0 name"));
	ended_free(&ended);
	ended = ASK("/nowhere", "why", url, key);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "number"));
	ended_free(&ended);
	json_decref(json);
	json = ASK_JSON("/nowhere", 0, "verify", url);
	assert_int_equal(number_of(json, "entries"), N_PORTABLE);
	assert_int_equal(number_of(json, "damaged"), 0);
	json_decref(json);
	/* And so from the working directory. */
	ended = ASK("/nowhere", "ls", "--store", url);
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	free(url);
	free(pack);
	free(directory);
}

/* What it says of the store. */
static char *doctor_on_store(const char *url)
{
	struct spawn spawn = { .program = program,
			       .arguments = { "doctor", "--json" } };
	char variable[700], *said = NULL;
	struct ended ended;
	json_t *json, *check;
	size_t i;

	snprintf(variable, sizeof(variable), "KILN_STORE=%s", url);
	spawn.variables[0] = variable;
	spawn.variables[1] = "XDG_CONFIG_HOME=/nowhere";
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	assert_non_null(json);
	json_array_foreach(json_object_get(json, "checks"), i, check)
	{
		const char *name =
			json_string_value(json_object_get(check, "name"));

		assert_string_not_equal(name, "directory");
		if (!strcmp(name, "store"))
			said = strdup(json_string_value(
				json_object_get(check, "result")));
	}
	json_decref(json);
	ended_free(&ended);
	assert_non_null(said);
	return said;
}

static void doctor_knows_a_pack_for_a_store(void **state)
{
	char *directory = filled(), *pack = exported(directory), *url, *said;

	assert_true(asprintf(&url, "pack:%s", pack) > 0);
	said = doctor_on_store(url);
	assert_string_equal(said, "ok");
	free(said);
	assert_int_equal(chmod(pack, 0666), 0);
	said = doctor_on_store(url);
	assert_string_equal(said, "bad");
	free(said);
	free(url);
	free(pack);
	free(directory);
}

static void a_pack_is_never_changed(void **state)
{
	static const char *const verbs[][3] = {
		{ "clear" },
		{ "gc" },
		{ "verify", "--repair" },
		{ "config", "--limit=1M" },
	};
	char *directory = filled(), *pack = exported(directory), *url, *bytes;
	size_t size, size_now;
	char *now;

	bytes = harness_read(pack, &size);
	assert_true(asprintf(&url, "pack:%s", pack) > 0);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		struct ended ended =
			ASK("/nowhere", verbs[i][0], url, verbs[i][1]);

		assert_int_equal(status_of(&ended), 5);
		assert_string_equal(ended.out, "");
		assert_non_null(strstr(ended.err, "pack"));
		ended_free(&ended);
	}
	now = harness_read(pack, &size_now);
	assert_int_equal(size_now, size);
	assert_memory_equal(now, bytes, size);
	free(now);
	free(bytes);
	free(url);
	free(pack);
	free(directory);
}

static void verify_finds_damage_in_a_pack(void **state)
{
	char *directory = filled(), *pack = exported(directory), *url, *bytes;
	struct ended ended;
	json_t *json;
	size_t size;

	assert_true(asprintf(&url, "pack:%s", pack) > 0);
	bytes = harness_read(pack, &size);
	bytes[1024 + 100] ^= 1;
	harness_write(pack, bytes, size);
	json = ASK_JSON("/nowhere", 4, "verify", url);
	assert_int_equal(number_of(json, "entries"), N_PORTABLE - 1);
	assert_int_equal(number_of(json, "damaged"), 1);
	json_decref(json);
	harness_write(pack, bytes, 1024 + 512);
	ended = ASK("/nowhere", "verify", url);
	assert_int_equal(status_of(&ended), 4);
	ended_free(&ended);
	harness_write(pack, "nothing", 7);
	assert_refused(ASK("/nowhere", "verify", url), 5, pack);
	assert_int_equal(unlink(pack), 0);
	assert_refused(ASK("/nowhere", "verify", url), 3, pack);
	free(bytes);
	free(url);
	free(pack);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			export_takes_what_is_meant_in_the_order_of_use),
		cmocka_unit_test(in_a_pack_of_all_each_order_is_kept),
		cmocka_unit_test(export_says_what_it_left_out),
		cmocka_unit_test(
			export_refuses_with_a_remedy_and_leaves_no_file),
		cmocka_unit_test(import_brings_what_is_not_there_yet),
		cmocka_unit_test(import_replaces_nothing),
		cmocka_unit_test(import_takes_only_what_can_be_trusted),
		cmocka_unit_test(import_leaves_the_bookkeeping_of_others),
		cmocka_unit_test(a_pack_is_of_its_stores_version),
		cmocka_unit_test(
			a_store_that_import_makes_is_of_the_packs_version),
		cmocka_unit_test(cut_short_a_pack_gives_what_is_left),
		cmocka_unit_test(a_flipped_byte_loses_one_entry_at_most),
		cmocka_unit_test(a_pack_is_imported_where_its_key_is_trusted),
		cmocka_unit_test(a_key_that_is_not_there_signs_nothing),
		cmocka_unit_test(
			run_takes_no_unsigned_pack_where_a_key_is_trusted),
		cmocka_unit_test(the_verbs_that_look_know_packs),
		cmocka_unit_test(doctor_knows_a_pack_for_a_store),
		cmocka_unit_test(a_pack_is_never_changed),
		cmocka_unit_test(verify_finds_damage_in_a_pack),
	};

	if (argc < 2)
		return 77;
	program = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
