/* SPDX-License-Identifier: MIT */

/*
 * Two processes with one disk cache: every pair of what a process may do with it,
 * step by step in every order, against a model of what must come of it; then the
 * same pairs at once, where an outcome is one of several, and with processes that are
 * killed in the midst of it.
 */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>

#define COBJMACROS
#include "d3d12/puppet.h"

static const struct action {
	const char *name, *steps;
} actions[] = {
	{ "opens", "oc" },
	{ "stores", "osc" },
	{ "opens another version", "Osc" },
	{ "clears", "C" },
	{ "clears what it has open", "oCc" },
	{ "deletes", "odc" },
	{ "is killed", "osk" },
	{ "deletes and is killed", "odk" },
};

#define N_OF(array) (sizeof(array) / sizeof(*(array)))
#define N_ACTIONS   N_OF(actions)
#define N_PAIRS	    (N_ACTIONS * (N_ACTIONS + 1) / 2)

struct pair {
	char name[96];
	const struct action *actions[2];
};

/* ---- The model ------------------------------------------------------------------- */

struct model {
	unsigned version;
	int is_to_go; /* when the last session does */
	unsigned char found[PUPPETS_MAX];
	int has_session[PUPPETS_MAX];
};

static int is_open(const struct model *model)
{
	for (unsigned i = 0; i < PUPPETS_MAX; i++)
		if (model->has_session[i])
			return 1;
	return 0;
}

static void empty(struct model *model)
{
	memset(model->found, 0, sizeof(model->found));
}

/* Whoever finds that nobody else has it open. */
static void settle(struct model *model)
{
	if (model->is_to_go)
		empty(model);
	model->is_to_go = 0;
}

static HRESULT model_open(struct model *model, unsigned who, unsigned version)
{
	if (is_open(model) && model->version != version)
		return DXGI_ERROR_ALREADY_EXISTS;
	if (!is_open(model)) {
		settle(model);
		if (model->version != version)
			empty(model);
		model->version = version;
	}
	model->has_session[who] = 1;
	return S_OK;
}

static HRESULT model_store(struct model *model, unsigned who)
{
	if (model->found[who])
		return DXGI_ERROR_ALREADY_EXISTS;
	model->found[who] = 1;
	return S_OK;
}

static HRESULT model_step(struct model *model, unsigned who, char step)
{
	switch (step) {
	case 'o':
	case 'O':
		return model_open(model, who, step == 'o' ? 1 : 2);
	case 'C':
		empty(model);
		return S_OK;
	case 'k':
		model->has_session[who] = 0;
		return S_OK;
	}
	if (!model->has_session[who])
		return PUPPET_IDLE;
	switch (step) {
	case 's':
		return model_store(model, who);
	case 'd':
		model->is_to_go = 1;
		break;
	case 'c':
		model->has_session[who] = 0;
		if (!is_open(model))
			settle(model);
		break;
	}
	return S_OK;
}

/* ---- Every order ------------------------------------------------------------------ */

static struct puppet puppets[PUPPETS_MAX];
static uint32_t cache; /* each order has one of its own */

static void check_answer(const struct model *model, unsigned who,
			 const struct puppet_answer *answer, const char *said)
{
	if (answer->has_session == model->has_session[who] &&
	    (!answer->has_session ||
	     !memcmp(answer->found, model->found, sizeof(model->found))))
		return;
	fail_msg("after %s process %u has a session: %d (%d) and finds "
		 "%d %d %d (%d %d %d)",
		 said, who, answer->has_session, model->has_session[who],
		 answer->found[0], answer->found[1], answer->found[2],
		 model->found[0], model->found[1], model->found[2]);
}

/* One step of one process, and what each of them has then. */
static void step(struct model *model, unsigned who, char what, const char *said)
{
	struct puppet_answer answer;
	HRESULT expected;

	if (!puppets[who].pid)
		puppet_start(&puppets[who], who);
	expected = model_step(model, who, what);
	if (puppet_step(&puppets[who], what, cache, &answer)) {
		if (answer.result != expected)
			fail_msg("after %s: %08x, not %08x", said,
				 (unsigned)answer.result, (unsigned)expected);
		check_answer(model, who, &answer, said);
	} else if (what != 'k') {
		fail_msg("after %s: process %u is no more", said, who);
	}
	for (unsigned i = 0; i < PUPPETS_MAX; i++)
		if (i != who && model->has_session[i]) {
			if (!puppet_look(&puppets[i], &answer))
				fail_msg("after %s: process %u is no more",
					 said, i);
			check_answer(model, i, &answer, said);
		}
}

/* `turns` has a bit for each step: whose it is. */
static void play(const struct pair *pair, unsigned turns, unsigned n_steps)
{
	struct model model = { .version = 1 };
	const char *next[2] = { pair->actions[0]->steps,
				pair->actions[1]->steps };
	char said[64] = "";
	size_t n = 0;

	cache++;
	step(&model, 2, 'o', "the beginning");
	step(&model, 2, 's', "the beginning");
	step(&model, 2, 'c', "the beginning");
	for (unsigned i = 0; i < n_steps; i++) {
		unsigned who = turns >> i & 1;

		n += (size_t)snprintf(said + n, sizeof(said) - n, " %c%u",
				      *next[who], who);
		step(&model, who, *next[who]++, said);
	}
	n += (size_t)snprintf(said + n, sizeof(said) - n, " and ");
	for (const char *end = "odc"; *end; end++) {
		snprintf(said + n, sizeof(said) - n, "%c2", *end);
		step(&model, 2, *end, said);
	}
}

static void every_order(void **state)
{
	const struct pair *pair = *state;
	const unsigned n_second = (unsigned)strlen(pair->actions[1]->steps);
	const unsigned n = (unsigned)strlen(pair->actions[0]->steps) + n_second;

	for (unsigned turns = 0; turns < 1u << n; turns++)
		if ((unsigned)__builtin_popcount(turns) == n_second)
			play(pair, turns, n);
}

/* ---- At once ---------------------------------------------------------------------- */

#define N_ROUNDS 4

static int has_step(const struct pair *pair, char step)
{
	return strchr(pair->actions[0]->steps, step) ||
	       strchr(pair->actions[1]->steps, step);
}

/* Nobody waits for anybody; the first of them by turns. */
static void tell_both(const struct pair *pair, unsigned round)
{
	const char *next[2] = { pair->actions[0]->steps,
				pair->actions[1]->steps };

	while (*next[0] || *next[1])
		for (unsigned i = 0; i < 2; i++) {
			unsigned who = (i + round) % 2;

			if (!*next[who])
				continue;
			if (!puppets[who].pid)
				puppet_start(&puppets[who], who);
			puppet_tell(&puppets[who], *next[who]++, cache);
		}
}

/* So many answers; what was found is looked at by the puppet.  Who stores while
   others clear may be told that the cache is busy. */
static void hear(unsigned who, const char *steps, size_t n)
{
	struct puppet_answer answer;

	for (size_t i = 0; i < n; i++) {
		if (!puppet_hear(&puppets[who], &answer))
			assert_int_equal(steps[i], 'k');
		else if (FAILED(answer.result) &&
			 !(steps[i] == 's' &&
			   answer.result == DXGI_ERROR_NOT_CURRENTLY_AVAILABLE))
			assert_int_equal(answer.result,
					 DXGI_ERROR_ALREADY_EXISTS);
	}
}

static struct puppet_answer do_alone(const char *steps)
{
	struct puppet_answer answer = { 0 };

	if (!puppets[2].pid)
		puppet_start(&puppets[2], 2);
	for (; *steps; steps++) {
		assert_true(puppet_step(&puppets[2], *steps, cache, &answer));
		assert_false(FAILED(answer.result));
	}
	return answer;
}

static void begin_round(void)
{
	cache++;
	do_alone("osc");
}

/* Whatever happened, it can be opened and written. */
static void end_round(const struct pair *pair, int is_sure)
{
	struct puppet_answer answer = do_alone("o");

	if (has_step(pair, 'd') || has_step(pair, 'C'))
		assert_false(is_sure && answer.found[2]);
	else if (!has_step(pair, 'O'))
		assert_true(answer.found[2]);
	if (!answer.found[2])
		answer = do_alone("s");
	assert_true(answer.found[2]);
	do_alone("dc");
}

static void both_at_once(void **state)
{
	const struct pair *pair = *state;

	for (unsigned i = 0; i < N_ROUNDS; i++) {
		begin_round();
		tell_both(pair, i);
		for (unsigned who = 0; who < 2; who++)
			hear(who, pair->actions[who]->steps,
			     strlen(pair->actions[who]->steps));
		end_round(pair, 1);
	}
}

/* ---- Killed anywhere --------------------------------------------------------------- */

/* One of the two dies right after one of its steps, or in the next. */
static void one_is_killed(void **state)
{
	const struct pair *pair = *state;
	static uint64_t seed = 58;

	for (unsigned i = 0; i < N_ROUNDS; i++) {
		const unsigned victim = i % 2, other = !victim;
		const char *steps = pair->actions[victim]->steps;

		begin_round();
		tell_both(pair, i / 2);
		hear(victim, steps, harness_random(&seed) % strlen(steps));
		puppet_kill(&puppets[victim]);
		steps = pair->actions[other]->steps;
		hear(other, steps, strlen(steps));
		end_round(pair, 0);
	}
}

/* ---- All of them ------------------------------------------------------------------- */

static size_t add_tests(struct CMUnitTest *tests, struct pair *pairs,
			const char *how, CMUnitTestFunction body)
{
	size_t n = 0;

	for (size_t a = 0; a < N_ACTIONS; a++)
		for (size_t b = a; b < N_ACTIONS; b++, n++) {
			pairs[n].actions[0] = &actions[a];
			pairs[n].actions[1] = &actions[b];
			snprintf(pairs[n].name, sizeof(pairs[n].name),
				 "one %s and one %s%s", actions[a].name,
				 actions[b].name, how);
			for (char *c = pairs[n].name; *c; c++)
				*c = *c == ' ' ? '_' : *c;
			tests[n] = (struct CMUnitTest){ pairs[n].name, body,
							NULL, NULL, &pairs[n] };
		}
	return n;
}

static int stop_all(void **state)
{
	for (unsigned i = 0; i < PUPPETS_MAX; i++)
		puppet_stop(&puppets[i]);
	return 0;
}

/* pairs orders|races */
int main(int argc, char **argv)
{
	static struct pair pairs[2][N_PAIRS];
	static struct CMUnitTest tests[2 * N_PAIRS];
	char *directory = harness_directory();
	size_t n;

	setenv("KILN_DIR", directory, 1);
	free(directory);
	if (argc == 2 && !strcmp(argv[1], "races")) {
		n = add_tests(tests, pairs[0], " at once", both_at_once);
		n += add_tests(tests + n, pairs[1], " and one is killed",
			       one_is_killed);
	} else {
		n = add_tests(tests, pairs[0], "", every_order);
	}
	return _cmocka_run_group_tests("d3d12", tests, n, NULL, stop_all);
}
