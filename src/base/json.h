/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_JSON_H
#define KI_BASE_JSON_H

/*
 * Writing JSON.  Commas and escapes are right by construction; begin and end
 * must be paired by the caller.  Bytes that are not UTF-8 come out as U+FFFD.
 *
 *	ki_json_begin(&json, &bytes);
 *	ki_json_object(&json, NULL);
 *	ki_json_number(&json, "schema", 1);
 *	ki_json_end(&json);
 */

#include "base/bytes.h"

#define KI_JSON_DEPTH_MAX 16

struct ki_json {
	struct ki_bytes *bytes;
	int depth;
	char closers[KI_JSON_DEPTH_MAX];
	int has_members[KI_JSON_DEPTH_MAX];
};

void ki_json_begin(struct ki_json *json, struct ki_bytes *bytes);

/* `name` is NULL inside arrays and at the top. */
void ki_json_object(struct ki_json *json, const char *name);
void ki_json_array(struct ki_json *json, const char *name);
void ki_json_end(struct ki_json *json); /* of the innermost of these */

void ki_json_string(struct ki_json *json, const char *name, const char *value);
void ki_json_string_n(struct ki_json *json, const char *name, const char *value,
		      size_t size);
void ki_json_number(struct ki_json *json, const char *name, uint64_t value);
void ki_json_double(struct ki_json *json, const char *name, double value);
void ki_json_bool(struct ki_json *json, const char *name, int value);
void ki_json_null(struct ki_json *json, const char *name);
/* A value that is JSON already. */
void ki_json_ready(struct ki_json *json, const char *name, const char *value);

#endif /* KI_BASE_JSON_H */
