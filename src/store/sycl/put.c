/* SPDX-License-Identifier: MIT */

/*
 * Storing, with one turn among kilns around it all:
 *
 *	1  is it there?  By its record; where DPC++ looks, by every .src as well
 *	2  make room
 *	3  write .bin and .src as temporaries in the root, all of them
 *	4  take the lock file of the lowest n of which nothing is there
 *	5  append the record, which names the temporary's inode
 *	6  add to the sum
 *	7  give .bin its name, then .src; never over what is there
 *	8  the time of access; remove the lock file
 *
 * Who dies after 5 leaves a record without a file, after 7 a .bin without a .src:
 * misses; and a sum that is too high, until it is counted.  A replacement renames another .bin over the key's own; its .src stays.
 *
 * A lock file in the way is no reason to wait: there are other numbers.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "key/key.h"

#define TRIES_MAX 1000 /* of numbers */
#define USE	  "_access_time.txt"

struct put {
	struct ki_sycl *sycl;
	struct ki_sycl_turn *turn;
	const struct kiln_key *key;
	struct ki_sycl_fields fields;
	struct ki_record record;
	const void *value;
	char place[KI_SYCL_PLACE_BYTES];
	char stem[KI_SYCL_NAME_BYTES];
	char name[KI_SYCL_NAME_BYTES + 4];	 /* with .bin */
	char bin[KI_PATH_MAX], src[KI_PATH_MAX]; /* temporaries */
	int replaces;
	uint64_t old_size; /* of what is replaced */
	uint64_t old_inode;
};

/* ---- Records -------------------------------------------------------------------------- */

static void drop_digest(struct ki_sycl *sycl, const uint8_t *digest)
{
	uint8_t digests[1][KILN_DIGEST_BYTES];

	memcpy(digests[0], digest, KILN_DIGEST_BYTES);
	(void)ki_records_drop(sycl->records,
			      (const uint8_t(*)[KILN_DIGEST_BYTES])digests, 1);
}

/* The living record of an entry: KILN_OK, KILN_MISS. */
static enum kiln_status record_of(struct ki_sycl *sycl, const char *stem,
				  struct ki_record_found *out_found)
{
	char name[KI_SYCL_NAME_BYTES + 4];
	struct ki_file_info info;
	enum kiln_status status;

	strcpy(name, stem);
	strcat(name, ".bin");
	if (ki_sycl_look(sycl, name, "", &info))
		return KILN_MISS;
	status = ki_records_by_file(sycl->records, name, info.inode, out_found);
	if (!status && ki_sycl_compare(out_found, &info) != KI_SYCL_THERE)
		status = KILN_MISS;
	return status;
}

/* ---- Removing an entry ------------------------------------------------------------------ */

static int unlink_part(const struct ki_sycl *sycl, const char *stem,
		       const char *suffix)
{
	char path[KI_PATH_MAX];
	int err = ki_sycl_path_of(sycl, stem, suffix, path);

	if (!err)
		err = sycl->sys->unlink(sycl->sys, path);
	return err == -ENOENT || err == -ENOTDIR ? 0 : err;
}

static uint64_t size_of_part(const struct ki_sycl *sycl, const char *stem,
			     const char *suffix)
{
	struct ki_file_info info;

	return ki_sycl_look(sycl, stem, suffix, &info) ? 0 : info.size;
}

/* .src first, so that nobody finds it without its .bin. */
static int remove_parts(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			const char *stem)
{
	static const char *const suffixes[] = { ".src", ".bin" };
	int err = 0;

	for (size_t i = 0; !err && i < 2; i++) {
		const uint64_t size = size_of_part(sycl, stem, suffixes[i]);

		err = unlink_part(sycl, stem, suffixes[i]);
		if (!err)
			ki_sycl_take(turn, size);
	}
	if (!err)
		(void)unlink_part(sycl, stem, USE);
	return err;
}

/* Of kiln's alone, which was counted with its time of access. */
static int remove_own_parts(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			    const char *stem, uint64_t size)
{
	int err = unlink_part(sycl, stem, ".bin");

	if (!err)
		err = unlink_part(sycl, stem, USE);
	if (!err)
		ki_sycl_take(turn, size);
	return err;
}

/* Which .bin it was, or .src without one, when somebody decided that it has to go:
   until we have its lock DPC++ may evict it and store another. */
struct identity {
	uint64_t inode;
	int64_t mtime_ns;
};

/* 0 if there is nothing. */
static int identify(const struct ki_sycl *sycl, const char *stem,
		    struct identity *out)
{
	struct ki_file_info info;

	if (ki_sycl_look(sycl, stem, ".bin", &info) &&
	    ki_sycl_look(sycl, stem, ".src", &info))
		return 0;
	*out = (struct identity){ info.inode, info.mtime_ns };
	return 1;
}

static int is_another(const struct ki_sycl *sycl, const char *stem,
		      const struct identity *wanted)
{
	struct identity now;

	return wanted && identify(sycl, stem, &now) &&
	       (now.inode != wanted->inode || now.mtime_ns != wanted->mtime_ns);
}

/* `wanted` NULL: whichever is there. */
static int remove_entry(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			const char *stem, const struct identity *wanted,
			int waits)
{
	char path[KI_PATH_MAX];
	int err;

	if (ki_sycl_is_own(stem))
		return remove_own_parts(sycl, turn, stem,
					size_of_part(sycl, stem, ".bin") +
						size_of_part(sycl, stem, USE));
	err = ki_sycl_path(sycl, stem, path);
	if (!err)
		err = ki_sycl_lock(sycl, turn, path, waits);
	if (err)
		return err == -ENOENT || err == -ENOTDIR ? 0 : err;
	err = is_another(sycl, stem, wanted) ? -EAGAIN
					     : remove_parts(sycl, turn, stem);
	ki_sycl_unlock(sycl, path);
	return err;
}

int ki_sycl_remove_file(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			const char *stem, const struct ki_sycl_file *file)
{
	const struct identity wanted = { file->inode, file->mtime_ns };

	return ki_sycl_is_own(stem)
		       ? remove_own_parts(sycl, turn, stem,
					  file->size + file->extra)
		       : remove_entry(sycl, turn, stem,
				      file->inode ? &wanted : NULL, 0);
}

int ki_sycl_remove_entry(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			 const char *stem)
{
	return remove_entry(sycl, turn, stem, NULL, 0);
}

static enum kiln_status status_of_lock(int err)
{
	return err == -EAGAIN ? KILN_E_TIMEOUT : ki_status_from_errno(err);
}

/*
 * Of kiln's, with the time of access, which it has added.  Somebody else's lock does
 * not keep it: as long as its .bin is there he can only be evicting it, or dead,
 * and DPC++ is content with files that are gone.
 */
static enum kiln_status remove_with_use(struct ki_sycl *sycl,
					struct ki_sycl_turn *turn,
					const char *stem,
					const struct ki_record_found *found)
{
	const struct identity wanted = { found->inode, found->mtime_ns };
	const uint64_t use_size =
		ki_sycl_is_own(stem) ? 0 : size_of_part(sycl, stem, USE);
	int err = remove_entry(sycl, turn, stem, &wanted, 0);

	if (err == -EAGAIN && !is_another(sycl, stem, &wanted))
		err = remove_parts(sycl, turn, stem);
	if (!err)
		ki_sycl_take(turn, use_size);
	return status_of_lock(err);
}

/* Of kiln's. */
static enum kiln_status remove_recorded(struct ki_sycl *sycl,
					struct ki_sycl_turn *turn,
					const struct kiln_key *key)
{
	struct ki_record_found found;
	char stem[KI_SYCL_NAME_BYTES];
	enum ki_sycl_state state;
	enum kiln_status status =
		ki_sycl_find_present(sycl, key, &found, &state);

	if (status == KILN_E_COLLISION)
		return KILN_MISS;
	if (status == KILN_OK || status == KILN_E_FORMAT ||
	    (status == KILN_MISS && state == KI_SYCL_LOCKED)) {
		ki_sycl_stem(found.name, stem);
		status = remove_with_use(sycl, turn, stem, &found);
		if (status)
			return status;
	}
	if (status == KILN_OK || status == KILN_MISS)
		drop_digest(sycl, key->digest);
	return status;
}

/* ---- Is it there? -------------------------------------------------------------------------- */

/* Nobody gets what was not used for so long, so somebody has to store it again. */
static int is_too_old(const struct ki_sycl *sycl,
		      const struct ki_record_found *found)
{
	char stem[KI_SYCL_NAME_BYTES];
	struct ki_file_info info;

	ki_sycl_stem(found->name, stem);
	return !ki_sycl_look(sycl, found->name, "", &info) &&
	       ki_sycl_is_expired(sycl, stem, &info);
}

/* Those that are too old go, as far as nobody else is at them. */
static enum kiln_status judge_foreign(struct put *put)
{
	struct ki_sycl *sycl = put->sycl;

	for (;;) {
		struct kiln_blob *value = NULL;
		struct ki_file_info info;
		struct identity wanted;
		enum kiln_status status = ki_sycl_find_foreign(
			sycl, put->place, &put->fields, put->stem, &value);

		kiln_blob_unref(value);
		if (status)
			return status;
		if (ki_sycl_look(sycl, put->stem, ".bin", &info) ||
		    !ki_sycl_is_expired(sycl, put->stem, &info))
			return KILN_EXISTS;
		wanted = (struct identity){ info.inode, info.mtime_ns };
		if (remove_entry(sycl, put->turn, put->stem, &wanted, 0))
			return KILN_MISS;
	}
}

static enum kiln_status judge(struct put *put, unsigned flags)
{
	struct ki_sycl *sycl = put->sycl;
	struct ki_record_found found;
	enum ki_sycl_state state;
	enum kiln_status status =
		ki_sycl_find_present(sycl, put->key, &found, &state);

	if (status == KILN_OK && is_too_old(sycl, &found))
		status = KILN_E_FORMAT;
	if (status == KILN_OK) {
		if (!(flags & KILN_PUT_REPLACE))
			return KILN_EXISTS;
		strcpy(put->name, found.name);
		ki_sycl_stem(found.name, put->stem);
		put->replaces = 1;
		put->old_size = found.file_size;
		put->old_inode = found.inode;
		return KILN_MISS;
	}
	/* Of which nobody can tell any more what it is, or which would come
	   back when it is unlocked. */
	if (status == KILN_E_FORMAT ||
	    (status == KILN_MISS && state == KI_SYCL_LOCKED &&
	     (flags & KILN_PUT_REPLACE))) {
		(void)remove_recorded(sycl, put->turn, put->key);
		status = KILN_MISS;
	}
	if (status != KILN_MISS || !put->fields.is_shared ||
	    (flags & KILN_PUT_REPLACE))
		return status;
	return judge_foreign(put);
}

/* ---- Temporaries ------------------------------------------------------------------------------ */

/* A replacement is of the same key. */
static int has_src(const struct put *put)
{
	return put->fields.is_shared && !put->replaces;
}

static void drop_temporaries(const struct put *put)
{
	const struct ki_sys *sys = put->sycl->sys;

	(void)sys->unlink(sys, put->bin);
	if (has_src(put))
		(void)sys->unlink(sys, put->src);
}

static int write_temporaries(struct put *put)
{
	const struct ki_sycl *sycl = put->sycl;
	struct ki_file_info info = { 0 };
	int err = ki_sycl_write_bin(sycl, put->bin, put->value,
				    (size_t)put->record.value_size, &info);

	if (err)
		return err;
	put->record.inode = info.inode;
	put->record.file_size = info.size;
	put->record.mtime_ns = info.mtime_ns;
	if (has_src(put))
		err = ki_sycl_write_src(sycl, put->src, &put->fields);
	if (err)
		(void)sycl->sys->unlink(sycl->sys, put->bin);
	return err;
}

/* ---- A number ----------------------------------------------------------------------------------- */

static void set_number(struct put *put, uint32_t n)
{
	snprintf(put->stem, sizeof(put->stem), "%s/%u", put->place,
		 (unsigned)n);
	snprintf(put->name, sizeof(put->name), "%s.bin", put->stem);
}

/* With the place made, if it is not there. */
static int lock_number(struct put *put)
{
	char path[KI_PATH_MAX];
	int err = ki_sycl_path(put->sycl, put->stem, path);

	if (!err)
		err = ki_sycl_lock(put->sycl, put->turn, path, 0);
	if (err != -ENOENT)
		return err;
	err = ki_sycl_make_place(put->sycl, put->place);
	return err ? err : ki_sycl_lock(put->sycl, put->turn, path, 0);
}

static int is_free(const struct put *put)
{
	struct ki_file_info info;

	return ki_sycl_look(put->sycl, put->stem, ".bin", &info) &&
	       (!put->fields.is_shared ||
		ki_sycl_look(put->sycl, put->stem, ".src", &info));
}

/* In kiln's own places only kilns write, one at a time: what no record is about
   was left by one that died, or its record was lost. */
static int is_litter(struct put *put)
{
	struct ki_record_found found;

	return record_of(put->sycl, put->stem, &found) == KILN_MISS ||
	       !memcmp(found.digest, put->record.digest, KILN_DIGEST_BYTES);
}

static int take_own_number(struct put *put)
{
	const uint32_t first = ki_sycl_first_number(put->key);

	for (uint32_t n = first; n < first + TRIES_MAX; n++) {
		set_number(put, n);
		if (is_free(put) ||
		    (is_litter(put) &&
		     !ki_sycl_remove_entry(put->sycl, put->turn, put->stem)))
			return 0;
	}
	return -EAGAIN;
}

/* The lowest of which nothing is there, whatever holes there are. */
static int take_lowest_number(struct put *put)
{
	struct ki_sycl_slots slots;
	size_t i = 0;
	int err = ki_sycl_read_place(put->sycl, put->place, &slots);

	/* Most have a place of their own, which is not there yet. */
	if (!err && !slots.n)
		err = ki_sycl_make_place(put->sycl, put->place);
	if (err)
		return err;
	err = -EAGAIN;
	for (uint32_t n = 0; n < TRIES_MAX + slots.n; n++) {
		if (i < slots.n && slots.slots[i].n == n &&
		    (slots.slots[i++].has & (KI_SYCL_BIN | KI_SYCL_SRC)))
			continue;
		set_number(put, n);
		err = lock_number(put);
		if (!err && !is_free(put)) {
			char path[KI_PATH_MAX];

			if (!ki_sycl_path(put->sycl, put->stem, path))
				ki_sycl_unlock(put->sycl, path);
			err = -EAGAIN;
		}
		if (err != -EAGAIN)
			break;
	}
	free(slots.slots);
	return err;
}

/* A number and its lock.  0, -EAGAIN if there is none to be had, -errno. */
static int take_number(struct put *put)
{
	return put->fields.is_shared ? take_lowest_number(put)
				     : take_own_number(put);
}

/* ---- Publishing ---------------------------------------------------------------------------------- */

static int give_name(const struct put *put, const char *temporary,
		     const char *suffix)
{
	const struct ki_sys *sys = put->sycl->sys;
	char path[KI_PATH_MAX];
	int err = ki_sycl_path_of(put->sycl, put->stem, suffix, path);

	if (err)
		return err;
	return put->replaces ? sys->rename(sys, temporary, path)
			     : sys->rename_new(sys, temporary, path);
}

static int take_name_back(const struct put *put, int err)
{
	if (err)
		(void)unlink_part(put->sycl, put->stem, ".bin");
	return err;
}

static void account(struct put *put,
		    void (*add)(struct ki_sycl_turn *turn, uint64_t bytes))
{
	if (has_src(put))
		add(put->turn, ki_sycl_src_size(&put->fields));
	if (!put->replaces)
		add(put->turn, KI_SYCL_USE_BYTES);
	add(put->turn, put->record.file_size);
}

static int give_names(struct put *put)
{
	int err = give_name(put, put->bin, ".bin");

	if (err == -ENOENT && !ki_sycl_make_place(put->sycl, put->place))
		err = give_name(put, put->bin, ".bin");
	if (!err && has_src(put))
		err = take_name_back(put, give_name(put, put->src, ".src"));
	return err;
}

/* With the entry's lock.  The sum comes first: who dies leaves it too high. */
static enum kiln_status publish(struct put *put)
{
	struct ki_sycl *sycl = put->sycl;
	struct ki_record_found found;
	enum kiln_status status;
	int err, has_older;

	put->record.name = put->name;
	has_older = ki_records_find(sycl->records, put->key, 0, &found, NULL) ==
		    KILN_OK;
	status = ki_records_append(sycl->records, &put->record);
	if (status)
		return status;
	account(put, ki_sycl_add);
	ki_sycl_settle(sycl, put->turn);
	err = give_names(put);
	if (err) {
		account(put, ki_sycl_take);
		/* The record before holds as long as its file: of what is
		   replaced, or of what somebody's lock only hid. */
		if (!has_older)
			drop_digest(sycl, put->record.digest);
		return ki_status_from_errno(err);
	}
	if (put->replaces)
		ki_sycl_take(put->turn, put->old_size);
	(void)ki_sycl_write_use(sycl, put->stem, put->turn->now_ns);
	ki_sycl_trace_file(sycl, "device binary has been cached: ", put->stem,
			   ".bin");
	return KILN_OK;
}

/* With its lock: what is replaced is there still, with its .src; until then DPC++
   may have evicted it. */
static int is_still_there(const struct put *put)
{
	struct ki_file_info info;

	return !ki_sycl_look(put->sycl, put->stem, ".src", &info) &&
	       !ki_sycl_look(put->sycl, put->stem, ".bin", &info) &&
	       info.inode == put->old_inode;
}

/* The lock of what is replaced; of another number if it has gone. */
static int lock_old(struct put *put)
{
	struct ki_sycl *sycl = put->sycl;
	char path[KI_PATH_MAX];
	int err = ki_sycl_path(sycl, put->stem, path);

	if (!err)
		err = ki_sycl_lock(sycl, put->turn, path, 1);
	if (err && err != -ENOENT)
		return err;
	if (!err && is_still_there(put))
		return 0;
	if (!err)
		ki_sycl_unlock(sycl, path);
	put->replaces = 0;
	err = ki_sycl_write_src(sycl, put->src, &put->fields);
	return err ? err : take_number(put);
}

static enum kiln_status publish_locked(struct put *put)
{
	const int is_shared = put->fields.is_shared;
	char path[KI_PATH_MAX];
	enum kiln_status status;
	int err = 0;

	if (!put->replaces)
		err = take_number(put);
	else if (is_shared)
		err = lock_old(put);
	if (!is_shared)
		return err ? status_of_lock(err) : publish(put);
	if (!err)
		err = ki_sycl_path(put->sycl, put->stem, path);
	if (err)
		return status_of_lock(err);
	status = publish(put);
	ki_sycl_unlock(put->sycl, path);
	return status;
}

static uint64_t src_size(const struct put *put)
{
	return put->fields.is_shared ? ki_sycl_src_size(&put->fields) : 0;
}

/* The record twice, as evict.c says, and the header of a first one. */
static uint64_t need_of(const struct put *put)
{
	uint64_t bytes = ki_records_size(&put->record);

	if (!ki_records_totals(put->sycl->records).bytes)
		bytes += KI_RECORDS_HEADER_BYTES;
	return put->record.value_size + KI_SYCL_BIN_HEADER + src_size(put) +
	       KI_SYCL_USE_BYTES + 2 * bytes;
}

static enum kiln_status store(struct put *put)
{
	struct ki_sycl *sycl = put->sycl;
	struct ki_sycl_report report = { 0 };
	struct ki_file_info info;
	enum kiln_status status =
		ki_sycl_make_room(sycl, put->turn, need_of(put), &report);
	int err;

	if (status)
		return status;
	/* The old one may have gone to make room for the new one. */
	if (put->replaces && report.n_evicted &&
	    ki_sycl_look(sycl, put->name, "", &info))
		put->replaces = 0;
	err = write_temporaries(put);
	if (err == -ENOENT) {
		err = ki_sycl_make_place(sycl, put->place);
		if (!err)
			err = write_temporaries(put);
	}
	if (err)
		return ki_status_from_errno(err);
	status = publish_locked(put);
	if (status)
		drop_temporaries(put);
	return status;
}

/* All others that say the same, DPC++'s or older ones of this key: a replacement
   must not leave them to those who come first to them.  `kept` may be NULL. */
static void remove_foreign_twins(struct ki_sycl *sycl,
				 struct ki_sycl_turn *turn,
				 const struct kiln_key *key,
				 const struct ki_sycl_fields *fields,
				 const char *kept, uint64_t *n_removed)
{
	char place[KI_SYCL_PLACE_BYTES], stem[KI_SYCL_NAME_BYTES];
	struct ki_record_found found;
	struct ki_sycl_slots slots;
	char path[KI_PATH_MAX];

	ki_sycl_place(key, fields, place);
	if (ki_sycl_read_place(sycl, place, &slots))
		return;
	for (size_t i = 0; i < slots.n; i++) {
		struct identity wanted;
		int is_ours, err;

		snprintf(stem, sizeof(stem), "%s/%u", place,
			 (unsigned)slots.slots[i].n);
		if (!(slots.slots[i].has & KI_SYCL_SRC) ||
		    (kept && !strcmp(stem, kept)) ||
		    !identify(sycl, stem, &wanted) ||
		    ki_sycl_path_of(sycl, stem, ".src", path) ||
		    ki_sycl_src_is(sycl->sys, path, fields) != 1)
			continue;
		is_ours = record_of(sycl, stem, &found) == KILN_OK;
		if (is_ours &&
		    memcmp(found.digest, key->digest, KILN_DIGEST_BYTES) != 0)
			continue;
		err = is_ours ? (int)remove_with_use(sycl, turn, stem, &found)
			      : remove_entry(sycl, turn, stem, &wanted, 0);
		*n_removed += !err;
	}
	free(slots.slots);
}

/* Refused before anybody looks at the value. */
static enum kiln_status check_size(struct ki_sycl *sycl, const struct put *put)
{
	const uint64_t limit = ki_sycl_limit(sycl);
	const uint64_t bytes = ki_records_size(&put->record);
	const uint64_t value_size = put->record.value_size;

	if (!bytes || value_size > INT64_MAX)
		return KILN_E_TOO_LARGE;
	if (limit &&
	    (value_size > limit ||
	     2 * (bytes + KI_RECORDS_HEADER_BYTES) + KI_SYCL_BIN_HEADER +
			     KI_SYCL_USE_BYTES + src_size(put) >
		     limit - value_size))
		return KILN_E_TOO_LARGE;
	/* To DPC++ an empty binary is a miss that nothing ends. */
	return put->fields.is_shared && !value_size ? KILN_E_INVALID : KILN_OK;
}

enum kiln_status ki_sycl_put(struct kiln_tier *tier, const struct kiln_key *key,
			     const void *metadata, size_t metadata_size,
			     const void *value, size_t value_size,
			     unsigned flags)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	struct ki_sycl_turn turn;
	struct put put;
	enum kiln_status status;
	uint64_t n = 0;

	if (ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	/* Not as a whole: its paths are long. */
	put.sycl = sycl;
	put.turn = &turn;
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
	ki_sycl_fields_of(key, &put.fields);
	ki_sycl_leave_out(&put.record, &put.fields);
	ki_sycl_place(key, &put.fields, put.place);
	/* As long as a name can be. */
	set_number(&put, 999999999);
	if (ki_sycl_path(sycl, "kiln.bin.tmp", put.bin) ||
	    ki_sycl_path(sycl, "kiln.src.tmp", put.src))
		return KILN_E_INVALID;
	status = check_size(sycl, &put);
	if (status)
		return status;
	if (ki_sycl_is_elsewhere(sycl, put.place))
		return KILN_E_IO;
	put.record.value_check = ki_xxh3_64(value, value_size);
	status = ki_sycl_turn_begin(sycl, KI_SYCL_PUT_NS, &turn);
	if (status)
		return status;
	status = ki_sycl_is_other_version(sycl) ? KILN_E_FORMAT
						: judge(&put, flags);
	if (status == KILN_MISS) {
		status = store(&put);
		if (!status && put.fields.is_shared &&
		    (flags & KILN_PUT_REPLACE))
			remove_foreign_twins(sycl, &turn, key, &put.fields,
					     put.stem, &n);
	}
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}

/* ---- Removing -------------------------------------------------------------------------------------- */

static enum kiln_status remove_all_of(struct ki_sycl *sycl,
				      struct ki_sycl_turn *turn,
				      const struct kiln_key *key, int is_own,
				      const struct ki_sycl_fields *fields)
{
	enum kiln_status status = KILN_MISS;
	uint64_t n = 0;

	if (ki_sycl_is_other_version(sycl))
		return KILN_E_FORMAT;
	if (is_own)
		status = remove_recorded(sycl, turn, key);
	if ((status == KILN_OK || status == KILN_MISS) && fields->is_shared)
		remove_foreign_twins(sycl, turn, key, fields, NULL, &n);
	return n && status == KILN_MISS ? KILN_OK : status;
}

/* Listed by its name; with .src or without. */
static enum kiln_status remove_foreign(struct ki_sycl *sycl,
				       struct ki_sycl_turn *turn,
				       const char *stem)
{
	struct identity wanted;

	if (ki_sycl_is_elsewhere(sycl, stem) ||
	    !identify(sycl, stem, &wanted) || !ki_sycl_is_foreign(sycl, stem))
		return KILN_MISS;
	return status_of_lock(remove_entry(sycl, turn, stem, &wanted, 0));
}

enum kiln_status ki_sycl_remove(struct kiln_tier *tier,
				const struct kiln_key *key)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	char stem[KI_SYCL_NAME_BYTES], place[KI_SYCL_PLACE_BYTES];
	struct ki_sycl_fields fields;
	struct ki_record_found found;
	struct ki_sycl_turn turn;
	enum kiln_status status;
	int is_own, is_foreign;

	if (ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	ki_sycl_fields_of(key, &fields);
	is_own = ki_sycl_refresh(sycl) < 0 ||
		 ki_records_find(sycl->records, key, 0, &found, NULL) !=
			 KILN_MISS;
	is_foreign = !is_own && ki_sycl_is_foreign_key(sycl, key, stem);
	if (!is_own && !is_foreign && !fields.is_shared)
		return KILN_MISS;
	/* Behind a link lies what is somebody else's. */
	ki_sycl_place(key, &fields, place);
	if (!is_foreign && ki_sycl_is_elsewhere(sycl, place))
		return KILN_MISS;
	status = ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);
	if (status)
		return status;
	status = is_foreign ? remove_foreign(sycl, &turn, stem)
			    : remove_all_of(sycl, &turn, key, is_own, &fields);
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}

void ki_sycl_drop_unusable(struct ki_sycl *sycl, const struct kiln_key *key)
{
	struct ki_record_found found;
	struct ki_sycl_turn turn;
	struct kiln_blob *value = NULL;
	struct ki_file_info info;
	enum ki_sycl_state state;
	enum kiln_status status;
	int is_removed;

	if (ki_sycl_is_readonly(sycl) || ki_sycl_turn_begin(sycl, 0, &turn))
		return;
	status = ki_sycl_find_present(sycl, key, &found, &state);
	if (status == KILN_MISS && state == KI_SYCL_TAKEN)
		drop_digest(sycl, key->digest);
	if (status == KILN_OK)
		status = ki_sycl_load(sycl, &found, &state, &value, &info);
	is_removed =
		status == KILN_E_FORMAT && !remove_recorded(sycl, &turn, key);
	kiln_blob_unref(value);
	(void)ki_sycl_turn_end(sycl, &turn);
	if (is_removed)
		ki_sycl_say(sycl, KILN_LOG_ERROR, found.name,
			    "damaged, removed");
}

enum kiln_status ki_sycl_remove_found(struct ki_sycl *sycl,
				      const struct ki_record_found *found)
{
	struct ki_record_found now;
	char stem[KI_SYCL_NAME_BYTES];
	struct ki_sycl_turn turn;
	enum kiln_status status =
		ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);

	if (status)
		return status;
	ki_sycl_stem(found->name, stem);
	status = ki_sycl_is_other_version(sycl) ? KILN_E_FORMAT
						: record_of(sycl, stem, &now);
	if (!status && now.serial != found->serial)
		status = KILN_MISS;
	if (!status)
		status = remove_with_use(sycl, &turn, stem, &now);
	if (!status)
		drop_digest(sycl, found->digest);
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}

enum kiln_status ki_sycl_remove_damaged(struct ki_sycl *sycl, const char *stem)
{
	struct ki_sycl_turn turn;
	struct identity wanted;
	unsigned has;
	enum kiln_status status =
		ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);

	if (status)
		return status;
	/* It may have been written on meanwhile, and be whole. */
	status = KILN_MISS;
	has = identify(sycl, stem, &wanted) ? ki_sycl_is_foreign(sycl, stem)
					    : 0;
	if (has && ki_sycl_check_form(sycl, stem, has) == KILN_E_FORMAT)
		status = status_of_lock(
			remove_entry(sycl, &turn, stem, &wanted, 0));
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}

/* ---- Removing all ------------------------------------------------------------------------------------- */

struct wiping {
	struct ki_sycl *sycl;
	struct ki_sycl_turn *turn;
	int err; /* the first */
	int waits;
	int has_own; /* something of kiln's could not be removed */
};

static int wipe_entry(void *arg, const char *stem, unsigned has)
{
	struct wiping *wiping = arg;
	struct ki_record_found found;
	int err;

	/* Somebody is about to write it. */
	if (!(has & (KI_SYCL_BIN | KI_SYCL_SRC | KI_SYCL_ACCESS)))
		return 0;
	err = remove_entry(wiping->sycl, wiping->turn, stem, NULL,
			   wiping->waits);
	if (err && !record_of(wiping->sycl, stem, &found)) {
		err = (int)remove_with_use(wiping->sycl, wiping->turn, stem,
					   &found)
			      ? err
			      : 0;
		wiping->has_own |= err != 0;
	}
	if (err && !wiping->err)
		wiping->err = err;
	return 0;
}

static enum kiln_status reset_records(struct ki_sycl *sycl,
				      uint64_t user_version)
{
	struct ki_records_settings settings =
		ki_records_settings(sycl->records);
	enum kiln_status status;

	settings.generation++;
	settings.user_version = user_version;
	status = ki_records_reset(sycl->records, &settings);
	ki_sycl_note_generation(sycl);
	return status;
}

enum kiln_status ki_sycl_wipe(struct kiln_tier *tier)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	struct ki_sycl_turn turn;
	struct wiping wiping = { sycl, &turn, 0, 0, 0 };
	struct ki_sycl_report report = { 0 };
	enum kiln_status status;
	int err;

	if (ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	ki_sycl_free_left(sycl);
	status = ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);
	if (status)
		return status;
	status = KILN_E_FORMAT;
	if (ki_sycl_is_other_version(sycl))
		goto out;
	err = ki_sycl_walk(sycl, wipe_entry, &wiping);
	if (!err && wiping.err == -EAGAIN) {
		/* The second time until a lock file is gone, or stale. */
		wiping = (struct wiping){ sycl, &turn, 0, 1, 0 };
		err = ki_sycl_walk(sycl, wipe_entry, &wiping);
	}
	if (!err)
		err = wiping.err;
	/* Without its record what is left would be DPC++'s. */
	status =
		wiping.has_own
			? ki_status_from_errno(err)
			: reset_records(sycl, ki_records_settings(sycl->records)
						      .user_version);
	if (!status)
		status = status_of_lock(err);
	if (!status)
		status = ki_sycl_count(sycl, &turn, &report);
	ki_sycl_plan_end(&sycl->plan);
out:
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}

/* Kiln's own: DPC++'s entries have nothing to do with our version. */
static enum kiln_status remove_own(struct ki_sycl *sycl,
				   struct ki_sycl_turn *turn)
{
	enum kiln_status status = KILN_OK;
	struct ki_record_found found;
	char stem[KI_SYCL_NAME_BYTES];
	struct ki_file_info info;
	enum ki_sycl_state state;
	uint64_t serial = 0;

	while (!status &&
	       !ki_records_next(sycl->records, &serial, &found, NULL, NULL)) {
		int err = ki_sycl_state(sycl, &found, &state, &info);

		if (err)
			return ki_status_from_errno(err);
		if (state != KI_SYCL_THERE && state != KI_SYCL_LOCKED)
			continue;
		ki_sycl_stem(found.name, stem);
		status = remove_with_use(sycl, turn, stem, &found);
	}
	return status;
}

enum kiln_status ki_sycl_adopt_user_version(struct ki_sycl *sycl)
{
	struct ki_sycl_turn turn;
	enum kiln_status status;

	if (!sycl->user_version || !ki_sycl_is_other_version(sycl))
		return KILN_OK;
	if (ki_sycl_is_readonly(sycl))
		return KILN_E_READONLY;
	status = ki_sycl_turn_begin(sycl, KI_SYCL_TOOL_NS, &turn);
	if (status)
		return status;
	if (ki_sycl_is_other_version(sycl)) {
		status = remove_own(sycl, &turn);
		if (!status)
			status = reset_records(sycl, sycl->user_version);
	}
	(void)ki_sycl_turn_end(sycl, &turn);
	return status;
}
