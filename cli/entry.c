/* SPDX-License-Identifier: MIT */

#include "entry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sys/sys.h"

static char *string_of(const struct kiln_entry *entry,
		       enum kiln_metadata_field field)
{
	const void *data = "";
	size_t size = 0;

	if (entry->metadata)
		(void)kiln_metadata_find(kiln_blob_data(entry->metadata),
					 kiln_blob_size(entry->metadata), field,
					 &data, &size);
	return strndup(data, size);
}

static char *namespace_of(const struct kiln_entry *entry)
{
	char name[KILN_NAMESPACE_BYTES] = "";

	if (entry->metadata)
		(void)kiln_namespace_of(kiln_blob_data(entry->metadata),
					kiln_blob_size(entry->metadata), name);
	return strdup(name);
}

static uint64_t number_of(const struct kiln_entry *entry,
			  enum kiln_metadata_field field)
{
	uint64_t value = 0;

	if (entry->metadata)
		(void)kiln_metadata_find_u64(kiln_blob_data(entry->metadata),
					     kiln_blob_size(entry->metadata),
					     field, &value);
	return value;
}

int ki_entry_view_init(struct ki_entry_view *view,
		       const struct kiln_entry *entry)
{
	uint64_t now = ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000;

	memset(view, 0, sizeof(*view));
	ki_hex(entry->digest, KILN_DIGEST_BYTES, view->key);
	memcpy(view->short_key, view->key, KI_SHORT_KEY);
	view->front = string_of(entry, KILN_META_FRONT);
	view->application = string_of(entry, KILN_META_APPLICATION);
	view->name_space = namespace_of(entry);
	view->directory = string_of(entry, KILN_META_DIRECTORY);
	view->options = string_of(entry, KILN_META_OPTIONS);
	view->created = number_of(entry, KILN_META_CREATED);
	view->age_s = view->created < now ? now - view->created : 0;
	view->build_ns = number_of(entry, KILN_META_BUILD_TIME);
	view->stage = number_of(entry, KILN_META_STAGE);
	view->value_size = entry->value_size;
	view->stored_size = entry->stored_size;
	view->is_referenced = entry->referenced;
	view->is_foreign = entry->is_foreign;
	view->file = strdup(entry->file);
	view->used = entry->used;
	view->used_age_s = view->used < now ? now - view->used : 0;
	view->turn = entry->turn;
	view->is_hidden =
		number_of(entry, KILN_META_FLAGS) & KILN_ENTRY_HIDDEN ? 1 : 0;
	return view->front && view->application && view->name_space &&
			       view->directory && view->options && view->file
		       ? 0
		       : -ENOMEM;
}

void ki_entry_view_fini(struct ki_entry_view *view)
{
	free(view->front);
	free(view->application);
	free(view->name_space);
	free(view->directory);
	free(view->options);
	free(view->file);
}

void ki_entry_json_open(struct ki_json *json, const char *name,
			const struct ki_entry_view *view)
{
	ki_json_object(json, name);
	ki_json_string(json, "key", view->key);
	ki_json_string(json, "front", view->front);
	ki_json_number(json, "bytes", view->value_size);
	ki_json_number(json, "bytes_stored", view->stored_size);
	ki_json_number(json, "stage", view->stage);
	ki_json_number(json, "created", view->created);
	ki_json_number(json, "build_ns", view->build_ns);
	ki_json_string(json, "application", view->application);
	ki_json_string(json, "namespace", view->name_space);
	ki_json_string(json, "directory", view->directory);
	ki_json_string(json, "options", view->options);
	ki_json_bool(json, "referenced", view->is_referenced);
	ki_json_bool(json, "hidden", view->is_hidden);
	ki_json_bool(json, "foreign", view->is_foreign);
	if (*view->file) {
		ki_json_string(json, "file", view->file);
		ki_json_number(json, "used", view->used);
		ki_json_number(json, "turn", view->turn);
	}
}

void ki_entry_json(struct ki_json *json, const char *name,
		   const struct ki_entry_view *view)
{
	ki_entry_json_open(json, name, view);
	ki_json_end(json);
}

const char *ki_last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}
