/* SPDX-License-Identifier: MIT */

#include <stdlib.h>

#include "program/program.h"

char *ki_options_join(const char *const *parts, size_t n_parts)
{
	size_t size = 1;
	char *joined, *end;

	for (size_t i = 0; i < n_parts; i++)
		size += parts[i] ? strlen(parts[i]) + 1 : 0;
	joined = malloc(size);
	if (!joined)
		return NULL;
	end = joined;
	for (size_t i = 0; i < n_parts; i++) {
		if (!parts[i] || !*parts[i])
			continue;
		if (end != joined)
			*end++ = ' ';
		end = stpcpy(end, parts[i]);
	}
	*end = '\0';
	return joined;
}
