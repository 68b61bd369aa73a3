/* SPDX-License-Identifier: MIT */

/*
 * Two small texts, both a number in decimal and nothing else: cache_size.txt, the
 * sum of all sizes, and <n>_access_time.txt, when an entry was used last, in
 * nanoseconds since 1970.
 *
 * The sum is kept where it is there already, or where there is a limit.  Who adds
 * takes its lock, reads, adds and writes: what DPC++ adds meanwhile is not lost.
 * If the lock is not to be had in time, or while somebody else evicts (the original
 * writes then what it has read before), the change is owed: kiln.owed has what
 * was added and removed, and whoever comes next pays.  Ours ends in a newline, of
 * which the original takes no notice, and which it does not write: so all know who
 * keeps the sum.  One that is missing or no number is counted anew under the
 * lock; one that cannot be true is put right by the difference.
 *
 * A count is of all files, as with DPC++, whose additions leave the times of access
 * out.  Kiln's do not, of its own entries; else each would stay behind in the sum
 * when it is evicted.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define TEXT_BYTES 48
#define SUM_MAX	   ((uint64_t)INT64_MAX)
/* So long nobody waits again for a lock that was waited for in vain. */
#define REFUSED_NS ((uint64_t)10 * 1000000000)

/* The first line, as stoull() reads it: blanks before, anything after. */
static int parse_first(const char *text, uint64_t *out_number,
		       const char **out_end)
{
	uint64_t number = 0;
	size_t n = 0;

	text += strspn(text, " \t\v\f\r");
	for (; text[n] >= '0' && text[n] <= '9'; n++) {
		const unsigned digit = (unsigned)(text[n] - '0');

		if (number > (SUM_MAX - digit) / 10)
			return -EINVAL;
		number = number * 10 + digit;
	}
	*out_number = number;
	*out_end = text + n;
	return n ? 0 : -EINVAL;
}

static int parse(const char *text, uint64_t *out_number)
{
	const char *end;

	return parse_first(text, out_number, &end);
}

/* Half of a number is another number, but a newline ends it; more than 19 digits are
   none.  0, -errno. */
static int read_text(const struct ki_sys *sys, int fd,
		     char out_text[TEXT_BYTES + 1], size_t *out_size)
{
	size_t size = 0;
	ssize_t n;

	do {
		n = sys->pread(sys, fd, out_text + size, TEXT_BYTES - size,
			       size);
		size += n > 0 ? (size_t)n : 0;
	} while (n > 0 && size < KI_SYCL_USE_BYTES &&
		 out_text[size - 1] != '\n');
	out_text[size] = '\0';
	*out_size = size;
	return n < 0 ? (int)n : 0;
}

static int read_file(const struct ki_sys *sys, const char *path,
		     char out_text[TEXT_BYTES + 1])
{
	size_t size;
	int err, fd = sys->open(
			 sys, path,
			 KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME, 0);

	if (fd < 0)
		return fd;
	err = read_text(sys, fd, out_text, &size);
	(void)sys->close(sys, fd);
	return err;
}

static int read_number(const struct ki_sys *sys, const char *path,
		       uint64_t *out_number)
{
	char text[TEXT_BYTES + 1];
	int err = read_file(sys, path, text);

	return err ? err : parse(text, out_number);
}

/* ---- The sum ---------------------------------------------------------------------- */

int ki_sycl_read_sum(const struct ki_sycl *sycl, uint64_t *out_sum)
{
	return read_number(sycl->sys, sycl->size_path, out_sum);
}

static int write_anew(const struct ki_sycl *sycl, const char *path,
		      const char *text, size_t size)
{
	const struct ki_sys *sys = sycl->sys;
	char temporary[KI_PATH_MAX];
	int err = ki_sycl_path(sycl, "kiln.size.tmp", temporary);
	int fd;

	if (err)
		return err;
	(void)sys->unlink(sys, temporary);
	fd = sys->open(sys, temporary,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE |
			       KI_OPEN_NOFOLLOW,
		       0600);
	if (fd < 0)
		return fd;
	err = ki_pwrite_all(sys, fd, text, size, 0);
	if (!err && (sycl->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, temporary, 0660);
	if (!err)
		err = sys->close(sys, fd);
	else
		(void)sys->close(sys, fd);
	if (!err)
		err = sys->rename(sys, temporary, path);
	if (err)
		(void)sys->unlink(sys, temporary);
	return err;
}

/* ---- What is owed -------------------------------------------------------------- */

void ki_sycl_read_owed(const struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	char path[KI_PATH_MAX], text[TEXT_BYTES + 1];
	const char *end;

	turn->owed_added = turn->owed_removed = 0;
	turn->has_owed = !ki_sycl_path(sycl, "kiln.owed", path) &&
			 !read_file(sycl->sys, path, text);
	if (!turn->has_owed)
		return;
	if (parse_first(text, &turn->owed_added, &end) ||
	    parse(end, &turn->owed_removed))
		turn->owed_added = turn->owed_removed = 0;
}

static void note_owed(const struct ki_sycl *sycl, struct ki_sycl_turn *turn,
		      uint64_t added, uint64_t removed)
{
	char path[KI_PATH_MAX], text[TEXT_BYTES];
	const size_t size = (size_t)snprintf(text, sizeof(text), "%llu %llu\n",
					     (unsigned long long)added,
					     (unsigned long long)removed);

	if ((turn->has_owed && added == turn->owed_added &&
	     removed == turn->owed_removed) ||
	    ki_sycl_path(sycl, "kiln.owed", path))
		return;
	turn->has_owed = !write_anew(sycl, path, text, size) || turn->has_owed;
	turn->owed_added = added;
	turn->owed_removed = removed;
}

static void forget_owed(const struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	char path[KI_PATH_MAX];

	if (turn->has_owed && !ki_sycl_path(sycl, "kiln.owed", path))
		(void)sycl->sys->unlink(sycl->sys, path);
	turn->has_owed = 0;
	turn->owed_added = turn->owed_removed = 0;
}

/* ---- Changing the sum --------------------------------------------------------------- */

static uint64_t new_sum(const struct ki_sycl_turn *turn, int err, uint64_t sum,
			uint64_t added, uint64_t removed)
{
	return err ? turn->total : ki_sycl_less(sum + added, removed);
}

/* Under its lock; over what is there, if that is as long: nobody sees half of
   it. */
static int change_sum(const struct ki_sycl *sycl,
		      const struct ki_sycl_turn *turn, uint64_t added,
		      uint64_t removed, uint64_t *out_sum)
{
	const struct ki_sys *sys = sycl->sys;
	char text[TEXT_BYTES + 1] = "";
	size_t size = 0, old_size = 0;
	uint64_t sum = 0;
	int err, is_ours,
		fd = sys->open(sys, sycl->size_path,
			       KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_NOFOLLOW,
			       0);

	err = fd < 0 ? fd : read_text(sys, fd, text, &old_size);
	is_ours = err ? err == -ENOENT : strchr(text, '\n') != NULL;
	if (!err)
		err = parse(text, &sum);
	*out_sum = new_sum(turn, err, sum, added, removed);
	size = (size_t)snprintf(text, sizeof(text), "%llu%s",
				(unsigned long long)*out_sum,
				is_ours ? "\n" : "");
	if (!err)
		err = size == old_size ? ki_pwrite_all(sys, fd, text, size, 0)
				       : -EINVAL;
	if (fd >= 0)
		(void)sys->close(sys, fd);
	return err ? write_anew(sycl, sycl->size_path, text, size) : 0;
}

void ki_sycl_recount(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
		     uint64_t counted)
{
	if (turn->noted == UINT64_MAX) {
		turn->total = counted;
		turn->added = turn->removed = 0;
		turn->owed_added = turn->owed_removed = 0;
	} else if (counted > turn->total) {
		ki_sycl_add(turn, counted - turn->total);
	} else {
		ki_sycl_take(turn, turn->total - counted);
	}
	turn->is_sure = 1;
}

void ki_sycl_read_sum_again(const struct ki_sycl *sycl,
			    struct ki_sycl_turn *turn)
{
	uint64_t sum;

	if (turn->noted == UINT64_MAX || ki_sycl_read_sum(sycl, &sum))
		return;
	turn->noted = sum;
	turn->total = ki_sycl_less(sum + turn->owed_added + turn->added,
				   turn->owed_removed + turn->removed);
}

void ki_sycl_settle(struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	const uint64_t added = turn->added + turn->owed_added;
	const uint64_t removed = turn->removed + turn->owed_removed;
	const int is_new = turn->noted == UINT64_MAX && turn->is_sure;
	uint64_t sum = 0;
	int err, waits;

	/* Who is in doubt leaves the next one in doubt. */
	if (!turn->has_size ||
	    (!is_new && added == removed && !turn->has_owed) ||
	    (turn->noted == UINT64_MAX && !turn->is_sure))
		return;
	waits = !sycl->size_refused_ns ||
		sycl->sys->monotonic_ns(sycl->sys) - sycl->size_refused_ns >
			REFUSED_NS;
	err = ki_sycl_is_other_evicting(sycl)
		      ? -EBUSY
		      : ki_sycl_lock(sycl, turn, sycl->size_path, waits);
	if (!err) {
		err = change_sum(sycl, turn, added, removed, &sum);
		ki_sycl_unlock(sycl, sycl->size_path);
	}
	turn->added = turn->removed = 0;
	if (!err)
		turn->noted = sum;
	if (err)
		note_owed(sycl, turn, added, removed);
	else
		forget_owed(sycl, turn);
	if (err != -EAGAIN)
		sycl->size_refused_ns = 0;
	else if (waits)
		sycl->size_refused_ns = sycl->sys->monotonic_ns(sycl->sys);
}

/* ---- Last use ----------------------------------------------------------------------- */

int ki_sycl_read_use(const struct ki_sycl *sycl, const char *stem,
		     int64_t *out_ns)
{
	char path[KI_PATH_MAX];
	uint64_t number;
	int err = ki_sycl_path_of(sycl, stem, "_access_time.txt", path);

	if (!err)
		err = read_number(sycl->sys, path, &number);
	if (!err)
		*out_ns = (int64_t)number;
	return err;
}

/*
 * Without its lock: in this century the number has 19 digits, and whoever writes
 * at the same time writes as many over them.
 */
int ki_sycl_write_use(const struct ki_sycl *sycl, const char *stem,
		      int64_t now_ns)
{
	const struct ki_sys *sys = sycl->sys;
	char path[KI_PATH_MAX], text[TEXT_BYTES];
	const size_t size =
		(size_t)snprintf(text, sizeof(text), "%019lld",
				 (long long)(now_ns > 0 ? now_ns : 0));
	int fd, err = ki_sycl_path_of(sycl, stem, "_access_time.txt", path);

	if (err)
		return err;
	fd = sys->open(sys, path,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_NOFOLLOW, 0600);
	if (fd < 0)
		return fd;
	err = ki_pwrite_all(sys, fd, text, size, 0);
	(void)sys->close(sys, fd);
	if (!err && (sycl->flags & KILN_OPEN_SHARED))
		(void)sys->chmod(sys, path, 0660);
	return err;
}
