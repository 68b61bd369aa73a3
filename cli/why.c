/* SPDX-License-Identifier: MIT */

/*
 * kiln why: what made this entry another than the one before it.
 *
 * With one key it is compared with the nearest entry (nearest.c), with two the first
 * with the second; without any, what the last run missed is explained (why_run.c).
 */

#include "explain.h"
#include "find.h"
#include "nearest.h"
#include "out.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

/* An exit status. */
static int find_nearest(struct kiln *kiln, const struct ki_settings *settings,
			const struct kiln_entry *entry,
			struct ki_nearest *nearest)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry candidate;
	enum kiln_status status;

	while ((status = kiln_list(kiln, &cursor, &candidate)) == KILN_OK) {
		if (ki_nearest_is_known(settings, &candidate))
			ki_nearest_offer(nearest, entry, &candidate);
		kiln_entry_fini(&candidate);
	}
	return status == KILN_END ? KI_EXIT_OK
				  : ki_store_failed(status, "cannot list");
}

/* `other` may be NULL. */
static int tell(const struct ki_command *command, struct kiln *kiln,
		const struct kiln_entry *entry, const struct kiln_entry *other)
{
	struct ki_bytes out;
	struct ki_json json;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		ki_out_json(&out, &json);
		ki_explain_json(&json, kiln, entry, other);
		ki_json_end(&json);
	} else {
		ki_explain_text(&out, kiln, entry, other);
	}
	return ki_out_write(&out, KI_EXIT_OK);
}

static int complain_of_foreign(const struct ki_settings *settings,
			       const struct kiln_entry *entry)
{
	ki_complain("%s is %s: nobody knows of which build it is", entry->file,
		    ki_what_owner(settings));
	return KI_EXIT_NOT_FOUND;
}

static int explain_by_nearest(const struct ki_command *command,
			      struct kiln *kiln,
			      const struct ki_settings *settings,
			      const struct kiln_entry *entry)
{
	struct ki_nearest nearest = { .is_found = 0 };
	int status = find_nearest(kiln, settings, entry, &nearest);

	if (!status)
		status = tell(command, kiln, entry,
			      nearest.is_found ? &nearest.entry : NULL);
	ki_nearest_fini(&nearest);
	return status;
}

/* Of two keys the second is the one to be explained. */
static int explain_by_key(const struct ki_command *command, struct kiln *kiln,
			  const struct ki_settings *settings,
			  const struct kiln_entry *first)
{
	struct kiln_entry second;
	int status =
		ki_find_entry(kiln, settings, command->arguments[1], &second);

	if (status)
		return status;
	if (ki_nearest_is_known(settings, &second))
		status = tell(command, kiln, &second, first);
	else
		status = complain_of_foreign(settings, &second);
	kiln_entry_fini(&second);
	return status;
}

static int explain(const struct ki_command *command, struct kiln *kiln,
		   const struct ki_settings *settings, struct kiln_entry *first)
{
	if (!ki_nearest_is_known(settings, first))
		return complain_of_foreign(settings, first);
	return command->n_arguments > 1
		       ? explain_by_key(command, kiln, settings, first)
		       : explain_by_nearest(command, kiln, settings, first);
}

int ki_verb_why(const struct ki_command *command)
{
	struct ki_settings settings;
	struct kiln_entry entry;
	struct kiln *kiln = NULL;
	int status;

	if (!command->n_arguments)
		return ki_why_run(command);
	status = ki_settings_load(&settings, command, KI_STORE_LOOK);
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status)
		status = ki_find_entry(kiln, &settings, command->arguments[0],
				       &entry);
	if (!status) {
		status = explain(command, kiln, &settings, &entry);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
