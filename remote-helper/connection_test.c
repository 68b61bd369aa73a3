/* SPDX-License-Identifier: MIT */

/*
 * What programs that read slowly, or nothing, can make the helper hold: the whole
 * helper in this process, servers that do what the test says behind it, and
 * programs that are sockets.
 */

#include "harness/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client_test.h"
#include "connection.h"
#include "scripted_test.h"

#define KIB	   ((size_t)1 << 10)
#define MIB	   ((size_t)1 << 20)
#define BOUND	   (4 * MIB) /* of all that waits to be read */
#define PART	   (BOUND / CONNECTION_OUT_PART)
#define LONG_MS	   (HARNESS_HANG_S * 1000)
#define IDS_MAX	   2048
#define ITEM_BYTES (KIB + 192) /* the most that is around a value */

static char *directory, *path;
static struct loop *loop;
static struct place place;
static struct helper helper;

static int set_up(void **state)
{
	struct helper_options options = { .place = &place,
					  .idle_ms = LONG_MS,
					  .memory_bytes_max = BOUND,
					  .remote = "http://0#timeout=60000",
					  .open = scripted_open };
	char why[512];

	scripted_reset();
	directory = harness_directory();
	path = harness_path(directory, "remote-1.sock");
	loop = loop_new();
	assert_int_equal(place_take(&place, path, why, sizeof(why)), 0);
	assert_int_equal(
		helper_begin(&helper, loop, &options, why, sizeof(why)),
		KILN_OK);
	return 0;
}

static int tear_down(void **state)
{
	helper_finish(&helper);
	assert_int_equal(helper.out_bytes, 0);
	place_leave(&place);
	loop_free(loop);
	scripted_reset();
	free(path);
	harness_remove(directory);
	free(directory);
	return 0;
}

static void stop(void *arg)
{
	loop_stop(arg);
}

static void run_ms(uint32_t ms)
{
	loop_after(loop, ms, stop, loop);
	assert_int_equal(loop_run(loop), 0);
}

/* ---- Programs ------------------------------------------------------------- */

/* What one has been answered so far. */
struct program {
	int fd;
	struct connection *connection; /* the other side of it */
	uint8_t *bytes;
	size_t size, room;
	unsigned n_answers, n_items, n_late;
	uint8_t answered[IDS_MAX];
};

static struct program program_begin(void)
{
	struct program program = { .fd = client_connect(path) };

	assert_true(program.fd >= 0);
	client_hello(program.fd);
	while (!program.connection) {
		run_ms(1);
		if (!ki_list_is_empty(&helper.connections))
			program.connection =
				ki_container(helper.connections.prev,
					     struct connection, link);
		if (program.connection && !program.connection->is_greeted)
			program.connection = NULL;
	}
	return program;
}

static void program_end(struct program *program)
{
	unsigned n = helper.n_connections;

	(void)close(program->fd);
	free(program->bytes);
	for (int i = 0; helper.n_connections == n; i++) {
		assert_true(i < HARNESS_HANG_S * 1000);
		run_ms(1);
	}
}

/* These, one after the other; their ids are their numbers.  Sent at once: the
   helper reads nothing meanwhile. */
static void ask_for_all(struct program *program, unsigned first, unsigned n)
{
	const size_t each = KI_FRAME_BYTES + KI_FRAME_GET_BYTES;
	uint8_t *bytes = malloc(n * each), *at = bytes;

	for (unsigned i = first; i < first + n; i++, at += each) {
		struct ki_frame frame = { .size = KI_FRAME_GET_BYTES,
					  .type = KI_FRAME_GET,
					  .id = i };

		program->answered[i] = 0;
		ki_frame_put(at, &frame);
		scripted_name(i, at + KI_FRAME_BYTES);
		ki_put_u32(at + KI_FRAME_BYTES + 32, LONG_MS);
		ki_put_u32(at + KI_FRAME_BYTES + 36, 0);
	}
	assert_int_equal(
		send(program->fd, bytes, n * each, MSG_NOSIGNAL | MSG_DONTWAIT),
		n * each);
	free(bytes);
}

/* No id twice, and none that was not asked for. */
static void take_frame(struct program *program, const struct ki_frame *frame,
		       const uint8_t *body)
{
	if (frame->type == KI_FRAME_HELLO)
		return;
	assert_in_range(frame->id, 0, IDS_MAX - 1);
	assert_false(program->answered[frame->id]++);
	program->n_answers++;
	if (frame->type == KI_FRAME_ITEM)
		program->n_items++;
	else if (frame->type == KI_FRAME_MISS &&
		 ki_get_u32(body + 4) == KI_REMOTE_LATE)
		program->n_late++;
}

static void take_frames(struct program *program)
{
	size_t at = 0;
	struct ki_frame frame;

	while (program->size - at >= KI_FRAME_BYTES) {
		assert_int_equal(ki_frame_get(program->bytes + at, &frame),
				 KILN_OK);
		if (program->size - at < KI_FRAME_BYTES + frame.size)
			break;
		take_frame(program, &frame,
			   program->bytes + at + KI_FRAME_BYTES);
		at += KI_FRAME_BYTES + frame.size;
	}
	program->size -= at;
	memmove(program->bytes, program->bytes + at, program->size);
}

/* All that there is to be read now. */
static void read_some(struct program *program)
{
	ssize_t n;

	do {
		if (program->room - program->size < MIB) {
			program->room += 2 * MIB;
			program->bytes = realloc(program->bytes, program->room);
			assert_non_null(program->bytes);
		}
		n = recv(program->fd, program->bytes + program->size,
			 program->room - program->size, MSG_DONTWAIT);
		program->size += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	assert_true(n < 0 && errno == EAGAIN);
	take_frames(program);
}

static void read_until(struct program *program, unsigned n_answers)
{
	for (int i = 0; program->n_answers < n_answers; i++) {
		if (i == HARNESS_HANG_S * 1000)
			fail_msg("%u of %u answers", program->n_answers,
				 n_answers);
		run_ms(1);
		read_some(program);
	}
}

/* Until all that was asked of servers has come. */
static void await_servers(void)
{
	do
		run_ms(2);
	while (helper.fetches.names.n);
}

/* ---- Bounds --------------------------------------------------------------- */

/* However many it asked for together, before the first came. */
static void what_a_program_leaves_unread_is_bounded(void **state)
{
	enum { N = 200 };
	struct program mute = program_begin();
	unsigned n_later;

	for (unsigned i = 0; i < N; i++)
		scripted_keep_sized(&scripted[0], i, 100 * KIB);
	scripted[0].ms = 30;
	ask_for_all(&mute, 0, N);
	await_servers();
	assert_int_equal(scripted[0].n_gets, N);
	assert_in_range(mute.connection->out_bytes, PART / 2, PART + 8 * KIB);
	assert_in_range(helper.out_bytes, 1, PART);
	assert_true(helper.fetches.memory.bytes <= BOUND);
	read_until(&mute, N);
	assert_in_range(mute.n_items, 5, 20);
	assert_int_equal(mute.n_items + mute.n_late, N);
	assert_int_equal(helper.n_no_room, mute.n_late);
	assert_int_equal(helper.out_bytes, 0);
	/* What there was no room for waits to be asked for again. */
	scripted[0].n_gets = 0;
	n_later = mute.n_items;
	ask_for_all(&mute, N - 10, 10);
	read_until(&mute, N + 10);
	assert_int_equal(mute.n_items, n_later + 10);
	assert_int_equal(scripted[0].n_gets, 0);
	program_end(&mute);
}

static void what_all_programs_leave_unread_is_bounded(void **state)
{
	enum { N = 40, EACH = 12 };
	struct program mutes[N];

	for (unsigned i = 0; i < N * EACH; i++)
		scripted_keep_sized(&scripted[0], i, 80 * KIB);
	scripted[0].ms = 30;
	for (unsigned i = 0; i < N; i++) {
		mutes[i] = program_begin();
		ask_for_all(&mutes[i], i * EACH, EACH);
	}
	await_servers();
	assert_in_range(helper.out_bytes, BOUND / 2, BOUND + N * KIB);
	for (unsigned i = 0; i < N; i++) {
		read_until(&mutes[i], EACH);
		assert_int_equal(mutes[i].n_items + mutes[i].n_late, EACH);
		program_end(&mutes[i]);
	}
	assert_int_equal(helper.out_bytes, 0);
}

static void what_many_wait_for_is_there_once(void **state)
{
	enum { N = 30 };
	struct program programs[N];

	scripted_keep_sized(&scripted[0], 1, 3 * MIB);
	scripted[0].ms = 30;
	for (unsigned i = 0; i < N; i++)
		programs[i] = program_begin();
	for (unsigned i = 0; i < N; i++)
		ask_for_all(&programs[i], 1, 1);
	await_servers();
	assert_in_range(helper.out_bytes, 3 * MIB, 3 * MIB + ITEM_BYTES);
	for (unsigned i = 0; i < N; i++) {
		read_until(&programs[i], 1);
		assert_int_equal(programs[i].n_items, 1);
		program_end(&programs[i]);
	}
	assert_int_equal(scripted[0].n_gets, 1);
}

static void an_item_beyond_all_bounds_is_given_where_nothing_waits(void **state)
{
	struct program program = program_begin();

	scripted_keep_sized(&scripted[0], 1, 2 * BOUND);
	ask_for_all(&program, 1, 1);
	await_servers();
	assert_true(helper.out_bytes > BOUND);
	read_until(&program, 1);
	assert_int_equal(program.n_items, 1);
	program_end(&program);
}

/* What has begun to be sent is there in spite of those that read nothing. */
static void small_answers_are_given_whatever_waits_elsewhere(void **state)
{
	struct program mute = program_begin(), other = program_begin();

	scripted_keep_sized(&scripted[0], 1, 2 * BOUND);
	scripted_keep_sized(&scripted[0], 2, CONNECTION_OUT_FIRST - 4 * KIB);
	ask_for_all(&mute, 1, 1);
	await_servers();
	assert_true(helper.out_bytes > BOUND);
	for (unsigned i = 0; i < 5; i++) {
		ask_for_all(&other, 2, 1);
		read_until(&other, i + 1);
	}
	assert_int_equal(other.n_items, 5);
	program_end(&mute);
	program_end(&other);
}

/* ---- Requests that have to wait ------------------------------------------- */

/* Nor are servers asked for them; they go on when there is room. */
static void requests_of_who_reads_nothing_wait(void **state)
{
	enum { N = 1500 }; /* more than may be without an answer */
	struct program program = program_begin();

	scripted_keep_sized(&scripted[0], 0, 2 * CONNECTION_OUT_BYTES_MAX);
	ask_for_all(&program, 0, 1);
	await_servers();
	assert_true(program.connection->out_bytes > CONNECTION_OUT_BYTES_MAX);
	ask_for_all(&program, 1, N);
	run_ms(20);
	assert_int_equal(scripted[0].n_gets, 1);
	read_until(&program, 1 + N);
	assert_int_equal(program.n_items, 1);
	assert_int_equal(scripted[0].n_gets, 1 + N);
	program_end(&program);
}

/* What has come already is not looked at either. */
static void requests_that_came_together_are_looked_at_as_there_is_room(
	void **state)
{
	enum { N = 70 }; /* of one piece that is read */
	struct program program = program_begin();
	uint8_t name[KI_REMOTE_NAME_BYTES];

	scripted_keep_sized(&scripted[0], 0,
			    CONNECTION_OUT_BYTES_MAX + 400 * KIB);
	scripted_name(0, name);
	fetches_prefetch(&helper.fetches, name, 1);
	await_servers();
	ask_for_all(&program, 0, 1 + N);
	run_ms(20);
	assert_true(program.connection->out_bytes > CONNECTION_OUT_BYTES_MAX);
	assert_int_equal(scripted[0].n_gets, 1);
	read_until(&program, 1 + N);
	assert_int_equal(program.n_items, 1);
	assert_int_equal(scripted[0].n_gets, 1 + N);
	program_end(&program);
}

/* With so many requests without an answer nothing is read of it, and still it is
   noticed that it is gone. */
static void who_is_gone_is_noticed_whatever_it_waits_for(void **state)
{
	struct program program = program_begin();
	unsigned n = helper.n_connections;

	scripted[0].ms = LONG_MS;
	ask_for_all(&program, 0, CONNECTION_PENDING_MAX);
	while (program.connection->n_pending < CONNECTION_PENDING_MAX)
		run_ms(1);
	assert_int_equal(helper.n_connections, n);
	program_end(&program);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
		ROW(what_a_program_leaves_unread_is_bounded),
		ROW(what_all_programs_leave_unread_is_bounded),
		ROW(what_many_wait_for_is_there_once),
		ROW(an_item_beyond_all_bounds_is_given_where_nothing_waits),
		ROW(small_answers_are_given_whatever_waits_elsewhere),
		ROW(requests_of_who_reads_nothing_wait),
		ROW(requests_that_came_together_are_looked_at_as_there_is_room),
		ROW(who_is_gone_is_noticed_whatever_it_waits_for),
	};
#undef ROW

	return cmocka_run_group_tests(tests, NULL, NULL);
}
