/* SPDX-License-Identifier: MIT */

/*
 * Functions that an application gets by name bypass the layer.  Those that it
 * takes over are handed out as its own (vendor.c has those that vendors give a
 * program); those that take no program are safe, because kernels of shadows
 * are the driver's own kernels, and programs that they return its own too.
 * Anything else might be given a program whose shadow it cannot know: then the
 * driver builds all programs of that platform, and there are no shadows from
 * then on.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

/* In the order of strcmp(). */
static const char *const safe_names[] = {
	"clAddCommentINTEL",
	"clCancelCommandsIMG",
	"clCommandBarrierWithWaitListKHR",
	"clCommandCopyBufferKHR",
	"clCommandCopyBufferRectKHR",
	"clCommandCopyBufferToImageKHR",
	"clCommandCopyImageKHR",
	"clCommandCopyImageToBufferKHR",
	"clCommandFillBufferKHR",
	"clCommandFillImageKHR",
	"clCommandNDRangeKernelKHR",
	"clCommandReadBufferPOCL",
	"clCommandReadBufferRectPOCL",
	"clCommandReadImagePOCL",
	"clCommandSVMMemFillKHR",
	"clCommandSVMMemcpyKHR",
	"clCommandSVMMemcpyPOCL",
	"clCommandSVMMemcpyRectPOCL",
	"clCommandSVMMemfillPOCL",
	"clCommandSVMMemfillRectPOCL",
	"clCommandWriteBufferPOCL",
	"clCommandWriteBufferRectPOCL",
	"clCommandWriteImagePOCL",
	"clConvertImageAMD",
	"clCreateAcceleratorINTEL",
	"clCreateBuffer",
	"clCreateBufferFromImageAMD",
	"clCreateBufferWithProperties",
	"clCreateBufferWithPropertiesINTEL",
	"clCreateCommandBufferKHR",
	"clCreateCommandQueue",
	"clCreateCommandQueueWithProperties",
	"clCreateCommandQueueWithPropertiesKHR",
	"clCreateContext",
	"clCreateContextFromType",
	"clCreateEventFromEGLSyncKHR",
	"clCreateEventFromGLsyncKHR",
	"clCreateFromD3D10BufferKHR",
	"clCreateFromD3D10Texture2DKHR",
	"clCreateFromD3D10Texture3DKHR",
	"clCreateFromD3D11BufferKHR",
	"clCreateFromD3D11Texture2DKHR",
	"clCreateFromD3D11Texture3DKHR",
	"clCreateFromDX9MediaSurfaceINTEL",
	"clCreateFromDX9MediaSurfaceKHR",
	"clCreateFromEGLImageKHR",
	"clCreateFromGLBuffer",
	"clCreateFromGLRenderbuffer",
	"clCreateFromGLTexture",
	"clCreateFromGLTexture2D",
	"clCreateFromGLTexture3D",
	"clCreateFromVA_APIMediaSurfaceINTEL",
	"clCreateImage",
	"clCreateImage2D",
	"clCreateImage3D",
	"clCreateImageWithProperties",
	"clCreateImageWithPropertiesINTEL",
	"clCreatePerfCountersCommandQueueINTEL",
	"clCreatePipe",
	"clCreateProgramWithAssemblyAMD",
	"clCreateProgramWithBinaryAndProgramDeviceIntelFPGA",
	"clCreateProgramWithDefinedBuiltInKernels",
	"clCreateProgramWithDefinedBuiltInKernelsEXP",
	"clCreateSampler",
	"clCreateSamplerWithProperties",
	"clCreateSemaphoreWithPropertiesKHR",
	"clCreateSubBuffer",
	"clCreateSubDevices",
	"clCreateSubDevicesEXT",
	"clCreateUserEvent",
	"clDeviceMemAllocINTEL",
	"clEnqueueAcquireD3D10ObjectsKHR",
	"clEnqueueAcquireD3D11ObjectsKHR",
	"clEnqueueAcquireDX9MediaSurfacesKHR",
	"clEnqueueAcquireDX9ObjectsINTEL",
	"clEnqueueAcquireEGLObjectsKHR",
	"clEnqueueAcquireExternalMemObjectsKHR",
	"clEnqueueAcquireGLObjects",
	"clEnqueueAcquireGrallocObjectsIMG",
	"clEnqueueAcquireVA_APIMediaSurfacesINTEL",
	"clEnqueueBarrier",
	"clEnqueueBarrierWithWaitList",
	"clEnqueueCommandBufferKHR",
	"clEnqueueCopyBuffer",
	"clEnqueueCopyBufferRect",
	"clEnqueueCopyBufferToImage",
	"clEnqueueCopyImage",
	"clEnqueueCopyImageToBuffer",
	"clEnqueueFillBuffer",
	"clEnqueueFillImage",
	"clEnqueueGenerateMipmapIMG",
	"clEnqueueMapBuffer",
	"clEnqueueMapImage",
	"clEnqueueMarker",
	"clEnqueueMarkerWithWaitList",
	"clEnqueueMemAdviseINTEL",
	"clEnqueueMemFillINTEL",
	"clEnqueueMemcpyINTEL",
	"clEnqueueMemsetINTEL",
	"clEnqueueMigrateMemINTEL",
	"clEnqueueMigrateMemObjectEXT",
	"clEnqueueMigrateMemObjects",
	"clEnqueueNDCountKernelINTEL",
	"clEnqueueNDRangeKernel",
	"clEnqueueNativeKernel",
	"clEnqueueReadBuffer",
	"clEnqueueReadBufferRect",
	"clEnqueueReadImage",
	"clEnqueueReleaseD3D10ObjectsKHR",
	"clEnqueueReleaseD3D11ObjectsKHR",
	"clEnqueueReleaseDX9MediaSurfacesKHR",
	"clEnqueueReleaseDX9ObjectsINTEL",
	"clEnqueueReleaseEGLObjectsKHR",
	"clEnqueueReleaseExternalMemObjectsKHR",
	"clEnqueueReleaseGLObjects",
	"clEnqueueReleaseGrallocObjectsIMG",
	"clEnqueueReleaseVA_APIMediaSurfacesINTEL",
	"clEnqueueSVMFree",
	"clEnqueueSVMFreeARM",
	"clEnqueueSVMMap",
	"clEnqueueSVMMapARM",
	"clEnqueueSVMMemFill",
	"clEnqueueSVMMemFillARM",
	"clEnqueueSVMMemFillRectPOCL",
	"clEnqueueSVMMemcpy",
	"clEnqueueSVMMemcpyARM",
	"clEnqueueSVMMemcpyRectPOCL",
	"clEnqueueSVMMigrateMem",
	"clEnqueueSVMUnmap",
	"clEnqueueSVMUnmapARM",
	"clEnqueueSignalSemaphoresKHR",
	"clEnqueueTask",
	"clEnqueueUnmapMemObject",
	"clEnqueueVerifyMemoryINTEL",
	"clEnqueueWaitForEvents",
	"clEnqueueWaitSemaphoresKHR",
	"clEnqueueWriteBuffer",
	"clEnqueueWriteBufferRect",
	"clEnqueueWriteImage",
	"clFinalizeCommandBufferKHR",
	"clFinish",
	"clFlush",
	"clGetAcceleratorInfoINTEL",
	"clGetCommandBufferInfoKHR",
	"clGetCommandQueueInfo",
	"clGetDeviceAndHostTimer",
	"clGetDeviceIDs",
	"clGetDeviceIDsFromD3D10KHR",
	"clGetDeviceIDsFromD3D11KHR",
	"clGetDeviceIDsFromDX9INTEL",
	"clGetDeviceIDsFromDX9MediaAdapterKHR",
	"clGetDeviceIDsFromVA_APIMediaAdapterINTEL",
	"clGetDeviceImageInfoQCOM",
	"clGetEventInfo",
	"clGetEventProfilingInfo",
	"clGetGLContextInfoKHR",
	"clGetGLObjectInfo",
	"clGetGLTextureInfo",
	"clGetHostTimer",
	"clGetICDLoaderInfoOCLICD",
	"clGetImageInfo",
	"clGetImageRequirementsInfoEXT",
	"clGetKernelMaxConcurrentWorkGroupCountINTEL",
	"clGetKernelSuggestedLocalWorkSize",
	"clGetKernelSuggestedLocalWorkSizeINTEL",
	"clGetKernelSuggestedLocalWorkSizeKHR",
	"clGetMemAllocInfoINTEL",
	"clGetMemObjectInfo",
	"clGetMutableCommandInfoKHR",
	"clGetPipeInfo",
	"clGetPlatformIDs",
	"clGetPlatformInfo",
	"clGetProfileInfoIntelFPGA",
	"clGetSVMPointerInfoKHR",
	"clGetSVMSuggestedTypeIndexKHR",
	"clGetSamplerInfo",
	"clGetSemaphoreHandleForTypeKHR",
	"clGetSemaphoreInfoKHR",
	"clGetSupportedD3D10TextureFormatsINTEL",
	"clGetSupportedD3D11TextureFormatsINTEL",
	"clGetSupportedDX9MediaSurfaceFormatsINTEL",
	"clGetSupportedGLTextureFormatsINTEL",
	"clGetSupportedImageFormats",
	"clGetSupportedVA_APIMediaSurfaceFormatsINTEL",
	"clHostMemAllocINTEL",
	"clIcdGetPlatformIDsKHR",
	"clIcdSetPlatformDispatchDataKHR",
	"clImportMemoryARM",
	"clLogMessagesToStderrAPPLE",
	"clLogMessagesToStdoutAPPLE",
	"clLogMessagesToSystemLogAPPLE",
	"clMapHostPipeIntelFPGA",
	"clMemBlockingFreeINTEL",
	"clMemFreeINTEL",
	"clReImportSemaphoreSyncFdKHR",
	"clReadPipeIntelFPGA",
	"clReconfigurePLLIntelFPGA",
	"clReleaseAcceleratorINTEL",
	"clReleaseCommandBufferKHR",
	"clReleaseCommandQueue",
	"clReleaseContext",
	"clReleaseDevice",
	"clReleaseDeviceEXT",
	"clReleaseEvent",
	"clReleaseMemObject",
	"clReleaseSampler",
	"clReleaseSemaphoreKHR",
	"clRemapCommandBufferKHR",
	"clResetKernelsIntelFPGA",
	"clRetainAcceleratorINTEL",
	"clRetainCommandBufferKHR",
	"clRetainCommandQueue",
	"clRetainContext",
	"clRetainDevice",
	"clRetainDeviceEXT",
	"clRetainEvent",
	"clRetainMemObject",
	"clRetainSampler",
	"clRetainSemaphoreKHR",
	"clSVMAlloc",
	"clSVMAllocARM",
	"clSVMAllocWithPropertiesKHR",
	"clSVMFree",
	"clSVMFreeARM",
	"clSVMFreeWithPropertiesKHR",
	"clSetBoardLibraryIntelFPGA",
	"clSetCommandQueueProperty",
	"clSetContentSizeBufferPoCL",
	"clSetContextDestructorCallback",
	"clSetDefaultDeviceCommandQueue",
	"clSetDeviceExceptionCallbackIntelFPGA",
	"clSetEventCallback",
	"clSetKernelArg",
	"clSetKernelArgDevicePointerEXT",
	"clSetKernelArgMemPointerINTEL",
	"clSetKernelArgSVMPointer",
	"clSetKernelArgSVMPointerARM",
	"clSetKernelExecInfo",
	"clSetKernelExecInfoARM",
	"clSetMemObjectDestructorAPPLE",
	"clSetMemObjectDestructorCallback",
	"clSetPerfHintQCOM",
	"clSetPerformanceConfigurationINTEL",
	"clSetProgramReleaseCallback",
	"clSetUserEventStatus",
	"clSharedMemAllocINTEL",
	"clTerminateContextKHR",
	"clUnloadCompiler",
	"clUnloadPlatformCompiler",
	"clUnmapHostPipeIntelFPGA",
	"clUpdateMutableCommandsKHR",
	"clWaitForEvents",
	"clWritePipeIntelFPGA",
};

static int compare(const void *name, const void *place)
{
	return strcmp(name, *(const char *const *)place);
}

static int is_safe(const char *name)
{
	return bsearch(name, safe_names,
		       sizeof(safe_names) / sizeof(safe_names[0]),
		       sizeof(safe_names[0]), compare) != NULL;
}

/* `platform` NULL: all. */
static void end_shadows(cl_platform_id platform)
{
	struct ki_cl_program *program;
	unsigned walk;

	ki_cl_platform_set(platform, KI_CL_NO_SHADOWS);
	walk = ki_cl_walk_begin();
	while ((program = ki_cl_walk_shadowed(platform, walk))) {
		(void)ki_cl_go_native(program);
		ki_cl_program_unref(program);
	}
}

static void *hand_out(cl_platform_id platform, const char *name, void *address)
{
	void *own;

	if (!address || !name)
		return address;
	own = ki_cl_own_call(name);
	if (!own)
		own = ki_cl_vendor_call(platform, name, address);
	if (own)
		return own;
	if (!is_safe(name))
		end_shadows(platform);
	return address;
}

void *CL_API_CALL ki_clGetExtensionFunctionAddress(const char *function_name)
{
	return hand_out(
		NULL, function_name,
		ki_cl_next.clGetExtensionFunctionAddress(function_name));
}

void *CL_API_CALL ki_clGetExtensionFunctionAddressForPlatform(
	cl_platform_id platform, const char *function_name)
{
	return hand_out(platform, function_name,
			ki_cl_next.clGetExtensionFunctionAddressForPlatform(
				platform, function_name));
}
