/* SPDX-License-Identifier: MIT */

#include "requests.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"
#include "helper.h"
#include "sys/sys.h"

/* ---- Who it is ----------------------------------------------------------- */

static void say_hello(struct connection *connection, uint64_t id)
{
	uint8_t body[KI_FRAME_WELCOME_BYTES] = { 0 };

	ki_put_u32(body, KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, KI_REMOTE_VERSION);
	ki_put_u16(body + 6, KI_REMOTE_VERSION);
	ki_put_u64(body + 8, 0);
	ki_put_u32(body + 16, (uint32_t)ki_process_id());
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

static void miss(struct connection *connection, uint64_t id, uint32_t wait_ms,
		 uint32_t reasons)
{
	uint8_t body[KI_FRAME_MISS_BYTES];

	ki_put_u32(body, wait_ms);
	ki_put_u32(body + 4, reasons);
	connection_answer(connection, KI_FRAME_MISS, KILN_MISS, id, body,
			  sizeof(body));
}

static void on_get(struct connection *connection, uint64_t id)
{
	connection->helper->n_gets++;
	miss(connection, id, 0, KI_REMOTE_ABSENT);
}

/* ---- The rest ------------------------------------------------------------ */

static void on_put(struct connection *connection, int fd)
{
	(void)close(fd);
	connection->helper->n_puts++;
	connection->helper->n_puts_dropped++;
}

enum kiln_status requests_handle(struct connection *connection,
				 const struct ki_frame *frame,
				 const uint8_t *bytes, int fd)
{
	struct ki_reader body = ki_reader(bytes, frame->size);
	static const uint8_t zeros[KI_FRAME_OPENED_BYTES];

	switch (frame->type) {
	case KI_FRAME_HELLO:
		return on_hello(connection, frame->id, &body);
	case KI_FRAME_GET:
		on_get(connection, frame->id);
		return KILN_OK;
	case KI_FRAME_PUT:
		on_put(connection, fd);
		return KILN_OK;
	case KI_FRAME_VERDICT:
	case KI_FRAME_PREFETCH:
	case KI_FRAME_UNLEASE:
		return KILN_OK;
	case KI_FRAME_LEASE:
		connection_answer(connection, KI_FRAME_LEASED,
				  KILN_E_UNSUPPORTED, frame->id, NULL, 0);
		return KILN_OK;
	case KI_FRAME_OPEN:
		connection_answer(connection, KI_FRAME_OPENED,
				  KILN_E_UNSUPPORTED, frame->id, zeros,
				  sizeof(zeros));
		return KILN_OK;
	case KI_FRAME_RANGE:
		connection_answer(connection, KI_FRAME_RANGED, KILN_E_IO,
				  frame->id, NULL, 0);
		return KILN_OK;
	case KI_FRAME_TELL:
		connection_answer(connection, KI_FRAME_TOLD, KILN_OK, frame->id,
				  "{}", 2);
		return KILN_OK;
	case KI_FRAME_DRAIN:
		connection_answer(connection, KI_FRAME_DRAINED, KILN_OK,
				  frame->id, NULL, 0);
		return KILN_OK;
	}
	return KILN_E_FORMAT;
}

void requests_forget(struct connection *connection)
{
}
