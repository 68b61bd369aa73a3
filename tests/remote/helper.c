/* SPDX-License-Identifier: MIT */

/*
 * The helper is a process like others: it is killed, somebody sits in its place, it
 * is older or newer than the library, and clocks jump.  Programs that use it get
 * right values, and wait no longer than for a server.
 */

#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_test.h"
#include "remote/protocol.h"

#define GUARD_NS ((uint64_t)1000000000)

/* ---- Killed ----------------------------------------------------------------- */

static void killed_at_any_moment(void **state)
{
	struct node *writer = world_node("transport");
	struct node *node = world_node("transport");
	uint64_t random = 1;
	pid_t program;

	node_start_helper(writer);
	world_fill(writer, 2000, 200);
	node_start_helper(node);
	*world_run = (struct world_run){ .first = 1800,
					 .n = 400,
					 .build_ns = 200000 };
	program = node_start(node, world_program, NULL);
	for (int i = 0; i < 12; i++) {
		(void)usleep(harness_random(&random) % 20000);
		node_kill_helper(node);
		(void)usleep(harness_random(&random) % 3000);
		node_start_helper(node);
	}
	assert_int_equal(node_end(program), 0);
	assert_int_equal(world_run->n_wrong, 0);
	node_free(node);
	node_free(writer);
}

/* Who has a kiln open from before needs no other for it.  Builds take as long as makes a
   look-up worth its 100 ms: of those that take none an answer in time is luck. */
static int use_before_and_after(unsigned index, void *arg)
{
	struct node *node = arg;
	struct kiln *kiln = node_open_kiln(0);
	struct node_use use = { .size = WORLD_VALUE_BYTES,
				.build_ns = 200000000 };

	if (!kiln || node_use(kiln, 2300, &use) ||
	    use.source != KILN_FROM_REMOTE)
		return 1;
	node_kill_helper(node);
	if (node_use(kiln, 2301, &use) || use.source != KILN_FROM_BUILD)
		return 2;
	if (node_start_helper_here())
		return 3;
	/* It does not ask for a second or so after it found nobody. */
	for (unsigned i = 2302; i < 2300 + 200; i++) {
		if (node_use(kiln, i, &use))
			return 4;
		if (use.source == KILN_FROM_REMOTE) {
			kiln_close(kiln);
			return 0;
		}
	}
	return 5;
}

static void killed_and_started_again(void **state)
{
	struct node *writer = world_node("transport");
	struct node *node = world_node("transport");

	node_start_helper(writer);
	world_fill(writer, 2300, 200);
	node_start_helper(node);
	assert_int_equal(node_run(node, use_before_and_after, node), 0);
	node_free(node);
	node_free(writer);
}

/* ---- Somebody else in its place --------------------------------------------- */

/* What a peer says to what it is asked; it has one connection at a time. */
typedef void peer_fn(int fd);

static void say_frame(int fd, uint8_t type, int status, uint64_t id,
		      const void *body, uint32_t size)
{
	struct ki_frame frame = {
		.size = size, .type = type, .status = (int16_t)status, .id = id
	};
	uint8_t head[KI_FRAME_BYTES];

	ki_frame_put(head, &frame);
	(void)send(fd, head, sizeof(head), MSG_NOSIGNAL);
	(void)send(fd, body, size, MSG_NOSIGNAL);
}

static void greet(int fd, uint16_t lowest, uint16_t highest, uint64_t id)
{
	uint8_t body[KI_FRAME_WELCOME_BYTES] = { 0 };

	ki_put_u32(body, KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, lowest);
	ki_put_u16(body + 6, highest);
	ki_put_u64(body + 8, KI_REMOTE_CAN_LEASE | KI_REMOTE_CAN_PUT);
	say_frame(fd, KI_FRAME_HELLO, 0, id, body, sizeof(body));
}

/* The next question; 0: there is none. */
static int hear(int fd, struct ki_frame *out_frame)
{
	static uint8_t body[KI_REMOTE_BODY_MAX];
	uint8_t head[KI_FRAME_BYTES];

	if (recv(fd, head, sizeof(head), MSG_WAITALL) != sizeof(head) ||
	    ki_frame_get(head, out_frame))
		return 0;
	return !out_frame->size || out_frame->size > sizeof(body) ||
	       recv(fd, body, out_frame->size, MSG_WAITALL) ==
		       (ssize_t)out_frame->size;
}

static void say_nothing(int fd)
{
	struct ki_frame frame;

	while (hear(fd, &frame))
		;
}

static void hang_up(int fd)
{
}

static void say_rubbish(int fd)
{
	uint8_t bytes[512];

	node_value(1, bytes, sizeof(bytes));
	(void)send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
	say_nothing(fd);
}

static void be_of_another_time(int fd)
{
	struct ki_frame frame;

	if (hear(fd, &frame))
		greet(fd, KI_REMOTE_VERSION + 1, KI_REMOTE_VERSION + 5,
		      frame.id);
	say_nothing(fd);
}

static void greet_and_say_nothing(int fd)
{
	struct ki_frame frame;

	if (hear(fd, &frame))
		greet(fd, KI_REMOTE_VERSION, KI_REMOTE_VERSION, frame.id);
	say_nothing(fd);
}

/* To every question, that. */
static void answer_all(int fd, uint8_t type, uint64_t id_off, const void *body,
		       uint32_t size)
{
	struct ki_frame frame;

	if (hear(fd, &frame))
		greet(fd, KI_REMOTE_VERSION, KI_REMOTE_VERSION + 3, frame.id);
	while (hear(fd, &frame))
		say_frame(fd, type, 0, frame.id + id_off, body, size);
}

static void answer_with_rubbish(int fd)
{
	static uint8_t bytes[30000];

	node_value(2, bytes, sizeof(bytes));
	answer_all(fd, KI_FRAME_ITEM, 0, bytes, sizeof(bytes));
}

static void answer_other_questions(int fd)
{
	uint8_t miss[KI_FRAME_MISS_BYTES] = { 0 };

	answer_all(fd, KI_FRAME_MISS, 1000, miss, sizeof(miss));
}

static void answer_with_other_things(int fd)
{
	answer_all(fd, KI_FRAME_OPENED, 0, "0123456789abcdef", 16);
}

static void claim_a_huge_answer(int fd)
{
	struct ki_frame frame;
	uint8_t head[KI_FRAME_BYTES] = { 0xff, 0xff, 0xff, 0x3f,
					 KI_FRAME_ITEM };

	if (hear(fd, &frame))
		greet(fd, KI_REMOTE_VERSION, KI_REMOTE_VERSION, frame.id);
	if (hear(fd, &frame)) {
		ki_put_u64(head + 8, frame.id);
		(void)send(fd, head, sizeof(head), MSG_NOSIGNAL);
	}
	say_nothing(fd);
}

static const struct {
	const char *name;
	peer_fn *peer;
} peers[] = {
	{ "says nothing", say_nothing },
	{ "hangs up", hang_up },
	{ "says rubbish", say_rubbish },
	{ "is of another time", be_of_another_time },
	{ "greets, and says nothing", greet_and_say_nothing },
	{ "answers with rubbish", answer_with_rubbish },
	{ "answers what nobody asked", answer_other_questions },
	{ "answers with other things", answer_with_other_things },
	{ "claims a gigabyte", claim_a_huge_answer },
};
#define N_PEERS (sizeof(peers) / sizeof(*peers))

/* Where the helper was. */
static pid_t sit_in_its_place(const char *path, peer_fn *peer)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid;

	assert_true(strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	(void)unlink(path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)),
			 0);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(listen(fd, 16), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int client = accept(fd, NULL, NULL);

			peer(client);
			close(client);
		}
	}
	close(fd);
	return pid;
}

static void end_peer(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

static void whoever_answers_in_its_place(void **state)
{
	struct node *node = world_node("transport");
	char *path;

	node_start_helper(node);
	path = node_socket(node);
	node_kill_helper(node);
	for (unsigned i = 0; i < N_PEERS; i++) {
		pid_t peer = sit_in_its_place(path, peers[i].peer);

		world_use(node, 2500 + 10 * i, 6);
		if (world_run->n_builds != 6 || world_run->n_remote ||
		    world_run->ns_max > GUARD_NS)
			fail_msg("a peer that %s: %u builds, %lu ms",
				 peers[i].name, world_run->n_builds,
				 (unsigned long)(world_run->ns_max / 1000000));
		end_peer(peer);
	}
	(void)unlink(path);
	free(path);
	node_free(node);
}

/* Neither the value nor what was built goes to another user's process. */
static void another_user_in_its_place(void **state)
{
	struct node *node = world_node("transport");
	_Atomic unsigned *n_heard = node_shared(sizeof(*n_heard));
	char *path, byte;
	int ready[2];
	pid_t peer;

	if (geteuid()) {
		node_free(node);
		HARNESS_LEAVE_OUT("not root");
	}
	assert_int_equal(pipe(ready), 0);
	node_start_helper(node);
	path = node_socket(node);
	node_kill_helper(node);
	peer = fork();
	if (!peer) {
		struct sockaddr_un address = { .sun_family = AF_UNIX };
		struct ki_frame frame;
		int fd = socket(AF_UNIX, SOCK_STREAM, 0), client;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		strcpy(address.sun_path, path);
		(void)unlink(path);
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
		    setresuid(65534, 65534, 65534) || listen(fd, 16) ||
		    write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;) {
			client = accept(fd, NULL, NULL);
			while (hear(client, &frame))
				++*n_heard;
			close(client);
		}
	}
	/* Whose credentials they are is known once it listens. */
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	world_use(node, 2600, 3);
	assert_int_equal(world_run->n_builds, 3);
	assert_int_equal(*n_heard, 0);
	end_peer(peer);
	(void)unlink(path);
	free(path);
	node_free(node);
}

/* ---- Other versions --------------------------------------------------------- */

static void a_program_of_another_time_is_not_served(void **state)
{
	struct node *node = world_node("transport");
	uint8_t body[KI_FRAME_HELLO_BYTES] = { 0 };
	struct answer answer;
	char *path;
	int fd;

	node_start_helper(node);
	path = node_socket(node);
	fd = client_connect(path);
	ki_put_u32(body, KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, KI_REMOTE_VERSION + 1);
	ki_put_u16(body + 6, KI_REMOTE_VERSION + 1);
	client_send(fd, KI_FRAME_HELLO, 1, body, sizeof(body));
	assert_true(client_is_cut_off(fd));
	close(fd);
	/* One that knows more versions is. */
	fd = client_connect(path);
	ki_put_u16(body + 4, KI_REMOTE_VERSION);
	client_send(fd, KI_FRAME_HELLO, 1, body, sizeof(body));
	client_send(fd, KI_FRAME_TELL, 2, "\0\0\0\0", 4);
	for (int i = 0; i < 2; i++) {
		assert_true(client_receive(fd, &answer));
		free(answer.body);
	}
	assert_int_equal(answer.frame.type, KI_FRAME_TOLD);
	close(fd);
	free(path);
	node_free(node);
}

/* ---- Clocks ----------------------------------------------------------------- */

static void clocks_that_jump(void **state)
{
#ifdef __SANITIZE_ADDRESS__
	HARNESS_LEAVE_OUT("its runtime wants to be first");
#else
	struct node *writer = world_node("transport");
	struct node *node = world_node("transport");

	node_set(writer, "LD_PRELOAD", getenv("KILN_TEST_JUMPING"));
	node_set(node, "LD_PRELOAD", getenv("KILN_TEST_JUMPING"));
	node_preload_helper(writer, getenv("KILN_TEST_JUMPING"));
	node_preload_helper(node, getenv("KILN_TEST_JUMPING"));
	node_start_helper(writer);
	node_start_helper(node);
	world_fill(writer, 2700, 30);
	world_use(node, 2700, 30);
	assert_int_equal(world_run->n_builds, 0);
	assert_int_equal(world_run->n_remote, 30);
	node_free(node);
	node_free(writer);
#endif
}

/* ---- Exit ------------------------------------------------------------------- */

static void a_program_ends_and_its_uploads_arrive(void **state)
{
	const struct proxy_script far = { .to_server_us = 10000,
					  .to_client_us = 10000 };
	const struct proxy_script near = { .fault = PROXY_PASS };
	struct node *writer = world_node("transport");
	char name[NODE_NAME_BYTES];
	size_t size;

	node_start_helper(writer);
	proxy_set(world_stock.proxy, &far);
	world_use(writer, 2800, 40);
	proxy_set(world_stock.proxy, &near);
	assert_int_equal(world_run->n_builds, 40);
	for (unsigned i = 2800; i < 2840; i++) {
		node_name(i, name);
		free(stock_await(&world_stock, name, &size));
	}
	node_free(writer);
}

/* Whoever ends the machine afterwards has lost nothing.  The server refuses once, so
   that what was built is tried again later. */
static void who_waits_has_everything_on_the_server(void **state)
{
	static const char *const rows[][6] = {
		{ "wait", NULL },
		{ "run", "--wait", "--", "true", NULL },
	};
	const struct proxy_script busy = { .fault = PROXY_ANSWER,
					   .verb = "SET",
					   .times = 1,
					   .answer = "-LOADING\r\n" };
	const struct proxy_script well = { .fault = PROXY_PASS };
	char name[NODE_NAME_BYTES], url[200], *bytes;
	size_t size;

	snprintf(url, sizeof(url), "%s#no-lease", world_stock.url);
	for (unsigned i = 0; i < 2; i++) {
		struct node *node = world_node("transport");
		uint64_t n_refused = proxy_counts(world_stock.proxy).n_faults;

		node_set(node, "KILN_REMOTE", url);
		proxy_set(world_stock.proxy, &busy);
		node_start_helper(node);
		world_use(node, 2850 + i, 1);
		assert_int_equal(node_tool(node, rows[i], NULL), 0);
		assert_int_equal(proxy_counts(world_stock.proxy).n_faults,
				 n_refused + 1);
		node_name(2850 + i, name);
		bytes = stock_take(&world_stock, name, &size);
		assert_non_null(bytes);
		free(bytes);
		proxy_set(world_stock.proxy, &well);
		node_free(node);
	}
}

/* ---- What is told ------------------------------------------------------------ */

static void expect_in_stats(struct node *node, const char *const *words)
{
	static const char *const arguments[] = { "stats", NULL };
	char *text;

	assert_int_equal(node_tool(node, arguments, &text), 0);
	for (; *words; words++)
		if (!strstr(text, *words))
			fail_msg("'%s' is not in: %s", *words, text);
	free(text);
}

static void what_became_of_uploads_is_told_apart(void **state)
{
	static const char *const large[] = {
		"remote helper",
		"0 uploads done, 0 waiting, 2 dropped (2 large)",
		"remote server", "0 put", NULL
	};
	static const char *const good[] = {
		"2 uploads done, 0 waiting, 0 dropped\n", "2 put, 0 late", NULL
	};
	struct node *node = world_node("transport");
	char url[200];

	snprintf(url, sizeof(url), "%s#max-item=1K", world_stock.url);
	node_set(node, "KILN_REMOTE", url);
	node_start_helper(node);
	world_fill(node, 2900, 2);
	expect_in_stats(node, large);
	node_free(node);
	node = world_node("transport");
	node_start_helper(node);
	world_fill(node, 2910, 2);
	expect_in_stats(node, good);
	node_free(node);
}

int world_tests(enum stock_kind kind)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_at_any_moment),
		cmocka_unit_test(killed_and_started_again),
		cmocka_unit_test(whoever_answers_in_its_place),
		cmocka_unit_test(another_user_in_its_place),
		cmocka_unit_test(a_program_of_another_time_is_not_served),
		cmocka_unit_test(clocks_that_jump),
		cmocka_unit_test(a_program_ends_and_its_uploads_arrive),
		cmocka_unit_test(who_waits_has_everything_on_the_server),
		cmocka_unit_test(what_became_of_uploads_is_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
