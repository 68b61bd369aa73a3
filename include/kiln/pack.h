/* SPDX-License-Identifier: MIT */
#ifndef KILN_PACK_H
#define KILN_PACK_H

/*
 * A pack: many entries in one file that is written once, may be signed, and is
 * then only read, here or on other machines.
 *
 *	kiln_pack_create("app.pack", &options, &writer);
 *	kiln_pack_add(writer, key, metadata, metadata_size, value, value_size);
 *	...
 *	kiln_pack_finish(writer, &report);
 *
 *	kiln_pack_open("app.pack", &options, &tier);
 *
 * What opens is a tier (<kiln/tier.h>) that can get, list, verify and say what
 * it is; give it to kiln_open() in `tiers`.  It reads through a device, a file
 * or two functions of yours, and reads of it little more than what is asked
 * for: docs/formats/pack.md.
 *
 * Trust      A value is machine code.  Every entry is checked against the index
 *            by BLAKE2b-256, and the index against signatures of the keys that
 *            you trust.
 * Damage     costs the entries that it hits, each an error at its look-up.
 * Threads    A writer belongs to one thread at a time; a tier to all.
 * Ownership  Paths, texts and bytes are borrowed for the call.
 */

#include <kiln/block.h>
#include <kiln/kiln.h>
#include <kiln/tier.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KILN_PACK_ENTRIES_MAX	 ((uint64_t)1 << 24)
#define KILN_PACK_SIGNATURES_MAX 12

/* ---- Writing ------------------------------------------------------------ */

struct kiln_pack_writer;

/* Bits of kiln_pack_writer_options.flags. */
#define KILN_PACK_REPLACE (1u << 0) /* a file of that name goes */

struct kiln_pack_writer_options {
	size_t size; /* set by kiln_pack_writer_options_init() */
	uint32_t flags;
	uint64_t user_version; /* that readers may ask for; 0: none */
	/* Secret keys as text (docs/formats/sign.md); each one signs. */
	const char *const *signing_keys;
	size_t n_signing_keys;
};

static inline void kiln_pack_writer_options_init(
	struct kiln_pack_writer_options *options)
{
	memset(options, 0, sizeof(*options));
	options->size = sizeof(*options);
}

struct kiln_pack_report {
	uint64_t n_entries;
	uint64_t bytes; /* of the file */
	uint64_t n_signatures;
};

/*
 * Begin a pack.  It grows beside `path` under a temporary name, which a writer
 * that is killed leaves.  `options` may be NULL.  EXISTS (without REPLACE),
 * INVALID (a key that is none, or too many), IO, NO_MEMORY, FULL.
 */
KILN_API enum kiln_status kiln_pack_create(
	const char *path, const struct kiln_pack_writer_options *options,
	struct kiln_pack_writer **out_writer);

/*
 * Add an entry.  The order of the calls is the recorded order: in which the
 * entries lie in the file, are listed, and are best asked for.  `metadata` is
 * canonical bytes, or nothing; of its fields DIRECTORY, APPLICATION, SOURCES,
 * ENVIRONMENT, SIGNATURE and those that are unknown stay behind.  EXISTS: the
 * key is there already.  INVALID: the key has local fields, or the entry is
 * KILN_ENTRY_HIDDEN, which is of use to its own store alone.  FORMAT (of the
 * metadata), TOO_LARGE, FULL, IO, NO_MEMORY.  After an error the pack is as
 * before and can go on.
 */
KILN_API enum kiln_status kiln_pack_add(struct kiln_pack_writer *writer,
					const struct kiln_key *key,
					const void *metadata,
					size_t metadata_size, const void *value,
					size_t value_size);

/*
 * Write the index, sign it and give the file its name.  Ends the writer,
 * whatever it returns; after an error nothing is left of the pack.
 * `out_report` may be NULL.  EXISTS, FULL, IO, NO_MEMORY.
 */
KILN_API enum kiln_status kiln_pack_finish(struct kiln_pack_writer *writer,
					   struct kiln_pack_report *out_report);

/* End the writer and remove what it wrote.  Accepts NULL. */
KILN_API void kiln_pack_abandon(struct kiln_pack_writer *writer);

/* ---- Reading ------------------------------------------------------------ */

/* Bits of kiln_pack_options.flags. */
/* Without a signature of a key that is trusted: KILN_E_OWNER. */
#define KILN_PACK_SIGNED (1u << 0)
/* Unsigned will do, even if keys are trusted: somebody has said so by name.  Not
   of a device that is remote. */
#define KILN_PACK_UNSIGNED (1u << 1)
/*
 * Where the index is lost, look for entries from the file's beginning to its
 * end.  What is found is whole and nothing more is known of it: not with a
 * signature that is required.
 */
#define KILN_PACK_SALVAGE (1u << 2)
/* Whoever the file belongs to: to look at, never to load from. */
#define KILN_PACK_ANY_OWNER (1u << 3)
/* No descriptor outlives a call: the file is opened anew whenever bytes are
   missing, and must be the same one then. */
#define KILN_PACK_GUEST (1u << 4)

struct kiln_pack_options {
	size_t size; /* set by kiln_pack_options_init() */
	uint32_t flags;
	uint64_t user_version; /* entries of others are misses; 0: any */
	/* Public keys as text, one a line.  Where there are any, one of them
	   must have signed. */
	const char *const *trusted_keys;
	size_t n_trusted_keys;
	kiln_log_fn *log; /* why a pack is refused; NULL: silent */
	void *log_arg;
};

static inline void kiln_pack_options_init(struct kiln_pack_options *options)
{
	memset(options, 0, sizeof(*options));
	options->size = sizeof(*options);
}

/* Bits of kiln_pack_device.flags. */
/* Far away: a call is dear, so more is read at once; whoever sends the bytes is
   a stranger, so a signature is required. */
#define KILN_PACK_REMOTE (1u << 0)

/* Bytes that do not change while the pack is open. */
struct kiln_pack_device {
	size_t size; /* set by kiln_pack_device_init() */
	uint32_t flags;
	unsigned n_calls; /* of `read` that may run at once; 0: one */
	/* How many bytes there are; a negative errno.  Asked once. */
	int64_t (*bytes)(void *context);
	kiln_block_read_fn *read;
	/* When the tier closes; may be NULL. */
	void (*release)(void *context);
	void *context;
	const char *name; /* for the log, as long as it is open; may be NULL */
};

static inline void kiln_pack_device_init(struct kiln_pack_device *device)
{
	memset(device, 0, sizeof(*device));
	device->size = sizeof(*device);
}

/*
 * Open a pack.  `options` may be NULL.  On success the device is the tier's,
 * else it stays the caller's and release was not called.  FORMAT (no pack, a
 * newer version's, or its index is lost), OWNER (no signature that is trusted),
 * INVALID (a text that is no key, a device without functions), IO, NO_MEMORY.
 */
KILN_API enum kiln_status kiln_pack_open_device(
	const struct kiln_pack_device *device,
	const struct kiln_pack_options *options, struct kiln_tier **out_tier);

/*
 * Open a pack that is a file.  As of a device; OWNER also if the file, a link to it
 * or not, belongs to neither this user nor root or can be written by others.
 */
KILN_API enum kiln_status kiln_pack_open(
	const char *path, const struct kiln_pack_options *options,
	struct kiln_tier **out_tier);

#ifdef __cplusplus
}
#endif
#endif /* KILN_PACK_H */
