/* SPDX-License-Identifier: MIT */

/* Many machines that want the same at the same time, and machines that come later. */

#include "world.h"

#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/servers_test.h"

#define NODES	 8
#define PROGRAMS 3
#define MS	 ((uint64_t)1000000)

static struct node *nodes[NODES];

static void open_nodes(void)
{
	for (unsigned i = 0; i < NODES; i++) {
		nodes[i] = world_node("transport");
		node_start_helper(nodes[i]);
	}
}

static void close_nodes(void)
{
	for (unsigned i = 0; i < NODES; i++)
		node_free(nodes[i]);
}

static void use_at_once(unsigned first, unsigned n, uint64_t build_ns)
{
	pid_t programs[NODES * PROGRAMS];

	*world_run = (struct world_run){ .first = first,
					 .n = n,
					 .build_ns = build_ns };
	for (unsigned i = 0; i < NODES * PROGRAMS; i++)
		programs[i] = node_start(nodes[i % NODES], world_program, NULL);
	for (unsigned i = 0; i < NODES * PROGRAMS; i++)
		assert_int_equal(node_end(programs[i]), 0);
	assert_int_equal(world_run->n_wrong, 0);
}

/* Redis has leases; others may build once on each machine. */
static void one_build_for_all(void **state)
{
	open_nodes();
	use_at_once(3000, 4, 150 * MS);
	if (world_stock.kind == STOCK_REDIS)
		assert_int_equal(world_run->n_builds, 4);
	else
		assert_in_range(world_run->n_builds, 4, 4 * NODES);
	close_nodes();
}

/* Who waits for a builder that dies is not held up until its lease has run out. */
static void a_builder_is_killed(void **state)
{
	/* What who waits for a lease asks for. */
	const struct proxy_script looks = { .verb = "STRLEN" };
	const uint64_t begun_ns = node_now_ns();
	struct proxy_counts awaited = { 0 };
	pid_t builder, waiter;

	nodes[0] = world_node("transport");
	nodes[1] = world_node("transport");
	node_start_helper(nodes[0]);
	node_start_helper(nodes[1]);
	*world_run = (struct world_run){ .first = 3100,
					 .n = 1,
					 .build_ns = 3000 * MS };
	builder = node_start(nodes[0], world_program, NULL);
	while (!world_run->n_builds)
		(void)usleep(1000);
	world_run->build_ns = 0;
	proxy_set(world_stock.proxy, &looks);
	awaited.n_meant = proxy_counts(world_stock.proxy).n_meant + 1;
	waiter = node_start(nodes[1], world_program, NULL);
	/* Without leases nobody waits. */
	if (world_stock.kind == STOCK_REDIS)
		proxy_await(world_stock.proxy, &awaited);
	(void)kill(builder, SIGKILL);
	(void)node_end(builder);
	assert_int_equal(node_end(waiter), 0);
	assert_int_equal(world_run->n_wrong, 0);
	/* Ten seconds are what a lease lives. */
	assert_true(node_now_ns() - begun_ns < 9000 * MS);
	node_free(nodes[0]);
	node_free(nodes[1]);
}

/* The second machine knows from the first what comes next, and is there first. */
static void what_comes_next_is_fetched_ahead(void **state)
{
	struct node *writer = world_node("transport");
	struct node *reader = world_node("transport");

	world_run->flags = KILN_OPEN_ORDER;
	node_start_helper(writer);
	world_fill(writer, 3200, 60);
	node_drain(writer);
	node_start_helper(reader);
	world_use(reader, 3200, 60);
	assert_int_equal(world_run->n_builds, 0);
	assert_int_equal(world_run->n_remote, 60);
	assert_true(node_told(reader, "prefetched") >= 30);
	world_run->flags = 0;
	node_free(reader);
	node_free(writer);
}

/* ---- Hosts apart ------------------------------------------------------------ */

static int bring_lo_up(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bad;

	bad = fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request);
	request.ifr_flags |= IFF_UP;
	bad = bad || ioctl(fd, SIOCSIFFLAGS, &request);
	if (fd >= 0)
		close(fd);
	return bad;
}

struct apart {
	struct node *node;
	int starts; /* its own helper */
};

static int use_apart(unsigned index, void *arg)
{
	struct apart *apart = arg;

	if (unshare(CLONE_NEWNET) || bring_lo_up())
		return 77;
	if (apart->starts && node_start_helper_here())
		return 1;
	return world_program(index, NULL);
}

/* A helper is of a network: who is in another has no use for its servers. */
static void who_is_in_another_network_has_another_helper(void **state)
{
	struct node *writer = world_node("transport");
	struct node *node = world_node("transport");
	struct apart apart = { .node = node };
	int status;

	node_start_helper(writer);
	node_start_helper(node);
	world_fill(writer, 3300, 2);
	*world_run = (struct world_run){ .first = 3300, .n = 1 };
	status = node_run(node, use_apart, &apart);
	if (status == 77) {
		node_free(node);
		node_free(writer);
		HARNESS_LEAVE_OUT("no network namespaces here");
	}
	assert_int_equal(status, 0);
	assert_int_equal(world_run->n_wrong, 0);
	assert_int_equal(world_run->n_remote, 0);
	world_use(node, 3301, 1);
	assert_int_equal(world_run->n_remote, 1);
	node_free(node);
	node_free(writer);
}

/* Each in a network of its own, which has nothing but itself; what they share is a
   socket in the file system. */
static void hosts_apart_share_a_server(void **state)
{
	const char *url = server_unix_url(world_stock.server);
	struct apart apart = { .starts = 1 };
	int status = 0;

	if (!url)
		HARNESS_LEAVE_OUT("not over a socket");
	for (unsigned i = 0; i < 3 && !status; i++) {
		apart.node = world_node("transport");
		node_set(apart.node, "KILN_REMOTE", url);
		*world_run = (struct world_run){ .first = 3400, .n = 3 };
		status = node_run(apart.node, use_apart, &apart);
		if (!status) {
			char name[NODE_NAME_BYTES];
			size_t size;

			assert_int_equal(world_run->n_wrong, 0);
			assert_int_equal(world_run->n_remote, i ? 3 : 0);
			node_name(3402, name);
			free(stock_await(&world_stock, name, &size));
		}
		node_free(apart.node);
	}
	if (status == 77)
		HARNESS_LEAVE_OUT("no network namespaces here");
	assert_int_equal(status, 0);
}

int world_tests(enum stock_kind kind)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_build_for_all),
		cmocka_unit_test(a_builder_is_killed),
		cmocka_unit_test(what_comes_next_is_fetched_ahead),
		cmocka_unit_test(who_is_in_another_network_has_another_helper),
		cmocka_unit_test(hosts_apart_share_a_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
