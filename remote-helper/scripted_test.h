/* SPDX-License-Identifier: MIT */
#ifndef KIR_SCRIPTED_TEST_H
#define KIR_SCRIPTED_TEST_H

/*
 * Servers that do what a test says, behind backend.h, and all parts of the helper
 * but its process in front of them.  They keep what is put there, and count.  What
 * they have no memory for they answer so, within the call, as backends do.
 */

#include "helper.h"
#include "loop.h"

#define SERVERS_MAX	 6
#define SERVER_ITEMS_MAX 512

struct scripted_item {
	char name[NAME_TEXT_BYTES]; /* "": free */
	uint8_t *bytes;
	size_t size;
};

struct scripted {
	/* What it is to do. */
	enum kiln_status fails;	    /* everything, with this */
	enum kiln_status fails_put; /* puts */
	enum kiln_status fails_lease;
	enum kiln_status fails_script; /* renewing, giving back */
	unsigned n_fails;	       /* that many times; 0: always */
	uint32_t ms;		       /* for an answer */
	int has_leases;

	/* What happened. */
	unsigned n_gets, n_batches, n_heads, n_puts, n_replacing;
	unsigned n_leases, n_renews, n_releases, n_ranges;
	unsigned largest_batch, n_at_once, most_at_once; /* names of gets */
	size_t bytes_at_once, most_bytes_at_once; /* bodies on their way */

	struct scripted_item items[SERVER_ITEMS_MAX];
	char holder[64]; /* of the lease, one at a time; "": none */
};

/* The helper's parts; `remote` names servers as "http://0", "http://1"... */
struct stage {
	struct loop *loop;
	struct sources sources;
	struct fetches fetches;
	struct sealer *sealer;
	struct uploads uploads;
	struct leases leases;
};

extern struct scripted scripted[SERVERS_MAX];

/* Set before stage_begin(): time goes by steps (loop.h), so that milliseconds are what
   they say on any machine.  Not where something is sealed, by a thread. */
extern int stage_is_stepped;

/* All servers as new. */
void scripted_reset(void);
sources_open_fn scripted_open;

void stage_begin(struct stage *stage, const char *remote);
void stage_finish(struct stage *stage);
/* Run the loop until *flag is not 0. */
void stage_run_until(struct stage *stage, const unsigned *flag);
void stage_run_ms(struct stage *stage, uint32_t ms);

/* An item of this number as it lies on a server; what stands there. */
void scripted_keep(struct scripted *server, uint64_t number);
struct scripted_item *scripted_find(struct scripted *server, uint64_t number);
void scripted_name(uint64_t number, uint8_t out[KI_REMOTE_NAME_BYTES]);
/* The same with a value of so many bytes. */
void scripted_keep_sized(struct scripted *server, uint64_t number,
			 size_t value_size);

/* A look-up, and what came of it. */
struct look_up {
	struct waiter waiter;
	unsigned is_done;
	int is_hit;
	unsigned level;
	uint32_t reasons, wait_ms;
};
void look_up_begin(struct stage *stage, struct look_up *look, uint64_t number,
		   uint32_t ms, unsigned from);
/* And wait for it. */
struct look_up look_up(struct stage *stage, uint64_t number, uint32_t ms);

#endif /* KIR_SCRIPTED_TEST_H */
