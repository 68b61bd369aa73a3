/* SPDX-License-Identifier: MIT */

/* std::unordered_map under a std::mutex. */

#include <mutex>
#include <unordered_map>

#include "tables.hpp"

namespace
{
struct locked {
	std::mutex mutex;
	std::unordered_map<table_digest, table_value *, first_word> values;
};

void *open_table(size_t n_max)
{
	auto *map = new locked;

	map->values.reserve(n_max);
	return map;
}

void close_table(void *table)
{
	auto *map = static_cast<locked *>(table);

	for (auto &pair : map->values)
		table_value_unref(pair.second);
	delete map;
}

void put(void *table, const table_item *item, const void *bytes, size_t size)
{
	auto *map = static_cast<locked *>(table);
	table_value *value = table_value_new(bytes, size);
	{
		std::lock_guard<std::mutex> guard(map->mutex);

		std::swap(value, map->values[table_digest_of(item)]);
	}
	table_value_unref(value);
}

inline table_value *get(void *table, const table_item *item)
{
	auto *map = static_cast<locked *>(table);
	std::lock_guard<std::mutex> guard(map->mutex);
	auto found = map->values.find(table_digest_of(item));

	return found == map->values.end() ? nullptr
					  : table_value_ref(found->second);
}

TABLE_LOOK_UPS(get)
}

const struct table table_map = { "unordered_map + mutex",
				 open_table,
				 close_table,
				 nullptr,
				 nullptr,
				 put,
				 hits,
				 look };
