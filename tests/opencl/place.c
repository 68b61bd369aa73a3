/* SPDX-License-Identifier: MIT */

#include "opencl/place.h"

#include "harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void set(struct place *place, const char *name, const char *value)
{
	char *variable;
	size_t i, size = strlen(name);

	assert_true(asprintf(&variable, "%s=%s", name, value) > 0);
	for (i = 0; i < place->n_variables; i++)
		if (!strncmp(place->variables[i], variable, size + 1)) {
			free(place->variables[i]);
			place->variables[i] = variable;
			return;
		}
	assert_true(place->n_variables < VARIABLES_MAX - 1);
	place->variables[place->n_variables++] = variable;
}

void unset(struct place *place, const char *name)
{
	size_t i, size = strlen(name);

	for (i = 0; i < place->n_variables; i++)
		if (!strncmp(place->variables[i], name, size) &&
		    place->variables[i][size] == '=') {
			free(place->variables[i]);
			place->variables[i] =
				place->variables[--place->n_variables];
			return;
		}
}

void set_all(struct place *place, const char *switches)
{
	char *copy = strdup(switches ? switches : ""), *save = NULL, *word;

	for (word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save)) {
		char name[64], *equals = strchr(word, '=');

		assert_non_null(equals);
		snprintf(name, sizeof(name), "KILN_TEST_ICD_%.*s",
			 (int)(equals - word), word);
		set(place, name, equals + 1);
	}
	free(copy);
}

void place_init(struct place *place)
{
	memset(place, 0, sizeof(*place));
	place->directory = harness_directory();
	place->store = harness_path(place->directory, "store");
	place->log = harness_path(place->directory, "log");
	place->calls = harness_path(place->directory, "calls");
	set(place, "OCL_ICD_VENDORS", getenv("KILN_TEST_ICD"));
	set(place, "KILN_DIR", place->store);
	set(place, "KILN_LOG", place->log);
	set(place, "HOME", place->directory);
	set(place, "PATH", "/usr/bin:/bin");
	set(place, "KILN_TEST_ICD_CALLS", place->calls);
	if (getenv("LD_PRELOAD"))
		set(place, "LD_PRELOAD", getenv("LD_PRELOAD"));
	set(place, "ASAN_OPTIONS", "detect_leaks=0");
}

void place_fini(struct place *place)
{
	harness_remove(place->directory);
	while (place->n_variables)
		free(place->variables[--place->n_variables]);
	free(place->calls);
	free(place->log);
	free(place->store);
	free(place->directory);
}

char *run_program(struct place *place, const char *program, const char *layer,
		  const char *script, const char *options)
{
	char *out = harness_path(place->directory, "out"), *text;
	const char *argv[] = { program, script, options, NULL };
	char ending[32];
	int status, fd;
	pid_t pid;
	size_t size;

	unlink(place->calls);
	if (layer)
		set(place, "OPENCL_LAYERS", layer);
	else
		set(place, "OPENCL_LAYERS", "");
	place->variables[place->n_variables] = NULL;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
			_exit(120);
		alarm(HARNESS_HANG_S);
		execve(program, (char *const *)argv, place->variables);
		_exit(121);
	}
	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	text = harness_read(out, &size);
	assert_non_null(text);
	snprintf(ending, sizeof(ending), "exit %d\n",
		 WIFEXITED(status) ? WEXITSTATUS(status)
				   : 128 + WTERMSIG(status));
	text = realloc(text, size + sizeof(ending));
	memcpy(text + size, ending, sizeof(ending));
	free(out);
	return text;
}

char *run(struct place *place, int with_layer, const char *script,
	  const char *options)
{
	return run_program(place, getenv("KILN_TEST_CALLS_PROGRAM"),
			   with_layer ? getenv("KILN_TEST_LAYER") : NULL,
			   script, options);
}

unsigned lines(const char *path, const char *what)
{
	char *text = harness_read(path, NULL), *save = text, *line;
	unsigned n = 0;

	while (text && (line = strsep(&save, "\n")))
		n += !strncmp(line, what, strlen(what));
	free(text);
	return n;
}

unsigned calls(const struct place *place, const char *what)
{
	return lines(place->calls, what);
}

int living(const struct place *place)
{
	static const char *const births[] = { "create-source", "create-il",
					      "create-binary",
					      "create-built-in", "link" };
	int n = 0;
	size_t i;

	for (i = 0; i < sizeof(births) / sizeof(births[0]); i++)
		n += (int)calls(place, births[i]);
	return n - (int)calls(place, "create-binary-refused") -
	       (int)calls(place, "destroy-program");
}

int lets_go(const struct place *place, int n_native)
{
	int n = living(place);

	if (n < n_native || n > 2 * n_native)
		print_error("%d programs are left, natively %d\n", n, n_native);
	return n >= n_native && n <= 2 * n_native;
}

int log_has(const struct place *place, const char *words)
{
	char *text = harness_read(place->log, NULL);
	int found = text && strstr(text, words);

	free(text);
	return found;
}

unsigned n_complaints(const struct place *place)
{
	char *text = harness_read(place->log, NULL), *save = text, *line;
	unsigned n = 0;

	while (text && (line = strsep(&save, "\n")))
		n += *line && !strstr(line, "KILN_TEST");
	free(text);
	return n;
}

uint64_t counter(const struct place *place, enum kiln_counter which)
{
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	struct kiln_options options;
	struct kiln *kiln;
	uint64_t value;
	char *url;

	assert_true(asprintf(&url, "log:%s", place->store) > 0);
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = KILN_OPEN_READONLY;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_counters(kiln, counters), KILN_OK);
	value = counters->total[which];
	kiln_close(kiln);
	free(counters);
	free(url);
	return value;
}

void prime(struct place *place, const char *options)
{
	char *text = run(place, 1, "binaries", options);

	assert_non_null(strstr(text, "exit 0"));
	assert_true(calls(place, "fetch") > 0);
	free(text);
}

void prime_with(struct place *place, const char *script, const char *options)
{
	char *text;

	set(place, "KILN_TEST_CAPTURE", "1");
	text = run(place, 1, script, options);
	assert_non_null(strstr(text, "exit 0"));
	assert_true(calls(place, "fetch") > 0);
	free(text);
	unset(place, "KILN_TEST_CAPTURE");
}

void same(const char *expected, const char *text)
{
	size_t i = 0, start;

	while (expected[i] && expected[i] == text[i])
		i++;
	for (start = i; start && expected[start - 1] != '\n'; start--)
		;
	if (expected[i] != text[i])
		print_error("expected: %.*s\nbut got:  %.*s\n",
			    (int)strcspn(expected + start, "\n"),
			    expected + start, (int)strcspn(text + start, "\n"),
			    text + start);
	assert_true(expected[i] == text[i]);
	assert_non_null(strstr(text, "exit 0\n"));
}
