/* SPDX-License-Identifier: MIT */

#include "remote/ahead.h"

#include <stdlib.h>
#include <string.h>

void ki_ahead_init(struct ki_ahead *ahead)
{
	*ahead = (struct ki_ahead){ .window = KI_AHEAD_FIRST };
	ki_mutex_init(&ahead->mutex, KI_RANK_REMOTE);
}

void ki_ahead_fini(struct ki_ahead *ahead)
{
	free(ahead->names);
	ki_mutex_fini(&ahead->mutex);
}

void ki_ahead_set(struct ki_ahead *ahead, const uint8_t *names, size_t n_names)
{
	const size_t size = n_names * KI_REMOTE_NAME_BYTES;
	uint8_t *copy = size ? malloc(size) : NULL;

	if (!copy)
		return;
	memcpy(copy, names, size);
	ki_mutex_lock(&ahead->mutex);
	if (ahead->names) {
		free(copy);
	} else {
		ahead->names = copy;
		ahead->n_names = n_names;
	}
	ki_mutex_unlock(&ahead->mutex);
}

/* Mostly it is the next; n_names: it is not in the order. */
static size_t find(const struct ki_ahead *ahead, const uint8_t *name)
{
	size_t i = ahead->next;

	for (size_t n = ahead->n_names; n--; i++) {
		if (i >= ahead->n_names)
			i = 0;
		if (!memcmp(ahead->names + i * KI_REMOTE_NAME_BYTES, name,
			    KI_REMOTE_NAME_BYTES))
			return i;
	}
	return ahead->n_names;
}

static size_t note_locked(struct ki_ahead *ahead, size_t i,
			  const uint8_t **out_names) KI_REQUIRES(&ahead->mutex)
{
	size_t first, end;

	ahead->next = i + 1;
	/* Half of what was asked for last is still to come. */
	if (ahead->asked > i + 1 && (ahead->asked == ahead->n_names ||
				     ahead->asked - i - 1 > ahead->window / 4))
		return 0;
	first = ahead->asked > i + 1 ? ahead->asked : i + 1;
	end = first + ahead->window;
	if (end > ahead->n_names)
		end = ahead->n_names;
	if (ahead->window < KI_AHEAD_MAX)
		ahead->window *= 2;
	ahead->asked = end;
	*out_names = ahead->names + first * KI_REMOTE_NAME_BYTES;
	return end - first;
}

size_t ki_ahead_note(struct ki_ahead *ahead,
		     const uint8_t name[KI_REMOTE_NAME_BYTES],
		     const uint8_t **out_names)
{
	size_t i, n = 0;

	ki_mutex_lock(&ahead->mutex);
	i = ahead->names ? find(ahead, name) : ahead->n_names;
	if (i < ahead->n_names)
		n = note_locked(ahead, i, out_names);
	ki_mutex_unlock(&ahead->mutex);
	return n;
}

/* Unless another thread has begun anew before them. */
void ki_ahead_refused(struct ki_ahead *ahead, const uint8_t *names)
{
	size_t first;

	ki_mutex_lock(&ahead->mutex);
	first = (size_t)(names - ahead->names) / KI_REMOTE_NAME_BYTES;
	if (ahead->asked > first)
		ahead->asked = first;
	if (ahead->window > KI_AHEAD_FIRST)
		ahead->window /= 2;
	ki_mutex_unlock(&ahead->mutex);
}
