/* What lies between GPUs: PCIe, NVLink and the fabric of NVSwitches. */
#include "library.h"

#include <stdio.h>
#include <string.h>

enum { SWITCHES = 6, SWITCH_ID = 0x1af110de };

NVML_API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                          unsigned *level)
{
    const struct gpu *gpu;
    struct target second;
    nvmlReturn_t result = enter_gpu(F_nvmlDeviceGetTopologyCommonAncestor, one, &gpu);
    if (!result)
        result = handle_find(other, 1 << HANDLE_GPU, &second);
    if (!result)
        *level = fleet()->ancestor[gpu - fleet()->gpus][second.gpu - fleet()->gpus];
    return leave(result);
}

/* Enters and finds a link of a GPU. */
static nvmlReturn_t enter_link(enum function function, nvmlDevice_t device, unsigned number,
                               const struct link **link)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(function, device, &gpu);
    if (result)
        return result;
    if (number >= NVML_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (number >= (unsigned)gpu->link_count)
        return gpu->link_count ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    *link = &gpu->links[number];
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned number,
                                               unsigned *is_active)
{
    const struct link *link;
    nvmlReturn_t const result = enter_link(F_nvmlDeviceGetNvLinkState, device, number, &link);
    if (!result)
        *is_active = (unsigned)link->active;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned number,
                                                          nvmlPciInfo_t *pci)
{
    const struct link *link;
    char address[32];
    nvmlReturn_t const result =
        enter_link(F_nvmlDeviceGetNvLinkRemotePciInfo_v2, device, number, &link);
    if (result)
        return leave(result);
    if (link->remote == TO_SWITCH) {
        snprintf(address, sizeof address, "0000:%02x:00.0", 0xc0 + number % SWITCHES);
        fill_pci(pci, address, SWITCH_ID);
    } else {
        const struct gpu *const remote = &fleet()->gpus[link->remote];
        fill_pci(pci, remote->pci, (unsigned)remote->pci_id);
    }
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned number,
                                                          unsigned *type)
{
    const struct link *link;
    nvmlReturn_t const result =
        enter_link(F_nvmlDeviceGetNvLinkRemoteDeviceType, device, number, &link);
    if (!result)
        *type = link->remote == TO_SWITCH ? NVML_REMOTE_SWITCH : NVML_REMOTE_GPU;
    return leave(result);
}

/* Reads 32 hexadecimal digits; dashes between them do not count. */
static void read_cluster(const char *text, unsigned char bytes[NVML_FABRIC_UUID_BYTES])
{
    memset(bytes, 0, NVML_FABRIC_UUID_BYTES);
    for (int i = 0; i < NVML_FABRIC_UUID_BYTES; i++) {
        text += strspn(text, "-");
        unsigned value;
        if (sscanf(text, "%2x", &value) != 1)
            return;
        bytes[i] = (unsigned char)value;
        text += strlen(text) > 1 ? 2 : 1;
    }
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetGpuFabricInfo, device, &gpu);
    if (result || !gpu->fabric)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    read_cluster(gpu->cluster, info->clusterUuid);
    info->status = NVML_SUCCESS;
    info->cliqueId = (unsigned)gpu->clique;
    info->state = (unsigned)gpu->fabric;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    unsigned const second = NVML_VERSION(offsetof(nvmlGpuFabricInfoV_t, healthSummary), 2);
    unsigned const third = NVML_VERSION(sizeof *info, 3);
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetGpuFabricInfoV, device, &gpu);
    if (result || !gpu->fabric)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    if (info->version != second && info->version != third)
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    read_cluster(gpu->cluster, info->clusterUuid);
    info->status = NVML_SUCCESS;
    info->cliqueId = (unsigned)gpu->clique;
    info->state = (unsigned)gpu->fabric;
    info->healthMask = 0;
    if (info->version == third)
        info->healthSummary = 1; /* healthy */
    return leave(result);
}
