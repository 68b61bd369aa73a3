/* SPDX-License-Identifier: MIT */

/*
 * Platforms, devices and contexts, and what the loader asks for first.
 * Platforms are made once, at the loader's first question, and never freed.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "icd/icd.h"

#define PLATFORMS_MAX 4

#define EXPORTED __attribute__((visibility("default")))

pthread_mutex_t icd_mutex = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t platforms_once = PTHREAD_ONCE_INIT;
static struct _cl_platform_id platforms[PLATFORMS_MAX];
static struct _cl_device_id devices[PLATFORMS_MAX][ICD_DEVICES_MAX];
static cl_uint n_platforms;

/* ---- Handles ------------------------------------------------------------ */

static void head_init(struct icd_head *head, enum icd_kind kind)
{
	head->dispatch = &icd_dispatch;
	head->kind = kind;
	atomic_init(&head->refs, 1);
}

void *icd_new(enum icd_kind kind, size_t size)
{
	struct icd_head *head = calloc(1, size);

	if (head)
		head_init(head, kind);
	return head;
}

bool icd_is(const void *handle, enum icd_kind kind)
{
	const struct icd_head *head = handle;

	return head && head->kind == kind;
}

void icd_ref(void *handle)
{
	struct icd_head *head = handle;

	atomic_fetch_add(&head->refs, 1);
}

bool icd_unref(void *handle)
{
	struct icd_head *head = handle;

	return atomic_fetch_sub(&head->refs, 1) == 1;
}

cl_int icd_callback_add(struct icd_callback **list, void *call, void *arg)
{
	struct icd_callback *callback;

	if (!call)
		return CL_INVALID_VALUE;
	callback = calloc(1, sizeof(*callback));
	if (!callback)
		return CL_OUT_OF_HOST_MEMORY;
	*(void **)&callback->call = call;
	callback->arg = arg;
	pthread_mutex_lock(&icd_mutex);
	callback->next = *list;
	*list = callback;
	pthread_mutex_unlock(&icd_mutex);
	return CL_SUCCESS;
}

void icd_callbacks_run(struct icd_callback *list, void *handle)
{
	while (list) {
		struct icd_callback *callback = list;
		list = callback->next;
		callback->call(handle, callback->arg);
		free(callback);
	}
}

/* ---- Platforms ---------------------------------------------------------- */

static void device_init(cl_device_id device, cl_platform_id platform,
			const char **names)
{
	const char *end = strchrnul(*names, ',');

	head_init(&device->head, ICD_DEVICE);
	device->platform = platform;
	device->n_units = icd_number("UNITS", 4);
	snprintf(device->name, sizeof(device->name), "%.*s",
		 (int)(end - *names), *names);
	if (*end)
		*names = end + 1;
}

static void platforms_init(void)
{
	cl_uint n_devices = icd_number("DEVICES", 1);

	if (n_devices > ICD_DEVICES_MAX)
		n_devices = ICD_DEVICES_MAX;
	n_platforms = icd_number("PLATFORMS", 1);
	if (n_platforms > PLATFORMS_MAX)
		n_platforms = PLATFORMS_MAX;
	for (cl_uint i = 0; i < n_platforms; i++) {
		cl_platform_id platform = &platforms[i];
		const char *names = icd_string("NAMES", "kiln test device");

		head_init(&platform->head, ICD_PLATFORM);
		platform->index = i;
		platform->n_devices = n_devices;
		if (i)
			snprintf(platform->name, sizeof(platform->name),
				 "kiln test platform %u", i + 1);
		else
			strcpy(platform->name, "kiln test platform");
		for (cl_uint j = 0; j < n_devices; j++) {
			platform->devices[j] = &devices[i][j];
			device_init(&devices[i][j], platform, &names);
		}
	}
}

EXPORTED cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries,
						   cl_platform_id *out,
						   cl_uint *num_platforms)
{
	pthread_once(&platforms_once, platforms_init);
	if ((out && !num_entries) || (!out && !num_platforms))
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; out && i < num_entries && i < n_platforms; i++)
		out[i] = &platforms[i];
	if (num_platforms)
		*num_platforms = n_platforms;
	return n_platforms ? CL_SUCCESS : CL_PLATFORM_NOT_FOUND_KHR;
}

cl_int CL_API_CALL clGetPlatformIDs(cl_uint num_entries, cl_platform_id *out,
				    cl_uint *num_platforms)
{
	return clIcdGetPlatformIDsKHR(num_entries, out, num_platforms);
}

static const char *driver_version(void)
{
	return icd_string("DRIVER_VERSION", ICD_VERSION);
}

EXPORTED cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform,
					      cl_platform_info what,
					      size_t size, void *value,
					      size_t *out_size)
{
	char text[128];

	if (!icd_is(platform, ICD_PLATFORM))
		return CL_INVALID_PLATFORM;
	switch (what) {
	case CL_PLATFORM_PROFILE:
		return icd_answer_string("FULL_PROFILE", size, value, out_size);
	case CL_PLATFORM_VERSION:
		snprintf(text, sizeof(text), "OpenCL 3.0 kiln-test-icd %s",
			 driver_version());
		return icd_answer_string(text, size, value, out_size);
	case CL_PLATFORM_NUMERIC_VERSION:
		return icd_answer_uint(CL_MAKE_VERSION(3, 0, 0), size, value,
				       out_size);
	case CL_PLATFORM_NAME:
		return icd_answer_string(platform->name, size, value, out_size);
	case CL_PLATFORM_VENDOR:
		return icd_answer_string("kiln", size, value, out_size);
	case CL_PLATFORM_EXTENSIONS:
		return icd_answer_string("cl_khr_icd cl_khr_il_program", size,
					 value, out_size);
	case CL_PLATFORM_EXTENSIONS_WITH_VERSION:
		return icd_answer(NULL, 0, size, value, out_size);
	case CL_PLATFORM_ICD_SUFFIX_KHR:
		return icd_answer_string("KILN", size, value, out_size);
	case CL_PLATFORM_HOST_TIMER_RESOLUTION:
		return icd_answer_ulong(1, size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

/* ---- Devices ------------------------------------------------------------ */

static cl_device_type device_type(void)
{
	return strcmp(icd_string("TYPE", "cpu"), "gpu") ? CL_DEVICE_TYPE_CPU
							: CL_DEVICE_TYPE_GPU;
}

cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id platform, cl_device_type type,
				  cl_uint num_entries, cl_device_id *out,
				  cl_uint *num_devices)
{
	cl_device_type ours = device_type() | CL_DEVICE_TYPE_DEFAULT;

	if (icd_flag("CRASH_DEVICES", false))
		abort();
	if (!icd_is(platform, ICD_PLATFORM))
		return CL_INVALID_PLATFORM;
	if ((out && !num_entries) || (!out && !num_devices))
		return CL_INVALID_VALUE;
	if (!(type & ours) || !platform->n_devices)
		return CL_DEVICE_NOT_FOUND;
	for (cl_uint i = 0; out && i < num_entries; i++)
		if (i < platform->n_devices)
			out[i] = platform->devices[i];
	if (num_devices)
		*num_devices = platform->n_devices;
	return CL_SUCCESS;
}

static cl_int device_numbers(cl_device_id device, cl_device_info what,
			     size_t size, void *value, size_t *out_size)
{
	static const size_t sizes[3] = { 256, 256, 256 };

	switch (what) {
	case CL_DEVICE_TYPE:
		return icd_answer_ulong(device_type(), size, value, out_size);
	case CL_DEVICE_VENDOR_ID:
		return icd_answer_uint(0x6b6c, size, value, out_size);
	case CL_DEVICE_MAX_COMPUTE_UNITS:
	case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
		return icd_answer_uint(device->n_units, size, value, out_size);
	case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
		return icd_answer_uint(3, size, value, out_size);
	case CL_DEVICE_MAX_WORK_GROUP_SIZE:
		return icd_answer_size(256, size, value, out_size);
	case CL_DEVICE_MAX_WORK_ITEM_SIZES:
		return icd_answer(sizes, sizeof(sizes), size, value, out_size);
	case CL_DEVICE_ADDRESS_BITS:
		return icd_answer_uint(64, size, value, out_size);
	case CL_DEVICE_MAX_CLOCK_FREQUENCY:
		return icd_answer_uint(1000, size, value, out_size);
	case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
		return icd_answer_uint(1024, size, value, out_size);
	case CL_DEVICE_LOCAL_MEM_TYPE:
		return icd_answer_uint(CL_GLOBAL, size, value, out_size);
	case CL_DEVICE_MAX_PARAMETER_SIZE:
		return icd_answer_size(1024, size, value, out_size);
	case CL_DEVICE_GLOBAL_MEM_SIZE:
	case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
		return icd_answer_ulong(1 << 30, size, value, out_size);
	case CL_DEVICE_LOCAL_MEM_SIZE:
	case CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE:
		return icd_answer_ulong(1 << 16, size, value, out_size);
	case CL_DEVICE_AVAILABLE:
	case CL_DEVICE_COMPILER_AVAILABLE:
	case CL_DEVICE_LINKER_AVAILABLE:
	case CL_DEVICE_ENDIAN_LITTLE:
		return icd_answer_uint(CL_TRUE, size, value, out_size);
	case CL_DEVICE_IMAGE_SUPPORT:
	case CL_DEVICE_PREFERRED_INTEROP_USER_SYNC:
		return icd_answer_uint(CL_FALSE, size, value, out_size);
	case CL_DEVICE_EXECUTION_CAPABILITIES:
		return icd_answer_ulong(CL_EXEC_KERNEL, size, value, out_size);
	case CL_DEVICE_QUEUE_PROPERTIES:
		return icd_answer_ulong(CL_QUEUE_PROFILING_ENABLE, size, value,
					out_size);
	case CL_DEVICE_SINGLE_FP_CONFIG:
		return icd_answer_ulong(CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN,
					size, value, out_size);
	case CL_DEVICE_SVM_CAPABILITIES:
	case CL_DEVICE_HALF_FP_CONFIG:
	case CL_DEVICE_DOUBLE_FP_CONFIG:
		return icd_answer_ulong(0, size, value, out_size);
	case CL_DEVICE_PROFILING_TIMER_RESOLUTION:
		return icd_answer_size(1, size, value, out_size);
	case CL_DEVICE_NUMERIC_VERSION:
		return icd_answer_uint(CL_MAKE_VERSION(3, 0, 0), size, value,
				       out_size);
	case CL_DEVICE_REFERENCE_COUNT:
		return icd_answer_uint(
			device->parent ? atomic_load(&device->head.refs) : 1,
			size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

static cl_int device_uuid(const char *seed, size_t size, void *value,
			  size_t *out_size)
{
	uint64_t hash[2];

	hash[0] = icd_hash(seed, strlen(seed));
	hash[1] = icd_hash(hash, sizeof(hash[0]));
	return icd_answer(hash, CL_UUID_SIZE_KHR, size, value, out_size);
}

cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info what,
				   size_t size, void *value, size_t *out_size)
{
	static const cl_device_partition_property ways[2] = {
		CL_DEVICE_PARTITION_EQUALLY, CL_DEVICE_PARTITION_BY_COUNTS
	};

	if (!icd_is(device, ICD_DEVICE))
		return CL_INVALID_DEVICE;
	switch (what) {
	case CL_DEVICE_NAME:
		return icd_answer_string(device->name, size, value, out_size);
	case CL_DEVICE_VENDOR:
		return icd_answer_string("kiln", size, value, out_size);
	case CL_DRIVER_VERSION:
		return icd_answer_string(driver_version(), size, value,
					 out_size);
	case CL_DEVICE_PROFILE:
		return icd_answer_string("FULL_PROFILE", size, value, out_size);
	case CL_DEVICE_VERSION:
		return icd_answer_string("OpenCL 3.0 kiln", size, value,
					 out_size);
	case CL_DEVICE_OPENCL_C_VERSION:
		return icd_answer_string("OpenCL C 1.2 kiln", size, value,
					 out_size);
	case CL_DEVICE_EXTENSIONS:
		return icd_answer_string(
			"cl_khr_byte_addressable_store cl_khr_device_uuid "
			"cl_khr_il_program",
			size, value, out_size);
	case CL_DEVICE_BUILT_IN_KERNELS:
		return icd_answer_string("kiln_fill;kiln_copy", size, value,
					 out_size);
	case CL_DEVICE_IL_VERSION:
		return icd_answer_string(icd_flag("IL", true) ? "SPIR-V_1.2"
							      : "",
					 size, value, out_size);
	case CL_DEVICE_UUID_KHR:
		return device_uuid(device->name, size, value, out_size);
	case CL_DRIVER_UUID_KHR:
		return device_uuid(driver_version(), size, value, out_size);
	case CL_DEVICE_PLATFORM:
		return icd_answer_pointer(device->platform, size, value,
					  out_size);
	case CL_DEVICE_PARENT_DEVICE:
		return icd_answer_pointer(device->parent, size, value,
					  out_size);
	case CL_DEVICE_PARTITION_PROPERTIES:
		return icd_answer(ways, sizeof(ways), size, value, out_size);
	case CL_DEVICE_PARTITION_TYPE:
		return icd_answer(device->partition, device->partition_size,
				  size, value, out_size);
	case CL_DEVICE_PARTITION_AFFINITY_DOMAIN:
		return icd_answer_ulong(0, size, value, out_size);
	default:
		return device_numbers(device, what, size, value, out_size);
	}
}

static cl_device_id sub_device(cl_device_id parent, cl_uint n_units,
			       const cl_device_partition_property *how,
			       size_t how_size)
{
	cl_device_id device = icd_new(ICD_DEVICE, sizeof(*device));

	if (!device)
		return NULL;
	device->platform = parent->platform;
	device->parent = parent;
	device->n_units = n_units;
	memcpy(device->partition, how, how_size);
	device->partition_size = how_size;
	memcpy(device->name, parent->name, sizeof(device->name));
	clRetainDevice(parent);
	return device;
}

/* How many units each part gets; the number of parts, 0 if it can't be. */
static cl_uint partition(cl_device_id device,
			 const cl_device_partition_property *how,
			 cl_uint *units, size_t *how_size)
{
	cl_uint n = 0, sum = 0;

	if (how[0] == CL_DEVICE_PARTITION_EQUALLY) {
		*how_size = 3 * sizeof(*how);
		while (how[1] > 0 && n < ICD_DEVICES_MAX &&
		       (n + 1) * (cl_uint)how[1] <= device->n_units)
			units[n++] = (cl_uint)how[1];
		return n;
	}
	while (n < ICD_DEVICES_MAX && how[1 + n]) {
		units[n] = (cl_uint)how[1 + n];
		sum += units[n++];
	}
	*how_size = (n + 3) * sizeof(*how);
	return sum <= device->n_units ? n : 0;
}

cl_int CL_API_CALL clCreateSubDevices(cl_device_id device,
				      const cl_device_partition_property *how,
				      cl_uint num_entries, cl_device_id *out,
				      cl_uint *num_devices)
{
	cl_device_partition_property kept[ICD_DEVICES_MAX + 3] = { 0 };
	cl_uint units[ICD_DEVICES_MAX], n;
	size_t how_size;

	if (!icd_is(device, ICD_DEVICE))
		return CL_INVALID_DEVICE;
	if (!how || (how[0] != CL_DEVICE_PARTITION_EQUALLY &&
		     how[0] != CL_DEVICE_PARTITION_BY_COUNTS))
		return CL_INVALID_VALUE;
	n = partition(device, how, units, &how_size);
	if (!n)
		return how[0] == CL_DEVICE_PARTITION_EQUALLY
			       ? CL_DEVICE_PARTITION_FAILED
			       : CL_INVALID_DEVICE_PARTITION_COUNT;
	if (out && num_entries < n)
		return CL_INVALID_VALUE;
	memcpy(kept, how, how_size - sizeof(*how));
	for (cl_uint i = 0; out && i < n; i++) {
		out[i] = sub_device(device, units[i], kept, how_size);
		if (!out[i]) {
			while (i)
				clReleaseDevice(out[--i]);
			return CL_OUT_OF_HOST_MEMORY;
		}
	}
	if (num_devices)
		*num_devices = n;
	return CL_SUCCESS;
}

cl_int CL_API_CALL clRetainDevice(cl_device_id device)
{
	if (!icd_is(device, ICD_DEVICE))
		return CL_INVALID_DEVICE;
	if (device->parent)
		icd_ref(device);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clReleaseDevice(cl_device_id device)
{
	cl_device_id parent;

	if (!icd_is(device, ICD_DEVICE))
		return CL_INVALID_DEVICE;
	parent = device->parent;
	if (parent && icd_unref(device)) {
		free(device);
		clReleaseDevice(parent);
	}
	return CL_SUCCESS;
}

/* ---- Contexts ----------------------------------------------------------- */

int icd_context_find(cl_context context, cl_device_id device)
{
	for (cl_uint i = 0; i < context->n_devices; i++)
		if (context->devices[i] == device)
			return (int)i;
	return -1;
}

static cl_int fail(cl_int *errcode_ret, cl_int status)
{
	if (errcode_ret)
		*errcode_ret = status;
	return status;
}

static cl_int context_properties(cl_context context,
				 const cl_context_properties *properties)
{
	size_t n = 0;

	if (!properties)
		return CL_SUCCESS;
	for (; properties[n]; n += 2) {
		if (properties[n] == CL_CONTEXT_PLATFORM) {
			if (!icd_is((void *)properties[n + 1], ICD_PLATFORM))
				return CL_INVALID_PLATFORM;
		} else if (properties[n] != CL_CONTEXT_INTEROP_USER_SYNC) {
			return CL_INVALID_PROPERTY;
		}
	}
	context->properties_size = (n + 1) * sizeof(*properties);
	context->properties = malloc(context->properties_size);
	if (!context->properties)
		return CL_OUT_OF_HOST_MEMORY;
	memcpy(context->properties, properties, context->properties_size);
	return CL_SUCCESS;
}

cl_context CL_API_CALL
clCreateContext(const cl_context_properties *properties, cl_uint num_devices,
		const cl_device_id *list,
		void(CL_CALLBACK *pfn_notify)(const char *, const void *,
					      size_t, void *),
		void *user_data, cl_int *errcode_ret)
{
	cl_context context;
	cl_int status;

	if (!num_devices || !list || num_devices > ICD_DEVICES_MAX ||
	    (!pfn_notify && user_data)) {
		fail(errcode_ret, CL_INVALID_VALUE);
		return NULL;
	}
	for (cl_uint i = 0; i < num_devices; i++) {
		if (!icd_is(list[i], ICD_DEVICE)) {
			fail(errcode_ret, CL_INVALID_DEVICE);
			return NULL;
		}
	}
	context = icd_new(ICD_CONTEXT, sizeof(*context));
	status = context ? context_properties(context, properties)
			 : CL_OUT_OF_HOST_MEMORY;
	if (fail(errcode_ret, status)) {
		free(context);
		return NULL;
	}
	for (cl_uint i = 0; i < num_devices; i++) {
		if (icd_context_find(context, list[i]) >= 0)
			continue;
		clRetainDevice(list[i]);
		context->devices[context->n_devices++] = list[i];
	}
	return context;
}

cl_context CL_API_CALL clCreateContextFromType(
	const cl_context_properties *properties, cl_device_type type,
	void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t,
				      void *),
	void *user_data, cl_int *errcode_ret)
{
	cl_platform_id platform = &platforms[0];
	cl_device_id list[ICD_DEVICES_MAX];
	cl_uint n;
	cl_int status;

	for (size_t i = 0; properties && properties[i]; i += 2)
		if (properties[i] == CL_CONTEXT_PLATFORM)
			platform = (cl_platform_id)properties[i + 1];
	status = clGetDeviceIDs(platform, type, ICD_DEVICES_MAX, list, &n);
	if (fail(errcode_ret, status))
		return NULL;
	return clCreateContext(properties, n, list, pfn_notify, user_data,
			       errcode_ret);
}

cl_int CL_API_CALL clRetainContext(cl_context context)
{
	if (!icd_is(context, ICD_CONTEXT))
		return CL_INVALID_CONTEXT;
	icd_ref(context);
	return CL_SUCCESS;
}

void icd_context_unref(cl_context context)
{
	if (!icd_unref(context))
		return;
	icd_callbacks_run(context->callbacks, context);
	for (cl_uint i = 0; i < context->n_devices; i++)
		clReleaseDevice(context->devices[i]);
	free(context->properties);
	free(context);
}

cl_int CL_API_CALL clReleaseContext(cl_context context)
{
	if (!icd_is(context, ICD_CONTEXT))
		return CL_INVALID_CONTEXT;
	icd_context_unref(context);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clSetContextDestructorCallback(
	cl_context context,
	void(CL_CALLBACK *pfn_notify)(cl_context context, void *user_data),
	void *user_data)
{
	if (!icd_is(context, ICD_CONTEXT))
		return CL_INVALID_CONTEXT;
	return icd_callback_add(&context->callbacks, (void *)pfn_notify,
				user_data);
}

cl_int CL_API_CALL clGetContextInfo(cl_context context, cl_context_info what,
				    size_t size, void *value, size_t *out_size)
{
	if (!icd_is(context, ICD_CONTEXT))
		return CL_INVALID_CONTEXT;
	switch (what) {
	case CL_CONTEXT_REFERENCE_COUNT:
		return icd_answer_uint(atomic_load(&context->head.refs), size,
				       value, out_size);
	case CL_CONTEXT_NUM_DEVICES:
		return icd_answer_uint(context->n_devices, size, value,
				       out_size);
	case CL_CONTEXT_DEVICES:
		return icd_answer(context->devices,
				  context->n_devices *
					  sizeof(context->devices[0]),
				  size, value, out_size);
	case CL_CONTEXT_PROPERTIES:
		return icd_answer(context->properties, context->properties_size,
				  size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

/* ---- Extension functions ------------------------------------------------ */

static bool named_in(const char *list, const char *name)
{
	size_t length = strlen(name);

	while (*list) {
		const char *end = strchrnul(list, ',');
		if ((size_t)(end - list) == length &&
		    !memcmp(list, name, length))
			return true;
		list = *end ? end + 1 : end;
	}
	return false;
}

EXPORTED void *CL_API_CALL clGetExtensionFunctionAddress(const char *name)
{
	if (!name)
		return NULL;
	if (!strcmp(name, "clIcdGetPlatformIDsKHR"))
		return (void *)clIcdGetPlatformIDsKHR;
	if (!strcmp(name, "clGetPlatformInfo"))
		return (void *)clGetPlatformInfo;
	if (!strcmp(name, "clCreateProgramWithILKHR"))
		return icd_flag("IL", true) ? (void *)clCreateProgramWithIL
					    : NULL;
	if (named_in(icd_string("EXTENSION_FUNCTIONS", ""), name))
		return icd_extension("clCountProgramKernelsKILN");
	return icd_extension(name);
}

void *CL_API_CALL clGetExtensionFunctionAddressForPlatform(
	cl_platform_id platform, const char *name)
{
	if (!icd_is(platform, ICD_PLATFORM))
		return NULL;
	return clGetExtensionFunctionAddress(name);
}
