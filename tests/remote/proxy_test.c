/* SPDX-License-Identifier: MIT */

/* The proxy before a server that answers every request with the same. */

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"

#include "proxy.h"

#define ANSWER                                                                 \
	"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n01234567890123456789"
#define ANSWER_END (sizeof(ANSWER) - 1)
#define NAME_A                                                                 \
	"aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
#define NAME_B                                                                 \
	"0000000000000000111111111111111122222222222222223333333333333333"

/* What the server of this test hears it counts, and it names B if it was asked
   for that. */
struct peer {
	pid_t pid;
	uint16_t port;
	struct proxy *proxy;
};

static void answer_all(int fd)
{
	char bytes[4096];
	size_t size = 0;
	ssize_t n;

	while ((n = recv(fd, bytes + size, sizeof(bytes) - 1 - size, 0)) > 0) {
		char *end;

		size += (size_t)n;
		bytes[size] = '\0';
		while ((end = strstr(bytes, "\r\n\r\n"))) {
			char answer[] = ANSWER;
			const char *name = strstr(bytes, NAME_B);

			if (name && name < end)
				answer[ANSWER_END - 1] = 'B';
			(void)!write(fd, answer, ANSWER_END);
			size -= (size_t)(end + 4 - bytes);
			memmove(bytes, end + 4, size + 1);
		}
	}
	_exit(0);
}

static int set_up(void **state)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t size = sizeof(address);
	struct peer *peer = calloc(1, sizeof(*peer));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!peer || bind(fd, (struct sockaddr *)&address, size) ||
	    listen(fd, 16) ||
	    getsockname(fd, (struct sockaddr *)&address, &size))
		return -1;
	peer->port = ntohs(address.sin_port);
	peer->pid = fork();
	if (!peer->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGCHLD, SIG_IGN);
		for (;;) {
			int client = accept(fd, NULL, NULL);

			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				answer_all(client);
			}
			close(client);
		}
	}
	close(fd);
	peer->proxy = proxy_open(peer->port);
	*state = peer;
	return 0;
}

static int tear_down(void **state)
{
	struct peer *peer = *state;

	proxy_close(peer->proxy);
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	free(peer);
	return 0;
}

/* -1: nobody is there. */
static int call(const struct peer *peer)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port =
					       htons(proxy_port(peer->proxy)) };
	struct timeval patience = { .tv_sec = HARNESS_HANG_S };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	close(fd);
	return -1;
}

static void say(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* So many bytes, or what there is before the end; -1 for a reset. */
static ssize_t hear(int fd, char *bytes, size_t size)
{
	size_t got = 0;
	ssize_t n = 1;

	while (got < size && (n = recv(fd, bytes + got, size - got, 0)) > 0)
		got += (size_t)n;
	return n < 0 ? -1 : (ssize_t)got;
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

#define GET "GET /" NAME_A " HTTP/1.1\r\n\r\n"

static void what_a_script_says_happens(void **state)
{
	static const struct {
		const char *name;
		struct proxy_script script;
		ssize_t size; /* of what comes; -1: a reset */
		char last;    /* its last byte */
	} cases[] = {
		{ "nothing", { .fault = PROXY_PASS }, ANSWER_END, '9' },
		{ "cut in the head",
		  { .fault = PROXY_CUT, .after = 10 },
		  10,
		  '2' },
		{ "cut in the body",
		  { .fault = PROXY_CUT, .after = ANSWER_END - 3 },
		  ANSWER_END - 3,
		  '6' },
		{ "reset", { .fault = PROXY_RESET, .after = 0 }, -1, 0 },
		{ "a wrong byte",
		  { .fault = PROXY_FLIP, .after = ANSWER_END - 1 },
		  ANSWER_END,
		  '8' },
		{ "an answer of its own",
		  { .fault = PROXY_ANSWER,
		    .answer = "HTTP/1.1 401 No\r\n\r\n" },
		  19,
		  '\n' },
		{ "not of this verb",
		  { .fault = PROXY_ANSWER, .verb = "PUT", .answer = "no" },
		  ANSWER_END,
		  '9' },
		{ "another name",
		  { .fault = PROXY_RENAME, .from = NAME_A, .to = NAME_B },
		  ANSWER_END,
		  'B' },
		{ "slowly", { .bytes_s = 10000 }, ANSWER_END, '9' },
	};
	struct peer *peer = *state;
	char bytes[ANSWER_END];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		ssize_t wanted = cases[i].size;
		int fd;

		proxy_set(peer->proxy, &cases[i].script);
		fd = call(peer);
		assert_true(fd >= 0);
		say(fd, GET);
		if (hear(fd, bytes, wanted < 0 ? 1 : (size_t)wanted) !=
			    wanted ||
		    (wanted > 0 && bytes[wanted - 1] != cases[i].last))
			fail_msg("%s", cases[i].name);
		close(fd);
	}
}

static void after_a_cut_the_connection_is_closed(void **state)
{
	const struct proxy_script script = { .fault = PROXY_CUT, .after = 10 };
	struct peer *peer = *state;
	char bytes[ANSWER_END];
	int fd;

	proxy_set(peer->proxy, &script);
	fd = call(peer);
	say(fd, GET);
	assert_int_equal(hear(fd, bytes, sizeof(bytes)), 10);
	close(fd);
}

static void a_fault_happens_so_many_times(void **state)
{
	const struct proxy_script script = { .fault = PROXY_FLIP, .times = 2 };
	struct peer *peer = *state;
	char bytes[ANSWER_END];
	int fd;

	proxy_set(peer->proxy, &script);
	fd = call(peer);
	for (int i = 0; i < 3; i++) {
		say(fd, GET);
		assert_int_equal(hear(fd, bytes, sizeof(bytes)), ANSWER_END);
		assert_int_equal(bytes[0], i < 2 ? 'H' ^ 1 : 'H');
	}
	assert_int_equal(proxy_counts(peer->proxy).n_faults, 2);
	assert_int_equal(proxy_counts(peer->proxy).n_requests, 3);
	close(fd);
}

static void nobody_listens_when_it_refuses_and_then_again(void **state)
{
	const struct proxy_script refuse = { .fault = PROXY_REFUSE };
	const struct proxy_script pass = { .fault = PROXY_PASS };
	struct peer *peer = *state;
	char bytes[ANSWER_END];
	int fd = call(peer);

	say(fd, GET);
	assert_int_equal(hear(fd, bytes, sizeof(bytes)), ANSWER_END);
	proxy_set(peer->proxy, &refuse);
	assert_true(hear(fd, bytes, 1) <= 0);
	close(fd);
	assert_int_equal(call(peer), -1);
	proxy_set(peer->proxy, &pass);
	fd = call(peer);
	assert_true(fd >= 0);
	close(fd);
}

static void an_endless_body_has_no_end(void **state)
{
	const struct proxy_script script = {
		.fault = PROXY_ENDLESS,
		.answer = "HTTP/1.1 200 OK\r\nContent-Length: "
			  "1099511627776\r\n\r\n"
	};
	struct peer *peer = *state;
	char bytes[4096];
	int fd;

	proxy_set(peer->proxy, &script);
	fd = call(peer);
	say(fd, GET);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(hear(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
}

/* Ten requests at once behind 10 ms there and 10 ms back take little more than 20
   ms, and no answer is there before. */
static void a_delay_holds_up_and_serialises_nothing(void **state)
{
	const struct proxy_script script = { .to_server_us = 10000,
					     .to_client_us = 10000 };
	struct peer *peer = *state;
	char bytes[ANSWER_END];
	double begun_ms;
	int fd;

	proxy_set(peer->proxy, &script);
	fd = call(peer);
	begun_ms = now_ms();
	for (int i = 0; i < 10; i++)
		say(fd, GET);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(hear(fd, bytes, sizeof(bytes)), ANSWER_END);
		assert_memory_equal(bytes, ANSWER, sizeof(bytes));
		if (!i)
			assert_true(now_ms() - begun_ms >= 20);
	}
	close(fd);
}

/* Requests of Redis end where their last word ends, and a verb is the first. */
static void it_knows_the_ends_of_redis_requests(void **state)
{
	static const char *const parts[] = { "*2\r\n$3\r\nGE",
					     "T\r\n$4\r\nname",
					     "\r\n*3\r\n$3\r\nSET\r\n$4\r\nna",
					     "me\r\n$5\r\nGET\r\n\r\n",
					     "*1\r\n$4\r\nPING\r\n" };
	const struct proxy_script script = { .fault = PROXY_ANSWER,
					     .verb = "SET",
					     .answer = "-NO\r\n" };
	const struct proxy_counts all = { .n_requests = 3 };
	struct peer *peer = *state;
	char bytes[5];
	int fd;

	proxy_set(peer->proxy, &script);
	fd = call(peer);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		say(fd, parts[i]);
	assert_int_equal(hear(fd, bytes, sizeof(bytes)), sizeof(bytes));
	assert_memory_equal(bytes, "-NO\r\n", sizeof(bytes));
	proxy_await(peer->proxy, &all);
	assert_int_equal(proxy_counts(peer->proxy).n_meant, 1);
	assert_int_equal(proxy_counts(peer->proxy).n_faults, 1);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_a_script_says_happens),
		TEST(after_a_cut_the_connection_is_closed),
		TEST(a_fault_happens_so_many_times),
		TEST(nobody_listens_when_it_refuses_and_then_again),
		TEST(an_endless_body_has_no_end),
		TEST(a_delay_holds_up_and_serialises_nothing),
		TEST(it_knows_the_ends_of_redis_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
