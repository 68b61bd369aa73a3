/* SPDX-License-Identifier: MIT */

/*
 * Two connections: one for what somebody waits for, one for what is put, which
 * may be large and would stand before the others.
 *
 *	get      GET kiln:NAME, one for each, all at once
 *	head     STRLEN kiln:NAME
 *	put      SET kiln:NAME BODY [EX s] [NX]
 *	lease    SET kiln:lease:NAME TOKEN NX PX ms; where that may have been done
 *	         already, EVAL: PEXPIRE if the value is the token, else the SET
 *	renew    EVAL: PEXPIRE if the value is the token
 *	release  EVAL: DEL if the value is the token
 *
 * The body of a put is not copied; the commands around it are, into the request.
 */

#include "remote-helper/redis/redis.h"

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote-helper/redis/link.h"

/* The longest command but for a body: a script, a name and a token. */
#define COMMAND_BYTES_MAX 1024

#define RENEW                                                                  \
	"if redis.call('GET',KEYS[1])==ARGV[1] then "                          \
	"return redis.call('PEXPIRE',KEYS[1],ARGV[2]) else return 0 end"
#define LEASE_AGAIN                                                            \
	"if redis.call('GET',KEYS[1])==ARGV[1] then "                          \
	"return redis.call('PEXPIRE',KEYS[1],ARGV[2]) "                        \
	"elseif redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then "     \
	"return 1 else return 0 end"
#define RELEASE                                                                \
	"if redis.call('GET',KEYS[1])==ARGV[1] then "                          \
	"return redis.call('DEL',KEYS[1]) else return 0 end"

struct redis {
	struct backend backend;
	struct url url;
	struct greeting greeting;
	char *authentication; /* guarded */
	char *selection;
	struct link *asking, *putting;
};

static struct redis *redis_of(struct backend *backend)
{
	return ki_container(backend, struct redis, backend);
}

/* ---- Commands ----------------------------------------------------------- */

/* The words as Redis reads them; its size without the NUL. */
static size_t format_words(char *out, size_t size, const char *const *words,
			   size_t n_words)
{
	size_t i, at = 0;

	for (i = 0; i < n_words; i++) {
		int n = snprintf(out ? out + at : NULL, out ? size - at : 0,
				 "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);

		at += (size_t)n;
	}
	return at;
}

/* "*N" and the words. */
static size_t format_command(char *out, size_t size, const char *const *words,
			     size_t n_words)
{
	int n = snprintf(out, out ? size : 0, "*%zu\r\n", n_words);

	return (size_t)n + format_words(out ? out + n : NULL,
					out ? size - (size_t)n : 0, words,
					n_words);
}

static struct request *request_new(enum question question, size_t text_bytes,
				   done_fn *done, void *arg)
{
	struct request *request = malloc(sizeof(*request) + text_bytes + 1);

	if (!request)
		return NULL;
	memset(request, 0, sizeof(*request));
	request->question = question;
	request->done = done;
	request->arg = arg;
	return request;
}

static void answer_no_memory(done_fn *done, void *arg)
{
	struct outcome outcome = { .status = KILN_E_NO_MEMORY,
				   .why = "no memory" };

	done(arg, &outcome);
}

/* Not sent before link_flush().  `again_size` bytes behind the command are sent in
   its place where it may have been done (link.h).  NULL: answered already. */
static struct request *ask_text(struct link *link, enum question question,
				const char *text, size_t size,
				size_t again_size, uint32_t timeout_ms,
				done_fn *done, void *arg)
{
	struct request *request =
		request_new(question, size + again_size, done, arg);

	if (!request) {
		answer_no_memory(done, arg);
		return NULL;
	}
	memcpy(request->text, text, size + again_size);
	request->pieces[0] =
		(struct iovec){ .iov_base = request->text, .iov_len = size };
	request->n_pieces = 1;
	request->again = (struct iovec){ .iov_base = request->text + size,
					 .iov_len = again_size };
	link_ask(link, request, timeout_ms);
	return request;
}

static struct request *ask(struct link *link, enum question question,
			   const char *const *words, size_t n_words,
			   uint32_t timeout_ms, done_fn *done, void *arg)
{
	char text[COMMAND_BYTES_MAX];
	size_t size = format_command(text, sizeof(text), words, n_words);

	assert(size < sizeof(text));
	return ask_text(link, question, text, size, 0, timeout_ms, done, arg);
}

struct key {
	char text[160];
};

static const char *item_key(const char *name, struct key *key)
{
	(void)snprintf(key->text, sizeof(key->text), "kiln:%s", name);
	return key->text;
}

static const char *lease_key(const char *name, struct key *key)
{
	(void)snprintf(key->text, sizeof(key->text), "kiln:lease:%s", name);
	return key->text;
}

/* ---- Items -------------------------------------------------------------- */

static void redis_get(struct backend *backend, const char *const *names,
		      size_t n_names, uint64_t body_max, uint32_t timeout_ms,
		      done_fn *done, void *const *args)
{
	struct redis *redis = redis_of(backend);
	struct key key;

	for (size_t i = 0; i < n_names; i++) {
		const char *words[] = { "GET", item_key(names[i], &key) };
		struct request *request =
			ask(redis->asking, QUESTION_GET, words, 2, timeout_ms,
			    done, args[i]);

		if (request)
			request->body_max = body_max;
	}
	link_flush(redis->asking);
}

static void redis_head(struct backend *backend, const char *name,
		       uint32_t timeout_ms, done_fn *done, void *arg)
{
	struct redis *redis = redis_of(backend);
	struct key key;
	const char *words[] = { "STRLEN", item_key(name, &key) };

	(void)ask(redis->asking, QUESTION_LENGTH, words, 2, timeout_ms, done,
		  arg);
	link_flush(redis->asking);
}

/* Before the body: how many words, SET, the key, and the body's size. */
static size_t format_set(char *out, size_t size, const char *key,
			 size_t body_size, size_t n_words)
{
	const char *words[] = { "SET", key };
	size_t n = (size_t)snprintf(out, size, "*%zu\r\n", n_words);

	n += format_words(out + n, size - n, words, 2);
	return n + (size_t)snprintf(out + n, size - n, "$%zu\r\n", body_size);
}

/* Behind it. */
static size_t format_set_end(char *out, size_t size, uint64_t ttl_s,
			     int only_new)
{
	const char *words[3];
	char seconds[24];
	size_t n_words = 0;

	(void)snprintf(seconds, sizeof(seconds), "%" PRIu64, ttl_s);
	if (ttl_s) {
		words[n_words++] = "EX";
		words[n_words++] = seconds;
	}
	if (only_new)
		words[n_words++] = "NX";
	memcpy(out, "\r\n", 3);
	return 2 + format_words(out + 2, size - 2, words, n_words);
}

static void redis_put(struct backend *backend, const char *name,
		      const void *body, size_t body_size, uint64_t ttl_s,
		      int only_new, uint32_t timeout_ms, done_fn *done,
		      void *arg)
{
	struct redis *redis = redis_of(backend);
	struct request *request =
		request_new(QUESTION_SET, COMMAND_BYTES_MAX, done, arg);
	struct key key;
	size_t n, n_words = 3 + (ttl_s ? 2 : 0) + (only_new ? 1 : 0);

	if (!request) {
		answer_no_memory(done, arg);
		return;
	}
	n = format_set(request->text, COMMAND_BYTES_MAX / 2,
		       item_key(name, &key), body_size, n_words);
	request->pieces[0] =
		(struct iovec){ .iov_base = request->text, .iov_len = n };
	request->pieces[1] = (struct iovec){ .iov_base = (void *)body,
					     .iov_len = body_size };
	request->pieces[2] =
		(struct iovec){ .iov_base = request->text + n,
				.iov_len = format_set_end(request->text + n,
							  COMMAND_BYTES_MAX / 2,
							  ttl_s, only_new) };
	request->n_pieces = 3;
	link_ask(redis->putting, request, timeout_ms);
	link_flush(redis->putting);
}

/* ---- Leases ------------------------------------------------------------- */

static void redis_lease(struct backend *backend, const char *name,
			const char *token, uint32_t ttl_ms, uint32_t timeout_ms,
			done_fn *done, void *arg)
{
	struct redis *redis = redis_of(backend);
	struct key key;
	char ms[16];
	char text[COMMAND_BYTES_MAX];
	const char *words[] = { "SET", lease_key(name, &key), token, "NX", "PX",
				ms };
	const char *again[] = { "EVAL", LEASE_AGAIN, "1", key.text, token, ms };
	struct request *request;
	size_t size, again_size;

	(void)snprintf(ms, sizeof(ms), "%" PRIu32, ttl_ms);
	size = format_command(text, sizeof(text), words, 6);
	again_size = format_command(text + size, sizeof(text) - size, again, 6);
	assert(size + again_size < sizeof(text));
	request = ask_text(redis->asking, QUESTION_SET, text, size, again_size,
			   timeout_ms, done, arg);
	if (request)
		request->question_again = QUESTION_LEASE;
	link_flush(redis->asking);
}

static void redis_renew(struct backend *backend, const char *name,
			const char *token, uint32_t ttl_ms, uint32_t timeout_ms,
			done_fn *done, void *arg)
{
	struct redis *redis = redis_of(backend);
	struct key key;
	char ms[16];
	const char *words[] = { "EVAL", RENEW, "1", lease_key(name, &key),
				token,	ms };

	(void)snprintf(ms, sizeof(ms), "%" PRIu32, ttl_ms);
	(void)ask(redis->asking, QUESTION_SCRIPT, words, 6, timeout_ms, done,
		  arg);
	link_flush(redis->asking);
}

static void redis_release(struct backend *backend, const char *name,
			  const char *token, uint32_t timeout_ms, done_fn *done,
			  void *arg)
{
	struct redis *redis = redis_of(backend);
	struct key key;
	const char *words[] = { "EVAL", RELEASE, "1", lease_key(name, &key),
				token };

	(void)ask(redis->asking, QUESTION_SCRIPT, words, 5, timeout_ms, done,
		  arg);
	link_flush(redis->asking);
}

/* ---- Opening ------------------------------------------------------------ */

static void redis_close(struct backend *backend)
{
	struct redis *redis = redis_of(backend);

	link_close(redis->asking);
	link_close(redis->putting);
	sodium_free(redis->authentication);
	free(redis->selection);
	ki_url_fini(&redis->url);
	free(redis);
}

static const struct backend_ops unix_ops = {
	.scheme = "unix",
	.get = redis_get,
	.head = redis_head,
	.put = redis_put,
	.lease = redis_lease,
	.renew = redis_renew,
	.release = redis_release,
	.close = redis_close,
};

static const struct backend_ops redis_ops = {
	.scheme = "redis",
	.get = redis_get,
	.head = redis_head,
	.put = redis_put,
	.lease = redis_lease,
	.renew = redis_renew,
	.release = redis_release,
	.close = redis_close,
};

static enum kiln_status greet(struct redis *redis, const char *const *words,
			      size_t n_words, char *text, size_t size)
{
	struct greeting *greeting = &redis->greeting;

	if (!text)
		return KILN_E_NO_MEMORY;
	size = format_command(text, size, words, n_words);
	greeting->commands[greeting->n_commands++] =
		(struct iovec){ .iov_base = text, .iov_len = size };
	return KILN_OK;
}

static enum kiln_status make_greeting(struct redis *redis,
				      const struct credential *credential)
{
	enum kiln_status status = KILN_OK;

	if (credential) {
		int has_user = credential->user != NULL;
		const char *words[] = { "AUTH",
					has_user ? credential->user
						 : credential->secret,
					credential->secret };
		size_t n_words = has_user ? 3 : 2;
		size_t size = format_command(NULL, 0, words, n_words) + 1;

		redis->authentication = sodium_malloc(size);
		status = greet(redis, words, n_words, redis->authentication,
			       size);
	}
	if (!status && redis->url.database) {
		char number[16];
		const char *words[] = { "SELECT", number };

		(void)snprintf(number, sizeof(number), "%u",
			       redis->url.database);
		redis->selection = malloc(COMMAND_BYTES_MAX);
		status = greet(redis, words, 2, redis->selection,
			       COMMAND_BYTES_MAX);
	}
	return status;
}

enum kiln_status redis_open(struct loop *loop, struct url *url,
			    const struct credential *credential,
			    struct backend **out_backend)
{
	struct redis *redis = calloc(1, sizeof(*redis));

	if (!redis)
		return KILN_E_NO_MEMORY;
	redis->url = *url;
	redis->backend.ops = url->scheme == URL_UNIX ? &unix_ops : &redis_ops;
	redis->backend.shown = redis->url.shown;
	if (!make_greeting(redis, credential)) {
		redis->asking = link_new(loop, &redis->url, &redis->greeting);
		redis->putting = link_new(loop, &redis->url, &redis->greeting);
	}
	if (!redis->asking || !redis->putting) {
		redis->url = (struct url){ 0 };
		redis_close(&redis->backend);
		return KILN_E_NO_MEMORY;
	}
	*url = (struct url){ 0 };
	*out_backend = &redis->backend;
	return KILN_OK;
}
