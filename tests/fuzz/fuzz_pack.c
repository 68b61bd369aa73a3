/* SPDX-License-Identifier: MIT */

/*
 * A pack on a device.  The first byte of the input says what the rest is: the
 * whole of it as it lies there; the same, of which the digests and checks are put
 * right first, as far as its numbers lead anywhere (so that what lies behind them
 * is reached); or changes to a sound pack, of place and byte, before that.  A
 * value that is found must be the one that was put under the key.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "fuzz/scratch.h"
#include "key/key.h"
#include "store/pack/pack.h"

#define N_ENTRIES 60

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "n", &n, sizeof(n));
	if (kiln_key_finish(key))
		abort();
	return key;
}

/* ---- The device --------------------------------------------------------------------- */

struct bytes {
	uint8_t *data;
	size_t size;
};

static int64_t size_of(void *context)
{
	const struct bytes *bytes = context;

	return (int64_t)bytes->size;
}

static ssize_t read_some(uint64_t offset, void *buffer, size_t count,
			 void *context)
{
	const struct bytes *bytes = context;

	if (offset > bytes->size || count > bytes->size - offset)
		abort(); /* asked for what there is not */
	memcpy(buffer, bytes->data + offset, count);
	return (ssize_t)count;
}

/* ---- A sound pack -------------------------------------------------------------------- */

static const struct bytes *sound_pack(void)
{
	static struct bytes sound;
	struct kiln_pack_writer *writer;
	char path[4200];
	void *data;

	if (sound.data)
		return &sound;
	snprintf(path, sizeof(path), "%s/sound.pack", scratch_directory());
	if (kiln_pack_create(path, NULL, &writer))
		abort();
	for (unsigned n = 0; n < N_ENTRIES; n++) {
		struct kiln_key *key = key_of(n);

		if (kiln_pack_add(writer, key, NULL, 0, &n, sizeof(n)))
			abort();
		kiln_key_free(key);
	}
	if (kiln_pack_finish(writer, NULL) ||
	    ki_read_file(&ki_sys_posix, path, (size_t)1 << 20, &data,
			 &sound.size))
		abort();
	sound.data = data;
	return &sound;
}

/* Three bytes say where, within the index or, from the top bit on, anywhere, and
   one by what. */
static void change(struct bytes *bytes, const uint8_t *data, size_t size)
{
	size_t index = (size_t)ki_get_u64(bytes->data + 40);

	for (; size >= 4; data += 4, size -= 4) {
		size_t place = ki_get_u32(data) & 0x7fffff;

		if (!(data[2] & 0x80))
			place = index + place % (bytes->size - index);
		bytes->data[place % bytes->size] ^= data[3];
	}
}

/* ---- Digests put right --------------------------------------------------------------- */

static void mend_index(struct bytes *bytes, uint64_t offset, uint64_t n_pages,
		       uint8_t digest[KI_BLAKE2B_BYTES])
{
	uint8_t *pages = bytes->data + offset;
	uint8_t *table = pages + n_pages * KI_PACK_PAGE_BYTES;

	for (uint64_t i = 0; i < n_pages; i++)
		ki_pack_table_write(pages + i * KI_PACK_PAGE_BYTES,
				    table + i * KI_PACK_TABLE_BYTES);
	ki_blake2b(table, (size_t)n_pages * KI_PACK_TABLE_BYTES, digest);
}

static void mend_root(struct bytes *bytes, uint8_t *root)
{
	uint64_t n_pages = ki_get_u64(root + 32);
	uint64_t offset = ki_get_u64(root + 40);

	if (n_pages < 64 && offset <= bytes->size &&
	    ki_pack_index_bytes(n_pages) <= bytes->size - offset)
		mend_index(bytes, offset, n_pages, root + 96);
	ki_put_u64(root + KI_PACK_ROOT_BYTES - 8,
		   ki_xxh3_64(root, KI_PACK_ROOT_BYTES - 8));
}

static void mend(struct bytes *bytes)
{
	if (bytes->size < 2 * KI_PACK_ROOT_BYTES)
		return;
	mend_root(bytes, bytes->data);
	mend_root(bytes, bytes->data + bytes->size - KI_PACK_ROOT_BYTES);
}

/* ---- Using it ------------------------------------------------------------------------- */

static void get_all(struct kiln_tier *tier)
{
	for (unsigned n = 0; n < N_ENTRIES; n++) {
		struct kiln_key *key = key_of(n);
		struct kiln_blob *blob, *metadata;
		const struct kiln_key *keys[] = { key };

		tier->ops->prefetch(tier, keys, 1);
		if (!tier->ops->get(tier, key, &blob, &metadata)) {
			if (kiln_blob_size(blob) != sizeof(n) ||
			    memcmp(kiln_blob_data(blob), &n, sizeof(n)) != 0)
				abort();
			kiln_blob_unref(blob);
			kiln_blob_unref(metadata);
		}
		kiln_key_free(key);
	}
}

static void use(struct bytes *bytes, uint32_t flags)
{
	const struct kiln_pack_options options = { .size = sizeof(options),
						   .flags = flags };
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_verify_report report;
	struct kiln_pack_device device;
	struct kiln_store_info info;
	struct kiln_entry entry;
	struct kiln_tier *tier;

	kiln_pack_device_init(&device);
	device.bytes = size_of;
	device.read = read_some;
	device.context = bytes;
	if (kiln_pack_open_device(&device, &options, &tier))
		return;
	while (!tier->ops->list(tier, &cursor, &entry))
		kiln_entry_fini(&entry);
	get_all(tier);
	(void)tier->ops->verify(tier, 0, NULL, NULL, &report);
	(void)tier->ops->info(tier, &info);
	tier->ops->close(tier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct bytes *sound = sound_pack();
	struct bytes bytes;
	int what;

	if (!size)
		return 0;
	what = *data++;
	size--;
	bytes.size = what % 3 == 2 ? sound->size : size;
	bytes.data = malloc(bytes.size ? bytes.size : 1);
	if (!bytes.data)
		return 0;
	if (what % 3 == 2) {
		memcpy(bytes.data, sound->data, sound->size);
		change(&bytes, data, size);
	} else if (size) {
		memcpy(bytes.data, data, size);
	}
	if (what % 3)
		mend(&bytes);
	use(&bytes, what & 0x80 ? KILN_PACK_SALVAGE : 0);
	free(bytes.data);
	return 0;
}
