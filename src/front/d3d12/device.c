/* SPDX-License-Identifier: MIT */

/*
 * What hosts said of their devices, by the identity that a device's IUnknown
 * is, and a device for those who have none.
 */

#include <stdlib.h>

#include "front/d3d12/d3d12.h"

/* ---- What hosts said --------------------------------------------------------- */

struct known {
	struct ki_list link;
	IUnknown *identity; /* no reference */
	struct kiln_d3d12_device what;
};

static struct ki_list registered = { &registered, &registered };

/* The pointer that all interfaces of an object lead to.  Its holder keeps it
   alive. */
static IUnknown *identity_of(IUnknown *device)
{
	void *identity = NULL;

	if (FAILED(device->lpVtbl->QueryInterface(device, &IID_IUnknown,
						  &identity)) ||
	    !identity)
		return device;
	((IUnknown *)identity)->lpVtbl->Release(identity);
	return identity;
}

static struct known *find_locked(const IUnknown *identity)
	KI_REQUIRES(&ki_d3d12_lock)
{
	struct ki_list *link;

	ki_list_for_each (link, &registered) {
		struct known *known = ki_container(link, struct known, link);

		if (known->identity == identity)
			return known;
	}
	return NULL;
}

/* Of an older caller it is shorter. */
static int take(struct kiln_d3d12_device *out,
		const struct kiln_d3d12_device *given)
{
	size_t size = given->size < sizeof(*out) ? given->size : sizeof(*out);

	if (given->size < sizeof(given->size))
		return 0;
	kiln_d3d12_device_init(out);
	memcpy(out, given, size);
	out->size = sizeof(*out);
	return 1;
}

HRESULT kiln_d3d12_register_device(IUnknown *device,
				   const struct kiln_d3d12_device *what)
{
	struct known *known, *made;
	IUnknown *identity;

	if (!device || !what)
		return E_INVALIDARG;
	made = malloc(sizeof(*made));
	if (!made)
		return E_OUTOFMEMORY;
	if (!take(&made->what, what)) {
		free(made);
		return E_INVALIDARG;
	}
	identity = identity_of(device);
	made->identity = identity;
	ki_mutex_lock(&ki_d3d12_lock);
	known = find_locked(identity);
	if (known)
		ki_list_remove(&known->link);
	ki_list_append(&registered, &made->link);
	ki_mutex_unlock(&ki_d3d12_lock);
	free(known);
	return S_OK;
}

static void forget(const IUnknown *identity)
{
	struct known *known;

	ki_mutex_lock(&ki_d3d12_lock);
	known = find_locked(identity);
	if (known)
		ki_list_remove(&known->link);
	ki_mutex_unlock(&ki_d3d12_lock);
	free(known);
}

void kiln_d3d12_unregister_device(IUnknown *device)
{
	if (device)
		forget(identity_of(device));
}

int ki_d3d12_device_find(IUnknown *device, struct kiln_d3d12_device *out)
{
	IUnknown *identity = identity_of(device);
	struct known *known;

	kiln_d3d12_device_init(out);
	ki_mutex_lock(&ki_d3d12_lock);
	known = find_locked(identity);
	if (known)
		*out = known->what;
	ki_mutex_unlock(&ki_d3d12_lock);
	return !!known;
}

D3D12_SHADER_CACHE_SUPPORT_FLAGS kiln_d3d12_support_flags(IUnknown *device)
{
	unsigned flags = D3D12_SHADER_CACHE_SUPPORT_SINGLE_PSO |
			 D3D12_SHADER_CACHE_SUPPORT_SHADER_CONTROL_CLEAR |
			 D3D12_SHADER_CACHE_SUPPORT_SHADER_SESSION_DELETE;
	struct kiln_d3d12_device known;

	if (device && ki_d3d12_device_find(device, &known) &&
	    known.DriverManagedShaderCachePresent)
		flags |= D3D12_SHADER_CACHE_SUPPORT_DRIVER_MANAGED_CACHE;
	return (D3D12_SHADER_CACHE_SUPPORT_FLAGS)flags;
}

/* ---- The minimal device ------------------------------------------------------ */

struct device {
	ID3D12Device9 face;
	LUID adapter; /* fixed */
	_Atomic ULONG refs;
	struct ki_d3d12_data data;
};

static struct device *of(ID3D12Device9 *face)
{
	return ki_container(face, struct device, face);
}

static int is_of_device(REFIID riid)
{
	static const IID *const all[] = {
		&IID_IUnknown,	    &IID_ID3D12Object,	&IID_ID3D12Device,
		&IID_ID3D12Device1, &IID_ID3D12Device2, &IID_ID3D12Device3,
		&IID_ID3D12Device4, &IID_ID3D12Device5, &IID_ID3D12Device6,
		&IID_ID3D12Device7, &IID_ID3D12Device8, &IID_ID3D12Device9,
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (ki_d3d12_is_guid(riid, all[i]))
			return 1;
	return 0;
}

static ULONG STDMETHODCALLTYPE device_add_ref(ID3D12Device9 *this)
{
	return atomic_fetch_add(&of(this)->refs, 1) + 1;
}

static ULONG STDMETHODCALLTYPE device_release(ID3D12Device9 *this)
{
	struct device *device = of(this);
	ULONG left = atomic_fetch_sub(&device->refs, 1) - 1;

	if (left)
		return left;
	forget((IUnknown *)this);
	ki_d3d12_data_fini(&device->data);
	free(device);
	return 0;
}

static HRESULT STDMETHODCALLTYPE device_query(ID3D12Device9 *this, REFIID riid,
					      void **out)
{
	if (!out)
		return E_POINTER;
	*out = NULL;
	if (!riid)
		return E_INVALIDARG;
	if (!is_of_device(riid))
		return E_NOINTERFACE;
	device_add_ref(this);
	*out = this;
	return S_OK;
}

static HRESULT STDMETHODCALLTYPE device_get_private_data(ID3D12Device9 *this,
							 REFGUID guid,
							 UINT *inout_size,
							 void *data)
{
	return ki_d3d12_data_get(&of(this)->data, guid, inout_size, data);
}

static HRESULT STDMETHODCALLTYPE device_set_private_data(ID3D12Device9 *this,
							 REFGUID guid,
							 UINT size,
							 const void *data)
{
	return ki_d3d12_data_set(&of(this)->data, guid, size, data);
}

static HRESULT STDMETHODCALLTYPE device_set_private_data_interface(
	ID3D12Device9 *this, REFGUID guid, const IUnknown *object)
{
	return ki_d3d12_data_set_interface(&of(this)->data, guid, object);
}

static HRESULT STDMETHODCALLTYPE device_set_name(ID3D12Device9 *this,
						 LPCWSTR name)
{
	return ki_d3d12_data_set_name(&of(this)->data, name);
}

static UINT STDMETHODCALLTYPE device_get_node_count(ID3D12Device9 *this)
{
	return 1;
}

static LUID STDMETHODCALLTYPE device_get_adapter_luid(ID3D12Device9 *this)
{
	return of(this)->adapter;
}

static HRESULT STDMETHODCALLTYPE device_check_feature_support(
	ID3D12Device9 *this, D3D12_FEATURE feature, void *data, UINT size)
{
	D3D12_FEATURE_DATA_SHADER_CACHE *out = data;

	if (feature != D3D12_FEATURE_SHADER_CACHE || !out ||
	    size != sizeof(*out))
		return E_INVALIDARG;
	out->SupportFlags = kiln_d3d12_support_flags((IUnknown *)this);
	return S_OK;
}

static HRESULT STDMETHODCALLTYPE device_create_session(
	ID3D12Device9 *this, const D3D12_SHADER_CACHE_SESSION_DESC *desc,
	REFIID riid, void **out)
{
	return kiln_d3d12_create_shader_cache_session((IUnknown *)this, desc,
						      riid, out);
}

static HRESULT STDMETHODCALLTYPE
device_control(ID3D12Device9 *this, D3D12_SHADER_CACHE_KIND_FLAGS kinds,
	       D3D12_SHADER_CACHE_CONTROL_FLAGS control)
{
	return kiln_d3d12_shader_cache_control((IUnknown *)this, kinds,
					       control);
}

/*
 * Methods that have nothing to do with caches, by what they return, which is all
 * of a caller's convention that matters.
 */
typedef void method_fn(void);

static HRESULT not_implemented(void)
{
	return E_NOTIMPL;
}

static HRESULT succeed(void)
{
	return S_OK;
}

static void do_nothing(void)
{
}

/* One increment; a driver's data of a kind that is not supported. */
static UINT one(void)
{
	return 1;
}

/* A D3D12_RESOURCE_ALLOCATION_INFO that says that it could not be told. */
struct allocation {
	UINT64 size;
	UINT64 alignment;
};

static struct allocation no_allocation(void)
{
	return (struct allocation){ UINT64_MAX, 0 };
}

/* A D3D12_HEAP_PROPERTIES. */
struct heap {
	int32_t of_no_type[3];
	UINT nodes[2];
};

static struct heap no_heap(void)
{
	return (struct heap){ { 0 }, { 0 } };
}

#define REFUSED ((method_fn *)not_implemented)

static ID3D12Device9Vtbl device_methods = {
	.QueryInterface = device_query,
	.AddRef = device_add_ref,
	.Release = device_release,
	.GetPrivateData = device_get_private_data,
	.SetPrivateData = device_set_private_data,
	.SetPrivateDataInterface = device_set_private_data_interface,
	.SetName = device_set_name,
	.GetNodeCount = device_get_node_count,
	.CreateCommandQueue = REFUSED,
	.CreateCommandAllocator = REFUSED,
	.CreateGraphicsPipelineState = REFUSED,
	.CreateComputePipelineState = REFUSED,
	.CreateCommandList = REFUSED,
	.CheckFeatureSupport = device_check_feature_support,
	.CreateDescriptorHeap = REFUSED,
	.GetDescriptorHandleIncrementSize = (method_fn *)one,
	.CreateRootSignature = REFUSED,
	.CreateConstantBufferView = do_nothing,
	.CreateShaderResourceView = do_nothing,
	.CreateUnorderedAccessView = do_nothing,
	.CreateRenderTargetView = do_nothing,
	.CreateDepthStencilView = do_nothing,
	.CreateSampler = do_nothing,
	.CopyDescriptors = do_nothing,
	.CopyDescriptorsSimple = do_nothing,
	.GetResourceAllocationInfo = (method_fn *)no_allocation,
	.GetCustomHeapProperties = (method_fn *)no_heap,
	.CreateCommittedResource = REFUSED,
	.CreateHeap = REFUSED,
	.CreatePlacedResource = REFUSED,
	.CreateReservedResource = REFUSED,
	.CreateSharedHandle = REFUSED,
	.OpenSharedHandle = REFUSED,
	.OpenSharedHandleByName = REFUSED,
	.MakeResident = REFUSED,
	.Evict = REFUSED,
	.CreateFence = REFUSED,
	.GetDeviceRemovedReason = (method_fn *)succeed,
	.GetCopyableFootprints = do_nothing,
	.CreateQueryHeap = REFUSED,
	.SetStablePowerState = REFUSED,
	.CreateCommandSignature = REFUSED,
	.GetResourceTiling = do_nothing,
	.GetAdapterLuid = device_get_adapter_luid,
	.CreatePipelineLibrary = REFUSED,
	.SetEventOnMultipleFenceCompletion = REFUSED,
	.SetResidencyPriority = REFUSED,
	.CreatePipelineState = REFUSED,
	.OpenExistingHeapFromAddress = REFUSED,
	.OpenExistingHeapFromFileMapping = REFUSED,
	.EnqueueMakeResident = REFUSED,
	.CreateCommandList1 = REFUSED,
	.CreateProtectedResourceSession = REFUSED,
	.CreateCommittedResource1 = REFUSED,
	.CreateHeap1 = REFUSED,
	.CreateReservedResource1 = REFUSED,
	.GetResourceAllocationInfo1 = (method_fn *)no_allocation,
	.CreateLifetimeTracker = REFUSED,
	.RemoveDevice = do_nothing,
	.EnumerateMetaCommands = REFUSED,
	.EnumerateMetaCommandParameters = REFUSED,
	.CreateMetaCommand = REFUSED,
	.CreateStateObject = REFUSED,
	.GetRaytracingAccelerationStructurePrebuildInfo = do_nothing,
	.CheckDriverMatchingIdentifier = (method_fn *)one,
	.SetBackgroundProcessingMode = REFUSED,
	.AddToStateObject = REFUSED,
	.CreateProtectedResourceSession1 = REFUSED,
	.GetResourceAllocationInfo2 = (method_fn *)no_allocation,
	.CreateCommittedResource2 = REFUSED,
	.CreatePlacedResource1 = REFUSED,
	.CreateSamplerFeedbackUnorderedAccessView = do_nothing,
	.GetCopyableFootprints1 = do_nothing,
	.CreateShaderCacheSession = device_create_session,
	.ShaderCacheControl = device_control,
	.CreateCommandQueue1 = REFUSED,
};

static struct device *new_device(void)
{
	struct device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	device->face.lpVtbl = &device_methods;
	atomic_init(&device->refs, 1);
	ki_d3d12_data_init(&device->data);
	return device;
}

HRESULT kiln_d3d12_create_device(const struct kiln_d3d12_device *what,
				 REFIID riid, void **out)
{
	struct device *device;
	HRESULT result = S_OK;

	if (!out)
		return E_POINTER;
	*out = NULL;
	device = new_device();
	if (!device)
		return E_OUTOFMEMORY;
	if (what) {
		device->adapter = what->adapter;
		result = kiln_d3d12_register_device((IUnknown *)&device->face,
						    what);
	}
	if (SUCCEEDED(result))
		result = device_query(&device->face, riid, out);
	device_release(&device->face);
	return result;
}
