/* SPDX-License-Identifier: MIT */

/*
 * Random operations against a plain array (model.h), a shape for each seed:
 * model_check libcache|block [--seeds N] [--seed FIRST].
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "model.h"

#define N_STEPS 300

static const struct model_subject *subject;
static uint64_t first_seed = 1;
#ifdef __SANITIZE_THREAD__
static uint64_t n_seeds = 120;
#else
static uint64_t n_seeds = 1200;
#endif

static void run(const char *what, unsigned n_actors, uint64_t n)
{
	const size_t ways = subject == &model_libcache ? WAYS : 0;
	uint64_t n_refused = 0;

	for (uint64_t seed = first_seed; seed < first_seed + n; seed++) {
		struct model_choices choices = { .seed = seed };
		const struct model_shape shape =
			model_choose_shape(&choices, subject, ways, n_actors);
		const struct model_result result =
			model_run(subject, &shape, &choices, N_STEPS);

		harness_progress(what, seed - first_seed, n);
		n_refused += result.wrong < 0;
		if (result.wrong > 0)
			fail_msg("seed %llu: %s", (unsigned long long)seed,
				 result.message);
	}
	harness_progress_end();
	/* Not more than those of no power of two. */
	assert_true(n_refused < n * 2 / 3);
}

static void one_thread_finds_what_a_plain_array_has(void **state)
{
	run("one thread", 1, n_seeds);
}

static void threads_find_what_a_plain_array_has(void **state)
{
	run("threads", 3, n_seeds / 4);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_finds_what_a_plain_array_has),
		cmocka_unit_test(threads_find_what_a_plain_array_has),
	};

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "libcache"))
			subject = &model_libcache;
		else if (!strcmp(argv[i], "block"))
			subject = &model_block;
		else if (!strcmp(argv[i], "--seeds") && i + 1 < argc)
			n_seeds = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			first_seed = strtoull(argv[++i], NULL, 10);
		else
			return 2;
	}
	if (!subject)
		return 2;
	return cmocka_run_group_tests_name(subject->name, tests, NULL, NULL);
}
