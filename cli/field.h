/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_FIELD_H
#define KI_CLI_FIELD_H

/* A field of a key record as people read it. */

#include <kiln/inspect.h>

#include "base/json.h"

/* Whether the value is a text; an empty one is. */
int ki_field_is_text(const struct kiln_field *field);

/* Append label or value, made harmless: a text as it is, a number (4 or 8
   bytes that are no text) in decimals, other bytes in hexadecimal. */
void ki_field_label(struct ki_bytes *out, const struct kiln_field *field);
void ki_field_value(struct ki_bytes *out, const struct kiln_field *field);

/* An object of this name (NULL: in an array), {"label", "kind", "local", "value" or "hex", ...}. */
void ki_field_json(struct ki_json *json, const char *name,
		   const struct kiln_field *field);

#endif /* KI_CLI_FIELD_H */
