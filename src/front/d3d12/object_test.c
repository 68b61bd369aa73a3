/* SPDX-License-Identifier: MIT */

/* Private data and names, and the minimal device. */

#include "harness/harness.h"

#include "front/d3d12/helpers_test.h"

#include <stdio.h>

static const GUID guid = { 1, 2, 3, { 4, 5, 6, 7, 8, 9, 10, 11 } };
static const GUID other_guid = { 2, 2, 3, { 4, 5, 6, 7, 8, 9, 10, 11 } };

static ID3D12Device9 *new_device(void)
{
	ID3D12Device9 *device;

	assert_int_equal(kiln_d3d12_create_device(NULL, &IID_ID3D12Device9,
						  (void **)&device),
			 S_OK);
	return device;
}

/* An object like the callers', which says when it is gone. */
struct counted {
	IUnknown face;
	ULONG refs;
};

static HRESULT STDMETHODCALLTYPE counted_query(IUnknown *this, REFIID riid,
					       void **out)
{
	*out = this;
	((struct counted *)this)->refs++;
	return S_OK;
}

static ULONG STDMETHODCALLTYPE counted_add_ref(IUnknown *this)
{
	return ++((struct counted *)this)->refs;
}

static ULONG STDMETHODCALLTYPE counted_release(IUnknown *this)
{
	return --((struct counted *)this)->refs;
}

static IUnknownVtbl counted_methods = { counted_query, counted_add_ref,
					counted_release };

/* ---- Private data ------------------------------------------------------------ */

static void bytes_are_kept_and_removed(void **state)
{
	ID3D12Device9 *device = new_device();
	ID3D12Device9Vtbl *methods = device->lpVtbl;
	char out[8] = "";
	UINT size = 77;

	assert_int_equal(methods->GetPrivateData(device, &guid, &size, out),
			 DXGI_ERROR_NOT_FOUND);
	assert_int_equal(size, 0);
	assert_int_equal(methods->GetPrivateData(device, &guid, NULL, out),
			 E_INVALIDARG);
	assert_int_equal(methods->GetPrivateData(device, NULL, &size, out),
			 E_INVALIDARG);
	assert_int_equal(methods->SetPrivateData(device, &guid, 0, NULL),
			 S_FALSE);
	assert_int_equal(methods->SetPrivateData(device, &guid, 3, "abc"),
			 S_OK);
	assert_int_equal(methods->SetPrivateData(device, &other_guid, 2, "xy"),
			 S_OK);
	assert_int_equal(methods->GetPrivateData(device, &guid, &size, NULL),
			 S_OK);
	assert_int_equal(size, 3);
	size = 2;
	assert_int_equal(methods->GetPrivateData(device, &guid, &size, out),
			 DXGI_ERROR_MORE_DATA);
	assert_int_equal(size, 3);
	assert_string_equal(out, "");
	size = 8;
	assert_int_equal(methods->GetPrivateData(device, &guid, &size, out),
			 S_OK);
	assert_int_equal(size, 3);
	assert_string_equal(out, "abc");
	assert_int_equal(methods->SetPrivateData(device, &guid, 1, "d"), S_OK);
	assert_int_equal(methods->GetPrivateData(device, &guid, &size, out),
			 S_OK);
	assert_int_equal(size, 1);
	assert_int_equal(methods->SetPrivateData(device, &guid, 5, NULL), S_OK);
	assert_int_equal(methods->SetPrivateData(device, &guid, 5, NULL),
			 S_FALSE);
	assert_int_equal(ID3D12Device9_Release(device), 0);
}

static void interfaces_are_counted(void **state)
{
	struct counted object = { { &counted_methods }, 1 };
	ID3D12Device9 *device = new_device();
	ID3D12Device9Vtbl *methods = device->lpVtbl;
	IUnknown *out = NULL;
	UINT size = sizeof(out);

	assert_int_equal(
		methods->SetPrivateDataInterface(device, &guid, &object.face),
		S_OK);
	assert_int_equal(object.refs, 2);
	assert_int_equal(methods->GetPrivateData(device, &guid, &size, &out),
			 S_OK);
	assert_ptr_equal(out, &object.face);
	assert_int_equal(object.refs, 3);
	object.refs--;
	size = 1;
	assert_int_equal(methods->GetPrivateData(device, &guid, &size, &out),
			 DXGI_ERROR_MORE_DATA);
	assert_int_equal(object.refs, 2);
	/* None is a value too. */
	assert_int_equal(methods->SetPrivateDataInterface(device, &guid, NULL),
			 S_OK);
	assert_int_equal(object.refs, 1);
	assert_int_equal(methods->GetPrivateData(device, &guid, &size, &out),
			 S_OK);
	assert_null(out);
	assert_int_equal(
		methods->SetPrivateDataInterface(device, &guid, &object.face),
		S_OK);
	assert_int_equal(ID3D12Device9_Release(device), 0);
	assert_int_equal(object.refs, 1);
}

static void a_name_is_private_data(void **state)
{
	ID3D12Device9 *device = new_device();
	WCHAR out[16] = { 0 };
	UINT size = sizeof(out);

	assert_int_equal(device->lpVtbl->SetName(device, NULL), E_INVALIDARG);
	assert_int_equal(device->lpVtbl->SetName(device, L"named"), S_OK);
	assert_int_equal(
		device->lpVtbl->GetPrivateData(
			device, &WKPDID_D3DDebugObjectNameW, &size, out),
		S_OK);
	assert_int_equal(size, 5 * sizeof(WCHAR));
	assert_int_equal(wcscmp(out, L"named"), 0);
	assert_int_equal(ID3D12Device9_Release(device), 0);
}

/* A session has the same, of its own. */
static void a_session_has_data_of_its_own(void **state)
{
	struct counted object = { { &counted_methods }, 1 };
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_MEMORY, 0);
	ID3D12Device9 *device = new_device();
	Session *session;
	UINT size = 0;

	assert_int_equal(create_session(device, &desc, &session), S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_SetName(session, L"mine"),
			 S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_SetPrivateData(session, &guid,
								 2, "ab"),
			 S_OK);
	assert_int_equal(ID3D12ShaderCacheSession_SetPrivateDataInterface(
				 session, &other_guid, &object.face),
			 S_OK);
	assert_int_equal(
		device->lpVtbl->GetPrivateData(device, &guid, &size, NULL),
		DXGI_ERROR_NOT_FOUND);
	assert_int_equal(ID3D12ShaderCacheSession_GetPrivateData(session, &guid,
								 &size, NULL),
			 S_OK);
	assert_int_equal(size, 2);
	assert_int_equal(release(session), 0);
	assert_int_equal(object.refs, 1);
	assert_int_equal(ID3D12Device9_Release(device), 0);
}

/* ---- Devices --------------------------------------------------------------------- */

static void the_device_answers_for_all_its_versions(void **state)
{
	static const IID *const all[] = {
		&IID_IUnknown,	    &IID_ID3D12Object,	&IID_ID3D12Device,
		&IID_ID3D12Device1, &IID_ID3D12Device2, &IID_ID3D12Device3,
		&IID_ID3D12Device4, &IID_ID3D12Device5, &IID_ID3D12Device6,
		&IID_ID3D12Device7, &IID_ID3D12Device8, &IID_ID3D12Device9,
	};
	ID3D12Device9 *device = new_device();
	void *out = NULL;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		assert_int_equal(
			ID3D12Device9_QueryInterface(device, all[i], &out),
			S_OK);
		assert_ptr_equal(out, device);
		assert_int_equal(ID3D12Device9_Release(device), 1);
	}
	assert_int_equal(ID3D12Device9_QueryInterface(
				 device, &IID_ID3D12ShaderCacheSession, &out),
			 E_NOINTERFACE);
	assert_null(out);
	assert_int_equal(
		ID3D12Device9_QueryInterface(device, &IID_IUnknown, NULL),
		E_POINTER);
	assert_int_equal(ID3D12Device9_Release(device), 0);
	assert_int_equal(kiln_d3d12_create_device(NULL, &IID_IUnknown, NULL),
			 E_POINTER);
	assert_int_equal(kiln_d3d12_create_device(NULL, &guid, &out),
			 E_NOINTERFACE);
}

/* Every place has a method, whatever it is called with. */
static void what_is_not_of_caches_is_refused(void **state)
{
	ID3D12Device9 *device = new_device();
	typedef HRESULT(STDMETHODCALLTYPE * any_fn)(ID3D12Device9 * This,
						    void *, void *, void *);
	typedef void (*const *table_fn)(void);
	table_fn methods = (table_fn)(void *)device->lpVtbl;

	for (size_t i = 0; i < sizeof(ID3D12Device9Vtbl) / sizeof(void *); i++)
		assert_non_null((void *)(uintptr_t)methods[i]);
	assert_int_equal(((any_fn)device->lpVtbl->CreateCommandQueue)(
				 device, NULL, NULL, NULL),
			 E_NOTIMPL);
	assert_int_equal(((any_fn)device->lpVtbl->GetDeviceRemovedReason)(
				 device, NULL, NULL, NULL),
			 S_OK);
	assert_int_equal(device->lpVtbl->GetNodeCount(device), 1);
	assert_int_equal(ID3D12Device9_Release(device), 0);
}

static void the_device_tells_what_it_was_given(void **state)
{
	D3D12_FEATURE_DATA_SHADER_CACHE data = { 0 };
	struct kiln_d3d12_device what;
	ID3D12Device9 *device;
	LUID luid;

	kiln_d3d12_device_init(&what);
	what.adapter = (LUID){ 12, -3 };
	what.DriverManagedShaderCachePresent = 1;
	assert_int_equal(kiln_d3d12_create_device(&what, &IID_ID3D12Device9,
						  (void **)&device),
			 S_OK);
	luid = ID3D12Device9_GetAdapterLuid(device);
	assert_int_equal(luid.LowPart, 12);
	assert_int_equal(luid.HighPart, -3);
	assert_int_equal(ID3D12Device9_CheckFeatureSupport(
				 device, D3D12_FEATURE_SHADER_CACHE, &data,
				 sizeof(data)),
			 S_OK);
	assert_int_equal(data.SupportFlags, 0x1 | 0x10 | 0x20 | 0x40);
	assert_int_equal(ID3D12Device9_CheckFeatureSupport(
				 device, D3D12_FEATURE_SHADER_CACHE, &data, 3),
			 E_INVALIDARG);
	assert_int_equal(ID3D12Device9_CheckFeatureSupport(
				 device, (D3D12_FEATURE)0, &data, sizeof(data)),
			 E_INVALIDARG);
	assert_int_equal(ID3D12Device9_Release(device), 0);
	device = new_device();
	assert_int_equal(kiln_d3d12_support_flags((IUnknown *)device),
			 0x1 | 0x20 | 0x40);
	assert_int_equal(ID3D12Device9_Release(device), 0);
}

/* A host's device is any object; its identity is what it is known by. */
static void a_host_tells_of_a_device_and_takes_it_back(void **state)
{
	struct counted host = { { &counted_methods }, 1 };
	D3D12_SHADER_CACHE_SESSION_DESC desc =
		desc_of(D3D12_SHADER_CACHE_MODE_MEMORY, 0);
	struct kiln_d3d12_device what;
	Session *session;

	kiln_d3d12_device_init(&what);
	assert_int_equal(kiln_d3d12_register_device(NULL, &what), E_INVALIDARG);
	assert_int_equal(kiln_d3d12_register_device(&host.face, NULL),
			 E_INVALIDARG);
	what.size = 1;
	assert_int_equal(kiln_d3d12_register_device(&host.face, &what),
			 E_INVALIDARG);
	desc.Flags = D3D12_SHADER_CACHE_FLAG_DRIVER_VERSIONED;
	assert_int_equal(kiln_d3d12_create_shader_cache_session(
				 &host.face, &desc,
				 &IID_ID3D12ShaderCacheSession,
				 (void **)&session),
			 E_INVALIDARG);
	kiln_d3d12_device_init(&what);
	assert_int_equal(kiln_d3d12_register_device(&host.face, &what), S_OK);
	assert_int_equal(kiln_d3d12_register_device(&host.face, &what), S_OK);
	assert_int_equal(host.refs, 1);
	assert_int_equal(kiln_d3d12_create_shader_cache_session(
				 &host.face, &desc,
				 &IID_ID3D12ShaderCacheSession,
				 (void **)&session),
			 S_OK);
	assert_int_equal(host.refs, 2);
	kiln_d3d12_unregister_device(&host.face);
	kiln_d3d12_unregister_device(NULL);
	assert_int_equal(store_string(session, "key", "value"), S_OK);
	assert_int_equal(release(session), 0);
	assert_int_equal(host.refs, 1);
	assert_int_equal(
		kiln_d3d12_create_shader_cache_session(
			&host.face, &desc, &IID_IUnknown, (void **)&session),
		E_INVALIDARG);
	assert_int_equal(host.refs, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_kept_and_removed),
		cmocka_unit_test(interfaces_are_counted),
		cmocka_unit_test(a_name_is_private_data),
		cmocka_unit_test(a_session_has_data_of_its_own),
		cmocka_unit_test(the_device_answers_for_all_its_versions),
		cmocka_unit_test(what_is_not_of_caches_is_refused),
		cmocka_unit_test(the_device_tells_what_it_was_given),
		cmocka_unit_test(a_host_tells_of_a_device_and_takes_it_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
