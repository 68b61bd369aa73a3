/* SPDX-License-Identifier: MIT */

/*
 * One disk cache and many at it: threads, processes, ten thousand keys, evictions
 * between two calls, and hands that remove its files.
 */

#include "harness/harness.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define COBJMACROS
#include <kiln/front/d3d12.h>

typedef ID3D12ShaderCacheSession Session;

#define N_CROWD 8

static ID3D12Device9 *device;
static char *directory;

static D3D12_SHADER_CACHE_SESSION_DESC desc_of(D3D12_SHADER_CACHE_MODE mode)
{
	static uint32_t number; /* each test has caches of its own */

	return (D3D12_SHADER_CACHE_SESSION_DESC){
		.Identifier = { .Data1 = ++number }, .Mode = mode, .Version = 1
	};
}

static Session *open_session(const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	Session *session = NULL;

	if (ID3D12Device9_CreateShaderCacheSession(
		    device, desc, &IID_ID3D12ShaderCacheSession,
		    (void **)&session))
		return NULL;
	return session;
}

static HRESULT store(Session *session, uint32_t key, const void *value,
		     UINT size)
{
	return ID3D12ShaderCacheSession_StoreValue(session, &key, sizeof(key),
						   value, size);
}

static HRESULT find(Session *session, uint32_t key, void *value, UINT *size)
{
	return ID3D12ShaderCacheSession_FindValue(session, &key, sizeof(key),
						  value, size);
}

static HRESULT is_there(Session *session, uint32_t key)
{
	UINT size = 0;

	return find(session, key, NULL, &size);
}

/* ---- One key ---------------------------------------------------------------------- */

struct race {
	D3D12_SHADER_CACHE_SESSION_DESC desc;
	Session *session; /* of threads; processes open their own */
	uint32_t key;
	_Atomic unsigned n_stored, n_refused;
};

static int store_in_a_thread(unsigned index, void *arg)
{
	struct race *race = arg;
	HRESULT result = store(race->session, race->key, &index, sizeof(index));

	race->n_stored += result == S_OK;
	race->n_refused += result == DXGI_ERROR_ALREADY_EXISTS;
	return 0;
}

static void of_threads_that_store_one_key_one_succeeds(void **state)
{
	for (int mode = 0; mode < 2; mode++) {
		struct race race = { .desc = desc_of(
					     (D3D12_SHADER_CACHE_MODE)mode) };

		race.session = open_session(&race.desc);
		assert_non_null(race.session);
		for (race.key = 1; race.key <= 50; race.key++)
			harness_threads(N_CROWD, store_in_a_thread, &race);
		assert_int_equal(race.n_stored, 50);
		assert_int_equal(race.n_refused, 50 * (N_CROWD - 1));
		ID3D12ShaderCacheSession_Release(race.session);
	}
}

/* Which of the keys were stored by this one; all others were there. */
static int store_in_a_process(unsigned index, void *arg)
{
	const struct race *race = arg;
	Session *session = open_session(&race->desc);
	uint32_t winner = 0;
	UINT size;
	int wrong = !session;

	for (uint32_t key = 1; !wrong && key <= 50; key++) {
		HRESULT result = store(session, key, &index, sizeof(index));

		size = sizeof(winner);
		wrong = (result != S_OK &&
			 result != DXGI_ERROR_ALREADY_EXISTS) ||
			find(session, key, &winner, &size) != S_OK ||
			size != sizeof(winner) || winner >= N_CROWD ||
			(result == S_OK && winner != index);
	}
	if (session)
		ID3D12ShaderCacheSession_Release(session);
	return wrong;
}

static void of_processes_that_store_one_key_one_succeeds(void **state)
{
	struct race race = { .desc = desc_of(D3D12_SHADER_CACHE_MODE_DISK) };

	assert_int_equal(harness_processes(N_CROWD, store_in_a_process, &race,
					   HARNESS_HANG_S),
			 0);
}

/* ---- Versions ----------------------------------------------------------------------- */

static void a_version_that_comes_again_is_empty(void **state)
{
	static const UINT64 versions[] = { 1, 2, 1, 0, 1, UINT64_MAX, 1 };
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);

	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		Session *session;

		desc.Version = versions[i];
		session = open_session(&desc);
		assert_non_null(session);
		assert_int_equal(is_there(session, 1), DXGI_ERROR_NOT_FOUND);
		assert_int_equal(store(session, 1, "value", 5), S_OK);
		ID3D12ShaderCacheSession_Release(session);
		session = open_session(&desc);
		assert_int_equal(is_there(session, 1), S_OK);
		ID3D12ShaderCacheSession_Release(session);
	}
}

/* ---- Many keys ---------------------------------------------------------------------- */

#define N_KEYS	      10000
#define KEY_BYTES_MAX 300

/* Its number, then anything; keys of one length differ in one place at least. */
static UINT make_key(uint32_t number, unsigned char key[KEY_BYTES_MAX])
{
	uint64_t seed = number % 10;
	UINT size = (UINT)(4 + harness_random(&seed) % (KEY_BYTES_MAX - 3));

	for (UINT i = 0; i < size; i++)
		key[i] = (unsigned char)harness_random(&seed);
	memcpy(key + size - 4, &number, 4);
	return size;
}

static void ten_thousand_keys_are_told_apart(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);
	Session *session = open_session(&desc);
	unsigned char key[KEY_BYTES_MAX];
	uint32_t found;

	assert_non_null(session);
	for (uint32_t i = 0; i < N_KEYS; i++)
		assert_int_equal(ID3D12ShaderCacheSession_StoreValue(
					 session, key, make_key(i, key), &i, 4),
				 S_OK);
	ID3D12ShaderCacheSession_Release(session);
	session = open_session(&desc);
	for (uint32_t i = 0; i < N_KEYS; i++) {
		UINT size = make_key(i, key), found_size = 4;

		assert_int_equal(
			ID3D12ShaderCacheSession_FindValue(session, key, size,
							   &found, &found_size),
			S_OK);
		assert_int_equal(found, i);
	}
	ID3D12ShaderCacheSession_Release(session);
}

/* ---- S58: a size, then as many bytes ------------------------------------------------- */

#define N_VALUES    64
#define N_LOOKS	    4000
#define VALUE_BYTES 2000

struct looks {
	Session *session;
	_Atomic unsigned n_whole;
	_Atomic int is_wiped; /* by others, meanwhile */
};

/* Values of one key are of many sizes, as each is stored again once it is gone;
   each byte says of which size it is one. */
static UINT make_value(uint64_t *seed, unsigned char value[VALUE_BYTES])
{
	UINT size = (UINT)(1 + harness_random(seed) % VALUE_BYTES);

	memset(value, (int)(size % 251), size);
	return size;
}

static int is_whole(const unsigned char *value, UINT size)
{
	for (UINT i = 0; i < size; i++)
		if (value[i] != size % 251)
			return 0;
	return 1;
}

/* 1: torn, or another one than its size was of. */
static int look(struct looks *looks, uint32_t key)
{
	unsigned char value[VALUE_BYTES];
	UINT told = 0, size;
	HRESULT result = find(looks->session, key, NULL, &told);

	if (result != S_OK)
		return result != DXGI_ERROR_NOT_FOUND;
	size = told;
	result = find(looks->session, key, value, &size);
	if (result != S_OK)
		return !looks->is_wiped || (result != DXGI_ERROR_NOT_FOUND &&
					    result != DXGI_ERROR_MORE_DATA);
	looks->n_whole++;
	return (size != told && !looks->is_wiped) || !is_whole(value, size);
}

/* What a store answers to who comes in the midst of wipes again and again. */
static int is_busy(HRESULT result)
{
	return result == DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
}

static int store_or_look(unsigned index, void *arg)
{
	struct looks *looks = arg;
	unsigned char value[VALUE_BYTES];
	uint64_t seed = index;
	unsigned wrong = 0;

	for (unsigned i = 0; i < N_LOOKS; i++) {
		uint32_t key = (uint32_t)(harness_random(&seed) % N_VALUES);

		if (index % 2) {
			wrong += (unsigned)look(looks, key);
		} else {
			UINT size = make_value(&seed, value);
			HRESULT result =
				store(looks->session, key, value, size);

			wrong += result != S_OK &&
				 result != DXGI_ERROR_ALREADY_EXISTS &&
				 !(looks->is_wiped && is_busy(result));
		}
	}
	return (int)wrong;
}

static void a_value_that_is_evicted_meanwhile_is_whole(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_MEMORY);
	struct looks looks = { 0 };
	uint64_t seed = 99;

	desc.MaximumInMemoryCacheEntries = N_VALUES / 4;
	looks.session = open_session(&desc);
	assert_non_null(looks.session);
	/* Something to find, should those who look be through first. */
	for (uint32_t key = 0; key < N_VALUES / 4; key++) {
		unsigned char value[VALUE_BYTES];
		UINT size = make_value(&seed, value);

		assert_int_equal(store(looks.session, key, value, size), S_OK);
	}
	assert_int_equal(harness_threads(4, store_or_look, &looks), 0);
	assert_true(looks.n_whole);
	ID3D12ShaderCacheSession_Release(looks.session);
}

static int clear_again_and_again(unsigned index, void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 40; i++)
		if (ID3D12Device9_ShaderCacheControl(
			    device,
			    D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED,
			    D3D12_SHADER_CACHE_CONTROL_FLAG_CLEAR))
			return 1;
	return 0;
}

static int store_look_or_clear(unsigned index, void *arg)
{
	return index == 4 ? clear_again_and_again(index, arg)
			  : store_or_look(index, arg);
}

static void a_value_that_is_cleared_meanwhile_is_whole_or_gone(void **state)
{
	for (int mode = 0; mode < 2; mode++) {
		D3D12_SHADER_CACHE_SESSION_DESC desc =
			desc_of((D3D12_SHADER_CACHE_MODE)mode);
		struct looks looks = { .session = open_session(&desc),
				       .is_wiped = 1 };

		assert_non_null(looks.session);
		assert_int_equal(
			harness_threads(5, store_look_or_clear, &looks), 0);
		ID3D12ShaderCacheSession_Release(looks.session);
	}
}

/* ---- Files that are removed by hand ---------------------------------------------------- */

/* Those with `part` in their names; the directories stay. */
static unsigned remove_files(const char *path, const char *part)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	unsigned n = 0;

	while (dir && (entry = readdir(dir))) {
		char *name = harness_path(path, entry->d_name);
		struct stat info;

		if (entry->d_name[0] != '.' && !lstat(name, &info)) {
			if (S_ISDIR(info.st_mode))
				n += remove_files(name, part);
			else if (strstr(entry->d_name, part))
				n += !remove(name);
		}
		free(name);
	}
	if (dir)
		closedir(dir);
	return n;
}

static void check_value(Session *session, uint32_t key, const char *value)
{
	char found[16];
	UINT size = sizeof(found);

	assert_int_equal(find(session, key, found, &size), S_OK);
	assert_int_equal(size, strlen(value));
	assert_memory_equal(found, value, size);
}

static void files_may_be_removed_while_it_is_open(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);
	Session *session = open_session(&desc);

	assert_int_equal(store(session, 1, "old", 3), S_OK);
	assert_true(remove_files(directory, "") >= 3);
	/* Memory answers until somebody looks at the files. */
	assert_int_equal(store(session, 1, "newer", 5), S_OK);
	check_value(session, 1, "newer");
	ID3D12ShaderCacheSession_Release(session);
	session = open_session(&desc);
	check_value(session, 1, "newer");
	ID3D12ShaderCacheSession_Release(session);
}

static void files_may_be_removed_while_it_is_closed(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);
	Session *session = open_session(&desc);

	assert_int_equal(store(session, 1, "old", 3), S_OK);
	ID3D12ShaderCacheSession_Release(session);
	assert_true(remove_files(directory, "") >= 3);
	session = open_session(&desc);
	assert_int_equal(is_there(session, 1), DXGI_ERROR_NOT_FOUND);
	assert_int_equal(store(session, 1, "newer", 5), S_OK);
	ID3D12ShaderCacheSession_Release(session);
	session = open_session(&desc);
	assert_int_equal(is_there(session, 1), S_OK);
	ID3D12ShaderCacheSession_Release(session);
}

static void one_file_may_be_removed(const char *part, int is_open)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_DISK);
	Session *session = open_session(&desc);

	assert_int_equal(store(session, 1, "old", 3), S_OK);
	if (!is_open)
		ID3D12ShaderCacheSession_Release(session);
	assert_true(remove_files(directory, part));
	if (!is_open)
		session = open_session(&desc);
	assert_non_null(session);
	assert_int_equal(store(session, 2, "new", 3), S_OK);
	check_value(session, 2, "new");
	ID3D12ShaderCacheSession_Release(session);
	session = open_session(&desc);
	assert_non_null(session);
	assert_int_equal(store(session, 3, "newer", 5), S_OK);
	check_value(session, 3, "newer");
	ID3D12ShaderCacheSession_Release(session);
}

static void any_file_may_be_removed(void **state)
{
	static const char *const parts[] = { ".idx", ".val", ".lock" };

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		one_file_may_be_removed(parts[i], 1);
		one_file_may_be_removed(parts[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_processes_that_store_one_key_one_succeeds),
		cmocka_unit_test(of_threads_that_store_one_key_one_succeeds),
		cmocka_unit_test(a_version_that_comes_again_is_empty),
		cmocka_unit_test(ten_thousand_keys_are_told_apart),
		cmocka_unit_test(a_value_that_is_evicted_meanwhile_is_whole),
		cmocka_unit_test(
			a_value_that_is_cleared_meanwhile_is_whole_or_gone),
		cmocka_unit_test(files_may_be_removed_while_it_is_open),
		cmocka_unit_test(files_may_be_removed_while_it_is_closed),
		cmocka_unit_test(any_file_may_be_removed),
	};
	int status;

	directory = harness_directory();
	setenv("KILN_DIR", directory, 1);
	kiln_d3d12_set_developer_mode(1);
	if (kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
				     (void **)&device))
		return 1;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	ID3D12Device9_Release(device);
	free(directory);
	return status;
}
