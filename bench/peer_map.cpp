/* SPDX-License-Identifier: MIT */

#include "peer_map.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

struct peer_value {
	std::atomic<long> refs{1};
	std::vector<unsigned char> bytes;
};

namespace
{
using digest = std::array<uint8_t, 16>;

/* A digest is a hash already. */
struct first_bytes {
	std::size_t operator()(const digest &key) const
	{
		std::size_t value;

		std::memcpy(&value, key.data(), sizeof(value));
		return value;
	}
};

std::mutex mutex;
std::unordered_map<digest, peer_value *, first_bytes> map;

digest digest_of(const uint8_t bytes[16])
{
	digest key;

	std::memcpy(key.data(), bytes, key.size());
	return key;
}
}

void peer_put(const uint8_t bytes[16], const void *data, size_t size)
{
	auto *first = static_cast<const unsigned char *>(data);
	auto *value = new peer_value;

	value->bytes.assign(first, first + size);
	std::lock_guard<std::mutex> guard(mutex);
	map[digest_of(bytes)] = value;
}

peer_value *peer_get(const uint8_t bytes[16])
{
	std::lock_guard<std::mutex> guard(mutex);
	auto found = map.find(digest_of(bytes));

	if (found == map.end())
		return nullptr;
	found->second->refs.fetch_add(1, std::memory_order_relaxed);
	return found->second;
}

void peer_unref(peer_value *value)
{
	if (value->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete value;
}

const void *peer_data(const peer_value *value)
{
	return value->bytes.data();
}
