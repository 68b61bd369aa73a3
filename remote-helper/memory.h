/* SPDX-License-Identifier: MIT */
#ifndef KIR_MEMORY_H
#define KIR_MEMORY_H

/*
 * Items that were fetched and nobody has taken yet: prefetched ones, and those that
 * came too late for who asked.  Besides, those that are being looked at by a
 * program, from which nearer levels are filled once it finds them good.
 *
 * It is bounded, what is set aside for items on their way included.  What was handed
 * out goes first, a program has it in its own store; then what came first.  Nothing stays for long: what nobody took in
 * MEMORY_UNSERVED_S, and what was handed out MEMORY_SERVED_S ago.
 */

#include "base/list.h"
#include "item.h"
#include "names.h"

#define MEMORY_UNSERVED_S 600
#define MEMORY_SERVED_S	  10

struct memory_item {
	struct name_link by_name;
	struct ki_list link; /* of those served, or not, the oldest first */
	struct item *item;
	unsigned level; /* where it came from */
	int is_served;
	uint64_t since_ns;
};

struct memory {
	struct names names;
	struct ki_list unserved, served;
	uint64_t bytes, bytes_max;
	uint64_t aside; /* for what is on its way */
	uint64_t unserved_bytes;
	uint64_t n_evicted; /* that nobody took */
};

void memory_init(struct memory *memory, uint64_t bytes_max);
void memory_fini(struct memory *memory);

/* Keep one, with a reference of its own; what it had by that name goes. */
void memory_put(struct memory *memory, const uint8_t name[KI_REMOTE_NAME_BYTES],
		unsigned level, struct item *item, int is_served,
		uint64_t now_ns);

/* Borrowed, till the next call; NULL: none. */
struct memory_item *memory_get(const struct memory *memory,
			       const uint8_t name[KI_REMOTE_NAME_BYTES]);
/* It was handed out. */
void memory_serve(struct memory *memory, struct memory_item *kept,
		  uint64_t now_ns);
void memory_remove(struct memory *memory, struct memory_item *kept);

/* For how much more there is room that nobody has asked for: three quarters of all
   may be such. */
uint64_t memory_room(const struct memory *memory);
/* So much of that room is set aside, until it is given back. */
void memory_set_aside(struct memory *memory, uint64_t bytes);
void memory_give_back(struct memory *memory, uint64_t bytes);

/* Let go of what has been there too long. */
void memory_sweep(struct memory *memory, uint64_t now_ns);

#endif /* KIR_MEMORY_H */
