/* SPDX-License-Identifier: MIT */

#include "remote/peer_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/hash.h"
#include "sys/sys.h"

#define CONNECTIONS_MAX 64
#define ITEMS_MAX	1024
#define TYPES		32

struct item {
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct ki_bytes bytes;
	int was_asked_for;
};

struct guest {
	struct peer *peer;
	pthread_t thread;
	int fd;
};

struct peer {
	char *directory, *path;
	int listen_fd;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	/* Under mutex. */
	enum peer_manner manner;
	uint64_t capabilities;
	uint32_t later_ms, item_bits;
	struct ki_item_seal how;
	struct guest guests[CONNECTIONS_MAX];
	unsigned n_guests, n_gone;
	struct item items[ITEMS_MAX];
	size_t n_items;
	unsigned n_frames[TYPES];
	const uint8_t *file;
	size_t file_size;
	unsigned put_flags, n_ahead;
	int verdict;
	uint32_t wait_ms;
	uint8_t lease[KI_REMOTE_NAME_BYTES];
	int lease_fd; /* whose it is, or -1 */
};

/* ---- Sockets ---------------------------------------------------------------- */

static int send_all(int fd, const void *data, size_t size)
{
	const uint8_t *place = data;

	while (size) {
		ssize_t n = send(fd, place, size, MSG_NOSIGNAL);

		if (n <= 0)
			return 0;
		place += n;
		size -= (size_t)n;
	}
	return 1;
}

/* With the descriptor that came along, or -1. */
static int receive_all(int fd, void *data, size_t size, int *out_along)
{
	uint8_t *place = data;

	while (size) {
		char control[CMSG_SPACE(sizeof(int))];
		struct iovec piece = { place, size };
		struct msghdr message = { .msg_iov = &piece,
					  .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
		struct cmsghdr *header;

		if (n <= 0)
			return 0;
		header = CMSG_FIRSTHDR(&message);
		if (header && header->cmsg_type == SCM_RIGHTS)
			memcpy(out_along, CMSG_DATA(header), sizeof(int));
		place += n;
		size -= (size_t)n;
	}
	return 1;
}

static int answer(int fd, uint8_t type, uint64_t id, int16_t status,
		  const void *body, size_t size)
{
	const struct ki_frame frame = {
		.size = (uint32_t)size, .type = type, .status = status, .id = id
	};
	uint8_t head[KI_FRAME_BYTES];

	ki_frame_put(head, &frame);
	return send_all(fd, head, sizeof(head)) &&
	       (!size || send_all(fd, body, size));
}

static int greet(struct peer *peer, int fd, enum peer_manner manner)
{
	uint8_t body[KI_FRAME_WELCOME_BYTES] = { 0 };
	const uint16_t version =
		KI_REMOTE_VERSION + (manner == PEER_NEWER ? 1 : 0);

	ki_put_u32(body, manner == PEER_OTHER_MAGIC ? 1 : KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, version);
	ki_put_u16(body + 6, version);
	pthread_mutex_lock(&peer->mutex);
	ki_put_u64(body + 8, peer->capabilities);
	ki_put_u32(body + 28, peer->later_ms);
	pthread_mutex_unlock(&peer->mutex);
	return answer(fd, KI_FRAME_HELLO, 0, 0, body, sizeof(body));
}

/* ---- Items ------------------------------------------------------------------ */

static struct item *find_locked(struct peer *peer, const uint8_t *name)
{
	for (size_t i = 0; i < peer->n_items; i++)
		if (!memcmp(peer->items[i].name, name, KI_REMOTE_NAME_BYTES))
			return &peer->items[i];
	return NULL;
}

static void keep(struct peer *peer, const uint8_t *name,
		 const struct ki_item *what, const struct ki_item_seal *how)
{
	struct item *item;

	pthread_mutex_lock(&peer->mutex);
	item = find_locked(peer, name);
	if (!item) {
		if (peer->n_items == ITEMS_MAX)
			abort();
		item = &peer->items[peer->n_items++];
		memcpy(item->name, name, sizeof(item->name));
		ki_bytes_init(&item->bytes);
		item->was_asked_for = 0;
	}
	ki_bytes_clear(&item->bytes);
	if (ki_item_seal(what, how, &item->bytes))
		abort();
	pthread_mutex_unlock(&peer->mutex);
}

static void take_put(struct peer *peer, const struct ki_frame *frame,
		     const uint8_t *body, int along)
{
	struct ki_item item = {
		.user_version = ki_get_u64(body + 32),
		.record_size = (size_t)ki_get_u64(body + 40),
		.metadata_size = (size_t)ki_get_u64(body + 48),
		.value_size = (size_t)ki_get_u64(body + 56),
	};
	const size_t size =
		item.record_size + item.metadata_size + item.value_size;
	struct ki_item_seal how;
	uint8_t *memory;

	if (along < 0)
		return;
	memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE, along, 0);
	if (memory == MAP_FAILED)
		abort();
	item.record = memory;
	item.metadata = memory + item.record_size;
	item.value = memory + item.record_size + item.metadata_size;
	pthread_mutex_lock(&peer->mutex);
	peer->put_flags = frame->flags;
	how = peer->how;
	pthread_mutex_unlock(&peer->mutex);
	keep(peer, body, &item, &how);
	munmap(memory, size);
	close(along);
}

static int answer_miss(int fd, uint64_t id, uint32_t later_ms, uint32_t reasons)
{
	uint8_t body[KI_FRAME_MISS_BYTES];

	ki_put_u32(body, later_ms);
	ki_put_u32(body + 4, reasons);
	return answer(fd, KI_FRAME_MISS, id, 0, body, sizeof(body));
}

/* ITEM of these bytes, or less of them than it says. */
static int answer_item(int fd, uint64_t id, uint32_t bits,
		       const struct ki_bytes *bytes, size_t size)
{
	uint8_t head[KI_FRAME_BYTES + KI_FRAME_ITEM_HEAD_BYTES] = { 0 };
	const struct ki_frame frame = {
		.size = (uint32_t)(KI_FRAME_ITEM_HEAD_BYTES + bytes->size),
		.type = KI_FRAME_ITEM,
		.id = id
	};

	ki_frame_put(head, &frame);
	ki_put_u32(head + KI_FRAME_BYTES + 4, bits);
	return send_all(fd, head, sizeof(head)) &&
	       send_all(fd, bytes->data, size) && size == bytes->size;
}

static int answer_get(struct peer *peer, int fd, uint64_t id,
		      const uint8_t *body)
{
	const uint32_t first = ki_get_u32(body + 36);
	struct ki_bytes copy;
	struct item *item;
	uint32_t bits;
	int is_good = 1, is_there, is_late = 0;

	ki_bytes_init(&copy);
	pthread_mutex_lock(&peer->mutex);
	item = find_locked(peer, body);
	if (peer->manner == PEER_OTHERS_ITEM)
		for (size_t i = 0; i < peer->n_items; i++)
			if (&peer->items[i] != item)
				item = &peer->items[i];
	if (item && peer->manner == PEER_FAR && !item->was_asked_for)
		is_late = item->was_asked_for = 1;
	is_there = item && !first && !is_late;
	if (is_there)
		ki_bytes_add(&copy, item->bytes.data, item->bytes.size);
	if (is_there && peer->manner == PEER_CUT_ITEM)
		copy.size -= 7;
	bits = peer->item_bits;
	pthread_mutex_unlock(&peer->mutex);
	if (is_there)
		is_good = answer_item(fd, id, bits, &copy, copy.size);
	else
		is_good = answer_miss(
			fd, id, 0, is_late ? KI_REMOTE_LATE : KI_REMOTE_ABSENT);
	ki_bytes_fini(&copy);
	return is_good;
}

static int answer_lease(struct peer *peer, int fd, uint64_t id,
			const uint8_t *body)
{
	const uint32_t wait_ms = ki_get_u32(body + KI_REMOTE_NAME_BYTES);
	int16_t status = KILN_E_TIMEOUT;
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += wait_ms % 1000 * 1000000;
	end.tv_sec += wait_ms / 1000 + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	pthread_mutex_lock(&peer->mutex);
	while (peer->lease_fd >= 0 && !find_locked(peer, body) &&
	       !pthread_cond_timedwait(&peer->changed, &peer->mutex, &end))
		;
	if (find_locked(peer, body)) {
		status = KILN_EXISTS;
	} else if (peer->lease_fd < 0) {
		memcpy(peer->lease, body, sizeof(peer->lease));
		peer->lease_fd = fd;
		status = KILN_OK;
	}
	while (peer->manner == PEER_LATE_LEASED)
		pthread_cond_wait(&peer->changed, &peer->mutex);
	pthread_mutex_unlock(&peer->mutex);
	return answer(fd, KI_FRAME_LEASED, id, status, NULL, 0);
}

/* Handles are good on their own connection. */
#define HANDLES 1000u

static int answer_open(struct peer *peer, int fd, uint64_t id)
{
	uint8_t body[KI_FRAME_OPENED_BYTES];
	int16_t status;

	pthread_mutex_lock(&peer->mutex);
	status = peer->file ? KILN_OK : KILN_MISS;
	ki_put_u64(body, (uint64_t)fd * HANDLES +
				 peer->n_frames[KI_FRAME_OPEN] % HANDLES);
	ki_put_u64(body + 8, peer->file_size);
	pthread_mutex_unlock(&peer->mutex);
	return answer(fd, KI_FRAME_OPENED, id, status, body, sizeof(body));
}

static int answer_range(struct peer *peer, int fd, uint64_t id,
			const uint8_t *body)
{
	const uint64_t offset = ki_get_u64(body + 8);
	const uint32_t size = ki_get_u32(body + 16);
	int is_good;

	if (ki_get_u64(body) / HANDLES != (uint64_t)fd)
		return answer(fd, KI_FRAME_RANGED, id, KILN_E_INVALID, NULL, 0);
	pthread_mutex_lock(&peer->mutex);
	if (offset > peer->file_size || size > peer->file_size - offset)
		is_good = answer(fd, KI_FRAME_RANGED, id, KILN_E_IO, NULL, 0);
	else
		is_good = answer(fd, KI_FRAME_RANGED, id, KILN_OK,
				 peer->file + offset, size);
	pthread_mutex_unlock(&peer->mutex);
	return is_good;
}

/* ---- Manners ---------------------------------------------------------------- */

static void pause_ms(unsigned ms)
{
	ki_sys_posix.sleep_ns(&ki_sys_posix, ms * (uint64_t)1000000);
}

static int send_junk(int fd)
{
	uint8_t junk[4096];

	memset(junk, 0xa5, sizeof(junk));
	while (send_all(fd, junk, sizeof(junk)))
		;
	return 0;
}

/* Answers a GET as this manner has it; 0: hangs up. */
static int misbehave(struct peer *peer, enum peer_manner manner, int fd,
		     const struct ki_frame *asked, const uint8_t *body)
{
	const struct ki_frame huge = { .size = (uint32_t)KI_REMOTE_ITEM_MAX,
				       .type = KI_FRAME_ITEM,
				       .id = asked->id };
	const struct ki_frame half = { .size = 4096,
				       .type = KI_FRAME_ITEM,
				       .id = asked->id };
	uint8_t head[KI_FRAME_BYTES];

	switch (manner) {
	case PEER_DEAF:
	case PEER_MUTE:
		return 1;
	case PEER_LATE:
		pause_ms(60);
		return answer_get(peer, fd, asked->id, body);
	case PEER_WRONG_ID:
		return answer_miss(fd, asked->id + 1000, 0, 0);
	case PEER_OLD_ID:
		return answer_get(peer, fd, asked->id, body) &&
		       answer_get(peer, fd, asked->id, body);
	case PEER_WRONG_TYPE:
		return answer(fd, KI_FRAME_LEASED, asked->id, 0, NULL, 0);
	case PEER_TOO_LONG:
		return answer(fd, KI_FRAME_MISS, asked->id, 0, "123456789", 9);
	case PEER_HUGE:
		ki_frame_put(head, &huge);
		return send_all(fd, head, sizeof(head)) &&
		       send_all(fd, body, 40);
	case PEER_ENDLESS:
	case PEER_GARBAGE:
		if (manner == PEER_ENDLESS)
			return send_junk(fd);
		return send_all(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
	case PEER_TWO_HELLOS:
		return greet(peer, fd, PEER_GOOD);
	case PEER_HALF_HEAD:
		(void)send_all(fd, "1234567", 7);
		return 0;
	case PEER_HALF_BODY:
		ki_frame_put(head, &half);
		(void)send_all(fd, head, sizeof(head));
		(void)send_all(fd, body, 40);
		return 0;
	case PEER_HANGS_UP:
		return 0;
	case PEER_QUIET:
		return answer_miss(fd, asked->id, 60000, KI_REMOTE_BROKEN);
	default:
		return answer_get(peer, fd, asked->id, body);
	}
}

static void note(struct peer *peer, int fd, const struct ki_frame *frame,
		 const uint8_t *body)
{
	pthread_mutex_lock(&peer->mutex);
	if (frame->type == KI_FRAME_UNLEASE && peer->lease_fd == fd)
		peer->lease_fd = -1;
	if (frame->type == KI_FRAME_VERDICT)
		peer->verdict = (int)ki_get_u32(body + 36);
	if (frame->type == KI_FRAME_PREFETCH)
		peer->n_ahead += frame->size / KI_REMOTE_NAME_BYTES;
	if (frame->type == KI_FRAME_GET)
		peer->wait_ms = ki_get_u32(body + 32);
	peer->n_frames[frame->type]++;
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->mutex);
}

/* What is answered is noted before the answer, what is kept when it is. */
static int serve_frame(struct peer *peer, enum peer_manner manner, int fd,
		       const struct ki_frame *frame, const uint8_t *body,
		       int along)
{
	int is_good = 1;

	if (frame->type != KI_FRAME_PUT)
		note(peer, fd, frame, body);
	switch (frame->type) {
	case KI_FRAME_HELLO:
		/* A guest may be gone already: what it said still counts. */
		if (manner != PEER_DEAF && manner != PEER_NO_HELLO)
			(void)greet(peer, fd, manner);
		break;
	case KI_FRAME_GET:
		is_good = misbehave(peer, manner, fd, frame, body);
		break;
	case KI_FRAME_PUT:
		take_put(peer, frame, body, along);
		break;
	case KI_FRAME_LEASE:
		is_good = answer_lease(peer, fd, frame->id, body);
		break;
	case KI_FRAME_TELL:
		is_good = answer(fd, KI_FRAME_TOLD, frame->id, 0,
				 "{\"helper\":{}}", 13);
		break;
	case KI_FRAME_OPEN:
		is_good = answer_open(peer, fd, frame->id);
		break;
	case KI_FRAME_RANGE:
		is_good = answer_range(peer, fd, frame->id, body);
		break;
	case KI_FRAME_DRAIN:
		is_good = answer(fd, KI_FRAME_DRAINED, frame->id, 0, NULL, 0);
		break;
	default:
		break;
	}
	if (frame->type == KI_FRAME_PUT)
		note(peer, fd, frame, body);
	return is_good;
}

static int serve_one(struct peer *peer, int fd)
{
	uint8_t head[KI_FRAME_BYTES], *body;
	enum peer_manner manner;
	struct ki_frame frame;
	int along = -1, is_good = 0;

	if (!receive_all(fd, head, sizeof(head), &along) ||
	    ki_frame_get(head, &frame))
		return 0;
	body = malloc(frame.size + 1);
	if (body && receive_all(fd, body, frame.size, &along)) {
		pthread_mutex_lock(&peer->mutex);
		manner = peer->manner;
		pthread_mutex_unlock(&peer->mutex);
		is_good = serve_frame(peer, manner, fd, &frame, body, along);
	}
	free(body);
	return is_good;
}

static void *serve(void *arg)
{
	struct guest *guest = arg;
	struct peer *peer = guest->peer;
	int is_short;

	pthread_mutex_lock(&peer->mutex);
	is_short = peer->manner == PEER_HANGS_UP_AT_ONCE;
	pthread_mutex_unlock(&peer->mutex);
	while (!is_short && serve_one(peer, guest->fd))
		;
	shutdown(guest->fd, SHUT_RDWR);
	pthread_mutex_lock(&peer->mutex);
	if (peer->lease_fd == guest->fd)
		peer->lease_fd = -1;
	peer->n_gone++;
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->mutex);
	return NULL;
}

/* ---- Life ------------------------------------------------------------------- */

static void *take_guests(void *arg)
{
	struct peer *peer = arg;
	int fd;

	while ((fd = accept(peer->listen_fd, NULL, NULL)) >= 0) {
		struct guest *guest;

		pthread_mutex_lock(&peer->mutex);
		if (peer->n_guests == CONNECTIONS_MAX)
			abort();
		guest = &peer->guests[peer->n_guests++];
		guest->peer = peer;
		guest->fd = fd;
		if (pthread_create(&guest->thread, NULL, serve, guest))
			abort();
		pthread_mutex_unlock(&peer->mutex);
	}
	return NULL;
}

struct peer *peer_new(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct peer *peer = calloc(1, sizeof(*peer));

	assert_non_null(peer);
	peer->directory = harness_directory();
	peer->path = path ? strdup(path)
			  : harness_path(peer->directory, "peer.sock");
	peer->capabilities = KI_REMOTE_CAN_PUT | KI_REMOTE_CAN_LEASE;
	peer->lease_fd = -1;
	peer->verdict = -1;
	pthread_mutex_init(&peer->mutex, NULL);
	pthread_cond_init(&peer->changed, NULL);
	peer->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(strlen(peer->path) < sizeof(name.sun_path));
	strcpy(name.sun_path, peer->path);
	assert_int_equal(
		bind(peer->listen_fd, (struct sockaddr *)&name, sizeof(name)),
		0);
	assert_int_equal(listen(peer->listen_fd, 64), 0);
	assert_int_equal(pthread_create(&peer->thread, NULL, take_guests, peer),
			 0);
	return peer;
}

void peer_settle(struct peer *peer)
{
	pthread_mutex_lock(&peer->mutex);
	while (peer->n_gone < peer->n_guests)
		pthread_cond_wait(&peer->changed, &peer->mutex);
	for (; peer->n_guests; peer->n_guests--) {
		struct guest *guest = &peer->guests[peer->n_guests - 1];

		pthread_join(guest->thread, NULL);
		close(guest->fd);
	}
	peer->n_gone = 0;
	pthread_mutex_unlock(&peer->mutex);
}

void peer_free(struct peer *peer)
{
	shutdown(peer->listen_fd, SHUT_RDWR);
	pthread_join(peer->thread, NULL);
	close(peer->listen_fd);
	peer_behave(peer, PEER_GOOD);
	for (unsigned i = 0; i < peer->n_guests; i++)
		shutdown(peer->guests[i].fd, SHUT_RDWR);
	peer_settle(peer);
	unlink(peer->path);
	peer_drop_all(peer);
	pthread_mutex_destroy(&peer->mutex);
	pthread_cond_destroy(&peer->changed);
	free(peer->path);
	free(peer->directory);
	free(peer);
}

const char *peer_path(const struct peer *peer)
{
	return peer->path;
}

/* ---- Asking and telling ------------------------------------------------------ */

void peer_behave(struct peer *peer, enum peer_manner manner)
{
	pthread_mutex_lock(&peer->mutex);
	peer->manner = manner;
	pthread_cond_broadcast(&peer->changed);
	pthread_mutex_unlock(&peer->mutex);
}

void peer_can(struct peer *peer, uint64_t capabilities, uint32_t later_ms)
{
	pthread_mutex_lock(&peer->mutex);
	peer->capabilities = capabilities;
	peer->later_ms = later_ms;
	pthread_mutex_unlock(&peer->mutex);
}

void peer_say_of_items(struct peer *peer, uint32_t bits)
{
	pthread_mutex_lock(&peer->mutex);
	peer->item_bits = bits;
	pthread_mutex_unlock(&peer->mutex);
}

void peer_seal(struct peer *peer, const struct ki_item_seal *how)
{
	pthread_mutex_lock(&peer->mutex);
	peer->how = *how;
	pthread_mutex_unlock(&peer->mutex);
}

#define READ(type, function, expression)                                       \
	type function                                                          \
	{                                                                      \
		type value;                                                    \
                                                                               \
		pthread_mutex_lock(&peer->mutex);                              \
		value = expression;                                            \
		pthread_mutex_unlock(&peer->mutex);                            \
		return value;                                                  \
	}

READ(unsigned, peer_count(struct peer *peer, enum ki_frame_type type),
     peer->n_frames[type])
READ(unsigned, peer_connections(struct peer *peer), peer->n_guests)
READ(unsigned, peer_connected(struct peer *peer), peer->n_guests - peer->n_gone)
READ(unsigned, peer_put_flags(struct peer *peer), peer->put_flags)
READ(int, peer_verdict(struct peer *peer), peer->verdict)
READ(uint32_t, peer_wait_ms(struct peer *peer), peer->wait_ms)
READ(unsigned, peer_ahead(struct peer *peer), peer->n_ahead)

void peer_await(struct peer *peer, enum ki_frame_type type, unsigned n)
{
	struct timespec end;
	int err = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += HARNESS_HANG_S;
	pthread_mutex_lock(&peer->mutex);
	while (peer->n_frames[type] < n && !err)
		err = pthread_cond_timedwait(&peer->changed, &peer->mutex,
					     &end);
	pthread_mutex_unlock(&peer->mutex);
	assert_int_equal(err, 0);
}

static void name_of(const struct kiln_key *key, uint64_t version,
		    uint8_t out[KI_REMOTE_NAME_BYTES])
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	size_t size;
	const void *record = kiln_key_record(key, &size);

	ki_blake2b(record, size, digest);
	ki_remote_name(digest, version, out);
}

void peer_add(struct peer *peer, const struct kiln_key *key, uint64_t version,
	      const void *value, size_t size, const struct ki_item_seal *how)
{
	struct ki_item item = { .user_version = version,
				.value = value,
				.value_size = size };
	uint8_t name[KI_REMOTE_NAME_BYTES];

	item.record = kiln_key_record(key, &item.record_size);
	name_of(key, version, name);
	keep(peer, name, &item, how);
}

int peer_has(struct peer *peer, const struct kiln_key *key, uint64_t version)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	int is_there;

	name_of(key, version, name);
	pthread_mutex_lock(&peer->mutex);
	is_there = find_locked(peer, name) != NULL;
	pthread_mutex_unlock(&peer->mutex);
	return is_there;
}

void peer_drop_all(struct peer *peer)
{
	pthread_mutex_lock(&peer->mutex);
	while (peer->n_items)
		ki_bytes_fini(&peer->items[--peer->n_items].bytes);
	pthread_mutex_unlock(&peer->mutex);
}

void peer_serve(struct peer *peer, const void *data, size_t size)
{
	pthread_mutex_lock(&peer->mutex);
	peer->file = data;
	peer->file_size = size;
	pthread_mutex_unlock(&peer->mutex);
}

void peer_hang_up(struct peer *peer)
{
	pthread_mutex_lock(&peer->mutex);
	for (unsigned i = 0; i < peer->n_guests; i++)
		shutdown(peer->guests[i].fd, SHUT_RDWR);
	pthread_mutex_unlock(&peer->mutex);
}
