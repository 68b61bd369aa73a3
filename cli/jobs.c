/* SPDX-License-Identifier: MIT */

#include "jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "out.h"
#include "parent.h"
#include "place.h"
#include "sys/sys.h"

#define NAMES_MAX     5 /* jobs named before "and N more" */
#define WHY_BYTES_MAX 200

/* ---- The spool ------------------------------------------------------------ */

/* A job's name is its key's digest; temporaries and strangers differ. */
static int is_job(const char *name)
{
	return strspn(name, "0123456789abcdef") == 32 &&
	       !strcmp(name + 32, ".job");
}

static size_t each_job(const char *spool, int is_removing)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char path[KI_PATH_MAX];
	const char *name;
	struct ki_dir *dir;
	size_t n = 0;

	if (!spool || sys->opendir(sys, spool, &dir))
		return 0;
	while (sys->readdir(sys, dir, &name) > 0) {
		if (!is_job(name))
			continue;
		if (!is_removing)
			n++;
		else if (!ki_path_join(path, spool, name) &&
			 !sys->unlink(sys, path))
			n++;
	}
	sys->closedir(sys, dir);
	return n;
}

size_t ki_jobs_pending(const char *spool)
{
	return each_job(spool, 0);
}

int ki_jobs_has(const char *spool, const char *prefix)
{
	const struct ki_sys *sys = &ki_sys_posix;
	size_t length = strlen(prefix);
	const char *name;
	struct ki_dir *dir;
	int found = 0;

	if (!spool || sys->opendir(sys, spool, &dir))
		return 0;
	while (!found && sys->readdir(sys, dir, &name) > 0)
		found = is_job(name) && !strncasecmp(name, prefix, length);
	sys->closedir(sys, dir);
	return found;
}

size_t ki_jobs_remove(const char *spool)
{
	return each_job(spool, 1);
}

/* ---- Starting the worker ---------------------------------------------------- */

/* The worker is no program to be cached. */
static char **worker_environment(void)
{
	size_t n = 0, i, kept = 0;
	char **copy;

	while (environ[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (i = 0; copy && i < n; i++)
		if (strncmp(environ[i], "OPENCL_LAYERS=", 14))
			copy[kept++] = environ[i];
	return copy;
}

int ki_jobs_start(const char *spool, const char *store_url)
{
	char worker[KI_PATH_MAX];
	const char *argv[] = { "kiln-worker", "--spool", spool,
			       "--store",     store_url, NULL };
	char **environment;
	pid_t child;
	int err = ki_place_worker(worker);

	if (err)
		return err;
	environment = worker_environment();
	if (!environment)
		return -ENOMEM;
	child = ki_parent_detach(worker, (char *const *)argv, environment, -1);
	free(environment);
	return child < 0 ? (int)child : 0;
}

#define ARGUMENTS_MAX 24

/* Behind them comes where it is to report to. */
static pid_t start_reporting(const char *const *arguments, int is_detached,
			     int *out_fd)
{
	const char *argv[ARGUMENTS_MAX + 4] = { "kiln-worker" };
	char worker[KI_PATH_MAX], number[16];
	char **environment;
	int ends[2], n = 1, err;
	pid_t child;

	while (*arguments && n < ARGUMENTS_MAX)
		argv[n++] = *arguments++;
	argv[n++] = "--progress-fd";
	argv[n++] = number;
	err = ki_place_worker(worker);
	if (err)
		return err;
	environment = worker_environment();
	if (!environment)
		return -ENOMEM;
	err = ki_parent_pipe(ends);
	if (err) {
		free(environment);
		return err;
	}
	snprintf(number, sizeof(number), "%d", ends[1]);
	child = (is_detached ? ki_parent_detach : ki_parent_attach)(
		worker, (char *const *)argv, environment, ends[1]);
	free(environment);
	close(ends[1]);
	if (child < 0)
		close(ends[0]);
	else
		*out_fd = ends[0];
	return child;
}

/* ---- Following it ------------------------------------------------------------ */

struct progress {
	struct ki_jobs_report *report;
	uint64_t n_left;
	int is_drawn; /* a bar stands on the terminal's line */
	int is_wanted;
	char now[64]; /* what is being made */
};

static void draw(struct progress *progress)
{
	uint64_t done = progress->report->n_done + progress->report->n_failed;
	uint64_t total = done + progress->n_left;
	struct ki_bytes line;
	int filled, i;

	if (!progress->is_wanted || !total)
		return;
	ki_bytes_init(&line);
	ki_bytes_add_string(&line, "\r[");
	filled = (int)(done * 10 / total);
	for (i = 0; i < 10; i++)
		ki_bytes_add_u8(&line, i < filled ? '#' : '.');
	ki_bytes_printf(&line, "] %llu/%llu ", (unsigned long long)done,
			(unsigned long long)total);
	ki_out_safe(&line, progress->now, 16);
	ki_bytes_add_string(&line, "\033[K");
	if (!line.failed && write(STDERR_FILENO, line.data, line.size) > 0)
		progress->is_drawn = 1;
	ki_bytes_fini(&line);
}

static void wipe(struct progress *progress)
{
	if (progress->is_drawn)
		dprintf(STDERR_FILENO, "\r\033[K");
	progress->is_drawn = 0;
}

/* "NAME REASON TEXT" to the list. */
static void remember(struct ki_bytes *list, uint64_t n, char *rest)
{
	char *reason = strchr(rest, ' ');
	char *text = reason ? strchr(reason + 1, ' ') : NULL;

	if (n > NAMES_MAX)
		return;
	if (reason)
		*reason++ = '\0';
	if (list->size)
		ki_bytes_add_string(list, ", ");
	ki_out_safe(list, rest, 14);
	if (reason) {
		ki_bytes_add_string(list, " (");
		ki_out_safe(list, text ? text + 1 : reason, 0);
		ki_bytes_add_u8(list, ')');
	}
}

/* The reasons for which jobs stay: drivers, so they are few. */
static void remember_why(struct ki_bytes *list, const char *rest)
{
	const char *reason = strchr(rest, ' ');
	const char *text = reason ? strchr(reason + 1, ' ') : NULL;
	struct ki_bytes words;

	if (!reason)
		return;
	ki_bytes_init(&words);
	ki_out_safe(&words, text ? text + 1 : reason + 1, 0);
	if (!words.failed && words.size && list->size < WHY_BYTES_MAX &&
	    (!list->size ||
	     !memmem(list->data, list->size, words.data, words.size))) {
		if (list->size)
			ki_bytes_add_string(list, ", ");
		ki_bytes_add(list, words.data, words.size);
	}
	ki_bytes_fini(&words);
}

static void take_line(void *arg, char *line)
{
	struct progress *progress = arg;
	struct ki_jobs_report *report = progress->report;
	char *rest = strchr(line, ' ');

	if (!rest)
		return;
	*rest++ = '\0';
	if (!strcmp(line, "jobs")) {
		progress->n_left = strtoull(rest, NULL, 10);
	} else if (!strcmp(line, "begin")) {
		char *text = strrchr(rest, '/');
		snprintf(progress->now, sizeof(progress->now), "%s",
			 text ? text + 1 : "");
	} else if (!strcmp(line, "wait")) {
		snprintf(progress->now, sizeof(progress->now), "waiting");
	} else if (!strcmp(line, "done")) {
		report->n_done++;
		progress->n_left -= progress->n_left != 0;
	} else if (!strcmp(line, "failed")) {
		remember(&report->failed, ++report->n_failed, rest);
		progress->n_left -= progress->n_left != 0;
	} else if (!strcmp(line, "skipped")) {
		report->n_skipped++;
		remember_why(&report->skipped, rest);
	}
	draw(progress);
}

int ki_jobs_follow(const char *const *arguments, int is_detached,
		   ki_jobs_line_fn *take, void *arg, int *out_wait_status)
{
	char *line = NULL;
	size_t capacity = 0;
	FILE *lines;
	int fd = -1;
	pid_t child = start_reporting(arguments, is_detached, &fd);

	if (child < 0)
		return (int)child;
	lines = fdopen(fd, "r");
	if (!lines)
		close(fd);
	while (lines && getline(&line, &capacity, lines) > 0) {
		line[strcspn(line, "\n")] = '\0';
		take(arg, line);
	}
	free(line);
	if (lines)
		fclose(lines);
	while (waitpid(child, out_wait_status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

int ki_jobs_wait(const char *spool, const char *store_url, int is_detached,
		 struct ki_jobs_report *out_report)
{
	const char *arguments[] = { "--spool", spool,	 "--store",
				    store_url, "--wait", NULL };
	struct progress progress = { .report = out_report,
				     .is_wanted = ki_out_has_progress() };
	int err;

	memset(out_report, 0, sizeof(*out_report));
	ki_bytes_init(&out_report->failed);
	ki_bytes_init(&out_report->skipped);
	err = ki_jobs_follow(arguments, is_detached, take_line, &progress,
			     &out_report->wait_status);
	if (!err)
		wipe(&progress);
	return err;
}

void ki_jobs_report_fini(struct ki_jobs_report *report)
{
	ki_bytes_fini(&report->failed);
	ki_bytes_fini(&report->skipped);
}

static void complain_list(const char *what, uint64_t n,
			  const struct ki_bytes *list)
{
	if (!n || list->failed)
		return;
	if (n > NAMES_MAX)
		ki_complain("%s: %.*s and %llu more", what, (int)list->size,
			    (const char *)list->data,
			    (unsigned long long)(n - NAMES_MAX));
	else
		ki_complain("%s: %.*s", what, (int)list->size,
			    (const char *)list->data);
}

static void complain_of_skipped(const struct ki_jobs_report *report)
{
	const struct ki_bytes *why = &report->skipped;
	int is_one = report->n_skipped == 1;

	if (!report->n_skipped || why->failed)
		return;
	ki_complain("%llu job%s: no worker may make %s here%s%.*s%s",
		    (unsigned long long)report->n_skipped, is_one ? "" : "s",
		    is_one ? "it" : "them", why->size ? " (" : "",
		    (int)why->size, why->size ? (const char *)why->data : "",
		    why->size ? ")" : "");
}

void ki_jobs_complain(const struct ki_jobs_report *report)
{
	int status = report->wait_status;

	complain_list("not made", report->n_failed, &report->failed);
	complain_of_skipped(report);
	if (WIFSIGNALED(status))
		ki_complain("kiln-worker was ended by signal %d",
			    WTERMSIG(status));
	else if (WEXITSTATUS(status) > KI_EXIT_FAILED)
		ki_complain("kiln-worker could not work (exit status %d): see "
			    "'kiln doctor'",
			    WEXITSTATUS(status));
}
