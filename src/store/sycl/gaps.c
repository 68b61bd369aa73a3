/* SPDX-License-Identifier: MIT */

/*
 * What kiln.records leaves to .src.  An image may have a megabyte, and both would
 * have it: the record of an entry in DPC++'s own place has gaps where a field is
 * long, and .src fills them.
 *
 *	key record	KK | device | options | constants | iiiiiiii | more
 *	kept		KK | device | options | constants |  gap     | more
 *	.src		      device   options   constants  iiiiiiii
 *
 * A look-up compares what is kept and then the four fields with .src, in full.
 * Who wants the record itself has it put together, and held against its digest:
 * so a .src that is damaged is told from one of another key.
 */

#include "store/sycl/sycl.h"

#include <string.h>

#include "base/blob.h"
#include "base/status.h"
#include "key/key.h"

/* Shorter ones are not worth the reading. */
#define GAP_MIN 256

void ki_sycl_leave_out(struct ki_record *record,
		       const struct ki_sycl_fields *fields)
{
	struct ki_record_gaps *gaps = &record->gaps;

	gaps->n = 0;
	for (unsigned i = 0; fields->is_shared && i < KI_SYCL_N_FIELDS; i++) {
		const struct ki_piece *field = &fields->of[i];
		const struct ki_record_gap gap = {
			.offset = (uint32_t)((const uint8_t *)field->data -
					     (const uint8_t *)record->record),
			.size = (uint32_t)field->size,
		};
		unsigned at = gaps->n;

		if (field->size < GAP_MIN)
			continue;
		for (; at && gaps->of[at - 1].offset > gap.offset; at--)
			gaps->of[at] = gaps->of[at - 1];
		gaps->of[at] = gap;
		gaps->n++;
	}
}

_Static_assert((int)KI_SYCL_N_FIELDS <= KI_RECORDS_GAPS_MAX, "a gap each");

/* Which of the fields it is that a gap leaves out; KI_SYCL_N_FIELDS: none. */
static unsigned field_at(const void *record,
			 const struct ki_sycl_fields *fields,
			 const struct ki_record_gap *gap)
{
	const uint8_t *data = (const uint8_t *)record + gap->offset;
	unsigned i = fields->is_shared ? 0 : KI_SYCL_N_FIELDS;

	while (i < KI_SYCL_N_FIELDS &&
	       ((const uint8_t *)fields->of[i].data != data ||
		fields->of[i].size != gap->size))
		i++;
	return i;
}

/* ---- Putting together ---------------------------------------------------------------- */

static int fill_gaps(const struct ki_sycl *sycl, int fd,
		     const struct ki_record_gaps *gaps,
		     const struct ki_sycl_fields *fields, uint8_t *record)
{
	struct ki_sycl_span spans[KI_SYCL_N_FIELDS];
	struct ki_file_info info = { 0 };
	int err = sycl->sys->fmeasure(sycl->sys, fd, &info);

	if (!err)
		err = ki_sycl_find_fields(sycl->sys, fd, info.size, spans);
	for (unsigned i = 0; !err && i < gaps->n; i++) {
		const struct ki_record_gap *gap = &gaps->of[i];
		const unsigned at = field_at(record, fields, gap);

		err = at == KI_SYCL_N_FIELDS || spans[at].size != gap->size
			      ? -EINVAL
			      : ki_pread_all(sycl->sys, fd,
					     record + gap->offset, gap->size,
					     spans[at].offset);
	}
	return err == -ENODATA ? -EINVAL : err;
}

static enum kiln_status check_digest(const struct kiln_blob *record,
				     const uint8_t *digest)
{
	struct kiln_key *key = NULL;
	enum kiln_status status = kiln_key_from_record(
		kiln_blob_data(record), kiln_blob_size(record), &key);

	if (!status && memcmp(key->digest, digest, KILN_DIGEST_BYTES) != 0)
		status = KILN_E_FORMAT;
	kiln_key_free(key);
	return status;
}

static int open_src(const struct ki_sycl *sycl,
		    const struct ki_record_found *found)
{
	char stem[KI_SYCL_NAME_BYTES], path[KI_PATH_MAX];
	int err;

	if (!ki_sycl_is_name(found->name))
		return -ENOENT;
	ki_sycl_stem(found->name, stem);
	err = ki_sycl_path_of(sycl, stem, ".src", path);
	return err ? err
		   : sycl->sys->open(sycl->sys, path,
				     KI_OPEN_READ | KI_OPEN_NOFOLLOW |
					     KI_OPEN_NO_ATIME,
				     0);
}

static enum kiln_status copy_filled(const struct ki_sycl *sycl,
				    const struct ki_record_found *found,
				    const struct kiln_blob *kept,
				    struct kiln_blob **out_record)
{
	const size_t size = kiln_blob_size(kept);
	struct ki_sycl_fields fields;
	struct kiln_blob *record;
	void *bytes;
	int err, fd = open_src(sycl, found);

	if (fd < 0)
		return ki_sycl_is_gone(fd) ? KILN_MISS
					   : ki_status_from_errno(fd);
	record = ki_blob_new(size, &bytes);
	if (record) {
		memcpy(bytes, kiln_blob_data(kept), size);
		ki_sycl_fields_in(bytes, size, &fields);
		err = fill_gaps(sycl, fd, &found->gaps, &fields, bytes);
	} else {
		err = -ENOMEM;
	}
	(void)sycl->sys->close(sycl->sys, fd);
	if (!err) {
		*out_record = record;
		return KILN_OK;
	}
	kiln_blob_unref(record);
	return err == -EINVAL ? KILN_E_FORMAT : ki_status_from_errno(err);
}

enum kiln_status ki_sycl_whole_record(const struct ki_sycl *sycl,
				      const struct ki_record_found *found,
				      struct kiln_blob **record)
{
	struct kiln_blob *whole = NULL;
	enum kiln_status status;

	if (!found->gaps.n)
		return KILN_OK;
	status = copy_filled(sycl, found, *record, &whole);
	if (!status)
		status = check_digest(whole, found->digest);
	if (status) {
		kiln_blob_unref(whole);
		return status;
	}
	kiln_blob_unref(*record);
	*record = whole;
	return KILN_OK;
}

/* ---- Comparing ----------------------------------------------------------------------- */

/* .src is not this key's: it is another's of the same digest, or damaged, be it
   where nothing was left to it. */
static enum kiln_status judge_src(struct ki_sycl *sycl,
				  const struct ki_record_found *found,
				  const struct kiln_key *key)
{
	struct kiln_blob *record = NULL;
	enum kiln_status status =
		kiln_blob_copy(key->record.data, key->record.size, &record);

	if (!status)
		status = ki_sycl_whole_record(sycl, found, &record);
	if (!status)
		status = memcmp(kiln_blob_data(record), key->record.data,
				key->record.size)
				 ? KILN_E_COLLISION
				 : KILN_E_FORMAT;
	kiln_blob_unref(record);
	return status;
}

static enum kiln_status compare_src(struct ki_sycl *sycl,
				    const struct ki_record_found *found,
				    const struct kiln_key *key)
{
	char stem[KI_SYCL_NAME_BYTES], path[KI_PATH_MAX];
	struct ki_sycl_fields fields;
	int same;

	if (!ki_sycl_is_name(found->name))
		return KILN_MISS;
	ki_sycl_fields_of(key, &fields);
	for (unsigned i = 0; i < found->gaps.n; i++)
		if (field_at(key->record.data, &fields, &found->gaps.of[i]) ==
		    KI_SYCL_N_FIELDS)
			return KILN_E_FORMAT;
	ki_sycl_stem(found->name, stem);
	same = ki_sycl_path_of(sycl, stem, ".src", path);
	if (!same)
		same = ki_sycl_src_is(sycl->sys, path, &fields);
	if (same > 0)
		return KILN_OK;
	if (same < 0)
		return ki_sycl_is_gone(same) ? KILN_MISS
					     : ki_status_from_errno(same);
	return judge_src(sycl, found, key);
}

enum kiln_status ki_sycl_check_key(struct ki_sycl *sycl,
				   const struct ki_record_found *found,
				   const struct kiln_key *key)
{
	return found->gaps.n ? compare_src(sycl, found, key) : KILN_OK;
}

enum kiln_status ki_sycl_check_src(struct ki_sycl *sycl,
				   const struct ki_record_found *found,
				   const struct kiln_key *key)
{
	return ki_sycl_is_own(found->name) ? KILN_OK
					   : compare_src(sycl, found, key);
}
