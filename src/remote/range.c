/* SPDX-License-Identifier: MIT */

/*
 * A handle is known on the connection that it was opened on, and is opened again on
 * the next one; numbers of handles are given out once, so an old one is refused and
 * never somebody else's.  A server that has failed is left alone for a while.
 *
 * A pack is a help, and a program that opens one must not be slower for it than
 * without.  So a process has a budget for waits that bring nothing, and for what
 * an answer takes beyond FAIR_NS, which is what servers far away need:
 *
 *	debt  + what a wait was too long by
 *	      - a sixtieth of the time that goes by
 *
 * Nobody waits longer than VAIN_NS less the debt, and with a debt of VAIN_NS all
 * packs are left alone.  A server that was down costs a process that lives long a
 * second in a minute at most, and is used again when it is back.
 */

#include "remote/range.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "remote/connection.h"

#define NS_OF_MS	((uint64_t)1000000)
#define OPEN_NS		(1000 * NS_OF_MS)
#define READ_NS		(500 * NS_OF_MS)
#define QUIET_NS	(5000 * NS_OF_MS)
#define VAIN_NS		(1000 * NS_OF_MS)
#define FAIR_NS		(200 * NS_OF_MS)
#define FORGIVEN	60 /* of the time that goes by, a part */
#define RANGE_BYTES_MAX ((size_t)16 << 20)

struct ki_range {
	/* Fixed after open. */
	const struct ki_sys *sys;
	struct ki_connection *connection;
	char *url;
	uint64_t bytes;
	/* Atomic. */
	_Atomic uint64_t handle; /* 0: none on this connection */
	_Atomic uint64_t quiet_until_ns;
};

/* Of the process, whatever packs it has: when its debt will be forgiven. */
static _Atomic uint64_t free_at_ns;

static uint64_t debt_ns(uint64_t now_ns)
{
	const uint64_t free_at = atomic_load(&free_at_ns);

	return free_at > now_ns ? (free_at - now_ns) / FORGIVEN : 0;
}

static void owe(uint64_t now_ns, uint64_t ns)
{
	uint64_t before = atomic_load(&free_at_ns), after;

	do {
		after = (before > now_ns ? before : now_ns) + FORGIVEN * ns;
	} while (!atomic_compare_exchange_weak(&free_at_ns, &before, after));
}

void ki_range_forget(void)
{
	atomic_store(&free_at_ns, 0);
}

static void ignore_welcome(void *arg, uint64_t capabilities, uint32_t later_ms)
{
}

/* An answer of the expected type, and its own status. */
static enum kiln_status ask(struct ki_range *range, uint8_t type,
			    const void *body, size_t size, uint64_t wait_ns,
			    uint8_t expected, size_t answer_max,
			    struct ki_answer *out_answer)
{
	const struct ki_sys *sys = range->sys;
	const struct ki_request request = { .type = type,
					    .body = body,
					    .size = size,
					    .fd_along = -1,
					    .answer_max = answer_max };
	const uint64_t start = sys->monotonic_ns(sys);
	const uint64_t debt = debt_ns(start);
	const uint64_t left = debt < VAIN_NS ? VAIN_NS - debt : 0;
	struct ki_answer answer;
	enum kiln_status status;
	uint64_t now, waited;

	if (!left)
		return KILN_E_TIMEOUT;
	status = ki_connection_ask(range->connection, &request,
				   start + (wait_ns < left ? wait_ns : left),
				   &answer);
	now = sys->monotonic_ns(sys);
	waited = now - start;
	if (status || answer.status)
		owe(now, waited);
	else if (waited > FAIR_NS)
		owe(now, waited - FAIR_NS);
	if (status)
		return status;
	status = (enum kiln_status)answer.status;
	if (answer.type != expected)
		status = KILN_E_FORMAT;
	if (status)
		free(answer.body);
	else
		*out_answer = answer;
	return status;
}

/* A handle on this connection, of a file that has so many bytes; 0: any. */
static enum kiln_status open_handle(struct ki_range *range, uint64_t bytes,
				    uint64_t *out_bytes)
{
	struct ki_answer answer;
	enum kiln_status status =
		ask(range, KI_FRAME_OPEN, range->url, strlen(range->url),
		    OPEN_NS, KI_FRAME_OPENED, KI_FRAME_OPENED_BYTES, &answer);

	if (status)
		return status;
	*out_bytes = ki_get_u64(answer.body + 8);
	if (bytes && *out_bytes != bytes)
		status = KILN_E_IO;
	else
		atomic_store(&range->handle, ki_get_u64(answer.body));
	free(answer.body);
	return status;
}

enum kiln_status ki_range_open(const struct ki_sys *sys, const char *socket,
			       const char *url, int is_guest,
			       struct ki_range **out_range)
{
	struct ki_range *range = calloc(1, sizeof(*range));
	enum kiln_status status = KILN_E_NO_MEMORY;

	if (!range)
		return status;
	range->sys = sys;
	range->url = strdup(url);
	range->connection =
		ki_connection_new(sys, socket, is_guest, ignore_welcome, NULL);
	if (range->url && range->connection) {
		ki_connection_begin(range->connection);
		status = open_handle(range, 0, &range->bytes);
		ki_connection_finish(range->connection);
	}
	if (is_guest)
		atomic_store(&range->handle, 0);
	if (status)
		ki_range_close(range);
	else
		*out_range = range;
	return status;
}

void ki_range_close(struct ki_range *range)
{
	if (!range)
		return;
	ki_connection_free(range->connection);
	free(range->url);
	free(range);
}

uint64_t ki_range_bytes(const struct ki_range *range)
{
	return range->bytes;
}

static enum kiln_status read_once(struct ki_range *range, uint64_t offset,
				  void *buffer, size_t count)
{
	uint8_t body[KI_FRAME_RANGE_BYTES] = { 0 };
	struct ki_answer answer;
	enum kiln_status status;

	ki_put_u64(body, atomic_load(&range->handle));
	ki_put_u64(body + 8, offset);
	ki_put_u32(body + 16, (uint32_t)count);
	status = ask(range, KI_FRAME_RANGE, body, sizeof(body), READ_NS,
		     KI_FRAME_RANGED, count, &answer);
	if (status)
		return status;
	if (answer.size == count)
		memcpy(buffer, answer.body, count);
	else
		status = KILN_E_FORMAT;
	free(answer.body);
	return status;
}

/* A handle of an earlier connection is none: another one is opened, once. */
static enum kiln_status read_part(struct ki_range *range, uint64_t offset,
				  void *buffer, size_t count)
{
	enum kiln_status status = KILN_E_INVALID;
	uint64_t bytes;

	if (atomic_load(&range->handle))
		status = read_once(range, offset, buffer, count);
	if (status != KILN_E_INVALID && status != KILN_E_IO)
		return status;
	status = open_handle(range, range->bytes, &bytes);
	return status ? status : read_once(range, offset, buffer, count);
}

static enum kiln_status read_all(struct ki_range *range, uint64_t offset,
				 uint8_t *buffer, size_t count)
{
	enum kiln_status status = KILN_OK;

	while (count && !status) {
		const size_t part =
			count < RANGE_BYTES_MAX ? count : RANGE_BYTES_MAX;

		status = read_part(range, offset, buffer, part);
		offset += part;
		buffer += part;
		count -= part;
	}
	return status;
}

ssize_t ki_range_read(struct ki_range *range, uint64_t offset, void *buffer,
		      size_t count)
{
	const struct ki_sys *sys = range->sys;
	enum kiln_status status;

	if (offset > range->bytes || count > range->bytes - offset ||
	    sys->coarse_ns(sys) < atomic_load(&range->quiet_until_ns))
		return -1;
	ki_connection_begin(range->connection);
	status = read_all(range, offset, buffer, count);
	ki_connection_finish(range->connection);
	if (!status)
		return (ssize_t)count;
	atomic_store(&range->quiet_until_ns, sys->monotonic_ns(sys) + QUIET_NS);
	return -1;
}
