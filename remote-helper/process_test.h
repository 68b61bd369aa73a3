/* SPDX-License-Identifier: MIT */
#ifndef KIR_PROCESS_TEST_H
#define KIR_PROCESS_TEST_H

/* kiln-remote as a process, for tests. */

#include <sys/types.h>

#define PROCESS_WORDS_MAX 16

/* What it prints goes to /dev/null.  `settings`: "NAME=VALUE", up to NULL, besides
   the test's own environment; may be NULL. */
pid_t process_start(const char *program, const char *const *arguments,
		    const char *const *settings);
/* The same with --socket PATH alone, and returned when somebody listens there. */
pid_t process_serve(const char *program, const char *path,
		    const char *const *settings);
/* Until somebody listens there, and then connected; -1: the process ended before. */
int process_connect(pid_t pid, const char *path);

/* Its exit status; 128 and the signal. */
int process_end(pid_t pid);
/* The same by SIGTERM. */
int process_stop(pid_t pid);

void process_wait_ms(unsigned ms);

#endif /* KIR_PROCESS_TEST_H */
