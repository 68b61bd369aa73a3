/* SPDX-License-Identifier: MIT */

#include "front/family.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

/* ---- Why it missed ------------------------------------------------------- */

/* Groups of fields by the beginning of their labels, in the order in which
   they are blamed. */
static const struct group {
	const char *prefixes[4];
	enum kiln_counter counter;
} GROUPS[] = {
	{ { "platform ", "compiler " }, KILN_COUNT_MISS_COMPILER },
	{ { "device " }, KILN_COUNT_MISS_DEVICE },
	/* "module N ...": more than one that are made into one. */
	{ { "options", "constant ", "module " }, KILN_COUNT_MISS_OPTIONS },
	{ { "include ", "header " }, KILN_COUNT_MISS_INCLUDE },
	{ { "environment ", "layer " }, KILN_COUNT_MISS_ENVIRONMENT },
	/* What else an input's key may hold. */
	{ { "input " }, KILN_COUNT_MISS_INCLUDE },
};

static int is_in(const struct group *group, const struct kiln_field *field)
{
	size_t i, size;

	for (i = 0; group->prefixes[i]; i++) {
		size = strlen(group->prefixes[i]);
		if (field->label_size >= size &&
		    !memcmp(field->label, group->prefixes[i], size))
			return 1;
	}
	return 0;
}

/* One number for all fields of a group, in their order. */
static uint64_t hash_of(const struct group *group, const void *record,
			size_t size)
{
	struct kiln_field field;
	size_t position = 0;
	uint64_t hash = 0;

	while (!kiln_record_next(record, size, &position, &field)) {
		uint64_t frame[] = { hash, field.kind, field.original_size };
		struct ki_piece pieces[] = {
			{ frame, sizeof(frame) },
			{ &field.label_size, sizeof(field.label_size) },
			{ field.label, field.label_size },
			{ field.data, field.size },
		};

		if (is_in(group, &field))
			hash = ki_xxh3_64_pieces(pieces, 4);
	}
	return hash;
}

enum kiln_counter ki_family_miss_reason(const struct kiln_key *key,
					const void *record, size_t size)
{
	size_t i, own_size;
	const void *own = kiln_key_record(key, &own_size);

	for (i = 0; i < sizeof(GROUPS) / sizeof(GROUPS[0]); i++)
		if (hash_of(&GROUPS[i], own, own_size) !=
		    hash_of(&GROUPS[i], record, size))
			return GROUPS[i].counter;
	return KILN_COUNT_MISS_NEW;
}

/* ---- The family ----------------------------------------------------------- */

enum kiln_status ki_family_key(const struct kiln_key *key, const char *kind,
			       const struct kiln_field *source,
			       struct kiln_key **out_family)
{
	struct kiln_key *family;
	struct kiln_field of;
	enum kiln_status status;
	size_t size;
	const void *record = kiln_key_record(key, &size);

	if (source->kind != KILN_FIELD_DIGEST ||
	    kiln_record_find(record, size, "kind", &of))
		return KILN_E_INVALID;
	family = kiln_key_new();
	kiln_key_add_string(family, "kind", kind);
	kiln_key_add(family, "of", of.data, of.size);
	kiln_key_add_known_digest(family, "source", source->original_size,
				  source->data);
	status = kiln_key_finish(family);
	if (status)
		kiln_key_free(family);
	else
		*out_family = family;
	return status;
}

void ki_family_keep(struct kiln *kiln, const struct kiln_key *key,
		    const struct kiln_key *family, const char *front)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	const void *record;
	size_t size;

	kiln_metadata_add_u64(metadata, KILN_META_FLAGS, KILN_ENTRY_HIDDEN);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, front);
	record = kiln_key_record(key, &size);
	if (metadata)
		(void)kiln_put(kiln, family, record, size, metadata,
			       KILN_PUT_REPLACE);
	kiln_metadata_free(metadata);
}

enum kiln_counter ki_family_reason(struct kiln *kiln,
				   const struct kiln_key *key,
				   const struct kiln_key *family)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	struct kiln_blob *record = NULL, *metadata = NULL;

	if (!kiln_peek(kiln, family, &record, &metadata))
		reason = ki_family_miss_reason(key, kiln_blob_data(record),
					       kiln_blob_size(record));
	kiln_blob_unref(record);
	kiln_blob_unref(metadata);
	return reason;
}
