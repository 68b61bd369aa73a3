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

#include "base/hash.h"
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

static void publish(const struct ki_neo *neo, const char *name,
		    const void *data, size_t size)
{
	const unsigned mode = neo->flags & KILN_OPEN_SHARED ? 0660 : 0600;
	const struct ki_piece piece = { data, size };

	ki_neo_failed(neo, "Creating trace file",
		      ki_publish_file(neo->sys, neo->directory, name, &piece, 1,
				      1, mode, NULL));
}

void ki_neo_trace(const struct ki_neo *neo, const struct kiln_key *key,
		  const char *name)
{
	const char *slash = strrchr(name, '/');
	char trace[KILN_NEO_NAME_BYTES], input[KILN_NEO_NAME_BYTES];
	struct ki_bytes text;

	if (!neo->traces || ki_neo_is_readonly(neo))
		return;
	name = slash ? slash + 1 : name;
	snprintf(trace, sizeof(trace), "%.*s.trace", N_DIGITS, name);
	snprintf(input, sizeof(input), "%.*s.input", N_DIGITS, name);
	ki_bytes_init(&text);
	add_section(&text, "input", 5);
	ki_bytes_printf(&text, "<%s/%s>\n", neo->directory, input);
	add_attributes(&text, key);
	if (!text.failed) {
		publish(neo, input, key->record.data, key->record.size);
		publish(neo, trace, text.data, text.size);
	}
	ki_bytes_fini(&text);
}
