/* SPDX-License-Identifier: MIT */
#ifndef KILN_KILN_H
#define KILN_KILN_H

/*
 * kiln - a compile cache for code that is compiled just in time.
 *
 * What a compiler made is a blob; all that it depended on is a key.  Most
 * programs need one call:
 *
 *	kiln_get_or_build(kiln, key, build, arg, &result);
 *
 * The blob comes from memory, else from the first tier that has it, fastest
 * tiers first, else from build(); tiers that did not have it are given it.
 * Trouble with a tier is counted and costs no more than what that tier would
 * have answered: what makes a call fail is a build() that fails.
 *
 * Threads    Kilns and blobs may be shared between threads without care.  A
 *            key is its maker's until it is finished; then it may be shared.
 * Processes  As many as you like may have a store open.  What one of them
 *            wipes or evicts all forget at their next call; what it removes or
 *            replaces another may still hand out from its memory tier, until
 *            the entry's segment goes.
 * fork()     A child gets KILN_E_FORKED from every kiln that it inherited, and
 *            can do nothing with it but close it.  It may open its own.
 * Signals    No call installs a handler or changes a mask; the few threads
 *            that kiln starts have all signals blocked.
 * Exit       Nothing needs to run: a kiln that was never closed loses at most
 *            the counters of its last second.  Those of KILN_OPEN_GUEST are
 *            written by exit(), or when the library is unloaded, unless one
 *            of them has a call in progress then, in whatever thread.
 * Ownership  What comes through an out_* parameter is one reference, the
 *            caller's to drop; it is written with KILN_OK and otherwise left
 *            alone, unless a function says otherwise.  What goes in through
 *            any other pointer stays the caller's.
 * Strings    UTF-8 or whatever bytes the system uses for paths; NUL-ended.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kiln/api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kiln;
struct kiln_key;
struct kiln_blob;
struct kiln_metadata;
struct kiln_tier;

/* 0 is success, above 0 is an answer, below 0 is an error. */
enum kiln_status {
	KILN_OK = 0,
	KILN_MISS = 1,	 /* no tier has this key */
	KILN_EXISTS = 2, /* a create-only put found the key taken */
	KILN_END = 3,	 /* a cursor has reached the last entry */

	KILN_E_NO_MEMORY = -1,
	KILN_E_INVALID = -2,   /* the caller broke the contract */
	KILN_E_IO = -3,	       /* the system refused; the log has the reason */
	KILN_E_FORMAT = -4,    /* damaged, or written by a newer version */
	KILN_E_COLLISION = -5, /* same digest, different key */
	KILN_E_FULL = -6,      /* the store refuses rather than evicts */
	KILN_E_BUILD = -7,     /* build() refused: see the result */
	KILN_E_TOO_LARGE = -8, /* the value can never fit the bound */
	KILN_E_OWNER = -9,     /* the directory is not ours to trust */
	KILN_E_FORKED = -10,   /* opened before fork(), used after */
	KILN_E_TIMEOUT = -11,  /* a lock was not had in time */
	KILN_E_UNSUPPORTED = -12, /* this kind of tier cannot do that */
	KILN_E_READONLY = -13,	  /* the store was opened without writing */
};

/* The name of a status, as in "KILN_E_IO".  Never NULL. */
KILN_API const char *kiln_status_name(enum kiln_status status);

/* The version of the library in use, as KILN_VERSION_HEX. */
KILN_API unsigned kiln_version(void);

/* ---- Keys -------------------------------------------------------------- */

/*
 * A key is an ordered list of labelled fields; order and labels count.  Labels
 * let `kiln why` say how two keys differ.  The canonical bytes of all fields,
 * each framed by its length, are the *key record*: it is stored with every
 * entry and compared on every hit, so equal digests never return a wrong
 * value.
 *
 * Adding to a key cannot fail: a shortage of memory, or a limit passed, is
 * remembered and returned by kiln_key_finish().
 */

#define KILN_KEY_BYTES_MAX   ((size_t)1 << 24) /* of a whole key record */
#define KILN_LABEL_BYTES_MAX ((size_t)255)     /* of one label, without NUL */
#define KILN_DIGEST_BYTES    16		       /* XXH3-128 of a key record */

/* A new, empty key, or NULL if there is no memory: every call accepts NULL. */
KILN_API struct kiln_key *kiln_key_new(void);

/* A field whose bytes are kept, compared and shown.  Portable. */
KILN_API void kiln_key_add(struct kiln_key *key, const char *label,
			   const void *data, size_t size);

/* The same, for a string, without its NUL. */
KILN_API void kiln_key_add_string(struct kiln_key *key, const char *label,
				  const char *string);

/*
 * A field kept as length and BLAKE2b-256 of its bytes: for sources and IL,
 * which are too long to keep in every key.  Portable.
 */
KILN_API void kiln_key_add_digest(struct kiln_key *key, const char *label,
				  const void *data, size_t size);

/* The same, for bytes of which the caller has kept size and BLAKE2b-256. */
KILN_API void kiln_key_add_known_digest(struct kiln_key *key, const char *label,
					uint64_t size,
					const uint8_t digest[32]);

/*
 * A field that says that something is not there (an include file on a path
 * that was searched).  Never equal to an empty field.  Portable.
 */
KILN_API void kiln_key_add_absent(struct kiln_key *key, const char *label);

/*
 * A field that must not leave this machine: packs and remote tiers refuse a
 * key that has one.
 */
KILN_API void kiln_key_add_local(struct kiln_key *key, const char *label,
				 const void *data, size_t size);

/*
 * End adding.  Afterwards the key is immutable and may be shared between
 * threads.  Returns KILN_OK, KILN_E_NO_MEMORY (also for NULL),
 * KILN_E_TOO_LARGE or KILN_E_INVALID (a label too long or missing).  Calling
 * it again returns the same.
 */
KILN_API enum kiln_status kiln_key_finish(struct kiln_key *key);

/* A finished key from a stored key record.  Errors: NO_MEMORY, FORMAT. */
KILN_API enum kiln_status kiln_key_from_record(const void *record, size_t size,
					       struct kiln_key **out_key);

/* The key record of a finished key; lives as long as the key. */
KILN_API const void *kiln_key_record(const struct kiln_key *key,
				     size_t *out_size);

/* XXH3-128 of the record, big-endian: what an entry is found by.
   KILN_DIGEST_BYTES bytes that live as long as the key. */
KILN_API const uint8_t *kiln_key_digest(const struct kiln_key *key);

/* Whether any field is local: 0 or 1. */
KILN_API int kiln_key_is_local(const struct kiln_key *key);

/* Take a reference, or drop one.  Both accept NULL; ref only finished keys. */
KILN_API struct kiln_key *kiln_key_ref(struct kiln_key *key);
KILN_API void kiln_key_free(struct kiln_key *key);

/*
 * A key in memory of the caller's, on the stack say, for whoever asks often: up
 * to about 200 bytes of record nothing is allocated.  It must be freed like any
 * other, and is over then; a reference to it is a copy (NULL without memory).
 */
struct kiln_key_room {
	uint64_t words[64];
};
KILN_API struct kiln_key *kiln_key_in(struct kiln_key_room *room);

/*
 * kiln_key_in(), kiln_key_add() and kiln_key_finish() in one and faster.  The key
 * must be freed whatever this returns.
 */
KILN_API enum kiln_status kiln_key_of(struct kiln_key_room *room,
				      const char *label, const void *data,
				      size_t size, struct kiln_key **out_key);

/* ---- Blobs ------------------------------------------------------------- */

/*
 * Blobs are immutable and counted.  Data is aligned to 8 bytes at least when
 * it comes from a tier.  A blob outlives the kiln that it came from.
 */

typedef void kiln_release_fn(void *arg);

/* Take a reference, or drop one.  Both accept NULL; ref returns its argument. */
KILN_API struct kiln_blob *kiln_blob_ref(struct kiln_blob *blob);
KILN_API void kiln_blob_unref(struct kiln_blob *blob);

/* A blob with a copy of the bytes.  Errors: NO_MEMORY. */
KILN_API enum kiln_status kiln_blob_copy(const void *data, size_t size,
					 struct kiln_blob **out_blob);

/*
 * A blob over bytes that the caller keeps unchanged until release(arg), which
 * runs on whichever thread drops the last reference.  On failure nothing was
 * taken and release is not called.  Errors: NO_MEMORY.
 */
KILN_API enum kiln_status kiln_blob_wrap(const void *data, size_t size,
					 kiln_release_fn *release, void *arg,
					 struct kiln_blob **out_blob);

/* The bytes, good until the last reference goes, and how many.  Not of NULL. */
KILN_API const void *kiln_blob_data(const struct kiln_blob *blob);
KILN_API size_t kiln_blob_size(const struct kiln_blob *blob);

/* ---- Metadata ---------------------------------------------------------- */

/*
 * What is worth knowing about an entry but does not decide whether it is the
 * right one: never compared, unknown fields are skipped.
 */

enum kiln_metadata_field {
	KILN_META_CREATED = 1,	   /* u64: seconds since 1970 */
	KILN_META_BUILD_TIME = 2,  /* u64: nanoseconds */
	KILN_META_STAGE = 3,	   /* u64: capture stage, higher is better */
	KILN_META_DIRECTORY = 4,   /* string: where the build ran */
	KILN_META_OPTIONS = 5,	   /* string: as the program gave them */
	KILN_META_ENVIRONMENT = 6, /* NAME=VALUE, NUL after each */
	KILN_META_APPLICATION = 7, /* string: executable's path */
	KILN_META_NAMESPACE = 8,   /* string */
	KILN_META_BUILD_LOG = 9,   /* bytes: the compiler's messages */
	KILN_META_KERNELS = 10,	   /* bytes: docs/formats/opencl-entry.md */
	KILN_META_SOURCES = 11,	   /* 32-byte digests of kept sources */
	KILN_META_FRONT = 12,	   /* string: "opencl", "d3d12", ... */
	KILN_META_SIGNATURE = 13,  /* bytes: Ed25519, docs/formats/sign.md */
	KILN_META_FLAGS = 14,	   /* u64: KILN_ENTRY_* */
};

/* Bits of KILN_META_FLAGS. */
#define KILN_ENTRY_HIDDEN                                                      \
	((uint64_t)1) /* bookkeeping: listed only on request */

#define KILN_METADATA_BYTES_MAX ((size_t)1 << 24)

/*
 * Make metadata.  As for keys: NULL if there is no memory, which every call
 * accepts; adding cannot fail, what went wrong is kept for the user.  Data
 * is copied.  Fields may come in any order; of one field the first counts.
 * One thread at a time.
 */
KILN_API struct kiln_metadata *kiln_metadata_new(void);
KILN_API void kiln_metadata_add(struct kiln_metadata *metadata,
				enum kiln_metadata_field field,
				const void *data, size_t size);
KILN_API void kiln_metadata_add_u64(struct kiln_metadata *metadata,
				    enum kiln_metadata_field field,
				    uint64_t value);
KILN_API void kiln_metadata_add_string(struct kiln_metadata *metadata,
				       enum kiln_metadata_field field,
				       const char *string);
KILN_API void kiln_metadata_free(struct kiln_metadata *metadata);

/* Canonical bytes, to be kept elsewhere or sent; live as long as `metadata`.
   What went wrong in adding is returned here: NO_MEMORY, TOO_LARGE. */
KILN_API enum kiln_status kiln_metadata_bytes(
	const struct kiln_metadata *metadata, const void **out_bytes,
	size_t *out_size);

/* The way back.  NO_MEMORY, TOO_LARGE, FORMAT. */
KILN_API enum kiln_status kiln_metadata_from_bytes(
	const void *bytes, size_t size, struct kiln_metadata **out_metadata);

/*
 * Find a field in the canonical bytes of metadata, as kiln_get_entry() hands
 * them out.  KILN_OK, KILN_MISS or KILN_E_FORMAT; *out_data points into the
 * bytes given.
 */
KILN_API enum kiln_status kiln_metadata_find(const void *bytes, size_t size,
					     enum kiln_metadata_field field,
					     const void **out_data,
					     size_t *out_size);
/* The same for a number; KILN_E_FORMAT also if it is no number. */
KILN_API enum kiln_status kiln_metadata_find_u64(const void *bytes, size_t size,
						 enum kiln_metadata_field field,
						 uint64_t *out_value);

/* ---- Opening ----------------------------------------------------------- */

enum kiln_log_level {
	KILN_LOG_ERROR = 0, /* caching is off, or an entry was damaged */
	KILN_LOG_WARNING = 1,
	KILN_LOG_NOTE = 2,
	KILN_LOG_TRACE = 3, /* one line for each look-up */
};

/* Called from any thread, with no lock held; must not call into the kiln. */
typedef void kiln_log_fn(void *arg, enum kiln_log_level level,
			 const char *message);

/* What becomes of the failure of a build, for later callers. */
enum kiln_failure_policy {
	KILN_FAILURE_RETRY = 0,	   /* the next caller builds again */
	KILN_FAILURE_KEEP = 1,	   /* kept while the kiln is open */
	KILN_FAILURE_KEEP_FOR = 2, /* kept for failure_ttl_ms */
};

/* Bits of kiln_options.flags. */
#define KILN_OPEN_READONLY	(1u << 0) /* no write of any kind to stores */
#define KILN_OPEN_REFUSE_FULL	(1u << 1) /* KILN_E_FULL, never evict */
#define KILN_OPEN_VERIFY_ALWAYS (1u << 2) /* checksum on every hit */
#define KILN_OPEN_COPY		(1u << 3) /* read values, never map them */
#define KILN_OPEN_NO_BUILD_LOCK (1u << 4) /* no single flight over processes */
/*
 * A group's directory, by intent.  Values are copied and verified on every hit.  With
 * `trusted_keys`, an entry without a signature of one is a miss
 * (KILN_COUNT_MISS_UNSIGNED) that a put replaces, and nothing is put without
 * `signing_key` (OWNER).
 */
#define KILN_OPEN_SHARED    (1u << 5)
#define KILN_OPEN_ANY_OWNER (1u << 6) /* to look at, never to load from */
/*
 * Inside a program that did not ask for us: values are copied and verified on
 * every hit, no descriptor outlives a call, the memory tier holds no values.
 * It need not be closed: what it counts is the store's at once or, of hits, after
 * a second, 256 of them, or exit(); a program that is killed may take these along.
 */
#define KILN_OPEN_GUEST (1u << 7)
/*
 * The memory tier holds no values: for who keeps what was found anyway.  Every
 * look-up then is the store's; kiln_get() is the quick one.
 */
#define KILN_OPEN_NO_MEMORY (1u << 8)
/*
 * As one of the sessions that share a store: it is known, to all processes, that
 * this kiln has the store open.  A store of another user_version (0 is a version
 * like others then) is wiped by the first session alone: while another is open,
 * kiln_open() answers KILN_EXISTS, and a kiln that is no session has no store
 * (FORMAT).  The first also decides on the quota, until all are closed.  With "log:"
 * only, and none of READONLY, ANY_OWNER and GUEST.
 */
#define KILN_OPEN_SESSION (1u << 9)
/*
 * The directory may be anybody's, and writable by anybody: each file is looked at
 * when it is opened.  What is a link, belongs to another user, even root, has a
 * second name or can be written by others is refused (OWNER).  Who can write there
 * can take files away, or change their names; never what is in them.  With "log:"
 * only, and none of SHARED and ANY_OWNER.
 */
#define KILN_OPEN_OWN_FILES (1u << 10)
/* kiln_keep_sources() keeps nothing; KILN_KEEP_SOURCES=0 sets it. */
#define KILN_OPEN_NO_SOURCES (1u << 11)
/*
 * What is asked for is noted in the order of first use, up to 4096 keys, and kept
 * in the store at closing, or of a guest at exit(), if it changed: kiln_order_key()
 * in <kiln/inspect.h>.  In "log:" and "file:" stores that are written; none of
 * SESSION.  Look-ups of KILN_OPEN_NO_MEMORY are slower with it.
 */
#define KILN_OPEN_ORDER (1u << 12)
/*
 * Signatures are required as if a key were trusted, even if there is none: then
 * no pack is used, nor any entry of KILN_OPEN_SHARED.  kiln_config_options() sets
 * it where keys that somebody put there could not be had.
 */
#define KILN_OPEN_SIGNED (1u << 13)

/* Which value goes when there is no room for another in memory. */
enum kiln_memory_order {
	KILN_MEMORY_APPROXIMATE = 0, /* one that was not used lately */
	KILN_MEMORY_LRU = 1, /* the least recently used: hits take a lock */
	/*
	 * The one that came to memory first; a hit changes nothing.  Bounds count
	 * bytes of keys' fields and of values and nothing else, and what came
	 * last stays, though it be larger than the bound.
	 */
	KILN_MEMORY_INSERTION = 2,
};

struct kiln_options {
	size_t size;		     /* set by kiln_options_init() */
	const char *store_url;	     /* "log:DIR[#NAME]", "file:DIR",
					"neo:[DIR][#WORD,...]",
					"sycl:[DIR]", "pack:FILE";
					NULL: no store */
	uint64_t store_bytes_max;    /* of a store made now; 0: no bound */
	uint64_t store_age_max_s;    /* entries unused longer go; 0: none */
	uint64_t memory_bytes_max;   /* 0: no bound */
	uint64_t memory_entries_max; /* 0: no bound */
	uint64_t failure_ttl_ms;
	enum kiln_failure_policy failure_policy;
	uint32_t flags;		  /* KILN_OPEN_* */
	uint32_t lock_timeout_ms; /* wait for another process's build */
	uint64_t user_version;	  /* the caller's; a store of another
					   one is wiped on opening, and kilns
					   that have it open with theirs miss
					   from then on; 0: any */
	const char *name_space;	  /* recorded with entries, whose namespace it
				     is (<kiln/inspect.h>); NULL: none */
	const char *application;  /* recorded, too; NULL: the executable; "":
				     none */
	kiln_log_fn *log;	  /* NULL: silent */
	void *log_arg;
	struct kiln_tier *const *tiers; /* <kiln/tier.h>; asked after the
					   store in this order; the kiln closes
					   them, also when opening fails */
	size_t n_tiers;
	uint64_t store_quota_bytes; /* of a store made now: what the fields of
					   keys and the values of all entries may
					   come to, exactly; beyond that a put is
					   FULL; 0: no quota */
	enum kiln_memory_order memory_order;
	const char
		*packs; /* paths from the root, or URLs (http, https, s3) that
			      are read in parts through kiln-remote and must
			      be signed; a comma between, at most 16:
			      packs (<kiln/pack.h>) that are asked after the
			      store and before `tiers`, and never written; one
			      that cannot be used is logged and left out; not
			      of a session; NULL: none */
	/* Public keys as text (docs/formats/sign.md).  If there are any, what
	   others have written, packs and the entries of KILN_OPEN_SHARED, is
	   used only with a signature of one. */
	const char *const *trusted_keys;
	size_t n_trusted_keys;
	const char *signing_key; /* a secret key as text, or the path from the
				    root of a file that holds one, which is
				    read when it is needed: signs what is put
				    into a store of KILN_OPEN_SHARED, and what
				    goes to servers; NULL: none */
	/*
	 * Servers that are asked last, through a helper process, as KILN_REMOTE
	 * has them (docs/env.md): "redis://cache", "http://near s3://far/kiln".
	 * NULL: none; not of a session.  What is built is handed to the helper
	 * and leaves the machine, but for keys with local fields.  The helper is
	 * started by kiln_remote_start() in <kiln/remote.h>; without it, and
	 * where servers are slow or down, a look-up is a miss.
	 */
	const char *remote;
	const char *remote_credentials; /* path from the root of the file that
					   the helper reads; NULL: none */
	/* "signed": what servers have is used only with a signature of one of
	   trusted_keys; NULL is the same.  "transport": whoever can write to the
	   servers is trusted. */
	const char *remote_trust;
};

/* Defaults.  Inline, so that `size` is what the caller was compiled with. */
static inline void kiln_options_init(struct kiln_options *options)
{
	memset(options, 0, sizeof(*options));
	options->size = sizeof(*options);
	options->store_bytes_max = (uint64_t)1 << 30;
	options->memory_bytes_max = (uint64_t)64 << 20;
	options->lock_timeout_ms = 60000;
}

/*
 * Open a kiln.  A store that cannot be used (no permission, full, an unknown
 * version, someone else's) does not make this fail: the kiln then works
 * without it, says so once through `log`, and kiln_store_status() has the
 * reason.  Errors: NO_MEMORY, INVALID (an option is wrong; logged by name),
 * EXISTS (only with KILN_OPEN_SESSION: others have it open, with another
 * user_version).
 */
KILN_API enum kiln_status kiln_open(const struct kiln_options *options,
				    struct kiln **out_kiln);

/* KILN_OK if the store given is in use, KILN_MISS if none was given or its own
   variables switch it off ("neo:"), else the reason why it is not. */
KILN_API enum kiln_status kiln_store_status(const struct kiln *kiln);

/*
 * Wait for the calls in progress, then close.  NULL is fine.  Not from inside
 * a build().  Blobs handed out stay good.
 */
KILN_API void kiln_close(struct kiln *kiln);

/*
 * Have the store of sessions removed, files and all, when the last of them
 * closes, in whatever process; if that one dies instead, the next to open finds it
 * empty.  There is no way back.  INVALID without KILN_OPEN_SESSION; TIMEOUT, IO,
 * FORKED, or why the store is not used.
 */
KILN_API enum kiln_status kiln_remove_at_close(struct kiln *kiln);

/* ---- The one call ------------------------------------------------------ */

enum kiln_build_kind {
	KILN_BUILD_OK = 0,
	KILN_BUILD_FAILED = 1,	  /* it will fail again: may be kept */
	KILN_BUILD_SPURIOUS = 2,  /* each waiter tries once more */
	KILN_BUILD_RESOURCES = 3, /* out of memory, disk...: never kept */
	KILN_BUILD_UNCACHED = 4,  /* it went well, and what it made is for this
				     caller alone: each waiter builds */
};

/* Where the answer came from. */
enum kiln_source {
	KILN_FROM_MEMORY = 0,
	KILN_FROM_STORE = 1,
	KILN_FROM_BUILD = 2,
	KILN_FROM_FLIGHT = 3,  /* another thread's build, waited for */
	KILN_FROM_FAILURE = 4, /* a kept failure */
	KILN_FROM_REMOTE = 5,
};

/*
 * What build() fills in and what kiln_get_or_build() hands out.  Free it with
 * kiln_build_result_fini() in every case.
 */
struct kiln_build_result {
	size_t size; /* set by kiln_build_result_init() */
	enum kiln_build_kind kind;
	int code;			/* the compiler's own */
	char *message;			/* from malloc(), or NULL */
	struct kiln_blob *blob;		/* one reference, when KILN_BUILD_OK */
	struct kiln_metadata *metadata; /* given by build() if it likes; NULL
					   in what callers get */
	enum kiln_source source;	/* set by kiln */
};

static inline void kiln_build_result_init(struct kiln_build_result *result)
{
	memset(result, 0, sizeof(*result));
	result->size = sizeof(*result);
}

/* Drop what a result holds; it may then be initialised again. */
KILN_API void kiln_build_result_fini(struct kiln_build_result *result);

/*
 * The compiler: it fills the result with a blob, or with the kind, code and
 * message of a failure.  No lock is held meanwhile.  While one runs for a key,
 * no other does in this process (nested builds excepted) nor, where the store
 * can lock, on this machine.  It may use the kiln for other keys; for its own
 * it gets KILN_E_INVALID.  It must return: longjmp() or an exception out of it
 * is undefined.
 */
typedef void kiln_build_fn(const struct kiln_key *key, void *arg,
			   struct kiln_build_result *out_result);

/*
 * Get the blob of a key, building it if need be.  The result (initialised by
 * the caller) is written in both outcomes:
 *   KILN_OK       result->blob is the value, one reference
 *   KILN_E_BUILD  result->kind, code and message say why build() failed, or,
 *                 by KILN_BUILD_UNCACHED, that there is nothing to hand out
 * Others: NO_MEMORY, INVALID, FORKED; the result is then as it was.
 */
KILN_API enum kiln_status kiln_get_or_build(struct kiln *kiln,
					    const struct kiln_key *key,
					    kiln_build_fn *build, void *arg,
					    struct kiln_build_result *result);

/* ---- Parts of it ------------------------------------------------------- */

/* The value, if a tier has it.  KILN_OK, KILN_MISS; COLLISION (a tier has
   another key of the same digest), NO_MEMORY, INVALID, FORKED.  Never waits for
   a build. */
KILN_API enum kiln_status kiln_get(struct kiln *kiln,
				   const struct kiln_key *key,
				   struct kiln_blob **out_blob);

/* The same with the entry's metadata (canonical bytes; may be empty), a
   collision being a miss.  The tiers are asked before memory, which has no
   metadata. */
KILN_API enum kiln_status kiln_get_entry(struct kiln *kiln,
					 const struct kiln_key *key,
					 struct kiln_blob **out_blob,
					 struct kiln_blob **out_metadata);

/* Bits of kiln_put()'s flags. */
#define KILN_PUT_REPLACE (1u << 0) /* a present entry makes way */

/*
 * Store a value.  Without KILN_PUT_REPLACE a present entry stays and the
 * answer is KILN_EXISTS, exactly, whatever other processes do at the same
 * time.  `metadata` may be NULL; it is only read.  Application and namespace are
 * recorded besides, unless it says them, or is of what is hidden.
 * Errors: FULL, TOO_LARGE, TIMEOUT (busy: nothing was stored), READONLY, IO,
 * FORMAT (the store is of another user version by now), COLLISION (a tier that
 * cannot keep both; a session, which would not), NO_MEMORY,
 * INVALID, FORKED, or the store's reason for not being in use (the memory tier
 * has the value all the same, but not of a session that has a store).
 */
KILN_API enum kiln_status kiln_put(struct kiln *kiln,
				   const struct kiln_key *key, const void *data,
				   size_t size,
				   const struct kiln_metadata *metadata,
				   unsigned flags);

/*
 * A number that changes whenever what was found in the tiers before may be gone:
 * wiped, evicted or moved, by whatever process; not that memory let it go.  For
 * who keeps blobs to hand them out again.  While the kiln is open.
 */
KILN_API uint64_t kiln_generation(const struct kiln *kiln);

/* Remove an entry from all tiers.  Not from servers, which are never asked to delete
   anything: whoever asks them next may bring it back, here as elsewhere, until
   another put replaces it there (docs/remote.md).  KILN_OK, KILN_MISS (none had it); READONLY
   (also: a pack has it), IO, TIMEOUT (a tier may still have it), INVALID,
   FORKED. */
KILN_API enum kiln_status kiln_remove(struct kiln *kiln,
				      const struct kiln_key *key);

/* Empty all tiers, but for packs, for every process that has the store open.  Errors:
   READONLY, IO (also: nothing is found any more, but files could not be
   removed), TIMEOUT, FORKED. */
KILN_API enum kiln_status kiln_wipe(struct kiln *kiln);

/* Say that these keys will be asked for soon.  A hint: it cannot fail. */
KILN_API void kiln_prefetch(struct kiln *kiln,
			    const struct kiln_key *const *keys, size_t n_keys);

/* Give memory back until the memory tier holds at most this. */
KILN_API void kiln_trim(struct kiln *kiln, uint64_t memory_bytes);

/*
 * Change the store's bound (bytes; 0: none) for everyone.  If there is more than
 * that, the newest stays, and of the rest what was used; a value larger than
 * the bound goes, and a later one is TOO_LARGE.
 * Errors: READONLY, UNSUPPORTED (also without a store), FULL (less than the
 * store needs for itself, or than it has and may not evict: nothing changes),
 * TIMEOUT, IO, FORKED, or why the store is not used.
 */
KILN_API enum kiln_status kiln_set_limit(struct kiln *kiln,
					 uint64_t store_bytes_max);

enum kiln_eviction {
	KILN_EVICT_BY_USE = 0, /* what was not used for longest goes first */
	KILN_EVICT_BY_COST,    /* what is large and was built fast, of that */
};

/*
 * Change by what the store chooses what it evicts, for everyone.  Stores are made
 * BY_USE.  By cost, the build time counts that an entry's metadata say (0, more
 * than a day, and what a driver's own entries cost, is not known: these are
 * neither dear nor cheap); with an age limit it does not.  A wipe leaves the choice
 * as it is; who removes the store's files removes it too.
 * Errors: READONLY, UNSUPPORTED (a kind of store that has no such choice, none),
 * INVALID, TIMEOUT, IO, FORKED, or why the store is not used.
 */
KILN_API enum kiln_status kiln_set_eviction(struct kiln *kiln,
					    enum kiln_eviction eviction);

/* ---- Statistics -------------------------------------------------------- */

/*
 * Counters; see <kiln/inspect.h> for their names as text and for those that
 * the store keeps over all processes.  X(NAME, "json_name", "words")
 */
#define KILN_COUNTERS(X)                                                       \
	X(HITS_MEMORY, "hits_memory", "hits in memory")                        \
	X(HITS_STORE, "hits_store", "hits in the store")                       \
	X(WAITED, "waited", "waited for another thread's build")               \
	X(MISSES, "misses", "misses")                                          \
	X(BUILDS, "builds", "builds")                                          \
	X(BUILD_FAILURES, "build_failures", "failed builds")                   \
	X(PUTS, "puts", "entries stored")                                      \
	X(PUTS_DROPPED, "puts_dropped", "entries not stored")                  \
	X(EVICTED, "evicted", "entries evicted")                               \
	X(BYTES_READ, "bytes_read", "bytes read")                              \
	X(BYTES_WRITTEN, "bytes_written", "bytes written")                     \
	X(BUILD_NS, "build_ns", "time spent building, ns")                     \
	X(SAVED_NS, "saved_ns", "build time saved, ns")                        \
	X(COLLISIONS, "collisions", "digest collisions")                       \
	X(MISS_NEW, "miss_new", "miss: new key")                               \
	X(MISS_COMPILER, "miss_compiler", "miss: changed compiler")            \
	X(MISS_DEVICE, "miss_device", "miss: other device")                    \
	X(MISS_OPTIONS, "miss_options", "miss: changed options")               \
	X(MISS_INCLUDE, "miss_include", "miss: changed include")               \
	X(MISS_ENVIRONMENT, "miss_environment", "miss: changed environment")   \
	X(MISS_UNRESOLVED, "miss_unresolved",                                  \
	  "not cached: unresolved include")                                    \
	X(MISS_TIME_MACRO, "miss_time_macro", "not cached: time macro")        \
	X(MISS_DIRECTIVE, "miss_directive", "not cached: directive")           \
	X(MISS_DAMAGED, "miss_damaged", "miss: damaged entry")                 \
	X(MISS_REFUSED, "miss_refused", "miss: refused by the driver")         \
	X(MISS_UNSUPPORTED, "miss_unsupported",                                \
	  "not cached: unsupported call")                                      \
	X(MISS_UNKNOWN_LAYER, "miss_unknown_layer",                            \
	  "not cached: unknown layer")                                         \
	X(MISS_FULL, "miss_full", "not stored: store full")                    \
	X(MISS_UNAVAILABLE, "miss_unavailable", "miss: store unavailable")     \
	X(MISS_BUSY, "miss_busy", "not stored: store busy")                    \
	X(JOBS_WRITTEN, "jobs_written", "jobs written")                        \
	X(JOBS_DONE, "jobs_done", "jobs done")                                 \
	X(JOBS_FAILED, "jobs_failed", "jobs failed")                           \
	X(JOBS_REFUSED, "jobs_refused", "jobs not written: spool full")        \
	X(LOCK_TIMEOUTS, "lock_timeouts", "locks not had in time")             \
	X(NO_LOCKS, "no_locks", "file system without locks")                   \
	X(MISS_UNSIGNED, "miss_unsigned", "miss: no trusted signature")        \
	X(HITS_PACK, "hits_pack", "hits in packs")                             \
	X(HITS_REMOTE, "hits_remote", "hits from the remote")                  \
	X(REMOTE_ABSENT, "remote_absent", "remote: not there")                 \
	X(REMOTE_LATE, "remote_late", "remote: too late")                      \
	X(REMOTE_FAULTS, "remote_faults", "remote: failures")                  \
	X(REMOTE_DAMAGED, "remote_damaged", "remote: damaged or foreign")      \
	X(REMOTE_UNSIGNED, "remote_unsigned", "remote: no trusted signature")  \
	X(REMOTE_WAIT_NS, "remote_wait_ns", "time waited for the remote, ns")  \
	X(REMOTE_PUTS, "remote_puts", "entries handed to the remote")          \
	X(REMOTE_PUTS_DROPPED, "remote_puts_dropped",                          \
	  "entries not handed to the remote")                                  \
	X(REMOTE_NO_LEASES, "remote_no_leases", "builds without a lease")

enum kiln_counter {
#define KILN_COUNTER_ENUM(name, json, words) KILN_COUNT_##name,
	KILN_COUNTERS(KILN_COUNTER_ENUM)
#undef KILN_COUNTER_ENUM
		KILN_N_COUNTERS
};

struct kiln_stats {
	size_t size;	       /* set by kiln_stats_init() */
	uint64_t memory_bytes; /* now */
	uint64_t memory_entries;
	uint64_t n_counters; /* of this library: KILN_N_COUNTERS */
	uint64_t counters[KILN_N_COUNTERS]; /* of this kiln since opened */
};

static inline void kiln_stats_init(struct kiln_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
}

/* As much as the caller's `size` has room for.  Errors: INVALID, FORKED. */
KILN_API enum kiln_status kiln_stats(struct kiln *kiln,
				     struct kiln_stats *out_stats);

/* Count events that only a front end sees; kept with the store's counters. */
KILN_API void kiln_count(struct kiln *kiln, enum kiln_counter counter,
			 uint64_t n);

#ifdef __cplusplus
}
#endif
#endif /* KILN_KILN_H */
