/* SPDX-License-Identifier: MIT */

/* @20minutes/s3rver, which looks at signatures. */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asking_test.h"

static char *directory;
static struct server *s3;

static int start(void **state)
{
	directory = harness_directory();
	s3 = server_s3(directory);
	return 0;
}

static int stop(void **state)
{
	server_stop(s3);
	free(directory);
	return 0;
}

static void open_s3(struct asking *asking, const char *prefix,
		    const char *secret, const char *rest)
{
	char line[512], url[128];

	(void)snprintf(url, sizeof(url), "s3://" SERVER_S3_BUCKET "%s", prefix);
	(void)snprintf(line, sizeof(line),
		       "%s s3 " SERVER_S3_ACCESS " %s %s endpoint=%s\n", url,
		       secret, rest, server_url(s3));
	asking_init(asking);
	asking_open(asking, directory, url, line, NULL);
}

static void put_and_get(struct asking *asking)
{
	struct outcome outcome;

	assert_int_equal(asking_get_status(asking, ASKING_NAME), KILN_MISS);
	outcome = asking_head(asking, ASKING_NAME);
	asking_expect(&outcome, KILN_MISS, NULL, 0);
	outcome = asking_put(asking, ASKING_NAME, "a\0b\r\nc", 6, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(asking, ASKING_NAME);
	asking_expect(&outcome, KILN_OK, "a\0b\r\nc", 6);
	outcome = asking_head(asking, ASKING_NAME);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	assert_int_equal(outcome.total_bytes, 6);
}

static void what_is_put_into_a_bucket_is_there(void **state)
{
	static const char *const rows[][2] = {
		{ "", "" },
		{ "/a/prefix", "region=eu-central-1" },
		{ "/session", "a-session-token" },
	};

	if (!s3)
		HARNESS_LEAVE_OUT("no s3rver: KILN_TEST_S3RVER names it");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct asking asking;

		open_s3(&asking, rows[i][0], SERVER_S3_SECRET, rows[i][1]);
		put_and_get(&asking);
		asking_close(&asking);
	}
}

/* S53 */
static void a_wrong_secret_is_refused(void **state)
{
	struct asking asking;
	struct outcome outcome;

	if (!s3)
		HARNESS_LEAVE_OUT("no s3rver: KILN_TEST_S3RVER names it");
	open_s3(&asking, "/wrong", ASKING_SECRET, "");
	outcome = asking_get(&asking, ASKING_NAME);
	asking_expect(&outcome, KILN_E_OWNER, NULL, 0);
	outcome = asking_put(&asking, ASKING_NAME, "abc", 3, 0, 0);
	asking_expect(&outcome, KILN_E_OWNER, NULL, 0);
	assert_non_null(strstr(outcome.why, "403"));
	asking_close(&asking);
}

static void a_part_of_an_object_is_had_by_its_range(void **state)
{
	struct asking asking;
	struct outcome outcome;
	char tag[128] = "";

	if (!s3)
		HARNESS_LEAVE_OUT("no s3rver: KILN_TEST_S3RVER names it");
	open_s3(&asking, "/range", SERVER_S3_SECRET, "");
	assert_int_equal(asking_put_status(&asking, "r", "0123456789"),
			 KILN_OK);
	outcome = asking_range(&asking, "r", 2, 3, tag);
	asking_expect(&outcome, KILN_OK, "234", 3);
	assert_int_equal(outcome.total_bytes, 10);
	assert_int_not_equal(tag[0], '\0');
	assert_int_equal(asking_put_status(&asking, "r", "9876543210"),
			 KILN_OK);
	outcome = asking_range(&asking, "r", 2, 3, tag);
	asking_expect(&outcome, KILN_E_IO, NULL, 0);
	asking_close(&asking);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_into_a_bucket_is_there),
		cmocka_unit_test(a_wrong_secret_is_refused),
		cmocka_unit_test(a_part_of_an_object_is_had_by_its_range),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
