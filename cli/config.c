/* SPDX-License-Identifier: MIT */

/* kiln config: every setting, its value and where it comes from (of a store:
   limit.c, quota.c). */

#include <stdio.h>

#include <kiln/inspect.h>

#include "base/json.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

static const struct {
	const char *environment;
	const char *name;
} settings[KILN_N_SETTINGS] = {
#define SETTING_ROW(id, env, conf) { env, conf },
	KILN_SETTINGS(SETTING_ROW)
#undef SETTING_ROW
};

#define ROWS_MAX (KILN_N_SETTINGS + 32)

struct row {
	const char *name;
	const char *environment;
	const char *value; /* or NULL */
	const char *origin;
};

/* Ours, then those of others that some kinds of store obey; returns how many. */
static unsigned gather(const struct kiln_config *config,
		       struct row rows[ROWS_MAX])
{
	unsigned n = 0, i;

	for (; n < KILN_N_SETTINGS; n++)
		rows[n] =
			(struct row){ settings[n].name, settings[n].environment,
				      kiln_config_value(config, n),
				      kiln_config_origin(config, n) };
	for (i = 0; n < ROWS_MAX; i++, n++) {
		struct row *row = &rows[n];

		row->name = kiln_config_foreign(config, i, &row->value,
						&row->origin);
		row->environment = row->name;
		if (!row->name)
			break;
	}
	return n;
}

static void print_json(struct ki_bytes *out, const struct kiln_config *config,
		       const char *message)
{
	const char *warning;
	struct row rows[ROWS_MAX];
	struct ki_json json;
	unsigned n = gather(config, rows), i;

	ki_out_json(out, &json);
	ki_json_array(&json, "settings");
	for (i = 0; i < n; i++) {
		ki_json_object(&json, NULL);
		ki_json_string(&json, "name", rows[i].name);
		ki_json_string(&json, "environment", rows[i].environment);
		if (rows[i].value)
			ki_json_string(&json, "value", rows[i].value);
		else
			ki_json_null(&json, "value");
		ki_json_string(&json, "origin", rows[i].origin);
		ki_json_end(&json);
	}
	ki_json_end(&json);
	ki_json_array(&json, "warnings");
	for (i = 0; (warning = kiln_config_warning(config, i)); i++)
		ki_json_string(&json, NULL, warning);
	ki_json_end(&json);
	if (message)
		ki_json_string(&json, "error", message);
	ki_json_end(&json);
}

static void print_text(struct ki_bytes *out, const struct kiln_config *config)
{
	static const struct ki_column columns[] = {
		{ "SETTING", 0, 0 },
		{ "VALUE", 0, 0 },
		{ "ORIGIN", 0, 1 },
	};
	struct row rows[ROWS_MAX];
	const char *cells[ROWS_MAX][3];
	unsigned n = gather(config, rows), i;

	for (i = 0; i < n; i++) {
		cells[i][0] = rows[i].name;
		cells[i][1] = rows[i].value ? rows[i].value : "-";
		cells[i][2] = rows[i].origin;
	}
	ki_out_table(out, columns, 3, &cells[0][0], n, ki_out_columns(),
		     ki_out_is_colourful(1));
}

int ki_verb_config(const struct ki_command *command)
{
	struct kiln_config *config = NULL;
	char message[1024] = "out of memory";
	enum kiln_status status;
	struct ki_bytes out;
	int is_json = ki_given(command, KI_OPTION_JSON), result;

	if (ki_given(command, KI_OPTION_QUOTA_OF) ||
	    ki_given(command, KI_OPTION_QUOTA))
		return ki_quota(command);
	if (ki_given(command, KI_OPTION_STORE) ||
	    ki_given(command, KI_OPTION_LIMIT) ||
	    ki_given(command, KI_OPTION_EVICTION))
		return ki_limit(command);
	status = kiln_config_load(&config, message, sizeof(message));
	if (!config) {
		ki_complain("%s", message);
		return KI_EXIT_FAILED;
	}
	ki_bytes_init(&out);
	if (is_json)
		print_json(&out, config, status ? message : NULL);
	else
		print_text(&out, config);
	result = ki_out_write(&out, status ? KI_EXIT_USAGE : KI_EXIT_OK);
	ki_store_warn(config);
	if (status)
		ki_complain("%s", message);
	kiln_config_free(config);
	return result;
}
