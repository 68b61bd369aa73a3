/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_ENTRY_H
#define KI_CLI_ENTRY_H

/* An entry as the tool shows it. */

#include <kiln/inspect.h>

#include "base/json.h"

#define KI_SHORT_KEY 12 /* digits that `ls` shows */
#define KI_KEY_MIN   6	/* digits that name an entry at least */

/* Strings are "" where the entry does not say. */
struct ki_entry_view {
	char key[2 * KILN_DIGEST_BYTES + 1];
	char short_key[KI_SHORT_KEY + 1];
	char *front;
	char *application;
	char *name_space;
	char *directory;
	char *options;
	uint64_t created; /* seconds since 1970; 0: unknown */
	uint64_t age_s;
	uint64_t build_ns;
	uint64_t stage;
	uint64_t value_size;
	uint64_t stored_size;
	int is_referenced;
	int is_hidden;
	int is_foreign;
	/* Where entries are files of their own. */
	char *file;
	uint64_t used; /* seconds since 1970; 0: unknown */
	uint64_t used_age_s;
	uint64_t turn; /* in eviction, from 1; 0: none */
};

/* 0 or -ENOMEM; free it in both cases. */
int ki_entry_view_init(struct ki_entry_view *view,
		       const struct kiln_entry *entry);
void ki_entry_view_fini(struct ki_entry_view *view);

void ki_entry_json(struct ki_json *json, const char *name,
		   const struct ki_entry_view *view);
/* Without the end of the object, to be added to. */
void ki_entry_json_open(struct ki_json *json, const char *name,
			const struct ki_entry_view *view);

/* What stands behind the last '/'. */
const char *ki_last_name(const char *path);

#endif /* KI_CLI_ENTRY_H */
