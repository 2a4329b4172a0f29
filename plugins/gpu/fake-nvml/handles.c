/* Handles: pointers to names of GPUs, MIG devices and instances. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

struct handle {
    enum handle_kind kind;
    char gpu[TEXT], mig[TEXT]; /* UUIDs; the mig is one of its instance */
    long long gi, ci;
    struct handle *next;
};

static struct handle *handles;

static int is_same(const struct handle *handle, enum handle_kind kind, const struct gpu *gpu,
                   const struct mig *mig)
{
    if (handle->kind != kind || strcmp(handle->gpu, gpu->uuid) != 0)
        return 0;
    switch (kind) {
    case HANDLE_GPU:
        return 1;
    case HANDLE_MIG:
        return strcmp(handle->mig, mig->uuid) == 0;
    case HANDLE_GPU_INSTANCE:
        return handle->gi == mig->gi;
    default:
        return handle->gi == mig->gi && handle->ci == mig->ci;
    }
}

struct handle *handle_of(enum handle_kind kind, const struct gpu *gpu, const struct mig *mig)
{
    for (struct handle *handle = handles; handle; handle = handle->next)
        if (is_same(handle, kind, gpu, mig))
            return handle;
    struct handle *const handle = calloc(1, sizeof *handle);
    if (!handle)
        abort();
    handle->kind = kind;
    strcpy(handle->gpu, gpu->uuid);
    if (mig) {
        strcpy(handle->mig, mig->uuid);
        handle->gi = mig->gi;
        handle->ci = mig->ci;
    }
    handle->next = handles;
    handles = handle;
    return handle;
}

static int is_ours(const struct handle *handle)
{
    for (const struct handle *each = handles; each; each = each->next)
        if (each == handle)
            return 1;
    return 0;
}

nvmlReturn_t handle_find(struct handle *handle, unsigned kinds, struct target *target)
{
    *target = (struct target){NULL, NULL};
    if (!is_ours(handle) || !(kinds >> handle->kind & 1))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < fleet()->gpu_count; i++)
        if (strcmp(fleet()->gpus[i].uuid, handle->gpu) == 0)
            target->gpu = &fleet()->gpus[i];
    if (!target->gpu || target->gpu->state != STATE_OK)
        return NVML_ERROR_GPU_IS_LOST;
    if (handle->kind == HANDLE_GPU)
        return NVML_SUCCESS;
    for (int i = 0; i < target->gpu->mig_count && !target->mig; i++)
        if (is_same(handle, handle->kind, target->gpu, &target->gpu->migs[i]))
            target->mig = &target->gpu->migs[i];
    return target->mig && target->gpu->mig_mode == MIG_ON ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
