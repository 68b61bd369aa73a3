/* SPDX-License-Identifier: MIT */

/*
 * A block cache and the operations on it: the first bytes choose its shape, and
 * each of the others what is done next (libcache/model.h), on a device that
 * fails where the shape says so.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "libcache/model.h"

#define N_STEPS_MAX 2000
/* Bytes, so that steps are fast. */
#define SIZE_MAX_FUZZED 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct model_choices choices = { .bytes = data, .n_bytes = size };
	struct model_shape shape;
	struct model_result result;

	if (!size)
		return 0;
	shape = model_choose_shape(&choices, &model_block, 0, 1);
	if (shape.size > SIZE_MAX_FUZZED)
		return 0;
	result = model_run(&model_block, &shape, &choices, N_STEPS_MAX);
	if (result.wrong > 0) {
		fprintf(stderr, "%s\n", result.message);
		abort();
	}
	return 0;
}
