/* Fills in what a fleet file leaves out, and checks what it says as a whole. */
#include "fleet.h"

#include <stdio.h>
#include <string.h>

static const long long MIB = 1 << 20;

void fleet_start(struct fleet *fleet)
{
    strcpy(fleet->version, "580.95.05");
    fleet->cuda[0] = 13;
}

void gpu_start(struct gpu *gpu, int slot)
{
    *gpu = (struct gpu){
        .slot = slot,
        .name = "NVIDIA A100-SXM4-40GB",
        .pci_id = 0x20b010de,
        .minor = -1,
        .numa = -1,
        .numa_id = -1,
        .memory = 40960 * MIB,
        .compute = {8, 0},
        .brand = 14,
        .cores = 6912,
        .mig_mode = MIG_AUTO,
        .mig_pending = MIG_AUTO,
        .max_migs = 7,
        .events = 1,
        .temperature = 35,
        .power = 60000,
        .power_limit = 400000,
        .ecc = 1,
        .clock = 210,
        .memory_clock = 1215,
        .max_clock = 1410,
        .max_memory_clock = 1215,
    };
}

void mig_start(struct mig *mig)
{
    *mig = (struct mig){.index = -1, .gi = -1, .memory = -1, .start = -1, .multiprocessors = -1};
    for (int i = 0; i < ENGINES; i++)
        mig->engines[i] = -1;
}

static unsigned plain_profile(unsigned slices)
{
    static const unsigned BY_SLICES[] = {
        [1] = NVML_PROFILE_1_SLICE, [2] = NVML_PROFILE_2_SLICE, [3] = NVML_PROFILE_3_SLICE,
        [4] = NVML_PROFILE_4_SLICE, [6] = NVML_PROFILE_6_SLICE, [7] = NVML_PROFILE_7_SLICE,
        [8] = NVML_PROFILE_8_SLICE};
    return slices < 1 || slices > 8 || slices == 5 ? NVML_PROFILES : BY_SLICES[slices];
}

/* The number of a profile that has 1 slice, or more, and the attributes after its memory. */
static unsigned special_profile(unsigned slices, const char *attributes)
{
    static const struct {
        const char *attributes;
        unsigned slices, profile;
    } SPECIAL[] = {
        {"+me", 1, NVML_PROFILE_1_SLICE_REV1},        {"+me", 2, NVML_PROFILE_2_SLICE_REV1},
        {"+me.all", 1, NVML_PROFILE_1_SLICE_ALL_ME},  {"+me.all", 2, NVML_PROFILE_2_SLICE_ALL_ME},
        {"-me", 1, NVML_PROFILE_1_SLICE_NO_ME},       {"-me", 2, NVML_PROFILE_2_SLICE_NO_ME},
        {"+gfx", 1, NVML_PROFILE_1_SLICE_GFX},        {"+gfx", 2, NVML_PROFILE_2_SLICE_GFX},
        {"+gfx", 3, NVML_PROFILE_3_SLICE_GFX},        {"+gfx", 4, NVML_PROFILE_4_SLICE_GFX}};
    for (size_t i = 0; i < sizeof SPECIAL / sizeof *SPECIAL; i++)
        if (SPECIAL[i].slices == slices && strcmp(SPECIAL[i].attributes, attributes) == 0)
            return SPECIAL[i].profile;
    return NVML_PROFILES;
}

/* Reads a profile such as 1g.5gb, 1c.3g.20gb or 1g.10gb+me. */
static int read_profile(struct mig *mig, const struct gpu *gpu)
{
    char const *text = mig->profile;
    unsigned compute = 0, slices = 0, gigabytes = 0;
    int used = 0;
    if (sscanf(text, "%uc.%n", &compute, &used) == 1 && used)
        text += used;
    used = 0;
    if (sscanf(text, "%ug.%ugb%n", &slices, &gigabytes, &used) != 2 || !used || !gigabytes)
        return -1;
    if (mig->memory < 0)
        mig->memory = gigabytes * 1024LL * MIB / 32 * 31; /* a little stays with the driver */
    mig->slices = slices;
    mig->compute_slices = text == mig->profile ? slices : compute;
    mig->gpu_profile = text[used] ? special_profile(slices, text + used) : plain_profile(slices);
    if (mig->gpu_profile == NVML_PROFILE_1_SLICE && mig->memory > gpu->memory * 3 / 16)
        mig->gpu_profile = NVML_PROFILE_1_SLICE_REV2;
    mig->size = slices == 3 || slices == 7 ? slices + 1
        : slices + (mig->gpu_profile == NVML_PROFILE_1_SLICE_REV2);
    mig->compute_profile = plain_profile(mig->compute_slices);
    return mig->gpu_profile == NVML_PROFILES || mig->compute_profile == NVML_PROFILES ||
           mig->compute_slices > slices ? -1 : 0;
}

static long long first_free(const struct gpu *gpu, const struct mig *mig)
{
    long long start = 0;
    for (int i = 0; i < gpu->mig_count; i++) {
        const struct mig *const other = &gpu->migs[i];
        if (other->gi == mig->gi)
            return other->start;
        if (other->start + other->size > start)
            start = other->start + other->size;
    }
    return start;
}

static void fill_engines(struct mig *mig)
{
    long long const full = mig->slices >= 7;
    int const media = strstr(mig->profile, "+me") != NULL;
    long long const typical[ENGINES] = {
        [COPY] = mig->slices,
        [DECODER] = full ? 5 : mig->slices / 2 + media,
        [JPEG] = full || media,
        [OFA] = full || media};
    for (int i = 0; i < ENGINES; i++)
        if (mig->engines[i] < 0)
            mig->engines[i] = typical[i];
    if (mig->multiprocessors < 0)
        mig->multiprocessors = 14LL * mig->compute_slices;
}

int mig_finish(struct mig *mig, const struct gpu *gpu, char *problem, size_t size)
{
    if (mig->gi < 0 || mig->gi > 0xffff || mig->ci < -1 || mig->ci > 0xfff)
        return snprintf(problem, size, "mig needs gi=N, and ci=N if not 0"), -1;
    if (read_profile(mig, gpu))
        return snprintf(problem, size, "\"%s\" is no profile such as 1g.5gb, 1c.3g.20gb, 1g.10gb+me",
                        mig->profile), -1;
    if (mig->used < 0 || mig->used > mig->memory)
        return snprintf(problem, size, "this MIG device uses more memory than it has"), -1;
    if (mig->index < 0 && mig->ci >= 0)
        mig->index = gpu->mig_count;
    for (int i = 0; i < gpu->mig_count; i++) {
        const struct mig *const other = &gpu->migs[i];
        if ((other->index == mig->index && mig->ci >= 0) || (other->gi == mig->gi && other->ci == mig->ci))
            return snprintf(problem, size, "gpu %d has this MIG device twice", gpu->slot), -1;
    }
    if (mig->start < 0)
        mig->start = first_free(gpu, mig);
    fill_engines(mig);
    if (!mig->uuid[0] && mig->ci >= 0)
        snprintf(mig->uuid, sizeof mig->uuid, "MIG-%08x-%04x-4%03x-8000-%012x",
                 (unsigned)gpu->slot, (unsigned)mig->gi & 0xffff, (unsigned)mig->ci & 0xfff,
                 (unsigned)gpu->slot);
    return 0;
}

static void gpu_finish(struct gpu *gpu)
{
    unsigned const slot = (unsigned)gpu->slot;
    if (!gpu->uuid[0])
        snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-%08x-0000-4000-8000-%012x", slot, slot);
    if (!gpu->pci[0])
        snprintf(gpu->pci, sizeof gpu->pci, "0000:%02x:00.0", slot + 1);
    if (gpu->minor < 0)
        gpu->minor = gpu->slot;
    if (gpu->mig_mode == MIG_AUTO)
        gpu->mig_mode = gpu->mig_count ? MIG_ON : gpu->compute[0] >= 8 ? MIG_OFF : MIG_UNSUPPORTED;
    if (gpu->mig_pending == MIG_AUTO)
        gpu->mig_pending = gpu->mig_mode;
}

int fleet_finish(struct fleet *fleet, char *problem, size_t size)
{
    if (!fleet->nvml[0])
        snprintf(fleet->nvml, sizeof fleet->nvml, "%lld.%.60s", fleet->cuda[0], fleet->version);
    for (int i = 0; i < fleet->gpu_count; i++) {
        struct gpu *const gpu = &fleet->gpus[i];
        unsigned domain, bus, device, function;
        gpu_finish(gpu);
        if (sscanf(gpu->pci, "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) != 4)
            return snprintf(problem, size, "gpu %d: %s is no PCI address such as 0000:3b:00.0",
                            gpu->slot, gpu->pci), -1;
        if (gpu->used < 0 || gpu->used > gpu->memory)
            return snprintf(problem, size, "gpu %d uses more memory than it has", gpu->slot), -1;
        for (int j = 0; j < i; j++) {
            struct gpu const *const other = &fleet->gpus[j];
            if (strcmp(gpu->uuid, other->uuid) == 0 || strcmp(gpu->pci, other->pci) == 0)
                return snprintf(problem, size, "gpu %d and gpu %d have the same uuid or pci",
                                other->slot, gpu->slot), -1;
        }
        for (int j = 0; j < fleet->gpu_count; j++)
            if (!fleet->ancestor_known[i][j])
                fleet->ancestor[i][j] = i == j ? NVML_TOPOLOGY_INTERNAL
                    : gpu->numa == fleet->gpus[j].numa ? NVML_TOPOLOGY_NODE
                    : NVML_TOPOLOGY_SYSTEM;
    }
    return 0;
}
