/* SPDX-License-Identifier: MIT */

/*
 * kiln-worker: makes the jobs of a spool (README.md).
 *
 *	main.c      options, spool and store, exit status
 *	queue.c     which job is taken, what becomes of it
 *	child.c     one try, watched from outside
 *	make.c      one try, from inside: driver, key, build, fetch
 *	rebuild.c   what the store knows of, again for another driver
 */

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/text.h"
#include "front/opencl/driver.h"
#include "worker.h"

static const char help[] =
	"usage: kiln-worker [options]\n"
	"Make the binaries that programs left to be made, and end.\n"
	"\n"
	"  --spool DIR             where the jobs are\n"
	"  --store URL             where entries go: log:DIR[#NAME], file:DIR\n"
	"  --wait                  if another worker is at work, wait for it\n"
	"  --progress-fd N         write progress there, not on standard "
	"output\n"
	"  --json                  progress as JSON, one object a line\n"
	"  --time-limit SECONDS    of one try; default: ten times the "
	"program's\n"
	"                          own build, at least 300\n"
	"  --memory-limit SIZE     of one try; 0: none; default: half of the\n"
	"                          machine's\n"
	"  --rebuild               then make again what the store knows of, "
	"for "
	"the\n"
	"                          drivers that are here now\n"
	"  --device TEXT           of it what was made for devices so named\n"
	"  --at-once N             as many at once; default: one a processor\n"
	"  --retry                 what crashed or took too long before, too\n"
	"  --may-build PLATFORM    only say by exit status 0 or 1 whether jobs "
	"for\n"
	"                          CPUs of this platform may be made\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 no jobs left, 1 some were given up, 2 usage,\n"
	"5 spool or store unavailable, 6 another worker is at work.\n";

struct arguments {
	const char *spool;
	const char *store_url;
	int waits;
	int json;
	int progress_fd;
	uint64_t time_limit_ns;
	uint64_t memory_bytes_max;
	int rebuilds;
	struct ki_rebuild_options rebuild;
	/* The child's. */
	const char *make;
	int item_fd;
	int answer_fd;
};

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What it repeats stays in its line, and harmless. */
static void say(const char *format, ...)
{
	char line[2048], *c;
	va_list list;

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	for (c = line; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	fprintf(stderr, "kiln-worker: %s\n", line);
}

static void log_line(void *arg, enum kiln_log_level level, const char *message)
{
	if (level <= KILN_LOG_WARNING)
		say("%s", message);
}

/* ---- Arguments --------------------------------------------------------- */

enum {
	OPTION_SPOOL = 256,
	OPTION_STORE,
	OPTION_WAIT,
	OPTION_PROGRESS_FD,
	OPTION_JSON,
	OPTION_TIME_LIMIT,
	OPTION_MEMORY_LIMIT,
	OPTION_MAY_BUILD,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_MAKE,
	OPTION_MAKE_AGAIN,
	OPTION_ANSWER,
	OPTION_REBUILD,
	OPTION_DEVICE,
	OPTION_AT_ONCE,
	OPTION_RETRY,
};

static const struct option options[] = {
	{ "spool", required_argument, NULL, OPTION_SPOOL },
	{ "store", required_argument, NULL, OPTION_STORE },
	{ "wait", no_argument, NULL, OPTION_WAIT },
	{ "progress-fd", required_argument, NULL, OPTION_PROGRESS_FD },
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "time-limit", required_argument, NULL, OPTION_TIME_LIMIT },
	{ "memory-limit", required_argument, NULL, OPTION_MEMORY_LIMIT },
	{ "may-build", required_argument, NULL, OPTION_MAY_BUILD },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ "make", required_argument, NULL, OPTION_MAKE },
	{ "make-again", required_argument, NULL, OPTION_MAKE_AGAIN },
	{ "answer", required_argument, NULL, OPTION_ANSWER },
	{ "rebuild", no_argument, NULL, OPTION_REBUILD },
	{ "device", required_argument, NULL, OPTION_DEVICE },
	{ "at-once", required_argument, NULL, OPTION_AT_ONCE },
	{ "retry", no_argument, NULL, OPTION_RETRY },
	{ NULL, 0, NULL, 0 },
};

static uint64_t half_of_memory(void)
{
	long n_pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);

	return n_pages > 0 && bytes > 0
		       ? (uint64_t)n_pages * (uint64_t)bytes / 2
		       : 0;
}

static int parse_number(const char *text, uint64_t max, uint64_t *out_value)
{
	char *end;
	unsigned long long value;

	if (*text < '0' || *text > '9')
		return 0;
	value = strtoull(text, &end, 10);
	if (*end || value > max)
		return 0;
	*out_value = value;
	return 1;
}

static int parse_value(int option, const char *value,
		       struct arguments *arguments)
{
	uint64_t number = 0;
	int ok = 1;

	switch (option) {
	case OPTION_SPOOL:
		arguments->spool = value;
		break;
	case OPTION_STORE:
		arguments->store_url = value;
		break;
	case OPTION_PROGRESS_FD:
		ok = parse_number(value, 1 << 20, &number);
		arguments->progress_fd = (int)number;
		break;
	case OPTION_TIME_LIMIT:
		ok = parse_number(value, 1000000, &number) && number;
		arguments->time_limit_ns = number * 1000000000;
		break;
	case OPTION_MEMORY_LIMIT:
		ok = !ki_parse_size(value, &arguments->memory_bytes_max);
		break;
	case OPTION_MAKE:
		arguments->make = value;
		break;
	case OPTION_DEVICE:
		arguments->rebuild.device = value;
		break;
	case OPTION_AT_ONCE:
		ok = parse_number(value, 1024, &number) && number;
		arguments->rebuild.n_at_once = (unsigned)number;
		break;
	case OPTION_MAKE_AGAIN:
		ok = parse_number(value, 1 << 20, &number);
		arguments->item_fd = (int)number;
		break;
	case OPTION_ANSWER:
		ok = parse_number(value, 1 << 20, &number);
		arguments->answer_fd = (int)number;
		break;
	}
	return ok;
}

static int may_build(const char *platform)
{
	const struct ki_cl_driver_row *row = ki_cl_driver_of_platform(platform);

	return row && row->driver.worker_may_build;
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
	int option, index;

	while ((option = getopt_long(argc, argv, "", options, &index)) != -1) {
		switch (option) {
		case OPTION_WAIT:
			arguments->waits = 1;
			break;
		case OPTION_JSON:
			arguments->json = 1;
			break;
		case OPTION_REBUILD:
			arguments->rebuilds = 1;
			break;
		case OPTION_RETRY:
			arguments->rebuild.retries = 1;
			break;
		case OPTION_MAY_BUILD:
			return !may_build(optarg);
		case OPTION_HELP:
			fputs(help, stdout);
			return 0;
		case OPTION_VERSION:
			printf("kiln-worker %d.%d.%d\n", KILN_VERSION_MAJOR,
			       KILN_VERSION_MINOR, KILN_VERSION_PATCH);
			return 0;
		case '?':
			return KI_WORKER_USAGE; /* getopt has said why */
		default:
			if (!parse_value(option, optarg, arguments)) {
				say("--%s cannot be '%s'", options[index].name,
				    optarg);
				return KI_WORKER_USAGE;
			}
		}
	}
	if (optind < argc) {
		say("'%s' is not an option", argv[optind]);
		return KI_WORKER_USAGE;
	}
	return -1;
}

/* ---- Spool and store --------------------------------------------------- */

static int unavailable(const char *what, const char *name,
		       enum kiln_status status)
{
	say("the %s %s cannot be used: %s", what, name,
	    kiln_status_name(status));
	return KI_WORKER_UNAVAILABLE;
}

static int open_kiln(const struct kiln_options *kiln_options,
		     struct kiln **out_kiln)
{
	enum kiln_status status;
	struct kiln *kiln;

	status = kiln_open(kiln_options, &kiln);
	if (status)
		return unavailable("store", kiln_options->store_url, status);
	status = kiln_store_status(kiln);
	if (status) {
		kiln_close(kiln);
		return unavailable("store", kiln_options->store_url, status);
	}
	*out_kiln = kiln;
	return 0;
}

static int open_store(struct ki_worker *worker,
		      const struct kiln_config *config, const char *store_url)
{
	struct kiln_options kiln_options;
	int code;

	kiln_options_init(&kiln_options);
	kiln_config_options(config, &kiln_options);
	if (store_url)
		kiln_options.store_url = store_url;
	if (!kiln_options.store_url) {
		say("there is no store: say --store URL");
		return KI_WORKER_UNAVAILABLE;
	}
	kiln_options.log = log_line;
	/* A job for what a pack has is one for what its driver refused there. */
	kiln_options.packs = NULL;
	/* Nothing is read twice here. */
	kiln_options.memory_bytes_max = (uint64_t)1 << 20;
	if (kiln_options.flags & KILN_OPEN_READONLY)
		return unavailable("store", kiln_options.store_url,
				   KILN_E_READONLY);
	code = open_kiln(&kiln_options, &worker->kiln);
	if (code)
		return code;
	kiln_options.flags |= KILN_OPEN_READONLY;
	return open_kiln(&kiln_options, &worker->view);
}

/* What was counted is in the store then. */
static void close_store(struct ki_worker *worker)
{
	kiln_close(worker->view);
	kiln_close(worker->kiln);
	worker->view = worker->kiln = NULL;
}

/* The store is open only while there is work and nobody else does it: whoever waits
   for the lock finds there what was made, and counted. */
static int work_locked(struct ki_worker *worker,
		       const struct kiln_config *config, const char *store_url,
		       const struct ki_rebuild_options *rebuild)
{
	int code = open_store(worker, config, store_url);
	enum kiln_status status;

	if (!code) {
		status = ki_worker_run(worker);
		if (!status && rebuild) {
			ki_worker_lock_rebuild(worker);
			status = ki_worker_rebuild(worker, rebuild);
		}
		if (status && status != KILN_END)
			code = unavailable("store or spool", worker->spool,
					   status);
	}
	close_store(worker);
	return code;
}

/* `rebuild` is done once, NULL: not at all. */
static int work(struct ki_worker *worker, const struct kiln_config *config,
		const char *store_url, const struct ki_rebuild_options *rebuild)
{
	enum kiln_status status;
	int code = 0;

	do {
		status = ki_worker_lock(worker);
		if (status == KILN_EXISTS)
			return KI_WORKER_BUSY;
		if (status < 0)
			return unavailable("spool", worker->spool, status);
		if (status)
			break;
		if (rebuild || ki_worker_has_jobs(worker))
			code = work_locked(worker, config, store_url, rebuild);
		rebuild = NULL;
		ki_worker_unlock(worker);
	} while (!code && !worker->waiter.ended_by &&
		 ki_worker_has_jobs(worker));
	ki_worker_report_end(worker);
	return code		  ? code
	       : worker->n_failed ? KI_WORKER_SOME_FAILED
				  : KI_WORKER_DONE;
}

static int run(const struct arguments *arguments)
{
	struct kiln_config *config = NULL;
	struct ki_worker worker = {
		.waits = arguments->waits,
		.time_limit_ns = arguments->time_limit_ns,
		.memory_bytes_max = arguments->memory_bytes_max,
		.progress = { .fd = arguments->progress_fd,
			      .json = arguments->json },
	};
	char message[512];
	int code = KI_WORKER_USAGE;

	ki_map_init(&worker.skipped);
	ki_map_init(&worker.refused_drivers);
	if (kiln_config_load(&config, message, sizeof(message))) {
		say("%s", message);
		goto out;
	}
	worker.spool =
		arguments->spool ? arguments->spool : kiln_config_spool(config);
	code = KI_WORKER_UNAVAILABLE;
	if (!worker.spool) {
		say("there is no spool: say --spool DIR");
		goto out;
	}
	if (ki_waiter_init(&worker.waiter)) {
		say("signals cannot be waited for");
		goto out;
	}
	/* Its lock is there. */
	if (arguments->rebuilds)
		(void)ki_cl_spool_make(worker.spool);
	code = work(&worker, config, arguments->store_url,
		    arguments->rebuilds ? &arguments->rebuild : NULL);
	ki_waiter_finish(&worker.waiter);
out:
	ki_map_fini(&worker.skipped);
	ki_map_fini(&worker.refused_drivers);
	kiln_config_free(config);
	return code;
}

int main(int argc, char **argv)
{
	struct arguments arguments = {
		.progress_fd = STDOUT_FILENO,
		.memory_bytes_max = half_of_memory(),
		.item_fd = -1,
		.answer_fd = -1,
	};
	int code = parse(argc, argv, &arguments);

	if (code >= 0)
		return code;
	if (arguments.make)
		_exit(ki_worker_make(arguments.make, arguments.answer_fd));
	if (arguments.item_fd >= 0)
		_exit(ki_worker_make_again(arguments.item_fd,
					   arguments.answer_fd));
	return run(&arguments);
}
