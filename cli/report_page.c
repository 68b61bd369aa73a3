/* SPDX-License-Identifier: MIT */

/* The sections of the page, top to bottom; page.c knows HTML. */

#include "report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "counts.h"
#include "page.h"

#define TEXT_BYTES   64
#define GROUPS_DRAWN 12
#define SLOTS_MAX    48 /* columns of a chart over time */
#define DAYS	     (KILN_HOURS / 24)

/* ---- Words ------------------------------------------------------------------- */

static const char *in_digits(uint64_t n, char text[TEXT_BYTES])
{
	snprintf(text, TEXT_BYTES, "%llu", (unsigned long long)n);
	return text;
}

static const char *in_time(uint64_t ns, char text[TEXT_BYTES])
{
	return ki_counts_time(ns, text, TEXT_BYTES);
}

static const char *in_size(uint64_t bytes, char text[TEXT_BYTES])
{
	return ki_format_size(bytes, text, TEXT_BYTES);
}

static const char *in_percent(double percent, char text[TEXT_BYTES])
{
	snprintf(text, TEXT_BYTES, "%.1f %%", percent);
	return text;
}

/* "" of a time that is none. */
static const char *in_utc(uint64_t seconds, const char *format,
			  char text[TEXT_BYTES])
{
	time_t then = (time_t)seconds;
	struct tm utc;

	if (!seconds || !gmtime_r(&then, &utc) ||
	    !strftime(text, TEXT_BYTES, format, &utc))
		*text = '\0';
	return text;
}

static const char *ago(const struct ki_report *report, uint64_t then_s,
		       char text[TEXT_BYTES])
{
	if (!then_s)
		return "not known";
	return ki_format_age(then_s < report->now_s ? report->now_s - then_s
						    : 0,
			     text, TEXT_BYTES);
}

static const char *name_or(const char *name, const char *otherwise)
{
	return *name ? name : otherwise;
}

/* ---- Head -------------------------------------------------------------------- */

static const struct {
	const char *id;
	const char *words;
} sections[] = {
	{ "ratio", "Hits over time" },
	{ "saved", "Time saved" },
	{ "misses", "Misses" },
	{ "applications", "Applications" },
	{ "namespaces", "Namespaces" },
	{ "devices", "Devices" },
	{ "ages", "Ages" },
	{ "sizes", "Sizes" },
	{ "next", "Next to go" },
	{ "slowest", "Slowest builds" },
	{ "use", "Who uses it" },
	{ "run", "Last run" },
};

static void navigation(struct ki_bytes *out)
{
	ki_bytes_add_string(out, "<nav aria-label=\"Sections\">\n<ul>\n");
	for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++)
		ki_bytes_printf(out, "<li><a href=\"#%s\">%s</a></li>\n",
				sections[i].id, sections[i].words);
	ki_bytes_add_string(out, "</ul>\n</nav>\n");
}

static void fact(struct ki_bytes *out, const char *words, const char *value)
{
	ki_bytes_add_string(out, "<div><dt>");
	ki_page_text(out, words);
	ki_bytes_add_string(out, "</dt><dd>");
	ki_page_text(out, value);
	ki_bytes_add_string(out, "</dd></div>\n");
}

static void facts_of_use(struct ki_bytes *out, const uint64_t *total)
{
	char text[TEXT_BYTES];

	fact(out, "Build time saved",
	     in_time(total[KILN_COUNT_SAVED_NS], text));
	fact(out, "Look-ups that hit",
	     in_percent(ki_counts_percent(total), text));
	snprintf(text, sizeof(text), "%llu of %llu",
		 (unsigned long long)ki_counts_hits(total),
		 (unsigned long long)ki_counts_lookups(total));
	fact(out, "Hits of look-ups", text);
	fact(out, "Time spent building",
	     in_time(total[KILN_COUNT_BUILD_NS], text));
}

static void facts(struct ki_bytes *out, const struct ki_report *report)
{
	const struct kiln_store_info *info = &report->info;
	char text[2 * TEXT_BYTES], bytes[TEXT_BYTES], bound[TEXT_BYTES];

	ki_bytes_add_string(out, "<dl class=\"facts\">\n");
	facts_of_use(out, report->counters->total);
	if (info->n_format_hits || info->n_format_misses) {
		snprintf(text, sizeof(text), "%llu of %llu",
			 (unsigned long long)info->n_format_hits,
			 (unsigned long long)(info->n_format_hits +
					      info->n_format_misses));
		fact(out, "Hits by the driver's own count", text);
	}
	fact(out, "Entries", in_digits(report->survey->n, bytes));
	snprintf(text, sizeof(text), "%s of %s", in_size(info->bytes, bytes),
		 info->bytes_max ? in_size(info->bytes_max, bound)
				 : "any size");
	fact(out, "Size of the store", text);
	ki_bytes_add_string(out, "</dl>\n");
}

static void head(struct ki_bytes *out, const struct ki_report *report)
{
	const uint64_t since = report->counters->since;
	char text[TEXT_BYTES];

	ki_page_begin(out, "kiln: what the cache did");
	ki_bytes_add_string(out, "<header>\n<h1>What the cache did</h1>\n<p>");
	ki_page_text(out, report->store);
	ki_bytes_printf(
		out,
		"</p>\n<p class=\"about\">%s %s UTC; this page was "
		"made by kiln %u.%u.%u",
		since ? "Counted since" : "Nothing was counted before",
		in_utc(since ? since : report->now_s, "%Y-%m-%d %H:%M", text),
		kiln_version() >> 16, kiln_version() >> 8 & 255,
		kiln_version() & 255);
	ki_bytes_printf(out, " on %s UTC.</p>\n</header>\n",
			in_utc(report->now_s, "%Y-%m-%d %H:%M", text));
	navigation(out);
	ki_bytes_add_string(out, "<main>\n");
	facts(out, report);
}

/* ---- Over time --------------------------------------------------------------- */

/* Columns of a chart: hours, or days of 24 hours by UTC. */
struct slots {
	unsigned n;
	unsigned hours;	 /* of each */
	uint64_t newest; /* its number, in such hours since 1970 */
};

struct slot {
	uint64_t hits, misses, saved_ns, build_ns;
};

/* Of an hour; NULL where nothing is kept. */
static const uint64_t *row_of(const struct kiln_store_counters *counters,
			      uint64_t hour)
{
	uint64_t newest = counters->newest_hour;

	return hour <= newest && newest - hour < KILN_HOURS
		       ? counters->hours[newest - hour]
		       : NULL;
}

static int is_used(const uint64_t *row)
{
	return row && (row[0] || row[1] || row[2]);
}

/* Hours, if all that happened did so in the last two days. */
static struct slots choose_slots(const struct ki_report *report)
{
	uint64_t now = report->now_s / 3600;
	struct slots slots = { SLOTS_MAX, 1, now };

	for (uint64_t ago = SLOTS_MAX; ago < KILN_HOURS && ago <= now; ago++)
		if (is_used(row_of(report->counters, now - ago)))
			slots = (struct slots){ DAYS, 24, now / 24 };
	return slots;
}

static struct slot sum_slot(const struct kiln_store_counters *counters,
			    const struct slots *slots, uint64_t number)
{
	struct slot slot = { 0 };

	for (unsigned i = 0; i < slots->hours; i++) {
		const uint64_t *row =
			row_of(counters, number * slots->hours + i);

		if (!row)
			continue;
		slot.hits += row[0] + row[1];
		slot.misses += row[2];
		slot.build_ns += row[5];
		slot.saved_ns += row[6];
	}
	return slot;
}

static void name_slot(const struct slots *slots, uint64_t number,
		      char text[TEXT_BYTES])
{
	in_utc(number * slots->hours * 3600,
	       slots->hours == 1 ? "%b %d, %H:00" : "%b %d", text);
}

static void add_ratio(struct ki_chart *chart, const char *name,
		      const struct slot *slot)
{
	uint64_t asked = slot->hits + slot->misses;
	double percent =
		asked ? 100.0 * (double)slot->hits / (double)asked : -1;
	char text[TEXT_BYTES];

	if (!ki_chart_row(chart, percent))
		return;
	ki_chart_cell(chart, name);
	ki_chart_cell(chart, asked ? in_percent(percent, text) : "no look-ups");
	ki_chart_cell(chart, in_digits(slot->hits, text));
	ki_chart_cell(chart, in_digits(slot->misses, text));
}

static void add_saved(struct ki_chart *chart, const char *name,
		      const struct slot *slot)
{
	char text[TEXT_BYTES];

	if (!ki_chart_row(chart, (double)slot->saved_ns))
		return;
	ki_chart_cell(chart, name);
	ki_chart_cell(chart, in_time(slot->saved_ns, text));
	ki_chart_cell(chart, in_time(slot->build_ns, text));
}

static void ratio_section(struct ki_bytes *out, const struct ki_chart *chart,
			  const struct slots *slots)
{
	ki_page_section(out, "ratio", "Hits over time",
			slots->hours == 1
				? "Of the look-ups of each hour, how many "
				  "hit. An hour without look-ups has no "
				  "column."
				: "Of the look-ups of each day, how many hit. "
				  "A day without look-ups has no column.");
	ki_page_columns(out, chart);
	ki_page_section_end(out);
}

static void saved_section(struct ki_bytes *out, const struct ki_chart *chart,
			  const struct slots *slots)
{
	ki_page_section(out, "saved", "Build time saved",
			slots->hours == 1
				? "What the hits of each hour would have taken "
				  "to build."
				: "What the hits of each day would have taken "
				  "to build.");
	ki_page_columns(out, chart);
	ki_page_section_end(out);
}

static void over_time(struct ki_bytes *out, const struct ki_report *report)
{
	static const char *const ratio_heads[] = { "From", "Hit", "Hits",
						   "Misses", NULL };
	static const char *const saved_heads[] = { "From", "Saved",
						   "Spent building", NULL };
	struct slots slots = choose_slots(report);
	char name[TEXT_BYTES], most[TEXT_BYTES];
	struct ki_chart ratio, saved;
	uint64_t most_ns = 0;

	ki_chart_init(&ratio, "ratio", "Look-ups that hit", ratio_heads);
	ki_chart_init(&saved, "saved", "Build time saved", saved_heads);
	for (unsigned i = slots.n; i--;) {
		uint64_t number = slots.newest - i;
		struct slot slot = sum_slot(report->counters, &slots, number);

		name_slot(&slots, number, name);
		add_ratio(&ratio, name, &slot);
		add_saved(&saved, name, &slot);
		if (slot.saved_ns > most_ns)
			most_ns = slot.saved_ns;
	}
	ratio.scale = "100 %";
	ratio.full = 100;
	saved.scale = in_time(most_ns, most);
	ratio_section(out, &ratio, &slots);
	saved_section(out, &saved, &slots);
	ki_chart_fini(&ratio);
	ki_chart_fini(&saved);
}

/* ---- Misses ------------------------------------------------------------------ */

static void add_reason(struct ki_chart *chart, const char *words, uint64_t ever,
		       uint64_t lately)
{
	char text[TEXT_BYTES];

	if (!ever || !ki_chart_row(chart, (double)ever))
		return;
	ki_chart_cell(chart, words);
	ki_chart_cell(chart, in_digits(ever, text));
	ki_chart_cell(chart, in_digits(lately, text));
}

static void misses(struct ki_bytes *out, const struct ki_report *report)
{
	static const char *const heads[] = { "Reason", "Ever", "Last 7 days",
					     NULL };
	const uint64_t *ever = report->counters->total;
	uint64_t lately[KILN_N_COUNTERS];
	struct ki_chart chart;
	unsigned reason;

	ki_counts_since(report->counters, report->now_s - 7 * 86400, lately);
	ki_chart_init(&chart, "misses", "Misses by reason", heads);
	for (unsigned i = 0; (reason = ki_counts_reason(i)) < KILN_N_COUNTERS;
	     i++)
		add_reason(&chart, kiln_counter_words(reason), ever[reason],
			   lately[reason]);
	add_reason(&chart, "miss: no reason told", ki_counts_untold(ever),
		   ki_counts_untold(lately));
	ki_page_section(out, "misses", "Misses by reason",
			"Why it was not found, and why some builds were not "
			"looked up or kept at all.");
	ki_page_bars(out, &chart);
	ki_page_section_end(out);
	ki_chart_fini(&chart);
}

/* ---- What is in it ----------------------------------------------------------- */

/* `quotas`: of namespaces, else NULL. */
static void add_group(struct ki_chart *chart, const struct ki_group *group,
		      const char *name, const struct ki_quota_list *quotas)
{
	const struct kiln_namespace *quota =
		quotas ? ki_report_quota(quotas, group) : NULL;
	char text[TEXT_BYTES];

	if (!ki_chart_row(chart, (double)group->bytes))
		return;
	ki_chart_cell(chart, name);
	ki_chart_cell(chart, in_size(group->bytes, text));
	ki_chart_cell(chart, in_digits(group->n, text));
	ki_chart_cell(chart, in_time(group->build_ns, text));
	if (!quotas)
		return;
	ki_chart_cell(chart, quota ? in_size(quota->bytes_max, text) : "none");
	ki_chart_cell(chart, in_digits(quota ? quota->n_refused : 0, text));
}

static void groups(struct ki_bytes *out, const struct ki_groups *groups,
		   const struct ki_quota_list *quotas, const char *id,
		   const char *title, const char *about,
		   const char *const *heads)
{
	struct ki_group rest = { .is_rest = 1 };
	struct ki_chart chart;

	ki_chart_init(&chart, id, title, heads);
	for (size_t i = 0; i < groups->n; i++) {
		const struct ki_group *group = &groups->groups[i];

		if (i < GROUPS_DRAWN && !group->is_rest) {
			add_group(&chart, group,
				  name_or(group->name, "not told"), quotas);
			continue;
		}
		rest.bytes += group->bytes;
		rest.n += group->n;
		rest.build_ns += group->build_ns;
	}
	if (rest.n)
		add_group(&chart, &rest, "all others", quotas);
	ki_page_section(out, id, title, about);
	ki_page_bars(out, &chart);
	ki_page_section_end(out);
	ki_chart_fini(&chart);
}

static void bins(struct ki_bytes *out, const struct ki_bin *bins,
		 const char *id, const char *title, const char *about,
		 const char *const *heads)
{
	char text[TEXT_BYTES];
	struct ki_chart chart;
	uint64_t n = 0;

	ki_chart_init(&chart, id, title, heads);
	for (unsigned i = 0; i < KI_BINS_MAX; i++)
		n += bins[i].n;
	for (unsigned i = 0; n && i < KI_BINS_MAX && bins[i].name; i++) {
		(void)ki_chart_row(&chart, (double)bins[i].n);
		ki_chart_cell(&chart, bins[i].name);
		ki_chart_cell(&chart, in_digits(bins[i].n, text));
		ki_chart_cell(&chart, in_size(bins[i].bytes, text));
	}
	ki_page_section(out, id, title, about);
	ki_page_bars(out, &chart);
	ki_page_section_end(out);
	ki_chart_fini(&chart);
}

static void contents(struct ki_bytes *out, const struct ki_report *report)
{
	static const char *const application_heads[] = { "Application", "Size",
							 "Entries",
							 "Build time", NULL };
	static const char *const namespace_heads[] = {
		"Namespace",	     "Size", "Entries", "Build time", "Quota",
		"Not stored for it", NULL
	};
	static const char *const device_heads[] = { "Device", "Size", "Entries",
						    "Build time", NULL };
	static const char *const age_heads[] = { "Age", "Entries", "Size",
						 NULL };
	static const char *const size_heads[] = { "Size of an entry", "Entries",
						  "Size of all", NULL };
	const struct ki_survey *survey = report->survey;

	groups(out, &survey->applications, NULL, "applications",
	       "What fills the cache, by application",
	       "The entries that each application caused.", application_heads);
	groups(out, &survey->namespaces, &report->quotas, "namespaces",
	       "What fills the cache, by namespace",
	       "A program's namespace is the one that it was given, else the "
	       "last part of its path.",
	       namespace_heads);
	groups(out, &survey->devices, NULL, "devices",
	       "What fills the cache, by device",
	       "The devices that the entries are for.", device_heads);
	bins(out, survey->ages, "ages", "How old the entries are",
	     "Since they were made.", age_heads);
	bins(out, survey->sizes, "sizes", "How large the entries are",
	     "What they take in the store.", size_heads);
}

/* ---- Single entries ---------------------------------------------------------- */

static void next_to_go(struct ki_bytes *out, const struct ki_report *report)
{
	static const char *const heads[] = { "Key",  "Application", "Size",
					     "Made", "Last used",   "Options",
					     NULL };
	const struct ki_survey *survey = report->survey;
	struct ki_chart chart;
	char text[TEXT_BYTES];

	ki_chart_init(&chart, "next", "Next to go", heads);
	for (size_t i = 0; i < survey->next.n; i++) {
		const struct ki_noted *noted = &survey->next.noted[i];

		(void)ki_chart_row(&chart, 0);
		ki_chart_cell(&chart, noted->key);
		ki_chart_cell(&chart, name_or(noted->application, "not told"));
		ki_chart_cell(&chart, in_size(noted->bytes, text));
		ki_chart_cell(&chart, ago(report, noted->created, text));
		ki_chart_cell(&chart,
			      survey->has_turns ? ago(report, noted->used, text)
			      : noted->turn == 1 ? "not since the last eviction"
						 : "since the last eviction");
		ki_chart_cell(&chart, noted->options);
	}
	ki_page_section(out, "next", "Next to go",
			survey->has_turns
				? "What is evicted first when room is needed."
			: survey->is_by_cost
				? "What is evicted first when room is needed, "
				  "about: what was not used since the last "
				  "eviction, what is large and was built fast "
				  "before the rest."
				: "What is evicted first when room is needed, "
				  "about: what was not used since the last "
				  "eviction, the oldest first.");
	ki_page_table(out, &chart);
	ki_page_section_end(out);
	ki_chart_fini(&chart);
}

static void slowest(struct ki_bytes *out, const struct ki_report *report)
{
	static const char *const heads[] = { "Application", "Build time",
					     "Size",	    "Made",
					     "Key",	    "Options",
					     NULL };
	const struct ki_notes *notes = &report->survey->slowest;
	struct ki_chart chart;
	char text[TEXT_BYTES];

	ki_chart_init(&chart, "slowest", "Slowest builds", heads);
	for (size_t i = 0; i < notes->n; i++) {
		const struct ki_noted *noted = &notes->noted[i];

		(void)ki_chart_row(&chart, (double)noted->build_ns);
		ki_chart_cell(&chart, name_or(noted->application, "not told"));
		ki_chart_cell(&chart, in_time(noted->build_ns, text));
		ki_chart_cell(&chart, in_size(noted->bytes, text));
		ki_chart_cell(&chart, ago(report, noted->created, text));
		ki_chart_cell(&chart, noted->key);
		ki_chart_cell(&chart, noted->options);
	}
	ki_page_section(out, "slowest", "Slowest builds",
			"The entries that took longest to build: each hit of "
			"one saves so much.");
	ki_page_bars(out, &chart);
	ki_page_section_end(out);
	ki_chart_fini(&chart);
}

/* ---- Who uses it ------------------------------------------------------------- */

static void use(struct ki_bytes *out, const struct ki_report *report)
{
	static const char *const heads[] = { "Application", "Saved",
					     "Hits",	    "Misses",
					     "Hit",	    "Spent building",
					     "Last used",   NULL };
	const struct kiln_store_counters *counters = report->counters;
	struct ki_chart chart;
	char text[TEXT_BYTES];

	ki_chart_init(&chart, "use", "Use by application", heads);
	for (uint64_t i = 0; i < counters->n_programs; i++) {
		const struct kiln_program_counters *program =
			&counters->programs[i];
		const uint64_t *total = program->total;

		if (!ki_counts_lookups(total) ||
		    !ki_chart_row(&chart, (double)total[KILN_COUNT_SAVED_NS]))
			continue;
		ki_chart_cell(&chart, program->name);
		ki_chart_cell(&chart,
			      in_time(total[KILN_COUNT_SAVED_NS], text));
		ki_chart_cell(&chart, in_digits(ki_counts_hits(total), text));
		ki_chart_cell(&chart,
			      in_digits(total[KILN_COUNT_MISSES], text));
		ki_chart_cell(&chart,
			      in_percent(ki_counts_percent(total), text));
		ki_chart_cell(&chart,
			      in_time(total[KILN_COUNT_BUILD_NS], text));
		ki_chart_cell(&chart, ago(report, program->last, text));
	}
	ki_page_section(out, "use", "Who uses it",
			"The build time that the applications saved which used "
			"the store last.");
	ki_page_bars(out, &chart);
	ki_page_section_end(out);
	ki_chart_fini(&chart);
}

static void last_run(struct ki_bytes *out, const struct ki_report *report)
{
	const struct kiln_program_counters *run = &report->counters->last_run;
	char text[TEXT_BYTES];

	ki_page_section(out, "run", "Last run",
			run->last ? run->name : "None that was counted.");
	if (run->last) {
		ki_bytes_add_string(out, "<dl class=\"facts\">\n");
		fact(out, "Began", ago(report, run->first, text));
		facts_of_use(out, run->total);
		ki_bytes_add_string(out, "</dl>\n");
	}
	ki_page_section_end(out);
}

void ki_report_page(const struct ki_report *report, struct ki_bytes *out)
{
	head(out, report);
	over_time(out, report);
	misses(out, report);
	contents(out, report);
	next_to_go(out, report);
	slowest(out, report);
	use(out, report);
	last_run(out, report);
	ki_bytes_add_string(out, "</main>\n");
	ki_page_end(out);
}
