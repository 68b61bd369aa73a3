/* SPDX-License-Identifier: MIT */
#ifndef KIR_FIGURES_H
#define KIR_FIGURES_H

/* What is counted of a source. */

#include <stdint.h>

/* X(ID, "name", "what") */
#define FIGURES_COUNTS(X)                                                      \
	X(GETS, "gets", "asked for items")                                     \
	X(HITS, "hits", "had it")                                              \
	X(ABSENT, "absent", "had it not")                                      \
	X(HEADS, "heads", "asked whether it has one")                          \
	X(PUTS, "puts", "items written")                                       \
	X(PUTS_THERE, "puts_there", "were there already")                      \
	X(RANGES, "ranges", "parts of packs")                                  \
	X(LEASES, "leases", "asked for leases, and to renew them")             \
	X(PROBES, "probes", "of its breaker")                                  \
	X(TIMEOUTS, "timeouts", "no answer in the time of a request")          \
	X(LATE, "late", "answered too late for who waited")                    \
	X(BROKEN_OFF, "io", "no connection, or it broke")                      \
	X(WRONG, "wrong", "answered what cannot be")                           \
	X(CREDENTIALS, "credentials", "credentials refused")                   \
	X(FULL, "full", "no room there")                                       \
	X(REPLICA, "replica", "may only be read, for a while")                 \
	X(REFUSED, "refused", "items that were damaged")                       \
	X(UNSIGNED, "unsigned", "items that nobody trusted has signed")

enum figures_count {
#define FIGURES_ENUM(id, name, what) FIGURES_##id,
	FIGURES_COUNTS(FIGURES_ENUM)
#undef FIGURES_ENUM
		FIGURES_N_COUNTS
};

extern const char *const figures_names[FIGURES_N_COUNTS];

/* Times: four steps to each doubling, from 1 us to over an hour. */
#define FIGURES_STEPS 128

/* Zeros are none. */
struct figures {
	uint64_t counts[FIGURES_N_COUNTS];
	uint64_t bytes_in, bytes_out;  /* of items */
	uint64_t steps[FIGURES_STEPS]; /* of gets that were answered */
	uint64_t least_ns;	       /* of these; 0: none was */
};

void figures_time(struct figures *figures, uint64_t ns);

/* The time within which `percent` of all were answered, not more than a fifth too
   much; 0: none were. */
uint64_t figures_percentile_ns(const struct figures *figures, unsigned percent);

#endif /* KIR_FIGURES_H */
