/* SPDX-License-Identifier: MIT */
#ifndef KI_CORE_CACHE_TEST_H
#define KI_CORE_CACHE_TEST_H

/*
 * What the tests of this module share: keys by number, kilns with tiers of the
 * tests' own, builds that count, and what came of a look-up, in words.
 */

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>
#include <kiln/tier.h>

#include "core/cache.h"
#include "key/key.h"

#define S_NS UINT64_C(1000000000)

static inline struct kiln_key *key_of(unsigned number)
{
	struct kiln_key *key = kiln_key_new();
	char text[32];

	snprintf(text, sizeof(text), "kernel %u", number);
	kiln_key_add_string(key, "source", text);
	if (kiln_key_finish(key))
		abort();
	return key;
}

static inline struct kiln *open_with(struct kiln_options options,
				     struct shelf *first, struct shelf *second)
{
	struct kiln_tier *tiers[2];
	struct kiln *kiln;

	if (first)
		tiers[options.n_tiers++] = shelf_tier(first);
	if (second)
		tiers[options.n_tiers++] = shelf_tier(second);
	options.tiers = tiers;
	if (kiln_open(&options, &kiln))
		abort();
	return kiln;
}

static inline struct kiln_options defaults(void)
{
	struct kiln_options options;

	kiln_options_init(&options);
	return options;
}

/* What a build does, and how often it was asked to. */
struct work {
	enum kiln_build_kind kind;
	const char *text;
	struct kiln *kiln;
	unsigned wait_for; /* so many threads wait for this build */
	_Atomic unsigned n_builds;
};

static inline uint64_t counter(struct kiln *kiln, enum kiln_counter which)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	if (kiln_stats(kiln, &stats))
		return UINT64_MAX;
	return stats.counters[which];
}

static inline void build_text(const struct kiln_key *key, void *arg,
			      struct kiln_build_result *result)
{
	struct work *work = arg;

	atomic_fetch_add(&work->n_builds, 1);
	while (work->wait_for &&
	       counter(work->kiln, KILN_COUNT_WAITED) < work->wait_for)
		sched_yield();
	result->kind = work->kind;
	if (work->kind == KILN_BUILD_OK) {
		if (kiln_blob_copy(work->text, strlen(work->text) + 1,
				   &result->blob))
			abort();
		return;
	}
	result->code = -11;
	result->message = strdup(work->text);
}

/* What get_or_build of a key gave, in words. */
static inline const char *outcome(struct kiln *kiln, unsigned number,
				  struct work *work, char out[128])
{
	static const char *const sources[] = { "memory", "store",   "build",
					       "flight", "failure", "remote" };
	struct kiln_key *key = key_of(number);
	struct kiln_build_result result;
	enum kiln_status status;

	kiln_build_result_init(&result);
	status = kiln_get_or_build(kiln, key, build_text, work, &result);
	if (status == KILN_OK)
		snprintf(out, 128, "%s from %s",
			 (const char *)kiln_blob_data(result.blob),
			 sources[result.source]);
	else if (status == KILN_E_BUILD)
		snprintf(out, 128, "%s, %d from %s", result.message,
			 result.code, sources[result.source]);
	else
		snprintf(out, 128, "%s", kiln_status_name(status));
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return out;
}

#define assert_outcome(kiln, number, work, text)                               \
	do {                                                                   \
		char out_[128];                                                \
		assert_string_equal(outcome(kiln, number, work, out_), text);  \
	} while (0)

/* The text of an entry, or the status. */
static inline const char *got(struct kiln *kiln, unsigned number, char out[128])
{
	struct kiln_key *key = key_of(number);
	struct kiln_blob *blob;
	enum kiln_status status = kiln_get(kiln, key, &blob);

	snprintf(out, 128, "%s",
		 status ? kiln_status_name(status)
			: (const char *)kiln_blob_data(blob));
	if (!status)
		kiln_blob_unref(blob);
	kiln_key_free(key);
	return out;
}

#define assert_got(kiln, number, text)                                         \
	do {                                                                   \
		char out_[128];                                                \
		assert_string_equal(got(kiln, number, out_), text);            \
	} while (0)

static inline enum kiln_status put(struct kiln *kiln, unsigned number,
				   const char *text, unsigned flags)
{
	struct kiln_key *key = key_of(number);
	enum kiln_status status =
		kiln_put(kiln, key, text, strlen(text) + 1, NULL, flags);

	kiln_key_free(key);
	return status;
}

/* Threads that ask for one key, spread over some kilns. */
struct crowd {
	struct kiln *kilns[4];
	unsigned n_kilns;
	struct work work;
	_Atomic unsigned n_wrong;
};

static inline int ask_for_one(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	char out[128];

	outcome(crowd->kilns[index % crowd->n_kilns], 1, &crowd->work, out);
	if (strncmp(out, "one from ", 9))
		atomic_fetch_add(&crowd->n_wrong, 1);
	return 0;
}

#endif /* KI_CORE_CACHE_TEST_H */
