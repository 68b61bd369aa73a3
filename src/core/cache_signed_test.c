/* SPDX-License-Identifier: MIT */

/* A store that a group shares, and signatures of its entries. */

#include "harness/harness.h"
#include "harness/shelf.h"

#include <sys/stat.h>
#include <unistd.h>

#include "core/cache_test.h"
#include "sign/files.h"

enum { ANN, BOB, EVE, N_MEMBERS };

static char secrets[N_MEMBERS][KI_SIGN_TEXT_BYTES];
static char publics[N_MEMBERS][KI_SIGN_TEXT_BYTES];

static int make_members(void **state)
{
	static const char *const names[N_MEMBERS] = { "ann", "bob", "eve" };

	for (int i = 0; i < N_MEMBERS; i++) {
		uint8_t seed[KI_SIGN_SEED_BYTES] = { (uint8_t)(i + 1) };
		struct ki_sign_secret secret;

		if (ki_sign_secret_new(names[i], seed, &secret))
			return -1;
		ki_sign_secret_print(&secret, secrets[i]);
		ki_sign_public_print(&secret.public, publics[i]);
	}
	return 0;
}

static char all_lines[8192];

static void take_line(void *arg, enum kiln_log_level level, const char *line)
{
	size_t size = strlen(all_lines);

	snprintf(all_lines + size, sizeof(all_lines) - size, "%s\n", line);
}

#define TRUSTS(member) (1u << (member))

static struct kiln *open_as(const char *url, uint32_t flags, unsigned trusted,
			    const char *signing_key)
{
	struct kiln_options options = defaults();
	const char *keys[N_MEMBERS];
	struct kiln *kiln;

	for (int i = 0; i < N_MEMBERS; i++)
		if (trusted & TRUSTS(i))
			keys[options.n_trusted_keys++] = publics[i];
	options.trusted_keys = keys;
	options.signing_key = signing_key;
	options.store_url = url;
	options.application = ""; /* what is signed is what a test says */
	options.flags = flags;
	options.log = take_line;
	all_lines[0] = '\0';
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		abort();
	return kiln;
}

/* One who asks for no signature, and makes none. */
static struct kiln *open_raw(const char *url)
{
	return open_as(url, KILN_OPEN_SHARED, 0, NULL);
}

static struct kiln *open_member(const char *url, int member)
{
	return open_as(url, KILN_OPEN_SHARED, TRUSTS(ANN) | TRUSTS(BOB),
		       secrets[member]);
}

/* "log:DIRECTORY", of a test's own. */
static char *new_url(const char *kind)
{
	char *directory = harness_directory(), *url;

	if (asprintf(&url, "%s%s/store", kind, directory) < 0)
		abort();
	free(directory);
	return url;
}

/* ---- What counts --------------------------------------------------------------- */

static void what_one_member_signs_another_finds(void **state)
{
	static const char *const kinds[] = { "log:", "file:" };
	static const uint32_t flags[] = { 0, KILN_OPEN_GUEST,
					  KILN_OPEN_NO_MEMORY,
					  KILN_OPEN_READONLY };

	for (size_t i = 0; i < 2; i++) {
		char *url = new_url(kinds[i]);
		struct kiln *ann = open_member(url, ANN);

		assert_int_equal(put(ann, 1, "ann's", 0), KILN_OK);
		assert_got(ann, 1, "ann's");
		for (size_t j = 0; j < 4; j++) {
			struct kiln *bob =
				open_as(url, KILN_OPEN_SHARED | flags[j],
					TRUSTS(ANN), secrets[BOB]);

			assert_got(bob, 1, "ann's");
			assert_got(bob, 1, "ann's");
			assert_got(bob, 2, "KILN_MISS");
			assert_int_equal(counter(bob, KILN_COUNT_MISS_UNSIGNED),
					 0);
			kiln_close(bob);
		}
		kiln_close(ann);
		free(url);
	}
}

static void an_entry_without_signature_is_a_miss_and_replaced(void **state)
{
	struct work work = { .text = "built" };
	char *url = new_url("log:");
	struct kiln *raw = open_raw(url), *ann = open_member(url, ANN), *bob;

	assert_int_equal(put(raw, 1, "anybody's", 0), KILN_OK);
	assert_int_equal(put(raw, 2, "anybody's", 0), KILN_OK);
	assert_outcome(ann, 1, &work, "built from build");
	assert_int_equal(work.n_builds, 1);
	assert_int_equal(counter(ann, KILN_COUNT_MISS_UNSIGNED), 1);
	assert_got(ann, 2, "KILN_MISS");
	assert_int_equal(counter(ann, KILN_COUNT_MISS_UNSIGNED), 2);
	assert_non_null(strstr(all_lines, "without a trusted signature"));
	assert_int_equal(put(ann, 2, "ann's", 0), KILN_OK);
	bob = open_member(url, BOB);
	assert_got(bob, 1, "built");
	assert_got(bob, 2, "ann's");
	/* What is vouched for stays. */
	assert_int_equal(put(bob, 2, "bob's", 0), KILN_EXISTS);
	assert_int_equal(put(bob, 2, "bob's", KILN_PUT_REPLACE), KILN_OK);
	assert_got(bob, 2, "bob's");
	kiln_close(bob);
	kiln_close(ann);
	kiln_close(raw);
	free(url);
}

/* Keys are meant to be trusted and cannot be had: of no entry is it known whose
   it is. */
static void where_signatures_are_required_without_keys_nothing_counts(
	void **state)
{
	char *url = new_url("log:");
	struct kiln *ann = open_member(url, ANN), *raw = open_raw(url), *kiln;

	assert_int_equal(put(ann, 1, "ann's", 0), KILN_OK);
	assert_int_equal(put(raw, 2, "anybody's", 0), KILN_OK);
	kiln = open_as(url, KILN_OPEN_SHARED | KILN_OPEN_SIGNED, 0, NULL);
	assert_got(kiln, 1, "KILN_MISS");
	assert_got(kiln, 2, "KILN_MISS");
	assert_int_equal(counter(kiln, KILN_COUNT_MISS_UNSIGNED), 2);
	assert_int_equal(put(kiln, 3, "unsigned", 0), KILN_E_OWNER);
	kiln_close(kiln);
	kiln_close(raw);
	kiln_close(ann);
	free(url);
}

static void a_key_that_is_not_trusted_signs_in_vain(void **state)
{
	char *url = new_url("log:");
	struct kiln *eve = open_member(url, EVE), *ann = open_member(url, ANN);

	assert_int_equal(put(eve, 1, "eve's", 0), KILN_OK);
	assert_got(eve, 1, "KILN_MISS");
	assert_got(ann, 1, "KILN_MISS");
	kiln_close(eve);
	eve = open_member(url, EVE);
	assert_non_null(strstr(all_lines, "'eve' is not trusted"));
	assert_null(strstr(all_lines, strrchr(secrets[EVE], ':') + 1));
	kiln_close(eve);
	kiln_close(ann);
	free(url);
}

static void an_old_key_counts_as_long_as_it_is_trusted(void **state)
{
	char *url = new_url("log:");
	struct kiln *kiln = open_member(url, ANN);

	assert_int_equal(put(kiln, 1, "old", 0), KILN_OK);
	kiln_close(kiln);
	kiln = open_member(url, BOB);
	assert_got(kiln, 1, "old");
	kiln_close(kiln);
	kiln = open_as(url, KILN_OPEN_SHARED, TRUSTS(BOB), secrets[BOB]);
	assert_got(kiln, 1, "KILN_MISS");
	assert_int_equal(put(kiln, 1, "new", 0), KILN_OK);
	assert_got(kiln, 1, "new");
	kiln_close(kiln);
	free(url);
}

/* ---- Forging ------------------------------------------------------------------- */

struct entry {
	struct kiln_blob *value;
	struct kiln_blob *metadata;
};

static struct entry take_entry(struct kiln *raw, unsigned number)
{
	struct kiln_key *key = key_of(number);
	struct entry entry;

	if (kiln_get_entry(raw, key, &entry.value, &entry.metadata))
		abort();
	kiln_key_free(key);
	return entry;
}

static void entry_fini(struct entry *entry)
{
	kiln_blob_unref(entry->value);
	kiln_blob_unref(entry->metadata);
}

/* Have the store say this of a key, by one who obeys nothing. */
static void forge(struct kiln *raw, unsigned number, const void *value,
		  size_t value_size, const void *bytes, size_t size)
{
	struct kiln_metadata *metadata;
	struct kiln_key *key = key_of(number);

	if (kiln_metadata_from_bytes(bytes, size, &metadata) ||
	    kiln_put(raw, key, value, value_size, metadata, KILN_PUT_REPLACE))
		abort();
	kiln_metadata_free(metadata);
	kiln_key_free(key);
}

/* As `entry`, with one byte of its metadata or value changed. */
static void forge_byte(struct kiln *raw, const struct entry *entry,
		       size_t in_metadata, size_t in_value)
{
	size_t size = kiln_blob_size(entry->metadata);
	size_t value_size = kiln_blob_size(entry->value);
	uint8_t *bytes = malloc(size), *value = malloc(value_size);

	if (!bytes || !value)
		abort();
	memcpy(bytes, kiln_blob_data(entry->metadata), size);
	memcpy(value, kiln_blob_data(entry->value), value_size);
	if (in_metadata < size)
		bytes[in_metadata] ^= 1;
	if (in_value < value_size)
		value[in_value] ^= 1;
	forge(raw, 1, value, value_size, bytes, size);
	free(value);
	free(bytes);
}

#define NOWHERE SIZE_MAX

static struct kiln *open_guest(const char *url)
{
	return open_as(url, KILN_OPEN_SHARED | KILN_OPEN_GUEST, TRUSTS(ANN),
		       NULL);
}

static void any_changed_byte_of_an_entry_is_noticed(void **state)
{
	char *url = new_url("log:");
	struct kiln *ann = open_member(url, ANN), *raw = open_raw(url);
	struct kiln *guest = open_guest(url);
	struct work work = { .text = "value" };
	const void *signature;
	struct entry entry;
	size_t size, at;

	/* With metadata besides the signature: of a build. */
	assert_outcome(ann, 1, &work, "value from build");
	entry = take_entry(raw, 1);
	assert_int_equal(kiln_metadata_find(kiln_blob_data(entry.metadata),
					    kiln_blob_size(entry.metadata),
					    KILN_META_SIGNATURE, &signature,
					    &size),
			 KILN_OK);
	assert_int_equal(size, KI_SIGNATURE_BYTES);
	at = (size_t)((const char *)signature -
		      (const char *)kiln_blob_data(entry.metadata));
	for (size_t i = 0; i < size; i++) {
		forge_byte(raw, &entry, at + i, NOWHERE);
		assert_got(guest, 1, "KILN_MISS");
	}
	for (size_t i = 0; i < sizeof("value"); i++) {
		forge_byte(raw, &entry, NOWHERE, i);
		assert_got(guest, 1, "KILN_MISS");
	}
	/* A byte of the first field's contents: when it was made. */
	assert_true(at > 16);
	forge_byte(raw, &entry, 8, NOWHERE);
	assert_got(guest, 1, "KILN_MISS");
	forge_byte(raw, &entry, NOWHERE, NOWHERE);
	assert_got(guest, 1, "value");
	entry_fini(&entry);
	kiln_close(guest);
	kiln_close(raw);
	kiln_close(ann);
	free(url);
}

static void a_signature_does_not_hold_for_another_key(void **state)
{
	char *url = new_url("log:");
	struct kiln *ann = open_member(url, ANN), *raw = open_raw(url);
	struct kiln *guest = open_guest(url);
	struct entry entry;

	assert_int_equal(put(ann, 1, "value", 0), KILN_OK);
	entry = take_entry(raw, 1);
	for (unsigned number = 1; number <= 2; number++) {
		forge(raw, number, kiln_blob_data(entry.value),
		      kiln_blob_size(entry.value),
		      kiln_blob_data(entry.metadata),
		      kiln_blob_size(entry.metadata));
		assert_got(guest, number, number == 1 ? "value" : "KILN_MISS");
	}
	entry_fini(&entry);
	kiln_close(guest);
	kiln_close(raw);
	kiln_close(ann);
	free(url);
}

static void odd_signatures_are_none(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 71, 73, 144 };
	char *url = new_url("log:");
	struct kiln *ann = open_member(url, ANN), *raw = open_raw(url);
	struct kiln *guest = open_guest(url);
	uint8_t bytes[8 + 144] = { KILN_META_SIGNATURE };
	const void *signature;
	struct entry entry;
	size_t size;

	assert_int_equal(put(ann, 1, "value", 0), KILN_OK);
	entry = take_entry(raw, 1);
	size = kiln_blob_size(entry.metadata);
	assert_int_equal(kiln_metadata_find(kiln_blob_data(entry.metadata),
					    size, KILN_META_SIGNATURE,
					    &signature, &size),
			 KILN_OK);
	memcpy(bytes + 8, signature, KI_SIGNATURE_BYTES);
	memcpy(bytes + 8 + KI_SIGNATURE_BYTES, signature, KI_SIGNATURE_BYTES);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ki_put_u32(bytes + 4, (uint32_t)sizes[i]);
		forge(raw, 1, "value", sizeof("value"), bytes, 8 + sizes[i]);
		assert_got(guest, 1, "KILN_MISS");
	}
	/* Another field behind it is metadata that was not signed. */
	ki_put_u32(bytes + 4, KI_SIGNATURE_BYTES);
	memset(bytes + 8 + KI_SIGNATURE_BYTES, 0, 8);
	bytes[8 + KI_SIGNATURE_BYTES] = KILN_META_SIGNATURE;
	forge(raw, 1, "value", sizeof("value"), bytes,
	      8 + KI_SIGNATURE_BYTES + 8);
	assert_got(guest, 1, "KILN_MISS");
	forge(raw, 1, "value", sizeof("value"), bytes, 8 + KI_SIGNATURE_BYTES);
	assert_got(guest, 1, "value");
	entry_fini(&entry);
	kiln_close(guest);
	kiln_close(raw);
	kiln_close(ann);
	free(url);
}

/* ---- Who cannot sign ----------------------------------------------------------- */

static void a_secret_that_others_can_read_signs_nothing(void **state)
{
	char *url = new_url("log:"), *directory = harness_directory();
	char *path = harness_path(directory, "ann.secret");
	const char *secret = strrchr(secrets[ANN], ':') + 1;
	struct kiln *ann;

	harness_write(path, secrets[ANN], strlen(secrets[ANN]));
	assert_int_equal(chmod(path, 0644), 0);
	ann = open_as(url, KILN_OPEN_SHARED, TRUSTS(ANN), path);
	assert_non_null(strstr(all_lines, "can be read by others"));
	assert_int_equal(put(ann, 1, "value", 0), KILN_E_OWNER);
	assert_int_equal(counter(ann, KILN_COUNT_PUTS_DROPPED), 1);
	/* Put right, it is used at once. */
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(put(ann, 2, "value", 0), KILN_OK);
	kiln_close(ann);
	assert_null(strstr(all_lines, secret));
	ann = open_as(url, KILN_OPEN_SHARED, TRUSTS(ANN), NULL);
	assert_non_null(strstr(all_lines, "nothing is stored"));
	assert_got(ann, 1, "KILN_MISS");
	assert_got(ann, 2, "value");
	assert_int_equal(put(ann, 3, "value", 0), KILN_E_OWNER);
	kiln_close(ann);
	free(path);
	free(directory);
	free(url);
}

static void who_trusts_nobody_signs_for_those_who_do(void **state)
{
	char *url = new_url("log:");
	struct kiln *raw = open_raw(url), *ann, *bob;

	assert_int_equal(put(raw, 1, "anybody's", 0), KILN_OK);
	ann = open_as(url, KILN_OPEN_SHARED, 0, secrets[ANN]);
	assert_got(ann, 1, "anybody's");
	assert_int_equal(put(ann, 1, "ann's", 0), KILN_EXISTS);
	assert_int_equal(put(ann, 2, "ann's", 0), KILN_OK);
	bob = open_member(url, BOB);
	assert_got(bob, 1, "KILN_MISS");
	assert_got(bob, 2, "ann's");
	kiln_close(bob);
	kiln_close(ann);
	kiln_close(raw);
	free(url);
}

static void a_store_of_ones_own_is_not_signed(void **state)
{
	char *url = new_url("log:");
	struct kiln *own = open_as(url, 0, TRUSTS(ANN), secrets[ANN]);
	const void *signature;
	struct entry entry;
	size_t size;

	assert_int_equal(put(own, 1, "value", 0), KILN_OK);
	entry = take_entry(own, 1);
	assert_int_equal(kiln_metadata_find(kiln_blob_data(entry.metadata),
					    kiln_blob_size(entry.metadata),
					    KILN_META_SIGNATURE, &signature,
					    &size),
			 KILN_MISS);
	assert_false(own->flags & KI_KILN_SIGNED);
	entry_fini(&entry);
	kiln_close(own);
	free(url);
}

static void who_only_looks_is_shown_all(void **state)
{
	char *url = new_url("log:");
	struct kiln *raw = open_raw(url), *looker;

	assert_int_equal(put(raw, 1, "anybody's", 0), KILN_OK);
	looker = open_as(url,
			 KILN_OPEN_SHARED | KILN_OPEN_READONLY |
				 KILN_OPEN_ANY_OWNER,
			 TRUSTS(ANN), NULL);
	assert_got(looker, 1, "anybody's");
	kiln_close(looker);
	kiln_close(raw);
	free(url);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_member_signs_another_finds),
		cmocka_unit_test(
			an_entry_without_signature_is_a_miss_and_replaced),
		cmocka_unit_test(
			where_signatures_are_required_without_keys_nothing_counts),
		cmocka_unit_test(a_key_that_is_not_trusted_signs_in_vain),
		cmocka_unit_test(an_old_key_counts_as_long_as_it_is_trusted),
		cmocka_unit_test(any_changed_byte_of_an_entry_is_noticed),
		cmocka_unit_test(a_signature_does_not_hold_for_another_key),
		cmocka_unit_test(odd_signatures_are_none),
		cmocka_unit_test(a_secret_that_others_can_read_signs_nothing),
		cmocka_unit_test(who_trusts_nobody_signs_for_those_who_do),
		cmocka_unit_test(a_store_of_ones_own_is_not_signed),
		cmocka_unit_test(who_only_looks_is_shown_all),
	};

	return cmocka_run_group_tests(tests, make_members, NULL);
}
