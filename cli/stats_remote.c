/* SPDX-License-Identifier: MIT */

#include "stats_remote.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/remote.h>

#include "base/json_read.h"
#include "out.h"
#include "packs.h"
#include "uploads.h"

#define TELL_MS	   500
#define TEXT_BYTES 512

/* From malloc(), or NULL: it does not run, or does not answer. */
static char *ask(const struct kiln_options *options)
{
	char *told;

	return kiln_remote_tell(options, KILN_REMOTE_STATE, TELL_MS, &told)
		       ? NULL
		       : told;
}

static uint64_t number_in(const struct ki_json_value *object, const char *part,
			  const char *name)
{
	struct ki_json_value inner = *object;
	struct ki_json_value member;

	if (part)
		inner = ki_json_member(object, part);
	member = ki_json_member(&inner, name);
	return ki_json_number_of(&member);
}

static const char *text_in(const struct ki_json_value *object, const char *part,
			   const char *name, char out[TEXT_BYTES])
{
	struct ki_json_value inner = *object;
	struct ki_json_value member;

	if (part)
		inner = ki_json_member(object, part);
	member = ki_json_member(&inner, name);
	return ki_json_text_of(&member, out, TEXT_BYTES);
}

static void line(struct ki_bytes *out, const char *words, const char *value)
{
	ki_bytes_printf(out, "%-26s", words);
	ki_out_safe(out, value, 0);
	ki_bytes_add_u8(out, '\n');
}

static uint64_t faults_of(const struct ki_json_value *source)
{
	static const char *const kinds[] = { "timeouts",    "io",   "wrong",
					     "credentials", "full", "replica" };
	uint64_t n = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		n += number_in(source, NULL, kinds[i]);
	return n;
}

/* "; reads stop" */
static void add_stop(struct ki_bytes *text, const struct ki_json_value *source,
		     const char *breaker)
{
	char state[TEXT_BYTES];

	if (strcmp(text_in(source, breaker, "state", state), "closed") != 0)
		ki_bytes_printf(text, "; %s stop", breaker);
}

static void print_source(struct ki_bytes *out,
			 const struct ki_json_value *source)
{
	char url[TEXT_BYTES], why[TEXT_BYTES];
	uint64_t n_faults = faults_of(source);
	struct ki_bytes text;

	ki_bytes_init(&text);
	ki_bytes_printf(&text,
			"%s: %llu of %llu found, %llu put, %llu late, "
			"%llu damaged, %llu unsigned, %llu faults",
			text_in(source, NULL, "url", url),
			(unsigned long long)number_in(source, NULL, "hits"),
			(unsigned long long)number_in(source, NULL, "gets"),
			(unsigned long long)number_in(source, NULL, "puts"),
			(unsigned long long)number_in(source, NULL, "late"),
			(unsigned long long)number_in(source, NULL, "refused"),
			(unsigned long long)number_in(source, NULL, "unsigned"),
			(unsigned long long)n_faults);
	add_stop(&text, source, "reads");
	add_stop(&text, source, "writes");
	if (*text_in(source, NULL, "last_fault", why))
		ki_bytes_printf(&text, "; last: %s", why);
	ki_bytes_add_u8(&text, 0);
	if (!text.failed)
		line(out, "remote server", (const char *)text.data);
	ki_bytes_fini(&text);
}

/* " (2 large, 1 unsigned)" */
static void add_reasons(struct ki_bytes *text, const struct ki_json_value *told)
{
	static const char *const kinds[] = {
		"dropped_full",	 "dropped_unsigned", "dropped_large",
		"dropped_fault", "dropped_readonly", "dropped_bad",
	};
	const char *before = " (";

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uint64_t n = number_in(told, "uploads", kinds[i]);

		if (!n)
			continue;
		ki_bytes_printf(text, "%s%llu %s", before,
				(unsigned long long)n,
				kinds[i] + strlen("dropped_"));
		before = ", ";
	}
	if (*before == ',')
		ki_bytes_add_string(text, ")");
}

static void print_told(struct ki_bytes *out, const struct ki_json_value *told)
{
	struct ki_json_value sources = ki_json_member(told, "sources"), source;
	const struct ki_uploads uploads = ki_uploads_of(told);
	struct ki_bytes text;

	ki_bytes_init(&text);
	ki_bytes_printf(&text,
			"process %llu: %llu uploads done, %llu waiting, %llu "
			"dropped",
			(unsigned long long)number_in(told, NULL, "pid"),
			(unsigned long long)uploads.n_done,
			(unsigned long long)uploads.n_waiting,
			(unsigned long long)uploads.n_dropped);
	add_reasons(&text, told);
	ki_bytes_add_u8(&text, 0);
	if (!text.failed)
		line(out, "remote helper", (const char *)text.data);
	ki_bytes_fini(&text);
	for (source = ki_json_first(&sources); source.size;
	     source = ki_json_after(&sources, &source))
		print_source(out, &source);
}

void ki_stats_remote(struct ki_bytes *out, const struct kiln_options *options)
{
	struct ki_json_value told;
	char *text;

	if (!ki_packs_want_remote(options))
		return;
	text = ask(options);
	if (text && ki_json_parse(text, strlen(text), &told))
		print_told(out, &told);
	else
		line(out, "remote helper",
		     "does not run; kiln run starts it when it is needed");
	free(text);
}

void ki_stats_remote_json(struct ki_json *json,
			  const struct kiln_options *options)
{
	struct ki_json_value told;
	char *text;

	if (!ki_packs_want_remote(options)) {
		ki_json_null(json, "remote");
		return;
	}
	text = ask(options);
	ki_json_object(json, "remote");
	if (text && ki_json_parse(text, strlen(text), &told)) {
		ki_json_bool(json, "running", 1);
		ki_json_ready(json, "helper", text);
	} else {
		ki_json_bool(json, "running", 0);
	}
	ki_json_end(json);
	free(text);
}
