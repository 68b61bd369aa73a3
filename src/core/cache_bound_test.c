/* SPDX-License-Identifier: MIT */

/*
 * S48: what passes through the memory tier does not stay in the process.  Keys,
 * entries, values, flights and garbage of 10^6 kernels go through a tier of some
 * MiB; the process grows by the bound and a little, once.
 */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#define BOUND	    ((uint64_t)8 << 20)
#define VALUE_BYTES 600
#define MIB	    ((uint64_t)1 << 20)

/* Their allocators keep what is freed, and all is slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define N_KEYS	 30000u
#define CAN_TELL 0
#else
#define N_KEYS	 1000000u
#define CAN_TELL 1
#endif

/* In bytes; `name` as in "VmRSS:". */
static uint64_t memory_of_process(const char *name)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long long n = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			n = strtoull(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return n * 1024;
}

static struct kiln *open_bounded(void)
{
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.memory_bytes_max = BOUND;
	if (kiln_open(&options, &kiln))
		abort();
	return kiln;
}

static struct kiln_key *key_of(unsigned device, unsigned number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "device", &device, sizeof(device));
	kiln_key_add(key, "source", &number, sizeof(number));
	if (kiln_key_finish(key))
		abort();
	return key;
}

static unsigned n_builds;

static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *result)
{
	unsigned char value[VALUE_BYTES] = { 0 };

	memcpy(value, arg, sizeof(unsigned));
	n_builds++;
	if (kiln_blob_copy(value, sizeof(value), &result->blob))
		abort();
}

/* 0, or 1 for a wrong value. */
static int use(struct kiln *kiln, unsigned device, unsigned number)
{
	struct kiln_key *key = key_of(device, number);
	struct kiln_build_result result;
	unsigned mark = device * 7919 + number;
	int wrong;

	kiln_build_result_init(&result);
	wrong = kiln_get_or_build(kiln, key, build, &mark, &result) ||
		memcmp(kiln_blob_data(result.blob), &mark, sizeof(mark));
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return wrong;
}

static void assert_small(uint64_t before)
{
	/* Entries cost no more than they are said to, garbage a 16th, and the
	   allocator as much again at the most. */
	if (CAN_TELL) {
		assert_in_range(memory_of_process("VmRSS:"), 0,
				before + 2 * BOUND);
		assert_in_range(memory_of_process("VmHWM:"), 0,
				before + 2 * BOUND + 2 * MIB);
	}
}

static void keys_that_never_come_back_do_not_stay(void **state)
{
	struct kiln *kiln = open_bounded();
	uint64_t before = memory_of_process("VmRSS:"), tenth = 0;
	struct kiln_stats stats;
	unsigned wrong = 0, i;

	n_builds = 0;
	for (i = 0; i < N_KEYS; i++) {
		wrong += (unsigned)use(kiln, 1, i);
		if (i == N_KEYS / 10)
			tenth = memory_of_process("VmRSS:");
	}
	assert_int_equal(wrong, 0);
	assert_int_equal(n_builds, N_KEYS);
	kiln_stats_init(&stats);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	assert_in_range(stats.memory_bytes, BOUND / 2, BOUND);
	assert_small(before);
	/* The nine tenths that came then added nothing. */
	if (CAN_TELL)
		assert_in_range(memory_of_process("VmRSS:"), 0, tenth + MIB);
	kiln_close(kiln);
}

/* Kernels of two devices in turn, half of which the tier has room for. */
static void keys_of_two_devices_in_turn_do_not_stay(void **state)
{
	struct kiln *kiln = open_bounded();
	uint64_t before = memory_of_process("VmRSS:"), tenth = 0;
	unsigned wrong = 0, i;

	for (i = 0; i < N_KEYS / 4; i++) {
		wrong += (unsigned)use(kiln, 1 + i % 2, i / 2 % 8000);
		if (i == N_KEYS / 10)
			tenth = memory_of_process("VmRSS:");
	}
	assert_int_equal(wrong, 0);
	assert_small(before);
	if (CAN_TELL)
		assert_in_range(memory_of_process("VmRSS:"), 0, tenth + MIB);
	kiln_close(kiln);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_that_never_come_back_do_not_stay),
		cmocka_unit_test(keys_of_two_devices_in_turn_do_not_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
