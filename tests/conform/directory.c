/* SPDX-License-Identifier: MIT */

/* A directory: opened again, by others, for reading alone, in other versions and by
   other names. */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#include "conform/conform.h"

static void what_was_put_is_there_after_reopening(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);

	for (unsigned n = 0; n < 50; n++)
		assert_int_equal(put_numbered(tier, n, 100 * n + 8, 0),
				 KILN_OK);
	tier->ops->close(tier);
	tier = open_in(directory);
	for (unsigned n = 0; n < 50; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	assert_int_equal(put_numbered(tier, 1, 100, 0), KILN_EXISTS);
	tier->ops->close(tier);
	free(directory);
}

static void two_handles_see_one_store(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *a = open_in(directory), *b = open_in(directory);
	struct kiln_key *key = numbered_key(1);

	assert_int_equal(put_numbered(a, 1, 100, 0), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_OK);
	assert_int_equal(put_numbered(b, 1, 200, 0), KILN_EXISTS);
	assert_int_equal(put_numbered(b, 1, 200, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(get_numbered(a, 1), KILN_OK);
	assert_int_equal(a->ops->remove(a, key), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_MISS);
	assert_int_equal(put_numbered(b, 2, 200, 0), KILN_OK);
	assert_int_equal(a->ops->wipe(a), KILN_OK);
	assert_int_equal(get_numbered(b, 2), KILN_MISS);
	assert_int_equal(put_numbered(b, 2, 200, 0), KILN_OK);
	assert_int_equal(get_numbered(a, 2), KILN_OK);
	a->ops->close(a);
	b->ops->close(b);
	kiln_key_free(key);
	free(directory);
}

struct snapshot {
	uint64_t hash;
	unsigned n;
};

static void add_file(const char *path, const struct stat *st, void *arg)
{
	struct snapshot *snapshot = arg;
	uint64_t facts[] = { st->st_ino,
			     (uint64_t)st->st_size,
			     (uint64_t)st->st_mtim.tv_sec,
			     (uint64_t)st->st_mtim.tv_nsec,
			     (uint64_t)st->st_ctim.tv_sec,
			     (uint64_t)st->st_ctim.tv_nsec,
			     st->st_mode };

	snapshot->hash += ki_xxh3_64(facts, sizeof(facts));
	if (S_ISREG(st->st_mode)) {
		size_t size;
		char *bytes = harness_read(path, &size);

		if (bytes)
			snapshot->hash += ki_xxh3_64(bytes, size);
		free(bytes);
	}
	snapshot->n++;
}

/* S30 */
static void read_only_means_no_write_of_any_kind(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct snapshot before = { 0 }, after = { 0 };
	uint64_t deltas[KILN_N_COUNTERS] = { 1 }, bytes;
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;
	struct kiln_store_info info;

	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	each_file(directory, add_file, &before);

	shift_ns = 48 * HOUR_NS;
	tier = open_bounded(directory, 0, KILN_OPEN_READONLY);
	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	assert_int_equal(get_numbered(tier, 20), KILN_MISS);
	assert_int_equal(put_numbered(tier, 20, 1000, 0), KILN_E_READONLY);
	assert_int_equal(put_numbered(tier, 1, 1000, KILN_PUT_REPLACE),
			 KILN_E_READONLY);
	assert_int_equal(tier->ops->remove(tier, key), KILN_E_READONLY);
	assert_int_equal(tier->ops->wipe(tier), KILN_E_READONLY);
	assert_int_equal(tier->ops->set_limit(tier, BOUND), KILN_E_READONLY);
	if (tier->ops->count)
		tier->ops->count(tier, deltas);
	if (tier->ops->lock && !tier->ops->lock(tier, key, 0, &lock))
		tier->ops->unlock(tier, lock);
	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_int_equal(count_listed(tier, &bytes), 20);
	tier->ops->close(tier);
	shift_ns = 0;

	each_file(directory, add_file, &after);
	assert_int_equal(before.n, after.n);
	assert_true(before.hash == after.hash);
	kiln_key_free(key);
	free(directory);
}

/* S30, on a directory that cannot be written. */
static void a_directory_that_cannot_be_written_still_gives_hits(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	assert_int_equal(chmod(directory, 0500), 0);
	tier = open_bounded(directory, 0, KILN_OPEN_READONLY);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	assert_int_equal(chmod(directory, 0700), 0);
	free(directory);
}

/* S16 */
static void a_directory_that_vanishes_is_made_anew(void **state)
{
	char *directory = harness_directory();
	char *below = harness_path(directory, "store");
	struct kiln_tier *tier = open_in(below);
	int status;

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	harness_remove(below);
	status = get_numbered(tier, 1);
	assert_true(status == KILN_MISS || status == KILN_OK);
	/* The first put may be the one that notices. */
	(void)put_numbered(tier, 2, 1000, 0);
	assert_int_equal(put_numbered(tier, 3, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 3), KILN_OK);
	tier->ops->close(tier);
	tier = open_in(below);
	assert_int_equal(get_numbered(tier, 3), KILN_OK);
	tier->ops->close(tier);
	free(below);
	free(directory);
}

/* S16: nothing is written any more into what was moved away. */
static void a_directory_moved_away_is_left_alone(void **state)
{
	char *directory = harness_directory();
	char *here = harness_path(directory, "here");
	char *there = harness_path(directory, "there");
	struct kiln_tier *tier = open_in(here), *other;
	struct snapshot before = { 0 }, after = { 0 };

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	assert_int_equal(rename(here, there), 0);
	assert_int_equal(mkdir(here, 0700), 0);
	/* The first put may be the one that notices. */
	(void)put_numbered(tier, 2, 1000, 0);
	each_file(there, add_file, &before);
	for (unsigned n = 3; n < 10; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	each_file(there, add_file, &after);
	assert_int_equal(before.n, after.n);
	assert_true(before.hash == after.hash);
	other = open_in(here);
	for (unsigned n = 3; n < 10; n++)
		assert_int_equal(get_numbered(other, n), KILN_OK);
	other->ops->close(other);
	tier->ops->close(tier);
	free(there);
	free(here);
	free(directory);
}

/* Whatever is made, for the moment too. */
static unsigned n_made, n_folded;

static void note_name(const char *path)
{
	const char *base = strrchr(path, '/');

	n_made++;
	for (base = base ? base : path; *base; base++)
		n_folded += isupper((unsigned char)*base) != 0;
}

/* NEO's temporaries are as mkstemp() makes them: one that is taken, by whatever
   case, is not made. */
static int is_noted(const char *path, unsigned flags)
{
	return (flags & KI_OPEN_CREATE) &&
	       !((flags & KI_OPEN_EXCLUSIVE) && strstr(path, "/cl_cache."));
}

static int note_and_open(const struct ki_sys *sys, const char *path,
			 unsigned flags, unsigned mode)
{
	if (is_noted(path, flags))
		note_name(path);
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

static int note_and_open_in(const struct ki_sys *sys, int directory,
			    const char *name, unsigned flags, unsigned mode)
{
	if (is_noted(name, flags))
		note_name(name);
	return ki_sys_posix.open_in(&ki_sys_posix, directory, name, flags,
				    mode);
}

static void note_file(const char *path, const struct stat *st, void *arg)
{
	note_name(path);
}

/*
 * S32: a directory that takes "A" and "a" for one name cannot mistake what a
 * store makes there: in none of its names is a letter that has a lower case.
 */
static void no_name_depends_on_case(void **state)
{
	char *place = harness_directory();
	char *directory = harness_path(place, "store");
	struct ki_store_options options = options_of(directory);
	struct ki_sys sys = *options.sys;
	struct kiln_key *key = numbered_key(3);
	struct kiln_tier_lock *lock;
	struct kiln_tier *tier;

	sys.open = note_and_open;
	sys.open_in = note_and_open_in;
	options.sys = &sys;
	options.bytes_max = BOUND;
	n_made = n_folded = 0;
	tier = open_with(&options);
	for (unsigned n = 0; n < 100; n++)
		assert_int_equal(put_numbered(tier, n, n % 10 ? 1000 : 500000,
					      KILN_PUT_REPLACE),
				 KILN_OK);
	if (tier->ops->lock && !tier->ops->lock(tier, key, 0, &lock))
		tier->ops->unlock(tier, lock);
	each_file(directory, note_file, NULL);
	tier->ops->close(tier);
	assert_true(n_made > 10);
	assert_int_equal(n_folded, 0);
	kiln_key_free(key);
	free(directory);
	free(place);
}

/* ---- Users ------------------------------------------------------------------------ */

#define OTHER_USER 12345u
#define N_OWNED	   2u

/* What one `sudo` leaves behind: one path of root's in a user's store. */
struct sudo {
	char *directory;
	unsigned user;
	unsigned at; /* the path that is root's */
	unsigned n;  /* paths that there are */
	int is_readable;
	_Atomic unsigned *n_builds; /* of what was there; shared */
};

static void give(const char *path, const struct stat *st, void *arg)
{
	struct sudo *sudo = arg;
	int is_roots = sudo->n++ == sudo->at;
	unsigned user = is_roots ? 0 : sudo->user;
	unsigned mode = S_ISDIR(st->st_mode) ? 0700 : 0600;

	if (is_roots && sudo->is_readable)
		mode |= S_ISDIR(st->st_mode) ? 055 : 044;
	if (lchown(path, user, user) || chmod(path, mode))
		abort();
}

static void give_all(struct sudo *sudo, unsigned user)
{
	sudo->user = user;
	sudo->n = 0;
	if (chown(sudo->directory, user, user))
		abort();
	each_file(sudo->directory, give, sudo);
}

struct asked {
	const struct sudo *sudo;
	unsigned n;
};

static void build_numbered(const struct kiln_key *key, void *arg,
			   struct kiln_build_result *result)
{
	const struct asked *asked = arg;
	char value[500];

	fill_value(asked->n, value, sizeof(value));
	if (kiln_blob_copy(value, sizeof(value), &result->blob))
		abort();
	if (asked->n < N_OWNED)
		++*asked->sudo->n_builds;
}

/* Old ones and new ones. */
static int get_or_build_as_user(unsigned index, void *arg)
{
	const struct sudo *sudo = arg;
	char *url = kind_url(kind, sudo->directory);
	struct kiln_options options;
	struct kiln *kiln;
	int wrong = 0;

	if (setresgid(OTHER_USER, OTHER_USER, OTHER_USER) ||
	    setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
		return 1;
	kiln_options_init(&options);
	options.store_url = url;
	options.memory_bytes_max = 0;
	if (kiln_open(&options, &kiln))
		return 2;
	for (unsigned n = 0; n < 2 * N_OWNED; n++) {
		struct kiln_key *key = numbered_key(n);
		struct asked asked = { sudo, n };
		struct kiln_build_result result;

		kiln_build_result_init(&result);
		wrong |= kiln_get_or_build(kiln, key, build_numbered, &asked,
					   &result) ||
			 !is_value_of(n, kiln_blob_data(result.blob),
				      kiln_blob_size(result.blob));
		kiln_build_result_fini(&result);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	free(url);
	return wrong ? 3 : 0;
}

/* How many paths there are. */
static unsigned one_path_is_roots(struct sudo *sudo)
{
	unsigned n_paths;
	struct kiln_verify_report report;
	struct kiln_tier *tier = open_in(sudo->directory);

	for (unsigned n = 0; n < N_OWNED; n++)
		assert_int_equal(put_numbered(tier, n, 500, 0), KILN_OK);
	tier->ops->close(tier);
	give_all(sudo, OTHER_USER);
	n_paths = sudo->n;
	*sudo->n_builds = 0;
	assert_int_equal(harness_processes(1, get_or_build_as_user, sudo,
					   HARNESS_HANG_S),
			 0);
	/* What can be read gives hits, whoever may write it. */
	if (sudo->is_readable || sudo->at >= n_paths)
		assert_int_equal(*sudo->n_builds, 0);
	/* Nothing is broken. */
	give_all(sudo, 0);
	tier = open_in(sudo->directory);
	for (unsigned n = 0; n < N_OWNED; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	tier->ops->close(tier);
	harness_remove(sudo->directory);
	return n_paths;
}

/* S35 */
static void what_root_left_in_a_users_store_is_done_without(void **state)
{
	char *place = harness_directory();
	struct sudo sudo = { .directory = harness_path(place, "store") };

	if (geteuid() || chmod(place, 0755))
		HARNESS_LEAVE_OUT("needs root");
	sudo.n_builds =
		mmap(NULL, sizeof(*sudo.n_builds), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(sudo.n_builds, MAP_FAILED);
	for (sudo.is_readable = 0; sudo.is_readable < 2; sudo.is_readable++) {
		sudo.at = 0;
		/* The last one is nobody's. */
		while (one_path_is_roots(&sudo) >= sudo.at)
			sudo.at++;
	}
	munmap((void *)sudo.n_builds, sizeof(*sudo.n_builds));
	free(sudo.directory);
	free(place);
}

/* ---- Trust ---------------------------------------------------------------------- */

static void make_link(const char *store, const char *aside)
{
	assert_int_equal(rename(store, aside), 0);
	assert_int_equal(symlink(aside, store), 0);
}

static void open_to_all(const char *store, const char *aside)
{
	assert_int_equal(chmod(store, 0777), 0);
}

static void open_to_a_group(const char *store, const char *aside)
{
	assert_int_equal(chmod(store, 0770), 0);
	if (!geteuid())
		assert_int_equal(chown(store, 0, 12345), 0);
}

static void open_above(const char *store, const char *aside)
{
	char *above = strdup(store);

	*strrchr(above, '/') = '\0';
	assert_int_equal(chmod(above, 0777), 0);
	free(above);
}

static void give_away(const char *store, const char *aside)
{
	assert_int_equal(chown(store, 12345, (gid_t)-1), 0);
}

static const struct {
	void (*change)(const char *store, const char *aside);
	int needs_root;
} unsafe[] = {
	{ make_link, 0 },  { open_to_all, 0 }, { open_to_a_group, 1 },
	{ open_above, 0 }, { give_away, 1 },
};
#define N_UNSAFE (sizeof(unsafe) / sizeof(unsafe[0]))

/* S37: what lies there may be anybody's; it is neither loaded nor changed. */
static void an_unsafe_directory_is_refused(void **state)
{
	static const uint32_t flags[] = { 0, KILN_OPEN_GUEST,
					  KILN_OPEN_READONLY };

	for (size_t i = 0; i < N_UNSAFE * 3; i++) {
		char *place = harness_directory();
		char *store = harness_path(place, "store");
		char *aside = harness_path(place, "aside");
		struct ki_store_options options = options_of(store);
		struct kiln_tier *tier = open_bounded(store, BOUND, 0);
		struct snapshot before = { 0 }, after = { 0 };

		if (unsafe[i / 3].needs_root && geteuid())
			goto out;
		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(put_numbered(tier, n, 1000, 0),
					 KILN_OK);
		tier->ops->close(tier);
		tier = NULL;
		unsafe[i / 3].change(store, aside);
		each_file(place, add_file, &before);
		options.bytes_max = BOUND;
		options.flags = flags[i % 3];
		assert_int_equal(kind->open(&options, &tier), KILN_E_OWNER);
		each_file(place, add_file, &after);
		assert_int_equal(before.n, after.n);
		assert_true(before.hash == after.hash);
		assert_int_equal(chmod(place, 0700), 0);
	out:
		if (tier)
			tier->ops->close(tier);
		free(aside);
		free(store);
		free(place);
	}
}

/* The clocks that a store looks again by. */
static _Atomic uint64_t later_ns;

static uint64_t later_coarse(const struct ki_sys *sys)
{
	return ki_sys_posix.coarse_ns(sys) + later_ns;
}

static uint64_t later_monotonic(const struct ki_sys *sys)
{
	return ki_sys_posix.monotonic_ns(sys) + later_ns;
}

/* As it was, from the other side. */
static void make_safe(const char *place, const char *store, const char *aside)
{
	struct stat st;

	assert_int_equal(chmod(place, 0700), 0);
	assert_int_equal(lstat(store, &st), 0);
	if (S_ISLNK(st.st_mode)) {
		assert_int_equal(unlink(store), 0);
		assert_int_equal(rename(aside, store), 0);
	}
	assert_int_equal(chown(store, geteuid(), getegid()), 0);
	assert_int_equal(chmod(store, 0700), 0);
}

/* Whatever is asked of it. */
static void assert_refused(struct kiln_tier *tier)
{
	const struct kiln_gc_options gc = { .age_max_s = 1 };
	const uint64_t deltas[KILN_N_COUNTERS] = { 1 };
	struct kiln_verify_report verified;
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_key *key = numbered_key(1);
	struct kiln_store_info info;
	struct kiln_gc_report report;
	struct kiln_tier_lock *lock;
	struct kiln_entry entry;

	assert_int_equal(get_numbered(tier, 1), KILN_E_OWNER);
	assert_int_equal(put_numbered(tier, 9, 1000, 0), KILN_E_OWNER);
	assert_int_equal(put_numbered(tier, 1, 1000, KILN_PUT_REPLACE),
			 KILN_E_OWNER);
	assert_int_equal(tier->ops->remove(tier, key), KILN_E_OWNER);
	assert_int_equal(tier->ops->wipe(tier), KILN_E_OWNER);
	assert_int_equal(tier->ops->set_limit(tier, 2 * BOUND), KILN_E_OWNER);
	assert_int_equal(tier->ops->gc(tier, &gc, NULL, NULL, &report),
			 KILN_E_OWNER);
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &verified),
			 KILN_E_OWNER);
	assert_int_equal(tier->ops->list(tier, &cursor, &entry), KILN_E_OWNER);
	assert_int_equal(tier->ops->info(tier, &info), KILN_E_OWNER);
	assert_int_equal(tier->ops->count(tier, deltas), KILN_E_OWNER);
	assert_int_equal(tier->ops->zero_counters(tier), KILN_E_OWNER);
	assert_int_not_equal(tier->ops->lock(tier, key, 0, &lock), KILN_OK);
	kiln_key_free(key);
}

/* S37: so it is with one that has been open since before. */
static void an_open_directory_that_becomes_unsafe_is_left_alone(void **state)
{
	for (size_t i = 0; i < N_UNSAFE; i++) {
		char *place = harness_directory();
		char *store = harness_path(place, "store");
		char *aside = harness_path(place, "aside");
		struct ki_store_options options = options_of(store);
		struct snapshot before = { 0 }, after = { 0 };
		struct ki_sys sys = *options.sys;
		struct kiln_tier *tier;

		if (unsafe[i].needs_root && geteuid())
			goto out;
		sys.coarse_ns = later_coarse;
		sys.monotonic_ns = later_monotonic;
		options.sys = &sys;
		options.bytes_max = BOUND;
		tier = open_with(&options);
		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(put_numbered(tier, n, 1000, 0),
					 KILN_OK);
		unsafe[i].change(store, aside);
		later_ns += 2100000000;
		each_file(place, add_file, &before);
		assert_refused(tier);
		each_file(place, add_file, &after);
		assert_int_equal(before.n, after.n);
		assert_true(before.hash == after.hash);
		make_safe(place, store, aside);
		later_ns += 2100000000;
		assert_int_equal(get_numbered(tier, 1), KILN_OK);
		assert_int_equal(put_numbered(tier, 3, 1000, 0), KILN_OK);
		unsafe[i].change(store, aside);
		later_ns += 2100000000;
		before = after = (struct snapshot){ 0 };
		each_file(place, add_file, &before);
		assert_int_equal(get_numbered(tier, 1), KILN_E_OWNER);
		tier->ops->close(tier);
		each_file(place, add_file, &after);
		assert_true(before.hash == after.hash);
		assert_int_equal(chmod(place, 0700), 0);
	out:
		free(aside);
		free(store);
		free(place);
	}
}

static void check_shared(const char *path, const struct stat *st, void *arg)
{
	const unsigned mode = st->st_mode & 0777;

	if (S_ISREG(st->st_mode) && mode != 0660)
		fail_msg("%s: mode %o", path, mode);
	if (S_ISDIR(st->st_mode) && (mode & 0770) != 0770)
		fail_msg("%s: mode %o", path, mode);
}

/* S35: all that a shared store makes, its group may read and write. */
static void all_of_a_shared_store_is_its_groups(void **state)
{
	const uint64_t deltas[KILN_N_COUNTERS] = { 1 };
	char *place = harness_directory();
	char *store = harness_path(place, "store");
	const mode_t mask = umask(077);
	struct kiln_tier *tier = open_bounded(store, BOUND, KILN_OPEN_SHARED);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;

	for (unsigned n = 0; n < 3; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	assert_int_equal(tier->ops->count(tier, deltas), KILN_OK);
	if (!tier->ops->lock(tier, key, 0, &lock))
		tier->ops->unlock(tier, lock);
	each_file(store, check_shared, NULL);
	tier->ops->close(tier);
	umask(mask);
	kiln_key_free(key);
	free(store);
	free(place);
}

/* ---- Versions and names ----------------------------------------------------------- */

static void another_user_version_empties_the_store(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_tier *tier;

	options.user_version = 7;
	tier = open_with(&options);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	options.user_version = 0;
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	options.user_version = 7;
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	options.user_version = 8;
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_MISS);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* Of which it sees nothing, and where it changes nothing. */
static void sessions_agree_on_a_version_and_a_quota(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier *a, *b;

	options.flags = KILN_OPEN_SESSION;
	options.quota_bytes = key->data_size + 1000;
	a = open_with(&options);
	options.user_version = (uint64_t)7 << 32;
	assert_int_equal(kind->open(&options, &b), KILN_EXISTS);
	options.user_version = 0;
	options.quota_bytes *= 2;
	b = open_with(&options);
	assert_int_equal(put_numbered(b, 1, 1001, 0), KILN_E_FULL);
	assert_int_equal(put_numbered(b, 1, 1000, 0), KILN_OK);
	assert_int_equal(put_numbered(a, 2, 8, 0), KILN_E_FULL);
	assert_int_equal(put_numbered(a, 1, 1000, 0), KILN_EXISTS);
	assert_int_equal(a->ops->remove_at_close(a), KILN_OK);
	a->ops->close(a);
	assert_int_equal(get_numbered(b, 1), KILN_OK);
	b->ops->close(b);
	options.user_version = (uint64_t)7 << 32;
	a = open_with(&options);
	assert_int_equal(get_numbered(a, 1), KILN_MISS);
	a->ops->close(a);
	kiln_key_free(key);
	free(directory);
}

static void a_handle_stays_out_of_another_user_version(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_tier *a, *b;

	options.user_version = 7;
	a = open_with(&options);
	assert_int_equal(put_numbered(a, 1, 1000, 0), KILN_OK);
	options.user_version = 8;
	b = open_with(&options);
	assert_int_equal(put_numbered(b, 2, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(a, 1), KILN_MISS);
	assert_int_equal(get_numbered(a, 2), KILN_MISS);
	assert_int_equal(put_numbered(a, 3, 1000, 0), KILN_E_FORMAT);
	assert_int_equal(put_numbered(a, 2, 1000, KILN_PUT_REPLACE),
			 KILN_E_FORMAT);
	assert_int_equal(a->ops->wipe(a), KILN_E_FORMAT);
	assert_int_equal(get_numbered(b, 2), KILN_OK);
	assert_int_equal(get_numbered(b, 3), KILN_MISS);
	assert_int_equal(get_numbered(a, 2), KILN_MISS);
	a->ops->close(a);
	b->ops->close(b);
	free(directory);
}

static void stores_of_two_names_are_strangers(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_tier *a, *b;

	a = open_with(&options);
	options.name = "other";
	b = open_with(&options);
	assert_int_equal(put_numbered(a, 1, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_MISS);
	assert_int_equal(put_numbered(b, 1, 1000, 0), KILN_OK);
	assert_int_equal(a->ops->wipe(a), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_OK);
	a->ops->close(a);
	b->ops->close(b);
	free(directory);
}

static void counters_add_up_over_handles(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *a = open_in(directory), *b = open_in(directory);
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	deltas[KILN_COUNT_MISSES] = 3;
	deltas[KILN_COUNT_MISS_NEW] = 2;
	deltas[KILN_N_COUNTERS - 1] = 1;
	a->ops->count(a, deltas);
	b->ops->count(b, deltas);
	assert_int_equal(a->ops->counters(a, counters), KILN_OK);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 6);
	assert_int_equal(counters->total[KILN_N_COUNTERS - 1], 2);
	assert_int_equal(counters->reasons[0][0] + counters->reasons[1][0], 4);
	assert_int_equal(counters->n_programs, 1); /* this one */
	assert_int_equal(counters->programs[0].total[KILN_COUNT_MISSES], 6);
	assert_int_equal(counters->last_run.total[KILN_COUNT_MISSES], 6);
	assert_int_equal(a->ops->zero_counters(a), KILN_OK);
	assert_int_equal(b->ops->counters(b, counters), KILN_OK);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 0);
	free(counters);
	a->ops->close(a);
	b->ops->close(b);
	free(directory);
}

const struct row directory_rows[] = {
	ROW(what_was_put_is_there_after_reopening, DISK),
	ROW(two_handles_see_one_store, DISK),
	ROW(read_only_means_no_write_of_any_kind, DISK),
	ROW(a_directory_that_cannot_be_written_still_gives_hits, DISK),
	ROW(a_directory_that_vanishes_is_made_anew, DISK),
	ROW(a_directory_moved_away_is_left_alone, DISK),
	ROW(no_name_depends_on_case, DISK),
	ROW(what_root_left_in_a_users_store_is_done_without, DISK),
	ROW(an_unsafe_directory_is_refused, DISK),
	ROW(an_open_directory_that_becomes_unsafe_is_left_alone, DISK),
	ROW(all_of_a_shared_store_is_its_groups, DISK | COUNT | LOCK),
	ROW(another_user_version_empties_the_store, DISK),
	ROW(a_handle_stays_out_of_another_user_version, DISK),
	ROW(sessions_agree_on_a_version_and_a_quota, SHARES),
	ROW(stores_of_two_names_are_strangers, DISK | NAMES),
	ROW(counters_add_up_over_handles, DISK | COUNT),
	ROWS_END,
};
