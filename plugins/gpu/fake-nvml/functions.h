/* Every function that the library exports; the order is that of the file of counters. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#define FUNCTIONS(X) \
    X(nvmlInit_v2) \
    X(nvmlInitWithFlags) \
    X(nvmlShutdown) \
    X(nvmlErrorString) \
    X(nvmlSystemGetDriverVersion) \
    X(nvmlSystemGetNVMLVersion) \
    X(nvmlSystemGetCudaDriverVersion) \
    X(nvmlSystemGetCudaDriverVersion_v2) \
    X(nvmlDeviceGetCount_v2) \
    X(nvmlDeviceGetHandleByIndex_v2) \
    X(nvmlDeviceGetHandleByUUID) \
    X(nvmlDeviceGetHandleByPciBusId_v2) \
    X(nvmlDeviceGetName) \
    X(nvmlDeviceGetBrand) \
    X(nvmlDeviceGetIndex) \
    X(nvmlDeviceGetUUID) \
    X(nvmlDeviceGetMinorNumber) \
    X(nvmlDeviceGetPciInfo_v3) \
    X(nvmlDeviceGetNumaNodeId) \
    X(nvmlDeviceGetMemoryInfo) \
    X(nvmlDeviceGetMemoryInfo_v2) \
    X(nvmlDeviceGetCudaComputeCapability) \
    X(nvmlDeviceGetNumGpuCores) \
    X(nvmlDeviceGetComputeMode) \
    X(nvmlDeviceGetVirtualizationMode) \
    X(nvmlDeviceGetAddressingMode) \
    X(nvmlDeviceGetMigMode) \
    X(nvmlDeviceSetMigMode) \
    X(nvmlDeviceGetMaxMigDeviceCount) \
    X(nvmlDeviceGetMigDeviceHandleByIndex) \
    X(nvmlDeviceIsMigDeviceHandle) \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
    X(nvmlDeviceGetAttributes_v2) \
    X(nvmlDeviceGetGpuInstanceId) \
    X(nvmlDeviceGetComputeInstanceId) \
    X(nvmlDeviceGetGpuInstanceById) \
    X(nvmlDeviceGetGpuInstances) \
    X(nvmlDeviceGetGpuInstancePossiblePlacements_v2) \
    X(nvmlDeviceCreateGpuInstanceWithPlacement) \
    X(nvmlGpuInstanceDestroy) \
    X(nvmlDeviceGetGpuInstanceProfileInfo) \
    X(nvmlDeviceGetGpuInstanceProfileInfoV) \
    X(nvmlGpuInstanceGetInfo) \
    X(nvmlGpuInstanceGetComputeInstanceById) \
    X(nvmlGpuInstanceCreateComputeInstance) \
    X(nvmlComputeInstanceDestroy) \
    X(nvmlGpuInstanceGetComputeInstanceProfileInfo) \
    X(nvmlGpuInstanceGetComputeInstanceProfileInfoV) \
    X(nvmlComputeInstanceGetInfo_v2) \
    X(nvmlEventSetCreate) \
    X(nvmlEventSetFree) \
    X(nvmlEventSetWait_v2) \
    X(nvmlDeviceGetSupportedEventTypes) \
    X(nvmlDeviceRegisterEvents) \
    X(nvmlDeviceGetTopologyCommonAncestor) \
    X(nvmlDeviceGetNvLinkState) \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2) \
    X(nvmlDeviceGetNvLinkRemoteDeviceType) \
    X(nvmlDeviceGetGpuFabricInfo) \
    X(nvmlDeviceGetGpuFabricInfoV) \
    X(nvmlDeviceGetUtilizationRates) \
    X(nvmlDeviceGetTemperature) \
    X(nvmlDeviceGetTemperatureV) \
    X(nvmlDeviceGetPowerUsage) \
    X(nvmlDeviceGetEnforcedPowerLimit) \
    X(nvmlDeviceGetTotalEnergyConsumption) \
    X(nvmlDeviceGetEccMode) \
    X(nvmlDeviceGetTotalEccErrors) \
    X(nvmlDeviceGetMemoryErrorCounter) \
    X(nvmlDeviceGetRetiredPages) \
    X(nvmlDeviceGetRetiredPages_v2) \
    X(nvmlDeviceGetRetiredPagesPendingStatus) \
    X(nvmlDeviceGetRemappedRows) \
    X(nvmlDeviceGetRowRemapperHistogram) \
    X(nvmlDeviceGetCurrentClocksThrottleReasons) \
    X(nvmlDeviceGetCurrentClocksEventReasons) \
    X(nvmlDeviceGetPcieReplayCounter) \
    X(nvmlDeviceGetClockInfo) \
    X(nvmlDeviceGetMaxClockInfo) \
    X(nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    X(nvmlDeviceGetProcessUtilization) \
    X(nvmlDeviceGetGridLicensableFeatures_v4)

enum function {
#define NUMBER(name) F_##name,
    FUNCTIONS(NUMBER)
#undef NUMBER
    FUNCTION_COUNT
};

const char *function_name(enum function function);

/* counters.c: count calls in the file that FAKE_NVML_CALLS names. */
void counters_open(const char *path);
void counters_add(enum function function);

#endif
