/* SPDX-License-Identifier: MIT */

#include "uploads.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/remote.h>

#include "out.h"

#define DRAIN_MS 300000
#define TELL_MS	 2000

static uint64_t number_of(const struct ki_json_value *uploads, const char *name)
{
	struct ki_json_value member = ki_json_member(uploads, name);

	return ki_json_number_of(&member);
}

struct ki_uploads ki_uploads_of(const struct ki_json_value *told)
{
	static const char *const kinds[] = {
		"dropped_full",	 "dropped_unsigned", "dropped_large",
		"dropped_fault", "dropped_readonly", "dropped_bad",
	};
	const struct ki_json_value uploads = ki_json_member(told, "uploads");
	struct ki_uploads sums = { .n_done = number_of(&uploads, "done"),
				   .n_waiting =
					   number_of(&uploads, "waiting") };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		sums.n_dropped += number_of(&uploads, kinds[i]);
	return sums;
}

int ki_uploads_wait(const struct kiln_options *options,
		    struct ki_uploads *out_uploads)
{
	struct ki_json_value told;
	enum kiln_status status;
	char *text;
	int is_known;

	if (!options->remote)
		return 0;
	status = kiln_remote_drain(options, DRAIN_MS);
	if (status == KILN_MISS)
		return 0;
	if (status)
		ki_complain("what is to go to the remote is still on its way: "
			    "%s",
			    kiln_status_name(status));
	if (kiln_remote_tell(options, KILN_REMOTE_STATE, TELL_MS, &text))
		return 0;
	is_known = ki_json_parse(text, strlen(text), &told);
	if (is_known)
		*out_uploads = ki_uploads_of(&told);
	free(text);
	return is_known;
}
