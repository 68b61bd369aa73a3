/* SPDX-License-Identifier: MIT */

/* What a sound pack does, and which files are packs to read. */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/pack/pack_test.h"

static void what_is_written_is_read(void **state)
{
	static const unsigned rows[] = { 0, 1, 45, 46, 47, 200 };
	char *directory = harness_directory();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *path = write_pack(directory, rows[i]);
		struct kiln_tier *tier = NULL;

		assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
		assert_int_equal(count_hits(tier, rows[i]), rows[i]);
		assert_int_equal(get(tier, rows[i]), KILN_MISS);
		assert_int_equal(count_listed(tier), rows[i]);
		tier->ops->close(tier);
		assert_int_equal(remove(path), 0);
		free(path);
	}
	harness_remove(directory);
	free(directory);
}

static void entries_are_listed_in_the_order_of_adding(void **state)
{
	enum { N = 100 };
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_tier *tier = NULL;
	struct kiln_entry entry;

	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	for (unsigned n = 0; n < N; n++) {
		struct kiln_key *key = key_of(n);
		size_t size;
		const void *record = kiln_key_record(key, &size);

		assert_int_equal(tier->ops->list(tier, &cursor, &entry),
				 KILN_OK);
		assert_int_equal(kiln_blob_size(entry.record), size);
		assert_memory_equal(kiln_blob_data(entry.record), record, size);
		assert_memory_equal(entry.digest, kiln_key_digest(key),
				    KILN_DIGEST_BYTES);
		assert_int_equal(entry.value_size, size_of(n));
		kiln_entry_fini(&entry);
		kiln_key_free(key);
	}
	assert_int_equal(tier->ops->list(tier, &cursor, &entry), KILN_END);
	tier->ops->close(tier);
	harness_remove(directory);
	free(path);
	free(directory);
}

static unsigned n_files(const char *directory)
{
	DIR *dir = opendir(directory);
	unsigned n = 0;

	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* ---- Writing --------------------------------------------------------------------- */

static void a_pack_has_its_name_when_it_is_whole(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");
	struct kiln_pack_writer *writer = NULL;
	mode_t mask = umask(0);
	struct stat st;

	(void)umask(mask);

	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(add(writer, 1, 100), KILN_OK);
	assert_int_equal(stat(path, &st), -1);
	kiln_pack_abandon(writer);
	assert_int_equal(n_files(directory), 0);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(add(writer, 1, 100), KILN_OK);
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	assert_int_equal(n_files(directory), 1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644 & ~mask);
	kiln_pack_abandon(NULL);
	harness_remove(directory);
	free(path);
	free(directory);
}

static int begin_and_die(unsigned index, void *path)
{
	struct kiln_pack_writer *writer;

	if (kiln_pack_create(path, NULL, &writer) || add(writer, 1, 100))
		return 1;
	_exit(0);
}

/* That of one who lives stays, and what only looks like one. */
static void what_a_dead_writer_left_goes_with_the_next(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");
	char *note = harness_path(directory, "test.pack.note");
	char *other = harness_path(directory, "test.pack2");
	struct kiln_pack_writer *living, *writer;

	harness_write(note, "", 0);
	assert_int_equal(
		harness_processes(1, begin_and_die, other, HARNESS_HANG_S), 0);
	assert_int_equal(
		harness_processes(1, begin_and_die, path, HARNESS_HANG_S), 0);
	assert_int_equal(n_files(directory), 3);
	assert_int_equal(kiln_pack_create(path, NULL, &living), KILN_OK);
	assert_int_equal(n_files(directory), 3);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(n_files(directory), 4);
	assert_int_equal(kiln_pack_finish(living, NULL), KILN_OK);
	kiln_pack_abandon(writer);
	assert_int_equal(n_files(directory), 3);
	harness_remove(directory);
	free(other);
	free(note);
	free(path);
	free(directory);
}

static void a_file_of_that_name_goes_only_on_request(void **state)
{
	const struct kiln_pack_writer_options replace = {
		.size = sizeof(replace),
		.flags = KILN_PACK_REPLACE,
	};
	char *directory = harness_directory();
	char *path = write_pack(directory, 3);
	struct kiln_pack_writer *writer = NULL;
	struct kiln_tier *tier = NULL;

	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_EXISTS);
	assert_int_equal(kiln_pack_create(path, &replace, &writer), KILN_OK);
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	assert_int_equal(count_hits(tier, 3), 0);
	tier->ops->close(tier);
	assert_int_equal(remove(path), 0);
	/* It came while the pack was written. */
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	harness_write(path, "mine", 4);
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_EXISTS);
	assert_int_equal(n_files(directory), 1);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void what_belongs_to_one_machine_is_refused(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");
	struct kiln_metadata *hidden = kiln_metadata_new();
	struct kiln_key *local = kiln_key_new(), *key = key_of(1);
	struct kiln_pack_writer *writer = NULL;
	struct kiln_pack_report report;
	const void *bytes;
	size_t size;

	kiln_key_add_local(local, "path", "/home", 5);
	assert_int_equal(kiln_key_finish(local), KILN_OK);
	kiln_metadata_add_u64(hidden, KILN_META_FLAGS, KILN_ENTRY_HIDDEN);
	assert_int_equal(kiln_metadata_bytes(hidden, &bytes, &size), KILN_OK);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(kiln_pack_add(writer, local, NULL, 0, "v", 1),
			 KILN_E_INVALID);
	assert_int_equal(kiln_pack_add(writer, key, bytes, size, "v", 1),
			 KILN_E_INVALID);
	assert_int_equal(kiln_pack_add(writer, key, "\1", 1, "v", 1),
			 KILN_E_FORMAT);
	assert_int_equal(kiln_pack_add(writer, key, NULL, 0, NULL, 1),
			 KILN_E_INVALID);
	assert_int_equal(kiln_pack_add(writer, key, NULL, 0, "v", 1), KILN_OK);
	assert_int_equal(kiln_pack_add(writer, key, NULL, 0, "w", 1),
			 KILN_EXISTS);
	assert_int_equal(kiln_pack_finish(writer, &report), KILN_OK);
	assert_int_equal(report.n_entries, 1);
	kiln_metadata_free(hidden);
	kiln_key_free(local);
	kiln_key_free(key);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void metadata_of_user_and_machine_stay_behind(void **state)
{
	static const struct {
		enum kiln_metadata_field field;
		int stays;
	} rows[] = {
		{ KILN_META_CREATED, 1 },
		{ KILN_META_BUILD_TIME, 1 },
		{ KILN_META_STAGE, 1 },
		{ KILN_META_DIRECTORY, 0 },
		{ KILN_META_OPTIONS, 1 },
		{ KILN_META_ENVIRONMENT, 0 },
		{ KILN_META_APPLICATION, 0 },
		{ KILN_META_NAMESPACE, 1 },
		{ KILN_META_BUILD_LOG, 1 },
		{ KILN_META_KERNELS, 1 },
		{ KILN_META_SOURCES, 0 },
		{ KILN_META_FRONT, 1 },
		{ KILN_META_SIGNATURE, 0 },
		{ (enum kiln_metadata_field)99, 0 },
	};
	const size_t n_rows = sizeof(rows) / sizeof(rows[0]);
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");
	struct kiln_metadata *all = kiln_metadata_new();
	struct kiln_pack_writer *writer = NULL;
	struct kiln_blob *blob = NULL, *metadata = NULL;
	struct kiln_key *key = key_of(1);
	struct kiln_tier *tier = NULL;
	const void *bytes, *data;
	size_t size, data_size;

	for (size_t i = 0; i < n_rows; i++)
		kiln_metadata_add_u64(all, rows[i].field, i);
	assert_int_equal(kiln_metadata_bytes(all, &bytes, &size), KILN_OK);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(kiln_pack_add(writer, key, bytes, size, "v", 1),
			 KILN_OK);
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	assert_int_equal(tier->ops->get(tier, key, &blob, &metadata), KILN_OK);
	for (size_t i = 0; i < n_rows; i++)
		assert_int_equal(kiln_metadata_find(kiln_blob_data(metadata),
						    kiln_blob_size(metadata),
						    rows[i].field, &data,
						    &data_size),
				 rows[i].stays ? KILN_OK : KILN_MISS);
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	tier->ops->close(tier);
	kiln_metadata_free(all);
	kiln_key_free(key);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void entries_of_another_user_version_are_misses(void **state)
{
	static const struct {
		uint64_t wanted;
		enum kiln_status status;
	} rows[] = { { 0, KILN_OK }, { 7, KILN_OK }, { 8, KILN_MISS } };
	const struct kiln_pack_writer_options of_seven = {
		.size = sizeof(of_seven),
		.user_version = 7,
	};
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");

	write_pack_as(path, 2, &of_seven);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kiln_pack_options options = {
			.size = sizeof(options),
			.user_version = rows[i].wanted,
		};
		struct kiln_store_info info;
		struct kiln_tier *tier = NULL;

		assert_int_equal(kiln_pack_open(path, &options, &tier),
				 KILN_OK);
		assert_int_equal(get(tier, 1), rows[i].status);
		assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
		assert_string_equal(info.kind, "pack");
		assert_int_equal(info.user_version, 7);
		assert_int_equal(info.n_entries, 2);
		tier->ops->close(tier);
	}
	harness_remove(directory);
	free(path);
	free(directory);
}

/* A value larger than all lines of the cache. */
static void a_value_may_be_larger_than_the_cache(void **state)
{
	const size_t size = (size_t)5 << 20;
	char *directory = harness_directory();
	char *path = harness_path(directory, "test.pack");
	struct kiln_pack_writer *writer = NULL;
	struct kiln_blob *blob = NULL;
	struct kiln_key *key = key_of(1);
	struct kiln_tier *tier = NULL;
	uint8_t *value = malloc(size);

	assert_non_null(value);
	(void)value_of(1, size, value);
	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	assert_int_equal(kiln_pack_add(writer, key, NULL, 0, value, size),
			 KILN_OK);
	assert_int_equal(add(writer, 2, size_of(2)), KILN_OK);
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	assert_int_equal(kiln_blob_size(blob), size);
	assert_memory_equal(kiln_blob_data(blob), value, size);
	assert_int_equal(get(tier, 2), KILN_OK);
	kiln_blob_unref(blob);
	tier->ops->close(tier);
	free(value);
	kiln_key_free(key);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* ---- Whose file it is -------------------------------------------------------------- */

static enum kiln_status try_open(const char *path, uint32_t flags)
{
	const struct kiln_pack_options options = { .size = sizeof(options),
						   .flags = flags };
	struct kiln_tier *tier = NULL;
	enum kiln_status status = kiln_pack_open(path, &options, &tier);

	if (!status) {
		assert_int_equal(count_hits(tier, 3), 3);
		tier->ops->close(tier);
	}
	return status;
}

/* S37 */
static void a_file_that_others_can_write_is_refused(void **state)
{
	static const struct {
		mode_t mode;
		enum kiln_status status;
	} rows[] = {
		{ 0600, KILN_OK },	{ 0444, KILN_OK },
		{ 0644, KILN_OK },	{ 0646, KILN_E_OWNER },
		{ 0602, KILN_E_OWNER }, { 0777, KILN_E_OWNER },
	};
	char *directory = harness_directory();
	char *path = write_pack(directory, 3);
	char *link = harness_path(directory, "link.pack");

	assert_int_equal(symlink(path, link), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(chmod(path, rows[i].mode), 0);
		assert_int_equal(try_open(path, 0), rows[i].status);
		assert_int_equal(try_open(link, 0), rows[i].status);
		assert_int_equal(try_open(path, KILN_PACK_ANY_OWNER), KILN_OK);
	}
	harness_remove(directory);
	free(link);
	free(path);
	free(directory);
}

/* S37: whoever can put a link there has a file of this user's loaded, such as one
   that came by mail. */
static void a_file_that_everyone_can_replace_is_refused(void **state)
{
	static const struct {
		mode_t mode;
		enum kiln_status status;
	} rows[] = {
		{ 0700, KILN_OK },
		{ 0755, KILN_OK },
		{ 01777, KILN_OK }, /* only owners replace, as in /tmp */
		{ 0777, KILN_E_OWNER },
	};
	char *directory = harness_directory();
	char *path = write_pack(directory, 3);
	char *open = harness_path(directory, "open");
	char *link = harness_path(open, "link.pack");

	assert_int_equal(mkdir(open, 0700), 0);
	assert_int_equal(symlink(path, link), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(chmod(open, rows[i].mode), 0);
		assert_int_equal(try_open(link, 0), rows[i].status);
		assert_int_equal(try_open(link, KILN_PACK_ANY_OWNER), KILN_OK);
		assert_int_equal(try_open(path, 0), KILN_OK);
	}
	harness_remove(directory);
	free(link);
	free(open);
	free(path);
	free(directory);
}

/* S37 */
static void a_file_of_somebody_else_is_refused(void **state)
{
	char *directory = harness_directory();
	char *path = write_pack(directory, 3);
	char *link = harness_path(directory, "link.pack");

	if (chown(path, 12345, (gid_t)-1)) {
		harness_remove(directory);
		free(directory);
		free(link);
		free(path);
		HARNESS_LEAVE_OUT("only root can give a file away");
	}
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(try_open(path, 0), KILN_E_OWNER);
	assert_int_equal(try_open(link, 0), KILN_E_OWNER);
	assert_int_equal(try_open(path, KILN_PACK_ANY_OWNER), KILN_OK);
	harness_remove(directory);
	free(link);
	free(path);
	free(directory);
}

static void what_is_no_file_is_refused(void **state)
{
	char *directory = harness_directory();
	char *pipe = harness_path(directory, "pipe");
	char *missing = harness_path(directory, "missing");

	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_int_equal(try_open(pipe, 0), KILN_E_IO);
	assert_int_equal(try_open(directory, 0), KILN_E_IO);
	assert_int_equal(try_open(missing, 0), KILN_E_IO);
	harness_remove(directory);
	free(missing);
	free(pipe);
	free(directory);
}

/* ---- Descriptors ------------------------------------------------------------------- */

static void a_guest_leaves_no_descriptor_open(void **state)
{
	const struct kiln_pack_options guest = { .size = sizeof(guest),
						 .flags = KILN_PACK_GUEST };
	char *directory = harness_directory();
	char *path = write_pack(directory, 50);
	struct kiln_tier *tier = NULL;
	unsigned n_before = n_files("/proc/self/fd");

	assert_int_equal(kiln_pack_open(path, &guest, &tier), KILN_OK);
	assert_int_equal(n_files("/proc/self/fd"), n_before);
	assert_int_equal(count_hits(tier, 50), 50);
	assert_int_equal(n_files("/proc/self/fd"), n_before);
	tier->ops->close(tier);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void a_guest_finds_its_pack_from_any_directory(void **state)
{
	enum { MANY = 3000 };
	const struct kiln_pack_options guest = { .size = sizeof(guest),
						 .flags = KILN_PACK_GUEST };
	char *directory = harness_directory(), before[4096];
	char *path = write_pack(directory, MANY);
	struct kiln_tier *tier = NULL;

	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(directory), 0);
	assert_int_equal(kiln_pack_open("test.pack", &guest, &tier), KILN_OK);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(count_hits(tier, MANY), MANY);
	tier->ops->close(tier);
	assert_int_equal(chdir(before), 0);
	harness_remove(directory);
	free(path);
	free(directory);
}

static void a_guest_takes_no_other_file_for_its_own(void **state)
{
	enum { MANY = 3000 };
	const struct kiln_pack_options guest = { .size = sizeof(guest),
						 .flags = KILN_PACK_GUEST };
	const struct kiln_pack_writer_options replace = {
		.size = sizeof(replace),
		.flags = KILN_PACK_REPLACE,
	};
	char *directory = harness_directory();
	char *path = write_pack(directory, MANY);
	struct kiln_tier *tier = NULL;
	unsigned n_misses = 0;

	assert_int_equal(kiln_pack_open(path, &guest, &tier), KILN_OK);
	write_pack_as(path, MANY, &replace);
	for (unsigned n = 0; n < MANY; n++) {
		enum kiln_status status = get(tier, n);

		/* What was read before is there. */
		assert_true(!status || status == KILN_E_IO);
		n_misses += status == KILN_E_IO;
	}
	assert_true(n_misses > MANY / 2);
	tier->ops->close(tier);
	harness_remove(directory);
	free(path);
	free(directory);
}

/* ---- Under a kiln ------------------------------------------------------------------- */

static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *out_result)
{
	unsigned *n_builds = arg;

	(*n_builds)++;
	assert_int_equal(kiln_blob_copy("built", 5, &out_result->blob),
			 KILN_OK);
}

/* S59: with the keys of one driver; those of another are misses. */
static void a_first_start_with_a_pack_builds_nothing(void **state)
{
	enum { MANY = 120, OTHERS = 10 };
	char *directory = harness_directory();
	char *path = write_pack(directory, MANY);
	struct kiln_options options;
	struct kiln_tier *tier = NULL;
	struct kiln *kiln = NULL;
	unsigned n_builds = 0;

	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	kiln_options_init(&options);
	options.tiers = &tier;
	options.n_tiers = 1;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (unsigned n = 0; n < MANY + OTHERS; n++) {
		struct kiln_build_result result;
		struct kiln_key *key = key_of(n);

		kiln_build_result_init(&result);
		assert_int_equal(
			kiln_get_or_build(kiln, key, build, &n_builds, &result),
			KILN_OK);
		assert_int_equal(n_builds, n < MANY ? 0 : n - MANY + 1);
		kiln_build_result_fini(&result);
		kiln_key_free(key);
	}
	kiln_close(kiln);
	harness_remove(directory);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(entries_are_listed_in_the_order_of_adding),
		cmocka_unit_test(a_pack_has_its_name_when_it_is_whole),
		cmocka_unit_test(what_a_dead_writer_left_goes_with_the_next),
		cmocka_unit_test(a_file_of_that_name_goes_only_on_request),
		cmocka_unit_test(what_belongs_to_one_machine_is_refused),
		cmocka_unit_test(metadata_of_user_and_machine_stay_behind),
		cmocka_unit_test(entries_of_another_user_version_are_misses),
		cmocka_unit_test(a_value_may_be_larger_than_the_cache),
		cmocka_unit_test(a_file_that_others_can_write_is_refused),
		cmocka_unit_test(a_file_that_everyone_can_replace_is_refused),
		cmocka_unit_test(a_file_of_somebody_else_is_refused),
		cmocka_unit_test(what_is_no_file_is_refused),
		cmocka_unit_test(a_guest_leaves_no_descriptor_open),
		cmocka_unit_test(a_guest_finds_its_pack_from_any_directory),
		cmocka_unit_test(a_guest_takes_no_other_file_for_its_own),
		cmocka_unit_test(a_first_start_with_a_pack_builds_nothing),
	};

	return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
