/* SPDX-License-Identifier: MIT */

/*
 * A server is started by fork and exec, dies with the test's process
 * (PR_SET_PDEATHSIG), and says that it is ready on its standard output.
 */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES_MAX 4096
#define WORDS_MAX      64

struct server {
	pid_t process;
	int output; /* what it says; -1: closed */
	unsigned port;
	char url[256];
	char unix_url[256];
	char said[TEXT_BYTES_MAX];
};

const char *server_url(const struct server *server)
{
	return server->url;
}

unsigned server_port(const struct server *server)
{
	return server->port;
}

const char *server_unix_url(const struct server *server)
{
	return server->unix_url[0] ? server->unix_url : NULL;
}

pid_t server_process(const struct server *server)
{
	return server->process;
}

/* ---- Processes ---------------------------------------------------------- */

/* Where a program is; 0: it is not. */
static int find(const char *const *paths, char *out, size_t size)
{
	for (; *paths; paths++) {
		if (access(*paths, X_OK))
			continue;
		(void)snprintf(out, size, "%s", *paths);
		return 1;
	}
	return 0;
}

static void run(const char *const *words, const char *const *environment,
		int output)
{
	pid_t parent = getppid();

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	(void)dup2(output, 1);
	(void)dup2(output, 2);
	for (; environment && *environment; environment++)
		(void)putenv((char *)*environment);
	(void)execv(words[0], (char **)words);
	_exit(127);
}

/* `environment` NULL: nothing to add. */
static struct server *start(const char *const *words,
			    const char *const *environment)
{
	struct server *server = calloc(1, sizeof(*server));
	int fds[2];

	assert_non_null(server);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	server->process = fork();
	assert_true(server->process >= 0);
	if (server->process == 0)
		run(words, environment, fds[1]);
	(void)close(fds[1]);
	server->output = fds[0];
	return server;
}

/* Until it says `word`, which is returned with what follows; NULL: it has ended
   before. */
static const char *wait_for(struct server *server, const char *word)
{
	size_t size = 0;

	for (;;) {
		struct pollfd ready = { .fd = server->output,
					.events = POLLIN };
		const char *at = strstr(server->said, word);
		ssize_t n;

		if (at && strchr(at, '\n'))
			return at;
		/* Only the end may still matter. */
		if (size > TEXT_BYTES_MAX / 2) {
			memmove(server->said, server->said + size / 2,
				size - size / 2 + 1);
			size -= size / 2;
		}
		if (poll(&ready, 1, HARNESS_HANG_S * 1000) != 1)
			return NULL;
		n = read(server->output, server->said + size,
			 TEXT_BYTES_MAX - 1 - size);
		if (n <= 0)
			return NULL;
		size += (size_t)n;
		server->said[size] = '\0';
	}
}

void server_pause(struct server *server)
{
	assert_int_equal(kill(server->process, SIGSTOP), 0);
}

void server_resume(struct server *server)
{
	assert_int_equal(kill(server->process, SIGCONT), 0);
}

void server_kill(struct server *server)
{
	if (server->process <= 0)
		return;
	(void)kill(server->process, SIGKILL);
	(void)waitpid(server->process, NULL, 0);
	server->process = -1;
}

void server_stop(struct server *server)
{
	if (!server)
		return;
	server_kill(server);
	(void)close(server->output);
	free(server);
}

/* ---- Ports -------------------------------------------------------------- */

/* One of loopback that was free a moment ago. */
static unsigned free_port(void)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, size), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
	(void)close(fd);
	return ntohs(name.sin_port);
}

/* ---- Redis -------------------------------------------------------------- */

static struct server *try_redis(const char *program, const char *directory,
				unsigned port, const char *const *options)
{
	char port_text[16], socket_path[200];
	const char *words[WORDS_MAX] = {
		program,     "--port",	     port_text,	  "--bind",
		"127.0.0.1", "--unixsocket", socket_path, "--dir",
		directory,   "--save",	     "",	  "--appendonly",
		"no",	     "--daemonize",  "no",
	};
	struct server *server;
	size_t n = 0;

	while (words[n])
		n++;
	while (options && *options && n < WORDS_MAX - 1)
		words[n++] = *options++;
	(void)snprintf(port_text, sizeof(port_text), "%u", port);
	(void)snprintf(socket_path, sizeof(socket_path), "%s/redis.sock",
		       directory);
	server = start(words, NULL);
	server->port = port;
	(void)snprintf(server->url, sizeof(server->url), "redis://127.0.0.1:%u",
		       port);
	(void)snprintf(server->unix_url, sizeof(server->unix_url), "unix:%s",
		       socket_path);
	if (wait_for(server, "eady to accept connections"))
		return server;
	print_message("# %s\n", server->said);
	server_stop(server);
	return NULL;
}

struct server *server_redis_at(const char *directory, unsigned port,
			       const char *const *options)
{
	static const char *const paths[] = { "/usr/bin/redis-server",
					     "/usr/local/bin/redis-server",
					     NULL };
	struct server *server;
	char program[64];

	if (!find(paths, program, sizeof(program)))
		return NULL;
	server = try_redis(program, directory, port, options);
	assert_non_null(server);
	return server;
}

struct server *server_redis(const char *directory, const char *const *options)
{
	return server_redis_at(directory, free_port(), options);
}

/* ---- nginx -------------------------------------------------------------- */

static void write_nginx_config(const char *directory, unsigned port,
			       const struct server_nginx_options *options)
{
	char text[TEXT_BYTES_MAX], tls[512] = "";
	char *path = harness_path(directory, "nginx.conf");

	if (options->has_tls)
		(void)snprintf(tls, sizeof(tls),
			       "ssl_certificate %s/server.pem;\n"
			       "ssl_certificate_key %s/server.key;\n",
			       directory, directory);
	(void)snprintf(
		text, sizeof(text),
		"daemon off;\nmaster_process off;\npid %s/nginx.pid;\n"
		"error_log stderr notice;\nevents { }\nhttp {\n"
		"access_log off;\nlog_not_found off;\nclient_max_body_size "
		"256m;\n"
		"client_body_temp_path %s/body;\nproxy_temp_path %s/proxy;\n"
		"fastcgi_temp_path %s/fastcgi;\nuwsgi_temp_path %s/uwsgi;\n"
		"scgi_temp_path %s/scgi;\nkeepalive_requests 1000000;\n"
		"server {\nlisten 127.0.0.1:%u%s;\nroot %s/www;\n%s%s\n"
		"location / {\ndav_methods PUT DELETE;\n%s\n}\n}\n}\n",
		directory, directory, directory, directory, directory,
		directory, port, options->has_tls ? " ssl http2" : "",
		directory, tls, options->extra ? options->extra : "",
		options->extra_location ? options->extra_location : "");
	harness_write(path, text, strlen(text));
	free(path);
	path = harness_path(directory, "www");
	if (mkdir(path, 0755))
		assert_int_equal(errno, EEXIST);
	free(path);
}

struct server *server_nginx(const char *directory,
			    const struct server_nginx_options *options)
{
	static const char *const paths[] = { "/usr/sbin/nginx",
					     "/usr/local/sbin/nginx", NULL };
	char program[64];
	char *config;
	const char *words[] = { program, "-e", "stderr", "-c", NULL, NULL };
	const unsigned port = free_port();
	struct server *server;

	if (!find(paths, program, sizeof(program)))
		return NULL;
	write_nginx_config(directory, port, options);
	config = harness_path(directory, "nginx.conf");
	words[4] = config;
	server = start(words, NULL);
	free(config);
	/* It says that once it listens. */
	if (!wait_for(server, "getrlimit("))
		fail_msg("nginx does not start: %s", server->said);
	server->port = port;
	(void)snprintf(server->url, sizeof(server->url), "%s:%u/",
		       options->has_tls ? "https://localhost"
					: "http://127.0.0.1",
		       port);
	return server;
}

/* ---- S3 ----------------------------------------------------------------- */

struct server *server_s3(const char *directory)
{
	static const char *const paths[] = { "/usr/bin/node",
					     "/usr/local/bin/node", NULL };
	static const char script[] =
		"const S3 = require('@20minutes/s3rver');"
		"new S3({address: '127.0.0.1', port: 0, silent: true,"
		" directory: process.argv[1],"
		" configureBuckets: [{name: '" SERVER_S3_BUCKET "'}]})"
		".run().then(at => console.log('ready ' + at.port));";
	const char *folder = getenv("KILN_TEST_S3RVER"), *ready;
	char program[64], modules[512], place[512];
	const char *environment[] = { modules, NULL };
	const char *words[] = { program, "-e", script, directory, NULL };
	struct server *server;

	if (!folder || !find(paths, program, sizeof(program)))
		return NULL;
	(void)snprintf(place, sizeof(place),
		       "%s/node_modules/@20minutes/s3rver/package.json",
		       folder);
	if (access(place, R_OK))
		return NULL;
	(void)snprintf(modules, sizeof(modules), "NODE_PATH=%s/node_modules",
		       folder);
	server = start(words, environment);
	ready = wait_for(server, "ready ");
	if (!ready)
		fail_msg("s3rver does not start: %s", server->said);
	server->port = (unsigned)strtoul(ready + 6, NULL, 10);
	(void)snprintf(server->url, sizeof(server->url), "http://127.0.0.1:%u/",
		       server->port);
	return server;
}

/* ---- Certificates ------------------------------------------------------- */

int server_certificates(const char *directory)
{
	static const char *const paths[] = { "/usr/bin/openssl",
					     "/usr/local/bin/openssl", NULL };
	/* Elliptic keys: those of RSA take a second. */
	static const char script[] =
		"set -e; cd \"$1\"; new='openssl req -newkey ec -pkeyopt"
		" ec_paramgen_curve:prime256v1 -nodes -days 2'\n"
		"$new -x509 -subj /CN=kiln-test-ca -keyout ca.key -out ca.pem"
		" -addext basicConstraints=critical,CA:TRUE\n"
		"$new -subj /CN=localhost -keyout server.key -out server.csr\n"
		"echo subjectAltName=DNS:localhost,IP:127.0.0.1 >names\n"
		"openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key"
		" -CAcreateserial -days 2 -extfile names -out server.pem\n"
		"echo done";
	const char *words[] = {
		"/bin/sh", "-c", script, "sh", directory, NULL
	};
	char program[64];
	struct server *shell;

	if (!find(paths, program, sizeof(program)))
		return 0;
	shell = start(words, NULL);
	if (!wait_for(shell, "done"))
		fail_msg("openssl: %s", shell->said);
	(void)waitpid(shell->process, NULL, 0);
	shell->process = -1;
	server_stop(shell);
	return 1;
}
