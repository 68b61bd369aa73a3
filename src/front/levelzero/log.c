/* SPDX-License-Identifier: MIT */

/*
 * Build logs.  A module from an entry has the driver's own log handle, whose
 * text would be that of loading a binary: what the build had said is kept
 * beside it, and answers.
 */

#include "front/levelzero/ze.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"

#define TEXT_BYTES_MAX ((size_t)8 << 20)

struct text {
	size_t size;
	char bytes[];
};

static struct ki_map texts;	 /* under ki_ze_lock: handle -> struct text */
static _Atomic unsigned n_texts; /* a look at it saves the lock */

char *ki_ze_log_text(ze_module_build_log_handle_t log, size_t *out_size)
{
	size_t size = 0;
	char *text;

	if (!log || ki_ze_next.log_string(log, &size, NULL) || !size ||
	    size > TEXT_BYTES_MAX)
		return NULL;
	text = malloc(size);
	if (text && ki_ze_next.log_string(log, &size, text)) {
		free(text);
		return NULL;
	}
	*out_size = size;
	return text;
}

int ki_ze_log_set(ze_module_build_log_handle_t log, const void *bytes,
		  size_t size)
{
	struct text *text = malloc(sizeof(*text) + size), *old;
	int err;

	if (!text)
		return -1;
	text->size = size;
	memcpy(text->bytes, bytes, size);
	ki_mutex_lock(&ki_ze_lock);
	old = ki_map_remove(&texts, (uintptr_t)log);
	err = ki_map_put(&texts, (uintptr_t)log, text);
	atomic_store(&n_texts, (unsigned)texts.n_used);
	ki_mutex_unlock(&ki_ze_lock);
	free(err ? text : NULL);
	free(old);
	return err ? -1 : 0;
}

ze_result_t ZE_APICALL ki_ze_log_destroy(ze_module_build_log_handle_t log)
{
	struct text *text;

	/* First, because the number may come again once the driver has it. */
	if (atomic_load(&n_texts)) {
		ki_mutex_lock(&ki_ze_lock);
		text = ki_map_remove(&texts, (uintptr_t)log);
		atomic_store(&n_texts, (unsigned)texts.n_used);
		ki_mutex_unlock(&ki_ze_lock);
		free(text);
	}
	return ki_ze_next.log_destroy(log);
}

ze_result_t ZE_APICALL ki_ze_log_string(ze_module_build_log_handle_t log,
					size_t *size, char *bytes)
{
	const struct text *text = NULL;

	if (size && atomic_load(&n_texts)) {
		ki_mutex_lock(&ki_ze_lock);
		text = ki_map_get(&texts, (uintptr_t)log);
		if (text && bytes)
			memcpy(bytes, text->bytes,
			       *size < text->size ? *size : text->size);
		if (text)
			*size = text->size;
		ki_mutex_unlock(&ki_ze_lock);
	}
	return text ? ZE_RESULT_SUCCESS
		    : ki_ze_next.log_string(log, size, bytes);
}
