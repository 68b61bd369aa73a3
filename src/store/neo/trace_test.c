/* SPDX-License-Identifier: MIT */

/* What the debug keys of Intel's driver have written. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "key/key.h"
#include "store/neo/helpers_test.h"

static struct kiln_key *make_key(void)
{
	const uint8_t number[8] = { 1, 2, 0xff };
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "kind", "levelzero module 1");
	kiln_key_add_string(key, "options", "-cl-fast-relaxed-math -DX=1");
	kiln_key_add_digest(key, "il", "spir-v", 6);
	kiln_key_add(key, "constant 3", number, sizeof(number));
	kiln_key_add_absent(key, "include ./a.h");
	kiln_key_add_local(key, "place", "here", 4);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

/* Where key's trace is, the extension in place of the entry's. */
static char *trace_path(struct kiln_tier *tier, const struct kiln_key *key,
			const char *extension)
{
	char name[KILN_NEO_NAME_BYTES], file[64];
	const char *base;

	ki_neo_name_key(neo_of(tier), key, NULL, 0, name);
	base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	snprintf(file, sizeof(file), "%.16s%s", base, extension);
	return harness_path(neo_of(tier)->directory, file);
}

static void each_key_leaves_its_attributes(void **state)
{
	static const char *const layouts[] = { "flat", "tree" };

	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory(), *trace, *input, *text,
		     *bytes, *wanted;
		struct kiln_blob *blob = NULL;
		struct kiln_key *key = make_key();
		struct kiln_tier *tier;
		struct stat st;
		size_t size;

		setenv("BinaryCacheTrace", "1", 1);
		tier = open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);
		unsetenv("BinaryCacheTrace");
		assert_int_equal(tier->ops->get(tier, key, &blob, NULL),
				 KILN_MISS);
		trace = trace_path(tier, key, ".trace");
		input = trace_path(tier, key, ".input");
		text = harness_read(trace, NULL);
		assert_non_null(text);
		assert_true(asprintf(&wanted,
				     "---- input ----\n"
				     "<%s>\n"
				     "---- kind ----\n"
				     "levelzero module 1\n"
				     "---- options ----\n"
				     "-cl-fast-relaxed-math -DX=1\n"
				     "---- il ----\n"
				     "  size=6\n"
				     "  blake2b=",
				     input) > 0);
		assert_memory_equal(text, wanted, strlen(wanted));
		assert_non_null(strstr(text, "\n---- constant 3 ----\n"
					     "  hex=0102ff0000000000\n"
					     "---- include ./a.h ----\n"
					     "  absent\n"
					     "---- place ----\n"
					     "here\n"
					     "  local\n"));
		/* The very bytes that the name is a hash of. */
		bytes = harness_read(input, &size);
		assert_int_equal(size, key->record.size);
		assert_memory_equal(bytes, key->record.data, size);
		assert_int_equal(stat(trace, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
		/* Neither counts as an entry. */
		assert_int_equal(tier->ops->put(tier, key, NULL, 0, "v", 1, 0),
				 KILN_OK);
		assert_int_equal(sum_of(directory), 1);
		tier->ops->close(tier);
		kiln_key_free(key);
		free(wanted);
		free(bytes);
		free(text);
		free(trace);
		free(input);
		free(directory);
	}
}

static void nobody_who_only_reads_or_did_not_ask_leaves_a_trace(void **state)
{
	static const struct {
		const char *trace;
		const char *read_keys; /* NULL: unset */
		uint32_t flags;
		int is_there;
	} rows[] = {
		{ "0", NULL, 0, 0 },
		{ "1", NULL, KILN_OPEN_READONLY, 0 },
		{ "1", "0", 0, 0 },
		{ "1", "1", 0, 1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory(), *trace;
		struct kiln_blob *blob = NULL;
		struct kiln_key *key = make_key();
		struct kiln_tier *tier = open_at(directory, 0);

		assert_int_equal(put(tier, 1, 10), KILN_OK);
		tier->ops->close(tier);
		setenv("BinaryCacheTrace", rows[i].trace, 1);
		if (rows[i].read_keys)
			setenv("NEOReadDebugKeys", rows[i].read_keys, 1);
		tier = open_with(&ki_sys_posix, directory, 0, rows[i].flags,
				 NULL);
		unsetenv("NEOReadDebugKeys");
		unsetenv("BinaryCacheTrace");
		assert_int_equal(tier->ops->get(tier, key, &blob, NULL),
				 KILN_MISS);
		trace = trace_path(tier, key, ".trace");
		assert_int_equal(exists(trace), rows[i].is_there);
		tier->ops->close(tier);
		kiln_key_free(key);
		free(trace);
		free(directory);
	}
}

/* In the driver's own form, with what its trace leaves out. */
static void a_drivers_build_is_traced_as_the_driver_does(void **state)
{
	static const uint32_t ids[] = { 3, 17 };
	static const uint64_t values[] = { 1, 0xabc };
	static const uint8_t table[] = { 1, 0xfe };
	static const char before_input[] = "---- igcRevision ----\n"
					   "ebb8aabb\n"
					   "  libSize=1000\n"
					   "  libMTime=-5\n"
					   "---- input ----\n"
					   "<";
	static const char after_input[] = "---- options ----\n"
					  "-w\n"
					  "---- internal options ----\n"
					  "\n"
					  "---- specialization constants ----\n"
					  "  specIds= 3 11\n"
					  "  specValues= 1 abc\n"
					  "---- platform ----\n"
					  "  eProductFamily=33\n"
					  "  ePCHProductFamily=1\n"
					  "  eDisplayCoreFamily=2\n"
					  "  eRenderCoreFamily=3\n"
					  "  ePlatformType=4\n"
					  "  usDeviceID=39497\n"
					  "  usRevId=6\n"
					  "  usDeviceID_PCH=7\n"
					  "  usRevId_PCH=8\n"
					  "  eGTType=9\n"
					  "---- feature table ----\n"
					  "01.fe.\n"
					  "  hash=77\n"
					  "---- workaround table ----\n"
					  "  hash=88\n"
					  "---- ipVersion ----\n"
					  "  ipVersion=12\n";
	struct kiln_neo_fields fields = {
		.size = sizeof(fields),
		.release = KILN_NEO_24_26,
		.igc_revision = "ebb8aabb",
		.igc_revision_size = 8,
		.igc_library_size = 1000,
		.igc_library_mtime = -5,
		.input = "spir-v\0more",
		.input_size = 11,
		.options = "-w",
		.options_size = 2,
		.constant_ids = ids,
		.constant_values = values,
		.n_constants = 2,
		.platform = { 33, 1, 2, 3, 4, 39497, 6, 7, 8, 9 },
		.feature_hash = 77,
		.workaround_hash = 88,
		.ip_version = 12,
		.feature_table = table,
		.feature_table_size = sizeof(table),
	};
	char *directory = harness_directory(), *path, *text, *wanted, *input;
	char name[64];
	size_t size;

	assert_int_equal(kiln_neo_trace(&fields, directory), KILN_OK);
	snprintf(name, sizeof(name), "%016llx.input",
		 (unsigned long long)kiln_neo_hash(&fields));
	path = harness_path(directory, name);
	input = harness_read(path, &size);
	assert_int_equal(size, 11);
	assert_memory_equal(input, fields.input, size);
	assert_true(asprintf(&wanted, "%s%s>\n%s", before_input, path,
			     after_input) > 0);
	strcpy(strrchr(path, '.'), ".trac");
	strcat(path, "e");
	text = harness_read(path, NULL);
	assert_non_null(text);
	assert_string_equal(text, wanted);
	/* Tables are shown, not hashed. */
	fields.feature_table = NULL;
	snprintf(name, sizeof(name), "%016llx",
		 (unsigned long long)kiln_neo_hash(&fields));
	assert_non_null(strstr(path, name));
	fields.size--;
	assert_int_equal(kiln_neo_trace(&fields, directory), KILN_E_INVALID);
	fields.size++;
	assert_int_equal(kiln_neo_trace(&fields, "/nowhere/at/all"), KILN_E_IO);
	free(wanted);
	free(text);
	free(input);
	free(path);
	free(directory);
}

/* ---- Messages -------------------------------------------------------------------- */

/* What `body` writes to the standard error, from malloc(). */
static char *hear(void (*body)(struct kiln_tier *tier, const char *directory),
		  const char *directory)
{
	char *path = harness_path(directory, "heard"), *text;
	struct kiln_tier *tier;
	int fd, kept;

	setenv("PrintDebugMessages", "1", 1);
	(void)fflush(stderr);
	kept = dup(2);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(kept >= 0 && fd >= 0 && dup2(fd, 2) == 2);
	close(fd);
	tier = open_at(directory, 10000);
	unsetenv("PrintDebugMessages");
	body(tier, directory);
	tier->ops->close(tier);
	(void)dup2(kept, 2);
	close(kept);
	text = harness_read(path, NULL);
	assert_non_null(text);
	unlink(path);
	free(path);
	return text;
}

static void store_one(struct kiln_tier *tier, const char *directory)
{
	(void)put(tier, 1, 100);
}

static void store_into_a_directory_in_the_way(struct kiln_tier *tier,
					      const char *directory)
{
	char *config = harness_path(directory, "config.file");

	if (mkdir(config, 0700))
		abort();
	(void)put(tier, 1, 100);
	(void)rmdir(config);
	free(config);
}

static void store_while_others_have_the_lock(struct kiln_tier *tier,
					     const char *directory)
{
	char *config = harness_path(directory, "config.file");
	int fd = open(config, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || flock(fd, LOCK_EX))
		abort();
	(void)put(tier, 1, 100);
	close(fd);
	free(config);
}

static int open_but_not_new(const struct ki_sys *sys, const char *path,
			    unsigned flags, unsigned mode)
{
	if (flags & KI_OPEN_EXCLUSIVE && strstr(path, "/cl_cache."))
		return -ENOSPC;
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

static int rename_nothing(const struct ki_sys *sys, const char *from,
			  const char *to)
{
	return -EIO;
}

static void store_where_nothing_can_be_made(struct kiln_tier *tier,
					    const char *directory)
{
	static struct ki_sys sys;

	sys = ki_sys_posix;
	sys.open = open_but_not_new;
	neo_of(tier)->sys = &sys;
	(void)put(tier, 1, 100);
}

static void store_where_nothing_can_be_renamed(struct kiln_tier *tier,
					       const char *directory)
{
	static struct ki_sys sys;

	sys = ki_sys_posix;
	sys.rename_new = rename_nothing;
	neo_of(tier)->sys = &sys;
	(void)put(tier, 1, 100);
}

/* Of kiln's file, with the times that it had: a medium that forgets. */
static void find_damage(struct kiln_tier *tier, const char *directory)
{
	struct timespec times[2];
	struct stat st;
	char *path;
	int fd;

	(void)put(tier, 1, 100);
	path = path_of(tier, 1);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) || pwrite(fd, "x", 1, 50) != 1)
		abort();
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	if (futimens(fd, times))
		abort();
	close(fd);
	(void)get(tier, 1);
	free(path);
}

static void failures_are_printed_in_the_drivers_words(void **state)
{
	static const struct {
		void (*body)(struct kiln_tier *tier, const char *directory);
		const char *words; /* NULL: no failure */
	} rows[] = {
		{ store_one, NULL },
		{ store_into_a_directory_in_the_way,
		  "Open config file failed! errno: " },
		{ store_while_others_have_the_lock,
		  "Lock config file failed! errno: " },
		{ store_where_nothing_can_be_made,
		  "Creating temporary file failed! errno: 28\n" },
		{ store_where_nothing_can_be_renamed,
		  "Rename temp file failed! errno: 5\n" },
		{ find_damage, ": damaged, removed\n" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory(), *text, *place;
		char pid[64];

		text = hear(rows[i].body, directory);
		assert_true(asprintf(&place,
				     "NEO_CACHE_PERSISTENT is enabled. Cache "
				     "is located in: %s\n",
				     directory) > 0);
		assert_memory_equal(text, place, strlen(place));
		snprintf(pid, sizeof(pid),
			 "\nPID %d [Cache failure]: ", getpid());
		if (rows[i].words) {
			assert_non_null(strstr(text, pid));
			assert_non_null(strstr(text, rows[i].words));
		} else {
			assert_string_equal(text, place);
		}
		free(place);
		free(text);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_key_leaves_its_attributes),
		cmocka_unit_test(
			nobody_who_only_reads_or_did_not_ask_leaves_a_trace),
		cmocka_unit_test(a_drivers_build_is_traced_as_the_driver_does),
		cmocka_unit_test(failures_are_printed_in_the_drivers_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
