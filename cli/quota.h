/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_QUOTA_H
#define KI_CLI_QUOTA_H

/* Quotas of namespaces, as they are shown. */

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "base/json.h"

struct ki_quota_list {
	struct kiln_namespace *rows; /* from malloc() */
	size_t n;
};

/* All that a store has; none where it can have none. */
enum kiln_status ki_quota_list_load(struct kiln *kiln,
				    struct ki_quota_list *out_list);
void ki_quota_list_free(struct ki_quota_list *list);

/* What a namespace may take, by its own row or that of all others; NULL: it has no
   quota. */
const struct kiln_namespace *ki_quota_list_find(
	const struct ki_quota_list *list, const char *name);

/* "12.1 MiB of 100 MiB, 3 not stored". */
const char *ki_quota_words(const struct kiln_namespace *row, char *out,
			   size_t size);

/* An array of that name; "namespaces". */
void ki_quota_list_json(const struct ki_quota_list *list, struct ki_json *json);

#endif /* KI_CLI_QUOTA_H */
