/* SPDX-License-Identifier: MIT */

/*
 * Quotas of namespaces, for every kind of store.
 *
 *	put_in (cache.c)
 *	  state NONE ------ one relaxed read, and on
 *	  ki_quota_claim -- add the entry's bytes to the namespace's account, in
 *	                    NAME.quotas (store/quotas.h)
 *	    no room ------- count its entries anew (namespace.c), evict of them
 *	  the store's put
 *	  ki_quota_confirm - a counting that began meanwhile may have missed it: add
 *			    the bytes once more
 *	  ki_quota_return - it was not stored: take them off again
 *
 * An account only goes up by puts: nobody takes off what goes, whoever removes it
 * and for whatever reason.  So it may say too much, never too little as long as all
 * who put know of quotas, and is counted anew before anybody is refused.  Counting
 * takes its time, and others put meanwhile: what was on the account when it began is
 * replaced by what was found, what came since stays on it.  Of several who count at
 * once the first to end has the turn.  Killed between any two steps, the account says
 * too much.
 *
 * A put has COUNT_NS for all that.  Counting that takes longer goes on with the next
 * put of this kiln, and what is put until then is not stored.  An eighth of the
 * quota is set free at once, so that this is rare.
 *
 * Without quotas there is no file, which is known for a second (state).  No lock is
 * held while the store is asked.
 */

#include "core/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "store/quotas.h"

#define COUNT_NS      ((uint64_t)20 * 1000000)
#define LOCK_NS	      ((uint64_t)20 * 1000000)
#define CONFIRM_NS    ((uint64_t)200 * 1000000)	 /* it is stored already */
#define SET_NS	      ((uint64_t)2000 * 1000000) /* who sets one may wait */
#define FREED_AT_ONCE 8				 /* of a quota: 1 / this */

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

static int open_quotas(const struct kiln *kiln, enum ki_quotas_mode mode,
		       uint64_t wait_ns, struct ki_quotas **out_quotas)
{
	if (!kiln->quotas_path)
		return -ENOENT;
	return ki_quotas_open(&ki_sys_posix, kiln->quotas_path, kiln->flags,
			      mode, now_ns() + wait_ns, out_quotas);
}

int ki_kiln_open_quotas(struct kiln *kiln, const char *directory,
			const char *name)
{
	char path[KI_PATH_MAX], file[96];

	if (strlen(name) + sizeof("." KI_QUOTAS_END) > sizeof(file))
		return 1;
	strcat(strcpy(file, name), "." KI_QUOTAS_END);
	if (ki_path_join(path, directory, file))
		return 1;
	kiln->quotas_path = strdup(path);
	ki_kiln_doubt_quotas(kiln);
	return kiln->quotas_path != NULL;
}

void ki_kiln_close_quotas(struct kiln *kiln)
{
	ki_count_free(kiln->count);
	free(kiln->quotas_path);
}

/* ---- The account ----------------------------------------------------------- */

/* The row of a namespace that has a quota, made if need be; NULL: it has none. */
static struct ki_quota *row_of(struct ki_quotas *quotas, const char *name_space,
			       uint64_t *out_limit)
{
	struct ki_quota *row = ki_quotas_find(quotas, name_space), *others;

	if (!row) {
		others = ki_quotas_find(quotas, KILN_NAMESPACE_OTHERS);
		if (!others || !others->bytes_max)
			return NULL;
		row = ki_quotas_add(quotas, name_space);
	}
	if (!row)
		return NULL;
	*out_limit = ki_quotas_limit(quotas, row);
	return *out_limit ? row : NULL;
}

static int has_any(const struct ki_quotas *quotas)
{
	for (size_t i = 0; i < quotas->n; i++)
		if (quotas->rows[i].bytes_max)
			return 1;
	return 0;
}

/* Open to change the account of a namespace.  KILN_OK; KILN_MISS: it has none that
   can be had; KILN_E_TIMEOUT: others have the lock. */
static enum kiln_status begin_account(struct kiln *kiln, const char *name_space,
				      uint64_t wait_ns,
				      struct ki_quotas **out_quotas,
				      struct ki_quota **out_row,
				      uint64_t *out_limit)
{
	int err = open_quotas(kiln, KI_QUOTAS_CHANGE, wait_ns, out_quotas);

	if (err == -ETIMEDOUT)
		return KILN_E_TIMEOUT;
	/* Not asked for again before a second is over. */
	if (err) {
		atomic_store(&kiln->quotas_state, KI_QUOTAS_NONE);
		return KILN_MISS;
	}
	atomic_store(&kiln->quotas_state,
		     has_any(*out_quotas) ? KI_QUOTAS_THERE : KI_QUOTAS_NONE);
	*out_row = row_of(*out_quotas, name_space, out_limit);
	if (!*out_row)
		ki_quotas_close(*out_quotas);
	return *out_row ? KILN_OK : KILN_MISS;
}

static void end_account(struct ki_quotas *quotas, const struct ki_quota *row)
{
	(void)ki_quotas_write(quotas, row);
	ki_quotas_close(quotas);
}

/* Whether a namespace may have a quota, or its row cannot be read just now. */
static int may_be_limited(struct kiln *kiln, const char *name_space)
{
	struct ki_quotas *quotas;
	const struct ki_quota *row;
	int is_limited = 0, err;

	err = open_quotas(kiln, KI_QUOTAS_PEEK, 0, &quotas);
	if (err)
		return err != -ENOENT;
	row = ki_quotas_find(quotas, name_space);
	if (!row)
		row = ki_quotas_find(quotas, KILN_NAMESPACE_OTHERS);
	if (row)
		is_limited = ki_quotas_limit(quotas, row) != 0;
	for (size_t i = 0; i < quotas->n; i++)
		is_limited |= !*quotas->rows[i].name;
	ki_quotas_close(quotas);
	return is_limited;
}

/* Take what is claimed if there is room: KILN_OK, KILN_MISS (it has to be made),
   KILN_E_TOO_LARGE, TIMEOUT.  *out_limit is written with the first two. */
static enum kiln_status take(struct kiln *kiln, struct ki_claim *claim,
			     uint64_t *out_limit)
{
	enum kiln_status status = KILN_OK;
	struct ki_quotas *quotas;
	struct ki_quota *row;
	uint64_t limit;

	status = begin_account(kiln, claim->name_space, LOCK_NS, &quotas, &row,
			       &limit);
	if (status == KILN_E_TIMEOUT && may_be_limited(kiln, claim->name_space))
		return status;
	if (status) {
		claim->name_space[0] = '\0';
		return KILN_OK;
	}
	claim->n_begun = row->n_begun;
	claim->is_uncounted = row->bytes == KILN_NAMESPACE_UNCOUNTED;
	if (claim->bytes > limit) {
		status = KILN_E_TOO_LARGE;
	} else if (row->bytes > limit || claim->bytes > limit - row->bytes) {
		status = KILN_MISS;
	} else {
		row->bytes += claim->bytes;
	}
	if (status)
		*out_limit = limit;
	else
		(void)ki_quotas_write(quotas, row);
	ki_quotas_close(quotas);
	return status;
}

void ki_quota_return(struct kiln *kiln, const struct ki_claim *claim)
{
	struct ki_quotas *quotas;
	struct ki_quota *row;
	uint64_t limit;

	if (!*claim->name_space ||
	    begin_account(kiln, claim->name_space, LOCK_NS, &quotas, &row,
			  &limit))
		return;
	/* A counting that was begun since finds it out. */
	if (row->n_begun == claim->n_begun &&
	    row->bytes != KILN_NAMESPACE_UNCOUNTED &&
	    row->bytes >= claim->bytes)
		row->bytes -= claim->bytes;
	end_account(quotas, row);
}

void ki_quota_begin_turn(struct kiln *kiln, const char *name_space,
			 struct ki_quota_turn *out_turn)
{
	struct ki_quotas *quotas;
	struct ki_quota *row;
	uint64_t limit;

	*out_turn = (struct ki_quota_turn){ .name_space = "" };
	if (begin_account(kiln, name_space, LOCK_NS, &quotas, &row, &limit))
		return;
	strcpy(out_turn->name_space, name_space);
	out_turn->bytes = row->bytes;
	out_turn->turn = row->turn;
	row->n_begun++;
	end_account(quotas, row);
}

void ki_quota_end_turn(struct kiln *kiln, const struct ki_quota_turn *turn,
		       uint64_t bytes, uint64_t n_evicted)
{
	struct ki_quotas *quotas;
	struct ki_quota *row;
	uint64_t limit;

	if (!*turn->name_space || begin_account(kiln, turn->name_space, LOCK_NS,
						&quotas, &row, &limit))
		return;
	if (row->turn == turn->turn) {
		if (turn->bytes == KILN_NAMESPACE_UNCOUNTED ||
		    row->bytes < turn->bytes)
			row->bytes = bytes;
		else
			row->bytes = row->bytes - turn->bytes + bytes;
		row->turn++;
	}
	row->n_evicted += n_evicted;
	end_account(quotas, row);
}

static void note_refused(struct kiln *kiln, const char *name_space)
{
	struct ki_quotas *quotas;
	struct ki_quota *row;
	uint64_t limit;

	if (begin_account(kiln, name_space, LOCK_NS, &quotas, &row, &limit))
		return;
	row->n_refused++;
	end_account(quotas, row);
}

/* ---- Room ------------------------------------------------------------------ */

static void drop_count(struct kiln *kiln)
{
	ki_count_free(kiln->count);
	kiln->count = NULL;
}

/* Counted to the end: evict, and say what is left.  KILN_E_FULL: it refuses rather
   than evicts. */
static enum kiln_status settle(struct kiln *kiln, const struct ki_claim *claim,
			       uint64_t limit)
{
	const uint64_t left_max = limit - claim->bytes;
	const uint64_t freed = limit / FREED_AT_ONCE;
	const uint64_t deadline_ns = now_ns() + COUNT_NS;
	enum kiln_status status = KILN_OK;
	uint64_t n = 0;

	if (ki_count_bytes(kiln->count) > left_max) {
		if (kiln->flags & KILN_OPEN_REFUSE_FULL)
			status = KILN_E_FULL;
		else
			n = ki_count_evict(kiln, kiln->count, left_max, 0);
		if (!status && limit - freed < left_max)
			n += ki_count_evict(kiln, kiln->count, limit - freed,
					    deadline_ns);
	}
	ki_count_end(kiln, kiln->count, n);
	return status;
}

/* KILN_OK: it may be that there is room now; KILN_MISS: that cannot be said;
   KILN_E_TIMEOUT, FULL. */
static enum kiln_status make_room(struct kiln *kiln,
				  const struct ki_claim *claim, uint64_t limit)
{
	enum kiln_status status;

	if (atomic_exchange(&kiln->is_counting, 1))
		return KILN_E_TIMEOUT;
	if (kiln->count &&
	    strcmp(ki_count_name(kiln->count), claim->name_space) != 0)
		drop_count(kiln);
	if (!kiln->count)
		kiln->count = ki_count_new(claim->name_space);
	status = kiln->count ? ki_count_step(kiln, kiln->count,
					     now_ns() + COUNT_NS, NULL, NULL)
			     : KILN_MISS;
	if (!status)
		status = settle(kiln, claim, limit);
	else if (status != KILN_E_TIMEOUT)
		status = KILN_MISS;
	if (status != KILN_E_TIMEOUT)
		drop_count(kiln);
	atomic_store(&kiln->is_counting, 0);
	return status;
}

/* Whether a counting was begun after the claim, as far as can be read. */
static int is_counted_since(struct kiln *kiln, const struct ki_claim *claim)
{
	struct ki_quotas *quotas;
	const struct ki_quota *row;
	int err, is_so;

	err = open_quotas(kiln, KI_QUOTAS_PEEK, 0, &quotas);
	if (err)
		return err != -ENOENT;
	row = ki_quotas_find(quotas, claim->name_space);
	is_so = !row || row->bytes == KILN_NAMESPACE_UNCOUNTED ||
		row->n_begun != claim->n_begun;
	ki_quotas_close(quotas);
	return is_so;
}

/*
 * A counting that began after the claim, and before the put was done, takes what it
 * found for all there is.  If it did find this entry, the account says too much now,
 * and is counted anew when that matters.
 */
void ki_quota_confirm(struct kiln *kiln, const struct ki_claim *claim)
{
	struct ki_claim nothing = *claim;
	struct ki_quotas *quotas;
	struct ki_quota *row;
	uint64_t limit;
	int is_over = 0;

	if (!*claim->name_space || !is_counted_since(kiln, claim) ||
	    begin_account(kiln, claim->name_space, CONFIRM_NS, &quotas, &row,
			  &limit))
		return;
	if (row->bytes != KILN_NAMESPACE_UNCOUNTED) {
		row->bytes += claim->bytes;
		is_over = row->bytes > limit;
	}
	end_account(quotas, row);
	nothing.bytes = 0;
	if (is_over)
		(void)make_room(kiln, &nothing, limit);
}

enum kiln_status ki_quota_claim(struct kiln *kiln, const void *metadata,
				size_t metadata_size, uint64_t bytes,
				struct ki_claim *out_claim)
{
	char *name = out_claim->name_space;
	enum kiln_status status;
	uint64_t limit;

	*out_claim = (struct ki_claim){ .bytes = bytes };
	if (kiln_namespace_of(metadata, metadata_size, name))
		return KILN_OK;
	status = take(kiln, out_claim, &limit);
	if (status == KILN_MISS) {
		status = make_room(kiln, out_claim, limit);
		if (status == KILN_E_TIMEOUT && out_claim->is_uncounted)
			status = KILN_MISS;
		if (status == KILN_MISS) {
			/* Nobody can say that it is over its quota. */
			*name = '\0';
			return KILN_OK;
		}
		if (!status)
			status = take(kiln, out_claim, &limit);
		if (status == KILN_MISS) /* others were quicker */
			status = KILN_E_TIMEOUT;
	} else if (status == KILN_E_TIMEOUT) {
		return status; /* nor can that be noted */
	}
	if (status)
		note_refused(kiln, name);
	return status;
}

void ki_quotas_wiped(struct kiln *kiln)
{
	struct ki_quotas *quotas;

	if (open_quotas(kiln, KI_QUOTAS_CHANGE, LOCK_NS, &quotas))
		return;
	for (size_t i = 0; i < quotas->n; i++) {
		quotas->rows[i].bytes = 0;
		quotas->rows[i].turn++;
		(void)ki_quotas_write(quotas, &quotas->rows[i]);
	}
	ki_quotas_close(quotas);
}

/* ---- Setting them ---------------------------------------------------------- */

static enum kiln_status status_of(int err)
{
	switch (err) {
	case -ETIMEDOUT:
		return KILN_E_TIMEOUT;
	case -EINVAL:
	case -EBADMSG:
		return KILN_E_FORMAT;
	default:
		return ki_status_from_errno(err);
	}
}

uint64_t ki_quota_of(struct kiln *kiln, const char *name_space)
{
	struct ki_quotas *quotas;
	struct ki_quota *row;
	uint64_t limit = 0;

	if (open_quotas(kiln, KI_QUOTAS_LOOK, LOCK_NS, &quotas))
		return 0;
	row = ki_quotas_find(quotas, name_space);
	if (!row)
		row = ki_quotas_find(quotas, KILN_NAMESPACE_OTHERS);
	if (row)
		limit = ki_quotas_limit(quotas, row);
	ki_quotas_close(quotas);
	return limit;
}

/* Counted by whoever puts next, if not by this. */
static enum kiln_status write_limit(struct kiln *kiln, const char *name_space,
				    uint64_t bytes_max)
{
	const int is_of_others = !strcmp(name_space, KILN_NAMESPACE_OTHERS);
	struct ki_quotas *quotas;
	struct ki_quota *row;
	int err =
		open_quotas(kiln, bytes_max ? KI_QUOTAS_MAKE : KI_QUOTAS_CHANGE,
			    SET_NS, &quotas);

	if (err == -ENOENT && !bytes_max)
		return KILN_OK;
	if (err)
		return status_of(err);
	row = ki_quotas_find(quotas, name_space);
	if (!row && bytes_max)
		row = ki_quotas_add(quotas, name_space);
	if (row) {
		row->bytes_max = bytes_max;
		row->bytes = KILN_NAMESPACE_UNCOUNTED;
		row->turn++;
		err = ki_quotas_write(quotas, row);
	}
	if (!err && is_of_others) {
		quotas->is_complete = 0;
		err = ki_quotas_write_head(quotas);
	}
	if (!err && !has_any(quotas))
		(void)ki_sys_posix.unlink(&ki_sys_posix, kiln->quotas_path);
	ki_quotas_close(quotas);
	if (!err && !row && bytes_max)
		return KILN_E_FULL;
	return status_of(err);
}

/* All names that entries have, as far as there is room. */
struct names {
	char names[KILN_NAMESPACES_MAX][KILN_NAMESPACE_BYTES];
	size_t n;
	int is_complete;
};

static void add_name(struct names *names, const struct kiln_entry *entry)
{
	char name[KILN_NAMESPACE_BYTES];
	size_t i;

	if (entry->is_foreign ||
	    kiln_namespace_of(kiln_blob_data(entry->metadata),
			      kiln_blob_size(entry->metadata), name))
		return;
	for (i = 0; i < names->n && strcmp(names->names[i], name) != 0; i++)
		;
	if (i < names->n)
		return;
	if (i == KILN_NAMESPACES_MAX)
		names->is_complete = 0;
	else
		strcpy(names->names[names->n++], name);
}

static enum kiln_status list_names(struct kiln *kiln, struct names *names)
{
	struct kiln_tier *store = kiln->tiers[0];
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;

	names->is_complete = 1;
	do {
		entry = (struct kiln_entry){ { 0 } };
		status = store->ops->list(store, &cursor, &entry);
		if (!status) {
			add_name(names, &entry);
			kiln_entry_fini(&entry);
		}
	} while (!status);
	return status == KILN_END ? KILN_OK : status;
}

static enum kiln_status say_complete(struct kiln *kiln)
{
	struct ki_quotas *quotas;
	int err = open_quotas(kiln, KI_QUOTAS_CHANGE, SET_NS, &quotas);

	if (err)
		return status_of(err);
	quotas->is_complete = 1;
	err = ki_quotas_write_head(quotas);
	ki_quotas_close(quotas);
	return status_of(err);
}

/* Bring all that have entries, or one, within what they may have now. */
static enum kiln_status clean(struct kiln *kiln, const char *name_space)
{
	static const struct kiln_gc_options none;
	enum kiln_status status = KILN_OK;
	struct kiln_gc_report report;
	struct names *names;

	if (strcmp(name_space, KILN_NAMESPACE_OTHERS) != 0)
		return ki_kiln_clean_namespace(kiln, name_space, &none, NULL,
					       NULL, &report);
	names = calloc(1, sizeof(*names));
	if (!names)
		return KILN_E_NO_MEMORY;
	status = list_names(kiln, names);
	for (size_t i = 0; i < names->n && !status; i++)
		status = ki_kiln_clean_namespace(kiln, names->names[i], &none,
						 NULL, NULL, &report);
	if (!status && names->is_complete)
		status = say_complete(kiln);
	free(names);
	return status;
}

static enum kiln_status may_have_quotas(const struct kiln *kiln)
{
	const struct kiln_tier *store = kiln->has_store ? kiln->tiers[0] : NULL;

	if (kiln->store_status < 0)
		return kiln->store_status;
	return kiln->quotas_path && store && store->ops->list &&
			       store->ops->remove
		       ? KILN_OK
		       : KILN_E_UNSUPPORTED;
}

enum kiln_status kiln_set_namespace_limit(struct kiln *kiln,
					  const char *name_space,
					  uint64_t bytes_max)
{
	enum kiln_status status;

	if (!name_space || (!ki_namespace_is_good(name_space) &&
			    strcmp(name_space, KILN_NAMESPACE_OTHERS) != 0))
		return KILN_E_INVALID;
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	status = may_have_quotas(kiln);
	if (!status && !ki_kiln_writes(kiln))
		status = KILN_E_READONLY;
	if (!status)
		status = write_limit(kiln, name_space, bytes_max);
	ki_kiln_doubt_quotas(kiln);
	if (!status && bytes_max)
		status = clean(kiln, name_space);
	ki_kiln_leave(kiln);
	return status;
}

enum kiln_status kiln_next_namespace(struct kiln *kiln, size_t *position,
				     struct kiln_namespace *out_namespace)
{
	struct ki_quotas *quotas;
	enum kiln_status status = ki_kiln_enter(kiln);
	int err;

	if (status)
		return status;
	status = may_have_quotas(kiln);
	if (status)
		goto out;
	err = open_quotas(kiln, KI_QUOTAS_LOOK, LOCK_NS, &quotas);
	status = err == -ENOENT ? KILN_END : status_of(err);
	if (status)
		goto out;
	for (status = KILN_END; status && *position < quotas->n;) {
		const struct ki_quota *row = &quotas->rows[(*position)++];
		const uint64_t limit = ki_quotas_limit(quotas, row);

		if (!*row->name || !limit)
			continue;
		*out_namespace = (struct kiln_namespace){
			.bytes_max = limit,
			.is_by_default = !row->bytes_max,
			.bytes = strcmp(row->name, KILN_NAMESPACE_OTHERS)
					 ? row->bytes
					 : 0,
			.n_evicted = row->n_evicted,
			.n_refused = row->n_refused,
		};
		strcpy(out_namespace->name, row->name);
		status = KILN_OK;
	}
	ki_quotas_close(quotas);
out:
	ki_kiln_leave(kiln);
	return status;
}
