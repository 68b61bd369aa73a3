/* SPDX-License-Identifier: MIT */

#include "filter.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "out.h"
#include "sys/sys.h"

/* ---- The command line -------------------------------------------------------- */

/* How long ago, as a time; 0 where the option is not given. */
static int parse_age(const struct ki_command *command, enum ki_option option,
		     uint64_t *out_time)
{
	const struct ki_sys *sys = &ki_sys_posix;
	const uint64_t now = sys->realtime_ns(sys) / 1000000000;
	const char *text = command->values[option];
	uint64_t age;

	*out_time = 0;
	if (!text)
		return KI_EXIT_OK;
	if (ki_parse_age(text, &age) || !age || age >= now) {
		ki_complain("--%s: '%s' is no age; use a number with s, m, h, "
			    "d or w",
			    ki_option_rows[option].name, text);
		return KI_EXIT_USAGE;
	}
	*out_time = now - age;
	return KI_EXIT_OK;
}

static int parse_size(const struct ki_command *command, enum ki_option option,
		      uint64_t *out_bytes)
{
	const char *text = command->values[option];

	*out_bytes = 0;
	if (!text)
		return KI_EXIT_OK;
	if (ki_parse_size(text, out_bytes) || !*out_bytes) {
		ki_complain("--%s: '%s' is no size; use a number, with K, M, G "
			    "or T",
			    ki_option_rows[option].name, text);
		return KI_EXIT_USAGE;
	}
	return KI_EXIT_OK;
}

int ki_filter_parse(const struct ki_command *command,
		    struct ki_filter *out_filter)
{
	int status;

	*out_filter = (struct ki_filter){
		.application = command->values[KI_OPTION_APPLICATION],
		.device = command->values[KI_OPTION_DEVICE],
		.name_space = command->values[KI_OPTION_NAMESPACE],
	};
	status =
		parse_age(command, KI_OPTION_MADE_BEFORE, &out_filter->made_to);
	if (!status)
		status = parse_age(command, KI_OPTION_MADE_SINCE,
				   &out_filter->made_from);
	if (!status)
		status = parse_size(command, KI_OPTION_LARGER_THAN,
				    &out_filter->bytes_over);
	if (!status)
		status = parse_size(command, KI_OPTION_SMALLER_THAN,
				    &out_filter->bytes_under);
	return status;
}

/* ---- What fits --------------------------------------------------------------- */

enum answer { NO, YES, NOT_SAID };

static int has_text(const void *data, size_t size, const char *text)
{
	const char *bytes = data;
	const size_t length = strlen(text);

	for (size_t i = 0; i + length <= size; i++)
		if (!strncasecmp(bytes + i, text, length))
			return 1;
	return 0;
}

/* "device 0 name" and the like, whatever a front calls them. */
static int is_of_device(const struct kiln_field *field)
{
	static const char *const beginnings[] = { "device", "sycl.device" };

	for (size_t i = 0; i < 2; i++)
		if (field->kind == KILN_FIELD_BYTES &&
		    field->label_size >= strlen(beginnings[i]) &&
		    !memcmp(field->label, beginnings[i], strlen(beginnings[i])))
			return 1;
	return 0;
}

static enum answer by_device(const struct ki_filter *filter,
			     const struct kiln_entry *entry, const char *device)
{
	enum answer answer = *device ? NO : NOT_SAID;
	struct kiln_field field;
	size_t position = 0;

	if (!filter->device || has_text(device, strlen(device), filter->device))
		return YES;
	while (!kiln_record_next(kiln_blob_data(entry->record),
				 kiln_blob_size(entry->record), &position,
				 &field)) {
		if (!is_of_device(&field))
			continue;
		if (has_text(field.data, field.size, filter->device))
			return YES;
		answer = NO;
	}
	return answer;
}

static enum answer by_namespace(const struct ki_filter *filter,
				const struct ki_entry_view *view)
{
	if (!filter->name_space)
		return YES;
	if (!*view->name_space)
		return NOT_SAID;
	return strcmp(view->name_space, filter->name_space) ? NO : YES;
}

static enum answer by_age(const struct ki_filter *filter,
			  const struct ki_entry_view *view)
{
	if (!filter->made_from && !filter->made_to)
		return YES;
	if (!view->created)
		return NOT_SAID;
	return view->created >= filter->made_from &&
			       (!filter->made_to ||
				view->created <= filter->made_to)
		       ? YES
		       : NO;
}

static int by_size(const struct ki_filter *filter,
		   const struct ki_entry_view *view)
{
	return (!filter->bytes_over || view->value_size > filter->bytes_over) &&
	       (!filter->bytes_under || view->value_size < filter->bytes_under);
}

int ki_filter_fits(const struct ki_filter *filter,
		   const struct kiln_entry *entry,
		   const struct ki_entry_view *view, const char *device,
		   struct ki_unknown *unknown)
{
	const enum answer answers[KI_N_CRITERIA] = {
		[KI_BY_APPLICATION] = YES,
		[KI_BY_DEVICE] = by_device(filter, entry, device),
		[KI_BY_NAMESPACE] = by_namespace(filter, view),
		[KI_BY_AGE] = by_age(filter, view),
	};
	enum ki_criterion first = KI_N_CRITERIA;

	if (!by_size(filter, view))
		return 0;
	for (int i = KI_N_CRITERIA - 1; i >= 0; i--) {
		if (answers[i] == NO)
			return 0;
		if (answers[i] == NOT_SAID)
			first = (enum ki_criterion)i;
	}
	if (first == KI_N_CRITERIA)
		return 1;
	unknown->n[first]++;
	return 0;
}

int ki_filter_is_application(const struct ki_filter *filter, const char *path)
{
	return !filter->application || !strcmp(path, filter->application) ||
	       !strcmp(ki_last_name(path), filter->application);
}

/* ---- What could not be judged ------------------------------------------------- */

size_t ki_unknown_total(const struct ki_unknown *unknown)
{
	size_t n = 0;

	for (int i = 0; i < KI_N_CRITERIA; i++)
		n += unknown->n[i];
	return n;
}

void ki_unknown_complain(const struct ki_unknown *unknown)
{
	static const char *const words[KI_N_CRITERIA][2] = {
		[KI_BY_APPLICATION] = { "whose it is", "whose they are" },
		[KI_BY_DEVICE] = { "its device", "their device" },
		[KI_BY_NAMESPACE] = { "its namespace", "their namespace" },
		[KI_BY_AGE] = { "when it was made", "when they were made" },
	};

	for (int i = 0; i < KI_N_CRITERIA; i++)
		if (unknown->n[i])
			ki_complain("%zu entr%s not say %s: left out",
				    unknown->n[i],
				    unknown->n[i] == 1 ? "y does" : "ies do",
				    words[i][unknown->n[i] != 1]);
}
