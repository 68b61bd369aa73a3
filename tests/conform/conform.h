/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_CONFORM_CONFORM_H
#define KI_TESTS_CONFORM_CONFORM_H

/*
 * What the tests of conform.c share.  Each of its files has those of one subject
 * and ends in a table of them; conform.c runs them all.
 */

#include <sys/stat.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define BOUND	((uint64_t)4 << 20)
#define HOUR_NS ((int64_t)3600 * 1000000000)

/* ---- The list ------------------------------------------------------------------- */

/* What a test needs; without it, it is left out. */
#define DISK   (1u << 0)
#define REMOVE (1u << 1)
#define WIPE   (1u << 2)
#define LIST   (1u << 3)
#define VERIFY (1u << 4)
#define LIMIT  (1u << 5)
#define LOCK   (1u << 6)
#define COUNT  (1u << 7)
#define NAMES  (1u << 8)
#define SHARES (1u << 9) /* has sessions, and a quota */

struct row {
	struct CMUnitTest test;
	unsigned needs;
};

#define ROW(name, needs)                                                       \
	{                                                                      \
		cmocka_unit_test(name), needs                                  \
	}

#define ROWS_END                                                               \
	{                                                                      \
		{ .name = NULL }, 0                                            \
	}

extern const struct row handle_rows[], bounds_rows[], crowd_rows[],
	directory_rows[], damage_rows[];

/* ---- Means ----------------------------------------------------------------------- */

extern const struct kind *kind; /* that is tested */

/* By how much the wall clock of those opened by the following is put on. */
extern int64_t shift_ns;

struct ki_store_options options_of(const char *directory);
struct kiln_tier *open_with(const struct ki_store_options *options);
struct kiln_tier *open_in(const char *directory);
struct kiln_tier *open_bounded(const char *directory, uint64_t bytes_max,
			       uint32_t flags);

/* As the tier says, and as the kind's files say. */
uint64_t bytes_of(struct kiln_tier *tier);
uint64_t disk_bytes(const char *directory);

/* Every file and directory of a tree. */
typedef void file_fn(const char *path, const struct stat *st, void *arg);
void each_file(const char *directory, file_fn *visit, void *arg);

unsigned count_listed(struct kiln_tier *tier, uint64_t *out_bytes);

#endif /* KI_TESTS_CONFORM_CONFORM_H */
