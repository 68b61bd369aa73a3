/* SPDX-License-Identifier: MIT */

/* A program in C, compiled with our declarations and with Microsoft's. */

#define COBJMACROS
#ifdef OFFICIAL
#include <wsl/winadapter.h>
#include <directx/d3d12.h>
#endif
#include <kiln/front/d3d12.h>

#include "harness/harness.h"

#include <stdlib.h>

#if defined(OFFICIAL) == defined(KILN_D3D12_OWN_DECLARATIONS)
#error "these are not the declarations that are to be tested"
#endif

static void a_session_is_used_from_c(void **state)
{
	const D3D12_SHADER_CACHE_SESSION_DESC desc = {
		.Identifier = { .Data1 = 0xc },
		.Mode = D3D12_SHADER_CACHE_MODE_DISK,
		.Flags = D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED,
		.Version = 7,
	};
	D3D12_SHADER_CACHE_SESSION_DESC told;
	D3D12_FEATURE_DATA_SHADER_CACHE feature = { 0 };
	ID3D12ShaderCacheSession *session, *again;
	struct kiln_d3d12_device what;
	ID3D12Device9 *device;
	IUnknown *unknown;
	char value[8] = "";
	UINT size = 0;

	kiln_d3d12_device_init(&what);
	what.adapter.LowPart = 3;
	what.driver_version = 31;
	assert_int_equal(kiln_d3d12_create_device(&what, &IID_ID3D12Device9,
						  (void **)&device),
			 S_OK);
	assert_int_equal(ID3D12Device9_CheckFeatureSupport(
				 device, D3D12_FEATURE_SHADER_CACHE, &feature,
				 sizeof(feature)),
			 S_OK);
	assert_true(feature.SupportFlags &
		    D3D12_SHADER_CACHE_SUPPORT_SHADER_SESSION_DELETE);
	assert_int_equal(ID3D12Device9_CreateShaderCacheSession(
				 device, &desc, &IID_ID3D12ShaderCacheSession,
				 (void **)&session),
			 S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_QueryInterface(
				 session, &IID_IUnknown, (void **)&unknown),
			 S_OK);
	assert_int_equal(IUnknown_QueryInterface(unknown,
						 &IID_ID3D12ShaderCacheSession,
						 (void **)&again),
			 S_OK);
	assert_ptr_equal(again, session);
	IUnknown_Release(unknown);
	ID3D12ShaderCacheSession_Release(again);

	assert_int_equal(ID3D12ShaderCacheSession_StoreValue(session, "key", 3,
							     "value", 6),
			 S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "key", 3,
							    NULL, &size),
			 S_OK);
	assert_int_equal(size, 6);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "key", 3,
							    value, &size),
			 S_OK);
	assert_string_equal(value, "value");
	told = ID3D12ShaderCacheSession_GetDesc(session);
	assert_int_equal(told.Identifier.Data1, 0xc);
	assert_int_equal(told.MaximumInMemoryCacheEntries, 128);
	assert_int_equal(told.Version, 7);
	ID3D12ShaderCacheSession_SetDeleteOnDestroy(session);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);

	assert_int_equal(ID3D12Device9_CreateShaderCacheSession(
				 device, &told, &IID_ID3D12ShaderCacheSession,
				 (void **)&session),
			 S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_FindValue(session, "key", 3,
							    NULL, &size),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
	assert_int_equal(ID3D12Device9_Release(device), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_is_used_from_c),
	};
	char *directory = harness_directory();

	setenv("KILN_DIR", directory, 1);
	free(directory);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
