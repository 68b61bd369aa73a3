/* SPDX-License-Identifier: MIT */

/* A real nginx, and a server that does all that is wrong. */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "asking_test.h"
#include "bad_server_test.h"
#include "stuck_names_test.h"

#define GETS		200
#define CONNECTIONS_MAX 8
#define CONDITION	"If-None-Match: *"
#define SAYS(text)	text, sizeof(text) - 1
#define OK_ABC		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
#define EMPTY(status)	"HTTP/1.1 " status "\r\nContent-Length: 0\r\n\r\n"
#define TELLS(status)                                                          \
	"HTTP/1.1 " status " " ASKING_SECRET "\r\nContent-Length: 11\r\n"      \
	"WWW-Authenticate: Basic realm=\"" ASKING_SECRET                       \
	"\"\r\n\r\n" ASKING_SECRET

static char *directory;
static struct server *nginx;

static const char locations[] =
	"location /denied/ { return 403; }\n"
	"location /full/ { return 507; }\n"
	"location /gone/ { return 410; }\n"
	"location /broken/ { return 500; }\n"
	"location /conflict/ { return 409; }\n"
	"location /read-only/ { }\n"
	"location /small/ { client_max_body_size 3; dav_methods PUT;"
	" create_full_put_path on; }\n"
	"location ~ ^/moved/(.*)$ { return 307 /$1; }\n"
	"location ~ ^/found/(.*)$ { return 302 /$1; }\n"
	"location /away/ { return 307 http://127.0.0.2:1/x; }\n"
	"location /round/ { return 307 /round/x; }\n"
	"location /bearer/ { dav_methods PUT; create_full_put_path on;\n"
	" if ($http_authorization != \"Bearer " ASKING_SECRET "\")"
	" { return 401; } }\n"
	"location /basic/ { dav_methods PUT; create_full_put_path on;\n"
	/* me:hunter2-Zq9 */
	" if ($http_authorization != \"Basic bWU6aHVudGVyMi1acTk=\")"
	" { return 401; } }\n"
	"location /heeds/ { dav_methods PUT; create_full_put_path on;\n"
	" if ($http_if_none_match = \"*\") { return 412; } }\n";

static int start(void **state)
{
	static const char *const proxies[] = { "http_proxy", "all_proxy",
					       "ALL_PROXY", "https_proxy",
					       "HTTPS_PROXY" };
	const struct server_nginx_options options = { .extra = locations };

	for (size_t i = 0; i < sizeof(proxies) / sizeof(*proxies); i++)
		(void)unsetenv(proxies[i]);
	directory = harness_directory();
	nginx = server_nginx(directory, &options);
	return 0;
}

static int stop(void **state)
{
	stuck_names_release();
	server_stop(nginx);
	free(directory);
	return 0;
}

static void open_path(struct asking *asking, const char *path,
		      const char *words)
{
	char url[256], line[512];

	(void)snprintf(url, sizeof(url), "%s%s", server_url(nginx), path);
	(void)snprintf(line, sizeof(line), "%s %s\n", url, words ? words : "");
	asking_init(asking);
	asking_open(asking, directory, url, words ? line : NULL, NULL);
}

/* ---- nginx -------------------------------------------------------------- */

static void put_and_get(struct asking *asking)
{
	struct outcome outcome;

	assert_int_equal(asking_get_status(asking, ASKING_NAME), KILN_MISS);
	outcome = asking_head(asking, ASKING_NAME);
	asking_expect(&outcome, KILN_MISS, NULL, 0);
	outcome = asking_put(asking, ASKING_NAME, "a\0b\r\nc", 6, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(asking, ASKING_NAME);
	asking_expect(&outcome, KILN_OK, "a\0b\r\nc", 6);
	outcome = asking_head(asking, ASKING_NAME);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	assert_int_equal(outcome.total_bytes, 6);
	/* Again, and empty: what replaces it is what counts. */
	outcome = asking_put(asking, ASKING_NAME, "", 0, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(asking, ASKING_NAME);
	asking_expect(&outcome, KILN_OK, "", 0);
}

static void what_is_put_is_there(void **state)
{
	static const char *const rows[][2] = {
		{ "", NULL },
		{ "bearer/", "bearer " ASKING_SECRET },
		{ "basic/a/folder", "basic me " ASKING_SECRET },
	};
	struct asking asking;

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		open_path(&asking, rows[i][0], rows[i][1]);
		put_and_get(&asking);
		asking_close(&asking);
	}
}

/* S53 */
static void what_a_server_refuses_has_a_status(void **state)
{
	static const struct {
		const char *path, *words;
		enum kiln_status get, put;
	} rows[] = {
		{ "denied/", NULL, KILN_E_OWNER, KILN_E_OWNER },
		{ "bearer/", NULL, KILN_E_OWNER, KILN_E_OWNER },
		{ "bearer/", "bearer x" ASKING_SECRET, KILN_E_OWNER,
		  KILN_E_OWNER },
		{ "basic/", "basic you " ASKING_SECRET, KILN_E_OWNER,
		  KILN_E_OWNER },
		{ "full/", NULL, KILN_E_FULL, KILN_E_FULL },
		{ "gone/", NULL, KILN_MISS, KILN_E_UNSUPPORTED },
		{ "broken/", NULL, KILN_E_IO, KILN_E_IO },
		{ "read-only/", NULL, KILN_MISS, KILN_E_UNSUPPORTED },
		{ "small/", NULL, KILN_MISS, KILN_E_TOO_LARGE },
		{ "conflict/", NULL, KILN_E_UNSUPPORTED, KILN_E_UNSUPPORTED },
		{ "away/", NULL, KILN_E_UNSUPPORTED, KILN_E_UNSUPPORTED },
		{ "round/", NULL, KILN_E_UNSUPPORTED, KILN_E_UNSUPPORTED },
	};
	struct asking asking;
	struct outcome outcome;

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		open_path(&asking, rows[i].path, rows[i].words);
		outcome = asking_get(&asking, "refused");
		asking_expect(&outcome, rows[i].get, NULL, 0);
		outcome = asking_head(&asking, "refused");
		asking_expect(&outcome, rows[i].get, NULL, 0);
		outcome = asking_put(&asking, "refused", "abcd", 4, 0, 0);
		asking_expect(&outcome, rows[i].put, NULL, 0);
		assert_non_null(outcome.why);
		asking_close(&asking);
	}
}

static void a_redirect_on_the_same_server_is_followed(void **state)
{
	struct asking asking;
	struct outcome outcome;

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	open_path(&asking, "moved/", NULL);
	outcome = asking_put(&asking, "redirected", "abc", 3, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(&asking, "redirected");
	asking_expect(&outcome, KILN_OK, "abc", 3);
	asking_close(&asking);
	open_path(&asking, "found/", NULL);
	outcome = asking_get(&asking, "redirected");
	asking_expect(&outcome, KILN_OK, "abc", 3);
	/* A put to be made by another method is none. */
	outcome = asking_put(&asking, "redirected", "xyz", 3, 0, 0);
	asking_expect(&outcome, KILN_E_UNSUPPORTED, NULL, 0);
	asking_close(&asking);
}

static void something_large_is_had_as_it_is(void **state)
{
	const size_t size = ((size_t)24 << 20) + 1;
	char *body = malloc(size);
	struct asking asking;
	struct outcome outcome;

	for (size_t i = 0; i < size; i++)
		body[i] = (char)(i * 2654435761u >> 24);
	if (!nginx) {
		free(body);
		HARNESS_LEAVE_OUT("no nginx");
	}
	open_path(&asking, "", NULL);
	outcome = asking_put(&asking, "large", body, size, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(&asking, "large");
	asking_expect(&outcome, KILN_OK, body, size);
	asking.body_max = size - 1;
	outcome = asking_get(&asking, "large");
	asking_expect(&outcome, KILN_E_TOO_LARGE, NULL, 0);
	free(body);
	asking_close(&asking);
}

static void get_many(struct asking *asking)
{
	static struct answer answers[GETS];
	const char *names[GETS];
	void *args[GETS];

	for (unsigned i = 0; i < GETS; i++) {
		answers[i] = (struct answer){ .asking = asking };
		args[i] = &answers[i];
		names[i] = i % 2 ? "many" : "none";
	}
	asking->backend->ops->get(asking->backend, names, GETS,
				  asking->body_max, asking->timeout_ms,
				  asking_done, args);
	asking_wait(asking, GETS);
	for (unsigned i = 0; i < GETS; i++) {
		assert_int_equal(answers[i].n_calls, 1);
		asking_expect(&answers[i].outcome, i % 2 ? KILN_OK : KILN_MISS,
			      i % 2 ? "x" : NULL, 1);
	}
}

static void many_are_had_at_once(void **state)
{
	struct asking asking;

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	open_path(&asking, "", NULL);
	assert_int_equal(asking_put_status(&asking, "many", "x"), KILN_OK);
	get_many(&asking);
	asking_close(&asking);
}

static void a_put_makes_no_second_where_the_server_can_tell(void **state)
{
	struct asking asking;
	struct outcome outcome;

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	open_path(&asking, "", NULL);
	for (unsigned i = 0; i < 10; i++) {
		outcome = asking_put(&asking, "second", "a", 1, 0, 1);
		asking_expect(&outcome, KILN_OK, NULL, 0);
	}
	asking_close(&asking);
	open_path(&asking, "heeds/", NULL);
	outcome = asking_put(&asking, "second", "a", 1, 0, 1);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	do /* until the probe is done */
		outcome = asking_put(&asking, "second", "b", 1, 0, 1);
	while (outcome.status == KILN_OK);
	asking_expect(&outcome, KILN_EXISTS, NULL, 0);
	outcome = asking_put(&asking, "second", "c", 1, 0, 0);
	asking_expect(&outcome, KILN_OK, NULL, 0);
	outcome = asking_get(&asking, "second");
	asking_expect(&outcome, KILN_OK, "c", 1);
	asking_close(&asking);
}

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	while ((text = strstr(text, word))) {
		text++;
		n++;
	}
	return n;
}

static void a_server_is_probed_once(void **state)
{
	static const struct {
		const char *bytes;
		enum kiln_status status;
		unsigned n_probes;
	} rows[] = {
		{ EMPTY("201 Made"), KILN_OK, 2 },
		{ EMPTY("400 Not such a name"), KILN_E_UNSUPPORTED, 1 },
		{ EMPTY("403 Not you"), KILN_E_OWNER, 1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct asking asking;
		struct bad_server *bad;
		struct outcome outcome;
		char url[64];

		asking_init(&asking);
		bad = bad_server_new(asking.loop, rows[i].bytes,
				     strlen(rows[i].bytes), BAD_KEEP);
		(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u",
			       bad_server_port(bad));
		asking_open(&asking, directory, url, NULL, NULL);
		for (unsigned n = 0;
		     n < 10 ||
		     count(bad_server_asked(bad), CONDITION) < rows[i].n_probes;
		     n++) {
			outcome = asking_put(&asking, "x", "x", 1, 0, 1);
			asking_expect(&outcome, rows[i].status, NULL, 0);
		}
		assert_int_equal(
			count(bad_server_asked(bad), "If-None-Match: *"),
			rows[i].n_probes);
		asking_close_backend(&asking);
		bad_server_free(bad);
		asking_close(&asking);
	}
}

/* ---- Ranges ------------------------------------------------------------- */

static void a_part_is_had_as_long_as_nothing_changes(void **state)
{
	struct asking asking;
	struct outcome outcome;
	char tag[128] = "";

	if (!nginx)
		HARNESS_LEAVE_OUT("no nginx");
	open_path(&asking, "part", NULL);
	assert_int_equal(asking_put_status(&asking, "", "0123456789"), KILN_OK);
	outcome = asking_range(&asking, "", 2, 3, tag);
	asking_expect(&outcome, KILN_OK, "234", 3);
	assert_int_equal(outcome.total_bytes, 10);
	assert_int_equal(tag[0], '"');
	outcome = asking_range(&asking, "", 9, 1, tag);
	asking_expect(&outcome, KILN_OK, "9", 1);
	outcome = asking_range(&asking, "", 9, 2, tag);
	asking_expect(&outcome, KILN_E_IO, NULL, 0);
	outcome = asking_range(&asking, "", 10, 1, tag);
	asking_expect(&outcome, KILN_E_IO, NULL, 0);
	assert_int_equal(asking_put_status(&asking, "", "changed, longer"),
			 KILN_OK);
	outcome = asking_range(&asking, "", 2, 3, tag);
	asking_expect(&outcome, KILN_E_IO, NULL, 0);
	assert_non_null(strstr(outcome.why, "changed"));
	asking_close(&asking);
}

static void a_part_that_is_another_is_refused(void **state)
{
#define PART(rest) SAYS("HTTP/1.1 206 Partial Content\r\n" rest)
	static const struct {
		const char *bytes;
		size_t size;
		const char *tag;
		enum kiln_status status;
	} rows[] = {
		{ PART("Content-Range: bytes 2-4/10\r\nContent-Length: 3\r\n"
		       "ETag: \"a\"\r\n\r\nabc"),
		  "", KILN_OK },
		{ PART("Content-Range: bytes 2-4/10\r\nContent-Length: 3\r\n"
		       "ETag: \"a\"\r\n\r\nabc"),
		  "\"a\"", KILN_OK },
		{ PART("Content-Range: bytes 2-4/10\r\nContent-Length: 3\r\n"
		       "ETag: W/\"a\"\r\nLast-Modified: x\r\n\r\nabc"),
		  "x", KILN_OK },
		{ PART("Content-Range: bytes 2-4/10\r\nContent-Length: 3\r\n"
		       "\r\nabc"),
		  "10", KILN_OK },
		/* A server that overlooks If-Match. */
		{ PART("Content-Range: bytes 2-4/10\r\nContent-Length: 3\r\n"
		       "ETag: \"b\"\r\n\r\nabc"),
		  "\"a\"", KILN_E_IO },
		{ PART("Content-Range: bytes 2-4/11\r\nContent-Length: 3\r\n"
		       "\r\nabc"),
		  "10", KILN_E_IO },
		{ PART("Content-Range: bytes 1-3/10\r\nContent-Length: 3\r\n"
		       "\r\nabc"),
		  "", KILN_E_IO },
		{ PART("Content-Range: bytes 2-3/10\r\nContent-Length: 2\r\n"
		       "\r\nab"),
		  "", KILN_E_IO },
		{ PART("Content-Range: bytes 2-4/10\r\nContent-Length: 2\r\n"
		       "\r\nab"),
		  "", KILN_E_IO },
		{ PART("Content-Range: bytes 2-4/10\r\nContent-Length: 4\r\n"
		       "\r\nabcd"),
		  "", KILN_E_TOO_LARGE },
		{ PART("Content-Range: bytes 4-2/10\r\nContent-Length: 3\r\n"
		       "\r\nabc"),
		  "", KILN_E_IO },
		{ PART("Content-Range: cats 2-4/10\r\nContent-Length: 3\r\n"
		       "\r\nabc"),
		  "", KILN_E_FORMAT },
		{ PART("Content-Length: 3\r\n\r\nabc"), "", KILN_E_FORMAT },
		{ SAYS(OK_ABC), "", KILN_E_UNSUPPORTED },
		{ SAYS(EMPTY("412 Changed")), "\"a\"", KILN_E_IO },
		{ SAYS(EMPTY("404 None")), "", KILN_MISS },
	};
	struct asking asking;
	struct bad_server *bad;
	char url[64], tag[128];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, "", 0, BAD_CLOSE);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/pack",
		       bad_server_port(bad));
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct outcome outcome;

		bad_server_say(bad, rows[i].bytes, rows[i].size, BAD_KEEP);
		asking_open(&asking, directory, url, NULL, NULL);
		(void)snprintf(tag, sizeof(tag), "%s", rows[i].tag);
		outcome = asking_range(&asking, "", 2, 3, tag);
		if (outcome.status != rows[i].status)
			print_message("# row %zu\n", i);
		asking_expect(&outcome, rows[i].status,
			      rows[i].status ? NULL : "abc", 3);
		assert_non_null(
			strstr(bad_server_asked(bad), "Range: bytes=2-4"));
		asking_close_backend(&asking);
	}
	assert_non_null(strstr(bad_server_asked(bad), "If-Match: \"a\""));
	bad_server_free(bad);
	asking_close(&asking);
}

/* ---- TLS ---------------------------------------------------------------- */

static void certificates_are_looked_at(void **state)
{
	const struct server_nginx_options options = { .has_tls = 1 };
	char *folder = harness_path(directory, "tls");
	char *ca = harness_path(folder, "ca.pem");
	char *none = harness_path(folder, "none.pem");
	struct server *server = NULL;
	struct asking asking;
	struct outcome outcome;
	const struct {
		const char *ca;
		const char *why;
	} rows[] = { { NULL, "not trusted" }, { none, "ca=" } };

	assert_int_equal(ki_sys_posix.mkdir(&ki_sys_posix, folder, 0700), 0);
	if (nginx && server_certificates(folder))
		server = server_nginx(folder, &options);
	if (!server)
		print_message("# left out: no nginx or no openssl\n");
	if (server) {
		asking_init(&asking);
		asking_open(&asking, directory, server_url(server), NULL, ca);
		put_and_get(&asking);
		assert_int_equal(asking_put_status(&asking, "many", "x"),
				 KILN_OK);
		get_many(&asking);
		asking_close(&asking);
	}
	for (size_t i = 0; server && i < 2; i++) {
		asking_init(&asking);
		asking_open(&asking, directory, server_url(server), NULL,
			    rows[i].ca);
		outcome = asking_get(&asking, ASKING_NAME);
		asking_expect(&outcome, KILN_E_IO, NULL, 0);
		assert_non_null(strstr(outcome.why, rows[i].why));
		asking_close(&asking);
	}
	server_stop(server);
	free(none);
	free(ca);
	free(folder);
}

#define SYSTEM "/etc/ssl/certs"

/* A directory that the system could trust: libraries differ in what they read. */
static char *make_trusted(const char *folder)
{
	char *trusted = harness_path(folder, "trusted"), *command;

	assert_true(asprintf(&command,
			     "mkdir '%s' && cp '%s/ca.pem' '%s' && cp "
			     "'%s/ca.pem' '%s/ca-certificates.crt'",
			     trusted, folder, trusted, folder, trusted) > 0);
	assert_int_equal(system(command), 0);
	free(command);
	return trusted;
}

/* In a process of which the system trusts that. */
static int ask_trusting(const char *trusted, const char *url, const char *ca)
{
	pid_t pid = fork();
	struct asking asking;
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		if (unshare(CLONE_NEWNS) ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount(trusted, SYSTEM, NULL, MS_BIND, NULL))
			_exit(77);
		asking_init(&asking);
		asking_open(&asking, directory, url, NULL, ca);
		status = asking_get_status(&asking, ASKING_NAME) == KILN_MISS;
		asking_close(&asking);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void certificates_of_a_file_are_all_that_count(void **state)
{
	const struct server_nginx_options options = { .has_tls = 1 };
	char *folder = harness_path(directory, "tls-a");
	char *other = harness_path(directory, "tls-b");
	char *ca = harness_path(other, "ca.pem"), *trusted = NULL;
	struct server *server = NULL;
	int with_system = 77, with_other = 77;

	assert_int_equal(ki_sys_posix.mkdir(&ki_sys_posix, folder, 0700), 0);
	assert_int_equal(ki_sys_posix.mkdir(&ki_sys_posix, other, 0700), 0);
	if (nginx && server_certificates(folder) && server_certificates(other))
		server = server_nginx(folder, &options);
	if (server) {
		trusted = make_trusted(folder);
		with_system = ask_trusting(trusted, server_url(server), NULL);
		with_other = ask_trusting(trusted, server_url(server), ca);
	}
	server_stop(server);
	free(trusted);
	free(ca);
	free(other);
	free(folder);
	if (with_system == 77)
		HARNESS_LEAVE_OUT("no nginx, no openssl, or no mounts");
	assert_int_equal(with_system, 1);
	assert_int_equal(with_other, 0);
}

/* ---- Servers that are wrong --------------------------------------------- */

/* S50, S52, S55 */
static void a_bad_answer_is_never_a_value(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
		enum bad_end end;
		enum kiln_status status;
	} rows[] = {
		{ SAYS(OK_ABC), BAD_KEEP, KILN_OK },
		{ SAYS(OK_ABC), BAD_DRIP, KILN_OK },
		{ SAYS("HTTP/1.0 200 OK\r\n\r\nabc"), BAD_CLOSE, KILN_OK },
		{ SAYS("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		       "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"),
		  BAD_KEEP, KILN_OK },
		{ SAYS("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
		       "Trailer: X-Time\r\n\r\n3\r\nabc\r\n0\r\n"
		       "X-Time: 3\r\n\r\n"),
		  BAD_KEEP, KILN_OK },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
		       "Content-Length: 3\r\n\r\nabc"),
		  BAD_KEEP, KILN_OK },
		/* Cut. */
		{ SAYS(""), BAD_CLOSE, KILN_E_IO },
		{ SAYS(""), BAD_RESET, KILN_E_IO },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: 3"), BAD_CLOSE,
		  KILN_E_IO },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"),
		  BAD_CLOSE, KILN_E_IO },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"),
		  BAD_RESET, KILN_E_IO },
		{ SAYS("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		       "3\r\nabc\r\n"),
		  BAD_CLOSE, KILN_E_IO },
		{ SAYS("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		       "x" ASKING_SECRET "\r\nabc\r\n"),
		  BAD_CLOSE, KILN_E_IO },
		/* Larger than it may be, or without an end. */
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n"
		       "\r\n"),
		  BAD_ENDLESS, KILN_E_TOO_LARGE },
		{ SAYS("HTTP/1.1 200 OK\r\n\r\n"), BAD_ENDLESS,
		  KILN_E_TOO_LARGE },
		{ SAYS("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		       "fffffff\r\n"),
		  BAD_ENDLESS, KILN_E_TOO_LARGE },
		{ SAYS("HTTP/1.1 404 None\r\n\r\n"), BAD_ENDLESS, KILN_MISS },
		{ SAYS("HTTP/1.1 500 Bad\r\n\r\n"), BAD_ENDLESS, KILN_E_IO },
		{ SAYS("HTTP/1.1 206 Part\r\n\r\n"), BAD_ENDLESS,
		  KILN_E_UNSUPPORTED },
		{ SAYS("HTTP/1.1 200 OK\r\nX: "), BAD_ENDLESS, KILN_E_FORMAT },
		{ SAYS(""), BAD_ENDLESS, KILN_E_FORMAT },
		/* In time or not. */
		{ SAYS(""), BAD_HANG, KILN_E_TIMEOUT },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Le"), BAD_HANG,
		  KILN_E_TIMEOUT },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"),
		  BAD_HANG, KILN_E_TIMEOUT },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
		  BAD_DRIP, KILN_E_TIMEOUT },
		/* Something else. */
		{ SAYS("+OK\r\n"), BAD_CLOSE, KILN_E_FORMAT },
		{ SAYS("SSH-2.0-" ASKING_SECRET "\r\n"), BAD_CLOSE,
		  KILN_E_FORMAT },
		{ SAYS("\x15\x03\x01\x00\x02"), BAD_CLOSE, KILN_E_FORMAT },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc"),
		  BAD_CLOSE, KILN_E_FORMAT },
		{ SAYS("HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc"),
		  BAD_CLOSE, KILN_E_FORMAT },
		{ SAYS(EMPTY("204 None")), BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS(EMPTY("206 Part")), BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS(EMPTY("304 Same")), BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS(EMPTY("302 No place")), BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS("HTTP/1.1 302 Away\r\nContent-Length: 0\r\n"
		       "Location: http://me:" ASKING_SECRET "@127.0.0.1/\r\n"
		       "\r\n"),
		  BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS("HTTP/1.1 302 Away\r\nContent-Length: 0\r\n"
		       "Location: file:///etc/" ASKING_SECRET "\r\n\r\n"),
		  BAD_KEEP, KILN_E_UNSUPPORTED },
		/* Errors, with what they must not say. */
		{ SAYS(TELLS("400")), BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS(TELLS("401")), BAD_KEEP, KILN_E_OWNER },
		{ SAYS(TELLS("403")), BAD_CLOSE, KILN_E_OWNER },
		{ SAYS(TELLS("404")), BAD_KEEP, KILN_MISS },
		{ SAYS(TELLS("407")), BAD_KEEP, KILN_E_OWNER },
		{ SAYS(TELLS("418")), BAD_KEEP, KILN_E_UNSUPPORTED },
		{ SAYS(TELLS("429")), BAD_KEEP, KILN_E_IO },
		{ SAYS(TELLS("500")), BAD_KEEP, KILN_E_IO },
		{ SAYS(TELLS("503")), BAD_KEEP, KILN_E_IO },
		{ SAYS(TELLS("504")), BAD_KEEP, KILN_E_TIMEOUT },
		{ SAYS(TELLS("507")), BAD_KEEP, KILN_E_FULL },
		{ SAYS(TELLS("599")), BAD_KEEP, KILN_E_IO },
	};
	static const char *const words[] = { "basic me " ASKING_SECRET,
					     "bearer " ASKING_SECRET };
	struct asking asking;
	struct bad_server *bad;
	char url[64], line[256];

	asking_init(&asking);
	asking.body_max = 1 << 20;
	bad = bad_server_new(asking.loop, "", 0, BAD_CLOSE);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u",
		       bad_server_port(bad));
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int is_late = rows[i].status == KILN_E_TIMEOUT;

		(void)snprintf(line, sizeof(line), "%s %s\n", url,
			       words[i % 2]);
		bad_server_say(bad, rows[i].bytes, rows[i].size, rows[i].end);
		asking_open(&asking, directory, url, line, NULL);
		asking.timeout_ms = is_late ? 50 : HARNESS_HANG_S * 1000;
		for (unsigned n = 0; n < 2; n++) {
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
	assert_null(strstr(bad_server_asked(bad), "Accept-Encoding"));
	bad_server_free(bad);
	asking_close(&asking);
}

/* S55 */
static void credentials_do_not_go_to_another_server(void **state)
{
	struct asking asking;
	struct bad_server *other, *bad;
	struct outcome outcome;
	char url[64], line[256], away[256];

	asking_init(&asking);
	other = bad_server_new(asking.loop, SAYS(OK_ABC), BAD_KEEP);
	(void)snprintf(away, sizeof(away),
		       "HTTP/1.1 302 Away\r\nContent-Length: 0\r\n"
		       "Location: http://127.0.0.1:%u/x\r\n\r\n",
		       bad_server_port(other));
	bad = bad_server_new(asking.loop, away, strlen(away), BAD_KEEP);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u",
		       bad_server_port(bad));
	(void)snprintf(line, sizeof(line), "%s bearer " ASKING_SECRET "\n",
		       url);
	asking_open(&asking, directory, url, line, NULL);
	outcome = asking_get(&asking, "x");
	asking_expect(&outcome, KILN_E_UNSUPPORTED, NULL, 0);
	assert_non_null(strstr(bad_server_asked(bad), ASKING_SECRET));
	assert_int_equal(bad_server_n_connections(other), 0);
	asking_close_backend(&asking);
	bad_server_free(bad);
	bad_server_free(other);
	asking_close(&asking);
}

static void connections_are_kept_and_few(void **state)
{
	static struct answer answers[4 * CONNECTIONS_MAX];
	const char *names[4 * CONNECTIONS_MAX];
	void *args[4 * CONNECTIONS_MAX];
	struct asking asking;
	struct bad_server *bad;
	char url[64];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, SAYS(OK_ABC), BAD_KEEP);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u",
		       bad_server_port(bad));
	asking_open(&asking, directory, url, NULL, NULL);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(asking_get_status(&asking, "x"), KILN_OK);
	assert_int_equal(bad_server_n_connections(bad), 1);
	for (size_t i = 0; i < 4 * CONNECTIONS_MAX; i++) {
		answers[i] = (struct answer){ .asking = &asking };
		args[i] = &answers[i];
		names[i] = "x";
	}
	asking.backend->ops->get(asking.backend, names, 4 * CONNECTIONS_MAX, 64,
				 50, asking_done, args);
	asking_wait(&asking, 4 * CONNECTIONS_MAX);
	for (size_t i = 0; i < 4 * CONNECTIONS_MAX; i++)
		asking_expect(&answers[i].outcome, KILN_OK, "abc", 3);
	assert_in_range(bad_server_n_connections(bad), 2, CONNECTIONS_MAX);
	asking_close_backend(&asking);
	bad_server_free(bad);
	asking_close(&asking);
}

static void a_proxy_of_the_environment_is_used(void **state)
{
	struct asking asking;
	struct bad_server *bad;
	struct outcome outcome;
	char url[64];

	asking_init(&asking);
	bad = bad_server_new(asking.loop, SAYS(OK_ABC), BAD_KEEP);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u",
		       bad_server_port(bad));
	assert_int_equal(setenv("http_proxy", url, 1), 0);
	asking_open(&asking, directory, "http://far.kiln.invalid/a", NULL,
		    NULL);
	outcome = asking_get(&asking, "x");
	asking_expect(&outcome, KILN_OK, "abc", 3);
	assert_non_null(strstr(bad_server_asked(bad),
			       "GET http://far.kiln.invalid/a/x "));
	assert_int_equal(unsetenv("http_proxy"), 0);
	asking_close_backend(&asking);
	bad_server_free(bad);
	asking_close(&asking);
}

static void who_is_not_there_is_no_miss(void **state)
{
	static const char *const urls[] = {
		"http://127.0.0.1:1",
		"https://127.0.0.1:1",
		"http://[::1]:1/",
		"http://no-such-host.kiln.invalid",
	};
	struct asking asking;
	struct outcome outcome;

	for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
		asking_init(&asking);
		asking_open(&asking, directory, urls[i], NULL, NULL);
		outcome = asking_get(&asking, "x");
		asking_expect(&outcome, KILN_E_IO, NULL, 0);
		outcome = asking_put(&asking, "x", "x", 1, 0, 1);
		asking_expect(&outcome, KILN_E_IO, NULL, 0);
		assert_non_null(outcome.why);
		asking_close(&asking);
	}
}

/* S52 */
static void a_name_server_that_is_silent_holds_nobody_up(void **state)
{
	struct asking asking;

	asking_init(&asking);
	asking_open(&asking, directory, "http://" STUCK_NAME, NULL, NULL);
	asking.timeout_ms = 20;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(asking_get_status(&asking, "x"),
				 KILN_E_TIMEOUT);
	assert_true(stuck_names_n_calls() > 0);
	asking_close(&asking);
}

static void who_still_waits_is_told_of_the_end(void **state)
{
	struct answer answers[4];
	void *const args[] = { &answers[0], &answers[1] };
	const char *names[] = { "a", "b" };
	char tag[128] = "", url[64];
	struct asking asking;
	struct bad_server *bad;

	asking_init(&asking);
	bad = bad_server_new(asking.loop, "", 0, BAD_HANG);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u",
		       bad_server_port(bad));
	asking_open(&asking, directory, url, NULL, NULL);
	for (size_t i = 0; i < 4; i++)
		answers[i] = (struct answer){ .asking = &asking };
	asking.backend->ops->get(asking.backend, names, 2, 64, 60000,
				 asking_done, args);
	asking.backend->ops->put(asking.backend, "c", "c", 1, 0, 1, 60000,
				 asking_done, &answers[2]);
	asking.backend->ops->range(asking.backend, "", 0, 1, tag, 60000,
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
		asking_init(&asking);
		asking_open(&asking, directory, "http://127.0.0.1:1", NULL,
			    NULL);
		asking.backend->ops->head(asking.backend, "a", 60000,
					  ask_once_more, &answer);
		asking_close_backend(&asking);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_there),
		cmocka_unit_test(what_a_server_refuses_has_a_status),
		cmocka_unit_test(a_redirect_on_the_same_server_is_followed),
		cmocka_unit_test(something_large_is_had_as_it_is),
		cmocka_unit_test(many_are_had_at_once),
		cmocka_unit_test(
			a_put_makes_no_second_where_the_server_can_tell),
		cmocka_unit_test(a_server_is_probed_once),
		cmocka_unit_test(a_part_is_had_as_long_as_nothing_changes),
		cmocka_unit_test(a_part_that_is_another_is_refused),
		cmocka_unit_test(certificates_are_looked_at),
		cmocka_unit_test(certificates_of_a_file_are_all_that_count),
		cmocka_unit_test(a_bad_answer_is_never_a_value),
		cmocka_unit_test(credentials_do_not_go_to_another_server),
		cmocka_unit_test(connections_are_kept_and_few),
		cmocka_unit_test(a_proxy_of_the_environment_is_used),
		cmocka_unit_test(who_is_not_there_is_no_miss),
		cmocka_unit_test(a_name_server_that_is_silent_holds_nobody_up),
		cmocka_unit_test(who_still_waits_is_told_of_the_end),
		cmocka_unit_test(nobody_asks_while_it_is_closed),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
