/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_LIVE_H
#define KI_CLI_LIVE_H

/*
 * What happens in a store now: its counters, looked at again and again, and the
 * differences.  Nothing here knows a terminal.
 */

#include <kiln/inspect.h>

#include "store.h"
#include "survey.h"

struct ki_live {
	struct ki_settings *settings;
	struct kiln *kiln; /* NULL: there is no store, yet or any more */
	struct kiln_store_info info;
	struct kiln_store_counters *first; /* what "since then" counts from */
	struct kiln_store_counters *before;
	struct kiln_store_counters *now;
	uint64_t first_ns;
	uint64_t before_ns;
	uint64_t now_ns;
	struct ki_survey *survey; /* of the entries, at times */
	uint64_t survey_due_ns;
};

/* An exit status, and what is wrong has been said.  fini in any case. */
int ki_live_init(struct ki_live *live, struct ki_settings *settings);
void ki_live_fini(struct ki_live *live);

/* Look once more.  A store that has gone counts as one that is not there yet. */
int ki_live_look(struct ki_live *live);
/* Look at the entries, if it is time: their list costs more than counters. */
int ki_live_survey(struct ki_live *live);
/* Count from now on. */
void ki_live_reset(struct ki_live *live);

/* What was counted in the last interval, and how long that was. */
double ki_live_last(const struct ki_live *live, uint64_t *out_total);
/* The same since the first look, or the last reset. */
double ki_live_all(const struct ki_live *live, uint64_t *out_total);

/* Append a frame: lines of at most `columns`, at most `n_lines` of them, ended by
   '\n'.  What matters most is on top. */
void ki_live_frame(const struct ki_live *live, struct ki_bytes *out,
		   int columns, int n_lines);
void ki_live_json(const struct ki_live *live, struct ki_bytes *out);

#endif /* KI_CLI_LIVE_H */
