/* SPDX-License-Identifier: MIT */

/*
 * Listing: kiln's entries by their records, then the files that no record is
 * about, which are a driver's own.
 *
 * Of these nobody knows the build: names are hashes, and nothing is in the file
 * but the binary.  So that tools can speak of one all the same, it is listed
 * with a key record of one local field, the file's name.  Such a key is found
 * by nobody who asks for a value, and leaves the machine with nobody.
 *
 * A survey of the directory is made when a listing begins: for the turn of each
 * entry in eviction, and as the order of foreign files, by a hash of their
 * names, so that a cursor is a number that survives changes.  It goes with the
 * end of the listing.  Two listings at a time may share one.
 */

#include "store/neo/neo.h"

#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/hash.h"
#include "base/status.h"

#define SECOND_NS ((int64_t)1000000000)

static const char label[] = "neo.file";

/* Places of a cursor. */
enum { SERIAL, IS_FOREIGN, NEXT_HASH };

struct ki_neo_place {
	uint64_t hash;
	size_t file;
};

/* ---- The survey --------------------------------------------------------------------- */

void ki_neo_survey_end(struct ki_neo_survey *survey)
{
	ki_neo_plan_end(&survey->plan);
	free(survey->places);
	survey->places = NULL;
}

static const char *name_of(const struct ki_neo_survey *survey, size_t file)
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
	const struct ki_neo_place *x = a, *y = b;

	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static int survey_begin(struct ki_neo *neo) KI_REQUIRES(&neo->lister)
{
	struct ki_neo_survey *survey = &neo->survey;
	int err;

	ki_neo_survey_end(survey);
	err = ki_neo_plan_all(neo, &survey->plan);
	if (err)
		return err;
	survey->places = malloc((survey->plan.n + 1) * sizeof(*survey->places));
	if (!survey->places) {
		ki_neo_survey_end(survey);
		return -ENOMEM;
	}
	for (size_t i = 0; i < survey->plan.n; i++)
		survey->places[i] = (struct ki_neo_place){
			.hash = hash_of(name_of(survey, i)), .file = i
		};
	if (survey->plan.n)
		qsort(survey->places, survey->plan.n, sizeof(*survey->places),
		      by_hash);
	return 0;
}

/* The first of at least this hash; n if there is none. */
static size_t find_place(const struct ki_neo_survey *survey, uint64_t hash)
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

/* When eviction would take it; 0 if it is new, or never goes. */
static uint64_t turn_of(struct ki_neo *neo, const char *name)
{
	const struct ki_neo_survey *survey = &neo->survey;
	uint64_t turn = 0;
	size_t place;

	ki_mutex_lock(&neo->lister);
	place = survey->places ? find_place(survey, hash_of(name)) : 0;
	if (survey->places && place < survey->plan.n) {
		const size_t file = survey->places[place].file;

		if (!strcmp(name_of(survey, file), name) &&
		    !survey->plan.files[file].is_uncounted)
			turn = file + 1;
	}
	ki_mutex_unlock(&neo->lister);
	return turn;
}

static enum kiln_status begin_listing(struct ki_neo *neo)
{
	int err = ki_neo_refresh(neo);

	if (err >= 0) {
		ki_mutex_lock(&neo->lister);
		err = survey_begin(neo);
		ki_mutex_unlock(&neo->lister);
	}
	return err < 0 ? ki_status_from_errno(err) : KILN_OK;
}

/* The next name of the survey, a new one if another listing ended it.  KILN_OK,
   KILN_END. */
static enum kiln_status next_name(struct ki_neo *neo, uint64_t *hash,
				  char out_name[KI_RECORDS_NAME_MAX + 1])
{
	struct ki_neo_survey *survey = &neo->survey;
	enum kiln_status status = KILN_END;
	size_t place;
	int err = 0;

	ki_mutex_lock(&neo->lister);
	if (!survey->places)
		err = survey_begin(neo);
	if (err) {
		status = ki_status_from_errno(err);
		goto out;
	}
	place = find_place(survey, *hash);
	if (place == survey->plan.n) {
		ki_neo_survey_end(survey);
		goto out;
	}
	strcpy(out_name, name_of(survey, survey->places[place].file));
	*hash = survey->places[place].hash + 1;
	status = KILN_OK;
out:
	ki_mutex_unlock(&neo->lister);
	return status;
}

/* ---- Foreign files -------------------------------------------------------------------- */

int ki_neo_is_foreign(const struct ki_neo *neo, const char *name,
		      struct ki_file_info *out_info)
{
	struct ki_record_found found;

	return !ki_neo_look(neo, name, out_info) &&
	       (ki_records_by_file(neo->records, name, out_info->inode,
				   &found) ||
		ki_neo_compare(&found, out_info) != KI_NEO_THERE);
}

int ki_neo_is_foreign_key(const struct ki_neo *neo, const struct kiln_key *key,
			  char out_name[KI_RECORDS_NAME_MAX + 1])
{
	struct kiln_field field;
	size_t position = 0;

	if (kiln_record_next(key->record.data, key->record.size, &position,
			     &field) ||
	    position != key->record.size || !field.local ||
	    field.kind != KILN_FIELD_BYTES ||
	    field.label_size != sizeof(label) - 1 ||
	    memcmp(field.label, label, field.label_size) != 0 || !field.size ||
	    field.size > KI_RECORDS_NAME_MAX ||
	    memchr(field.data, '\0', field.size))
		return 0;
	memcpy(out_name, field.data, field.size);
	out_name[field.size] = '\0';
	return ki_neo_is_name(neo, out_name);
}

enum kiln_status ki_neo_remove_foreign(struct ki_neo *neo,
				       struct ki_neo_account *account,
				       const char *name)
{
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	int err;

	if (!ki_neo_is_foreign(neo, name, &info))
		return KILN_MISS;
	err = ki_neo_path(neo, name, path);
	if (!err)
		err = neo->sys->unlink(neo->sys, path);
	if (err)
		return err == -ENOENT ? KILN_MISS : ki_status_from_errno(err);
	if (ki_neo_kind_of(ki_neo_layout(neo), name) == KI_NEO_ENTRY)
		account->total = ki_neo_less(account->total, info.size);
	return KILN_OK;
}

static const char *front_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	if (!strcmp(dot, KILN_NEO_LEVEL_ZERO))
		return "levelzero";
	return strcmp(dot, KILN_NEO_OCLOC) ? "opencl" : "ocloc";
}

enum kiln_status ki_neo_foreign_key(const char *name, struct kiln_key **out_key)
{
	struct kiln_key *key = kiln_key_new();
	enum kiln_status status;

	kiln_key_add_local(key, label, name, strlen(name));
	status = kiln_key_finish(key);
	if (status)
		kiln_key_free(key);
	else
		*out_key = key;
	return status;
}

static enum kiln_status make_record(const char *name, struct kiln_entry *entry)
{
	struct kiln_key *key = NULL;
	enum kiln_status status = ki_neo_foreign_key(name, &key);

	if (!status) {
		memcpy(entry->digest, key->digest, KILN_DIGEST_BYTES);
		status = kiln_blob_copy(key->record.data, key->record.size,
					&entry->record);
	}
	kiln_key_free(key);
	return status;
}

static enum kiln_status make_metadata(const char *name,
				      const struct ki_file_info *info,
				      struct kiln_entry *entry)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	enum kiln_status status;
	const void *bytes;
	size_t size;

	kiln_metadata_add_string(metadata, KILN_META_FRONT, front_of(name));
	if (info->mtime_ns > 0)
		kiln_metadata_add_u64(metadata, KILN_META_CREATED,
				      (uint64_t)(info->mtime_ns / SECOND_NS));
	status = kiln_metadata_bytes(metadata, &bytes, &size);
	if (!status)
		status = kiln_blob_copy(bytes, size, &entry->metadata);
	kiln_metadata_free(metadata);
	return status;
}

/* ---- Entries ------------------------------------------------------------------------------ */

static void fill_in(struct ki_neo *neo, const char *name,
		    const struct ki_file_info *info, struct kiln_entry *entry)
{
	_Static_assert(sizeof(entry->file) == KI_RECORDS_NAME_MAX + 1,
		       "any name fits");
	strcpy(entry->file, name);
	entry->value_size = info->size;
	entry->stored_size = info->size;
	entry->referenced = info->atime_ns > info->mtime_ns;
	entry->used =
		info->atime_ns > 0 ? (uint64_t)(info->atime_ns / SECOND_NS) : 0;
	entry->turn = turn_of(neo, name);
}

/* What is there of an entry: of its newest record, or of the one before in a
   replacement that came to no end. */
static int find_file(struct ki_neo *neo, struct ki_record_found *found,
		     enum ki_neo_state *out_state,
		     struct ki_file_info *out_info)
{
	struct ki_record_found before;
	int err = ki_neo_state(neo, found, out_state, out_info);

	if (err || *out_state != KI_NEO_TAKEN ||
	    ki_records_by_file(neo->records, found->name, out_info->inode,
			       &before) ||
	    memcmp(before.digest, found->digest, KILN_DIGEST_BYTES) != 0)
		return err;
	*out_state = ki_neo_compare(&before, out_info);
	*found = before;
	return 0;
}

static enum kiln_status list_own(struct ki_neo *neo, uint64_t *serial,
				 struct kiln_entry *out_entry)
{
	for (;;) {
		struct kiln_entry entry = { { 0 } };
		struct ki_record_found found;
		struct ki_file_info info;
		enum ki_neo_state state;
		int err;
		enum kiln_status status =
			ki_records_next(neo->records, serial, &found,
					&entry.record, &entry.metadata);

		if (status)
			return status;
		err = find_file(neo, &found, &state, &info);
		if (!err && state == KI_NEO_THERE) {
			fill_in(neo, found.name, &info, &entry);
			memcpy(entry.digest, found.digest, KILN_DIGEST_BYTES);
			entry.stored_size += found.bytes;
			entry.order = found.serial;
			*out_entry = entry;
			return KILN_OK;
		}
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		if (err)
			return ki_status_from_errno(err);
	}
}

static enum kiln_status list_foreign(struct ki_neo *neo, uint64_t *hash,
				     struct kiln_entry *out_entry)
{
	struct kiln_entry entry = { .is_foreign = 1 };
	char name[KI_RECORDS_NAME_MAX + 1];
	struct ki_file_info info;
	enum kiln_status status;

	do {
		status = next_name(neo, hash, name);
		if (status)
			return status;
	} while (!ki_neo_is_foreign(neo, name, &info));
	fill_in(neo, name, &info, &entry);
	status = make_record(name, &entry);
	if (!status)
		status = make_metadata(name, &info, &entry);
	if (!status) {
		*out_entry = entry;
		return KILN_OK;
	}
	kiln_blob_unref(entry.record);
	kiln_blob_unref(entry.metadata);
	return status;
}

enum kiln_status ki_neo_list(struct kiln_tier *tier, struct kiln_cursor *cursor,
			     struct kiln_entry *out_entry)
{
	struct ki_neo *neo = (struct ki_neo *)tier;
	enum kiln_status status = KILN_END;

	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	if (!cursor->place[SERIAL] && !cursor->place[IS_FOREIGN]) {
		status = begin_listing(neo);
		if (status)
			return status;
	}
	if (!cursor->place[IS_FOREIGN]) {
		status = list_own(neo, &cursor->place[SERIAL], out_entry);
		if (status != KILN_END)
			return status;
		cursor->place[IS_FOREIGN] = 1;
	}
	return list_foreign(neo, &cursor->place[NEXT_HASH], out_entry);
}
