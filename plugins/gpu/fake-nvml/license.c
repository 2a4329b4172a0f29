/* What a virtual machine's driver says of its vGPU: how it is virtualized, and its license. */
#include "library.h"

#include <stdio.h>
#include <string.h>

enum { VIRTUAL_COMPUTE = 4, VIRTUAL_PC = 1, VALID = 2 };

NVML_API nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned *mode)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetVirtualizationMode, device, &gpu);
    if (!result)
        *mode = (unsigned)gpu->virtualization;
    return leave(result);
}

/* Any six numbers are a date here, as a driver that errs may say. */
static nvmlGridLicenseExpiry_t expiry(const char *text)
{
    static const char *const STATUS[] = {"none", "invalid", "valid", "not-applicable", "permanent"};
    nvmlGridLicenseExpiry_t found = {.status = 0};
    for (unsigned char i = 0; i < sizeof STATUS / sizeof *STATUS; i++)
        if (strcmp(text, STATUS[i]) == 0)
            found.status = i;
    if (sscanf(text, "%u-%hu-%huT%hu:%hu:%hu", &found.year, &found.month, &found.day,
               &found.hour, &found.min, &found.sec) == 6)
        found.status = VALID;
    return found;
}

/* Two products can be licensed, of which a machine has one at most. */
NVML_API nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device,
                                                             nvmlGridLicensableFeatures_t *found)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetGridLicensableFeatures_v4, device, &gpu);
    if (result)
        return leave(result);
    memset(found, 0, sizeof *found);
    found->isGridLicenseSupported = gpu->license != UNSUPPORTED;
    found->licensableFeaturesCount = found->isGridLicenseSupported ? 2 : 0;
    found->gridLicensableFeatures[0] =
        (nvmlGridLicensableFeature_t){.code = VIRTUAL_PC, .productName = "NVIDIA Virtual PC"};
    found->gridLicensableFeatures[1] =
        (nvmlGridLicensableFeature_t){.code = VIRTUAL_COMPUTE, .enabled = 1,
                                      .state = gpu->license == LICENSED,
                                      .productName = "NVIDIA Virtual Compute Server",
                                      .expiry = expiry(gpu->license_expiry)};
    return leave(result);
}
