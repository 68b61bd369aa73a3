/* SPDX-License-Identifier: MIT */

#include "tell.h"

#include <string.h>

#include "base/json.h"
#include "helper.h"
#include "loop.h"
#include "sys/sys.h"

/* Room for the object of one source, besides its URL; and for what comes behind. */
#define SOURCE_BYTES 2048

static void tell_breaker(struct ki_json *json, const char *name,
			 const struct breaker *breaker, uint64_t now_ns)
{
	ki_json_object(json, name);
	ki_json_string(json, "state", breaker_state_name(breaker));
	ki_json_number(json, "wait_ms", breaker_wait_ms(breaker, now_ns));
	ki_json_number(json, "opened", breaker->n_opened);
	ki_json_end(json);
}

static void tell_source(struct ki_json *json, const struct source *source,
			uint64_t now_ns)
{
	const struct figures *figures = &source->figures;

	ki_json_object(json, NULL);
	ki_json_string(json, "url", source->backend->shown);
	ki_json_number(json, "level", source->level);
	ki_json_bool(json, "read_only", source->settings->is_read_only);
	tell_breaker(json, "reads", &source->reads, now_ns);
	tell_breaker(json, "writes", &source->writes, now_ns);
	for (int i = 0; i < FIGURES_N_COUNTS; i++)
		ki_json_number(json, figures_names[i], figures->counts[i]);
	ki_json_number(json, "bytes_in", figures->bytes_in);
	ki_json_number(json, "bytes_out", figures->bytes_out);
	ki_json_number(json, "get_us_50",
		       figures_percentile_ns(figures, 50) / 1000);
	ki_json_number(json, "get_us_99",
		       figures_percentile_ns(figures, 99) / 1000);
	if (*source->why)
		ki_json_string(json, "last_fault", source->why);
	ki_json_end(json);
}

/* A letter of a URL may become two. */
static int has_room(const struct ki_json *json, const struct source *source)
{
	return json->bytes->size + 2 * strlen(source->backend->shown) +
		       2 * SOURCE_BYTES <=
	       KI_REMOTE_BODY_MAX;
}

static void tell_sources(const struct helper *helper, struct ki_json *json)
{
	const struct sources *sources = &helper->sources;
	uint64_t now_ns = loop_now_ns(helper->loop), n_left_out = 0;

	ki_json_array(json, "sources");
	for (size_t i = 0; i < sources->n_levels; i++)
		for (size_t j = 0; j < sources->levels[i].n; j++)
			if (has_room(json, &sources->levels[i].sources[j]))
				tell_source(json,
					    &sources->levels[i].sources[j],
					    now_ns);
			else
				n_left_out++;
	ki_json_end(json);
	ki_json_number(json, "left_out", n_left_out);
}

static void tell_fetches(const struct helper *helper, struct ki_json *json)
{
	const struct fetches *fetches = &helper->fetches;

	ki_json_object(json, "gets");
	ki_json_number(json, "asked", fetches->n_gets);
	ki_json_number(json, "from_memory", fetches->n_from_memory);
	ki_json_number(json, "joined", fetches->n_joined);
	ki_json_number(json, "late", fetches->n_late);
	ki_json_number(json, "missed", fetches->n_misses);
	ki_json_number(json, "prefetched", fetches->n_prefetched);
	ki_json_number(json, "prefetch_dropped", fetches->n_prefetch_dropped);
	ki_json_number(json, "under_way", fetches->names.n);
	ki_json_end(json);
	ki_json_object(json, "memory");
	ki_json_number(json, "items", fetches->memory.names.n);
	ki_json_number(json, "bytes", fetches->memory.bytes);
	ki_json_number(json, "bytes_max", fetches->memory.bytes_max);
	ki_json_number(json, "evicted_unused", fetches->memory.n_evicted);
	ki_json_end(json);
}

static void tell_uploads(const struct helper *helper, struct ki_json *json)
{
	const struct uploads *uploads = &helper->uploads;

	ki_json_object(json, "uploads");
	ki_json_bool(json, "possible", helper_can_put(helper));
	ki_json_number(json, "waiting", uploads->n);
	ki_json_number(json, "waiting_bytes", uploads->bytes);
	for (int i = 0; i < UPLOADS_N_COUNTS; i++)
		ki_json_number(json, uploads_names[i], uploads->counts[i]);
	ki_json_end(json);
}

static void tell_leases(const struct helper *helper, struct ki_json *json)
{
	const struct leases *leases = &helper->leases;
	int level = sources_lease_level(&helper->sources);

	ki_json_object(json, "leases");
	if (level < 0)
		ki_json_null(json, "level");
	else
		ki_json_number(json, "level", (uint64_t)level);
	ki_json_number(json, "taken", leases->n_taken);
	ki_json_number(json, "waited_here", leases->n_waited);
	ki_json_number(json, "spared", leases->n_existed);
	ki_json_number(json, "timeouts", leases->n_timeouts);
	ki_json_number(json, "faults", leases->n_faults);
	ki_json_number(json, "lost", leases->n_lost);
	ki_json_number(json, "refused", leases->n_refused);
	ki_json_end(json);
}

static void tell_packs(const struct helper *helper, struct ki_json *json)
{
	const struct packs *packs = &helper->packs;

	ki_json_object(json, "packs");
	ki_json_number(json, "opened", packs->n_opened);
	ki_json_number(json, "ranges", packs->n_ranges);
	ki_json_number(json, "faults", packs->n_faults);
	ki_json_number(json, "bytes_in", packs->bytes_in);
	ki_json_end(json);
}

void tell(const struct helper *helper, struct ki_bytes *bytes)
{
	uint64_t up_ns = loop_now_ns(helper->loop) - helper->started_ns;
	struct ki_json json;

	ki_json_begin(&json, bytes);
	ki_json_object(&json, NULL);
	ki_json_number(&json, "schema", 1);
	ki_json_number(&json, "pid", (uint64_t)ki_process_id());
	ki_json_number(&json, "protocol", KI_REMOTE_VERSION);
	ki_json_number(&json, "up_s", up_ns / 1000000000);
	ki_json_object(&json, "connections");
	ki_json_number(&json, "now", helper->n_connections);
	ki_json_number(&json, "accepted", helper->n_accepted);
	ki_json_number(&json, "cut_off", helper->n_cut_off);
	ki_json_number(&json, "strangers", helper->n_strangers);
	ki_json_number(&json, "unread_bytes", helper->out_bytes);
	ki_json_number(&json, "unread_bytes_max", helper->out_bytes_max);
	ki_json_number(&json, "no_room", helper->n_no_room);
	ki_json_end(&json);
	tell_fetches(helper, &json);
	tell_uploads(helper, &json);
	tell_leases(helper, &json);
	tell_packs(helper, &json);
	tell_sources(helper, &json);
	ki_json_end(&json);
}
