/* SPDX-License-Identifier: MIT */

/* kiln doctor on servers that are well, dead, and closed to us. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "harness/servers_test.h"
#include "home_test.h"

static char *kiln;
static int has_said_all; /* also what comes last */

static struct ended doctor(const char *remote, const char *trust,
			   const char *packs)
{
	const char *const arguments[] = { "doctor", "--json", NULL };
	const char *const variables[] = {
		remote, trust, packs,
		/* What is not asked after here takes time. */
		"OCL_ICD_VENDORS=/nowhere", "ZE_ENABLE_ALT_DRIVERS=/nowhere",
		NULL
	};

	return home_run(kiln, arguments, variables);
}

/* What doctor says of the remote, its checks alone. */
static json_t *examine(const char *remote, const char *trust)
{
	char servers[2048], trusts[64];
	json_t *checks = json_array(), *root, *check;
	struct ended ended;
	const char *name;
	size_t i;

	snprintf(servers, sizeof(servers), "KILN_REMOTE=%s", remote);
	snprintf(trusts, sizeof(trusts), "KILN_REMOTE_TRUST=%s", trust);
	ended = doctor(servers, trusts, "KILN_PACKS");
	root = json_loads(ended.out, 0, NULL);
	assert_non_null(root);
	has_said_all = 0;
	json_array_foreach(json_object_get(root, "checks"), i, check)
	{
		name = json_string_value(json_object_get(check, "name"));
		if (!strcmp(name, "remote"))
			json_array_append(checks, check);
		has_said_all |= !strcmp(name, "ze driver");
	}
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
	struct server *redis = server_redis(home_directory, NULL);
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

/* ---- Signatures ------------------------------------------------------------- */

static void key(const char *verb, const char *name)
{
	const char *const arguments[] = { "key", verb, name, NULL };
	struct ended ended = home_run(kiln, arguments, arguments + 3);

	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
}

static void open_to_others(void)
{
	char *path =
		harness_path(home_directory, "config/kiln/keys/default.secret");

	assert_int_equal(chmod(path, 0644), 0);
	free(path);
}

/* Behind what is said of the server. */
static void expect_notes(const char *remote, const char *first,
			 const char *second)
{
	const char *const words[] = { first, second };
	json_t *checks = examine(remote, "signed");
	size_t n = first ? second ? 3 : 2 : 1;

	assert_int_equal(json_array_size(checks), n);
	assert_string_equal(said(checks, 0, "result"), "ok");
	for (size_t i = 1; i < n; i++) {
		assert_string_equal(said(checks, i, "result"), "note");
		assert_string_not_equal(said(checks, i, "remedy"), "");
		if (!strstr(said(checks, i, "words"), words[i - 1]))
			fail_msg("'%s' is not in '%s'", words[i - 1],
				 said(checks, i, "words"));
	}
	json_decref(checks);
}

static void what_signatures_lack_is_said(void **state)
{
	struct server *redis = server_redis(home_directory, NULL);
	const char *url;
	char only_read[256];

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	url = server_url(redis);
	snprintf(only_read, sizeof(only_read), "%s#read-only", url);
	expect_notes(only_read, "no key is trusted", NULL);
	expect_notes(url, "no key is trusted", "no key to sign with");
	key("new", "default");
	expect_notes(url, "no key is trusted", "not trusted here");
	key("trust", "default");
	expect_notes(url, NULL, NULL);
	open_to_others();
	expect_notes(url, "can be read by others", NULL);
	server_stop(redis);
}

/* ---- Trouble ---------------------------------------------------------------- */

static void what_is_wrong_with_a_server_is_said_in_words(void **state)
{
	const char *const options[] = { "--requirepass", "hunter2", NULL };
	struct server *redis = server_redis(home_directory, options);
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

/* What comes behind them is said all the same. */
static void of_many_servers_each_is_told_of(void **state)
{
	enum { N = 40 };
	char remote[N * 24], *at = remote;
	json_t *checks;

	for (unsigned i = 0; i < N; i++)
		at += snprintf(at, 24, "%sunix:/nowhere/%u", i ? "," : "", i);
	checks = examine(remote, "transport");
	assert_int_equal(json_array_size(checks), N);
	assert_true(has_said_all);
	json_decref(checks);
}

static void a_pack_on_a_server_is_tried(void **state)
{
	struct server_nginx_options options = { 0 };
	struct server *nginx = server_nginx(home_directory, &options);
	struct ended ended;
	char url[256];

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	snprintf(url, sizeof(url), "KILN_PACKS=%snone.pack", server_url(nginx));
	ended = doctor("KILN_REMOTE", "KILN_REMOTE_TRUST", url);
	assert_non_null(strstr(ended.out, "none.pack is not used"));
	assert_non_null(strstr(ended.out, "KILN_MISS"));
	assert_null(strstr(ended.out, "pack:FILE"));
	ended_free(&ended);
	server_stop(nginx);
}

/* It is read all the same. */
static void a_replica_is_one_that_takes_nothing(void **state)
{
	const char *const options[] = { "--replicaof", "127.0.0.1 1",
					"--replica-serve-stale-data", "yes",
					NULL };
	struct server *redis = server_redis(home_directory, options);
	json_t *checks;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	checks = examine(server_url(redis), "transport");
	assert_true(json_array_size(checks) >= 1);
	assert_string_equal(said(checks, 0, "result"), "note");
	assert_non_null(strstr(said(checks, 0, "words"), "READONLY"));
	assert_non_null(strstr(said(checks, 0, "remedy"), "#read-only"));
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
#define ROW(test)                                                              \
	cmocka_unit_test_setup_teardown(test, home_set_up, home_tear_down)
	static const struct CMUnitTest tests[] = {
		ROW(a_server_that_is_well_is_said_so),
		ROW(what_signatures_lack_is_said),
		ROW(what_is_wrong_with_a_server_is_said_in_words),
		ROW(of_many_servers_each_is_told_of),
		ROW(a_pack_on_a_server_is_tried),
		ROW(a_replica_is_one_that_takes_nothing),
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
