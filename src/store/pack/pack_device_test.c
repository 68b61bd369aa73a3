/* SPDX-License-Identifier: MIT */

/* Packs over devices that fail, and from many threads. */

#include <limits.h>

#include "store/pack/pack_test.h"

#include "base/hash.h"

#define N 200

static struct medium *new_medium(char **out_directory)
{
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct medium *medium = malloc(sizeof(*medium));

	assert_non_null(medium);
	medium_init(medium, path);
	free(path);
	*out_directory = directory;
	return medium;
}

static void free_medium(struct medium *medium, char *directory)
{
	medium_fini(medium);
	free(medium);
	harness_remove(directory);
	free(directory);
}

static void a_device_may_give_less_than_was_asked_for(void **state)
{
	static const size_t rows[] = { 1000, 4095, 100000 };
	char *directory;
	struct medium *medium = new_medium(&directory);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_tier *tier = NULL;

		medium->short_bytes = rows[i];
		assert_int_equal(open_medium(medium, NULL, &tier), KILN_OK);
		assert_int_equal(count_hits(tier, N), N);
		assert_int_equal(count_listed(tier), N);
		tier->ops->close(tier);
	}
	free_medium(medium, directory);
}

static void a_call_that_fails_is_that_calls_failure(void **state)
{
	static const ssize_t rows[] = { -EIO, -ETIMEDOUT, 0, -1, SSIZE_MAX };
	char *directory;
	struct medium *medium = new_medium(&directory);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int n = 0; n < 12; n++) {
			struct kiln_tier *tier = NULL;
			enum kiln_status status;
			unsigned k;

			medium->failure = rows[i];
			atomic_store(&medium->n_until_failure, n);
			status = open_medium(medium, NULL, &tier);
			assert_true(!status || status == KILN_E_IO);
			if (status)
				continue;
			for (k = 0; k < N; k++) {
				status = get(tier, k);
				assert_true(!status || status == KILN_E_IO);
			}
			/* It is there again, and nothing of it is held
			   against the pack. */
			atomic_store(&medium->n_until_failure, -1);
			assert_int_equal(count_hits(tier, N), N);
			tier->ops->close(tier);
		}
	free_medium(medium, directory);
}

/* A place that cannot be read costs what lies there: an index is elsewhere too,
   and entries by the line that they are read with. */
static void a_place_that_cannot_be_read_costs_what_is_there(void **state)
{
	char *directory;
	struct medium *medium = new_medium(&directory);
	size_t end = medium->size;

	for (size_t place = 0; place < end; place += 4096) {
		struct kiln_verify_report report;
		struct kiln_tier *tier = NULL;
		unsigned n_hits;

		medium->bad_begin = place;
		medium->bad_end = place + 1;
		assert_int_equal(open_medium(medium, NULL, &tier), KILN_OK);
		n_hits = count_hits(tier, N);
		assert_true(n_hits > N / 2);
		assert_int_equal(count_listed(tier), n_hits);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_entries, n_hits);
		assert_true(report.n_damaged > 0);
		tier->ops->close(tier);
	}
	free_medium(medium, directory);
}

static void a_size_that_is_not_true_harms_nobody(void **state)
{
	static const struct {
		int64_t size;
		enum kiln_status status;
	} rows[] = {
		{ -EIO, KILN_E_IO },	  { -ENOMEM, KILN_E_NO_MEMORY },
		{ INT64_MIN, KILN_E_IO }, { 1, KILN_E_FORMAT },
		{ 1023, KILN_E_FORMAT },  { 1024, KILN_E_FORMAT },
		{ 2000, KILN_E_FORMAT },  { INT64_MAX, KILN_OK },
		{ 1ll << 40, KILN_OK },
	};
	char *directory;
	struct medium *medium = new_medium(&directory);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_tier *tier = NULL;

		medium->size_answer = rows[i].size;
		assert_int_equal(open_medium(medium, NULL, &tier),
				 rows[i].status);
		if (rows[i].status)
			continue;
		/* By the root at the beginning. */
		assert_int_equal(count_hits(tier, N), N);
		tier->ops->close(tier);
	}
	free_medium(medium, directory);
}

static void the_device_is_released_by_who_has_it(void **state)
{
	char *directory;
	struct medium *medium = new_medium(&directory);
	struct kiln_tier *tier = NULL;

	atomic_store(&medium->n_until_failure, 0);
	assert_int_equal(open_medium(medium, NULL, &tier), KILN_E_IO);
	assert_int_equal(medium->n_releases, 0);
	atomic_store(&medium->n_until_failure, -1);
	assert_int_equal(open_medium(medium, NULL, &tier), KILN_OK);
	assert_int_equal(medium->n_releases, 0);
	tier->ops->close(tier);
	assert_int_equal(medium->n_releases, 1);
	free_medium(medium, directory);
}

static void a_device_without_functions_is_refused(void **state)
{
	struct kiln_pack_device device;
	struct kiln_tier *tier = NULL;

	kiln_pack_device_init(&device);
	assert_int_equal(kiln_pack_open_device(&device, NULL, &tier),
			 KILN_E_INVALID);
	assert_int_equal(kiln_pack_open_device(NULL, NULL, &tier),
			 KILN_E_INVALID);
}

static void what_was_prefetched_is_read_without_a_call(void **state)
{
	enum { WANTED = 60 };
	char *directory;
	struct medium *medium = new_medium(&directory);
	const struct kiln_key *keys[WANTED];
	struct kiln_tier *tier = NULL;
	unsigned n_calls;

	assert_int_equal(open_medium(medium, NULL, &tier), KILN_OK);
	for (unsigned n = 0; n < WANTED; n++)
		keys[n] = key_of(WANTED - n);
	n_calls = medium->n_calls;
	tier->ops->prefetch(tier, keys, WANTED);
	assert_true(medium->n_calls <= n_calls + 2);
	n_calls = medium->n_calls;
	for (unsigned n = 1; n <= WANTED; n++)
		assert_int_equal(get(tier, n), KILN_OK);
	assert_int_equal(medium->n_calls, n_calls);
	tier->ops->prefetch(tier, NULL, 0);
	for (unsigned n = 0; n < WANTED; n++)
		kiln_key_free((struct kiln_key *)keys[n]);
	tier->ops->close(tier);
	free_medium(medium, directory);
}

/* ---- Many threads ---------------------------------------------------------------- */

struct crowd {
	struct kiln_tier *tier;
	struct kiln_key *keys[N];
	uint64_t hashes[N];
	atomic_uint n_misses;
};

static unsigned look_up(struct crowd *crowd, unsigned n)
{
	struct kiln_blob *blob, *metadata;
	unsigned wrong;

	if (crowd->tier->ops->get(crowd->tier, crowd->keys[n], &blob,
				  &metadata)) {
		atomic_fetch_add(&crowd->n_misses, 1);
		return 0;
	}
	wrong = ki_xxh3_64(kiln_blob_data(blob), kiln_blob_size(blob)) !=
		crowd->hashes[n];
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	return wrong;
}

static int use(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln_tier *tier = crowd->tier;
	struct kiln_verify_report report;
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	uint64_t seed = index;
	unsigned wrong = 0, n_listed = 0;

	for (unsigned i = 0; i < N; i++)
		wrong += look_up(crowd, (unsigned)(harness_random(&seed) % N));
	while (!tier->ops->list(tier, &cursor, &entry)) {
		n_listed++;
		kiln_entry_fini(&entry);
	}
	tier->ops->prefetch(tier, (const struct kiln_key *const *)crowd->keys,
			    N);
	if (index == 1)
		wrong += tier->ops->verify(tier, 0, NULL, NULL, &report) ||
			 report.n_damaged;
	return (int)(wrong + (n_listed != N));
}

static void many_threads_read_one_pack(void **state)
{
	static const unsigned n_calls[] = { 1, 4 };
	static uint8_t value[VALUE_BYTES_MAX];
	char *directory;
	struct medium *medium = new_medium(&directory);
	struct crowd crowd = { 0 };

	for (unsigned n = 0; n < N; n++) {
		crowd.keys[n] = key_of(n);
		crowd.hashes[n] =
			ki_xxh3_64(value, value_of(n, size_of(n), value));
	}
	for (unsigned i = 0; i < 2; i++) {
		struct kiln_pack_device device = device_of(medium);

		device.n_calls = n_calls[i];
		assert_int_equal(
			kiln_pack_open_device(&device, NULL, &crowd.tier),
			KILN_OK);
		assert_int_equal(harness_threads(4, use, &crowd), 0);
		assert_int_equal(crowd.n_misses, 0);
		crowd.tier->ops->close(crowd.tier);
	}
	for (unsigned n = 0; n < N; n++)
		kiln_key_free(crowd.keys[n]);
	free_medium(medium, directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_may_give_less_than_was_asked_for),
		cmocka_unit_test(a_call_that_fails_is_that_calls_failure),
		cmocka_unit_test(
			a_place_that_cannot_be_read_costs_what_is_there),
		cmocka_unit_test(a_size_that_is_not_true_harms_nobody),
		cmocka_unit_test(the_device_is_released_by_who_has_it),
		cmocka_unit_test(a_device_without_functions_is_refused),
		cmocka_unit_test(what_was_prefetched_is_read_without_a_call),
		cmocka_unit_test(many_threads_read_one_pack),
	};

	return cmocka_run_group_tests_name("pack_device", tests, NULL, NULL);
}
