/* SPDX-License-Identifier: MIT */

/* kiln stats in all its forms, as a shell sees it. */

#include "testing.h"
#include "harness/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kiln/inspect.h>

static const char *program;

static struct ended ask(const char *directory, const char *const *options)
{
	static char setting[600];
	struct spawn spawn = { .program = program, .arguments = { "stats" } };

	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	for (unsigned i = 0; options && options[i]; i++)
		spawn.arguments[i + 1] = options[i];
	spawn.variables[0] = setting;
	spawn.variables[1] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[2] = "COLUMNS=40";
	return spawn_run(&spawn);
}

#define ASK(directory, ...)                                                    \
	ask(directory, (const char *const[]){ __VA_ARGS__, NULL })

static struct kiln *open_as(const char *directory, const char *application)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[600];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.application = application;
	if (kiln_open(&options, &kiln))
		abort();
	return kiln;
}

/* What a program does: 3 hits, 2 misses of which one has a reason. */
static void use(const char *directory, const char *application)
{
	struct kiln *kiln = open_as(directory, application);

	kiln_count(kiln, KILN_COUNT_HITS_STORE, 3);
	kiln_count(kiln, KILN_COUNT_MISSES, 2);
	kiln_count(kiln, KILN_COUNT_MISS_INCLUDE, 1);
	kiln_count(kiln, KILN_COUNT_MISS_TIME_MACRO, 9);
	kiln_count(kiln, KILN_COUNT_SAVED_NS, 2500000000u);
	kiln_count(kiln, KILN_COUNT_BYTES_READ, 3 << 19);
	kiln_close(kiln);
}

static int has_line(const char *text, const char *line)
{
	size_t size = strlen(line);

	for (; text; text = strchr(text, '\n'), text = text ? text + 1 : NULL)
		if (!strncmp(text, line, size))
			return 1;
	return 0;
}

static void expect_line(const char *text, const char *line)
{
	if (!has_line(text, line))
		fail_msg("no line \"%s\" in:\n%s", line, text);
}

static void what_was_counted_since_a_time_is_summed(void **state)
{
	char *directory = harness_directory(), day[32];
	time_t tomorrow = time(NULL) + 2 * 86400;
	struct ended ended;

	use(directory, "/usr/bin/a");
	ended = ASK(directory, "--since", "2d");
	assert_int_equal(status_of(&ended), 0);
	expect_line(ended.out, "hits                      3 of 5 (60.0 %)");
	expect_line(ended.out, "build time saved          2.5 s");
	expect_line(ended.out, "miss: changed include     1");
	expect_line(ended.out, "not cached: time macro    9");
	expect_line(ended.out, "miss: no reason told      1");
	assert_string_equal(ended.err, "");
	ended_free(&ended);
	strftime(day, sizeof(day), "%Y-%m-%d", localtime(&tomorrow));
	ended = ASK(directory, "--since", day);
	assert_int_equal(status_of(&ended), 0);
	expect_line(ended.out, "hits                      0 of 0 (0.0 %)");
	ended_free(&ended);
	free(directory);
}

static void the_last_run_and_the_applications_are_told(void **state)
{
	char *directory = harness_directory();
	struct ended ended;

	ended = ASK(directory, "--last-run");
	expect_line(ended.out, "last run                  none");
	ended_free(&ended);
	use(directory, "/usr/bin/an-application");
	use(directory, "/opt/hos\033[31mtile");
	ended = ASK(directory, "--last-run");
	assert_int_equal(status_of(&ended), 0);
	/* One process, with the name that it gave first. */
	expect_line(ended.out, "last run of               /usr/bin/an-");
	expect_line(ended.out, "hits                      6 of 10 (60.0 %)");
	expect_line(ended.out, "bytes read                3.00 MiB");
	ended_free(&ended);
	ended = ASK(directory, "--applications");
	assert_int_equal(status_of(&ended), 0);
	expect_line(ended.out, "HITS");
	assert_non_null(strstr(ended.out, "hos?[31"));
	assert_null(strchr(ended.out, '\033'));
	for (char *line = strtok(ended.out, "\n"); line;
	     line = strtok(NULL, "\n"))
		assert_in_range(strlen(line), 1, 40);
	ended_free(&ended);
	free(directory);
}

static json_t *ask_json(const char *directory)
{
	struct ended ended = ASK(directory, "--json", "--since", "1h");
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_int_equal(status_of(&ended), 0);
	assert_non_null(json);
	ended_free(&ended);
	return json;
}

static json_int_t counter(const json_t *object, const char *name)
{
	return json_integer_value(
		json_object_get(json_object_get(object, "counters"), name));
}

static void json_has_everything_at_once(void **state)
{
	char *directory = harness_directory();
	json_t *json, *applications;

	json = ask_json(directory);
	assert_true(json_is_null(json_object_get(json, "last_run")));
	json_decref(json);
	use(directory, "/usr/bin/a");
	use(directory, "/usr/bin/\"b");
	json = ask_json(directory);
	assert_int_equal(counter(json, "misses"), 4);
	assert_int_equal(counter(json_object_get(json, "period"), "misses"), 4);
	assert_int_equal(counter(json_object_get(json, "last_run"), "misses"),
			 4);
	applications = json_object_get(json, "applications");
	assert_int_equal(json_array_size(applications), 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(counter(json_array_get(applications, i),
					 "miss_include"),
				 1);
	json_decref(json);
	free(directory);
}

/* Each line is a comment or "NAME{LABELS} NUMBER"; quotes end where they may. */
static void expect_metric(const char *line)
{
	const char *place = line + strcspn(line, "{");
	int is_quoted = 0;

	if (*line == '#')
		return;
	for (; *place && (is_quoted || *place != '}'); place++) {
		if (*place == '\\')
			place++;
		else if (*place == '"')
			is_quoted = !is_quoted;
	}
	if (*place != '}' || place[1] != ' ' ||
	    strspn(place + 2, "0123456789.") != strlen(place + 2))
		fail_msg("not a metric: %s", line);
}

static void prometheus_gets_metrics(void **state)
{
	char *directory = harness_directory();
	struct ended ended;

	use(directory, "/usr/bin/a\"\\\n\033b");
	ended = ASK(directory, "--prometheus");
	assert_int_equal(status_of(&ended), 0);
	expect_line(ended.out, "# TYPE kiln_hits_store_total counter");
	expect_line(ended.out, "# TYPE kiln_bytes_max gauge");
	expect_line(ended.out, "# HELP kiln_saved_seconds_total build time "
			       "saved\n");
	expect_line(ended.out, "kiln_application_misses_total{store=\"log:");
	assert_non_null(strstr(ended.out, "\"} 2.500000000\n"));
	assert_non_null(strstr(ended.out,
			       "application=\"/usr/bin/a\\\"\\\\??b\"} 2\n"));
	for (char *line = strtok(ended.out, "\n"); line;
	     line = strtok(NULL, "\n"))
		expect_metric(line);
	ended_free(&ended);
	free(directory);
}

/* Whatever a namespace is called. */
static void prometheus_gets_namespaces_that_have_quotas(void **state)
{
	static const char *const lines[] = {
		"# TYPE kiln_namespace_bytes gauge",
		"# TYPE kiln_namespace_not_stored_total counter",
		"kiln_namespace_bytes_max{store=\"log:",
	};
	static const char *const parts[] = {
		",namespace=\"a\\\"\\\\??b\"} 1000000\n",
		",namespace=\"a\\\"\\\\??b\"} 0\n",
		",namespace=\"*\"} 3000\n",
	};
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "/usr/bin/a");
	struct ended ended = ASK(directory, "--prometheus");

	assert_null(strstr(ended.out, "namespace"));
	ended_free(&ended);
	assert_int_equal(
		kiln_set_namespace_limit(kiln, "a\"\\\n\033b", 1000000),
		KILN_OK);
	assert_int_equal(
		kiln_set_namespace_limit(kiln, KILN_NAMESPACE_OTHERS, 3000),
		KILN_OK);
	kiln_close(kiln);
	ended = ASK(directory, "--prometheus");
	assert_int_equal(status_of(&ended), 0);
	for (size_t i = 0; i < 3; i++) {
		expect_line(ended.out, lines[i]);
		if (!strstr(ended.out, parts[i]))
			fail_msg("no %s in:\n%s", parts[i], ended.out);
	}
	assert_null(strstr(ended.out, "namespace=\"*\"} 0"));
	for (char *line = strtok(ended.out, "\n"); line;
	     line = strtok(NULL, "\n"))
		expect_metric(line);
	ended_free(&ended);
	free(directory);
}

static void zeroing_forgets_applications_too(void **state)
{
	char *directory = harness_directory();
	struct ended ended;

	use(directory, "/usr/bin/a");
	ended = ASK(directory, "--zero");
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	ended = ASK(directory, "--applications");
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "");
	assert_non_null(strstr(ended.err, "no application"));
	ended_free(&ended);
	free(directory);
}

static void wrong_options_are_told(void **state)
{
	static const char *const rows[][4] = {
		{ "--since", "yesterday" },
		{ "--since", "2026-02-31" },
		{ "--since", "2026-11-22x" },
		{ "--since", "" },
		{ "--since", "1d", "--last-run" },
		{ "--applications", "--last-run" },
		{ "--prometheus", "--json" },
		{ "--prometheus", "--applications" },
	};
	char *directory = harness_directory();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ended ended = ask(directory, rows[i]);

		if (status_of(&ended) != 2 || *ended.out ||
		    strncmp(ended.err, "kiln: ", 6))
			fail_msg("%s %s: %d, %s", rows[i][0], rows[i][1],
				 status_of(&ended), ended.err);
		ended_free(&ended);
	}
	free(directory);
}

/* S17: the store of a kiln that knows no history. */
static void a_store_without_history_has_its_totals(void **state)
{
	char *directory = harness_directory(), *path;
	struct ended ended;
	json_t *json;

	use(directory, "/usr/bin/a");
	path = harness_path(directory, "kiln.history");
	assert_int_equal(unlink(path), 0);
	json = ask_json(directory);
	assert_int_equal(counter(json, "misses"), 2);
	assert_int_equal(
		json_integer_value(json_object_get(json, "applications_since")),
		0);
	json_decref(json);
	assert_int_equal(access(path, F_OK), -1); /* looking makes nothing */
	ended = ASK(directory, "--since", "1d");
	expect_line(ended.out, "hits                      3 of 5 (60.0 %)");
	ended_free(&ended);
	free(path);
	free(directory);
}

static void what_cannot_be_zeroed_is_told(void **state)
{
	char *directory = harness_directory(), *path;
	struct ended ended;

	use(directory, "/usr/bin/a");
	/* No file can be written where a directory stands. */
	path = harness_path(directory, "kiln.stats");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	ended = ASK(directory, "--zero");
	assert_int_equal(status_of(&ended), 5);
	assert_string_equal(ended.out, "");
	assert_non_null(strstr(ended.err, "counters"));
	ended_free(&ended);
	assert_int_equal(rmdir(path), 0);
	free(path);
	free(directory);
}

static int write_on(unsigned index, void *directory)
{
	struct kiln *kiln = open_as(directory, index % 2 ? "/bin/x" : "/bin/y");

	for (unsigned i = 0; i < 300; i++)
		kiln_count(kiln, KILN_COUNT_MISSES, 1);
	kiln_close(kiln);
	return 0;
}

static int look_meanwhile(unsigned index, void *directory)
{
	struct ended ended;
	int failed;

	if (index)
		return write_on(index, directory);
	ended = ASK(directory, "--json");
	failed = status_of(&ended) || !strstr(ended.out, "\"schema\": 1");
	ended_free(&ended);
	return failed;
}

static void eight_writers_are_no_hindrance(void **state)
{
	char *directory = harness_directory();
	json_t *json;

	use(directory, "/usr/bin/a");
	assert_int_equal(
		harness_processes(9, look_meanwhile, directory, HARNESS_HANG_S),
		0);
	json = ask_json(directory);
	assert_int_equal(json_array_size(json_object_get(json, "applications")),
			 3);
	json_decref(json);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_counted_since_a_time_is_summed),
		cmocka_unit_test(the_last_run_and_the_applications_are_told),
		cmocka_unit_test(json_has_everything_at_once),
		cmocka_unit_test(prometheus_gets_metrics),
		cmocka_unit_test(prometheus_gets_namespaces_that_have_quotas),
		cmocka_unit_test(zeroing_forgets_applications_too),
		cmocka_unit_test(what_cannot_be_zeroed_is_told),
		cmocka_unit_test(wrong_options_are_told),
		cmocka_unit_test(a_store_without_history_has_its_totals),
		cmocka_unit_test(eight_writers_are_no_hindrance),
	};

	program = argc > 1 ? argv[1] : "kiln";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
