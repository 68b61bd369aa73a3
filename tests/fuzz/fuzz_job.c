/* SPDX-License-Identifier: MIT */

/*
 * A job's file.  An input that begins with a job's magic is taken as it is,
 * anything else as the fields behind a right header, so that checksums do not
 * keep the fuzzer out.
 */

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "front/opencl/job.h"

#define HEADER_BYTES 40

/* Written, so that reading is not optimised away. */
static volatile uint64_t seen;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void seal(uint8_t *bytes, size_t size)
{
	memcpy(bytes, "kilnjob\n", 8);
	ki_put_u32(bytes + 8, 1);
	ki_put_u32(bytes + 12, 0);
	ki_put_u64(bytes + 16, size);
	ki_put_u64(bytes + 24, ki_xxh3_64(bytes + HEADER_BYTES, size));
	ki_put_u64(bytes + 32, ki_xxh3_64(bytes, 32));
}

/* All that a worker reads of a job. */
static uint64_t touch(const struct ki_cl_job *job)
{
	uint64_t sum = job->n_devices + job->created + job->build_ns +
		       job->stage + job->tries;
	uint32_t i;

	sum += ki_xxh3_64(job->record, job->record_size);
	for (i = 0; i < job->recipe->source->n_strings; i++)
		sum += ki_xxh3_64(job->recipe->source->strings[i],
				  job->recipe->source->lengths[i]);
	for (i = 0; i < job->n_environment; i++)
		sum += strlen(strchr(job->environment[i], '='));
	return sum + strlen(job->platform_name) + strlen(job->driver) +
	       strlen(job->recipe->options) + strlen(job->directory) +
	       strlen(job->application) + strlen(job->name_space);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t before =
		size >= 8 && !memcmp(data, "kilnjob\n", 8) ? 0 : HEADER_BYTES;
	uint8_t *bytes = malloc(before + size + 1);
	struct ki_cl_job_file *file;

	if (!bytes)
		return 0;
	if (size)
		memcpy(bytes + before, data, size);
	if (before)
		seal(bytes, size);
	if (ki_cl_job_parse(bytes, before + size, &file)) {
		free(bytes);
		return 0;
	}
	seen = touch(ki_cl_job(file));
	ki_cl_job_free(file);
	return 0;
}
