/* Making and destroying GPU instances and compute instances, and switching MIG on and off. */
#include "library.h"

#include <stdio.h>
#include <string.h>

/* The first slices of memory at which an instance of this profile can begin. */
static unsigned placements_of(const struct mig *mig, nvmlPlacement_t *found)
{
    unsigned const last = mig->slices == 4 || mig->slices >= 6 ? 0 : mig->size == 1 ? 6 : 8 - mig->size;
    unsigned const last_start = mig->slices == 2 ? 4 : last;
    unsigned count = 0;
    for (unsigned start = 0; start <= last_start; start += mig->size)
        found[count++] = (nvmlPlacement_t){start, mig->size};
    return count;
}

/* Enters for a profile by the number that the device gives it. */
static nvmlReturn_t enter_profile(enum function function, nvmlDevice_t device, unsigned id,
                                  const struct gpu **gpu, struct mig *mig)
{
    nvmlReturn_t const result = enter_gpu(function, device, gpu);
    unsigned const profile = profile_of_id(id);
    if (result || profile == NVML_PROFILES)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    return profile_of(*gpu, profile, mig);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                                    nvmlPlacement_t *placements,
                                                                    unsigned *count)
{
    const struct gpu *gpu;
    struct mig mig;
    nvmlPlacement_t found[8];
    nvmlReturn_t const result = enter_profile(F_nvmlDeviceGetGpuInstancePossiblePlacements_v2,
                                              device, id, &gpu, &mig);
    if (result)
        return leave(result);
    unsigned const room = *count;
    *count = placements_of(&mig, found);
    if (!placements)
        return leave(NVML_SUCCESS);
    if (room < *count)
        return leave(NVML_ERROR_INSUFFICIENT_SIZE);
    memcpy(placements, found, *count * sizeof *found);
    return leave(NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id,
                                                nvmlGpuInstance_t *instances, unsigned *count)
{
    const struct gpu *gpu;
    struct mig mig;
    nvmlReturn_t result = enter_profile(F_nvmlDeviceGetGpuInstances, device, id, &gpu, &mig);
    if (!result && gpu->mig_mode != MIG_ON)
        result = NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    for (int i = 0; !result && i < gpu->mig_count; i++) {
        int is_new = profile_id(gpu->migs[i].gpu_profile) == id;
        for (int j = 0; j < i; j++)
            is_new &= gpu->migs[j].gi != gpu->migs[i].gi;
        if (is_new)
            instances[(*count)++] = handle_of(HANDLE_GPU_INSTANCE, gpu, &gpu->migs[i]);
    }
    return leave(result);
}

/* Whether a GPU has no room for another instance at this place: in memory, or in engines. */
static int is_full(const struct gpu *gpu, const struct mig *mig)
{
    struct mig whole;
    if (gpu->mig_count == MAX_MIGS || profile_of(gpu, NVML_PROFILE_7_SLICE, &whole))
        return 1;
    for (int engine = 0; engine < ENGINES; engine++)
        whole.engines[engine] -= mig->engines[engine];
    for (int i = 0; i < gpu->mig_count; i++) {
        const struct mig *const other = &gpu->migs[i];
        if (other->start < mig->start + mig->size && mig->start < other->start + other->size)
            return 1;
        int is_new = 1;
        for (int j = 0; j < i; j++)
            is_new &= gpu->migs[j].gi != other->gi;
        for (int engine = 0; is_new && engine < ENGINES; engine++)
            whole.engines[engine] -= other->engines[engine];
    }
    for (int engine = 0; engine < ENGINES; engine++)
        if (whole.engines[engine] < 0)
            return 1;
    return 0;
}

/* The lowest number from `first` on that no GPU instance has; with a gi, no compute instance of it. */
static long long free_number(const struct gpu *gpu, long long first, long long gi)
{
    for (int i = 0; i < gpu->mig_count; i++) {
        const struct mig *const mig = &gpu->migs[i];
        if (gi < 0 ? mig->gi == first : mig->gi == gi && mig->ci == first) {
            first++;
            i = -1;
        }
    }
    return first;
}

static int is_used(const struct gpu *gpu, long long gi, long long ci)
{
    for (int i = 0; i < fleet()->process_count; i++) {
        const struct process *const process = &fleet()->processes[i];
        if (process->gpus >> gpu->slot & 1 && (gi < 0 || process->gi == gi) &&
            (ci < 0 || process->ci == ci))
            return 1;
    }
    return 0;
}

static const struct mig *mig_of(const struct gpu *gpu, long long gi)
{
    for (int i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gi == gi)
            return &gpu->migs[i];
    return NULL;
}

NVML_API nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id,
                                                               const nvmlPlacement_t *placement,
                                                               nvmlGpuInstance_t *instance)
{
    const struct gpu *gpu;
    struct target target;
    struct mig mig;
    nvmlPlacement_t found[8];
    nvmlReturn_t result = enter_profile(F_nvmlDeviceCreateGpuInstanceWithPlacement, device, id,
                                        &gpu, &mig);
    if (result)
        return leave(result);
    if (change_begin())
        return change_end(NVML_ERROR_UNKNOWN);
    handle_find(device, 1 << HANDLE_GPU, &target);
    gpu = target.gpu;
    int is_possible = 0;
    for (unsigned i = placements_of(&mig, found); i--;)
        is_possible |= found[i].start == placement->start && found[i].size == placement->size;
    if (!gpu || gpu->mig_mode != MIG_ON || gpu->virtualization == 2)
        return change_end(NVML_ERROR_NOT_SUPPORTED);
    if (!is_possible)
        return change_end(NVML_ERROR_INVALID_ARGUMENT);
    mig.start = placement->start;
    if (is_full(gpu, &mig))
        return change_end(NVML_ERROR_INSUFFICIENT_RESOURCES);
    long long const gi = free_number(gpu, 1, -1);
    char const *const part = strstr(mig.profile, "c.");
    change("instance %d gi=%lld profile=%s start=%lld\n", gpu->slot, gi,
           part ? part + 2 : mig.profile, mig.start);
    handle_find(device, 1 << HANDLE_GPU, &target);
    *instance = handle_of(HANDLE_GPU_INSTANCE, target.gpu, mig_of(target.gpu, gi));
    return change_end(NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
                                                           unsigned profile,
                                                           nvmlComputeInstance_t *compute)
{
    static const unsigned SLICES[NVML_COMPUTE_PROFILES] = {1, 2, 3, 4, 7, 8, 6};
    struct target target;
    nvmlReturn_t result = enter_handle(F_nvmlGpuInstanceCreateComputeInstance, instance,
                                       1 << HANDLE_GPU_INSTANCE, &target);
    if (!result && (profile >= NVML_COMPUTE_PROFILES || !SLICES[profile]))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result)
        return leave(result);
    if (change_begin() || (result = handle_find(instance, 1 << HANDLE_GPU_INSTANCE, &target)))
        return change_end(result ? result : NVML_ERROR_UNKNOWN);
    const struct gpu *const gpu = target.gpu;
    struct mig const mig = *target.mig;
    unsigned used = SLICES[profile];
    long long index = 0;
    for (int i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].gi == mig.gi && gpu->migs[i].ci >= 0)
            used += gpu->migs[i].compute_slices;
    for (int i = 0; i < gpu->mig_count; i++)
        if (gpu->migs[i].index == index) {
            index++;
            i = -1;
        }
    if (used > mig.slices || index >= gpu->max_migs)
        return change_end(NVML_ERROR_INSUFFICIENT_RESOURCES);
    long long const ci = free_number(gpu, 0, mig.gi);
    char part[32] = "";
    if (SLICES[profile] < mig.slices)
        snprintf(part, sizeof part, "%uc.", SLICES[profile]);
    char const *const whole = strstr(mig.profile, "c.");
    change("mig %d gi=%lld ci=%lld index=%lld profile=%s%s start=%lld\n", gpu->slot, mig.gi, ci,
           index, part, whole ? whole + 2 : mig.profile, mig.start);
    handle_find(instance, 1 << HANDLE_GPU_INSTANCE, &target);
    for (int i = 0; i < target.gpu->mig_count; i++)
        if (target.gpu->migs[i].gi == mig.gi && target.gpu->migs[i].ci == ci)
            *compute = handle_of(HANDLE_COMPUTE_INSTANCE, target.gpu, &target.gpu->migs[i]);
    return change_end(NVML_SUCCESS);
}

static nvmlReturn_t destroy(enum function function, struct handle *handle, enum handle_kind kind)
{
    struct target target;
    nvmlReturn_t result = enter_handle(function, handle, 1 << kind, &target);
    if (result)
        return leave(result);
    if (change_begin() || (result = handle_find(handle, 1 << kind, &target)))
        return change_end(result ? result : NVML_ERROR_UNKNOWN);
    const struct mig *const mig = target.mig;
    int const slot = target.gpu->slot;
    if (kind == HANDLE_GPU_INSTANCE) {
        if (mig->ci >= 0 || is_used(target.gpu, mig->gi, -1))
            return change_end(NVML_ERROR_IN_USE);
        change("gone %d gi=%lld\n", slot, mig->gi);
    } else {
        if (is_used(target.gpu, mig->gi, mig->ci))
            return change_end(NVML_ERROR_IN_USE);
        change("gone %d gi=%lld ci=%lld\n", slot, mig->gi, mig->ci);
    }
    return change_end(NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    return destroy(F_nvmlGpuInstanceDestroy, instance, HANDLE_GPU_INSTANCE);
}

NVML_API nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    return destroy(F_nvmlComputeInstanceDestroy, compute, HANDLE_COMPUTE_INSTANCE);
}

/* Before compute capability 9.0 a mode takes effect at the next reset. */
NVML_API nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode,
                                           nvmlReturn_t *status)
{
    const struct gpu *gpu;
    struct target target;
    nvmlReturn_t result = enter_gpu(F_nvmlDeviceSetMigMode, device, &gpu);
    if (!result && (mode > 1 || gpu->mig_mode == MIG_UNSUPPORTED))
        result = mode > 1 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    if (result)
        return leave(result);
    if (change_begin())
        return change_end(NVML_ERROR_UNKNOWN);
    handle_find(device, 1 << HANDLE_GPU, &target);
    gpu = target.gpu;
    char const *const wanted = mode ? "on" : "off";
    int const is_same = gpu->mig_mode == (mode ? MIG_ON : MIG_OFF);
    *status = is_same ? NVML_SUCCESS
        : gpu->compute[0] < 9 ? NVML_ERROR_RESET_REQUIRED
        : gpu->busy || is_used(gpu, -1, -1) || gpu->mig_count ? NVML_ERROR_IN_USE : NVML_SUCCESS;
    if (*status)
        change("gpu %d mig-pending=%s\n", gpu->slot, wanted);
    else
        change("gpu %d mig=%s mig-pending=%s\n", gpu->slot, wanted, wanted);
    return change_end(NVML_SUCCESS);
}
