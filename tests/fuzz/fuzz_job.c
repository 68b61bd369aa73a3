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
	ki_put_u32(bytes + 8, 2);
	ki_put_u32(bytes + 12, 0);
	ki_put_u64(bytes + 16, size);
	ki_put_u64(bytes + 24, ki_xxh3_64(bytes + HEADER_BYTES, size));
	ki_put_u64(bytes + 32, ki_xxh3_64(bytes, 32));
}

static uint64_t touch_source(const struct ki_cl_source *source)
{
	uint64_t sum = source->il ? ki_xxh3_64(source->il, source->il_size) : 0;
	cl_uint i;

	for (i = 0; i < source->n_strings; i++)
		sum += ki_xxh3_64(source->strings[i], source->lengths[i]);
	return sum;
}

static uint64_t touch_recipe(const struct ki_cl_recipe *recipe)
{
	uint64_t sum = strlen(recipe->options);
	cl_uint i;

	if (recipe->source)
		sum += touch_source(recipe->source);
	for (i = 0; i < recipe->n_constants; i++)
		sum += ki_xxh3_64(recipe->constants[i].value,
				  recipe->constants[i].size);
	for (i = 0; i < recipe->n_headers; i++)
		sum += strlen(recipe->headers[i].name) +
		       touch_source(recipe->headers[i].source);
	for (i = 0; i < recipe->n_inputs; i++)
		sum += touch_recipe(recipe->inputs[i].recipe);
	for (i = 0; i < recipe->n_binaries; i++)
		sum += ki_xxh3_64(recipe->binaries[i].bytes,
				  recipe->binaries[i].size);
	return sum;
}

/* All that a worker reads of a job. */
static uint64_t touch(const struct ki_cl_job *job)
{
	uint64_t sum = job->n_devices + job->created + job->build_ns +
		       job->stage + job->tries;
	uint32_t i;

	sum += ki_xxh3_64(job->record, job->record_size);
	for (i = 0; i < job->n_environment; i++)
		sum += strlen(strchr(job->environment[i], '='));
	return sum + touch_recipe(job->recipe) + strlen(job->platform_name) +
	       strlen(job->driver) + strlen(job->directory) +
	       strlen(job->application) + strlen(job->name_space);
}

/* What was read is written as bytes that are read as the same. */
static void write_again(const struct ki_cl_recipe *recipe)
{
	struct ki_cl_recipe *again;
	struct ki_bytes bytes;

	ki_bytes_init(&bytes);
	ki_cl_recipe_write(recipe, &bytes);
	if (!bytes.failed &&
	    !ki_cl_recipe_read(bytes.data, bytes.size, &again)) {
		if (touch_recipe(again) != touch_recipe(recipe))
			abort();
		ki_cl_recipe_unref(again);
	}
	ki_bytes_fini(&bytes);
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
	write_again(ki_cl_job(file)->recipe);
	ki_cl_job_free(file);
	return 0;
}
