/* SPDX-License-Identifier: MIT */

#include "choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "entry.h"

/* An application's order. */
struct order {
	struct kiln_blob *value;
	uint64_t made;
};

struct orders {
	struct order *orders;
	size_t n;
	size_t capacity;
};

/* Room for one more, zeroed; NULL without memory. */
static void *add_one(void *list, size_t *n, size_t *capacity, size_t size)
{
	unsigned char **bytes = list;

	if (*n == *capacity) {
		size_t more = *capacity ? *capacity * 2 : 64;
		void *grown = realloc(*bytes, more * size);

		if (!grown)
			return NULL;
		*bytes = grown;
		*capacity = more;
	}
	memset(*bytes + *n * size, 0, size);
	return *bytes + (*n)++ * size;
}

/* ---- What there is ------------------------------------------------------------- */

static int add_entry(struct ki_choice *choice, const struct kiln_entry *entry,
		     const struct ki_entry_view *view,
		     const struct ki_filter *filter)
{
	struct ki_chosen *chosen = add_one(&choice->entries, &choice->n,
					   &choice->capacity, sizeof(*chosen));

	if (!chosen)
		return -1;
	chosen->record = kiln_blob_ref(entry->record);
	ki_blake2b(kiln_blob_data(entry->record), kiln_blob_size(entry->record),
		   chosen->name);
	chosen->made = view->created;
	chosen->bytes = entry->value_size;
	chosen->fits =
		ki_filter_fits(filter, entry, view, "", &choice->unknown);
	chosen->is_of_application =
		ki_filter_is_application(filter, view->application);
	chosen->has_application = *view->application != '\0';
	return 0;
}

static int add_order(struct kiln *kiln, struct orders *orders,
		     const struct kiln_entry *entry,
		     const struct ki_entry_view *view)
{
	struct kiln_blob *value, *metadata;
	struct kiln_key *key;
	struct order *order;
	int is_there;

	if (kiln_key_from_record(kiln_blob_data(entry->record),
				 kiln_blob_size(entry->record), &key))
		return -1;
	is_there = !kiln_peek(kiln, key, &value, &metadata);
	kiln_key_free(key);
	if (!is_there)
		return 0;
	kiln_blob_unref(metadata);
	order = add_one(&orders->orders, &orders->n, &orders->capacity,
			sizeof(*order));
	if (!order) {
		kiln_blob_unref(value);
		return -1;
	}
	*order = (struct order){ value, view->created };
	return 0;
}

static int add(struct kiln *kiln, struct ki_choice *choice,
	       struct orders *orders, const struct kiln_entry *entry,
	       const struct ki_filter *filter)
{
	struct ki_entry_view view;
	int err = ki_entry_view_init(&view, entry);

	if (!err && view.is_foreign)
		choice->n_foreign++;
	else if (!err && !view.is_hidden)
		err = add_entry(choice, entry, &view, filter);
	else if (!err &&
		 kiln_order_is(kiln_blob_data(entry->record),
			       kiln_blob_size(entry->record)) &&
		 ki_filter_is_application(filter, view.application))
		err = add_order(kiln, orders, entry, &view);
	ki_entry_view_fini(&view);
	return err;
}

static enum kiln_status collect(struct kiln *kiln, struct ki_choice *choice,
				struct orders *orders,
				const struct ki_filter *filter)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	int err = 0;

	while (!err && !(status = kiln_list(kiln, &cursor, &entry))) {
		err = add(kiln, choice, orders, &entry, filter);
		kiln_entry_fini(&entry);
	}
	if (err)
		return KILN_E_NO_MEMORY;
	return status == KILN_END ? KILN_OK : status;
}

/* ---- The order ------------------------------------------------------------------ */

/* By a part of their names: two of one part are taken for none. */
static uintptr_t part_of(const uint8_t *name)
{
	uintptr_t part;

	memcpy(&part, name, sizeof(part));
	return part ? part : 1;
}

static int map_names(const struct ki_choice *choice, struct ki_map *map)
{
	for (size_t i = 0; i < choice->n; i++)
		if (ki_map_put(map, part_of(choice->entries[i].name),
			       &choice->entries[i]))
			return -1;
	return 0;
}

static void place(const struct order *order, const struct ki_map *map,
		  uint32_t *inout_place)
{
	const void *value = kiln_blob_data(order->value);
	const size_t size = kiln_blob_size(order->value);
	const uint8_t *name;

	for (size_t i = 0; !kiln_order_name(value, size, i, &name); i++) {
		struct ki_chosen *chosen = ki_map_get(map, part_of(name));

		if (!chosen || chosen->place ||
		    memcmp(chosen->name, name, sizeof(chosen->name)) != 0)
			continue;
		chosen->place = ++*inout_place;
		chosen->is_of_application = 1;
	}
}

/* What was used last is what will be used next. */
static int newest_first(const void *a, const void *b)
{
	const struct order *left = a, *right = b;

	return left->made < right->made ? 1 : left->made > right->made ? -1 : 0;
}

static enum kiln_status place_all(struct ki_choice *choice,
				  struct orders *orders)
{
	struct ki_map map;
	uint32_t n = 0;
	int err;

	if (!orders->n || !choice->n)
		return KILN_OK;
	ki_map_init(&map);
	err = map_names(choice, &map);
	qsort(orders->orders, orders->n, sizeof(*orders->orders), newest_first);
	for (size_t i = 0; !err && i < orders->n; i++)
		place(&orders->orders[i], &map, &n);
	ki_map_fini(&map);
	return err ? KILN_E_NO_MEMORY : KILN_OK;
}

static int by_place(const void *a, const void *b)
{
	const struct ki_chosen *left = a, *right = b;

	if (left->place != right->place && left->place && right->place)
		return left->place < right->place ? -1 : 1;
	if (!left->place != !right->place)
		return left->place ? -1 : 1;
	if (left->made != right->made)
		return left->made < right->made ? -1 : 1;
	return memcmp(left->name, right->name, sizeof(left->name));
}

/* What is not meant goes. */
static void keep_chosen(struct ki_choice *choice)
{
	size_t n = 0;

	for (size_t i = 0; i < choice->n; i++) {
		struct ki_chosen *chosen = &choice->entries[i];

		if (!chosen->fits || !chosen->is_of_application) {
			choice->unknown.n[KI_BY_APPLICATION] +=
				chosen->fits && !chosen->has_application;
			kiln_blob_unref(chosen->record);
			continue;
		}
		choice->bytes += chosen->bytes;
		choice->entries[n++] = *chosen;
	}
	choice->n = n;
	if (n)
		qsort(choice->entries, n, sizeof(*choice->entries), by_place);
}

enum kiln_status ki_choose(struct kiln *kiln, const struct ki_filter *filter,
			   struct ki_choice *out_choice)
{
	struct orders orders = { NULL, 0, 0 };
	enum kiln_status status;

	*out_choice = (struct ki_choice){ 0 };
	status = collect(kiln, out_choice, &orders, filter);
	if (!status)
		status = place_all(out_choice, &orders);
	if (!status)
		keep_chosen(out_choice);
	for (size_t i = 0; i < orders.n; i++)
		kiln_blob_unref(orders.orders[i].value);
	free(orders.orders);
	return status;
}

void ki_choice_fini(struct ki_choice *choice)
{
	for (size_t i = 0; i < choice->n; i++)
		kiln_blob_unref(choice->entries[i].record);
	free(choice->entries);
}

/* ---- Looking one up -------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	const struct ki_chosen *left = a, *right = b;

	return memcmp(left->name, right->name, sizeof(left->name));
}

void ki_choice_index(struct ki_choice *choice)
{
	if (choice->n)
		qsort(choice->entries, choice->n, sizeof(*choice->entries),
		      by_name);
}

int ki_choice_has(const struct ki_choice *choice,
		  const struct kiln_blob *record)
{
	struct ki_chosen wanted;

	if (!choice->n)
		return 0;
	ki_blake2b(kiln_blob_data(record), kiln_blob_size(record), wanted.name);
	return bsearch(&wanted, choice->entries, choice->n,
		       sizeof(*choice->entries), by_name) != NULL;
}
