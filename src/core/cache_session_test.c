/* SPDX-License-Identifier: MIT */

/* What a front end that shares a store among sessions gets from a kiln. */

#include <unistd.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

struct place {
	char *directory;
	char url[512];
};

static struct place place(void)
{
	struct place place = { .directory = harness_directory() };

	snprintf(place.url, sizeof(place.url), "log:%s#session",
		 place.directory);
	return place;
}

static enum kiln_status open_session(const struct place *place,
				     uint64_t user_version, uint64_t quota,
				     struct kiln **out_kiln)
{
	struct kiln_options options = defaults();

	options.store_url = place->url;
	options.store_bytes_max = 0;
	options.flags = KILN_OPEN_SESSION | KILN_OPEN_REFUSE_FULL;
	options.user_version = user_version;
	options.store_quota_bytes = quota;
	options.memory_order = KILN_MEMORY_INSERTION;
	options.memory_bytes_max = 32768;
	options.memory_entries_max = 128;
	return kiln_open(&options, out_kiln);
}

/* The raw bytes of a D3D12 key are one field. */
static struct kiln_key *raw_key(struct kiln_key_room *room, const void *data,
				size_t size)
{
	struct kiln_key *key = kiln_key_in(room);

	kiln_key_add(key, "key", data, size);
	if (kiln_key_finish(key))
		abort();
	return key;
}

static enum kiln_status store(struct kiln *kiln, unsigned number, size_t size)
{
	static const char value[1 << 17];
	struct kiln_key_room room;
	struct kiln_key *key = raw_key(&room, &number, sizeof(number));
	enum kiln_status status = kiln_put(kiln, key, value, size, NULL, 0);

	kiln_key_free(key);
	return status;
}

static enum kiln_status find(struct kiln *kiln, unsigned number, size_t size)
{
	struct kiln_key_room room;
	struct kiln_key *key = raw_key(&room, &number, sizeof(number));
	struct kiln_blob *blob;
	enum kiln_status status = kiln_get(kiln, key, &blob);

	kiln_key_free(key);
	if (status)
		return status;
	if (kiln_blob_size(blob) != size)
		status = KILN_E_FORMAT;
	kiln_blob_unref(blob);
	return status;
}

static void another_version_makes_opening_fail(void **state)
{
	struct place here = place();
	struct kiln *kiln, *other = NULL;

	assert_int_equal(open_session(&here, 0, 0, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	assert_int_equal(open_session(&here, UINT64_MAX, 0, &other),
			 KILN_EXISTS);
	assert_null(other);
	assert_int_equal(open_session(&here, 0, 0, &other), KILN_OK);
	kiln_close(other);
	kiln_close(kiln);
	assert_int_equal(open_session(&here, UINT64_MAX, 0, &kiln), KILN_OK);
	kiln_close(kiln);
	free(here.directory);
}

static void the_last_to_close_removes_it(void **state)
{
	struct place here = place();
	char *index = harness_path(here.directory, "session.idx");
	struct kiln *kiln, *other;

	assert_int_equal(open_session(&here, 1, 0, &kiln), KILN_OK);
	assert_int_equal(open_session(&here, 1, 0, &other), KILN_OK);
	assert_int_equal(store(kiln, 1, 100), KILN_OK);
	assert_int_equal(kiln_remove_at_close(kiln), KILN_OK);
	kiln_close(kiln);
	assert_int_equal(find(other, 1, 100), KILN_OK);
	assert_int_equal(access(index, F_OK), 0);
	kiln_close(other);
	assert_int_not_equal(access(index, F_OK), 0);
	assert_int_equal(open_session(&here, 1, 0, &kiln), KILN_OK);
	assert_int_equal(find(kiln, 1, 100), KILN_MISS);
	kiln_close(kiln);

	kiln = open_with(defaults(), NULL, NULL);
	assert_int_equal(kiln_remove_at_close(kiln), KILN_E_UNSUPPORTED);
	kiln_close(kiln);
	free(index);
	free(here.directory);
}

/* Raw keys and values come to the quota exactly; what is refused is nowhere. */
static void what_does_not_fit_is_not_in_memory_either(void **state)
{
	struct place here = place();
	struct kiln *kiln;

	assert_int_equal(open_session(&here, 1, 2 * (4 + 100), &kiln), KILN_OK);
	assert_int_equal(store(kiln, 1, 100), KILN_OK);
	assert_int_equal(store(kiln, 2, 101), KILN_E_FULL);
	assert_int_equal(find(kiln, 2, 101), KILN_MISS);
	assert_int_equal(store(kiln, 2, 100), KILN_OK);
	assert_int_equal(store(kiln, 3, 0), KILN_E_FULL);
	assert_int_equal(store(kiln, 1, 100), KILN_EXISTS);
	assert_int_equal(find(kiln, 1, 100), KILN_OK);
	kiln_close(kiln);
	free(here.directory);
}

/* S02: two keys, one digest. */
static void a_collision_is_told(void **state)
{
	struct place here = place();
	struct kiln *kiln;
	struct kiln_key_room rooms[2];
	struct kiln_key *one = raw_key(&rooms[0], "one", 3);
	struct kiln_key *two = raw_key(&rooms[1], "two", 3);
	struct kiln_blob *blob;
	struct kiln_build_result result;
	struct work work = { .kind = KILN_BUILD_OK, .text = "two" };

	kiln_key_force_digest(two, kiln_key_digest(one));
	assert_int_equal(open_session(&here, 1, 0, &kiln), KILN_OK);
	assert_int_equal(kiln_get(kiln, two, &blob), KILN_MISS);
	assert_int_equal(kiln_put(kiln, one, "one", 4, NULL, 0), KILN_OK);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kiln_get(kiln, two, &blob), KILN_E_COLLISION);
		assert_int_equal(kiln_put(kiln, two, "two", 4, NULL, 0),
				 KILN_E_COLLISION);
		assert_int_equal(kiln_get(kiln, one, &blob), KILN_OK);
		assert_string_equal(kiln_blob_data(blob), "one");
		kiln_blob_unref(blob);
	}
	assert_true(counter(kiln, KILN_COUNT_COLLISIONS) >= 3);
	/* To the one call it is a miss. */
	kiln_build_result_init(&result);
	assert_int_equal(
		kiln_get_or_build(kiln, two, build_text, &work, &result),
		KILN_OK);
	assert_int_equal(work.n_builds, 1);
	kiln_build_result_fini(&result);
	kiln_close(kiln);
	kiln_key_free(one);
	kiln_key_free(two);
	free(here.directory);
}

/* Without a store: 20 KiB twice in 32, then 40. */
static void in_memory_the_oldest_goes_and_the_last_stays(void **state)
{
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.memory_order = KILN_MEMORY_INSERTION;
	options.memory_bytes_max = 32768;
	options.memory_entries_max = 3;
	kiln = open_with(options, NULL, NULL);
	assert_int_equal(store(kiln, 1, 20480), KILN_OK);
	assert_int_equal(store(kiln, 2, 20480), KILN_OK);
	assert_int_equal(find(kiln, 1, 20480), KILN_MISS);
	assert_int_equal(find(kiln, 2, 20480), KILN_OK);
	assert_int_equal(store(kiln, 3, 40960), KILN_OK);
	assert_int_equal(find(kiln, 2, 20480), KILN_MISS);
	assert_int_equal(find(kiln, 3, 40960), KILN_OK);
	for (unsigned i = 4; i < 8; i++)
		assert_int_equal(store(kiln, i, 8), KILN_OK);
	assert_int_equal(find(kiln, 3, 40960), KILN_MISS);
	assert_int_equal(find(kiln, 4, 8), KILN_MISS);
	assert_int_equal(find(kiln, 5, 8), KILN_OK);
	assert_int_equal(store(kiln, 5, 8), KILN_EXISTS);
	/* Not even what was asked for last is spared. */
	assert_int_equal(store(kiln, 8, 8), KILN_OK);
	assert_int_equal(find(kiln, 5, 8), KILN_MISS);
	kiln_close(kiln);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_version_makes_opening_fail),
		cmocka_unit_test(the_last_to_close_removes_it),
		cmocka_unit_test(what_does_not_fit_is_not_in_memory_either),
		cmocka_unit_test(a_collision_is_told),
		cmocka_unit_test(in_memory_the_oldest_goes_and_the_last_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
