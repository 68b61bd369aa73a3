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
#define FEW	  3  /* names of each call */
#define MANY	  16 /* so that with all calls they are 4 for each connection */
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

static void ask(struct asking *asking, struct asked asked[MANY], unsigned n)
{
	const char *names[MANY];
	void *args[MANY];

	for (unsigned i = 0; i < n; i++) {
		names[i] = "a";
		asked[i] = (struct asked){ { .asking = asking }, call };
		args[i] = &asked[i];
	}
	asking->backend->ops->get(asking->backend, names, n, asking->body_max,
				  asking->timeout_ms, done, args);
}

#define NO_ANSWER "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"

static const struct {
	const char *url, *says;
	enum kiln_status status; /* if nothing fails */
	unsigned n_names;	 /* of each call; 0: FEW */
	enum bad_end end; /* BAD_HANG: of one, whom nobody else wakes up */
} rows[] = {
	/* To all at once: it counts no questions. */
	{ "redis://127.0.0.1:%u", "$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n",
	  KILN_MISS },
	{ "redis://127.0.0.1:1", "", KILN_E_IO },
	{ "unix:/nowhere/redis.sock", "", KILN_E_IO },
	{ "http://127.0.0.1:%u", NO_ANSWER, KILN_MISS },
	{ "http://127.0.0.1:1", "", KILN_E_IO },
	{ "redis://127.0.0.1:%u", "", KILN_E_TIMEOUT, 1, BAD_HANG },
	{ "http://127.0.0.1:%u", "", KILN_E_TIMEOUT, 1, BAD_HANG },
	/* Most wait for a connection, here for one that takes them, too. */
	{ "http://127.0.0.1:%u", NO_ANSWER, KILN_MISS, MANY },
	{ "https://127.0.0.1:%u", "no TLS\r\n", KILN_E_IO, FEW, BAD_CLOSE },
};

static void do_round(struct fault *fault, const char *directory, size_t row)
{
	const char *url = rows[row].url, *says = rows[row].says;
	const int is_silent = rows[row].end == BAD_HANG;
	const unsigned n_calls = is_silent ? 1 : CALLS;
	const unsigned n_names = rows[row].n_names ? rows[row].n_names : FEW;
	struct asked asked[CALLS][MANY];
	struct asking asking;
	struct bad_server *server;
	char port[128];

	asking_init(&asking);
	server = bad_server_new(asking.loop, says, strlen(says), rows[row].end);
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

/* Who waits already, for longer than who asks now: there is a timer, and it is the wrong
   one. */
static void do_second(struct fault *fault, const char *directory)
{
	static const char says[] = "$-1\r\n$-1\r\n";
	struct asked first[MANY], second[MANY];
	struct asking asking;
	struct bad_server *server;
	char url[64];

	asking_init(&asking);
	server = bad_server_new(asking.loop, says, strlen(says), BAD_KEEP);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%u",
		 bad_server_port(server));
	asking_open(&asking, directory, url, NULL, NULL);
	ask(&asking, first, 1);
	asking.timeout_ms /= 2;
	fault_arm(fault);
	ask(&asking, second, 1);
	fault_disarm(fault);
	asking_wait(&asking, 2);
	assert_int_equal(first[0].answer.outcome.status, KILN_MISS);
	asking_close_backend(&asking);
	bad_server_free(server);
	asking_close(&asking);
}

static void who_waits_already_is_not_told_of_want_of_memory(void **state)
{
	char *directory = harness_directory();
	struct fault fault;
	unsigned n = 0;

	for (fault_begin(&fault, -ENOMEM); fault_next(&fault); n++)
		do_second(&fault, directory);
	assert_true(n > 3);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_asks_is_called_back_later),
		cmocka_unit_test(
			who_waits_already_is_not_told_of_want_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
