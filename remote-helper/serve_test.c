/* SPDX-License-Identifier: MIT */

/* kiln-remote in front of a real Redis, from put to get. */

#include "harness/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

#include "client_test.h"
#include "harness/servers_test.h"
#include "pack.h"
#include "process_test.h"

static char *program;
static char *directory;
static char *path;
static struct server *redis;

static int set_up(void **state)
{
	directory = harness_directory();
	path = harness_path(directory, "remote-1.sock");
	redis = server_redis(directory, NULL);
	return 0;
}

static int tear_down(void **state)
{
	server_stop(redis);
	free(path);
	harness_remove(directory);
	free(directory);
	return 0;
}

static pid_t serve(const char *words)
{
	char remote[256];
	const char *settings[] = { remote, "KILN_REMOTE_TRUST=transport",
				   NULL };

	snprintf(remote, sizeof(remote), "KILN_REMOTE=%s%s", server_url(redis),
		 words);
	return process_serve(program, path, settings);
}

static void what_one_program_puts_another_gets(void **state)
{
	static const size_t sizes[] = { 0, 1, 4000, 100000, 3000000 };
	pid_t pid;
	int writer, reader;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("");
	writer = client_open(path);
	reader = client_open(path);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct entry entry = entry_new(i, sizes[i]);
		uint32_t reasons = 0;

		print_message("# %zu bytes\n", sizes[i]);
		assert_int_equal(client_fetch(reader, &entry, 5000, &reasons),
				 KILN_MISS);
		assert_int_equal(reasons, KI_REMOTE_ABSENT);
		client_put(writer, &entry, 0);
		client_drain(writer);
		assert_int_equal(client_fetch(reader, &entry, 5000, NULL),
				 KILN_OK);
		entry_fini(&entry);
	}
	(void)close(writer);
	(void)close(reader);
	assert_int_equal(process_stop(pid), 0);
}

static json_int_t counted(int fd, const char *group, const char *name)
{
	json_t *told = client_tell(fd, 0);
	json_t *value = json_object_get(json_object_get(told, group), name);
	json_int_t n;

	assert_true(json_is_integer(value));
	n = json_integer_value(value);
	json_decref(told);
	return n;
}

/* It goes on after the connection that brought it. */
static void a_program_that_ends_at_once_has_put_all_the_same(void **state)
{
	struct entry entry = entry_new(1, 50000);
	pid_t pid;
	int fd;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("");
	fd = client_connect(path);
	client_hello(fd);
	client_put(fd, &entry, 0);
	(void)close(fd);
	fd = client_open(path);
	while (!counted(fd, "uploads", "done"))
		process_wait_ms(5);
	assert_int_equal(client_fetch(fd, &entry, 5000, NULL), KILN_OK);
	(void)close(fd);
	entry_fini(&entry);
	assert_int_equal(process_stop(pid), 0);
}

static void memory_that_could_change_is_not_taken(void **state)
{
	static const struct {
		const char *what;
		int seals;
		long more; /* than the frame says */
	} rows[] = {
		{ "no seals", 0, 0 },
		{ "it may shrink", F_SEAL_GROW | F_SEAL_WRITE, 0 },
		{ "it may be written", F_SEAL_GROW | F_SEAL_SHRINK, 0 },
		{ "too short", F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE, -1 },
		{ "too long", F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE, 1 },
	};
	uint8_t body[KI_FRAME_PUT_BYTES] = { 0 };
	int pipes[2];
	pid_t pid;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("");
	ki_put_u64(body + 40, 100);
	ki_put_u64(body + 56, 5000);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int memory = memfd_create("row", MFD_ALLOW_SEALING);
		int fd = client_open(path);

		print_message("# %s\n", rows[i].what);
		assert_int_equal(ftruncate(memory, 5100 + rows[i].more), 0);
		if (rows[i].seals)
			assert_int_equal(
				fcntl(memory, F_ADD_SEALS, rows[i].seals), 0);
		client_send_fd(fd, KI_FRAME_PUT, 0, body, sizeof(body), memory);
		assert_true(client_is_cut_off(fd));
		(void)close(fd);
		(void)close(memory);
	}
	assert_int_equal(pipe(pipes), 0);
	for (int i = -1; i < 1; i++) {
		int fd = client_open(path);

		client_send_fd(fd, KI_FRAME_PUT, 0, body, sizeof(body),
			       i < 0 ? -1 : pipes[0]);
		assert_true(client_is_cut_off(fd));
		(void)close(fd);
	}
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	(void)close(client_open(path));
	assert_int_equal(process_stop(pid), 0);
}

static void sizes_that_overflow_are_cut_off(void **state)
{
	static const uint64_t rows[][3] = {
		{ UINT64_MAX, 1, 100 },
		{ 100, UINT64_MAX - 49, 50 },
		{ (uint64_t)1 << 63, (uint64_t)1 << 63, 100 },
		{ 0, 0, ((uint64_t)1 << 30) + 1 },
	};
	uint8_t body[KI_FRAME_PUT_BYTES] = { 0 };
	pid_t pid;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int memory = memfd_create("row", MFD_ALLOW_SEALING);
		int fd = client_open(path);

		assert_int_equal(ftruncate(memory, 100), 0);
		assert_int_equal(
			fcntl(memory, F_ADD_SEALS,
			      F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE),
			0);
		for (int j = 0; j < 3; j++)
			ki_put_u64(body + 40 + 8 * j, rows[i][j]);
		client_send_fd(fd, KI_FRAME_PUT, 0, body, sizeof(body), memory);
		assert_true(client_is_cut_off(fd));
		(void)close(fd);
		(void)close(memory);
	}
	assert_int_equal(process_stop(pid), 0);
}

static enum kiln_status lease(int fd, const uint8_t *name, uint32_t ms)
{
	struct answer answer;

	client_lease(fd, 9, name, ms);
	answer = client_expect(fd, KI_FRAME_LEASED, 9);
	free(answer.body);
	return (enum kiln_status)answer.frame.status;
}

/* Two helpers stand for two machines. */
static void one_machine_builds_and_the_others_wait(void **state)
{
	struct entry entry = entry_new(3, 1000);
	char *other_path, remote[128];
	const char *settings[] = { remote, "KILN_REMOTE_TRUST=transport",
				   NULL };
	struct answer answer;
	pid_t pid, other;
	int a, b, c;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	snprintf(remote, sizeof(remote), "KILN_REMOTE=%s", server_url(redis));
	other_path = harness_path(directory, "remote-2.sock");
	pid = serve("");
	other = process_serve(program, other_path, settings);
	a = client_open(path);
	b = client_open(other_path);
	c = client_open(path);
	assert_int_equal(lease(a, entry.name, 1000), KILN_OK);
	assert_int_equal(lease(b, entry.name, 30), KILN_E_TIMEOUT);
	assert_int_equal(lease(c, entry.name, 30), KILN_E_TIMEOUT);
	client_lease(b, 1, entry.name, 30000);
	client_lease(c, 1, entry.name, 30000);
	client_put(a, &entry, 0);
	client_unlease(a, entry.name);
	answer = client_expect(b, KI_FRAME_LEASED, 1);
	assert_int_equal(answer.frame.status, KILN_EXISTS);
	free(answer.body);
	answer = client_expect(c, KI_FRAME_LEASED, 1);
	assert_int_equal(answer.frame.status, KILN_EXISTS);
	free(answer.body);
	assert_int_equal(client_fetch(b, &entry, 5000, NULL), KILN_OK);
	(void)close(a);
	(void)close(b);
	(void)close(c);
	assert_int_equal(process_stop(pid), 0);
	assert_int_equal(process_stop(other), 0);
	free(other_path);
	entry_fini(&entry);
}

static void a_holder_that_dies_makes_room_for_the_next(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct answer answer;
	pid_t pid;
	int a, b;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("");
	client_name(name, 7);
	a = client_open(path);
	b = client_open(path);
	assert_int_equal(lease(a, name, 1000), KILN_OK);
	client_lease(b, 1, name, 30000);
	(void)close(a);
	answer = client_expect(b, KI_FRAME_LEASED, 1);
	assert_int_equal(answer.frame.status, KILN_OK);
	free(answer.body);
	(void)close(b);
	a = client_open(path);
	assert_int_equal(lease(a, name, 1000), KILN_OK);
	(void)close(a);
	assert_int_equal(process_stop(pid), 0);
}

/* Of who waits for it no more nobody would hear again. */
static void who_takes_its_question_back_is_granted_nothing(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct answer answer;
	pid_t pid;
	int a, b, c;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("");
	client_name(name, 8);
	a = client_open(path);
	b = client_open(path);
	c = client_open(path);
	assert_int_equal(lease(a, name, 1000), KILN_OK);
	client_lease(b, 1, name, 600000);
	client_unlease(b, name);
	answer = client_expect(b, KI_FRAME_LEASED, 1);
	assert_int_equal(answer.frame.status, KILN_E_TIMEOUT);
	free(answer.body);
	client_unlease(a, name);
	assert_int_equal(lease(c, name, 1000), KILN_OK);
	(void)close(a);
	(void)close(b);
	(void)close(c);
	assert_int_equal(process_stop(pid), 0);
}

static void prefetched_items_wait_in_memory(void **state)
{
	enum { N = 40 };
	struct entry entries[N];
	uint8_t names[N][KI_REMOTE_NAME_BYTES];
	pid_t pid;
	int fd;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("");
	fd = client_open(path);
	for (int i = 0; i < N; i++) {
		entries[i] = entry_new((uint64_t)i, 3000);
		memcpy(names[i], entries[i].name, sizeof(names[i]));
		client_put(fd, &entries[i], 0);
	}
	client_drain(fd);
	client_send(fd, KI_FRAME_PREFETCH, 0, names, sizeof(names));
	while (counted(fd, "gets", "prefetched") < N &&
	       !counted(fd, "gets", "prefetch_dropped"))
		process_wait_ms(2);
	for (int i = 0; i < N; i++) {
		assert_int_equal(client_fetch(fd, &entries[i], 5000, NULL),
				 KILN_OK);
		entry_fini(&entries[i]);
	}
	if (!counted(fd, "gets", "prefetch_dropped"))
		assert_int_equal(counted(fd, "gets", "from_memory"), N);
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);
}

static uint32_t bits_of_item(int fd, const struct entry *entry)
{
	struct answer answer;
	uint32_t bits;

	client_get(fd, 4714, entry->name, 5000, 0);
	answer = client_expect(fd, KI_FRAME_ITEM, 4714);
	bits = ki_get_u32(answer.body + 4);
	free(answer.body);
	return bits;
}

/* The second Redis is far: what is found there comes to the first. */
static void a_good_item_comes_nearer(void **state)
{
	struct entry entry = entry_new(5, 2000);
	struct server *far = redis ? server_redis(directory, NULL) : NULL;
	char words[128];
	pid_t pid;
	int fd;

	if (!redis || !far)
		HARNESS_LEAVE_OUT("no redis-server");
	snprintf(words, sizeof(words), "#read-only %s", server_url(far));
	pid = serve(words);
	fd = client_open(path);
	client_put(fd, &entry, 0); /* to the far one alone */
	client_drain(fd);
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);

	snprintf(words, sizeof(words), " %s", server_url(far));
	pid = serve(words);
	fd = client_open(path);
	assert_int_equal(bits_of_item(fd, &entry), 0);
	client_verdict(fd, entry.name, 1, 1);
	while (!counted(fd, "uploads", "filled"))
		process_wait_ms(2);
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);

	pid = serve("");
	fd = client_open(path);
	assert_int_equal(client_fetch(fd, &entry, 5000, NULL), KILN_OK);
	assert_int_equal(bits_of_item(fd, &entry), KI_REMOTE_ITEM_NO_VERDICT);
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);
	server_stop(far);
	entry_fini(&entry);
}

static void a_lease_ends_with_the_helper_that_is_told_to_end(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	pid_t pid;
	int fd;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	client_name(name, 3);
	for (int i = 0; i < 3; i++) {
		pid = serve("");
		fd = client_open(path);
		assert_int_equal(lease(fd, name, 100), KILN_OK);
		assert_int_equal(process_stop(pid), 0);
		(void)close(fd);
	}
}

/* ---- Packs by URL --------------------------------------------------------- */

static enum kiln_status open_pack(int fd, const char *url, uint64_t *out_handle,
				  uint64_t *out_size)
{
	struct answer answer;

	client_send(fd, KI_FRAME_OPEN, 21, url, strlen(url));
	answer = client_expect(fd, KI_FRAME_OPENED, 21);
	*out_handle = ki_get_u64(answer.body);
	*out_size = ki_get_u64(answer.body + 8);
	free(answer.body);
	return (enum kiln_status)answer.frame.status;
}

static struct answer range(int fd, uint64_t handle, uint64_t offset,
			   uint32_t size)
{
	uint8_t body[KI_FRAME_RANGE_BYTES] = { 0 };

	ki_put_u64(body, handle);
	ki_put_u64(body + 8, offset);
	ki_put_u32(body + 16, size);
	client_send(fd, KI_FRAME_RANGE, 22, body, sizeof(body));
	return client_expect(fd, KI_FRAME_RANGED, 22);
}

static enum kiln_status range_status(int fd, uint64_t handle, uint64_t offset,
				     uint32_t size)
{
	struct answer answer = range(fd, handle, offset, size);

	free(answer.body);
	return (enum kiln_status)answer.frame.status;
}

static void a_pack_on_a_server_is_read_in_parts(void **state)
{
	enum { SIZE = 300000 };
	static uint8_t bytes[SIZE];
	struct server_nginx_options options = { 0 };
	struct server *nginx = server_nginx(directory, &options);
	char url[256], *file, *folder;
	uint64_t handle, size, other;
	struct answer answer;
	pid_t pid;
	int fd;

	if (!nginx || !redis)
		HARNESS_LEAVE_OUT("no nginx, or no redis-server");
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (uint8_t)(i * 7 >> 3);
	folder = harness_path(directory, "www");
	file = harness_path(folder, "a.pack");
	harness_write(file, bytes, SIZE);
	pid = serve("");
	fd = client_open(path);
	snprintf(url, sizeof(url), "%sa.pack", server_url(nginx));
	assert_int_equal(open_pack(fd, url, &handle, &size), KILN_OK);
	assert_int_equal(size, SIZE);
	answer = range(fd, handle, 1234, 100000);
	assert_int_equal(answer.frame.status, KILN_OK);
	assert_int_equal(answer.frame.size, 100000);
	assert_memory_equal(answer.body, bytes + 1234, 100000);
	free(answer.body);
	assert_int_not_equal(range_status(fd, handle, SIZE - 5, 6), KILN_OK);
	assert_int_equal(range_status(fd, handle + 1, 0, 6), KILN_E_INVALID);
	assert_int_equal(range_status(fd, handle, 0, UINT32_MAX),
			 KILN_E_TOO_LARGE);
	/* Another file in its place is another pack. */
	bytes[0] ^= 1;
	assert_int_equal(unlink(file), 0);
	harness_write(file, bytes, SIZE - 1);
	assert_int_equal(range_status(fd, handle, 0, 6), KILN_E_IO);
	assert_int_equal(open_pack(fd, url, &other, &size), KILN_OK);
	assert_int_equal(size, SIZE - 1);
	assert_int_equal(range_status(fd, other, 0, 6), KILN_OK);
	for (unsigned i = 2; i < PACK_HANDLES_MAX; i++)
		assert_int_equal(open_pack(fd, url, &other, &size), KILN_OK);
	assert_int_equal(open_pack(fd, url, &other, &size), KILN_E_FULL);
	assert_int_equal(range_status(fd, handle + 1, 0, 6), KILN_OK);
	(void)close(fd);
	fd = client_open(path);
	snprintf(url, sizeof(url), "%snone.pack", server_url(nginx));
	assert_int_equal(open_pack(fd, url, &other, &size), KILN_MISS);
	assert_int_equal(open_pack(fd, "gopher://x/y", &other, &size),
			 KILN_E_INVALID);
	assert_int_equal(open_pack(fd, server_url(redis), &other, &size),
			 KILN_E_UNSUPPORTED);
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);
	server_stop(nginx);
	free(file);
	free(folder);
}

static void every_source_is_tried_end_to_end(void **state)
{
	json_t *told, *source;
	pid_t pid;
	int fd;

	if (!redis)
		HARNESS_LEAVE_OUT("no redis-server");
	pid = serve("#ttl=1h redis://127.0.0.1:1");
	fd = client_open(path);
	for (int i = 0; i < 2; i++) {
		told = client_tell(fd, 1);
		source = json_array_get(json_object_get(told, "sources"), 0);
		assert_true(json_is_true(json_object_get(source, "ok")));
		source = json_array_get(json_object_get(told, "sources"), 1);
		assert_true(json_is_false(json_object_get(source, "ok")));
		json_decref(told);
	}
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);
}

/* What does not fit an answer is left out of it. */
static void of_servers_with_long_urls_as_many_are_told_of_as_fit(void **state)
{
	enum { N = 20, URL_BYTES = 6000 };
	size_t room = N * (URL_BYTES + 64);
	char *remote = malloc(room), *at = remote;
	const char *settings[] = { remote, "KILN_REMOTE_TRUST=transport",
				   NULL };
	pid_t pid;
	int fd;

	at += snprintf(at, room, "KILN_REMOTE=");
	for (int i = 0; i < N; i++)
		at += snprintf(at, room - (size_t)(at - remote),
			       "%shttp://127.0.0.1:1/%0*d", i ? "," : "",
			       URL_BYTES, i);
	pid = process_serve(program, path, settings);
	fd = client_open(path);
	for (uint32_t what = 0; what < 2; what++) {
		json_t *told = client_tell(fd, what);
		size_t n = json_array_size(json_object_get(told, "sources"));

		assert_in_range(n, 5, N - 1);
		assert_int_equal(
			json_integer_value(json_object_get(told, "left_out")),
			N - n);
		json_decref(told);
	}
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);
	free(remote);
}

int main(int argc, char **argv)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
		ROW(what_one_program_puts_another_gets),
		ROW(a_program_that_ends_at_once_has_put_all_the_same),
		ROW(memory_that_could_change_is_not_taken),
		ROW(sizes_that_overflow_are_cut_off),
		ROW(one_machine_builds_and_the_others_wait),
		ROW(a_holder_that_dies_makes_room_for_the_next),
		ROW(who_takes_its_question_back_is_granted_nothing),
		ROW(prefetched_items_wait_in_memory),
		ROW(a_good_item_comes_nearer),
		ROW(a_lease_ends_with_the_helper_that_is_told_to_end),
		ROW(a_pack_on_a_server_is_read_in_parts),
		ROW(every_source_is_tried_end_to_end),
		ROW(of_servers_with_long_urls_as_many_are_told_of_as_fit),
	};
#undef ROW

	if (argc < 2) {
		fprintf(stderr, "usage: %s kiln-remote\n", argv[0]);
		return 2;
	}
	program = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
