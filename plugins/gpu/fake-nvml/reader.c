/* Lines of a fleet file as words, and words as values. */
#include "reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int refuse(const struct reader *reader, const char *format, ...)
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

int split_line(struct reader *reader, char *line)
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

int read_number(const char *text, long long *value, char **end)
{
    errno = 0;
    *value = strtoll(text, end, 0);
    return *end == text || errno ? -1 : 0;
}

int set_value(const struct key *key, void *record, const char *text)
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
        if (read_number(text, &numbers[0], &end) || *end != '.' || read_number(end + 1, &numbers[1], &end))
            return -1;
        return *end ? -1 : 0;
    case BYTES:
        if (read_number(text, numbers, &end) || *numbers < 0)
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
        return read_number(text, numbers, &end) || *end ? -1 : 0;
    }
}

int set_fields(const struct reader *reader, int from, const struct key *keys, void *record)
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
        if (set_value(key, record, value + 1))
            return refuse(reader, "%s is no value of %s", value + 1, key->name);
    }
    return 0;
}

int place_of(const struct fleet *fleet, int slot)
{
    for (int i = 0; i < fleet->gpu_count; i++)
        if (fleet->gpus[i].slot == slot)
            return i;
    return -1;
}

int slots(const struct reader *reader, int word, uint64_t *set)
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
        if (read_number(text, &first, &end))
            break;
        last = first;
        if (*end == '-' && read_number(end + 1, &last, &end))
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

int known_slots(const struct reader *reader, int word, uint64_t *set)
{
    if (slots(reader, word, set))
        return -1;
    for (int i = 0; i < MAX_GPUS; i++)
        if (*set >> i & 1 && place_of(reader->fleet, i) < 0)
            return refuse(reader, "there is no gpu %d above this line", i);
    return 0;
}
