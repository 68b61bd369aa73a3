/* SPDX-License-Identifier: MIT */

#include "item.h"

#include <stdlib.h>

struct item *item_new(uint8_t *bytes, size_t size)
{
	struct item *item = malloc(sizeof(*item));

	if (!item) {
		free(bytes);
		return NULL;
	}
	*item = (struct item){ .n_refs = 1, .bytes = bytes, .size = size };
	return item;
}

struct item *item_ref(struct item *item)
{
	item->n_refs++;
	return item;
}

void item_unref(struct item *item)
{
	if (!item || --item->n_refs)
		return;
	free(item->bytes);
	free(item);
}
