/* SPDX-License-Identifier: MIT */

#include "survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "out.h"
#include "what.h"

#define HOUR 3600u
#define DAY  (24 * HOUR)
#define KIB  ((uint64_t)1 << 10)

/* What is below the bound; the last one has none. */
struct bound {
	const char *name;
	uint64_t below;
};

static const struct bound age_bounds[KI_BINS_MAX] = {
	{ "less than an hour", HOUR },
	{ "an hour to a day", DAY },
	{ "a day to a week", 7 * DAY },
	{ "a week to a month", 30 * DAY },
	{ "a month to a year", 365 * DAY },
	{ "older", UINT64_MAX },
	{ "unknown", 0 },
};

static const struct bound size_bounds[KI_BINS_MAX] = {
	{ "less than 1 KiB", KIB },	{ "1 to 4 KiB", 4 * KIB },
	{ "4 to 16 KiB", 16 * KIB },	{ "16 to 64 KiB", 64 * KIB },
	{ "64 to 256 KiB", 256 * KIB }, { "256 KiB to 1 MiB", 1024 * KIB },
	{ "1 to 4 MiB", 4096 * KIB },	{ "4 MiB and more", UINT64_MAX },
};

/* ---- Bins -------------------------------------------------------------------- */

static void name_bins(struct ki_bin *bins, const struct bound *bounds)
{
	for (unsigned i = 0; i < KI_BINS_MAX; i++)
		bins[i].name = bounds[i].name;
}

static void add_to_bin(struct ki_bin *bin, uint64_t bytes)
{
	bin->n++;
	bin->bytes += bytes;
}

static struct ki_bin *find_bin(struct ki_bin *bins, const struct bound *bounds,
			       uint64_t value)
{
	unsigned i = 0;

	while (bounds[i].below != UINT64_MAX && value >= bounds[i].below)
		i++;
	return &bins[i];
}

static struct ki_bin *find_age(struct ki_survey *survey,
			       const struct ki_entry_view *view)
{
	unsigned i = 0;

	if (view->created)
		return find_bin(survey->ages, age_bounds, view->age_s);
	while (age_bounds[i].below)
		i++;
	return &survey->ages[i];
}

/* ---- Groups ------------------------------------------------------------------ */

/* The last one is for all that have no place of their own. */
static struct ki_group *find_group(struct ki_groups *groups, const char *name)
{
	uint64_t hash = ki_xxh3_64(name, strlen(name));
	size_t i;

	for (i = 0; i < groups->n; i++)
		if (groups->groups[i].hash == hash)
			return &groups->groups[i];
	if (groups->n == KI_GROUPS_MAX) {
		groups->n_others++;
		i = KI_GROUPS_MAX;
		name = "others";
		groups->groups[i].is_rest = 1;
	} else {
		groups->n++;
	}
	groups->groups[i].hash = hash;
	snprintf(groups->groups[i].name, KI_NAME_BYTES, "%s", name);
	return &groups->groups[i];
}

static void add_to_group(struct ki_groups *groups, const char *name,
			 const struct ki_entry_view *view)
{
	struct ki_group *group = find_group(groups, name);

	group->n++;
	group->bytes += view->stored_size;
	group->build_ns += view->build_ns;
}

static int larger_first(const void *a, const void *b)
{
	const struct ki_group *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static void sort_groups(struct ki_groups *groups)
{
	if (groups->n_others)
		groups->n = KI_GROUPS_MAX + 1;
	if (groups->n)
		qsort(groups->groups, groups->n, sizeof(groups->groups[0]),
		      larger_first);
}

/* ---- The foremost ------------------------------------------------------------ */

/* Whether the first stands before the second. */
typedef int is_before_fn(const struct ki_noted *a, const struct ki_noted *b);

static int is_slower(const struct ki_noted *a, const struct ki_noted *b)
{
	return a->build_ns > b->build_ns;
}

static int is_bigger(const struct ki_noted *a, const struct ki_noted *b)
{
	return a->bytes > b->bytes;
}

/* Without an order `turn` is 0, and the place of the unused is their age. */
static int goes_earlier(const struct ki_noted *a, const struct ki_noted *b)
{
	return a->turn != b->turn ? a->turn < b->turn : a->created < b->created;
}

/* The same where evictions go by cost: by what a byte took to build, those last of
   which nobody knows it. */
static int costs_less(const struct ki_noted *a, const struct ki_noted *b)
{
	if (a->turn != b->turn)
		return a->turn < b->turn;
	if (!a->build_ns || !b->build_ns)
		return a->build_ns && !b->build_ns;
	return (double)a->build_ns * (double)b->bytes <
	       (double)b->build_ns * (double)a->bytes;
}

static void note(struct ki_notes *notes, const struct ki_noted *noted,
		 is_before_fn *is_before)
{
	size_t i = notes->n;

	while (i && is_before(noted, &notes->noted[i - 1]))
		i--;
	if (i == KI_NOTED_MAX)
		return;
	if (notes->n < KI_NOTED_MAX)
		notes->n++;
	memmove(&notes->noted[i + 1], &notes->noted[i],
		(notes->n - i - 1) * sizeof(*noted));
	notes->noted[i] = *noted;
}

static void fill_noted(struct ki_noted *noted, const struct ki_entry_view *view)
{
	memset(noted, 0, sizeof(*noted));
	memcpy(noted->key, view->short_key, sizeof(noted->key));
	snprintf(noted->application, KI_NAME_BYTES, "%s", view->application);
	snprintf(noted->options, KI_NAME_BYTES, "%s", view->options);
	noted->build_ns = view->build_ns;
	noted->bytes = view->stored_size;
	noted->created = view->created;
	noted->used = view->used;
	noted->turn = view->turn;
}

static void note_next(struct ki_survey *survey, struct ki_noted *noted,
		      const struct ki_entry_view *view)
{
	if (survey->has_turns && !noted->turn)
		return;
	if (!survey->has_turns)
		noted->turn = view->is_referenced ? 2 : 1;
	note(&survey->next, noted,
	     survey->is_by_cost ? costs_less : goes_earlier);
}

/* ---- One entry --------------------------------------------------------------- */

/* The field that front ends of OpenCL and Level Zero name the first device by. */
static void device_of_record(const struct kiln_entry *entry,
			     char out[KI_NAME_BYTES])
{
	struct kiln_field field;

	*out = '\0';
	if (entry->record &&
	    !kiln_record_find(kiln_blob_data(entry->record),
			      kiln_blob_size(entry->record), "device 0 name",
			      &field) &&
	    field.kind == KILN_FIELD_BYTES)
		snprintf(out, KI_NAME_BYTES, "%.*s",
			 (int)(field.size < KI_NAME_BYTES ? field.size
							  : KI_NAME_BYTES - 1),
			 (const char *)field.data);
}

static void find_device(const struct ki_settings *settings,
			const struct kiln_entry *entry, char out[KI_NAME_BYTES])
{
	struct ki_what what;

	device_of_record(entry, out);
	if (*out || !ki_what_is_told(settings))
		return;
	ki_what_look(settings, entry, &what);
	ki_sycl_device_name(ki_what_device(&what), out);
}

static void add(struct ki_survey *survey, const struct ki_settings *settings,
		const struct kiln_entry *entry,
		const struct ki_entry_view *view)
{
	char device[KI_NAME_BYTES];
	struct ki_noted noted;

	survey->n++;
	survey->bytes += view->stored_size;
	find_device(settings, entry, device);
	add_to_group(&survey->applications, view->application, view);
	add_to_group(&survey->namespaces, view->name_space, view);
	add_to_group(&survey->devices, device, view);
	add_to_bin(find_age(survey, view), view->stored_size);
	add_to_bin(find_bin(survey->sizes, size_bounds, view->stored_size),
		   view->stored_size);
	fill_noted(&noted, view);
	if (noted.build_ns)
		note(&survey->slowest, &noted, is_slower);
	note(&survey->biggest, &noted, is_bigger);
	note_next(survey, &noted, view);
}

/* ---- All of them ------------------------------------------------------------- */

struct ki_survey *ki_survey_new(void)
{
	struct ki_survey *survey = calloc(1, sizeof(*survey));

	if (!survey)
		return NULL;
	survey->now_s = ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000;
	name_bins(survey->ages, age_bounds);
	name_bins(survey->sizes, size_bounds);
	return survey;
}

int ki_survey_take(struct ki_survey *survey, struct kiln *kiln,
		   const struct ki_settings *settings)
{
	struct kiln_cursor cursor = { { 0 } };
	enum kiln_status status = KILN_END;
	struct kiln_store_info info;
	struct kiln_entry entry;
	int err = 0;

	survey->is_by_cost = kiln && !kiln_store_info(kiln, &info) &&
			     info.eviction == KILN_EVICT_BY_COST;
	survey->has_turns = !survey->is_by_cost && ki_what_is_told(settings);
	while (kiln && !err && !(status = kiln_list(kiln, &cursor, &entry))) {
		struct ki_entry_view view;

		err = ki_entry_view_init(&view, &entry);
		if (!err && !view.is_hidden)
			add(survey, settings, &entry, &view);
		ki_entry_view_fini(&view);
		kiln_entry_fini(&entry);
	}
	sort_groups(&survey->applications);
	sort_groups(&survey->namespaces);
	sort_groups(&survey->devices);
	if (err)
		return ki_store_failed(KILN_E_NO_MEMORY, "cannot list");
	return status == KILN_END ? KI_EXIT_OK
				  : ki_store_failed(status, "cannot list");
}
