/* SPDX-License-Identifier: MIT */

/*
 * The files of the native store.  The input changes a sound store: after a byte
 * of options (bit 0: values are read, not mapped),
 *
 *	file:u8 offset:u24 n:u8 bytes[n]
 *
 * overwrites n bytes of a file (index, then segments by number, then sources),
 * and n = 0 cuts the file off there.  What must hold besides surviving: a value or
 * source that is found is the right one.
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fuzz/scratch.h"
#include "key/key.h"
#include "store/store.h"

#define N_ENTRIES 12
#define FILES_MAX 16
#define BOUND	  ((uint64_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct file {
	char name[256];
	uint8_t *data;
	size_t size;
};

/* The sound store. */
static struct file files[FILES_MAX];
static size_t n_files;
static struct kiln_key *keys[N_ENTRIES];

static uint8_t values[N_ENTRIES][40000];

static struct kiln_kept source = { "kernel void k() {}", 18, { 0 }, 0 };
static struct kiln_kept another = { "kernel void l() {}", 18, { 0 }, 0 };

static size_t value_size(unsigned n)
{
	return n == 5 ? sizeof(values[n]) : 100 * n;
}

static struct kiln_tier *open_store(uint32_t flags)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = scratch_directory(),
					    .bytes_max = BOUND,
					    .flags = flags };
	struct kiln_tier *tier;

	return ki_store_log_open(&options, &tier) ? NULL : tier;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->name,
		      ((const struct file *)b)->name);
}

static void remember(const char *name)
{
	struct file *file = &files[n_files++];
	char path[4400];
	void *bytes;

	snprintf(file->name, sizeof(file->name), "%s", name);
	snprintf(path, sizeof(path), "%s/%s", scratch_directory(), name);
	if (ki_read_file(&ki_sys_posix, path, 64 << 20, &bytes, &file->size))
		abort();
	file->data = bytes;
}

static void make_sound_store(void)
{
	struct kiln_tier *tier = open_store(0);
	struct dirent *entry;
	DIR *dir;

	if (!tier)
		abort();
	for (unsigned n = 0; n < N_ENTRIES; n++) {
		keys[n] = kiln_key_new();
		kiln_key_add(keys[n], "n", &n, sizeof(n));
		memset(values[n], (int)n + 1, sizeof(values[n]));
		if (kiln_key_finish(keys[n]) ||
		    tier->ops->put(tier, keys[n], "m", 1, values[n],
				   value_size(n), 0))
			abort();
	}
	ki_blake2b(source.data, source.size, source.digest);
	if (tier->ops->keep_sources(tier, &source, 1))
		abort();
	tier->ops->close(tier);
	dir = opendir(scratch_directory());
	while ((entry = readdir(dir)))
		if (n_files < FILES_MAX && (strstr(entry->d_name, ".idx") ||
					    strstr(entry->d_name, ".val")))
			remember(entry->d_name);
	closedir(dir);
	/* The index comes first, the sources last. */
	qsort(files, n_files, sizeof(*files), by_name);
	if (!strstr(files[n_files - 2].name, ".idx"))
		abort();
	struct file index = files[n_files - 2];
	memmove(files + 1, files, (n_files - 2) * sizeof(*files));
	files[0] = index;
}

static void write_sound_store(void)
{
	char path[4400];

	scratch_empty(scratch_directory());
	for (size_t i = 0; i < n_files; i++) {
		snprintf(path, sizeof(path), "%s/%s", scratch_directory(),
			 files[i].name);
		scratch_write(path, files[i].data, files[i].size);
	}
}

static void change_one(struct ki_reader *reader)
{
	const struct file *file = &files[ki_read_u8(reader) % n_files];
	size_t offset = ki_read_u8(reader);
	size_t n;
	const void *bytes;
	char path[4400];
	int fd;

	offset |= (size_t)ki_read_u16(reader) << 8;
	n = ki_read_u8(reader);
	if (n > reader->size)
		n = reader->size;
	bytes = ki_read(reader, n);
	offset %= file->size;
	snprintf(path, sizeof(path), "%s/%s", scratch_directory(), file->name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		abort();
	if (!n ? ftruncate(fd, (off_t)offset)
	       : pwrite(fd, bytes, n, (off_t)offset) < 0)
		abort();
	close(fd);
}

static void check_get(struct kiln_tier *tier, unsigned n)
{
	struct kiln_blob *blob, *metadata;

	if (tier->ops->get(tier, keys[n], &blob, &metadata))
		return;
	if (kiln_blob_size(blob) != value_size(n) ||
	    memcmp(kiln_blob_data(blob), values[n], value_size(n)) != 0 ||
	    kiln_blob_size(metadata) != 1)
		abort();
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
}

static void check_source(struct kiln_tier *tier)
{
	struct kiln_blob *blob;

	if (tier->ops->find_source(tier, source.digest, &blob))
		return;
	if (kiln_blob_size(blob) != source.size ||
	    memcmp(kiln_blob_data(blob), source.data, source.size) != 0)
		abort();
	kiln_blob_unref(blob);
}

static void use(uint32_t flags)
{
	struct kiln_tier *tier = open_store(flags);
	struct kiln_cursor cursor = { { 0 } };
	static const struct kiln_gc_options gc = { .age_max_s = 1 << 30 };
	struct kiln_verify_report report;
	struct kiln_gc_report cleaned;
	struct kiln_store_info info;
	struct kiln_entry entry;
	unsigned n;

	if (!tier)
		return;
	for (n = 0; n < N_ENTRIES; n++)
		check_get(tier, n);
	check_source(tier);
	(void)tier->ops->keep_sources(tier, &another, 1);
	check_source(tier);
	for (n = 0; n < 1000 && !tier->ops->list(tier, &cursor, &entry); n++) {
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
	}
	(void)tier->ops->info(tier, &info);
	(void)tier->ops->put(tier, keys[3], "m", 1, values[3], value_size(3),
			     KILN_PUT_REPLACE);
	(void)tier->ops->remove(tier, keys[4]);
	(void)tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL, &report);
	(void)tier->ops->gc(tier, &gc, NULL, NULL, &cleaned);
	for (n = 0; n < N_ENTRIES; n++)
		check_get(tier, n);
	tier->ops->close(tier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ki_reader reader = ki_reader(data, size);
	uint32_t flags = ki_read_u8(&reader) & 1
				 ? KILN_OPEN_COPY | KILN_OPEN_VERIFY_ALWAYS
				 : 0;

	if (!n_files)
		make_sound_store();
	write_sound_store();
	while (reader.size && !reader.failed)
		change_one(&reader);
	use(flags);
	return 0;
}
