/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DIRECTORIES_MAX 512

static char *directories[DIRECTORIES_MAX];
static size_t n_directories;
static pid_t owner;

static void remove_directories(void)
{
	/* A forked child that ends by exit() must leave them alone. */
	if (getpid() != owner)
		return;
	while (n_directories) {
		harness_remove(directories[--n_directories]);
		free(directories[n_directories]);
	}
}

char *harness_directory(void)
{
	const char *base = getenv("TMPDIR");
	char *path;

	if (asprintf(&path, "%s/kiln-test.XXXXXX", base ? base : "/tmp") < 0 ||
	    !mkdtemp(path) || n_directories == DIRECTORIES_MAX) {
		perror("harness_directory");
		abort();
	}
	if (!n_directories && owner != getpid()) {
		owner = getpid();
		atexit(remove_directories);
	}
	directories[n_directories++] = strdup(path);
	return path;
}

char *harness_path(const char *directory, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", directory, name) < 0)
		abort();
	return path;
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *where)
{
	return remove(path);
}

static int open_up(const char *path, const struct stat *st, int type,
		   struct FTW *where)
{
	if (S_ISDIR(st->st_mode))
		chmod(path, 0700);
	return 0;
}

void harness_remove(const char *path)
{
	nftw(path, open_up, 16, FTW_PHYS);
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* How many names a file has in a directory. */
static uint64_t count_names(const char *directory, const struct stat *file)
{
	DIR *dir = file->st_nlink > 1 ? opendir(directory) : NULL;
	struct dirent *entry;
	uint64_t n = 0;

	while (dir && (entry = readdir(dir)))
		n += entry->d_ino == file->st_ino;
	if (dir)
		closedir(dir);
	return n ? n : 1;
}

uint64_t harness_disk_bytes(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	uint64_t bytes = 0;

	while (dir && (entry = readdir(dir))) {
		char *path = harness_path(directory, entry->d_name);
		struct stat st;

		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
		    !lstat(path, &st)) {
			uint64_t blocks = (uint64_t)st.st_blocks * 512;
			uint64_t size = (uint64_t)st.st_size;

			if (S_ISDIR(st.st_mode))
				bytes += harness_disk_bytes(path);
			else
				bytes += (size > blocks ? size : blocks) /
					 count_names(directory, &st);
		}
		free(path);
	}
	if (dir)
		closedir(dir);
	return bytes;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Whether a child ends before the deadline.  Of a pipe that ends with it others
   may have copies. */
static int ends_until(pid_t pid, uint64_t deadline_ms)
{
	struct pollfd fd = { .fd = pidfd_open(pid, 0), .events = POLLIN };
	int n;

	if (fd.fd < 0)
		abort();
	do {
		const uint64_t now = now_ms();

		n = poll(&fd, 1,
			 now < deadline_ms ? (int)(deadline_ms - now) : 0);
	} while (n < 0 && errno == EINTR);
	close(fd.fd);
	return n > 0;
}

unsigned harness_processes(unsigned n, harness_child_fn *body, void *arg,
			   unsigned timeout_s)
{
	const uint64_t deadline_ms = now_ms() + (uint64_t)timeout_s * 1000;
	pid_t *pids = calloc(n, sizeof(*pids));
	unsigned failed = 0, i;
	int gate[2];

	if (!pids || pipe(gate))
		abort();
	for (i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			abort();
		if (!pids[i]) {
			char byte;

			free(pids); /* a body may exit(), and then be searched for leaks */
			close(gate[1]);
			while (read(gate[0], &byte, 1) < 0 && errno == EINTR)
				;
			_exit(body(i, arg));
		}
	}
	close(gate[0]);
	close(gate[1]); /* the end of the pipe is the signal */
	for (i = 0; i < n; i++) {
		int status;

		if (!ends_until(pids[i], deadline_ms))
			kill(pids[i], SIGKILL);
		while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			failed++;
	}
	free(pids);
	return failed;
}

struct thread {
	pthread_t id;
	pthread_barrier_t *barrier;
	harness_child_fn *body;
	void *arg;
	unsigned index;
	int result;
};

static void *run_thread(void *arg)
{
	struct thread *thread = arg;

	pthread_barrier_wait(thread->barrier);
	thread->result = thread->body(thread->index, thread->arg);
	return NULL;
}

unsigned harness_threads(unsigned n, harness_child_fn *body, void *arg)
{
	struct thread *threads = calloc(n, sizeof(*threads));
	pthread_barrier_t barrier;
	unsigned sum = 0, i;

	if (!threads || pthread_barrier_init(&barrier, NULL, n))
		abort();
	for (i = 0; i < n; i++) {
		threads[i] = (struct thread){ .barrier = &barrier,
					      .body = body,
					      .arg = arg,
					      .index = i };
		if (pthread_create(&threads[i].id, NULL, run_thread,
				   &threads[i]))
			abort();
	}
	for (i = 0; i < n; i++) {
		pthread_join(threads[i].id, NULL);
		sum += (unsigned)threads[i].result;
	}
	pthread_barrier_destroy(&barrier);
	free(threads);
	return sum;
}

char *harness_read(const char *path, size_t *out_size)
{
	FILE *file = fopen(path, "rb");
	size_t size = 0, room = 65536, n;
	char *data;
	struct stat st;

	if (!file)
		return NULL;
	/* The sanitizers copy it into new pages whenever it grows: to its end at once,
	   where that is known. */
	if (!fstat(fileno(file), &st) && st.st_size > 0)
		room = (size_t)st.st_size + 2;
	data = malloc(room);
	for (; data && (n = fread(data + size, 1, room - size - 1, file));
	     size += n)
		if (size + n + 1 == room)
			data = realloc(data, room *= 2);
	if (!data)
		abort();
	fclose(file);
	data[size] = '\0';
	if (out_size)
		*out_size = size;
	return data;
}

/* Descriptors are given out from the lowest on, below the limit of a process. */
#define DESCRIPTORS_MAX 256

unsigned harness_n_descriptors(void)
{
	struct pollfd fds[DESCRIPTORS_MAX];
	nfds_t max = (nfds_t)sysconf(_SC_OPEN_MAX), i;
	unsigned n = 0;

	if (max > DESCRIPTORS_MAX)
		max = DESCRIPTORS_MAX;
	for (i = 0; i < max; i++)
		fds[i] = (struct pollfd){ .fd = (int)i };
	if (poll(fds, max, 0) < 0)
		abort();
	for (i = 0; i < max; i++)
		n += !(fds[i].revents & POLLNVAL);
	return n;
}

void harness_write(const char *path, const void *data, size_t size)
{
	FILE *file = fopen(path, "wb");

	if (!file || fwrite(data, 1, size, file) != size || fclose(file)) {
		perror(path);
		abort();
	}
}

/* ---- Progress -------------------------------------------------------------------- */

#define DRAW_NS 100000000

static uint64_t drawn_ns;

void harness_progress(const char *what, uint64_t done, uint64_t total)
{
	struct timespec now;
	uint64_t now_ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	if (now_ns - drawn_ns < DRAW_NS || !isatty(STDERR_FILENO))
		return;
	drawn_ns = now_ns;
	dprintf(STDERR_FILENO, "\r%s: %llu", what, (unsigned long long)done);
	if (total)
		dprintf(STDERR_FILENO, " of %llu", (unsigned long long)total);
	dprintf(STDERR_FILENO, "\033[K");
}

void harness_progress_end(void)
{
	if (drawn_ns)
		dprintf(STDERR_FILENO, "\r\033[K");
	drawn_ns = 0;
}

uint64_t harness_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}
