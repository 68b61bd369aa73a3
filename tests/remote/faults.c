/* SPDX-License-Identifier: MIT */

/*
 * A remote that is slow, hangs, refuses or takes nothing costs a look-up no more
 * than one may cost, and then nothing; what is here does not feel it (S52, S53).
 * What lies on a server is in entries.c.
 */

#include "world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ten times what a look-up may take. */
#define GUARD_NS ((uint64_t)1000000000)

static int is_redis(void)
{
	return world_stock.kind == STOCK_REDIS;
}

static uint64_t faults_before;

static void set(const struct proxy_script *script)
{
	faults_before = proxy_counts(world_stock.proxy).n_faults;
	proxy_set(world_stock.proxy, script);
}

static void pass(void)
{
	const struct proxy_script script = { .fault = PROXY_PASS };

	set(&script);
}

static uint64_t n_requests(void)
{
	return proxy_counts(world_stock.proxy).n_requests;
}

static void await_requests(uint64_t n)
{
	const struct proxy_counts wanted = { .n_requests = n };

	proxy_await(world_stock.proxy, &wanted);
}

/* One more than when the script was set. */
static void await_fault(void)
{
	const struct proxy_counts wanted = { .n_faults = faults_before + 1 };

	proxy_await(world_stock.proxy, &wanted);
}

/* An answer in the language of the server. */
static void say(struct proxy_script *script, const char *redis,
		const char *http)
{
	snprintf(script->answer, sizeof(script->answer), "%s",
		 is_redis() ? redis : http);
}

static void set_verb(struct proxy_script *script, const char *redis,
		     const char *http)
{
	snprintf(script->verb, sizeof(script->verb), "%s",
		 is_redis() ? redis : http);
}

static int is_on_server(unsigned n)
{
	char name[NODE_NAME_BYTES];
	size_t size;
	char *bytes;

	node_name(n, name);
	bytes = stock_take(&world_stock, name, &size);
	free(bytes);
	return bytes != NULL;
}

/* ---- S52 -------------------------------------------------------------------- */

#define OK_HEAD "HTTP/1.1 200 OK\r\nContent-Length: "

static const struct {
	const char *name;
	struct proxy_script script;
	const char *redis, *http; /* answers */
} troubles[] = {
	{ "says nothing", { .fault = PROXY_HANG }, NULL, NULL },
	{ "hangs in the middle",
	  { .fault = PROXY_HANG, .after = 10000 },
	  NULL,
	  NULL },
	{ "trickles", { .bytes_s = 4000 }, NULL, NULL },
	{ "is far away", { .to_client_us = 700000 }, NULL, NULL },
	{ "hangs up in the middle",
	  { .fault = PROXY_CUT, .after = 10000 },
	  NULL,
	  NULL },
	{ "is reset", { .fault = PROXY_RESET }, NULL, NULL },
	{ "refuses", { .fault = PROXY_REFUSE }, NULL, NULL },
	{ "has a body without end",
	  { .fault = PROXY_ENDLESS },
	  "$1099511627776\r\n",
	  OK_HEAD "1099511627776\r\n\r\n" },
	{ "has a body without a length",
	  { .fault = PROXY_ENDLESS },
	  "$-2\r\n",
	  "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" },
	{ "says that it is broken",
	  { .fault = PROXY_ANSWER },
	  "-LOADING Redis is loading the dataset in memory\r\n",
	  "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" },
	{ "speaks something else",
	  { .fault = PROXY_ANSWER },
	  "SSH-2.0-OpenSSH_9.2\r\n",
	  "220 mail ESMTP\r\n" },
	{ "changes a byte",
	  { .fault = PROXY_FLIP, .after = 9000 },
	  NULL,
	  NULL },
};
#define N_TROUBLES (sizeof(troubles) / sizeof(*troubles))

static void S52_no_trouble_costs_more_than_a_look_up_may(void **state)
{
	struct node *writer = world_node("transport");

	node_start_helper(writer);
	world_fill(writer, 400, N_TROUBLES);
	for (unsigned i = 0; i < N_TROUBLES; i++) {
		struct proxy_script script = troubles[i].script;
		struct node *reader = world_node("transport");

		say(&script, troubles[i].redis ? troubles[i].redis : "",
		    troubles[i].http ? troubles[i].http : "");
		set(&script);
		node_start_helper(reader);
		world_use(reader, 400 + i, 1);
		if (world_run->n_builds != 1 || world_run->ns_max > GUARD_NS)
			fail_msg("a server that %s: %u builds, %lu ms",
				 troubles[i].name, world_run->n_builds,
				 (unsigned long)(world_run->ns_max / 1000000));
		pass();
		node_free(reader);
	}
	node_free(writer);
}

static void S52_who_fails_is_left_alone_and_found_again(void **state)
{
	const struct proxy_script script = { .fault = PROXY_HANG };
	struct node *writer = world_node("transport");
	struct node *reader = world_node("transport");
	char *store = harness_path(node_directory(reader), "store");
	uint64_t before, deadline_ns;

	node_start_helper(writer);
	node_start_helper(reader);
	world_fill(writer, 450, 3);
	set(&script);
	before = n_requests();
	world_use(reader, 500, 200);
	assert_int_equal(world_run->n_builds, 200);
	assert_true(n_requests() - before < 20);
	/* Nothing is waited for any more: a process of its own has no patience
	   lost yet. */
	world_use(reader, 700, 50);
	assert_int_equal(world_run->n_builds, 50);
	assert_true(world_run->ns < GUARD_NS);
	before = n_requests();
	pass();
	/* The helper asks by itself, and has its answer some time later. */
	await_requests(before + 1);
	deadline_ns = node_now_ns() + HARNESS_HANG_S * (uint64_t)1000000000;
	for (world_use(reader, 450, 3); !world_run->n_remote;
	     world_use(reader, 450, 3)) {
		assert_true(node_now_ns() < deadline_ns);
		harness_remove(store);
	}
	free(store);
	node_free(reader);
	node_free(writer);
}

/* It goes and comes while a program asks: whatever it finds, it is right. */
static void S52_a_server_that_flaps(void **state)
{
	static const enum proxy_fault faults[] = { PROXY_REFUSE, PROXY_PASS,
						   PROXY_RESET,	 PROXY_PASS,
						   PROXY_HANG,	 PROXY_PASS };
	struct node *writer = world_node("transport");
	struct node *reader = world_node("transport");
	struct proxy_script script = { .fault = PROXY_PASS };
	pid_t program;

	node_start_helper(writer);
	world_fill(writer, 1400, 100);
	node_start_helper(reader);
	*world_run = (struct world_run){ .first = 1350,
					 .n = 200,
					 .build_ns = 2000000 };
	program = node_start(reader, world_program, NULL);
	for (unsigned i = 0; i < 12; i++) {
		script.fault = faults[i % (sizeof(faults) / sizeof(*faults))];
		set(&script);
		world_await(12 * (i + 1));
	}
	pass();
	assert_int_equal(node_end(program), 0);
	assert_int_equal(world_run->n_wrong, 0);
	node_free(reader);
	node_free(writer);
}

static void S52_what_is_here_is_asked_of_nobody(void **state)
{
	const struct proxy_script script = { .fault = PROXY_HANG };
	struct node *node = world_node("transport");
	uint64_t before;

	node_start_helper(node);
	world_fill(node, 800, 20);
	set(&script);
	before = n_requests();
	world_use(node, 800, 20);
	assert_int_equal(world_run->n_builds, 0);
	assert_int_equal(world_run->n_remote, 0);
	assert_int_equal(n_requests(), before);
	pass();
	node_free(node);
}

/* An answer that comes when nobody waits for it any more is nobody's. */
static void S52_an_answer_after_the_deadline_is_no_others(void **state)
{
	const struct proxy_script script = { .to_client_us = 250000 };
	struct node *writer = world_node("transport");
	struct node *reader = world_node("transport");
	char *store = harness_path(node_directory(reader), "store");

	node_start_helper(writer);
	node_start_helper(reader);
	world_fill(writer, 830, 6);
	set(&script);
	world_use(reader, 830, 2);
	assert_int_equal(world_run->n_builds, 2);
	pass();
	harness_remove(store);
	world_use(reader, 830, 6);
	free(store);
	node_free(reader);
	node_free(writer);
}

/* ---- S50 -------------------------------------------------------------------- */

/* A whole item, of another key: a cache on the way that mixes names up. */
static void S50_what_another_key_made_is_not_used(void **state)
{
	struct proxy_script script = { .fault = PROXY_RENAME };
	struct node *writer = world_node("transport");
	struct node *reader = world_node("transport");
	char from[NODE_NAME_BYTES], to[NODE_NAME_BYTES];

	node_start_helper(writer);
	node_start_helper(reader);
	world_fill(writer, 1500, 2);
	node_name(1500, from);
	node_name(1501, to);
	memcpy(script.from, from, sizeof(script.from));
	memcpy(script.to, to, sizeof(script.to));
	set_verb(&script, "GET", "GET");
	set(&script);
	world_use(reader, 1500, 2);
	assert_int_equal(world_run->n_builds, 1);
	assert_int_equal(world_run->n_remote, 1);
	assert_true(world_run->counters[KILN_COUNT_REMOTE_DAMAGED] +
			    world_run->counters[KILN_COUNT_REMOTE_FAULTS] >
		    0);
	node_free(reader);
	node_free(writer);
}

/* ---- A name that is not resolved -------------------------------------------- */

#define SILENT_ADDRESS "127.77.0.1"

/* In a mount namespace whose resolv.conf names somebody who never answers. */
static int enter_silence(const char *directory)
{
	char *path = harness_path(directory, "resolv.conf");
	static const char text[] = "nameserver " SILENT_ADDRESS "\n";
	int bad;

	harness_write(path, text, sizeof(text) - 1);
	bad = unshare(CLONE_NEWNS) ||
	      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	      mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL);
	free(path);
	return bad;
}

static int listen_silently(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(53) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, SILENT_ADDRESS, &address.sin_addr);
	if (!bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	close(fd);
	return -1;
}

static int start_in_silence(unsigned index, void *arg)
{
	struct node *node = arg;

	if (enter_silence(node_directory(node)))
		return 77;
	return node_start_helper_here();
}

static void S52_a_name_that_nobody_resolves(void **state)
{
	struct node *node = world_node("transport");
	char url[96];
	int fd = listen_silently(), status;

	snprintf(url, sizeof(url), "%s://kiln.example.test",
		 is_redis() ? "redis" : "http");
	node_set(node, "KILN_REMOTE", url);
	status = fd < 0 ? 77 : node_run(node, start_in_silence, node);
	if (status == 77) {
		node_free(node);
		if (fd >= 0)
			close(fd);
		HARNESS_LEAVE_OUT("no mounts, or no port 53, here");
	}
	assert_int_equal(status, 0);
	world_use(node, 850, 20);
	assert_int_equal(world_run->n_builds, 20);
	assert_true(world_run->ns_max < GUARD_NS);
	/* It is not the loop that waits for the name. */
	free(node_tell(node, 0));
	close(fd);
	node_free(node);
}

/* ---- S53 -------------------------------------------------------------------- */

static const struct {
	const char *name, *redis, *http;
} refusals[] = {
	{ "no password", "-NOAUTH Authentication required.\r\n",
	  "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\n"
	  "Content-Length: 0\r\n\r\n" },
	{ "no right", "-NOPERM this user has no permissions\r\n",
	  "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n" },
	{ "no room", "-OOM command not allowed when used memory\r\n",
	  "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n" },
	{ "no writing", "-READONLY You can't write against a read only\r\n",
	  "HTTP/1.1 405 Not Allowed\r\nContent-Length: 0\r\n\r\n" },
};
#define N_REFUSALS (sizeof(refusals) / sizeof(*refusals))

/* What is built is kept here, and what others wrote is found, though nothing can
   be written. */
static void S53_a_server_that_takes_nothing_is_still_read(void **state)
{
	struct node *writer = world_node("transport");

	node_start_helper(writer);
	world_fill(writer, 900, N_REFUSALS);
	for (unsigned i = 0; i < N_REFUSALS; i++) {
		struct proxy_script script = { .fault = PROXY_ANSWER };
		struct node *node = world_node("transport");

		set_verb(&script, "SET", "PUT");
		say(&script, refusals[i].redis, refusals[i].http);
		set(&script);
		node_start_helper(node);
		world_use(node, 910 + i, 1);
		await_fault();
		world_use(node, 910 + i, 1);
		assert_int_equal(world_run->n_builds, 0);
		world_use(node, 900 + i, 1);
		if (!world_run->n_remote || is_on_server(910 + i))
			fail_msg("%s", refusals[i].name);
		pass();
		node_free(node);
	}
	node_free(writer);
}

static void S53_who_may_not_read_builds_and_does_not_ask_on(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct proxy_script script = { .fault = PROXY_ANSWER };
		struct node *node = world_node("transport");
		uint64_t before;

		say(&script, refusals[i].redis, refusals[i].http);
		set(&script);
		node_start_helper(node);
		before = n_requests();
		world_use(node, 1000, 100);
		assert_int_equal(world_run->n_builds, 100);
		assert_true(n_requests() - before < 50);
		pass();
		node_free(node);
	}
}

static void S53_what_is_read_only_is_never_written(void **state)
{
	struct node *node = world_node("transport");
	char url[160];

	snprintf(url, sizeof(url), "%s#read-only", world_stock.url);
	node_set(node, "KILN_REMOTE", url);
	node_start_helper(node);
	world_use(node, 1200, 3);
	assert_int_equal(world_run->n_builds, 3);
	node_drain(node);
	for (unsigned i = 0; i < 3; i++)
		assert_false(is_on_server(1200 + i));
	node_free(node);
}

/* A server that has a thing when it is asked whether, and has it not when it is
   asked for. */
static void S53_what_is_there_and_then_not(void **state)
{
	struct proxy_script script = { .fault = PROXY_ANSWER };
	struct node *writer = world_node("transport");
	struct node *reader = world_node("transport");

	set_verb(&script, "GET", "GET");
	say(&script, "$-1\r\n",
	    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
	node_start_helper(writer);
	world_fill(writer, 1300, 2);
	set(&script);
	node_start_helper(reader);
	world_use(reader, 1300, 2);
	assert_int_equal(world_run->n_builds, 2);
	node_drain(reader);
	pass();
	node_free(reader);
	node_free(writer);
}

/* The same to who waits for another machine's build, and is told that it is
   there: it waits no more, and builds, while the other still does. */
static void S53_what_was_built_elsewhere_and_is_then_not(void **state)
{
	struct proxy_script script = { .fault = PROXY_ANSWER };
	struct node *first = world_node("transport");
	struct node *second = world_node("transport");
	pid_t builder, waiter;
	char name[NODE_NAME_BYTES];
	int how;

	if (!is_redis()) {
		node_free(second);
		node_free(first);
		HARNESS_LEAVE_OUT("it has no leases");
	}
	node_start_helper(first);
	node_start_helper(second);
	set_verb(&script, "GET", "GET");
	say(&script, "$-1\r\n", "");
	set(&script);
	*world_run = (struct world_run){ .first = 1600,
					 .n = 1,
					 .build_ns = 3000000000 };
	builder = node_start(first, world_program, NULL);
	while (!world_run->n_builds)
		(void)usleep(1000);
	assert_int_equal(kill(builder, SIGSTOP), 0);
	assert_int_equal(waitpid(builder, &how, WUNTRACED), builder);
	assert_true(WIFSTOPPED(how));
	world_run->build_ns = 0;
	node_name(1600, name);
	stock_lay(&world_stock, name, "x", 1);
	waiter = node_start(second, world_program, NULL);
	assert_int_equal(node_end(waiter), 0);
	assert_int_equal(node_told(second, "spared"), 1);
	assert_int_equal(node_told(second, "taken"), 0);
	assert_int_equal(world_run->n_builds, 2);
	assert_int_equal(world_run->n_wrong, 0);
	(void)kill(builder, SIGKILL);
	(void)node_end(builder);
	stock_remove(&world_stock, name);
	node_free(second);
	node_free(first);
}

static int pass_again(void **state)
{
	pass();
	return 0;
}

#define TEST(name) cmocka_unit_test_teardown(name, pass_again)

int world_tests(enum stock_kind kind)
{
	const struct CMUnitTest tests[] = {
		TEST(S52_no_trouble_costs_more_than_a_look_up_may),
		TEST(S52_who_fails_is_left_alone_and_found_again),
		TEST(S52_a_server_that_flaps),
		TEST(S52_what_is_here_is_asked_of_nobody),
		TEST(S52_an_answer_after_the_deadline_is_no_others),
		TEST(S50_what_another_key_made_is_not_used),
		TEST(S52_a_name_that_nobody_resolves),
		TEST(S53_a_server_that_takes_nothing_is_still_read),
		TEST(S53_who_may_not_read_builds_and_does_not_ask_on),
		TEST(S53_what_is_read_only_is_never_written),
		TEST(S53_what_is_there_and_then_not),
		TEST(S53_what_was_built_elsewhere_and_is_then_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
