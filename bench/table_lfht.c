/* SPDX-License-Identifier: MIT */

/* liburcu's table in its flavour with membarrier(2), made at its full size. */

#define _LGPL_SOURCE /* its read side inline */
#include <urcu/urcu-memb.h>
#include <urcu/rculfhash.h>

#include "tables.h"

struct node {
	struct cds_lfht_node link;
	struct rcu_head head;
	struct table_digest digest;
	struct table_value *value;
};

static struct node *node_of(struct cds_lfht_node *link)
{
	return caa_container_of(link, struct node, link);
}

static void *open_table(size_t n_max)
{
	struct cds_lfht *table;
	size_t size = 1;

	while (size < n_max)
		size *= 2;
	table = cds_lfht_new_flavor(size, size, 0, 0, &urcu_memb_flavor, NULL);
	if (!table)
		bench_fail("no memory");
	return table;
}

static void free_node(struct rcu_head *head)
{
	struct node *node = caa_container_of(head, struct node, head);

	table_value_unref(node->value);
	free(node);
}

static void enter(void)
{
	urcu_memb_register_thread();
}

static void leave(void)
{
	urcu_memb_unregister_thread();
}

static void close_table(void *table)
{
	struct cds_lfht_iter iterator;
	struct cds_lfht_node *link;

	enter();
	urcu_memb_read_lock();
	cds_lfht_for_each(table, &iterator,
			  link) if (!cds_lfht_del(table, link))
		urcu_memb_call_rcu(&node_of(link)->head, free_node);
	urcu_memb_read_unlock();
	urcu_memb_barrier();
	leave();
	cds_lfht_destroy(table, NULL);
}

static int is_of(struct cds_lfht_node *link, const void *key)
{
	const struct table_digest *a = &node_of(link)->digest, *b = key;

	return a->low == b->low && a->high == b->high;
}

static void put(void *table, const struct table_item *item, const void *value,
		size_t size)
{
	struct node *node = malloc(sizeof(*node));
	struct cds_lfht_node *old;

	if (!node)
		bench_fail("no memory");
	cds_lfht_node_init(&node->link);
	node->digest = table_digest_of(item);
	node->value = table_value_new(value, size);
	urcu_memb_read_lock();
	old = cds_lfht_add_replace(table, node->digest.low, is_of,
				   &node->digest, &node->link);
	urcu_memb_read_unlock();
	if (old)
		urcu_memb_call_rcu(&node_of(old)->head, free_node);
}

static inline struct table_value *get(void *table,
				      const struct table_item *item)
{
	struct table_digest digest = table_digest_of(item);
	struct table_value *value = NULL;
	struct cds_lfht_iter iterator;
	struct cds_lfht_node *link;

	urcu_memb_read_lock();
	cds_lfht_lookup(table, digest.low, is_of, &digest, &iterator);
	link = cds_lfht_iter_get_node(&iterator);
	if (link)
		value = table_value_ref(node_of(link)->value);
	urcu_memb_read_unlock();
	return value;
}

TABLE_LOOK_UPS(get)

const struct table table_lfht = { .name = "liburcu lfht",
				  .open = open_table,
				  .close = close_table,
				  .enter = enter,
				  .leave = leave,
				  .put = put,
				  .hits = hits,
				  .look = look };
