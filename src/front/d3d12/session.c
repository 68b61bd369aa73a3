/* SPDX-License-Identifier: MIT */

/*
 * ID3D12ShaderCacheSession.  Read this first.
 *
 *	kiln_d3d12_create_shader_cache_session
 *	  check ------------------- arguments, in the order that Windows has
 *	  ki_d3d12_cache_open ----- join the namespace's cache, or open it
 *	FindValue, StoreValue ----- cache.c
 *
 * One object with two faces, as on Windows: the session, which also answers for
 * ID3D12DeviceChild and ID3D12Object, and an IUnknown of its own, which is the
 * object's identity.  Both count the same references.
 *
 * A session has its own description and reference on the device; everything
 * else belongs to the cache.
 */

#include <stdlib.h>

#include "front/d3d12/d3d12.h"

#define MEMORY_BYTES_DEFAULT	 (UINT)(1u << 20)
#define MEMORY_ENTRIES_DEFAULT	 (UINT)128
#define VALUE_FILE_BYTES_DEFAULT (UINT)(128u << 20)
#define VALUE_FILE_BYTES_MAX	 (UINT)(1u << 30)

#define FLAGS_ALL                                                              \
	(D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED |                            \
	 D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR)

struct session {
	/* Fixed after creation. */
	ID3D12ShaderCacheSession face;
	IUnknown identity;
	IUnknown *device; /* one reference */
	D3D12_SHADER_CACHE_SESSION_DESC desc;
	struct ki_d3d12_cache *cache;
	/* Atomic. */
	_Atomic ULONG refs;

	struct ki_d3d12_data data;
};

static struct session *of(ID3D12ShaderCacheSession *face)
{
	return ki_container(face, struct session, face);
}

static struct session *of_identity(IUnknown *identity)
{
	return ki_container(identity, struct session, identity);
}

/* ---- IUnknown -------------------------------------------------------------- */

static ULONG add_ref(struct session *session)
{
	return atomic_fetch_add(&session->refs, 1) + 1;
}

static ULONG release(struct session *session)
{
	ULONG left = atomic_fetch_sub(&session->refs, 1) - 1;
	IUnknown *device = session->device;

	if (left)
		return left;
	ki_d3d12_data_fini(&session->data);
	ki_d3d12_cache_close(session->cache);
	free(session);
	device->lpVtbl->Release(device);
	return 0;
}

/* Which face an interface has; NULL: none. */
static void *face_of(struct session *session, REFIID riid)
{
	if (ki_d3d12_is_guid(riid, &IID_IUnknown))
		return &session->identity;
	if (ki_d3d12_is_guid(riid, &IID_ID3D12ShaderCacheSession) ||
	    ki_d3d12_is_guid(riid, &IID_ID3D12DeviceChild) ||
	    ki_d3d12_is_guid(riid, &IID_ID3D12Object))
		return &session->face;
	return NULL;
}

static HRESULT query(struct session *session, REFIID riid, void **out)
{
	if (!out)
		return E_POINTER;
	*out = riid ? face_of(session, riid) : NULL;
	if (!*out)
		return riid ? E_NOINTERFACE : E_INVALIDARG;
	add_ref(session);
	return S_OK;
}

static HRESULT STDMETHODCALLTYPE identity_query(IUnknown *this, REFIID riid,
						void **out)
{
	return query(of_identity(this), riid, out);
}

static ULONG STDMETHODCALLTYPE identity_add_ref(IUnknown *this)
{
	return add_ref(of_identity(this));
}

static ULONG STDMETHODCALLTYPE identity_release(IUnknown *this)
{
	return release(of_identity(this));
}

static HRESULT STDMETHODCALLTYPE session_query(ID3D12ShaderCacheSession *this,
					       REFIID riid, void **out)
{
	return query(of(this), riid, out);
}

static ULONG STDMETHODCALLTYPE session_add_ref(ID3D12ShaderCacheSession *this)
{
	return add_ref(of(this));
}

static ULONG STDMETHODCALLTYPE session_release(ID3D12ShaderCacheSession *this)
{
	return release(of(this));
}

/* ---- ID3D12Object, ID3D12DeviceChild --------------------------------------- */

static HRESULT STDMETHODCALLTYPE
session_get_private_data(ID3D12ShaderCacheSession *this, REFGUID guid,
			 UINT *inout_size, void *data)
{
	return ki_d3d12_data_get(&of(this)->data, guid, inout_size, data);
}

static HRESULT STDMETHODCALLTYPE
session_set_private_data(ID3D12ShaderCacheSession *this, REFGUID guid,
			 UINT size, const void *data)
{
	return ki_d3d12_data_set(&of(this)->data, guid, size, data);
}

static HRESULT STDMETHODCALLTYPE session_set_private_data_interface(
	ID3D12ShaderCacheSession *this, REFGUID guid, const IUnknown *object)
{
	return ki_d3d12_data_set_interface(&of(this)->data, guid, object);
}

static HRESULT STDMETHODCALLTYPE
session_set_name(ID3D12ShaderCacheSession *this, LPCWSTR name)
{
	return ki_d3d12_data_set_name(&of(this)->data, name);
}

static HRESULT STDMETHODCALLTYPE
session_get_device(ID3D12ShaderCacheSession *this, REFIID riid, void **out)
{
	IUnknown *device = of(this)->device;

	return device->lpVtbl->QueryInterface(device, riid, out);
}

/* ---- ID3D12ShaderCacheSession ---------------------------------------------- */

static HRESULT STDMETHODCALLTYPE
session_find_value(ID3D12ShaderCacheSession *this, const void *key,
		   UINT key_size, void *value, UINT *inout_size)
{
	if (!key || !key_size || !inout_size)
		return E_INVALIDARG;
	if (ki_d3d12_is_disabled())
		return DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
	return ki_d3d12_cache_find(of(this)->cache, key, key_size, value,
				   inout_size);
}

static HRESULT STDMETHODCALLTYPE
session_store_value(ID3D12ShaderCacheSession *this, const void *key,
		    UINT key_size, const void *value, UINT size)
{
	if (!key || !key_size || !value || !size)
		return E_INVALIDARG;
	if (ki_d3d12_is_disabled())
		return DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
	return ki_d3d12_cache_store(of(this)->cache, key, key_size, value,
				    size);
}

static void STDMETHODCALLTYPE
session_set_delete_on_destroy(ID3D12ShaderCacheSession *this)
{
	ki_d3d12_cache_delete_on_close(of(this)->cache);
}

static D3D12_SHADER_CACHE_SESSION_DESC STDMETHODCALLTYPE
session_get_desc(ID3D12ShaderCacheSession *this)
{
	return of(this)->desc;
}

/* ---- Creating --------------------------------------------------------------- */

static IUnknownVtbl identity_methods = {
	.QueryInterface = identity_query,
	.AddRef = identity_add_ref,
	.Release = identity_release,
};

static ID3D12ShaderCacheSessionVtbl session_methods = {
	.QueryInterface = session_query,
	.AddRef = session_add_ref,
	.Release = session_release,
	.GetPrivateData = session_get_private_data,
	.SetPrivateData = session_set_private_data,
	.SetPrivateDataInterface = session_set_private_data_interface,
	.SetName = session_set_name,
	.GetDevice = session_get_device,
	.FindValue = session_find_value,
	.StoreValue = session_store_value,
	.SetDeleteOnDestroy = session_set_delete_on_destroy,
	.GetDesc = session_get_desc,
};

static int is_valid(const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	static const GUID none;

	return desc && !ki_d3d12_is_guid(&desc->Identifier, &none) &&
	       ((unsigned)desc->Mode == D3D12_SHADER_CACHE_MODE_MEMORY ||
		(unsigned)desc->Mode == D3D12_SHADER_CACHE_MODE_DISK) &&
	       !((unsigned)desc->Flags & ~(unsigned)FLAGS_ALL) &&
	       desc->MaximumValueFileSizeBytes <= VALUE_FILE_BYTES_MAX;
}

static UINT or_default(UINT value, UINT fallback)
{
	return value ? value : fallback;
}

static void fill_defaults(D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	desc->MaximumInMemoryCacheSizeBytes = or_default(
		desc->MaximumInMemoryCacheSizeBytes, MEMORY_BYTES_DEFAULT);
	desc->MaximumInMemoryCacheEntries = or_default(
		desc->MaximumInMemoryCacheEntries, MEMORY_ENTRIES_DEFAULT);
	desc->MaximumValueFileSizeBytes = or_default(
		desc->MaximumValueFileSizeBytes, VALUE_FILE_BYTES_DEFAULT);
}

/* 0: DRIVER_VERSIONED, and nobody knows by what. */
static int set_driver(struct ki_d3d12_namespace *space, IUnknown *device,
		      const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	struct kiln_d3d12_device known;

	space->is_versioned =
		!!(desc->Flags & D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED);
	if (!space->is_versioned)
		return 1;
	if (!ki_d3d12_device_find(device, &known))
		return 0;
	space->adapter = known.adapter;
	space->driver_version = known.driver_version;
	return 1;
}

static void set_place(struct ki_d3d12_namespace *space,
		      const D3D12_SHADER_CACHE_SESSION_DESC *desc)
{
	space->is_disk = desc->Mode == D3D12_SHADER_CACHE_MODE_DISK;
	space->is_in_working_directory =
		space->is_disk &&
		(desc->Flags & D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR);
	if (!space->is_disk ||
	    !(space->is_in_working_directory
		      ? ki_d3d12_working_place(space->directory)
		      : ki_d3d12_place(space->directory)))
		space->directory[0] = '\0';
}

static HRESULT new_session(IUnknown *device,
			   const struct ki_d3d12_namespace *space,
			   const D3D12_SHADER_CACHE_SESSION_DESC *desc,
			   struct session **out_session)
{
	struct session *session = calloc(1, sizeof(*session));
	HRESULT result;

	if (!session)
		return E_OUTOFMEMORY;
	session->face.lpVtbl = &session_methods;
	session->identity.lpVtbl = &identity_methods;
	session->desc = *desc;
	fill_defaults(&session->desc);
	result = ki_d3d12_cache_open(space, &session->desc, &session->cache);
	if (FAILED(result)) {
		free(session);
		return result;
	}
	ki_d3d12_data_init(&session->data);
	atomic_init(&session->refs, 1);
	session->device = device;
	device->lpVtbl->AddRef(device);
	*out_session = session;
	return S_OK;
}

static HRESULT create(IUnknown *device,
		      const D3D12_SHADER_CACHE_SESSION_DESC *desc,
		      const struct ki_d3d12_namespace *space, REFIID riid,
		      void **out)
{
	struct session *session, shape;
	HRESULT result;

	*out = NULL;
	if (!face_of(&shape, riid))
		return E_NOINTERFACE;
	result = new_session(device, space, desc, &session);
	if (SUCCEEDED(result))
		*out = face_of(session, riid);
	return result;
}

HRESULT kiln_d3d12_create_shader_cache_session(
	IUnknown *device, const D3D12_SHADER_CACHE_SESSION_DESC *desc,
	REFIID riid, void **out)
{
	struct ki_d3d12_namespace space;

	if (!device || !is_valid(desc))
		return E_INVALIDARG;
	memset(&space, 0, offsetof(struct ki_d3d12_namespace, directory));
	space.identifier = desc->Identifier;
	if (!set_driver(&space, device, desc))
		return E_INVALIDARG;
	if (ki_d3d12_is_disabled()) {
		if (out)
			*out = NULL;
		return DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
	}
	if (!out)
		return S_FALSE;
	if (!riid)
		return E_INVALIDARG;
	set_place(&space, desc);
	return create(device, desc, &space, riid, out);
}
