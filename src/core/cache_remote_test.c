/* SPDX-License-Identifier: MIT */

/*
 * Kilns of several machines, each with a store of its own, and one remote.  The
 * helper is a thread of the test (remote/peer_test.h).
 */

#include "harness/harness.h"
#include "harness/shelf.h"

#include <sys/stat.h>
#include <unistd.h>

#include <kiln/pack.h>
#include <kiln/remote.h>

#include "core/cache_test.h"
#include "remote/patience.h"
#include "remote/peer_test.h"

#define N_MACHINES 3

struct scene {
	char *directory;
	char *stores[N_MACHINES]; /* URLs */
	struct peer *peer;
	char socket[KI_PATH_MAX];
};

static struct scene scene;

static struct kiln_options options_of(unsigned machine)
{
	struct kiln_options options = defaults();

	options.store_url = scene.stores[machine];
	options.store_bytes_max = 64 << 20;
	options.remote = "redis://nowhere";
	options.remote_trust = "transport";
	options.application = "/bin/program";
	return options;
}

static int begin(void **state)
{
	struct kiln_options options = options_of(0);
	char *folder;

	scene.directory = harness_directory();
	setenv("XDG_RUNTIME_DIR", scene.directory, 1);
	folder = harness_path(scene.directory, "kiln");
	assert_int_equal(mkdir(folder, 0700), 0);
	free(folder);
	for (unsigned i = 0; i < N_MACHINES; i++)
		if (asprintf(&scene.stores[i], "log:%s/store%u",
			     scene.directory, i) < 0)
			abort();
	assert_int_equal(ki_kiln_socket(&options, scene.socket), KILN_OK);
	scene.peer = peer_new(scene.socket);
	ki_patience_forget(100);
	return 0;
}

static int end(void **state)
{
	peer_free(scene.peer);
	for (unsigned i = 0; i < N_MACHINES; i++)
		free(scene.stores[i]);
	free(scene.directory);
	return 0;
}

static struct kiln *open_on(unsigned machine, uint32_t flags)
{
	struct kiln_options options = options_of(machine);
	struct kiln *kiln;

	options.flags = flags;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	return kiln;
}

static unsigned n_frames(enum ki_frame_type type)
{
	return peer_count(scene.peer, type);
}

static void what_one_machine_builds_others_find(void **state)
{
	struct work work = { .text = "one" };
	struct kiln *a = open_on(0, 0), *b = open_on(1, 0);
	char text[128];

	assert_outcome(a, 1, &work, "one from build");
	peer_await(scene.peer, KI_FRAME_PUT, 1);
	assert_outcome(b, 1, &work, "one from remote");
	assert_outcome(b, 1, &work, "one from memory");
	assert_int_equal(counter(b, KILN_COUNT_HITS_REMOTE), 1);
	assert_int_equal(counter(b, KILN_COUNT_HITS_STORE), 0);
	assert_int_equal(counter(b, KILN_COUNT_BUILDS), 0);
	assert_true(counter(b, KILN_COUNT_SAVED_NS) > 0);
	assert_true(counter(b, KILN_COUNT_REMOTE_WAIT_NS) > 0);
	kiln_close(b);

	/* It is b's own by now, and was not sent back. */
	b = open_on(1, 0);
	peer_drop_all(scene.peer);
	assert_outcome(b, 1, &work, "one from store");
	assert_int_equal(n_frames(KI_FRAME_PUT), 1);
	assert_int_equal(work.n_builds, 1);
	assert_string_equal(got(b, 2, text), "KILN_MISS");
	kiln_close(a);
	kiln_close(b);
}

static void a_hit_on_this_machine_asks_nobody(void **state)
{
	static const uint32_t flags[] = { 0, KILN_OPEN_NO_MEMORY,
					  KILN_OPEN_GUEST };
	struct kiln *kiln = open_on(0, 0);

	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	kiln_close(kiln);
	peer_await(scene.peer, KI_FRAME_PUT, 1);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		const unsigned before = peer_connections(scene.peer);

		kiln = open_on(0, flags[i]);
		assert_int_equal(kiln->glances,
				 flags[i] == KILN_OPEN_NO_MEMORY);
		for (unsigned n = 0; n < 10; n++)
			assert_got(kiln, 1, "one");
		assert_int_equal(peer_connections(scene.peer), before);
		/* What glances do not find, the remote may have. */
		assert_got(kiln, 2 + (unsigned)i, "KILN_MISS");
		assert_int_equal(peer_connections(scene.peer), before + 1);
		kiln_close(kiln);
	}
	assert_int_equal(n_frames(KI_FRAME_GET), 3);
}

static void a_glance_that_finds_nothing_asks_the_remote(void **state)
{
	struct work work = { .text = "one" };
	struct kiln *a = open_on(0, 0);
	struct kiln *b = open_on(1, KILN_OPEN_NO_MEMORY);

	assert_int_equal(put(a, 1, "one", 0), KILN_OK);
	assert_int_equal(put(a, 2, "two", 0), KILN_OK);
	peer_await(scene.peer, KI_FRAME_PUT, 2);
	assert_true(b->glances);
	assert_got(b, 1, "one");
	assert_outcome(b, 2, &work, "two from remote");
	assert_outcome(b, 2, &work, "two from store");
	kiln_close(a);
	kiln_close(b);
}

/* ---- What leaves, and what does not ------------------------------------------- */

static void what_is_local_failed_or_hidden_stays_at_home(void **state)
{
	struct work work = { .kind = KILN_BUILD_FAILED, .text = "no" };
	struct kiln_metadata *hidden = kiln_metadata_new();
	struct kiln_key *local = kiln_key_new(), *key = key_of(2);
	struct kiln *kiln = open_on(0, 0);
	struct kiln_blob *blob;

	assert_outcome(kiln, 1, &work, "no, -11 from build");
	kiln_key_add_local(local, "home", "/home", 5);
	assert_int_equal(kiln_key_finish(local), KILN_OK);
	assert_int_equal(kiln_put(kiln, local, "here", 4, NULL, 0), KILN_OK);
	kiln_metadata_add_u64(hidden, KILN_META_FLAGS, KILN_ENTRY_HIDDEN);
	assert_int_equal(kiln_put(kiln, key, "hidden", 6, hidden, 0), KILN_OK);
	assert_int_equal(n_frames(KI_FRAME_GET), 2); /* and after the lease */
	kiln_remove(kiln, local);
	assert_int_equal(kiln_get(kiln, local, &blob), KILN_MISS);
	assert_int_equal(n_frames(KI_FRAME_GET), 2);
	kiln_close(kiln);
	assert_int_equal(n_frames(KI_FRAME_PUT), 0);
	kiln_metadata_free(hidden);
	kiln_key_free(local);
	kiln_key_free(key);
}

static void a_kiln_that_only_reads_gives_nothing(void **state)
{
	struct work work = { .text = "one" };
	struct kiln *a = open_on(0, 0), *b;

	assert_int_equal(put(a, 1, "one", 0), KILN_OK);
	peer_await(scene.peer, KI_FRAME_PUT, 1);
	b = open_on(0, KILN_OPEN_READONLY);
	peer_drop_all(scene.peer);
	assert_outcome(b, 2, &work, "one from build");
	assert_int_equal(put(b, 3, "three", 0), KILN_E_READONLY);
	kiln_close(b);
	assert_int_equal(n_frames(KI_FRAME_PUT), 1);
	assert_int_equal(n_frames(KI_FRAME_LEASE), 0);
	kiln_close(a);
}

static void what_is_put_twice_goes_once_and_replaces_by_intent(void **state)
{
	struct kiln *kiln = open_on(0, 0);

	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	peer_await(scene.peer, KI_FRAME_PUT, 1);
	assert_int_equal(peer_put_flags(scene.peer), 0);
	assert_int_equal(put(kiln, 1, "two", 0), KILN_EXISTS);
	assert_int_equal(put(kiln, 1, "two", KILN_PUT_REPLACE), KILN_OK);
	peer_await(scene.peer, KI_FRAME_PUT, 2);
	assert_int_equal(peer_put_flags(scene.peer), KI_REMOTE_PUT_REPLACE);
	kiln_close(kiln);
}

static void what_is_removed_is_refused_there(void **state)
{
	struct kiln *kiln = open_on(0, 0);
	struct kiln_key *key = key_of(1);

	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	assert_int_equal(kiln_remove(kiln, key), KILN_OK);
	peer_await(scene.peer, KI_FRAME_VERDICT, 1);
	assert_int_equal(peer_verdict(scene.peer), 0);
	kiln_key_free(key);
	kiln_close(kiln);
}

/* S53: the store keeps what the servers will not. */
static void a_remote_that_takes_nothing_is_given_nothing(void **state)
{
	struct work work = { .text = "one" };
	struct kiln *kiln = open_on(0, 0);

	peer_can(scene.peer, 0, 0);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 2, &work, "one from build");
	kiln_close(kiln);
	assert_int_equal(n_frames(KI_FRAME_PUT), 0);
	kiln = open_on(0, 0);
	assert_outcome(kiln, 1, &work, "one from store");
	kiln_close(kiln);
}

/* ---- Trust ------------------------------------------------------------------- */

/* S51: by default what is not signed by somebody trusted is not there. */
static void only_signed_entries_are_used_by_default(void **state)
{
	static const struct {
		const char *trust;
		int has_key, is_signed;
		const char *outcome;
		uint64_t n_unsigned;
		unsigned n_gets;
	} rows[] = {
		{ NULL, 1, 1, "value from remote", 0, 1 },
		{ "signed", 1, 1, "value from remote", 0, 1 },
		/* The levels behind are asked, and all again after the lease. */
		{ NULL, 1, 0, "one from build", 2, 4 },
		/* Nobody is trusted: nothing need be asked. */
		{ NULL, 0, 1, "one from build", 0, 0 },
		{ "transport", 0, 0, "value from remote", 0, 1 },
		{ "transport", 1, 0, "value from remote", 0, 1 },
	};
	struct ki_sign_secret secret;
	uint8_t seed[KI_SIGN_SEED_BYTES] = { 1 };
	char text[KI_SIGN_TEXT_BYTES];
	const char *const keys[] = { text };
	struct kiln_key *key = key_of(1);

	assert_int_equal(ki_sign_secret_new("ci", seed, &secret), KILN_OK);
	ki_sign_public_print(&secret.public, text);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct ki_item_seal how = { .secret = rows[i].is_signed
								    ? &secret
								    : NULL };
		struct kiln_options options = options_of(0);
		struct work work = { .text = "one" };
		const unsigned before = n_frames(KI_FRAME_GET);
		char socket[KI_PATH_MAX];
		struct peer *peer = NULL;
		struct kiln *kiln;

		options.store_url = NULL;
		options.remote_trust = rows[i].trust;
		options.trusted_keys = keys;
		options.n_trusted_keys = (size_t)rows[i].has_key;
		/* The word is part of the configuration, so of the name. */
		assert_int_equal(ki_kiln_socket(&options, socket), KILN_OK);
		if (strcmp(socket, scene.socket) != 0)
			peer = peer_new(socket);
		peer_drop_all(scene.peer);
		peer_add(peer ? peer : scene.peer, key, 0, "value", 6, &how);
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_outcome(kiln, 1, &work, rows[i].outcome);
		assert_int_equal(counter(kiln, KILN_COUNT_REMOTE_UNSIGNED),
				 rows[i].n_unsigned);
		assert_int_equal(peer ? peer_count(peer, KI_FRAME_GET)
				      : n_frames(KI_FRAME_GET) - before,
				 rows[i].n_gets);
		kiln_close(kiln);
		if (peer)
			peer_free(peer);
	}
	kiln_key_free(key);
}

/* Who trusts the keys of a shared store trusts no server by that. */
static void a_shared_store_vouches_for_nothing_unsigned(void **state)
{
	static const struct {
		const char *trust, *later;
	} rows[] = { { "transport", "KILN_MISS" }, { "signed", "value" } };
	struct ki_sign_secret secret;
	uint8_t seed[KI_SIGN_SEED_BYTES] = { 1 };
	char public_text[KI_SIGN_TEXT_BYTES], secret_text[KI_SIGN_TEXT_BYTES];
	const char *const keys[] = { public_text };
	struct kiln_key *key = key_of(1);

	assert_int_equal(ki_sign_secret_new("ci", seed, &secret), KILN_OK);
	ki_sign_public_print(&secret.public, public_text);
	ki_sign_secret_print(&secret, secret_text);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const int is_signed = !strcmp(rows[i].trust, "signed");
		const struct ki_item_seal how = { .secret = is_signed ? &secret
								      : NULL };
		struct kiln_options options = options_of(i);
		char socket[KI_PATH_MAX];
		struct kiln *kiln;
		struct peer *peer;

		options.flags = KILN_OPEN_SHARED;
		options.signing_key = secret_text;
		options.trusted_keys = keys;
		options.n_trusted_keys = 1;
		options.remote_trust = rows[i].trust;
		assert_int_equal(ki_kiln_socket(&options, socket), KILN_OK);
		peer = peer_new(socket);
		peer_add(peer, key, 0, "value", 6, &how);
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_got(kiln, 1, "value");
		assert_got(kiln, 1, "value");
		kiln_close(kiln);
		peer_free(peer);
		options.remote = NULL;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_got(kiln, 1, rows[i].later);
		kiln_close(kiln);
	}
	kiln_key_free(key);
}

/* ---- Packs ------------------------------------------------------------------- */

#define N_PACKED 50

static char *write_pack(const char *secret)
{
	char *path = harness_path(scene.directory, "a.pack");
	const char *const secrets[] = { secret };
	struct kiln_pack_writer_options options;
	struct kiln_pack_writer *writer;

	kiln_pack_writer_options_init(&options);
	options.signing_keys = secrets;
	options.n_signing_keys = secret != NULL;
	options.flags = KILN_PACK_REPLACE;
	assert_int_equal(kiln_pack_create(path, &options, &writer), KILN_OK);
	for (unsigned i = 0; i < N_PACKED; i++) {
		struct kiln_key *key = key_of(i);

		assert_int_equal(
			kiln_pack_add(writer, key, NULL, 0, "packed", 7),
			KILN_OK);
		kiln_key_free(key);
	}
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	return path;
}

/* A stranger's: it counts with a signature, and is not sent to the remote. */
static void a_pack_on_a_server_is_used_if_it_is_signed(void **state)
{
	struct ki_sign_secret secret;
	uint8_t seed[KI_SIGN_SEED_BYTES] = { 1 };
	char public_text[KI_SIGN_TEXT_BYTES], secret_text[KI_SIGN_TEXT_BYTES];
	const char *const keys[] = { public_text };
	struct work work = { .text = "one" };

	assert_int_equal(ki_sign_secret_new("ci", seed, &secret), KILN_OK);
	ki_sign_public_print(&secret.public, public_text);
	ki_sign_secret_print(&secret, secret_text);
	for (unsigned i = 0; i < 4; i++) {
		const int is_signed = i < 2;
		struct kiln_options options = options_of(i % 3);
		char *path = write_pack(is_signed ? secret_text : NULL), *bytes;
		enum kiln_status status = KILN_OK;
		struct kiln *kiln;
		size_t size;

		bytes = harness_read(path, &size);
		peer_serve(scene.peer, bytes, size);
		options.packs = "https://server/a.pack";
		options.flags = i % 2 ? KILN_OPEN_GUEST : 0;
		options.trusted_keys = keys;
		options.n_trusted_keys = 1;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_string_equal(kiln_pack_given(kiln, 0, &status),
				    options.packs);
		if (is_signed) {
			assert_int_equal(status, KILN_OK);
			for (unsigned n = 0; n < N_PACKED; n++)
				assert_outcome(kiln, n, &work,
					       "packed from store");
			assert_int_equal(counter(kiln, KILN_COUNT_HITS_PACK),
					 N_PACKED);
		} else {
			assert_int_equal(status, KILN_E_OWNER);
		}
		kiln_close(kiln);
		peer_serve(scene.peer, NULL, 0);
		free(bytes);
		free(path);
	}
	assert_int_equal(n_frames(KI_FRAME_PUT), 0);
	assert_int_equal(work.n_builds, 0);
}

/* ---- Leases ------------------------------------------------------------------ */

static int ask_on_a_machine(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	char out[128];

	outcome(crowd->kilns[index % crowd->n_kilns], 1, &crowd->work, out);
	if (strncmp(out, "one from ", 9))
		atomic_fetch_add(&crowd->n_wrong, 1);
	return 0;
}

static void machines_that_ask_together_build_once(void **state)
{
	struct crowd crowd = { .n_kilns = N_MACHINES,
			       .work = { .text = "one" } };

	for (unsigned i = 0; i < N_MACHINES; i++)
		crowd.kilns[i] = open_on(i, 0);
	harness_threads(4 * N_MACHINES, ask_on_a_machine, &crowd);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(crowd.work.n_builds, 1);
	for (unsigned i = 0; i < N_MACHINES; i++)
		kiln_close(crowd.kilns[i]);
}

/* Who has the lease at once has nobody to thank for an entry: a server that is slow
   is waited for no longer than at first. */
static void a_lease_is_no_reason_to_wait_for_a_slow_server(void **state)
{
	struct work work = { .text = "one" };
	struct kiln *kiln = open_on(0, 0);

	ki_patience_forget(1);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_int_equal(n_frames(KI_FRAME_LEASE), 1);
	assert_int_equal(n_frames(KI_FRAME_GET), 2);
	assert_true(peer_wait_ms(scene.peer) <= KI_PATIENCE_NS_MAX / 1000000);
	kiln_close(kiln);
}

/* ---- S52: a helper that is no help -------------------------------------------- */

static void a_helper_in_any_mood_costs_no_more_than_time(void **state)
{
	struct work work = { .text = "one" };
	uint64_t start = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	struct kiln *kiln;
	unsigned number = 100;

	ki_patience_forget(1);
	for (enum peer_manner manner = 0; manner < PEER_N_MANNERS; manner++) {
		peer_behave(scene.peer, manner);
		kiln = open_on(0, 0);
		assert_outcome(kiln, number++, &work, "one from build");
		kiln_close(kiln);
	}
	assert_true(ki_sys_posix.monotonic_ns(&ki_sys_posix) - start <
		    60 * S_NS);
}

static void closing_waits_for_no_upload(void **state)
{
	struct kiln *kiln = open_on(0, 0);
	uint64_t start;

	peer_behave(scene.peer, PEER_DEAF);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(put(kiln, i, "value", 0), KILN_OK);
	start = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	kiln_close(kiln);
	assert_true(ki_sys_posix.monotonic_ns(&ki_sys_posix) - start < S_NS);
}

/* ---- The order ---------------------------------------------------------------- */

static void what_a_program_used_is_fetched_ahead_elsewhere(void **state)
{
	enum { N = 100 };
	struct kiln *a = open_on(0, KILN_OPEN_ORDER), *b;

	for (unsigned i = 0; i < N; i++) {
		char text[128];

		assert_string_equal(got(a, i, text), "KILN_MISS");
		assert_int_equal(put(a, i, "value", 0), KILN_OK);
	}
	kiln_close(a);
	peer_await(scene.peer, KI_FRAME_PUT, N + 1); /* and the order */

	b = open_on(1, KILN_OPEN_ORDER);
	for (unsigned i = 0; i < N; i++)
		assert_got(b, i, "value");
	assert_int_equal(peer_ahead(scene.peer), N - 1);
	assert_int_equal(counter(b, KILN_COUNT_HITS_REMOTE), N);
	kiln_close(b);
	/* It used the same, and has nothing to add. */
	assert_int_equal(n_frames(KI_FRAME_PUT), N + 1);
}

/* The order itself comes too late there for the first look-up. */
static void what_is_far_away_is_fetched_ahead_all_the_same(void **state)
{
	enum { N = 100 };
	struct kiln *a = open_on(0, KILN_OPEN_ORDER), *b;
	struct kiln_key *key;
	struct kiln_blob *order;

	for (unsigned i = 0; i < N; i++) {
		assert_got(a, i, "KILN_MISS");
		assert_int_equal(put(a, i, "value", 0), KILN_OK);
	}
	kiln_close(a);
	peer_await(scene.peer, KI_FRAME_PUT, N + 1);

	peer_behave(scene.peer, PEER_FAR);
	b = open_on(1, KILN_OPEN_ORDER);
	assert_got(b, 0, "KILN_MISS");
	assert_int_equal(peer_ahead(scene.peer), 0);
	assert_got(b, 1, "KILN_MISS");
	assert_int_equal(peer_ahead(scene.peer), 32);
	/* Of the order that was late once, and of these two. */
	assert_int_equal(counter(b, KILN_COUNT_REMOTE_LATE), 3);
	assert_int_equal(kiln_order_key("/bin/program", &key), KILN_OK);
	assert_int_equal(ki_kiln_get_from_store(b, key, &order), KILN_OK);
	kiln_blob_unref(order);
	kiln_key_free(key);
	kiln_close(b);
}

static void an_order_that_is_none_is_not_kept(void **state)
{
	struct kiln *kiln = open_on(1, KILN_OPEN_ORDER);
	struct kiln_blob *order;
	struct kiln_key *key;

	assert_int_equal(kiln_order_key("/bin/program", &key), KILN_OK);
	peer_add(scene.peer, key, 0, "rubbish", 7, &(struct ki_item_seal){ 0 });
	assert_got(kiln, 0, "KILN_MISS");
	assert_int_equal(n_frames(KI_FRAME_GET), 2);
	assert_int_equal(ki_kiln_get_from_store(kiln, key, &order), KILN_MISS);
	kiln_key_free(key);
	kiln_close(kiln);
}

/* Not even as digests, which tell whoever can guess. */
static void names_of_local_keys_stay_at_home(void **state)
{
	struct kiln_key *local = kiln_key_new();
	struct kiln *kiln = open_on(0, KILN_OPEN_ORDER);
	struct kiln_blob *blob;

	kiln_key_add_local(local, "home", "/home", 5);
	assert_int_equal(kiln_key_finish(local), KILN_OK);
	assert_int_equal(kiln_get(kiln, local, &blob), KILN_MISS);
	assert_int_equal(kiln_put(kiln, local, "here", 4, NULL, 0), KILN_OK);
	kiln_close(kiln);
	assert_int_equal(n_frames(KI_FRAME_PUT), 0);
	kiln_key_free(local);
}

/* ---- Options, and the helper itself -------------------------------------------- */

static void options_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *remote, *trust, *credentials;
		uint32_t flags;
	} rows[] = {
		{ "", NULL, NULL, 0 },
		{ "ftp://host", NULL, NULL, 0 },
		{ "rediss://host", NULL, NULL, 0 },
		{ "redis://user:secret@host", NULL, NULL, 0 },
		{ "redis://a redis://b@c", NULL, NULL, 0 },
		{ "https://a/b?sig=secret", NULL, NULL, 0 },
		{ "redis://a,", NULL, NULL, 0 },
		{ "redis://a#tll=7d", NULL, NULL, 0 },
		{ "redis://a", "maybe", NULL, 0 },
		{ "redis://a", NULL, "credentials", 0 },
		{ "redis://a", NULL, NULL, KILN_OPEN_SESSION },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct kiln_options options = options_of(0);
		struct kiln *kiln;

		options.remote = rows[i].remote;
		options.remote_trust = rows[i].trust;
		options.remote_credentials = rows[i].credentials;
		options.flags = rows[i].flags;
		assert_int_equal(kiln_open(&options, &kiln), KILN_E_INVALID);
	}
}

static void a_helper_tells_of_itself(void **state)
{
	struct kiln_options options = options_of(0);
	char *json = NULL;

	assert_int_equal(
		kiln_remote_tell(&options, KILN_REMOTE_STATE, 1000, &json),
		KILN_OK);
	assert_string_equal(json, "{\"helper\":{}}");
	free(json);
	assert_int_equal(kiln_remote_drain(&options, 1000), KILN_OK);
	assert_true(kiln_remote_is_there(&options));
	assert_int_equal(kiln_remote_tell(&options, 2, 1000, &json),
			 KILN_E_INVALID);
	options.remote = "redis://elsewhere";
	assert_int_equal(
		kiln_remote_tell(&options, KILN_REMOTE_STATE, 1000, &json),
		KILN_MISS);
	assert_false(kiln_remote_is_there(&options));
	options.remote = NULL;
	assert_int_equal(kiln_remote_drain(&options, 1000), KILN_E_INVALID);
	assert_false(kiln_remote_is_there(&options));
}

static void a_helper_that_is_there_takes_what_is_put(void **state)
{
	static const struct {
		const char *remote;
		uint32_t flags;
		int takes;
	} rows[] = {
		{ "redis://nowhere", 0, 1 },
		{ "redis://nowhere", KILN_OPEN_GUEST, 1 },
		{ "redis://nowhere", KILN_OPEN_READONLY, 0 },
		{ "redis://elsewhere", 0, 0 },
		{ NULL, 0, 0 },
	};

	assert_false(kiln_remote_takes(NULL));
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct kiln_options options = options_of(0);
		struct kiln *kiln;

		options.remote = rows[i].remote;
		options.flags = rows[i].flags;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_int_equal(kiln_remote_takes(kiln), rows[i].takes);
		kiln_close(kiln);
	}
}

/* What it can is known once it has answered. */
static void a_helper_whose_servers_are_only_read_takes_nothing(void **state)
{
	struct work work = { .text = "one" };
	struct kiln *kiln = open_on(0, 0);

	peer_can(scene.peer, 0, 0);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_false(kiln_remote_takes(kiln));
	kiln_close(kiln);
}

/* Which a helper says whose servers all fail. */
static void a_helper_that_is_left_alone_takes_nothing(void **state)
{
	struct work work = { .text = "one" };
	struct kiln *kiln = open_on(0, 0);

	assert_true(kiln_remote_takes(kiln));
	peer_behave(scene.peer, PEER_QUIET);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_false(kiln_remote_takes(kiln));
	kiln_close(kiln);
}

/* A program that ends at once gives its lock back, and so can be started again; one
   that is not there leaves no socket behind. */
static void who_starts_a_helper_leaves_nothing_where_it_fails(void **state)
{
	struct kiln_options options = options_of(0);
	char socket[KI_PATH_MAX], why[256] = "";
	struct stat info;

	options.remote = "redis://other";
	assert_int_equal(ki_kiln_socket(&options, socket), KILN_OK);
	assert_int_equal(kiln_remote_start(&options, "/nowhere/kiln-remote",
					   why, sizeof(why)),
			 KILN_MISS);
	assert_non_null(strstr(why, "cannot be started"));
	assert_int_equal(stat(socket, &info), -1);

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(kiln_remote_start(&options, "/bin/true", why,
						   sizeof(why)),
				 KILN_OK);
		assert_int_equal(stat(socket, &info), 0);
		assert_true(S_ISSOCK(info.st_mode));
		assert_int_equal(info.st_mode & 0777, 0600);
	}

	/* What is no socket is nobody's to remove. */
	assert_int_equal(unlink(socket), 0);
	harness_write(socket, "mine", 4);
	while (kiln_remote_start(&options, "/bin/true", why, sizeof(why)) ==
	       KILN_OK)
		; /* until the last one's lock is free */
	assert_int_equal(stat(socket, &info), 0);
	assert_int_equal(info.st_size, 4);
	options.remote = NULL;
	assert_int_equal(kiln_remote_start(&options, NULL, why, sizeof(why)),
			 KILN_E_INVALID);
}

/* A program in the place of kiln-remote, which says with what it was started. */
static char *write_witness(const char *heard)
{
	char *path = harness_path(scene.directory, "witness"), *text;
	int n = asprintf(&text, "#!/bin/sh\n/bin/cat /proc/$$/environ >'%s'\n",
			 heard);

	assert_true(n > 0);
	harness_write(path, text, (size_t)n);
	assert_int_equal(chmod(path, 0700), 0);
	free(text);
	return path;
}

static void set_all(const char *const *variables, int are_set)
{
	for (; *variables; variables += 2)
		if (are_set)
			setenv(variables[0], variables[1], 1);
		else
			unsetenv(variables[0]);
}

/* Whether "NAME=VALUE" is among those that end in NULs. */
static int is_among(const char *list, size_t size, const char *name,
		    const char *value)
{
	const size_t name_size = strlen(name);

	for (size_t i = 0; i < size; i += strlen(list + i) + 1)
		if (!strncmp(list + i, name, name_size) &&
		    list[i + name_size] == '=')
			return !strcmp(list + i + name_size + 1, value);
	return 0;
}

/* It outlives its starter and serves others: of a program's environment it is given
   what its socket is named after. */
static void a_helper_is_given_what_it_has_use_for(void **state)
{
	static const char *const kept[] = { "AWS_REGION",  "here",
					    "https_proxy", "http://p",
					    "KILN_LOG",	   "/a/log",
					    NULL };
	static const char *const dropped[] = { "GLIBC_TUNABLES",
					       "glibc.malloc.check=3",
					       "HOME",
					       "/elsewhere",
					       "KILN_CONFIG",
					       "/elsewhere",
					       "KILN_SIGNING_KEY",
					       "ci",
					       "LD_AUDIT",
					       "",
					       "LD_LIBRARY_PATH",
					       "/elsewhere",
					       "LD_PRELOAD",
					       "",
					       "MALLOC_ARENA_MAX",
					       "1",
					       "SSLKEYLOGFILE",
					       "/elsewhere/keys",
					       NULL };
	const uint8_t seed[KI_SIGN_SEED_BYTES] = { 1 };
	char text[KI_SIGN_TEXT_BYTES], why[256], list[8192];
	char *heard = harness_path(scene.directory, "heard");
	char *witness = write_witness(heard);
	struct kiln_options options = options_of(0);
	const char *const settings[] = { "KILN_REMOTE",
					 "s3://other/one",
					 "KILN_REMOTE_CREDENTIALS",
					 "/a/file",
					 "KILN_REMOTE_TRUST",
					 "transport",
					 "KILN_SIGNING_KEY",
					 text,
					 NULL };
	struct ki_sign_secret secret;
	size_t size, n = 0;
	FILE *file;

	assert_int_equal(ki_sign_secret_new("ci", seed, &secret), KILN_OK);
	ki_sign_secret_print(&secret, text);
	ki_sign_secret_fini(&secret);
	options.remote = settings[1];
	options.remote_credentials = settings[3];
	options.signing_key = text;
	for (size_t i = 0; ki_remote_variables[i]; i++)
		unsetenv(ki_remote_variables[i]);
	set_all(kept, 1);
	set_all(dropped, 1);
	assert_int_equal(mkfifo(heard, 0600), 0);
	assert_int_equal(kiln_remote_start(&options, witness, why, sizeof(why)),
			 KILN_OK);
	set_all(kept, 0);
	set_all(dropped, 0);
	file = fopen(heard, "r");
	assert_non_null(file);
	size = fread(list, 1, sizeof(list) - 1, file);
	list[size] = '\0';
	fclose(file);
	for (size_t i = 0; settings[i]; i += 2)
		assert_true(is_among(list, size, settings[i], settings[i + 1]));
	for (size_t i = 0; kept[i]; i += 2)
		assert_true(is_among(list, size, kept[i], kept[i + 1]));
	for (size_t i = 0; i < size; i += strlen(list + i) + 1)
		n++;
	assert_int_equal(n, 4 + 3);
	free(witness);
	free(heard);
}

static void a_directory_that_is_open_to_others_has_no_helper(void **state)
{
	struct kiln_options options = options_of(0);
	char *folder = harness_path(scene.directory, "kiln");
	char why[KI_PATH_MAX + 256] = "";

	options.remote = "redis://other";
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(
		kiln_remote_start(&options, "/bin/true", why, sizeof(why)),
		KILN_E_OWNER);
	assert_non_null(strstr(why, "chmod 700"));
	assert_int_equal(chmod(folder, 0700), 0);
	free(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_one_machine_builds_others_find),
		TEST(a_hit_on_this_machine_asks_nobody),
		TEST(a_glance_that_finds_nothing_asks_the_remote),
		TEST(what_is_local_failed_or_hidden_stays_at_home),
		TEST(a_kiln_that_only_reads_gives_nothing),
		TEST(what_is_put_twice_goes_once_and_replaces_by_intent),
		TEST(what_is_removed_is_refused_there),
		TEST(a_remote_that_takes_nothing_is_given_nothing),
		TEST(only_signed_entries_are_used_by_default),
		TEST(a_shared_store_vouches_for_nothing_unsigned),
		TEST(a_pack_on_a_server_is_used_if_it_is_signed),
		TEST(machines_that_ask_together_build_once),
		TEST(a_lease_is_no_reason_to_wait_for_a_slow_server),
		TEST(a_helper_in_any_mood_costs_no_more_than_time),
		TEST(closing_waits_for_no_upload),
		TEST(what_a_program_used_is_fetched_ahead_elsewhere),
		TEST(what_is_far_away_is_fetched_ahead_all_the_same),
		TEST(an_order_that_is_none_is_not_kept),
		TEST(names_of_local_keys_stay_at_home),
		TEST(options_that_cannot_be_are_refused),
		TEST(a_helper_tells_of_itself),
		TEST(a_helper_that_is_there_takes_what_is_put),
		TEST(a_helper_whose_servers_are_only_read_takes_nothing),
		TEST(a_helper_that_is_left_alone_takes_nothing),
		TEST(who_starts_a_helper_leaves_nothing_where_it_fails),
		TEST(a_helper_is_given_what_it_has_use_for),
		TEST(a_directory_that_is_open_to_others_has_no_helper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
