/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_JSON_READ_H
#define KI_BASE_JSON_READ_H

/*
 * Reading JSON in place: no tree is made, a value is where its text is.
 *
 *	ki_json_parse(text, size, &root);
 *	ki_json_member(&root, "sources", &sources);
 *	for (element = ki_json_first(&sources); element.size;
 *	     element = ki_json_after(&sources, &element))
 *
 * All of a text is looked at by ki_json_parse(), so that what is inside needs no
 * further check.  Of what is not there, or of another kind, the answer is nothing:
 * 0, "", false.
 */

#include <stddef.h>
#include <stdint.h>

/* Borrowed text; size 0: nothing. */
struct ki_json_value {
	const char *text;
	size_t size;
};

/* 1: it is one value with nothing but blanks around it. */
int ki_json_parse(const char *text, size_t size,
		  struct ki_json_value *out_value);

/* Of an object. */
struct ki_json_value ki_json_member(const struct ki_json_value *object,
				    const char *name);
/* Of an array. */
struct ki_json_value ki_json_first(const struct ki_json_value *array);
struct ki_json_value ki_json_after(const struct ki_json_value *array,
				   const struct ki_json_value *element);

/* Digits alone; what does not fit is UINT64_MAX. */
uint64_t ki_json_number_of(const struct ki_json_value *value);
int ki_json_is_true(const struct ki_json_value *value);
/* A text, without its escapes, cut to fit; of \u only what ASCII has, a '?' for the
   rest.  Returns `out`. */
const char *ki_json_text_of(const struct ki_json_value *value, char *out,
			    size_t size);

#endif /* KI_BASE_JSON_READ_H */
