/* SPDX-License-Identifier: MIT */

/*
 * A node asks for its kernels one after another, as a program does that starts.
 * For each it goes this way; what waits is an event in a heap:
 *
 *	BEGIN -> get -> HAVE --------------------------------------> BEGIN
 *	          |
 *	          +--> ABSENT, LATE -> lease -> LEASED -> build -> BUILT -> BEGIN
 *	                                 |  ^                        |
 *	                              BUSY--+                        put
 *	                                 |
 *	                                 +---> EXISTS -> get again
 *
 * Nodes      They give up on a get after min(100 ms, half the median of their
 *            builds; 100 ms until five); after 1 s in all of gets that brought
 *            nothing they wait for none.  Three late answers of a shard in a row
 *            open its breaker for 1 s, then a single get probes it; each failure
 *            doubles that up to 60 s.  A lease is waited for 60 s, asked for again
 *            and again; each question must be answered as soon as a get.  What is
 *            said to be there now may take 2 s.  A build goes to the remote while
 *            the next get is asked.
 *
 * Prefetch   Where the remote has the order of the last run: two batches are on
 *            the way at any time, until all are there.  They begin with one name; a
 *            batch that took less than 25 ms makes the next twice as large, up to
 *            32, one over 50 ms half as large; a name that alone takes that long
 *            ends it.  Where the node's fastest answer ever took longer, it is 9/8 and
 *            12/8 of that, 250 ms at most, and the first two may take longer.  A get
 *            of a name on its way waits for that.
 *
 * Servers    A shard serves in the order of arrival, as many requests at a time
 *            as it has workers; what it sends queues for its network and then for
 *            that of the node.  It serves what nobody waits for any more, too.
 *            That requests arrive in time's order and are served in that order
 *            lets the end of each be known when it arrives.
 *
 * Builds     On PoCL's own times; nodes are up to 10 % faster or slower, and so
 *            is each build.  All by chance, the same for the same seed.
 */

#include "fleet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define S		   1e9
#define NEVER		   UINT64_MAX
#define LOOKUP_NS	   100000000u
#define WASTED_MAX_NS	   1000000000u
#define LEASE_WAIT_NS	   60000000000u
#define LEASE_LIFE_NS	   10000000000u
#define REQUEST_TIMEOUT_NS 2000000000u
#define FAULTS_MAX	   3
#define BACKOFF_MAX	   6 /* doublings of 1 s, but for the bound of 60 s */
#define BATCH_FIRST	   1
#define BATCH_MAX	   32
#define BATCH_SHORT_NS	   25000000u
#define BATCH_LONG_NS	   50000000u
#define BATCH_FAR_NS	   250000000u
#define WINDOW		   2
#define FRAME_BYTES	   120 /* of a request, and of an answer, besides the value */
#define BUCKETS		   64 /* of build times: quarters of octaves from 1 ms */
#define WORKERS_MAX	   64
#define EVENT_BITS	   4
#define INDEX_BITS	   16 /* of a kernel in its order */

enum event_kind {
	BEGIN,
	GET,	     /* at the server */
	GET_UNHEARD, /* nobody waits for it */
	ORDER,	     /* the order is at the node */
	NEXT_BATCH,
	GET_BATCH, /* at the server */
	LEASE,	   /* at the server */
	PUT,	   /* at the server */
	PUT_LEASED,
	HAVE,
	ABSENT,
	LATE,
	LEASED,
	BUSY,
	EXISTS,
	BUILT,
};

struct event {
	uint64_t at_ns;
	uint32_t node;
	uint32_t what; /* kind, and above it the number of the question */
};

struct server {
	uint64_t in_ns, out_ns; /* its network is free then */
	uint64_t workers_ns[WORKERS_MAX];
};

struct breaker {
	uint64_t open_until_ns;
	uint8_t n_faults, backoff;
};

struct node {
	uint32_t index;	   /* of the kernel that it wants */
	uint32_t question; /* events of an older one count no more */
	uint32_t batch_from, batch_size;
	uint32_t step, offset; /* its order of kernels */
	uint64_t asked_ns, deadline_ns, lease_deadline_ns, wasted_ns;
	uint64_t in_ns, out_ns, done_ns;
	uint64_t least_ns; /* of its answers; 0: none */
	uint32_t n_builds;
	uint16_t builds[BUCKETS];
	uint8_t asked_again, has_lease, is_waiting, is_slow, n_first;
};

struct fleet {
	const struct fleet_setup *setup;
	struct event *heap;
	size_t n_events, room;
	uint64_t now_ns;
	struct node *nodes;
	struct server *servers;
	struct breaker *breakers; /* of each node, of each shard */
	uint8_t *is_there;	  /* of each kernel */
	uint64_t *leased_until_ns;
	uint64_t
		*ready_ns; /* of node and kernel: 0 unasked, NEVER on its way */
	struct fleet_outcome outcome;
};

static void *zeros(size_t n, size_t size)
{
	void *data = calloc(n ? n : 1, size);

	if (!data)
		bench_fail("out of memory");
	return data;
}

/* ---- Chance ---------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* From 0 to 1, of three numbers. */
static double chance(const struct fleet_setup *setup, uint64_t a, uint64_t b,
		     uint64_t c)
{
	return (double)(mix(mix(mix(setup->seed + a) + b) + c) >> 11) /
	       9007199254740992.0;
}

static double build_s(const struct fleet_setup *setup, uint32_t node,
		      uint32_t kernel)
{
	double of_node = 0.9 + 0.2 * chance(setup, 1, node, 0);
	double of_build = 0.9 + 0.2 * chance(setup, 2, node, kernel);

	return setup->kernels[kernel].build_s * of_node * of_build;
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	return b ? common_divisor(b, a % b) : a;
}

/* ---- Events ---------------------------------------------------------------- */

static void push(struct fleet *fleet, uint64_t at_ns, uint32_t node,
		 enum event_kind kind)
{
	struct event event = { at_ns, node,
			       kind | fleet->nodes[node].question
					       << EVENT_BITS };
	size_t i = fleet->n_events++;

	if (fleet->n_events > fleet->room) {
		fleet->room = fleet->room ? 2 * fleet->room : 1024;
		fleet->heap = realloc(fleet->heap,
				      fleet->room * sizeof(*fleet->heap));
		if (!fleet->heap)
			bench_fail("out of memory");
	}
	for (; i && fleet->heap[(i - 1) / 2].at_ns > at_ns; i = (i - 1) / 2)
		fleet->heap[i] = fleet->heap[(i - 1) / 2];
	fleet->heap[i] = event;
}

/* What a node asks for is told by a number beside the event. */
static void push_numbered(struct fleet *fleet, uint64_t at_ns, uint32_t node,
			  enum event_kind kind, uint32_t number)
{
	const uint32_t question = fleet->nodes[node].question;

	fleet->nodes[node].question = number;
	push(fleet, at_ns, node, kind);
	fleet->nodes[node].question = question;
}

static struct event pop(struct fleet *fleet)
{
	struct event first = fleet->heap[0];
	struct event last = fleet->heap[--fleet->n_events];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < fleet->n_events) {
		if (child + 1 < fleet->n_events &&
		    fleet->heap[child + 1].at_ns < fleet->heap[child].at_ns)
			child++;
		if (fleet->heap[child].at_ns >= last.at_ns)
			break;
		fleet->heap[i] = fleet->heap[child];
		i = child;
	}
	fleet->heap[i] = last;
	return first;
}

/* ---- Places ---------------------------------------------------------------- */

static uint32_t kernel_at(const struct fleet *fleet, const struct node *node,
			  uint32_t index)
{
	return (uint32_t)(((uint64_t)index * node->step + node->offset) %
			  fleet->setup->n_kernels);
}

static uint32_t shard_of(const struct fleet *fleet, uint32_t kernel)
{
	return (uint32_t)(mix(kernel) % fleet->setup->n_shards);
}

static struct breaker *breaker_of(struct fleet *fleet, uint32_t node,
				  uint32_t kernel)
{
	return &fleet->breakers[(size_t)node * fleet->setup->n_shards +
				shard_of(fleet, kernel)];
}

static uint64_t *ready_of(struct fleet *fleet, uint32_t node, uint32_t kernel)
{
	return &fleet->ready_ns[(size_t)node * fleet->setup->n_kernels +
				kernel];
}

static uint64_t half_trip_ns(const struct fleet *fleet)
{
	return (uint64_t)(fleet->setup->round_trip_s * S / 2);
}

/* ---- Servers --------------------------------------------------------------- */

static uint64_t through(uint64_t *free_ns, uint64_t at_ns, uint64_t bytes,
			double bytes_s)
{
	if (*free_ns < at_ns)
		*free_ns = at_ns;
	*free_ns += (uint64_t)((double)bytes / bytes_s * S);
	return *free_ns;
}

/* A request that is at the shard now; when the node has its answer. */
static uint64_t serve(struct fleet *fleet, uint32_t node, uint32_t kernel,
		      enum fleet_request request)
{
	const struct fleet_setup *setup = fleet->setup;
	const struct fleet_engine *engine = setup->engine;
	struct server *server = &fleet->servers[shard_of(fleet, kernel)];
	const uint64_t bytes = request == FLEET_HIT || request == FLEET_BATCH ||
					       request == FLEET_PUT
				       ? setup->kernels[kernel].bytes
				       : 0;
	const uint64_t in = FRAME_BYTES + (request == FLEET_PUT ? bytes : 0);
	const uint64_t out = FRAME_BYTES + (request == FLEET_PUT ? 0 : bytes);
	uint64_t at_ns = through(&server->in_ns, fleet->now_ns, in,
				 setup->server_bytes_s);
	uint64_t *worker_ns = server->workers_ns;

	for (unsigned i = 1; i < engine->n_workers; i++)
		if (server->workers_ns[i] < *worker_ns)
			worker_ns = &server->workers_ns[i];
	if (*worker_ns < at_ns)
		*worker_ns = at_ns;
	*worker_ns += (uint64_t)(engine->request_ns[request] +
				 engine->byte_ns[request] * (double)bytes);
	at_ns = through(&server->out_ns, *worker_ns, out,
			setup->server_bytes_s);
	fleet->outcome.n_requests++;
	fleet->outcome.n_bytes += in + out;
	return through(&fleet->nodes[node].in_ns, at_ns + half_trip_ns(fleet),
		       out, setup->node_bytes_s);
}

static void note_time(const struct fleet *fleet, struct node *node,
		      uint64_t at_ns)
{
	const uint64_t ns = at_ns - fleet->now_ns + half_trip_ns(fleet);

	if (!node->least_ns || ns < node->least_ns)
		node->least_ns = ns;
}

/* ---- Breakers -------------------------------------------------------------- */

static void note_answer(struct breaker *breaker)
{
	*breaker = (struct breaker){ 0 };
}

static void note_late(struct fleet *fleet, uint32_t node,
		      struct breaker *breaker)
{
	double s;

	fleet->outcome.n_late++;
	if (++breaker->n_faults < FAULTS_MAX)
		return;
	s = breaker->backoff < BACKOFF_MAX ? (double)(1u << breaker->backoff)
					   : 60;
	s *= 0.75 + 0.5 * chance(fleet->setup, 3, node, fleet->now_ns);
	breaker->open_until_ns = fleet->now_ns + (uint64_t)(s * S);
	if (breaker->backoff < BACKOFF_MAX)
		breaker->backoff++;
}

static int is_open(const struct fleet *fleet, const struct breaker *breaker)
{
	return fleet->now_ns < breaker->open_until_ns;
}

/* ---- Builds ---------------------------------------------------------------- */

static void note_build(struct node *node, double s)
{
	double bucket = 4 * log2(s * 1000);

	node->n_builds++;
	node->builds[bucket < 0		 ? 0
		     : bucket >= BUCKETS ? BUCKETS - 1
					 : (int)bucket]++;
}

static uint64_t lookup_ns(const struct node *node)
{
	uint32_t n = 0;
	double half_ns;
	int i = 0;

	if (node->n_builds < 5)
		return LOOKUP_NS;
	while ((n += node->builds[i]) * 2 < node->n_builds)
		i++;
	half_ns = exp2(i / 4.0) * 1e6 / 2;
	return half_ns < LOOKUP_NS ? (uint64_t)half_ns : LOOKUP_NS;
}

static void build(struct fleet *fleet, uint32_t n, int has_lease)
{
	struct node *node = &fleet->nodes[n];
	const uint32_t kernel = kernel_at(fleet, node, node->index);
	const double s = build_s(fleet->setup, n, kernel);

	node->question++;
	node->has_lease = (uint8_t)has_lease;
	note_build(node, s);
	push(fleet, fleet->now_ns + (uint64_t)(s * S), n, BUILT);
}

static void built(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];
	const uint32_t kernel = kernel_at(fleet, node, node->index);
	const struct fleet_setup *setup = fleet->setup;

	fleet->outcome.n_builds++;
	if (is_open(fleet, breaker_of(fleet, n, kernel))) {
		if (node->has_lease)
			fleet->leased_until_ns[kernel] =
				fleet->now_ns + LEASE_LIFE_NS;
	} else {
		push_numbered(fleet,
			      through(&node->out_ns, fleet->now_ns,
				      setup->kernels[kernel].bytes,
				      setup->node_bytes_s) +
				      half_trip_ns(fleet),
			      n, node->has_lease ? PUT_LEASED : PUT, kernel);
	}
	node->index++;
	node->question++;
	push(fleet, fleet->now_ns, n, BEGIN);
}

static void put(struct fleet *fleet, uint32_t node, uint32_t kernel,
		int has_lease)
{
	(void)serve(fleet, node, kernel, FLEET_PUT);
	fleet->is_there[kernel] = 1;
	if (!has_lease)
		return;
	(void)serve(fleet, node, kernel, FLEET_LEASE);
	fleet->leased_until_ns[kernel] = 0;
}

/* ---- Leases ---------------------------------------------------------------- */

static void ask_for_lease(struct fleet *fleet, uint32_t n)
{
	fleet->nodes[n].asked_ns = fleet->now_ns;
	push(fleet, fleet->now_ns + half_trip_ns(fleet), n, LEASE);
}

static void want_build(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];
	const uint32_t kernel = kernel_at(fleet, node, node->index);

	if (!fleet->setup->has_leases || node->asked_again ||
	    is_open(fleet, breaker_of(fleet, n, kernel))) {
		build(fleet, n, 0);
		return;
	}
	node->question++;
	node->lease_deadline_ns = fleet->now_ns + LEASE_WAIT_NS;
	ask_for_lease(fleet, n);
}

/* At the server. */
static void lease(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];
	const uint32_t kernel = kernel_at(fleet, node, node->index);
	const uint64_t late_ns = node->asked_ns + lookup_ns(node);
	uint64_t *until_ns = &fleet->leased_until_ns[kernel];
	const uint64_t at_ns = serve(fleet, n, kernel, FLEET_LEASE);
	enum event_kind answer = BUSY;

	if (fleet->is_there[kernel]) {
		answer = EXISTS;
	} else if (*until_ns <= fleet->now_ns) {
		answer = LEASED;
		*until_ns =
			at_ns > late_ns ? fleet->now_ns + LEASE_LIFE_NS : NEVER;
	}
	if (at_ns > late_ns)
		push(fleet, late_ns, n, LATE);
	else
		push(fleet, at_ns, n, answer);
}

/* The longer it has waited, the longer it takes until it asks again. */
static uint64_t poll_ns(const struct fleet *fleet, uint32_t n)
{
	const struct fleet_setup *setup = fleet->setup;
	const uint64_t begun_ns =
		fleet->nodes[n].lease_deadline_ns - LEASE_WAIT_NS;
	double s = (double)(fleet->now_ns - begun_ns) / S * setup->poll_part;

	if (s < setup->poll_min_s)
		s = setup->poll_min_s;
	if (s > setup->poll_max_s)
		s = setup->poll_max_s;
	return (uint64_t)(s * S *
			  (0.75 + 0.5 * chance(setup, 4, n, fleet->now_ns)));
}

static void wait_for_lease(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];
	const uint64_t at_ns = fleet->now_ns + poll_ns(fleet, n);

	note_answer(breaker_of(fleet, n, kernel_at(fleet, node, node->index)));
	if (at_ns >= node->lease_deadline_ns) {
		build(fleet, n, 0);
		return;
	}
	node->asked_ns = at_ns;
	push(fleet, at_ns + half_trip_ns(fleet), n, LEASE);
}

/* ---- Gets ------------------------------------------------------------------ */

/* Whether the answer is known, or soon will be, without a request of its own. */
static int is_prefetched(struct fleet *fleet, uint32_t n, uint32_t kernel)
{
	struct node *node = &fleet->nodes[n];
	uint64_t ready_ns;

	if (!fleet->ready_ns)
		return 0;
	ready_ns = *ready_of(fleet, n, kernel);
	if (!ready_ns)
		return 0;
	if (ready_ns == NEVER) {
		node->is_waiting = 1;
		push(fleet, node->deadline_ns, n, LATE);
	} else if (ready_ns <= node->deadline_ns) {
		push(fleet, ready_ns > fleet->now_ns ? ready_ns : fleet->now_ns,
		     n, HAVE);
	} else {
		push(fleet, node->deadline_ns, n, LATE);
	}
	return 1;
}

static void send_get(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];
	const uint32_t kernel = kernel_at(fleet, node, node->index);

	node->question++;
	node->asked_ns = fleet->now_ns;
	node->deadline_ns =
		fleet->now_ns +
		(node->asked_again ? REQUEST_TIMEOUT_NS : lookup_ns(node));
	node->is_waiting = 0;
	if (is_open(fleet, breaker_of(fleet, n, kernel))) {
		want_build(fleet, n);
	} else if (is_prefetched(fleet, n, kernel)) {
		/* Its answer comes. */
	} else if (node->wasted_ns >= WASTED_MAX_NS && !node->asked_again) {
		push_numbered(fleet, fleet->now_ns + half_trip_ns(fleet), n,
			      GET_UNHEARD, kernel);
		want_build(fleet, n);
	} else {
		push(fleet, fleet->now_ns + half_trip_ns(fleet), n, GET);
	}
}

static void begin(struct fleet *fleet, uint32_t n)
{
	const struct fleet_setup *setup = fleet->setup;
	struct node *node = &fleet->nodes[n];

	node->asked_again = 0;
	if (node->index == setup->n_kernels) {
		node->done_ns = fleet->now_ns;
		return;
	}
	if (!node->index && fleet->ready_ns)
		push(fleet, fleet->now_ns + 2 * half_trip_ns(fleet), n, ORDER);
	send_get(fleet, n);
}

/* At the server. */
static void get(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];
	const uint32_t kernel = kernel_at(fleet, node, node->index);
	const int is_there = fleet->is_there[kernel];
	const uint64_t at_ns =
		serve(fleet, n, kernel, is_there ? FLEET_HIT : FLEET_MISS);

	note_time(fleet, node, at_ns);
	if (fleet->ready_ns && is_there)
		*ready_of(fleet, n, kernel) = at_ns;
	if (at_ns > node->deadline_ns)
		push(fleet, node->deadline_ns, n, LATE);
	else
		push(fleet, at_ns, n, is_there ? HAVE : ABSENT);
}

static void get_unheard(struct fleet *fleet, uint32_t node, uint32_t kernel)
{
	(void)serve(fleet, node, kernel,
		    fleet->is_there[kernel] ? FLEET_HIT : FLEET_MISS);
}

static void have(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];

	note_answer(breaker_of(fleet, n, kernel_at(fleet, node, node->index)));
	node->index++;
	node->question++;
	push(fleet, fleet->now_ns + (uint64_t)(fleet->setup->open_s * S), n,
	     BEGIN);
}

static void miss(struct fleet *fleet, uint32_t n, int is_late)
{
	struct node *node = &fleet->nodes[n];
	struct breaker *breaker =
		breaker_of(fleet, n, kernel_at(fleet, node, node->index));

	/* An answer that is waited for with a lease is no look-up. */
	if (!node->lease_deadline_ns)
		node->wasted_ns += fleet->now_ns - node->asked_ns;
	if (is_late)
		note_late(fleet, n, breaker);
	else
		note_answer(breaker);
	if (node->lease_deadline_ns)
		build(fleet, n, 0);
	else
		want_build(fleet, n);
}

/* ---- Prefetch -------------------------------------------------------------- */

/* Names that nobody asked for yet; fewer, or none, at the end. */
static void next_batch(struct fleet *fleet, uint32_t n)
{
	struct node *node = &fleet->nodes[n];
	uint32_t from = node->batch_from, n_names = 0;

	if (from <= node->index)
		from = node->index + 1;
	if (from >= fleet->setup->n_kernels || node->is_slow)
		return;
	node->batch_from = from;
	for (; node->batch_from < fleet->setup->n_kernels &&
	       n_names < node->batch_size;
	     node->batch_from++) {
		uint64_t *ready_ns = ready_of(
			fleet, n, kernel_at(fleet, node, node->batch_from));

		if (!*ready_ns) {
			*ready_ns = NEVER;
			n_names++;
		}
	}
	if (!n_names)
		return;
	push_numbered(fleet, fleet->now_ns + half_trip_ns(fleet), n, GET_BATCH,
		      from | n_names << INDEX_BITS);
}

static uint64_t bound_ns(const struct node *node, unsigned eighths,
			 uint64_t least_ns)
{
	const uint64_t ns = node->least_ns * eighths / 8;

	if (ns < least_ns)
		return least_ns;
	return ns < BATCH_FAR_NS ? ns : BATCH_FAR_NS;
}

static void set_batch_size(struct node *node, uint64_t took_ns)
{
	const uint64_t long_ns = bound_ns(node, 12, BATCH_LONG_NS);
	const int is_excused =
		node->n_first < WINDOW && long_ns > BATCH_LONG_NS;

	node->n_first += node->n_first < WINDOW;
	if (took_ns < bound_ns(node, 9, BATCH_SHORT_NS) &&
	    node->batch_size < BATCH_MAX)
		node->batch_size *= 2;
	else if (took_ns > long_ns && node->batch_size > 1)
		node->batch_size /= 2;
	else if (took_ns > long_ns && !is_excused)
		node->is_slow = 1;
}

/* At the servers.  The next batch is asked for when this one is all there. */
static void get_batch(struct fleet *fleet, uint32_t n, uint32_t from,
		      uint32_t n_names)
{
	struct node *node = &fleet->nodes[n];
	uint64_t last_ns = fleet->now_ns;

	for (uint32_t i = from; n_names; i++) {
		const uint32_t kernel = kernel_at(fleet, node, i);
		uint64_t *ready_ns = ready_of(fleet, n, kernel);

		if (*ready_ns != NEVER)
			continue;
		n_names--;
		*ready_ns = serve(fleet, n, kernel, FLEET_BATCH);
		note_time(fleet, node, *ready_ns);
		if (*ready_ns > last_ns)
			last_ns = *ready_ns;
		if (!node->is_waiting || i != node->index)
			continue;
		node->is_waiting = 0;
		if (*ready_ns <= node->deadline_ns)
			push(fleet, *ready_ns, n, HAVE);
	}
	set_batch_size(node, last_ns + half_trip_ns(fleet) - fleet->now_ns);
	push(fleet, last_ns, n, NEXT_BATCH);
}

/* ---- All ------------------------------------------------------------------- */

/* Whether an event is an answer to what the node asks for at the time. */
static int is_answer(enum event_kind kind)
{
	return kind >= HAVE;
}

static void happen(struct fleet *fleet, const struct event *event)
{
	const uint32_t number = event->what >> EVENT_BITS, n = event->node;
	const enum event_kind kind = event->what & ((1u << EVENT_BITS) - 1);
	struct node *node = &fleet->nodes[n];
	const uint32_t none = (1u << (32 - EVENT_BITS)) - 1;

	if (is_answer(kind) && number != (node->question & none))
		return;
	switch (kind) {
	case BEGIN:
		node->lease_deadline_ns = 0;
		begin(fleet, n);
		break;
	case GET:
		get(fleet, n);
		break;
	case GET_UNHEARD:
		get_unheard(fleet, n, number);
		break;
	case ORDER:
		for (int i = 0; i < WINDOW; i++)
			next_batch(fleet, n);
		break;
	case NEXT_BATCH:
		next_batch(fleet, n);
		break;
	case GET_BATCH:
		get_batch(fleet, n, number & ((1u << INDEX_BITS) - 1),
			  number >> INDEX_BITS);
		break;
	case LEASE:
		lease(fleet, n);
		break;
	case PUT:
	case PUT_LEASED:
		put(fleet, n, number, kind == PUT_LEASED);
		break;
	case HAVE:
		have(fleet, n);
		break;
	case ABSENT:
	case LATE:
		miss(fleet, n, kind == LATE);
		break;
	case LEASED:
		build(fleet, n, 1);
		break;
	case BUSY:
		wait_for_lease(fleet, n);
		break;
	case EXISTS:
		node->asked_again = 1;
		send_get(fleet, n);
		break;
	case BUILT:
		built(fleet, n);
		break;
	}
}

static void start(struct fleet *fleet)
{
	const struct fleet_setup *setup = fleet->setup;
	const size_t n_nodes = setup->n_nodes;

	fleet->nodes = zeros(n_nodes, sizeof(*fleet->nodes));
	fleet->servers = zeros(setup->n_shards, sizeof(*fleet->servers));
	fleet->breakers =
		zeros(n_nodes * setup->n_shards, sizeof(*fleet->breakers));
	fleet->is_there = zeros(setup->n_kernels, 1);
	fleet->leased_until_ns =
		zeros(setup->n_kernels, sizeof(*fleet->leased_until_ns));
	if (setup->has_prefetch && setup->is_warm)
		fleet->ready_ns = zeros(n_nodes * setup->n_kernels,
					sizeof(*fleet->ready_ns));
	if (setup->is_warm)
		memset(fleet->is_there, 1, setup->n_kernels);
	for (uint32_t i = 0; i < n_nodes; i++) {
		struct node *node = &fleet->nodes[i];

		node->step = 1;
		node->batch_size = BATCH_FIRST;
		if (setup->has_own_order) {
			node->offset = (uint32_t)mix(setup->seed + 5 + i) %
				       setup->n_kernels;
			node->step =
				(uint32_t)(mix(setup->seed + 6 * i) >> 32) %
					setup->n_kernels |
				1;
			while (common_divisor(node->step, setup->n_kernels) > 1)
				node->step += 2;
		}
		push(fleet,
		     (uint64_t)(chance(setup, 7, i, 0) * setup->start_spread_s *
				S),
		     i, BEGIN);
	}
}

static void summarize(struct fleet *fleet)
{
	uint64_t last_ns = 0;

	for (size_t i = 0; i < fleet->setup->n_nodes; i++) {
		if (!fleet->nodes[i].done_ns)
			bench_fail("a node never had all kernels");
		if (fleet->nodes[i].done_ns > last_ns)
			last_ns = fleet->nodes[i].done_ns;
	}
	fleet->outcome.all_s = (double)last_ns / S;
}

struct fleet_outcome fleet_simulate(const struct fleet_setup *setup)
{
	struct fleet fleet = { .setup = setup };
	struct event event;

	if (setup->engine->n_workers > WORKERS_MAX ||
	    setup->n_kernels >> INDEX_BITS)
		bench_fail("too many workers, or kernels");
	start(&fleet);
	while (fleet.n_events) {
		event = pop(&fleet);
		fleet.now_ns = event.at_ns;
		happen(&fleet, &event);
	}
	summarize(&fleet);
	free(fleet.heap);
	free(fleet.nodes);
	free(fleet.servers);
	free(fleet.breakers);
	free(fleet.is_there);
	free(fleet.leased_until_ns);
	free(fleet.ready_ns);
	return fleet.outcome;
}

double fleet_alone_s(const struct fleet_setup *setup)
{
	double all_s = 0;

	for (uint32_t i = 0; i < setup->n_nodes; i++) {
		double s = chance(setup, 7, i, 0) * setup->start_spread_s;

		for (uint32_t j = 0; j < setup->n_kernels; j++)
			s += build_s(setup, i, j);
		if (s > all_s)
			all_s = s;
	}
	return all_s;
}
