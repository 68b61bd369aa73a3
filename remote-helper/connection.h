/* SPDX-License-Identifier: MIT */
#ifndef KIR_CONNECTION_H
#define KIR_CONNECTION_H

/*
 * One program that is connected: frames come in, answers go out.
 *
 * What a program can make large is bounded: a body by its frame's rules, requests
 * that wait for answers and answers that wait to be read by the limits below.  Who
 * has reached one is not read from, and what it sent already is not looked at, until
 * there is room again; who reads nothing for helper->stall_ms while answers wait is
 * cut off, and so is who breaks a rule of the protocol.
 *
 * How large the answers are that are on their way nobody knows before they come:
 * whoever has an item asks whether there is room for it (connection_has_room).
 *
 * Ends       A connection ends in connection_close(), from any callback; memory goes
 *            when nobody is in it any more.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "remote/protocol.h"

#define CONNECTION_PENDING_MAX	   1024	      /* requests without an answer */
#define CONNECTION_OUT_BYTES_MAX   (1u << 20) /* beyond: no more requests */
#define CONNECTION_DESCRIPTORS_MAX 16	      /* that came before their PUT */
/* Of what may wait to be read in all, the part of one connection. */
#define CONNECTION_OUT_PART 4
/* Where nothing waits so much may, whatever waits elsewhere: most sockets take it
   at once. */
#define CONNECTION_OUT_FIRST (64u << 10)

struct helper;
struct item;
struct loop_fd;
struct loop_timer;

struct connection {
	struct ki_list link; /* of the helper's */
	struct helper *helper;
	struct loop_fd *watched;
	struct loop_timer *stall;
	int fd;
	int pid; /* as it says itself, for people */
	int is_greeted;
	int is_closed;
	int is_given_up; /* what it sent is still taken, and it is told nothing */
	int is_held;	 /* there are frames that have to wait */
	unsigned n_busy; /* functions of ours that are in it */

	/* What came and is not a whole frame yet. */
	uint8_t *in;
	size_t in_size, in_room;
	int descriptors[CONNECTION_DESCRIPTORS_MAX];
	unsigned n_descriptors;

	/* What the socket did not take yet. */
	struct ki_list parcels;
	size_t out_bytes;
	uint64_t progress_ns;

	/* Of requests.c and pack.c. */
	struct ki_list waits; /* requests without an answer */
	struct ki_list held;  /* leases */
	struct ki_list packs, pack_requests;
	unsigned n_pending;
};

/* Takes over the descriptor, nonblocking, also where it fails: NULL. */
struct connection *connection_new(struct helper *helper, int fd);

/* Harmless if it is closed. */
void connection_close(struct connection *connection);

/* An answer, its body in one piece or none.  Harmless if it is closed. */
void connection_answer(struct connection *connection, enum ki_frame_type type,
		       enum kiln_status status, uint64_t id, const void *body,
		       size_t body_size);

/* An answer whose body is `head` and then the bytes of the item, which it holds
   on to as long as needed. */
void connection_answer_item(struct connection *connection,
			    enum ki_frame_type type, enum kiln_status status,
			    uint64_t id, const void *head, size_t head_size,
			    struct item *item);

/* Whether an item may wait here to be read, if the socket does not take it. */
int connection_has_room(const struct connection *connection,
			const struct item *item);

/* One request more, or fewer, waits for its answer. */
void connection_pend(struct connection *connection);
void connection_settle(struct connection *connection);

#endif /* KIR_CONNECTION_H */
