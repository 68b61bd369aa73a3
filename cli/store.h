/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_STORE_H
#define KI_CLI_STORE_H

/*
 * The settings and the store that a verb works on.  Functions that return an
 * int return an exit status and have said what is wrong.
 */

#include <kiln/inspect.h>

#include "options.h"
#include "sys/sys.h"

struct ki_settings {
	struct kiln_config *config;
	struct kiln_options options; /* borrows from config and command */
	const char *spool;	     /* NULL: no jobs */
	char directory[KI_PATH_MAX]; /* of the store; "" if none */
	char own_spool[KI_PATH_MAX];
};

/* Command line first, then what kiln_config_load() finds; warnings are told.
   Flags as ki_store_open().  fini in any case. */
int ki_settings_load(struct ki_settings *settings,
		     const struct ki_command *command, unsigned flags);
/* Have a store of --store win over the settings. */
int ki_store_use(struct kiln_config *config, const char *url);
/* Tell what is doubtful in them. */
void ki_store_warn(const struct kiln_config *config);
/* The same of variables of other programs alone. */
void ki_store_warn_of_foreign(const struct kiln_config *config);
void ki_settings_fini(struct ki_settings *settings);

/* Flags for looking only. */
#define KI_STORE_LOOK (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER)

/*
 * Open the store.  *out_kiln is NULL with KI_EXIT_OK where there is none yet:
 * nothing was ever cached.
 */
int ki_store_open(struct ki_settings *settings, unsigned flags,
		  struct kiln **out_kiln);

/* The same, to be written, and made where there is none. */
int ki_store_make(struct ki_settings *settings, struct kiln **out_kiln);

/* Whether the store is a pack, whose path is then settings->directory. */
int ki_store_is_pack(const struct ki_settings *settings);

/* Complain of a call that failed; returns the exit status for it. */
int ki_store_failed(enum kiln_status status, const char *what);

/* The words for a status: "the disk or its permissions refuse". */
const char *ki_status_words(enum kiln_status status);

#endif /* KI_CLI_STORE_H */
