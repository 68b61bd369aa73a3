/* SPDX-License-Identifier: MIT */

/*
 * kiln ls: what is cached, newest first.
 *
 * Rows are kept as text to be sorted; --json without --sort keeps none, as the
 * entries of a store may be many.
 */

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "choice.h"
#include "entry.h"
#include "filter.h"
#include "out.h"
#include "store.h"
#include "verbs.h"
#include "what.h"

static const struct ki_column columns[] = {
	{ "KEY", 0, 0 },     { "FRONT", 0, 5 }, { "SIZE", 1, 2 },
	{ "STAGE", 1, 4 },   { "AGE", 0, 1 },	{ "APPLICATION", 0, 0 },
	{ "OPTIONS", 0, 3 },
};

static const struct ki_column long_columns[] = {
	{ "KEY", 0, 0 },     { "FRONT", 0, 6 },	      { "SIZE", 1, 2 },
	{ "STORED", 1, 7 },  { "BUILT IN", 1, 3 },    { "STAGE", 1, 5 },
	{ "AGE", 0, 1 },     { "APPLICATION", 0, 4 }, { "NAMESPACE", 0, 8 },
	{ "OPTIONS", 0, 9 },
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

#define N_COLUMNS(columns) ((int)(sizeof(columns) / sizeof(*(columns))))

enum order { BY_MADE, BY_SIZE, BY_USE, BY_BUILD, BY_APPLICATION };

/* With --json its first cell is the entry's object. */
struct row {
	char *cells[KI_COLUMNS_MAX];
	char *text; /* sorted by, before the number; may be NULL */
	uint64_t number;
	uint64_t created;
};

struct listing {
	const struct ki_settings *settings;
	struct ki_filter filter;
	struct ki_unknown unknown; /* left out */
	struct ki_choice choice;   /* what the application uses */
	enum order order;
	int is_all;
	int is_long;
	int is_sorted;
	int has_use; /* somebody knows when an entry was used */
	int n_columns;
	struct ki_column columns[KI_COLUMNS_MAX];
	struct row *rows;
	size_t n;
	size_t capacity;
};

static void rows_fini(struct listing *listing)
{
	for (size_t i = 0; i < listing->n; i++) {
		for (int j = 0; j < KI_COLUMNS_MAX; j++)
			free(listing->rows[i].cells[j]);
		free(listing->rows[i].text);
	}
	free(listing->rows);
}

/* ---- The command line ---------------------------------------------------------- */

static int parse_order(const struct ki_command *command, enum order *out_order)
{
	static const char *const words[] = {
		[BY_MADE] = "made",
		[BY_SIZE] = "size",
		[BY_USE] = "used",
		[BY_BUILD] = "build",
		[BY_APPLICATION] = "application",
	};
	const char *text = command->values[KI_OPTION_SORT];

	*out_order = BY_MADE;
	if (!text)
		return KI_EXIT_OK;
	for (int i = 0; i < N_COLUMNS(words); i++) {
		if (!strcmp(text, words[i])) {
			*out_order = (enum order)i;
			return KI_EXIT_OK;
		}
	}
	ki_complain("--sort: '%s' is none of %s", text,
		    ki_option_rows[KI_OPTION_SORT].argument);
	return KI_EXIT_USAGE;
}

static int parse(const struct ki_command *command, struct listing *listing)
{
	int status = ki_filter_parse(command, &listing->filter);

	listing->is_all = ki_given(command, KI_OPTION_ALL);
	listing->is_long = ki_given(command, KI_OPTION_LONG);
	listing->is_sorted = ki_given(command, KI_OPTION_SORT);
	return status ? status : parse_order(command, &listing->order);
}

static void choose_columns(struct listing *listing)
{
	const struct ki_column *chosen = columns;
	int n = N_COLUMNS(columns);

	if (ki_what_is_told(listing->settings)) {
		chosen = ki_what_is_sycl(listing->settings) ? sycl_columns
							    : shared_columns;
		n = N_COLUMNS(shared_columns);
	} else if (listing->is_long) {
		chosen = long_columns;
		n = N_COLUMNS(long_columns);
	}
	memcpy(listing->columns, chosen, (size_t)n * sizeof(*chosen));
	listing->n_columns = n;
	/* Beside a whole key there may be no room for it. */
	if (listing->is_long)
		listing->columns[n - 1].rank = KI_COLUMNS_MAX;
}

/* ---- Rows ------------------------------------------------------------------------ */

static int copy_cells(struct row *row, const char *const *texts, int n)
{
	for (int i = 0; i < n; i++) {
		row->cells[i] = strdup(texts[i]);
		if (!row->cells[i])
			return -1;
	}
	return 0;
}

static int fill(const struct listing *listing, struct row *row,
		const struct ki_entry_view *view)
{
	char size[32], stored[32], age[32], built[32], stage[24];
	const char *texts[] = {
		view->short_key,
		view->front,
		ki_format_size(view->value_size, size, sizeof(size)),
		stage,
		ki_format_age(view->age_s, age, sizeof(age)),
		ki_last_name(view->application),
		view->options,
	};
	const char *long_texts[] = {
		view->key,
		view->front,
		size,
		ki_format_size(view->stored_size, stored, sizeof(stored)),
		ki_format_duration(view->build_ns, built, sizeof(built)),
		stage,
		age,
		view->application,
		view->name_space,
		view->options,
	};

	snprintf(stage, sizeof(stage), "%llu", (unsigned long long)view->stage);
	return copy_cells(row, listing->is_long ? long_texts : texts,
			  listing->n_columns);
}

static int fill_shared(const struct listing *listing, struct row *row,
		       const struct ki_entry_view *view,
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
			listing->is_long ? view->key : view->short_key,
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

		err = copy_cells(row, texts, N_COLUMNS(texts));
	}
	ki_bytes_fini(&line);
	return err;
}

static int fill_json(struct row *row, const struct ki_entry_view *view,
		     const struct ki_what *what)
{
	struct ki_bytes text;
	struct ki_json json;
	int err;

	ki_bytes_init(&text);
	ki_json_begin(&json, &text);
	ki_entry_json_open(&json, NULL, view);
	if (what)
		ki_what_json(what, &json);
	ki_json_end(&json);
	ki_bytes_add_u8(&text, 0);
	err = text.failed;
	if (!err)
		err = copy_cells(row, (const char *[]){ (char *)text.data }, 1);
	ki_bytes_fini(&text);
	return err;
}

/* To be filled; NULL without memory. */
static struct row *add_row(struct listing *listing)
{
	struct row *grown;

	if (listing->n == listing->capacity) {
		size_t more = listing->capacity ? listing->capacity * 2 : 64;

		grown = realloc(listing->rows, more * sizeof(*grown));
		if (!grown)
			return NULL;
		listing->rows = grown;
		listing->capacity = more;
	}
	memset(&listing->rows[listing->n], 0, sizeof(*listing->rows));
	return &listing->rows[listing->n++];
}

static int set_order(const struct listing *listing, struct row *row,
		     const struct ki_entry_view *view)
{
	const uint64_t numbers[] = {
		[BY_MADE] = view->created, [BY_SIZE] = view->value_size,
		[BY_USE] = view->used,	   [BY_BUILD] = view->build_ns,
		[BY_APPLICATION] = 0,
	};

	row->created = view->created;
	row->number = numbers[listing->order];
	if (listing->order == BY_APPLICATION)
		row->text = strdup(ki_last_name(view->application));
	return listing->order == BY_APPLICATION && !row->text ? -1 : 0;
}

/* `what` may be NULL. */
static int keep(struct listing *listing, const struct ki_entry_view *view,
		const struct ki_what *what, int is_json)
{
	struct row *row = add_row(listing);

	if (!row || set_order(listing, row, view))
		return -1;
	if (is_json)
		return fill_json(row, view, what);
	return what ? fill_shared(listing, row, view, what)
		    : fill(listing, row, view);
}

static int compare(uint64_t left, uint64_t right)
{
	return left < right ? 1 : left > right ? -1 : 0;
}

static int in_order(const void *a, const void *b)
{
	const struct row *left = a, *right = b;
	int order = left->text ? strcmp(left->text, right->text) : 0;

	if (!order)
		order = compare(left->number, right->number);
	return order ? order : compare(left->created, right->created);
}

/* ---- Listing ---------------------------------------------------------------------- */

static int is_of_application(struct listing *listing,
			     const struct kiln_entry *entry,
			     const struct ki_entry_view *view)
{
	if (ki_filter_is_application(&listing->filter, view->application) ||
	    ki_choice_has(&listing->choice, entry->record))
		return 1;
	listing->unknown.n[KI_BY_APPLICATION] += !*view->application;
	return 0;
}

/* Into `json`, or the rows where it is NULL or to be sorted. */
static int add_entry(struct listing *listing, const struct kiln_entry *entry,
		     const struct ki_entry_view *view, struct ki_json *json)
{
	const int is_shared = ki_what_is_told(listing->settings);
	struct ki_what look, *what = is_shared ? &look : NULL;

	if (is_shared)
		ki_what_look(listing->settings, entry, &look);
	if (!ki_filter_fits(&listing->filter, entry, view,
			    what ? ki_what_device(what) : "",
			    &listing->unknown) ||
	    !is_of_application(listing, entry, view))
		return 0;
	listing->has_use |= view->used != 0;
	if (!json || listing->is_sorted)
		return keep(listing, view, what, json != NULL);
	ki_entry_json_open(json, NULL, view);
	if (what)
		ki_what_json(what, json);
	ki_json_end(json);
	return 0;
}

/* What the application uses, not only what it built. */
static enum kiln_status look_at_orders(struct kiln *kiln,
				       struct listing *listing)
{
	const struct ki_filter filter = {
		.application = listing->filter.application,
	};
	enum kiln_status status;

	if (!filter.application)
		return KILN_OK;
	status = ki_choose(kiln, &filter, &listing->choice);
	ki_choice_index(&listing->choice);
	return status;
}

static int list(struct kiln *kiln, struct listing *listing,
		struct ki_json *json)
{
	struct kiln_cursor cursor = { { 0 } };
	enum kiln_status status = look_at_orders(kiln, listing);
	struct kiln_entry entry;
	int err = 0;

	while (!err && !status &&
	       !(status = kiln_list(kiln, &cursor, &entry))) {
		struct ki_entry_view view;

		err = ki_entry_view_init(&view, &entry);
		if (!err && (listing->is_all || !view.is_hidden))
			err = add_entry(listing, &entry, &view, json);
		ki_entry_view_fini(&view);
		kiln_entry_fini(&entry);
	}
	if (err)
		return ki_store_failed(KILN_E_NO_MEMORY, "cannot list");
	if (status != KILN_END)
		return ki_store_failed(status, "cannot list");
	if (listing->n)
		qsort(listing->rows, listing->n, sizeof(*listing->rows),
		      in_order);
	return KI_EXIT_OK;
}

/* ---- The answer -------------------------------------------------------------------- */

static void print_table(struct ki_bytes *out, const struct listing *listing)
{
	const size_t n_columns = (size_t)listing->n_columns;
	const char **cells;

	if (!listing->n)
		return;
	cells = calloc(listing->n * n_columns, sizeof(*cells));
	if (!cells) {
		out->failed = -1;
		return;
	}
	for (size_t i = 0; i < listing->n; i++)
		for (size_t j = 0; j < n_columns; j++)
			cells[i * n_columns + j] = listing->rows[i].cells[j];
	ki_out_table(out, listing->columns, listing->n_columns, cells,
		     listing->n, ki_out_columns(), ki_out_is_colourful(1));
	free(cells);
}

static void end_json(struct ki_json *json, const struct listing *listing)
{
	for (size_t i = 0; i < listing->n; i++)
		ki_json_ready(json, NULL, listing->rows[i].cells[0]);
	ki_json_end(json);
	ki_json_number(json, "left_unknown",
		       ki_unknown_total(&listing->unknown));
	ki_json_end(json);
}

static int list_and_print(const struct ki_command *command, struct kiln *kiln,
			  struct listing *listing)
{
	const int is_json = ki_given(command, KI_OPTION_JSON);
	int status = KI_EXIT_OK;
	struct ki_bytes out;
	struct ki_json json;

	ki_bytes_init(&out);
	choose_columns(listing);
	if (is_json) {
		ki_out_json(&out, &json);
		ki_json_string(&json, "store",
			       listing->settings->options.store_url);
		ki_json_array(&json, "entries");
	}
	if (kiln)
		status = list(kiln, listing, is_json ? &json : NULL);
	if (is_json)
		end_json(&json, listing);
	else
		print_table(&out, listing);
	ki_unknown_complain(&listing->unknown);
	if (listing->order == BY_USE && kiln && !status && !listing->has_use)
		ki_complain("this store does not know when entries were used: "
			    "newest first");
	if (!status)
		return ki_out_write(&out, KI_EXIT_OK);
	ki_bytes_fini(&out);
	return status;
}

int ki_verb_ls(const struct ki_command *command)
{
	struct listing listing = { .n = 0 };
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	int status = parse(command, &listing);

	if (status)
		return status;
	status = ki_settings_load(&settings, command, KI_STORE_LOOK);
	listing.settings = &settings;
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status)
		status = list_and_print(command, kiln, &listing);
	rows_fini(&listing);
	ki_choice_fini(&listing.choice);
	kiln_close(kiln);
	ki_settings_fini(&settings);
	return status;
}
