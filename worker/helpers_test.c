/* SPDX-License-Identifier: MIT */

#include "helpers_test.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#define ARGUMENTS_MAX 24

void running_start(struct running *running, const char *spool, const char *url,
		   const char *const *more)
{
	const char *arguments[ARGUMENTS_MAX] = { "kiln-worker", "--spool",
						 spool, "--store", url };
	size_t n = 5;
	int ends[2];

	for (; more && *more; more++) {
		assert_true(n < ARGUMENTS_MAX - 1);
		arguments[n++] = *more;
	}
	running->size = 0;
	running->text[0] = '\0';
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	running->pid = fork();
	assert_true(running->pid >= 0);
	if (!running->pid) {
		dup2(ends[1], 1);
		execv(getenv("KILN_WORKER"), (char **)(uintptr_t)arguments);
		_exit(99);
	}
	close(ends[1]);
	running->fd = ends[0];
}

int read_more(struct running *running)
{
	const size_t room = sizeof(running->text) - 1 - running->size;
	struct pollfd pollfd = { .fd = running->fd, .events = POLLIN };
	ssize_t n;

	assert_true(room > 0);
	assert_int_equal(poll(&pollfd, 1, HARNESS_HANG_S * 1000), 1);
	n = read(running->fd, running->text + running->size, room);
	assert_true(n >= 0);
	running->size += (size_t)n;
	running->text[running->size] = '\0';
	return n > 0;
}

int running_finish(struct running *running)
{
	int status;

	while (read_more(running))
		;
	assert_int_equal(waitpid(running->pid, &status, 0), running->pid);
	close(running->fd);
	return status;
}

void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

struct kiln *open_store_at(const char *url, uint32_t flags)
{
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = url;
	options.flags = flags;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	return kiln;
}

struct ki_cl_recipe *recipe_of_text(const char *text, const char *options)
{
	struct ki_cl_source *source = ki_cl_source_new(1, &text, NULL);
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_build(source, NULL, 0, options);

	assert_non_null(recipe);
	ki_cl_source_unref(source);
	return recipe;
}
