/* SPDX-License-Identifier: MIT */

/* Why builds fail, from one structure into another. */

#include <stdlib.h>

#include "program/program.h"

void kiln_program_failure_fini(struct kiln_program_failure *failure)
{
	free(failure->message);
	kiln_program_failure_init(failure);
}

/* Takes the result's message. */
void ki_failure_from_result(struct kiln_program_failure *failure,
			    const struct kiln_build_result *result)
{
	free(failure->message);
	failure->kind = result->kind;
	failure->code = result->code;
	failure->message = result->message;
}

/* The message stays the failure's. */
void ki_result_from_failure(struct kiln_build_result *result,
			    const struct kiln_program_failure *failure)
{
	result->kind = failure->kind;
	result->code = failure->code;
	result->message = failure->message;
}

void ki_failure_give(struct kiln_program_failure *out,
		     struct kiln_program_failure *failure)
{
	if (out) {
		free(out->message);
		out->kind = failure->kind;
		out->code = failure->code;
		out->message = failure->message;
		failure->message = NULL;
	}
	kiln_program_failure_fini(failure);
}
