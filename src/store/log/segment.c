/* SPDX-License-Identifier: MIT */

/*
 * Open segments, in a table of LOG_SEGMENTS_OPEN places by number: two
 * numbers of one place push each other out, which costs an open and is never
 * wrong.  The table holds one reference to the segment's holder; each value
 * handed to a user holds one more and may outlive the store.
 *
 * A segment below min_live is taken out at the first call that sees the new
 * min_live; its memory goes with the last view.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- Letting go ------------------------------------------------------ */

void ki_log_retire_locked(struct ki_log *log, struct log_retired *retired,
			  void (*release)(struct log_retired *retired))
{
	retired->release = release;
	retired->empty = 0;
	retired->tag = log->glances ? kiln_tier_retire() : 0;
	retired->next = log->retired;
	log->retired = retired;
	log->has_retired = 1;
}

/* The newest is first, and what has passed it has passed those after it: asking
   costs a barrier in all threads of the process, so it is done once. */
void ki_log_reclaim(struct ki_log *log)
{
	struct log_retired **place, *retired, *free_list = NULL;
	int asked = !log->glances, passed = asked, i;
	uint32_t empty = 0;

	ki_mutex_lock(&log->mutex);
	for (i = 0; log->retired && i < LOG_STRIPES; i++)
		if (!log->stripes[i].n_inside)
			empty |= 1u << i;
	for (place = &log->retired; *place;) {
		retired = *place;
		retired->empty |= empty;
		if (retired->empty == (1u << LOG_STRIPES) - 1 && !asked) {
			passed = kiln_tier_passed(retired->tag);
			asked = 1;
		}
		if (retired->empty == (1u << LOG_STRIPES) - 1 && passed) {
			*place = retired->next;
			retired->next = free_list;
			free_list = retired;
		} else {
			place = &retired->next;
		}
	}
	log->has_retired = log->retired != NULL;
	ki_mutex_unlock(&log->mutex);
	while (free_list) {
		retired = free_list;
		free_list = retired->next;
		retired->release(retired);
	}
}

int ki_log_is_file(const struct ki_sys *sys, int fd, uint64_t device,
		   uint64_t inode)
{
	uint64_t its_device, its_inode;

	return fd >= 0 && !sys->fidentify(sys, fd, &its_device, &its_inode) &&
	       its_inode == inode && its_device == device;
}

int ki_log_is_ours(const struct log_segment *segment, int fd)
{
	return ki_log_is_file(segment->sys, fd, segment->device,
			      segment->inode);
}

static void close_ours(const struct log_segment *segment, int fd)
{
	if (ki_log_is_ours(segment, fd))
		(void)segment->sys->close(segment->sys, fd);
}

static size_t n_parts(uint64_t size)
{
	return (size_t)(size / LOG_UNIT / LOG_CHECKED_UNITS + 1);
}

void ki_log_note_checked(struct log_segment *segment, uint32_t units)
{
	_Atomic(_Atomic uint8_t *) *place =
		&segment->checked[units / LOG_CHECKED_UNITS];
	_Atomic uint8_t *part = *place, *other = NULL;

	if (!part) {
		part = calloc(1, LOG_CHECKED_UNITS / 8);
		if (!part)
			return;
		if (!atomic_compare_exchange_strong(place, &other, part)) {
			free((void *)part);
			part = other;
		}
	}
	atomic_fetch_or_explicit(&part[units % LOG_CHECKED_UNITS / 8],
				 (uint8_t)(1u << units % 8),
				 memory_order_relaxed);
}

/* The holder's last reference is gone. */
static void close_segment(void *arg)
{
	struct log_segment *segment = arg;
	const struct ki_sys *sys = segment->sys;
	size_t i;

	if (segment->data)
		sys->unmap(sys, (void *)(uintptr_t)segment->data,
			   (size_t)segment->size);
	close_ours(segment, segment->fd);
	close_ours(segment, segment->write_fd);
	for (i = 0; i < n_parts(segment->size); i++)
		free((void *)segment->checked[i]);
	free(segment);
}

static void release(struct log_retired *retired)
{
	const struct log_segment *segment =
		(struct log_segment *)(void *)((char *)retired -
					       offsetof(struct log_segment,
							retired));

	kiln_blob_unref(segment->holder);
}

static void take_out_locked(struct ki_log *log, struct log_segments *segments,
			    unsigned place) KI_REQUIRES(&log->mutex)
{
	struct log_segment *segment =
		atomic_exchange(&segments->slots[place], NULL);

	if (segment)
		ki_log_retire_locked(log, &segment->retired, release);
}

/* ---- The table ------------------------------------------------------- */

struct log_segments *ki_log_segments_new(void)
{
	return calloc(1, sizeof(struct log_segments));
}

/* With no operation inside. */
void ki_log_segments_free(struct log_segments *segments)
{
	unsigned i;

	if (!segments)
		return;
	for (i = 0; i < LOG_SEGMENTS_OPEN; i++)
		if (segments->slots[i])
			kiln_blob_unref(segments->slots[i]->holder);
	free(segments);
}

void ki_log_segments_sweep(struct ki_log *log, struct log_index *index)
{
	uint64_t min_live = index->header->min_live;
	unsigned i;

	if (!index->segments || log->min_live_seen == min_live)
		return;
	ki_mutex_lock(&log->mutex);
	for (i = 0; i < LOG_SEGMENTS_OPEN; i++) {
		struct log_segment *segment = index->segments->slots[i];

		if (segment &&
		    log_is_before(segment->number, (uint32_t)min_live))
			take_out_locked(log, index->segments, i);
	}
	log->min_live_seen = min_live;
	ki_mutex_unlock(&log->mutex);
}

/* How much of a file this handle has filled with zeros itself, and when. */
static void note_zeroed(const struct ki_log *log, struct log_segment *segment)
{
	int i;

	for (i = 0; i < LOG_ZEROED_FILES; i++) {
		const struct log_zeroed *zeroed = &log->zeroed[i];

		if (zeroed->inode != segment->inode ||
		    zeroed->device != segment->device ||
		    zeroed->bytes > segment->size)
			continue;
		segment->zeroed_ns = zeroed->made_ns;
		segment->zeroed = zeroed->bytes;
	}
}

static enum kiln_status open_segment(struct ki_log *log,
				     const struct log_index *index,
				     uint32_t number,
				     struct log_segment **out_segment)
{
	const struct ki_sys *sys = log->sys;
	struct log_segment *segment;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	enum kiln_status status;
	int err, fd = -1;
	void *data;

	err = ki_log_segment_path(log, number, path);
	if (!err)
		err = fd = sys->open(sys, path,
				     KI_OPEN_READ | ki_log_open_flags(log), 0);
	if (fd >= 0)
		err = sys->fstat(sys, fd, &info);
	if (err == -ENOENT || err == -ELOOP ||
	    (!err && (!S_ISREG(info.mode) || !info.size))) {
		status = KILN_MISS;
		goto out;
	}
	status = ki_log_status(err);
	if (err)
		goto out;
	status = KILN_E_NO_MEMORY;
	segment =
		calloc(1, sizeof(*segment) + n_parts(info.size) *
						     sizeof(*segment->checked));
	if (!segment)
		goto out;
	status = kiln_blob_wrap(NULL, 0, close_segment, segment,
				&segment->holder);
	if (status) {
		free(segment);
		goto out;
	}
	segment->holder->place = ki_log_place_of(index, number, 0);
	segment->sys = sys;
	segment->number = number;
	segment->fd = -1;
	segment->write_fd = -1;
	segment->size = info.size;
	segment->device = info.device;
	segment->inode = info.inode;
	if (log->maps_values &&
	    !sys->map(sys, fd, 0, (size_t)info.size, 0, &data)) {
		segment->data = data;
		note_zeroed(log, segment);
	} else {
		segment->fd = fd;
		fd = -1;
	}
	*out_segment = segment;
	status = KILN_OK;
out:
	if (fd >= 0)
		(void)sys->close(sys, fd);
	return status;
}

void ki_log_segment_forget(struct ki_log *log, struct log_index *index,
			   uint32_t number)
{
	unsigned place = ki_log_segment_place(log, number);
	struct log_segment *segment;

	ki_mutex_lock(&log->mutex);
	segment = index->segments->slots[place];
	if (segment && segment->number == number)
		take_out_locked(log, index->segments, place);
	ki_mutex_unlock(&log->mutex);
}

void ki_log_segment_unlink(struct ki_log *log, struct log_index *index,
			   uint32_t number)
{
	char path[KI_PATH_MAX];

	if (!ki_log_segment_path(log, number, path))
		(void)log->sys->unlink(log->sys, path);
	if (!log->guest)
		ki_log_segment_forget(log, index, number);
}

enum kiln_status ki_log_segment_get(struct ki_log *log, struct log_index *index,
				    uint32_t number,
				    struct log_segment **out_segment)
{
	unsigned place = ki_log_segment_place(log, number);
	struct log_segment *segment = index->segments->slots[place];
	enum kiln_status status = KILN_OK;

	if (segment && segment->number == number) {
		*out_segment = segment;
		return KILN_OK;
	}
	ki_mutex_lock(&log->mutex);
	segment = index->segments->slots[place];
	if (!segment || segment->number != number) {
		status = open_segment(log, index, number, &segment);
		if (!status) {
			take_out_locked(log, index->segments, place);
			index->segments->slots[place] = segment;
		}
	}
	ki_mutex_unlock(&log->mutex);
	if (!status)
		*out_segment = segment;
	return status;
}

/* ---- Writing --------------------------------------------------------- */

int ki_log_segment_open_to_write(struct ki_log *log, uint32_t number,
				 struct ki_file_info *out_info)
{
	const struct ki_sys *sys = log->sys;
	char path[KI_PATH_MAX];
	int err = ki_log_segment_path(log, number, path);
	int fd = err ? err
		     : sys->open(sys, path,
				 KI_OPEN_READ | KI_OPEN_WRITE |
					 ki_log_open_flags(log),
				 0);

	if (fd < 0)
		return fd == -ELOOP ? -ENOENT : fd;
	err = sys->fstat(sys, fd, out_info);
	if (!err && !S_ISREG(out_info->mode))
		err = -ENOENT;
	if (err) {
		(void)sys->close(sys, fd);
		return err;
	}
	return fd;
}

/*
 * A kept descriptor may have been closed by the program and be another file's
 * by now: it is looked at before every write, and left alone if it is not
 * ours any more.
 */
enum kiln_status ki_log_target_open(struct ki_log *log, struct log_index *index,
				    uint32_t number,
				    struct log_target *out_target)
{
	const struct ki_sys *sys = log->sys;
	struct log_segment *segment;
	struct ki_file_info info;
	enum kiln_status status;
	int fd, none = -1;

	if (log->guest) {
		fd = ki_log_segment_open_to_write(log, number, &info);
		if (fd < 0)
			return fd == -ENOENT ? KILN_MISS : ki_log_status(fd);
		*out_target =
			(struct log_target){ .fd = fd, .size = info.size };
		return KILN_OK;
	}
	status = ki_log_segment_get(log, index, number, &segment);
	if (status)
		return status;
	fd = segment->write_fd;
	if (!ki_log_is_ours(segment, fd)) {
		none = fd;
		fd = ki_log_segment_open_to_write(log, number, &info);
		if (fd < 0)
			return fd == -ENOENT ? KILN_MISS : ki_log_status(fd);
		if (info.inode != segment->inode ||
		    info.device != segment->device) {
			(void)sys->close(sys, fd);
			return KILN_MISS;
		}
		if (!atomic_compare_exchange_strong(&segment->write_fd, &none,
						    fd)) {
			/* Another thread was faster. */
			(void)sys->close(sys, fd);
			fd = none;
		}
	}
	*out_target = (struct log_target){ .fd = fd,
					   .size = segment->size,
					   .segment = segment };
	return KILN_OK;
}

void ki_log_target_close(struct ki_log *log, const struct log_target *target)
{
	if (log->guest && target->fd >= 0)
		(void)log->sys->close(log->sys, target->fd);
}
