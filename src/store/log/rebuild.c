/* SPDX-License-Identifier: MIT */

/*
 * What the records say, read from the segments: for an index that is made anew.
 *
 * They are met segment by segment, which is not the order in which they were
 * written: copies lie above, files of their own have higher numbers.  Of a key
 * the last by order counts: an entry, or a tombstone that says there is none.
 * A put that only creates found nothing before it, and what it wrote is void if
 * it turned out to be the second of two.  Nothing counts that was before the
 * last mark of a wipe.
 *
 * All are read before the first is placed, so that the index gets the size they
 * need.  The newest come first: where both buckets of one are full, it is the
 * older that has no place.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES 65536u
#define PAGE_BYTES   4096u
#define FAILED_MAX   16 /* a medium may take seconds to say no */

static uintptr_t name_of(const struct log_known *known)
{
	return (uintptr_t)known->digest_low | 1;
}

/* The one of this digest, or NULL. */
static struct log_known *find(const struct log_records *records,
			      const struct log_known *wanted)
{
	uintptr_t i = (uintptr_t)ki_map_get(&records->by_name, name_of(wanted));

	while (i) {
		struct log_known *known = &records->known[i - 1];

		if (known->digest_low == wanted->digest_low &&
		    known->digest_high == wanted->digest_high)
			return known;
		i = known->next;
	}
	return NULL;
}

static enum kiln_status add(struct log_records *records,
			    const struct log_known *known)
{
	size_t n_max = records->n_max ? records->n_max * 2 : 1024;
	uintptr_t name = name_of(known);
	struct log_known *place;

	if (records->n == records->n_max) {
		place = realloc(records->known, n_max * sizeof(*place));
		if (!place)
			return KILN_E_NO_MEMORY;
		records->known = place;
		records->n_max = n_max;
	}
	place = &records->known[records->n];
	*place = *known;
	place->next = (uintptr_t)ki_map_get(&records->by_name, name);
	if (ki_map_put(&records->by_name, name, (void *)(records->n + 1)))
		return KILN_E_NO_MEMORY;
	records->n++;
	return KILN_OK;
}

/* A tombstone counts also for an entry of its own order. */
static int is_outdone(const struct log_known *known,
		      const struct log_known *later)
{
	return log_is_earlier(known->order, later->order) ||
	       (known->order == later->order && (known->word || !later->word));
}

/* What this record did, done again. */
static enum kiln_status replay(void *arg, const struct log_record *record,
			       uint32_t number, uint32_t units)
{
	struct log_records *records = arg;
	struct log_known known = {
		.digest_low = ki_digest_low(record->digest),
		.digest_high = ki_digest_high(record->digest),
		.order = record->order,
	}, *there;

	if (record->flags & LOG_VOID)
		return KILN_OK;
	if ((record->flags & LOG_TOMBSTONE) && !record->key_size &&
	    !known.digest_low && !known.digest_high) {
		if (!records->was_wiped ||
		    log_is_earlier(records->wiped, known.order))
			records->wiped = known.order;
		records->was_wiped = 1;
		return KILN_OK;
	}
	if (!(record->flags & LOG_TOMBSTONE))
		known.word = log_word(ki_log_tag_of(known.digest_low),
				      log_class_of(log_record_bytes(record)),
				      number, units);
	there = find(records, &known);
	if (!there)
		return add(records, &known);
	if (is_outdone(there, &known)) {
		there->order = known.order;
		there->word = known.word;
	}
	return KILN_OK;
}

/* What may fail once is asked for again; what is wanting says nothing about the
   file, and no index is made without it. */
static int open_segment(struct ki_log *log, const char *path)
{
	const struct ki_sys *sys = log->sys;
	int tries, fd = -ENOENT;

	for (tries = 0; tries < 2; tries++) {
		fd = sys->open(sys, path, KI_OPEN_READ | ki_log_open_flags(log),
			       0);
		if (fd >= 0 || fd == -ENOENT)
			break;
	}
	return fd;
}

struct window {
	uint8_t *data;
	uint64_t start;
	uint64_t size;
	unsigned n_failed; /* reads of this segment */
};

/* The unit at `offset`; NULL: it cannot be read.  Of a window that cannot be,
   single pages may. */
static const uint8_t *look(const struct ki_sys *sys, int fd, uint64_t offset,
			   uint64_t end, struct window *window)
{
	uint64_t size =
		end - offset < WINDOW_BYTES ? end - offset : WINDOW_BYTES;

	if (offset >= window->start &&
	    offset + LOG_UNIT <= window->start + window->size)
		return window->data + (offset - window->start);
	window->start = offset;
	window->size = 0;
	if (ki_pread_all(sys, fd, window->data, (size_t)size, offset)) {
		window->n_failed++;
		size = size < PAGE_BYTES ? size : PAGE_BYTES;
		if (ki_pread_all(sys, fd, window->data, (size_t)size, offset))
			return NULL;
	}
	window->size = size;
	return window->data;
}

/* Killed writers leave holes, so every unit may be the start of a record. */
static enum kiln_status read_segment(struct ki_log *log,
				     const struct log_file *file,
				     struct window *window,
				     log_record_fn *visit, void *arg)
{
	const struct ki_sys *sys = log->sys;
	enum kiln_status status = KILN_OK;
	uint64_t offset = 0;
	char path[KI_PATH_MAX];
	int fd;

	if (ki_log_segment_path(log, file->number, path))
		return KILN_OK;
	fd = open_segment(log, path);
	if (ki_log_is_shortage(fd))
		return ki_log_status(fd);
	if (fd < 0)
		return KILN_OK;
	window->size = 0;
	window->n_failed = 0;
	while (!status && offset + LOG_UNIT <= file->size &&
	       window->n_failed <= FAILED_MAX) {
		const uint8_t *data = look(sys, fd, offset, file->size, window);
		uint32_t units = (uint32_t)(offset / LOG_UNIT);
		struct log_record record;

		if (!data) {
			offset += PAGE_BYTES;
			continue;
		}
		memcpy(&record, data, sizeof(record));
		if (ki_log_record_is_sound(&record, file->number, units) &&
		    log_record_bytes(&record) <= file->size - offset) {
			status = visit(arg, &record, file->number, units);
			offset += log_record_bytes(&record);
		} else {
			offset += LOG_UNIT;
		}
	}
	(void)sys->close(sys, fd);
	return status;
}

enum kiln_status ki_log_each_record(struct ki_log *log,
				    const struct log_file *file,
				    log_record_fn *visit, void *arg)
{
	struct window window = { .data = malloc(WINDOW_BYTES) };
	enum kiln_status status = KILN_E_NO_MEMORY;

	if (window.data)
		status = read_segment(log, file, &window, visit, arg);
	if (!status && window.n_failed)
		status = KILN_E_IO;
	free(window.data);
	return status;
}

/* Entries first, and of them the newest. */
static int newest_first(const void *a, const void *b)
{
	const struct log_known *x = a, *y = b;

	if (!x->word != !y->word)
		return x->word ? -1 : 1;
	return x->order == y->order		    ? 0
	       : log_is_earlier(x->order, y->order) ? 1
						    : -1;
}

static void leave_out_what_was_wiped(struct log_records *records)
{
	size_t i;

	for (i = 0; i < records->n && records->was_wiped; i++)
		if (log_is_earlier(records->known[i].order, records->wiped))
			records->known[i].word = 0;
}

enum kiln_status ki_log_records_read(struct ki_log *log,
				     const struct log_census *census,
				     struct log_records *out_records)
{
	enum kiln_status status = KILN_OK;
	struct window window = { .size = 0 };
	size_t i;

	*out_records = (struct log_records){ .n = 0 };
	ki_map_init(&out_records->by_name);
	if (!census->n_files)
		return KILN_OK;
	window.data = malloc(WINDOW_BYTES);
	if (!window.data)
		return KILN_E_NO_MEMORY;
	for (i = 0; i < census->n_files && !status; i++)
		status = read_segment(log, &census->files[i], &window, replay,
				      out_records);
	free(window.data);
	ki_map_fini(&out_records->by_name);
	leave_out_what_was_wiped(out_records);
	if (out_records->n)
		qsort(out_records->known, out_records->n,
		      sizeof(*out_records->known), newest_first);
	while (out_records->n && !out_records->known[out_records->n - 1].word)
		out_records->n--;
	return status;
}

void ki_log_records_place(const struct log_records *records,
			  struct log_index *index)
{
	uint64_t slot;
	size_t i;

	for (i = 0; i < records->n; i++) {
		const struct log_known *known = &records->known[i];

		(void)ki_log_word_insert(index, known->digest_low,
					 known->digest_high, known->word, 0,
					 &slot);
	}
}

void ki_log_records_fini(struct log_records *records)
{
	ki_map_fini(&records->by_name);
	free(records->known);
}
