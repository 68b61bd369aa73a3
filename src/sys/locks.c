/* SPDX-License-Identifier: MIT */

/*
 * File locks that are waited for, and what a fork does to them.
 *
 * An open-file-description lock lives until the last descriptor of its open
 * file is closed, a forked child's copy included: if the parent is killed, the
 * child would keep the lock for ever (measured).  So every descriptor that
 * may hold one is registered, and the child closes all of them first thing.
 */

#include "sys/sys.h"

#include <errno.h>
#include <unistd.h>

#define POLL_NS_MIN 1000000u
#define POLL_NS_MAX 50000000u

/* 0, or -ETIMEDOUT when there is no time left for another try. */
static int pause_until(const struct ki_sys *sys, uint64_t deadline_ns,
		       uint64_t *pause)
{
	uint64_t now = deadline_ns ? sys->monotonic_ns(sys) : 0;

	if (now >= deadline_ns)
		return -ETIMEDOUT;
	if (*pause > deadline_ns - now)
		*pause = deadline_ns - now;
	sys->sleep_ns(sys, *pause);
	*pause = *pause * 2 < POLL_NS_MAX ? *pause * 2 : POLL_NS_MAX;
	return 0;
}

int ki_lock_until(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
		  uint64_t offset, uint64_t size, uint64_t deadline_ns)
{
	uint64_t pause = POLL_NS_MIN;

	for (;;) {
		int err = sys->try_lock(sys, fd, kind, offset, size);

		if (err != -EAGAIN)
			return err;
		err = pause_until(sys, deadline_ns, &pause);
		if (err)
			return err;
	}
}

int ki_flock_until(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
		   uint64_t deadline_ns)
{
	uint64_t pause = POLL_NS_MIN;

	for (;;) {
		int err = sys->try_flock(sys, fd, kind);

		if (err != -EAGAIN)
			return err;
		err = pause_until(sys, deadline_ns, &pause);
		if (err)
			return err;
	}
}

/* ---- Fork ------------------------------------------------------------------ */

_Atomic uint64_t ki_fork_counter = 1;

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct ki_fork_close *registered;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
	pthread_mutex_lock(&registry);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&registry);
}

static void after_fork_in_child(void)
{
	struct ki_fork_close *place;

	for (place = registered; place; place = place->next)
		close(place->fd);
	registered = NULL;
	ki_fork_counter++;
	pthread_mutex_unlock(&registry);
}

static void install(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

uint64_t ki_fork_generation(void)
{
	pthread_once(&once, install);
	return ki_fork_counter;
}

void ki_fork_close_add(struct ki_fork_close *place, int fd)
{
	pthread_once(&once, install);
	pthread_mutex_lock(&registry);
	place->fd = fd;
	place->next = registered;
	place->link = &registered;
	if (registered)
		registered->link = &place->next;
	registered = place;
	pthread_mutex_unlock(&registry);
}

void ki_fork_close_remove(struct ki_fork_close *place)
{
	pthread_mutex_lock(&registry);
	*place->link = place->next;
	if (place->next)
		place->next->link = place->link;
	pthread_mutex_unlock(&registry);
}
