/* SPDX-License-Identifier: MIT */
#ifndef KIR_LOOP_H
#define KIR_LOOP_H

/*
 * The one loop of kiln-remote: descriptors, and timers.  One thread; functions
 * are called from loop_run() and may add, change and remove anything.
 */

#include <stdint.h>

#include "base/list.h"

struct loop;
struct loop_fd;
struct loop_timer;

#define LOOP_IN	 1
#define LOOP_OUT 2
/* The other side has gone: for who waits for nothing else. */
#define LOOP_HUP 4

typedef void loop_fd_fn(void *arg, int fd, int events);
typedef void loop_timer_fn(void *arg);

struct loop *loop_new(void);
void loop_free(struct loop *loop); /* NULL is fine */

/* NULL: no memory.  events may be 0. */
struct loop_fd *loop_watch(struct loop *loop, int fd, int events,
			   loop_fd_fn *fn, void *arg);
void loop_change(struct loop_fd *watched, int events);
void loop_unwatch(struct loop_fd *watched); /* NULL is fine */

/* Once, after so many ms (monotonic).  To move or cancel one that has been called is
   an error of the caller's: forget it in fn. */
struct loop_timer *loop_after(struct loop *loop, uint32_t ms, loop_timer_fn *fn,
			      void *arg);
/* As if it were cancelled and set anew, for which there is always memory. */
void loop_move(struct loop_timer *timer, uint32_t ms);
void loop_cancel(struct loop_timer *timer); /* NULL is fine */

/* Once, at the end of this turn: for who must not call back now.  It is part of who
   waits, so that there is always memory for it; nothing but loop_soon_init() comes
   before it.  Again meanwhile is the same once. */
struct loop_soon {
	struct ki_list link;
	loop_timer_fn *fn;
	void *arg;
};

void loop_soon_init(struct loop_soon *soon, loop_timer_fn *fn, void *arg);
void loop_soon(struct loop *loop, struct loop_soon *soon);
void loop_soon_cancel(struct loop_soon *soon);

uint64_t loop_now_ns(const struct loop *loop); /* as of this turn */

/* For tests: time stands still as long as anything happens, and goes to what is due
   next, without waiting for it, when nothing does.  A busy machine is no slower then;
   nor does it wait for other threads. */
void loop_step(struct loop *loop);

/* Until loop_stop().  Not from what it calls. */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

#endif /* KIR_LOOP_H */
