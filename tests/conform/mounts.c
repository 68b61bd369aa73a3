/* SPDX-License-Identifier: MIT */

/*
 * S32.  mounts KIND: a store on file systems that are mounted for the purpose, in
 * a name space of this process: without programs, above a lower layer, read
 * only, too small, without an inode to spare.
 */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define BOUND	  ((uint64_t)4 << 20)
#define N_ENTRIES 20

static const struct kind *kind;
static char *where; /* what is mounted */

static struct kiln_tier *open_in(const char *directory, uint32_t flags)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = BOUND,
					    .flags = flags };
	struct kiln_tier *tier = NULL;
	enum kiln_status status = kind->open(&options, &tier);

	if (status)
		fail_msg("open %s: %s", directory, kiln_status_name(status));
	return tier;
}

static void fill(struct kiln_tier *tier, unsigned from, unsigned to)
{
	for (unsigned n = from; n < to; n++)
		assert_int_equal(put_numbered(tier, n, 100 + n * 500, 0),
				 KILN_OK);
}

static void has(struct kiln_tier *tier, unsigned from, unsigned to)
{
	for (unsigned n = from; n < to; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
}

static void is_sound(struct kiln_tier *tier)
{
	struct kiln_verify_report report;
	struct kiln_store_info info;

	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_true(info.bytes <= BOUND);
}

static void mount_memory(const char *target, unsigned long flags,
			 const char *options)
{
	if (mount("memory", target, "tmpfs", flags, options))
		fail_msg("mount: %s", strerror(errno));
}

static int unmount(void **state)
{
	(void)umount2(where, MNT_DETACH);
	return 0;
}

/* ---- Where -------------------------------------------------------------------------- */

static void nothing_of_a_store_is_a_program(void **state)
{
	struct kiln_tier_lock *lock;
	struct kiln_tier *tier, *other;
	struct kiln_key *key = numbered_key(1);
	char *directory = harness_path(where, "store");

	mount_memory(where, MS_NOEXEC | MS_NOSUID | MS_NODEV, "mode=0700");
	tier = open_in(directory, 0);
	other = open_in(directory, 0);
	fill(tier, 0, N_ENTRIES);
	has(other, 0, N_ENTRIES);
	assert_int_equal(put_numbered(other, 3, 50, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
	assert_int_equal(get_numbered(other, 1), KILN_MISS);
	assert_int_equal(tier->ops->lock(tier, key, 0, &lock), KILN_OK);
	tier->ops->unlock(tier, lock);
	is_sound(other);
	other->ops->close(other);
	tier->ops->close(tier);
	tier = open_in(directory, 0);
	has(tier, 2, N_ENTRIES);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

/* As in a container whose image has a store: the first write copies a file up,
   and what was opened before is the lower one. */
static void a_store_of_a_lower_layer_goes_on_above_it(void **state)
{
	char *place = harness_directory();
	char *lower = harness_path(place, "lower");
	char *lower_store = harness_path(lower, "store");
	char *layers = harness_path(place, "layers");
	char *upper = harness_path(layers, "upper");
	char *work = harness_path(layers, "work");
	char *directory = harness_path(where, "store");
	struct kiln_tier *tier, *reader, *other;
	char *options;

	assert_int_equal(mkdir(lower, 0700) | mkdir(layers, 0700), 0);
	tier = open_in(lower_store, 0);
	fill(tier, 0, N_ENTRIES);
	tier->ops->close(tier);
	mount_memory(layers, 0, "mode=0700");
	assert_int_equal(mkdir(upper, 0700) | mkdir(work, 0700), 0);
	assert_true(asprintf(&options, "lowerdir=%s,upperdir=%s,workdir=%s",
			     lower, upper, work) > 0);
	if (mount("layers", where, "overlay", 0, options)) {
		print_message("# overlayfs: %s\n", strerror(errno));
		(void)umount2(layers, MNT_DETACH);
		HARNESS_LEAVE_OUT("no overlayfs here");
	}
	reader = open_in(directory, KILN_OPEN_READONLY);
	has(reader, 0, N_ENTRIES);
	tier = open_in(directory, 0);
	other = open_in(directory, KILN_OPEN_COPY);
	has(tier, 0, N_ENTRIES);
	has(other, 0, N_ENTRIES);
	fill(tier, N_ENTRIES, 2 * N_ENTRIES);
	has(tier, 0, 2 * N_ENTRIES);
	has(other, 0, 2 * N_ENTRIES);
	/* The new ones are seen at once, late or at the next opening. */
	has(reader, 0, N_ENTRIES);
	for (unsigned n = N_ENTRIES; n < 2 * N_ENTRIES; n++) {
		int status = get_numbered(reader, n);

		assert_true(status == KILN_OK || status == KILN_MISS);
	}
	is_sound(tier);
	reader->ops->close(reader);
	other->ops->close(other);
	tier->ops->close(tier);
	reader = open_in(directory, KILN_OPEN_READONLY);
	has(reader, 0, 2 * N_ENTRIES);
	reader->ops->close(reader);
	/* The image is what it was. */
	reader = open_in(lower_store, KILN_OPEN_READONLY);
	has(reader, 0, N_ENTRIES);
	assert_int_equal(get_numbered(reader, N_ENTRIES), KILN_MISS);
	reader->ops->close(reader);
	(void)umount2(where, MNT_DETACH);
	(void)umount2(layers, MNT_DETACH);
	free(options);
	free(directory);
	free(work);
	free(upper);
	free(layers);
	free(lower_store);
	free(lower);
	free(place);
}

static void what_cannot_be_written_gives_hits(void **state)
{
	char *directory = harness_path(where, "store");
	struct kiln_tier *tier;
	int status;

	mount_memory(where, 0, "mode=0700");
	tier = open_in(directory, 0);
	fill(tier, 0, N_ENTRIES);
	tier->ops->close(tier);
	assert_int_equal(mount(NULL, where, NULL, MS_REMOUNT | MS_RDONLY, NULL),
			 0);
	tier = open_in(directory, 0);
	has(tier, 0, N_ENTRIES);
	status = put_numbered(tier, N_ENTRIES, 100, 0);
	assert_true(status == KILN_E_READONLY || status == KILN_E_IO);
	has(tier, 0, N_ENTRIES);
	tier->ops->close(tier);
	free(directory);
}

/* A medium smaller than the bound: the store makes do. */
static void a_full_medium_costs_no_hit_its_bytes(void **state)
{
	char *directory = harness_path(where, "store");
	struct kiln_tier *tier;

	mount_memory(where, 0, "mode=0700,size=1m");
	tier = open_in(directory, 0);
	for (unsigned n = 0; n < 100; n++) {
		int status = put_numbered(tier, n, 30000, 0);

		assert_true(status == KILN_OK || status == KILN_E_FULL ||
			    status == KILN_E_IO || status == KILN_E_TIMEOUT);
		for (unsigned k = 0; k <= n; k++) {
			int found = get_numbered(tier, k);

			assert_true(found == KILN_MISS ||
				    (found == KILN_OK && (k < n || !status)));
		}
	}
	is_sound(tier);
	tier->ops->close(tier);
	free(directory);
}

static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *result)
{
	char value[1000];

	fill_value(*(unsigned *)arg, value, sizeof(value));
	if (kiln_blob_copy(value, sizeof(value), &result->blob))
		abort();
}

static void builds(struct kiln *kiln, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	assert_int_equal(kiln_get_or_build(kiln, key, build, &n, &result),
			 KILN_OK);
	assert_true(is_value_of(n, kiln_blob_data(result.blob),
				kiln_blob_size(result.blob)));
	kiln_build_result_fini(&result);
	kiln_key_free(key);
}

/* With so many inodes, of which the medium takes one, then with enough. */
static void build_without_inodes(const char *directory, const char *few)
{
	char *url = kind_url(kind, directory);
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = url;
	mount_memory(where, 0, few);
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (unsigned n = 0; n < 2 * N_ENTRIES; n++)
		builds(kiln, n);
	kiln_close(kiln);
	assert_int_equal(mount(NULL, where, NULL, MS_REMOUNT, "nr_inodes=1000"),
			 0);
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	for (unsigned n = 0; n < 2 * N_ENTRIES; n++)
		builds(kiln, n);
	kiln_close(kiln);
	(void)umount2(where, MNT_DETACH);
	free(url);
}

/* S29: from none for the store itself to some for entries. */
static void a_build_needs_no_inode(void **state)
{
	static const char *const few[] = {
		"mode=0700,nr_inodes=1", "mode=0700,nr_inodes=2",
		"mode=0700,nr_inodes=3", "mode=0700,nr_inodes=4",
		"mode=0700,nr_inodes=5", "mode=0700,nr_inodes=6",
		"mode=0700,nr_inodes=8", "mode=0700,nr_inodes=16"
	};
	char *directory = harness_path(where, "store");

	for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++)
		build_without_inodes(directory, few[i]);
	free(directory);
}

/* S29: space there is, but no file can be made. */
static void without_inodes_what_is_there_stays_and_later_puts_work(void **state)
{
	char *directory = harness_path(where, "store");
	struct kiln_tier *tier;
	unsigned n_full = 0, n;
	int stored[100];

	mount_memory(where, 0, "mode=0700,nr_inodes=14");
	tier = open_in(directory, 0);
	for (n = 0; n < 100; n++) {
		stored[n] = put_numbered(tier, n, 30000, 0);
		assert_true(stored[n] == KILN_OK || stored[n] == KILN_E_FULL ||
			    stored[n] == KILN_E_IO ||
			    stored[n] == KILN_E_TIMEOUT);
		n_full += stored[n] != KILN_OK;
		for (unsigned k = 0; k <= n; k++) {
			int found = get_numbered(tier, k);

			assert_true(found == KILN_MISS ||
				    (found == KILN_OK && !stored[k]));
		}
	}
	assert_true(n_full > 0);
	is_sound(tier);
	assert_int_equal(mount(NULL, where, NULL, MS_REMOUNT, "nr_inodes=1000"),
			 0);
	for (n = 0; n < N_ENTRIES; n++)
		assert_int_equal(put_numbered(tier, n, 20000, KILN_PUT_REPLACE),
				 KILN_OK);
	has(tier, 0, N_ENTRIES);
	is_sound(tier);
	tier->ops->close(tier);
	free(directory);
}

#define TEST(name) cmocka_unit_test_teardown(name, unmount)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_of_a_store_is_a_program),
		TEST(a_store_of_a_lower_layer_goes_on_above_it),
		TEST(what_cannot_be_written_gives_hits),
		TEST(a_full_medium_costs_no_hit_its_bytes),
		TEST(a_build_needs_no_inode),
		TEST(without_inodes_what_is_there_stays_and_later_puts_work),
	};

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind || !kind->persists) {
		fprintf(stderr, "usage: mounts KIND\n");
		return 2;
	}
	where = harness_directory();
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("memory", where, "tmpfs", 0, "") || umount(where)) {
		printf("1..0 # SKIP nothing can be mounted: %s\n",
		       strerror(errno));
		return 0;
	}
	return _cmocka_run_group_tests(kind->name, tests,
				       sizeof(tests) / sizeof(tests[0]), NULL,
				       NULL);
}
