/* Event sets: each tells of every event of the fleet file at most once. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

enum { TURN = 3 /* ms between two looks at the file, unless FAKE_NVML_TURN says otherwise */ };

struct registration {
    char uuid[TEXT];
    unsigned long long types;
};

struct event_set {
    struct registration registrations[MAX_GPUS];
    int count;
    long long told; /* the last event that was told, or was there before the set */
    int waiters, is_freed;
    struct event_set *next;
};

static struct event_set *sets;

static struct event_set *find_set(const struct event_set *set)
{
    for (struct event_set *each = sets; each; each = each->next)
        if (each == set && !each->is_freed)
            return each;
    return NULL;
}

NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t const result = enter(F_nvmlEventSetCreate);
    if (result)
        return leave(result);
    struct event_set *const fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return leave(NVML_ERROR_MEMORY);
    for (int i = 0; i < fleet()->event_count; i++)
        if (fleet()->events[i].sequence > fresh->told)
            fresh->told = fleet()->events[i].sequence;
    fresh->next = sets;
    sets = fresh;
    *set = fresh;
    return leave(result);
}

static void remove_set(struct event_set *set)
{
    struct event_set **place = &sets;
    while (*place != set)
        place = &(*place)->next;
    *place = set->next;
    free(set);
}

static void drop(struct event_set *set)
{
    set->is_freed = 1;
    if (!set->waiters)
        remove_set(set);
}

void events_end(void)
{
    for (struct event_set *set = sets, *next; set; set = next) {
        next = set->next;
        drop(set);
    }
}

NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t handle)
{
    nvmlReturn_t const result = enter(F_nvmlEventSetFree);
    struct event_set *const set = find_set(handle);
    if (result || !set)
        return leave(result ? result : NVML_ERROR_INVALID_ARGUMENT);
    drop(set);
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                       unsigned long long *types)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceGetSupportedEventTypes, device, &gpu);
    if (result || !gpu->events)
        return leave(result ? result : NVML_ERROR_NOT_SUPPORTED);
    *types = NVML_EVENT_XID;
    if (gpu->ecc)
        *types |= NVML_EVENT_SINGLE_BIT | NVML_EVENT_DOUBLE_BIT;
    if (gpu->mig_mode != MIG_UNSUPPORTED)
        *types |= NVML_EVENT_MIG;
    return leave(result);
}

NVML_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                               nvmlEventSet_t handle)
{
    const struct gpu *gpu;
    nvmlReturn_t const result = enter_gpu(F_nvmlDeviceRegisterEvents, device, &gpu);
    struct event_set *const set = find_set(handle);
    if (result)
        return leave(result);
    if (!set)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!gpu->events)
        return leave(NVML_ERROR_NOT_SUPPORTED);
    int i = 0;
    while (i < set->count && strcmp(set->registrations[i].uuid, gpu->uuid) != 0)
        i++;
    if (i == MAX_GPUS)
        return leave(NVML_ERROR_MEMORY);
    if (i == set->count)
        set->count++;
    strcpy(set->registrations[i].uuid, gpu->uuid);
    set->registrations[i].types |= types;
    return leave(result);
}

static const struct gpu *gpu_of(const struct event *event)
{
    for (int i = 0; i < fleet()->gpu_count; i++)
        if (fleet()->gpus[i].slot == event->gpu)
            return &fleet()->gpus[i];
    return NULL;
}

static int is_registered(const struct event_set *set, const struct event *event)
{
    const struct gpu *const gpu = gpu_of(event);
    for (int i = 0; gpu && i < set->count; i++)
        if (strcmp(set->registrations[i].uuid, gpu->uuid) == 0)
            return (set->registrations[i].types & (unsigned long long)event->type) != 0;
    return 0;
}

/* The first event that this set has not been told of; those that it did not ask for pass by. */
static const struct event *next_event(struct event_set *set)
{
    for (;;) {
        const struct event *next = NULL;
        for (int i = 0; i < fleet()->event_count; i++) {
            const struct event *const event = &fleet()->events[i];
            if (event->sequence > set->told && (!next || event->sequence < next->sequence))
                next = event;
        }
        if (!next)
            return NULL;
        set->told = next->sequence;
        if (is_registered(set, next))
            return next;
    }
}

static void tell(const struct event *event, nvmlEventData_t *data)
{
    data->device = handle_of(HANDLE_GPU, gpu_of(event), NULL);
    data->eventType = (unsigned long long)event->type;
    data->eventData = (unsigned long long)event->code;
    data->gpuInstanceId = (unsigned)event->gi;
    data->computeInstanceId = (unsigned)event->ci;
}

static long turn(void)
{
    const char *const text = getenv("FAKE_NVML_TURN");
    long const chosen = text ? atol(text) : 0;
    return chosen > 0 ? chosen : TURN;
}

static nvmlReturn_t wait(struct event_set *set, nvmlEventData_t *data, unsigned timeout)
{
    long long const start = now();
    long const rest = turn();
    for (;;) {
        const struct event *const event = next_event(set);
        if (event) {
            tell(event, data);
            return NVML_SUCCESS;
        }
        long long const left = start + timeout - now();
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        nvmlReturn_t const result =
            pause_call(F_nvmlEventSetWait_v2, left < rest ? (long)left : rest);
        if (result)
            return result;
        if (set->is_freed)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
}

NVML_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t handle, nvmlEventData_t *data,
                                          unsigned timeout)
{
    nvmlReturn_t result = enter(F_nvmlEventSetWait_v2);
    struct event_set *const set = find_set(handle);
    if (result || !set || !data)
        return leave(result ? result : NVML_ERROR_INVALID_ARGUMENT);
    set->waiters++;
    result = wait(set, data, timeout);
    set->waiters--;
    if (set->is_freed && !set->waiters)
        remove_set(set);
    return leave(result);
}
