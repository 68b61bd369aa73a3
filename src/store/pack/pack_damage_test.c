/* SPDX-License-Identifier: MIT */

/* S13: what is left of a pack after damage. */

#include "store/pack/pack_test.h"

#define N 5

/* A pack in memory, and where its entries are. */
struct scene {
	char *directory;
	char *path;
	struct medium medium;
	struct ki_pack_order order;
	struct ki_pack_root root;
};

static void scene_init(struct scene *scene)
{
	const struct ki_pack_order *order;
	struct kiln_tier *tier = NULL;

	scene->directory = harness_directory();
	scene->path = write_pack(scene->directory, N);
	medium_init(&scene->medium, scene->path);
	assert_int_equal(open_medium(&scene->medium, NULL, &tier), KILN_OK);
	assert_int_equal(ki_pack_order((struct ki_pack *)tier, &order),
			 KILN_OK);
	assert_int_equal(order->n, N);
	scene->root = ((struct ki_pack *)tier)->root;
	scene->order.n = N;
	scene->order.entries = malloc(N * sizeof(*order->entries));
	assert_non_null(scene->order.entries);
	memcpy(scene->order.entries, order->entries,
	       N * sizeof(*order->entries));
	tier->ops->close(tier);
}

static void scene_fini(struct scene *scene)
{
	free(scene->order.entries);
	medium_fini(&scene->medium);
	harness_remove(scene->directory);
	free(scene->path);
	free(scene->directory);
}

/* The entry in which a byte lies, or N. */
static unsigned entry_at(const struct scene *scene, uint64_t place)
{
	unsigned n;

	for (n = 0; n < N; n++)
		if (place >= scene->order.entries[n].offset &&
		    place < scene->order.entries[n].offset +
				    scene->order.entries[n].size)
			break;
	return n;
}

static uint64_t n_damaged(struct kiln_tier *tier)
{
	struct kiln_verify_report report;

	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	return report.n_damaged;
}

/* Whether a byte is one of those that nothing is said about: between entries, and
   before the index. */
static int is_between(const struct scene *scene, uint64_t place)
{
	return place >= KI_PACK_ROOT_BYTES &&
	       place < scene->root.index_offset[0] &&
	       entry_at(scene, place) == N;
}

static void a_flipped_byte_costs_at_most_its_entry(void **state)
{
	struct scene scene;
	uint8_t *bytes;

	scene_init(&scene);
	bytes = scene.medium.bytes;
	for (size_t i = 0; i < scene.medium.size; i++) {
		unsigned hit = entry_at(&scene, i);
		struct kiln_tier *tier = NULL;

		bytes[i] ^= (uint8_t)(i % 255 + 1);
		assert_int_equal(open_medium(&scene.medium, NULL, &tier),
				 KILN_OK);
		for (unsigned n = 0; n < N; n++)
			assert_int_equal(get(tier, n),
					 n == hit ? KILN_E_FORMAT : KILN_OK);
		assert_int_equal(count_listed(tier), hit == N ? N : N - 1);
		assert_int_equal(n_damaged(tier), !is_between(&scene, i));
		tier->ops->close(tier);
		bytes[i] ^= (uint8_t)(i % 255 + 1);
	}
	scene_fini(&scene);
}

static unsigned n_before(const struct scene *scene, uint64_t end)
{
	unsigned n = 0;

	while (n < N &&
	       scene->order.entries[n].offset + scene->order.entries[n].size <=
		       end)
		n++;
	return n;
}

static void a_pack_cut_short_is_whole_or_refused_and_salvaged(void **state)
{
	const struct kiln_pack_options salvage = {
		.size = sizeof(salvage),
		.flags = KILN_PACK_SALVAGE,
	};
	struct scene scene;
	uint64_t enough;
	size_t whole;

	scene_init(&scene);
	whole = scene.medium.size;
	enough = scene.root.index_offset[0] +
		 ki_pack_index_bytes(scene.root.n_pages);
	for (size_t size = 0; size < whole; size++) {
		struct kiln_tier *tier = NULL;

		scene.medium.size = size;
		if (size >= enough) {
			assert_int_equal(
				open_medium(&scene.medium, NULL, &tier),
				KILN_OK);
			assert_int_equal(count_hits(tier, N), N);
			assert_int_equal(count_listed(tier), N);
			tier->ops->close(tier);
			continue;
		}
		assert_int_equal(open_medium(&scene.medium, NULL, &tier),
				 KILN_E_FORMAT);
		if (size < KI_PACK_ROOT_BYTES)
			continue;
		assert_int_equal(open_medium(&scene.medium, &salvage, &tier),
				 KILN_OK);
		assert_int_equal(count_hits(tier, N), n_before(&scene, size));
		assert_int_equal(count_listed(tier), n_before(&scene, size));
		assert_true(n_damaged(tier) > 0);
		tier->ops->close(tier);
	}
	scene_fini(&scene);
}

static void what_is_added_behind_the_end_does_no_harm(void **state)
{
	static const size_t rows[] = { 1, 7, 1023, 1024, 1025, 4096, 30000 };
	struct scene scene;
	uint8_t *bytes;
	size_t size;
	uint64_t seed = 13;

	scene_init(&scene);
	size = scene.medium.size;
	bytes = calloc(1, size + 30000);
	assert_non_null(bytes);
	memcpy(bytes, scene.medium.bytes, size);
	free(scene.medium.bytes);
	scene.medium.bytes = bytes;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (unsigned kind = 0; kind < 3; kind++) {
			struct kiln_tier *tier = NULL;

			/* Zeros, chance, the pack once more. */
			for (size_t k = 0; k < rows[i]; k++)
				bytes[size + k] =
					kind == 2 ? bytes[k % size]
					: kind == 1
						? (uint8_t)harness_random(&seed)
						: 0;
			scene.medium.size = size + rows[i];
			assert_int_equal(
				open_medium(&scene.medium, NULL, &tier),
				KILN_OK);
			assert_int_equal(count_hits(tier, N), N);
			assert_int_equal(count_listed(tier), N);
			tier->ops->close(tier);
		}
	/* As in `cat a.pack a.pack`. */
	memcpy(bytes + size, bytes, size < 30000 ? size : 30000);
	scene.medium.size = 2 * size;
	if (size <= 30000) {
		struct kiln_tier *tier = NULL;

		assert_int_equal(open_medium(&scene.medium, NULL, &tier),
				 KILN_OK);
		assert_int_equal(count_hits(tier, N), N);
		tier->ops->close(tier);
	}
	scene_fini(&scene);
}

static void what_is_no_pack_is_refused(void **state)
{
	static uint8_t bytes[20000];
	struct medium medium = { .bytes = bytes };
	struct kiln_tier *tier = NULL;
	uint64_t seed = 5;

	atomic_init(&medium.n_until_failure, -1);
	for (unsigned round = 0; round < 2; round++) {
		for (medium.size = 0; medium.size < sizeof(bytes);
		     medium.size += 997)
			assert_int_equal(open_medium(&medium, NULL, &tier),
					 KILN_E_FORMAT);
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)harness_random(&seed);
	}
}

static void entries_behind_a_damaged_one_are_salvaged(void **state)
{
	const struct kiln_pack_options salvage = {
		.size = sizeof(salvage),
		.flags = KILN_PACK_SALVAGE,
	};
	struct scene scene;

	scene_init(&scene);
	scene.medium.size = (size_t)scene.root.index_offset[0];
	/* Once its header, once the value alone. */
	for (unsigned kind = 0; kind < 2; kind++) {
		const struct ki_pack_entry *hit = &scene.order.entries[2];
		uint8_t *byte = scene.medium.bytes + hit->offset +
				(kind ? hit->size - 1 : 3);
		struct kiln_tier *tier = NULL;

		*byte ^= 0xff;
		assert_int_equal(open_medium(&scene.medium, &salvage, &tier),
				 KILN_OK);
		for (unsigned n = 0; n < N; n++)
			assert_int_equal(get(tier, n),
					 n == 2 ? KILN_MISS : KILN_OK);
		assert_int_equal(count_listed(tier), N - 1);
		tier->ops->close(tier);
		*byte ^= 0xff;
	}
	scene_fini(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flipped_byte_costs_at_most_its_entry),
		cmocka_unit_test(
			a_pack_cut_short_is_whole_or_refused_and_salvaged),
		cmocka_unit_test(what_is_added_behind_the_end_does_no_harm),
		cmocka_unit_test(what_is_no_pack_is_refused),
		cmocka_unit_test(entries_behind_a_damaged_one_are_salvaged),
	};

	return cmocka_run_group_tests_name("pack_damage", tests, NULL, NULL);
}
