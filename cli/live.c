/* SPDX-License-Identifier: MIT */

#include "live.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "counts.h"
#include "out.h"

#define TEXT_BYTES    64
#define SURVEY_NS     ((uint64_t)5 * 1000000000)
#define SURVEY_SHARE  20 /* of the time, at most a twentieth */
#define METER_COLUMNS 20

/* ---- Looking ------------------------------------------------------------------- */

int ki_live_init(struct ki_live *live, struct ki_settings *settings)
{
	memset(live, 0, sizeof(*live));
	live->settings = settings;
	live->first = calloc(1, sizeof(*live->first));
	live->before = calloc(1, sizeof(*live->before));
	live->now = calloc(1, sizeof(*live->now));
	live->survey = ki_survey_new();
	if (!live->first || !live->before || !live->now || !live->survey)
		return ki_store_failed(KILN_E_NO_MEMORY, "top");
	return KI_EXIT_OK;
}

void ki_live_fini(struct ki_live *live)
{
	kiln_close(live->kiln);
	free(live->first);
	free(live->before);
	free(live->now);
	free(live->survey);
}

/* The store may be made, removed and made again while we look. */
static int look_at(struct ki_live *live)
{
	int status = KI_EXIT_OK;

	memset(&live->info, 0, sizeof(live->info));
	memset(live->now, 0, sizeof(*live->now));
	if (!live->kiln)
		status = ki_store_open(live->settings, KI_STORE_LOOK,
				       &live->kiln);
	if (status || !live->kiln)
		return status;
	if (kiln_store_info(live->kiln, &live->info) ||
	    ki_counts_read(live->kiln, live->now)) {
		kiln_close(live->kiln);
		live->kiln = NULL;
		memset(&live->info, 0, sizeof(live->info));
		memset(live->now, 0, sizeof(*live->now));
	}
	return KI_EXIT_OK;
}

int ki_live_look(struct ki_live *live)
{
	struct kiln_store_counters *before = live->before;
	int status;

	live->before = live->now;
	live->now = before;
	live->before_ns = live->now_ns;
	status = look_at(live);
	live->now_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	if (!live->first_ns)
		ki_live_reset(live);
	return status;
}

void ki_live_reset(struct ki_live *live)
{
	*live->first = *live->now;
	*live->before = *live->now;
	live->first_ns = live->before_ns = live->now_ns;
}

int ki_live_survey(struct ki_live *live)
{
	uint64_t begun = ki_sys_posix.monotonic_ns(&ki_sys_posix), took;
	struct ki_survey *survey;
	int status;

	if (begun < live->survey_due_ns)
		return KI_EXIT_OK;
	survey = ki_survey_new();
	if (!survey)
		return ki_store_failed(KILN_E_NO_MEMORY, "top");
	status = ki_survey_take(survey, live->kiln, live->settings);
	free(live->survey);
	live->survey = survey;
	took = ki_sys_posix.monotonic_ns(&ki_sys_posix) - begun;
	live->survey_due_ns =
		begun + took +
		(took * SURVEY_SHARE > SURVEY_NS ? took * SURVEY_SHARE
						 : SURVEY_NS);
	return status;
}

/* ---- Differences ----------------------------------------------------------------- */

/* Counters that were set to 0 meanwhile begin anew. */
static void subtract(const uint64_t *now, const uint64_t *before, uint64_t *out)
{
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		out[i] = now[i] >= before[i] ? now[i] - before[i] : now[i];
}

double ki_live_last(const struct ki_live *live, uint64_t *out_total)
{
	subtract(live->now->total, live->before->total, out_total);
	return (double)(live->now_ns - live->before_ns) / 1e9;
}

double ki_live_all(const struct ki_live *live, uint64_t *out_total)
{
	subtract(live->now->total, live->first->total, out_total);
	return (double)(live->now_ns - live->first_ns) / 1e9;
}

static double rate(uint64_t n, double seconds)
{
	return seconds > 0 ? (double)n / seconds : 0;
}

static const struct kiln_program_counters *find_program(
	const struct kiln_store_counters *counters, const char *name)
{
	for (uint64_t i = 0; i < counters->n_programs; i++)
		if (!strcmp(counters->programs[i].name, name))
			return &counters->programs[i];
	return NULL;
}

static void program_since(const struct ki_live *live,
			  const struct kiln_program_counters *program,
			  uint64_t *out_total)
{
	static const uint64_t zeros[KILN_N_COUNTERS];
	const struct kiln_program_counters *before =
		find_program(live->first, program->name);

	subtract(program->total, before ? before->total : zeros, out_total);
}

/* ---- A frame ----------------------------------------------------------------------- */

/* Lines are put together whole, then cut. */
struct frame {
	struct ki_bytes *out;
	int columns;
	int n_left;
};

static void put_line(struct frame *frame, const char *text)
{
	if (frame->n_left <= 0)
		return;
	ki_out_safe(frame->out, text, frame->columns);
	ki_bytes_add_u8(frame->out, '\n');
	frame->n_left--;
}

static void put_rates(struct frame *frame, const struct ki_live *live)
{
	uint64_t last[KILN_N_COUNTERS], all[KILN_N_COUNTERS];
	double seconds = ki_live_last(live, last);
	char line[256], saved[TEXT_BYTES], built[TEXT_BYTES];

	(void)ki_live_all(live, all);
	snprintf(line, sizeof(line), "now   %.1f hits/s, %.1f misses/s",
		 rate(ki_counts_hits(last), seconds),
		 rate(last[KILN_COUNT_MISSES], seconds));
	put_line(frame, line);
	snprintf(
		line, sizeof(line),
		"here  %llu of %llu hit (%.1f %%), %s saved, %s built",
		(unsigned long long)ki_counts_hits(all),
		(unsigned long long)ki_counts_lookups(all),
		ki_counts_percent(all),
		ki_counts_time(all[KILN_COUNT_SAVED_NS], saved, sizeof(saved)),
		ki_counts_time(all[KILN_COUNT_BUILD_NS], built, sizeof(built)));
	put_line(frame, line);
}

static void put_size(struct frame *frame, const struct ki_live *live)
{
	const struct kiln_store_info *info = &live->info;
	char meter[METER_COLUMNS + 1] = "", line[256], entries[TEXT_BYTES] = "";
	char bytes[TEXT_BYTES], bound[TEXT_BYTES];
	double part = info->bytes_max
			      ? (double)info->bytes / (double)info->bytes_max
			      : 0;

	for (int i = 0; i < METER_COLUMNS; i++)
		meter[i] = i < part * METER_COLUMNS ? '=' : ' ';
	if (live->survey_due_ns)
		snprintf(entries, sizeof(entries), ", %llu entries",
			 (unsigned long long)live->survey->n);
	snprintf(line, sizeof(line), "size  [%s] %s of %s%s", meter,
		 ki_format_size(info->bytes, bytes, sizeof(bytes)),
		 info->bytes_max
			 ? ki_format_size(info->bytes_max, bound, sizeof(bound))
			 : "any size",
		 entries);
	put_line(frame, line);
}

static void put_reason(struct frame *frame, const char *words, uint64_t last,
		       uint64_t all, uint64_t ever, double seconds)
{
	char line[256];

	snprintf(line, sizeof(line), "%8.1f %8llu %9llu  %s",
		 rate(last, seconds), (unsigned long long)all,
		 (unsigned long long)ever, words);
	put_line(frame, line);
}

static void put_reasons(struct frame *frame, const struct ki_live *live)
{
	uint64_t last[KILN_N_COUNTERS], all[KILN_N_COUNTERS];
	const uint64_t *ever = live->now->total;
	double seconds = ki_live_last(live, last);
	unsigned reason;

	(void)ki_live_all(live, all);
	put_line(frame, "");
	put_line(frame, "  MISS/s     HERE      EVER  REASON");
	for (unsigned i = 0; (reason = ki_counts_reason(i)) < KILN_N_COUNTERS;
	     i++)
		if (ever[reason])
			put_reason(frame, kiln_counter_words(reason),
				   last[reason], all[reason], ever[reason],
				   seconds);
	if (ki_counts_untold(ever))
		put_reason(frame, "miss: no reason told",
			   ki_counts_untold(last), ki_counts_untold(all),
			   ki_counts_untold(ever), seconds);
}

static void put_programs(struct frame *frame, const struct ki_live *live)
{
	const struct kiln_store_counters *now = live->now;
	uint64_t total[KILN_N_COUNTERS];
	char line[600], saved[TEXT_BYTES];

	put_line(frame, "");
	put_line(frame, "    HITS   MISSES     SAVED  APPLICATION");
	for (uint64_t i = 0; i < now->n_programs; i++) {
		program_since(live, &now->programs[i], total);
		if (!ki_counts_lookups(total))
			continue;
		snprintf(line, sizeof(line), "%8llu %8llu %9s  %s",
			 (unsigned long long)ki_counts_hits(total),
			 (unsigned long long)total[KILN_COUNT_MISSES],
			 ki_counts_time(total[KILN_COUNT_SAVED_NS], saved,
					sizeof(saved)),
			 ki_last_name(now->programs[i].name));
		put_line(frame, line);
	}
}

static void put_biggest(struct frame *frame, const struct ki_live *live)
{
	const struct ki_notes *notes = &live->survey->biggest;
	char line[600], size[TEXT_BYTES], time[TEXT_BYTES];

	put_line(frame, "");
	put_line(frame, "BIGGEST  BUILT IN  KEY           APPLICATION");
	for (size_t i = 0; i < notes->n; i++) {
		const struct ki_noted *noted = &notes->noted[i];

		snprintf(line, sizeof(line), "%8s %8s  %s  %s %s",
			 ki_format_size(noted->bytes, size, sizeof(size)),
			 noted->build_ns
				 ? ki_format_duration(noted->build_ns, time,
						      sizeof(time))
				 : "-",
			 noted->key, ki_last_name(noted->application),
			 noted->options);
		put_line(frame, line);
	}
}

void ki_live_frame(const struct ki_live *live, struct ki_bytes *out,
		   int columns, int n_lines)
{
	struct frame frame = { out, columns, n_lines };

	put_line(&frame, live->settings->options.store_url);
	if (!live->kiln) {
		put_line(&frame, "nothing is cached there yet");
		return;
	}
	put_rates(&frame, live);
	put_size(&frame, live);
	put_reasons(&frame, live);
	put_programs(&frame, live);
	put_biggest(&frame, live);
}

/* ---- JSON ------------------------------------------------------------------------- */

static void json_biggest(struct ki_json *json, const struct ki_notes *notes)
{
	ki_json_array(json, "biggest");
	for (size_t i = 0; i < notes->n; i++) {
		const struct ki_noted *noted = &notes->noted[i];

		ki_json_object(json, NULL);
		ki_json_string(json, "key", noted->key);
		ki_json_string(json, "application", noted->application);
		ki_json_string(json, "options", noted->options);
		ki_json_number(json, "bytes", noted->bytes);
		ki_json_number(json, "build_ns", noted->build_ns);
		ki_json_end(json);
	}
	ki_json_end(json);
}

void ki_live_json(const struct ki_live *live, struct ki_bytes *out)
{
	uint64_t last[KILN_N_COUNTERS];
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_string(&json, "store", live->settings->options.store_url);
	ki_json_double(&json, "seconds", ki_live_last(live, last));
	ki_json_number(&json, "entries", live->survey->n);
	ki_json_number(&json, "bytes", live->info.bytes);
	ki_json_number(&json, "bytes_max", live->info.bytes_max);
	ki_json_object(&json, "counted");
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		ki_json_number(&json, kiln_counter_name(i), last[i]);
	ki_json_end(&json);
	json_biggest(&json, &live->survey->biggest);
	ki_json_end(&json);
}
