/* SPDX-License-Identifier: MIT */
#ifndef KIR_STUCK_NAMES_TEST_H
#define KIR_STUCK_NAMES_TEST_H

/*
 * Name servers that never answer: in a program with this, getaddrinfo() of
 * STUCK_NAME, whoever calls it, returns only after stuck_names_release().
 */

#define STUCK_NAME "stuck.kiln.invalid"

/* Until now, how many wait or have waited. */
unsigned stuck_names_n_calls(void);
void stuck_names_release(void);

#endif /* KIR_STUCK_NAMES_TEST_H */
