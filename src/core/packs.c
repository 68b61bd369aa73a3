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

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/pack.h>

#include "base/text.h"
#include "remote/range.h"
#include "remote/url.h"

#define SHOWN_MAX 200 /* bytes of what is wrong */
#define BLANKS	  " \t\r\n"

static struct kiln_pack_options options_of(const struct ki_store_options *store)
{
	return (struct kiln_pack_options){
		.size = sizeof(struct kiln_pack_options),
		.user_version = store->user_version,
		.trusted_keys = store->trusted_keys,
		.n_trusted_keys = store->n_trusted_keys,
		.log = store->log,
		.log_arg = store->log_arg,
	};
}

enum kiln_status ki_store_pack_open(const struct ki_store_options *options,
				    struct kiln_tier **out_tier)
{
	struct kiln_pack_options pack = options_of(options);

	if (options->flags & KILN_OPEN_GUEST)
		pack.flags |= KILN_PACK_GUEST;
	/* Who looks is shown what there is, whole or not. */
	if (options->flags & KILN_OPEN_ANY_OWNER)
		pack.flags |= KILN_PACK_ANY_OWNER | KILN_PACK_UNSIGNED |
			      KILN_PACK_SALVAGE;
	else if (options->flags & KILN_OPEN_SIGNED)
		pack.flags |= KILN_PACK_SIGNED;
	return kiln_pack_open(options->directory, &pack, out_tier);
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
				 const struct ki_store_options *store,
				 struct kiln_tier **out_tier)
{
	const struct kiln_pack_options pack = options_of(store);
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
	status = kiln_pack_open_device(&device, &pack, out_tier);
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

/* ---- What is wrong with a list ----------------------------------------------- */

/* Where a list is looked at: what is refused is said into `why`. */
struct check {
	char *why;
	size_t why_size;
	const char *pack;
	size_t size;
	size_t n; /* its place, from 1 on */
};

/* What may have a password in it is not shown, nor what would move a cursor. */
static enum kiln_status refuse(const struct check *check, const char *fault)
{
	const int is_shown = !memchr(check->pack, '@', check->size) &&
			     !memchr(check->pack, '?', check->size);

	if (is_shown && check->size)
		(void)snprintf(check->why, check->why_size,
			       "pack %zu, \"%.*s\": %s", check->n,
			       check->size < SHOWN_MAX ? (int)check->size
						       : SHOWN_MAX,
			       check->pack, fault);
	else
		(void)snprintf(check->why, check->why_size, "pack %zu: %s",
			       check->n, fault);
	if (check->why_size)
		(void)ki_tame_text(check->why);
	return KILN_E_INVALID;
}

/* What packs have of the words of a level.  There is one, for the comma between two
   would begin another pack; what is behind a second # is part of its value. */
static int is_word(const char *word)
{
	return !strncmp(word, "ca=", 3) || !strncmp(word, "timeout=", 8);
}

static enum kiln_status check_word(const struct check *check, const char *url,
				   const char *word)
{
	enum kiln_status status = KILN_E_INVALID;
	char unused[256];

	assert(!strchr(word, ','));
	if (is_word(word))
		status = ki_remote_check(url, unused, sizeof(unused));
	return status == KILN_E_INVALID
		       ? refuse(check, "its word behind # is not known or has "
				       "no such value; ca=FILE, with FILE from "
				       "the root, and timeout=MS are")
		       : status;
}

/* As kiln-remote will take it. */
static enum kiln_status check_server(const struct check *check, char *text)
{
	char *word = strchr(text, '#'), why[256];
	struct url url = { 0 };
	enum kiln_status status;

	if (text[strcspn(text, BLANKS)])
		return refuse(check, "there is a blank in a URL; a comma "
				     "separates packs, and a blank of a path "
				     "is written %20");
	if (strchr(text, '?'))
		return refuse(check,
			      "it has a query, where passwords come and "
			      "everybody sees them; write them into the file "
			      "that KILN_REMOTE_CREDENTIALS names (a ? of a "
			      "path is %3F)");
	if (word)
		*word = '\0';
	status = ki_url_parse(text, &url, why, sizeof(why));
	ki_url_fini(&url);
	if (status == KILN_E_INVALID)
		return refuse(check, why);
	if (status || !word)
		return status;
	*word = '#';
	return check_word(check, text, word + 1);
}

/* A second one behind a blank, which no path has by intent. */
static int has_url_inside(const char *path)
{
	for (path += strcspn(path, BLANKS); *path;
	     path += strcspn(path, BLANKS))
		if (is_url(++path))
			return 1;
	return 0;
}

static enum kiln_status check_one(const struct check *check)
{
	char *text = strndup(check->pack, check->size);
	enum kiln_status status = KILN_OK;

	if (!text)
		return KILN_E_NO_MEMORY;
	if (!*text)
		status = refuse(check, "it is empty; a comma separates packs, "
				       "and stands nowhere else");
	else if (check->size >= KI_PATH_MAX)
		status = refuse(check, "it is too long");
	else if (is_url(text))
		status = check_server(check, text);
	else if (*text != '/' || check->size < 2)
		status = refuse(check,
				"it is neither a path from the root nor "
				"an http://, https:// or s3:// URL; a "
				"comma, without a blank, separates packs");
	else if (has_url_inside(text))
		status = refuse(check, "there is a URL behind a blank; a comma "
				       "separates packs");
	free(text);
	return status;
}

enum kiln_status ki_packs_check(const char *list, char *why, size_t why_size)
{
	struct check check = { .why = why, .why_size = why_size };
	enum kiln_status status = KILN_OK;

	while (!status &&
	       (check.pack = next_path(&list, &check.size)) != NULL) {
		if (++check.n > KI_PACKS_MAX)
			status = refuse(&check, "there are more than 16 packs");
		else
			status = check_one(&check);
	}
	if (status == KILN_E_NO_MEMORY)
		(void)snprintf(why, why_size, "no memory");
	return status;
}

/* ---- Of a kiln -------------------------------------------------------------- */

static int open_one(struct kiln *kiln, const struct kiln_options *options,
		    const char *path, size_t size)
{
	struct ki_pack_given *given = &kiln->packs[kiln->n_packs];
	struct ki_store_options store = ki_kiln_store_options(kiln, options);

	given->path = strndup(path, size);
	if (!given->path)
		return 0;
	kiln->n_packs++;
	if (!is_url(given->path)) {
		store.directory = given->path;
		given->status = ki_store_pack_open(&store, &given->tier);
		return 1;
	}
	given->status = open_url(given->path, options, &store, &given->tier);
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
