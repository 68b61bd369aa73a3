/* SPDX-License-Identifier: MIT */

/*
 * A remote, on real servers: ./dev bench remote
 *
 *	local	what a hit here costs when there is a remote, too: instructions, as
 *		valgrind counts them, and system calls, as they are traced
 *	dead	a miss when the server does not answer and that is known
 *	redis	a value of 64 KB that redis-server has, for which kiln_get() asks the
 *		helper, and hiredis in the same process
 *	nginx	the same, and libcurl on a connection that is kept
 *	lease	64 programs on each of 8 nodes want one key that nobody has
 *	ahead	500 kernels on a node that has none of them, from a server that is 2
 *		ms away, in the order of the last run and without it
 *	exit	what 100 uploads that wait cost a program that ends
 *	pack	a pack on nginx behind 20 ms: what is fetched for its first 100
 *		entries
 *
 * Nodes, servers and the proxy that makes the distances are those of tests/remote.
 * What is compared is measured in turns, of which medians count.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <curl/curl.h>
#include <hiredis/hiredis.h>
#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "bench.h"
#include "node.h"
#include "servers_test.h"
#include "stock.h"

#define VALUE_BYTES 65536
#define MEMORY_HITS 200000
#define STORE_HITS  10000
#define EXITS	    21
#define UPLOADS	    100
#define AHEAD	    500
#define NODES	    8
#define PROGRAMS    64
#define VALUES_MAX  1024

static struct bench bench;

/* What a program finds out, for the test; shared. */
static struct findings {
	size_t n;
	double ns[VALUES_MAX], peer_ns[VALUES_MAX];
	double all_ns;
	uint64_t ended_ns; /* when it had nothing left to do but to end */
	_Atomic unsigned n_builds;
} * findings;

static struct node *new_node(const char *url, const char *trust)
{
	struct node *node = node_new();

	node_set(node, "KILN_REMOTE", url);
	node_set(node, "KILN_REMOTE_TRUST", trust);
	return node;
}

static void must(int bad, const char *what)
{
	if (bad)
		bench_fail("%s: %d", what, bad);
}

static void must_run(struct node *node, node_program *program, void *arg)
{
	must(node_run(node, program, arg), bench.title);
}

/* ---- Values ----------------------------------------------------------------- */

struct span {
	unsigned first, n;
	size_t size;
};

/* Built, kept, and handed to the helper. */
static int make_values(unsigned index, void *arg)
{
	const struct span *span = arg;
	struct kiln *kiln = node_open_kiln(KILN_OPEN_ORDER);

	if (!kiln)
		return 1;
	for (unsigned i = span->first; i < span->first + span->n; i++) {
		struct node_use use = { .size = span->size };

		if (node_use(kiln, i, &use))
			return 2;
		/* More than the queue has room for. */
		if (i % 200 == 199)
			node_drain_here();
	}
	kiln_close(kiln);
	return 0;
}

static void fill(struct node *node, const struct span *span)
{
	node_start_helper(node);
	must_run(node, make_values, (void *)(uintptr_t)span);
	node_drain(node);
}

/* ---- local ------------------------------------------------------------------ */

/* `--hits N WAY`: what valgrind and ptrace look at.  A store in $KILN_STORE. */
static int make_hits(unsigned n, const char *way)
{
	struct kiln *kiln =
		node_open_kiln(strcmp(way, "store") ? 0 : KILN_OPEN_NO_MEMORY);
	struct kiln_key *key = node_key(1);
	struct node_use use = { .size = 4096 };
	struct kiln_blob *blob;

	if (!kiln || node_use(kiln, 1, &use))
		return 1;
	/* For who traces. */
	if (getenv("BENCH_TRACED"))
		raise(SIGSTOP);
	for (unsigned i = 0; i < n; i++) {
		if (kiln_get(kiln, key, &blob))
			return 1;
		kiln_blob_unref(blob);
	}
	_exit(0);
}

static void run_hits(struct node *node, unsigned n, const char *way,
		     const char *const *before, int err)
{
	char number[16], self[4096];
	const char *words[12];
	ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
	size_t i = 0;

	if (size < 0)
		_exit(1);
	self[size] = '\0';
	snprintf(number, sizeof(number), "%u", n);
	while (before && before[i]) {
		words[i] = before[i];
		i++;
	}
	words[i++] = self;
	words[i++] = "--hits";
	words[i++] = number;
	words[i++] = way;
	words[i] = NULL;
	node_enter(node);
	if (err >= 0)
		dup2(err, STDERR_FILENO);
	execvp(words[0], (char **)(uintptr_t)words);
	_exit(127);
}

static double count_instructions(struct node *node, unsigned n, const char *way)
{
	static const char *const valgrind[] = {
		"valgrind", "--tool=callgrind",
		"--callgrind-out-file=/dev/null", NULL
	};
	char text[8192] = "", *found;
	size_t size = 0;
	int ends[2];
	ssize_t got;
	pid_t pid;

	if (pipe(ends))
		bench_fail("pipe: %s", strerror(errno));
	pid = fork();
	if (!pid)
		run_hits(node, n, way, valgrind, ends[1]);
	close(ends[1]);
	while ((got = read(ends[0], text + size, sizeof(text) - 1 - size)) > 0)
		size += (size_t)got;
	close(ends[0]);
	found = strstr(text, "Collected : ");
	if (node_end(pid) || !found)
		bench_fail("valgrind: %s", text);
	return strtod(found + strlen("Collected : "), NULL);
}

static double count_system_calls(struct node *node, unsigned n, const char *way)
{
	int status, is_counting = 0;
	double calls = 0;
	pid_t pid = fork();

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		setenv("BENCH_TRACED", "1", 1);
		run_hits(node, n, way, NULL, -1);
	}
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == SIGSTOP)
			is_counting = 1;
		else if (is_counting)
			calls += 0.5;
		ptrace(is_counting ? PTRACE_SYSCALL : PTRACE_CONT, pid, 0, 0);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		bench_fail("a traced program ended with %d", status);
	return calls;
}

static void compare_local(struct node *with, struct node *without,
			  const char *way)
{
	/* What opening and building cost besides differs from run to run. */
	const unsigned n = bench.quick		   ? 100
			   : !strcmp(way, "store") ? STORE_HITS
						   : MEMORY_HITS;
	const double a = count_instructions(with, n, way) -
			 count_instructions(with, 0, way);
	const double b = count_instructions(without, n, way) -
			 count_instructions(without, 0, way);
	const double calls = count_system_calls(with, n, way) -
			     count_system_calls(with, 0, way) -
			     count_system_calls(without, n, way) +
			     count_system_calls(without, 0, way);
	char row[100];

	snprintf(row, sizeof(row),
		 "hit in %s, remote configured : without, "
		 "instructions",
		 way);
	bench_row_bar(&bench, row, a / b, "", 1.02, BENCH_LOWER);
	snprintf(row, sizeof(row), "hit in %s, system calls that a remote adds",
		 way);
	bench_row_bar(&bench, row, calls / n, "", 0, BENCH_LOWER);
}

static void measure_local(void)
{
	struct stock stock;
	struct node *with, *without = node_new();

	if (!stock_open(&stock, STOCK_REDIS)) {
		fprintf(stderr, "local: no redis-server\n");
		return;
	}
	with = new_node(stock.url, "transport");
	node_start_helper(with);
	compare_local(with, without, "memory");
	compare_local(with, without, "store");
	node_free(with);
	node_free(without);
	stock_close(&stock);
}

/* ---- dead ------------------------------------------------------------------- */

/* After 50 in vain the breaker is open. */
static int miss_values(unsigned index, void *arg)
{
	struct kiln *kiln = node_open_kiln(0);

	if (!kiln)
		return 1;
	findings->n = 200;
	for (unsigned i = 0; i < 50 + findings->n; i++) {
		struct kiln_key *key = node_key(10000 + i);
		uint64_t begun_ns = node_now_ns();
		struct kiln_blob *blob;

		if (kiln_get(kiln, key, &blob) != KILN_MISS)
			return 2;
		if (i >= 50)
			findings->ns[i - 50] =
				(double)(node_now_ns() - begun_ns);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	return 0;
}

static double median_miss_ns(struct node *node)
{
	must_run(node, miss_values, NULL);
	return bench_median(findings->ns, findings->n);
}

static void measure_dead(void)
{
	const struct proxy_script refuse = { .fault = PROXY_REFUSE };
	struct node *node, *without = node_new();
	struct stock stock;
	double dead_ns, alone_ns;

	if (!stock_open(&stock, STOCK_REDIS)) {
		fprintf(stderr, "dead: no redis-server\n");
		return;
	}
	proxy_set(stock.proxy, &refuse);
	node = new_node(stock.url, "transport");
	node_start_helper(node);
	alone_ns = median_miss_ns(without);
	dead_ns = median_miss_ns(node);
	bench_row(&bench, "miss without a remote", alone_ns / 1e6, "ms");
	bench_row_bar(&bench, "miss with a dead remote, extra",
		      (dead_ns - alone_ns) / 1e6, "ms", 0.1, BENCH_LOWER);
	node_free(node);
	node_free(without);
	stock_close(&stock);
}

/* ---- redis, nginx ----------------------------------------------------------- */

struct race {
	struct stock *stock;
	struct span span;
};

static void check(const void *bytes, size_t size, size_t at_least)
{
	if (!bytes || size < at_least)
		bench_fail("a peer gets nothing");
}

static double ask_hiredis(redisContext *redis, const char *name)
{
	const uint64_t begun_ns = node_now_ns();
	redisReply *reply = redisCommand(redis, "GET kiln:%s", name);

	check(reply ? reply->str : NULL, reply ? reply->len : 0, VALUE_BYTES);
	freeReplyObject(reply);
	return (double)(node_now_ns() - begun_ns);
}

struct body {
	char *bytes;
	size_t size;
};

static size_t take_bytes(char *bytes, size_t size, size_t n, void *arg)
{
	struct body *body = arg;

	memcpy(body->bytes + body->size, bytes, size * n);
	body->size += size * n;
	return size * n;
}

static double ask_curl(CURL *curl, const char *base, const char *name,
		       struct body *body)
{
	uint64_t begun_ns;
	char url[256];

	snprintf(url, sizeof(url), "%s%s", base, name);
	body->size = 0;
	begun_ns = node_now_ns();
	curl_easy_setopt(curl, CURLOPT_URL, url);
	must((int)curl_easy_perform(curl), "curl");
	check(body->bytes, body->size, VALUE_BYTES);
	return (double)(node_now_ns() - begun_ns);
}

/* In turns: the helper, which has not seen it, and the peer. */
static int race(unsigned index, void *arg)
{
	const struct race *race = arg;
	const struct server *server = race->stock->server;
	struct body body = { .bytes = malloc(2 * VALUE_BYTES) };
	redisContext *redis = NULL;
	CURL *curl = NULL;
	struct kiln *kiln = node_open_kiln(KILN_OPEN_NO_MEMORY);

	if (!kiln || !body.bytes)
		return 1;
	if (race->stock->kind == STOCK_REDIS) {
		redis = redisConnect("127.0.0.1", (int)server_port(server));
	} else {
		curl = curl_easy_init();
		curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
		curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
		curl_easy_setopt(curl, CURLOPT_PROXY, "");
	}
	findings->n = race->span.n;
	for (unsigned i = 0; i < race->span.n; i++) {
		char name[NODE_NAME_BYTES];
		struct kiln_key *key = node_key(race->span.first + i);
		struct kiln_blob *blob;
		uint64_t begun_ns;

		node_name(race->span.first + i, name);
		findings->peer_ns[i] =
			redis ? ask_hiredis(redis, name)
			      : ask_curl(curl, server_url(server), name, &body);
		begun_ns = node_now_ns();
		if (kiln_get(kiln, key, &blob))
			return 2;
		findings->ns[i] = (double)(node_now_ns() - begun_ns);
		if (kiln_blob_size(blob) != VALUE_BYTES)
			return 3;
		kiln_blob_unref(blob);
		kiln_key_free(key);
	}
	return 0;
}

static void add_ratio(const char *server, const char *peer, const char *how,
		      double bar)
{
	double ratios[VALUES_MAX];
	char row[120];

	for (size_t i = 0; i < findings->n; i++)
		ratios[i] = findings->ns[i] / findings->peer_ns[i];
	snprintf(row, sizeof(row), "64 KB from %s, %s", server, how);
	bench_row(&bench, row, bench_median(findings->ns, findings->n) / 1e3,
		  "us");
	snprintf(row, sizeof(row), "64 KB from %s by %s (%s)", server, peer,
		 how);
	bench_row(&bench, row,
		  bench_median(findings->peer_ns, findings->n) / 1e3, "us");
	snprintf(row, sizeof(row), "64 KB from %s, %s : %s", server, how, peer);
	bench_row_bar(&bench, row, bench_median(ratios, findings->n), "", bar,
		      BENCH_LOWER);
}

static void make_trusted_key(struct node *writer, struct node *reader)
{
	static const char *const make[] = { "key", "new", "bench", NULL };
	static const char *const show[] = { "key", "show", "bench", NULL };
	const char *trust[] = { "key", "trust", NULL, NULL };
	char *line;

	must(node_tool(writer, make, NULL), "kiln key new");
	must(node_tool(writer, show, &line), "kiln key show");
	line[strcspn(line, "\n")] = '\0';
	trust[2] = line;
	must(node_tool(writer, trust, NULL), "kiln key trust");
	must(node_tool(reader, trust, NULL), "kiln key trust");
	node_set(writer, "KILN_SIGNING_KEY", "bench");
	free(line);
}

static void run_race(struct stock *stock, const char *peer, int is_signed,
		     double bar)
{
	const char *trust = is_signed ? "signed" : "transport";
	const unsigned n = bench.quick ? 20 : 400;
	struct race arg = { stock,
			    { is_signed ? 30000u : 20000u, n, VALUE_BYTES } };
	struct node *writer, *reader;
	char url[200];

	/* Not behind the proxy. */
	snprintf(url, sizeof(url), "%s#zstd=0", server_url(stock->server));
	writer = new_node(url, trust);
	reader = new_node(url, trust);
	if (is_signed)
		make_trusted_key(writer, reader);
	fill(writer, &arg.span);
	node_start_helper(reader);
	must_run(reader, race, &arg);
	add_ratio(stock_names[stock->kind], peer,
		  is_signed ? "signed" : "not signed", bar);
	node_free(reader);
	node_free(writer);
}

static void measure_race(enum stock_kind kind, const char *peer)
{
	struct stock stock;

	if (!stock_open(&stock, kind)) {
		fprintf(stderr, "%s: not installed\n", stock_names[kind]);
		return;
	}
	run_race(&stock, peer, 0, 1.8);
	run_race(&stock, peer, 1, 4);
	stock_close(&stock);
}

/* ---- lease ------------------------------------------------------------------ */

static int want_one(unsigned index, void *arg)
{
	struct kiln *kiln = node_open_kiln(0);
	struct node_use use = { .size = VALUE_BYTES,
				.build_ns = 200000000,
				.n_builds = &findings->n_builds };

	return !kiln || node_use(kiln, 40000, &use);
}

static void measure_lease(void)
{
	const unsigned n = bench.quick ? 4 : PROGRAMS;
	struct node *nodes[NODES];
	pid_t *programs = calloc((size_t)NODES * n, sizeof(*programs));
	struct stock stock;
	uint64_t begun_ns;

	if (!programs || !stock_open(&stock, STOCK_REDIS)) {
		fprintf(stderr, "lease: no redis-server\n");
		return;
	}
	for (unsigned i = 0; i < NODES; i++) {
		nodes[i] = new_node(stock.url, "transport");
		node_start_helper(nodes[i]);
	}
	findings->n_builds = 0;
	begun_ns = node_now_ns();
	for (unsigned i = 0; i < NODES * n; i++)
		programs[i] = node_start(nodes[i % NODES], want_one, NULL);
	for (unsigned i = 0; i < NODES * n; i++)
		must(node_end(programs[i]), "lease");
	bench_row(&bench, "8 nodes x 64 programs, one cold key of 200 ms",
		  (double)(node_now_ns() - begun_ns) / 1e6, "ms");
	bench_row_bar(&bench, "8 nodes x 64 programs, one cold key: builds",
		      findings->n_builds, "", 1, BENCH_LOWER);
	for (unsigned i = 0; i < NODES; i++)
		node_free(nodes[i]);
	free(programs);
	stock_close(&stock);
}

/* ---- ahead ------------------------------------------------------------------ */

struct walk {
	struct span span;
	uint32_t flags;
};

static int walk(unsigned index, void *arg)
{
	const struct walk *walk = arg;
	struct kiln *kiln = node_open_kiln(walk->flags);
	uint64_t begun_ns = node_now_ns();

	if (!kiln)
		return 1;
	for (unsigned i = 0; i < walk->span.n; i++) {
		struct node_use use = { .size = walk->span.size };

		if (node_use(kiln, walk->span.first + i, &use) ||
		    use.source != KILN_FROM_REMOTE)
			return 2;
	}
	findings->all_ns = (double)(node_now_ns() - begun_ns);
	kiln_close(kiln);
	return 0;
}

static double walk_ms(const struct stock *stock, const struct walk *how)
{
	struct node *node = new_node(stock->url, "transport");

	node_start_helper(node);
	must_run(node, walk, (void *)(uintptr_t)how);
	node_free(node);
	return findings->all_ns / 1e6;
}

static void measure_ahead(void)
{
	const struct proxy_script far = { .to_server_us = 1000,
					  .to_client_us = 1000 };
	const struct proxy_script near = { .fault = PROXY_PASS };
	struct walk ahead = { { 50000, bench.quick ? 40 : AHEAD, 16384 },
			      KILN_OPEN_ORDER };
	struct walk one_by_one = { ahead.span, 0 };
	double with[3], without[3], ratios[3];
	struct node *writer;
	struct stock stock;

	if (!stock_open(&stock, STOCK_REDIS)) {
		fprintf(stderr, "ahead: no redis-server\n");
		return;
	}
	proxy_set(stock.proxy, &near);
	writer = new_node(stock.url, "transport");
	fill(writer, &ahead.span);
	node_drain(writer);
	proxy_set(stock.proxy, &far);
	for (int i = 0; i < 3; i++) {
		without[i] = walk_ms(&stock, &one_by_one);
		with[i] = walk_ms(&stock, &ahead);
		ratios[i] = with[i] / without[i];
	}
	bench_row(&bench, "500 kernels behind 2 ms, one by one",
		  bench_median(without, 3), "ms");
	bench_row(&bench, "500 kernels behind 2 ms, fetched ahead",
		  bench_median(with, 3), "ms");
	bench_row_bar(&bench,
		      "500 kernels behind 2 ms, fetched ahead : one by one",
		      bench_median(ratios, 3), "", 0.2, BENCH_LOWER);
	node_free(writer);
	stock_close(&stock);
}

/* ---- exit ------------------------------------------------------------------- */

static int build_and_end(unsigned index, void *arg)
{
	struct kiln *kiln = node_open_kiln(0);
	struct kiln_metadata *metadata = kiln_metadata_new();
	const unsigned first = *(const unsigned *)arg;
	static char value[VALUE_BYTES];

	if (!kiln || !metadata)
		return 1;
	for (unsigned i = first; i < first + UPLOADS; i++) {
		struct kiln_key *key = node_key(i);

		node_value(i, value, 8192);
		if (kiln_put(kiln, key, value, 8192, metadata, 0))
			return 2;
		kiln_key_free(key);
	}
	kiln_metadata_free(metadata);
	findings->ended_ns = node_now_ns();
	kiln_close(kiln);
	return 0;
}

static double end_ms(struct node *node, unsigned first)
{
	must_run(node, build_and_end, &first);
	return (double)(node_now_ns() - findings->ended_ns) / 1e6;
}

static void measure_exit(void)
{
	const struct proxy_script far = { .to_server_us = 25000,
					  .to_client_us = 25000 };
	const unsigned n = bench.quick ? 3 : EXITS;
	double with[EXITS], without[EXITS], extra[EXITS];
	struct node *node, *alone = node_new();
	struct stock stock;

	if (!stock_open(&stock, STOCK_REDIS)) {
		fprintf(stderr, "exit: no redis-server\n");
		return;
	}
	proxy_set(stock.proxy, &far);
	node = new_node(stock.url, "transport");
	node_start_helper(node);
	for (unsigned i = 0; i < n; i++) {
		without[i] = end_ms(alone, 60000 + UPLOADS * i);
		with[i] = end_ms(node, 60000 + UPLOADS * i);
		extra[i] = with[i] - without[i];
		node_drain(node);
	}
	bench_row(&bench, "end of a program without a remote",
		  bench_median(without, n), "ms");
	bench_row_bar(&bench, "end of a program with 100 uploads queued, extra",
		      bench_median(extra, n), "ms", 2, BENCH_LOWER);
	node_free(node);
	node_free(alone);
	stock_close(&stock);
}

/* ---- pack ------------------------------------------------------------------- */

static int read_pack(unsigned index, void *arg)
{
	const struct span *span = arg;
	struct kiln *kiln = node_open_kiln(0);

	if (!kiln)
		return 1;
	for (unsigned i = 0; i < span->n; i++) {
		struct kiln_key *key = node_key(span->first + i);
		struct kiln_blob *blob;
		enum kiln_status status = kiln_get(kiln, key, &blob);

		if (status)
			return 2;
		kiln_blob_unref(blob);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	return 0;
}

/* In DIRECTORY/www of nginx; its size. */
static double put_pack(struct node *maker, const struct stock *stock, char *url,
		       size_t url_size)
{
	char path[400];
	const char *const export[] = { "export", path, NULL };
	char *text;
	FILE *file;
	double size;

	snprintf(path, sizeof(path), "%s/www/kernels.pack", stock->directory);
	if (node_tool(maker, export, &text))
		bench_fail("kiln export: %s", text);
	free(text);
	file = fopen(path, "r");
	if (!file || fseek(file, 0, SEEK_END))
		bench_fail("%s: %s", path, strerror(errno));
	size = (double)ftell(file);
	fclose(file);
	snprintf(url, url_size, "http://127.0.0.1:%u/kernels.pack",
		 proxy_port(stock->proxy));
	return size;
}

static void measure_pack(void)
{
	const struct proxy_script far = { .to_server_us = 10000,
					  .to_client_us = 10000 };
	const struct span all = { 70000, bench.quick ? 200 : 1000, 16384 };
	const struct span some = { 70000, 100, 16384 };
	struct node *maker = node_new(), *reader;
	struct proxy_counts before, after;
	struct stock stock;
	char url[200];
	double size;

	if (!stock_open(&stock, STOCK_NGINX)) {
		fprintf(stderr, "pack: no nginx\n");
		return;
	}
	reader = new_node(stock.url, "signed");
	make_trusted_key(maker, reader);
	must_run(maker, make_values, (void *)(uintptr_t)&all);
	size = put_pack(maker, &stock, url, sizeof(url));
	node_set(reader, "KILN_PACKS", url);
	proxy_set(stock.proxy, &far);
	before = proxy_counts(stock.proxy);
	node_start_helper(reader);
	must_run(reader, read_pack, (void *)(uintptr_t)&some);
	after = proxy_counts(stock.proxy);
	bench_row_bar(&bench, "first 100 entries of a pack on nginx, requests",
		      (double)(after.n_requests - before.n_requests), "", 25,
		      BENCH_LOWER);
	bench_row_bar(
		&bench, "first 100 entries of a pack on nginx, bytes",
		100 * (double)(after.bytes_to_client - before.bytes_to_client) /
			size,
		"%", 15, BENCH_LOWER);
	node_free(reader);
	node_free(maker);
	stock_close(&stock);
}

int main(int argc, char **argv)
{
	node_programs(BENCH_KILN, BENCH_KILN_REMOTE);
	if (argc == 4 && !strcmp(argv[1], "--hits"))
		return make_hits((unsigned)strtoul(argv[2], NULL, 10), argv[3]);
	bench_begin(&bench, argc, argv, "remote");
	findings = node_shared(sizeof(*findings));
	if (bench_wants(&bench, "local"))
		measure_local();
	if (bench_wants(&bench, "dead"))
		measure_dead();
	if (bench_wants(&bench, "redis"))
		measure_race(STOCK_REDIS, "hiredis");
	if (bench_wants(&bench, "nginx"))
		measure_race(STOCK_NGINX, "curl");
	if (bench_wants(&bench, "lease"))
		measure_lease();
	if (bench_wants(&bench, "ahead"))
		measure_ahead();
	if (bench_wants(&bench, "exit"))
		measure_exit();
	if (bench_wants(&bench, "pack"))
		measure_pack();
	return bench_end(&bench);
}
