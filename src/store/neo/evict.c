/* SPDX-License-Identifier: MIT */

/*
 * Making room: the least recently used first, until a third of the limit is
 * free; what a new entry needs at once, the rest in steps.
 *
 *	limit  ----------------------------------------  never passed
 *	          store  store     | what it needs now
 *	       ___/------/------\__ \
 *	                           \ | at most KI_NEO_STEP files a store
 *	2/3    --------------------- \____________________
 *
 * The originals read the whole directory, sort it and remove a third in one
 * store.  Here a plan is made in pieces: the names in one store, KI_NEO_LOOKS
 * files looked at in each of the following, in no order of age, then all of them
 * sorted.  While it grows, what is needed at once is the oldest of those seen
 * (a sample).  A directory of at most KI_NEO_LOOKS files is seen whole, so its
 * order is exact, and its sum put right as well.
 *
 * Reading the names of a large directory is most of it, and kiln.records has them
 * in memory: as long as the files that it knows of are the whole sum, they are all
 * there are.  If one of them is not there after all, somebody else was at work, and
 * the directory is read.
 *
 * Every process has a plan of its own; the level they aim at is one.  A file
 * used since it was looked at is passed over.
 *
 * By cost (the settings of kiln.records say so), what is looked at is put into the
 * order of store/evict.h.  The build times are in kiln.records: of files that the
 * driver wrote nobody knows them, and these go by last use.
 *
 * Last use is the time of last access, which hits set by themselves (entry.c):
 * the mount may write it late or never.  Equal ones go by modification, then by
 * name.
 */

#include "store/neo/neo.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "store/evict.h"

#define HOUR_NS	    ((int64_t)3600 * 1000000000)
#define SECOND_NS   ((int64_t)1000000000)
#define STALE_NS    ((uint64_t)60 * 1000000000)
#define COMPACT_MIN ((uint64_t)64 << 10)
#define DROP_BYTES  96 /* of kiln.records, and 16 for each key dropped */

/* ---- What has to fit -------------------------------------------------------------- */

/* Room for the living is kept twice: when kiln.records is written anew both files
   are there, and that must be possible at any time. */
static int fits(struct ki_neo *neo, const struct ki_neo_account *account,
		uint64_t need, uint64_t limit)
{
	const struct ki_records_totals totals = ki_records_totals(neo->records);

	return account->total + totals.bytes + totals.bytes_living + need <=
	       limit;
}

/* The same once the dead are left out of kiln.records, `freed` with them. */
static int could_fit(struct ki_neo *neo, const struct ki_neo_account *account,
		     uint64_t need, uint64_t limit, uint64_t freed)
{
	const uint64_t living = ki_records_totals(neo->records).bytes_living;

	return account->total + 2 * ki_neo_less(living, freed) + need <= limit;
}

int ki_neo_is_within(struct ki_neo *neo, const struct ki_neo_account *account,
		     uint64_t bytes_max)
{
	return could_fit(neo, account, 0, bytes_max, 0);
}

/* Whether so much of kiln.records is dead that it is worth writing anew; of a
   small one anything is. */
static int is_worn(const struct ki_records_totals *totals, uint64_t freed)
{
	const uint64_t dead =
		totals->bytes - ki_neo_less(totals->bytes_living, freed);

	return totals->bytes < COMPACT_MIN ? dead > 0
					   : dead * 2 >= totals->bytes;
}

/* ---- The plan ------------------------------------------------------------------------ */

void ki_neo_plan_end(struct ki_neo_plan *plan)
{
	ki_bytes_fini(&plan->names);
	free(plan->files);
	*plan = (struct ki_neo_plan){ 0 };
}

static const char *name_of(const struct ki_neo_plan *plan,
			   const struct ki_neo_file *file)
{
	return (const char *)plan->names.data + file->name;
}

static int add_file(struct ki_neo_plan *plan, const char *name, int is_leftover)
{
	if (plan->n == plan->capacity) {
		size_t capacity = plan->capacity ? plan->capacity * 2 : 256;
		struct ki_neo_file *files =
			realloc(plan->files, capacity * sizeof(*files));

		if (!files)
			return -ENOMEM;
		plan->files = files;
		plan->capacity = capacity;
	}
	plan->files[plan->n++] = (struct ki_neo_file){
		.name = plan->names.size,
		.is_leftover = is_leftover,
	};
	ki_bytes_add(&plan->names, name, strlen(name) + 1);
	return plan->names.failed;
}

struct gathering {
	struct ki_neo *neo;
	const struct ki_neo_account *account;
	struct ki_neo_report *report;
};

/* Writers hold the lock while they have one, and so do we: it is nobody's.  An
   hour, for those who lock where we cannot see it. */
static void sweep_temporary(const struct gathering *gathering, const char *name)
{
	const struct ki_neo *neo = gathering->neo;
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	if (!ki_neo_look(neo, name, &info) &&
	    gathering->account->now_ns - info.mtime_ns > HOUR_NS &&
	    gathering->account->now_ns - info.ctime_ns > HOUR_NS &&
	    !ki_neo_path(neo, name, path) && !neo->sys->unlink(neo->sys, path))
		gathering->report->n_temporaries++;
}

/* Only who has the lock writes it, and that is us. */
static void remove_renewing(const struct gathering *gathering, const char *name)
{
	const struct ki_neo *neo = gathering->neo;
	char path[KI_PATH_MAX];

	if (!ki_neo_path(neo, name, path) && !neo->sys->unlink(neo->sys, path))
		gathering->report->n_temporaries++;
}

static int gather(void *arg, const char *name, enum ki_neo_kind kind,
		  int is_leftover)
{
	const struct gathering *gathering = arg;

	if (kind == KI_NEO_ENTRY)
		return add_file(&gathering->neo->plan, name, is_leftover);
	if (kind == KI_NEO_TEMPORARY)
		sweep_temporary(gathering, name);
	if (kind == KI_NEO_RENEWING)
		remove_renewing(gathering, name);
	return 0;
}

/* A listing draws beside a put: each plan has numbers of its own. */
static uint64_t next_random(const struct ki_neo *neo, struct ki_neo_plan *plan)
{
	uint64_t x = plan->random ? plan->random
				  : neo->sys->monotonic_ns(neo->sys) | 1;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return plan->random = x;
}

static int gather_known(void *arg, const char *name)
{
	struct ki_neo *neo = arg;

	return ki_neo_is_name(neo, name)
		       ? add_file(&neo->plan, name,
				  ki_neo_layout(neo) == KILN_NEO_TREE &&
					  !strchr(name, '/'))
		       : -ENOENT;
}

static void plan_anew(struct ki_neo *neo)
{
	ki_neo_plan_end(&neo->plan);
	ki_bytes_init(&neo->plan.names);
	neo->plan.is_active = 1;
	neo->plan.begun_ns = neo->sys->monotonic_ns(neo->sys);
}

/* 0: the records do not tell. */
static int plan_by_records(struct ki_neo *neo,
			   const struct ki_neo_account *account)
{
	const struct ki_records_totals totals = ki_records_totals(neo->records);

	if (totals.n_living <= neo->looks_max ||
	    totals.bytes_files != account->total)
		return 0;
	plan_anew(neo);
	neo->plan.is_by_records = 1;
	return !ki_records_names(neo->records, gather_known, neo);
}

static int plan_begin(struct ki_neo *neo, const struct ki_neo_account *account,
		      struct ki_neo_report *report)
{
	struct gathering gathering = { neo, account, report };
	int err;

	ki_neo_detect_again(neo);
	plan_anew(neo);
	err = ki_neo_walk(neo, gather, &gathering);
	ki_neo_failed(neo, "Scandir", err);
	if (err && err != -EACCES) {
		ki_neo_plan_end(&neo->plan);
		return err;
	}
	neo->plan.err = err;
	return 0;
}

/* Directories list by age more often than not, and kiln.records does. */
static void choose_next(struct ki_neo *neo, struct ki_neo_plan *plan)
{
	const size_t i = plan->n_known;
	const size_t j = i + (size_t)(next_random(neo, plan) % (plan->n - i));
	const struct ki_neo_file file = plan->files[i];

	plan->files[i] = plan->files[j];
	plan->files[j] = file;
}

/* Look at as many more, in no order; what is gone is left out. */
static void look_at(struct ki_neo *neo, struct ki_neo_plan *plan, size_t n)
{
	plan->by_cost = ki_records_settings(neo->records).by_cost;
	plan->now_ns = (int64_t)neo->sys->realtime_ns(neo->sys);
	while (n-- && plan->n_known < plan->n) {
		struct ki_neo_file *file;
		struct ki_file_info info;
		int err;

		choose_next(neo, plan);
		file = &plan->files[plan->n_known];
		err = ki_neo_look_again(neo, name_of(plan, file), &info);
		if (err) {
			plan->is_doubtful |=
				err == -ENOENT && plan->is_by_records;
			if (err != -ENOENT && (!plan->err || err != -EACCES))
				plan->err = err;
			*file = plan->files[--plan->n];
			continue;
		}
		file->size = info.size;
		file->inode = info.inode;
		file->atime_ns = info.atime_ns;
		file->mtime_ns = info.mtime_ns;
		if (plan->by_cost)
			file->build_ns = ki_records_build_ns(
				neo->records, name_of(plan, file), info.inode);
		plan->n_known++;
		plan->is_sorted = 0;
	}
}

static int is_complete(const struct ki_neo_plan *plan)
{
	return plan->n_known == plan->n;
}

/* ---- The order ------------------------------------------------------------------------ */

static int compare(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_last_use(const void *a, const void *b, void *names)
{
	const struct ki_neo_file *x = a, *y = b;
	int order = x->is_uncounted - y->is_uncounted;

	if (!order)
		order = y->is_leftover - x->is_leftover;
	if (!order)
		order = compare(x->atime_ns, y->atime_ns);
	if (!order)
		order = compare(x->mtime_ns, y->mtime_ns);
	if (!order)
		order = strcmp((const char *)names + x->name,
			       (const char *)names + y->name);
	return order;
}

static int weigh(const void *what, struct ki_evictable *out_entry)
{
	const struct ki_neo_file *file = what;

	*out_entry = (struct ki_evictable){
		.bytes = file->size,
		.used_ns = file->is_leftover ? KI_EVICT_FIRST : file->atime_ns,
		.build_ns = file->build_ns,
	};
	return !file->is_uncounted;
}

static void sort(struct ki_neo_plan *plan)
{
	static const struct ki_evict_files kind = {
		.size = sizeof(*plan->files),
		.by_last_use = by_last_use,
		.weigh = weigh,
	};
	const size_t n = plan->n_known - plan->next;

	if (!plan->is_sorted && n)
		ki_evict_sort(&kind, plan->files + plan->next, n,
			      plan->names.data, plan->by_cost, plan->now_ns);
	plan->is_sorted = 1;
}

static int gather_all(void *arg, const char *name, enum ki_neo_kind kind,
		      int is_leftover)
{
	struct ki_neo_plan *plan = arg;
	int err;

	if (kind == KI_NEO_TEMPORARY || kind == KI_NEO_RENEWING)
		return 0;
	err = add_file(plan, name, is_leftover);
	if (!err)
		plan->files[plan->n - 1].is_uncounted =
			kind == KI_NEO_UNCOUNTED;
	return err;
}

int ki_neo_plan_all(struct ki_neo *neo, struct ki_neo_plan *plan)
{
	int err;

	ki_neo_detect_again(neo);
	ki_bytes_init(&plan->names);
	plan->is_active = 1;
	err = ki_neo_walk(neo, gather_all, plan);
	if (!err || err == -EACCES) {
		look_at(neo, plan, SIZE_MAX);
		sort(plan);
		err = plan->err == -EACCES ? 0 : plan->err;
	}
	if (err)
		ki_neo_plan_end(plan);
	return err;
}

/* ---- Removing --------------------------------------------------------------------------- */

struct removal {
	struct ki_bytes digests; /* of records to be dropped */
	uint64_t freed;		 /* bytes of these records */
	size_t n;		 /* files */
};

static void note_record(struct ki_neo *neo, const char *name, uint64_t inode,
			struct removal *removal)
{
	struct ki_record_found found;

	if (ki_records_by_name(neo->records, name, &found) ||
	    found.inode != inode)
		return;
	ki_bytes_add(&removal->digests, found.digest, sizeof(found.digest));
	removal->freed += found.bytes;
}

/* Remove one file, if it is still the one that was looked at. */
static void remove_file(struct ki_neo *neo, struct ki_neo_account *account,
			const struct ki_neo_file *file, struct removal *removal)
{
	const char *name = name_of(&neo->plan, file);
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	if (ki_neo_look(neo, name, &info) || info.inode != file->inode ||
	    info.atime_ns != file->atime_ns ||
	    info.mtime_ns != file->mtime_ns || ki_neo_path(neo, name, path) ||
	    neo->sys->unlink(neo->sys, path))
		return;
	account->total = ki_neo_less(account->total, info.size);
	note_record(neo, name, file->inode, removal);
	removal->n++;
}

/*
 * What does not fit goes; but the dead in a large kiln.records are better paid for
 * with one more file than by writing it anew in each store.
 */
static int makes_room(struct ki_neo *neo, const struct ki_neo_account *account,
		      uint64_t need, uint64_t limit,
		      const struct removal *removal)
{
	const struct ki_records_totals totals = ki_records_totals(neo->records);

	if (is_worn(&totals, removal->freed))
		return could_fit(neo, account, need, limit, removal->freed);
	if (removal->digests.size)
		need += DROP_BYTES + removal->digests.size;
	return fits(neo, account, need, limit + removal->freed);
}

static enum kiln_status drop_records(struct ki_neo *neo,
				     struct removal *removal)
{
	enum kiln_status status = KILN_OK;

	/* Records of files that are gone mislead nobody. */
	if (removal->digests.size && !removal->digests.failed)
		status = ki_records_drop(neo->records,
					 (const uint8_t(*)[KILN_DIGEST_BYTES])
						 removal->digests.data,
					 removal->digests.size /
						 KILN_DIGEST_BYTES);
	ki_bytes_fini(&removal->digests);
	removal->freed = 0;
	return status;
}

/* What one store removes: what is needed, and a step towards the level. */
static enum kiln_status remove_some(struct ki_neo *neo,
				    struct ki_neo_account *account,
				    uint64_t need, uint64_t limit,
				    uint64_t level,
				    struct ki_neo_report *report)
{
	struct ki_neo_plan *plan = &neo->plan;
	struct removal removal = { .n = 0 };
	enum kiln_status status;

	ki_bytes_init(&removal.digests);
	for (;;) {
		const int is_urgent =
			!makes_room(neo, account, need, limit, &removal);

		if (!is_urgent &&
		    (!is_complete(plan) || removal.n >= neo->step_max ||
		     could_fit(neo, account, 0, level, removal.freed)))
			break;
		if (plan->next == plan->n_known) {
			if (is_complete(plan)) {
				/* What is left would not go. */
				report->is_partial |=
					is_urgent && account->total;
				break;
			}
			look_at(neo, plan, neo->looks_max);
			continue;
		}
		sort(plan);
		remove_file(neo, account, &plan->files[plan->next++], &removal);
	}
	report->n_evicted += removal.n;
	status = drop_records(neo, &removal);
	if (is_complete(plan) &&
	    (plan->next == plan->n || could_fit(neo, account, 0, level, 0)))
		ki_neo_plan_end(plan);
	return status;
}

/* ---- Counting ---------------------------------------------------------------------------- */

static void set_sum(struct ki_neo *neo, struct ki_neo_account *account)
{
	const struct ki_neo_plan *plan = &neo->plan;
	uint64_t total = 0;

	for (size_t i = plan->next; i < plan->n; i++)
		total += plan->files[i].size;
	account->total = total;
	account->is_sure = 1;
}

/* There are others, which only who made them may count: he has, or kiln.records
   has those of kiln's.  Less would be doubted, and counted, by each put. */
static void set_least_sum(struct ki_neo *neo, struct ki_neo_account *account)
{
	const uint64_t limit = ki_neo_limit(neo), noted = account->noted;
	const uint64_t known = ki_records_totals(neo->records).bytes_files;

	set_sum(neo, account);
	if (noted <= INT64_MAX && (!limit || noted <= limit) &&
	    noted > account->total)
		account->total = noted;
	if (known > account->total)
		account->total = known;
}

/* Not written into since it was recorded. */
static int is_as_recorded(struct ki_neo *neo, const char *name,
			  const struct ki_neo_file *file)
{
	struct ki_record_found found;

	return ki_records_by_name(neo->records, name, &found) ||
	       found.inode != file->inode ||
	       (found.file_size == file->size &&
		found.mtime_ns == file->mtime_ns);
}

/* Records of files that are no more, or others', are dropped. */
static enum kiln_status match_records(struct ki_neo *neo,
				      struct ki_neo_report *report)
{
	const struct ki_neo_plan *plan = &neo->plan;
	uint64_t n = 0;
	enum kiln_status status;

	ki_records_sweep_begin(neo->records);
	for (size_t i = plan->next; i < plan->n; i++) {
		const struct ki_neo_file *file = &plan->files[i];
		const char *name = name_of(plan, file);

		if (is_as_recorded(neo, name, file))
			(void)ki_records_mark(neo->records, name, file->inode);
	}
	status = ki_records_sweep_end(neo->records, &n);
	report->n_dropped += n;
	return status;
}

enum kiln_status ki_neo_count(struct ki_neo *neo,
			      struct ki_neo_account *account,
			      struct ki_neo_report *report)
{
	int err = plan_begin(neo, account, report);

	if (err)
		return ki_status_from_errno(err);
	look_at(neo, &neo->plan, SIZE_MAX);
	err = neo->plan.err;
	if (err == -EACCES) {
		set_least_sum(neo, account);
		report->is_partial = 1;
		return KILN_OK;
	}
	if (err) {
		ki_neo_plan_end(&neo->plan);
		return ki_status_from_errno(err);
	}
	set_sum(neo, account);
	return match_records(neo, report);
}

/* ---- Room ----------------------------------------------------------------------------------- */

static void count_evicted(const struct ki_neo *neo, uint64_t n)
{
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	deltas[KILN_COUNT_EVICTED] = n;
	if (n)
		(void)ki_counters_add(neo->sys, neo->stats_path, neo->flags,
				      NULL, deltas);
}

/* A plan, of a small directory at once: then the sum is put right with it. */
static enum kiln_status get_plan(struct ki_neo *neo,
				 struct ki_neo_account *account,
				 struct ki_neo_report *report)
{
	struct ki_neo_plan *plan = &neo->plan;
	const int is_doubtful = plan->is_doubtful;
	int err;

	if (plan->is_active &&
	    (is_doubtful ||
	     neo->sys->monotonic_ns(neo->sys) - plan->begun_ns > STALE_NS))
		ki_neo_plan_end(plan);
	if (plan->is_active ||
	    (!is_doubtful && plan_by_records(neo, account))) {
		look_at(neo, plan, neo->looks_max);
		return KILN_OK;
	}
	err = plan_begin(neo, account, report);
	if (err)
		return ki_status_from_errno(err);
	look_at(neo, plan, neo->looks_max);
	if (!is_complete(plan) || plan->err)
		return KILN_OK;
	set_sum(neo, account);
	return match_records(neo, report);
}

/* Leave the dead out of kiln.records where half of it is, or for want of room. */
static enum kiln_status compact(struct ki_neo *neo, int is_urgent)
{
	const struct ki_records_totals totals = ki_records_totals(neo->records);

	if (totals.bytes == totals.bytes_living ||
	    (!is_urgent &&
	     (totals.bytes < COMPACT_MIN || !is_worn(&totals, 0))))
		return KILN_OK;
	return ki_records_rewrite(neo->records, NULL);
}

static enum kiln_status make_room(struct ki_neo *neo,
				  struct ki_neo_account *account, uint64_t need,
				  uint64_t limit, uint64_t level,
				  struct ki_neo_report *report)
{
	enum kiln_status status = KILN_OK;

	/* A second time where files were used meanwhile; once more where only
	   the dead in kiln.records were in the way. */
	for (int tries = 0; tries < 3 && !status; tries++) {
		status = get_plan(neo, account, report);
		if (!status)
			status = remove_some(neo, account, need, limit, level,
					     report);
		if (!status)
			status = compact(neo, !fits(neo, account, need, limit));
		if (status || fits(neo, account, need, limit))
			return status;
	}
	return status ? status : KILN_E_FULL;
}

enum kiln_status ki_neo_make_room(struct ki_neo *neo,
				  struct ki_neo_account *account, uint64_t need,
				  struct ki_neo_report *report)
{
	const uint64_t limit = ki_neo_limit(neo), before = report->n_evicted;
	enum kiln_status status = KILN_OK;

	if (!account->is_sure) {
		status = ki_neo_count(neo, account, report);
		if (!limit || fits(neo, account, need, limit))
			ki_neo_plan_end(&neo->plan);
	}
	if (status || !limit)
		return status ? status : compact(neo, 0);
	if (fits(neo, account, need, limit) && !neo->plan.is_active)
		return compact(neo, 0);
	if (neo->flags & KILN_OPEN_REFUSE_FULL) {
		ki_neo_plan_end(&neo->plan);
		status = compact(neo, !fits(neo, account, need, limit));
		if (!status && !fits(neo, account, need, limit))
			status = KILN_E_FULL;
		return status;
	}
	status =
		make_room(neo, account, need, limit, limit - limit / 3, report);
	count_evicted(neo, report->n_evicted - before);
	return status;
}

/* ---- Cleaning up ------------------------------------------------------------------------------ */

static int64_t used_ns(const struct ki_neo_file *file)
{
	return file->atime_ns > file->mtime_ns ? file->atime_ns
					       : file->mtime_ns;
}

static enum kiln_status remove_expired(struct ki_neo *neo,
				       struct ki_neo_account *account,
				       uint64_t age_max_s,
				       struct ki_neo_report *report)
{
	struct ki_neo_plan *plan = &neo->plan;
	struct removal removal = { .n = 0 };
	size_t n_left = 0;

	if (!age_max_s || age_max_s > INT64_MAX / SECOND_NS)
		return KILN_OK;
	ki_bytes_init(&removal.digests);
	for (size_t i = 0; i < plan->n; i++) {
		const struct ki_neo_file *file = &plan->files[i];

		if (account->now_ns - used_ns(file) >=
		    (int64_t)age_max_s * SECOND_NS)
			remove_file(neo, account, file, &removal);
		else
			plan->files[n_left++] = *file;
	}
	plan->n = plan->n_known = n_left;
	report->n_expired += removal.n;
	return drop_records(neo, &removal);
}

enum kiln_status ki_neo_clean(struct ki_neo *neo,
			      struct ki_neo_account *account,
			      uint64_t bytes_max, uint64_t age_max_s,
			      struct ki_neo_report *report)
{
	const uint64_t limit = bytes_max ? bytes_max : ki_neo_limit(neo);
	enum kiln_status status = ki_neo_count(neo, account, report);

	if (!status)
		status = remove_expired(neo, account, age_max_s, report);
	if (!status && limit && !could_fit(neo, account, 0, limit, 0))
		status = remove_some(neo, account, 0, limit, limit, report);
	ki_neo_plan_end(&neo->plan);
	if (!status)
		status = compact(neo, limit && !fits(neo, account, 0, limit));
	count_evicted(neo, report->n_evicted + report->n_expired);
	return status;
}
