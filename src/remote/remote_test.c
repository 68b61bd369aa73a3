/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "remote/connection.h"
#include "remote/patience.h"
#include "remote/peer_test.h"
#include "remote/remote.h"

#define S_NS ((uint64_t)1000000000)

#define NS_OF_S ((uint64_t)1000000000)
#define PATIENT 100

static _Atomic uint64_t counters[KILN_N_COUNTERS];

static void count(void *arg, enum kiln_counter counter, uint64_t n)
{
	counters[counter] += n;
}

static int forget(void **state)
{
	for (size_t i = 0; i < KILN_N_COUNTERS; i++)
		counters[i] = 0;
	ki_patience_forget(PATIENT);
	return 0;
}

static struct ki_remote *open_at(const char *path, int is_guest)
{
	const struct ki_remote_options options = {
		.sys = &ki_sys_posix,
		.socket = path,
		.is_guest = is_guest,
		.count = count,
	};
	struct ki_remote *remote;

	assert_int_equal(ki_remote_open(&options, &remote), KILN_OK);
	return remote;
}

static void close_of(struct ki_remote *remote)
{
	ki_remote_tier(remote)->ops->close(ki_remote_tier(remote));
}

static struct kiln_key *key_of(unsigned number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "number", &number, sizeof(number));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

/* A look-up, and whether it brought what was put. */
static enum kiln_status get(struct ki_remote *remote,
			    const struct kiln_key *key, const char *expected)
{
	struct kiln_tier *tier = ki_remote_tier(remote);
	struct kiln_blob *value, *metadata;
	enum kiln_status status = tier->ops->get(tier, key, &value, &metadata);

	if (status)
		return status;
	if (kiln_blob_size(value) != strlen(expected) ||
	    memcmp(kiln_blob_data(value), expected, strlen(expected)) != 0)
		abort();
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return KILN_OK;
}

static enum kiln_status put(struct ki_remote *remote,
			    const struct kiln_key *key, const char *value,
			    unsigned flags)
{
	struct kiln_tier *tier = ki_remote_tier(remote);

	return tier->ops->put(tier, key, NULL, 0, value, strlen(value), flags);
}

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

/* ---- What it is for --------------------------------------------------------- */

static void what_one_puts_another_gets(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct kiln_key *key = key_of(1), *other = key_of(2);

	for (int is_guest = 0; is_guest < 2; is_guest++) {
		struct ki_remote *one = open_at(peer_path(peer), is_guest);
		struct ki_remote *two = open_at(peer_path(peer), is_guest);

		peer_drop_all(peer);
		assert_int_equal(get(one, key, ""), KILN_MISS);
		assert_int_equal(put(one, key, "value", KILN_PUT_REPLACE),
				 KILN_OK);
		peer_await(peer, KI_FRAME_PUT, 1 + (unsigned)is_guest);
		assert_int_equal(peer_put_flags(peer), KI_REMOTE_PUT_REPLACE);
		assert_int_equal(get(two, key, "value"), KILN_OK);
		peer_await(peer, KI_FRAME_VERDICT, 1 + (unsigned)is_guest);
		assert_int_equal(peer_verdict(peer), 1);
		assert_int_equal(get(two, other, ""), KILN_MISS);
		close_of(one);
		close_of(two);
	}
	assert_int_equal(counters[KILN_COUNT_REMOTE_ABSENT], 4);
	assert_int_equal(counters[KILN_COUNT_REMOTE_PUTS], 2);
	kiln_key_free(key);
	kiln_key_free(other);
	peer_free(peer);
}

/* A helper that knows no bits sends 0, and one may come that sends more. */
static void what_is_good_is_said_where_it_changes_anything(void **state)
{
	static const struct {
		uint32_t bits;
		enum peer_manner manner;
		unsigned n_verdicts;
	} rows[] = {
		{ 0, PEER_GOOD, 1 },
		{ 0, PEER_OTHERS_ITEM, 1 },
		{ KI_REMOTE_ITEM_NO_VERDICT, PEER_GOOD, 0 },
		{ KI_REMOTE_ITEM_NO_VERDICT, PEER_OTHERS_ITEM, 1 },
		{ ~KI_REMOTE_ITEM_NO_VERDICT, PEER_GOOD, 1 },
		{ UINT32_MAX, PEER_GOOD, 0 },
	};
	struct kiln_key *key = key_of(1), *other = key_of(2);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct peer *peer = peer_new(NULL);
		struct ki_remote *remote = open_at(peer_path(peer), 0);
		const int is_good = rows[i].manner == PEER_GOOD;

		peer_add(peer, key, 0, "value", 5, &(struct ki_item_seal){ 0 });
		peer_add(peer, other, 0, "other", 5,
			 &(struct ki_item_seal){ 0 });
		peer_say_of_items(peer, rows[i].bits);
		peer_behave(peer, rows[i].manner);
		assert_int_equal(get(remote, key, "value"),
				 is_good ? KILN_OK : KILN_MISS);
		/* What was said before has come when this has. */
		assert_int_equal(put(remote, key, "value", 0), KILN_OK);
		peer_await(peer, KI_FRAME_PUT, 1);
		assert_int_equal(peer_count(peer, KI_FRAME_VERDICT),
				 rows[i].n_verdicts);
		if (rows[i].n_verdicts)
			assert_int_equal(peer_verdict(peer), is_good);
		close_of(remote);
		peer_free(peer);
	}
	kiln_key_free(key);
	kiln_key_free(other);
}

static void what_is_local_or_bookkeeping_does_not_leave(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_tier *tier = ki_remote_tier(remote);
	struct kiln_key *key = key_of(1), *local = kiln_key_new();
	struct kiln_metadata *hidden = kiln_metadata_new();
	const void *bytes;
	size_t size;

	kiln_key_add_local(local, "home", "/home", 5);
	assert_int_equal(kiln_key_finish(local), KILN_OK);
	kiln_metadata_add_u64(hidden, KILN_META_FLAGS, KILN_ENTRY_HIDDEN);
	assert_int_equal(kiln_metadata_bytes(hidden, &bytes, &size), KILN_OK);

	assert_int_equal(put(remote, local, "value", 0), KILN_E_INVALID);
	assert_int_equal(get(remote, local, ""), KILN_MISS);
	assert_int_equal(tier->ops->put(tier, key, bytes, size, "value", 5, 0),
			 KILN_E_INVALID);
	assert_int_equal(peer_connections(peer), 0);
	assert_int_equal(ki_remote_put_order(remote, key, "order", 5), KILN_OK);
	peer_await(peer, KI_FRAME_PUT, 1);
	assert_int_equal(get(remote, key, "order"), KILN_OK);
	kiln_metadata_free(hidden);
	kiln_key_free(key);
	kiln_key_free(local);
	close_of(remote);
	peer_free(peer);
}

static unsigned count_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void a_guest_keeps_no_descriptor(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct kiln_key *key = key_of(1);
	struct ki_remote *guest = open_at(peer_path(peer), 1);
	struct kiln_tier_lock *lock;

	peer_add(peer, key, 0, "value", 5, &(struct ki_item_seal){ 0 });
	for (unsigned i = 1; i <= 3; i++) {
		const unsigned before =
			count_descriptors() - peer_connections(peer);

		assert_int_equal(get(guest, key, "value"), KILN_OK);
		assert_int_equal(put(guest, key, "value", 0), KILN_OK);
		peer_await(peer, KI_FRAME_PUT, i);
		/* The peer's own ends are all still there. */
		assert_int_equal(count_descriptors() - peer_connections(peer),
				 before);
	}
	assert_int_equal(peer_connections(peer), 6);
	assert_int_equal(ki_remote_tier(guest)->ops->lock(ki_remote_tier(guest),
							  key, 10, &lock),
			 KILN_E_UNSUPPORTED);
	kiln_key_free(key);
	close_of(guest);
	peer_free(peer);
}

/* ---- Helpers that are none ---------------------------------------------------- */

static void no_helper_costs_a_hit_and_no_more(void **state)
{
	/* What a good answer is worth to each, and what is then asked of a good
	   one by the same client.  But for those that say nothing more it is not
	   time that ends it, which may be over before such a thing is said. */
	static const struct {
		enum peer_manner manner;
		enum kiln_status status;
		int is_silent;
	} rows[] = {
		{ PEER_GOOD, KILN_OK },
		{ PEER_DEAF, KILN_MISS, 1 },
		{ PEER_MUTE, KILN_MISS, 1 },
		{ PEER_WRONG_ID, KILN_MISS },
		{ PEER_OLD_ID, KILN_OK },
		{ PEER_WRONG_TYPE, KILN_MISS },
		{ PEER_TOO_LONG, KILN_MISS },
		{ PEER_HUGE, KILN_MISS, 1 },
		{ PEER_ENDLESS, KILN_MISS },
		{ PEER_GARBAGE, KILN_MISS },
		{ PEER_NO_HELLO, KILN_MISS },
		{ PEER_TWO_HELLOS, KILN_MISS },
		{ PEER_OTHER_MAGIC, KILN_MISS },
		{ PEER_NEWER, KILN_MISS },
		{ PEER_HANGS_UP, KILN_MISS },
		{ PEER_HANGS_UP_AT_ONCE, KILN_MISS },
		{ PEER_HALF_HEAD, KILN_MISS },
		{ PEER_HALF_BODY, KILN_MISS },
		{ PEER_OTHERS_ITEM, KILN_MISS },
		{ PEER_CUT_ITEM, KILN_MISS },
	};
	struct kiln_key *key = key_of(1), *other = key_of(2);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (int is_guest = 0; is_guest < 2; is_guest++) {
			struct peer *peer = peer_new(NULL);
			struct ki_remote *remote =
				open_at(peer_path(peer), is_guest);
			const struct ki_item_seal how = { 0 };
			uint64_t start = now_ns();

			ki_patience_forget(rows[i].is_silent ? 1 : PATIENT);
			peer_add(peer, key, 0, "value", 5, &how);
			peer_add(peer, other, 0, "other", 5, &how);
			peer_behave(peer, rows[i].manner);
			assert_int_equal(get(remote, key, "value"),
					 rows[i].status);
			assert_true(now_ns() - start <
				    PATIENT * KI_PATIENCE_NS_MAX);
			/* What may be in vain need not be so for long. */
			ki_patience_forget(rows[i].manner == PEER_DEAF ||
							   rows[i].manner ==
								   PEER_HUGE
						   ? 1
						   : PATIENT);
			peer_behave(peer, PEER_GOOD);
			/* One that never greeted may be asked once more in
			   vain, on the connection that there is. */
			if (get(remote, key, "value"))
				assert_true(rows[i].manner == PEER_DEAF ||
					    rows[i].manner == PEER_HUGE ||
					    rows[i].manner == PEER_NO_HELLO ||
					    rows[i].manner ==
						    PEER_HANGS_UP_AT_ONCE);
			close_of(remote);
			peer_free(peer);
		}
	}
	kiln_key_free(key);
	kiln_key_free(other);
}

/* Of addresses, not of memory that was touched: that is what runs out under a limit. */
static size_t count_pages(void)
{
	size_t size;
	char *text = harness_read("/proc/self/statm", &size);
	size_t n;

	assert_non_null(text);
	n = strtoul(text, NULL, 10);
	free(text);
	return n;
}

static void what_is_only_announced_takes_no_room(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_key *key = key_of(1);
	const size_t few = ((size_t)512 << 20) / (size_t)getpagesize();
	size_t before;

	assert_int_equal(get(remote, key, ""), KILN_MISS);
	before = count_pages();
	peer_behave(peer, PEER_HUGE);
	ki_patience_forget(1);
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	assert_true(count_pages() < before + few);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

static void what_is_large_comes_whole(void **state)
{
	enum { SIZE = 3000001 };
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_key *key = key_of(1);
	char *value = malloc(SIZE + 1);

	assert_non_null(value);
	for (size_t i = 0; i < SIZE; i++)
		value[i] = (char)('a' + i * 31 % 23);
	value[SIZE] = '\0';
	peer_add(peer, key, 0, value, SIZE, &(struct ki_item_seal){ 0 });
	assert_int_equal(get(remote, key, value), KILN_OK);
	free(value);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

static void a_socket_that_is_none_is_a_miss_at_once(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "place");
	struct kiln_key *key = key_of(1);

	for (unsigned i = 0; i < 5; i++) {
		struct ki_remote *remote = open_at(path, 0);
		uint64_t start;

		if (i == 1)
			harness_write(path, "file", 4);
		else if (i == 2)
			assert_int_equal(mkfifo(path, 0600), 0);
		else if (i == 3)
			assert_int_equal(mkdir(path, 0700), 0);
		else if (i == 4)
			assert_int_equal(symlink("place", path), 0);
		start = now_ns();
		for (unsigned n = 0; n < 1000; n++) {
			assert_int_equal(get(remote, key, ""), KILN_MISS);
			assert_true(put(remote, key, "value", 0) < 0);
		}
		/* 0.1 ms at most for each, and ten times that on a machine that
		   has other things to do. */
		assert_true(now_ns() - start < NS_OF_S * 2);
		close_of(remote);
		if (i && i != 3)
			unlink(path);
		else if (i)
			rmdir(path);
	}
	kiln_key_free(key);
	free(path);
	free(directory);
}

/* As root, a socket can be given to somebody else. */
static void a_socket_of_another_user_is_not_spoken_to(void **state)
{
	struct peer *peer;
	struct ki_remote *remote;
	struct kiln_key *key;
	int status;
	pid_t child;

	if (geteuid())
		HARNESS_LEAVE_OUT("needs root");
	if (!HARNESS_FORKS_AMONG_THREADS)
		HARNESS_LEAVE_OUT("forks among threads");
	peer = peer_new(NULL);
	key = key_of(1);
	peer_add(peer, key, 0, "value", 5, &(struct ki_item_seal){ 0 });
	child = fork();
	if (!child) {
		/* The listener's credentials are root's: so we are another. */
		char *folder = strdup(peer_path(peer));

		*strrchr(folder, '/') = '\0';
		if (chmod(peer_path(peer), 0777) || chmod(folder, 0755) ||
		    setresuid(12345, 12345, 12345))
			_exit(2);
		remote = open_at(peer_path(peer), 0);
		_exit(get(remote, key, "") == KILN_MISS ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(peer_count(peer, KI_FRAME_HELLO), 0);
	kiln_key_free(key);
	peer_free(peer);
}

static void a_helper_that_comes_back_is_found(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "peer.sock");
	struct ki_remote *remote = open_at(path, 0);
	struct kiln_key *key = key_of(1);
	const struct ki_item_seal how = { 0 };

	for (unsigned i = 0; i < 3; i++) {
		struct peer *peer = peer_new(path);

		peer_add(peer, key, 0, "value", 5, &how);
		/* The first may meet the dead one's end. */
		if (get(remote, key, "value"))
			assert_int_equal(get(remote, key, "value"), KILN_OK);
		peer_free(peer);
	}
	kiln_key_free(key);
	close_of(remote);
	free(path);
	free(directory);
}

/* ---- Patience --------------------------------------------------------------- */

static void who_fails_three_times_is_left_alone(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_key *key = key_of(1);
	unsigned n;

	peer_behave(peer, PEER_HANGS_UP);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(get(remote, key, ""), KILN_MISS);
	n = peer_connections(peer);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(get(remote, key, ""), KILN_MISS);
	assert_int_equal(peer_connections(peer), n);
	assert_int_equal(counters[KILN_COUNT_REMOTE_FAULTS], 3);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

static void who_says_later_is_asked_later(void **state)
{
	struct kiln_key *key = key_of(1);

	/* In an answer, and in a greeting. */
	for (int is_greeting = 0; is_greeting < 2; is_greeting++) {
		struct peer *peer = peer_new(NULL);
		struct ki_remote *remote = open_at(peer_path(peer), 0);
		unsigned n;

		if (is_greeting)
			peer_can(peer, 0, 60000);
		else
			peer_behave(peer, PEER_QUIET);
		assert_int_equal(get(remote, key, ""), KILN_MISS);
		n = peer_count(peer, KI_FRAME_GET);
		assert_int_equal(get(remote, key, ""), KILN_MISS);
		assert_int_equal(peer_count(peer, KI_FRAME_GET), n);
		close_of(remote);
		peer_free(peer);
	}
	kiln_key_free(key);
}

static void a_look_up_waits_half_of_a_build(void **state)
{
	static const struct {
		unsigned n_builds;
		uint64_t build_ms;
		uint32_t wait_ms;
	} rows[] = {
		{ 0, 0, 100 },	  { 4, 10, 100 }, { 5, 10, 5 },
		{ 5, 1000, 100 }, { 5, 0, 0 },
	};
	struct kiln_key *key = key_of(1);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct peer *peer = peer_new(NULL);
		struct ki_remote *remote = open_at(peer_path(peer), 0);

		ki_patience_forget(1);
		for (unsigned n = 0; n < rows[i].n_builds; n++)
			ki_remote_note_build(remote,
					     rows[i].build_ms * 1000000);
		assert_int_equal(get(remote, key, ""), KILN_MISS);
		peer_await(peer, KI_FRAME_GET, 1);
		/* What went by until it was sent is taken off. */
		assert_in_range(peer_wait_ms(peer), rows[i].wait_ms / 4,
				rows[i].wait_ms);
		close_of(remote);
		peer_free(peer);
	}
	kiln_key_free(key);
}

static uint64_t stale_until_ns;

/* Answers to the first request, one behind another, without end. */
static ssize_t receive_stale(const struct ki_sys *sys, int fd, void *data,
			     size_t size)
{
	const struct ki_frame stale = { .size = KI_FRAME_MISS_BYTES,
					.type = KI_FRAME_MISS,
					.id = 1 };
	const size_t each = KI_FRAME_BYTES + KI_FRAME_MISS_BYTES;
	size_t n = 0;

	if (now_ns() >= stale_until_ns)
		return ki_sys_posix.recv(&ki_sys_posix, fd, data, size);
	for (; n + each <= size; n += each) {
		ki_frame_put((uint8_t *)data + n, &stale);
		memset((uint8_t *)data + n + KI_FRAME_BYTES, 0,
		       KI_FRAME_MISS_BYTES);
	}
	return (ssize_t)n;
}

/* A socket is not read slower than it is filled on every machine: hence this. */
static void answers_that_nobody_waits_for_keep_nobody(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_sys sys = ki_sys_posix;
	const struct ki_remote_options options = { .sys = &sys,
						   .socket = peer_path(peer) };
	struct kiln_key *key = key_of(1);
	struct ki_remote *remote;
	uint64_t start;

	sys.recv = receive_stale;
	assert_int_equal(ki_remote_open(&options, &remote), KILN_OK);
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	ki_patience_forget(1);
	start = now_ns();
	stale_until_ns = start + 4 * NS_OF_S;
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	assert_true(now_ns() - start < 2 * NS_OF_S);
	stale_until_ns = 0;
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

static void what_is_waited_in_vain_has_an_end(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_key *key = key_of(1);

	ki_patience_forget(1);
	ki_patience_spend(KI_PATIENCE_VAIN_NS - 10000000);
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	peer_await(peer, KI_FRAME_GET, 1);
	assert_in_range(peer_wait_ms(peer), 0, 10);
	ki_patience_spend(10000000);
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	peer_await(peer, KI_FRAME_GET, 2);
	assert_int_equal(peer_wait_ms(peer), 0);
	/* What is at hand is taken: 5 ms are enough, or a hundred times that. */
	ki_patience_forget(PATIENT);
	ki_patience_spend(KI_PATIENCE_VAIN_NS);
	peer_add(peer, key, 0, "value", 5, &(struct ki_item_seal){ 0 });
	assert_int_equal(get(remote, key, "value"), KILN_OK);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

/* What another machine has put there may take longer than a look-up, and in vain it is
   no less in vain. */
static void what_is_known_to_be_there_is_waited_for_within_that_end(
	void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_key *key = key_of(1);
	struct kiln_blob *value, *metadata;

	ki_patience_forget(1);
	for (unsigned i = 0; i < 5; i++)
		ki_remote_note_build(remote, 2000000);
	ki_patience_spend(KI_PATIENCE_VAIN_NS - 200000000);
	assert_int_equal(
		ki_remote_get_patiently(remote, key, 2000, &value, &metadata),
		KILN_MISS);
	assert_in_range(peer_wait_ms(peer), 2, 200); /* half a build: 1 */
	/* Without an answer it is all gone. */
	peer_behave(peer, PEER_MUTE);
	assert_int_equal(
		ki_remote_get_patiently(remote, key, 2000, &value, &metadata),
		KILN_MISS);
	peer_behave(peer, PEER_GOOD);
	assert_int_equal(
		ki_remote_get_patiently(remote, key, 2000, &value, &metadata),
		KILN_MISS);
	peer_await(peer, KI_FRAME_GET, 3);
	assert_int_equal(peer_wait_ms(peer), 0);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

static void a_late_answer_is_dropped_and_the_next_is_its_own(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_key *key = key_of(1), *other = key_of(2);
	const struct ki_item_seal how = { 0 };

	peer_add(peer, key, 0, "value", 5, &how);
	peer_add(peer, other, 0, "other", 5, &how);
	for (unsigned i = 0; i < 5; i++)
		ki_remote_note_build(remote, 20000000); /* 10 ms */
	ki_patience_forget(1);
	peer_behave(peer, PEER_LATE);
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	ki_patience_forget(PATIENT);
	assert_int_equal(counters[KILN_COUNT_REMOTE_LATE], 1);
	peer_behave(peer, PEER_GOOD);
	peer_await(peer, KI_FRAME_GET, 1);
	assert_int_equal(get(remote, other, "other"), KILN_OK);
	assert_int_equal(peer_connections(peer), 1);
	kiln_key_free(key);
	kiln_key_free(other);
	close_of(remote);
	peer_free(peer);
}

/* ---- Threads ---------------------------------------------------------------- */

#define N_THREADS 8
#define N_KEYS	  64

struct crowd {
	struct ki_remote *remote;
	struct kiln_key *keys[N_KEYS];
};

static int ask_for_all(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	unsigned n_wrong = 0;
	char expected[16];

	for (unsigned round = 0; round < 4; round++)
		for (unsigned i = 0; i < N_KEYS; i++) {
			unsigned k = (i * 7 + index * 11) % N_KEYS;

			snprintf(expected, sizeof(expected), "value %u", k);
			n_wrong += get(crowd->remote, crowd->keys[k],
				       expected) != KILN_OK;
		}
	return (int)n_wrong;
}

static void threads_get_each_its_own_by_one_connection(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct crowd crowd = { .remote = open_at(peer_path(peer), 0) };
	char value[16];

	for (unsigned i = 0; i < N_KEYS; i++) {
		crowd.keys[i] = key_of(i);
		snprintf(value, sizeof(value), "value %u", i);
		peer_add(peer, crowd.keys[i], 0, value, strlen(value),
			 &(struct ki_item_seal){ 0 });
	}
	assert_int_equal(harness_threads(N_THREADS, ask_for_all, &crowd), 0);
	assert_int_equal(peer_connections(peer), 1);
	for (unsigned i = 0; i < N_KEYS; i++)
		kiln_key_free(crowd.keys[i]);
	close_of(crowd.remote);
	peer_free(peer);
}

/* ---- Leases ----------------------------------------------------------------- */

static void a_lease_is_ones_and_ends_with_its_connection(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *one = open_at(peer_path(peer), 0);
	struct ki_remote *two = open_at(peer_path(peer), 0);
	struct kiln_tier *a = ki_remote_tier(one), *b = ki_remote_tier(two);
	struct kiln_key *key = key_of(1);
	struct kiln_tier_lock *mine, *his;

	assert_int_equal(a->ops->lock(a, key, 10, &mine), KILN_OK);
	assert_int_equal(b->ops->lock(b, key, 10, &his), KILN_E_TIMEOUT);
	a->ops->unlock(a, mine);
	peer_await(peer, KI_FRAME_UNLEASE, 1);
	assert_int_equal(b->ops->lock(b, key, 10, &his), KILN_OK);
	assert_int_equal(put(two, key, "value", 0), KILN_OK);
	b->ops->unlock(b, his);
	peer_await(peer, KI_FRAME_UNLEASE, 2);
	assert_int_equal(a->ops->lock(a, key, 10, &mine), KILN_EXISTS);
	kiln_key_free(key);
	close_of(one);
	close_of(two);
	peer_free(peer);
}

/* A server that answers slowly must not cost more than what it saves. */
static void leases_that_cost_more_than_half_a_build_are_not_asked_for(
	void **state)
{
	static const struct {
		uint64_t build_ns;
		enum kiln_status second;
		unsigned n_asked;
	} rows[] = {
		{ 10, KILN_E_UNSUPPORTED, 1 },
		{ 600 * S_NS, KILN_OK, 2 },
	};
	struct kiln_key *key = key_of(1);

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct peer *peer = peer_new(NULL);
		struct ki_remote *remote = open_at(peer_path(peer), 0);
		struct kiln_tier *tier = ki_remote_tier(remote);
		struct kiln_tier_lock *lock;

		for (unsigned n = 0; n < 5; n++)
			ki_remote_note_build(remote, rows[i].build_ns);
		assert_int_equal(tier->ops->lock(tier, key, 10, &lock),
				 KILN_OK);
		tier->ops->unlock(tier, lock);
		peer_await(peer, KI_FRAME_UNLEASE, 1);
		assert_int_equal(tier->ops->lock(tier, key, 10, &lock),
				 rows[i].second);
		if (!rows[i].second)
			tier->ops->unlock(tier, lock);
		assert_int_equal(peer_count(peer, KI_FRAME_LEASE),
				 rows[i].n_asked);
		close_of(remote);
		peer_free(peer);
	}
	kiln_key_free(key);
}

/* Nobody waits for it any more, and so nobody would ever give it back. */
static void a_lease_that_is_granted_too_late_is_given_back(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_remote *one = open_at(peer_path(peer), 0);
	struct ki_remote *two = open_at(peer_path(peer), 0);
	struct kiln_tier *a = ki_remote_tier(one), *b = ki_remote_tier(two);
	struct kiln_key *key = key_of(1);
	struct kiln_tier_lock *lock;

	ki_patience_forget(1);
	peer_behave(peer, PEER_LATE_LEASED);
	assert_int_equal(a->ops->lock(a, key, 1000, &lock), KILN_E_UNSUPPORTED);
	peer_behave(peer, PEER_GOOD);
	peer_await(peer, KI_FRAME_UNLEASE, 1);
	ki_patience_forget(PATIENT);
	assert_int_equal(b->ops->lock(b, key, 10, &lock), KILN_OK);
	b->ops->unlock(b, lock);
	/* What was late is dropped, and no breach. */
	assert_int_equal(get(one, key, ""), KILN_MISS);
	assert_int_equal(counters[KILN_COUNT_REMOTE_ABSENT], 1);
	assert_int_equal(peer_connections(peer), 2);
	kiln_key_free(key);
	close_of(one);
	close_of(two);
	peer_free(peer);
}

/* ---- fork() ------------------------------------------------------------------ */

static void a_child_has_no_connection(void **state)
{
	struct peer *peer;
	struct ki_remote *remote;
	struct kiln_key *key;
	int status;
	pid_t child;

	if (!HARNESS_FORKS_AMONG_THREADS)
		HARNESS_LEAVE_OUT("forks among threads");
	peer = peer_new(NULL);
	remote = open_at(peer_path(peer), 0);
	key = key_of(1);
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	child = fork();
	if (!child) {
		close_of(remote);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent's is what it was. */
	peer_add(peer, key, 0, "value", 5, &(struct ki_item_seal){ 0 });
	assert_int_equal(get(remote, key, "value"), KILN_OK);
	assert_int_equal(peer_connections(peer), 1);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

/* ---- Ahead ------------------------------------------------------------------ */

/* Keys from 0 on, looked up in this order the last time. */
static void expect_keys(struct ki_remote *remote, struct kiln_key **out_keys,
			unsigned n)
{
	uint8_t *names = malloc((size_t)n * KI_REMOTE_NAME_BYTES);

	assert_non_null(names);
	for (unsigned i = 0; i < n; i++) {
		size_t size;
		const void *record;
		uint8_t digest[32];

		out_keys[i] = key_of(i);
		record = kiln_key_record(out_keys[i], &size);
		ki_blake2b(record, size, digest);
		ki_remote_name(digest, 0,
			       names + (size_t)i * KI_REMOTE_NAME_BYTES);
	}
	ki_remote_expect(remote, names, n);
	free(names);
}

static void what_comes_next_is_fetched_ahead(void **state)
{
	enum { N = 200 };
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote = open_at(peer_path(peer), 0);
	struct kiln_key *keys[N];

	expect_keys(remote, keys, N);
	assert_int_equal(get(remote, keys[0], ""), KILN_MISS);
	assert_int_equal(peer_ahead(peer), 32);
	/* Twice as many, before these are used up. */
	for (unsigned i = 1; i < 32; i++)
		assert_int_equal(get(remote, keys[i], ""), KILN_MISS);
	assert_int_equal(peer_ahead(peer), 32 + 64);
	for (unsigned i = 32; i < N; i++)
		assert_int_equal(get(remote, keys[i], ""), KILN_MISS);
	assert_int_equal(peer_ahead(peer), N - 1);
	for (unsigned i = 0; i < N; i++)
		kiln_key_free(keys[i]);
	close_of(remote);
	peer_free(peer);
}

static unsigned n_refused, n_sends;
static uint64_t refused_types; /* a bit for each */

/* The socket has no room for such frames, for so many times. */
static ssize_t refuse_some(const struct ki_sys *sys, int fd, const void *data,
			   size_t size, int fd_along)
{
	struct ki_frame frame;

	n_sends++;
	if (n_refused && size >= KI_FRAME_BYTES &&
	    !ki_frame_get(data, &frame) &&
	    (refused_types & (uint64_t)1 << frame.type)) {
		n_refused--;
		return -EAGAIN;
	}
	return ki_sys_posix.send(&ki_sys_posix, fd, data, size, fd_along);
}

/* One that refuses so many of these at first; `sys` is its own. */
static struct ki_remote *open_refusing(const struct peer *peer,
				       struct ki_sys *sys, uint64_t types,
				       unsigned n)
{
	const struct ki_remote_options options = { .sys = sys,
						   .socket = peer_path(peer),
						   .count = count };
	struct ki_remote *remote;

	*sys = ki_sys_posix;
	sys->send = refuse_some;
	refused_types = types;
	n_refused = n;
	assert_int_equal(ki_remote_open(&options, &remote), KILN_OK);
	return remote;
}

static void names_that_found_no_room_are_told_at_the_next_look_up(void **state)
{
	enum { N = 200 };
	struct ki_sys sys;
	struct peer *peer = peer_new(NULL);
	struct ki_remote *remote =
		open_refusing(peer, &sys, (uint64_t)1 << KI_FRAME_PREFETCH, 2);
	struct kiln_key *keys[N];

	expect_keys(remote, keys, N);
	/* Twice, and what was not asked for does not make the window grow. */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(get(remote, keys[i], ""), KILN_MISS);
	assert_int_equal(peer_ahead(peer), 0);
	assert_int_equal(get(remote, keys[2], ""), KILN_MISS);
	assert_int_equal(n_refused, 0);
	assert_int_equal(peer_ahead(peer), 32);
	/* It is no fault, and the next window is what it would be. */
	assert_int_equal(counters[KILN_COUNT_REMOTE_FAULTS], 0);
	for (unsigned i = 3; i < 34; i++)
		assert_int_equal(get(remote, keys[i], ""), KILN_MISS);
	assert_int_equal(peer_ahead(peer), 32 + 64);
	for (unsigned i = 0; i < N; i++)
		kiln_key_free(keys[i]);
	close_of(remote);
	peer_free(peer);
}

/* ---- A helper that is busy --------------------------------------------------- */

#define UNLEASE ((uint64_t)1 << KI_FRAME_UNLEASE)
#define VERDICT ((uint64_t)1 << KI_FRAME_VERDICT)

/* Another may have it at the next look-up, or at a tick. */
static void a_lease_is_given_back_once_there_is_room(void **state)
{
	struct kiln_key *key = key_of(1);

	for (int is_tick = 0; is_tick < 2; is_tick++) {
		struct peer *peer = peer_new(NULL);
		struct ki_sys sys;
		struct ki_remote *one = open_refusing(peer, &sys, UNLEASE, 1);
		struct ki_remote *two = open_at(peer_path(peer), 0);
		struct kiln_tier *a = ki_remote_tier(one);
		struct kiln_tier *b = ki_remote_tier(two);
		struct kiln_tier_lock *lock;

		assert_int_equal(a->ops->lock(a, key, 10, &lock), KILN_OK);
		a->ops->unlock(a, lock);
		assert_int_equal(n_refused, 0);
		assert_int_equal(b->ops->lock(b, key, 10, &lock),
				 KILN_E_TIMEOUT);
		if (is_tick)
			a->ops->prefetch(a, NULL, 0);
		else
			assert_int_equal(get(one, key, ""), KILN_MISS);
		peer_await(peer, KI_FRAME_UNLEASE, 1);
		assert_int_equal(b->ops->lock(b, key, 10, &lock), KILN_OK);
		b->ops->unlock(b, lock);
		close_of(one);
		close_of(two);
		peer_free(peer);
	}
	kiln_key_free(key);
}

/* It has gone with its connection, and another may have been taken since: whether the
   end was said before, and found no room, or is said when there is another. */
static void a_lease_of_a_connection_that_broke_is_not_given_back(void **state)
{
	struct kiln_key *key = key_of(1);

	for (int is_later = 0; is_later < 2; is_later++) {
		struct peer *peer = peer_new(NULL);
		struct ki_sys sys;
		struct ki_remote *remote =
			open_refusing(peer, &sys, UNLEASE, !is_later);
		struct kiln_tier *tier = ki_remote_tier(remote);
		struct kiln_tier_lock *lock;

		assert_int_equal(tier->ops->lock(tier, key, 10, &lock),
				 KILN_OK);
		if (!is_later)
			tier->ops->unlock(tier, lock);
		assert_int_equal(n_refused, 0);
		peer_hang_up(peer);
		/* The first finds that it is broken. */
		while (peer_connections(peer) < 2)
			assert_int_equal(get(remote, key, ""), KILN_MISS);
		if (is_later)
			tier->ops->unlock(tier, lock);
		assert_int_equal(get(remote, key, ""), KILN_MISS);
		assert_int_equal(peer_count(peer, KI_FRAME_UNLEASE), 0);
		close_of(remote);
		peer_free(peer);
	}
	kiln_key_free(key);
}

/* By the time of the next look-up, which must not bring the same again. */
static void what_was_refused_is_told_before_the_next_look_up(void **state)
{
	struct kiln_key *key = key_of(1), *other = key_of(2);

	for (int is_removed = 0; is_removed < 2; is_removed++) {
		struct peer *peer = peer_new(NULL);
		struct ki_sys sys;
		/* A look-up goes on to the levels behind. */
		struct ki_remote *remote =
			open_refusing(peer, &sys, VERDICT, is_removed ? 1 : 2);
		struct kiln_tier *tier = ki_remote_tier(remote);

		peer_add(peer, key, 0, "value", 5, &(struct ki_item_seal){ 0 });
		peer_add(peer, other, 0, "other", 5,
			 &(struct ki_item_seal){ 0 });
		peer_behave(peer, PEER_OTHERS_ITEM);
		if (is_removed)
			assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
		else
			assert_int_equal(get(remote, key, ""), KILN_MISS);
		assert_int_equal(n_refused, 0);
		assert_int_equal(peer_count(peer, KI_FRAME_VERDICT), 0);
		peer_behave(peer, PEER_QUIET);
		assert_int_equal(get(remote, key, ""), KILN_MISS);
		assert_int_equal(peer_count(peer, KI_FRAME_VERDICT), 1);
		assert_int_equal(peer_verdict(peer), 0);
		close_of(remote);
		peer_free(peer);
	}
	kiln_key_free(key);
	kiln_key_free(other);
}

/* Whose look-up finds them there has not asked for them. */
static void many_that_wait_are_told_at_once(void **state)
{
	enum { N = 100 };
	struct peer *peer = peer_new(NULL);
	struct ki_sys sys;
	struct ki_remote *remote =
		open_refusing(peer, &sys, VERDICT, UINT32_MAX);
	struct kiln_tier *tier = ki_remote_tier(remote);
	struct kiln_key *key = key_of(1);

	for (unsigned i = 0; i < N; i++)
		assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
	n_refused = n_sends = 0;
	assert_int_equal(get(remote, key, ""), KILN_MISS);
	assert_int_equal(peer_count(peer, KI_FRAME_VERDICT), N);
	assert_in_range(n_sends, 2, N / 10);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

static unsigned n_connects_refused;

/* Who listens has others to take first, for so many times. */
static int refuse_connects(const struct ki_sys *sys, const char *path,
			   uint32_t *out_uid)
{
	if (n_connects_refused) {
		n_connects_refused--;
		return -EAGAIN;
	}
	return ki_sys_posix.connect(&ki_sys_posix, path, out_uid);
}

static void what_was_refused_outlasts_its_connection(void **state)
{
	enum then { LOOK_UP, TICK, CLOSE, BREAK };
	static const struct {
		const char *name;
		int is_guest;
		unsigned n_connects, n_sends; /* refused */
		enum then then;
	} rows[] = {
		{ "a guest, not taken, looks up", 1, 1, 0, LOOK_UP },
		{ "a guest, not taken, goes", 1, 1, 0, CLOSE },
		{ "a guest, unread, looks up", 1, 0, 1, LOOK_UP },
		{ "not taken, looks up", 0, 1, 0, LOOK_UP },
		{ "not taken, ticks", 0, 1, 0, TICK },
		{ "not taken, goes", 0, 1, 0, CLOSE },
		{ "unread, goes", 0, 0, 1, CLOSE },
		{ "unread, left", 0, 0, 1, BREAK },
	};
	struct kiln_key *key = key_of(1);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct peer *peer = peer_new(NULL);
		struct ki_sys sys = ki_sys_posix;
		const struct ki_remote_options options = {
			.sys = &sys,
			.socket = peer_path(peer),
			.is_guest = rows[i].is_guest,
			.count = count
		};
		struct kiln_tier *tier;
		struct ki_remote *remote;

		print_message("# %s\n", rows[i].name);
		sys.connect = refuse_connects;
		sys.send = refuse_some;
		n_connects_refused = rows[i].n_connects;
		n_refused = rows[i].n_sends;
		refused_types = VERDICT;
		assert_int_equal(ki_remote_open(&options, &remote), KILN_OK);
		tier = ki_remote_tier(remote);
		assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
		assert_int_equal(n_connects_refused + n_refused, 0);
		assert_int_equal(peer_count(peer, KI_FRAME_VERDICT), 0);
		if (rows[i].then == BREAK) {
			peer_await(peer, KI_FRAME_HELLO, 1);
			peer_hang_up(peer);
			assert_int_equal(get(remote, key, ""), KILN_MISS);
		}
		if (rows[i].then == LOOK_UP || rows[i].then == BREAK) {
			assert_int_equal(get(remote, key, ""), KILN_MISS);
			assert_int_equal(peer_count(peer, KI_FRAME_VERDICT), 1);
		}
		if (rows[i].then == TICK)
			tier->ops->prefetch(tier, NULL, 0);
		if (rows[i].then == TICK)
			peer_await(peer, KI_FRAME_VERDICT, 1);
		close_of(remote);
		peer_await(peer, KI_FRAME_VERDICT, 1);
		peer_settle(peer);
		assert_int_equal(peer_count(peer, KI_FRAME_VERDICT), 1);
		assert_int_equal(peer_verdict(peer), 0);
		peer_free(peer);
	}
	kiln_key_free(key);
}

static void what_nobody_can_be_told_is_not_removed(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "peer.sock");
	struct ki_remote *remote = open_at(path, 0);
	struct kiln_tier *tier = ki_remote_tier(remote);
	struct kiln_key *key = key_of(1);

	assert_int_equal(tier->ops->remove(tier, key), KILN_E_UNSUPPORTED);
	kiln_key_free(key);
	close_of(remote);
	free(path);
	free(directory);
}

static void what_waits_to_be_told_has_a_bound_that_no_lease_meets(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_sys sys;
	struct ki_remote *remote =
		open_refusing(peer, &sys, UNLEASE | VERDICT, UINT32_MAX);
	struct kiln_tier *tier = ki_remote_tier(remote);
	struct kiln_key *key = key_of(1);
	struct kiln_tier_lock *lock;

	assert_int_equal(tier->ops->lock(tier, key, 10, &lock), KILN_OK);
	for (unsigned i = 0; i < KI_NOTES_MAX + 10; i++)
		assert_int_equal(tier->ops->remove(tier, key),
				 i < KI_NOTES_MAX ? KILN_OK : KILN_E_FULL);
	assert_int_equal(counters[KILN_COUNT_REMOTE_FAULTS], 10);
	tier->ops->unlock(tier, lock);
	n_refused = 0;
	/* The socket need not have room for all of them either: then more come, of
	   those that were sent. */
	for (unsigned n = 0; n < KI_NOTES_MAX;
	     n = peer_count(peer, KI_FRAME_VERDICT)) {
		tier->ops->prefetch(tier, NULL, 0);
		peer_await(peer, KI_FRAME_VERDICT, n + 1);
	}
	tier->ops->prefetch(tier, NULL, 0);
	peer_await(peer, KI_FRAME_UNLEASE, 1);
	assert_int_equal(peer_count(peer, KI_FRAME_VERDICT), KI_NOTES_MAX);
	assert_int_equal(peer_count(peer, KI_FRAME_UNLEASE), 1);
	kiln_key_free(key);
	close_of(remote);
	peer_free(peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_one_puts_another_gets, forget),
		cmocka_unit_test_setup(
			what_is_good_is_said_where_it_changes_anything, forget),
		cmocka_unit_test_setup(
			what_is_local_or_bookkeeping_does_not_leave, forget),
		cmocka_unit_test_setup(a_guest_keeps_no_descriptor, forget),
		cmocka_unit_test_setup(no_helper_costs_a_hit_and_no_more,
				       forget),
		cmocka_unit_test_setup(what_is_only_announced_takes_no_room,
				       forget),
		cmocka_unit_test_setup(what_is_large_comes_whole, forget),
		cmocka_unit_test_setup(a_socket_that_is_none_is_a_miss_at_once,
				       forget),
		cmocka_unit_test_setup(
			a_socket_of_another_user_is_not_spoken_to, forget),
		cmocka_unit_test_setup(a_helper_that_comes_back_is_found,
				       forget),
		cmocka_unit_test_setup(who_fails_three_times_is_left_alone,
				       forget),
		cmocka_unit_test_setup(who_says_later_is_asked_later, forget),
		cmocka_unit_test_setup(a_look_up_waits_half_of_a_build, forget),
		cmocka_unit_test_setup(
			answers_that_nobody_waits_for_keep_nobody, forget),
		cmocka_unit_test_setup(what_is_waited_in_vain_has_an_end,
				       forget),
		cmocka_unit_test_setup(
			what_is_known_to_be_there_is_waited_for_within_that_end,
			forget),
		cmocka_unit_test_setup(
			a_late_answer_is_dropped_and_the_next_is_its_own,
			forget),
		cmocka_unit_test_setup(
			threads_get_each_its_own_by_one_connection, forget),
		cmocka_unit_test_setup(
			a_lease_is_ones_and_ends_with_its_connection, forget),
		cmocka_unit_test_setup(
			leases_that_cost_more_than_half_a_build_are_not_asked_for,
			forget),
		cmocka_unit_test_setup(
			a_lease_that_is_granted_too_late_is_given_back, forget),
		cmocka_unit_test_setup(a_child_has_no_connection, forget),
		cmocka_unit_test_setup(what_comes_next_is_fetched_ahead,
				       forget),
		cmocka_unit_test_setup(
			names_that_found_no_room_are_told_at_the_next_look_up,
			forget),
		cmocka_unit_test_setup(a_lease_is_given_back_once_there_is_room,
				       forget),
		cmocka_unit_test_setup(
			a_lease_of_a_connection_that_broke_is_not_given_back,
			forget),
		cmocka_unit_test_setup(
			what_was_refused_is_told_before_the_next_look_up,
			forget),
		cmocka_unit_test_setup(many_that_wait_are_told_at_once, forget),
		cmocka_unit_test_setup(what_was_refused_outlasts_its_connection,
				       forget),
		cmocka_unit_test_setup(what_nobody_can_be_told_is_not_removed,
				       forget),
		cmocka_unit_test_setup(
			what_waits_to_be_told_has_a_bound_that_no_lease_meets,
			forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
