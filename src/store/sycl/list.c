/* SPDX-License-Identifier: MIT */

/*
 * Listing: kiln's entries by their records, then those that no record is about,
 * which are DPC++'s own.
 *
 * These are listed with a key record of local fields: first the name in the
 * directory, "sycl.entry", or "kernel_compiler.entry" for what has no .src and
 * so no key at all; then what .src says, for who reads it.  Such a key is found by
 * nobody who asks for a value; who has the four fields finds the former by them.
 *
 * A survey of the directory is made when a listing begins: for the turn of each
 * entry in eviction, and as the order of foreign ones, by a hash of their names,
 * so that a cursor is a number that survives changes.  It goes with the end of the
 * listing.  Two listings at a time may share one.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/sycl.h>

#include "base/blob.h"
#include "base/hash.h"
#include "base/status.h"
#include "key/key.h"

#define SECOND_NS ((int64_t)1000000000)

static const char label[] = "sycl.entry";
static const char ext_label[] = "kernel_compiler.entry";
static const char ext_prefix[] = "ext_kernel_compiler/";

/* Places of a cursor. */
enum { SERIAL, IS_FOREIGN, NEXT_HASH };

struct ki_sycl_listed {
	uint64_t hash;
	size_t file;
};

/* ---- The survey --------------------------------------------------------------------- */

void ki_sycl_survey_end(struct ki_sycl_survey *survey)
{
	ki_sycl_plan_end(&survey->plan);
	free(survey->places);
	survey->places = NULL;
}

static const char *name_of(const struct ki_sycl_survey *survey, size_t file)
{
	return (const char *)survey->plan.names.data +
	       survey->plan.files[file].name;
}

/* Leaves room for the one behind the last. */
static uint64_t hash_of(const char *name)
{
	return ki_xxh3_64(name, strlen(name)) >> 1;
}

static int by_hash(const void *a, const void *b)
{
	const struct ki_sycl_listed *x = a, *y = b;

	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static int survey_begin(struct ki_sycl *sycl) KI_REQUIRES(&sycl->lister)
{
	struct ki_sycl_survey *survey = &sycl->survey;
	int err;

	ki_sycl_survey_end(survey);
	err = ki_sycl_plan_all(sycl, &survey->plan);
	if (err)
		return err;
	survey->places = malloc((survey->plan.n + 1) * sizeof(*survey->places));
	if (!survey->places) {
		ki_sycl_survey_end(survey);
		return -ENOMEM;
	}
	for (size_t i = 0; i < survey->plan.n; i++)
		survey->places[i] = (struct ki_sycl_listed){
			.hash = hash_of(name_of(survey, i)), .file = i
		};
	if (survey->plan.n)
		qsort(survey->places, survey->plan.n, sizeof(*survey->places),
		      by_hash);
	return 0;
}

/* The first of at least this hash; n if there is none. */
static size_t find_place(const struct ki_sycl_survey *survey, uint64_t hash)
{
	size_t low = 0, high = survey->plan.n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (survey->places[middle].hash < hash)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* When eviction would take it, and when it was used; 0 if it is new. */
static uint64_t turn_of(struct ki_sycl *sycl, const char *stem,
			int64_t *out_used_ns)
{
	const struct ki_sycl_survey *survey = &sycl->survey;
	uint64_t turn = 0;
	size_t place;

	*out_used_ns = 0;
	ki_mutex_lock(&sycl->lister);
	place = survey->places ? find_place(survey, hash_of(stem)) : 0;
	if (survey->places && place < survey->plan.n) {
		const size_t file = survey->places[place].file;

		if (!strcmp(name_of(survey, file), stem)) {
			turn = file + 1;
			*out_used_ns = survey->plan.files[file].used_ns;
		}
	}
	ki_mutex_unlock(&sycl->lister);
	return turn;
}

static enum kiln_status begin_listing(struct ki_sycl *sycl)
{
	int err = ki_sycl_refresh(sycl);

	if (err >= 0) {
		ki_mutex_lock(&sycl->lister);
		err = survey_begin(sycl);
		ki_mutex_unlock(&sycl->lister);
	}
	return err < 0 ? ki_status_from_errno(err) : KILN_OK;
}

/* The next name of the survey, a new one if another listing ended it.  KILN_OK,
   KILN_END. */
static enum kiln_status next_name(struct ki_sycl *sycl, uint64_t *hash,
				  char out_name[KI_SYCL_NAME_BYTES])
{
	struct ki_sycl_survey *survey = &sycl->survey;
	enum kiln_status status = KILN_END;
	size_t place;
	int err = 0;

	ki_mutex_lock(&sycl->lister);
	if (!survey->places)
		err = survey_begin(sycl);
	if (err) {
		status = ki_status_from_errno(err);
		goto out;
	}
	place = find_place(survey, *hash);
	if (place == survey->plan.n) {
		ki_sycl_survey_end(survey);
		goto out;
	}
	strcpy(out_name, name_of(survey, survey->places[place].file));
	*hash = survey->places[place].hash + 1;
	status = KILN_OK;
out:
	ki_mutex_unlock(&sycl->lister);
	return status;
}

/* ---- Foreign ones ----------------------------------------------------------------------- */

static int is_ext(const char *stem)
{
	return !strncmp(stem, ext_prefix, sizeof(ext_prefix) - 1);
}

/* A name where the walk would find it: nothing that leads elsewhere. */
static int is_stem(const char *stem)
{
	char name[KI_SYCL_NAME_BYTES + 8];

	if (!is_ext(stem)) {
		snprintf(name, sizeof(name), "%s.bin", stem);
		return ki_sycl_is_name(name);
	}
	return !strstr(stem, "/.") && !strstr(stem, "//") &&
	       stem[strlen(stem) - 1] != '/';
}

unsigned ki_sycl_is_foreign(const struct ki_sycl *sycl, const char *stem)
{
	char name[KI_SYCL_NAME_BYTES + 4];
	struct ki_record_found found;
	struct ki_file_info bin, src;
	unsigned has = 0;

	if (!ki_sycl_look(sycl, stem, ".bin", &bin))
		has |= KI_SYCL_BIN;
	if (!ki_sycl_look(sycl, stem, ".src", &src))
		has |= KI_SYCL_SRC;
	snprintf(name, sizeof(name), "%s.bin", stem);
	if (!(has & KI_SYCL_BIN))
		/* What is left of kiln's. */
		return ki_records_by_name(sycl->records, name, &found) ? has
								       : 0;
	if (!ki_records_by_file(sycl->records, name, bin.inode, &found) &&
	    ki_sycl_compare(&found, &bin) == KI_SYCL_THERE)
		return 0;
	return has;
}

static void add_text(struct kiln_key *key, const char *name, const char *text)
{
	kiln_key_add_local(key, name, text, strlen(text));
}

static void add_size(struct kiln_key *key, const char *name, uint64_t size)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
	add_text(key, name, text);
}

/* Of what has a .src. */
static enum kiln_status describe(const struct ki_sycl *sycl, const char *stem,
				 struct kiln_sycl_source *out_source)
{
	char path[KI_PATH_MAX];

	if (is_ext(stem) || ki_sycl_path_of(sycl, stem, ".src", path))
		return KILN_MISS;
	return ki_sycl_describe(sycl->sys, path, out_source);
}

enum kiln_status ki_sycl_foreign_key(const struct ki_sycl *sycl,
				     const char *stem,
				     struct kiln_key **out_key)
{
	struct kiln_key *key = kiln_key_new();
	struct kiln_sycl_source is;
	enum kiln_status status;

	add_text(key, is_ext(stem) ? ext_label : label, stem);
	if (!describe(sycl, stem, &is)) {
		add_text(key, "device", is.device_text);
		add_text(key, "options", is.options_text);
		add_size(key, "bytes of constants", is.constants.size);
		add_size(key, "bytes of images", is.images.size);
	}
	status = kiln_key_finish(key);
	if (status)
		kiln_key_free(key);
	else
		*out_key = key;
	return status;
}

int ki_sycl_is_foreign_key(const struct ki_sycl *sycl,
			   const struct kiln_key *key,
			   char out_stem[KI_SYCL_NAME_BYTES])
{
	const void *record = key->record.data;
	const size_t size = key->record.size;
	struct kiln_field field;
	size_t position = 0;
	const char *wanted;

	if (kiln_record_next(record, size, &position, &field) ||
	    field.kind != KILN_FIELD_BYTES || !field.local || !field.size ||
	    field.size >= KI_SYCL_NAME_BYTES ||
	    memchr(field.data, '\0', field.size))
		return 0;
	memcpy(out_stem, field.data, field.size);
	out_stem[field.size] = '\0';
	wanted = is_ext(out_stem) ? ext_label : label;
	return field.label_size == strlen(wanted) &&
	       !memcmp(field.label, wanted, field.label_size) &&
	       is_stem(out_stem);
}

static enum kiln_status make_record(const struct ki_sycl *sycl,
				    const char *stem, struct kiln_entry *entry)
{
	struct kiln_key *key = NULL;
	enum kiln_status status = ki_sycl_foreign_key(sycl, stem, &key);

	if (!status) {
		memcpy(entry->digest, key->digest, KILN_DIGEST_BYTES);
		status = kiln_blob_copy(key->record.data, key->record.size,
					&entry->record);
	}
	kiln_key_free(key);
	return status;
}

static enum kiln_status make_metadata(const struct ki_sycl *sycl,
				      const char *stem, int64_t mtime_ns,
				      struct kiln_entry *entry)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_sycl_source is;
	enum kiln_status status;
	const void *bytes;
	size_t size;

	kiln_metadata_add_string(metadata, KILN_META_FRONT,
				 is_ext(stem) ? "kernel_compiler" : "sycl");
	if (!describe(sycl, stem, &is))
		kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
					 is.options_text);
	if (mtime_ns > 0)
		kiln_metadata_add_u64(metadata, KILN_META_CREATED,
				      (uint64_t)(mtime_ns / SECOND_NS));
	status = kiln_metadata_bytes(metadata, &bytes, &size);
	if (!status)
		status = kiln_blob_copy(bytes, size, &entry->metadata);
	kiln_metadata_free(metadata);
	return status;
}

/* ---- Entries ------------------------------------------------------------------------------ */

/* Of whatever there is of it: .bin before .src. */
static void fill_in(struct ki_sycl *sycl, const char *stem,
		    struct kiln_entry *entry, int64_t *out_mtime_ns)
{
	struct ki_file_info bin = { 0 }, src = { 0 };
	int64_t used_ns;
	const int has_bin = !ki_sycl_look(sycl, stem, ".bin", &bin);
	const int has_src = !ki_sycl_look(sycl, stem, ".src", &src);

	snprintf(entry->file, sizeof(entry->file), "%s%s", stem,
		 has_bin ? ".bin" : ".src");
	entry->stored_size =
		(has_bin ? bin.size : 0) + (has_src ? src.size : 0);
	entry->turn = turn_of(sycl, stem, &used_ns);
	*out_mtime_ns = has_bin ? bin.mtime_ns : src.mtime_ns;
	if (!ki_sycl_read_use(sycl, stem, &used_ns))
		entry->referenced = used_ns > *out_mtime_ns + SECOND_NS;
	entry->used = used_ns > 0 ? (uint64_t)(used_ns / SECOND_NS) : 0;
}

/* What is there of an entry: of its newest record, or of the one before in a
   replacement that came to no end. */
static int find_file(struct ki_sycl *sycl, struct ki_record_found *found,
		     enum ki_sycl_state *out_state)
{
	struct ki_record_found before;
	struct ki_file_info info;
	int err = ki_sycl_state(sycl, found, out_state, &info);

	if (*out_state == KI_SYCL_LOCKED)
		*out_state = KI_SYCL_THERE;
	if (err || *out_state != KI_SYCL_TAKEN ||
	    ki_records_by_file(sycl->records, found->name, info.inode,
			       &before) ||
	    memcmp(before.digest, found->digest, KILN_DIGEST_BYTES) != 0)
		return err;
	*out_state = ki_sycl_compare(&before, &info);
	*found = before;
	return 0;
}

static enum kiln_status list_own(struct ki_sycl *sycl, uint64_t *serial,
				 struct kiln_entry *out_entry)
{
	char stem[KI_SYCL_NAME_BYTES];

	for (;;) {
		struct kiln_entry entry = { { 0 } };
		struct ki_record_found found;
		enum ki_sycl_state state;
		int64_t mtime_ns;
		int err;
		enum kiln_status status =
			ki_records_next(sycl->records, serial, &found,
					&entry.record, &entry.metadata);

		if (status)
			return status;
		err = find_file(sycl, &found, &state);
		/* What cannot be told any more is for verify to find. */
		if (!err && state == KI_SYCL_THERE)
			status = ki_sycl_whole_record(sycl, &found,
						      &entry.record);
		if (!err && state == KI_SYCL_THERE && !status) {
			ki_sycl_stem(found.name, stem);
			fill_in(sycl, stem, &entry, &mtime_ns);
			memcpy(entry.digest, found.digest, KILN_DIGEST_BYTES);
			entry.value_size = found.value_size;
			entry.order = found.serial;
			entry.stored_size += found.bytes;
			*out_entry = entry;
			return KILN_OK;
		}
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		if (err)
			return ki_status_from_errno(err);
		if (status && status != KILN_MISS && status != KILN_E_FORMAT)
			return status;
	}
}

static enum kiln_status list_foreign(struct ki_sycl *sycl, uint64_t *hash,
				     struct kiln_entry *out_entry)
{
	struct kiln_entry entry = { .is_foreign = 1 };
	char stem[KI_SYCL_NAME_BYTES];
	enum kiln_status status;
	int64_t mtime_ns;

	do {
		status = next_name(sycl, hash, stem);
		if (status)
			return status;
	} while (!ki_sycl_is_foreign(sycl, stem));
	fill_in(sycl, stem, &entry, &mtime_ns);
	entry.value_size = ki_sycl_value_size(sycl, stem);
	status = make_record(sycl, stem, &entry);
	if (!status)
		status = make_metadata(sycl, stem, mtime_ns, &entry);
	if (!status) {
		*out_entry = entry;
		return KILN_OK;
	}
	kiln_blob_unref(entry.record);
	kiln_blob_unref(entry.metadata);
	return status;
}

enum kiln_status ki_sycl_list(struct kiln_tier *tier,
			      struct kiln_cursor *cursor,
			      struct kiln_entry *out_entry)
{
	struct ki_sycl *sycl = (struct ki_sycl *)tier;
	enum kiln_status status = KILN_END;

	if (!cursor->place[SERIAL] && !cursor->place[IS_FOREIGN]) {
		status = begin_listing(sycl);
		if (status)
			return status;
	}
	if (!cursor->place[IS_FOREIGN]) {
		status = list_own(sycl, &cursor->place[SERIAL], out_entry);
		if (status != KILN_END)
			return status;
		cursor->place[IS_FOREIGN] = 1;
	}
	return list_foreign(sycl, &cursor->place[NEXT_HASH], out_entry);
}
