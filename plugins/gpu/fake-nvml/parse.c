/* Reads a fleet file: one line per thing, `keyword what key=value ...`. See README.md. */
#include "fleet.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { NUMBER, CHOICE, BYTES, VERSION, WORD };

struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *const *choices; /* the value is the place in this list */
};

struct reader {
    const char *path;
    int line;
    struct fleet *fleet;
    char *words[64];
    int count;
};

static const char *const NO_YES[] = {"no", "yes", NULL};
static const char *const OFF_ON[] = {"off", "on", NULL};
static const char *const MODES[] = {"unsupported", "off", "on", NULL};
static const char *const STATES[] = {"ok", "lost", "unreachable", NULL};
static const char *const FABRICS[] = {"none", "starting", "progress", "completed", NULL};
static const char *const ADDRESSING[] = {"none", "hmm", "ats", NULL};
static const char *const EVENTS[] = {"sbe", "dbe", "xid", NULL};
static const long long EVENT_TYPES[] = {
    NVML_EVENT_SINGLE_BIT, NVML_EVENT_DOUBLE_BIT, NVML_EVENT_XID};
static const char *const LEVELS[] = {
    "internal", "single", "multiple", "hostbridge", "node", "system", NULL};

static const struct key DRIVER_KEYS[] = {
    {"version", WORD, offsetof(struct fleet, version), NULL},
    {"nvml", WORD, offsetof(struct fleet, nvml), NULL},
    {"cuda", VERSION, offsetof(struct fleet, cuda), NULL},
    {"gone", CHOICE, offsetof(struct fleet, gone), NO_YES},
    {0}};

static const struct key GPU_KEYS[] = {
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
    {"brand", NUMBER, offsetof(struct gpu, brand), NULL},
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
    {"throttle", NUMBER, offsetof(struct gpu, throttle), NULL},
    {"replays", NUMBER, offsetof(struct gpu, replays), NULL},
    {"clock", NUMBER, offsetof(struct gpu, clock), NULL},
    {"memory-clock", NUMBER, offsetof(struct gpu, memory_clock), NULL},
    {"max-clock", NUMBER, offsetof(struct gpu, max_clock), NULL},
    {"max-memory-clock", NUMBER, offsetof(struct gpu, max_memory_clock), NULL},
    {"fabric", CHOICE, offsetof(struct gpu, fabric), FABRICS},
    {"clique", NUMBER, offsetof(struct gpu, clique), NULL},
    {"cluster", WORD, offsetof(struct gpu, cluster), NULL},
    {0}};

static const struct key MIG_KEYS[] = {
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

struct connection {
    long long count, active;
};
static const struct key LINK_KEYS[] = {
    {"count", NUMBER, offsetof(struct connection, count), NULL},
    {"active", CHOICE, offsetof(struct connection, active), NO_YES},
    {0}};

static const struct key FAULT_KEYS[] = {
    {"gpu", NUMBER, offsetof(struct fault, gpu), NULL},
    {"rc", NUMBER, offsetof(struct fault, rc), NULL},
    {"delay", NUMBER, offsetof(struct fault, delay), NULL},
    {0}};

static const struct key EVENT_KEYS[] = {
    {"gpu", NUMBER, offsetof(struct event, gpu), NULL},
    {"code", NUMBER, offsetof(struct event, code), NULL},
    {"gi", NUMBER, offsetof(struct event, gi), NULL},
    {"ci", NUMBER, offsetof(struct event, ci), NULL},
    {0}};

/* Says what is wrong on one line of stderr; always -1. */
__attribute__((format(printf, 2, 3)))
static int refuse(const struct reader *reader, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (reader->line)
        fprintf(stderr, "fake nvml: %s:%d: %s\n", reader->path, reader->line, text);
    else
        fprintf(stderr, "fake nvml: %s: %s\n", reader->path, text);
    return -1;
}

/* Cuts a line into words; double quotes keep blanks. The words point into the line. */
static int split(struct reader *reader, char *line)
{
    char *to = line;
    reader->count = 0;
    for (char *from = line;;) {
        while (*from == ' ' || *from == '\t' || *from == '\r' || *from == '\n')
            from++;
        if (!*from || *from == '#')
            return 0;
        if (reader->count == (int)(sizeof reader->words / sizeof *reader->words))
            return refuse(reader, "too many words");
        reader->words[reader->count++] = to;
        int quoted = 0;
        for (; *from && (quoted || !strchr(" \t\r\n", *from)); from++) {
            if (*from == '"')
                quoted = !quoted;
            else
                *to++ = *from;
        }
        if (quoted)
            return refuse(reader, "a quote is not closed");
        if (*from)
            from++;
        *to++ = 0;
    }
}

static int number(const char *text, long long *value, char **end)
{
    errno = 0;
    *value = strtoll(text, end, 0);
    return *end == text || errno ? -1 : 0;
}

/* Returns -1 if the text is no value of this key. */
static int set(const struct key *key, void *record, const char *text)
{
    char *const place = (char *)record + key->offset;
    long long *const numbers = (long long *)(void *)place;
    char *end;
    switch (key->kind) {
    case WORD:
        if (strlen(text) >= TEXT)
            return -1;
        strcpy(place, text);
        return 0;
    case CHOICE:
        for (int i = 0; key->choices[i]; i++)
            if (strcmp(text, key->choices[i]) == 0) {
                *numbers = i;
                return 0;
            }
        return -1;
    case VERSION:
        if (number(text, &numbers[0], &end) || *end != '.' || number(end + 1, &numbers[1], &end))
            return -1;
        return *end ? -1 : 0;
    case BYTES:
        if (number(text, numbers, &end) || *numbers < 0)
            return -1;
        if (strcmp(end, "KiB") == 0)
            *numbers <<= 10;
        else if (strcmp(end, "MiB") == 0)
            *numbers <<= 20;
        else if (strcmp(end, "GiB") == 0)
            *numbers <<= 30;
        else if (*end)
            return -1;
        return 0;
    default:
        return number(text, numbers, &end) || *end ? -1 : 0;
    }
}

/* Sets the fields of a record from the words `key=value` from the given one on. */
static int fields(const struct reader *reader, int from, const struct key *keys, void *record)
{
    for (int i = from; i < reader->count; i++) {
        char const *const word = reader->words[i];
        char const *const value = strchr(word, '=');
        if (!value)
            return refuse(reader, "\"%s\" is not key=value", word);
        const struct key *key = keys;
        while (key->name && (strlen(key->name) != (size_t)(value - word) ||
                             strncmp(key->name, word, (size_t)(value - word)) != 0))
            key++;
        if (!key->name)
            return refuse(reader, "%s has no key \"%.*s\"", reader->words[0],
                          (int)(value - word), word);
        if (set(key, record, value + 1))
            return refuse(reader, "%s is no value of %s", value + 1, key->name);
    }
    return 0;
}

static int place_of(const struct fleet *fleet, int slot)
{
    for (int i = 0; i < fleet->gpu_count; i++)
        if (fleet->gpus[i].slot == slot)
            return i;
    return -1;
}

/* Reads GPUs such as `3`, `0-3`, `0,2,4-5` or `all` into a set of bits. */
static int slots(const struct reader *reader, int word, uint64_t *set)
{
    *set = 0;
    if (reader->count <= word)
        return refuse(reader, "%s needs a GPU such as 0, 0-3 or all", reader->words[0]);
    const char *text = reader->words[word];
    if (strcmp(text, "all") == 0) {
        for (int i = 0; i < reader->fleet->gpu_count; i++)
            *set |= UINT64_C(1) << reader->fleet->gpus[i].slot;
        return 0;
    }
    for (;; text++) {
        char *end;
        long long first, last;
        if (number(text, &first, &end))
            break;
        last = first;
        if (*end == '-' && number(end + 1, &last, &end))
            break;
        if (first < 0 || last < first || last >= MAX_GPUS)
            break;
        for (long long i = first; i <= last; i++)
            *set |= UINT64_C(1) << i;
        text = end;
        if (!*text)
            return 0;
        if (*text != ',')
            break;
    }
    return refuse(reader, "\"%s\" is no GPU such as 0, 0-3 or all", reader->words[word]);
}

/* As slots(), of GPUs that earlier lines made. */
static int known_slots(const struct reader *reader, int word, uint64_t *set)
{
    if (slots(reader, word, set))
        return -1;
    for (int i = 0; i < MAX_GPUS; i++)
        if (*set >> i & 1 && place_of(reader->fleet, i) < 0)
            return refuse(reader, "there is no gpu %d above this line", i);
    return 0;
}

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
        if (fields(reader, 2, GPU_KEYS, &reader->fleet->gpus[place]))
            return -1;
    }
    return 0;
}

static int read_mig(const struct reader *reader)
{
    uint64_t set;
    if (known_slots(reader, 1, &set))
        return -1;
    for (int slot = 0; slot < MAX_GPUS; slot++) {
        if (!(set >> slot & 1))
            continue;
        struct gpu *const gpu = &reader->fleet->gpus[place_of(reader->fleet, slot)];
        if (gpu->mig_count == MAX_MIGS)
            return refuse(reader, "gpu %d has more than %d MIG devices", slot, MAX_MIGS);
        struct mig *const mig = &gpu->migs[gpu->mig_count];
        char problem[200];
        mig_start(mig);
        if (fields(reader, 2, MIG_KEYS, mig))
            return -1;
        if (mig_finish(mig, gpu, problem, sizeof problem))
            return refuse(reader, "%s", problem);
        gpu->mig_count++;
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
    if (known_slots(reader, 1, &set) || fields(reader, 2, LINK_KEYS, &how))
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
        fields(reader, 3, LINK_KEYS, &how))
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
    if (reader->count != 4 || set(&key, &level, reader->words[3]))
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
    if (fields(reader, 2, FAULT_KEYS, &fault))
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
    if (reader->count < 3 || number(reader->words[1], &event.sequence, &end) || *end ||
        event.sequence < 1 || set(&key, &event, reader->words[2]))
        return refuse(reader, "event needs a number from 1 on, and xid, sbe or dbe");
    event.type = EVENT_TYPES[event.type];
    if (fields(reader, 3, EVENT_KEYS, &event))
        return -1;
    if (fleet->event_count == MAX_EVENTS)
        return refuse(reader, "more than %d events", MAX_EVENTS);
    fleet->events[fleet->event_count++] = event;
    return 0;
}

static int read_line(const struct reader *reader)
{
    char const *const word = reader->words[0];
    if (strcmp(word, "driver") == 0)
        return fields(reader, 1, DRIVER_KEYS, reader->fleet);
    if (strcmp(word, "gpu") == 0)
        return read_gpu(reader);
    if (strcmp(word, "mig") == 0)
        return read_mig(reader);
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
    return refuse(reader, "\"%s\" is none of driver, gpu, mig, link, switch, path, fault, event",
                  word);
}

static int read_lines(struct reader *reader, FILE *file)
{
    char *line = NULL;
    size_t size = 0;
    int failed = 0;
    while (!failed && getline(&line, &size, file) >= 0) {
        reader->line++;
        failed = split(reader, line) || (reader->count && read_line(reader));
    }
    free(line);
    return failed ? -1 : 0;
}

struct fleet *fleet_read(const char *path)
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
        int failed = read_lines(&reader, file);
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
