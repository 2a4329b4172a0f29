/* What a fleet file says: the GPUs of the node, how they are linked, and what is wrong. */
#ifndef FLEET_H
#define FLEET_H

#include "functions.h"
#include "nvml_abi.h"

#include <stdint.h>

enum { MAX_GPUS = 64, MAX_MIGS = 16, MAX_FAULTS = 128, MAX_EVENTS = 4096, MAX_PROCESSES = 1024, TEXT = 96 };
enum gpu_state { STATE_OK, STATE_LOST, STATE_UNREACHABLE };
enum license { UNSUPPORTED, UNLICENSED, LICENSED };
enum mig_mode { MIG_AUTO = -1, MIG_UNSUPPORTED, MIG_OFF, MIG_ON };
enum engine { COPY, DECODER, ENCODER, JPEG, OFA, ENGINES };
enum { TO_SWITCH = -1 };

/* A compute instance, or a GPU instance without any, whose ci is -1.
 * Numbers are long long throughout: the parser writes to them by their offsets. */
struct mig {
    long long index, gi, ci, memory, used, start, multiprocessors;
    long long engines[ENGINES];
    char uuid[TEXT], profile[TEXT];
    unsigned slices, compute_slices; /* from the profile */
    unsigned size;                   /* slices of memory */
    unsigned gpu_profile, compute_profile;
};

struct link {
    int remote; /* place in fleet.gpus, or TO_SWITCH */
    int active;
};

struct gpu {
    int slot; /* the number in the file */
    char name[TEXT], uuid[TEXT], pci[TEXT], cluster[TEXT];
    long long pci_id, minor, numa, numa_id, memory, used, compute[2], brand, cores, addressing;
    long long compute_mode;
    long long mig_mode, mig_pending, max_migs, state, events;
    long long utilization, memory_utilization, temperature, power, power_limit, energy;
    long long ecc, corrected, uncorrected, corrected_total, uncorrected_total;
    long long retired_single, retired_double, retired_pending;
    long long remapped_corrected, remapped_uncorrected, remap_pending, remap_failed;
    long long banks_used_up;
    long long throttle, replays, clock, memory_clock, max_clock, max_memory_clock;
    long long fabric, clique;
    long long virtualization, license, busy;
    char license_expiry[TEXT];
    struct mig migs[MAX_MIGS];
    int mig_count;
    struct link links[NVML_LINKS];
    int link_count;
};

struct fault {
    int function; /* enum function, or -1 for every function */
    long long gpu; /* slot, or -1 for any */
    long long rc;  /* -1: none */
    long long delay; /* ms */
};

struct event {
    long long sequence, type, gpu, code, gi, ci;
};

enum process_kind { COMPUTE, GRAPHICS, MPS };
struct process {
    uint64_t gpus;                     /* a bit for each slot */
    long long pid, kind, used, gi, ci; /* used -1: not available; gi -1: of the whole GPU */
    long long sm, age;                 /* of its sample: percent, -1 for none, and ms */
};

struct fleet {
    char version[TEXT], nvml[TEXT];
    long long cuda[2], gone, hotplug; /* hotplug 1: at init only */
    struct gpu gpus[MAX_GPUS];
    int gpu_count;
    unsigned char ancestor[MAX_GPUS][MAX_GPUS];
    unsigned char ancestor_known[MAX_GPUS][MAX_GPUS];
    struct fault faults[MAX_FAULTS];
    int fault_count;
    struct event events[MAX_EVENTS];
    int event_count;
    struct process processes[MAX_PROCESSES];
    int process_count;
};

/* parse.c: a new fleet, or NULL after one line on stderr. What was made of it since is in a journal,
 * if there is one: lines of a fleet file, of which those of GPUs that are not there are skipped. */
struct fleet *fleet_read(const char *path, const char *journal);

/* defaults.c: 0, or -1 and what is wrong in problem. */
void fleet_start(struct fleet *fleet);
void gpu_start(struct gpu *gpu, int slot);
void mig_start(struct mig *mig);
int mig_finish(struct mig *mig, const struct gpu *gpu, char *problem, size_t size);
int fleet_finish(struct fleet *fleet, char *problem, size_t size);

#endif
