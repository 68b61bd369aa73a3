/* SPDX-License-Identifier: MIT */

#include "base/blob.h"

#include <stdint.h>
#include <stdlib.h>

struct kiln_blob *ki_blob_new(size_t size, void **out_data)
{
	struct kiln_blob *blob;

	if (size > SIZE_MAX - sizeof(*blob))
		return NULL;
	blob = malloc(sizeof(*blob) + size);
	if (!blob)
		return NULL;
	*blob = (struct kiln_blob){ .data = blob + 1,
				    .size = size,
				    .place = KI_BLOB_NOWHERE };
	atomic_init(&blob->refs, 1);
	*out_data = blob + 1;
	return blob;
}

enum kiln_status kiln_blob_copy(const void *data, size_t size,
				struct kiln_blob **out_blob)
{
	void *bytes;
	struct kiln_blob *blob = ki_blob_new(size, &bytes);

	if (!blob)
		return KILN_E_NO_MEMORY;
	if (size)
		memcpy(bytes, data, size);
	*out_blob = blob;
	return KILN_OK;
}

enum kiln_status kiln_blob_wrap(const void *data, size_t size,
				kiln_release_fn *release, void *arg,
				struct kiln_blob **out_blob)
{
	void *nothing;
	struct kiln_blob *blob = ki_blob_new(0, &nothing);

	if (!blob)
		return KILN_E_NO_MEMORY;
	blob->data = data;
	blob->size = size;
	blob->release = release;
	blob->arg = arg;
	*out_blob = blob;
	return KILN_OK;
}

struct kiln_blob *kiln_blob_ref(struct kiln_blob *blob)
{
	ki_blob_ref_fn *counter =
		blob ? atomic_load_explicit(&blob->counter,
					    memory_order_acquire)
		     : NULL;

	if (counter)
		counter(blob);
	else if (blob)
		atomic_fetch_add_explicit(&blob->refs, 1, memory_order_relaxed);
	return blob;
}

static void unref(struct kiln_blob *blob)
{
	if (blob)
		ki_blob_drop(blob, 1);
}

ki_blob_unref_fn *_Atomic ki_blob_unref = unref;

/* Nothing here looks at the blob: where a thread counted it, nobody need. */
void kiln_blob_unref(struct kiln_blob *blob)
{
	atomic_load_explicit(&ki_blob_unref, memory_order_acquire)(blob);
}

void ki_blob_drop(struct kiln_blob *blob, size_t n)
{
	/* Whose references are all there are need not fear another's. */
	if (atomic_load_explicit(&blob->refs, memory_order_acquire) != n &&
	    atomic_fetch_sub_explicit(&blob->refs, n, memory_order_acq_rel) !=
		    n)
		return;
	if (blob->release)
		blob->release(blob->arg);
	free(blob);
}

const void *kiln_blob_data(const struct kiln_blob *blob)
{
	return blob->data;
}

size_t kiln_blob_size(const struct kiln_blob *blob)
{
	return blob->size;
}
