/* SPDX-License-Identifier: MIT */

/*
 * The remote of a kiln: what is asked of it, what it is given, and where its
 * helper is.
 *
 * At the first look-up that comes here, the order in which this program asked for
 * things before is fetched from the store or else from the remote, so that what
 * comes next is fetched ahead (remote/ahead.h).  A remote that is far away does not
 * have it there in the time of a look-up, and is where fetching ahead counts most: the
 * helper goes on with it, and later look-ups ask again, without waiting.
 *
 * What leaves the machine is what was built here, if all of its key may leave:
 * nothing that was found in a pack or in the remote itself, no failure, and no
 * bookkeeping but orders.
 *
 * What comes is put into the store, but for a store where it would get a signature
 * of ours and the transport is what is trusted: whoever trusts our key would run
 * what nobody has signed.
 */

#include "core/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/remote.h>

#include "base/bytes.h"
#include "remote/url.h"

#define DIRECTORY "kiln"
/* How often an order is asked for. */
#define ORDERS_MAX 64

/* ---- Settings --------------------------------------------------------------- */

enum kiln_status ki_remote_check(const char *list, char *why, size_t why_size)
{
	struct levels levels = { 0 };
	enum kiln_status status = ki_levels_parse(list, &levels, why, why_size);

	ki_levels_fini(&levels);
	return status;
}

const char *ki_remote_trust_fault(const char *word)
{
	return !word || !strcmp(word, "signed") || !strcmp(word, "transport")
		       ? NULL
		       : "is neither signed nor transport";
}

/* ---- Where the helper is ---------------------------------------------------- */

static int below(char out[KI_PATH_MAX], const char *variable, const char *name)
{
	const char *directory = ki_environment(variable);

	return directory && *directory == '/' &&
	       snprintf(out, KI_PATH_MAX, "%s/%s", directory, name) <
		       KI_PATH_MAX;
}

static int find_directory(char out[KI_PATH_MAX])
{
	return below(out, "XDG_RUNTIME_DIR", DIRECTORY) ||
	       below(out, "XDG_CACHE_HOME", DIRECTORY "/run") ||
	       below(out, "HOME", ".cache/" DIRECTORY "/run");
}

enum kiln_status ki_kiln_socket(const struct kiln_options *options,
				char out_path[KI_PATH_MAX])
{
	char directory[KI_PATH_MAX];
	const struct ki_remote_place place = {
		.remote = options->remote,
		.credentials = options->remote_credentials,
		.signing_key = options->signing_key,
		.trust = options->remote_trust ? options->remote_trust
					       : "signed",
		.directory = directory,
	};

	if (!find_directory(directory))
		return KILN_MISS;
	return ki_remote_socket(&place, out_path, KI_PATH_MAX);
}

/* ---- Opening ---------------------------------------------------------------- */

static void count_for(void *arg, enum kiln_counter counter, uint64_t n)
{
	ki_kiln_count(arg, counter, n);
}

static int trust_keys(struct kiln *kiln, const struct kiln_options *options)
{
	struct ki_sign_public key;

	for (size_t i = 0; i < options->n_trusted_keys; i++)
		if (ki_sign_public_parse(options->trusted_keys[i], &key) ||
		    ki_sign_trust_add(&kiln->remote_trust, &key))
			return 0;
	return 1;
}

int ki_kiln_open_remote(struct kiln *kiln, const struct kiln_options *options)
{
	const int is_signed = !options->remote_trust ||
			      strcmp(options->remote_trust, "transport") != 0;
	char socket[KI_PATH_MAX];
	const struct ki_remote_options remote = {
		.sys = &ki_sys_posix,
		.socket = socket,
		.user_version = options->user_version,
		.is_guest = !!(options->flags & KILN_OPEN_GUEST),
		.trust = is_signed ? &kiln->remote_trust : NULL,
		.count = count_for,
		.count_arg = kiln,
		.log = options->log,
		.log_arg = options->log_arg,
	};
	enum kiln_status status;

	if (options->flags & KILN_OPEN_ANY_OWNER)
		return 1;
	status = ki_kiln_socket(options, socket);
	if (status == KILN_E_NO_MEMORY)
		return 0;
	if (status) {
		ki_kiln_log(kiln, KILN_LOG_WARNING,
			    "remote: not used, as there is no place for its "
			    "socket: XDG_RUNTIME_DIR, XDG_CACHE_HOME and HOME "
			    "name no directory that can be used");
		return 1;
	}
	return trust_keys(kiln, options) &&
	       !ki_remote_open(&remote, &kiln->remote);
}

void ki_kiln_close_remote(struct kiln *kiln)
{
	if (kiln->remote)
		ki_remote_tier(kiln->remote)
			->ops->close(ki_remote_tier(kiln->remote));
	kiln->remote = NULL;
	ki_sign_trust_fini(&kiln->remote_trust);
}

int ki_kiln_keeps_remote(const struct kiln *kiln)
{
	return !(kiln->flags & KI_KILN_SIGNED) ||
	       ki_remote_is_signed(kiln->remote);
}

int kiln_remote_takes(const struct kiln *kiln)
{
	return kiln && kiln->remote && ki_kiln_writes(kiln) &&
	       ki_remote_takes(kiln->remote);
}

/* ---- What will be asked for ------------------------------------------------- */

static int has_names(const struct kiln_blob *order)
{
	const uint8_t *name;

	return !kiln_order_name(kiln_blob_data(order), kiln_blob_size(order), 0,
				&name);
}

static void keep_order(struct kiln *kiln, const struct kiln_key *key,
		       const char *application, const struct kiln_blob *order)
{
	struct kiln_metadata *metadata;
	const void *bytes;
	size_t size;

	if (!kiln->has_store || !ki_kiln_keeps_remote(kiln))
		return;
	metadata = ki_kiln_describe_order(application);
	if (!kiln_metadata_bytes(metadata, &bytes, &size))
		(void)ki_kiln_put_in_store(kiln, key, bytes, size,
					   kiln_blob_data(order),
					   kiln_blob_size(order));
	kiln_metadata_free(metadata);
}

/* From the remote, and then it is this machine's, too, if it is one.  TIMEOUT: not
   yet. */
static enum kiln_status fetch_order(struct kiln *kiln,
				    const struct kiln_key *key,
				    const char *application, int again,
				    struct kiln_blob **out_order)
{
	struct kiln_blob *order, *ignored;
	enum kiln_status status = ki_remote_get_in_time(
		kiln->remote, key, again, &order, &ignored);

	if (status)
		return status;
	kiln_blob_unref(ignored);
	if (!has_names(order)) {
		kiln_blob_unref(order);
		return KILN_MISS;
	}
	keep_order(kiln, key, application, order);
	*out_order = order;
	return KILN_OK;
}

static void expect(struct kiln *kiln, const struct kiln_blob *order)
{
	struct ki_bytes names;
	const uint8_t *name;

	ki_bytes_init(&names);
	for (size_t n = 0; !kiln_order_name(kiln_blob_data(order),
					    kiln_blob_size(order), n, &name);
	     n++) {
		uint8_t *place = ki_bytes_grow(&names, KI_REMOTE_NAME_BYTES);

		if (!place)
			break;
		ki_remote_name(name, ki_remote_user_version(kiln->remote),
			       place);
	}
	ki_remote_expect(kiln->remote, names.data,
			 names.size / KI_REMOTE_NAME_BYTES);
	ki_bytes_fini(&names);
}

/* TIMEOUT: it may be had later. */
static enum kiln_status look_for_order(struct kiln *kiln, int again)
{
	char path[KI_PATH_MAX];
	const char *application = ki_kiln_application(kiln, path);
	enum kiln_status status = KILN_MISS;
	struct kiln_blob *order;
	struct kiln_key *key;

	if (!application || kiln_order_key(application, &key))
		return KILN_MISS;
	if (kiln->has_store && !again)
		status = ki_kiln_get_from_store(kiln, key, &order);
	if (status)
		status = fetch_order(kiln, key, application, again, &order);
	if (!status) {
		expect(kiln, order);
		kiln_blob_unref(order);
	}
	kiln_key_free(key);
	return status;
}

static void expect_order(struct kiln *kiln)
{
	int n;

	if (atomic_load(&kiln->n_orders) >= ORDERS_MAX ||
	    !ki_remote_is_worth_asking(kiln->remote))
		return;
	n = atomic_fetch_add(&kiln->n_orders, 1);
	if (n < ORDERS_MAX && look_for_order(kiln, n > 0) != KILN_E_TIMEOUT)
		atomic_store(&kiln->n_orders, ORDERS_MAX);
}

/* ---- Asking and giving ------------------------------------------------------ */

enum kiln_status ki_kiln_ask_remote(struct kiln *kiln,
				    const struct kiln_key *key,
				    struct kiln_blob **out_value,
				    struct kiln_blob **out_metadata)
{
	struct kiln_tier *tier = ki_remote_tier(kiln->remote);

	if ((kiln->flags & KILN_OPEN_ORDER) && !kiln_key_is_local(key))
		expect_order(kiln);
	return tier->ops->get(tier, key, out_value, out_metadata) ? KILN_MISS
								  : KILN_OK;
}

void ki_kiln_send(struct kiln *kiln, const struct kiln_key *key,
		  const void *metadata, size_t metadata_size, const void *value,
		  size_t value_size, unsigned flags)
{
	struct kiln_tier *tier = ki_remote_tier(kiln->remote);

	if (!kiln->remote || !ki_kiln_writes(kiln))
		return;
	if (!tier->ops->put(tier, key, metadata, metadata_size, value,
			    value_size, flags))
		atomic_store(&kiln->has_sent, 1);
}

void ki_kiln_send_order(struct kiln *kiln, const struct kiln_key *key,
			const void *value, size_t value_size)
{
	if (kiln->remote)
		(void)ki_remote_put_order(kiln->remote, key, value, value_size);
}
