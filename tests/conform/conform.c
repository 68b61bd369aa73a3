/* SPDX-License-Identifier: MIT */

/*
 * conform KIND: what every tier does alike, whatever its format.  What a kind
 * cannot do (a NULL in its table, or nothing kept in a directory) is skipped.
 *
 *	handle.c     one handle
 *	bounds.c     what goes and what stays
 *	crowd.c      threads, processes, build locks
 *	directory.c  opened again, by others, otherwise
 *	damage.c     files that somebody changed
 */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "conform/conform.h"

#define TESTS_MAX 64

static unsigned abilities(void)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_tier *tier;
	unsigned result = 0;

	if (kind->open(&options, &tier))
		abort();
	result |= kind->persists ? DISK : 0;
	result |= kind->is_alone ? 0 : NAMES;
	result |= tier->ops->remove ? REMOVE : 0;
	result |= tier->ops->wipe ? WIPE : 0;
	result |= tier->ops->list ? LIST : 0;
	result |= tier->ops->verify ? VERIFY : 0;
	result |= tier->ops->set_limit ? LIMIT : 0;
	result |= tier->ops->lock ? LOCK : 0;
	result |= tier->ops->count ? COUNT : 0;
	result |= kind->has_sessions ? SHARES : 0;
	tier->ops->close(tier);
	free(directory);
	return result;
}

int main(int argc, char **argv)
{
	static const struct row *const tables[] = { handle_rows, bounds_rows,
						    crowd_rows, directory_rows,
						    damage_rows };
	struct CMUnitTest tests[TESTS_MAX];
	const struct row *row;
	size_t n = 0;
	unsigned has;

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind) {
		fprintf(stderr, "usage: conform KIND [TEST]\n");
		return 2;
	}
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	has = abilities();
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (row = tables[i]; row->test.name; row++) {
			if (row->needs & ~has)
				continue;
			assert(n < TESTS_MAX);
			tests[n++] = row->test;
		}
	}
	return _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
}
