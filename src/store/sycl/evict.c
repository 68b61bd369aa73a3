/* SPDX-License-Identifier: MIT */

/*
 * Making room: the least recently used first, down to half of the limit; what a
 * new entry needs at once, the rest in steps.
 *
 *	limit  ----------------------------------------  never passed
 *	          store  store     | what it needs now
 *	       ___/------/------\__ \
 *	                           \ | at most KI_SYCL_STEP entries a store
 *	1/2    --------------------- \____________________
 *
 * The original walks the whole tree, reads every time of access, sorts and removes
 * half in one store.  Here a plan is made in pieces of KI_SYCL_LOOKS directories
 * and entries; while it grows, what is needed at once is the oldest of those seen
 * (directories are named by hashes, entries are taken at random, so it is a
 * sample).  A tree that is seen whole in one piece goes in exact order, and its
 * sum is put right as well.
 *
 * Every process has a plan of its own; the level they aim at is one.  While it
 * removes it holds DPC++'s lock file for that: the original that finds it leaves
 * evicting to us.  An entry used since it was looked at is passed over, and so is
 * one that somebody else has locked.
 *
 * By cost (the settings of kiln.records say so), what is looked at is put into the
 * order of store/evict.h, unless what is too old has to go as well.  The build
 * times are in kiln.records: of entries that DPC++ wrote nobody knows them, and
 * these go by last use.
 *
 * Last use is what <n>_access_time.txt says; without one, the later of the .bin's
 * times of access and modification.  Equal ones go by modification, then by name.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "store/evict.h"

#define SECOND_NS   ((int64_t)1000000000)
#define STALE_NS    ((uint64_t)60 * 1000000000)
#define COMPACT_MIN ((uint64_t)64 << 10)
#define DROP_BYTES  96 /* of kiln.records, and 16 for each key dropped */

/* ---- What has to fit -------------------------------------------------------------- */

/* Room for the living is kept twice: when kiln.records is written anew both files
   are there, and that must be possible at any time. */
static int fits(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		uint64_t need, uint64_t limit)
{
	const struct ki_records_totals totals =
		ki_records_totals(sycl->records);

	return turn->total + totals.bytes + totals.bytes_living + need <= limit;
}

/* The same once the dead are left out of kiln.records, `freed` with them. */
static int could_fit(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		     uint64_t need, uint64_t limit, uint64_t freed)
{
	const uint64_t living = ki_records_totals(sycl->records).bytes_living;

	return turn->total + 2 * ki_sycl_less(living, freed) + need <= limit;
}

int ki_sycl_would_fit(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		      uint64_t limit)
{
	return !limit || could_fit(sycl, turn, 0, limit, 0);
}

/* Whether so much of kiln.records is dead that it is worth writing anew; of a
   small one anything is. */
static int is_worn(const struct ki_records_totals *totals, uint64_t freed)
{
	const uint64_t dead =
		totals->bytes - ki_sycl_less(totals->bytes_living, freed);

	return totals->bytes < COMPACT_MIN ? dead > 0
					   : dead * 2 >= totals->bytes;
}

/* ---- The plan ------------------------------------------------------------------------ */

void ki_sycl_plan_end(struct ki_sycl_plan *plan)
{
	ki_bytes_fini(&plan->names);
	ki_bytes_fini(&plan->pending);
	free(plan->files);
	*plan = (struct ki_sycl_plan){ 0 };
}

static void plan_init(const struct ki_sycl *sycl, struct ki_sycl_plan *plan)
{
	ki_bytes_init(&plan->names);
	ki_bytes_init(&plan->pending);
	plan->by_cost = ki_records_settings(sycl->records).by_cost;
	plan->is_active = 1;
}

static const char *name_of(const struct ki_sycl_plan *plan,
			   const struct ki_sycl_file *file)
{
	return (const char *)plan->names.data + file->name;
}

/* A plan and what is done while it is made; `sycl` NULL: nothing. */
struct gathering {
	struct ki_sycl_plan *plan;
	struct ki_sycl *sycl;
	struct ki_sycl_turn *turn;
	struct ki_sycl_report *report;
};

static int add_directory(void *arg, const char *name)
{
	struct ki_sycl_plan *plan = ((struct gathering *)arg)->plan;

	ki_bytes_add_u64(&plan->pending, plan->names.size);
	ki_bytes_add(&plan->names, name, strlen(name) + 1);
	return plan->names.failed ? plan->names.failed : plan->pending.failed;
}

/* A lock file and nothing else: of somebody who is about to write, or is dead. */
static void watch_lock(const struct gathering *gathering, const char *stem)
{
	char path[KI_PATH_MAX];

	if (!ki_sycl_path(gathering->sycl, stem, path) &&
	    !ki_sycl_lock(gathering->sycl, gathering->turn, path, 0))
		ki_sycl_unlock(gathering->sycl, path);
}

static int add_entry(void *arg, const char *stem, unsigned has)
{
	const struct gathering *gathering = arg;
	struct ki_sycl_plan *plan = gathering->plan;

	if (!(has & ~(KI_SYCL_LOCK | KI_SYCL_USE_LOCK))) {
		if (gathering->sycl && (has & KI_SYCL_LOCK))
			watch_lock(gathering, stem);
		return 0;
	}
	if (plan->n == plan->capacity) {
		size_t capacity = plan->capacity ? plan->capacity * 2 : 256;
		struct ki_sycl_file *files =
			realloc(plan->files, capacity * sizeof(*files));

		if (!files)
			return -ENOMEM;
		plan->files = files;
		plan->capacity = capacity;
	}
	plan->files[plan->n++] = (struct ki_sycl_file){
		.name = plan->names.size,
		.has = has & ~(KI_SYCL_LOCK | KI_SYCL_USE_LOCK),
	};
	ki_bytes_add(&plan->names, stem, strlen(stem) + 1);
	return plan->names.failed;
}

/* Of dead writers: only who has the turn writes them, and that is us. */
static void sweep_temporaries(const struct gathering *gathering)
{
	static const char *const names[] = {
		"kiln.bin.tmp",	  "kiln.src.tmp",  "kiln.size.tmp",
		"kiln.stale.tmp", "kiln.held.tmp", "kiln.records.new"
	};
	const struct ki_sycl *sycl = gathering->sycl;
	char path[KI_PATH_MAX];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!ki_sycl_path(sycl, names[i], path) &&
		    !sycl->sys->unlink(sycl->sys, path))
			gathering->report->n_temporaries++;
}

static int plan_begin(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
		      struct ki_sycl_report *report)
{
	struct gathering gathering = { &sycl->plan, sycl, turn, report };
	int err;

	ki_sycl_plan_end(&sycl->plan);
	plan_init(sycl, &sycl->plan);
	sycl->plan.begun_ns = sycl->sys->monotonic_ns(sycl->sys);
	sweep_temporaries(&gathering);
	err = ki_sycl_open_one(sycl, "", add_directory, add_entry, &gathering);
	if (err)
		ki_sycl_plan_end(&sycl->plan);
	return err == -EACCES ? -EPERM : err;
}

/* ---- Looking ----------------------------------------------------------------------------- */

static void note_failure(struct ki_sycl_plan *plan, int err)
{
	if (err && err != -ENOENT && (!plan->err || err != -EACCES))
		plan->err = err;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* 0, -ENOENT if nothing of it is there, -errno. */
static int look_at_entry(const struct ki_sycl *sycl, const char *stem,
			 struct ki_sycl_file *file)
{
	struct ki_file_info bin = { 0 }, src = { 0 };
	int64_t used_ns;
	int err = ki_sycl_look(sycl, stem, ".bin", &bin), src_err = -ENOENT;

	file->extra = 0;
	if (err && err != -ENOENT)
		return err;
	if (err)
		bin = (struct ki_file_info){ 0 };
	if (file->has & KI_SYCL_SRC)
		src_err = ki_sycl_look(sycl, stem, ".src", &src);
	if (src_err && src_err != -ENOENT)
		return src_err;
	if (src_err)
		src = (struct ki_file_info){ 0 };
	if (err && src_err && !(file->has & KI_SYCL_ACCESS))
		return -ENOENT;
	file->size = bin.size + src.size;
	file->inode = bin.inode ? bin.inode : src.inode;
	file->mtime_ns = bin.inode ? bin.mtime_ns : src.mtime_ns;
	file->used_ns = later(bin.atime_ns, file->mtime_ns);
	if (!ki_sycl_read_use(sycl, stem, &used_ns)) {
		file->used_ns = used_ns;
		file->extra = KI_SYCL_USE_BYTES;
	}
	return 0;
}

static uint64_t next_random(struct ki_sycl *sycl)
{
	uint64_t x = sycl->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return sycl->random = x;
}

static uint64_t build_ns_of(const struct ki_sycl *sycl, const char *stem,
			    uint64_t inode)
{
	char name[KI_SYCL_NAME_BYTES + 4];

	snprintf(name, sizeof(name), "%s.bin", stem);
	return ki_records_build_ns(sycl->records, name, inode);
}

/* One of those not looked at: any, as places list by age more often than not. */
static void look_at_one(const struct ki_sycl *sycl, struct ki_sycl_plan *plan,
			uint64_t random)
{
	struct ki_sycl_file *place = &plan->files[plan->n_known];
	struct ki_sycl_file *any = place + random % (plan->n - plan->n_known);
	const struct ki_sycl_file file = *any;
	int err;

	*any = *place;
	*place = file;
	err = look_at_entry(sycl, name_of(plan, place), place);
	if (err) {
		note_failure(plan, err);
		*place = plan->files[--plan->n];
		return;
	}
	if (plan->by_cost)
		place->build_ns =
			build_ns_of(sycl, name_of(plan, place), place->inode);
	plan->bytes += place->size + place->extra;
	plan->n_known++;
	plan->is_sorted = 0;
}

static uint64_t step(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* Those of one directory, in any order: listed by age, the empty ones that past
   evictions have left would come first, all of them. */
static void shuffle(struct ki_bytes *pending, size_t first, uint64_t *random)
{
	for (size_t n = (pending->size - first) / 8; n > 1; n--) {
		uint8_t *last = pending->data + first + (n - 1) * 8;
		uint8_t *any = pending->data + first + step(random) % n * 8;
		const uint64_t offset = ki_get_u64(any);

		ki_put_u64(any, ki_get_u64(last));
		ki_put_u64(last, offset);
	}
}

static int open_next(const struct ki_sycl *sycl, struct gathering *gathering,
		     uint64_t *random)
{
	struct ki_sycl_plan *plan = gathering->plan;
	char name[KI_SYCL_NAME_BYTES];
	size_t first;
	int err;

	plan->pending.size -= 8;
	first = plan->pending.size;
	strcpy(name,
	       (const char *)plan->names.data +
		       ki_get_u64(plan->pending.data + plan->pending.size));
	err = ki_sycl_open_one(sycl, name, add_directory, add_entry, gathering);
	shuffle(&plan->pending, first, random);
	return err;
}

static int is_complete(const struct ki_sycl_plan *plan)
{
	return !plan->pending.size && plan->n_known == plan->n;
}

/* So many more directories and entries. */
static void look_at(struct gathering *gathering, const struct ki_sycl *sycl,
		    size_t n, uint64_t *random)
{
	struct ki_sycl_plan *plan = gathering->plan;

	plan->now_ns = (int64_t)sycl->sys->realtime_ns(sycl->sys);
	for (; n && !is_complete(plan); n--) {
		if (plan->n_known < plan->n) {
			look_at_one(sycl, plan, step(random));
		} else {
			note_failure(plan, open_next(sycl, gathering, random));
		}
	}
}

static void look_further(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			 struct ki_sycl_report *report, size_t n)
{
	struct gathering gathering = { &sycl->plan, sycl, turn, report };
	uint64_t random = next_random(sycl);

	look_at(&gathering, sycl, n, &random);
}

/* ---- The order ------------------------------------------------------------------------ */

static int compare(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_last_use(const void *a, const void *b, void *names)
{
	const struct ki_sycl_file *x = a, *y = b;
	int order = compare(x->used_ns, y->used_ns);

	if (!order)
		order = compare(x->mtime_ns, y->mtime_ns);
	if (!order)
		order = strcmp((const char *)names + x->name,
			       (const char *)names + y->name);
	return order;
}

static int weigh(const void *what, struct ki_evictable *out_entry)
{
	const struct ki_sycl_file *file = what;

	*out_entry = (struct ki_evictable){
		.bytes = file->size + file->extra,
		.used_ns = file->used_ns,
		.build_ns = file->build_ns,
	};
	return 1;
}

static void sort(struct ki_sycl_plan *plan)
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

/* What is too old comes first only in the order of last use. */
static void sort_for(struct ki_sycl_plan *plan, const struct ki_sycl_goal *goal)
{
	if (goal->age_max_s && plan->by_cost)
		plan->by_cost = plan->is_sorted = 0;
	sort(plan);
}

int ki_sycl_plan_all(const struct ki_sycl *sycl, struct ki_sycl_plan *plan)
{
	struct gathering gathering = { .plan = plan };
	uint64_t random = 1;
	int err;

	plan_init(sycl, plan);
	err = ki_sycl_open_one(sycl, "", add_directory, add_entry, &gathering);
	if (!err) {
		look_at(&gathering, sycl, SIZE_MAX, &random);
		sort(plan);
		err = plan->err == -EACCES ? 0 : plan->err;
	}
	if (err)
		ki_sycl_plan_end(plan);
	return err;
}

/* ---- Removing --------------------------------------------------------------------------- */

struct removal {
	struct ki_bytes digests; /* of records to be dropped */
	uint64_t freed;		 /* bytes of these records */
	size_t n;		 /* entries */
};

/* What kiln stored was added with its time of access. */
static void note_record(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			const char *stem, const struct ki_sycl_file *file,
			struct removal *removal)
{
	char name[KI_SYCL_NAME_BYTES + 4];
	struct ki_record_found found;

	strcpy(name, stem);
	strcat(name, ".bin");
	if (ki_records_by_name(sycl->records, name, &found) ||
	    found.inode != file->inode)
		return;
	if (!ki_sycl_is_own(stem) && !sycl->plan.is_counted)
		ki_sycl_take(turn, file->extra);
	ki_bytes_add(&removal->digests, found.digest, sizeof(found.digest));
	removal->freed += found.bytes;
}

/* Remove one entry, if it is still as it was looked at. */
static void remove_file(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			const struct ki_sycl_file *file,
			struct removal *removal)
{
	const char *stem = name_of(&sycl->plan, file);
	struct ki_sycl_file now = *file;

	if (look_at_entry(sycl, stem, &now) || now.inode != file->inode ||
	    now.used_ns != file->used_ns || now.mtime_ns != file->mtime_ns ||
	    ki_sycl_remove_file(sycl, turn, stem, &now))
		return;
	if (!ki_sycl_is_own(stem) && sycl->plan.is_counted)
		ki_sycl_take(turn, now.extra);
	if (now.has & KI_SYCL_SRC)
		ki_sycl_trace_file(sycl, "File removed: ", stem, ".src");
	ki_sycl_trace_file(sycl, "File removed: ", stem, ".bin");
	note_record(sycl, turn, stem, file, removal);
	removal->n++;
}

/*
 * What does not fit goes; but the dead in a large kiln.records are better paid for
 * with one more entry than by writing it anew in each store.
 */
static int makes_room(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		      uint64_t need, uint64_t limit,
		      const struct removal *removal)
{
	const struct ki_records_totals totals =
		ki_records_totals(sycl->records);

	if (is_worn(&totals, removal->freed))
		return could_fit(sycl, turn, need, limit, removal->freed);
	if (removal->digests.size)
		need += DROP_BYTES + removal->digests.size;
	return fits(sycl, turn, need, limit + removal->freed);
}

static enum kiln_status drop_records(struct ki_sycl *sycl,
				     struct removal *removal)
{
	enum kiln_status status = KILN_OK;

	/* Records of files that are gone mislead nobody. */
	if (removal->digests.size && !removal->digests.failed)
		status = ki_records_drop(sycl->records,
					 (const uint8_t(*)[KILN_DIGEST_BYTES])
						 removal->digests.data,
					 removal->digests.size /
						 KILN_DIGEST_BYTES);
	ki_bytes_fini(&removal->digests);
	removal->freed = 0;
	return status;
}

/* What one store removes: what is needed, and a step towards the level. */
static enum kiln_status remove_some(struct ki_sycl *sycl,
				    struct ki_sycl_turn *turn, uint64_t need,
				    uint64_t limit, uint64_t level,
				    struct ki_sycl_report *report)
{
	struct ki_sycl_plan *plan = &sycl->plan;
	struct removal removal = { .n = 0 };
	enum kiln_status status;

	ki_bytes_init(&removal.digests);
	for (;;) {
		const int is_urgent =
			!makes_room(sycl, turn, need, limit, &removal);

		if (!is_urgent &&
		    (!is_complete(plan) || removal.n >= sycl->step_max ||
		     could_fit(sycl, turn, 0, level, removal.freed)))
			break;
		if (plan->next == plan->n_known) {
			if (is_complete(plan))
				break;
			look_further(sycl, turn, report, sycl->looks_max);
			continue;
		}
		sort(plan);
		remove_file(sycl, turn, &plan->files[plan->next++], &removal);
	}
	report->n_evicted += removal.n;
	status = drop_records(sycl, &removal);
	if (is_complete(plan) &&
	    (plan->next == plan->n || could_fit(sycl, turn, 0, level, 0)))
		ki_sycl_plan_end(plan);
	return status;
}

/* ---- Counting ---------------------------------------------------------------------------- */

/* Not written into since it was recorded. */
static int is_as_recorded(struct ki_sycl *sycl, const char *name,
			  const struct ki_sycl_file *file)
{
	struct ki_record_found found;

	return ki_records_by_name(sycl->records, name, &found) ||
	       found.inode != file->inode || found.mtime_ns == file->mtime_ns;
}

/* Parts of entries in kiln's own places: of those that died. */
static void remove_litter(struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	struct ki_sycl_plan *plan = &sycl->plan;
	char name[KI_SYCL_NAME_BYTES + 4];
	struct ki_record_found found;
	size_t n_left = plan->next;

	for (size_t i = plan->next; i < plan->n; i++) {
		const struct ki_sycl_file *file = &plan->files[i];
		const char *stem = name_of(plan, file);
		const uint64_t bytes = file->size + file->extra;

		snprintf(name, sizeof(name), "%s.bin", stem);
		if (!ki_sycl_is_own(stem) || (file->has & KI_SYCL_BIN) ||
		    ki_records_by_name(sycl->records, name, &found) !=
			    KILN_MISS ||
		    ki_sycl_remove_entry(sycl, turn, stem))
			plan->files[n_left++] = *file;
		else
			plan->bytes = ki_sycl_less(plan->bytes, bytes);
	}
	plan->n = plan->n_known = n_left;
}

/* Of files that came after they were looked at. */
static void mark_later(struct ki_sycl *sycl)
{
	struct ki_record_found found;
	struct ki_file_info info;
	enum ki_sycl_state state;
	uint64_t serial = 0;

	while (!ki_records_next(sycl->records, &serial, &found, NULL, NULL))
		if (!ki_sycl_state(sycl, &found, &state, &info) &&
		    state != KI_SYCL_GONE && state != KI_SYCL_TAKEN)
			(void)ki_records_mark(sycl->records, found.name,
					      found.inode);
}

/* Records of files that are no more, or others', are dropped. */
static enum kiln_status match_records(struct ki_sycl *sycl,
				      struct ki_sycl_turn *turn, int is_still,
				      struct ki_sycl_report *report)
{
	const struct ki_sycl_plan *plan = &sycl->plan;
	char name[KI_SYCL_NAME_BYTES + 4];
	uint64_t n = 0;
	enum kiln_status status;

	ki_records_sweep_begin(sycl->records);
	for (size_t i = plan->next; i < plan->n; i++) {
		const struct ki_sycl_file *file = &plan->files[i];

		strcpy(name, name_of(plan, file));
		strcat(name, ".bin");
		if (is_as_recorded(sycl, name, file))
			(void)ki_records_mark(sycl->records, name, file->inode);
	}
	if (!is_still)
		mark_later(sycl);
	status = ki_records_sweep_end(sycl->records, &n);
	report->n_dropped += n;
	if (!status)
		remove_litter(sycl, turn);
	return status;
}

/* 1 if we have DPC++'s lock file for it, 0 if there can be none, -EAGAIN.  What
   others evicted until then is not in the sum any more. */
static int begin_evicting(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			  int waits)
{
	int err;

	/* Who spells the directory otherwise has another one. */
	if (ki_sycl_is_other_evicting(sycl)) {
		err = ki_sycl_lock(sycl, turn, sycl->evict_other, waits);
		if (err == -EAGAIN)
			return err;
		if (!err)
			ki_sycl_unlock(sycl, sycl->evict_other);
	}
	err = ki_sycl_lock(sycl, turn, sycl->evict_path, waits);
	if (!err)
		ki_sycl_read_sum_again(sycl, turn);
	return err == -EAGAIN ? err : !err;
}

enum kiln_status ki_sycl_count(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			       struct ki_sycl_report *report)
{
	/* What DPC++ counts at the same time it counts after us. */
	const int is_locked = turn->has_size && turn->noted == UINT64_MAX &&
			      !ki_sycl_lock(sycl, turn, sycl->size_path, 1);
	/* What goes while we look would be taken off twice. */
	const int is_evicting =
		turn->noted == UINT64_MAX ? 0 : begin_evicting(sycl, turn, 1);
	enum kiln_status status = KILN_OK;
	int err = plan_begin(sycl, turn, report);

	if (!err) {
		look_further(sycl, turn, report, SIZE_MAX);
		err = sycl->plan.err;
	}
	if (err == -EACCES)
		report->is_partial = 1;
	if (!err)
		status = match_records(sycl, turn, 1, report);
	if ((!err && is_evicting >= 0) ||
	    ((!err || err == -EACCES) &&
	     (turn->noted == UINT64_MAX || sycl->plan.bytes > turn->total))) {
		ki_sycl_recount(sycl, turn, sycl->plan.bytes);
		sycl->plan.is_counted = 1;
	}
	if (is_locked)
		ki_sycl_unlock(sycl, sycl->size_path);
	if (is_evicting > 0)
		ki_sycl_unlock(sycl, sycl->evict_path);
	if (err && err != -EACCES) {
		ki_sycl_plan_end(&sycl->plan);
		return ki_status_from_errno(err);
	}
	turn->is_sure = turn->is_counted = 1;
	return status;
}

/* ---- Room ----------------------------------------------------------------------------------- */

static void count_evicted(const struct ki_sycl *sycl, uint64_t n)
{
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	deltas[KILN_COUNT_EVICTED] = n;
	if (n)
		(void)ki_counters_add(sycl->sys, sycl->stats_path, sycl->flags,
				      NULL, deltas);
}

/* A plan, of a small directory at once: then the sum is put right with it. */
static enum kiln_status get_plan(struct ki_sycl *sycl,
				 struct ki_sycl_turn *turn,
				 struct ki_sycl_report *report)
{
	struct ki_sycl_plan *plan = &sycl->plan;
	enum kiln_status status;
	int err;

	if (plan->is_active &&
	    sycl->sys->monotonic_ns(sycl->sys) - plan->begun_ns > STALE_NS)
		ki_sycl_plan_end(plan);
	if (plan->is_active) {
		look_further(sycl, turn, report, sycl->looks_max);
		return KILN_OK;
	}
	err = plan_begin(sycl, turn, report);
	if (err)
		return ki_status_from_errno(err);
	look_further(sycl, turn, report, sycl->looks_max);
	if (!is_complete(plan) || plan->err)
		return KILN_OK;
	status = match_records(sycl, turn, 1, report);
	ki_sycl_recount(sycl, turn, plan->bytes);
	plan->is_counted = 1;
	return status;
}

/* Leave the dead out of kiln.records where half of it is, or for want of room. */
static enum kiln_status compact(struct ki_sycl *sycl, int is_urgent)
{
	const struct ki_records_totals totals =
		ki_records_totals(sycl->records);

	if (totals.bytes == totals.bytes_living ||
	    (!is_urgent &&
	     (totals.bytes < COMPACT_MIN || !is_worn(&totals, 0))))
		return KILN_OK;
	return ki_records_rewrite(sycl->records, NULL);
}

static enum kiln_status make_room(struct ki_sycl *sycl,
				  struct ki_sycl_turn *turn, uint64_t need,
				  uint64_t limit, uint64_t level,
				  struct ki_sycl_report *report)
{
	enum kiln_status status = KILN_OK;

	/* A second time where entries were used meanwhile; once more where only
	   the dead in kiln.records were in the way. */
	for (int tries = 0; tries < 3 && !status; tries++) {
		status = get_plan(sycl, turn, report);
		if (!status)
			status = remove_some(sycl, turn, need, limit, level,
					     report);
		if (!status)
			status = compact(sycl, !fits(sycl, turn, need, limit));
		if (status || fits(sycl, turn, need, limit))
			return status;
	}
	return status ? status : KILN_E_FULL;
}

enum kiln_status ki_sycl_make_room(struct ki_sycl *sycl,
				   struct ki_sycl_turn *turn, uint64_t need,
				   struct ki_sycl_report *report)
{
	const uint64_t limit = ki_sycl_limit(sycl), before = report->n_evicted;
	enum kiln_status status = KILN_OK;
	char text[100];
	int is_evicting;

	if (!turn->is_sure && turn->has_size) {
		status = ki_sycl_count(sycl, turn, report);
		if (!limit || fits(sycl, turn, need, limit))
			ki_sycl_plan_end(&sycl->plan);
	}
	if (status || !limit)
		return status ? status : compact(sycl, 0);
	if (fits(sycl, turn, need, limit) && !sycl->plan.is_active)
		return compact(sycl, 0);
	if (sycl->flags & KILN_OPEN_REFUSE_FULL) {
		ki_sycl_plan_end(&sycl->plan);
		status = compact(sycl, !fits(sycl, turn, need, limit));
		if (!status && !fits(sycl, turn, need, limit))
			status = KILN_E_FULL;
		return status;
	}
	is_evicting = begin_evicting(sycl, turn, 1);
	ki_sycl_trace(sycl, is_evicting < 0 ? "Another process is evicting the "
					      "cache. Returning."
					    : "Cache eviction triggered.");
	/* Somebody else is at it. */
	if (is_evicting < 0)
		return fits(sycl, turn, need, limit) ? KILN_OK : KILN_E_TIMEOUT;
	status = make_room(sycl, turn, need, limit, limit / 2, report);
	if (is_evicting > 0)
		ki_sycl_unlock(sycl, sycl->evict_path);
	snprintf(text, sizeof(text),
		 "Updating the cache size file after eviction. New size: %llu",
		 (unsigned long long)turn->total);
	ki_sycl_trace(sycl, text);
	count_evicted(sycl, report->n_evicted - before);
	return status;
}

/* ---- Cleaning up ------------------------------------------------------------------------------ */

enum kiln_status ki_sycl_use_plan(struct ki_sycl *sycl,
				  struct ki_sycl_turn *turn,
				  struct ki_sycl_plan *plan, int is_still,
				  struct ki_sycl_report *report)
{
	struct gathering gathering = { &sycl->plan, sycl, turn, report };
	enum kiln_status status = KILN_OK;
	uint64_t bytes;

	ki_sycl_plan_end(&sycl->plan);
	sycl->plan = *plan;
	*plan = (struct ki_sycl_plan){ .n = 0 };
	sweep_temporaries(&gathering);
	if (sycl->plan.err)
		report->is_partial = 1;
	else
		status = match_records(sycl, turn, is_still, report);
	bytes = sycl->plan.bytes;
	if (turn->noted == UINT64_MAX ||
	    (is_still && (!sycl->plan.err || bytes > turn->total))) {
		ki_sycl_recount(sycl, turn, bytes);
		sycl->plan.is_counted = 1;
	}
	return status;
}

static int is_expired(const struct ki_sycl_turn *turn,
		      const struct ki_sycl_file *file, uint64_t age_max_s)
{
	return age_max_s && age_max_s <= INT64_MAX / SECOND_NS &&
	       turn->now_ns - file->used_ns >= (int64_t)age_max_s * SECOND_NS;
}

/* Those that go first. */
static void remove_first(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			 const struct ki_sycl_goal *goal, size_t n_max,
			 struct removal *removal, struct ki_sycl_report *report)
{
	struct ki_sycl_plan *plan = &sycl->plan;

	sort_for(plan, goal);
	for (; n_max && plan->next < plan->n; n_max--) {
		const struct ki_sycl_file *file = &plan->files[plan->next];
		const size_t before = removal->n;
		const int is_old = is_expired(turn, file, goal->age_max_s);

		if (!is_old &&
		    (!goal->bytes_max ||
		     could_fit(sycl, turn, 0, goal->bytes_max, removal->freed)))
			break;
		remove_file(sycl, turn, file, removal);
		plan->next++;
		*(is_old ? &report->n_expired : &report->n_evicted) +=
			removal->n - before;
	}
}

static int is_reached(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		      const struct ki_sycl_goal *goal)
{
	struct ki_sycl_plan *plan = &sycl->plan;

	sort_for(plan, goal);
	return plan->next == plan->n ||
	       (!is_expired(turn, &plan->files[plan->next], goal->age_max_s) &&
		(!goal->bytes_max ||
		 could_fit(sycl, turn, 0, goal->bytes_max, 0)));
}

enum kiln_status ki_sycl_clean_some(struct ki_sycl *sycl,
				    struct ki_sycl_turn *turn,
				    const struct ki_sycl_goal *goal,
				    size_t n_max, struct ki_sycl_report *report)
{
	struct removal removal = { .n = 0 };
	enum kiln_status status = KILN_OK;
	int is_evicting;

	if (!is_reached(sycl, turn, goal)) {
		is_evicting = begin_evicting(sycl, turn, 0);
		if (is_evicting < 0)
			return KILN_E_TIMEOUT;
		ki_bytes_init(&removal.digests);
		remove_first(sycl, turn, goal, n_max, &removal, report);
		status = drop_records(sycl, &removal);
		if (is_evicting > 0)
			ki_sycl_unlock(sycl, sycl->evict_path);
		if (status || !is_reached(sycl, turn, goal))
			return status;
	}
	status = compact(sycl, goal->bytes_max &&
				       !fits(sycl, turn, 0, goal->bytes_max));
	return status ? status : KILN_END;
}

void ki_sycl_count_evicted(const struct ki_sycl *sycl,
			   const struct ki_sycl_report *report)
{
	count_evicted(sycl, report->n_evicted + report->n_expired);
}
