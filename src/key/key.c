/* SPDX-License-Identifier: MIT */

/*
 * Labelled fields to canonical bytes to a digest.  A field's frame gives the
 * lengths of label and data before either, so ("ab", "c") and ("a", "bc") are
 * different bytes (S01), and an absent field is another kind than an empty
 * one.
 */

#include "key/key.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"

#define FIELD_HEADER_BYTES 8
#define FIELD_LOCAL	   0x80
#define DIGEST_FIELD_BYTES (8 + KI_BLAKE2B_BYTES)

/* All but what `inside` has room for. */
static void begin(struct kiln_key *key)
{
	memset(key, 0, offsetof(struct kiln_key, inside));
	memset(key->digest, 0,
	       sizeof(*key) - offsetof(struct kiln_key, digest));
	atomic_init(&key->refs, 1);
	key->record.data = key->inside;
	key->record.capacity = sizeof(key->inside);
	key->record.limit = KILN_KEY_BYTES_MAX;
	ki_bytes_add(&key->record, "KK", 2);
	ki_bytes_add_u8(&key->record, KI_KEY_VERSION);
	ki_bytes_add_u8(&key->record, 0);
}

struct kiln_key *kiln_key_new(void)
{
	struct kiln_key *key =
		aligned_alloc(_Alignof(struct kiln_key), sizeof(*key));

	if (key)
		begin(key);
	return key;
}

static struct kiln_key *align(struct kiln_key_room *room)
{
	const uintptr_t mask = _Alignof(struct kiln_key) - 1;

	return (struct kiln_key *)(((uintptr_t)room + mask) & ~mask);
}

struct kiln_key *kiln_key_in(struct kiln_key_room *room)
{
	struct kiln_key *key = align(room);

	begin(key);
	key->is_in_room = 1;
	return key;
}

/* So that `size` more bytes may be added: no memory of its own can grow. */
static void make_room(struct kiln_key *key, size_t size)
{
	struct ki_bytes *record = &key->record, moved = { 0 };

	if (record->data != key->inside || record->failed ||
	    size <= record->capacity - record->size)
		return;
	moved.limit = record->limit;
	if (ki_bytes_grow(&moved, record->size + size)) {
		memcpy(moved.data, record->data, record->size);
		moved.size = record->size;
		*record = moved;
	} else {
		record->failed = moved.failed;
	}
}

static void add(struct kiln_key *key, uint8_t kind, const char *label,
		const struct ki_piece *pieces, size_t n_pieces)
{
	size_t label_size = label ? strlen(label) : 0;
	size_t size = 0, i;

	if (!key)
		return;
	if (key->finished || !label_size || label_size > KILN_LABEL_BYTES_MAX) {
		if (!key->failed)
			key->failed = KILN_E_INVALID;
		return;
	}
	for (i = 0; i < n_pieces; i++)
		size += pieces[i].size;
	if (size > KILN_KEY_BYTES_MAX) {
		key->failed = KILN_E_TOO_LARGE;
		return;
	}
	make_room(key, FIELD_HEADER_BYTES + label_size + size);
	key->data_size += size;
	ki_bytes_add_u8(&key->record, kind);
	ki_bytes_add_u8(&key->record, (uint8_t)label_size);
	ki_bytes_add_u16(&key->record, 0);
	ki_bytes_add_u32(&key->record, (uint32_t)size);
	ki_bytes_add(&key->record, label, label_size);
	for (i = 0; i < n_pieces; i++)
		ki_bytes_add(&key->record, pieces[i].data, pieces[i].size);
	if ((kind & FIELD_LOCAL) && !key->record.failed)
		key->record.data[3] |= 1;
}

void kiln_key_add(struct kiln_key *key, const char *label, const void *data,
		  size_t size)
{
	struct ki_piece piece = { data, size };

	add(key, KILN_FIELD_BYTES, label, &piece, 1);
}

void kiln_key_add_string(struct kiln_key *key, const char *label,
			 const char *string)
{
	kiln_key_add(key, label, string, strlen(string));
}

void kiln_key_add_local(struct kiln_key *key, const char *label,
			const void *data, size_t size)
{
	struct ki_piece piece = { data, size };

	add(key, KILN_FIELD_BYTES | FIELD_LOCAL, label, &piece, 1);
}

void kiln_key_add_known_digest(struct kiln_key *key, const char *label,
			       uint64_t size, const uint8_t digest[32])
{
	uint8_t original_size[8];
	struct ki_piece pieces[] = { { original_size, sizeof(original_size) },
				     { digest, KI_BLAKE2B_BYTES } };

	ki_put_u64(original_size, size);
	add(key, KILN_FIELD_DIGEST, label, pieces, 2);
}

void kiln_key_add_digest(struct kiln_key *key, const char *label,
			 const void *data, size_t size)
{
	uint8_t digest[KI_BLAKE2B_BYTES];

	ki_blake2b(data, size, digest);
	kiln_key_add_known_digest(key, label, size, digest);
}

void kiln_key_add_absent(struct kiln_key *key, const char *label)
{
	add(key, KILN_FIELD_ABSENT, label, NULL, 0);
}

static void set_digest(struct kiln_key *key)
{
	key->digest_low = ki_digest_low(key->digest);
	key->digest_high = ki_digest_high(key->digest);
	key->tags = ki_key_tag(key->digest_high) * 0x01010101u;
}

static void finish(struct kiln_key *key)
{
	ki_xxh3_128(key->record.data, key->record.size, key->digest);
	set_digest(key);
	key->finished = 1;
}

enum kiln_status kiln_key_finish(struct kiln_key *key)
{
	if (!key)
		return KILN_E_NO_MEMORY;
	if (key->failed)
		return key->failed;
	if (key->record.failed)
		return key->failed = key->record.failed == -ENOMEM
					     ? KILN_E_NO_MEMORY
					     : KILN_E_TOO_LARGE;
	if (!key->finished)
		finish(key);
	return KILN_OK;
}

/* The bytes of a label that go into a number; there is one at least. */
static uint32_t first_bytes(const char *label, size_t size)
{
	uint8_t bytes[4] = { 0 };

	if (size >= sizeof(bytes))
		return ki_get_u32(label);
	memcpy(bytes, label, size);
	return ki_get_u32(bytes);
}

/* ki_put_u64() that no compiler takes apart. */
static void put_whole(uint8_t *p, uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	value = __builtin_bswap64(value);
#endif
	memcpy(p, &value, sizeof(value));
}

/*
 * A key of one field that is known to fit.  Its hash reads 8 bytes at a time:
 * what was just written in smaller pieces would keep it waiting, so with a label
 * of 4 bytes there are none.
 */
static void begin_and_finish(struct kiln_key *key, const char *label,
			     size_t label_size, const void *data, size_t size)
{
	const uint32_t head = 'K' | 'K' << 8 | KI_KEY_VERSION << 16;
	const uint32_t kind = KILN_FIELD_BYTES | (uint32_t)label_size << 8;
	uint8_t *record = key->inside;
	uint8_t *bytes = record + KI_KEY_HEADER_BYTES + FIELD_HEADER_BYTES;

	put_whole(record, head | (uint64_t)kind << 32);
	put_whole(record + 8, size | (uint64_t)first_bytes(label, label_size)
					      << 32);
	if (label_size > 4)
		memcpy(bytes + 4, label + 4, label_size - 4);
	if (size)
		memcpy(bytes + label_size, data, size);
	bytes += label_size + size;
	key->record = (struct ki_bytes){ .data = record,
					 .size = (size_t)(bytes - record),
					 .capacity = sizeof(key->inside),
					 .limit = KILN_KEY_BYTES_MAX };
	atomic_init(&key->refs, 1);
	key->failed = KILN_OK;
	key->is_in_room = 1;
	key->data_size = size;
	finish(key);
}

enum kiln_status kiln_key_of(struct kiln_key_room *room, const char *label,
			     const void *data, size_t size,
			     struct kiln_key **out_key)
{
	struct kiln_key *key = align(room);
	size_t label_size = label ? strlen(label) : 0;

	*out_key = key;
	if (label_size && label_size <= KILN_LABEL_BYTES_MAX &&
	    size <= sizeof(key->inside) &&
	    KI_KEY_HEADER_BYTES + FIELD_HEADER_BYTES + label_size + size <=
		    sizeof(key->inside)) {
		begin_and_finish(key, label, label_size, data, size);
		return KILN_OK;
	}
	(void)kiln_key_in(room);
	kiln_key_add(key, label, data, size);
	return kiln_key_finish(key);
}

void kiln_key_force_digest(struct kiln_key *key,
			   const uint8_t digest[KILN_DIGEST_BYTES])
{
	memcpy(key->digest, digest, sizeof(key->digest));
	set_digest(key);
}

enum kiln_status kiln_key_from_record(const void *record, size_t size,
				      struct kiln_key **out_key)
{
	struct kiln_key *key;
	enum kiln_status status = ki_record_check(record, size);

	if (status)
		return status;
	key = kiln_key_new();
	if (!key)
		return KILN_E_NO_MEMORY;
	ki_bytes_clear(&key->record);
	make_room(key, size);
	ki_bytes_add(&key->record, record, size);
	key->data_size = ki_record_data_size(record, size);
	status = kiln_key_finish(key);
	if (status)
		kiln_key_free(key);
	else
		*out_key = key;
	return status;
}

const void *kiln_key_record(const struct kiln_key *key, size_t *out_size)
{
	*out_size = key->record.size;
	return key->record.data;
}

const uint8_t *kiln_key_digest(const struct kiln_key *key)
{
	return key->digest;
}

int kiln_key_is_local(const struct kiln_key *key)
{
	return key->record.size >= KI_KEY_HEADER_BYTES &&
	       (key->record.data[3] & 1);
}

static struct kiln_key *copy_of(const struct kiln_key *key)
{
	struct kiln_key *copy;

	if (kiln_key_from_record(key->record.data, key->record.size, &copy))
		return NULL;
	kiln_key_force_digest(copy, key->digest);
	return copy;
}

struct kiln_key *kiln_key_ref(struct kiln_key *key)
{
	if (key && key->is_in_room)
		return copy_of(key);
	if (key)
		atomic_fetch_add_explicit(&key->refs, 1, memory_order_relaxed);
	return key;
}

/* One in a room has one owner. */
void kiln_key_free(struct kiln_key *key)
{
	if (!key || (!key->is_in_room &&
		     atomic_fetch_sub_explicit(&key->refs, 1,
					       memory_order_acq_rel) != 1))
		return;
	if (key->record.data != key->inside)
		ki_bytes_fini(&key->record);
	if (!key->is_in_room)
		free(key);
}

/* Written out, it is one instruction. */
static uint64_t big_endian(const uint8_t *b)
{
	return (uint64_t)b[0] << 56 | (uint64_t)b[1] << 48 |
	       (uint64_t)b[2] << 40 | (uint64_t)b[3] << 32 |
	       (uint64_t)b[4] << 24 | (uint64_t)b[5] << 16 |
	       (uint64_t)b[6] << 8 | b[7];
}

uint64_t ki_digest_low(const uint8_t digest[KILN_DIGEST_BYTES])
{
	return big_endian(digest);
}

uint64_t ki_digest_high(const uint8_t digest[KILN_DIGEST_BYTES])
{
	return big_endian(digest + 8);
}

/* ---- Reading records ------------------------------------------------------- */

enum kiln_status kiln_record_next(const void *record, size_t size,
				  size_t *position,
				  struct kiln_field *out_field)
{
	const uint8_t *bytes = record;
	struct kiln_field field = { 0 };
	struct ki_reader reader;
	uint8_t kind;
	size_t label_size, data_size;

	if (!*position) {
		if (size < KI_KEY_HEADER_BYTES || bytes[0] != 'K' ||
		    bytes[1] != 'K' || bytes[2] != KI_KEY_VERSION ||
		    (bytes[3] & ~1))
			return KILN_E_FORMAT;
		*position = KI_KEY_HEADER_BYTES;
	}
	if (*position > size)
		return KILN_E_FORMAT;
	if (*position == size)
		return KILN_END;

	reader = ki_reader(bytes + *position, size - *position);
	kind = ki_read_u8(&reader);
	label_size = ki_read_u8(&reader);
	if (ki_read_u16(&reader))
		return KILN_E_FORMAT;
	data_size = ki_read_u32(&reader);
	field.label = ki_read(&reader, label_size);
	field.label_size = label_size;
	field.local = !!(kind & FIELD_LOCAL);
	kind &= (uint8_t)~FIELD_LOCAL;
	if (kind == KILN_FIELD_DIGEST) {
		if (data_size != DIGEST_FIELD_BYTES)
			return KILN_E_FORMAT;
		field.original_size = ki_read_u64(&reader);
		data_size -= 8;
	} else if (kind > KILN_FIELD_ABSENT ||
		   (kind == KILN_FIELD_ABSENT && data_size)) {
		return KILN_E_FORMAT;
	}
	field.kind = (enum kiln_field_kind)kind;
	field.data = ki_read(&reader, data_size);
	field.size = data_size;
	if (reader.failed || !label_size || (field.local && !(bytes[3] & 1)))
		return KILN_E_FORMAT;
	*position = size - reader.size;
	*out_field = field;
	return KILN_OK;
}

enum kiln_status kiln_record_find(const void *record, size_t size,
				  const char *label,
				  struct kiln_field *out_field)
{
	size_t position = 0, label_size = strlen(label);
	struct kiln_field field;
	enum kiln_status status;

	while (!(status = kiln_record_next(record, size, &position, &field)))
		if (field.label_size == label_size &&
		    !memcmp(field.label, label, label_size)) {
			*out_field = field;
			return KILN_OK;
		}
	return status == KILN_END ? KILN_MISS : status;
}

uint64_t ki_record_data_size(const void *record, size_t size)
{
	struct kiln_field field;
	uint64_t data_size = 0;
	size_t position = 0;

	while (!kiln_record_next(record, size, &position, &field))
		data_size += field.kind == KILN_FIELD_DIGEST
				     ? DIGEST_FIELD_BYTES
				     : field.size;
	return data_size;
}

enum kiln_status ki_record_check(const void *record, size_t size)
{
	size_t position = 0;
	struct kiln_field field;
	enum kiln_status status;
	int has_local = 0;

	if (size > KILN_KEY_BYTES_MAX)
		return KILN_E_FORMAT;
	while (!(status = kiln_record_next(record, size, &position, &field)))
		has_local |= field.local;
	if (status != KILN_END)
		return KILN_E_FORMAT;
	/* Canonical: the flag says exactly what the fields say. */
	return has_local == (((const uint8_t *)record)[3] & 1) ? KILN_OK
							       : KILN_E_FORMAT;
}
