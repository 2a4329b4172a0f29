/* Counts calls in a mapped file, so that others can read them while the program runs.
 *
 * The file is an array of rows of 64 bytes: the name in 56 bytes, padded with zeros, and the
 * count as a native 64 bit number. Several processes may count in the same file. */
#include "functions.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct row {
    char name[56];
    uint64_t count;
};

static struct row *rows;

static const char *const NAMES[FUNCTION_COUNT] = {
#define NAME(name) #name,
    FUNCTIONS(NAME)
#undef NAME
};

const char *function_name(enum function function)
{
    return NAMES[function];
}

/* Called with the library's lock held. An earlier file stays mapped: threads may be counting. */
void counters_open(const char *path)
{
    size_t const size = FUNCTION_COUNT * sizeof(struct row);
    int const file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        return;
    struct row *mapped = MAP_FAILED;
    if (ftruncate(file, (off_t)size) == 0)
        mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        memcpy(mapped[i].name, NAMES[i], strlen(NAMES[i]));
    __atomic_store_n(&rows, mapped, __ATOMIC_RELEASE);
}

void counters_add(enum function function)
{
    struct row *const mapped = __atomic_load_n(&rows, __ATOMIC_ACQUIRE);
    if (mapped)
        __atomic_fetch_add(&mapped[function].count, 1, __ATOMIC_RELAXED);
}
