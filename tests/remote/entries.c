/* SPDX-License-Identifier: MIT */

/*
 * Whatever lies on a server, no program gets a value that its key did not make:
 * what is not whole, not of this key or not signed by somebody trusted is built
 * here, and what was built takes its place there (S50, S51).
 *
 * A node fills a real server, its items are changed behind everybody's back, and
 * another node asks for them.
 */

#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <kiln/remote.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "sign/sign.h"

/* docs/formats/remote-item.md */
#define HEADER		192
#define HEADER_CHECK	184
#define VERSION		4
#define SIGNATURE	88
#define SIGNATURE_BYTES 72

static char *take(unsigned n, size_t *out_size)
{
	char name[NODE_NAME_BYTES];

	node_name(n, name);
	return stock_await(&world_stock, name, out_size);
}

static void lay(unsigned n, const void *bytes, size_t size)
{
	char name[NODE_NAME_BYTES];

	node_name(n, name);
	stock_lay(&world_stock, name, bytes, size);
}

/* ---- S50 -------------------------------------------------------------------- */

typedef void spoil_fn(char **inout_bytes, size_t *inout_size, unsigned n);

static void cut_in_half(char **inout_bytes, size_t *inout_size, unsigned n)
{
	*inout_size /= 2;
}

static void cut_the_last_byte(char **inout_bytes, size_t *inout_size,
			      unsigned n)
{
	*inout_size -= 1;
}

static void cut_after_the_header(char **inout_bytes, size_t *inout_size,
				 unsigned n)
{
	*inout_size = HEADER;
}

static void leave_nothing(char **inout_bytes, size_t *inout_size, unsigned n)
{
	*inout_size = 0;
}

static void add_bytes(char **inout_bytes, size_t *inout_size, unsigned n)
{
	*inout_bytes = realloc(*inout_bytes, *inout_size + 64);
	assert_non_null(*inout_bytes);
	memset(*inout_bytes + *inout_size, 0, 64);
	*inout_size += 64;
}

static void change_a_bit_of_the_value(char **inout_bytes, size_t *inout_size,
				      unsigned n)
{
	(*inout_bytes)[*inout_size - 1000] ^= 1;
}

static void change_a_bit_of_the_record(char **inout_bytes, size_t *inout_size,
				       unsigned n)
{
	(*inout_bytes)[HEADER + 4] ^= 1;
}

/* Every byte of the header: whichever of them the version is in, and the sizes. */
static void change_the_header(char **inout_bytes, size_t *inout_size,
			      unsigned n)
{
	for (size_t i = 0; i < HEADER; i++)
		(*inout_bytes)[i] ^= 0x11;
}

/* A header that is whole, but for what was changed. */
static void check_header(char *bytes)
{
	ki_put_u64((uint8_t *)bytes + HEADER_CHECK,
		   ki_xxh3_64(bytes, HEADER_CHECK));
}

static void be_another_format(char **inout_bytes, size_t *inout_size,
			      unsigned n)
{
	(*inout_bytes)[VERSION]++;
	check_header(*inout_bytes);
}

/* Sizes that go together, and are not those of what is there. */
static void claim_a_gigabyte(char **inout_bytes, size_t *inout_size, unsigned n)
{
	ki_put_u64((uint8_t *)*inout_bytes + 56, (uint64_t)1 << 30);
	ki_put_u64((uint8_t *)*inout_bytes + 64, (uint64_t)1 << 30);
	check_header(*inout_bytes);
}

static void be_another_keys(char **inout_bytes, size_t *inout_size, unsigned n)
{
	free(*inout_bytes);
	*inout_bytes = take(n + 1, inout_size);
}

static void be_something_else(char **inout_bytes, size_t *inout_size,
			      unsigned n)
{
	node_value(n + 77, *inout_bytes, *inout_size);
}

static const struct {
	const char *name;
	spoil_fn *spoil;
} spoilings[] = {
	{ "half of it", cut_in_half },
	{ "its last byte missing", cut_the_last_byte },
	{ "its header alone", cut_after_the_header },
	{ "nothing", leave_nothing },
	{ "more than it", add_bytes },
	{ "another bit in the value", change_a_bit_of_the_value },
	{ "another bit in the record", change_a_bit_of_the_record },
	{ "another header", change_the_header },
	{ "another format", be_another_format },
	{ "sizes that it has not", claim_a_gigabyte },
	{ "another key's item", be_another_keys },
	{ "something else", be_something_else },
};
#define N_SPOILINGS (sizeof(spoilings) / sizeof(*spoilings))

static void spoil_every_second(unsigned first)
{
	for (unsigned i = 0; i < N_SPOILINGS; i++) {
		size_t size;
		char *bytes = take(first + 2 * i, &size);

		spoilings[i].spoil(&bytes, &size, first + 2 * i);
		lay(first + 2 * i, bytes, size);
		free(bytes);
	}
}

/* After each there is a good one, or the server would soon be left alone. */
static void S50_what_is_damaged_is_built_and_mended(void **state)
{
	struct node *writer = world_node("transport");
	struct node *reader = world_node("transport");
	struct node *third = world_node("transport");
	const unsigned n = 2 * N_SPOILINGS, first = 100;
	const uint64_t *counters = world_run->counters;

	node_start_helper(writer);
	world_fill(writer, first, n);
	spoil_every_second(first);
	node_start_helper(reader);
	for (unsigned i = 0; i < N_SPOILINGS; i++) {
		world_use(reader, first + 2 * i, 2);
		if (world_run->n_builds != 1 || world_run->n_remote != 1 ||
		    !(counters[KILN_COUNT_REMOTE_DAMAGED] +
		      counters[KILN_COUNT_REMOTE_FAULTS]))
			fail_msg("%s: %u builds, %u from there",
				 spoilings[i].name, world_run->n_builds,
				 world_run->n_remote);
	}
	node_drain(reader);
	/* Who comes next finds what was built. */
	node_start_helper(third);
	world_use(third, first, n);
	assert_int_equal(world_run->n_builds, 0);
	assert_int_equal(world_run->n_remote, n);
	node_free(third);
	node_free(reader);
	node_free(writer);
}

/* ---- S51 -------------------------------------------------------------------- */

static void tool(struct node *node, const char *verb, const char *word)
{
	const char *const arguments[] = { "key", verb, word, NULL };

	assert_int_equal(node_tool(node, arguments, NULL), 0);
}

/* The reader trusts what the writer signs with. */
static void trust(struct node *reader, struct node *writer, const char *name)
{
	const char *const arguments[] = { "key", "show", name, NULL };
	char *line;

	assert_int_equal(node_tool(writer, arguments, &line), 0);
	line[strcspn(line, "\n")] = '\0';
	tool(reader, "trust", line);
	free(line);
}

static void S51_only_what_somebody_trusted_signed_is_used(void **state)
{
	struct node *writer = world_node("signed");
	struct node *stranger = world_node("signed");
	struct node *careless = world_node("transport");
	struct node *reader = world_node("signed");
	char signature[SIGNATURE_BYTES];
	size_t size;
	char *bytes;

	tool(writer, "new", "ci");
	node_set(writer, "KILN_SIGNING_KEY", "ci");
	tool(stranger, "new", "ci");
	node_set(stranger, "KILN_SIGNING_KEY", "ci");
	trust(writer, writer, "ci");
	trust(stranger, stranger, "ci");
	trust(reader, writer, "ci");
	node_start_helper(writer);
	node_start_helper(stranger);
	node_start_helper(careless);
	node_start_helper(reader);

	/* However many strangers put there, the server is asked on. */
	world_fill(writer, 200, 8);
	world_fill(stranger, 210, 5);
	world_fill(careless, 220, 1);
	world_use(reader, 200, 1);
	assert_int_equal(world_run->n_builds, 0);
	world_use(reader, 210, 5);
	assert_int_equal(world_run->n_builds, 5);
	assert_int_equal(world_run->counters[KILN_COUNT_REMOTE_UNSIGNED], 5);
	world_use(reader, 220, 1);
	assert_int_equal(world_run->n_builds, 1);
	assert_true(world_run->counters[KILN_COUNT_REMOTE_UNSIGNED] > 0);
	world_use(reader, 204, 1);
	assert_int_equal(world_run->n_builds, 0);

	/* A signature that is good, of another item; and that item itself.  Of what
	   is damaged there are no three in a row: it would be left alone. */
	bytes = take(201, &size);
	memcpy(signature, bytes + SIGNATURE, sizeof(signature));
	lay(203, bytes, size);
	free(bytes);
	bytes = take(202, &size);
	memcpy(bytes + SIGNATURE, signature, sizeof(signature));
	check_header(bytes);
	lay(202, bytes, size);
	free(bytes);
	world_use(reader, 202, 2);
	assert_int_equal(world_run->n_builds, 2);
	world_use(reader, 205, 1);
	assert_int_equal(world_run->n_builds, 0);

	/* After a change of keys, what the old one signed stays good, until it
	   is trusted no longer. */
	tool(writer, "rotate", "ci");
	trust(reader, writer, "ci");
	node_kill_helper(writer);
	node_start_helper(writer);
	world_fill(writer, 230, 1);
	world_use(reader, 206, 1);
	assert_int_equal(world_run->n_builds, 0);
	world_use(reader, 230, 1);
	assert_int_equal(world_run->n_builds, 0);
	tool(reader, "distrust", "ci");
	world_use(reader, 207, 1);
	assert_int_equal(world_run->n_builds, 1);
	node_free(reader);
	node_free(careless);
	node_free(stranger);
	node_free(writer);
}

/* Without a key that is trusted nothing is signed by anybody who counts. */
static void S51_who_trusts_nobody_is_given_nothing(void **state)
{
	struct node *writer = world_node("transport");
	struct node *reader = world_node("signed");

	node_start_helper(writer);
	world_fill(writer, 300, 1);
	node_start_helper(reader);
	world_use(reader, 300, 1);
	assert_int_equal(world_run->n_builds, 1);
	assert_int_equal(world_run->n_remote, 0);
	node_free(reader);
	node_free(writer);
}

/* As a library's user says it: what signs is the key itself, or a file that lies where
   nobody looks by himself. */
struct giving {
	unsigned n;	 /* of the value */
	const char *key; /* or NULL */
	char text[KI_SIGN_TEXT_BYTES];
};

static int give_one(unsigned index, void *arg)
{
	const struct giving *giving = arg;
	struct node_use use = { .size = WORLD_VALUE_BYTES };
	struct kiln_options options;
	struct kiln *kiln;
	int bad;

	kiln_options_init(&options);
	options.remote = world_stock.url;
	options.remote_trust = "signed";
	options.signing_key = giving->key;
	if (node_start_helper_of(&options) || kiln_open(&options, &kiln))
		return 1;
	bad = node_use(kiln, giving->n, &use);
	kiln_close(kiln);
	return bad || kiln_remote_drain(&options, HARNESS_HANG_S * 1000);
}

static void S51_a_key_of_the_options_signs(void **state)
{
	const uint8_t seed[KI_SIGN_SEED_BYTES] = { 7 };
	char *file = NULL, public[KI_SIGN_TEXT_BYTES];
	struct node *reader = world_node("signed");
	struct ki_sign_secret secret;
	struct giving giving;
	struct node *giver;

	assert_int_equal(ki_sign_secret_new("ours", seed, &secret), KILN_OK);
	ki_sign_public_print(&secret.public, public);
	ki_sign_secret_print(&secret, giving.text);
	tool(reader, "trust", public);
	node_start_helper(reader);
	for (unsigned i = 0; i < 3; i++) {
		giver = world_node("transport");
		file = harness_path(node_directory(giver), "key");
		harness_write(file, giving.text, strlen(giving.text));
		assert_int_equal(chmod(file, 0600), 0);
		giving.key = i == 0 ? giving.text : i == 1 ? file : NULL;
		/* Nothing that is set otherwise counts. */
		tool(giver, "new", "default");
		giving.n = 320 + i;
		assert_int_equal(node_run(giver, give_one, &giving), 0);
		world_use(reader, 320 + i, 1);
		assert_int_equal(world_run->n_remote, giving.key != NULL);
		free(file);
		node_free(giver);
	}
	ki_sign_secret_fini(&secret);
	node_free(reader);
}

/* ---- All -------------------------------------------------------------------- */

int world_tests(enum stock_kind kind)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(S50_what_is_damaged_is_built_and_mended),
		cmocka_unit_test(S51_only_what_somebody_trusted_signed_is_used),
		cmocka_unit_test(S51_who_trusts_nobody_is_given_nothing),
		cmocka_unit_test(S51_a_key_of_the_options_signs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
