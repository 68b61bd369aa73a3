/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_NEO_HELPERS_TEST_H
#define KI_STORE_NEO_HELPERS_TEST_H

/*
 * For the tests of this folder: entries by number, and the company of an
 * original.  Key n's value is as many bytes as wanted, all n % 251 + 1.
 * Strings that are returned are from malloc().
 */

#include "store/neo/neo.h"

#define HOUR_NS ((int64_t)3600 * 1000000000)

struct kiln_tier *open_with(const struct ki_sys *sys, const char *directory,
			    uint64_t bytes_max, uint32_t flags,
			    const char *layout);
struct kiln_tier *open_at(const char *directory, uint64_t bytes_max);
struct ki_neo *neo_of(struct kiln_tier *tier);

struct kiln_key *key_of(unsigned n);
enum kiln_status put_flags(struct kiln_tier *tier, unsigned n, size_t size,
			   unsigned flags);
enum kiln_status put(struct kiln_tier *tier, unsigned n, size_t size);
/* KILN_OK only with the right bytes. */
enum kiln_status get(struct kiln_tier *tier, unsigned n);
/* The path of key n's entry. */
char *path_of(struct kiln_tier *tier, unsigned n);

int exists(const char *path);
/* How many names there have this in them, for grep. */
unsigned n_names(const char *directory, const char *part);
/* What config.file says. */
uint64_t sum_of(const char *directory);
/* What it should say: the sizes of all entries, in both layouts. */
uint64_t sum_there(const char *directory);
void write_sum(const char *directory, const void *bytes, size_t size);
/* As the store counts. */
uint64_t bytes_of(struct kiln_tier *tier);

/* Last used, and written, so many hours ago; last used only. */
void set_age(const char *path, int hours);
void set_use(const char *path, int hours);
void set_use_of(struct kiln_tier *tier, unsigned n, int hours);

/* An entry as an original leaves it; its path. */
char *plant(const char *directory, const char *name, size_t size, int hours);
/* As writers do: written elsewhere, then renamed over what is there. */
void replace_file(const char *path, const char *bytes, size_t size);

#endif /* KI_STORE_NEO_HELPERS_TEST_H */
