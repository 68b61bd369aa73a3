/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_REPORT_H
#define KI_CLI_REPORT_H

/* What `kiln report` tells of, and its page. */

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "quota.h"
#include "survey.h"

struct ki_report {
	const char *store;
	uint64_t now_s;
	struct kiln_store_info info;
	struct kiln_store_counters *counters;
	struct ki_survey *survey;
	struct ki_quota_list quotas;
};

/* What a group of namespaces may take; NULL: it has no quota, as the rest has none in
   common. */
const struct kiln_namespace *ki_report_quota(const struct ki_quota_list *quotas,
					     const struct ki_group *group);

/* Append the page.  Times are in UTC: whoever reads it may be elsewhere. */
void ki_report_page(const struct ki_report *report, struct ki_bytes *out);

#endif /* KI_CLI_REPORT_H */
