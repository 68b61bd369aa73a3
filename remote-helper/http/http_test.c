/* SPDX-License-Identifier: MIT */

/* A real nginx, and a server that does all that is wrong. */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "asking_test.h"
#include "bad_server_test.h"

static char *directory;

static int start(void **state)
{
	directory = harness_directory();
	return 0;
}

static int stop(void **state)
{
	free(directory);
	return 0;
}

/* ---- nginx -------------------------------------------------------------- */

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

static void what_is_put_into_nginx_is_there(void **state)
{
	const struct server_nginx_options options = { 0 };
	struct server *nginx = server_nginx(directory, &options);
	struct asking asking;

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	asking_init(&asking);
	asking_open(&asking, directory, server_url(nginx), NULL, NULL);
	put_and_get(&asking);
	asking_close(&asking);
	server_stop(nginx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_into_nginx_is_there),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
