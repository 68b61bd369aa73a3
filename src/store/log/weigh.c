/* SPDX-License-Identifier: MIT */

/*
 * What an entry is worth, where evictions go by cost: what is cheap to build
 * again and large goes first.
 *
 * GreedyDual-Size-Frequency in the eight bits of a mark:
 *
 *	7    5 4     1   0
 *	[idle ][ rate ][used]	worth = rate + used - idle
 *
 * The rate is the logarithm of the nanoseconds that its build took for each
 * byte of its record, from 1 to 15; 0: nobody has looked yet.  The metadata
 * tell; who says nothing that can be has a rate in the middle.  A look-up sets
 * the lowest bit, as ever, and nothing else.  Each time that room was made for a
 * third of the bound, all idle counts go up by one, or back to 0 for what was
 * used meanwhile: what is not used is worth half as much after each, without a
 * clock and without the level that GreedyDual adds to what is used.  Where the
 * count ends the rate goes down in its stead, to 1, so that nothing stays for
 * ever for what it cost; once it is used it is looked at again.
 *
 * An eviction first adds up what there is of each worth, in one pass over the
 * index, and sets the level that as much lies below as has to go.  First large
 * files below it go, wherever they lie, the least worth first and of those the
 * oldest (orphan.c, as it leaves behind what these do).  If that is not enough,
 * the oldest segments go as they always do (evict.c), in their order, but what
 * is above the level is carried over.  Of a segment with more of that than may
 * be copied the best is.
 *
 * Marks are hints: what is lost when two write one at once, or an index is made
 * anew, is looked at again, LOOKS_MAX records in a pass.  With an age limit a
 * mark is a time, and evictions go by use.
 */

#include "store/log/log.h"

#include <stdlib.h>

#include "store/evict.h"

#define RATE_SHIFT  1
#define RATE_MASK   0x0fu
#define RATE_MIN_LD 2 /* 4 ns for a byte, and less, is a rate of 1 */
#define RATE_UNSAID 8
#define IDLE_SHIFT  5
#define IDLE_MAX    7u
#define LOOKS_MAX   256
#define AGED_AFTER  3 /* room was made for this part of the bound */

static unsigned rate_of(uint8_t mark)
{
	return mark >> RATE_SHIFT & RATE_MASK;
}

static unsigned worth_of(uint8_t mark)
{
	unsigned rate = rate_of(mark), idle = mark >> IDLE_SHIFT;
	unsigned used = mark & LOG_MARK_USED;

	if (!rate)
		rate = RATE_UNSAID;
	return rate + IDLE_MAX - idle + used;
}

unsigned ki_log_worth(const struct log_index *index, uint64_t slot)
{
	return worth_of(index->marks[slot]);
}

/* ---- Rates ----------------------------------------------------------- */

/* Of a build that took 0 nothing is known. */
static unsigned rate_from(uint64_t build_ns, uint64_t bytes)
{
	uint64_t ns = build_ns / (bytes ? bytes : 1);
	unsigned ld = ns ? 63 - (unsigned)__builtin_clzll(ns) : 0;
	unsigned rate = ld < RATE_MIN_LD ? 1 : ld - RATE_MIN_LD + 1;

	if (!build_ns)
		return RATE_UNSAID;
	return rate < RATE_MASK ? rate : RATE_MASK;
}

/* 0 if its record cannot be read. */
static unsigned look_up_rate(struct ki_log *log, struct log_index *index,
			     uint64_t word)
{
	struct log_view view;
	unsigned rate;

	if (ki_log_view_open(log, index, word, &view))
		return 0;
	rate = rate_from(ki_evict_build_ns(ki_log_view_metadata(&view),
					   view.record.metadata_size),
			 log_record_bytes(&view.record));
	ki_log_view_close(&view);
	return rate;
}

/* ---- One pass -------------------------------------------------------- */

struct weighing {
	struct ki_log *log;
	struct log_index *index;
	int ages;
	unsigned n_looks;
	uint64_t bytes[LOG_WORTHS]; /* of each worth */
};

static uint8_t aged(uint8_t mark)
{
	unsigned idle = mark >> IDLE_SHIFT, rate = rate_of(mark);

	if (mark & LOG_MARK_USED) {
		if (idle == IDLE_MAX)
			rate = 0;
		idle = 0;
	} else if (idle < IDLE_MAX) {
		idle++;
	} else if (rate > 1) {
		rate--;
	}
	return (uint8_t)(idle << IDLE_SHIFT | rate << RATE_SHIFT);
}

static void weigh_slot(struct weighing *weighing, uint64_t slot, uint64_t word)
{
	struct log_index *index = weighing->index;
	uint8_t before = index->marks[slot], mark = before;

	if (!rate_of(mark) && weighing->n_looks < LOOKS_MAX) {
		weighing->n_looks++;
		mark |= (uint8_t)(look_up_rate(weighing->log, index, word)
				  << RATE_SHIFT);
	}
	if (weighing->ages)
		mark = aged(mark);
	if (mark != before)
		index->marks[slot] = mark;
	weighing->bytes[worth_of(mark)] += log_word_bytes(word);
}

static void weigh_all(struct weighing *weighing)
{
	const struct log_index *index = weighing->index;
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint32_t min_live = ki_log_min_live(index);

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = atomic_load_explicit(&index->words[slot],
						     memory_order_relaxed);

		if (log_word_is_live(word, min_live))
			weigh_slot(weighing, slot, word);
	}
}

/* Whether room was made for a part of the bound since that was so last. */
static int is_time(struct log_index *index, uint64_t bytes, uint64_t bytes_max)
{
	_Atomic uint64_t *weighed = &index->header->bytes_weighed;

	*weighed += bytes;
	if (*weighed < bytes_max / AGED_AFTER)
		return 0;
	*weighed = 0;
	return 1;
}

/* Up to which worth `bytes` lie. */
static unsigned level_of(const uint64_t by_worth[LOG_WORTHS], uint64_t bytes)
{
	uint64_t below = 0;
	unsigned worth;

	for (worth = 0; worth < LOG_WORTHS - 1; worth++) {
		below += by_worth[worth];
		if (below >= bytes)
			break;
	}
	return worth;
}

void ki_log_weigh(struct ki_log *log, struct log_index *index,
		  struct log_census *census, uint64_t bytes, uint64_t bytes_max)
{
	uint64_t bound = bytes_max ? bytes_max : census->bytes;
	uint64_t all = census->bytes + bytes + LOG_SLACK_BYTES;
	struct weighing weighing = { .log = log, .index = index };

	if (!ki_log_goes_by_cost(index))
		return;
	weighing.ages = is_time(index, bytes, bound);
	weigh_all(&weighing);
	if (!census->weighs)
		census->n_to_pass = 2 * census->n_files + 8;
	census->weighs = 1;
	census->goes_up_to =
		level_of(weighing.bytes, all > bound ? all - bound : 1);
}

/* ---- Large files ----------------------------------------------------- */

struct candidate {
	uint64_t slot;
	uint64_t word;
	uint32_t number;
	unsigned worth;
};

static int least_first(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->worth != y->worth)
		return x->worth < y->worth ? -1 : 1;
	if (x->number != y->number)
		return log_is_before(x->number, y->number) ? -1 : 1;
	return 0;
}

/* A word that leads to the begin of a file that is as large as it says may lead
   to one of a large record. */
static int may_be_large(const struct log_index *index,
			const struct log_census *census, uint64_t word)
{
	uint32_t number = log_word_segment(word, ki_log_min_live(index));
	size_t i;

	if (log_word_units(word) || log_word_is_tentative(word))
		return 0;
	/* Not the oldest, whose turn it is anyway, nor the newest. */
	for (i = 1; i + 1 < census->n_files; i++)
		if (census->files[i].number == number)
			return census->files[i].size <=
			       ((log_word_bytes(word) + 4095) &
				~(uint64_t)4095);
	return 0;
}

static size_t list_candidates(const struct log_index *index,
			      const struct log_census *census,
			      struct candidate list[LOG_FILES_MAX])
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot;
	uint32_t min_live = ki_log_min_live(index);
	size_t n = 0;

	for (slot = 0; slot < n_slots && n < LOG_FILES_MAX; slot++) {
		uint64_t word = atomic_load_explicit(&index->words[slot],
						     memory_order_relaxed);
		unsigned worth;

		if (!log_word_is_live(word, min_live) || log_word_units(word))
			continue;
		worth = ki_log_worth(index, slot);
		if (worth <= census->goes_up_to &&
		    may_be_large(index, census, word))
			list[n++] = (struct candidate){
				slot, word, log_word_segment(word, min_live),
				worth
			};
	}
	return n;
}

void ki_log_evict_cheap(struct ki_log *log, struct log_index *index,
			struct log_census *census, uint64_t bytes,
			uint64_t bytes_max)
{
	struct candidate list[LOG_FILES_MAX];
	size_t n, i;

	if (!census->weighs)
		return;
	n = list_candidates(index, census, list);
	if (n)
		qsort(list, n, sizeof(*list), least_first);
	for (i = 0; i < n && ki_log_is_over(index, census, bytes, bytes_max);
	     i++)
		ki_log_evict_large(log, index, census, list[i].slot,
				   list[i].word, list[i].number);
}

/* ---- One segment ----------------------------------------------------- */

unsigned ki_log_level_of_segment(const struct log_index *index,
				 const struct log_census *census,
				 uint32_t number)
{
	uint64_t n_slots = index->n_buckets * LOG_WORDS, slot, above = 0;
	uint32_t min_live = ki_log_min_live(index);
	uint64_t by_worth[LOG_WORTHS] = { 0 };
	unsigned worth = LOG_WORTHS;

	for (slot = 0; slot < n_slots; slot++) {
		uint64_t word = atomic_load_explicit(&index->words[slot],
						     memory_order_relaxed);

		if (log_word_is_live(word, min_live) &&
		    log_word_segment(word, min_live) == number)
			by_worth[ki_log_worth(index, slot)] +=
				log_word_bytes(word);
	}
	while (worth && above + by_worth[worth - 1] <= census->copy_bytes_left)
		above += by_worth[--worth];
	/* All of it may be copied, or what is worth this and less goes. */
	return worth && worth - 1 > census->goes_up_to ? worth - 1
						       : census->goes_up_to;
}
