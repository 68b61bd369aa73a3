/* SPDX-License-Identifier: MIT */

#include "client_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/harness.h"

#include <jansson.h>

#include "base/hash.h"
#include "key/key.h"

int client_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = HARNESS_HANG_S };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_true(strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		(void)close(fd);
		return -1;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

void client_hello(int fd)
{
	uint8_t body[KI_FRAME_HELLO_BYTES] = { 0 };

	ki_put_u32(body, KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, KI_REMOTE_VERSION);
	ki_put_u16(body + 6, KI_REMOTE_VERSION);
	ki_put_u32(body + 16, (uint32_t)getpid());
	client_send(fd, KI_FRAME_HELLO, 0, body, sizeof(body));
}

int client_open(const char *path)
{
	struct answer answer;
	int fd = client_connect(path);

	assert_true(fd >= 0);
	client_hello(fd);
	assert_true(client_receive(fd, &answer));
	assert_int_equal(answer.frame.type, KI_FRAME_HELLO);
	assert_true(answer.frame.size >= KI_FRAME_WELCOME_BYTES);
	assert_int_equal(ki_get_u32(answer.body), KI_REMOTE_MAGIC);
	free(answer.body);
	return fd;
}

/* Who was cut off meanwhile notices when it reads. */
static void send_bytes(int fd, const void *bytes, size_t size, int passed)
{
	union {
		struct cmsghdr aligned;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec piece = { (void *)(uintptr_t)bytes, size };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	ssize_t n;

	if (passed >= 0) {
		struct cmsghdr *part;

		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		part = CMSG_FIRSTHDR(&message);
		part->cmsg_level = SOL_SOCKET;
		part->cmsg_type = SCM_RIGHTS;
		part->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(part), &passed, sizeof(int));
	}
	while (piece.iov_len) {
		n = sendmsg(fd, &message, MSG_NOSIGNAL);
		if (n < 0)
			return;
		piece.iov_base = (uint8_t *)piece.iov_base + n;
		piece.iov_len -= (size_t)n;
		message.msg_controllen = 0;
	}
}

void client_send_fd(int fd, enum ki_frame_type type, uint64_t id,
		    const void *body, size_t size, int passed)
{
	struct ki_frame frame = { .size = (uint32_t)size,
				  .type = (uint8_t)type,
				  .id = id };
	uint8_t *bytes = malloc(KI_FRAME_BYTES + size);

	ki_frame_put(bytes, &frame);
	if (size)
		memcpy(bytes + KI_FRAME_BYTES, body, size);
	send_bytes(fd, bytes, KI_FRAME_BYTES + size, passed);
	free(bytes);
}

void client_send(int fd, enum ki_frame_type type, uint64_t id, const void *body,
		 size_t size)
{
	client_send_fd(fd, type, id, body, size, -1);
}

static int receive_bytes(int fd, uint8_t *out, size_t size)
{
	ssize_t n;

	for (size_t done = 0; done < size; done += (size_t)n) {
		n = recv(fd, out + done, size - done, 0);
		if (n <= 0)
			return 0;
	}
	return 1;
}

int client_receive(int fd, struct answer *out_answer)
{
	uint8_t head[KI_FRAME_BYTES];

	if (!receive_bytes(fd, head, sizeof(head)))
		return 0;
	assert_int_equal(ki_frame_get(head, &out_answer->frame), KILN_OK);
	out_answer->body = malloc(out_answer->frame.size + 1);
	if (receive_bytes(fd, out_answer->body, out_answer->frame.size))
		return 1;
	free(out_answer->body);
	return 0;
}

int client_is_cut_off(int fd)
{
	uint8_t bytes[4096];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		;
	return !n || (n < 0 && errno == ECONNRESET);
}

void client_get(int fd, uint64_t id, const uint8_t name[KI_REMOTE_NAME_BYTES],
		uint32_t ms, uint32_t from)
{
	uint8_t body[KI_FRAME_GET_BYTES];

	memcpy(body, name, KI_REMOTE_NAME_BYTES);
	ki_put_u32(body + 32, ms);
	ki_put_u32(body + 36, from);
	client_send(fd, KI_FRAME_GET, id, body, sizeof(body));
}

void client_verdict(int fd, const uint8_t name[KI_REMOTE_NAME_BYTES],
		    uint32_t level, int is_good)
{
	uint8_t body[KI_FRAME_VERDICT_BYTES];

	memcpy(body, name, KI_REMOTE_NAME_BYTES);
	ki_put_u32(body + 32, level);
	ki_put_u32(body + 36, (uint32_t)is_good);
	client_send(fd, KI_FRAME_VERDICT, 0, body, sizeof(body));
}

void client_lease(int fd, uint64_t id, const uint8_t name[KI_REMOTE_NAME_BYTES],
		  uint32_t ms)
{
	uint8_t body[KI_FRAME_LEASE_BYTES];

	memcpy(body, name, KI_REMOTE_NAME_BYTES);
	ki_put_u32(body + KI_REMOTE_NAME_BYTES, ms);
	client_send(fd, KI_FRAME_LEASE, id, body, sizeof(body));
}

void client_unlease(int fd, const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	client_send(fd, KI_FRAME_UNLEASE, 0, name, KI_REMOTE_NAME_BYTES);
}

struct answer client_expect(int fd, enum ki_frame_type type, uint64_t id)
{
	struct answer answer;

	assert_true(client_receive(fd, &answer));
	assert_int_equal(answer.frame.type, type);
	assert_int_equal(answer.frame.id, id);
	return answer;
}

void client_drain(int fd)
{
	struct answer answer;
	uint8_t body[4];

	ki_put_u32(body, HARNESS_HANG_S * 1000);
	client_send(fd, KI_FRAME_DRAIN, 4711, body, sizeof(body));
	answer = client_expect(fd, KI_FRAME_DRAINED, 4711);
	assert_int_equal(answer.frame.status, KILN_OK);
	free(answer.body);
}

struct json_t *client_tell(int fd, uint32_t what)
{
	struct answer answer;
	json_t *told;
	uint8_t body[4];

	ki_put_u32(body, what);
	client_send(fd, KI_FRAME_TELL, 4712, body, sizeof(body));
	answer = client_expect(fd, KI_FRAME_TOLD, 4712);
	told = json_loadb((const char *)answer.body, answer.frame.size, 0,
			  NULL);
	assert_non_null(told);
	free(answer.body);
	return told;
}

/* ---- Names and entries --------------------------------------------------- */

void client_name(uint8_t out[KI_REMOTE_NAME_BYTES], uint64_t number)
{
	ki_blake2b(&number, sizeof(number), out);
}

struct entry entry_new(uint64_t number, size_t value_size)
{
	struct entry entry = { .key = kiln_key_new(),
			       .value = malloc(value_size + 1),
			       .value_size = value_size };
	uint8_t digest[KI_REMOTE_NAME_BYTES];

	kiln_key_add(entry.key, "number", &number, sizeof(number));
	assert_int_equal(kiln_key_finish(entry.key), KILN_OK);
	ki_blake2b(entry.key->record.data, entry.key->record.size, digest);
	ki_remote_name(digest, 0, entry.name);
	for (size_t i = 0; i < value_size; i++)
		entry.value[i] = (uint8_t)("kernel void "[i % 12] +
					   (i * number >> 6) % 7);
	return entry;
}

void entry_fini(struct entry *entry)
{
	kiln_key_free(entry->key);
	free(entry->value);
}

int entry_memory(const struct entry *entry, size_t *out_record_size)
{
	int fd = memfd_create("entry", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t record_size = entry->key->record.size;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, entry->key->record.data, record_size),
			 record_size);
	assert_int_equal(write(fd, entry->value, entry->value_size),
			 entry->value_size);
	assert_int_equal(
		fcntl(fd, F_ADD_SEALS,
		      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL),
		0);
	*out_record_size = record_size;
	return fd;
}

void client_put(int fd, const struct entry *entry, unsigned flags)
{
	struct ki_frame frame = { .size = KI_FRAME_PUT_BYTES,
				  .type = KI_FRAME_PUT,
				  .flags = (uint8_t)flags };
	uint8_t bytes[KI_FRAME_BYTES + KI_FRAME_PUT_BYTES] = { 0 };
	uint8_t *body = bytes + KI_FRAME_BYTES;
	size_t record_size;
	int memory = entry_memory(entry, &record_size);

	ki_frame_put(bytes, &frame);
	memcpy(body, entry->name, KI_REMOTE_NAME_BYTES);
	ki_put_u64(body + 40, record_size);
	ki_put_u64(body + 56, entry->value_size);
	send_bytes(fd, bytes, sizeof(bytes), memory);
	(void)close(memory);
}

enum kiln_status client_fetch(int fd, const struct entry *entry, uint32_t ms,
			      uint32_t *out_reasons)
{
	struct kiln_blob *value, *metadata;
	enum kiln_status status = KILN_MISS;
	struct answer answer;

	client_get(fd, 4713, entry->name, ms, 0);
	assert_true(client_receive(fd, &answer));
	assert_int_equal(answer.frame.id, 4713);
	if (answer.frame.type == KI_FRAME_MISS) {
		if (out_reasons)
			*out_reasons = ki_get_u32(answer.body + 4);
	} else {
		assert_int_equal(answer.frame.type, KI_FRAME_ITEM);
		status = ki_item_open(entry->key, 0, NULL,
				      answer.body + KI_FRAME_ITEM_HEAD_BYTES,
				      answer.frame.size -
					      KI_FRAME_ITEM_HEAD_BYTES,
				      &value, &metadata);
		if (!status) {
			assert_int_equal(kiln_blob_size(value),
					 entry->value_size);
			assert_memory_equal(kiln_blob_data(value), entry->value,
					    entry->value_size);
			kiln_blob_unref(value);
			kiln_blob_unref(metadata);
		}
	}
	free(answer.body);
	return status;
}
