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

static void gather_flat(const char *directory, struct files *files)
{
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
			add_file(files, path, &info);
	}
	if (dir)
		closedir(dir);
}

/* In so many levels, by the whole path.  What cannot be looked at ends it: -1. */
static int gather_tree(const char *directory, unsigned levels,
		       struct files *files)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	int err = dir || errno == ENOENT ? 0 : -1;

	while (!err && dir && (entry = readdir(dir))) {
		char path[PATH_BYTES];
		struct stat info;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%.250s/%.200s", directory,
			 entry->d_name);
		err = stat(path, &info);
		if (!err && S_ISDIR(info.st_mode) && levels)
			err = gather_tree(path, levels - 1, files);
		else if (!err && S_ISREG(info.st_mode) &&
			 (strstr(path, ".cl_cache") ||
			  strstr(path, ".l0_cache") ||
			  strstr(path, ".ocloc_cache")))
			add_file(files, path, &info);
	}
	if (dir)
		closedir(dir);
	return err;
}

static int gather(const char *directory, enum original_layout layout,
		  struct files *files)
{
	*files = (struct files){ 0 };
	if (layout == ORIGINAL_TREE)
		return gather_tree(directory, 2, files);
	gather_flat(directory, files);
	return 0;
}

static void free_files(struct files *files)
{
	while (files->n)
		free(files->found[--files->n].path);
	free(files->found);
}

static int sum_of(const char *directory, enum original_layout layout,
		  uint64_t *out_sum)
{
	struct files files;
	int err = gather(directory, layout, &files);

	*out_sum = 0;
	for (size_t i = 0; !err && i < files.n; i++)
		*out_sum += files.found[i].size;
	free_files(&files);
	return err;
}

uint64_t original_sum(const char *directory, enum original_layout layout)
{
	uint64_t sum;

	return sum_of(directory, layout, &sum) ? UINT64_MAX : sum;
}

/* The least recently used, a third of the limit. */
static int evict(const char *directory, enum original_layout layout,
		 uint64_t bytes_max, uint64_t *out_removed)
{
	struct files files;
	int err = gather(directory, layout, &files);

	*out_removed = 0;
	if (!err && files.n)
		qsort(files.found, files.n, sizeof(struct found), by_use);
	for (size_t i = 0; !err && i < files.n && *out_removed <= bytes_max / 3;
	     i++)
		if (!unlink(files.found[i].path))
			*out_removed += files.found[i].size;
	free_files(&files);
	return err;
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

int original_lock(const char *directory, enum original_layout layout,
		  uint64_t *out_total)
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
	if (made ? sum_of(directory, layout, out_total)
		 : pread(fd, out_total, sizeof(*out_total), 0) < 0) {
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

/* Where an entry lies; in the tree its directories are made for `make`. */
static void path_of(const char *directory, enum original_layout layout,
		    const char *name, int make, char out[PATH_BYTES])
{
	if (layout == ORIGINAL_FLAT) {
		snprintf(out, PATH_BYTES, "%.250s/%.200s", directory, name);
		return;
	}
	if (make) {
		(void)mkdir(directory, 0775);
		snprintf(out, PATH_BYTES, "%.250s/%c", directory, name[0]);
		(void)mkdir(out, 0775);
		snprintf(out, PATH_BYTES, "%.250s/%c/%c", directory, name[0],
			 name[1]);
		(void)mkdir(out, 0775);
	}
	snprintf(out, PATH_BYTES, "%.250s/%c/%c/%.200s", directory, name[0],
		 name[1], name);
}

static int store_locked(const struct original *original, int config,
			uint64_t total, const char *name, const void *data,
			size_t size)
{
	const char *directory = original->directory;
	const uint64_t bytes_max = original->bytes_max;
	char temporary[PATH_BYTES], path[PATH_BYTES];
	struct stat info;

	path_of(directory, original->layout, name, 0, path);
	if (!stat(path, &info))
		return 0;
	if (bytes_max < total + size) {
		uint64_t removed;

		if (evict(directory, original->layout, bytes_max, &removed))
			return -1;
		total -= removed;
		if (removed)
			(void)!pwrite(config, &total, sizeof(total), 0);
		if (bytes_max < total + size)
			return -1;
	}
	snprintf(temporary, sizeof(temporary), "%s/cl_cache.XXXXXX", directory);
	if (write_temporary(temporary, data, size))
		return -1;
	path_of(directory, original->layout, name, 1, path);
	if (rename(temporary, path)) {
		unlink(temporary);
		return -1;
	}
	total += size;
	(void)!pwrite(config, &total, sizeof(total), 0);
	return 0;
}

int original_store(const struct original *original, const char *name,
		   const void *data, size_t size)
{
	uint64_t total;
	int fd, result = -1;

	if (!size || size > original->bytes_max)
		return -1;
	pthread_mutex_lock(&mutex);
	fd = original_lock(original->directory, original->layout, &total);
	if (fd >= 0) {
		result = store_locked(original, fd, total, name, data, size);
		original_unlock(fd);
	}
	pthread_mutex_unlock(&mutex);
	return result;
}

/* ---- Looking up ------------------------------------------------------------------- */

struct stats {
	uint64_t hits, misses, version;
};

static int count_in(const char *path, int is_hit)
{
	struct stats stats = { 0, 0, 1 };
	int fd = open(path, O_RDWR | O_CREAT, 0664);

	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX)) {
		close(fd);
		return -1;
	}
	if (pread(fd, &stats, sizeof(stats), 0) != sizeof(stats) ||
	    stats.version != 1)
		stats = (struct stats){ 0, 0, 1 };
	if (is_hit)
		stats.hits++;
	else
		stats.misses++;
	(void)!pwrite(fd, &stats, sizeof(stats), 0);
	flock(fd, LOCK_UN);
	close(fd);
	return 0;
}

static void count_lookup(const char *directory, const char *name, int is_hit)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/stats", directory);
	if (count_in(path, is_hit))
		return;
	snprintf(path, sizeof(path), "%s/%c/stats", directory, name[0]);
	if (count_in(path, is_hit))
		return;
	snprintf(path, sizeof(path), "%s/%c/%c/stats", directory, name[0],
		 name[1]);
	(void)count_in(path, is_hit);
}

void *original_look_up(const struct original *original, const char *name,
		       size_t *out_size)
{
	char path[PATH_BYTES];
	void *data = NULL;
	long size = -1;
	FILE *file;

	path_of(original->directory, original->layout, name, 0, path);
	file = fopen(path, "rb");
	if (file && !fseek(file, 0, SEEK_END))
		size = ftell(file);
	if (size >= 0 && !fseek(file, 0, SEEK_SET))
		data = calloc(1, (size_t)size + 1);
	if (data)
		*out_size = fread(data, 1, (size_t)size, file);
	if (file)
		fclose(file);
	if (original->layout == ORIGINAL_FLAT)
		return data;
	if (data && !*out_size) {
		free(data);
		data = NULL;
	}
	count_lookup(original->directory, name, data != NULL);
	return data;
}
