/* SPDX-License-Identifier: MIT */

/*
 * Whatever looks at all entries: those of kiln's by their records.
 */

#include "store/neo/neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- Verify --------------------------------------------------------------------------- */

struct verification {
	struct ki_verifying base;
	struct ki_neo *neo;
	int repair;
};

/* Name it; remove it if that is wanted and `is_sure`. */
static void note_damaged(struct verification *verification, const char *name,
			 const struct kiln_key *key, int is_sure)
{
	ki_verifying_damaged(&verification->base, key->digest, name);
	if (verification->repair && is_sure &&
	    !ki_neo_remove(&verification->neo->tier, key)) {
		verification->base.report.n_repaired++;
		verification->base.report.n_dropped++;
	}
}

static enum kiln_status verify_entry(struct verification *verification,
				     const struct ki_record_found *found,
				     const struct kiln_blob *record)
{
	struct kiln_verify_report *report = &verification->base.report;
	struct kiln_blob *value = NULL;
	struct kiln_key *key;
	struct ki_file_info info;
	enum ki_neo_state state;
	enum kiln_status status = ki_neo_load(verification->neo, found, 0, NULL,
					      &state, &value, &info);

	kiln_blob_unref(value);
	if (status == KILN_E_NO_MEMORY)
		return status;
	if (!status) {
		report->n_entries++;
		report->bytes += found->file_size + found->bytes;
	} else if (status == KILN_MISS) {
		report->n_gone++;
	} else if (!kiln_key_from_record(kiln_blob_data(record),
					 kiln_blob_size(record), &key)) {
		note_damaged(verification, found->name, key,
			     status == KILN_E_FORMAT);
		kiln_key_free(key);
	}
	ki_verifying_step(&verification->base, found->file_size);
	return KILN_OK;
}

static enum kiln_status verify_own(struct verification *verification)
{
	struct ki_neo *neo = verification->neo;
	struct ki_record_found found;
	enum kiln_status status;
	uint64_t serial = 0;

	for (;;) {
		struct kiln_blob *record = NULL;

		status = ki_records_next(neo->records, &serial, &found, &record,
					 NULL);
		if (status)
			break;
		status = verify_entry(verification, &found, record);
		kiln_blob_unref(record);
		if (status)
			break;
	}
	return status == KILN_END ? KILN_OK : status;
}

/* Only what its own form says can be wrong with it. */
static enum kiln_status verify_foreign(struct verification *verification,
				       const char *name)
{
	struct ki_neo *neo = verification->neo;
	struct kiln_verify_report *report = &verification->base.report;
	struct kiln_neo_description is;
	struct kiln_key *key;
	struct ki_file_info info;
	enum kiln_status status;
	char path[KI_PATH_MAX];

	if (ki_neo_path(neo, name, path) ||
	    !ki_neo_is_foreign(neo, name, &info))
		return KILN_OK;
	status = ki_neo_describe(neo->sys, path, &is);
	ki_verifying_step(&verification->base, info.size);
	if (status == KILN_MISS)
		return KILN_OK;
	if (!status && is.form != KILN_NEO_EMPTY && !is.is_cut) {
		report->n_foreign++;
		report->bytes_foreign += info.size;
		return KILN_OK;
	}
	if (ki_neo_foreign_key(name, &key))
		return KILN_E_NO_MEMORY;
	note_damaged(verification, name, key, !status);
	kiln_key_free(key);
	return KILN_OK;
}

static enum kiln_status verify_all(struct verification *verification)
{
	struct ki_neo_plan plan = { .n = 0 };
	int err = ki_neo_plan_all(verification->neo, &plan);
	enum kiln_status status = ki_status_from_errno(err);

	for (size_t i = 0; i < plan.n; i++)
		verification->base.total += plan.files[i].size;
	if (!status)
		status = verify_own(verification);
	for (size_t i = 0; i < plan.n && !status; i++)
		status = verify_foreign(verification,
					(const char *)plan.names.data +
						plan.files[i].name);
	ki_neo_plan_end(&plan);
	return status;
}

static enum kiln_status count_anew(struct ki_neo *neo,
				   struct kiln_verify_report *report)
{
	struct ki_neo_account account;
	struct ki_neo_report counted = { 0 };
	enum kiln_status end_status,
		status = ki_neo_account_begin(neo, KI_NEO_TOOL_NS, &account);

	if (status)
		return status;
	report->n_noted = ki_records_totals(neo->records).n_living;
	report->bytes_noted = account.noted == UINT64_MAX ? 0 : account.noted;
	status = ki_neo_count(neo, &account, &counted);
	ki_neo_plan_end(&neo->plan);
	report->n_counted = ki_records_totals(neo->records).n_living;
	report->bytes_counted = account.total;
	end_status = ki_neo_account_end(neo, &account);
	return status ? status : end_status;
}

enum kiln_status ki_neo_verify(struct kiln_tier *tier, unsigned flags,
			       kiln_progress_fn *progress, void *arg,
			       struct kiln_verify_report *out_report)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	struct verification verification = {
		.neo = neo,
		.repair = !!(flags & KILN_VERIFY_REPAIR),
		.base = { .progress = progress, .arg = arg },
	};
	enum kiln_status status = KILN_OK;
	int err;

	if (flags && ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	err = ki_neo_refresh(neo);
	if (err < 0)
		return ki_status_from_errno(err);
	if (flags != KILN_VERIFY_ACCOUNTING)
		status = verify_all(&verification);
	if (!status && flags)
		status = count_anew(neo, &verification.base.report);
	if (!status)
		ki_verifying_end(&verification.base, out_report);
	return status;
}

/* ---- Limits --------------------------------------------------------------------------------- */

enum kiln_status ki_neo_gc(struct kiln_tier *tier,
			   const struct kiln_gc_options *options,
			   kiln_progress_fn *progress, void *arg,
			   struct kiln_gc_report *out_report)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	const uint64_t limit = ki_neo_limit(neo);
	struct ki_neo_account account;
	struct ki_neo_report report = { 0 };
	struct kiln_gc_report result = { 0 };
	uint64_t bytes_max = options->bytes_max, age_max_s = options->age_max_s;
	enum kiln_status end_status,
		status = ki_neo_account_begin(neo, KI_NEO_TOOL_NS, &account);

	if (status)
		return status;
	if (limit && (!bytes_max || limit < bytes_max))
		bytes_max = limit;
	if (neo->age_max_s && (!age_max_s || neo->age_max_s < age_max_s))
		age_max_s = neo->age_max_s;
	result.bytes_before =
		account.total + ki_records_totals(neo->records).bytes;
	status = ki_neo_clean(neo, &account, bytes_max, age_max_s, &report);
	result.bytes_after =
		account.total + ki_records_totals(neo->records).bytes;
	end_status = ki_neo_account_end(neo, &account);
	result.n_evicted = report.n_evicted;
	result.n_expired = report.n_expired;
	result.n_temporaries = report.n_temporaries;
	if (!status && progress)
		progress(arg, result.bytes_after, result.bytes_after);
	if (!status)
		*out_report = result;
	return status ? status : end_status;
}

/* The directory's own limit, which every kiln obeys; an original has its own. */
static enum kiln_status note_limit(struct ki_neo *neo, uint64_t bytes_max)
{
	struct ki_records_settings settings = ki_records_settings(neo->records);

	if (settings.bytes_max == bytes_max)
		return KILN_OK;
	settings.bytes_max = bytes_max;
	return ki_records_rewrite(neo->records, &settings);
}

/* Who may not evict cannot come under one. */
static enum kiln_status check_limit(struct ki_neo *neo,
				    struct ki_neo_account *account,
				    uint64_t bytes_max)
{
	struct ki_neo_report report = { 0 };
	enum kiln_status status;

	if (!bytes_max || !(neo->flags & KILN_OPEN_REFUSE_FULL))
		return KILN_OK;
	status = ki_neo_count(neo, account, &report);
	ki_neo_plan_end(&neo->plan);
	if (!status && !ki_neo_is_within(neo, account, bytes_max))
		status = KILN_E_FULL;
	return status;
}

enum kiln_status ki_neo_set_limit(struct kiln_tier *tier, uint64_t bytes_max)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	struct ki_neo_account account;
	struct ki_neo_report report = { 0 };
	enum kiln_status status, end_status;

	if (ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	status = ki_neo_account_begin(neo, KI_NEO_TOOL_NS, &account);
	if (status)
		return status;
	status = check_limit(neo, &account, bytes_max);
	if (!status)
		status = note_limit(neo, bytes_max);
	if (!status) {
		__atomic_store_n(&neo->bytes_max, bytes_max, __ATOMIC_RELEASE);
		status = ki_neo_clean(neo, &account, bytes_max, 0, &report);
	}
	/* It holds for what was looked at. */
	if (!status && bytes_max && report.is_partial)
		status = KILN_E_IO;
	end_status = ki_neo_account_end(neo, &account);
	return status ? status : end_status;
}

static enum kiln_status note_eviction(struct ki_neo *neo, int by_cost)
{
	struct ki_records_settings settings = ki_records_settings(neo->records);

	if (settings.by_cost == by_cost)
		return KILN_OK;
	settings.by_cost = by_cost;
	return ki_records_rewrite(neo->records, &settings);
}

enum kiln_status ki_neo_set_eviction(struct kiln_tier *tier,
				     enum kiln_eviction eviction)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	struct ki_neo_account account;
	enum kiln_status status, end_status;

	if (ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	status = ki_neo_account_begin(neo, KI_NEO_TOOL_NS, &account);
	if (status)
		return status;
	ki_neo_plan_end(&neo->plan);
	status = note_eviction(neo, eviction == KILN_EVICT_BY_COST);
	end_status = ki_neo_account_end(neo, &account);
	return status ? status : end_status;
}

/* ---- The store as a whole --------------------------------------------------------------------- */

struct count {
	const struct ki_neo *neo;
	uint64_t n_own;
	uint64_t n_foreign;
	uint64_t bytes_records; /* of kiln's own */
};

/* What is there: records outlive what a driver evicts. */
static int count_one(void *arg, const char *name, enum ki_neo_kind kind,
		     int is_leftover)
{
	struct count *count = arg;
	struct ki_record_found found;
	struct ki_file_info info;

	if (kind == KI_NEO_TEMPORARY || kind == KI_NEO_RENEWING ||
	    ki_neo_look(count->neo, name, &info))
		return 0;
	if (ki_records_by_file(count->neo->records, name, info.inode, &found) ||
	    ki_neo_compare(&found, &info) != KI_NEO_THERE) {
		count->n_foreign++;
	} else {
		count->n_own++;
		count->bytes_records += found.bytes;
	}
	return 0;
}

/* Where config.file says nothing that can be believed. */
static uint64_t sum_of_files(struct ki_neo *neo)
{
	struct ki_neo_plan plan = { .n = 0 };
	uint64_t sum = 0;

	(void)ki_neo_plan_all(neo, &plan);
	for (size_t i = 0; i < plan.n; i++)
		sum += plan.files[i].is_uncounted ? 0 : plan.files[i].size;
	ki_neo_plan_end(&plan);
	return sum;
}

enum kiln_status ki_neo_info(struct kiln_tier *tier,
			     struct kiln_store_info *out_info) KI_NO_ANALYSIS
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	struct ki_neo_account account;
	struct ki_records_settings settings;
	struct ki_records_totals totals;
	struct ki_neo_report report = { 0 };
	struct count count = { .neo = neo };
	struct ki_neo_lookups lookups = { 0, 0 };
	uint64_t total;
	int is_still;

	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	/* What is evicted here and written there must not count twice. */
	is_still = !ki_neo_is_readonly(neo) &&
		   !ki_neo_account_begin(neo, KI_NEO_PUT_NS, &account);
	if (!is_still)
		(void)ki_neo_refresh(neo);
	if (is_still && !account.is_sure) {
		(void)ki_neo_count(neo, &account, &report);
		ki_neo_plan_end(&neo->plan);
	}
	total = is_still ? account.total : ki_neo_account_peek(neo);
	totals = ki_records_totals(neo->records);
	settings = ki_records_settings(neo->records);
	if (is_still ? !account.is_sure : !total || total > INT64_MAX)
		total = sum_of_files(neo);
	if (is_still)
		(void)ki_neo_account_end(neo, &account);
	ki_neo_detect_again(neo);
	(void)ki_neo_walk(neo, count_one, &count);
	(void)ki_neo_read_lookups(neo, &lookups);
	*out_info = (struct kiln_store_info){
		.kind = "neo",
		.format_version = 1,
		.user_version = settings.user_version,
		.n_entries = count.n_own + count.n_foreign,
		.n_foreign = count.n_foreign,
		.bytes = total + totals.bytes,
		.bytes_max = ki_neo_limit(neo),
		.bytes_live = total + count.bytes_records +
			      (totals.bytes ? KI_RECORDS_HEADER_BYTES : 0),
		.generation = settings.generation,
		.eviction = settings.by_cost ? KILN_EVICT_BY_COST
					     : KILN_EVICT_BY_USE,
		.n_format_hits = lookups.n_hits,
		.n_format_misses = lookups.n_misses,
	};
	return KILN_OK;
}
