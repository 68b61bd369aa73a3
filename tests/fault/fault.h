/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_FAULT_FAULT_H
#define KI_TESTS_FAULT_FAULT_H

/*
 * A system that fails at its n-th call:
 *
 *	for (fault_begin(&fault, -ENOSPC); fault_next(&fault);) {
 *		...prepare...
 *		fault_arm(&fault);
 *		status = ...what is tested, with &fault.sys...
 *		fault_disarm(&fault);
 *		...check...
 *	}
 *
 * Each round fails a call further on, first that call alone, then, once no call
 * is left, from that call on.  The last round of each kind fails nothing.  No
 * call is listed by name.  `stride` leaves some out: of the first `n_all` calls
 * none, then ever more; 0 tries all.
 *
 * It tells the truth: a close that fails has closed, a write that fails may
 * have written half, and a call that fails has done nothing else.
 *
 * -ENOMEM stands for allocations (by --wrap), FAULT_SHORT for transfers of one
 * byte.
 */

#include "sys/sys.h"

#define FAULT_SHORT 1

/* The process dies by SIGKILL at its n-th call, a write half done. */
#define FAULT_DIE 2

/* The process stops by SIGSTOP before its n-th call, a write half done, and
   does it when it is continued. */
#define FAULT_STOP 3

struct fault {
	struct ki_sys sys;
	int err;
	unsigned stride;
	unsigned n_all;
	int lasting;	  /* all calls from n on, or the n-th alone */
	unsigned n;	  /* the call to fail, from 1 */
	unsigned n_calls; /* while armed */
	const char *only; /* NULL, or the one call to count */
	int armed;
	unsigned n_fired;
	const char *fired;  /* name of the first call that failed */
	unsigned n_unknown; /* descriptors that could not be looked at */
};

void fault_begin(struct fault *fault, int err);
int fault_next(struct fault *fault);
void fault_arm(struct fault *fault);
void fault_disarm(struct fault *fault);

/* The error of this call, or 0; for those who stand between. */
int fault_strike(struct fault *fault, const char *name);

/*
 * Between arming and disarming, what libc is asked for below ki_sys_posix fails
 * too, for whoever is given no table.  For programs that link system.c.
 */
void fault_arm_system(struct fault *fault);
void fault_disarm_system(struct fault *fault);

/* Blocks that are allocated now: what a round adds is a leak. */
long fault_n_blocks(void);

#endif /* KI_TESTS_FAULT_FAULT_H */
