/* SPDX-License-Identifier: MIT */

/*
 * What happens under byte 0: rolling, evicting, large files.
 *
 *	oldest                                              tail
 *	[ 41 ][ 42 ][ 43: one large ][ 44 ] ...             [ 97 ]   [ spare ]
 *	   \___ used entries are copied to the tail ________/
 *
 * A roll gives the spare a number and makes it the tail; then the oldest
 * segments go until a new spare fits the bound.  To let one go: copy what was
 * used since its last pass and swing each word from exactly the old to the
 * new place, then raise min_live, then unlink.  Killed between any two steps,
 * the next roll finds a smaller job of the same kind.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

void ki_log_count_evicted(struct ki_log *log, uint64_t n)
{
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	if (!n || log->readonly)
		return;
	deltas[KILN_COUNT_EVICTED] = n;
	(void)ki_counters_add(log->sys, log->stats_path, deltas);
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
				       KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW,
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
static int take_number(struct ki_log *log, struct log_index *index,
		       const struct log_census *census, uint32_t *out_number,
		       char out_path[KI_PATH_MAX])
{
	uint32_t number = ki_log_next_number(index->header, census);

	index->header->next_number = log_number_word(number + 1);
	*out_number = number;
	return ki_log_segment_path(log, number, out_path);
}

/* ---- Eviction -------------------------------------------------------- */

static int is_of_segment(uint64_t word, uint32_t number, uint32_t min_live)
{
	return log_word_is_live(word, min_live) &&
	       log_word_segment(word, min_live) == number;
}

/* The same of eight at once, and some that are not. */
static int bucket_may_have(const struct log_index *index, uint64_t slot,
			   uint32_t number)
{
	const uint64_t mask = (uint64_t)LOG_SEGMENT_MASK << LOG_OFFSET_BITS;
	const uint64_t bits = (uint64_t)number << LOG_OFFSET_BITS & mask;
	uint64_t below_zero = 0;
	unsigned i;

	for (i = 0; i < LOG_WORDS; i++) {
		uint64_t word = atomic_load_explicit(&index->words[slot + i],
						     memory_order_relaxed);

		below_zero |= ((word & mask) ^ bits) - 1;
	}
	return below_zero >> 63;
}

/* The record at `offset`, whole, into malloc()ed memory; NULL if it is not
   sound or not worth it. */
static uint8_t *read_record(struct ki_log *log, int fd, uint32_t number,
			    uint32_t units, uint64_t bytes_max)
{
	const struct ki_sys *sys = log->sys;
	uint64_t offset = (uint64_t)units * LOG_UNIT, bytes;
	struct log_record record;
	uint8_t *data;

	if (ki_pread_all(sys, fd, &record, sizeof(record), offset) ||
	    !ki_log_record_is_sound(&record, number, units))
		return NULL;
	bytes = log_record_bytes(&record);
	if (bytes > bytes_max)
		return NULL;
	data = malloc((size_t)bytes);
	if (data && ki_pread_all(sys, fd, data, (size_t)bytes, offset)) {
		free(data);
		data = NULL;
	}
	return data;
}

/* 0: there is no room, or the word is another by now. */
static int place_copy(struct ki_log *log, struct log_index *index,
		      struct log_census *census, uint64_t slot, uint64_t word,
		      struct log_record *record)
{
	uint64_t bytes = log_record_bytes(record);
	struct log_target target;
	uint32_t to, units;
	int placed = 0;

	if (ki_log_take_room(log, index, bytes, &target, &to, &units)) {
		census->copy_bytes_left = 0;
		return 0;
	}
	record->flags |= LOG_COPY;
	ki_log_record_seal(record, to);
	if (!ki_pwrite_all(log->sys, target.fd, record, (size_t)bytes,
			   (uint64_t)units * LOG_UNIT)) {
		census->copy_bytes_left -= bytes;
		placed = ki_log_word_swap(index, slot, word,
					  log_word(log_word_tag(word),
						   log_class_of(bytes), to,
						   units));
		/* Replaced meanwhile, by what may lie before the copy. */
		if (!placed)
			ki_log_record_void(log, target.fd, record, to, units);
	}
	ki_log_target_close(log, &target);
	return placed;
}

/* Bring one used entry to the tail.  0 if it was not possible. */
int ki_log_copy_entry(struct ki_log *log, struct log_index *index,
		      struct log_census *census, int fd, uint32_t number,
		      uint64_t slot, uint64_t word)
{
	struct log_limit_values limits;
	struct log_record *record;
	uint64_t used_s;
	uint8_t *data;
	int copied = 0;

	data = read_record(log, fd, number, log_word_units(word),
			   census->copy_bytes_left);
	if (!data)
		return 0;
	record = (struct log_record *)(void *)data;
	ki_log_limits_get(log, index, &limits);
	if (log_tail_segment(index->header->tail) == number ||
	    ki_log_is_expired(log, index, slot, record->used_s,
			      limits.age_max_s, &used_s) ||
	    !ki_log_belongs(index, slot, word, record->digest) ||
	    !ki_log_body_is_sound(record, data))
		goto out;
	record->used_s = (uint32_t)used_s;
	copied = place_copy(log, index, census, slot, word, record);
	if (copied) {
		index->marks[slot] = 0;
		index->header->n_copied++;
		index->header->bytes_copied += log_record_bytes(record);
	}
out:
	free(data);
	return copied;
}

/* A used large file gets a new number; its bytes stay where they are. */
static int move_large(struct ki_log *log, struct log_index *index,
		      struct log_census *census, const struct log_file *file,
		      uint64_t slot, uint64_t word)
{
	const struct ki_sys *sys = log->sys;
	char from[KI_PATH_MAX], to[KI_PATH_MAX];
	uint32_t number;

	if (file->bytes > census->move_bytes_left ||
	    ki_log_segment_path(log, file->number, from) ||
	    take_number(log, index, census, &number, to) ||
	    sys->link(sys, from, to))
		return 0;
	if (!ki_log_word_swap(index, slot, word,
			      log_word(log_word_tag(word),
				       (uint8_t)(word >> 40), number, 0)) ||
	    ki_log_census_add(census, number, file->size, file->bytes,
			      file->inode)) {
		(void)sys->unlink(sys, to);
		return 0;
	}
	census->move_bytes_left -= file->bytes;
	index->marks[slot] = 0;
	return 1;
}

static void scrub_dead_words(struct log_index *index, uint32_t min_live)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = index->words[slot];

		if (word && !log_word_is_live(word, min_live))
			(void)ki_log_word_swap(index, slot, word, 0);
	}
}

static void raise_min_live(struct log_index *index, uint32_t to)
{
	uint32_t from = ki_log_min_live(index);

	if (from / LOG_SPAN_MAX != to / LOG_SPAN_MAX)
		scrub_dead_words(index, from);
	index->header->min_live = log_number_word(to);
	index->header->generation++;
}

static int is_own_file(struct ki_log *log, int fd, uint32_t number)
{
	struct log_record record;

	return !ki_pread_all(log->sys, fd, &record, sizeof(record), 0) &&
	       ki_log_record_is_sound(&record, number, 0) &&
	       (record.flags & LOG_OWN_FILE);
}

int ki_log_is_shortage(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM ||
	       err == -EINTR;
}

/* Carry over what was used of a segment, drop the rest.  *out_moved: the file
   lives on under another name.  Not at all if it cannot be opened just now. */
static int empty_segment(struct ki_log *log, struct log_index *index,
			 struct log_census *census, const struct log_file *file,
			 int *out_moved)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint32_t min_live = ki_log_min_live(index);
	char path[KI_PATH_MAX];
	int fd = ki_log_segment_path(log, file->number, path)
			 ? -ENAMETOOLONG
			 : log->sys->open(log->sys, path,
					  KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	int own = fd >= 0 && is_own_file(log, fd, file->number), moved = 0;

	if (ki_log_is_shortage(fd))
		return fd;
	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word;

		if (slot % LOG_WORDS == 0 &&
		    !bucket_may_have(index, slot, file->number)) {
			slot += LOG_WORDS - 1;
			continue;
		}
		word = atomic_load_explicit(&index->words[slot],
					    memory_order_relaxed);
		if (!is_of_segment(word, file->number, min_live))
			continue;
		if (index->marks[slot] && fd >= 0 &&
		    !log_word_is_tentative(word)) {
			if (own && !moved &&
			    move_large(log, index, census, file, slot, word)) {
				moved = 1;
				continue;
			}
			if (!own && census->copy_bytes_left &&
			    ki_log_copy_entry(log, index, census, fd,
					      file->number, slot, word))
				continue;
		}
		if (ki_log_word_swap(index, slot, word, 0))
			census->n_evicted++;
	}
	if (fd >= 0)
		(void)log->sys->close(log->sys, fd);
	*out_moved = moved;
	return 0;
}

/* KILN_E_FULL: nothing is left that may go. */
enum kiln_status ki_log_evict_oldest(struct ki_log *log,
				     struct log_index *index,
				     struct log_census *census,
				     int may_take_tail)
{
	const struct ki_sys *sys = log->sys;
	uint64_t tail = index->header->tail;
	struct log_file file;
	char path[KI_PATH_MAX];
	uint32_t next;
	int err, moved = 0;

	if (!census->n_files)
		return KILN_E_FULL;
	file = census->files[0];
	if (!may_take_tail && log_tail_is_sound(tail) &&
	    log_tail_segment(tail) == file.number)
		return KILN_E_FULL;
	err = empty_segment(log, index, census, &file, &moved);
	if (err)
		return ki_log_status(err);
	/* What moved counts under its new name, also if the old one stays. */
	if (moved)
		census->files[0].bytes = 0;
	next = census->n_files > 1 ? census->files[1].number : file.number + 1;
	if (log_tail_is_sound(tail) &&
	    log_is_before(file.number, log_tail_segment(tail)) &&
	    log_is_before(log_tail_segment(tail), next))
		next = log_tail_segment(tail);
	if (log_is_before(ki_log_min_live(index), next) ||
	    !log_number_is_sound(index->header->min_live))
		raise_min_live(index, next);

	err = ki_log_segment_path(log, file.number, path);
	if (!err)
		err = sys->unlink(sys, path);
	if (err && err != -ENOENT)
		return ki_log_status(err);
	ki_log_census_remove(census, 0);
	return KILN_OK;
}

int ki_log_is_over(const struct log_index *index,
		   const struct log_census *census, uint64_t bytes,
		   uint64_t bytes_max)
{
	uint32_t next = ki_log_next_number(index->header, census);

	if (census->n_files &&
	    next - census->files[0].number >= LOG_SPAN_MAX - 2)
		return 1;
	return bytes_max &&
	       (census->bytes + bytes + LOG_SLACK_BYTES > bytes_max ||
		census->n_files + 1 >= LOG_FILES_MAX);
}

static int use_spare(struct ki_log *log, struct log_index *index,
		     struct log_census *census);
static enum kiln_status make_tail(struct ki_log *log, struct log_index *index,
				  struct log_census *census, uint64_t size);

enum kiln_status ki_log_make_room(struct ki_log *log, struct log_index *index,
				  struct log_census *census, uint64_t bytes,
				  int may_take_tail)
{
	const struct ki_sys *sys = log->sys;
	struct log_limit_values limits;
	char path[KI_PATH_MAX];
	uint64_t n;
	int refuse;

	ki_log_limits_get(log, index, &limits);
	refuse = (limits.policy & LOG_REFUSE_FULL) ||
		 (log->flags & KILN_OPEN_REFUSE_FULL);
	if (limits.bytes_max &&
	    bytes + index->size + ki_log_other_bytes() +
			    (may_take_tail ? 0 : limits.segment_bytes) >
		    limits.bytes_max)
		return KILN_E_TOO_LARGE;

	while (ki_log_is_over(index, census, bytes, limits.bytes_max)) {
		if (census->has_source &&
		    snprintf(path, sizeof(path), "%s/%s.src.%08x.val",
			     log->directory, log->name,
			     census->oldest_source) < KI_PATH_MAX) {
			if (!sys->unlink(sys, path))
				census->bytes -= census->oldest_source_bytes;
			census->has_source = 0;
			continue;
		}
		if (census->quarantine_bytes) {
			census->bytes -=
				ki_log_quarantine_drop(log, INT64_MAX, &n);
			census->quarantine_bytes = 0;
			continue;
		}
		if (refuse)
			return KILN_E_FULL;
		if (!ki_log_evict_oldest(log, index, census, may_take_tail))
			continue;
		/* Only the tail is left: it goes if another can follow. */
		if (!may_take_tail && census->n_files &&
		    !use_spare(log, index, census))
			continue;
		if (census->has_spare) {
			if (ki_log_drop_spare(log, census))
				return KILN_E_FULL;
			continue;
		}
		/* Large files alone do not roll: the tail is the oldest. */
		if (may_take_tail || census->n_files < 2 ||
		    make_tail(log, index, census,
			      ki_log_next_segment_bytes(&limits, census)))
			return KILN_E_FULL;
	}
	return KILN_OK;
}

/* ---- Rolling --------------------------------------------------------- */

uint64_t ki_log_next_segment_bytes(const struct log_limit_values *limits,
				   const struct log_census *census)
{
	size_t doublings = census->n_files / 64;

	if (limits->segment_bytes)
		return limits->segment_bytes;
	return LOG_SEGMENT_BYTES_FIRST << (doublings < 4 ? doublings : 4);
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
static int use_spare(struct ki_log *log, struct log_index *index,
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
	err = take_number(log, index, census, &number, path);
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
	       !ki_log_evict_oldest(log, index, census, is_tail))
		err = make_file(log, path, size, zeroed, out_fd);
	if (err)
		log->medium_pause = MEDIUM_PAUSE;
	return err;
}

/* A segment made for the purpose. */
static enum kiln_status make_tail(struct ki_log *log, struct log_index *index,
				  struct log_census *census, uint64_t size)
{
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	uint32_t number;
	enum kiln_status status;
	int err;

	status = ki_log_make_room(log, index, census, size, 1);
	if (status)
		return status;
	err = take_number(log, index, census, &number, path);
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
	struct log_limit_values limits;

	ki_log_limits_get(log, index, &limits);
	if (!use_spare(log, index, census))
		return KILN_OK;
	(void)ki_log_drop_spare(log, census);
	return make_tail(log, index, census,
			 ki_log_next_segment_bytes(&limits, census));
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
	if (census->has_spare)
		return;
	if (!ki_log_make_room(log, index, census, size, 0))
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

/* Oldest segments in which age has left nothing. */
void ki_log_drop_empty(struct ki_log *log, struct log_index *index,
		       struct log_census *census)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint32_t min_live = ki_log_min_live(index);
	uint32_t oldest = log_tail_segment(index->header->tail);

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = index->words[slot];

		if (log_word_is_live(word, min_live) &&
		    log_is_before(log_word_segment(word, min_live), oldest))
			oldest = log_word_segment(word, min_live);
	}
	while (census->n_files &&
	       log_is_before(census->files[0].number, oldest) &&
	       !ki_log_evict_oldest(log, index, census, 0))
		;
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
	ki_log_repair_numbers(index, &census);
	tail = index->header->tail;
	is_same = log_tail_is_sound(seen_tail) &&
		  log_tail_segment(tail) == log_tail_segment(seen_tail);
	if (log_tail_is_sound(tail) &&
	    (!is_same || (!force && has_room(&census, tail, bytes))))
		goto out;
	ki_log_limits_get(log, index, &limits);
	census.copy_bytes_left =
		ki_log_next_segment_bytes(&limits, &census) / 2;
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
	struct log_limit_values limits;
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
	ki_log_limits_get(log, index, &limits);
	census.copy_bytes_left =
		ki_log_next_segment_bytes(&limits, &census) / 2;
	ki_log_drop_orphans_if_due(log, index, &census);
	status = ki_log_make_room(log, index, &census, size, 0);
	if (status)
		goto out;
	err = take_number(log, index, &census, out_number, path);
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
