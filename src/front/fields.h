/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_FIELDS_H
#define KI_FRONT_FIELDS_H

/* Fields that are made once and added to many keys. */

#include <kiln/kiln.h>

struct ki_field {
	char *label;
	void *data;
	size_t size;
};

struct ki_fields {
	struct ki_field *fields;
	size_t n;
	int failed; /* 0 or -ENOMEM */
};

void ki_fields_fini(struct ki_fields *fields);
/* A field "GROUP NAME"; what goes wrong is remembered. */
void ki_fields_add(struct ki_fields *fields, const char *group,
		   const char *name, const void *data, size_t size);
void ki_fields_add_string(struct ki_fields *fields, const char *group,
			  const char *name, const char *text);
/* Add all to a key, `prefix` before their labels. */
void ki_fields_to_key(const struct ki_fields *fields, const char *prefix,
		      struct kiln_key *key);

#endif /* KI_FRONT_FIELDS_H */
