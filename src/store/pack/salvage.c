/* SPDX-License-Identifier: MIT */

/*
 * A pack without its index, because it was cut short: entries say by themselves
 * where they end and whether they are whole.  From one to the next; behind what
 * is damaged, the next place at which one could begin.
 */

#include "store/pack/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/blob.h"

#define STEP	   8
#define UNREADABLE ((uint64_t)16 << 10) /* is passed by so much at a time */

struct search {
	struct ki_pack *pack;
	struct ki_pack_order *order;
	size_t capacity;
};

static enum kiln_status keep(struct search *search,
			     const struct ki_pack_entry *entry)
{
	struct ki_pack_order *order = search->order;
	size_t capacity = search->capacity ? search->capacity * 2 : 64;
	void *entries;

	if (order->n == search->capacity) {
		entries = realloc(order->entries, capacity * sizeof(*entry));
		if (!entries)
			return KILN_E_NO_MEMORY;
		order->entries = entries;
		search->capacity = capacity;
	}
	order->entries[order->n] = *entry;
	order->entries[order->n].position = (uint32_t)order->n;
	order->n++;
	return KILN_OK;
}

/* KILN_OK: it is whole, and the entry says what an index would. */
static enum kiln_status examine(struct ki_pack *pack, uint64_t offset,
				uint64_t size, struct ki_pack_entry *out_entry)
{
	struct ki_envelope envelope;
	enum kiln_status status;
	struct kiln_blob *blob;
	void *data;

	blob = ki_blob_new((size_t)size, &data);
	if (!blob)
		return KILN_E_NO_MEMORY;
	status = ki_pack_read(pack, offset, data, (size_t)size);
	if (!status)
		status = ki_envelope_open(data, (size_t)size, &envelope);
	if (!status) {
		ki_pack_name(envelope.record, envelope.record_size,
			     out_entry->name);
		ki_blake2b(data, (size_t)size, out_entry->digest);
		out_entry->offset = offset;
		out_entry->size = size;
	}
	kiln_blob_unref(blob);
	return status;
}

/* What begins at *offset, which then is that of the next place to look at. */
static enum kiln_status look_at(struct search *search, uint64_t *offset)
{
	struct ki_pack *pack = search->pack;
	const uint64_t rest = pack->device_bytes - *offset;
	uint8_t header[KI_ENVELOPE_HEADER_BYTES];
	struct ki_envelope envelope;
	struct ki_pack_entry entry;
	enum kiln_status status;
	uint64_t size, at = *offset;

	status = ki_pack_read(pack, at, header, sizeof(header));
	*offset += status == KILN_E_IO && rest > UNREADABLE ? UNREADABLE : STEP;
	if (!status)
		status = ki_envelope_measure(header, &envelope, &size);
	if (status || size > rest || size > SIZE_MAX / 2)
		return KILN_OK;
	*offset = at + ((size + STEP - 1) & ~(uint64_t)(STEP - 1));
	status = examine(pack, at, size, &entry);
	if (status)
		return status == KILN_E_NO_MEMORY ? status : KILN_OK;
	return keep(search, &entry);
}

static int by_name(const void *a, const void *b)
{
	const struct ki_pack_entry *const *left = a, *const *right = b;

	return memcmp((*left)->name, (*right)->name, KI_PACK_NAME_BYTES);
}

static enum kiln_status sort(struct ki_pack_order *order)
{
	size_t n = order->n;

	order->by_name = malloc((n + 1) * sizeof(*order->by_name));
	if (!order->by_name)
		return KILN_E_NO_MEMORY;
	for (size_t i = 0; i < n; i++)
		order->by_name[i] = &order->entries[i];
	if (n)
		qsort(order->by_name, n, sizeof(*order->by_name), by_name);
	return KILN_OK;
}

enum kiln_status ki_pack_salvage(struct ki_pack *pack,
				 struct ki_pack_order **out_order)
{
	struct search search = { .pack = pack };
	uint64_t offset = KI_PACK_ROOT_BYTES;
	enum kiln_status status = KILN_OK;

	search.order = calloc(1, sizeof(*search.order));
	if (!search.order)
		return KILN_E_NO_MEMORY;
	while (!status && search.order->n < KILN_PACK_ENTRIES_MAX &&
	       offset + KI_ENVELOPE_HEADER_BYTES <= pack->device_bytes)
		status = look_at(&search, &offset);
	if (!status)
		status = sort(search.order);
	if (status)
		ki_pack_order_free(search.order);
	else
		*out_order = search.order;
	return status;
}

int ki_pack_order_find(const struct ki_pack_order *order,
		       const uint8_t name[KI_PACK_NAME_BYTES],
		       struct ki_pack_entry *out_entry)
{
	size_t low = 0, high = order->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int side = memcmp(order->by_name[middle]->name, name,
				  KI_PACK_NAME_BYTES);

		if (!side) {
			*out_entry = *order->by_name[middle];
			return 1;
		}
		if (side < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}
