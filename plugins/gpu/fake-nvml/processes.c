/* The processes that use GPUs, and samples of how busy they keep them. */
#include "library.h"

#include <time.h>

static int is_on(const struct process *process, const struct target *target)
{
    return process->gpu == target->gpu->slot &&
           (!target->mig || (process->gi == target->mig->gi && process->ci == target->mig->ci));
}

static nvmlReturn_t list(enum function function, enum process_kind kind, nvmlDevice_t device,
                         unsigned *count, nvmlProcessInfo_t *infos)
{
    struct target target;
    nvmlReturn_t const result = enter_device(function, device, &target);
    if (result)
        return leave(result);
    unsigned const room = infos ? *count : 0;
    *count = 0;
    for (int i = 0; i < fleet()->process_count; i++) {
        const struct process *const process = &fleet()->processes[i];
        if (process->kind != (long long)kind || !is_on(process, &target))
            continue;
        if (*count < room)
            infos[*count] = (nvmlProcessInfo_t){
                (unsigned)process->pid, (unsigned long long)process->used,
                (unsigned)process->gi, process->gi < 0 ? ~0U : (unsigned)process->ci};
        ++*count;
    }
    return leave(*count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

#define LIST(function, kind) \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) \
    { \
        return list(F_##function, kind, device, count, infos); \
    }

LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

NVML_API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                      nvmlProcessUtilizationSample_t *samples,
                                                      unsigned *count, unsigned long long since)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetProcessUtilization, device, &gpu);
    if (result || gpu->mig_mode == MIG_ON)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    long long const present = time.tv_sec * 1000000LL + time.tv_nsec / 1000;
    unsigned const room = samples ? *count : 0;
    *count = 0;
    for (int i = 0; i < fleet()->process_count; i++) {
        const struct process *const process = &fleet()->processes[i];
        long long const at = present - 1000 * process->age;
        if (process->gpu != gpu->slot || process->sm < 0 || at <= (long long)since)
            continue;
        if (*count < room)
            samples[*count] = (nvmlProcessUtilizationSample_t){
                (unsigned)process->pid, (unsigned long long)at, (unsigned)process->sm, 0, 0, 0};
        ++*count;
    }
    return leave(!*count ? NVML_ERROR_NOT_FOUND
                         : *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
