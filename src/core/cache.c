/* SPDX-License-Identifier: MIT */

/*
 * The lookup path.  All policy is here: which tier is asked when, who builds,
 * who waits for whom, what is stored where.
 *
 *	kiln_get_or_build (entry.c)
 *	  hot ---------------- memory tier, by pin: no lock, no call (memory/)
 *	  ki_memory_begin ---- join a flight, or lead one
 *	    ask_tiers -------- store, packs and further tiers, fastest first;
 *			       then the remote
 *	    lock_build ------- one process at a time; then the store once more
 *	    lease_build ------ one machine at a time; then the remote once more
 *	    build() ---------- the caller's
 *	    store_built ------ into all tiers that can be written
 *	  ki_memory_finish --- wake those who waited
 *
 * A tier that fails is a miss, counted (ask): no fault but build()'s reaches
 * the caller.  No lock of ours is held here, but for the key's build lock
 * among processes and its lease among machines, which are held around build()
 * alone.  They are waited for only
 * because its holder will publish before it lets go; who gets it and finds no
 * entry builds at once.  Who builds already (a get_or_build inside a build())
 * waits for nothing.
 *
 * Life of a call, so that kiln_close() can wait for it: on the hot path a pin
 * in the thread's slot, otherwise a count in `calls`, taken before the pin is
 * left.
 *
 *	close: closing = 1 -> wait for all pins -> wait until calls == 0
 *	       -> wait for all pins -> flush -> close tiers, slow to fast -> free
 */

#include "core/cache.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/wide.h"
#include "key/key.h"
#include "core/hot.h"

/* For what another machine has put there just now, of what is left for waits. */
#define LEASED_MS 2000

/* Not worth a place beside the hot path. */
#define COLD __attribute__((noinline, cold))

/* ---- Calls ----------------------------------------------------------------- */

enum kiln_status ki_kiln_enter(struct kiln *kiln)
{
	struct ki_slot *slot;

	if (!kiln)
		return KILN_E_INVALID;
	if (ki_is_forked(kiln))
		return KILN_E_FORKED;
	slot = ki_slot_enter();
	atomic_fetch_add(&kiln->calls, 1);
	if (slot)
		ki_slot_leave(slot);
	if (atomic_load(&kiln->closing)) {
		ki_kiln_leave(kiln);
		return KILN_E_INVALID;
	}
	return KILN_OK;
}

void ki_kiln_leave(struct kiln *kiln)
{
	/* The pin keeps a closing kiln alive until we have let go of it. */
	struct ki_slot *slot = ki_slot_enter();

	if (!slot || atomic_load(&kiln->closing)) {
		ki_mutex_lock(&kiln->mutex);
		atomic_fetch_sub(&kiln->calls, 1);
		ki_cond_signal_all(&kiln->no_calls);
		ki_mutex_unlock(&kiln->mutex);
	} else if (atomic_fetch_sub(&kiln->calls, 1) == 1 &&
		   atomic_load(&kiln->closing)) {
		ki_mutex_lock(&kiln->mutex);
		ki_cond_signal_all(&kiln->no_calls);
		ki_mutex_unlock(&kiln->mutex);
	}
	if (slot)
		ki_slot_leave(slot);
}

/* The same for a thread that is new, or whose place another thread has. */
COLD static enum kiln_status hot_by_call(struct kiln *kiln,
					 const struct kiln_key *key,
					 struct kiln_blob **out_blob,
					 struct ki_slot **inout_slot)
{
	if (*inout_slot)
		return KILN_MISS;
	*inout_slot = ki_slot_get();
	return *inout_slot ? ki_hot_look(kiln, key, *inout_slot, out_blob)
			   : KILN_MISS;
}

/* Of what a glance found. */
KI_HOT enum kiln_status hand_out_found(struct kiln *kiln, struct ki_slot *slot,
				       const struct kiln_glance *found,
				       struct kiln_blob **out_blob)
{
	uint64_t saved_ns = 0;

	*out_blob = ki_slot_handle(slot, found->value, found->value_size,
				   found->holder);
	if (__builtin_expect(!*out_blob, 0))
		return KILN_E_NO_MEMORY;
	if (found->metadata_size)
		(void)kiln_metadata_find_u64(found->metadata,
					     found->metadata_size,
					     KILN_META_BUILD_TIME, &saved_ns);
	ki_memory_count_hit_at(kiln->memory, slot, found->value_size, saved_ns);
	return KILN_OK;
}

/*
 * A look at the store from within the pin, where memory holds no values.
 * KILN_OK; else the slot is pinned, as ki_hot_look() leaves it, and the caller
 * leaves it (after KILN_MISS) or enters.
 */
KI_HOT enum kiln_status glance(struct kiln *kiln, const struct kiln_key *key,
			       struct ki_slot *slot,
			       struct kiln_blob **out_blob)
{
	struct kiln_tier *store = kiln->tiers[0];
	struct kiln_glance found;
	enum kiln_status status;

	if (__builtin_expect(!slot, 0))
		return KILN_E_TIMEOUT;
	ki_slot_pin(slot);
	/* The store is the only tier. */
	if (__builtin_expect(
		    atomic_load_explicit(&kiln->attention,
					 memory_order_acquire) ||
			    ki_generation_of(store) !=
				    atomic_load_explicit(&kiln->seen[0],
							 memory_order_relaxed),
		    0))
		return KILN_E_TIMEOUT;
	status = store->ops->glance(store, key, &found);
	if (!status)
		status = hand_out_found(kiln, slot, &found, out_blob);
	if (!status)
		ki_slot_leave(slot);
	return status;
}

/* Go on from a miss of ki_hot_look(), which has pinned the slot, if any. */
static enum kiln_status enter_from(struct kiln *kiln, struct ki_slot *slot)
{
	if (!slot)
		return ki_kiln_enter(kiln);
	atomic_fetch_add(&kiln->calls, 1);
	ki_slot_leave(slot);
	if (!atomic_load(&kiln->closing))
		return KILN_OK;
	ki_kiln_leave(kiln);
	return KILN_E_INVALID;
}

COLD static void trace(struct kiln *kiln, const struct kiln_key *key,
		       const char *what)
{
	char hex[2 * KILN_DIGEST_BYTES + 1];

	if (!kiln->log)
		return;
	ki_hex(key->digest, KILN_DIGEST_BYTES, hex);
	ki_kiln_log(kiln, KILN_LOG_TRACE, "%s: %s", hex, what);
}

void ki_kiln_log(const struct kiln *kiln, enum kiln_log_level level,
		 const char *format, ...)
{
	char message[1024];
	va_list args;

	if (!kiln->log)
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	kiln->log(kiln->log_arg, level, message);
}

struct kiln_tier *ki_kiln_store(const struct kiln *kiln)
{
	if (kiln->has_store || kiln->store_status == KILN_MISS)
		return kiln->n_tiers ? kiln->tiers[0] : NULL;
	return NULL;
}

/* ---- Whose an entry is ------------------------------------------------------ */

static void add_missing_u64(struct kiln_metadata *metadata,
			    enum kiln_metadata_field field, uint64_t value)
{
	const void *bytes, *data;
	size_t size, data_size;

	if (!kiln_metadata_bytes(metadata, &bytes, &size) &&
	    kiln_metadata_find(bytes, size, field, &data, &data_size))
		kiln_metadata_add_u64(metadata, field, value);
}

static void add_missing_string(struct kiln_metadata *metadata,
			       enum kiln_metadata_field field,
			       const char *value)
{
	const void *bytes, *data;
	size_t size, data_size;

	if (value && !kiln_metadata_bytes(metadata, &bytes, &size) &&
	    kiln_metadata_find(bytes, size, field, &data, &data_size))
		kiln_metadata_add_string(metadata, field, value);
}

const char *ki_kiln_application(const struct kiln *kiln, char path[KI_PATH_MAX])
{
	if (kiln->application)
		return *kiln->application ? kiln->application : NULL;
	return ki_executable(path) ? NULL : path;
}

static void add_application(const struct kiln *kiln,
			    struct kiln_metadata *metadata)
{
	char path[KI_PATH_MAX];

	add_missing_string(metadata, KILN_META_APPLICATION,
			   ki_kiln_application(kiln, path));
}

static void add_maker(const struct kiln *kiln, struct kiln_metadata *metadata)
{
	add_application(kiln, metadata);
	add_missing_string(metadata, KILN_META_NAMESPACE, kiln->name_space);
}

/* Its canonical bytes, made once; NULL without memory. */
static const struct kiln_blob *maker_of(struct kiln *kiln)
{
	struct kiln_blob *before = atomic_load(&kiln->maker), *made = NULL;
	struct kiln_metadata *metadata;
	const void *bytes;
	size_t size;

	if (before)
		return before;
	metadata = kiln_metadata_new();
	add_maker(kiln, metadata);
	if (kiln_metadata_bytes(metadata, &bytes, &size) ||
	    kiln_blob_copy(bytes, size, &made))
		made = NULL;
	kiln_metadata_free(metadata);
	if (made &&
	    !atomic_compare_exchange_strong(&kiln->maker, &before, made)) {
		kiln_blob_unref(made);
		made = before;
	}
	return made;
}

static int says(const void *bytes, size_t size, enum kiln_metadata_field field)
{
	const void *data;
	size_t data_size;

	return !kiln_metadata_find(bytes, size, field, &data, &data_size);
}

/* As the maker has it. */
static void add_missing_of(struct kiln_metadata *metadata,
			   enum kiln_metadata_field field,
			   const struct kiln_blob *maker)
{
	const void *bytes, *data;
	size_t size, data_size;

	if (!kiln_metadata_bytes(metadata, &bytes, &size) &&
	    !says(bytes, size, field) &&
	    !kiln_metadata_find(kiln_blob_data(maker), kiln_blob_size(maker),
				field, &data, &data_size))
		kiln_metadata_add(metadata, field, data, data_size);
}

/*
 * Whose entry it is, where a put does not say it: in *out_made, if that is not NULL,
 * else in the bytes.  Bookkeeping is nobody's, unless it says so, of a session all are
 * of one maker, and what is signed stays as it is.
 */
static enum kiln_status name_maker(struct kiln *kiln,
				   struct kiln_metadata **out_made,
				   const void **inout_bytes, size_t *inout_size)
{
	const void *bytes = *inout_bytes;
	const size_t size = *inout_size;
	const struct kiln_blob *maker;
	enum kiln_status status;

	*out_made = NULL;
	if ((kiln->flags & KILN_OPEN_SESSION) || !kiln->n_tiers ||
	    (says(bytes, size, KILN_META_APPLICATION) &&
	     (!kiln->name_space || says(bytes, size, KILN_META_NAMESPACE))) ||
	    says(bytes, size, KILN_META_FLAGS) ||
	    says(bytes, size, KILN_META_SIGNATURE))
		return KILN_OK;
	maker = maker_of(kiln);
	if (!maker)
		return KILN_E_NO_MEMORY;
	if (!size) {
		*inout_bytes = kiln_blob_data(maker);
		*inout_size = kiln_blob_size(maker);
		return KILN_OK;
	}
	status = kiln_metadata_from_bytes(bytes, size, out_made);
	if (status)
		return status;
	add_missing_of(*out_made, KILN_META_APPLICATION, maker);
	add_missing_of(*out_made, KILN_META_NAMESPACE, maker);
	return kiln_metadata_bytes(*out_made, inout_bytes, inout_size);
}

/* ---- Asking tiers ---------------------------------------------------------- */

static int is_live(void *arg, const struct kiln_blob *blob)
{
	struct kiln_tier *tier = arg;

	return tier->is_live(tier, blob);
}

/*
 * Drop from memory what a tier has removed or moved meanwhile.  Until that is
 * done nobody takes the hot path: threads that come by do the same once more.
 */
static void follow_generations(struct kiln *kiln)
{
	for (size_t i = 0; i < kiln->n_tiers; i++) {
		struct kiln_tier *tier = kiln->tiers[i];
		uint64_t now = ki_generation_of(tier);

		if (atomic_load(&kiln->seen[i]) == now)
			continue;
		if (tier->is_live)
			ki_memory_sweep(kiln->memory, is_live, tier);
		atomic_store(&kiln->seen[i], now);
	}
}

/*
 * A tier that moves things forgets who used them, and hits in memory do not
 * come to it: the first one after each move does.
 */
void ki_kiln_renew(void *arg, const struct kiln_key *key)
{
	struct kiln *kiln = arg;
	struct kiln_blob *blob;

	for (size_t i = 0; i < kiln->n_tiers; i++) {
		struct kiln_tier *tier = kiln->tiers[i];

		if (tier->is_live && !tier->ops->get(tier, key, &blob, NULL))
			kiln_blob_unref(blob);
	}
}

/* The log gets the first fault of each kind; the counters have them all. */
COLD static void tell_once(struct kiln *kiln, enum kiln_status status,
			   const char *what, unsigned shift)
{
	uint64_t bit = (uint64_t)1 << ((unsigned)-status + shift);

	/* Why a store is not in use was told when it was opened. */
	if (kiln->log && kiln->store_status >= 0 &&
	    !(atomic_fetch_or(&kiln->told, bit) & bit))
		ki_kiln_log(kiln, KILN_LOG_ERROR, "%s: %s", what,
			    kiln_status_name(status));
}

static int is_pack(const struct kiln *kiln, const struct kiln_tier *tier)
{
	for (size_t i = 0; i < kiln->n_packs; i++)
		if (kiln->packs[i].tier == tier)
			return 1;
	return 0;
}

/* Whether a tier's entries need signatures: those of a shared store. */
static int is_signed(const struct kiln *kiln, const struct kiln_tier *tier)
{
	return __builtin_expect(kiln->flags & KI_KILN_SIGNED, 0) &&
	       tier == kiln->tiers[0];
}

/* KILN_OK, or KILN_MISS with both dropped. */
COLD static enum kiln_status demand_signature(struct kiln *kiln,
					      const struct kiln_key *key,
					      struct kiln_blob *value,
					      struct kiln_blob *metadata)
{
	if (ki_kiln_is_vouched_for(kiln, key, value, metadata))
		return KILN_OK;
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return KILN_MISS;
}

/* A failing tier is a miss: here, for all tiers.  *reason is why.  Damage is
   told by the tier, which knows where; not by packs.  KILN_E_COLLISION is a
   miss, too, that some callers want to know of. */
static enum kiln_status ask(struct kiln *kiln, struct kiln_tier *tier,
			    const struct kiln_key *key,
			    struct kiln_blob **out_blob,
			    struct kiln_blob **out_metadata,
			    enum kiln_counter *reason)
{
	enum kiln_status status =
		tier->ops->get(tier, key, out_blob, out_metadata);

	if (status == KILN_OK && is_signed(kiln, tier)) {
		status = demand_signature(kiln, key, *out_blob, *out_metadata);
		if (status) {
			*reason = KILN_COUNT_MISS_UNSIGNED;
			tell_once(kiln, KILN_E_OWNER,
				  "the store has entries without a trusted "
				  "signature",
				  0);
		}
	}
	if (status == KILN_OK || status == KILN_MISS)
		return status;
	if (status == KILN_E_FORMAT) {
		*reason = KILN_COUNT_MISS_DAMAGED;
		if (is_pack(kiln, tier))
			tell_once(kiln, status, "a pack has damaged entries",
				  0);
	} else if (status == KILN_E_COLLISION) {
		ki_kiln_count(kiln, KILN_COUNT_COLLISIONS, 1);
		return status;
	} else {
		*reason = KILN_COUNT_MISS_UNAVAILABLE;
		tell_once(kiln, status,
			  is_pack(kiln, tier) ? "a pack cannot be read"
					      : "the store cannot be read",
			  0);
	}
	return KILN_MISS;
}

/* `outcome`: in the store, in a pack, or in the remote. */
static void count_hit(struct kiln *kiln, enum kiln_counter outcome,
		      const struct kiln_blob *value,
		      const struct kiln_blob *metadata)
{
	uint64_t saved_ns;

	ki_kiln_count(kiln, outcome, 1);
	ki_kiln_count(kiln, KILN_COUNT_BYTES_READ, kiln_blob_size(value));
	if (!kiln_metadata_find_u64(kiln_blob_data(metadata),
				    kiln_blob_size(metadata),
				    KILN_META_BUILD_TIME, &saved_ns))
		ki_kiln_count(kiln, KILN_COUNT_SAVED_NS, saved_ns);
}

static void count_put(struct kiln *kiln, enum kiln_status status, size_t size)
{
	switch (status) {
	case KILN_OK:
		ki_kiln_count(kiln, KILN_COUNT_PUTS, 1);
		ki_kiln_count(kiln, KILN_COUNT_BYTES_WRITTEN, size);
		return;
	case KILN_EXISTS:
		return;
	case KILN_E_READONLY:
		if (ki_kiln_writes(kiln))
			tell_once(kiln, status, "the store takes no entry", 32);
		return;
	case KILN_E_FULL:
		ki_kiln_count(kiln, KILN_COUNT_MISS_FULL, 1);
		break;
	case KILN_E_TIMEOUT:
		ki_kiln_count(kiln, KILN_COUNT_MISS_BUSY, 1);
		break;
	default:
		break;
	}
	if (status != KILN_E_TIMEOUT)
		tell_once(kiln, status, "the store takes no entry", 32);
	ki_kiln_count(kiln, KILN_COUNT_PUTS_DROPPED, 1);
}

static enum kiln_status put_plainly(struct kiln *kiln, struct kiln_tier *tier,
				    const struct kiln_key *key,
				    const void *metadata, size_t metadata_size,
				    const void *value, size_t value_size,
				    unsigned flags)
{
	if (is_signed(kiln, tier))
		return ki_kiln_put_signed(kiln, tier, key, metadata,
					  metadata_size, value, value_size,
					  flags);
	return tier->ops->put(tier, key, metadata, metadata_size, value,
			      value_size, flags);
}

/* Where there are quotas. */
COLD static enum kiln_status put_within_quota(
	struct kiln *kiln, struct kiln_tier *tier, const struct kiln_key *key,
	const void *metadata, size_t metadata_size, const void *value,
	size_t value_size, unsigned flags)
{
	struct ki_claim claim;
	enum kiln_status status = ki_quota_claim(
		kiln, metadata, metadata_size,
		key->record.size + metadata_size + value_size, &claim);

	if (status) {
		tell_once(kiln, KILN_E_FULL, "a namespace is at its quota", 32);
		return status;
	}
	status = put_plainly(kiln, tier, key, metadata, metadata_size, value,
			     value_size, flags);
	if (status)
		ki_quota_return(kiln, &claim);
	else
		ki_quota_confirm(kiln, &claim);
	return status;
}

static enum kiln_status put_in(struct kiln *kiln, struct kiln_tier *tier,
			       const struct kiln_key *key, const void *metadata,
			       size_t metadata_size, const void *value,
			       size_t value_size, unsigned flags)
{
	if (!ki_kiln_writes(kiln) || !tier->ops->put)
		return KILN_E_READONLY;
	if (tier == kiln->tiers[0] && ki_kiln_has_quotas(kiln))
		return put_within_quota(kiln, tier, key, metadata,
					metadata_size, value, value_size,
					flags);
	return put_plainly(kiln, tier, key, metadata, metadata_size, value,
			   value_size, flags);
}

enum kiln_status ki_kiln_put_in_store(struct kiln *kiln,
				      const struct kiln_key *key,
				      const void *metadata,
				      size_t metadata_size, const void *value,
				      size_t value_size)
{
	return put_in(kiln, kiln->tiers[0], key, metadata, metadata_size, value,
		      value_size, KILN_PUT_REPLACE);
}

enum kiln_status ki_kiln_get_from_store(struct kiln *kiln,
					const struct kiln_key *key,
					struct kiln_blob **out_value)
{
	enum kiln_counter reason;
	struct kiln_blob *metadata;
	enum kiln_status status =
		ask(kiln, kiln->tiers[0], key, out_value, &metadata, &reason);

	if (!status)
		kiln_blob_unref(metadata);
	return status;
}

/* The tiers before the one that knew learn it, unless something was removed
   since it was asked.  `outcome` is where it was found. */
static void backfill(struct kiln *kiln, size_t n_tiers,
		     enum kiln_counter outcome, const struct kiln_key *key,
		     const struct kiln_blob *value,
		     const struct kiln_blob *metadata, uint64_t changes)
{
	const void *bytes = kiln_blob_data(metadata);
	size_t size = kiln_blob_size(metadata);
	struct kiln_metadata *made = NULL;

	/* What comes from elsewhere is of whoever brought it here. */
	if (n_tiers && name_maker(kiln, &made, &bytes, &size))
		n_tiers = 0;
	while (n_tiers-- && ki_memory_changes(kiln->memory) == changes) {
		struct kiln_tier *tier = kiln->tiers[n_tiers];
		enum kiln_status status;

		if (outcome == KILN_COUNT_HITS_REMOTE &&
		    is_signed(kiln, tier) && !ki_kiln_keeps_remote(kiln))
			continue;
		status =
			put_in(kiln, tier, key, bytes, size,
			       kiln_blob_data(value), kiln_blob_size(value), 0);
		/* The removal may have passed this tier before the put. */
		if (!status && tier->ops->remove &&
		    ki_memory_changes(kiln->memory) != changes)
			(void)tier->ops->remove(tier, key);
	}
	kiln_metadata_free(made);
}

/* As ask(), of all packs in turn. */
static enum kiln_status ask_packs(struct kiln *kiln, const struct kiln_key *key,
				  struct kiln_blob **out_blob,
				  struct kiln_blob **out_metadata,
				  enum kiln_counter *reason)
{
	enum kiln_status status, answer = KILN_MISS;

	for (size_t i = 0; i < kiln->n_packs; i++) {
		if (!kiln->packs[i].tier)
			continue;
		status = ask(kiln, kiln->packs[i].tier, key, out_blob,
			     out_metadata, reason);
		if (!status)
			return status;
		if (status == KILN_E_COLLISION)
			answer = status;
	}
	return answer;
}

/* As ask(), of all there is on this machine; *outcome of a hit, too, is where.
   *out_n_vain: so many tiers are to be filled with what was found. */
static enum kiln_status ask_all(struct kiln *kiln, const struct kiln_key *key,
				struct kiln_blob **out_blob,
				struct kiln_blob **out_metadata,
				enum kiln_counter *outcome, size_t *out_n_vain)
{
	enum kiln_status status, answer = KILN_MISS;

	for (size_t i = 0;; i++) {
		/* Packs stand behind the store; of them nothing is copied. */
		if (i == (size_t)kiln->has_store && kiln->n_packs) {
			*out_n_vain = 0;
			status = ask_packs(kiln, key, out_blob, out_metadata,
					   outcome);
			if (!status) {
				*outcome = KILN_COUNT_HITS_PACK;
				return KILN_OK;
			}
			if (status == KILN_E_COLLISION)
				answer = status;
		}
		if (i == kiln->n_tiers)
			return answer;
		*out_n_vain = i;
		status = ask(kiln, kiln->tiers[i], key, out_blob, out_metadata,
			     outcome);
		if (!status) {
			*outcome = KILN_COUNT_HITS_STORE;
			return KILN_OK;
		}
		if (status == KILN_E_COLLISION)
			answer = status;
	}
}

/*
 * Find a key in the tiers, fastest first, then in the remote, and fill those asked
 * in vain.  KILN_OK, or KILN_MISS or KILN_E_COLLISION, with the counter that tells
 * how it ended, which is not counted here.
 */
static enum kiln_status find_in_tiers(struct kiln *kiln,
				      const struct kiln_key *key, int is_local,
				      struct kiln_blob **out_blob,
				      struct kiln_blob **out_metadata,
				      enum kiln_counter *out_outcome)
{
	struct kiln_blob *value, *metadata;
	enum kiln_status status;
	uint64_t changes;
	size_t n_vain;

	follow_generations(kiln);
	/* Orders leave the machine. */
	if (kiln->order && !kiln_key_is_local(key))
		ki_order_note(kiln->order, key);
	changes = ki_memory_changes(kiln->memory);
	*out_outcome = kiln->store_status < 0 ? KILN_COUNT_MISS_UNAVAILABLE
					      : KILN_COUNT_MISS_NEW;
	status = ask_all(kiln, key, &value, &metadata, out_outcome, &n_vain);
	if (status && kiln->remote && !is_local &&
	    !ki_kiln_ask_remote(kiln, key, &value, &metadata)) {
		*out_outcome = KILN_COUNT_HITS_REMOTE;
		n_vain = kiln->n_tiers;
		status = KILN_OK;
	}
	if (status)
		return status;
	backfill(kiln, n_vain, *out_outcome, key, value, metadata, changes);
	ki_memory_fill(kiln->memory, key, value, changes);
	trace(kiln, key,
	      *out_outcome == KILN_COUNT_HITS_REMOTE ? "hit in the remote"
	      : *out_outcome == KILN_COUNT_HITS_PACK ? "hit in a pack"
						     : "hit in the store");
	*out_blob = value;
	*out_metadata = metadata;
	return KILN_OK;
}

/* As ask_tiers(), of the remote alone.  What is known to be there is worth more of a
   wait than what somebody may have put there just now. */
static enum kiln_status ask_remote_again(struct kiln *kiln,
					 const struct kiln_key *key,
					 int is_there,
					 struct kiln_blob **out_blob)
{
	struct kiln_tier *tier = ki_remote_tier(kiln->remote);
	uint64_t changes = ki_memory_changes(kiln->memory);
	struct kiln_blob *metadata;
	enum kiln_status status;

	if (is_there)
		status = ki_remote_get_patiently(kiln->remote, key, LEASED_MS,
						 out_blob, &metadata);
	else
		status = tier->ops->get(tier, key, out_blob, &metadata);

	if (status)
		return status;
	backfill(kiln, kiln->n_tiers, KILN_COUNT_HITS_REMOTE, key, *out_blob,
		 metadata, changes);
	ki_memory_fill(kiln->memory, key, *out_blob, changes);
	count_hit(kiln, KILN_COUNT_HITS_REMOTE, *out_blob, metadata);
	kiln_blob_unref(metadata);
	return KILN_OK;
}

/* The value alone; a hit is counted, a miss is the caller's to count. */
static enum kiln_status ask_tiers(struct kiln *kiln, const struct kiln_key *key,
				  int is_local, struct kiln_blob **out_blob,
				  enum kiln_counter *out_outcome)
{
	struct kiln_blob *metadata;
	enum kiln_status status = find_in_tiers(kiln, key, is_local, out_blob,
						&metadata, out_outcome);

	if (!status) {
		count_hit(kiln, *out_outcome, *out_blob, metadata);
		kiln_blob_unref(metadata);
	}
	return status;
}

/* ---- Building -------------------------------------------------------------- */

/*
 * The key's build lock among processes, or NULL: without it two of them may
 * build, that is all.
 */
static struct kiln_tier_lock *lock_build(struct kiln *kiln,
					 const struct kiln_key *key,
					 const struct ki_flight *flight)
{
	struct kiln_tier *store = kiln->n_tiers ? kiln->tiers[0] : NULL;
	struct kiln_tier_lock *lock = NULL;
	enum kiln_status status;

	if (!store || !store->ops->lock || !ki_kiln_writes(kiln) ||
	    (kiln->flags & KILN_OPEN_NO_BUILD_LOCK))
		return NULL;
	status = store->ops->lock(store, key,
				  !flight || ki_flight_is_nested(flight)
					  ? 0
					  : kiln->lock_timeout_ms,
				  &lock);
	if (status == KILN_OK)
		return lock;
	if (status == KILN_E_TIMEOUT)
		ki_kiln_count(kiln, KILN_COUNT_LOCK_TIMEOUTS, 1);
	else
		ki_kiln_count(kiln, KILN_COUNT_NO_LOCKS, 1);
	return NULL;
}

/*
 * The key's lease among machines, after that lock and within its time; with a key
 * that is there by now (KILN_EXISTS), or without one, whoever has it not builds
 * all the same.
 */
static enum kiln_status lease_build(struct kiln *kiln,
				    const struct kiln_key *key,
				    const struct ki_flight *flight,
				    uint64_t start_ns,
				    struct kiln_tier_lock **out_lease)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct kiln_tier *tier = ki_remote_tier(kiln->remote);
	const uint64_t gone_ms = (sys->monotonic_ns(sys) - start_ns) / 1000000u;
	uint32_t left_ms = 0;
	enum kiln_status status;

	if (!ki_kiln_writes(kiln) || (kiln->flags & KILN_OPEN_NO_BUILD_LOCK))
		return KILN_E_UNSUPPORTED;
	if (flight && !ki_flight_is_nested(flight) &&
	    gone_ms < kiln->lock_timeout_ms)
		left_ms = kiln->lock_timeout_ms - (uint32_t)gone_ms;
	status = tier->ops->lock(tier, key, left_ms, out_lease);
	if (status == KILN_E_TIMEOUT)
		ki_kiln_count(kiln, KILN_COUNT_LOCK_TIMEOUTS, 1);
	return status;
}

/* What we know of a build, where build() did not say it. */
static void describe(const struct kiln *kiln, struct kiln_build_result *result,
		     uint64_t build_ns)
{
	if (!result->metadata)
		result->metadata = kiln_metadata_new();
	add_missing_u64(result->metadata, KILN_META_CREATED,
			ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000u);
	add_missing_u64(result->metadata, KILN_META_BUILD_TIME, build_ns);
	add_maker(kiln, result->metadata);
}

/*
 * Into all tiers.  The memory tier gets the first tier's own view of it, which
 * is shared with other processes and ends with the entry; the built blob only
 * if there is no such view.
 */
static void store_built(struct kiln *kiln, const struct kiln_key *key,
			const struct kiln_build_result *result)
{
	uint64_t changes = ki_memory_changes(kiln->memory);
	const void *metadata = NULL;
	size_t size = 0, value_size = kiln_blob_size(result->blob);
	struct kiln_blob *view;
	enum kiln_status first = KILN_MISS;

	(void)kiln_metadata_bytes(result->metadata, &metadata, &size);
	for (size_t i = 0; i < kiln->n_tiers; i++) {
		enum kiln_status status =
			put_in(kiln, kiln->tiers[i], key, metadata, size,
			       kiln_blob_data(result->blob), value_size, 0);

		if (!i) {
			count_put(kiln, status, value_size);
			first = status;
		}
	}
	ki_kiln_send(kiln, key, metadata, size, kiln_blob_data(result->blob),
		     value_size, 0);
	if (kiln->store_status < 0 && ki_kiln_writes(kiln))
		ki_kiln_count(kiln, KILN_COUNT_PUTS_DROPPED, 1);
	if (kiln->flags & KILN_OPEN_GUEST)
		return;
	/* A shared store's view would have to be verified anew. */
	if (first < 0 || first == KILN_MISS ||
	    is_signed(kiln, kiln->tiers[0]) ||
	    kiln->tiers[0]->ops->get(kiln->tiers[0], key, &view, NULL)) {
		ki_memory_fill(kiln->memory, key, result->blob, changes);
		return;
	}
	ki_memory_fill(kiln->memory, key, view, changes);
	kiln_blob_unref(view);
}

/* KILN_OK, KILN_E_BUILD, or KILN_E_INVALID: a success without a blob. */
static enum kiln_status run_build(struct kiln *kiln, const struct kiln_key *key,
				  kiln_build_fn *build, void *arg,
				  struct kiln_build_result *out_result)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint64_t start = sys->monotonic_ns(sys), build_ns;

	build(key, arg, out_result);
	build_ns = sys->monotonic_ns(sys) - start;
	out_result->source = KILN_FROM_BUILD;
	ki_kiln_count(kiln, KILN_COUNT_BUILDS, 1);
	ki_kiln_count(kiln, KILN_COUNT_BUILD_NS, build_ns);
	if (kiln->remote)
		ki_remote_note_build(kiln->remote, build_ns);
	if (out_result->kind != KILN_BUILD_OK) {
		if (out_result->kind != KILN_BUILD_UNCACHED)
			ki_kiln_count(kiln, KILN_COUNT_BUILD_FAILURES, 1);
		kiln_blob_unref(out_result->blob);
		out_result->blob = NULL;
		return KILN_E_BUILD;
	}
	if (!out_result->blob) {
		ki_kiln_log(kiln, KILN_LOG_ERROR,
			    "build() said KILN_BUILD_OK but gave no blob");
		return KILN_E_INVALID;
	}
	describe(kiln, out_result, build_ns);
	return KILN_OK;
}

/* Build, and give it to all. */
static enum kiln_status build_for_all(struct kiln *kiln,
				      const struct kiln_key *key,
				      enum kiln_counter reason,
				      kiln_build_fn *build, void *arg,
				      struct kiln_build_result *out_result)
{
	enum kiln_status status;

	ki_kiln_count(kiln, KILN_COUNT_MISSES, 1);
	ki_kiln_count(kiln, reason, 1);
	trace(kiln, key, "miss: building");
	status = run_build(kiln, key, build, arg, out_result);
	if (!status)
		store_built(kiln, key, out_result);
	return status;
}

/* The same of one machine at a time. */
static enum kiln_status build_by_lease(struct kiln *kiln,
				       const struct kiln_key *key,
				       const struct ki_flight *flight,
				       uint64_t start_ns,
				       enum kiln_counter reason,
				       kiln_build_fn *build, void *arg,
				       struct kiln_build_result *out_result)
{
	struct kiln_tier *tier = ki_remote_tier(kiln->remote);
	struct kiln_tier_lock *lease = NULL;
	enum kiln_status status =
		lease_build(kiln, key, flight, start_ns, &lease);
	const int is_news = status == KILN_OK || status == KILN_EXISTS;

	/* Whoever had it may have published. */
	if (is_news && !ask_remote_again(kiln, key, status == KILN_EXISTS,
					 &out_result->blob)) {
		out_result->source = KILN_FROM_REMOTE;
		status = KILN_OK;
	} else {
		status = build_for_all(kiln, key, reason, build, arg,
				       out_result);
	}
	if (lease)
		tier->ops->unlock(tier, lease);
	return status;
}

/* The leader's way, or that of one who had no memory for a flight, and waits
   for nobody.  *out_result is initialised, and stays the caller's. */
static enum kiln_status fetch_or_build(struct kiln *kiln,
				       const struct kiln_key *key,
				       const struct ki_flight *flight,
				       kiln_build_fn *build, void *arg,
				       struct kiln_build_result *out_result)
{
	struct kiln_tier_lock *lock = NULL;
	enum kiln_counter outcome;
	enum kiln_status status;
	uint64_t start_ns;

	out_result->source = KILN_FROM_STORE;
	status = ask_tiers(kiln, key, 0, &out_result->blob, &outcome);
	if (!status && outcome == KILN_COUNT_HITS_REMOTE)
		out_result->source = KILN_FROM_REMOTE;
	if (!status)
		return status;
	start_ns = kiln->remote ? ki_sys_posix.monotonic_ns(&ki_sys_posix) : 0;
	lock = lock_build(kiln, key, flight);
	if (lock) {
		enum kiln_counter again;

		/* Whoever had it may have published. */
		status = ask_tiers(kiln, key, 1, &out_result->blob, &again);
		if (!status)
			goto out;
	}
	if (kiln->remote && !kiln_key_is_local(key))
		status = build_by_lease(kiln, key, flight, start_ns, outcome,
					build, arg, out_result);
	else
		status = build_for_all(kiln, key, outcome, build, arg,
				       out_result);
out:
	if (lock)
		kiln->tiers[0]->ops->unlock(kiln->tiers[0], lock);
	return status;
}

/* ---- The one call ---------------------------------------------------------- */

static void hand_out(struct kiln_build_result *to,
		     const struct kiln_build_result *from)
{
	to->kind = from->kind;
	to->code = from->code;
	to->message = from->message;
	to->blob = from->blob;
	to->metadata = NULL;
	to->source = from->source;
}

static const char *words_of_source(enum kiln_source source)
{
	switch (source) {
	case KILN_FROM_MEMORY:
		return "hit in memory";
	case KILN_FROM_FLIGHT:
		return "waited for another thread's build";
	case KILN_FROM_FAILURE:
		return "a kept failure";
	case KILN_FROM_STORE:
	case KILN_FROM_BUILD:
	case KILN_FROM_REMOTE:
		break;
	}
	return "found";
}

enum kiln_status ki_get_or_build_slowly(struct kiln *kiln,
					const struct kiln_key *key,
					kiln_build_fn *build, void *arg,
					struct kiln_build_result *result,
					struct ki_slot *slot)
{
	struct kiln_build_result mine;
	struct ki_flight *flight;
	struct kiln_blob *blob;
	enum kiln_status status;

	if (!hot_by_call(kiln, key, &blob, &slot)) {
		ki_hand_out_hit(result, blob, KILN_FROM_MEMORY);
		return KILN_OK;
	}
	status = enter_from(kiln, slot);
	if (status)
		return status;
	kiln_build_result_init(&mine);
	follow_generations(kiln);
	status = ki_memory_begin(kiln->memory, key, &mine, &flight);
	if (status == KILN_E_NO_MEMORY) {
		/* Two threads may build, that is all. */
		status = fetch_or_build(kiln, key, NULL, build, arg, &mine);
	} else if (status == KILN_MISS) {
		status = fetch_or_build(kiln, key, flight, build, arg, &mine);
		ki_memory_finish(kiln->memory, flight,
				 status == KILN_E_BUILD ? KILN_OK : status,
				 &mine);
	} else if (!status) {
		trace(kiln, key, words_of_source(mine.source));
		if (mine.kind != KILN_BUILD_OK)
			status = KILN_E_BUILD;
	}
	kiln_metadata_free(mine.metadata);
	mine.metadata = NULL;
	if (status == KILN_OK || status == KILN_E_BUILD)
		hand_out(result, &mine);
	else
		kiln_build_result_fini(&mine);
	ki_kiln_tick(kiln);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status ki_get_or_build_by_glance(struct kiln *kiln,
					   const struct kiln_key *key,
					   kiln_build_fn *build, void *arg,
					   struct kiln_build_result *result,
					   struct ki_slot *slot)
{
	struct kiln_blob *blob;

	if (__builtin_expect(glance(kiln, key, slot, &blob), 0))
		return ki_get_or_build_slowly(kiln, key, build, arg, result,
					      slot);
	ki_hand_out_hit(result, blob, KILN_FROM_STORE);
	return KILN_OK;
}

enum kiln_status ki_get_or_build(struct kiln *kiln, const struct kiln_key *key,
				 kiln_build_fn *build, void *arg,
				 struct kiln_build_result *result,
				 struct ki_slot *slot)
{
	return ki_hot_get_or_build(kiln, key, build, arg, result, slot);
}

ki_get_or_build_fn *_Atomic ki_get_or_build_chosen = ki_get_or_build;

void ki_get_or_build_choose(void)
{
#if defined(__x86_64__)
	if (ki_wide_is_there())
		atomic_store_explicit(&ki_get_or_build_chosen,
				      ki_wide_get_or_build,
				      memory_order_relaxed);
#endif
}

/* ---- Parts of it ----------------------------------------------------------- */

/* Why a key is new is known to whoever asks: the rest is counted here. */
static void count_miss(struct kiln *kiln, const struct kiln_key *key,
		       enum kiln_counter reason)
{
	ki_kiln_count(kiln, KILN_COUNT_MISSES, 1);
	ki_kiln_count(kiln, reason, reason != KILN_COUNT_MISS_NEW);
	trace(kiln, key, "miss");
}

COLD static enum kiln_status get_slowly(struct kiln *kiln,
					const struct kiln_key *key,
					struct kiln_blob **out_blob,
					struct ki_slot *slot)
{
	enum kiln_counter reason;
	enum kiln_status status;

	if (!hot_by_call(kiln, key, out_blob, &slot))
		return KILN_OK;
	status = enter_from(kiln, slot);
	if (status)
		return status;
	follow_generations(kiln);
	status = ki_memory_get(kiln->memory, key, out_blob);
	if (!status)
		trace(kiln, key, "hit in memory");
	else
		status = ask_tiers(kiln, key, 0, out_blob, &reason);
	if (status)
		count_miss(kiln, key, reason);
	ki_kiln_tick(kiln);
	ki_kiln_leave(kiln);
	return status;
}

/* Apart from hot(), whose many registers it need not save. */
static __attribute__((noinline)) enum kiln_status get_by_glance(
	struct kiln *kiln, const struct kiln_key *key,
	struct kiln_blob **out_blob, struct ki_slot *slot)
{
	enum kiln_status status = glance(kiln, key, slot, out_blob);

	if (status == KILN_MISS && !kiln->remote) {
		ki_memory_count_miss_at(kiln->memory, slot);
		ki_slot_leave(slot);
	} else if (__builtin_expect(status, 0)) {
		return get_slowly(kiln, key, out_blob, slot);
	}
	return status;
}

enum kiln_status ki_get(struct kiln *kiln, const struct kiln_key *key,
			struct kiln_blob **out_blob, struct ki_slot *slot)
{
	enum kiln_status status = ki_hot_check(kiln, key);

	if (__builtin_expect(status || !out_blob, 0))
		return status ? status : KILN_E_INVALID;
	if (kiln->glances)
		return get_by_glance(kiln, key, out_blob, slot);
	if (__builtin_expect(ki_hot_look(kiln, key, slot, out_blob), 0))
		return get_slowly(kiln, key, out_blob, slot);
	return KILN_OK;
}

/* The memory tier has no metadata: it answers only where the tiers don't. */
static enum kiln_status find_entry(struct kiln *kiln,
				   const struct kiln_key *key,
				   struct kiln_blob **out_blob,
				   struct kiln_blob **out_metadata,
				   enum kiln_counter *out_outcome)
{
	struct kiln_blob *value, *metadata;
	enum kiln_status status;

	status = find_in_tiers(kiln, key, 0, out_blob, out_metadata,
			       out_outcome);
	if (!status)
		return status;
	if (ki_memory_get(kiln->memory, key, &value))
		return KILN_MISS;
	status = kiln_blob_copy(NULL, 0, &metadata);
	if (status) {
		kiln_blob_unref(value);
		return status;
	}
	*out_outcome = KILN_COUNT_HITS_MEMORY;
	*out_blob = value;
	*out_metadata = metadata;
	return KILN_OK;
}

enum kiln_status kiln_get_entry(struct kiln *kiln, const struct kiln_key *key,
				struct kiln_blob **out_blob,
				struct kiln_blob **out_metadata)
{
	enum kiln_counter outcome;
	enum kiln_status status;

	if (!key || !key->finished)
		return KILN_E_INVALID;
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	status = find_entry(kiln, key, out_blob, out_metadata, &outcome);
	if (status == KILN_MISS)
		count_miss(kiln, key, outcome);
	else if (!status && outcome != KILN_COUNT_HITS_MEMORY)
		count_hit(kiln, outcome, *out_blob, *out_metadata);
	ki_kiln_tick(kiln);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_find_entry(struct kiln *kiln, const struct kiln_key *key,
				 struct kiln_blob **out_blob,
				 struct kiln_blob **out_metadata,
				 enum kiln_counter *out_outcome)
{
	enum kiln_status status;

	*out_outcome = KILN_COUNT_MISS_UNAVAILABLE;
	if (!key || !key->finished)
		return KILN_E_INVALID;
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	status = find_entry(kiln, key, out_blob, out_metadata, out_outcome);
	ki_kiln_leave(kiln);
	return status;
}

void kiln_count_lookup(struct kiln *kiln, enum kiln_counter outcome,
		       const struct kiln_blob *blob,
		       const struct kiln_blob *metadata)
{
	if (ki_kiln_enter(kiln))
		return;
	if (outcome == KILN_COUNT_HITS_STORE ||
	    outcome == KILN_COUNT_HITS_PACK ||
	    outcome == KILN_COUNT_HITS_REMOTE) {
		count_hit(kiln, outcome, blob, metadata);
	} else if (outcome != KILN_COUNT_HITS_MEMORY) {
		ki_kiln_count(kiln, KILN_COUNT_MISSES, 1);
		ki_kiln_count(kiln, outcome, 1);
	}
	ki_kiln_tick(kiln);
	ki_kiln_leave(kiln);
}

enum kiln_status kiln_peek(struct kiln *kiln, const struct kiln_key *key,
			   struct kiln_blob **out_blob,
			   struct kiln_blob **out_metadata)
{
	enum kiln_status status;

	if (!key || !key->finished)
		return KILN_E_INVALID;
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	status = KILN_MISS;
	for (size_t i = 0; i < kiln->n_tiers && status; i++) {
		status = kiln->tiers[i]->ops->get(kiln->tiers[i], key, out_blob,
						  out_metadata);
		if (!status && is_signed(kiln, kiln->tiers[i]))
			status = demand_signature(kiln, key, *out_blob,
						  *out_metadata);
	}
	for (size_t i = 0; i < kiln->n_packs && status; i++)
		if (kiln->packs[i].tier)
			status = kiln->packs[i].tier->ops->get(
				kiln->packs[i].tier, key, out_blob,
				out_metadata);
	ki_kiln_leave(kiln);
	return status ? KILN_MISS : KILN_OK;
}

/* For a kiln whose store, if any, cannot have it. */
static enum kiln_status put_in_memory(struct kiln *kiln,
				      const struct kiln_key *key,
				      const void *data, size_t size,
				      unsigned flags)
{
	struct kiln_blob *blob;
	enum kiln_status status = kiln_blob_copy(data, size, &blob);

	if (status)
		return status;
	if (flags & KILN_PUT_REPLACE)
		ki_memory_put(kiln->memory, key, blob);
	else if (ki_memory_add(kiln->memory, key, blob) == KILN_EXISTS)
		status = KILN_EXISTS;
	kiln_blob_unref(blob);
	return status;
}

/* The first tier decides, and the others follow. */
static enum kiln_status put_in_tiers(struct kiln *kiln,
				     const struct kiln_key *key,
				     const void *metadata, size_t metadata_size,
				     const void *data, size_t size,
				     unsigned flags)
{
	enum kiln_status first = KILN_OK;

	for (size_t i = 0; i < kiln->n_tiers; i++) {
		enum kiln_status status =
			put_in(kiln, kiln->tiers[i], key, metadata,
			       metadata_size, data, size, flags);

		if (!i) {
			first = status;
			count_put(kiln, status, size);
		}
		if (first == KILN_EXISTS)
			break;
	}
	return first;
}

/* Whether what the store did not take is not in memory either. */
static int refuses(const struct kiln *kiln)
{
	return kiln->n_tiers && (kiln->flags & KILN_OPEN_SESSION);
}

enum kiln_status kiln_put(struct kiln *kiln, const struct kiln_key *key,
			  const void *data, size_t size,
			  const struct kiln_metadata *metadata, unsigned flags)
{
	struct kiln_metadata *made = NULL;
	const void *bytes = NULL;
	size_t bytes_size = 0;
	enum kiln_status status, in_memory;

	if (!key || !key->finished || (!data && size) ||
	    (flags & ~KILN_PUT_REPLACE))
		return KILN_E_INVALID;
	if (metadata) {
		status = kiln_metadata_bytes(metadata, &bytes, &bytes_size);
		if (status)
			return status;
	}
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	status = name_maker(kiln, &made, &bytes, &bytes_size);
	if (!status)
		status = put_in_tiers(kiln, key, bytes, bytes_size, data, size,
				      flags);
	if (status != KILN_EXISTS)
		ki_kiln_send(kiln, key, bytes, bytes_size, data, size, flags);
	kiln_metadata_free(made);
	if (kiln->n_tiers && status == KILN_OK) {
		/* The next look-up brings the tier's own view. */
		ki_memory_remove(kiln->memory, key);
	} else if (status != KILN_EXISTS && !refuses(kiln)) {
		in_memory = put_in_memory(kiln, key, data, size, flags);
		if (status == KILN_OK)
			status = in_memory;
	}
	if (status == KILN_OK && kiln->store_status < 0) {
		count_put(kiln, kiln->store_status, size);
		status = kiln->store_status;
	}
	trace(kiln, key, kiln_status_name(status));
	ki_kiln_tick(kiln);
	ki_kiln_leave(kiln);
	return status;
}

/*
 * From slow to fast, memory last: what a slower tier still has must not be
 * found and brought back while the faster ones are emptied.  Memory besides
 * before each tier, which tells those that are bringing it back just then.
 */
enum kiln_status kiln_remove(struct kiln *kiln, const struct kiln_key *key)
{
	enum kiln_status status, result = KILN_MISS, failed = KILN_OK;

	if (!key || !key->finished)
		return KILN_E_INVALID;
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	for (size_t i = kiln->n_tiers; i--;) {
		struct kiln_tier *tier = kiln->tiers[i];

		if (!ki_memory_remove(kiln->memory, key))
			result = KILN_OK;
		status = ki_kiln_writes(kiln) && tier->ops->remove
				 ? tier->ops->remove(tier, key)
				 : KILN_E_READONLY;
		if (status == KILN_OK)
			result = KILN_OK;
		else if (status < 0)
			failed = status;
	}
	if (!ki_memory_remove(kiln->memory, key))
		result = KILN_OK;
	/* Servers keep it until the next put, which then replaces it. */
	if (kiln->remote && ki_kiln_writes(kiln))
		(void)ki_remote_tier(kiln->remote)
			->ops->remove(ki_remote_tier(kiln->remote), key);
	if (ki_kiln_has_in_pack(kiln, key))
		failed = KILN_E_READONLY;
	ki_kiln_leave(kiln);
	return failed ? failed : result;
}

enum kiln_status kiln_wipe(struct kiln *kiln)
{
	enum kiln_status status = ki_kiln_enter(kiln), failed = KILN_OK;

	if (status)
		return status;
	for (size_t i = kiln->n_tiers; i--;) {
		struct kiln_tier *tier = kiln->tiers[i];

		ki_memory_wipe(kiln->memory);
		status = ki_kiln_writes(kiln) && tier->ops->wipe
				 ? tier->ops->wipe(tier)
				 : KILN_E_READONLY;
		if (status < 0)
			failed = status;
	}
	ki_memory_wipe(kiln->memory);
	if (ki_kiln_has_quotas(kiln) && ki_kiln_writes(kiln))
		ki_quotas_wiped(kiln);
	ki_kiln_leave(kiln);
	return failed;
}

uint64_t kiln_generation(const struct kiln *kiln)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < kiln->n_tiers; i++)
		sum += ki_generation_of(kiln->tiers[i]);
	return sum;
}

void kiln_prefetch(struct kiln *kiln, const struct kiln_key *const *keys,
		   size_t n_keys)
{
	if (ki_kiln_enter(kiln))
		return;
	for (size_t i = 0; i < kiln->n_tiers; i++)
		if (kiln->tiers[i]->ops->prefetch)
			kiln->tiers[i]->ops->prefetch(kiln->tiers[i], keys,
						      n_keys);
	for (size_t i = 0; i < kiln->n_packs; i++)
		if (kiln->packs[i].tier)
			kiln->packs[i].tier->ops->prefetch(kiln->packs[i].tier,
							   keys, n_keys);
	if (kiln->remote)
		ki_remote_tier(kiln->remote)
			->ops->prefetch(ki_remote_tier(kiln->remote), keys,
					n_keys);
	ki_kiln_leave(kiln);
}
