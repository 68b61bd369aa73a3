/* SPDX-License-Identifier: MIT */

/*
 * store DIRECTORY WHAT: a store for the report to tell of.
 *
 *	full	a quota for one namespace; ten look-ups today, six of them hits, and four three days ago,
 *		three of them hits; entries of an ordinary application, of one
 *		with a hostile name, and of nobody
 *	young	the look-ups of today alone
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

#define DAY_NS ((uint64_t)86400 * 1000000000)
#define HOSTILE                                                                \
	"/opt/</title></svg><script>alert(1)</script>\"'&\x1b\xe2\x80\xae\xff"

static uint64_t back_ns;

static uint64_t then(const struct ki_sys *sys)
{
	return ki_sys_posix.realtime_ns(&ki_sys_posix) - back_ns;
}

static void count(const char *stats, const char *application,
		  const uint64_t deltas[KILN_N_COUNTERS])
{
	struct ki_sys sys = ki_sys_posix;

	sys.realtime_ns = then;
	if (ki_counters_add(&sys, stats, 0, application, deltas))
		abort();
}

static void use(const char *directory, int is_full)
{
	static const uint64_t today[KILN_N_COUNTERS] = {
		[KILN_COUNT_HITS_STORE] = 6,
		[KILN_COUNT_MISSES] = 4,
		[KILN_COUNT_MISS_NEW] = 2,
		[KILN_COUNT_MISS_INCLUDE] = 1,
		[KILN_COUNT_SAVED_NS] = 4000000000u,
		[KILN_COUNT_BUILD_NS] = 3000000000u,
	};
	static const uint64_t before[KILN_N_COUNTERS] = {
		[KILN_COUNT_HITS_MEMORY] = 3,
		[KILN_COUNT_MISSES] = 1,
		[KILN_COUNT_MISS_NEW] = 1,
		[KILN_COUNT_SAVED_NS] = 1000000000u,
	};
	char stats[600];

	snprintf(stats, sizeof(stats), "%s/kiln.stats", directory);
	back_ns = 3 * DAY_NS;
	if (is_full)
		count(stats, HOSTILE, before);
	back_ns = 0;
	count(stats, "/usr/bin/ordinary", today);
}

static struct kiln_metadata *metadata_of(const char *application,
					 uint64_t build_ns)
{
	uint64_t now_s = ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000;
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, now_s - 7200);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, build_ns);
	if (application)
		kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
					 application);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 "-DX=<b>&amp;</b>");
	return metadata;
}

static void put(struct kiln *kiln, unsigned number, const char *application,
		size_t size, uint64_t build_ns)
{
	struct kiln_metadata *metadata = metadata_of(application, build_ns);
	struct kiln_key *key = kiln_key_new();
	char *value = calloc(1, size);

	kiln_key_add(key, "number", &number, sizeof(number));
	kiln_key_add_string(key, "device 0 name", "A \"device\"");
	if (kiln_key_finish(key) || !value ||
	    kiln_put(kiln, key, value, size, metadata, 0))
		abort();
	free(value);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
}

int main(int argc, char **argv)
{
	int is_full = argc == 3 && !strcmp(argv[2], "full");
	struct kiln_options options;
	struct kiln *kiln;
	char url[600];

	if (argc != 3)
		return 2;
	snprintf(url, sizeof(url), "log:%s", argv[1]);
	kiln_options_init(&options);
	options.store_url = url;
	options.application = "/usr/bin/ordinary";
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		return 1;
	if (is_full) {
		put(kiln, 1, "/usr/bin/ordinary", 300000, 3000000000u);
		put(kiln, 2, "/usr/bin/ordinary", 3000, 500000000);
		put(kiln, 3, HOSTILE, 100000, 1500000000);
		put(kiln, 4, NULL, 10, 0);
	}
	if (is_full && kiln_set_namespace_limit(kiln, "ordinary", 512 << 10))
		return 1;
	kiln_close(kiln);
	use(argv[1], is_full);
	return 0;
}
