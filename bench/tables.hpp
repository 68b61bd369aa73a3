/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_TABLES_HPP
#define KILN_BENCH_TABLES_HPP

/* For the tables of C++: a digest is a hash already. */

#include "tables.h"

inline bool operator==(const struct table_digest &a,
		       const struct table_digest &b)
{
	return a.low == b.low && a.high == b.high;
}

struct first_word {
	std::size_t operator()(const struct table_digest &digest) const
	{
		return digest.low;
	}
};

#endif /* KILN_BENCH_TABLES_HPP */
