/* SPDX-License-Identifier: MIT */

#include "whole_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/harness.h"

#include "client_test.h"

#define READ_BYTES ((size_t)1 << 20)

struct helper whole;

static char *directory, *path;
static struct loop *loop;
static struct place place;

void whole_begin(const char *remote, uint64_t memory_bytes_max)
{
	struct helper_options options = { .place = &place,
					  .idle_ms = WHOLE_LONG_MS,
					  .memory_bytes_max = memory_bytes_max,
					  .remote = remote,
					  .trusts_transport = 1,
					  .open = scripted_open };
	char why[512];

	directory = harness_directory();
	path = harness_path(directory, "remote-1.sock");
	loop = loop_new();
	assert_int_equal(place_take(&place, path, why, sizeof(why)), 0);
	if (helper_begin(&whole, loop, &options, why, sizeof(why)))
		fail_msg("%s", why);
}

void whole_end(void)
{
	helper_finish(&whole);
	assert_int_equal(whole.out_bytes, 0);
	place_leave(&place);
	loop_free(loop);
	scripted_reset();
	free(path);
	harness_remove(directory);
	free(directory);
}

static void stop(void *arg)
{
	loop_stop(arg);
}

void whole_run_ms(uint32_t ms)
{
	assert_non_null(loop_after(loop, ms, stop, loop));
	assert_int_equal(loop_run(loop), 0);
}

void whole_await_servers(void)
{
	for (int i = 0; !i || whole.fetches.names.n; i++) {
		assert_true(i < WHOLE_LONG_MS);
		whole_run_ms(2);
	}
}

/* ---- Programs ------------------------------------------------------------- */

static struct connection *last_greeted(void)
{
	struct connection *connection =
		ki_container(whole.connections.prev, struct connection, link);

	if (ki_list_is_empty(&whole.connections) || !connection->is_greeted)
		return NULL;
	return connection;
}

struct program program_begin(void)
{
	struct program program = { .fd = client_connect(path) };
	unsigned n = whole.n_connections;

	assert_true(program.fd >= 0);
	client_hello(program.fd);
	while (whole.n_connections == n || !last_greeted())
		whole_run_ms(1);
	program.connection = last_greeted();
	return program;
}

void program_end(struct program *program)
{
	unsigned n = whole.n_connections;

	(void)close(program->fd);
	free(program->bytes);
	for (int i = 0; !program->is_cut_off && whole.n_connections == n; i++) {
		assert_true(i < WHOLE_LONG_MS);
		whole_run_ms(1);
	}
}

void program_get(struct program *program, unsigned first, unsigned n,
		 uint32_t ms)
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
		ki_put_u32(at + KI_FRAME_BYTES + 32, ms);
		ki_put_u32(at + KI_FRAME_BYTES + 36, 0);
	}
	assert_int_equal(
		send(program->fd, bytes, n * each, MSG_NOSIGNAL | MSG_DONTWAIT),
		n * each);
	free(bytes);
}

static void take_frame(struct program *program, const struct ki_frame *frame,
		       const uint8_t *body)
{
	if (frame->type == KI_FRAME_HELLO)
		return;
	assert_in_range(frame->id, 0, WHOLE_IDS_MAX - 1);
	assert_false(program->answered[frame->id]++);
	program->n_answers++;
	program->status = frame->status;
	if (frame->type == KI_FRAME_OPENED)
		program->handle = ki_get_u64(body);
	else if (frame->type == KI_FRAME_ITEM)
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

void program_read(struct program *program)
{
	ssize_t n;

	do {
		if (program->room - program->size < READ_BYTES) {
			program->room += 2 * READ_BYTES;
			program->bytes = realloc(program->bytes, program->room);
			assert_non_null(program->bytes);
		}
		n = recv(program->fd, program->bytes + program->size,
			 program->room - program->size, MSG_DONTWAIT);
		program->size += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	if (!n || errno != EAGAIN)
		program->is_cut_off = 1;
	take_frames(program);
}

void program_read_until(struct program *program, unsigned n_answers)
{
	for (int i = 0; program->n_answers < n_answers && !program->is_cut_off;
	     i++) {
		if (i == WHOLE_LONG_MS)
			fail_msg("%u of %u answers", program->n_answers,
				 n_answers);
		whole_run_ms(1);
		program_read(program);
	}
}
