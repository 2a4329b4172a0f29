/* Finding devices, and what they are. */
#include "library.h"

#include <stdio.h>
#include <string.h>

/* The GPUs that were there at the first init, which `hotplug=init` holds to. */
static char enumerated[MAX_GPUS][TEXT];
static int enumerated_count;

void devices_enumerate(void)
{
    enumerated_count = fleet()->gpu_count;
    for (int i = 0; i < enumerated_count; i++)
        strcpy(enumerated[i], fleet()->gpus[i].uuid);
}

/* NVML's index of a GPU, -1 if it came too late to have one. */
static int index_of(const struct gpu *gpu)
{
    if (!fleet()->hotplug)
        return (int)(gpu - fleet()->gpus);
    for (int i = 0; i < enumerated_count; i++)
        if (strcmp(enumerated[i], gpu->uuid) == 0)
            return i;
    return -1;
}

static unsigned gpu_count(void)
{
    return (unsigned)(fleet()->hotplug ? enumerated_count : fleet()->gpu_count);
}

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    nvmlReturn_t const result = enter(F_nvmlDeviceGetCount_v2);
    if (!result)
        *count = gpu_count();
    return leave(result);
}

/* Gives a GPU's handle, unless the GPU cannot be reached or a fault is meant for it. */
static nvmlReturn_t hand_out(enum function function, const struct gpu *gpu,
                             const struct mig *mig, nvmlDevice_t *device)
{
    /* Made before a fault can hold the call, in which time the fleet may change. */
    nvmlDevice_t const handle = handle_of(mig ? HANDLE_MIG : HANDLE_GPU, gpu, mig);
    int const is_reachable = gpu->state != STATE_UNREACHABLE;
    nvmlReturn_t const result = gpu_fault(function, gpu->slot);
    if (result || !is_reachable)
        return result ? result : NVML_ERROR_GPU_IS_LOST;
    node_open(gpu);
    *device = handle;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    enum function const function = F_nvmlDeviceGetHandleByIndex_v2;
    nvmlReturn_t const result = enter(function);
    if (result)
        return leave(result);
    if (index >= gpu_count())
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < fleet()->gpu_count; i++)
        if (index_of(&fleet()->gpus[i]) == (int)index)
            return leave(hand_out(function, &fleet()->gpus[i], NULL, device));
    return leave(NVML_ERROR_GPU_IS_LOST);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    enum function const function = F_nvmlDeviceGetHandleByUUID;
    nvmlReturn_t const result = enter(function);
    if (result || !uuid)
        return leave(result ? result : NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < fleet()->gpu_count; i++) {
        const struct gpu *const gpu = &fleet()->gpus[i];
        if (index_of(gpu) < 0)
            continue;
        node_open(gpu); /* the real one may open others, too, as it searches */
        if (strcmp(gpu->uuid, uuid) == 0)
            return leave(hand_out(function, gpu, NULL, device));
        for (int j = 0; j < gpu->mig_count && gpu->mig_mode == MIG_ON; j++)
            if (strcmp(gpu->migs[j].uuid, uuid) == 0)
                return leave(hand_out(function, gpu, &gpu->migs[j], device));
    }
    return leave(NVML_ERROR_NOT_FOUND);
}

static int read_address(const char *text, unsigned address[4])
{
    return sscanf(text, "%8x:%2x:%2x.%1x", &address[0], &address[1], &address[2], &address[3]) == 4;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    enum function const function = F_nvmlDeviceGetHandleByPciBusId_v2;
    unsigned wanted[4], address[4];
    nvmlReturn_t const result = enter(function);
    if (result || !bus_id || !read_address(bus_id, wanted))
        return leave(result ? result : NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < fleet()->gpu_count; i++) {
        read_address(fleet()->gpus[i].pci, address);
        if (index_of(&fleet()->gpus[i]) >= 0 && memcmp(wanted, address, sizeof address) == 0)
            return leave(hand_out(function, &fleet()->gpus[i], NULL, device));
    }
    return leave(NVML_ERROR_NOT_FOUND);
}

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    struct target target;
    char text[2 * TEXT + 8];
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetName, device, &target);
    if (result)
        return leave(result);
    if (target.mig)
        snprintf(text, sizeof text, "%s MIG %s", target.gpu->name, target.mig->profile);
    return leave(copy_text(name, length, target.mig ? text : target.gpu->name));
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetUUID, device, &target);
    if (result)
        return leave(result);
    return leave(copy_text(uuid, length, target.mig ? target.mig->uuid : target.gpu->uuid));
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetIndex, device, &target);
    if (!result)
        *index = (unsigned)(target.mig ? target.mig->index : index_of(target.gpu));
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetMinorNumber, device, &target);
    if (!result)
        *minor = (unsigned)target.gpu->minor;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetBrand, device, &target);
    if (!result)
        *brand = (unsigned)target.gpu->brand;
    return leave(result);
}

void fill_pci(nvmlPciInfo_t *pci, const char *text, unsigned id)
{
    unsigned address[4] = {0};
    read_address(text, address);
    memset(pci, 0, sizeof *pci);
    pci->domain = address[0];
    pci->bus = address[1];
    pci->device = address[2];
    pci->pciDeviceId = id;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.%u", address[0] & 0xffffffff,
             address[1] & 0xff, address[2] & 0xff, address[3] & 7);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.%u", address[0] & 0xffff,
             address[1] & 0xff, address[2] & 0xff, address[3] & 7);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetPciInfo_v3, device, &target);
    if (!result)
        fill_pci(pci, target.gpu->pci, (unsigned)target.gpu->pci_id);
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, int *node)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetNumaNodeId, device, &target);
    if (!result && target.gpu->numa_id < 0)
        return leave(NVML_ERROR_NOT_SUPPORTED);
    if (!result)
        *node = (int)target.gpu->numa_id;
    return leave(result);
}

/* Total and used bytes of a device. */
static void memory_of(const struct target *target, unsigned long long *total,
                      unsigned long long *used)
{
    *total = (unsigned long long)(target->mig ? target->mig->memory : target->gpu->memory);
    *used = (unsigned long long)(target->mig ? target->mig->used : target->gpu->used);
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetMemoryInfo, device, &target);
    if (result)
        return leave(result);
    memory_of(&target, &memory->total, &memory->used);
    memory->free = memory->total - memory->used;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetMemoryInfo_v2, device, &target);
    if (result)
        return leave(result);
    if (memory->version != NVML_VERSION(sizeof *memory, 2))
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory_of(&target, &memory->total, &memory->used);
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                         int *minor)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetCudaComputeCapability, device, &target);
    if (!result) {
        *major = (int)target.gpu->compute[0];
        *minor = (int)target.gpu->compute[1];
    }
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *cores)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetNumGpuCores, device, &target);
    if (!result)
        *cores = (unsigned)target.gpu->cores;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device,
                                                  nvmlDeviceAddressingMode_t *mode)
{
    struct target target;
    nvmlReturn_t const result = enter_device(F_nvmlDeviceGetAddressingMode, device, &target);
    if (result)
        return leave(result);
    if (mode->version != NVML_VERSION(sizeof *mode, 1))
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    mode->value = (unsigned)target.gpu->addressing;
    return leave(result);
}
