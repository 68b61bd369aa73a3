/* SPDX-License-Identifier: MIT */

/* kiln stats: what the cache did, over all processes. */

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "entry.h"
#include "jobs.h"
#include "out.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

struct picture {
	const struct ki_settings *settings;
	struct kiln_store_info info;
	struct kiln_store_counters *counters;
	size_t n_jobs;
	/* Where eviction has an order: who goes first. */
	char next[2 * KILN_DIGEST_BYTES + 1];
	char next_file[256];
	uint64_t next_used;
};

/* ---- JSON -------------------------------------------------------------------- */

static void print_json(struct ki_bytes *out, const struct picture *picture)
{
	const struct kiln_store_info *info = &picture->info;
	struct ki_json json;
	unsigned i;

	ki_out_json(out, &json);
	ki_json_string(&json, "store", picture->settings->options.store_url);
	ki_json_string(&json, "kind", info->kind ? info->kind : "");
	ki_json_number(&json, "entries", info->n_entries);
	ki_json_number(&json, "entries_foreign", info->n_foreign);
	ki_json_number(&json, "format_hits", info->n_format_hits);
	ki_json_number(&json, "format_misses", info->n_format_misses);
	ki_json_number(&json, "bytes", info->bytes);
	ki_json_number(&json, "bytes_live", info->bytes_live);
	ki_json_number(&json, "bytes_max", info->bytes_max);
	if (*picture->next) {
		ki_json_object(&json, "next_to_go");
		ki_json_string(&json, "key", picture->next);
		ki_json_string(&json, "file", picture->next_file);
		ki_json_number(&json, "used", picture->next_used);
		ki_json_end(&json);
	}
	ki_json_number(&json, "jobs_pending", picture->n_jobs);
	ki_json_number(&json, "since", picture->counters->since);
	ki_json_object(&json, "counters");
	for (i = 0; i < KILN_N_COUNTERS; i++)
		ki_json_number(&json, kiln_counter_name(i),
			       picture->counters->total[i]);
	ki_json_end(&json);
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

	line(out, words,
	     ns ? ki_format_duration(ns, text, sizeof(text)) : "0 s");
}

static void print_use(struct ki_bytes *out, const uint64_t *total)
{
	uint64_t hits =
		total[KILN_COUNT_HITS_MEMORY] + total[KILN_COUNT_HITS_STORE];
	uint64_t asked = hits + total[KILN_COUNT_MISSES];
	char text[64];

	snprintf(text, sizeof(text), "%llu of %llu (%.1f %%)",
		 (unsigned long long)hits, (unsigned long long)asked,
		 asked ? 100.0 * (double)hits / (double)asked : 0.0);
	line(out, "hits", text);
	duration(out, "build time saved", total[KILN_COUNT_SAVED_NS]);
	duration(out, "time spent building", total[KILN_COUNT_BUILD_NS]);
}

static void print_next(struct ki_bytes *out, const struct picture *picture)
{
	uint64_t now = ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000;
	char text[400], age[32];

	if (!*picture->next)
		return;
	ki_format_age(picture->next_used < now ? now - picture->next_used : 0,
		      age, sizeof(age));
	snprintf(text, sizeof(text), "%.*s, used %s, %s", KI_SHORT_KEY,
		 picture->next, age, picture->next_file);
	line(out, "next to go", text);
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
	char text[32];
	unsigned i;

	for (i = 0; i < KILN_N_COUNTERS; i++) {
		if (!total[i] || is_said_above(i))
			continue;
		if (i == KILN_COUNT_BYTES_READ || i == KILN_COUNT_BYTES_WRITTEN)
			line(out, kiln_counter_words(i),
			     ki_format_size(total[i], text, sizeof(text)));
		else
			number(out, kiln_counter_words(i), total[i]);
	}
}

static void print_text(struct ki_bytes *out, const struct picture *picture)
{
	line(out, "store", picture->settings->options.store_url);
	print_use(out, picture->counters->total);
	print_size(out, picture);
	print_counters(out, picture->counters->total);
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
		status = kiln_store_counters(kiln, picture->counters);
	if (!status && ki_what_is_told(picture->settings))
		find_next(kiln, picture);
	if (!status && is_zeroing)
		status = kiln_store_counters_zero(kiln);
	return status ? ki_store_failed(status, "cannot read the counters")
		      : KI_EXIT_OK;
}

int ki_verb_stats(const struct ki_command *command)
{
	int is_zeroing = ki_given(command, KI_OPTION_ZERO);
	unsigned flags = is_zeroing ? 0 : KI_STORE_LOOK;
	struct kiln_store_counters *counters;
	struct picture picture = { 0 };
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	struct ki_bytes out;
	int status;

	ki_bytes_init(&out);
	counters = calloc(1, sizeof(*counters));
	status = ki_settings_load(&settings, command, flags);
	if (!status && !counters)
		status = ki_store_failed(KILN_E_NO_MEMORY, "stats");
	if (!status)
		status = ki_store_open(&settings, flags, &kiln);
	picture.settings = &settings;
	picture.counters = counters;
	if (!status && kiln)
		status = look(kiln, &picture, is_zeroing);
	if (!status) {
		picture.n_jobs = ki_jobs_pending(settings.spool);
		if (ki_given(command, KI_OPTION_JSON))
			print_json(&out, &picture);
		else
			print_text(&out, &picture);
		status = ki_out_write(&out, KI_EXIT_OK);
	}
	ki_bytes_fini(&out);
	kiln_close(kiln);
	free(counters);
	ki_settings_fini(&settings);
	return status;
}
