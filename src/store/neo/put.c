/* SPDX-License-Identifier: MIT */

/*
 * Storing, in the order of the originals, with kiln's record between:
 *
 *	1  lock config.file, read the sum
 *	2  is the name taken?
 *	3  make room
 *	4  write a temporary, all of it
 *	5  append the record, which names the temporary's inode
 *	6  rename
 *	7  write the sum, let go
 *
 * Who dies after 5 leaves a record without a file, which is a miss; after 6 a
 * sum that is too low, which the next one doubts (config.c); where he could not,
 * 7 comes before 5, and the sum is too high.  In a replacement between 5 and 6 the
 * record before is the true one (entry.c).
 *
 * A name is taken if another key's entry has it, or a file that no record of
 * kiln's is about.  Nothing is overwritten then: COLLISION.  But when power is lost
 * records may be, and files torn: one that has the very bytes to be stored is
 * taken over as it is, and one that lacks some of them, in whole sectors or at
 * the end, makes way.  So does an empty one, which the originals leave behind.
 */

#include "store/neo/neo.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/status.h"
#include "key/key.h"

#define TRIES_MAX    8
#define BLOCK_BYTES  ((size_t)64 << 10)
#define SECTOR_BYTES ((size_t)512)

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
			      "WXYZ0123456789";

struct put {
	struct ki_neo *neo;
	struct ki_neo_account *account;
	const struct kiln_key *key;
	struct ki_record record;
	const void *value;
	char name[KI_RECORDS_NAME_MAX + 1];
	char path[KI_PATH_MAX];
	char temporary[KI_PATH_MAX];
	enum kiln_neo_layout layout; /* of the name */
	int replaces;
	uint64_t old_size; /* of what is replaced */
};

/* ---- The file ------------------------------------------------------------------------ */

static int name_temporary(struct ki_neo *neo, char out_path[KI_PATH_MAX])
{
	char name[] = "cl_cache.XXXXXX";
	uint64_t x = neo->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	neo->random = x;
	for (size_t i = sizeof(name) - 7; name[i]; i++, x /= 62)
		name[i] = letters[x % 62];
	return ki_neo_path(neo, name, out_path);
}

int ki_neo_open_temporary(struct ki_neo *neo, unsigned mode,
			  char out_path[KI_PATH_MAX])
{
	const struct ki_sys *sys = neo->sys;
	int fd = -EEXIST;

	for (int tries = 0; fd == -EEXIST && tries < TRIES_MAX; tries++) {
		int err = name_temporary(neo, out_path);

		if (err)
			return err;
		fd = sys->open(sys, out_path,
			       KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE |
				       KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW,
			       mode);
	}
	return fd;
}

static int write_temporary(struct put *put)
{
	const struct ki_sys *sys = put->neo->sys;
	struct ki_file_info info = { 0 };
	int close_err, err,
		fd = ki_neo_open_temporary(put->neo, 0600, put->temporary);

	if (fd < 0) {
		/* Without the directory, which is made then. */
		if (fd != -ENOENT)
			ki_neo_failed(put->neo, "Creating temporary file", fd);
		return fd;
	}
	err = ki_pwrite_all(sys, fd, put->value, (size_t)put->record.value_size,
			    0);
	ki_neo_failed(put->neo, "Writing to temporary file", err);
	/* Whatever the umask: a group that shares the directory reads it. */
	if (!err && (put->neo->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, put->temporary, 0660);
	if (!err)
		err = sys->fstat(sys, fd, &info);
	close_err = sys->close(sys, fd);
	ki_neo_failed(put->neo, "Closing temporary file", close_err);
	if (!err)
		err = close_err;
	if (!err && info.size != put->record.value_size)
		err = -EIO;
	if (err)
		(void)sys->unlink(sys, put->temporary);
	put->record.inode = info.inode;
	put->record.file_size = info.size;
	put->record.mtime_ns = info.mtime_ns;
	return err;
}

/* ---- A name that is taken --------------------------------------------------------------- */

enum likeness { OTHER, TORN, SAME };

/* Some bytes of a file and what would be there: each sector is as it should be,
   or was never written. */
static enum likeness compare_sectors(const uint8_t *block, const uint8_t *value,
				     size_t size)
{
	static const uint8_t zeros[SECTOR_BYTES];
	enum likeness result = SAME;

	for (size_t at = 0; at < size; at += SECTOR_BYTES) {
		const size_t n =
			size - at < SECTOR_BYTES ? size - at : SECTOR_BYTES;

		if (!memcmp(block + at, value + at, n))
			continue;
		if (memcmp(block + at, zeros, n) != 0)
			return OTHER;
		result = TORN;
	}
	return result;
}

/* A file of `size` bytes, not more than the value has. */
static enum likeness compare_file(const struct put *put, uint64_t size)
{
	const struct ki_sys *sys = put->neo->sys;
	const uint8_t *value = put->value;
	uint8_t *block = malloc(BLOCK_BYTES);
	/* Whoever asks in vain again and again does not use it. */
	int fd = sys->open(sys, put->path,
			   KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME,
			   0);
	enum likeness result = size == put->record.value_size ? SAME : TORN;

	if (!block || fd < 0)
		result = OTHER;
	for (uint64_t done = 0; result != OTHER && done < size;) {
		const size_t part = size - done < BLOCK_BYTES
					    ? (size_t)(size - done)
					    : BLOCK_BYTES;
		enum likeness here = OTHER;

		if (!ki_pread_all(sys, fd, block, part, done))
			here = compare_sectors(block, value + done, part);
		if (here < result)
			result = here;
		done += part;
	}
	if (fd >= 0)
		(void)sys->close(sys, fd);
	free(block);
	return result;
}

/* A file that no record is about: KILN_MISS if its name is free now, EXISTS if
   it could be taken over, COLLISION. */
static enum kiln_status judge_stranger(struct put *put)
{
	struct ki_neo *neo = put->neo;
	struct ki_file_info info;
	enum likeness likeness;
	enum kiln_status status;
	int err;

	err = neo->sys->lstat(neo->sys, put->path, &info);
	if (err)
		return err == -ENOENT ? KILN_MISS : ki_status_from_errno(err);
	if (!S_ISREG(info.mode) || info.size > put->record.value_size)
		return KILN_E_COLLISION;
	likeness = compare_file(put, info.size);
	/* The sum may have it, or not. */
	if (likeness != OTHER)
		ki_neo_account_doubt(put->account,
				     likeness == SAME ? info.size : 0);
	if (likeness == TORN && !neo->sys->unlink(neo->sys, put->path))
		return KILN_MISS;
	if (likeness != SAME)
		return KILN_E_COLLISION;
	put->record.inode = info.inode;
	put->record.file_size = info.size;
	put->record.mtime_ns = info.mtime_ns;
	status = ki_records_append(neo->records, &put->record);
	return status ? status : KILN_EXISTS;
}

/* A name that was computed: KILN_MISS if it is to be had, COLLISION if another
   key's entry has it. */
static enum kiln_status judge_new_name(struct put *put)
{
	struct ki_neo *neo = put->neo;
	struct ki_record_found found;
	struct ki_file_info info;
	enum ki_neo_state state;
	enum kiln_status status =
		ki_records_by_name(neo->records, put->name, &found);
	int err;

	if (status ||
	    !memcmp(found.digest, put->record.digest, KILN_DIGEST_BYTES))
		return status == KILN_OK ? KILN_MISS : status;
	err = ki_neo_state(neo, &found, &state, &info);
	if (err)
		return ki_status_from_errno(err);
	return state == KI_NEO_THERE ? KILN_E_COLLISION : KILN_MISS;
}

/* Whose the name is: KILN_MISS if it is to be had, EXISTS, COLLISION. */
static enum kiln_status judge_name(struct put *put, unsigned flags)
{
	struct ki_neo *neo = put->neo;
	struct ki_record_found found;
	enum ki_neo_state state;
	enum kiln_status status =
		ki_neo_find_present(neo, put->key, &found, &state);

	if (status == KILN_MISS)
		return judge_new_name(put);
	if (status)
		return status;
	strcpy(put->name, found.name);
	if (state == KI_NEO_THERE && !(flags & KILN_PUT_REPLACE))
		return KILN_EXISTS;
	put->replaces = 1;
	put->old_size = found.file_size;
	return KILN_MISS;
}

/* ---- Publishing ---------------------------------------------------------------------------- */

/* What was appended, and has no file now.  In a replacement the record before
   holds as long as its file. */
static void withdraw(struct put *put)
{
	uint8_t digest[1][KILN_DIGEST_BYTES];

	if (put->replaces)
		return;
	memcpy(digest[0], put->record.digest, KILN_DIGEST_BYTES);
	(void)ki_records_drop(put->neo->records,
			      (const uint8_t(*)[KILN_DIGEST_BYTES])digest, 1);
}

static int rename_temporary(struct put *put)
{
	const struct ki_sys *sys = put->neo->sys;

	if (put->replaces)
		return sys->rename(sys, put->temporary, put->path);
	return sys->rename_new(sys, put->temporary, put->path);
}

static int publish(struct put *put)
{
	int err = ki_neo_check_fans(put->neo, put->name);

	if (!err)
		err = rename_temporary(put);
	if (err != -ENOENT)
		return err;
	err = ki_neo_make_directories(put->neo, put->name);
	return err ? err : rename_temporary(put);
}

/* The temporary gets its name, or goes.  KILN_EXISTS: what had the name was
   taken over. */
static enum kiln_status publish_or_judge(struct put *put)
{
	const struct ki_sys *sys = put->neo->sys;
	enum kiln_status status = KILN_MISS;
	int err = publish(put);

	if (err == -EEXIST) {
		status = judge_stranger(put);
		if (status == KILN_MISS)
			err = publish(put);
	}
	if (!err)
		return KILN_OK;
	ki_neo_failed(put->neo, "Rename temp file", err);
	(void)sys->unlink(sys, put->temporary);
	if (status == KILN_EXISTS)
		return status;
	withdraw(put);
	if (status != KILN_MISS)
		return status;
	return err == -EEXIST ? KILN_E_COLLISION : ki_status_from_errno(err);
}

/* The record twice, as evict.c says, and the header of a first one. */
static uint64_t need_of(const struct put *put)
{
	uint64_t bytes = ki_records_size(&put->record);

	if (!ki_records_totals(put->neo->records).bytes)
		bytes += KI_RECORDS_HEADER_BYTES;
	return put->record.value_size + 2 * bytes;
}

static void name_it(struct put *put)
{
	put->layout = ki_neo_layout(put->neo);
	ki_neo_name_key(put->neo, put->key, put->record.metadata,
			put->record.metadata_size, put->name);
}

/* Who made room has seen the whole directory, and maybe a tree in it, where names
   are longer.  As judge_new_name(). */
static enum kiln_status name_again(struct put *put,
				   struct ki_neo_report *report)
{
	enum kiln_status status;

	if (put->replaces || put->layout == ki_neo_layout(put->neo))
		return KILN_MISS;
	name_it(put);
	status = ki_neo_make_room(put->neo, put->account, need_of(put), report);
	return status ? status : judge_new_name(put);
}

/* In the sum, of which kiln.records does not know. */
static int has_others(const struct put *put)
{
	return put->account->total >
	       ki_records_totals(put->neo->records).bytes_files;
}

static enum kiln_status store_locked(struct put *put)
{
	struct ki_neo *neo = put->neo;
	struct ki_neo_account *account = put->account;
	struct ki_neo_report report = { 0 };
	struct ki_file_info info;
	enum kiln_status status =
		ki_neo_make_room(neo, account, need_of(put), &report);
	uint64_t total;
	int err;

	if (status)
		return status;
	/* The old one may have gone to make room for the new one. */
	if (report.n_evicted && ki_neo_look(neo, put->name, &info)) {
		put->replaces = 0;
		put->old_size = 0;
	}
	status = name_again(put, &report);
	if (status != KILN_MISS)
		return status;
	err = ki_neo_path(neo, put->name, put->path);
	if (!err)
		err = write_temporary(put);
	if (err == -ENOENT) {
		err = ki_neo_make_directories(neo, put->name);
		if (!err)
			err = write_temporary(put);
	}
	if (err)
		return ki_status_from_errno(err);
	put->record.name = put->name;
	total = ki_neo_less(account->total, put->old_size) +
		put->record.file_size;
	/* First, so that nothing is left of what cannot be counted. */
	if (has_others(put))
		status = ki_status_from_errno(
			ki_neo_account_raise(neo, account, total));
	else
		status = KILN_OK;
	if (!status)
		status = ki_records_append(neo->records, &put->record);
	if (status) {
		(void)neo->sys->unlink(neo->sys, put->temporary);
		return status;
	}
	status = publish_or_judge(put);
	if (status == KILN_EXISTS)
		return KILN_OK;
	if (!status)
		account->total = total;
	return status;
}

/* Refused before anybody looks at the value. */
static enum kiln_status check_size(struct ki_neo *neo,
				   const struct ki_record *record)
{
	const uint64_t limit = ki_neo_limit(neo);
	const uint64_t bytes = ki_records_size(record);

	if (!bytes || record->value_size > INT64_MAX)
		return KILN_E_TOO_LARGE;
	if (limit && (record->value_size > limit ||
		      2 * (bytes + KI_RECORDS_HEADER_BYTES) >
			      limit - record->value_size))
		return KILN_E_TOO_LARGE;
	return KILN_OK;
}

enum kiln_status ki_neo_put(struct kiln_tier *tier, const struct kiln_key *key,
			    const void *metadata, size_t metadata_size,
			    const void *value, size_t value_size,
			    unsigned flags)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	struct ki_neo_account account;
	struct put put;
	enum kiln_status status, end_status;

	if (ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	/* Not as a whole: its paths are long. */
	put.neo = neo;
	put.account = &account;
	put.key = key;
	put.value = value;
	put.replaces = 0;
	put.old_size = 0;
	put.record = (struct ki_record){ .name = put.name,
					 .record = key->record.data,
					 .record_size = key->record.size,
					 .metadata = metadata,
					 .metadata_size = metadata_size,
					 .value_size = value_size };
	memcpy(put.record.digest, key->digest, KILN_DIGEST_BYTES);
	name_it(&put);
	ki_neo_trace(neo, key, put.name);
	status = check_size(neo, &put.record);
	if (status)
		return status;
	put.record.value_check = ki_xxh3_64(value, value_size);
	status = ki_neo_account_begin(neo, KI_NEO_PUT_NS, &account);
	if (status)
		return status;
	status = ki_neo_claim(neo, &account);
	if (!status)
		status = judge_name(&put, flags);
	if (status == KILN_MISS)
		status = store_locked(&put);
	end_status = ki_neo_account_end(neo, &account);
	return status ? status : end_status;
}

/* ---- Removing --------------------------------------------------------------------------------- */

static void drop_key(struct ki_neo *neo, const struct kiln_key *key)
{
	uint8_t digest[1][KILN_DIGEST_BYTES];

	memcpy(digest[0], key->digest, KILN_DIGEST_BYTES);
	(void)ki_records_drop(neo->records,
			      (const uint8_t(*)[KILN_DIGEST_BYTES])digest, 1);
}

static enum kiln_status remove_locked(struct ki_neo *neo,
				      struct ki_neo_account *account,
				      const struct kiln_key *key)
{
	struct ki_record_found found;
	enum ki_neo_state state;
	enum kiln_status status = ki_neo_find_present(neo, key, &found, &state);
	char path[KI_PATH_MAX];
	int err;

	if (ki_neo_is_other_version(neo))
		return KILN_E_FORMAT;
	if (status == KILN_E_COLLISION)
		return KILN_MISS;
	if (status == KILN_OK) {
		err = ki_neo_path(neo, found.name, path);
		if (!err)
			err = neo->sys->unlink(neo->sys, path);
		if (err && err != -ENOENT)
			return ki_status_from_errno(err);
		account->total = ki_neo_less(account->total, found.file_size);
	}
	if (status == KILN_OK || status == KILN_MISS)
		drop_key(neo, key);
	return status;
}

enum kiln_status ki_neo_remove(struct kiln_tier *tier,
			       const struct kiln_key *key)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	char name[KI_RECORDS_NAME_MAX + 1];
	struct ki_record_found found;
	struct ki_neo_account account;
	enum kiln_status status, end_status;
	int is_own, is_foreign;

	if (ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	is_own = ki_neo_refresh(neo) < 0 ||
		 ki_records_find(neo->records, key, 0, &found, NULL) !=
			 KILN_MISS;
	is_foreign = !is_own && ki_neo_is_foreign_key(neo, key, name);
	if (!is_own && !is_foreign)
		return KILN_MISS;
	status = ki_neo_account_begin(neo, KI_NEO_TOOL_NS, &account);
	if (status)
		return status;
	status = is_foreign ? ki_neo_remove_foreign(neo, &account, name)
			    : remove_locked(neo, &account, key);
	end_status = ki_neo_account_end(neo, &account);
	return status ? status : end_status;
}

void ki_neo_drop_unusable(struct ki_neo *neo, const struct kiln_key *key)
{
	struct ki_record_found found;
	struct ki_neo_account account;
	struct kiln_blob *value = NULL;
	struct ki_file_info info;
	enum ki_neo_state state;
	enum kiln_status status;
	int is_removed;

	if (ki_neo_is_readonly(neo) || ki_neo_account_begin(neo, 0, &account))
		return;
	status = ki_neo_find_present(neo, key, &found, &state);
	if (status == KILN_MISS && state == KI_NEO_TAKEN)
		drop_key(neo, key);
	is_removed = status == KILN_OK &&
		     ki_neo_load(neo, &found, 0, NULL, &state, &value, &info) ==
			     KILN_E_FORMAT &&
		     !remove_locked(neo, &account, key);
	kiln_blob_unref(value);
	(void)ki_neo_account_end(neo, &account);
	if (is_removed)
		ki_neo_say(neo, KILN_LOG_ERROR, found.name, "damaged, removed");
}

/* ---- Removing all -------------------------------------------------------------------------------- */

struct wiping {
	struct ki_neo *neo;
	struct ki_neo_account *account;
};

static int unlink_name(void *arg, const char *name, enum ki_neo_kind kind,
		       int is_leftover)
{
	const struct wiping *wiping = arg;
	const struct ki_neo *neo = wiping->neo;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	int err = ki_neo_look(neo, name, &info);

	if (err == -ENOENT)
		return 0;
	if (!err)
		err = ki_neo_path(neo, name, path);
	if (!err)
		err = neo->sys->unlink(neo->sys, path);
	if (!err && kind == KI_NEO_ENTRY)
		wiping->account->total =
			ki_neo_less(wiping->account->total, info.size);
	return err == -ENOENT ? 0 : err;
}

static enum kiln_status reset_records(struct ki_neo *neo, uint64_t user_version)
{
	struct ki_records_settings settings = ki_records_settings(neo->records);
	enum kiln_status status;

	/* Of a file that is not there yet: any. */
	if (settings.generation)
		settings.generation++;
	settings.user_version = user_version;
	status = ki_records_reset(neo->records, &settings);
	ki_neo_note_generation(neo);
	return status;
}

enum kiln_status ki_neo_wipe(struct kiln_tier *tier)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	struct ki_neo_account account;
	struct wiping wiping = { neo, &account };
	struct ki_neo_report report = { 0 };
	enum kiln_status status, end_status;
	int err;

	if (ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	status = ki_neo_account_begin(neo, KI_NEO_TOOL_NS, &account);
	if (status)
		return status;
	status = ki_neo_claim(neo, &account);
	if (status)
		goto out;
	err = ki_neo_walk(neo, unlink_name, &wiping);
	status = reset_records(neo,
			       ki_records_settings(neo->records).user_version);
	if (!status)
		status = ki_status_from_errno(err);
	if (!status)
		status = ki_neo_count(neo, &account, &report);
	ki_neo_plan_end(&neo->plan);
out:
	end_status = ki_neo_account_end(neo, &account);
	return status ? status : end_status;
}

/* Kiln's own: a driver's entries have nothing to do with our version. */
static void remove_own(struct ki_neo *neo, struct ki_neo_account *account)
{
	struct ki_record_found found;
	struct ki_file_info info;
	enum ki_neo_state state;
	char path[KI_PATH_MAX];
	uint64_t serial = 0;

	while (!ki_records_next(neo->records, &serial, &found, NULL, NULL)) {
		if (ki_neo_state(neo, &found, &state, &info) ||
		    state != KI_NEO_THERE ||
		    ki_neo_path(neo, found.name, path) ||
		    neo->sys->unlink(neo->sys, path))
			continue;
		account->total = ki_neo_less(account->total, info.size);
	}
}

enum kiln_status ki_neo_claim(struct ki_neo *neo,
			      struct ki_neo_account *account)
{
	if (!ki_neo_is_other_version(neo))
		return KILN_OK;
	if (ki_records_settings(neo->records).user_version)
		return KILN_E_FORMAT;
	remove_own(neo, account);
	return reset_records(neo, neo->user_version);
}

enum kiln_status ki_neo_adopt_user_version(struct ki_neo *neo)
{
	struct ki_neo_account account;
	enum kiln_status status, end_status;

	if (!neo->user_version ||
	    ki_records_settings(neo->records).user_version == neo->user_version)
		return KILN_OK;
	if (ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	status = ki_neo_account_begin(neo, KI_NEO_TOOL_NS, &account);
	if (status)
		return status;
	if (ki_records_settings(neo->records).user_version !=
	    neo->user_version) {
		remove_own(neo, &account);
		status = reset_records(neo, neo->user_version);
	}
	end_status = ki_neo_account_end(neo, &account);
	return status ? status : end_status;
}
