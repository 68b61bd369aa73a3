/* SPDX-License-Identifier: MIT */

#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(const char *what)
{
	perror(what);
	abort();
}

static void set_variables(const struct spawn *spawn)
{
	size_t i;

	for (i = 0; spawn->variables[i]; i++) {
		char *copy = strdup(spawn->variables[i]);

		if (!copy ||
		    (strchr(copy, '=') ? putenv(copy) : unsetenv(copy)))
			_exit(99);
	}
}

static void become(const struct spawn *spawn, int out, int err)
{
	const char *argv[18] = { spawn->program };
	int i;

	for (i = 0; spawn->arguments[i]; i++)
		argv[i + 1] = spawn->arguments[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (spawn->has_group)
		setpgid(0, 0);
	if (spawn->directory && chdir(spawn->directory))
		_exit(99);
	set_variables(spawn);
	if (dup2(out, 1) != 1 || dup2(err, 2) != 2)
		_exit(99);
	if (spawn->before)
		spawn->before(spawn->arg);
	for (i = 0; i <= 2; i++)
		if (spawn->closed & 1 << i)
			close(i);
	execv(spawn->program, (char *const *)argv);
	_exit(99);
}

struct spawned spawn_start(const struct spawn *spawn)
{
	struct spawned result;
	int out[2], err[2];

	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		stop("pipe");
	result.pid = fork();
	if (result.pid < 0)
		stop("fork");
	if (!result.pid)
		become(spawn, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	result.out = out[0];
	result.err = err[0];
	return result;
}

struct text {
	char *data;
	size_t size;
	int fd;
};

/* Whether there may be more. */
static int take(struct text *text)
{
	ssize_t n;

	text->data = realloc(text->data, text->size + 4097);
	if (!text->data)
		stop("realloc");
	n = read(text->fd, text->data + text->size, 4096);
	if (n > 0)
		text->size += (size_t)n;
	text->data[text->size] = '\0';
	if (n > 0 || (n < 0 && errno == EINTR))
		return 1;
	close(text->fd);
	text->fd = -1;
	return 0;
}

char *read_to_end(int fd)
{
	struct text text = { .fd = fd };

	while (take(&text))
		;
	return text.data;
}

int read_line(int fd, char *out, size_t size)
{
	size_t n = 0;
	char c;

	while (n + 1 < size && read(fd, &c, 1) == 1 && c != '\n')
		out[n++] = c;
	out[n] = '\0';
	return n > 0;
}

struct ended spawn_finish(struct spawned *spawned)
{
	struct text texts[2] = { { .fd = spawned->out },
				 { .fd = spawned->err } };
	struct ended ended;
	int i;

	while (texts[0].fd >= 0 || texts[1].fd >= 0) {
		struct pollfd fds[2] = { { texts[0].fd, POLLIN, 0 },
					 { texts[1].fd, POLLIN, 0 } };

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			stop("poll");
		for (i = 0; i < 2; i++)
			if (fds[i].revents)
				take(&texts[i]);
	}
	ended.out = texts[0].data;
	ended.err = texts[1].data;
	while (waitpid(spawned->pid, &ended.wait_status, 0) < 0)
		if (errno != EINTR)
			stop("waitpid");
	return ended;
}

struct ended spawn_run(const struct spawn *spawn)
{
	struct spawned spawned = spawn_start(spawn);

	return spawn_finish(&spawned);
}

void ended_free(struct ended *ended)
{
	free(ended->out);
	free(ended->err);
}

int status_of(const struct ended *ended)
{
	return WIFEXITED(ended->wait_status)
		       ? WEXITSTATUS(ended->wait_status)
		       : 1000 + WTERMSIG(ended->wait_status);
}
