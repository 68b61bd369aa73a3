/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdlib.h>
#include <string.h>

#include "remote/peer_test.h"
#include "remote/range.h"

#define FILE_BYTES 100000
#define S_NS	   ((uint64_t)1000000000)

static uint8_t file[FILE_BYTES];

static int fill(void **state)
{
	for (size_t i = 0; i < FILE_BYTES; i++)
		file[i] = (uint8_t)(i * 31 + i / 256);
	return 0;
}

static struct ki_range *open_at(struct peer *peer, int is_guest)
{
	struct ki_range *range;

	assert_int_equal(ki_range_open(&ki_sys_posix, peer_path(peer),
				       "http://server/file", is_guest, &range),
			 KILN_OK);
	return range;
}

static void assert_part(struct ki_range *range, uint64_t offset, size_t count)
{
	uint8_t *part = malloc(count + 1);

	assert_non_null(part);
	assert_int_equal(ki_range_read(range, offset, part, count),
			 (ssize_t)count);
	assert_memory_equal(part, file + offset, count);
	free(part);
}

static void parts_of_a_file_come_as_they_are(void **state)
{
	static const struct {
		uint64_t offset;
		size_t count;
	} rows[] = {
		{ 0, 1 },	{ 0, FILE_BYTES }, { FILE_BYTES - 1, 1 },
		{ 4095, 8193 }, { FILE_BYTES, 0 },
	};
	struct peer *peer = peer_new(NULL);
	uint8_t byte;

	peer_serve(peer, file, FILE_BYTES);
	for (int is_guest = 0; is_guest < 2; is_guest++) {
		struct ki_range *range = open_at(peer, is_guest);

		assert_int_equal(ki_range_bytes(range), FILE_BYTES);
		for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
			assert_part(range, rows[i].offset, rows[i].count);
		assert_int_equal(ki_range_read(range, FILE_BYTES, &byte, 1),
				 -1);
		assert_int_equal(ki_range_read(range, UINT64_MAX, &byte, 1),
				 -1);
		assert_part(range, 7, 7);
		ki_range_close(range);
	}
	peer_free(peer);
}

static void a_connection_that_breaks_is_made_again(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_range *range;

	peer_serve(peer, file, FILE_BYTES);
	range = open_at(peer, 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_part(range, 100 * i, 1000);
		peer_hang_up(peer);
		peer_settle(peer);
	}
	assert_part(range, 5, 5);
	ki_range_close(range);
	peer_free(peer);
}

static void a_file_that_changes_fails(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_range *range;
	uint8_t byte;

	peer_serve(peer, file, FILE_BYTES);
	range = open_at(peer, 1);
	assert_part(range, 0, 10);
	peer_serve(peer, file, FILE_BYTES - 1);
	assert_int_equal(ki_range_read(range, 0, &byte, 1), -1);
	ki_range_close(range);
	peer_free(peer);
}

static void what_is_not_there_is_said(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_range *range;

	assert_int_equal(ki_range_open(&ki_sys_posix, peer_path(peer),
				       "http://server/file", 0, &range),
			 KILN_MISS);
	assert_int_equal(ki_range_open(&ki_sys_posix, "/nowhere/socket",
				       "http://server/file", 0, &range),
			 KILN_E_UNSUPPORTED);
	peer_free(peer);
}

/* A clock that is set, and goes on when an answer is read. */
static uint64_t clock_ns, answer_ns;

static uint64_t tell_time(const struct ki_sys *sys)
{
	return clock_ns;
}

static ssize_t receive_slowly(const struct ki_sys *sys, int fd, void *data,
			      size_t size)
{
	ssize_t n = ki_sys_posix.recv(&ki_sys_posix, fd, data, size);

	if (n > 0)
		clock_ns += answer_ns;
	return n;
}

/* The deadline is of a clock that stands. */
static int await(const struct ki_sys *sys, int fd, int for_room,
		 uint64_t deadline_ns)
{
	return ki_sys_posix.wait(&ki_sys_posix, fd, for_room,
				 ki_sys_posix.monotonic_ns(&ki_sys_posix) +
					 60 * S_NS);
}

static struct ki_sys slow_sys(void)
{
	struct ki_sys sys = ki_sys_posix;

	sys.monotonic_ns = sys.coarse_ns = tell_time;
	sys.recv = receive_slowly;
	sys.wait = await;
	clock_ns = 100 * S_NS;
	answer_ns = 0;
	ki_range_forget();
	return sys;
}

static struct ki_range *open_by(const struct ki_sys *sys, struct peer *peer)
{
	struct ki_range *range;

	assert_int_equal(ki_range_open(sys, peer_path(peer),
				       "http://server/file", 0, &range),
			 KILN_OK);
	return range;
}

static unsigned count_reads(struct ki_range *range)
{
	unsigned n = 0;
	uint8_t byte;

	while (n < 1000 && ki_range_read(range, 5, &byte, 1) == 1) {
		assert_int_equal(byte, file[5]);
		n++;
	}
	return n;
}

/* Right answers that come late cost a program no less. */
static void answers_that_are_slow_come_to_a_second_too(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_sys sys = slow_sys();
	struct ki_range *range;

	peer_serve(peer, file, FILE_BYTES);
	range = open_by(&sys, peer);
	/* Of an answer there are two pieces at most. */
	answer_ns = S_NS / 20;
	assert_int_equal(count_reads(range), 1000);
	answer_ns = S_NS * 24 / 100;
	assert_in_range(count_reads(range), 2, 30);
	answer_ns = 0;
	assert_int_equal(count_reads(range), 0);
	/* It is forgiven as time goes by. */
	clock_ns += 600 * S_NS;
	assert_int_equal(count_reads(range), 1000);
	ki_range_close(range);
	peer_free(peer);
	ki_range_forget();
}

/* Also where the connection lasts, and long after. */
static void a_file_that_has_changed_is_none_again(void **state)
{
	struct peer *peer = peer_new(NULL);
	struct ki_sys sys = slow_sys();
	struct ki_range *range;
	uint8_t byte;

	peer_serve(peer, file, FILE_BYTES);
	range = open_by(&sys, peer);
	assert_part(range, 0, 10);
	peer_hang_up(peer);
	peer_settle(peer);
	peer_serve(peer, file, FILE_BYTES - 1);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(ki_range_read(range, 0, &byte, 1), -1);
		clock_ns += 60 * S_NS;
	}
	peer_serve(peer, file, FILE_BYTES);
	assert_part(range, 0, 10);
	ki_range_close(range);
	peer_free(peer);
}

/* A helper that has been stopped: connected to, and silent.  Each of these would be a
   second. */
static void waits_in_vain_come_to_a_second_in_all(void **state)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char *directory = harness_directory();
	char *path = harness_path(directory, "socket");
	const uint64_t start = sys->monotonic_ns(sys);
	int fd = sys->listen(sys, path);
	struct ki_range *range;

	assert_true(fd >= 0);
	ki_range_forget();
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(ki_range_open(sys, path, "http://server/file",
					       i % 2, &range),
				 KILN_E_TIMEOUT);
	assert_true(sys->monotonic_ns(sys) - start < 10 * S_NS);
	ki_range_forget();
	(void)sys->close(sys, fd);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_of_a_file_come_as_they_are),
		cmocka_unit_test(a_connection_that_breaks_is_made_again),
		cmocka_unit_test(a_file_that_changes_fails),
		cmocka_unit_test(what_is_not_there_is_said),
		cmocka_unit_test(answers_that_are_slow_come_to_a_second_too),
		cmocka_unit_test(a_file_that_has_changed_is_none_again),
		cmocka_unit_test(waits_in_vain_come_to_a_second_in_all),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
