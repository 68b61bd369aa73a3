/* SPDX-License-Identifier: MIT */

#include "shard.h"

#include <string.h>

#include "base/hash.h"

uint64_t shard_hash(const char *url)
{
	return ki_xxh3_64(url, strlen(url));
}

static uint64_t weigh(const uint8_t name[KI_REMOTE_NAME_BYTES], uint64_t hash)
{
	uint8_t both[KI_REMOTE_NAME_BYTES + 8];

	memcpy(both, name, KI_REMOTE_NAME_BYTES);
	ki_put_u64(both + KI_REMOTE_NAME_BYTES, hash);
	return ki_xxh3_64(both, sizeof(both));
}

size_t shard_of(const uint8_t name[KI_REMOTE_NAME_BYTES],
		const uint64_t *hashes, size_t n)
{
	uint64_t weight, heaviest = 0;
	size_t best = 0;

	if (n == 1)
		return 0;
	for (size_t i = 0; i < n; i++) {
		weight = weigh(name, hashes[i]);
		if (!i || weight > heaviest ||
		    (weight == heaviest && hashes[i] > hashes[best])) {
			heaviest = weight;
			best = i;
		}
	}
	return best;
}
