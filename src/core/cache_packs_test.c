/* SPDX-License-Identifier: MIT */

/* Packs under a store, and a pack as the store. */

#include "harness/harness.h"
#include "harness/shelf.h"

#include <sys/stat.h>
#include <unistd.h>

#include <kiln/pack.h>

#include "core/cache_test.h"

/* A pack of these keys, each with the text as its value. */
static void write_pack(const char *path, const char *text,
		       const unsigned *numbers, size_t n)
{
	struct kiln_pack_writer *writer;

	if (kiln_pack_create(path, NULL, &writer))
		abort();
	for (size_t i = 0; i < n; i++) {
		struct kiln_key *key = key_of(numbers[i]);

		if (kiln_pack_add(writer, key, NULL, 0, text, strlen(text) + 1))
			abort();
		kiln_key_free(key);
	}
	if (kiln_pack_finish(writer, NULL))
		abort();
}

static char *new_pack(const char *directory, const char *name, const char *text,
		      unsigned from, unsigned to)
{
	char *path = harness_path(directory, name);
	unsigned numbers[32];
	size_t n = 0;

	for (; from <= to; from++)
		numbers[n++] = from;
	write_pack(path, text, numbers, n);
	return path;
}

static unsigned n_lines;
static char last_line[1024];

static void take_line(void *arg, enum kiln_log_level level, const char *line)
{
	if (level > KILN_LOG_WARNING)
		return;
	n_lines++;
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static struct kiln *open_at(const char *directory, uint32_t flags,
			    const char *packs)
{
	struct kiln_options options = defaults();
	struct kiln *kiln;
	char url[256];

	snprintf(url, sizeof(url), "log:%s/store", directory ? directory : "");
	options.store_url = directory ? url : NULL;
	options.flags = flags;
	options.packs = packs;
	options.log = take_line;
	n_lines = 0;
	if (kiln_open(&options, &kiln))
		abort();
	return kiln;
}

static unsigned n_entries(struct kiln *kiln)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	unsigned n = 0;

	for (; !kiln_list(kiln, &cursor, &entry); n++)
		kiln_entry_fini(&entry);
	return n;
}

/* ---- Under a store ------------------------------------------------------------- */

static void a_pack_is_asked_behind_the_store(void **state)
{
	static const uint32_t rows[] = { 0, KILN_OPEN_GUEST,
					 KILN_OPEN_NO_MEMORY, KILN_OPEN_ORDER };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct work work = { .text = "built" };
		char *directory = harness_directory();
		char *pack = new_pack(directory, "a.pack", "packed", 1, 2);
		struct kiln *kiln = open_at(directory, rows[i], pack);

		assert_int_equal(put(kiln, 1, "stored", 0), KILN_OK);
		assert_got(kiln, 1, "stored");
		assert_got(kiln, 2, "packed");
		assert_outcome(kiln, 2, &work,
			       rows[i] & (KILN_OPEN_GUEST | KILN_OPEN_NO_MEMORY)
				       ? "packed from store"
				       : "packed from memory");
		assert_outcome(kiln, 3, &work, "built from build");
		assert_int_equal(work.n_builds, 1);
		/* Nothing is copied from it. */
		assert_int_equal(n_entries(kiln), 2);
		assert_int_equal(n_lines, 0);
		kiln_close(kiln);
		free(pack);
		free(directory);
	}
}

static void with_a_matching_pack_nothing_is_built(void **state)
{
	struct work work = { .text = "built" };
	char *directory = harness_directory();
	char *pack = new_pack(directory, "a.pack", "packed", 1, 20);
	struct kiln *kiln = open_at(directory, 0, pack);

	for (unsigned i = 1; i <= 20; i++)
		assert_outcome(kiln, i, &work, "packed from store");
	assert_int_equal(work.n_builds, 0);
	assert_int_equal(counter(kiln, KILN_COUNT_HITS_PACK), 20);
	assert_int_equal(counter(kiln, KILN_COUNT_HITS_STORE), 0);
	assert_int_equal(counter(kiln, KILN_COUNT_PUTS), 0);
	kiln_close(kiln);
	free(pack);
	free(directory);
}

static void a_further_tier_is_asked_behind_packs_and_fills_the_store(
	void **state)
{
	struct kiln_options options = defaults();
	struct shelf *shelf = shelf_new();
	char *directory = harness_directory(), url[256];
	struct kiln *kiln;

	kiln = open_with(options, shelf, NULL);
	assert_int_equal(put(kiln, 2, "shelved", 0), KILN_OK);
	assert_int_equal(put(kiln, 3, "shelved", 0), KILN_OK);
	kiln_close(kiln);
	snprintf(url, sizeof(url), "log:%s/store", directory);
	options.store_url = url;
	options.packs = new_pack(directory, "a.pack", "packed", 1, 2);
	kiln = open_with(options, shelf, NULL);
	assert_got(kiln, 2, "packed");
	assert_int_equal(n_entries(kiln), 0);
	assert_got(kiln, 3, "shelved");
	assert_int_equal(n_entries(kiln), 1);
	kiln_close(kiln);
	free((char *)options.packs);
	shelf_free(shelf);
	free(directory);
}

/* S59: overlaps; the first that has a key answers. */
static void of_several_packs_the_first_answers(void **state)
{
	char *directory = harness_directory(), list[600];
	char *first = new_pack(directory, "a.pack", "first", 1, 2);
	char *second = new_pack(directory, "b.pack", "second", 2, 3);
	struct kiln *kiln;

	snprintf(list, sizeof(list), "%s,%s", first, second);
	kiln = open_at(NULL, 0, list);
	assert_got(kiln, 1, "first");
	assert_got(kiln, 2, "first");
	assert_got(kiln, 3, "second");
	assert_got(kiln, 4, "KILN_MISS");
	kiln_close(kiln);
	free(first);
	free(second);
	free(directory);
}

static void a_pack_is_not_removed_from(void **state)
{
	char *directory = harness_directory();
	char *pack = new_pack(directory, "a.pack", "packed", 1, 1);
	struct kiln *kiln = open_at(directory, 0, pack);
	struct kiln_key *packed = key_of(1), *stored = key_of(2);

	assert_int_equal(put(kiln, 1, "stored", 0), KILN_OK);
	assert_int_equal(put(kiln, 2, "stored", 0), KILN_OK);
	assert_int_equal(kiln_remove(kiln, packed), KILN_E_READONLY);
	assert_got(kiln, 1, "packed");
	assert_int_equal(kiln_remove(kiln, stored), KILN_OK);
	assert_got(kiln, 2, "KILN_MISS");
	assert_int_equal(kiln_wipe(kiln), KILN_OK);
	assert_got(kiln, 1, "packed");
	kiln_close(kiln);
	kiln_key_free(packed);
	kiln_key_free(stored);
	free(pack);
	free(directory);
}

static void a_store_that_cannot_be_written_is_no_hindrance(void **state)
{
	static const struct {
		int is_there;
		uint32_t flags;
	} rows[] = { { 1, KILN_OPEN_READONLY },
		     { 0, KILN_OPEN_READONLY },
		     { 0, KILN_OPEN_READONLY | KILN_OPEN_GUEST } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct work work = { .text = "built" };
		char *directory = harness_directory();
		char *pack = new_pack(directory, "a.pack", "packed", 1, 1);
		struct kiln *kiln;

		if (rows[i].is_there)
			kiln_close(open_at(directory, 0, NULL));
		kiln = open_at(directory, rows[i].flags, pack);
		assert_outcome(kiln, 1, &work, "packed from store");
		assert_outcome(kiln, 2, &work, "built from build");
		kiln_close(kiln);
		free(pack);
		free(directory);
	}
}

/* ---- Packs that are not used ---------------------------------------------------- */

static char *missing(const char *directory, const char *pack)
{
	return harness_path(directory, "missing.pack");
}

static char *no_pack(const char *directory, const char *pack)
{
	char *path = harness_path(directory, "other.pack");
	char bytes[9000] = "KILNPACK";

	harness_write(path, bytes, sizeof(bytes));
	return path;
}

static char *a_directory(const char *directory, const char *pack)
{
	char *path = harness_path(directory, "directory.pack");

	assert_int_equal(mkdir(path, 0700), 0);
	return path;
}

static char *written_by_all(const char *directory, const char *pack)
{
	assert_int_equal(chmod(pack, 0666), 0);
	return strdup(pack);
}

static char *link_to_one_written_by_all(const char *directory, const char *pack)
{
	char *path = harness_path(directory, "link.pack");

	assert_int_equal(chmod(pack, 0666), 0);
	assert_int_equal(symlink(pack, path), 0);
	return path;
}

static char *of_somebody_else(const char *directory, const char *pack)
{
	return chown(pack, 4242, (gid_t)-1) ? NULL : strdup(pack);
}

/* S37, S59: it costs a line, and the rest goes on. */
static void a_pack_that_cannot_be_used_costs_one_line(void **state)
{
	static const struct {
		char *(*make)(const char *directory, const char *pack);
		enum kiln_status status;
	} rows[] = {
		{ missing, KILN_E_IO },
		{ no_pack, KILN_E_FORMAT },
		{ a_directory, KILN_E_IO },
		{ written_by_all, KILN_E_OWNER },
		{ link_to_one_written_by_all, KILN_E_OWNER },
		{ of_somebody_else, KILN_E_OWNER },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory(), list[600];
		char *pack = new_pack(directory, "a.pack", "packed", 1, 1);
		char *good = new_pack(directory, "b.pack", "good", 2, 2);
		char *bad = rows[i].make(directory, pack);
		enum kiln_status status;
		struct kiln *kiln;

		if (!bad)
			HARNESS_LEAVE_OUT("only root gives files away");
		snprintf(list, sizeof(list), "%s,%s", bad, good);
		kiln = open_at(directory, 0, list);
		assert_int_equal(n_lines, 1);
		assert_non_null(strstr(last_line, bad));
		assert_string_equal(kiln_pack_given(kiln, 0, &status), bad);
		assert_int_equal(status, rows[i].status);
		assert_string_equal(kiln_pack_given(kiln, 1, &status), good);
		assert_int_equal(status, KILN_OK);
		assert_null(kiln_pack_given(kiln, 2, &status));
		assert_got(kiln, 1, "KILN_MISS");
		assert_got(kiln, 2, "good");
		kiln_close(kiln);
		free(bad);
		free(good);
		free(pack);
		free(directory);
	}
}

#define PUBLIC "a:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="

/* As one under the store and as the store; who looks is shown it all the same. */
static void where_keys_are_trusted_an_unsigned_pack_is_refused(void **state)
{
	static const char *const keys[] = { PUBLIC };
	char *directory = harness_directory();
	char *pack = new_pack(directory, "a.pack", "packed", 1, 1);
	char url[KI_PATH_MAX];

	snprintf(url, sizeof(url), "pack:%s", pack);
	for (unsigned row = 0; row < 4; row++) {
		struct kiln_options options = defaults();
		struct kiln *kiln;

		if (row & 1)
			options.store_url = url;
		else
			options.packs = pack;
		if (row & 2)
			options.flags =
				KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER;
		options.trusted_keys = keys;
		options.n_trusted_keys = 1;
		options.log = take_line;
		n_lines = 0;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		if (row & 2) {
			assert_got(kiln, 1, "packed");
		} else {
			assert_got(kiln, 1, "KILN_MISS");
			assert_true(n_lines >= 1);
		}
		kiln_close(kiln);
	}
	free(pack);
	free(directory);
}

/* S51: where keys are meant to be trusted and cannot be had. */
static void where_signatures_are_required_keys_or_not_a_pack_is_refused(
	void **state)
{
	char *directory = harness_directory();
	char *pack = new_pack(directory, "a.pack", "packed", 1, 1);
	struct kiln *kiln = open_at(directory, KILN_OPEN_SIGNED, pack);
	enum kiln_status status;

	assert_string_equal(kiln_pack_given(kiln, 0, &status), pack);
	assert_int_equal(status, KILN_E_OWNER);
	assert_got(kiln, 1, "KILN_MISS");
	kiln_close(kiln);
	free(pack);
	free(directory);
}

static void a_link_may_lead_to_a_pack(void **state)
{
	char *directory = harness_directory();
	char *pack = new_pack(directory, "a.pack", "packed", 1, 1);
	char *path = harness_path(directory, "link.pack");
	struct kiln *kiln;

	assert_int_equal(symlink(pack, path), 0);
	kiln = open_at(NULL, 0, path);
	assert_got(kiln, 1, "packed");
	kiln_close(kiln);
	free(path);
	free(pack);
	free(directory);
}

static void wrong_lists_are_told_at_opening(void **state)
{
	static const struct {
		const char *packs;
		uint32_t flags;
		const char *words; /* NULL: it is a good one */
	} rows[] = {
		{ "", 0, "packs: pack 1: it is empty; a comma" },
		{ "a.pack", 0, "packs: pack 1, \"a.pack\": " },
		{ "/a.pack,", 0, "packs: pack 2: it is empty; a comma" },
		{ "/a.pack,b.pack", 0, "packs: pack 2, \"b.pack\": " },
		{ "/", 0, "packs: pack 1, \"/\": " },
		{ "https://h/a https://h/b", 0,
		  "packs: pack 1, \"https://h/a https://h/b\": there is a "
		  "blank in a URL; a comma separates packs" },
		{ "/a,https://u:secret@h/b", 0, "packs: pack 2: https://" },
		{ "/a", KILN_OPEN_SESSION, "packs: not of a session" },
		{ "https://h/a#timeout=5#ca=/f", 0,
		  "packs: pack 1, \"https://h/a#timeout=5#ca=/f\": its word" },
		/* A file may be called so. */
		{ "https://h/a#ca=/f#no-lease", 0, NULL },
		{ "/1,/2,/3,/4,/5,/6,/7,/8,/9,/a,/b,/c,/d,/e,/f,/g", 0, NULL },
		{ "/1,/2,/3,/4,/5,/6,/7,/8,/9,/a,/b,/c,/d,/e,/f,/g,/h", 0,
		  "packs: pack 17, \"/h\": there are more than 16" },
	};
	char *directory = harness_directory(), url[256];

	snprintf(url, sizeof(url), "log:%s/store", directory);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options = defaults();
		struct kiln *kiln = NULL;

		options.store_url = url;
		options.flags = rows[i].flags;
		options.packs = rows[i].packs;
		options.log = take_line;
		last_line[0] = '\0';
		assert_int_equal(kiln_open(&options, &kiln),
				 rows[i].words ? KILN_E_INVALID : KILN_OK);
		if (rows[i].words &&
		    strncmp(last_line, rows[i].words, strlen(rows[i].words)))
			fail_msg("%s: %s", rows[i].packs, last_line);
		assert_null(strstr(last_line, "secret"));
		kiln_close(kiln);
	}
	free(directory);
}

/* S13, S59: whatever becomes of its bytes, its values are right or misses. */
static void a_damaged_pack_costs_what_the_damage_hits(void **state)
{
	enum { KEYS = 5, STEP = 61 };
	char *directory = harness_directory();
	char *pack = new_pack(directory, "a.pack", "packed", 1, KEYS), *bytes;
	unsigned n_lost_most = 0;
	size_t size;

	bytes = harness_read(pack, &size);
	for (size_t at = 0; at < size; at += STEP) {
		struct work work = { .text = "built" };
		struct kiln *kiln;
		char out[128];

		bytes[at] ^= 0x10;
		harness_write(pack, bytes, size);
		bytes[at] ^= 0x10;
		kiln = open_at(NULL, 0, pack);
		for (unsigned i = 1; i <= KEYS; i++) {
			outcome(kiln, i, &work, out);
			assert_true(!strcmp(out, "packed from store") ||
				    !strcmp(out, "built from build"));
		}
		if (work.n_builds > n_lost_most)
			n_lost_most = work.n_builds;
		kiln_close(kiln);
	}
	assert_int_equal(n_lost_most, 1);
	free(bytes);
	free(pack);
	free(directory);
}

/* ---- A pack as the store --------------------------------------------------------- */

static void a_pack_can_be_the_store(void **state)
{
	static const uint32_t rows[] = {
		0, KILN_OPEN_READONLY, KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER
	};
	char *directory = harness_directory(), url[300];
	char *pack = new_pack(directory, "a.pack", "packed", 1, 3);

	snprintf(url, sizeof(url), "pack:%s", pack);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct work work = { .text = "built" };
		struct kiln_options options = defaults();
		struct kiln_verify_report report;
		struct kiln_store_info info;
		struct kiln *kiln;

		options.store_url = url;
		options.flags = rows[i];
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_int_equal(kiln_store_status(kiln), KILN_OK);
		assert_int_equal(n_entries(kiln), 3);
		assert_got(kiln, 2, "packed");
		assert_int_equal(put(kiln, 4, "new", 0), KILN_E_READONLY);
		assert_outcome(kiln, 5, &work, "built from build");
		assert_int_equal(kiln_wipe(kiln), KILN_E_READONLY);
		assert_int_equal(kiln_verify(kiln, 0, NULL, NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_entries, 3);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
		assert_string_equal(info.kind, "pack");
		kiln_close(kiln);
	}
	free(pack);
	free(directory);
}

/* To look at, not to load from. */
static void one_that_is_not_ours_to_trust_can_be_looked_at(void **state)
{
	char *directory = harness_directory(), url[300];
	char *pack = new_pack(directory, "a.pack", "packed", 1, 3);
	struct kiln_options options = defaults();
	struct kiln *kiln;

	assert_int_equal(chmod(pack, 0666), 0);
	snprintf(url, sizeof(url), "pack:%s", pack);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_E_OWNER);
	assert_got(kiln, 1, "KILN_MISS");
	kiln_close(kiln);
	options.flags = KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(n_entries(kiln), 3);
	kiln_close(kiln);
	free(pack);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pack_is_asked_behind_the_store),
		cmocka_unit_test(with_a_matching_pack_nothing_is_built),
		cmocka_unit_test(
			a_further_tier_is_asked_behind_packs_and_fills_the_store),
		cmocka_unit_test(of_several_packs_the_first_answers),
		cmocka_unit_test(a_pack_is_not_removed_from),
		cmocka_unit_test(
			a_store_that_cannot_be_written_is_no_hindrance),
		cmocka_unit_test(a_pack_that_cannot_be_used_costs_one_line),
		cmocka_unit_test(
			where_keys_are_trusted_an_unsigned_pack_is_refused),
		cmocka_unit_test(
			where_signatures_are_required_keys_or_not_a_pack_is_refused),
		cmocka_unit_test(a_link_may_lead_to_a_pack),
		cmocka_unit_test(wrong_lists_are_told_at_opening),
		cmocka_unit_test(a_damaged_pack_costs_what_the_damage_hits),
		cmocka_unit_test(a_pack_can_be_the_store),
		cmocka_unit_test(
			one_that_is_not_ours_to_trust_can_be_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
