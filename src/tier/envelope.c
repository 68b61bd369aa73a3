/* SPDX-License-Identifier: MIT */

#include "tier/envelope.h"

#include <string.h>

#include "base/bytes.h"
#include "key/key.h"

static const uint8_t magic[4] = { 'K', 'E', 'N', 'V' };
static const uint8_t zeros[8];

static uint64_t aligned(uint64_t size)
{
	return (size + 7) & ~(uint64_t)7;
}

static size_t padding(size_t size)
{
	return (size_t)(aligned(size) - size);
}

uint64_t ki_envelope_size(const struct ki_envelope *envelope)
{
	if (envelope->record_size > KILN_KEY_BYTES_MAX ||
	    envelope->metadata_size > KILN_METADATA_BYTES_MAX ||
	    envelope->value_size > (uint64_t)INT64_MAX / 2)
		return 0;
	return KI_ENVELOPE_HEADER_BYTES + aligned(envelope->record_size) +
	       aligned(envelope->metadata_size) + envelope->value_size;
}

void ki_envelope_seal(const struct ki_envelope *envelope,
		      uint8_t header[KI_ENVELOPE_HEADER_BYTES],
		      struct ki_piece pieces[KI_ENVELOPE_PIECES])
{
	pieces[0] = (struct ki_piece){ header, KI_ENVELOPE_HEADER_BYTES };
	pieces[1] =
		(struct ki_piece){ envelope->record, envelope->record_size };
	pieces[2] = (struct ki_piece){ zeros, padding(envelope->record_size) };
	pieces[3] = (struct ki_piece){ envelope->metadata,
				       envelope->metadata_size };
	pieces[4] =
		(struct ki_piece){ zeros, padding(envelope->metadata_size) };
	pieces[5] = (struct ki_piece){ envelope->value, envelope->value_size };

	memset(header, 0, KI_ENVELOPE_HEADER_BYTES);
	memcpy(header, magic, sizeof(magic));
	ki_put_u16(header + 4, KI_ENVELOPE_VERSION);
	memcpy(header + 8, envelope->digest, KILN_DIGEST_BYTES);
	ki_put_u32(header + 24, (uint32_t)envelope->record_size);
	ki_put_u32(header + 28, (uint32_t)envelope->metadata_size);
	ki_put_u64(header + 32, envelope->value_size);
	ki_put_u64(header + 40, ki_xxh3_64_pieces(pieces + 1, 5));
	ki_put_u64(header + 48, envelope->user_version);
	ki_put_u64(header + 56, ki_xxh3_64(header, 56));
}

enum kiln_status ki_envelope_measure(const void *header,
				     struct ki_envelope *out_envelope,
				     uint64_t *out_size)
{
	const uint8_t *bytes = header;
	struct ki_envelope envelope = { 0 };
	uint64_t size;

	if (memcmp(bytes, magic, sizeof(magic)) != 0 ||
	    ki_get_u64(bytes + 56) != ki_xxh3_64(bytes, 56))
		return KILN_E_FORMAT;
	if (ki_get_u16(bytes + 4) > KI_ENVELOPE_VERSION)
		return KILN_E_UNSUPPORTED;
	if (ki_get_u16(bytes + 4) != KI_ENVELOPE_VERSION ||
	    ki_get_u16(bytes + 6))
		return KILN_E_FORMAT;
	memcpy(envelope.digest, bytes + 8, KILN_DIGEST_BYTES);
	envelope.record_size = ki_get_u32(bytes + 24);
	envelope.metadata_size = ki_get_u32(bytes + 28);
	envelope.value_size = ki_get_u64(bytes + 32);
	envelope.user_version = ki_get_u64(bytes + 48);
	size = ki_envelope_size(&envelope);
	if (!size)
		return KILN_E_FORMAT;
	*out_envelope = envelope;
	*out_size = size;
	return KILN_OK;
}

enum kiln_status ki_envelope_peek(const void *header, uint64_t size,
				  struct ki_envelope *out_envelope)
{
	struct ki_envelope envelope;
	uint64_t measured;
	enum kiln_status status;

	if (size < KI_ENVELOPE_HEADER_BYTES)
		return KILN_E_FORMAT;
	status = ki_envelope_measure(header, &envelope, &measured);
	if (!status && measured != size)
		status = KILN_E_FORMAT;
	if (!status)
		*out_envelope = envelope;
	return status;
}

enum kiln_status ki_envelope_open(const void *data, size_t size,
				  struct ki_envelope *out_envelope)
{
	const uint8_t *place = data;
	struct ki_envelope envelope;
	uint8_t digest[KILN_DIGEST_BYTES];
	enum kiln_status status = ki_envelope_peek(data, size, &envelope);

	if (status)
		return status;
	if (ki_get_u64(place + 40) !=
	    ki_xxh3_64(place + KI_ENVELOPE_HEADER_BYTES,
		       size - KI_ENVELOPE_HEADER_BYTES))
		return KILN_E_FORMAT;
	place += KI_ENVELOPE_HEADER_BYTES;
	envelope.record = place;
	place += aligned(envelope.record_size);
	envelope.metadata = place;
	place += aligned(envelope.metadata_size);
	envelope.value = place;
	ki_xxh3_128(envelope.record, envelope.record_size, digest);
	if (memcmp(digest, envelope.digest, sizeof(digest)) != 0 ||
	    ki_record_check(envelope.record, envelope.record_size))
		return KILN_E_FORMAT;
	*out_envelope = envelope;
	return KILN_OK;
}

enum kiln_status ki_envelope_entry(const struct ki_envelope *envelope,
				   struct kiln_entry *entry)
{
	enum kiln_status status;

	memcpy(entry->digest, envelope->digest, sizeof(entry->digest));
	entry->value_size = envelope->value_size;
	entry->record = NULL;
	entry->metadata = NULL;
	status = kiln_blob_copy(envelope->record, envelope->record_size,
				&entry->record);
	if (!status)
		status = kiln_blob_copy(envelope->metadata,
					envelope->metadata_size,
					&entry->metadata);
	if (status) {
		kiln_blob_unref(entry->record);
		entry->record = NULL;
	}
	return status;
}
