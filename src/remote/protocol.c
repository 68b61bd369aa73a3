/* SPDX-License-Identifier: MIT */

#include "remote/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "sys/sys.h"

/* ---- Frames ----------------------------------------------------------------- */

/* What sizes the body of a frame can have. */
static const struct {
	uint32_t min, max;
	uint32_t unit; /* a multiple of it */
} bodies[] = {
	[KI_FRAME_HELLO] = { KI_FRAME_HELLO_BYTES, KI_REMOTE_BODY_MAX, 1 },
	[KI_FRAME_GET] = { KI_FRAME_GET_BYTES, KI_FRAME_GET_BYTES, 1 },
	[KI_FRAME_ITEM] = { KI_FRAME_ITEM_HEAD_BYTES + KI_ITEM_HEADER_BYTES,
			    KI_FRAME_ITEM_HEAD_BYTES + KI_REMOTE_ITEM_MAX, 1 },
	[KI_FRAME_MISS] = { KI_FRAME_MISS_BYTES, KI_FRAME_MISS_BYTES, 1 },
	[KI_FRAME_VERDICT] = { KI_FRAME_VERDICT_BYTES, KI_FRAME_VERDICT_BYTES,
			       1 },
	[KI_FRAME_PUT] = { KI_FRAME_PUT_BYTES, KI_FRAME_PUT_BYTES, 1 },
	[KI_FRAME_PREFETCH] = { KI_REMOTE_NAME_BYTES, KI_REMOTE_BODY_MAX,
				KI_REMOTE_NAME_BYTES },
	[KI_FRAME_LEASE] = { KI_FRAME_LEASE_BYTES, KI_FRAME_LEASE_BYTES, 1 },
	[KI_FRAME_LEASED] = { 0, 0, 1 },
	[KI_FRAME_UNLEASE] = { KI_REMOTE_NAME_BYTES, KI_REMOTE_NAME_BYTES, 1 },
	[KI_FRAME_OPEN] = { 1, KI_REMOTE_TEXT_MAX, 1 },
	[KI_FRAME_OPENED] = { KI_FRAME_OPENED_BYTES, KI_FRAME_OPENED_BYTES, 1 },
	[KI_FRAME_RANGE] = { KI_FRAME_RANGE_BYTES, KI_FRAME_RANGE_BYTES, 1 },
	[KI_FRAME_RANGED] = { 0, (uint32_t)KI_REMOTE_ITEM_MAX, 1 },
	[KI_FRAME_TELL] = { 4, 4, 1 },
	[KI_FRAME_TOLD] = { 0, KI_REMOTE_BODY_MAX, 1 },
	[KI_FRAME_DRAIN] = { 4, 4, 1 },
	[KI_FRAME_DRAINED] = { 0, 0, 1 },
};

void ki_frame_put(uint8_t out[KI_FRAME_BYTES], const struct ki_frame *frame)
{
	ki_put_u32(out, frame->size);
	out[4] = frame->type;
	out[5] = frame->flags;
	ki_put_u16(out + 6, (uint16_t)frame->status);
	ki_put_u64(out + 8, frame->id);
}

enum kiln_status ki_frame_get(const uint8_t in[KI_FRAME_BYTES],
			      struct ki_frame *out_frame)
{
	struct ki_frame frame = {
		.size = ki_get_u32(in),
		.type = in[4],
		.flags = in[5],
		.status = (int16_t)ki_get_u16(in + 6),
		.id = ki_get_u64(in + 8),
	};

	if (frame.type < KI_FRAME_HELLO || frame.type > KI_FRAME_DRAINED ||
	    frame.size < bodies[frame.type].min ||
	    frame.size > bodies[frame.type].max ||
	    frame.size % bodies[frame.type].unit)
		return KILN_E_FORMAT;
	*out_frame = frame;
	return KILN_OK;
}

/* ---- Names ------------------------------------------------------------------ */

void ki_remote_name(const uint8_t record_digest[KI_REMOTE_NAME_BYTES],
		    uint64_t user_version,
		    uint8_t out_name[KI_REMOTE_NAME_BYTES])
{
	uint8_t bytes[KI_REMOTE_NAME_BYTES + 8];

	if (!user_version) {
		memmove(out_name, record_digest, KI_REMOTE_NAME_BYTES);
		return;
	}
	memcpy(bytes, record_digest, KI_REMOTE_NAME_BYTES);
	ki_put_u64(bytes + KI_REMOTE_NAME_BYTES, user_version);
	ki_blake2b(bytes, sizeof(bytes), out_name);
}

/* ---- Where the helper is ---------------------------------------------------- */

#define SALT	   "salt"
#define SALT_BYTES 32
#define NAME_BYTES 16 /* of the digest, in the socket's name */

/* clang-format off */
const char *const ki_remote_variables[] = {
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"AWS_REGION", "AWS_ENDPOINT_URL", "REDISCLI_AUTH",
	"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
	"no_proxy", "NO_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	NULL,
};
/* clang-format on */

/* Framed, and different from an empty one if it is not there. */
static void add_text(struct ki_bytes *bytes, const char *text)
{
	ki_bytes_add_u8(bytes, text != NULL);
	ki_bytes_add_u32(bytes, text ? (uint32_t)strlen(text) : 0);
	if (text)
		ki_bytes_add_string(bytes, text);
}

static int read_salt(const struct ki_sys *sys, const char *path,
		     uint8_t out[SALT_BYTES])
{
	void *data;
	size_t size;
	int err = ki_read_file(sys, path, SALT_BYTES, &data, &size);

	if (err)
		return err;
	if (size == SALT_BYTES)
		memcpy(out, data, SALT_BYTES);
	ki_sign_wipe(data, size);
	free(data);
	return size == SALT_BYTES ? 0 : -EINVAL;
}

/* Whole or not at all, and the first one stays. */
static int make_salt(const struct ki_sys *sys, const char *path)
{
	uint8_t salt[SALT_BYTES], tag[8];
	char temporary[KI_PATH_MAX], digits[2 * sizeof(tag) + 1];
	int fd, err = sys->random(sys, salt, sizeof(salt));

	if (!err)
		err = sys->random(sys, tag, sizeof(tag));
	if (err)
		return err;
	ki_hex(tag, sizeof(tag), digits);
	if (snprintf(temporary, sizeof(temporary), "%s.%s", path, digits) >=
	    (int)sizeof(temporary))
		return -ENAMETOOLONG;
	fd = sys->open(sys, temporary,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE,
		       0600);
	if (fd < 0)
		return fd;
	err = ki_pwrite_all(sys, fd, salt, sizeof(salt), 0);
	if (sys->close(sys, fd) && !err)
		err = -EIO;
	if (!err)
		err = sys->rename_new(sys, temporary, path);
	if (err)
		(void)sys->unlink(sys, temporary);
	ki_sign_wipe(salt, sizeof(salt));
	return err == -EEXIST ? 0 : err;
}

/* Whoever else could write there would choose the salt, and whoever could read it
   would need to guess only the secret. */
static int check_directory(const struct ki_sys *sys, const char *directory)
{
	struct ki_file_info info;
	int err = sys->lstat(sys, directory, &info);

	if (err)
		return err;
	return S_ISDIR(info.mode) && info.uid == ki_user_id() &&
			       !(info.mode & 077)
		       ? 0
		       : -EPERM;
}

static enum kiln_status add_salt(const struct ki_sys *sys,
				 const char *directory, struct ki_bytes *bytes)
{
	char path[KI_PATH_MAX];
	uint8_t salt[SALT_BYTES];
	int err = ki_path_join(path, directory, SALT);

	if (err)
		return KILN_E_INVALID;
	err = check_directory(sys, directory);
	if (err == -ENOENT) {
		err = ki_make_directories(sys, directory);
		if (!err)
			err = check_directory(sys, directory);
	}
	if (!err)
		err = read_salt(sys, path, salt);
	if (err == -ENOENT) {
		err = make_salt(sys, path);
		if (!err)
			err = read_salt(sys, path, salt);
	}
	if (err)
		return err == -EPERM ? KILN_E_OWNER : KILN_E_IO;
	ki_bytes_add(bytes, salt, sizeof(salt));
	ki_sign_wipe(salt, sizeof(salt));
	return KILN_OK;
}

static enum kiln_status add_environment(const struct ki_sys *sys,
					const char *directory,
					struct ki_bytes *bytes)
{
	int is_any = 0;

	for (size_t i = 0; ki_remote_variables[i]; i++) {
		const char *value = ki_environment(ki_remote_variables[i]);

		add_text(bytes, value);
		is_any |= value != NULL;
	}
	return is_any ? add_salt(sys, directory, bytes) : KILN_OK;
}

/* 0 where it cannot be told: then nobody here can tell. */
static uint64_t network_namespace(const struct ki_sys *sys)
{
	struct ki_file_info info;

	return sys->stat(sys, "/proc/self/ns/net", &info) ? 0 : info.inode;
}

enum kiln_status ki_remote_socket(const struct ki_remote_place *place,
				  char *out_path, size_t size)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint8_t digest[KI_BLAKE2B_BYTES];
	char digits[2 * NAME_BYTES + 1];
	struct ki_bytes bytes;
	enum kiln_status status;

	ki_bytes_init(&bytes);
	ki_bytes_add_u32(&bytes, KI_REMOTE_VERSION);
	add_text(&bytes, place->remote);
	add_text(&bytes, place->credentials);
	add_text(&bytes, place->signing_key);
	add_text(&bytes, place->trust);
	ki_bytes_add_u32(&bytes, ki_user_id());
	ki_bytes_add_u64(&bytes, network_namespace(sys));
	status = add_environment(sys, place->directory, &bytes);
	if (!status && bytes.failed)
		status = KILN_E_NO_MEMORY;
	if (!status) {
		ki_blake2b(bytes.data, bytes.size, digest);
		ki_hex(digest, NAME_BYTES, digits);
		if (snprintf(out_path, size, "%s/remote-%s.sock",
			     place->directory, digits) >= (int)size)
			status = KILN_E_INVALID;
	}
	ki_sign_wipe(bytes.data, bytes.size);
	ki_bytes_fini(&bytes);
	return status;
}
