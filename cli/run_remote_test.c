/* SPDX-License-Identifier: MIT */

/* kiln run and what is on servers: a pack that is given as a URL, and what a program
   has whose store cannot be made, or not even named. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "harness/servers_test.h"
#include "home_test.h"

#define LATE_MAX 10

static const char *program; /* kiln */
static const char *example;
static const char *driver;

/* `kiln ARGUMENTS`, with a store and keys, and with no remote that is set. */
static struct ended ask(const char *const *arguments)
{
	return home_run(program, arguments,
			(const char *[]){ "KILN_REMOTE", "KILN_PACKS", NULL });
}

static void expect_done(const char *const *arguments)
{
	struct ended ended = ask(arguments);

	if (status_of(&ended))
		fail_msg("%s: %s", arguments[0], ended.err);
	ended_free(&ended);
}

static void put_an_entry(void)
{
	struct kiln_key *key = kiln_key_new();
	struct kiln_options options;
	struct kiln *kiln;
	char url[512];

	snprintf(url, sizeof(url), "log:%s/kiln", home_directory);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	kiln_key_add_string(key, "name", "a");
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	assert_int_equal(kiln_put(kiln, key, "value", 5, NULL, 0), KILN_OK);
	kiln_close(kiln);
	kiln_key_free(key);
}

/* At the server's a.pack, signed by a key that is trusted here. */
static void publish_a_pack(void)
{
	char *pack = harness_path(home_directory, "www/a.pack");

	expect_done((const char *[]){ "key", "new", "default", NULL });
	expect_done((const char *[]){ "key", "trust", "default", NULL });
	put_an_entry();
	expect_done((const char *[]){ "export", pack, NULL });
	assert_int_equal(chmod(pack, 0644), 0);
	free(pack);
}

/* What the program finds in KILN_PACKS has been opened before: through a helper
   that nothing else has started. */
static void a_pack_given_as_a_url_is_read_by_a_helper(void **state)
{
	struct server_nginx_options options = { 0 };
	struct server *nginx = server_nginx(home_directory, &options);
	char pack[256], missing[256];
	const struct {
		const char *url, *packs, *said;
	} rows[] = {
		{ pack, pack, "" },
		{ missing, "", "KILN_MISS: running without it" },
		{ "gopher://a/b", "", "running without it" },
		{ "http://u:secret@a/b.pack", "", "running without it" },
		{ "http://u:secret@a/b,c", "", "a comma" },
		{ "http://a/b.pack http://a/c.pack", "",
		  "there is a blank in a URL; a comma separates packs" },
	};

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	snprintf(pack, sizeof(pack), "%sa.pack", server_url(nginx));
	snprintf(missing, sizeof(missing), "%snone.pack", server_url(nginx));
	publish_a_pack();
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended = ask((const char *[]){
			"run", "--pack", rows[i].url, "--", "sh", "-c",
			"printf %s \"$KILN_PACKS\"", NULL });

		if (!strstr(ended.err, rows[i].said) ||
		    strstr(ended.err, "secret") ||
		    strcmp(ended.out, rows[i].packs) != 0)
			fail_msg("%s: %s: %s", rows[i].url, ended.out,
				 ended.err);
		assert_int_equal(status_of(&ended), 0);
		ended_free(&ended);
	}
	server_stop(nginx);
}

/* ---- Without a store -------------------------------------------------------- */

/* What says where a store is; the others are not set. */
struct place {
	const char *variables[3];
};

/* A run of the example, with this place for a store and that one for a helper. */
static void run_example(const char *remote, const struct place *store,
			const char *runtime, const char *said)
{
	enum { FIRST = 15 };
	char vendors[512], log[512], servers[256], place[512];
	struct spawn spawn = {
		.program = program,
		.arguments = { "run", "--wait", "--", example },
		.variables = { vendors, log, servers, place,
			       "KILN_REMOTE_TRUST=transport", "KILN_TRACE=1",
			       "XDG_CONFIG_HOME=/nowhere", "KILN_PACKS",
			       "OPENCL_LAYERS", "KILN_DIR", "KILN_STORE",
			       "HOME", "XDG_CACHE_HOME", "NEO_CACHE_DIR",
			       "NEO_CACHE_PERSISTENT" }
	};
	struct ended ended;

	snprintf(vendors, sizeof(vendors), "OCL_ICD_VENDORS=%s", driver);
	snprintf(log, sizeof(log), "KILN_LOG=%s/log", home_directory);
	snprintf(servers, sizeof(servers), "KILN_REMOTE=%s", remote);
	snprintf(place, sizeof(place), "XDG_RUNTIME_DIR=%s", runtime);
	memcpy(spawn.variables + FIRST, store->variables,
	       sizeof(store->variables));
	ended = spawn_run(&spawn);
	if (status_of(&ended) || strcmp(ended.out, "ok\n") != 0 ||
	    !strstr(ended.err, said))
		fail_msg("%d: %s: %s", status_of(&ended), ended.out, ended.err);
	ended_free(&ended);
}

/* Lines of the log that have these words; the log begins anew. */
static unsigned take_lines(const char *words)
{
	char *path = harness_path(home_directory, "log");
	char *text = harness_read(path, NULL), *rest = text, *line;
	unsigned n = 0;

	while (rest && (line = strsep(&rest, "\n")))
		n += strstr(line, words) != NULL;
	free(text);
	(void)unlink(path);
	free(path);
	return n;
}

/* Where there is no helper, not even a key is taken. */
static void a_program_without_a_store_has_the_remote(void **state)
{
	static const struct place rows[] = {
		{ { "KILN_DIR=/dev/null/kiln" } },
		{ { NULL } },
		{ { "HOME=/", "XDG_CACHE_HOME=relative" } },
		{ { "KILN_STORE=neo:" } },
		{ { "KILN_STORE=sycl:" } },
	};
	struct server *redis = server_redis(home_directory, NULL);
	char dir[512];
	const struct place store = { { dir } };
	const char *url;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	url = server_url(redis);
	snprintf(dir, sizeof(dir), "KILN_DIR=%s/kiln", home_directory);
	run_example(url, &store, home_directory, "");
	assert_int_equal(take_lines(" miss"), 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		unsigned n = 0;

		/* What comes too late on a busy machine is at the helper's
		   next time. */
		while (n++ < LATE_MAX && !take_lines(" hit"))
			run_example(url, &rows[i], home_directory, "");
		if (n > LATE_MAX)
			fail_msg("row %zu", i);
		run_example(url, &rows[i], "/dev/null",
			    "running without remote");
		assert_int_equal(take_lines("opencl: "), 0);
	}
	server_stop(redis);
}

/* Whoever wants no cache has none that is elsewhere, either. */
static void a_store_that_is_switched_off_has_no_remote(void **state)
{
	static const struct place rows[] = {
		{ { "KILN_STORE=neo:", "NEO_CACHE_PERSISTENT=0" } },
		{ { "KILN_STORE=neo:", "NEO_CACHE_PERSISTENT=0",
		    "HOME=/nowhere" } },
		{ { "KILN_DISABLE=1" } },
	};
	struct server *redis = server_redis(home_directory, NULL);
	char dir[512];
	const struct place store = { { dir } };
	const char *url;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	url = server_url(redis);
	snprintf(dir, sizeof(dir), "KILN_DIR=%s/kiln", home_directory);
	run_example(url, &store, home_directory, "");
	assert_int_equal(take_lines(" miss"), 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		run_example(url, &rows[i], home_directory, "");
		assert_int_equal(take_lines("opencl: "), 0);
	}
	server_stop(redis);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_pack_given_as_a_url_is_read_by_a_helper, home_set_up,
			home_tear_down),
		cmocka_unit_test_setup_teardown(
			a_program_without_a_store_has_the_remote, home_set_up,
			home_tear_down),
		cmocka_unit_test_setup_teardown(
			a_store_that_is_switched_off_has_no_remote, home_set_up,
			home_tear_down),
	};

	if (argc < 4) {
		fprintf(stderr, "usage: %s kiln one_kernel DRIVER\n", argv[0]);
		return 2;
	}
	program = argv[1];
	example = argv[2];
	driver = argv[3];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
