/* SPDX-License-Identifier: MIT */

/*
 * Redis is spoken to; what nginx and s3rver have are files.  What s3rver keeps
 * beside a value (its MD5, its type) stays as it is: nobody compares it.
 */

#include "harness/harness.h"
#include "harness/servers_test.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "stock.h"

#define ITEM_BYTES_MAX ((size_t)64 << 20)

const char *const stock_names[STOCK_N_KINDS] = {
#define STOCK_NAME(id, name) name,
	STOCK_KINDS(STOCK_NAME)
#undef STOCK_NAME
};

int stock_open(struct stock *stock, enum stock_kind kind)
{
	const struct server_nginx_options options = { .has_tls = 0 };
	unsigned port;

	*stock = (struct stock){ .kind = kind,
				 .directory = harness_directory() };
	stock->server =
		kind == STOCK_REDIS   ? server_redis(stock->directory, NULL)
		: kind == STOCK_NGINX ? server_nginx(stock->directory, &options)
				      : server_s3(stock->directory);
	if (!stock->server) {
		free(stock->directory);
		return 0;
	}
	stock->proxy = proxy_open((uint16_t)server_port(stock->server));
	port = proxy_port(stock->proxy);
	if (kind == STOCK_S3) {
		snprintf(stock->url, sizeof(stock->url), "s3://%s/kiln",
			 SERVER_S3_BUCKET);
		snprintf(stock->endpoint, sizeof(stock->endpoint),
			 "http://127.0.0.1:%u", port);
	} else {
		snprintf(stock->url, sizeof(stock->url), "%s://127.0.0.1:%u",
			 kind == STOCK_REDIS ? "redis" : "http", port);
	}
	return 1;
}

void stock_close(struct stock *stock)
{
	proxy_close(stock->proxy);
	server_stop(stock->server);
	harness_remove(stock->directory);
	free(stock->directory);
}

/* ---- Redis ------------------------------------------------------------------ */

static int call(const struct stock *stock)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)server_port(stock->server)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(
		connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* One command; the answer, all that comes before the server closes: QUIT follows
   it. */
static char *ask_redis(const struct stock *stock, const char *verb,
		       const char *name, const void *value, size_t size,
		       size_t *out_size)
{
	char *answer = malloc(ITEM_BYTES_MAX);
	int fd = call(stock);
	FILE *file = fdopen(fd, "r+");
	size_t n;

	assert_non_null(answer);
	assert_non_null(file);
	fprintf(file, "*%d\r\n$%zu\r\n%s\r\n$%zu\r\nkiln:%s\r\n", value ? 3 : 2,
		strlen(verb), verb, strlen(name) + 5, name);
	if (value) {
		fprintf(file, "$%zu\r\n", size);
		fwrite(value, 1, size, file);
		fputs("\r\n", file);
	}
	fputs("*1\r\n$4\r\nQUIT\r\n", file);
	assert_int_equal(fflush(file), 0);
	n = fread(answer, 1, ITEM_BYTES_MAX, file);
	fclose(file);
	assert_true(n > 5 && n < ITEM_BYTES_MAX);
	*out_size = n - 5; /* +OK of QUIT */
	return answer;
}

/* "$12\r\n", 12 bytes, "\r\n" */
static char *take_from_redis(const struct stock *stock, const char *name,
			     size_t *out_size)
{
	size_t size, n;
	char *answer = ask_redis(stock, "GET", name, NULL, 0, &size);
	char *bytes = memchr(answer, '\n', size);

	if (!strncmp(answer, "$-1", 3)) {
		free(answer);
		return NULL;
	}
	assert_non_null(bytes);
	bytes++;
	n = strtoul(answer + 1, NULL, 10);
	assert_int_equal((size_t)(bytes - answer) + n + 2, size);
	memmove(answer, bytes, n);
	*out_size = n;
	return answer;
}

/* ---- Files ------------------------------------------------------------------ */

static char *path_of(const struct stock *stock, const char *name)
{
	char *path;

	assert_true(asprintf(&path,
			     stock->kind == STOCK_NGINX
				     ? "%s/www/%s"
				     : "%s/" SERVER_S3_BUCKET
				       "/kiln/%s._S3rver_object",
			     stock->directory, name) > 0);
	return path;
}

/* ---- All -------------------------------------------------------------------- */

char *stock_take(const struct stock *stock, const char *name, size_t *out_size)
{
	char *path, *bytes;

	if (stock->kind == STOCK_REDIS)
		return take_from_redis(stock, name, out_size);
	path = path_of(stock, name);
	bytes = harness_read(path, out_size);
	free(path);
	return bytes;
}

void stock_lay(const struct stock *stock, const char *name, const void *bytes,
	       size_t size)
{
	size_t n;
	char *path;

	if (stock->kind == STOCK_REDIS) {
		free(ask_redis(stock, "SET", name, bytes, size, &n));
		return;
	}
	path = path_of(stock, name);
	harness_write(path, bytes, size);
	free(path);
}

void stock_remove(const struct stock *stock, const char *name)
{
	size_t n;
	char *path;

	if (stock->kind == STOCK_REDIS) {
		free(ask_redis(stock, "DEL", name, NULL, 0, &n));
		return;
	}
	path = path_of(stock, name);
	(void)unlink(path);
	free(path);
}

char *stock_await(const struct stock *stock, const char *name, size_t *out_size)
{
	const time_t deadline = time(NULL) + HARNESS_HANG_S;
	char *bytes;

	while (!(bytes = stock_take(stock, name, out_size))) {
		if (time(NULL) > deadline)
			fail_msg("%s never came to %s", name,
				 stock_names[stock->kind]);
		(void)usleep(2000);
	}
	return bytes;
}
