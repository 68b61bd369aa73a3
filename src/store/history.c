/* SPDX-License-Identifier: MIT */

/*
 * NAME.history: why it was a miss, hour by hour; who asked; the last run.
 *
 *	0	header: magic, version, since, newest hour, sum
 *	64	the last run, then 16 programs: records of 1024 bytes
 *	17472	744 hours of 16 numbers of 32 bits, hour h in row h mod 744
 *
 * 65536 bytes from the first on.  A file of its own, because a kiln that knows
 * only NAME.stats begins that anew where it has another size: so it goes on
 * counting there, both see the other's totals, and what it does not know here is
 * missing here alone.
 *
 * A record has its own check: who adds writes two of them, and a reader that
 * meets one half written looks again.  A program's record that is damaged is a
 * free one.  Where all are taken, the one goes that was added to least recently.
 *
 * A run is a process.  The last one is that which began last among those that
 * looked something up: neither the worker, which only stores, nor an older
 * process that goes on beside it takes its place.
 */

#include "store/history.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "store/store.h"

#define MAGIC	  0x59524f545349484bull /* "KHISTORY" */
#define VERSION	  1
#define N_TOTALS  64
#define N_REASONS KILN_REASONS_MAX
#define N_RECORDS (1 + KILN_PROGRAMS_MAX)
#define READS_MAX 8

struct head {
	uint64_t magic;
	uint64_t version;
	uint64_t since_s;
	uint64_t newest_hour;
	uint64_t reserved[3];
	uint64_t sum; /* XXH3-64 of this before */
};

struct record {
	uint64_t sum; /* XXH3-64 of this behind; a free one is all zeros */
	uint64_t first_s;
	uint64_t last_s;
	uint64_t process; /* of the last run: ki_process_name() and start */
	uint64_t start;
	uint64_t reserved[3];
	uint64_t totals[N_TOTALS];
	char name[KILN_PROGRAM_BYTES]; /* NUL-ended */
};

/* All but the hours, which are read and written row by row. */
struct table {
	struct head head;
	struct record records[N_RECORDS]; /* the first one: the last run */
};

static_assert(sizeof(struct head) == 64, "format");
static_assert(sizeof(struct record) == 1024, "format");
static_assert(sizeof(struct table) + KILN_HOURS * N_REASONS * 4 <=
		      KI_HISTORY_BYTES,
	      "format");
static_assert((int)KILN_N_COUNTERS <= N_TOTALS, "format");

static const unsigned reasons[N_REASONS] = KILN_REASONS;

/* ---- Soundness -------------------------------------------------------------- */

static uint64_t sum_of_head(const struct head *head)
{
	return ki_xxh3_64(head, offsetof(struct head, sum));
}

static int is_sound(const struct head *head)
{
	return head->magic == MAGIC && head->sum == sum_of_head(head);
}

static uint64_t sum_of_record(const struct record *record)
{
	return ki_xxh3_64(&record->first_s,
			  sizeof(*record) - offsetof(struct record, first_s));
}

static int is_free(const struct record *record)
{
	static const struct record none;

	return !memcmp(record, &none, sizeof(none));
}

static int is_whole(const struct record *record)
{
	return record->sum == sum_of_record(record) &&
	       !record->name[KILN_PROGRAM_BYTES - 1];
}

static uint64_t row_offset(uint64_t hour)
{
	return sizeof(struct table) + hour % KILN_HOURS * N_REASONS * 4;
}

/* ---- Adding ----------------------------------------------------------------- */

static int start(const struct ki_sys *sys, int fd, struct table *out_table)
{
	uint64_t now_s = sys->realtime_ns(sys) / 1000000000;
	uint8_t *zeros = calloc(1, KI_HISTORY_BYTES);
	int err;

	if (!zeros)
		return -ENOMEM;
	memset(out_table, 0, sizeof(*out_table));
	out_table->head = (struct head){ .magic = MAGIC,
					 .version = VERSION,
					 .since_s = now_s,
					 .newest_hour = now_s / 3600 };
	out_table->head.sum = sum_of_head(&out_table->head);
	memcpy(zeros, &out_table->head, sizeof(out_table->head));
	err = ki_pwrite_all(sys, fd, zeros, KI_HISTORY_BYTES, 0);
	free(zeros);
	return err;
}

static int load(const struct ki_sys *sys, int fd, struct table *out_table)
{
	struct ki_file_info info;
	int err = sys->fstat(sys, fd, &info);

	if (err)
		return err;
	if (!S_ISREG(info.mode))
		return -EINVAL;
	/* A newer version may be longer. */
	if (info.size < KI_HISTORY_BYTES)
		return start(sys, fd, out_table);
	err = ki_pread_all(sys, fd, out_table, sizeof(*out_table), 0);
	if (err)
		return err;
	if (!is_sound(&out_table->head))
		return start(sys, fd, out_table);
	return out_table->head.version == VERSION ? 0 : -EINVAL;
}

/* Rows between the newest hour and now were empty hours. */
static int advance(const struct ki_sys *sys, int fd, struct head *head,
		   uint64_t hour)
{
	static const uint32_t empty[N_REASONS];
	uint64_t h;
	int err = 0;

	if (hour <= head->newest_hour)
		return 0;
	h = head->newest_hour + 1;
	if (hour - head->newest_hour > KILN_HOURS)
		h = hour - KILN_HOURS + 1;
	for (; h <= hour && !err; h++)
		err = ki_pwrite_all(sys, fd, empty, sizeof(empty),
				    row_offset(h));
	if (err)
		return err;
	head->newest_hour = hour;
	head->sum = sum_of_head(head);
	return ki_pwrite_all(sys, fd, head, sizeof(*head), 0);
}

static int add_reasons(const struct ki_sys *sys, int fd, struct head *head,
		       const uint64_t *deltas)
{
	uint64_t hour = sys->realtime_ns(sys) / 1000000000 / 3600, any = 0;
	uint32_t row[N_REASONS];
	unsigned i;
	int err;

	for (i = 0; i < N_REASONS; i++)
		any |= deltas[reasons[i]];
	if (!any)
		return 0;
	err = advance(sys, fd, head, hour);
	if (err || hour + KILN_HOURS <= head->newest_hour)
		return err;
	err = ki_pread_all(sys, fd, row, sizeof(row), row_offset(hour));
	for (i = 0; i < N_REASONS && !err; i++)
		row[i] = deltas[reasons[i]] > UINT32_MAX - row[i]
				 ? UINT32_MAX
				 : row[i] + (uint32_t)deltas[reasons[i]];
	return err ? err
		   : ki_pwrite_all(sys, fd, row, sizeof(row), row_offset(hour));
}

static int write_record(const struct ki_sys *sys, int fd,
			struct record *records, size_t i)
{
	struct record *record = &records[i];

	record->sum = sum_of_record(record);
	return ki_pwrite_all(sys, fd, record, sizeof(*record),
			     sizeof(struct head) + i * sizeof(*record));
}

static void add_totals(struct record *record, const uint64_t *deltas,
		       uint64_t now_s)
{
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		record->totals[i] += deltas[i];
	record->last_s = now_s;
}

/* Of a name that is too long its end, which tells more. */
static void begin_record(struct record *record, const char *name,
			 uint64_t now_s)
{
	size_t size = strlen(name);

	memset(record, 0, sizeof(*record));
	record->first_s = now_s;
	if (size >= KILN_PROGRAM_BYTES)
		name += size - (KILN_PROGRAM_BYTES - 1);
	memcpy(record->name, name, strlen(name));
}

static int has_name(const struct record *record, const char *name)
{
	struct record other;

	begin_record(&other, name, 0);
	return !strcmp(record->name, other.name);
}

/* The program's, or the one that it is to have. */
static size_t find_record(struct record *records, const char *name,
			  uint64_t now_s)
{
	size_t oldest = 1;

	for (size_t i = 1; i < N_RECORDS; i++) {
		if (!is_whole(&records[i]))
			memset(&records[i], 0, sizeof(records[i]));
		else if (has_name(&records[i], name))
			return i;
		if (records[i].last_s < records[oldest].last_s)
			oldest = i;
	}
	begin_record(&records[oldest], name, now_s);
	return oldest;
}

/* One process, one name: a child has its own. */
static uint64_t find_process(const struct ki_sys *sys, uint64_t *out_start)
{
	static struct ki_process self;
	uint64_t name;

	if ((uint32_t)self.name != (uint32_t)ki_process_id())
		self.name = 0;
	name = ki_process_name(sys, &self);
	*out_start = name ? self.start : 0;
	return name;
}

/* When this process began: what it has counted may come here late. */
static uint64_t began_s(const struct ki_sys *sys, uint64_t start,
			uint64_t now_s)
{
	const uint64_t now_ns = sys->realtime_ns(sys);
	const uint64_t age_ns = start ? ki_process_age_ns(start) : 0;

	return age_ns < now_ns ? (now_ns - age_ns) / 1000000000 : now_s;
}

static int has_looked(const uint64_t *deltas)
{
	return deltas[KILN_COUNT_HITS_MEMORY] ||
	       deltas[KILN_COUNT_HITS_STORE] || deltas[KILN_COUNT_HITS_PACK] ||
	       deltas[KILN_COUNT_HITS_REMOTE] || deltas[KILN_COUNT_MISSES];
}

/* Whether the last run is this process's, and if it is another's now, empty. */
static int takes_run(const struct ki_sys *sys, struct record *run,
		     const char *name, const uint64_t *deltas, uint64_t now_s)
{
	uint64_t start, process = find_process(sys, &start);
	int is_known = is_whole(run);

	if (is_known && run->process == process && run->start == start)
		return 1;
	if (!has_looked(deltas))
		return 0;
	/* Of this boot, and it began later. */
	if (is_known && process && run->process >> 32 == process >> 32 &&
	    run->start > start)
		return 0;
	begin_record(run, name, began_s(sys, start, now_s));
	run->process = process;
	run->start = start;
	return 1;
}

static int add(const struct ki_sys *sys, int fd, const char *name,
	       const uint64_t *deltas, struct table *table)
{
	uint64_t now_s = sys->realtime_ns(sys) / 1000000000;
	size_t place;
	int err = load(sys, fd, table);

	if (!err)
		err = add_reasons(sys, fd, &table->head, deltas);
	if (!err && takes_run(sys, &table->records[0], name, deltas, now_s)) {
		add_totals(&table->records[0], deltas, now_s);
		err = write_record(sys, fd, table->records, 0);
	}
	if (err || !*name)
		return err;
	place = find_record(table->records, name, now_s);
	add_totals(&table->records[place], deltas, now_s);
	return write_record(sys, fd, table->records, place);
}

static int open_to_write(const struct ki_sys *sys, const char *path,
			 unsigned flags, unsigned creating)
{
	const unsigned mode = flags & KILN_OPEN_SHARED ? 0660 : 0600;
	int fd = sys->open(sys, path,
			   KI_OPEN_READ | KI_OPEN_WRITE | creating |
				   ki_open_flags(flags),
			   mode);

	if (fd >= 0 && (flags & KILN_OPEN_SHARED))
		(void)sys->chmod(sys, path, mode);
	return fd;
}

int ki_history_add(const struct ki_sys *sys, const char *path, unsigned flags,
		   const char *application,
		   const uint64_t deltas[KILN_N_COUNTERS])
{
	char executable[KI_PATH_MAX];
	struct table *table; /* threads of others may have little stack */
	int err, fd = open_to_write(sys, path, flags, KI_OPEN_CREATE);

	if (fd < 0)
		return fd;
	if (!*application)
		application = ki_executable(executable) < 0 ? "" : executable;
	table = malloc(sizeof(*table));
	err = table ? add(sys, fd, application, deltas, table) : -ENOMEM;
	free(table);
	(void)sys->close(sys, fd);
	return err;
}

/* ---- Reading ---------------------------------------------------------------- */

static int are_sound(const struct table *table)
{
	int sound = is_sound(&table->head);

	for (size_t i = 0; i < N_RECORDS && sound; i++)
		sound = is_whole(&table->records[i]) ||
			is_free(&table->records[i]);
	return sound;
}

/* From malloc(), also with -EBADMSG: not sound, this time. */
static int read_once(const struct ki_sys *sys, const char *path,
		     void **out_data)
{
	size_t size;
	int err = ki_read_file(sys, path, KI_HISTORY_BYTES, out_data, &size);

	if (err)
		return err;
	if (size == KI_HISTORY_BYTES)
		return are_sound(*out_data) ? 0 : -EBADMSG;
	free(*out_data);
	return -ENOENT; /* somebody began one and came no further */
}

static void take_record(const struct record *record,
			struct kiln_program_counters *out)
{
	out->first = record->first_s;
	out->last = record->last_s;
	memcpy(out->name, record->name, sizeof(out->name));
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		out->total[i] = record->totals[i];
}

static int latest_first(const void *a, const void *b)
{
	const struct kiln_program_counters *x = a, *y = b;

	return x->last < y->last ? 1 : x->last > y->last ? -1 : 0;
}

static void take(const struct table *table, const uint8_t *data,
		 struct kiln_store_counters *counters)
{
	const uint64_t newest = table->head.newest_hour;
	uint64_t hour;

	counters->history_since = table->head.since_s;
	if (is_whole(&table->records[0]))
		take_record(&table->records[0], &counters->last_run);
	for (size_t i = 1; i < N_RECORDS; i++)
		if (is_whole(&table->records[i]))
			take_record(
				&table->records[i],
				&counters->programs[counters->n_programs++]);
	qsort(counters->programs, counters->n_programs,
	      sizeof(counters->programs[0]), latest_first);
	/* A kiln without a history may have counted in later hours. */
	for (size_t i = 0; i < KILN_HOURS && i <= counters->newest_hour; i++) {
		hour = counters->newest_hour - i;
		if (hour <= newest && newest - hour < KILN_HOURS)
			memcpy(counters->reasons[i], data + row_offset(hour),
			       sizeof(counters->reasons[i]));
	}
}

void ki_history_read(const struct ki_sys *sys, const char *path,
		     struct kiln_store_counters *counters)
{
	const struct table *table;
	void *data;
	int tries = 0, err;

	do {
		err = read_once(sys, path, &data);
		if (err && err != -EBADMSG)
			return;
		table = data;
		/* What stays unsound is damage: the rest is told. */
		if ((!err || ++tries == READS_MAX) && is_sound(&table->head) &&
		    table->head.version == VERSION)
			take(table, data, counters);
		free(data);
	} while (err && tries < READS_MAX);
}

int ki_history_zero(const struct ki_sys *sys, const char *path, unsigned flags)
{
	struct table *table;
	int err, fd = open_to_write(sys, path, flags, 0);

	if (fd < 0)
		return fd;
	table = malloc(sizeof(*table));
	err = table ? load(sys, fd, table) : -ENOMEM;
	if (!err)
		err = start(sys, fd, table);
	free(table);
	(void)sys->close(sys, fd);
	return err;
}
