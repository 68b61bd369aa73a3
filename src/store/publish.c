/* SPDX-License-Identifier: MIT */

/*
 * Publishing a file: nobody ever opens it half written under its name.
 *
 *	open DIRECTORY/NAME.<digits>.tmp, create and exclusive
 *	write, close (network file systems report a full quota only here)
 *	link to NAME (create-only) or rename over NAME (replace)
 *	unlink the temporary
 *
 * Nothing is synced: what a power cut tears is found by the checksums of its
 * readers.
 *
 * A link whose answer got lost (NFS) reports EEXIST although it was made: two
 * links on our temporary tell.  Where a file system has no links, an empty
 * file created exclusively claims the name and the temporary is renamed over
 * it; readers take an empty file for a miss.
 *
 * Who sweeps must never take a living writer's temporary, and wall clocks
 * jump.  A named temporary carries boot, process, start and a monotonic time:
 *
 *	NAME.<boot>-<process>-<start>-<time>.tmp	(hexadecimal)
 *
 * Of this boot: abandoned if the process is gone and an hour of the monotonic
 * clock has passed (for containers that see other process numbers: a writer
 * there whose temporary is taken fails, and nothing worse).  Of another boot or
 * host: if it is a day old by two clocks, the file system's and ours, which on a
 * network are two machines'.
 */

#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/status.h"

#define PIECES_MAX 8
#define TRIES_MAX  8
#define HOUR_NS	   ((uint64_t)3600 * 1000000000)
#define DAY_NS	   (24 * (int64_t)HOUR_NS)

/* ---- Writers --------------------------------------------------------------- */

void ki_writer_init(const struct ki_sys *sys, struct ki_writer *writer)
{
	uint8_t boot[16];

	(void)ki_boot_id(sys, boot);
	writer->process = ki_process_id();
	writer->start = ki_process_start(writer->process);
	/* Of who does not know all of it, only the age of its files is known. */
	writer->boot = writer->start ? ki_get_u32(boot) : 0;
}

/* Take "<hexadecimal><end>" from the front; 0 if it is not there. */
static int take_hex(const char **place, char end, uint64_t *out_value)
{
	char *after;

	errno = 0;
	*out_value = strtoull(*place, &after, 16);
	if (errno || after == *place || *after != end)
		return 0;
	*place = after + 1;
	return 1;
}

/* The writer and the time in a temporary's name; 0 if it has none. */
static int read_name(const char *name, struct ki_writer *out_writer,
		     uint64_t *out_time)
{
	const char *suffix = name + strlen(name);
	uint64_t boot, process, start;

	if ((size_t)(suffix - name) < sizeof(KI_TEMPORARY_SUFFIX))
		return 0;
	suffix -= sizeof(KI_TEMPORARY_SUFFIX) - 1;
	while (suffix > name && suffix[-1] != '.')
		suffix--;
	if (!take_hex(&suffix, '-', &boot) ||
	    !take_hex(&suffix, '-', &process) ||
	    !take_hex(&suffix, '-', &start) ||
	    !take_hex(&suffix, '.', out_time))
		return 0;
	out_writer->boot = (uint32_t)boot;
	out_writer->process = (int)process;
	out_writer->start = start;
	return 1;
}

int ki_temporary_is_abandoned(const struct ki_sys *sys,
			      const struct ki_writer *self, const char *name,
			      int64_t mtime_ns, int64_t now_ns, int at_once)
{
	struct ki_writer writer;
	uint64_t then, now = sys->monotonic_ns(sys);

	if (read_name(name, &writer, &then) && writer.boot &&
	    writer.boot == self->boot)
		return (at_once || (now > then && now - then > HOUR_NS)) &&
		       !ki_process_alive(writer.process, writer.start);
	return now_ns - mtime_ns > DAY_NS &&
	       (int64_t)sys->realtime_ns(sys) - mtime_ns > DAY_NS;
}

/* "NAME.<something>.tmp" */
static int is_temporary_of(const char *name, const char *found)
{
	const size_t size = strlen(name), found_size = strlen(found);
	const size_t end = sizeof(KI_TEMPORARY_SUFFIX) - 1;

	return found_size > size + end && !strncmp(found, name, size) &&
	       found[size] == '.' &&
	       !strcmp(found + found_size - end, KI_TEMPORARY_SUFFIX);
}

void ki_temporary_sweep(const struct ki_sys *sys, const char *path,
			const struct ki_writer *self)
{
	const char *slash = strrchr(path, '/'), *found;
	const char *name = slash ? slash + 1 : path;
	char folder[KI_PATH_MAX], other[KI_PATH_MAX];
	struct ki_file_info info;
	struct ki_dir *dir;

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(name - path) : 1,
		 slash ? path : ".");
	if (sys->opendir(sys, folder, &dir))
		return;
	while (sys->readdir(sys, dir, &found) > 0)
		if (is_temporary_of(name, found) &&
		    !ki_path_join(other, folder, found) &&
		    !sys->lstat(sys, other, &info) && S_ISREG(info.mode) &&
		    info.uid == ki_user_id() &&
		    ki_temporary_is_abandoned(sys, self, found, info.mtime_ns,
					      (int64_t)sys->realtime_ns(sys),
					      1))
			(void)sys->unlink(sys, other);
	sys->closedir(sys, dir);
}

/* ---- Publishing ------------------------------------------------------------ */

static int name_temporary(const struct ki_sys *sys, char out[KI_PATH_MAX],
			  const char *path, const struct ki_writer *writer)
{
	uint64_t number;
	int err, n;

	if (writer) {
		n = snprintf(out, KI_PATH_MAX, "%s.%x-%x-%llx-%llx%s", path,
			     (unsigned)writer->boot, (unsigned)writer->process,
			     (unsigned long long)writer->start,
			     (unsigned long long)sys->monotonic_ns(sys),
			     KI_TEMPORARY_SUFFIX);
	} else {
		err = sys->random(sys, &number, sizeof(number));
		if (err)
			return err;
		n = snprintf(out, KI_PATH_MAX, "%s.%016llx%s", path,
			     (unsigned long long)number, KI_TEMPORARY_SUFFIX);
	}
	return n < 0 || n >= KI_PATH_MAX ? -ENAMETOOLONG : 0;
}

int ki_temporary_open(const struct ki_sys *sys, char out[KI_PATH_MAX],
		      const char *path, unsigned mode,
		      const struct ki_writer *writer)
{
	int fd = -EEXIST, tries, err;

	for (tries = 0; fd == -EEXIST && tries < TRIES_MAX; tries++) {
		err = name_temporary(sys, out, path, writer);
		if (err)
			return err;
		fd = sys->open(sys, out,
			       KI_OPEN_WRITE | KI_OPEN_CREATE |
				       KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW,
			       mode);
	}
	return fd;
}

static int fill(const struct ki_sys *sys, const char *temporary, int fd,
		const struct ki_piece *pieces, int n_pieces, unsigned mode)
{
	struct ki_piece rest[PIECES_MAX];
	int err, close_err;

	memcpy(rest, pieces, (size_t)n_pieces * sizeof(*pieces));
	err = ki_pwritev_all(sys, fd, rest, n_pieces, 0);
	if (!err && (mode & 077))
		err = sys->chmod(sys, temporary, mode); /* whatever the umask */
	close_err = sys->close(sys, fd);
	return err ? err : close_err;
}

static int is_linked_twice(const struct ki_sys *sys, const char *temporary)
{
	struct ki_file_info info;

	return !sys->lstat(sys, temporary, &info) && info.n_links == 2;
}

static int claim_and_rename(const struct ki_sys *sys, const char *temporary,
			    const char *path, unsigned mode)
{
	int err, fd = sys->open(sys, path,
				KI_OPEN_WRITE | KI_OPEN_CREATE |
					KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW,
				mode);

	if (fd < 0)
		return fd;
	(void)sys->close(sys, fd);
	err = sys->rename(sys, temporary, path);
	if (err)
		(void)sys->unlink(sys, path);
	return err;
}

static int link_new(const struct ki_sys *sys, const char *temporary,
		    const char *path, unsigned mode)
{
	int err = sys->link(sys, temporary, path);

	switch (-err) {
	case EPERM:
	case ENOSYS:
	case EOPNOTSUPP:
	case EMLINK:
		return claim_and_rename(sys, temporary, path, mode);
	case EEXIST:
		return is_linked_twice(sys, temporary) ? 0 : err;
	default:
		return err;
	}
}

int ki_temporary_publish(const struct ki_sys *sys, const char *temporary,
			 const char *path, int replace, unsigned mode)
{
	int err = replace ? sys->rename(sys, temporary, path)
			  : link_new(sys, temporary, path, mode);

	if (err || !replace)
		(void)sys->unlink(sys, temporary);
	return err;
}

int ki_publish_file(const struct ki_sys *sys, const char *directory,
		    const char *name, const struct ki_piece *pieces,
		    int n_pieces, int replace, unsigned mode,
		    const struct ki_writer *writer)
{
	char path[KI_PATH_MAX], temporary[KI_PATH_MAX];
	int err, fd;

	if (n_pieces > PIECES_MAX)
		return -EINVAL;
	err = ki_path_join(path, directory, name);
	if (err)
		return err;
	fd = ki_temporary_open(sys, temporary, path, mode, writer);
	if (fd < 0)
		return fd;
	err = fill(sys, temporary, fd, pieces, n_pieces, mode);
	if (!err)
		return ki_temporary_publish(sys, temporary, path, replace,
					    mode);
	(void)sys->unlink(sys, temporary);
	return err;
}

enum kiln_status ki_publish(const struct ki_sys *sys, const char *directory,
			    const char *name, const struct ki_piece *pieces,
			    int n_pieces, int replace)
{
	int err = ki_publish_file(sys, directory, name, pieces, n_pieces,
				  replace, 0600, NULL);

	if (err == -EEXIST)
		return KILN_EXISTS;
	return err == -EINVAL ? KILN_E_INVALID : ki_status_from_errno(err);
}
