/* SPDX-License-Identifier: MIT */

/*
 * A directory shared by kiln and originals: processes that store and look up by
 * DPC++'s own protocol (original.h) beside kiln's, under one limit.  Who wrote an
 * entry is told by its size: kiln's are even.
 */

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "conform/kinds.h"
#include "original.h"

#define LIMIT	   ((uint64_t)200000)
#define N_STEPS	   150
#define N_KEYS	   100
#define VALUE_MAX  8000
#define IMAGE_MAX  1000
#define LIMIT_TINY ((uint64_t)40000)

enum writer { KILN, ORIGINAL };

static enum writer writer_of(size_t size)
{
	return size % 2 ? ORIGINAL : KILN;
}

/* ---- Both sides ---------------------------------------------------------------- */

struct fields {
	struct original_key key;
	char device[40], options[40];
	uint8_t spec[16], image[IMAGE_MAX];
};

/* Of a few devices, options and constants, these with zeros in them. */
static void make_fields(unsigned n, struct fields *fields)
{
	const size_t image_size = 8 + n * 37u % (IMAGE_MAX - 8);

	snprintf(fields->device, sizeof(fields->device), "kiln/card %u/1.3/9",
		 n % 2);
	snprintf(fields->options, sizeof(fields->options), "%s",
		 n % 3 ? "-cl-fast-relaxed-math" : "");
	memset(fields->spec, 0, sizeof(fields->spec));
	fields->spec[0] = (uint8_t)(n % 4);
	/* Several keys have one image. */
	fill_value(n / 4, fields->image, image_size);
	fields->key = (struct original_key){
		.device = { fields->device, strlen(fields->device) },
		.options = { fields->options, strlen(fields->options) },
		.spec = { fields->spec, n % 4 * 4u },
		.image = { fields->image, image_size },
	};
}

static struct kiln_key *make_key(const struct fields *fields)
{
	const struct original_key *from = &fields->key;
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "sycl.device", from->device.data, from->device.size);
	kiln_key_add(key, "sycl.options", from->options.data,
		     from->options.size);
	kiln_key_add(key, "sycl.spec", from->spec.data, from->spec.size);
	kiln_key_add(key, "sycl.image", from->image.data, from->image.size);
	if (kiln_key_finish(key))
		abort();
	return key;
}

/* One who uses the directory; `tier` NULL: an original. */
struct user {
	struct original original;
	struct kiln_tier *tier;
};

static enum writer who(const struct user *user)
{
	return user->tier ? KILN : ORIGINAL;
}

/* KILN_OK if it is stored or need not be. */
static int put(const struct user *user, unsigned n, size_t size)
{
	static uint8_t value[VALUE_MAX + 2];
	struct kiln_key *key;
	struct fields fields;
	int status;

	size = (size & ~(size_t)1) + (who(user) == ORIGINAL);
	make_fields(n, &fields);
	fill_value(n, value, size);
	if (!user->tier)
		return original_put(&user->original, &fields.key, value, size);
	key = make_key(&fields);
	status = user->tier->ops->put(user->tier, key, "", 0, value, size, 0);
	kiln_key_free(key);
	return status == KILN_EXISTS ? KILN_OK : status;
}

/* KILN_OK, and who wrote it; KILN_MISS; WRONG_BYTES. */
static int get(const struct user *user, unsigned n, enum writer *out_writer)
{
	struct kiln_blob *blob = NULL;
	struct kiln_key *key;
	struct fields fields;
	void *bytes = NULL;
	size_t size = 0;
	int status;

	make_fields(n, &fields);
	if (user->tier) {
		key = make_key(&fields);
		status = user->tier->ops->get(user->tier, key, &blob, NULL);
		kiln_key_free(key);
		if (status)
			return status;
		size = kiln_blob_size(blob);
	} else {
		bytes = original_get(&user->original, &fields.key, &size);
		if (!bytes)
			return KILN_MISS;
	}
	status = is_value_of(n, user->tier ? kiln_blob_data(blob) : bytes, size)
			 ? KILN_OK
			 : WRONG_BYTES;
	*out_writer = writer_of(size);
	kiln_blob_unref(blob);
	free(bytes);
	return status;
}

static int open_user(struct user *user, const char *directory,
		     enum writer writer, uint64_t bytes_max,
		     const struct ki_sys *sys)
{
	const struct ki_store_options options = { .sys = sys,
						  .directory = directory,
						  .bytes_max = bytes_max };

	*user = (struct user){ .original = { .directory = directory,
					     .bytes_max = bytes_max } };
	return writer == KILN ? ki_store_sycl_open(&options, &user->tier) : 0;
}

static void close_user(struct user *user)
{
	if (user->tier)
		user->tier->ops->close(user->tier);
}

/* ---- One after the other ------------------------------------------------------- */

static void each_finds_what_the_other_wrote(void **state)
{
	char *directory = harness_directory();
	struct user users[2];
	enum writer writer;

	assert_int_equal(open_user(&users[KILN], directory, KILN, LIMIT * 100,
				   &ki_sys_posix),
			 KILN_OK);
	open_user(&users[ORIGINAL], directory, ORIGINAL, LIMIT * 100, NULL);
	for (unsigned n = 0; n < 24; n++)
		assert_int_equal(put(&users[n % 2], n, 100 + n), KILN_OK);
	for (unsigned n = 0; n < 24; n++) {
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(get(&users[i], n, &writer), KILN_OK);
			assert_int_equal(writer, n % 2);
		}
	}
	assert_true(original_sum(directory) <= original_noted(directory));
	close_user(&users[KILN]);
	free(directory);
}

/* ---- Defects of the original's, which kiln has not ------------------------------ */

/* An original that has stored key 0 `n_stored` times, and a kiln beside it. */
struct pair {
	char *directory;
	struct user original, kiln;
};

static void begin_pair(struct pair *pair, unsigned n_stored)
{
	pair->directory = harness_directory();
	open_user(&pair->original, pair->directory, ORIGINAL, 0, NULL);
	assert_int_equal(
		open_user(&pair->kiln, pair->directory, KILN, 0, &ki_sys_posix),
		KILN_OK);
	while (n_stored--)
		assert_int_equal(put(&pair->original, 0, 100), 0);
}

static void end_pair(struct pair *pair)
{
	close_user(&pair->kiln);
	free(pair->directory);
}

/* "PLACE/<n><suffix>" of a key. */
static char *file_of(const struct pair *pair, unsigned key, unsigned n,
		     const char *suffix)
{
	char place[ORIGINAL_PATH_BYTES], *path;
	struct fields fields;

	make_fields(key, &fields);
	original_place(&pair->original.original, &fields.key, place);
	if (asprintf(&path, "%s/%u%s", place, n, suffix) < 0)
		abort();
	return path;
}

static void remove_of(const struct pair *pair, unsigned n, const char *suffix)
{
	char *path = file_of(pair, 0, n, suffix);

	assert_int_equal(unlink(path), 0);
	free(path);
}

static void assert_only_kiln_finds(const struct pair *pair)
{
	enum writer writer;

	assert_int_equal(get(&pair->original, 0, &writer), KILN_MISS);
	assert_int_equal(get(&pair->kiln, 0, &writer), KILN_OK);
}

static int is_stored_as(const struct pair *pair, unsigned n)
{
	char *path = file_of(pair, 0, n, ".bin");
	const int result = !access(path, F_OK);

	free(path);
	return result;
}

static void the_original_loses_what_is_above_a_hole(void **state)
{
	struct pair pair;

	begin_pair(&pair, 2);
	remove_of(&pair, 0, ".src");
	remove_of(&pair, 0, ".bin");
	assert_only_kiln_finds(&pair);
	end_pair(&pair);
}

static void the_original_ends_at_a_short_binary_and_stores_another(void **state)
{
	struct pair pair;
	char *path;

	begin_pair(&pair, 2);
	path = file_of(&pair, 0, 0, ".bin");
	assert_int_equal(truncate(path, 20), 0);
	free(path);
	assert_only_kiln_finds(&pair);
	assert_int_equal(put(&pair.kiln, 0, 100), KILN_OK);
	assert_false(is_stored_as(&pair, 2));
	assert_int_equal(put(&pair.original, 0, 100), 0);
	assert_true(is_stored_as(&pair, 2));
	end_pair(&pair);
}

/* S20: of who died before he wrote anything. */
static void the_original_misses_for_ever_behind_a_lone_lock_file(void **state)
{
	struct pair pair;
	char *path;

	begin_pair(&pair, 1);
	remove_of(&pair, 0, ".src");
	remove_of(&pair, 0, ".bin");
	path = file_of(&pair, 0, 0, ".lock");
	harness_write(path, "", 0);
	free(path);
	assert_int_equal(put(&pair.original, 0, 100), 0);
	assert_true(is_stored_as(&pair, 1));
	assert_only_kiln_finds(&pair);
	end_pair(&pair);
}

static void the_original_stores_the_same_again_and_again(void **state)
{
	struct pair pair;

	begin_pair(&pair, 3);
	assert_true(is_stored_as(&pair, 2));
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(put(&pair.kiln, 0, 100), KILN_OK);
	assert_false(is_stored_as(&pair, 3));
	end_pair(&pair);
}

/* What kiln stored has a checksum; to the original a .bin is a .bin. */
static void the_original_runs_the_binary_of_another(void **state)
{
	enum writer writer;
	struct pair pair;
	char *from, *to;

	begin_pair(&pair, 0);
	assert_int_equal(put(&pair.kiln, 0, 100), KILN_OK);
	assert_int_equal(put(&pair.kiln, 1, 100), KILN_OK);
	from = file_of(&pair, 1, 0, ".bin");
	to = file_of(&pair, 0, 0, ".bin");
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(get(&pair.original, 0, &writer), WRONG_BYTES);
	assert_int_equal(get(&pair.kiln, 1, &writer), KILN_MISS);
	free(from);
	free(to);
	end_pair(&pair);
}

/* Of a version before there were times of access. */
static void the_original_never_evicts_what_has_no_time_of_access(void **state)
{
	struct kiln_gc_options options = { 64, 0, 0 };
	struct kiln_gc_report report;
	struct pair pair;

	begin_pair(&pair, 1);
	remove_of(&pair, 0, "_access_time.txt");
	pair.original.original.bytes_max = 300;
	assert_int_equal(put(&pair.original, 3, 100), 0);
	assert_true(original_sum(pair.directory) > 0);
	assert_true(is_stored_as(&pair, 0));
	assert_int_equal(pair.kiln.tier->ops->gc(pair.kiln.tier, &options, NULL,
						 NULL, &report),
			 KILN_OK);
	assert_false(is_stored_as(&pair, 0));
	end_pair(&pair);
}

/* ---- At once ---------------------------------------------------------------------- */

struct meeting {
	const char *directory;
	uint64_t lost;	     /* by evictions of originals' */
	uint64_t gained;     /* the same, if they write too much */
	uint64_t hits[2][2]; /* of whom, on whose */
	uint64_t stored[2];
};

static int take_step(const struct user *user, struct meeting *meeting,
		     uint64_t *random)
{
	const unsigned n = (unsigned)(harness_random(random) % N_KEYS);
	const size_t size = 8 + harness_random(random) % (VALUE_MAX - 8);
	enum writer writer;
	int status = get(user, n, &writer);

	if (!status)
		__atomic_fetch_add(&meeting->hits[who(user)][writer], 1,
				   __ATOMIC_RELAXED);
	if (status != KILN_MISS)
		return status ? 2 : 0;
	status = put(user, n, size);
	if (!status)
		__atomic_fetch_add(&meeting->stored[who(user)], 1,
				   __ATOMIC_RELAXED);
	/* For kiln somebody has a lock file for long; an original has lost a
	   race for one. */
	return status && status != (user->tier ? (int)KILN_E_TIMEOUT : -1) ? 3
									   : 0;
}

/* Of kiln's own, where originals do not look. */
static int take_own_step(struct kiln_tier *tier, uint64_t *random)
{
	const unsigned n = (unsigned)(harness_random(random) % N_KEYS);
	int status = put_numbered(tier, n, 8 + n * 11, 0);

	if (status && status != KILN_EXISTS && status != KILN_E_TIMEOUT)
		return 4;
	status = get_numbered(tier, n);
	return status == KILN_OK || status == KILN_MISS ? 0 : 5;
}

static int take_steps(unsigned index, void *arg)
{
	struct meeting *meeting = arg;
	uint64_t random = index + 1;
	struct user user;
	int status = 0;

	if (open_user(&user, meeting->directory, index % 2 ? ORIGINAL : KILN,
		      LIMIT, &ki_sys_posix))
		return 1;
	user.original.lost = &meeting->lost;
	user.original.gained = &meeting->gained;
	for (unsigned i = 0; i < N_STEPS && !status; i++) {
		status = take_step(&user, meeting, &random);
		if (!status && user.tier && i % 4 == 0)
			status = take_own_step(user.tier, &random);
	}
	close_user(&user);
	return status;
}

static unsigned n_locks;

static int note_lock(const char *path, const struct stat *info, int kind,
		     struct FTW *place)
{
	const size_t size = strlen(path);

	(void)info;
	(void)kind;
	n_locks += size > 5 && !strcmp(path + size - 5, ".lock") &&
		   strcmp(path + place->base, "kiln.lock") != 0;
	return 0;
}

static unsigned count_locks(const char *directory)
{
	char path[600];

	n_locks = 0;
	(void)nftw(directory, note_lock, 16, FTW_PHYS);
	snprintf(path, sizeof(path), "%s_eviction_in_progress.lock", directory);
	return n_locks + !access(path, F_OK);
}

/* What is still owed to the sum is paid by whoever has a turn. */
static void pay(const char *directory)
{
	struct kiln_store_info info;
	struct user user;

	assert_int_equal(
		open_user(&user, directory, KILN, LIMIT, &ki_sys_posix),
		KILN_OK);
	assert_int_equal(user.tier->ops->info(user.tier, &info), KILN_OK);
	close_user(&user);
}

/* Of a sum: a time of access for each entry of kiln's, which an original that evicts
   does not take off, and for each original the entry that it has written and not
   added yet, if it was counted meanwhile. */
#define SLACK ((uint64_t)19 * 3 * N_STEPS + 2 * (VALUE_MAX + 2 * IMAGE_MAX))

static void kilns_and_originals_share_a_directory(void **state)
{
	struct meeting *meeting =
		mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *directory = harness_directory();
	struct user first;

	assert_true(meeting != MAP_FAILED);
	meeting->directory = directory;
	/* Before there is anything else that it would count. */
	open_user(&first, directory, ORIGINAL, LIMIT, NULL);
	assert_int_equal(put(&first, 0, 100), 0);
	assert_int_equal(
		harness_processes(4, take_steps, meeting, HARNESS_HANG_S), 0);
	/* How often they meet is the machine's affair. */
	for (unsigned i = 0; i < 2; i++) {
		assert_in_range(meeting->hits[i][0] + meeting->hits[i][1], 1,
				2 * N_STEPS);
		assert_in_range(meeting->stored[i], 1, 2 * N_STEPS);
	}
	pay(directory);
	/* But for what originals lose by themselves, nothing is missing, and
	   but for what they gain nothing too much. */
	assert_in_range(original_sum(directory), 0,
			original_noted(directory) + meeting->lost);
	assert_in_range(original_noted(directory), 0,
			original_sum(directory) + meeting->gained + SLACK);
	assert_int_equal(count_locks(directory), 0);
	munmap(meeting, sizeof(*meeting));
	free(directory);
}

/* ---- Between two steps of kiln's --------------------------------------------------- */

static const struct original *evictor; /* NULL: it has done so */
static char *evict_lock;

/* Kiln has read the sum, and takes the lock for evicting. */
static int late_link(const struct ki_sys *sys, const char *from, const char *to)
{
	const struct user user = {
		.original = evictor ? *evictor : (struct original){ 0 }
	};

	if (evictor && !strcmp(to, evict_lock)) {
		evictor = NULL;
		if (put(&user, 20, VALUE_MAX))
			abort();
	}
	return real->link(real, from, to);
}

static void an_eviction_before_kilns_is_not_taken_off_twice(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct user original, kiln;

	if (asprintf(&evict_lock, "%s_eviction_in_progress.lock", directory) <
	    0)
		abort();
	open_user(&original, directory, ORIGINAL, LIMIT_TINY, NULL);
	INTERPOSE(&sys, late, link);
	assert_int_equal(open_user(&kiln, directory, KILN, LIMIT_TINY, &sys),
			 KILN_OK);
	for (unsigned n = 10; n < 14; n++)
		assert_int_equal(put(&original, n, VALUE_MAX), 0);
	evictor = &original.original;
	assert_int_equal(put(&kiln, 1, VALUE_MAX), KILN_OK);
	assert_null(evictor);
	assert_in_range(original_sum(directory), 1, original_noted(directory));
	close_user(&kiln);
	free(evict_lock);
	free(directory);
}

static const struct user *in_between; /* NULL: it has put */

static void put_in_between(void)
{
	const struct user *user = in_between;

	in_between = NULL;
	if (user && put(user, 100, VALUE_MAX))
		abort();
}

static void the_original_loses_what_is_added_while_it_evicts(void **state)
{
	for (int adder = 0; adder < 2; adder++) {
		char *directory = harness_directory();
		struct user evicting, adding;

		open_user(&evicting, directory, ORIGINAL, LIMIT_TINY, NULL);
		assert_int_equal(open_user(&adding, directory,
					   (enum writer)adder, LIMIT * 100,
					   &ki_sys_posix),
				 KILN_OK);
		evicting.original.in_evict = put_in_between;
		in_between = &adding;
		for (unsigned n = 0; in_between && n < 100; n++)
			assert_int_equal(put(&evicting, n, VALUE_MAX), 0);
		assert_null(in_between);
		/* Kiln owes it to the sum, and pays at the next turn. */
		assert_int_equal(put(&adding, 101, 100), KILN_OK);
		if (who(&adding) == KILN)
			assert_in_range(original_sum(directory), 1,
					original_noted(directory));
		else
			assert_true(original_sum(directory) >
				    original_noted(directory));
		close_user(&adding);
		free(directory);
	}
}

/* ---- Killed ------------------------------------------------------------------------ */

/* Lock files are links: it dies with the n-th in its hands. */
static unsigned n_links_left;

static int killing_link(const struct ki_sys *sys, const char *from,
			const char *to)
{
	int err = real->link(real, from, to);

	if (!err && !--n_links_left)
		(void)raise(SIGKILL);
	return err;
}

/* Whether it died of it. */
static int put_and_die(const char *directory, unsigned n_links)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		struct ki_sys sys = ki_sys_posix;
		struct user user;

		INTERPOSE(&sys, killing, link);
		n_links_left = n_links;
		if (open_user(&user, directory, KILN, LIMIT_TINY, &sys))
			_exit(1);
		_exit(put(&user, 1, VALUE_MAX) ? 2 : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		abort();
	assert_true(WIFSIGNALED(status) || !WEXITSTATUS(status));
	return WIFSIGNALED(status);
}

/* Kiln comes, and the original stores until it has evicted. */
static int meet_after(unsigned index, void *arg)
{
	const char *directory = arg;
	struct user user;
	int status = 0;

	if (open_user(&user, directory, index ? ORIGINAL : KILN, LIMIT_TINY,
		      &ki_sys_posix))
		return 1;
	for (unsigned n = 2; index && n < 10; n++)
		status |= put(&user, n, VALUE_MAX);
	close_user(&user);
	return status;
}

static void a_killed_kiln_blocks_originals_only_until_the_next_comes(
	void **state)
{
	unsigned n_links;
	int died = 1;

	for (n_links = 1; died; n_links++) {
		char *directory = harness_directory();
		struct user user;

		open_user(&user, directory, ORIGINAL, LIMIT_TINY, NULL);
		for (unsigned n = 10; n < 14; n++)
			assert_int_equal(put(&user, n, VALUE_MAX), 0);
		died = put_and_die(directory, n_links);
		assert_int_equal(harness_processes(2, meet_after, directory,
						   HARNESS_HANG_S),
				 0);
		assert_int_equal(count_locks(directory), 0);
		free(directory);
	}
	/* For evicting, of an entry that goes, of its own, and of the sum. */
	assert_in_range(n_links, 5, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_finds_what_the_other_wrote),
		cmocka_unit_test(the_original_loses_what_is_above_a_hole),
		cmocka_unit_test(
			the_original_ends_at_a_short_binary_and_stores_another),
		cmocka_unit_test(
			the_original_misses_for_ever_behind_a_lone_lock_file),
		cmocka_unit_test(the_original_stores_the_same_again_and_again),
		cmocka_unit_test(the_original_runs_the_binary_of_another),
		cmocka_unit_test(
			the_original_never_evicts_what_has_no_time_of_access),
		cmocka_unit_test(kilns_and_originals_share_a_directory),
		cmocka_unit_test(
			an_eviction_before_kilns_is_not_taken_off_twice),
		cmocka_unit_test(
			the_original_loses_what_is_added_while_it_evicts),
		cmocka_unit_test(
			a_killed_kiln_blocks_originals_only_until_the_next_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
