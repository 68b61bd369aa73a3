/* SPDX-License-Identifier: MIT */

/* kiln verify: read and check every entry. */

#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

static void show_progress(void *arg, uint64_t done, uint64_t total)
{
	int *percent = arg, now = total ? (int)(done * 100 / total) : 0;

	if (now == *percent)
		return;
	*percent = now;
	dprintf(STDERR_FILENO, "\r%d %%\033[K", now);
}

static int print(const struct ki_command *command,
		 const struct kiln_verify_report *report)
{
	struct ki_bytes out;
	struct ki_json json;
	char size[32];

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		ki_json_begin(&json, &out);
		ki_json_object(&json, NULL);
		ki_json_number(&json, "schema", 1);
		ki_json_number(&json, "entries", report->n_entries);
		ki_json_number(&json, "bytes", report->bytes);
		ki_json_number(&json, "damaged", report->n_damaged);
		ki_json_number(&json, "repaired", report->n_repaired);
		ki_json_end(&json);
	} else {
		ki_bytes_printf(
			&out,
			"%llu entries (%s), %llu damaged, "
			"%llu put aside\n",
			(unsigned long long)report->n_entries,
			ki_format_size(report->bytes, size, sizeof(size)),
			(unsigned long long)report->n_damaged,
			(unsigned long long)report->n_repaired);
	}
	return ki_out_write(&out,
			    report->n_damaged ? KI_EXIT_FINDINGS : KI_EXIT_OK);
}

int ki_verb_verify(const struct ki_command *command)
{
	int is_repairing = ki_given(command, KI_OPTION_REPAIR);
	int has_progress = ki_out_has_progress(), percent = -1;
	struct kiln_verify_report report = { 0 };
	enum kiln_status result = KILN_OK;
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	int status;

	status = ki_settings_load(&settings, command);
	if (!status)
		status = ki_store_open(&settings,
				       is_repairing ? 0 : KI_STORE_LOOK, &kiln);
	if (!status && kiln)
		result = kiln_verify(
			kiln, is_repairing ? KILN_VERIFY_REPAIR : 0,
			has_progress ? show_progress : NULL, &percent, &report);
	if (percent >= 0)
		dprintf(STDERR_FILENO, "\r\033[K");
	if (result)
		status = ki_store_failed(result, "cannot verify");
	if (!status)
		status = print(command, &report);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
