/* SPDX-License-Identifier: MIT */

#include "scripted_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "base/hash.h"
#include "key/key.h"

struct scripted scripted[SERVERS_MAX];
int stage_is_stepped;

struct scripted_backend {
	struct backend base;
	struct loop *loop;
	struct scripted *server;
	struct ki_list under_way;
};

/* An answer on its way. */
struct reply {
	struct ki_list link;
	struct scripted_backend *backend;
	struct loop_timer *timer;
	done_fn *done;
	void *arg;
	struct outcome outcome;
	unsigned *n_at_once;
};

/* Bodies count until they are somebody's. */
static void count_bytes(struct scripted *server, size_t size, int is_more)
{
	server->bytes_at_once += is_more ? size : -size;
	if (server->bytes_at_once > server->most_bytes_at_once)
		server->most_bytes_at_once = server->bytes_at_once;
}

/* ---- Servers -------------------------------------------------------------- */

void scripted_reset(void)
{
	for (int i = 0; i < SERVERS_MAX; i++)
		for (int j = 0; j < SERVER_ITEMS_MAX; j++)
			free(scripted[i].items[j].bytes);
	memset(scripted, 0, sizeof(scripted));
}

static struct scripted_item *find(struct scripted *server, const char *name)
{
	for (int i = 0; i < SERVER_ITEMS_MAX; i++)
		if (!strcmp(server->items[i].name, name))
			return &server->items[i];
	return NULL;
}

static enum kiln_status keep(struct scripted *server, const char *name,
			     const void *bytes, size_t size)
{
	struct scripted_item *item = find(server, name);
	uint8_t *copy = malloc(size);

	if (!copy)
		return KILN_E_NO_MEMORY;
	memcpy(copy, bytes, size);
	if (!item)
		item = find(server, "");
	assert_non_null(item);
	free(item->bytes);
	snprintf(item->name, sizeof(item->name), "%s", name);
	item->bytes = copy;
	item->size = size;
	return KILN_OK;
}

/* ---- Answers -------------------------------------------------------------- */

static void send_reply(struct reply *reply)
{
	ki_list_remove(&reply->link);
	if (reply->n_at_once)
		--*reply->n_at_once;
	count_bytes(reply->backend->server, reply->outcome.body_size, 0);
	reply->done(reply->arg, &reply->outcome);
	free(reply);
}

static void on_reply(void *arg)
{
	send_reply(arg);
}

static int takes_fault(struct scripted *server, enum kiln_status *status)
{
	if (!*status)
		return 0;
	if (server->n_fails && !--server->n_fails) {
		enum kiln_status last = *status;

		*status = KILN_OK;
		return last != KILN_OK;
	}
	return 1;
}

static void answer(struct backend *base, struct outcome outcome,
		   uint32_t timeout_ms, unsigned *n_at_once, done_fn *done,
		   void *arg)
{
	struct scripted_backend *backend =
		ki_container(base, struct scripted_backend, base);
	struct scripted *server = backend->server;
	struct reply *reply = calloc(1, sizeof(*reply));
	enum kiln_status fault = server->fails;
	uint32_t ms = server->ms;

	if (takes_fault(server, &server->fails)) {
		free(outcome.body);
		outcome = (struct outcome){ .status = fault };
	}
	if (ms > timeout_ms) {
		free(outcome.body);
		outcome = (struct outcome){ .status = KILN_E_TIMEOUT };
		ms = timeout_ms;
	}
	if (reply)
		reply->timer = loop_after(backend->loop, ms, on_reply, reply);
	if (!reply || !reply->timer) {
		free(reply);
		free(outcome.body);
		outcome = (struct outcome){ .status = KILN_E_NO_MEMORY };
		if (n_at_once)
			--*n_at_once;
		done(arg, &outcome);
		return;
	}
	*reply = (struct reply){ .backend = backend,
				 .timer = reply->timer,
				 .done = done,
				 .arg = arg,
				 .outcome = outcome,
				 .n_at_once = n_at_once };
	count_bytes(server, outcome.body_size, 1);
	ki_list_append(&backend->under_way, &reply->link);
}

static struct scripted *server_of(struct backend *base)
{
	return ki_container(base, struct scripted_backend, base)->server;
}

/* ---- What is asked -------------------------------------------------------- */

static struct outcome copy_of(const uint8_t *bytes, size_t size)
{
	struct outcome outcome = { .body = malloc(size), .body_size = size };

	if (!outcome.body)
		return (struct outcome){ .status = KILN_E_NO_MEMORY };
	memcpy(outcome.body, bytes, size);
	return outcome;
}

static void get(struct backend *base, const char *const *names, size_t n_names,
		uint64_t body_max, uint32_t timeout_ms, done_fn *done,
		void *const *args)
{
	struct scripted *server = server_of(base);

	server->n_batches++;
	if (n_names > server->largest_batch)
		server->largest_batch = (unsigned)n_names;
	for (size_t i = 0; i < n_names; i++) {
		struct scripted_item *item = find(server, names[i]);
		struct outcome outcome = { .status = KILN_MISS };

		server->n_gets++;
		if (++server->n_at_once > server->most_at_once)
			server->most_at_once = server->n_at_once;
		if (item && item->size > body_max)
			outcome.status = KILN_E_TOO_LARGE;
		else if (item) {
			outcome = copy_of(item->bytes, item->size);
		}
		answer(base, outcome, timeout_ms, &server->n_at_once, done,
		       args[i]);
	}
}

static void head(struct backend *base, const char *name, uint32_t timeout_ms,
		 done_fn *done, void *arg)
{
	struct scripted *server = server_of(base);
	struct outcome outcome = { .status = find(server, name) ? KILN_OK
								: KILN_MISS };

	server->n_heads++;
	answer(base, outcome, timeout_ms, NULL, done, arg);
}

static void put(struct backend *base, const char *name, const void *body,
		size_t body_size, uint64_t ttl_s, int only_new,
		uint32_t timeout_ms, done_fn *done, void *arg)
{
	struct scripted *server = server_of(base);
	struct outcome outcome = { .status = server->fails_put };

	server->n_puts++;
	server->n_replacing += !only_new;
	if (takes_fault(server, &server->fails_put))
		;
	else if (only_new && find(server, name))
		outcome.status = KILN_EXISTS;
	else
		outcome.status = keep(server, name, body, body_size);
	answer(base, outcome, timeout_ms, NULL, done, arg);
}

/* The URL itself is a file of zeros. */
static void range(struct backend *base, const char *name, uint64_t offset,
		  uint32_t size, char tag[128], uint32_t timeout_ms,
		  done_fn *done, void *arg)
{
	static const uint8_t zeros[4096];
	struct scripted *server = server_of(base);
	struct scripted_item *item = *name ? find(server, name) : NULL;
	size_t end = item ? item->size : sizeof(zeros);
	struct outcome outcome = { .status = KILN_MISS };

	server->n_ranges++;
	if (*name && !item)
		;
	else if (offset > end || size > end - offset)
		outcome.status = KILN_E_IO;
	else
		outcome = copy_of((item ? item->bytes : zeros) + offset, size);
	outcome.total_bytes = end;
	answer(base, outcome, timeout_ms, NULL, done, arg);
}

static void lease(struct backend *base, const char *name, const char *token,
		  uint32_t ttl_ms, uint32_t timeout_ms, done_fn *done,
		  void *arg)
{
	struct scripted *server = server_of(base);
	struct outcome outcome = { .status = KILN_EXISTS };

	server->n_leases++;
	if (server->fails_lease) {
		outcome.status = server->fails_lease;
	} else if (!*server->holder) {
		snprintf(server->holder, sizeof(server->holder), "%s", token);
		outcome.status = KILN_OK;
	}
	answer(base, outcome, timeout_ms, NULL, done, arg);
}

static void renew(struct backend *base, const char *name, const char *token,
		  uint32_t ttl_ms, uint32_t timeout_ms, done_fn *done,
		  void *arg)
{
	struct scripted *server = server_of(base);
	struct outcome outcome = { .status = strcmp(server->holder, token)
						     ? KILN_MISS
						     : KILN_OK };

	server->n_renews++;
	if (server->fails_script)
		outcome.status = server->fails_script;
	answer(base, outcome, timeout_ms, NULL, done, arg);
}

static void release(struct backend *base, const char *name, const char *token,
		    uint32_t timeout_ms, done_fn *done, void *arg)
{
	struct scripted *server = server_of(base);
	struct outcome outcome = { .status = KILN_MISS };

	server->n_releases++;
	if (server->fails_script) {
		outcome.status = server->fails_script;
	} else if (!strcmp(server->holder, token)) {
		*server->holder = '\0';
		outcome.status = KILN_OK;
	}
	answer(base, outcome, timeout_ms, NULL, done, arg);
}

static void close_backend(struct backend *base)
{
	struct scripted_backend *backend =
		ki_container(base, struct scripted_backend, base);

	while (!ki_list_is_empty(&backend->under_way)) {
		struct reply *reply = ki_container(backend->under_way.next,
						   struct reply, link);

		loop_cancel(reply->timer);
		free(reply->outcome.body);
		count_bytes(backend->server, reply->outcome.body_size, 0);
		reply->outcome = (struct outcome){ .status = KILN_E_IO };
		send_reply(reply);
	}
	free(backend);
}

static const struct backend_ops ops = {
	.scheme = "http",
	.get = get,
	.head = head,
	.put = put,
	.range = range,
	.close = close_backend,
};

static const struct backend_ops ops_with_leases = {
	.scheme = "http",
	.get = get,
	.head = head,
	.put = put,
	.range = range,
	.lease = lease,
	.renew = renew,
	.release = release,
	.close = close_backend,
};

enum kiln_status scripted_open(struct loop *loop, const char *url,
			       const char *ca_file,
			       const struct credentials *credentials,
			       struct backend **out_backend, char *why,
			       size_t why_size)
{
	static const char *const shown[SERVERS_MAX] = {
		"http://0", "http://1", "http://2",
		"http://3", "http://4", "http://5"
	};
	struct scripted_backend *backend = calloc(1, sizeof(*backend));
	int i = url[7] - '0';

	assert_in_range(i, 0, SERVERS_MAX - 1);
	if (!backend)
		return KILN_E_NO_MEMORY;
	backend->base.ops = scripted[i].has_leases ? &ops_with_leases : &ops;
	backend->base.shown = shown[i];
	backend->loop = loop;
	backend->server = &scripted[i];
	ki_list_init(&backend->under_way);
	*out_backend = &backend->base;
	return KILN_OK;
}

/* ---- The stage ------------------------------------------------------------ */

static void uploaded(void *arg, const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	struct stage *stage = arg;

	leases_uploaded(&stage->leases, name);
}

void stage_begin(struct stage *stage, const char *remote)
{
	char why[256];

	*stage = (struct stage){ .loop = loop_new() };
	assert_non_null(stage->loop);
	if (stage_is_stepped)
		loop_step(stage->loop);
	assert_int_equal(sources_open(&stage->sources, stage->loop, remote,
				      NULL, scripted_open, why, sizeof(why)),
			 KILN_OK);
	fetches_begin(&stage->fetches, stage->loop, &stage->sources, 1 << 20);
	stage->sealer = sealer_new(stage->loop, NULL);
	uploads_begin(&stage->uploads, stage->loop, &stage->sources,
		      &stage->fetches.refused, stage->sealer);
	stage->uploads.uploaded = uploaded;
	stage->uploads.arg = stage;
	leases_begin(&stage->leases, stage->loop, &stage->sources,
		     &stage->fetches.refused, &stage->uploads);
}

void stage_finish(struct stage *stage)
{
	sources_close(&stage->sources);
	sealer_free(stage->sealer);
	leases_finish(&stage->leases);
	uploads_finish(&stage->uploads);
	fetches_finish(&stage->fetches);
	loop_free(stage->loop);
	scripted_reset();
}

struct watch {
	struct stage *stage;
	const unsigned *flag;
	unsigned n_left;
};

static void look_at_flag(void *arg)
{
	struct watch *watch = arg;

	if (*watch->flag || !--watch->n_left)
		loop_stop(watch->stage->loop);
	else
		loop_after(watch->stage->loop, 1, look_at_flag, watch);
}

void stage_run_until(struct stage *stage, const unsigned *flag)
{
	struct watch watch = { stage, flag, HARNESS_HANG_S * 1000 };

	loop_after(stage->loop, 0, look_at_flag, &watch);
	assert_int_equal(loop_run(stage->loop), 0);
	assert_true(*flag);
}

static void stop(void *arg)
{
	loop_stop(arg);
}

void stage_run_ms(struct stage *stage, uint32_t ms)
{
	loop_after(stage->loop, ms, stop, stage->loop);
	assert_int_equal(loop_run(stage->loop), 0);
}

/* ---- Items ---------------------------------------------------------------- */

static struct kiln_key *key_of(uint64_t number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "number", &number, sizeof(number));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

void scripted_name(uint64_t number, uint8_t out[KI_REMOTE_NAME_BYTES])
{
	struct kiln_key *key = key_of(number);
	uint8_t digest[KI_REMOTE_NAME_BYTES];

	ki_blake2b(key->record.data, key->record.size, digest);
	ki_remote_name(digest, 0, out);
	kiln_key_free(key);
}

/* The bytes of such an item, from malloc(). */
static uint8_t *bytes_of(uint64_t number, const void *value, size_t value_size,
			 size_t *out_size)
{
	struct kiln_key *key = key_of(number);
	struct ki_item item = { .record = key->record.data,
				.record_size = key->record.size,
				.metadata = "",
				.value = value,
				.value_size = value_size };
	struct ki_item_seal how = { 0 };
	struct ki_bytes bytes;

	ki_bytes_init(&bytes);
	assert_int_equal(ki_item_seal(&item, &how, &bytes), KILN_OK);
	kiln_key_free(key);
	return ki_bytes_take(&bytes, out_size);
}

static void text_of(uint64_t number, char out[NAME_TEXT_BYTES])
{
	uint8_t name[KI_REMOTE_NAME_BYTES];

	scripted_name(number, name);
	ki_hex(name, sizeof(name), out);
}

static void keep_value(struct scripted *server, uint64_t number,
		       const void *value, size_t value_size)
{
	char text[NAME_TEXT_BYTES];
	uint8_t *bytes;
	size_t size;

	text_of(number, text);
	bytes = bytes_of(number, value, value_size, &size);
	assert_int_equal(keep(server, text, bytes, size), KILN_OK);
	free(bytes);
}

void scripted_keep(struct scripted *server, uint64_t number)
{
	keep_value(server, number, &number, sizeof(number));
}

void scripted_keep_sized(struct scripted *server, uint64_t number,
			 size_t value_size)
{
	uint8_t *value = malloc(value_size);

	assert_non_null(value);
	memset(value, (int)number, value_size);
	keep_value(server, number, value, value_size);
	free(value);
}

struct scripted_item *scripted_find(struct scripted *server, uint64_t number)
{
	char text[NAME_TEXT_BYTES];

	text_of(number, text);
	return find(server, text);
}

/* ---- Look-ups ------------------------------------------------------------- */

static int looked(struct waiter *waiter, unsigned level, struct item *item,
		  uint32_t reasons, uint32_t wait_ms)
{
	struct look_up *look = ki_container(waiter, struct look_up, waiter);

	look->is_done = 1;
	look->is_hit = item != NULL;
	look->level = level;
	look->reasons = reasons;
	look->wait_ms = wait_ms;
	return 1;
}

void look_up_begin(struct stage *stage, struct look_up *look, uint64_t number,
		   uint32_t ms, unsigned from)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];

	*look = (struct look_up){ .waiter.done = looked };
	scripted_name(number, name);
	fetches_get(&stage->fetches, &look->waiter, name, ms, from);
}

struct look_up look_up(struct stage *stage, uint64_t number, uint32_t ms)
{
	struct look_up look;

	look_up_begin(stage, &look, number, ms, 0);
	stage_run_until(stage, &look.is_done);
	return look;
}
