/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_COUNTS_H
#define KI_CLI_COUNTS_H

/* The store's counters, summed and put into words. */

#include <kiln/inspect.h>

/*
 * A time as people give it: "2026-11-22", midnight here, or "7d", so long before
 * `now_s`.  0, or -EINVAL with a sentence in `message`.
 */
int ki_counts_when(const char *text, uint64_t now_s, uint64_t *out_s,
		   char *message, size_t message_size);

/*
 * What was counted from a time on, by whole hours.  Sums only what is kept by the
 * hour: KILN_HOURLY and KILN_REASONS; all there is, where nothing is older.
 * Returns the time that the sum really begins at, later where hours do not reach
 * so far.
 */
uint64_t ki_counts_since(const struct kiln_store_counters *counters,
			 uint64_t from_s, uint64_t out_total[KILN_N_COUNTERS]);

/* KILN_OK also where the kind of store keeps none (packs): then all are 0. */
enum kiln_status ki_counts_read(struct kiln *kiln,
				struct kiln_store_counters *out_counters);

uint64_t ki_counts_hits(const uint64_t *total);
/* Hits and misses.  Who has none only stored: the worker. */
uint64_t ki_counts_lookups(const uint64_t *total);
/* Hits in 100 look-ups; 0 where there were none. */
double ki_counts_percent(const uint64_t *total);
/* Misses of which nobody said why: of programs that call the library. */
uint64_t ki_counts_untold(const uint64_t *total);

/* A sum of times, which may be none: "4.2 s", "0 s".  Returns `out`. */
const char *ki_counts_time(uint64_t ns, char *out, size_t size);

/* The n-th reason, as a counter; KILN_N_COUNTERS past the last. */
unsigned ki_counts_reason(unsigned n);

#endif /* KI_CLI_COUNTS_H */
