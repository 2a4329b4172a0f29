/* Profiles: the kinds of GPU instances and compute instances that a GPU can be cut into. */
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

unsigned profile_id(unsigned profile)
{
    return PROFILES[profile].id;
}

unsigned profile_of_id(unsigned id)
{
    unsigned profile = 0;
    while (profile < NVML_PROFILES && PROFILES[profile].id != id)
        profile++;
    return profile;
}

nvmlReturn_t profile_of(const struct gpu *gpu, unsigned profile, struct mig *mig)
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
        .instanceCount = strstr(mig->profile, "+me") ? 1
            : mig->slices == 1 && mig->size == 2     ? 4
                                                     : 7 / mig->slices + !(7 / mig->slices),
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
