/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_BLOB_H
#define KI_BASE_BLOB_H

/*
 * The inside of a blob.  The count is atomic.  A holder that wants to count
 * references elsewhere (the memory tier, per thread) keeps one reference of
 * its own and sets `counter`, which then takes references in the count's
 * place; its function for dropping them stands in for kiln_blob_unref().
 */

#include <stdatomic.h>

#include <kiln/kiln.h>

/* Take a reference, elsewhere or after all in `refs`.  Called for a blob of
   which the caller has a reference. */
typedef void ki_blob_ref_fn(struct kiln_blob *blob);

/* What kiln_blob_unref() does, for every blob, or NULL.  Whoever counts
   elsewhere sets it once. */
typedef void ki_blob_unref_fn(struct kiln_blob *blob);
extern ki_blob_unref_fn *_Atomic ki_blob_unref
	__attribute__((visibility("hidden")));

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
	ki_blob_ref_fn *_Atomic counter; /* NULL: nobody */
};

#define KI_BLOB_NOWHERE UINT64_MAX

/* A blob with uninitialised bytes, to be filled before it is shared. */
struct kiln_blob *ki_blob_new(size_t size, void **out_data);

/* Take n from `refs` itself; the last one frees. */
void ki_blob_drop(struct kiln_blob *blob, size_t n);

#endif /* KI_BASE_BLOB_H */
