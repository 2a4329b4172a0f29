/* Reads a fleet file: one line per thing, `keyword what key=value ...`. See README.md. */
#include "reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const EVENTS[] = {"sbe", "dbe", "xid", "mig", NULL};
static const long long EVENT_TYPES[] = {
    NVML_EVENT_SINGLE_BIT, NVML_EVENT_DOUBLE_BIT, NVML_EVENT_XID, NVML_EVENT_MIG};
static const char *const LEVELS[] = {
    "internal", "single", "multiple", "hostbridge", "node", "system", NULL};

static int read_gpu(const struct reader *reader)
{
    uint64_t set;
    if (slots(reader, 1, &set))
        return -1;
    for (int slot = 0; slot < MAX_GPUS; slot++) {
        if (!(set >> slot & 1))
            continue;
        int place = place_of(reader->fleet, slot);
        if (place < 0) {
            place = reader->fleet->gpu_count++;
            gpu_start(&reader->fleet->gpus[place], slot);
        }
        if (set_fields(reader, 2, GPU_KEYS, &reader->fleet->gpus[place]))
            return -1;
    }
    return 0;
}

/* Reads a MIG device, or a GPU instance that has no compute instance. */
static int read_mig(const struct reader *reader, int is_empty)
{
    uint64_t set;
    if (known_slots(reader, 1, &set))
        return -1;
    for (int slot = 0; slot < MAX_GPUS; slot++) {
        if (!(set >> slot & 1))
            continue;
        struct gpu *const gpu = &reader->fleet->gpus[place_of(reader->fleet, slot)];
        struct mig mig;
        char problem[200];
        mig_start(&mig);
        if (set_fields(reader, 2, MIG_KEYS, &mig))
            return -1;
        if (is_empty)
            mig.ci = -1;
        if (mig_finish(&mig, gpu, problem, sizeof problem))
            return refuse(reader, "%s", problem);
        for (int i = 0; i < gpu->mig_count; i++) /* it is empty no longer */
            if (gpu->migs[i].gi == mig.gi && gpu->migs[i].ci < 0)
                gpu->migs[i] = gpu->migs[--gpu->mig_count];
        if (gpu->mig_count == MAX_MIGS)
            return refuse(reader, "gpu %d has more than %d MIG devices", slot, MAX_MIGS);
        gpu->migs[gpu->mig_count++] = mig;
    }
    return 0;
}

static int count_of(const struct gpu *gpu, long long gi)
{
    int count = 0;
    for (int i = 0; i < gpu->mig_count; i++)
        count += gpu->migs[i].gi == gi;
    return count;
}

/* Removes a compute instance, or a GPU instance with all of them. */
static int read_gone(const struct reader *reader)
{
    uint64_t set;
    struct mig gone = {.ci = -1};
    if (known_slots(reader, 1, &set) || set_fields(reader, 2, MIG_KEYS, &gone))
        return -1;
    for (int slot = 0; slot < MAX_GPUS; slot++) {
        if (!(set >> slot & 1))
            continue;
        struct gpu *const gpu = &reader->fleet->gpus[place_of(reader->fleet, slot)];
        for (int i = gpu->mig_count - 1; i >= 0; i--) {
            struct mig *const mig = &gpu->migs[i];
            if (mig->gi != gone.gi || (gone.ci >= 0 && mig->ci != gone.ci))
                continue;
            if (gone.ci < 0 || count_of(gpu, gone.gi) > 1)
                *mig = gpu->migs[--gpu->mig_count];
            else {
                mig->ci = mig->index = -1;
                mig->uuid[0] = 0;
            }
        }
    }
    return 0;
}

static int connect(const struct reader *reader, int place, int remote, struct connection how)
{
    struct gpu *const gpu = &reader->fleet->gpus[place];
    for (long long i = 0; i < how.count; i++) {
        if (gpu->link_count == NVML_LINKS)
            return refuse(reader, "gpu %d has more than %d NVLinks", gpu->slot, NVML_LINKS);
        gpu->links[gpu->link_count++] = (struct link){remote, (int)how.active};
    }
    return 0;
}

static int read_switch(const struct reader *reader)
{
    uint64_t set;
    struct connection how = {1, 1};
    if (known_slots(reader, 1, &set) || set_fields(reader, 2, LINK_KEYS, &how))
        return -1;
    for (int slot = 0; slot < MAX_GPUS; slot++)
        if (set >> slot & 1 && connect(reader, place_of(reader->fleet, slot), TO_SWITCH, how))
            return -1;
    return 0;
}

/* Whether two GPUs are a pair of these sets, each pair once. */
static int is_pair(uint64_t left, uint64_t right, int a, int b)
{
    int const forth = (int)(left >> a & right >> b & 1);
    int const back = (int)(left >> b & right >> a & 1);
    return a < b && (forth || back);
}

static int read_link(const struct reader *reader)
{
    uint64_t left, right;
    struct connection how = {1, 1};
    if (known_slots(reader, 1, &left) || known_slots(reader, 2, &right) ||
        set_fields(reader, 3, LINK_KEYS, &how))
        return -1;
    for (int a = 0; a < MAX_GPUS; a++)
        for (int b = 0; b < MAX_GPUS; b++)
            if (is_pair(left, right, a, b)) {
                int const one = place_of(reader->fleet, a), other = place_of(reader->fleet, b);
                if (connect(reader, one, other, how) || connect(reader, other, one, how))
                    return -1;
            }
    return 0;
}

static int read_path(const struct reader *reader)
{
    uint64_t left, right;
    long long level = -1;
    struct key const key = {"path", CHOICE, 0, LEVELS};
    if (known_slots(reader, 1, &left) || known_slots(reader, 2, &right))
        return -1;
    if (reader->count != 4 || set_value(&key, &level, reader->words[3]))
        return refuse(reader, "path needs two GPUs and one of internal, single, multiple, "
                              "hostbridge, node, system");
    for (int a = 0; a < MAX_GPUS; a++)
        for (int b = 0; b < MAX_GPUS; b++)
            if (is_pair(left, right, a, b)) {
                int const one = place_of(reader->fleet, a), other = place_of(reader->fleet, b);
                reader->fleet->ancestor[one][other] = (unsigned char)(10 * level);
                reader->fleet->ancestor[other][one] = (unsigned char)(10 * level);
                reader->fleet->ancestor_known[one][other] = 1;
                reader->fleet->ancestor_known[other][one] = 1;
            }
    return 0;
}

static int function_number(const char *name)
{
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (strcmp(name, function_name(i)) == 0)
            return i;
    return -1;
}

static int read_fault(const struct reader *reader)
{
    struct fleet *const fleet = reader->fleet;
    struct fault fault = {-1, -1, -1, 0};
    char const *const name = reader->count > 1 ? reader->words[1] : "";
    if (strcmp(name, "init") == 0)
        fault.function = F_nvmlInit_v2;
    else if (strcmp(name, "wait") == 0)
        fault.function = F_nvmlEventSetWait_v2;
    else if (strcmp(name, "all") != 0 && (fault.function = function_number(name)) < 0)
        return refuse(reader, "fault needs init, wait, all or a function; \"%s\" is none", name);
    if (set_fields(reader, 2, FAULT_KEYS, &fault))
        return -1;
    if (fleet->fault_count == MAX_FAULTS)
        return refuse(reader, "more than %d faults", MAX_FAULTS);
    fleet->faults[fleet->fault_count++] = fault;
    return 0;
}

static int read_event(const struct reader *reader)
{
    struct fleet *const fleet = reader->fleet;
    struct event event = {0, -1, 0, 0, 0xffffffff, 0xffffffff};
    struct key const key = {"event", CHOICE, offsetof(struct event, type), EVENTS};
    char *end;
    if (reader->count < 3 || read_number(reader->words[1], &event.sequence, &end) || *end ||
        event.sequence < 1 || set_value(&key, &event, reader->words[2]))
        return refuse(reader, "event needs a number from 1 on, and xid, sbe, dbe or mig");
    event.type = EVENT_TYPES[event.type];
    if (set_fields(reader, 3, EVENT_KEYS, &event))
        return -1;
    if (fleet->event_count == MAX_EVENTS)
        return refuse(reader, "more than %d events", MAX_EVENTS);
    fleet->events[fleet->event_count++] = event;
    return 0;
}

static int read_process(const struct reader *reader)
{
    struct fleet *const fleet = reader->fleet;
    struct process process = {0, 0, COMPUTE, -1, -1, 0, -1, 0};
    if (known_slots(reader, 1, &process.gpus) || set_fields(reader, 2, PROCESS_KEYS, &process))
        return -1;
    if (fleet->process_count == MAX_PROCESSES)
        return refuse(reader, "more than %d processes", MAX_PROCESSES);
    fleet->processes[fleet->process_count++] = process;
    return 0;
}

static int read_line(const struct reader *reader)
{
    char const *const word = reader->words[0];
    uint64_t set;
    if (reader->is_journal && !slots(reader, 1, &set) &&
        place_of(reader->fleet, __builtin_ctzll(set)) < 0)
        return 0;
    if (strcmp(word, "driver") == 0)
        return set_fields(reader, 1, DRIVER_KEYS, reader->fleet);
    if (strcmp(word, "gpu") == 0)
        return read_gpu(reader);
    if (strcmp(word, "mig") == 0)
        return read_mig(reader, 0);
    if (strcmp(word, "instance") == 0)
        return read_mig(reader, 1);
    if (strcmp(word, "gone") == 0)
        return read_gone(reader);
    if (strcmp(word, "link") == 0)
        return read_link(reader);
    if (strcmp(word, "switch") == 0)
        return read_switch(reader);
    if (strcmp(word, "path") == 0)
        return read_path(reader);
    if (strcmp(word, "fault") == 0)
        return read_fault(reader);
    if (strcmp(word, "event") == 0)
        return read_event(reader);
    if (strcmp(word, "process") == 0)
        return read_process(reader);
    return refuse(reader, "\"%s\" is none of driver, gpu, mig, instance, gone, link, switch, path, "
                          "fault, event, process", word);
}

static int read_lines(struct reader *reader, FILE *file)
{
    char *line = NULL;
    size_t size = 0;
    int failed = 0;
    while (!failed && getline(&line, &size, file) >= 0) {
        reader->line++;
        failed = split_line(reader, line) || (reader->count && read_line(reader));
    }
    free(line);
    return failed ? -1 : 0;
}

/* Reads what was made since; without a journal nothing was. */
static int read_journal(struct reader *reader, const char *path)
{
    FILE *const file = fopen(path, "re");
    if (!file)
        return 0;
    *reader = (struct reader){.path = path, .fleet = reader->fleet, .is_journal = 1};
    int const failed = read_lines(reader, file);
    fclose(file);
    return failed;
}

struct fleet *fleet_read(const char *path, const char *journal)
{
    struct reader reader = {.path = path};
    char problem[200];
    FILE *const file = fopen(path, "re");
    if (!file) {
        refuse(&reader, "%s", strerror(errno));
        return NULL;
    }
    reader.fleet = calloc(1, sizeof *reader.fleet);
    if (reader.fleet) {
        fleet_start(reader.fleet);
        int failed = read_lines(&reader, file) || read_journal(&reader, journal);
        reader.line = 0;
        if (!failed && fleet_finish(reader.fleet, problem, sizeof problem))
            failed = refuse(&reader, "%s", problem);
        if (failed) {
            free(reader.fleet);
            reader.fleet = NULL;
        }
    }
    fclose(file);
    return reader.fleet;
}
