/* The keys of each kind of line. */
#include "reader.h"

static const char *const NO_YES[] = {"no", "yes", NULL};
static const char *const HOTPLUG[] = {"now", "init", NULL};
static const char *const OFF_ON[] = {"off", "on", NULL};
static const char *const MODES[] = {"unsupported", "off", "on", NULL};
static const char *const STATES[] = {"ok", "lost", "unreachable", NULL};
static const char *const FABRICS[] = {"none", "starting", "progress", "completed", NULL};
static const char *const LICENSES[] = {"unsupported", "unlicensed", "licensed", NULL};
static const char *const VIRTUAL[] = {"none", "passthrough", "vgpu", "host-vgpu", "host-vsga", NULL};
static const char *const ADDRESSING[] = {"none", "hmm", "ats", NULL};

const struct key DRIVER_KEYS[] = {
    {"version", WORD, offsetof(struct fleet, version), NULL},
    {"nvml", WORD, offsetof(struct fleet, nvml), NULL},
    {"cuda", VERSION, offsetof(struct fleet, cuda), NULL},
    {"gone", CHOICE, offsetof(struct fleet, gone), NO_YES},
    {"hotplug", CHOICE, offsetof(struct fleet, hotplug), HOTPLUG},
    {0}};

const struct key GPU_KEYS[] = {
    {"name", WORD, offsetof(struct gpu, name), NULL},
    {"uuid", WORD, offsetof(struct gpu, uuid), NULL},
    {"pci", WORD, offsetof(struct gpu, pci), NULL},
    {"pci-id", NUMBER, offsetof(struct gpu, pci_id), NULL},
    {"minor", NUMBER, offsetof(struct gpu, minor), NULL},
    {"numa", NUMBER, offsetof(struct gpu, numa), NULL},
    {"numa-id", NUMBER, offsetof(struct gpu, numa_id), NULL},
    {"memory", BYTES, offsetof(struct gpu, memory), NULL},
    {"used", BYTES, offsetof(struct gpu, used), NULL},
    {"compute", VERSION, offsetof(struct gpu, compute), NULL},
    {"compute-mode", NUMBER, offsetof(struct gpu, compute_mode), NULL},
    {"brand", NUMBER, offsetof(struct gpu, brand), NULL},
    {"cores", NUMBER, offsetof(struct gpu, cores), NULL},
    {"addressing", CHOICE, offsetof(struct gpu, addressing), ADDRESSING},
    {"state", CHOICE, offsetof(struct gpu, state), STATES},
    {"events", CHOICE, offsetof(struct gpu, events), NO_YES},
    {"mig", CHOICE, offsetof(struct gpu, mig_mode), MODES},
    {"mig-pending", CHOICE, offsetof(struct gpu, mig_pending), MODES},
    {"max-migs", NUMBER, offsetof(struct gpu, max_migs), NULL},
    {"utilization", NUMBER, offsetof(struct gpu, utilization), NULL},
    {"memory-utilization", NUMBER, offsetof(struct gpu, memory_utilization), NULL},
    {"temperature", NUMBER, offsetof(struct gpu, temperature), NULL},
    {"power", NUMBER, offsetof(struct gpu, power), NULL},
    {"power-limit", NUMBER, offsetof(struct gpu, power_limit), NULL},
    {"energy", NUMBER, offsetof(struct gpu, energy), NULL},
    {"ecc", CHOICE, offsetof(struct gpu, ecc), OFF_ON},
    {"corrected", NUMBER, offsetof(struct gpu, corrected), NULL},
    {"uncorrected", NUMBER, offsetof(struct gpu, uncorrected), NULL},
    {"corrected-total", NUMBER, offsetof(struct gpu, corrected_total), NULL},
    {"uncorrected-total", NUMBER, offsetof(struct gpu, uncorrected_total), NULL},
    {"retired-single", NUMBER, offsetof(struct gpu, retired_single), NULL},
    {"retired-double", NUMBER, offsetof(struct gpu, retired_double), NULL},
    {"retired-pending", CHOICE, offsetof(struct gpu, retired_pending), NO_YES},
    {"remapped-corrected", NUMBER, offsetof(struct gpu, remapped_corrected), NULL},
    {"remapped-uncorrected", NUMBER, offsetof(struct gpu, remapped_uncorrected), NULL},
    {"remap-pending", CHOICE, offsetof(struct gpu, remap_pending), NO_YES},
    {"remap-failed", CHOICE, offsetof(struct gpu, remap_failed), NO_YES},
    {"banks-used-up", NUMBER, offsetof(struct gpu, banks_used_up), NULL},
    {"throttle", NUMBER, offsetof(struct gpu, throttle), NULL},
    {"replays", NUMBER, offsetof(struct gpu, replays), NULL},
    {"clock", NUMBER, offsetof(struct gpu, clock), NULL},
    {"memory-clock", NUMBER, offsetof(struct gpu, memory_clock), NULL},
    {"max-clock", NUMBER, offsetof(struct gpu, max_clock), NULL},
    {"max-memory-clock", NUMBER, offsetof(struct gpu, max_memory_clock), NULL},
    {"fabric", CHOICE, offsetof(struct gpu, fabric), FABRICS},
    {"clique", NUMBER, offsetof(struct gpu, clique), NULL},
    {"cluster", WORD, offsetof(struct gpu, cluster), NULL},
    {"virtualization", CHOICE, offsetof(struct gpu, virtualization), VIRTUAL},
    {"license", CHOICE, offsetof(struct gpu, license), LICENSES},
    {"license-expiry", WORD, offsetof(struct gpu, license_expiry), NULL},
    {"busy", CHOICE, offsetof(struct gpu, busy), NO_YES},
    {0}};

const struct key MIG_KEYS[] = {
    {"gi", NUMBER, offsetof(struct mig, gi), NULL},
    {"ci", NUMBER, offsetof(struct mig, ci), NULL},
    {"profile", WORD, offsetof(struct mig, profile), NULL},
    {"index", NUMBER, offsetof(struct mig, index), NULL},
    {"uuid", WORD, offsetof(struct mig, uuid), NULL},
    {"memory", BYTES, offsetof(struct mig, memory), NULL},
    {"used", BYTES, offsetof(struct mig, used), NULL},
    {"start", NUMBER, offsetof(struct mig, start), NULL},
    {"multiprocessors", NUMBER, offsetof(struct mig, multiprocessors), NULL},
    {"copy", NUMBER, offsetof(struct mig, engines[COPY]), NULL},
    {"decoder", NUMBER, offsetof(struct mig, engines[DECODER]), NULL},
    {"encoder", NUMBER, offsetof(struct mig, engines[ENCODER]), NULL},
    {"jpeg", NUMBER, offsetof(struct mig, engines[JPEG]), NULL},
    {"ofa", NUMBER, offsetof(struct mig, engines[OFA]), NULL},
    {0}};

const struct key LINK_KEYS[] = {
    {"count", NUMBER, offsetof(struct connection, count), NULL},
    {"active", CHOICE, offsetof(struct connection, active), NO_YES},
    {0}};

const struct key FAULT_KEYS[] = {
    {"gpu", NUMBER, offsetof(struct fault, gpu), NULL},
    {"rc", NUMBER, offsetof(struct fault, rc), NULL},
    {"delay", NUMBER, offsetof(struct fault, delay), NULL},
    {0}};

static const char *const PROCESSES[] = {"compute", "graphics", "mps", NULL};
const struct key PROCESS_KEYS[] = {
    {"pid", NUMBER, offsetof(struct process, pid), NULL},
    {"kind", CHOICE, offsetof(struct process, kind), PROCESSES},
    {"used", BYTES, offsetof(struct process, used), NULL},
    {"gi", NUMBER, offsetof(struct process, gi), NULL},
    {"ci", NUMBER, offsetof(struct process, ci), NULL},
    {"sm", NUMBER, offsetof(struct process, sm), NULL},
    {"age", NUMBER, offsetof(struct process, age), NULL},
    {0}};

const struct key EVENT_KEYS[] = {
    {"gpu", NUMBER, offsetof(struct event, gpu), NULL},
    {"code", NUMBER, offsetof(struct event, code), NULL},
    {"gi", NUMBER, offsetof(struct event, gi), NULL},
    {"ci", NUMBER, offsetof(struct event, ci), NULL},
    {0}};
