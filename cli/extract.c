/* SPDX-License-Identifier: MIT */

/*
 * kiln extract: what an entry keeps, into a file or a pipe.
 *
 * The value as it was stored; with --device one binary out of the value that the
 * OpenCL layer makes (docs/formats/opencl-entry.md).  Of an entry that is
 * somebody else's nobody has a value, but there is its file.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/json.h"
#include "entry.h"
#include "find.h"
#include "out.h"
#include "store.h"
#include "verbs.h"

#define MAGIC	     "KCLB"
#define VERSION	     1
#define DEVICES_MAX  1024
#define BINARY_MAX   ((uint64_t)1 << 31)
#define ALL_DEVICES  UINT32_MAX
#define FILE_MAX     ((size_t)1 << 31)
#define PADDED(size) (((size) + 7) & ~(uint64_t)7)

struct extracted {
	const char *path;   /* "-": standard output */
	uint32_t device;    /* or ALL_DEVICES */
	uint32_t n_devices; /* 0: not of the OpenCL layer */
	struct kiln_blob *value;
	void *file;	  /* instead, of what is not kiln's */
	const void *data; /* into one of them */
	size_t size;
};

/* ---- The command line ---------------------------------------------------------- */

static int parse_device(const char *text, uint32_t *out_device)
{
	unsigned long number;
	char *end;

	*out_device = ALL_DEVICES;
	if (!text)
		return KI_EXIT_OK;
	errno = 0;
	number = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno ||
	    number >= DEVICES_MAX) {
		ki_complain("--device: '%s' is no number; the first is 0",
			    text);
		return KI_EXIT_USAGE;
	}
	*out_device = (uint32_t)number;
	return KI_EXIT_OK;
}

static int parse(const struct ki_command *command, struct extracted *extracted)
{
	const char *path = command->values[KI_OPTION_OUTPUT];

	extracted->path = path ? path : "-";
	if (!path && isatty(STDOUT_FILENO)) {
		ki_complain("a value is nothing for a terminal: name a file, "
			    "'--output FILE', or '-o -' if it is meant");
		return KI_EXIT_USAGE;
	}
	if (ki_given(command, KI_OPTION_JSON) &&
	    !strcmp(extracted->path, "-")) {
		ki_complain("--json needs --output FILE: both would go to "
			    "standard output");
		return KI_EXIT_USAGE;
	}
	return parse_device(command->values[KI_OPTION_BINARY_OF],
			    &extracted->device);
}

/* ---- One device's binary --------------------------------------------------------- */

/* How many binaries a value has, which end where it ends; 0 if it is none of the
   layer's.  Of the one wanted, where it is. */
static uint32_t find_binary(const void *value, size_t value_size,
			    uint32_t wanted, const void **out_data,
			    size_t *out_size)
{
	struct ki_reader reader = ki_reader(value, value_size);
	const void *magic = ki_read(&reader, strlen(MAGIC));
	const uint32_t version = ki_read_u32(&reader);
	const uint32_t n = ki_read_u32(&reader);
	const uint8_t *sizes;

	(void)ki_read_u32(&reader);
	if (reader.failed || memcmp(magic, MAGIC, strlen(MAGIC)) != 0 ||
	    version != VERSION || !n || n > DEVICES_MAX)
		return 0;
	sizes = ki_read(&reader, (size_t)n * 8);
	for (uint32_t i = 0; sizes && i < n; i++) {
		const uint64_t size = ki_get_u64(sizes + (size_t)i * 8);
		const void *data;

		if (!size || size > BINARY_MAX)
			return 0;
		data = ki_read(&reader, (size_t)PADDED(size));
		if (i == wanted && data) {
			*out_data = data;
			*out_size = (size_t)size;
		}
	}
	return reader.failed || reader.size ? 0 : n;
}

static int take_binary(struct extracted *extracted)
{
	extracted->n_devices =
		find_binary(extracted->data, extracted->size, extracted->device,
			    &extracted->data, &extracted->size);
	if (extracted->device == ALL_DEVICES)
		return KI_EXIT_OK;
	if (!extracted->n_devices) {
		ki_complain("the entry is not of an OpenCL program: it has no "
			    "binaries by device");
		return KI_EXIT_NOT_FOUND;
	}
	if (extracted->device < extracted->n_devices)
		return KI_EXIT_OK;
	ki_complain("--device: the entry is of %u device%s, and the first is 0",
		    extracted->n_devices, extracted->n_devices == 1 ? "" : "s");
	return KI_EXIT_NOT_FOUND;
}

/* ---- The value --------------------------------------------------------------------- */

static int read_file(const struct ki_settings *settings,
		     const struct kiln_entry *entry,
		     struct extracted *extracted)
{
	char path[KI_PATH_MAX];
	int err = ki_path_join(path, settings->directory, entry->file);

	if (!err)
		err = ki_read_file(&ki_sys_posix, path, FILE_MAX,
				   &extracted->file, &extracted->size);
	if (!err) {
		extracted->data = extracted->file;
		return KI_EXIT_OK;
	}
	ki_complain("cannot read %s: %s", entry->file, strerror(-err));
	return err == -ENOENT ? KI_EXIT_NOT_FOUND : KI_EXIT_FAILED;
}

static int read_value(struct kiln *kiln, const struct kiln_entry *entry,
		      struct extracted *extracted)
{
	struct kiln_blob *metadata;
	struct kiln_key *key;
	enum kiln_status status =
		kiln_key_from_record(kiln_blob_data(entry->record),
				     kiln_blob_size(entry->record), &key);

	if (!status) {
		status = kiln_peek(kiln, key, &extracted->value, &metadata);
		kiln_key_free(key);
	}
	if (status == KILN_MISS) {
		ki_complain("the entry is gone: evicted meanwhile, or damaged");
		return KI_EXIT_NOT_FOUND;
	}
	if (status)
		return ki_store_failed(status, "cannot read the entry");
	kiln_blob_unref(metadata);
	extracted->data = kiln_blob_data(extracted->value);
	extracted->size = kiln_blob_size(extracted->value);
	return KI_EXIT_OK;
}

/* ---- The answer --------------------------------------------------------------------- */

static int write_value(const struct extracted *extracted)
{
	struct ki_bytes out;

	if (strcmp(extracted->path, "-"))
		return ki_out_file(extracted->path, extracted->data,
				   extracted->size);
	ki_bytes_init(&out);
	ki_bytes_add(&out, extracted->data, extracted->size);
	return ki_out_write(&out, KI_EXIT_OK);
}

static int print_json(const struct kiln_entry *entry,
		      const struct extracted *extracted)
{
	struct ki_entry_view view;
	struct ki_bytes out;
	struct ki_json json;

	ki_bytes_init(&out);
	if (ki_entry_view_init(&view, entry))
		out.failed = -ENOMEM;
	ki_out_json(&out, &json);
	ki_json_string(&json, "key", view.key);
	ki_json_string(&json, "file", extracted->path);
	ki_json_number(&json, "bytes", extracted->size);
	ki_json_number(&json, "devices", extracted->n_devices);
	if (extracted->device == ALL_DEVICES)
		ki_json_null(&json, "device");
	else
		ki_json_number(&json, "device", extracted->device);
	ki_json_bool(&json, "foreign", entry->is_foreign);
	ki_json_end(&json);
	ki_entry_view_fini(&view);
	return ki_out_write(&out, KI_EXIT_OK);
}

static int extract(const struct ki_command *command, struct kiln *kiln,
		   const struct ki_settings *settings,
		   const struct kiln_entry *entry, struct extracted *extracted)
{
	int status = entry->is_foreign ? read_file(settings, entry, extracted)
				       : read_value(kiln, entry, extracted);

	if (!status)
		status = take_binary(extracted);
	if (!status)
		status = write_value(extracted);
	if (!status && ki_given(command, KI_OPTION_JSON))
		status = print_json(entry, extracted);
	kiln_blob_unref(extracted->value);
	free(extracted->file);
	return status;
}

int ki_verb_extract(const struct ki_command *command)
{
	struct extracted extracted = { .value = NULL };
	struct ki_settings settings;
	struct kiln_entry entry;
	struct kiln *kiln = NULL;
	int status = parse(command, &extracted);

	if (status)
		return status;
	status = ki_settings_load(&settings, command, KI_STORE_LOOK);
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status)
		status = ki_find_entry(kiln, &settings, command->arguments[0],
				       &entry);
	if (!status) {
		status = extract(command, kiln, &settings, &entry, &extracted);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
