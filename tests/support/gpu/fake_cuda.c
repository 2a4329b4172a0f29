/* libcuda.so.1 of the fake driver: the GPUs whose nodes can be opened here, with the values that the
 * fake NVML has by default. The only kernel is that of `accept`; a fault of it is told through the
 * socket of nvidia-persistenced, where a test listens. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NO_DEVICE = 100, INVALID_PTX = 218, ILLEGAL_ADDRESS = 700, THREADS = 256 };

int compiled(void);
static int slots[64], count, faulted;
static uint32_t *memory;

int cuDriverGetVersion(int *version) {
    *version = 13000 + compiled();
    return dlopen("libnvidia-ptxjitcompiler.so.1", RTLD_NOW) ? 0 : 999;
}

static int opens(const char *path) { return open(path, O_RDWR | O_CLOEXEC) >= 0; }

int cuInit(unsigned flags) {
    char path[32];
    (void)flags;
    if (!opens("/dev/nvidiactl") || !opens("/dev/nvidia-uvm")) return NO_DEVICE;
    for (int slot = 0; slot < 64; slot++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", slot);
        if (opens(path)) slots[count++] = slot;
    }
    return count ? 0 : NO_DEVICE;
}

int cuDeviceGetCount(int *found) { *found = count; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = slots[ordinal]; return 0; }

int cuDeviceGetUuid_v2(unsigned char *uuid, int slot) {
    unsigned char bytes[16] = {0, 0, 0, slot, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, slot};
    memcpy(uuid, bytes, sizeof bytes);
    return 0;
}

int cuDeviceGetName(char *name, int size, int slot) {
    (void)slot;
    return snprintf(name, size, "NVIDIA A100-SXM4-40GB") < 0;
}

int cuDeviceGetPCIBusId(char *address, int size, int slot) {
    return snprintf(address, size, "0000:%02X:00.0", slot + 1) < 0;
}

int cuDeviceTotalMem_v2(size_t *size, int slot) { *size = (size_t)39 << 30; return slot < 0; }
int cuDevicePrimaryCtxRetain(void **context, int slot) { *context = &count; return slot < 0; }
int cuDevicePrimaryCtxRelease_v2(int slot) { return slot < 0; }
int cuCtxSetCurrent(void *context) { return context != &count; }
int cuModuleGetFunction(void **entry, void *module, const char *name) {
    *entry = module;
    return strcmp(name, "accept");
}

int cuModuleLoadData(void **module, const char *text) {
    *module = &faulted;
    return strstr(text, ".target sm_50") ? INVALID_PTX : 0; /* the oldest was given up */
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    memory = malloc(size);
    *address = (uintptr_t)memory;
    return 0;
}

int cuLaunchKernel(void *entry, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned b,
                   unsigned c, unsigned shared, void *stream, void **parameters, void **more) {
    (void)y, (void)z, (void)b, (void)c, (void)shared, (void)stream, (void)more;
    faulted = *(uint64_t *)parameters[0] != (uintptr_t)memory;
    if (faulted) {
        int told = open("/run/nvidia-persistenced/socket", O_WRONLY | O_NONBLOCK);
        if (told < 0 || write(told, "31\n", 3) != 3) return 999;
    }
    for (unsigned n = 0; n < threads && !faulted; n++) memory[n] = n * n + 7;
    return entry != &faulted || x != 1;
}

int cuCtxSynchronize(void) { return faulted ? ILLEGAL_ADDRESS : 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    memcpy(to, (void *)(uintptr_t)from, size);
    return 0;
}
int cuMemFree_v2(uint64_t address) { free((void *)(uintptr_t)address); return 0; }

int cuGetErrorName(int code, const char **name) {
    *name = code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
    return 0;
}
