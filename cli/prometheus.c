/* SPDX-License-Identifier: MIT */

/*
 * A counter is "kiln_NAME_total", with NAME as in JSON; where that ends in _ns,
 * "_seconds" and a fraction.  The label "store" is the URL.  Labels are UTF-8 for
 * Prometheus and printable for everybody: what is neither comes out as '?'.
 */

#include "prometheus.h"

#include <string.h>

#include "counts.h"
#include "out.h"

static void label(struct ki_bytes *out, const char *name, const char *value)
{
	struct ki_bytes safe;

	ki_bytes_init(&safe);
	ki_out_safe(&safe, value, 0);
	ki_bytes_printf(out, "%s=\"", name);
	for (size_t i = 0; i < safe.size; i++) {
		if (safe.data[i] == '"' || safe.data[i] == '\\')
			ki_bytes_add_u8(out, '\\');
		ki_bytes_add_u8(out, safe.data[i]);
	}
	ki_bytes_add_u8(out, '"');
	if (safe.failed)
		out->failed = safe.failed;
	ki_bytes_fini(&safe);
}

/* `what` may be NULL: of the store. */
static void labels(struct ki_bytes *out, const char *store, const char *what,
		   const char *name)
{
	ki_bytes_add_u8(out, '{');
	label(out, "store", store);
	if (what) {
		ki_bytes_add_u8(out, ',');
		label(out, what, name);
	}
	ki_bytes_add_string(out, "} ");
}

static void value(struct ki_bytes *out, uint64_t n, int is_ns)
{
	if (is_ns)
		ki_bytes_printf(out, "%llu.%09llu\n",
				(unsigned long long)(n / 1000000000),
				(unsigned long long)(n % 1000000000));
	else
		ki_bytes_printf(out, "%llu\n", (unsigned long long)n);
}

static void head(struct ki_bytes *out, const char *name, const char *help,
		 const char *type)
{
	ki_bytes_printf(out, "# HELP kiln_%s %s\n# TYPE kiln_%s %s\n", name,
			help, name, type);
}

static void gauge(struct ki_bytes *out, const char *store, const char *name,
		  const char *help, uint64_t n)
{
	head(out, name, help, "gauge");
	ki_bytes_printf(out, "kiln_%s", name);
	labels(out, store, NULL, NULL);
	value(out, n, 0);
}

/* "kiln_" or "kiln_application_", and the rest of the name. */
static int heading(struct ki_bytes *out, const char *prefix, unsigned counter,
		   char *name, size_t size)
{
	const char *json = kiln_counter_name(counter);
	size_t length = strlen(json);
	int is_ns = length > 3 && !strcmp(json + length - 3, "_ns");

	snprintf(name, size, "%s%.*s%s_total", prefix,
		 (int)(is_ns ? length - 3 : length), json,
		 is_ns ? "_seconds" : "");
	/* The words of a time name its unit behind a comma. */
	ki_bytes_printf(out, "# HELP %s %.*s\n# TYPE %s counter\n", name,
			(int)(is_ns ? strcspn(kiln_counter_words(counter), ",")
				    : strlen(kiln_counter_words(counter))),
			kiln_counter_words(counter), name);
	return is_ns;
}

static void totals(struct ki_bytes *out, const char *store,
		   const struct kiln_store_counters *counters)
{
	char name[80];

	for (unsigned i = 0; i < KILN_N_COUNTERS; i++) {
		int is_ns = heading(out, "kiln_", i, name, sizeof(name));

		ki_bytes_add_string(out, name);
		labels(out, store, NULL, NULL);
		value(out, counters->total[i], is_ns);
	}
}

static void of_applications(struct ki_bytes *out, const char *store,
			    const struct kiln_store_counters *counters)
{
	static const enum kiln_counter kept[] = {
		KILN_COUNT_HITS_MEMORY, KILN_COUNT_HITS_STORE,
		KILN_COUNT_HITS_PACK,	KILN_COUNT_HITS_REMOTE,
		KILN_COUNT_MISSES,	KILN_COUNT_BUILDS,
		KILN_COUNT_BUILD_NS,	KILN_COUNT_SAVED_NS,
	};
	char name[80];

	if (!counters->n_programs)
		return;
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		int is_ns = heading(out, "kiln_application_", kept[i], name,
				    sizeof(name));

		for (uint64_t j = 0; j < counters->n_programs; j++) {
			ki_bytes_add_string(out, name);
			labels(out, store, "application",
			       counters->programs[j].name);
			value(out, counters->programs[j].total[kept[i]], is_ns);
		}
	}
}

/* ---- By namespace -------------------------------------------------------------- */

typedef uint64_t number_fn(const struct kiln_namespace *row);

static uint64_t bytes_of(const struct kiln_namespace *row)
{
	return row->bytes;
}

static uint64_t bytes_max_of(const struct kiln_namespace *row)
{
	return row->bytes_max;
}

static uint64_t evicted_of(const struct kiln_namespace *row)
{
	return row->n_evicted;
}

static uint64_t refused_of(const struct kiln_namespace *row)
{
	return row->n_refused;
}

/* "*" stands for many, of which only the quota is known. */
static int is_known(const struct kiln_namespace *row, number_fn *number)
{
	return number == bytes_max_of ||
	       (strcmp(row->name, KILN_NAMESPACE_OTHERS) &&
		number(row) != KILN_NAMESPACE_UNCOUNTED);
}

static void of_namespaces(struct ki_bytes *out, const char *store,
			  const struct ki_quota_list *quotas)
{
	static const struct {
		const char *name, *help, *type;
		number_fn *number;
	} kept[] = {
		{ "namespace_bytes", "What its entries come to", "gauge",
		  bytes_of },
		{ "namespace_bytes_max", "Its quota", "gauge", bytes_max_of },
		{ "namespace_evicted_total", "Entries that went for its quota",
		  "counter", evicted_of },
		{ "namespace_not_stored_total",
		  "Values that were not stored for its quota", "counter",
		  refused_of },
	};

	for (size_t i = 0; quotas->n && i < sizeof(kept) / sizeof(*kept); i++) {
		head(out, kept[i].name, kept[i].help, kept[i].type);
		for (size_t j = 0; j < quotas->n; j++) {
			const struct kiln_namespace *row = &quotas->rows[j];

			if (!is_known(row, kept[i].number))
				continue;
			ki_bytes_printf(out, "kiln_%s", kept[i].name);
			labels(out, store, "namespace", row->name);
			value(out, kept[i].number(row), 0);
		}
	}
}

void ki_prometheus(struct ki_bytes *out, const char *store,
		   const struct kiln_store_info *info,
		   const struct kiln_store_counters *counters,
		   const struct ki_quota_list *quotas, size_t n_jobs)
{
	gauge(out, store, "entries", "Entries in the store, bookkeeping too",
	      info->n_entries);
	gauge(out, store, "bytes", "What the store's files take", info->bytes);
	gauge(out, store, "bytes_sources", "Of these, kept sources",
	      info->bytes_sources);
	gauge(out, store, "bytes_max", "The store's limit; 0: none",
	      info->bytes_max);
	gauge(out, store, "jobs_pending", "Jobs that wait for the worker",
	      n_jobs);
	gauge(out, store, "counted_since_seconds",
	      "When the counters began, seconds since 1970", counters->since);
	totals(out, store, counters);
	of_applications(out, store, counters);
	of_namespaces(out, store, quotas);
}
