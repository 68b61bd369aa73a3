/* SPDX-License-Identifier: MIT */

/* kiln export: entries into a pack, for other machines. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/pack.h>

#include "base/json.h"
#include "base/text.h"
#include "choice.h"
#include "out.h"
#include "progress.h"
#include "signing.h"
#include "store.h"
#include "verbs.h"

struct exported {
	const char *path;
	struct kiln_pack_report report;
	size_t n_ordered; /* of the entries: in recorded order */
	size_t n_foreign;
	/* Chosen, and not in the pack. */
	size_t n_local; /* their keys must not leave this machine */
	size_t n_gone;	/* evicted meanwhile, or damaged */
};

/* ---- Writing ------------------------------------------------------------------- */

/* Whether the directory that it is to be written in is missing. */
static int has_no_place(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct ki_file_info info;
	char folder[KI_PATH_MAX];

	if (!slash || slash == path || slash - path >= KI_PATH_MAX)
		return 0;
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	return ki_sys_posix.stat(&ki_sys_posix, folder, &info) == -ENOENT;
}

static int failed(enum kiln_status status, const char *path)
{
	if (status == KILN_EXISTS) {
		ki_complain("'%s' is there already: give another name, or "
			    "--replace",
			    path);
		return KI_EXIT_FAILED;
	}
	if (has_no_place(path)) {
		ki_complain("cannot write '%s': there is no such directory",
			    path);
		return KI_EXIT_FAILED;
	}
	ki_complain("cannot write '%s': %s (%s)", path, ki_status_words(status),
		    kiln_status_name(status));
	return KI_EXIT_FAILED;
}

/* KILN_MISS: it is gone. */
static enum kiln_status add(struct kiln *kiln, struct kiln_pack_writer *writer,
			    const struct kiln_key *key)
{
	struct kiln_blob *value, *metadata;
	enum kiln_status status = kiln_peek(kiln, key, &value, &metadata);

	if (status)
		return status;
	status = kiln_pack_add(writer, key, kiln_blob_data(metadata),
			       kiln_blob_size(metadata), kiln_blob_data(value),
			       kiln_blob_size(value));
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return status;
}

/* KILN_OK also of what is left out, and counted. */
static enum kiln_status add_chosen(struct kiln *kiln,
				   struct kiln_pack_writer *writer,
				   const struct ki_chosen *chosen,
				   struct exported *exported)
{
	struct kiln_key *key;
	enum kiln_status status =
		kiln_key_from_record(kiln_blob_data(chosen->record),
				     kiln_blob_size(chosen->record), &key);

	if (status)
		return status;
	if (kiln_key_is_local(key)) {
		exported->n_local++;
	} else {
		status = add(kiln, writer, key);
		if (status == KILN_MISS || status == KILN_E_FORMAT) {
			exported->n_gone++;
			status = KILN_OK;
		} else if (!status) {
			exported->n_ordered += chosen->place != 0;
		}
	}
	kiln_key_free(key);
	return status;
}

static enum kiln_status add_all(struct kiln *kiln,
				struct kiln_pack_writer *writer,
				const struct ki_choice *choice,
				struct exported *exported)
{
	enum kiln_status status = KILN_OK;
	struct ki_progress progress;
	uint64_t done = 0;

	ki_progress_begin(&progress);
	for (size_t i = 0; i < choice->n && !status; i++) {
		status =
			add_chosen(kiln, writer, &choice->entries[i], exported);
		done += choice->entries[i].bytes;
		ki_progress_step(&progress, done, choice->bytes);
	}
	ki_progress_finish(&progress);
	return status;
}

/* Why there is no pack. */
static int complain_of_nothing(const struct ki_choice *choice,
			       const struct exported *exported)
{
	if (exported->n_local)
		ki_complain("nothing to export: the keys of all %zu entries "
			    "have fields that are of this machine alone",
			    exported->n_local);
	else if (choice->n_foreign && !choice->n)
		ki_complain("nothing to export: of a driver's own entries "
			    "nobody has the keys");
	else
		ki_complain("nothing to export: no entry is meant; see 'kiln "
			    "ls'");
	return KI_EXIT_NOT_FOUND;
}

static int write_pack(const struct ki_command *command, struct kiln *kiln,
		      const struct ki_choice *choice,
		      const struct ki_signing *signing,
		      struct exported *exported)
{
	struct kiln_pack_writer_options options;
	struct kiln_store_info info = { 0 };
	struct kiln_pack_writer *writer;
	enum kiln_status status;

	kiln_pack_writer_options_init(&options);
	/* Its programs take entries of their own version alone. */
	(void)kiln_store_info(kiln, &info);
	options.user_version = info.user_version;
	if (ki_given(command, KI_OPTION_REPLACE))
		options.flags |= KILN_PACK_REPLACE;
	options.signing_keys = signing->texts;
	options.n_signing_keys = signing->n;
	status = kiln_pack_create(exported->path, &options, &writer);
	if (status)
		return failed(status, exported->path);
	status = add_all(kiln, writer, choice, exported);
	if (!status && choice->n > exported->n_local + exported->n_gone) {
		status = kiln_pack_finish(writer, &exported->report);
		return status ? failed(status, exported->path) : KI_EXIT_OK;
	}
	kiln_pack_abandon(writer);
	return status ? failed(status, exported->path)
		      : complain_of_nothing(choice, exported);
}

/* ---- The answer ----------------------------------------------------------------- */

static void print_json(struct ki_bytes *out, const struct exported *exported)
{
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_string(&json, "file", exported->path);
	ki_json_number(&json, "entries", exported->report.n_entries);
	ki_json_number(&json, "bytes", exported->report.bytes);
	ki_json_number(&json, "signatures", exported->report.n_signatures);
	ki_json_number(&json, "ordered", exported->n_ordered);
	ki_json_number(&json, "left_local", exported->n_local);
	ki_json_number(&json, "left_gone", exported->n_gone);
	ki_json_number(&json, "left_foreign", exported->n_foreign);
	ki_json_end(&json);
}

static void print_left(struct ki_bytes *out, size_t n, const char *why)
{
	if (n)
		ki_bytes_printf(out, "  %zu left out: %s\n", n, why);
}

static void print_text(struct ki_bytes *out, const struct exported *exported)
{
	const struct kiln_pack_report *report = &exported->report;
	char size[32];

	ki_bytes_printf(out, "%llu entr%s in ",
			(unsigned long long)report->n_entries,
			report->n_entries == 1 ? "y" : "ies");
	ki_out_safe(out, exported->path, 0);
	ki_bytes_printf(out, " (%s), %s\n",
			ki_format_size(report->bytes, size, sizeof(size)),
			report->n_signatures ? "signed" : "not signed");
	print_left(out, exported->n_local,
		   "their keys have fields that are of this machine alone");
	print_left(out, exported->n_gone, "evicted meanwhile, or damaged");
	print_left(out, exported->n_foreign,
		   "a driver's own, which nobody has the keys of");
}

static int print(const struct ki_command *command,
		 const struct exported *exported)
{
	struct ki_bytes out;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, exported);
	else
		print_text(&out, exported);
	return ki_out_write(&out, KI_EXIT_OK);
}

static int export_from(const struct ki_command *command, struct kiln *kiln,
		       const struct ki_filter *filter,
		       const struct ki_signing *signing,
		       struct exported *exported)
{
	struct ki_choice choice = { 0 };
	enum kiln_status result = KILN_OK;
	int status;

	if (kiln)
		result = ki_choose(kiln, filter, &choice);
	ki_unknown_complain(&choice.unknown);
	exported->n_foreign = choice.n_foreign;
	if (result)
		status = ki_store_failed(result, "cannot list");
	else if (!choice.n)
		status = complain_of_nothing(&choice, exported);
	else
		status = write_pack(command, kiln, &choice, signing, exported);
	ki_choice_fini(&choice);
	return status;
}

int ki_verb_export(const struct ki_command *command)
{
	struct exported exported = { .path = command->arguments[0] };
	struct ki_filter filter;
	struct ki_settings settings;
	struct ki_signing signing;
	struct kiln *kiln = NULL;
	int status = ki_filter_parse(command, &filter);

	if (status)
		return status;
	/* What is not safe to load is not handed on. */
	status = ki_settings_load(&settings, command, KILN_OPEN_READONLY);
	if (!status)
		status = ki_store_open(&settings, KILN_OPEN_READONLY, &kiln);
	if (!status) {
		status = ki_signing_load(&signing, command, &settings);
		if (!status)
			status = export_from(command, kiln, &filter, &signing,
					     &exported);
		ki_signing_fini(&signing);
	}
	if (!status)
		status = print(command, &exported);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
