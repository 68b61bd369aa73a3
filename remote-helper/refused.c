/* SPDX-License-Identifier: MIT */

#include "refused.h"

#include <stdlib.h>

struct row {
	struct name_link by_name;
	struct ki_list link;
	unsigned levels; /* bits */
};

static struct row *find(const struct refused *refused, const uint8_t *name)
{
	struct name_link *link = names_find(&refused->names, name);

	return link ? ki_container(link, struct row, by_name) : NULL;
}

static void drop(struct refused *refused, struct row *row)
{
	names_remove(&refused->names, &row->by_name);
	ki_list_remove(&row->link);
	free(row);
}

void refused_init(struct refused *refused)
{
	*refused = (struct refused){ 0 };
	ki_list_init(&refused->order);
}

void refused_fini(struct refused *refused)
{
	while (!ki_list_is_empty(&refused->order))
		drop(refused,
		     ki_container(refused->order.next, struct row, link));
	names_fini(&refused->names);
}

void refused_add(struct refused *refused,
		 const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level)
{
	struct row *row = find(refused, name);

	if (row) {
		row->levels |= 1u << level;
		return;
	}
	if (refused->names.n >= REFUSED_MAX)
		drop(refused,
		     ki_container(refused->order.next, struct row, link));
	row = malloc(sizeof(*row));
	if (!row)
		return;
	*row = (struct row){ .levels = 1u << level };
	if (!names_add(&refused->names, &row->by_name, name)) {
		free(row);
		return;
	}
	ki_list_append(&refused->order, &row->link);
}

int refused_has(const struct refused *refused,
		const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level)
{
	const struct row *row = find(refused, name);

	return row && row->levels & 1u << level;
}

void refused_forget(struct refused *refused,
		    const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level)
{
	struct row *row = find(refused, name);

	if (!row)
		return;
	row->levels &= ~(1u << level);
	if (!row->levels)
		drop(refused, row);
}
