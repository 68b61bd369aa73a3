/* SPDX-License-Identifier: MIT */

/*
 * NAME.stats: how often what happened, over all processes.
 *
 *	0      header: magic, version, since, newest hour, sum
 *	64     64 totals, in the order of KILN_COUNTERS (appended to, never
 *	       changed)
 *	576    744 hours of 8 numbers, hour h in row h mod 744
 *
 * 49152 bytes from the first on.  Who adds tries once to lock the file: a number
 * in a table is not worth a wait, it can come later.  Who sets them all to 0, on
 * request, waits for a second at most.  Who reads takes no lock, and looks again
 * if the head was being written.
 *
 * NAME.history has what these bytes have no room for (history.c).  The lock of
 * this file is for both.
 */

#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/status.h"
#include "store/history.h"
#include "store/quotas.h"

#define MAGIC	  0x5354415453494bull /* "KISTATS\0" */
#define VERSION	  1
#define N_TOTALS  64
#define N_COLUMNS 8
#define READS_MAX 8
#define ZERO_NS	  ((uint64_t)1000000000)

static_assert((int)KILN_N_COUNTERS <= N_TOTALS, "format");

struct head {
	uint64_t magic;
	uint64_t version;
	uint64_t since_s;
	uint64_t newest_hour;
	uint64_t reserved[3];
	uint64_t sum; /* XXH3-64 of this before, and the totals */
	uint64_t totals[N_TOTALS];
};

static_assert(sizeof(struct head) == 576, "format");
static_assert(sizeof(struct head) + KILN_HOURS * N_COLUMNS * 8 <=
		      KI_STATS_BYTES,
	      "format");

static const unsigned columns[N_COLUMNS] = KILN_HOURLY;

static uint64_t sum_of(const struct head *head)
{
	struct ki_piece pieces[] = {
		{ head, offsetof(struct head, sum) },
		{ head->totals, sizeof(head->totals) },
	};

	return ki_xxh3_64_pieces(pieces, 2);
}

static int is_sound(const struct head *head)
{
	return head->magic == MAGIC && head->sum == sum_of(head);
}

static uint64_t row_offset(uint64_t hour)
{
	return sizeof(struct head) + hour % KILN_HOURS * N_COLUMNS * 8;
}

/* A file of full size with nothing counted; also over a damaged one. */
static int start(const struct ki_sys *sys, int fd, struct head *out_head)
{
	uint8_t *zeros = calloc(1, KI_STATS_BYTES);
	uint64_t now_s = sys->realtime_ns(sys) / 1000000000;
	int err;

	if (!zeros)
		return -ENOMEM;
	*out_head = (struct head){ .magic = MAGIC,
				   .version = VERSION,
				   .since_s = now_s,
				   .newest_hour = now_s / 3600 };
	out_head->sum = sum_of(out_head);
	memcpy(zeros, out_head, sizeof(*out_head));
	err = ki_pwrite_all(sys, fd, zeros, KI_STATS_BYTES, 0);
	free(zeros);
	return err;
}

/* -EINVAL: a newer version, or no file at all; left alone. */
static int load(const struct ki_sys *sys, int fd, struct head *out_head)
{
	struct ki_file_info info;
	int err = sys->fstat(sys, fd, &info);

	if (err)
		return err;
	if (!S_ISREG(info.mode))
		return -EINVAL;
	if (info.size != KI_STATS_BYTES)
		return start(sys, fd, out_head);
	err = ki_pread_all(sys, fd, out_head, sizeof(*out_head), 0);
	if (err)
		return err;
	if (!is_sound(out_head))
		return start(sys, fd, out_head);
	return out_head->version == VERSION ? 0 : -EINVAL;
}

/* Rows between the newest hour and now were empty hours. */
static int advance(const struct ki_sys *sys, int fd, struct head *head,
		   uint64_t hour)
{
	static const uint64_t empty[N_COLUMNS];
	uint64_t h = head->newest_hour + 1;
	int err = 0;

	if (hour > head->newest_hour + KILN_HOURS)
		h = hour - KILN_HOURS + 1;
	for (; h <= hour && !err; h++)
		err = ki_pwrite_all(sys, fd, empty, sizeof(empty),
				    row_offset(h));
	if (hour > head->newest_hour)
		head->newest_hour = hour;
	return err;
}

/* There is no room for another column: hits are in the store, or not. */
static uint64_t of_column(const uint64_t *deltas, unsigned column)
{
	return deltas[columns[column]] +
	       (columns[column] == KILN_COUNT_HITS_STORE
			? deltas[KILN_COUNT_HITS_PACK] +
				  deltas[KILN_COUNT_HITS_REMOTE]
			: 0);
}

static int add(const struct ki_sys *sys, int fd, const uint64_t *deltas)
{
	uint64_t hour = sys->realtime_ns(sys) / 1000000000 / 3600;
	uint64_t row[N_COLUMNS];
	struct head head;
	unsigned i;
	int err = load(sys, fd, &head);

	if (!err)
		err = advance(sys, fd, &head, hour);
	if (!err && hour + KILN_HOURS > head.newest_hour) {
		err = ki_pread_all(sys, fd, row, sizeof(row), row_offset(hour));
		for (i = 0; i < N_COLUMNS; i++)
			row[i] += of_column(deltas, i);
		if (!err)
			err = ki_pwrite_all(sys, fd, row, sizeof(row),
					    row_offset(hour));
	}
	if (err)
		return err;
	for (i = 0; i < KILN_N_COUNTERS; i++)
		head.totals[i] += deltas[i];
	head.sum = sum_of(&head);
	return ki_pwrite_all(sys, fd, &head, sizeof(head), 0);
}

/* A descriptor that holds the file's lock, or an error: -EAGAIN (or -ETIMEDOUT)
   if another one holds it now (or at the deadline, where that is not 0). */
static int open_locked(const struct ki_sys *sys, const char *path,
		       unsigned flags, uint64_t deadline_ns,
		       struct ki_fork_close *place)
{
	const unsigned mode = flags & KILN_OPEN_SHARED ? 0660 : 0600;
	int err, fd = sys->open(sys, path,
				KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE |
					ki_open_flags(flags),
				mode);

	if (fd < 0)
		return fd;
	/* Whatever the umask; where it is another's, he has done it. */
	if (flags & KILN_OPEN_SHARED)
		(void)sys->chmod(sys, path, mode);
	ki_fork_close_add(place, fd);
	err = deadline_ns ? ki_lock_until(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1,
					  deadline_ns)
			  : sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1);
	if (!err)
		return fd;
	ki_fork_close_remove(place);
	(void)sys->close(sys, fd);
	return err;
}

static void close_locked(const struct ki_sys *sys, int fd,
			 struct ki_fork_close *place)
{
	ki_fork_close_remove(place);
	(void)sys->close(sys, fd);
}

static int path_beside(char out[KI_PATH_MAX], const char *path,
		       const char *other)
{
	static const char end[] = "stats";
	size_t size = strlen(path) - (sizeof(end) - 1);

	if (size + strlen(other) >= KI_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out, path, size);
	strcpy(out + size, other);
	return 0;
}

static int history_path(char out[KI_PATH_MAX], const char *path)
{
	return path_beside(out, path, "history");
}

enum kiln_status ki_counters_add(const struct ki_sys *sys, const char *path,
				 unsigned flags, const char *application,
				 const uint64_t deltas[KILN_N_COUNTERS])
{
	char history[KI_PATH_MAX];
	struct ki_fork_close place;
	int err, fd = open_locked(sys, path, flags, 0, &place);

	if (fd < 0)
		return fd == -EAGAIN ? KILN_E_TIMEOUT
				     : ki_status_from_errno(fd);
	err = add(sys, fd, deltas);
	/* What was added must not come again. */
	if (!err && application && !history_path(history, path))
		(void)ki_history_add(sys, history, flags, application, deltas);
	close_locked(sys, fd, &place);
	return ki_status_from_errno(err);
}

/* The whole file, from malloc().  -EBADMSG: not sound, this time.  -ENOENT also
   where somebody began one and came no further. */
static int read_once(const struct ki_sys *sys, const char *path,
		     struct head *out_head, void **out_data)
{
	size_t size;
	int err = ki_read_file(sys, path, KI_STATS_BYTES, out_data, &size);

	if (err)
		return err;
	if (size == KI_STATS_BYTES)
		memcpy(out_head, *out_data, sizeof(*out_head));
	if (size == KI_STATS_BYTES && is_sound(out_head))
		return 0;
	free(*out_data);
	return size < KI_STATS_BYTES ? -ENOENT : -EBADMSG;
}

enum kiln_status ki_counters_read(const struct ki_sys *sys, const char *path,
				  struct kiln_store_counters *out_counters)
{
	char history[KI_PATH_MAX];
	struct head head;
	uint64_t hour;
	void *data;
	unsigned i;
	int tries = 0, err;

	do {
		err = read_once(sys, path, &head, &data);
	} while (err == -EBADMSG && ++tries < READS_MAX);
	if (err == -ENOENT) {
		memset(out_counters, 0, sizeof(*out_counters));
		return KILN_OK;
	}
	if (err)
		return err == -EFBIG || err == -EINVAL || err == -EBADMSG
			       ? KILN_E_FORMAT
			       : ki_status_from_errno(err);
	if (head.version != VERSION) {
		free(data);
		return KILN_E_FORMAT;
	}
	memset(out_counters, 0, sizeof(*out_counters));
	out_counters->since = head.since_s;
	out_counters->newest_hour = head.newest_hour;
	for (i = 0; i < KILN_N_COUNTERS; i++)
		out_counters->total[i] = head.totals[i];
	for (i = 0; i < KILN_HOURS && i <= head.newest_hour; i++) {
		hour = head.newest_hour - i;
		memcpy(out_counters->hours[i],
		       (uint8_t *)data + row_offset(hour), N_COLUMNS * 8);
	}
	free(data);
	if (!history_path(history, path))
		ki_history_read(sys, history, out_counters);
	return KILN_OK;
}

enum kiln_status ki_counters_zero(const struct ki_sys *sys, const char *path,
				  unsigned flags)
{
	char history[KI_PATH_MAX];
	struct ki_fork_close place;
	struct head head;
	int err, fd = open_locked(sys, path, flags,
				  sys->monotonic_ns(sys) + ZERO_NS, &place);

	if (fd < 0)
		return fd == -EAGAIN ? KILN_E_TIMEOUT
				     : ki_status_from_errno(fd);
	err = start(sys, fd, &head);
	if (!err && !history_path(history, path))
		(void)ki_history_zero(sys, history, flags);
	close_locked(sys, fd, &place);
	return ki_status_from_errno(err);
}

void ki_counters_remove(const struct ki_sys *sys, const char *path)
{
	char other[KI_PATH_MAX];

	if (!history_path(other, path))
		(void)sys->unlink(sys, other);
	if (!path_beside(other, path, KI_QUOTAS_END))
		(void)sys->unlink(sys, other);
	(void)sys->unlink(sys, path);
}

uint64_t ki_counters_bytes(const struct ki_sys *sys, const char *path,
			   uint64_t (*charge)(const struct ki_file_info *info))
{
	char other[KI_PATH_MAX];
	struct ki_file_info info;
	uint64_t bytes = KI_COUNTERS_BYTES;

	if (!sys->lstat(sys, path, &info))
		bytes += charge(&info) - KI_STATS_BYTES;
	if (!history_path(other, path) && !sys->lstat(sys, other, &info))
		bytes += charge(&info) - KI_HISTORY_BYTES;
	if (!path_beside(other, path, KI_QUOTAS_END) &&
	    !sys->lstat(sys, other, &info))
		bytes += charge(&info);
	return bytes;
}
