/* SPDX-License-Identifier: MIT */

/*
 * Files of large records that no word leads to.  A put was killed before its
 * word was out, or when it had replaced one and not yet unlinked it; or the
 * word was crowded out, or age took it.  An index made anew would lead to them.
 *
 * One may be of a put that is on its way, so it must have been left alone for
 * a minute.  Who was held up for longer brings its word out and then looks for
 * its file; here the file gets a passing name and then its key's words are
 * looked at once more.  So one of the two sees the other: the file gets its name
 * back, or the put writes anew.  The file of the highest number stays in any
 * case: numbers are told from what is there.
 *
 * With the file goes what says that older records of the key do not count.
 * Unless a word leads to one of them or to a later one, a tombstone of the same
 * order takes its place.
 */

#include "store/log/log.h"

#include <stdlib.h>

#define LEFT_ALONE_NS ((int64_t)60 * 1000000000)

/* Numbers of segments, modulo what words can say. */
struct numbers {
	uint64_t bits[(LOG_SEGMENT_MASK + 1) / 64];
};

static void add(struct numbers *numbers, uint32_t number)
{
	number &= LOG_SEGMENT_MASK;
	numbers->bits[number / 64] |= (uint64_t)1 << number % 64;
}

static int has(const struct numbers *numbers, uint32_t number)
{
	number &= LOG_SEGMENT_MASK;
	return numbers->bits[number / 64] >> number % 64 & 1;
}

static void take_out_those_led_to(struct numbers *numbers,
				  const struct log_index *index)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint32_t min_live = ki_log_min_live(index);

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = atomic_load_explicit(&index->words[slot],
						     memory_order_relaxed);
		uint32_t number = (uint32_t)(word >> LOG_OFFSET_BITS);

		number &= LOG_SEGMENT_MASK;
		if (has(numbers, number) && log_word_is_live(word, min_live))
			numbers->bits[number / 64] &=
				~((uint64_t)1 << number % 64);
	}
}

/* What words lead to, in the buckets of one key. */
enum leads { NOWHERE, TO_ITS_KEY, TO_IT };

static enum leads where_words_lead(struct ki_log *log, struct log_index *index,
				   const uint8_t digest[16], uint32_t number)
{
	uint64_t low = ki_digest_low(digest), slots[2];
	uint32_t min_live = ki_log_min_live(index);
	enum leads leads = NOWHERE;
	struct log_record record;
	unsigned i;

	ki_log_slots_of(index, low, ki_digest_high(digest), slots);
	for (i = 0; i < 2 * LOG_WORDS; i++) {
		uint64_t slot = slots[i / LOG_WORDS] + i % LOG_WORDS;
		uint64_t word = index->words[slot];

		if (!log_word_is_live(word, min_live) ||
		    log_word_tag(word) != ki_log_tag_of(low))
			continue;
		if (log_word_segment(word, min_live) == number)
			return TO_IT;
		if (!log_word_is_tentative(word) &&
		    !ki_log_header_read(log, index, word, &record) &&
		    !memcmp(record.digest, digest, sizeof(record.digest)))
			leads = TO_ITS_KEY;
	}
	return leads;
}

/* At the place of `record` in the order; its file is open. */
static int write_tombstone(struct ki_log *log, struct log_index *index, int fd,
			   uint32_t units, const struct log_record *record)
{
	struct kiln_key key = { .record.size = record->key_size };
	int done;

	key.record.data = malloc(record->key_size + 1);
	if (!key.record.data)
		return 0;
	memcpy(key.digest, record->digest, sizeof(key.digest));
	done = !ki_pread_all(log->sys, fd, key.record.data, record->key_size,
			     (uint64_t)units * LOG_UNIT + sizeof(*record)) &&
	       !ki_log_write_tombstone(log, index, &key, record->order);
	free(key.record.data);
	return done;
}

int ki_log_may_go(struct ki_log *log, struct log_index *index, int fd,
		  uint32_t number, uint32_t units,
		  const struct log_record *record)
{
	switch (where_words_lead(log, index, record->digest, number)) {
	case NOWHERE:
		return write_tombstone(log, index, fd, units, record);
	case TO_ITS_KEY:
		return 1;
	case TO_IT:
		break;
	}
	return 0;
}

/* 0 if the file has to stay. */
static int drop(struct ki_log *log, struct log_index *index, uint32_t number)
{
	const struct ki_sys *sys = log->sys;
	char path[KI_PATH_MAX], passing[KI_PATH_MAX];
	struct log_record record;
	int dropped = 0;
	int fd = ki_log_segment_path(log, number, path)
			 ? -1
			 : sys->open(sys, path,
				     KI_OPEN_READ | ki_log_open_flags(log), 0);

	if (fd < 0)
		return 0;
	if (ki_pread_all(sys, fd, &record, sizeof(record), 0) ||
	    !ki_log_record_is_sound(&record, number, 0) ||
	    !(record.flags & LOG_OWN_FILE) ||
	    ki_log_temporary_path(log, passing) ||
	    sys->rename(sys, path, passing))
		goto out;
	/* It has a passing name by now. */
	dropped = ki_log_may_go(log, index, fd, number, 0, &record) &&
		  !sys->unlink(sys, passing);
	if (dropped)
		ki_log_segment_forget(log, index, number);
	else
		(void)sys->rename(sys, passing, path);
out:
	(void)sys->close(sys, fd);
	return dropped;
}

void ki_log_evict_large(struct ki_log *log, struct log_index *index,
			struct log_census *census, uint64_t slot, uint64_t word,
			uint32_t number)
{
	const struct ki_sys *sys = log->sys;
	struct log_record record;
	char path[KI_PATH_MAX];
	size_t i;
	int fd = ki_log_segment_path(log, number, path)
			 ? -1
			 : sys->open(sys, path,
				     KI_OPEN_READ | ki_log_open_flags(log), 0);

	if (fd < 0)
		return;
	/* Killed in between, it is an orphan.  Who has replaced it meanwhile
	   unlinks it. */
	if (!ki_pread_all(sys, fd, &record, sizeof(record), 0) &&
	    ki_log_record_is_sound(&record, number, 0) &&
	    (record.flags & LOG_OWN_FILE) &&
	    write_tombstone(log, index, fd, 0, &record) &&
	    ki_log_word_swap(index, slot, word, 0)) {
		census->n_evicted++;
		if (!sys->unlink(sys, path))
			for (i = 0; i < census->n_files; i++)
				if (census->files[i].number == number) {
					ki_log_census_remove(census, i);
					break;
				}
		ki_log_segment_forget(log, index, number);
		index->header->generation++;
	}
	(void)sys->close(sys, fd);
}

/* A segment of the usual size is not worth a look: few of them are large. */
static int may_be_one(const struct log_file *file, uint64_t segment_bytes,
		      int64_t now_ns)
{
	return file->size != segment_bytes && file->mtime_ns &&
	       file->mtime_ns < now_ns &&
	       now_ns - file->mtime_ns > LEFT_ALONE_NS;
}

uint64_t ki_log_drop_orphans(struct ki_log *log, struct log_index *index,
			     struct log_census *census)
{
	int64_t now_ns = (int64_t)log->sys->realtime_ns(log->sys);
	struct log_limit_values limits;
	struct numbers *numbers = NULL;
	uint64_t n = 0;
	size_t i;

	ki_log_limits_get(log, index, &limits);
	for (i = 0; i + 1 < census->n_files; i++) {
		if (!may_be_one(&census->files[i], limits.segment_bytes,
				now_ns))
			continue;
		if (!numbers)
			numbers = calloc(1, sizeof(*numbers));
		if (!numbers)
			return 0;
		add(numbers, census->files[i].number);
	}
	if (!numbers)
		return 0;
	take_out_those_led_to(numbers, index);
	for (i = 0; i + 1 < census->n_files;) {
		uint32_t number = census->files[i].number;

		if (has(numbers, number) && drop(log, index, number)) {
			ki_log_census_remove(census, i);
			n++;
		} else {
			i++;
		}
	}
	free(numbers);
	return n;
}

#define LOOK_EVERY_NS 60000000000u

void ki_log_drop_orphans_if_due(struct ki_log *log, struct log_index *index,
				struct log_census *census)
{
	uint64_t now_ns = log->sys->monotonic_ns(log->sys);

	if (log->orphans_ns && now_ns - log->orphans_ns < LOOK_EVERY_NS)
		return;
	log->orphans_ns = now_ns;
	(void)ki_log_drop_orphans(log, index, census);
}
