/* SPDX-License-Identifier: MIT */

/* A program in C++, compiled with our declarations and with Microsoft's; its
   device is its own, as a runtime's is, and is any object with IUnknown. */

#ifdef OFFICIAL
#include <wsl/winadapter.h>
#include <directx/d3d12.h>
#endif
#include <kiln/front/d3d12.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "harness/harness.h"
}

#if defined(OFFICIAL) == defined(KILN_D3D12_OWN_DECLARATIONS)
#error "these are not the declarations that are to be tested"
#endif

namespace
{

int is_iid(const IID &a, const IID &b)
{
	return !std::memcmp(&a, &b, sizeof(a));
}

class Device final : public IUnknown
{
	std::atomic<ULONG> refs{ 1 };

      public:
	virtual ~Device() = default;

	HRESULT STDMETHODCALLTYPE QueryInterface(REFIID riid,
						 void **out) override
	{
		*out = is_iid(riid, IID_IUnknown) ? this : nullptr;
		if (!*out)
			return E_NOINTERFACE;
		AddRef();
		return S_OK;
	}

	ULONG STDMETHODCALLTYPE AddRef() override
	{
		return ++refs;
	}

	ULONG STDMETHODCALLTYPE Release() override
	{
		return --refs;
	}
};

D3D12_SHADER_CACHE_SESSION_DESC make_desc()
{
	D3D12_SHADER_CACHE_SESSION_DESC desc = {};

	desc.Identifier.Data1 = 0xcc;
	desc.Mode = D3D12_SHADER_CACHE_MODE_DISK;
	desc.Flags = D3D12_SHADER_CACHE_FLAG_NONE |
		     D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED;
	desc.Version = 7;
	return desc;
}

void a_host_in_cpp_uses_a_session(void **state)
{
	const D3D12_SHADER_CACHE_SESSION_DESC desc = make_desc();
	D3D12_SHADER_CACHE_SESSION_DESC told;
	ID3D12ShaderCacheSession *session = nullptr;
	kiln_d3d12_device what;
	IUnknown *unknown;
	void *out = nullptr;
	char value[8] = "";
	UINT size = 0;
	Device device;

	(void)state;
	assert_int_equal(kiln_d3d12_create_shader_cache_session(
				 &device, &desc, IID_ID3D12ShaderCacheSession,
				 reinterpret_cast<void **>(&session)),
			 E_INVALIDARG); /* of an unknown driver */
	kiln_d3d12_device_init(&what);
	what.driver_version = 31;
	assert_int_equal(kiln_d3d12_register_device(&device, &what), S_OK);
	assert_int_equal(kiln_d3d12_create_shader_cache_session(
				 &device, &desc, IID_ID3D12ShaderCacheSession,
				 reinterpret_cast<void **>(&session)),
			 S_OK);
	assert_int_equal(
		session->QueryInterface(IID_IUnknown,
					reinterpret_cast<void **>(&unknown)),
		S_OK);
	assert_ptr_not_equal(unknown, session);
	assert_int_equal(unknown->Release(), 1);
	assert_int_equal(session->GetDevice(IID_IUnknown, &out), S_OK);
	assert_ptr_equal(out, &device);
	assert_int_equal(device.Release(), 2);

	assert_int_equal(session->StoreValue("key", 3, "value", 6), S_OK);
	assert_int_equal(session->StoreValue("key", 3, "other", 6),
			 DXGI_ERROR_ALREADY_EXISTS);
	assert_int_equal(session->FindValue("key", 3, nullptr, &size), S_OK);
	assert_int_equal(size, 6);
	assert_int_equal(session->FindValue("key", 3, value, &size), S_OK);
	assert_string_equal(value, "value");
	told = session->GetDesc();
	assert_int_equal(told.MaximumValueFileSizeBytes, 134217728);
	assert_int_equal(told.Version, 7);
	session->SetDeleteOnDestroy();
	assert_int_equal(session->Release(), 0);

	assert_int_equal(kiln_d3d12_create_shader_cache_session(
				 &device, &told, IID_ID3D12ShaderCacheSession,
				 reinterpret_cast<void **>(&session)),
			 S_OK);
	assert_int_equal(session->FindValue("key", 3, nullptr, &size),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(session->Release(), 0);
	kiln_d3d12_unregister_device(&device);
	assert_int_equal(device.Release(), 0);
}

} // namespace

int main()
{
	const CMUnitTest tests[] = {
		cmocka_unit_test(a_host_in_cpp_uses_a_session),
	};
	char *directory = harness_directory();

	setenv("KILN_DIR", directory, 1);
	std::free(directory);
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
