/* What every exported function starts and ends with, and the handles.
 *
 * A function is `enter`, its answer, `leave`. `enter` counts the call, takes the one lock, reads
 * the fleet file again if it has changed, and applies faults; the lock is held until `leave`,
 * whatever `enter` returned. What points into the fleet is good until then. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "fleet.h"

enum handle_kind { HANDLE_GPU, HANDLE_MIG, HANDLE_GPU_INSTANCE, HANDLE_COMPUTE_INSTANCE };

struct target {
    const struct gpu *gpu;
    const struct mig *mig; /* NULL: the whole GPU */
};

const struct fleet *fleet(void);
nvmlReturn_t enter(enum function function);
/* As enter(), for a handle of any of these kinds, given as 1 << kind. */
nvmlReturn_t enter_handle(enum function function, struct handle *handle, unsigned kinds,
                          struct target *target);
nvmlReturn_t enter_device(enum function function, nvmlDevice_t device, struct target *target);
/* As enter(), for a whole GPU; a MIG device is not supported. */
nvmlReturn_t enter_gpu(enum function function, nvmlDevice_t device, const struct gpu **gpu);
/* What a fault says of one GPU, where the function was entered without a handle. */
nvmlReturn_t gpu_fault(enum function function, int slot);
nvmlReturn_t leave(nvmlReturn_t result);

/* Gives up the lock for some ms; then what pointed into the fleet is no longer good.
 * Returns what enter() would. */
nvmlReturn_t pause_call(enum function function, long milliseconds);
long long now(void); /* ms */

/* Begins to change what the driver has made, which outlives processes: no other process changes
 * anything before change_end, which leaves. What pointed into the fleet is no longer good after
 * change_begin and after change, which adds a line to the journal. */
int change_begin(void);
__attribute__((format(printf, 1, 2)))
void change(const char *format, ...);
nvmlReturn_t change_end(nvmlReturn_t result);

/* handles.c; to be called with the lock held. A handle is never freed: it names a thing that may
 * be gone and may come back. */
struct handle *handle_of(enum handle_kind kind, const struct gpu *gpu, const struct mig *mig);
nvmlReturn_t handle_find(struct handle *handle, unsigned kinds, struct target *target);

/* devices.c; to be called with the lock held, when the first user comes. */
void devices_enumerate(void);
void fill_pci(nvmlPciInfo_t *pci, const char *address, unsigned id);

/* nodes.c; to be called with the lock held. */
void nodes_configure(void);
void node_open(const struct gpu *gpu);
void nodes_close(void);

/* events.c: frees all event sets; to be called with the lock held. */
void events_end(void);

/* profiles.c: the number that a device gives a profile, and the profile that has it, or
 * NVML_PROFILES; and a MIG device of this GPU that has the profile, as it is or would be. */
unsigned profile_id(unsigned profile);
unsigned profile_of_id(unsigned id);
nvmlReturn_t profile_of(const struct gpu *gpu, unsigned profile, struct mig *mig);

/* library.c */
nvmlReturn_t copy_text(char *to, unsigned size, const char *text);

#endif
