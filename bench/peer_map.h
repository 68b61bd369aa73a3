/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_PEER_MAP_H
#define KILN_BENCH_PEER_MAP_H

/*
 * What a C++ programmer writes in place of a memory tier: std::unordered_map
 * by a 16-byte digest, under a std::mutex, values counted.  No bound, no key
 * records, nothing is compared but the digest.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct peer_value;

void peer_put(const uint8_t digest[16], const void *data, size_t size);
/* One reference, or NULL. */
struct peer_value *peer_get(const uint8_t digest[16]);
void peer_unref(struct peer_value *value);
const void *peer_data(const struct peer_value *value);

#ifdef __cplusplus
}
#endif
#endif /* KILN_BENCH_PEER_MAP_H */
