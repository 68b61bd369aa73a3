/* SPDX-License-Identifier: MIT */

/* kiln config --namespace: what one namespace of a store may take. */

#include "quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

/* ---- Showing ------------------------------------------------------------------- */

enum kiln_status ki_quota_list_load(struct kiln *kiln,
				    struct ki_quota_list *out_list)
{
	struct kiln_namespace *rows =
		calloc(KILN_NAMESPACES_MAX, sizeof(*rows));
	enum kiln_status status = KILN_OK;
	size_t position = 0, n = 0;

	*out_list = (struct ki_quota_list){ NULL, 0 };
	if (!rows)
		return KILN_E_NO_MEMORY;
	while (n < KILN_NAMESPACES_MAX &&
	       !(status = kiln_next_namespace(kiln, &position, &rows[n])))
		n++;
	if (status < 0 && status != KILN_E_UNSUPPORTED) {
		free(rows);
		return status;
	}
	*out_list = (struct ki_quota_list){ rows, n };
	return KILN_OK;
}

void ki_quota_list_free(struct ki_quota_list *list)
{
	free(list->rows);
}

static int is_of_others(const struct kiln_namespace *row)
{
	return !strcmp(row->name, KILN_NAMESPACE_OTHERS);
}

const struct kiln_namespace *ki_quota_list_find(
	const struct ki_quota_list *list, const char *name)
{
	const struct kiln_namespace *of_others = NULL;

	for (size_t i = 0; *name && i < list->n; i++) {
		if (!strcmp(list->rows[i].name, name))
			return &list->rows[i];
		if (is_of_others(&list->rows[i]))
			of_others = &list->rows[i];
	}
	return of_others;
}

const char *ki_quota_words(const struct kiln_namespace *row, char *out,
			   size_t size)
{
	char bytes[32], limit[32], refused[48] = "";

	ki_format_size(row->bytes_max, limit, sizeof(limit));
	if (is_of_others(row)) {
		snprintf(out, size, "%s each", limit);
		return out;
	}
	if (row->n_refused)
		snprintf(refused, sizeof(refused), ", %llu not stored",
			 (unsigned long long)row->n_refused);
	snprintf(out, size, "%s of %s%s%s",
		 row->bytes == KILN_NAMESPACE_UNCOUNTED
			 ? "not counted yet"
			 : ki_format_size(row->bytes, bytes, sizeof(bytes)),
		 limit, row->is_by_default ? " (as all others)" : "", refused);
	return out;
}

static void json_row(struct ki_json *json, const struct kiln_namespace *row)
{
	ki_json_object(json, NULL);
	ki_json_string(json, "name", row->name);
	ki_json_number(json, "bytes_max", row->bytes_max);
	ki_json_bool(json, "by_default", row->is_by_default);
	if (row->bytes == KILN_NAMESPACE_UNCOUNTED || is_of_others(row))
		ki_json_null(json, "bytes");
	else
		ki_json_number(json, "bytes", row->bytes);
	ki_json_number(json, "evicted", row->n_evicted);
	ki_json_number(json, "not_stored", row->n_refused);
	ki_json_end(json);
}

void ki_quota_list_json(const struct ki_quota_list *list, struct ki_json *json)
{
	ki_json_array(json, "namespaces");
	for (size_t i = 0; i < list->n; i++)
		json_row(json, &list->rows[i]);
	ki_json_end(json);
}

static int print(const struct ki_command *command, const char *name,
		 const char *store, const struct ki_quota_list *list)
{
	struct ki_quota_list one = { NULL, 0 };
	struct ki_bytes out;
	struct ki_json json;
	char text[160];

	for (size_t i = 0; i < list->n && !one.n; i++)
		if (!strcmp(list->rows[i].name, name))
			one = (struct ki_quota_list){ &list->rows[i], 1 };
	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		ki_out_json(&out, &json);
		ki_json_string(&json, "store", store);
		ki_quota_list_json(&one, &json);
		ki_json_end(&json);
	} else {
		ki_out_safe(&out, name, 0);
		ki_bytes_printf(
			&out, "  %s\n",
			one.n ? ki_quota_words(one.rows, text, sizeof(text))
			      : "no quota of its own");
	}
	return ki_out_write(&out, KI_EXIT_OK);
}

/* ---- The verb ------------------------------------------------------------------ */

static int change(struct kiln *kiln, const char *name, uint64_t bytes_max)
{
	enum kiln_status status =
		kiln_set_namespace_limit(kiln, name, bytes_max);

	switch (status) {
	case KILN_OK:
		return KI_EXIT_OK;
	case KILN_E_INVALID:
		ki_complain("--namespace: a name has 1 to %d bytes",
			    KILN_NAMESPACE_BYTES - 1);
		return KI_EXIT_USAGE;
	case KILN_E_FULL:
		ki_complain(
			"--namespace: there are %d namespaces with a quota; "
			"--max-size 0 takes one back",
			KILN_NAMESPACES_MAX);
		return KI_EXIT_FAILED;
	default:
		return ki_store_failed(status, "cannot set the quota");
	}
}

static int show(const struct ki_command *command, struct kiln *kiln,
		const char *name, const char *store)
{
	struct ki_quota_list list;
	enum kiln_status status = ki_quota_list_load(kiln, &list);
	int result;

	if (status)
		return ki_store_failed(status, "cannot read the quotas");
	result = print(command, name, store, &list);
	ki_quota_list_free(&list);
	return result;
}

static int parse(const struct ki_command *command, uint64_t *out_bytes_max)
{
	const char *text = command->values[KI_OPTION_QUOTA];

	if (ki_given(command, KI_OPTION_LIMIT) ||
	    ki_given(command, KI_OPTION_EVICTION)) {
		ki_complain("--limit and --eviction are of the whole store: "
			    "with --namespace, use --max-size");
		return KI_EXIT_USAGE;
	}
	if (!ki_given(command, KI_OPTION_QUOTA_OF)) {
		ki_complain("--max-size goes with --namespace; --limit is of "
			    "the whole store");
		return KI_EXIT_USAGE;
	}
	if (text && ki_parse_size(text, out_bytes_max)) {
		ki_complain("--max-size: '%s' is no size; use a number with K, "
			    "M, G or T, or 0 for no quota",
			    text);
		return KI_EXIT_USAGE;
	}
	return KI_EXIT_OK;
}

int ki_quota(const struct ki_command *command)
{
	const char *name = command->values[KI_OPTION_QUOTA_OF];
	const int changes = ki_given(command, KI_OPTION_QUOTA);
	const unsigned flags = changes ? 0 : KI_STORE_LOOK;
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	uint64_t bytes_max = 0;
	int status = parse(command, &bytes_max);

	if (status)
		return status;
	status = ki_settings_load(&settings, command, flags);
	if (!status)
		status = ki_store_open(&settings, flags, &kiln);
	if (!status && !kiln) {
		ki_complain("there is no store yet in %s", settings.directory);
		status = KI_EXIT_NOT_FOUND;
	}
	if (!status && changes)
		status = change(kiln, name, bytes_max);
	if (!status)
		status = show(command, kiln, name, settings.options.store_url);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
