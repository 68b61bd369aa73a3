/* SPDX-License-Identifier: MIT */
#ifndef KILN_TESTS_SERVERS_H
#define KILN_TESTS_SERVERS_H

/*
 * Real servers, for a test each: on loopback and in a directory of the test's,
 * ready when the function returns, dead when the test's process is.
 *
 *	server = server_redis(directory, NULL);
 *	if (!server)
 *		HARNESS_LEAVE_OUT("no redis-server");
 *
 * NULL: it is not installed here.  One that is and does not start fails the test.
 */

#include <stddef.h>
#include <sys/types.h>

struct server;

/* "redis://127.0.0.1:PORT", "http://127.0.0.1:PORT/", "https://localhost:PORT/".
   Both as long as the server is. */
const char *server_url(const struct server *server);
unsigned server_port(const struct server *server);
/* Of Redis: "unix:/path"; else NULL. */
const char *server_unix_url(const struct server *server);
pid_t server_process(const struct server *server);

/* The process stands still, and goes on. */
void server_pause(struct server *server);
void server_resume(struct server *server);
/* SIGKILL.  server_stop() is still to be called. */
void server_kill(struct server *server);
void server_stop(struct server *server); /* NULL is fine */

/* `options`: words as "--requirepass", "secret", up to NULL; may be NULL. */
struct server *server_redis(const char *directory, const char *const *options);
/* The same port and socket again, after server_kill() and server_stop(). */
struct server *server_redis_at(const char *directory, unsigned port,
			       const char *const *options);

struct server_nginx_options {
	/* Certificate and key from server_certificates(): https, HTTP/2. */
	int has_tls;
	/* Into the server's block: locations, passwords...  NULL: none. */
	const char *extra;
	/* Into `location /`, which takes GET, HEAD and PUT of the files in
	   DIRECTORY/www. */
	const char *extra_location;
};
struct server *server_nginx(const char *directory,
			    const struct server_nginx_options *options);

/*
 * @20minutes/s3rver, from the folder that KILN_TEST_S3RVER names and npm filled:
 * path-style below its URL, access key S3_ACCESS, secret S3_SECRET, one bucket.
 */
#define SERVER_S3_BUCKET "kiln-test"
#define SERVER_S3_ACCESS "S3RVER"
#define SERVER_S3_SECRET "S3RVER"
struct server *server_s3(const char *directory);

/* DIRECTORY/ca.pem, and DIRECTORY/server.pem and .key for localhost and
   127.0.0.1, signed by it; 0: no openssl here. */
int server_certificates(const char *directory);

#endif /* KILN_TESTS_SERVERS_H */
