/* SPDX-License-Identifier: MIT */

#include "find.h"

#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "entry.h"
#include "jobs.h"
#include "out.h"

static int is_prefix(const char *prefix)
{
	size_t length = strlen(prefix);

	return length >= KI_KEY_MIN && length <= 2 * KILN_DIGEST_BYTES &&
	       strspn(prefix, "0123456789abcdefABCDEF") == length;
}

static int matches(const struct kiln_entry *entry, const char *prefix)
{
	char key[2 * KILN_DIGEST_BYTES + 1];

	ki_hex(entry->digest, KILN_DIGEST_BYTES, key);
	return !strncasecmp(key, prefix, strlen(prefix));
}

static int complain_of_none(const struct ki_settings *settings,
			    const char *prefix)
{
	if (ki_jobs_has(settings->spool, prefix))
		ki_complain("'%s' is not made yet: a job for it waits; see "
			    "'kiln wait'",
			    prefix);
	else
		ki_complain("no entry begins with '%s'", prefix);
	return KI_EXIT_NOT_FOUND;
}

int ki_find_entry(struct kiln *kiln, const struct ki_settings *settings,
		  const char *prefix, struct kiln_entry *out_entry)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry, found = { .record = NULL };
	enum kiln_status status = KILN_END;
	size_t n = 0;

	if (!is_prefix(prefix)) {
		ki_complain("'%s' is no key: %d to %d hexadecimal digits",
			    prefix, KI_KEY_MIN, 2 * KILN_DIGEST_BYTES);
		return KI_EXIT_USAGE;
	}
	while (kiln && (status = kiln_list(kiln, &cursor, &entry)) == KILN_OK) {
		int is_same = n && !memcmp(entry.digest, found.digest,
					   KILN_DIGEST_BYTES);

		if (!matches(&entry, prefix) || is_same || n++)
			kiln_entry_fini(&entry);
		else
			found = entry;
	}
	if (status == KILN_END && n == 1) {
		*out_entry = found;
		return KI_EXIT_OK;
	}
	if (n)
		kiln_entry_fini(&found);
	if (status != KILN_END)
		return ki_store_failed(status, "cannot list");
	if (!n)
		return complain_of_none(settings, prefix);
	ki_complain("%zu entries begin with '%s': give more digits", n, prefix);
	return KI_EXIT_USAGE;
}

static int is_record(const struct kiln_entry *entry,
		     const struct kiln_field *field)
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	size_t size = kiln_blob_size(entry->record);

	if (size != field->original_size || field->size != sizeof(digest))
		return 0;
	ki_blake2b(kiln_blob_data(entry->record), size, digest);
	return !memcmp(digest, field->data, sizeof(digest));
}

int ki_find_record(struct kiln *kiln, const struct kiln_field *field,
		   struct kiln_entry *out_entry)
{
	struct kiln_cursor cursor = { { 0 } };

	while (!kiln_list(kiln, &cursor, out_entry)) {
		if (is_record(out_entry, field))
			return 1;
		kiln_entry_fini(out_entry);
	}
	return 0;
}
