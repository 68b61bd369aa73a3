/* SPDX-License-Identifier: MIT */

/* @20minutes/s3rver, which looks at signatures, and a server that shows what it
   was asked. */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asking_test.h"
#include "bad_server_test.h"

#define OK_ABC "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"

static char *directory;
static struct server *s3;

static int start(void **state)
{
	/* A proxy of the machine's would be asked for 127.0.0.1. */
	(void)unsetenv("http_proxy");
	(void)unsetenv("all_proxy");
	(void)unsetenv("ALL_PROXY");
	(void)unsetenv("HTTPS_PROXY");
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

/* ---- What is asked ------------------------------------------------------ */

static void requests_have_what_s3_wants_to_see(void **state)
{
	static const struct {
		const char *words;
		const char *has[4], *has_not[3];
	} rows[] = {
		{ "a-key " ASKING_SECRET " a-session region=eu-1",
		  { "/eu-1/s3/aws4_request", "x-amz-security-token: a-session",
		    "x-amz-content-sha256: UNSIGNED-PAYLOAD",
		    "host;x-amz-content-sha256;x-amz-date;"
		    "x-amz-security-token" },
		  { ASKING_SECRET, "Expect", "?" } },
		{ "a-key " ASKING_SECRET,
		  { "/us-east-1/s3/aws4_request",
		    "SignedHeaders=host;x-amz-content-sha256;x-amz-date,",
		    "Credential=a-key/", "User-Agent: kiln-remote" },
		  { "x-amz-security-token", ASKING_SECRET, "?" } },
	};
	struct bad_server *bad;
	struct asking asking;
	struct outcome outcome;
	char line[512];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, OK_ABC, strlen(OK_ABC), BAD_KEEP);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const char *asked = bad_server_asked(bad);

		(void)snprintf(
			line, sizeof(line),
			"s3://bucket s3 %s endpoint=http://127.0.0.1:%u\n",
			rows[i].words, bad_server_port(bad));
		asking_open(&asking, directory, "s3://bucket/a/b", line, NULL);
		outcome = asking_get(&asking, ASKING_NAME);
		asking_expect(&outcome, KILN_OK, "abc", 3);
		asked = strstr(asked, "GET /bucket/a/b/" ASKING_NAME " ");
		assert_non_null(asked);
		for (size_t j = 0; j < 4; j++)
			if (!strstr(asked, rows[i].has[j]))
				fail_msg("%s: %s", rows[i].has[j], asked);
		for (size_t j = 0; j < 3; j++)
			if (strstr(asked, rows[i].has_not[j]))
				fail_msg("%s: %s", rows[i].has_not[j], asked);
		asking_close_backend(&asking);
		bad_server_free(bad);
		bad = bad_server_new(asking.loop, OK_ABC, strlen(OK_ABC),
				     BAD_KEEP);
	}
	bad_server_free(bad);
	asking_close(&asking);
}

/* Where no endpoint is named, it is Amazon's: what a proxy is asked for. */
static void a_bucket_is_at_amazon_unless_an_endpoint_is_named(void **state)
{
	static const char *const rows[][3] = {
		{ "s3://bucket/x", "region=eu-1",
		  "CONNECT bucket.s3.eu-1.amazonaws.com:443 " },
		{ "s3://bucket", "",
		  "CONNECT bucket.s3.us-east-1.amazonaws.com:443 " },
		{ "s3://a.bucket", "region=eu-1",
		  "CONNECT s3.eu-1.amazonaws.com:443 " },
		{ "s3://bucket", "endpoint=https://minio:9000/base/",
		  "CONNECT minio:9000 " },
		{ "s3://public", NULL,
		  "CONNECT public.s3.us-east-1.amazonaws.com:443 " },
	};
	static const char refusal[] =
		"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n";
	struct bad_server *bad;
	struct asking asking;
	struct outcome outcome;
	char line[512], proxy[64];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, refusal, strlen(refusal), BAD_CLOSE);
	(void)snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u",
		       bad_server_port(bad));
	assert_int_equal(setenv("https_proxy", proxy, 1), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		(void)snprintf(line, sizeof(line),
			       "%s s3 key " ASKING_SECRET " %s\n", rows[i][0],
			       rows[i][1]);
		asking_open(&asking, directory, rows[i][0],
			    rows[i][1] ? line : NULL, NULL);
		outcome = asking_get(&asking, ASKING_NAME);
		asking_expect(&outcome, KILN_E_IO, NULL, 0);
		if (!strstr(bad_server_asked(bad), rows[i][2]))
			fail_msg("%s: %s", rows[i][2], bad_server_asked(bad));
		asking_close_backend(&asking);
	}
	assert_int_equal(unsetenv("https_proxy"), 0);
	bad_server_free(bad);
	asking_close(&asking);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_have_what_s3_wants_to_see),
		cmocka_unit_test(
			a_bucket_is_at_amazon_unless_an_endpoint_is_named),
		cmocka_unit_test(what_is_put_into_a_bucket_is_there),
		cmocka_unit_test(a_wrong_secret_is_refused),
		cmocka_unit_test(a_part_of_an_object_is_had_by_its_range),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
