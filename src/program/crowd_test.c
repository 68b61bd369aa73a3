/* SPDX-License-Identifier: MIT */

/* S48: a million keys, and keys that flap between two devices, in bounded
   memory. */

#include "harness/harness.h"

#include <unistd.h>

#include "program/program.h"
#include "program/runtime_test.h"

#define MILLION 1000000
#define WARM	50000
#define KEPT	1000

static uint64_t resident_bytes(void)
{
	unsigned long all, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	int n = file ? fscanf(file, "%lu %lu", &all, &resident) : 0;

	if (file)
		fclose(file);
	assert_int_equal(n, 2);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void use(struct kiln_programs *programs, const struct ask *ask)
{
	struct kiln_program_key *key = ask_key(programs, ask);
	struct kiln_kernel_key *kernel_key =
		ask_kernel(key, ask->devices[0], ask->text);
	struct kiln_kernel *kernel;

	assert_int_equal(kiln_kernel_get(programs, kernel_key, &kernel, NULL),
			 KILN_OK);
	kiln_kernel_unref(kernel);
	kiln_kernel_key_free(kernel_key);
	kiln_program_key_free(key);
}

static void a_million_programs_take_bounded_memory(void **state)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_programs *programs;
	uint64_t warm = 0;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	rt.pad = 100;
	options.bytes_max = KEPT * 100;
	programs = rt_programs(&rt, options);
	rt.probe = NULL;
	for (unsigned i = 0; i < MILLION; i++) {
		ask_init(&ask, &rt, i, i & 1);
		use(programs, &ask);
		if (i == WARM)
			warm = resident_bytes();
		harness_progress("programs", i, MILLION);
	}
	harness_progress_end();
	assert_in_range(resident_bytes(), 1, warm + (4 << 20));
	assert_int_equal(rt_stats(programs).n_programs, KEPT);
	assert_int_equal(rt_stats(programs).n_kernels, KEPT);
	assert_int_equal(rt_stats(programs).evicted, MILLION - KEPT);
	assert_int_equal(atomic_load(&rt.live_programs), KEPT);
	assert_int_equal(atomic_load(&rt.live_kernels), KEPT);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* In the original a temporary erases the other device's entry, and a map that
   nobody trims grows by 3 MB a second. */
static void a_kernel_that_flaps_between_devices_takes_nothing(void **state)
{
	struct kiln_programs *programs;
	struct ask asks[2];
	struct rt rt;
	uint64_t warm = 0;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	rt.probe = NULL;
	ask_init(&asks[0], &rt, 1, 0);
	ask_init(&asks[1], &rt, 1, 1);
	for (unsigned i = 0; i < MILLION / 2; i++) {
		use(programs, &asks[i & 1]);
		if (i == WARM)
			warm = resident_bytes();
	}
	assert_in_range(resident_bytes(), 1, warm + (1 << 20));
	assert_int_equal(rt_calls(&rt, RT_BUILD), 2);
	assert_int_equal(rt_calls(&rt, RT_KERNEL), 2);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_million_programs_take_bounded_memory),
		cmocka_unit_test(
			a_kernel_that_flaps_between_devices_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
