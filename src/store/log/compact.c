/* SPDX-License-Identifier: MIT */

/*
 * Room where namespaces have quotas.
 *
 * What a namespace evicts for its quota are single entries, and what they took lies
 * dead in segments of any age, while the oldest segment may be all of others, and
 * alive: by age alone, who floods the store would push them out after all.  So before
 * the oldest goes, segments go of which at most half is alive, the emptiest first,
 * wherever they lie, and what is alive there is carried to the tail, used or not.
 * The marks of use are carried along.  That is bounded like all copying, by
 * copy_bytes_left; what does not fit stays where it is, and so does its segment.  So
 * it is where there is no spare, as after a kill: the tail is full then, and the
 * oldest goes.
 *
 *	0  n_compacted rises
 *	1  each word that leads into the segment is swung to the copy
 *	2  tombstones are copied, in their places of the order, and made of what
 *	   replaced others and was crowded out: older segments stay, and may
 *	   have what these are about
 *	3  the file gets a passing name; words are looked at once more
 *	4  it is unlinked
 *
 * A put that took its room there, when it was the tail, may bring its word out at any
 * moment.  It then looks whether n_compacted has changed since it took the room, and
 * if so for its file.  So one of the two sees the other: the file gets its name back,
 * or the put writes anew.  Killed in between, there are copies of what is there, or
 * a file with a passing name that nothing leads to.
 *
 * An older kiln does not look: where it was held up for as long as it takes to fill
 * a segment, what it put may be missed.
 */

#include "store/log/log.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX 65536 /* between the oldest and the newest */
#define FAILED_MAX  4	  /* segments, at a time */

struct compaction {
	struct ki_log *log;
	struct log_index *index;
	struct log_census *census;
	uint32_t number;
	int fd;
	int failed;
};

/* ---- Choosing -------------------------------------------------------------- */

/* Bytes that words lead to, of each number from the oldest file's on. */
static uint64_t *add_up(const struct log_index *index,
			const struct log_census *census, uint32_t *out_n)
{
	const uint64_t n_slots = index->n_buckets * LOG_WORDS;
	const uint32_t min_live = ki_log_min_live(index);
	const uint32_t first = census->files[0].number;
	const uint32_t n =
		census->files[census->n_files - 1].number - first + 1;
	uint64_t *bytes, slot;

	if (n > NUMBERS_MAX)
		return NULL;
	bytes = calloc(n, sizeof(*bytes));
	for (slot = 0; bytes && slot < n_slots; slot++) {
		uint64_t word = atomic_load_explicit(&index->words[slot],
						     memory_order_relaxed);
		uint32_t i;

		if (!log_word_is_live(word, min_live))
			continue;
		i = log_word_segment(word, min_live) - first;
		if (i < n)
			bytes[i] += log_word_bytes(word);
	}
	*out_n = n;
	return bytes;
}

/* The emptiest but for the oldest, whose turn it is anyway, the newest and the
   tail; n_files: there is none that would do. */
static size_t choose(const struct log_index *index,
		     const struct log_census *census)
{
	const uint32_t tail = log_tail_segment(index->header->tail);
	const uint32_t first = census->files[0].number;
	uint64_t least = UINT64_MAX;
	size_t best = census->n_files;
	uint32_t n;
	uint64_t *bytes = add_up(index, census, &n);

	for (size_t i = 1; bytes && i + 1 < census->n_files; i++) {
		const struct log_file *file = &census->files[i];
		uint64_t live = bytes[file->number - first];

		/* With two names it is one that moves. */
		if (file->number == tail || file->inode || file->stays ||
		    live >= least || live > file->size / 2 ||
		    live > census->copy_bytes_left)
			continue;
		least = live;
		best = i;
	}
	free(bytes);
	return best;
}

/* ---- Carrying over ----------------------------------------------------------- */

static int leads_there(const struct log_index *index, uint64_t word,
		       uint32_t number)
{
	uint32_t min_live = ki_log_min_live(index);

	return log_word_is_live(word, min_live) &&
	       log_word_segment(word, min_live) == number;
}

static void carry_words(struct compaction *compaction)
{
	struct log_index *index = compaction->index;
	const uint64_t n_slots = index->n_buckets * LOG_WORDS;
	uint64_t slot;

	for (slot = 0; slot < n_slots && !compaction->failed; slot++) {
		uint64_t word = index->words[slot];
		uint8_t mark;

		if (!leads_there(index, word, compaction->number))
			continue;
		mark = index->marks[slot];
		if (log_word_is_tentative(word) ||
		    !ki_log_copy_entry(compaction->log, index,
				       compaction->census, compaction->fd,
				       compaction->number, slot, word))
			compaction->failed = index->words[slot] == word;
		else
			index->marks[slot] = mark;
	}
}

/* What says that older records of its key do not count.  KILN_OK to go on: what
   cannot be carried over is noted. */
static enum kiln_status carry_tombstone(void *arg,
					const struct log_record *record,
					uint32_t number, uint32_t units)
{
	struct compaction *compaction = arg;

	if (!(record->flags & (LOG_TOMBSTONE | LOG_REPLACES)) ||
	    (record->flags & LOG_VOID) || compaction->failed)
		return KILN_OK;
	/* That of a wipe is about all keys: it stays where it is. */
	compaction->failed =
		!record->key_size ||
		!ki_log_may_go(compaction->log, compaction->index,
			       compaction->fd, number, units, record);
	return KILN_OK;
}

static int is_led_to(const struct log_index *index, uint32_t number)
{
	const uint64_t n_slots = index->n_buckets * LOG_WORDS;
	uint64_t slot;

	for (slot = 0; slot < n_slots; slot++)
		if (leads_there(index, index->words[slot], number))
			return 1;
	return 0;
}

/* 0: it stays. */
static int drop_file(struct compaction *compaction, const char *path)
{
	struct ki_log *log = compaction->log;
	const struct ki_sys *sys = log->sys;
	char passing[KI_PATH_MAX];

	if (ki_log_temporary_path(log, passing) ||
	    sys->rename(sys, path, passing))
		return 0;
	if (is_led_to(compaction->index, compaction->number) ||
	    sys->unlink(sys, passing)) {
		(void)sys->rename(sys, passing, path);
		return 0;
	}
	ki_log_segment_forget(log, compaction->index, compaction->number);
	compaction->index->header->generation++;
	return 1;
}

static int is_own_file(struct ki_log *log, int fd, uint32_t number)
{
	struct log_record record;

	return !ki_pread_all(log->sys, fd, &record, sizeof(record), 0) &&
	       ki_log_record_is_sound(&record, number, 0) &&
	       (record.flags & LOG_OWN_FILE);
}

/* 0: it stays. */
static int compact(struct ki_log *log, struct log_index *index,
		   struct log_census *census, size_t i)
{
	const struct ki_sys *sys = log->sys;
	struct compaction compaction = {
		.log = log,
		.index = index,
		.census = census,
		.number = census->files[i].number,
	};
	char path[KI_PATH_MAX];
	int dropped = 0;

	if (ki_log_segment_path(log, compaction.number, path))
		return 0;
	compaction.fd =
		sys->open(sys, path, KI_OPEN_READ | ki_log_open_flags(log), 0);
	if (compaction.fd < 0)
		return 0;
	if (is_own_file(log, compaction.fd, compaction.number))
		goto out;
	atomic_fetch_add(&index->header->n_compacted, 1);
	carry_words(&compaction);
	if (!compaction.failed &&
	    ki_log_each_record(log, &census->files[i], carry_tombstone,
			       &compaction))
		compaction.failed = 1;
	if (!compaction.failed)
		dropped = drop_file(&compaction, path);
	if (dropped)
		ki_log_census_remove(census, i);
out:
	(void)sys->close(sys, compaction.fd);
	return dropped;
}

void ki_log_compact(struct ki_log *log, struct log_index *index,
		    struct log_census *census, uint64_t bytes,
		    uint64_t bytes_max)
{
	unsigned n_failed = 0;
	size_t i;

	if (!census->has_quotas || !log_tail_is_sound(index->header->tail))
		return;
	while (census->n_files > 2 && n_failed < FAILED_MAX &&
	       ki_log_is_over(index, census, bytes, bytes_max)) {
		i = choose(index, census);
		if (i == census->n_files)
			return;
		if (!compact(log, index, census, i)) {
			census->files[i].stays = 1;
			n_failed++;
		}
	}
}
