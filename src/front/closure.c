/* SPDX-License-Identifier: MIT */

#include "front/closure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Identify a loaded library: memory knows, else the file. */
static int identify_image(const struct ki_sys *sys,
			  const struct ki_image *image,
			  char out[KI_IDENTITY_BYTES])
{
	if (!*image->build_id)
		return ki_library_identity(sys, image->path, out);
	strcpy(out, image->build_id);
	return 0;
}

static int by_image_name(const void *a, const void *b)
{
	return strcmp((*(const struct ki_image *const *)a)->name,
		      (*(const struct ki_image *const *)b)->name);
}

int ki_closure_add(const struct ki_sys *sys, const struct ki_images *images,
		   const struct ki_image *driver, struct ki_fields *fields)
{
	const struct ki_image **closure, *next;
	char identity[KI_IDENTITY_BYTES];
	size_t i, j, k, n = 0;
	int err = 0;

	closure = calloc(images->n + 1, sizeof(*closure));
	if (!closure)
		return -ENOMEM;
	closure[n++] = driver;
	for (i = 0; i < n; i++)
		for (j = 0; closure[i]->needed[j]; j++) {
			next = ki_image_named(images, closure[i]->needed[j]);
			for (k = 0; k < n && closure[k] != next; k++)
				;
			if (next && k == n)
				closure[n++] = next;
		}
	qsort(closure, n, sizeof(*closure), by_image_name);
	for (i = 0; i < n && !err; i++) {
		err = identify_image(sys, closure[i], identity);
		if (!err)
			ki_fields_add_string(fields, "compiler library",
					     closure[i]->name, identity);
	}
	free(closure);
	return err ? err : fields->failed;
}
