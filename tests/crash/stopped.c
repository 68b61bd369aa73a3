/* SPDX-License-Identifier: MIT */

/*
 * S21, S24.  stopped [KIND] [--all]
 *
 * A process stops by SIGSTOP at its n-th system call, for n from 1 on, in each
 * of the operations `names`, and is continued when another process has done one
 * of these: put until all that was there was evicted twice; removed, replaced or
 * wiped entries; created what the stopped one creates.  There is
 * no wrong byte, nothing that was removed or replaced comes back, one creates,
 * the bound holds, and nobody waits for the stopped one for long.
 *
 * --all leaves no call out.
 */

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fault/operations.h"
#include "store/log/format.h"

#define N_TESTS_MAX 96
#define STUCK_MS    (HARNESS_HANG_S * 1000)
#define FIRST_MUCH  20000 /* numbers of what is put meanwhile */
#define N_TOUCHED   12
#define RIVAL_SIZE  777
#define NEW_SIZE    2000

static const struct kind *kind;
static int all;

/* What the stopped process says at its end. */
static struct outcome {
	enum kiln_status status;
	unsigned n_fired;
	int has_wrong_bytes;
} * outcome;

struct round {
	struct scene scene;
	const struct operation *operation;
	struct kiln_tier *tier; /* the other process's */
	int is_held;		/* the stopped one has the store's lock */
	int touched[N_TOUCHED]; /* removed or replaced, for certain */
	int is_wiped;
	enum kiln_status rival;
};

/* Entries that are removed or replaced: first ones, and what fills the store. */
static unsigned touched_number(unsigned i)
{
	return i < N_ENTRIES ? i : FIRST_FILL + i - N_ENTRIES;
}

/* The one entry of those that the stopped process itself puts. */
static int is_its_own(const struct round *round, unsigned number)
{
	return !number && !strcmp(round->operation->name, "replace");
}

/* ---- The one that stops ---------------------------------------------------------- */

static void child(struct round *round)
{
	struct scene *scene = &round->scene;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (open_scene(scene))
		_exit(2);
	fault_arm(scene->fault);
	outcome->status = round->operation->run(scene);
	fault_disarm(scene->fault);
	outcome->n_fired = scene->fault->n_fired;
	outcome->has_wrong_bytes =
		scene->blob && !is_value_of(1, kiln_blob_data(scene->blob),
					    kiln_blob_size(scene->blob));
	kiln_blob_unref(scene->blob);
	for (unsigned i = 0; i < N_TOUCHED; i++)
		outcome->has_wrong_bytes |=
			get_numbered(scene->tier, touched_number(i)) ==
			WRONG_BYTES;
	scene->tier->ops->close(scene->tier);
	_exit(0);
}

/* *out_end reaches its end with the process. */
static pid_t start(struct round *round, int *out_end)
{
	int ends[2];
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(ends[0]);
		child(round);
	}
	close(ends[1]);
	*out_end = ends[0];
	return pid;
}

static int wait_for(pid_t pid, int flags)
{
	int status;

	while (waitpid(pid, &status, flags) < 0)
		assert_int_equal(errno, EINTR);
	return status;
}

static void finish(struct round *round, pid_t pid, int end)
{
	struct pollfd fd = { .fd = end };
	int ended = poll(&fd, 1, STUCK_MS), status;

	if (!ended)
		kill(pid, SIGKILL);
	status = wait_for(pid, 0);
	close(end);
	if (!ended)
		fail_scene(&round->scene, "continued, it waits for ever");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_scene(&round->scene, "continued, it failed");
	round->scene.status = outcome->status;
	if (outcome->has_wrong_bytes)
		fail_scene(&round->scene, "it got wrong bytes");
}

/* So many are stopped that nobody can wait for each. */
static struct kiln_tier *open_hurried(const char *directory)
{
	struct kiln_tier *tier = open_real(kind, directory);

	if (kind->hurry)
		kind->hurry(tier);
	return tier;
}

/* ---- Meanwhile ------------------------------------------------------------------- */

static void expect(struct round *round, enum kiln_status status,
		   enum kiln_status wanted, const char *what)
{
	if (status != wanted && status != KILN_E_TIMEOUT)
		fail_msg("%s: %s at call %u", what, kiln_status_name(status),
			 round->scene.fault->n);
}

/* Segments of the native store: the oldest and the newest number.  0: none. */
static int look_at_segments(const struct round *round, uint32_t *out_oldest,
			    uint32_t *out_newest)
{
	DIR *dir = opendir(round->scene.directory);
	struct dirent *entry;
	int has_any = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		unsigned number;
		char end;

		if (sscanf(entry->d_name, "kiln.%8x.va%c", &number, &end) != 2)
			continue;
		if (!has_any || log_is_before(number, *out_oldest))
			*out_oldest = number;
		if (!has_any || log_is_before(*out_newest, number))
			*out_newest = number;
		has_any = 1;
	}
	closedir(dir);
	return has_any;
}

/* Enough to evict everything once; 0 if the stopped one is in the way. */
static int put_enough(struct round *round, unsigned first)
{
	unsigned n_refused = 0;
	uint64_t bytes = 0;

	for (unsigned n = first; bytes < BOUND + BOUND / 8; n++) {
		size_t size = n % 8 ? SMALL : LARGE;
		enum kiln_status status = put_numbered(round->tier, n, size, 0);

		expect(round, status, KILN_OK, "put");
		if (status && ++n_refused == 2)
			return 0;
		bytes += size;
	}
	return 1;
}

static void put_much(struct round *round)
{
	uint32_t oldest = 0, newest = 0, newest_before = 0;

	for (unsigned i = 0; i < 2 && !round->is_held; i++) {
		int has_any = look_at_segments(round, &oldest, &newest_before);

		round->is_held = !put_enough(round, FIRST_MUCH + i * 1000);
		if (has_any && !round->is_held &&
		    (!look_at_segments(round, &oldest, &newest) ||
		     !log_is_before(newest_before, oldest)))
			fail_scene(&round->scene, "not all was evicted");
	}
	for (unsigned n = 0; n < N_TOUCHED; n++)
		if (get_numbered(round->tier, touched_number(n)) == WRONG_BYTES)
			fail_scene(&round->scene, "meanwhile, wrong bytes");
}

static void remove_some(struct round *round)
{
	for (unsigned i = 0; i < N_TOUCHED; i++) {
		struct kiln_key *key = numbered_key(touched_number(i));
		enum kiln_status status =
			round->tier->ops->remove(round->tier, key);

		if (status != KILN_MISS)
			expect(round, status, KILN_OK, "remove");
		round->touched[i] = status >= 0;
		kiln_key_free(key);
	}
}

static void replace_some(struct round *round)
{
	unsigned n_refused = 0;

	for (unsigned i = 0; i < N_TOUCHED && n_refused < 2; i++) {
		enum kiln_status status =
			put_numbered(round->tier, touched_number(i), NEW_SIZE,
				     KILN_PUT_REPLACE);

		expect(round, status, KILN_OK, "replace");
		round->touched[i] = !status;
		n_refused += status != KILN_OK;
	}
}

/* Who has byte 0 makes a wipe wait for 2 s: once is enough. */
static void wipe(struct round *round)
{
	static int has_waited;
	enum kiln_status status;

	if (has_waited) {
		round->is_held = !put_enough(round, FIRST_MUCH);
		if (round->is_held)
			return;
	}
	status = round->tier->ops->wipe(round->tier);
	expect(round, status, KILN_OK, "wipe");
	has_waited |= status == KILN_E_TIMEOUT;
	round->is_wiped = !status;
}

/* What the stopped one creates: one of the two is the first. */
static void create(struct round *round)
{
	round->rival = put_numbered(round->tier, 100, RIVAL_SIZE, 0);
	if (round->rival != KILN_EXISTS)
		expect(round, round->rival, KILN_OK, "create");
}

/* ---- Afterwards ------------------------------------------------------------------ */

/* The size of an entry, right byte by byte; 0 if there is none. */
static size_t size_of(struct round *round, struct kiln_tier *tier,
		      unsigned number)
{
	struct kiln_key *key = numbered_key(number);
	struct kiln_blob *blob = NULL;
	enum kiln_status status = tier->ops->get(tier, key, &blob, NULL);
	size_t size = status ? 0 : kiln_blob_size(blob);

	if (status && status != KILN_MISS)
		fail_scene(&round->scene, "an entry is damaged");
	if (!status && !is_value_of(number, kiln_blob_data(blob), size))
		fail_scene(&round->scene, "wrong bytes");
	kiln_blob_unref(blob);
	kiln_key_free(key);
	return size;
}

static void check_removed(struct round *round, struct kiln_tier *tier)
{
	for (unsigned i = 0; i < N_TOUCHED; i++)
		if ((round->touched[i] || round->is_wiped) &&
		    !is_its_own(round, touched_number(i)) &&
		    size_of(round, tier, touched_number(i)))
			fail_scene(&round->scene, "what was removed came back");
}

static void check_replaced(struct round *round, struct kiln_tier *tier)
{
	for (unsigned i = 0; i < N_TOUCHED; i++) {
		size_t size = size_of(round, tier, touched_number(i));

		if (round->touched[i] &&
		    !is_its_own(round, touched_number(i)) && size &&
		    size != NEW_SIZE)
			fail_scene(&round->scene,
				   "what was replaced came back");
	}
}

static void check_created(struct round *round, struct kiln_tier *tier)
{
	enum kiln_status status = round->scene.status;
	size_t size = size_of(round, tier, 100);

	if (strcmp(round->operation->name, "create") != 0)
		return;
	if (status == KILN_OK && round->rival == KILN_OK)
		fail_scene(&round->scene, "two created it");
	if (status != KILN_OK && round->rival != KILN_OK &&
	    status != KILN_E_TIMEOUT && round->rival != KILN_E_TIMEOUT)
		fail_scene(&round->scene, "nobody created it");
	if (status == KILN_OK && size != 3000)
		fail_scene(&round->scene, "created, and not there");
	if (round->rival == KILN_OK && size != RIVAL_SIZE)
		fail_scene(&round->scene, "created meanwhile, and lost");
}

static int keeps_bound(const struct round *round)
{
	return kind_disk_bytes(kind, round->scene.directory) <= BOUND;
}

static const struct meanwhile {
	const char *name;
	void (*act)(struct round *round);
	void (*check)(struct round *round, struct kiln_tier *tier);
} meanwhiles[] = {
	{ "all_is_evicted_twice", put_much, NULL },
	{ "entries_are_removed", remove_some, check_removed },
	{ "entries_are_replaced", replace_some, check_replaced },
	{ "the_store_is_wiped", wipe, check_removed },
	{ "another_creates", create, check_created },
};

#define N_MEANWHILES (sizeof(meanwhiles) / sizeof(meanwhiles[0]))

static void check(struct round *round, const struct meanwhile *meanwhile)
{
	struct kiln_tier *tier = open_real(kind, round->scene.directory);

	if (meanwhile->check)
		meanwhile->check(round, tier);
	check_listed(&round->scene, tier);
	round->is_held = 0;
	if (!keeps_bound(round) &&
	    (!put_enough(round, FIRST_MUCH + 3000) || !keeps_bound(round)))
		fail_scene(&round->scene, "the bound is passed");
	if (put_numbered(tier, 300, 2000, 0) != KILN_OK ||
	    get_numbered(tier, 300) != KILN_OK)
		fail_scene(&round->scene, "the store is of no use any more");
	tier->ops->close(tier);
}

/* ---- One after another ----------------------------------------------------------- */

/* 1 if the process stopped, 0 if it came to its end before. */
static int run_round(struct round *round, const struct meanwhile *meanwhile)
{
	int end, status, stopped;
	pid_t pid;

	/* Half of them open it meanwhile. */
	if (round->scene.fault->n % 2)
		round->tier = open_hurried(round->scene.directory);
	pid = start(round, &end);
	status = wait_for(pid, WUNTRACED);
	stopped = WIFSTOPPED(status);
	if (!round->tier)
		round->tier = open_hurried(round->scene.directory);
	if (stopped) {
		meanwhile->act(round);
		kill(pid, SIGCONT);
		finish(round, pid, end);
		if (outcome->n_fired != 1)
			fail_scene(&round->scene, "it stopped by itself");
		check(round, meanwhile);
	} else {
		close(end);
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			fail_scene(&round->scene, "it failed by itself");
	}
	round->tier->ops->close(round->tier);
	return stopped;
}

struct test {
	const struct operation *operation;
	const struct meanwhile *meanwhile;
	char name[80];
};

static void stop_at_every_call(void **state)
{
	const struct test *test = *state;
	char *master = harness_directory();
	char *place = harness_path(master, "store");
	char *copy = harness_path(master, "copy");
	unsigned n = 1;
	int stopped = 1;

	prepare_store(kind, place, test->operation->before);
	while (stopped) {
		struct fault fault;
		struct round round = {
			.scene = { .kind = kind,
				   .fault = &fault,
				   .directory = copy },
			.operation = test->operation,
		};

		harness_progress(test->name, n, 0);
		fault_begin(&fault, FAULT_STOP);
		fault.n = n;
		fault.fired = "stopped";
		copy_store(kind, place, copy, test->operation->before);
		stopped = run_round(&round, test->meanwhile);
		harness_remove(copy);
		n += 1 + (!all && n > 16 ? n / 3 : 0);
	}
	harness_progress_end();
	assert_true(n > 3);
	free(copy);
	free(place);
	free(master);
}

static const char *const names[] = { "get",
				     "verify",
				     "create",
				     "replace",
				     "remove",
				     "wipe",
				     "roll",
				     "evict",
				     "evict_large",
				     "grow",
				     "gc_below_the_bound",
				     "lower_limit" };

static size_t list_tests(struct test tests[N_TESTS_MAX])
{
	const struct operation *operation;
	size_t n = 0;

	for (operation = operations; operation->name; operation++) {
		int is_named = 0;

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			is_named |= !strcmp(operation->name, names[i]);
		for (size_t i = 0; is_named && i < N_MEANWHILES &&
				   has_operation(kind, operation);
		     i++) {
			assert_true(n < N_TESTS_MAX);
			tests[n].operation = operation;
			tests[n].meanwhile = &meanwhiles[i];
			snprintf(tests[n].name, sizeof(tests[n].name),
				 "%s_is_stopped_and_%s", operation->name,
				 meanwhiles[i].name);
			n++;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	static struct test list[N_TESTS_MAX];
	struct CMUnitTest tests[N_TESTS_MAX];
	size_t n;
	int failed;

	kind = kind_find("log");
	for (int i = 1; i < argc && kind; i++) {
		if (!strcmp(argv[i], "--all"))
			all = 1;
		else
			kind = kind_find(argv[i]);
	}
	if (!kind) {
		fprintf(stderr, "usage: stopped [KIND] [--all]\n");
		return 2;
	}
	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (outcome == MAP_FAILED)
		return 1;
	operations_begin();
	n = list_tests(list);
	for (size_t i = 0; i < n; i++)
		tests[i] = (struct CMUnitTest){
			.name = list[i].name,
			.test_func = stop_at_every_call,
			.initial_state = &list[i],
		};
	failed = _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
	operations_end();
	return failed;
}
