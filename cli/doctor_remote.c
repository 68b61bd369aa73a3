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
#include "packs.h"
#include "place.h"
#include "sign/files.h"

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
	if (!strcmp(status, "KILN_E_READONLY"))
		return "name its master, or mark it #read-only";
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
		 struct ki_json_value *out_value)
{
	enum kiln_status status;
	char *text = NULL;

	status = kiln_remote_tell(options, KILN_REMOTE_TRIAL, TRIAL_MS, &text);
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

/* ---- Signatures ------------------------------------------------------------- */

static int is_trusted(const struct kiln_options *options,
		      const struct ki_sign_public *key)
{
	struct ki_sign_public trusted;

	for (size_t i = 0; i < options->n_trusted_keys; i++)
		if (!ki_sign_public_parse(options->trusted_keys[i], &trusted) &&
		    !memcmp(trusted.bytes, key->bytes, sizeof(key->bytes)))
			return 1;
	return 0;
}

/* What programs build goes nowhere without a signature. */
static void check_signing(struct ki_doctor *doctor,
			  const struct kiln_options *options)
{
	const char *path = options->signing_key, *why = "cannot be read";
	struct ki_sign_secret secret;

	if (!path) {
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
			      "'kiln key new default' makes one; others trust "
			      "it by its public half",
			      "nothing is uploaded: there is no key to sign "
			      "with");
		return;
	}
	if (ki_sign_read_secret(&ki_sys_posix, path, &secret, &why)) {
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
			      "correct it, or make another with 'kiln key new' "
			      "and name it as signing-key",
			      "nothing is uploaded: %s, the key to sign with, "
			      "%s",
			      path, why);
		return;
	}
	if (!is_trusted(options, &secret.public))
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
			      "'kiln key trust NAME' trusts it",
			      "what is uploaded is signed by '%s', which is "
			      "not trusted here: it would not be used here",
			      secret.public.name);
	ki_sign_secret_fini(&secret);
}

/* And nothing counts that nobody trusted has signed. */
static void check_signatures(struct ki_doctor *doctor,
			     const struct kiln_options *options, int is_written)
{
	if (options->remote_trust &&
	    !strcmp(options->remote_trust, "transport"))
		return;
	if (!options->n_trusted_keys)
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
			      "'kiln key trust FILE' trusts who fills the "
			      "servers; remote-trust = transport trusts "
			      "whoever can write there",
			      "nothing that is there is used: no key is "
			      "trusted here");
	if (is_written)
		check_signing(doctor, options);
}

/* ---- All -------------------------------------------------------------------- */

static void try_sources(struct ki_doctor *doctor,
			const struct kiln_options *options)
{
	struct ki_json_value told, sources, source, part;
	char *text = ask(doctor, options, &told);
	int is_written = 0;

	if (!text)
		return;
	sources = ki_json_member(&told, "sources");
	for (source = ki_json_first(&sources); source.size;
	     source = ki_json_after(&sources, &source)) {
		say_source(doctor, &source);
		part = ki_json_member(&source, "read_only");
		is_written |= !ki_json_is_true(&part);
	}
	part = ki_json_member(&told, "left_out");
	if (ki_json_number_of(&part))
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE, NULL,
			      "%llu more servers did not fit into the answer",
			      (unsigned long long)ki_json_number_of(&part));
	check_signatures(doctor, options, is_written);
	free(text);
}

int ki_doctor_start_remote(struct ki_doctor *doctor)
{
	char program[KI_PATH_MAX], why[512] = "";
	struct kiln_options options;
	enum kiln_status status;

	kiln_options_init(&options);
	kiln_config_options(doctor->config, &options);
	if (!ki_packs_want_remote(&options))
		return 1;
	status = kiln_remote_start(&options,
				   ki_place_remote(program) ? NULL : program,
				   why, sizeof(why));
	if (status)
		ki_doctor_say(doctor, "remote", KI_DOCTOR_NOTE,
			      status == KILN_MISS
				      ? "install the package kiln-remote"
				      : "correct or unset it",
			      "it is not used: %s (%s)", why,
			      kiln_status_name(status));
	return !status;
}

void ki_doctor_remote(struct ki_doctor *doctor)
{
	struct kiln_options options;

	kiln_options_init(&options);
	kiln_config_options(doctor->config, &options);
	if (options.remote)
		try_sources(doctor, &options);
}
