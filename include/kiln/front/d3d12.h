/* SPDX-License-Identifier: MIT */
#ifndef KILN_FRONT_D3D12_H
#define KILN_FRONT_D3D12_H

/*
 * Shader cache sessions of Direct3D 12, in a library of its own,
 * libkiln-d3d12: what a mapping layer or a runtime calls from its own
 * ID3D12Device9, and what a program without a device may use as it is.
 *
 *	HRESULT STDMETHODCALLTYPE device_CreateShaderCacheSession(
 *		ID3D12Device9 *This, const D3D12_SHADER_CACHE_SESSION_DESC *desc,
 *		REFIID riid, void **out)
 *	{
 *		return kiln_d3d12_create_shader_cache_session(
 *			(IUnknown *)This, desc, riid, out);
 *	}
 *
 * Names, sizes and order are those of Microsoft's d3d12.h, which this header
 * uses where the compiler finds it (DirectX-Headers, with its stubs for systems
 * other than Windows), so the two may be included in any order.  Where it does
 * not, the little that concerns caches is declared here.  Who has declared it
 * elsewhere defines KILN_D3D12_DECLARED before; who wants these declarations in any
 * case, KILN_D3D12_OWN_DECLARATIONS.
 *
 * Threads    Everything may be called from any thread.  No lock is held while
 *            a method of the host's device or its callback runs.
 * Processes  As many as you like may have a disk cache open.
 * fork()     A session that was inherited answers
 *            DXGI_ERROR_NOT_CURRENTLY_AVAILABLE, and may be released.
 * Answers    HRESULTs as Windows gives them; README.md of the module has the
 *            list, and where it differs from what is written elsewhere.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

#include <kiln/api.h>

#if defined(__vkd3d_d3d12_h__)
#error "vkd3d's d3d12.h has another calling convention: not with this header"
#endif

#if defined(KILN_D3D12_DECLARED) || defined(__d3d12_h__) ||                    \
	defined(KILN_D3D12_OWN_DECLARATIONS)
/* All is there, or is not wanted. */
#elif defined(_WIN32)
#include <d3d12.h>
#elif defined(__has_include)
#if __has_include(<rpcndr.h>) && __has_include(<wsl/winadapter.h>) &&           \
	__has_include(<directx/d3d12.h>)
#include <wsl/winadapter.h>
#include <directx/d3d12.h>
#endif
#endif

#if !defined(KILN_D3D12_DECLARED) && !defined(__d3d12_h__)
#ifndef KILN_D3D12_OWN_DECLARATIONS
#define KILN_D3D12_OWN_DECLARATIONS
#endif

/* ---- Windows' types, as DirectX-Headers has them elsewhere --------------- */

#ifndef STDMETHODCALLTYPE
#define STDMETHODCALLTYPE
#endif

typedef int32_t HRESULT, LONG, INT;
typedef uint32_t UINT, ULONG, BOOL;
typedef uint64_t UINT64;
typedef size_t SIZE_T;
typedef wchar_t WCHAR;
typedef const WCHAR *LPCWSTR;

typedef struct _GUID {
	uint32_t Data1;
	uint16_t Data2;
	uint16_t Data3;
	uint8_t Data4[8];
} GUID;
typedef GUID IID;

typedef struct _LUID {
	ULONG LowPart;
	LONG HighPart;
} LUID;

#ifdef __cplusplus
#define REFGUID const GUID &
#define REFIID	const IID &
#else
#define REFGUID const GUID *
#define REFIID	const IID *
#endif

#define SUCCEEDED(hr) ((HRESULT)(hr) >= 0)
#define FAILED(hr)    ((HRESULT)(hr) < 0)

#define KILN_D3D12_IID(name, l, w1, w2, b1, b2, b3, b4, b5, b6, b7, b8)        \
	__attribute__((unused)) static const IID name = {                      \
		l, w1, w2, { b1, b2, b3, b4, b5, b6, b7, b8 }                  \
	}

/* clang-format off */
KILN_D3D12_IID(IID_IUnknown,
	0x00000000, 0x0000, 0x0000, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x46);
KILN_D3D12_IID(IID_ID3D12Object,
	0xc4fec28f, 0x7966, 0x4e95, 0x9f, 0x94, 0xf4, 0x31, 0xcb, 0x56, 0xc3, 0xb8);
KILN_D3D12_IID(IID_ID3D12DeviceChild,
	0x905db94b, 0xa00c, 0x4140, 0x9d, 0xf5, 0x2b, 0x64, 0xca, 0x9e, 0xa3, 0x57);
KILN_D3D12_IID(IID_ID3D12ShaderCacheSession,
	0x28e2495d, 0x0f64, 0x4ae4, 0xa6, 0xec, 0x12, 0x92, 0x55, 0xdc, 0x49, 0xa8);
KILN_D3D12_IID(IID_ID3D12Device,
	0x189819f1, 0x1db6, 0x4b57, 0xbe, 0x54, 0x18, 0x21, 0x33, 0x9b, 0x85, 0xf7);
KILN_D3D12_IID(IID_ID3D12Device1,
	0x77acce80, 0x638e, 0x4e65, 0x88, 0x95, 0xc1, 0xf2, 0x33, 0x86, 0x86, 0x3e);
KILN_D3D12_IID(IID_ID3D12Device2,
	0x30baa41e, 0xb15b, 0x475c, 0xa0, 0xbb, 0x1a, 0xf5, 0xc5, 0xb6, 0x43, 0x28);
KILN_D3D12_IID(IID_ID3D12Device3,
	0x81dadc15, 0x2bad, 0x4392, 0x93, 0xc5, 0x10, 0x13, 0x45, 0xc4, 0xaa, 0x98);
KILN_D3D12_IID(IID_ID3D12Device4,
	0xe865df17, 0xa9ee, 0x46f9, 0xa4, 0x63, 0x30, 0x98, 0x31, 0x5a, 0xa2, 0xe5);
KILN_D3D12_IID(IID_ID3D12Device5,
	0x8b4f173b, 0x2fea, 0x4b80, 0x8f, 0x58, 0x43, 0x07, 0x19, 0x1a, 0xb9, 0x5d);
KILN_D3D12_IID(IID_ID3D12Device6,
	0xc70b221b, 0x40e4, 0x4a17, 0x89, 0xaf, 0x02, 0x5a, 0x07, 0x27, 0xa6, 0xdc);
KILN_D3D12_IID(IID_ID3D12Device7,
	0x5c014b53, 0x68a1, 0x4b9b, 0x8b, 0xd1, 0xdd, 0x60, 0x46, 0xb9, 0x35, 0x8b);
KILN_D3D12_IID(IID_ID3D12Device8,
	0x9218e6bb, 0xf944, 0x4f7e, 0xa7, 0x5c, 0xb1, 0xb2, 0xc7, 0xb7, 0x01, 0xf3);
KILN_D3D12_IID(IID_ID3D12Device9,
	0x4c80e962, 0xf032, 0x4f60, 0xbc, 0x9e, 0xeb, 0xc2, 0xcf, 0xa1, 0xd8, 0x3c);
KILN_D3D12_IID(WKPDID_D3DDebugObjectNameW,
	0x4cca5fd8, 0x921f, 0x42c8, 0x85, 0x66, 0x70, 0xca, 0xf2, 0xa9, 0xb7, 0x41);
/* clang-format on */
#undef KILN_D3D12_IID

/* ---- Enumerations and structures ----------------------------------------- */

typedef enum D3D12_FEATURE {
	D3D12_FEATURE_SHADER_CACHE = 19,
} D3D12_FEATURE;

typedef enum D3D12_SHADER_CACHE_SUPPORT_FLAGS {
	D3D12_SHADER_CACHE_SUPPORT_NONE = 0,
	D3D12_SHADER_CACHE_SUPPORT_SINGLE_PSO = 0x1,
	D3D12_SHADER_CACHE_SUPPORT_LIBRARY = 0x2,
	D3D12_SHADER_CACHE_SUPPORT_AUTOMATIC_INPROC_CACHE = 0x4,
	D3D12_SHADER_CACHE_SUPPORT_AUTOMATIC_DISK_CACHE = 0x8,
	D3D12_SHADER_CACHE_SUPPORT_DRIVER_MANAGED_CACHE = 0x10,
	D3D12_SHADER_CACHE_SUPPORT_SHADER_CONTROL_CLEAR = 0x20,
	D3D12_SHADER_CACHE_SUPPORT_SHADER_SESSION_DELETE = 0x40,
} D3D12_SHADER_CACHE_SUPPORT_FLAGS;

typedef struct D3D12_FEATURE_DATA_SHADER_CACHE {
	D3D12_SHADER_CACHE_SUPPORT_FLAGS SupportFlags;
} D3D12_FEATURE_DATA_SHADER_CACHE;

typedef enum D3D12_SHADER_CACHE_MODE {
	D3D12_SHADER_CACHE_MODE_MEMORY = 0,
	D3D12_SHADER_CACHE_MODE_DISK = 1,
} D3D12_SHADER_CACHE_MODE;

typedef enum D3D12_SHADER_CACHE_FLAGS {
	D3D12_SHADER_CACHE_FLAG_NONE = 0,
	D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED = 0x1,
	D3D12_SHADER_CACHE_FLAG_USE_WORKING_DIR = 0x2,
} D3D12_SHADER_CACHE_FLAGS;

typedef struct D3D12_SHADER_CACHE_SESSION_DESC {
	GUID Identifier;
	D3D12_SHADER_CACHE_MODE Mode;
	D3D12_SHADER_CACHE_FLAGS Flags;
	UINT MaximumInMemoryCacheSizeBytes;
	UINT MaximumInMemoryCacheEntries;
	UINT MaximumValueFileSizeBytes;
	UINT64 Version;
} D3D12_SHADER_CACHE_SESSION_DESC;

typedef enum D3D12_SHADER_CACHE_KIND_FLAGS {
	D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CACHE_FOR_DRIVER = 0x1,
	D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CONVERSIONS = 0x2,
	D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_DRIVER_MANAGED = 0x4,
	D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED = 0x8,
} D3D12_SHADER_CACHE_KIND_FLAGS;

typedef enum D3D12_SHADER_CACHE_CONTROL_FLAGS {
	D3D12_SHADER_CACHE_CONTROL_FLAG_DISABLE = 0x1,
	D3D12_SHADER_CACHE_CONTROL_FLAG_ENABLE = 0x2,
	D3D12_SHADER_CACHE_CONTROL_FLAG_CLEAR = 0x4,
} D3D12_SHADER_CACHE_CONTROL_FLAGS;

#ifdef __cplusplus
extern "C++" {
#define KILN_D3D12_FLAGS(type)                                                 \
	inline constexpr type operator|(type a, type b)                        \
	{                                                                      \
		return (type)((int)a | (int)b);                                \
	}                                                                      \
	inline constexpr type operator&(type a, type b)                        \
	{                                                                      \
		return (type)((int)a & (int)b);                                \
	}                                                                      \
	inline constexpr type operator^(type a, type b)                        \
	{                                                                      \
		return (type)((int)a ^ (int)b);                                \
	}                                                                      \
	inline constexpr type operator~(type a)                                \
	{                                                                      \
		return (type)(~(int)a);                                        \
	}                                                                      \
	inline type &operator|=(type &a, type b)                               \
	{                                                                      \
		return a = a | b;                                              \
	}                                                                      \
	inline type &operator&=(type &a, type b)                               \
	{                                                                      \
		return a = a & b;                                              \
	}
KILN_D3D12_FLAGS(D3D12_SHADER_CACHE_SUPPORT_FLAGS)
KILN_D3D12_FLAGS(D3D12_SHADER_CACHE_FLAGS)
KILN_D3D12_FLAGS(D3D12_SHADER_CACHE_KIND_FLAGS)
KILN_D3D12_FLAGS(D3D12_SHADER_CACHE_CONTROL_FLAGS)
#undef KILN_D3D12_FLAGS
}
#endif

/* ---- Interfaces ---------------------------------------------------------- */

/*
 * Each list of methods is written once, for C and C++: M(type, returned, name,
 * parameters...), M0 without parameters, MX where only the place counts, because
 * the method has nothing to do with caches.
 */
/* clang-format off */
#define KILN_D3D12_UNKNOWN(M, M0, T)					       \
	M(T, HRESULT, QueryInterface, REFIID riid, void **ppvObject)	       \
	M0(T, ULONG, AddRef)						       \
	M0(T, ULONG, Release)

#define KILN_D3D12_OBJECT(M, T)						       \
	M(T, HRESULT, GetPrivateData, REFGUID guid, UINT *pDataSize,	       \
	  void *pData)							       \
	M(T, HRESULT, SetPrivateData, REFGUID guid, UINT DataSize,	       \
	  const void *pData)						       \
	M(T, HRESULT, SetPrivateDataInterface, REFGUID guid,		       \
	  const IUnknown *pData)					       \
	M(T, HRESULT, SetName, LPCWSTR Name)

#define KILN_D3D12_DEVICE_CHILD(M, T)					       \
	M(T, HRESULT, GetDevice, REFIID riid, void **ppvDevice)

#define KILN_D3D12_SESSION(M, M0, T)					       \
	M(T, HRESULT, FindValue, const void *pKey, UINT KeySize,	       \
	  void *pValue, UINT *pValueSize)				       \
	M(T, HRESULT, StoreValue, const void *pKey, UINT KeySize,	       \
	  const void *pValue, UINT ValueSize)				       \
	M0(T, void, SetDeleteOnDestroy)					       \
	M0(T, D3D12_SHADER_CACHE_SESSION_DESC, GetDesc)

#define KILN_D3D12_DEVICE(M, M0, MX, T)					       \
	M0(T, UINT, GetNodeCount)					       \
	MX(CreateCommandQueue) MX(CreateCommandAllocator)		       \
	MX(CreateGraphicsPipelineState)					       \
	MX(CreateComputePipelineState) MX(CreateCommandList)		       \
	M(T, HRESULT, CheckFeatureSupport, D3D12_FEATURE Feature,	       \
	  void *pFeatureSupportData, UINT FeatureSupportDataSize)	       \
	MX(CreateDescriptorHeap)					       \
	MX(GetDescriptorHandleIncrementSize) MX(CreateRootSignature)	       \
	MX(CreateConstantBufferView) MX(CreateShaderResourceView)	       \
	MX(CreateUnorderedAccessView) MX(CreateRenderTargetView)	       \
	MX(CreateDepthStencilView) MX(CreateSampler)			       \
	MX(CopyDescriptors) MX(CopyDescriptorsSimple)			       \
	MX(GetResourceAllocationInfo) MX(GetCustomHeapProperties)	       \
	MX(CreateCommittedResource) MX(CreateHeap)			       \
	MX(CreatePlacedResource) MX(CreateReservedResource)		       \
	MX(CreateSharedHandle) MX(OpenSharedHandle)			       \
	MX(OpenSharedHandleByName) MX(MakeResident) MX(Evict)		       \
	MX(CreateFence) MX(GetDeviceRemovedReason)			       \
	MX(GetCopyableFootprints) MX(CreateQueryHeap)			       \
	MX(SetStablePowerState) MX(CreateCommandSignature)		       \
	MX(GetResourceTiling)						       \
	M0(T, LUID, GetAdapterLuid)

#define KILN_D3D12_DEVICE1(MX)						       \
	MX(CreatePipelineLibrary)					       \
	MX(SetEventOnMultipleFenceCompletion)				       \
	MX(SetResidencyPriority)

#define KILN_D3D12_DEVICE2(MX)						       \
	MX(CreatePipelineState)

#define KILN_D3D12_DEVICE3(MX)						       \
	MX(OpenExistingHeapFromAddress)					       \
	MX(OpenExistingHeapFromFileMapping) MX(EnqueueMakeResident)

#define KILN_D3D12_DEVICE4(MX)						       \
	MX(CreateCommandList1) MX(CreateProtectedResourceSession)	       \
	MX(CreateCommittedResource1) MX(CreateHeap1)			       \
	MX(CreateReservedResource1) MX(GetResourceAllocationInfo1)

#define KILN_D3D12_DEVICE5(MX)						       \
	MX(CreateLifetimeTracker) MX(RemoveDevice)			       \
	MX(EnumerateMetaCommands) MX(EnumerateMetaCommandParameters)	       \
	MX(CreateMetaCommand) MX(CreateStateObject)			       \
	MX(GetRaytracingAccelerationStructurePrebuildInfo)		       \
	MX(CheckDriverMatchingIdentifier)

#define KILN_D3D12_DEVICE6(MX)						       \
	MX(SetBackgroundProcessingMode)

#define KILN_D3D12_DEVICE7(MX)						       \
	MX(AddToStateObject) MX(CreateProtectedResourceSession1)

#define KILN_D3D12_DEVICE8(MX)						       \
	MX(GetResourceAllocationInfo2) MX(CreateCommittedResource2)	       \
	MX(CreatePlacedResource1)					       \
	MX(CreateSamplerFeedbackUnorderedAccessView)			       \
	MX(GetCopyableFootprints1)

#define KILN_D3D12_DEVICE9(M, MX, T)					       \
	M(T, HRESULT, CreateShaderCacheSession,				       \
	  const D3D12_SHADER_CACHE_SESSION_DESC *pDesc, REFIID riid,	       \
	  void **ppvSession)						       \
	M(T, HRESULT, ShaderCacheControl,				       \
	  D3D12_SHADER_CACHE_KIND_FLAGS Kinds,				       \
	  D3D12_SHADER_CACHE_CONTROL_FLAGS Control)			       \
	MX(CreateCommandQueue1)

/* clang-format on */

#if defined(__cplusplus) && !defined(CINTERFACE)

#define KILN_D3D12_M(type, returned, name, ...)                                \
	virtual returned STDMETHODCALLTYPE name(__VA_ARGS__) = 0;
#define KILN_D3D12_M0(type, returned, name)                                    \
	virtual returned STDMETHODCALLTYPE name() = 0;
#define KILN_D3D12_MX(name) virtual void STDMETHODCALLTYPE name() = 0;

struct IUnknown {
	KILN_D3D12_UNKNOWN(KILN_D3D12_M, KILN_D3D12_M0, )
};
struct ID3D12Object : public IUnknown {
	KILN_D3D12_OBJECT(KILN_D3D12_M, )
};
struct ID3D12DeviceChild : public ID3D12Object {
	KILN_D3D12_DEVICE_CHILD(KILN_D3D12_M, )
};
struct ID3D12ShaderCacheSession : public ID3D12DeviceChild {
	KILN_D3D12_SESSION(KILN_D3D12_M, KILN_D3D12_M0, )
};
struct ID3D12Device : public ID3D12Object {
	KILN_D3D12_DEVICE(KILN_D3D12_M, KILN_D3D12_M0, KILN_D3D12_MX, )
};
struct ID3D12Device1 : public ID3D12Device {
	KILN_D3D12_DEVICE1(KILN_D3D12_MX)
};
struct ID3D12Device2 : public ID3D12Device1 {
	KILN_D3D12_DEVICE2(KILN_D3D12_MX)
};
struct ID3D12Device3 : public ID3D12Device2 {
	KILN_D3D12_DEVICE3(KILN_D3D12_MX)
};
struct ID3D12Device4 : public ID3D12Device3 {
	KILN_D3D12_DEVICE4(KILN_D3D12_MX)
};
struct ID3D12Device5 : public ID3D12Device4 {
	KILN_D3D12_DEVICE5(KILN_D3D12_MX)
};
struct ID3D12Device6 : public ID3D12Device5 {
	KILN_D3D12_DEVICE6(KILN_D3D12_MX)
};
struct ID3D12Device7 : public ID3D12Device6 {
	KILN_D3D12_DEVICE7(KILN_D3D12_MX)
};
struct ID3D12Device8 : public ID3D12Device7 {
	KILN_D3D12_DEVICE8(KILN_D3D12_MX)
};
struct ID3D12Device9 : public ID3D12Device8 {
	KILN_D3D12_DEVICE9(KILN_D3D12_M, KILN_D3D12_MX, )
};

#else /* C */

#define KILN_D3D12_M(type, returned, name, ...)                                \
	returned(STDMETHODCALLTYPE *name)(type * This, __VA_ARGS__);
#define KILN_D3D12_M0(type, returned, name)                                    \
	returned(STDMETHODCALLTYPE *name)(type * This);
#define KILN_D3D12_MX(name) void(STDMETHODCALLTYPE * name)(void);

typedef struct IUnknown IUnknown;
typedef struct IUnknownVtbl {
	KILN_D3D12_UNKNOWN(KILN_D3D12_M, KILN_D3D12_M0, IUnknown)
} IUnknownVtbl;
struct IUnknown {
	struct IUnknownVtbl *lpVtbl;
};

typedef struct ID3D12Object ID3D12Object;
typedef struct ID3D12ObjectVtbl {
	KILN_D3D12_UNKNOWN(KILN_D3D12_M, KILN_D3D12_M0, ID3D12Object)
	KILN_D3D12_OBJECT(KILN_D3D12_M, ID3D12Object)
} ID3D12ObjectVtbl;
struct ID3D12Object {
	struct ID3D12ObjectVtbl *lpVtbl;
};

typedef struct ID3D12DeviceChild ID3D12DeviceChild;
typedef struct ID3D12DeviceChildVtbl {
	KILN_D3D12_UNKNOWN(KILN_D3D12_M, KILN_D3D12_M0, ID3D12DeviceChild)
	KILN_D3D12_OBJECT(KILN_D3D12_M, ID3D12DeviceChild)
	KILN_D3D12_DEVICE_CHILD(KILN_D3D12_M, ID3D12DeviceChild)
} ID3D12DeviceChildVtbl;
struct ID3D12DeviceChild {
	struct ID3D12DeviceChildVtbl *lpVtbl;
};

typedef struct ID3D12ShaderCacheSession ID3D12ShaderCacheSession;
typedef struct ID3D12ShaderCacheSessionVtbl {
	KILN_D3D12_UNKNOWN(KILN_D3D12_M, KILN_D3D12_M0,
			   ID3D12ShaderCacheSession)
	KILN_D3D12_OBJECT(KILN_D3D12_M, ID3D12ShaderCacheSession)
	KILN_D3D12_DEVICE_CHILD(KILN_D3D12_M, ID3D12ShaderCacheSession)
	KILN_D3D12_SESSION(KILN_D3D12_M, KILN_D3D12_M0,
			   ID3D12ShaderCacheSession)
} ID3D12ShaderCacheSessionVtbl;
struct ID3D12ShaderCacheSession {
	struct ID3D12ShaderCacheSessionVtbl *lpVtbl;
};

typedef struct ID3D12Device9 ID3D12Device9;
typedef struct ID3D12Device9Vtbl {
	KILN_D3D12_UNKNOWN(KILN_D3D12_M, KILN_D3D12_M0, ID3D12Device9)
	KILN_D3D12_OBJECT(KILN_D3D12_M, ID3D12Device9)
	KILN_D3D12_DEVICE(KILN_D3D12_M, KILN_D3D12_M0, KILN_D3D12_MX,
			  ID3D12Device9)
	KILN_D3D12_DEVICE1(KILN_D3D12_MX)
	KILN_D3D12_DEVICE2(KILN_D3D12_MX)
	KILN_D3D12_DEVICE3(KILN_D3D12_MX)
	KILN_D3D12_DEVICE4(KILN_D3D12_MX)
	KILN_D3D12_DEVICE5(KILN_D3D12_MX)
	KILN_D3D12_DEVICE6(KILN_D3D12_MX)
	KILN_D3D12_DEVICE7(KILN_D3D12_MX)
	KILN_D3D12_DEVICE8(KILN_D3D12_MX)
	KILN_D3D12_DEVICE9(KILN_D3D12_M, KILN_D3D12_MX, ID3D12Device9)
} ID3D12Device9Vtbl;
struct ID3D12Device9 {
	struct ID3D12Device9Vtbl *lpVtbl;
};

#ifdef COBJMACROS
#define IUnknown_QueryInterface(This, riid, out)                               \
	((This)->lpVtbl->QueryInterface(This, riid, out))
#define IUnknown_AddRef(This)  ((This)->lpVtbl->AddRef(This))
#define IUnknown_Release(This) ((This)->lpVtbl->Release(This))

#define ID3D12ShaderCacheSession_QueryInterface(This, riid, out)               \
	((This)->lpVtbl->QueryInterface(This, riid, out))
#define ID3D12ShaderCacheSession_AddRef(This)  ((This)->lpVtbl->AddRef(This))
#define ID3D12ShaderCacheSession_Release(This) ((This)->lpVtbl->Release(This))
#define ID3D12ShaderCacheSession_GetPrivateData(This, guid, size, data)        \
	((This)->lpVtbl->GetPrivateData(This, guid, size, data))
#define ID3D12ShaderCacheSession_SetPrivateData(This, guid, size, data)        \
	((This)->lpVtbl->SetPrivateData(This, guid, size, data))
#define ID3D12ShaderCacheSession_SetPrivateDataInterface(This, guid, data)     \
	((This)->lpVtbl->SetPrivateDataInterface(This, guid, data))
#define ID3D12ShaderCacheSession_SetName(This, name)                           \
	((This)->lpVtbl->SetName(This, name))
#define ID3D12ShaderCacheSession_GetDevice(This, riid, out)                    \
	((This)->lpVtbl->GetDevice(This, riid, out))
#define ID3D12ShaderCacheSession_FindValue(This, key, key_size, value, size)   \
	((This)->lpVtbl->FindValue(This, key, key_size, value, size))
#define ID3D12ShaderCacheSession_StoreValue(This, key, key_size, value, size)  \
	((This)->lpVtbl->StoreValue(This, key, key_size, value, size))
#define ID3D12ShaderCacheSession_SetDeleteOnDestroy(This)                      \
	((This)->lpVtbl->SetDeleteOnDestroy(This))
#define ID3D12ShaderCacheSession_GetDesc(This) ((This)->lpVtbl->GetDesc(This))

#define ID3D12Device9_QueryInterface(This, riid, out)                          \
	((This)->lpVtbl->QueryInterface(This, riid, out))
#define ID3D12Device9_AddRef(This)  ((This)->lpVtbl->AddRef(This))
#define ID3D12Device9_Release(This) ((This)->lpVtbl->Release(This))
#define ID3D12Device9_CheckFeatureSupport(This, feature, data, size)           \
	((This)->lpVtbl->CheckFeatureSupport(This, feature, data, size))
#define ID3D12Device9_GetAdapterLuid(This)                                     \
	((This)->lpVtbl->GetAdapterLuid(This))
#define ID3D12Device9_CreateShaderCacheSession(This, desc, riid, out)          \
	((This)->lpVtbl->CreateShaderCacheSession(This, desc, riid, out))
#define ID3D12Device9_ShaderCacheControl(This, kinds, control)                 \
	((This)->lpVtbl->ShaderCacheControl(This, kinds, control))
#endif /* COBJMACROS */

#endif /* C */

#undef KILN_D3D12_M
#undef KILN_D3D12_M0
#undef KILN_D3D12_MX
#undef KILN_D3D12_UNKNOWN
#undef KILN_D3D12_OBJECT
#undef KILN_D3D12_DEVICE_CHILD
#undef KILN_D3D12_SESSION
#undef KILN_D3D12_DEVICE
#undef KILN_D3D12_DEVICE1
#undef KILN_D3D12_DEVICE2
#undef KILN_D3D12_DEVICE3
#undef KILN_D3D12_DEVICE4
#undef KILN_D3D12_DEVICE5
#undef KILN_D3D12_DEVICE6
#undef KILN_D3D12_DEVICE7
#undef KILN_D3D12_DEVICE8
#undef KILN_D3D12_DEVICE9

#endif /* own declarations */

/* ---- Answers ------------------------------------------------------------- */

/* Some of these are in no header for systems other than Windows. */
#ifndef S_OK
#define S_OK ((HRESULT)0L)
#endif
#ifndef S_FALSE
#define S_FALSE ((HRESULT)1L)
#endif
#ifndef E_NOTIMPL
#define E_NOTIMPL ((HRESULT)0x80004001L)
#endif
#ifndef E_NOINTERFACE
#define E_NOINTERFACE ((HRESULT)0x80004002L)
#endif
#ifndef E_POINTER
#define E_POINTER ((HRESULT)0x80004003L)
#endif
#ifndef E_ACCESSDENIED
#define E_ACCESSDENIED ((HRESULT)0x80070005L)
#endif
#ifndef E_OUTOFMEMORY
#define E_OUTOFMEMORY ((HRESULT)0x8007000EL)
#endif
#ifndef E_INVALIDARG
#define E_INVALIDARG ((HRESULT)0x80070057L)
#endif
#ifndef DXGI_ERROR_NOT_FOUND
#define DXGI_ERROR_NOT_FOUND ((HRESULT)0x887A0002L)
#endif
#ifndef DXGI_ERROR_MORE_DATA
#define DXGI_ERROR_MORE_DATA ((HRESULT)0x887A0003L)
#endif
#ifndef DXGI_ERROR_NOT_CURRENTLY_AVAILABLE
#define DXGI_ERROR_NOT_CURRENTLY_AVAILABLE ((HRESULT)0x887A0022L)
#endif
#ifndef DXGI_ERROR_CACHE_CORRUPT
#define DXGI_ERROR_CACHE_CORRUPT ((HRESULT)0x887A0033L)
#endif
#ifndef DXGI_ERROR_CACHE_FULL
#define DXGI_ERROR_CACHE_FULL ((HRESULT)0x887A0034L)
#endif
#ifndef DXGI_ERROR_CACHE_HASH_COLLISION
#define DXGI_ERROR_CACHE_HASH_COLLISION ((HRESULT)0x887A0035L)
#endif
#ifndef DXGI_ERROR_ALREADY_EXISTS
#define DXGI_ERROR_ALREADY_EXISTS ((HRESULT)0x887A0036L)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What a driver tells its runtime --------------------------------------- */

/* The device as its driver knows it.  Who has it from elsewhere defines
   KILN_D3D12_HAS_HDEVICE. */
#ifndef KILN_D3D12_HAS_HDEVICE
typedef struct D3D12DDI_HDEVICE {
	void *pDrvPrivate;
} D3D12DDI_HDEVICE;
#endif

typedef enum D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAGS_008n {
	D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAG_008n_DISABLE = 0,
	D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAG_008n_ENABLE = 1,
	D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAG_008n_CLEAR = 2,
} D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAGS_008n;

typedef HRESULT (*PFND3D12DDI_IMPLICITSHADERCACHECONTROL_008n)(
	D3D12DDI_HDEVICE, D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAGS_008n);

struct kiln_d3d12_device {
	size_t size;  /* set by kiln_d3d12_device_init() */
	LUID adapter; /* adapter and driver name DRIVER_VERSIONED caches */
	uint64_t driver_version;
	/* Whether the driver has a cache of its own, and how it is told what
	   becomes of it: one call for each flag of ShaderCacheControl(), CLEAR
	   first.  NULL: it is not told. */
	BOOL DriverManagedShaderCachePresent;
	PFND3D12DDI_IMPLICITSHADERCACHECONTROL_008n
		pfnImplicitShaderCacheControl;
	D3D12DDI_HDEVICE handle;
};

static inline void kiln_d3d12_device_init(struct kiln_d3d12_device *device)
{
	memset(device, 0, sizeof(*device));
	device->size = sizeof(*device);
}

/*
 * Say what is to be known of a device, which may be any object with IUnknown;
 * `what` is copied.  It counts for sessions created from then on, and until it
 * is taken back, which the host does before the device is gone: no reference is
 * held.  A device that nobody has told of can have everything but sessions with
 * DRIVER_VERSIONED (E_INVALIDARG).  Errors: E_INVALIDARG, E_OUTOFMEMORY.
 */
KILN_API HRESULT kiln_d3d12_register_device(
	IUnknown *device, const struct kiln_d3d12_device *what);
KILN_API void kiln_d3d12_unregister_device(IUnknown *device);

/* ---- What a device's methods call -------------------------------------------- */

/*
 * ID3D12Device9::CreateShaderCacheSession().  The session holds a reference on
 * `device`.  *out is left alone by what is wrong with the arguments, and NULL
 * after other errors:
 *   S_FALSE	     all is well, but out is NULL
 *   E_INVALIDARG    desc, its identifier, mode, flags, or a value file larger
 *		     than 1 GiB; DRIVER_VERSIONED of an unknown device
 *   E_NOINTERFACE   riid is none of a session's
 *   DXGI_ERROR_ALREADY_EXISTS  another session, here or in another process, has
 *		     this cache open with another version
 *   DXGI_ERROR_NOT_CURRENTLY_AVAILABLE  caches are disabled
 *   E_ACCESSDENIED  the directory is not ours to trust or, with USE_WORKING_DIR,
 *                   a file in it
 *   DXGI_ERROR_CACHE_CORRUPT  the files can be neither used nor replaced
 *   E_OUTOFMEMORY
 * A disk cache for which there is no place (no home, no permission, KILN_DISABLE)
 * is kept in memory.
 */
KILN_API HRESULT kiln_d3d12_create_shader_cache_session(
	IUnknown *device, const D3D12_SHADER_CACHE_SESSION_DESC *desc,
	REFIID riid, void **out);

/*
 * ID3D12Device9::ShaderCacheControl().
 *   DXGI_ERROR_NOT_CURRENTLY_AVAILABLE  not in developer mode
 *   E_INVALIDARG  unknown bits, no kind, no control, or ENABLE with DISABLE
 * and what the host's callback answers.
 */
KILN_API HRESULT kiln_d3d12_shader_cache_control(
	IUnknown *device, D3D12_SHADER_CACHE_KIND_FLAGS kinds,
	D3D12_SHADER_CACHE_CONTROL_FLAGS control);

/* Of D3D12_FEATURE_SHADER_CACHE, as far as it is kiln's: a host adds what it has
   itself. */
KILN_API D3D12_SHADER_CACHE_SUPPORT_FLAGS
kiln_d3d12_support_flags(IUnknown *device);

/* The kinds that are disabled in this process now. */
KILN_API D3D12_SHADER_CACHE_KIND_FLAGS kiln_d3d12_disabled_kinds(void);

/* ---- Settings ------------------------------------------------------------------ */

/* Whether ShaderCacheControl() may be used: 1 or 0; -1, as at first: as the
   setting KILN_D3D12_DEVELOPER says. */
KILN_API void kiln_d3d12_set_developer_mode(int is_on);

/*
 * Caches on disk belong to the executable (its path).  Programs that give the
 * same name here share theirs; NULL: by executable again.  Counts for sessions
 * created from then on.  Errors: E_OUTOFMEMORY.
 */
KILN_API HRESULT kiln_d3d12_share_caches(const char *name);

/* ---- A device ------------------------------------------------------------------ */

/*
 * A minimal ID3D12Device9 (and ID3D12Device to ID3D12Device8), for tests and for
 * programs that have none: identity, private data, names, GetAdapterLuid(),
 * CheckFeatureSupport(D3D12_FEATURE_SHADER_CACHE) and the two methods above.
 * Whatever else is called answers E_NOTIMPL or does nothing.  `what` may be NULL:
 * then nothing is known of adapter and driver.
 * Errors: E_INVALIDARG, E_POINTER, E_NOINTERFACE, E_OUTOFMEMORY.
 */
KILN_API HRESULT kiln_d3d12_create_device(const struct kiln_d3d12_device *what,
					  REFIID riid, void **out);

#ifdef __cplusplus
}
#endif
#endif /* KILN_FRONT_D3D12_H */
