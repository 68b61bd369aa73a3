/* SPDX-License-Identifier: MIT */

/* Who goes when, and what goes along. */

#include "harness/harness.h"

#include <time.h>

#include "program/lru.h"
#include "program/program.h"
#include "program/runtime_test.h"

#define SIZE 10000

struct bound {
	struct rt rt;
	struct kiln_programs *programs;
	struct kiln_program_key *keys[5];
	struct kiln_kernel_key *kernel_keys[5];
	struct ask asks[5];
};

static void bound_open(struct bound *bound, uint64_t bytes_max)
{
	struct kiln_programs_options options = rt_options();

	rt_init(&bound->rt);
	bound->rt.pad = SIZE;
	options.bytes_max = bytes_max;
	bound->programs = rt_programs(&bound->rt, options);
	for (unsigned i = 0; i < 5; i++) {
		ask_init(&bound->asks[i], &bound->rt, i, 0);
		bound->keys[i] = ask_key(bound->programs, &bound->asks[i]);
		bound->kernel_keys[i] =
			ask_kernel(bound->keys[i], &bound->rt.devices[0], "k");
	}
}

static void bound_close(struct bound *bound)
{
	for (unsigned i = 0; i < 5; i++) {
		kiln_kernel_key_free(bound->kernel_keys[i]);
		kiln_program_key_free(bound->keys[i]);
	}
	rt_free(&bound->rt, bound->programs);
	assert_true(rt_is_clean(&bound->rt));
}

/* Uses are told apart by the tick. */
static void next_tick(void)
{
	uint64_t now = ki_lru_now();

	while (ki_lru_now() <= now + 1)
		;
}

static void use_program(struct bound *bound, unsigned i)
{
	struct kiln_program *program;

	next_tick();
	assert_int_equal(kiln_program_get(bound->programs, bound->keys[i],
					  &program, NULL),
			 KILN_OK);
	kiln_program_unref(program);
}

static void use_kernel(struct bound *bound, unsigned i)
{
	struct kiln_kernel *kernel;

	next_tick();
	assert_int_equal(kiln_kernel_get(bound->programs, bound->kernel_keys[i],
					 &kernel, NULL),
			 KILN_OK);
	kiln_kernel_unref(kernel);
}

/* "0123": those that are kept, without using them. */
static const char *kept(struct bound *bound, char out[6])
{
	size_t n = 0;

	for (unsigned i = 0; i < 5; i++) {
		struct kiln_blob *blob;

		if (ki_memory_get(bound->programs->memory, bound->keys[i]->key,
				  &blob))
			continue;
		kiln_blob_unref(blob);
		out[n++] = (char)('0' + i);
	}
	out[n] = '\0';
	return out;
}

/*
 * TestBasicEvictionAndLRU.  A script of uses ("p0": program, "k0": its kernel),
 * room for two or three programs, and who is left.
 */
static void the_least_recently_used_program_goes(void **state)
{
	static const struct {
		uint64_t bytes_max;
		const char *script, *left;
	} rows[] = {
		{ 2 * SIZE + 5, "p0 p1 p2", "12" },
		{ 2 * SIZE + 5, "p0 p1 p0 p2", "02" },
		{ 2 * SIZE + 5, "k0 k1 k2", "12" },
		/* In the original fast hits do not count: the hot kernel would
		   be the first to go. */
		{ 2 * SIZE + 5, "k0 k1 k0 k2", "02" },
		{ 2 * SIZE + 5, "k0 p1 k0 k0 k0 p2", "02" },
		{ 3 * SIZE, "p0 p1 p2 p1 p0 p3", "013" },
		{ 3 * SIZE, "p0 p1 p2 p0 p1 p2 p3 p4", "234" },
		{ 3 * SIZE, "p0 p1 p2 k0 k1 k2 k0 p3", "023" },
		{ 3 * SIZE, "k0 k1 k2 k1 p3 k1 p4", "134" },
		{ 2 * SIZE - 1, "p0 p1", "1" },
		{ SIZE, "p0 p1 p2", "2" },
		{ SIZE - 1, "p0 p1 p2", "" },
		{ 0, "p0 p1 p2 p3 p4", "01234" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_programs_stats stats;
		struct bound bound;
		char left[6];

		bound_open(&bound, rows[i].bytes_max);
		for (const char *c = rows[i].script; *c; c += c[2] ? 3 : 2)
			(*c == 'p' ? use_program : use_kernel)(
				&bound, (unsigned)(c[1] - '0'));
		assert_string_equal(kept(&bound, left), rows[i].left);
		stats = rt_stats(bound.programs);
		assert_int_equal(stats.n_programs, strlen(left));
		assert_int_equal(stats.bytes,
				 rows[i].bytes_max ? SIZE * strlen(left) : 0);
		assert_int_equal(atomic_load(&bound.rt.live_programs),
				 strlen(left));
		bound_close(&bound);
	}
}

static void an_evicted_program_takes_its_kernels_along(void **state)
{
	struct bound bound;

	bound_open(&bound, 2 * SIZE);
	use_kernel(&bound, 0);
	use_kernel(&bound, 1);
	assert_int_equal(rt_stats(bound.programs).n_kernels, 2);
	use_program(&bound, 2);
	assert_int_equal(rt_stats(bound.programs).n_kernels, 1);
	assert_int_equal(rt_stats(bound.programs).evicted, 1);
	assert_int_equal(atomic_load(&bound.rt.live_kernels), 1);
	assert_int_equal(atomic_load(&bound.rt.live_programs), 2);
	bound_close(&bound);
}

/* The keys that the original adds for some of the devices keep it alive. */
static void nothing_keeps_an_evicted_program(void **state)
{
	struct bound bound;
	struct ask ask;

	bound_open(&bound, 3 * SIZE);
	ask_init(&ask, &bound.rt, 7, 0);
	ask.devices[1] = &bound.rt.devices[1];
	ask.request.n_devices = 2;
	assert_int_equal(rt_get(bound.programs, &ask), KILN_OK);
	ask.request.n_devices = 1;
	assert_int_equal(rt_get(bound.programs, &ask), KILN_OK);
	assert_int_equal(rt_calls(&bound.rt, RT_BUILD), 1);
	use_program(&bound, 0);
	use_program(&bound, 1);
	assert_int_equal(atomic_load(&bound.rt.live_programs), 2);
	assert_int_equal(rt_get(bound.programs, &ask), KILN_OK);
	assert_int_equal(rt_calls(&bound.rt, RT_BUILD), 4);
	bound_close(&bound);
}

static void what_is_in_use_lives_on(void **state)
{
	struct kiln_kernel *kernel;
	struct bound bound;

	bound_open(&bound, SIZE);
	assert_int_equal(kiln_kernel_get(bound.programs, bound.kernel_keys[0],
					 &kernel, NULL),
			 KILN_OK);
	use_program(&bound, 1);
	assert_int_equal(rt_stats(bound.programs).n_programs, 1);
	assert_int_equal(atomic_load(&bound.rt.live_programs), 2);
	assert_true(ask_is_right(&bound.rt, &bound.asks[0],
				 kiln_kernel_program(kernel), "", ""));
	kiln_kernel_unref(kernel);
	assert_int_equal(atomic_load(&bound.rt.live_programs), 1);
	bound_close(&bound);
}

/* What has no size is not kept for nothing, and what has too much is not kept. */
static size_t size_that_wraps(void *context, void *program, void *device)
{
	struct rt *rt = context;

	return device == &rt->devices[0] ? SIZE_MAX : 2;
}

static void a_bound_holds_whatever_the_runtime_says(void **state)
{
	for (int wraps = 0; wraps < 2; wraps++) {
		struct kiln_programs_options options = rt_options();
		struct kiln_programs *programs;
		struct rt rt;

		rt_init(&rt);
		rt.has_no_binary = 1;
		if (wraps)
			rt.table.binary_size = size_that_wraps;
		options.bytes_max = SIZE;
		programs = rt_programs(&rt, options);
		for (unsigned i = 0; i < 200; i++) {
			struct ask ask;

			ask_init(&ask, &rt, i, 0);
			ask.devices[1] = &rt.devices[1];
			ask.request.n_devices = 2;
			assert_int_equal(rt_get(programs, &ask), KILN_OK);
		}
		assert_in_range(rt_stats(programs).n_programs, wraps ? 0 : 1,
				wraps ? 0 : 100);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

static size_t size_that_is_counted(void *context, void *program, void *device)
{
	struct rt *rt = context;

	rt->n_sizes++;
	return 1;
}

/* A driver may have to finish all kernels to tell how large a binary is. */
static void sizes_are_asked_only_for_a_bound(void **state)
{
	for (uint64_t bytes_max = 0; bytes_max < 3; bytes_max++) {
		struct kiln_programs_options options = rt_options();
		struct kiln_programs *programs;
		struct ask ask;
		struct rt rt;

		rt_init(&rt);
		rt.table.binary_size = size_that_is_counted;
		options.bytes_max = bytes_max;
		programs = rt_programs(&rt, options);
		ask_init(&ask, &rt, 1, 0);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		ask.image.origin = KILN_PROGRAM_INTEROP;
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		assert_int_equal(rt.n_sizes, bytes_max ? 1 : 0);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

/* ---- Failures -------------------------------------------------------------- */

#define FAILURES (KI_PROGRAM_FAILURES_MAX + 100)

static void fail_all(struct kiln_programs *programs, struct rt *rt,
		     const struct kiln_program_key *kernels_of)
{
	for (unsigned i = 0; i < FAILURES; i++) {
		struct kiln_kernel_key *key;
		struct kiln_kernel *kernel;
		struct ask ask;
		char name[16];

		if (!kernels_of) {
			ask_init(&ask, rt, i, 0);
			assert_int_equal(rt_get(programs, &ask), KILN_E_BUILD);
			continue;
		}
		snprintf(name, sizeof(name), "k%u", i);
		key = ask_kernel(kernels_of, &rt->devices[0], name);
		assert_int_equal(kiln_kernel_get(programs, key, &kernel, NULL),
				 KILN_E_BUILD);
		kiln_kernel_key_free(key);
	}
}

/* All failures are kept, as all programs are; where these have a bound, so have
   they (S48). */
static void failures_are_kept_as_long_as_there_is_no_bound(void **state)
{
	static const struct {
		enum rt_call call;
		uint64_t bytes_max;
	} rows[] = {
		{ RT_BUILD, 0 },
		{ RT_BUILD, SIZE },
		{ RT_KERNEL, 0 },
		{ RT_KERNEL, SIZE },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_programs_options options = rt_options();
		int is_kernel = rows[i].call == RT_KERNEL;
		struct kiln_programs *programs;
		struct kiln_program_key *key;
		struct ask ask;
		struct rt rt;
		unsigned n;

		rt_init(&rt);
		rt.plan = (struct rt_plan){ rows[i].call, 0, UINT32_MAX,
					    KILN_BUILD_FAILED };
		options.bytes_max = rows[i].bytes_max;
		programs = rt_programs(&rt, options);
		ask_init(&ask, &rt, 1, 0);
		key = ask_key(programs, &ask);
		for (int twice = 0; twice < 2; twice++)
			fail_all(programs, &rt, is_kernel ? key : NULL);
		n = rt_calls(&rt, rows[i].call);
		assert_int_equal(n,
				 rows[i].bytes_max ? 2 * FAILURES : FAILURES);
		assert_int_equal(programs->n_failed,
				 rows[i].bytes_max ? KI_PROGRAM_FAILURES_MAX
						   : FAILURES);
		assert_int_equal(kiln_programs_wipe(programs), KILN_OK);
		assert_int_equal(programs->n_failed, 0);
		assert_int_equal(programs->failed_bytes, 0);
		kiln_program_key_free(key);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

/* ---- The queue ------------------------------------------------------------- */

/* Against the plainest way: the lowest stamp of all. */
static void the_queue_is_exact(void **state)
{
	static struct ki_lru_item items[300];
	/* Not the clock's, so that all differ; and it never goes back. */
	uint64_t later = ki_lru_now() << 1, seed = 7;
	struct ki_lru lru;

	ki_lru_init(&lru);
	memset(items, 0, sizeof(items));
	for (size_t i = 0; i < 300; i++) {
		assert_int_equal(ki_lru_add(&lru, &items[i]), 0);
		atomic_store(&items[i].stamp, later + i);
	}
	for (unsigned step = 0; step < 5000; step++) {
		size_t i = harness_random(&seed) % 300;
		struct ki_lru_item *first = ki_lru_first(&lru), *right = NULL;

		for (size_t k = 0; k < 300; k++)
			if (items[k].place &&
			    (!right || atomic_load(&items[k].stamp) <
					       atomic_load(&right->stamp)))
				right = &items[k];
		assert_ptr_equal(first, right);
		if (step % 50 == 49)
			ki_lru_remove(&lru, &items[i]);
		else if (step % 50 == 25 && first)
			ki_lru_remove(&lru, first);
		else
			atomic_store(&items[i].stamp, later + 300 + step);
	}
	while (ki_lru_first(&lru))
		ki_lru_remove(&lru, ki_lru_first(&lru));
	assert_int_equal(lru.n, 0);
	ki_lru_fini(&lru);
}

static uint64_t stamp_of(const struct ki_lru_item *item)
{
	return atomic_load(&item->stamp);
}

/* A use is marked, among many items only if something was added since. */
static void uses_among_many_are_mostly_not_written(void **state)
{
	static struct ki_lru_item items[KI_LRU_MANY + 2];
	uint64_t stamp, start;
	struct ki_lru lru;

	ki_lru_init(&lru);
	memset(items, 0, sizeof(items));
	for (size_t i = 0; i < KI_LRU_MANY - 1; i++)
		assert_int_equal(ki_lru_add(&lru, &items[i]), 0);
	for (int i = 0; i < 3; i++) {
		stamp = stamp_of(&items[0]);
		next_tick();
		ki_lru_touch(&lru, &items[0]);
		assert_true(stamp_of(&items[0]) > stamp);
	}
	for (size_t i = KI_LRU_MANY - 1; i < KI_LRU_MANY + 2; i++) {
		assert_int_equal(ki_lru_add(&lru, &items[i]), 0);
		stamp = stamp_of(&items[0]);
		next_tick();
		ki_lru_touch(&lru, &items[0]);
		assert_true(stamp_of(&items[0]) > stamp);
	}
	start = stamp = stamp_of(&items[0]);
	next_tick();
	while (stamp_of(&items[0]) == stamp)
		ki_lru_touch(&lru, &items[0]);
	assert_true(stamp_of(&items[0]) > start + KI_LRU_WINDOW);
	while (ki_lru_first(&lru))
		ki_lru_remove(&lru, ki_lru_first(&lru));
	ki_lru_fini(&lru);
}

/* A kernel lacks resources, and its program is the coldest: others go. */
static void the_cold_half_is_half_beside_what_is_spared(void **state)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_program_key *keys[5];
	struct kiln_programs *programs;
	struct kiln_program *coldest;
	struct rt rt;

	rt_init(&rt);
	options.flags = KILN_PROGRAMS_COLD_HALF;
	programs = rt_programs(&rt, options);
	for (unsigned i = 0; i < 5; i++) {
		struct kiln_program *program;
		struct ask ask;

		ask_init(&ask, &rt, i, 0);
		keys[i] = ask_key(programs, &ask);
		assert_int_equal(
			kiln_program_get(programs, keys[i], &program, NULL),
			KILN_OK);
		if (!i)
			coldest = program;
		else
			kiln_program_unref(program);
	}
	/* No use is marked: it stays the first. */
	programs->lru.window = UINT64_MAX / 2;
	programs->lru.added = 0;
	ki_registry_drop(programs, KI_DROP_COLD_HALF, coldest);
	assert_true(atomic_load(&coldest->is_kept));
	assert_int_equal(rt_stats(programs).n_programs, 2);
	kiln_program_unref(coldest);
	for (unsigned i = 0; i < 5; i++)
		kiln_program_key_free(keys[i]);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* ---- What it costs --------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void use_kernel_of(struct kiln_programs *programs, struct rt *rt,
			  unsigned image)
{
	struct kiln_kernel_key *kernel_key;
	struct kiln_program_key *key;
	struct kiln_kernel *kernel;
	struct ask ask;

	ask_init(&ask, rt, image, 0);
	key = ask_key(programs, &ask);
	kernel_key = ask_kernel(key, &rt->devices[0], "main");
	assert_int_equal(kiln_kernel_get(programs, kernel_key, &kernel, NULL),
			 KILN_OK);
	kiln_kernel_unref(kernel);
	kiln_kernel_key_free(kernel_key);
	kiln_program_key_free(key);
}

/* ns for each insertion that evicts, with so many kept; all programs have a
   kernel of one name. */
static double cost_of_eviction(unsigned n_kept, unsigned n_more)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_programs *programs;
	struct rt rt;
	uint64_t start;
	double cost;

	rt_init(&rt);
	rt.pad = 100;
	options.bytes_max = (uint64_t)n_kept * 100;
	programs = rt_programs(&rt, options);
	rt.probe = NULL;
	for (unsigned i = 0; i < n_kept; i++)
		use_kernel_of(programs, &rt, i);
	start = cpu_ns();
	for (unsigned i = n_kept; i < n_kept + n_more; i++)
		use_kernel_of(programs, &rt, i);
	cost = (double)(cpu_ns() - start) / n_more;
	assert_int_equal(rt_stats(programs).n_programs, n_kept);
	assert_int_equal(rt_stats(programs).n_kernels, n_kept);
	assert_int_equal(rt_stats(programs).evicted, n_more);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
	return cost;
}

/* The bench measures it; here only that it is not another order of growth. */
static void eviction_costs_the_same_among_many(void **state)
{
	double few = cost_of_eviction(100, 2000);
	double many = cost_of_eviction(20000, 2000);

	print_message("# %.0f ns with 100, %.0f ns with 20000\n", few, many);
	assert_true(many < 5 * few);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_recently_used_program_goes),
		cmocka_unit_test(an_evicted_program_takes_its_kernels_along),
		cmocka_unit_test(nothing_keeps_an_evicted_program),
		cmocka_unit_test(what_is_in_use_lives_on),
		cmocka_unit_test(a_bound_holds_whatever_the_runtime_says),
		cmocka_unit_test(sizes_are_asked_only_for_a_bound),
		cmocka_unit_test(
			failures_are_kept_as_long_as_there_is_no_bound),
		cmocka_unit_test(the_queue_is_exact),
		cmocka_unit_test(uses_among_many_are_mostly_not_written),
		cmocka_unit_test(the_cold_half_is_half_beside_what_is_spared),
		cmocka_unit_test(eviction_costs_the_same_among_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
