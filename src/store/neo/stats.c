/* SPDX-License-Identifier: MIT */

/*
 * The driver's own counters, in the tree layout and where NEO_CACHE_STATS asks for
 * them: `stats` in the root and in each directory below, each with the look-ups of
 * what lies under it.
 *
 *	 0  hits	 8 bytes each, little-endian
 *	 8  misses
 *	16  version	 1
 *
 * A look-up is counted from the root down, each file under its own flock, and ends
 * at the first that cannot be had: a miss in a directory that is not there counts
 * above it alone.  So what is lost or damaged can be counted anew from the files
 * below, but for such misses; the originals begin at 0.
 */

#include "store/neo/neo.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define STATS_BYTES   24
#define STATS_VERSION 1
#define WAIT_NS	      ((uint64_t)10 * 1000000)
#define COUNT_MAX     ((uint64_t)1 << 62)
#define LEVELS	      3

static const char digits[] = "0123456789abcdef";

/* `prefix`: "", "a/" or "a/b/".  -ENOENT: a link is on the way. */
static int path_of(const struct ki_neo *neo, const char *prefix,
		   char out[KI_PATH_MAX])
{
	char name[16];
	int err;

	snprintf(name, sizeof(name), "%.4sstats", prefix);
	err = ki_neo_check_fans(neo, name);
	return err ? err : ki_neo_path(neo, name, out);
}

/* 0, -ENODATA if it is damaged. */
static int read_counts(const struct ki_sys *sys, int fd,
		       struct ki_neo_lookups *out_counts)
{
	uint8_t bytes[STATS_BYTES];
	int err = ki_pread_all(sys, fd, bytes, sizeof(bytes), 0);

	if (err)
		return err;
	*out_counts = (struct ki_neo_lookups){ ki_get_u64(bytes),
					       ki_get_u64(bytes + 8) };
	return ki_get_u64(bytes + 16) != STATS_VERSION ||
			       out_counts->n_hits > COUNT_MAX ||
			       out_counts->n_misses > COUNT_MAX
		       ? -ENODATA
		       : 0;
}

static int write_counts(const struct ki_sys *sys, int fd,
			const struct ki_neo_lookups *counts)
{
	uint8_t bytes[STATS_BYTES];

	ki_put_u64(bytes, counts->n_hits);
	ki_put_u64(bytes + 8, counts->n_misses);
	ki_put_u64(bytes + 16, STATS_VERSION);
	return ki_pwrite_all(sys, fd, bytes, sizeof(bytes), 0);
}

/* ---- Counting anew ------------------------------------------------------------- */

static int read_file(const struct ki_neo *neo, const char *prefix,
		     struct ki_neo_lookups *out_counts)
{
	const struct ki_sys *sys = neo->sys;
	char path[KI_PATH_MAX];
	int fd, err = path_of(neo, prefix, path);

	if (err)
		return err;
	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	if (fd < 0)
		return fd;
	/* A writer's 24 bytes come at once: no lock. */
	err = read_counts(sys, fd, out_counts);
	(void)sys->close(sys, fd);
	return err;
}

/* The sum of what the files one level below say. */
static struct ki_neo_lookups sum_below(const struct ki_neo *neo,
				       const char *prefix)
{
	struct ki_neo_lookups sum = { 0, 0 };
	const size_t size = strlen(prefix);
	char below[8] = { 0 };

	if (size >= 4)
		return sum;
	memcpy(below, prefix, size);
	below[size + 1] = '/';
	for (const char *digit = digits; *digit; digit++) {
		struct ki_neo_lookups counts;
		int err;

		below[size] = *digit;
		err = read_file(neo, below, &counts);
		if (err == -ENODATA)
			counts = sum_below(neo, below);
		else if (err)
			continue;
		sum.n_hits += counts.n_hits;
		sum.n_misses += counts.n_misses;
	}
	return sum;
}

/* ---- Changing a file --------------------------------------------------------------- */

typedef void change_fn(struct ki_neo_lookups *counts);

static void add_hit(struct ki_neo_lookups *counts)
{
	counts->n_hits++;
}

static void add_miss(struct ki_neo_lookups *counts)
{
	counts->n_misses++;
}

static void forget(struct ki_neo_lookups *counts)
{
	*counts = (struct ki_neo_lookups){ 0, 0 };
}

static int change_locked(const struct ki_neo *neo, int fd, const char *prefix,
			 change_fn *change)
{
	struct ki_neo_lookups counts;
	int err = read_counts(neo->sys, fd, &counts);

	if (err == -ENODATA) {
		counts = sum_below(neo, prefix);
		err = 0;
	}
	if (err)
		return err;
	change(&counts);
	return write_counts(neo->sys, fd, &counts);
}

static int open_file(const struct ki_neo *neo, const char *path, int make)
{
	const struct ki_sys *sys = neo->sys;
	const unsigned flags = KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_NOFOLLOW;
	int fd = sys->open(sys, path, flags, 0);

	if (fd != -ENOENT || !make)
		return fd;
	fd = sys->open(sys, path, flags | KI_OPEN_CREATE, 0664);
	if (fd >= 0 && (neo->flags & KILN_OPEN_SHARED))
		(void)sys->chmod(sys, path, 0660);
	return fd;
}

static int change_file(const struct ki_neo *neo, const char *prefix, int make,
		       change_fn *change)
{
	const struct ki_sys *sys = neo->sys;
	struct ki_fork_close place;
	char path[KI_PATH_MAX];
	int fd, err = path_of(neo, prefix, path);

	if (err)
		return err;
	fd = open_file(neo, path, make);
	if (fd < 0)
		return fd;
	ki_fork_close_add(&place, fd);
	err = ki_flock_until(sys, fd, KI_LOCK_EXCLUSIVE,
			     sys->monotonic_ns(sys) + WAIT_NS);
	if (!err)
		err = change_locked(neo, fd, prefix, change);
	ki_fork_close_remove(&place);
	(void)sys->close(sys, fd);
	return err;
}

/* ---- For others ---------------------------------------------------------------------- */

void ki_neo_count_lookup(const struct ki_neo *neo, const struct kiln_key *key,
			 int is_hit)
{
	char name[KILN_NEO_NAME_BYTES], prefix[8];
	int err = 0;

	if (!neo->keeps_stats || ki_neo_layout(neo) != KILN_NEO_TREE ||
	    ki_neo_is_readonly(neo))
		return;
	ki_neo_name_key(neo, key, NULL, 0, name);
	for (int level = 0; !err && level < LEVELS; level++) {
		snprintf(prefix, sizeof(prefix), "%.*s", 2 * level, name);
		err = change_file(neo, prefix, 1, is_hit ? add_hit : add_miss);
	}
	if (err && err != -ENOENT)
		ki_neo_failed(neo, "Update stats", err);
}

int ki_neo_read_lookups(const struct ki_neo *neo,
			struct ki_neo_lookups *out_lookups)
{
	int err;

	if (ki_neo_layout(neo) != KILN_NEO_TREE)
		return -ENOENT;
	err = read_file(neo, "", out_lookups);
	if (err != -ENODATA)
		return err;
	*out_lookups = sum_below(neo, "");
	return 0;
}

void ki_neo_forget_lookups(const struct ki_neo *neo)
{
	if (ki_neo_layout(neo) != KILN_NEO_TREE)
		return;
	(void)change_file(neo, "", 0, forget);
	for (unsigned i = 0; i < 16; i++) {
		char prefix[8] = { digits[i], '/', '\0' };

		if (change_file(neo, prefix, 0, forget) == -ENOENT)
			continue;
		for (unsigned j = 0; j < 16; j++) {
			prefix[2] = digits[j];
			prefix[3] = '/';
			(void)change_file(neo, prefix, 0, forget);
			prefix[2] = '\0';
		}
	}
}
