/* SPDX-License-Identifier: MIT */

/* What a guest has counted, and when it is the store's. */

#include "harness/harness.h"
#include "harness/shelf.h"

#include <sys/wait.h>
#include <unistd.h>

#include "core/cache_test.h"

#define HITS 10

static struct kiln *open_at(const char *url, uint32_t flags)
{
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.store_url = url;
	options.flags = flags;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		abort();
	return kiln;
}

static void hit(struct kiln *kiln, unsigned times)
{
	char out[128];

	while (times--)
		if (strcmp(got(kiln, 1, out), "one"))
			abort();
}

static uint64_t counted(const char *url, enum kiln_counter which)
{
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	struct kiln *kiln = open_at(url, KILN_OPEN_READONLY);
	uint64_t n;

	if (!counters || kiln_store_counters(kiln, counters))
		abort();
	n = counters->total[which];
	free(counters);
	kiln_close(kiln);
	return n;
}

/* How a program ends, and how many of its hits may be missing then. */
static const struct end {
	const char *words;
	void (*end)(int status);
	unsigned n_lost;
	int forks, closes, is_child;
} ends[] = {
	{ "exit", exit, 0, 0, 0, 0 },
	{ "_exit", _exit, HITS, 0, 0, 0 },
	{ "close, exit", exit, 0, 0, 1, 0 },
	{ "close, _exit", _exit, 0, 0, 1, 0 },
	/* The child has a copy of what is not flushed yet. */
	{ "the parent of a child that exits", exit, 0, 1, 0, 0 },
	{ "the parent of a child that closes", exit, 0, 1, 0, 1 },
};

static void be_a_child(struct kiln *kiln, const struct end *end)
{
	pid_t child = fork();

	if (!child && end->is_child)
		kiln_close(kiln);
	if (!child)
		exit(0);
	if (child < 0 || waitpid(child, NULL, 0) != child)
		abort();
}

static void be_a_program(const char *url, const struct end *end)
{
	struct kiln *kiln = open_at(url, KILN_OPEN_GUEST);

	if (put(kiln, 1, "one", 0))
		abort();
	hit(kiln, HITS);
	if (end->forks)
		be_a_child(kiln, end);
	if (end->closes)
		kiln_close(kiln);
	end->end(0);
}

static void hits_of_a_guest_are_counted_when_it_ends(void **state)
{
	static const char *const kinds[] = { "log:", "file:", "neo:" };
	const size_t n_ends = sizeof(ends) / sizeof(ends[0]);

	for (size_t i = 0; i < 3 * n_ends; i++) {
		const struct end *end = &ends[i % n_ends];
		char *directory = harness_directory(), url[256];
		uint64_t n_hits;
		pid_t child;

		snprintf(url, sizeof(url), "%s%s/store", kinds[i / n_ends],
			 directory);
		child = fork();
		if (!child)
			be_a_program(url, end);
		assert_int_equal(waitpid(child, NULL, 0), child);
		n_hits = counted(url, KILN_COUNT_HITS_STORE);
		print_message("# %s %s: %llu hits\n", kinds[i / n_ends],
			      end->words, (unsigned long long)n_hits);
		assert_in_range(n_hits, HITS - end->n_lost, HITS);
		assert_int_equal(counted(url, KILN_COUNT_PUTS), 1);
		free(directory);
	}
}

static void exit_at_once(const struct kiln_key *key, void *arg,
			 struct kiln_build_result *out_result)
{
	exit(0);
}

static void exit_over_a_call(const char *url, const char *other_url)
{
	static struct kiln *kiln, *other; /* this exits with both */
	struct kiln_build_result result;

	kiln = open_at(url, KILN_OPEN_GUEST);
	other = open_at(other_url, KILN_OPEN_GUEST);
	if (put(kiln, 1, "one", 0))
		abort();
	hit(kiln, HITS);
	kiln_build_result_init(&result);
	(void)kiln_get_or_build(other, key_of(2), exit_at_once, NULL, &result);
	abort();
}

/* It may hold what the others need. */
static void over_a_call_of_one_guest_none_is_flushed(void **state)
{
	static char *directory; /* the child has it too when it exits */
	char url[256], other_url[256];
	pid_t child;
	int how;

	directory = harness_directory();
	snprintf(url, sizeof(url), "log:%s/store", directory);
	snprintf(other_url, sizeof(other_url), "log:%s/other", directory);
	child = fork();
	if (!child)
		exit_over_a_call(url, other_url);
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_int_equal(how, 0);
	assert_true(counted(url, KILN_COUNT_HITS_STORE) < HITS);
	assert_int_equal(counted(url, KILN_COUNT_PUTS), 1);
	free(directory);
}

/* So many hits wait at most, and none if there is no place at exit. */
static void few_hits_of_a_guest_wait(void **state)
{
	enum { GUESTS = 20, MANY = 1000, WAITING = 256 };
	char *directory = harness_directory(), url[256];
	struct kiln *kilns[GUESTS];
	uint64_t n_hits;

	snprintf(url, sizeof(url), "log:%s/store", directory);
	for (size_t i = 0; i < GUESTS; i++)
		kilns[i] = open_at(url, KILN_OPEN_GUEST);
	assert_int_equal(put(kilns[0], 1, "one", 0), KILN_OK);
	hit(kilns[0], MANY);
	n_hits = counted(url, KILN_COUNT_HITS_STORE);
	assert_in_range(n_hits, MANY - WAITING, MANY);
	hit(kilns[GUESTS - 1], 1);
	hit(kilns[GUESTS - 1], 1);
	assert_int_equal(counted(url, KILN_COUNT_HITS_STORE), n_hits + 2);
	for (size_t i = 0; i < GUESTS; i++)
		kiln_close(kilns[i]);
	assert_int_equal(counted(url, KILN_COUNT_HITS_STORE), MANY + 2);
	free(directory);
}

/* A miss comes with a build: what it tells is there at once. */
static void misses_of_a_guest_do_not_wait(void **state)
{
	char *directory = harness_directory(), url[256];
	struct kiln *kiln;

	snprintf(url, sizeof(url), "log:%s/store", directory);
	kiln = open_at(url, KILN_OPEN_GUEST);
	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	hit(kiln, HITS);
	for (unsigned i = 1; i <= 3; i++) {
		assert_got(kiln, 1 + i, "KILN_MISS");
		assert_int_equal(counted(url, KILN_COUNT_MISSES), i);
	}
	assert_int_equal(counted(url, KILN_COUNT_HITS_STORE), HITS);
	kiln_close(kiln);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hits_of_a_guest_are_counted_when_it_ends),
		cmocka_unit_test(over_a_call_of_one_guest_none_is_flushed),
		cmocka_unit_test(few_hits_of_a_guest_wait),
		cmocka_unit_test(misses_of_a_guest_do_not_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
