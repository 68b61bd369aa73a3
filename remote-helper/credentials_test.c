/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "credentials.h"
#include "remote/url.h"

/* In every line that is refused; no message may have it (S55). */
#define SECRET "hunter2"

static char *directory, *path;

static int start(void **state)
{
	directory = harness_directory();
	path = harness_path(directory, "credentials");
	return 0;
}

static int stop(void **state)
{
	free(path);
	free(directory);
	return 0;
}

static enum kiln_status load(const char *text, const char *const *environment,
			     struct credentials **out_credentials, char *why)
{
	harness_write(path, text, strlen(text));
	assert_int_equal(chmod(path, 0600), 0);
	return credentials_load(&ki_sys_posix, path, environment,
				out_credentials, why, 512);
}

static const struct credential *find(const struct credentials *credentials,
				     const char *text)
{
	const struct credential *found;
	struct url url;
	char why[512];

	assert_int_equal(ki_url_parse(text, &url, why, sizeof(why)), KILN_OK);
	found = credentials_find(credentials, &url);
	ki_url_fini(&url);
	return found;
}

static void the_line_of_the_longest_url_counts(void **state)
{
	static const char text[] =
		"# who we are\n"
		"\n"
		"https://cache/          bearer  token\r\n"
		"https://cache/team  basic  me  \"a b\\\"c\\\\d\"\n"
		"  redis://cache\tredis only-a-password\n"
		"unix:/run/redis.sock redis me password\n"
		"s3://bucket s3 access secret session region=eu-1 "
		"endpoint=http://minio:9000\n"
		"s3://bucket/inner s3 a b";
	const struct credential *found;
	struct credentials *credentials;
	char why[512];

	if (load(text, NULL, &credentials, why))
		fail_msg("%s", why);
	found = find(credentials, "https://cache/x");
	assert_int_equal(found->kind, CREDENTIAL_BEARER);
	assert_string_equal(found->secret, "token");
	found = find(credentials, "https://cache/team/x");
	assert_int_equal(found->kind, CREDENTIAL_BASIC);
	assert_string_equal(found->user, "me");
	assert_string_equal(found->secret, "a b\"c\\d");
	assert_string_equal(find(credentials, "https://cache/teams")->secret,
			    "token");
	assert_null(find(credentials, "http://cache/team"));
	assert_null(find(credentials, "https://cache.evil/"));
	found = find(credentials, "redis://cache/7");
	assert_null(found->user);
	assert_string_equal(found->secret, "only-a-password");
	found = find(credentials, "unix:/run/redis.sock");
	assert_string_equal(found->user, "me");
	assert_string_equal(found->secret, "password");
	found = find(credentials, "s3://bucket/other");
	assert_string_equal(found->user, "access");
	assert_string_equal(found->secret, "secret");
	assert_string_equal(found->session, "session");
	assert_string_equal(found->region, "eu-1");
	assert_string_equal(found->endpoint, "http://minio:9000");
	assert_string_equal(find(credentials, "s3://bucket/inner/x")->user,
			    "a");
	credentials_free(credentials);
}

static void the_environment_fills_what_the_file_leaves_open(void **state)
{
	static const char *const environment[] = {
		"AWS_ACCESS_KEY_ID=access",
		"AWS_SECRET_ACCESS_KEY=secret",
		"AWS_SESSION_TOKEN=session",
		"AWS_REGION=eu-1",
		"AWS_ENDPOINT_URL=https://minio",
		"REDISCLI_AUTH=a password",
		NULL
	};
	static const char *const half[] = { "AWS_ACCESS_KEY_ID=access",
					    "AWS_SECRET_ACCESS_KEY=", NULL };
	const struct credential *found;
	struct credentials *credentials;
	char why[512];

	assert_int_equal(load("s3://own s3 a b\nredis://own redis p\n",
			      environment, &credentials, why),
			 KILN_OK);
	found = find(credentials, "s3://bucket");
	assert_string_equal(found->user, "access");
	assert_string_equal(found->secret, "secret");
	assert_string_equal(found->session, "session");
	found = find(credentials, "s3://own");
	assert_string_equal(found->user, "a");
	assert_null(found->session);
	assert_string_equal(found->region, "eu-1");
	assert_string_equal(found->endpoint, "https://minio");
	assert_string_equal(find(credentials, "redis://own")->secret, "p");
	assert_string_equal(find(credentials, "redis://other")->secret,
			    "a password");
	assert_string_equal(find(credentials, "unix:/run/x")->secret,
			    "a password");
	assert_null(find(credentials, "http://host"));
	credentials_free(credentials);

	assert_int_equal(credentials_load(&ki_sys_posix, NULL, half,
					  &credentials, why, sizeof(why)),
			 KILN_OK);
	assert_null(find(credentials, "s3://bucket")->secret);
	assert_null(find(credentials, "redis://host"));
	credentials_free(credentials);
	assert_null(find(NULL, "redis://host"));
}

static void a_line_that_cannot_be_is_named_and_not_shown(void **state)
{
	static const char *const rows[][2] = {
		{ SECRET "\n", "a URL, basic" },
		{ "http://host\n", "a URL, basic" },
		{ "http://host basic\n", "a URL, basic" },
		{ "http://host " SECRET " x\n", "second word" },
		{ "http://me:" SECRET "@host basic a b\n",
		  "password in a URL" },
		{ "ftp://" SECRET " basic a b\n", "begins with" },
		{ "http://host basic " SECRET "\n", "a user and a password" },
		{ "http://host basic a b " SECRET "\n", "a user and" },
		{ "http://host basic a:b " SECRET "\n", "colon" },
		{ "http://host basic \"\" " SECRET "\n", "empty" },
		{ "http://host bearer \"a " SECRET "\"\n", "without blanks" },
		{ "http://host bearer a " SECRET "\n", "token" },
		{ "http://host bearer \"" SECRET "\n", "quotation" },
		{ "http://host bearer \"" SECRET "\"x\n", "quotation" },
		{ "http://host bearer " SECRET "\x01\n", "control" },
		{ "http://host redis " SECRET "\n", "redis://" },
		{ "redis://host basic a " SECRET "\n", "http://" },
		{ "redis://host redis a b " SECRET "\n", "`redis`" },
		{ "s3://bucket s3 " SECRET "\n", "a secret" },
		{ "s3://bucket s3 a " SECRET " c d\n", "a secret" },
		{ "s3://bucket s3 a b region=\xff" SECRET "\n", "region" },
		{ "s3://bucket s3 a b region= " SECRET "\n", "region" },
		{ "s3://bucket s3 a b endpoint=redis://" SECRET "\n",
		  "endpoint" },
		{ "s3://bucket s3 a b endpoint=http://me:" SECRET "@x\n",
		  "endpoint" },
		{ "http://host basic a b c d e f g h " SECRET "\n",
		  "too many" },
		{ "http://host basic a b\nhttp://HOST:80/ bearer " SECRET "\n",
		  "credentials:2: a line before it" },
	};
	struct credentials *credentials;
	char why[512];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(load(rows[i][0], NULL, &credentials, why),
				 KILN_E_INVALID);
		if (!strstr(why, rows[i][1]) || !strstr(why, "/credentials:"))
			fail_msg("%s: %s", rows[i][0], why);
		assert_null(strstr(why, SECRET));
	}
}

static void a_variable_that_cannot_be_is_named_and_not_shown(void **state)
{
	static const char *const rows[][2] = {
		{ "AWS_SECRET_ACCESS_KEY=" SECRET "\n",
		  "AWS_SECRET_ACCESS_KEY" },
		{ "AWS_SESSION_TOKEN=a " SECRET, "AWS_SESSION_TOKEN" },
		{ "AWS_REGION=" SECRET "!", "AWS_REGION" },
		{ "AWS_ENDPOINT_URL=http://me:" SECRET "@host",
		  "AWS_ENDPOINT_URL" },
		{ "REDISCLI_AUTH=\r" SECRET, "REDISCLI_AUTH" },
	};
	struct credentials *credentials;
	char why[512];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const char *const environment[] = { rows[i][0], NULL };

		assert_int_equal(credentials_load(&ki_sys_posix, NULL,
						  environment, &credentials,
						  why, sizeof(why)),
				 KILN_E_INVALID);
		assert_non_null(strstr(why, rows[i][1]));
		assert_null(strstr(why, SECRET));
	}
}

static enum kiln_status load_path(const char *name, char *why)
{
	struct credentials *credentials;

	return credentials_load(&ki_sys_posix, name, NULL, &credentials, why,
				512);
}

static void a_file_that_others_can_read_is_refused(void **state)
{
	static const struct {
		mode_t mode;
		enum kiln_status status;
	} rows[] = {
		{ 0600, KILN_OK },	{ 0400, KILN_OK },
		{ 0640, KILN_E_OWNER }, { 0604, KILN_E_OWNER },
		{ 0620, KILN_E_OWNER }, { 0601, KILN_E_OWNER },
	};
	char *other = harness_path(directory, "other"), why[512];
	struct credentials *credentials;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		harness_write(path, "http://host bearer x\n", 21);
		assert_int_equal(chmod(path, rows[i].mode), 0);
		assert_int_equal(credentials_load(&ki_sys_posix, path, NULL,
						  &credentials, why, 512),
				 rows[i].status);
		if (!rows[i].status)
			credentials_free(credentials);
		else
			assert_non_null(strstr(why, "chmod 600"));
		assert_int_equal(chmod(path, 0600), 0);
	}
	assert_int_equal(symlink(path, other), 0);
	assert_int_equal(load_path(other, why), KILN_E_OWNER);
	assert_non_null(strstr(why, "link"));
	assert_int_equal(unlink(other), 0);
	assert_int_equal(link(path, other), 0);
	assert_int_equal(load_path(path, why), KILN_E_OWNER);
	assert_non_null(strstr(why, "several names"));
	assert_int_equal(unlink(other), 0);
	assert_int_equal(load_path(other, why), KILN_E_IO);
	assert_int_equal(load_path(directory, why), KILN_E_OWNER);
	assert_int_equal(mkfifo(other, 0600), 0);
	assert_int_equal(load_path(other, why), KILN_E_OWNER);
	assert_int_equal(unlink(other), 0);
	free(other);
}

static void a_file_of_another_user_is_refused(void **state)
{
	char why[512];

	if (geteuid() != 0)
		HARNESS_LEAVE_OUT("only root can give a file away");
	harness_write(path, "http://host bearer x\n", 21);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(chown(path, 1234, 0), 0);
	assert_int_equal(load_path(path, why), KILN_E_OWNER);
	assert_non_null(strstr(why, "another user"));
	assert_int_equal(unlink(path), 0);
}

static void a_file_that_is_no_text_or_too_large_is_refused(void **state)
{
	char why[512];
	char *large = malloc((64u << 10) + 1);

	harness_write(path, "http://host bearer x\0y\n", 23);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(load_path(path, why), KILN_E_INVALID);
	assert_non_null(strstr(why, "NUL"));
	memset(large, '\n', (64u << 10) + 1);
	harness_write(path, large, (64u << 10) + 1);
	assert_int_equal(load_path(path, why), KILN_E_INVALID);
	assert_non_null(strstr(why, "64 KiB"));
	free(large);
}

static void the_environment_is_wiped(void **state)
{
	char *kept;

	assert_int_equal(setenv("REDISCLI_AUTH", SECRET, 1), 0);
	kept = getenv("REDISCLI_AUTH");
	credentials_wipe_environment();
	assert_null(getenv("REDISCLI_AUTH"));
	assert_int_equal(kept[0], '\0');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_line_of_the_longest_url_counts),
		cmocka_unit_test(
			the_environment_fills_what_the_file_leaves_open),
		cmocka_unit_test(a_line_that_cannot_be_is_named_and_not_shown),
		cmocka_unit_test(
			a_variable_that_cannot_be_is_named_and_not_shown),
		cmocka_unit_test(a_file_that_others_can_read_is_refused),
		cmocka_unit_test(a_file_of_another_user_is_refused),
		cmocka_unit_test(
			a_file_that_is_no_text_or_too_large_is_refused),
		cmocka_unit_test(the_environment_is_wiped),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
