/* SPDX-License-Identifier: MIT */

/* kiln gc: bring the store under its limits now. */

#include "base/json.h"
#include "base/text.h"
#include "d3d12.h"
#include "out.h"
#include "progress.h"
#include "store.h"
#include "verbs.h"

/* What SIZE and AGE say; 0 where they are not given. */
static int parse(const struct ki_command *command,
		 struct kiln_gc_options *options)
{
	const char *size = command->values[KI_OPTION_MAX_SIZE];
	const char *age = command->values[KI_OPTION_OLDER_THAN];

	*options = (struct kiln_gc_options){ 0 };
	if (size &&
	    (ki_parse_size(size, &options->bytes_max) || !options->bytes_max)) {
		ki_complain("--max-size: '%s' is no size; use a number with K, "
			    "M, G or T ('kiln clear' removes all)",
			    size);
		return KI_EXIT_USAGE;
	}
	if (age &&
	    (ki_parse_age(age, &options->age_max_s) || !options->age_max_s)) {
		ki_complain("--older-than: '%s' is no age; use a number with "
			    "s, m, h, d or w ('kiln clear' removes all)",
			    age);
		return KI_EXIT_USAGE;
	}
	if (ki_given(command, KI_OPTION_DRY_RUN)) {
		ki_complain("--dry-run goes with --d3d12");
		return KI_EXIT_USAGE;
	}
	if (ki_given(command, KI_OPTION_QUARANTINE) &&
	    ki_given(command, KI_OPTION_NAMESPACE)) {
		ki_complain(
			"--quarantine: damaged entries are of no namespace");
		return KI_EXIT_USAGE;
	}
	if (ki_given(command, KI_OPTION_QUARANTINE))
		options->flags |= KILN_GC_QUARANTINE;
	return KI_EXIT_OK;
}

static uint64_t freed(const struct kiln_gc_report *report)
{
	return report->bytes_before > report->bytes_after
		       ? report->bytes_before - report->bytes_after
		       : 0;
}

static void print_json(struct ki_bytes *out,
		       const struct kiln_gc_report *report)
{
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_number(&json, "bytes_before", report->bytes_before);
	ki_json_number(&json, "bytes_after", report->bytes_after);
	ki_json_number(&json, "bytes_freed", freed(report));
	ki_json_number(&json, "evicted", report->n_evicted);
	ki_json_number(&json, "expired", report->n_expired);
	ki_json_number(&json, "files_without_entries", report->n_segments);
	ki_json_number(&json, "unfinished", report->n_temporaries);
	ki_json_number(&json, "quarantined", report->n_quarantined);
	ki_json_end(&json);
}

static void print_count(struct ki_bytes *out, uint64_t n, const char *one,
			const char *many)
{
	if (n)
		ki_bytes_printf(out, "  %llu %s\n", (unsigned long long)n,
				n == 1 ? one : many);
}

static void print_text(struct ki_bytes *out,
		       const struct kiln_gc_report *report)
{
	char gone[32], left[32];

	ki_bytes_printf(
		out, "freed %s, %s are left\n",
		ki_format_size(freed(report), gone, sizeof(gone)),
		ki_format_size(report->bytes_after, left, sizeof(left)));
	print_count(out, report->n_evicted, "entry evicted", "entries evicted");
	print_count(out, report->n_expired, "entry expired", "entries expired");
	print_count(out, report->n_segments, "file without entries",
		    "files without entries");
	print_count(out, report->n_temporaries, "file left unfinished",
		    "files left unfinished");
	print_count(out, report->n_quarantined, "damaged entry put aside",
		    "damaged entries put aside");
}

static int print(const struct ki_command *command,
		 const struct kiln_gc_report *report)
{
	struct ki_bytes out;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, report);
	else
		print_text(&out, report);
	return ki_out_write(&out, KI_EXIT_OK);
}

/* NULL: of all. */
static int clean(struct kiln *kiln, const char *name_space,
		 const struct kiln_gc_options *options,
		 struct kiln_gc_report *report)
{
	struct ki_progress progress;
	enum kiln_status status;

	ki_progress_begin(&progress);
	status = name_space ? kiln_gc_namespace(kiln, name_space, options,
						ki_progress_step, &progress,
						report)
			    : kiln_gc(kiln, options, ki_progress_step,
				      &progress, report);
	ki_progress_finish(&progress);
	if (status == KILN_E_INVALID && name_space) {
		ki_complain("--namespace: '%s' is no name of one", name_space);
		return KI_EXIT_USAGE;
	}
	if (status == KILN_E_FULL) {
		ki_complain("--max-size: the store needs more than that for "
			    "itself ('kiln clear' removes all)");
		return KI_EXIT_FAILED;
	}
	return status ? ki_store_failed(status, "cannot clean up") : KI_EXIT_OK;
}

int ki_verb_gc(const struct ki_command *command)
{
	struct kiln_gc_options options;
	struct kiln_gc_report report = { 0 };
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	int status;

	if (ki_given(command, KI_OPTION_D3D12))
		return ki_d3d12_gc(command);
	status = parse(command, &options);
	if (status)
		return status;
	status = ki_settings_load(&settings, command, 0);
	if (!status)
		status = ki_store_open(&settings, 0, &kiln);
	if (!status && kiln)
		status = clean(kiln, command->values[KI_OPTION_NAMESPACE],
			       &options, &report);
	if (!status)
		status = print(command, &report);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
