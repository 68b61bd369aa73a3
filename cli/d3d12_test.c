/* SPDX-License-Identifier: MIT */

/* kiln gc --d3d12: shader caches of programs, listed and cleared. */

#include "harness/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COBJMACROS
#include <kiln/front/d3d12.h>

#include "testing.h"

static char *program;
static char *directory; /* KILN_DIR */
static ID3D12Device9 *device;

static ID3D12ShaderCacheSession *open_session(uint32_t number,
					      D3D12_SHADER_CACHE_FLAGS flags)
{
	const D3D12_SHADER_CACHE_SESSION_DESC desc = {
		.Identifier = { .Data1 = number },
		.Mode = D3D12_SHADER_CACHE_MODE_DISK,
		.Flags = flags,
		.Version = 3,
	};
	void *session = NULL;

	assert_int_equal(
		ID3D12Device9_CreateShaderCacheSession(
			device, &desc, &IID_ID3D12ShaderCacheSession, &session),
		S_OK);
	return session;
}

static void store(ID3D12ShaderCacheSession *session, const char *key)
{
	assert_int_equal(ID3D12ShaderCacheSession_StoreValue(
				 session, key, (UINT)strlen(key), "value", 5),
			 S_OK);
}

static HRESULT find(ID3D12ShaderCacheSession *session, const char *key)
{
	UINT size = 0;

	return ID3D12ShaderCacheSession_FindValue(
		session, key, (UINT)strlen(key), NULL, &size);
}

/* A cache with `n` entries. */
static void fill(uint32_t number, unsigned n)
{
	ID3D12ShaderCacheSession *session =
		open_session(number, D3D12_SHADER_CACHE_FLAG_NONE);
	char key[16];

	while (n--) {
		snprintf(key, sizeof(key), "key %u", n);
		store(session, key);
	}
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

static const char *more = "KILN_READONLY"; /* another variable; unset */

static struct ended ask(const char *option, const char *other)
{
	static char setting[600];
	struct spawn spawn = {
		.program = program,
		.arguments = { "gc", "--d3d12", option, other },
		.variables = { setting, "XDG_CONFIG_HOME=/nowhere", "COLUMNS",
			       more },
	};

	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	return spawn_run(&spawn);
}

static json_t *ask_json(const char *option)
{
	struct ended ended = ask("--json", option);
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_string_equal(ended.err, "");
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(json);
	ended_free(&ended);
	return json;
}

static int number_of(const json_t *json, const char *name)
{
	return (int)json_integer_value(json_object_get(json, name));
}

static const json_t *cache_of(const json_t *json, size_t i)
{
	return json_array_get(json_object_get(json, "caches"), i);
}

static size_t n_caches_of(const json_t *json)
{
	return json_array_size(json_object_get(json, "caches"));
}

/* Of this program. */
static int has_files(void)
{
	char *caches = harness_path(directory, "d3d12");
	const int has = harness_disk_bytes(caches) > 0;

	free(caches);
	return has;
}

static void where_nothing_is_nothing_is_done(void **state)
{
	json_t *json = ask_json(NULL);
	struct ended ended = ask(NULL, NULL);

	assert_int_equal(n_caches_of(json), 0);
	assert_int_equal(number_of(json, "bytes_freed"), 0);
	json_decref(json);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out,
			    "cleared 0 caches, 0 entries (0 bytes)\n");
	ended_free(&ended);
	assert_false(has_files());
}

static void a_dry_run_changes_nothing(void **state)
{
	ID3D12ShaderCacheSession *session;
	const json_t *cache;
	struct ended ended;
	json_t *json;

	fill(1, 2);
	fill(2, 5);
	json = ask_json("--dry-run");
	assert_true(json_is_true(json_object_get(json, "dry_run")));
	assert_int_equal(n_caches_of(json), 2);
	cache = cache_of(json, 0);
	assert_string_equal(json_string_value(json_object_get(cache, "name")),
			    "00000001-0000-0000-0000-000000000000");
	assert_non_null(
		strstr(json_string_value(json_object_get(cache, "program")),
		       "test_cli_d3d12-"));
	assert_int_equal(number_of(cache, "entries"), 2);
	assert_true(number_of(cache, "bytes") > 0);
	assert_int_equal(number_of(cache_of(json, 1), "entries"), 5);
	assert_int_equal(number_of(json, "entries_removed"), 7);
	json_decref(json);
	ended = ask("-n", NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(strstr(ended.out, "00000002-0000"));
	assert_non_null(
		strstr(ended.out, "to be cleared: 2 caches, 7 entries ("));
	ended_free(&ended);
	session = open_session(1, D3D12_SHADER_CACHE_FLAG_NONE);
	assert_int_equal(find(session, "key 0"), S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

static void what_nobody_has_open_goes_with_its_files(void **state)
{
	ID3D12ShaderCacheSession *session;
	json_t *json = ask_json(NULL);

	assert_int_equal(number_of(json, "caches_cleared"), 2);
	assert_int_equal(number_of(json, "entries_removed"), 7);
	assert_true(number_of(json, "bytes_freed") > 0);
	assert_true(
		json_is_false(json_object_get(cache_of(json, 0), "in_use")));
	json_decref(json);
	assert_false(has_files());
	session = open_session(1, D3D12_SHADER_CACHE_FLAG_NONE);
	assert_int_equal(find(session, "key 0"), DXGI_ERROR_NOT_FOUND);
	ID3D12ShaderCacheSession_SetDeleteOnDestroy(session);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

static void what_is_open_is_emptied_and_goes_on(void **state)
{
	ID3D12ShaderCacheSession *session =
		open_session(3, D3D12_SHADER_CACHE_FLAG_NONE);
	json_t *json;

	store(session, "old");
	assert_int_equal(find(session, "old"), S_OK);
	json = ask_json(NULL);
	assert_int_equal(number_of(json, "caches_cleared"), 1);
	assert_true(json_is_true(json_object_get(cache_of(json, 0), "in_use")));
	json_decref(json);
	assert_int_equal(find(session, "old"), DXGI_ERROR_NOT_FOUND);
	store(session, "new");
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
	session = open_session(3, D3D12_SHADER_CACHE_FLAG_NONE);
	assert_int_equal(find(session, "new"), S_OK);
	ID3D12ShaderCacheSession_SetDeleteOnDestroy(session);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

static void working_directories_are_left_alone(void **state)
{
	char *place = harness_directory();
	ID3D12ShaderCacheSession *session;
	json_t *json;

	assert_int_equal(chdir(place), 0);
	session = open_session(4, D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR);
	store(session, "key");
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
	json = ask_json(NULL);
	assert_int_equal(n_caches_of(json), 0);
	json_decref(json);
	session = open_session(4, D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR);
	assert_int_equal(find(session, "key"), S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
	assert_int_equal(chdir("/"), 0);
	free(place);
}

/* A cache that is damaged, and files that are none. */
static void what_lies_there_does_no_harm(void **state)
{
	char path[4200];
	const char *name;
	json_t *json;

	fill(5, 1);
	json = ask_json("--dry-run");
	name = json_string_value(json_object_get(cache_of(json, 0), "program"));
	snprintf(path, sizeof(path), "%s/d3d12/%s/notes.txt", directory, name);
	harness_write(path, "mine", 4);
	snprintf(path, sizeof(path),
		 "%s/d3d12/%s/00000005-0000-0000-0000-000000000000.idx",
		 directory, name);
	harness_write(path, "something else", 14);
	json_decref(json);
	json = ask_json(NULL);
	assert_int_equal(number_of(json, "caches_cleared"), 1);
	json_decref(json);
	assert_int_not_equal(access(path, F_OK), 0);
	snprintf(strrchr(path, '/'), 11, "/notes.txt");
	assert_int_equal(unlink(path), 0);
}

static void settings_that_forbid_writing_hold(void **state)
{
	static const char *const settings[] = { "KILN_READONLY=1",
						"KILN_DISABLE=1" };

	fill(6, 1);
	for (size_t i = 0; i < 2; i++) {
		struct ended ended;
		json_t *json;

		more = settings[i];
		ended = ask(NULL, NULL);
		assert_int_equal(status_of(&ended), 5);
		ended_free(&ended);
		json = ask_json("--dry-run");
		assert_int_equal(number_of(json, "entries_removed"), 1);
		json_decref(json);
	}
	more = "KILN_READONLY";
}

static void other_options_are_refused(void **state)
{
	static const char *const rows[] = { "--max-size=1M", "--older-than=1d",
					    "--quarantine", "--store=log:/x" };
	struct spawn spawn = { .program = program,
			       .arguments = { "gc", "--dry-run" } };
	struct ended ended;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ended = ask(rows[i], NULL);
		assert_int_equal(status_of(&ended), 2);
		ended_free(&ended);
	}
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 2);
	ended_free(&ended);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(where_nothing_is_nothing_is_done),
		cmocka_unit_test(a_dry_run_changes_nothing),
		cmocka_unit_test(what_nobody_has_open_goes_with_its_files),
		cmocka_unit_test(what_is_open_is_emptied_and_goes_on),
		cmocka_unit_test(working_directories_are_left_alone),
		cmocka_unit_test(what_lies_there_does_no_harm),
		cmocka_unit_test(settings_that_forbid_writing_hold),
		cmocka_unit_test(other_options_are_refused),
	};
	int status;

	/* The test changes its directory. */
	program = argc == 2 ? realpath(argv[1], NULL) : NULL;
	if (!program)
		return 2;
	directory = harness_directory();
	setenv("KILN_DIR", directory, 1);
	if (kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
				     (void **)&device))
		return 1;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	ID3D12Device9_Release(device);
	free(directory);
	free(program);
	return status;
}
