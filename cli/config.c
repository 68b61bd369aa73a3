/* SPDX-License-Identifier: MIT */

/* kiln config: every setting, its value and where it comes from (of a store:
   limit.c). */

#include <stdio.h>

#include <kiln/inspect.h>

#include "base/json.h"
#include "out.h"
#include "verbs.h"

static const struct {
	const char *environment;
	const char *name;
} settings[KILN_N_SETTINGS] = {
#define SETTING_ROW(id, env, conf) { env, conf },
	KILN_SETTINGS(SETTING_ROW)
#undef SETTING_ROW
};

static void print_json(struct ki_bytes *out, const struct kiln_config *config,
		       const char *message)
{
	const char *warning;
	struct ki_json json;
	unsigned i;

	ki_out_json(out, &json);
	ki_json_array(&json, "settings");
	for (i = 0; i < KILN_N_SETTINGS; i++) {
		const char *value = kiln_config_value(config, i);

		ki_json_object(&json, NULL);
		ki_json_string(&json, "name", settings[i].name);
		ki_json_string(&json, "environment", settings[i].environment);
		if (value)
			ki_json_string(&json, "value", value);
		else
			ki_json_null(&json, "value");
		ki_json_string(&json, "origin", kiln_config_origin(config, i));
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
	const char *cells[KILN_N_SETTINGS][3];
	unsigned i;

	for (i = 0; i < KILN_N_SETTINGS; i++) {
		const char *value = kiln_config_value(config, i);

		cells[i][0] = settings[i].name;
		cells[i][1] = value ? value : "-";
		cells[i][2] = kiln_config_origin(config, i);
	}
	ki_out_table(out, columns, 3, &cells[0][0], KILN_N_SETTINGS,
		     ki_out_columns(), ki_out_is_colourful(1));
}

int ki_verb_config(const struct ki_command *command)
{
	struct kiln_config *config = NULL;
	char message[1024] = "out of memory";
	enum kiln_status status;
	const char *warning;
	struct ki_bytes out;
	int is_json = ki_given(command, KI_OPTION_JSON), result;
	size_t i;

	if (ki_given(command, KI_OPTION_STORE) ||
	    ki_given(command, KI_OPTION_LIMIT))
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
	for (i = 0; (warning = kiln_config_warning(config, i)); i++)
		ki_complain("%s", warning);
	if (status)
		ki_complain("%s", message);
	kiln_config_free(config);
	return result;
}
