/* What changes while a GPU works: load, heat, power, clocks and errors. */
#include "library.h"

/* A function that gives one number of a whole GPU. */
#define NUMBER_OF_GPU(function, type, field) \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, type *value) \
    { \
        const struct gpu *gpu; \
        nvmlReturn_t const result = enter_gpu(F_##function, device, &gpu); \
        if (!result) \
            *value = (type)gpu->field; \
        return leave(result); \
    }

NUMBER_OF_GPU(nvmlDeviceGetPowerUsage, unsigned, power)
NUMBER_OF_GPU(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_limit)
NUMBER_OF_GPU(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy)
NUMBER_OF_GPU(nvmlDeviceGetComputeMode, unsigned, compute_mode)
NUMBER_OF_GPU(nvmlDeviceGetPcieReplayCounter, unsigned, replays)
NUMBER_OF_GPU(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, throttle)
NUMBER_OF_GPU(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, throttle)

NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetUtilizationRates, device, &gpu);
    if (result || gpu->mig_mode == MIG_ON)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    rates->gpu = (unsigned)gpu->utilization;
    rates->memory = (unsigned)gpu->memory_utilization;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor,
                                               unsigned *temperature)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetTemperature, device, &gpu);
    if (result || sensor)
        return leave(result ? result : NVML_ERROR_INVALID_ARGUMENT);
    *temperature = (unsigned)gpu->temperature;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *value)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetTemperatureV, device, &gpu);
    if (result)
        return leave(result);
    if (value->version != NVML_VERSION(sizeof *value, 1))
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (value->sensorType)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    value->temperature = (int)gpu->temperature;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *now_on,
                                           unsigned *pending)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetEccMode, device, &gpu);
    if (!result)
        *now_on = *pending = (unsigned)gpu->ecc;
    return leave(result);
}

/* Errors by kind (0 corrected, 1 uncorrected) and counter (0 since the last start, 1 ever). */
static nvmlReturn_t ecc_errors(const struct gpu *gpu, unsigned kind, unsigned counter,
                               unsigned long long *count)
{
    if (kind > 1 || counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!gpu->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    long long const counts[2][2] = {{gpu->corrected, gpu->corrected_total},
                                    {gpu->uncorrected, gpu->uncorrected_total}};
    *count = (unsigned long long)counts[kind][counter];
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned kind,
                                                  unsigned counter, unsigned long long *count)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetTotalEccErrors, device, &gpu);
    return leave(result ? result : ecc_errors(gpu, kind, counter, count));
}

/* All errors are in the device's memory. */
NVML_API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned kind,
                                                      unsigned counter, unsigned location,
                                                      unsigned long long *count)
{
    enum { DEVICE_MEMORY = 2, LOCATIONS = 8 };
    const struct gpu *gpu;
    nvmlReturn_t result = enter_gpu(F_nvmlDeviceGetMemoryErrorCounter, device, &gpu);
    if (!result && location >= LOCATIONS)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (!result)
        result = ecc_errors(gpu, kind, counter, count);
    if (!result && location != DEVICE_MEMORY)
        *count = 0;
    return leave(result);
}

/* Pages were retired until compute capability 8.0, from which on rows are remapped. */
static nvmlReturn_t retired_pages(enum function function, nvmlDevice_t device, unsigned cause,
                                  unsigned *count, unsigned long long *pages,
                                  unsigned long long *times)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(function, device, &gpu);
    if (result || gpu->compute[0] >= 8)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    if (cause > 1)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    unsigned const room = *count;
    *count = (unsigned)(cause ? gpu->retired_double : gpu->retired_single);
    if (*count > room || (*count && !pages))
        return leave(NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < *count; i++) {
        pages[i] = 0x1000ULL * (i + 1);
        if (times)
            times[i] = 1700000000000000ULL + i; /* us since 1970 */
    }
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause,
                                                unsigned *count, unsigned long long *pages)
{
    return retired_pages(F_nvmlDeviceGetRetiredPages, device, cause, count, pages, NULL);
}

NVML_API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause,
                                                   unsigned *count, unsigned long long *pages,
                                                   unsigned long long *times)
{
    return retired_pages(F_nvmlDeviceGetRetiredPages_v2, device, cause, count, pages, times);
}

NVML_API nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device,
                                                             unsigned *is_pending)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetRetiredPagesPendingStatus, device, &gpu);
    if (result || gpu->compute[0] >= 8)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    *is_pending = (unsigned)gpu->retired_pending;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected,
                                                unsigned *uncorrected, unsigned *is_pending,
                                                unsigned *has_failed)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetRemappedRows, device, &gpu);
    if (result || gpu->compute[0] < 8)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    *corrected = (unsigned)gpu->remapped_corrected;
    *uncorrected = (unsigned)gpu->remapped_uncorrected;
    *is_pending = (unsigned)gpu->remap_pending;
    *has_failed = (unsigned)gpu->remap_failed;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                                        nvmlRowRemapperHistogramValues_t *values)
{
    enum { BANKS = 640 };
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetRowRemapperHistogram, device, &gpu);
    if (result || gpu->compute[0] < 8)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    unsigned const none = (unsigned)gpu->banks_used_up;
    *values = (nvmlRowRemapperHistogramValues_t){.max = BANKS - none, .none = none};
    return leave(result);
}

static nvmlReturn_t clock_of(enum function function, nvmlDevice_t device, unsigned type,
                             unsigned *clock)
{
    enum { MEMORY = 2, TYPES = 4 };
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(function, device, &gpu);
    if (result || type >= TYPES)
        return leave(result ? result : NVML_ERROR_INVALID_ARGUMENT);
    if (function == F_nvmlDeviceGetMaxClockInfo)
        *clock = (unsigned)(type == MEMORY ? gpu->max_memory_clock : gpu->max_clock);
    else
        *clock = (unsigned)(type == MEMORY ? gpu->memory_clock : gpu->clock);
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *clock)
{
    return clock_of(F_nvmlDeviceGetClockInfo, device, type, clock);
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type,
                                                unsigned *clock)
{
    return clock_of(F_nvmlDeviceGetMaxClockInfo, device, type, clock);
}
