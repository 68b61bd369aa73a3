/* SPDX-License-Identifier: MIT */

/*
 * What talks to servers, whose allocations fail while it is asked: whoever asks is in
 * the middle of something, and is called back from the loop (backend.h), but for what
 * it asks just now and there is no memory for.  And it is called back: no request is
 * without an end for want of memory.
 */

#include "harness/harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/fault.h"
#include "remote-helper/asking_test.h"
#include "remote-helper/bad_server_test.h"

#define CALLS	  2
#define NAMES	  3 /* of each */
#define SILENT_MS 5

struct asked {
	struct answer answer; /* first */
	unsigned call;
};

static unsigned call; /* that is being made, from 1; 0: none */
static unsigned n_early;

static void done(void *arg, const struct outcome *outcome)
{
	const struct asked *asked = arg;

	if (call)
		n_early += outcome->status != KILN_E_NO_MEMORY ||
			   asked->call != call;
	free(outcome->body);
	asking_done(arg, outcome);
}

static void ask(struct asking *asking, struct asked asked[NAMES], unsigned n)
{
	const char *names[NAMES] = { "a", "b", "c" };
	void *args[NAMES];

	for (unsigned i = 0; i < n; i++) {
		asked[i] = (struct asked){ { .asking = asking }, call };
		args[i] = &asked[i];
	}
	asking->backend->ops->get(asking->backend, names, n, asking->body_max,
				  asking->timeout_ms, done, args);
}

static const struct {
	const char *url, *says;
	enum kiln_status status; /* if nothing fails */
	int is_silent;		 /* then one asks, whom nobody else wakes up */
} rows[] = {
	/* To all at once: it counts no questions. */
	{ "redis://127.0.0.1:%u", "$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n",
	  KILN_MISS },
	{ "redis://127.0.0.1:1", "", KILN_E_IO },
	{ "unix:/nowhere/redis.sock", "", KILN_E_IO },
	{ "http://127.0.0.1:%u", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
	  KILN_MISS },
	{ "http://127.0.0.1:1", "", KILN_E_IO },
	{ "redis://127.0.0.1:%u", "", KILN_E_TIMEOUT, 1 },
	{ "http://127.0.0.1:%u", "", KILN_E_TIMEOUT, 1 },
};

static void do_round(struct fault *fault, const char *directory, size_t row)
{
	const char *url = rows[row].url, *says = rows[row].says;
	const int is_silent = rows[row].is_silent;
	const unsigned n_calls = is_silent ? 1 : CALLS;
	const unsigned n_names = is_silent ? 1 : NAMES;
	struct asked asked[CALLS][NAMES];
	struct asking asking;
	struct bad_server *server;
	char port[128];

	asking_init(&asking);
	server = bad_server_new(asking.loop, says, strlen(says),
				is_silent ? BAD_HANG : BAD_KEEP);
	snprintf(port, sizeof(port), url, bad_server_port(server));
	asking_open(&asking, directory, port, NULL, NULL);
	if (is_silent)
		asking.timeout_ms = SILENT_MS;
	fault_arm(fault);
	for (call = 1; call <= n_calls; call++)
		ask(&asking, asked[call - 1], n_names);
	call = 0;
	fault_disarm(fault);
	if (n_early)
		fail_msg("%s: %u called back at once", url, n_early);
	asking_wait(&asking, n_calls * n_names);
	for (unsigned i = 0; i < n_calls * n_names; i++) {
		const struct answer *answer =
			&asked[i / n_names][i % n_names].answer;

		assert_int_equal(answer->n_calls, 1);
		if (!fault->n_fired)
			assert_int_equal(answer->outcome.status,
					 rows[row].status);
	}
	asking_close_backend(&asking);
	bad_server_free(server);
	asking_close(&asking);
}

static void who_asks_is_called_back_later(void **state)
{
	char *directory = harness_directory();
	struct fault fault;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		unsigned n = 0;

		for (fault_begin(&fault, -ENOMEM); fault_next(&fault); n++)
			do_round(&fault, directory, i);
		print_message("# %s: %u rounds\n", rows[i].url, n);
		assert_true(n > 3);
	}
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_asks_is_called_back_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
