/* SPDX-License-Identifier: MIT */

/*
 * The files of a store of one file per entry.  The first byte of the input says
 * which file the rest is: an entry, an entry whose checksums are put right
 * first (so that what lies behind them is reached), settings, or usage.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "fuzz/scratch.h"
#include "key/key.h"
#include "store/store.h"
#include "tier/envelope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char value[] = "the one value";

static struct kiln_key *new_key(void)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "source", "kernel");
	if (kiln_key_finish(key))
		abort();
	return key;
}

static void write_at(const char *name, const void *data, size_t size)
{
	char path[4300];

	snprintf(path, sizeof(path), "%s/kiln.files", scratch_directory());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/kiln.files/%.2s", scratch_directory(),
		 name);
	if (strlen(name) == 32)
		mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/kiln.files/%.2s%s%s",
		 scratch_directory(), strlen(name) == 32 ? name : "",
		 strlen(name) == 32 ? "/" : "", name);
	scratch_write(path, data, size);
}

static void write_entry(const uint8_t *digest, const uint8_t *data, size_t size)
{
	char digits[2 * KILN_DIGEST_BYTES + 1];

	ki_hex(digest, KILN_DIGEST_BYTES, digits);
	write_at(digits, data, size);
}

static void write_mended_entry(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size);

	if (!copy)
		return;
	memcpy(copy, data, size);
	ki_put_u64(copy + 40, ki_xxh3_64(copy + KI_ENVELOPE_HEADER_BYTES,
					 size - KI_ENVELOPE_HEADER_BYTES));
	ki_put_u64(copy + 56, ki_xxh3_64(copy, 56));
	write_entry(copy + 8, copy, size);
	free(copy);
}

static void use(const struct kiln_key *key, int may_be_other)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = scratch_directory() };
	struct kiln_cursor cursor = { { 0 } };
	static const struct kiln_gc_options gc = { .age_max_s = 1 << 30 };
	struct kiln_verify_report report;
	struct kiln_gc_report cleaned;
	struct kiln_blob *blob, *metadata;
	struct kiln_entry entry;
	struct kiln_tier *tier;

	if (ki_store_file_open(&options, &tier))
		return;
	while (!tier->ops->list(tier, &cursor, &entry)) {
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
	}
	if (!tier->ops->get(tier, key, &blob, &metadata)) {
		if (!may_be_other &&
		    (kiln_blob_size(blob) != sizeof(value) ||
		     memcmp(kiln_blob_data(blob), value, sizeof(value)) != 0))
			abort();
		kiln_blob_unref(blob);
		kiln_blob_unref(metadata);
	}
	(void)tier->ops->put(tier, key, NULL, 0, value, sizeof(value), 0);
	(void)tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL, &report);
	(void)tier->ops->gc(tier, &gc, NULL, NULL, &cleaned);
	tier->ops->close(tier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kiln_key *key;
	int what;

	if (!size)
		return 0;
	what = *data++ % 4;
	size--;
	key = new_key();
	scratch_empty(scratch_directory());
	if (what == 0)
		write_entry(key->digest, data, size);
	else if (what == 1 && size >= KI_ENVELOPE_HEADER_BYTES)
		write_mended_entry(data, size);
	else if (what == 2)
		write_at("settings", data, size);
	else if (what == 3)
		write_at("usage", data, size);
	use(key, what == 1);
	kiln_key_free(key);
	return 0;
}
