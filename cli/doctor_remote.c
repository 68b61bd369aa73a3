/* SPDX-License-Identifier: MIT */

/*
 * kiln doctor: the servers of KILN_REMOTE.  The helper is started as `kiln run`
 * would start it, and tries each of them end to end: whether it takes an item,
 * gives the same back, and has leases.  Without servers caching works all the
 * same, so nothing here is worse than a note.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/remote.h>

#include "base/json_read.h"
#include "base/text.h"
#include "doctor.h"
#include "place.h"

#define STATE_MS 2000
/* Six steps, each in the time of a request, and some. */
#define TRIAL_MS 60000

#define URL_BYTES 512

static const char *remedy_of(const char *status, const char *step)
{
	if (!strcmp(status, "KILN_E_OWNER") && !strcmp(step, "put"))
		return "give the server the credentials of who may write "
		       "(KILN_REMOTE_CREDENTIALS), or mark it #read-only";
	if (!strcmp(status, "KILN_E_OWNER"))
		return "correct its line in the file of "
		       "KILN_REMOTE_CREDENTIALS";
	if (!strcmp(status, "KILN_E_FULL"))
		return "make room on the server, or have it evict";
	if (!strcmp(status, "KILN_E_TIMEOUT") || !strcmp(status, "KILN_E_IO"))
		return "see whether the server runs, and can be reached from "
		       "here";
	return "see what the server says about it in its own log";
}

static void say_fault(struct ki_doctor *doctor, const char *url,
		      const struct ki_json_value *step)
{
	struct ki_json_value name = ki_json_member(step, "step");
	struct ki_json_value why = ki_json_member(step, "why");
	struct ki_json_value status = ki_json_member(step, "status");
	char name_text[32], why_text[256], status_text[32];

	ki_json_text_of(&name, name_text, sizeof(name_text));
	ki_json_text_of(&why, why_text, sizeof(why_text));
	ki_json_text_of(&status, status_text, sizeof(status_text));
	ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
		      remedy_of(status_text, name_text), "%s: %s: %s (%s)", url,
		      name_text, why_text, status_text);
}

/* "put, get, lease; an item comes in 240 us" */
static void say_source(struct ki_doctor *doctor,
		       const struct ki_json_value *source)
{
	struct ki_json_value steps = ki_json_member(source, "steps"), step;
	struct ki_json_value url = ki_json_member(source, "url"), part;
	char url_text[URL_BYTES], words[128] = "", name[32], time[32] = "";
	int is_good = 1;

	ki_json_text_of(&url, url_text, sizeof(url_text));
	for (step = ki_json_first(&steps); step.size;
	     step = ki_json_after(&steps, &step)) {
		size_t n = strlen(words);

		part = ki_json_member(&step, "ok");
		if (!ki_json_is_true(&part)) {
			say_fault(doctor, url_text, &step);
			is_good = 0;
			continue;
		}
		part = ki_json_member(&step, "step");
		ki_json_text_of(&part, name, sizeof(name));
		snprintf(words + n, sizeof(words) - n, "%s%s", n ? ", " : "",
			 name);
		part = ki_json_member(&step, "us");
		if (!strcmp(name, "get"))
			ki_format_duration(ki_json_number_of(&part) * 1000,
					   time, sizeof(time));
	}
	if (is_good)
		ki_doctor_say(doctor, "remote", KI_DOCTOR_FINE, NULL,
			      "%s: %s; a look-up takes %s", url_text, words,
			      time);
}

/* NULL, and said: it does not answer. */
static char *ask(struct ki_doctor *doctor, const struct kiln_options *options,
		 unsigned what, uint32_t ms, struct ki_json_value *out_value)
{
	enum kiln_status status;
	char *text = NULL;

	status = kiln_remote_tell(options, what, ms, &text);
	if (!status && !ki_json_parse(text, strlen(text), out_value))
		status = KILN_E_FORMAT;
	if (!status)
		return text;
	free(text);
	ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
		      "end the process kiln-remote; it is started again",
		      "kiln-remote does not answer (%s)",
		      kiln_status_name(status));
	return NULL;
}

static void try_sources(struct ki_doctor *doctor,
			const struct kiln_options *options)
{
	struct ki_json_value told, sources, source;
	char *text = ask(doctor, options, KILN_REMOTE_TRIAL, TRIAL_MS, &told);

	if (!text)
		return;
	sources = ki_json_member(&told, "sources");
	for (source = ki_json_first(&sources); source.size;
	     source = ki_json_after(&sources, &source))
		say_source(doctor, &source);
	free(text);
}

/* What programs build goes nowhere without a signature. */
static void check_writing(struct ki_doctor *doctor,
			  const struct kiln_options *options)
{
	struct ki_json_value told, uploads, possible;
	char *text = ask(doctor, options, KILN_REMOTE_STATE, STATE_MS, &told);

	if (!text)
		return;
	uploads = ki_json_member(&told, "uploads");
	possible = ki_json_member(&uploads, "possible");
	if (!ki_json_is_true(&possible) && !options->signing_key)
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
			      "'kiln key new default' makes one; others trust "
			      "it by its public half",
			      "nothing is uploaded: there is no key to sign "
			      "with");
	free(text);
}

void ki_doctor_remote(struct ki_doctor *doctor)
{
	char program[KI_PATH_MAX], why[512] = "";
	struct kiln_options options;
	enum kiln_status status;

	kiln_options_init(&options);
	kiln_config_options(doctor->config, &options);
	if (!options.remote)
		return;
	status = kiln_remote_start(&options,
				   ki_place_remote(program) ? NULL : program,
				   why, sizeof(why));
	if (status) {
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
			      status == KILN_MISS
				      ? "install the package kiln-remote"
				      : "correct or unset it",
			      "it is not used: %s (%s)", why,
			      kiln_status_name(status));
		return;
	}
	try_sources(doctor, &options);
	check_writing(doctor, &options);
}
