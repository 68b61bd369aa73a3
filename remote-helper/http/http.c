/* SPDX-License-Identifier: MIT */

/*
 * A put that is to make no second asks for it with If-None-Match, but only of a
 * server that is known to refuse: many overlook it and would answer 201.  With the
 * first such put two more go out, of an object called PROBE, both with the
 * condition: the second must be refused.  Until that is known, puts replace.  The
 * name is one that no key has, of the form that some servers insist on.
 */

#include "remote-helper/http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

#include "remote-helper/http/web.h"

#define ZEROS		 "0000000000000000"
#define PROBE		 ZEROS ZEROS ZEROS ZEROS
#define PROBE_BODY	 "kiln-probe"
#define PROBES		 2
#define PROBE_TIMEOUT_MS 5000
#define SMALL_ANSWER_MAX ((uint64_t)64 << 10)

enum conditional { UNKNOWN, PROBING, HEEDED, OVERLOOKED };

struct http {
	struct backend backend;
	struct backend_ops ops;
	struct http_place place;
	char *ca_file;
	struct web *web;
	enum conditional conditional;
	unsigned n_probes;
};

static struct http *http_of(struct backend *backend)
{
	return ki_container(backend, struct http, backend);
}

/* From malloc(); NULL: no memory. */
static char *url_of(const struct http *http, const char *name)
{
	const char *base = http->place.base;
	const char *slash = base[strlen(base) - 1] == '/' ? "" : "/";
	char *url;

	if (*name == '\0')
		return strdup(base);
	if (asprintf(&url, "%s%s%s", base, slash, name) < 0)
		return NULL;
	return url;
}

static void begin(struct http *http, const char *name, struct web_ask *ask)
{
	struct outcome outcome = { .status = KILN_E_NO_MEMORY,
				   .why = "no memory" };
	char *url = url_of(http, name);

	if (!url) {
		ask->done(ask->arg, &outcome);
		return;
	}
	ask->url = url;
	web_begin(http->web, ask);
	free(url);
}

/* ---- Reading ------------------------------------------------------------ */

static void http_get(struct backend *backend, const char *const *names,
		     size_t n_names, uint64_t body_max, uint32_t timeout_ms,
		     done_fn *done, void *const *args)
{
	for (size_t i = 0; i < n_names; i++) {
		struct web_ask ask = { .method = WEB_GET,
				       .body_max = body_max,
				       .timeout_ms = timeout_ms,
				       .done = done,
				       .arg = args[i] };

		begin(http_of(backend), names[i], &ask);
	}
}

static void http_head(struct backend *backend, const char *name,
		      uint32_t timeout_ms, done_fn *done, void *arg)
{
	struct web_ask ask = { .method = WEB_HEAD,
			       .timeout_ms = timeout_ms,
			       .done = done,
			       .arg = arg };

	begin(http_of(backend), name, &ask);
}

static void http_range(struct backend *backend, const char *name,
		       uint64_t offset, uint32_t size, char tag[128],
		       uint32_t timeout_ms, done_fn *done, void *arg)
{
	struct web_ask ask = { .method = WEB_GET,
			       .body_max = size,
			       .offset = offset,
			       .size = size,
			       .tag = tag,
			       .timeout_ms = timeout_ms,
			       .done = done,
			       .arg = arg };

	begin(http_of(backend), name, &ask);
}

/* ---- Writing ------------------------------------------------------------ */

static void probe(struct http *http);

static void on_probed(void *arg, const struct outcome *outcome)
{
	struct http *http = arg;

	http->n_probes++;
	if (outcome->status == KILN_EXISTS)
		http->conditional = HEEDED;
	else if (outcome->status == KILN_E_IO ||
		 outcome->status == KILN_E_TIMEOUT ||
		 outcome->status == KILN_E_NO_MEMORY)
		http->conditional = UNKNOWN; /* asked again with the next */
	else if (outcome->status != KILN_OK || http->n_probes == PROBES)
		http->conditional = OVERLOOKED;
	else
		probe(http);
}

static void probe(struct http *http)
{
	struct web_ask ask = { .method = WEB_PUT,
			       .body = PROBE_BODY,
			       .body_size = strlen(PROBE_BODY),
			       .body_max = SMALL_ANSWER_MAX,
			       .only_new = 1,
			       .timeout_ms = PROBE_TIMEOUT_MS,
			       .done = on_probed,
			       .arg = http };

	begin(http, PROBE, &ask);
}

static void http_put(struct backend *backend, const char *name,
		     const void *body, size_t body_size, uint64_t ttl_s,
		     int only_new, uint32_t timeout_ms, done_fn *done,
		     void *arg)
{
	struct http *http = http_of(backend);
	struct web_ask ask = { .method = WEB_PUT,
			       .body = body,
			       .body_size = body_size,
			       .body_max = SMALL_ANSWER_MAX,
			       .timeout_ms = timeout_ms,
			       .done = done,
			       .arg = arg };

	ask.only_new = only_new && http->conditional == HEEDED;
	begin(http, name, &ask);
	if (!only_new || http->conditional != UNKNOWN)
		return;
	http->conditional = PROBING;
	http->n_probes = 0;
	probe(http);
}

/* ---- Opening ------------------------------------------------------------ */

static void place_fini(struct http_place *place)
{
	free(place->base);
	free(place->shown);
	free(place->region);
	*place = (struct http_place){ 0 };
}

static void http_close(struct backend *backend)
{
	struct http *http = http_of(backend);

	http->conditional = OVERLOOKED; /* no more probes */
	web_close(http->web);
	place_fini(&http->place);
	free(http->ca_file);
	free(http);
}

static const struct backend_ops ops = {
	.get = http_get,
	.head = http_head,
	.put = http_put,
	.range = http_range,
	.close = http_close,
};

static enum kiln_status set_up(struct http *http, struct loop *loop,
			       const char *ca_file,
			       const struct credential *credential)
{
	if (ca_file) {
		http->ca_file = strdup(ca_file);
		if (!http->ca_file)
			return KILN_E_NO_MEMORY;
	}
	http->web =
		web_new(loop, http->ca_file, credential, http->place.region);
	return http->web ? KILN_OK : KILN_E_NO_MEMORY;
}

enum kiln_status http_open_place(struct loop *loop, struct http_place *place,
				 const char *ca_file,
				 const struct credential *credential,
				 struct backend **out_backend)
{
	struct http *http = calloc(1, sizeof(*http));

	if (!http) {
		place_fini(place);
		return KILN_E_NO_MEMORY;
	}
	http->place = *place;
	*place = (struct http_place){ 0 };
	http->ops = ops;
	http->ops.scheme = http->place.scheme;
	http->backend.ops = &http->ops;
	http->backend.shown = http->place.shown;
	if (set_up(http, loop, ca_file, credential)) {
		http_close(&http->backend);
		return KILN_E_NO_MEMORY;
	}
	*out_backend = &http->backend;
	return KILN_OK;
}

enum kiln_status http_open(struct loop *loop, struct url *url,
			   const char *ca_file,
			   const struct credential *credential,
			   struct backend **out_backend)
{
	int is_v6 = strchr(url->host, ':') != NULL;
	struct http_place place = {
		.scheme = url->scheme == URL_HTTPS ? "https" : "http",
		.shown = url->shown,
	};

	if (asprintf(&place.base, "%s://%s%s%s:%u%s", place.scheme,
		     is_v6 ? "[" : "", url->host, is_v6 ? "]" : "", url->port,
		     url->path) < 0)
		return KILN_E_NO_MEMORY;
	url->shown = NULL;
	return http_open_place(loop, &place, ca_file, credential, out_backend);
}
