/* SPDX-License-Identifier: MIT */

/*
 * Packs of a kiln: files that are asked after the store and before the tiers
 * given, and never written.  Nothing of them is copied to the store: they are
 * on this machine as it is, and would be there twice.
 *
 * A pack that is not there or cannot be trusted costs a line in the log and
 * what it might have answered.
 */

#include "core/cache.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/pack.h>

#include "remote/range.h"

/* The options of a kiln or of a store, as a pack's. */
static enum kiln_status open_pack(const char *path, uint32_t flags,
				  struct kiln_pack_options *options,
				  struct kiln_tier **out_tier)
{
	if (flags & KILN_OPEN_GUEST)
		options->flags |= KILN_PACK_GUEST;
	/* Who looks is shown what there is, whole or not. */
	if (flags & KILN_OPEN_ANY_OWNER)
		options->flags |= KILN_PACK_ANY_OWNER | KILN_PACK_UNSIGNED |
				  KILN_PACK_SALVAGE;
	else if (flags & KILN_OPEN_SIGNED)
		options->flags |= KILN_PACK_SIGNED;
	return kiln_pack_open(path, options, out_tier);
}

enum kiln_status ki_store_pack_open(const struct ki_store_options *options,
				    struct kiln_tier **out_tier)
{
	struct kiln_pack_options pack = {
		.size = sizeof(pack),
		.user_version = options->user_version,
		.trusted_keys = options->trusted_keys,
		.n_trusted_keys = options->n_trusted_keys,
		.log = options->log,
		.log_arg = options->log_arg,
	};

	return open_pack(options->directory, options->flags, &pack, out_tier);
}

/* ---- On servers -------------------------------------------------------------- */

static int is_url(const char *path)
{
	return !strncmp(path, "http://", 7) || !strncmp(path, "https://", 8) ||
	       !strncmp(path, "s3://", 5);
}

static int64_t device_bytes(void *context)
{
	return (int64_t)ki_range_bytes(context);
}

static ssize_t device_read(uint64_t offset, void *buffer, size_t count,
			   void *context)
{
	return ki_range_read(context, offset, buffer, count);
}

static void device_release(void *context)
{
	ki_range_close(context);
}

/* Through the helper of these options.  The URL stays as long as the pack. */
static enum kiln_status open_url(const char *url,
				 const struct kiln_options *options,
				 const struct kiln_pack_options *pack,
				 struct kiln_tier **out_tier)
{
	struct kiln_pack_device device;
	char socket[KI_PATH_MAX];
	struct ki_range *range;
	enum kiln_status status = ki_kiln_socket(options, socket);

	if (!status)
		status = ki_range_open(&ki_sys_posix, socket, url,
				       !!(options->flags & KILN_OPEN_GUEST),
				       &range);
	if (status)
		return status;
	kiln_pack_device_init(&device);
	device.flags = KILN_PACK_REMOTE;
	device.n_calls = KI_RANGE_CALLS;
	device.bytes = device_bytes;
	device.read = device_read;
	device.release = device_release;
	device.context = range;
	device.name = url;
	status = kiln_pack_open_device(&device, pack, out_tier);
	if (status)
		ki_range_close(range);
	return status;
}

/* ---- The list --------------------------------------------------------------- */

/* The next path of a list, and its size; NULL behind the last.  A path may be
   empty. */
static const char *next_path(const char **inout_rest, size_t *out_size)
{
	const char *path = *inout_rest;

	if (!path)
		return NULL;
	*out_size = strcspn(path, ",");
	*inout_rest = path[*out_size] ? path + *out_size + 1 : NULL;
	return path;
}

/* Whether kiln-remote can read it. */
static int is_server(const char *path, size_t size)
{
	char *url = strndup(path, size), why[64];
	int is_good = url && !ki_remote_check(url, why, sizeof(why));

	free(url);
	return is_good;
}

const char *ki_packs_fault(const char *list)
{
	const char *path;
	size_t size, n = 0;

	while ((path = next_path(&list, &size)) != NULL) {
		if (is_url(path) && memchr(path, '@', size))
			return "has a user or a password in a URL, where "
			       "everybody sees it; write it into the file that "
			       "KILN_REMOTE_CREDENTIALS names";
		if (is_url(path) && memchr(path, '?', size))
			return "has a query in a URL, where passwords come "
			       "and everybody sees them; credentials go into "
			       "the file that KILN_REMOTE_CREDENTIALS names";
		if ((*path != '/' && !is_url(path)) || size < 2 ||
		    size >= KI_PATH_MAX)
			return "is not a list of packs; use paths from the "
			       "root, http://, https:// or s3://, with a comma "
			       "between";
		if (is_url(path) && !is_server(path, size))
			return "has a URL that cannot be one, or a word behind "
			       "its # that is not known; ca=FILE and "
			       "timeout=MS are";
		if (++n > KI_PACKS_MAX)
			return "are more than 16 packs";
	}
	return NULL;
}

/* ---- Of a kiln -------------------------------------------------------------- */

static int open_one(struct kiln *kiln, const struct kiln_options *options,
		    const char *path, size_t size)
{
	struct ki_pack_given *given = &kiln->packs[kiln->n_packs];
	struct kiln_pack_options pack = {
		.size = sizeof(pack),
		.user_version = options->user_version,
		.trusted_keys = options->trusted_keys,
		.n_trusted_keys = options->n_trusted_keys,
		.log = options->log,
		.log_arg = options->log_arg,
	};

	given->path = strndup(path, size);
	if (!given->path)
		return 0;
	kiln->n_packs++;
	if (!is_url(given->path)) {
		given->status = open_pack(given->path, options->flags, &pack,
					  &given->tier);
		return 1;
	}
	given->status = open_url(given->path, options, &pack, &given->tier);
	if (given->status)
		ki_kiln_log(kiln, KILN_LOG_WARNING,
			    "%s: the pack is not used: %s", given->path,
			    given->status == KILN_E_UNSUPPORTED
				    ? "there is no kiln-remote to ask"
				    : kiln_status_name(given->status));
	return 1;
}

int ki_packs_have_url(const char *list)
{
	const char *path;
	size_t size;

	while ((path = next_path(&list, &size)) != NULL)
		if (is_url(path))
			return 1;
	return 0;
}

int ki_kiln_open_packs(struct kiln *kiln, const struct kiln_options *options)
{
	const char *rest = options->packs, *path;
	size_t size;

	while ((path = next_path(&rest, &size)) != NULL)
		if (!open_one(kiln, options, path, size))
			return 0;
	return 1;
}

void ki_kiln_close_packs(struct kiln *kiln)
{
	while (kiln->n_packs) {
		struct ki_pack_given *given = &kiln->packs[--kiln->n_packs];

		if (given->tier)
			given->tier->ops->close(given->tier);
		free(given->path);
		*given = (struct ki_pack_given){ NULL, KILN_OK, NULL };
	}
}

int ki_kiln_has_in_pack(const struct kiln *kiln, const struct kiln_key *key)
{
	struct kiln_blob *value;

	for (size_t i = 0; i < kiln->n_packs; i++) {
		struct kiln_tier *tier = kiln->packs[i].tier;

		if (tier && !tier->ops->get(tier, key, &value, NULL)) {
			kiln_blob_unref(value);
			return 1;
		}
	}
	return 0;
}

const char *kiln_pack_given(const struct kiln *kiln, size_t n,
			    enum kiln_status *out_status)
{
	if (!kiln || n >= kiln->n_packs)
		return NULL;
	*out_status = kiln->packs[n].status;
	return kiln->packs[n].path;
}
