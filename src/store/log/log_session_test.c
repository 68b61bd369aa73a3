/* SPDX-License-Identifier: MIT */

/*
 * Sessions of one store: in this process, and in a child that is told by a pipe
 * what to do next, so that every turn of events is the same each time.
 */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

/* ---- A session of another process -------------------------------------- */

enum order {
	OPEN_1, /* with user version 1; answers a status, as all do */
	OPEN_2, /* with 2 */
	PUT,	/* key 7 */
	GET,	/* key 7 */
	WIPE,
	REMOVES, /* at close */
	CLOSE,
};

struct other {
	pid_t pid;
	int to[2];
	int from[2];
};

static enum kiln_status get(struct store *store, unsigned number)
{
	size_t size;

	return store_get_any(store, number, &size);
}

static void obey(struct store *store, int from, int to)
{
	enum kiln_status status = KILN_OK;
	enum order order;

	while (read(from, &order, sizeof(order)) == sizeof(order)) {
		switch (order) {
		case OPEN_1:
		case OPEN_2:
			store->options.user_version = order == OPEN_1 ? 1 : 2;
			status = ki_store_log_open(&store->options,
						   &store->tier);
			break;
		case PUT:
			status = store_put(store, 7, 100, 0);
			break;
		case GET:
			status = get(store, 7);
			break;
		case WIPE:
			status = store->tier->ops->wipe(store->tier);
			break;
		case REMOVES:
			status = store->tier->ops->remove_at_close(store->tier);
			break;
		case CLOSE:
			store->tier->ops->close(store->tier);
			status = KILN_OK;
			break;
		}
		if (write(to, &status, sizeof(status)) != sizeof(status))
			return;
	}
}

static struct other begin(const struct store *store)
{
	struct other other = { 0 };
	struct store own = { .options = store->options };
	assert_int_equal(pipe(other.to) | pipe(other.from), 0);
	other.pid = fork();
	if (!other.pid) {
		close(other.to[1]);
		close(other.from[0]);
		obey(&own, other.to[0], other.from[1]);
		_exit(0);
	}
	close(other.to[0]);
	close(other.from[1]);
	return other;
}

static enum kiln_status tell(const struct other *other, enum order order)
{
	enum kiln_status status = KILN_E_FORKED;

	if (write(other->to[1], &order, sizeof(order)) != sizeof(order) ||
	    read(other->from[0], &status, sizeof(status)) != sizeof(status))
		return KILN_E_IO;
	return status;
}

static void end(struct other *other, int by_signal)
{
	if (by_signal)
		kill(other->pid, SIGKILL);
	close(other->to[1]);
	close(other->from[0]);
	waitpid(other->pid, NULL, 0);
}

/* ---- This one ------------------------------------------------------------ */

/* A place where nothing is yet. */
static struct store place(void)
{
	struct store store = { .directory = harness_directory() };

	store.options = (struct ki_store_options){
		.sys = &ki_sys_posix,
		.directory = store.directory,
		.flags = KILN_OPEN_SESSION | KILN_OPEN_REFUSE_FULL,
	};
	return store;
}

static enum kiln_status open_as(struct store *store, uint64_t user_version)
{
	store->options.user_version = user_version;
	return ki_store_log_open(&store->options, &store->tier);
}

static unsigned n_files(const struct store *store)
{
	DIR *dir = opendir(store->options.directory);
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

/* ---- Versions ------------------------------------------------------------ */

static void another_version_is_refused_while_one_is_open(void **state)
{
	struct store a = place(), b = a;
	struct other other = begin(&a);

	b.directory = NULL;
	assert_int_equal(open_as(&a, 0), KILN_OK);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	/* In this process and in another; 0 is a version like others. */
	assert_int_equal(open_as(&b, 1), KILN_EXISTS);
	assert_int_equal(tell(&other, OPEN_2), KILN_EXISTS);
	assert_int_equal(open_as(&b, 0), KILN_OK);
	assert_int_equal(get(&b, 7), KILN_OK);
	store_close(&a);
	assert_int_equal(tell(&other, OPEN_1), KILN_EXISTS);
	store_close(&b);

	assert_int_equal(tell(&other, OPEN_1), KILN_OK);
	assert_int_equal(tell(&other, GET), KILN_MISS);
	assert_int_equal(tell(&other, PUT), KILN_OK);
	assert_int_equal(open_as(&a, 0), KILN_EXISTS);
	/* A, B, A stays empty. */
	end(&other, 1);
	assert_int_equal(open_as(&a, 0), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_MISS);
	store_close(&a);
	store_free(&a);
}

/* Who is no session wipes nothing either, as long as there are some. */
static void who_is_no_session_wipes_under_none(void **state)
{
	struct store a = place(), plain = a;

	plain.directory = NULL;
	plain.options.flags = 0;
	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	assert_int_equal(open_as(&plain, 2), KILN_E_FORMAT);
	assert_int_equal(get(&a, 7), KILN_OK);
	assert_int_equal(open_as(&plain, 1), KILN_OK);
	assert_int_equal(get(&plain, 7), KILN_OK);
	store_close(&plain);
	store_close(&a);
	assert_int_equal(open_as(&plain, 2), KILN_OK);
	assert_int_equal(get(&plain, 7), KILN_MISS);
	store_close(&plain);
	store_free(&a);
}

static void the_same_version_is_shared(void **state)
{
	struct store a = place();
	struct other other = begin(&a);
	const uint64_t high = (uint64_t)1 << 40;

	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(tell(&other, OPEN_1), KILN_OK);
	assert_int_equal(tell(&other, PUT), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_OK);
	store_close(&a);
	assert_int_equal(open_as(&a, 1 + high), KILN_EXISTS);
	assert_int_equal(tell(&other, CLOSE), KILN_OK);
	assert_int_equal(open_as(&a, 1 + high), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_MISS);
	store_close(&a);
	end(&other, 0);
	store_free(&a);
}

static void a_wipe_by_one_is_seen_by_the_others(void **state)
{
	struct store a = place();
	struct other other = begin(&a);

	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	assert_int_equal(tell(&other, OPEN_1), KILN_OK);
	assert_int_equal(tell(&other, GET), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_OK);
	assert_int_equal(tell(&other, WIPE), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_MISS);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	assert_int_equal(tell(&other, GET), KILN_OK);
	end(&other, 0);
	store_close(&a);
	store_free(&a);
}

/* ---- Removal --------------------------------------------------------------- */

static void the_last_one_out_removes(void **state)
{
	struct store a = place(), b;
	struct other other = begin(&a);

	b = a;
	b.directory = NULL;
	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	assert_int_equal(store_put(&a, 8, 3 << 20, 0), KILN_OK);
	assert_int_equal(tell(&other, OPEN_1), KILN_OK);
	assert_int_equal(tell(&other, REMOVES), KILN_OK);
	assert_int_equal(tell(&other, CLOSE), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_OK);
	/* Who comes before that finds it as it is. */
	assert_int_equal(open_as(&b, 1), KILN_OK);
	store_close(&a);
	assert_int_equal(get(&b, 7), KILN_OK);
	assert_true(n_files(&a) > 0);
	store_close(&b);
	assert_int_equal(n_files(&a), 0);

	assert_int_equal(open_as(&a, 2), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_MISS);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	store_close(&a);
	assert_true(n_files(&a) > 0);
	assert_int_equal(open_as(&a, 2), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_OK);
	store_close(&a);
	end(&other, 0);
	store_free(&a);
}

static void if_the_last_one_dies_the_next_finds_nothing(void **state)
{
	struct store a = place();
	struct other other = begin(&a);

	assert_int_equal(tell(&other, OPEN_1), KILN_OK);
	assert_int_equal(tell(&other, PUT), KILN_OK);
	assert_int_equal(tell(&other, REMOVES), KILN_OK);
	end(&other, 1);
	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_MISS);
	/* That was it. */
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	store_close(&a);
	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_OK);
	store_close(&a);
	store_free(&a);
}

static void a_wipe_does_not_unsay_it(void **state)
{
	struct store a = place(), b;

	b = a;
	b.directory = NULL;
	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(open_as(&b, 1), KILN_OK);
	assert_int_equal(a.tier->ops->remove_at_close(a.tier), KILN_OK);
	store_close(&a);
	assert_int_equal(b.tier->ops->wipe(b.tier), KILN_OK);
	assert_int_equal(store_put(&b, 7, 100, 0), KILN_OK);
	store_close(&b);
	assert_int_equal(n_files(&a), 0);
	store_free(&a);
}

/* ---- Files that somebody removes ------------------------------------------- */

static void remove_files(const struct store *store)
{
	DIR *dir = opendir(store->options.directory);
	struct dirent *entry;

	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0),
					 0);
	closedir(dir);
}

static void with_its_files_removed_a_session_goes_on_empty(void **state)
{
	struct store a = place();
	struct other other = begin(&a);

	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_OK);
	remove_files(&a);
	assert_int_equal(store_put(&a, 8, 100, 0), KILN_OK);
	assert_int_equal(get(&a, 7), KILN_MISS);
	assert_int_equal(get(&a, 8), KILN_OK);
	/* And is one for the others. */
	assert_int_equal(tell(&other, OPEN_2), KILN_EXISTS);
	assert_int_equal(tell(&other, OPEN_1), KILN_OK);
	assert_int_equal(tell(&other, REMOVES), KILN_OK);
	assert_int_equal(tell(&other, CLOSE), KILN_OK);
	store_close(&a);
	assert_int_equal(n_files(&a), 0);
	end(&other, 0);
	store_free(&a);
}

static void remove_lock_file(const struct store *store)
{
	assert_int_equal(unlink(((struct ki_log *)store->tier)->lock_path), 0);
}

/* A session looks once a second whether others still meet it. */
static void with_its_lock_file_removed_a_session_still_is_one(void **state)
{
	struct store a = place();
	struct other other = begin(&a);

	assert_int_equal(open_as(&a, 1), KILN_OK);
	assert_int_equal(store_put(&a, 7, 100, 0), KILN_OK);
	remove_lock_file(&a);
	((struct ki_log *)a.tier)->session_ns = 0;
	assert_int_equal(store_put(&a, 8, 100, 0), KILN_OK);
	assert_int_equal(tell(&other, OPEN_2), KILN_EXISTS);
	assert_int_equal(get(&a, 7), KILN_OK);

	assert_int_equal(tell(&other, OPEN_1), KILN_OK);
	assert_int_equal(a.tier->ops->remove_at_close(a.tier), KILN_OK);
	assert_int_equal(tell(&other, CLOSE), KILN_OK);
	remove_lock_file(&a);
	store_close(&a);
	assert_int_equal(n_files(&a), 0);
	end(&other, 0);
	store_free(&a);
}

/* A child that was forked while a session was open is none. */
static void a_forked_child_is_no_session(void **state)
{
	struct store a = place();
	struct other child;

	assert_int_equal(open_as(&a, 1), KILN_OK);
	child = begin(&a);
	assert_int_equal(tell(&child, OPEN_1), KILN_OK);
	assert_int_equal(tell(&child, CLOSE), KILN_OK);
	store_close(&a);
	assert_int_equal(open_as(&a, 2), KILN_OK);
	store_close(&a);
	end(&child, 0);
	store_free(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_version_is_refused_while_one_is_open),
		cmocka_unit_test(who_is_no_session_wipes_under_none),
		cmocka_unit_test(the_same_version_is_shared),
		cmocka_unit_test(a_wipe_by_one_is_seen_by_the_others),
		cmocka_unit_test(the_last_one_out_removes),
		cmocka_unit_test(if_the_last_one_dies_the_next_finds_nothing),
		cmocka_unit_test(a_wipe_does_not_unsay_it),
		cmocka_unit_test(
			with_its_files_removed_a_session_goes_on_empty),
		cmocka_unit_test(
			with_its_lock_file_removed_a_session_still_is_one),
		cmocka_unit_test(a_forked_child_is_no_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
