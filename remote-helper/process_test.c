/* SPDX-License-Identifier: MIT */

#include "process_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "client_test.h"

pid_t process_start(const char *program, const char *const *arguments,
		    const char *const *settings)
{
	const char *argv[PROCESS_WORDS_MAX + 2] = { program };
	pid_t pid;
	int null;

	for (int i = 0; i < PROCESS_WORDS_MAX && arguments[i]; i++)
		argv[i + 1] = arguments[i];
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	for (; settings && *settings; settings++)
		(void)putenv((char *)(uintptr_t)*settings);
	null = open("/dev/null", O_RDWR);
	dup2(null, 1);
	dup2(null, 2);
	execv(program, (char **)(uintptr_t)argv);
	_exit(127);
}

void process_wait_ms(unsigned ms)
{
	(void)usleep(ms * 1000);
}

int process_connect(pid_t pid, const char *path)
{
	int fd;

	for (int i = 0; i < HARNESS_HANG_S * 100; i++) {
		siginfo_t info = { 0 };

		fd = client_connect(path);
		if (fd >= 0)
			return fd;
		(void)waitid(P_PID, (id_t)pid, &info,
			     WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid == pid)
			return -1;
		process_wait_ms(10);
	}
	return -1;
}

pid_t process_serve(const char *program, const char *path,
		    const char *const *settings)
{
	const char *arguments[PROCESS_WORDS_MAX] = { "--socket", path };
	pid_t pid = process_start(program, arguments, settings);
	int fd = process_connect(pid, path);

	assert_true(fd >= 0);
	(void)close(fd);
	return pid;
}

int process_end(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int process_stop(pid_t pid)
{
	assert_int_equal(kill(pid, SIGTERM), 0);
	return process_end(pid);
}
