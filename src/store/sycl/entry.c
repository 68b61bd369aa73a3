/* SPDX-License-Identifier: MIT */

/*
 * One entry: <n>.src says of what, <n>.bin is the binary behind two numbers.
 *
 *	.src	size, device | size, options | size, constants | size, image
 *	.bin	1 | size | bytes			what is written
 *		count | count times: size | bytes	until 2024: the first
 *		size | bytes				for some weeks of 2024
 *
 * Neither has a magic number or a checksum.  Every size is held against that of
 * the file before anything is allocated: the originals allocate what a damaged
 * .src says.
 *
 * An entry is kiln's as long as its .bin has inode, size and modification time of
 * the record; then its bytes must have the record's checksum.  Of any other the
 * .src is compared in full, which is all that its format has to offer.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/hash.h"
#include "base/status.h"

#define BLOCK_BYTES ((size_t)64 << 10)
#define OLDER_MAX   4
#define COUNT_MAX   4096 /* of devices, in the oldest form */

/* ---- What is compared ------------------------------------------------------------- */

uint64_t ki_sycl_src_size(const struct ki_sycl_fields *fields)
{
	uint64_t size = KI_SYCL_SRC_HEADER;

	for (unsigned i = 0; i < KI_SYCL_N_FIELDS; i++)
		size += fields->of[i].size;
	return size;
}

/* As the file has it, in pieces. */
static void lay_out(const struct ki_sycl_fields *fields,
		    uint8_t sizes[KI_SYCL_N_FIELDS][8],
		    struct ki_piece pieces[2 * KI_SYCL_N_FIELDS])
{
	for (unsigned i = 0; i < KI_SYCL_N_FIELDS; i++) {
		ki_put_u64(sizes[i], fields->of[i].size);
		pieces[2 * i] = (struct ki_piece){ sizes[i], 8 };
		pieces[2 * i + 1] = fields->of[i];
	}
}

/* What comes next in the pieces, of which *piece has been compared up to *done. */
static int is_next(const uint8_t *block, size_t size,
		   const struct ki_piece **piece, size_t *done)
{
	while (size) {
		const size_t rest = (*piece)->size - *done;
		const size_t part = rest < size ? rest : size;

		if (memcmp(block, (const uint8_t *)(*piece)->data + *done,
			   part) != 0)
			return 0;
		block += part;
		size -= part;
		*done += part;
		if (part == rest) {
			++*piece;
			*done = 0;
		}
	}
	return 1;
}

/* A file of this size. */
static int compare_fields(const struct ki_sys *sys, int fd, uint64_t size,
			  const struct ki_sycl_fields *fields, uint8_t *block)
{
	uint8_t sizes[KI_SYCL_N_FIELDS][8];
	struct ki_piece pieces[2 * KI_SYCL_N_FIELDS];
	const struct ki_piece *piece = pieces;
	size_t done = 0, part;
	int same = 1;

	lay_out(fields, sizes, pieces);
	for (uint64_t offset = 0; same && offset < size; offset += part) {
		const uint64_t rest = size - offset;
		int err;

		part = rest < BLOCK_BYTES ? (size_t)rest : BLOCK_BYTES;
		err = ki_pread_all(sys, fd, block, part, offset);
		if (err)
			return err == -ENODATA ? 0 : err;
		same = is_next(block, part, &piece, &done);
	}
	return same;
}

int ki_sycl_src_is(const struct ki_sys *sys, const char *path,
		   const struct ki_sycl_fields *fields)
{
	const uint64_t size = ki_sycl_src_size(fields);
	struct ki_file_info info = { 0 };
	uint8_t *block;
	int result, fd = sys->open(sys, path,
				   KI_OPEN_READ | KI_OPEN_NOFOLLOW |
					   KI_OPEN_NO_ATIME,
				   0);

	if (fd < 0)
		return fd;
	result = sys->fmeasure(sys, fd, &info);
	block = !result && info.size == size
			? malloc(size < BLOCK_BYTES ? (size_t)size
						    : BLOCK_BYTES)
			: NULL;
	if (!result && info.size == size)
		result = block ? compare_fields(sys, fd, size, fields, block)
			       : -ENOMEM;
	free(block);
	(void)sys->close(sys, fd);
	return result;
}

/* ---- Writing ------------------------------------------------------------------------ */

/* What a dead writer left goes: among kilns one writes at a time. */
static int open_new(const struct ki_sycl *sycl, const char *path)
{
	const struct ki_sys *sys = sycl->sys;
	const unsigned flags = KI_OPEN_WRITE | KI_OPEN_CREATE |
			       KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW;
	int fd = sys->open(sys, path, flags, 0600);

	if (fd != -EEXIST)
		return fd;
	(void)sys->unlink(sys, path);
	return sys->open(sys, path, flags, 0600);
}

static int write_new(const struct ki_sycl *sycl, const char *path,
		     struct ki_piece *pieces, int n_pieces,
		     struct ki_file_info *out_info)
{
	const struct ki_sys *sys = sycl->sys;
	int close_err, err, fd = open_new(sycl, path);

	if (fd < 0)
		return fd;
	err = ki_pwritev_all(sys, fd, pieces, n_pieces, 0);
	/* Whatever the umask: a group that shares the directory reads it. */
	if (!err && (sycl->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, path, 0660);
	if (!err && out_info)
		err = sys->fstat(sys, fd, out_info);
	close_err = sys->close(sys, fd);
	if (!err)
		err = close_err;
	if (err)
		(void)sys->unlink(sys, path);
	return err;
}

int ki_sycl_write_src(const struct ki_sycl *sycl, const char *path,
		      const struct ki_sycl_fields *fields)
{
	uint8_t sizes[KI_SYCL_N_FIELDS][8];
	struct ki_piece pieces[2 * KI_SYCL_N_FIELDS];

	lay_out(fields, sizes, pieces);
	return write_new(sycl, path, pieces, 2 * KI_SYCL_N_FIELDS, NULL);
}

int ki_sycl_write_bin(const struct ki_sycl *sycl, const char *path,
		      const void *value, size_t size,
		      struct ki_file_info *out_info)
{
	uint8_t header[KI_SYCL_BIN_HEADER];
	struct ki_piece pieces[] = { { header, sizeof(header) },
				     { value, size } };

	ki_put_u64(header, 1);
	ki_put_u64(header + 8, size);
	return write_new(sycl, path, pieces, 2, out_info);
}

/* ---- The three forms ------------------------------------------------------------------ */

/* The rest of `count` binaries must end where the file does. */
static int check_rest(const struct ki_sys *sys, int fd, uint64_t size,
		      uint64_t count, uint64_t offset)
{
	while (count--) {
		uint8_t bytes[8];
		int err = size - offset < 8
				  ? -EINVAL
				  : ki_pread_all(sys, fd, bytes, 8, offset);

		if (err)
			return err;
		offset += 8;
		if (ki_get_u64(bytes) > size - offset)
			return -EINVAL;
		offset += ki_get_u64(bytes);
	}
	return offset == size ? 0 : -EINVAL;
}

int ki_sycl_find_binary(const struct ki_sys *sys, int fd, uint64_t size,
			struct ki_sycl_span *out_span)
{
	uint8_t bytes[KI_SYCL_BIN_HEADER] = { 0 };
	uint64_t first, second;
	int err;

	if (size < 8)
		return -EINVAL;
	err = ki_pread_all(sys, fd, bytes,
			   size < sizeof(bytes) ? (size_t)size : sizeof(bytes),
			   0);
	if (err)
		return err == -ENODATA ? -EINVAL : err;
	first = ki_get_u64(bytes);
	second = ki_get_u64(bytes + 8);
	*out_span = (struct ki_sycl_span){ KI_SYCL_BIN_HEADER, second, first };
	if (size >= 16 && first == 1 && size - 16 == second)
		return 0;
	if (size - 8 == first) {
		*out_span = (struct ki_sycl_span){ 8, first, 0 };
		return 0;
	}
	if (size < 16 || first < 2 || first > COUNT_MAX || second > size - 16)
		return -EINVAL;
	err = check_rest(sys, fd, size, first - 1, 16 + second);
	return err == -ENODATA ? -EINVAL : err;
}

/* ---- Whose it is ------------------------------------------------------------------------ */

enum ki_sycl_state ki_sycl_compare(const struct ki_record_found *found,
				   const struct ki_file_info *info)
{
	return info->inode == found->inode && info->size == found->file_size &&
			       info->mtime_ns == found->mtime_ns
		       ? KI_SYCL_THERE
		       : KI_SYCL_TAKEN;
}

static int is_locked(const struct ki_sycl *sycl, const char *name)
{
	char stem[KI_SYCL_NAME_BYTES];

	if (ki_sycl_is_own(name))
		return 0;
	ki_sycl_stem(name, stem);
	return ki_sycl_is_locked(sycl, stem);
}

int ki_sycl_state(const struct ki_sycl *sycl,
		  const struct ki_record_found *found,
		  enum ki_sycl_state *out_state, struct ki_file_info *out_info)
{
	int err = ki_sycl_is_name(found->name)
			  ? ki_sycl_look(sycl, found->name, "", out_info)
			  : -ENOENT;

	*out_state = err ? KI_SYCL_GONE : ki_sycl_compare(found, out_info);
	if (*out_state == KI_SYCL_THERE && is_locked(sycl, found->name))
		*out_state = KI_SYCL_LOCKED;
	return err == -ENOENT ? 0 : err;
}

/* Only who has the turn writes, or else an entry's lock file: neither is somebody
   else, so a .bin without its .src is what is left of an entry. */
static enum kiln_status check_src(struct ki_sycl *sycl,
				  const struct ki_record_found *found,
				  const struct kiln_key *key)
{
	const enum kiln_status status = ki_sycl_check_src(sycl, found, key);

	return status == KILN_MISS ? KILN_E_FORMAT : status;
}

enum kiln_status ki_sycl_find_present(struct ki_sycl *sycl,
				      const struct kiln_key *key,
				      struct ki_record_found *out_found,
				      enum ki_sycl_state *out_state)
{
	struct ki_file_info info;
	enum kiln_status status =
		ki_records_find(sycl->records, key, 0, out_found, NULL);
	int err;

	*out_state = KI_SYCL_GONE;
	if (status)
		return status;
	err = ki_sycl_state(sycl, out_found, out_state, &info);
	if (err)
		return ki_status_from_errno(err);
	if (*out_state == KI_SYCL_THERE)
		return check_src(sycl, out_found, key);
	for (unsigned older = 1;
	     *out_state == KI_SYCL_TAKEN && older < OLDER_MAX; older++) {
		struct ki_record_found before;

		if (ki_records_find(sycl->records, key, older, &before, NULL))
			break;
		/* An older one's inode may be another's by now. */
		if (strcmp(before.name, out_found->name) != 0 ||
		    ki_sycl_compare(&before, &info) != KI_SYCL_THERE)
			continue;
		*out_state = KI_SYCL_THERE;
		*out_found = before;
		return check_src(sycl, out_found, key);
	}
	return KILN_MISS;
}

/* ---- Reading ------------------------------------------------------------------------------ */

static enum kiln_status read_span(const struct ki_sycl *sycl, int fd,
				  const struct ki_sycl_span *span,
				  struct kiln_blob **out_value)
{
	struct kiln_blob *blob;
	void *data;
	int err;

	if (span->size > SIZE_MAX / 2)
		return KILN_E_TOO_LARGE;
	blob = ki_blob_new((size_t)span->size, &data);
	if (!blob)
		return KILN_E_NO_MEMORY;
	err = ki_pread_all(sycl->sys, fd, data, (size_t)span->size,
			   span->offset);
	if (!err) {
		*out_value = blob;
		return KILN_OK;
	}
	kiln_blob_unref(blob);
	return err == -ENODATA ? KILN_E_FORMAT : ki_status_from_errno(err);
}

/* All of the file in one go; the value begins at a multiple of 8. */
static enum kiln_status read_value(const struct ki_sycl *sycl, int fd,
				   const struct ki_record_found *found,
				   struct kiln_blob **out_value)
{
	const struct ki_sycl_span whole = { 0, found->file_size, 1 };
	struct kiln_blob *blob = NULL;
	const uint8_t *bytes;
	enum kiln_status status;

	if (found->file_size < KI_SYCL_BIN_HEADER ||
	    found->file_size - KI_SYCL_BIN_HEADER != found->value_size)
		return KILN_E_FORMAT;
	status = read_span(sycl, fd, &whole, &blob);
	if (status)
		return status;
	bytes = blob->data;
	blob->data = bytes + KI_SYCL_BIN_HEADER;
	blob->size = (size_t)found->value_size;
	if (ki_get_u64(bytes) == 1 &&
	    ki_get_u64(bytes + 8) == found->value_size &&
	    ki_xxh3_64(blob->data, blob->size) == found->value_check) {
		*out_value = blob;
		return KILN_OK;
	}
	kiln_blob_unref(blob);
	return KILN_E_FORMAT;
}

#define READ_FLAGS (KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME)

enum kiln_status ki_sycl_load(struct ki_sycl *sycl,
			      const struct ki_record_found *found,
			      enum ki_sycl_state *out_state,
			      struct kiln_blob **out_value,
			      struct ki_file_info *out_info)
{
	const struct ki_sys *sys = sycl->sys;
	enum kiln_status status;
	char path[KI_PATH_MAX];
	int fd;

	*out_state = KI_SYCL_GONE;
	if (!ki_sycl_is_name(found->name) ||
	    ki_sycl_path(sycl, found->name, path))
		return KILN_MISS;
	fd = sys->open(sys, path, READ_FLAGS, 0);
	if (fd < 0)
		return ki_sycl_is_gone(fd) ? KILN_MISS
					   : ki_status_from_errno(fd);
	status = ki_status_from_errno(sys->fstat(sys, fd, out_info));
	if (status)
		goto out;
	status = KILN_MISS;
	*out_state = ki_sycl_compare(found, out_info);
	if (*out_state != KI_SYCL_THERE)
		goto out;
	if (is_locked(sycl, found->name)) {
		*out_state = KI_SYCL_LOCKED;
		goto out;
	}
	status = read_value(sycl, fd, found, out_value);
	if (status == KILN_E_FORMAT)
		*out_state = KI_SYCL_DAMAGED;
out:
	(void)sys->close(sys, fd);
	return status;
}

/* Of an entry that no record is about: its only check is its form. */
static enum kiln_status load_foreign(const struct ki_sycl *sycl,
				     const char *stem,
				     struct kiln_blob **out_value,
				     struct ki_file_info *out_info)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_sycl_span span = { 0 };
	enum kiln_status status;
	char path[KI_PATH_MAX];
	int fd, err = ki_sycl_path_of(sycl, stem, ".bin", path);

	fd = err ? err : sys->open(sys, path, READ_FLAGS, 0);
	if (fd < 0)
		return ki_sycl_is_gone(fd) ? KILN_MISS
					   : ki_status_from_errno(fd);
	err = sys->fstat(sys, fd, out_info);
	if (!err)
		err = ki_sycl_find_binary(sys, fd, out_info->size, &span);
	if (!err && !span.size)
		err = -EINVAL;
	status = err == -EINVAL ? KILN_E_FORMAT : ki_status_from_errno(err);
	if (!status)
		status = read_span(sycl, fd, &span, out_value);
	(void)sys->close(sys, fd);
	return status;
}

/* Whether a record is about the file that was read: then it is not DPC++'s.  It
   came before the file, but perhaps after we looked for it. */
static int is_recorded_now(struct ki_sycl *sycl, const char *stem,
			   const struct ki_file_info *info)
{
	char name[KI_SYCL_NAME_BYTES + 4];
	struct ki_record_found found;

	(void)ki_sycl_refresh(sycl);
	snprintf(name, sizeof(name), "%s.bin", stem);
	return !ki_records_by_file(sycl->records, name, info->inode, &found) &&
	       ki_sycl_compare(&found, info) == KI_SYCL_THERE;
}

/* A bad one is no end: the next may be good. */
static enum kiln_status try_foreign(struct ki_sycl *sycl,
				    const struct ki_sycl_fields *fields,
				    const char *stem,
				    struct kiln_blob **out_value)
{
	char path[KI_PATH_MAX];
	struct ki_file_info info;
	enum kiln_status status;
	int same = ki_sycl_path_of(sycl, stem, ".src", path);

	if (!same)
		same = ki_sycl_src_is(sycl->sys, path, fields);
	if (same == -ENOMEM)
		return KILN_E_NO_MEMORY;
	if (same <= 0)
		return KILN_MISS;
	status = load_foreign(sycl, stem, out_value, &info);
	/* Whoever has the lock may have begun meanwhile, and a kiln have stored
	   it: that one's record says more than .src. */
	if (!status && (ki_sycl_is_locked(sycl, stem) ||
			is_recorded_now(sycl, stem, &info))) {
		kiln_blob_unref(*out_value);
		return KILN_MISS;
	}
	return status == KILN_E_NO_MEMORY ? status
	       : status			  ? KILN_MISS
					  : KILN_OK;
}

enum kiln_status ki_sycl_find_foreign(struct ki_sycl *sycl, const char *place,
				      const struct ki_sycl_fields *fields,
				      char out_stem[KI_SYCL_NAME_BYTES],
				      struct kiln_blob **out_value)
{
	struct ki_sycl_slots slots;
	enum kiln_status status = KILN_MISS;
	int err;

	err = ki_sycl_read_place(sycl, place, &slots);
	if (err)
		return ki_status_from_errno(err);
	for (size_t i = 0; i < slots.n && status == KILN_MISS; i++) {
		const unsigned both = KI_SYCL_BIN | KI_SYCL_SRC;

		if ((slots.slots[i].has & both) != both)
			continue;
		snprintf(out_stem, KI_SYCL_NAME_BYTES, "%s/%u", place,
			 (unsigned)slots.slots[i].n);
		if (!(slots.slots[i].has & KI_SYCL_LOCK) ||
		    !ki_sycl_is_locked(sycl, out_stem))
			status = try_foreign(sycl, fields, out_stem, out_value);
	}
	free(slots.slots);
	return status;
}

uint64_t ki_sycl_value_size(const struct ki_sycl *sycl, const char *stem)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_sycl_span span = { 0 };
	struct ki_file_info info = { 0 };
	char path[KI_PATH_MAX];
	int fd, err = ki_sycl_path_of(sycl, stem, ".bin", path);

	fd = err ? err : sys->open(sys, path, READ_FLAGS, 0);
	if (fd < 0)
		return 0;
	err = sys->fmeasure(sys, fd, &info);
	if (!err)
		err = ki_sycl_find_binary(sys, fd, info.size, &span);
	(void)sys->close(sys, fd);
	return err ? info.size : span.size;
}

/* ---- Of any -------------------------------------------------------------------------------- */

int ki_sycl_find_fields(const struct ki_sys *sys, int fd, uint64_t size,
			struct ki_sycl_span out_spans[KI_SYCL_N_FIELDS])
{
	uint64_t offset = 0;

	for (unsigned i = 0; i < KI_SYCL_N_FIELDS; i++) {
		uint8_t bytes[8];
		int err = size - offset < 8
				  ? -EINVAL
				  : ki_pread_all(sys, fd, bytes, 8, offset);

		if (err)
			return err == -ENODATA ? -EINVAL : err;
		offset += 8;
		if (ki_get_u64(bytes) > size - offset)
			return -EINVAL;
		out_spans[i] =
			(struct ki_sycl_span){ offset, ki_get_u64(bytes), 1 };
		offset += ki_get_u64(bytes);
	}
	return offset == size ? 0 : -EINVAL;
}

/* KILN_OK, KILN_MISS if it is gone, FORMAT, or why it cannot be read. */
static enum kiln_status check_part(const struct ki_sycl *sycl, const char *stem,
				   const char *suffix)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_sycl_span spans[KI_SYCL_N_FIELDS];
	struct ki_file_info info = { 0 };
	char path[KI_PATH_MAX];
	int fd, err = ki_sycl_path_of(sycl, stem, suffix, path);

	fd = err ? err : sys->open(sys, path, READ_FLAGS, 0);
	if (fd < 0)
		return ki_sycl_is_gone(fd) ? KILN_MISS
					   : ki_status_from_errno(fd);
	err = sys->fmeasure(sys, fd, &info);
	if (!err)
		err = strcmp(suffix, ".src")
			      ? ki_sycl_find_binary(sys, fd, info.size, spans)
			      : ki_sycl_find_fields(sys, fd, info.size, spans);
	/* Of what kernel_compiler keeps between, nobody has said the form. */
	if (err == -EINVAL && info.size &&
	    !strcmp(stem + strlen(stem) - 3, "/ir"))
		err = 0;
	(void)sys->close(sys, fd);
	return err == -EINVAL ? KILN_E_FORMAT : ki_status_from_errno(err);
}

enum kiln_status ki_sycl_check_form(const struct ki_sycl *sycl,
				    const char *stem, unsigned has)
{
	const unsigned wanted = *stem == 'e' || ki_sycl_is_own(stem)
					? KI_SYCL_BIN
					: KI_SYCL_BIN | KI_SYCL_SRC;
	enum kiln_status status = KILN_OK;

	if ((has & wanted) != wanted)
		return KILN_E_FORMAT;
	if (wanted & KI_SYCL_SRC)
		status = check_part(sycl, stem, ".src");
	return status ? status : check_part(sycl, stem, ".bin");
}
