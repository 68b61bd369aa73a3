/* SPDX-License-Identifier: MIT */

/* What others do between two steps of ours. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "key/key.h"
#include "store/sycl/helpers_test.h"

#define VALUE 100 /* bytes */

/* Once, before the call. */
static void (*meanwhile)(void);
static char *directory;
static struct kiln_tier *other;

static void happen(void)
{
	void (*what)(void) = meanwhile;

	meanwhile = NULL;
	if (what)
		what();
}

static struct kiln_tier *open_between(struct ki_sys *sys)
{
	struct ki_store_options options = { .sys = sys,
					    .directory = directory };
	struct kiln_tier *tier = NULL;

	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	return tier;
}

static void begin(void)
{
	directory = harness_directory();
	other = open_at(directory, 0);
}

static void end(struct kiln_tier *tier)
{
	tier->ops->close(tier);
	other->ops->close(other);
	free(directory);
}

/* ---- An entry of another kiln's is not taken for DPC++'s ------------------------- */

static int late_opendir(const struct ki_sys *sys, const char *path,
			struct ki_dir **out_dir)
{
	happen();
	return real->opendir(real, path, out_dir);
}

static void store_with_metadata(void)
{
	struct kiln_key *key = key_of(1);

	if (other->ops->put(other, key, "meta", 4, "value", 5, 0))
		abort();
	kiln_key_free(key);
}

/* Stored between the look at the records and that at the place. */
static void what_a_kiln_stores_meanwhile_is_found_by_its_record(void **state)
{
	struct kiln_blob *value = NULL, *metadata = NULL;
	struct kiln_key *key = key_of(1);
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	begin();
	INTERPOSE(&sys, late, opendir);
	tier = open_between(&sys);
	meanwhile = store_with_metadata;
	assert_int_equal(tier->ops->get(tier, key, &value, &metadata), KILN_OK);
	assert_null(meanwhile);
	/* That of .src alone has none. */
	assert_int_equal(kiln_blob_size(metadata), 4);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	end(tier);
}

/* ---- Time ------------------------------------------------------------------------- */

static uint64_t waited_ns;

static uint64_t moved_monotonic_ns(const struct ki_sys *sys)
{
	return real->monotonic_ns(real) + waited_ns;
}

static void moved_sleep_ns(const struct ki_sys *sys, uint64_t ns)
{
	waited_ns += ns;
}

#define TEN_S ((uint64_t)10100 * 1000000)

/* Of the time of a file: what file systems do with inodes is their affair. */
static void make_anew(const char *path)
{
	struct timespec times[2];

	clock_gettime(CLOCK_REALTIME, &times[1]);
	times[0] = times[1];
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* S20: inodes are given again. */
static void a_lock_file_made_anew_under_an_old_inode_is_new(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;
	char *path;

	begin();
	INTERPOSE(&sys, moved, monotonic_ns);
	INTERPOSE(&sys, moved, sleep_ns);
	tier = open_between(&sys);
	path = harness_path(directory, "cache_size.txt");
	harness_write(path, "0", 1);
	free(path);
	path = harness_path(directory, "cache_size.txt.lock");
	harness_write(path, "", 0);
	assert_int_equal(put(tier, 1, VALUE), KILN_OK);
	waited_ns += TEN_S;
	make_anew(path);
	assert_int_equal(put(tier, 2, VALUE), KILN_OK);
	assert_int_equal(access(path, F_OK), 0);
	waited_ns += TEN_S;
	assert_int_equal(put(tier, 3, VALUE), KILN_OK);
	assert_int_equal(access(path, F_OK), -1);
	free(path);
	end(tier);
}

/* ---- A lock that cannot be moved --------------------------------------------------- */

static const char *stuck;
static int unlink_err;

static int stuck_rename(const struct ki_sys *sys, const char *from,
			const char *to)
{
	return !strcmp(from, stuck) ? -EXDEV : real->rename(real, from, to);
}

static int stuck_unlink(const struct ki_sys *sys, const char *path)
{
	return unlink_err && !strcmp(path, stuck) ? unlink_err
						  : real->unlink(real, path);
}

/* The one for evicting lies beside the directory: on another file system, or
   somebody else's. */
static void a_left_lock_for_evicting_ends_no_storing(void **state)
{
	static const int errs[] = { 0, -EPERM };

	for (size_t i = 0; i < 2; i++) {
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier *tier;
		char *path;

		begin();
		assert_true(asprintf(&path, "%s_eviction_in_progress.lock",
				     directory) > 0);
		stuck = path;
		unlink_err = errs[i];
		INTERPOSE(&sys, moved, monotonic_ns);
		INTERPOSE(&sys, moved, sleep_ns);
		INTERPOSE(&sys, stuck, rename);
		INTERPOSE(&sys, stuck, unlink);
		tier = open_between(&sys);
		assert_int_equal(tier->ops->set_limit(tier, 4000), KILN_OK);
		harness_write(path, "", 0);
		for (unsigned n = 0; n < 20; n++)
			(void)put(tier, n, 500);
		waited_ns += TEN_S;
		for (unsigned n = 20; n < 40; n++)
			assert_int_equal(put(tier, n, 500), KILN_OK);
		assert_int_equal(access(path, F_OK), errs[i] ? 0 : -1);
		assert_in_range(bytes_on_disk(directory), 500, 4000);
		end(tier);
		(void)unlink(path);
		free(path);
	}
}

/* ---- Without hard links ------------------------------------------------------------- */

static int link_err;

static int refused_link(const struct ki_sys *sys, const char *from,
			const char *to)
{
	return link_err;
}

/* Lock files are made as DPC++ makes them. */
static void where_there_are_no_links_all_is_as_elsewhere(void **state)
{
	static const int errs[] = { -EPERM, -EOPNOTSUPP, -ENOSYS, -EMLINK };

	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier *tier;
		struct kiln_key *key = key_of(3);

		begin();
		link_err = errs[i];
		INTERPOSE(&sys, refused, link);
		tier = open_between(&sys);
		assert_int_equal(tier->ops->set_limit(tier, 4000), KILN_OK);
		for (unsigned n = 0; n < 20; n++) {
			assert_int_equal(put(tier, n, VALUE), KILN_OK);
			assert_int_equal(get_sized(tier, n, VALUE), KILN_OK);
		}
		assert_in_range(bytes_on_disk(directory), VALUE, 4000);
		assert_int_equal(put(tier, 3, VALUE) == KILN_OK ||
					 get(tier, 3) == KILN_OK,
				 1);
		assert_int_equal(
			put_flags(tier, 3, VALUE + 1, KILN_PUT_REPLACE),
			KILN_OK);
		assert_int_equal(get_sized(tier, 3, VALUE + 1), KILN_OK);
		assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
		/* None is left but kiln.lock. */
		assert_int_equal(n_names(directory, ".lock"), 1);
		kiln_key_free(key);
		end(tier);
	}
}

/* ---- Beside a thread that has the turn ---------------------------------------------- */

static void change_a_byte(unsigned n)
{
	char *path = path_of(directory, n, 0, ".bin");
	size_t size;
	char *bytes = harness_read(path, &size);
	int fd = open(path, O_WRONLY);
	struct timespec times[2];
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	assert_int_equal(pwrite(fd, "x", 1, (off_t)size - 1), 1);
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
	free(bytes);
	free(path);
}

static void who_looks_waits_for_nobody(void **state) KI_NO_ANALYSIS
{
	struct ki_sys sys = ki_sys_posix;
	struct ki_sycl_turn turn;
	struct kiln_tier *tier;

	begin();
	INTERPOSE(&sys, moved, monotonic_ns);
	INTERPOSE(&sys, moved, sleep_ns);
	tier = open_between(&sys);
	assert_int_equal(put(tier, 1, VALUE), KILN_OK);
	change_a_byte(1);
	assert_int_equal(ki_sycl_turn_begin(sycl_of(tier), 0, &turn), KILN_OK);
	waited_ns = 0;
	assert_int_not_equal(get(tier, 1), KILN_OK);
	assert_int_equal(waited_ns, 0);
	/* Who stores waits a tenth of a second. */
	assert_int_equal(put(tier, 2, VALUE), KILN_E_TIMEOUT);
	assert_in_range(waited_ns, 0, 110000000);
	assert_int_equal(ki_sycl_turn_end(sycl_of(tier), &turn), KILN_OK);
	assert_int_equal(put(tier, 2, VALUE), KILN_OK);
	end(tier);
}

static struct kiln_tier *told_of;
static unsigned n_told;

/* A user's function may ask the store. */
static void look_and_store(void *arg, enum kiln_log_level level,
			   const char *message)
{
	assert_int_equal(get(told_of, 7), KILN_OK);
	assert_int_equal(put(told_of, 100 + n_told++, VALUE), KILN_OK);
}

static void nothing_is_told_with_the_turn(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct ki_store_options options = { .sys = &sys,
					    .log = look_and_store };
	struct kiln_tier *tier;
	char *path;

	begin();
	INTERPOSE(&sys, moved, monotonic_ns);
	INTERPOSE(&sys, moved, sleep_ns);
	options.directory = directory;
	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	told_of = tier;
	n_told = 0;
	assert_int_equal(put(tier, 7, VALUE), KILN_OK);
	assert_int_equal(put(tier, 1, VALUE), KILN_OK);
	change_a_byte(1);
	assert_int_not_equal(get(tier, 1), KILN_OK);
	assert_int_equal(n_told, 1);
	path = path_of(directory, 7, 5, ".lock");
	harness_write(path, "", 0);
	assert_int_equal(tier->ops->set_limit(tier, 1 << 20), KILN_OK);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(n_told, 2);
	free(path);
	end(tier);
}

/* ---- Too old ------------------------------------------------------------------------- */

/* S48: whoever comes every eight days compiles once and not each time. */
static void what_is_too_old_is_stored_again(void **state)
{
	for (int is_theirs = 0; is_theirs < 2; is_theirs++) {
		struct ki_store_options options = { .sys = &ki_sys_posix,
						    .age_max_s = 3600 };
		struct kiln_tier *tier;

		begin();
		options.directory = directory;
		assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
		if (is_theirs)
			plant(directory, 1, 0, VALUE, 5);
		else
			assert_int_equal(put(tier, 1, VALUE), KILN_OK);
		set_use(directory, 1, 0, 2);
		assert_int_equal(get(tier, 1), KILN_MISS);
		assert_int_equal(put(tier, 1, VALUE + 1), KILN_OK);
		assert_int_equal(get_sized(tier, 1, VALUE + 1), KILN_OK);
		assert_int_equal(put(tier, 1, VALUE), KILN_EXISTS);
		assert_int_equal(n_names(directory, ".bin"), 1);
		end(tier);
	}
}

/* ---- Another by now ------------------------------------------------------------------ */

static void evict_and_store(void)
{
	static const char *const suffixes[] = { ".src", ".bin" };

	for (size_t i = 0; i < 2; i++) {
		char *path = path_of(directory, 1, 0, suffixes[i]);

		if (unlink(path))
			abort();
		free(path);
	}
	plant(directory, 1, 0, VALUE + 7, 0);
}

static int late_link(const struct ki_sys *sys, const char *from, const char *to)
{
	char *path = path_of(directory, 1, 0, ".lock");

	if (!strcmp(path, to))
		happen();
	free(path);
	return real->link(real, from, to);
}

/* S21: what was chosen to go is not what lies there when its lock is had. */
static void what_came_in_its_place_stays(void **state)
{
	for (int is_removal = 0; is_removal < 2; is_removal++) {
		struct kiln_gc_options options = { 64, 0, 0 };
		struct ki_sys sys = ki_sys_posix;
		struct kiln_gc_report report;
		struct kiln_key *key = key_of(1);
		struct kiln_tier *tier;

		begin();
		INTERPOSE(&sys, late, link);
		tier = open_between(&sys);
		plant(directory, 1, 0, VALUE, 30);
		meanwhile = evict_and_store;
		if (is_removal)
			(void)tier->ops->remove(tier, key);
		else
			(void)tier->ops->gc(tier, &options, NULL, NULL,
					    &report);
		assert_null(meanwhile);
		assert_int_equal(get_sized(tier, 1, VALUE + 7), KILN_OK);
		kiln_key_free(key);
		end(tier);
	}
}

/* ---- Replaced, removed, of another version ------------------------------------------- */

/* S20 */
static void what_is_replaced_under_a_lock_does_not_come_back(void **state)
{
	struct kiln_tier *tier;
	char *lock;

	begin();
	tier = open_at(directory, 0);
	lock = path_of(directory, 1, 0, ".lock");
	assert_int_equal(put(tier, 1, VALUE), KILN_OK);
	harness_write(lock, "", 0);
	assert_int_equal(put(tier, 1, VALUE + 1), KILN_OK);
	assert_int_equal(put_flags(tier, 1, VALUE + 2, KILN_PUT_REPLACE),
			 KILN_OK);
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(get_sized(tier, 1, VALUE + 2), KILN_OK);
	assert_int_equal(n_names(directory, ".bin"), 1);
	free(lock);
	end(tier);
}

static void an_entry_without_src_gets_one(void **state)
{
	struct kiln_tier *tier;
	char *src;

	begin();
	tier = open_at(directory, 0);
	src = path_of(directory, 1, 0, ".src");
	assert_int_equal(put(tier, 1, VALUE), KILN_OK);
	assert_int_equal(unlink(src), 0);
	assert_int_equal(put(tier, 1, VALUE), KILN_OK);
	assert_int_equal(access(src, F_OK), 0);
	assert_int_equal(put(tier, 1, VALUE), KILN_EXISTS);
	free(src);
	end(tier);
}

/* And a cleared one too: without its record it would be DPC++'s. */
static void nothing_of_another_version_is_found(void **state)
{
	for (int is_cleared = 0; is_cleared < 2; is_cleared++) {
		struct ki_store_options options = { .sys = &ki_sys_posix,
						    .user_version = 1 };
		struct kiln_tier *tier;
		char *lock;

		begin();
		options.directory = directory;
		lock = path_of(directory, 1, 0, ".lock");
		assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
		sycl_of(tier)->stale_ns = 1000000;
		assert_int_equal(put(tier, 1, VALUE), KILN_OK);
		harness_write(lock, "", 0);
		if (is_cleared) {
			assert_int_equal(tier->ops->wipe(tier), KILN_OK);
		} else {
			tier->ops->close(tier);
			options.user_version = 2;
			assert_int_equal(ki_store_sycl_open(&options, &tier),
					 KILN_OK);
		}
		(void)unlink(lock);
		assert_int_equal(get(tier, 1), KILN_MISS);
		assert_int_equal(n_names(directory, ".bin"), 0);
		free(lock);
		end(tier);
	}
}

static void nothing_is_removed_behind_a_link(void **state)
{
	char *elsewhere = harness_directory(), *place, *from, *to;
	struct kiln_key *key = key_of(1);
	struct kiln_tier *tier;

	begin();
	tier = open_at(directory, 0);
	plant(elsewhere, 1, 0, VALUE, 5);
	place = path_of(elsewhere, 1, 0, "");
	/* Of its device. */
	place[strlen(elsewhere) + 1 +
	      strcspn(place + strlen(elsewhere) + 1, "/")] = '\0';
	from = harness_path(elsewhere, place + strlen(elsewhere) + 1);
	to = harness_path(directory, place + strlen(elsewhere) + 1);
	assert_int_equal(symlink(from, to), 0);
	assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
	assert_true(exists(elsewhere, 1, 0, ".bin"));
	kiln_key_free(key);
	free(place);
	free(from);
	free(to);
	free(elsewhere);
	end(tier);
}

/* ---- Owed ---------------------------------------------------------------------------- */

/* What could not be added to the sum is not forgotten with who owed it. */
static void what_the_dead_owed_is_counted(void **state)
{
	static const char *const locks[] = { "%s/cache_size.txt.lock",
					     "%s_eviction_in_progress.lock" };

	for (size_t i = 0; i < 2; i++) {
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier *tier;
		char *path;

		begin();
		assert_true(asprintf(&path, locks[i], directory) > 0);
		INTERPOSE(&sys, moved, monotonic_ns);
		INTERPOSE(&sys, moved, sleep_ns);
		tier = open_between(&sys);
		assert_int_equal(tier->ops->set_limit(tier, 1 << 20), KILN_OK);
		assert_int_equal(put(tier, 1, VALUE), KILN_OK);
		harness_write(path, "", 0);
		for (unsigned n = 2; n < 10; n++)
			assert_int_equal(put(tier, n, VALUE), KILN_OK);
		tier->ops->close(tier);
		assert_int_equal(unlink(path), 0);
		assert_true(sum_of(directory) < bytes_on_disk(directory));
		tier = open_between(&sys);
		assert_int_equal(put(tier, 10, VALUE), KILN_OK);
		assert_int_equal(sum_of(directory),
				 bytes_on_disk(directory) + 10 * 19);
		assert_int_equal(n_names(directory, "kiln.owed"), 0);
		free(path);
		end(tier);
	}
}

/* ---- Evicted before it is replaced ------------------------------------------------- */

static void evict_first(void)
{
	static const char *const suffixes[] = { ".src", ".bin",
						"_access_time.txt" };

	for (size_t i = 0; i < 3; i++) {
		char *path = path_of(directory, 1, 0, suffixes[i]);

		if (unlink(path))
			abort();
		free(path);
	}
}

static void what_dpcxx_evicts_before_it_is_replaced_is_stored_with_its_src(
	void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	begin();
	INTERPOSE(&sys, late, link);
	tier = open_between(&sys);
	assert_int_equal(put(tier, 1, VALUE), KILN_OK);
	meanwhile = evict_first;
	assert_int_equal(put_flags(tier, 1, VALUE + 1, KILN_PUT_REPLACE),
			 KILN_OK);
	assert_null(meanwhile);
	assert_true(exists(directory, 1, 0, ".bin"));
	assert_true(exists(directory, 1, 0, ".src"));
	assert_int_equal(get_sized(tier, 1, VALUE + 1), KILN_OK);
	assert_int_equal(get_sized(other, 1, VALUE + 1), KILN_OK);
	end(tier);
}

/* ---- A store that fails beside one that is hidden ---------------------------------- */

static int is_failing;

static int failing_rename_new(const struct ki_sys *sys, const char *from,
			      const char *to)
{
	return is_failing ? -EIO : real->rename_new(real, from, to);
}

static void a_store_that_fails_forgets_nothing_that_a_lock_hides(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct kiln_blob *value = NULL, *metadata = NULL;
	struct ki_record_found found;
	struct kiln_key *key = key_of(1);
	struct kiln_tier *tier;
	char *lock;

	begin();
	INTERPOSE(&sys, failing, rename_new);
	tier = open_between(&sys);
	store_with_metadata();
	lock = path_of(directory, 1, 0, ".lock");
	harness_write(lock, "", 0);
	is_failing = 1;
	assert_int_not_equal(put(tier, 1, VALUE), KILN_OK);
	is_failing = 0;
	assert_int_equal(unlink(lock), 0);
	/* Its record is there: it has not become DPC++'s. */
	assert_int_equal(
		ki_records_find(sycl_of(tier)->records, key, 1, &found, NULL),
		KILN_OK);
	if (!tier->ops->get(tier, key, &value, &metadata))
		assert_int_equal(kiln_blob_size(metadata), 4);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	free(lock);
	kiln_key_free(key);
	end(tier);
}

/* ---- Counting ---------------------------------------------------------------------- */

static unsigned n_opened;

static int counting_opendir(const struct ki_sys *sys, const char *path,
			    struct ki_dir **out_dir)
{
	n_opened++;
	return real->opendir(real, path, out_dir);
}

/* Nothing may be removed, and the sum stays above the limit. */
static void what_stays_above_the_limit_is_not_counted_at_each_put(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct ki_store_options options = { .sys = &sys,
					    .bytes_max = 10000,
					    .flags = KILN_OPEN_REFUSE_FULL };
	struct kiln_tier *tier = NULL;
	unsigned n_first;

	begin();
	for (unsigned n = 10; n < 60; n++)
		plant(directory, n, 0, 1000, 1);
	INTERPOSE(&sys, counting, opendir);
	options.directory = directory;
	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	n_opened = 0;
	assert_int_equal(put(tier, 1, VALUE), KILN_E_FULL);
	n_first = n_opened;
	assert_true(n_first > 50);
	assert_int_equal(put(tier, 1, VALUE), KILN_E_FULL);
	n_opened = 0;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(put(tier, 1, VALUE), KILN_E_FULL);
	assert_true(n_opened < 20);
	end(tier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			what_a_kiln_stores_meanwhile_is_found_by_its_record),
		cmocka_unit_test(
			a_lock_file_made_anew_under_an_old_inode_is_new),
		cmocka_unit_test(a_left_lock_for_evicting_ends_no_storing),
		cmocka_unit_test(where_there_are_no_links_all_is_as_elsewhere),
		cmocka_unit_test(who_looks_waits_for_nobody),
		cmocka_unit_test(nothing_is_told_with_the_turn),
		cmocka_unit_test(what_is_too_old_is_stored_again),
		cmocka_unit_test(what_came_in_its_place_stays),
		cmocka_unit_test(
			what_is_replaced_under_a_lock_does_not_come_back),
		cmocka_unit_test(an_entry_without_src_gets_one),
		cmocka_unit_test(nothing_of_another_version_is_found),
		cmocka_unit_test(nothing_is_removed_behind_a_link),
		cmocka_unit_test(what_the_dead_owed_is_counted),
		cmocka_unit_test(
			what_dpcxx_evicts_before_it_is_replaced_is_stored_with_its_src),
		cmocka_unit_test(
			a_store_that_fails_forgets_nothing_that_a_lock_hides),
		cmocka_unit_test(
			what_stays_above_the_limit_is_not_counted_at_each_put),
	};

	return cmocka_run_group_tests_name("sycl_between", tests, NULL, NULL);
}
