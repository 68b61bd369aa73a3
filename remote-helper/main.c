/* SPDX-License-Identifier: MIT */

/*
 * kiln-remote: what kiln has on other machines (README.md).
 *
 *	main.c         options, settings, standing on its own feet
 *	place.c        the socket and its lock
 *	helper.c       who is connected, when it ends
 *	connection.c   frames in, answers out
 *	requests.c     what each frame asks for
 *	fetch.c        looking up, prefetch
 *	upload.c       what programs built goes to the servers
 *	lease.c        one build per fleet
 *	pack.c         packs by URL
 *	sources.c      the servers, and when they are not asked
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/text.h"
#include "credentials.h"
#include "helper.h"
#include "log.h"
#include "loop.h"
#include "remote/url.h"

enum exit_status {
	EXIT_USAGE = 2,
	EXIT_UNAVAILABLE = 5, /* the socket cannot be made */
	EXIT_BUSY = 6,	      /* another helper has it */
};

/* X(ID, "name", "ARGUMENT" or NULL, "what it does") */
#define OPTIONS(X)                                                             \
	X(SOCKET, "socket", "PATH", "listen there; the name ends in .sock")    \
	X(LISTEN_FD, "listen-fd", "N", "this descriptor listens there")        \
	X(LOCK_FD, "lock-fd", "N", "this descriptor has the lock beside it")   \
	X(DETACH, "detach", NULL, "go on in the background")                   \
	X(GIVEN, "given", NULL,                                                \
	  "the environment has all settings: no file has any")                 \
	X(IDLE, "idle", "AGE",                                                 \
	  "end when so long nobody came (300, 5m); 0: at once")                \
	X(MEMORY, "memory", "SIZE",                                            \
	  "keep at most so much of what was fetched (256M)")                   \
	X(HELP, "help", NULL, "show this text")                                \
	X(VERSION, "version", NULL, "show the version")

enum {
#define OPTION_ENUM(id, name, argument, help) OPTION_##id,
	OPTIONS(OPTION_ENUM)
#undef OPTION_ENUM
		N_OPTIONS
};

static const struct {
	const char *name, *argument, *help;
} rows[N_OPTIONS] = {
#define OPTION_ROW(id, name, argument, help) { name, argument, help },
	OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

struct arguments {
	const char *socket;
	int listen_fd, lock_fd;
	int detaches;
	int is_given;
	uint64_t idle_s;
	uint64_t memory_bytes_max;
};

static void complain(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

static void complain(const char *format, ...)
{
	char line[2 * KI_PATH_MAX], *c;
	va_list list;

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	for (c = line; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	fprintf(stderr, "kiln-remote: %s\n", line);
}

/* ---- Options ------------------------------------------------------------- */

static void print_help(void)
{
	char left[64];

	fputs("usage: kiln-remote --socket PATH [options]\n"
	      "Fetch and keep for the programs of this user what kiln has on "
	      "the servers of\nKILN_REMOTE.  \"kiln run\" starts it where it "
	      "is needed.\n\n",
	      stdout);
	for (int i = 0; i < N_OPTIONS; i++) {
		snprintf(left, sizeof(left), "--%s %s", rows[i].name,
			 rows[i].argument ? rows[i].argument : "");
		printf("  %-17s %s\n", left, rows[i].help);
	}
	fputs("\nExit status: 0 done, 2 usage or a wrong setting, 5 the socket "
	      "cannot be made,\n6 another kiln-remote serves it.\n",
	      stdout);
}

static int parse_descriptor(const char *text, int *out_fd)
{
	char *end;
	long fd = strtol(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || fd > 1 << 20 ||
	    fcntl((int)fd, F_GETFD) < 0)
		return 0;
	*out_fd = (int)fd;
	return 1;
}

static int parse_value(int option, const char *value,
		       struct arguments *arguments)
{
	switch (option) {
	case OPTION_SOCKET:
		arguments->socket = value;
		return *value == '/' && strlen(value) < KI_PATH_MAX;
	case OPTION_LISTEN_FD:
		return parse_descriptor(value, &arguments->listen_fd);
	case OPTION_LOCK_FD:
		return parse_descriptor(value, &arguments->lock_fd);
	case OPTION_DETACH:
		arguments->detaches = 1;
		return 1;
	case OPTION_GIVEN:
		arguments->is_given = 1;
		return 1;
	case OPTION_IDLE:
		return !ki_parse_age(value, &arguments->idle_s) &&
		       arguments->idle_s <= 1000000;
	case OPTION_MEMORY:
		return !ki_parse_size(value, &arguments->memory_bytes_max);
	}
	return 0;
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
	struct option options[N_OPTIONS + 1] = { 0 };
	int option;

	for (int i = 0; i < N_OPTIONS; i++)
		options[i] =
			(struct option){ rows[i].name, rows[i].argument != NULL,
					 NULL, 256 + i };
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == '?')
			return EXIT_USAGE; /* getopt has said why */
		option -= 256;
		if (option == OPTION_HELP) {
			print_help();
			return 0;
		}
		if (option == OPTION_VERSION) {
			printf("kiln-remote %d.%d.%d\n", KILN_VERSION_MAJOR,
			       KILN_VERSION_MINOR, KILN_VERSION_PATCH);
			return 0;
		}
		if (!parse_value(option, optarg, arguments)) {
			complain("--%s cannot be '%s'", rows[option].name,
				 optarg);
			return EXIT_USAGE;
		}
	}
	if (optind < argc)
		complain("'%s' is not an option", argv[optind]);
	else if (!arguments->socket)
		complain("--socket PATH is missing: \"kiln run\" knows it");
	else if ((arguments->listen_fd < 0) != (arguments->lock_fd < 0))
		complain("--listen-fd and --lock-fd belong together");
	else
		return -1;
	return EXIT_USAGE;
}

/* ---- On its own feet ----------------------------------------------------- */

/* Nothing of it can be looked at: it reads credentials and keys. */
static void close_curtains(void)
{
	struct rlimit none = { 0, 0 };

	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)setrlimit(RLIMIT_CORE, &none);
}

static void raise_limits(void)
{
	struct rlimit files;

	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

/* Before programs that have something to lose.  Not behind curtains: /proc/self is
   root's then. */
static void go_first_when_memory_is_short(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, "500", 3);
	(void)close(fd);
}

/* What whoever started us has open; before anything of ours is. */
static void close_others(const struct arguments *arguments)
{
	int low = arguments->listen_fd, high = arguments->lock_fd;

	if (low > high) {
		low = arguments->lock_fd;
		high = arguments->listen_fd;
	}
	if (low < 0) {
		(void)close_range(3, ~0u, 0);
		return;
	}
	if (low > 3)
		(void)close_range(3, (unsigned)low - 1, 0);
	if (high > low + 1)
		(void)close_range((unsigned)low + 1, (unsigned)high - 1, 0);
	(void)close_range((unsigned)high + 1, ~0u, 0);
}

/* Leave whoever started us: its session, directory and terminal.  1: this is the
   process that goes on. */
static int detach(void)
{
	pid_t pid = fork();
	int null;

	if (pid)
		_exit(pid < 0 ? EXIT_UNAVAILABLE : 0);
	(void)setsid();
	(void)!chdir("/");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return 0;
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null, fd);
	if (null > 2)
		(void)close(null);
	return 1;
}

static void on_signal(void *arg, int fd, int events)
{
	struct signalfd_siginfo info;

	if (read(fd, &info, sizeof(info)) == sizeof(info))
		helper_drain(arg);
}

/* Before anybody can find us, so that whoever is told to end leaves no name, and
   before there is a thread, so that none gets them. */
static void block_signals(sigset_t *out_signals)
{
	sigemptyset(out_signals);
	sigaddset(out_signals, SIGTERM);
	sigaddset(out_signals, SIGINT);
	sigaddset(out_signals, SIGHUP);
	(void)sigprocmask(SIG_SETMASK, out_signals, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

/* ---- Settings ------------------------------------------------------------ */

struct settings {
	struct kiln_config *config; /* NULL: they were given */
	const char *remote, *credentials_file, *trust, *log;
	char *signing_key; /* kept as credentials are, or NULL */
	struct credentials *credentials;
	struct helper_options helper;
};

static void settings_fini(struct settings *settings)
{
	credentials_free(settings->credentials);
	credentials_forget(settings->signing_key);
	kiln_config_free(settings->config);
}

/* Those of this user, as for any program. */
static enum kiln_status read_config(struct settings *settings,
				    const char **out_signing_key, char *why,
				    size_t why_size)
{
	struct kiln_options options;
	enum kiln_status status =
		kiln_config_load(&settings->config, why, why_size);

	if (status)
		return status;
	kiln_options_init(&options);
	kiln_config_options(settings->config, &options);
	settings->remote = kiln_config_value(settings->config, KILN_SET_REMOTE);
	settings->credentials_file = kiln_config_value(
		settings->config, KILN_SET_REMOTE_CREDENTIALS);
	settings->trust =
		kiln_config_value(settings->config, KILN_SET_REMOTE_TRUST);
	settings->log = kiln_config_value(settings->config, KILN_SET_LOG);
	*out_signing_key = options.signing_key;
	return KILN_OK;
}

/* Of a program that starts us: its socket is named after these alone. */
static void take_given(struct settings *settings, const char **out_signing_key)
{
	settings->remote = getenv("KILN_REMOTE");
	settings->credentials_file = getenv("KILN_REMOTE_CREDENTIALS");
	settings->trust = getenv("KILN_REMOTE_TRUST");
	settings->log = getenv("KILN_LOG");
	*out_signing_key = getenv("KILN_SIGNING_KEY");
}

static enum kiln_status load_secrets(struct settings *settings,
				     const char *signing_key, char *why,
				     size_t why_size)
{
	enum kiln_status status =
		credentials_load(&ki_sys_posix, settings->credentials_file,
				 (const char *const *)environ,
				 &settings->credentials, why, why_size);

	if (!status && signing_key) {
		settings->signing_key = credentials_keep(signing_key);
		if (!settings->signing_key)
			status = KILN_E_NO_MEMORY;
	}
	settings->helper.credentials = settings->credentials;
	settings->helper.signing_key = settings->signing_key;
	return status;
}

static enum kiln_status check_servers(const char *remote, char *why,
				      size_t why_size)
{
	struct levels levels = { 0 };
	enum kiln_status status;

	if (!remote)
		return KILN_OK;
	status = ki_levels_parse(remote, &levels, why, why_size);
	ki_levels_fini(&levels);
	return status;
}

/* All that can be wrong is said while somebody listens. */
static int load(struct settings *settings, const struct arguments *arguments)
{
	char why[1024] = "out of memory";
	const char *signing_key = NULL;
	enum kiln_status status = KILN_OK;

	*settings = (struct settings){ 0 };
	if (arguments->is_given)
		take_given(settings, &signing_key);
	else
		status = read_config(settings, &signing_key, why, sizeof(why));
	if (!status) {
		settings->helper = (struct helper_options){
			.idle_ms = (uint32_t)(arguments->idle_s * 1000),
			.memory_bytes_max = arguments->memory_bytes_max,
			.remote = settings->remote,
			.trusts_transport =
				settings->trust &&
				!strcmp(settings->trust, "transport"),
			.open = backend_open,
		};
		log_open(settings->log);
		status = check_servers(settings->remote, why, sizeof(why));
	}
	if (!status)
		status = load_secrets(settings, signing_key, why, sizeof(why));
	if (!status)
		return 0;
	complain("%s", why);
	settings_fini(settings);
	return EXIT_USAGE;
}

/* ---- Serving ------------------------------------------------------------- */

static int serve(struct settings *settings, struct place *place,
		 const sigset_t *blocked)
{
	int signals = signalfd(-1, blocked, SFD_CLOEXEC | SFD_NONBLOCK);
	int status = EXIT_UNAVAILABLE;
	struct loop *loop = loop_new();
	struct helper helper;
	char why[1024] = "";

	settings->helper.place = place;
	if (loop && signals >= 0 &&
	    !helper_begin(&helper, loop, &settings->helper, why, sizeof(why))) {
		credentials_wipe_environment();
		log_line("serves %s", place->path);
		if (loop_watch(loop, signals, LOOP_IN, on_signal, &helper) &&
		    !loop_run(loop))
			status = 0;
		place_leave(place);
		helper_finish(&helper);
		log_line("ends");
	} else {
		complain("%s", *why ? why : strerror(errno));
		place_leave(place);
	}
	loop_free(loop);
	if (signals >= 0)
		(void)close(signals);
	return status;
}

static int take_place(const struct arguments *arguments, struct place *place)
{
	char why[KI_PATH_MAX + 256];
	int err;

	err = arguments->listen_fd >= 0
		      ? place_adopt(place, arguments->socket,
				    arguments->listen_fd, arguments->lock_fd,
				    why, sizeof(why))
		      : place_take(place, arguments->socket, why, sizeof(why));
	if (!err)
		return 0;
	complain("%s", why);
	return err == -EAGAIN ? EXIT_BUSY : EXIT_UNAVAILABLE;
}

/* Memory that is locked is not, in a process forked from it: what is secret comes
   there anew. */
static int go_to_background(struct settings *settings)
{
	char *const signing_key = settings->signing_key;
	int is_good;
	char why[1024];

	credentials_free(settings->credentials);
	settings->credentials = NULL;
	settings->signing_key = NULL;
	is_good = detach() &&
		  !load_secrets(settings, signing_key, why, sizeof(why));
	credentials_forget(signing_key);
	return is_good;
}

int main(int argc, char **argv)
{
	struct arguments arguments = { .listen_fd = -1,
				       .lock_fd = -1,
				       .idle_s = 300,
				       .memory_bytes_max = (uint64_t)256
							   << 20 };
	struct settings settings;
	struct place place;
	sigset_t blocked;
	int status = parse(argc, argv, &arguments);

	if (status >= 0)
		return status;
	go_first_when_memory_is_short();
	close_curtains();
	if (arguments.detaches)
		close_others(&arguments);
	status = load(&settings, &arguments);
	if (status)
		return status;
	block_signals(&blocked);
	status = take_place(&arguments, &place);
	if (!status) {
		raise_limits();
		status = !arguments.detaches || go_to_background(&settings)
				 ? serve(&settings, &place, &blocked)
				 : EXIT_UNAVAILABLE;
	}
	settings_fini(&settings);
	return status;
}
