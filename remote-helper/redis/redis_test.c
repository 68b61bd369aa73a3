/* SPDX-License-Identifier: MIT */

/* A real redis-server, and a server that does all that is wrong. */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "asking_test.h"
#include "bad_server_test.h"
#include "stuck_names_test.h"

#define TOKEN "0011223344556677"
#define OTHER "8899aabbccddeeff"
#define GETS  500
#define MANY  16

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
	stuck_names_release();
	server_stop(redis);
	free(directory);
	return 0;
}

static void open_url(struct asking *asking, const char *url, const char *line)
{
	asking_init(asking);
	asking_open(asking, directory, url, line, NULL);
}

/* A number that the server answers by another connection than ours. */
static long long redis_number(const char *command, const char *key)
{
	redisContext *context =
		redisConnect("127.0.0.1", (int)server_port(redis));
	redisReply *reply = redisCommand(context, "%s %s", command, key);
	long long number = reply->integer;

	assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
	freeReplyObject(reply);
	redisFree(context);
	return number;
}

/* ---- Items -------------------------------------------------------------- */

static void put_and_get(const char *url, const char *name)
{
	struct asking asking;
	struct outcome outcome;

	open_url(&asking, url, NULL);
	assert_int_equal(asking_get_status(&asking, name), KILN_MISS);
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
	put_and_get(server_url(redis), "tcp");
	put_and_get(server_unix_url(redis), "socket");
	(void)snprintf(text, sizeof(text), "redis://localhost:%u",
		       server_port(redis));
	put_and_get(text, "name");
}

static void databases_are_apart(void **state)
{
	struct asking zero, three;
	char url[300];

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	open_url(&zero, server_url(redis), NULL);
	(void)snprintf(url, sizeof(url), "%s/3", server_url(redis));
	open_url(&three, url, NULL);
	assert_int_equal(asking_put_status(&three, "apart", "3"), KILN_OK);
	assert_int_equal(asking_get_status(&zero, "apart"), KILN_MISS);
	asking_close(&three);
	(void)snprintf(url, sizeof(url), "%s?db=3", server_unix_url(redis));
	open_url(&three, url, NULL);
	assert_int_equal(asking_get_status(&three, "apart"), KILN_OK);
	asking_close(&three);
	asking_close(&zero);
}

/* Nothing may be put into database 0 instead. */
static void a_database_that_is_not_there_takes_nothing(void **state)
{
	struct asking asking;
	struct outcome outcome;
	char url[300];

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	(void)snprintf(url, sizeof(url), "%s/4711", server_url(redis));
	open_url(&asking, url, NULL);
	outcome = asking_put(&asking, "nowhere", "x", 1, 0, 0);
	asking_expect(&outcome, KILN_E_UNSUPPORTED, NULL, 0);
	assert_non_null(strstr(outcome.why, "no such database"));
	assert_int_equal(redis_number("EXISTS", "kiln:nowhere"), 0);
	asking_close(&asking);
}

static void many_are_had_at_once(void **state)
{
	static char names[GETS][80];
	static struct answer answers[GETS];
	const char *pointers[GETS];
	void *args[GETS];
	struct asking asking;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	open_url(&asking, server_url(redis), NULL);
	for (unsigned i = 0; i < GETS; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "many-%u", i);
		pointers[i] = names[i];
		answers[i] = (struct answer){ .asking = &asking };
		args[i] = &answers[i];
		if (i % 2)
			assert_int_equal(
				asking_put_status(&asking, names[i], names[i]),
				KILN_OK);
	}
	asking.backend->ops->get(asking.backend, pointers, GETS,
				 asking.body_max, asking.timeout_ms,
				 asking_done, args);
	asking_wait(&asking, GETS);
	for (unsigned i = 0; i < GETS; i++) {
		assert_int_equal(answers[i].n_calls, 1);
		asking_expect(&answers[i].outcome, i % 2 ? KILN_OK : KILN_MISS,
			      i % 2 ? names[i] : NULL, strlen(names[i]));
	}
	asking_close(&asking);
}

static void what_is_put_lives_as_long_as_it_should(void **state)
{
	struct asking asking;
	struct outcome outcome;
	long long s;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	open_url(&asking, server_url(redis), NULL);
	outcome = asking_put(&asking, "live", "x", 1, 1000, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	s = redis_number("TTL", "kiln:live");
	assert_true(s > 900 && s <= 1000);
	outcome = asking_put(&asking, "live", "x", 1, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	assert_int_equal(redis_number("TTL", "kiln:live"), -1);
	asking_close(&asking);
}

static void a_put_replaces_or_makes_no_second(void **state)
{
	struct asking asking;
	struct outcome outcome;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	open_url(&asking, server_url(redis), NULL);
	outcome = asking_put(&asking, "second", "a", 1, 60, 1);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_put(&asking, "second", "b", 1, 60, 1);
	asking_expect(&outcome, KILN_EXISTS, NULL, 0);
	outcome = asking_get(&asking, "second");
	asking_expect(&outcome, KILN_OK, "a", 1);
	outcome = asking_put(&asking, "second", "c", 1, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(&asking, "second");
	asking_expect(&outcome, KILN_OK, "c", 1);
	asking_close(&asking);
}

/* A put, which may be large, has a connection of its own. */
static void gets_do_not_wait_for_puts(void **state)
{
	struct asking asking;
	struct answer put = { .asking = &asking }, get = put;
	void *const args[] = { &get };
	const char *name = "x";
	struct bad_server *bad;
	char url[64];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, "$1\r\nx\r\n", 7, BAD_KEEP);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u",
		       bad_server_port(bad));
	asking_open(&asking, directory, url, NULL, NULL);
	asking.backend->ops->put(asking.backend, name, "x", 1, 0, 0,
				 asking.timeout_ms, asking_done, &put);
	asking.backend->ops->get(asking.backend, &name, 1, 64,
				 asking.timeout_ms, asking_done, args);
	asking_wait(&asking, 2);
	asking_expect(&get.outcome, KILN_OK, "x", 1);
	asking_expect(&put.outcome, KILN_E_FORMAT, NULL, 0);
	assert_int_equal(bad_server_n_connections(bad), 2);
	bad_server_free(bad);
	asking_close(&asking);
}

/* ---- What is only half sent ---------------------------------------------- */

/* A server that reads nothing while a put is sent, and may answer too early. */
struct half {
	struct asking asking;
	struct answer first, second;
	const char *says;
	int listen_fd, fd;
	char *body;
	size_t size;
	size_t n_strange; /* bytes of anything else than the first put */
};

static void half_listen(struct half *half, char *url, size_t size)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t name_size = sizeof(name);

	half->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
		bind(half->listen_fd, (struct sockaddr *)&name, name_size), 0);
	assert_int_equal(listen(half->listen_fd, 4), 0);
	assert_int_equal(getsockname(half->listen_fd, (struct sockaddr *)&name,
				     &name_size),
			 0);
	(void)snprintf(url, size, "redis://127.0.0.1:%u", ntohs(name.sin_port));
}

static void half_answer(void *arg)
{
	struct half *half = arg;

	half->fd = accept(half->listen_fd, NULL, NULL);
	assert_true(half->fd >= 0);
	if (*half->says)
		(void)send(half->fd, half->says, strlen(half->says),
			   MSG_NOSIGNAL);
}

/* Until there is no more for now, or at all. */
static void half_read(struct half *half, int flags)
{
	char bytes[16 << 10];
	ssize_t n;

	while ((n = recv(half->fd, bytes, sizeof(bytes), flags)) > 0)
		for (ssize_t i = 0; i < n; i++)
			half->n_strange += bytes[i] == 'Y' || bytes[i] == 'Z';
}

/* The body is its owner's again, the server has room, and another is put. */
static void half_put(void *arg, const struct outcome *outcome)
{
	struct half *half = arg;

	half_read(half, MSG_DONTWAIT);
	memset(half->body, 'Y', half->size);
	half->asking.backend->ops->put(half->asking.backend, "second", "ZZ", 2,
				       0, 0, 200, asking_done, &half->second);
	asking_done(&half->first, outcome);
}

static void half_sent(const char *says)
{
	struct half half = { .says = says, .fd = -1, .size = 32 << 20 };
	char url[64];

	half_listen(&half, url, sizeof(url));
	open_url(&half.asking, url, NULL);
	half.first.asking = half.second.asking = &half.asking;
	half.body = malloc(half.size);
	assert_non_null(half.body);
	memset(half.body, 'x', half.size);
	(void)loop_after(half.asking.loop, 100, half_answer, &half);
	half.asking.backend->ops->put(half.asking.backend, "first", half.body,
				      half.size, 0, 0, 300, half_put, &half);
	asking_wait(&half.asking, 2);
	asking_close(&half.asking);
	half_read(&half, 0);
	assert_int_equal(half.n_strange, 0);
	(void)close(half.fd);
	(void)close(half.listen_fd);
	free(half.body);
}

static void what_is_half_sent_is_followed_by_nothing(void **state)
{
	static const char *const rows[] = { "", "+OK\r\n",
					    "-ERR too early\r\n" };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		half_sent(rows[i]);
}

/* ---- Sizes --------------------------------------------------------------- */

static void something_large_is_had_as_it_is(void **state)
{
	const size_t size = ((size_t)32 << 20) + 1;
	char *body = malloc(size);
	struct asking asking;
	struct outcome outcome;

	for (size_t i = 0; i < size; i++)
		body[i] = (char)(i * 2654435761u >> 24);
	if (!redis) {
		free(body);
		HARNESS_LEAVE_OUT("no redis-server");
	}
	open_url(&asking, server_url(redis), NULL);
	outcome = asking_put(&asking, "large", body, size, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(&asking, "large");
	asking_expect(&outcome, KILN_OK, body, size);
	free(body);
	asking_close(&asking);
}

/* S50: on the same connection, whose other answers are not lost. */
static void what_is_too_large_is_passed_over(void **state)
{
	static const size_t sizes[] = { 11, 1000, 1 << 20, 5 << 20 };
	struct asking asking;
	struct outcome outcome;
	char *body = calloc(1, 5 << 20);
	struct answer answers[3];
	const char *names[] = { "before", "too-large", "before" };
	void *const args[] = { &answers[0], &answers[1], &answers[2] };

	if (!redis) {
		free(body);
		HARNESS_LEAVE_OUT("no redis-server");
	}
	open_url(&asking, server_url(redis), NULL);
	assert_int_equal(asking_put_status(&asking, "before", "0123456789"),
			 KILN_OK);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		outcome =
			asking_put(&asking, "too-large", body, sizes[i], 0, 0);
		asking_expect(&outcome, KILN_OK, NULL, 0);
		for (size_t j = 0; j < 3; j++)
			answers[j] = (struct answer){ .asking = &asking };
		asking.backend->ops->get(asking.backend, names, 3, 10,
					 asking.timeout_ms, asking_done, args);
		asking_wait(&asking, 3);
		asking_expect(&answers[0].outcome, KILN_OK, "0123456789", 10);
		asking_expect(&answers[1].outcome, KILN_E_TOO_LARGE, NULL, 0);
		asking_expect(&answers[2].outcome, KILN_OK, "0123456789", 10);
	}
	free(body);
	asking_close(&asking);
}

/* S50: it is not waited for, and who asked behind it has an answer by another
   connection. */
static void what_is_far_too_large_costs_nothing_but_itself(void **state)
{
	const size_t size = ((size_t)64 << 20) + 1;
	const char *names[] = { "near", "huge", "near", "huge", "near" };
	struct answer answers[5], head, lease[2], renew, release;
	void *args[5];
	struct asking asking;
	const struct backend_ops *ops;
	struct outcome outcome;
	char *body = calloc(1, size);

	if (!redis) {
		free(body);
		HARNESS_LEAVE_OUT("no redis-server");
	}
	open_url(&asking, server_url(redis), NULL);
	ops = asking.backend->ops;
	assert_int_equal(asking_put_status(&asking, "near", "0123456789"),
			 KILN_OK);
	outcome = asking_put(&asking, "huge", body, size, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	free(body);
	outcome = asking_lease(&asking, "another's", OTHER, 60000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_lease(&asking, "renewed", TOKEN, 60000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_lease(&asking, "released", TOKEN, 60000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	for (size_t i = 0; i < 5; i++) {
		answers[i] = (struct answer){ .asking = &asking };
		args[i] = &answers[i];
	}
	head = lease[0] = lease[1] = renew = release =
		(struct answer){ .asking = &asking };
	ops->get(asking.backend, names, 5, 10, asking.timeout_ms, asking_done,
		 args);
	ops->head(asking.backend, "near", asking.timeout_ms, asking_done,
		  &head);
	ops->lease(asking.backend, "huge", TOKEN, 60000, asking.timeout_ms,
		   asking_done, &lease[0]);
	ops->lease(asking.backend, "another's", TOKEN, 60000, asking.timeout_ms,
		   asking_done, &lease[1]);
	ops->renew(asking.backend, "renewed", TOKEN, 600000, asking.timeout_ms,
		   asking_done, &renew);
	ops->release(asking.backend, "released", TOKEN, asking.timeout_ms,
		     asking_done, &release);
	asking_wait(&asking, 10);
	for (size_t i = 0; i < 5; i++)
		asking_expect(&answers[i].outcome,
			      i % 2 ? KILN_E_TOO_LARGE : KILN_OK,
			      i % 2 ? NULL : "0123456789", 10);
	asking_expect(&head.outcome, KILN_OK, NULL, 0);
	assert_int_equal(head.outcome.total_bytes, 10);
	asking_expect(&lease[0].outcome, KILN_OK, NULL, 0);
	asking_expect(&lease[1].outcome, KILN_EXISTS, NULL, 0);
	asking_expect(&renew.outcome, KILN_OK, NULL, 0);
	/* The answer that was lost may have been OK, and this is the second. */
	if (release.outcome.status != KILN_MISS)
		asking_expect(&release.outcome, KILN_OK, NULL, 0);
	assert_int_equal(redis_number("EXISTS", "kiln:lease:released"), 0);
	assert_true(redis_number("PTTL", "kiln:lease:renewed") > 60000);
	outcome = asking_renew(&asking, "huge", TOKEN, 60000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	asking_close(&asking);
}

/* What a server sends is in proportion to what it is asked for. */
static void things_far_too_large_are_not_asked_for_again_and_again(void **state)
{
	static const char huge[] = "$1099511627776\r\n";
	const char *names[MANY];
	struct answer answers[MANY];
	void *args[MANY];
	struct asking asking;
	struct bad_server *bad;
	unsigned n_asked = 0;
	char url[64];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, huge, strlen(huge), BAD_KEEP);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u",
		       bad_server_port(bad));
	asking_open(&asking, directory, url, NULL, NULL);
	for (size_t i = 0; i < MANY; i++) {
		answers[i] = (struct answer){ .asking = &asking };
		args[i] = &answers[i];
		names[i] = "x";
	}
	asking.backend->ops->get(asking.backend, names, MANY, 10,
				 asking.timeout_ms, asking_done, args);
	asking_wait(&asking, MANY);
	for (size_t i = 0; i < MANY; i++)
		asking_expect(&answers[i].outcome, KILN_E_TOO_LARGE, NULL, 0);
	for (const char *at = bad_server_asked(bad);
	     (at = strstr(at, "kiln:x")); at++)
		n_asked++;
	assert_true(n_asked >= MANY && n_asked <= 3 * MANY);
	bad_server_free(bad);
	asking_close(&asking);
}

/* ---- Leases ------------------------------------------------------------- */

static void a_lease_is_had_by_one(void **state)
{
	struct asking asking;
	struct outcome outcome;
	long long ms;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	open_url(&asking, server_url(redis), NULL);
	outcome = asking_lease(&asking, "l", TOKEN, 60000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_lease(&asking, "l", OTHER, 60000);
	asking_expect(&outcome, KILN_EXISTS, NULL, 0);
	outcome = asking_renew(&asking, "l", OTHER, 60000);
	asking_expect(&outcome, KILN_MISS, NULL, 0);
	outcome = asking_renew(&asking, "l", TOKEN, 600000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	ms = redis_number("PTTL", "kiln:lease:l");
	assert_true(ms > 500000 && ms <= 600000);
	outcome = asking_release(&asking, "l", OTHER);
	asking_expect(&outcome, KILN_MISS, NULL, 0);
	outcome = asking_release(&asking, "l", TOKEN);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_renew(&asking, "l", TOKEN, 60000);
	asking_expect(&outcome, KILN_MISS, NULL, 0);
	outcome = asking_lease(&asking, "l", OTHER, 20);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	do /* it ends by itself */
		outcome = asking_lease(&asking, "l", TOKEN, 60000);
	while (outcome.status == KILN_EXISTS);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	asking_close(&asking);
}

/* ---- Credentials -------------------------------------------------------- */

/* What redis/README.md says a user needs is enough. */
static void use_all(struct asking *asking)
{
	struct outcome outcome = asking_head(asking, "auth");

	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_lease(asking, "auth", TOKEN, 60000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_renew(asking, "auth", TOKEN, 60000);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_release(asking, "auth", TOKEN);
	asking_expect(&outcome, KILN_OK, NULL, 0);
}

/* S53, S55 */
static void who_may_is_let_in(void **state)
{
	static const char *const options[] = {
		"--requirepass",   ASKING_SECRET, "--user", "builder", "on",
		">other-password", "~kiln:*",	  "+get",   "+strlen", "+set",
		"+eval",	   "+pexpire",	  "+del",   "+select", NULL
	};
	static const struct {
		const char *words;
		enum kiln_status status;
	} rows[] = {
		{ "redis " ASKING_SECRET, KILN_OK },
		{ "redis default " ASKING_SECRET, KILN_OK },
		{ "redis builder other-password", KILN_OK },
		{ "redis wrong-" ASKING_SECRET, KILN_E_OWNER },
		{ "redis builder " ASKING_SECRET, KILN_E_OWNER },
		{ NULL, KILN_E_OWNER },
	};
	char *folder = harness_path(directory, "auth"), line[512], url[300];
	struct server *guarded;
	struct asking asking;
	struct outcome outcome;

	if (!redis) {
		free(folder);
		HARNESS_LEAVE_OUT("no redis-server");
	}
	assert_int_equal(ki_sys_posix.mkdir(&ki_sys_posix, folder, 0700), 0);
	guarded = server_redis(folder, options);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		(void)snprintf(url, sizeof(url), "%s/1", server_url(guarded));
		(void)snprintf(line, sizeof(line), "%s %s\n",
			       server_url(guarded),
			       rows[i].words ? rows[i].words : "");
		open_url(&asking, url, rows[i].words ? line : NULL);
		outcome = asking_put(&asking, "auth", "x", 1, 0, 0);
		asking_expect(&outcome, rows[i].status, NULL, 0);
		outcome = asking_get(&asking, "auth");
		asking_expect(&outcome, rows[i].status,
			      rows[i].status ? NULL : "x", 1);
		if (!rows[i].status)
			use_all(&asking);
		asking_close(&asking);
	}
	server_stop(guarded);
	free(folder);
}

static void a_password_for_a_server_without_is_told(void **state)
{
	struct asking asking;
	struct outcome outcome;
	char line[512];

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	(void)snprintf(line, sizeof(line), "%s redis " ASKING_SECRET "\n",
		       server_url(redis));
	open_url(&asking, server_url(redis), line);
	outcome = asking_get(&asking, "x");
	asking_expect(&outcome, KILN_E_OWNER, NULL, 0);
	assert_non_null(strstr(outcome.why, "has no password"));
	asking_close(&asking);
}

/* ---- Servers in trouble ------------------------------------------------- */

static struct server *start_another(const char *name,
				    const char *const *options)
{
	char *folder = harness_path(directory, name);
	struct server *server;

	assert_int_equal(ki_sys_posix.mkdir(&ki_sys_posix, folder, 0700), 0);
	server = server_redis(folder, options);
	free(folder);
	return server;
}

/* Who asks for an item meanwhile is not cut off. */
static void get_beside_a_lease(struct asking *asking, enum kiln_status status)
{
	struct answer answers[] = { { .asking = asking },
				    { .asking = asking } };
	void *const args[] = { &answers[1] };
	const struct backend_ops *ops = asking->backend->ops;
	const char *name = "x";

	ops->lease(asking->backend, "l", TOKEN, 60000, asking->timeout_ms,
		   asking_done, &answers[0]);
	ops->get(asking->backend, &name, 1, asking->body_max,
		 asking->timeout_ms, asking_done, args);
	asking_wait(asking, 2);
	asking_expect(&answers[0].outcome, status, NULL, 0);
	asking_expect(&answers[1].outcome, KILN_MISS, NULL, 0);
}

/* S53 */
static void a_server_that_is_full_or_a_replica_says_so(void **state)
{
	static const char *const full[] = { "--maxmemory", "1", NULL };
	static const char *const replica[] = { "--replicaof", "127.0.0.1 1",
					       "--replica-serve-stale-data",
					       "yes", NULL };
	struct server *server = start_another("full", full);
	struct asking asking;
	struct outcome outcome;

	if (!server)
		HARNESS_LEAVE_OUT("no redis-server");
	open_url(&asking, server_url(server), NULL);
	outcome = asking_put(&asking, "x", "x", 1, 0, 0);
	asking_expect(&outcome, KILN_E_FULL, NULL, 0);
	get_beside_a_lease(&asking, KILN_E_FULL);
	asking_close(&asking);
	server_stop(server);

	server = start_another("replica", replica);
	open_url(&asking, server_url(server), NULL);
	outcome = asking_put(&asking, "x", "x", 1, 0, 0);
	asking_expect(&outcome, KILN_E_READONLY, NULL, 0);
	assert_non_null(strstr(outcome.why, "READONLY"));
	get_beside_a_lease(&asking, KILN_E_READONLY);
	asking_close(&asking);
	server_stop(server);
}

/* S52 */
static void a_server_that_comes_back_is_used_again(void **state)
{
	struct server *server = start_another("again", NULL);
	struct asking asking;
	struct answer answer = { .asking = &asking };
	void *const args[] = { &answer };
	const char *name = "again";
	char *folder;
	unsigned port;

	if (!server)
		HARNESS_LEAVE_OUT("no redis-server");
	port = server_port(server);
	open_url(&asking, server_url(server), NULL);
	assert_int_equal(asking_put_status(&asking, name, "x"), KILN_OK);
	assert_int_equal(asking_get_status(&asking, name), KILN_OK);
	server_pause(server);
	asking.backend->ops->get(asking.backend, &name, 1, 64,
				 asking.timeout_ms, asking_done, args);
	server_kill(server);
	asking_wait(&asking, 1);
	asking_expect(&answer.outcome, KILN_E_IO, NULL, 0);
	assert_int_equal(asking_get_status(&asking, name), KILN_E_IO);
	assert_int_equal(asking_put_status(&asking, name, "x"), KILN_E_IO);
	server_stop(server);
	folder = harness_path(directory, "again");
	server = server_redis_at(folder, port, NULL);
	free(folder);
	assert_int_equal(asking_put_status(&asking, name, "x"), KILN_OK);
	assert_int_equal(asking_get_status(&asking, name), KILN_OK);
	asking_close(&asking);
	server_stop(server);
}

/* S52: late answers are not taken for those of others. */
static void a_server_that_stands_still_costs_the_time_that_was_given(
	void **state)
{
	struct server *server = start_another("still", NULL);
	struct asking asking;
	struct outcome outcome;

	if (!server)
		HARNESS_LEAVE_OUT("no redis-server");
	open_url(&asking, server_url(server), NULL);
	assert_int_equal(asking_put_status(&asking, "a", "a"), KILN_OK);
	assert_int_equal(asking_put_status(&asking, "b", "b"), KILN_OK);
	assert_int_equal(asking_get_status(&asking, "a"), KILN_OK);
	server_pause(server);
	asking.timeout_ms = 30;
	assert_int_equal(asking_get_status(&asking, "a"), KILN_E_TIMEOUT);
	assert_int_equal(asking_put_status(&asking, "c", "c"), KILN_E_TIMEOUT);
	/* Connected by the kernel, greeted by nobody. */
	assert_int_equal(asking_get_status(&asking, "a"), KILN_E_TIMEOUT);
	server_resume(server);
	asking.timeout_ms = HARNESS_HANG_S * 1000;
	outcome = asking_get(&asking, "b");
	asking_expect(&outcome, KILN_OK, "b", 1);
	asking_close(&asking);
	server_stop(server);
}

static void who_is_not_there_is_no_miss(void **state)
{
	static const char *const urls[] = {
		"redis://127.0.0.1:1",
		"redis://[::1]:1",
		"redis://no-such-host.kiln.invalid",
		"unix:/nowhere/redis.sock",
		"unix:/",
	};
	struct asking asking;
	struct outcome outcome;

	for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
		open_url(&asking, urls[i], NULL);
		outcome = asking_get(&asking, "x");
		asking_expect(&outcome, KILN_E_IO, NULL, 0);
		assert_non_null(outcome.why);
		outcome = asking_put(&asking, "x", "x", 1, 0, 0);
		asking_expect(&outcome, KILN_E_IO, NULL, 0);
		asking_close(&asking);
	}
}

/* S52 */
static void a_name_server_that_is_silent_holds_nobody_up(void **state)
{
	struct asking asking;
	unsigned n_calls;

	open_url(&asking, "redis://" STUCK_NAME, NULL);
	asking.timeout_ms = 20;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(asking_get_status(&asking, "x"),
				 KILN_E_TIMEOUT);
	n_calls = stuck_names_n_calls();
	assert_int_equal(n_calls, 1);
	asking_close(&asking);
}

static void who_still_waits_is_told_of_the_end(void **state)
{
	struct answer answers[4];
	void *const args[] = { &answers[0], &answers[1] };
	const char *names[] = { "a", "b" };
	struct asking asking;
	struct bad_server *bad;
	char url[64];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, "", 0, BAD_HANG);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u",
		       bad_server_port(bad));
	asking_open(&asking, directory, url, NULL, NULL);
	for (size_t i = 0; i < 4; i++)
		answers[i] = (struct answer){ .asking = &asking };
	asking.backend->ops->get(asking.backend, names, 2, 64, 60000,
				 asking_done, args);
	asking.backend->ops->put(asking.backend, "c", "c", 1, 0, 0, 60000,
				 asking_done, &answers[2]);
	asking.backend->ops->release(asking.backend, "c", TOKEN, 60000,
				     asking_done, &answers[3]);
	asking_close_backend(&asking);
	asking_wait(&asking, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(answers[i].n_calls, 1);
		asking_expect(&answers[i].outcome, KILN_E_IO, NULL, 0);
	}
	bad_server_free(bad);
	asking_close(&asking);
}

static void ask_once_more(void *arg, const struct outcome *outcome)
{
	static struct answer answer;
	struct asking *asking = ((struct answer *)arg)->asking;

	answer.asking = asking;
	asking->backend->ops->head(asking->backend, "b", 60000, asking_done,
				   &answer);
}

/* Who asks then would wait for good, or for what is freed. */
static void nobody_asks_while_it_is_closed(void **state)
{
	struct asking asking;
	struct answer answer = { .asking = &asking };
	int status;
	pid_t pid = fork();

	if (!pid) {
		(void)!freopen("/dev/null", "w", stderr);
		(void)signal(SIGABRT, SIG_DFL);
		open_url(&asking, "redis://127.0.0.1:1", NULL);
		asking.backend->ops->head(asking.backend, "a", 60000,
					  ask_once_more, &answer);
		asking_close_backend(&asking);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* S50, S52, S55 */
static void a_bad_answer_is_never_a_value(void **state)
{
#define SAYS(text) text, sizeof(text) - 1
	static const struct {
		const char *bytes;
		size_t size;
		enum bad_end end;
		enum kiln_status status;
	} rows[] = {
		{ SAYS("$-1\r\n"), BAD_KEEP, KILN_MISS },
		{ SAYS("$3\r\nabc\r\n"), BAD_KEEP, KILN_OK },
		{ SAYS("$3\r\nabc\r\n"), BAD_CLOSE, KILN_OK },
		/* Cut, in every part. */
		{ SAYS(""), BAD_CLOSE, KILN_E_IO },
		{ SAYS(""), BAD_RESET, KILN_E_IO },
		{ SAYS("$"), BAD_CLOSE, KILN_E_IO },
		{ SAYS("$5"), BAD_CLOSE, KILN_E_IO },
		{ SAYS("$5\r"), BAD_CLOSE, KILN_E_IO },
		{ SAYS("$5\r\nabc"), BAD_CLOSE, KILN_E_IO },
		{ SAYS("$5\r\nabc"), BAD_RESET, KILN_E_IO },
		{ SAYS("$5\r\nabcde\r"), BAD_CLOSE, KILN_E_IO },
		/* Without an end. */
		{ SAYS(""), BAD_ENDLESS, KILN_E_FORMAT },
		{ SAYS("+"), BAD_ENDLESS, KILN_E_FORMAT },
		{ SAYS("-ERR "), BAD_ENDLESS, KILN_E_FORMAT },
		{ SAYS("$"), BAD_ENDLESS, KILN_E_FORMAT },
		{ SAYS("$-"), BAD_ENDLESS, KILN_E_FORMAT },
		{ SAYS("$1099511627776\r\n"), BAD_ENDLESS, KILN_E_TOO_LARGE },
		{ SAYS("$99999999999999999999\r\n"), BAD_ENDLESS,
		  KILN_E_TOO_LARGE },
		/* In time or not. */
		{ SAYS(""), BAD_HANG, KILN_E_TIMEOUT },
		{ SAYS("$5\r\nabc"), BAD_HANG, KILN_E_TIMEOUT },
		{ SAYS("$50\r\nabcdefghijk"), BAD_DRIP, KILN_E_TIMEOUT },
		{ SAYS("$3\r\nabc\r\n"), BAD_DRIP, KILN_OK },
		{ SAYS("$-1\r\n"), BAD_DRIP, KILN_MISS },
		{ SAYS("-OOM x\r\n"), BAD_DRIP, KILN_E_FULL },
		/* Something else. */
		{ SAYS("+OK\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS(":1\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS("$-2\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS("$x\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS("*1\r\n$1\r\na\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS("*2147483647\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS("%1\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS("HTTP/1.1 400 Bad Request\r\n\r\n"), BAD_CLOSE,
		  KILN_E_FORMAT },
		{ SAYS("\x15\x03\x01\x00\x02"), BAD_CLOSE, KILN_E_FORMAT },
		/* Errors, with what they must not say. */
		{ SAYS("-ERR " ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_UNSUPPORTED },
		{ SAYS("-" ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_UNSUPPORTED },
		{ SAYS("-\r\n"), BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS("-NOAUTH " ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_OWNER },
		{ SAYS("-NOPERM " ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_OWNER },
		{ SAYS("-DENIED " ASKING_SECRET "\r\n"), BAD_CLOSE,
		  KILN_E_OWNER },
		{ SAYS("-LOADING " ASKING_SECRET "\r\n"), BAD_KEEP, KILN_E_IO },
		{ SAYS("-MASTERDOWN " ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_IO },
		{ SAYS("-MOVED 1 " ASKING_SECRET ":6379\r\n"), BAD_KEEP,
		  KILN_E_UNSUPPORTED },
		{ SAYS("-OOM " ASKING_SECRET "\r\n"), BAD_KEEP, KILN_E_FULL },
		{ SAYS("-WRONGTYPE " ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_FORMAT },
		{ SAYS("-ERR max number of clients reached\r\n"), BAD_CLOSE,
		  KILN_E_IO },
		/* More than was asked for: the answer counts, the rest does
		   not. */
		{ SAYS("$3\r\nabc\r\n$3\r\nxyz\r\n"), BAD_KEEP, KILN_OK },
	};
	struct asking asking;
	struct bad_server *bad;
	char url[64];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, "", 0, BAD_CLOSE);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u",
		       bad_server_port(bad));
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int is_late = rows[i].status == KILN_E_TIMEOUT;
		/* Who hangs up after an answer may do so after the next
		   question. */
		unsigned n_times =
			!rows[i].status && rows[i].end == BAD_CLOSE ? 1 : 3;

		bad_server_say(bad, rows[i].bytes, rows[i].size, rows[i].end);
		asking_open(&asking, directory, url, NULL, NULL);
		asking.timeout_ms = is_late ? 50 : HARNESS_HANG_S * 1000;
		for (unsigned n = 0; n < n_times; n++) {
			struct outcome outcome = asking_get(&asking, "x");

			if (outcome.status != rows[i].status)
				print_message("# row %zu, time %u\n", i, n);
			asking_expect(&outcome, rows[i].status,
				      rows[i].status ? NULL : "abc", 3);
			if (rows[i].status < 0)
				assert_non_null(outcome.why);
		}
		asking_close_backend(&asking);
	}
	bad_server_free(bad);
	asking_close(&asking);
}

/* S55: a server that repeats what it was told. */
static void an_answer_to_a_password_is_not_passed_on(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
		enum bad_end end;
		enum kiln_status status;
	} rows[] = {
		{ SAYS("-WRONGPASS " ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_OWNER },
		{ SAYS("-ERR invalid password " ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_OWNER },
		{ SAYS("-ERR unknown command 'AUTH', with args: " ASKING_SECRET
		       "\r\n"),
		  BAD_CLOSE, KILN_E_UNSUPPORTED },
		{ SAYS("+" ASKING_SECRET "\r\n"), BAD_KEEP, KILN_E_FORMAT },
		{ SAYS("$11\r\n" ASKING_SECRET "\r\n"), BAD_KEEP,
		  KILN_E_FORMAT },
		{ SAYS(ASKING_SECRET), BAD_CLOSE, KILN_E_FORMAT },
		{ SAYS(""), BAD_CLOSE, KILN_E_IO },
		{ SAYS(""), BAD_HANG, KILN_E_TIMEOUT },
	};
	struct asking asking;
	struct bad_server *bad;
	char url[64], line[256];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, "", 0, BAD_CLOSE);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u",
		       bad_server_port(bad));
	(void)snprintf(line, sizeof(line), "%s redis " ASKING_SECRET "\n", url);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int is_late = rows[i].status == KILN_E_TIMEOUT;
		struct outcome outcome;

		bad_server_say(bad, rows[i].bytes, rows[i].size, rows[i].end);
		asking_open(&asking, directory, url, line, NULL);
		asking.timeout_ms = is_late ? 50 : HARNESS_HANG_S * 1000;
		outcome = asking_get(&asking, "x");
		asking_expect(&outcome, rows[i].status, NULL, 0);
		asking_close_backend(&asking);
	}
	/* It was told indeed. */
	assert_non_null(strstr(bad_server_asked(bad), ASKING_SECRET));
	assert_null(strstr(bad_server_asked(bad), "GET"));
	bad_server_free(bad);
	asking_close(&asking);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_there_by_tcp_and_by_socket),
		cmocka_unit_test(databases_are_apart),
		cmocka_unit_test(a_database_that_is_not_there_takes_nothing),
		cmocka_unit_test(many_are_had_at_once),
		cmocka_unit_test(what_is_put_lives_as_long_as_it_should),
		cmocka_unit_test(a_put_replaces_or_makes_no_second),
		cmocka_unit_test(gets_do_not_wait_for_puts),
		cmocka_unit_test(what_is_half_sent_is_followed_by_nothing),
		cmocka_unit_test(something_large_is_had_as_it_is),
		cmocka_unit_test(what_is_too_large_is_passed_over),
		cmocka_unit_test(
			what_is_far_too_large_costs_nothing_but_itself),
		cmocka_unit_test(
			things_far_too_large_are_not_asked_for_again_and_again),
		cmocka_unit_test(a_lease_is_had_by_one),
		cmocka_unit_test(who_may_is_let_in),
		cmocka_unit_test(a_password_for_a_server_without_is_told),
		cmocka_unit_test(a_server_that_is_full_or_a_replica_says_so),
		cmocka_unit_test(a_server_that_comes_back_is_used_again),
		cmocka_unit_test(
			a_server_that_stands_still_costs_the_time_that_was_given),
		cmocka_unit_test(who_is_not_there_is_no_miss),
		cmocka_unit_test(a_name_server_that_is_silent_holds_nobody_up),
		cmocka_unit_test(who_still_waits_is_told_of_the_end),
		cmocka_unit_test(nobody_asks_while_it_is_closed),
		cmocka_unit_test(a_bad_answer_is_never_a_value),
		cmocka_unit_test(an_answer_to_a_password_is_not_passed_on),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
