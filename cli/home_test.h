/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_HOME_TEST_H
#define KI_CLI_HOME_TEST_H

#include "testing.h"

/* A folder of the test's own, with a store in kiln/ and keys in config/; sockets of
   helpers are in it, and these end when it goes.  Setup and teardown of a test. */
extern char *home_directory;
int home_set_up(void **state);
int home_tear_down(void **state);

/* `PROGRAM ARGUMENTS` at home; both lists end with NULL, and what the second sets
   counts. */
struct ended home_run(const char *program, const char *const *arguments,
		      const char *const *variables);

#endif /* KI_CLI_HOME_TEST_H */
