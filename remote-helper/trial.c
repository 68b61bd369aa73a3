/* SPDX-License-Identifier: MIT */

#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "loop.h"
#include "sys/sys.h"

#define STEPS_MAX 8
#define WHY_BYTES 160
/* Of one in words, besides its URL, and what comes behind. */
#define CANDIDATE_BYTES (N_STEPS * (2 * WHY_BYTES + 128) + 512)
#define ITEM_BYTES	512
#define LEASE_MS	5000

enum step {
	STEP_PUT,
	STEP_GET,
	STEP_HEAD,
	STEP_RANGE,
	STEP_LEASE,
	STEP_RELEASE,
	N_STEPS
};

static const char *const step_names[N_STEPS] = { "put",	  "get",   "head",
						 "range", "lease", "release" };

struct result {
	int is_done;
	enum kiln_status status;
	uint64_t ns;
	char why[WHY_BYTES];
};

/* One source on its way through the steps. */
struct candidate {
	struct trial *trial;
	struct source *source;
	enum step step;
	uint64_t begun_ns;
	int is_written; /* there is an item to be found */
	char tag[128];
	struct result results[N_STEPS];
};

struct trial {
	struct sources *sources;
	trial_fn *done; /* NULL: forgotten */
	void *arg;
	size_t n, n_left;
	char name[NAME_TEXT_BYTES];
	char token[33];
	uint8_t item[ITEM_BYTES];
	struct candidate candidates[];
};

static void go_on(struct candidate *candidate);

/* ---- What is put --------------------------------------------------------- */

/* The same of one user on one machine, so that it is replaced. */
static void make_item(struct trial *trial)
{
	uint8_t digest[KI_REMOTE_NAME_BYTES];
	char text[320], host[256] = "";
	int n;

	(void)gethostname(host, sizeof(host) - 1);
	n = snprintf(text, sizeof(text), "kiln-remote trial of %s %u", host,
		     ki_user_id());
	ki_blake2b(text, (size_t)n, digest);
	ki_hex(digest, sizeof(digest), trial->name);
	ki_hex(digest, 16, trial->token);
	for (size_t i = 0; i < ITEM_BYTES; i++)
		trial->item[i] = digest[i % sizeof(digest)] ^ (uint8_t)i;
}

/* ---- What came of it ----------------------------------------------------- */

static void tell_step(struct ki_json *json, enum step step,
		      const struct result *result)
{
	ki_json_object(json, NULL);
	ki_json_string(json, "step", step_names[step]);
	ki_json_bool(json, "ok", !result->status);
	ki_json_number(json, "us", result->ns / 1000);
	if (result->status) {
		ki_json_string(json, "status",
			       kiln_status_name(result->status));
		ki_json_string(json, "why", result->why);
	}
	ki_json_end(json);
}

static void tell_candidate(struct ki_json *json,
			   const struct candidate *candidate)
{
	int ok = 1;

	for (int i = 0; i < N_STEPS; i++)
		ok &= !candidate->results[i].status;
	ki_json_object(json, NULL);
	ki_json_string(json, "url", candidate->source->backend->shown);
	ki_json_number(json, "level", candidate->source->level);
	ki_json_bool(json, "read_only",
		     candidate->source->settings->is_read_only);
	ki_json_bool(json, "ok", ok);
	ki_json_array(json, "steps");
	for (int i = 0; i < N_STEPS; i++)
		if (candidate->results[i].is_done)
			tell_step(json, (enum step)i, &candidate->results[i]);
	ki_json_end(json);
	ki_json_end(json);
}

/* A letter of a URL may become two. */
static int has_room(const struct ki_bytes *bytes,
		    const struct candidate *candidate)
{
	return bytes->size + 2 * strlen(candidate->source->backend->shown) +
		       CANDIDATE_BYTES <=
	       KI_REMOTE_BODY_MAX;
}

static void tell(struct trial *trial)
{
	struct ki_bytes bytes;
	struct ki_json json;
	size_t n_told = 0;

	ki_bytes_init(&bytes);
	ki_json_begin(&json, &bytes);
	ki_json_object(&json, NULL);
	ki_json_array(&json, "sources");
	/* An answer has a limit, and so many servers nobody has. */
	for (;
	     n_told < trial->n && has_room(&bytes, &trial->candidates[n_told]);
	     n_told++)
		tell_candidate(&json, &trial->candidates[n_told]);
	ki_json_end(&json);
	ki_json_number(&json, "left_out", trial->n - n_told);
	ki_json_end(&json);
	if (bytes.failed)
		trial->done(trial->arg, KILN_E_NO_MEMORY, NULL, 0);
	else
		trial->done(trial->arg, KILN_OK, (const char *)bytes.data,
			    bytes.size);
	ki_bytes_fini(&bytes);
}

/* Of one that was forgotten nothing is looked at: it may end with the sources, of
   which some are gone. */
static void finish(struct candidate *candidate)
{
	struct trial *trial = candidate->trial;

	if (--trial->n_left)
		return;
	if (trial->done)
		tell(trial);
	free(trial);
}

/* ---- Steps --------------------------------------------------------------- */

static void record(struct candidate *candidate, enum kiln_status status,
		   const char *why)
{
	struct result *result = &candidate->results[candidate->step];

	result->is_done = 1;
	result->status = status;
	result->ns = loop_now_ns(candidate->trial->sources->loop) -
		     candidate->begun_ns;
	snprintf(result->why, sizeof(result->why), "%s",
		 why ? why : kiln_status_name(status));
}

static int is_the_item(const struct candidate *candidate,
		       const struct outcome *outcome)
{
	return outcome->body_size == ITEM_BYTES &&
	       !memcmp(outcome->body, candidate->trial->item, ITEM_BYTES);
}

/* What a step should have been answered, and in words if it was not. */
static void judge(struct candidate *candidate, const struct outcome *outcome)
{
	enum kiln_status status = outcome->status;
	const char *why = outcome->why;

	switch (candidate->step) {
	case STEP_PUT:
		if (status == KILN_EXISTS)
			status = KILN_OK;
		candidate->is_written = !status;
		break;
	case STEP_GET:
		if (!status && !is_the_item(candidate, outcome)) {
			status = KILN_E_FORMAT;
			why = "it gives back something else than was put there";
		} else if (status == KILN_MISS && !candidate->is_written) {
			status = KILN_OK;
		} else if (status == KILN_MISS) {
			why = "it has not what was put there a moment ago";
		}
		break;
	case STEP_RANGE:
		if (!status &&
		    (outcome->body_size != 16 ||
		     memcmp(outcome->body, candidate->trial->item + 8, 16))) {
			status = KILN_E_FORMAT;
			why = "it gives back another part than was asked for";
		}
		break;
	case STEP_HEAD:
		if (status == KILN_MISS)
			why = "it says there is not what it gives";
		break;
	case STEP_LEASE:
		/* Another trial has it, which shows that there are leases. */
		if (status == KILN_EXISTS)
			status = KILN_OK;
		break;
	default:
		if (status == KILN_MISS)
			status = KILN_OK;
	}
	record(candidate, status, why);
}

/* A server that only refuses to be written to is still asked. */
static int is_worth_more(const struct candidate *candidate)
{
	enum kiln_status status = candidate->results[candidate->step].status;

	return !status || (candidate->step == STEP_PUT && status != KILN_E_IO &&
			   status != KILN_E_TIMEOUT && status != KILN_E_FORMAT);
}

static void done(void *arg, const struct outcome *outcome)
{
	struct candidate *candidate = arg;
	int goes_on;

	judge(candidate, outcome);
	free(outcome->body);
	goes_on = is_worth_more(candidate) &&
		  !candidate->trial->sources->is_closing;
	candidate->step++;
	if (goes_on)
		go_on(candidate);
	else
		finish(candidate);
}

/* Whether a step makes sense for what came before. */
static int applies(const struct candidate *candidate)
{
	const struct source *source = candidate->source;
	const struct backend_ops *ops = source->backend->ops;
	int leases = ops->lease && !source->settings->is_read_only &&
		     !source->settings->has_no_lease;

	switch (candidate->step) {
	case STEP_PUT:
		return !source->settings->is_read_only;
	case STEP_GET:
		return 1;
	case STEP_HEAD:
		return candidate->is_written;
	case STEP_RANGE:
		return candidate->is_written && ops->range;
	default:
		return leases;
	}
}

static void begin_step(struct candidate *candidate)
{
	const struct trial *trial = candidate->trial;
	struct backend *backend = candidate->source->backend;
	const struct backend_ops *ops = backend->ops;
	uint32_t ms = candidate->source->settings->timeout_ms;

	candidate->begun_ns = loop_now_ns(trial->sources->loop);
	switch (candidate->step) {
	case STEP_PUT:
		ops->put(backend, trial->name, trial->item, ITEM_BYTES,
			 candidate->source->settings->ttl_s, 0, ms, done,
			 candidate);
		break;
	case STEP_GET:
		ops->get(backend, (const char *const[]){ trial->name }, 1,
			 2 * ITEM_BYTES, ms, done, (void *[]){ candidate });
		break;
	case STEP_HEAD:
		ops->head(backend, trial->name, ms, done, candidate);
		break;
	case STEP_RANGE:
		ops->range(backend, trial->name, 8, 16, candidate->tag, ms,
			   done, candidate);
		break;
	case STEP_LEASE:
		ops->lease(backend, trial->name, trial->token, LEASE_MS, ms,
			   done, candidate);
		break;
	default:
		ops->release(backend, trial->name, trial->token, ms, done,
			     candidate);
	}
}

static void go_on(struct candidate *candidate)
{
	while (candidate->step < N_STEPS && !applies(candidate))
		candidate->step++;
	if (candidate->step < N_STEPS)
		begin_step(candidate);
	else
		finish(candidate);
}

/* A server that cannot even be asked, for want of memory, is done within the call:
   that counts itself until all have begun. */
enum kiln_status trial_begin(struct sources *sources, trial_fn *fn, void *arg,
			     struct trial **out_trial)
{
	struct trial *trial;
	size_t n = 0, k = 0;

	for (size_t i = 0; i < sources->n_levels; i++)
		n += sources->levels[i].n;
	if (!n)
		return KILN_MISS;
	trial = calloc(1, sizeof(*trial) + n * sizeof(struct candidate));
	if (!trial)
		return KILN_E_NO_MEMORY;
	trial->sources = sources;
	trial->done = fn;
	trial->arg = arg;
	trial->n = n;
	trial->n_left = n + 1;
	make_item(trial);
	for (size_t i = 0; i < sources->n_levels; i++)
		for (size_t j = 0; j < sources->levels[i].n; j++)
			trial->candidates[k++] = (struct candidate){
				.trial = trial,
				.source = &sources->levels[i].sources[j],
			};
	for (size_t i = 0; i < n; i++)
		go_on(&trial->candidates[i]);
	if (!--trial->n_left) {
		free(trial);
		return KILN_E_NO_MEMORY;
	}
	*out_trial = trial;
	return KILN_OK;
}

void trial_forget(struct trial *trial)
{
	trial->done = NULL;
}
