/* SPDX-License-Identifier: MIT */

/* kiln ls: what is cached, newest first. */

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "entry.h"
#include "out.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

static const struct ki_column columns[] = {
	{ "KEY", 0, 0 },     { "FRONT", 0, 5 }, { "SIZE", 1, 2 },
	{ "STAGE", 1, 4 },   { "AGE", 0, 1 },	{ "APPLICATION", 0, 0 },
	{ "OPTIONS", 0, 3 },
};

/* Of a directory that is shared with a driver, whose entries are files. */
static const struct ki_column shared_columns[] = {
	{ "KEY", 0, 0 },  { "WHOSE", 0, 2 }, { "FRONT", 0, 5 },
	{ "SIZE", 1, 3 }, { "USED", 0, 1 },  { "TURN", 1, 4 },
	{ "FILE", 0, 6 }, { "WHAT", 0, 0 },
};

/* The same of DPC++'s, where files have numbers for names. */
static const struct ki_column sycl_columns[] = {
	{ "KEY", 0, 0 },     { "WHOSE", 0, 2 }, { "DEVICE", 0, 5 },
	{ "SIZE", 1, 3 },    { "USED", 0, 1 },	{ "TURN", 1, 4 },
	{ "OPTIONS", 0, 6 }, { "WHAT", 0, 0 },
};

struct row {
	uint64_t created;
	char *cells[KI_COLUMNS_MAX];
};

struct rows {
	const struct ki_column *columns;
	int n_columns;
	struct row *rows;
	size_t n;
	size_t capacity;
};

static void rows_fini(struct rows *rows)
{
	size_t i;
	int j;

	for (i = 0; i < rows->n; i++)
		for (j = 0; j < rows->n_columns; j++)
			free(rows->rows[i].cells[j]);
	free(rows->rows);
}

static int copy_cells(struct row *row, const char *const *texts, int n)
{
	for (int i = 0; i < n; i++) {
		row->cells[i] = strdup(texts[i]);
		if (!row->cells[i])
			return -1;
	}
	return 0;
}

static int fill(struct row *row, const struct ki_entry_view *view)
{
	char size[32], age[32], stage[24];
	const char *texts[] = {
		view->short_key,
		view->front,
		ki_format_size(view->value_size, size, sizeof(size)),
		stage,
		ki_format_age(view->age_s, age, sizeof(age)),
		ki_last_name(view->application),
		view->options,
	};

	snprintf(stage, sizeof(stage), "%llu", (unsigned long long)view->stage);
	return copy_cells(row, texts, sizeof(texts) / sizeof(*texts));
}

static int fill_shared(struct row *row, const struct ki_entry_view *view,
		       const struct ki_what *what)
{
	char size[32], age[32], turn[24] = "-", device[KI_SYCL_TEXT_BYTES];
	struct ki_bytes line;
	int err;

	ki_sycl_device_name(what->sycl.source.device_text, device);
	ki_bytes_init(&line);
	ki_what_line(what, &line);
	if (!line.size)
		ki_bytes_add_string(&line, ki_last_name(view->application));
	ki_bytes_add_u8(&line, 0);
	err = line.failed;
	if (view->turn)
		snprintf(turn, sizeof(turn), "%llu",
			 (unsigned long long)view->turn);
	if (!err) {
		const char *texts[] = {
			view->short_key,
			!view->is_foreign ? "kiln"
			: what->is_sycl	  ? "DPC++"
					  : "driver",
			what->is_sycl ? device : view->front,
			ki_format_size(view->value_size, size, sizeof(size)),
			ki_format_age(view->used_age_s, age, sizeof(age)),
			turn,
			what->is_sycl ? what->sycl.source.options_text
				      : ki_last_name(view->file),
			(const char *)line.data,
		};

		err = copy_cells(row, texts, sizeof(texts) / sizeof(*texts));
	}
	ki_bytes_fini(&line);
	return err;
}

/* To be filled; NULL without memory. */
static struct row *add_row(struct rows *rows)
{
	struct row *grown;

	if (rows->n == rows->capacity) {
		size_t capacity = rows->capacity ? rows->capacity * 2 : 64;

		grown = realloc(rows->rows, capacity * sizeof(*grown));
		if (!grown)
			return NULL;
		rows->rows = grown;
		rows->capacity = capacity;
	}
	memset(&rows->rows[rows->n], 0, sizeof(*rows->rows));
	return &rows->rows[rows->n++];
}

static int newer_first(const void *a, const void *b)
{
	uint64_t left = ((const struct row *)a)->created;
	uint64_t right = ((const struct row *)b)->created;

	return left < right ? 1 : left > right ? -1 : 0;
}

static void print_table(struct ki_bytes *out, struct rows *rows)
{
	const char **cells;
	size_t i;
	int j;

	if (!rows->n)
		return;
	qsort(rows->rows, rows->n, sizeof(*rows->rows), newer_first);
	cells = calloc(rows->n * (size_t)rows->n_columns, sizeof(*cells));
	if (!cells) {
		out->failed = -1;
		return;
	}
	for (i = 0; i < rows->n; i++)
		for (j = 0; j < rows->n_columns; j++)
			cells[i * (size_t)rows->n_columns + (size_t)j] =
				rows->rows[i].cells[j];
	ki_out_table(out, rows->columns, rows->n_columns, cells, rows->n,
		     ki_out_columns(), ki_out_is_colourful(1));
	free(cells);
}

/* Into one of `json` and `rows`. */
static int add_entry(const struct ki_settings *settings,
		     const struct kiln_entry *entry,
		     const struct ki_entry_view *view, struct ki_json *json,
		     struct rows *rows)
{
	const int is_shared = ki_what_is_told(settings);
	struct ki_what what;
	struct row *row;

	if (is_shared)
		ki_what_look(settings, entry, &what);
	if (json) {
		ki_entry_json_open(json, NULL, view);
		if (is_shared)
			ki_what_json(&what, json);
		ki_json_end(json);
		return 0;
	}
	row = add_row(rows);
	if (!row)
		return -1;
	row->created = view->created;
	return is_shared ? fill_shared(row, view, &what) : fill(row, view);
}

static int list(struct kiln *kiln, const struct ki_settings *settings,
		int is_all, struct ki_json *json, struct rows *rows)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	int err = 0;

	while (!err && (status = kiln_list(kiln, &cursor, &entry)) == KILN_OK) {
		struct ki_entry_view view;

		err = ki_entry_view_init(&view, &entry);
		if (!err && (is_all || !view.is_hidden))
			err = add_entry(settings, &entry, &view, json, rows);
		ki_entry_view_fini(&view);
		kiln_entry_fini(&entry);
	}
	if (err)
		return ki_store_failed(KILN_E_NO_MEMORY, "cannot list");
	if (status != KILN_END)
		return ki_store_failed(status, "cannot list");
	return KI_EXIT_OK;
}

int ki_verb_ls(const struct ki_command *command)
{
	int is_json = ki_given(command, KI_OPTION_JSON);
	struct ki_settings settings;
	struct rows rows = { 0 };
	struct kiln *kiln = NULL;
	struct ki_bytes out;
	struct ki_json json;
	int status;

	ki_bytes_init(&out);
	status = ki_settings_load(&settings, command, KI_STORE_LOOK);
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (status)
		goto out;
	rows.columns = columns;
	rows.n_columns = sizeof(columns) / sizeof(*columns);
	if (ki_what_is_told(&settings)) {
		rows.columns = ki_what_is_sycl(&settings) ? sycl_columns
							  : shared_columns;
		rows.n_columns =
			sizeof(shared_columns) / sizeof(*shared_columns);
	}
	if (is_json) {
		ki_out_json(&out, &json);
		ki_json_string(&json, "store", settings.options.store_url);
		ki_json_array(&json, "entries");
	}
	if (kiln)
		status = list(kiln, &settings, ki_given(command, KI_OPTION_ALL),
			      is_json ? &json : NULL, &rows);
	if (is_json) {
		ki_json_end(&json);
		ki_json_end(&json);
	} else {
		print_table(&out, &rows);
	}
	if (!status)
		status = ki_out_write(&out, KI_EXIT_OK);
out:
	ki_bytes_fini(&out);
	rows_fini(&rows);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
