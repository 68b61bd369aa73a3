/* SPDX-License-Identifier: MIT */

#include "front/fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ki_fields_fini(struct ki_fields *fields)
{
	size_t i;

	for (i = 0; i < fields->n; i++) {
		free(fields->fields[i].label);
		free(fields->fields[i].data);
	}
	free(fields->fields);
	*fields = (struct ki_fields){ 0 };
}

void ki_fields_add(struct ki_fields *fields, const char *group,
		   const char *name, const void *data, size_t size)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	struct ki_field *grown;

	if (fields->failed)
		return;
	snprintf(label, sizeof(label), "%s %s", group, name);
	grown = realloc(fields->fields, (fields->n + 1) * sizeof(*grown));
	if (!grown) {
		fields->failed = -ENOMEM;
		return;
	}
	fields->fields = grown;
	grown += fields->n;
	grown->label = strdup(label);
	grown->data = malloc(size + 1);
	grown->size = size;
	fields->n++;
	if (!grown->label || !grown->data)
		fields->failed = -ENOMEM;
	else
		memcpy(grown->data, data, size);
}

void ki_fields_add_string(struct ki_fields *fields, const char *group,
			  const char *name, const char *text)
{
	ki_fields_add(fields, group, name, text, strlen(text));
}

void ki_fields_to_key(const struct ki_fields *fields, const char *prefix,
		      struct kiln_key *key)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	size_t i;

	for (i = 0; i < fields->n; i++) {
		snprintf(label, sizeof(label), "%s%s", prefix,
			 fields->fields[i].label);
		kiln_key_add(key, label, fields->fields[i].data,
			     fields->fields[i].size);
	}
}
