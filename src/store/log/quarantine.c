/* SPDX-License-Identifier: MIT */

/*
 * NAME.quarantine: bytes of damaged records, for people to look at.
 *
 * They are worth room that nothing else needs: a 64th of the bound in all, and
 * they go before any entry does.  Everything here happens under byte 0.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define ENTRY_BYTES_MAX ((uint64_t)1 << 24)

static int directory_path(const struct ki_log *log, char out[KI_PATH_MAX])
{
	int n = snprintf(out, KI_PATH_MAX, "%s/%s.quarantine", log->directory,
			 log->name);

	/* There, others could have it lead anywhere. */
	if (log->flags & KILN_OPEN_OWN_FILES)
		return -1;
	return n < 0 || n >= KI_PATH_MAX ? -1 : 0;
}

static enum kiln_status keep_bytes(struct ki_log *log, const char *from,
				   uint64_t offset, uint64_t bytes,
				   const char *to)
{
	const struct ki_sys *sys = log->sys;
	char path[KI_PATH_MAX];
	uint8_t *data = malloc((size_t)bytes);
	uint64_t done = 0;
	int in, out = -1, err;

	if (!data)
		return KILN_E_NO_MEMORY;
	err = in =
		sys->open(sys, from, KI_OPEN_READ | ki_log_open_flags(log), 0);
	while (in >= 0 && done < bytes) {
		ssize_t n = sys->pread(sys, in, data + done,
				       (size_t)(bytes - done), offset + done);
		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	if (in >= 0) {
		(void)sys->close(sys, in);
		err = done ? 0 : -EIO; /* nothing of it is to be had */
	}
	if (done)
		err = ki_log_temporary(log, done, path, &out);
	if (out >= 0) {
		err = ki_pwrite_all(sys, out, data, (size_t)done, 0);
		(void)sys->close(sys, out);
		if (!err)
			err = sys->rename(sys, path, to);
		if (err)
			(void)sys->unlink(sys, path);
	}
	free(data);
	return err < 0 ? ki_log_status(err) : KILN_OK;
}

static int has_room(const struct log_limit_values *limits,
		    const struct log_census *census, uint64_t bytes)
{
	return !limits->bytes_max ||
	       (census->quarantine_bytes + bytes <= limits->bytes_max / 64 &&
		census->bytes + bytes + 3 * 4096 <= limits->bytes_max);
}

/* Others of the group count what is in it, at each roll. */
static void make_directory(struct ki_log *log, const char *path)
{
	const struct ki_sys *sys = log->sys;

	if (!sys->mkdir(sys, path, 0700) && (log->flags & KILN_OPEN_SHARED))
		(void)sys->chmod(sys, path, 02770);
}

static enum kiln_status lock_within(struct ki_log *log, struct ki_lock *lock,
				    uint64_t *patience_ns)
{
	const struct ki_sys *sys = log->sys;
	uint64_t begun_ns = sys->monotonic_ns(sys), waited_ns;
	enum kiln_status status = ki_log_structure_begin(
		log, lock, (uint32_t)(*patience_ns / 1000000));

	waited_ns = sys->monotonic_ns(sys) - begun_ns;
	*patience_ns -= waited_ns < *patience_ns ? waited_ns : *patience_ns;
	return status;
}

enum kiln_status ki_log_quarantine_add(struct ki_log *log,
				       struct log_index *index, uint64_t word,
				       uint64_t *patience_ns)
{
	uint32_t number = log_word_segment(word, ki_log_min_live(index));
	uint32_t units = log_word_units(word);
	uint64_t bytes = log_word_bytes(word);
	char from[KI_PATH_MAX], directory[KI_PATH_MAX], to[KI_PATH_MAX];
	struct log_limit_values limits;
	struct log_census census = { 0 };
	enum kiln_status status;
	struct ki_lock lock;
	int n;

	if (bytes > ENTRY_BYTES_MAX)
		return KILN_E_FULL;
	if (directory_path(log, directory) ||
	    ki_log_segment_path(log, number, from))
		return KILN_E_IO;
	n = snprintf(to, sizeof(to), "%s/%s.quarantine/%08x.%u", log->directory,
		     log->name, number, units);
	if (n < 0 || n >= KI_PATH_MAX)
		return KILN_E_IO;
	status = lock_within(log, &lock, patience_ns);
	if (status)
		return status;
	status = ki_log_is_current_locked(log, index)
			 ? ki_log_census_take(log, 1, &census)
			 : LOG_AGAIN;
	if (!status) {
		ki_log_limits_get(log, index, &limits);
		if (!has_room(&limits, &census, bytes))
			status = KILN_E_FULL;
	}
	if (!status) {
		make_directory(log, directory);
		status = keep_bytes(log, from, (uint64_t)units * LOG_UNIT,
				    bytes, to);
	}
	ki_log_census_fini(&census);
	ki_log_structure_end(log, &lock);
	return status;
}

uint64_t ki_log_quarantine_drop(struct ki_log *log, int64_t before_ns,
				uint64_t *out_n)
{
	const struct ki_sys *sys = log->sys;
	char directory[KI_PATH_MAX], path[KI_PATH_MAX];
	struct ki_file_info info;
	struct ki_dir *dir;
	const char *name;
	uint64_t bytes = 0;

	*out_n = 0;
	if (directory_path(log, directory) ||
	    sys->opendir(sys, directory, &dir))
		return 0;
	while (sys->readdir(sys, dir, &name) > 0) {
		if (ki_path_join(path, directory, name) ||
		    sys->lstat(sys, path, &info) || !S_ISREG(info.mode) ||
		    info.mtime_ns >= before_ns || sys->unlink(sys, path))
			continue;
		bytes += ki_log_counted(&info);
		++*out_n;
	}
	sys->closedir(sys, dir);
	(void)sys->rmdir(sys, directory); /* if nothing is left */
	return bytes;
}
