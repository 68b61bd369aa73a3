/* SPDX-License-Identifier: MIT */

#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include <zstd.h>

#include "base/hash.h"
#include "key/key.h"
#include "remote/protocol.h"

#define N_SIGNERS 2
#define ALICE	  0
#define BOB	  1

/* Where things are in a header, for those who forge one. */
#define AT_FLAGS	6
#define AT_NAME		8
#define AT_VERSION	40
#define AT_VALUE_SIZE	56
#define AT_STORED_SIZE	64
#define AT_CHECK	72
#define AT_SIGNATURE	88
#define AT_HEADER_CHECK 184

static struct ki_sign_secret signers[N_SIGNERS];
static uint8_t text[5000];

static int make_signers(void **state)
{
	static const char *const names[] = { "alice", "bob" };

	for (unsigned i = 0; i < N_SIGNERS; i++) {
		uint8_t seed[KI_SIGN_SEED_BYTES];

		memset(seed, (int)(i + 1), sizeof(seed));
		assert_int_equal(
			ki_sign_secret_new(names[i], seed, &signers[i]),
			KILN_OK);
	}
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)("abcdefgh"[i % 8] + i / 64 % 8);
	return 0;
}

static struct ki_sign_trust trust_in(unsigned signer)
{
	struct ki_sign_trust trust = { 0 };

	assert_int_equal(ki_sign_trust_add(&trust, &signers[signer].public),
			 KILN_OK);
	return trust;
}

static struct kiln_key *key_of(unsigned number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "number", &number, sizeof(number));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

static struct kiln_metadata *metadata_of_a_build(void)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 1234);
	kiln_metadata_add_string(metadata, KILN_META_DIRECTORY, "/home/alice");
	kiln_metadata_add_string(metadata, KILN_META_FRONT, "opencl");
	return metadata;
}

/* Seal the first `size` bytes of the text. */
static struct ki_bytes sealed(const struct kiln_key *key, uint64_t version,
			      size_t size, const struct ki_item_seal *how)
{
	struct kiln_metadata *metadata = metadata_of_a_build();
	struct ki_item item = { .user_version = version,
				.value = text,
				.value_size = size };
	struct ki_bytes bytes;

	ki_bytes_init(&bytes);
	item.record = kiln_key_record(key, &item.record_size);
	assert_int_equal(kiln_metadata_bytes(metadata, &item.metadata,
					     &item.metadata_size),
			 KILN_OK);
	assert_int_equal(ki_item_seal(&item, how, &bytes), KILN_OK);
	kiln_metadata_free(metadata);
	return bytes;
}

static void name_of(const struct kiln_key *key, uint64_t version,
		    uint8_t out[KI_REMOTE_NAME_BYTES])
{
	size_t size;
	const void *record = kiln_key_record(key, &size);
	uint8_t digest[32];

	ki_blake2b(record, size, digest);
	ki_remote_name(digest, version, out);
}

/* Open, and drop what comes out. */
static enum kiln_status opened(const struct kiln_key *key, uint64_t version,
			       const struct ki_sign_trust *trust,
			       const void *data, size_t size)
{
	struct kiln_blob *value, *metadata;
	enum kiln_status status = ki_item_open(key, version, trust, data, size,
					       &value, &metadata);

	if (!status) {
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
	}
	return status;
}

/* The same of exactly so many bytes: whoever reads past them is caught. */
static enum kiln_status opened_alone(const struct kiln_key *key,
				     const struct ki_sign_trust *trust,
				     const struct ki_bytes *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	enum kiln_status status;

	assert_non_null(copy);
	memcpy(copy, bytes->data, size);
	status = opened(key, 0, trust, copy, size);
	free(copy);
	return status;
}

static void forge_header_check(struct ki_bytes *bytes)
{
	ki_put_u64(bytes->data + AT_HEADER_CHECK,
		   ki_xxh3_64(bytes->data, AT_HEADER_CHECK));
}

static void forge_checks(struct ki_bytes *bytes)
{
	ki_xxh3_128(bytes->data + KI_ITEM_HEADER_BYTES,
		    bytes->size - KI_ITEM_HEADER_BYTES, bytes->data + AT_CHECK);
	forge_header_check(bytes);
}

/* ---- What is sealed --------------------------------------------------------- */

static void what_is_sealed_is_what_is_opened(void **state)
{
	static const struct {
		size_t size;
		uint64_t version;
		int level;
		int is_signed;
	} rows[] = {
		{ 0, 0, 0, 0 },
		{ 0, 0, 1, 1 },
		{ 1, 0, 0, 1 },
		{ 5000, 0, 0, 0 },
		{ 5000, 0, 0, 1 },
		{ 5000, 7, 1, 0 },
		{ 5000, 7, 1, 1 },
		{ 5000, 0, 19, 1 },
		{ 63, 0, 1, 1 },
		{ 1, 1, 1, 1 },
		{ 4999, UINT64_MAX, 3, 0 },
	};
	struct ki_sign_trust trust = trust_in(ALICE);
	struct kiln_key *key = key_of(1);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ki_item_seal how = {
			.secret = rows[i].is_signed ? &signers[ALICE] : NULL,
			.zstd_level = rows[i].level,
		};
		struct ki_bytes bytes =
			sealed(key, rows[i].version, rows[i].size, &how);
		struct kiln_blob *value, *metadata;
		uint8_t name[KI_REMOTE_NAME_BYTES];
		uint64_t build_ns;

		assert_int_equal(ki_item_open(key, rows[i].version,
					      rows[i].is_signed ? &trust : NULL,
					      bytes.data, bytes.size, &value,
					      &metadata),
				 KILN_OK);
		assert_int_equal(kiln_blob_size(value), rows[i].size);
		assert_memory_equal(kiln_blob_data(value), text, rows[i].size);
		assert_int_equal(
			kiln_metadata_find_u64(kiln_blob_data(metadata),
					       kiln_blob_size(metadata),
					       KILN_META_BUILD_TIME, &build_ns),
			KILN_OK);
		assert_int_equal(build_ns, 1234);
		name_of(key, rows[i].version, name);
		assert_int_equal(ki_item_glance(name, bytes.data, bytes.size),
				 KILN_OK);
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
		ki_bytes_fini(&bytes);
	}
	kiln_key_free(key);
	ki_sign_trust_fini(&trust);
}

/* The value at the end of what it came with, which may be anywhere in the memory,
   or a copy of it. */
static void what_is_mostly_a_value_stays_where_it_came_to(void **state)
{
	static const struct {
		size_t size, offset;
		int level, is_damaged, is_kept;
	} rows[] = {
		{ 5000, 0, 0, 0, 1 }, { 5000, 8, 0, 0, 1 },
		{ 5000, 9, 0, 0, 1 }, { 5000, 15, 0, 0, 1 },
		{ 4096, 8, 0, 0, 1 }, { 4095, 8, 0, 0, 0 },
		{ 0, 8, 0, 0, 0 },    { 5000, 8, 1, 0, 0 },
		{ 5000, 8, 0, 1, 0 },
	};
	struct kiln_key *key = key_of(1);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ki_item_seal how = { .zstd_level = rows[i].level };
		struct ki_bytes bytes = sealed(key, 0, rows[i].size, &how);
		uint8_t *memory = malloc(rows[i].offset + bytes.size);
		struct kiln_blob *value, *metadata, *same;
		enum kiln_status status;

		assert_non_null(memory);
		memcpy(memory + rows[i].offset, bytes.data, bytes.size);
		memory[rows[i].offset + bytes.size - 1] ^=
			(uint8_t)rows[i].is_damaged;
		status = ki_item_take(key, 0, NULL, &memory, rows[i].offset,
				      bytes.size, &value, &metadata);
		assert_int_equal(status,
				 rows[i].is_damaged ? KILN_E_FORMAT : KILN_OK);
		assert_int_equal(!memory, rows[i].is_kept);
		if (!status) {
			assert_int_equal(kiln_blob_size(value), rows[i].size);
			assert_memory_equal(kiln_blob_data(value), text,
					    rows[i].size);
			assert_int_equal((uintptr_t)kiln_blob_data(value) % 8,
					 0);
			assert_int_equal(ki_item_open(key, 0, NULL, bytes.data,
						      bytes.size, &same, NULL),
					 KILN_OK);
			kiln_blob_unref(same);
			assert_int_equal(
				kiln_metadata_find_u64(kiln_blob_data(metadata),
						       kiln_blob_size(metadata),
						       KILN_META_BUILD_TIME,
						       &(uint64_t){ 0 }),
				KILN_OK);
			kiln_blob_unref(value);
			kiln_blob_unref(metadata);
		}
		free(memory);
		ki_bytes_fini(&bytes);
	}
	kiln_key_free(key);
}

/* Else a small value would hold on to a large key. */
static void what_is_mostly_key_is_copied(void **state)
{
	struct kiln_key *key = kiln_key_new();
	struct ki_item_seal how = { 0 };
	struct kiln_blob *value, *metadata;
	struct ki_bytes bytes;
	uint8_t *memory;

	kiln_key_add(key, "source", text, 1000);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	bytes = sealed(key, 0, 5000, &how);
	memory = bytes.data;
	assert_int_equal(ki_item_take(key, 0, NULL, &memory, 0, bytes.size,
				      &value, &metadata),
			 KILN_OK);
	assert_ptr_equal(memory, bytes.data);
	assert_memory_equal(kiln_blob_data(value), text, 5000);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

static void an_item_goes_behind_what_is_there(void **state)
{
	struct kiln_key *key = key_of(1);
	struct ki_item item = { .value = text, .value_size = 100 };
	struct ki_item_seal how = { .zstd_level = 1 };
	struct ki_bytes bytes;

	ki_bytes_init(&bytes);
	ki_bytes_add_string(&bytes, "in front");
	item.record = kiln_key_record(key, &item.record_size);
	assert_int_equal(ki_item_seal(&item, &how, &bytes), KILN_OK);
	assert_memory_equal(bytes.data, "in front", 8);
	assert_int_equal(opened(key, 0, NULL, bytes.data + 8, bytes.size - 8),
			 KILN_OK);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

static void what_is_the_users_or_the_machines_stays_behind(void **state)
{
	struct kiln_key *key = key_of(1);
	struct ki_item_seal how = { 0 };
	struct ki_bytes bytes = sealed(key, 0, 10, &how);
	struct kiln_blob *value, *metadata;
	const void *data;
	size_t size;

	assert_int_equal(ki_item_open(key, 0, NULL, bytes.data, bytes.size,
				      &value, &metadata),
			 KILN_OK);
	assert_int_equal(kiln_metadata_find(kiln_blob_data(metadata),
					    kiln_blob_size(metadata),
					    KILN_META_DIRECTORY, &data, &size),
			 KILN_MISS);
	assert_int_equal(kiln_metadata_find(kiln_blob_data(metadata),
					    kiln_blob_size(metadata),
					    KILN_META_FRONT, &data, &size),
			 KILN_OK);
	assert_null(memmem(bytes.data, bytes.size, "alice", 5));
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

static void what_cannot_be_an_item_is_not_sealed(void **state)
{
	static const struct {
		size_t record, metadata, value;
		enum kiln_status status;
	} rows[] = {
		{ KILN_KEY_BYTES_MAX + 1, 0, 0, KILN_E_TOO_LARGE },
		{ 8, KILN_METADATA_BYTES_MAX + 1, 0, KILN_E_TOO_LARGE },
		{ 8, 0, KI_REMOTE_ITEM_MAX, KILN_E_TOO_LARGE },
		{ 8, 0, SIZE_MAX, KILN_E_TOO_LARGE },
		{ 8, 5, 0, KILN_E_FORMAT },
	};
	struct ki_item_seal how = { 0 };
	struct ki_bytes bytes;

	ki_bytes_init(&bytes);
	ki_bytes_add_u8(&bytes, 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ki_item item = {
			.record = text,
			.metadata = text,
			.value = text,
			.record_size = rows[i].record,
			.metadata_size = rows[i].metadata,
			.value_size = rows[i].value,
		};

		assert_int_equal(ki_item_seal(&item, &how, &bytes),
				 rows[i].status);
		assert_int_equal(bytes.size, 1);
	}
	ki_bytes_fini(&bytes);
}

/* ---- S50: what comes back is something else ----------------------------------- */

static void any_flipped_byte_is_noticed(void **state)
{
	static const uint8_t masks[] = { 0x01, 0x80, 0xff };
	struct ki_sign_trust trust = trust_in(ALICE);
	struct kiln_key *key = key_of(1);

	for (int level = 0; level < 2; level++) {
		struct ki_item_seal how = { .secret = &signers[ALICE],
					    .zstd_level = level };
		struct ki_bytes bytes = sealed(key, 0, 300, &how);

		for (size_t i = 0; i < bytes.size * sizeof(masks); i++) {
			uint8_t *place = &bytes.data[i / sizeof(masks)];
			uint8_t mask = masks[i % sizeof(masks)];

			*place ^= mask;
			assert_int_equal(
				opened(key, 0, &trust, bytes.data, bytes.size),
				KILN_E_FORMAT);
			assert_int_equal(
				opened(key, 0, NULL, bytes.data, bytes.size),
				KILN_E_FORMAT);
			*place ^= mask;
		}
		ki_bytes_fini(&bytes);
	}
	kiln_key_free(key);
	ki_sign_trust_fini(&trust);
}

/* The checksums are for accidents; whoever computes them anew has changed what
   was signed. */
static void forged_checksums_do_not_help(void **state)
{
	struct ki_sign_trust trust = trust_in(ALICE);
	struct ki_item_seal how = { .secret = &signers[ALICE],
				    .zstd_level = 1 };
	struct kiln_key *key = key_of(1);
	struct ki_bytes bytes = sealed(key, 0, 300, &how);

	for (size_t i = 0; i < bytes.size; i++) {
		struct ki_bytes forged;

		if ((i >= AT_CHECK && i < AT_SIGNATURE) ||
		    (i >= AT_HEADER_CHECK && i < KI_ITEM_HEADER_BYTES))
			continue; /* they are computed anew */
		ki_bytes_init(&forged);
		ki_bytes_add(&forged, bytes.data, bytes.size);
		forged.data[i] ^= 0x10;
		forge_checks(&forged);
		assert_true(opened(key, 0, &trust, forged.data, forged.size) <
			    0);
		ki_bytes_fini(&forged);
	}
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
	ki_sign_trust_fini(&trust);
}

static void an_item_cut_anywhere_is_refused(void **state)
{
	struct ki_sign_trust trust = trust_in(ALICE);
	struct ki_item_seal how = { .secret = &signers[ALICE] };
	struct kiln_key *key = key_of(1);
	struct ki_bytes bytes = sealed(key, 0, 300, &how);
	uint8_t name[KI_REMOTE_NAME_BYTES];

	name_of(key, 0, name);
	for (size_t size = 0; size < bytes.size; size++) {
		assert_int_equal(opened_alone(key, &trust, &bytes, size),
				 KILN_E_FORMAT);
		assert_int_equal(opened_alone(key, NULL, &bytes, size),
				 KILN_E_FORMAT);
		assert_int_equal(ki_item_glance(name, bytes.data, size),
				 KILN_E_FORMAT);
	}
	ki_bytes_add_u8(&bytes, 0);
	assert_int_equal(opened(key, 0, &trust, bytes.data, bytes.size),
			 KILN_E_FORMAT);
	assert_int_equal(ki_item_glance(name, bytes.data, bytes.size),
			 KILN_E_FORMAT);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
	ki_sign_trust_fini(&trust);
}

static void an_item_is_its_keys_and_versions_alone(void **state)
{
	struct ki_sign_trust trust = trust_in(ALICE);
	struct ki_item_seal how = { .secret = &signers[ALICE] };
	struct kiln_key *key = key_of(1), *other = key_of(2);
	struct ki_bytes bytes = sealed(key, 5, 300, &how);
	uint8_t name[KI_REMOTE_NAME_BYTES];

	assert_int_equal(opened(other, 5, &trust, bytes.data, bytes.size),
			 KILN_E_COLLISION);
	assert_int_equal(opened(other, 5, NULL, bytes.data, bytes.size),
			 KILN_E_COLLISION);
	assert_int_equal(opened(key, 6, &trust, bytes.data, bytes.size),
			 KILN_MISS);
	assert_int_equal(opened(key, 0, NULL, bytes.data, bytes.size),
			 KILN_MISS);
	name_of(other, 5, name);
	assert_int_equal(ki_item_glance(name, bytes.data, bytes.size),
			 KILN_E_FORMAT);
	name_of(key, 0, name);
	assert_int_equal(ki_item_glance(name, bytes.data, bytes.size),
			 KILN_E_FORMAT);

	/* Under the other's name, and for transport's sake with good sums. */
	name_of(other, 5, bytes.data + AT_NAME);
	forge_checks(&bytes);
	assert_int_equal(opened(other, 5, &trust, bytes.data, bytes.size),
			 KILN_E_OWNER);
	assert_int_equal(opened(other, 5, NULL, bytes.data, bytes.size),
			 KILN_E_COLLISION);
	assert_int_equal(opened(key, 5, NULL, bytes.data, bytes.size),
			 KILN_E_FORMAT);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
	kiln_key_free(other);
	ki_sign_trust_fini(&trust);
}

/* ---- S51: signatures ---------------------------------------------------------- */

static void only_what_is_signed_by_a_trusted_key_is_opened(void **state)
{
	struct ki_sign_trust alice = trust_in(ALICE), bob = trust_in(BOB);
	struct ki_sign_trust both = trust_in(ALICE), nobody = { 0 };
	struct kiln_key *key = key_of(1);
	struct ki_item_seal by_alice = { .secret = &signers[ALICE] };
	struct ki_item_seal by_bob = { .secret = &signers[BOB] };
	struct ki_item_seal by_nobody = { 0 };
	const struct {
		const struct ki_item_seal *how;
		const struct ki_sign_trust *trust;
		enum kiln_status status;
	} rows[] = {
		{ &by_nobody, &alice, KILN_E_OWNER },
		{ &by_nobody, &nobody, KILN_E_OWNER },
		{ &by_nobody, NULL, KILN_OK },
		{ &by_alice, &alice, KILN_OK },
		{ &by_alice, &nobody, KILN_E_OWNER },
		{ &by_alice, NULL, KILN_OK },
		/* Rotated: first both are trusted, then the new one alone. */
		{ &by_alice, &both, KILN_OK },
		{ &by_bob, &both, KILN_OK },
		{ &by_alice, &bob, KILN_E_OWNER },
		{ &by_bob, &alice, KILN_E_OWNER },
	};

	assert_int_equal(ki_sign_trust_add(&both, &signers[BOB].public),
			 KILN_OK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ki_bytes bytes = sealed(key, 0, 300, rows[i].how);

		assert_int_equal(
			opened(key, 0, rows[i].trust, bytes.data, bytes.size),
			rows[i].status);
		ki_bytes_fini(&bytes);
	}
	kiln_key_free(key);
	ki_sign_trust_fini(&alice);
	ki_sign_trust_fini(&bob);
	ki_sign_trust_fini(&both);
}

/* An id that is trusted before the signature of somebody else. */
static void a_signature_under_a_trusted_id_is_verified(void **state)
{
	struct ki_sign_trust trust = trust_in(ALICE);
	struct ki_item_seal how = { .secret = &signers[BOB] };
	struct kiln_key *key = key_of(1);
	struct ki_bytes bytes = sealed(key, 0, 300, &how);

	memcpy(bytes.data + AT_SIGNATURE, signers[ALICE].public.id,
	       KI_SIGN_ID_BYTES);
	forge_header_check(&bytes);
	assert_int_equal(opened(key, 0, &trust, bytes.data, bytes.size),
			 KILN_E_OWNER);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
	ki_sign_trust_fini(&trust);
}

/* A good signature of another item: of the same key under another version. */
static void a_signature_is_not_good_for_another_item(void **state)
{
	struct ki_sign_trust trust = trust_in(ALICE);
	struct ki_item_seal how = { .secret = &signers[ALICE] };
	struct kiln_key *key = key_of(1);
	struct ki_bytes old = sealed(key, 1, 300, &how);

	ki_put_u64(old.data + AT_VERSION, 2);
	name_of(key, 2, old.data + AT_NAME);
	forge_checks(&old);
	assert_int_equal(opened(key, 2, &trust, old.data, old.size),
			 KILN_E_OWNER);
	assert_int_equal(opened(key, 2, NULL, old.data, old.size), KILN_OK);
	ki_bytes_fini(&old);
	kiln_key_free(key);
	ki_sign_trust_fini(&trust);
}

/* ---- Compression -------------------------------------------------------------- */

static void a_frame_is_as_long_as_its_header_says(void **state)
{
	static const struct {
		int64_t value_more, stored_more;
	} rows[] = {
		{ 1, 0 },	{ -1, 0 },
		{ 1 << 20, 0 }, { (1 << 30) - 5000, 0 },
		{ -5000, 0 },	{ 0, -1 },
		{ 0, 1 },
	};
	struct ki_item_seal how = { .zstd_level = 1 };
	struct kiln_key *key = key_of(1);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ki_bytes bytes = sealed(key, 0, 5000, &how);
		uint64_t stored = ki_get_u64(bytes.data + AT_STORED_SIZE);

		assert_int_equal(ki_get_u16(bytes.data + AT_FLAGS), 1);
		if (rows[i].stored_more > 0)
			ki_bytes_add_u8(&bytes, 0);
		bytes.size -= rows[i].stored_more < 0;
		ki_put_u64(bytes.data + AT_VALUE_SIZE,
			   (uint64_t)(5000 + rows[i].value_more));
		ki_put_u64(bytes.data + AT_STORED_SIZE,
			   stored + (uint64_t)rows[i].stored_more);
		forge_checks(&bytes);
		assert_int_equal(opened(key, 0, NULL, bytes.data, bytes.size),
				 KILN_E_FORMAT);
		ki_bytes_fini(&bytes);
	}
	kiln_key_free(key);
}

/* A frame that holds more than it says, as a stream that says nothing, and as two
   frames of which the first says what the item does. */
static void a_frame_that_goes_on_is_refused(void **state)
{
	struct ki_item_seal how = { .zstd_level = 1 };
	struct kiln_key *key = key_of(1);

	for (int is_stream = 0; is_stream < 2; is_stream++) {
		struct ki_bytes bytes = sealed(key, 0, 5000, &how);
		size_t stored = (size_t)ki_get_u64(bytes.data + AT_STORED_SIZE);
		uint8_t frames[8192];
		size_t size;

		if (is_stream) {
			ZSTD_CCtx *context = ZSTD_createCCtx();

			assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(
				context, ZSTD_c_contentSizeFlag, 0)));
			size = ZSTD_compress2(context, frames, sizeof(frames),
					      text, sizeof(text));
			ZSTD_freeCCtx(context);
		} else {
			size = ZSTD_compress(frames, sizeof(frames), text, 5000,
					     1);
			size += ZSTD_compress(frames + size,
					      sizeof(frames) - size, text, 5000,
					      1);
		}
		bytes.size -= stored;
		ki_bytes_add(&bytes, frames, size);
		ki_put_u64(bytes.data + AT_STORED_SIZE, size);
		forge_checks(&bytes);
		assert_int_equal(opened(key, 0, NULL, bytes.data, bytes.size),
				 KILN_E_FORMAT);
		ki_bytes_fini(&bytes);
	}
	kiln_key_free(key);
}

/* A megabyte of zeros would become 40 bytes: what a server sends in a second could
   fill a machine. */
static void what_would_shrink_too_much_is_stored_as_it_is(void **state)
{
	const size_t size = (size_t)1 << 20;
	struct ki_item item = { .value = calloc(1, size), .value_size = size };
	struct ki_item_seal how = { .zstd_level = 1 };
	struct kiln_key *key = key_of(1);
	uint8_t frame[4096];
	struct ki_bytes bytes;
	size_t frame_size;

	assert_non_null(item.value);
	ki_bytes_init(&bytes);
	item.record = kiln_key_record(key, &item.record_size);
	assert_int_equal(ki_item_seal(&item, &how, &bytes), KILN_OK);
	assert_int_equal(ki_get_u64(bytes.data + AT_STORED_SIZE), size);
	assert_int_equal(opened(key, 0, NULL, bytes.data, bytes.size), KILN_OK);

	frame_size = ZSTD_compress(frame, sizeof(frame), item.value, size, 1);
	assert_false(ZSTD_isError(frame_size));
	bytes.size -= size;
	ki_bytes_add(&bytes, frame, frame_size);
	ki_put_u16(bytes.data + AT_FLAGS, 1);
	ki_put_u64(bytes.data + AT_STORED_SIZE, frame_size);
	forge_checks(&bytes);
	assert_int_equal(opened(key, 0, NULL, bytes.data, bytes.size),
			 KILN_E_FORMAT);
	free((void *)item.value);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_sealed_is_what_is_opened),
		cmocka_unit_test(what_is_mostly_a_value_stays_where_it_came_to),
		cmocka_unit_test(what_is_mostly_key_is_copied),
		cmocka_unit_test(an_item_goes_behind_what_is_there),
		cmocka_unit_test(
			what_is_the_users_or_the_machines_stays_behind),
		cmocka_unit_test(what_cannot_be_an_item_is_not_sealed),
		cmocka_unit_test(any_flipped_byte_is_noticed),
		cmocka_unit_test(forged_checksums_do_not_help),
		cmocka_unit_test(an_item_cut_anywhere_is_refused),
		cmocka_unit_test(an_item_is_its_keys_and_versions_alone),
		cmocka_unit_test(
			only_what_is_signed_by_a_trusted_key_is_opened),
		cmocka_unit_test(a_signature_under_a_trusted_id_is_verified),
		cmocka_unit_test(a_signature_is_not_good_for_another_item),
		cmocka_unit_test(a_frame_is_as_long_as_its_header_says),
		cmocka_unit_test(a_frame_that_goes_on_is_refused),
		cmocka_unit_test(what_would_shrink_too_much_is_stored_as_it_is),
	};

	return cmocka_run_group_tests(tests, make_signers, NULL);
}
