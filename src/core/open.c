/* SPDX-License-Identifier: MIT */

/*
 * Opening and closing.  A wrong option makes opening fail, a store that cannot
 * be used does not: the kiln works without, says so once, and keeps the
 * reason.
 */

#include "core/cache.h"
#include "core/hot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/text.h"
#include "core/sycl.h"
#include "store/neo/environment.h"
#include "store/store.h"

#define NAME_BYTES_MAX 80 /* of a store's files */

/* Opening is measured in microseconds, and each new page of the stack is one:
   paths that few need are kept out of the way's own frame. */
#define ASIDE __attribute__((noinline))

typedef enum kiln_status store_open_fn(const struct ki_store_options *options,
				       struct kiln_tier **out_tier);

struct kind {
	const char *prefix;
	store_open_fn *open;
	int needs_local; /* a file system that is known to behave */
	int has_name;	 /* "#NAME" may follow */
	int has_default; /* the environment may say where */
};

static const struct kind kinds[] = {
	{ "log:", ki_store_log_open, 1, 1, 0 },
	{ "file:", ki_store_file_open, 0, 0, 0 },
	{ "neo:", ki_store_neo_open, 0, 1, 1 },
	{ "sycl:", ki_store_sycl_open, 0, 0, 1 },
	{ "pack:", ki_store_pack_open, 0, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};

/* What a URL of a store says. */
struct place {
	const struct kind *kind;
	char directory[KI_PATH_MAX];   /* "": the environment says where */
	char name[NAME_BYTES_MAX + 1]; /* "": the default */
};

/* ---- Options --------------------------------------------------------------- */

/* Options of an older caller are shorter; of a newer one, what we do not know
   must be zero. */
static int take_options(const struct kiln_options *given,
			struct kiln_options *out)
{
	const unsigned char *bytes = (const unsigned char *)given;
	size_t i;

	kiln_options_init(out);
	if (!given)
		return 1;
	if (given->size < sizeof(given->size))
		return 0;
	for (i = sizeof(*out); i < given->size; i++)
		if (bytes[i])
			return 0;
	memcpy(out, given,
	       given->size < sizeof(*out) ? given->size : sizeof(*out));
	out->size = sizeof(*out);
	return 1;
}

static int is_tier(const struct kiln_tier *tier)
{
	return tier && tier->ops && tier->ops->version == KILN_TIER_VERSION &&
	       tier->ops->get && tier->ops->close;
}

static const char *find_fault(const struct kiln_options *options)
{
	const uint32_t known = KILN_OPEN_SIGNED * 2 - 1;
	const uint32_t lookers =
		KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER | KILN_OPEN_GUEST;

	if (options->flags & ~known)
		return "flags: unknown bits";
	if ((options->flags & KILN_OPEN_SESSION) && (options->flags & lookers))
		return "flags: a session writes, and keeps a descriptor";
	if ((options->flags & KILN_OPEN_OWN_FILES) &&
	    (options->flags & (KILN_OPEN_SHARED | KILN_OPEN_ANY_OWNER)))
		return "flags: own files, or those of others";
	if (((options->flags & (KILN_OPEN_SESSION | KILN_OPEN_OWN_FILES)) ||
	     options->store_quota_bytes) &&
	    (!options->store_url || strncmp(options->store_url, "log:", 4)))
		return "flags, store_quota_bytes: of a log: store only";
	if (options->packs && (options->flags & KILN_OPEN_SESSION))
		return "packs: not of a session";
	if (options->remote && (options->flags & KILN_OPEN_SESSION))
		return "remote: not of a session";
	if (ki_remote_trust_fault(options->remote_trust))
		return "remote_trust: neither \"signed\" nor \"transport\"";
	if (options->remote_credentials && *options->remote_credentials != '/')
		return "remote_credentials: not a path from the root";
	if (!ki_kiln_keys_are_good(options))
		return "trusted_keys, signing_key: not texts of keys, or too "
		       "many";
	if ((unsigned)options->memory_order > KILN_MEMORY_INSERTION)
		return "memory_order: not a value of the enumeration";
	if ((unsigned)options->failure_policy > KILN_FAILURE_KEEP_FOR)
		return "failure_policy: not a value of the enumeration";
	if (options->n_tiers && !options->tiers)
		return "tiers: NULL, but n_tiers is not 0";
	if (options->n_tiers > KI_TIERS_MAX - 1)
		return "n_tiers: too many";
	for (size_t i = 0; i < options->n_tiers; i++)
		if (!is_tier(options->tiers[i]))
			return "tiers: not of this version, or without get "
			       "or close";
	return NULL;
}

static void complain(const struct kiln_options *options, const char *fault)
{
	if (options->log)
		options->log(options->log_arg, KILN_LOG_ERROR, fault);
}

typedef enum kiln_status check_fn(const char *list, char *why, size_t why_size);

/* The check itself says what is wrong, behind the option's name. */
ASIDE static enum kiln_status check_list(const struct kiln_options *options,
					 const char *name, const char *list,
					 check_fn *check)
{
	char why[512];
	int n = snprintf(why, sizeof(why), "%s: ", name);
	enum kiln_status status = check(list, why + n, sizeof(why) - (size_t)n);

	if (status == KILN_E_INVALID)
		complain(options, why);
	return status;
}

/* INVALID, NO_MEMORY. */
static enum kiln_status check_options(const struct kiln_options *options)
{
	const char *fault = find_fault(options);
	enum kiln_status status = KILN_OK;

	if (fault) {
		complain(options, fault);
		return KILN_E_INVALID;
	}
	if (options->packs)
		status = check_list(options, "packs", options->packs,
				    ki_packs_check);
	if (!status && options->remote)
		status = check_list(options, "remote", options->remote,
				    ki_remote_check);
	return status;
}

/* ---- The URL of a store ---------------------------------------------------- */

static const struct kind *find_kind(const char *url)
{
	const struct kind *kind;

	for (kind = kinds; kind->prefix; kind++)
		if (!strncmp(url, kind->prefix, strlen(kind->prefix)))
			return kind;
	return NULL;
}

ASIDE static int set_directory(char out[KI_PATH_MAX], const char *path,
			       size_t size)
{
	char bare[KI_PATH_MAX];

	if (size >= KI_PATH_MAX)
		return -ENAMETOOLONG;
	if (*path == '/') {
		memcpy(out, path, size);
		out[size] = '\0';
		return 0;
	}
	memcpy(bare, path, size);
	bare[size] = '\0';
	return ki_absolute_path(out, bare);
}

/* NULL, or what is wrong. */
static const char *parse_url(const char *url, struct place *out_place)
{
	const char *directory, *name = NULL;
	size_t size;

	out_place->kind = find_kind(url);
	if (!out_place->kind)
		return "expected log:DIR[#NAME], file:DIR, "
		       "neo:[DIR][#WORD,...], sycl:[DIR] or pack:FILE";
	directory = url + strlen(out_place->kind->prefix);
	if (out_place->kind->has_name)
		name = strrchr(directory, '#');
	if (name && strchr(name, '/'))
		name = NULL; /* part of the directory */
	size = name ? (size_t)(name - directory) : strlen(directory);
	out_place->directory[0] = '\0';
	if (!size && !out_place->kind->has_default)
		return "the path behind the colon is missing";
	/* Behind a slash, a symbolic link would be followed. */
	while (size > 1 && directory[size - 1] == '/')
		size--;
	if (size && set_directory(out_place->directory, directory, size))
		return "the path is too long, or there is no working "
		       "directory";
	out_place->name[0] = '\0';
	if (!name)
		return NULL;
	name++;
	if (!*name || *name == '.' || strlen(name) > NAME_BYTES_MAX)
		return "the name behind # must have 1 to 80 bytes, the first "
		       "not a dot";
	strcpy(out_place->name, name);
	return NULL;
}

/* Where the directory will be made. */
ASIDE static enum ki_file_system kind_above(const struct ki_sys *sys,
					    const char *directory)
{
	enum ki_file_system kind = KI_FS_UNKNOWN;
	char path[KI_PATH_MAX];
	char *slash;

	memcpy(path, directory, strlen(directory) + 1);
	do {
		slash = strrchr(path, '/');
		if (!slash || slash == path) {
			(void)sys->file_system(sys, "/", &kind);
			break;
		}
		*slash = '\0';
	} while (sys->file_system(sys, path, &kind));
	return kind;
}

static int is_local(const struct ki_sys *sys, const char *directory)
{
	enum ki_file_system kind;

	if (sys->file_system(sys, directory, &kind))
		kind = kind_above(sys, directory);
	return kind == KI_FS_LOCAL;
}

/* What a reader of variables found: why there is no place, or KILN_OK.  One that
   is switched off is none that was given. */
static enum kiln_status judge(struct kiln *kiln, const char *wrong, int is_on,
			      const char *directory, const char *why)
{
	if (wrong)
		ki_kiln_log(kiln, KILN_LOG_ERROR, "%s", wrong);
	else if (!*directory)
		ki_kiln_log(kiln, KILN_LOG_NOTE, "store: %s", why);
	if (wrong)
		return KILN_E_INVALID;
	if (!is_on)
		return KILN_MISS;
	return *directory ? KILN_OK : KILN_E_IO;
}

ASIDE static enum kiln_status set_neo_place(struct kiln *kiln,
					    struct kiln_options *options,
					    struct place *place)
{
	struct ki_neo_environment neo;
	enum kiln_status status;

	ki_neo_environment(&neo);
	for (size_t i = 0; i < neo.n_lines; i++)
		ki_kiln_log(kiln, KILN_LOG_WARNING, "%s", neo.lines[i]);
	status = judge(kiln, neo.is_wrong ? neo.wrong : NULL, neo.is_on,
		       neo.directory, neo.why);
	if (status)
		return status;
	memcpy(place->directory, neo.directory, sizeof(neo.directory));
	if (neo.text[KI_NEO_MAX_SIZE] && *neo.text[KI_NEO_MAX_SIZE])
		options->store_bytes_max = neo.bytes_max;
	return KILN_OK;
}

ASIDE static enum kiln_status set_sycl_place(struct kiln *kiln,
					     struct kiln_options *options,
					     struct place *place)
{
	struct ki_sycl_environment sycl;
	enum kiln_status status;
	int is_off;

	ki_sycl_environment(&sycl);
	for (size_t i = 0; i < sycl.n_lines; i++)
		ki_kiln_log(kiln, KILN_LOG_WARNING, "%s", sycl.lines[i]);
	status = judge(kiln, sycl.is_wrong ? sycl.wrong : NULL, 1,
		       sycl.directory, sycl.why);
	if (status)
		return status;
	memcpy(place->directory, sycl.directory, sizeof(sycl.directory));
	is_off = !sycl.is_dpcpp && sycl.is_given[KI_SYCL_EVICTION_DISABLE];
	if (sycl.is_given[KI_SYCL_MAX_SIZE] || is_off)
		options->store_bytes_max = sycl.bytes_max;
	if (!sycl.is_dpcpp && (sycl.is_given[KI_SYCL_THRESHOLD] || is_off))
		options->store_age_max_s = sycl.age_max_s;
	return KILN_OK;
}

static enum kiln_status set_default_place(struct kiln *kiln,
					  struct kiln_options *options,
					  struct place *place)
{
	return place->kind->open == ki_store_sycl_open
		       ? set_sycl_place(kiln, options, place)
		       : set_neo_place(kiln, options, place);
}

struct ki_store_options ki_kiln_store_options(
	const struct kiln *kiln, const struct kiln_options *options)
{
	return (struct ki_store_options){
		.sys = &ki_sys_posix,
		.bytes_max = options->store_bytes_max,
		.age_max_s = options->store_age_max_s,
		.quota_bytes = options->store_quota_bytes,
		.user_version = options->user_version,
		.flags = options->flags,
		.application = kiln->application,
		.log = options->log,
		.log_arg = options->log_arg,
		.trusted_keys = options->trusted_keys,
		.n_trusted_keys = options->n_trusted_keys,
	};
}

static enum kiln_status open_store(struct kiln *kiln,
				   const struct kiln_options *options,
				   const struct place *place)
{
	const struct kind *kind = place->kind;
	struct ki_store_options store = ki_kiln_store_options(kiln, options);

	store.directory = place->directory;
	store.name = *place->name ? place->name : NULL;
	store.is_local =
		kind->needs_local && is_local(store.sys, place->directory);
	if (kind->needs_local && !store.is_local) {
		kind = find_kind("file:");
		if (!kind ||
		    (store.flags & (KILN_OPEN_SESSION | KILN_OPEN_OWN_FILES)) ||
		    store.quota_bytes)
			return KILN_E_UNSUPPORTED;
		ki_kiln_log(kiln, KILN_LOG_NOTE,
			    "%s: not a file system known to be local: one "
			    "file per entry is used",
			    place->directory);
	}
	return kind->open(&store, &kiln->tiers[0]);
}

/* ---- Opening --------------------------------------------------------------- */

/* NULL stays NULL; 0 without memory. */
static int copy_string(const char *from, char **out)
{
	*out = from ? strdup(from) : NULL;
	return !from || *out;
}

static int copy_names(struct kiln *kiln, const struct kiln_options *options)
{
	return copy_string(options->name_space, &kiln->name_space) &&
	       copy_string(options->application, &kiln->application);
}

static enum kiln_status open_memory(struct kiln *kiln,
				    const struct kiln_options *options)
{
	const struct ki_memory_options memory = {
		.bytes_max = options->memory_bytes_max,
		.entries_max = options->memory_entries_max,
		.order = (enum ki_memory_order)options->memory_order,
		.hold_nothing = !!(options->flags &
				   (KILN_OPEN_GUEST | KILN_OPEN_NO_MEMORY)),
		.pin_nothing = !!(options->flags & KILN_OPEN_GUEST),
		.failure_policy = options->failure_policy,
		.failure_ttl_ms = options->failure_ttl_ms,
		.due = &kiln->attention,
		.stale = ki_kiln_renew,
		.stale_arg = kiln,
	};

	ki_get_or_build_choose();
	return ki_memory_new(&memory, &kiln->memory);
}

static void free_kiln(struct kiln *kiln)
{
	if (!kiln)
		return;
	ki_memory_free(kiln->memory);
	free(kiln->name_space);
	free(kiln->application);
	ki_order_free(kiln->order);
	ki_kiln_close_packs(kiln);
	ki_kiln_close_remote(kiln);
	ki_kiln_close_signatures(kiln);
	ki_kiln_close_quotas(kiln);
	kiln_blob_unref(atomic_load(&kiln->maker));
	if (atomic_load(&ki_fork_counter) == kiln->fork_counter) {
		ki_mutex_fini(&kiln->mutex);
		ki_mutex_fini(&kiln->stats_mutex);
		ki_cond_fini(&kiln->no_calls);
	}
	free(kiln);
}

static struct kiln *new_kiln(const struct kiln_options *options)
{
	struct kiln *kiln = aligned_alloc(_Alignof(struct kiln), sizeof(*kiln));

	if (!kiln)
		return NULL;
	memset(kiln, 0, sizeof(*kiln));
	kiln->fork_counter = ki_fork_generation();
	ki_mutex_init(&kiln->mutex, KI_RANK_CACHE);
	ki_mutex_init(&kiln->stats_mutex, KI_RANK_STATS);
	ki_cond_init(&kiln->no_calls);
	kiln->flags = options->flags;
	kiln->lock_timeout_ms = options->lock_timeout_ms;
	kiln->memory_bytes_max = options->memory_bytes_max;
	kiln->log = options->log;
	kiln->log_arg = options->log_arg;
	/* A guest's first hit is told at once: many a program has but a few. */
	if (!(options->flags & KILN_OPEN_GUEST))
		kiln->next_tick_ns =
			ki_sys_posix.monotonic_ns(&ki_sys_posix) + KI_TICK_NS;
	ki_kiln_calm(kiln);
	atomic_store(&kiln->quotas_state, KI_QUOTAS_NONE);
	if (open_memory(kiln, options) || !copy_names(kiln, options)) {
		free_kiln(kiln);
		return NULL;
	}
	return kiln;
}

static void close_tiers(struct kiln_tier *const *tiers, size_t n_tiers)
{
	while (n_tiers--)
		if (is_tier(tiers[n_tiers]))
			tiers[n_tiers]->ops->close(tiers[n_tiers]);
}

ASIDE static void complain_of_url(const struct kiln_options *options,
				  const char *fault)
{
	char message[KI_PATH_MAX + 128];

	snprintf(message, sizeof(message), "store_url: \"%s\": %s",
		 options->store_url, fault);
	complain(options, ki_tame_text(message));
}

/* Of other formats than kiln's own, what is behind # is no name. */
static int open_quotas(struct kiln *kiln, const struct place *place)
{
	const int is_named =
		*place->name && place->kind->open != ki_store_neo_open;

	if (place->kind->open == ki_store_pack_open)
		return 1;
	return ki_kiln_open_quotas(kiln, place->directory,
				   is_named ? place->name : "kiln");
}

/* Options without the tiers, which are closed by the caller on failure. */
static enum kiln_status open_kiln(struct kiln_options *options,
				  struct kiln **out_kiln)
{
	enum kiln_status status = check_options(options);
	struct place place;
	struct kiln *kiln;

	if (status)
		return status;
	if (options->store_url) {
		const char *fault = parse_url(options->store_url, &place);

		if (fault) {
			complain_of_url(options, fault);
			return KILN_E_INVALID;
		}
	}
	kiln = new_kiln(options);
	if (!kiln)
		return KILN_E_NO_MEMORY;
	kiln->store_status = KILN_MISS;
	if (options->store_url) {
		const int is_named = place.directory[0] != '\0';

		kiln->store_status =
			is_named ? KILN_OK
				 : set_default_place(kiln, options, &place);
		if (!kiln->store_status)
			kiln->store_status = open_store(kiln, options, &place);
		if (!kiln->store_status && !open_quotas(kiln, &place)) {
			close_tiers(kiln->tiers, 1);
			free_kiln(kiln);
			return KILN_E_NO_MEMORY;
		}
		if (kiln->store_status == KILN_EXISTS) {
			free_kiln(kiln);
			return KILN_EXISTS;
		}
		kiln->has_store = kiln->store_status == KILN_OK;
		kiln->n_tiers = kiln->has_store ? 1 : 0;
		if (!kiln->has_store && place.directory[0])
			ki_kiln_log(kiln, KILN_LOG_ERROR,
				    "%s: the store is not used: %s",
				    options->store_url,
				    kiln_status_name(kiln->store_status));
	}
	if (!ki_kiln_open_signatures(kiln, options) ||
	    (options->packs && !ki_kiln_open_packs(kiln, options)) ||
	    (options->remote && !ki_kiln_open_remote(kiln, options))) {
		close_tiers(kiln->tiers, kiln->n_tiers);
		free_kiln(kiln);
		return KILN_E_NO_MEMORY;
	}
	for (size_t i = 0; i < options->n_tiers; i++)
		kiln->tiers[kiln->n_tiers++] = options->tiers[i];
	if (ki_kiln_may_record(kiln, options->store_url))
		kiln->order = ki_order_new();
	kiln->glances = (kiln->flags & KILN_OPEN_NO_MEMORY) && !kiln->order &&
			!kiln->n_packs &&
			!(kiln->flags & (KILN_OPEN_GUEST | KI_KILN_SIGNED)) &&
			kiln->n_tiers == 1 && kiln->tiers[0]->ops->glance &&
			ki_memory_counts_looks(kiln->memory);
	if (kiln->flags & KILN_OPEN_GUEST) {
		kiln->is_expected = ki_exit_expect(kiln);
		atomic_store(&kiln->is_patient, kiln->is_expected);
	}
	*out_kiln = kiln;
	return KILN_OK;
}

enum kiln_status kiln_open(const struct kiln_options *options,
			   struct kiln **out_kiln)
{
	struct kiln_options taken;
	enum kiln_status status;

	if (!take_options(options, &taken)) {
		complain(&taken, "options: written for a newer version");
		return KILN_E_INVALID;
	}
	status = out_kiln ? open_kiln(&taken, out_kiln) : KILN_E_INVALID;
	if (status && taken.tiers)
		close_tiers(taken.tiers, taken.n_tiers);
	return status;
}

enum kiln_status kiln_store_status(const struct kiln *kiln)
{
	return kiln ? kiln->store_status : KILN_E_INVALID;
}

/* ---- Closing --------------------------------------------------------------- */

static void wait_for_calls(struct kiln *kiln)
{
	atomic_store(&kiln->closing, 1);
	atomic_store(&kiln->attention, 1);
	ki_slots_wait();
	ki_mutex_lock(&kiln->mutex);
	while (atomic_load(&kiln->calls))
		ki_cond_wait(&kiln->no_calls, &kiln->mutex);
	ki_mutex_unlock(&kiln->mutex);
	ki_slots_wait();
}

/* In a forked child the other threads are gone, with whatever they were at. */
void kiln_close(struct kiln *kiln)
{
	if (!kiln)
		return;
	if (kiln->is_expected && !ki_exit_withdraw(kiln))
		return;
	if (atomic_load(&ki_fork_counter) == kiln->fork_counter) {
		wait_for_calls(kiln);
		ki_kiln_record(kiln);
		ki_kiln_flush(kiln);
	}
	close_tiers(kiln->tiers, kiln->n_tiers);
	free_kiln(kiln);
}
