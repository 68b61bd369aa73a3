/* SPDX-License-Identifier: MIT */
#ifndef KIR_CLIENT_TEST_H
#define KIR_CLIENT_TEST_H

/* A program that is connected, for tests: it says exactly what it is told to. */

#include <stddef.h>
#include <stdint.h>

#include "remote/protocol.h"

struct answer {
	struct ki_frame frame;
	uint8_t *body; /* free() it */
};

/* Connected, and nothing said; -1: nobody is there.  What it reads takes
   HARNESS_HANG_S at most. */
int client_connect(const char *path);
/* Connected, and greeted on both sides. */
int client_open(const char *path);

void client_send(int fd, enum ki_frame_type type, uint64_t id, const void *body,
		 size_t size);
/* The same with a descriptor. */
void client_send_fd(int fd, enum ki_frame_type type, uint64_t id,
		    const void *body, size_t size, int passed);

/* 1: a whole frame; 0: the connection is closed. */
int client_receive(int fd, struct answer *out_answer);
/* Whether the other side has closed, waiting for it. */
int client_is_cut_off(int fd);

/* ---- What is asked often -------------------------------------------------- */

void client_hello(int fd);
void client_get(int fd, uint64_t id, const uint8_t name[KI_REMOTE_NAME_BYTES],
		uint32_t ms, uint32_t from);
void client_verdict(int fd, const uint8_t name[KI_REMOTE_NAME_BYTES],
		    uint32_t level, int is_good);
void client_lease(int fd, uint64_t id, const uint8_t name[KI_REMOTE_NAME_BYTES],
		  uint32_t ms);
void client_unlease(int fd, const uint8_t name[KI_REMOTE_NAME_BYTES]);
/* Receive one of this type, for this id; the caller frees its body. */
struct answer client_expect(int fd, enum ki_frame_type type, uint64_t id);
/* Wait until nothing is queued. */
void client_drain(int fd);
/* TELL, parsed; json_decref() it. */
struct json_t *client_tell(int fd, uint32_t what);

/* ---- Names and entries ---------------------------------------------------- */

/* A name that nothing has. */
void client_name(uint8_t out[KI_REMOTE_NAME_BYTES], uint64_t number);

/* An entry of this number: what it says is text, so that it can be compressed. */
struct entry {
	struct kiln_key *key;
	uint8_t name[KI_REMOTE_NAME_BYTES];
	uint8_t *value;
	size_t value_size;
};
struct entry entry_new(uint64_t number, size_t value_size);
void entry_fini(struct entry *entry);
/* Record, metadata and value in memory that is sealed. */
int entry_memory(const struct entry *entry, size_t *out_record_size);
void client_put(int fd, const struct entry *entry, unsigned flags);
/* GET, ITEM, and what ki_item_open() says of it; MISS: with its reasons. */
enum kiln_status client_fetch(int fd, const struct entry *entry, uint32_t ms,
			      uint32_t *out_reasons);

#endif /* KIR_CLIENT_TEST_H */
