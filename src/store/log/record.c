/* SPDX-License-Identifier: MIT */

/*
 * One record: header, key record, metadata, value.
 *
 *	0        64             64 + key    8-aligned            64-aligned
 *	| header | key record   | metadata  | value              |
 *	  '- sum of itself, sum of the three others
 *
 * A view is a record that was found through a word.  Its header is sound and
 * names the segment it lies in; the body is checked by ki_log_view_check().
 * Bytes come from the mapping, or by pread into a blob of their own, which the
 * value then points into: what a bad medium makes of that is an error, not a
 * signal.
 */

#include "base/xxh3.h"
#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>

#define GUESS_BYTES_MAX ((uint64_t)1 << 20)
#define ALONE_BYTES_MAX ((uint64_t)1 << 15) /* read for less than mapped */

/* ---- Writing --------------------------------------------------------- */

void ki_log_record_init(struct log_record *record, const struct kiln_key *key,
			uint64_t metadata_size, uint64_t value_size,
			uint32_t flags, uint64_t now_s)
{
	*record = (struct log_record){
		.magic = LOG_RECORD_MAGIC,
		.key_size = (uint32_t)key->record.size,
		.metadata_size = (uint32_t)metadata_size,
		.value_size = value_size & LOG_VALUE_BYTES_MAX,
		.flags = flags & 0xffff,
		.used_s = (uint32_t)now_s,
	};
	memcpy(record->digest, key->digest, sizeof(record->digest));
}

/* Inline, as its length is known. */
static inline uint32_t header_sum(const struct log_record *record)
{
	return (uint32_t)xxh3_64(record,
				 offsetof(struct log_record, header_sum));
}

void ki_log_record_seal(struct log_record *record, uint32_t segment)
{
	record->segment = record->flags & LOG_OWN_FILE ? 0 : segment;
	record->header_sum = header_sum(record);
}

void ki_log_record_void(struct ki_log *log, int fd, struct log_record *record,
			uint32_t number, uint32_t units)
{
	record->flags |= LOG_VOID;
	ki_log_record_seal(record, number);
	(void)ki_pwrite_all(log->sys, fd, record, sizeof(*record),
			    (uint64_t)units * LOG_UNIT);
}

/* ---- Reading --------------------------------------------------------- */

int ki_log_record_is_sound(const struct log_record *record, uint32_t segment,
			   uint32_t units)
{
	if (record->magic != LOG_RECORD_MAGIC ||
	    record->header_sum != header_sum(record) ||
	    record->key_size > KILN_KEY_BYTES_MAX ||
	    record->metadata_size > KILN_METADATA_BYTES_MAX)
		return 0;
	if (record->flags & LOG_OWN_FILE)
		return !units && !record->segment;
	return record->segment == segment;
}

static enum kiln_status accept(struct log_view *view, uint64_t room)
{
	const struct log_record *record = &view->record;

	if (!ki_log_record_is_sound(record, view->number, view->units) ||
	    (record->flags & LOG_TOMBSTONE))
		return KILN_E_FORMAT;
	if (record->flags & LOG_MUST_KNOW & ~LOG_KNOWN_FLAGS)
		return KILN_MISS;
	return log_record_bytes(record) <= room ? KILN_OK : KILN_E_FORMAT;
}

static enum kiln_status view_mapped(struct log_view *view)
{
	const struct log_segment *segment = view->segment;
	uint64_t offset = (uint64_t)view->units * LOG_UNIT;

	if (offset + sizeof(view->record) > segment->size)
		return KILN_E_FORMAT;
	view->bytes = segment->data + offset;
	memcpy(&view->record, view->bytes, sizeof(view->record));
	return accept(view, segment->size - offset);
}

/* As much as there is, up to `size`. */
static ssize_t read_some(const struct ki_sys *sys, int fd, uint8_t *data,
			 uint64_t size, uint64_t offset)
{
	uint64_t done = 0;

	while (done < size) {
		ssize_t n = sys->pread(sys, fd, data + done,
				       (size_t)(size - done), offset + done);
		if (n < 0)
			return n;
		if (!n)
			break;
		done += (uint64_t)n;
	}
	return (ssize_t)done;
}

static enum kiln_status read_into(struct log_view *view,
				  const struct ki_sys *sys, int fd,
				  uint64_t size, uint64_t *out_got)
{
	uint64_t offset = (uint64_t)view->units * LOG_UNIT;
	void *data;
	ssize_t n;

	kiln_blob_unref(view->container);
	view->container = ki_blob_new((size_t)size, &data);
	if (!view->container)
		return KILN_E_NO_MEMORY;
	n = read_some(sys, fd, data, size, offset);
	if (n < 0)
		return ki_log_status((int)n);
	if ((size_t)n < sizeof(view->record))
		return KILN_E_FORMAT;
	view->bytes = data;
	memcpy(&view->record, data, sizeof(view->record));
	*out_got = (uint64_t)n;
	return KILN_OK;
}

/* The word says about how long the record is; one pread is mostly enough. */
static enum kiln_status view_read(struct log_view *view,
				  const struct ki_sys *sys, int fd,
				  uint64_t word)
{
	uint64_t guess = log_word_bytes(word);
	uint64_t offset = (uint64_t)view->units * LOG_UNIT;
	uint64_t bytes, got;
	struct ki_file_info info;
	enum kiln_status status;
	int err;

	if (guess < sizeof(view->record))
		guess = sizeof(view->record);
	if (guess > GUESS_BYTES_MAX)
		guess = 4096;
	status = read_into(view, sys, fd, guess, &got);
	if (status)
		return status;
	status = accept(view, UINT64_MAX);
	bytes = log_record_bytes(&view->record);
	if (status || bytes <= got)
		return status;

	err = sys->fstat(sys, fd, &info);
	if (err)
		return ki_log_status(err);
	if (offset > info.size || bytes > info.size - offset ||
	    bytes > SIZE_MAX / 2)
		return KILN_E_FORMAT;
	status = read_into(view, sys, fd, bytes, &got);
	return status ? status : accept(view, got);
}

/* A descriptor for this one reading. */
static enum kiln_status view_alone(struct ki_log *log, struct log_view *view,
				   uint64_t word)
{
	const struct ki_sys *sys = log->sys;
	char path[KI_PATH_MAX];
	enum kiln_status status;
	int err = ki_log_segment_path(log, view->number, path);
	int fd = err ? err
		     : sys->open(sys, path,
				 KI_OPEN_READ | ki_log_open_flags(log), 0);

	if (fd < 0)
		return fd == -ENOENT ? KILN_MISS : ki_log_status(fd);
	status = view_read(view, sys, fd, word);
	(void)sys->close(sys, fd);
	return status;
}

static enum kiln_status open_view(struct ki_log *log, struct log_index *index,
				  uint64_t word, int alone,
				  struct log_view *out_view)
{
	uint64_t min_live = index->header->min_live;
	enum kiln_status status;

	*out_view = (struct log_view){ 0 };
	if (!log_number_is_sound(min_live) ||
	    !log_word_is_live(word, (uint32_t)min_live))
		return KILN_MISS;
	out_view->number = log_word_segment(word, (uint32_t)min_live);
	out_view->units = log_word_units(word);
	if (alone) {
		status = view_alone(log, out_view, word);
	} else {
		status = ki_log_segment_get(log, index, out_view->number,
					    &out_view->segment);
		if (!status)
			status = out_view->segment->data
					 ? view_mapped(out_view)
					 : view_read(out_view, log->sys,
						     out_view->segment->fd,
						     word);
	}
	if (status)
		ki_log_view_close(out_view);
	return status;
}

/*
 * Two ways in which what is kept open says nothing about the record: the
 * program closed the descriptor, which reads another file by now; or the file
 * was copied up to another layer of overlayfs by its first writer, and what was
 * opened before is the one below.
 */
enum kiln_status ki_log_view_open(struct ki_log *log, struct log_index *index,
				  uint64_t word, struct log_view *out_view)
{
	int alone = log->guest || !ki_log_is_mapped(index);
	struct log_segment *segment;
	enum kiln_status status;

	if (alone && !log->guest && log_word_bytes(word) > ALONE_BYTES_MAX)
		return LOG_AGAIN;
	status = open_view(log, index, word, alone, out_view);

	segment = out_view->segment;
	if (!segment ||
	    (status != KILN_E_FORMAT && (status != KILN_E_IO || segment->data ||
					 ki_log_is_ours(segment, segment->fd))))
		return status;
	status = open_view(log, index, word, 1, out_view);
	if (!status)
		ki_log_segment_forget(log, index, out_view->number);
	return status;
}

enum kiln_status ki_log_view_open_alone(struct ki_log *log,
					struct log_index *index, uint64_t word,
					struct log_view *out_view)
{
	return open_view(log, index, word, 1, out_view);
}

static enum kiln_status header_read(struct ki_log *log, uint32_t number,
				    uint32_t units,
				    struct log_record *out_record)
{
	const struct ki_sys *sys = log->sys;
	char path[KI_PATH_MAX];
	int err = ki_log_segment_path(log, number, path);
	int fd = err ? err
		     : sys->open(sys, path,
				 KI_OPEN_READ | ki_log_open_flags(log), 0);

	if (fd < 0)
		return fd == -ENOENT ? KILN_MISS : ki_log_status(fd);
	err = ki_pread_all(sys, fd, out_record, sizeof(*out_record),
			   (uint64_t)units * LOG_UNIT);
	(void)sys->close(sys, fd);
	return err == -ENODATA ? KILN_E_FORMAT : ki_log_status(err);
}

enum kiln_status ki_log_header_read(struct ki_log *log, struct log_index *index,
				    uint64_t word,
				    struct log_record *out_record)
{
	uint32_t min_live = ki_log_min_live(index);
	struct log_view view = { 0 };
	enum kiln_status status;

	if (!log_word_is_live(word, min_live))
		return KILN_MISS;
	view.number = log_word_segment(word, min_live);
	view.units = log_word_units(word);
	status = log->guest ? KILN_OK
			    : ki_log_segment_get(log, index, view.number,
						 &view.segment);
	if (status)
		return status;
	status = KILN_E_FORMAT;
	if (view.segment && view.segment->data)
		status = view_mapped(&view);
	if (status == KILN_E_FORMAT) {
		status =
			header_read(log, view.number, view.units, &view.record);
		if (!status)
			status = accept(&view, UINT64_MAX);
	}
	if (!status)
		*out_record = view.record;
	return status;
}

void ki_log_view_close(struct log_view *view)
{
	kiln_blob_unref(view->container);
	view->container = NULL;
}

int ki_log_view_is_of(const struct log_view *view, const struct kiln_key *key)
{
	return !memcmp(view->record.digest, key->digest, sizeof(key->digest)) &&
	       view->record.key_size == key->record.size &&
	       !memcmp(ki_log_view_key(view), key->record.data,
		       key->record.size);
}

int ki_log_body_is_sound(const struct log_record *record, const uint8_t *bytes)
{
	const uint8_t *key = bytes + sizeof(*record);
	struct ki_piece pieces[] = {
		{ key, record->key_size },
		{ key + record->key_size, record->metadata_size },
		{ bytes + log_value_offset(record),
		  (size_t)record->value_size },
	};

	return record->body_sum == ki_xxh3_64_pieces(pieces, 3);
}

int ki_log_view_check(struct ki_log *log, struct log_view *view)
{
	int once = view->segment && !log->verifies_always &&
		   (uint64_t)view->units * LOG_UNIT < view->segment->size;

	if (once && ki_log_was_checked(view->segment, view->units))
		return 1;
	if (!ki_log_body_is_sound(&view->record, view->bytes))
		return 0;
	if (once)
		ki_log_note_checked(view->segment, view->units);
	return 1;
}

/* ---- Handing out ----------------------------------------------------- */

/* "copied" 1 | epoch 31 | segment 32. */
uint64_t ki_log_place_of(const struct log_index *index, uint32_t number,
			 int is_copy)
{
	return (uint64_t) !!is_copy << 63 |
	       (uint64_t)(index->epoch & 0x7ffffffe) << 32 | number;
}

static void release_owner(void *arg)
{
	kiln_blob_unref(arg);
}

enum kiln_status ki_log_view_value(struct ki_log *log,
				   const struct log_index *index,
				   struct log_view *view,
				   struct kiln_blob **out_value)
{
	struct kiln_blob *owner =
		view->container ? view->container : view->segment->holder;
	struct kiln_blob *blob;
	enum kiln_status status = kiln_blob_wrap(
		ki_log_view_data(view), (size_t)view->record.value_size,
		release_owner, owner, &blob);

	if (status)
		return status;
	blob->place = ki_log_place_of(index, view->number, !!view->container);
	kiln_blob_ref(owner);
	*out_value = blob;
	return KILN_OK;
}
