/* SPDX-License-Identifier: MIT */

/* The recorded order of first use. */

#include "harness/harness.h"
#include "harness/shelf.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "core/cache_test.h"

#define MANY (KI_ORDER_KEYS_MAX + 500)

/* Keys by letters: 'a' is key_of('a'). */
static void name_of(unsigned number, uint8_t out[KILN_ORDER_NAME_BYTES])
{
	struct kiln_key *key = key_of(number);
	size_t size;
	const void *record = kiln_key_record(key, &size);

	ki_blake2b(record, size, out);
	kiln_key_free(key);
}

/* The names of an order as letters. */
static const char *letters(const void *value, size_t size, char out[64])
{
	const uint8_t *name;
	size_t n = 0;

	while (!kiln_order_name(value, size, n, &name)) {
		unsigned letter = 'a';
		uint8_t other[KILN_ORDER_NAME_BYTES];

		for (; letter <= 'z'; letter++) {
			name_of(letter, other);
			if (!memcmp(name, other, sizeof(other)))
				break;
		}
		out[n++] = (char)letter;
	}
	out[n] = '\0';
	return out;
}

static void note_letters(struct ki_order *order, const char *text)
{
	for (; *text; text++) {
		struct kiln_key *key = key_of((unsigned char)*text);

		ki_order_note(order, key);
		kiln_key_free(key);
	}
}

static struct ki_order *noted(const char *text)
{
	struct ki_order *order = ki_order_new();

	if (!order)
		abort();
	note_letters(order, text);
	return order;
}

/* ---- Noting and merging ------------------------------------------------------ */

static void a_run_stands_in_front_and_forgets_nothing(void **state)
{
	static const struct {
		const char *kept, *run;
		const char *after; /* NULL: unchanged */
	} rows[] = {
		{ "", "abc", "abc" },	     { "", "abacbc", "abc" },
		{ "abc", "abc", NULL },	     { "abc", "b", NULL },
		{ "abc", "ac", NULL },	     { "abc", "", NULL },
		{ "abc", "cab", "cab" },     { "abc", "d", "dabc" },
		{ "abc", "bd", "bdac" },     { "abcd", "db", "dbac" },
		{ "abcdef", "ace", NULL },   { "abcdef", "acge", "acgebdf" },
		{ "abc", "aabbccaa", NULL },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_order *first = noted(rows[i].kept);
		struct ki_order *second = noted(rows[i].run);
		void *kept = NULL, *after = NULL;
		size_t kept_size = 0, size = 0;
		enum kiln_status status;
		char text[64];

		if (*rows[i].kept)
			assert_int_equal(ki_order_merge(first, NULL, 0, &kept,
							&kept_size),
					 KILN_OK);
		status = ki_order_merge(second, kept, kept_size, &after, &size);
		assert_int_equal(status, rows[i].after ? KILN_OK : KILN_MISS);
		if (rows[i].after)
			assert_string_equal(letters(after, size, text),
					    rows[i].after);
		free(kept);
		free(after);
		ki_order_free(first);
		ki_order_free(second);
	}
}

static size_t count_names(const void *value, size_t size)
{
	const uint8_t *name;
	size_t n = 0;

	while (!kiln_order_name(value, size, n, &name))
		n++;
	return n;
}

static void an_order_is_bounded_and_has_what_came_first(void **state)
{
	struct ki_order *first = ki_order_new(), *second = noted("z");
	uint8_t name[KILN_ORDER_NAME_BYTES];
	const uint8_t *there;
	void *kept, *after;
	size_t size;

	for (unsigned i = 0; i < MANY; i++) {
		struct kiln_key *key = key_of(1000 + i);

		ki_order_note(first, key);
		kiln_key_free(key);
	}
	assert_int_equal(ki_order_merge(first, NULL, 0, &kept, &size), KILN_OK);
	assert_int_equal(count_names(kept, size), KI_ORDER_KEYS_MAX);
	for (unsigned i = 0; i < KI_ORDER_KEYS_MAX; i += 95) {
		name_of(1000 + i, name);
		assert_int_equal(kiln_order_name(kept, size, i, &there),
				 KILN_OK);
		assert_memory_equal(there, name, sizeof(name));
	}
	assert_int_equal(ki_order_merge(second, kept, size, &after, &size),
			 KILN_OK);
	assert_int_equal(count_names(after, size), KI_ORDER_KEYS_MAX);
	free(after);
	free(kept);
	ki_order_free(first);
	ki_order_free(second);
}

enum { THREADS = 4, KEYS = 400 };

static int note_all(unsigned index, void *arg)
{
	for (unsigned i = 0; i < KEYS; i++) {
		struct kiln_key *key = key_of((i + 7 * index) % KEYS);

		ki_order_note(arg, key);
		kiln_key_free(key);
	}
	return 0;
}

static void threads_note_each_key_once(void **state)
{
	struct ki_order *order = ki_order_new();
	uint8_t names[KEYS][KILN_ORDER_NAME_BYTES];
	unsigned found[KEYS] = { 0 };
	const uint8_t *name;
	void *bytes;
	size_t size;

	assert_int_equal(harness_threads(THREADS, note_all, order), 0);
	assert_int_equal(ki_order_merge(order, NULL, 0, &bytes, &size),
			 KILN_OK);
	assert_int_equal(count_names(bytes, size), KEYS);
	for (unsigned i = 0; i < KEYS; i++)
		name_of(i, names[i]);
	for (size_t n = 0; !kiln_order_name(bytes, size, n, &name); n++)
		for (unsigned i = 0; i < KEYS; i++)
			found[i] += !memcmp(name, names[i], sizeof(names[i]));
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(found[i], 1);
	free(bytes);
	ki_order_free(order);
}

/* ---- Bytes that are not an order ---------------------------------------------- */

static void a_damaged_order_is_none(void **state)
{
	static const struct {
		size_t offset, cut;
		uint8_t value;
	} rows[] = {
		{ 0, 0, 'X' },	{ 4, 0, 2 },	{ 6, 0, 1 },	 { 8, 0, 4 },
		{ 8, 0, 2 },	{ 11, 0, 9 },	{ 12, 0, 1 },	 { 0, 1, 'K' },
		{ 0, 95, 'K' }, { 0, 97, 'K' }, { 0, 112, 'K' },
	};
	struct ki_order *order = noted("abc");
	const uint8_t *name;
	uint8_t *bytes;
	size_t size;
	void *made;

	assert_int_equal(ki_order_merge(order, NULL, 0, &made, &size), KILN_OK);
	assert_int_equal(size, 16 + 3 * KILN_ORDER_NAME_BYTES);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *after;
		size_t after_size;
		char text[64];

		bytes = malloc(size - rows[i].cut + 1);
		assert_non_null(bytes);
		memcpy(bytes, made, size - rows[i].cut);
		if (!rows[i].cut)
			bytes[rows[i].offset] = rows[i].value;
		assert_int_equal(
			kiln_order_name(bytes, size - rows[i].cut, 0, &name),
			KILN_E_FORMAT);
		assert_int_equal(ki_order_merge(order, bytes,
						size - rows[i].cut, &after,
						&after_size),
				 KILN_OK);
		assert_string_equal(letters(after, after_size, text), "abc");
		free(after);
		free(bytes);
	}
	free(made);
	ki_order_free(order);
}

/* ---- In a store ---------------------------------------------------------------- */

static struct kiln *open_for(const char *url, uint32_t flags,
			     const char *application)
{
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.store_url = url;
	options.flags = flags;
	options.application = application;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		abort();
	return kiln;
}

static void ask_for(struct kiln *kiln, const char *text)
{
	char out[128];

	for (; *text; text++)
		(void)got(kiln, (unsigned char)*text, out);
}

/* As letters; "none". */
static const char *kept(const char *url, const char *application, char out[64])
{
	struct kiln *kiln = open_for(url, KILN_OPEN_READONLY, NULL);
	struct kiln_blob *value, *metadata;
	struct kiln_key *key;

	if (kiln_order_key(application, &key))
		abort();
	if (kiln_peek(kiln, key, &value, &metadata)) {
		strcpy(out, "none");
	} else {
		letters(kiln_blob_data(value), kiln_blob_size(value), out);
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
	}
	kiln_key_free(key);
	kiln_close(kiln);
	return out;
}

static unsigned count_entries(const char *url, unsigned *out_n_orders)
{
	struct kiln *kiln = open_for(url, KILN_OPEN_READONLY, NULL);
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	unsigned n = 0;

	*out_n_orders = 0;
	for (; !kiln_list(kiln, &cursor, &entry); n++) {
		uint64_t flags = 0;

		if (kiln_order_is(kiln_blob_data(entry.record),
				  kiln_blob_size(entry.record))) {
			++*out_n_orders;
			assert_int_equal(kiln_metadata_find_u64(
						 kiln_blob_data(entry.metadata),
						 kiln_blob_size(entry.metadata),
						 KILN_META_FLAGS, &flags),
					 KILN_OK);
			assert_true(flags & KILN_ENTRY_HIDDEN);
		}
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	return n;
}

static const char *const urls[] = { "log:", "file:" };

static char *url_in(const char *kind, const char *directory)
{
	char *url;

	if (asprintf(&url, "%s%s/store", kind, directory) < 0)
		abort();
	return url;
}

static void what_is_asked_for_is_kept_at_closing(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		struct work work = { .text = "value" };
		char *directory = harness_directory();
		char *url = url_in(urls[i], directory), text[64];
		struct kiln *kiln = open_for(url, KILN_OPEN_ORDER, "/bin/one");
		unsigned n_orders;

		ask_for(kiln, "ca");
		assert_outcome(kiln, 'b', &work, "value from build");
		assert_outcome(kiln, 'b', &work, "value from memory");
		ask_for(kiln, "ad");
		assert_string_equal(kept(url, "/bin/one", text), "none");
		kiln_close(kiln);
		assert_string_equal(kept(url, "/bin/one", text), "cabd");
		assert_string_equal(kept(url, "/bin/two", text), "none");
		kiln = open_for(url, KILN_OPEN_ORDER, "/bin/two");
		ask_for(kiln, "b");
		kiln_close(kiln);
		assert_string_equal(kept(url, "/bin/two", text), "b");
		assert_string_equal(kept(url, "/bin/one", text), "cabd");
		assert_int_equal(count_entries(url, &n_orders), 3);
		assert_int_equal(n_orders, 2);
		free(url);
		free(directory);
	}
}

static uint64_t n_dead(const char *url)
{
	struct kiln *kiln = open_for(url, KILN_OPEN_READONLY, NULL);
	struct kiln_verify_report report;

	if (kiln_verify(kiln, 0, NULL, NULL, &report))
		abort();
	kiln_close(kiln);
	return report.n_dead;
}

static void only_what_changed_is_written(void **state)
{
	static const struct {
		const char *run, *after;
		unsigned n_dead;
	} rows[] = {
		{ "abc", "abc", 0 },   { "abc", "abc", 0 }, { "ac", "abc", 0 },
		{ "cb", "cba", 1 },    { "", "cba", 1 },    { "a", "cba", 1 },
		{ "dcba", "dcba", 2 },
	};
	char *directory = harness_directory();
	char *url = url_in("log:", directory), text[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln *kiln = open_for(url, KILN_OPEN_ORDER, "/bin/one");

		ask_for(kiln, rows[i].run);
		kiln_close(kiln);
		assert_string_equal(kept(url, "/bin/one", text), rows[i].after);
		assert_int_equal(n_dead(url), rows[i].n_dead);
	}
	free(url);
	free(directory);
}

static void elsewhere_nothing_is_kept(void **state)
{
	static const struct {
		const char *kind;
		uint32_t flags;
	} rows[] = {
		{ "log:", 0 },
		{ "log:", KILN_OPEN_GUEST },
		{ "log:", KILN_OPEN_ORDER | KILN_OPEN_READONLY },
		{ "log:",
		  KILN_OPEN_ORDER | KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER },
		{ "log:", KILN_OPEN_ORDER | KILN_OPEN_SESSION },
		{ "neo:", KILN_OPEN_ORDER },
		{ "sycl:", KILN_OPEN_ORDER },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory();
		char *url = url_in(rows[i].kind, directory), text[64];
		struct kiln *kiln = open_for(url, 0, "/bin/one");
		unsigned n_orders;

		kiln_close(kiln);
		kiln = open_for(url, rows[i].flags, "/bin/one");
		ask_for(kiln, "abc");
		kiln_close(kiln);
		assert_string_equal(kept(url, "/bin/one", text), "none");
		assert_int_equal(count_entries(url, &n_orders), 0);
		free(url);
		free(directory);
	}
}

static struct kiln *guest; /* never closed */

static void be_a_guest(const char *url, void (*end)(int status))
{
	guest = open_for(url, KILN_OPEN_GUEST | KILN_OPEN_ORDER, "/bin/one");
	ask_for(guest, "bca");
	end(0);
}

static void a_guest_keeps_it_when_its_program_exits(void **state)
{
	static const struct {
		void (*end)(int status);
		const char *after;
	} rows[] = { { _exit, "none" }, { exit, "bca" }, { exit, "bca" } };
	char *directory = harness_directory();
	char *url = url_in("log:", directory), text[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		pid_t child = fork();

		if (!child)
			be_a_guest(url, rows[i].end);
		assert_int_equal(waitpid(child, NULL, 0), child);
		assert_string_equal(kept(url, "/bin/one", text), rows[i].after);
	}
	assert_int_equal(n_dead(url), 0);
	free(url);
	free(directory);
}

static void nothing_of_it_is_counted(void **state)
{
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	char *directory = harness_directory(), *url = url_in("log:", directory);
	struct kiln *kiln = open_for(url, KILN_OPEN_ORDER, "/bin/one");

	assert_non_null(counters);
	ask_for(kiln, "abc");
	kiln_close(kiln);
	kiln = open_for(url, KILN_OPEN_READONLY, NULL);
	assert_int_equal(kiln_store_counters(kiln, counters), KILN_OK);
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		assert_int_equal(counters->total[i],
				 i == KILN_COUNT_MISSES ? 3 : 0);
	kiln_close(kiln);
	free(counters);
	free(url);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_stands_in_front_and_forgets_nothing),
		cmocka_unit_test(an_order_is_bounded_and_has_what_came_first),
		cmocka_unit_test(threads_note_each_key_once),
		cmocka_unit_test(a_damaged_order_is_none),
		cmocka_unit_test(what_is_asked_for_is_kept_at_closing),
		cmocka_unit_test(only_what_changed_is_written),
		cmocka_unit_test(elsewhere_nothing_is_kept),
		cmocka_unit_test(a_guest_keeps_it_when_its_program_exits),
		cmocka_unit_test(nothing_of_it_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
