/* SPDX-License-Identifier: MIT */

/*
 * What the debug keys of Intel's driver ask for.
 *
 * BinaryCacheTrace: what each key is made of, in the root of the directory, as
 * <16 digits>.trace for people and <16 digits>.input, the bytes that are hashed.
 * The driver writes a section for each attribute; here that is a field of the key
 * record.  Neither is an entry: nobody counts or evicts them.
 *
 * PrintDebugMessages: what fails, on the standard error, in the driver's words.
 */

#include "store/neo/neo.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <kiln/inspect.h>

#include "base/status.h"
#include "key/key.h"

#define N_DIGITS 16

/* ---- Messages -------------------------------------------------------------------- */

static void print(const char *line)
{
	(void)fputs(line, stderr);
}

void ki_neo_failed(const struct ki_neo *neo, const char *what, int err)
{
	char line[128];

	if (!neo->messages || !err)
		return;
	snprintf(line, sizeof(line),
		 "PID %d [Cache failure]: %s failed! errno: %d\n",
		 ki_process_id(), what, -err);
	print(line);
}

void ki_neo_print(const struct ki_neo *neo, const char *path, const char *what)
{
	char line[KI_PATH_MAX + 128];

	if (!neo->messages)
		return;
	snprintf(line, sizeof(line), "PID %d [Cache failure]: %s: %s\n",
		 ki_process_id(), path, what);
	print(line);
}

void ki_neo_print_place(const struct ki_neo *neo)
{
	char line[KI_PATH_MAX + 128];

	if (!neo->messages)
		return;
	snprintf(line, sizeof(line),
		 "NEO_CACHE_PERSISTENT is enabled. Cache is located in: %s\n",
		 neo->directory);
	print(line);
}

/* ---- Traces ------------------------------------------------------------------------ */

static int is_text(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((bytes[i] < ' ' && bytes[i] != '\n' && bytes[i] != '\t') ||
		    bytes[i] == 0x7f)
			return 0;
	return 1;
}

static void add_hex(struct ki_bytes *out, const void *data, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++) {
		ki_bytes_add_u8(out, (uint8_t)digits[bytes[i] >> 4]);
		ki_bytes_add_u8(out, (uint8_t)digits[bytes[i] & 15]);
	}
}

static void add_value(struct ki_bytes *out, const struct kiln_field *field)
{
	switch (field->kind) {
	case KILN_FIELD_BYTES:
		if (is_text(field->data, field->size)) {
			ki_bytes_add(out, field->data, field->size);
		} else {
			ki_bytes_add_string(out, "  hex=");
			add_hex(out, field->data, field->size);
		}
		break;
	case KILN_FIELD_DIGEST:
		ki_bytes_printf(out, "  size=%" PRIu64 "\n  blake2b=",
				field->original_size);
		add_hex(out, field->data, field->size);
		break;
	case KILN_FIELD_ABSENT:
		ki_bytes_add_string(out, "  absent");
		break;
	}
	if (field->local)
		ki_bytes_add_string(out, "\n  local");
	ki_bytes_add_u8(out, '\n');
}

static void add_section(struct ki_bytes *out, const char *label, size_t size)
{
	ki_bytes_add_string(out, "---- ");
	ki_bytes_add(out, label, size);
	ki_bytes_add_string(out, " ----\n");
}

static void add_attributes(struct ki_bytes *out, const struct kiln_key *key)
{
	struct kiln_field field;
	size_t position = 0;

	while (!kiln_record_next(key->record.data, key->record.size, &position,
				 &field)) {
		add_section(out, field.label, field.label_size);
		add_value(out, &field);
	}
}

/* Both files of a hash. */
struct trace {
	char text_name[KILN_NEO_NAME_BYTES];
	char input_name[KILN_NEO_NAME_BYTES];
	struct ki_bytes text;
};

static void trace_init(struct trace *trace, const char *digits)
{
	snprintf(trace->text_name, sizeof(trace->text_name), "%.*s.trace",
		 N_DIGITS, digits);
	snprintf(trace->input_name, sizeof(trace->input_name), "%.*s.input",
		 N_DIGITS, digits);
	ki_bytes_init(&trace->text);
}

static void add_input(struct trace *trace, const char *directory)
{
	add_section(&trace->text, "input", 5);
	ki_bytes_printf(&trace->text, "<%s/%s>\n", directory,
			trace->input_name);
}

static int publish(const struct ki_sys *sys, const char *directory,
		   const char *name, const void *data, size_t size,
		   unsigned mode)
{
	const struct ki_piece piece = { data, size };

	return ki_publish_file(sys, directory, name, &piece, 1, 1, mode, NULL);
}

static int trace_end(struct trace *trace, const struct ki_sys *sys,
		     const char *directory, const void *input,
		     size_t input_size, unsigned mode)
{
	int err = trace->text.failed;

	if (!err)
		err = publish(sys, directory, trace->input_name, input,
			      input_size, mode);
	if (!err)
		err = publish(sys, directory, trace->text_name,
			      trace->text.data, trace->text.size, mode);
	ki_bytes_fini(&trace->text);
	return err;
}

void ki_neo_trace(const struct ki_neo *neo, const struct kiln_key *key,
		  const char *name)
{
	const unsigned mode = neo->flags & KILN_OPEN_SHARED ? 0660 : 0600;
	const char *slash = strrchr(name, '/');
	struct trace trace;

	if (!neo->traces || ki_neo_is_readonly(neo))
		return;
	trace_init(&trace, slash ? slash + 1 : name);
	add_input(&trace, neo->directory);
	add_attributes(&trace.text, key);
	ki_neo_failed(neo, "Creating trace file",
		      trace_end(&trace, neo->sys, neo->directory,
				key->record.data, key->record.size, mode));
}

/* ---- Of a driver's build ------------------------------------------------------------- */

static void add_title(struct ki_bytes *out, const char *title)
{
	add_section(out, title, strlen(title));
}

static void add_text(struct ki_bytes *out, const char *title, const void *data,
		     size_t size)
{
	add_title(out, title);
	if (data)
		ki_bytes_add(out, data, size);
	ki_bytes_add_u8(out, '\n');
}

static void add_compiler(struct ki_bytes *out,
			 const struct kiln_neo_fields *fields)
{
	if (fields->release < KILN_NEO_24_13)
		return;
	add_text(out, "igcRevision", fields->igc_revision,
		 fields->igc_revision_size);
	ki_bytes_printf(out, "  libSize=%" PRIu64 "\n  libMTime=%" PRId64 "\n",
			fields->igc_library_size, fields->igc_library_mtime);
	if (fields->release >= KILN_NEO_26_32)
		add_text(out, "igcRegKeys", fields->igc_registry_keys,
			 fields->igc_registry_keys_size);
}

static void add_constants(struct ki_bytes *out,
			  const struct kiln_neo_fields *fields)
{
	if (fields->release < KILN_NEO_24_13)
		return;
	add_title(out, "specialization constants");
	ki_bytes_add_string(out, "  specIds=");
	for (size_t i = 0; i < fields->n_constants; i++)
		ki_bytes_printf(out, " %" PRIx32, fields->constant_ids[i]);
	ki_bytes_add_string(out, "\n  specValues=");
	for (size_t i = 0; i < fields->n_constants; i++)
		ki_bytes_printf(out, " %" PRIx64, fields->constant_values[i]);
	ki_bytes_add_u8(out, '\n');
}

static void add_platform(struct ki_bytes *out,
			 const struct kiln_neo_platform *platform)
{
	const struct {
		const char *name;
		uint32_t value;
	} rows[] = {
		{ "eProductFamily", platform->product },
		{ "ePCHProductFamily", platform->pch_product },
		{ "eDisplayCoreFamily", platform->display_core },
		{ "eRenderCoreFamily", platform->render_core },
		{ "ePlatformType", platform->platform_type },
		{ "usDeviceID", platform->device_id },
		{ "usRevId", platform->revision_id },
		{ "usDeviceID_PCH", platform->pch_device_id },
		{ "usRevId_PCH", platform->pch_revision_id },
		{ "eGTType", platform->gt_type },
	};

	add_title(out, "platform");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ki_bytes_printf(out, "  %s=%" PRIu32 "\n", rows[i].name,
				rows[i].value);
}

/* What is hashed of a table is its own hash. */
static void add_table(struct ki_bytes *out, const char *title,
		      const void *table, size_t size, uint64_t hash)
{
	const uint8_t *bytes = table;

	add_title(out, title);
	for (size_t i = 0; bytes && i < size; i++)
		ki_bytes_printf(out, "%02x.", bytes[i]);
	ki_bytes_printf(out, "%s  hash=%" PRIu64 "\n",
			bytes && size ? "\n" : "", hash);
}

enum kiln_status kiln_neo_trace(const struct kiln_neo_fields *fields,
				const char *directory)
{
	char digits[N_DIGITS + 1];
	struct trace trace;
	int err;

	if (!fields || fields->size != sizeof(*fields) || !directory)
		return KILN_E_INVALID;
	snprintf(digits, sizeof(digits), "%016" PRIx64, kiln_neo_hash(fields));
	trace_init(&trace, digits);
	add_compiler(&trace.text, fields);
	add_input(&trace, directory);
	add_text(&trace.text, "options", fields->options, fields->options_size);
	add_text(&trace.text, "internal options", fields->internal_options,
		 fields->internal_options_size);
	add_constants(&trace.text, fields);
	add_platform(&trace.text, &fields->platform);
	add_table(&trace.text, "feature table", fields->feature_table,
		  fields->feature_table_size, fields->feature_hash);
	add_table(&trace.text, "workaround table", fields->workaround_table,
		  fields->workaround_table_size, fields->workaround_hash);
	if (fields->release >= KILN_NEO_24_26) {
		add_title(&trace.text, "ipVersion");
		ki_bytes_printf(&trace.text, "  ipVersion=%" PRIu32 "\n",
				fields->ip_version);
	}
	err = trace_end(&trace, &ki_sys_posix, directory, fields->input,
			fields->input ? fields->input_size : 0, 0600);
	return ki_status_from_errno(err);
}
