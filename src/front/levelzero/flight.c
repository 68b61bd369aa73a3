/* SPDX-License-Identifier: MIT */

/*
 * One build of a key at a time in this process.
 *
 *	begins ---> looked up ---> built ---> fetched ---> put ---> over
 *	               | found                                       ^
 *	               +---------------------------------------------+
 *
 * Whoever comes meanwhile waits until it is over, then looks once, and builds if
 * there still is nothing: what fails, or cannot be kept, is nobody else's to
 * wait for again.  No flight begins where nothing will be kept, nor at exit,
 * which ends all waiting.
 *
 * Only threads wait for each other.  Among processes a lock would have to be
 * held, its descriptor open, after the program's call has returned.
 */

#include "front/levelzero/ze.h"

#include <stdlib.h>
#include <string.h>

#define MS ((uint64_t)1000 * 1000)

struct ki_ze_flight {
	struct ki_list link;
	uint64_t serial; /* memory comes again, this does not */
	uint8_t digest[KILN_DIGEST_BYTES];
};

/* Under ki_ze_lock. */
static struct ki_list flights;
static struct ki_cond over;
static uint64_t n_begun;
static int is_closed;

static const struct ki_ze_flight *find_locked(const uint8_t *digest)
	KI_REQUIRES(&ki_ze_lock)
{
	const struct ki_ze_flight *flight;
	struct ki_list *link;

	ki_list_for_each (link, &flights) {
		flight = ki_container(link, struct ki_ze_flight, link);
		if (!memcmp(flight->digest, digest, KILN_DIGEST_BYTES))
			return flight;
	}
	return NULL;
}

/* Whether there was one to wait for. */
static int wait_locked(const uint8_t *digest, uint64_t deadline)
	KI_REQUIRES(&ki_ze_lock)
{
	const struct ki_ze_flight *flight = find_locked(digest);
	uint64_t serial = flight ? flight->serial : 0;
	int had_one = flight != NULL;

	while (flight && flight->serial == serial && !is_closed &&
	       !ki_cond_wait_until(&over, &ki_ze_lock, deadline))
		flight = find_locked(digest);
	return had_one;
}

struct ki_ze_flight *ki_ze_flight_begin(const struct ki_guest *guest,
					const struct kiln_key *key)
{
	struct ki_ze_flight *flight;
	uint64_t deadline;

	if (!ki_ze_captures(guest))
		return NULL;
	flight = malloc(sizeof(*flight));
	if (!flight)
		return NULL;
	deadline =
		ki_sys_posix.monotonic_ns(&ki_sys_posix) +
		kiln_config_number(guest->config, KILN_SET_LOCK_TIMEOUT) * MS;
	memcpy(flight->digest, kiln_key_digest(key), KILN_DIGEST_BYTES);
	ki_mutex_lock(&ki_ze_lock);
	if (!wait_locked(flight->digest, deadline) && !is_closed) {
		flight->serial = ++n_begun;
		ki_list_append(&flights, &flight->link);
		ki_mutex_unlock(&ki_ze_lock);
		return flight;
	}
	ki_mutex_unlock(&ki_ze_lock);
	free(flight);
	return NULL;
}

void ki_ze_flight_end(struct ki_ze_flight *flight)
{
	if (!flight)
		return;
	ki_mutex_lock(&ki_ze_lock);
	ki_list_remove(&flight->link);
	ki_cond_signal_all(&over);
	ki_mutex_unlock(&ki_ze_lock);
	free(flight);
}

void ki_ze_flights_close_locked(void)
{
	is_closed = 1;
	ki_cond_signal_all(&over);
}

void ki_ze_flights_init(void)
{
	ki_list_init(&flights);
	ki_cond_init(&over);
}
