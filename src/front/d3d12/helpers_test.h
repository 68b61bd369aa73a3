/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_D3D12_HELPERS_TEST_H
#define KI_FRONT_D3D12_HELPERS_TEST_H

/* What the tests of sessions share: short words for long calls. */

#ifndef COBJMACROS
#define COBJMACROS
#endif
#include "front/d3d12/d3d12.h"

typedef ID3D12ShaderCacheSession Session;

static const GUID cache_guid = {
	0x17cb474e, 0x4c55, 0x4dbc, { 0xbc, 0x2e, 1, 2, 3, 4, 5, 6 }
};
#define CACHE_NAME "17cb474e-4c55-4dbc-bc2e-010203040506"

static inline D3D12_SHADER_CACHE_SESSION_DESC desc_of(
	D3D12_SHADER_CACHE_MODE mode, UINT64 version)
{
	return (D3D12_SHADER_CACHE_SESSION_DESC){ .Identifier = cache_guid,
						  .Mode = mode,
						  .Version = version };
}

static inline HRESULT create_session(
	ID3D12Device9 *device, const D3D12_SHADER_CACHE_SESSION_DESC *desc,
	Session **out)
{
	return ID3D12Device9_CreateShaderCacheSession(
		device, desc, &IID_ID3D12ShaderCacheSession, (void **)out);
}

/* Keys and values are strings. */
static inline HRESULT store_string(Session *session, const char *key,
				   const char *value)
{
	return ID3D12ShaderCacheSession_StoreValue(
		session, key, (UINT)strlen(key), value, (UINT)strlen(value));
}

/* S_OK if that is its value; S_FALSE if it is another. */
static inline HRESULT find_string(Session *session, const char *key,
				  const char *value)
{
	char found[4096];
	UINT size = 0;
	HRESULT result = ID3D12ShaderCacheSession_FindValue(
		session, key, (UINT)strlen(key), NULL, &size);

	if (FAILED(result))
		return result;
	if (size > sizeof(found))
		return S_FALSE;
	result = ID3D12ShaderCacheSession_FindValue(
		session, key, (UINT)strlen(key), found, &size);
	if (FAILED(result))
		return result;
	return size == strlen(value) && !memcmp(found, value, size) ? S_OK
								    : S_FALSE;
}

static inline ULONG release(Session *session)
{
	return ID3D12ShaderCacheSession_Release(session);
}

#endif /* KI_FRONT_D3D12_HELPERS_TEST_H */
