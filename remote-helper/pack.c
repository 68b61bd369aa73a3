/* SPDX-License-Identifier: MIT */

#include "pack.h"

#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "helper.h"
#include "item.h"
#include "loop.h"
#include "sys/sys.h"

/* What is behind one URL. */
struct pack {
	struct ki_list link;
	struct packs *all;
	char *url; /* as it was given, with its words */
	struct levels settings;
	struct backend *backend;
	struct breaker breaker;
	struct loop_timer *linger;
	unsigned n_refs; /* handles, and requests under way */
};

/* What one program has opened. */
struct pack_handle {
	struct ki_list link; /* of its connection */
	struct pack *pack;
	uint64_t number;
	char tag[PACK_TAG_BYTES];
};

/* One that is under way; the connection may go meanwhile. */
struct request {
	struct ki_list link; /* of its connection's pack requests */
	struct connection *connection;
	struct pack *pack;
	struct pack_handle *handle; /* of an OPEN: not open yet */
	uint64_t id;
	uint32_t size;
	char tag[PACK_TAG_BYTES];
};

static uint32_t jitter(struct packs *packs)
{
	packs->random = packs->random * 6364136223846793005u + 1;
	return (uint32_t)(packs->random >> 32);
}

/* ---- What is behind a URL ------------------------------------------------ */

void packs_begin(struct packs *packs, struct loop *loop,
		 const struct credentials *credentials, sources_open_fn *open)
{
	*packs = (struct packs){ .loop = loop,
				 .credentials = credentials,
				 .open = open,
				 .next_handle = 1 };
	ki_list_init(&packs->packs);
	(void)ki_sys_posix.random(&ki_sys_posix, &packs->random,
				  sizeof(packs->random));
}

static void free_pack(struct pack *pack)
{
	ki_list_remove(&pack->link);
	pack->all->n--;
	loop_cancel(pack->linger);
	if (pack->backend)
		pack->backend->ops->close(pack->backend);
	ki_levels_fini(&pack->settings);
	free(pack->url);
	free(pack);
}

void packs_finish(struct packs *packs)
{
	while (!ki_list_is_empty(&packs->packs))
		free_pack(ki_container(packs->packs.next, struct pack, link));
}

static void end_linger(void *arg)
{
	struct pack *pack = arg;

	pack->linger = NULL;
	free_pack(pack);
}

/* Without a timer it stays until its place is wanted. */
static void linger(struct pack *pack)
{
	if (!pack->n_refs && !pack->linger)
		pack->linger = loop_after(pack->all->loop, PACK_LINGER_MS,
					  end_linger, pack);
}

static void unref(struct pack *pack)
{
	pack->n_refs--;
	linger(pack);
}

static struct pack *ref(struct pack *pack)
{
	loop_cancel(pack->linger);
	pack->linger = NULL;
	pack->n_refs++;
	return pack;
}

static struct pack *find(const struct packs *packs, const char *url)
{
	struct ki_list *link;

	ki_list_for_each (link, &packs->packs) {
		struct pack *pack = ki_container(link, struct pack, link);

		if (!strcmp(pack->url, url))
			return pack;
	}
	return NULL;
}

static enum kiln_status open_backend(struct pack *pack)
{
	const struct level *level;
	enum kiln_status status;
	char why[256];

	status = ki_levels_parse(pack->url, &pack->settings, why, sizeof(why));
	if (status)
		return status;
	level = pack->settings.levels;
	if (pack->settings.n_levels != 1 || level->n_urls != 1)
		return KILN_E_INVALID;
	status = pack->all->open(pack->all->loop, level->urls[0],
				 level->ca_file, pack->all->credentials,
				 &pack->backend, why, sizeof(why));
	if (!status && !pack->backend->ops->range)
		status = KILN_E_UNSUPPORTED;
	return status;
}

/* The one that has been open for longest, of those that nobody has open. */
static int free_unused(struct packs *packs)
{
	struct ki_list *link;

	ki_list_for_each (link, &packs->packs) {
		struct pack *pack = ki_container(link, struct pack, link);

		if (pack->n_refs)
			continue;
		free_pack(pack);
		return 1;
	}
	return 0;
}

static enum kiln_status new_pack(struct packs *packs, const char *url,
				 struct pack **out_pack)
{
	enum kiln_status status;
	struct pack *pack;

	if (packs->n >= PACKS_MAX && !free_unused(packs))
		return KILN_E_FULL;
	pack = calloc(1, sizeof(*pack));
	if (!pack)
		return KILN_E_NO_MEMORY;
	pack->all = packs;
	pack->url = strdup(url);
	ki_list_append(&packs->packs, &pack->link);
	packs->n++;
	status = pack->url ? open_backend(pack) : KILN_E_NO_MEMORY;
	if (status) {
		free_pack(pack);
		return status;
	}
	*out_pack = pack;
	return KILN_OK;
}

/* ---- Requests ------------------------------------------------------------ */

static enum breaker_answer judge(const struct outcome *outcome)
{
	switch (outcome->status) {
	case KILN_OK:
	case KILN_MISS:
		return BREAKER_GOOD;
	case KILN_E_NO_MEMORY:
		return BREAKER_UNASKED;
	default:
		return BREAKER_FAULT;
	}
}

static void note(struct pack *pack, const struct outcome *outcome)
{
	struct packs *packs = pack->all;
	uint64_t now_ns = loop_now_ns(packs->loop);

	packs->n_faults += judge(outcome) == BREAKER_FAULT;
	packs->bytes_in += outcome->status ? 0 : outcome->body_size;
	if (pack->breaker.state == BREAKER_HALF_OPEN)
		breaker_probed(&pack->breaker, judge(outcome), now_ns,
			       jitter(packs));
	else
		breaker_note(&pack->breaker, judge(outcome), now_ns,
			     jitter(packs));
}

static void free_request(struct request *request)
{
	ki_list_remove(&request->link);
	request->pack->all->bytes_asked -= request->size;
	if (request->connection)
		connection_settle(request->connection);
	unref(request->pack);
	free(request);
}

static int may_ask(struct pack *pack)
{
	return breaker_lets(&pack->breaker, 1) ||
	       breaker_probes(&pack->breaker, loop_now_ns(pack->all->loop));
}

/* IO: it is not asked at the moment.  It may be the probe: whoever has it asks, and
   so it is the last thing that can fail. */
static enum kiln_status new_request(struct connection *connection, uint64_t id,
				    struct pack *pack, uint32_t size,
				    struct request **out_request)
{
	struct request *request = calloc(1, sizeof(*request));

	if (!request)
		return KILN_E_NO_MEMORY;
	request->connection = connection;
	request->pack = ref(pack);
	request->id = id;
	request->size = size;
	pack->all->bytes_asked += size;
	ki_list_append(&connection->pack_requests, &request->link);
	connection_pend(connection);
	if (!may_ask(pack)) {
		free_request(request);
		return KILN_E_IO;
	}
	*out_request = request;
	return KILN_OK;
}

/* ---- Opening ------------------------------------------------------------- */

static void answer_open(struct connection *connection, enum kiln_status status,
			uint64_t id, uint64_t handle, uint64_t bytes)
{
	uint8_t body[KI_FRAME_OPENED_BYTES];

	ki_put_u64(body, handle);
	ki_put_u64(body + 8, bytes);
	connection_answer(connection, KI_FRAME_OPENED, status, id, body,
			  sizeof(body));
}

static void opened(void *arg, const struct outcome *outcome)
{
	struct request *request = arg;
	struct connection *connection = request->connection;
	struct pack_handle *handle = request->handle;

	note(request->pack, outcome);
	free(outcome->body);
	if (!outcome->status && connection) {
		memcpy(handle->tag, request->tag, sizeof(handle->tag));
		handle->pack = ref(request->pack);
		handle->number = request->pack->all->next_handle++;
		request->pack->all->n_opened++;
		ki_list_append(&connection->packs, &handle->link);
		answer_open(connection, KILN_OK, request->id, handle->number,
			    outcome->total_bytes);
	} else {
		free(handle);
		if (connection)
			answer_open(connection, outcome->status, request->id, 0,
				    0);
	}
	free_request(request);
}

/* Nothing closes a handle but the end of its connection. */
static int has_room(const struct connection *connection)
{
	struct ki_list *link;
	unsigned n = 0;

	ki_list_for_each (link, &connection->packs)
		n++;
	ki_list_for_each (link, &connection->pack_requests)
		n += ki_container(link, struct request, link)->handle != NULL;
	return n < PACK_HANDLES_MAX;
}

static enum kiln_status begin_open(struct packs *packs,
				   struct connection *connection, uint64_t id,
				   const char *url)
{
	struct pack *pack = find(packs, url);
	enum kiln_status status = KILN_OK;
	struct pack_handle *handle;
	struct request *request;

	if (!pack)
		status = new_pack(packs, url, &pack);
	if (status)
		return status;
	handle = calloc(1, sizeof(*handle));
	status = handle ? new_request(connection, id, pack, 1, &request)
			: KILN_E_NO_MEMORY;
	if (status) {
		free(handle);
		linger(pack);
		return status;
	}
	ki_list_init(&handle->link);
	request->handle = handle;
	pack->backend->ops->range(pack->backend, "", 0, 1, request->tag,
				  pack->settings.levels->timeout_ms, opened,
				  request);
	return KILN_OK;
}

void packs_open(struct packs *packs, struct connection *connection, uint64_t id,
		const char *url, size_t url_size)
{
	char text[KI_REMOTE_TEXT_MAX + 1];
	enum kiln_status status = KILN_E_INVALID;

	if (!has_room(connection)) {
		status = KILN_E_FULL;
	} else if (url_size < sizeof(text) && !memchr(url, '\0', url_size)) {
		memcpy(text, url, url_size);
		text[url_size] = '\0';
		status = begin_open(packs, connection, id, text);
	}
	if (status)
		answer_open(connection, status, id, 0, 0);
}

/* ---- Ranges -------------------------------------------------------------- */

static void answer_range(struct connection *connection, enum kiln_status status,
			 uint64_t id)
{
	connection_answer(connection, KI_FRAME_RANGED, status, id, NULL, 0);
}

/* What came, for who waits: OK with the item; IO: something else; FULL: there is no
   room for it. */
static enum kiln_status take_range(const struct request *request,
				   const struct outcome *outcome,
				   struct item **out_item)
{
	struct item *item;

	if (outcome->status || outcome->body_size != request->size) {
		free(outcome->body);
		return outcome->status ? outcome->status : KILN_E_IO;
	}
	item = item_new(outcome->body, outcome->body_size);
	if (!item)
		return KILN_E_NO_MEMORY;
	if (!connection_has_room(request->connection, item)) {
		request->connection->helper->n_no_room++;
		item_unref(item);
		return KILN_E_FULL;
	}
	*out_item = item;
	return KILN_OK;
}

static void ranged(void *arg, const struct outcome *outcome)
{
	struct request *request = arg;
	struct connection *connection = request->connection;
	struct item *item = NULL;
	enum kiln_status status;

	note(request->pack, outcome);
	if (connection) {
		status = take_range(request, outcome, &item);
		if (item)
			connection_answer_item(connection, KI_FRAME_RANGED,
					       KILN_OK, request->id, NULL, 0,
					       item);
		else
			answer_range(connection, status, request->id);
		item_unref(item);
	} else {
		free(outcome->body);
	}
	free_request(request);
}

static struct pack_handle *find_handle(const struct connection *connection,
				       uint64_t number)
{
	struct ki_list *link;

	ki_list_for_each (link, &connection->packs) {
		struct pack_handle *handle =
			ki_container(link, struct pack_handle, link);

		if (handle->number == number)
			return handle;
	}
	return NULL;
}

void packs_range(struct packs *packs, struct connection *connection,
		 uint64_t id, uint64_t number, uint64_t offset, uint32_t size)
{
	struct pack_handle *handle = find_handle(connection, number);
	struct request *request = NULL;
	enum kiln_status status;

	if (!handle || !size)
		status = KILN_E_INVALID;
	else if (size > PACK_RANGE_BYTES_MAX)
		status = KILN_E_TOO_LARGE;
	else if (packs->bytes_asked + size > PACKS_BYTES_MAX)
		status = KILN_E_FULL;
	else
		status = new_request(connection, id, handle->pack, size,
				     &request);
	if (status) {
		answer_range(connection, status, id);
		return;
	}
	packs->n_ranges++;
	memcpy(request->tag, handle->tag, sizeof(request->tag));
	handle->pack->backend->ops->range(
		handle->pack->backend, "", offset, size, request->tag,
		handle->pack->settings.levels->timeout_ms, ranged, request);
}

void packs_forget(struct packs *packs, struct connection *connection)
{
	struct ki_list *link, *after;

	ki_list_for_each_safe (link, after, &connection->pack_requests) {
		ki_list_remove(link);
		ki_container(link, struct request, link)->connection = NULL;
	}
	ki_list_for_each_safe (link, after, &connection->packs) {
		struct pack_handle *handle =
			ki_container(link, struct pack_handle, link);

		ki_list_remove(link);
		unref(handle->pack);
		free(handle);
	}
}
