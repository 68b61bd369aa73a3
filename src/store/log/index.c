/* SPDX-License-Identifier: MIT */

/*
 * The index: a header, buckets of eight words, a mark for each word.
 *
 *	word   tag 16 | size class 8 | segment 18 | offset 22
 *	mark   0: not used since the last eviction pass over it
 *	       else used, and when (see "Age"); 1 where there is no age limit
 *
 * A key's word stands in one of two buckets, picked by the halves of its
 * digest scaled to the number of buckets.  Words change by compare-and-swap
 * only; every swap carries its difference into the account of entries and
 * bytes, so the account is off by no more than the swaps of killed processes.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define AGE_STEPS      64
#define BYTES_OF_ENTRY 2048 /* guessed, for the size of an index */

/* ---- Sizes ----------------------------------------------------------- */

uint64_t ki_log_index_bytes(uint64_t n_buckets)
{
	uint64_t bytes = LOG_HEADER_BYTES +
			 n_buckets * LOG_WORDS * (sizeof(uint64_t) + 1);

	return (bytes + 4095) & ~(uint64_t)4095;
}

/* A load of 0.6 when the store is full of entries of the guessed size. */
uint64_t ki_log_buckets_for(uint64_t bytes_max, uint64_t quota_bytes)
{
	uint64_t bytes = bytes_max ? bytes_max : quota_bytes, n_buckets;
	uint64_t slots = bytes / BYTES_OF_ENTRY / 6 * 10;

	if (!bytes || (!bytes_max && slots > LOG_SLOTS_UNBOUNDED))
		slots = LOG_SLOTS_UNBOUNDED;
	if (!bytes_max && slots < LOG_SLOTS_QUOTA)
		slots = LOG_SLOTS_QUOTA;
	n_buckets = (slots + LOG_WORDS - 1) / LOG_WORDS;

	return n_buckets < 8 ? 8 : n_buckets;
}

/* Of a small store a 32nd: making and unlinking a file costs much the same
   whatever its size.  docs/decisions/0006-the-cost-of-a-put.md */
static uint64_t bytes_by_use(uint64_t bytes_max)
{
	uint64_t bytes = bytes_max / 64, twice = bytes_max / 32;

	if (bytes < LOG_SEGMENT_BYTES_SMALL)
		bytes = twice < LOG_SEGMENT_BYTES_SMALL
				? twice
				: LOG_SEGMENT_BYTES_SMALL;
	return bytes;
}

/* By cost, the choice is the better the fewer share a segment. */
uint64_t ki_log_segment_bytes_for(uint64_t bytes_max, uint64_t policy)
{
	uint64_t bytes = bytes_by_use(bytes_max), part = bytes_max / 256;

	if (part < LOG_SEGMENT_BYTES_LEAST)
		part = LOG_SEGMENT_BYTES_LEAST;
	if ((policy & LOG_BY_COST) && part < bytes)
		bytes = part;
	bytes = (bytes + 4095) & ~(uint64_t)4095;
	return bytes < LOG_SEGMENT_BYTES_MAX ? bytes : LOG_SEGMENT_BYTES_MAX;
}

/* ---- The header ------------------------------------------------------ */

static uint64_t fixed_sum(const struct log_fixed *fixed)
{
	return ki_xxh3_64(fixed, offsetof(struct log_fixed, sum));
}

static int is_sound(const struct log_fixed *fixed)
{
	return fixed->magic == LOG_INDEX_MAGIC &&
	       fixed->sum == fixed_sum(fixed);
}

const struct log_fixed *ki_log_fixed(const struct log_header *header)
{
	if (is_sound(&header->fixed))
		return &header->fixed;
	return is_sound(&header->fixed_again) ? &header->fixed_again : NULL;
}

void ki_log_fixed_seal(struct log_header *header)
{
	header->fixed.sum = fixed_sum(&header->fixed);
	header->fixed_again = header->fixed;
}

static uint64_t limits_sum(const struct log_limit_values *limits)
{
	return ki_xxh3_64(limits, sizeof(*limits));
}

int ki_log_limits_read(const struct log_limits *limits,
		       struct log_limit_values *out_limits)
{
	*out_limits = (struct log_limit_values){
		.bytes_max = limits->bytes_max,
		.age_max_s = limits->age_max_s,
		.segment_bytes = limits->segment_bytes,
		.policy = limits->policy,
		.quota_bytes = limits->quota_bytes,
	};
	return limits->sum == limits_sum(out_limits);
}

int ki_log_goes_by_cost(const struct log_index *index)
{
	struct log_limit_values limits;

	return (index->header->limits.policy & LOG_BY_COST) &&
	       ki_log_limits_read(&index->header->limits, &limits) &&
	       !limits.age_max_s;
}

void ki_log_limits_get(const struct ki_log *log, const struct log_index *index,
		       struct log_limit_values *out_limits)
{
	if (ki_log_limits_read(&index->header->limits, out_limits))
		return;
	*out_limits = (struct log_limit_values){
		.bytes_max = log->bytes_max,
		.age_max_s = log->age_max_s,
		.segment_bytes = ki_log_segment_bytes_for(log->bytes_max, 0),
		.quota_bytes = log->quota_bytes,
	};
}

void ki_log_limits_set(struct log_header *header,
		       const struct log_limit_values *limits)
{
	header->limits.bytes_max = limits->bytes_max;
	header->limits.age_max_s = limits->age_max_s;
	header->limits.segment_bytes = limits->segment_bytes;
	header->limits.policy = limits->policy;
	header->limits.quota_bytes = limits->quota_bytes;
	header->limits.sum = limits_sum(limits);
}

/* ---- Mapping --------------------------------------------------------- */

void ki_log_index_place(struct log_index *index, void *data, size_t size,
			uint64_t n_buckets)
{
	index->header = data;
	index->size = size;
	index->n_buckets = n_buckets;
	index->words = (_Atomic uint64_t *)(void *)((uint8_t *)data +
						    LOG_HEADER_BYTES);
	index->marks = (_Atomic uint8_t *)(void *)(index->words +
						   n_buckets * LOG_WORDS);
}

static int open_file(struct ki_log *log, int *out_writable)
{
	const struct ki_sys *sys = log->sys;
	int fd = -EROFS;

	*out_writable = !log->readonly;
	if (*out_writable)
		fd = sys->open(sys, log->index_path,
			       KI_OPEN_READ | KI_OPEN_WRITE |
				       ki_log_open_flags(log),
			       0);
	if (fd == -EROFS || fd == -EACCES || fd == -EPERM) {
		*out_writable = 0;
		fd = sys->open(sys, log->index_path,
			       KI_OPEN_READ | ki_log_open_flags(log), 0);
	}
	return fd;
}

/*
 * What the header says, held against the file's size before anything is mapped:
 * what the medium cannot give, or somebody cut off since its size was asked
 * for, is an error here and no signal.
 */
static enum kiln_status take_head(struct log_index *index, int fd,
				  uint64_t size, int *out_mend,
				  int *out_damaged)
{
	const struct ki_sys *sys = index->sys;
	struct log_fixed *fixed = (struct log_fixed *)(void *)index->head;
	int err = ki_pread_all(sys, fd, index->head, LOG_HEAD_BYTES, 0);

	*out_mend = !err && !is_sound(fixed);
	if (*out_mend)
		err = ki_pread_all(sys, fd, fixed, sizeof(*fixed),
				   offsetof(struct log_header, fixed_again));
	*out_damaged = !err || err == -ENODATA;
	if (err && err != -ENODATA)
		return ki_log_status(err);
	if (err || !is_sound(fixed))
		return KILN_E_FORMAT;
	if (fixed->version != LOG_VERSION || fixed->flags ||
	    fixed->header_bytes != LOG_HEADER_BYTES) {
		*out_damaged = 0;
		return KILN_E_FORMAT;
	}
	if (!fixed->n_buckets || fixed->n_buckets > (uint64_t)1 << 40 ||
	    ki_log_index_bytes(fixed->n_buckets) != size)
		return KILN_E_FORMAT;
	*out_damaged = 0;
	index->n_buckets = fixed->n_buckets;
	return KILN_OK;
}

#define FETCH_BYTES ((size_t)1 << 18)

/*
 * A guest brings in what it is about to look at, two buckets for most calls:
 * what the medium cannot give is an error then and no signal.  Where the system
 * cannot do that, the whole file is read at opening, 7 MB for a store of 1 GiB.
 */
static int fetch(const struct ki_sys *sys, int fd, size_t size)
{
	uint8_t *data = malloc(FETCH_BYTES);
	size_t offset;
	int err = data ? 0 : -ENOMEM;

	for (offset = 0; offset < size && !err; offset += FETCH_BYTES)
		err = ki_pread_all(sys, fd, data,
				   size - offset < FETCH_BYTES ? size - offset
							       : FETCH_BYTES,
				   offset);
	free(data);
	return err;
}

static int open_for_guest(const struct ki_sys *sys, int fd, const void *data,
			  size_t size, int *out_by_parts)
{
	int err = sys->populate(sys, data, LOG_HEADER_BYTES);

	*out_by_parts = !err;
	return err == -EINVAL || err == -ENOSYS ? fetch(sys, fd, size) : err;
}

enum kiln_status ki_log_index_bring(const struct log_index *index,
				    const uint64_t slots[2])
{
	const struct ki_sys *sys = index->sys;
	int i, err = 0;

	if (!index->by_parts)
		return KILN_OK;
	if (!slots)
		return sys->populate(sys, index->header, index->size)
			       ? KILN_E_IO
			       : KILN_OK;
	for (i = 0; i < 2 && !err; i++) {
		const void *words = (const void *)&index->words[slots[i]];
		const void *marks = (const void *)&index->marks[slots[i]];

		err = sys->populate(sys, words, LOG_WORDS * sizeof(uint64_t));
		if (!err)
			err = sys->populate(sys, marks, LOG_WORDS);
	}
	return err ? KILN_E_IO : KILN_OK;
}

/* Maps an index whose head was read. */
static enum kiln_status map_index(struct ki_log *log, int fd, size_t size,
				  int mend, struct log_index *index)
{
	const struct ki_sys *sys = index->sys;
	void *data = NULL;
	int err = sys->map(sys, fd, 0, size,
			   index->writable ? KI_MAP_SHARED_WRITE : 0, &data);

	if (!err && log->guest)
		err = open_for_guest(sys, fd, data, size, &index->by_parts);
	if (err) {
		if (data)
			sys->unmap(sys, data, size);
		return ki_log_status(err);
	}
	ki_log_index_place(index, data, size, index->n_buckets);
	if (index->writable && mend)
		index->header->fixed = *(struct log_fixed *)(void *)index->head;
	return KILN_OK;
}

enum kiln_status ki_log_index_open(struct ki_log *log, int map,
				   struct log_index **out_index,
				   int *out_damaged)
{
	const struct ki_sys *sys = log->sys;
	struct log_index *index = NULL;
	struct ki_file_info info;
	enum kiln_status status;
	int writable, mend, err;
	int fd = open_file(log, &writable);

	*out_damaged = 0;
	if (fd == -ENOENT || fd == -ENOTDIR)
		return KILN_MISS;
	if (fd == -ELOOP)
		return KILN_E_OWNER;
	if (fd < 0)
		return ki_log_status(fd);
	err = sys->fstat(sys, fd, &info);
	status = err ? ki_log_status(err) : KILN_E_FORMAT;
	if (err || !S_ISREG(info.mode))
		goto out;
	status = KILN_E_NO_MEMORY;
	index = calloc(1, sizeof(*index));
	if (!index)
		goto out;
	index->sys = sys;
	index->writable = writable;
	index->device = info.device;
	index->inode = info.inode;
	index->header = (struct log_header *)(void *)index->head;
	index->fd = -1;
	status = take_head(index, fd, info.size, &mend, out_damaged);
	if (status)
		goto out;
	if (map || mend || log->guest) {
		status = map_index(log, fd, (size_t)info.size, mend, index);
		if (status)
			goto out;
	} else {
		index->fd = fd;
		fd = -1;
	}
	*out_index = index;
	index = NULL;
out:
	free(index);
	if (fd >= 0)
		(void)sys->close(sys, fd);
	return status;
}

size_t ki_log_page_bytes(const struct ki_sys *sys)
{
	return ki_in_pages(LOG_HEADER_BYTES, sys->page_bytes(sys));
}

/* All of it, but for the pages that log->pages has. */
static void unmap_index(struct log_index *index)
{
	size_t kept = index->keeps_page ? ki_log_page_bytes(index->sys) : 0;

	if (kept < index->size)
		index->sys->unmap(index->sys, (uint8_t *)index->header + kept,
				  index->size - kept);
}

void ki_log_index_close(struct log_index *index)
{
	if (!index)
		return;
	if (ki_log_is_mapped(index))
		unmap_index(index);
	else if (ki_log_is_file(index->sys, index->fd, index->device,
				index->inode))
		(void)index->sys->close(index->sys, index->fd);
	free(index);
}

int ki_log_is_damaged(struct ki_log *log)
{
	struct log_index *index = NULL;
	int is_damaged = 0;

	(void)ki_log_index_open(log, 0, &index, &is_damaged);
	ki_log_index_close(index);
	return is_damaged;
}

/* ---- Without a mapping ----------------------------------------------- */

int ki_log_index_refresh(struct log_index *index)
{
	uint64_t head[LOG_HEAD_BYTES / sizeof(uint64_t)];
	const size_t n_fixed = sizeof(struct log_fixed);

	if (ki_pread_all(index->sys, index->fd, head, sizeof(head), 0) ||
	    memcmp(head, index->head, n_fixed))
		return 0;
	memcpy((uint8_t *)index->head + n_fixed, (uint8_t *)head + n_fixed,
	       sizeof(head) - n_fixed);
	return 1;
}

uint64_t ki_log_word_read(const struct log_index *index, uint64_t slot)
{
	uint64_t word;

	if (ki_log_is_mapped(index))
		return index->words[slot];
	return ki_pread_all(index->sys, index->fd, &word, sizeof(word),
			    LOG_HEADER_BYTES + slot * sizeof(word))
		       ? 0
		       : word;
}

enum kiln_status ki_log_bucket_read(const struct log_index *index,
				    uint64_t first_slot,
				    uint64_t out_words[LOG_WORDS])
{
	unsigned i;

	if (ki_log_is_mapped(index)) {
		for (i = 0; i < LOG_WORDS; i++)
			out_words[i] = index->words[first_slot + i];
		return KILN_OK;
	}
	return ki_pread_all(index->sys, index->fd, out_words,
			    LOG_WORDS * sizeof(*out_words),
			    LOG_HEADER_BYTES + first_slot * sizeof(*out_words))
		       ? KILN_E_IO
		       : KILN_OK;
}

static void mark_in_file(const struct log_index *index, uint64_t slot)
{
	const struct ki_sys *sys = index->sys;
	uint64_t place = LOG_HEADER_BYTES +
			 index->n_buckets * LOG_WORDS * sizeof(uint64_t) + slot;
	uint8_t mark;

	if (ki_pread_all(sys, index->fd, &mark, 1, place) ||
	    (mark & LOG_MARK_USED) ||
	    !ki_log_is_file(sys, index->fd, index->device, index->inode))
		return;
	mark |= LOG_MARK_USED;
	(void)ki_pwrite_all(sys, index->fd, &mark, 1, place);
}

/* ---- Words and marks ------------------------------------------------- */

int ki_log_belongs(const struct log_index *index, uint64_t slot, uint64_t word,
		   const uint8_t digest[16])
{
	uint64_t low = ki_digest_low(digest), slots[2];

	ki_log_slots_of(index, low, ki_digest_high(digest), slots);
	slot -= slot % LOG_WORDS;
	return log_word_tag(word) == ki_log_tag_of(low) &&
	       (slot == slots[0] || slot == slots[1]);
}

int ki_log_word_swap(struct log_index *index, uint64_t slot, uint64_t from,
		     uint64_t to)
{
	struct log_header *header = index->header;
	uint64_t bytes =
		log_word_bytes(to) * !!to - log_word_bytes(from) * !!from;
	uint64_t n = (uint64_t) !!to - (uint64_t) !!from;

	if (!atomic_compare_exchange_strong(&index->words[slot], &from, to))
		return 0;
	if (bytes)
		atomic_fetch_add_explicit(&header->bytes_live, bytes,
					  memory_order_relaxed);
	if (n)
		atomic_fetch_add_explicit(&header->n_entries, n,
					  memory_order_relaxed);
	if (from && ((from ^ to) & ~LOG_TENTATIVE) &&
	    header->limits.quota_bytes)
		header->quota.n_cleared++;
	return 1;
}

int ki_log_word_insert(struct log_index *index, uint64_t digest_low,
		       uint64_t digest_high, uint64_t word, uint8_t mark,
		       uint64_t *out_slot)
{
	uint64_t slots[2];
	unsigned i;

	ki_log_slots_of(index, digest_low, digest_high, slots);
	for (i = 0; i < 2 * LOG_WORDS; i++) {
		/* In turn, so that both fill up evenly. */
		uint64_t slot = slots[i % 2] + i / 2;

		if (index->words[slot] ||
		    !ki_log_word_swap(index, slot, 0, word))
			continue;
		index->marks[slot] = mark;
		*out_slot = slot;
		return 1;
	}
	return 0;
}

int ki_log_is_loaded(uint64_t n_entries, uint64_t n_buckets)
{
	return n_entries * 20 > n_buckets * LOG_WORDS * 13;
}

/* ---- Age ------------------------------------------------------------- */

/*
 * A mark tells its time modulo 255 steps of a 64th of the age limit A.  Every
 * hit looks whether a sweep is due, and one is every A/4, so all marks lie
 * between A before the last sweep and A/4 after it, or now: less than 255
 * steps, and only one time fits.  If no sweep was begun for 2 A nobody was
 * here, and everything is too old.
 *
 * Who finds that one is due begins it by a swap of its time; all who come then
 * take some slots each, in turn, until it is through.  Where there are so few
 * that it is not before the next, that one goes on from there: an entry that
 * nobody asks for stays longer then, and is given to who does.
 */

static uint64_t now_s(struct ki_log *log)
{
	return log->sys->realtime_ns(log->sys) / 1000000000;
}

static uint64_t age_step_s(uint64_t age_max_s)
{
	return age_max_s / AGE_STEPS ? age_max_s / AGE_STEPS : 1;
}

void ki_log_mark(struct ki_log *log, struct log_index *index, uint64_t slot,
		 uint64_t age_max_s)
{
	uint8_t mark, found;

	if (!index->writable)
		return;
	if (!ki_log_is_mapped(index)) {
		mark_in_file(index, slot);
		return;
	}
	found = atomic_load_explicit(&index->marks[slot], memory_order_relaxed);
	mark = found | LOG_MARK_USED;
	if (age_max_s)
		mark = (uint8_t)(1 + now_s(log) / age_step_s(age_max_s) % 255);
	if (found != mark)
		atomic_store_explicit(&index->marks[slot], mark,
				      memory_order_relaxed);
}

static uint64_t last_use_s(const struct log_index *index, uint8_t mark,
			   uint32_t used_s, uint64_t age_max_s, uint64_t now)
{
	uint64_t step_s = age_step_s(age_max_s);
	uint64_t latest_s = index->header->aged_s + age_max_s / 4 + 1;
	uint64_t steps;

	if (!mark)
		return used_s;
	if (!age_max_s)
		return now;
	if (latest_s < now)
		latest_s = now;
	steps = (latest_s / step_s % 255 + 255 - (uint64_t)(mark - 1)) % 255;
	return steps * step_s < latest_s ? latest_s - steps * step_s : 0;
}

int ki_log_is_expired(struct ki_log *log, const struct log_index *index,
		      uint64_t slot, uint32_t used_s, uint64_t age_max_s,
		      uint64_t *out_used_s)
{
	uint64_t now, since_s;

	/* A hit need not know what time it is. */
	if (!age_max_s && !out_used_s)
		return 0;
	now = now_s(log);
	since_s = last_use_s(index, index->marks[slot], used_s, age_max_s, now);
	if (out_used_s)
		*out_used_s = since_s;
	return age_max_s && since_s < now && now - since_s > age_max_s;
}

struct sweep {
	struct ki_log *log;
	struct log_index *index;
	uint64_t age_max_s;
	uint64_t drop_s;
	uint64_t now;
	int all;
};

static uint64_t sweep_slot(const struct sweep *sweep, uint64_t slot)
{
	struct log_index *index = sweep->index;
	uint64_t word = index->words[slot], since_s;
	uint32_t used_s = (uint32_t)sweep->now;
	struct log_record record;

	if (!word)
		return 0;
	if (!sweep->all && !index->marks[slot] &&
	    !ki_log_header_read(sweep->log, index, word, &record))
		used_s = record.used_s;
	since_s = last_use_s(index, index->marks[slot], used_s,
			     sweep->age_max_s, sweep->now);
	if (!sweep->all &&
	    (since_s >= sweep->now || sweep->now - since_s <= sweep->drop_s))
		return 0;
	return (uint64_t)ki_log_word_swap(index, slot, word, 0);
}

static uint64_t sweep_all(const struct sweep *sweep)
{
	uint64_t n_slots = sweep->index->n_buckets * LOG_WORDS, slot, n = 0;

	for (slot = 0; slot < n_slots; slot++)
		n += sweep_slot(sweep, slot);
	return n;
}

/* 1 for the one who begins it.  A clock that was put back removes nothing until
   it has caught up. */
static int begin_sweep(struct sweep *sweep, uint64_t after_s)
{
	struct log_header *header = sweep->index->header;
	uint64_t last = header->aged_s;

	sweep->all =
		sweep->age_max_s && sweep->now - last > 2 * sweep->age_max_s;
	return sweep->now > last && sweep->now - last > after_s &&
	       (!sweep->age_max_s ||
		atomic_compare_exchange_strong(&header->aged_s, &last,
					       sweep->now));
}

uint64_t ki_log_sweep(struct ki_log *log, struct log_index *index,
		      uint64_t age_max_s, uint64_t drop_s)
{
	struct sweep sweep = { log, index, age_max_s, drop_s, now_s(log), 0 };

	if (!begin_sweep(&sweep, 0))
		return 0;
	index->header->n_swept = index->header->n_to_sweep;
	return sweep_all(&sweep);
}

static int bring_slots(const struct log_index *index, uint64_t from, uint64_t n)
{
	const struct ki_sys *sys = index->sys;
	const void *words = (const void *)&index->words[from];
	const void *marks = (const void *)&index->marks[from];

	return !index->by_parts ||
	       (!sys->populate(sys, words, (size_t)n * sizeof(uint64_t)) &&
		!sys->populate(sys, marks, (size_t)n));
}

/* The next few, if any are left and nobody else takes them. */
static void sweep_some(const struct sweep *sweep, uint64_t n_max)
{
	struct log_header *header = sweep->index->header;
	uint64_t n_slots = sweep->index->n_buckets * LOG_WORDS;
	uint64_t from = header->n_swept, left = header->n_to_sweep - from;
	uint64_t slot = from % n_slots, end;

	if (!left || left > n_slots)
		return;
	if (n_max > left)
		n_max = left;
	if (n_max > n_slots - slot)
		n_max = n_slots - slot;
	if (!atomic_compare_exchange_strong(&header->n_swept, &from,
					    from + n_max) ||
	    !bring_slots(sweep->index, slot, n_max))
		return;
	for (end = slot + n_max; slot < end; slot++)
		(void)sweep_slot(sweep, slot);
}

void ki_log_sweep_if_due(struct ki_log *log, struct log_index *index,
			 uint64_t age_max_s, uint64_t n_max)
{
	struct sweep sweep = { log, index, age_max_s, age_max_s, 0, 0 };
	struct log_header *header = index->header;

	if (!age_max_s || !index->writable)
		return;
	sweep.now = now_s(log);
	if (begin_sweep(&sweep, age_max_s / 4)) {
		if (sweep.all && !ki_log_index_bring(index, NULL)) {
			(void)sweep_all(&sweep);
			header->n_to_sweep = header->n_swept;
			return;
		}
		header->n_to_sweep =
			header->n_swept + index->n_buckets * LOG_WORDS;
	}
	sweep.all = 0;
	sweep_some(&sweep, n_max);
}
