/* SPDX-License-Identifier: MIT */
#ifndef KILN_TIER_H
#define KILN_TIER_H

/*
 * A tier keeps entries beyond this process: a store on disk, a server, or
 * something of your own.  A tier is a structure that begins with a struct
 * kiln_tier; kiln calls it through a table of functions.
 *
 * Threads    Every function may be called from any thread at any time, close
 *            excepted, which is called once and last.
 * Blocking   get and put may wait for the medium, never for a build.
 * Failing    Any status below 0 is counted and otherwise a miss.  A tier never
 *            returns bytes that it did not verify against the whole key record
 *            and a checksum.
 * NULL       A function that is NULL is one that the tier cannot do, except
 *            get and close, which must be there.
 */

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KILN_TIER_VERSION 5

struct kiln_tier_lock;

/* What a glance found, where it lies. */
struct kiln_glance {
	const void *value;
	size_t value_size;
	const void *metadata;
	size_t metadata_size;
	/* The tier's; while it lives, so does the value.  Whoever hands the
	   value out takes a reference of its own. */
	struct kiln_blob *holder;
};

/* A new function goes to the end, and raises the version: there is nothing to
   be read behind the end of an older table. */
struct kiln_tier_ops {
	uint32_t version; /* KILN_TIER_VERSION */
	const char *name; /* "log", "file", ... */

	/* KILN_OK, KILN_MISS, an error.  out_metadata may be NULL. */
	enum kiln_status (*get)(struct kiln_tier *tier,
				const struct kiln_key *key,
				struct kiln_blob **out_value,
				struct kiln_blob **out_metadata);

	/* `metadata` is canonical bytes, may be empty.  As kiln_put(). */
	enum kiln_status (*put)(struct kiln_tier *tier,
				const struct kiln_key *key,
				const void *metadata, size_t metadata_size,
				const void *value, size_t value_size,
				unsigned flags);

	/* KILN_OK, KILN_MISS, an error. */
	enum kiln_status (*remove)(struct kiln_tier *tier,
				   const struct kiln_key *key);

	/* Remove every entry, for all that have the medium open. */
	enum kiln_status (*wipe)(struct kiln_tier *tier);

	/* The next entry after the cursor; KILN_END behind the last. */
	enum kiln_status (*list)(struct kiln_tier *tier,
				 struct kiln_cursor *cursor,
				 struct kiln_entry *out_entry);

	/* Check every entry; see kiln_verify(). */
	enum kiln_status (*verify)(struct kiln_tier *tier, unsigned flags,
				   kiln_progress_fn *progress, void *arg,
				   struct kiln_verify_report *out_report);

	/* Come under all limits now; see kiln_gc().  Options are never NULL. */
	enum kiln_status (*gc)(struct kiln_tier *tier,
			       const struct kiln_gc_options *options,
			       kiln_progress_fn *progress, void *arg,
			       struct kiln_gc_report *out_report);

	/* A hint.  Without keys it is the moment, about once a second, to see
	   whether the medium is still there. */
	void (*prefetch)(struct kiln_tier *tier,
			 const struct kiln_key *const *keys, size_t n_keys);

	/* 0: no bound. */
	enum kiln_status (*set_limit)(struct kiln_tier *tier,
				      uint64_t bytes_max);

	enum kiln_status (*info)(struct kiln_tier *tier,
				 struct kiln_store_info *out_info);

	/*
	 * The key's build lock among processes.  KILN_OK with a lock that
	 * unlock ends; KILN_E_TIMEOUT; KILN_E_UNSUPPORTED where the medium has
	 * no locks.  A dead holder's lock is free.
	 */
	enum kiln_status (*lock)(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 uint32_t timeout_ms,
				 struct kiln_tier_lock **out_lock);
	void (*unlock)(struct kiln_tier *tier, struct kiln_tier_lock *lock);

	/* Add to the counters that are kept for all processes.  KILN_E_TIMEOUT:
	   busy, nothing was added; the numbers come again later. */
	enum kiln_status (*count)(struct kiln_tier *tier,
				  const uint64_t deltas[KILN_N_COUNTERS]);

	/* Read them; see kiln_store_counters(). */
	enum kiln_status (*counters)(struct kiln_tier *tier,
				     struct kiln_store_counters *out_counters);
	/* Set them all to 0. */
	enum kiln_status (*zero_counters)(struct kiln_tier *tier);

	/* See kiln_note_build() and kiln_builds_now(). */
	void (*note_build)(struct kiln_tier *tier, int begins);
	unsigned (*builds_now)(struct kiln_tier *tier);

	/* Also in a forked child, where it must only free memory and close
	   descriptors. */
	void (*close)(struct kiln_tier *tier);

	/*
	 * As get, waiting for nothing: no lock, no system call, no write that
	 * other threads meet.  KILN_OK, KILN_MISS, or anything else where only
	 * get() can tell.  What it found, and whatever else it looks at, stays
	 * where it is until kiln_tier_passed() says so of a tag that was taken
	 * after it was made unreachable.  It drops no blob.
	 */
	enum kiln_status (*glance)(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   struct kiln_glance *out_found);

	/* See kiln_remove_at_close(). */
	enum kiln_status (*remove_at_close)(struct kiln_tier *tier);

	/* See kiln_keep_sources(): digests are there, is_kept is 0. */
	enum kiln_status (*keep_sources)(struct kiln_tier *tier,
					 struct kiln_kept *sources,
					 size_t n_sources);
	/* See kiln_find_source(). */
	enum kiln_status (*find_source)(
		struct kiln_tier *tier,
		const uint8_t digest[KILN_SOURCE_DIGEST_BYTES],
		struct kiln_blob **out_source);

	/* See kiln_set_eviction(). */
	enum kiln_status (*set_eviction)(struct kiln_tier *tier,
					 enum kiln_eviction eviction);
};

struct kiln_tier {
	const struct kiln_tier_ops *ops;
	/*
	 * NULL, or a number that changes whenever something handed out earlier
	 * may have been removed or moved: kiln reads it at every call and then
	 * asks is_live() of what its memory tier holds.  The pointer may be
	 * replaced by the tier at any time; what it pointed to stays readable
	 * until close.
	 */
	const uint64_t *generation;
	/* Whether the medium still wants this blob kept in memory.  NULL: yes. */
	int (*is_live)(struct kiln_tier *tier, const struct kiln_blob *blob);
};

/* A tag for what was made unreachable just now.  Any thread, no lock. */
KILN_API uint64_t kiln_tier_retire(void);
/* Whether no glance can see any more what has this tag: then it may be freed.
   Costs a barrier in all threads; never waits. */
KILN_API int kiln_tier_passed(uint64_t tag);

#ifdef __cplusplus
}
#endif
#endif /* KILN_TIER_H */
