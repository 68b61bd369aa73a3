/* SPDX-License-Identifier: MIT */

/*
 * A store's counters and their history.  The files are too large to be an input:
 * it is a list of changes to sound ones, eleven bytes each: which file (the low bit)
 * and whether all checks are put right afterwards (the next), a place, and eight
 * bytes that are written there; then, if a single byte is left, where the history
 * is cut short.
 *
 * What must hold besides surviving: names end, and who adds to what can be
 * read finds what was added.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "fuzz/scratch.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHANGE_BYTES 11
#define RECORD_BYTES 1024
#define RECORDS_AT   64
#define N_RECORDS    (1 + KILN_PROGRAMS_MAX)
#define TOTALS_AT    64
#define TOTALS_BYTES 512
#define SUM_AT	     56

static const char *path_of(const char *name)
{
	static char paths[2][4300];
	char *path = paths[name[0] == 's'];

	snprintf(path, sizeof(paths[0]), "%s/kiln.%s", scratch_directory(),
		 name);
	return path;
}

static enum kiln_status count(void)
{
	static const uint64_t deltas[KILN_N_COUNTERS] = {
		[KILN_COUNT_MISSES] = 1, [KILN_COUNT_MISS_NEW] = 1
	};

	return ki_counters_add(&ki_sys_posix, path_of("stats"), 0, "/bin/a",
			       deltas);
}

/* Both files as they are after one miss. */
static void begin(uint8_t *stats, uint8_t *history)
{
	void *data;
	size_t size;

	remove(path_of("stats"));
	remove(path_of("history"));
	if (count() || ki_read_file(&ki_sys_posix, path_of("stats"),
				    KI_STATS_BYTES, &data, &size))
		abort();
	memcpy(stats, data, KI_STATS_BYTES);
	free(data);
	if (ki_read_file(&ki_sys_posix, path_of("history"), KI_HISTORY_BYTES,
			 &data, &size))
		abort();
	memcpy(history, data, KI_HISTORY_BYTES);
	free(data);
}

static void change(uint8_t *file, size_t file_size, const uint8_t *data)
{
	size_t place = ki_get_u16(data) % (file_size - 8);

	memcpy(file + place, data + 2, 8);
}

static void mend(uint8_t *stats, uint8_t *history)
{
	struct ki_piece pieces[] = { { stats, SUM_AT },
				     { stats + TOTALS_AT, TOTALS_BYTES } };

	ki_put_u64(stats + SUM_AT, ki_xxh3_64_pieces(pieces, 2));
	ki_put_u64(history + SUM_AT, ki_xxh3_64(history, SUM_AT));
	for (unsigned i = 0; i < N_RECORDS; i++) {
		uint8_t *record = history + RECORDS_AT + i * RECORD_BYTES;

		ki_put_u64(record, ki_xxh3_64(record + 8, RECORD_BYTES - 8));
	}
}

static enum kiln_status look(struct kiln_store_counters *counters)
{
	enum kiln_status status =
		ki_counters_read(&ki_sys_posix, path_of("stats"), counters);

	if (status)
		return status;
	if (counters->n_programs > KILN_PROGRAMS_MAX)
		abort();
	for (uint64_t i = 0; i < counters->n_programs; i++)
		if (!memchr(counters->programs[i].name, '\0',
			    KILN_PROGRAM_BYTES))
			abort();
	if (!memchr(counters->last_run.name, '\0', KILN_PROGRAM_BYTES))
		abort();
	return KILN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t stats[KI_STATS_BYTES], history[KI_HISTORY_BYTES];
	static struct kiln_store_counters counters;
	int is_mended = 0, is_readable;
	uint64_t before;

	begin(stats, history);
	for (; size >= CHANGE_BYTES; size -= CHANGE_BYTES) {
		if (*data & 1)
			change(history, sizeof(history), data + 1);
		else
			change(stats, sizeof(stats), data + 1);
		is_mended |= *data & 2;
		data += CHANGE_BYTES;
	}
	if (is_mended)
		mend(stats, history);
	scratch_write(path_of("stats"), stats, sizeof(stats));
	scratch_write(path_of("history"), history,
		      size == 1 ? (size_t)*data << 8 : sizeof(history));
	is_readable = !look(&counters);
	before = counters.total[KILN_COUNT_MISSES];
	if (!count() && look(&counters))
		abort();
	if (is_readable && counters.total[KILN_COUNT_MISSES] != before + 1)
		abort();
	return 0;
}
