/* SPDX-License-Identifier: MIT */

/*
 *	web_begin     an easy handle from the shelf, all options anew; into the multi,
 *	              which goes on at once and not in the loop's next turn
 *	loop          sockets and timers of the multi
 *	receive       status first: of errors nothing is kept; a body not beyond its
 *	              limit, whatever its length was said to be
 *	finish        answer, then the handle back to the shelf; a redirect begins
 *	              again
 *
 * A name that nobody resolves costs curl a thread; CURLOPT_QUICK_EXIT lets a
 * request end without waiting for it.
 *
 * The tag of a range is the server's ETag, else its Last-Modified, else the size
 * of the whole.  It is sent as a condition, and compared with what the answer
 * says, because there are servers that overlook conditions.
 */

#include "remote-helper/http/web.h"

#include <assert.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

#include "remote-helper/http/answer.h"

#define CONNECTIONS_MAX	 8L
#define BUFFER_BYTES	 (256L << 10)
#define HANDLES_KEPT	 16
#define REDIRECTS_MAX	 3
#define HEADER_BYTES_MAX ((size_t)64 << 10)
#define ERROR_BYTES_MAX	 ((size_t)64 << 10)
#define FIRST_BODY_BYTES ((size_t)64 << 10)
#define TAG_BYTES	 128
#define EXPECT_MS	 100L
#define NS_OF_MS	 1000000u

struct web {
	struct loop *loop;
	const char *ca_file;
	const struct credential *credential;
	const char *region;
	CURLM *multi;
	struct loop_timer *timer;
	struct loop_soon ended; /* there are transfers that are over */
	int has_given_up;	/* for want of memory: all are */
	int is_closing;
	struct ki_list transfers;
	size_t n_transfers;
	CURL *shelf[HANDLES_KEPT];
	size_t n_shelf;
};

struct transfer {
	struct ki_list node;
	struct web *web;
	CURL *easy;
	struct curl_slist *headers;
	struct web_ask ask;
	char *url; /* of a redirect: where to now */
	unsigned n_redirects;
	uint64_t deadline_ns;
	char tag[TAG_BYTES]; /* what is asked for */

	long code; /* 0: not known yet */
	size_t header_bytes;
	int has_headers;    /* all since the last status: the empty line */
	size_t error_bytes; /* of the body of an error */
	uint8_t *body;
	size_t body_size, body_room;
	enum kiln_status wrong; /* with what came; KILN_OK: nothing */
	const char *why;
};

/* ---- Receiving ---------------------------------------------------------- */

static int is_range(const struct transfer *transfer)
{
	return transfer->ask.size != 0;
}

/* Stops the transfer. */
static size_t refuse(struct transfer *transfer, enum kiln_status status,
		     const char *why)
{
	transfer->wrong = status;
	transfer->why = why;
	return 0;
}

/* Those behind the body come here, too, without an empty line of their own. */
static size_t on_header(char *bytes, size_t one, size_t size, void *arg)
{
	struct transfer *transfer = arg;

	transfer->header_bytes += size;
	if (size >= 5 && !memcmp(bytes, "HTTP/", 5))
		transfer->has_headers = 0;
	if (size == 2 && !memcmp(bytes, "\r\n", 2))
		transfer->has_headers = 1;
	if (transfer->header_bytes > HEADER_BYTES_MAX)
		return refuse(transfer, KILN_E_FORMAT,
			      "the answer's headers have no end");
	return size;
}

/* As much as is announced, or twice what there is. */
static int make_room(struct transfer *transfer, size_t size)
{
	size_t room = transfer->body_room * 2;
	curl_off_t announced = -1;
	uint8_t *grown;

	if (transfer->body_size + size <= transfer->body_room)
		return 0;
	if (!transfer->body)
		(void)curl_easy_getinfo(transfer->easy,
					CURLINFO_CONTENT_LENGTH_DOWNLOAD_T,
					&announced);
	if (announced > 0)
		room = (size_t)announced;
	if (room < FIRST_BODY_BYTES && announced <= 0)
		room = FIRST_BODY_BYTES;
	if (room < transfer->body_size + size)
		room = transfer->body_size + size;
	grown = realloc(transfer->body, room);
	if (!grown)
		return -1;
	transfer->body = grown;
	transfer->body_room = room;
	return 0;
}

/* The first bytes of a body: is it one that is wanted? */
static int begin_body(struct transfer *transfer)
{
	curl_off_t announced = -1;

	(void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE,
				&transfer->code);
	(void)curl_easy_getinfo(transfer->easy,
				CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced);
	if (transfer->code != (is_range(transfer) ? 206 : 200))
		return 1;
	if (announced < 0 || (uint64_t)announced <= transfer->ask.body_max)
		return 0;
	(void)refuse(transfer, KILN_E_TOO_LARGE, "larger than max-item");
	return -1;
}

static size_t skip_error(struct transfer *transfer, size_t size)
{
	transfer->error_bytes += size;
	if (transfer->error_bytes <= ERROR_BYTES_MAX)
		return size;
	transfer->wrong = answer_status(transfer->code, transfer->ask.method,
					is_range(transfer), &transfer->why);
	if (!transfer->wrong)
		return refuse(transfer, KILN_E_FORMAT, "the answer has no end");
	return 0;
}

static size_t on_body(char *bytes, size_t one, size_t size, void *arg)
{
	struct transfer *transfer = arg;

	if (size && transfer->body_size == 0 && transfer->error_bytes == 0) {
		int begun = begin_body(transfer);

		if (begun < 0)
			return 0;
		if (begun > 0)
			return skip_error(transfer, size);
	} else if (transfer->error_bytes) {
		return skip_error(transfer, size);
	}
	if (transfer->body_size + size > transfer->ask.body_max)
		return refuse(transfer, KILN_E_TOO_LARGE,
			      "larger than max-item");
	if (make_room(transfer, size))
		return refuse(transfer, KILN_E_NO_MEMORY, "no memory");
	memcpy(transfer->body + transfer->body_size, bytes, size);
	transfer->body_size += size;
	return size;
}

/* ---- Ranges ------------------------------------------------------------- */

static const char *header_of(const struct transfer *transfer, const char *name)
{
	struct curl_header *header;

	if (curl_easy_header(transfer->easy, name, 0, CURLH_HEADER, -1,
			     &header) != CURLHE_OK)
		return NULL;
	return header->value;
}

/* What the version is called that the answer is of; the size of the whole. */
static void make_tag(const struct transfer *transfer, uint64_t total,
		     char tag[TAG_BYTES])
{
	const char *etag = header_of(transfer, "ETag");
	const char *modified = header_of(transfer, "Last-Modified");

	if (etag && *etag == '"' && strlen(etag) < TAG_BYTES)
		memcpy(tag, etag, strlen(etag) + 1);
	else if (modified && strlen(modified) < TAG_BYTES)
		memcpy(tag, modified, strlen(modified) + 1);
	else
		(void)snprintf(tag, TAG_BYTES, "%" PRIu64, total);
}

/* Whether an answer with 206 is what was asked for. */
static enum kiln_status check_range(struct transfer *transfer,
				    uint64_t *out_total)
{
	const char *range = header_of(transfer, "Content-Range");
	uint64_t first, last;
	char tag[TAG_BYTES];

	transfer->why = "the server gave another range than was asked for";
	if (!range || sscanf(range, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64,
			     &first, &last, out_total) != 3)
		return KILN_E_FORMAT;
	if (first != transfer->ask.offset ||
	    last - first + 1 != transfer->ask.size ||
	    transfer->body_size != transfer->ask.size)
		return KILN_E_IO;
	make_tag(transfer, *out_total, tag);
	transfer->why = "it has changed on the server";
	if (transfer->tag[0] && strcmp(transfer->tag, tag) != 0)
		return KILN_E_IO;
	if (transfer->ask.tag)
		memcpy(transfer->ask.tag, tag, TAG_BYTES);
	transfer->why = NULL;
	return KILN_OK;
}

/* ---- Asking ------------------------------------------------------------- */

static int add_header(struct transfer *transfer, const char *text)
{
	struct curl_slist *grown = curl_slist_append(transfer->headers, text);

	if (!grown)
		return -1;
	transfer->headers = grown;
	return 0;
}

static int add_condition(struct transfer *transfer)
{
	char text[TAG_BYTES + 32];

	if (transfer->ask.only_new)
		return add_header(transfer, "If-None-Match: *");
	if (!transfer->tag[0] ||
	    strspn(transfer->tag, "0123456789") == strlen(transfer->tag))
		return 0;
	(void)snprintf(text, sizeof(text), "%s: %s",
		       transfer->tag[0] == '"' ? "If-Match"
					       : "If-Unmodified-Since",
		       transfer->tag);
	return add_header(transfer, text);
}

/* A header with a secret: curl has a copy of it until the request is done. */
static int add_secret_header(struct transfer *transfer, const char *name,
			     const char *secret)
{
	size_t size = strlen(name) + strlen(secret) + 3;
	char *text = malloc(size);
	int result;

	if (!text)
		return -1;
	(void)snprintf(text, size, "%s: %s", name, secret);
	result = add_header(transfer, text);
	sodium_memzero(text, size);
	free(text);
	return result;
}

static int add_headers(struct transfer *transfer)
{
	const struct web *web = transfer->web;
	int result = add_condition(transfer);

	if (transfer->ask.method == WEB_PUT)
		result |= add_header(transfer,
				     "Content-Type: application/octet-stream");
	if (web->region && web->credential && web->credential->secret) {
		/* curl leaves it out, and S3 wants to see it.  A hash of 64 MiB
		   would hold the loop up for 0.4 s; items are signed. */
		result |= add_header(transfer, "x-amz-content-sha256: "
					       "UNSIGNED-PAYLOAD");
		if (web->credential->session)
			result |= add_secret_header(transfer,
						    "x-amz-security-token",
						    web->credential->session);
	}
	return result;
}

static void free_headers(struct transfer *transfer)
{
	struct curl_slist *header = transfer->headers;

	for (; header; header = header->next)
		sodium_memzero(header->data, strlen(header->data));
	curl_slist_free_all(transfer->headers);
	transfer->headers = NULL;
}

#define SET(option, value) (void)curl_easy_setopt(easy, option, value)

static void identify(CURL *easy, const struct web *web)
{
	const struct credential *credential = web->credential;
	char signing[96];

	if (!credential || !credential->secret)
		return;
	switch (credential->kind) {
	case CREDENTIAL_BASIC:
		SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
		SET(CURLOPT_USERNAME, credential->user);
		SET(CURLOPT_PASSWORD, credential->secret);
		break;
	case CREDENTIAL_BEARER:
		SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
		SET(CURLOPT_XOAUTH2_BEARER, credential->secret);
		break;
	case CREDENTIAL_S3:
		(void)snprintf(signing, sizeof(signing), "aws:amz:%s:s3",
			       web->region);
		SET(CURLOPT_AWS_SIGV4, signing);
		SET(CURLOPT_USERNAME, credential->user);
		SET(CURLOPT_PASSWORD, credential->secret);
		break;
	case CREDENTIAL_REDIS:
		break;
	}
}

static void set_method(CURL *easy, const struct transfer *transfer)
{
	const struct web_ask *ask = &transfer->ask;
	char range[48];

	if (ask->method == WEB_HEAD)
		SET(CURLOPT_NOBODY, 1L);
	if (ask->method == WEB_PUT) {
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ask->body_size);
		SET(CURLOPT_POSTFIELDS, ask->body);
		SET(CURLOPT_CUSTOMREQUEST, "PUT");
		/* Beyond 1 MiB curl asks first; a header without a value, which
		   would stop it, would be signed wrong. */
		SET(CURLOPT_EXPECT_100_TIMEOUT_MS, EXPECT_MS);
	}
	if (ask->size) {
		(void)snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64,
			       ask->offset, ask->offset + ask->size - 1);
		SET(CURLOPT_RANGE, range);
	}
}

static void set_limits(CURL *easy, const struct transfer *transfer)
{
	uint64_t now_ns = loop_now_ns(transfer->web->loop);
	long ms = 1;

	if (transfer->deadline_ns > now_ns)
		ms += (long)((transfer->deadline_ns - now_ns) / NS_OF_MS);
	SET(CURLOPT_TIMEOUT_MS, ms);
	SET(CURLOPT_CONNECTTIMEOUT_MS, ms);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_QUICK_EXIT, 1L);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	SET(CURLOPT_PATH_AS_IS, 1L);
}

static int is_over_tls(const struct transfer *transfer)
{
	return !strncmp(transfer->ask.url, "https:", 6);
}

static void set_transport(CURL *easy, const struct transfer *transfer)
{
	const struct web *web = transfer->web;

	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	/* Others wait to see whether the first connection takes them, too. */
	SET(CURLOPT_PIPEWAIT, (long)is_over_tls(transfer));
	SET(CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_HTTP_CONTENT_DECODING, 0L);
	SET(CURLOPT_USERAGENT, "kiln-remote");
	if (web->ca_file)
		SET(CURLOPT_CAINFO, web->ca_file);
	/* A directory beside a file would count as well, is read at each
	   connection by GnuTLS, and keeps OpenSSL from reading the file once. */
	if (web->ca_file || curl_version_info(CURLVERSION_NOW)->cainfo)
		SET(CURLOPT_CAPATH, NULL);
}

static void set_callbacks(CURL *easy, struct transfer *transfer)
{
	SET(CURLOPT_PRIVATE, transfer);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, transfer);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, transfer);
}

/* Options that only want of memory makes fail: curl_multi_add_handle() or the
   transfer then fails, too. */
static enum kiln_status set_options(struct transfer *transfer)
{
	CURL *easy = transfer->easy;

	if (add_headers(transfer))
		return KILN_E_NO_MEMORY;
	set_transport(easy, transfer);
	set_limits(easy, transfer);
	set_method(easy, transfer);
	set_callbacks(easy, transfer);
	identify(easy, transfer->web);
	SET(CURLOPT_HTTPHEADER, transfer->headers);
	if (curl_easy_setopt(easy, CURLOPT_URL,
			     transfer->url ? transfer->url
					   : transfer->ask.url) != CURLE_OK)
		return KILN_E_NO_MEMORY;
	return KILN_OK;
}

#undef SET

static void shelve(struct web *web, CURL *easy)
{
	if (!easy)
		return;
	curl_easy_reset(easy);
	if (web->n_shelf < HANDLES_KEPT)
		web->shelf[web->n_shelf++] = easy;
	else
		curl_easy_cleanup(easy);
}

static CURL *unshelve(struct web *web)
{
	return web->n_shelf ? web->shelf[--web->n_shelf] : curl_easy_init();
}

static void finish_all(struct web *web);
static void fail_all(struct web *web, enum kiln_status status, const char *why);

static void on_ended(void *arg)
{
	struct web *web = arg;

	finish_all(web);
	if (web->has_given_up)
		fail_all(web, KILN_E_NO_MEMORY, "no memory");
}

/* What is new begins here, instead of in the loop's next turn by a timer of 0 ms.
   What ends with that waits for the end of this one: whoever asks is in the middle
   of it. */
static void go_on(struct web *web)
{
	int n_running = 0;

	(void)curl_multi_socket_action(web->multi, CURL_SOCKET_TIMEOUT, 0,
				       &n_running);
	if ((size_t)n_running < web->n_transfers)
		loop_soon(web->loop, &web->ended);
}

static enum kiln_status start(struct transfer *transfer)
{
	struct web *web = transfer->web;

	transfer->easy = unshelve(web);
	if (!transfer->easy || set_options(transfer) ||
	    curl_multi_add_handle(web->multi, transfer->easy) != CURLM_OK)
		return KILN_E_NO_MEMORY;
	go_on(web);
	return KILN_OK;
}

/* Nobody is told anything of it any more. */
static void forget(struct transfer *transfer)
{
	ki_list_remove(&transfer->node);
	transfer->web->n_transfers--;
}

static void transfer_free(struct transfer *transfer)
{
	if (transfer->easy)
		(void)curl_multi_remove_handle(transfer->web->multi,
					       transfer->easy);
	shelve(transfer->web, transfer->easy);
	free_headers(transfer);
	free((char *)transfer->ask.url);
	free(transfer->url);
	free(transfer->body);
	free(transfer);
}

/* Whoever waits is told first, and may begin another meanwhile. */
static void tell(struct transfer *transfer, const struct outcome *outcome)
{
	forget(transfer);
	transfer->ask.done(transfer->ask.arg, outcome);
	transfer_free(transfer);
}

void web_begin(struct web *web, const struct web_ask *ask)
{
	struct outcome outcome = { .status = KILN_E_NO_MEMORY,
				   .why = "no memory" };
	struct transfer *transfer = calloc(1, sizeof(*transfer));

	assert(!web->is_closing);
	if (!transfer) {
		ask->done(ask->arg, &outcome);
		return;
	}
	transfer->web = web;
	transfer->ask = *ask;
	transfer->ask.url = strdup(ask->url);
	transfer->deadline_ns =
		loop_now_ns(web->loop) + (uint64_t)ask->timeout_ms * NS_OF_MS;
	if (ask->tag)
		(void)snprintf(transfer->tag, TAG_BYTES, "%s", ask->tag);
	ki_list_append(&web->transfers, &transfer->node);
	web->n_transfers++;
	if (transfer->ask.url && !start(transfer))
		return;
	forget(transfer);
	transfer_free(transfer);
	ask->done(ask->arg, &outcome);
}

/* ---- Redirects ---------------------------------------------------------- */

static int is_same_part(CURLU *a, CURLU *b, CURLUPart part)
{
	char *text_a = NULL, *text_b = NULL;
	int is_same = 0;

	if (!curl_url_get(a, part, &text_a, CURLU_DEFAULT_PORT) &&
	    !curl_url_get(b, part, &text_b, CURLU_DEFAULT_PORT))
		is_same = !strcmp(text_a, text_b);
	curl_free(text_a);
	curl_free(text_b);
	return is_same;
}

static int has_user(CURLU *url)
{
	char *text = NULL;
	int has = !curl_url_get(url, CURLUPART_USER, &text, 0);

	curl_free(text);
	return has;
}

static int is_same_server(const char *from, const char *to)
{
	CURLU *a = curl_url(), *b = curl_url();
	int is_same = 0;

	if (a && b && !curl_url_set(a, CURLUPART_URL, from, 0) &&
	    !curl_url_set(b, CURLUPART_URL, to, 0))
		is_same = !has_user(b) &&
			  is_same_part(a, b, CURLUPART_SCHEME) &&
			  is_same_part(a, b, CURLUPART_HOST) &&
			  is_same_part(a, b, CURLUPART_PORT);
	curl_url_cleanup(a);
	curl_url_cleanup(b);
	return is_same;
}

/* Whether the transfer goes on, elsewhere on the same server. */
static int follow(struct transfer *transfer)
{
	const char *to = NULL;
	char *url;

	(void)curl_easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to || transfer->n_redirects == REDIRECTS_MAX ||
	    (transfer->ask.method == WEB_PUT && transfer->code < 307) ||
	    !is_same_server(transfer->ask.url, to))
		return 0;
	url = strdup(to);
	if (!url)
		return 0;
	free(transfer->url);
	transfer->url = url;
	transfer->n_redirects++;
	(void)curl_multi_remove_handle(transfer->web->multi, transfer->easy);
	shelve(transfer->web, transfer->easy);
	transfer->easy = NULL;
	free_headers(transfer);
	transfer->code = 0;
	transfer->error_bytes = transfer->header_bytes = 0;
	return !start(transfer);
}

/* ---- Finishing ---------------------------------------------------------- */

static void judge(struct transfer *transfer, CURLcode result,
		  struct outcome *outcome)
{
	curl_off_t announced = -1;

	if (transfer->wrong) {
		outcome->status = transfer->wrong;
		return;
	}
	/* curl takes headers without an end for an answer without a body. */
	if (result == CURLE_OK && !transfer->has_headers)
		result = CURLE_PARTIAL_FILE;
	/* What curl calls its own limit of a header's size. */
	if (result == CURLE_OUT_OF_MEMORY && !transfer->has_headers)
		result = CURLE_WRITE_ERROR;
	if (result != CURLE_OK) {
		outcome->status = answer_failure(result, &transfer->why);
		return;
	}
	outcome->status = answer_status(transfer->code, transfer->ask.method,
					is_range(transfer), &transfer->why);
	if (outcome->status)
		return;
	if (is_range(transfer)) {
		outcome->status = check_range(transfer, &outcome->total_bytes);
		return;
	}
	(void)curl_easy_getinfo(transfer->easy,
				CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced);
	if (transfer->ask.method == WEB_HEAD)
		outcome->total_bytes = announced > 0 ? (uint64_t)announced : 0;
	else
		outcome->total_bytes = transfer->body_size;
}

static void take_body(struct transfer *transfer, struct outcome *outcome)
{
	if (outcome->status || transfer->ask.method != WEB_GET)
		return;
	if (!transfer->body)
		transfer->body = malloc(1); /* it is there, and empty */
	outcome->body = transfer->body;
	outcome->body_size = transfer->body_size;
	transfer->body = NULL;
}

static void finish(struct transfer *transfer, CURLcode result)
{
	struct outcome outcome = { .status = KILN_OK };

	(void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE,
				&transfer->code);
	if (result == CURLE_OK && !transfer->wrong && transfer->code >= 300 &&
	    transfer->code < 400 && follow(transfer))
		return;
	if (transfer->easy)
		judge(transfer, result, &outcome);
	else
		outcome.status = KILN_E_NO_MEMORY;
	outcome.why = transfer->why;
	take_body(transfer, &outcome);
	tell(transfer, &outcome);
}

/* ---- The loop ----------------------------------------------------------- */

static void finish_all(struct web *web)
{
	CURLMsg *message;
	struct transfer *transfer;
	int n_left;

	while ((message = curl_multi_info_read(web->multi, &n_left))) {
		CURLcode result = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE,
					(char **)&transfer);
		finish(transfer, result);
	}
}

static void on_socket(void *arg, int fd, int events)
{
	struct web *web = arg;
	int n_running, mask = 0;

	if (events & LOOP_IN)
		mask |= CURL_CSELECT_IN;
	if (events & LOOP_OUT)
		mask |= CURL_CSELECT_OUT;
	(void)curl_multi_socket_action(web->multi, fd, mask, &n_running);
	finish_all(web);
}

/* Of a socket or a timer that curl wants and there is no memory for.  curl is not told:
   it would fail all transfers, each when it comes to it, and take no others until then,
   but not come to those that wait for a connection, or take them for connected. */
static void give_up(struct web *web)
{
	web->has_given_up = 1;
	loop_soon(web->loop, &web->ended);
}

/* Nobody waits without an end.  First all are taken from curl: whoever is told may
   begin another. */
static void fail_all(struct web *web, enum kiln_status status, const char *why)
{
	struct outcome outcome = { .status = status, .why = why };
	struct ki_list failed;
	struct transfer *transfer;

	ki_list_init(&failed);
	while (!ki_list_is_empty(&web->transfers)) {
		transfer = ki_container(web->transfers.next, struct transfer,
					node);
		ki_list_remove(&transfer->node);
		ki_list_append(&failed, &transfer->node);
		(void)curl_multi_remove_handle(web->multi, transfer->easy);
	}
	/* Also of what curl wanted for others while one was taken out. */
	web->has_given_up = 0;
	while (!ki_list_is_empty(&failed))
		tell(ki_container(failed.next, struct transfer, node),
		     &outcome);
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *arg,
			  void *of_socket)
{
	struct web *web = arg;
	struct loop_fd *watched = of_socket;
	int events = 0;

	if (what == CURL_POLL_REMOVE) {
		loop_unwatch(watched);
		return 0;
	}
	if (what != CURL_POLL_OUT)
		events |= LOOP_IN;
	if (what != CURL_POLL_IN)
		events |= LOOP_OUT;
	if (watched) {
		loop_change(watched, events);
		return 0;
	}
	watched = loop_watch(web->loop, fd, events, on_socket, web);
	if (watched)
		(void)curl_multi_assign(web->multi, fd, watched);
	else
		give_up(web);
	return 0;
}

static void on_timer(void *arg)
{
	struct web *web = arg;
	int n_running;

	web->timer = NULL;
	(void)curl_multi_socket_action(web->multi, CURL_SOCKET_TIMEOUT, 0,
				       &n_running);
	finish_all(web);
}

static int on_curl_timer(CURLM *multi, long ms, void *arg)
{
	struct web *web = arg;

	if (ms < 0) {
		loop_cancel(web->timer);
		web->timer = NULL;
	} else if (web->timer) {
		loop_move(web->timer, (uint32_t)ms);
	} else {
		web->timer = loop_after(web->loop, (uint32_t)ms, on_timer, web);
		if (!web->timer)
			give_up(web);
	}
	return 0;
}

/* ---- Opening ------------------------------------------------------------ */

struct web *web_new(struct loop *loop, const char *ca_file,
		    const struct credential *credential, const char *region)
{
	struct web *web = calloc(1, sizeof(*web));

	if (!web)
		return NULL;
	*web = (struct web){ .loop = loop,
			     .ca_file = ca_file,
			     .credential = credential,
			     .region = region };
	ki_list_init(&web->transfers);
	loop_soon_init(&web->ended, on_ended, web);
	if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(web);
		return NULL;
	}
	web->multi = curl_multi_init();
	if (!web->multi) {
		web_close(web);
		return NULL;
	}
	(void)curl_multi_setopt(web->multi, CURLMOPT_SOCKETFUNCTION,
				on_curl_socket);
	(void)curl_multi_setopt(web->multi, CURLMOPT_SOCKETDATA, web);
	(void)curl_multi_setopt(web->multi, CURLMOPT_TIMERFUNCTION,
				on_curl_timer);
	(void)curl_multi_setopt(web->multi, CURLMOPT_TIMERDATA, web);
	(void)curl_multi_setopt(web->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
				CONNECTIONS_MAX);
	(void)curl_multi_setopt(web->multi, CURLMOPT_MAXCONNECTS,
				CONNECTIONS_MAX);
	return web;
}

void web_close(struct web *web)
{
	if (!web)
		return;
	web->is_closing = 1;
	fail_all(web, KILN_E_IO, "closed here");
	while (web->n_shelf)
		curl_easy_cleanup(web->shelf[--web->n_shelf]);
	if (web->multi)
		(void)curl_multi_cleanup(web->multi);
	loop_cancel(web->timer);
	loop_soon_cancel(&web->ended);
	curl_global_cleanup();
	free(web);
}
