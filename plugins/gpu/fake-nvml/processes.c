/* The processes that use GPUs, and samples of how busy they keep them. */
#include "library.h"

#include <time.h>

static nvmlReturn_t list(enum function function, enum process_kind kind, nvmlDevice_t device,
                         unsigned *count, nvmlProcessInfo_t *infos)
{
    struct target on;
    nvmlReturn_t const result = enter_device(function, device, &on);
    if (result)
        return leave(result);
    unsigned const room = infos ? *count : 0;
    *count = 0;
    for (int i = 0; i < fleet()->process_count; i++) {
        const struct process *const process = &fleet()->processes[i];
        if (process->kind != (long long)kind || !(process->gpus >> on.gpu->slot & 1) ||
            (on.mig && (process->gi != on.mig->gi || process->ci != on.mig->ci)))
            continue;
        if (*count < room)
            infos[*count] = (nvmlProcessInfo_t){
                (unsigned)process->pid, (unsigned long long)process->used,
                (unsigned)process->gi, process->gi < 0 ? ~0U : (unsigned)process->ci};
        ++*count;
    }
    return leave(*count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

/* The second version of a list has the layout of the third. */
#define LIST(name, kind) \
    NVML_API nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) \
    { \
        return list(F_##name##_v3, kind, device, count, infos); \
    } \
    NVML_API __typeof__(name##_v3) name##_v2 __attribute__((alias(#name "_v3")));

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

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
        if (!(process->gpus >> gpu->slot & 1) || process->sm < 0 || at <= (long long)since)
            continue;
        if (*count < room)
            samples[*count] = (nvmlProcessUtilizationSample_t){
                (unsigned)process->pid, (unsigned long long)at, (unsigned)process->sm, 0, 0, 0};
        ++*count;
    }
    return leave(!*count ? NVML_ERROR_NOT_FOUND
                         : *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
