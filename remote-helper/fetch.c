/* SPDX-License-Identifier: MIT */

#include "fetch.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "loop.h"

#define SWEEP_MS 5000

/* Of prefetch, how many names a batch has and how it went (fetch.h). */
#define BATCHES_MAX   2
#define BATCH_MAX     32
#define BATCH_FAST_NS (25 * (uint64_t)1000000)
#define BATCH_SLOW_NS (50 * (uint64_t)1000000)
/* Slow however far it is: more than twice what any look-up waits. */
#define BATCH_FAR_NS (250 * (uint64_t)1000000)
/* With so many under way no batch begins: what is left is for look-ups. */
#define PREFETCH_FETCHES_MAX (FETCHES_MAX / 4 * 3)

_Static_assert(BATCHES_MAX *BATCH_MAX <= FETCHES_MAX - PREFETCH_FETCHES_MAX,
	       "batches that have begun find room");

struct batch {
	size_t n, n_left;
	uint64_t begun_ns;
	uint64_t way_ns;  /* of its names, the farthest */
	uint64_t largest; /* item that it brought */
	int is_crowded;	  /* when it began */
};

/* One name on its way through the levels. */
struct fetch {
	struct name_link by_name;
	struct fetches *fetches;
	struct ki_list waiters;
	struct ki_list together; /* while it waits to be asked with others */
	struct ask ask;
	struct batch *batch; /* of prefetch; else NULL */
	uint64_t share;	     /* of memory, for what it brings; 0: none */
	uint64_t way_ns;     /* of prefetch, to all that were asked */
	unsigned from, level;
	uint32_t reasons;
	char text[NAME_TEXT_BYTES];
};

static void step(struct fetch *fetch);
static void pump(struct fetches *fetches);

/* ---- Its life ------------------------------------------------------------ */

int fetches_begin(struct fetches *fetches, struct loop *loop,
		  struct sources *sources, uint64_t memory_bytes_max)
{
	*fetches = (struct fetches){ .loop = loop,
				     .sources = sources,
				     .batch_size = 1 };
	memory_init(&fetches->memory, memory_bytes_max);
	refused_init(&fetches->refused);
	ki_list_init(&fetches->together);
	return 1;
}

static void free_fetch(struct fetch *fetch)
{
	ki_list_remove(&fetch->together);
	if (fetch->batch && !--fetch->batch->n_left)
		free(fetch->batch);
	free(fetch);
}

void fetches_finish(struct fetches *fetches)
{
	struct name_link *link;

	loop_cancel(fetches->sweep);
	loop_cancel(fetches->flush);
	while ((link = names_any(&fetches->names))) {
		names_remove(&fetches->names, link);
		free_fetch(ki_container(link, struct fetch, by_name));
	}
	names_fini(&fetches->names);
	memory_fini(&fetches->memory);
	refused_fini(&fetches->refused);
	free(fetches->wanted);
}

static void sweep(void *arg)
{
	struct fetches *fetches = arg;

	memory_sweep(&fetches->memory, loop_now_ns(fetches->loop));
	fetches->sweep =
		fetches->memory.names.n
			? loop_after(fetches->loop, SWEEP_MS, sweep, fetches)
			: NULL;
	pump(fetches);
}

static void keep(struct fetch *fetch, struct item *item, int is_served)
{
	struct fetches *fetches = fetch->fetches;

	memory_put(&fetches->memory, fetch->by_name.name, fetch->level, item,
		   is_served, loop_now_ns(fetches->loop));
	if (!fetches->sweep)
		fetches->sweep =
			loop_after(fetches->loop, SWEEP_MS, sweep, fetches);
}

/* ---- Answers ------------------------------------------------------------- */

static int is_filled_from(const struct sources *sources, unsigned level)
{
	for (unsigned i = 0; i < level; i++)
		if (sources_is_written(sources, i))
			return 1;
	return 0;
}

/* Whether anything changes when a program finds the item good. */
static int wants_verdict(const struct fetches *fetches, const uint8_t *name,
			 unsigned level)
{
	return is_filled_from(fetches->sources, level) ||
	       sources_of(fetches->sources, level, name)->n_damaged;
}

/* What is in memory, or comes yet, is worth asking for. */
uint32_t fetches_wait_ms(const struct fetches *fetches)
{
	if (fetches->names.n || fetches->memory.unserved_bytes)
		return 0;
	return sources_wait_ms(fetches->sources);
}

static void leave(struct waiter *waiter)
{
	ki_list_remove(&waiter->link);
	loop_cancel(waiter->deadline);
	waiter->deadline = NULL;
	waiter->fetch = NULL;
}

void waiter_leave(struct waiter *waiter)
{
	if (waiter->fetch)
		leave(waiter);
}

static void answer_miss(struct waiter *waiter, uint32_t reasons)
{
	waiter->fetches->n_misses++;
	(void)waiter->done(waiter, 0, NULL, reasons,
			   fetches_wait_ms(waiter->fetches));
}

static void run_out(void *arg)
{
	struct waiter *waiter = arg;
	struct fetch *fetch = waiter->fetch;

	waiter->deadline = NULL;
	if (fetch->ask.source)
		source_is_late(&fetch->ask);
	leave(waiter);
	waiter->fetches->n_late++;
	answer_miss(waiter, fetch->reasons | KI_REMOTE_LATE);
}

/* ---- Batches ------------------------------------------------------------- */

static void end_prefetch(struct fetches *fetches)
{
	fetches->n_prefetch_dropped += fetches->n_wanted;
	fetches->n_prefetch_ended++;
	fetches->n_wanted = 0;
	fetches->batch_size = 1;
	fetches->n_first = 0;
}

/* So many eighths of the way, where that is between the two. */
static uint64_t bound_of(const struct batch *batch, unsigned eighths,
			 uint64_t least_ns)
{
	uint64_t ns = batch->way_ns * eighths / 8;

	if (ns < least_ns)
		return least_ns;
	return ns < BATCH_FAR_NS ? ns : BATCH_FAR_NS;
}

/* The first answer of a new connection takes several ways, where it is far. */
static int is_excused(struct fetches *fetches, uint64_t slow_ns)
{
	if (fetches->n_first == BATCHES_MAX)
		return 0;
	fetches->n_first++;
	return slow_ns > BATCH_SLOW_NS;
}

/* More than prefetch itself has: what programs wait for makes a server slow, and that
   is over when they have it. */
static int is_crowded(const struct fetches *fetches)
{
	return fetches->names.n > BATCHES_MAX * BATCH_MAX;
}

static void note_fast_batch(struct fetches *fetches, const struct batch *batch)
{
	if (batch->n == fetches->batch_size)
		fetches->batch_size = batch->n < BATCH_MAX / 2
					      ? 2 * (unsigned)batch->n
					      : BATCH_MAX;
}

static void judge_batch(struct fetches *fetches, const struct batch *batch)
{
	uint64_t ns = loop_now_ns(fetches->loop) - batch->begun_ns;
	uint64_t slow_ns = bound_of(batch, 12, BATCH_SLOW_NS);
	int excused = is_excused(fetches, slow_ns);

	if (ns < bound_of(batch, 9, BATCH_FAST_NS))
		note_fast_batch(fetches, batch);
	else if (ns > slow_ns && batch->n > 1)
		fetches->batch_size = (unsigned)batch->n / 2;
	else if (ns > slow_ns && !excused && !batch->is_crowded &&
		 !is_crowded(fetches))
		end_prefetch(fetches);
}

/* One of a batch is done; the last says how fast it went. */
static void leave_batch(struct fetches *fetches, struct batch *batch)
{
	if (--batch->n_left)
		return;
	fetches->n_batches--;
	if (batch->largest) {
		fetches->largest = fetches->largest / 4 * 3;
		if (fetches->largest < batch->largest)
			fetches->largest = batch->largest;
	}
	judge_batch(fetches, batch);
	free(batch);
	pump(fetches);
}

/* ---- One fetch ----------------------------------------------------------- */

static struct source *source_of(const struct fetch *fetch)
{
	return sources_of(fetch->fetches->sources, fetch->level,
			  fetch->by_name.name);
}

/* Nothing is set aside for it any more. */
static void drop_share(struct fetch *fetch)
{
	memory_give_back(&fetch->fetches->memory, fetch->share);
	fetch->share = 0;
}

/* 0: there is somebody who has no room for the item. */
static int answer_all(struct fetch *fetch, struct item *item)
{
	int wants = item && wants_verdict(fetch->fetches, fetch->by_name.name,
					  fetch->level);
	struct waiter *waiter;
	int is_taken = 1;

	while (!ki_list_is_empty(&fetch->waiters)) {
		waiter = ki_container(fetch->waiters.next, struct waiter, link);
		leave(waiter);
		waiter->wants_verdict = wants;
		if (item)
			is_taken &=
				waiter->done(waiter, fetch->level, item, 0, 0);
		else
			answer_miss(waiter, fetch->reasons);
	}
	return is_taken;
}

static void finish(struct fetch *fetch, struct item *item)
{
	struct fetches *fetches = fetch->fetches;
	struct batch *batch = fetch->batch;
	int waits = !ki_list_is_empty(&fetch->waiters), is_taken;
	int was_full = fetches->names.n == PREFETCH_FETCHES_MAX;

	names_remove(&fetches->names, &fetch->by_name);
	drop_share(fetch);
	is_taken = answer_all(fetch, item) && waits;
	if (item &&
	    (!is_taken || is_filled_from(fetches->sources, fetch->level)))
		keep(fetch, item, is_taken);
	if (batch && batch->way_ns < fetch->way_ns)
		batch->way_ns = fetch->way_ns;
	fetch->batch = NULL;
	free_fetch(fetch);
	if (batch)
		leave_batch(fetches, batch);
	else if (was_full)
		pump(fetches);
}

static uint32_t reason_of(enum kiln_status status)
{
	switch (status) {
	case KILN_MISS:
	case KILN_E_TOO_LARGE:
		return KI_REMOTE_ABSENT;
	case KILN_E_TIMEOUT:
		return KI_REMOTE_LATE;
	case KILN_E_OWNER:
		return KI_REMOTE_FAULT | KI_REMOTE_REFUSED;
	default:
		return KI_REMOTE_FAULT;
	}
}

/* What cannot be an item of that name. */
static void reject(struct fetch *fetch)
{
	struct fetches *fetches = fetch->fetches;

	refused_add(&fetches->refused, fetch->by_name.name, fetch->level);
	source_verdict(
		sources_of(fetches->sources, fetch->level, fetch->by_name.name),
		VERDICT_DAMAGED);
	fetch->reasons |= KI_REMOTE_FAULT;
	fetch->level++;
	step(fetch);
}

/* Whoever waits may have all that the level allows. */
static void ask_for_more(struct fetch *fetch)
{
	struct fetches *fetches = fetch->fetches;

	if (fetches->largest < 2 * fetch->share)
		fetches->largest = 2 * fetch->share;
	drop_share(fetch);
	if (ki_list_is_empty(&fetch->waiters)) {
		fetches->n_prefetch_dropped++;
		finish(fetch, NULL);
	} else {
		step(fetch);
	}
}

static int is_beyond_its_share(const struct fetch *fetch,
			       enum kiln_status status)
{
	return status == KILN_E_TOO_LARGE && fetch->share &&
	       fetch->share < source_of(fetch)->settings->item_bytes_max;
}

static void note_prefetched(struct fetch *fetch, const struct item *item)
{
	fetch->fetches->n_prefetched++;
	if (fetch->batch->largest < item->size)
		fetch->batch->largest = item->size;
}

static void got(void *arg, const struct outcome *outcome)
{
	struct fetch *fetch = arg;
	struct item *item;

	fetch->way_ns += source_of(fetch)->figures.least_ns;
	if (is_beyond_its_share(fetch, outcome->status)) {
		ask_for_more(fetch);
		return;
	}
	if (outcome->status) {
		fetch->reasons |= reason_of(outcome->status);
		fetch->level++;
		step(fetch);
		return;
	}
	if (ki_item_glance(fetch->by_name.name, outcome->body,
			   outcome->body_size)) {
		free(outcome->body);
		reject(fetch);
		return;
	}
	item = item_new(outcome->body, outcome->body_size);
	if (!item)
		fetch->reasons |= KI_REMOTE_FAULT;
	else if (fetch->batch)
		note_prefetched(fetch, item);
	finish(fetch, item);
	item_unref(item);
}

/* ---- Asking -------------------------------------------------------------- */

static void ask(struct source *source, struct fetch *const *several, size_t n)
{
	const char *names[SOURCE_BATCH_MAX];
	struct ask *asks[SOURCE_BATCH_MAX];

	for (size_t i = 0; i < n; i++) {
		names[i] = several[i]->text;
		asks[i] = &several[i]->ask;
		asks[i]->done = got;
		asks[i]->arg = several[i];
	}
	source_get(source, asks, names, n, several[0]->share);
}

/* All that go to the source of the first, and may bring as much. */
static void ask_first(struct fetches *fetches)
{
	struct fetch *several[SOURCE_BATCH_MAX];
	struct ki_list *link, *after;
	struct source *source = NULL;
	uint64_t share = 0;
	size_t n = 0;

	ki_list_for_each_safe (link, after, &fetches->together) {
		struct fetch *fetch =
			ki_container(link, struct fetch, together);

		if (n == SOURCE_BATCH_MAX)
			break;
		if (!source) {
			source = source_of(fetch);
			share = fetch->share;
		}
		if (source_of(fetch) != source || fetch->share != share)
			continue;
		ki_list_remove(link);
		several[n++] = fetch;
	}
	ask(source, several, n);
}

static void flush_now(struct fetches *fetches)
{
	while (!ki_list_is_empty(&fetches->together))
		ask_first(fetches);
}

static void flush(void *arg)
{
	struct fetches *fetches = arg;

	fetches->flush = NULL;
	flush_now(fetches);
}

static void ask_together(struct fetch *fetch)
{
	struct fetches *fetches = fetch->fetches;

	ki_list_append(&fetches->together, &fetch->together);
	if (!fetches->flush)
		fetches->flush = loop_after(fetches->loop, 0, flush, fetches);
	if (!fetches->flush)
		flush_now(fetches);
}

/* Ask the next level that is asked at the moment; there may be none. */
static void step(struct fetch *fetch)
{
	struct fetches *fetches = fetch->fetches;
	int waits = !ki_list_is_empty(&fetch->waiters);

	for (; fetch->level < fetches->sources->n_levels; fetch->level++) {
		struct source *source = source_of(fetch);

		if (refused_has(&fetches->refused, fetch->by_name.name,
				fetch->level)) {
			fetch->reasons |= KI_REMOTE_FAULT;
			continue;
		}
		if (!source_lets(source, waits)) {
			fetch->reasons |= KI_REMOTE_BROKEN;
			continue;
		}
		if (waits)
			ask(source, &fetch, 1);
		else
			ask_together(fetch);
		return;
	}
	finish(fetch, NULL);
}

static struct fetch *find(const struct fetches *fetches, const uint8_t *name,
			  unsigned from)
{
	struct name_link *link = names_find(&fetches->names, name);

	for (; link; link = names_next(link)) {
		struct fetch *fetch = ki_container(link, struct fetch, by_name);

		if (fetch->from == from)
			return fetch;
	}
	return NULL;
}

static struct fetch *new_fetch(struct fetches *fetches, const uint8_t *name,
			       unsigned from)
{
	struct fetch *fetch;

	if (fetches->names.n >= FETCHES_MAX)
		return NULL;
	fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return NULL;
	*fetch = (struct fetch){ .fetches = fetches,
				 .from = from,
				 .level = from };
	ki_list_init(&fetch->waiters);
	ki_list_init(&fetch->together);
	ki_hex(name, KI_REMOTE_NAME_BYTES, fetch->text);
	if (names_add(&fetches->names, &fetch->by_name, name))
		return fetch;
	free(fetch);
	return NULL;
}

/* ---- Getting ------------------------------------------------------------- */

static int serve_from_memory(struct fetches *fetches, struct waiter *waiter,
			     const uint8_t *name, unsigned from)
{
	struct memory_item *kept = memory_get(&fetches->memory, name);

	if (!kept || kept->level < from ||
	    refused_has(&fetches->refused, name, kept->level))
		return 0;
	waiter->wants_verdict = wants_verdict(fetches, name, kept->level);
	if (waiter->done(waiter, kept->level, kept->item, 0, 0)) {
		fetches->n_from_memory++;
		memory_serve(&fetches->memory, kept,
			     loop_now_ns(fetches->loop));
	}
	pump(fetches);
	return 1;
}

void fetches_get(struct fetches *fetches, struct waiter *waiter,
		 const uint8_t name[KI_REMOTE_NAME_BYTES], uint32_t ms,
		 unsigned from)
{
	struct fetch *fetch;
	int is_new, waits;

	waiter->fetches = fetches;
	waiter->fetch = NULL;
	waiter->deadline = NULL;
	ki_list_init(&waiter->link);
	fetches->n_gets++;
	if (serve_from_memory(fetches, waiter, name, from))
		return;
	fetch = find(fetches, name, from);
	is_new = !fetch;
	if (is_new)
		fetch = new_fetch(fetches, name, from);
	else
		fetches->n_joined++;
	if (!fetch) {
		answer_miss(waiter, KI_REMOTE_FAULT);
		return;
	}
	if (ms)
		waiter->deadline =
			loop_after(fetches->loop, ms, run_out, waiter);
	waits = waiter->deadline != NULL; /* nobody waits without an end */
	if (waits) {
		ki_list_append(&fetch->waiters, &waiter->link);
		waiter->fetch = fetch;
	}
	if (is_new)
		step(fetch);
	else if (waits && !ki_list_is_empty(&fetch->together))
		flush_now(fetches);
	if (!waits)
		answer_miss(waiter, KI_REMOTE_LATE);
}

/* ---- Prefetch ------------------------------------------------------------ */

/* The next name that is neither here nor on its way; 0: there is none. */
static int take_wanted(struct fetches *fetches,
		       uint8_t out_name[KI_REMOTE_NAME_BYTES])
{
	while (fetches->n_wanted) {
		memcpy(out_name, fetches->wanted[fetches->first_wanted],
		       KI_REMOTE_NAME_BYTES);
		fetches->first_wanted =
			(fetches->first_wanted + 1) % fetches->wanted_room;
		fetches->n_wanted--;
		if (!memory_get(&fetches->memory, out_name) &&
		    !find(fetches, out_name, 0))
			return 1;
	}
	return 0;
}

/* How many names the next batch has, and what is set aside for each.  An item of
   which there is no telling, or for which there may never be more room, is tried
   alone. */
static unsigned plan_batch(const struct fetches *fetches, uint64_t *out_share)
{
	uint64_t room = memory_room(&fetches->memory);
	uint64_t n = fetches->batch_size;

	room /= BATCHES_MAX - fetches->n_batches;
	if (fetches->largest && n > room / fetches->largest)
		n = room / fetches->largest;
	if (!n && !fetches->n_batches && !fetches->memory.unserved_bytes)
		n = 1;
	if (!n || !room || fetches->names.n >= PREFETCH_FETCHES_MAX)
		return 0;
	*out_share = room / n;
	return *out_share ? (unsigned)n : 0;
}

/* The next that is wanted, on its way. */
static struct fetch *begin_wanted(struct fetches *fetches, struct batch *batch,
				  uint64_t share)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct fetch *fetch;

	if (!take_wanted(fetches, name))
		return NULL;
	fetch = new_fetch(fetches, name, 0);
	if (!fetch) {
		fetches->n_prefetch_dropped++;
		return NULL;
	}
	fetch->batch = batch;
	fetch->share = share;
	memory_set_aside(&fetches->memory, share);
	return fetch;
}

static int begin_batch(struct fetches *fetches)
{
	struct fetch *several[BATCH_MAX], *fetch;
	struct batch *batch;
	uint64_t share;
	unsigned n_most = plan_batch(fetches, &share);
	size_t n = 0;

	batch = n_most ? malloc(sizeof(*batch)) : NULL;
	if (!batch)
		return 0;
	while (n < n_most && (fetch = begin_wanted(fetches, batch, share)))
		several[n++] = fetch;
	*batch = (struct batch){ .n = n,
				 .n_left = n,
				 .begun_ns = loop_now_ns(fetches->loop),
				 .is_crowded = is_crowded(fetches) };
	if (!n) {
		free(batch);
		return 0;
	}
	fetches->n_batches++;
	for (size_t i = 0; i < n; i++)
		step(several[i]);
	return 1;
}

/* A batch may be done before it has begun, where no source is asked.  Where none can
   begin, and nothing is there or on its way that would make it go on later, it
   ends: a batch, items that nobody has taken yet, or as many look-ups as let none
   begin. */
static void pump(struct fetches *fetches)
{
	if (fetches->is_pumping)
		return;
	fetches->is_pumping = 1;
	while (fetches->n_wanted && fetches->n_batches < BATCHES_MAX &&
	       !fetches->sources->is_closing)
		if (!begin_batch(fetches))
			break;
	if (fetches->n_wanted && !fetches->n_batches &&
	    !fetches->memory.unserved_bytes &&
	    fetches->names.n < PREFETCH_FETCHES_MAX)
		end_prefetch(fetches);
	fetches->is_pumping = 0;
}

static int make_room(struct fetches *fetches, size_t n)
{
	size_t room = fetches->wanted_room ? fetches->wanted_room : 512;
	uint8_t(*wanted)[KI_REMOTE_NAME_BYTES];

	if (fetches->n_wanted + n > PREFETCH_NAMES_MAX)
		return 0;
	while (room < fetches->n_wanted + n)
		room *= 2;
	if (room == fetches->wanted_room)
		return 1;
	wanted = malloc(room * sizeof(*wanted));
	if (!wanted)
		return 0;
	for (size_t i = 0; i < fetches->n_wanted; i++)
		memcpy(wanted[i],
		       fetches->wanted[(fetches->first_wanted + i) %
				       fetches->wanted_room],
		       sizeof(*wanted));
	free(fetches->wanted);
	fetches->wanted = wanted;
	fetches->wanted_room = room;
	fetches->first_wanted = 0;
	return 1;
}

void fetches_prefetch(struct fetches *fetches, const uint8_t *names,
		      size_t n_names)
{
	if (!make_room(fetches, n_names)) {
		fetches->n_prefetch_dropped += n_names;
		return;
	}
	if (!fetches->n_wanted && !fetches->n_batches) {
		fetches->batch_size = 1;
		fetches->n_first = 0;
	}
	for (size_t i = 0; i < n_names; i++)
		memcpy(fetches->wanted[(fetches->first_wanted +
					fetches->n_wanted++) %
				       fetches->wanted_room],
		       names + i * KI_REMOTE_NAME_BYTES, KI_REMOTE_NAME_BYTES);
	pump(fetches);
}

/* ---- Verdicts ------------------------------------------------------------ */

struct item *fetches_verdict(struct fetches *fetches,
			     const uint8_t name[KI_REMOTE_NAME_BYTES],
			     unsigned level, enum verdict verdict)
{
	struct memory_item *kept = memory_get(&fetches->memory, name);

	source_verdict(sources_of(fetches->sources, level, name), verdict);
	if (kept && kept->level != level)
		kept = NULL;
	if (verdict == VERDICT_GOOD)
		return kept ? kept->item : NULL;
	refused_add(&fetches->refused, name, level);
	if (kept)
		memory_remove(&fetches->memory, kept);
	pump(fetches);
	return NULL;
}
