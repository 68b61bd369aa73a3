/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "shard.h"

#define N_NAMES	 20000
#define N_SHARDS 16

static void name_of(unsigned number, uint8_t out[KI_REMOTE_NAME_BYTES])
{
	ki_blake2b(&number, sizeof(number), out);
}

static void make_hashes(uint64_t *hashes, unsigned n)
{
	char url[64];

	for (unsigned i = 0; i < n; i++) {
		snprintf(url, sizeof(url), "redis://cache%u.example", i);
		hashes[i] = shard_hash(url);
	}
}

/* 1250 names each on average: five standard deviations are 177. */
static void each_server_has_its_share(void **state)
{
	unsigned counts[N_SHARDS] = { 0 };
	uint8_t name[KI_REMOTE_NAME_BYTES];
	uint64_t hashes[N_SHARDS];

	make_hashes(hashes, N_SHARDS);
	for (unsigned i = 0; i < N_NAMES; i++) {
		name_of(i, name);
		counts[shard_of(name, hashes, N_SHARDS)]++;
	}
	for (unsigned i = 0; i < N_SHARDS; i++)
		assert_in_range(counts[i], N_NAMES / N_SHARDS - 177,
				N_NAMES / N_SHARDS + 177);
}

static void a_server_more_takes_names_and_moves_no_other(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	uint64_t hashes[N_SHARDS];
	unsigned n_moved = 0;

	make_hashes(hashes, N_SHARDS);
	for (unsigned i = 0; i < N_NAMES; i++) {
		size_t before, after;

		name_of(i, name);
		before = shard_of(name, hashes, N_SHARDS - 1);
		after = shard_of(name, hashes, N_SHARDS);
		n_moved += before != after;
		assert_true(before == after || after == N_SHARDS - 1);
	}
	assert_in_range(n_moved, N_NAMES / N_SHARDS - 177,
			N_NAMES / N_SHARDS + 177);
}

static void the_order_of_the_servers_does_not_count(void **state)
{
	uint64_t hashes[N_SHARDS], turned[N_SHARDS];
	uint8_t name[KI_REMOTE_NAME_BYTES];

	make_hashes(hashes, N_SHARDS);
	for (unsigned i = 0; i < N_SHARDS; i++)
		turned[i] = hashes[(i + 5) % N_SHARDS];
	for (unsigned i = 0; i < 1000; i++) {
		name_of(i, name);
		assert_true(hashes[shard_of(name, hashes, N_SHARDS)] ==
			    turned[shard_of(name, turned, N_SHARDS)]);
	}
}

static void one_server_has_everything(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES] = { 0 };
	uint64_t hash = 0;

	assert_int_equal(shard_of(name, &hash, 1), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_server_has_its_share),
		cmocka_unit_test(a_server_more_takes_names_and_moves_no_other),
		cmocka_unit_test(the_order_of_the_servers_does_not_count),
		cmocka_unit_test(one_server_has_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
