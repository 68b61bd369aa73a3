/* SPDX-License-Identifier: MIT */

/*
 * What comes under byte 0: numbers, new files, the next tail, large files.
 *
 *	oldest                                              tail
 *	[ 41 ][ 42 ][ 43: one large ][ 44 ] ...             [ 97 ]   [ spare ]
 *	   \___ used entries are copied to the tail ________/
 *
 * A roll gives the spare a number and makes it the tail; then the oldest
 * segments go (evict.c) until a new spare fits the bound (room.c).
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- Numbers --------------------------------------------------------- */

uint32_t ki_log_next_number(const struct log_header *header,
			    const struct log_census *census)
{
	uint64_t next = header->next_number, tail = header->tail;
	uint64_t min_live = header->min_live;
	uint32_t number = 1, last;

	/* Below min_live nothing would be found. */
	if (log_number_is_sound(min_live))
		number = (uint32_t)min_live;
	if (log_number_is_sound(next) &&
	    (!log_number_is_sound(min_live) ||
	     log_is_before(number, (uint32_t)next)))
		number = (uint32_t)next;
	if (log_tail_is_sound(tail) &&
	    !log_is_before(log_tail_segment(tail), number))
		number = log_tail_segment(tail) + 1;
	if (census->n_files) {
		last = census->files[census->n_files - 1].number;
		if (!log_is_before(last, number))
			number = last + 1;
	}
	return number;
}

int ki_log_is_current_locked(struct ki_log *log, const struct log_index *index)
{
	struct ki_file_info info;

	return !ki_log_is_retired(index) &&
	       !log->sys->stat(log->sys, log->index_path, &info) &&
	       info.inode == index->inode && info.device == index->device;
}

/* ---- New files ------------------------------------------------------- */

int ki_log_temporary_path(struct ki_log *log, char out_path[KI_PATH_MAX])
{
	return snprintf(out_path, KI_PATH_MAX, "%s/%s.tmp.%d.%u",
			log->directory, log->name, ki_process_id(),
			++log->n_temporaries) >= KI_PATH_MAX
		       ? -ENAMETOOLONG
		       : 0;
}

int ki_log_temporary(struct ki_log *log, uint64_t size,
		     char out_path[KI_PATH_MAX], int *out_fd)
{
	const struct ki_sys *sys = log->sys;
	int fd, err = ki_log_temporary_path(log, out_path);

	if (err)
		return err;
	do {
		fd = sys->open(sys, out_path,
			       KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE |
				       KI_OPEN_EXCLUSIVE |
				       ki_log_open_flags(log),
			       ki_log_mode(log));
	} while (fd == -EEXIST && !sys->unlink(sys, out_path));
	if (fd < 0)
		return fd;
	if (log->flags & KILN_OPEN_SHARED)
		(void)sys->chmod(sys, out_path, ki_log_mode(log));
	err = sys->fallocate(sys, fd, 0, size);
	if (err) {
		(void)sys->close(sys, fd);
		(void)sys->unlink(sys, out_path);
		return err;
	}
	*out_fd = fd;
	return 0;
}

#define ZEROS_BYTES  ((size_t)128 << 10)
#define ZEROS_PIECES 8

#define ROLLS_OFTEN_NS 10000000000u /* a third of when dirty pages are due */

/*
 * Zeros where records will be, in large pieces: a put then overwrites pages
 * that are in memory and blocks that are written, at half the price, and can
 * look through the mapping whether its place is empty.  Only while nobody else
 * knows the file: in one that has a number, zeros of a writer that was stopped
 * would fall on records.  That it failed costs time alone.
 */
static void write_zeros(struct ki_log *log, int fd, uint64_t end)
{
	static uint8_t zeros[ZEROS_BYTES];
	const struct ki_sys *sys = log->sys;
	struct log_zeroed *zeroed;
	struct ki_file_info info;
	uint64_t offset;

	for (offset = 0; offset < end;) {
		struct ki_piece pieces[ZEROS_PIECES];
		uint64_t rest = end - offset;
		int n = 0;

		for (; rest && n < ZEROS_PIECES; n++) {
			size_t part =
				rest < ZEROS_BYTES ? (size_t)rest : ZEROS_BYTES;

			pieces[n] = (struct ki_piece){ zeros, part };
			rest -= part;
		}
		if (ki_pwritev_all(sys, fd, pieces, n, offset))
			return;
		offset = end - rest;
	}
	if (sys->fstat(sys, fd, &info))
		return;
	zeroed = &log->zeroed[log->n_zeroed++ % LOG_ZEROED_FILES];
	zeroed->bytes = 0;
	zeroed->device = info.device;
	zeroed->inode = info.inode;
	zeroed->made_ns = sys->coarse_ns(sys);
	zeroed->bytes = end;
}

/* An allocated file under the name `to`; *out_fd may be NULL. */
static int make_file(struct ki_log *log, const char *to, uint64_t size,
		     uint64_t zeroed, int *out_fd)
{
	const struct ki_sys *sys = log->sys;
	char path[KI_PATH_MAX];
	int fd, err = ki_log_temporary(log, size, path, &fd);

	if (err)
		return err;
	if (zeroed && !log->guest)
		write_zeros(log, fd, size < zeroed ? size : zeroed);
	err = sys->rename_new(sys, path, to);
	if (err)
		(void)sys->unlink(sys, path);
	if (err || !out_fd)
		(void)sys->close(sys, fd);
	if (!err && out_fd)
		*out_fd = fd;
	return err;
}

/* What could not be unlinked still counts. */
int ki_log_drop_spare(struct ki_log *log, struct log_census *census)
{
	int err = census->has_spare
			  ? log->sys->unlink(log->sys, log->spare_path)
			  : 0;

	if (err && err != -ENOENT)
		return err;
	if (census->has_spare)
		census->bytes -= census->spare_bytes;
	census->has_spare = 0;
	return 0;
}

/* Take the next number; *out_path is its file's. */
int ki_log_take_number(struct ki_log *log, struct log_index *index,
		       const struct log_census *census, uint32_t *out_number,
		       char out_path[KI_PATH_MAX])
{
	uint32_t number = ki_log_next_number(index->header, census);

	index->header->next_number = log_number_word(number + 1);
	*out_number = number;
	return ki_log_segment_path(log, number, out_path);
}

/* ---- Rolling --------------------------------------------------------- */

static int is_by_quota(const struct log_limit_values *limits)
{
	return !limits->segment_bytes && limits->quota_bytes;
}

/* A small store's are small; where there is little, small ones are enough. */
static uint64_t bytes_by_quota(const struct log_limit_values *limits,
			       size_t n_files)
{
	uint64_t part = (limits->quota_bytes / 4 + 4095) & ~(uint64_t)4095;
	uint64_t bytes = LOG_SEGMENT_BYTES_QUOTA << (n_files < 6 ? n_files : 6);

	if (part < bytes)
		bytes = part;
	return bytes ? bytes : 4096;
}

uint64_t ki_log_next_segment_bytes(const struct log_limit_values *limits,
				   const struct log_census *census)
{
	size_t doublings = census->n_files / 64;
	uint64_t bytes;

	if (limits->segment_bytes)
		return limits->segment_bytes;
	bytes = is_by_quota(limits) ? bytes_by_quota(limits, census->n_files)
				    : LOG_SEGMENT_BYTES_FIRST;
	bytes <<= doublings < 4 ? doublings : 4;
	if (bytes < census->wanted_bytes)
		bytes = (census->wanted_bytes + 4095) & ~(uint64_t)4095;
	return bytes;
}

static void set_tail(struct ki_log *log, struct log_index *index,
		     uint32_t number)
{
	struct log_header *header = index->header;
	uint64_t boot_id[2];

	ki_log_boot_id(log, boot_id);
	if (boot_id[0] || boot_id[1]) {
		header->boot_id[0] = boot_id[0];
		header->boot_id[1] = boot_id[1];
	}
	header->tail = log_tail_word(number, 0);
	header->n_rolls++;
}

/* The spare becomes the tail.  Renaming is one step; where the file system
   cannot refuse a taken name it is two, and the number that a kill between them
   leaves to the spare never becomes the tail. */
int ki_log_use_spare(struct ki_log *log, struct log_index *index,
		     struct log_census *census)
{
	const struct ki_sys *sys = log->sys;
	struct log_limit_values limits;
	char path[KI_PATH_MAX];
	uint32_t number;
	int err;

	ki_log_limits_get(log, index, &limits);
	if (!census->has_spare ||
	    census->spare_size != ki_log_next_segment_bytes(&limits, census))
		return -ENOENT;
	err = ki_log_take_number(log, index, census, &number, path);
	if (err)
		return err;
	/* Counted first, so that a shortage of memory leaves no file uncounted;
	   it is the newest, and so the last. */
	err = ki_log_census_add(census, number, census->spare_size,
				census->spare_bytes, 0);
	if (err)
		return err;
	err = sys->rename_new(sys, log->spare_path, path);
	if (err) {
		census->n_files--;
		return err;
	}
	census->has_spare = 0;
	set_tail(log, index, number);
	return 0;
}

#define MEDIUM_PAUSE 64

/*
 * A file of `size`; on a full medium at the cost of the oldest, but not of all:
 * when more than it takes is gone in vain, it is not we who fill the medium, and
 * the next so many times nothing is given for it.
 */
static int make_file_evicting(struct ki_log *log, struct log_index *index,
			      struct log_census *census, const char *path,
			      uint64_t size, int is_tail, int *out_fd)
{
	const uint64_t bytes = census->bytes;
	const uint64_t zeroed = is_tail ? LOG_ZEROED_TAIL : 0;
	int err = make_file(log, path, size, zeroed, out_fd);

	if ((err != -ENOSPC && err != -EDQUOT) ||
	    (log->flags & KILN_OPEN_REFUSE_FULL) ||
	    (log->medium_pause && --log->medium_pause))
		return err;
	while ((err == -ENOSPC || err == -EDQUOT) &&
	       bytes - census->bytes < 2 * size &&
	       !(is_tail ? ki_log_evict_oldest(log, index, census)
			 : ki_log_evict_before_tail(log, index, census)))
		err = make_file(log, path, size, zeroed, out_fd);
	if (err)
		log->medium_pause = MEDIUM_PAUSE;
	return err;
}

/* A segment made for the purpose. */
enum kiln_status ki_log_make_tail(struct ki_log *log, struct log_index *index,
				  struct log_census *census)
{
	struct log_limit_values limits;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	uint32_t number;
	uint64_t size;
	enum kiln_status status;
	int err;

	ki_log_limits_get(log, index, &limits);
	size = ki_log_next_segment_bytes(&limits, census);
	status = ki_log_make_room_for_tail(log, index, census, size);
	if (status)
		return status;
	err = ki_log_take_number(log, index, census, &number, path);
	if (err)
		return ki_log_status(err);
	err = make_file_evicting(log, index, census, path, size, 1, NULL);
	if (err)
		return ki_log_status(err);
	err = log->sys->lstat(log->sys, path, &info);
	if (!err)
		err = ki_log_census_add(census, number, info.size,
					ki_log_counted(&info), 0);
	if (err) {
		(void)log->sys->unlink(log->sys, path);
		return ki_log_status(err);
	}
	census->bytes += ki_log_counted(&info);
	set_tail(log, index, number);
	return KILN_OK;
}

int ki_log_tail_is_nearly_full(const struct log_index *index,
			       const struct log_census *census)
{
	uint64_t tail = index->header->tail;
	uint64_t end = (uint64_t)log_tail_units(tail) * LOG_UNIT;
	size_t i;

	for (i = census->n_files; log_tail_is_sound(tail) && i-- > 0;)
		if (census->files[i].number == log_tail_segment(tail))
			return end > census->files[i].size / 4 * 3;
	return 1;
}

enum kiln_status ki_log_new_tail(struct ki_log *log, struct log_index *index,
				 struct log_census *census)
{
	if (!ki_log_use_spare(log, index, census))
		return KILN_OK;
	(void)ki_log_drop_spare(log, census);
	return ki_log_make_tail(log, index, census);
}

/* Zeros that the system writes out before records take their place would be
   written twice. */
static int rolls_often(struct ki_log *log)
{
	uint64_t now_ns = log->sys->monotonic_ns(log->sys);
	uint64_t before_ns = log->rolled_ns;

	log->rolled_ns = now_ns;
	return before_ns && now_ns - before_ns < ROLLS_OFTEN_NS;
}

/* For the next roll.  That there is none is no failure of this one. */
static void make_spare(struct ki_log *log, struct log_index *index,
		       struct log_census *census)
{
	uint64_t zeroed = rolls_often(log) ? LOG_ZEROED_SPARE : 0;
	struct log_limit_values limits;
	uint64_t size;

	ki_log_limits_get(log, index, &limits);
	size = ki_log_next_segment_bytes(&limits, census);
	/* Evicting takes one; of a small store it would be the better part. */
	if (census->has_spare ||
	    (is_by_quota(&limits) && size < LOG_SEGMENT_BYTES_FIRST))
		return;
	if (!ki_log_make_room(log, index, census, size))
		(void)make_file(log, log->spare_path, size, zeroed, NULL);
}

void ki_log_repair_numbers(struct log_index *index,
			   const struct log_census *census)
{
	struct log_header *header = index->header;
	uint64_t min_live = header->min_live;
	uint32_t next = ki_log_next_number(header, census);

	if (log_number_is_sound(min_live) &&
	    next - (uint32_t)min_live < LOG_SPAN_MAX)
		return;
	header->min_live = log_number_word(
		census->n_files ? census->files[0].number : next);
}

static int has_room(const struct log_census *census, uint64_t tail,
		    uint64_t bytes)
{
	size_t i;

	for (i = 0; i < census->n_files; i++)
		if (census->files[i].number == log_tail_segment(tail))
			return ((uint64_t)log_tail_units(tail)) * LOG_UNIT +
				       bytes <=
			       census->files[i].size;
	return 0;
}

static enum kiln_status roll_locked(struct ki_log *log, struct log_index *index,
				    uint64_t seen_tail, uint64_t bytes,
				    int force, uint64_t *out_n_evicted)
{
	struct log_limit_values limits;
	struct log_census census;
	enum kiln_status status;
	uint64_t tail;
	int is_same;

	if (!ki_log_is_current_locked(log, index))
		return LOG_AGAIN;
	status = ki_log_index_bring(index, NULL);
	if (status)
		return status;
	status = ki_log_census_take(log, 1, &census);
	if (status)
		return status;
	census.wanted_bytes = bytes;
	ki_log_repair_numbers(index, &census);
	tail = index->header->tail;
	is_same = log_tail_is_sound(seen_tail) &&
		  log_tail_segment(tail) == log_tail_segment(seen_tail);
	if (log_tail_is_sound(tail) &&
	    (!is_same || (!force && has_room(&census, tail, bytes))))
		goto out;
	ki_log_limits_get(log, index, &limits);
	ki_log_allow_copies(log, index, &census);
	status = ki_log_new_tail(log, index, &census);
	if (!status && limits.age_max_s) {
		ki_log_sweep_if_due(log, index, limits.age_max_s,
				    LOG_SWEEP_BY_ROLL);
		ki_log_drop_empty(log, index, &census);
	}
	if (!status) {
		ki_log_drop_orphans_if_due(log, index, &census);
		make_spare(log, index, &census);
	}
out:
	*out_n_evicted = census.n_evicted;
	ki_log_census_fini(&census);
	return status;
}

enum kiln_status ki_log_roll(struct ki_log *log, struct log_index *index,
			     uint64_t seen_tail, uint64_t bytes, int force)
{
	struct ki_lock lock;
	uint64_t n_evicted = 0;
	enum kiln_status status =
		ki_log_structure_begin(log, &lock, LOG_ROLL_TIMEOUT_MS);

	if (status)
		return status;
	status = roll_locked(log, index, seen_tail, bytes, force, &n_evicted);
	ki_log_structure_end(log, &lock);
	ki_log_count_evicted(log, n_evicted);
	return status;
}

/* ---- Large values ---------------------------------------------------- */

/*
 * Its place in the order of records: a unit of the tail that stays empty.
 * Where none can be had, the tail is closed: then all that was written lies in
 * segments below `number`, and all that comes needs a new tail, which is above.
 */
static uint64_t take_order(struct ki_log *log, struct log_index *index,
			   uint32_t number)
{
	struct log_target target;
	uint32_t segment, units;

	if (ki_log_take_room(log, index, LOG_UNIT, &target, &segment, &units)) {
		index->header->tail = 0;
		return log_order(number, 0);
	}
	ki_log_target_close(log, &target);
	return log_order(segment, units);
}

static enum kiln_status large_locked(struct ki_log *log,
				     struct log_index *index, uint64_t bytes,
				     uint32_t *out_number, uint64_t *out_order,
				     int *out_fd, uint64_t *out_n_evicted)
{
	uint64_t size = (bytes + 4095) & ~(uint64_t)4095;
	struct log_census census;
	char path[KI_PATH_MAX];
	enum kiln_status status;
	int err;

	if (!ki_log_is_current_locked(log, index))
		return LOG_AGAIN;
	status = ki_log_index_bring(index, NULL);
	if (status)
		return status;
	status = ki_log_census_take(log, 1, &census);
	if (status)
		return status;
	ki_log_repair_numbers(index, &census);
	ki_log_allow_copies(log, index, &census);
	ki_log_drop_orphans_if_due(log, index, &census);
	status = ki_log_make_room(log, index, &census, size);
	if (status)
		goto out;
	err = ki_log_take_number(log, index, &census, out_number, path);
	if (!err)
		err = make_file_evicting(log, index, &census, path, size, 0,
					 out_fd);
	if (!err)
		*out_order = take_order(log, index, *out_number);
	status = ki_log_status(err);
out:
	*out_n_evicted = census.n_evicted;
	ki_log_census_fini(&census);
	return status;
}

enum kiln_status ki_log_large_make(struct ki_log *log, struct log_index *index,
				   uint64_t bytes, uint32_t *out_number,
				   uint64_t *out_order, int *out_fd)
{
	struct ki_lock lock;
	uint64_t n_evicted = 0;
	enum kiln_status status =
		ki_log_structure_begin(log, &lock, LOG_ROLL_TIMEOUT_MS);

	if (status)
		return status;
	status = large_locked(log, index, bytes, out_number, out_order, out_fd,
			      &n_evicted);
	ki_log_structure_end(log, &lock);
	ki_log_count_evicted(log, n_evicted);
	return status;
}
