/* SPDX-License-Identifier: MIT */

#include "standin.h"

#include <stdlib.h>
#include <string.h>

void bytes_add(struct bytes *bytes, const void *data, size_t size)
{
	bytes->data = realloc(bytes->data, bytes->size + size + 1);
	if (!bytes->data)
		abort();
	memcpy(bytes->data + bytes->size, data, size);
	bytes->size += size;
}

void bytes_add_u32(struct bytes *bytes, uint32_t value)
{
	bytes_add(bytes, &value, sizeof(value));
}
