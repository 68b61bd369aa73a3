/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_SYCL_HELPERS_TEST_H
#define KI_STORE_SYCL_HELPERS_TEST_H

/*
 * For the tests of this folder: entries by number, and what DPC++ leaves behind.
 * Key n says all four fields, from LONG on with an image of some size; its value is
 * as many bytes as wanted, all n % 251 + 1.  Strings that are returned are from malloc().
 */

#include "store/sycl/sycl.h"

#define LONG	   1000000
#define LONG_IMAGE 5000 /* bytes */

#define HOUR_NS ((int64_t)3600 * 1000000000)

struct kiln_tier *open_with(const char *directory, uint64_t bytes_max,
			    uint32_t flags);
struct kiln_tier *open_at(const char *directory, uint64_t bytes_max);
struct ki_sycl *sycl_of(struct kiln_tier *tier);

struct kiln_key *key_of(unsigned n);
enum kiln_status put_flags(struct kiln_tier *tier, unsigned n, size_t size,
			   unsigned flags);
enum kiln_status put(struct kiln_tier *tier, unsigned n, size_t size);
/* KILN_OK only with bytes of key n, so many of them; 0: any number. */
enum kiln_status get_sized(struct kiln_tier *tier, unsigned n, size_t size);
enum kiln_status get(struct kiln_tier *tier, unsigned n);

/* "DIRECTORY/d/i/s/o/<slot><suffix>" */
char *path_of(const char *directory, unsigned n, unsigned slot,
	      const char *suffix);
int exists(const char *directory, unsigned n, unsigned slot,
	   const char *suffix);
void write_at(const char *directory, unsigned n, unsigned slot,
	      const char *suffix, const void *bytes, size_t size);

/* An entry of key n as DPC++ writes it, of the time of that form, last used so
   many hours ago (below 0: without a time of access). */
enum form { NEWEST, INTERIM, OLDER_OF_TWO };
void plant_form(const char *directory, unsigned n, unsigned slot, size_t size,
		int hours, enum form form);
void plant(const char *directory, unsigned n, unsigned slot, size_t size,
	   int hours);
void set_use(const char *directory, unsigned n, unsigned slot, int hours);

/* What cache_size.txt says, as text; NULL. */
char *sum_text(const char *directory);
uint64_t sum_of(const char *directory);
/* Of .bin and .src. */
uint64_t bytes_on_disk(const char *directory);
unsigned n_names(const char *directory, const char *part);

#endif /* KI_STORE_SYCL_HELPERS_TEST_H */
