/* SPDX-License-Identifier: MIT */

/*
 * The remote tier on a system whose calls fail one after another: a look-up brings
 * the value or nothing, and what comes after finds all as it was.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "fault/fault.h"
#include "remote/patience.h"
#include "remote/peer_test.h"
#include "remote/remote.h"

static struct ki_remote *open_at(const struct ki_sys *sys, const char *path,
				 int is_guest)
{
	const struct ki_remote_options options = { .sys = sys,
						   .socket = path,
						   .is_guest = is_guest };
	struct ki_remote *remote;

	assert_int_equal(ki_remote_open(&options, &remote), KILN_OK);
	return remote;
}

static struct kiln_key *key_of(unsigned number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "number", &number, sizeof(number));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

/* 1: the value; 0: none; nothing else there is. */
static int gets(struct ki_remote *remote, const struct kiln_key *key)
{
	struct kiln_tier *tier = ki_remote_tier(remote);
	struct kiln_blob *value, *metadata;
	enum kiln_status status = tier->ops->get(tier, key, &value, &metadata);

	if (status) {
		if (status != KILN_MISS && status != KILN_E_NO_MEMORY)
			abort();
		return 0;
	}
	if (kiln_blob_size(value) != 5 ||
	    memcmp(kiln_blob_data(value), "value", 5) != 0)
		abort();
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return 1;
}

static void do_all(struct ki_remote *remote, const struct kiln_key *key,
		   const struct kiln_key *other)
{
	struct kiln_tier *tier = ki_remote_tier(remote);
	struct kiln_tier_lock *lock;

	(void)gets(remote, key);
	(void)tier->ops->put(tier, other, NULL, 0, "value", 5, 0);
	if (!tier->ops->lock(tier, other, 1, &lock))
		tier->ops->unlock(tier, lock);
	(void)tier->ops->remove(tier, key);
	tier->ops->prefetch(tier, &key, 1);
	(void)gets(remote, key);
}

/* Descriptors of entries that were handed over, in this process. */
static unsigned count_memories(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++) {
		char path[64], target[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n += readlink(path, target, sizeof(target) - 1) > 0 &&
		     strstr(target, "memfd:kiln");
	}
	return n;
}

/* A connection that was not closed would keep the peer at it, and a descriptor that
   was not keeps this waiting. */
static void assert_nothing_is_left(struct peer *peer)
{
	const uint64_t end = ki_sys_posix.monotonic_ns(&ki_sys_posix) +
			     HARNESS_HANG_S * (uint64_t)1000000000;

	peer_settle(peer);
	while (count_memories() &&
	       ki_sys_posix.monotonic_ns(&ki_sys_posix) < end)
		ki_thread_yield();
	assert_int_equal(count_memories(), 0);
}

static void a_failing_call_costs_a_hit(void **state)
{
	static const int errors[] = { -EIO, -EMFILE, -ECONNRESET, FAULT_SHORT };
	struct kiln_key *key = key_of(1), *other = key_of(2);
	const struct ki_item_seal how = { 0 };
	struct fault fault;

	for (size_t i = 0; i < 2 * sizeof(errors) / sizeof(*errors); i++) {
		struct peer *peer = peer_new(NULL);
		unsigned n_all = 0;

		peer_add(peer, key, 0, "value", 5, &how);
		for (fault_begin(&fault, errors[i / 2]); fault_next(&fault);) {
			struct ki_remote *remote =
				open_at(&fault.sys, peer_path(peer), i % 2);

			ki_patience_forget(1);
			fault_arm(&fault);
			do_all(remote, key, other);
			fault_disarm(&fault);
			ki_remote_tier(remote)->ops->close(
				ki_remote_tier(remote));
			/* Who is answered came after all others. */
			remote = open_at(&ki_sys_posix, peer_path(peer), 0);
			ki_patience_forget(100);
			assert_true(gets(remote, key));
			ki_remote_tier(remote)->ops->close(
				ki_remote_tier(remote));
			assert_nothing_is_left(peer);
			n_all++;
		}
		assert_true(n_all > 10);
		peer_free(peer);
	}
	kiln_key_free(key);
	kiln_key_free(other);
}

static unsigned n_verdicts; /* that were sent */

/* The peer's allocations fail, too: what it reads of them is no measure. */
static ssize_t count_verdicts(const struct ki_sys *sys, int fd,
			      const void *data, size_t size, int fd_along)
{
	struct ki_frame frame;

	n_verdicts += size >= KI_FRAME_BYTES && !ki_frame_get(data, &frame) &&
		      frame.type == KI_FRAME_VERDICT;
	return ki_sys_posix.send(&ki_sys_posix, fd, data, size, fd_along);
}

static void a_failing_allocation_costs_a_hit(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct kiln_key *key = key_of(1);
	const struct ki_item_seal how = { .zstd_level = 1 };
	struct peer *peer = peer_new(NULL);
	struct fault fault;
	unsigned n_hits = 0;

	peer_add(peer, key, 0, "value", 5, &how);
	sys.send = count_verdicts;
	for (fault_begin(&fault, -ENOMEM); fault_next(&fault);) {
		struct ki_remote *remote = open_at(&sys, peer_path(peer), 0);

		ki_patience_forget(1);
		fault_arm(&fault);
		n_hits += (unsigned)gets(remote, key);
		fault_disarm(&fault);
		ki_remote_tier(remote)->ops->close(ki_remote_tier(remote));
		peer_settle(peer);
	}
	assert_true(n_hits > 0);
	/* What was found of it is told from the stack. */
	assert_int_equal(n_verdicts, n_hits);
	peer_free(peer);
	kiln_key_free(key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failing_call_costs_a_hit),
		cmocka_unit_test(a_failing_allocation_costs_a_hit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
