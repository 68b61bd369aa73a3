/* SPDX-License-Identifier: MIT */

/* ShaderCacheControl(): who may, what it does, and to what. */

#include "harness/harness.h"

#include "front/d3d12/helpers_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK	D3D12_SHADER_CACHE_MODE_DISK
#define MEMORY	D3D12_SHADER_CACHE_MODE_MEMORY
#define DISABLE D3D12_SHADER_CACHE_CONTROL_FLAG_DISABLE
#define ENABLE	D3D12_SHADER_CACHE_CONTROL_FLAG_ENABLE
#define CLEAR	D3D12_SHADER_CACHE_CONTROL_FLAG_CLEAR

#define FOR_DRIVER  D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CACHE_FOR_DRIVER
#define CONVERSIONS D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CONVERSIONS
#define DRIVER	    D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_DRIVER_MANAGED
#define APPLICATION D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED

static ID3D12Device9 *device;
static char *home;

/* What the driver was told: a digit for each call. */
static char told[16];
static HRESULT driver_answer;

static HRESULT tell_driver(
	D3D12DDI_HDEVICE handle,
	D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAGS_008n control)
{
	size_t n = strlen(told);

	if (handle.pDrvPrivate != told || n + 1 == sizeof(told))
		return E_POINTER;
	told[n] = (char)('0' + control);
	told[n + 1] = '\0';
	return driver_answer;
}

static HRESULT control(unsigned kinds, unsigned flags)
{
	return ID3D12Device9_ShaderCacheControl(
		device, (D3D12_SHADER_CACHE_KIND_FLAGS)kinds,
		(D3D12_SHADER_CACHE_CONTROL_FLAGS)flags);
}

static int set_up(void **state)
{
	struct kiln_d3d12_device what;
	char *caches;

	home = harness_directory();
	caches = harness_path(home, "kiln");
	setenv("KILN_DIR", caches, 1);
	free(caches);
	kiln_d3d12_device_init(&what);
	what.DriverManagedShaderCachePresent = 1;
	what.pfnImplicitShaderCacheControl = tell_driver;
	what.handle.pDrvPrivate = told;
	kiln_d3d12_set_developer_mode(1);
	return kiln_d3d12_create_device(&what, &IID_ID3D12Device9,
					(void **)&device) != S_OK;
}

static int tear_down(void **state)
{
	free(home);
	return ID3D12Device9_Release(device) != 0;
}

static int calm(void **state)
{
	told[0] = '\0';
	driver_answer = S_OK;
	return 0;
}

static Session *open_one(D3D12_SHADER_CACHE_MODE mode,
			 D3D12_SHADER_CACHE_FLAGS flags)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(mode, 1);
	Session *session;

	desc.Flags = flags;
	assert_int_equal(create_session(device, &desc, &session), S_OK);
	return session;
}

/* ---- Arguments ----------------------------------------------------------------- */

static void only_developers_may(void **state)
{
	Session *session = open_one(MEMORY, 0);

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	kiln_d3d12_set_developer_mode(0);
	assert_int_equal(control(APPLICATION | DRIVER, CLEAR | DISABLE),
			 DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	assert_int_equal(control(0, 0), DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	assert_int_equal(kiln_d3d12_disabled_kinds(), 0);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_string_equal(told, "");
	kiln_d3d12_set_developer_mode(-1);
	assert_int_equal(control(FOR_DRIVER, CLEAR),
			 DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	setenv("KILN_D3D12_DEVELOPER", "1", 1);
	assert_int_equal(control(FOR_DRIVER, CLEAR), S_OK);
	setenv("KILN_D3D12_DEVELOPER", "0", 1);
	assert_int_equal(control(FOR_DRIVER, CLEAR),
			 DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	unsetenv("KILN_D3D12_DEVELOPER");
	kiln_d3d12_set_developer_mode(1);
	assert_int_equal(release(session), 0);
}

static void what_makes_no_sense_is_refused(void **state)
{
	static const struct {
		unsigned kinds;
		unsigned flags;
	} wrong[] = {
		{ 0, CLEAR },
		{ APPLICATION, 0 },
		{ 0x10, CLEAR },
		{ APPLICATION | 0x80000000u, CLEAR },
		{ APPLICATION, 8 },
		{ APPLICATION, CLEAR | 8 },
		{ APPLICATION, ENABLE | DISABLE },
		{ APPLICATION, ENABLE | DISABLE | CLEAR },
		{ DRIVER, ENABLE | DISABLE },
	};
	Session *session = open_one(MEMORY, 0);

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(control(wrong[i].kinds, wrong[i].flags),
				 E_INVALIDARG);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(kiln_d3d12_disabled_kinds(), 0);
	assert_string_equal(told, "");
	assert_int_equal(release(session), 0);
}

/* ---- Disabling ------------------------------------------------------------------ */

static void nothing_works_while_disabled(void **state)
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = desc_of(MEMORY, 1);
	Session *session = open_one(MEMORY, 0), *other = session;
	ID3D12Device9 *another;
	UINT size = 9;

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(control(APPLICATION, DISABLE), S_OK);
	assert_int_equal(control(APPLICATION, DISABLE), S_OK);
	assert_int_equal(kiln_d3d12_disabled_kinds(), APPLICATION);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "key", 3,
							    NULL, &size),
			 DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	assert_int_equal(size, 9);
	assert_int_equal(store_string(session, "more", "value"),
			 DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	assert_int_equal(create_session(device, &desc, &other),
			 DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	assert_null(other);
	/* Also through other devices. */
	assert_int_equal(kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
						  (void **)&another),
			 S_OK);
	assert_int_equal(create_session(another, &desc, &other),
			 DXGI_ERROR_NOT_CURRENTLY_AVAILABLE);
	assert_int_equal(ID3D12Device9_Release(another), 0);
	/* Wrong arguments are wrong all the same. */
	desc.Mode = (D3D12_SHADER_CACHE_MODE)7;
	assert_int_equal(create_session(device, &desc, &other), E_INVALIDARG);
	assert_int_equal(control(APPLICATION, ENABLE), S_OK);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(find_string(session, "more", ""),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
}

static void other_kinds_are_remembered(void **state)
{
	Session *session = open_one(MEMORY, 0);

	assert_int_equal(control(FOR_DRIVER | CONVERSIONS | DRIVER, DISABLE),
			 S_OK);
	assert_int_equal(kiln_d3d12_disabled_kinds(),
			 FOR_DRIVER | CONVERSIONS | DRIVER);
	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(control(FOR_DRIVER, CLEAR), S_OK);
	assert_int_equal(find_string(session, "key", "value"), S_OK);
	assert_int_equal(control(CONVERSIONS, ENABLE), S_OK);
	assert_int_equal(kiln_d3d12_disabled_kinds(), FOR_DRIVER | DRIVER);
	assert_int_equal(control(15, ENABLE), S_OK);
	assert_int_equal(kiln_d3d12_disabled_kinds(), 0);
	assert_int_equal(release(session), 0);
}

/* ---- The driver ------------------------------------------------------------------- */

static void the_driver_is_told_flag_by_flag(void **state)
{
	assert_int_equal(control(APPLICATION, CLEAR), S_OK);
	assert_string_equal(told, "");
	assert_int_equal(control(DRIVER, CLEAR), S_OK);
	assert_string_equal(told, "2");
	assert_int_equal(control(DRIVER, DISABLE), S_OK);
	assert_string_equal(told, "20");
	assert_int_equal(control(DRIVER | CONVERSIONS, ENABLE | CLEAR), S_OK);
	assert_string_equal(told, "2021");
	driver_answer = E_NOTIMPL;
	assert_int_equal(control(DRIVER, DISABLE | CLEAR), E_NOTIMPL);
	assert_string_equal(told, "202120");
	driver_answer = S_OK;
	assert_int_equal(control(DRIVER, ENABLE), S_OK);
}

static void a_driver_without_a_cache_is_not_told(void **state)
{
	struct kiln_d3d12_device what;

	kiln_d3d12_device_init(&what);
	what.pfnImplicitShaderCacheControl = tell_driver;
	what.handle.pDrvPrivate = told;
	assert_int_equal(kiln_d3d12_register_device((IUnknown *)device, &what),
			 S_OK);
	assert_int_equal(control(DRIVER, CLEAR), S_OK);
	what.DriverManagedShaderCachePresent = 1;
	what.pfnImplicitShaderCacheControl = NULL;
	assert_int_equal(kiln_d3d12_register_device((IUnknown *)device, &what),
			 S_OK);
	assert_int_equal(control(DRIVER, CLEAR), S_OK);
	assert_string_equal(told, "");
	what.pfnImplicitShaderCacheControl = tell_driver;
	assert_int_equal(kiln_d3d12_register_device((IUnknown *)device, &what),
			 S_OK);
}

/* ---- Clearing ---------------------------------------------------------------------- */

static void clearing_empties_what_is_open(void **state)
{
	char *work = harness_path(home, "work");
	Session *sessions[3];
	UINT size = 0;
	char value[8];

	assert_int_equal(mkdir(work, 0700), 0);
	assert_int_equal(chdir(work), 0);
	sessions[0] = open_one(MEMORY, 0);
	sessions[1] = open_one(DISK, 0);
	sessions[2] = open_one(DISK, D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR);
	assert_int_equal(chdir(home), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(store_string(sessions[i], "key", "value"),
				 S_OK);
		assert_int_equal(ID3D12ShaderCacheSession_FindValue(
					 sessions[i], "key", 3, NULL, &size),
				 S_OK);
		assert_int_equal(size, 5);
	}
	assert_int_equal(control(APPLICATION, CLEAR), S_OK);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ID3D12ShaderCacheSession_FindValue(
					 sessions[i], "key", 3, value, &size),
				 DXGI_ERROR_NOT_FOUND);
		assert_int_equal(store_string(sessions[i], "key", "new"), S_OK);
		assert_int_equal(find_string(sessions[i], "key", "new"), S_OK);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(release(sessions[i]), 0);
	/* On disk the same, but for the one in a working directory. */
	assert_int_equal(control(APPLICATION, CLEAR | DISABLE), S_OK);
	assert_int_equal(control(APPLICATION, ENABLE), S_OK);
	sessions[1] = open_one(DISK, 0);
	assert_int_equal(find_string(sessions[1], "key", ""),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(chdir(work), 0);
	sessions[2] = open_one(DISK, D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR);
	assert_int_equal(chdir(home), 0);
	assert_int_equal(find_string(sessions[2], "key", "new"), S_OK);
	assert_int_equal(release(sessions[1]), 0);
	assert_int_equal(release(sessions[2]), 0);
	free(work);
}

static int wipe(unsigned index, void *arg)
{
	return control(APPLICATION, CLEAR) != S_OK;
}

/* What was found for its size is not handed out after that. */
static void another_process_clears_what_was_just_found(void **state)
{
	Session *session = open_one(DISK, 0);
	char value[8];
	UINT size = 0;

	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "key", 3,
							    NULL, &size),
			 S_OK);
	assert_int_equal(harness_processes(1, wipe, NULL, HARNESS_HANG_S), 0);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "key", 3,
							    value, &size),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(release(session), 0);
}

/* ---- Places ------------------------------------------------------------------------- */

static void names_of_caches_are_recognised(void **state)
{
	static const struct {
		const char *file;
		int is_one;
	} rows[] = {
		{ CACHE_NAME ".idx", 1 },
		{ CACHE_NAME "-0000000000000001-0000000000000002.idx", 1 },
		{ CACHE_NAME "-0000000000000001.idx", 0 },
		{ CACHE_NAME ".val", 0 },
		{ CACHE_NAME ".idx.tmp", 0 },
		{ CACHE_NAME "-.idx", 0 },
		{ "17cb474e-4c55-4dbc-bc2e.idx", 0 },
		{ "kiln.idx", 0 },
		{ ".idx", 0 },
		{ "", 0 },
	};
	char name[KI_D3D12_NAME_BYTES];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_int_equal(ki_d3d12_is_index(rows[i].file, name),
				 rows[i].is_one);
}

static void each_setting_has_its_place(void **state)
{
	static const struct {
		const char *dir, *cache, *home, *expected;
	} rows[] = {
		{ "/a", "/b", "/c", "/a/d3d12/" },
		{ NULL, "/b", "/c", "/b/kiln/d3d12/" },
		{ NULL, "b", "/c", "/c/.cache/kiln/d3d12/" },
		{ NULL, NULL, "/c", "/c/.cache/kiln/d3d12/" },
		{ NULL, NULL, "/", NULL },
		{ NULL, NULL, NULL, NULL },
	};
	char *before = strdup(getenv("KILN_DIR"));
	char place[KI_PATH_MAX];

	assert_non_null(before);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const char *values[] = { rows[i].dir, rows[i].cache,
					 rows[i].home };
		const char *names[] = { "KILN_DIR", "XDG_CACHE_HOME", "HOME" };

		for (size_t n = 0; n < 3; n++)
			if (values[n])
				setenv(names[n], values[n], 1);
			else
				unsetenv(names[n]);
		assert_int_equal(ki_d3d12_place(place), !!rows[i].expected);
		if (!rows[i].expected)
			continue;
		assert_memory_equal(place, rows[i].expected,
				    strlen(rows[i].expected));
		/* NAME-16 digits, and nothing below. */
		assert_null(strchr(place + strlen(rows[i].expected), '/'));
		assert_int_equal(strlen(strrchr(place, '-')), 17);
	}
	setenv("KILN_DIR", before, 1);
	free(before);
}

#define TEST(name) cmocka_unit_test_setup(name, calm)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(only_developers_may),
		TEST(what_makes_no_sense_is_refused),
		TEST(nothing_works_while_disabled),
		TEST(other_kinds_are_remembered),
		TEST(the_driver_is_told_flag_by_flag),
		TEST(a_driver_without_a_cache_is_not_told),
		TEST(clearing_empties_what_is_open),
		TEST(another_process_clears_what_was_just_found),
		TEST(names_of_caches_are_recognised),
		TEST(each_setting_has_its_place),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
