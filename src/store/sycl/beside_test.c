/* SPDX-License-Identifier: MIT */

/* Beside others: what tools, backups and left lock files do to those who store. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "key/key.h"
#include "store/sycl/helpers_test.h"

#define VALUE 100 /* bytes */

static struct kiln_tier *open_by(const struct ki_sys *sys,
				 const char *directory, uint64_t bytes_max)
{
	const struct ki_store_options options = { .sys = sys,
						  .directory = directory,
						  .bytes_max = bytes_max };
	struct kiln_tier *tier;

	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	return tier;
}

/* ---- While somebody walks ------------------------------------------------------ */

static struct kiln_tier *other; /* who stores whenever a directory is opened */
static unsigned n_puts, n_refused, n_opened;

static int storing_opendir(const struct ki_sys *sys, const char *path,
			   struct ki_dir **out_dir)
{
	n_opened++;
	if (other && n_puts < 20)
		n_refused += put(other, 100 + n_puts++, VALUE) != KILN_OK;
	return real->opendir(real, path, out_dir);
}

/* No entry has lost its record. */
static int is_all_known(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info.n_entries - info.n_foreign == n_puts;
}

static void look_at_all(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_int_equal(info.n_foreign, 10);
	assert_in_range(info.n_entries, 10, 30);
}

static void clean_all(struct kiln_tier *tier)
{
	struct kiln_gc_options options = { 0, 3600, 0 };
	struct kiln_gc_report report;

	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_expired, 10);
	assert_int_equal(report.n_evicted, 0);
}

static void limit_all(struct kiln_tier *tier)
{
	assert_int_equal(tier->ops->set_limit(tier, 1 << 20), KILN_OK);
}

static void verify_all(struct kiln_tier *tier)
{
	struct kiln_verify_report report;

	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
}

static void others_store_while_one_looks_at_all(void **state)
{
	static void (*const looks[])(struct kiln_tier *) = {
		look_at_all, clean_all, limit_all, verify_all
	};

	for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
		char *directory = harness_directory();
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier *tier, *writer = open_at(directory, 0);

		INTERPOSE(&sys, storing, opendir);
		tier = open_by(&sys, directory, 0);
		for (unsigned n = 0; n < 10; n++)
			plant(directory, n, 0, VALUE, 5);
		n_puts = n_refused = 0;
		other = writer;
		looks[i](tier);
		other = NULL;
		assert_in_range(n_puts, 10, 20);
		assert_int_equal(n_refused, 0);
		/* And none of it is lost. */
		for (unsigned n = 100; n < 100 + n_puts; n++)
			assert_int_equal(get_sized(writer, n, VALUE), KILN_OK);
		assert_int_equal(is_all_known(tier), 1);
		tier->ops->close(tier);
		writer->ops->close(writer);
		free(directory);
	}
}

/* ---- Lock files that are left ---------------------------------------------------- */

/* Time that passes when somebody waits. */
static uint64_t waited_ns;

static uint64_t moved_monotonic_ns(const struct ki_sys *sys)
{
	return (uint64_t)1000000000 + waited_ns;
}

static void moved_sleep_ns(const struct ki_sys *sys, uint64_t ns)
{
	waited_ns += ns;
}

static void clear(struct kiln_tier *tier)
{
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
}

static void clean(struct kiln_tier *tier)
{
	struct kiln_gc_options options = { 64, 0, 0 };
	struct kiln_gc_report report;

	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_OK);
}

/* S20: of however many one wait is the end, in one process. */
static void tools_remove_all_lock_files_that_are_left(void **state)
{
	static void (*const tools[])(
		struct kiln_tier *) = { clear, clean, limit_all, verify_all };

	for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
		char *directory = harness_directory();
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier *tier;

		INTERPOSE(&sys, moved, monotonic_ns);
		INTERPOSE(&sys, moved, sleep_ns);
		waited_ns = 0;
		tier = open_by(&sys, directory, 0);
		for (unsigned n = 0; n < 36; n++) {
			plant(directory, n, 0, VALUE, 5);
			write_at(directory, n, n % 2, ".lock", "", 0);
		}
		write_at(directory, 7, 0, "_access_time.txt.lock", "", 0);
		write_at(directory, 8, 3, ".lock", "", 0);
		tools[i](tier);
		assert_int_equal(n_names(directory, ".lock"), 1);
		assert_int_equal(n_names(directory, ".bin"), i < 2 ? 0 : 36);
		assert_in_range(waited_ns, 9900000000u, 11000000000u);
		/* Where there are none, nobody waits. */
		waited_ns = 0;
		tools[i](tier);
		assert_in_range(waited_ns, 0, 100000000);
		tier->ops->close(tier);
		free(directory);
	}
}

/* ---- A turn that others have ------------------------------------------------------- */

#define MS ((uint64_t)1000000)

static int holder = -1;	     /* a descriptor that holds the turn */
static uint64_t held_for_ns; /* it is let go when so long has been waited */

static void holding_sleep_ns(const struct ki_sys *sys, uint64_t ns)
{
	waited_ns += ns;
	if (holder >= 0 && waited_ns >= held_for_ns) {
		close(holder);
		holder = -1;
	}
}

static void hold_turn(const char *directory, uint64_t for_ns)
{
	char *path = harness_path(directory, "kiln.lock");

	holder = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(holder >= 0);
	assert_int_equal(ki_sys_posix.try_lock(&ki_sys_posix, holder,
					       KI_LOCK_EXCLUSIVE, 0, 1),
			 0);
	held_for_ns = for_ns;
	waited_ns = 0;
	free(path);
}

/* S61: writers keep the turn from who looks; who then clears waits as long as it
   would have without looking. */
static void a_look_in_vain_takes_no_patience_from_a_tool(void **state)
{
	static const struct {
		uint64_t held_for_ms;
		enum kiln_status cleared, cleared_again;
		uint64_t waited_ms, waited_again_ms;
	} rows[] = {
		{ 500, KILN_OK, KILN_OK, 500, 500 },
		{ 60000, KILN_E_TIMEOUT, KILN_E_TIMEOUT, 2100, 2105 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory();
		struct ki_sys sys = ki_sys_posix;
		struct kiln_store_info info;
		struct kiln_tier *tier;

		INTERPOSE(&sys, moved, monotonic_ns);
		INTERPOSE(&sys, holding, sleep_ns);
		tier = open_by(&sys, directory, 0);
		assert_int_equal(put(tier, 1, VALUE), KILN_OK);
		hold_turn(directory, rows[i].held_for_ms * MS);
		assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
		assert_int_equal(waited_ns, KI_SYCL_PUT_NS);
		assert_int_equal(tier->ops->wipe(tier), rows[i].cleared);
		assert_in_range(waited_ns, rows[i].waited_ms * MS,
				(rows[i].waited_ms + 50) * MS);
		/* Who has waited so long in vain does not do so again at once. */
		assert_int_equal(tier->ops->wipe(tier), rows[i].cleared_again);
		assert_in_range(waited_ns, rows[i].waited_again_ms * MS,
				(rows[i].waited_again_ms + 50) * MS);
		if (holder >= 0)
			close(holder);
		holder = -1;
		tier->ops->close(tier);
		free(directory);
	}
}

/* ---- Being told -------------------------------------------------------------------- */

static unsigned n_told;

static void note_line(void *arg, enum kiln_log_level level, const char *line)
{
	n_told += level == KILN_LOG_WARNING && strstr(line, ".lock: ") != NULL;
}

static uint64_t later_realtime_ns(const struct ki_sys *sys)
{
	return real->realtime_ns(real) + (uint64_t)20 * 1000000000;
}

/* Who only looks says so, and neither waits nor removes any. */
static void verify_names_lock_files_that_are_left(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	const struct ki_store_options options = { .sys = &sys,
						  .directory = directory,
						  .log = note_line };
	struct kiln_verify_report report;
	struct kiln_tier *tier;

	plant(directory, 1, 0, VALUE, 5);
	write_at(directory, 1, 0, ".lock", "", 0);
	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	for (unsigned i = 0; i < 2; i++) {
		n_told = 0;
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(n_told, i);
		INTERPOSE(&sys, later, realtime_ns);
	}
	assert_true(exists(directory, 1, 0, ".lock"));
	tier->ops->close(tier);
	free(directory);
}

static char *busy_path; /* whose owner makes it again and again */

static void busy_sleep_ns(const struct ki_sys *sys, uint64_t ns)
{
	waited_ns += ns;
	if (unlink(busy_path))
		abort();
	harness_write(busy_path, "", 0);
}

static void a_lock_file_that_is_made_anew_is_left_alone(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	INTERPOSE(&sys, moved, monotonic_ns);
	INTERPOSE(&sys, busy, sleep_ns);
	busy_path = path_of(directory, 1, 0, ".lock");
	tier = open_by(&sys, directory, 0);
	plant(directory, 1, 0, VALUE, 5);
	plant(directory, 2, 0, VALUE, 5);
	harness_write(busy_path, "", 0);
	waited_ns = 0;
	clean(tier);
	assert_true(exists(directory, 1, 0, ".bin"));
	assert_int_equal(access(busy_path, F_OK), 0);
	assert_false(exists(directory, 2, 0, ".bin"));
	assert_in_range(waited_ns, 0, 1000000000);
	tier->ops->close(tier);
	free(busy_path);
	free(directory);
}

/* ---- What is owed to the sum ------------------------------------------------------ */

/* By processes that store once and end. */
static void store_once(const char *directory, unsigned n)
{
	struct kiln_tier *tier = open_at(directory, 1 << 20);

	sycl_of(tier)->wait_max_ns = 1;
	assert_int_equal(put(tier, n, VALUE), KILN_OK);
	tier->ops->close(tier);
}

/* Its lock file is left for all their lives. */
static void what_the_dead_owe_to_the_sum_is_paid(void **state)
{
	char *directory = harness_directory();
	char *lock = harness_path(directory, "cache_size.txt.lock");
	char *owed = harness_path(directory, "kiln.owed");
	uint64_t before;

	store_once(directory, LONG);
	before = sum_of(directory);
	harness_write(lock, "", 0);
	for (unsigned n = 1; n < 10; n++)
		store_once(directory, LONG + n);
	assert_int_equal(sum_of(directory), before);
	assert_int_equal(access(owed, F_OK), 0);
	assert_int_equal(unlink(lock), 0);
	store_once(directory, LONG + 10);
	assert_int_equal(sum_of(directory), bytes_on_disk(directory) + 11 * 19);
	assert_int_equal(access(owed, F_OK), -1);
	free(lock);
	free(owed);
	free(directory);
}

/* And counts meanwhile: the limit holds. */
static void what_is_owed_counts(void **state)
{
	char *directory = harness_directory();
	char *lock = harness_path(directory, "cache_size.txt.lock");
	const uint64_t limit = 40000;

	for (unsigned n = 0; n < 12; n++) {
		struct kiln_tier *tier = open_at(directory, limit);

		sycl_of(tier)->wait_max_ns = 1;
		/* Images that kiln.records has not. */
		assert_int_equal(put(tier, LONG + n, VALUE), KILN_OK);
		assert_in_range(bytes_on_disk(directory), 1, limit);
		tier->ops->close(tier);
		if (!n)
			harness_write(lock, "", 0);
	}
	free(lock);
	free(directory);
}

/* An original that evicts writes a sum of its own, over what was added since. */
static void nothing_is_added_while_the_original_evicts(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "cache_size.txt"), *lock;
	uint64_t before;

	if (asprintf(&lock, "%s_eviction_in_progress.lock", directory) < 0)
		abort();
	store_once(directory, 1);
	before = sum_of(directory);
	harness_write(lock, "", 0);
	store_once(directory, 2);
	assert_int_equal(sum_of(directory), before);
	harness_write(path, "1000", 4);
	assert_int_equal(unlink(lock), 0);
	store_once(directory, 3);
	assert_int_equal(sum_of(directory), 1000 + 2 * before);
	free(lock);
	free(path);
	free(directory);
}

/* ---- A slash at the end ---------------------------------------------------------- */

static char evict_name[300]; /* of the last lock file for evicting */

static int noting_link(const struct ki_sys *sys, const char *from,
		       const char *to)
{
	if (strstr(to, "_eviction_in_progress"))
		snprintf(evict_name, sizeof(evict_name), "%s", to);
	return real->link(real, from, to);
}

/* DPC++ puts the name behind what SYCL_CACHE_DIR says, slash or not: kiln does the
   same, and looks at both. */
static void the_lock_for_evicting_is_named_as_dpcxx_does(void **state)
{
	static const char *const slashes[] = { "", "/" };

	for (size_t i = 0; i < 4; i++) {
		char *directory = harness_directory(), *given, *ours, *theirs;
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier *tier;

		INTERPOSE(&sys, noting, link);
		if (asprintf(&given, "%s%s", directory, slashes[i % 2]) < 0 ||
		    asprintf(&ours, "%s_eviction_in_progress.lock", given) <
			    0 ||
		    asprintf(&theirs, "%s%s_eviction_in_progress.lock",
			     directory, slashes[i / 2]) < 0)
			abort();
		tier = open_by(&sys, given, 3500);
		sycl_of(tier)->wait_max_ns = 1;
		plant(directory, 1, 0, 2000, 30);
		harness_write(theirs, "", 0);
		assert_int_equal(put(tier, 2, 1000), KILN_E_TIMEOUT);
		assert_true(exists(directory, 1, 0, ".bin"));
		assert_int_equal(unlink(theirs), 0);
		evict_name[0] = '\0';
		assert_int_equal(put(tier, 2, 1000), KILN_OK);
		assert_false(exists(directory, 1, 0, ".bin"));
		assert_string_equal(evict_name, ours);
		assert_int_equal(access(ours, F_OK), -1);
		assert_int_equal(access(theirs, F_OK), -1);
		tier->ops->close(tier);
		free(given);
		free(ours);
		free(theirs);
		free(directory);
	}
}

/* ---- Between two calls ------------------------------------------------------------ */

static const char *begun_at; /* by him who writes into a .bin that we open */

static int late_open(const struct ki_sys *sys, const char *path, unsigned flags,
		     unsigned mode)
{
	const char *lock = begun_at;

	if (lock && strstr(path, "/0.bin")) {
		begun_at = NULL;
		harness_write(lock, "", 0);
	}
	return real->open(real, path, flags, mode);
}

/* Whose lock file was not there when we looked for it first. */
static void what_is_written_while_it_is_read_is_a_miss(void **state)
{
	char *directory = harness_directory();
	char *lock = path_of(directory, 1, 0, ".lock");
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	INTERPOSE(&sys, late, open);
	tier = open_by(&sys, directory, 0);
	plant(directory, 1, 0, VALUE, 5);
	begun_at = lock;
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_null(begun_at);
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(get_sized(tier, 1, VALUE), KILN_OK);
	tier->ops->close(tier);
	free(lock);
	free(directory);
}

static unsigned n_without_src; /* .bin files that went last */

static int ordered_unlink(const struct ki_sys *sys, const char *path)
{
	const size_t size = strlen(path);
	struct stat info;
	char src[600];

	if (size > 6 && !strcmp(path + size - 6, "/0.bin")) {
		snprintf(src, sizeof(src), "%.*s.src", (int)size - 4, path);
		n_without_src += stat(src, &info) != 0;
	}
	return real->unlink(real, path);
}

/* Or who looks in between finds what it is of, and an empty binary: for good. */
static void src_goes_before_its_bin(void **state)
{
	char *directory = harness_directory();
	struct kiln_gc_options options = { 64, 0, 0 };
	struct kiln_gc_report report;
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	INTERPOSE(&sys, ordered, unlink);
	tier = open_by(&sys, directory, 0);
	plant(directory, 1, 0, VALUE, 5);
	assert_int_equal(put(tier, 2, VALUE), KILN_OK);
	n_without_src = 0;
	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(n_names(directory, ".bin"), 0);
	assert_int_equal(n_without_src, 2);
	tier->ops->close(tier);
	free(directory);
}

static char *taken_path; /* a left lock file that somebody makes anew */

static int late_rename(const struct ki_sys *sys, const char *from,
		       const char *to)
{
	char *path;

	if (taken_path && !strcmp(from, taken_path)) {
		if (asprintf(&path, "%s.new", from) < 0)
			abort();
		harness_write(path, "", 0);
		if (rename(path, from))
			abort();
		free(path);
	}
	return real->rename(real, from, to);
}

/* S20: its owner has gone, and another come, when it is taken away. */
static void a_lock_file_that_came_in_its_place_is_put_back(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	INTERPOSE(&sys, moved, monotonic_ns);
	INTERPOSE(&sys, moved, sleep_ns);
	INTERPOSE(&sys, late, rename);
	tier = open_by(&sys, directory, 0);
	plant(directory, 1, 0, VALUE, 5);
	taken_path = path_of(directory, 1, 0, ".lock");
	harness_write(taken_path, "", 0);
	clean(tier);
	assert_int_equal(access(taken_path, F_OK), 0);
	assert_true(exists(directory, 1, 0, ".bin"));
	free(taken_path);
	taken_path = NULL;
	clean(tier);
	assert_false(exists(directory, 1, 0, ".bin"));
	tier->ops->close(tier);
	free(directory);
}

/* ---- Backups that link --------------------------------------------------------- */

/* A second name of kiln.held is not always that of a lock file. */
static void a_link_elsewhere_to_what_kiln_holds_costs_one_search(void **state)
{
	char *directory = harness_directory(), *backup = harness_directory();
	char *held = harness_path(directory, "kiln.held");
	char *copy = harness_path(backup, "kiln.held");
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;
	unsigned before;

	INTERPOSE(&sys, storing, opendir);
	tier = open_by(&sys, directory, 0);
	for (unsigned n = 0; n < 10; n++)
		assert_int_equal(put(tier, n, VALUE), KILN_OK);
	assert_int_equal(link(held, copy), 0);
	assert_int_equal(put(tier, 10, VALUE), KILN_OK);
	before = n_opened;
	for (unsigned n = 11; n < 15; n++)
		assert_int_equal(put(tier, n, VALUE), KILN_OK);
	/* Each looks into the place of its own key, twice. */
	assert_in_range(n_opened - before, 0, 8);
	assert_int_equal(access(copy, F_OK), 0);
	assert_int_equal(access(held, F_OK), 0);
	assert_int_equal(n_names(directory, ".lock"), 1);
	tier->ops->close(tier);
	free(held);
	free(copy);
	free(directory);
	free(backup);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_store_while_one_looks_at_all),
		cmocka_unit_test(a_look_in_vain_takes_no_patience_from_a_tool),
		cmocka_unit_test(tools_remove_all_lock_files_that_are_left),
		cmocka_unit_test(verify_names_lock_files_that_are_left),
		cmocka_unit_test(a_lock_file_that_is_made_anew_is_left_alone),
		cmocka_unit_test(what_the_dead_owe_to_the_sum_is_paid),
		cmocka_unit_test(what_is_owed_counts),
		cmocka_unit_test(nothing_is_added_while_the_original_evicts),
		cmocka_unit_test(the_lock_for_evicting_is_named_as_dpcxx_does),
		cmocka_unit_test(what_is_written_while_it_is_read_is_a_miss),
		cmocka_unit_test(src_goes_before_its_bin),
		cmocka_unit_test(
			a_lock_file_that_came_in_its_place_is_put_back),
		cmocka_unit_test(
			a_link_elsewhere_to_what_kiln_holds_costs_one_search),
	};

	return cmocka_run_group_tests_name("sycl beside", tests, NULL, NULL);
}
