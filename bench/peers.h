/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_PEERS_H
#define KILN_BENCH_PEERS_H

/*
 * Stores to be measured, kiln's own among them, behind one table.
 *
 * All keep the same: an item's key record (compared in full at every hit) and
 * its value, found by a digest of 16 bytes that both sides have beforehand.
 * What fails ends the benchmark.
 */

#include <stddef.h>
#include <stdint.h>

struct kiln_key;

struct item {
	const uint8_t *digest; /* 16 bytes */
	const uint8_t *record;
	size_t record_size;
	struct kiln_key *key; /* the same for kiln */
	size_t place;	      /* among the items */
};

/* Bits of what a store is opened for. */
#define STORE_EVICTS (1u << 0) /* at bytes_max; else it holds everything */
#define STORE_READS  (1u << 1) /* values are read, never mapped */
#define STORE_MEMORY (1u << 2) /* kiln's memory tier in front, as by default */
#define STORE_GUEST  (1u << 3) /* kiln in a program that did not ask for it */

struct peer {
	const char *name;
	int is_of_one_process; /* one writing process at a time */
	void *(*open)(const char *directory, uint64_t bytes_max,
		      unsigned flags);
	void (*close)(void *store);
	/* A put of an item that is there may do nothing. */
	void (*put)(void *store, const struct item *item, const void *value,
		    size_t size);
	/* Copy the value; its size, 0 if it is not there. */
	size_t (*get)(void *store, const struct item *item, void *buffer,
		      size_t capacity);
	/* A sum over its first 512 bytes, where they lie; -1 if it is not
	   there.  NULL: no views. */
	int64_t (*view)(void *store, const struct item *item);
};

extern const struct peer peer_kiln, peer_kiln_neo, peer_lmdb, peer_sqlite,
	peer_rocksdb, peer_tkrzw, peer_plain, peer_neo, peer_sycl, peer_bare;

/* What a view reads. */
static inline int64_t peer_touch(const void *data, size_t size)
{
	const uint8_t *bytes = data;
	int64_t sum = 0;
	size_t i;

	for (i = 0; i < size && i < 512; i += 8)
		sum += bytes[i];
	return sum;
}

#endif /* KILN_BENCH_PEERS_H */
