/* MIG: GPU instances, compute instances in them, and a MIG device for each of the latter. */
#include "library.h"

#include <stdio.h>
#include <string.h>

/* The slices of a profile by its number, and the number that a device gives it. The latter are
 * those of an A100 where it has the profile, and of our own elsewhere: they differ by model. */
static const struct {
    unsigned slices, id;
    int is_everywhere;
} PROFILES[NVML_PROFILES] = {
    [NVML_PROFILE_1_SLICE] = {1, 19, 1},      [NVML_PROFILE_2_SLICE] = {2, 14, 1},
    [NVML_PROFILE_3_SLICE] = {3, 9, 1},       [NVML_PROFILE_4_SLICE] = {4, 5, 1},
    [NVML_PROFILE_7_SLICE] = {7, 0, 1},       [NVML_PROFILE_8_SLICE] = {8, 40, 0},
    [NVML_PROFILE_6_SLICE] = {6, 41, 0},      [NVML_PROFILE_1_SLICE_REV1] = {1, 20, 1},
    [NVML_PROFILE_2_SLICE_REV1] = {2, 42, 0}, [NVML_PROFILE_1_SLICE_REV2] = {1, 15, 1},
    [NVML_PROFILE_1_SLICE_GFX] = {1, 43, 0},  [NVML_PROFILE_2_SLICE_GFX] = {2, 44, 0},
    [NVML_PROFILE_4_SLICE_GFX] = {4, 45, 0},  [NVML_PROFILE_1_SLICE_NO_ME] = {1, 46, 0},
    [NVML_PROFILE_2_SLICE_NO_ME] = {2, 47, 0}, [NVML_PROFILE_1_SLICE_ALL_ME] = {1, 48, 0},
    [NVML_PROFILE_2_SLICE_ALL_ME] = {2, 49, 0}, [NVML_PROFILE_3_SLICE_GFX] = {3, 50, 0}};

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *mode, unsigned *pending)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetMigMode, device, &gpu);
    if (result || gpu->mig_mode == MIG_UNSUPPORTED)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    *mode = gpu->mig_mode == MIG_ON;
    *pending = gpu->mig_pending == MIG_ON;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetMaxMigDeviceCount, device, &gpu);
    if (!result)
        *count = gpu->mig_mode == MIG_ON ? (unsigned)gpu->max_migs : 0;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                          nvmlDevice_t *mig)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetMigDeviceHandleByIndex, device, &gpu);
    if (result || gpu->mig_mode != MIG_ON)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    if (index >= (unsigned)gpu->max_migs)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].index == index) {
            *mig = handle_of(HANDLE_MIG, gpu, &gpu->migs[i]);
            return leave(NVML_SUCCESS);
        }
    return leave(NVML_ERROR_NOT_FOUND);
}

NVML_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceIsMigDeviceHandle, device, &target);
    if (!result)
        *is_mig = target.mig != NULL;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                   nvmlDevice_t *device)
{
    struct target target;
    nvmlReturn_t const result = enter_handle(F_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig,
                                             1 << HANDLE_MIG, &target);
    if (!result)
        *device = handle_of(HANDLE_GPU, target.gpu, NULL);
    return leave(result);
}

/* Enters for a MIG device; a whole GPU is not supported. */
static nvmlReturn_t enter_mig(enum function function, nvmlDevice_t device, struct target *target)
{
    nvmlReturn_t const result = enter_device(function, device, target);
    return result ? result : target->mig ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

NVML_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
                                                 nvmlDeviceAttributes_t *attributes)
{
    struct target target;
    nvmlReturn_t const result = enter_mig(F_nvmlDeviceGetAttributes_v2, device, &target);
    if (result)
        return leave(result);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = (unsigned)target.mig->multiprocessors,
        .sharedCopyEngineCount = (unsigned)target.mig->engines[COPY],
        .sharedDecoderCount = (unsigned)target.mig->engines[DECODER],
        .sharedEncoderCount = (unsigned)target.mig->engines[ENCODER],
        .sharedJpegCount = (unsigned)target.mig->engines[JPEG],
        .sharedOfaCount = (unsigned)target.mig->engines[OFA],
        .gpuInstanceSliceCount = target.mig->slices,
        .computeInstanceSliceCount = target.mig->compute_slices,
        .memorySizeMB = (unsigned long long)target.mig->memory >> 20,
    };
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    struct target target;
    nvmlReturn_t const result = enter_mig(F_nvmlDeviceGetGpuInstanceId, device, &target);
    if (!result)
        *id = (unsigned)target.mig->gi;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    struct target target;
    nvmlReturn_t const result = enter_mig(F_nvmlDeviceGetComputeInstanceId, device, &target);
    if (!result)
        *id = (unsigned)target.mig->ci;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id,
                                                   nvmlGpuInstance_t *instance)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetGpuInstanceById, device, &gpu);
    if (result || gpu->mig_mode != MIG_ON)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    for (int i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gi == id) {
            *instance = handle_of(HANDLE_GPU_INSTANCE, gpu, &gpu->migs[i]);
            return leave(NVML_SUCCESS);
        }
    return leave(NVML_ERROR_NOT_FOUND);
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance,
                                             nvmlGpuInstanceInfo_t *info)
{
    struct target target;
    nvmlReturn_t const result =
        enter_handle(F_nvmlGpuInstanceGetInfo, instance, 1 << HANDLE_GPU_INSTANCE, &target);
    if (!result)
        *info = (nvmlGpuInstanceInfo_t){
            .device = handle_of(HANDLE_GPU, target.gpu, NULL),
            .id = (unsigned)target.mig->gi,
            .profileId = PROFILES[target.mig->gpu_profile].id,
            .placement = {(unsigned)target.mig->start, target.mig->size},
        };
    return leave(result);
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance,
                                                            unsigned id,
                                                            nvmlComputeInstance_t *compute)
{
    struct target target;
    nvmlReturn_t const result = enter_handle(F_nvmlGpuInstanceGetComputeInstanceById, instance,
                                             1 << HANDLE_GPU_INSTANCE, &target);
    for (int i = 0; !result && i < target.gpu->mig_count; i++) {
        const struct mig *const mig = &target.gpu->migs[i];
        if (mig->gi == target.mig->gi && mig->ci == id) {
            *compute = handle_of(HANDLE_COMPUTE_INSTANCE, target.gpu, mig);
            return leave(NVML_SUCCESS);
        }
    }
    return leave(result ? result : NVML_ERROR_NOT_FOUND);
}

NVML_API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
                                                    nvmlComputeInstanceInfo_t *info)
{
    struct target target;
    nvmlReturn_t const result = enter_handle(F_nvmlComputeInstanceGetInfo_v2, compute,
                                             1 << HANDLE_COMPUTE_INSTANCE, &target);
    if (!result)
        *info = (nvmlComputeInstanceInfo_t){
            .device = handle_of(HANDLE_GPU, target.gpu, NULL),
            .gpuInstance = handle_of(HANDLE_GPU_INSTANCE, target.gpu, target.mig),
            .id = (unsigned)target.mig->ci,
            .profileId = target.mig->compute_profile,
            .placement = {(unsigned)target.mig->ci, target.mig->compute_slices},
        };
    return leave(result);
}

/* A MIG device of this GPU that has the profile, or one as the GPU's size makes it. */
static nvmlReturn_t profile_of(const struct gpu *gpu, unsigned profile, struct mig *mig)
{
    static const long long EIGHTHS[] = {[1] = 1, [2] = 2, [3] = 4, [4] = 4, [7] = 8};
    if (profile >= NVML_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu->mig_mode == MIG_UNSUPPORTED)
        return NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gpu_profile == profile) {
            *mig = gpu->migs[i];
            return NVML_SUCCESS;
        }
    if (!PROFILES[profile].is_everywhere)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned const slices = PROFILES[profile].slices;
    long long const eighths = EIGHTHS[slices] + (profile == NVML_PROFILE_1_SLICE_REV2);
    mig_start(mig);
    mig->gi = 0;
    snprintf(mig->profile, sizeof mig->profile, "%ug.%lldgb%s", slices,
             (gpu->memory / 8 * eighths + (1 << 29)) >> 30,
             profile == NVML_PROFILE_1_SLICE_REV1 ? "+me" : "");
    char problem[200];
    struct gpu const empty = {.memory = gpu->memory};
    return mig_finish(mig, &empty, problem, sizeof problem) ? NVML_ERROR_NOT_SUPPORTED
                                                            : NVML_SUCCESS;
}

/* A profile's name, without the compute slices of `1c.3g.20gb`. */
static const char *gpu_profile_name(const struct mig *mig)
{
    char const *const end = strstr(mig->profile, "c.");
    return end ? end + 2 : mig->profile;
}

static void fill_profile(const struct mig *mig, unsigned profile,
                         nvmlGpuInstanceProfileInfo_t *info)
{
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = PROFILES[profile].id,
        .sliceCount = mig->slices,
        .instanceCount = 7 / mig->slices ? 7 / mig->slices : 1,
        .multiprocessorCount = 14 * mig->slices,
        .copyEngineCount = (unsigned)mig->engines[COPY],
        .decoderCount = (unsigned)mig->engines[DECODER],
        .encoderCount = (unsigned)mig->engines[ENCODER],
        .jpegCount = (unsigned)mig->engines[JPEG],
        .ofaCount = (unsigned)mig->engines[OFA],
        .memorySizeMB = (unsigned long long)mig->memory >> 20,
    };
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned profile,
                                                          nvmlGpuInstanceProfileInfo_t *info)
{
    const struct gpu *gpu;
    struct mig mig;
    nvmlReturn_t result = enter_gpu(F_nvmlDeviceGetGpuInstanceProfileInfo, device, &gpu);
    if (!result)
        result = profile_of(gpu, profile, &mig);
    if (!result)
        fill_profile(&mig, profile, info);
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned profile,
                                                           nvmlGpuInstanceProfileInfo_v2_t *info)
{
    const struct gpu *gpu;
    struct mig mig;
    nvmlGpuInstanceProfileInfo_t first;
    nvmlReturn_t result = enter_gpu(F_nvmlDeviceGetGpuInstanceProfileInfoV, device, &gpu);
    if (!result && info->version != NVML_VERSION(sizeof *info, 2))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!result)
        result = profile_of(gpu, profile, &mig);
    if (result)
        return leave(result);
    fill_profile(&mig, profile, &first);
    info->id = first.id;
    info->isP2pSupported = first.isP2pSupported;
    info->sliceCount = first.sliceCount;
    info->instanceCount = first.instanceCount;
    info->multiprocessorCount = first.multiprocessorCount;
    info->copyEngineCount = first.copyEngineCount;
    info->decoderCount = first.decoderCount;
    info->encoderCount = first.encoderCount;
    info->jpegCount = first.jpegCount;
    info->ofaCount = first.ofaCount;
    info->memorySizeMB = first.memorySizeMB;
    snprintf(info->name, sizeof info->name, "MIG %.80s", gpu_profile_name(&mig));
    return leave(result);
}

/* Enters for a profile of the compute instances in a GPU instance. */
static nvmlReturn_t enter_compute_profile(enum function function, nvmlGpuInstance_t instance,
                                          unsigned profile, unsigned engines,
                                          nvmlComputeInstanceProfileInfo_t *info,
                                          const struct mig **mig)
{
    static const unsigned SLICES[NVML_COMPUTE_PROFILES] = {1, 2, 3, 4, 7, 8, 6};
    struct target target;
    nvmlReturn_t const result = enter_handle(function, instance, 1 << HANDLE_GPU_INSTANCE, &target);
    if (result)
        return result;
    if (profile >= NVML_COMPUTE_PROFILES || engines)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned const slices = SLICES[profile];
    if (!slices || slices > target.mig->slices)
        return NVML_ERROR_NOT_SUPPORTED;
    *mig = target.mig;
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = profile,
        .sliceCount = slices,
        .instanceCount = target.mig->slices / slices,
        .multiprocessorCount = 14 * slices,
        .sharedCopyEngineCount = (unsigned)target.mig->engines[COPY],
        .sharedDecoderCount = (unsigned)target.mig->engines[DECODER],
        .sharedEncoderCount = (unsigned)target.mig->engines[ENCODER],
        .sharedJpegCount = (unsigned)target.mig->engines[JPEG],
        .sharedOfaCount = (unsigned)target.mig->engines[OFA],
    };
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned profile, unsigned engines,
    nvmlComputeInstanceProfileInfo_t *info)
{
    const struct mig *mig;
    return leave(enter_compute_profile(F_nvmlGpuInstanceGetComputeInstanceProfileInfo, instance,
                                       profile, engines, info, &mig));
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t instance, unsigned profile, unsigned engines,
    nvmlComputeInstanceProfileInfo_v2_t *info)
{
    const struct mig *mig;
    nvmlComputeInstanceProfileInfo_t first;
    nvmlReturn_t const result = enter_compute_profile(
        F_nvmlGpuInstanceGetComputeInstanceProfileInfoV, instance, profile, engines, &first, &mig);
    if (result)
        return leave(result);
    if (info->version != NVML_VERSION(sizeof *info, 2))
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    info->id = first.id;
    info->sliceCount = first.sliceCount;
    info->instanceCount = first.instanceCount;
    info->multiprocessorCount = first.multiprocessorCount;
    info->sharedCopyEngineCount = first.sharedCopyEngineCount;
    info->sharedDecoderCount = first.sharedDecoderCount;
    info->sharedEncoderCount = first.sharedEncoderCount;
    info->sharedJpegCount = first.sharedJpegCount;
    info->sharedOfaCount = first.sharedOfaCount;
    if (first.sliceCount == mig->slices)
        snprintf(info->name, sizeof info->name, "MIG %.80s", gpu_profile_name(mig));
    else
        snprintf(info->name, sizeof info->name, "MIG %uc.%.80s", first.sliceCount,
                 gpu_profile_name(mig));
    return leave(result);
}
