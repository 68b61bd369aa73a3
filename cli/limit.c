/* SPDX-License-Identifier: MIT */

/* kiln config --store, --limit, --eviction: the limit that a store has of its
   own, and what goes first there. */

#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "out.h"
#include "quota.h"
#include "store.h"
#include "verbs.h"

static int change(struct kiln *kiln, const char *text, uint64_t limit)
{
	enum kiln_status status = kiln_set_limit(kiln, limit);

	if (status == KILN_E_FULL) {
		ki_complain("--limit: the store needs more than %s for itself; "
			    "its limit stays as it is",
			    text);
		return KI_EXIT_FAILED;
	}
	return status ? ki_store_failed(status, "cannot change the limit")
		      : KI_EXIT_OK;
}

static const char *const evictions[] = {
	[KILN_EVICT_BY_USE] = "recency",
	[KILN_EVICT_BY_COST] = "cost",
};
#define N_EVICTIONS ((int)(sizeof(evictions) / sizeof(*evictions)))

/* -1: no such thing. */
static int parse_eviction(const char *text)
{
	int i;

	for (i = 0; i < N_EVICTIONS && strcmp(text, evictions[i]); i++)
		;
	return i < N_EVICTIONS ? i : -1;
}

static int change_eviction(struct kiln *kiln, const char *text)
{
	enum kiln_status status = kiln_set_eviction(
		kiln, (enum kiln_eviction)parse_eviction(text));

	if (status == KILN_E_UNSUPPORTED) {
		ki_complain("--eviction: this kind of store has no choice");
		return KI_EXIT_UNAVAILABLE;
	}
	return status ? ki_store_failed(status, "cannot change the eviction")
		      : KI_EXIT_OK;
}

static int is_shared(const struct ki_settings *settings)
{
	return (settings->options.flags & KILN_OPEN_SHARED) != 0;
}

static void print_json(struct ki_bytes *out, const struct ki_settings *settings,
		       const struct kiln_store_info *info,
		       const struct ki_quota_list *quotas)
{
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_string(&json, "kind", info->kind);
	ki_json_string(&json, "directory", settings->directory);
	ki_json_number(&json, "bytes", info->bytes);
	ki_json_number(&json, "bytes_max", info->bytes_max);
	ki_json_string(&json, "eviction", evictions[info->eviction]);
	ki_json_bool(&json, "shared", is_shared(settings));
	ki_quota_list_json(quotas, &json);
	ki_json_end(&json);
}

static void print_text(struct ki_bytes *out, const struct ki_settings *settings,
		       const struct kiln_store_info *info,
		       const struct ki_quota_list *quotas)
{
	char bytes[32], limit[32], quota[160];

	ki_bytes_printf(out,
			"%s:%s\n  limit     %s\n  used      %s\n"
			"  eviction  by %s\n",
			info->kind, settings->directory,
			info->bytes_max ? ki_format_size(info->bytes_max, limit,
							 sizeof(limit))
					: "none",
			ki_format_size(info->bytes, bytes, sizeof(bytes)),
			evictions[info->eviction]);
	if (is_shared(settings))
		ki_bytes_add_string(out, "  shared    with its group\n");
	for (size_t i = 0; i < quotas->n; i++) {
		ki_bytes_printf(out, "  quota     ");
		ki_out_safe(out, quotas->rows[i].name, 0);
		ki_bytes_printf(
			out, ": %s\n",
			ki_quota_words(&quotas->rows[i], quota, sizeof(quota)));
	}
}

static int show(const struct ki_command *command, struct kiln *kiln,
		const struct ki_settings *settings)
{
	struct kiln_store_info info = { 0 };
	enum kiln_status status = kiln_store_info(kiln, &info);
	struct ki_quota_list quotas = { NULL, 0 };
	struct ki_bytes out;

	if (!status)
		status = ki_quota_list_load(kiln, &quotas);
	if (status)
		return ki_store_failed(status, "cannot read the limit");
	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, settings, &info, &quotas);
	else
		print_text(&out, settings, &info, &quotas);
	ki_quota_list_free(&quotas);
	return ki_out_write(&out, KI_EXIT_OK);
}

int ki_limit(const struct ki_command *command)
{
	const char *text = command->values[KI_OPTION_LIMIT];
	const char *eviction = command->values[KI_OPTION_EVICTION];
	const unsigned flags = text || eviction ? 0 : KI_STORE_LOOK;
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	uint64_t limit = 0;
	int status;

	if (text && ki_parse_size(text, &limit)) {
		ki_complain("--limit: '%s' is no size; use a number with K, M, "
			    "G or T, or 0 for no limit",
			    text);
		return KI_EXIT_USAGE;
	}
	if (eviction && parse_eviction(eviction) < 0) {
		ki_complain("--eviction: '%s' is neither recency nor cost",
			    eviction);
		return KI_EXIT_USAGE;
	}
	status = ki_settings_load(&settings, command, flags);
	if (!status)
		status = ki_store_open(&settings, flags, &kiln);
	if (!status && !kiln) {
		ki_complain("there is no store yet; KILN_MAX_SIZE is the limit "
			    "of those that are made");
		status = KI_EXIT_NOT_FOUND;
	}
	if (!status && text)
		status = change(kiln, text, limit);
	if (!status && eviction)
		status = change_eviction(kiln, eviction);
	if (!status)
		status = show(command, kiln, &settings);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
