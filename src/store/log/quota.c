/* SPDX-License-Identifier: MIT */

/*
 * The quota: what the fields of keys and the values of all entries may come to.
 *
 * `used` in the header is never less than that.  A put adds its bytes before
 * its word is out, by one swap that does not go beyond the quota, so that no
 * turn of events among any number of processes does.  Nobody takes off what an
 * entry had that goes, nor what a killed put had added: that it may be too much
 * is noted (n_cleared), and who would be refused counts anew before it is:
 *
 *	under byte 0   close `used`: puts that come now wait for byte 0
 *	               wait until none is between adding and being done
 *	               clear tentative words: their puts are dead
 *	               add up the entries; open `used` with the sum
 *
 * A put that is between the two stands in one of LOG_CLAIMS places of the
 * header, with its bytes and its process.  One that is dead frees its place;
 * one that is stopped is waited for as long as a roll is, and then counted
 * besides, which may be twice, but never too little.
 *
 * A full store refuses without a lock: what was counted since nothing went, is.
 */

#include "store/log/log.h"

#include <errno.h>

#define PAUSE_NS ((uint64_t)1000000)

static uint64_t quota_of(const struct ki_log *log,
			 const struct log_index *index)
{
	struct log_limit_values limits;

	if (!index->header->limits.quota_bytes)
		return 0;
	ki_log_limits_get(log, index, &limits);
	return limits.quota_bytes;
}

static int is_more(uint64_t used, uint64_t bytes, uint64_t quota)
{
	return used > quota || bytes > quota - used;
}

/* ---- Claims ---------------------------------------------------------------- */

/* One that has not said yet when it began is not asked. */
static int is_left(struct ki_log *log, const struct log_claim_slot *slot)
{
	uint64_t process = slot->process, start = slot->start;

	return process && start &&
	       ki_process_is_dead(log->sys, &log->locks.self, process, start);
}

/* A place from whoever it was to this process: 0 or a dead one. */
static int take_over(struct ki_log *log, struct log_header *header,
		     struct log_claim_slot *slot, uint64_t from)
{
	uint64_t me = ki_process_name(log->sys, &log->locks.self);

	if (!atomic_compare_exchange_strong(&slot->process, &from,
					    me ? me : LOG_CLAIM_UNNAMED))
		return 0;
	if (slot->bytes)
		header->quota.n_cleared++;
	slot->bytes = 0;
	slot->start = me ? log->locks.self.start : 0;
	return 1;
}

static void leave(struct log_claim_slot *slot)
{
	slot->bytes = 0;
	slot->start = 0;
	slot->process = 0;
}

static struct log_claim_slot *find_place(struct ki_log *log,
					 struct log_header *header, int of_dead)
{
	unsigned first = (unsigned)((uintptr_t)pthread_self() >> 12), i;

	for (i = 0; i < LOG_CLAIMS; i++) {
		struct log_claim_slot *slot =
			&header->claims[(first + i) % LOG_CLAIMS];
		uint64_t process = slot->process;

		if (process && (!of_dead || !is_left(log, slot)))
			continue;
		if (take_over(log, header, slot, process))
			return slot;
	}
	return NULL;
}

enum kiln_status ki_log_quota_begin(struct ki_log *log, struct log_index *index,
				    struct log_claim *out_claim)
{
	const struct ki_sys *sys = log->sys;
	int tries;

	*out_claim = (struct log_claim){ 0 };
	out_claim->quota = quota_of(log, index);
	if (!out_claim->quota)
		return KILN_OK;
	for (tries = 0; tries <= LOG_ROLL_TIMEOUT_MS; tries++) {
		out_claim->slot = find_place(log, index->header, !!tries);
		if (out_claim->slot)
			return KILN_OK;
		sys->sleep_ns(sys, PAUSE_NS);
	}
	return KILN_E_TIMEOUT;
}

enum kiln_status ki_log_quota_take(struct log_index *index, uint64_t bytes,
				   struct log_claim *claim)
{
	_Atomic uint64_t *used = &index->header->quota.used;
	uint64_t before;

	if (!claim->slot || claim->is_taken)
		return KILN_OK;
	claim->slot->bytes = bytes;
	before = *used;
	do {
		if ((before & LOG_QUOTA_CLOSED) ||
		    is_more(before, bytes, claim->quota)) {
			claim->slot->bytes = 0;
			return KILN_E_FULL;
		}
	} while (!atomic_compare_exchange_weak(used, &before, before + bytes));
	claim->is_taken = 1;
	return KILN_OK;
}

void ki_log_quota_return(struct log_index *index, struct log_claim *claim)
{
	if (!claim->slot || !claim->is_taken)
		return;
	index->header->quota.used -= claim->slot->bytes;
	claim->slot->bytes = 0;
	claim->is_taken = 0;
}

void ki_log_quota_end(struct log_claim *claim)
{
	if (claim->slot)
		leave(claim->slot);
	claim->slot = NULL;
}

void ki_log_quota_forget(struct log_header *header, int is_known)
{
	unsigned i;

	for (i = 0; i < LOG_CLAIMS; i++)
		leave(&header->claims[i]);
	header->quota.n_cleared++;
	if (!is_known)
		header->quota.used |= LOG_QUOTA_CLOSED;
}

/* ---- Counting ---------------------------------------------------------------- */

/* What puts have added that are not done. */
static uint64_t bytes_claimed(struct ki_log *log, struct log_header *header)
{
	uint64_t bytes = 0;
	unsigned i;

	for (i = 0; i < LOG_CLAIMS; i++) {
		struct log_claim_slot *slot = &header->claims[i];
		uint64_t process = slot->process;

		if (!slot->bytes)
			continue;
		if (is_left(log, slot) && take_over(log, header, slot, process))
			leave(slot);
		else
			bytes += slot->bytes;
	}
	return bytes;
}

static uint64_t wait_for_claims(struct ki_log *log, struct log_header *header)
{
	const struct ki_sys *sys = log->sys;
	uint64_t bytes = bytes_claimed(log, header);
	int tries;

	for (tries = 0; tries < LOG_ROLL_TIMEOUT_MS && bytes; tries++) {
		sys->sleep_ns(sys, PAUSE_NS);
		bytes = bytes_claimed(log, header);
	}
	return bytes;
}

/* Of what cannot be read only what is known to be nothing counts as nothing. */
static enum kiln_status add_entry(struct ki_log *log, struct log_index *index,
				  uint64_t word, uint64_t *sum)
{
	struct log_view view;
	enum kiln_status status = ki_log_view_open(log, index, word, &view);

	if (status == KILN_MISS || status == KILN_E_FORMAT)
		return KILN_OK;
	if (status)
		return status;
	*sum += ki_record_data_size(ki_log_view_key(&view),
				    view.record.key_size) +
		view.record.value_size;
	ki_log_view_close(&view);
	return KILN_OK;
}

static enum kiln_status add_up(struct ki_log *log, struct log_index *index,
			       int clears, uint64_t *out_sum)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	enum kiln_status status = KILN_OK;

	*out_sum = 0;
	for (slot = 0; slot < n_slots && !status; slot++) {
		uint64_t word = index->words[slot];

		if (!log_word_is_live(word, ki_log_min_live(index)))
			continue;
		if (log_word_is_tentative(word) && clears &&
		    ki_log_word_swap(index, slot, word, 0))
			continue;
		status = add_entry(log, index, word, out_sum);
	}
	return status;
}

/* Whether counting anew may find room. */
static int may_be_less(const struct ki_log *log, const struct log_index *index,
		       uint64_t bytes, uint64_t quota)
{
	const struct log_header *header = index->header;
	uint64_t used = header->quota.used, claimed = 0;
	unsigned i;

	if (log->counted_epoch != index->epoch || (used & LOG_QUOTA_CLOSED) ||
	    header->quota.n_cleared != header->quota.n_counted)
		return 1;
	for (i = 0; i < LOG_CLAIMS; i++)
		claimed += header->claims[i].bytes;
	return claimed &&
	       (claimed > used || !is_more(used - claimed, bytes, quota));
}

static enum kiln_status count_locked(struct ki_log *log,
				     struct log_index *index)
{
	struct log_header *header = index->header;
	struct log_quota *quota = &header->quota;
	uint64_t before, claimed, n_cleared, sum;
	enum kiln_status status;

	before = atomic_fetch_or(&quota->used, LOG_QUOTA_CLOSED);
	claimed = wait_for_claims(log, header);
	n_cleared = quota->n_cleared;
	status = add_up(log, index, !claimed, &sum);
	if (status) {
		quota->used = before;
		return status;
	}
	/* Whose put is held up was perhaps counted twice: not for good. */
	quota->n_counted = claimed ? n_cleared - 1 : n_cleared;
	quota->used = sum + claimed;
	log->counted_epoch = index->epoch;
	return KILN_OK;
}

static enum kiln_status count_anew(struct ki_log *log, struct log_index *index,
				   uint64_t bytes, uint64_t quota)
{
	const uint32_t patience_ms = ki_log_patience_ms(log);
	struct ki_lock lock;
	enum kiln_status status =
		ki_log_structure_begin(log, &lock, patience_ms);

	if (status == KILN_E_TIMEOUT && patience_ms > LOG_ROLL_TIMEOUT_MS)
		ki_log_note_wait(log, 1);
	if (status)
		return status;
	status = ki_log_is_current_locked(log, index)
			 ? ki_log_index_bring(index, NULL)
			 : LOG_AGAIN;
	/* Another may have done so meanwhile. */
	if (!status && is_more(index->header->quota.used, bytes, quota) &&
	    may_be_less(log, index, bytes, quota))
		status = count_locked(log, index);
	ki_log_structure_end(log, &lock);
	return status;
}

enum kiln_status ki_log_quota_check(struct ki_log *log, struct log_index *index,
				    uint64_t bytes)
{
	const uint64_t quota = quota_of(log, index);
	const _Atomic uint64_t *used = &index->header->quota.used;
	enum kiln_status status;

	if (!quota || !is_more(*used, bytes, quota))
		return KILN_OK;
	if (bytes > quota || !may_be_less(log, index, bytes, quota))
		return KILN_E_FULL;
	status = count_anew(log, index, bytes, quota);
	if (status)
		return status == KILN_E_UNSUPPORTED ? KILN_E_FULL : status;
	return is_more(*used, bytes, quota) ? KILN_E_FULL : KILN_OK;
}
