/* SPDX-License-Identifier: MIT */

/*
 * Reading and checking everything, in two steps.
 *
 *	1  the segments, each from its begin to its end: what is whole and is
 *	   led to by a word gets a bit for the word's slot; what is whole and is
 *	   not is dead (replaced, removed, crowded out)
 *	2  the words whose slot has no bit, one by one: damaged, or moved
 *	   meanwhile, or put after step 1 had passed
 *
 * So the medium is read once and in order, and only what a record, read anew,
 * says of itself counts as damage: a record that was just being written when
 * step 1 came by is whole by the time a word leads to it.
 *
 * Kept sources are read with the segments: nothing leads to them, so there is only
 * to say which of them are what was written.
 *
 * An index that is retired by the end says nothing about the store: then all of it
 * once more, with the one that follows.  What was repaired before it was retired
 * is so in that one too.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define WINDOW_BYTES ((uint64_t)1 << 20)

/* What was read of one segment. */
struct window {
	int fd;
	uint64_t end;	/* of what was ever written there */
	uint64_t start; /* of what is in `data` */
	uint64_t size;
	uint64_t capacity;
	uint8_t *data;
};

/* A word whose file was not there. */
struct gone {
	uint64_t slot;
	uint64_t word;
};

struct check {
	struct ki_log *log;
	struct log_index *index;
	kiln_progress_fn *progress;
	void *arg;
	uint64_t done;
	uint64_t total;
	uint8_t *whole; /* a bit for each slot */
	struct gone *gone;
	size_t n_gone;
	size_t n_gone_max;
	int has_digest; /* of the record that was read last */
	uint8_t digest[KILN_DIGEST_BYTES];
	uint64_t patience_ns; /* left, with who holds byte 0 */
	int has_told;
	struct window window;
	struct kiln_verify_report report;
	struct kiln_verify_report *mended; /* what is true whatever follows */
};

static int has_bit(const uint8_t *bits, uint64_t slot)
{
	return bits[slot / 8] >> slot % 8 & 1;
}

static void set_bit(uint8_t *bits, uint64_t slot)
{
	bits[slot / 8] |= (uint8_t)(1u << slot % 8);
}

/* ---- Segments -------------------------------------------------------- */

/* `bytes` at `offset`; NULL: not to be had. */
static const uint8_t *look(struct check *check, uint64_t offset, uint64_t bytes)
{
	struct window *window = &check->window;
	uint64_t size = bytes > WINDOW_BYTES ? bytes : WINDOW_BYTES;
	uint8_t *data;

	if (bytes > window->end || offset > window->end - bytes)
		return NULL;
	if (offset >= window->start &&
	    offset + bytes <= window->start + window->size)
		return window->data + (offset - window->start);
	if (size > window->capacity) {
		data = realloc(window->data, (size_t)size);
		if (!data)
			return NULL;
		window->data = data;
		window->capacity = size;
	}
	if (size > window->end - offset)
		size = window->end - offset;
	window->start = offset;
	window->size = 0;
	if (ki_pread_all(check->log->sys, window->fd, window->data,
			 (size_t)size, offset))
		return NULL;
	window->size = size;
	if (check->progress)
		check->progress(check->arg, check->done + offset, check->total);
	return window->data;
}

/* Give a bit to each slot whose word leads to this record: 0 if there is
   none. */
static int note_whole(struct check *check, const struct log_record *record,
		      uint32_t number, uint32_t units)
{
	struct log_index *index = check->index;
	uint64_t low = ki_digest_low(record->digest), slots[2];
	uint32_t min_live = ki_log_min_live(index);
	int found = 0;
	unsigned i;

	ki_log_slots_of(index, low, ki_digest_high(record->digest), slots);
	for (i = 0; i < 2 * LOG_WORDS; i++) {
		uint64_t slot = slots[i / LOG_WORDS] + i % LOG_WORDS;
		uint64_t word = index->words[slot];

		if (!log_word_is_live(word, min_live) ||
		    log_word_tag(word) != ki_log_tag_of(low) ||
		    log_word_segment(word, min_live) != number ||
		    log_word_units(word) != units)
			continue;
		set_bit(check->whole, slot);
		found = 1;
	}
	return found;
}

/* The record that begins at `offset`, if one does; bytes to pass over.  0:
   nothing more can be read here. */
static uint64_t check_record(struct check *check, uint32_t number,
			     uint64_t offset)
{
	uint32_t units = (uint32_t)(offset / LOG_UNIT);
	const uint8_t *data = look(check, offset, LOG_UNIT);
	struct log_record record;
	uint64_t bytes;

	if (!data)
		return 0;
	memcpy(&record, data, sizeof(record));
	if (record.magic != LOG_RECORD_MAGIC ||
	    !ki_log_record_is_sound(&record, number, units))
		return LOG_UNIT;
	bytes = log_record_bytes(&record);
	data = look(check, offset, bytes);
	if (!data || !ki_log_body_is_sound(&record, data))
		return LOG_UNIT;
	if (record.flags & LOG_TOMBSTONE)
		return bytes;
	if (note_whole(check, &record, number, units)) {
		check->report.bytes += bytes;
	} else {
		check->report.n_dead++;
		check->report.bytes_dead += bytes;
	}
	return bytes;
}

static uint64_t end_of(const struct log_index *index,
		       const struct log_file *file)
{
	uint64_t tail = index->header->tail;
	uint64_t end = (uint64_t)log_tail_units(tail) * LOG_UNIT;

	return log_tail_is_sound(tail) &&
			       log_tail_segment(tail) == file->number &&
			       end < file->size
		       ? end
		       : file->size;
}

static void check_segment(struct check *check, const struct log_file *file)
{
	const struct ki_sys *sys = check->log->sys;
	struct window *window = &check->window;
	uint64_t offset = 0, passed;
	char path[KI_PATH_MAX];
	int fd;

	if (ki_log_segment_path(check->log, file->number, path))
		return;
	fd = sys->open(sys, path, KI_OPEN_READ | ki_log_open_flags(check->log),
		       0);
	if (fd < 0)
		return;
	window->fd = fd;
	window->end = end_of(check->index, file);
	window->start = window->size = 0;
	do {
		passed = check_record(check, file->number, offset);
		offset += passed;
	} while (passed);
	(void)sys->close(sys, fd);
}

static enum kiln_status check_segments(struct check *check)
{
	struct log_census census;
	enum kiln_status status = ki_log_census_take(check->log, 0, &census);
	size_t i;

	if (status)
		return status;
	for (i = 0; i < census.n_files; i++)
		check->total += end_of(check->index, &census.files[i]);
	for (i = 0; i < census.n_files; i++) {
		check_segment(check, &census.files[i]);
		check->done += end_of(check->index, &census.files[i]);
	}
	ki_log_check_sources(check->log, &census, &check->report);
	ki_log_census_fini(&census);
	return KILN_OK;
}

/* ---- Words ----------------------------------------------------------- */

/*
 * KILN_OK; KILN_E_FORMAT (the record is damaged), KILN_MISS (its file is gone),
 * KILN_E_COLLISION (the record is another's: it is the word that is damaged);
 * others: not readable now, which says nothing about the record.
 */
static enum kiln_status check_word(struct check *check, uint64_t slot,
				   uint64_t word)
{
	struct log_view view;
	enum kiln_status status =
		ki_log_view_open_alone(check->log, check->index, word, &view);

	check->has_digest = !status;
	if (status)
		return status;
	memcpy(check->digest, view.record.digest, sizeof(check->digest));
	if (!ki_log_belongs(check->index, slot, word, view.record.digest))
		status = KILN_E_COLLISION;
	else if (!ki_log_view_check(check->log, &view))
		status = KILN_E_FORMAT;
	else
		check->report.bytes += log_record_bytes(&view.record);
	ki_log_view_close(&view);
	return status;
}

static int still_leads(const struct log_index *index, uint64_t slot,
		       uint64_t word)
{
	return index->words[slot] == word &&
	       log_word_is_live(word, ki_log_min_live(index));
}

static struct kiln_damaged name_of(const struct check *check, uint64_t word,
				   enum kiln_status status)
{
	uint32_t number = log_word_segment(word, ki_log_min_live(check->index));
	struct kiln_damaged name = {
		.offset = (uint64_t)log_word_units(word) * LOG_UNIT,
		.has_digest = status == KILN_E_FORMAT && check->has_digest,
	};

	snprintf(name.file, sizeof(name.file), "%s.%08x.val", check->log->name,
		 number);
	if (name.has_digest)
		memcpy(name.digest, check->digest, sizeof(name.digest));
	return name;
}

static void add_damaged(struct kiln_verify_report *report,
			const struct kiln_damaged *name)
{
	report->n_damaged++;
	if (report->n_named < KILN_DAMAGED_MAX)
		report->named[report->n_named++] = *name;
}

static void add_repaired(struct kiln_verify_report *report, int is_lost)
{
	report->n_repaired++;
	report->n_dropped += (uint64_t)is_lost;
}

/*
 * Who holds byte 0 may be stopped.  What is damaged goes all the same, and its
 * bytes with it: they are for people to look at, and worth waiting once.
 */
static int put_aside(struct check *check, uint64_t word)
{
	struct ki_log *log = check->log;
	enum kiln_status status = ki_log_quarantine_add(log, check->index, word,
							&check->patience_ns);

	if (status == KILN_E_TIMEOUT && !check->has_told) {
		check->has_told = 1;
		ki_log_say(log, KILN_LOG_WARNING,
			   "another process keeps the store locked: damaged "
			   "entries are removed, not put aside");
	}
	return !status;
}

/* What became of it, once the record was read. */
static void note_damage(struct check *check, uint64_t slot, uint64_t word,
			enum kiln_status status, int repair)
{
	struct kiln_damaged name = name_of(check, word, status);
	struct log_index *index = check->index;
	int is_lost = 0;

	add_damaged(&check->report, &name);
	if (!repair || (status != KILN_E_FORMAT && status != KILN_E_COLLISION))
		return;
	if (status == KILN_E_FORMAT)
		is_lost = !put_aside(check, word);
	if (!ki_log_word_swap(index, slot, word, 0))
		return;
	add_repaired(&check->report, is_lost);
	if (ki_log_is_retired(index))
		return; /* the one that follows may have it */
	add_damaged(check->mended, &name);
	add_repaired(check->mended, is_lost);
}

static enum kiln_status note_gone(struct check *check, uint64_t slot,
				  uint64_t word)
{
	size_t n_max = check->n_gone_max ? check->n_gone_max * 2 : 64;
	struct gone *gone;

	if (check->n_gone == check->n_gone_max) {
		gone = realloc(check->gone, n_max * sizeof(*gone));
		if (!gone)
			return KILN_E_NO_MEMORY;
		check->gone = gone;
		check->n_gone_max = n_max;
	}
	check->gone[check->n_gone++] = (struct gone){ slot, word };
	return KILN_OK;
}

static enum kiln_status check_slot(struct check *check, uint64_t slot,
				   int repair)
{
	struct log_index *index = check->index;
	uint64_t word = index->words[slot];
	enum kiln_status status = KILN_OK;

	if (!log_word_is_live(word, ki_log_min_live(index)))
		return KILN_OK;
	if (!has_bit(check->whole, slot))
		status = check_word(check, slot, word);
	if (status == KILN_MISS)
		return note_gone(check, slot, word);
	if (!status)
		check->report.n_entries += !log_word_is_tentative(word);
	else if (still_leads(index, slot, word))
		note_damage(check, slot, word, status, repair);
	return KILN_OK;
}

/* Those whose file was not there once more at the end: a removal takes the file
   of a large record first, and then the word. */
static enum kiln_status check_words(struct check *check, int repair)
{
	uint64_t n_slots = check->index->n_buckets * LOG_WORDS, slot;
	enum kiln_status status = KILN_OK;
	size_t i;

	for (slot = 0; slot < n_slots && !status; slot++)
		status = check_slot(check, slot, repair);
	for (i = 0; i < check->n_gone && !status; i++) {
		const struct gone *gone = &check->gone[i];

		if (!still_leads(check->index, gone->slot, gone->word))
			continue;
		check->report.n_gone++;
		if (repair)
			(void)ki_log_word_swap(check->index, gone->slot,
					       gone->word, 0);
	}
	return status;
}

/* ---- The account ----------------------------------------------------- */

/* Whether a segment's file is gone; asks once for many words in a row. */
struct presence {
	int is_known;
	uint32_t number;
	int is_gone;
};

static int is_gone(struct ki_log *log, struct presence *presence,
		   uint32_t number)
{
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	if (!presence->is_known || presence->number != number)
		*presence = (struct presence){
			.is_known = 1,
			.number = number,
			.is_gone = !ki_log_segment_path(log, number, path) &&
				   log->sys->lstat(log->sys, path, &info) ==
					   -ENOENT,
		};
	return presence->is_gone;
}

void ki_log_count_anew(struct ki_log *log, struct log_index *index,
		       struct kiln_verify_report *report)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	struct presence presence = { 0 };
	uint64_t bytes = 0, n = 0;

	report->n_noted = index->header->n_entries;
	report->bytes_noted = index->header->bytes_live;
	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = index->words[slot];
		uint32_t min_live = ki_log_min_live(index);

		if (word && !log_word_is_live(word, min_live)) {
			(void)ki_log_word_swap(index, slot, word, 0);
		} else if (word &&
			   is_gone(log, &presence,
				   log_word_segment(word, min_live)) &&
			   still_leads(index, slot, word)) {
			report->n_gone += (uint64_t)ki_log_word_swap(
				index, slot, word, 0);
		}
		word = index->words[slot];
		n += !!word;
		bytes += word ? log_word_bytes(word) : 0;
	}
	index->header->n_entries = report->n_counted = n;
	index->header->bytes_live = report->bytes_counted = bytes;
}

/* ---- Both ------------------------------------------------------------ */

/* Who makes it grow may have stopped before the other had its name: to look, it
   still serves. */
static int is_over(const struct ki_log *log, const struct log_index *index,
		   unsigned flags)
{
	struct ki_file_info info;

	if (!ki_log_is_retired(index))
		return 0;
	return flags || index->header->retired == LOG_RETIRED_WIPED ||
	       log->sys->stat(log->sys, log->index_path, &info) ||
	       info.inode != index->inode || info.device != index->device;
}

/* LOG_AGAIN: the index was retired; *report has what was repaired. */
static enum kiln_status verify(struct ki_log *log, struct log_index *index,
			       unsigned flags, kiln_progress_fn *progress,
			       void *arg, struct kiln_verify_report *report)
{
	int repair = !!(flags & KILN_VERIFY_REPAIR);
	struct check check = {
		.log = log,
		.index = index,
		.progress = progress,
		.arg = arg,
		.report = *report,
		.mended = report,
		.patience_ns = (uint64_t)LOG_CHANGE_TIMEOUT_MS * 1000000,
	};
	enum kiln_status status = KILN_OK;

	if (flags != KILN_VERIFY_ACCOUNTING) {
		check.whole = calloc((size_t)index->n_buckets, LOG_WORDS / 8);
		status =
			check.whole ? check_segments(&check) : KILN_E_NO_MEMORY;
		if (!status)
			status = check_words(&check, repair);
	}
	if (!status && flags)
		ki_log_count_anew(log, index, &check.report);
	if (!status && is_over(log, index, flags))
		status = LOG_AGAIN;
	if (!status && progress)
		progress(arg, check.total, check.total);
	if (!status)
		*report = check.report;
	free(check.window.data);
	free(check.whole);
	free(check.gone);
	return status;
}

/* There is none to work with: because it waits to be made anew? */
static void note_index(struct ki_log *log, struct kiln_verify_report *report)
{
	if (!ki_log_is_damaged(log))
		return;
	report->n_damaged = report->n_named = 1;
	snprintf(report->named[0].file, sizeof(report->named[0].file), "%s.idx",
		 log->name);
}

/* Not by ki_log_change(): without flags it changes nothing and reads whatever may
   be read. */
enum kiln_status ki_log_verify(struct kiln_tier *tier, unsigned flags,
			       kiln_progress_fn *progress, void *arg,
			       struct kiln_verify_report *out_report)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct kiln_verify_report report = { 0 };
	enum kiln_status status = LOG_AGAIN;
	_Atomic uint64_t *stripe;
	struct log_index *index;
	int tries;

	if (flags && log->readonly)
		return KILN_E_READONLY;
	stripe = ki_log_enter(log);
	for (tries = 0; tries < LOG_TRIES && status == LOG_AGAIN; tries++) {
		status = ki_log_current(log, flags ? LOG_CHANGE : LOG_READ,
					&index);
		if (!status && flags && !index->writable)
			status = KILN_E_READONLY;
		if (!status)
			status = ki_log_index_bring(index, NULL);
		if (!status)
			status = verify(log, index, flags, progress, arg,
					&report);
	}
	if (status == KILN_MISS)
		note_index(log, &report);
	if (!status || status == KILN_MISS)
		*out_report = report;
	ki_log_leave(log, stripe);
	if (status == LOG_AGAIN)
		return KILN_E_TIMEOUT;
	return status == KILN_MISS ? KILN_OK : status;
}
