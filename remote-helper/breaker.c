/* SPDX-License-Identifier: MIT */

#include "breaker.h"

#define NS_OF_MS 1000000u

int breaker_lets(const struct breaker *breaker, int waits)
{
	return breaker->state == BREAKER_CLOSED ||
	       (!waits && breaker->is_only_late);
}

/* Three quarters to five quarters of it. */
static uint64_t jittered_ns(uint32_t ms, uint32_t random)
{
	uint64_t quarters = (uint64_t)ms * NS_OF_MS * 3 / 4;

	/* By the millisecond: as nanoseconds 32 bits are 4 s. */
	return quarters + (uint64_t)(random % (ms / 2 + 1)) * NS_OF_MS;
}

void breaker_open(struct breaker *breaker, enum breaker_answer why,
		  uint64_t now_ns, uint32_t random)
{
	uint32_t wait_ms =
		breaker->next_wait_ms ? breaker->next_wait_ms : BREAKER_WAIT_MS;

	if (breaker->state == BREAKER_CLOSED)
		breaker->n_opened++;
	breaker->state = BREAKER_OPEN;
	breaker->is_only_late = why == BREAKER_LATE;
	breaker->until_ns = now_ns + jittered_ns(wait_ms, random);
	breaker->next_wait_ms = wait_ms < BREAKER_WAIT_MS_MAX / 2
					? 2 * wait_ms
					: BREAKER_WAIT_MS_MAX;
	breaker->n_good = 0;
}

void breaker_note(struct breaker *breaker, enum breaker_answer answer,
		  uint64_t now_ns, uint32_t random)
{
	int was_only_late = !breaker->n_faults || breaker->is_only_late;

	if (answer == BREAKER_UNASKED)
		return;
	if (breaker->state != BREAKER_CLOSED) {
		/* A fault of those who are let through for not waiting. */
		if (answer == BREAKER_FAULT)
			breaker->is_only_late = 0;
		return;
	}
	if (answer == BREAKER_GOOD) {
		breaker->n_faults = 0;
		if (++breaker->n_good >= BREAKER_GOOD_AGAIN)
			breaker->next_wait_ms = 0;
		return;
	}
	breaker->n_good = 0;
	breaker->is_only_late = was_only_late && answer == BREAKER_LATE;
	if (++breaker->n_faults >= BREAKER_FAULTS)
		breaker_open(breaker,
			     breaker->is_only_late ? BREAKER_LATE
						   : BREAKER_FAULT,
			     now_ns, random);
}

int breaker_probes(struct breaker *breaker, uint64_t now_ns)
{
	if (breaker->state != BREAKER_OPEN || now_ns < breaker->until_ns)
		return 0;
	breaker->state = BREAKER_HALF_OPEN;
	return 1;
}

void breaker_probed(struct breaker *breaker, enum breaker_answer answer,
		    uint64_t now_ns, uint32_t random)
{
	if (breaker->state != BREAKER_HALF_OPEN)
		return;
	if (answer == BREAKER_UNASKED) {
		breaker->state = BREAKER_OPEN;
		breaker->until_ns =
			now_ns + jittered_ns(BREAKER_WAIT_MS, random);
		return;
	}
	if (answer != BREAKER_GOOD) {
		breaker_open(breaker, answer, now_ns, random);
		return;
	}
	breaker->state = BREAKER_CLOSED;
	breaker->n_faults = BREAKER_FAULTS - 1;
	breaker->n_good = 0;
}

uint32_t breaker_wait_ms(const struct breaker *breaker, uint64_t now_ns)
{
	if (breaker->state == BREAKER_CLOSED)
		return 0;
	if (breaker->state == BREAKER_HALF_OPEN || breaker->until_ns <= now_ns)
		return 1;
	return (uint32_t)((breaker->until_ns - now_ns) / NS_OF_MS) + 1;
}

const char *breaker_state_name(const struct breaker *breaker)
{
	static const char *const names[] = { "closed", "open", "half-open" };

	return names[breaker->state];
}
