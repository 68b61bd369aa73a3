/* SPDX-License-Identifier: MIT */

/*
 * Disk caches: where they lie, how long they live, who shares them, and what
 * becomes of them.  What several processes do at a time is in tests/.
 */

#include "harness/harness.h"

#include "front/d3d12/helpers_test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DISK D3D12_SHADER_CACHE_MODE_DISK

static ID3D12Device9 *device;
static char *caches; /* KILN_DIR */
static char *home;   /* the working directory */

static int set_up(void **state)
{
	struct kiln_d3d12_device what;

	home = harness_directory();
	caches = harness_path(home, "kiln");
	setenv("KILN_DIR", caches, 1);
	kiln_d3d12_device_init(&what);
	what.adapter = (LUID){ 0x1234, 0x5 };
	what.driver_version = 0x1f0001;
	return kiln_d3d12_create_device(&what, &IID_ID3D12Device9,
					(void **)&device) != S_OK ||
	       chdir(home);
}

static int tear_down(void **state)
{
	free(caches);
	free(home);
	return ID3D12Device9_Release(device) != 0;
}

static Session *open_disk(UINT64 version)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, version);
	Session *session = NULL;

	assert_int_equal(create_session(device, &desc, &session), S_OK);
	return session;
}

/* Of the only program that has caches here; the caller's to free(). */
static char *program_directory(void)
{
	char *all = harness_path(caches, "d3d12"), *one = NULL;
	DIR *dir = opendir(all);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.') {
			assert_null(one);
			one = harness_path(all, entry->d_name);
		}
	closedir(dir);
	free(all);
	assert_non_null(one);
	return one;
}

/* How many files of a cache there are in a directory. */
static unsigned n_files(const char *directory, const char *name)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	unsigned n = 0;

	while (dir && (entry = readdir(dir)))
		n += !strncmp(entry->d_name, name, strlen(name)) &&
		     entry->d_name[strlen(name)] == '.';
	if (dir)
		closedir(dir);
	return n;
}

/* Each test begins with nothing on disk. */
static int forget_all(void **state)
{
	harness_remove(caches);
	return 0;
}

/* ---- Lives ------------------------------------------------------------------- */

static void a_value_outlives_its_session(void **state)
{
	Session *session = open_disk(1);

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(store_string(session, "key", "other"),
			 DXGI_ERROR_ALREADY_EXISTS);
	assert_int_equal(release(session), 0);
	session = open_disk(1);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(store_string(session, "key", "other"),
			 DXGI_ERROR_ALREADY_EXISTS);
	assert_int_equal(release(session), 0);
}

/* S58 */
static void another_version_waits_for_the_last_session_and_wipes(void **state)
{
	Session *session = open_disk(0), *other = NULL;
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1ull << 40);

	assert_int_equal(store_string(session, "key", "of zero"), S_OK);
	other = session;
	assert_int_equal(create_session(device, &desc, &other),
			 DXGI_ERROR_ALREADY_EXISTS);
	assert_null(other);
	assert_int_equal(release(session), 0);
	session = open_disk(1ull << 40);
	assert_int_equal(find_string(session, "key", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
	/* A, B, A: what was there is gone. */
	session = open_disk(0);
	assert_int_equal(find_string(session, "key", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
}

static void what_is_to_be_deleted_is_when_the_last_session_goes(void **state)
{
	Session *session = open_disk(1), *other = open_disk(1);
	char *directory;

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	ID3D12ShaderCacheSession_SetDeleteOnDestroy(session);
	assert_int_equal(release(session), 0);
	assert_int_equal(find_string(other, "key", "value"), S_OK);
	assert_int_equal(store_string(other, "more", "value"), S_OK);
	session = open_disk(1);
	assert_int_equal(release(other), 0);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(release(session), 0);
	directory = program_directory();
	assert_int_equal(n_files(directory, CACHE_NAME), 0);
	free(directory);
	session = open_disk(1);
	assert_int_equal(find_string(session, "key", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(store_string(session, "key", "new"), S_OK);
	assert_int_equal(release(session), 0);
	session = open_disk(1);
	assert_int_equal(find_string(session, "key", "new"), S_OK);
	assert_int_equal(release(session), 0);
}

static int die_after_deleting(unsigned index, void *arg)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *session;

	if (create_session(device, &desc, &session) ||
	    find_string(session, "key", "value"))
		return 1;
	ID3D12ShaderCacheSession_SetDeleteOnDestroy(session);
	_exit(0);
}

static void deleting_survives_who_asked_for_it(void **state)
{
	Session *session = open_disk(1);

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(release(session), 0);
	assert_int_equal(
		harness_processes(1, die_after_deleting, NULL, HARNESS_HANG_S),
		0);
	session = open_disk(1);
	assert_int_equal(find_string(session, "key", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
}

static void files_that_are_removed_are_an_empty_cache(void **state)
{
	Session *session = open_disk(1);

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	harness_remove(caches);
	assert_int_equal(store_string(session, "new", "value"), S_OK);
	assert_int_equal(find_string(session, "new", "value"), S_OK);
	assert_int_equal(find_string(session, "key", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
	harness_remove(caches);
	session = open_disk(1);
	assert_int_equal(find_string(session, "new", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
}

/* ---- Limits ------------------------------------------------------------------- */

static void the_quota_counts_keys_and_values(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *session;
	char key[] = "key.";

	desc.MaximumValueFileSizeBytes = 10 * (4 + 6);
	desc.MaximumInMemoryCacheEntries = 2;
	assert_int_equal(create_session(device, &desc, &session), S_OK);
	for (key[3] = '0'; key[3] <= '8'; key[3]++)
		assert_int_equal(store_string(session, key, "value."), S_OK);
	/* What is refused costs nothing. */
	for (int i = 0; i < 100; i++)
		assert_int_equal(store_string(session, "key1", "value."),
				 DXGI_ERROR_ALREADY_EXISTS);
	assert_int_equal(store_string(session, "key9", "value.1"),
			 DXGI_ERROR_CACHE_FULL);
	assert_int_equal(find_string(session, "key9", ""),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(store_string(session, "key9", "value."), S_OK);
	assert_int_equal(store_string(session, "a", "b"),
			 DXGI_ERROR_CACHE_FULL);
	for (key[3] = '0'; key[3] <= '9'; key[3]++)
		assert_int_equal(find_string(session, key, "value."), S_OK);
	assert_int_equal(release(session), 0);
	/* It is counted anew. */
	assert_int_equal(create_session(device, &desc, &session), S_OK);
	assert_int_equal(store_string(session, "a", "b"),
			 DXGI_ERROR_CACHE_FULL);
	assert_int_equal(release(session), 0);
	desc.MaximumValueFileSizeBytes += 2;
	assert_int_equal(create_session(device, &desc, &session), S_OK);
	assert_int_equal(store_string(session, "a", "b"), S_OK);
	assert_int_equal(store_string(session, "c", "d"),
			 DXGI_ERROR_CACHE_FULL);
	assert_int_equal(release(session), 0);
}

static void a_quota_of_one_byte_takes_nothing(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *session;

	desc.MaximumValueFileSizeBytes = 1;
	assert_int_equal(create_session(device, &desc, &session), S_OK);
	assert_int_equal(store_string(session, "a", "b"),
			 DXGI_ERROR_CACHE_FULL);
	assert_int_equal(find_string(session, "a", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
}

static void memory_limits_lose_nothing_that_is_on_disk(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *session;
	char key[] = "key.";

	desc.MaximumInMemoryCacheEntries = 1;
	desc.MaximumInMemoryCacheSizeBytes = 1;
	assert_int_equal(create_session(device, &desc, &session), S_OK);
	for (key[3] = 'a'; key[3] <= 'z'; key[3]++)
		assert_int_equal(store_string(session, key, key), S_OK);
	for (key[3] = 'a'; key[3] <= 'z'; key[3]++)
		assert_int_equal(find_string(session, key, key), S_OK);
	assert_int_equal(release(session), 0);
}

/* A driver's kernels are of megabytes, and fit the default limits. */
static void a_value_larger_than_memory_is_kept(void **state)
{
	Session *session = open_disk(1);
	UINT size = 3u << 20;
	char *value = malloc(size), *found = malloc(size);
	UINT found_size = size;

	assert_non_null(value);
	assert_non_null(found);
	memset(value, 'v', size);
	assert_int_equal(ID3D12ShaderCacheSession_StoreValue(session, "big", 3,
							     value, size),
			 S_OK);
	assert_int_equal(release(session), 0);
	session = open_disk(1);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "big", 3,
							    found, &found_size),
			 S_OK);
	assert_int_equal(found_size, size);
	assert_memory_equal(found, value, size);
	assert_int_equal(release(session), 0);
	free(value);
	free(found);
}

/* ---- Places -------------------------------------------------------------------- */

static void a_cache_is_named_by_identifier_adapter_and_driver(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *plain = open_disk(1), *versioned;
	char *directory = program_directory();
	struct stat info;

	desc.Flags = D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED;
	assert_int_equal(create_session(device, &desc, &versioned), S_OK);
	assert_int_equal(store_string(plain, "key", "plain"), S_OK);
	assert_int_equal(store_string(versioned, "key", "versioned"), S_OK);
	assert_int_equal(find_string(plain, "key", "plain"), S_OK);
	assert_true(n_files(directory, CACHE_NAME) > 0);
	assert_true(n_files(directory, CACHE_NAME "-0000000500001234-"
						  "00000000001f0001") > 0);
	assert_int_equal(stat(directory, &info), 0);
	assert_int_equal(info.st_mode & 07777, 0700);
	free(directory);
	assert_int_equal(release(plain), 0);
	assert_int_equal(release(versioned), 0);
}

static void nobody_knows_the_driver_of_an_unknown_device(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	ID3D12Device9 *unknown;
	void *out = &desc;

	assert_int_equal(kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
						  (void **)&unknown),
			 S_OK);
	desc.Flags = D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED;
	assert_int_equal(ID3D12Device9_CreateShaderCacheSession(
				 unknown, &desc, &IID_IUnknown, &out),
			 E_INVALIDARG);
	assert_ptr_equal(out, &desc);
	assert_int_equal(ID3D12Device9_Release(unknown), 0);
}

/* 0700 is not asked for there, and files are the user's alone all the same. */
static void a_cache_may_lie_in_the_working_directory(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	char *work = harness_path(home, "work #1"), *file;
	Session *here, *there = open_disk(1);
	struct stat info;

	desc.Flags = D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR;
	assert_int_equal(mkdir(work, 0755), 0);
	assert_int_equal(chdir(work), 0);
	assert_int_equal(create_session(device, &desc, &here), S_OK);
	assert_int_equal(chdir(home), 0);
	assert_int_equal(store_string(here, "key", "here"), S_OK);
	assert_int_equal(find_string(there, "key", ""), DXGI_ERROR_NOT_FOUND);
	file = harness_path(work, CACHE_NAME ".idx");
	assert_int_equal(stat(file, &info), 0);
	assert_int_equal(info.st_mode & 07777, 0600);
	assert_int_equal(stat(work, &info), 0);
	assert_int_equal(info.st_mode & 07777, 0755);
	assert_int_equal(release(here), 0);
	assert_int_equal(release(there), 0);
	assert_int_equal(chdir(work), 0);
	assert_int_equal(create_session(device, &desc, &here), S_OK);
	assert_int_equal(chdir(home), 0);
	assert_int_equal(find_string(here, "key", "here"), S_OK);
	assert_int_equal(release(here), 0);
	free(file);
	free(work);
}

/* What a cache's name leads to, put there by someone. */
enum trap { LINK, OTHERS_FILE, SECOND_NAME, OPEN_TO_ALL, N_TRAPS };

static void set_trap(enum trap trap, const char *path, const char *aim)
{
	if (trap == LINK)
		assert_int_equal(symlink(aim, path), 0);
	else if (trap == SECOND_NAME)
		assert_int_equal(link(aim, path), 0);
	else
		harness_write(path, "bait", 4);
	if (trap == OTHERS_FILE)
		assert_int_equal(chown(path, 12345, 12345), 0);
	if (trap == OPEN_TO_ALL)
		assert_int_equal(chmod(path, 0666), 0);
}

static void expect_access_denied_in(const char *work)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *session = NULL;

	desc.Flags = D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR;
	assert_int_equal(chdir(work), 0);
	assert_int_equal(create_session(device, &desc, &session),
			 E_ACCESSDENIED);
	assert_null(session);
	assert_int_equal(chdir(home), 0);
}

/* Anybody's directory, as /tmp is: files are looked at, one by one. */
static void a_working_directory_may_be_open_to_all(void **state)
{
	static const mode_t modes[] = { 01777, 0777, 0775, 02770 };
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	char *work = harness_path(home, "open to all"), *file;
	struct stat info;
	Session *session;

	desc.Flags = D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR;
	file = harness_path(work, CACHE_NAME ".idx");
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		assert_int_equal(mkdir(work, 0700), 0);
		assert_int_equal(chmod(work, modes[i]), 0);
		if (!geteuid())
			assert_int_equal(chown(work, 12345, 12345), 0);
		for (int time = 0; time < 2; time++) {
			assert_int_equal(chdir(work), 0);
			assert_int_equal(
				create_session(device, &desc, &session), S_OK);
			assert_int_equal(chdir(home), 0);
			assert_int_equal(store_string(session, "key", "value"),
					 time ? DXGI_ERROR_ALREADY_EXISTS
					      : S_OK);
			assert_int_equal(find_string(session, "key", "value"),
					 S_OK);
			assert_int_equal(release(session), 0);
		}
		assert_int_equal(stat(file, &info), 0);
		assert_int_equal(info.st_mode & 07777, 0600);
		harness_remove(work);
	}
	free(file);
	free(work);
}

static void what_others_put_into_a_working_directory_is_refused(void **state)
{
	static const char *const ends[] = { ".idx", ".lock" };
	char *work = harness_path(home, "trapped"), *aim, *path;
	char name[sizeof(CACHE_NAME) + 8];
	struct stat info;

	aim = harness_path(home, "precious");
	for (size_t i = 0; i < 2 * N_TRAPS; i++) {
		enum trap trap = (enum trap)(i % N_TRAPS);

		if (trap == OTHERS_FILE && geteuid())
			continue;
		snprintf(name, sizeof(name), "%s%s", CACHE_NAME,
			 ends[i / N_TRAPS]);
		assert_int_equal(mkdir(work, 0700), 0);
		assert_int_equal(chmod(work, 01777), 0);
		harness_write(aim, "precious", 8);
		path = harness_path(work, name);
		set_trap(trap, path, aim);
		expect_access_denied_in(work);
		assert_int_equal(lstat(path, &info), 0);
		assert_int_equal(stat(aim, &info), 0);
		assert_int_equal(info.st_size, 8);
		free(path);
		harness_remove(work);
	}
	free(aim);
	free(work);
}

/* A folder of ours, and it leads to another. */
static void a_wipe_follows_no_link_of_others(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	char *work = harness_path(home, "linked"), *aim, *path, *file;
	Session *session;

	desc.Flags = D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR;
	aim = harness_path(home, "precious files");
	file = harness_path(aim, "one");
	path = harness_path(work, CACHE_NAME ".quarantine");
	assert_int_equal(mkdir(work, 0700), 0);
	assert_int_equal(chmod(work, 01777), 0);
	assert_int_equal(mkdir(aim, 0700), 0);
	harness_write(file, "precious", 8);
	assert_int_equal(symlink(aim, path), 0);
	assert_int_equal(chdir(work), 0);
	assert_int_equal(create_session(device, &desc, &session), S_OK);
	assert_int_equal(chdir(home), 0);
	assert_int_equal(store_string(session, "key", "value"), S_OK);
	ID3D12ShaderCacheSession_SetDeleteOnDestroy(session);
	assert_int_equal(release(session), 0);
	assert_int_equal(access(file, F_OK), 0);
	harness_remove(work);
	harness_remove(aim);
	free(file);
	free(path);
	free(aim);
	free(work);
}

static void programs_share_under_a_name(void **state)
{
	Session *own = open_disk(1), *shared, *other;

	assert_int_equal(kiln_d3d12_share_caches("layer"), S_OK);
	shared = open_disk(1);
	assert_int_equal(kiln_d3d12_share_caches("player"), S_OK);
	other = open_disk(1);
	assert_int_equal(store_string(shared, "key", "shared"), S_OK);
	assert_int_equal(find_string(own, "key", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(find_string(other, "key", ""), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(shared), 0);
	assert_int_equal(kiln_d3d12_share_caches("layer"), S_OK);
	shared = open_disk(1);
	assert_int_equal(find_string(shared, "key", "shared"), S_OK);
	assert_int_equal(kiln_d3d12_share_caches(NULL), S_OK);
	assert_int_equal(release(shared), 0);
	assert_int_equal(release(other), 0);
	assert_int_equal(release(own), 0);
}

static void settings_that_forbid_files_leave_memory(void **state)
{
	static const char *const names[] = { "KILN_DISABLE", "KILN_READONLY" };
	Session *session;

	for (size_t i = 0; i < 2; i++) {
		setenv(names[i], "1", 1);
		session = open_disk(1);
		unsetenv(names[i]);
		assert_int_equal(store_string(session, "key", "value"), S_OK);
		assert_int_equal(find_string(session, "key", "value"), S_OK);
		assert_int_equal(release(session), 0);
		assert_int_not_equal(access(caches, F_OK), 0);
	}
}

static void a_directory_that_is_a_link_is_refused(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	char *elsewhere = harness_path(home, "elsewhere"), *directory;
	Session *session = open_disk(1);
	void *out = &desc;

	assert_int_equal(release(session), 0);
	directory = program_directory();
	harness_remove(directory);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	assert_int_equal(symlink(elsewhere, directory), 0);
	assert_int_equal(
		ID3D12Device9_CreateShaderCacheSession(
			device, &desc, &IID_ID3D12ShaderCacheSession, &out),
		E_ACCESSDENIED);
	assert_null(out);
	assert_int_equal(n_files(elsewhere, CACHE_NAME), 0);
	unlink(directory);
	free(directory);
	free(elsewhere);
}

static void an_index_that_is_a_link_is_refused(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	char *target = harness_path(home, "target"), *directory, *index;
	Session *session = open_disk(1);
	size_t size;
	char *text;

	assert_int_equal(release(session), 0);
	directory = program_directory();
	index = harness_path(directory, CACHE_NAME ".idx");
	harness_write(target, "precious", 8);
	unlink(index);
	assert_int_equal(symlink(target, index), 0);
	assert_int_equal(create_session(device, &desc, &session),
			 E_ACCESSDENIED);
	assert_null(session);
	text = harness_read(target, &size);
	assert_non_null(text);
	assert_string_equal(text, "precious");
	free(text);
	free(index);
	free(directory);
	free(target);
}

/* ---- What is found in the files ------------------------------------------------ */

/* What a foreign program left, and what a disk did. */
static void a_session_opens_whatever_lies_there(void **state)
{
	static const struct {
		const char *name;
		const char *suffix;
		size_t size;
	} left[] = {
		{ "an empty index", ".idx", 0 },
		{ "a short index", ".idx", 100 },
		{ "a long index of something else", ".idx", 100000 },
		{ "an empty lock", ".lock", 0 },
		{ "a lock with something in it", ".lock", 5000 },
		{ "a segment of something else", ".00000001.val", 5000 },
		{ "an empty segment", ".00000001.val", 0 },
	};
	char *junk = malloc(100000);

	assert_non_null(junk);
	memset(junk, 'j', 100000);
	for (size_t i = 0; i < sizeof(left) / sizeof(*left); i++) {
		Session *session = open_disk(1);
		char *directory = program_directory(), *file;
		char name[128];

		assert_int_equal(store_string(session, "old", "value"), S_OK);
		assert_int_equal(release(session), 0);
		snprintf(name, sizeof(name), CACHE_NAME "%s", left[i].suffix);
		file = harness_path(directory, name);
		unlink(file);
		harness_write(file, junk, left[i].size);
		session = open_disk(1);
		assert_true(find_string(session, "old", "value") != S_FALSE);
		assert_int_equal(store_string(session, "new", left[i].name),
				 S_OK);
		assert_int_equal(find_string(session, "new", left[i].name),
				 S_OK);
		assert_int_equal(release(session), 0);
		session = open_disk(1);
		assert_int_equal(find_string(session, "new", left[i].name),
				 S_OK);
		assert_int_equal(release(session), 0);
		free(file);
		free(directory);
		harness_remove(caches);
	}
	free(junk);
}

static void what_can_be_neither_used_nor_replaced_is_corrupt(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *session = open_disk(1);
	char *directory, *index, *inside;

	assert_int_equal(release(session), 0);
	directory = program_directory();
	index = harness_path(directory, CACHE_NAME ".idx");
	inside = harness_path(index, "inside");
	unlink(index);
	assert_int_equal(mkdir(index, 0700), 0);
	harness_write(inside, "", 0);
	assert_int_equal(create_session(device, &desc, &session),
			 DXGI_ERROR_CACHE_CORRUPT);
	assert_null(session);
	free(inside);
	free(index);
	free(directory);
}

/* S02: on disk a digest has one value, and of keys that share it one is kept. */
static void a_collision_is_told_as_such(void **state)
{
	Session *session = open_disk(1);
	unsigned n_kept = 0, n_collisions = 0;
	char key[16];

	ki_d3d12_digest_bits = 4;
	for (int i = 0; i < 100; i++) {
		HRESULT result;

		snprintf(key, sizeof(key), "key %d", i);
		result = store_string(session, key, key);
		n_kept += result == S_OK;
		n_collisions += result == DXGI_ERROR_CACHE_HASH_COLLISION;
		assert_int_equal(find_string(session, key, key), result);
	}
	ki_d3d12_digest_bits = 0;
	assert_int_equal(n_kept, 16);
	assert_int_equal(n_collisions, 84);
	assert_int_equal(release(session), 0);
}

/* ---- Others ---------------------------------------------------------------------- */

static int open_other_version(unsigned index, void *arg)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 2);
	Session *session;

	return create_session(device, &desc, &session) !=
	       DXGI_ERROR_ALREADY_EXISTS;
}

static int use_same_version(unsigned index, void *arg)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	Session *session;

	return create_session(device, &desc, &session) ||
	       find_string(session, "key", "value") ||
	       store_string(session, "key", "other") !=
		       DXGI_ERROR_ALREADY_EXISTS ||
	       store_string(session, "theirs", "value") || release(session);
}

static void processes_share_a_cache_of_one_version(void **state)
{
	Session *session = open_disk(1);

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(
		harness_processes(1, open_other_version, NULL, HARNESS_HANG_S),
		0);
	assert_int_equal(
		harness_processes(1, use_same_version, NULL, HARNESS_HANG_S),
		0);
	assert_int_equal(find_string(session, "theirs", "value"), S_OK);
	assert_int_equal(release(session), 0);
}

static int use_inherited(unsigned index, void *arg)
{
	Session *inherited = arg, *session;
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(DISK, 1);
	UINT size = 0;

	if (find_string(inherited, "key", "value") !=
		    DXGI_ERROR_NOT_CURRENTLY_AVAILABLE ||
	    ID3D12ShaderCacheSession_FindValue(inherited, "key", 3, NULL,
					       &size) !=
		    DXGI_ERROR_NOT_CURRENTLY_AVAILABLE ||
	    store_string(inherited, "key", "value") !=
		    DXGI_ERROR_NOT_CURRENTLY_AVAILABLE)
		return 1;
	if (create_session(device, &desc, &session) || session == inherited ||
	    find_string(session, "key", "value") || release(session))
		return 1;
	return release(inherited) != 0;
}

static void a_forked_child_opens_sessions_of_its_own(void **state)
{
	Session *session = open_disk(1);

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(
		harness_processes(1, use_inherited, session, HARNESS_HANG_S),
		0);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(release(session), 0);
}

#define TEST(name) cmocka_unit_test_setup(name, forget_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_value_outlives_its_session),
		TEST(another_version_waits_for_the_last_session_and_wipes),
		TEST(what_is_to_be_deleted_is_when_the_last_session_goes),
		TEST(deleting_survives_who_asked_for_it),
		TEST(files_that_are_removed_are_an_empty_cache),
		TEST(memory_limits_lose_nothing_that_is_on_disk),
		TEST(a_value_larger_than_memory_is_kept),
		TEST(a_cache_is_named_by_identifier_adapter_and_driver),
		TEST(nobody_knows_the_driver_of_an_unknown_device),
		TEST(a_cache_may_lie_in_the_working_directory),
		TEST(a_working_directory_may_be_open_to_all),
		TEST(what_others_put_into_a_working_directory_is_refused),
		TEST(a_wipe_follows_no_link_of_others),
		TEST(programs_share_under_a_name),
		TEST(settings_that_forbid_files_leave_memory),
		TEST(a_directory_that_is_a_link_is_refused),
		TEST(an_index_that_is_a_link_is_refused),
		TEST(a_session_opens_whatever_lies_there),
		TEST(what_can_be_neither_used_nor_replaced_is_corrupt),
		TEST(a_collision_is_told_as_such),
		TEST(processes_share_a_cache_of_one_version),
		TEST(a_forked_child_opens_sessions_of_its_own),
		TEST(the_quota_counts_keys_and_values),
		TEST(a_quota_of_one_byte_takes_nothing),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
