/* Init and shutdown, the fleet file, faults, and what is said of the system as a whole. */
#include "library.h"

#include <pthread.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fleet *current;
static char fleet_path[4096], calls_path[4096], journal_path[4096 + 8];
static struct stat seen[2]; /* of the fleet file and the journal */
static int journal = -1;    /* its descriptor, while something is changed */
static int is_read, is_good; /* the file as it was seen */
static int users;            /* inits without a shutdown */

const struct fleet *fleet(void)
{
    return current;
}

long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* Looks at the environment: at each init, so that one process can go from fleet to fleet. */
static void configure(void)
{
    char const *const path = getenv("FAKE_NVML_FLEET");
    char const *const calls = getenv("FAKE_NVML_CALLS");
    if (calls && strcmp(calls, calls_path) != 0 && strlen(calls) < sizeof calls_path) {
        strcpy(calls_path, calls);
        counters_open(calls_path);
    }
    nodes_configure();
    if (path && strcmp(path, fleet_path) != 0 && strlen(path) < sizeof fleet_path) {
        strcpy(fleet_path, path);
        snprintf(journal_path, sizeof journal_path, "%s.made", path);
        is_read = 0;
    }
}

/* Whether a file is as it was last time, and remembers it. */
static int is_as_seen(const char *path, struct stat *before)
{
    struct stat state = {0};
    if (stat(path, &state) != 0)
        state = (struct stat){0};
    int const is_same = state.st_ino == before->st_ino && state.st_size == before->st_size &&
                        state.st_mtim.tv_sec == before->st_mtim.tv_sec &&
                        state.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
    *before = state;
    return is_same;
}

/* Reads the file if it has changed. One that cannot be read leaves the fleet as it was. */
static void refresh(void)
{
    int const is_same = is_as_seen(fleet_path, &seen[0]);
    if (is_as_seen(journal_path, &seen[1]) && is_same && is_read)
        return;
    is_read = 1;
    if (!fleet_path[0])
        fputs("fake nvml: FAKE_NVML_FLEET names no fleet file\n", stderr);
    struct fleet *const fresh = fleet_path[0] ? fleet_read(fleet_path, journal_path) : NULL;
    is_good = fresh != NULL;
    if (fresh) {
        free(current);
        current = fresh;
    }
}

int change_begin(void)
{
    journal = open(journal_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (journal < 0 || flock(journal, LOCK_EX) != 0)
        return -1;
    refresh(); /* another process may have changed something */
    return 0;
}

void change(const char *format, ...)
{
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    int const length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(journal, line, (size_t)length) != length)
        abort();
    refresh();
}

nvmlReturn_t change_end(nvmlReturn_t result)
{
    if (journal >= 0)
        close(journal); /* this unlocks it */
    journal = -1;
    return leave(result);
}

/* Which faults apply: those of the whole node, those of one GPU, or both. */
enum scope { NODE = 1, GPU = 2 };

/* Sums up the faults that now apply: the first result, the longest delay. */
static struct fault fault_of(enum function function, enum scope scope, int slot)
{
    struct fault sum = {(int)function, slot, -1, 0};
    if (function == F_nvmlInitWithFlags)
        function = F_nvmlInit_v2;
    for (int i = 0; current && i < current->fault_count; i++) {
        struct fault const *const fault = &current->faults[i];
        if ((fault->function >= 0 && fault->function != (int)function) ||
            !(fault->gpu < 0 ? scope & NODE : scope & GPU && fault->gpu == slot))
            continue;
        if (sum.rc < 0)
            sum.rc = fault->rc;
        if (fault->delay > sum.delay)
            sum.delay = fault->delay;
    }
    return sum;
}

static nvmlReturn_t readiness(void)
{
    return users > 0 && current && !current->gone ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static void sleep_unlocked(long milliseconds)
{
    struct timespec const time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    pthread_mutex_unlock(&lock);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    refresh();
}

/* Holds the call while a fault delays it, then says what the fault returns.
 * A call that is held goes on when the fault goes away. */
static nvmlReturn_t apply(enum function function, enum scope scope, int slot)
{
    long long const start = now();
    struct fault fault = fault_of(function, scope, slot);
    while (now() - start < fault.delay) {
        sleep_unlocked(2);
        fault = fault_of(function, scope, slot);
    }
    return fault.rc < 0 ? NVML_SUCCESS : (nvmlReturn_t)fault.rc;
}

static void begin(enum function function)
{
    static int is_configured;
    pthread_mutex_lock(&lock);
    if (!is_configured || function == F_nvmlInit_v2 || function == F_nvmlInitWithFlags)
        configure();
    is_configured = 1;
    counters_add(function);
    refresh();
}

nvmlReturn_t enter(enum function function)
{
    begin(function);
    nvmlReturn_t const result = readiness();
    return result ? result : apply(function, NODE, -1);
}

nvmlReturn_t gpu_fault(enum function function, int slot)
{
    return apply(function, GPU, slot);
}

nvmlReturn_t leave(nvmlReturn_t result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t pause_call(enum function function, long milliseconds)
{
    sleep_unlocked(milliseconds);
    nvmlReturn_t const result = readiness();
    long long const rc = fault_of(function, NODE, -1).rc;
    return result ? result : rc < 0 ? NVML_SUCCESS : (nvmlReturn_t)rc;
}

nvmlReturn_t enter_handle(enum function function, struct handle *handle, unsigned kinds,
                          struct target *target)
{
    begin(function);
    nvmlReturn_t result = readiness();
    if (result)
        return result;
    handle_find(handle, kinds, target);
    result = apply(function, NODE | GPU, target->gpu ? target->gpu->slot : -1);
    return result ? result : handle_find(handle, kinds, target);
}

nvmlReturn_t enter_device(enum function function, nvmlDevice_t device, struct target *target)
{
    return enter_handle(function, device, 1 << HANDLE_GPU | 1 << HANDLE_MIG, target);
}

nvmlReturn_t enter_gpu(enum function function, nvmlDevice_t device, const struct gpu **gpu)
{
    struct target target;
    nvmlReturn_t const result = enter_device(function, device, &target);
    *gpu = target.gpu;
    return result ? result : target.mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t copy_text(char *to, unsigned size, const char *text)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t init(enum function function)
{
    begin(function);
    nvmlReturn_t result = apply(function, NODE, -1);
    if (!result && !is_good)
        result = NVML_ERROR_UNKNOWN;
    if (!result && current->gone)
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    if (!result && users++ == 0)
        devices_enumerate();
    return leave(result);
}

NVML_API nvmlReturn_t nvmlInit_v2(void)
{
    return init(F_nvmlInit_v2);
}

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return init(F_nvmlInitWithFlags);
}

NVML_API nvmlReturn_t nvmlShutdown(void)
{
    begin(F_nvmlShutdown);
    if (users == 0)
        return leave(NVML_ERROR_UNINITIALIZED);
    if (--users == 0) {
        events_end();
        nodes_close();
    }
    return leave(apply(F_nvmlShutdown, NODE, -1));
}

NVML_API const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } TEXTS[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"},
        {4, "Insufficient Permissions"}, {6, "Not Found"}, {7, "Insufficient Size"},
        {8, "Insufficient External Power"}, {9, "Driver Not Loaded"}, {10, "Timeout"},
        {11, "Interrupt Request Issue"}, {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"}, {14, "Corrupted infoROM"}, {15, "GPU is lost"},
        {16, "GPU requires restart"}, {17, "The operating system has blocked the request."},
        {18, "RM has detected an NVML/RM version mismatch."}, {19, "In use by another client"},
        {20, "Insufficient Memory"}, {23, "Insufficient Resources"}, {25, "Argument version mismatch"},
        {999, "Unknown Error"}};
    begin(F_nvmlErrorString);
    leave(NVML_SUCCESS);
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        if (TEXTS[i].result == result)
            return TEXTS[i].text;
    return "Unknown Error";
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    nvmlReturn_t const result = enter(F_nvmlSystemGetDriverVersion);
    return leave(result ? result : copy_text(version, length, current->version));
}

NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    nvmlReturn_t const result = enter(F_nvmlSystemGetNVMLVersion);
    return leave(result ? result : copy_text(version, length, current->nvml));
}

static nvmlReturn_t cuda_version(enum function function, int *version)
{
    nvmlReturn_t const result = enter(function);
    if (!result)
        *version = (int)(1000 * current->cuda[0] + 10 * current->cuda[1]);
    return leave(result);
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(F_nvmlSystemGetCudaDriverVersion, version);
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(F_nvmlSystemGetCudaDriverVersion_v2, version);
}
