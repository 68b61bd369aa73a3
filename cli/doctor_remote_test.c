/* SPDX-License-Identifier: MIT */

/* kiln doctor on servers that are well, dead, and closed to us. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "harness/servers_test.h"
#include "testing.h"

static char *kiln;
static char *directory;

static int set_up(void **state)
{
	directory = harness_directory();
	return 0;
}

/* A helper ends when the name of its socket is gone. */
static int tear_down(void **state)
{
	harness_remove(directory);
	free(directory);
	return 0;
}

/* What doctor says of the remote, its checks alone. */
static json_t *examine(const char *remote, const char *trust)
{
	char runtime[512], dir[512], config[512], servers[512], trusts[64];
	struct spawn spawn = {
		.program = kiln,
		.arguments = { "doctor", "--json" },
		.variables = { runtime, dir, config, servers, trusts },
	};
	json_t *checks = json_array(), *root, *check;
	struct ended ended;
	size_t i;

	snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", directory);
	snprintf(dir, sizeof(dir), "KILN_DIR=%s/kiln", directory);
	snprintf(config, sizeof(config), "XDG_CONFIG_HOME=%s/config",
		 directory);
	snprintf(servers, sizeof(servers), "KILN_REMOTE=%s", remote);
	snprintf(trusts, sizeof(trusts), "KILN_REMOTE_TRUST=%s", trust);
	ended = spawn_run(&spawn);
	root = json_loads(ended.out, 0, NULL);
	assert_non_null(root);
	json_array_foreach(
		json_object_get(root, "checks"), i,
		check) if (!strcmp(json_string_value(json_object_get(check,
								     "name")),
				   "remote")) json_array_append(checks, check);
	json_decref(root);
	ended_free(&ended);
	return checks;
}

static const char *said(const json_t *checks, size_t i, const char *name)
{
	const char *text = json_string_value(
		json_object_get(json_array_get(checks, i), name));

	return text ? text : "";
}

static void a_server_that_is_well_is_said_so(void **state)
{
	struct server *redis = server_redis(directory, NULL);
	json_t *checks;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	checks = examine(server_url(redis), "transport");
	assert_int_equal(json_array_size(checks), 1);
	assert_string_equal(said(checks, 0, "result"), "ok");
	assert_non_null(strstr(said(checks, 0, "words"), server_url(redis)));
	assert_non_null(strstr(said(checks, 0, "words"),
			       "put, get, head, lease, release"));
	json_decref(checks);
	server_stop(redis);
}

static void without_a_key_that_signs_nothing_is_uploaded(void **state)
{
	struct server *redis = server_redis(directory, NULL);
	json_t *checks;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	checks = examine(server_url(redis), "signed");
	assert_int_equal(json_array_size(checks), 2);
	assert_string_equal(said(checks, 1, "result"), "note");
	assert_non_null(strstr(said(checks, 1, "words"), "key to sign"));
	json_decref(checks);
	server_stop(redis);
}

static void what_is_wrong_with_a_server_is_said_in_words(void **state)
{
	const char *const options[] = { "--requirepass", "hunter2", NULL };
	struct server *redis = server_redis(directory, options);
	char remote[256];
	json_t *checks;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	snprintf(remote, sizeof(remote), "redis://127.0.0.1:1 %s",
		 server_url(redis));
	checks = examine(remote, "transport");
	assert_true(json_array_size(checks) >= 2);
	for (size_t i = 0; i < json_array_size(checks); i++) {
		assert_string_equal(said(checks, i, "result"), "note");
		assert_string_not_equal(said(checks, i, "remedy"), "");
	}
	assert_non_null(strstr(said(checks, 0, "words"), "KILN_E_IO"));
	assert_non_null(
		strstr(said(checks, json_array_size(checks) - 1, "words"),
		       "KILN_E_OWNER"));
	json_decref(checks);
	server_stop(redis);
}

static void a_setting_that_is_wrong_is_named(void **state)
{
	json_t *checks = examine("gopher://cache", "transport");

	for (size_t i = 0; i < json_array_size(checks); i++)
		assert_string_equal(said(checks, i, "result"), "note");
	json_decref(checks);
}

int main(int argc, char **argv)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
		ROW(a_server_that_is_well_is_said_so),
		ROW(without_a_key_that_signs_nothing_is_uploaded),
		ROW(what_is_wrong_with_a_server_is_said_in_words),
		ROW(a_setting_that_is_wrong_is_named),
	};
#undef ROW

	if (argc < 2) {
		fprintf(stderr, "usage: %s kiln\n", argv[0]);
		return 2;
	}
	kiln = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
