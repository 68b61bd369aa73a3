/* SPDX-License-Identifier: MIT */

/* kiln clear: remove all entries, and the jobs that would bring them back. */

#include "base/json.h"
#include "base/text.h"
#include "jobs.h"
#include "out.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

struct removed {
	uint64_t n_entries;
	uint64_t n_hidden;  /* bookkeeping, which `ls` does not show */
	uint64_t n_foreign; /* of the entries: a driver's own */
	uint64_t bytes;
	uint64_t n_jobs;
};

static void print_text(struct ki_bytes *out, const char *owner,
		       const struct removed *removed)
{
	char size[32];

	ki_bytes_printf(out, "removed %llu entr%s (%s)",
			(unsigned long long)removed->n_entries,
			removed->n_entries == 1 ? "y" : "ies",
			ki_format_size(removed->bytes, size, sizeof(size)));
	if (removed->n_foreign)
		ki_bytes_printf(out, ", %llu of them %s,",
				(unsigned long long)removed->n_foreign, owner);
	ki_bytes_printf(out, " and %llu job%s\n",
			(unsigned long long)removed->n_jobs,
			removed->n_jobs == 1 ? "" : "s");
}

static int print(const struct ki_command *command,
		 const struct ki_settings *settings,
		 const struct removed *removed)
{
	struct ki_bytes out;
	struct ki_json json;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		ki_out_json(&out, &json);
		ki_json_number(&json, "entries_removed", removed->n_entries);
		ki_json_number(&json, "hidden_removed", removed->n_hidden);
		ki_json_number(&json, "foreign_removed", removed->n_foreign);
		ki_json_number(&json, "bytes_freed", removed->bytes);
		ki_json_number(&json, "jobs_removed", removed->n_jobs);
		ki_json_end(&json);
	} else {
		print_text(&out, ki_what_owner(settings), removed);
	}
	return ki_out_write(&out, KI_EXIT_OK);
}

static int is_hidden(const struct kiln_entry *entry)
{
	uint64_t flags = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
				     kiln_blob_size(entry->metadata),
				     KILN_META_FLAGS, &flags);
	return flags & KILN_ENTRY_HIDDEN ? 1 : 0;
}

/* By a look of its own: files that are open here would keep their room when they
   are removed, and on a full disk the emptied store needs some. */
static int count_entries(struct ki_settings *settings, struct removed *removed)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	struct kiln *kiln;
	int status = ki_store_open(settings, KI_STORE_LOOK, &kiln);

	while (kiln && kiln_list(kiln, &cursor, &entry) == KILN_OK) {
		if (is_hidden(&entry))
			removed->n_hidden++;
		else
			removed->n_entries++;
		removed->n_foreign += entry.is_foreign != 0;
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	return status;
}

static int wipe(struct kiln *kiln, struct removed *removed)
{
	struct kiln_store_info before = { 0 }, after = { 0 };
	enum kiln_status status;

	(void)kiln_store_info(kiln, &before);
	status = kiln_wipe(kiln);
	if (status)
		return ki_store_failed(status, "cannot clear");
	(void)kiln_store_info(kiln, &after);
	removed->bytes =
		before.bytes -
		(after.bytes < before.bytes ? after.bytes : before.bytes);
	return KI_EXIT_OK;
}

/* No entry is as small as a byte. */
static int wipe_namespace(struct kiln *kiln, const char *name_space,
			  struct removed *removed)
{
	const struct kiln_gc_options options = { .bytes_max = 1 };
	struct kiln_gc_report report = { 0 };
	enum kiln_status status = kiln_gc_namespace(kiln, name_space, &options,
						    NULL, NULL, &report);

	if (status == KILN_E_INVALID) {
		ki_complain("--namespace: '%s' is no name of one", name_space);
		return KI_EXIT_USAGE;
	}
	if (status)
		return ki_store_failed(status, "cannot clear");
	removed->n_entries = report.n_evicted;
	removed->bytes = report.bytes_before - report.bytes_after;
	return KI_EXIT_OK;
}

int ki_verb_clear(const struct ki_command *command)
{
	const char *name_space = command->values[KI_OPTION_NAMESPACE];
	struct removed removed = { 0 };
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	int status;

	status = ki_settings_load(&settings, command, 0);
	if (!status && !ki_store_is_pack(&settings))
		status = count_entries(&settings, &removed);
	if (!status)
		status = ki_store_open(&settings, 0, &kiln);
	if (!status && kiln)
		status = name_space ? wipe_namespace(kiln, name_space, &removed)
				    : wipe(kiln, &removed);
	if (!status) {
		if (!name_space)
			removed.n_jobs = ki_jobs_remove(settings.spool);
		status = print(command, &settings, &removed);
	}
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
