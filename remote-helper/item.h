/* SPDX-License-Identifier: MIT */
#ifndef KIR_ITEM_H
#define KIR_ITEM_H

/* The bytes of an item, counted: memory, answers and uploads share them. */

#include <stddef.h>
#include <stdint.h>

struct item {
	unsigned n_refs;
	unsigned n_unread; /* answers with it that wait to be read */
	uint8_t *bytes;	   /* from malloc() */
	size_t size;
};

/* Takes the bytes over, also where it fails: NULL, no memory. */
struct item *item_new(uint8_t *bytes, size_t size);
struct item *item_ref(struct item *item);
void item_unref(struct item *item); /* NULL is fine */

#endif /* KIR_ITEM_H */
