/* SPDX-License-Identifier: MIT */

/*
 * A look-up at the remote:
 *
 *	quiet?  a comparison, and a miss
 *	GET  -> MISS   how long it is not worth asking again, and why
 *	     -> ITEM   opened here: signature, key, checksum
 *			  good    VERDICT good, if it changes anything; the value
 *			  not     VERDICT bad; GET of the levels behind
 *
 * What goes wrong is counted here, where it is known what it was; the tier's
 * caller sees a miss.
 */

#include "remote/remote.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "key/key.h"
#include "remote/ahead.h"
#include "remote/connection.h"
#include "remote/patience.h"

#define NS_OF_MS ((uint64_t)1000000)
/* What a helper that lives may take besides: it answers from memory. */
#define GRACE_NS       (5 * NS_OF_MS)
#define LEASE_GRACE_NS (200 * NS_OF_MS)
#define LEASE_FIRST_MS 50u /* also of who may not wait */
#define LEASE_SLICE_MS 1000u
#define LEASE_DEAR_NS  (60000 * NS_OF_MS)
#define NO_HELPER_NS   ((uint64_t)1000000000)
#define LEVELS_MAX     8
#define ALL_LEVELS     UINT32_MAX

enum told { NO_HELPER = 1, UNSIGNED = 2, UNTRUSTING = 4, STRANGE = 8 };

struct ki_remote {
	struct kiln_tier tier; /* first */
	/* Fixed. */
	struct ki_remote_options options;
	struct ki_connection *connection;
	/* Of their own locks. */
	struct ki_patience patience;
	struct ki_ahead ahead;
	/* Atomic. */
	_Atomic uint64_t capabilities; /* of the helper, once known */
	_Atomic int is_known;
	_Atomic uint64_t leases_from_ns; /* too dear until then */
	_Atomic unsigned told;		 /* what the log has had */
};

/* What is said when it ends, for which there must be memory then. */
struct kiln_tier_lock {
	struct ki_note unlease; /* first */
	int is_open; /* there was no answer, and one may come that grants it */
};

static struct ki_remote *of(struct kiln_tier *tier)
{
	return (struct ki_remote *)tier;
}

/* ---- Telling ---------------------------------------------------------------- */

static void count(const struct ki_remote *remote, enum kiln_counter counter,
		  uint64_t n)
{
	if (remote->options.count)
		remote->options.count(remote->options.count_arg, counter, n);
}

static void tell_once(struct ki_remote *remote, enum told what,
		      enum kiln_log_level level, const char *message)
{
	if (remote->options.log &&
	    !(atomic_fetch_or(&remote->told, (unsigned)what) & what))
		remote->options.log(remote->options.log_arg, level, message);
}

static uint64_t now_of(const struct ki_remote *remote)
{
	return remote->options.sys->monotonic_ns(remote->options.sys);
}

static void take_welcome(void *arg, uint64_t capabilities, uint32_t later_ms)
{
	struct ki_remote *remote = arg;

	atomic_store(&remote->capabilities, capabilities);
	atomic_store(&remote->is_known, 1);
	if (later_ms)
		ki_patience_be_quiet(&remote->patience,
				     now_of(remote) + later_ms * NS_OF_MS);
}

static int can(const struct ki_remote *remote, uint64_t capability)
{
	return !atomic_load(&remote->is_known) ||
	       (atomic_load(&remote->capabilities) & capability);
}

/* What became of a request, for the times to come. */
static void note(struct ki_remote *remote, enum kiln_status status)
{
	switch (status) {
	case KILN_OK:
		ki_patience_note_answer(&remote->patience);
		return;
	case KILN_E_UNSUPPORTED:
		tell_once(remote, NO_HELPER, KILN_LOG_NOTE,
			  "remote: there is no kiln-remote to ask; kiln run "
			  "and kiln_remote_start() start it");
		ki_patience_be_quiet(&remote->patience,
				     now_of(remote) + NO_HELPER_NS);
		return;
	case KILN_E_NO_MEMORY:
		return;
	case KILN_E_TIMEOUT:
		count(remote, KILN_COUNT_REMOTE_LATE, 1);
		break;
	case KILN_E_FORMAT:
		tell_once(remote, STRANGE, KILN_LOG_WARNING,
			  "remote: kiln-remote does not speak our protocol");
		count(remote, KILN_COUNT_REMOTE_FAULTS, 1);
		break;
	default:
		count(remote, KILN_COUNT_REMOTE_FAULTS, 1);
		break;
	}
	ki_patience_note_fault(&remote->patience, now_of(remote));
}

/* ---- Requests --------------------------------------------------------------- */

static void name_of(const struct ki_remote *remote, const struct kiln_key *key,
		    uint8_t out[KI_REMOTE_NAME_BYTES])
{
	uint8_t digest[KI_BLAKE2B_BYTES];

	ki_blake2b(key->record.data, key->record.size, digest);
	ki_remote_name(digest, remote->options.user_version, out);
}

static enum kiln_status tell(struct ki_remote *remote, uint8_t type,
			     uint8_t flags, const void *body, size_t size,
			     int fd_along)
{
	const struct ki_request request = { .type = type,
					    .flags = flags,
					    .body = body,
					    .size = size,
					    .fd_along = fd_along };
	enum kiln_status status;

	ki_connection_begin(remote->connection);
	status = ki_connection_tell(remote->connection, &request);
	ki_connection_finish(remote->connection);
	return status;
}

/* What is dropped is a fault. */
static enum kiln_status tell_verdict(struct ki_remote *remote,
				     const uint8_t *name, uint32_t level,
				     int is_good, uint8_t flags)
{
	uint8_t body[KI_FRAME_VERDICT_BYTES];
	const struct ki_request request = { .type = KI_FRAME_VERDICT,
					    .flags = flags,
					    .body = body,
					    .size = sizeof(body),
					    .fd_along = -1 };
	enum kiln_status status;

	memcpy(body, name, KI_REMOTE_NAME_BYTES);
	ki_put_u32(body + KI_REMOTE_NAME_BYTES, level);
	ki_put_u32(body + KI_REMOTE_NAME_BYTES + 4, (uint32_t)is_good);
	ki_connection_begin(remote->connection);
	status = ki_connection_tell_surely(remote->connection, &request);
	ki_connection_finish(remote->connection);
	if (status == KILN_E_FULL || status == KILN_E_NO_MEMORY)
		count(remote, KILN_COUNT_REMOTE_FAULTS, 1);
	return status;
}

static void fetch_ahead(struct ki_remote *remote, const uint8_t *name)
{
	const uint8_t *names;
	size_t n = ki_ahead_note(&remote->ahead, name, &names);

	while (n) {
		const size_t few =
			n < KI_REMOTE_NAMES_MAX ? n : KI_REMOTE_NAMES_MAX;

		if (tell(remote, KI_FRAME_PREFETCH, 0, names,
			 few * KI_REMOTE_NAME_BYTES, -1)) {
			ki_ahead_refused(&remote->ahead, names);
			return;
		}
		names += few * KI_REMOTE_NAME_BYTES;
		n -= few;
	}
}

/* ---- Getting ---------------------------------------------------------------- */

/* A look-up on its way. */
struct look {
	const struct kiln_key *key;
	uint8_t name[KI_REMOTE_NAME_BYTES];
	uint64_t wait_ns; /* at most, from now on; then, what it was */
	uint64_t deadline_ns;
	int is_again; /* that it is late was counted before */
	int is_late;  /* there was no answer, or it was "not yet" */
};

static enum kiln_status refuse(struct ki_remote *remote,
			       enum kiln_status status)
{
	if (status == KILN_E_NO_MEMORY)
		return status;
	if (status == KILN_E_OWNER) {
		count(remote, KILN_COUNT_REMOTE_UNSIGNED, 1);
		tell_once(remote, UNSIGNED, KILN_LOG_WARNING,
			  "remote: it has entries without a trusted signature, "
			  "which are not used");
	} else {
		count(remote, KILN_COUNT_REMOTE_DAMAGED, 1);
	}
	return KILN_MISS;
}

/* OK; MISS: refused, and the levels behind may know better.  The answer's body may
   become the value's. */
static enum kiln_status take_item(struct ki_remote *remote,
				  const struct look *look,
				  struct ki_answer *answer, uint32_t *out_level,
				  struct kiln_blob **out_value,
				  struct kiln_blob **out_metadata)
{
	const uint32_t about = ki_get_u32(answer->body + 4);
	enum kiln_status status;
	uint8_t flags = 0;

	*out_level = ki_get_u32(answer->body);
	status = ki_item_take(look->key, remote->options.user_version,
			      remote->options.trust, &answer->body,
			      KI_FRAME_ITEM_HEAD_BYTES,
			      answer->size - KI_FRAME_ITEM_HEAD_BYTES,
			      out_value, out_metadata);
	if (status == KILN_E_OWNER)
		flags = KI_REMOTE_VERDICT_WHOLE;
	if (status)
		status = refuse(remote, status);
	if (status ? status == KILN_MISS : !(about & KI_REMOTE_ITEM_NO_VERDICT))
		(void)tell_verdict(remote, look->name, *out_level, !status,
				   flags);
	return status;
}

static void take_miss(struct ki_remote *remote, struct look *look,
		      const struct ki_answer *answer)
{
	const uint32_t later_ms = ki_get_u32(answer->body);
	const uint32_t reasons = ki_get_u32(answer->body + 4);

	if (later_ms)
		ki_patience_be_quiet(&remote->patience,
				     now_of(remote) + later_ms * NS_OF_MS);
	look->is_late = (reasons & KI_REMOTE_LATE) != 0;
	if (look->is_late)
		count(remote, KILN_COUNT_REMOTE_LATE, !look->is_again);
	else if (reasons & (KI_REMOTE_FAULT | KI_REMOTE_REFUSED))
		count(remote, KILN_COUNT_REMOTE_FAULTS, 1);
	else if (reasons & KI_REMOTE_ABSENT)
		count(remote, KILN_COUNT_REMOTE_ABSENT, 1);
}

/* GET, of the levels from `first` on. */
static enum kiln_status ask(struct ki_remote *remote, const struct look *look,
			    uint32_t first, struct ki_answer *out_answer)
{
	const uint64_t now = now_of(remote);
	const uint64_t left =
		look->deadline_ns > now ? look->deadline_ns - now : 0;
	uint8_t body[KI_FRAME_GET_BYTES];
	const struct ki_request request = {
		.type = KI_FRAME_GET,
		.body = body,
		.size = sizeof(body),
		.fd_along = -1,
		.answer_max = KI_FRAME_ITEM_HEAD_BYTES + KI_REMOTE_ITEM_MAX
	};
	enum kiln_status status;

	memcpy(body, look->name, KI_REMOTE_NAME_BYTES);
	ki_put_u32(body + KI_REMOTE_NAME_BYTES, (uint32_t)(left / NS_OF_MS));
	ki_put_u32(body + KI_REMOTE_NAME_BYTES + 4, first);
	status = ki_connection_ask(remote->connection, &request,
				   now + left + ki_patience_scaled(GRACE_NS),
				   out_answer);
	if (!status && out_answer->type != KI_FRAME_ITEM &&
	    out_answer->type != KI_FRAME_MISS) {
		free(out_answer->body);
		status = KILN_E_FORMAT;
	}
	return status;
}

/* OK, MISS, NO_MEMORY. */
static enum kiln_status look_in_levels(struct ki_remote *remote,
				       struct look *look,
				       struct kiln_blob **out_value,
				       struct kiln_blob **out_metadata)
{
	uint32_t level = 0;

	for (unsigned n = 0; n < LEVELS_MAX; n++) {
		const uint32_t first = level;
		struct ki_answer answer;
		enum kiln_status status = ask(remote, look, first, &answer);

		note(remote, status);
		look->is_late = status != KILN_OK;
		if (status)
			return status == KILN_E_NO_MEMORY ? status : KILN_MISS;
		if (answer.type == KI_FRAME_MISS) {
			take_miss(remote, look, &answer);
			free(answer.body);
			return KILN_MISS;
		}
		status = take_item(remote, look, &answer, &level, out_value,
				   out_metadata);
		free(answer.body);
		if (status != KILN_MISS || level < first || level == UINT32_MAX)
			return status;
		level++;
	}
	return KILN_MISS;
}

static enum kiln_status look_up(struct ki_remote *remote, struct look *look,
				struct kiln_blob **out_value,
				struct kiln_blob **out_metadata)
{
	const uint64_t start = now_of(remote);
	enum kiln_status status;
	uint64_t waited;

	name_of(remote, look->key, look->name);
	look->deadline_ns = start + look->wait_ns;
	ki_connection_begin(remote->connection);
	fetch_ahead(remote, look->name);
	status = look_in_levels(remote, look, out_value, out_metadata);
	ki_connection_finish(remote->connection);
	waited = now_of(remote) - start;
	count(remote, KILN_COUNT_REMOTE_WAIT_NS, waited);
	look->wait_ns = waited;
	return status;
}

int ki_remote_takes(const struct ki_remote *remote)
{
	const struct ki_sys *sys = remote->options.sys;

	return can(remote, KI_REMOTE_CAN_PUT) &&
	       !ki_patience_is_quiet(&remote->patience, sys->coarse_ns(sys)) &&
	       ki_connection_can_be(remote->connection);
}

int ki_remote_is_worth_asking(struct ki_remote *remote)
{
	const struct ki_sys *sys = remote->options.sys;

	if (ki_patience_is_quiet(&remote->patience, sys->coarse_ns(sys)))
		return 0;
	if (!remote->options.trust || remote->options.trust->n_keys)
		return 1;
	tell_once(remote, UNTRUSTING, KILN_LOG_WARNING,
		  "remote: no key is trusted here, so nothing of it is used; "
		  "kiln key trust FILE, or remote-trust = transport");
	return 0;
}

int ki_remote_is_signed(const struct ki_remote *remote)
{
	return remote->options.trust != NULL;
}

uint64_t ki_remote_user_version(const struct ki_remote *remote)
{
	return remote->options.user_version;
}

/* The same of one key. */
static int is_asked(struct ki_remote *remote, const struct kiln_key *key)
{
	return !kiln_key_is_local(key) && ki_remote_is_worth_asking(remote);
}

static enum kiln_status get_within(struct ki_remote *remote,
				   const struct kiln_key *key, uint64_t wait_ns,
				   struct kiln_blob **out_value,
				   struct kiln_blob **out_metadata)
{
	struct look look = { .key = key, .wait_ns = wait_ns };
	enum kiln_status status;

	if (!is_asked(remote, key))
		return KILN_MISS;
	status = look_up(remote, &look, out_value, out_metadata);
	if (status)
		ki_patience_spend(look.wait_ns);
	return status;
}

static enum kiln_status remote_get(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   struct kiln_blob **out_value,
				   struct kiln_blob **out_metadata)
{
	struct ki_remote *remote = of(tier);

	return get_within(remote, key, ki_patience_wait_ns(&remote->patience),
			  out_value, out_metadata);
}

enum kiln_status ki_remote_get_patiently(struct ki_remote *remote,
					 const struct kiln_key *key,
					 uint32_t wait_ms,
					 struct kiln_blob **out_value,
					 struct kiln_blob **out_metadata)
{
	const uint64_t left = ki_patience_left_ns();

	return get_within(remote, key,
			  wait_ms * NS_OF_MS < left ? wait_ms * NS_OF_MS : left,
			  out_value, out_metadata);
}

enum kiln_status ki_remote_get_in_time(struct ki_remote *remote,
				       const struct kiln_key *key, int again,
				       struct kiln_blob **out_value,
				       struct kiln_blob **out_metadata)
{
	struct look look = {
		.key = key,
		.wait_ns = again ? 0 : ki_patience_wait_ns(&remote->patience),
		.is_again = again
	};
	enum kiln_status status;

	if (!is_asked(remote, key))
		return KILN_MISS;
	status = look_up(remote, &look, out_value, out_metadata);
	if (status)
		ki_patience_spend(look.wait_ns);
	return status == KILN_MISS && look.is_late ? KILN_E_TIMEOUT : status;
}

/* ---- Putting ---------------------------------------------------------------- */

static enum kiln_status put(struct ki_remote *remote,
			    const struct kiln_key *key, const void *metadata,
			    size_t metadata_size, const void *value,
			    size_t value_size, unsigned flags)
{
	const struct ki_sys *sys = remote->options.sys;
	const struct ki_piece pieces[] = {
		{ key->record.data, key->record.size },
		{ metadata, metadata_size },
		{ value, value_size },
	};
	uint8_t body[KI_FRAME_PUT_BYTES];
	enum kiln_status status;
	int fd;

	name_of(remote, key, body);
	ki_put_u64(body + 32, remote->options.user_version);
	ki_put_u64(body + 40, key->record.size);
	ki_put_u64(body + 48, metadata_size);
	ki_put_u64(body + 56, value_size);
	fd = sys->sealed_memory(sys, pieces, 3);
	if (fd < 0)
		return KILN_E_IO;
	status = tell(remote, KI_FRAME_PUT,
		      flags & KILN_PUT_REPLACE ? KI_REMOTE_PUT_REPLACE : 0,
		      body, sizeof(body), fd);
	(void)sys->close(sys, fd);
	/* One that does not read now is busy, not broken. */
	if (status != KILN_E_FULL)
		note(remote, status);
	return status;
}

static enum kiln_status hand_over(struct ki_remote *remote,
				  const struct kiln_key *key,
				  const void *metadata, size_t metadata_size,
				  const void *value, size_t value_size,
				  unsigned flags)
{
	const struct ki_sys *sys = remote->options.sys;
	enum kiln_status status;

	if (!can(remote, KI_REMOTE_CAN_PUT))
		return KILN_E_READONLY;
	if (value_size > KI_REMOTE_ITEM_MAX)
		return KILN_E_TOO_LARGE;
	if (ki_patience_is_quiet(&remote->patience, sys->coarse_ns(sys)))
		status = KILN_E_UNSUPPORTED;
	else
		status = put(remote, key, metadata, metadata_size, value,
			     value_size, flags);
	count(remote,
	      status ? KILN_COUNT_REMOTE_PUTS_DROPPED : KILN_COUNT_REMOTE_PUTS,
	      1);
	return status;
}

static enum kiln_status remote_put(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   const void *metadata, size_t metadata_size,
				   const void *value, size_t value_size,
				   unsigned flags)
{
	if (kiln_key_is_local(key) ||
	    ki_metadata_is_hidden(metadata, metadata_size))
		return KILN_E_INVALID;
	return hand_over(of(tier), key, metadata, metadata_size, value,
			 value_size, flags);
}

enum kiln_status ki_remote_put_order(struct ki_remote *remote,
				     const struct kiln_key *key,
				     const void *value, size_t value_size)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	const void *bytes;
	size_t size;
	enum kiln_status status;

	kiln_metadata_add_u64(metadata, KILN_META_FLAGS, KILN_ENTRY_HIDDEN);
	status = kiln_metadata_bytes(metadata, &bytes, &size);
	if (!status)
		status = hand_over(remote, key, bytes, size, value, value_size,
				   KILN_PUT_REPLACE);
	kiln_metadata_free(metadata);
	return status;
}

static enum kiln_status remote_remove(struct kiln_tier *tier,
				      const struct kiln_key *key)
{
	struct ki_remote *remote = of(tier);
	uint8_t name[KI_REMOTE_NAME_BYTES];

	if (!is_asked(remote, key))
		return KILN_MISS;
	name_of(remote, key, name);
	return tell_verdict(remote, name, ALL_LEVELS, 0, 0);
}

/* ---- Leases ----------------------------------------------------------------- */

/* One question, which whoever lives answers soon, however long the wait in all. */
static enum kiln_status ask_lease(struct ki_remote *remote,
				  struct kiln_tier_lock *lock, uint32_t wait_ms)
{
	uint8_t body[KI_FRAME_LEASE_BYTES];
	const struct ki_request request = { .type = KI_FRAME_LEASE,
					    .body = body,
					    .size = sizeof(body),
					    .fd_along = -1,
					    .sent_by =
						    &lock->unlease.connection };
	struct ki_answer answer;
	enum kiln_status status;

	memcpy(body, lock->unlease.body, KI_REMOTE_NAME_BYTES);
	ki_put_u32(body + KI_REMOTE_NAME_BYTES, wait_ms);
	status = ki_connection_ask(remote->connection, &request,
				   now_of(remote) + wait_ms * NS_OF_MS +
					   ki_patience_scaled(LEASE_GRACE_NS),
				   &answer);
	if (!status) {
		free(answer.body);
		if (answer.type != KI_FRAME_LEASED)
			status = KILN_E_FORMAT;
	}
	lock->is_open = status == KILN_E_TIMEOUT;
	note(remote, status);
	return status ? KILN_E_UNSUPPORTED : (enum kiln_status)answer.status;
}

/* To be told at once that nobody builds, or that there is no telling, may cost half
   of a build, as a look-up may: where it does not pay there are no leases for a
   while. */
static void weigh_lease(struct ki_remote *remote, uint64_t start_ns)
{
	const uint64_t now = now_of(remote);

	if (now - start_ns > ki_patience_worth_ns(&remote->patience))
		atomic_store(&remote->leases_from_ns, now + LEASE_DEAR_NS);
}

static int are_leases_dear(const struct ki_remote *remote)
{
	const struct ki_sys *sys = remote->options.sys;

	return sys->coarse_ns(sys) < atomic_load(&remote->leases_from_ns);
}

/* In slices, so that a helper that has stopped is noticed; the first is short. */
static enum kiln_status wait_for_lease(struct ki_remote *remote,
				       struct kiln_tier_lock *lock,
				       uint32_t timeout_ms)
{
	const uint64_t begin = now_of(remote);
	const uint64_t end = begin + timeout_ms * NS_OF_MS;
	uint32_t slice_ms = LEASE_FIRST_MS;
	enum kiln_status status;
	uint64_t now, start;

	for (;;) {
		start = now_of(remote);
		status = ask_lease(remote, lock, slice_ms);
		now = now_of(remote);
		/* One that does not wait is not waited for either. */
		if (status != KILN_E_TIMEOUT || now >= end ||
		    now - start < slice_ms * NS_OF_MS / 2)
			break;
		slice_ms = end - now < LEASE_SLICE_MS * NS_OF_MS
				   ? (uint32_t)((end - now) / NS_OF_MS) + 1
				   : LEASE_SLICE_MS;
	}
	if (status == KILN_E_UNSUPPORTED)
		count(remote, KILN_COUNT_REMOTE_NO_LEASES, 1);
	if (status == KILN_E_UNSUPPORTED ||
	    (!status && slice_ms == LEASE_FIRST_MS))
		weigh_lease(remote, begin);
	return status;
}

/* Taken over. */
static void give_back(struct ki_remote *remote, struct kiln_tier_lock *lock)
{
	ki_connection_begin(remote->connection);
	(void)ki_connection_note(remote->connection, &lock->unlease);
	ki_connection_finish(remote->connection);
}

/* A lease lives as long as its connection, which a guest has none of; and who gave
   no answer just now need not be asked for one.  One that may be granted yet, to
   nobody, is given back right behind the question. */
static enum kiln_status remote_lock(struct kiln_tier *tier,
				    const struct kiln_key *key,
				    uint32_t timeout_ms,
				    struct kiln_tier_lock **out_lock)
{
	struct ki_remote *remote = of(tier);
	struct kiln_tier_lock *lock;
	enum kiln_status status;

	if (!is_asked(remote, key) || atomic_load(&remote->patience.n_faults))
		return KILN_E_UNSUPPORTED;
	if (remote->options.is_guest || !can(remote, KI_REMOTE_CAN_LEASE) ||
	    are_leases_dear(remote)) {
		count(remote, KILN_COUNT_REMOTE_NO_LEASES, 1);
		return KILN_E_UNSUPPORTED;
	}
	lock = malloc(sizeof(*lock));
	if (!lock)
		return KILN_E_NO_MEMORY;
	lock->unlease.type = KI_FRAME_UNLEASE;
	lock->unlease.flags = 0;
	lock->unlease.size = KI_REMOTE_NAME_BYTES;
	name_of(remote, key, lock->unlease.body);
	ki_connection_begin(remote->connection);
	status = wait_for_lease(remote, lock, timeout_ms);
	ki_connection_finish(remote->connection);
	if (!status)
		*out_lock = lock;
	else if (lock->is_open)
		give_back(remote, lock);
	else
		free(lock);
	return status;
}

static void remote_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock)
{
	give_back(of(tier), lock);
}

/* ---- Ahead ------------------------------------------------------------------ */

/* Without keys it is a tick. */
static void remote_prefetch(struct kiln_tier *tier,
			    const struct kiln_key *const *keys, size_t n_keys)
{
	struct ki_remote *remote = of(tier);
	uint8_t names[64 * KI_REMOTE_NAME_BYTES];
	size_t n = 0;

	if (!n_keys)
		ki_connection_say_notes(remote->connection);
	for (size_t i = 0; i < n_keys; i++) {
		if (is_asked(remote, keys[i]))
			name_of(remote, keys[i],
				names + n++ * KI_REMOTE_NAME_BYTES);
		if (n && (n == 64 || i + 1 == n_keys)) {
			(void)tell(remote, KI_FRAME_PREFETCH, 0, names,
				   n * KI_REMOTE_NAME_BYTES, -1);
			n = 0;
		}
	}
}

void ki_remote_expect(struct ki_remote *remote, const uint8_t *names,
		      size_t n_names)
{
	ki_ahead_set(&remote->ahead, names, n_names);
}

void ki_remote_note_build(struct ki_remote *remote, uint64_t ns)
{
	ki_patience_note_build(&remote->patience, ns);
}

/* ---- Opening ---------------------------------------------------------------- */

static void remote_close(struct kiln_tier *tier)
{
	struct ki_remote *remote = of(tier);

	ki_connection_free(remote->connection);
	ki_ahead_fini(&remote->ahead);
	ki_patience_fini(&remote->patience);
	free(remote);
}

static const struct kiln_tier_ops ops = {
	.version = KILN_TIER_VERSION,
	.name = "remote",
	.get = remote_get,
	.put = remote_put,
	.remove = remote_remove,
	.prefetch = remote_prefetch,
	.lock = remote_lock,
	.unlock = remote_unlock,
	.close = remote_close,
};

enum kiln_status ki_remote_open(const struct ki_remote_options *options,
				struct ki_remote **out_remote)
{
	struct ki_remote *remote = calloc(1, sizeof(*remote));

	if (!remote)
		return KILN_E_NO_MEMORY;
	remote->tier.ops = &ops;
	remote->options = *options;
	remote->connection =
		ki_connection_new(options->sys, options->socket,
				  options->is_guest, take_welcome, remote);
	if (!remote->connection) {
		free(remote);
		return KILN_E_NO_MEMORY;
	}
	remote->options.socket = NULL;
	ki_patience_init(&remote->patience);
	ki_ahead_init(&remote->ahead);
	*out_remote = remote;
	return KILN_OK;
}
