/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <string.h>

#include "harness/harness.h"

#include "sign/sign.h"

#define CONTEXT KI_SIGN_PACK

static struct ki_sign_secret secret_of(const char *name, uint8_t seed_byte)
{
	uint8_t seed[KI_SIGN_SEED_BYTES];
	struct ki_sign_secret secret;

	memset(seed, seed_byte, sizeof(seed));
	assert_int_equal(ki_sign_secret_new(name, seed, &secret), KILN_OK);
	return secret;
}

static void digest_of(uint8_t byte, uint8_t out[KI_SIGN_DIGEST_BYTES])
{
	memset(out, byte, KI_SIGN_DIGEST_BYTES);
}

static void trust_in(struct ki_sign_trust *trust,
		     const struct ki_sign_secret *secret)
{
	assert_int_equal(ki_sign_trust_add(trust, &secret->public), KILN_OK);
}

/* The first example of RFC 8032 gives the public key of this secret. */
static void a_pair_is_what_others_compute_too(void **state)
{
	static const uint8_t seed[] = {
		0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60,
		0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4,
		0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19,
		0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
	};
	static const uint8_t expected[] = {
		0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7,
		0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
		0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25,
		0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
	};
	struct ki_sign_secret secret;

	assert_int_equal(ki_sign_secret_new("rfc", seed, &secret), KILN_OK);
	assert_memory_equal(secret.public.bytes, expected, sizeof(expected));
}

static void a_signature_holds_for_its_digest_and_context_alone(void **state)
{
	struct ki_sign_secret secret = secret_of("ci", 1);
	struct ki_sign_trust trust = { 0 };
	uint8_t digest[KI_SIGN_DIGEST_BYTES], other[KI_SIGN_DIGEST_BYTES];
	uint8_t signature[KI_SIGNATURE_BYTES];
	const struct ki_sign_public *key;

	trust_in(&trust, &secret);
	digest_of(7, digest);
	digest_of(8, other);
	ki_sign(&secret, CONTEXT, digest, signature);
	key = ki_sign_verify(&trust, CONTEXT, digest, signature);
	assert_non_null(key);
	assert_string_equal(key->name, "ci");
	assert_null(ki_sign_verify(&trust, CONTEXT, other, signature));
	assert_null(ki_sign_verify(&trust, KI_SIGN_ENTRY, digest, signature));
	assert_null(ki_sign_verify(&trust, "", digest, signature));
	ki_sign_trust_fini(&trust);
}

static void any_flipped_bit_of_a_signature_is_noticed(void **state)
{
	struct ki_sign_secret secret = secret_of("ci", 1);
	struct ki_sign_trust trust = { 0 };
	uint8_t digest[KI_SIGN_DIGEST_BYTES];
	uint8_t signature[KI_SIGNATURE_BYTES];

	trust_in(&trust, &secret);
	digest_of(7, digest);
	ki_sign(&secret, CONTEXT, digest, signature);
	for (size_t i = 0; i < 8 * sizeof(signature); i++) {
		signature[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_null(ki_sign_verify(&trust, CONTEXT, digest, signature));
		signature[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	assert_non_null(ki_sign_verify(&trust, CONTEXT, digest, signature));
	ki_sign_trust_fini(&trust);
}

static void a_key_that_is_not_trusted_vouches_for_nothing(void **state)
{
	struct ki_sign_secret ours = secret_of("ci", 1);
	struct ki_sign_secret theirs = secret_of("ci", 2);
	struct ki_sign_trust trust = { 0 };
	uint8_t digest[KI_SIGN_DIGEST_BYTES];
	uint8_t signature[KI_SIGNATURE_BYTES];

	digest_of(7, digest);
	ki_sign(&theirs, CONTEXT, digest, signature);
	assert_null(ki_sign_verify(&trust, CONTEXT, digest, signature));
	trust_in(&trust, &ours);
	assert_null(ki_sign_verify(&trust, CONTEXT, digest, signature));
	/* Nor under the id of one that is. */
	memcpy(signature, ours.public.id, KI_SIGN_ID_BYTES);
	assert_null(ki_sign_verify(&trust, CONTEXT, digest, signature));
	ki_sign_trust_fini(&trust);
}

static void the_old_and_the_new_key_of_a_name_both_count(void **state)
{
	struct ki_sign_secret old = secret_of("ci", 1);
	struct ki_sign_secret new = secret_of("ci", 2);
	struct ki_sign_trust trust = { 0 };
	uint8_t digest[KI_SIGN_DIGEST_BYTES];
	uint8_t signature[KI_SIGNATURE_BYTES];

	trust_in(&trust, &old);
	trust_in(&trust, &new);
	trust_in(&trust, &old);
	assert_int_equal(trust.n_keys, 2);
	digest_of(7, digest);
	ki_sign(&old, CONTEXT, digest, signature);
	assert_ptr_equal(ki_sign_verify(&trust, CONTEXT, digest, signature),
			 &trust.keys[0]);
	ki_sign(&new, CONTEXT, digest, signature);
	assert_ptr_equal(ki_sign_verify(&trust, CONTEXT, digest, signature),
			 &trust.keys[1]);
	ki_sign_trust_fini(&trust);
}

static void keys_survive_their_texts(void **state)
{
	struct ki_sign_secret secret = secret_of("build.farm-1_x", 9), again;
	struct ki_sign_public public;
	char text[KI_SIGN_TEXT_BYTES], padded[2 * KI_SIGN_TEXT_BYTES];

	ki_sign_public_print(&secret.public, text);
	assert_false(ki_sign_text_is_secret(text));
	snprintf(padded, sizeof(padded), " \t%s \r\n", text);
	assert_int_equal(ki_sign_public_parse(padded, &public), KILN_OK);
	assert_memory_equal(&public, &secret.public, sizeof(public));

	ki_sign_secret_print(&secret, text);
	assert_true(ki_sign_text_is_secret(text));
	assert_int_equal(ki_sign_public_parse(text, &public), KILN_E_INVALID);
	assert_int_equal(ki_sign_secret_parse(text, &again), KILN_OK);
	assert_memory_equal(&again, &secret, sizeof(again));
}

static void the_longest_name_fits(void **state)
{
	char name[KI_SIGN_NAME_BYTES_MAX + 2], text[KI_SIGN_TEXT_BYTES];
	const uint8_t seed[KI_SIGN_SEED_BYTES] = { 1 };
	struct ki_sign_secret secret, again;

	memset(name, 'n', sizeof(name));
	name[KI_SIGN_NAME_BYTES_MAX + 1] = '\0';
	assert_int_equal(ki_sign_secret_new(name, seed, &secret),
			 KILN_E_INVALID);
	name[KI_SIGN_NAME_BYTES_MAX] = '\0';
	assert_int_equal(ki_sign_secret_new(name, seed, &secret), KILN_OK);
	ki_sign_secret_print(&secret, text);
	assert_int_equal(ki_sign_secret_parse(text, &again), KILN_OK);
	assert_string_equal(again.public.name, name);
}

#define GOOD "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="

static void what_is_no_key_is_refused(void **state)
{
	static const char *const rows[] = {
		"",
		":",
		"ci",
		"ci:",
		":" GOOD,
		".ci:" GOOD,
		"../ci:" GOOD,
		"c i:" GOOD,
		"ci: " GOOD,
		"ci:" GOOD "=",
		"ci:" GOOD " x",
		"ci:x" GOOD,
		"ci:" GOOD "\nci:" GOOD,
		"c\xc3\xa4:" GOOD,
		"ci:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHUR==",
		"ci:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo",
		"ci:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
		/* Points that make forging easy: all zeros, and one. */
		"ci:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"ci:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
	};
	char text[2 * KI_SIGN_TEXT_BYTES];
	struct ki_sign_public public, before;
	struct ki_sign_secret secret;

	assert_int_equal(ki_sign_public_parse("ci:" GOOD, &public), KILN_OK);
	before = public;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(ki_sign_public_parse(rows[i], &public),
				 KILN_E_INVALID);
		assert_memory_equal(&public, &before, sizeof(public));
		assert_int_equal(ki_sign_secret_parse(rows[i], &secret),
				 KILN_E_INVALID);
		/* Every seed is one, so of the last two the length alone. */
		snprintf(text, sizeof(text), "kiln-secret:%s", rows[i]);
		if (i + 2 < sizeof(rows) / sizeof(rows[0]))
			assert_int_equal(ki_sign_secret_parse(text, &secret),
					 KILN_E_INVALID);
	}
}

static void a_text_of_many_keys_is_read_line_by_line(void **state)
{
	struct ki_sign_secret a = secret_of("a", 1), b = secret_of("b", 2);
	char first[KI_SIGN_TEXT_BYTES], second[KI_SIGN_TEXT_BYTES];
	char text[4 * KI_SIGN_TEXT_BYTES], long_line[1024];
	struct ki_sign_trust trust = { 0 };

	ki_sign_public_print(&a.public, first);
	ki_sign_public_print(&b.public, second);
	snprintf(text, sizeof(text), "# ours\n\n  %s\r\n \t\n%s", first,
		 second);
	assert_int_equal(ki_sign_trust_add_text(&trust, text), KILN_OK);
	assert_int_equal(trust.n_keys, 2);
	assert_non_null(ki_sign_trust_find(&trust, a.public.id));
	assert_non_null(ki_sign_trust_find(&trust, b.public.id));
	ki_sign_trust_fini(&trust);

	snprintf(text, sizeof(text), "%s\nno key\n%s", first, second);
	assert_int_equal(ki_sign_trust_add_text(&trust, text), KILN_E_INVALID);
	assert_int_equal(trust.n_keys, 1);
	memset(long_line, 'x', sizeof(long_line));
	long_line[sizeof(long_line) - 1] = '\0';
	assert_int_equal(ki_sign_trust_add_text(&trust, long_line),
			 KILN_E_INVALID);
	ki_sign_trust_fini(&trust);
}

static void a_trust_holds_so_many_keys(void **state)
{
	struct ki_sign_trust trust = { 0 };
	struct ki_sign_public key = { .name = "k" };

	for (int i = 0; i < KI_SIGN_TRUST_MAX; i++) {
		key.id[0] = (uint8_t)i;
		key.id[1] = (uint8_t)(i >> 8);
		assert_int_equal(ki_sign_trust_add(&trust, &key), KILN_OK);
	}
	key.id[2] = 1;
	assert_int_equal(ki_sign_trust_add(&trust, &key), KILN_E_FULL);
	ki_sign_trust_fini(&trust);
}

static void a_secret_that_ends_leaves_nothing(void **state)
{
	static const struct ki_sign_secret nothing;
	struct ki_sign_secret secret = secret_of("ci", 1);

	ki_sign_secret_fini(&secret);
	assert_memory_equal(&secret, &nothing, sizeof(secret));
	ki_sign_secret_fini(&secret);
	ki_sign_wipe(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pair_is_what_others_compute_too),
		cmocka_unit_test(
			a_signature_holds_for_its_digest_and_context_alone),
		cmocka_unit_test(any_flipped_bit_of_a_signature_is_noticed),
		cmocka_unit_test(a_key_that_is_not_trusted_vouches_for_nothing),
		cmocka_unit_test(the_old_and_the_new_key_of_a_name_both_count),
		cmocka_unit_test(keys_survive_their_texts),
		cmocka_unit_test(the_longest_name_fits),
		cmocka_unit_test(what_is_no_key_is_refused),
		cmocka_unit_test(a_text_of_many_keys_is_read_line_by_line),
		cmocka_unit_test(a_trust_holds_so_many_keys),
		cmocka_unit_test(a_secret_that_ends_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
