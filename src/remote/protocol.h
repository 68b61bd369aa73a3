/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_PROTOCOL_H
#define KI_REMOTE_PROTOCOL_H

/*
 * What the library and kiln-remote say to each other, and the items that lie on
 * servers: docs/formats/remote-protocol.md, docs/formats/remote-item.md.
 *
 *	program                      kiln-remote                 server
 *	  HELLO  ->
 *	         <- HELLO
 *	  GET    ->                  (memory, near, far)  GET ->
 *	         <- ITEM or MISS
 *	  PUT + descriptor ->        (queue, seal)        PUT ->
 *
 * A connection is a Unix socket between two processes of one user.  It carries
 * frames, a header and a body, in both directions; requests have ids and are
 * answered in any order.  Whoever reads a frame that breaks the rules closes the
 * connection.
 *
 * Trust      The helper fetches, compresses and signs; the library verifies what
 *            comes back (ki_item_open), so a helper of another version or one
 *            that was replaced can cost a hit and never gives a wrong value.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/kiln.h>

#include "base/bytes.h"
#include "sign/sign.h"

#define KI_REMOTE_MAGIC	     0x6e6c696b /* "kiln" */
#define KI_REMOTE_VERSION    1
#define KI_REMOTE_NAME_BYTES 32
#define KI_REMOTE_BODY_MAX   (64u << 10) /* of every frame but ITEM, RANGED */
#define KI_REMOTE_NAMES_MAX  (KI_REMOTE_BODY_MAX / KI_REMOTE_NAME_BYTES)
#define KI_REMOTE_ITEM_MAX   ((uint64_t)1 << 30)
#define KI_REMOTE_TEXT_MAX   4096

/* ---- Frames ------------------------------------------------------------- */

/* Little-endian, 16 bytes, before every body. */
struct ki_frame {
	uint32_t size; /* of the body */
	uint8_t type;
	uint8_t flags;
	int16_t status; /* of an answer: an enum kiln_status; else 0 */
	uint64_t id;	/* of the request; an answer repeats it */
};

#define KI_FRAME_BYTES 16

enum ki_frame_type {
	/* From both sides, first: magic u32, lowest and highest version u16 each,
	   capabilities u64, pid u32, 0 u32; from the helper also: levels u32,
	   ms u32 until anything is worth asking again (0: now).  The version is
	   the highest that both know; none: the connection is closed. */
	KI_FRAME_HELLO = 1,

	/* Name; wait at most u32 ms (0: only what is there now); u32: of sources
	   only those from this number on.  Answer: ITEM or MISS. */
	KI_FRAME_GET,
	/* u32 source, u32 KI_REMOTE_ITEM_*, then the item. */
	KI_FRAME_ITEM,
	/* u32 ms until it is worth asking anything again; u32 reasons. */
	KI_FRAME_MISS,
	/* Name, u32 source (2^32 - 1: all), u32 1: the item was good; 0: it was
	   refused, and a PUT replaces it.  Not answered.  What was refused is
	   asked of the next source by GET.  KI_REMOTE_VERDICT_WHOLE in the
	   flags: it was refused because nobody trusted has signed it.  That
	   one was good is not said of an ITEM with KI_REMOTE_ITEM_NO_VERDICT. */
	KI_FRAME_VERDICT,

	/* With a descriptor (SCM_RIGHTS) of sealed memory: name, u64 user
	   version, u64 size of record, of metadata, of value; these lie in this
	   order in the memory.  Not answered: what cannot be queued is counted.
	   KI_REMOTE_PUT_REPLACE in the flags: it replaces what is there. */
	KI_FRAME_PUT,

	/* Names, most wanted first.  Not answered: what is found waits in the
	   helper's memory for a GET. */
	KI_FRAME_PREFETCH,

	/* Name, u32 ms to wait.  Answer: LEASED; its status: OK, it is yours;
	   EXISTS: the item is there, ask again; TIMEOUT; UNSUPPORTED.  A lease
	   ends with UNLEASE, or with the connection. */
	KI_FRAME_LEASE,
	KI_FRAME_LEASED,
	/* Name.  If a PUT of that name is queued, once it is done.  Not
	   answered. */
	KI_FRAME_UNLEASE,

	/* URL of a pack.  Answer: OPENED, status, u64 handle, u64 bytes. */
	KI_FRAME_OPEN,
	KI_FRAME_OPENED,
	/* u64 handle, u64 offset, u32 size, u32 0.  Answer: RANGED, status and
	   all the bytes, or IO if the file has changed or ended. */
	KI_FRAME_RANGE,
	KI_FRAME_RANGED,

	/* u32 what: 0 counters and state, 1 try every source end to end.
	   Answer: TOLD, a JSON object (docs/formats/remote-protocol.md). */
	KI_FRAME_TELL,
	KI_FRAME_TOLD,

	/* Wait until what is queued is done, u32 ms at most.  Answer: DRAINED,
	   OK or TIMEOUT. */
	KI_FRAME_DRAIN,
	KI_FRAME_DRAINED,
};

/* Bits of the flags of a frame. */
#define KI_REMOTE_PUT_REPLACE	1u
#define KI_REMOTE_VERDICT_WHOLE 1u

/* Bits of an ITEM. */
#define KI_REMOTE_ITEM_NO_VERDICT (1u << 0) /* a good one changes nothing */

/* Bits of the capabilities in HELLO. */
#define KI_REMOTE_CAN_LEASE (1u << 0) /* some source has leases */
#define KI_REMOTE_CAN_PUT   (1u << 1) /* some source is written */
#define KI_REMOTE_CAN_RANGE (1u << 2)

/* Bits of the reasons of a MISS. */
#define KI_REMOTE_ABSENT (1u << 0) /* a source said so */
#define KI_REMOTE_LATE	 (1u << 1) /* a source did not answer in time */
#define KI_REMOTE_FAULT	 (1u << 2) /* a source failed */
#define KI_REMOTE_BROKEN                                                       \
	(1u << 3) /* a source is not asked: its breaker is open */
#define KI_REMOTE_REFUSED (1u << 4) /* credentials were refused */

/* Sizes of bodies that are always the same. */
#define KI_FRAME_HELLO_BYTES	 24 /* from the library; at least */
#define KI_FRAME_WELCOME_BYTES	 32 /* HELLO from the helper; at least */
#define KI_FRAME_GET_BYTES	 40
#define KI_FRAME_ITEM_HEAD_BYTES 8 /* before the item */
#define KI_FRAME_MISS_BYTES	 8
#define KI_FRAME_VERDICT_BYTES	 40
#define KI_FRAME_PUT_BYTES	 64
#define KI_FRAME_LEASE_BYTES	 36
#define KI_FRAME_OPENED_BYTES	 16
#define KI_FRAME_RANGE_BYTES	 24

void ki_frame_put(uint8_t out[KI_FRAME_BYTES], const struct ki_frame *frame);
/* KILN_OK, or FORMAT: a type, or a size that such a body cannot have.  What a
   status or a flag means is the reader's to know. */
enum kiln_status ki_frame_get(const uint8_t in[KI_FRAME_BYTES],
			      struct ki_frame *out_frame);

/* ---- Names -------------------------------------------------------------- */

/*
 * BLAKE2b-256 of the key record; of a kiln with a user version, of that digest
 * and the version (u64).
 */
#define KI_REMOTE_HEX_BYTES (2 * KI_REMOTE_NAME_BYTES + 1)

void ki_remote_name(const uint8_t record_digest[KI_REMOTE_NAME_BYTES],
		    uint64_t user_version,
		    uint8_t out_name[KI_REMOTE_NAME_BYTES]);

/* ---- Items -------------------------------------------------------------- */

/*
 * What lies on a server: a header of 192 bytes, the key record, metadata, and
 * the value, compressed or not (docs/formats/remote-item.md).  Signed is a
 * BLAKE2b-256 of what the header says (version, name, user version, sizes), of
 * record, metadata and the stored value; besides there is an XXH3-128 of these
 * three, which is verified where signatures are not asked for.
 */
#define KI_ITEM_HEADER_BYTES 192
/* Of a value, in bytes for each byte that is stored: what would become more is
   stored as it is, so what arrives bounds what it can grow to. */
#define KI_ITEM_RATIO_MAX 1024

struct ki_item {
	uint64_t user_version;
	const void *record, *metadata, *value;
	size_t record_size, metadata_size, value_size;
};

struct ki_item_seal {
	const struct ki_sign_secret *secret; /* NULL: unsigned */
	int zstd_level;			     /* 0: as it is */
};

/*
 * The bytes of an item, appended.  Of the metadata, what is the user's or the
 * machine's stays behind, as in packs.  NO_MEMORY, TOO_LARGE, FORMAT (of the
 * metadata).
 */
enum kiln_status ki_item_seal(const struct ki_item *item,
			      const struct ki_item_seal *how,
			      struct ki_bytes *inout_bytes);

/*
 * Take one apart and verify it.  `trust` NULL: no signature is asked for.
 * FORMAT: damaged, cut, or of another version.  MISS: of another user version.
 * COLLISION: of another key.  OWNER: no signature that is trusted.  NO_MEMORY.
 */
enum kiln_status ki_item_open(const struct kiln_key *key, uint64_t user_version,
			      const struct ki_sign_trust *trust,
			      const void *bytes, size_t size,
			      struct kiln_blob **out_value,
			      struct kiln_blob **out_metadata);

/*
 * The same of an item at an offset in memory from malloc().  On KILN_OK the memory
 * may have become the value's, which saves a copy; *inout_memory is NULL then.
 */
enum kiln_status ki_item_take(const struct kiln_key *key, uint64_t user_version,
			      const struct ki_sign_trust *trust,
			      uint8_t **inout_memory, size_t offset,
			      size_t size, struct kiln_blob **out_value,
			      struct kiln_blob **out_metadata);

/* Whether bytes can be an item of that name, from their header and sizes alone:
   what the helper looks at before it passes something on.  KILN_OK, FORMAT. */
enum kiln_status ki_item_glance(const uint8_t name[KI_REMOTE_NAME_BYTES],
				const void *bytes, size_t size);

/* ---- Where the helper is ------------------------------------------------ */

/*
 * What a helper is configured with; both sides make the same digest of it, and
 * the socket's name has that.  Texts as kiln_options has them.
 */
struct ki_remote_place {
	const char *remote;	 /* KILN_REMOTE */
	const char *credentials; /* path of the file, or NULL */
	const char *signing_key; /* a path or the key itself, or NULL */
	const char *trust;	 /* "signed" or "transport" */
	/* The directory of sockets, that of this user alone. */
	const char *directory;
};

/*
 * All that a helper is given of the environment of whoever starts it, up to NULL:
 * credentials, proxies, and where certificates are.
 */
extern const char *const ki_remote_variables[];

/*
 * The path of the socket, "DIRECTORY/remote-<32 digits>.sock", a digest of the
 * version of the protocol, of the above, of the user and of the network namespace.
 * Names of sockets can be seen by all users; so where any of the variables is set,
 * which may hold credentials, 32 random bytes in the directory are digested with
 * them, DIRECTORY/salt, which is made if it is not there.  NO_MEMORY, INVALID (too
 * long), IO (the salt).
 */
enum kiln_status ki_remote_socket(const struct ki_remote_place *place,
				  char *out_path, size_t size);

#endif /* KI_REMOTE_PROTOCOL_H */
