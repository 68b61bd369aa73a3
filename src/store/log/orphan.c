/* SPDX-License-Identifier: MIT */

/*
 * Files of large records that no word leads to.  A put was killed before its
 * word was out, or when it had replaced one and not yet unlinked it; or the
 * word was crowded out, or age took it.  An index made anew would lead to them.
 *
 * One may be of a put that is on its way, so it must have been left alone for
 * a minute; who was held up for longer finds that its file has gone, and writes
 * anew.  The file of the highest number stays in any case: numbers are told
 * from what is there.
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

/* A word leads to a record of this digest. */
static int is_known(struct ki_log *log, struct log_index *index,
		    const uint8_t digest[16])
{
	uint64_t low = ki_digest_low(digest), slots[2];
	struct log_record record;
	unsigned i;

	ki_log_slots_of(index, low, ki_digest_high(digest), slots);
	for (i = 0; i < 2 * LOG_WORDS; i++) {
		uint64_t slot = slots[i / LOG_WORDS] + i % LOG_WORDS;
		uint64_t word = index->words[slot];

		if (word && !log_word_is_tentative(word) &&
		    log_word_tag(word) == ki_log_tag_of(low) &&
		    !ki_log_header_read(log, index, word, &record) &&
		    !memcmp(record.digest, digest, sizeof(record.digest)))
			return 1;
	}
	return 0;
}

/* At the place of `record` in the order; its file is open. */
static int write_tombstone(struct ki_log *log, struct log_index *index, int fd,
			   const struct log_record *record)
{
	const struct ki_sys *sys = log->sys;
	struct log_record tombstone = *record;
	struct log_target target;
	uint32_t number, units;
	uint64_t bytes;
	uint8_t *data;
	int done = 0;

	tombstone.flags = LOG_TOMBSTONE;
	tombstone.metadata_size = 0;
	tombstone.value_size = 0;
	bytes = log_record_bytes(&tombstone);
	data = calloc(1, (size_t)bytes);
	if (!data ||
	    ki_pread_all(sys, fd, data + sizeof(tombstone), record->key_size,
			 sizeof(*record)) ||
	    ki_log_take_room(log, index, bytes, &target, &number, &units))
		goto out;
	tombstone.body_sum =
		ki_xxh3_64(data + sizeof(tombstone), record->key_size);
	ki_log_record_seal(&tombstone, number);
	memcpy(data, &tombstone, sizeof(tombstone));
	done = !ki_pwrite_all(sys, target.fd, data, (size_t)bytes,
			      (uint64_t)units * LOG_UNIT);
	ki_log_target_close(log, &target);
out:
	free(data);
	return done;
}

/* 0 if the file has to stay. */
static int drop(struct ki_log *log, struct log_index *index, uint32_t number)
{
	const struct ki_sys *sys = log->sys;
	struct log_record record;
	char path[KI_PATH_MAX];
	int fd = ki_log_segment_path(log, number, path)
			 ? -1
			 : sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW,
				     0);
	int dropped;

	if (fd < 0)
		return 0;
	dropped = !ki_pread_all(sys, fd, &record, sizeof(record), 0) &&
		  ki_log_record_is_sound(&record, number, 0) &&
		  (record.flags & LOG_OWN_FILE) &&
		  (is_known(log, index, record.digest) ||
		   write_tombstone(log, index, fd, &record)) &&
		  !sys->unlink(sys, path);
	(void)sys->close(sys, fd);
	if (dropped)
		ki_log_segment_forget(log, index, number);
	return dropped;
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
