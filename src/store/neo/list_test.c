/* SPDX-License-Identifier: MIT */

/* A driver's own entries: listed, in the order in which eviction takes them,
   removed on request, and nobody's value.  Directories that drivers wrote are
   looked at where there are any. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/hash.h"
#include "key/key.h"
#include "store/neo/helpers_test.h"

#define FLAT  "0123456789abcdef.cl_cache"
#define OTHER "fedcba9876543210.l0_cache"
#define OCLOC "00000000000000aa.ocloc_cache"

static const char *const layouts[] = { "flat", "tree" };

/* ---- A listing, as a table -------------------------------------------------------------- */

struct listing {
	unsigned n;
	struct kiln_entry entries[64];
};

static void list(struct kiln_tier *tier, struct listing *listing)
{
	struct kiln_cursor cursor = { { 0 } };
	enum kiln_status status = KILN_OK;

	listing->n = 0;
	while (listing->n < 64 &&
	       !(status = tier->ops->list(tier, &cursor,
					  &listing->entries[listing->n])))
		listing->n++;
	assert_int_equal(status, KILN_END);
}

static void forget(struct listing *listing)
{
	while (listing->n)
		kiln_entry_fini(&listing->entries[--listing->n]);
}

static const struct kiln_entry *named(const struct listing *listing,
				      const char *name)
{
	for (unsigned i = 0; i < listing->n; i++)
		if (!strcmp(listing->entries[i].file, name))
			return &listing->entries[i];
	return NULL;
}

static const struct kiln_entry *at_turn(const struct listing *listing,
					uint64_t turn)
{
	for (unsigned i = 0; i < listing->n; i++)
		if (listing->entries[i].turn == turn)
			return &listing->entries[i];
	return NULL;
}

static struct kiln_key *key_of_entry(const struct kiln_entry *entry)
{
	struct kiln_key *key;

	assert_int_equal(kiln_key_from_record(kiln_blob_data(entry->record),
					      kiln_blob_size(entry->record),
					      &key),
			 KILN_OK);
	assert_memory_equal(key->digest, entry->digest, KILN_DIGEST_BYTES);
	return key;
}

static const char *front_of(const struct kiln_entry *entry)
{
	const void *front = "";
	size_t size = 0;

	(void)kiln_metadata_find(kiln_blob_data(entry->metadata),
				 kiln_blob_size(entry->metadata),
				 KILN_META_FRONT, &front, &size);
	return size == 6 ? "opencl" : size == 9 ? "levelzero" : "ocloc";
}

/* An entry as an original leaves it, in this layout. */
static char *plant_in(const char *directory, int is_tree, const char *base,
		      size_t size, int hours, char name[64])
{
	char path[KI_PATH_MAX];

	if (!is_tree) {
		strcpy(name, base);
		return plant(directory, name, size, hours);
	}
	snprintf(path, sizeof(path), "%s/%c", directory, base[0]);
	(void)mkdir(path, 0775);
	snprintf(path, sizeof(path), "%s/%c/%c", directory, base[0], base[1]);
	(void)mkdir(path, 0775);
	snprintf(name, 64, "%c/%c/%s", base[0], base[1], base);
	return plant(directory, name, size, hours);
}

/* ---- Listing -------------------------------------------------------------------------------- */

static void a_drivers_own_entries_are_listed_beside_kilns(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = harness_directory(), *paths[3];
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);
		const struct kiln_entry *entry;
		struct listing listing;
		char names[3][64];

		assert_int_equal(put(tier, 1, 100), KILN_OK);
		assert_int_equal(put(tier, 2, 200), KILN_OK);
		paths[0] = plant_in(directory, i, FLAT, 3000, 5, names[0]);
		paths[1] = plant_in(directory, i, OTHER, 4000, 7, names[1]);
		paths[2] = plant_in(directory, i, OCLOC, 50, 9, names[2]);
		free(plant(directory, "cl_cache.Ab3xYz", 5, 0));
		free(plant(directory, "note.txt", 5, 0));
		list(tier, &listing);
		assert_int_equal(listing.n, 5);
		entry = named(&listing, names[0]);
		assert_true(entry->is_foreign);
		assert_int_equal(entry->value_size, 3000);
		assert_int_equal(entry->stored_size, 3000);
		assert_string_equal(front_of(entry), "opencl");
		assert_string_equal(front_of(named(&listing, names[1])),
				    "levelzero");
		assert_string_equal(front_of(named(&listing, names[2])),
				    "ocloc");
		for (unsigned n = 0; n < 5; n++) {
			const struct kiln_entry *one = &listing.entries[n];

			assert_int_equal(one->is_foreign,
					 one->value_size > 200 ||
						 one->value_size == 50);
			assert_true(one->used > 0);
		}
		forget(&listing);
		tier->ops->close(tier);
		for (unsigned n = 0; n < 3; n++)
			free(paths[n]);
		free(directory);
	}
}

static void turns_are_those_of_eviction(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);
		char left[64], theirs[64], offline[64];
		struct listing before, after;
		unsigned n_gone;

		free(plant_in(directory, i, FLAT, 10000, 9, theirs));
		free(plant_in(directory, i, OCLOC, 10000, 99, offline));
		for (unsigned n = 0; n < 8; n++) {
			assert_int_equal(put(tier, n, 10000), KILN_OK);
			set_use_of(tier, n, 4 + (int)(n * 3 % 8) * 2);
		}
		/* In a tree, what the flat layout left goes first. */
		free(plant_in(directory, 0, OTHER, 10000, 1, left));
		list(tier, &before);
		assert_int_equal(before.n, 11);
		assert_int_equal(at_turn(&before, 1) == named(&before, left),
				 i);
		assert_int_equal(named(&before, offline)->turn, i ? 2 : 0);
		assert_int_equal(named(&before, left)->turn, i ? 1 : 10);
		assert_int_equal(tier->ops->set_limit(tier, 62000), KILN_OK);
		list(tier, &after);
		n_gone = before.n - after.n;
		assert_in_range(n_gone, 4, 6);
		for (unsigned turn = 1; turn <= 10; turn++)
			assert_int_equal(
				named(&after, at_turn(&before, turn)->file) ==
					NULL,
				turn <= n_gone);
		forget(&before);
		forget(&after);
		tier->ops->close(tier);
		free(directory);
	}
}

static void a_listing_goes_on_when_another_has_ended(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	struct listing listing;
	unsigned n = 0, seen = 0;

	for (unsigned i = 0; i < 20; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%016x.cl_cache", i);
		free(plant(directory, name, 10 + i, 0));
	}
	while (!tier->ops->list(tier, &cursor, &entry)) {
		seen |= 1u << (entry.value_size - 10);
		n++;
		kiln_entry_fini(&entry);
		list(tier, &listing);
		assert_int_equal(listing.n, 20);
		forget(&listing);
	}
	assert_int_equal(n, 20);
	assert_int_equal(seen, (1u << 20) - 1);
	tier->ops->close(tier);
	free(directory);
}

static void nothing_is_listed_through_links(void **state)
{
	char *directory = harness_directory();
	char *elsewhere = harness_directory();
	char *link = harness_path(directory, "0"), *inner, name[64];
	struct kiln_gc_options options = { .age_max_s = 1 };
	struct kiln_gc_report report;
	struct listing listing;
	struct kiln_tier *tier;
	char *path;

	path = plant_in(elsewhere, 1, FLAT, 100, 5, name);
	*strrchr(path, '/') = '\0';
	*strrchr(path, '/') = '\0';
	assert_int_equal(symlink(path, link), 0);
	free(link);
	link = harness_path(directory, FLAT);
	inner = harness_path(elsewhere, name);
	assert_int_equal(symlink(inner, link), 0);
	tier = open_with(&ki_sys_posix, directory, 0, 0, "tree");
	list(tier, &listing);
	assert_int_equal(listing.n, 0);
	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
	assert_true(exists(inner));
	tier->ops->close(tier);
	free(inner);
	free(link);
	free(path);
	free(elsewhere);
	free(directory);
}

/* ---- Asking for one, and removing it -------------------------------------------------------- */

static void a_drivers_entry_is_nobodys_value(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	struct kiln_blob *blob = NULL;
	struct listing listing;
	struct kiln_key *key;

	free(plant(directory, FLAT, 3000, 5));
	list(tier, &listing);
	assert_int_equal(listing.n, 1);
	key = key_of_entry(&listing.entries[0]);
	assert_true(kiln_key_is_local(key));
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_MISS);
	/* What is stored under such a key is an entry like any other. */
	assert_int_equal(tier->ops->put(tier, key, NULL, 0, "mine", 4, 0),
			 KILN_OK);
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	assert_int_equal(kiln_blob_size(blob), 4);
	kiln_blob_unref(blob);
	kiln_key_free(key);
	forget(&listing);
	tier->ops->close(tier);
	free(directory);
}

static void a_drivers_entry_is_removed_on_request(void **state)
{
	for (int i = 0; i < 2; i++) {
		char *directory = harness_directory(), *paths[2];
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);
		struct listing listing;
		struct kiln_key *key;
		char names[2][64];

		paths[0] = plant_in(directory, i, FLAT, 3000, 5, names[0]);
		paths[1] = plant_in(directory, i, OCLOC, 50, 5, names[1]);
		assert_int_equal(put(tier, 1, 100), KILN_OK);
		assert_int_equal(sum_of(directory), i ? 3150 : 3100);
		list(tier, &listing);
		for (unsigned n = 0; n < 2; n++) {
			key = key_of_entry(named(&listing, names[n]));
			assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
			assert_false(exists(paths[n]));
			assert_int_equal(tier->ops->remove(tier, key),
					 KILN_MISS);
			kiln_key_free(key);
		}
		assert_int_equal(sum_of(directory), 100);
		assert_int_equal(get(tier, 1), KILN_OK);
		forget(&listing);
		tier->ops->close(tier);
		free(paths[0]);
		free(paths[1]);
		free(directory);
	}
}

/* Keys are what the caller makes them. */
static void no_key_removes_what_is_not_a_drivers_entry(void **state)
{
	static const char *const names[] = {
		"../outside.cl_cache",
		"a/../outside.cl_cache",
		"/tmp/x.cl_cache",
		"config.file",
		"kiln.records",
		"cl_cache.Ab3xYz",
		"sub/inside.cl_cache",
		".cl_cache",
		"0/1/2/inside.cl_cache",
		"0/1/../../../outside.cl_cache",
		"",
	};
	char *place = harness_directory();
	char *directory = harness_path(place, "cache");
	char *outside, *config, *temporary, *own;
	struct kiln_key *key;

	outside = plant(place, "outside.cl_cache", 10, 5);
	for (int i = 0; i < 2; i++) {
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);

		assert_int_equal(put(tier, 1, 100), KILN_OK);
		config = harness_path(directory, "config.file");
		temporary = plant(directory, "cl_cache.Ab3xYz", 10, 0);
		for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
			key = kiln_key_new();
			kiln_key_add_local(key, "neo.file", names[n],
					   strlen(names[n]));
			assert_int_equal(kiln_key_finish(key), KILN_OK);
			assert_int_equal(tier->ops->remove(tier, key),
					 KILN_MISS);
			kiln_key_free(key);
		}
		/* And kiln's own has a key of its own. */
		own = path_of(tier, 1);
		key = kiln_key_new();
		kiln_key_add_local(key, "neo.file", own + strlen(directory) + 1,
				   strlen(own) - strlen(directory) - 1);
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
		kiln_key_free(key);
		assert_int_equal(get(tier, 1), KILN_OK);
		assert_true(exists(outside) && exists(config) &&
			    exists(temporary));
		tier->ops->close(tier);
		harness_remove(directory);
		free(own);
		free(temporary);
		free(config);
	}
	free(outside);
	free(directory);
	free(place);
}

/* In a store that is shared, others write records too. */
static void a_record_leads_to_no_file_outside(void **state) KI_NO_ANALYSIS
{
	static const char *const names[] = { "../outside.cl_cache",
					     "0/1/../../../outside.cl_cache",
					     "a/../../outside.cl_cache" };

	for (unsigned i = 0; i < 6; i++) {
		char *place = harness_directory();
		char *directory = harness_path(place, "cache");
		char *outside = plant(place, "outside.cl_cache", 100, 5);
		struct kiln_tier *tier = open_with(&ki_sys_posix, directory, 0,
						   0, layouts[i % 2]);
		struct kiln_key *key = key_of(7);
		struct ki_neo_account account;
		struct kiln_verify_report report;
		struct kiln_blob *blob;
		struct listing listing;
		struct stat st;
		struct ki_record record = { .name = names[i / 2],
					    .record = key->record.data,
					    .record_size = key->record.size,
					    .value_size = 100 };

		assert_int_equal(put(tier, 1, 100), KILN_OK);
		assert_int_equal(stat(outside, &st), 0);
		memcpy(record.digest, key->digest, KILN_DIGEST_BYTES);
		record.inode = st.st_ino;
		record.file_size = 100;
		record.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 +
				  st.st_mtim.tv_nsec;
		assert_int_equal(
			ki_neo_account_begin(neo_of(tier), 0, &account),
			KILN_OK);
		assert_int_equal(
			ki_records_append(neo_of(tier)->records, &record),
			KILN_OK);
		assert_int_equal(ki_neo_account_end(neo_of(tier), &account),
				 KILN_OK);
		assert_int_equal(tier->ops->get(tier, key, &blob, NULL),
				 KILN_MISS);
		list(tier, &listing);
		assert_int_equal(listing.n, 1);
		forget(&listing);
		assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR,
						   NULL, NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
		assert_int_equal(tier->ops->wipe(tier), KILN_OK);
		assert_true(exists(outside));
		tier->ops->close(tier);
		kiln_key_free(key);
		free(outside);
		free(directory);
		free(place);
	}
}

/* ---- Verify, and the whole ------------------------------------------------------------------ */

static void verify_finds_only_what_a_drivers_entry_says_of_itself(void **state)
{
	static const char cut[] = "\177ELF\2\1\1";

	for (int i = 0; i < 2; i++) {
		char *directory = harness_directory(), *whole, *half, *empty;
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);
		struct kiln_verify_report report;
		struct kiln_store_info info;
		struct listing listing;
		char names[3][64];

		assert_int_equal(put(tier, 1, 100), KILN_OK);
		whole = plant_in(directory, i, FLAT, 3000, 5, names[0]);
		half = plant_in(directory, i, OTHER, 1, 5, names[1]);
		harness_write(half, cut, sizeof(cut));
		empty = plant_in(directory, i, "ffffffffffffffff.cl_cache", 0,
				 5, names[2]);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_entries, 1);
		assert_int_equal(report.n_foreign, 1);
		assert_int_equal(report.bytes_foreign, 3000);
		assert_int_equal(report.n_damaged, 2);
		assert_int_equal(report.n_repaired, 0);
		assert_int_equal(report.n_named, 2);
		list(tier, &listing);
		for (unsigned n = 0; n < 2; n++)
			assert_memory_equal(
				report.named[n].digest,
				named(&listing, report.named[n].file)->digest,
				KILN_DIGEST_BYTES);
		forget(&listing);
		assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
		assert_int_equal(info.n_entries, 4);
		assert_int_equal(info.n_foreign, 3);
		assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR,
						   NULL, NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_repaired, 2);
		assert_true(exists(whole));
		assert_false(exists(half) || exists(empty));
		assert_int_equal(sum_of(directory), 3100);
		assert_int_equal(tier->ops->wipe(tier), KILN_OK);
		assert_false(exists(whole));
		assert_int_equal(sum_of(directory), 0);
		assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
		assert_int_equal(info.n_entries, 0);
		tier->ops->close(tier);
		free(empty);
		free(half);
		free(whole);
		free(directory);
	}
}

struct company {
	struct kiln_tier *tier;
	int is_storing;
};

static void *keep_company(void *arg)
{
	struct company *company = arg;

	for (unsigned n = 0; n < 30; n++) {
		struct kiln_cursor cursor = { { 0 } };
		struct kiln_entry entry;

		if (company->is_storing) {
			(void)put(company->tier, n, 3000);
			continue;
		}
		while (!company->tier->ops->list(company->tier, &cursor,
						 &entry))
			kiln_entry_fini(&entry);
	}
	return NULL;
}

/* Evictions among them; the sanitizers look on. */
static void listings_go_on_beside_stores(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 60000);
	struct company companies[] = { { tier, 1 }, { tier, 0 }, { tier, 0 } };
	pthread_t threads[3];
	struct listing listing;

	for (unsigned i = 0; i < 12; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%016x.cl_cache", i);
		free(plant(directory, name, 2000, 5));
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, keep_company,
						&companies[i]),
				 0);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	list(tier, &listing);
	assert_in_range(listing.n, 10, 30);
	forget(&listing);
	assert_true(bytes_of(tier) <= 60000);
	tier->ops->close(tier);
	free(directory);
}

/* Also where nothing may be written. */
static void the_size_is_told_without_a_sum_that_can_be_believed(void **state)
{
	static const uint8_t garbage[8] = { [7] = 0xff };
	static const struct {
		const void *bytes;
		size_t size;
	} sums[] = { { NULL, 0 }, { "", 0 }, { garbage, 8 } };

	for (unsigned i = 0; i < 6; i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier;

		free(plant(directory, FLAT, 3000, 5));
		free(plant(directory, OTHER, 400, 5));
		free(plant(directory, OCLOC, 50, 5));
		if (sums[i / 2].bytes)
			write_sum(directory, sums[i / 2].bytes,
				  sums[i / 2].size);
		tier = open_with(&ki_sys_posix, directory, 0,
				 i % 2 ? KILN_OPEN_READONLY : 0, NULL);
		assert_int_equal(bytes_of(tier), 3400);
		tier->ops->close(tier);
		free(directory);
	}
}

/* ---- Directories that drivers wrote --------------------------------------------------------- */

static const struct real {
	const char *name;
	enum kiln_neo_layout layout;
	uint64_t bytes; /* that config.file tells of */
	unsigned n;
	const char *first; /* by name */
} reals[] = {
	{ "neo_25.05_flat", KILN_NEO_FLAT, 7184, 2,
	  "4c2e2716b7f7afef.l0_cache" },
	{ "neo_head_2026-08_tree", KILN_NEO_TREE, 7184, 2,
	  "4/c/4c2e2716b7f7afef.l0_cache" },
	{ "ocloc_22.43_debian12", KILN_NEO_FLAT, 0, 3,
	  "084076beb34758e1.ocloc_cache" },
};

static void what_drivers_wrote_is_looked_at_and_left_alone(void **state)
{
	const char *root = getenv("KILN_TEST_NEO_DATA");

	if (!root || access(root, R_OK)) {
		print_message("# not tried: no real directories here "
			      "(KILN_TEST_NEO_DATA)\n");
		return;
	}
	for (unsigned i = 0; i < 3; i++) {
		char *directory = harness_path(root, reals[i].name);
		struct kiln_tier *tier = open_with(
			&ki_sys_posix, directory, 0,
			KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER, NULL);
		struct kiln_verify_report report;
		struct listing listing;
		struct kiln_key *key;

		assert_int_equal(neo_of(tier)->layout, reals[i].layout);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(report.n_foreign, reals[i].n);
		assert_int_equal(bytes_of(tier), reals[i].bytes);
		list(tier, &listing);
		assert_int_equal(listing.n, reals[i].n);
		assert_non_null(named(&listing, reals[i].first));
		key = key_of_entry(&listing.entries[0]);
		assert_int_equal(tier->ops->remove(tier, key), KILN_E_READONLY);
		kiln_key_free(key);
		forget(&listing);
		tier->ops->close(tier);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_drivers_own_entries_are_listed_beside_kilns),
		cmocka_unit_test(turns_are_those_of_eviction),
		cmocka_unit_test(a_listing_goes_on_when_another_has_ended),
		cmocka_unit_test(nothing_is_listed_through_links),
		cmocka_unit_test(a_drivers_entry_is_nobodys_value),
		cmocka_unit_test(a_drivers_entry_is_removed_on_request),
		cmocka_unit_test(no_key_removes_what_is_not_a_drivers_entry),
		cmocka_unit_test(a_record_leads_to_no_file_outside),
		cmocka_unit_test(
			verify_finds_only_what_a_drivers_entry_says_of_itself),
		cmocka_unit_test(
			the_size_is_told_without_a_sum_that_can_be_believed),
		cmocka_unit_test(listings_go_on_beside_stores),
		cmocka_unit_test(
			what_drivers_wrote_is_looked_at_and_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
