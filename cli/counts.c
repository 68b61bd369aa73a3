/* SPDX-License-Identifier: MIT */

#include "counts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

#define N_COLUMNS 8

static const unsigned hourly[N_COLUMNS] = KILN_HOURLY;
static const unsigned reasons[KILN_REASONS_MAX] = KILN_REASONS;

/* ---- Times ------------------------------------------------------------------- */

/* Only days that there are: mktime() would make a date of "2026-02-31". */
static int parse_date(const char *text, uint64_t *out_s)
{
	struct tm day = { .tm_isdst = -1 }, made;
	time_t seconds;
	int size = 0;

	if (sscanf(text, "%4d-%2d-%2d%n", &day.tm_year, &day.tm_mon,
		   &day.tm_mday, &size) != 3 ||
	    text[size])
		return -EINVAL;
	day.tm_year -= 1900;
	day.tm_mon--;
	made = day;
	seconds = mktime(&made);
	if (seconds < 0 || made.tm_mday != day.tm_mday ||
	    made.tm_mon != day.tm_mon || made.tm_year != day.tm_year)
		return -EINVAL;
	*out_s = (uint64_t)seconds;
	return 0;
}

int ki_counts_when(const char *text, uint64_t now_s, uint64_t *out_s,
		   char *message, size_t message_size)
{
	uint64_t age_s;
	int err = strchr(text, '-') ? parse_date(text, out_s)
				    : ki_parse_age(text, &age_s);

	if (err) {
		snprintf(message, message_size,
			 "'%s' is neither a date (2026-11-22) nor an age (7d, "
			 "12h)",
			 text);
		return -EINVAL;
	}
	if (!strchr(text, '-'))
		*out_s = age_s < now_s ? now_s - age_s : 0;
	return 0;
}

/* ---- Sums -------------------------------------------------------------------- */

uint64_t ki_counts_since(const struct kiln_store_counters *counters,
			 uint64_t from_s, uint64_t out_total[KILN_N_COUNTERS])
{
	uint64_t newest = counters->newest_hour, begin = from_s / 3600, hour;

	memset(out_total, 0, KILN_N_COUNTERS * sizeof(*out_total));
	if (!counters->since || from_s <= counters->since) {
		memcpy(out_total, counters->total, sizeof(counters->total));
		return counters->since;
	}
	if (begin + KILN_HOURS <= newest)
		begin = newest - KILN_HOURS + 1;
	for (unsigned i = 0; i < KILN_HOURS && i <= newest; i++) {
		hour = newest - i;
		if (hour < begin)
			break;
		for (unsigned j = 0; j < N_COLUMNS; j++)
			out_total[hourly[j]] += counters->hours[i][j];
		for (unsigned j = 0; j < KILN_REASONS_MAX; j++)
			out_total[reasons[j]] += counters->reasons[i][j];
	}
	return begin * 3600;
}

enum kiln_status ki_counts_read(struct kiln *kiln,
				struct kiln_store_counters *out_counters)
{
	enum kiln_status status = kiln_store_counters(kiln, out_counters);

	if (status != KILN_E_UNSUPPORTED)
		return status;
	memset(out_counters, 0, sizeof(*out_counters));
	return KILN_OK;
}

uint64_t ki_counts_hits(const uint64_t *total)
{
	return total[KILN_COUNT_HITS_MEMORY] + total[KILN_COUNT_HITS_STORE] +
	       total[KILN_COUNT_HITS_PACK] + total[KILN_COUNT_HITS_REMOTE];
}

uint64_t ki_counts_lookups(const uint64_t *total)
{
	return ki_counts_hits(total) + total[KILN_COUNT_MISSES];
}

double ki_counts_percent(const uint64_t *total)
{
	uint64_t asked = ki_counts_lookups(total);

	return asked ? 100.0 * (double)ki_counts_hits(total) / (double)asked
		     : 0.0;
}

/* Others stand for builds that nobody looked up, or could not keep. */
static int is_of_a_miss(unsigned counter)
{
	return !strncmp(kiln_counter_words(counter), "miss:", 5);
}

uint64_t ki_counts_untold(const uint64_t *total)
{
	uint64_t told = 0;

	for (unsigned i = 0; i < KILN_REASONS_MAX; i++)
		if (is_of_a_miss(reasons[i]))
			told += total[reasons[i]];
	return total[KILN_COUNT_MISSES] > told ? total[KILN_COUNT_MISSES] - told
					       : 0;
}

unsigned ki_counts_reason(unsigned n)
{
	return n < KILN_REASONS_MAX ? reasons[n] : KILN_N_COUNTERS;
}

const char *ki_counts_time(uint64_t ns, char *out, size_t size)
{
	if (ns)
		return ki_format_duration(ns, out, size);
	snprintf(out, size, "0 s");
	return out;
}
