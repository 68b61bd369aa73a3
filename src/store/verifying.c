/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <string.h>

#include "store/store.h"

void ki_verifying_step(struct ki_verifying *verifying, uint64_t bytes)
{
	verifying->done += bytes;
	if (verifying->done > verifying->total)
		verifying->total = verifying->done;
	if (verifying->progress)
		verifying->progress(verifying->arg, verifying->done,
				    verifying->total);
}

void ki_verifying_damaged(struct ki_verifying *verifying,
			  const uint8_t digest[KILN_DIGEST_BYTES],
			  const char *file)
{
	struct kiln_verify_report *report = &verifying->report;
	struct kiln_damaged *named;

	report->n_damaged++;
	if (report->n_named == KILN_DAMAGED_MAX)
		return;
	named = &report->named[report->n_named++];
	named->has_digest = !!digest;
	if (digest)
		memcpy(named->digest, digest, sizeof(named->digest));
	snprintf(named->file, sizeof(named->file), "%.95s", file);
}

void ki_verifying_end(struct ki_verifying *verifying,
		      struct kiln_verify_report *out_report)
{
	if (verifying->progress)
		verifying->progress(verifying->arg, verifying->total,
				    verifying->total);
	*out_report = verifying->report;
}
