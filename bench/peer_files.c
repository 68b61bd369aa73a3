/* SPDX-License-Identifier: MIT */

/*
 * One file per entry, three ways.
 *
 * plain: temporary and rename, nothing else: the best that the manner has.
 * NEO:   as Intel's compiler cache: `config.file` with the sum of all sizes,
 *        locked around each put; over the bound a third goes, by access time.
 * SYCL:  as DPC++'s: a folder for each key, `.src` to compare with, `.bin`,
 *        `.lock` by O_EXCL, an access time rewritten at each hit, and the sum
 *        of sizes behind a lock file.  Not measured over its bound (facts: 31 s).
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench.h"
#include "peers.h"

#define PATH_BYTES 512

struct store {
	char directory[256];
	uint64_t bytes_max; /* 0: it does not evict */
};

static void *open_files(const char *directory, uint64_t bytes_max,
			unsigned flags)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		bench_fail("no memory");
	snprintf(store->directory, sizeof(store->directory), "%s", directory);
	if (flags & STORE_EVICTS)
		store->bytes_max = bytes_max;
	return store;
}

static void close_files(void *store)
{
	free(store);
}

static void hex_of(const struct item *item, char out[33])
{
	int i;

	for (i = 0; i < 16; i++)
		snprintf(out + 2 * i, 3, "%02x", item->digest[i]);
}

static void write_whole(int fd, const struct item *item, const void *value,
			size_t size)
{
	struct iovec parts[] = {
		{ (void *)(uintptr_t)item->record, item->record_size },
		{ (void *)(uintptr_t)value, size },
	};

	if (pwritev(fd, parts, 2, 0) != (ssize_t)(item->record_size + size))
		bench_fail("files: write: %s", strerror(errno));
}

/* Record and value of one file; the value's size, 0 if it is another's. */
static size_t read_whole(int fd, const struct item *item, void *buffer,
			 size_t capacity)
{
	uint8_t record[1024];
	struct iovec parts[] = { { record, item->record_size },
				 { buffer, capacity } };
	ssize_t n = preadv(fd, parts, 2, 0);

	if (n < (ssize_t)item->record_size ||
	    memcmp(record, item->record, item->record_size))
		return 0;
	return (size_t)n - item->record_size;
}

/* ---- plain and NEO ------------------------------------------------------- */

static void path_of(const struct store *store, const struct item *item,
		    char out[PATH_BYTES])
{
	char hex[33];

	hex_of(item, hex);
	snprintf(out, PATH_BYTES, "%s/%s.cl_cache", store->directory, hex);
}

static size_t get_file(void *arg, const struct item *item, void *buffer,
		       size_t capacity)
{
	char path[PATH_BYTES];
	struct stat info;
	size_t size;
	int fd;

	path_of(arg, item, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (fstat(fd, &info))
		bench_fail("files: stat");
	size = read_whole(fd, item, buffer, capacity);
	close(fd);
	return size;
}

/* NEO learns the size by seeking and reads into a buffer of its own. */
static size_t get_neo(void *arg, const struct item *item, void *buffer,
		      size_t capacity)
{
	char path[PATH_BYTES];
	size_t size = 0;
	char *whole;
	off_t end;
	int fd;

	path_of(arg, item, path);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	end = lseek(fd, 0, SEEK_END);
	lseek(fd, 0, SEEK_SET);
	whole = malloc((size_t)end + 1);
	if (whole && read(fd, whole, (size_t)end) == end &&
	    (size_t)end > item->record_size &&
	    !memcmp(whole, item->record, item->record_size)) {
		size = (size_t)end - item->record_size;
		if (size <= capacity)
			memcpy(buffer, whole + item->record_size, size);
	}
	free(whole);
	close(fd);
	return size;
}

static void publish(const struct store *store, const struct item *item,
		    const void *value, size_t size)
{
	char temporary[PATH_BYTES], path[PATH_BYTES];
	int fd;

	path_of(store, item, path);
	snprintf(temporary, sizeof(temporary), "%s/cl_cache.XXXXXX",
		 store->directory);
	fd = mkstemp(temporary);
	if (fd < 0)
		bench_fail("files: temporary: %s", strerror(errno));
	write_whole(fd, item, value, size);
	close(fd);
	if (rename(temporary, path))
		bench_fail("files: rename: %s", strerror(errno));
}

static void put_plain(void *arg, const struct item *item, const void *value,
		      size_t size)
{
	publish(arg, item, value, size);
}

struct candidate {
	char name[64];
	uint64_t size;
	struct timespec used;
};

static int by_age(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
	return (x->used.tv_nsec > y->used.tv_nsec) -
	       (x->used.tv_nsec < y->used.tv_nsec);
}

/* All entries, oldest access first; their sum. */
static struct candidate *scan(const struct store *store, size_t *out_n,
			      uint64_t *out_sum)
{
	struct candidate *found = NULL;
	size_t n = 0, capacity = 0;
	struct dirent *entry;
	struct stat info;
	DIR *dir = opendir(store->directory);

	*out_sum = 0;
	while (dir && (entry = readdir(dir))) {
		if (!strstr(entry->d_name, ".cl_cache") ||
		    strlen(entry->d_name) >= sizeof(found->name) ||
		    fstatat(dirfd(dir), entry->d_name, &info, 0))
			continue;
		if (n == capacity) {
			capacity = capacity ? 2 * capacity : 1024;
			found = realloc(found, capacity * sizeof(*found));
			if (!found)
				bench_fail("no memory");
		}
		memcpy(found[n].name, entry->d_name, strlen(entry->d_name) + 1);
		found[n].size = (uint64_t)info.st_size;
		found[n++].used = info.st_atim;
		*out_sum += (uint64_t)info.st_size;
	}
	closedir(dir);
	if (n)
		qsort(found, n, sizeof(*found), by_age);
	*out_n = n;
	return found;
}

static uint64_t drop_a_third(const struct store *store)
{
	uint64_t sum, gone = 0;
	struct candidate *found;
	char path[PATH_BYTES];
	size_t n, i;

	found = scan(store, &n, &sum);
	for (i = 0; i < n && gone < store->bytes_max / 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", store->directory,
			 found[i].name);
		if (!unlink(path))
			gone += found[i].size;
	}
	free(found);
	return gone;
}

static void put_neo(void *arg, const struct item *item, const void *value,
		    size_t size)
{
	char path[PATH_BYTES], config[PATH_BYTES];
	size_t whole = item->record_size + size;
	struct store *store = arg;
	uint64_t sum = 0;
	int fd;

	snprintf(config, sizeof(config), "%s/config.file", store->directory);
	fd = open(config, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || flock(fd, LOCK_EX) || pread(fd, &sum, sizeof(sum), 0) < 0)
		bench_fail("NEO: config.file");
	path_of(store, item, path);
	if (access(path, F_OK)) {
		if (store->bytes_max && sum + whole > store->bytes_max)
			sum -= drop_a_third(store);
		publish(store, item, value, size);
		sum += whole;
		if (pwrite(fd, &sum, sizeof(sum), 0) != sizeof(sum))
			bench_fail("NEO: config.file");
	}
	flock(fd, LOCK_UN);
	close(fd);
}

const struct peer peer_plain = { "plain files", 0,	   open_files,
				 close_files,	put_plain, get_file,
				 NULL };
const struct peer peer_neo = { "NEO style", 0,	     open_files, close_files,
			       put_neo,	    get_neo, NULL };

/* ---- SYCL ------------------------------------------------------------------ */

/* DIRECTORY/a/b/c/d, where the files of one key are. */
static void folder_of(const struct store *store, const struct item *item,
		      char out[PATH_BYTES])
{
	char hex[33];

	hex_of(item, hex);
	snprintf(out, PATH_BYTES, "%s/%.2s/%.8s/%.8s/%s", store->directory, hex,
		 hex, hex + 8, hex + 16);
}

static void make_folders(char *path, size_t from)
{
	char *slash;

	for (slash = strchr(path + from + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	mkdir(path, 0755);
}

static int lock_file(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0200);

	if (fd < 0)
		return 0;
	close(fd);
	return 1;
}

static void write_file(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		bench_fail("SYCL: %s: %s", path, strerror(errno));
	close(fd);
}

static void note_access(const char *folder)
{
	char path[PATH_BYTES + 32], lock[PATH_BYTES + 40], text[24];
	int n;

	snprintf(path, sizeof(path), "%s/0_access_time.txt", folder);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	if (!lock_file(lock))
		return;
	n = snprintf(text, sizeof(text), "%llu",
		     (unsigned long long)bench_now_ns());
	write_file(path, text, (size_t)n);
	unlink(lock);
}

static size_t get_sycl(void *arg, const struct item *item, void *buffer,
		       size_t capacity)
{
	char folder[PATH_BYTES], path[PATH_BYTES + 16];
	uint8_t record[1024];
	struct stat info;
	size_t size = 0;
	ssize_t n;
	int fd;

	folder_of(arg, item, folder);
	snprintf(path, sizeof(path), "%s/0.bin", folder);
	if (stat(path, &info))
		return 0;
	snprintf(path, sizeof(path), "%s/0.lock", folder);
	if (!stat(path, &info))
		return 0;
	snprintf(path, sizeof(path), "%s/0.src", folder);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	n = read(fd, record, item->record_size);
	close(fd);
	if (n != (ssize_t)item->record_size ||
	    memcmp(record, item->record, item->record_size))
		return 0;
	snprintf(path, sizeof(path), "%s/0.bin", folder);
	fd = open(path, O_RDONLY);
	n = read(fd, buffer, capacity);
	close(fd);
	if (n > 0)
		size = (size_t)n;
	note_access(folder);
	return size;
}

static void add_up(const struct store *store, size_t size)
{
	char path[PATH_BYTES], lock[PATH_BYTES + 8], text[24] = "";
	uint64_t sum;
	int fd, n;

	snprintf(path, sizeof(path), "%s/cache_size.txt", store->directory);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	while (!lock_file(lock))
		;
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		if (read(fd, text, sizeof(text) - 1) < 0)
			bench_fail("SYCL: cache_size.txt");
		close(fd);
	}
	sum = strtoull(text, NULL, 10) + size;
	n = snprintf(text, sizeof(text), "%llu", (unsigned long long)sum);
	write_file(path, text, (size_t)n);
	unlink(lock);
}

static void put_sycl(void *arg, const struct item *item, const void *value,
		     size_t size)
{
	char folder[PATH_BYTES], path[PATH_BYTES + 16], lock[PATH_BYTES + 16];
	struct store *store = arg;

	folder_of(store, item, folder);
	make_folders(folder, strlen(store->directory));
	snprintf(lock, sizeof(lock), "%s/0.lock", folder);
	if (!lock_file(lock))
		return;
	snprintf(path, sizeof(path), "%s/0.bin", folder);
	write_file(path, value, size);
	snprintf(path, sizeof(path), "%s/0.src", folder);
	write_file(path, item->record, item->record_size);
	add_up(store, size + item->record_size);
	note_access(folder);
	unlink(lock);
}

const struct peer peer_sycl = { "SYCL style", 0,	open_files, close_files,
				put_sycl,     get_sycl, NULL };
