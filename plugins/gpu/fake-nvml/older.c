/* Functions under the names that older drivers have for them, with the structures of their time.
 * Each does, counts and fails as the newest one does. */
#include "functions.h"
#include "nvml_abi.h"

#include <string.h>

enum { RESERVED = 4, NOISE = 0x5a };

typedef struct {
    char busId[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    unsigned reserved[RESERVED]; /* anything, not an address */
} nvmlPciInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
} nvmlEventData_v1_t;

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes);
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned number,
                                                 nvmlPciInfo_t *pci);
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout);

NVML_API nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t shorten(nvmlReturn_t result, const nvmlPciInfo_t *found, nvmlPciInfo_v2_t *pci)
{
    if (result)
        return result;
    memcpy(pci->busId, found->busIdLegacy, sizeof pci->busId);
    pci->domain = found->domain;
    pci->bus = found->bus;
    pci->device = found->device;
    pci->pciDeviceId = found->pciDeviceId;
    pci->pciSubSystemId = found->pciSubSystemId;
    memset(pci->reserved, NOISE, sizeof pci->reserved);
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t found;
    return shorten(nvmlDeviceGetPciInfo_v3(device, &found), &found, pci);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

NVML_API nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device,
                                              nvmlDeviceAttributes_t *attributes)
{
    return nvmlDeviceGetAttributes_v2(device, attributes);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned number,
                                                       nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t found;
    return shorten(nvmlDeviceGetNvLinkRemotePciInfo_v2(device, number, &found), &found, pci);
}

NVML_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data,
                                       unsigned timeout)
{
    nvmlEventData_t found;
    nvmlReturn_t const result = nvmlEventSetWait_v2(set, data ? &found : NULL, timeout);
    if (!result)
        *data = (nvmlEventData_v1_t){found.device, found.eventType, found.eventData};
    return result;
}
