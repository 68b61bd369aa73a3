/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PROGRESS_H
#define KI_CLI_PROGRESS_H

/*
 * How far a long look has come, on one line of standard error that is gone in
 * the end:
 *
 *	[=============>        ]  61 %  412 MiB of 675 MiB  1.2 GiB/s  0.2 s left
 *
 * Nothing where standard error is no terminal.
 */

#include <stdint.h>

struct ki_progress {
	int is_shown;
	int columns;
	uint64_t begun_ns;
	uint64_t drawn_ns; /* 0: not yet */
};

void ki_progress_begin(struct ki_progress *progress);
/* A kiln_progress_fn; its argument is the progress. */
void ki_progress_step(void *progress, uint64_t done, uint64_t total);
void ki_progress_finish(struct ki_progress *progress);

#endif /* KI_CLI_PROGRESS_H */
