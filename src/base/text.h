/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_TEXT_H
#define KI_BASE_TEXT_H

/* Values as people write and read them. */

#include <stddef.h>
#include <stdint.h>

/*
 * A size: digits, then nothing or one of K, M, G, T (either case; 1024).
 * 0, -EINVAL, or -ERANGE.
 */
int ki_parse_size(const char *text, uint64_t *out_bytes);

/* 0, 1, true, false, on, off (lower case).  0 or -EINVAL. */
int ki_parse_bool(const char *text, int *out_value);

/* "30d": seconds (s, or no letter), minutes (m), hours (h), days (d), weeks (w).
   0, -EINVAL, -ERANGE. */
int ki_parse_age(const char *text, uint64_t *out_seconds);

/* "1.5 GiB"; "12 bytes".  Returns `out`. */
const char *ki_format_size(uint64_t bytes, char *out, size_t size);

/* "3 min ago", "2 days ago", "just now". */
const char *ki_format_age(uint64_t seconds, char *out, size_t size);

/* "4.2 s", "17 min", "3.1 h". */
const char *ki_format_duration(uint64_t ns, char *out, size_t size);

/* Control characters become "?": what is shown or logged neither moves a cursor nor
   begins a line of its own.  Returns `text`. */
char *ki_tame_text(char *text);

/* The value of NAME in "NAME=VALUE" texts that end with NULL, as environ is; NULL
   if it is not there.  `list` may be NULL; the first of two counts. */
const char *ki_find_variable(const char *const *list, const char *name);

#endif /* KI_BASE_TEXT_H */
