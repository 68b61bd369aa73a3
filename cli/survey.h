/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_SURVEY_H
#define KI_CLI_SURVEY_H

/*
 * What is in a store, counted in one pass over its entries, in memory that does
 * not depend on how many there are.  kiln's own bookkeeping is left out.
 */

#include <kiln/inspect.h>

#include "entry.h"
#include "store.h"

#define KI_GROUPS_MAX 256 /* that are told apart; the rest are one */
#define KI_NOTED_MAX  10
#define KI_BINS_MAX   8
#define KI_NAME_BYTES 256 /* of a text kept; longer ones are cut */

struct ki_group {
	char name[KI_NAME_BYTES]; /* "": nobody said; of the rest, "others" */
	int is_rest; /* all that had no place, whatever they are called */
	uint64_t hash;
	uint64_t n;
	uint64_t bytes;
	uint64_t build_ns;
};

struct ki_groups {
	struct ki_group groups[KI_GROUPS_MAX + 1]; /* the largest first */
	size_t n;
	uint64_t n_others; /* entries of groups that had no place */
};

struct ki_noted {
	char key[KI_SHORT_KEY + 1];
	char application[KI_NAME_BYTES];
	char options[KI_NAME_BYTES];
	uint64_t build_ns;
	uint64_t bytes;
	uint64_t created; /* seconds since 1970; 0: unknown */
	uint64_t used;	  /* the same */
	uint64_t turn;	  /* in eviction, from 1; 0: there is no order */
};

struct ki_notes {
	struct ki_noted noted[KI_NOTED_MAX]; /* the foremost first */
	size_t n;
};

struct ki_bin {
	const char *name;
	uint64_t n;
	uint64_t bytes;
};

struct ki_survey {
	uint64_t now_s;
	uint64_t n;
	uint64_t bytes;
	struct ki_groups applications;
	struct ki_groups namespaces;
	struct ki_groups devices;
	struct ki_bin ages[KI_BINS_MAX]; /* since they were made */
	struct ki_bin sizes[KI_BINS_MAX];
	struct ki_notes slowest;
	struct ki_notes biggest;
	/*
	 * By turn where entries have one.  Else a guess: what was not used since
	 * the last eviction, then what was, of each the oldest first, or where
	 * evictions go by cost what is large and was built fast.
	 */
	struct ki_notes next;
	int has_turns;
	int is_by_cost;
};

/* For free(); NULL without memory. */
struct ki_survey *ki_survey_new(void);
/* Look at every entry.  `kiln` may be NULL: there are none.  An exit status, and
   what is wrong has been said. */
int ki_survey_take(struct ki_survey *survey, struct kiln *kiln,
		   const struct ki_settings *settings);

#endif /* KI_CLI_SURVEY_H */
