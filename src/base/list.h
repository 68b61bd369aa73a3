/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_LIST_H
#define KI_BASE_LIST_H

/* A doubly linked ring; the head is a link like the others. */

#include <stddef.h>

struct ki_list {
	struct ki_list *next;
	struct ki_list *prev;
};

#define ki_container(pointer, type, member)                                    \
	((type *)((char *)(pointer)-offsetof(type, member)))

#define ki_list_for_each(link, head)                                           \
	for ((link) = (head)->next; (link) != (head); (link) = (link)->next)

/* The same, when the body may remove `link`. */
#define ki_list_for_each_safe(link, after, head)                               \
	for ((link) = (head)->next, (after) = (link)->next; (link) != (head);  \
	     (link) = (after), (after) = (link)->next)

static inline void ki_list_init(struct ki_list *list)
{
	list->next = list->prev = list;
}

static inline int ki_list_is_empty(const struct ki_list *list)
{
	return list->next == list;
}

/* Insert before the head: at the end. */
static inline void ki_list_append(struct ki_list *head, struct ki_list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Removing twice is harmless. */
static inline void ki_list_remove(struct ki_list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	ki_list_init(link);
}

#endif /* KI_BASE_LIST_H */
