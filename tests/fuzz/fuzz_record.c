/* SPDX-License-Identifier: MIT */

/*
 * Key records and metadata, as stores, packs and servers hand them to us.  What
 * must hold besides surviving: a record that makes a key is that key's record.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "key/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(const void *data, size_t size)
{
	static volatile uint8_t sum;

	for (size_t i = 0; i < size; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
}

static void read_record(const uint8_t *data, size_t size)
{
	struct kiln_field field;
	struct kiln_key *key;
	size_t position = 0, record_size;
	const void *record;

	while (!kiln_record_next(data, size, &position, &field)) {
		touch(field.label, field.label_size);
		touch(field.data, field.size);
	}
	(void)kiln_record_find(data, size, "source", &field);
	if (kiln_key_from_record(data, size, &key))
		return;
	record = kiln_key_record(key, &record_size);
	if (record_size != size || memcmp(record, data, size) != 0)
		abort();
	kiln_key_free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const void *found;
	size_t found_size;
	uint64_t value;

	read_record(data, size);
	for (unsigned tag = 0; tag < 16; tag++) {
		if (!kiln_metadata_find(data, size,
					(enum kiln_metadata_field)tag, &found,
					&found_size))
			touch(found, found_size);
		(void)kiln_metadata_find_u64(
			data, size, (enum kiln_metadata_field)tag, &value);
	}
	return 0;
}
