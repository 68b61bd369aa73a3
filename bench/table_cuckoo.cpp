/* SPDX-License-Identifier: MIT */

#include <libcuckoo/cuckoohash_map.hh>

#include "tables.hpp"

namespace
{
using map = libcuckoo::cuckoohash_map<table_digest, table_value *, first_word>;

void *open_table(size_t n_max)
{
	return new map(n_max);
}

void close_table(void *table)
{
	auto *values = static_cast<map *>(table);

	for (auto &pair : values->lock_table())
		table_value_unref(pair.second);
	delete values;
}

void put(void *table, const table_item *item, const void *bytes, size_t size)
{
	table_value *value = table_value_new(bytes, size), *old = nullptr;

	static_cast<map *>(table)->upsert(
		table_digest_of(item),
		[&](table_value *&place) {
			old = place;
			place = value;
		},
		value);
	table_value_unref(old);
}

inline table_value *get(void *table, const table_item *item)
{
	table_value *value = nullptr;

	static_cast<map *>(table)->find_fn(table_digest_of(item),
					   [&](table_value *found) {
						   value = table_value_ref(
							   found);
					   });
	return value;
}

TABLE_LOOK_UPS(get)
}

const struct table table_cuckoo = { "libcuckoo",
				    open_table,
				    close_table,
				    nullptr,
				    nullptr,
				    put,
				    hits,
				    look };
