/* SPDX-License-Identifier: MIT */

#include "layers.h"

#include <stdio.h>
#include <string.h>

static int is_listed(const char *list, const char *path)
{
	size_t length = strlen(path);

	for (; list; list = strchr(list, ':')) {
		list += *list == ':';
		if (!strncmp(list, path, length) &&
		    (!list[length] || list[length] == ':'))
			return 1;
	}
	return 0;
}

char *ki_layers_with(const char *others, const char *layer)
{
	char *list;

	if (!others || !*others)
		return strdup(layer);
	if (is_listed(others, layer))
		return strdup(others);
	if (asprintf(&list, "%s:%s", layer, others) < 0)
		return NULL;
	return list;
}

int ki_layers_can_name(const char *layer)
{
	return !strchr(layer, ':');
}
