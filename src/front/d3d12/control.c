/* SPDX-License-Identifier: MIT */

/*
 * ShaderCacheControl().  What is disabled is remembered for the process, by
 * kind: of the application's caches it means something here, of the driver's it
 * is passed on to the host, and of those that a runtime itself would have it is
 * only remembered, for the host to ask.
 */

#include <kiln/inspect.h>

#include "front/d3d12/d3d12.h"

#define KINDS_ALL                                                               \
	(unsigned)(D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CACHE_FOR_DRIVER | \
		   D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_D3D_CONVERSIONS |      \
		   D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_DRIVER_MANAGED |       \
		   D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED)
#define DISABLE	    (unsigned)D3D12_SHADER_CACHE_CONTROL_FLAG_DISABLE
#define ENABLE	    (unsigned)D3D12_SHADER_CACHE_CONTROL_FLAG_ENABLE
#define CLEAR	    (unsigned)D3D12_SHADER_CACHE_CONTROL_FLAG_CLEAR
#define CONTROL_ALL (DISABLE | ENABLE | CLEAR)

_Atomic unsigned ki_d3d12_disabled;
static _Atomic int developer_mode = -1;

D3D12_SHADER_CACHE_KIND_FLAGS kiln_d3d12_disabled_kinds(void)
{
	return (D3D12_SHADER_CACHE_KIND_FLAGS)atomic_load(&ki_d3d12_disabled);
}

void kiln_d3d12_set_developer_mode(int is_on)
{
	atomic_store(&developer_mode, is_on < 0 ? -1 : !!is_on);
}

static int is_developer(void)
{
	int mode = atomic_load(&developer_mode);
	struct kiln_config *config = NULL;
	enum kiln_status status;
	char message[256];

	if (mode >= 0)
		return mode;
	status = kiln_config_load(&config, message, sizeof(message));
	mode = !status && kiln_config_number(config, KILN_SET_D3D12_DEVELOPER);
	kiln_config_free(config);
	return mode;
}

/* ---- The driver's cache ------------------------------------------------------ */

/* A bit of control, and what it is called in a driver's interface. */
static const struct {
	unsigned control;
	D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAGS_008n passed;
} calls[] = {
	{ CLEAR, D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAG_008n_CLEAR },
	{ DISABLE, D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAG_008n_DISABLE },
	{ ENABLE, D3D12DDI_IMPLICIT_SHADER_CACHE_CONTROL_FLAG_008n_ENABLE },
};

/* The first refusal, after all has been passed on. */
static HRESULT pass_on(IUnknown *device, unsigned control)
{
	struct kiln_d3d12_device known;
	HRESULT result = S_OK, one;

	if (!device || !ki_d3d12_device_find(device, &known) ||
	    !known.DriverManagedShaderCachePresent ||
	    !known.pfnImplicitShaderCacheControl)
		return S_OK;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		if (!(control & calls[i].control))
			continue;
		one = known.pfnImplicitShaderCacheControl(known.handle,
							  calls[i].passed);
		if (FAILED(one) && SUCCEEDED(result))
			result = one;
	}
	return result;
}

/* ---- The method ---------------------------------------------------------------- */

static int is_valid(unsigned kinds, unsigned control)
{
	return kinds && !(kinds & ~KINDS_ALL) && control &&
	       !(control & ~CONTROL_ALL) &&
	       (control & (DISABLE | ENABLE)) != (DISABLE | ENABLE);
}

HRESULT kiln_d3d12_shader_cache_control(
	IUnknown *device, D3D12_SHADER_CACHE_KIND_FLAGS kinds,
	D3D12_SHADER_CACHE_CONTROL_FLAGS control)
{
	if (!is_developer())
		return DXGI_ERROR_NOT_CURRENTLY_AVAILABLE;
	if (!is_valid((unsigned)kinds, (unsigned)control))
		return E_INVALIDARG;
	if ((control & CLEAR) &&
	    (kinds & D3D12_SHADER_CACHE_KIND_FLAG_APPLICATION_MANAGED))
		ki_d3d12_cache_clear_all();
	if (control & DISABLE)
		atomic_fetch_or(&ki_d3d12_disabled, (unsigned)kinds);
	else if (control & ENABLE)
		atomic_fetch_and(&ki_d3d12_disabled, ~(unsigned)kinds);
	if (kinds & D3D12_SHADER_CACHE_KIND_FLAG_IMPLICIT_DRIVER_MANAGED)
		return pass_on(device, (unsigned)control);
	return S_OK;
}
