/* SPDX-License-Identifier: MIT */

/*
 * A directory of Intel's compute runtime that is shared with others.  A sound
 * one is made; the input changes it: after a byte of options (bit 0: as a guest
 * reads, bit 1: a tree)
 *
 *	0 offset:u16 n:u8 bytes[n]	in kiln.records; n = 0: cuts it off
 *	1 n:u8 bytes[n]			config.file
 *	2 n:u8 name[n]			a record of that name, well formed, which
 *					has inode, size and time of a file outside
 *	3 n:u8 name[n]			a driver's entry of that name
 *
 * What must hold besides surviving: a value that is found is the right one, all
 * that is listed can be removed, and the file outside stays.
 */

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
#include "store/neo/neo.h"

#define N_ENTRIES 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kiln_key *keys[N_ENTRIES + 1]; /* the last one: nobody's */
static char store[4200], outside[4200];

static size_t value_size(unsigned n)
{
	return 50 + 100 * n;
}

static void make_keys(void)
{
	for (unsigned n = 0; n <= N_ENTRIES; n++) {
		keys[n] = kiln_key_new();
		kiln_key_add(keys[n], "n", &n, sizeof(n));
		if (kiln_key_finish(keys[n]))
			abort();
	}
	snprintf(store, sizeof(store), "%s/store", scratch_directory());
	snprintf(outside, sizeof(outside), "%s/outside.cl_cache",
		 scratch_directory());
}

static struct kiln_tier *open_store(uint8_t options)
{
	struct ki_store_options how = {
		.sys = &ki_sys_posix,
		.directory = store,
		.bytes_max = 1 << 20,
		.flags = options & 1 ? KILN_OPEN_GUEST : 0,
		.name = options & 2 ? "tree" : "flat",
	};
	struct kiln_tier *tier;

	return ki_store_neo_open(&how, &tier) ? NULL : tier;
}

static enum kiln_status put(struct kiln_tier *tier, unsigned n)
{
	uint8_t value[50 + 100 * N_ENTRIES];

	memset(value, (int)n + 1, sizeof(value));
	return tier->ops->put(tier, keys[n], "m", 1, value, value_size(n), 0);
}

static void make_sound(uint8_t options)
{
	struct kiln_tier *tier;

	scratch_empty(scratch_directory());
	scratch_write(outside, "outside", 7);
	tier = open_store(options);
	if (!tier)
		abort();
	for (unsigned n = 0; n < N_ENTRIES; n++)
		if (put(tier, n))
			abort();
	tier->ops->close(tier);
}

static void change_records(const char *path, size_t offset, const void *bytes,
			   size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (!n ? ftruncate(fd, (off_t)offset)
	       : pwrite(fd, bytes, n, (off_t)offset) < 0)
		abort();
	close(fd);
}

static void append_record(uint8_t options, const char *name)
{
	struct kiln_tier *tier = open_store(options);
	struct ki_neo *neo = (struct ki_neo *)tier;
	struct ki_neo_account account;
	struct ki_record record = { .name = name,
				    .record = keys[N_ENTRIES]->record.data,
				    .record_size = keys[N_ENTRIES]->record.size,
				    .value_size = 7 };
	struct stat st;

	if (!tier || stat(outside, &st))
		return;
	memcpy(record.digest, keys[N_ENTRIES]->digest, KILN_DIGEST_BYTES);
	record.inode = st.st_ino;
	record.file_size = 7;
	record.mtime_ns =
		(int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	if (!ki_neo_account_begin(neo, 0, &account)) {
		(void)ki_records_append(neo->records, &record);
		(void)ki_neo_account_end(neo, &account);
	}
	tier->ops->close(tier);
}

/* Of a name that a directory can have. */
static void plant(const char *name)
{
	char path[4600];

	if (!*name || strchr(name, '/') || !strcmp(name, ".") ||
	    !strcmp(name, ".."))
		return;
	snprintf(path, sizeof(path), "%s/%s", store, name);
	if (access(path, F_OK))
		scratch_write(path, name, strlen(name));
}

static void change_one(uint8_t options, struct ki_reader *reader)
{
	const unsigned what = ki_read_u8(reader) % 4;
	size_t offset = what ? 0 : ki_read_u16(reader), n = ki_read_u8(reader);
	char path[4600], name[256];
	const void *bytes;

	n = n < reader->size ? n : reader->size;
	bytes = ki_read(reader, n);
	snprintf(path, sizeof(path), "%s/%s", store,
		 what ? "config.file" : "kiln.records");
	if (n)
		memcpy(name, bytes, n);
	name[n] = '\0';
	if (what == 0)
		change_records(path, offset, bytes, n);
	else if (what == 1)
		scratch_write(path, name, n);
	else if (what == 2)
		append_record(options, name);
	else
		plant(name);
}

static void check_get(struct kiln_tier *tier, unsigned n)
{
	struct kiln_blob *blob, *metadata;
	const uint8_t *data;

	if (tier->ops->get(tier, keys[n], &blob, &metadata))
		return;
	data = kiln_blob_data(blob);
	if (n == N_ENTRIES || kiln_blob_size(blob) != value_size(n) ||
	    data[0] != n + 1 || data[value_size(n) - 1] != n + 1)
		abort();
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
}

static void remove_what_is_listed(struct kiln_tier *tier)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;

	for (unsigned n = 0;
	     n < 1000 && !tier->ops->list(tier, &cursor, &entry); n++) {
		struct kiln_key *key;

		if (!ki_neo_is_inside(entry.file) ||
		    kiln_key_from_record(kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key))
			abort();
		if (entry.is_foreign && tier->ops->remove(tier, key))
			abort();
		kiln_key_free(key);
		kiln_entry_fini(&entry);
	}
}

static void use(uint8_t options)
{
	static const struct kiln_gc_options gc = { .bytes_max = 2000 };
	struct kiln_tier *tier = open_store(options);
	struct kiln_verify_report report;
	struct kiln_gc_report cleaned;
	struct kiln_store_info info;
	unsigned n;

	if (!tier)
		return;
	for (n = 0; n <= N_ENTRIES; n++)
		check_get(tier, n);
	(void)tier->ops->verify(tier, 0, NULL, NULL, &report);
	(void)tier->ops->info(tier, &info);
	for (n = 0; n < N_ENTRIES; n++)
		(void)put(tier, n);
	remove_what_is_listed(tier);
	(void)tier->ops->remove(tier, keys[N_ENTRIES]);
	(void)tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL, &report);
	for (n = 0; n <= N_ENTRIES; n++)
		check_get(tier, n);
	(void)tier->ops->gc(tier, &gc, NULL, NULL, &cleaned);
	if (tier->ops->wipe(tier) || access(outside, F_OK))
		abort();
	tier->ops->close(tier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ki_reader reader = ki_reader(data, size);
	const uint8_t options = ki_read_u8(&reader);

	if (!*keys)
		make_keys();
	make_sound(options);
	while (reader.size && !reader.failed)
		change_one(options, &reader);
	use(options);
	return 0;
}
