/* SPDX-License-Identifier: MIT */

/*
 * What others were compiled with: sizes, offsets, values and places in tables of
 * methods, in C and C++, by our own declarations or by Microsoft's.  BEFORE and
 * AFTER include Microsoft's header before or after ours.  Run, it prints the
 * identifiers of the interfaces, which are to be the same by either.
 */

#ifdef BEFORE
#include <wsl/winadapter.h>
#include <directx/d3d12.h>
#endif
#include <kiln/front/d3d12.h>
#ifdef AFTER
#include <wsl/winadapter.h>
#include <directx/d3d12.h>
#endif

#include <stdio.h>

#if (defined(BEFORE) || defined(AFTER)) == defined(KILN_D3D12_OWN_DECLARATIONS)
#error "these are not the declarations that are to be tested"
#endif

#ifdef __cplusplus
#define CHECK(is_so) static_assert(is_so, #is_so)
#else
#define CHECK(is_so) _Static_assert(is_so, #is_so)
#endif

#define SIZE(type, size) CHECK(sizeof(type) == (size))
#define AT(member, offset)                                                     \
	CHECK(offsetof(D3D12_SHADER_CACHE_SESSION_DESC, member) == (offset))

/* ---- Structures ------------------------------------------------------------- */

SIZE(GUID, 16);
SIZE(LUID, 8);
SIZE(UINT, 4);
SIZE(ULONG, 4);
SIZE(BOOL, 4);
SIZE(HRESULT, 4);
SIZE(WCHAR, sizeof(wchar_t));
SIZE(UINT64, 8);
CHECK((HRESULT)-1 < 0);

SIZE(D3D12_SHADER_CACHE_SESSION_DESC, 48);
AT(Identifier, 0);
AT(Mode, 16);
AT(Flags, 20);
AT(MaximumInMemoryCacheSizeBytes, 24);
AT(MaximumInMemoryCacheEntries, 28);
AT(MaximumValueFileSizeBytes, 32);
AT(Version, 40);
SIZE(D3D12_FEATURE_DATA_SHADER_CACHE, 4);
SIZE(D3D12_SHADER_CACHE_MODE, 4);
SIZE(D3D12_SHADER_CACHE_FLAGS, 4);
SIZE(D3D12_SHADER_CACHE_KIND_FLAGS, 4);
SIZE(D3D12_SHADER_CACHE_CONTROL_FLAGS, 4);

/* ---- Values ------------------------------------------------------------------ */

CHECK(D3D12_FEATURE_SHADER_CACHE == 19);
CHECK(D3D12_SHADER_CACHE_SUPPORT_NONE == 0);
CHECK(D3D12_SHADER_CACHE_SUPPORT_SINGLE_PSO == 1);
CHECK(D3D12_SHADER_CACHE_SUPPORT_LIBRARY == 2);
CHECK(D3D12_SHADER_CACHE_SUPPORT_AUTOMATIC_INPROC_CACHE == 4);
CHECK(D3D12_SHADER_CACHE_SUPPORT_AUTOMATIC_DISK_CACHE == 8);
CHECK(D3D12_SHADER_CACHE_SUPPORT_DRIVER_MANAGED_CACHE == 0x10);
CHECK(D3D12_SHADER_CACHE_SUPPORT_SHADER_CONTROL_CLEAR == 0x20);
CHECK(D3D12_SHADER_CACHE_SUPPORT_SHADER_SESSION_DELETE == 0x40);
CHECK(D3D12_SHADER_CACHE_MODE_MEMORY == 0);
CHECK(D3D12_SHADER_CACHE_MODE_DISK == 1);
CHECK(D3D12_SHADER_CACHE_FLAG_NONE == 0);
CHECK(D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED == 1);
CHECK(D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR == 2);
CHECK(D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CACHE_FOR_DRIVER == 1);
CHECK(D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CONVERSIONS == 2);
CHECK(D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_DRIVER_MANAGED == 4);
CHECK(D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED == 8);
CHECK(D3D12_SHADER_CACHE_CONTROL_FLAG_DISABLE == 1);
CHECK(D3D12_SHADER_CACHE_CONTROL_FLAG_ENABLE == 2);
CHECK(D3D12_SHADER_CACHE_CONTROL_FLAG_CLEAR == 4);

CHECK((uint32_t)S_OK == 0);
CHECK((uint32_t)S_FALSE == 1);
CHECK((uint32_t)E_NOTIMPL == 0x80004001);
CHECK((uint32_t)E_NOINTERFACE == 0x80004002);
CHECK((uint32_t)E_POINTER == 0x80004003);
CHECK((uint32_t)E_ACCESSDENIED == 0x80070005);
CHECK((uint32_t)E_OUTOFMEMORY == 0x8007000e);
CHECK((uint32_t)E_INVALIDARG == 0x80070057);
CHECK((uint32_t)DXGI_ERROR_NOT_FOUND == 0x887a0002);
CHECK((uint32_t)DXGI_ERROR_MORE_DATA == 0x887a0003);
CHECK((uint32_t)DXGI_ERROR_NOT_CURRENTLY_AVAILABLE == 0x887a0022);
CHECK((uint32_t)DXGI_ERROR_CACHE_CORRUPT == 0x887a0033);
CHECK((uint32_t)DXGI_ERROR_CACHE_FULL == 0x887a0034);
CHECK((uint32_t)DXGI_ERROR_CACHE_HASH_COLLISION == 0x887a0035);
CHECK((uint32_t)DXGI_ERROR_ALREADY_EXISTS == 0x887a0036);

/* ---- Methods ------------------------------------------------------------------- */

#ifdef __cplusplus

/* In C++ their order shows when they are called. */
static_assert((D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED |
	       D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR) ==
		      (D3D12_SHADER_CACHE_FLAGS)3,
	      "flags can be put together");

#else

#define SLOT(table, method, slot)                                              \
	CHECK(offsetof(table, method) == (slot) * sizeof(void *))
#define SESSION(method, slot) SLOT(ID3D12ShaderCacheSessionVtbl, method, slot)
#define DEVICE(method, slot)  SLOT(ID3D12Device9Vtbl, method, slot)

SESSION(QueryInterface, 0);
SESSION(AddRef, 1);
SESSION(Release, 2);
SESSION(GetPrivateData, 3);
SESSION(SetPrivateData, 4);
SESSION(SetPrivateDataInterface, 5);
SESSION(SetName, 6);
SESSION(GetDevice, 7);
SESSION(FindValue, 8);
SESSION(StoreValue, 9);
SESSION(SetDeleteOnDestroy, 10);
SESSION(GetDesc, 11);
SIZE(ID3D12ShaderCacheSessionVtbl, 12 * sizeof(void *));

DEVICE(QueryInterface, 0);
DEVICE(SetName, 6);
DEVICE(GetNodeCount, 7);
DEVICE(CreateCommandQueue, 8);
DEVICE(CreateCommandAllocator, 9);
DEVICE(CreateGraphicsPipelineState, 10);
DEVICE(CreateComputePipelineState, 11);
DEVICE(CreateCommandList, 12);
DEVICE(CheckFeatureSupport, 13);
DEVICE(CreateDescriptorHeap, 14);
DEVICE(GetDescriptorHandleIncrementSize, 15);
DEVICE(CreateRootSignature, 16);
DEVICE(CreateConstantBufferView, 17);
DEVICE(CreateShaderResourceView, 18);
DEVICE(CreateUnorderedAccessView, 19);
DEVICE(CreateRenderTargetView, 20);
DEVICE(CreateDepthStencilView, 21);
DEVICE(CreateSampler, 22);
DEVICE(CopyDescriptors, 23);
DEVICE(CopyDescriptorsSimple, 24);
DEVICE(GetResourceAllocationInfo, 25);
DEVICE(GetCustomHeapProperties, 26);
DEVICE(CreateCommittedResource, 27);
DEVICE(CreateHeap, 28);
DEVICE(CreatePlacedResource, 29);
DEVICE(CreateReservedResource, 30);
DEVICE(CreateSharedHandle, 31);
DEVICE(OpenSharedHandle, 32);
DEVICE(OpenSharedHandleByName, 33);
DEVICE(MakeResident, 34);
DEVICE(Evict, 35);
DEVICE(CreateFence, 36);
DEVICE(GetDeviceRemovedReason, 37);
DEVICE(GetCopyableFootprints, 38);
DEVICE(CreateQueryHeap, 39);
DEVICE(SetStablePowerState, 40);
DEVICE(CreateCommandSignature, 41);
DEVICE(GetResourceTiling, 42);
DEVICE(GetAdapterLuid, 43);
DEVICE(CreatePipelineLibrary, 44);
DEVICE(SetEventOnMultipleFenceCompletion, 45);
DEVICE(SetResidencyPriority, 46);
DEVICE(CreatePipelineState, 47);
DEVICE(OpenExistingHeapFromAddress, 48);
DEVICE(OpenExistingHeapFromFileMapping, 49);
DEVICE(EnqueueMakeResident, 50);
DEVICE(CreateCommandList1, 51);
DEVICE(CreateProtectedResourceSession, 52);
DEVICE(CreateCommittedResource1, 53);
DEVICE(CreateHeap1, 54);
DEVICE(CreateReservedResource1, 55);
DEVICE(GetResourceAllocationInfo1, 56);
DEVICE(CreateLifetimeTracker, 57);
DEVICE(RemoveDevice, 58);
DEVICE(EnumerateMetaCommands, 59);
DEVICE(EnumerateMetaCommandParameters, 60);
DEVICE(CreateMetaCommand, 61);
DEVICE(CreateStateObject, 62);
DEVICE(GetRaytracingAccelerationStructurePrebuildInfo, 63);
DEVICE(CheckDriverMatchingIdentifier, 64);
DEVICE(SetBackgroundProcessingMode, 65);
DEVICE(AddToStateObject, 66);
DEVICE(CreateProtectedResourceSession1, 67);
DEVICE(GetResourceAllocationInfo2, 68);
DEVICE(CreateCommittedResource2, 69);
DEVICE(CreatePlacedResource1, 70);
DEVICE(CreateSamplerFeedbackUnorderedAccessView, 71);
DEVICE(GetCopyableFootprints1, 72);
DEVICE(CreateShaderCacheSession, 73);
DEVICE(ShaderCacheControl, 74);
DEVICE(CreateCommandQueue1, 75);
SIZE(ID3D12Device9Vtbl, 76 * sizeof(void *));

#endif

/* ---- Identifiers ---------------------------------------------------------------- */

static void tell(const char *name, const IID *iid)
{
	const unsigned char *bytes = (const unsigned char *)iid;

	for (size_t i = 0; i < sizeof(*iid); i++)
		printf("%02x", bytes[i]);
	printf(" %s\n", name);
}

int main(void)
{
	tell("IUnknown", &IID_IUnknown);
	tell("ID3D12Object", &IID_ID3D12Object);
	tell("ID3D12DeviceChild", &IID_ID3D12DeviceChild);
	tell("ID3D12ShaderCacheSession", &IID_ID3D12ShaderCacheSession);
	tell("ID3D12Device", &IID_ID3D12Device);
	tell("ID3D12Device1", &IID_ID3D12Device1);
	tell("ID3D12Device2", &IID_ID3D12Device2);
	tell("ID3D12Device3", &IID_ID3D12Device3);
	tell("ID3D12Device4", &IID_ID3D12Device4);
	tell("ID3D12Device5", &IID_ID3D12Device5);
	tell("ID3D12Device6", &IID_ID3D12Device6);
	tell("ID3D12Device7", &IID_ID3D12Device7);
	tell("ID3D12Device8", &IID_ID3D12Device8);
	tell("ID3D12Device9", &IID_ID3D12Device9);
	tell("the name of an object", &WKPDID_D3DDebugObjectNameW);
	return 0;
}
