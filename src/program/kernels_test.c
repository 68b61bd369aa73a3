/* SPDX-License-Identifier: MIT */

/* Kernels: of programs, in the fast map, and by the seed's own key. */

#include "harness/harness.h"

#include "program/program.h"
#include "program/runtime_test.h"

struct shop {
	struct rt rt;
	struct kiln_programs *programs;
	struct ask ask;
	struct kiln_program_key *key;
	struct kiln_kernel_key *kernel_key; /* "k" */
};

static void shop_open(struct shop *shop, struct kiln_programs_options options)
{
	rt_init(&shop->rt);
	shop->programs = rt_programs(&shop->rt, options);
	ask_init(&shop->ask, &shop->rt, 1, 0);
	shop->key = ask_key(shop->programs, &shop->ask);
	shop->kernel_key = ask_kernel(shop->key, &shop->rt.devices[0], "k");
}

static void shop_close(struct shop *shop)
{
	kiln_kernel_key_free(shop->kernel_key);
	kiln_program_key_free(shop->key);
	rt_free(&shop->rt, shop->programs);
	assert_true(rt_is_clean(&shop->rt));
}

static struct kiln_kernel *get_kernel(struct kiln_programs *programs,
				      const struct kiln_kernel_key *key)
{
	struct kiln_kernel *kernel;

	return kiln_kernel_get(programs, key, &kernel, NULL) ? NULL : kernel;
}

/* Get and let go: whether it could be had. */
static int use_kernel(struct kiln_programs *programs,
		      const struct kiln_kernel_key *key)
{
	struct kiln_kernel *kernel = get_kernel(programs, key);

	kiln_kernel_unref(kernel);
	return kernel != NULL;
}

/* ---- Getting --------------------------------------------------------------- */

/* KernelPositive, KernelPositiveBuildOpts: also OutOfResources, "a cached kernel
   makes no call". */
static void a_kernel_is_made_once(void **state)
{
	struct kiln_kernel *first, *second;
	struct kiln_programs_stats stats;
	struct shop shop;
	unsigned calls = 0;

	shop_open(&shop, rt_options());
	first = get_kernel(shop.programs, shop.kernel_key);
	for (int i = 0; i < RT_N_CALLS; i++)
		calls += rt_calls(&shop.rt, (enum rt_call)i);
	second = get_kernel(shop.programs, shop.kernel_key);
	assert_non_null(first);
	assert_ptr_equal(first, second);
	for (int i = 0; i < RT_N_CALLS; i++)
		calls -= rt_calls(&shop.rt, (enum rt_call)i);
	assert_int_equal(calls, 0);
	stats = rt_stats(shop.programs);
	assert_int_equal(stats.n_kernels, 1);
	assert_int_equal(stats.fast_hits, 1);
	kiln_kernel_unref(first);
	kiln_kernel_unref(second);
	shop_close(&shop);
}

static void a_kernel_of_a_program_is_the_same_one(void **state)
{
	struct kiln_kernel *fast, *slow, *other;
	struct kiln_program *program;
	struct shop shop;

	shop_open(&shop, rt_options());
	assert_int_equal(
		kiln_program_get(shop.programs, shop.key, &program, NULL),
		KILN_OK);
	assert_int_equal(kiln_program_kernel(program, "k", &slow, NULL),
			 KILN_OK);
	assert_int_equal(kiln_program_kernel(program, "other", &other, NULL),
			 KILN_OK);
	fast = get_kernel(shop.programs, shop.kernel_key);
	assert_ptr_equal(fast, slow);
	assert_ptr_not_equal(slow, other);
	assert_ptr_equal(kiln_kernel_program(fast), program);
	assert_string_equal(
		((struct rt_kernel *)kiln_kernel_handle(other))->name, "other");
	assert_int_equal(rt_stats(shop.programs).n_kernels, 2);
	assert_int_equal(rt_stats(shop.programs).kernel_hits, 1);
	kiln_kernel_unref(fast);
	kiln_kernel_unref(slow);
	kiln_kernel_unref(other);
	kiln_program_unref(program);
	shop_close(&shop);
}

/* MultipleDevsCache, ProgramRetain: two devices, two entries, everything is
   released once. */
static void kernels_on_two_devices_do_not_push_each_other_out(void **state)
{
	struct kiln_kernel_key *second;
	struct kiln_program_key *key;
	struct kiln_programs *programs;
	struct kiln_kernel_key *first;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	ask.devices[1] = &rt.devices[1];
	ask.request.n_devices = 2;
	key = ask_key(programs, &ask);
	first = ask_kernel(key, &rt.devices[0], "k");
	second = ask_kernel(key, &rt.devices[1], "k");
	/* The original's fast map thrashes here (intel/llvm 23083). */
	for (int i = 0; i < 1000; i++) {
		assert_true(use_kernel(programs, first));
		assert_true(use_kernel(programs, second));
	}
	assert_int_equal(rt_calls(&rt, RT_BUILD), 1);
	assert_int_equal(rt_calls(&rt, RT_KERNEL), 1);
	assert_int_equal(rt_stats(programs).fast_hits, 1998);
	kiln_kernel_key_free(first);
	kiln_kernel_key_free(second);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* ---- Failures -------------------------------------------------------------- */

static void a_kernel_that_is_not_there_is_not_asked_for_twice(void **state)
{
	struct kiln_program_failure failure;
	struct kiln_kernel_key *none;
	struct kiln_kernel *kernel;
	struct shop shop;

	shop_open(&shop, rt_options());
	none = ask_kernel(shop.key, &shop.rt.devices[0], "none such");
	kiln_program_failure_init(&failure);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(
			kiln_kernel_get(shop.programs, none, &kernel, &failure),
			KILN_E_BUILD);
		assert_int_equal(failure.kind, KILN_BUILD_FAILED);
		assert_int_equal(failure.code, -46);
		assert_string_equal(failure.message, "no such kernel");
	}
	assert_int_equal(rt_calls(&shop.rt, RT_KERNEL), 1);
	assert_true(use_kernel(shop.programs, shop.kernel_key));
	/* It goes with the program. */
	assert_int_equal(kiln_programs_wipe(shop.programs), KILN_OK);
	assert_int_equal(kiln_kernel_get(shop.programs, none, &kernel, NULL),
			 KILN_E_BUILD);
	assert_int_equal(rt_calls(&shop.rt, RT_KERNEL), 3);
	kiln_program_failure_fini(&failure);
	kiln_kernel_key_free(none);
	shop_close(&shop);
}

/* The program whose kernel it is stays: it is in use. */
static void short_of_resources_a_kernel_is_tried_again(void **state)
{
	static const struct {
		unsigned n_fails;
		enum kiln_status status;
	} rows[] = { { 1, KILN_OK }, { 2, KILN_E_BUILD } };

	for (size_t i = 0; i < 2; i++) {
		struct kiln_kernel_key *other;
		struct kiln_program_failure failure;
		struct kiln_kernel *kernel;
		struct shop shop;
		struct ask ask;

		shop_open(&shop, rt_options());
		shop.rt.plan = (struct rt_plan){ RT_KERNEL, 1, rows[i].n_fails,
						 KILN_BUILD_RESOURCES };
		ask_init(&ask, &shop.rt, 2, 0);
		assert_int_equal(rt_get(shop.programs, &ask), KILN_OK);
		assert_true(use_kernel(shop.programs, shop.kernel_key));
		other = ask_kernel(shop.key, &shop.rt.devices[0], "other");
		kiln_program_failure_init(&failure);
		assert_int_equal(kiln_kernel_get(shop.programs, other, &kernel,
						 &failure),
				 rows[i].status);
		assert_int_equal(failure.kind, rows[i].status
						       ? KILN_BUILD_RESOURCES
						       : KILN_BUILD_OK);
		if (!rows[i].status)
			kiln_kernel_unref(kernel);
		assert_int_equal(rt_stats(shop.programs).n_programs, 1);
		assert_int_equal(rt_stats(shop.programs).resets, 1);
		assert_int_equal(rt_stats(shop.programs).n_kernels,
				 rows[i].status ? 0 : 1);
		assert_true(use_kernel(shop.programs, shop.kernel_key));
		assert_int_equal(rt_calls(&shop.rt, RT_BUILD), 2);
		kiln_program_failure_fini(&failure);
		kiln_kernel_key_free(other);
		shop_close(&shop);
	}
}

/* ---- The seed's own key ---------------------------------------------------- */

static enum kiln_status find(struct shop *shop, const char *constants,
			     unsigned device, const char *name,
			     const struct kiln_kernel *right)
{
	struct kiln_kernel *kernel;
	enum kiln_status status = kiln_kernel_find(
		shop->programs, constants, constants ? strlen(constants) : 0,
		&shop->rt.devices[device], name, &kernel);

	if (!status) {
		if (kernel != right)
			status = KILN_E_INVALID;
		kiln_kernel_unref(kernel);
	}
	return status;
}

static void constants_device_and_name_find_a_kernel(void **state)
{
	struct kiln_kernel *kernel;
	struct shop shop;

	shop_open(&shop, rt_options());
	assert_int_equal(find(&shop, NULL, 0, "k", NULL), KILN_MISS);
	kernel = get_kernel(shop.programs, shop.kernel_key);
	assert_int_equal(find(&shop, NULL, 0, "k", kernel), KILN_OK);
	assert_int_equal(find(&shop, "x", 0, "k", kernel), KILN_MISS);
	assert_int_equal(find(&shop, NULL, 1, "k", kernel), KILN_MISS);
	assert_int_equal(find(&shop, NULL, 0, "l", kernel), KILN_MISS);
	kiln_kernel_unref(kernel);
	assert_int_equal(kiln_programs_wipe(shop.programs), KILN_OK);
	assert_int_equal(find(&shop, NULL, 0, "k", NULL), KILN_MISS);
	shop_close(&shop);
}

/* Two images may have kernels of one name: the original's key says nothing of
   it. */
static void what_two_programs_have_is_not_guessed(void **state)
{
	struct kiln_program_key *other_key;
	struct kiln_kernel_key *other;
	struct kiln_kernel *kernel, *second;
	struct shop shop;
	struct ask ask;

	shop_open(&shop, rt_options());
	ask_init(&ask, &shop.rt, 2, 0);
	other_key = ask_key(shop.programs, &ask);
	other = ask_kernel(other_key, &shop.rt.devices[0], "k");
	kernel = get_kernel(shop.programs, shop.kernel_key);
	second = get_kernel(shop.programs, other);
	assert_ptr_not_equal(kernel, second);
	assert_int_equal(find(&shop, NULL, 0, "k", NULL), KILN_MISS);
	/* And one of them again. */
	assert_int_equal(kiln_programs_forget_image(shop.programs, &ask.image),
			 KILN_OK);
	assert_int_equal(find(&shop, NULL, 0, "k", kernel), KILN_OK);
	kiln_kernel_unref(kernel);
	kiln_kernel_unref(second);
	kiln_kernel_key_free(other);
	kiln_program_key_free(other_key);
	shop_close(&shop);
}

/* A program for several devices gives one kernel by several keys: that is one. */
static void a_kernel_that_several_keys_gave_is_found(void **state)
{
	struct kiln_program_key *wide_key;
	struct kiln_kernel_key *wide;
	struct kiln_kernel *kernel;
	struct shop shop;
	struct ask ask;

	shop_open(&shop, rt_options());
	ask_init(&ask, &shop.rt, 1, 0);
	ask.devices[1] = &shop.rt.devices[1];
	ask.request.n_devices = 2;
	wide_key = ask_key(shop.programs, &ask);
	wide = ask_kernel(wide_key, &shop.rt.devices[0], "k");
	kernel = get_kernel(shop.programs, wide);
	assert_int_equal(find(&shop, NULL, 0, "k", kernel), KILN_OK);
	assert_true(use_kernel(shop.programs, shop.kernel_key));
	assert_int_equal(rt_calls(&shop.rt, RT_KERNEL), 1);
	assert_int_equal(find(&shop, NULL, 0, "k", kernel), KILN_OK);
	kiln_kernel_unref(kernel);
	assert_int_equal(kiln_programs_wipe(shop.programs), KILN_OK);
	assert_int_equal(find(&shop, NULL, 0, "k", NULL), KILN_MISS);
	kiln_kernel_key_free(wide);
	kiln_program_key_free(wide_key);
	shop_close(&shop);
}

/* ---- Without much of a slot ------------------------------------------------ */

/* More caches than a thread's slot has columns for: all count all the same. */
static void hits_are_counted_in_any_number_of_caches(void **state)
{
	struct shop shops[KI_SLOT_OWNERS + 2];
	const size_t n = sizeof(shops) / sizeof(shops[0]);

	for (size_t i = 0; i < n; i++)
		shop_open(&shops[i], rt_options());
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < 10; k++)
			assert_true(use_kernel(shops[i].programs,
					       shops[i].kernel_key));
		assert_int_equal(rt_get(shops[i].programs, &shops[i].ask),
				 KILN_OK);
		assert_int_equal(rt_stats(shops[i].programs).fast_hits, 9);
		assert_int_equal(rt_stats(shops[i].programs).program_hits, 1);
	}
	for (size_t i = 0; i < n; i++)
		shop_close(&shops[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kernel_is_made_once),
		cmocka_unit_test(a_kernel_of_a_program_is_the_same_one),
		cmocka_unit_test(
			kernels_on_two_devices_do_not_push_each_other_out),
		cmocka_unit_test(
			a_kernel_that_is_not_there_is_not_asked_for_twice),
		cmocka_unit_test(short_of_resources_a_kernel_is_tried_again),
		cmocka_unit_test(constants_device_and_name_find_a_kernel),
		cmocka_unit_test(what_two_programs_have_is_not_guessed),
		cmocka_unit_test(a_kernel_that_several_keys_gave_is_found),
		cmocka_unit_test(hits_are_counted_in_any_number_of_caches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
