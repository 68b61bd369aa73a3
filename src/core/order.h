/* SPDX-License-Identifier: MIT */
#ifndef KI_CORE_ORDER_H
#define KI_CORE_ORDER_H

/*
 * What a program asks for, in the order of first use: noted in memory while it
 * runs, and kept in the store under the program's own key when it ends, for
 * whoever wants all of it at once the next time.  docs/formats/order.md.
 */

#include <kiln/inspect.h>
#include <kiln/kiln.h>

/* Of one application.  What it asks for after that many is not noted. */
#define KI_ORDER_KEYS_MAX 4096

struct ki_order;

/* NULL if there is no memory. */
struct ki_order *ki_order_new(void);
void ki_order_free(struct ki_order *order); /* NULL is fine */

/* A look-up.  From any thread; takes no lock and does not allocate. */
void ki_order_note(struct ki_order *order, const struct kiln_key *key);

/* Whether anything was. */
int ki_order_has_any(const struct ki_order *order);

/*
 * The bytes to keep from now on, from malloc(): what was noted, then what else
 * is in those kept so far (NULL: none), which may be damaged.  KILN_OK;
 * KILN_MISS: they can stay as they are; NO_MEMORY.  Looks at what was noted by
 * then.
 */
enum kiln_status ki_order_merge(const struct ki_order *order, const void *kept,
				size_t kept_size, void **out_bytes,
				size_t *out_size);

#endif /* KI_CORE_ORDER_H */
