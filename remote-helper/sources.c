/* SPDX-License-Identifier: MIT */

#include "sources.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "loop.h"
#include "shard.h"
#include "sys/sys.h"

/* Who waits for less is impatient, and says nothing of the source. */
#define LATE_NS_MIN (50 * (uint64_t)1000000)
/* A probe that takes longer would not have been of use to who waits. */
#define PROBE_MS_MAX 200

/* What no item is called. */
static const char probe_name[] = "0000000000000000000000000000000000000000"
				 "000000000000000000000000";

/* ---- Opening ------------------------------------------------------------- */

static enum kiln_status open_level(struct sources *sources, unsigned number,
				   const struct credentials *credentials,
				   sources_open_fn *open, char *why,
				   size_t why_size)
{
	const struct level *settings = &sources->settings.levels[number];
	struct source_level *level = &sources->levels[number];
	enum kiln_status status;

	level->settings = settings;
	level->sources = calloc(settings->n_urls, sizeof(struct source));
	level->hashes = calloc(settings->n_urls, sizeof(uint64_t));
	if (!level->sources || !level->hashes)
		return KILN_E_NO_MEMORY;
	for (size_t i = 0; i < settings->n_urls; i++) {
		struct source *source = &level->sources[i];

		*source = (struct source){ .all = sources,
					   .settings = settings,
					   .level = number };
		level->hashes[i] = shard_hash(settings->urls[i]);
		status = open(sources->loop, settings->urls[i],
			      settings->ca_file, credentials, &source->backend,
			      why, why_size);
		if (status)
			return status;
		level->n++;
	}
	return KILN_OK;
}

enum kiln_status sources_open(struct sources *sources, struct loop *loop,
			      const char *remote,
			      const struct credentials *credentials,
			      sources_open_fn *open, char *why, size_t why_size)
{
	enum kiln_status status;

	*sources = (struct sources){ .loop = loop };
	snprintf(why, why_size, "out of memory");
	(void)ki_sys_posix.random(&ki_sys_posix, &sources->random,
				  sizeof(sources->random));
	if (!remote || !*remote)
		return KILN_OK;
	status = ki_levels_parse(remote, &sources->settings, why, why_size);
	if (status)
		return status;
	sources->levels =
		calloc(sources->settings.n_levels, sizeof(struct source_level));
	if (!sources->levels)
		status = KILN_E_NO_MEMORY;
	else
		sources->n_levels = sources->settings.n_levels;
	for (unsigned i = 0; i < sources->n_levels && !status; i++)
		status = open_level(sources, i, credentials, open, why,
				    why_size);
	if (status)
		sources_close(sources);
	return status;
}

void sources_close(struct sources *sources)
{
	sources->is_closing = 1;
	for (size_t i = 0; i < sources->n_levels; i++) {
		struct source_level *level = &sources->levels[i];

		for (size_t j = 0; j < level->n; j++) {
			struct source *source = &level->sources[j];

			source->backend->ops->close(source->backend);
			loop_cancel(source->probe);
		}
		free(level->sources);
		free(level->hashes);
	}
	free(sources->levels);
	ki_levels_fini(&sources->settings);
	*sources = (struct sources){ 0 };
}

/* ---- What they are like -------------------------------------------------- */

/* SplitMix64. */
uint32_t sources_random(struct sources *sources)
{
	uint64_t z = sources->random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (uint32_t)(z >> 32);
}

uint32_t sources_jitter(struct sources *sources, uint32_t ms)
{
	return ms / 2 + sources_random(sources) % (ms + 1);
}

struct source *sources_of(struct sources *sources, unsigned level,
			  const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	struct source_level *l = &sources->levels[level];

	return &l->sources[shard_of(name, l->hashes, l->n)];
}

uint32_t sources_wait_ms(const struct sources *sources)
{
	uint64_t now_ns = loop_now_ns(sources->loop);
	uint32_t wait_ms = UINT32_MAX, ms;

	for (size_t i = 0; i < sources->n_levels; i++) {
		const struct source_level *level = &sources->levels[i];

		for (size_t j = 0; j < level->n; j++) {
			ms = breaker_wait_ms(&level->sources[j].reads, now_ns);
			if (ms < wait_ms)
				wait_ms = ms;
		}
	}
	return wait_ms == UINT32_MAX ? 0 : wait_ms;
}

static void await_probe(struct source *source);

/* Whoever is sent away sees to it that a probe comes: the timer of one may not have
   been to be had before. */
int source_lets(struct source *source, int waits)
{
	if (source->all->is_closing)
		return 0;
	await_probe(source);
	return breaker_lets(&source->reads, waits);
}

int source_lets_lease(struct source *source)
{
	return source_lets(source, 1) && breaker_lets(&source->writes, 1);
}

int source_lets_write(struct source *source)
{
	return source_lets(source, 0) &&
	       (breaker_lets(&source->writes, 0) ||
		breaker_probes(&source->writes,
			       loop_now_ns(source->all->loop)));
}

int source_takes_nothing(const struct source *source)
{
	return source->is_replica && source->writes.state != BREAKER_CLOSED;
}

int sources_is_written(const struct sources *sources, unsigned level)
{
	return !sources->levels[level].settings->is_read_only;
}

int sources_lease_level(const struct sources *sources)
{
	for (size_t i = sources->n_levels; i-- > 0;) {
		const struct source_level *level = &sources->levels[i];
		int has = !level->settings->is_read_only &&
			  !level->settings->has_no_lease;

		for (size_t j = 0; j < level->n; j++)
			has &= level->sources[j].backend->ops->lease != NULL;
		if (has)
			return (int)i;
	}
	return -1;
}

/* ---- Breakers ------------------------------------------------------------ */

static void probe(void *arg);

static void await_probe(struct source *source)
{
	uint64_t now_ns = loop_now_ns(source->all->loop);

	if (source->reads.state == BREAKER_OPEN && !source->probe &&
	    !source->all->is_closing)
		source->probe = loop_after(
			source->all->loop,
			breaker_wait_ms(&source->reads, now_ns), probe, source);
}

static void probe_done(void *arg, const struct outcome *outcome)
{
	free(outcome->body);
	free(arg);
}

static uint32_t probe_ms(const struct source *source)
{
	return source->settings->timeout_ms < PROBE_MS_MAX
		       ? source->settings->timeout_ms
		       : PROBE_MS_MAX;
}

static void done_of_ask(void *arg, const struct outcome *outcome);

static void probe(void *arg)
{
	struct source *source = arg;
	struct ask *ask;

	source->probe = NULL;
	if (!breaker_probes(&source->reads, loop_now_ns(source->all->loop))) {
		await_probe(source);
		return;
	}
	ask = calloc(1, sizeof(*ask));
	if (!ask) {
		breaker_probed(&source->reads, BREAKER_UNASKED,
			       loop_now_ns(source->all->loop),
			       sources_random(source->all));
		await_probe(source);
		return;
	}
	*ask = (struct ask){ .source = source,
			     .kind = ASK_PROBE,
			     .begun_ns = loop_now_ns(source->all->loop),
			     .done = probe_done,
			     .arg = ask };
	source->backend->ops->get(
		source->backend, (const char *const[]){ probe_name }, 1,
		source->settings->item_bytes_max, probe_ms(source), done_of_ask,
		(void *[]){ ask });
}

/* Whether it is a lease that the server refuses, and says so: it can be read. */
static int is_refused_lease(enum ask_kind kind, enum kiln_status status)
{
	if (kind != ASK_LEASE && kind != ASK_RENEW && kind != ASK_RELEASE)
		return 0;
	return status == KILN_E_OWNER || status == KILN_E_FULL ||
	       status == KILN_E_READONLY || status == KILN_E_UNSUPPORTED;
}

/* Which breaker an answer is a matter of. */
static struct breaker *breaker_of(struct source *source, enum ask_kind kind,
				  enum kiln_status status)
{
	return kind == ASK_PUT || is_refused_lease(kind, status)
		       ? &source->writes
		       : &source->reads;
}

static int is_fault(enum kiln_status status)
{
	switch (status) {
	case KILN_OK:
	case KILN_MISS:
	case KILN_EXISTS:
	case KILN_E_TOO_LARGE:
	case KILN_E_NO_MEMORY:
		return 0;
	default:
		return 1;
	}
}

/* Renewing and giving back are scripts, which a user or a proxy may not be let have:
   what is plain is taken all the same. */
static int is_refused_script(enum ask_kind kind, enum kiln_status status)
{
	return (kind == ASK_RENEW || kind == ASK_RELEASE) &&
	       (status == KILN_E_OWNER || status == KILN_E_UNSUPPORTED);
}

static enum breaker_answer judge(enum ask_kind kind, enum kiln_status status)
{
	if (status == KILN_E_NO_MEMORY || is_refused_script(kind, status))
		return BREAKER_UNASKED;
	if (!is_fault(status))
		return BREAKER_GOOD;
	if (kind == ASK_PROBE && status == KILN_E_TIMEOUT)
		return BREAKER_LATE;
	return BREAKER_FAULT;
}

/* What changed, for the log. */
static void log_change(const struct source *source, const char *what,
		       const struct breaker *breaker, enum breaker_state before)
{
	uint64_t now_ns = loop_now_ns(source->all->loop);

	if (before == BREAKER_CLOSED && breaker->state == BREAKER_OPEN)
		log_line("%s: %s stop for %u ms: %s", source->backend->shown,
			 what, breaker_wait_ms(breaker, now_ns),
			 breaker->is_only_late ? "answers come too late"
					       : source->why);
	else if (before != BREAKER_CLOSED && breaker->state == BREAKER_CLOSED)
		log_line("%s: %s go on", source->backend->shown, what);
}

/* A server that says so once says so each time. */
static void note_replica(struct source *source, enum kiln_status status)
{
	if (status == KILN_OK || status == KILN_EXISTS)
		source->is_replica = 0;
	if (status != KILN_E_READONLY)
		return;
	source->is_replica = 1;
	if (source->writes.state == BREAKER_CLOSED)
		breaker_open(&source->writes, BREAKER_FAULT,
			     loop_now_ns(source->all->loop),
			     sources_random(source->all));
}

static void note(struct ask *ask, const struct outcome *outcome)
{
	struct source *source = ask->source;
	struct breaker *breaker =
		breaker_of(source, ask->kind, outcome->status);
	enum breaker_state before = breaker->state;
	enum breaker_answer answer = judge(ask->kind, outcome->status);
	uint64_t now_ns = loop_now_ns(source->all->loop);
	uint32_t random = sources_random(source->all);

	if (is_fault(outcome->status))
		snprintf(source->why, sizeof(source->why), "%s",
			 outcome->why ? outcome->why
				      : kiln_status_name(outcome->status));
	if (ask->kind == ASK_PROBE ||
	    (ask->kind == ASK_PUT && breaker->state == BREAKER_HALF_OPEN))
		breaker_probed(breaker, answer, now_ns, random);
	else if (!ask->is_late)
		breaker_note(breaker, answer, now_ns, random);
	if (ask->kind == ASK_PUT)
		note_replica(source, outcome->status);
	log_change(source, breaker == &source->writes ? "writes" : "reads",
		   breaker, before);
	await_probe(source);
}

/* ---- Figures ------------------------------------------------------------- */

static void count_fault(struct figures *figures, enum kiln_status status)
{
	switch (status) {
	case KILN_E_TIMEOUT:
		figures->counts[FIGURES_TIMEOUTS]++;
		break;
	case KILN_E_OWNER:
		figures->counts[FIGURES_CREDENTIALS]++;
		break;
	case KILN_E_FULL:
		figures->counts[FIGURES_FULL]++;
		break;
	case KILN_E_READONLY:
		figures->counts[FIGURES_REPLICA]++;
		break;
	case KILN_E_FORMAT:
	case KILN_E_UNSUPPORTED:
		figures->counts[FIGURES_WRONG]++;
		break;
	default:
		figures->counts[FIGURES_BROKEN_OFF]++;
	}
}

static void count_get(struct figures *figures, const struct ask *ask,
		      const struct outcome *outcome)
{
	if (outcome->status == KILN_OK) {
		figures->counts[FIGURES_HITS]++;
		figures->bytes_in += outcome->body_size;
	} else if (outcome->status == KILN_MISS) {
		figures->counts[FIGURES_ABSENT]++;
	} else {
		return;
	}
	figures_time(figures,
		     loop_now_ns(ask->source->all->loop) - ask->begun_ns);
}

static void count(const struct ask *ask, const struct outcome *outcome)
{
	static const enum figures_count kinds[] = {
		[ASK_GET] = FIGURES_GETS,	[ASK_HEAD] = FIGURES_HEADS,
		[ASK_PUT] = FIGURES_PUTS,	[ASK_RANGE] = FIGURES_RANGES,
		[ASK_LEASE] = FIGURES_LEASES,	[ASK_RENEW] = FIGURES_LEASES,
		[ASK_RELEASE] = FIGURES_LEASES, [ASK_PROBE] = FIGURES_PROBES,
	};
	struct figures *figures = &ask->source->figures;

	if (is_fault(outcome->status))
		count_fault(figures, outcome->status);
	if (ask->kind == ASK_PUT && outcome->status == KILN_EXISTS)
		figures->counts[FIGURES_PUTS_THERE]++;
	else if (ask->kind != ASK_PUT || outcome->status == KILN_OK)
		figures->counts[kinds[ask->kind]]++;
	if (ask->kind == ASK_PUT && outcome->status == KILN_OK)
		figures->bytes_out += ask->bytes_out;
	if (ask->kind == ASK_GET)
		count_get(figures, ask, outcome);
}

/* ---- Asking -------------------------------------------------------------- */

static void done_of_ask(void *arg, const struct outcome *outcome)
{
	struct ask *ask = arg;

	count(ask, outcome);
	note(ask, outcome);
	ask->source = NULL;
	ask->done(ask->arg, outcome);
}

static void begin(struct source *source, struct ask *ask, enum ask_kind kind)
{
	assert(!ask->source);
	ask->source = source;
	ask->kind = kind;
	ask->is_late = 0;
	ask->bytes_out = 0;
	ask->begun_ns = loop_now_ns(source->all->loop);
}

void source_get(struct source *source, struct ask *const *asks,
		const char *const *names, size_t n, uint64_t body_max)
{
	uint64_t item_max = source->settings->item_bytes_max;
	void *args[SOURCE_BATCH_MAX];

	assert(n <= SOURCE_BATCH_MAX);
	for (size_t i = 0; i < n; i++) {
		begin(source, asks[i], ASK_GET);
		args[i] = asks[i];
	}
	source->backend->ops->get(
		source->backend, names, n,
		body_max && body_max < item_max ? body_max : item_max,
		source->settings->timeout_ms, done_of_ask, args);
}

void source_head(struct source *source, struct ask *ask, const char *name,
		 uint32_t timeout_ms)
{
	begin(source, ask, ASK_HEAD);
	source->backend->ops->head(source->backend, name,
				   timeout_ms ? timeout_ms
					      : source->settings->timeout_ms,
				   done_of_ask, ask);
}

void source_put(struct source *source, struct ask *ask, const char *name,
		const void *body, size_t size, int only_new)
{
	begin(source, ask, ASK_PUT);
	ask->bytes_out = size;
	source->backend->ops->put(
		source->backend, name, body, size, source->settings->ttl_s,
		only_new, source->settings->timeout_ms, done_of_ask, ask);
}

void source_lease(struct source *source, struct ask *ask, enum ask_kind kind,
		  const char *name, const char *token, uint32_t ttl_ms,
		  uint32_t timeout_ms)
{
	const struct backend_ops *ops = source->backend->ops;

	begin(source, ask, kind);
	if (kind == ASK_LEASE)
		ops->lease(source->backend, name, token, ttl_ms, timeout_ms,
			   done_of_ask, ask);
	else if (kind == ASK_RENEW)
		ops->renew(source->backend, name, token, ttl_ms, timeout_ms,
			   done_of_ask, ask);
	else
		ops->release(source->backend, name, token, timeout_ms,
			     done_of_ask, ask);
}

void source_is_late(struct ask *ask)
{
	struct source *source = ask->source;
	uint64_t now_ns = loop_now_ns(source->all->loop);
	enum breaker_state before;

	if (ask->is_late || now_ns - ask->begun_ns < LATE_NS_MIN)
		return;
	ask->is_late = 1;
	source->figures.counts[FIGURES_LATE]++;
	before = source->reads.state;
	breaker_note(&source->reads, BREAKER_LATE, now_ns,
		     sources_random(source->all));
	log_change(source, "reads", &source->reads, before);
	await_probe(source);
}

/* Its answers come in time, so that they make good for no fault. */
static void note_damage(struct source *source)
{
	enum breaker_state before = source->reads.state;

	source->figures.counts[FIGURES_REFUSED]++;
	snprintf(source->why, sizeof(source->why), "its items are damaged");
	if (++source->n_damaged >= BREAKER_FAULTS && before == BREAKER_CLOSED)
		breaker_open(&source->reads, BREAKER_FAULT,
			     loop_now_ns(source->all->loop),
			     sources_random(source->all));
	log_change(source, "reads", &source->reads, before);
	await_probe(source);
}

void source_verdict(struct source *source, enum verdict verdict)
{
	switch (verdict) {
	case VERDICT_GOOD:
		source->n_damaged = 0;
		return;
	case VERDICT_DAMAGED:
		note_damage(source);
		return;
	case VERDICT_UNTRUSTED:
		source->figures.counts[FIGURES_UNSIGNED]++;
		return;
	case VERDICT_UNWANTED:
		return;
	}
}
