/* SPDX-License-Identifier: MIT */

/* kiln verify: read and check every entry, or only what is kept count of. */

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "out.h"
#include "progress.h"
#include "signing.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

static void key_of(const struct kiln_damaged *damaged,
		   char out[2 * KILN_DIGEST_BYTES + 1])
{
	out[0] = '\0';
	if (damaged->has_digest)
		ki_hex(damaged->digest, KILN_DIGEST_BYTES, out);
}

static void add_damaged(struct ki_json *json,
			const struct kiln_verify_report *report)
{
	char key[2 * KILN_DIGEST_BYTES + 1];
	unsigned i;

	ki_json_array(json, "damaged_entries");
	for (i = 0; i < report->n_named; i++) {
		const struct kiln_damaged *damaged = &report->named[i];

		key_of(damaged, key);
		ki_json_object(json, NULL);
		if (*key)
			ki_json_string(json, "key", key);
		else
			ki_json_null(json, "key");
		ki_json_string(json, "file", damaged->file);
		ki_json_number(json, "offset", damaged->offset);
		ki_json_end(json);
	}
	ki_json_end(json);
}

/* Of a pack, what else there is to say. */
enum trust { NO_PACK, NOT_TRUSTED, TRUSTED };

static void print_json(struct ki_bytes *out, unsigned flags, enum trust trust,
		       const struct kiln_verify_report *report)
{
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_number(&json, "entries", report->n_entries);
	ki_json_number(&json, "bytes", report->bytes);
	ki_json_number(&json, "damaged", report->n_damaged);
	ki_json_number(&json, "gone", report->n_gone);
	ki_json_number(&json, "repaired", report->n_repaired);
	ki_json_number(&json, "dropped", report->n_dropped);
	ki_json_number(&json, "foreign", report->n_foreign);
	ki_json_number(&json, "foreign_bytes", report->bytes_foreign);
	ki_json_number(&json, "sources", report->n_sources);
	ki_json_number(&json, "sources_torn", report->n_sources_torn);
	ki_json_number(&json, "dead", report->n_dead);
	ki_json_number(&json, "dead_bytes", report->bytes_dead);
	if (flags) {
		ki_json_number(&json, "entries_noted", report->n_noted);
		ki_json_number(&json, "entries_counted", report->n_counted);
		ki_json_number(&json, "bytes_noted", report->bytes_noted);
		ki_json_number(&json, "bytes_counted", report->bytes_counted);
	}
	if (trust)
		ki_json_bool(&json, "trusted", trust == TRUSTED);
	add_damaged(&json, report);
	ki_json_end(&json);
}

static void print_damaged(struct ki_bytes *out,
			  const struct kiln_verify_report *report)
{
	char key[2 * KILN_DIGEST_BYTES + 1];
	unsigned i;

	for (i = 0; i < report->n_named; i++) {
		const struct kiln_damaged *damaged = &report->named[i];

		key_of(damaged, key);
		ki_bytes_printf(out, "  %s%s", key, *key ? "  " : "");
		(void)ki_out_safe(out, damaged->file, 0);
		ki_bytes_printf(out, " at %llu\n",
				(unsigned long long)damaged->offset);
	}
	if (report->n_damaged > report->n_named)
		ki_bytes_printf(out, "  and %llu more\n",
				(unsigned long long)(report->n_damaged -
						     report->n_named));
}

static void print_entries(struct ki_bytes *out, const char *owner,
			  const struct kiln_verify_report *report)
{
	char size[32];

	ki_bytes_printf(out, "%llu entr%s whole (%s), %llu damaged",
			(unsigned long long)report->n_entries,
			report->n_entries == 1 ? "y" : "ies",
			ki_format_size(report->bytes, size, sizeof(size)),
			(unsigned long long)report->n_damaged);
	if (report->n_damaged)
		ki_bytes_printf(out, ", %llu put aside",
				(unsigned long long)(report->n_repaired -
						     report->n_dropped));
	if (report->n_dropped)
		ki_bytes_printf(out, ", %llu removed",
				(unsigned long long)report->n_dropped);
	if (report->n_gone)
		ki_bytes_printf(out, ", %llu lost with their files",
				(unsigned long long)report->n_gone);
	ki_bytes_add_string(out, "\n");
	print_damaged(out, report);
	if (report->n_foreign)
		ki_bytes_printf(out, "%llu, %s (%s), have no checksum\n",
				(unsigned long long)report->n_foreign, owner,
				ki_format_size(report->bytes_foreign, size,
					       sizeof(size)));
	if (report->n_sources || report->n_sources_torn)
		ki_bytes_printf(out, "%llu kept source%s whole",
				(unsigned long long)report->n_sources,
				report->n_sources == 1 ? "" : "s");
	if (report->n_sources_torn)
		ki_bytes_printf(out, ", %llu torn: as if not kept",
				(unsigned long long)report->n_sources_torn);
	if (report->n_sources || report->n_sources_torn)
		ki_bytes_add_u8(out, '\n');
	if (report->n_dead)
		ki_bytes_printf(
			out, "%s are of entries replaced or removed\n",
			ki_format_size(report->bytes_dead, size, sizeof(size)));
}

static void print_account(struct ki_bytes *out,
			  const struct kiln_verify_report *report)
{
	char noted[32], counted[32];

	ki_format_size(report->bytes_noted, noted, sizeof(noted));
	ki_format_size(report->bytes_counted, counted, sizeof(counted));
	if (report->bytes_noted == report->bytes_counted &&
	    report->n_noted == report->n_counted)
		ki_bytes_printf(out, "the account was right: %s\n", counted);
	else if (report->n_noted || report->n_counted)
		ki_bytes_printf(out,
				"the account said %llu entries (%s), "
				"there are %llu (%s)\n",
				(unsigned long long)report->n_noted, noted,
				(unsigned long long)report->n_counted, counted);
	else
		ki_bytes_printf(out, "the account said %s, there are %s\n",
				noted, counted);
}

static int print(const struct ki_command *command,
		 const struct ki_settings *settings, unsigned flags,
		 const struct kiln_verify_report *report)
{
	enum trust trust = NO_PACK;
	struct ki_bytes out;

	if (ki_store_is_pack(settings))
		trust = ki_signing_is_trusted(settings, settings->directory)
				? TRUSTED
				: NOT_TRUSTED;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		print_json(&out, flags, trust, report);
	} else {
		if (flags != KILN_VERIFY_ACCOUNTING)
			print_entries(&out, ki_what_owner(settings), report);
		if (flags)
			print_account(&out, report);
		if (trust)
			ki_bytes_printf(
				&out, "%s by a key that is trusted here\n",
				trust == TRUSTED ? "signed" : "not signed");
	}
	return ki_out_write(&out,
			    report->n_damaged ? KI_EXIT_FINDINGS : KI_EXIT_OK);
}

static enum kiln_status verify(struct kiln *kiln, unsigned flags,
			       struct kiln_verify_report *report)
{
	struct ki_progress progress;
	enum kiln_status status;

	ki_progress_begin(&progress);
	status = kiln_verify(kiln, flags, ki_progress_step, &progress, report);
	ki_progress_finish(&progress);
	return status;
}

int ki_verb_verify(const struct ki_command *command)
{
	struct kiln_verify_report report = { 0 };
	enum kiln_status result = KILN_OK;
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	unsigned flags = 0, look;
	int status;

	if (ki_given(command, KI_OPTION_REPAIR))
		flags |= KILN_VERIFY_REPAIR;
	if (ki_given(command, KI_OPTION_ACCOUNTING))
		flags |= KILN_VERIFY_ACCOUNTING;
	look = flags ? 0 : KI_STORE_LOOK;
	status = ki_settings_load(&settings, command, look);
	if (!status)
		status = ki_store_open(&settings, look, &kiln);
	if (!status && kiln)
		result = verify(kiln, flags, &report);
	if (result)
		status = ki_store_failed(result, "cannot verify");
	if (!status)
		status = print(command, &settings, flags, &report);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
