/* The device nodes of GPUs, which stay open from the first handle to the last shutdown. */
#include "library.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_MINORS = 256 };
static int opened[MAX_MINORS]; /* descriptors, and 1 more; 0 means none */
static char folder[4096];

void nodes_configure(void)
{
    char const *const given = getenv("FAKE_NVML_NODES");
    snprintf(folder, sizeof folder, "%s", given ? given : "");
}

void node_open(const struct gpu *gpu)
{
    char path[sizeof folder + 32];
    if (!folder[0] || gpu->minor < 0 || gpu->minor >= MAX_MINORS || opened[gpu->minor])
        return;
    snprintf(path, sizeof path, "%s/nvidia%lld", folder, gpu->minor);
    opened[gpu->minor] = open(path, O_RDWR | O_CLOEXEC) + 1;
}

void nodes_close(void)
{
    for (int i = 0; i < MAX_MINORS; i++) {
        if (opened[i])
            close(opened[i] - 1);
        opened[i] = 0;
    }
}
