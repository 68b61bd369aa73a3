/* SPDX-License-Identifier: MIT */

/*
 * What a program may send to kiln-remote: the first byte says how much of the
 * input comes in a first piece, the rest are frames after a greeting; with each
 * piece comes a descriptor of sealed memory.  What must hold besides surviving: the
 * connection ends when the program has closed it, and nothing of it is left.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz/scratch.h"
#include "remote-helper/helper.h"
#include "remote-helper/loop.h"

#define MEMORY_BYTES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct helper helper;
static struct place place;

static enum kiln_status open_nothing(struct loop *loop, const char *url,
				     const char *ca_file,
				     const struct credentials *credentials,
				     struct backend **out_backend, char *why,
				     size_t why_size)
{
	return KILN_E_UNSUPPORTED;
}

/* One for all inputs, as it is for all programs. */
static struct loop *start(void)
{
	struct helper_options options = { .place = &place,
					  .idle_ms = 3600000,
					  .memory_bytes_max = 1 << 20,
					  .open = open_nothing };
	static struct loop *loop;
	char path[4200], why[512];

	if (loop)
		return loop;
	loop = loop_new();
	snprintf(path, sizeof(path), "%s/fuzz.sock", scratch_directory());
	if (place_take(&place, path, why, sizeof(why)) ||
	    helper_begin(&helper, loop, &options, why, sizeof(why)))
		abort();
	return loop;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		abort();
	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		abort();
	return fd;
}

/* The memory that goes with whatever is a PUT. */
static int sealed_memory(void)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, MEMORY_BYTES) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		abort();
	return fd;
}

static void send_piece(int fd, const uint8_t *bytes, size_t size, int memory)
{
	union {
		struct cmsghdr aligned;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec piece = { (void *)(uintptr_t)bytes, size };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

	if (memory >= 0) {
		struct cmsghdr *part;

		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		part = CMSG_FIRSTHDR(&message);
		part->cmsg_level = SOL_SOCKET;
		part->cmsg_type = SCM_RIGHTS;
		part->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(part), &memory, sizeof(int));
	}
	if (size)
		(void)!sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void greet(int fd)
{
	uint8_t bytes[KI_FRAME_BYTES + KI_FRAME_HELLO_BYTES] = { 0 };
	struct ki_frame frame = { .size = KI_FRAME_HELLO_BYTES,
				  .type = KI_FRAME_HELLO };

	ki_frame_put(bytes, &frame);
	ki_put_u32(bytes + KI_FRAME_BYTES, KI_REMOTE_MAGIC);
	ki_put_u16(bytes + KI_FRAME_BYTES + 4, KI_REMOTE_VERSION);
	ki_put_u16(bytes + KI_FRAME_BYTES + 6, KI_REMOTE_VERSION);
	send_piece(fd, bytes, sizeof(bytes), -1);
}

static void look(void *arg)
{
	struct loop *loop = arg;

	if (!helper.n_connections)
		loop_stop(loop);
	else if (!loop_after(loop, 0, look, loop))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct loop *loop = start();
	size_t first;
	int fd, memory;

	if (size < 1 || size > 60000)
		return 0;
	first = (size_t)data[0] * 8 < size - 1 ? (size_t)data[0] * 8 : size - 1;
	data++;
	size--;
	fd = connect_to(place.path);
	memory = sealed_memory();
	greet(fd);
	send_piece(fd, data, first, memory);
	send_piece(fd, data + first, size - first, memory);
	(void)close(memory);
	(void)close(fd);
	/* Until it was accepted and is gone. */
	while (!helper.n_accepted) {
		loop_after(loop, 0, look, loop);
		loop_run(loop);
	}
	helper.n_accepted = 0;
	loop_after(loop, 0, look, loop);
	loop_run(loop);
	if (helper.fetches.names.n || helper.leases.names.n ||
	    helper.uploads.n || !ki_list_is_empty(&helper.connections))
		abort();
	return 0;
}
