/* SPDX-License-Identifier: MIT */

/*
 * kiln stats: what the cache did, over all processes.  Ever, since a time, in
 * the last run, or program by program; as text, JSON (which has all of these) or
 * for Prometheus (prometheus.c).
 */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "counts.h"
#include "entry.h"
#include "jobs.h"
#include "out.h"
#include "prometheus.h"
#include "quota.h"
#include "stats_remote.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

struct picture {
	const struct ki_settings *settings;
	struct kiln_store_info info;
	struct kiln_store_counters *counters;
	size_t n_jobs;
	uint64_t now_s;
	/* With --since: asked for, and where the sum begins. */
	int is_since;
	uint64_t since_s;
	uint64_t begin_s;
	uint64_t total[KILN_N_COUNTERS];
	/* Where eviction has an order: who goes first. */
	char next[2 * KILN_DIGEST_BYTES + 1];
	char next_file[256];
	uint64_t next_used;
	struct ki_quota_list quotas;
};

/* ---- JSON -------------------------------------------------------------------- */

static void json_counters(struct ki_json *json, const uint64_t *total)
{
	ki_json_object(json, "counters");
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		ki_json_number(json, kiln_counter_name(i), total[i]);
	ki_json_end(json);
}

static void json_program(struct ki_json *json, const char *name,
			 const struct kiln_program_counters *program)
{
	ki_json_object(json, name);
	ki_json_string(json, "application", program->name);
	ki_json_number(json, "first", program->first);
	ki_json_number(json, "last", program->last);
	json_counters(json, program->total);
	ki_json_end(json);
}

static void json_programs(struct ki_json *json,
			  const struct kiln_store_counters *counters)
{
	if (counters->last_run.last)
		json_program(json, "last_run", &counters->last_run);
	else
		ki_json_null(json, "last_run");
	ki_json_array(json, "applications");
	for (uint64_t i = 0; i < counters->n_programs; i++)
		json_program(json, NULL, &counters->programs[i]);
	ki_json_end(json);
}

static void print_json(struct ki_bytes *out, const struct picture *picture)
{
	const struct kiln_store_info *info = &picture->info;
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_string(&json, "store", picture->settings->options.store_url);
	ki_json_string(&json, "kind", info->kind ? info->kind : "");
	ki_json_number(&json, "entries", info->n_entries);
	ki_json_number(&json, "entries_foreign", info->n_foreign);
	ki_json_number(&json, "format_hits", info->n_format_hits);
	ki_json_number(&json, "format_misses", info->n_format_misses);
	ki_json_number(&json, "bytes", info->bytes);
	ki_json_number(&json, "bytes_live", info->bytes_live);
	ki_json_number(&json, "bytes_sources", info->bytes_sources);
	ki_json_number(&json, "bytes_max", info->bytes_max);
	if (*picture->next) {
		ki_json_object(&json, "next_to_go");
		ki_json_string(&json, "key", picture->next);
		ki_json_string(&json, "file", picture->next_file);
		ki_json_number(&json, "used", picture->next_used);
		ki_json_end(&json);
	}
	ki_quota_list_json(&picture->quotas, &json);
	ki_json_number(&json, "jobs_pending", picture->n_jobs);
	ki_json_number(&json, "since", picture->counters->since);
	json_counters(&json, picture->counters->total);
	if (picture->is_since) {
		ki_json_object(&json, "period");
		ki_json_number(&json, "asked", picture->since_s);
		ki_json_number(&json, "begin", picture->begin_s);
		json_counters(&json, picture->total);
		ki_json_end(&json);
	}
	ki_json_number(&json, "applications_since",
		       picture->counters->history_since);
	json_programs(&json, picture->counters);
	ki_stats_remote_json(&json, &picture->settings->options);
	ki_json_end(&json);
}

/* ---- Text -------------------------------------------------------------------- */

static void line(struct ki_bytes *out, const char *words, const char *value)
{
	ki_out_safe(out, words, 0);
	ki_bytes_printf(out, "%*s",
			strlen(words) < 24 ? (int)(26 - strlen(words)) : 2, "");
	ki_out_safe(out, value, 0);
	ki_bytes_add_u8(out, '\n');
}

static void number(struct ki_bytes *out, const char *words, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	line(out, words, text);
}

static void duration(struct ki_bytes *out, const char *words, uint64_t ns)
{
	char text[24];

	line(out, words, ki_counts_time(ns, text, sizeof(text)));
}

static void age(struct ki_bytes *out, const char *words,
		const struct picture *picture, uint64_t then_s)
{
	char text[32];

	line(out, words,
	     ki_format_age(then_s < picture->now_s ? picture->now_s - then_s
						   : 0,
			   text, sizeof(text)));
}

static void print_use(struct ki_bytes *out, const uint64_t *total)
{
	char text[64];

	snprintf(text, sizeof(text), "%llu of %llu (%.1f %%)",
		 (unsigned long long)ki_counts_hits(total),
		 (unsigned long long)ki_counts_lookups(total),
		 ki_counts_percent(total));
	line(out, "hits", text);
	duration(out, "build time saved", total[KILN_COUNT_SAVED_NS]);
	duration(out, "time spent building", total[KILN_COUNT_BUILD_NS]);
}

static void print_next(struct ki_bytes *out, const struct picture *picture)
{
	char text[400], used[32];

	if (!*picture->next)
		return;
	ki_format_age(picture->next_used < picture->now_s
			      ? picture->now_s - picture->next_used
			      : 0,
		      used, sizeof(used));
	snprintf(text, sizeof(text), "%.*s, used %s, %s", KI_SHORT_KEY,
		 picture->next, used, picture->next_file);
	line(out, "next to go", text);
}

static void print_quotas(struct ki_bytes *out, const struct picture *picture)
{
	char words[KILN_NAMESPACE_BYTES + 16], text[160];

	for (size_t i = 0; i < picture->quotas.n; i++) {
		const struct kiln_namespace *row = &picture->quotas.rows[i];

		snprintf(words, sizeof(words), "quota of %s", row->name);
		line(out, words, ki_quota_words(row, text, sizeof(text)));
	}
}

static void print_size(struct ki_bytes *out, const struct picture *picture)
{
	const struct kiln_store_info *info = &picture->info;
	char text[80], bytes[32], bound[32];

	if (info->n_format_hits || info->n_format_misses) {
		number(out, "hits, driver's count", info->n_format_hits);
		number(out, "misses, driver's count", info->n_format_misses);
	}
	number(out, "entries, bookkeeping too", info->n_entries);
	if (info->n_foreign) {
		snprintf(text, sizeof(text), "of them %s",
			 ki_what_owner(picture->settings));
		number(out, text, info->n_foreign);
	}
	snprintf(text, sizeof(text), "%s of %s",
		 ki_format_size(info->bytes, bytes, sizeof(bytes)),
		 info->bytes_max
			 ? ki_format_size(info->bytes_max, bound, sizeof(bound))
			 : "any size");
	line(out, "size", text);
	if (info->bytes_sources)
		line(out, "of it kept sources",
		     ki_format_size(info->bytes_sources, bytes, sizeof(bytes)));
	print_quotas(out, picture);
	print_next(out, picture);
	number(out, "jobs pending", picture->n_jobs);
}

static int is_said_above(unsigned counter)
{
	return counter == KILN_COUNT_SAVED_NS || counter == KILN_COUNT_BUILD_NS;
}

/* Only what ever happened: a screen of zeros tells nothing. */
static void print_counters(struct ki_bytes *out, const uint64_t *total)
{
	uint64_t untold = ki_counts_untold(total);
	char text[32];
	unsigned i;

	for (i = 0; i < KILN_N_COUNTERS; i++) {
		if (!total[i] || is_said_above(i))
			continue;
		if (i == KILN_COUNT_REMOTE_WAIT_NS)
			duration(out, "waited for the remote", total[i]);
		else if (i == KILN_COUNT_BYTES_READ ||
			 i == KILN_COUNT_BYTES_WRITTEN)
			line(out, kiln_counter_words(i),
			     ki_format_size(total[i], text, sizeof(text)));
		else
			number(out, kiln_counter_words(i), total[i]);
	}
	if (untold)
		number(out, "miss: no reason told", untold);
}

static void print_period(struct ki_bytes *out, const struct picture *picture)
{
	time_t begin = (time_t)picture->begin_s;
	struct tm local;
	char text[32];

	if (!picture->begin_s || !localtime_r(&begin, &local) ||
	    !strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local))
		strcpy(text, "nothing was counted yet");
	line(out, "counted since", text);
	print_use(out, picture->total);
	print_counters(out, picture->total);
}

static void print_run(struct ki_bytes *out, const struct picture *picture)
{
	const struct kiln_program_counters *run = &picture->counters->last_run;

	if (!run->last) {
		line(out, "last run", "none that was counted");
		return;
	}
	line(out, "last run of", run->name);
	age(out, "began", picture, run->first);
	print_use(out, run->total);
	print_counters(out, run->total);
}

/* ---- By application ------------------------------------------------------------ */

static const struct ki_column columns[] = {
	{ "HITS", 1, 0 },  { "MISSES", 1, 1 },	    { "RATIO", 1, 2 },
	{ "SAVED", 1, 0 }, { "BUILT", 1, 3 },	    { "READ", 1, 4 },
	{ "USED", 0, 1 },  { "APPLICATION", 0, 0 },
};

#define N_COLUMNS  (sizeof(columns) / sizeof(*columns))
#define CELL_BYTES 32

static void fill_row(const struct picture *picture,
		     const struct kiln_program_counters *program,
		     char texts[N_COLUMNS][CELL_BYTES],
		     const char *cells[N_COLUMNS])
{
	const uint64_t *total = program->total;

	for (unsigned i = 0; i < N_COLUMNS; i++)
		cells[i] = texts[i];
	snprintf(texts[0], CELL_BYTES, "%llu",
		 (unsigned long long)ki_counts_hits(total));
	snprintf(texts[1], CELL_BYTES, "%llu",
		 (unsigned long long)total[KILN_COUNT_MISSES]);
	snprintf(texts[2], CELL_BYTES, "%.0f %%", ki_counts_percent(total));
	ki_counts_time(total[KILN_COUNT_SAVED_NS], texts[3], CELL_BYTES);
	ki_counts_time(total[KILN_COUNT_BUILD_NS], texts[4], CELL_BYTES);
	ki_format_size(total[KILN_COUNT_BYTES_READ], texts[5], CELL_BYTES);
	ki_format_age(program->last < picture->now_s
			      ? picture->now_s - program->last
			      : 0,
		      texts[6], CELL_BYTES);
	cells[7] = ki_last_name(program->name);
}

static void print_programs(struct ki_bytes *out, const struct picture *picture)
{
	static char texts[KILN_PROGRAMS_MAX][N_COLUMNS][CELL_BYTES];
	const char *cells[KILN_PROGRAMS_MAX][N_COLUMNS];
	const struct kiln_store_counters *counters = picture->counters;
	size_t n = 0;

	for (size_t i = 0; i < counters->n_programs; i++)
		if (ki_counts_lookups(counters->programs[i].total)) {
			fill_row(picture, &counters->programs[i], texts[n],
				 cells[n]);
			n++;
		}
	if (!n) {
		ki_complain("no application has been counted here");
		return;
	}
	ki_out_table(out, columns, N_COLUMNS, cells[0], n, ki_out_columns(),
		     ki_out_is_colourful(1));
}

static void print_text(struct ki_bytes *out, const struct picture *picture)
{
	line(out, "store", picture->settings->options.store_url);
	if (!ki_store_is_pack(picture->settings))
		print_use(out, picture->counters->total);
	print_size(out, picture);
	print_counters(out, picture->counters->total);
	ki_stats_remote(out, &picture->settings->options);
}

/* ---- The verb ---------------------------------------------------------------- */

static void find_next(struct kiln *kiln, struct picture *picture)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;

	while (!kiln_list(kiln, &cursor, &entry)) {
		if (entry.turn == 1) {
			ki_hex(entry.digest, KILN_DIGEST_BYTES, picture->next);
			memcpy(picture->next_file, entry.file,
			       sizeof(picture->next_file));
			picture->next_used = entry.used;
		}
		kiln_entry_fini(&entry);
	}
}

static int look(struct kiln *kiln, struct picture *picture, int is_zeroing)
{
	enum kiln_status status;

	status = kiln_store_info(kiln, &picture->info);
	if (!status)
		status = ki_counts_read(kiln, picture->counters);
	if (!status)
		status = ki_quota_list_load(kiln, &picture->quotas);
	if (!status && ki_what_is_told(picture->settings))
		find_next(kiln, picture);
	if (status)
		return ki_store_failed(status, "cannot read the counters");
	if (is_zeroing)
		status = kiln_store_counters_zero(kiln);
	return status ? ki_store_failed(status, "cannot set the counters to 0")
		      : KI_EXIT_OK;
}

/* What is wanted besides the ordinary; usage errors are told. */
static int read_command(const struct ki_command *command,
			struct picture *picture)
{
	const char *since = command->values[KI_OPTION_SINCE];
	int n_forms = ki_given(command, KI_OPTION_JSON) +
		      ki_given(command, KI_OPTION_PROMETHEUS);
	int n_parts = ki_given(command, KI_OPTION_SINCE) +
		      ki_given(command, KI_OPTION_LAST_RUN) +
		      ki_given(command, KI_OPTION_APPLICATIONS);
	char message[256];

	if (n_forms > 1 || n_parts > 1 ||
	    (n_parts && ki_given(command, KI_OPTION_PROMETHEUS))) {
		ki_complain("--since, --last-run and --applications go one at "
			    "a time, and --prometheus has neither these nor "
			    "--json beside it");
		return KI_EXIT_USAGE;
	}
	picture->now_s = ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000;
	picture->is_since = since != NULL;
	if (since && ki_counts_when(since, picture->now_s, &picture->since_s,
				    message, sizeof(message))) {
		ki_complain("--since: %s", message);
		return KI_EXIT_USAGE;
	}
	return KI_EXIT_OK;
}

static void sum_period(struct picture *picture)
{
	picture->begin_s = ki_counts_since(picture->counters, picture->since_s,
					   picture->total);
	if (picture->begin_s > picture->since_s + 3600 &&
	    picture->begin_s > picture->counters->since)
		ki_complain("counts by the hour are kept for %d days: no "
			    "older ones are among these",
			    KILN_HOURS / 24);
}

static void print(struct ki_bytes *out, const struct ki_command *command,
		  const struct picture *picture)
{
	if (ki_given(command, KI_OPTION_JSON))
		print_json(out, picture);
	else if (ki_given(command, KI_OPTION_PROMETHEUS))
		ki_prometheus(out, picture->settings->options.store_url,
			      &picture->info, picture->counters,
			      &picture->quotas, picture->n_jobs);
	else if (picture->is_since)
		print_period(out, picture);
	else if (ki_given(command, KI_OPTION_LAST_RUN))
		print_run(out, picture);
	else if (ki_given(command, KI_OPTION_APPLICATIONS))
		print_programs(out, picture);
	else
		print_text(out, picture);
}

int ki_verb_stats(const struct ki_command *command)
{
	int is_zeroing = ki_given(command, KI_OPTION_ZERO);
	unsigned flags = is_zeroing ? 0 : KI_STORE_LOOK;
	struct picture picture = { 0 };
	struct ki_settings settings = { 0 };
	struct kiln *kiln = NULL;
	struct ki_bytes out;
	int status;

	ki_bytes_init(&out);
	picture.settings = &settings;
	picture.counters = calloc(1, sizeof(*picture.counters));
	status = picture.counters ? read_command(command, &picture)
				  : ki_store_failed(KILN_E_NO_MEMORY, "stats");
	if (!status)
		status = ki_settings_load(&settings, command, flags);
	if (!status)
		status = ki_store_open(&settings, flags, &kiln);
	if (!status && kiln)
		status = look(kiln, &picture, is_zeroing);
	if (!status) {
		picture.n_jobs = ki_jobs_pending(settings.spool);
		if (picture.is_since)
			sum_period(&picture);
		print(&out, command, &picture);
		status = ki_out_write(&out, KI_EXIT_OK);
	}
	ki_bytes_fini(&out);
	kiln_close(kiln);
	free(picture.counters);
	ki_quota_list_free(&picture.quotas);
	ki_settings_fini(&settings);
	return status;
}
