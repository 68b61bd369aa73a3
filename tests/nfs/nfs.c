/* SPDX-License-Identifier: MIT */

/*
 * S31.  nfs interposed|mounted: store/file on two machines that share a
 * directory through a network file system (nfs/client.h), once with the clients
 * between the store and the system, once with two mounts.
 *
 * Answers are right or misses; what is a matter of the network (seen late, no
 * locks, a file gone while it is read) costs misses and second builds at most.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/hash.h"
#include "conform/kinds.h"
#include "nfs/client.h"
#include "nfs/mount.h"

#define BOUND	   ((uint64_t)1 << 20)
#define N_MACHINES 2
#define N_KEYS	   24
#define N_STEPS	   400
#define ENTRY	   (2 * KILN_DIGEST_BYTES) /* letters of an entry's name */

static int is_mounted;

/* ---- Machines ------------------------------------------------------------------- */

struct machine {
	struct nfs_client client;
	struct nfs_mount mount;
	const struct ki_sys *sys;
	char *directory; /* of the store, as this machine names it */
	struct kiln_tier *tier;
};

struct network {
	char *place;
	char *server;
	char *store; /* as the server names it */
	struct machine machines[N_MACHINES];
};

static void plug_in(struct network *network, unsigned i,
		    const struct nfs_quirks *quirks)
{
	struct machine *machine = &network->machines[i];
	const char *why;
	char *where;

	nfs_begin(&machine->client, network->server, quirks);
	machine->sys = &machine->client.sys;
	machine->directory = harness_path(network->server, "store");
	if (!is_mounted)
		return;
	assert_true(asprintf(&where, "%s/%u", network->place, i) > 0);
	assert_int_equal(mkdir(where, 0700), 0);
	why = nfs_mount(&machine->mount, where, network->server, quirks);
	if (why)
		fail_msg("%s", why);
	machine->sys = &ki_sys_posix;
	free(machine->directory);
	machine->directory = harness_path(where, "store");
	free(where);
}

static enum kiln_status open_store(const struct machine *machine,
				   uint64_t bytes_max,
				   struct kiln_tier **out_tier)
{
	struct ki_store_options options = { .sys = machine->sys,
					    .directory = machine->directory,
					    .bytes_max = bytes_max };

	return ki_store_file_open(&options, out_tier);
}

/* Also where a test ends early. */
static struct network network;

static void begin(const struct nfs_quirks *quirks, uint64_t bytes_max)
{
	network.place = harness_directory();
	network.server = harness_path(network.place, "server");
	network.store = harness_path(network.server, "store");
	assert_int_equal(mkdir(network.server, 0700), 0);
	for (unsigned i = 0; i < N_MACHINES; i++)
		plug_in(&network, i, quirks);
	for (unsigned i = 0; i < N_MACHINES; i++)
		assert_int_equal(open_store(&network.machines[i], bytes_max,
					    &network.machines[i].tier),
				 KILN_OK);
}

static int end(void **state)
{
	for (unsigned i = 0; i < N_MACHINES; i++) {
		struct machine *machine = &network.machines[i];

		if (machine->tier)
			machine->tier->ops->close(machine->tier);
		nfs_unmount(&machine->mount);
		if (machine->client.server)
			nfs_end(&machine->client);
		free(machine->directory);
	}
	if (network.place)
		harness_remove(network.place);
	free(network.store);
	free(network.server);
	free(network.place);
	network = (struct network){ 0 };
	return 0;
}

static struct kiln_tier *tier_of(unsigned i)
{
	return network.machines[i].tier;
}

/* Long enough for everybody to see everything. */
static void wait_a_while(const struct nfs_quirks *quirks)
{
	for (unsigned i = 0; i < N_MACHINES; i++)
		for (unsigned n = 0; n <= quirks->lag; n++) {
			struct stat st;

			if (is_mounted)
				(void)lstat(network.machines[i].directory, &st);
			else
				nfs_forget(&network.machines[i].client);
		}
}

/* ---- Cases ------------------------------------------------------------------------- */

static const struct {
	const char *name;
	struct nfs_quirks quirks;
} networks[] = {
	{ "all is seen at once", { 0 } },
	{ "things are seen late", { .lag = 40 } },
	{ "no locks", { .lag = 40, .no_locks = 1 } },
	{ "answers get lost", { .lag = 40, .loses_answers = 1 } },
	{ "no links", { .lag = 7, .no_links = 1 } },
	/* S32 */
	{ "no links, and times of two seconds",
	  { .no_links = 1, .coarse_times = 1 } },
	{ "no links, and O_EXCL is shared",
	  { .lag = 7, .no_links = 1, .no_locks = 1, .shares_exclusives = 1 } },
	{ "files vanish while they are read",
	  { .lag = 7, .removes_at = 5, .removes_long = ENTRY, .no_locks = 1 } },
	{ "files vanish, and answers get lost",
	  { .lag = 40,
	    .removes_at = 3,
	    .removes_long = ENTRY,
	    .loses_answers = 1 } },
};

#define N_NETWORKS (sizeof(networks) / sizeof(networks[0]))

static void complain(size_t i, unsigned step, const char *what, unsigned n,
		     int status)
{
	fail_msg("%s, step %u: %s: entry %u, status %s (%d)", networks[i].name,
		 step, what, n, kiln_status_name((enum kiln_status)status),
		 status);
}

static enum kiln_status remove_numbered(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	enum kiln_status status = tier->ops->remove(tier, key);

	kiln_key_free(key);
	return status;
}

/* What is late or gone is no failure of a store's: at worst it is not put. */
static int is_answer(int status)
{
	return status == KILN_OK || status == KILN_MISS ||
	       status == KILN_EXISTS;
}

static void step_once(size_t i, unsigned step, uint64_t *random)
{
	struct kiln_tier *tier = tier_of(harness_random(random) % N_MACHINES);
	unsigned n = (unsigned)(harness_random(random) % N_KEYS);
	size_t size = 8 + (size_t)(harness_random(random) % 30000);
	int status;

	switch (harness_random(random) % 8) {
	case 0:
		status = remove_numbered(tier, n);
		break;
	case 1:
		status = put_numbered(tier, n, size, KILN_PUT_REPLACE);
		break;
	case 2:
	case 3:
		status = put_numbered(tier, n, size, 0);
		break;
	default:
		status = get_numbered(tier, n);
		break;
	}
	if (!is_answer(status))
		complain(i, step, "no answer", n, status);
}

/* Both machines see the same, and that it is right. */
static void compare(size_t i)
{
	for (unsigned n = 0; n < N_KEYS; n++) {
		int status =
			put_numbered(tier_of(0), n, 100 + n, KILN_PUT_REPLACE);

		if (status)
			complain(i, N_STEPS, "cannot be put", n, status);
	}
	wait_a_while(&networks[i].quirks);
	for (unsigned n = 0; n < N_KEYS; n++) {
		int status = get_numbered(tier_of(1), n);

		/* It may have vanished while it was read. */
		if (status &&
		    (status != KILN_MISS || !networks[i].quirks.removes_at))
			complain(i, N_STEPS, "not seen", n, status);
	}
}

static void two_machines_get_right_answers_or_misses(void **state)
{
	for (size_t i = 0; i < N_NETWORKS; i++) {
		struct kiln_verify_report report;
		struct kiln_store_info info;
		uint64_t random = i;

		begin(&networks[i].quirks, BOUND);
		for (unsigned step = 0; step < N_STEPS; step++)
			step_once(i, step, &random);
		compare(i);
		for (unsigned k = 0; k < N_MACHINES; k++) {
			wait_a_while(&networks[i].quirks);
			assert_int_equal(tier_of(k)->ops->verify(tier_of(k), 0,
								 NULL, NULL,
								 &report),
					 KILN_OK);
			if (report.n_damaged)
				complain(i, N_STEPS, "damaged", k, 0);
			assert_int_equal(
				tier_of(k)->ops->info(tier_of(k), &info),
				KILN_OK);
			if (info.bytes > BOUND)
				complain(i, N_STEPS, "over the bound", k, 0);
		}
		end(NULL);
	}
}

/* However late names are seen, the server's link decides. */
static void of_two_machines_one_creates(void **state)
{
	const struct nfs_quirks quirks = { .lag = 1000, .no_locks = 1 };

	begin(&quirks, 0);
	for (unsigned n = 0; n < N_KEYS; n++) {
		unsigned first = n % N_MACHINES, second = 1 - first;

		/* What is not there is remembered. */
		assert_int_equal(get_numbered(tier_of(second), n), KILN_MISS);
		assert_int_equal(put_numbered(tier_of(first), n, 100, 0),
				 KILN_OK);
		assert_int_equal(put_numbered(tier_of(second), n, 200, 0),
				 KILN_EXISTS);
		assert_int_equal(get_numbered(tier_of(first), n), KILN_OK);
		assert_int_equal(get_numbered(tier_of(second), n), KILN_OK);
	}
}

static void what_another_made_may_be_seen_late_but_is_seen(void **state)
{
	const struct nfs_quirks quirks = { .lag = 200 };

	begin(&quirks, 0);
	assert_int_equal(get_numbered(tier_of(1), 1), KILN_MISS);
	assert_int_equal(put_numbered(tier_of(0), 1, 100, 0), KILN_OK);
	assert_int_equal(get_numbered(tier_of(1), 1), KILN_MISS);
	wait_a_while(&quirks);
	assert_int_equal(get_numbered(tier_of(1), 1), KILN_OK);
	/* Gone there, remembered here: a stale handle is a miss. */
	assert_int_equal(remove_numbered(tier_of(0), 1), KILN_OK);
	assert_int_equal(get_numbered(tier_of(1), 1), KILN_MISS);
}

static void a_link_whose_answer_is_lost_was_made(void **state)
{
	const struct nfs_quirks quirks = { .lag = 40, .loses_answers = 1 };

	begin(&quirks, 0);
	for (unsigned n = 0; n < N_KEYS; n++) {
		assert_int_equal(put_numbered(tier_of(n % 2), n, 100, 0),
				 KILN_OK);
		assert_int_equal(put_numbered(tier_of(n % 2), n, 200, 0),
				 KILN_EXISTS);
	}
	wait_a_while(&quirks);
	for (unsigned n = 0; n < N_KEYS; n++)
		assert_int_equal(get_numbered(tier_of(1 - n % 2), n), KILN_OK);
}

static void a_file_that_vanishes_while_it_is_read_is_a_miss(void **state)
{
	const struct nfs_quirks quirks = { .lag = 40,
					   .removes_at = 1,
					   .removes_long = ENTRY };

	begin(&quirks, 0);
	for (unsigned n = 0; n < N_KEYS; n++) {
		assert_int_equal(put_numbered(tier_of(0), n, 5000, 0), KILN_OK);
		assert_int_equal(get_numbered(tier_of(0), n), KILN_MISS);
		assert_int_equal(put_numbered(tier_of(0), n, 5000, 0), KILN_OK);
	}
}

/* Replaced there: under a name that is listed, a file that is gone. */
static void what_is_remembered_and_gone_spoils_no_walk(void **state)
{
	const struct nfs_quirks quirks = { .lag = 100000 };
	struct kiln_verify_report report;
	struct kiln_store_info info;

	for (unsigned way = 0; way < 3; way++) {
		begin(&quirks, BOUND);
		for (unsigned n = 0; n < N_KEYS; n++) {
			assert_int_equal(put_numbered(tier_of(0), n, 100, 0),
					 KILN_OK);
			assert_int_equal(get_numbered(tier_of(1), n), KILN_OK);
		}
		for (unsigned n = 0; n < N_KEYS; n += 2)
			assert_int_equal(put_numbered(tier_of(0), n, 200,
						      KILN_PUT_REPLACE),
					 KILN_OK);
		switch (way) {
		case 0:
			assert_int_equal(
				tier_of(1)->ops->info(tier_of(1), &info),
				KILN_OK);
			assert_in_range(info.n_entries, N_KEYS / 2, N_KEYS);
			break;
		case 1:
			assert_int_equal(tier_of(1)->ops->verify(
						 tier_of(1), KILN_VERIFY_REPAIR,
						 NULL, NULL, &report),
					 KILN_OK);
			assert_int_equal(report.n_damaged, 0);
			break;
		default:
			assert_int_equal(tier_of(1)->ops->wipe(tier_of(1)),
					 KILN_OK);
			break;
		}
		end(NULL);
	}
}

/* ---- Names of the file system's own ---------------------------------------------------- */

/* A machine that went down with files open leaves them. */
static void files_that_the_network_hides_are_left_alone(void **state)
{
	static const char *const names[] = {
		".nfs0000000000a1b2c300000001",
		"ab/.nfs00000000000001ff0000002a"
	};
	const struct nfs_quirks quirks = { .lag = 10 };
	struct kiln_verify_report report;
	char *root, *fan;

	begin(&quirks, BOUND);
	root = harness_path(network.store, "kiln.files");
	fan = harness_path(root, "ab");
	assert_true(!mkdir(fan, 0700) || errno == EEXIST);
	for (size_t i = 0; i < 2; i++) {
		char *path = harness_path(root, names[i]);

		harness_write(path, "hidden", 6);
		free(path);
	}
	for (unsigned n = 0; n < 60; n++)
		assert_int_equal(put_numbered(tier_of(n % 2), n, 30000, 0),
				 KILN_OK);
	assert_int_equal(tier_of(0)->ops->verify(tier_of(0), KILN_VERIFY_REPAIR,
						 NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	assert_int_equal(tier_of(1)->ops->wipe(tier_of(1)), KILN_OK);
	for (size_t i = 0; i < 2; i++) {
		char *path = harness_path(root, names[i]);
		size_t size;
		char *bytes = harness_read(path, &size);

		assert_non_null(bytes);
		assert_int_equal(size, 6);
		free(bytes);
		free(path);
	}
	free(fan);
	free(root);
}

static int replace_and_read(unsigned index, void *arg)
{
	uint64_t random = index;

	for (unsigned i = 0; i < 150; i++) {
		unsigned n = (unsigned)(harness_random(&random) % 4);
		int status;

		if (index % 2)
			status = get_numbered(tier_of(0), n);
		else if (harness_random(&random) % 3)
			status = put_numbered(tier_of(0), n, 20000 + i,
					      KILN_PUT_REPLACE);
		else
			status = remove_numbered(tier_of(0), n);
		if (!is_answer(status))
			return 1;
	}
	return 0;
}

static unsigned count_hidden(const char *directory)
{
	char command[KI_PATH_MAX];
	unsigned n = 0;
	FILE *found;

	snprintf(command, sizeof(command), "find '%s' -name '.nfs*' | wc -l",
		 directory);
	found = popen(command, "r");
	assert_non_null(found);
	assert_int_equal(fscanf(found, "%u", &n), 1);
	pclose(found);
	return n;
}

static void a_reader_keeps_its_file_and_nothing_is_left_of_it(void **state)
{
	const struct nfs_quirks quirks = { .lag = 10 };

	begin(&quirks, 0);
	assert_int_equal(harness_threads(4, replace_and_read, NULL), 0);
	tier_of(0)->ops->close(tier_of(0));
	network.machines[0].tier = NULL;
	nfs_unmount(&network.machines[0].mount);
	assert_int_equal(count_hidden(network.server), 0);
}

/* ---- Locks --------------------------------------------------------------------------------- */

static enum kiln_status lock_on(unsigned i, struct kiln_tier_lock **out_lock)
{
	struct kiln_key *key = numbered_key(1);
	enum kiln_status status =
		tier_of(i)->ops->lock(tier_of(i), key, 30, out_lock);

	kiln_key_free(key);
	return status;
}

static void a_build_has_one_leader_where_there_are_locks(void **state)
{
	const struct nfs_quirks quirks = { .lag = 10 };
	struct kiln_tier_lock *lock, *other;

	begin(&quirks, 0);
	assert_int_equal(lock_on(0, &lock), KILN_OK);
	assert_int_equal(lock_on(1, &other), KILN_E_TIMEOUT);
	tier_of(0)->ops->unlock(tier_of(0), lock);
	assert_int_equal(lock_on(1, &other), KILN_OK);
	tier_of(1)->ops->unlock(tier_of(1), other);
}

static void without_locks_each_machine_may_build(void **state)
{
	const struct nfs_quirks quirks = { .lag = 10, .no_locks = 1 };
	struct kiln_tier_lock *lock;

	begin(&quirks, 0);
	for (unsigned i = 0; i < N_MACHINES; i++) {
		assert_int_equal(lock_on(i, &lock), KILN_E_UNSUPPORTED);
		assert_int_equal(put_numbered(tier_of(i), 1, 100, 0),
				 i ? KILN_EXISTS : KILN_OK);
		assert_int_equal(get_numbered(tier_of(i), 1), KILN_OK);
	}
}

/* ---- Processes ------------------------------------------------------------------------------- */

static const struct nfs_quirks *crowd_quirks;

/* Each has a client of its own, or a mount that others use as well. */
static int work(unsigned index, void *arg)
{
	struct machine *machine = &network.machines[index % N_MACHINES];
	uint64_t random = index;
	struct nfs_client own;
	struct kiln_tier *tier;
	struct machine mine = *machine;
	int status;

	if (!is_mounted) {
		nfs_begin(&own, network.server, crowd_quirks);
		mine.sys = &own.sys;
	}
	status = open_store(&mine, BOUND, &tier);
	if (status) {
		fprintf(stderr, "process %u: open: %s\n", index,
			kiln_status_name((enum kiln_status)status));
		return 2;
	}
	for (unsigned i = 0; i < 120; i++) {
		unsigned n = (unsigned)(harness_random(&random) % 60);
		size_t size = 8 + (size_t)(harness_random(&random) % 40000);

		status = harness_random(&random) % 3
				 ? get_numbered(tier, n)
				 : put_numbered(tier, n, size, 0);

		/* Another sweeps: this put is dropped. */
		if (!is_answer(status) && status != KILN_E_TIMEOUT) {
			fprintf(stderr, "process %u, entry %u: %s\n", index, n,
				kiln_status_name((enum kiln_status)status));
			return 3;
		}
	}
	tier->ops->close(tier);
	if (!is_mounted)
		nfs_end(&own);
	return 0;
}

static void many_processes_keep_the_bound_after_the_next_sweep(void **state)
{
	static const struct nfs_quirks quirks[] = {
		{ .lag = 20 },
		{ .lag = 20, .no_locks = 1 },
	};

	for (size_t i = 0; i < 2; i++) {
		struct kiln_verify_report report;
		struct kiln_store_info info;

		begin(&quirks[i], BOUND);
		crowd_quirks = &quirks[i];
		assert_int_equal(
			harness_processes(4, work, NULL, HARNESS_HANG_S), 0);
		assert_int_equal(tier_of(0)->ops->verify(tier_of(0),
							 KILN_VERIFY_REPAIR,
							 NULL, NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(tier_of(0)->ops->info(tier_of(0), &info),
				 KILN_OK);
		assert_true(info.bytes <= BOUND);
		end(NULL);
	}
}

/* ---- The native store ---------------------------------------------------------------------------- */

static void the_native_store_leaves_it_to_the_other(void **state)
{
	const struct nfs_quirks quirks = { 0 };
	struct kiln_tier *tier;

	begin(&quirks, 0);
	for (unsigned i = 0; i < N_MACHINES; i++) {
		struct ki_store_options options = {
			.sys = network.machines[i].sys,
			.directory = network.machines[i].directory,
		};

		assert_int_equal(ki_store_log_open(&options, &tier),
				 KILN_E_UNSUPPORTED);
	}
}

static void nothing_is_mapped_here(void **state)
{
	const struct nfs_quirks quirks = { 0 };
	const struct ki_sys *sys;
	char *path;
	void *data;
	int fd;

	begin(&quirks, 0);
	sys = network.machines[0].sys;
	path = harness_path(network.machines[0].directory,
			    "kiln.files/settings");
	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_WRITE, 0);
	assert_true(fd >= 0);
	assert_true(sys->map(sys, fd, 0, 64, KI_MAP_SHARED_WRITE, &data) < 0);
	(void)sys->close(sys, fd);
	free(path);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

/* NULL, or why nothing can be mounted here. */
static const char *try_to_mount(void)
{
	const struct nfs_quirks quirks = { 0 };
	char *server = harness_directory(), *where = harness_directory();
	struct nfs_mount mount;
	const char *why = nfs_mount(&mount, where, server, &quirks);

	nfs_unmount(&mount);
	free(where);
	free(server);
	return why;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(two_machines_get_right_answers_or_misses),
		TEST(of_two_machines_one_creates),
		TEST(what_another_made_may_be_seen_late_but_is_seen),
		TEST(a_link_whose_answer_is_lost_was_made),
		TEST(a_file_that_vanishes_while_it_is_read_is_a_miss),
		TEST(what_is_remembered_and_gone_spoils_no_walk),
		TEST(files_that_the_network_hides_are_left_alone),
		TEST(a_reader_keeps_its_file_and_nothing_is_left_of_it),
		TEST(a_build_has_one_leader_where_there_are_locks),
		TEST(without_locks_each_machine_may_build),
		TEST(many_processes_keep_the_bound_after_the_next_sweep),
		TEST(the_native_store_leaves_it_to_the_other),
		TEST(nothing_is_mapped_here),
	};
	const char *why;

	if (argc != 2) {
		fprintf(stderr, "usage: nfs interposed|mounted\n");
		return 2;
	}
	is_mounted = !strcmp(argv[1], "mounted");
	why = is_mounted ? try_to_mount() : NULL;
	if (why) {
		printf("1..0 # SKIP %s\n", why);
		return 0;
	}
	return _cmocka_run_group_tests(
		argv[1], tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
