/* SPDX-License-Identifier: MIT */

/* From a fetched binary to an entry: only a higher stage replaces. */

#include "front/opencl/capture.h"
#include <kiln/inspect.h>

#include "front/family.h"
#include "front/opencl/key.h"

uint64_t ki_cl_stage_of(const struct kiln_blob *metadata)
{
	uint64_t stage = KI_CL_STAGE_EARLY;

	(void)kiln_metadata_find_u64(kiln_blob_data(metadata),
				     kiln_blob_size(metadata), KILN_META_STAGE,
				     &stage);
	return stage;
}

/* The stage of the entry that is there. */
static enum kiln_status present_stage(struct kiln *kiln,
				      const struct kiln_key *key,
				      uint64_t *out_stage)
{
	struct kiln_blob *blob = NULL, *metadata = NULL;
	enum kiln_status status = kiln_peek(kiln, key, &blob, &metadata);

	if (status)
		return status;
	*out_stage = ki_cl_stage_of(metadata);
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	return KILN_OK;
}

/* Keep the record of the latest build of this source. */
static void keep_record(struct kiln *kiln, const struct kiln_key *key)
{
	struct kiln_key *family = NULL;

	if (!ki_cl_family_key(key, &family))
		ki_family_keep(kiln, key, family, "opencl");
	kiln_key_free(family);
}

enum kiln_status ki_cl_publish(struct kiln *kiln, const struct kiln_key *key,
			       const void *value, size_t size,
			       struct kiln_metadata *metadata,
			       enum ki_cl_stage stage)
{
	enum kiln_status status;
	uint64_t present = 0;

	kiln_metadata_add_u64(metadata, KILN_META_STAGE, (uint64_t)stage);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, "opencl");
	status = kiln_put(kiln, key, value, size, metadata, 0);
	if (status == KILN_EXISTS) {
		if (!present_stage(kiln, key, &present) &&
		    present >= (uint64_t)stage)
			return KILN_EXISTS;
		status = kiln_put(kiln, key, value, size, metadata,
				  KILN_PUT_REPLACE);
	}
	if (status == KILN_OK)
		keep_record(kiln, key);
	return status;
}
