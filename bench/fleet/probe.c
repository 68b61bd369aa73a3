/* SPDX-License-Identifier: MIT */

/*
 * What a request costs a server: the processor time of its process (its own clock,
 * which others on the machine do not disturb), over many requests, by the number
 * of them.  Sixteen connections have a request each on the way, so that the server
 * finds several whenever it looks, as one does that is busy.
 *
 *	request ns	of values of 1 KiB and of 128 KiB, on a line through both;
 *	byte ns		its slope
 *
 * Loopback: the system's work for both ends of a connection is the sender's, so
 * values cost a little more here than behind a network card.  The servers have one
 * thread, which is all that redis-server has for commands; nginx is started as a
 * single process, and the simulation gives it several of those.
 */

#include "fleet.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "servers_test.h"

#define CONNECTIONS   16
#define BATCH	      8
#define NAMES	      256   /* more values than fit a processor's caches */
#define MARK	      "NNN" /* in a name: its number */
#define SMALL	      1024
#define LARGE	      131072
#define NGINX_WORKERS 4

const char *const fleet_request_names[FLEET_REQUESTS] = {
	[FLEET_MISS] = "get, absent",	   [FLEET_HIT] = "get",
	[FLEET_BATCH] = "get, in a batch", [FLEET_PUT] = "put",
	[FLEET_LEASE] = "lease",
};

struct probe {
	struct server *server;
	clockid_t clock;
	int connections[CONNECTIONS];
	char folder[BENCH_FOLDER_BYTES];
};

/* Bytes to send, and how many come back for each of the requests in them. */
struct exchange {
	char *bytes;
	size_t size;
	size_t answer_size;
	unsigned n_requests;
	size_t marks[BATCH]; /* where MARK is in each of them */
};

/* ---- A server -------------------------------------------------------------- */

static int connect_to(unsigned port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		bench_fail("port %u: %s", port, strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

/* -1: it is not installed. */
static int begin(struct probe *probe, struct server *server)
{
	probe->server = server;
	if (!server) {
		bench_remove_tree(probe->folder);
		return -1;
	}
	for (int i = 0; i < CONNECTIONS; i++)
		probe->connections[i] = connect_to(server_port(server));
	if (clock_getcpuclockid(server_process(server), &probe->clock))
		bench_fail("a server has no clock");
	return 0;
}

static void end(struct probe *probe)
{
	for (int i = 0; i < CONNECTIONS; i++)
		close(probe->connections[i]);
	server_stop(probe->server);
	bench_remove_tree(probe->folder);
}

static double cpu_ns(const struct probe *probe)
{
	struct timespec now;

	if (clock_gettime(probe->clock, &now))
		bench_fail("a server has ended");
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- Exchanges ------------------------------------------------------------- */

static void send_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);

		if (n <= 0)
			bench_fail("a server has hung up: %s", strerror(errno));
		bytes += n;
		size -= (size_t)n;
	}
}

static void receive(int fd, size_t size)
{
	static char room[1 << 18];

	while (size) {
		ssize_t n = recv(fd, room,
				 size < sizeof(room) ? size : sizeof(room), 0);

		if (n <= 0)
			bench_fail("a server has hung up: %s", strerror(errno));
		size -= (size_t)n;
	}
}

/* The places of names' numbers. */
static void find_marks(struct exchange *exchange)
{
	const char *at = exchange->bytes;

	for (unsigned i = 0; i < exchange->n_requests; i++) {
		at = memmem(at, exchange->size - (size_t)(at - exchange->bytes),
			    MARK, strlen(MARK));
		if (!at)
			bench_fail("a request without a name");
		exchange->marks[i] = (size_t)(at - exchange->bytes);
		at += strlen(MARK);
	}
}

static void set_numbers(struct exchange *exchange, unsigned number)
{
	char digits[8];

	for (unsigned i = 0; i < exchange->n_requests; i++) {
		snprintf(digits, sizeof(digits), "%03u",
			 (number * exchange->n_requests + i) % NAMES);
		memcpy(exchange->bytes + exchange->marks[i], digits,
		       strlen(MARK));
	}
}

/* How many bytes the answer to a request over HTTP has; it is received. */
static size_t http_answer(int fd, const struct exchange *exchange,
			  const char *expected)
{
	char head[4096];
	size_t size = 0, body = 0;
	const char *length;

	send_all(fd, exchange->bytes, exchange->size);
	do {
		if (size + 1 == sizeof(head) ||
		    recv(fd, head + size, 1, 0) != 1)
			bench_fail("a server gives no answer");
		head[++size] = '\0';
	} while (size < 4 || memcmp(head + size - 4, "\r\n\r\n", 4));
	if (!strstr(head, expected))
		bench_fail("nginx answers %.20s, not %s", head, expected);
	length = strcasestr(head, "content-length:");
	if (length)
		body = strtoul(length + 15, NULL, 10);
	receive(fd, body);
	return size + body;
}

/* Processor time for each request. */
static double measure(const struct probe *probe, struct exchange *exchange,
		      unsigned n_rounds)
{
	double begun_ns = 0;
	unsigned number = 0;

	/* The first rounds warm it up. */
	for (unsigned i = 0; i < n_rounds + n_rounds / 4; i++) {
		if (i == n_rounds / 4)
			begun_ns = cpu_ns(probe);
		for (int j = 0; j < CONNECTIONS; j++) {
			set_numbers(exchange, number++);
			send_all(probe->connections[j], exchange->bytes,
				 exchange->size);
		}
		for (int j = 0; j < CONNECTIONS; j++)
			receive(probe->connections[j],
				exchange->answer_size * exchange->n_requests);
	}
	return (cpu_ns(probe) - begun_ns) /
	       ((double)n_rounds * CONNECTIONS * exchange->n_requests);
}

/* A line through a small value and a large one. */
static void set_line(struct fleet_engine *engine, enum fleet_request request,
		     double small_ns, double large_ns)
{
	double slope = (large_ns - small_ns) / (LARGE - SMALL);

	engine->byte_ns[request] = slope > 0 ? slope : 0;
	engine->request_ns[request] =
		small_ns - engine->byte_ns[request] * SMALL;
}

/* ---- redis-server ---------------------------------------------------------- */

/* One command, its last word of so many bytes, n times over. */
static struct exchange redis_exchange(const char *const *words, size_t n_words,
				      size_t last_size, size_t answer_size,
				      unsigned n)
{
	struct exchange exchange = { .answer_size = answer_size,
				     .n_requests = n };
	FILE *file = open_memstream(&exchange.bytes, &exchange.size);

	if (!file)
		bench_fail("out of memory");
	while (n--) {
		fprintf(file, "*%zu\r\n", n_words + (last_size ? 1 : 0));
		for (size_t i = 0; i < n_words; i++)
			fprintf(file, "$%zu\r\n%s\r\n", strlen(words[i]),
				words[i]);
		if (!last_size)
			continue;
		fprintf(file, "$%zu\r\n", last_size);
		for (size_t i = 0; i < last_size; i++)
			fputc('v', file);
		fputs("\r\n", file);
	}
	if (fclose(file))
		bench_fail("out of memory");
	find_marks(&exchange);
	return exchange;
}

#define WORDS(...)                                                             \
	(const char *const[]){ __VA_ARGS__ },                                  \
		sizeof((const char *const[]){ __VA_ARGS__ }) /                 \
			sizeof(const char *)

static double redis_ns(const struct probe *probe, struct exchange exchange,
		       unsigned n_rounds)
{
	double ns = measure(probe, &exchange, n_rounds);

	free(exchange.bytes);
	return ns;
}

/* "$", digits, CR LF, bytes, CR LF. */
static size_t bulk_size(size_t size)
{
	return size + 5 + (size_t)snprintf(NULL, 0, "%zu", size);
}

/* As long as names are. */
#define NAME                                                                   \
	"kiln:00000000000000000000000000000000"                                \
	"00000000000000000000000000000" MARK
#define NO_NAME                                                                \
	"kiln:ffffffffffffffffffffffffffffffff"                                \
	"fffffffffffffffffffffffffffff" MARK

int fleet_probe_redis(struct fleet_engine *out_engine, int is_quick)
{
	const unsigned n = is_quick ? 16 : 100, many = is_quick ? 20 : 1000;
	struct probe probe;
	double put[2], get[2], batch[2];

	bench_make_folder(probe.folder, 1 << 20);
	if (begin(&probe, server_redis(probe.folder, NULL)))
		return -1;
	*out_engine = (struct fleet_engine){ .name = "redis", .n_workers = 1 };
	for (int i = 0; i < 2; i++) {
		const size_t size = i ? LARGE : SMALL;
		const unsigned rounds = i ? n : many;

		put[i] = redis_ns(
			&probe, redis_exchange(WORDS("SET", NAME), size, 5, 1),
			rounds);
		get[i] = redis_ns(&probe,
				  redis_exchange(WORDS("GET", NAME), 0,
						 bulk_size(size), 1),
				  rounds);
		batch[i] = redis_ns(&probe,
				    redis_exchange(WORDS("GET", NAME), 0,
						   bulk_size(size), BATCH),
				    rounds / 8 + 1);
	}
	set_line(out_engine, FLEET_PUT, put[0], put[1]);
	set_line(out_engine, FLEET_HIT, get[0], get[1]);
	set_line(out_engine, FLEET_BATCH, batch[0], batch[1]);
	out_engine->request_ns[FLEET_MISS] = redis_ns(
		&probe, redis_exchange(WORDS("GET", NO_NAME), 0, 5, 1), many);
	/* Another has it: what those who wait are told. */
	out_engine->request_ns[FLEET_LEASE] = redis_ns(
		&probe,
		redis_exchange(WORDS("SET", NAME, "token", "NX", "PX", "10000"),
			       0, 5, 1),
		many);
	end(&probe);
	return 0;
}

/* ---- nginx ----------------------------------------------------------------- */

static struct exchange http_exchange(const char *method, const char *name,
				     size_t body_size)
{
	struct exchange exchange = { .n_requests = 1 };
	FILE *file = open_memstream(&exchange.bytes, &exchange.size);

	if (!file)
		bench_fail("out of memory");
	fprintf(file, "%s /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n", method, name);
	if (body_size)
		fprintf(file, "Content-Length: %zu\r\n", body_size);
	fputs("\r\n", file);
	for (size_t i = 0; i < body_size; i++)
		fputc('v', file);
	if (fclose(file))
		bench_fail("out of memory");
	find_marks(&exchange);
	return exchange;
}

static double http_ns(const struct probe *probe, struct exchange exchange,
		      const char *expected, unsigned n_rounds)
{
	double ns;

	set_numbers(&exchange, 0);
	exchange.answer_size =
		http_answer(probe->connections[0], &exchange, expected);
	ns = measure(probe, &exchange, n_rounds);
	free(exchange.bytes);
	return ns;
}

/* The first put makes a file, and is answered otherwise than those that replace
   it. */
static double put_ns(const struct probe *probe, const char *name, size_t size,
		     unsigned n_rounds)
{
	struct exchange first = http_exchange("PUT", name, size);

	for (unsigned i = 0; i < NAMES; i++) {
		set_numbers(&first, i);
		http_answer(probe->connections[0], &first, " 201 ");
	}
	free(first.bytes);
	return http_ns(probe, http_exchange("PUT", name, size), " 204 ",
		       n_rounds);
}

int fleet_probe_nginx(struct fleet_engine *out_engine, int is_quick)
{
	const unsigned n = is_quick ? 16 : 100, many = is_quick ? 20 : 1000;
	static const char *const names[] = { "small/" MARK, "large/" MARK };
	const struct server_nginx_options options = {
		.extra_location = "create_full_put_path on;"
	};
	struct probe probe;
	double put[2], get[2];

	bench_make_folder(probe.folder, (uint64_t)2 * NAMES * LARGE);
	if (begin(&probe, server_nginx(probe.folder, &options)))
		return -1;
	*out_engine = (struct fleet_engine){ .name = "nginx",
					     .n_workers = NGINX_WORKERS };
	for (int i = 0; i < 2; i++) {
		const unsigned rounds = i ? n : many;

		put[i] = put_ns(&probe, names[i], i ? LARGE : SMALL, rounds);
		get[i] = http_ns(&probe, http_exchange("GET", names[i], 0),
				 " 200 ", rounds);
	}
	set_line(out_engine, FLEET_PUT, put[0], put[1]);
	set_line(out_engine, FLEET_HIT, get[0], get[1]);
	/* Each is a request of its own over HTTP. */
	set_line(out_engine, FLEET_BATCH, get[0], get[1]);
	out_engine->request_ns[FLEET_MISS] = http_ns(
		&probe, http_exchange("GET", "none/" MARK, 0), " 404 ", many);
	end(&probe);
	return 0;
}
