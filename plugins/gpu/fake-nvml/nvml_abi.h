/* The part of NVML's binary interface that this library serves: names, numbers and layouts. */
#ifndef NVML_ABI_H
#define NVML_ABI_H

#include <stddef.h>

#define NVML_API __attribute__((visibility("default")))

typedef int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

/* Handles are opaque pointers. All of ours point to the same structure. */
struct handle;
struct event_set;
typedef struct handle *nvmlDevice_t;
typedef struct handle *nvmlGpuInstance_t;
typedef struct handle *nvmlComputeInstance_t;
typedef struct event_set *nvmlEventSet_t;

enum { NVML_LINKS = 36, NVML_UUID_BYTES = 96, NVML_FABRIC_UUID_BYTES = 16 };

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device;
    unsigned pciDeviceId, pciSubSystemId; /* device << 16 | vendor */
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used; /* bytes */
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used; /* bytes */
} nvmlMemory_v2_t;

typedef struct {
    unsigned max, high, partial, low, none; /* banks by their spare rows */
} nvmlRowRemapperHistogramValues_t;

typedef struct {
    unsigned gpu, memory; /* percent */
} nvmlUtilization_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;            /* bytes, or all ones: not available */
    unsigned gpuInstanceId, computeInstanceId; /* 0xffffffff: the whole GPU */
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    unsigned long long timeStamp; /* microseconds since the epoch */
    unsigned smUtil, memUtil, encUtil, decUtil; /* percent */
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned version, sensorType;
    int temperature;
} nvmlTemperature_t;

typedef struct {
    unsigned version, value;
} nvmlDeviceAddressingMode_t;

typedef struct {
    unsigned multiprocessorCount;
    unsigned sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned sharedJpegCount, sharedOfaCount;
    unsigned gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
    unsigned start, size;
} nvmlPlacement_t;

typedef struct {
    unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    unsigned copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
    unsigned version;
    unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    unsigned copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    unsigned id, profileId;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
    unsigned id, sliceCount, instanceCount, multiprocessorCount;
    unsigned sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
    unsigned version;
    unsigned id, sliceCount, instanceCount, multiprocessorCount;
    unsigned sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned sharedJpegCount, sharedOfaCount;
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned id, profileId;
    nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;

/* Numbers of the GPU instance profiles, as asked for. */
enum {
    NVML_PROFILE_1_SLICE = 0,
    NVML_PROFILE_2_SLICE = 1,
    NVML_PROFILE_3_SLICE = 2,
    NVML_PROFILE_4_SLICE = 3,
    NVML_PROFILE_7_SLICE = 4,
    NVML_PROFILE_8_SLICE = 5,
    NVML_PROFILE_6_SLICE = 6,
    NVML_PROFILE_1_SLICE_REV1 = 7, /* +me */
    NVML_PROFILE_2_SLICE_REV1 = 8,
    NVML_PROFILE_1_SLICE_REV2 = 9, /* more memory */
    NVML_PROFILE_1_SLICE_GFX = 10,
    NVML_PROFILE_2_SLICE_GFX = 11,
    NVML_PROFILE_4_SLICE_GFX = 12,
    NVML_PROFILE_1_SLICE_NO_ME = 13,
    NVML_PROFILE_2_SLICE_NO_ME = 14,
    NVML_PROFILE_1_SLICE_ALL_ME = 15,
    NVML_PROFILE_2_SLICE_ALL_ME = 16,
    NVML_PROFILE_3_SLICE_GFX = 17,
    NVML_PROFILES = 18,
    NVML_COMPUTE_PROFILES = 9,
};

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId; /* 0xffffffff: the whole GPU */
} nvmlEventData_t;

enum {
    NVML_EVENT_SINGLE_BIT = 1,
    NVML_EVENT_DOUBLE_BIT = 2,
    NVML_EVENT_XID = 8,
    NVML_EVENT_MIG = 0x100, /* the layout has changed */
};

enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50,
};

enum { NVML_REMOTE_GPU = 0, NVML_REMOTE_SWITCH = 2 };

typedef struct {
    unsigned char clusterUuid[NVML_FABRIC_UUID_BYTES];
    nvmlReturn_t status;
    unsigned cliqueId, state;
} nvmlGpuFabricInfo_t;

typedef struct {
    unsigned version;
    unsigned char clusterUuid[NVML_FABRIC_UUID_BYTES];
    nvmlReturn_t status;
    unsigned cliqueId, state, healthMask;
    unsigned char healthSummary; /* from version 3 on */
} nvmlGpuFabricInfoV_t;

enum { NVML_FEATURES = 3, NVML_LICENSE_BYTES = 128 };

typedef struct {
    unsigned year;
    unsigned short month, day, hour, min, sec;
    unsigned char status; /* 0 none, 1 invalid, 2 valid, 3 not applicable, 4 permanent */
} nvmlGridLicenseExpiry_t;

typedef struct {
    unsigned code, state; /* whether it is licensed */
    char licenseInfo[NVML_LICENSE_BYTES], productName[NVML_LICENSE_BYTES];
    unsigned enabled;
    nvmlGridLicenseExpiry_t expiry;
} nvmlGridLicensableFeature_t;

typedef struct {
    int isGridLicenseSupported;
    unsigned licensableFeaturesCount;
    nvmlGridLicensableFeature_t gridLicensableFeatures[NVML_FEATURES];
} nvmlGridLicensableFeatures_t;

/* A structure's version: its size, and its number in the highest byte. */
#define NVML_VERSION(size, number) ((unsigned)(size) | (unsigned)(number) << 24)

#endif
