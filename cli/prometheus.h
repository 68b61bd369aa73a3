/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PROMETHEUS_H
#define KI_CLI_PROMETHEUS_H

/*
 * Counters in Prometheus's text format (version 0.0.4), for the node exporter's
 * directory of text files, say.  Times are in seconds, sizes in bytes.  What is told
 * by name is bounded: the programs that counted last, and the namespaces that have
 * quotas (KILN_PROGRAMS_MAX, KILN_NAMESPACES_MAX).
 */

#include <kiln/inspect.h>

#include "base/bytes.h"
#include "quota.h"

void ki_prometheus(struct ki_bytes *out, const char *store,
		   const struct kiln_store_info *info,
		   const struct kiln_store_counters *counters,
		   const struct ki_quota_list *quotas, size_t n_jobs);

#endif /* KI_CLI_PROMETHEUS_H */
