/* SPDX-License-Identifier: MIT */

/*
 * Signatures of entries, in a store that a group writes.  Everyone there may put
 * machine code into it that all the others run, so once keys are trusted an entry
 * is used only if one of them has signed it:
 *
 *	put   digest of entry -> signed by our key -> KILN_META_SIGNATURE
 *	get   entry -> copied out of the store -> digest -> signed by one we trust?
 *						 no: a miss, counted
 *
 * The digest covers the key record, so a signature does not hold for an entry
 * that was copied to another key (docs/formats/sign.md).  An entry without such a
 * signature counts as not there, for create-only puts, too: else whoever writes
 * rubbish first would keep all others from ever having the entry.
 *
 * The store hands out copies in this mode, and what was verified is what is used.
 * The secret is read for each put and wiped: a put follows a build, which takes a
 * thousand times as long, and programs that only read never have it in memory.
 */

#include "core/cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "key/key.h"
#include "sign/files.h"

#define FORMAT_VERSION 1
#define FIELD_BYTES    8 /* before a field of metadata */

/* ---- The keys given -------------------------------------------------------- */

/* A path is looked at when there is something to sign. */
static int is_signing_key(const char *text)
{
	struct ki_sign_secret secret;

	if (*text == '/')
		return strlen(text) < KI_PATH_MAX;
	if (ki_sign_secret_parse(text, &secret))
		return 0;
	ki_sign_secret_fini(&secret);
	return 1;
}

int ki_kiln_keys_are_good(const struct kiln_options *options)
{
	struct ki_sign_public key;

	if (options->n_trusted_keys > KI_SIGN_TRUST_MAX ||
	    (options->n_trusted_keys && !options->trusted_keys))
		return 0;
	for (size_t i = 0; i < options->n_trusted_keys; i++)
		if (!options->trusted_keys[i] ||
		    ki_sign_public_parse(options->trusted_keys[i], &key))
			return 0;
	return !options->signing_key || is_signing_key(options->signing_key);
}

/* Whether an entry without a signature is none. */
static int needs_signatures(const struct kiln *kiln)
{
	return kiln->trust.n_keys || (kiln->flags & KILN_OPEN_SIGNED);
}

/* Said at opening, by whom it can be put right. */
static void look_at_signing_key(struct kiln *kiln)
{
	struct ki_sign_secret secret;
	const char *why;

	if (!kiln->log || !ki_kiln_writes(kiln))
		return;
	if (!kiln->signing_key) {
		ki_kiln_log(kiln, KILN_LOG_WARNING,
			    "signing_key: there is none, so nothing is stored "
			    "where signatures are required");
		return;
	}
	if (ki_sign_read_given(&ki_sys_posix, kiln->signing_key, &secret,
			       &why)) {
		ki_kiln_log(kiln, KILN_LOG_ERROR, "signing_key: '%s' %s",
			    *kiln->signing_key == '/' ? kiln->signing_key : "",
			    why);
		return;
	}
	if (needs_signatures(kiln) &&
	    !ki_sign_trust_find(&kiln->trust, secret.public.id))
		ki_kiln_log(kiln, KILN_LOG_WARNING,
			    "signing_key: '%s' is not trusted here, so what it "
			    "signs is not found again",
			    secret.public.name);
	ki_sign_secret_fini(&secret);
}

int ki_kiln_open_signatures(struct kiln *kiln,
			    const struct kiln_options *options)
{
	struct ki_sign_public key;

	if (!kiln->has_store || !(options->flags & KILN_OPEN_SHARED) ||
	    (options->flags & KILN_OPEN_ANY_OWNER) ||
	    (!options->n_trusted_keys && !options->signing_key &&
	     !(options->flags & KILN_OPEN_SIGNED)))
		return 1;
	for (size_t i = 0; i < options->n_trusted_keys; i++)
		if (ki_sign_public_parse(options->trusted_keys[i], &key) ||
		    ki_sign_trust_add(&kiln->trust, &key))
			return 0;
	if (options->signing_key) {
		kiln->signing_key = strdup(options->signing_key);
		if (!kiln->signing_key)
			return 0;
	}
	kiln->flags |= KI_KILN_SIGNED;
	look_at_signing_key(kiln);
	return 1;
}

void ki_kiln_close_signatures(struct kiln *kiln)
{
	if (kiln->signing_key)
		ki_sign_wipe(kiln->signing_key, strlen(kiln->signing_key));
	free(kiln->signing_key);
	ki_sign_trust_fini(&kiln->trust);
}

/* ---- What is signed -------------------------------------------------------- */

/* Metadata is in two pieces, before its signature and after. */
static void digest_of(const struct kiln_key *key,
		      const struct ki_piece parts[2], const void *value,
		      size_t value_size, uint8_t out[KI_BLAKE2B_BYTES])
{
	uint8_t header[28];
	const struct ki_piece pieces[] = {
		{ header, sizeof(header) },
		{ key->record.data, key->record.size },
		parts[0],
		parts[1],
		{ value, value_size },
	};

	ki_put_u32(header, FORMAT_VERSION);
	ki_put_u64(header + 4, key->record.size);
	ki_put_u64(header + 12, parts[0].size + parts[1].size);
	ki_put_u64(header + 20, value_size);
	ki_blake2b_pieces(pieces, sizeof(pieces) / sizeof(pieces[0]), out);
}

/* ---- Asking ---------------------------------------------------------------- */

int ki_kiln_is_vouched_for(const struct kiln *kiln, const struct kiln_key *key,
			   const struct kiln_blob *value,
			   const struct kiln_blob *metadata)
{
	const uint8_t *bytes = kiln_blob_data(metadata), *end;
	const void *signature;
	uint8_t digest[KI_BLAKE2B_BYTES];
	size_t size = kiln_blob_size(metadata), signature_size;
	struct ki_piece parts[2];

	if (!needs_signatures(kiln))
		return 1;
	if (kiln_metadata_find(bytes, size, KILN_META_SIGNATURE, &signature,
			       &signature_size) ||
	    signature_size != KI_SIGNATURE_BYTES ||
	    !ki_sign_trust_find(&kiln->trust, signature))
		return 0;
	end = (const uint8_t *)signature + signature_size;
	parts[0].data = bytes;
	parts[0].size = (size_t)(end - bytes) - signature_size - FIELD_BYTES;
	parts[1].data = end;
	parts[1].size = size - (size_t)(end - bytes);
	digest_of(key, parts, kiln_blob_data(value), kiln_blob_size(value),
		  digest);
	return ki_sign_verify(&kiln->trust, KI_SIGN_ENTRY, digest, signature) !=
	       NULL;
}

/* ---- Putting --------------------------------------------------------------- */

/* All fields but signatures; room for one is left to add. */
static enum kiln_status copy_fields(const void *metadata, size_t size,
				    struct ki_bytes *out)
{
	struct ki_reader reader = ki_reader(metadata, size);

	while (reader.size) {
		const uint8_t *start = reader.data;
		uint16_t tag = ki_read_u16(&reader);

		(void)ki_read_u16(&reader);
		(void)ki_read(&reader, ki_read_u32(&reader));
		if (reader.failed)
			return KILN_E_FORMAT;
		if (tag != KILN_META_SIGNATURE)
			ki_bytes_add(out, start, (size_t)(reader.data - start));
	}
	return out->failed ? KILN_E_NO_MEMORY : KILN_OK;
}

static enum kiln_status add_signature(const struct kiln *kiln,
				      const struct kiln_key *key,
				      const void *value, size_t value_size,
				      struct ki_bytes *bytes)
{
	const struct ki_piece parts[2] = { { bytes->data, bytes->size },
					   { NULL, 0 } };
	uint8_t digest[KI_BLAKE2B_BYTES], signature[KI_SIGNATURE_BYTES];
	struct ki_sign_secret secret;
	const char *why;

	if (!kiln->signing_key ||
	    ki_sign_read_given(&ki_sys_posix, kiln->signing_key, &secret, &why))
		return needs_signatures(kiln) ? KILN_E_OWNER : KILN_OK;
	digest_of(key, parts, value, value_size, digest);
	ki_sign(&secret, KI_SIGN_ENTRY, digest, signature);
	ki_sign_secret_fini(&secret);
	ki_bytes_add_u16(bytes, KILN_META_SIGNATURE);
	ki_bytes_add_u16(bytes, 0);
	ki_bytes_add_u32(bytes, sizeof(signature));
	ki_bytes_add(bytes, signature, sizeof(signature));
	return bytes->failed ? KILN_E_NO_MEMORY : KILN_OK;
}

static int has_vouched_entry(const struct kiln *kiln, struct kiln_tier *tier,
			     const struct kiln_key *key)
{
	struct kiln_blob *value, *metadata;
	int is_vouched;

	if (tier->ops->get(tier, key, &value, &metadata))
		return 0;
	is_vouched = ki_kiln_is_vouched_for(kiln, key, value, metadata);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return is_vouched;
}

enum kiln_status ki_kiln_put_signed(const struct kiln *kiln,
				    struct kiln_tier *tier,
				    const struct kiln_key *key,
				    const void *metadata, size_t metadata_size,
				    const void *value, size_t value_size,
				    unsigned flags)
{
	struct ki_bytes bytes;
	enum kiln_status status;

	ki_bytes_init(&bytes);
	status = copy_fields(metadata, metadata_size, &bytes);
	if (!status)
		status = add_signature(kiln, key, value, value_size, &bytes);
	if (!status)
		status = tier->ops->put(tier, key, bytes.data, bytes.size,
					value, value_size, flags);
	if (status == KILN_EXISTS && !has_vouched_entry(kiln, tier, key))
		status =
			tier->ops->put(tier, key, bytes.data, bytes.size, value,
				       value_size, flags | KILN_PUT_REPLACE);
	ki_bytes_fini(&bytes);
	return status;
}
