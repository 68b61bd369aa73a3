/* SPDX-License-Identifier: MIT */

#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "key/key.h"
#include "tier/envelope.h"

static struct kiln_key *new_key(void)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "source", "kernel void k() {}");
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

static void seal(const struct kiln_key *key, const char *metadata,
		 const char *value, struct ki_bytes *bytes)
{
	struct ki_envelope envelope = { .metadata = metadata,
					.metadata_size = strlen(metadata),
					.value = value,
					.value_size = strlen(value) };
	uint8_t header[KI_ENVELOPE_HEADER_BYTES];
	struct ki_piece pieces[KI_ENVELOPE_PIECES];

	memcpy(envelope.digest, key->digest, KILN_DIGEST_BYTES);
	envelope.record = kiln_key_record(key, &envelope.record_size);
	ki_envelope_seal(&envelope, header, pieces);
	ki_bytes_init(bytes);
	for (int i = 0; i < KI_ENVELOPE_PIECES; i++)
		ki_bytes_add(bytes, pieces[i].data, pieces[i].size);
	assert_int_equal(bytes->size, ki_envelope_size(&envelope));
}

static void what_is_sealed_opens(void **state)
{
	static const char *const rows[][2] = {
		{ "", "" },
		{ "m", "v" },
		{ "eight by", "long value" },
	};
	struct kiln_key *key = new_key();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_envelope envelope;
		struct ki_bytes bytes;

		seal(key, rows[i][0], rows[i][1], &bytes);
		assert_int_equal(
			ki_envelope_open(bytes.data, bytes.size, &envelope),
			KILN_OK);
		assert_int_equal(envelope.record_size, key->record.size);
		assert_memory_equal(envelope.record, key->record.data,
				    key->record.size);
		assert_int_equal(envelope.metadata_size, strlen(rows[i][0]));
		assert_memory_equal(envelope.metadata, rows[i][0],
				    envelope.metadata_size);
		assert_int_equal(envelope.value_size, strlen(rows[i][1]));
		assert_memory_equal(envelope.value, rows[i][1],
				    envelope.value_size);
		assert_int_equal((uintptr_t)envelope.value % 8, 0);
		ki_bytes_fini(&bytes);
	}
	kiln_key_free(key);
}

/* S13 */
static void no_flipped_bit_and_no_cut_passes(void **state)
{
	struct kiln_key *key = new_key();
	struct ki_envelope envelope;
	struct ki_bytes bytes;

	seal(key, "meta", "value", &bytes);
	for (size_t i = 0; i < bytes.size; i++) {
		for (int bit = 0; bit < 8; bit++) {
			bytes.data[i] ^= (uint8_t)(1 << bit);
			assert_int_not_equal(ki_envelope_open(bytes.data,
							      bytes.size,
							      &envelope),
					     KILN_OK);
			bytes.data[i] ^= (uint8_t)(1 << bit);
		}
		assert_int_equal(ki_envelope_open(bytes.data, i, &envelope),
				 KILN_E_FORMAT);
	}
	ki_bytes_add_u8(&bytes, 0);
	assert_int_equal(ki_envelope_open(bytes.data, bytes.size, &envelope),
			 KILN_E_FORMAT);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

/* S17 */
static void a_header_says_how_long_the_whole_is(void **state)
{
	struct kiln_key *key = new_key();
	struct ki_envelope envelope;
	struct ki_bytes bytes;
	uint64_t size = 0;

	seal(key, "meta", "a value", &bytes);
	assert_int_equal(ki_envelope_measure(bytes.data, &envelope, &size),
			 KILN_OK);
	assert_int_equal(size, bytes.size);
	assert_int_equal(envelope.value_size, strlen("a value"));
	bytes.data[33] ^= 1;
	assert_int_equal(ki_envelope_measure(bytes.data, &envelope, &size),
			 KILN_E_FORMAT);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

static void a_newer_version_is_told_from_damage(void **state)
{
	struct kiln_key *key = new_key();
	struct ki_envelope envelope;
	struct ki_bytes bytes;

	seal(key, "", "value", &bytes);
	ki_put_u16(bytes.data + 4, KI_ENVELOPE_VERSION + 1);
	assert_int_equal(ki_envelope_open(bytes.data, bytes.size, &envelope),
			 KILN_E_FORMAT);
	ki_put_u64(bytes.data + 56, ki_xxh3_64(bytes.data, 56));
	assert_int_equal(ki_envelope_open(bytes.data, bytes.size, &envelope),
			 KILN_E_UNSUPPORTED);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_sealed_opens),
		cmocka_unit_test(no_flipped_bit_and_no_cut_passes),
		cmocka_unit_test(a_header_says_how_long_the_whole_is),
		cmocka_unit_test(a_newer_version_is_told_from_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
