/* SPDX-License-Identifier: MIT */

/* kiln wait: make what earlier runs left, and be there until it is made and counted:
   our worker has its turn when another has done both.  Then until what goes to other
   machines is there. */

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "jobs.h"
#include "out.h"
#include "parent.h"
#include "store.h"
#include "sys/sys.h"
#include "uploads.h"
#include "verbs.h"

/* Another worker may have been there first: what it made counts as well. */
static uint64_t count_done(const struct ki_jobs_report *report, size_t n_before,
			   size_t n_left)
{
	uint64_t n_gone = n_before > n_left ? n_before - n_left : 0;

	n_gone -= report->n_failed < n_gone ? report->n_failed : n_gone;
	return n_gone > report->n_done ? n_gone : report->n_done;
}

static void add_uploads(struct ki_json *json, const struct ki_uploads *uploads)
{
	if (!uploads) {
		ki_json_null(json, "uploads");
		return;
	}
	ki_json_object(json, "uploads");
	ki_json_number(json, "done", uploads->n_done);
	ki_json_number(json, "waiting", uploads->n_waiting);
	ki_json_number(json, "dropped", uploads->n_dropped);
	ki_json_end(json);
}

/* Jobs hand over what they make: uploads are waited for when there are none left. */
static int finish(const struct ki_command *command,
		  const struct kiln_options *options,
		  const struct ki_jobs_report *report, uint64_t n_done,
		  size_t n_left, int status)
{
	struct ki_uploads uploads;
	const int has_uploads = ki_uploads_wait(options, &uploads);
	struct ki_bytes out;
	struct ki_json json;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		ki_out_json(&out, &json);
		ki_json_number(&json, "done", n_done);
		ki_json_number(&json, "failed", report->n_failed);
		ki_json_number(&json, "skipped", report->n_skipped);
		ki_json_number(&json, "left", n_left);
		add_uploads(&json, has_uploads ? &uploads : NULL);
		ki_json_end(&json);
	} else if (n_done) {
		ki_bytes_printf(&out, "%llu job%s done\n",
				(unsigned long long)n_done,
				n_done == 1 ? "" : "s");
	} else if (!n_left) {
		ki_bytes_add_string(&out, "nothing to wait for\n");
	}
	if (has_uploads && !ki_given(command, KI_OPTION_JSON))
		ki_bytes_printf(&out,
				"to the remote: %llu done, %llu waiting, %llu "
				"dropped\n",
				(unsigned long long)uploads.n_done,
				(unsigned long long)uploads.n_waiting,
				(unsigned long long)uploads.n_dropped);
	return ki_out_write(&out, status);
}

static int exit_of(int wait_status)
{
	if (WEXITSTATUS(wait_status) <= KI_EXIT_UNAVAILABLE)
		return WEXITSTATUS(wait_status);
	return KI_EXIT_UNAVAILABLE;
}

/* Then it may be at work still: a worker that has made the last job has to write down
   what it counted.  One that compiles everything anew has byte 1 of the lock. */
static int was_anybody_at_work(const char *spool)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char path[KI_PATH_MAX];
	int fd, is_rebuild;

	if (!spool || ki_path_join(path, spool, "worker.lock"))
		return 0;
	fd = sys->open(sys, path,
		       KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_NOFOLLOW, 0);
	if (fd < 0)
		return 0;
	is_rebuild = sys->try_lock(sys, fd, KI_LOCK_SHARED, 1, 1) == -EAGAIN;
	(void)sys->close(sys, fd);
	return !is_rebuild;
}

int ki_verb_wait(const struct ki_command *command)
{
	struct ki_jobs_report report;
	struct ki_settings settings;
	size_t n_before, n_left;
	int status, err;

	memset(&report, 0, sizeof(report));
	status = ki_settings_load(&settings, command, 0);
	if (status)
		goto out;
	n_before = ki_jobs_pending(settings.spool);
	if (!n_before && !was_anybody_at_work(settings.spool)) {
		status = finish(command, &settings.options, &report, 0, 0,
				KI_EXIT_OK);
		goto out;
	}
	err = ki_jobs_wait(settings.spool, settings.options.store_url, 0,
			   &report);
	if (err) {
		ki_complain("cannot start kiln-worker: %s", strerror(-err));
		status = KI_EXIT_UNAVAILABLE;
		goto out;
	}
	ki_jobs_complain(&report);
	if (WIFSIGNALED(report.wait_status))
		ki_parent_end(report.wait_status);
	n_left = ki_jobs_pending(settings.spool);
	status = finish(command, &settings.options, &report,
			count_done(&report, n_before, n_left), n_left,
			exit_of(report.wait_status));
out:
	ki_jobs_report_fini(&report);
	ki_settings_fini(&settings);
	return status;
}
