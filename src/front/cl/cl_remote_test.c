/* SPDX-License-Identifier: MIT */

/*
 * libkiln-cl and what is on servers, where there is no store that takes anything.
 */

#include "harness/harness.h"

#include <unistd.h>

#include <kiln/inspect.h>
#include <kiln/pack.h>
#include <kiln/remote.h>

#include "front/cl/place_test.h"
#include "harness/servers_test.h"

#define LATE_MAX 10

static const char *remote_program;
static char *directory;
static struct server *redis;

/* ---- The scene ---------------------------------------------------------------- */

/* Settings that are not those of the test's. */
static void forget_settings(void)
{
	static const char *const names[] = { "KILN_DIR",   "KILN_STORE",
					     "KILN_PACKS", "KILN_READONLY",
					     "HOME",	   "XDG_CACHE_HOME" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	setenv("XDG_CONFIG_HOME", "/nowhere", 1);
	setenv("XDG_RUNTIME_DIR", directory, 1);
	setenv("KILN_REMOTE_TRUST", "transport", 1);
}

/* By the settings; the texts are the config's. */
static struct kiln_options options_now(struct kiln_config **out_config)
{
	struct kiln_options options;
	char message[512] = "";

	if (kiln_config_load(out_config, message, sizeof(message)))
		fail_msg("%s", message);
	kiln_options_init(&options);
	kiln_config_options(*out_config, &options);
	return options;
}

/* The servers by what is said of them, from now on. */
static void name_servers(const char *words)
{
	char url[256];

	snprintf(url, sizeof(url), "%s%s", server_url(redis), words);
	setenv("KILN_REMOTE", url, 1);
}

static void start_helper(void)
{
	struct kiln_config *config;
	struct kiln_options options;
	char why[256] = "";

	options = options_now(&config);
	if (kiln_remote_start(&options, remote_program, why, sizeof(why)))
		fail_msg("%s", why);
	kiln_config_free(config);
}

static void await_uploads(void)
{
	struct kiln_config *config;
	struct kiln_options options = options_now(&config);

	assert_int_equal(kiln_remote_drain(&options, 60000), KILN_OK);
	kiln_config_free(config);
}

static int begin(void **state)
{
	char *calls;

	directory = harness_directory();
	redis = server_redis(directory, NULL);
	calls = harness_path(directory, "calls");
	setenv("KILN_TEST_ICD_CALLS", calls, 1);
	free(calls);
	forget_settings();
	if (!redis)
		return 0;
	name_servers("");
	start_helper();
	return 0;
}

/* The helper ends when the name of its socket is gone. */
static int end(void **state)
{
	server_stop(redis);
	unsetenv("KILN_TEST_ICD_CALLS");
	harness_remove(directory);
	free(directory);
	return 0;
}

/* How often the driver has done that since forget_calls(). */
static int n_calls(const char *name)
{
	char *path = harness_path(directory, "calls");
	char *text = harness_read(path, NULL), *line, *rest = text;
	int n = 0;

	while ((line = text ? strsep(&rest, "\n") : NULL))
		n += !strcmp(line, name);
	free(text);
	free(path);
	return n;
}

static void forget_calls(void)
{
	char *path = harness_path(directory, "calls");

	(void)unlink(path);
	free(path);
}

/* ---- A program's life ------------------------------------------------------------ */

/* Of the user's settings, or of a kiln that is the caller's. */
static void open_place(struct place *place, const struct kiln_options *its)
{
	struct kiln_cl_options options;

	kiln_cl_options_init(&options);
	if (its)
		assert_int_equal(kiln_open(its, &place->kiln), KILN_OK);
	options.kiln = place->kiln;
	assert_int_equal(kiln_cl_open(context, &options, &place->cl), KILN_OK);
}

static void use(struct place *place, const char *options, int value)
{
	struct kiln_cl_build build = source_build(SCALE, options);

	assert_int_equal(value_of(place, &build), value);
}

/* Whether its program was found. */
static int is_found(const struct kiln_options *its, const char *options,
		    int value)
{
	struct place place = { 0 };
	int found;

	open_place(&place, its);
	use(&place, options, value);
	found = stats_of(&place).from_store == 1;
	place_close(&place);
	return found;
}

/* What one start builds the next one finds, two programs each. */
static void expect_shared(const struct kiln_options *its, int first)
{
	struct place place = { 0 };
	char options[2][32];

	forget_calls();
	open_place(&place, its);
	for (int i = 0; i < 2; i++) {
		snprintf(options[i], sizeof(options[i]), "-DFACTOR=%d",
			 first + i);
		use(&place, options[i], first + i);
	}
	place_close(&place);
	assert_int_equal(n_calls("build-source"), 2);
	assert_int_equal(n_calls("fetch"), 2);
	await_uploads();
	for (int i = 0; i < 2; i++) {
		int n = 0;

		/* What is late on a busy machine is at hand the next time. */
		while (n++ < LATE_MAX && !is_found(its, options[i], first + i))
			;
		if (n > LATE_MAX)
			fail_msg("%s", options[i]);
	}
}

static void expect_nothing_fetched(const struct kiln_options *its, int value)
{
	char options[32];

	snprintf(options, sizeof(options), "-DFACTOR=%d", value);
	forget_calls();
	assert_false(is_found(its, options, value));
	assert_int_equal(n_calls("build-source"), 1);
	assert_int_equal(n_calls("fetch"), 0);
}

/* ---- Tests ------------------------------------------------------------------------ */

static char *new_pack(void)
{
	char *path = harness_path(directory, "a.pack");
	struct kiln_key *key = kiln_key_new();
	struct kiln_pack_writer *writer;

	kiln_key_add_string(key, "name", "a");
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(kiln_pack_add(writer, key, NULL, 0, "value", 5),
			 KILN_OK);
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	kiln_key_free(key);
	return path;
}

/* As programs under `kiln run` have it. */
static void without_a_store_the_servers_have_what_is_built(void **state)
{
	char *pack, store[300];
	const struct {
		const char *name, *value;
	} rows[] = {
		{ "KILN_DIR", "/dev/null/kiln" },
		{ "HOME", "/" }, /* names no directory */
		{ "KILN_STORE", "sycl:" },
		{ "KILN_STORE", store }, /* takes nothing */
	};

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pack = new_pack();
	snprintf(store, sizeof(store), "pack:%s", pack);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv(rows[i].name, rows[i].value, 1);
		expect_shared(NULL, 10 + (int)i * 10);
		unsetenv(rows[i].name);
	}
	free(pack);
}

static void a_kiln_of_the_callers_is_no_other(void **state)
{
	struct kiln_config *config;
	struct kiln_options options;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	options = options_now(&config);
	options.store_url = "log:/dev/null/kiln";
	expect_shared(&options, 60);
	kiln_config_free(config);
}

/* The driver takes its time for it. */
static void nothing_is_fetched_for_nobody(void **state)
{
	const struct {
		const char *name, *value;
	} rows[] = {
		{ "KILN_REMOTE", "redis://127.0.0.1:1" },
		{ "KILN_READONLY", "1" },
	};
	struct kiln_config *config;
	struct kiln_options options;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	options = options_now(&config);
	options.store_url = "log:/dev/null/kiln";
	options.flags |= KILN_OPEN_READONLY;
	expect_nothing_fetched(&options, 70);
	kiln_config_free(config);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv(rows[i].name, rows[i].value, 1);
		expect_nothing_fetched(NULL, 71 + (int)i);
		unsetenv(rows[i].name);
		setenv("KILN_REMOTE", server_url(redis), 1);
	}
}

/* Which it says when it is asked, and on a busy machine it may be late. */
static void nothing_is_fetched_for_what_is_only_read(void **state)
{
	int n = 0;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	name_servers("#read-only");
	start_helper();
	setenv("KILN_STORE", "sycl:", 1);
	do {
		char options[32];

		snprintf(options, sizeof(options), "-DFACTOR=%d", 80 + n);
		forget_calls();
		assert_false(is_found(NULL, options, 80 + n));
		assert_int_equal(n_calls("build-source"), 1);
	} while (n_calls("fetch") && ++n < LATE_MAX);
	unsetenv("KILN_STORE");
	assert_true(n < LATE_MAX);
}

/* Its socket is what there is of it. */
static void take_helper_away(void)
{
	char *sockets = harness_path(directory, "kiln");

	harness_remove(sockets);
	free(sockets);
}

/* Each is given what is built while it is there. */
static void helpers_come_and_go_while_a_program_runs(void **state)
{
	struct place place = { 0 };

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	setenv("KILN_STORE", "sycl:", 1);
	forget_calls();
	open_place(&place, NULL);
	use(&place, "-DFACTOR=90", 90);
	assert_int_equal(kiln_cl_keep(place.cl), KILN_OK);
	assert_int_equal(n_calls("fetch"), 1);
	use(&place, "-DFACTOR=91", 91);
	take_helper_away();
	assert_int_equal(kiln_cl_keep(place.cl), KILN_OK);
	use(&place, "-DFACTOR=92", 92);
	place_close(&place);
	assert_int_equal(n_calls("build-source"), 3);
	assert_int_equal(n_calls("fetch"), 1);

	open_place(&place, NULL);
	start_helper();
	use(&place, "-DFACTOR=93", 93);
	place_close(&place);
	assert_int_equal(n_calls("fetch"), 2);
	unsetenv("KILN_STORE");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			without_a_store_the_servers_have_what_is_built, begin,
			end),
		cmocka_unit_test_setup_teardown(
			a_kiln_of_the_callers_is_no_other, begin, end),
		cmocka_unit_test_setup_teardown(nothing_is_fetched_for_nobody,
						begin, end),
		cmocka_unit_test_setup_teardown(
			nothing_is_fetched_for_what_is_only_read, begin, end),
		cmocka_unit_test_setup_teardown(
			helpers_come_and_go_while_a_program_runs, begin, end),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s kiln-remote\n", argv[0]);
		return 2;
	}
	remote_program = argv[1];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
