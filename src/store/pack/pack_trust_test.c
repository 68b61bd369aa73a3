/* SPDX-License-Identifier: MIT */

/* S51, S59: whose packs are opened. */

#include "store/pack/pack_test.h"

#include "sign/sign.h"

#define N 60

enum { ALICE, BOB, CAROL, N_SIGNERS };

static char secrets[N_SIGNERS][KI_SIGN_TEXT_BYTES];
static char publics[N_SIGNERS][KI_SIGN_TEXT_BYTES];
static struct ki_sign_secret signers[N_SIGNERS];

static int make_keys(void **state)
{
	static const char *const names[] = { "alice", "bob", "carol" };

	for (unsigned i = 0; i < N_SIGNERS; i++) {
		uint8_t seed[KI_SIGN_SEED_BYTES];

		memset(seed, (int)i + 1, sizeof(seed));
		assert_int_equal(
			ki_sign_secret_new(names[i], seed, &signers[i]),
			KILN_OK);
		ki_sign_secret_print(&signers[i], secrets[i]);
		ki_sign_public_print(&signers[i].public, publics[i]);
	}
	return 0;
}

/* By whom, as bits. */
static char *write_signed(const char *directory, unsigned by)
{
	const char *keys[N_SIGNERS];
	struct kiln_pack_writer_options options;
	char *path = harness_path(directory, "test.pack");

	kiln_pack_writer_options_init(&options);
	options.flags = KILN_PACK_REPLACE;
	options.signing_keys = keys;
	for (unsigned i = 0; i < N_SIGNERS; i++)
		if (by & 1u << i)
			keys[options.n_signing_keys++] = secrets[i];
	write_pack_as(path, N, &options);
	return path;
}

/* Whom to trust, as bits. */
static enum kiln_status try_medium(struct medium *medium, unsigned trusted,
				   uint32_t flags, uint32_t device_flags)
{
	const char *keys[N_SIGNERS];
	struct kiln_pack_device device = device_of(medium);
	struct kiln_pack_options options;
	struct kiln_tier *tier = NULL;
	enum kiln_status status;

	kiln_pack_options_init(&options);
	options.flags = flags;
	options.trusted_keys = keys;
	for (unsigned i = 0; i < N_SIGNERS; i++)
		if (trusted & 1u << i)
			keys[options.n_trusted_keys++] = publics[i];
	device.flags = device_flags;
	status = kiln_pack_open_device(&device, &options, &tier);
	if (!status) {
		assert_int_equal(count_hits(tier, N), N);
		tier->ops->close(tier);
	}
	return status;
}

static void a_pack_is_opened_for_who_trusts_a_signer(void **state)
{
	enum { A = 1 << ALICE, B = 1 << BOB, C = 1 << CAROL };
	static const struct {
		const char *name;
		unsigned by, trusted;
		uint32_t flags, device_flags;
		enum kiln_status status;
	} rows[] = {
		{ "nobody asks", 0, 0, 0, 0, KILN_OK },
		{ "nobody asks, and it is signed", A, 0, 0, 0, KILN_OK },
		{ "keys are trusted, it has none", 0, A, 0, 0, KILN_E_OWNER },
		{ "the signer is trusted", A, A, 0, 0, KILN_OK },
		{ "somebody else is", A, B, 0, 0, KILN_E_OWNER },
		{ "the signer among others", A, A | B | C, 0, 0, KILN_OK },
		{ "one of the signers", A | B, B, 0, 0, KILN_OK },
		{ "none of the signers", A | B, C, 0, 0, KILN_E_OWNER },
		{ "required, and nobody trusted", A, 0, KILN_PACK_SIGNED, 0,
		  KILN_E_OWNER },
		{ "required, and trusted", A, A, KILN_PACK_SIGNED, 0, KILN_OK },
		{ "somebody else's, unsigned will do", A, B, KILN_PACK_UNSIGNED,
		  0, KILN_OK },
		{ "none, unsigned will do", 0, A, KILN_PACK_UNSIGNED, 0,
		  KILN_OK },
		{ "far away, and unsigned", 0, 0, 0, KILN_PACK_REMOTE,
		  KILN_E_OWNER },
		{ "far away, nobody trusted", A, 0, 0, KILN_PACK_REMOTE,
		  KILN_E_OWNER },
		{ "far away, unsigned will not do", 0, 0, KILN_PACK_UNSIGNED,
		  KILN_PACK_REMOTE, KILN_E_OWNER },
		{ "far away, somebody else's", A, B, KILN_PACK_UNSIGNED,
		  KILN_PACK_REMOTE, KILN_E_OWNER },
		{ "far away, and trusted", A, A, 0, KILN_PACK_REMOTE, KILN_OK },
	};
	char *directory = harness_directory();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *path = write_signed(directory, rows[i].by);
		enum kiln_status status;
		struct medium medium;

		medium_init(&medium, path);
		status = try_medium(&medium, rows[i].trusted, rows[i].flags,
				    rows[i].device_flags);
		if (status != rows[i].status)
			fail_msg("%s: %s", rows[i].name,
				 kiln_status_name(status));
		medium_fini(&medium);
		free(path);
	}
	harness_remove(directory);
	free(directory);
}

static void what_is_no_key_is_refused(void **state)
{
	static const char *const rows[] = { "", "alice", "alice:AAAA", "\n:" };
	char *directory = harness_directory();
	char *path = write_signed(directory, 0);
	struct medium medium;

	medium_init(&medium, path);
	for (size_t i = 1; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_pack_options options;
		struct kiln_pack_writer_options writing;
		struct kiln_pack_writer *writer;
		struct kiln_tier *tier;

		kiln_pack_options_init(&options);
		options.trusted_keys = &rows[i];
		options.n_trusted_keys = 1;
		assert_int_equal(open_medium(&medium, &options, &tier),
				 KILN_E_INVALID);
		kiln_pack_writer_options_init(&writing);
		writing.flags = KILN_PACK_REPLACE;
		writing.signing_keys = &rows[i];
		writing.n_signing_keys = 1;
		assert_int_equal(kiln_pack_create(path, &writing, &writer),
				 KILN_E_INVALID);
		writing.n_signing_keys = KILN_PACK_SIGNATURES_MAX + 1;
		assert_int_equal(kiln_pack_create(path, &writing, &writer),
				 KILN_E_INVALID);
	}
	medium_fini(&medium);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* ---- Packs that were tampered with ------------------------------------------------- */

static void check_root(uint8_t *root)
{
	ki_put_u64(root + KI_PACK_ROOT_BYTES - 8,
		   ki_xxh3_64(root, KI_PACK_ROOT_BYTES - 8));
}

/* Both roots as the first one is. */
static void seal_roots(struct medium *medium)
{
	check_root(medium->bytes);
	memcpy(medium->bytes + medium->size - KI_PACK_ROOT_BYTES, medium->bytes,
	       KI_PACK_ROOT_BYTES);
}

static void no_byte_of_a_signed_root_may_change(void **state)
{
	char *directory = harness_directory();
	char *path = write_signed(directory, 1 << ALICE);
	size_t end = KI_PACK_SIGNED_BYTES + 8 + KI_SIGNATURE_BYTES;
	struct medium medium;

	medium_init(&medium, path);
	for (size_t i = 0; i < end; i++) {
		enum kiln_status status;

		/* Nothing is said about four bytes of zeros. */
		if (i >= KI_PACK_SIGNED_BYTES + 4 &&
		    i < KI_PACK_SIGNED_BYTES + 8)
			continue;
		medium.bytes[i] ^= 0x41;
		seal_roots(&medium);
		status = try_medium(&medium, 1 << ALICE, 0, 0);
		assert_true(status == KILN_E_OWNER || status == KILN_E_FORMAT);
		medium.bytes[i] ^= 0x41;
		seal_roots(&medium);
	}
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_OK);
	medium_fini(&medium);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* A value is another one, and everything above it fits: only the signature does
   not. */
static void what_was_put_in_afterwards_is_not_signed(void **state)
{
	char *directory = harness_directory();
	char *path = write_signed(directory, 1 << ALICE);
	uint8_t *envelope, *page, *table;
	struct ki_pack_entry entry;
	struct ki_pack_root root;
	struct medium medium;
	size_t size;

	medium_init(&medium, path);
	assert_int_equal(ki_pack_root_read(medium.bytes, &root), KILN_OK);
	page = medium.bytes + root.index_offset[0];
	table = page + root.n_pages * KI_PACK_PAGE_BYTES;
	ki_pack_page_entry(page, 0, &entry);
	envelope = medium.bytes + entry.offset;
	size = (size_t)entry.size;
	envelope[size - 1] ^= 1;
	ki_put_u64(envelope + 40,
		   ki_xxh3_64(envelope + KI_ENVELOPE_HEADER_BYTES,
			      size - KI_ENVELOPE_HEADER_BYTES));
	ki_put_u64(envelope + 56, ki_xxh3_64(envelope, 56));
	ki_blake2b(envelope, size, page + 16 + 32);
	ki_pack_table_write(page, table);
	ki_blake2b(table, (size_t)root.n_pages * KI_PACK_TABLE_BYTES,
		   medium.bytes + 96);
	memcpy(medium.bytes + root.index_offset[1], page,
	       (size_t)ki_pack_index_bytes(root.n_pages));
	seal_roots(&medium);
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_E_OWNER);
	medium_fini(&medium);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void a_signature_of_something_else_is_none(void **state)
{
	char *directory = harness_directory();
	char *path = write_signed(directory, 1 << ALICE);
	uint8_t digest[KI_BLAKE2B_BYTES];
	struct medium old, medium;
	uint8_t *signature;

	medium_init(&old, path);
	free(path);
	path = harness_path(directory, "other.pack");
	write_pack_as(path, N, NULL);
	medium_init(&medium, path);
	/* Of another pack of the same entries, made at another time. */
	ki_put_u64(medium.bytes + 64, ki_get_u64(old.bytes + 64) + 1);
	ki_put_u32(medium.bytes + KI_PACK_SIGNED_BYTES, 1);
	signature = medium.bytes + KI_PACK_SIGNED_BYTES + 8;
	memcpy(signature, old.bytes + KI_PACK_SIGNED_BYTES + 8,
	       KI_SIGNATURE_BYTES);
	seal_roots(&medium);
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_E_OWNER);
	/* Of the same bytes, as an entry's. */
	ki_pack_root_digest(medium.bytes, digest);
	ki_sign(&signers[ALICE], KI_SIGN_ENTRY, digest, signature);
	seal_roots(&medium);
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_E_OWNER);
	/* The other's, with this one's number. */
	ki_sign(&signers[BOB], KI_SIGN_PACK, digest, signature);
	memcpy(signature, signers[ALICE].public.id, KI_SIGN_ID_BYTES);
	seal_roots(&medium);
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_E_OWNER);
	ki_sign(&signers[ALICE], KI_SIGN_PACK, digest, signature);
	seal_roots(&medium);
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_OK);
	medium_fini(&medium);
	medium_fini(&old);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* One root is somebody's who wants nobody to open it, the other the signer's. */
static void a_root_that_is_not_signed_is_passed_by(void **state)
{
	char *directory = harness_directory();
	char *path = write_signed(directory, 1 << ALICE);
	struct medium medium;
	uint8_t *last;

	medium_init(&medium, path);
	last = medium.bytes + medium.size - KI_PACK_ROOT_BYTES;
	ki_put_u32(last + KI_PACK_SIGNED_BYTES, 0);
	check_root(last);
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_OK);
	memcpy(last, medium.bytes, KI_PACK_ROOT_BYTES);
	ki_put_u32(medium.bytes + KI_PACK_SIGNED_BYTES, 0);
	check_root(medium.bytes);
	assert_int_equal(try_medium(&medium, 1 << ALICE, 0, 0), KILN_OK);
	medium_fini(&medium);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void damage_of_a_signed_pack_costs_what_it_hits(void **state)
{
	char *directory = harness_directory();
	char *path = write_signed(directory, 1 << ALICE);
	struct medium medium;

	medium_init(&medium, path);
	for (size_t i = 0; i < medium.size; i += 61) {
		const char *key = publics[ALICE];
		struct kiln_pack_options options;
		struct kiln_tier *tier = NULL;

		kiln_pack_options_init(&options);
		options.trusted_keys = &key;
		options.n_trusted_keys = 1;
		medium.bytes[i] ^= 0x10;
		assert_int_equal(open_medium(&medium, &options, &tier),
				 KILN_OK);
		assert_true(count_hits(tier, N) >= N - 1);
		tier->ops->close(tier);
		medium.bytes[i] ^= 0x10;
	}
	medium_fini(&medium);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void nothing_is_salvaged_where_signatures_are_asked_for(void **state)
{
	char *directory = harness_directory();
	char *path = write_signed(directory, 1 << ALICE);
	struct medium medium;
	uint32_t flags = KILN_PACK_SALVAGE;
	size_t whole;

	medium_init(&medium, path);
	whole = medium.size;
	medium.size = whole / 2;
	assert_int_equal(try_medium(&medium, 1 << ALICE, flags, 0),
			 KILN_E_OWNER);
	assert_int_equal(try_medium(&medium, 0, flags, KILN_PACK_REMOTE),
			 KILN_E_OWNER);
	medium_fini(&medium);
	harness_remove(directory);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pack_is_opened_for_who_trusts_a_signer),
		cmocka_unit_test(what_is_no_key_is_refused),
		cmocka_unit_test(no_byte_of_a_signed_root_may_change),
		cmocka_unit_test(what_was_put_in_afterwards_is_not_signed),
		cmocka_unit_test(a_signature_of_something_else_is_none),
		cmocka_unit_test(a_root_that_is_not_signed_is_passed_by),
		cmocka_unit_test(damage_of_a_signed_pack_costs_what_it_hits),
		cmocka_unit_test(
			nothing_is_salvaged_where_signatures_are_asked_for),
	};

	return cmocka_run_group_tests_name("pack_trust", tests, make_keys,
					   NULL);
}
