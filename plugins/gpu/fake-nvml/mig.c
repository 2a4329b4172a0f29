/* MIG: GPU instances, compute instances in them, and a MIG device for each of the latter. */
#include "library.h"

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
            .profileId = profile_id(target.mig->gpu_profile),
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
        if (mig->gi == target.mig->gi && mig->ci == (long long)id) {
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
