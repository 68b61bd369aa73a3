/* SPDX-License-Identifier: MIT */

#include "original.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES ORIGINAL_PATH_BYTES
#define STEM_BYTES (PATH_BYTES - 32)
/* Sizes are believed, but for what would end the test. */
#define SIZE_LIMIT ((uint64_t)1 << 30)

static const char use_suffix[] = "_access_time.txt";

/* PATH and what is behind it. */
static const char *with(char out[PATH_BYTES], const char *path,
			const char *suffix)
{
	snprintf(out, PATH_BYTES, "%.*s%s", STEM_BYTES, path, suffix);
	return out;
}

static int is_there(const char *path, const char *suffix)
{
	char whole[PATH_BYTES];
	struct stat info;

	return !stat(with(whole, path, suffix), &info);
}

static uint64_t file_size(const char *path, const char *suffix)
{
	char whole[PATH_BYTES];
	struct stat info;

	return stat(with(whole, path, suffix), &info) ? 0
						      : (uint64_t)info.st_size;
}

/* ---- Names ----------------------------------------------------------------------- */

static uint64_t shifted(uint64_t x)
{
	return x ^ x >> 47;
}

uint64_t original_hash(const void *data, size_t size)
{
	const uint64_t times = 0xc6a4a7935bd1e995u;
	const unsigned char *bytes = data;
	uint64_t hash = 0xc70f6907u ^ size * times, block;

	for (; size >= 8; size -= 8, bytes += 8) {
		memcpy(&block, bytes, 8);
		hash = (hash ^ shifted(block * times) * times) * times;
	}
	if (size) {
		block = 0;
		memcpy(&block, bytes, size);
		hash = (hash ^ block) * times;
	}
	return shifted(shifted(hash) * times);
}

void original_place(const struct original *original,
		    const struct original_key *key,
		    char out[ORIGINAL_PATH_BYTES])
{
	/* All images, one behind the other: of one a copy. */
	char *images = malloc(key->image.size + 1);

	if (!images)
		abort();
	memcpy(images, key->image.data, key->image.size);
	snprintf(out, PATH_BYTES, "%.300s/%llu/%llu/%llu/%llu",
		 original->directory,
		 (unsigned long long)original_hash(key->device.data,
						   key->device.size),
		 (unsigned long long)original_hash(images, key->image.size),
		 (unsigned long long)original_hash(key->spec.data,
						   key->spec.size),
		 (unsigned long long)original_hash(key->options.data,
						   key->options.size));
	free(images);
}

/* Up to the first that is there, then down again. */
static void make_directories(const char *path)
{
	char part[PATH_BYTES];
	size_t ends[16], n = 0;
	struct stat info;

	with(part, path, "");
	while (n < 16 && *part && stat(part, &info)) {
		char *slash = strrchr(part, '/');

		ends[n++] = strlen(part);
		if (!slash)
			break;
		*slash = '\0';
	}
	while (n) {
		snprintf(part, sizeof(part), "%.*s", (int)ends[--n], path);
		(void)mkdir(part, 0777);
	}
}

/* ---- Lock files -------------------------------------------------------------------- */

static int lock(const char *path)
{
	char whole[PATH_BYTES];
	int fd = open(with(whole, path, ".lock"), O_CREAT | O_EXCL, S_IWRITE);

	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static void unlock(const char *path)
{
	char whole[PATH_BYTES];

	(void)remove(with(whole, path, ".lock"));
}

/* ---- Numbers in decimal --------------------------------------------------------------- */

static void write_number(const char *path, uint64_t number)
{
	char text[24];
	const int size = snprintf(text, sizeof(text), "%llu",
				  (unsigned long long)number);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	if (fd < 0)
		return;
	(void)!write(fd, text, (size_t)size);
	close(fd);
}

static uint64_t read_number(const char *path)
{
	char text[8192] = "";
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return 0;
	(void)!read(fd, text, sizeof(text) - 1);
	close(fd);
	return strtoull(text, NULL, 10);
}

static void note_use(const char *stem)
{
	char path[PATH_BYTES];
	struct timespec now;

	with(path, stem, use_suffix);
	if (lock(path))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	write_number(path,
		     (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
	unlock(path);
}

/* ---- All files -------------------------------------------------------------------------- */

struct used {
	uint64_t when;
	char *path;
};

struct walk {
	struct used *used;
	size_t n, capacity;
	uint64_t sum;	  /* of all files */
	uint64_t entries; /* of .bin and .src */
};

static void add_used(struct walk *walk, const char *path)
{
	if (walk->n == walk->capacity) {
		walk->capacity = walk->capacity ? 2 * walk->capacity : 64;
		walk->used = realloc(walk->used,
				     walk->capacity * sizeof(struct used));
		if (!walk->used)
			abort();
	}
	walk->used[walk->n++] =
		(struct used){ read_number(path), strdup(path) };
}

static int ends_in(const char *path, const char *suffix)
{
	const size_t size = strlen(path), suffix_size = strlen(suffix);

	return size > suffix_size && !strcmp(path + size - suffix_size, suffix);
}

static void add_file(struct walk *walk, const char *path, int with_uses)
{
	struct stat info;

	if (with_uses) {
		if (strstr(path, use_suffix))
			add_used(walk, path);
		return;
	}
	if (stat(path, &info))
		return;
	walk->sum += (uint64_t)info.st_size;
	if (ends_in(path, ".bin") || ends_in(path, ".src"))
		walk->entries += (uint64_t)info.st_size;
}

/* What goes meanwhile ends it: -1. */
static int walk_tree(struct walk *walk, const char *directory, int with_uses)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	int err = dir ? 0 : -1;

	while (!err && (entry = readdir(dir))) {
		char path[PATH_BYTES];

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%.400s/%.100s", directory,
			 entry->d_name);
		if (entry->d_type == DT_DIR)
			err = walk_tree(walk, path, with_uses);
		else if (entry->d_type == DT_REG)
			add_file(walk, path, with_uses);
	}
	if (dir)
		closedir(dir);
	return err;
}

static void walk_end(struct walk *walk)
{
	while (walk->n)
		free(walk->used[--walk->n].path);
	free(walk->used);
	*walk = (struct walk){ 0 };
}

/* Until nothing goes meanwhile. */
static void walk_all(struct walk *walk, const char *directory, int with_uses)
{
	*walk = (struct walk){ 0 };
	while (walk_tree(walk, directory, with_uses))
		walk_end(walk);
}

uint64_t original_sum(const char *directory)
{
	struct walk walk;

	walk_all(&walk, directory, 0);
	return walk.entries;
}

/* ---- The sum ---------------------------------------------------------------------------- */

static void sum_path(const struct original *original, char out[PATH_BYTES])
{
	snprintf(out, PATH_BYTES, "%.400s/cache_size.txt", original->directory);
}

uint64_t original_noted(const char *directory)
{
	const struct original original = { .directory = directory };
	char path[PATH_BYTES];

	sum_path(&original, path);
	return read_number(path);
}

static void begin_sum(const struct original *original)
{
	char path[PATH_BYTES];
	struct walk walk;

	sum_path(original, path);
	if (!is_there(original->directory, ""))
		make_directories(original->directory);
	if (is_there(path, ""))
		return;
	if (lock(path)) {
		while (!is_there(path, ""))
			;
		return;
	}
	walk_all(&walk, original->directory, 0);
	write_number(path, walk.sum);
	unlock(path);
}

static uint64_t add_to_sum(const struct original *original, uint64_t added)
{
	char path[PATH_BYTES];
	uint64_t sum;

	sum_path(original, path);
	while (lock(path))
		;
	sum = read_number(path) + added;
	write_number(path, sum);
	unlock(path);
	return sum;
}

/* Over what others have added meanwhile. */
static void write_sum(const struct original *original, uint64_t before,
		      uint64_t after)
{
	char path[PATH_BYTES];
	uint64_t now;

	sum_path(original, path);
	while (lock(path))
		;
	if (original->lost && original->gained) {
		now = read_number(path);
		__atomic_fetch_add(now > before ? original->lost
						: original->gained,
				   now > before ? now - before : before - now,
				   __ATOMIC_RELAXED);
	}
	write_number(path, after);
	unlock(path);
}

/* ---- Evicting ----------------------------------------------------------------------------- */

static int by_use(const void *a, const void *b)
{
	const struct used *x = a, *y = b;

	return x->when < y->when ? -1 : x->when > y->when;
}

static int remove_part(const char *stem, const char *suffix, uint64_t *sum)
{
	char path[PATH_BYTES];
	uint64_t size;

	if (!is_there(stem, suffix))
		return 0;
	size = file_size(stem, suffix);
	if (remove(with(path, stem, suffix)))
		return -1;
	*sum -= size;
	return 0;
}

static void remove_entry(const char *use_path, uint64_t *sum)
{
	char stem[PATH_BYTES];

	snprintf(stem, sizeof(stem), "%.*s",
		 (int)(strstr(use_path, use_suffix) - use_path), use_path);
	while (is_there(stem, ".bin") || is_there(stem, ".src")) {
		if (lock(stem))
			continue;
		if (!remove_part(stem, ".src", sum))
			(void)remove_part(stem, ".bin", sum);
		unlock(stem);
	}
}

static void evict(const struct original *original, uint64_t sum)
{
	char path[PATH_BYTES];
	uint64_t left = sum;
	struct walk walk;

	with(path, original->directory, "_eviction_in_progress");
	if (lock(path))
		return;
	walk_all(&walk, original->directory, 1);
	if (walk.n)
		qsort(walk.used, walk.n, sizeof(struct used), by_use);
	for (size_t i = 0; i < walk.n; i++) {
		remove_entry(walk.used[i].path, &left);
		if (left <= original->bytes_max / 2)
			break;
	}
	walk_end(&walk);
	if (original->in_evict)
		original->in_evict();
	write_sum(original, sum, left);
	unlock(path);
}

/* ---- Storing ------------------------------------------------------------------------------- */

/* A stream gives its first bytes away with the first that it cannot hold. */
static void write_file(const char *path, struct iovec *pieces, int n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	if (fd < 0)
		return;
	(void)!writev(fd, pieces, n);
	close(fd);
}

static void write_binary(const char *stem, const void *binary, size_t size)
{
	uint64_t header[2] = { 1, size };
	char path[PATH_BYTES];
	struct iovec pieces[] = { { header, sizeof(header) },
				  { (void *)(uintptr_t)binary, size } };

	write_file(with(path, stem, ".bin"), pieces, 2);
}

static void write_source(const char *stem, const struct original_key *key)
{
	const struct original_bytes *fields[] = { &key->device, &key->options,
						  &key->spec, &key->image };
	struct iovec pieces[8];
	uint64_t sizes[4];
	char path[PATH_BYTES];

	for (int i = 0; i < 4; i++) {
		sizes[i] = fields[i]->size;
		pieces[2 * i] = (struct iovec){ &sizes[i], sizeof(sizes[i]) };
		pieces[2 * i + 1] =
			(struct iovec){ (void *)(uintptr_t)fields[i]->data,
					fields[i]->size };
	}
	write_file(with(path, stem, ".src"), pieces, 8);
}

/* The first n of which there is neither .bin nor .lock. */
static void choose_stem(const char *place, char stem[PATH_BYTES])
{
	unsigned n = 0;

	do {
		snprintf(stem, PATH_BYTES, "%.*s/%u", STEM_BYTES - 16, place,
			 n++);
	} while (is_there(stem, ".bin") || is_there(stem, ".lock"));
}

int original_put(const struct original *original,
		 const struct original_key *key, const void *binary,
		 size_t size)
{
	char place[PATH_BYTES], stem[PATH_BYTES];
	uint64_t added, sum;

	if (!size)
		return -1;
	if (original->bytes_max)
		begin_sum(original);
	/* Whose name ends in .lock, so that this never waits. */
	while (is_there(original->directory, "_eviction_in_progress"))
		;
	original_place(original, key, place);
	make_directories(place);
	choose_stem(place, stem);
	if (lock(stem))
		return -1;
	write_binary(stem, binary, size);
	write_source(stem, key);
	added = file_size(stem, ".src") + file_size(stem, ".bin");
	note_use(stem);
	unlock(stem);
	if (!original->bytes_max)
		return 0;
	sum = add_to_sum(original, added);
	if (sum > original->bytes_max)
		evict(original, sum);
	return 0;
}

/* ---- Looking up ------------------------------------------------------------------------------ */

static int is_field(FILE *file, const struct original_bytes *field)
{
	uint64_t size = 0;
	char *data;
	int same;

	(void)!fread(&size, sizeof(size), 1, file);
	data = size < SIZE_LIMIT ? calloc(1, size + 1) : NULL;
	if (!data)
		return 0;
	(void)!fread(data, 1, size, file);
	same = size == field->size && !memcmp(data, field->data, size);
	free(data);
	return same;
}

static int is_source_equal(const char *stem, const struct original_key *key)
{
	char path[PATH_BYTES];
	FILE *file = fopen(with(path, stem, ".src"), "rb");
	int same;

	if (!file)
		return 0;
	same = is_field(file, &key->device) && is_field(file, &key->options) &&
	       is_field(file, &key->spec) && is_field(file, &key->image);
	fclose(file);
	return same;
}

static void *read_binary(const char *stem, size_t *out_size)
{
	char path[PATH_BYTES], *data = NULL;
	FILE *file = fopen(with(path, stem, ".bin"), "rb");
	uint64_t header[2] = { 0, 0 };

	if (!file)
		return NULL;
	if (fread(header, sizeof(header), 1, file) == 1 &&
	    header[1] < SIZE_LIMIT)
		data = calloc(1, header[1] + 1);
	if (data && fread(data, 1, header[1], file) != header[1]) {
		free(data);
		data = NULL;
	}
	fclose(file);
	*out_size = header[1];
	return data;
}

void *original_get(const struct original *original,
		   const struct original_key *key, size_t *out_size)
{
	char place[PATH_BYTES], stem[PATH_BYTES];

	original_place(original, key, place);
	if (!is_there(place, ""))
		return NULL;
	for (unsigned n = 0;; n++) {
		snprintf(stem, sizeof(stem), "%.*s/%u", STEM_BYTES - 16, place,
			 n);
		if (!is_there(stem, ".bin") && !is_there(stem, ".src"))
			return NULL;
		if (!is_there(stem, ".lock") && is_source_equal(stem, key)) {
			/* Empty if it is short: no other is tried. */
			void *data = read_binary(stem, out_size);

			if (original->bytes_max)
				note_use(stem);
			return data;
		}
	}
}
