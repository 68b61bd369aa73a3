/* SPDX-License-Identifier: MIT */

/* kiln import: the entries of a pack into the store. */

#include <errno.h>
#include <string.h>

#include <kiln/pack.h>

#include "base/json.h"
#include "base/text.h"
#include "out.h"
#include "progress.h"
#include "store.h"
#include "verbs.h"

struct imported {
	const char *path;
	uint64_t n_new;
	uint64_t bytes;
	uint64_t n_present; /* the store has them: its own stay */
	uint64_t n_refused; /* too large, hidden, or the store was busy */
	uint64_t n_damaged; /* in the pack */
	int is_salvaged;
};

/* ---- The pack ------------------------------------------------------------------ */

struct told {
	char line[1024]; /* the first, with what is wrong */
	int is_salvaged;
};

static void listen(void *arg, enum kiln_log_level level, const char *line)
{
	struct told *told = arg;

	told->is_salvaged |= level == KILN_LOG_WARNING;
	if (level == KILN_LOG_ERROR && !*told->line)
		snprintf(told->line, sizeof(told->line), "%s", line);
}

static int complain(const struct imported *imported, enum kiln_status status,
		    const struct told *told, int trusts_unsigned)
{
	if (status == KILN_E_OWNER && !trusts_unsigned)
		ki_complain("%s; 'kiln key trust' trusts one, "
			    "--trust-unsigned takes it as it is",
			    told->line);
	else if (*told->line)
		ki_complain("%s", told->line);
	else
		ki_complain("cannot read '%s': %s (%s)", imported->path,
			    ki_status_words(status), kiln_status_name(status));
	return status == KILN_E_NO_MEMORY ? KI_EXIT_FAILED
					  : KI_EXIT_UNAVAILABLE;
}

/* A kiln whose only tier is the pack. */
static enum kiln_status open_tier(struct kiln_tier *tier,
				  struct kiln **out_pack)
{
	struct kiln_options options;

	kiln_options_init(&options);
	options.memory_bytes_max = 1; /* nothing is asked for twice */
	options.flags = KILN_OPEN_READONLY;
	options.tiers = &tier;
	options.n_tiers = 1;
	return kiln_open(&options, out_pack);
}

static int is_missing(const char *path)
{
	struct ki_file_info info;

	return ki_sys_posix.stat(&ki_sys_posix, path, &info) == -ENOENT;
}

static int open_pack(const struct ki_command *command,
		     const struct ki_settings *settings,
		     struct imported *imported, struct kiln **out_pack)
{
	const int trusts = ki_given(command, KI_OPTION_TRUST_UNSIGNED);
	struct told told = { "", 0 };
	struct kiln_pack_options options;
	struct kiln_tier *tier;
	enum kiln_status status;

	if (is_missing(imported->path)) {
		ki_complain("there is no pack %s", imported->path);
		return KI_EXIT_NOT_FOUND;
	}
	kiln_pack_options_init(&options);
	options.trusted_keys = settings->options.trusted_keys;
	options.n_trusted_keys = settings->options.n_trusted_keys;
	options.log = listen;
	options.log_arg = &told;
	/* Who signed it is whom it has to be trusted from, whoever brought it. */
	options.flags = trusts ? KILN_PACK_UNSIGNED | KILN_PACK_SALVAGE
			       : KILN_PACK_SIGNED | KILN_PACK_ANY_OWNER;
	status = kiln_pack_open(imported->path, &options, &tier);
	if (!status)
		status = open_tier(tier, out_pack);
	imported->is_salvaged = told.is_salvaged;
	return status ? complain(imported, status, &told, trusts) : KI_EXIT_OK;
}

/* ---- Merging ------------------------------------------------------------------- */

static enum kiln_status put(struct kiln *kiln, const struct kiln_key *key,
			    const struct kiln_blob *value,
			    const struct kiln_blob *metadata,
			    struct imported *imported)
{
	struct kiln_metadata *known;
	enum kiln_status status = kiln_metadata_from_bytes(
		kiln_blob_data(metadata), kiln_blob_size(metadata), &known);

	if (status)
		return status;
	status = kiln_put(kiln, key, kiln_blob_data(value),
			  kiln_blob_size(value), known, 0);
	kiln_metadata_free(known);
	if (!status) {
		imported->n_new++;
		imported->bytes += kiln_blob_size(value);
	}
	return status;
}

/* What one entry comes to; only what ends the whole is an error. */
static enum kiln_status count(enum kiln_status status,
			      struct imported *imported)
{
	switch (status) {
	case KILN_EXISTS:
		imported->n_present++;
		return KILN_OK;
	case KILN_MISS:
	case KILN_E_FORMAT:
		imported->n_damaged++;
		return KILN_OK;
	case KILN_E_TOO_LARGE:
	case KILN_E_COLLISION:
	case KILN_E_TIMEOUT:
		imported->n_refused++;
		return KILN_OK;
	default:
		return status;
	}
}

/* The bookkeeping of another store, which kiln_pack_add() does not take. */
static int is_hidden(const struct kiln_blob *metadata)
{
	uint64_t flags;

	return !kiln_metadata_find_u64(kiln_blob_data(metadata),
				       kiln_blob_size(metadata),
				       KILN_META_FLAGS, &flags) &&
	       flags & KILN_ENTRY_HIDDEN;
}

static enum kiln_status merge_entry(struct kiln *pack, struct kiln *kiln,
				    const struct kiln_entry *entry,
				    struct imported *imported)
{
	struct kiln_blob *value, *metadata;
	struct kiln_key *key;
	enum kiln_status status;

	if (is_hidden(entry->metadata)) {
		imported->n_refused++;
		return KILN_OK;
	}
	status = kiln_key_from_record(kiln_blob_data(entry->record),
				      kiln_blob_size(entry->record), &key);
	if (status)
		return count(status, imported);
	status = kiln_peek(pack, key, &value, &metadata);
	if (!status) {
		status = put(kiln, key, value, metadata, imported);
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
	}
	kiln_key_free(key);
	return count(status, imported);
}

static enum kiln_status merge(struct kiln *pack, struct kiln *kiln,
			      struct imported *imported)
{
	struct kiln_store_info info = { 0 };
	struct kiln_cursor cursor = { { 0 } };
	struct ki_progress progress;
	struct kiln_entry entry;
	enum kiln_status status;
	uint64_t n = 0, done = 0;

	(void)kiln_store_info(pack, &info);
	ki_progress_begin(&progress);
	while (!(status = kiln_list(pack, &cursor, &entry))) {
		status = merge_entry(pack, kiln, &entry, imported);
		done += entry.stored_size;
		n++;
		kiln_entry_fini(&entry);
		if (status)
			break;
		ki_progress_step(&progress, done, info.bytes_live);
	}
	ki_progress_finish(&progress);
	if (status != KILN_END)
		return status;
	/* Those that are not even listed. */
	if (info.n_entries > n)
		imported->n_damaged += info.n_entries - n;
	return KILN_OK;
}

/* A store that is made for the pack is of the version of the pack's program. */
static int open_store(struct ki_settings *settings, struct kiln *pack,
		      struct kiln **out_kiln)
{
	struct kiln_store_info info = { 0 };
	struct kiln *there;
	int status = ki_store_is_pack(settings)
			     ? KI_EXIT_OK
			     : ki_store_open(settings, KI_STORE_LOOK, &there);

	if (!status && !ki_store_is_pack(settings)) {
		if (!there && !kiln_store_info(pack, &info))
			settings->options.user_version = info.user_version;
		kiln_close(there);
	}
	return status ? status : ki_store_make(settings, out_kiln);
}

/* Of another version, entries are none of the store's programs', however much
   their keys are alike.  A store without a version takes any. */
static int check_version(struct kiln *pack, struct kiln *kiln,
			 const struct imported *imported)
{
	struct kiln_store_info from = { 0 }, to = { 0 };

	(void)kiln_store_info(pack, &from);
	(void)kiln_store_info(kiln, &to);
	if (!to.user_version || from.user_version == to.user_version)
		return KI_EXIT_OK;
	ki_complain("'%s' is of version %llu of its program, the store of %llu",
		    imported->path, (unsigned long long)from.user_version,
		    (unsigned long long)to.user_version);
	return KI_EXIT_UNAVAILABLE;
}

/* ---- The answer ----------------------------------------------------------------- */

static void print_json(struct ki_bytes *out, const struct imported *imported)
{
	struct ki_json json;

	ki_out_json(out, &json);
	ki_json_string(&json, "file", imported->path);
	ki_json_number(&json, "imported", imported->n_new);
	ki_json_number(&json, "bytes", imported->bytes);
	ki_json_number(&json, "present", imported->n_present);
	ki_json_number(&json, "refused", imported->n_refused);
	ki_json_number(&json, "damaged", imported->n_damaged);
	ki_json_bool(&json, "salvaged", imported->is_salvaged);
	ki_json_end(&json);
}

static void print_text(struct ki_bytes *out, const struct imported *imported)
{
	char size[32];

	ki_bytes_printf(out, "%llu new entr%s (%s), %llu were there already\n",
			(unsigned long long)imported->n_new,
			imported->n_new == 1 ? "y" : "ies",
			ki_format_size(imported->bytes, size, sizeof(size)),
			(unsigned long long)imported->n_present);
	if (imported->n_refused)
		ki_bytes_printf(
			out,
			"  %llu not taken: too large, of use to its own "
			"store alone, or the store was busy\n",
			(unsigned long long)imported->n_refused);
	if (imported->n_damaged)
		ki_bytes_printf(out, "  %llu damaged\n",
				(unsigned long long)imported->n_damaged);
	if (imported->is_salvaged)
		ki_bytes_add_string(out, "  the pack has lost its index: these "
					 "were found without\n");
}

static int print(const struct ki_command *command,
		 const struct imported *imported)
{
	struct ki_bytes out;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON))
		print_json(&out, imported);
	else
		print_text(&out, imported);
	return ki_out_write(&out, imported->n_damaged || imported->is_salvaged
					  ? KI_EXIT_FINDINGS
					  : KI_EXIT_OK);
}

int ki_verb_import(const struct ki_command *command)
{
	struct imported imported = { .path = command->arguments[0] };
	struct kiln *pack = NULL, *kiln = NULL;
	struct ki_settings settings;
	enum kiln_status result;
	int status;

	status = ki_settings_load(&settings, command, 0);
	if (!status)
		status = open_pack(command, &settings, &imported, &pack);
	/* What a pack says of no program is not of this one. */
	settings.options.application = "";
	if (!status)
		status = open_store(&settings, pack, &kiln);
	if (!status)
		status = check_version(pack, kiln, &imported);
	if (!status) {
		result = merge(pack, kiln, &imported);
		status = result ? ki_store_failed(result, "cannot import")
				: print(command, &imported);
	}
	kiln_close(pack);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
