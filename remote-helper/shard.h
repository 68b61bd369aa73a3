/* SPDX-License-Identifier: MIT */
#ifndef KIR_SHARD_H
#define KIR_SHARD_H

/*
 * Which of several servers has a name: the one whose hash together with the name
 * is highest (rendezvous hashing).  All machines that have the same servers in
 * their settings, in whatever order, agree; a server more takes its share of names
 * from all others and moves no other name.
 */

#include <stddef.h>
#include <stdint.h>

#include "remote/protocol.h"

/* Of a server, from its URL. */
uint64_t shard_hash(const char *url);

/* Which of `n`, at least 1. */
size_t shard_of(const uint8_t name[KI_REMOTE_NAME_BYTES],
		const uint64_t *hashes, size_t n);

#endif /* KIR_SHARD_H */
