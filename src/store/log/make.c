/* SPDX-License-Identifier: MIT */

/*
 * A new index, under byte 0, in four cases that share one way of doing it: a
 * temporary is allocated, filled and renamed over NAME.idx, so nobody ever
 * maps a half-made one.
 *
 *	first    an empty header
 *	again    the index is missing or its header beyond repair: the records
 *	         are read and put in, in order
 *	grow     every word of the old one, then whatever changed meanwhile
 *	wipe     an empty header, numbers going on
 *
 * Growing, against writers that take no lock (the digests that say where words
 * go were read before byte 0 was taken):
 *	1  close the tail (swap it for 0): nobody reserves any more
 *	2  copy words and marks
 *	3  set RETIRED in the old header
 *	4  compare the old words with those copied, carry over differences
 *	5  rename
 * A writer swaps its word, then reads RETIRED; all four are sequentially
 * consistent.  If it reads 0, its word was there before step 3 and step 4 sees
 * it; if not, it publishes again in the new index.  Killed between 3 and 5:
 * whoever takes byte 0 next finds the retired index still in its place and
 * takes the mark off.
 *
 * A wipe sets RETIRED before the first file goes.  Killed on the way, the
 * index that says so is still there, and the next one finishes.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Filling --------------------------------------------------------- */

static int erase(struct log_index *index, uint64_t digest_low,
		 uint64_t digest_high, uint64_t word)
{
	uint64_t slots[2];
	unsigned i;

	ki_log_slots_of(index, digest_low, digest_high, slots);
	for (i = 0; i < 2 * LOG_WORDS; i++)
		if (ki_log_word_swap(index,
				     slots[i / LOG_WORDS] + i % LOG_WORDS, word,
				     0))
			return 1;
	return 0;
}

static enum kiln_status fill_header(struct ki_log *log,
				    struct log_header *header,
				    uint64_t n_buckets, uint64_t user_version,
				    uint32_t first_number,
				    const struct log_limit_values *limits)
{
	struct log_fixed *fixed = &header->fixed;
	uint64_t boot_id[2];
	int err = log->sys->random(log->sys, fixed->id, sizeof(fixed->id));

	if (err)
		return ki_log_status(err);
	fixed->magic = LOG_INDEX_MAGIC;
	fixed->version = LOG_VERSION;
	fixed->header_bytes = LOG_HEADER_BYTES;
	fixed->n_buckets = n_buckets;
	fixed->user_version = user_version;
	fixed->created_s = log->sys->realtime_ns(log->sys) / 1000000000;
	ki_log_fixed_seal(header);
	header->min_live = log_number_word(first_number);
	header->next_number = log_number_word(first_number);
	/* Never one that an earlier index of this place had. */
	header->generation = ki_get_u64(fixed->id);
	ki_log_boot_id(log, boot_id);
	header->boot_id[0] = boot_id[0];
	header->boot_id[1] = boot_id[1];
	header->aged_s = fixed->created_s;
	ki_log_limits_set(header, limits);
	return KILN_OK;
}

struct draft {
	struct log_index index;
	char path[KI_PATH_MAX];
};

/* Allocate and map, under a passing name. */
static enum kiln_status draft_begin(struct ki_log *log, uint64_t n_buckets,
				    struct draft *draft)
{
	const struct ki_sys *sys = log->sys;
	uint64_t bytes = ki_log_index_bytes(n_buckets);
	void *data;
	int fd, err = ki_log_temporary(log, bytes, draft->path, &fd);

	if (err)
		return ki_log_status(err);
	err = sys->map(sys, fd, 0, (size_t)bytes, KI_MAP_SHARED_WRITE, &data);
	(void)sys->close(sys, fd);
	if (err) {
		(void)sys->unlink(sys, draft->path);
		return ki_log_status(err);
	}
	draft->index = (struct log_index){ .sys = sys, .writable = 1 };
	ki_log_index_place(&draft->index, data, (size_t)bytes, n_buckets);
	return KILN_OK;
}

static enum kiln_status draft_finish(struct ki_log *log, struct draft *draft,
				     enum kiln_status status)
{
	const struct ki_sys *sys = log->sys;

	sys->unmap(sys, draft->index.header, draft->index.size);
	if (!status)
		status = ki_log_status(
			sys->rename(sys, draft->path, log->index_path));
	if (status)
		(void)sys->unlink(sys, draft->path);
	return status;
}

/* ---- Making ---------------------------------------------------------- */

/* What the opener wishes for. */
static struct log_limit_values wanted_limits(const struct ki_log *log)
{
	return (struct log_limit_values){
		.bytes_max = log->bytes_max,
		.age_max_s = log->age_max_s,
		.segment_bytes = ki_log_segment_bytes_for(log->bytes_max, 0),
		.policy = log->flags & KILN_OPEN_REFUSE_FULL ? LOG_REFUSE_FULL
							     : 0,
		.quota_bytes = log->quota_bytes,
	};
}

/*
 * The first segment's number where nothing is: by chance, so that a writer
 * who has not noticed yet that an earlier store of this place was removed
 * meets no file of the new one under the name that it is about to open.
 */
static enum kiln_status begin_numbers(struct ki_log *log, uint32_t *out_number)
{
	uint32_t number;
	int err = log->sys->random(log->sys, &number, sizeof(number));

	*out_number = number;
	return ki_log_status(err);
}

/*
 * As many buckets as the entries need, if the bound has room for them beside
 * what is there: an index that grew had it.
 */
static uint64_t wanted_buckets(struct ki_log *log, struct log_census *census,
			       uint64_t bytes_max, uint64_t n_entries)
{
	uint64_t n_buckets = ki_log_buckets_for(bytes_max, log->quota_bytes);

	while (ki_log_is_loaded(n_entries, n_buckets)) {
		uint64_t bytes = ki_log_index_bytes(n_buckets * 2);

		if (bytes_max && census->bytes + bytes > bytes_max &&
		    (ki_log_drop_spare(log, census) ||
		     census->bytes + bytes > bytes_max))
			break;
		n_buckets *= 2;
	}
	return n_buckets;
}

/* At its smallest where the medium has no more room. */
static enum kiln_status draft_for(struct ki_log *log, uint64_t n_buckets,
				  uint64_t bytes_max, struct draft *draft)
{
	uint64_t n_least = ki_log_buckets_for(bytes_max, log->quota_bytes);
	enum kiln_status status = draft_begin(log, n_buckets, draft);

	while (status == KILN_E_FULL && n_buckets > n_least) {
		n_buckets /= 2;
		status = draft_begin(log, n_buckets, draft);
	}
	return status;
}

/* Under byte 0: no index, or none that can be used. */
static enum kiln_status make_locked(struct ki_log *log,
				    struct log_limit_values limits)
{
	struct log_records records = { .n = 0 };
	struct log_census census;
	struct draft draft;
	enum kiln_status status;
	uint32_t first, next;

	if (limits.bytes_max &&
	    ki_log_index_bytes(ki_log_buckets_for(limits.bytes_max, 0)) +
			    2 * limits.segment_bytes + ki_log_other_bytes() >
		    limits.bytes_max)
		return KILN_E_FULL;
	status = ki_log_census_take(log, 1, &census);
	if (status)
		return status;
	status = ki_log_records_read(log, &census, &records);
	if (!status)
		status = draft_for(log,
				   wanted_buckets(log, &census,
						  limits.bytes_max, records.n),
				   limits.bytes_max, &draft);
	if (status)
		goto out;
	if (census.n_files) {
		first = census.files[0].number;
		next = census.files[census.n_files - 1].number + 1;
	} else {
		status = begin_numbers(log, &first);
		next = first;
	}
	if (!status)
		status = fill_header(log, draft.index.header,
				     draft.index.n_buckets, log->user_version,
				     first, &limits);
	if (!status) {
		draft.index.header->next_number = log_number_word(next);
		ki_log_records_place(&records, &draft.index);
		if (records.n)
			ki_log_quota_forget(draft.index.header, 0);
	}
	status = draft_finish(log, &draft, status);
out:
	ki_log_records_fini(&records);
	ki_log_census_fini(&census);
	return status;
}

/* What was set for everyone holds on if it can be read; a quota is the first
   session's to say. */
static void keep_limits(const struct ki_log *log, int fd,
			struct log_limit_values *limits)
{
	struct log_limit_values kept;
	struct log_limits there;

	if (ki_pread_all(log->sys, fd, &there, sizeof(there),
			 offsetof(struct log_header, limits)) ||
	    !ki_log_limits_read(&there, &kept))
		return;
	kept.quota_bytes = limits->quota_bytes;
	*limits = kept;
}

/*
 * Tell who has the damaged file mapped that it is not the store's any more,
 * and let it go before another is made: the bound, or the medium, may have no
 * room for both.
 */
static void drop_damaged(struct ki_log *log, struct log_limit_values *limits)
{
	const struct ki_sys *sys = log->sys;
	uint64_t retired = LOG_RETIRED_GROWN;
	struct ki_file_info info;
	int fd = sys->open(
		sys, log->index_path,
		KI_OPEN_READ | KI_OPEN_WRITE | ki_log_open_flags(log), 0);

	if (fd < 0)
		return;
	keep_limits(log, fd, limits);
	if (!sys->fstat(sys, fd, &info) && info.size >= LOG_HEADER_BYTES)
		(void)ki_pwrite_all(sys, fd, &retired, sizeof(retired),
				    offsetof(struct log_header, retired));
	(void)sys->close(sys, fd);
	(void)sys->unlink(sys, log->index_path);
}

static enum kiln_status repair_locked(struct ki_log *log,
				      struct log_index *index)
{
	struct log_header *header = index->header;
	struct log_census census;
	enum kiln_status status;

	if (header->retired == LOG_RETIRED_WIPED)
		return ki_log_wipe_locked(log, index, log->user_version, NULL);
	if (ki_log_is_other_version(log, index))
		return log->is_open || log->is_session ||
				       ki_log_has_sessions(log)
			       ? KILN_E_FORMAT
			       : ki_log_wipe_locked(log, index,
						    log->user_version, NULL);
	header->retired = 0;
	if (log_number_is_sound(header->min_live))
		return KILN_OK;
	status = ki_log_census_take(log, 1, &census);
	if (status)
		return status;
	header->min_live = log_number_word(
		census.n_files ? census.files[0].number
			       : ki_log_next_number(header, &census));
	ki_log_census_fini(&census);
	return KILN_OK;
}

enum kiln_status ki_log_make_locked(struct ki_log *log)
{
	struct log_limit_values limits = wanted_limits(log);
	struct log_index *index = NULL;
	int damaged;
	enum kiln_status status = ki_log_index_open(log, 1, &index, &damaged);

	if (!status) {
		status = index->writable ? repair_locked(log, index)
					 : KILN_E_READONLY;
	} else if (status == KILN_MISS || damaged) {
		if (damaged)
			drop_damaged(log, &limits);
		status = make_locked(log, limits);
	}
	ki_log_index_close(index);
	return status;
}

enum kiln_status ki_log_make(struct ki_log *log, uint32_t timeout_ms)
{
	struct ki_lock lock;
	enum kiln_status status =
		ki_log_structure_begin(log, &lock, timeout_ms);

	if (status)
		return status;
	status = ki_log_make_locked(log);
	ki_log_structure_end(log, &lock);
	return status;
}

/* ---- Growing --------------------------------------------------------- */

struct digest {
	uint64_t low;
	uint64_t high;
};

/*
 * What was learnt of each slot of the old index.  Digests are read before byte
 * 0 is taken, which may cost a page of disk for each entry; what changes until
 * then is read again.
 */
struct growth {
	struct ki_log *log;
	struct log_index *old;
	struct log_index *next;
	uint64_t *known; /* the word whose digest is known */
	struct digest *digests;
	uint64_t *copied; /* the word that stands in the new index */
	uint64_t n_evicted;
};

static void growth_fini(struct growth *growth)
{
	free(growth->known);
	free(growth->digests);
	free(growth->copied);
}

static enum kiln_status growth_init(struct growth *growth, struct ki_log *log,
				    struct log_index *old)
{
	size_t n_slots = (size_t)(old->n_buckets * LOG_WORDS);

	*growth = (struct growth){
		.log = log,
		.old = old,
		.known = calloc(n_slots, sizeof(*growth->known)),
		.digests = calloc(n_slots, sizeof(*growth->digests)),
		.copied = calloc(n_slots, sizeof(*growth->copied)),
	};
	if (growth->known && growth->digests && growth->copied)
		return KILN_OK;
	growth_fini(growth);
	return KILN_E_NO_MEMORY;
}

/* KILN_MISS, KILN_E_FORMAT: nothing to carry over; others: not now. */
static enum kiln_status learn(struct growth *growth, uint64_t slot,
			      uint64_t word)
{
	struct log_record record;
	enum kiln_status status;

	if (growth->known[slot] == word)
		return KILN_OK;
	status = ki_log_header_read(growth->log, growth->old, word, &record);
	if (status)
		return status;
	growth->known[slot] = word;
	growth->digests[slot] =
		(struct digest){ ki_digest_low(record.digest),
				 ki_digest_high(record.digest) };
	return KILN_OK;
}

/* Bring the new index up to date with one slot of the old. */
static enum kiln_status carry(struct growth *growth, uint64_t slot)
{
	uint64_t word = growth->old->words[slot], placed;
	const struct digest *digest = &growth->digests[slot];
	enum kiln_status status;

	if (word == growth->copied[slot])
		return KILN_OK;
	if (growth->copied[slot])
		(void)erase(growth->next, digest->low, digest->high,
			    growth->copied[slot]);
	growth->copied[slot] = 0;
	if (!word)
		return KILN_OK;
	status = learn(growth, slot, word);
	if (status == KILN_MISS || status == KILN_E_FORMAT)
		return KILN_OK;
	if (status)
		return status;
	if (ki_log_word_insert(growth->next, digest->low, digest->high, word,
			       growth->old->marks[slot], &placed))
		growth->copied[slot] = word;
	return KILN_OK;
}

static enum kiln_status carry_all(struct growth *growth)
{
	uint64_t n_slots = growth->old->n_buckets * LOG_WORDS, slot;
	enum kiln_status status = KILN_OK;

	for (slot = 0; slot < n_slots && !status; slot++)
		status = carry(growth, slot);
	return status;
}

static void copy_header(struct log_header *to, const struct log_header *from)
{
	const _Atomic uint64_t *source = (const void *)from;
	_Atomic uint64_t *target = (void *)to;
	uint64_t n_buckets = to->fixed.n_buckets, i;
	uint64_t n_entries = to->n_entries, bytes_live = to->bytes_live;

	to->fixed = *ki_log_fixed(from);
	to->fixed.n_buckets = n_buckets;
	ki_log_fixed_seal(to);
	for (i = offsetof(struct log_header, generation) / 8;
	     i < offsetof(struct log_header, fixed_again) / 8; i++)
		target[i] = source[i];
	to->n_entries = n_entries;
	to->bytes_live = bytes_live;
	to->n_grown++;
	to->generation++;
	ki_log_quota_forget(to, 0);
}

/* What is used of segments that go for it needs a place to go to. */
static enum kiln_status make_room(struct growth *growth, uint64_t bytes)
{
	struct ki_log *log = growth->log;
	struct log_index *index = growth->old;
	struct log_limit_values limits;
	struct log_census census;
	enum kiln_status status = ki_log_census_take(log, 1, &census);

	if (status)
		return status;
	ki_log_limits_get(log, index, &limits);
	ki_log_allow_copies(log, index, &census);
	if (ki_log_is_over(index, &census, bytes, limits.bytes_max) &&
	    ki_log_tail_is_nearly_full(index, &census))
		(void)ki_log_new_tail(log, index, &census);
	status = ki_log_make_room(log, index, &census, bytes);
	growth->n_evicted = census.n_evicted;
	ki_log_census_fini(&census);
	return status;
}

static enum kiln_status grow_locked(struct growth *growth)
{
	struct ki_log *log = growth->log;
	struct log_index *index = growth->old;
	uint64_t n_buckets = index->n_buckets * 2, tail;
	struct draft draft;
	enum kiln_status status;

	if (!ki_log_is_current_locked(log, index))
		return LOG_AGAIN;
	if (!ki_log_fixed(index->header))
		return KILN_E_FORMAT;
	status = make_room(growth, ki_log_index_bytes(n_buckets));
	if (!status)
		status = draft_begin(log, n_buckets, &draft);
	if (status)
		return status;
	draft.index.header->fixed.n_buckets = n_buckets;
	growth->next = &draft.index;

	tail = atomic_exchange(&index->header->tail, 0);
	status = carry_all(growth);
	index->header->retired = LOG_RETIRED_GROWN;
	if (!status)
		status = carry_all(growth);
	if (!status) {
		copy_header(draft.index.header, index->header);
		draft.index.header->tail = tail;
	}
	status = draft_finish(log, &draft, status);
	if (status) {
		index->header->tail = tail;
		index->header->retired = 0;
	} else {
		index->header->generation++;
	}
	return status;
}

enum kiln_status ki_log_grow(struct ki_log *log, struct log_index *index)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	struct growth growth;
	struct ki_lock lock;
	enum kiln_status status = ki_log_index_bring(index, NULL);

	if (!status)
		status = growth_init(&growth, log, index);
	if (status)
		return status;
	for (slot = 0; slot < n_slots; slot++)
		if (index->words[slot])
			(void)learn(&growth, slot, index->words[slot]);
	status = ki_log_structure_begin(log, &lock, LOG_ROLL_TIMEOUT_MS);
	if (!status) {
		status = grow_locked(&growth);
		ki_log_structure_end(log, &lock);
	}
	ki_log_count_evicted(log, growth.n_evicted);
	growth_fini(&growth);
	return status == LOG_AGAIN ? KILN_OK : status;
}

/* ---- Wiping ---------------------------------------------------------- */

/* The first error counts. */
static void note(int *first, int err)
{
	if (!*first && err != -ENOENT)
		*first = err;
}

/* Every regular file of a directory, and the directory. */
static int remove_inside(const struct ki_sys *sys, const char *path)
{
	char inner[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;
	int n, err = sys->opendir(sys, path, &dir);

	if (err)
		return err;
	while ((n = sys->readdir(sys, dir, &name)) > 0)
		if (!ki_path_join(inner, path, name))
			note(&err, sys->unlink(sys, inner));
	note(&err, n);
	sys->closedir(sys, dir);
	(void)sys->rmdir(sys, path);
	return err;
}

/* Sources, spare and damaged entries; segments are known by census. */
static int remove_others(struct ki_log *log)
{
	const struct ki_sys *sys = log->sys;
	size_t name_size = strlen(log->name);
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;
	uint32_t number;
	int n, err = 0;

	note(&err, sys->unlink(sys, log->spare_path));
	n = sys->opendir(sys, log->directory, &dir);
	if (n)
		return err ? err : n;
	while ((n = sys->readdir(sys, dir, &name)) > 0) {
		const char *rest = name + name_size + 1;

		if (strncmp(name, log->name, name_size) ||
		    name[name_size] != '.' ||
		    ki_path_join(path, log->directory, name))
			continue;
		if (ki_log_is_source(rest, &number))
			note(&err, sys->unlink(sys, path));
		else if (!strcmp(rest, "quarantine") &&
			 !(log->flags & KILN_OPEN_OWN_FILES))
			note(&err, remove_inside(sys, path));
	}
	note(&err, n);
	sys->closedir(sys, dir);
	return err;
}

/* *out_stays: the records of some are still there. */
static int remove_segments(struct ki_log *log, const struct log_census *census,
			   int *out_stays)
{
	char path[KI_PATH_MAX];
	int err = 0;
	size_t i;

	for (i = 0; i < census->n_files; i++)
		if (!ki_log_segment_path(log, census->files[i].number, path))
			note(&err, log->sys->unlink(log->sys, path));
	*out_stays = !!err;
	return err;
}

#define WIPE_MARK_BYTES 4096

/*
 * Nothing of before this number counts, whoever makes an index from the records
 * that could not be unlinked: a tombstone of no key, in a segment of its own.
 */
static int leave_mark(struct ki_log *log, uint32_t number)
{
	const struct ki_sys *sys = log->sys;
	struct log_record record = {
		.magic = LOG_RECORD_MAGIC,
		.flags = LOG_TOMBSTONE,
		.order = log_order(number, 0),
		.body_sum = ki_xxh3_64("", 0),
		.used_s = (uint32_t)(sys->realtime_ns(sys) / 1000000000),
	};
	char path[KI_PATH_MAX], to[KI_PATH_MAX];
	int fd, err = ki_log_segment_path(log, number, to);

	if (!err)
		err = ki_log_temporary(log, WIPE_MARK_BYTES, path, &fd);
	if (err)
		return err;
	ki_log_record_seal(&record, number);
	err = ki_pwrite_all(sys, fd, &record, sizeof(record), 0);
	(void)sys->close(sys, fd);
	if (!err)
		err = sys->rename_new(sys, path, to);
	if (err)
		(void)sys->unlink(sys, path);
	return err;
}

enum kiln_status ki_log_wipe_locked(struct ki_log *log, struct log_index *index,
				    uint64_t user_version, int *out_left)
{
	struct log_limit_values limits;
	struct log_census census;
	struct draft draft;
	enum kiln_status status;
	uint32_t next;
	int stays, left;

	ki_log_limits_get(log, index, &limits);
	index->header->retired = LOG_RETIRED_WIPED;
	index->header->generation++;
	status = ki_log_census_take(log, 1, &census);
	if (status)
		return status;
	next = ki_log_next_number(index->header, &census);
	left = remove_segments(log, &census, &stays);
	ki_log_census_fini(&census);
	note(&left, remove_others(log));
	if (left)
		log->has_left = 1;
	if (out_left)
		*out_left = left;
	if (stays) {
		status = ki_log_status(leave_mark(log, next));
		if (status)
			return status;
	}

	status = draft_begin(log, index->n_buckets, &draft);
	if (status)
		return status;
	status = fill_header(log, draft.index.header, index->n_buckets,
			     user_version, next, &limits);
	if (!status && stays)
		draft.index.header->next_number = log_number_word(next + 1);
	if (!status)
		draft.index.header->removes = index->header->removes;
	return draft_finish(log, &draft, status);
}

/* Who has it mapped looks where the path leads.  The index stays as long as there
   are records, and says what was to become of them; the lock file goes last:
   until then nobody else makes a store here. */
void ki_log_unlink_locked(struct ki_log *log, struct log_index *index)
{
	const struct ki_sys *sys = log->sys;
	struct log_census census;
	int stays = 1;

	if (index && index->writable) {
		index->header->removes = 1;
		index->header->retired = LOG_RETIRED_WIPED;
		index->header->generation++;
	}
	if (!ki_log_census_take(log, 1, &census)) {
		(void)remove_segments(log, &census, &stays);
		ki_log_census_fini(&census);
	}
	(void)remove_others(log);
	if (stays) {
		ki_log_say(log, KILN_LOG_WARNING,
			   "not removed: that is left to who comes next");
		return;
	}
	ki_counters_remove(sys, log->stats_path);
	(void)sys->unlink(sys, log->index_path);
	(void)sys->unlink(sys, log->lock_path);
}

static enum kiln_status wipe(struct ki_log *log, struct log_index *index,
			     void *out_left)
{
	const struct log_fixed *fixed = ki_log_fixed(index->header);
	struct ki_file_info info;
	enum kiln_status status = ki_log_wipe_locked(
		log, index, fixed ? fixed->user_version : log->user_version,
		out_left);

	/* The directory went while it was being emptied? */
	if (status == KILN_E_IO &&
	    log->sys->stat(log->sys, log->index_path, &info))
		status = LOG_AGAIN;
	return status;
}

enum kiln_status ki_log_wipe(struct kiln_tier *tier)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe;
	struct log_index *index;
	int left = 0;
	enum kiln_status status =
		ki_log_change_locked(log, LOG_CHANGE, wipe, &left);

	ki_log_tell_left(log);
	if (status == KILN_MISS) {
		status = KILN_OK;
	} else if (!status) {
		stripe = ki_log_enter(log);
		(void)ki_log_current(log, LOG_CHANGE, &index);
		ki_log_leave(log, stripe);
	}
	return status ? status : ki_log_status(left);
}
