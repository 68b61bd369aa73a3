/* SPDX-License-Identifier: MIT */

/*
 * kiln run: a program under the OpenCL layer and the Level Zero proxy driver.
 *
 * Where nothing is to be done after the program, kiln does not stand by but
 * becomes the program: when caching is off or impossible, when no jobs may be
 * written, and when another `kiln run` further up does the rest.  Whatever is
 * wrong with caching, the program runs.
 *
 * That there is another one further up stands in _KILN_RUN, as process id and
 * start time: a variable that outlives its `kiln run`, in a daemon say, is
 * seen to be stale.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/inspect.h>
#include <kiln/remote.h>

#include "jobs.h"
#include "layers.h"
#include "levelzero.h"
#include "out.h"
#include "packs.h"
#include "parent.h"
#include "place.h"
#include "store.h"
#include "sys/sys.h"
#include "uploads.h"
#include "verbs.h"

#define LAYERS "OPENCL_LAYERS"
#define MARK   "_KILN_RUN"

/* ---- The program's environment ---------------------------------------------- */

static int is_nested(void)
{
	const char *mark = getenv(MARK);
	unsigned long long start;
	int pid;

	return mark && sscanf(mark, "%d:%llu", &pid, &start) == 2 &&
	       ki_process_alive(pid, start);
}

/* Whether the layer is there and set; says why not. */
static int set_layer(void)
{
	char layer[KI_PATH_MAX];
	char *list;
	int failed;

	if (ki_place_layer(layer)) {
		ki_complain("running without cache: there is no %s", layer);
		return 0;
	}
	if (!ki_layers_can_name(layer)) {
		ki_complain("running without cache: the loader cannot be told "
			    "of a layer with ':' in its path, %s",
			    layer);
		return 0;
	}
	list = ki_layers_with(getenv(LAYERS), layer);
	failed = !list || setenv(LAYERS, list, 1);
	free(list);
	if (failed)
		ki_complain("running without cache: out of memory");
	return !failed;
}

static char **marked_environment(void)
{
	static char mark[64];
	size_t n = 0, kept = 0, i;
	char **copy;
	int pid = ki_process_id();

	snprintf(mark, sizeof(mark), MARK "=%d:%llu", pid,
		 (unsigned long long)ki_process_start(pid));
	while (environ[n])
		n++;
	copy = calloc(n + 2, sizeof(*copy));
	for (i = 0; copy && i < n; i++)
		if (strncmp(environ[i], MARK "=", sizeof(MARK)))
			copy[kept++] = environ[i];
	if (copy)
		copy[kept] = mark;
	return copy;
}

/* ---- Running ------------------------------------------------------------------ */

static int cannot_execute(const char *program, int err)
{
	ki_complain("cannot run '%s': %s", program, strerror(err));
	return err == ENOENT ? KI_EXIT_RUN_NOT_FOUND
			     : KI_EXIT_RUN_NOT_EXECUTABLE;
}

static int become(char **argv)
{
	execvp(argv[0], argv);
	return cannot_execute(argv[0], errno);
}

struct plan {
	const char *spool; /* NULL: nothing is to be done afterwards */
	const char *store_url;
	int is_waiting;
	struct kiln_options options;
};

static void make_jobs(const struct plan *plan, const sigset_t *mask)
{
	struct ki_jobs_report report;
	int err;

	if (!ki_jobs_pending(plan->spool))
		return;
	if (!plan->is_waiting) {
		(void)ki_jobs_start(plan->spool, plan->store_url);
		return;
	}
	sigprocmask(SIG_SETMASK, mask, NULL);
	err = ki_jobs_wait(plan->spool, plan->store_url, 1, &report);
	if (err)
		ki_complain("cannot start kiln-worker: %s", strerror(-err));
	else
		ki_jobs_complain(&report);
	ki_jobs_report_fini(&report);
}

static int stand_by(char **argv, const struct plan *plan)
{
	char **environment = marked_environment();
	int wait_status, is_exec, err;
	struct ki_uploads uploads;
	sigset_t mask;

	if (!environment) {
		ki_complain("out of memory");
		return KI_EXIT_RUN_FAILED;
	}
	err = ki_parent_run(argv, environment, &mask, &wait_status, &is_exec);
	free(environment);
	if (err && is_exec)
		return cannot_execute(argv[0], -err);
	if (err) {
		ki_complain("cannot start a process: %s", strerror(-err));
		return KI_EXIT_RUN_FAILED;
	}
	make_jobs(plan, &mask);
	if (plan->is_waiting) {
		sigprocmask(SIG_SETMASK, &mask, NULL);
		(void)ki_uploads_wait(&plan->options, &uploads);
	}
	ki_parent_end(wait_status);
}

/* The program and what makes its jobs find the store by the environment. */
static int use_store(struct kiln_config *config, const char *url)
{
	if (ki_store_use(config, url))
		return -1;
	if (!setenv("KILN_STORE", kiln_config_value(config, KILN_SET_STORE), 1))
		return 0;
	ki_complain("out of memory");
	return -1;
}

/* Programs find it by their settings, and do without it if it cannot be had. */
static void start_remote(const struct ki_command *command,
			 const struct kiln_options *options)
{
	char program[KI_PATH_MAX], why[1024] = "out of memory";
	struct kiln_options wanted = *options;
	enum kiln_status status = KILN_E_INVALID;

	if (!ki_packs_want_remote(&wanted))
		wanted.packs = ki_packs_url(command);
	if (!ki_packs_want_remote(&wanted))
		return;
	status = kiln_remote_start(&wanted,
				   ki_place_remote(program) ? NULL : program,
				   why, sizeof(why));
	if (status)
		ki_complain("running without remote: kiln-remote: %s", why);
}

/* Whether the settings let anything be cached; fills the plan. */
static int is_caching(struct kiln_config *config, enum kiln_status status,
		      const char *message, const struct ki_command *command,
		      struct plan *plan)
{
	const char *url = command->values[KI_OPTION_STORE];

	if (status) {
		ki_complain("running without cache: %s", message);
		return 0;
	}
	if (kiln_config_number(config, KILN_SET_DISABLE))
		return 0;
	if (url && use_store(config, url))
		return 0;
	ki_store_warn_of_foreign(config);
	kiln_options_init(&plan->options);
	kiln_config_options(config, &plan->options);
	plan->store_url = plan->options.store_url;
	start_remote(command, &plan->options);
	ki_packs_set(command, config);
	(void)ki_levelzero_set(config);
	if (plan->options.store_url)
		plan->spool = kiln_config_spool(config);
	return 1;
}

static int has_more_to_do(const struct plan *plan)
{
	return plan->spool || (plan->is_waiting && plan->options.remote);
}

int ki_verb_run(const struct ki_command *command)
{
	struct kiln_config *config = NULL;
	struct plan plan = { .is_waiting = ki_given(command, KI_OPTION_WAIT) };
	char message[1024] = "out of memory";
	enum kiln_status status;
	int result;

	status = kiln_config_load(&config, message, sizeof(message));
	if (is_caching(config, status, message, command, &plan) &&
	    set_layer() && !is_nested() && has_more_to_do(&plan))
		result = stand_by(command->arguments, &plan);
	else
		result = become(command->arguments);
	kiln_config_free(config);
	return result;
}
