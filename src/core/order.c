/* SPDX-License-Identifier: MIT */

/*
 * The recorded order of first use.
 *
 * Noted is every key that comes to the tiers: a hit in memory came there before.
 * Most come again and again, so a note begins with a look that writes nothing:
 *
 *	slots  [ 0 | 3 | 0 | 0 | 1 | 2 ]    1 + the number of a use; by digest
 *	uses   [ digest, name | digest, name | digest, name | ... ]    in order
 *
 * A new key takes the next use, fills it in and publishes it by one
 * compare-and-swap in a slot.  Two threads that note one key at once take two
 * uses; the one that finds the other in the table leaves its own void.
 *
 * Keeping is another matter: it happens once, when nobody notes any more or
 * nobody can be waited for.  What one run used stays in front of what others of
 * the same program used, so that no run makes the next forget, and a run that
 * used what is kept, in that order, changes nothing.
 */

#include "core/order.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "key/key.h"

#define N_SLOTS	     (2 * KI_ORDER_KEYS_MAX) /* a power of two */
#define HEADER_BYTES 16
#define VERSION	     1

static const uint8_t magic[4] = { 'K', 'O', 'R', 'D' };

enum use_state { EMPTY, VALID };

struct use {
	_Atomic uint8_t state; /* the rest is fixed once it is VALID */
	uint8_t digest[KILN_DIGEST_BYTES];
	uint8_t name[KILN_ORDER_NAME_BYTES];
};

struct ki_order {
	/* Atomic. */
	_Atomic uint32_t n_taken; /* of uses; may pass KI_ORDER_KEYS_MAX */
	_Atomic uint16_t slots[N_SLOTS];
	struct use uses[KI_ORDER_KEYS_MAX];
};

static_assert(KI_ORDER_KEYS_MAX < UINT16_MAX, "the number of a use in a slot");
static_assert(KILN_ORDER_NAME_BYTES == KI_BLAKE2B_BYTES, "a name is a digest");

/* ---- Noting ---------------------------------------------------------------- */

struct ki_order *ki_order_new(void)
{
	return calloc(1, sizeof(struct ki_order));
}

void ki_order_free(struct ki_order *order)
{
	free(order);
}

/* NULL: there are enough. */
static struct use *take_use(struct ki_order *order, uint16_t *out_slot)
{
	uint32_t n = atomic_load(&order->n_taken);

	if (n < KI_ORDER_KEYS_MAX)
		n = atomic_fetch_add(&order->n_taken, 1);
	if (n >= KI_ORDER_KEYS_MAX)
		return NULL;
	*out_slot = (uint16_t)(n + 1);
	return &order->uses[n];
}

static void fill(struct use *use, const struct kiln_key *key)
{
	memcpy(use->digest, key->digest, sizeof(use->digest));
	ki_blake2b(key->record.data, key->record.size, use->name);
}

/* Keys of one digest are one here: one of them is noted. */
void ki_order_note(struct ki_order *order, const struct kiln_key *key)
{
	struct use *mine = NULL;
	uint16_t slot = 0;

	for (uint64_t i = key->digest_low;; i++) {
		_Atomic uint16_t *place = &order->slots[i % N_SLOTS];
		uint16_t there =
			atomic_load_explicit(place, memory_order_acquire);

		if (!there && !mine) {
			mine = take_use(order, &slot);
			if (!mine)
				return;
			fill(mine, key);
		}
		if (!there &&
		    atomic_compare_exchange_strong(place, &there, slot)) {
			atomic_store_explicit(&mine->state, VALID,
					      memory_order_release);
			return;
		}
		if (!memcmp(order->uses[there - 1].digest, key->digest,
			    KILN_DIGEST_BYTES))
			return;
	}
}

int ki_order_has_any(const struct ki_order *order)
{
	return atomic_load(&order->n_taken) != 0;
}

/* ---- What is kept ----------------------------------------------------------- */

/* Names, one behind another. */
struct names {
	const uint8_t *names;
	size_t n;
};

static const uint8_t *name_at(const struct names *names, size_t i)
{
	return names->names + i * KILN_ORDER_NAME_BYTES;
}

static int is_name(const uint8_t *a, const uint8_t *b)
{
	return !memcmp(a, b, KILN_ORDER_NAME_BYTES);
}

static enum kiln_status parse(const void *value, size_t size,
			      struct names *out_names)
{
	const uint8_t *bytes = value;
	size_t n;

	if (size < HEADER_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0 ||
	    ki_get_u16(bytes + 4) != VERSION || ki_get_u16(bytes + 6) ||
	    ki_get_u32(bytes + 12))
		return KILN_E_FORMAT;
	n = ki_get_u32(bytes + 8);
	if (n > KI_ORDER_KEYS_MAX ||
	    size != HEADER_BYTES + n * KILN_ORDER_NAME_BYTES)
		return KILN_E_FORMAT;
	*out_names = (struct names){ bytes + HEADER_BYTES, n };
	return KILN_OK;
}

enum kiln_status kiln_order_name(const void *value, size_t size, size_t n,
				 const uint8_t **out_name)
{
	struct names names;

	if (parse(value, size, &names))
		return KILN_E_FORMAT;
	if (n >= names.n)
		return KILN_END;
	*out_name = name_at(&names, n);
	return KILN_OK;
}

enum kiln_status kiln_order_key(const char *application,
				struct kiln_key **out_key)
{
	struct kiln_key *key = kiln_key_new();
	enum kiln_status status;

	kiln_key_add_string(key, "kind", "order");
	/* No more of a path than is needed to find it. */
	kiln_key_add_digest(key, "application", application,
			    strlen(application));
	status = kiln_key_finish(key);
	if (status)
		kiln_key_free(key);
	else
		*out_key = key;
	return status;
}

int kiln_order_is(const void *record, size_t size)
{
	struct kiln_field kind, application;

	return !kiln_record_find(record, size, "kind", &kind) &&
	       kind.kind == KILN_FIELD_BYTES && kind.size == 5 &&
	       !memcmp(kind.data, "order", 5) &&
	       !kiln_record_find(record, size, "application", &application) &&
	       application.kind == KILN_FIELD_DIGEST;
}

/* Whether `few` are among `many` and follow each other there as here. */
static int is_within(const struct names *few, const struct names *many)
{
	size_t i = 0;

	for (size_t k = 0; k < many->n && i < few->n; k++)
		i += is_name(name_at(few, i), name_at(many, k));
	return i == few->n;
}

/* A set of the first names of an order, by their place in it. */
struct set {
	const struct names *names;
	uint16_t slots[N_SLOTS];
};

/* The slot of a name: 0 in it, and its place is to be filled in; or it is there. */
static uint16_t *find_slot(struct set *set, const uint8_t *name)
{
	for (uint64_t i = ki_get_u64(name);; i++) {
		uint16_t *slot = &set->slots[i % N_SLOTS];

		if (!*slot || is_name(name_at(set->names, *slot - 1u), name))
			return slot;
	}
}

static void add_names(struct ki_bytes *bytes, struct set *set,
		      const struct names *kept)
{
	for (size_t i = 0; i < set->names->n; i++)
		*find_slot(set, name_at(set->names, i)) = (uint16_t)(i + 1);
	ki_bytes_add(bytes, set->names->names,
		     set->names->n * KILN_ORDER_NAME_BYTES);
	for (size_t i = 0;
	     i < kept->n &&
	     bytes->size <
		     HEADER_BYTES + KI_ORDER_KEYS_MAX * KILN_ORDER_NAME_BYTES;
	     i++)
		if (!*find_slot(set, name_at(kept, i)))
			ki_bytes_add(bytes, name_at(kept, i),
				     KILN_ORDER_NAME_BYTES);
}

/* `noted` first. */
static enum kiln_status join(const struct names *noted,
			     const struct names *kept, void **out_bytes,
			     size_t *out_size)
{
	struct set *set = calloc(1, sizeof(*set));
	struct ki_bytes bytes;

	if (!set)
		return KILN_E_NO_MEMORY;
	set->names = noted;
	ki_bytes_init(&bytes);
	ki_bytes_add(&bytes, magic, sizeof(magic));
	ki_bytes_add_u16(&bytes, VERSION);
	ki_bytes_add_u16(&bytes, 0);
	ki_bytes_add_u32(&bytes, 0);
	ki_bytes_add_u32(&bytes, 0);
	add_names(&bytes, set, kept);
	free(set);
	if (bytes.failed) {
		ki_bytes_fini(&bytes);
		return KILN_E_NO_MEMORY;
	}
	ki_put_u32(bytes.data + 8, (uint32_t)((bytes.size - HEADER_BYTES) /
					      KILN_ORDER_NAME_BYTES));
	*out_bytes = ki_bytes_take(&bytes, out_size);
	return KILN_OK;
}

static size_t count_taken(const struct ki_order *order)
{
	const size_t n = atomic_load(&order->n_taken);

	return n < KI_ORDER_KEYS_MAX ? n : KI_ORDER_KEYS_MAX;
}

/* Of the first n. */
static size_t copy_noted(const struct ki_order *order, size_t n, uint8_t *out)
{
	size_t n_valid = 0;

	for (size_t i = 0; i < n; i++)
		if (atomic_load_explicit(&order->uses[i].state,
					 memory_order_acquire) == VALID)
			memcpy(out + n_valid++ * KILN_ORDER_NAME_BYTES,
			       order->uses[i].name, KILN_ORDER_NAME_BYTES);
	return n_valid;
}

enum kiln_status ki_order_merge(const struct ki_order *order, const void *kept,
				size_t kept_size, void **out_bytes,
				size_t *out_size)
{
	const size_t n = count_taken(order);
	struct names noted = { NULL, 0 }, before = { NULL, 0 };
	enum kiln_status status = KILN_MISS;
	uint8_t *copy;

	if (!n)
		return KILN_MISS;
	copy = malloc(n * KILN_ORDER_NAME_BYTES);
	if (!copy)
		return KILN_E_NO_MEMORY;
	noted = (struct names){ copy, copy_noted(order, n, copy) };
	if (kept)
		(void)parse(kept, kept_size, &before);
	if (!is_within(&noted, &before))
		status = join(&noted, &before, out_bytes, out_size);
	free(copy);
	return status;
}
