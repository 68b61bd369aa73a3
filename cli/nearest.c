/* SPDX-License-Identifier: MIT */

#include "nearest.h"

#include <errno.h>
#include <string.h>

#include "compare.h"
#include "what.h"

static int is_nearer(const struct ki_distance *a, const struct ki_distance *b)
{
	if (a->is_other_source != b->is_other_source)
		return a->is_other_source < b->is_other_source;
	if (a->n_differences != b->n_differences)
		return a->n_differences < b->n_differences;
	return a->created > b->created;
}

static uint64_t metadata_number(const struct kiln_entry *entry,
				enum kiln_metadata_field field)
{
	uint64_t value = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
				     kiln_blob_size(entry->metadata), field,
				     &value);
	return value;
}

static int is_hidden(const struct kiln_entry *entry)
{
	return (metadata_number(entry, KILN_META_FLAGS) & KILN_ENTRY_HIDDEN) !=
	       0;
}

/* 0, -EINVAL if the two cannot be compared, -ENOMEM. */
static int measure(const struct kiln_entry *candidate,
		   const struct kiln_entry *entry,
		   struct ki_distance *out_distance)
{
	struct ki_comparison comparison;
	int err = ki_compare(&comparison, candidate->record, entry->record);

	if (!err && comparison.is_other_kind)
		err = -EINVAL;
	*out_distance = (struct ki_distance){
		comparison.is_other_source,
		comparison.n_differences,
		metadata_number(candidate, KILN_META_CREATED),
	};
	ki_comparison_fini(&comparison);
	return err;
}

void ki_nearest_offer(struct ki_nearest *nearest,
		      const struct kiln_entry *entry,
		      const struct kiln_entry *candidate)
{
	struct ki_distance distance;

	if (!memcmp(candidate->digest, entry->digest, KILN_DIGEST_BYTES) ||
	    is_hidden(candidate) || measure(candidate, entry, &distance) ||
	    (nearest->is_found && !is_nearer(&distance, &nearest->distance)))
		return;
	ki_nearest_fini(nearest);
	nearest->is_found = 1;
	nearest->entry = *candidate;
	kiln_blob_ref(candidate->record);
	kiln_blob_ref(candidate->metadata);
	nearest->distance = distance;
}

void ki_nearest_fini(struct ki_nearest *nearest)
{
	if (nearest->is_found)
		kiln_entry_fini(&nearest->entry);
	nearest->is_found = 0;
}

int ki_nearest_is_known(const struct ki_settings *settings,
			struct kiln_entry *entry)
{
	const int is_told = ki_what_is_sycl(settings) &&
			    ki_sycl_tell_key(settings->directory, entry);

	return is_told || !entry->is_foreign;
}
