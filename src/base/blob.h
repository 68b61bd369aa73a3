/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_BLOB_H
#define KI_BASE_BLOB_H

/*
 * The inside of a blob.  The count is atomic.  A holder that wants to count
 * references elsewhere (the memory tier, per thread) keeps one reference of
 * its own and sets `counter`: references are then first offered to it.
 */

#include <stdatomic.h>

#include <kiln/kiln.h>

/*
 * Count n (1 or -1) references, elsewhere or after all in `refs`.  Called for
 * a blob of which the caller has a reference.
 */
typedef void ki_blob_count_fn(struct kiln_blob *blob, int n);

/*
 * Asked before anything of the blob is looked at: 1 if it dropped one
 * reference.  Whoever counts elsewhere sets it once; NULL until then.
 */
typedef int ki_blob_drop_fn(struct kiln_blob *blob);
extern ki_blob_drop_fn *_Atomic ki_blob_drop_first;

struct kiln_blob {
	/* Fixed after creation. */
	const void *data;
	size_t size;
	kiln_release_fn *release; /* NULL: data follows the structure */
	void *arg;
	/* Where the bytes are: a segment's number, or KI_BLOB_NOWHERE.  Only
	   the tier that made the blob looks at it. */
	uint64_t place;
	/* Atomic. */
	_Atomic size_t refs;
	ki_blob_count_fn *_Atomic counter; /* NULL: nobody */
};

#define KI_BLOB_NOWHERE UINT64_MAX

/* A blob with uninitialised bytes, to be filled before it is shared. */
struct kiln_blob *ki_blob_new(size_t size, void **out_data);

/* Take n from `refs` itself; the last one frees. */
void ki_blob_drop(struct kiln_blob *blob, size_t n);

#endif /* KI_BASE_BLOB_H */
