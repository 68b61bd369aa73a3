/* SPDX-License-Identifier: MIT */

/*
 * kiln rebuild: what the store knows of, made again for the drivers that are here
 * now.  kiln-worker does it (worker/rebuild.c); this shows how it gets on:
 *
 *	[====>          ]  37 of 200  2 min left  app
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "jobs.h"
#include "out.h"
#include "parent.h"
#include "store.h"
#include "sys/sys.h"
#include "verbs.h"

#define TOLD_MAX     1000 /* items of which it is told what was wrong */
#define SHOWN_MAX    10	  /* without --json */
#define BAR_COLUMNS  16
#define COLUMNS_ELSE 80
#define ARGUMENTS    20

/* One that was not made again, and why. */
struct told {
	int is_failed; /* else it was skipped */
	char key[40];
	char reason[16];
	char *text;
};

struct rebuild {
	uint64_t n_left;
	uint64_t n_done;
	uint64_t n_current;
	uint64_t n_failed;
	uint64_t n_skipped;
	struct told *told;
	size_t n_told;
	/* The bar. */
	int has_bar;
	int is_drawn;
	uint64_t begun_ns; /* the first build */
	char now[64];	   /* what is being made */
};

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

/* ---- The bar --------------------------------------------------------------- */

static uint64_t n_over(const struct rebuild *rebuild)
{
	return rebuild->n_done + rebuild->n_current + rebuild->n_failed +
	       rebuild->n_skipped;
}

/* By what those took that are over. */
static void add_time_left(const struct rebuild *rebuild, struct ki_bytes *line)
{
	uint64_t over = n_over(rebuild), spent_ns;
	char text[32];

	if (!over || !rebuild->begun_ns || !rebuild->n_left)
		return;
	spent_ns = now_ns() - rebuild->begun_ns;
	ki_format_duration((uint64_t)((double)spent_ns / (double)over *
				      (double)rebuild->n_left),
			   text, sizeof(text));
	ki_bytes_printf(line, "  %s left", text);
}

static void draw(struct rebuild *rebuild)
{
	uint64_t over = n_over(rebuild), total = over + rebuild->n_left;
	int columns = ki_out_columns(), i;
	struct ki_bytes line;

	if (!rebuild->has_bar || !total)
		return;
	if (!columns)
		columns = COLUMNS_ELSE;
	ki_bytes_init(&line);
	ki_bytes_add_string(&line, "\r[");
	for (i = 0; i < BAR_COLUMNS; i++)
		ki_bytes_add_u8(&line, (uint64_t)i < over * BAR_COLUMNS / total
					       ? '='
					       : ' ');
	ki_bytes_printf(&line, "]  %llu of %llu", (unsigned long long)over,
			(unsigned long long)total);
	if (columns >= 60)
		add_time_left(rebuild, &line);
	if (columns >= 60 && *rebuild->now) {
		ki_bytes_add_string(&line, "  ");
		ki_out_safe(&line, rebuild->now, 16);
	}
	ki_bytes_add_string(&line, "\033[K");
	if (!line.failed && write(STDERR_FILENO, line.data, line.size) > 0)
		rebuild->is_drawn = 1;
	ki_bytes_fini(&line);
}

static void wipe(struct rebuild *rebuild)
{
	if (rebuild->is_drawn)
		dprintf(STDERR_FILENO, "\r\033[K");
	rebuild->is_drawn = 0;
}

/* ---- What the worker reports ------------------------------------------------ */

/* "NAME REASON TEXT" */
static void remember(struct rebuild *rebuild, int is_failed, char *rest)
{
	char *key = strsep(&rest, " "), *reason = strsep(&rest, " ");
	struct told *told = &rebuild->told[rebuild->n_told];

	rebuild->n_failed += (uint64_t)is_failed;
	rebuild->n_skipped += (uint64_t)!is_failed;
	if (rebuild->n_told == TOLD_MAX || !reason)
		return;
	told->is_failed = is_failed;
	snprintf(told->key, sizeof(told->key), "%s", key);
	snprintf(told->reason, sizeof(told->reason), "%s", reason);
	told->text = strdup(rest ? rest : "");
	rebuild->n_told += told->text != NULL;
}

static void note_begin(struct rebuild *rebuild, const char *rest)
{
	const char *slash = strrchr(rest, '/');

	if (!rebuild->begun_ns)
		rebuild->begun_ns = now_ns();
	snprintf(rebuild->now, sizeof(rebuild->now), "%s",
		 slash ? slash + 1 : "");
}

static void take_line(void *arg, char *line)
{
	struct rebuild *rebuild = arg;
	char *rest = strchr(line, ' ');

	if (!rest)
		return;
	*rest++ = '\0';
	if (!strcmp(line, "jobs"))
		rebuild->n_left = strtoull(rest, NULL, 10);
	else if (!strcmp(line, "begin"))
		note_begin(rebuild, rest);
	else if (!strcmp(line, "wait"))
		snprintf(rebuild->now, sizeof(rebuild->now), "waiting");
	else if (!strcmp(line, "done"))
		rebuild->n_done++;
	else if (!strcmp(line, "current"))
		rebuild->n_current++;
	else if (!strcmp(line, "failed") || !strcmp(line, "skipped"))
		remember(rebuild, *line == 'f', rest);
	draw(rebuild);
}

/* ---- The result -------------------------------------------------------------- */

static void print_json(const struct rebuild *rebuild, struct ki_bytes *out)
{
	struct ki_json json;
	size_t i;

	ki_out_json(out, &json);
	ki_json_number(&json, "rebuilt", rebuild->n_done);
	ki_json_number(&json, "current", rebuild->n_current);
	ki_json_number(&json, "failed", rebuild->n_failed);
	ki_json_number(&json, "skipped", rebuild->n_skipped);
	ki_json_number(&json, "left", rebuild->n_left);
	ki_json_array(&json, "problems");
	for (i = 0; i < rebuild->n_told; i++) {
		const struct told *told = &rebuild->told[i];

		ki_json_object(&json, NULL);
		ki_json_string(&json, "key", told->key);
		ki_json_string(&json, "outcome",
			       told->is_failed ? "failed" : "skipped");
		ki_json_string(&json, "reason", told->reason);
		ki_json_string(&json, "text", told->text);
		ki_json_end(&json);
	}
	ki_json_end(&json);
	ki_json_end(&json);
}

static void print_counts(const struct rebuild *rebuild, struct ki_bytes *out)
{
	const struct {
		uint64_t n;
		const char *what;
	} counts[] = { { rebuild->n_done, "rebuilt" },
		       { rebuild->n_current, "there already" },
		       { rebuild->n_failed, "failed" },
		       { rebuild->n_skipped, "skipped" },
		       { rebuild->n_left, "left" } };
	int n = 0;
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (counts[i].n)
			ki_bytes_printf(out, "%s%llu %s", n++ ? ", " : "",
					(unsigned long long)counts[i].n,
					counts[i].what);
	ki_bytes_add_string(out, n ? "\n" : "nothing to rebuild\n");
}

static void print_told(const struct rebuild *rebuild, struct ki_bytes *out)
{
	int is_denied = 0;
	size_t i;

	for (i = 0; i < rebuild->n_told; i++) {
		const struct told *told = &rebuild->told[i];

		is_denied |= !strcmp(told->reason, "denied") ||
			     !strcmp(told->reason, "crash") ||
			     !strcmp(told->reason, "time");
		if (i >= SHOWN_MAX)
			continue;
		ki_bytes_printf(out, "  %.12s %s (%s): ", told->key,
				told->is_failed ? "failed" : "skipped",
				told->reason);
		ki_out_safe(out, told->text, 0);
		ki_bytes_add_u8(out, '\n');
	}
	if (rebuild->n_told > SHOWN_MAX)
		ki_bytes_printf(out, "  and %zu more: see --json\n",
				rebuild->n_told - SHOWN_MAX);
	if (is_denied)
		ki_bytes_add_string(
			out, "what crashed or took too long is not tried "
			     "again, but with --retry\n");
}

static int print(const struct ki_command *command,
		 const struct rebuild *rebuild, int status)
{
	struct ki_bytes out;

	ki_bytes_init(&out);
	if (ki_given(command, KI_OPTION_JSON)) {
		print_json(rebuild, &out);
	} else {
		print_counts(rebuild, &out);
		print_told(rebuild, &out);
	}
	return ki_out_write(&out, status);
}

/* ---- The worker -------------------------------------------------------------- */

static int exit_of(int wait_status)
{
	int status = WEXITSTATUS(wait_status);

	return status <= KI_EXIT_UNAVAILABLE ? status : KI_EXIT_UNAVAILABLE;
}

/* Options that the worker has by the same name are its to check. */
static int follow(const struct ki_command *command,
		  const struct ki_settings *settings, const char *spool,
		  struct rebuild *rebuild, int *out_wait_status)
{
	static const enum ki_option handed[] = { KI_OPTION_DEVICE,
						 KI_OPTION_AT_ONCE,
						 KI_OPTION_TIME_LIMIT,
						 KI_OPTION_MEMORY_LIMIT };
	static const char *const names[] = { "--device", "--at-once",
					     "--time-limit", "--memory-limit" };
	const char *arguments[ARGUMENTS] = {
		"--spool", spool,      "--store", settings->options.store_url,
		"--wait",  "--rebuild"
	};
	size_t n = 6, i;

	for (i = 0; i < sizeof(handed) / sizeof(handed[0]); i++) {
		if (!ki_given(command, handed[i]))
			continue;
		arguments[n++] = names[i];
		arguments[n++] = command->values[handed[i]];
	}
	if (ki_given(command, KI_OPTION_RETRY))
		arguments[n++] = "--retry";
	rebuild->has_bar = ki_out_has_progress();
	return ki_jobs_follow(arguments, 0, take_line, rebuild,
			      out_wait_status);
}

static int run(const struct ki_command *command,
	       const struct ki_settings *settings, struct rebuild *rebuild)
{
	char spool[KI_PATH_MAX];
	int wait_status = 0, err;

	/* Its lock and list are there, whether programs may leave jobs or not. */
	if (settings->spool)
		snprintf(spool, sizeof(spool), "%s", settings->spool);
	else if (ki_path_join(spool, settings->directory, "spool"))
		return KI_EXIT_UNAVAILABLE;
	err = follow(command, settings, spool, rebuild, &wait_status);
	wipe(rebuild);
	if (err) {
		ki_complain("cannot start kiln-worker: %s", strerror(-err));
		return KI_EXIT_UNAVAILABLE;
	}
	if (!WIFSIGNALED(wait_status)) {
		int status = exit_of(wait_status);

		/* The worker has said why it did not begin. */
		return status > KI_EXIT_FAILED && !n_over(rebuild)
			       ? status
			       : print(command, rebuild, status);
	}
	(void)print(command, rebuild, KI_EXIT_FAILED);
	if (rebuild->n_left)
		ki_complain("interrupted; 'kiln rebuild' does the rest");
	ki_parent_end(wait_status);
}

int ki_verb_rebuild(const struct ki_command *command)
{
	struct rebuild rebuild = { .told = calloc(TOLD_MAX,
						  sizeof(*rebuild.told)) };
	struct ki_settings settings;
	struct kiln *kiln = NULL;
	size_t i;
	int status = ki_settings_load(&settings, command, 0);

	/* Where there is no store none is made. */
	if (!status)
		status = ki_store_open(&settings, KI_STORE_LOOK, &kiln);
	if (!status && !rebuild.told) {
		ki_complain("out of memory");
		status = KI_EXIT_FAILED;
	} else if (!status && !kiln) {
		status = print(command, &rebuild, KI_EXIT_OK);
	} else if (!status) {
		kiln_close(kiln);
		status = run(command, &settings, &rebuild);
	}
	for (i = 0; i < rebuild.n_told; i++)
		free(rebuild.told[i].text);
	free(rebuild.told);
	ki_settings_fini(&settings);
	return status;
}
