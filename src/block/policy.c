/* SPDX-License-Identifier: MIT */

/*
 * Which line goes.
 *
 * LRU: the oldest stamp of the set.
 *
 * Scan resistant: S3-FIFO within a set.  A new line is on trial; an eighth of
 * the ways, at least one, are for those.  The oldest on trial either was used
 * meanwhile, and becomes one of the main lines, or it goes and leaves a ghost,
 * a fingerprint.  Whoever comes back while its ghost is there is a main line at
 * once.  Main lines go by age as well, but one that was used gets another
 * round.  A stamp is then the time of the last such change.
 */

#include "block/inside.h"

static uint32_t fingerprint(uint64_t block)
{
	return (uint32_t)mix(block + 1) | 1;
}

static uint32_t age(struct kiln_block *b, struct set *set, size_t way)
{
	return load(&set->clock) - load(&stamps_of(b, set)[way]);
}

static int may_go(struct kiln_block *b, size_t set, size_t way, int only_clean)
{
	const struct line *line = &b->lines[set * b->n_ways + way];

	return !line->n_held && !line->n_pinned && !line->writing &&
	       !(only_clean && line->dirty_end);
}

static void restart(struct kiln_block *b, struct set *set, size_t way,
		    unsigned mark)
{
	store(&set->clock, load(&set->clock) + 1);
	store(&stamps_of(b, set)[way], load(&set->clock));
	store(&marks_of(b, set)[way], (uint8_t)mark);
}

void ki_block_look_around(struct kiln_block *b)
{
	struct stripes *hits = b->hits;
	uintptr_t owner, alone = 0;
	size_t i, n_active = 0;
	uint64_t now;

	now = load(&hits->common.hits);
	if (now != load(&hits->common.seen))
		n_active = 2; /* as far as one can know */
	store(&hits->common.seen, now);
	for (i = 0; i < N_STRIPES; i++) {
		owner = load(&hits->owners[i]);
		now = load(&hits->stripes[i].hits);
		if (now == load(&hits->stripes[i].seen)) {
			store(&hits->owners[i], 0);
			continue;
		}
		store(&hits->stripes[i].seen, now);
		alone = owner;
		n_active++;
	}
	if (n_active == 1 && alone && load(&b->is_shared)) {
		store(&b->owner, alone);
		store(&b->is_shared, 0);
	}
}

/* Of all, or of those that have the mark's MARK_MAIN.  *out_n: how many. */
static size_t oldest(struct kiln_block *b, size_t index, int only_clean,
		     int of_all, unsigned mark, size_t *out_n)
{
	struct set *set = set_at(b, index);
	size_t way, found = b->n_ways, n = 0;

	for (way = 0; way < b->n_ways; way++) {
		if (!of_all &&
		    (load(&marks_of(b, set)[way]) & MARK_MAIN) != mark)
			continue;
		if (!may_go(b, index, way, only_clean))
			continue;
		n++;
		if (found == b->n_ways || age(b, set, way) > age(b, set, found))
			found = way;
	}
	*out_n = n;
	return found;
}

static size_t choose_by_trial(struct kiln_block *b, size_t index,
			      int only_clean)
{
	struct set *set = set_at(b, index);
	size_t for_trial = b->n_ways / 8 + !(b->n_ways / 8);
	size_t trial, n_trial, chief, n_chief, rounds;
	unsigned mark;

	for (rounds = 0; rounds < 8 * b->n_ways; rounds++) {
		trial = oldest(b, index, only_clean, 0, 0, &n_trial);
		if (n_trial >= for_trial) {
			mark = load(&marks_of(b, set)[trial]);
			if (!(mark & MARK_HITS))
				return trial;
			restart(b, set, trial, MARK_MAIN);
			continue;
		}
		chief = oldest(b, index, only_clean, 0, MARK_MAIN, &n_chief);
		if (!n_chief)
			return trial;
		mark = load(&marks_of(b, set)[chief]);
		if (!(mark & MARK_HITS))
			return chief;
		restart(b, set, chief, mark - 1);
	}
	return oldest(b, index, only_clean, 1, 0, &n_trial);
}

size_t ki_block_oldest(struct kiln_block *b, size_t index)
{
	struct set *set = set_at(b, index);
	size_t way, found = b->n_ways;

	for (way = 0; way < b->n_ways; way++)
		if (load(&set->tags[way]) &&
		    (found == b->n_ways ||
		     age(b, set, way) > age(b, set, found)))
			found = way;
	return found;
}

size_t ki_block_choose(struct kiln_block *b, size_t index, int only_clean)
{
	struct set *set = set_at(b, index);
	size_t way, n;

	for (way = 0; way < b->n_ways; way++)
		if (!load(&set->tags[way]))
			return way;
	if (b->policy == KILN_BLOCK_SCAN_RESISTANT)
		return choose_by_trial(b, index, only_clean);
	return oldest(b, index, only_clean, 1, 0, &n);
}

void ki_block_note_new(struct kiln_block *b, size_t index, size_t way,
		       uint64_t block)
{
	uint32_t *ghosts = b->ghosts + index * b->n_ways;
	unsigned mark = 0;
	size_t i;

	if (b->policy == KILN_BLOCK_SCAN_RESISTANT)
		for (i = 0; i < b->n_ways; i++)
			if (ghosts[i] == fingerprint(block)) {
				ghosts[i] = 0;
				mark = MARK_MAIN;
			}
	restart(b, set_at(b, index), way, mark);
}

void ki_block_note_evicted(struct kiln_block *b, size_t index, size_t way)
{
	struct set *set = set_at(b, index);
	uint32_t *ghosts = b->ghosts + index * b->n_ways;

	if (b->policy != KILN_BLOCK_SCAN_RESISTANT ||
	    load(&marks_of(b, set)[way]) & MARK_MAIN)
		return;
	ghosts[set->ghost] = fingerprint(load(&set->tags[way]) - 1);
	set->ghost = (uint32_t)((set->ghost + 1) % b->n_ways);
}

void ki_block_note_stuck(struct kiln_block *b, size_t index, size_t way)
{
	restart(b, set_at(b, index), way, MARK_MAIN);
}
