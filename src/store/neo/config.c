/* SPDX-License-Identifier: MIT */

/*
 * config.file: eight bytes, the sum of the sizes of all entries, under flock(2).
 * Whoever writes an entry holds the lock from before it looks at the sum until
 * after it has written the new one, so among kiln and the originals one writes at
 * a time.
 *
 * The originals believe what they read, and count only if they have made the
 * file.  Here a sum is doubted, and the directory counted, if the file is new or
 * short, if the sum cannot be one, if it passes the limit, or if it is less than
 * what kiln.records knows of: who dies between rename and sum leaves that.  Where
 * the sum has a driver's entries in it, which would hide the difference, it is
 * raised before the rename; a sum that is too high passes no limit, and the next
 * count puts it right.
 *
 * An original that finds 0 bytes reads 0 in them and goes on from there.  So
 * whoever makes the file counts before, when nobody has the lock, and gives it its
 * name with the sum in it, or does not make it; and whoever finds it short counts,
 * even if all he wanted was the lock.  It is never removed: an original may wait for
 * the lock, and would have it of a file that is no more.
 */

#include "store/neo/neo.h"

#include <string.h>

#include "base/status.h"

#define CONFIG_BYTES 8
#define TRIES_MAX    8
#define SUM_MAX	     ((uint64_t)INT64_MAX)

/* Longer than that its maker hardly takes to lock it, unless he is gone. */
#define MAKER_NS       ((int64_t)100 * 1000000)
#define MAKER_PAUSE_NS ((uint64_t)1000000)

/* What all files are, without changing any: nobody has the lock.  Where some
   cannot be looked at, no less than kiln.records knows of. */
static int count_all(struct ki_neo *neo, uint64_t *out_total)
{
	struct ki_neo_plan plan = { .n = 0 };
	uint64_t total = 0, known;
	int err = ki_neo_refresh(neo);

	if (err >= 0)
		err = ki_neo_plan_all(neo, &plan);
	if (err)
		return err;
	for (size_t i = 0; i < plan.n; i++)
		total += plan.files[i].is_uncounted ? 0 : plan.files[i].size;
	known = ki_records_totals(neo->records).bytes_files;
	*out_total = plan.err && known > total ? known : total;
	ki_neo_plan_end(&plan);
	return 0;
}

static int write_total(const struct ki_neo *neo, int fd, uint64_t total)
{
	uint8_t bytes[CONFIG_BYTES];

	ki_put_u64(bytes, total);
	return ki_pwrite_all(neo->sys, fd, bytes, sizeof(bytes), 0);
}

/* It comes to be with the sum in it: who locks it first believes it.  -EEXIST:
   another has made it meanwhile. */
static int create_config(struct ki_neo *neo)
{
	const struct ki_sys *sys = neo->sys;
	char temporary[KI_PATH_MAX];
	uint64_t total;
	int fd, err = count_all(neo, &total);

	if (err)
		return err;
	fd = ki_neo_open_temporary(neo, 0664, temporary);
	if (fd < 0) {
		/* Without the directory, which is made then. */
		if (fd != -ENOENT)
			ki_neo_failed(neo, "Creating temporary file", fd);
		return fd;
	}
	err = write_total(neo, fd, total);
	ki_neo_failed(neo, "Writing to temporary file", err);
	if (!err && (neo->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, temporary, 0660);
	if (!err) {
		err = sys->rename_new(sys, temporary, neo->config_path);
		if (!err)
			return fd;
		if (err != -EEXIST)
			ki_neo_failed(neo, "Rename temp file", err);
	}
	(void)sys->unlink(sys, temporary);
	(void)sys->close(sys, fd);
	return err;
}

/* The file, made if it is not there. */
static int open_config(struct ki_neo *neo)
{
	const struct ki_sys *sys = neo->sys;
	int fd = -ENOENT;

	for (int tries = 0; tries < TRIES_MAX && fd == -ENOENT; tries++) {
		fd = sys->open(sys, neo->config_path,
			       KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_NOFOLLOW,
			       0);
		if (fd != -ENOENT)
			break;
		fd = create_config(neo);
		if (fd == -EEXIST)
			fd = -ENOENT;
		else if (fd == -ENOENT && ki_neo_make_directories(neo, ""))
			break;
	}
	return fd;
}

/* -ESTALE: the path does not lead to it any more, and so it is no lock: removed,
   or its directory moved away, perhaps with another in its place. */
static int check_place(const struct ki_neo *neo,
		       const struct ki_file_info *locked)
{
	struct ki_file_info info;
	int err = neo->sys->lstat(neo->sys, neo->config_path, &info);

	if (err == -ENOENT || err == -ENOTDIR ||
	    (!err &&
	     (info.inode != locked->inode || info.device != locked->device)))
		err = -ESTALE;
	return err;
}

/* Its times are asked for only here: who asks for them makes the next write dear. */
static int was_just_made(const struct ki_neo *neo,
			 const struct ki_neo_account *account)
{
	struct ki_file_info info;
	int64_t age_ns;

	if (neo->sys->fstat(neo->sys, account->fd, &info))
		return 0;
	/* Files may be dated by a finer clock than is read here. */
	age_ns = account->now_ns - info.mtime_ns;
	return age_ns > -MAKER_NS && age_ns < MAKER_NS;
}

/* -EAGAIN: whoever has just made the file will lock it, count, and write what he
   found, an original of the flat layout without what a tree has by then.  So his
   turn comes first. */
static int read_sum(const struct ki_neo *neo, uint64_t deadline_ns,
		    struct ki_neo_account *account)
{
	const struct ki_sys *sys = neo->sys;
	uint8_t bytes[CONFIG_BYTES];
	struct ki_file_info info;
	int err = sys->fmeasure(sys, account->fd, &info);

	if (!err)
		err = check_place(neo, &info);
	if (err)
		return err;
	account->now_ns = (int64_t)sys->realtime_ns(sys);
	account->is_known = info.size >= CONFIG_BYTES;
	account->must_be = !account->is_known;
	account->is_sure = account->is_known;
	account->noted = UINT64_MAX;
	if (!account->is_known)
		return !info.size && was_just_made(neo, account) &&
				       sys->monotonic_ns(sys) < deadline_ns
			       ? -EAGAIN
			       : 0;
	err = ki_pread_all(sys, account->fd, bytes, sizeof(bytes), 0);
	if (!err)
		account->total = account->noted = ki_get_u64(bytes);
	return err;
}

static int lock_config(struct ki_neo *neo, uint64_t deadline_ns,
		       struct ki_neo_account *account)
{
	const struct ki_sys *sys = neo->sys;
	int err = -ESTALE;

	for (int tries = 0;
	     tries < TRIES_MAX && (err == -ESTALE || err == -EAGAIN);) {
		if (err == -EAGAIN)
			sys->sleep_ns(sys, MAKER_PAUSE_NS);
		else
			tries++;
		*account = (struct ki_neo_account){ .fd = open_config(neo) };
		if (account->fd < 0) {
			ki_neo_failed(neo, "Open config file", account->fd);
			return account->fd;
		}
		ki_fork_close_add(&account->place, account->fd);
		err = ki_flock_until(sys, account->fd, KI_LOCK_EXCLUSIVE,
				     deadline_ns);
		ki_neo_failed(neo, "Lock config file", err);
		if (!err) {
			err = read_sum(neo, deadline_ns, account);
			if (err != -ESTALE && err != -EAGAIN)
				ki_neo_failed(neo, "Read config", err);
		}
		if (!err)
			return 0;
		ki_fork_close_remove(&account->place);
		(void)sys->close(sys, account->fd);
	}
	return err;
}

static int is_plausible(struct ki_neo *neo, uint64_t total)
{
	const uint64_t limit = ki_neo_limit(neo);

	return total <= SUM_MAX && (!limit || total <= limit) &&
	       total >= ki_records_totals(neo->records).bytes_files;
}

static uint64_t patience(const struct ki_neo *neo, uint64_t now_ns,
			 uint64_t wait_ns)
{
	const uint64_t patience_ns =
		ki_lock_patience(&neo->refusal, now_ns, wait_ns);

	return patience_ns < neo->wait_max_ns ? patience_ns : neo->wait_max_ns;
}

static void leave(struct ki_neo *neo, struct ki_neo_account *account)
	KI_RELEASE(&neo->writer) KI_NO_ANALYSIS
{
	ki_fork_close_remove(&account->place);
	(void)neo->sys->close(neo->sys, account->fd);
	ki_mutex_unlock(&neo->writer);
}

enum kiln_status ki_neo_account_begin(struct ki_neo *neo, uint64_t wait_ns,
				      struct ki_neo_account *account)
{
	const struct ki_sys *sys = neo->sys;
	const uint64_t begun_ns = sys->monotonic_ns(sys);
	const uint64_t patience_ns = patience(neo, begun_ns, wait_ns);
	int err;

	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	/* Who comes late has used up its time here, and tries once. */
	ki_mutex_lock(&neo->writer);
	err = lock_config(neo, begun_ns + patience_ns, account);
	ki_lock_note_wait(&neo->refusal, begun_ns, patience_ns, err);
	if (!err) {
		err = ki_records_begin(neo->records);
		ki_neo_note_generation(neo);
		if (err >= 0) {
			account->is_sure = account->is_sure &&
					   is_plausible(neo, account->total);
			return KILN_OK;
		}
		leave(neo, account);
		return err == -EPROTONOSUPPORT ? KILN_E_FORMAT
					       : ki_status_from_errno(err);
	}
	ki_mutex_unlock(&neo->writer);
	return ki_status_from_errno(err);
}

/* A sum that is doubted, and not to be written, stays for the next one. */
static int is_to_be_written(const struct ki_neo_account *account)
{
	return account->must_be || account->total != account->noted;
}

int ki_neo_account_raise(struct ki_neo *neo, struct ki_neo_account *account,
			 uint64_t total)
{
	int err;

	if (!account->is_sure ||
	    (account->noted != UINT64_MAX && total <= account->noted))
		return 0;
	err = write_total(neo, account->fd, total);
	if (!err)
		account->noted = total;
	return err;
}

/* One that nobody could count is no lower than what there is, unless it was so
   before; what another left short stays short. */
static int write_sum(struct ki_neo *neo, struct ki_neo_account *account)
{
	int err = account->is_sure || account->is_known ? 0 : -EIO;

	if (!err && account->total != account->noted)
		err = write_total(neo, account->fd, account->total);
	ki_neo_failed(neo, "Write to config file", err);
	return err;
}

enum kiln_status ki_neo_account_end(struct ki_neo *neo,
				    struct ki_neo_account *account)
{
	struct ki_neo_report report = { 0 };
	enum kiln_status status = KILN_OK;
	int err = 0;

	if (is_to_be_written(account)) {
		if (!account->is_sure) {
			status = ki_neo_count(neo, account, &report);
			ki_neo_plan_end(&neo->plan);
		}
		err = write_sum(neo, account);
	}
	ki_records_end(neo->records);
	ki_neo_note_generation(neo);
	leave(neo, account);
	return status ? status : ki_status_from_errno(err);
}

uint64_t ki_neo_account_peek(const struct ki_neo *neo)
{
	const struct ki_sys *sys = neo->sys;
	uint8_t bytes[CONFIG_BYTES] = { 0 };
	int fd = sys->open(sys, neo->config_path,
			   KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);

	if (fd < 0)
		return 0;
	if (ki_pread_all(sys, fd, bytes, sizeof(bytes), 0))
		memset(bytes, 0, sizeof(bytes));
	(void)sys->close(sys, fd);
	return ki_get_u64(bytes);
}
