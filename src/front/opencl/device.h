/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_DEVICE_H
#define KI_FRONT_OPENCL_DEVICE_H

/* The identities of devices.  May be used from any thread. */

#include "front/opencl/key.h"

#define KI_CL_CPU_BYTES 192

/* Features of the processor that this runs on, as text. */
void ki_cl_cpu_identity(char out[KI_CL_CPU_BYTES]);

struct ki_cl_devices;

struct ki_cl_devices *ki_cl_devices_new(const cl_icd_dispatch *calls);
void ki_cl_devices_free(struct ki_cl_devices *devices);

/* Add "device INDEX ...".  KILN_OK or KILN_E_NO_MEMORY. */
enum kiln_status ki_cl_device_to_key(struct ki_cl_devices *devices,
				     cl_device_id id, cl_uint index,
				     struct kiln_key *key);

#endif /* KI_FRONT_OPENCL_DEVICE_H */
