/* SPDX-License-Identifier: MIT */

/* S02: keys of one digest, by the hook that leaves 8 bits of it. */

#include "harness/harness.h"

#include <stdlib.h>

#define COBJMACROS
#include "front/d3d12/d3d12.h"

#define N_KEYS 1000

static ID3D12Device9 *device;

static ID3D12ShaderCacheSession *open_session(D3D12_SHADER_CACHE_MODE mode)
{
	const D3D12_SHADER_CACHE_SESSION_DESC desc = {
		.Identifier = { .Data1 = 2 },
		.Mode = mode,
		.MaximumInMemoryCacheEntries = N_KEYS,
	};
	void *session = NULL;

	assert_int_equal(
		ID3D12Device9_CreateShaderCacheSession(
			device, &desc, &IID_ID3D12ShaderCacheSession, &session),
		S_OK);
	return session;
}

/* What became of each key when it was stored. */
static HRESULT results[N_KEYS];

static unsigned store_all(ID3D12ShaderCacheSession *session)
{
	unsigned n_collisions = 0;

	for (uint32_t i = 0; i < N_KEYS; i++) {
		results[i] = ID3D12ShaderCacheSession_StoreValue(
			session, &i, sizeof(i), &i, sizeof(i));
		if (results[i] != S_OK)
			assert_int_equal(results[i],
					 DXGI_ERROR_CACHE_HASH_COLLISION);
		n_collisions += results[i] != S_OK;
	}
	return n_collisions;
}

static void find_all(ID3D12ShaderCacheSession *session)
{
	for (uint32_t i = 0; i < N_KEYS; i++) {
		uint32_t value;
		UINT size = sizeof(value);

		assert_int_equal(ID3D12ShaderCacheSession_FindValue(
					 session, &i, sizeof(i), &value, &size),
				 results[i]);
		if (results[i] == S_OK)
			assert_int_equal(value, i);
		assert_int_equal(ID3D12ShaderCacheSession_StoreValue(
					 session, &i, sizeof(i), "other", 5),
				 results[i] == S_OK ? DXGI_ERROR_ALREADY_EXISTS
						    : results[i]);
	}
}

static void a_disk_cache_tells_of_a_collision(void **state)
{
	ID3D12ShaderCacheSession *session;

	session = open_session(D3D12_SHADER_CACHE_MODE_DISK);
	assert_true(store_all(session) >= N_KEYS - 256);
	find_all(session);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
	session = open_session(D3D12_SHADER_CACHE_MODE_DISK);
	find_all(session);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

/* Memory compares whole keys. */
static void in_memory_nothing_collides(void **state)
{
	ID3D12ShaderCacheSession *session;

	session = open_session(D3D12_SHADER_CACHE_MODE_MEMORY);
	assert_int_equal(store_all(session), 0);
	find_all(session);
	assert_int_equal(ID3D12ShaderCacheSession_Release(session), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_disk_cache_tells_of_a_collision),
		cmocka_unit_test(in_memory_nothing_collides),
	};
	char *directory = harness_directory();
	int status;

	setenv("KILN_DIR", directory, 1);
	free(directory);
	if (kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
				     (void **)&device))
		return 1;
	ki_d3d12_digest_bits = 8;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	ID3D12Device9_Release(device);
	return status;
}
