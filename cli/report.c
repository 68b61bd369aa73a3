/* SPDX-License-Identifier: MIT */

/*
 * kiln report: what the cache did and what is in it, as one page (report_page.c)
 * to be looked at, printed or passed on, or as the numbers behind it.
 */

#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "counts.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

/* ---- JSON -------------------------------------------------------------------- */

static void json_hours(struct ki_json *json,
		       const struct kiln_store_counters *counters)
{
	static const unsigned hourly[] = KILN_HOURLY;

	ki_json_array(json, "hours");
	for (unsigned i = 0; i < KILN_HOURS && i <= counters->newest_hour;
	     i++) {
		const uint64_t *row = counters->hours[i];

		if (!row[0] && !row[1] && !row[2])
			continue;
		ki_json_object(json, NULL);
		ki_json_number(json, "begin",
			       (counters->newest_hour - i) * 3600);
		for (unsigned j = 0; j < 8; j++)
			ki_json_number(json, kiln_counter_name(hourly[j]),
				       row[j]);
		for (unsigned j = 0; j < KILN_REASONS_MAX; j++)
			if (counters->reasons[i][j])
				ki_json_number(
					json,
					kiln_counter_name(ki_counts_reason(j)),
					counters->reasons[i][j]);
		ki_json_end(json);
	}
	ki_json_end(json);
}

const struct kiln_namespace *ki_report_quota(const struct ki_quota_list *quotas,
					     const struct ki_group *group)
{
	return group->is_rest ? NULL : ki_quota_list_find(quotas, group->name);
}

static void json_group(struct ki_json *json, const struct ki_group *group)
{
	ki_json_string(json, "name", group->name);
	ki_json_bool(json, "is_rest", group->is_rest);
	ki_json_number(json, "entries", group->n);
	ki_json_number(json, "bytes", group->bytes);
	ki_json_number(json, "build_ns", group->build_ns);
}

static void json_groups(struct ki_json *json, const char *name,
			const struct ki_groups *groups)
{
	ki_json_array(json, name);
	for (size_t i = 0; i < groups->n; i++) {
		ki_json_object(json, NULL);
		json_group(json, &groups->groups[i]);
		ki_json_end(json);
	}
	ki_json_end(json);
}

/* With their quotas: 0 where there is none. */
static void json_namespaces(struct ki_json *json,
			    const struct ki_groups *groups,
			    const struct ki_quota_list *quotas)
{
	ki_json_array(json, "namespaces");
	for (size_t i = 0; i < groups->n; i++) {
		const struct ki_group *group = &groups->groups[i];
		const struct kiln_namespace *quota =
			ki_report_quota(quotas, group);

		ki_json_object(json, NULL);
		json_group(json, group);
		ki_json_number(json, "bytes_max", quota ? quota->bytes_max : 0);
		ki_json_number(json, "not_stored",
			       quota ? quota->n_refused : 0);
		ki_json_end(json);
	}
	ki_json_end(json);
}

static void json_bins(struct ki_json *json, const char *name,
		      const struct ki_bin *bins)
{
	ki_json_array(json, name);
	for (unsigned i = 0; i < KI_BINS_MAX && bins[i].name; i++) {
		ki_json_object(json, NULL);
		ki_json_string(json, "name", bins[i].name);
		ki_json_number(json, "entries", bins[i].n);
		ki_json_number(json, "bytes", bins[i].bytes);
		ki_json_end(json);
	}
	ki_json_end(json);
}

static void json_notes(struct ki_json *json, const char *name,
		       const struct ki_notes *notes)
{
	ki_json_array(json, name);
	for (size_t i = 0; i < notes->n; i++) {
		const struct ki_noted *noted = &notes->noted[i];

		ki_json_object(json, NULL);
		ki_json_string(json, "key", noted->key);
		ki_json_string(json, "application", noted->application);
		ki_json_string(json, "options", noted->options);
		ki_json_number(json, "build_ns", noted->build_ns);
		ki_json_number(json, "bytes", noted->bytes);
		ki_json_number(json, "created", noted->created);
		ki_json_end(json);
	}
	ki_json_end(json);
}

static void print_json(struct ki_bytes *out, const struct ki_report *report)
{
	const struct ki_survey *survey = report->survey;
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_string(&json, "store", report->store);
	ki_json_number(&json, "since", report->counters->since);
	ki_json_number(&json, "entries", survey->n);
	ki_json_number(&json, "bytes", report->info.bytes);
	ki_json_number(&json, "bytes_max", report->info.bytes_max);
	json_hours(&json, report->counters);
	json_groups(&json, "applications", &survey->applications);
	json_namespaces(&json, &survey->namespaces, &report->quotas);
	json_groups(&json, "devices", &survey->devices);
	json_bins(&json, "ages", survey->ages);
	json_bins(&json, "sizes", survey->sizes);
	json_notes(&json, "next_to_go", &survey->next);
	json_notes(&json, "slowest", &survey->slowest);
	ki_json_end(&json);
}

/* ---- The verb ---------------------------------------------------------------- */

static int look(struct kiln *kiln, struct ki_report *report)
{
	enum kiln_status status = kiln_store_info(kiln, &report->info);

	if (!status)
		status = ki_counts_read(kiln, report->counters);
	if (!status)
		status = ki_quota_list_load(kiln, &report->quotas);
	return status ? ki_store_failed(status, "cannot read the counters")
		      : KI_EXIT_OK;
}

static int take(const struct ki_command *command, struct ki_settings *settings,
		struct ki_report *report)
{
	struct kiln *kiln = NULL;
	int status = ki_settings_load(settings, command, KI_STORE_LOOK);

	if (!status)
		status = ki_store_open(settings, KI_STORE_LOOK, &kiln);
	report->store = settings->options.store_url;
	if (!status && kiln)
		status = look(kiln, report);
	if (!status)
		status = ki_survey_take(report->survey, kiln, settings);
	report->now_s = report->survey->now_s;
	kiln_close(kiln);
	return status;
}

static int put_out(const struct ki_command *command, struct ki_bytes *page)
{
	const char *path = command->n_arguments ? command->arguments[0] : "-";

	if (!strcmp(path, "-") || page->failed)
		return ki_out_write(page, KI_EXIT_OK);
	return ki_out_file(path, page->data, page->size);
}

int ki_verb_report(const struct ki_command *command)
{
	int is_json = ki_given(command, KI_OPTION_JSON);
	struct ki_settings settings = { 0 };
	struct ki_report report = { 0 };
	struct ki_bytes page;
	int status;

	if (!is_json && !command->n_arguments && isatty(STDOUT_FILENO)) {
		ki_complain("a page is nothing for a terminal: name a file, "
			    "'kiln report kiln.html'");
		return KI_EXIT_USAGE;
	}
	ki_bytes_init(&page);
	report.counters = calloc(1, sizeof(*report.counters));
	report.survey = ki_survey_new();
	status = report.counters && report.survey
			 ? take(command, &settings, &report)
			 : ki_store_failed(KILN_E_NO_MEMORY, "report");
	if (!status) {
		if (is_json)
			print_json(&page, &report);
		else
			ki_report_page(&report, &page);
		status = put_out(command, &page);
	}
	ki_bytes_fini(&page);
	ki_quota_list_free(&report.quotas);
	free(report.survey);
	free(report.counters);
	ki_settings_fini(&settings);
	return status;
}
