/* SPDX-License-Identifier: MIT */

/*
 * Who has a password for a server keeps it (S55): it is in no log, in nothing that
 * is told or printed, in no argument and no environment of a process that lives on,
 * and no core is written of who knows it.  A wrong one is said to be wrong.
 */

#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/servers_test.h"

#define SECRET	      "hunter2-Zq9"
#define SECRET_BASE64 "a2lsbjpodW50ZXIyLVpxOQ==" /* kiln:hunter2-Zq9 */

/* A server of its own, which wants a password. */
static struct server *server;
static char *directory;

static struct server *start_server(enum stock_kind kind)
{
	static const char *const redis[] = { "--requirepass", SECRET, NULL };
	struct server_nginx_options nginx = { .has_tls = 0 };
	char location[300], *path;

	directory = harness_directory();
	if (kind == STOCK_REDIS)
		return server_redis(directory, redis);
	if (kind == STOCK_S3)
		return server_s3(directory);
	path = harness_path(directory, "passwords");
	harness_write(path, "kiln:{PLAIN}" SECRET "\n",
		      strlen("kiln:{PLAIN}" SECRET "\n"));
	snprintf(location, sizeof(location),
		 "auth_basic kiln; auth_basic_user_file %s;", path);
	free(path);
	nginx.extra_location = location;
	return server_nginx(directory, &nginx);
}

static void set_credentials(struct node *node, enum stock_kind kind,
			    const char *secret)
{
	char *path = harness_path(node_directory(node), "credentials");
	char line[400], url[200];

	snprintf(url, sizeof(url), "%s", server_url(server));
	if (kind == STOCK_S3) {
		snprintf(line, sizeof(line),
			 "s3://" SERVER_S3_BUCKET
			 " s3 S3RVER %s region=us-east-1 endpoint=%s\n",
			 secret, server_url(server));
		snprintf(url, sizeof(url), "s3://" SERVER_S3_BUCKET "/kiln");
	} else {
		snprintf(line, sizeof(line),
			 kind == STOCK_REDIS ? "%s redis %s\n"
					     : "%s basic kiln %s\n",
			 url, secret);
	}
	harness_write(path, line, strlen(line));
	assert_int_equal(chmod(path, 0600), 0);
	node_set(node, "KILN_REMOTE", url);
	node_set(node, "KILN_REMOTE_CREDENTIALS", path);
	free(path);
}

/* ---- Where it may not be ---------------------------------------------------- */

static void refuse(const char *where, const char *text, size_t size,
		   const char *secret)
{
	if (memmem(text, size, secret, strlen(secret)) ||
	    memmem(text, size, SECRET_BASE64, strlen(SECRET_BASE64) - 4))
		fail_msg("the secret is in %s", where);
}

static void look_into_file(const char *path, const char *secret)
{
	size_t size;
	char *text = harness_read(path, &size);

	if (text)
		refuse(path, text, size, secret);
	free(text);
}

static void look_into_process(pid_t pid, const char *secret)
{
	static const char *const files[] = { "cmdline", "environ", "comm" };
	char path[64], *limits, *line;
	size_t size;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
		look_into_file(path, secret);
	}
	snprintf(path, sizeof(path), "/proc/%d/limits", pid);
	limits = harness_read(path, &size);
	assert_non_null(limits);
	line = strstr(limits, "Max core file size");
	assert_non_null(line);
	assert_int_equal(strtoul(line + strlen("Max core file size"), NULL, 10),
			 0);
	free(limits);
}

static void look_into_tool(struct node *node, const char *secret,
			   const char *verb, const char *option)
{
	const char *const arguments[] = { verb, option, NULL };
	char *text;

	(void)node_tool(node, arguments, &text);
	refuse(verb, text, strlen(text), secret);
	free(text);
}

static void look_everywhere(struct node *node, const char *secret)
{
	static const char *const verbs[] = { "stats", "doctor", "config" };
	char *told, *log = harness_path(node_directory(node), "log");

	for (uint32_t what = 0; what < 2; what++) {
		told = node_tell(node, what);
		refuse("TELL", told, strlen(told), secret);
		free(told);
	}
	look_into_process(node_helper(node), secret);
	look_into_file(log, secret);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		look_into_tool(node, secret, verbs[i], "--json");
		look_into_tool(node, secret, verbs[i], NULL);
	}
	free(log);
}

static struct node *new_node(enum stock_kind kind, const char *secret)
{
	struct node *node = world_node("transport");
	char *log = harness_path(node_directory(node), "log");

	set_credentials(node, kind, secret);
	node_set(node, "KILN_LOG", log);
	node_set(node, "KILN_TRACE", "1");
	free(log);
	node_start_helper(node);
	return node;
}

static void S55_who_has_the_password_is_served(void **state)
{
	const enum stock_kind kind = world_stock.kind;
	const char *secret = kind == STOCK_S3 ? SERVER_S3_SECRET : SECRET;
	struct node *writer = new_node(kind, secret);
	struct node *reader = new_node(kind, secret);

	world_fill(writer, 4000, 3);
	world_use(reader, 4000, 3);
	assert_int_equal(world_run->n_builds, 0);
	assert_int_equal(world_run->n_remote, 3);
	if (kind != STOCK_S3) /* whose secret is its access key, too */
		look_everywhere(reader, secret);
	node_free(reader);
	node_free(writer);
}

static void S55_who_has_a_wrong_one_builds(void **state)
{
	static const char wrong[] = "correct-horse-7";
	struct node *node = new_node(world_stock.kind, wrong);

	world_use(node, 4000, 3);
	assert_int_equal(world_run->n_builds, 3);
	assert_int_equal(world_run->n_remote, 0);
	look_everywhere(node, wrong);
	node_free(node);
}

/* From the environment, which the helper does not keep. */
static void S55_what_the_environment_has_is_forgotten(void **state)
{
	const enum stock_kind kind = world_stock.kind;
	struct node *node = world_node("transport");

	if (kind == STOCK_NGINX) {
		node_free(node);
		HARNESS_LEAVE_OUT("no such variable");
	}
	set_credentials(node, kind, "unused");
	node_set(node, "KILN_REMOTE_CREDENTIALS", NULL);
	if (kind == STOCK_REDIS)
		node_set(node, "REDISCLI_AUTH", SECRET);
	else
		node_set(node, "AWS_ENDPOINT_URL", server_url(server));
	node_start_helper(node);
	world_use(node, 4000, 3);
	assert_int_equal(world_run->n_builds, 0);
	if (kind == STOCK_REDIS)
		look_into_process(node_helper(node), SECRET);
	node_free(node);
}

/* Nor is one taken from where others could read or see it. */
static void S55_a_file_that_others_can_read_is_refused(void **state)
{
	struct node *node = world_node("transport");
	char *path;

	set_credentials(node, world_stock.kind, "seen-by-all");
	path = harness_path(node_directory(node), "credentials");
	assert_int_equal(chmod(path, 0644), 0);
	free(path);
	if (node_try_helper(node) == 0) {
		world_use(node, 4000, 1);
		assert_int_equal(world_run->n_builds, 1);
	}
	node_free(node);
}

int world_tests(enum stock_kind kind)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(S55_who_has_the_password_is_served),
		cmocka_unit_test(S55_who_has_a_wrong_one_builds),
		cmocka_unit_test(S55_what_the_environment_has_is_forgotten),
		cmocka_unit_test(S55_a_file_that_others_can_read_is_refused),
	};
	int bad;

	server = start_server(kind);
	if (!server)
		return 1;
	bad = cmocka_run_group_tests(tests, NULL, NULL);
	server_stop(server);
	free(directory);
	return bad;
}
