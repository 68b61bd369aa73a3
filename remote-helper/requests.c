/* SPDX-License-Identifier: MIT */

#include "requests.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"
#include "helper.h"
#include "loop.h"
#include "sys/sys.h"
#include "tell.h"
#include "trial.h"

#define ALL_LEVELS UINT32_MAX

/* A request without an answer yet, of any kind. */
struct wait {
	struct ki_list link;
	struct connection *connection;
	uint64_t id;
	enum ki_frame_type kind;
	union {
		struct waiter get;
		struct drain drain;
		struct trial *trial;
		struct {
			struct lease_waiter lease;
			struct held *held; /* for when it is ours */
		};
	};
};

/* A lease that a connection holds. */
struct held {
	struct ki_list link;
	struct lease *lease;
};

static struct wait *begin_wait(struct connection *connection,
			       enum ki_frame_type kind, uint64_t id)
{
	struct wait *wait = calloc(1, sizeof(*wait));

	if (!wait)
		return NULL;
	wait->connection = connection;
	wait->kind = kind;
	wait->id = id;
	ki_list_append(&connection->waits, &wait->link);
	connection_pend(connection);
	return wait;
}

static void end_wait(struct wait *wait)
{
	ki_list_remove(&wait->link);
	connection_settle(wait->connection);
	free(wait);
}

static void answer(struct connection *connection, enum ki_frame_type type,
		   enum kiln_status status, uint64_t id)
{
	connection_answer(connection, type, status, id, NULL, 0);
}

/* ---- Who it is ----------------------------------------------------------- */

static void say_hello(struct connection *connection, uint64_t id)
{
	const struct helper *helper = connection->helper;
	uint8_t body[KI_FRAME_WELCOME_BYTES] = { 0 };
	uint64_t can = KI_REMOTE_CAN_RANGE;

	if (sources_lease_level(&helper->sources) >= 0)
		can |= KI_REMOTE_CAN_LEASE;
	if (helper_can_put(helper))
		can |= KI_REMOTE_CAN_PUT;
	ki_put_u32(body, KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, KI_REMOTE_VERSION);
	ki_put_u16(body + 6, KI_REMOTE_VERSION);
	ki_put_u64(body + 8, can);
	ki_put_u32(body + 16, (uint32_t)ki_process_id());
	ki_put_u32(body + 24, (uint32_t)helper->sources.n_levels);
	ki_put_u32(body + 28, fetches_wait_ms(&helper->fetches));
	connection_answer(connection, KI_FRAME_HELLO, KILN_OK, id, body,
			  sizeof(body));
}

static enum kiln_status on_hello(struct connection *connection, uint64_t id,
				 struct ki_reader *body)
{
	uint32_t magic = ki_read_u32(body);
	uint16_t lowest = ki_read_u16(body), highest = ki_read_u16(body);

	(void)ki_read_u64(body); /* there are no capabilities of programs yet */
	connection->pid = (int)ki_read_u32(body);
	if (magic != KI_REMOTE_MAGIC)
		return KILN_E_FORMAT;
	say_hello(connection, id);
	if (lowest > KI_REMOTE_VERSION || highest < KI_REMOTE_VERSION)
		return KILN_E_FORMAT;
	return KILN_OK;
}

/* ---- Looking up ---------------------------------------------------------- */

static void answer_item(const struct wait *wait, unsigned level,
			struct item *item)
{
	uint8_t head[KI_FRAME_ITEM_HEAD_BYTES];

	ki_put_u32(head, level);
	ki_put_u32(head + 4,
		   wait->get.wants_verdict ? 0 : KI_REMOTE_ITEM_NO_VERDICT);
	connection_answer_item(wait->connection, KI_FRAME_ITEM, KILN_OK,
			       wait->id, head, sizeof(head), item);
}

static void answer_miss(struct connection *connection, uint64_t id,
			uint32_t reasons, uint32_t wait_ms)
{
	uint8_t body[KI_FRAME_MISS_BYTES];

	ki_put_u32(body, wait_ms);
	ki_put_u32(body + 4, reasons);
	connection_answer(connection, KI_FRAME_MISS, KILN_MISS, id, body,
			  sizeof(body));
}

/* What there is no room for comes too late: it waits in memory. */
static int got(struct waiter *waiter, unsigned level, struct item *item,
	       uint32_t reasons, uint32_t wait_ms)
{
	struct wait *wait = ki_container(waiter, struct wait, get);
	int has_room = !item || connection_has_room(wait->connection, item);

	if (!has_room) {
		wait->connection->helper->n_no_room++;
		item = NULL;
		reasons = KI_REMOTE_LATE;
	}
	if (item)
		answer_item(wait, level, item);
	else
		answer_miss(wait->connection, wait->id, reasons, wait_ms);
	end_wait(wait);
	return has_room;
}

static void on_get(struct connection *connection, uint64_t id,
		   struct ki_reader *body)
{
	const uint8_t *name = ki_read(body, KI_REMOTE_NAME_BYTES);
	uint32_t ms = ki_read_u32(body), from = ki_read_u32(body);
	struct wait *wait = begin_wait(connection, KI_FRAME_GET, id);

	if (!wait) {
		answer_miss(connection, id, KI_REMOTE_FAULT, 0);
		return;
	}
	wait->get.done = got;
	fetches_get(&connection->helper->fetches, &wait->get, name, ms, from);
}

static enum verdict verdict_of(int is_good, uint32_t level, unsigned flags)
{
	if (is_good)
		return VERDICT_GOOD;
	if (level == ALL_LEVELS)
		return VERDICT_UNWANTED;
	return flags & KI_REMOTE_VERDICT_WHOLE ? VERDICT_UNTRUSTED
					       : VERDICT_DAMAGED;
}

static enum kiln_status on_verdict(struct connection *connection,
				   struct ki_reader *body, unsigned flags)
{
	struct helper *helper = connection->helper;
	const uint8_t *name = ki_read(body, KI_REMOTE_NAME_BYTES);
	uint32_t level = ki_read_u32(body), is_good = ki_read_u32(body);
	uint32_t n = (uint32_t)helper->sources.n_levels, end = level + 1;
	enum verdict verdict = verdict_of((int)is_good, level, flags);
	struct item *item;

	if (level == ALL_LEVELS) {
		level = 0;
		end = n;
	}
	if (end > n || is_good > 1)
		return KILN_E_FORMAT;
	for (; level < end; level++) {
		item = fetches_verdict(&helper->fetches, name, level, verdict);
		if (item)
			uploads_fill(&helper->uploads, name, level, item);
	}
	return KILN_OK;
}

static void on_prefetch(struct connection *connection, struct ki_reader *body)
{
	size_t n = body->size / KI_REMOTE_NAME_BYTES;

	fetches_prefetch(&connection->helper->fetches,
			 ki_read(body, n * KI_REMOTE_NAME_BYTES), n);
}

/* ---- Writing ------------------------------------------------------------- */

static enum kiln_status on_put(struct connection *connection,
			       struct ki_reader *body, unsigned flags, int fd)
{
	struct upload_put put = {
		.name = ki_read(body, KI_REMOTE_NAME_BYTES),
		.user_version = ki_read_u64(body),
		.record_size = ki_read_u64(body),
		.metadata_size = ki_read_u64(body),
		.value_size = ki_read_u64(body),
		.replaces = (flags & KI_REMOTE_PUT_REPLACE) != 0,
		.fd = fd,
	};

	return uploads_put(&connection->helper->uploads, &put);
}

static void drained(struct drain *drain, enum kiln_status status)
{
	struct wait *wait = ki_container(drain, struct wait, drain);

	answer(wait->connection, KI_FRAME_DRAINED, status, wait->id);
	end_wait(wait);
}

static void on_drain(struct connection *connection, uint64_t id,
		     struct ki_reader *body)
{
	uint32_t ms = ki_read_u32(body);
	struct wait *wait = begin_wait(connection, KI_FRAME_DRAIN, id);

	if (!wait) {
		answer(connection, KI_FRAME_DRAINED, KILN_E_NO_MEMORY, id);
		return;
	}
	wait->drain.done = drained;
	helper_await_drain(connection->helper, &wait->drain, ms);
}

/* ---- Leases -------------------------------------------------------------- */

static void leased(struct lease_waiter *waiter, enum kiln_status status,
		   struct lease *lease)
{
	struct wait *wait = ki_container(waiter, struct wait, lease);
	struct held *held = wait->held;

	if (!status) {
		held->lease = lease;
		ki_list_append(&wait->connection->held, &held->link);
	} else {
		free(held);
	}
	answer(wait->connection, KI_FRAME_LEASED, status, wait->id);
	end_wait(wait);
}

static void on_lease(struct connection *connection, uint64_t id,
		     struct ki_reader *body)
{
	const uint8_t *name = ki_read(body, KI_REMOTE_NAME_BYTES);
	uint32_t ms = ki_read_u32(body);
	struct held *held = malloc(sizeof(*held));
	struct wait *wait =
		held ? begin_wait(connection, KI_FRAME_LEASE, id) : NULL;

	if (!wait) {
		free(held);
		answer(connection, KI_FRAME_LEASED, KILN_E_UNSUPPORTED, id);
		return;
	}
	wait->held = held;
	wait->lease.done = leased;
	leases_take(&connection->helper->leases, &wait->lease, name, ms);
}

static void give_back(struct held *held)
{
	struct lease *lease = held->lease;

	ki_list_remove(&held->link);
	free(held);
	lease_give_back(lease);
}

static int is_of(const struct lease *lease, const uint8_t *name)
{
	return lease && !memcmp(lease_name(lease), name, KI_REMOTE_NAME_BYTES);
}

static struct held *find_held(const struct connection *connection,
			      const uint8_t *name)
{
	struct ki_list *link;

	ki_list_for_each (link, &connection->held) {
		struct held *held = ki_container(link, struct held, link);

		if (is_of(held->lease, name))
			return held;
	}
	return NULL;
}

static struct wait *find_lease_wait(const struct connection *connection,
				    const uint8_t *name)
{
	struct ki_list *link;

	ki_list_for_each (link, &connection->waits) {
		struct wait *wait = ki_container(link, struct wait, link);

		if (wait->kind == KI_FRAME_LEASE &&
		    is_of(wait->lease.lease, name))
			return wait;
	}
	return NULL;
}

/* Of what is held; or who asked waits for no answer any more. */
static void on_unlease(struct connection *connection, struct ki_reader *body)
{
	const uint8_t *name = ki_read(body, KI_REMOTE_NAME_BYTES);
	struct held *held = find_held(connection, name);
	struct wait *wait = held ? NULL : find_lease_wait(connection, name);

	if (held)
		give_back(held);
	if (!wait)
		return;
	lease_waiter_leave(&wait->lease);
	free(wait->held);
	answer(connection, KI_FRAME_LEASED, KILN_E_TIMEOUT, wait->id);
	end_wait(wait);
}

/* ---- Packs --------------------------------------------------------------- */

static void on_open(struct connection *connection, uint64_t id,
		    struct ki_reader *body)
{
	size_t size = body->size;

	packs_open(&connection->helper->packs, connection, id,
		   ki_read(body, size), size);
}

static void on_range(struct connection *connection, uint64_t id,
		     struct ki_reader *body)
{
	uint64_t handle = ki_read_u64(body), offset = ki_read_u64(body);
	uint32_t size = ki_read_u32(body);

	packs_range(&connection->helper->packs, connection, id, handle, offset,
		    size);
}

/* ---- Telling ------------------------------------------------------------- */

static void tried(void *arg, enum kiln_status status, const char *json,
		  size_t size)
{
	struct wait *wait = arg;

	connection_answer(wait->connection, KI_FRAME_TOLD, status, wait->id,
			  json, size);
	end_wait(wait);
}

static void try_all(struct connection *connection, uint64_t id)
{
	static const char none[] = "{\"sources\": [], \"left_out\": 0}";
	struct wait *wait = begin_wait(connection, KI_FRAME_TELL, id);
	enum kiln_status status;

	if (!wait) {
		answer(connection, KI_FRAME_TOLD, KILN_E_NO_MEMORY, id);
		return;
	}
	status = trial_begin(&connection->helper->sources, tried, wait,
			     &wait->trial);
	if (status == KILN_MISS)
		tried(wait, KILN_OK, none, sizeof(none) - 1);
	else if (status)
		tried(wait, status, NULL, 0);
}

static void tell_counters(struct connection *connection, uint64_t id)
{
	struct ki_bytes bytes;

	ki_bytes_init(&bytes);
	tell(connection->helper, &bytes);
	connection_answer(connection, KI_FRAME_TOLD,
			  bytes.failed ? KILN_E_NO_MEMORY : KILN_OK, id,
			  bytes.data, bytes.failed ? 0 : bytes.size);
	ki_bytes_fini(&bytes);
}

static enum kiln_status on_tell(struct connection *connection, uint64_t id,
				struct ki_reader *body)
{
	switch (ki_read_u32(body)) {
	case 0:
		tell_counters(connection, id);
		return KILN_OK;
	case 1:
		try_all(connection, id);
		return KILN_OK;
	}
	return KILN_E_FORMAT;
}

/* ---- Each frame ---------------------------------------------------------- */

enum kiln_status requests_handle(struct connection *connection,
				 const struct ki_frame *frame,
				 const uint8_t *bytes, int fd)
{
	struct ki_reader body = ki_reader(bytes, frame->size);

	switch (frame->type) {
	case KI_FRAME_HELLO:
		return on_hello(connection, frame->id, &body);
	case KI_FRAME_GET:
		on_get(connection, frame->id, &body);
		return KILN_OK;
	case KI_FRAME_VERDICT:
		return on_verdict(connection, &body, frame->flags);
	case KI_FRAME_PUT:
		return on_put(connection, &body, frame->flags, fd);
	case KI_FRAME_PREFETCH:
		on_prefetch(connection, &body);
		return KILN_OK;
	case KI_FRAME_LEASE:
		on_lease(connection, frame->id, &body);
		return KILN_OK;
	case KI_FRAME_UNLEASE:
		on_unlease(connection, &body);
		return KILN_OK;
	case KI_FRAME_OPEN:
		on_open(connection, frame->id, &body);
		return KILN_OK;
	case KI_FRAME_RANGE:
		on_range(connection, frame->id, &body);
		return KILN_OK;
	case KI_FRAME_TELL:
		return on_tell(connection, frame->id, &body);
	case KI_FRAME_DRAIN:
		on_drain(connection, frame->id, &body);
		return KILN_OK;
	}
	return KILN_E_FORMAT;
}

static void forget(struct wait *wait)
{
	switch (wait->kind) {
	case KI_FRAME_GET:
		waiter_leave(&wait->get);
		break;
	case KI_FRAME_LEASE:
		lease_waiter_leave(&wait->lease);
		free(wait->held);
		break;
	case KI_FRAME_DRAIN:
		drain_leave(&wait->drain);
		break;
	default:
		trial_forget(wait->trial);
	}
	ki_list_remove(&wait->link);
	free(wait);
}

void requests_forget(struct connection *connection)
{
	while (!ki_list_is_empty(&connection->waits))
		forget(ki_container(connection->waits.next, struct wait, link));
	packs_forget(&connection->helper->packs, connection);
	while (!ki_list_is_empty(&connection->held))
		give_back(
			ki_container(connection->held.next, struct held, link));
}
