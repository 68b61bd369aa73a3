/* SPDX-License-Identifier: MIT */
#ifndef KIR_BREAKER_H
#define KIR_BREAKER_H

/*
 * Whether a source is asked.  It knows no clock and no source: times come in, as
 * of loop_now_ns().
 *
 *	CLOSED ──3 faults in a row──> OPEN ──its wait is over──> HALF_OPEN
 *	   ^                           ^                             │
 *	   │                           └────────the probe fails──────┤
 *	   └───────────────────the probe is answered─────────────────┘
 *
 * The first wait is 1 s, each after a probe that failed twice as long, up to 60 s,
 * give or take a quarter, so that a fleet does not come back in step.  One probe is
 * under way at a time, and while it is, nobody else asks.
 *
 * A source that flaps costs little: after a probe one fault opens again, and the
 * wait begins at 1 s again only after BREAKER_GOOD_AGAIN good answers.
 *
 * Unasked    Says nothing of the source; who was to probe gives the probe back, and
 *	      another is due as long after as the first.  Whoever takes one must say
 *	      what became of it on every path: nobody else asks until then.
 *
 * Late       A source that answers, but too late for who waits, opens too; as
 *	      long as lateness is all there is, it may be asked by those who do not
 *	      wait (prefetch).
 */

#include <stdint.h>

#define BREAKER_FAULTS	    3
#define BREAKER_WAIT_MS	    1000
#define BREAKER_WAIT_MS_MAX 60000
#define BREAKER_GOOD_AGAIN  8

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

enum breaker_answer {
	BREAKER_GOOD,
	BREAKER_LATE,
	BREAKER_FAULT,
	BREAKER_UNASKED, /* it never came to the source, for want of memory */
};

/* Zeros are a closed one. */
struct breaker {
	enum breaker_state state;
	unsigned n_faults;     /* in a row */
	unsigned n_good;       /* in a row, while closed */
	int is_only_late;      /* all faults that opened it */
	uint32_t next_wait_ms; /* 0: the first */
	uint64_t until_ns;     /* open: then a probe */
	uint64_t n_opened;     /* ever */
};

/* Whether to ask now.  `waits`: somebody waits for the answer. */
int breaker_lets(const struct breaker *breaker, int waits);

/* What became of a request that was let through.  `random`: any number. */
void breaker_note(struct breaker *breaker, enum breaker_answer answer,
		  uint64_t now_ns, uint32_t random);

/* 1: it is time for a probe; then it is under way until breaker_probed(). */
int breaker_probes(struct breaker *breaker, uint64_t now_ns);
void breaker_probed(struct breaker *breaker, enum breaker_answer answer,
		    uint64_t now_ns, uint32_t random);

/* Open it whatever came before. */
void breaker_open(struct breaker *breaker, enum breaker_answer why,
		  uint64_t now_ns, uint32_t random);

/* How long until the next probe; 0: closed. */
uint32_t breaker_wait_ms(const struct breaker *breaker, uint64_t now_ns);

const char *breaker_state_name(const struct breaker *breaker);

#endif /* KIR_BREAKER_H */
