/* SPDX-License-Identifier: MIT */
#ifndef KILN_INSPECT_H
#define KILN_INSPECT_H

/*
 * Looking into a kiln: for tools.  Public, but not yet stable: fields may be
 * added between versions.  Everything here works on stores opened with
 * KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER as well.
 */

#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Fields of a key record --------------------------------------------- */

enum kiln_field_kind {
	KILN_FIELD_BYTES = 0,
	KILN_FIELD_DIGEST = 1, /* size of the original, BLAKE2b-256 */
	KILN_FIELD_ABSENT = 2,
};

struct kiln_field {
	enum kiln_field_kind kind;
	int local;
	const char *label; /* not NUL-ended */
	size_t label_size;
	const void *data; /* for a digest: 32 bytes */
	size_t size;
	uint64_t original_size; /* for a digest */
};

/*
 * Step through a key record: start with *position 0.  KILN_OK, KILN_END,
 * KILN_E_FORMAT.  Pointers go into the record.
 */
KILN_API enum kiln_status kiln_record_next(const void *record, size_t size,
					   size_t *position,
					   struct kiln_field *out_field);

/* Find the first field of this label.  KILN_OK, KILN_MISS, KILN_E_FORMAT. */
KILN_API enum kiln_status kiln_record_find(const void *record, size_t size,
					   const char *label,
					   struct kiln_field *out_field);

/*
 * For tests of what happens when two keys have the same digest: a finished key,
 * which nobody else uses yet, is looked for by this one from now on.
 */
KILN_API void kiln_key_force_digest(struct kiln_key *key,
				    const uint8_t digest[KILN_DIGEST_BYTES]);

/* ---- Entries ------------------------------------------------------------ */

/* Zero it to start.  A cursor survives changes: an entry may then be missed
   or come twice, never be wrong. */
struct kiln_cursor {
	uint64_t place[4];
};

struct kiln_entry {
	uint8_t digest[KILN_DIGEST_BYTES];
	struct kiln_blob *record;   /* key record: one reference */
	struct kiln_blob *metadata; /* canonical bytes: one reference */
	uint64_t value_size;
	uint64_t stored_size; /* bytes that it takes in the store */
	int referenced;	      /* used since the last eviction pass */
	/*
	 * Somebody else's, in a store that kiln shares with others: listed and
	 * removed (kiln_remove() with a key of this record) as any entry, and
	 * never handed out as a value, as nobody knows of which build it is.
	 */
	int is_foreign;
	/* What follows is known where entries are files of their own. */
	char file[256]; /* its path in the store's directory; "" */
	uint64_t used;	/* last, in seconds since 1970; 0 */
	uint64_t turn;	/* in eviction: 1 goes first; 0 */
	/* Of two entries of a store the one that was stored later has the larger
	   one; 0: that is not known. */
	uint64_t order;
};

/* Drop the references of an entry that kiln_list() has filled in. */
KILN_API void kiln_entry_fini(struct kiln_entry *entry);

/*
 * The next entry of the store.  Entries that do not verify are passed over.
 * KILN_OK, KILN_END, KILN_E_UNSUPPORTED, the store's reason.
 */
KILN_API enum kiln_status kiln_list(struct kiln *kiln,
				    struct kiln_cursor *cursor,
				    struct kiln_entry *out_entry);

/*
 * As kiln_get_entry(), for a look that is not a look-up: nothing is counted,
 * and the memory tier is not asked.
 */
KILN_API enum kiln_status kiln_peek(struct kiln *kiln,
				    const struct kiln_key *key,
				    struct kiln_blob **out_blob,
				    struct kiln_blob **out_metadata);

/* ---- Look-ups of front ends ------------------------------------------------ */

/*
 * As kiln_get_entry(), for a front end that has to try what it finds: nothing
 * is counted until it says by kiln_count_lookup() what became of it.
 * *out_outcome is written in every case: KILN_COUNT_HITS_STORE, _PACK, _REMOTE or
 * _MEMORY
 * with KILN_OK; else why it is a miss, KILN_COUNT_MISS_DAMAGED,
 * _MISS_UNAVAILABLE, or _MISS_NEW, of which the caller may know more.
 */
KILN_API enum kiln_status kiln_find_entry(struct kiln *kiln,
					  const struct kiln_key *key,
					  struct kiln_blob **out_blob,
					  struct kiln_blob **out_metadata,
					  enum kiln_counter *out_outcome);

/*
 * Count one look-up: a hit with what it read and saved (both blobs of
 * kiln_find_entry()), or a miss and its reason (the blobs may be NULL).
 */
KILN_API void kiln_count_lookup(struct kiln *kiln, enum kiln_counter outcome,
				const struct kiln_blob *blob,
				const struct kiln_blob *metadata);

/* ---- Kept sources ----------------------------------------------------------- */

#define KILN_SOURCE_DIGEST_BYTES 32

/* What was compiled, as a digest field of a key stands for it: a source, IL, an
   include file, a header program, the key record of a link's input. */
struct kiln_kept {
	const void *data; /* borrowed */
	size_t size;
	/* Written by kiln_keep_sources(), whatever it returns. */
	uint8_t digest[KILN_SOURCE_DIGEST_BYTES]; /* BLAKE2b-256 of the data */
	int is_kept; /* now or before, as far as is known */
};

/*
 * Keep sources beside the entries, each once, for kiln_find_source(), so that
 * differences can be shown and entries made again for another driver.  They are
 * compressed, count against the store's bound, and go before any entry does.
 * KILN_OK if all are kept; else the first reason why one is not, after which the
 * rest was tried all the same: FULL (there is no room that entries do not need),
 * TOO_LARGE (for one; the rule is the store's), TIMEOUT (another process changes
 * the store just now), READONLY, NO_MEMORY, IO; UNSUPPORTED (such a store keeps
 * none, or KILN_OPEN_NO_SOURCES), FORKED, or why the store is not used.  Waits
 * for a lock for 20 ms at most.
 */
KILN_API enum kiln_status kiln_keep_sources(struct kiln *kiln,
					    struct kiln_kept *sources,
					    size_t n_sources);

/*
 * Find the source of a digest: a blob of exactly its bytes, compared with the
 * digest just now.  KILN_OK, KILN_MISS, NO_MEMORY, UNSUPPORTED, FORKED, or why
 * the store is not used.  Reads what headers there are: not for each look-up.
 */
KILN_API enum kiln_status kiln_find_source(
	struct kiln *kiln, const uint8_t digest[KILN_SOURCE_DIGEST_BYTES],
	struct kiln_blob **out_source);

/* ---- The recorded order ------------------------------------------------------ */

/*
 * With KILN_OPEN_ORDER a kiln notes which keys are asked for, in the order of first
 * use, and keeps that when it closes, or a guest when its program exits: one hidden
 * entry for each application.  Its value is a list of names, its metadata say which
 * application.  docs/formats/order.md.
 */
#define KILN_ORDER_NAME_BYTES 32 /* BLAKE2b-256 of a key record */

/* The key of an application's order.  NO_MEMORY. */
KILN_API enum kiln_status kiln_order_key(const char *application,
					 struct kiln_key **out_key);
/* Whether a key record is that of an order: 0 or 1. */
KILN_API int kiln_order_is(const void *record, size_t size);
/* The n-th name in the value of an order, which it points into.  KILN_OK,
   KILN_END, KILN_E_FORMAT. */
KILN_API enum kiln_status kiln_order_name(const void *value, size_t size,
					  size_t n, const uint8_t **out_name);

/* ---- Packs ------------------------------------------------------------------ */

/* The path of the n-th pack that was given in kiln_options.packs, and whether it
   is in use: KILN_OK, or why not.  NULL past the last; lives with the kiln. */
KILN_API const char *kiln_pack_given(const struct kiln *kiln, size_t n,
				     enum kiln_status *out_status);

/* ---- Verify --------------------------------------------------------------- */

/* Bytes that were looked at, and that there are. */
typedef void kiln_progress_fn(void *arg, uint64_t done, uint64_t total);

/* Damaged ones go to quarantine; in a directory of Intel's they are removed. */
#define KILN_VERIFY_REPAIR (1u << 0)
#define KILN_VERIFY_ACCOUNTING                                                 \
	(1u << 1) /* only count anew what is kept count of */

#define KILN_DAMAGED_MAX 32 /* that are named */

/* Where a damaged entry lies, and whose it is if that can be told. */
struct kiln_damaged {
	int has_digest;
	uint8_t digest[KILN_DIGEST_BYTES];
	uint64_t offset;
	char file[96]; /* in the store's directory; cut if it is longer */
};

struct kiln_verify_report {
	uint64_t n_entries; /* that are whole */
	uint64_t n_damaged; /* that are not, or cannot be read */
	/* Whose file somebody removed: lost, which is no damage.  With either
	   flag they are forgotten. */
	uint64_t n_gone;
	uint64_t n_repaired; /* of the damaged */
	/* Of those repaired: their bytes were not put aside.  There is no room
	   to spare for them, or a process that has stopped is in the way. */
	uint64_t n_dropped;
	uint64_t bytes; /* of the entries that are whole */
	/* Whole, but led to no more: replaced, removed or crowded out. */
	uint64_t n_dead;
	uint64_t bytes_dead;
	/* Somebody else's, which nobody has a checksum of: not empty, and not
	   cut short if their form tells.  Else they are among the damaged. */
	uint64_t n_foreign;
	uint64_t bytes_foreign;
	/* Kept sources: whole, and not what was written.  The latter are as if
	   they had not been kept, and no damage: nothing depends on them. */
	uint64_t n_sources;
	uint64_t n_sources_torn;
	/* The store's own account, before it was put right, and what is true.
	   0 unless it was asked for, by either flag. */
	uint64_t n_noted;
	uint64_t n_counted;
	uint64_t bytes_noted;
	uint64_t bytes_counted;
	/* The first of the damaged ones. */
	unsigned n_named;
	struct kiln_damaged named[KILN_DAMAGED_MAX];
};

/*
 * Read and check every entry and every kept source.  `progress` may be NULL.  Damage is no error: the
 * report counts it.  REPAIR puts aside what is damaged and the account right;
 * ACCOUNTING alone reads no entry.  Errors: READONLY (with either), UNSUPPORTED,
 * IO, TIMEOUT, INVALID, FORKED, or why the store is not used.
 */
KILN_API enum kiln_status kiln_verify(struct kiln *kiln, unsigned flags,
				      kiln_progress_fn *progress, void *arg,
				      struct kiln_verify_report *out_report);

/* ---- Cleaning up ---------------------------------------------------------- */

#define KILN_GC_QUARANTINE (1u << 0) /* all of it, not only what is old */

#define KILN_GC_QUARANTINE_DAYS 30

struct kiln_gc_options {
	uint64_t bytes_max; /* for this once, if lower than the bound; 0: not */
	uint64_t age_max_s; /* the same of the age limit */
	unsigned flags;
};

struct kiln_gc_report {
	uint64_t bytes_before; /* of all files, as the bound counts */
	uint64_t bytes_after;
	uint64_t n_evicted;
	uint64_t n_expired;
	uint64_t n_segments;	/* files in which nothing was of use any more */
	uint64_t n_temporaries; /* of writers that died */
	uint64_t n_quarantined; /* damaged ones that had been put aside */
};

/*
 * Bring the store under its limits now, as it would come there by itself in
 * time: evicts to the bound, removes expired entries, files in which nothing
 * lives, what dead writers left, and damaged entries put aside longer than
 * KILN_GC_QUARANTINE_DAYS ago.  Others may go on using the store.  `options`
 * (all limits as they are) and `progress` may be NULL.  Errors: READONLY,
 * UNSUPPORTED, FULL (bytes_max is less than the store needs for itself; nothing
 * was done), TIMEOUT, IO, INVALID, NO_MEMORY, FORKED, or why the store is not
 * used.
 */
KILN_API enum kiln_status kiln_gc(struct kiln *kiln,
				  const struct kiln_gc_options *options,
				  kiln_progress_fn *progress, void *arg,
				  struct kiln_gc_report *out_report);

/* ---- Namespaces ------------------------------------------------------------- */

/*
 * Whose an entry is: the name that its maker was given (kiln_options.name_space,
 * KILN_NAMESPACE), else the last part of its program's path, "blender".  Programs
 * of one name are of one namespace, wherever they lie: who would have them apart
 * gives them names.  What says neither, as entries that other programs wrote and
 * those from packs, is of none.
 */
#define KILN_NAMESPACE_BYTES 128 /* with its NUL; longer names are cut */

/* By the metadata of an entry.  KILN_OK; KILN_MISS: of none. */
KILN_API enum kiln_status kiln_namespace_of(const void *metadata, size_t size,
					    char out[KILN_NAMESPACE_BYTES]);

/* In place of a name: each that has no quota of its own. */
#define KILN_NAMESPACE_OTHERS "*"

/*
 * Give a namespace a quota, for everyone: what the keys, metadata and values of its
 * entries may come to.  0: none, from now on.  Kept in the store's directory; other
 * processes heed it within a second.  What is beyond it is evicted now, and later
 * by the namespace's own puts: its own entries, never another's, by the order in
 * which the store would evict them.  A value that is larger is not stored
 * (KILN_E_TOO_LARGE), nor one for which room cannot be made in 20 ms (TIMEOUT).
 * Kept sources and jobs are in no quota.  Errors: INVALID (no name, too long),
 * READONLY, UNSUPPORTED (a pack, a tier of one's own, no store), FULL (there are
 * KILN_NAMESPACES_MAX), FORMAT (of a newer version), TIMEOUT, IO, NO_MEMORY, FORKED,
 * or why the store is not used.
 */
#define KILN_NAMESPACES_MAX 128
KILN_API enum kiln_status kiln_set_namespace_limit(struct kiln *kiln,
						   const char *name_space,
						   uint64_t bytes_max);

/* In place of bytes: the next who puts counts them. */
#define KILN_NAMESPACE_UNCOUNTED UINT64_MAX

/* What is known of a namespace that has a quota. */
struct kiln_namespace {
	char name[KILN_NAMESPACE_BYTES];
	uint64_t bytes_max;
	int is_by_default; /* the quota is that of KILN_NAMESPACE_OTHERS */
	/* At most: what went since it was counted is still in it.  0 of
	   KILN_NAMESPACE_OTHERS itself. */
	uint64_t bytes;
	uint64_t n_evicted; /* for the quota */
	uint64_t n_refused; /* not stored, for the quota */
};

/* The next one, from *position 0 on.  KILN_OK, KILN_END; UNSUPPORTED (as above),
   FORMAT (of a newer version, or damaged), IO, NO_MEMORY, FORKED. */
KILN_API enum kiln_status kiln_next_namespace(
	struct kiln *kiln, size_t *position,
	struct kiln_namespace *out_namespace);

/*
 * As kiln_gc(), of one namespace: its entries go until they are within its quota,
 * and within `bytes_max` this once, and those that were not used for `age_max_s` (in
 * a store that does not know: made that long ago and not seen in use since).  Bytes
 * in the report are of its entries.  Errors: as kiln_gc() but FULL.
 */
KILN_API enum kiln_status kiln_gc_namespace(
	struct kiln *kiln, const char *name_space,
	const struct kiln_gc_options *options, kiln_progress_fn *progress,
	void *arg, struct kiln_gc_report *out_report);

/* ---- The store as a whole ------------------------------------------------- */

struct kiln_store_info {
	const char *kind; /* "log", "file" */
	uint64_t format_version;
	uint64_t user_version;
	uint64_t n_entries;	/* estimated */
	uint64_t n_foreign;	/* of them: somebody else's */
	uint64_t bytes;		/* of all files, as the bound counts */
	uint64_t bytes_max;	/* 0: no bound */
	uint64_t bytes_live;	/* of entries that can be found, about */
	uint64_t bytes_sources; /* of the files that keep sources; in `bytes` */
	uint64_t generation;
	/* Look-ups by the format's own counters, of everybody who keeps them; 0
	   where there are none. */
	uint64_t n_format_hits;
	uint64_t n_format_misses;
	uint64_t quota_bytes; /* of keys' fields and values; 0: none */
	uint64_t quota_used;  /* of it, at most */
	enum kiln_eviction eviction;
};

/* What is known of the store.  Strings are constants.  Errors: UNSUPPORTED (also
   without a store), FORKED, or why the store is not used. */
KILN_API enum kiln_status kiln_store_info(struct kiln *kiln,
					  struct kiln_store_info *out_info);

/* ---- Counters over all processes ------------------------------------------ */

#define KILN_HOURS	   744 /* 31 days */
#define KILN_REASONS_MAX   16
#define KILN_PROGRAMS_MAX  16
#define KILN_PROGRAM_BYTES 448

/* What one program counted, in all its processes. */
struct kiln_program_counters {
	uint64_t first; /* seconds since 1970 */
	uint64_t last;	/* 0: there is none */
	uint64_t total[KILN_N_COUNTERS];
	char name[KILN_PROGRAM_BYTES]; /* its path; of a longer one the end */
};

struct kiln_store_counters {
	uint64_t since; /* seconds since 1970 */
	uint64_t total[KILN_N_COUNTERS];
	/* Of the last KILN_HOURS hours, newest first; 0 hours before. */
	uint64_t newest_hour;	       /* hours since 1970 */
	uint64_t hours[KILN_HOURS][8]; /* KILN_HOURLY counters */
	/*
	 * What follows is kept since a time of its own (0: not at all), by
	 * kilns that know of it: it may be less than the totals.
	 */
	uint64_t history_since;
	uint32_t reasons[KILN_HOURS][KILN_REASONS_MAX]; /* KILN_REASONS */
	/* The process that began last (`first`), of those that looked something
	   up. */
	struct kiln_program_counters last_run;
	/* The programs that counted last, the latest first. */
	uint64_t n_programs;
	struct kiln_program_counters programs[KILN_PROGRAMS_MAX];
};

/* The counters kept per hour, in the order of the columns above.  Hits in packs
   and in remotes are among those in the store there. */
#define KILN_HOURLY                                                            \
	{                                                                      \
		KILN_COUNT_HITS_MEMORY, KILN_COUNT_HITS_STORE,                 \
			KILN_COUNT_MISSES, KILN_COUNT_BUILDS, KILN_COUNT_PUTS, \
			KILN_COUNT_BUILD_NS, KILN_COUNT_SAVED_NS,              \
			KILN_COUNT_EVICTED                                     \
	}

/* Why there was no hit, kept per hour in this order. */
#define KILN_REASONS                                                           \
	{                                                                      \
		KILN_COUNT_MISS_NEW, KILN_COUNT_MISS_COMPILER,                 \
			KILN_COUNT_MISS_DEVICE, KILN_COUNT_MISS_OPTIONS,       \
			KILN_COUNT_MISS_INCLUDE, KILN_COUNT_MISS_ENVIRONMENT,  \
			KILN_COUNT_MISS_UNRESOLVED,                            \
			KILN_COUNT_MISS_TIME_MACRO, KILN_COUNT_MISS_DIRECTIVE, \
			KILN_COUNT_MISS_DAMAGED, KILN_COUNT_MISS_REFUSED,      \
			KILN_COUNT_MISS_UNSUPPORTED,                           \
			KILN_COUNT_MISS_UNKNOWN_LAYER, KILN_COUNT_MISS_FULL,   \
			KILN_COUNT_MISS_UNAVAILABLE, KILN_COUNT_MISS_BUSY      \
	}

/* Read them, this process's own included; set all to 0.  Errors as above, and
   READONLY. */
KILN_API enum kiln_status kiln_store_counters(
	struct kiln *kiln, struct kiln_store_counters *out_counters);
KILN_API enum kiln_status kiln_store_counters_zero(struct kiln *kiln);

/* "hits_store" and "hits in the store"; NULL past the last. */
KILN_API const char *kiln_counter_name(unsigned counter);
KILN_API const char *kiln_counter_words(unsigned counter);

/* ---- Builds in progress ---------------------------------------------------- */

/*
 * A program that builds by itself (behind a layer) says so here, so that
 * kiln-worker stays out of its way.  Never fails, never waits.
 */
KILN_API void kiln_note_build(struct kiln *kiln, int begins);

/* How many kilns, of all processes, are building now; the dead and those that
   began more than 10 minutes ago do not count. */
KILN_API unsigned kiln_builds_now(struct kiln *kiln);

/* ---- Configuration ---------------------------------------------------------- */

/*
 * Where settings come from: command line or API, environment,
 * $XDG_CONFIG_HOME/kiln/kiln.conf, /etc/kiln.conf, defaults.
 * docs/env.md lists them.
 */
#define KILN_SETTINGS(X)                                                       \
	X(DISABLE, "KILN_DISABLE", "disable")                                  \
	X(DIR, "KILN_DIR", "dir")                                              \
	X(STORE, "KILN_STORE", "store")                                        \
	X(MAX_SIZE, "KILN_MAX_SIZE", "max-size")                               \
	X(MEMORY, "KILN_MEMORY", "memory")                                     \
	X(READONLY, "KILN_READONLY", "readonly")                               \
	X(PACKS, "KILN_PACKS", "packs")                                        \
	X(REMOTE, "KILN_REMOTE", "remote")                                     \
	X(NAMESPACE, "KILN_NAMESPACE", "namespace")                            \
	X(LOG, "KILN_LOG", "log")                                              \
	X(TRACE, "KILN_TRACE", "trace")                                        \
	X(CONFIG, "KILN_CONFIG", "config")                                     \
	X(SPOOL, "KILN_SPOOL", "spool")                                        \
	X(KEEP_SOURCES, "KILN_KEEP_SOURCES", "keep-sources")                   \
	X(LOCK_TIMEOUT, "KILN_LOCK_TIMEOUT", "lock-timeout")                   \
	X(REMOTE_CREDENTIALS, "KILN_REMOTE_CREDENTIALS", "remote-credentials") \
	X(D3D12_DEVELOPER, "KILN_D3D12_DEVELOPER", "d3d12-developer")          \
	X(ZE_DRIVER, "KILN_ZE_DRIVER", "ze-driver")                            \
	X(SIGNING_KEY, "KILN_SIGNING_KEY", "signing-key")                      \
	X(REMOTE_TRUST, "KILN_REMOTE_TRUST", "remote-trust")                   \
	X(SHARED, "KILN_SHARED", "shared")

enum kiln_setting {
#define KILN_SETTING_ENUM(name, env, conf) KILN_SET_##name,
	KILN_SETTINGS(KILN_SETTING_ENUM)
#undef KILN_SETTING_ENUM
		KILN_N_SETTINGS
};

struct kiln_config;

/*
 * Read the settings of this process.  `secure` programs (set-uid and the
 * like) get one with everything off.  A wrong value is KILN_E_INVALID, with a
 * sentence in `message` that names the variable or the file and line, what is
 * wrong and what would be right; *out_config is written all the same, for
 * tools that show it.  Unknown KILN_* names are warnings in the config.
 */
KILN_API enum kiln_status kiln_config_load(struct kiln_config **out_config,
					   char *message, size_t message_size);
/*
 * The same for who only looks at stores: values that are wrong in the variables of
 * another program (kiln_config_foreign()) are warnings, as long as they leave no
 * doubt which store is meant.  kiln_config_use_store() goes on so.
 */
KILN_API enum kiln_status kiln_config_load_to_look(
	struct kiln_config **out_config, char *message, size_t message_size);
KILN_API void kiln_config_free(struct kiln_config *config);

/* A setting as text, NULL if unset and without default; lives with the config. */
KILN_API const char *kiln_config_value(const struct kiln_config *config,
				       enum kiln_setting setting);
/* Where it comes from: "environment", "/etc/kiln.conf:3", "default", ...; never
   NULL. */
KILN_API const char *kiln_config_origin(const struct kiln_config *config,
					enum kiln_setting setting);
/* The number, of booleans and sizes; 0 where unset. */
KILN_API uint64_t kiln_config_number(const struct kiln_config *config,
				     enum kiln_setting setting);
/* The n-th warning, or NULL. */
KILN_API const char *kiln_config_warning(const struct kiln_config *config,
					 size_t n);
/*
 * The n-th variable of another program that stores of its format obey (those of
 * Intel's driver: docs/env.md), or NULL past the last.  Its value as
 * kiln_config_value(), and where that comes from.
 */
KILN_API const char *kiln_config_foreign(const struct kiln_config *config,
					 size_t n, const char **out_value,
					 const char **out_origin);

/*
 * The directory of the store and, in `why`, how it was chosen; NULL if there
 * is none (then `why` says what is missing).  Lives with the config.
 */
KILN_API const char *kiln_config_directory(const struct kiln_config *config,
					   const char **out_why);
/* The directory of jobs: "spool" beside the store's files, or NULL.  Lives with
   the config. */
KILN_API const char *kiln_config_spool(const struct kiln_config *config);

/*
 * Have a store that somebody named win over all settings, KILN_DISABLE too: the
 * calls above and below then tell of it, with a directory from the root.
 * KILN_E_INVALID with a sentence in `message` as kiln_config_load(), NO_MEMORY.
 */
KILN_API enum kiln_status kiln_config_use_store(struct kiln_config *config,
						const char *url, char *message,
						size_t message_size);

/* Where this user's kiln.conf and keys belong (docs/env.md), which need not be
   there; NULL if that cannot be said.  Lives with the config. */
KILN_API const char *kiln_config_user_directory(
	const struct kiln_config *config);

/* Fill options (initialised) from a config; strings are borrowed from it.  Flags
   are added to; a guest's (KILN_OPEN_GUEST) get KILN_OPEN_ORDER.  `remote` stays NULL
   where KILN_DISABLE switches the store off, or NEO_CACHE_PERSISTENT that of neo:. */
KILN_API void kiln_config_options(const struct kiln_config *config,
				  struct kiln_options *options);

#ifdef __cplusplus
}
#endif
#endif /* KILN_INSPECT_H */
