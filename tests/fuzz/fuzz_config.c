/* SPDX-License-Identifier: MIT */

/*
 * Configuration files and KILN_* variables.  The input is the file; its first
 * line is a variable as well.  What must hold besides surviving: a message
 * whenever it is refused.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *environment[] = { "HOME=/nowhere", NULL, NULL };
	struct ki_config_sources sources = { .environment = environment };
	struct kiln_config *config = NULL;
	struct kiln_options options;
	enum kiln_status status;
	char path[4200], message[256] = "";
	const char *why;
	char *variable;

	snprintf(path, sizeof(path), "%s/kiln.conf", scratch_directory());
	scratch_write(path, data, size);
	sources.system_file = path;
	variable = strndup((const char *)data, size);
	if (!variable)
		return 0;
	variable[strcspn(variable, "\n")] = '\0';
	if (!strncmp(variable, "KILN_", 5) && strchr(variable, '='))
		environment[1] = variable;

	status = ki_config_load(&sources, &config, message, sizeof(message));
	if (status == KILN_E_INVALID && !*message)
		abort();
	if (config) {
		for (unsigned i = 0; i < KILN_N_SETTINGS; i++) {
			(void)kiln_config_value(config, (enum kiln_setting)i);
			(void)kiln_config_number(config, (enum kiln_setting)i);
			if (!kiln_config_origin(config, (enum kiln_setting)i))
				abort();
		}
		for (size_t i = 0; kiln_config_warning(config, i); i++)
			;
		(void)kiln_config_directory(config, &why);
		(void)kiln_config_spool(config);
		kiln_options_init(&options);
		kiln_config_options(config, &options);
	}
	kiln_config_free(config);
	free(variable);
	return 0;
}
