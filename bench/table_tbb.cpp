/* SPDX-License-Identifier: MIT */

#include <tbb/concurrent_hash_map.h>

#include "tables.hpp"

namespace
{
struct compare {
	std::size_t hash(const table_digest &digest) const
	{
		return digest.low;
	}
	bool equal(const table_digest &a, const table_digest &b) const
	{
		return a == b;
	}
};

using map = tbb::concurrent_hash_map<table_digest, table_value *, compare>;

void *open_table(size_t n_max)
{
	return new map(n_max);
}

void close_table(void *table)
{
	auto *values = static_cast<map *>(table);

	for (auto &pair : *values)
		table_value_unref(pair.second);
	delete values;
}

void put(void *table, const table_item *item, const void *bytes, size_t size)
{
	table_value *value = table_value_new(bytes, size);
	{
		map::accessor place;

		static_cast<map *>(table)->insert(place, table_digest_of(item));
		std::swap(value, place->second);
	}
	table_value_unref(value);
}

inline table_value *get(void *table, const table_item *item)
{
	map::const_accessor place;

	return static_cast<map *>(table)->find(place, table_digest_of(item))
		       ? table_value_ref(place->second)
		       : nullptr;
}

TABLE_LOOK_UPS(get)
}

const struct table table_tbb = { "TBB concurrent_hash_map",
				 open_table,
				 close_table,
				 nullptr,
				 nullptr,
				 put,
				 hits,
				 look };
