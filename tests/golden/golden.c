/* SPDX-License-Identifier: MIT */

/*
 * Stores that earlier versions wrote, read back: v1/KIND is a directory as
 * version 1 of each format left it.  A new format version adds a folder; an old
 * one is never written again.  Kinds whose records name inodes have none: what
 * is checked out has others.
 *
 *	golden FOLDER		test
 *	golden FOLDER KIND	write what is committed (once for each version)
 *	golden FOLDER pack
 */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/harness.h"

#include <kiln/pack.h>

#include "conform/kinds.h"

#define N_ENTRIES 6
#define BOUND	  ((uint64_t)1 << 20)

static const size_t sizes[N_ENTRIES] = { 8, 100, 1000, 3000, 5000, 20000 };

static const char *folder;

static struct ki_store_options options_of(const char *directory, uint32_t flags)
{
	return (struct ki_store_options){ .sys = &ki_sys_posix,
					  .directory = directory,
					  .bytes_max = BOUND,
					  .flags = flags };
}

static void copy_tree(const char *from, const char *to)
{
	DIR *dir = opendir(from);
	struct dirent *entry;

	if (!dir)
		fail_msg("%s is missing", from);
	(void)mkdir(to, 0700);
	while ((entry = readdir(dir))) {
		char *source = harness_path(from, entry->d_name);
		char *target = harness_path(to, entry->d_name);
		struct stat st;

		assert_int_equal(lstat(source, &st), 0);
		if (S_ISREG(st.st_mode)) {
			size_t size;
			char *bytes = harness_read(source, &size);

			assert_non_null(bytes);
			harness_write(target, bytes, size);
			free(bytes);
		} else if (*entry->d_name != '.') {
			copy_tree(source, target);
		}
		free(source);
		free(target);
	}
	closedir(dir);
}

static void read_back(const struct kind *kind, const char *directory,
		      uint32_t flags)
{
	struct ki_store_options options = options_of(directory, flags);
	struct kiln_verify_report report;
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_store_info info;
	struct kiln_entry entry;
	struct kiln_tier *tier;
	unsigned n_listed = 0;

	assert_int_equal(kind->open(&options, &tier), KILN_OK);
	for (unsigned n = 0; n < N_ENTRIES; n++)
		if (get_numbered(tier, n) != KILN_OK)
			fail_msg("%s: entry %u", kind->name, n);
	while (!tier->ops->list(tier, &cursor, &entry)) {
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		n_listed++;
	}
	assert_int_equal(n_listed, N_ENTRIES);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_entries, N_ENTRIES);
	assert_int_equal(report.n_damaged, 0);
	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_int_equal(info.format_version, 1);
	assert_int_equal(info.bytes_max, BOUND);
	if (!(flags & KILN_OPEN_READONLY)) {
		assert_int_equal(put_numbered(tier, 100, 2000, 0), KILN_OK);
		assert_int_equal(get_numbered(tier, 100), KILN_OK);
		assert_int_equal(put_numbered(tier, 1, 2000, 0), KILN_EXISTS);
	}
	tier->ops->close(tier);
}

/* S17 */
static void what_version_1_wrote_is_read(void **state)
{
	const struct kind *kind;

	for (kind = kinds; kind->name; kind++) {
		char *directory, *source;

		if (!kind->persists || kind->is_named_by_inode || kind->by_cost)
			continue;
		directory = harness_directory();
		source = harness_path(folder, kind->name);
		copy_tree(source, directory);
		read_back(kind, directory, KILN_OPEN_READONLY);
		read_back(kind, directory, 0);
		free(source);
		free(directory);
	}
}

/* ---- Packs ------------------------------------------------------------------------ */

#define N_PACKED 3

/* Of somebody whom nobody trusts. */
static const char *const secret_key =
	"kiln-secret:golden:Z2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2dnZ2c=";
static const char *const public_key =
	"golden:EqQVksi3wX1AWeeym2Ho/5bHQV8vgDNI8vAX4Fueodo=";

static struct kiln_metadata *metadata_of(unsigned n)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_string(metadata, KILN_META_FRONT, "golden");
	kiln_metadata_add_u64(metadata, KILN_META_STAGE, n);
	return metadata;
}

static void check_packed(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	struct kiln_blob *value, *metadata;
	uint64_t stage;

	assert_int_equal(tier->ops->get(tier, key, &value, &metadata), KILN_OK);
	assert_int_equal(kiln_blob_size(value), sizes[n]);
	assert_true(is_value_of(n, kiln_blob_data(value), sizes[n]));
	assert_int_equal(kiln_metadata_find_u64(kiln_blob_data(metadata),
						kiln_blob_size(metadata),
						KILN_META_STAGE, &stage),
			 KILN_OK);
	assert_int_equal(stage, n);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
}

/* S17 */
static void the_pack_that_version_1_wrote_is_read(void **state)
{
	/* Whoever checked it out may let a group write to it. */
	const struct kiln_pack_options options = {
		.size = sizeof(options),
		.flags = KILN_PACK_ANY_OWNER,
		.trusted_keys = &public_key,
		.n_trusted_keys = 1,
	};
	char *path = harness_path(folder, "pack/golden.pack");
	struct kiln_verify_report report;
	struct kiln_tier *tier;

	assert_int_equal(kiln_pack_open(path, &options, &tier), KILN_OK);
	for (unsigned n = 0; n < N_PACKED; n++)
		check_packed(tier, n);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_entries, N_PACKED);
	assert_int_equal(report.n_damaged, 0);
	tier->ops->close(tier);
	free(path);
}

static enum kiln_status pack_numbered(struct kiln_pack_writer *writer,
				      unsigned n)
{
	struct kiln_metadata *metadata = metadata_of(n);
	struct kiln_key *key = numbered_key(n);
	char *value = malloc(sizes[n]);
	enum kiln_status status;
	const void *bytes;
	size_t size;

	assert_non_null(value);
	fill_value(n, value, sizes[n]);
	status = kiln_metadata_bytes(metadata, &bytes, &size);
	if (!status)
		status = kiln_pack_add(writer, key, bytes, size, value,
				       sizes[n]);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
	free(value);
	return status;
}

static int write_pack(void)
{
	const struct kiln_pack_writer_options options = {
		.size = sizeof(options),
		.signing_keys = &secret_key,
		.n_signing_keys = 1,
	};
	char *path = harness_path(folder, "pack/golden.pack");
	struct kiln_pack_writer *writer;

	if (kiln_pack_create(path, &options, &writer))
		return 1;
	for (unsigned n = 0; n < N_PACKED; n++)
		if (pack_numbered(writer, n))
			return 1;
	free(path);
	return kiln_pack_finish(writer, NULL) ? 1 : 0;
}

static int write_store(const struct kind *kind)
{
	char *directory = harness_path(folder, kind->name);
	struct ki_store_options options = options_of(directory, 0);
	struct kiln_tier *tier;

	if (kind->open(&options, &tier))
		return 1;
	for (unsigned n = 0; n < N_ENTRIES; n++)
		if (put_numbered(tier, n, sizes[n], 0))
			return 1;
	tier->ops->close(tier);
	free(directory);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_version_1_wrote_is_read),
		cmocka_unit_test(the_pack_that_version_1_wrote_is_read),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: golden FOLDER [KIND]\n");
		return 2;
	}
	folder = argv[1];
	if (argc > 2 && !strcmp(argv[2], "pack"))
		return write_pack();
	if (argc > 2)
		return kind_find(argv[2]) ? write_store(kind_find(argv[2])) : 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
