/* SPDX-License-Identifier: MIT */

/*
 * Ed25519 as libsodium has it.  sodium_init() is not called (base/hash.c says
 * why); what is used here works without: the random bytes of a new key come
 * through sys, and signing needs none.
 *
 * What Ed25519 signs is
 *
 *	"kiln signature 1" | length of the context, a byte | context | digest
 *
 * so no context with a digest can be read as another.
 */

#include "sign/sign.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "base/hash.h"

#define SECRET_PREFIX	  "kiln-secret:"
#define MESSAGE_PREFIX	  "kiln signature 1"
#define CONTEXT_BYTES_MAX 255
#define MESSAGE_BYTES_MAX                                                      \
	(sizeof(MESSAGE_PREFIX) - 1 + 1 + CONTEXT_BYTES_MAX +                  \
	 KI_SIGN_DIGEST_BYTES)
#define BASE64	     sodium_base64_VARIANT_ORIGINAL
#define BASE64_BYTES 45 /* of 32 bytes, with NUL */
#define BLANKS	     " \t\r\n"

static_assert(crypto_sign_ed25519_PUBLICKEYBYTES == KI_SIGN_PUBLIC_BYTES, "");
static_assert(crypto_sign_ed25519_SECRETKEYBYTES == KI_SIGN_SECRET_BYTES, "");
static_assert(crypto_sign_ed25519_SEEDBYTES == KI_SIGN_SEED_BYTES, "");
static_assert(crypto_sign_ed25519_BYTES + KI_SIGN_ID_BYTES ==
		      KI_SIGNATURE_BYTES,
	      "");
static_assert(sizeof(SECRET_PREFIX) + KI_SIGN_NAME_BYTES_MAX + 1 +
			      BASE64_BYTES <=
		      KI_SIGN_TEXT_BYTES,
	      "every text has room");

/* ---- Keys ------------------------------------------------------------------ */

int ki_sign_name_is_good(const char *name, size_t size)
{
	static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "abcdefghijklmnopqrstuvwxyz"
				   "0123456789._-";

	if (!size || size > KI_SIGN_NAME_BYTES_MAX || *name == '.')
		return 0;
	for (size_t i = 0; i < size; i++)
		if (!name[i] || !strchr(good, name[i]))
			return 0;
	return 1;
}

void ki_sign_wipe(void *bytes, size_t size)
{
	if (size)
		sodium_memzero(bytes, size);
}

static void set_public(struct ki_sign_public *key, const char *name,
		       size_t name_size)
{
	uint8_t digest[KI_BLAKE2B_BYTES];

	memset(key->name, 0, sizeof(key->name));
	memcpy(key->name, name, name_size);
	ki_blake2b(key->bytes, sizeof(key->bytes), digest);
	memcpy(key->id, digest, sizeof(key->id));
}

static void set_secret(struct ki_sign_secret *secret, const char *name,
		       size_t name_size, const uint8_t *seed)
{
	(void)crypto_sign_ed25519_seed_keypair(secret->public.bytes,
					       secret->bytes, seed);
	set_public(&secret->public, name, name_size);
}

enum kiln_status ki_sign_secret_new(const char *name,
				    const uint8_t seed[KI_SIGN_SEED_BYTES],
				    struct ki_sign_secret *out_secret)
{
	if (!ki_sign_name_is_good(name, strlen(name)))
		return KILN_E_INVALID;
	set_secret(out_secret, name, strlen(name), seed);
	return KILN_OK;
}

void ki_sign_secret_fini(struct ki_sign_secret *secret)
{
	ki_sign_wipe(secret, sizeof(*secret));
}

/* NAME:BASE64 into where the name is and 32 bytes. */
static int take_apart(const char *text, size_t *out_name_size, uint8_t out[32])
{
	const char *base64 = strchr(text, ':'), *end;
	size_t size, n_bytes;

	if (!base64 || !ki_sign_name_is_good(text, (size_t)(base64 - text)))
		return 0;
	*out_name_size = (size_t)(base64 - text);
	base64++;
	size = strcspn(base64, BLANKS);
	if (base64[size + strspn(base64 + size, BLANKS)])
		return 0;
	return !sodium_base642bin(out, 32, base64, size, NULL, &n_bytes, &end,
				  BASE64) &&
	       n_bytes == 32 && end == base64 + size;
}

enum kiln_status ki_sign_public_parse(const char *text,
				      struct ki_sign_public *out_public)
{
	struct ki_sign_public key;
	size_t name_size;

	text += strspn(text, BLANKS);
	if (!take_apart(text, &name_size, key.bytes) ||
	    !crypto_core_ed25519_is_valid_point(key.bytes))
		return KILN_E_INVALID;
	set_public(&key, text, name_size);
	*out_public = key;
	return KILN_OK;
}

int ki_sign_text_is_secret(const char *text)
{
	text += strspn(text, BLANKS);
	return !strncmp(text, SECRET_PREFIX, sizeof(SECRET_PREFIX) - 1);
}

enum kiln_status ki_sign_secret_parse(const char *text,
				      struct ki_sign_secret *out_secret)
{
	uint8_t seed[KI_SIGN_SEED_BYTES];
	size_t name_size;
	int is_good;

	if (!ki_sign_text_is_secret(text))
		return KILN_E_INVALID;
	text += strspn(text, BLANKS) + sizeof(SECRET_PREFIX) - 1;
	is_good = take_apart(text, &name_size, seed);
	if (is_good)
		set_secret(out_secret, text, name_size, seed);
	ki_sign_wipe(seed, sizeof(seed));
	return is_good ? KILN_OK : KILN_E_INVALID;
}

static void print(const char *prefix, const char *name, const uint8_t *bytes,
		  char *out)
{
	size_t size = strlen(prefix);

	memcpy(out, prefix, size);
	out += size;
	size = strlen(name);
	memcpy(out, name, size);
	out += size;
	*out++ = ':';
	sodium_bin2base64(out, BASE64_BYTES, bytes, 32, BASE64);
}

void ki_sign_public_print(const struct ki_sign_public *key,
			  char out[KI_SIGN_TEXT_BYTES])
{
	print("", key->name, key->bytes, out);
}

void ki_sign_secret_print(const struct ki_sign_secret *secret,
			  char out[KI_SIGN_TEXT_BYTES])
{
	/* Ed25519's secret is the seed and the public key. */
	print(SECRET_PREFIX, secret->public.name, secret->bytes, out);
}

/* ---- Trust ----------------------------------------------------------------- */

const struct ki_sign_public *ki_sign_trust_find(
	const struct ki_sign_trust *trust, const uint8_t id[KI_SIGN_ID_BYTES])
{
	for (size_t i = 0; i < trust->n_keys; i++)
		if (!memcmp(trust->keys[i].id, id, KI_SIGN_ID_BYTES))
			return &trust->keys[i];
	return NULL;
}

enum kiln_status ki_sign_trust_add(struct ki_sign_trust *trust,
				   const struct ki_sign_public *key)
{
	struct ki_sign_public *keys;

	if (ki_sign_trust_find(trust, key->id))
		return KILN_OK;
	if (trust->n_keys == KI_SIGN_TRUST_MAX)
		return KILN_E_FULL;
	keys = realloc(trust->keys, (trust->n_keys + 1) * sizeof(*keys));
	if (!keys)
		return KILN_E_NO_MEMORY;
	keys[trust->n_keys++] = *key;
	trust->keys = keys;
	return KILN_OK;
}

static enum kiln_status add_line(struct ki_sign_trust *trust, const char *line,
				 size_t size)
{
	char text[2 * KI_SIGN_TEXT_BYTES];
	struct ki_sign_public key;
	enum kiln_status status;
	size_t blanks = strspn(line, " \t\r");

	if (blanks >= size || line[blanks] == '#')
		return KILN_OK;
	if (size >= sizeof(text))
		return KILN_E_INVALID;
	memcpy(text, line, size);
	text[size] = '\0';
	status = ki_sign_public_parse(text, &key);
	return status ? status : ki_sign_trust_add(trust, &key);
}

enum kiln_status ki_sign_trust_add_text(struct ki_sign_trust *trust,
					const char *text)
{
	enum kiln_status status = KILN_OK;

	while (*text && !status) {
		size_t size = strcspn(text, "\n");

		status = add_line(trust, text, size);
		text += size + (text[size] == '\n');
	}
	return status;
}

void ki_sign_trust_fini(struct ki_sign_trust *trust)
{
	free(trust->keys);
	*trust = (struct ki_sign_trust){ 0 };
}

/* ---- Signatures ------------------------------------------------------------ */

static size_t compose(const char *context, const uint8_t *digest,
		      uint8_t out[MESSAGE_BYTES_MAX])
{
	size_t size = strlen(context);
	uint8_t *end = out;

	assert(size <= CONTEXT_BYTES_MAX);
	memcpy(end, MESSAGE_PREFIX, sizeof(MESSAGE_PREFIX) - 1);
	end += sizeof(MESSAGE_PREFIX) - 1;
	*end++ = (uint8_t)size;
	memcpy(end, context, size);
	end += size;
	memcpy(end, digest, KI_SIGN_DIGEST_BYTES);
	return (size_t)(end - out) + KI_SIGN_DIGEST_BYTES;
}

void ki_sign(const struct ki_sign_secret *secret, const char *context,
	     const uint8_t digest[KI_SIGN_DIGEST_BYTES],
	     uint8_t out_signature[KI_SIGNATURE_BYTES])
{
	uint8_t message[MESSAGE_BYTES_MAX];
	size_t size = compose(context, digest, message);

	memcpy(out_signature, secret->public.id, KI_SIGN_ID_BYTES);
	(void)crypto_sign_ed25519_detached(out_signature + KI_SIGN_ID_BYTES,
					   NULL, message, size, secret->bytes);
}

const struct ki_sign_public *ki_sign_verify(
	const struct ki_sign_trust *trust, const char *context,
	const uint8_t digest[KI_SIGN_DIGEST_BYTES],
	const uint8_t signature[KI_SIGNATURE_BYTES])
{
	const struct ki_sign_public *key = ki_sign_trust_find(trust, signature);
	uint8_t message[MESSAGE_BYTES_MAX];
	size_t size;

	if (!key)
		return NULL;
	size = compose(context, digest, message);
	if (crypto_sign_ed25519_verify_detached(signature + KI_SIGN_ID_BYTES,
						message, size, key->bytes))
		return NULL;
	return key;
}
