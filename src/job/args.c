#define _GNU_SOURCE
#include "job/args.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *weft_job_need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "weft: out of memory\n");
        exit(1);
    }
    return memory;
}

static char *print(const char *format, va_list list)
{
    char *text;
    return weft_job_need(vasprintf(&text, format, list) < 0 ? NULL : text);
}

static void append(struct weft_args *args, char *text)
{
    if (args->count + 1 >= args->capacity) {
        args->capacity = args->capacity > 0 ? 2 * args->capacity : 16;
        args->list = weft_job_need(realloc(args->list, args->capacity * sizeof(*args->list)));
    }
    args->list[args->count++] = text;
    args->list[args->count] = NULL;
}

void weft_args_add(struct weft_args *args, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    append(args, print(format, list));
    va_end(list);
}

void weft_args_add_all(struct weft_args *args, char *const *list)
{
    for (; list != NULL && *list != NULL; list++) {
        append(args, weft_job_need(strdup(*list)));
    }
}

static void wipe(char *text)
{
    explicit_bzero(text, strlen(text));
    free(text);
}

void weft_args_set(struct weft_args *args, uint32_t index, const char *format, ...)
{
    va_list list;
    WEFT_ASSERT(index < args->count);
    va_start(list, format);
    char *text = print(format, list);
    va_end(list);
    wipe(args->list[index]);
    args->list[index] = text;
}

void weft_args_fini(struct weft_args *args)
{
    for (uint32_t i = 0; i < args->count; i++) {
        wipe(args->list[i]);
    }
    free(args->list);
    *args = (struct weft_args){.list = NULL};
}
