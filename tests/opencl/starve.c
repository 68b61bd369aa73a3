/* SPDX-License-Identifier: MIT */

/*
 * The layer with memory that runs out: linked once more, its own allocations
 * pass through here, and those of the driver and of the program do not.
 *
 *	KILN_TEST_STARVE="DIRECTORY STEP LASTING"
 *
 * While the loader loads it the process becomes one child after the other, of
 * which each is the program: in the first the first allocation fails, in the
 * second the one STEP later, and so on until one does without failing; if
 * LASTING is 1, all later ones fail as well.  What child K prints, what it
 * calls and how it ends is in DIRECTORY: K.out, K.calls, and the lines "K STATUS"
 * of `rounds`.  With KILN_TEST_STARVE_STORE each child has a store of its own.
 */

#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 4096

static char directory[PATH_BYTES];
static unsigned long failing; /* 0: none does */
static int is_lasting;
static _Atomic unsigned long *n_asked; /* shared with the children */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *data, size_t size);
char *__real_strdup(const char *string);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *data, size_t size);
char *__wrap_strdup(const char *string);

static int open_of(unsigned long round, const char *what)
{
	char path[PATH_BYTES + 64];

	snprintf(path, sizeof(path), "%s/%lu.%s", directory, round, what);
	return open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

/* For whoever looks for the place where a round went wrong. */
static void show_where(void)
{
	void *frames[32];
	int n = backtrace(frames, 32), fd = open_of(failing, "where");

	backtrace_symbols_fd(frames, n, fd);
	close(fd);
}

static int fails(void)
{
	unsigned long now;

	if (!failing)
		return 0;
	now = atomic_fetch_add(n_asked, 1) + 1;
	if (now == failing && getenv("KILN_TEST_STARVE_WHERE"))
		show_where();
	return is_lasting ? now >= failing : now == failing;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *data, size_t size)
{
	return fails() ? NULL : __real_realloc(data, size);
}

char *__wrap_strdup(const char *string)
{
	return fails() ? NULL : __real_strdup(string);
}

/* This process is the program of the round from now on. */
static void begin(unsigned long round)
{
	char path[PATH_BYTES + 64];
	int out = open_of(round, "out");

	if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(120);
	close(out);
	snprintf(path, sizeof(path), "%s/%lu.calls", directory, round);
	setenv("KILN_TEST_ICD_CALLS", path, 1);
	snprintf(path, sizeof(path), "%s/%lu.store", directory, round);
	if (getenv("KILN_TEST_STARVE_STORE"))
		setenv("KILN_DIR", path, 1);
	alarm(60);
	failing = round;
}

__attribute__((constructor)) static void starve(void)
{
	const char *what = getenv("KILN_TEST_STARVE");
	char path[PATH_BYTES + 64];
	unsigned long round, step = 1;
	FILE *rounds;
	int status;

	if (!what ||
	    sscanf(what, "%4095s %lu %d", directory, &step, &is_lasting) != 3)
		return;
	n_asked = mmap(NULL, sizeof(*n_asked), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(path, sizeof(path), "%s/rounds", directory);
	rounds = fopen(path, "we");
	if (n_asked == MAP_FAILED || !rounds)
		_exit(120);
	for (round = 1; round == 1 || *n_asked >= round - step; round += step) {
		pid_t pid;

		atomic_store(n_asked, 0);
		pid = fork();
		if (!pid) {
			close(fileno(rounds));
			begin(round);
			return;
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			_exit(120);
		fprintf(rounds, "%lu %d\n", round, status);
		fflush(rounds);
	}
	_exit(0);
}
