/* SPDX-License-Identifier: MIT */

/*
 * Whatever looks at all entries: those of kiln's by their records.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "key/key.h"

/* ---- Verify --------------------------------------------------------------------------- */

struct verification {
	struct ki_verifying base;
	struct ki_sycl *sycl;
	int repair;
};

/* Name it; remove it if that is wanted and `is_sure`. */
static void note_damaged(struct verification *verification, const char *stem,
			 const struct kiln_key *key, int is_sure)
{
	ki_verifying_damaged(&verification->base, key->digest, stem);
	if (verification->repair && is_sure &&
	    !ki_sycl_remove_damaged(verification->sycl, stem)) {
		verification->base.report.n_repaired++;
		verification->base.report.n_dropped++;
	}
}

/* Somebody has its lock file, be it a kiln. */
static int is_being_written(const struct ki_sycl *sycl, const char *name)
{
	char stem[KI_SYCL_NAME_BYTES];
	struct ki_file_info info;

	ki_sycl_stem(name, stem);
	return !ki_sycl_look(sycl, stem, ".lock", &info);
}

/* DPC++ goes by it alone.  KILN_OK, KILN_MISS, KILN_E_FORMAT, or why it cannot be
   read. */
static enum kiln_status verify_src(const struct ki_sycl *sycl, const char *name,
				   const struct kiln_key *key)
{
	struct ki_sycl_fields fields;
	char stem[KI_SYCL_NAME_BYTES], path[KI_PATH_MAX];
	int same;

	ki_sycl_stem(name, stem);
	ki_sycl_fields_of(key, &fields);
	if (!fields.is_shared)
		return KILN_OK;
	same = ki_sycl_path_of(sycl, stem, ".src", path);
	if (!same)
		same = ki_sycl_src_is(sycl->sys, path, &fields);
	if (same > 0)
		return KILN_OK;
	if (same < 0)
		return ki_sycl_is_gone(same) ? KILN_MISS
					     : ki_status_from_errno(same);
	return KILN_E_FORMAT;
}

/* Its key, by kiln.records and .src.  It is there without one for a moment, while
   it is written: then with a lock file. */
static enum kiln_status verify_key(const struct ki_sycl *sycl,
				   const struct ki_record_found *found,
				   struct kiln_blob **record)
{
	enum kiln_status status = KILN_OK;

	for (int tries = 0; tries < 2; tries++) {
		struct kiln_key *key = NULL;

		status = ki_sycl_whole_record(sycl, found, record);
		if (!status)
			status = kiln_key_from_record(kiln_blob_data(*record),
						      kiln_blob_size(*record),
						      &key);
		if (!status)
			status = verify_src(sycl, found->name, key);
		kiln_key_free(key);
		if (status != KILN_MISS && status != KILN_E_FORMAT)
			return status;
		if (is_being_written(sycl, found->name))
			return KILN_MISS;
	}
	return KILN_E_FORMAT;
}

/* A .bin that went after it was read was removed, with its .src. */
static int is_still_there(const struct ki_sycl *sycl,
			  const struct ki_record_found *found)
{
	enum ki_sycl_state state;
	struct ki_file_info info;

	return !ki_sycl_state(sycl, found, &state, &info) &&
	       state == KI_SYCL_THERE;
}

static void note_damaged_own(struct verification *verification,
			     const struct ki_record_found *found, int is_sure)
{
	ki_verifying_damaged(&verification->base, found->digest, found->name);
	if (verification->repair && is_sure &&
	    !ki_sycl_remove_found(verification->sycl, found)) {
		verification->base.report.n_repaired++;
		verification->base.report.n_dropped++;
	}
}

static enum kiln_status verify_entry(struct verification *verification,
				     const struct ki_record_found *found,
				     struct kiln_blob **record)
{
	struct kiln_verify_report *report = &verification->base.report;
	struct ki_sycl *sycl = verification->sycl;
	struct kiln_blob *value = NULL;
	struct ki_file_info info;
	enum ki_sycl_state state;
	enum kiln_status status =
		ki_sycl_load(sycl, found, &state, &value, &info);

	kiln_blob_unref(value);
	if (!status) {
		status = verify_key(sycl, found, record);
		if (status && !is_still_there(sycl, found)) {
			status = KILN_MISS;
			state = KI_SYCL_GONE;
		}
	}
	if (status == KILN_E_NO_MEMORY)
		return status;
	if (!status) {
		report->n_entries++;
		report->bytes += found->file_size + found->bytes;
	} else if (status == KILN_MISS) {
		report->n_gone +=
			state == KI_SYCL_GONE || state == KI_SYCL_TAKEN;
	} else {
		note_damaged_own(verification, found, status == KILN_E_FORMAT);
	}
	ki_verifying_step(&verification->base, found->file_size);
	return KILN_OK;
}

static enum kiln_status verify_own(struct verification *verification)
{
	struct ki_sycl *sycl = verification->sycl;
	struct ki_record_found found;
	enum kiln_status status;
	uint64_t serial = 0;

	for (;;) {
		struct kiln_blob *record = NULL;

		status = ki_records_next(sycl->records, &serial, &found,
					 &record, NULL);
		if (!status)
			status = verify_entry(verification, &found, &record);
		kiln_blob_unref(record);
		if (status)
			break;
	}
	return status == KILN_END ? KILN_OK : status;
}

/* Only what its own form says can be wrong with it. */
static enum kiln_status verify_foreign(struct verification *verification,
				       const char *stem, uint64_t size)
{
	struct ki_sycl *sycl = verification->sycl;
	struct kiln_verify_report *report = &verification->base.report;
	const unsigned has = ki_sycl_is_foreign(sycl, stem);
	struct kiln_key *key;
	enum kiln_status status;

	/* Being written, or being removed. */
	if (!has || ki_sycl_is_locked(sycl, stem))
		return KILN_OK;
	status = ki_sycl_check_form(sycl, stem, has);
	ki_verifying_step(&verification->base, size);
	if (status == KILN_MISS)
		return KILN_OK;
	if (!status) {
		report->n_foreign++;
		report->bytes_foreign += size;
		return KILN_OK;
	}
	if (ki_sycl_foreign_key(sycl, stem, &key))
		return KILN_E_NO_MEMORY;
	note_damaged(verification, stem, key, status == KILN_E_FORMAT);
	kiln_key_free(key);
	return KILN_OK;
}

static enum kiln_status verify_all(struct verification *verification)
{
	struct ki_sycl_plan plan = { .n = 0 };
	int err = ki_sycl_plan_all(verification->sycl, &plan);
	enum kiln_status status = ki_status_from_errno(err);

	for (size_t i = 0; i < plan.n; i++)
		verification->base.total += plan.files[i].size;
	if (!status)
		status = verify_own(verification);
	for (size_t i = 0; i < plan.n && !status; i++)
		status = verify_foreign(verification,
					(const char *)plan.names.data +
						plan.files[i].name,
					plan.files[i].size);
	ki_sycl_plan_end(&plan);
	return status;
}

enum kiln_status ki_sycl_verify(struct kiln_tier *tier, unsigned flags,
				kiln_progress_fn *progress, void *arg,
				struct kiln_verify_report *out_report)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	struct verification verification = {
		.sycl = sycl,
		.repair = !!(flags & KILN_VERIFY_REPAIR),
		.base = { .progress = progress, .arg = arg },
	};
	enum kiln_status status = KILN_OK;
	int err;

	if (flags && ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	if (verification.repair)
		ki_sycl_free_left(sycl);
	else if (!flags)
		ki_sycl_name_left(sycl);
	err = ki_sycl_refresh(sycl);
	if (err < 0)
		return ki_status_from_errno(err);
	if (flags != KILN_VERIFY_ACCOUNTING)
		status = verify_all(&verification);
	if (!status && flags)
		status = ki_sycl_count_anew(sycl, &verification.base.report);
	if (!status)
		ki_verifying_end(&verification.base, out_report);
	return status;
}

/* ---- The store as a whole --------------------------------------------------------------------- */

/* Entries that no record is about.  Of a plan that was made a while ago: what was
   kiln's and has gone since is none. */
static uint64_t count_foreign(const struct ki_sycl *sycl,
			      const struct ki_sycl_plan *plan)
{
	char name[KI_SYCL_NAME_BYTES + 4];
	struct ki_record_found found;
	uint64_t n = 0;

	for (size_t i = 0; i < plan->n; i++) {
		const char *stem =
			(const char *)plan->names.data + plan->files[i].name;

		if (!(plan->files[i].has & (KI_SYCL_BIN | KI_SYCL_SRC)))
			continue;
		snprintf(name, sizeof(name), "%s.bin", stem);
		n += ki_records_by_name(sycl->records, name, &found) !=
			     KILN_OK &&
		     ki_sycl_is_foreign(sycl, stem);
	}
	return n;
}

/* What the directory says of itself: 1 if the sum is one. */
static int read_totals(struct ki_sycl *sycl, struct kiln_store_info *info,
		       uint64_t *out_sum) KI_NO_ANALYSIS
{
	struct ki_records_settings settings;
	struct ki_records_totals totals;
	struct ki_sycl_turn turn;
	const int has_turn = !ki_sycl_is_readonly(sycl) &&
			     !ki_sycl_turn_begin(sycl, KI_SYCL_PUT_NS, &turn);
	int is_sure;

	if (!has_turn)
		(void)ki_sycl_refresh(sycl);
	is_sure = has_turn ? turn.is_sure : !ki_sycl_read_sum(sycl, out_sum);
	if (has_turn)
		*out_sum = turn.total;
	totals = ki_records_totals(sycl->records);
	settings = ki_records_settings(sycl->records);
	if (has_turn)
		(void)ki_sycl_turn_end(sycl, &turn);
	info->user_version = settings.user_version;
	info->generation = settings.generation;
	info->eviction =
		settings.by_cost ? KILN_EVICT_BY_COST : KILN_EVICT_BY_USE;
	info->n_entries = totals.n_living;
	info->bytes = totals.bytes;
	info->bytes_live = totals.bytes_living;
	return is_sure;
}

/* All files are looked at without the turn: others store meanwhile. */
enum kiln_status ki_sycl_info(struct kiln_tier *tier,
			      struct kiln_store_info *out_info)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	struct kiln_store_info info = { .kind = "sycl", .format_version = 1 };
	struct ki_sycl_plan plan = { .n = 0 };
	uint64_t total = 0;

	if (ki_sycl_plan_all(sycl, &plan) == -ENOMEM)
		return KILN_E_NO_MEMORY;
	if (!read_totals(sycl, &info, &total))
		total = plan.bytes;
	info.n_foreign = count_foreign(sycl, &plan);
	ki_sycl_plan_end(&plan);
	info.n_entries += info.n_foreign;
	info.bytes += total;
	info.bytes_live += total;
	info.bytes_max = ki_sycl_limit(sycl);
	*out_info = info;
	return KILN_OK;
}
