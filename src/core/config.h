/* SPDX-License-Identifier: MIT */
#ifndef KI_CORE_CONFIG_H
#define KI_CORE_CONFIG_H

/* Where kiln_config_load() reads from, so that tests can say it. */

#include <kiln/inspect.h>

struct ki_config_sources {
	const char *const *environment; /* NAME=VALUE, NULL-ended */
	const char *system_file;	/* "/etc/kiln.conf" */
	const char *system_directory;	/* "/etc/kiln"; NULL: no keys there */
	int is_secure;			/* set-uid and the like */
	int is_looking;			/* kiln_config_load_to_look() */
};

enum kiln_status ki_config_load(const struct ki_config_sources *sources,
				struct kiln_config **out_config, char *message,
				size_t message_size);

#endif /* KI_CORE_CONFIG_H */
