/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_PEER_TEST_H
#define KI_REMOTE_PEER_TEST_H

/*
 * A helper for tests, in threads of the test: it keeps what it is given in memory,
 * or does whatever a helper should not do.
 */

#include <stdint.h>

#include <kiln/kiln.h>

#include "remote/protocol.h"

enum peer_manner {
	PEER_GOOD,
	PEER_DEAF,	 /* accepts, and says nothing */
	PEER_MUTE,	 /* greets, and then says nothing */
	PEER_LATE,	 /* answers a GET after 60 ms */
	PEER_WRONG_ID,	 /* answers what nobody asked */
	PEER_OLD_ID,	 /* answers twice: the second was asked before */
	PEER_WRONG_TYPE, /* LEASED to a GET */
	PEER_TOO_LONG,	 /* a size that cannot be */
	PEER_HUGE,	 /* 1 GiB announced, of which little comes */
	PEER_ENDLESS,	 /* junk, as fast as it is read */
	PEER_GARBAGE,	 /* no frame at all */
	PEER_NO_HELLO,	 /* answers without a greeting */
	PEER_TWO_HELLOS, /* greets again in place of an answer */
	PEER_OTHER_MAGIC,
	PEER_NEWER,    /* knows later versions alone */
	PEER_HANGS_UP, /* when asked */
	PEER_HANGS_UP_AT_ONCE,
	PEER_HALF_HEAD,	  /* hangs up within a header */
	PEER_HALF_BODY,	  /* hangs up within a body */
	PEER_OTHERS_ITEM, /* the item of another key under this name */
	PEER_CUT_ITEM,	  /* an item that ends early */
	PEER_FAR,	  /* late at first; what was asked for is there then */
	PEER_QUIET,	  /* MISS, and not to be asked for 60 s */
	PEER_LATE_LEASED, /* grants a lease, and says so once it behaves otherwise */
	PEER_N_MANNERS
};

struct peer;

/* At DIRECTORY/peer.sock or, with a path, there. */
struct peer *peer_new(const char *path);
void peer_free(struct peer *peer);
const char *peer_path(const struct peer *peer);

/* From the next request on. */
void peer_behave(struct peer *peer, enum peer_manner manner);
/* What it greets with. */
void peer_can(struct peer *peer, uint64_t capabilities, uint32_t later_ms);
/* KI_REMOTE_ITEM_*, with each ITEM from now on. */
void peer_say_of_items(struct peer *peer, uint32_t bits);
/* How it seals what it is given. */
void peer_seal(struct peer *peer, const struct ki_item_seal *how);

/* Frames of this type that it was sent; connections that it had, and has. */
unsigned peer_count(struct peer *peer, enum ki_frame_type type);
unsigned peer_connections(struct peer *peer);
unsigned peer_connected(struct peer *peer);
/* Wait until nobody is connected, and close what they leave. */
void peer_settle(struct peer *peer);
/* Wait until it was sent that many of them. */
void peer_await(struct peer *peer, enum ki_frame_type type, unsigned n);

/* What it keeps: put there, or from a client. */
void peer_add(struct peer *peer, const struct kiln_key *key, uint64_t version,
	      const void *value, size_t size, const struct ki_item_seal *how);
int peer_has(struct peer *peer, const struct kiln_key *key, uint64_t version);
void peer_drop_all(struct peer *peer);
/* A file that it serves under every URL; borrowed.  NULL: there is none. */
void peer_serve(struct peer *peer, const void *data, size_t size);
/* Leave everybody. */
void peer_hang_up(struct peer *peer);
/* The flags of the last PUT, the level and outcome of the last VERDICT. */
unsigned peer_put_flags(struct peer *peer);
int peer_verdict(struct peer *peer);
/* The wait of the last GET, in ms. */
uint32_t peer_wait_ms(struct peer *peer);
/* How many names were asked for ahead. */
unsigned peer_ahead(struct peer *peer);

#endif /* KI_REMOTE_PEER_TEST_H */
