/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_HARNESS_H
#define KI_TESTS_HARNESS_H

/*
 * What all tests share: cmocka in the order it wants its headers, directories
 * of their own, and processes that start together.  Asserts belong into the
 * main thread of the main process: they longjmp.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A fresh directory of mode 0700, removed with everything in it when the
   program ends well.  The string is the caller's to free(). */
char *harness_directory(void) __attribute__((returns_nonnull));

/* PATH/NAME from malloc(). */
char *harness_path(const char *directory, const char *name)
	__attribute__((returns_nonnull));

/* Remove a directory and what is in it; never follows links. */
void harness_remove(const char *path);

/* What the files in a directory take: of each the larger of its size and its
   blocks, once for all names that it has there. */
uint64_t harness_disk_bytes(const char *directory);

/*
 * After so many seconds a test that waits for something gives up: it hangs.  No
 * bound on what a machine may be busy with besides: those that a scenario states
 * are tested by a clock of the test's own, or at ten times their value.
 */
#define HARNESS_HANG_S 60

/* Whether a child may allocate that was forked while other threads were at it:
   the sanitizers' own allocators may be locked in it for ever. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HARNESS_FORKS_AMONG_THREADS 0
#else
#define HARNESS_FORKS_AMONG_THREADS 1
#endif

/* End a test that cannot be made here, with a word.  (What cmocka's skip()
   prints as TAP is read as a failure.) */
#define HARNESS_LEAVE_OUT(why)                                                 \
	do {                                                                   \
		print_message("# left out: %s\n", why);                        \
		return;                                                        \
	} while (0)

/*
 * Run `body` in `n` child processes that start together once all are there.
 * A child's return value is its exit status.  Returns how many ended with a
 * status other than 0.  Children still alive after `timeout_s` are killed and
 * count as failed.
 */
typedef int harness_child_fn(unsigned index, void *arg);
unsigned harness_processes(unsigned n, harness_child_fn *body, void *arg,
			   unsigned timeout_s);

/* The same with threads; returns the sum of what they return. */
unsigned harness_threads(unsigned n, harness_child_fn *body, void *arg);

/* A file's bytes from malloc(), NUL-ended; NULL if it cannot be read. */
char *harness_read(const char *path, size_t *out_size);
void harness_write(const char *path, const void *data, size_t size);

/* How many descriptors are open, of those below 256.  One call: who counts before and
   after each of thousands of rounds would else be reading directories. */
unsigned harness_n_descriptors(void);

/*
 * On a terminal, a line that is drawn again and again, at most ten times a
 * second: "evict: 120 of 800", or "evict: 120" where the end is not known (0).
 * Elsewhere nothing.  Allocates nothing; for the main thread.
 */
void harness_progress(const char *what, uint64_t done, uint64_t total);

/* Before anything else is said. */
void harness_progress_end(void);

/* A small generator for replayable tests (SplitMix64). */
uint64_t harness_random(uint64_t *state);

#endif /* KI_TESTS_HARNESS_H */
