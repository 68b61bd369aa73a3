/* SPDX-License-Identifier: MIT */

#include "client_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/hash.h"

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

void client_name(uint8_t out[KI_REMOTE_NAME_BYTES], uint64_t number)
{
	ki_blake2b(&number, sizeof(number), out);
}
