/* SPDX-License-Identifier: MIT */
#ifndef KI_SIGN_SIGN_H
#define KI_SIGN_SIGN_H

/*
 * Who vouches for an entry or a pack: Ed25519 keys with names, signatures, and
 * the set of keys that is trusted here.
 *
 *	ki_sign(&secret, KI_SIGN_PACK, digest, signature);
 *	key = ki_sign_verify(&trust, KI_SIGN_PACK, digest, signature);
 *
 * What is signed is a digest together with a word for what it is a digest of,
 * so a signature of one kind of thing says nothing about another.  The texts
 * and bytes are in docs/formats/sign.md.
 *
 * Secrets    A secret is wiped by ki_sign_secret_fini().  Nothing here writes
 *            one into a message.
 * Threads    A trust is one thread's until it is filled, then everybody's.
 * Ownership  Structures are the caller's; texts and bytes are borrowed for the
 *            call.  Outputs are written only on KILN_OK.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/kiln.h>

#define KI_SIGN_NAME_BYTES_MAX 64
#define KI_SIGN_PUBLIC_BYTES   32
#define KI_SIGN_SEED_BYTES     32
#define KI_SIGN_SECRET_BYTES   64 /* as Ed25519 computes with it */
#define KI_SIGN_DIGEST_BYTES   32
#define KI_SIGN_ID_BYTES       8
#define KI_SIGNATURE_BYTES     72 /* the key's id, then Ed25519's 64 */
#define KI_SIGN_TRUST_MAX      256
/* Room for any key's text and its NUL. */
#define KI_SIGN_TEXT_BYTES 128

/* What a digest is a digest of.  No longer than 255 bytes. */
#define KI_SIGN_PACK  "pack"
#define KI_SIGN_ENTRY "entry"
#define KI_SIGN_ITEM  "item"

struct ki_sign_public {
	char name[KI_SIGN_NAME_BYTES_MAX + 1];
	uint8_t bytes[KI_SIGN_PUBLIC_BYTES];
	uint8_t id[KI_SIGN_ID_BYTES]; /* from the bytes: names may change */
};

struct ki_sign_secret {
	struct ki_sign_public public;
	uint8_t bytes[KI_SIGN_SECRET_BYTES];
};

/* ---- Keys --------------------------------------------------------------- */

/* 1 to 64 of the letters of English, digits, dot, dash and underscore, and no dot
   in front: a name is the name of a file, too. */
int ki_sign_name_is_good(const char *name, size_t size);

/* A new pair from 32 bytes that nobody can guess, which the caller wipes.
   INVALID: the name. */
enum kiln_status ki_sign_secret_new(const char *name,
				    const uint8_t seed[KI_SIGN_SEED_BYTES],
				    struct ki_sign_secret *out_secret);

/* Wipes it.  Accepts one that is all zeros. */
void ki_sign_secret_fini(struct ki_sign_secret *secret);

/*
 * From text, blanks and a newline at its ends aside.  INVALID: it is something
 * else, or a public key under which anything would pass.
 */
enum kiln_status ki_sign_public_parse(const char *text,
				      struct ki_sign_public *out_public);
enum kiln_status ki_sign_secret_parse(const char *text,
				      struct ki_sign_secret *out_secret);
/* Whether it begins like a secret, so that nobody is told what else it says. */
int ki_sign_text_is_secret(const char *text);

/* Without a newline. */
void ki_sign_public_print(const struct ki_sign_public *key,
			  char out[KI_SIGN_TEXT_BYTES]);
/* The caller wipes `out`. */
void ki_sign_secret_print(const struct ki_sign_secret *secret,
			  char out[KI_SIGN_TEXT_BYTES]);

/* Overwrite what must not stay in memory.  Accepts no bytes. */
void ki_sign_wipe(void *bytes, size_t size);

/* ---- Trust -------------------------------------------------------------- */

/* Zeros are an empty one. */
struct ki_sign_trust {
	struct ki_sign_public *keys;
	size_t n_keys;
};

/* Several keys may have one name: that is how they are rotated.  A key that is
   there already stays as it is.  NO_MEMORY; FULL: there are KI_SIGN_TRUST_MAX. */
enum kiln_status ki_sign_trust_add(struct ki_sign_trust *trust,
				   const struct ki_sign_public *key);

/*
 * Every line of a text is a key, empty or a comment (#).  `trust` has what came
 * before the line that was refused.  INVALID, NO_MEMORY, FULL.
 */
enum kiln_status ki_sign_trust_add_text(struct ki_sign_trust *trust,
					const char *text);

/* NULL: no key with this id. */
const struct ki_sign_public *ki_sign_trust_find(
	const struct ki_sign_trust *trust, const uint8_t id[KI_SIGN_ID_BYTES]);

/* Empty again. */
void ki_sign_trust_fini(struct ki_sign_trust *trust);

/* ---- Signatures --------------------------------------------------------- */

/* The same for the same: nothing in it is random. */
void ki_sign(const struct ki_sign_secret *secret, const char *context,
	     const uint8_t digest[KI_SIGN_DIGEST_BYTES],
	     uint8_t out_signature[KI_SIGNATURE_BYTES]);

/* Which trusted key made this signature; NULL: none.  It lives as long as the
   trust is left alone. */
const struct ki_sign_public *ki_sign_verify(
	const struct ki_sign_trust *trust, const char *context,
	const uint8_t digest[KI_SIGN_DIGEST_BYTES],
	const uint8_t signature[KI_SIGNATURE_BYTES]);

#endif /* KI_SIGN_SIGN_H */
