/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_FILTER_H
#define KI_CLI_FILTER_H

/*
 * Which entries a command is about, as its options say.  What an entry does not
 * say of itself no filter takes; how many were left out for that is counted, so
 * that an empty answer is no riddle.
 */

#include <kiln/inspect.h>

#include "entry.h"
#include "options.h"

/* Options that filter; a verb may have some of them. */
#define KI_HAS_FILTERS                                                         \
	(KI_HAS(APPLICATION) | KI_HAS(DEVICE) | KI_HAS(NAMESPACE) |            \
	 KI_HAS(MADE_BEFORE) | KI_HAS(MADE_SINCE) | KI_HAS(LARGER_THAN) |      \
	 KI_HAS(SMALLER_THAN))

enum ki_criterion {
	KI_BY_APPLICATION,
	KI_BY_DEVICE,
	KI_BY_NAMESPACE,
	KI_BY_AGE,
	KI_N_CRITERIA
};

/* NULL and 0: whatever there is. */
struct ki_filter {
	const char *application; /* a path, or the last part of one */
	const char *device;	 /* part of what is said of a device */
	const char *name_space;	 /* all of it */
	uint64_t made_from;	 /* seconds since 1970 */
	uint64_t made_to;
	uint64_t bytes_over; /* of the value */
	uint64_t bytes_under;
};

/* Entries that do not say by what they were to be judged. */
struct ki_unknown {
	size_t n[KI_N_CRITERIA];
};

/* KI_EXIT_OK, or KI_EXIT_USAGE and a complaint. */
int ki_filter_parse(const struct ki_command *command,
		    struct ki_filter *out_filter);

/*
 * Whether an entry is meant, as far as all but its application goes.  `device`
 * is what is known of its device besides its key, "" if nothing.
 */
int ki_filter_fits(const struct ki_filter *filter,
		   const struct kiln_entry *entry,
		   const struct ki_entry_view *view, const char *device,
		   struct ki_unknown *unknown);

/* Whether an application (its path) is meant. */
int ki_filter_is_application(const struct ki_filter *filter, const char *path);

/* How many were left out because they do not say; and a line for each reason. */
size_t ki_unknown_total(const struct ki_unknown *unknown);
void ki_unknown_complain(const struct ki_unknown *unknown);

#endif /* KI_CLI_FILTER_H */
