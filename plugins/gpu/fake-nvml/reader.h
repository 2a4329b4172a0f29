/* Lines of a fleet file as words, and words as values. */
#ifndef READER_H
#define READER_H

#include "fleet.h"

#include <stdint.h>

enum kind { NUMBER, CHOICE, BYTES, VERSION, WORD };

struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *const *choices; /* the value is the place in this list */
};

struct reader {
    const char *path;
    int line, is_journal;
    struct fleet *fleet;
    char *words[64];
    int count;
};

struct connection {
    long long count, active;
};

/* keys.c; each ends with a key that has no name. */
extern const struct key DRIVER_KEYS[], GPU_KEYS[], MIG_KEYS[], LINK_KEYS[], FAULT_KEYS[], EVENT_KEYS[],
    PROCESS_KEYS[];

/* Says what is wrong on one line of stderr; always -1, as all below if a line cannot be read. */
__attribute__((format(printf, 2, 3)))
int refuse(const struct reader *reader, const char *format, ...);

/* Cuts a line into words; double quotes keep blanks. The words point into the line. */
int split_line(struct reader *reader, char *line);
int read_number(const char *text, long long *value, char **end);
int set_value(const struct key *key, void *record, const char *text);
/* Sets the fields of a record from the words `key=value` from the given one on. */
int set_fields(const struct reader *reader, int from, const struct key *keys, void *record);

/* The place in fleet.gpus, or -1. */
int place_of(const struct fleet *fleet, int slot);
/* Reads GPUs such as `3`, `0-3`, `0,2,4-5` or `all` into a set of bits. */
int slots(const struct reader *reader, int word, uint64_t *set);
/* As slots(), of GPUs that earlier lines made. */
int known_slots(const struct reader *reader, int word, uint64_t *set);

#endif
