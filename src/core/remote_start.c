/* SPDX-License-Identifier: MIT */

/*
 * Starting kiln-remote, and talking to it about itself.
 *
 *	lock remote-<digest>.lock    somebody else has it: a helper lives
 *	remove a name that is left over, listen at remote-<digest>.sock
 *	launch kiln-remote with both descriptors: the lock is its own from then on
 *
 * So there is one helper for a socket, whoever starts it, and the socket is there
 * before the helper has begun: who connects waits in its queue.  A helper that is
 * killed loses the lock with its life, and the next start finds that.
 */

#include <kiln/remote.h>

#include "core/cache.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/connection.h"

#define LOCK_SUFFIX   ".lock"
#define SOCKET_SUFFIX ".sock"
#define TALK_GRACE_NS ((uint64_t)500000000)

extern char **environ;

static enum kiln_status fail(char *why, size_t why_size,
			     enum kiln_status status, const char *what, int err)
{
	if (why_size)
		snprintf(why, why_size, "%s%s%s", what, err ? ": " : "",
			 err ? strerror(-err) : "");
	return status;
}

static enum kiln_status find_socket(const struct kiln_options *options,
				    char out_path[KI_PATH_MAX], char *why,
				    size_t why_size)
{
	enum kiln_status status = KILN_OK;
	char fault[512];

	if (options && options->remote)
		status = ki_remote_check(options->remote, fault, sizeof(fault));
	if (status)
		return fail(why, why_size, status, fault, 0);
	if (!options ||
	    (!options->remote && !ki_packs_have_url(options->packs)) ||
	    ki_remote_trust_fault(options->remote_trust))
		return fail(why, why_size, KILN_E_INVALID,
			    "there is no remote that can be", 0);
	status = ki_kiln_socket(options, out_path);
	if (status == KILN_MISS)
		return fail(why, why_size, KILN_E_IO,
			    "XDG_RUNTIME_DIR, XDG_CACHE_HOME and HOME name no "
			    "directory for its socket",
			    0);
	if (status)
		return fail(why, why_size, status, "its socket cannot be named",
			    0);
	return KILN_OK;
}

/* ---- Where kiln-remote is --------------------------------------------------- */

/* As installed, from the library's folder; in a build tree; as configured. */
static const char *const programs[] = {
	KI_REMOTE_FROM_LIBRARY,
	"remote-helper/kiln-remote",
	NULL,
};

/* The folder of the library that this is in; 0: it is part of a program. */
static int find_library(char out[KI_PATH_MAX])
{
	char *slash;
	Dl_info info;

	if (!dladdr((void *)(uintptr_t)kiln_remote_start, &info) ||
	    !info.dli_fname || *info.dli_fname != '/' ||
	    strlen(info.dli_fname) >= KI_PATH_MAX)
		return 0;
	strcpy(out, info.dli_fname);
	slash = strrchr(out, '/');
	*slash = '\0';
	return !strncmp(slash + 1, "libkiln", 7);
}

static int find_program(char out[KI_PATH_MAX])
{
	const struct ki_sys *sys = &ki_sys_posix;
	char directory[KI_PATH_MAX];
	struct ki_file_info info;

	if (find_library(directory))
		for (size_t i = 0; programs[i]; i++)
			if (!ki_path_join(out, directory, programs[i]) &&
			    !sys->stat(sys, out, &info))
				return 1;
	strcpy(out, KI_REMOTE_INSTALLED);
	return !sys->stat(sys, out, &info);
}

/* ---- What it is given -------------------------------------------------------- */

/*
 * It outlives the program that starts it and serves others, so it is what its socket
 * is named after and nothing else: settings as they are in the options, and of the
 * environment ki_remote_variables.  What a program preloads, where it has libraries
 * from and who traces it stays with the program.
 */
struct given {
	char *settings[5];
	size_t n_settings;
	char **environment; /* up to NULL */
};

static void drop(struct given *given)
{
	for (size_t i = 0; i < given->n_settings; i++) {
		/* One may be a secret key. */
		ki_sign_wipe(given->settings[i], strlen(given->settings[i]));
		free(given->settings[i]);
	}
	free(given->environment);
}

static int give(struct given *given, const char *name, const char *value)
{
	char **setting = &given->settings[given->n_settings];

	if (!value)
		return 1;
	if (asprintf(setting, "%s=%s", name, value) < 0)
		return 0;
	given->n_settings++;
	return 1;
}

/* Its log is the user's, wherever that is set. */
static int give_log(struct given *given)
{
	struct kiln_config *config = NULL;
	int is_good;

	(void)kiln_config_load(&config, NULL, 0);
	if (!config)
		return 1;
	is_good = give(given, "KILN_LOG",
		       kiln_config_value(config, KILN_SET_LOG));
	kiln_config_free(config);
	return is_good;
}

static int is_given(const char *variable)
{
	for (size_t i = 0; ki_remote_variables[i]; i++) {
		const size_t size = strlen(ki_remote_variables[i]);

		if (!strncmp(variable, ki_remote_variables[i], size) &&
		    variable[size] == '=')
			return 1;
	}
	return 0;
}

/* As ki_environment() has it, which names the socket. */
static int give_environment(struct given *given)
{
	char *const *all = ki_process_is_secure() ? NULL : environ;
	size_t n = 0;

	while (all && all[n])
		n++;
	given->environment =
		calloc(n + given->n_settings + 1, sizeof(*given->environment));
	if (!given->environment)
		return 0;
	memcpy(given->environment, given->settings,
	       given->n_settings * sizeof(*given->settings));
	for (size_t i = 0, kept = given->n_settings; i < n; i++)
		if (is_given(all[i]))
			given->environment[kept++] = all[i];
	return 1;
}

static int give_all(struct given *given, const struct kiln_options *options)
{
	*given = (struct given){ .n_settings = 0 };
	if (give(given, "KILN_REMOTE", options->remote) &&
	    give(given, "KILN_REMOTE_CREDENTIALS",
		 options->remote_credentials) &&
	    give(given, "KILN_REMOTE_TRUST", options->remote_trust) &&
	    give(given, "KILN_SIGNING_KEY", options->signing_key) &&
	    give_log(given) && give_environment(given))
		return 1;
	drop(given);
	return 0;
}

/* ---- Starting --------------------------------------------------------------- */

static void lock_path(char out[KI_PATH_MAX], const char *socket)
{
	strcpy(out, socket);
	strcpy(out + strlen(out) - strlen(SOCKET_SUFFIX), LOCK_SUFFIX);
}

/* -EAGAIN: a helper lives. */
static int take_lock(const struct ki_sys *sys, const char *socket)
{
	char path[KI_PATH_MAX];
	int err, fd;

	lock_path(path, socket);
	fd = sys->open(sys, path,
		       KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE |
			       KI_OPEN_NOFOLLOW | KI_OPEN_OWN,
		       0600);
	if (fd < 0)
		return fd;
	err = sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1);
	if (!err)
		return fd;
	(void)sys->close(sys, fd);
	return err;
}

/* Under the lock nobody else listens there: what is left over goes, but only what
   is a socket. */
static int listen_at(const struct ki_sys *sys, const char *socket)
{
	struct ki_file_info info;

	if (!sys->lstat(sys, socket, &info)) {
		if (!S_ISSOCK(info.mode) || info.uid != ki_user_id())
			return -EEXIST;
		(void)sys->unlink(sys, socket);
	}
	return sys->listen(sys, socket);
}

static int launch(const struct kiln_options *options, const char *program,
		  const char *socket, int listen_fd, int lock_fd)
{
	char *arguments[] = {
		"kiln-remote", "--given",
		"--socket",    (char *)(uintptr_t)socket,
		"--listen-fd", "3",
		"--lock-fd",   "4",
		NULL,
	};
	const int fds[] = { listen_fd, lock_fd };
	struct given given;
	int err;

	if (!give_all(&given, options))
		return -ENOMEM;
	err = ki_process_launch(program, arguments, given.environment, fds, 2);
	drop(&given);
	return err;
}

static enum kiln_status check_directory(const struct ki_sys *sys,
					const char *socket, char *why,
					size_t why_size)
{
	char directory[KI_PATH_MAX];
	const char *what = "cannot be made";
	struct ki_file_info info;
	enum kiln_status status;

	strcpy(directory, socket);
	*strrchr(directory, '/') = '\0';
	(void)ki_make_directories(sys, directory);
	status = ki_directory_check(sys, directory, 0, 1, &what);
	if (!status && (sys->stat(sys, directory, &info) ||
			info.uid != ki_user_id() || info.mode & 077)) {
		status = KILN_E_OWNER;
		what = "is open to others; chmod 700 it";
	}
	if (status && why_size)
		snprintf(why, why_size, "%s %s", directory, what);
	return status;
}

enum kiln_status kiln_remote_start(const struct kiln_options *options,
				   const char *program, char *why,
				   size_t why_size)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char socket[KI_PATH_MAX], found[KI_PATH_MAX];
	int lock_fd, listen_fd, err;
	enum kiln_status status = find_socket(options, socket, why, why_size);

	if (!status)
		status = check_directory(sys, socket, why, why_size);
	if (status)
		return status;
	lock_fd = take_lock(sys, socket);
	if (lock_fd == -EAGAIN)
		return KILN_OK;
	if (lock_fd < 0)
		return fail(why, why_size, KILN_E_IO, "its lock cannot be had",
			    lock_fd);
	if (!program && !find_program(found)) {
		(void)sys->close(sys, lock_fd);
		return fail(why, why_size, KILN_MISS,
			    "there is no program kiln-remote", 0);
	}
	listen_fd = listen_at(sys, socket);
	err = listen_fd < 0 ? listen_fd
			    : launch(options, program ? program : found, socket,
				     listen_fd, lock_fd);
	if (err && listen_fd >= 0)
		(void)sys->unlink(sys, socket);
	if (listen_fd >= 0)
		(void)sys->close(sys, listen_fd);
	(void)sys->close(sys, lock_fd);
	if (!err)
		return KILN_OK;
	if (listen_fd < 0)
		return fail(why, why_size, KILN_E_IO,
			    "its socket cannot be made", err);
	return fail(why, why_size, err == -ENOENT ? KILN_MISS : KILN_E_IO,
		    "it cannot be started", err);
}

/* ---- Talking ---------------------------------------------------------------- */

int kiln_remote_is_there(const struct kiln_options *options)
{
	char socket[KI_PATH_MAX];

	return !find_socket(options, socket, NULL, 0) &&
	       ki_connection_can_be_at(&ki_sys_posix, socket);
}

static void ignore_welcome(void *arg, uint64_t capabilities, uint32_t later_ms)
{
}

static enum kiln_status talk(const struct kiln_options *options, uint8_t type,
			     uint32_t number, uint32_t timeout_ms,
			     uint8_t expected, struct ki_answer *out_answer)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_connection *connection;
	char socket[KI_PATH_MAX];
	uint8_t body[4];
	const struct ki_request request = { .type = type,
					    .body = body,
					    .size = sizeof(body),
					    .fd_along = -1,
					    .answer_max = KI_REMOTE_BODY_MAX };
	enum kiln_status status = find_socket(options, socket, NULL, 0);

	if (status)
		return status;
	connection = ki_connection_new(sys, socket, 1, ignore_welcome, NULL);
	if (!connection)
		return KILN_E_NO_MEMORY;
	ki_put_u32(body, number);
	ki_connection_begin(connection);
	status = ki_connection_ask(connection, &request,
				   sys->monotonic_ns(sys) +
					   timeout_ms * (uint64_t)1000000 +
					   TALK_GRACE_NS,
				   out_answer);
	ki_connection_finish(connection);
	ki_connection_free(connection);
	if (!status && out_answer->type != expected) {
		free(out_answer->body);
		status = KILN_E_FORMAT;
	}
	return status == KILN_E_UNSUPPORTED ? KILN_MISS : status;
}

enum kiln_status kiln_remote_tell(const struct kiln_options *options,
				  unsigned what, uint32_t timeout_ms,
				  char **out_json)
{
	struct ki_answer answer;
	enum kiln_status status;
	char *json;

	if (what > KILN_REMOTE_TRIAL)
		return KILN_E_INVALID;
	status = talk(options, KI_FRAME_TELL, what, timeout_ms, KI_FRAME_TOLD,
		      &answer);
	if (!status)
		status = (enum kiln_status)answer.status;
	if (status)
		return status;
	json = answer.size ? strndup((const char *)answer.body, answer.size)
			   : strdup("{}");
	free(answer.body);
	if (!json)
		return KILN_E_NO_MEMORY;
	*out_json = json;
	return KILN_OK;
}

enum kiln_status kiln_remote_drain(const struct kiln_options *options,
				   uint32_t timeout_ms)
{
	struct ki_answer answer;
	enum kiln_status status = talk(options, KI_FRAME_DRAIN, timeout_ms,
				       timeout_ms, KI_FRAME_DRAINED, &answer);

	if (status)
		return status;
	free(answer.body);
	return (enum kiln_status)answer.status;
}
