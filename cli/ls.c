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

#define N_COLUMNS 7

static const struct ki_column columns[N_COLUMNS] = {
	{ "KEY", 0, 0 },     { "FRONT", 0, 5 }, { "SIZE", 1, 2 },
	{ "STAGE", 1, 4 },   { "AGE", 0, 1 },	{ "APPLICATION", 0, 0 },
	{ "OPTIONS", 0, 3 },
};

struct row {
	uint64_t created;
	char *cells[N_COLUMNS];
};

struct rows {
	struct row *rows;
	size_t n;
	size_t capacity;
};

static void rows_fini(struct rows *rows)
{
	size_t i;
	int j;

	for (i = 0; i < rows->n; i++)
		for (j = 0; j < N_COLUMNS; j++)
			free(rows->rows[i].cells[j]);
	free(rows->rows);
}

static int fill(struct row *row, const struct ki_entry_view *view)
{
	char size[32], age[32], stage[24];
	const char *texts[N_COLUMNS] = {
		view->short_key,
		view->front,
		ki_format_size(view->value_size, size, sizeof(size)),
		stage,
		ki_format_age(view->age_s, age, sizeof(age)),
		ki_last_name(view->application),
		view->options,
	};
	int i;

	snprintf(stage, sizeof(stage), "%llu", (unsigned long long)view->stage);
	row->created = view->created;
	for (i = 0; i < N_COLUMNS; i++) {
		row->cells[i] = strdup(texts[i]);
		if (!row->cells[i])
			return -1;
	}
	return 0;
}

static int add_row(struct rows *rows, const struct ki_entry_view *view)
{
	struct row *grown;

	if (rows->n == rows->capacity) {
		size_t capacity = rows->capacity ? rows->capacity * 2 : 64;

		grown = realloc(rows->rows, capacity * sizeof(*grown));
		if (!grown)
			return -1;
		rows->rows = grown;
		rows->capacity = capacity;
	}
	memset(&rows->rows[rows->n], 0, sizeof(*rows->rows));
	return fill(&rows->rows[rows->n++], view);
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
	cells = calloc(rows->n * N_COLUMNS, sizeof(*cells));
	if (!cells) {
		out->failed = -1;
		return;
	}
	for (i = 0; i < rows->n; i++)
		for (j = 0; j < N_COLUMNS; j++)
			cells[i * N_COLUMNS + (size_t)j] =
				rows->rows[i].cells[j];
	ki_out_table(out, columns, N_COLUMNS, cells, rows->n, ki_out_columns(),
		     ki_out_is_colourful(1));
	free(cells);
}

/* Into one of `json` and `rows`. */
static int list(struct kiln *kiln, int is_all, struct ki_json *json,
		struct rows *rows)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	int err = 0;

	while (!err && (status = kiln_list(kiln, &cursor, &entry)) == KILN_OK) {
		struct ki_entry_view view;

		err = ki_entry_view_init(&view, &entry);
		if (!err && json && (is_all || !view.is_hidden))
			ki_entry_json(json, NULL, &view);
		else if (!err && (is_all || !view.is_hidden))
			err = add_row(rows, &view);
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
	status = ki_settings_load(&settings, command);
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (status)
		goto out;
	if (is_json) {
		ki_out_json(&out, &json);
		ki_json_string(&json, "store", settings.options.store_url);
		ki_json_array(&json, "entries");
	}
	if (kiln)
		status = list(kiln, ki_given(command, KI_OPTION_ALL),
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
