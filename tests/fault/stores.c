/* SPDX-License-Identifier: MIT */

/*
 * S29, S39, S44.  stores KIND [OPERATION|limits] [--all]: every operation of a
 * store, with every system call and every allocation of it failed in turn, once
 * and for good.  Afterwards: a right result or a typed error, no wrong bytes,
 * nothing lost that was not touched, the bound kept, no descriptor leaked, and the
 * store in use again at once.
 *
 * --all leaves no call out.
 */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "fault/operations.h"

#define N_OPERATIONS_MAX 32

static const struct kind *kind;

/* What stores tell apart, and what is one of many to them: of those fewer
   calls are tried, unless it may take long. */
static const struct error {
	int err;
	int is_like_others;
} errors[] = {
	{ -EIO, 0 },	{ -ENOSPC, 0 }, { -EROFS, 0 },	{ -ENOLCK, 0 },
	{ -ENOMEM, 0 }, { -EACCES, 1 }, { -ESTALE, 0 }, { FAULT_SHORT, 0 },
	{ -EMFILE, 1 }, { -EDQUOT, 1 }, { -EPERM, 1 },	{ -EFBIG, 1 },
	{ -EINTR, 1 },
};

#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

static int all;

/* The table hands no interruption on: it has to come from below, and what is
   interrupted is asked for again. */
static int is_interruption(const struct fault *fault)
{
	return fault->err == -EINTR;
}

/* The first round of an error. */
static void begin(struct fault *fault, const struct error *error)
{
	fault_begin(fault, error->err);
	fault->stride = all ? 0 : 16;
	fault->n_all = error->is_like_others || kind->resembles ? 6 : 20;
	if (is_interruption(fault))
		fault->sys = ki_sys_posix;
}

static void arm(struct fault *fault)
{
	if (is_interruption(fault))
		fault_arm_system(fault);
	else
		fault_arm(fault);
}

static void disarm(struct fault *fault)
{
	if (is_interruption(fault))
		fault_disarm_system(fault);
	else
		fault_disarm(fault);
}

static int is_typed(enum kiln_status status)
{
	switch (status) {
	case KILN_OK:
	case KILN_MISS:
	case KILN_E_NO_MEMORY:
	case KILN_E_IO:
	case KILN_E_FULL:
	case KILN_E_OWNER:
	case KILN_E_TIMEOUT:
	case KILN_E_UNSUPPORTED:
	case KILN_E_READONLY:
		return 1;
	default:
		return 0;
	}
}

static void run_round(struct scene *scene, const struct operation *operation)
{
	unsigned before = harness_n_descriptors();
	long n_blocks = fault_n_blocks();

	scene->tier = NULL;
	if (!operation->is_closed)
		assert_int_equal(open_scene(scene), KILN_OK);
	arm(scene->fault);
	scene->status = operation->run(scene);
	disarm(scene->fault);

	scene->is_whole = !scene->fault->n_fired;
	if (!is_typed(scene->status))
		fail_scene(scene, "not a status for this");
	if ((!scene->fault->n_fired || is_interruption(scene->fault)) &&
	    scene->status)
		fail_scene(scene, "nothing failed but this");
	/* The handle that saw the fault goes on as if nothing had been. */
	if (scene->tier) {
		int status = get_numbered(scene->tier, 2);

		if (status != KILN_OK &&
		    !(status == KILN_MISS && may_lose(scene, operation)))
			fail_scene(scene, "the handle is of no use any more");
		scene->tier->ops->close(scene->tier);
	}
	check_scene(scene, operation);
	/* One that cannot be looked at may be the program's by now: it stays. */
	if (harness_n_descriptors() < before ||
	    harness_n_descriptors() - before > scene->fault->n_unknown)
		fail_scene(scene, "a descriptor is left open");
	if (fault_n_blocks() != n_blocks)
		fail_scene(scene, "memory is left behind");
}

/* The last ones are others by another name; by cost nothing depends on which it
   is. */
static size_t n_errors(void)
{
	if (all || !kind->resembles)
		return N_ERRORS;
	return kind->by_cost ? 2 : N_ERRORS - 4;
}

static void run_operation(void **state)
{
	const struct operation *operation = *state;
	char *master = harness_directory();
	char *place = harness_path(master, "store");
	char *copy = harness_path(master, "copy");
	uint64_t work_before;
	unsigned n_filled;

	n_filled = prepare_store(kind, place, operation->before);
	work_before = work_done(kind, place, operation->work);
	for (size_t i = 0; i < n_errors(); i++) {
		struct fault fault;
		struct scene scene = { .kind = kind,
				       .fault = &fault,
				       .directory = copy,
				       .n_filled = n_filled,
				       .work_before = work_before };

		for (begin(&fault, &errors[i]); fault_next(&fault);) {
			/* A lasting one is waited for. */
			if (is_interruption(&fault) && fault.lasting)
				break;
			harness_progress(operation->name, fault.n, 0);
			copy_store(kind, place, copy, operation->before);
			run_round(&scene, operation);
			harness_remove(copy);
		}
	}
	harness_progress_end();
	free(copy);
	free(place);
	free(master);
}

/* ---- Limits of the process --------------------------------------------------------- */

/* So that the stack need not grow any more. */
static void touch_stack(void)
{
	volatile char stack[1 << 18];

	for (size_t i = 0; i < sizeof(stack); i += 1024)
		stack[i] = 0;
}

static int put_within(const char *directory, int resource, rlim_t limit)
{
	static unsigned char value[100000];
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory };
	struct kiln_key *key = numbered_key(100);
	struct rlimit limits = { limit, limit };
	struct kiln_tier *tier;
	enum kiln_status status;

	touch_stack();
	if (kind->open(&options, &tier) || setrlimit(resource, &limits))
		return 1;
	fill_value(100, value, sizeof(value));
	status = tier->ops->put(tier, key, "metadata", 8, value, sizeof(value),
				KILN_PUT_REPLACE);
	if (!is_typed(status))
		return 2;
	tier->ops->close(tier);
	kiln_key_free(key);
	return 0;
}

static int under_a_file_size_limit(unsigned index, void *arg)
{
	return put_within(arg, RLIMIT_FSIZE, 50000);
}

static int without_descriptors(unsigned index, void *arg)
{
	return put_within(arg, RLIMIT_NOFILE, 0);
}

static int with_few_descriptors(unsigned index, void *arg)
{
	return put_within(arg, RLIMIT_NOFILE, 8);
}

static int without_room_for_mappings(unsigned index, void *arg)
{
	return put_within(arg, RLIMIT_AS, 0);
}

/* Nobody is killed by SIGXFSZ, and the others' store is as good as before. */
static void limits_of_a_process_cost_only_its_put(void **state)
{
	static harness_child_fn *const bodies[] = { under_a_file_size_limit,
						    without_descriptors,
						    with_few_descriptors,
						    without_room_for_mappings };
	char *directory = harness_directory();
	struct kiln_tier *tier;

	prepare_store(kind, directory, SOME);
	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		assert_int_equal(harness_processes(1, bodies[i], directory,
						   HARNESS_HANG_S),
				 0);
		tier = open_real(kind, directory);
		for (unsigned n = 0; n < N_ENTRIES; n++)
			assert_int_equal(get_numbered(tier, n), KILN_OK);
		assert_int_equal(
			put_numbered(tier, 400 + (unsigned)i, 100000, 0),
			KILN_OK);
		tier->ops->close(tier);
	}
	free(directory);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[N_OPERATIONS_MAX + 1];
	const struct operation *operation;
	size_t n = 0;
	int failed;

	all = argc > 2 && !strcmp(argv[argc - 1], "--all");
	argc -= all;
	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind) {
		fprintf(stderr,
			"usage: stores KIND [OPERATION|limits] [--all]\n");
		return 2;
	}
	operations_begin();
	for (operation = operations; operation->name; operation++) {
		assert(n < N_OPERATIONS_MAX);
		if ((argc > 2 && strcmp(argv[2], operation->name) != 0) ||
		    !has_operation(kind, operation))
			continue;
		tests[n++] = (struct CMUnitTest){
			.name = operation->name,
			.test_func = run_operation,
			.initial_state = (void *)(uintptr_t)operation,
		};
	}
	if (argc < 3 || !strcmp(argv[2], "limits"))
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(
			limits_of_a_process_cost_only_its_put);
	failed = _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
	operations_end();
	return failed;
}
