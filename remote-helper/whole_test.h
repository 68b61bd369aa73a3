/* SPDX-License-Identifier: MIT */
#ifndef KIR_WHOLE_TEST_H
#define KIR_WHOLE_TEST_H

/*
 * The whole helper in the test's own process, servers that do what it says behind
 * it, and programs that are sockets: nothing happens but while whole_run_ms() runs.
 */

#include "connection.h"
#include "scripted_test.h"

#define WHOLE_LONG_MS (HARNESS_HANG_S * 1000)
#define WHOLE_IDS_MAX 2048

extern struct helper whole;

void whole_begin(const char *remote, uint64_t memory_bytes_max);
void whole_end(void);
void whole_run_ms(uint32_t ms);
/* Until all that was asked of servers has come. */
void whole_await_servers(void);

/* A program that is connected, and what it has been answered so far. */
struct program {
	int fd;
	struct connection *connection; /* the other side of it */
	int is_cut_off;
	uint8_t *bytes;
	size_t size, room;
	unsigned n_answers, n_items, n_late;
	int16_t status;	 /* of the last answer */
	uint64_t handle; /* of the last OPENED */
	uint8_t answered[WHOLE_IDS_MAX];
};

/* Connected, and greeted. */
struct program program_begin(void);
/* And until the helper has noticed. */
void program_end(struct program *program);
/* GET of these numbers, which are their ids too, in one piece: the helper reads
   nothing meanwhile. */
void program_get(struct program *program, unsigned first, unsigned n,
		 uint32_t ms);
/* All that there is to be read now.  No id twice, and none that is too large. */
void program_read(struct program *program);
/* Run until so many were answered, or it was cut off. */
void program_read_until(struct program *program, unsigned n_answers);

#endif /* KIR_WHOLE_TEST_H */
