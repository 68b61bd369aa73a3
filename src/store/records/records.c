/* SPDX-License-Identifier: MIT */

/*
 * kiln.records, opened and closed.
 *
 *	header | record | record | ... | torn | record | record
 *	                                 ^ costs itself: the next one is found
 *	                                   by alignment, magic, place and check
 *
 * What is in the file is known by an index in this process (index.c), by digest
 * and by name, which points into the file; it is brought up to date from where
 * it ended, or made anew when another inode has the name (scan.c).
 */

#include "store/records/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define RENEWING ".new"

void ki_records_enter(struct ki_records *records) KI_ACQUIRE(records->mutex)
{
	ki_mutex_lock(&records->mutex);
}

void ki_records_leave(struct ki_records *records) KI_RELEASE(records->mutex)
{
	if (ki_records_is_guest(records))
		ki_records_close_file(records);
	records->buffer_size = 0;
	ki_mutex_unlock(&records->mutex);
}

int ki_records_ready_to_read(struct ki_records *records)
{
	int err = 0;

	if (records->fd < 0)
		err = ki_records_refresh_locked(records);
	return err < 0 ? err : 0;
}

struct ki_records_totals ki_records_totals(struct ki_records *records)
{
	struct ki_records_totals totals;

	ki_records_enter(records);
	totals = records->totals;
	totals.bytes = records->size;
	totals.bytes_living += records->size < KI_RECORDS_HEADER_BYTES
				       ? records->size
				       : KI_RECORDS_HEADER_BYTES;
	ki_records_leave(records);
	return totals;
}

struct ki_records_settings ki_records_settings(struct ki_records *records)
{
	struct ki_records_settings settings;

	ki_records_enter(records);
	settings = records->settings;
	ki_records_leave(records);
	return settings;
}

static void free_records(struct ki_records *records)
{
	ki_mutex_fini(&records->mutex);
	free(records->path);
	free(records->renewing);
	free(records);
}

enum kiln_status ki_records_open(const struct ki_records_options *options,
				 struct ki_records **out_records)
{
	const size_t size = strlen(options->path);
	struct ki_records *records = calloc(1, sizeof(*records));
	int err;

	if (!records)
		return KILN_E_NO_MEMORY;
	records->sys = options->sys;
	records->flags = options->flags;
	records->fd = -1;
	ki_mutex_init(&records->mutex, KI_RANK_RECORDS);
	records->path = strdup(options->path);
	records->renewing = malloc(size + sizeof(RENEWING));
	if (!records->path || !records->renewing) {
		free_records(records);
		return KILN_E_NO_MEMORY;
	}
	memcpy(records->renewing, options->path, size);
	memcpy(records->renewing + size, RENEWING, sizeof(RENEWING));
	ki_records_forget(records);
	err = ki_records_refresh(records);
	if (err >= 0 && !records->is_newer) {
		*out_records = records;
		return KILN_OK;
	}
	ki_records_close(records);
	return err < 0 ? ki_status_from_errno(err) : KILN_E_FORMAT;
}

/* A kept descriptor that is not our file's any more is not ours to close. */
void ki_records_close(struct ki_records *records)
{
	if (!records)
		return;
	ki_records_let_go(records);
	ki_records_forget(records);
	free(records->buffer);
	free_records(records);
}
