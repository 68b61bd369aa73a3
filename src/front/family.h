/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_FAMILY_H
#define KI_FRONT_FAMILY_H

/*
 * Why a look-up missed.  All keys of one source are a family; under the family's
 * own key the record of its latest member is kept, as a hidden entry.
 */

#include <kiln/inspect.h>
#include <kiln/kiln.h>

/* The family of what has this source, which must be a digest.  KILN_OK, INVALID,
   NO_MEMORY. */
enum kiln_status ki_family_key(const struct kiln_key *key, const char *kind,
			       const struct kiln_field *source,
			       struct kiln_key **out_family);

/* Keep the record of this key as that of the latest. */
void ki_family_keep(struct kiln *kiln, const struct kiln_key *key,
		    const struct kiln_key *family, const char *front);

/*
 * Why a look-up of `key` missed although there was once a build of the same
 * source, of which `record` is the key record: the counter of the first group
 * of fields that differs (MISS_COMPILER, MISS_DEVICE, MISS_OPTIONS,
 * MISS_INCLUDE, MISS_ENVIRONMENT), MISS_NEW if there is none.
 */
enum kiln_counter ki_family_miss_reason(const struct kiln_key *key,
					const void *record, size_t size);

/* The same, with the record that is kept; MISS_NEW if none is. */
enum kiln_counter ki_family_reason(struct kiln *kiln,
				   const struct kiln_key *key,
				   const struct kiln_key *family);

#endif /* KI_FRONT_FAMILY_H */
