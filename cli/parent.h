/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PARENT_H
#define KI_CLI_PARENT_H

/*
 * Being the parent of a program without anybody noticing; see parent.c.
 */

#include <signal.h>
#include <sys/types.h>

/*
 * Run argv[0] (searched in PATH) with this environment and stand in for it
 * until it has ended.  0 with its wait status, or a negative errno with
 * *out_is_exec telling whether it was the program that could not be executed.
 * All signals stay blocked; *out_mask is the mask of before.
 */
int ki_parent_run(char *const *argv, char *const *environment,
		  sigset_t *out_mask, int *out_wait_status, int *out_is_exec);

/* End as the program ended: its exit status, or its signal without a core. */
void ki_parent_end(int wait_status) __attribute__((noreturn));

/*
 * Start a program that outlives us: in a session of its own, /dev/null for
 * the three standard descriptors and no others but `keep` (-1: none), all
 * signals as a fresh process has them, in the root directory.  Its process id,
 * or a negative errno; what cannot be executed ends with 127.
 */
pid_t ki_parent_detach(const char *path, char *const *argv,
		       char *const *environment, int keep);

/*
 * Start a program that we wait for, beside us in the same process group; exec
 * leaves it `keep`.  From now on signals that ask us to end go to it instead.
 */
pid_t ki_parent_attach(const char *path, char *const *argv,
		       char *const *environment, int keep);

/* A pipe that exec closes, neither end among the standard descriptors. */
int ki_parent_pipe(int out_ends[2]);

#endif /* KI_CLI_PARENT_H */
