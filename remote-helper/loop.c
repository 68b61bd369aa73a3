/* SPDX-License-Identifier: MIT */

/*
 * epoll, and a heap of timers.
 *
 *	turn   wait for descriptors until the first timer is due
 *	       call what is ready, then what is due, then what is to be soon
 *	       free what was removed meanwhile
 *
 * Removal     A callback may remove any descriptor, its own too, while events of
 *	       it are still to be gone through: what is removed is marked dead,
 *	       passed over, and freed at the end of the turn.
 * Reuse       A number may be closed and be another descriptor before its owner
 *	       says so.  `owners` knows who has a number now, so that a late
 *	       loop_unwatch() leaves the new one alone.
 * Starvation  A timer that is set by a timer is called in the next turn, even if
 *	       it is set for 0 ms; so is what is to be soon, of what is called so.
 */

#include "loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "sys/sys.h"

#define EVENTS_OF_A_TURN 64
#define NS_OF_MS	 1000000u

struct loop_fd {
	struct ki_list link; /* of all, or of the dead */
	struct loop *loop;
	int fd;
	int events;
	int is_dead;
	int is_in_epoll;
	loop_fd_fn *fn;
	void *arg;
};

struct loop_timer {
	struct loop *loop;
	size_t place; /* in the heap */
	uint64_t due_ns;
	uint64_t order; /* among those due at once */
	loop_timer_fn *fn;
	void *arg;
};

struct loop {
	int epoll;
	int is_running;
	int is_stopped;
	int is_stepped;
	uint64_t now_ns;
	uint64_t next_order;
	struct ki_list watched;
	struct ki_list dead;
	struct ki_list soon;
	struct loop_fd **owners; /* by number */
	size_t n_owners;
	struct loop_timer **heap;
	size_t n_timers, n_room;
};

static uint64_t clock_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

/* Now, which may be later than the turn. */
static uint64_t time_of(const struct loop *loop)
{
	return loop->is_stepped ? loop->now_ns : clock_ns();
}

struct loop *loop_new(void)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll < 0) {
		free(loop);
		return NULL;
	}
	ki_list_init(&loop->watched);
	ki_list_init(&loop->dead);
	ki_list_init(&loop->soon);
	loop->now_ns = clock_ns();
	return loop;
}

static void bury(struct ki_list *list)
{
	struct ki_list *link, *after;

	ki_list_for_each_safe (link, after, list) {
		ki_list_remove(link);
		free(ki_container(link, struct loop_fd, link));
	}
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	bury(&loop->watched);
	bury(&loop->dead);
	for (size_t i = 0; i < loop->n_timers; i++)
		free(loop->heap[i]);
	free(loop->heap);
	free(loop->owners);
	(void)close(loop->epoll);
	free(loop);
}

/* ---- Descriptors --------------------------------------------------------- */

static int own(struct loop *loop, struct loop_fd *watched)
{
	size_t n = (size_t)watched->fd + 1;
	struct loop_fd **owners;

	if (n > loop->n_owners) {
		n += n / 2 + 16;
		owners = realloc(loop->owners, n * sizeof(*owners));
		if (!owners)
			return 0;
		for (size_t i = loop->n_owners; i < n; i++)
			owners[i] = NULL;
		loop->owners = owners;
		loop->n_owners = n;
	}
	loop->owners[watched->fd] = watched;
	return 1;
}

static int is_owner(const struct loop_fd *watched)
{
	return watched->loop->owners[watched->fd] == watched;
}

/* What nobody waits for must not be in there: hang-ups are told in any case, and
   LOOP_HUP is no more than being in there. */
static int tell_epoll(struct loop_fd *watched)
{
	struct epoll_event event = { .data.ptr = watched };
	int is_in = watched->is_in_epoll;
	int operation = is_in ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (watched->events & LOOP_IN)
		event.events |= EPOLLIN;
	if (watched->events & LOOP_OUT)
		event.events |= EPOLLOUT;
	if (!watched->events) {
		if (!is_in)
			return 0;
		operation = EPOLL_CTL_DEL;
	}
	watched->is_in_epoll = watched->events != 0;
	return epoll_ctl(watched->loop->epoll, operation, watched->fd, &event);
}

struct loop_fd *loop_watch(struct loop *loop, int fd, int events,
			   loop_fd_fn *fn, void *arg)
{
	struct loop_fd *watched = calloc(1, sizeof(*watched));

	if (!watched)
		return NULL;
	*watched = (struct loop_fd){
		.loop = loop, .fd = fd, .events = events, .fn = fn, .arg = arg
	};
	if (!own(loop, watched) || tell_epoll(watched)) {
		if ((size_t)fd < loop->n_owners && is_owner(watched))
			loop->owners[fd] = NULL;
		free(watched);
		return NULL;
	}
	ki_list_append(&loop->watched, &watched->link);
	return watched;
}

void loop_change(struct loop_fd *watched, int events)
{
	if (events == watched->events || !is_owner(watched))
		return;
	watched->events = events;
	(void)tell_epoll(watched);
}

void loop_unwatch(struct loop_fd *watched)
{
	struct loop *loop;

	if (!watched)
		return;
	loop = watched->loop;
	if (is_owner(watched)) {
		watched->events = 0;
		(void)tell_epoll(watched);
		loop->owners[watched->fd] = NULL;
	}
	watched->is_dead = 1;
	ki_list_remove(&watched->link);
	ki_list_append(&loop->dead, &watched->link);
}

static void call_fd(struct loop_fd *watched, uint32_t happened)
{
	int events = 0;

	if (happened & (EPOLLIN | EPOLLHUP | EPOLLERR))
		events |= LOOP_IN;
	if (happened & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		events |= LOOP_OUT;
	if (happened & (EPOLLHUP | EPOLLERR))
		events |= LOOP_HUP;
	events &= watched->events;
	if (!watched->is_dead && events)
		watched->fn(watched->arg, watched->fd, events);
}

/* ---- Timers -------------------------------------------------------------- */

static int is_earlier(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns
				      : a->order < b->order;
}

static void set(struct loop *loop, size_t place, struct loop_timer *timer)
{
	loop->heap[place] = timer;
	timer->place = place;
}

static void sift_up(struct loop *loop, size_t place)
{
	struct loop_timer *timer = loop->heap[place];

	while (place && is_earlier(timer, loop->heap[(place - 1) / 2])) {
		set(loop, place, loop->heap[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	set(loop, place, timer);
}

static void sift_down(struct loop *loop, size_t place)
{
	struct loop_timer *timer = loop->heap[place];
	size_t child;

	while ((child = 2 * place + 1) < loop->n_timers) {
		if (child + 1 < loop->n_timers &&
		    is_earlier(loop->heap[child + 1], loop->heap[child]))
			child++;
		if (!is_earlier(loop->heap[child], timer))
			break;
		set(loop, place, loop->heap[child]);
		place = child;
	}
	set(loop, place, timer);
}

static void take_out(struct loop *loop, size_t place)
{
	struct loop_timer *last = loop->heap[--loop->n_timers];

	if (place == loop->n_timers)
		return;
	set(loop, place, last);
	sift_up(loop, place);
	sift_down(loop, last->place);
}

struct loop_timer *loop_after(struct loop *loop, uint32_t ms, loop_timer_fn *fn,
			      void *arg)
{
	struct loop_timer *timer = malloc(sizeof(*timer)), **heap;
	size_t n;

	if (!timer)
		return NULL;
	if (loop->n_timers == loop->n_room) {
		n = loop->n_room ? 2 * loop->n_room : 64;
		heap = realloc(loop->heap, n * sizeof(struct loop_timer *));
		if (!heap) {
			free(timer);
			return NULL;
		}
		loop->heap = heap;
		loop->n_room = n;
	}
	*timer = (struct loop_timer){ .loop = loop,
				      .due_ns = time_of(loop) +
						(uint64_t)ms * NS_OF_MS,
				      .order = loop->next_order++,
				      .fn = fn,
				      .arg = arg };
	set(loop, loop->n_timers++, timer);
	sift_up(loop, timer->place);
	return timer;
}

void loop_move(struct loop_timer *timer, uint32_t ms)
{
	struct loop *loop = timer->loop;

	timer->due_ns = time_of(loop) + (uint64_t)ms * NS_OF_MS;
	timer->order = loop->next_order++;
	sift_up(loop, timer->place);
	sift_down(loop, timer->place);
}

void loop_cancel(struct loop_timer *timer)
{
	if (!timer)
		return;
	take_out(timer->loop, timer->place);
	free(timer);
}

static void call_timers(struct loop *loop)
{
	uint64_t first_new = loop->next_order;
	struct loop_timer timer;

	while (loop->n_timers && !loop->is_stopped) {
		timer = *loop->heap[0];
		if (timer.due_ns > loop->now_ns || timer.order >= first_new)
			break;
		loop_cancel(loop->heap[0]);
		timer.fn(timer.arg);
	}
}

static int ms_to_wait(const struct loop *loop)
{
	uint64_t now_ns, ms;

	if (!ki_list_is_empty(&loop->soon))
		return 0;
	if (!loop->n_timers)
		return -1;
	now_ns = time_of(loop);
	if (loop->is_stepped || loop->heap[0]->due_ns <= now_ns)
		return 0;
	ms = (loop->heap[0]->due_ns - now_ns + NS_OF_MS - 1) / NS_OF_MS;
	return ms < 60000 ? (int)ms : 60000;
}

/* ---- Soon ---------------------------------------------------------------- */

void loop_soon_init(struct loop_soon *soon, loop_timer_fn *fn, void *arg)
{
	*soon = (struct loop_soon){ .fn = fn, .arg = arg };
	ki_list_init(&soon->link);
}

void loop_soon(struct loop *loop, struct loop_soon *soon)
{
	if (ki_list_is_empty(&soon->link))
		ki_list_append(&loop->soon, &soon->link);
}

void loop_soon_cancel(struct loop_soon *soon)
{
	ki_list_remove(&soon->link);
}

/* Whatever is before the mark. */
static void call_soon(struct loop *loop)
{
	struct ki_list mark;

	ki_list_append(&loop->soon, &mark);
	while (loop->soon.next != &mark && !loop->is_stopped) {
		struct loop_soon *soon =
			ki_container(loop->soon.next, struct loop_soon, link);

		ki_list_remove(&soon->link);
		soon->fn(soon->arg);
	}
	ki_list_remove(&mark);
}

/* ---- Turns --------------------------------------------------------------- */

uint64_t loop_now_ns(const struct loop *loop)
{
	return loop->now_ns;
}

void loop_step(struct loop *loop)
{
	loop->is_stepped = 1;
}

/* The time of this turn, which began with so many events. */
static uint64_t time_of_turn(const struct loop *loop, int n_events)
{
	if (!loop->is_stepped)
		return clock_ns();
	if (n_events || !loop->n_timers || !ki_list_is_empty(&loop->soon) ||
	    loop->heap[0]->due_ns < loop->now_ns)
		return loop->now_ns;
	return loop->heap[0]->due_ns;
}

static void turn(struct loop *loop, const struct epoll_event *events, int n)
{
	loop->now_ns = time_of_turn(loop, n);
	for (int i = 0; i < n && !loop->is_stopped; i++)
		call_fd(events[i].data.ptr, events[i].events);
	call_timers(loop);
	call_soon(loop);
	bury(&loop->dead);
}

int loop_run(struct loop *loop)
{
	struct epoll_event events[EVENTS_OF_A_TURN];
	int n, result = 0;

	/* call_soon() has a mark of its own among the others. */
	assert(!loop->is_running);
	loop->is_running = 1;
	loop->is_stopped = 0;
	while (!result && !loop->is_stopped) {
		n = epoll_wait(loop->epoll, events, EVENTS_OF_A_TURN,
			       ms_to_wait(loop));
		if (n < 0 && errno != EINTR)
			result = -errno;
		else
			turn(loop, events, n);
	}
	loop->is_running = 0;
	return result;
}

void loop_stop(struct loop *loop)
{
	loop->is_stopped = 1;
}
