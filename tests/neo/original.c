/* SPDX-License-Identifier: MIT */

#include "original.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 512

/* Of all caches in the process. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- All entries ------------------------------------------------------------- */

struct found {
	char *path;
	time_t used;
	uint64_t size;
};

struct files {
	struct found *found;
	size_t n, capacity;
};

static int by_use(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->used < y->used ? -1 : x->used > y->used;
}

static void add_file(struct files *files, const char *path,
		     const struct stat *info)
{
	if (files->n == files->capacity) {
		files->capacity = files->capacity ? 2 * files->capacity : 64;
		files->found = realloc(files->found,
				       files->capacity * sizeof(struct found));
		if (!files->found)
			abort();
	}
	files->found[files->n++] = (struct found){
		.path = strdup(path),
		.used = info->st_atim.tv_sec,
		.size = (uint64_t)info->st_size,
	};
}

static struct files gather(const char *directory)
{
	struct files files = { 0 };
	DIR *dir = opendir(directory);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[PATH_BYTES];
		struct stat info;

		if (!strstr(entry->d_name, ".cl_cache") &&
		    !strstr(entry->d_name, ".l0_cache"))
			continue;
		snprintf(path, sizeof(path), "%s/%.200s", directory,
			 entry->d_name);
		if (!stat(path, &info))
			add_file(&files, path, &info);
	}
	if (dir)
		closedir(dir);
	return files;
}

static void free_files(struct files *files)
{
	while (files->n)
		free(files->found[--files->n].path);
	free(files->found);
}

uint64_t original_sum(const char *directory)
{
	struct files files = gather(directory);
	uint64_t sum = 0;

	for (size_t i = 0; i < files.n; i++)
		sum += files.found[i].size;
	free_files(&files);
	return sum;
}

/* The least recently used, a third of the limit. */
static uint64_t evict(const char *directory, uint64_t bytes_max)
{
	struct files files = gather(directory);
	uint64_t removed = 0;

	if (files.n)
		qsort(files.found, files.n, sizeof(struct found), by_use);
	for (size_t i = 0; i < files.n && removed <= bytes_max / 3; i++)
		if (!unlink(files.found[i].path))
			removed += files.found[i].size;
	free_files(&files);
	return removed;
}

/* ---- config.file --------------------------------------------------------------- */

/* Who makes it counts. */
static int open_config(const char *path, int *out_made)
{
	int fd = open(path, O_RDWR);

	*out_made = 0;
	if (fd >= 0 || errno != ENOENT)
		return fd;
	fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0664);
	*out_made = fd >= 0;
	return fd >= 0 ? fd : open(path, O_RDWR);
}

int original_lock(const char *directory, uint64_t *out_total)
{
	char path[PATH_BYTES];
	int fd, made;

	*out_total = 0;
	snprintf(path, sizeof(path), "%s/config.file", directory);
	fd = open_config(path, &made);
	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX)) {
		close(fd);
		return -1;
	}
	if (made)
		*out_total = original_sum(directory);
	else if (pread(fd, out_total, sizeof(*out_total), 0) < 0) {
		original_unlock(fd);
		return -1;
	}
	return fd;
}

void original_unlock(int fd)
{
	flock(fd, LOCK_UN);
	close(fd);
}

/* ---- Storing ---------------------------------------------------------------------- */

static int write_temporary(char *path, const void *data, size_t size)
{
	int fd = mkstemp(path);

	if (fd < 0)
		return -1;
	if (pwrite(fd, data, size, 0) < 0) {
		close(fd);
		unlink(path);
		return -1;
	}
	return close(fd);
}

static int store_locked(const char *directory, uint64_t bytes_max, int config,
			uint64_t total, const char *name, const void *data,
			size_t size)
{
	char temporary[PATH_BYTES], path[PATH_BYTES];
	struct stat info;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	if (!stat(path, &info))
		return 0;
	if (bytes_max < total + size) {
		total -= evict(directory, bytes_max);
		(void)!pwrite(config, &total, sizeof(total), 0);
		if (bytes_max < total + size)
			return -1;
	}
	snprintf(temporary, sizeof(temporary), "%s/cl_cache.XXXXXX", directory);
	if (write_temporary(temporary, data, size))
		return -1;
	if (rename(temporary, path)) {
		unlink(temporary);
		return -1;
	}
	total += size;
	(void)!pwrite(config, &total, sizeof(total), 0);
	return 0;
}

int original_store(const char *directory, uint64_t bytes_max, const char *name,
		   const void *data, size_t size)
{
	uint64_t total;
	int fd, result = -1;

	pthread_mutex_lock(&mutex);
	fd = original_lock(directory, &total);
	if (fd >= 0) {
		result = store_locked(directory, bytes_max, fd, total, name,
				      data, size);
		original_unlock(fd);
	}
	pthread_mutex_unlock(&mutex);
	return result;
}
