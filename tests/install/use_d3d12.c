/* SPDX-License-Identifier: MIT */

/* The same for shader cache sessions: a device, and what it says of caches. */

#include <kiln/front/d3d12.h>

#include <stdio.h>

int main(void)
{
	const IID *which = &IID_ID3D12Device9;
	IUnknown *device = NULL;
	void *made = NULL;

#ifdef __cplusplus
	if (FAILED(kiln_d3d12_create_device(NULL, *which, &made)))
		return 1;
	device = static_cast<IUnknown *>(made);
	device->Release();
#else
	if (FAILED(kiln_d3d12_create_device(NULL, which, &made)))
		return 1;
	device = made;
	device->lpVtbl->Release(device);
#endif
	printf("a device\n");
	return 0;
}
