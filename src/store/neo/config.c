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
 * whoever makes the file counts, as the originals do, even if all he wanted was
 * the lock; and where the right sum is not to be had there must be no file, so
 * that the next one counts.
 */

#include "store/neo/neo.h"

#include <string.h>

#include "base/status.h"

#define CONFIG_BYTES 8
#define TRIES_MAX    8
#define SUM_MAX	     ((uint64_t)INT64_MAX)
#define REFUSED_NS   ((uint64_t)10 * 1000000000)
#define RETRY_NS     ((uint64_t)5 * 1000000)

static int create_config(const struct ki_neo *neo)
{
	const struct ki_sys *sys = neo->sys;
	const int is_shared = !!(neo->flags & KILN_OPEN_SHARED);
	int err = 0,
	    fd = sys->open(sys, neo->config_path,
			   KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE |
				   KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW,
			   0664);

	if (fd >= 0 && is_shared)
		err = sys->chmod(sys, neo->config_path, 0660);
	if (!err)
		return fd;
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
		if (fd >= 0)
			neo->owes_sum = 1;
		else if (fd == -EEXIST)
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

static int read_sum(const struct ki_neo *neo, struct ki_neo_account *account)
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
	account->must_be = info.size < CONFIG_BYTES || neo->owes_sum;
	account->is_sure = !account->must_be;
	account->noted = UINT64_MAX;
	if (info.size < CONFIG_BYTES)
		return 0;
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

	for (int tries = 0; tries < TRIES_MAX && err == -ESTALE; tries++) {
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
			err = read_sum(neo, account);
			if (err != -ESTALE)
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

/* A holder for whom we waited in vain may be stopped: for a while he is not waited
   for again, or each store of a program would take as long. */
static uint64_t patience(const struct ki_neo *neo, uint64_t now_ns,
			 uint64_t wait_ns)
{
	const uint64_t refused_ns =
		__atomic_load_n(&neo->refused_ns, __ATOMIC_RELAXED);
	uint64_t most_ns = neo->wait_max_ns;

	if (refused_ns && now_ns - refused_ns < REFUSED_NS &&
	    most_ns > RETRY_NS)
		most_ns = RETRY_NS;
	return wait_ns < most_ns ? wait_ns : most_ns;
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
	const uint64_t deadline_ns =
		begun_ns + patience(neo, begun_ns, wait_ns);
	int err;

	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	/* Who comes late has used up its time here, and tries once. */
	ki_mutex_lock(&neo->writer);
	err = lock_config(neo, deadline_ns, account);
	__atomic_store_n(&neo->refused_ns, err == -ETIMEDOUT ? begun_ns : 0,
			 __ATOMIC_RELAXED);
	if (!err) {
		err = ki_records_begin(neo->records);
		ki_neo_note_generation(neo);
		if (err >= 0) {
			account->is_sure = account->is_sure &&
					   is_plausible(neo, account->total);
			return KILN_OK;
		}
		if (account->must_be)
			(void)sys->unlink(sys, neo->config_path);
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

static int write_total(const struct ki_neo *neo,
		       const struct ki_neo_account *account, uint64_t total)
{
	uint8_t bytes[CONFIG_BYTES];

	ki_put_u64(bytes, total);
	return ki_pwrite_all(neo->sys, account->fd, bytes, sizeof(bytes), 0);
}

void ki_neo_account_raise(struct ki_neo *neo, struct ki_neo_account *account,
			  uint64_t total)
{
	const int is_new = account->noted == UINT64_MAX;

	if (!account->is_sure || (!is_new && total <= account->noted))
		return;
	/* Who cannot write it now tries, and fails, at the end. */
	account->noted = write_total(neo, account, total) ? UINT64_MAX : total;
}

static int write_sum(struct ki_neo *neo, const struct ki_neo_account *account)
{
	int err = account->is_sure ? 0 : -EIO;

	if (!err && account->total != account->noted)
		err = write_total(neo, account, account->total);
	ki_neo_failed(neo, "Write to config file", err);
	if (err)
		(void)neo->sys->unlink(neo->sys, neo->config_path);
	neo->owes_sum = 0;
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
