/* SPDX-License-Identifier: MIT */

/* kiln rm: remove entries, each named by the beginning of its key. */

#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"
#include "entry.h"
#include "find.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

struct removed {
	uint64_t n;
	uint64_t bytes;
};

static int remove_entry(struct kiln *kiln, const struct kiln_entry *entry,
			struct removed *removed)
{
	struct kiln_key *key;
	enum kiln_status status =
		kiln_key_from_record(kiln_blob_data(entry->record),
				     kiln_blob_size(entry->record), &key);

	if (!status) {
		status = kiln_remove(kiln, key);
		kiln_key_free(key);
	}
	if (status && status != KILN_MISS)
		return ki_store_failed(status, "cannot remove");
	if (!status) {
		removed->n++;
		removed->bytes += entry->value_size;
	}
	return KI_EXIT_OK;
}

/* All of them, or none: a key that names nothing is told before.  One that is
   named twice is removed once. */
static int remove_all(const struct ki_command *command,
		      const struct ki_settings *settings, struct kiln *kiln,
		      struct removed *removed)
{
	struct kiln_entry *entries =
		calloc((size_t)command->n_arguments, sizeof(*entries));
	int status = KI_EXIT_OK, n = 0;

	if (!entries)
		return ki_store_failed(KILN_E_NO_MEMORY, "cannot remove");
	while (n < command->n_arguments && !status) {
		status = ki_find_entry(kiln, settings, command->arguments[n],
				       &entries[n]);
		n += !status;
	}
	for (int i = 0; i < n && !status; i++)
		status = remove_entry(kiln, &entries[i], removed);
	while (n--)
		kiln_entry_fini(&entries[n]);
	free(entries);
	return status;
}

static int print(const struct ki_command *command,
		 const struct removed *removed)
{
	struct ki_bytes out;
	struct ki_json json;
	char size[32];

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		ki_out_json(&out, &json);
		ki_json_number(&json, "entries_removed", removed->n);
		ki_json_number(&json, "bytes_removed", removed->bytes);
		ki_json_end(&json);
	} else {
		ki_bytes_printf(
			&out, "removed %llu entr%s (%s)\n",
			(unsigned long long)removed->n,
			removed->n == 1 ? "y" : "ies",
			ki_format_size(removed->bytes, size, sizeof(size)));
	}
	return ki_out_write(&out, KI_EXIT_OK);
}

int ki_verb_rm(const struct ki_command *command)
{
	struct removed removed = { 0 };
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	int status;

	status = ki_settings_load(&settings, command, 0);
	if (!status)
		status = ki_store_open(&settings, 0, &kiln);
	if (!status)
		status = remove_all(command, &settings, kiln, &removed);
	if (!status)
		status = print(command, &removed);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
