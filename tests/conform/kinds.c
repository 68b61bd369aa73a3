/* SPDX-License-Identifier: MIT */

#include "conform/kinds.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "harness/harness.h"
#include "store/log/log.h"
#include "store/neo/neo.h"
#include "store/sycl/sycl.h"

static uint64_t log_rolls(struct kiln_tier *tier)
{
	return ((struct ki_log *)tier)->index->header->n_rolls;
}

static uint64_t log_grown(struct kiln_tier *tier)
{
	return ((struct ki_log *)tier)->index->header->n_grown;
}

/* ---- NEO ----------------------------------------------------------------- */

static struct {
	uint64_t entries;
	uint64_t records;
} neo_bytes; /* of a walk */

static int is_neo_entry(const char *base)
{
	const char *dot = strrchr(base, '.');

	return dot && (!strcmp(dot, ".cl_cache") || !strcmp(dot, ".l0_cache") ||
		       !strcmp(dot, ".ocloc_cache"));
}

/* Sizes, not blocks: of the file format that it is. */
static int add_size(const char *path, const struct stat *st, int type,
		    struct FTW *place)
{
	const char *base = path + place->base;

	if (type == FTW_F && is_neo_entry(base))
		neo_bytes.entries += (uint64_t)st->st_size;
	else if (type == FTW_F &&
		 !strncmp(base, "kiln.records", sizeof("kiln.records") - 1))
		neo_bytes.records += (uint64_t)st->st_size;
	return 0;
}

static void add_sizes(const char *directory)
{
	memset(&neo_bytes, 0, sizeof(neo_bytes));
	if (nftw(directory, add_size, 8, FTW_PHYS))
		abort();
}

static uint64_t neo_disk_bytes(const char *directory)
{
	add_sizes(directory);
	return neo_bytes.entries + neo_bytes.records;
}

static void hurry_neo(struct kiln_tier *tier)
{
	((struct ki_neo *)tier)->wait_max_ns = 2000000;
}

static const char *check_sum(const char *directory, int is_exact)
{
	char path[4096];
	uint8_t bytes[8];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "%s/config.file", directory);
	file = fopen(path, "rb");
	if (!file)
		return "there is no config.file";
	n = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	if (n != sizeof(bytes))
		return "config.file is short";
	add_sizes(directory);
	if (ki_get_u64(bytes) < neo_bytes.entries)
		return "config.file says less than there is";
	if (is_exact && ki_get_u64(bytes) > neo_bytes.entries)
		return "config.file says more than there is";
	return NULL;
}

/* ---- SYCL ---------------------------------------------------------------- */

static struct {
	uint64_t entries;
	uint64_t uses; /* which a count has and additions have not */
	uint64_t records;
} sycl_bytes; /* of a walk */

static int ends_in(const char *base, const char *suffix)
{
	const size_t size = strlen(base), suffix_size = strlen(suffix);

	return size > suffix_size && !strcmp(base + size - suffix_size, suffix);
}

static int is_sycl_entry(const char *base)
{
	return ends_in(base, ".bin");
}

static int add_sycl_size(const char *path, const struct stat *st, int type,
			 struct FTW *place)
{
	const char *base = path + place->base;

	if (type != FTW_F)
		return 0;
	if (is_sycl_entry(base) || ends_in(base, ".src"))
		sycl_bytes.entries += (uint64_t)st->st_size;
	else if (ends_in(base, "_access_time.txt"))
		sycl_bytes.uses += (uint64_t)st->st_size;
	else if (!strncmp(base, "kiln.records", sizeof("kiln.records") - 1))
		sycl_bytes.records += (uint64_t)st->st_size;
	return 0;
}

static uint64_t sycl_disk_bytes(const char *directory)
{
	memset(&sycl_bytes, 0, sizeof(sycl_bytes));
	if (nftw(directory, add_sycl_size, 16, FTW_PHYS))
		abort();
	return sycl_bytes.entries + sycl_bytes.records;
}

static void hurry_sycl(struct kiln_tier *tier)
{
	((struct ki_sycl *)tier)->wait_max_ns = 2000000;
}

static const char *check_cache_size(const char *directory, int is_exact)
{
	char path[4096];
	unsigned long long sum;
	FILE *file;
	int n;

	snprintf(path, sizeof(path), "%s/cache_size.txt", directory);
	file = fopen(path, "rb");
	if (!file)
		return "there is no cache_size.txt";
	n = fscanf(file, "%llu", &sum);
	fclose(file);
	if (n != 1)
		return "cache_size.txt is no number";
	(void)sycl_disk_bytes(directory);
	if (sum < sycl_bytes.entries)
		return "cache_size.txt says less than there is";
	if (is_exact && sum > sycl_bytes.entries + sycl_bytes.uses)
		return "cache_size.txt says more than there is";
	return NULL;
}

static enum kiln_status open_tree(const struct ki_store_options *options,
				  struct kiln_tier **out_tier)
{
	struct ki_store_options tree = *options;

	tree.name = "tree";
	return ki_store_neo_open(&tree, out_tier);
}

/* ---- By cost ------------------------------------------------------------- */

#define TRIES_MAX 20 /* each as long as a store waits for its lock */

/* Others may be at it, and have it told before us. */
static enum kiln_status tell(struct kiln_tier *tier)
{
	enum kiln_status status = KILN_E_TIMEOUT;
	struct kiln_store_info info;

	for (int i = 0; i < TRIES_MAX && status == KILN_E_TIMEOUT; i++)
		status = !tier->ops->info(tier, &info) &&
					 info.eviction == KILN_EVICT_BY_COST
				 ? KILN_OK
				 : tier->ops->set_eviction(tier,
							   KILN_EVICT_BY_COST);
	return status;
}

/* The store, told so if it has not been. */
static enum kiln_status by_cost(
	enum kiln_status (*open)(const struct ki_store_options *options,
				 struct kiln_tier **out_tier),
	const struct ki_store_options *options, struct kiln_tier **out_tier)
{
	struct kiln_tier *tier;
	enum kiln_status status = open(options, &tier);

	if (!status && !(options->flags & KILN_OPEN_READONLY)) {
		status = tell(tier);
		if (status)
			tier->ops->close(tier);
	}
	if (!status)
		*out_tier = tier;
	return status;
}

#define BY_COST(name)                                                          \
	static enum kiln_status open_##name##_by_cost(                         \
		const struct ki_store_options *options,                        \
		struct kiln_tier **out_tier)                                   \
	{                                                                      \
		return by_cost(ki_store_##name##_open, options, out_tier);     \
	}
BY_COST(log)
BY_COST(file)
BY_COST(neo)
BY_COST(sycl)

/* What two kinds of a format have in common. */
/* clang-format off */
#define LOG_WAYS \
	.persists = 1, .is_own = 1, .has_sessions = 1, .has_sources = 1, \
	.has_eviction = 1, .n_rolls = log_rolls, .n_grown = log_grown
#define FILE_WAYS \
	.persists = 1, .is_own = 1, .has_eviction = 1, .has_files_clock = 1
#define NEO_WAYS \
	.persists = 1, .is_alone = 1, .evicts = 3, .has_eviction = 1, \
	.may_collide = 1, .has_files_clock = 1, .hurry = hurry_neo, \
	.disk_bytes = neo_disk_bytes, .is_named_by_inode = is_neo_entry, \
	.check_account = check_sum
#define SYCL_WAYS \
	.persists = 1, .is_alone = 1, .evicts = 2, .has_eviction = 1, \
	.hurry = hurry_sycl, .disk_bytes = sycl_disk_bytes, \
	.is_named_by_inode = is_sycl_entry, .check_account = check_cache_size
#define TOLD_TO(format) \
	.scheme = #format, .resembles = 1, .by_cost = 1, \
	.open = open_##format##_by_cost

const struct kind kinds[] = {
	{ .name = "log", .open = ki_store_log_open, LOG_WAYS },
	{ .name = "log-cost", TOLD_TO(log), LOG_WAYS },
	{ .name = "file", .open = ki_store_file_open, FILE_WAYS },
	{ .name = "file-cost", TOLD_TO(file), FILE_WAYS },
	{ .name = "neo", .open = ki_store_neo_open, NEO_WAYS },
	{ .name = "neo-cost", TOLD_TO(neo), NEO_WAYS },
	{ .name = "neo-tree", .scheme = "neo", .fragment = "#tree",
	  .resembles = 1, .open = open_tree, NEO_WAYS },
	{ .name = "sycl", .resembles = 1, .open = ki_store_sycl_open,
	  SYCL_WAYS },
	{ .name = "sycl-cost", TOLD_TO(sycl), SYCL_WAYS },
	{ .name = "double", .open = double_open },
	{ .name = NULL },
};
/* clang-format on */

const struct kind *kind_find(const char *name)
{
	const struct kind *kind;

	for (kind = kinds; kind->name; kind++)
		if (!strcmp(kind->name, name))
			return kind;
	return NULL;
}

char *kind_url(const struct kind *kind, const char *directory)
{
	char *url;

	if (asprintf(&url, "%s:%s%s", kind->scheme ? kind->scheme : kind->name,
		     directory, kind->fragment ? kind->fragment : "") < 0)
		abort();
	return url;
}

uint64_t kind_disk_bytes(const struct kind *kind, const char *directory)
{
	return kind->disk_bytes ? kind->disk_bytes(directory)
				: harness_disk_bytes(directory);
}

struct kiln_key *numbered_key(unsigned n)
{
	struct kiln_key *key = kiln_key_new();
	char number[4];

	ki_put_u32(number, n);
	kiln_key_add_string(key, "family", "numbered");
	kiln_key_add(key, "number", number, sizeof(number));
	if (kiln_key_finish(key))
		abort();
	return key;
}

void fill_value(unsigned n, void *data, size_t size)
{
	uint8_t *bytes = data;
	uint32_t state = n * 2654435761u + 1;

	for (size_t i = 0; i < size; i++) {
		state = state * 1664525u + 1013904223u;
		bytes[i] = (uint8_t)(state >> 24);
	}
	ki_put_u32(bytes, n);
	ki_put_u32(bytes + 4, (uint32_t)size);
}

/* docs/formats/key.md */
void fill_metadata(unsigned n, uint8_t bytes[NUMBERED_METADATA_BYTES])
{
	const uint64_t few_ns = (uint64_t)100000 << n % 13;
	const uint64_t build_ns[] = { few_ns, few_ns * 7, 0, UINT64_MAX,
				      few_ns };

	ki_put_u32(bytes, n % 5 < 4 ? KILN_META_BUILD_TIME : 0xffff);
	ki_put_u32(bytes + 4, 8);
	ki_put_u64(bytes + 8, build_ns[n % 5]);
}

int is_metadata_of(unsigned n, const struct kiln_blob *metadata)
{
	uint8_t bytes[NUMBERED_METADATA_BYTES];
	const void *data = kiln_blob_data(metadata);

	fill_metadata(n, bytes);
	if (kiln_blob_size(metadata) == 8)
		return !memcmp(data, "metadata", 8);
	return kiln_blob_size(metadata) == sizeof(bytes) &&
	       !memcmp(data, bytes, sizeof(bytes));
}

int is_value_of(unsigned n, const void *data, size_t size)
{
	uint8_t *expected;
	int result;

	if (size < 8)
		return 0;
	expected = malloc(size);
	if (!expected)
		abort();
	fill_value(n, expected, size);
	result = !memcmp(expected, data, size);
	free(expected);
	return result;
}

enum kiln_status put_numbered(struct kiln_tier *tier, unsigned n, size_t size,
			      unsigned flags)
{
	struct kiln_key *key = numbered_key(n);
	uint8_t metadata[NUMBERED_METADATA_BYTES];
	enum kiln_status status;
	void *value = malloc(size);

	if (!value)
		abort();
	fill_value(n, value, size);
	fill_metadata(n, metadata);
	status = tier->ops->put(tier, key, metadata, sizeof(metadata), value,
				size, flags);
	free(value);
	kiln_key_free(key);
	return status;
}

int get_numbered(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	struct kiln_blob *blob = NULL, *metadata = NULL;
	int result = tier->ops->get(tier, key, &blob, &metadata);

	if (!result &&
	    (!is_value_of(n, kiln_blob_data(blob), kiln_blob_size(blob)) ||
	     !is_metadata_of(n, metadata)))
		result = WRONG_BYTES;
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	return result;
}
