/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_LEVELZERO_NAMES_H
#define KI_FRONT_LEVELZERO_NAMES_H

/*
 * The functions by which a loader asks a driver for its tables.  KI_ZE_NAMES
 * are those of loader 1.8; KI_ZE_NEWER_NAMES came later.
 */

/* clang-format off */
#define KI_ZE_NAMES(X) \
	X(zeGetCommandListProcAddrTable) \
	X(zeGetCommandQueueProcAddrTable) \
	X(zeGetContextProcAddrTable) \
	X(zeGetDeviceExpProcAddrTable) \
	X(zeGetDeviceProcAddrTable) \
	X(zeGetDriverProcAddrTable) \
	X(zeGetEventExpProcAddrTable) \
	X(zeGetEventPoolProcAddrTable) \
	X(zeGetEventProcAddrTable) \
	X(zeGetFabricEdgeExpProcAddrTable) \
	X(zeGetFabricVertexExpProcAddrTable) \
	X(zeGetFenceProcAddrTable) \
	X(zeGetGlobalProcAddrTable) \
	X(zeGetImageExpProcAddrTable) \
	X(zeGetImageProcAddrTable) \
	X(zeGetKernelExpProcAddrTable) \
	X(zeGetKernelProcAddrTable) \
	X(zeGetMemProcAddrTable) \
	X(zeGetModuleBuildLogProcAddrTable) \
	X(zeGetModuleProcAddrTable) \
	X(zeGetPhysicalMemProcAddrTable) \
	X(zeGetSamplerProcAddrTable) \
	X(zeGetVirtualMemProcAddrTable) \
	X(zesGetDeviceProcAddrTable) \
	X(zesGetDiagnosticsProcAddrTable) \
	X(zesGetDriverProcAddrTable) \
	X(zesGetEngineProcAddrTable) \
	X(zesGetFabricPortProcAddrTable) \
	X(zesGetFanProcAddrTable) \
	X(zesGetFirmwareProcAddrTable) \
	X(zesGetFrequencyProcAddrTable) \
	X(zesGetLedProcAddrTable) \
	X(zesGetMemoryProcAddrTable) \
	X(zesGetPerformanceFactorProcAddrTable) \
	X(zesGetPowerProcAddrTable) \
	X(zesGetPsuProcAddrTable) \
	X(zesGetRasProcAddrTable) \
	X(zesGetSchedulerProcAddrTable) \
	X(zesGetStandbyProcAddrTable) \
	X(zesGetTemperatureProcAddrTable) \
	X(zetGetCommandListProcAddrTable) \
	X(zetGetContextProcAddrTable) \
	X(zetGetDebugProcAddrTable) \
	X(zetGetDeviceProcAddrTable) \
	X(zetGetKernelProcAddrTable) \
	X(zetGetMetricGroupExpProcAddrTable) \
	X(zetGetMetricGroupProcAddrTable) \
	X(zetGetMetricProcAddrTable) \
	X(zetGetMetricQueryPoolProcAddrTable) \
	X(zetGetMetricQueryProcAddrTable) \
	X(zetGetMetricStreamerProcAddrTable) \
	X(zetGetModuleProcAddrTable) \
	X(zetGetTracerExpProcAddrTable)

#define KI_ZE_NEWER_NAMES(X) \
	X(zeGetCommandListExpProcAddrTable) \
	X(zeGetDriverExpProcAddrTable) \
	X(zeGetMemExpProcAddrTable) \
	X(zeGetRTASBuilderExpProcAddrTable) \
	X(zeGetRTASBuilderProcAddrTable) \
	X(zeGetRTASParallelOperationExpProcAddrTable) \
	X(zeGetRTASParallelOperationProcAddrTable) \
	X(zerGetGlobalProcAddrTable) \
	X(zesGetDeviceExpProcAddrTable) \
	X(zesGetDriverExpProcAddrTable) \
	X(zesGetGlobalProcAddrTable) \
	X(zesGetOverclockProcAddrTable) \
	X(zesGetTemperatureExpProcAddrTable) \
	X(zesGetVFManagementExpProcAddrTable) \
	X(zesGetRasExpProcAddrTable) \
	X(zetGetCommandListExpProcAddrTable) \
	X(zetGetContextExpProcAddrTable) \
	X(zetGetDeviceExpProcAddrTable) \
	X(zetGetMetricDecoderExpProcAddrTable) \
	X(zetGetMetricExpProcAddrTable) \
	X(zetGetMetricProgrammableExpProcAddrTable) \
	X(zetGetMetricTracerExpProcAddrTable)
/* clang-format on */

#endif /* KI_FRONT_LEVELZERO_NAMES_H */
