/* SPDX-License-Identifier: MIT */

/*
 * Packs that somebody made so that every digest and check holds, and the numbers
 * under them cannot be.  No value may be wrong and nothing outside the pack be
 * read; what the numbers do not touch is found.
 */

#include "store/pack/pack_test.h"

#define N 100 /* three pages */

struct forgery {
	struct medium medium;
	struct ki_pack_root root;
	size_t index_bytes;
	uint8_t *sound; /* the bytes as they were */
};

static void forgery_init(struct forgery *forgery, const char *path)
{
	struct medium *medium = &forgery->medium;

	medium_init(medium, path);
	assert_int_equal(ki_pack_root_read(medium->bytes, &forgery->root),
			 KILN_OK);
	forgery->index_bytes =
		(size_t)ki_pack_index_bytes(forgery->root.n_pages);
	forgery->sound = malloc(medium->size);
	assert_non_null(forgery->sound);
	memcpy(forgery->sound, medium->bytes, medium->size);
}

static void forgery_undo(struct forgery *forgery)
{
	memcpy(forgery->medium.bytes, forgery->sound, forgery->medium.size);
}

static void forgery_fini(struct forgery *forgery)
{
	free(forgery->sound);
	medium_fini(&forgery->medium);
}

static uint8_t *page_at(struct forgery *forgery, uint64_t i)
{
	return forgery->medium.bytes + forgery->root.index_offset[0] +
	       i * KI_PACK_PAGE_BYTES;
}

static uint8_t *entry_at(struct forgery *forgery, size_t i)
{
	return page_at(forgery, i / KI_PACK_PAGE_ENTRIES) + 16 +
	       i % KI_PACK_PAGE_ENTRIES * KI_PACK_ENTRY_BYTES;
}

static void check_root(uint8_t *root)
{
	ki_put_u64(root + KI_PACK_ROOT_BYTES - 8,
		   ki_xxh3_64(root, KI_PACK_ROOT_BYTES - 8));
}

/* Both roots as the first one is. */
static void seal_roots(struct forgery *forgery)
{
	struct medium *medium = &forgery->medium;

	check_root(medium->bytes);
	memcpy(medium->bytes + medium->size - KI_PACK_ROOT_BYTES, medium->bytes,
	       KI_PACK_ROOT_BYTES);
}

/* The table and what stands above it, of the first index, and all of that a
   second time. */
static void seal_table(struct forgery *forgery)
{
	uint8_t *bytes = forgery->medium.bytes;
	const struct ki_pack_root *root = &forgery->root;
	uint8_t *index = bytes + root->index_offset[0];

	ki_blake2b(index + root->n_pages * KI_PACK_PAGE_BYTES,
		   (size_t)root->n_pages * KI_PACK_TABLE_BYTES, bytes + 96);
	memcpy(bytes + root->index_offset[1], index, forgery->index_bytes);
	seal_roots(forgery);
}

/* From the pages of the first index up. */
static void seal(struct forgery *forgery)
{
	uint8_t *table = page_at(forgery, forgery->root.n_pages);

	for (uint64_t i = 0; i < forgery->root.n_pages; i++)
		ki_pack_table_write(page_at(forgery, i),
				    table + i * KI_PACK_TABLE_BYTES);
	seal_table(forgery);
}

/* Everything that a reader does.  How many of the N are found; -1: it is refused. */
static int use(struct forgery *forgery)
{
	struct kiln_key *keys[N];
	struct kiln_tier *tier = NULL;
	struct kiln_verify_report report;
	enum kiln_status status = open_medium(&forgery->medium, NULL, &tier);
	unsigned n_hits, n;

	if (status) {
		assert_int_equal(status, KILN_E_FORMAT);
		return -1;
	}
	for (n = 0; n < N; n++)
		keys[n] = key_of(n);
	tier->ops->prefetch(tier, (const struct kiln_key *const *)keys, N);
	n_hits = count_hits(tier, N);
	assert_true(count_listed(tier) <= N);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_true(report.n_damaged <= N + 2 * (1 + 4 + 1));
	for (n = 0; n < N; n++)
		kiln_key_free(keys[n]);
	tier->ops->close(tier);
	return (int)n_hits;
}

/* ---- Numbers of an entry ------------------------------------------------------- */

static void an_entry_that_cannot_be_costs_itself(void **state)
{
	enum { OFFSET = 64, SIZE = 72 };
	static const struct {
		const char *name;
		int field;
		uint64_t value;
	} rows[] = {
		{ "it begins at 0", OFFSET, 0 },
		{ "it begins in the root", OFFSET, 512 },
		{ "it begins at no multiple of 8", OFFSET, 1025 },
		{ "it begins in the index", OFFSET, 1 << 16 },
		{ "it begins behind the end", OFFSET, 1 << 30 },
		{ "its end wraps around", OFFSET, UINT64_MAX - 63 },
		{ "it begins at the last byte there is", OFFSET, UINT64_MAX },
		{ "it begins at the most negative", OFFSET, 1ull << 63 },
		{ "it is empty", SIZE, 0 },
		{ "it is shorter than a header", SIZE, 63 },
		{ "it is longer than it is", SIZE, 4096 },
		{ "it is longer than the file", SIZE, 1 << 30 },
		{ "its length wraps around", SIZE, UINT64_MAX },
		{ "its length wraps around with its header", SIZE,
		  UINT64_MAX - 1023 },
		{ "it is as long as can be told", SIZE, INT64_MAX },
	};
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;

	forgery_init(&forgery, path);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		static const size_t places[] = { 0, 45, 46, 70, N - 1 };

		for (size_t k = 0; k < 5; k++) {
			int n_hits;

			ki_put_u64(entry_at(&forgery, places[k]) +
					   rows[i].field,
				   rows[i].value);
			seal(&forgery);
			n_hits = use(&forgery);
			forgery_undo(&forgery);
			if (n_hits != N - 1)
				fail_msg("%s: %d found", rows[i].name, n_hits);
		}
	}
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void an_entry_of_another_name_is_no_answer(void **state)
{
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;

	forgery_init(&forgery, path);
	/* Where, how long, of which digest: as the next one. */
	memcpy(entry_at(&forgery, 3) + 32, entry_at(&forgery, 4) + 32, 56);
	seal(&forgery);
	assert_int_equal(use(&forgery), N - 1);
	forgery_undo(&forgery);
	/* All of them lead to one. */
	for (size_t i = 1; i < N; i++)
		memcpy(entry_at(&forgery, i) + 32, entry_at(&forgery, 0) + 32,
		       56);
	seal(&forgery);
	assert_int_equal(use(&forgery), 1);
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void positions_need_not_be_any(void **state)
{
	static const uint32_t rows[] = { 0, N, 0x80000000u, UINT32_MAX };
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;

	forgery_init(&forgery, path);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (size_t k = 0; k < N; k += 3)
			ki_put_u32(entry_at(&forgery, k) + 80, rows[i]);
		seal(&forgery);
		assert_int_equal(use(&forgery), N);
		forgery_undo(&forgery);
	}
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* ---- Entries within entries ----------------------------------------------------- */

/* S59: an envelope within another's value, with an index entry of its own, is
   what its name says; the list goes by what lies behind each other. */
static void of_entries_that_overlap_one_is_listed(void **state)
{
	char *directory = harness_directory();
	char *path = write_pack(directory, 2);
	struct kiln_pack_writer *writer = NULL;
	struct kiln_key *key = key_of(1000);
	struct kiln_tier *tier = NULL;
	struct forgery forgery;
	struct ki_pack_entry inner, outer;
	uint8_t *entry;

	forgery_init(&forgery, path);
	ki_pack_page_entry(page_at(&forgery, 0), 0, &inner);
	assert_int_equal(remove(path), 0);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(kiln_pack_add(writer, key, NULL, 0,
				       forgery.medium.bytes + inner.offset,
				       (size_t)inner.size),
			 KILN_OK);
	assert_int_equal(add(writer, inner.position, size_of(inner.position)),
			 KILN_OK);
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	forgery_fini(&forgery);

	forgery_init(&forgery, path);
	entry = entry_at(&forgery, 0);
	if (memcmp(entry, inner.name, sizeof(inner.name)) != 0)
		entry = entry_at(&forgery, 1);
	ki_pack_page_entry(page_at(&forgery, 0), entry == entry_at(&forgery, 0),
			   &outer);
	/* The value is the envelope: it ends where the outer one ends. */
	ki_put_u64(entry + 64, outer.offset + outer.size - inner.size);
	seal(&forgery);
	assert_int_equal(open_medium(&forgery.medium, NULL, &tier), KILN_OK);
	assert_int_equal(get(tier, inner.position), KILN_OK);
	assert_int_equal(count_listed(tier), 1);
	tier->ops->close(tier);
	forgery_fini(&forgery);
	kiln_key_free(key);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* ---- Pages and their table -------------------------------------------------------- */

static void swap(uint8_t *a, uint8_t *b, size_t size)
{
	while (size--) {
		uint8_t byte = a[size];

		a[size] = b[size];
		b[size] = byte;
	}
}

static void another_number_of_entries_costs_the_page(void **state)
{
	static const uint32_t rows[] = { 0, 1, 45, 47, 1 << 16, UINT32_MAX };
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;

	forgery_init(&forgery, path);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ki_put_u32(page_at(&forgery, 1), rows[i]);
		seal(&forgery);
		assert_int_equal(use(&forgery), N - KI_PACK_PAGE_ENTRIES);
		forgery_undo(&forgery);
	}
	/* The last page, which is not full, as if it were. */
	ki_put_u32(page_at(&forgery, 2), KI_PACK_PAGE_ENTRIES);
	seal(&forgery);
	assert_int_equal(use(&forgery), 2 * KI_PACK_PAGE_ENTRIES);
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void names_out_of_order_cost_the_page(void **state)
{
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;

	forgery_init(&forgery, path);
	swap(entry_at(&forgery, 10), entry_at(&forgery, 11),
	     KI_PACK_ENTRY_BYTES);
	seal(&forgery);
	assert_int_equal(use(&forgery), N - KI_PACK_PAGE_ENTRIES);
	forgery_undo(&forgery);
	/* One name twice. */
	memcpy(entry_at(&forgery, 10), entry_at(&forgery, 11),
	       KI_PACK_ENTRY_BYTES);
	seal(&forgery);
	assert_int_equal(use(&forgery), N - KI_PACK_PAGE_ENTRIES);
	forgery_undo(&forgery);
	/* In the page before the one where it belongs. */
	memcpy(entry_at(&forgery, 45), entry_at(&forgery, 46),
	       KI_PACK_ENTRY_BYTES);
	seal(&forgery);
	assert_int_equal(use(&forgery), N - KI_PACK_PAGE_ENTRIES);
	forgery_undo(&forgery);
	/* A page's first name is not the table's. */
	page_at(&forgery, forgery.root.n_pages)[KI_PACK_TABLE_BYTES + 31] ^= 1;
	seal_table(&forgery);
	assert_int_equal(use(&forgery), N - KI_PACK_PAGE_ENTRIES);
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void pages_out_of_order_cost_the_pack(void **state)
{
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;

	forgery_init(&forgery, path);
	swap(page_at(&forgery, 0), page_at(&forgery, 1), KI_PACK_PAGE_BYTES);
	seal(&forgery);
	assert_int_equal(use(&forgery), -1);
	forgery_undo(&forgery);
	memcpy(page_at(&forgery, 0), page_at(&forgery, 1), KI_PACK_PAGE_BYTES);
	seal(&forgery);
	assert_int_equal(use(&forgery), -1);
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* ---- Numbers of the root ---------------------------------------------------------- */

static void a_root_that_cannot_be_is_none(void **state)
{
	static const uint64_t values[] = {
		0,	    1,		2,	    1023,
		1024,	    4095,	4096,	    1 << 20,
		INT64_MAX,  UINT64_MAX, 1ull << 63, UINT64_MAX - 1,
		1ull << 32, 1ull << 24, 46,
	};
	static const size_t fields[] = { 8, 16, 24, 32, 40, 48, 128 };
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;

	forgery_init(&forgery, path);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]);
		     k++) {
			uint8_t *field = forgery.medium.bytes + fields[i];
			int n_hits;

			/* Signatures are trusted, or nothing. */
			if (fields[i] == 128 && values[k] <= 12)
				continue;
			if (fields[i] == 128 || fields[i] == 8)
				ki_put_u32(field, (uint32_t)(values[k] + 20));
			else
				ki_put_u64(field, values[k]);
			seal_roots(&forgery);
			n_hits = use(&forgery);
			if (n_hits != -1)
				fail_msg("field %zu, value %zu: %d found",
					 fields[i], k, n_hits);
			forgery_undo(&forgery);
		}
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* ---- By chance ---------------------------------------------------------------------- */

static uint64_t odd_number(uint64_t *seed, const struct forgery *forgery)
{
	static const uint64_t numbers[] = { 0,	       1,	   8,
					    63,	       64,	   1024,
					    INT64_MAX, UINT64_MAX, UINT32_MAX };
	uint64_t chance = harness_random(seed);

	switch (chance % 4) {
	case 0:
		return numbers[chance / 4 % 9];
	case 1:
		return (chance >> 8) % forgery->medium.size;
	case 2:
		return forgery->medium.size - (chance >> 8) % 64 + 32;
	default:
		return chance;
	}
}

static void change_something(struct forgery *forgery, uint64_t *seed)
{
	static const size_t fields[] = { 0, 32, 64, 64, 64, 72, 72, 72, 80 };
	size_t n_entries = (size_t)forgery->root.n_entries;
	uint8_t *entry =
		entry_at(forgery, (size_t)(harness_random(seed) % n_entries));
	uint64_t chance = harness_random(seed);

	if (chance % 8 == 0)
		ki_put_u32(page_at(forgery, chance / 8 % forgery->root.n_pages),
			   (uint32_t)odd_number(seed, forgery));
	else if (chance % 8 == 1)
		swap(entry, entry_at(forgery, (size_t)(chance / 8 % n_entries)),
		     KI_PACK_ENTRY_BYTES);
	else
		ki_put_u64(entry + fields[chance / 8 % 9],
			   odd_number(seed, forgery));
}

static void no_made_up_index_gives_a_wrong_value(void **state)
{
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct forgery forgery;
	uint64_t seed = 59;

	forgery_init(&forgery, path);
	for (unsigned round = 0; round < 300; round++) {
		unsigned n = 1 + (unsigned)(harness_random(&seed) % 6);

		while (n--)
			change_something(&forgery, &seed);
		seal(&forgery);
		/* A value that is not its key's ends the test. */
		(void)use(&forgery);
		forgery_undo(&forgery);
	}
	assert_int_equal(use(&forgery), N);
	forgery_fini(&forgery);
	harness_remove(directory);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_entry_that_cannot_be_costs_itself),
		cmocka_unit_test(an_entry_of_another_name_is_no_answer),
		cmocka_unit_test(positions_need_not_be_any),
		cmocka_unit_test(of_entries_that_overlap_one_is_listed),
		cmocka_unit_test(another_number_of_entries_costs_the_page),
		cmocka_unit_test(names_out_of_order_cost_the_page),
		cmocka_unit_test(pages_out_of_order_cost_the_pack),
		cmocka_unit_test(a_root_that_cannot_be_is_none),
		cmocka_unit_test(no_made_up_index_gives_a_wrong_value),
	};

	return cmocka_run_group_tests_name("pack_hostile", tests, NULL, NULL);
}
