/* SPDX-License-Identifier: MIT */

/* A real redis-server, and a server that does all that is wrong. */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asking_test.h"

#define TOKEN "0011223344556677"
#define OTHER "8899aabbccddeeff"

static char *directory;
static struct server *redis;

static int start(void **state)
{
	directory = harness_directory();
	redis = server_redis(directory, NULL);
	return 0;
}

static int stop(void **state)
{
	server_stop(redis);
	free(directory);
	return 0;
}

/* ---- Items -------------------------------------------------------------- */

static void put_and_get(const char *url)
{
	struct asking asking;
	struct outcome outcome;
	char name[80];

	asking_init(&asking);
	asking_open(&asking, directory, url, NULL, NULL);
	(void)snprintf(name, sizeof(name), "put-and-get-%zu", strlen(url));
	asking_expect(&(struct outcome){ asking_get_status(&asking, name) },
		      KILN_MISS, NULL, 0);
	outcome = asking_head(&asking, name);
	asking_expect(&outcome, KILN_MISS, NULL, 0);
	outcome = asking_put(&asking, name, "a\0b\r\nc", 6, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(&asking, name);
	asking_expect(&outcome, KILN_OK, "a\0b\r\nc", 6);
	outcome = asking_head(&asking, name);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	assert_int_equal(outcome.total_bytes, 6);
	asking_close(&asking);
}

static void what_is_put_is_there_by_tcp_and_by_socket(void **state)
{
	char text[128];

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	put_and_get(server_url(redis));
	put_and_get(server_unix_url(redis));
	(void)snprintf(text, sizeof(text), "redis://localhost:%u/3",
		       server_port(redis));
	put_and_get(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_there_by_tcp_and_by_socket),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
