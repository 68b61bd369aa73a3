/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_BLOB_H
#define KI_BASE_BLOB_H

/*
 * The inside of a blob.  The count is atomic; a holder that wants to count
 * references elsewhere (the memory tier, per thread) keeps one reference of
 * its own and hooks `unref`.
 */

#include <stdatomic.h>

#include <kiln/kiln.h>

struct kiln_blob {
	/* Fixed after creation. */
	const void *data;
	size_t size;
	kiln_release_fn *release;	/* NULL: data follows the structure */
	void *arg;
	/* Where the bytes are: a segment's number, or KI_BLOB_NOWHERE.  Only
	   the tier that made the blob looks at it. */
	uint64_t place;
	/* Atomic. */
	_Atomic size_t refs;
};

#define KI_BLOB_NOWHERE UINT64_MAX

/* A blob with uninitialised bytes, to be filled before it is shared. */
struct kiln_blob *ki_blob_new(size_t size, void **out_data);

#endif /* KI_BASE_BLOB_H */
