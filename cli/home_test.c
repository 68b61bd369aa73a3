/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include "home_test.h"

#include <stdio.h>
#include <stdlib.h>

char *home_directory;

int home_set_up(void **state)
{
	home_directory = harness_directory();
	return 0;
}

int home_tear_down(void **state)
{
	harness_remove(home_directory);
	free(home_directory);
	home_directory = NULL;
	return 0;
}

static void add_all(const char **to, size_t max, const char *const *from)
{
	size_t n = 0;

	while (to[n])
		n++;
	for (; *from; from++) {
		assert_true(n + 1 < max);
		to[n++] = *from;
	}
}

struct ended home_run(const char *program, const char *const *arguments,
		      const char *const *variables)
{
	char runtime[512], dir[512], config[512];
	struct spawn spawn = { .program = program,
			       .variables = { runtime, dir, config } };

	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s",
		 home_directory);
	snprintf(dir, sizeof(dir), "KILN_DIR=%s/kiln", home_directory);
	snprintf(config, sizeof(config), "XDG_CONFIG_HOME=%s/config",
		 home_directory);
	add_all(spawn.arguments,
		sizeof(spawn.arguments) / sizeof(*spawn.arguments), arguments);
	add_all(spawn.variables, VARIABLES_MAX, variables);
	return spawn_run(&spawn);
}
