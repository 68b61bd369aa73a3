/* SPDX-License-Identifier: MIT */

/* What builds result in. */

#include <stdlib.h>

#include <kiln/kiln.h>

void kiln_build_result_fini(struct kiln_build_result *result)
{
	free(result->message);
	result->message = NULL;
	kiln_blob_unref(result->blob);
	result->blob = NULL;
	kiln_metadata_free(result->metadata);
	result->metadata = NULL;
}
